//! The control API of a node: HTTP and JSON over the registry, the calls, the logs and the metrics.
//!
//! It listens on a port of its own, so that no function can shadow it, and runs on the node's small tokio runtime, away
//! from the cores. What blocks (the registry, the disk) runs on that runtime's blocking threads.
//!
//! | module | what |
//! |---|---|
//! | `api` | the handlers, one module for each resource; each carries its own OpenAPI description |
//! | `wire` | the documents of requests and answers |
//! | `guard` | who may call what: tokens and their roles, hosts and origins |
//! | `audit` | who changed what, or was refused |
//! | `failure` | every error as a [`contract::Problem`] |
//! | `openapi` | the published description, made of the same handlers that serve |
//!
//! # Who may call
//! With a token, whoever shows it: the operator the node's, a tenant one of its own. Without one the API only listens on loopback, and only answers requests that were made
//! to a loopback name: a web page that points its own name at 127.0.0.1 is refused, and so is one of another origin.
//! `/healthz` and `/readyz` say nothing but their state, to everybody.
//!
//! # Shutdown
//! When the `shutdown` of [`serve`] is ready: no new connections, followed logs end, requests under way have
//! [`GRACE`] to finish.

#![forbid(unsafe_code)]

mod api;
mod audit;
mod failure;
mod guard;
mod objects;
mod once;
mod openapi;
/// The documents of requests and answers.
pub mod wire;

pub use audit::Audit;
pub use objects::Objects;
pub use once::{Once, Ran};
pub use openapi::openapi;

use axum::{Router, middleware, serve::ListenerExt};
use calls::Calls;
use registry::Registry;
use secrets::Secrets;
use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};
use telemetry::{logs::Logs, metrics::Metrics};
use tenants::Tenants;
use tokio::{net::TcpListener, sync::watch};
use triggers::Agenda;

/// The largest JSON document that is read.
pub const DOCUMENT_LIMIT: usize = 4 << 20;

/// How long requests may take to finish once the node shuts down.
pub const GRACE: Duration = Duration::from_secs(5);

/// What the API speaks about.
#[derive(Clone)]
pub struct State {
    /// What is deployed.
    pub registry: Arc<Registry>,
    /// Who shares the node.
    pub tenants: Arc<Tenants>,
    /// Who changed what.
    pub audit: Audit,
    /// What functions said.
    pub logs: Logs,
    /// What was called asynchronously, if this node takes such calls.
    pub calls: Option<Calls>,
    /// When schedules are due.
    pub agenda: Agenda,
    /// Runs what is not deployed.
    pub once: Arc<dyn Once>,
    /// The objects, if they are in this node.
    pub objects: Option<Arc<dyn Objects>>,
    /// What services show to others for functions.
    pub secrets: Secrets,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What `GET /v1/node` says.
    pub node: NodeInfo,
    /// What callers must show. Needed to listen beyond loopback.
    pub token: Option<String>,
    /// What `/readyz` says.
    pub ready: Arc<AtomicBool>,
}

/// A node about itself.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Of the program.
    pub version: String,
    /// Where functions are served.
    pub listen: SocketAddr,
    /// Where functions are served by TLS, if they are.
    pub tls: Option<SocketAddr>,
    /// Where its own S3 is, if it has one.
    pub s3: Option<SocketAddr>,
    /// Where the control API is.
    pub admin: SocketAddr,
    /// The processors of the worker threads.
    pub cores: Vec<usize>,
    /// When it was started.
    pub started: SystemTime,
}

/// A [`State`] and the end of the node, as handlers see them.
#[derive(Clone)]
struct Context {
    state: Arc<State>,
    /// Becomes true when the node shuts down.
    ending: watch::Receiver<bool>,
}

impl Context {
    fn is_ready(&self) -> bool {
        self.state.ready.load(Ordering::Acquire) && !*self.ending.borrow()
    }
}

/// Serves the API until `shutdown` is ready.
///
/// # Errors
/// If the listener is beyond loopback and there is no token, before anything is served; if accepting fails for good.
pub async fn serve(
    listener: TcpListener,
    state: State,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() && state.token.as_ref().is_none_or(String::is_empty) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the control API would listen on {address}, beyond this machine, without a token"),
        ));
    }
    let (end, mut ending) = watch::channel(false);
    let context = Context {
        state: Arc::new(state),
        ending: ending.clone(),
    };
    let router = router(&context).into_make_service_with_connect_info::<SocketAddr>();
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delays");
        }
    });
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
        shutdown.await;
        end.send_replace(true);
    });
    let overdue = async {
        // An error says that nobody can end this any more; then nothing is overdue either.
        if ending.wait_for(|ending| *ending).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = serving.into_future() => served,
        () = overdue => {
            tracing::warn!("connections of the control API did not end in time, and were dropped");
            Ok(())
        }
    }
}

fn router(context: &Context) -> Router {
    let (router, _) = api::routes().split_for_parts();
    router
        .fallback(api::not_found)
        .method_not_allowed_fallback(api::method_not_allowed)
        .layer(middleware::from_fn_with_state(context.clone(), guard::check))
        .with_state(context.clone())
}
