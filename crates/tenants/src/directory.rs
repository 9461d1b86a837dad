use crate::{Allowance, Quotas, Role, Settings, token};
use contract::{Digest, Name, Problem};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// All tenants and tokens at one moment. It does not change; another one is published.
#[derive(Debug, Default)]
pub struct Directory {
    pub(crate) tenants: BTreeMap<Name, Arc<Tenant>>,
    /// By id.
    pub(crate) tokens: BTreeMap<String, Arc<Token>>,
    /// Whose each host is.
    hosts: HashMap<String, Arc<Tenant>>,
    /// Names that are not given again.
    pub(crate) deleted: BTreeSet<Name>,
}

/// A tenant.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its name.
    pub name: Name,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// What the operator says of it.
    pub settings: Settings,
    /// What it uses.
    pub allowance: Arc<Allowance>,
}

/// A token, without its secret.
#[derive(Clone, Debug)]
pub struct Token {
    /// Names it where it is spoken of.
    pub id: String,
    /// Whose it is.
    pub tenant: Name,
    /// What it was called.
    pub name: Option<String>,
    /// What its holder may do.
    pub roles: BTreeSet<Role>,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// When it ends, in milliseconds since 1970; never, if absent.
    pub expires: Option<u64>,
    pub(crate) digest: Digest,
}

/// A token that opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// There is none like it: it was revoked, or is mistyped.
    Invalid,
    /// It has ended.
    Expired,
}

impl Denied {
    /// What a client reads.
    pub fn problem(self) -> Problem {
        let hint = "ask the node's operator for another: `millpond token create`";
        match self {
            Self::Invalid => Problem::new(
                401,
                "token-invalid",
                "this token is not one of this node's: it was revoked, or is mistyped",
                hint,
            ),
            Self::Expired => Problem::new(401, "token-expired", "this token has expired", hint),
        }
    }
}

impl Token {
    /// Whether its holder may do this; what a client reads if not.
    pub fn allows(&self, role: Role) -> Result<(), Problem> {
        if self.roles.contains(&role) {
            return Ok(());
        }
        let roles: Vec<_> = self.roles.iter().map(ToString::to_string).collect();
        Err(Problem::new(
            403,
            "role-missing",
            format!(
                "this needs the role `{role}`, and the token {} has {}",
                self.id,
                roles.join(", ")
            ),
            "use a token with this role, or ask the node's operator for one: `millpond token create`",
        ))
    }
}

/// An unknown id is compared with this, so that it takes as long as a known one.
const NOBODY: Digest = Digest([0; 32]);

impl Directory {
    pub(crate) fn new(
        tenants: BTreeMap<Name, Arc<Tenant>>,
        tokens: BTreeMap<String, Arc<Token>>,
        deleted: BTreeSet<Name>,
    ) -> Self {
        let hosts = tenants
            .values()
            .flat_map(|tenant| {
                let hosts = tenant.settings.hosts.iter();
                hosts.map(|host| (host.clone(), tenant.clone()))
            })
            .collect();
        Self {
            tenants,
            tokens,
            hosts,
            deleted,
        }
    }

    /// Whether the node has its own tenant only.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// All tenants, by name.
    pub fn tenants(&self) -> impl Iterator<Item = &Arc<Tenant>> {
        self.tenants.values()
    }

    /// The tenant of this name.
    pub fn tenant(&self, name: &Name) -> Option<&Arc<Tenant>> {
        self.tenants.get(name)
    }

    /// Whose this host is. In lower case, without a port.
    pub fn of_host(&self, host: &str) -> Option<&Arc<Tenant>> {
        self.hosts.get(host)
    }

    /// The tokens of a tenant, by id.
    pub fn tokens(&self, tenant: &Name) -> impl Iterator<Item = &Arc<Token>> {
        self.tokens.values().filter(move |token| token.tenant == *tenant)
    }

    /// The token that a text is. `now` is in milliseconds since 1970.
    pub fn authenticate(&self, text: &str, now: u64) -> Result<&Arc<Token>, Denied> {
        let (id, secret) = token::read(text).ok_or(Denied::Invalid)?;
        let found = self.tokens.get(id);
        let expected = found.map_or(&NOBODY, |token| &token.digest);
        let same = token::matches(secret, expected);
        let found = found.filter(|_| same).ok_or(Denied::Invalid)?;
        // Its records are deleted one by one with its tenant's.
        if !self.tenants.contains_key(&found.tenant) {
            return Err(Denied::Invalid);
        }
        match found.expires {
            Some(end) if end <= now => Err(Denied::Expired),
            _ => Ok(found),
        }
    }
}

impl Tenant {
    /// What it may use.
    pub fn quotas(&self) -> &Quotas {
        &self.settings.quotas
    }
}
