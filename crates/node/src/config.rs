//! What a node can be told: defaults, then the file, then the command line.

use crate::{CallOptions, objects::S3Options, outside::AwsOptions};
use contract::{ByteSize, Name};
use figment::{
    Figment,
    providers::{Format as _, Serialized, Toml},
};
use lambda::{Key, Keys, Secret};
use registry::{Permit, Permits};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashSet},
    fs::File,
    io::{self, Read as _},
    net::SocketAddr,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The configuration of a node. Every key can stand in the file of `--config`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where functions are served.
    pub listen: SocketAddr,
    /// Where the control API and the metrics are.
    pub admin: SocketAddr,
    /// The node's folder: code, compiled code, metadata, logs.
    pub data: PathBuf,
    /// The processors to run on, a worker thread for each; empty: all that this process may use.
    pub cores: Vec<usize>,
    /// What callers of the control API must show. Needed as soon as `admin` is not a loopback address.
    pub admin_token: Option<String>,
    /// Sandboxes alive at once, at most what the host's limits carry; 0: as many as they carry, and no more than 20,000.
    pub sandboxes: u32,
    /// The same of those with `engine = "wasmtime-dense"`; 0: as many as the host's limits carry beside the others, and no more
    /// than 60,000.
    pub dense_sandboxes: u32,
    /// Memory of a finished sandbox that stays resident for the next one.
    pub keep_resident: ByteSize,
    /// How long requests may take to end once the node is told to.
    #[serde(with = "contract::units::text")]
    pub drain: Duration,
    /// How long a sandbox runs before others of its core have their turn.
    #[serde(with = "contract::units::text")]
    pub quantum: Duration,
    /// Who of a tenant's requests runs first: `deadline`, `round-robin`, `shortest` or `first-come`.
    #[serde(with = "named")]
    pub policy: policy::Kind,
    /// Connections of one core.
    pub connections: usize,
    /// Asynchronous calls.
    pub calls: CallOptions,
    /// Where TLS is spoken.
    pub tls: TlsOptions,
    /// AWS Lambda's API.
    pub lambda: LambdaOptions,
    /// The engine `aot`.
    pub aot: AotOptions,
    /// The engine `rwasm`.
    pub rwasm: RwasmOptions,
    /// The engine `process`.
    pub process: ProcessOptions,
    /// Where S3 is, if functions may use objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Options>,
    /// Where AWS's other services are, if functions may use any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsOptions>,
    /// What functions of tenants may be granted, by tenant.
    #[serde(rename = "tenant", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tenants: BTreeMap<Name, TenantOptions>,
}

/// What functions of one tenant may be granted: what lies within one of these. Keys of `[tenant.NAME]` in the configuration file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantOptions {
    /// Objects in S3.
    pub s3: Vec<manifest::S3Grant>,
    /// Operations of AWS's other services.
    pub aws: Vec<manifest::AwsGrant>,
}

/// Who may use AWS Lambda's API. Keys of `[lambda]` in the configuration file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LambdaOptions {
    /// The access keys with which its requests must be signed; with none, all are taken.
    #[serde(rename = "key", skip_serializing)]
    pub keys: Vec<KeyOptions>,
}

/// An access key. Keys of `[[lambda.key]]` in the configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyOptions {
    /// Its id, which requests name.
    pub id: String,
    /// Its secret; or
    pub secret: Option<Secret>,
    /// the file that holds it, which nobody but its owner may read.
    pub secret_file: Option<PathBuf>,
    /// The tenant whose functions it invokes; the node's own, when absent.
    pub tenant: Option<Name>,
}

/// Where TLS is spoken: all of it, or nothing. Keys of `[tls]` in the configuration file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsOptions {
    /// Where functions are served by TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The file of the server's certificate and those that lead to its root, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The file of its private key, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            admin: SocketAddr::from(([127, 0, 0, 1], 9080)),
            data: PathBuf::from("millpond-data"),
            cores: Vec::new(),
            admin_token: None,
            sandboxes: 0,
            dense_sandboxes: 0,
            keep_resident: ByteSize::mib(1),
            drain: Duration::from_secs(10),
            quantum: policy::QUANTUM,
            policy: policy::Kind::default(),
            connections: 8_000,
            calls: CallOptions::default(),
            tls: TlsOptions::default(),
            lambda: LambdaOptions::default(),
            aot: AotOptions::default(),
            rwasm: RwasmOptions::default(),
            process: ProcessOptions::default(),
            s3: None,
            aws: None,
            tenants: BTreeMap::new(),
        }
    }
}

/// The engine `aot`. Keys of `[aot]` in the configuration file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AotOptions {
    /// Its compiler; without one, the newest clang from 16 on that is on the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clang: Option<PathBuf>,
    /// It takes over from `wasmtime`, where a manifest leaves the choice to the node, once a version has used as much time on cores;
    /// `never` if not.
    #[serde(with = "never")]
    pub tier_up: Option<Duration>,
    /// Whether `aot-none` may be deployed, which keeps no function in its memory: a function can then read and write all of the node.
    pub allow_unchecked: bool,
}

/// The engine `rwasm`. Keys of `[rwasm]` in the configuration file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RwasmOptions {
    /// Its compiler; without one, the rustc that is on the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rustc: Option<PathBuf>,
}

/// The engine `process`. Keys of `[process]` in the configuration file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessOptions {
    /// Sandboxes that may be alive at once.
    pub sandboxes: u32,
    /// Zygotes that wait for requests: each is a process, for a version of a function, and two for one in Python.
    pub zygotes: u32,
    /// Whether functions run whose limits this host cannot keep as their manifests demand, for want of control groups: a request may then use its
    /// `memory` in each of its processes.
    pub allow_uncounted: bool,
    /// The interpreter of functions in Python; without one, the python3 that is on the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<PathBuf>,
}

impl Default for ProcessOptions {
    fn default() -> Self {
        let default = engine_process::Options::default();
        Self {
            sandboxes: default.sandboxes,
            zygotes: default.zygotes,
            allow_uncounted: default.allow_uncounted,
            python: None,
        }
    }
}

impl Default for AotOptions {
    fn default() -> Self {
        Self {
            clang: None,
            tier_up: Some(Duration::from_secs(1)),
            allow_unchecked: false,
        }
    }
}

/// A duration as text, or `never`.
mod never {
    use serde::{Deserialize as _, Deserializer, Serializer};
    use std::time::Duration;

    const NEVER: &str = "never";

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => contract::units::text::serialize(time, serializer),
            None => serializer.serialize_str(NEVER),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        use serde::de::IntoDeserializer as _;
        let text = String::deserialize(deserializer)?;
        if text == NEVER {
            return Ok(None);
        }
        contract::units::text::deserialize(text.into_deserializer()).map(Some)
    }
}

/// A policy by its name.
mod named {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(kind: &policy::Kind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(kind)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<policy::Kind, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// What the command line says. It wins over the file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Overrides {
    /// See [`Config::listen`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// See [`Config::admin`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<SocketAddr>,
    /// See [`Config::data`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// See [`Config::cores`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<Vec<usize>>,
    /// See [`Config::admin_token`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_token: Option<String>,
    /// See [`Config::tls`].
    pub tls: TlsOptions,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("failed to read the configuration file {path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// In the system's words.
        reason: String,
    },
    /// A key or value is wrong.
    #[error("the configuration is not usable: {0}")]
    Value(String),
    /// The control API would be open to the network.
    #[error(
        "the control API would listen on {0}, beyond this machine, without a token: set `admin_token` in the \
         configuration file or MILLPOND_TOKEN, or listen on a loopback address"
    )]
    OpenAdmin(SocketAddr),
}

impl Config {
    /// Defaults, file, overrides; checked.
    pub fn load(file: Option<&Path>, overrides: &Overrides) -> Result<Self, ConfigError> {
        let mut figment = Figment::from(Serialized::defaults(Self::default()));
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).map_err(|error| ConfigError::File {
                path: path.to_owned(),
                reason: error.to_string(),
            })?;
            figment = figment.merge(Toml::string(&text));
        }
        let config: Self = figment
            .merge(Serialized::defaults(overrides))
            .extract()
            .map_err(|error| ConfigError::Value(explain(file, &error)))?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |what: &str| Err(ConfigError::Value(what.to_owned()));
        if !self.admin.ip().is_loopback() && self.admin_token.as_ref().is_none_or(String::is_empty) {
            return Err(ConfigError::OpenAdmin(self.admin));
        }
        if self.listen.port() != 0 && self.listen == self.admin {
            return wrong(
                "`listen` and `admin` are the same address: functions must not shadow the controls",
            );
        }
        self.tls.check()?;
        self.lambda.load()?;
        let tls = self.tls.listen.filter(|tls| tls.port() != 0);
        if tls.is_some_and(|tls| tls == self.listen || tls == self.admin) {
            return wrong("`listen` of `tls` is the address of something else: TLS has a port of its own");
        }
        if self.quantum < Duration::from_micros(100) || self.quantum > Duration::from_secs(1) {
            return wrong("`quantum` must be between 100us and 1s");
        }
        self.calls.check().map_err(ConfigError::Value)?;
        if let Some(s3) = &self.s3 {
            s3.check().map_err(ConfigError::Value)?;
            let embedded = s3.embedded.filter(|address| address.port() != 0);
            if embedded.is_some_and(|address| address == self.listen || address == self.admin) {
                return wrong(
                    "`embedded` of `[s3]` is the address of something else: S3 has a port of its own",
                );
            }
        }
        if let Some(aws) = &self.aws {
            aws.check().map_err(ConfigError::Value)?;
        }
        self.check_tenants()?;
        if self.connections == 0 {
            return wrong("`connections` must be at least 1");
        }
        Ok(())
    }

    fn check_tenants(&self) -> Result<(), ConfigError> {
        for (name, tenant) in &self.tenants {
            let wrong =
                |key: &str, why: String| Err(ConfigError::Value(format!("`[[tenant.{name}.{key}]]`: {why}")));
            let places = [
                ("s3", tenant.s3.is_empty() || self.s3.is_some()),
                ("aws", tenant.aws.is_empty() || self.aws.is_some()),
            ];
            if let Some((key, _)) = places.iter().find(|(_, is_there)| !is_there) {
                return wrong(
                    key,
                    format!("there is no `[{key}]`, of which it could permit something"),
                );
            }
            let objects = tenant.s3.iter().map(|permitted| ("s3", permitted.check()));
            let operations = tenant.aws.iter().map(|permitted| ("aws", permitted.check()));
            for (key, result) in objects.chain(operations) {
                if let Err(why) = result {
                    return wrong(key, why);
                }
            }
        }
        Ok(())
    }

    /// What tenants may be granted.
    pub(crate) fn permits(&self) -> Permits {
        let permits = self.tenants.iter().map(|(name, tenant)| {
            let permit = Permit {
                s3: tenant.s3.iter().map(Into::into).collect(),
                aws: tenant.aws.iter().map(Into::into).collect(),
            };
            (name.clone(), permit)
        });
        Permits::new(permits.collect())
    }
}

impl TlsOptions {
    fn check(&self) -> Result<(), ConfigError> {
        let keys = [
            ("listen", self.listen.is_some()),
            ("certificate", self.certificate.is_some()),
            ("key", self.key.is_some()),
        ];
        let of = |wanted: bool| {
            let keys = keys.iter().filter(|(_, there)| *there == wanted);
            keys.map(|(key, _)| format!("`{key}`"))
                .collect::<Vec<_>>()
                .join(" and ")
        };
        match (of(true), of(false)) {
            (there, missing) if !there.is_empty() && !missing.is_empty() => Err(ConfigError::Value(format!(
                "`tls` has {there} without {missing}: give --tls-listen, --tls-certificate and --tls-key, or the three keys of \
                 [tls], or none"
            ))),
            _ => Ok(()),
        }
    }
}

/// A secret is shorter than a line of a book.
const LONGEST_SECRET: u64 = 1 << 10;

impl LambdaOptions {
    /// The keys, with the secrets that their files hold now.
    pub(crate) fn load(&self) -> Result<Arc<Keys>, ConfigError> {
        let mut ids = HashSet::new();
        let keys = self.keys.iter().map(|key| {
            if !ids.insert(&key.id) {
                return Err(key.wrong("is there twice: give each key an id of its own"));
            }
            let whole = Key {
                secret: key.load()?,
                tenant: key.tenant.clone(),
            };
            Ok((key.id.clone(), whole))
        });
        Ok(Arc::new(keys.collect::<Result<Keys, _>>()?))
    }
}

impl KeyOptions {
    fn wrong(&self, why: impl std::fmt::Display) -> ConfigError {
        ConfigError::Value(format!("the key `{}` of `lambda` {why}", self.id))
    }

    fn load(&self) -> Result<Secret, ConfigError> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if self.id.is_empty() || !self.id.bytes().all(is_good) {
            return Err(self.wrong("cannot be an id: use letters and digits"));
        }
        let secret = match (&self.secret, &self.secret_file) {
            (Some(secret), None) => secret.clone(),
            (None, Some(path)) => read_secret(path).map_err(|why| self.wrong(why))?,
            _ => return Err(self.wrong("needs either `secret` or `secret_file`")),
        };
        if secret.is_empty() {
            return Err(self.wrong("has an empty secret, which anybody could guess"));
        }
        Ok(secret)
    }
}

/// What a file holds, without the end of its line.
fn read_secret(path: &Path) -> Result<Secret, String> {
    let place = path.display();
    let read = || -> io::Result<(u32, String)> {
        let file = File::open(path)?;
        let mode = file.metadata()?.mode();
        let mut text = String::new();
        file.take(LONGEST_SECRET + 1).read_to_string(&mut text)?;
        Ok((mode, text))
    };
    let (mode, text) =
        read().map_err(|error| format!("has a `secret_file` that cannot be read, {place}: {error}"))?;
    if mode & 0o077 != 0 {
        return Err(format!(
            "has a `secret_file` that others than its owner may read or write: chmod 600 {place}"
        ));
    }
    if text.len() as u64 > LONGEST_SECRET {
        return Err(format!(
            "has a `secret_file` that holds more than a secret: {place}"
        ));
    }
    Ok(Secret::new(text.trim().to_owned()))
}

/// What is wrong, without the lines of the file that a reader of TOML shows beside it: they may hold secrets.
fn explain(file: Option<&Path>, error: &figment::Error) -> String {
    let text = error.to_string();
    let is_shown = |line: &&str| {
        line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit())
            .starts_with('|')
    };
    let told: Vec<_> = text.lines().filter(|line| !is_shown(line)).collect();
    let text = told.join(": ");
    match file {
        Some(path) => format!("{text} ({})", path.display()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn load(text: &str) -> Result<Config, ConfigError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Config::load(
            Some(file.path()),
            &Overrides {
                data: Some("there".into()),
                ..Overrides::default()
            },
        )
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let config = load("data = \"here\"\ndrain = \"3s\"\nkeep_resident = \"64KiB\"").unwrap();
        assert_eq!(config.data, PathBuf::from("there"));
        assert_eq!(config.drain, Duration::from_secs(3));
        assert_eq!(config.keep_resident, ByteSize(64 << 10));
        assert_eq!(config.listen, Config::default().listen);
    }

    #[test]
    fn unknown_keys_are_named() {
        let error = load("lisen = \"127.0.0.1:1\"").unwrap_err().to_string();
        assert!(error.contains("lisen") && error.contains("listen"), "{error}");
    }

    #[test]
    fn that_limits_are_not_kept_is_allowed_by_name_only() {
        assert!(!load("[process]\nzygotes = 3").unwrap().process.allow_uncounted);
        let config = load("[process]\nallow_uncounted = true").unwrap();
        assert!(config.process.allow_uncounted && config.process.zygotes == 64);
        let error = load("[process]\nallow_uncount = true").unwrap_err().to_string();
        assert!(error.contains("allow_uncounted"), "{error}");
        assert!(load("[process]\nallow_uncounted = \"yes\"").is_err());
    }

    #[test]
    fn the_controls_are_not_opened_by_accident() {
        assert!(matches!(
            load("admin = \"0.0.0.0:9080\""),
            Err(ConfigError::OpenAdmin(_))
        ));
        assert!(load("admin = \"0.0.0.0:9080\"\nadmin_token = \"secret\"").is_ok());
        assert!(load("listen = \"127.0.0.1:5\"\nadmin = \"127.0.0.1:5\"").is_err());
    }

    #[test]
    fn callbacks_are_hosts_and_nothing_more() {
        for host in ["example.org", "10.0.0.1", "[::1]", "localhost"] {
            let config = load(&format!("[calls]\ncallbacks = [\"{host}\"]")).unwrap();
            assert_eq!(config.calls.hosts(), [host.trim_matches(['[', ']'])]);
        }
        for host in [
            "",
            "Example.org",
            "http://example.org",
            "example.org:80",
            "[::1]:80",
            "example.org/x",
            "*.org",
            "a b",
        ] {
            let error = load(&format!("[calls]\ncallbacks = [\"{host}\"]"))
                .unwrap_err()
                .to_string();
            assert!(error.contains("`callbacks`"), "{error}");
        }
    }

    #[test]
    fn what_tenants_may_be_granted_is_said_by_tenant() {
        let s3 = "[s3]\nanonymous = true\n";
        let permit = "[[tenant.acme.s3]]\nbucket = \"photos\"\nprefix = \"acme/\"\nactions = [\"get\"]\n";
        let aws =
            "[aws]\n[[tenant.acme.aws]]\nservice = \"sqs\"\nactions = [\"Send*\"]\nresources = [\"*\"]\n";
        let permits = load(&[s3, permit, aws].concat()).unwrap().permits();
        let acme = permits.of(&"acme".parse().unwrap());
        let [objects] = &acme.s3[..] else {
            panic!("{acme:?}")
        };
        assert_eq!((&*objects.bucket, &*objects.prefix), ("photos", "acme/"));
        assert_eq!(objects.actions, [contract::S3Action::Get]);
        assert_eq!(acme.aws[0].actions, ["Send*"]);
        assert_eq!(*permits.of(&"rival".parse().unwrap()), Permit::default());

        for (text, words) in [
            (permit.to_owned(), "there is no `[s3]`"),
            (aws.replace("[aws]\n", ""), "there is no `[aws]`"),
            (
                [s3, permit].concat().replace("photos", "Photos"),
                "`[[tenant.acme.s3]]`",
            ),
            ([s3, permit].concat().replace("\"get\"", ""), "`actions` is empty"),
            ([s3, permit].concat().replace("\"get\"", "\"read\""), "read"),
            ([s3, permit].concat().replace("bucket", "bukcet"), "bukcet"),
            ([s3, permit].concat().replace("acme.s3", "acme.s4"), "s4"),
            ([s3, permit].concat().replace("acme", "Acme"), "Acme"),
            (aws.replace("sqs", "sts"), "none of dynamodb"),
            (aws.replace("\"*\"", "\"\""), "`resources` is"),
        ] {
            let error = load(&text).unwrap_err().to_string();
            assert!(error.contains(words), "{text} {error}");
        }
    }

    #[test]
    fn a_role_is_taken_by_who_has_keys_of_who_is_named() {
        let role = "role = \"arn:aws:iam::123456789012:role/pond\"\n";
        let (sts, endpoint) = (
            "sts = \"https://sts.example.org\"\n",
            "endpoint = \"https://s3.example.org\"\n",
        );
        for good in [vec![role], vec![role, sts], vec![role, sts, endpoint]] {
            let config = load(&format!("[s3]\n{}", good.concat())).unwrap();
            assert!(config.s3.unwrap().role.unwrap().ends_with("role/pond"));
        }
        for (keys, words) in [
            ([role, endpoint], "`role` of `[s3]` needs `sts`"),
            ([sts, endpoint], "`sts` of `[s3]` gives keys of a `role`"),
            ([role, "anonymous = true\n"], "remove `anonymous`"),
            (
                [role, "embedded = \"127.0.0.1:0\"\n"],
                "`role` of `[s3]` is set beside `embedded`",
            ),
            (
                [sts, "embedded = \"127.0.0.1:0\"\n"],
                "`sts` of `[s3]` is set beside `embedded`",
            ),
        ] {
            let error = load(&format!("[s3]\n{}", keys.concat())).unwrap_err().to_string();
            assert!(error.contains(words), "{keys:?} {error}");
        }
    }

    #[test]
    fn tls_is_configured_as_a_whole() {
        let whole = "[tls]\nlisten = \"127.0.0.1:443\"\ncertificate = \"c.pem\"\nkey = \"k.pem\"";
        assert_eq!(load(whole).unwrap().tls.key, Some("k.pem".into()));
        let error = load("[tls]\ncertificate = \"c.pem\"").unwrap_err().to_string();
        assert!(
            error.contains("`certificate` without `listen` and `key`"),
            "{error}"
        );
        let error = load(&format!("listen = \"127.0.0.1:443\"\n{whole}"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("port of its own"), "{error}");
    }

    #[test]
    fn keys_have_one_secret_each_and_never_show_it() {
        let secret = "not-to-be-seen";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, format!("{secret}\n")).unwrap();
        let with_mode =
            |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let key = |id: &str, rest: &str| format!("[[lambda.key]]\nid = \"{id}\"\n{rest}\n");
        let inline = format!("secret = \"{secret}\"");
        let apart = format!("secret_file = \"{}\"", file.display());

        with_mode(0o600);
        let config = load(&(key("A", &inline) + &key("B", &apart))).unwrap();
        assert_eq!(config.lambda.keys.len(), 2);
        let shown = format!("{config:?} {:?}", config.lambda.load().unwrap());
        assert!(
            shown.contains("\"A\"") && shown.contains("\"B\"") && !shown.contains(secret),
            "{shown}"
        );

        for (text, words) in [
            (key("A", ""), "either `secret` or `secret_file`"),
            (
                key("A", &format!("{inline}\n{apart}")),
                "either `secret` or `secret_file`",
            ),
            (key("A", &inline) + &key("A", &apart), "twice"),
            (key("a/b", &inline), "cannot be an id"),
            (key("A", "secret = \"\""), "empty secret"),
            (key("A", "secret_file = \"/nowhere\""), "/nowhere"),
            (key("A", &inline.replace('=', "")), "TOML"),
            (key("A", &inline.replacen('"', "", 1)), "TOML"),
            (key("A", &format!("secret = [\"{secret}\"]")), "in quotes"),
            (key("A", &inline.replace("secret =", "sekret =")), "sekret"),
        ] {
            let error = load(&text).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains(secret), "{text} {error}");
        }
        for mode in [0o640, 0o604, 0o620] {
            with_mode(mode);
            let error = load(&key("A", &apart)).unwrap_err().to_string();
            assert!(error.contains("chmod 600") && !error.contains(secret), "{error}");
        }
        with_mode(0o600);
        std::fs::write(&file, "x".repeat(2000)).unwrap();
        assert!(
            load(&key("A", &apart))
                .unwrap_err()
                .to_string()
                .contains("more than a secret")
        );
    }
}
