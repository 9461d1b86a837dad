//! Functions that call functions: the service `lambda`, which the node serves itself.
//!
//! ```text
//! sandbox ─link─▶ a thread of the services ─▶ dispatcher ─▶ worker ─▶ another sandbox
//! ```
//!
//! A sandbox says what AWS Lambda's Invoke API would be told, and is answered in its words (crate `lambda`); in between there is no network and no
//! secret. Who may invoke whom is the grant's to say, on each call, before it is told whether there is such a function.
//!
//! What a request makes so is one deeper than the request, and none is deeper than [`DEEPEST`]. It is given up with the request's own time: whoever
//! waits for it is gone then. An event is kept, and keeps its depth. A function that calls itself therefore ends.

use backend::{Limits, Links};
use bytes::{Bytes, BytesMut};
use calls::{CallId, Request, SubmitError, Timestamp};
use contract::{
    Attachment, Body, Call, CallError, Caller, Calling, FunctionId, FunctionRef, Grant, Head, HeadBuilder,
    Name, Qualifier, Quota, Refusal, Reply, RequestId, ResponseHead, Service, Session, Standing,
    VersionNumber,
};
use dispatcher::Reader;
use gateway::{DEPTH, Later};
use lambda::{Invoke, Kind, LOG_TAIL, Log, Rejection};
use parking_lot::Mutex;
use ring::bells;
use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use telemetry::otlp::Tracer;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    task::AbortHandle,
};
use worker::{Answer, Failure, Shared as Worker, Target};

/// Functions that may have called each other to make one request: about where AWS Lambda stops loops.
const DEEPEST: u8 = 16;

/// Bytes of all payloads that are under way from function to function. Beyond that, callers are told to try again.
const PAYLOADS: usize = 256 << 20;

/// Links of one request's forks at once.
const MOST_FORKS: usize = 8;

/// Bytes of memory of one link. A payload fits into the caller's half.
const LINK: u64 = 16 << 20;
const _: () = assert!(lambda::MAX_PAYLOAD < LINK / 2);

/// Callers wait for functions, which may be callers that wait: what bounds those is not places here, but their own limits and [`DEEPEST`]. Payloads take no network's time.
const LIMITS: Limits = Limits {
    calls: 1 << 20,
    memory: 1 << 30,
    bandwidth: None,
    tenant_bandwidth: None,
};

/// Marks the ids of these requests: no core numbers its own so.
const MARK: u64 = 1 << 62;

/// What the path of a kept call's request begins with.
const FUNCTION: &str = "/function/";

/// The paths of the API.
const INVOKE: (&str, &str) = ("/2015-03-31/functions/", "/invocations");

/// Its fields that mean something, and what of a request goes to the function.
const CLIENT_CONTEXT: &str = "x-amz-client-context";
const FIELDS: [&str; 3] = ["x-amz-invocation-type", "x-amz-log-type", CLIENT_CONTEXT];

/// Those that would be about what is not here.
const OTHERS: [&str; 2] = ["x-amz-tenant-id", "x-amz-durable-execution-name"];

/// The service `lambda`.
#[derive(Clone)]
pub(crate) struct Functions(Arc<Shared>);

struct Shared {
    runtime: Handle,
    ways: OnceLock<Ways>,
    /// Each process of a request has one link, by whose end the earlier one is known to be given up.
    links: Mutex<HashMap<(RequestId, u32), (u64, AbortHandle)>>,
    most_links: usize,
    hosts: Links,
    payloads: Arc<Semaphore>,
    numbers: AtomicU64,
    boot: u64,
}

/// How requests reach functions. Exists once the node is assembled.
pub(crate) struct Ways {
    pub(crate) worker: Arc<Worker>,
    pub(crate) reader: Mutex<Reader>,
    /// How events are kept.
    pub(crate) later: Later,
    pub(crate) tracer: Option<Tracer>,
}

impl Functions {
    /// On this runtime, with so many links at once.
    pub(crate) fn new(runtime: Handle, most_links: usize, boot: u64) -> Self {
        Self(Arc::new(Shared {
            runtime,
            ways: OnceLock::new(),
            links: Mutex::default(),
            most_links,
            hosts: Links::new(LIMITS),
            payloads: Arc::new(Semaphore::new(PAYLOADS)),
            numbers: AtomicU64::new(0),
            boot,
        }))
    }

    /// From now on it works.
    pub(crate) fn open(&self, ways: Ways) {
        // There is one node, and it is assembled once.
        let _ = self.0.ways.set(ways);
    }
}

impl Service for Functions {
    fn name(&self) -> &'static str {
        "lambda"
    }

    fn bind(&self, grant: &Grant) -> Option<Arc<dyn Session>> {
        (!grant.functions.is_empty()).then(|| {
            Arc::new(FunctionsSession {
                function: grant.function.clone(),
                version: grant.version,
                granted: grant.functions.clone().into(),
                shared: self.0.clone(),
            }) as Arc<dyn Session>
        })
    }
}

/// The service, as one version may use it.
#[derive(Clone)]
struct FunctionsSession {
    function: FunctionId,
    version: VersionNumber,
    granted: Arc<[FunctionRef]>,
    shared: Arc<Shared>,
}

impl Session for FunctionsSession {
    fn call(&self, call: Call) -> Calling {
        let session = self.clone();
        Box::pin(async move {
            let (Some(ways), Some(standing)) = (session.shared.ways.get(), call.caller.request) else {
                return Err(CallError::Denied(IMPORT.to_owned()));
            };
            let number = session.shared.numbers.fetch_add(1, Ordering::Relaxed);
            let id = RequestId(u128::from(session.shared.boot) << 64 | u128::from(MARK | number));
            let said = session.invoke(ways, id, standing, call).await;
            let lambda::Reply {
                status,
                headers,
                body,
            } = said.unwrap_or_else(|rejection| rejection.reply(id));
            let length = ("content-length", body.len().to_string());
            let headers = headers.into_iter().chain([length]);
            let headers = headers.map(|(name, value)| (name.to_ascii_lowercase().into(), value.into()));
            Ok(Reply {
                head: ResponseHead {
                    status,
                    headers: headers.collect(),
                },
                body: Body::Whole(body.into()),
            })
        })
    }

    fn attach(&self, caller: &Caller) -> Result<Attachment, CallError> {
        let standing = caller.request;
        let standing = standing.ok_or_else(|| CallError::Denied(IMPORT.to_owned()))?;
        let (host, guest) = bells().map_err(|_| CallError::Busy)?;
        let (session, caller, shared) = (self.clone(), caller.clone(), self.shared.clone());
        let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
        let mut links = self.shared.links.lock();
        let key = (standing.id, caller.process);
        if !links.contains_key(&key) {
            let is_forks = |(id, process): &&(RequestId, u32)| *id == standing.id && *process != 0;
            let has_enough = || caller.process != 0 && links.keys().filter(is_forks).count() >= MOST_FORKS;
            if links.len() >= self.shared.most_links || has_enough() {
                return Err(CallError::Busy);
            }
        }
        let task = self.shared.runtime.spawn(async move {
            let (function, links) = (session.function.clone(), shared.hosts.clone());
            let _listed = Listed { key, number, shared };
            let bell = host.into_inner();
            links
                .serve(bell, Arc::new(session), caller, LINK, &function)
                .await;
        });
        if let Some((_, earlier)) = links.insert(key, (number, task.abort_handle())) {
            earlier.abort();
        }
        Ok(Attachment {
            bell: guest.into_inner(),
            // The calls end with the request.
            lasts: false,
        })
    }
}

/// What a module that is being imported asks for: there is no request yet whose time would bound it.
const IMPORT: &str = "a module's import to invoke functions";

/// Takes a link off the list when it ends.
struct Listed {
    key: (RequestId, u32),
    number: u64,
    shared: Arc<Shared>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut links = self.shared.links.lock();
        if links
            .get(&self.key)
            .is_some_and(|(number, _)| *number == self.number)
        {
            links.remove(&self.key);
        }
    }
}

impl FunctionsSession {
    async fn invoke(
        &self,
        ways: &Ways,
        id: RequestId,
        standing: Standing,
        call: Call,
    ) -> Result<lambda::Reply, Rejection> {
        let asked = Asked::read(&call)?;
        let target = self.target(&mut ways.reader.lock(), &asked.invoke.function)?;
        if standing.depth >= DEEPEST {
            tracing::warn!(function = %self.function, version = %self.version, invokes = %target.grant().function,
                "a function is not invoked: functions have called each other too often to make this request");
            return Err(Rejection::recursive(DEEPEST));
        }
        let depth = standing.depth + 1;
        let most = asked.invoke.largest_payload();
        let limit = most.min(target.grant().limits.request_body.0);
        let (payload, place) = self.payload(call.body, asked.length, limit, most).await?;
        asked.invoke.check_payload(&payload)?;
        if asked.invoke.kind == Kind::DryRun {
            return Ok(lambda::Reply::dry(target.grant().version, id));
        }
        let counted = target
            .allowance()
            .map_or(Ok(()), |allowance| allowance.request(Instant::now()));
        counted.map_err(|retry_after| {
            let quota = Quota::Rate;
            Rejection::of_refusal(Refusal::Quota { quota, retry_after })
        })?;
        let request = Made {
            id,
            depth,
            until: standing.until,
            caller: call.caller,
            context: asked.context,
            payload,
        };
        if asked.invoke.kind == Kind::Event {
            return self.keep(ways, &target, asked.invoke.function, request).await;
        }
        run(ways, target, &asked.invoke, request, place).await
    }

    /// The function that is meant, if it may be invoked. What is not granted is not told from what is not there.
    fn target(&self, reader: &mut Reader, named: &FunctionRef) -> Result<Arc<Target>, Rejection> {
        let tenant = self.function.tenant();
        let own = || {
            let application = &self.function.application;
            let application = reader.snapshot().applications.get(application)?;
            application
                .functions
                .contains_key(&named.function)
                .then(|| self.function.application.name.clone())
        };
        let application = named.application.clone();
        let named = FunctionRef {
            application: application.or_else(own),
            ..named.local()
        };
        let found = reader.named(tenant, &named.to_string());
        let application = match &found {
            Ok(target) => Some(target.grant().function.application.name.clone()),
            Err(_) => named.application.clone(),
        };
        if !is_granted(&self.granted, application.as_ref(), &named) {
            tracing::warn!(function = %self.function, version = %self.version, invokes = %named, "an invocation is not granted");
            let caller = format!("The function {}", self.function.local());
            return Err(Rejection::not_granted(&caller, &named.to_string()));
        }
        found.map_err(|problem| Rejection::of_problem(&problem))
    }

    /// All of a payload, and its part of the room for those.
    async fn payload(
        &self,
        body: Body,
        length: Option<u64>,
        limit: u64,
        most: u64,
    ) -> Result<(Bytes, OwnedSemaphorePermit), Rejection> {
        let length = body.known_length().map(|length| length as u64).or(length);
        let length = length.filter(|length| *length <= limit);
        let length = length.ok_or_else(|| Rejection::too_large(limit, most))?;
        // No payload is larger than 6 MiB.
        let permits = u32::try_from(length).unwrap_or(u32::MAX);
        let place = self.shared.payloads.clone().try_acquire_many_owned(permits);
        let place = place.map_err(|_| {
            Rejection::throttled(
                "as many payloads are on their way from function to function as this node carries; try again",
            )
        })?;
        let mut stream = match body {
            Body::Whole(bytes) => return Ok((bytes, place)),
            Body::Stream(stream) => stream,
        };
        let mut payload = BytesMut::new();
        loop {
            match poll_fn(|context| stream.poll_next(context.waker())).await {
                Ok(None) => return Ok((payload.freeze(), place)),
                Ok(Some(piece)) if (payload.len() + piece.len()) as u64 <= length => {
                    payload.extend_from_slice(&piece);
                }
                Ok(Some(_)) => return Err(Rejection::too_large(limit, most)),
                Err(error) => return Err(Rejection::of_failure(&format!("its payload: {error}"))),
            }
        }
    }

    /// Has an event kept, to be run as often as it takes.
    async fn keep(
        &self,
        ways: &Ways,
        target: &Target,
        named: FunctionRef,
        made: Made,
    ) -> Result<lambda::Reply, Rejection> {
        let function = FunctionRef {
            qualifier: named.qualifier,
            ..FunctionRef::from(&target.grant().function)
        };
        let id = made.id;
        let mut headers: Vec<(String, Vec<u8>)> = made
            .headers()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect();
        headers.push(("X-Call-Id".to_owned(), CallId(id).to_string().into_bytes()));
        headers.push((DEPTH.to_owned(), made.depth.to_string().into_bytes()));
        let request = Request {
            method: "POST".to_owned(),
            target: format!("{FUNCTION}{}", function.local()),
            headers,
            body: made.payload,
            callback: None,
            tells: None,
            attempts: ways.later.attempts,
            maximum_age: ways.later.maximum_age,
            function,
        };
        let (sender, kept) = oneshot::channel();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        let done = move |result| {
            // Whoever asked may have gone: the event is kept nevertheless.
            let _ = sender.send(result);
        };
        let refused = |error: &SubmitError| Rejection::of_problem(&gateway::problem_of_unkept(error));
        let submitted = ways.later.calls.submit_then(CallId(id), &request, now, done);
        submitted.map_err(|error| refused(&error))?;
        match kept.await {
            Ok(Ok(_)) => Ok(lambda::Reply::accepted(id)),
            Ok(Err(error)) => Err(refused(&error)),
            Err(_) => Err(Rejection::of_failure("it ends")),
        }
    }
}

/// What is asked for, in words of the API.
struct Asked {
    invoke: Invoke,
    /// The payload's length, where it was said.
    length: Option<u64>,
    context: Option<Bytes>,
}

impl Asked {
    fn read(call: &Call) -> Result<Self, Rejection> {
        let is_visible = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_graphic);
        if !is_visible(call.operation.as_bytes()) || !is_visible(call.target.as_bytes()) {
            return Err(Rejection::parameter(
                "the method or the path has characters that neither has",
            ));
        }
        let mut builder = HeadBuilder::new(&call.operation, &call.target, 128);
        let (mut length, mut context) = (None, None);
        for (name, value) in &call.parameters {
            let name = name.to_ascii_lowercase();
            if name == "content-length" {
                length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            }
            if OTHERS.contains(&&*name) {
                return Err(Rejection::parameter(format!(
                    "functions of this node know nothing of {name}: leave it out"
                )));
            }
            if !FIELDS.contains(&&*name) {
                continue;
            }
            if !is_visible(value) {
                return Err(Rejection::parameter(format!(
                    "{name} has characters that it may not have"
                )));
            }
            if name == CLIENT_CONTEXT {
                context = Some(value.clone());
            }
            builder.header(&name, value);
        }
        Ok(Self {
            invoke: Invoke::read(&builder.build(RequestId(0)))?,
            length,
            context,
        })
    }
}

/// A request that a function makes of another.
struct Made {
    id: RequestId,
    depth: u8,
    until: Instant,
    caller: Caller,
    context: Option<Bytes>,
    payload: Bytes,
}

impl Made {
    fn headers(&self) -> Vec<(&'static str, Bytes)> {
        let caller = &self.caller;
        let said = [
            ("X-Amz-Client-Context", &self.context),
            ("traceparent", &caller.traceparent),
            ("tracestate", &caller.tracestate),
        ];
        let said = said
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.clone()?)));
        [("Content-Type", Bytes::from_static(b"application/json"))]
            .into_iter()
            .chain(said)
            .collect()
    }

    fn head(&self, function: &FunctionRef) -> Box<Head> {
        let path = format!("{}{}{}", INVOKE.0, function.local(), INVOKE.1);
        let mut builder = HeadBuilder::new("POST", &path, 256);
        for (name, value) in self.headers() {
            builder.header(name, &value);
        }
        let mut head = builder.build(self.id);
        head.set_script(path.len());
        (head.depth, head.until) = (self.depth, Some(self.until));
        head
    }
}

/// Runs a request, and waits for what comes of it.
async fn run(
    ways: &Ways,
    target: Arc<Target>,
    invoke: &Invoke,
    made: Made,
    place: OwnedSemaphorePermit,
) -> Result<lambda::Reply, Rejection> {
    let mut head = made.head(&invoke.function);
    let payload = match made.payload.is_empty() {
        true => Bytes::from_static(b"{}"),
        false => made.payload,
    };
    let grant = target.grant();
    let tracer = ways.tracer.clone();
    let span = tracer
        .as_ref()
        .and_then(|tracer| tracer.begin(&mut head, &grant.function, grant.version));
    let tail = if invoke.tail { LOG_TAIL } else { 0 };
    let (sender, answered) = oneshot::channel();
    ways.worker
        .submit(target, head, payload, tail, move |core, answer| {
            let sample = gateway::record_elsewhere(&answer, core);
            if let (Some(span), Some(tracer)) = (span, tracer) {
                let head = answer.result.as_ref().ok().and_then(|it| it.head.as_ref());
                let status = head.map(|head| head.status);
                tracer.end(span, &sample, status);
            }
            drop(place);
            // Whoever asked may have gone.
            let _ = sender.send(answer);
        });
    match answered.await {
        Ok(answer) => reply(&answer, invoke),
        Err(_) => Err(Rejection::of_failure("it ends")),
    }
}

fn reply(answer: &Answer, invoke: &Invoke) -> Result<lambda::Reply, Rejection> {
    let pieces: Vec<&[u8]>;
    let outcome = lambda::Outcome {
        result: match &answer.result {
            Ok(response) => {
                pieces = response.body.iter().map(Bytes::as_ref).collect();
                Ok(&pieces)
            }
            Err(Failure::Fault(fault) | Failure::Left(fault)) => Err(fault),
            Err(Failure::Refused(refusal)) => return Err(Rejection::of_refusal(*refusal)),
            Err(Failure::Platform(reason)) => return Err(Rejection::of_failure(reason)),
        },
        id: answer.id,
    };
    let grant = answer.target.grant();
    let log = invoke.tail.then(|| Log {
        tail: &answer.log_tail,
        id: answer.id,
        version: grant.version,
        duration: answer.timing.boot + answer.timing.run,
        memory: grant.limits.memory.0,
        used: answer.memory,
    });
    Ok(outcome.reply(grant.version, log.as_ref(), invoke.stream))
}

/// Whether a function of this application may be invoked as it is named. Of one that is not there, the application is not known either.
fn is_granted(granted: &[FunctionRef], application: Option<&Name>, named: &FunctionRef) -> bool {
    granted.iter().any(|grant| {
        grant.function == named.function
            && application.is_none_or(|application| grant.application.as_ref() == Some(application))
            && match &grant.qualifier {
                None => true,
                Some(Qualifier::Alias(alias)) if alias.as_str() == LIVE => {
                    named.qualifier.is_none() || named.qualifier == grant.qualifier
                }
                Some(_) => named.qualifier == grant.qualifier,
            }
    })
}

/// The alias that a name without a qualifier means.
const LIVE: &str = "live";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_of_one_function_and_perhaps_of_one_version() {
        let function = |text: &str| text.parse::<FunctionRef>().unwrap();
        let is_granted = |granted: &[&str], application: Option<&str>, named: &str| {
            let granted: Vec<_> = granted.iter().map(|grant| function(grant)).collect();
            let application = application.map(|name| name.parse::<Name>().unwrap());
            super::is_granted(&granted, application.as_ref(), &function(named))
        };
        for (granted, application, named, expected) in [
            (&["shop.a"][..], Some("shop"), "a", true),
            (&["shop.a"], Some("shop"), "a:7", true),
            (&["shop.a"], Some("shop"), "shop.a:beta", true),
            (&["shop.a"], Some("shop"), "b", false),
            (&["shop.a"], Some("other"), "other.a", false),
            (&["shop.a", "other.a:7"], Some("other"), "other.a:7", true),
            (&["shop.a", "other.a:7"], Some("other"), "other.a", false),
            (&["shop.a:live"], Some("shop"), "a", true),
            (&["shop.a:live"], Some("shop"), "a:live", true),
            (&["shop.a:live"], Some("shop"), "a:7", false),
            // There is no such function; whoever might invoke it is told so.
            (&["shop.a"], None, "a", true),
            (&["shop.a"], None, "c", false),
            (&[], Some("shop"), "a", false),
        ] {
            assert_eq!(is_granted(granted, application, named), expected, "{named}");
        }
    }

    #[test]
    fn what_is_asked_for_is_in_the_words_of_the_api() {
        let call = |target: &str, parameters: &[(&'static str, &'static str)]| Call {
            operation: "POST".to_owned(),
            target: target.to_owned(),
            parameters: parameters
                .iter()
                .map(|(name, value)| ((*name).into(), Bytes::from_static(value.as_bytes())))
                .collect(),
            body: Body::Whole(Bytes::new()),
            patience: None,
            pause: None,
            caller: Caller::default(),
        };
        let path = "/2015-03-31/functions/shop.a/invocations?Qualifier=7";
        let fields = [
            ("X-Amz-Invocation-Type", "Event"),
            ("X-Amz-Client-Context", "e30="),
            ("X-Millpond-Depth", "0"),
            ("content-length", "12"),
        ];
        let asked = Asked::read(&call(path, &fields)).unwrap_or_else(|_| panic!("it is one"));
        assert_eq!(asked.invoke.function.to_string(), "shop.a:7");
        assert_eq!((asked.invoke.kind, asked.length), (Kind::Event, Some(12)));
        assert_eq!(asked.context.as_deref(), Some(&b"e30="[..]));
        for (path, fields) in [
            ("/2015-03-31/functions/a b/invocations", &[][..]),
            ("/2015-03-31/functions/a\r\nx: y/invocations", &[]),
            ("/2015-03-31/functions/../invocations", &[]),
            ("/function/a", &[]),
            (path, &[("X-Amz-Client-Context", "a\r\nx: y")]),
            (path, &[("X-Amz-Invocation-Type", "Later")]),
        ] {
            assert!(Asked::read(&call(path, fields)).is_err(), "{path} {fields:?}");
        }
    }

    #[test]
    fn a_request_is_one_deeper_and_no_later_than_its_caller() {
        let until = Instant::now();
        let made = Made {
            id: RequestId(7),
            depth: 3,
            until,
            caller: Caller {
                traceparent: Some("00-1".into()),
                ..Caller::default()
            },
            context: None,
            payload: Bytes::new(),
        };
        let head = made.head(&"acme/shop.a:7".parse().unwrap());
        assert_eq!(head.path(), "/2015-03-31/functions/shop.a:7/invocations");
        assert_eq!((head.id, head.depth, head.until), (RequestId(7), 3, Some(until)));
        assert_eq!(head.header("traceparent"), Some(&b"00-1"[..]));
        assert!(Invoke::read(&head).is_ok());
    }
}
