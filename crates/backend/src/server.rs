//! The backend's process.

use crate::{
    control::{self, Attach, Open},
    limits::{Limits, Shared},
    line,
    link::Link,
};
use contract::{Caller, FunctionId, Service, Session};
use std::{io, os::fd::OwnedFd, os::unix::net::UnixDatagram as Socket, sync::Arc, thread};
use tokio::{
    io::Interest,
    net::UnixDatagram,
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

/// Threads that do the services' work, and copy; fewer where there are not as many cores for this process, on which they would only wake each other.
const THREADS: usize = 2;

/// Serves links that come on this socket, with these services and within these limits, until the node has gone. `make` makes the services, on the runtime
/// that they work on.
///
/// # Errors
/// The kernel's, or those of `make`.
pub fn serve(
    control: OwnedFd,
    limits: Limits,
    make: impl FnOnce(tokio::runtime::Handle) -> io::Result<Vec<Arc<dyn Service>>>,
) -> io::Result<()> {
    let threads = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(THREADS);
    let mut runtime = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = runtime
        .worker_threads(threads)
        .thread_name("backend")
        .enable_all()
        .build()?;
    let services: Arc<[_]> = make(runtime.handle().clone())?.into();
    let links = Links::new(limits);
    let serving = async move {
        // Who tells all processes of a node to end, or presses a key, means the node: it has requests to finish, and ends this process when it ends.
        let _deaf = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        );
        // Not that there were datagrams: what matters is what the socket says it is ready for.
        let control = Socket::from(control);
        control.set_nonblocking(true)?;
        let control = UnixDatagram::from_std(control)?;
        let receive = || control::receive(&control).map_err(io::Error::from);
        while let Some((packet, end)) = control.async_io(Interest::READABLE, receive).await? {
            begin(&services, &links, &packet, end);
        }
        Ok(())
    };
    // As a task, which the thread runs that hears of what has come, and not another.
    runtime.block_on(async { tokio::spawn(serving).await? })
}

fn begin(services: &Arc<[Arc<dyn Service>]>, links: &Links, packet: &[u8], end: Option<OwnedFd>) {
    match (serde_json::from_slice(packet), end) {
        (Ok(Open::Link(attach)), bell) => begin_link(services, links, attach, bell),
        (Ok(Open::Line), Some(end)) => drop(tokio::spawn(line::serve(end, services.clone()))),
        (Ok(Open::Line), None) => tracing::error!("a line cannot be made: no descriptor is left for it"),
        (Err(error), _) => {
            tracing::error!(%error, "the node says what this backend does not know");
        }
    }
}

fn begin_link(services: &[Arc<dyn Service>], links: &Links, attach: Attach, bell: Option<OwnedFd>) {
    let service = services.iter().find(|service| service.name() == attach.service);
    let session = service.and_then(|service| service.bind(&attach.grant()));
    let function = &attach.function;
    let (Some(session), Some(bell)) = (session, bell) else {
        return tracing::error!(%function, service = attach.service, "a link cannot be made: there is nothing to link");
    };
    let (links, caller, memory) = (links.clone(), attach.caller(), attach.memory);
    tokio::spawn(async move { links.serve(bell, session, caller, memory, &attach.function).await });
}

/// The hosts' sides of links, within limits that all of them share.
#[derive(Clone)]
pub struct Links(Arc<Shared>);

impl Links {
    /// None yet. To be used on a tokio runtime.
    pub fn new(limits: Limits) -> Self {
        Self(Shared::new(limits))
    }

    /// Serves a link until its sandbox has gone: one of this function, which may use so many bytes of memory. Its bell is the other end of this one.
    pub async fn serve(
        &self,
        bell: OwnedFd,
        session: Arc<dyn Session>,
        caller: Caller,
        memory: u64,
        function: &FunctionId,
    ) {
        // A sandbox whose link is not made hears its bell fall silent.
        let Some(sandbox) = self.0.link(caller.sandbox, function.application.tenant.as_ref()) else {
            return tracing::warn!(%function, "a sandbox has as many links as it may, and asks for more");
        };
        match Link::new(bell, session, sandbox, caller, memory) {
            Ok(link) => {
                if let Err(reason) = link.serve().await {
                    tracing::warn!(%function, %reason, "a sandbox broke its link's rules and lost it");
                }
            }
            Err(error) => tracing::error!(%function, %error, "a link cannot be made"),
        }
    }
}
