//! I/O that trusted code does for sandboxes, which have no network and hold no credential.

use crate::{Body, Grant, Head, RequestId, ResponseHead, SecretName};
use bytes::Bytes;
use std::{
    borrow::Cow,
    fmt,
    future::Future,
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

/// Something that can be asked for, such as HTTP requests to other hosts. It holds the connections and the credentials.
///
/// What a credential is never leaves it towards a sandbox: not in a reply that the service makes itself, not in an error, and
/// not in the `Debug` of anything.
pub trait Service: Send + Sync {
    /// By what name sandboxes ask for it. Always the same.
    fn name(&self) -> &'static str;
    /// What a version may ask of it; `None` if nothing. Does not block: no connection is made for it.
    fn bind(&self, grant: &Grant) -> Option<Arc<dyn Session>>;
}

/// A service as one version may use it. Whatever a sandbox asks is checked here against what was granted, on each call: what is
/// not granted is [`CallError::Denied`], or the reply by which the service's own protocol says so, and nothing of it leaves the
/// node.
///
/// Any number of calls may be under way, from any threads; none waits for another. A service bounds how many, and says
/// [`CallError::Busy`] beyond that.
pub trait Session: Send + Sync {
    /// Begins a call and does not wait. The future may be polled on any thread and with another waker each time, of which the
    /// last is woken. Dropping it gives the call up: the other side learns that nobody waits.
    ///
    /// The future is ready when the reply has begun. Its body comes by [`Body`]'s rules, on any thread too; who drops it before
    /// its end gives the rest up. A body that breaks off ends with an error, and never as if it were whole.
    fn call(&self, call: Call) -> Calling;

    /// A way for a process of the sandbox's own to have all of this from the service itself. Does not block; the calls are in this caller's trace.
    ///
    /// # Errors
    /// The service has no such way (as here), or cannot be reached now.
    fn attach(&self, _caller: &Caller) -> Result<Attachment, CallError> {
        Err(CallError::Target("this service".to_owned()))
    }
}

/// What [`Session::attach`] gives. It is the right to call, and ends with whoever has it.
#[derive(Debug)]
pub struct Attachment {
    /// The guest's bell of a channel.
    pub bell: OwnedFd,
    /// Whether calls over it are the same for each request without a trace of its own that the sandbox serves: then it may be kept for the next one.
    pub lasts: bool,
}

/// A call under way.
pub type Calling = Pin<Box<dyn Future<Output = Result<Reply, CallError>> + Send>>;

/// What is asked of a service.
#[derive(Debug)]
pub struct Call {
    /// What to do; to the service `http`, the method.
    pub operation: String,
    /// With what; to the service `http`, the absolute URI.
    pub target: String,
    /// What else there is to say; to the service `http`, the header fields.
    pub parameters: Vec<(Cow<'static, str>, Bytes)>,
    /// What is sent.
    pub body: Body,
    /// How long the beginning of a reply may take, if the sandbox has said so: then [`CallError::Timeout`].
    pub patience: Option<Duration>,
    /// For how long the reply's body may pause while it is being waited for, if the sandbox has said so: then
    /// [`BodyError::Slow`](crate::BodyError::Slow).
    pub pause: Option<Duration>,
    /// For whom it is asked.
    pub caller: Caller,
}

/// For whom a call is made: which sandbox, and for which of its requests. Without a request, a module's import has asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The sandbox, by a number that no other of the node ever has; what one of them has without a number it shares with no other.
    pub sandbox: Option<u64>,
    /// Which of its processes, by what it says itself: 0 is the first, others are those that it has forked.
    pub process: u32,
    /// Its `traceparent`, if it has one.
    pub traceparent: Option<Bytes>,
    /// The `tracestate` that goes with it.
    pub tracestate: Option<Bytes>,
    /// Which it is, if a worker runs it.
    pub request: Option<Standing>,
}

/// What becomes of requests that a request makes: they are deeper than it, and do not outlive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its id.
    pub id: RequestId,
    /// How many functions have called each other to make it.
    pub depth: u8,
    /// When its time is over.
    pub until: Instant,
}

impl Caller {
    /// Of the request that has this head.
    pub fn of(head: &Head) -> Self {
        let field = |name| head.header(name).map(Bytes::copy_from_slice);
        Self {
            sandbox: None,
            process: 0,
            traceparent: field("traceparent"),
            tracestate: field("tracestate"),
            request: head.until.map(|until| Standing {
                id: head.id,
                depth: head.depth,
                until,
            }),
        }
    }
}

/// What a service answers.
#[derive(Debug)]
pub struct Reply {
    /// To the service `http`: status and header fields.
    pub head: ResponseHead,
    /// What comes.
    pub body: Body,
}

/// A call that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// It was not granted.
    #[error("the manifest does not grant {0}")]
    Denied(String),
    /// What the manifest has the node add to it is not there.
    #[error("the secret {0} is not set")]
    Unset(SecretName),
    /// There is nobody as whom it could be asked for now.
    #[error("there are no credentials for it: {0}")]
    Credentials(String),
    /// The target cannot be asked for anything.
    #[error("`{0}` cannot be asked for anything")]
    Target(String),
    /// The host's name has no address.
    #[error("the host's name has no address: {0}")]
    Name(String),
    /// The address is this machine's own or nobody's, and was not granted by itself.
    #[error("{0} is an address that only a grant of that very address opens")]
    Address(String),
    /// Nobody listens there.
    #[error("the connection was refused: {0}")]
    Refused(String),
    /// No connection came to be, or no answer began in time.
    #[error("{0} took too long")]
    Timeout(&'static str),
    /// The other side could not show who it is.
    #[error("TLS: {0}")]
    Secure(String),
    /// As many calls are under way as may.
    #[error("too many calls are under way")]
    Busy,
    /// The connection ended, or what came was no answer.
    #[error("{0}")]
    Broken(String),
}

/// The services of one version, by their names.
#[derive(Clone, Default)]
pub struct Services(Vec<(&'static str, Arc<dyn Session>)>);

impl Services {
    /// What these services grant.
    pub fn bind(services: &[Arc<dyn Service>], grant: &Grant) -> Self {
        let bound = services.iter();
        Self(
            bound
                .filter_map(|service| Some((service.name(), service.bind(grant)?)))
                .collect(),
        )
    }

    /// The service of this name, if something of it was granted.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Session>> {
        let found = self.0.iter().find(|(its, _)| *its == name);
        found.map(|(_, session)| session)
    }

    /// Whether nothing was granted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}
