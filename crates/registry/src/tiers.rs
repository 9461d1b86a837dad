//! Versions whose engine the node chooses: served at once by the engine that compiles fast, and by the one that runs fast once that is
//! worth its compiler's time and its image is ready.
//!
//! What is worth it is what has run for as long as compiling takes, about: nobody knows how long a function will be used, and so a
//! node never spends more on compiling than twice what it would have, had it known. A function that was deployed and is hardly called
//! costs nothing.

use crate::{
    Version,
    images::{LoadError, Ready},
};
use contract::Image;
use parking_lot::Mutex;
use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// The engine of a manifest that leaves the choice to the node.
pub const AUTO: &str = "auto";

/// Between which engines the node chooses.
#[derive(Clone, Copy, Debug)]
pub struct Tiers {
    /// Serves WebAssembly at once.
    pub first: &'static str,
    /// Serves native executables.
    pub native: &'static str,
    /// Takes over, if there is any.
    pub then: Option<&'static str>,
    /// Once a version's requests have spent this time on cores.
    pub after: Duration,
}

impl Default for Tiers {
    fn default() -> Self {
        Self {
            first: "wasmtime",
            native: "process",
            then: None,
            after: Duration::from_secs(1),
        }
    }
}

/// What a version runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The engine; none if no image is ready.
    pub engine: Option<&'static str>,
    /// What its sandboxes are made from, in the engine's words, once there is something to be said of that.
    pub origin: Option<String>,
    /// Which limits are kept, and by what, in the engine's words, where that depends on the host.
    pub kept: Option<String>,
    /// What becomes of it, if the node chooses and another could take over.
    pub next: Option<Next>,
}

/// What could take over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// The engine.
    pub engine: &'static str,
    /// How far it is.
    pub state: NextState,
}

/// How far an engine is that could take over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextState {
    /// Once the version has used as much time on cores.
    After(Duration),
    /// Now.
    Compiling,
    /// It does not take the code, or its compiler has failed: the other one goes on.
    Failed(String),
}

type Listener = Box<dyn FnOnce(Arc<dyn Image>) + Send>;

/// A version's image that takes over, on its way or there.
#[derive(Default)]
pub(crate) struct Better {
    ready: OnceLock<Ready>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    state: Option<NextState>,
    listeners: Vec<Listener>,
}

impl Better {
    pub(crate) fn ready(&self) -> Option<&Ready> {
        self.ready.get()
    }

    /// Calls `listener` once it is there.
    pub(crate) fn listen(&self, listener: Listener) {
        let mut progress = self.progress.lock();
        match self.ready.get() {
            Some(ready) => {
                drop(progress);
                listener(ready.image.clone());
            }
            None => progress.listeners.push(listener),
        }
    }

    pub(crate) fn state(&self) -> Option<NextState> {
        self.progress.lock().state.clone()
    }

    /// `false` if that was done before.
    fn begin(&self) -> bool {
        let mut progress = self.progress.lock();
        let first = progress.state.is_none();
        if first {
            progress.state = Some(NextState::Compiling);
        }
        first
    }

    fn end(&self, result: Result<Ready, String>) {
        let mut progress = self.progress.lock();
        match result {
            Ok(ready) => {
                let image = ready.image.clone();
                let _ = self.ready.set(ready);
                progress.state = None;
                let listeners = std::mem::take(&mut progress.listeners);
                drop(progress);
                for listener in listeners {
                    listener(image.clone());
                }
            }
            Err(reason) => {
                progress.state = Some(NextState::Failed(reason));
                progress.listeners.clear();
            }
        }
    }
}

/// The thread that compiles what takes over, one version after the other.
pub(crate) struct Ladder {
    send: Option<mpsc::Sender<Arc<Version>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ladder {
    pub(crate) fn start() -> io::Result<Self> {
        let (send, versions) = mpsc::channel::<Arc<Version>>();
        let stop = Arc::new(AtomicBool::new(false));
        let its = stop.clone();
        let thread = thread::Builder::new().name("tiers".to_owned()).spawn(move || {
            for version in versions {
                if its.load(Ordering::Relaxed) {
                    return;
                }
                climb(&version, &its);
            }
        })?;
        Ok(Self {
            send: Some(send),
            stop,
            thread: Some(thread),
        })
    }

    /// Has the next engine take over from a version's, if that is worth it by now.
    pub(crate) fn consider(&self, version: &Arc<Version>) {
        if version.is_worth_more()
            && version.better().begin()
            && let Some(send) = &self.send
        {
            // Nobody listens only when the node is ending.
            let _ = send.send(version.clone());
        }
    }
}

fn climb(version: &Arc<Version>, stop: &AtomicBool) {
    let result = version.load_better(stop);
    if stop.load(Ordering::Relaxed) {
        return;
    }
    let result = result.map_err(|error| match error {
        LoadError::Refused(error) => error.to_string(),
        LoadError::Failed(error) => error.to_string(),
    });
    match &result {
        Ok(ready) => {
            tracing::info!(function = %version.function, version = %version.number, engine = ready.engine, "this engine takes over");
        }
        Err(reason) => {
            tracing::warn!(function = %version.function, version = %version.number, reason, "no other engine takes over");
        }
    }
    version.better().end(result);
}

impl Drop for Ladder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.send = None;
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so already.
            let _ = thread.join();
        }
    }
}
