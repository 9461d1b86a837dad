//! Work with objects in S3 for sandboxes, which have neither a network nor credentials.
//!
//! A sandbox says what S3's REST interface would be told: a method, `/bucket/key?query`, header fields, a body. This service knows
//! each operation that it lets through (module `access`), checks it against the grant, signs it and sends it. What goes out is made
//! anew from what was understood: a target is decoded once and encoded again, fields are picked from a list. What is not
//! understood is not sent.
//!
//! Replies are S3's own, errors included, and what is denied here is denied as S3 would: with status 403 and the document
//! `AccessDenied`. Fields that begin with `x-millpond-` are for the service itself, and save sandboxes from parsing XML and from
//! summing:
//!
//! - `x-millpond-document: json` has documents come as JSON (module `document`); an object's bytes stay as they are.
//! - `x-millpond-checksum: crc32`, `crc32c`, `crc64nvme`, `sha1` or `sha256` adds that checksum, before a body or behind it.
//! - `x-millpond-md5: 1` adds `content-md5`.
//! - `x-millpond-repeated: 1` says that the same was asked before and may have been done: the end of an upload that is not there any more is no error then if its
//!   object is there, and one that is said to be well is one if it is not (module `complete`).
//! - `x-millpond-presign: SECONDS` sends nothing: the reply is a URL by which anyone can do the same until then. Where the node
//!   signs with a session's token, that token is in it, as it is in any such URL.
//! - `x-millpond-form: SECONDS`, with `POST` of a key, sends nothing either: the reply says in JSON where a form goes by which anyone can upload that until then,
//!   and the `fields` that it has for it. The body is a JSON list of the conditions for what else is in the form.
//!
//! Calls are signed with the node's keys, or, where it takes a role, with those of a role session of the function's own (module `session`), by which S3 itself allows what was granted and
//! nothing else.
//!
//! A call is sent once; whether it is worth another try is the sandbox's to say. An object that is read with `x-amz-checksum-mode: ENABLED`
//! is compared with the checksum that S3 tells of it, if it tells one of all its bytes: one that differs breaks off.

#![forbid(unsafe_code)]

mod access;
mod body;
mod checksum;
mod chunks;
mod complete;
mod delete;
mod document;
mod endpoint;
mod fields;
mod policy;
mod reply;
mod session;
mod sign;
mod target;
mod work;

pub use aws::{Credentials, CredentialsError};
pub use endpoint::{Addressing, Options, OptionsError, Payload, RoleOptions};
pub use session::{Policies, TooLong};

use access::{Kind, classify, is_granted, lists};
use aws::{Client, Denials, Role};
use body::Outgoing;
use contract::{
    Body, Call, CallError, Calling, FunctionId, Grant, Reply, S3Grant, Service, Session, VersionNumber,
};
use endpoint::Endpoint;
use fields::{Fields, Unfit};
use http::{HeaderValue, Method};
use reply::{Form, Refusal};
use session::{LIFETIME, RoleSessions, Signers};
use std::{sync::Arc, time::Duration};
use target::{Source, Target, misnames_bucket};
use tokio::{runtime::Handle, sync::Semaphore};

/// The service `s3`.
pub struct S3 {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client<Outgoing>,
    runtime: Handle,
    signers: Signers,
    endpoint: Endpoint,
    signs_bodies: bool,
    signs_streams: bool,
    patience: Duration,
    pause: Duration,
    places: Arc<Semaphore>,
    denials: Denials,
}

struct S3Session {
    function: FunctionId,
    version: VersionNumber,
    grants: Arc<[S3Grant]>,
    /// As whom its calls are signed, or why as nobody.
    credentials: Result<Arc<Credentials>, CallError>,
    shared: Arc<Shared>,
}

impl S3 {
    /// Does its work on this runtime, which has timers and I/O, as whom the credentials say.
    pub fn new(runtime: Handle, credentials: Credentials, options: &Options) -> Result<Self, OptionsError> {
        let endpoint = Endpoint::of(options)?;
        let is_secure = endpoint.is_secure();
        let credentials = Arc::new(credentials);
        let signers = match (&options.role, options.sts()) {
            (Some(role), Some(sts)) => {
                let policies = Policies::new(&role.arn, &endpoint);
                let role = aws::RoleOptions {
                    arn: role.arn.clone(),
                    endpoint: sts,
                    region: options.region.clone(),
                    lifetime: LIFETIME,
                };
                Signers::RoleSessions(RoleSessions::new(Role::new(credentials, role)?, policies))
            }
            _ => Signers::Node(credentials),
        };
        Ok(Self {
            shared: Arc::new(Shared {
                client: Client::new(options.connect, options.idle, is_secure)?,
                runtime,
                signers,
                signs_bodies: match options.payload {
                    Payload::Signed => true,
                    Payload::Unsigned => false,
                    Payload::Auto => !is_secure,
                },
                signs_streams: options.payload == Payload::Signed,
                endpoint,
                patience: options.patience,
                pause: options.pause,
                places: Arc::new(Semaphore::new(options.calls.min(Semaphore::MAX_PERMITS))),
                denials: Denials::new("S3"),
            }),
        })
    }
}

impl Service for S3 {
    fn name(&self) -> &'static str {
        "s3"
    }

    fn bind(&self, grant: &Grant) -> Option<Arc<dyn Session>> {
        (!grant.s3.is_empty()).then(|| {
            let credentials = self.shared.signers.of(&grant.function, &grant.s3);
            Arc::new(S3Session {
                function: grant.function.clone(),
                version: grant.version,
                grants: grant.s3.clone().into(),
                credentials,
                shared: self.shared.clone(),
            }) as Arc<dyn Session>
        })
    }
}

/// A call that is understood and granted.
struct Asked {
    function: FunctionId,
    version: VersionNumber,
    method: Method,
    target: Target,
    kind: Kind,
    fields: Fields,
    /// Whether its reply is checked against the checksum that S3 tells.
    is_verified: bool,
    body: Body,
    patience: Option<Duration>,
    pause: Option<Duration>,
}

impl Asked {
    /// In which form documents are wanted.
    fn form(&self) -> Form {
        form(&self.fields, self.method.as_str())
    }

    fn log_denied(&self, shared: &Shared, action: &str, key: Option<&str>) {
        let function = (&self.function, self.version);
        shared.log_denied(function, action, &self.target, key);
    }
}

fn form(fields: &Fields, method: &str) -> Form {
    match (method, fields.json) {
        ("HEAD", _) => Form::Nothing,
        (_, true) => Form::Json,
        (_, false) => Form::Xml,
    }
}

impl Shared {
    fn log_denied(
        &self,
        function: (&FunctionId, VersionNumber),
        action: &str,
        target: &Target,
        key: Option<&str>,
    ) {
        let bucket = target.bucket.as_deref().unwrap_or_default();
        let key = key.or(target.key.as_deref()).unwrap_or_default();
        let (function, version) = function;
        self.denials.log(&self.runtime, function, || {
            tracing::warn!(%function, %version, ?action, bucket, ?key, "a call to S3 is not granted");
        });
    }
}

impl Session for S3Session {
    fn call(&self, call: Call) -> Calling {
        let asked = match self.understand(call) {
            Ok(asked) => asked,
            Err(reply) => return Box::pin(async move { Ok(*reply) }),
        };
        let credentials = match &self.credentials {
            Ok(credentials) => credentials.clone(),
            Err(error) => {
                self.log_unsigned(error);
                let error = error.clone();
                return Box::pin(async move { Err(error) });
            }
        };
        let Ok(place) = self.shared.places.clone().try_acquire_owned() else {
            let reply = Refusal::busy().reply(&asked.target.resource(), asked.form());
            return Box::pin(async move { Ok(reply) });
        };
        let (shared, grants) = (self.shared.clone(), self.grants.clone());
        egress::call(&self.shared.runtime, async move {
            shared.serve(asked, &credentials, &grants, place).await
        })
    }
}

impl S3Session {
    fn log_unsigned(&self, error: &CallError) {
        let (function, version, shared) = (&self.function, self.version, &self.shared);
        shared.denials.log(&shared.runtime, function, || {
            tracing::warn!(%function, %version, %error, "a call to S3 is not signed");
        });
    }

    /// What is asked, if it may be; else what S3 would say.
    fn understand(&self, call: Call) -> Result<Asked, Box<Reply>> {
        let (mut fields, fit) = Fields::read(call.parameters);
        let form = form(&fields, &call.operation);
        let refuse = |refusal: Refusal, resource: &str| Box::new(refusal.reply(resource, form));
        let Some(target) = Target::parse(&call.target) else {
            let refusal = match misnames_bucket(&call.target) {
                true => Refusal::bucket(),
                false => Refusal::target(),
            };
            return Err(refuse(refusal, ""));
        };
        let resource = target.resource();
        let refuse = |refusal: Refusal| refuse(refusal, &resource);
        let deny = |action: &str| {
            let function = (&self.function, self.version);
            self.shared.log_denied(function, action, &target, None);
            refuse(Refusal::denied())
        };
        match fit {
            Ok(()) => {}
            Err(Unfit::Invalid(message)) => return Err(refuse(Refusal::invalid(message))),
            Err(Unfit::Denied(field)) => return Err(deny(&field)),
        }
        let source = match fields.sent.get(SOURCE) {
            None => None,
            Some(value) => {
                let source = value.to_str().ok().and_then(Source::parse);
                Some(source.ok_or_else(|| refuse(Refusal::source()))?)
            }
        };
        let operation = match fields.form {
            Some(_) => policy::operation(&call.operation, &target),
            None => classify(&call.operation, &target, source.as_ref()),
        };
        let named = || {
            let names = target.query.iter().map(|(name, _)| &name[..]);
            format!("{} {}", call.operation, names.collect::<Vec<_>>().join("&"))
        };
        let operation = operation.ok_or_else(|| deny(&named()))?;
        if operation.kind == Kind::Buckets && !lists(&self.grants, None) {
            return Err(deny("List"));
        }
        if let Some(need) = operation
            .needs
            .iter()
            .find(|need| !is_granted(&self.grants, need))
        {
            return Err(deny(&format!("{:?}", need.action)));
        }
        // Of these it is seen only here what they are about.
        if fields.presign.is_some() && matches!(operation.kind, Kind::Buckets | Kind::DeleteMany | Kind::Form)
        {
            return Err(deny("presign"));
        }
        let method = Method::from_bytes(call.operation.as_bytes());
        let method = method.map_err(|_| refuse(Refusal::target()))?;
        let has_body = matches!(method, Method::PUT | Method::POST);
        match (call.body.known_length(), fields.length) {
            (Some(length), Some(said)) if length as u64 != said => {
                return Err(refuse(Refusal::incomplete()));
            }
            (Some(1..), _) | (None, Some(1..)) if !has_body => {
                return Err(refuse(Refusal::invalid("This request has no body.")));
            }
            _ => {}
        }
        let body = if has_body {
            call.body
        } else {
            Body::Whole(bytes::Bytes::new())
        };
        if let Some(source) = source.map(|source| HeaderValue::from_str(&source.encoded())) {
            fields
                .sent
                .insert(SOURCE, source.map_err(|_| refuse(Refusal::source()))?);
        }
        let is_verified = operation.kind == Kind::Object
            && call.operation == "GET"
            && fields
                .sent
                .get(MODE)
                .is_some_and(|mode| mode.as_bytes().eq_ignore_ascii_case(b"enabled"));
        Ok(Asked {
            is_verified,
            function: self.function.clone(),
            version: self.version,
            method,
            kind: operation.kind,
            fields,
            body,
            patience: call.patience,
            pause: call.pause,
            target,
        })
    }
}

const SOURCE: &str = "x-amz-copy-source";
const MODE: &str = "x-amz-checksum-mode";
