//! Operations of AWS's services for sandboxes, which have neither a network nor credentials: the requests of a boto3 that the function brought, unsigned.
//!
//! A sandbox says which service (`x-millpond-service`), a method, a target, header fields and a body. What is asked is read from them (module `catalog`) and
//! checked against the grant; then the request is signed and sent to where the node's configuration says that service is: never to where the sandbox says. Nothing is signed
//! for a service that is not in the catalog, and none is that gives credentials.
//!
//! Replies are the services' own; what is denied here is denied as they would: `AccessDeniedException` with status 400, or `AccessDenied` with 403 where
//! answers are XML. A call is sent once: whether it is worth another try is the sandbox's to say.

#![forbid(unsafe_code)]

mod catalog;

pub use aws::{Credentials, CredentialsError};

use aws::{Client, Denials, Signer, domain, is_region, origin};
use bytes::Bytes;
use catalog::{Form, Known, Question, known};
use contract::{
    AwsGrant, Body, BodyError, Call, CallError, Calling, FunctionId, Grant, Reply, ResponseHead, Service,
    Session, VersionNumber, pattern_matches,
};
use egress::Coming;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::Full;
use serde_json::json;
use std::{
    future::poll_fn,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, SystemTime},
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};

/// Bytes of a request's body: DynamoDB's largest are of 16 MiB.
const LARGEST: usize = 20 << 20;

/// Which service is meant.
const SERVICE: &str = "x-millpond-service";

/// Fields of a sandbox's request that go on; those that a signature consists of are made here.
const SENT: [&str; 7] = [
    "accept",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "content-type",
    "user-agent",
    "x-amz-target",
    "x-amzn-query-mode",
];

/// Where the services are, and how they are asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where all of them are, as `https://host:port`; AWS's own places when absent.
    pub endpoint: Option<String>,
    /// Their region.
    pub region: String,
    /// Calls under way at once.
    pub calls: usize,
    /// Idle connections that are kept to each.
    pub idle: usize,
    /// How long a connection may take to come.
    pub connect: Duration,
    /// How long the beginning of a reply may take, if the sandbox has not said otherwise,
    pub patience: Duration,
    /// and how long its body may pause.
    pub pause: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: "us-east-1".to_owned(),
            calls: 512,
            idle: 16,
            connect: Duration::from_secs(10),
            patience: Duration::from_secs(60),
            pause: Duration::from_secs(60),
        }
    }
}

/// Options that contradict themselves, or a machine that lacks what they need.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Not a place that can be reached.
    #[error("`{0}` is not the endpoint of AWS's services: write it as `https://host:port`")]
    Endpoint(String),
    /// Not the name of a region.
    #[error("`{0}` is not the name of a region")]
    Region(String),
    /// No certificate can be checked.
    #[error(transparent)]
    Trust(#[from] aws::TrustError),
}

/// The service `aws`.
pub struct Aws {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client<Full<Bytes>>,
    runtime: Handle,
    credentials: Arc<Credentials>,
    /// Scheme and authority of all services.
    endpoint: Option<String>,
    region: String,
    patience: Duration,
    pause: Duration,
    places: Arc<Semaphore>,
    denials: Denials,
}

struct AwsSession {
    function: FunctionId,
    version: VersionNumber,
    grants: Arc<[AwsGrant]>,
    shared: Arc<Shared>,
}

impl Aws {
    /// Does its work on this runtime, which has timers and I/O, as whom the credentials say.
    ///
    /// # Errors
    /// Where the options make no sense.
    pub fn new(runtime: Handle, credentials: Credentials, options: &Options) -> Result<Self, OptionsError> {
        if !is_region(&options.region) {
            return Err(OptionsError::Region(options.region.clone()));
        }
        let place =
            |endpoint: &String| origin(endpoint).ok_or_else(|| OptionsError::Endpoint(endpoint.clone()));
        let endpoint = options.endpoint.as_ref().map(place).transpose()?;
        let is_secure = endpoint
            .as_ref()
            .is_none_or(|endpoint| endpoint.starts_with("https:"));
        Ok(Self {
            shared: Arc::new(Shared {
                client: Client::new(options.connect, options.idle, is_secure)?,
                runtime,
                credentials: Arc::new(credentials),
                endpoint,
                region: options.region.clone(),
                patience: options.patience,
                pause: options.pause,
                places: Arc::new(Semaphore::new(options.calls.min(Semaphore::MAX_PERMITS))),
                denials: Denials::new("AWS's services"),
            }),
        })
    }
}

impl Service for Aws {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn bind(&self, grant: &Grant) -> Option<Arc<dyn Session>> {
        (!grant.aws.is_empty()).then(|| {
            Arc::new(AwsSession {
                function: grant.function.clone(),
                version: grant.version,
                grants: grant.aws.clone().into(),
                shared: self.shared.clone(),
            }) as Arc<dyn Session>
        })
    }
}

impl Session for AwsSession {
    fn call(&self, call: Call) -> Calling {
        let Ok(place) = self.shared.places.clone().try_acquire_owned() else {
            return Box::pin(async { Err(CallError::Busy) });
        };
        let (shared, grants) = (self.shared.clone(), self.grants.clone());
        let caller = (self.function.clone(), self.version);
        egress::call(&self.shared.runtime, async move {
            shared.serve(call, &caller, &grants, place).await
        })
    }
}

impl Shared {
    async fn serve(
        self: Arc<Self>,
        call: Call,
        caller: &(FunctionId, VersionNumber),
        grants: &[AwsGrant],
        place: OwnedSemaphorePermit,
    ) -> Result<Reply, CallError> {
        let patience = call.patience.unwrap_or(self.patience);
        let mut fields = HeaderMap::new();
        let mut service = None;
        for (name, value) in &call.parameters {
            if name == SERVICE {
                service = std::str::from_utf8(value).ok().and_then(known);
            } else if SENT.contains(&&**name) {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unfit(name))?;
                let value = HeaderValue::from_bytes(value).map_err(|_| unfit(name.as_str()))?;
                if fields.insert(&name, value).is_some() {
                    return Err(unfit(name.as_str()));
                }
            }
        }
        let Some(service) = service else {
            return Err(CallError::Denied(
                "requests to this service: the node signs none".to_owned(),
            ));
        };
        let said = |name| {
            let value = fields.get(name);
            value.map(|value: &HeaderValue| value.to_str().unwrap_or_default())
        };
        let (target, kind) = (said("x-amz-target"), said("content-type").unwrap_or_default());
        let body = within(patience, "the request's body", gathered(call.body)).await?;
        let is_plain = call.operation == "POST" && call.target == "/";
        let question = is_plain.then(|| service.question(target, kind, &body)).flatten();
        let Some(question) = question else {
            return Err(CallError::Denied(format!(
                "what cannot be understood: a request to {} in another form than AWS's JSON or query protocol",
                service.name
            )));
        };
        if !is_granted(grants, service, &question) {
            self.log_denied(caller, service, &question);
            return Ok(denied(&caller.0, service, &question));
        }
        let identity = within(patience, "the node's credentials", self.credentials.identity()).await?;
        let url = match &self.endpoint {
            Some(endpoint) => format!("{endpoint}/"),
            None => format!(
                "https://{}.{}.{}/",
                service.host,
                self.region,
                domain(&self.region)
            ),
        };
        let mut request = http::Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.parse().map_err(|_| CallError::Target(url.clone()))?;
        *request.headers_mut() = fields;
        if let Some(identity) = &identity {
            let signer = Signer {
                identity,
                service: service.signing,
                region: &self.region,
                time: SystemTime::now(),
            };
            signer.sign(&mut request, &body)?;
        }
        let response = self.client.send(request, &AtomicU64::new(0), patience).await?;
        let (head, body) = response.into_parts();
        let pause = call.pause.unwrap_or(self.pause);
        Ok(Reply {
            head: ResponseHead {
                status: head.status.as_u16(),
                headers: egress::fields(&head.headers),
            },
            body: Body::Stream(Box::new(Coming::new(body, &self.runtime, Some(pause), place))),
        })
    }
}

impl Shared {
    fn log_denied(
        &self,
        (function, version): &(FunctionId, VersionNumber),
        service: &Known,
        question: &Question,
    ) {
        let Question {
            action, resources, ..
        } = question;
        self.denials.log(&self.runtime, function, || {
            tracing::warn!(%function, %version, service = service.name, ?action, ?resources, "a call to a service of AWS is not granted");
        });
    }
}

/// Whether one grant is of the operation and of all that it is about.
fn is_granted(grants: &[AwsGrant], service: &Known, question: &Question) -> bool {
    let of_it = grants.iter().filter(|grant| grant.service == service.name);
    let mut of_it = of_it.filter(|grant| {
        grant
            .actions
            .iter()
            .any(|action| pattern_matches(action, &question.action))
    });
    of_it.any(|grant| {
        let is_of = |name: &str| {
            grant
                .resources
                .iter()
                .any(|resource| pattern_matches(resource, name))
        };
        match question.resources.is_empty() {
            true => grant.resources.iter().any(|resource| resource == "*"),
            false => question.resources.iter().all(|name| is_of(name)),
        }
    })
}

/// As the services say it.
fn denied(function: &FunctionId, service: &Known, question: &Question) -> Reply {
    let about: Vec<_> = question.resources.iter().map(String::as_str).collect();
    let about = match about.as_slice() {
        [] => "all that there is".to_owned(),
        about => about.join(", "),
    };
    let message = format!(
        "User: {function} is not authorized to perform: {}:{} on resource: {about} because no grant of its manifest allows it",
        service.name, question.action
    );
    let (status, kind, document) = match question.form {
        Form::Json => {
            let document =
                json!({ "__type": "AccessDeniedException", "message": message, "Message": message });
            (400, "application/x-amz-json-1.0", document.to_string())
        }
        Form::Xml => {
            let document = format!(
                "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>{}</Message></Error></ErrorResponse>",
                escaped(&message)
            );
            (403, "text/xml", document)
        }
    };
    Reply {
        head: ResponseHead {
            status,
            headers: vec![
                ("content-type".into(), kind.into()),
                ("content-length".into(), document.len().to_string().into()),
            ],
        },
        body: Body::Whole(document.into()),
    }
}

/// A text within XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A body, in memory.
async fn gathered(body: Body) -> Result<Bytes, CallError> {
    let mut stream = match body {
        Body::Whole(bytes) => return Ok(bytes),
        Body::Stream(stream) => stream,
    };
    let failed = |error: BodyError| CallError::Broken(format!("the request's body: {error}"));
    let mut whole = Vec::new();
    while let Some(piece) = poll_fn(|context| stream.poll_next(context.waker()))
        .await
        .map_err(failed)?
    {
        if whole.len() + piece.len() > LARGEST {
            return Err(CallError::Broken(format!(
                "the request's body is larger than {} MiB",
                LARGEST >> 20
            )));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.into())
}

async fn within<T>(
    patience: Duration,
    what: &'static str,
    future: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let waited = time::timeout(patience, future).await;
    waited.unwrap_or(Err(CallError::Timeout(what)))
}

fn unfit(field: &str) -> CallError {
    CallError::Target(format!("{field}: the field cannot be sent"))
}
