//! As whom the node asks. Keys stay here: they are in no error, no log and no `Debug`, and memory that held them is wiped.

mod answer;
mod command;
mod file;
mod role;

pub use role::{Role, RoleError, RoleOptions, RoleSessionError};

use aws_credential_types::Credentials as Keys;
use aws_smithy_runtime_api::client::identity::Identity;
use contract::CallError;
use role::RoleSession;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

/// How long before their end keys of a command are renewed.
const MARGIN: Duration = Duration::from_secs(300);
/// How often a file is read again: whoever changes keys there need not restart the node.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// How long a renewal that failed is not tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// As whom the node asks AWS's services.
pub struct Credentials {
    source: Source,
    held: std::sync::Mutex<Held>,
    /// Held by the one renewal.
    renewing: Arc<Mutex<()>>,
}

/// Where keys come from.
enum Source {
    /// There are none: nothing is signed.
    Anonymous,
    /// They were given, and stay.
    Given,
    File {
        path: PathBuf,
        profile: String,
    },
    Command(Vec<String>),
    RoleSession(Box<RoleSession>),
}

impl Source {
    /// From when on others are to be had in place of keys that came now and end then.
    fn late(&self, ends: Option<SystemTime>, now: SystemTime) -> Option<SystemTime> {
        let ends = ends?;
        match self {
            // What is presigned with them is good for the rest of their time, and no longer.
            Self::RoleSession(_) => Some(now + ends.duration_since(now).unwrap_or_default() / 2),
            _ => ends.checked_sub(MARGIN),
        }
    }
}

#[derive(Clone, Default)]
struct Held {
    identity: Option<Identity>,
    /// From when on another is to be had.
    late: Option<SystemTime>,
    /// When it is none any more.
    ends: Option<SystemTime>,
    /// When it was last tried to have another.
    tried: Option<Instant>,
    /// Why that came to nothing, if it did: in the words that a function may hear.
    failure: Option<CallError>,
}

/// Credentials that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("the credentials in {path} cannot be read: {reason}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Others may read them.
    #[error("others can read the credentials in {0}: run `chmod 600` on it")]
    Open(PathBuf),
    /// The environment has no or half of them.
    #[error("the environment has no {0}")]
    Environment(&'static str),
    /// What was found is no key.
    #[error("what is given as {0} is none")]
    Malformed(&'static str),
    /// The command failed.
    #[error("the command that gives credentials, `{program}`: {reason}")]
    Command {
        /// Its program.
        program: String,
        /// What it did.
        reason: String,
    },
    /// They are over.
    #[error("what is given as keys has ended already, by the node's clock")]
    Ended,
    /// A role's session is not given.
    #[error("the role session {session} of {role} was asked for at {place}: {reason}")]
    RoleSession {
        /// Its name.
        session: String,
        /// The role's ARN.
        role: String,
        /// Where STS is.
        place: String,
        /// Why there is none.
        reason: Box<RoleSessionError>,
    },
}

impl CredentialsError {
    /// For a function, which does not learn where keys come from.
    fn told(&self) -> CallError {
        let what = match self {
            Self::RoleSession { reason, .. } => reason.told(),
            _ => "the node's own are not to be had".to_owned(),
        };
        CallError::Credentials(format!("{what}; the node's log says more"))
    }
}

/// What a source gave.
struct Found {
    key: Zeroizing<String>,
    secret: Zeroizing<String>,
    token: Option<Zeroizing<String>>,
    ends: Option<SystemTime>,
}

impl Found {
    /// Whatever is not printable could not be in a header.
    fn checked(self, now: SystemTime) -> Result<Self, CredentialsError> {
        let is_good = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        match self {
            Self { ends: Some(ends), .. } if ends <= now => Err(CredentialsError::Ended),
            Self { key, .. } if !is_good(&key) => Err(CredentialsError::Malformed("an access key's id")),
            Self { secret, .. } if !is_good(&secret) => {
                Err(CredentialsError::Malformed("a secret access key"))
            }
            Self {
                token: Some(token), ..
            } if !is_good(&token) => Err(CredentialsError::Malformed("a session's token")),
            good => Ok(good),
        }
    }

    fn held(mut self, source: &Source, now: SystemTime) -> Held {
        // What is taken out is wiped by whoever has it then.
        let token = self.token.as_mut().map(|token| std::mem::take(&mut **token));
        let keys = Keys::new(
            std::mem::take(&mut *self.key),
            std::mem::take(&mut *self.secret),
            token,
            self.ends,
            "millpond",
        );
        Held {
            identity: Some(keys.into()),
            late: source.late(self.ends, now),
            ends: self.ends,
            tried: Some(Instant::now()),
            failure: None,
        }
    }
}

/// What is to be done for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Those that there are will do.
    No,
    /// They will do, and others are to be had.
    Soon,
    /// There are none.
    Now,
    /// There are none, and it was tried a moment ago.
    Failed,
}

impl Credentials {
    /// Nobody: requests are not signed.
    pub fn anonymous() -> Self {
        Self::of(Source::Anonymous, Held::default())
    }

    /// What the environment says, by the names that AWS's tools know: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
    /// `AWS_SESSION_TOKEN`. The caller looks them up.
    pub fn environment(look: impl Fn(&str) -> Option<String>) -> Result<Self, CredentialsError> {
        let look = |name| look(name).filter(|value| !value.is_empty()).map(Zeroizing::new);
        let needed = |name| look(name).ok_or(CredentialsError::Environment(name));
        let found = Found {
            key: needed("AWS_ACCESS_KEY_ID")?,
            secret: needed("AWS_SECRET_ACCESS_KEY")?,
            token: look("AWS_SESSION_TOKEN"),
            ends: None,
        };
        Self::of_found(Source::Given, found)
    }

    /// A profile (`default` if none is named) of a file in the form of AWS's `credentials`, which only its owner may read. It is
    /// read now, and again every minute.
    pub fn file(path: &Path, profile: Option<&str>) -> Result<Self, CredentialsError> {
        let profile = profile.unwrap_or("default").to_owned();
        let found = file::read(path, &profile)?;
        let path = path.to_owned();
        Self::of_found(Source::File { path, profile }, found)
    }

    /// What a program writes, as AWS's `credential_process` says it; the first is the program, the others its arguments. It is
    /// run when they are first needed, and again 5 minutes before they end.
    pub fn command(command: Vec<String>) -> Self {
        Self::of(Source::Command(command), Held::default())
    }

    fn of_session(session: RoleSession) -> Self {
        Self::of(Source::RoleSession(Box::new(session)), Held::default())
    }

    fn of_found(source: Source, found: Found) -> Result<Self, CredentialsError> {
        let now = SystemTime::now();
        let held = found.checked(now)?.held(&source, now);
        Ok(Self::of(source, held))
    }

    /// Whether requests are not signed.
    pub fn is_nobody(&self) -> bool {
        matches!(self.source, Source::Anonymous)
    }

    /// When the keys that are held end, if there are any, and they do.
    pub fn ends(&self) -> Option<SystemTime> {
        self.held().ends
    }

    fn of(source: Source, held: Held) -> Self {
        Self {
            source,
            held: held.into(),
            renewing: Arc::default(),
        }
    }

    /// Who signs now; nobody if that is what was wanted.
    ///
    /// # Errors
    /// There should be somebody, and is not.
    pub async fn identity(self: &Arc<Self>) -> Result<Option<Identity>, CallError> {
        let held = self.held();
        match self.due(&held, SystemTime::now()) {
            Due::No => return Ok(held.identity),
            Due::Soon => {
                if let Ok(alone) = self.renewing.clone().try_lock_owned() {
                    let this = self.clone();
                    tokio::spawn(async move {
                        this.renew().await;
                        drop(alone);
                    });
                }
                return Ok(held.identity);
            }
            Due::Now => {
                // It goes on when the call is given up: the next one needs it as well.
                let this = self.clone();
                let renewal = tokio::spawn(async move {
                    let _alone = this.renewing.clone().lock_owned().await;
                    if this.due(&this.held(), SystemTime::now()) == Due::Now {
                        this.renew().await;
                    }
                });
                let _ = renewal.await;
            }
            Due::Failed => {}
        }
        let held = self.held();
        match self.due(&held, SystemTime::now()) {
            Due::No | Due::Soon => Ok(held.identity),
            _ => Err(held
                .failure
                .unwrap_or_else(|| CallError::Credentials("the node's own are not to be had".to_owned()))),
        }
    }

    fn held(&self) -> Held {
        self.held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    fn due(&self, held: &Held, now: SystemTime) -> Due {
        let since = held.tried.map(|tried| tried.elapsed());
        let is_over = |time: Duration| since.is_none_or(|since| since >= time);
        match &self.source {
            Source::Anonymous | Source::Given => Due::No,
            Source::File { .. } => match is_over(READ_AGAIN) {
                true => Due::Soon,
                false => Due::No,
            },
            Source::Command(_) | Source::RoleSession(_) => {
                let is_past = |time: Option<SystemTime>| time.is_some_and(|time| time <= now);
                let is_none = held.identity.is_none() || is_past(held.ends);
                let may_try = is_over(TRY_AGAIN);
                match (is_none, is_past(held.late), may_try) {
                    (true, _, false) if held.failure.is_some() => Due::Failed,
                    (true, ..) => Due::Now,
                    (false, true, true) => Due::Soon,
                    (false, ..) => Due::No,
                }
            }
        }
    }

    /// Has keys anew. If it cannot, those that are held stay.
    async fn renew(&self) {
        let found = match &self.source {
            Source::Anonymous | Source::Given => return,
            Source::File { path, profile } => file::read(path, profile),
            Source::Command(command) => command::run(command).await,
            Source::RoleSession(session) => session.ask().await,
        };
        let now = SystemTime::now();
        let found = found.and_then(|found| found.checked(now));
        let mut held = self
            .held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match found {
            Ok(found) => *held = found.held(&self.source, now),
            Err(error) => {
                held.tried = Some(Instant::now());
                held.failure = Some(error.told());
                tracing::warn!(%error, "credentials are not renewed");
            }
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            Source::Anonymous => "anonymous",
            Source::Given => "given",
            Source::File { .. } => "file",
            Source::Command(_) => "command",
            Source::RoleSession(_) => "role session",
        };
        f.debug_struct("Credentials")
            .field("source", &source)
            .finish_non_exhaustive()
    }
}

/// These keys, as they are.
pub fn identity(key: &str, secret: &str, token: Option<&str>, ends: Option<SystemTime>) -> Identity {
    Keys::new(key, secret, token.map(str::to_owned), ends, "millpond").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn key(identity: &Identity) -> String {
        let keys: &Keys = identity.data().unwrap();
        keys.access_key_id().to_owned()
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn what_the_environment_says() {
        let full = |name: &str| match name {
            "AWS_ACCESS_KEY_ID" => Some("AKIA1".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some("hidden".to_owned()),
            _ => None,
        };
        let credentials = Arc::new(Credentials::environment(full).unwrap());
        let identity = run(credentials.identity()).unwrap().unwrap();
        assert_eq!(key(&identity), "AKIA1");
        let shown = format!("{credentials:?}");
        assert!(!shown.contains("hidden") && !shown.contains("AKIA1"), "{shown}");
        let half = |name: &str| full(name).filter(|value| value != "hidden");
        assert!(matches!(
            Credentials::environment(half),
            Err(CredentialsError::Environment("AWS_SECRET_ACCESS_KEY"))
        ));
        let broken = |name: &str| full(name).map(|value| format!("{value}\r\n"));
        let error = Credentials::environment(broken).unwrap_err();
        assert!(!format!("{error:?} {error}").contains("hidden"));
        assert!(
            run(Arc::new(Credentials::anonymous()).identity())
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_command_gives_keys_until_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let (program, runs) = (folder.path().join("give"), folder.path().join("runs"));
        let give = |expiration: &str, status: u8| {
            let script = format!(
                "#!/bin/sh\necho x >> {}\necho '{{\"Version\": 1, \"AccessKeyId\": \"AKIA2\", \
                 \"SecretAccessKey\": \"hidden\", \"SessionToken\": \"token\"{expiration}}}'\nexit {status}\n",
                runs.display()
            );
            fs::write(&program, script).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        };
        let count = || fs::read_to_string(&runs).unwrap_or_default().lines().count();
        let credentials = || Arc::new(Credentials::command(vec![program.display().to_string()]));

        // Those that do not end are asked for once, however many ask.
        give("", 0);
        let lasting = credentials();
        run(async {
            let all = [lasting.identity(), lasting.identity(), lasting.identity()].map(Box::pin);
            for one in all {
                assert_eq!(key(&one.await.unwrap().unwrap()), "AKIA2");
            }
        });
        assert_eq!(count(), 1);

        // Those that have ended are none, and no call has them tried again at once.
        give(", \"Expiration\": \"2013-05-24T00:00:00Z\"", 0);
        let ended = credentials();
        for _ in 0..3 {
            let error = run(ended.identity()).unwrap_err();
            assert!(matches!(&error, CallError::Credentials(_)) && !error.to_string().contains("hidden"));
        }
        assert_eq!(count(), 2);

        give("", 1);
        let failing = credentials();
        assert!(run(failing.identity()).is_err());
        assert_eq!(count(), 3);
    }

    #[test]
    fn a_file_is_read_again_and_what_is_held_stays_if_that_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        let write = |id: &str, mode| {
            fs::write(
                &path,
                format!("aws_access_key_id = {id}\naws_secret_access_key = hidden\n"),
            )
            .unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write("AKIA1", 0o644);
        assert!(matches!(
            Credentials::file(&path, None),
            Err(CredentialsError::Open(_))
        ));
        write("AKIA1", 0o600);
        let credentials = Arc::new(Credentials::file(&path, None).unwrap());
        let age = || credentials.held.lock().unwrap().tried = Instant::now().checked_sub(READ_AGAIN);
        let now = || key(&credentials.held().identity.unwrap());
        assert_eq!(credentials.due(&credentials.held(), SystemTime::now()), Due::No);
        for (id, mode, expected) in [
            ("AKIA2", 0o600, "AKIA2"),
            ("AKIA3", 0o644, "AKIA2"),
            ("a b", 0o600, "AKIA2"),
            ("AKIA4", 0o600, "AKIA4"),
        ] {
            write(id, mode);
            age();
            assert_eq!(credentials.due(&credentials.held(), SystemTime::now()), Due::Soon);
            run(async {
                // Those that are held do until others are there.
                assert!(credentials.identity().await.unwrap().is_some());
                drop(credentials.renewing.lock().await);
            });
            assert_eq!(now(), expected, "{id}");
            assert_eq!(credentials.due(&credentials.held(), SystemTime::now()), Due::No);
        }
    }

    #[test]
    fn keys_are_renewed_before_they_end_and_kept_if_that_fails() {
        let credentials = Credentials::command(vec!["/nowhere".to_owned()]);
        let now = SystemTime::now();
        let ago = Instant::now().checked_sub(TRY_AGAIN);
        let ends = |seconds, tried| {
            let ends = Some(now + Duration::from_secs(seconds));
            Held {
                identity: Some(identity("a", "b", None, None)),
                late: credentials.source.late(ends, now),
                ends,
                tried,
                failure: None,
            }
        };
        let failed = |held| Held {
            failure: Some(CredentialsError::Ended.told()),
            ..held
        };
        let fresh = Some(Instant::now());
        for (held, due) in [
            (Held::default(), Due::Now),
            (ends(3600, ago), Due::No),
            (ends(299, ago), Due::Soon),
            (ends(299, fresh), Due::No),
            (ends(0, ago), Due::Now),
            (ends(0, fresh), Due::Now),
            (failed(ends(299, fresh)), Due::No),
            (failed(ends(0, ago)), Due::Now),
            (failed(ends(0, fresh)), Due::Failed),
            (
                Held {
                    late: None,
                    ends: None,
                    ..ends(0, ago)
                },
                Due::No,
            ),
        ] {
            assert_eq!(credentials.due(&held, now), due, "{:?}", held.ends);
        }
        *credentials.held.lock().unwrap() = ends(60, ago);
        run(credentials.renew());
        let held = credentials.held();
        assert!(held.identity.is_some() && held.tried > ago && held.failure.is_some());
    }
}
