//! Whose a request is: its token says so, else its host.

use crate::table::name_of;
use contract::{Head, Name, Party, Problem};
use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use tenants::{Directory, Role, Tenant, is_token};

/// Whose a request is, and how that is known.
#[derive(Clone, Debug)]
pub enum Whose {
    /// The node's own tenant's, which needs no token.
    Node,
    /// This tenant's: it showed a token with the role `invoke`.
    Token(Arc<Tenant>),
    /// It was sent to a host of this tenant, by whomever.
    Host(Arc<Tenant>),
}

impl Whose {
    /// The tenant; `None` is the node's own.
    pub fn tenant(&self) -> Option<&Arc<Tenant>> {
        match self {
            Self::Node => None,
            Self::Token(tenant) | Self::Host(tenant) => Some(tenant),
        }
    }

    /// Its name.
    pub fn name(&self) -> Option<&Name> {
        self.tenant().map(|tenant| &tenant.name)
    }

    /// Whose share of the cores it uses.
    pub fn party(&self) -> Party {
        let tenant = self.tenant();
        tenant.map_or_else(Party::default, |tenant| tenant.allowance.party())
    }

    /// Whether it may ask for its tenant's routes, or for functions by their names, which need a token even on public hosts.
    pub fn may_ask(&self, routes: bool) -> Result<(), Problem> {
        match self {
            Self::Host(tenant) if !(routes && tenant.settings.public) => Err(Problem::new(
                401,
                "token-missing",
                "requests of this kind to this host need a token",
                "send `Authorization: Bearer TOKEN` with a token that has the role invoke",
            )),
            _ => Ok(()),
        }
    }
}

pub(crate) fn find(directory: &Directory, head: &mut Head, now: SystemTime) -> Result<Whose, Problem> {
    if let Some(text) = bearer(head) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let now = u64::try_from(since).unwrap_or(u64::MAX);
        let found = directory
            .authenticate(text, now)
            .map_err(|denied| denied.problem())?;
        found.allows(Role::Invoke)?;
        let whose = directory.tenant(&found.tenant).cloned().map(Whose::Token);
        head.remove_header("authorization");
        return whose.ok_or_else(|| tenants::Denied::Invalid.problem());
    }
    let host = head
        .header("host")
        .and_then(|host| std::str::from_utf8(host).ok())
        .unwrap_or_default();
    Ok(match directory.of_host(&name_of(host)) {
        Some(tenant) => Whose::Host(tenant.clone()),
        None => Whose::Node,
    })
}

/// A text that means to be a token of this platform; what else stands there is a function's to read.
fn bearer(head: &Head) -> Option<&str> {
    let value = std::str::from_utf8(head.header("authorization")?).ok()?;
    let (scheme, text) = value.split_once(' ')?;
    let text = text.trim();
    (scheme.eq_ignore_ascii_case("bearer") && is_token(text)).then_some(text)
}
