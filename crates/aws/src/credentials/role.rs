//! Role sessions: keys that STS gives for a time, which can do what the role may and a policy says, and nothing else.
//! [AssumeRole](https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html) is asked for them with the node's own keys.

use super::{
    Credentials, CredentialsError, Found,
    answer::{self, Refusal},
};
use crate::{Client, Identity, TrustError, is_region, origin, sign::Signer};
use aws_credential_types::Credentials as Keys;
use bytes::Bytes;
use contract::CallError;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    pin::Pin,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, SystemTime},
};
use tokio::time;
use zeroize::Zeroizing;

/// How long it may take until there is a session, attempts included.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two attempts, after what may be over soon. Beyond these there is none.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Idle connections that are kept: a session is asked for rarely.
const IDLE: usize = 2;

/// How long a session may last: the least that STS gives, and the most that a role can allow.
const LIFETIMES: [Duration; 2] = [Duration::from_mins(15), Duration::from_hours(12)];

/// Which role is taken, and of whom it is asked for.
#[derive(Clone, Debug)]
pub struct RoleOptions {
    /// The role's ARN.
    pub arn: String,
    /// Where STS is, as `https://host:port`.
    pub endpoint: String,
    /// What requests to it are signed for.
    pub region: String,
    /// How long a session lasts, in whole seconds: from 15 minutes on, and not longer than the role allows.
    pub lifetime: Duration,
}

/// Options that contradict themselves, or a machine that lacks what they need.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoleError {
    /// Not the ARN of a role.
    #[error("`{0}` is not the ARN of a role: write it as `arn:aws:iam::ACCOUNT:role/NAME`")]
    Arn(String),
    /// Not a place that can be reached.
    #[error("`{0}` is not the endpoint of STS: write it as `https://host:port`")]
    Endpoint(String),
    /// Whoever is on the way could read the keys.
    #[error("STS at `{0}` would send keys without TLS beyond this machine: reach it by `https`")]
    ClearText(String),
    /// Not the name of a region.
    #[error("`{0}` is not the name of a region")]
    Region(String),
    /// No session lasts so long, or so short.
    #[error("a session of a role cannot last {0:?}: it lasts from 15 minutes to 12 hours")]
    Lifetime(Duration),
    /// There is nobody who could take a role.
    #[error(
        "a role is taken by somebody who has keys, and there are to be none: give the node keys, or take no role"
    )]
    Nobody,
    /// No certificate can be checked.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

/// Why STS gave no session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoleSessionError {
    /// Nobody can ask for it.
    #[error("the node's own keys cannot be had: {0}")]
    Keys(CallError),
    /// It is not reached.
    #[error("it is not reached: {0}: check its address in the configuration, and the way there")]
    Unreachable(CallError),
    /// It takes too long.
    #[error("it has not answered within {} s: check its address in the configuration, and the way there", PATIENCE.as_secs())]
    Late,
    /// It does not want to.
    #[error("it refuses with status {status}, {code}: {message}: {}", remedy(.code))]
    Refused {
        /// Its answer's status.
        status: u16,
        /// Its own code.
        code: String,
        /// What it says, without a part that could be a secret.
        message: String,
    },
    /// It answers with something else.
    #[error("its answer, with status {status}, is of no use: {reason}: check that STS is at this address")]
    Nonsense {
        /// The answer's status.
        status: u16,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl RoleSessionError {
    /// For a function, which does not learn whose keys it uses, nor where they come from.
    pub(super) fn told(&self) -> String {
        let why = match self {
            Self::Keys(_) => "the node has no keys to ask for it".to_owned(),
            Self::Unreachable(_) => "STS is not reached".to_owned(),
            Self::Late => "STS does not answer".to_owned(),
            Self::Refused { code, .. } => format!("STS refuses it ({code})"),
            Self::Nonsense { .. } => "STS does not answer with one".to_owned(),
        };
        format!("the function's role session was not to be had: {why}")
    }

    /// Whether it may be over in a moment.
    fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(why) => !matches!(why, CallError::Secure(_) | CallError::Target(_)),
            Self::Refused { status, code, .. } => {
                *status >= 500 || *status == 429 || code.starts_with("Throttl")
            }
            Self::Nonsense { status, .. } => *status >= 500,
            Self::Keys(_) | Self::Late => false,
        }
    }
}

/// What to try, by the code of a refusal: those of the API reference, and the common ones.
fn remedy(code: &str) -> &'static str {
    match code {
        "AccessDenied" | "AccessDeniedException" => {
            "have the role's trust policy name whose keys the node has, and let these do `sts:AssumeRole`"
        }
        "PackedPolicyTooLarge" => "grant the function fewer buckets and prefixes",
        "MalformedPolicyDocument" => {
            "compare what the function is granted with what this STS knows of policies"
        }
        "ExpiredToken"
        | "ExpiredTokenException"
        | "InvalidClientTokenId"
        | "SignatureDoesNotMatch"
        | "InvalidAccessKeyId" => "check the node's own keys, and its clock",
        "RegionDisabledException" => "have STS activated in this region, or name that of another",
        "ValidationError" => "check the role's ARN, and how long its sessions may last",
        _ => "look this code up in the documentation of STS",
    }
}

/// A role that the node takes, for one function at a time.
pub struct Role {
    client: Client<Full<Bytes>>,
    /// Who takes it.
    credentials: Arc<Credentials>,
    arn: String,
    place: Uri,
    region: String,
    lifetime: Duration,
}

/// Which role is taken, cut to which policy.
pub(super) struct RoleSession {
    role: Arc<Role>,
    /// As which it appears in the logs of the account.
    name: String,
    policy: String,
}

impl Role {
    /// Takes this role as whom the credentials say. Nobody is asked yet.
    ///
    /// # Errors
    /// Where the options make no sense.
    pub fn new(credentials: Arc<Credentials>, options: RoleOptions) -> Result<Self, RoleError> {
        let RoleOptions {
            arn,
            endpoint,
            region,
            lifetime,
        } = options;
        if credentials.is_nobody() {
            return Err(RoleError::Nobody);
        }
        // The form is AWS's; servers like it have accounts and names of other forms, or none.
        let is_arn =
            arn.starts_with("arn:") && arn.len() <= 2048 && arn.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_arn || arn.split(':').count() < 5 {
            return Err(RoleError::Arn(arn));
        }
        if !is_region(&region) {
            return Err(RoleError::Region(region));
        }
        if lifetime < LIFETIMES[0] || lifetime > LIFETIMES[1] {
            return Err(RoleError::Lifetime(lifetime));
        }
        let place = origin(&endpoint).and_then(|origin| format!("{origin}/").parse::<Uri>().ok());
        let Some(place) = place else {
            return Err(RoleError::Endpoint(endpoint));
        };
        let is_secure = place.scheme_str() == Some("https");
        if !is_secure && !place.host().is_some_and(is_here) {
            return Err(RoleError::ClearText(endpoint));
        }
        Ok(Self {
            client: Client::new(CONNECT, IDLE, is_secure)?,
            credentials,
            arn,
            place,
            region,
            lifetime,
        })
    }

    /// Keys that can do what this policy says, as far as the role may; asked for when they are first needed, and again when half of their time is over. In the logs
    /// of the role's account they have this name, as far as its characters may be there.
    pub fn session(self: &Arc<Self>, name: &str, policy: String) -> Credentials {
        Credentials::of_session(RoleSession {
            role: self.clone(),
            name: session_name(name),
            policy,
        })
    }
}

/// Those of a `RoleSessionName`: 2 to 64 letters, digits and some marks.
fn session_name(name: &str) -> String {
    let is_good = |character: &char| character.is_ascii_alphanumeric() || "_=,.@-".contains(*character);
    let letters = name
        .chars()
        .map(|character| Some(character).filter(is_good).unwrap_or('+'));
    let name: String = letters.take(64).collect();
    format!("{name:+<2}")
}

/// Whether a host is this machine.
fn is_here(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse()
            .is_ok_and(|address: Ipv4Addr| address.is_loopback())
        || address
            .parse()
            .is_ok_and(|address: Ipv6Addr| address.is_loopback())
}

impl RoleSession {
    /// Asks for keys. Its type is said, since what it waits for waits, for other keys, for this.
    pub(super) fn ask(&self) -> Pin<Box<dyn Future<Output = Result<Found, CredentialsError>> + Send + '_>> {
        Box::pin(async move {
            let asked = time::timeout(PATIENCE, self.ask_patiently()).await;
            asked.unwrap_or(Err(RoleSessionError::Late)).map_err(|reason| {
                let origin = self.role.place.to_string();
                CredentialsError::RoleSession {
                    session: self.name.clone(),
                    role: self.role.arn.clone(),
                    place: origin.trim_end_matches('/').to_owned(),
                    reason: reason.into(),
                }
            })
        })
    }

    async fn ask_patiently(&self) -> Result<Found, RoleSessionError> {
        for pause in PAUSES {
            match self.ask_once().await {
                Err(error) if error.is_passing() => time::sleep(pause).await,
                end => return end,
            }
        }
        self.ask_once().await
    }

    async fn ask_once(&self) -> Result<Found, RoleSessionError> {
        let role = &*self.role;
        let identity = role
            .credentials
            .identity()
            .await
            .map_err(RoleSessionError::Keys)?;
        let nobody = || RoleSessionError::Keys(CallError::Credentials("they are nobody's".to_owned()));
        let identity = identity.ok_or_else(nobody)?;
        let request = self.request(&identity, SystemTime::now())?;
        let response = role.client.send(request, &AtomicU64::new(0), PATIENCE).await;
        let response = response.map_err(RoleSessionError::Unreachable)?;
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        let nonsense = |reason| RoleSessionError::Nonsense { status, reason };
        let bytes = whole(body).await.map_err(nonsense)?;
        if head.status == StatusCode::OK {
            let found = answer::session(&bytes).map_err(nonsense)?;
            let found = found.checked(SystemTime::now());
            return found.map_err(|error| {
                nonsense(match error {
                    CredentialsError::Ended => "its keys have ended already, by the node's clock",
                    _ => "its keys are none",
                })
            });
        }
        let Refusal { code, message } =
            answer::refusal(&bytes).ok_or_else(|| nonsense("it is no error of STS"))?;
        Err(RoleSessionError::Refused {
            status,
            code,
            message: without_secrets(message, &identity),
        })
    }

    /// What STS is asked.
    fn request(
        &self,
        identity: &Identity,
        now: SystemTime,
    ) -> Result<http::Request<Full<Bytes>>, RoleSessionError> {
        let role = &*self.role;
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", "AssumeRole")
            .append_pair("Version", "2011-06-15")
            .append_pair("RoleArn", &role.arn)
            .append_pair("RoleSessionName", &self.name)
            .append_pair("DurationSeconds", &role.lifetime.as_secs().to_string())
            .append_pair("Policy", &self.policy)
            .finish();
        let body = Bytes::from(body);
        let mut request = http::Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = role.place.clone();
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8");
        request.headers_mut().insert(header::CONTENT_TYPE, kind);
        let signer = Signer {
            identity,
            service: "sts",
            region: &role.region,
            time: now,
        };
        signer.sign(&mut request, &body).map_err(RoleSessionError::Keys)?;
        Ok(request)
    }
}

/// An answer's body, which is wiped when it has been read.
async fn whole(mut body: Incoming) -> Result<Zeroizing<Vec<u8>>, &'static str> {
    // It does not grow, which would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(answer::MAXIMUM));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "it breaks off")?;
        let Ok(piece) = frame.into_data() else { continue };
        if bytes.len() + piece.len() > answer::MAXIMUM {
            return Err("it is too long");
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Whoever was sent a token can say it.
fn without_secrets(message: String, identity: &Identity) -> String {
    let Some(keys) = identity.data::<Keys>() else {
        return message;
    };
    let secrets = [Some(keys.secret_access_key()), keys.session_token()];
    let secrets = secrets.into_iter().flatten().filter(|secret| !secret.is_empty());
    secrets.fold(message, |message, secret| message.replace(secret, "…"))
}

#[cfg(test)]
mod tests;
