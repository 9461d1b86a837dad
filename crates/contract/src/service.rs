//! I/O that trusted code does for sandboxes, which have no network and hold no credential.

use crate::{Body, Grant, ResponseHead};
use bytes::Bytes;
use std::{borrow::Cow, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

/// Something that can be asked for, such as HTTP requests to other hosts. It holds the connections and the credentials.
pub trait Service: Send + Sync {
    /// By what name sandboxes ask for it.
    fn name(&self) -> &'static str;
    /// What a version may ask of it; `None` if nothing.
    fn bind(&self, grant: &Grant) -> Option<Arc<dyn Session>>;
}

/// A service as one version may use it. Whatever a sandbox asks is checked here against what was granted.
pub trait Session: Send + Sync {
    /// Begins a call and does not wait. The future may be polled on any thread, and dropping it gives the call up.
    fn call(&self, call: Call) -> Calling;
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
    /// How long the beginning of a reply may take, if the sandbox has said so.
    pub patience: Option<Duration>,
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
