use crate::{
    Allowance, Directory, Error, Role, Secret, Settings, Tenant, Token,
    record::{self, TENANTS, TOKENS, TenantRecord, TokenRecord},
};
use arc_swap::ArcSwap;
use contract::{Expect, Name, Store};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
    sync::Arc,
};

/// The tenants of a node, and who changes them. Changes block on the disk.
pub struct Tenants {
    store: Arc<dyn Store>,
    published: Arc<ArcSwap<Directory>>,
    /// Held during a change; the last tenant's number.
    changing: Mutex<u32>,
}

impl fmt::Debug for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenants").finish_non_exhaustive()
    }
}

/// What a token is to be.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Called so in lists and audit lines.
    pub name: Option<String>,
    /// What its holder may do.
    pub roles: BTreeSet<Role>,
    /// When it ends, in milliseconds since 1970.
    pub expires: Option<u64>,
}

impl Tenants {
    /// Reads who there is. The store has no other writer of these records.
    pub fn open(store: Arc<dyn Store>) -> Result<Self, Error> {
        let (mut tenants, mut deleted, mut tokens) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let mut number = 0;
        for entry in store.list(TENANTS)? {
            let name: Name = name_of(&entry.key, TENANTS)?;
            let record: TenantRecord = record::read(&entry)?;
            if record.deleted.is_some() {
                deleted.insert(name);
                continue;
            }
            number += 1;
            let allowance = Arc::new(Allowance::new(number, &record.settings.quotas));
            tenants.insert(name.clone(), Arc::new(tenant(name, record, allowance)));
        }
        for entry in store.list(TOKENS)? {
            let id = entry.key.strip_prefix(TOKENS).unwrap_or_default().to_owned();
            let record: TokenRecord = record::read(&entry)?;
            tokens.insert(id.clone(), Arc::new(token(id, record)));
        }
        let directory = Directory::new(tenants, tokens, deleted);
        Ok(Self {
            store,
            published: Arc::new(ArcSwap::from_pointee(directory)),
            changing: Mutex::new(number),
        })
    }

    /// Who there is now.
    pub fn directory(&self) -> Arc<Directory> {
        self.published.load_full()
    }

    /// Where whoever there is can be read at any time without a lock.
    pub fn published(&self) -> Arc<ArcSwap<Directory>> {
        self.published.clone()
    }

    /// Makes a tenant. `now` is in milliseconds since 1970, here and below.
    pub fn create(&self, name: &Name, settings: Settings, now: u64) -> Result<Arc<Tenant>, Error> {
        let mut number = self.changing.lock();
        let before = self.directory();
        if before.tenants.contains_key(name) {
            return Err(Error::Exists(name.clone()));
        }
        if before.deleted.contains(name) {
            return Err(Error::Used(name.clone()));
        }
        let settings = checked(name, settings, &before)?;
        let record = TenantRecord {
            created: now,
            settings,
            deleted: None,
        };
        self.put_tenant(name, &record, Expect::Absent)?;
        *number += 1;
        let allowance = Arc::new(Allowance::new(*number, &record.settings.quotas));
        Ok(self.publish_tenant(&before, tenant(name.clone(), record, allowance)))
    }

    /// Changes what the operator says of a tenant.
    pub fn update(&self, name: &Name, edit: impl FnOnce(&mut Settings)) -> Result<Arc<Tenant>, Error> {
        let _changing = self.changing.lock();
        let before = self.directory();
        let known = before.tenant(name).ok_or_else(|| Error::Unknown(name.clone()))?;
        let mut settings = known.settings.clone();
        edit(&mut settings);
        let settings = checked(name, settings, &before)?;
        let record = TenantRecord {
            created: known.created,
            settings,
            deleted: None,
        };
        self.put_tenant(name, &record, Expect::Any)?;
        known.allowance.set(&record.settings.quotas);
        Ok(self.publish_tenant(&before, tenant(name.clone(), record, known.allowance.clone())))
    }

    /// Deletes a tenant and its tokens. `applications` is how many it still has; the caller sees to it that this stays true.
    pub fn delete(&self, name: &Name, applications: usize, now: u64) -> Result<(), Error> {
        let _changing = self.changing.lock();
        let before = self.directory();
        let known = before.tenant(name).ok_or_else(|| Error::Unknown(name.clone()))?;
        if applications > 0 {
            return Err(Error::NotEmpty {
                tenant: name.clone(),
                applications,
            });
        }
        let record = TenantRecord {
            created: known.created,
            settings: Settings::default(),
            deleted: Some(now),
        };
        // Once this is on the disk, its tokens open nothing, whatever becomes of their records.
        self.put_tenant(name, &record, Expect::Any)?;
        let (mut tenants, mut tokens) = (before.tenants.clone(), before.tokens.clone());
        let mut deleted = before.deleted.clone();
        tenants.remove(name);
        deleted.insert(name.clone());
        tokens.retain(|_, token| token.tenant != *name);
        self.publish(Directory::new(tenants, tokens, deleted));
        for token in before.tokens(name) {
            self.store.delete(&token_key(&token.id), Expect::Any)?;
        }
        Ok(())
    }

    /// Makes a token. Its secret is told here and never again.
    pub fn create_token(
        &self,
        tenant: &Name,
        new: NewToken,
        now: u64,
    ) -> Result<(Arc<Token>, Secret), Error> {
        let _changing = self.changing.lock();
        let before = self.directory();
        before
            .tenant(tenant)
            .ok_or_else(|| Error::Unknown(tenant.clone()))?;
        if new.roles.is_empty() {
            return Err(Error::NoRole);
        }
        let secret = Secret::generate().map_err(|error| Error::Random(error.to_string()))?;
        let record = TokenRecord {
            tenant: tenant.clone(),
            name: new.name,
            roles: new.roles,
            created: now,
            expires: new.expires,
            digest: secret.digest(),
        };
        let key = token_key(&secret.id);
        self.store
            .put(&key, &record::write(&key, &record)?, Expect::Absent)?;
        let made = Arc::new(token(secret.id.clone(), record));
        let mut tokens = before.tokens.clone();
        tokens.insert(secret.id.clone(), made.clone());
        self.publish_tokens(&before, tokens);
        Ok((made, secret))
    }

    /// Ends a token at once.
    pub fn revoke(&self, tenant: &Name, id: &str) -> Result<(), Error> {
        let _changing = self.changing.lock();
        let before = self.directory();
        before
            .tenant(tenant)
            .ok_or_else(|| Error::Unknown(tenant.clone()))?;
        let known = before.tokens.get(id).filter(|token| token.tenant == *tenant);
        known.ok_or_else(|| Error::UnknownToken {
            tenant: tenant.clone(),
            id: id.to_owned(),
        })?;
        self.store.delete(&token_key(id), Expect::Any)?;
        let mut tokens = before.tokens.clone();
        tokens.remove(id);
        self.publish_tokens(&before, tokens);
        Ok(())
    }

    fn put_tenant(&self, name: &Name, record: &TenantRecord, expect: Expect) -> Result<(), Error> {
        let key = format!("{TENANTS}{name}");
        self.store.put(&key, &record::write(&key, record)?, expect)?;
        Ok(())
    }

    fn publish(&self, directory: Directory) {
        self.published.store(Arc::new(directory));
    }

    fn publish_tenant(&self, before: &Directory, tenant: Tenant) -> Arc<Tenant> {
        let tenant = Arc::new(tenant);
        let mut tenants = before.tenants.clone();
        tenants.insert(tenant.name.clone(), tenant.clone());
        self.publish(Directory::new(
            tenants,
            before.tokens.clone(),
            before.deleted.clone(),
        ));
        tenant
    }

    fn publish_tokens(&self, before: &Directory, tokens: BTreeMap<String, Arc<Token>>) {
        self.publish(Directory::new(
            before.tenants.clone(),
            tokens,
            before.deleted.clone(),
        ));
    }
}

fn token_key(id: &str) -> String {
    format!("{TOKENS}{id}")
}

fn name_of(key: &str, prefix: &str) -> Result<Name, Error> {
    let name = key.strip_prefix(prefix).unwrap_or_default().parse::<Name>();
    name.map_err(|error| Error::Record {
        key: key.to_owned(),
        reason: error.to_string(),
    })
}

fn tenant(name: Name, record: TenantRecord, allowance: Arc<Allowance>) -> Tenant {
    Tenant {
        name,
        created: record.created,
        settings: record.settings,
        allowance,
    }
}

fn token(id: String, record: TokenRecord) -> Token {
    Token {
        id,
        tenant: record.tenant,
        name: record.name,
        roles: record.roles,
        created: record.created,
        expires: record.expires,
        digest: record.digest,
    }
}

/// Settings whose hosts are names of hosts, each this tenant's alone and once.
fn checked(name: &Name, mut settings: Settings, directory: &Directory) -> Result<Settings, Error> {
    let mut seen = HashSet::new();
    for host in &mut settings.hosts {
        *host = host.to_ascii_lowercase();
        if !is_host(host) {
            return Err(Error::Host(host.chars().take(300).collect()));
        }
        if let Some(other) = directory.of_host(host).filter(|other| other.name != *name) {
            return Err(Error::HostTaken {
                host: host.clone(),
                tenant: other.name.clone(),
            });
        }
    }
    settings.hosts.retain(|host| seen.insert(host.clone()));
    Ok(settings)
}

fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        matches!(label.len(), 1..=63)
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253 && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Denied, Quotas};
    use store_embedded::Embedded;

    struct Node {
        folder: tempfile::TempDir,
        tenants: Option<Tenants>,
    }

    impl Node {
        fn new() -> Self {
            let mut node = Self {
                folder: tempfile::tempdir().unwrap(),
                tenants: None,
            };
            node.restart();
            node
        }

        fn restart(&mut self) {
            self.tenants = None;
            let store = Embedded::open(&self.folder.path().join("store.redb")).unwrap();
            self.tenants = Some(Tenants::open(Arc::new(store)).unwrap());
        }

        fn its(&self) -> &Tenants {
            self.tenants.as_ref().unwrap()
        }

        fn create(&self, name: &str) -> Result<Arc<Tenant>, Error> {
            self.its().create(&name.parse().unwrap(), Settings::default(), 1)
        }

        fn token(&self, tenant: &str, expires: Option<u64>) -> (Arc<Token>, String) {
            let new = NewToken {
                name: Some("ci".into()),
                roles: [Role::Read].into(),
                expires,
            };
            let made = self.its().create_token(&tenant.parse().unwrap(), new, 1);
            let (token, secret) = made.unwrap();
            (token, secret.reveal())
        }

        fn opens(&self, text: &str, now: u64) -> Result<String, Denied> {
            let directory = self.its().directory();
            directory
                .authenticate(text, now)
                .map(|token| token.tenant.to_string())
        }
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn tokens_open_until_they_end() {
        let mut node = Node::new();
        assert!(node.its().directory().is_empty());
        node.create("acme").unwrap();
        let (token, text) = node.token("acme", Some(100));
        let (_, lasting) = node.token("acme", None);
        for restarted in [false, true] {
            if restarted {
                node.restart();
            }
            assert_eq!(node.opens(&text, 99), Ok("acme".into()));
            assert_eq!(node.opens(&text, 100), Err(Denied::Expired));
            assert_eq!(node.opens(&lasting, u64::MAX), Ok("acme".into()));
            // Another's secret under its id opens nothing.
            let mixed = format!("{}{}", &text[..16], &lasting[16..]);
            assert_eq!(node.opens(&mixed, 1), Err(Denied::Invalid));
            assert_eq!(node.opens("mp_x_y", 1), Err(Denied::Invalid));
        }
        assert!(token.allows(Role::Read).is_ok());
        assert_eq!(token.allows(Role::Deploy).unwrap_err().code, "role-missing");

        let id = token.id.clone();
        assert!(matches!(
            node.its().revoke(&name("acme"), "0"),
            Err(Error::UnknownToken { .. })
        ));
        node.create("other").unwrap();
        assert!(matches!(
            node.its().revoke(&name("other"), &id),
            Err(Error::UnknownToken { .. })
        ));
        node.its().revoke(&name("acme"), &id).unwrap();
        assert_eq!(node.opens(&text, 1), Err(Denied::Invalid));
        node.restart();
        assert_eq!(node.opens(&text, 1), Err(Denied::Invalid));
    }

    #[test]
    fn the_store_has_no_secret() {
        let node = Node::new();
        node.create("acme").unwrap();
        let (_, text) = node.token("acme", None);
        let secret = text.rsplit('_').next().unwrap();
        for entry in node.its().store.list("token/").unwrap() {
            let value = String::from_utf8(entry.value).unwrap();
            assert!(!value.contains(secret) && value.contains("\"ci\""), "{value}");
        }
    }

    #[test]
    fn a_deleted_tenant_is_gone_and_its_name_with_it() {
        let mut node = Node::new();
        node.create("acme").unwrap();
        let (_, text) = node.token("acme", None);
        assert!(matches!(
            node.its().delete(&name("acme"), 1, 2),
            Err(Error::NotEmpty { .. })
        ));
        assert!(matches!(node.create("acme"), Err(Error::Exists(_))));
        node.its().delete(&name("acme"), 0, 2).unwrap();
        for restarted in [false, true] {
            if restarted {
                node.restart();
            }
            assert!(node.its().directory().is_empty());
            assert_eq!(node.opens(&text, 1), Err(Denied::Invalid));
            assert!(matches!(node.create("acme"), Err(Error::Used(_))));
            assert!(matches!(
                node.its().delete(&name("acme"), 0, 2),
                Err(Error::Unknown(_))
            ));
        }
        assert!(node.its().store.list("token/").unwrap().is_empty());
    }

    #[test]
    fn a_host_is_one_tenants() {
        let node = Node::new();
        let with = |hosts: &[&str]| Settings {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..Settings::default()
        };
        let its = node.its();
        let acme = its
            .create(&name("acme"), with(&["API.example.org", "api.example.org"]), 1)
            .unwrap();
        assert_eq!(acme.settings.hosts, ["api.example.org"]);
        for bad in ["", "a..b", "a:80", "http://a", "-a", "a b", "é"] {
            let refused = its.create(&name("bad"), with(&[bad]), 1);
            assert!(matches!(refused, Err(Error::Host(_))), "{bad}");
        }
        assert!(matches!(
            its.create(&name("other"), with(&["api.example.org"]), 1),
            Err(Error::HostTaken { .. })
        ));
        its.create(&name("other"), with(&["b.example.org"]), 1).unwrap();
        its.update(&name("acme"), |settings| settings.hosts.clear())
            .unwrap();
        its.update(&name("other"), |settings| {
            settings.hosts = with(&["api.example.org"]).hosts
        })
        .unwrap();
        let directory = its.directory();
        assert_eq!(directory.of_host("api.example.org").unwrap().name, name("other"));
        assert!(directory.of_host("b.example.org").is_none());
    }

    #[test]
    fn use_outlives_a_change_of_quotas() {
        let mut node = Node::new();
        let acme = node.create("acme").unwrap();
        let share = acme.allowance.take(5).unwrap();
        let quotas = Quotas {
            concurrency: Some(1),
            ..Quotas::default()
        };
        let changed = node
            .its()
            .update(&name("acme"), |settings| settings.quotas = quotas)
            .unwrap();
        assert!(changed.allowance.take(5).is_err());
        drop(share);
        assert!(changed.allowance.take(5).is_ok());
        node.restart();
        let directory = node.its().directory();
        assert_eq!(directory.tenant(&name("acme")).unwrap().quotas(), &quotas);
    }
}
