//! SIGINT and SIGTERM for verbs that have something to put in order before they end.

use crate::failure::Failure;
use std::{
    process,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
        mpsc,
    },
    thread,
};
use tokio::signal::unix::{SignalKind, signal};

/// Whether to stop, as all threads of a verb see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicU8>);

impl Stop {
    /// The exit code of the signal that came, if one did.
    pub(crate) fn signal(&self) -> Option<u8> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            code => Some(code),
        }
    }

    /// Notes a signal by its exit code.
    pub(crate) fn set(&self, code: u8) {
        self.0.store(code, Ordering::Release);
    }

    /// Fails once a signal came.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.signal()
            .map_or(Ok(()), |code| Err(Failure::Interrupted(code)))
    }
}

/// Notes the first SIGINT or SIGTERM and sends `word`; the second ends the process as an unhandled one would.
pub(crate) fn listen<T: Send + 'static>(ring: mpsc::Sender<T>, word: T) -> Result<Stop, Failure> {
    let failed = |error: std::io::Error| Failure::local(format!("cannot handle signals: {error}"), "");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(failed)?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::interrupt()).map_err(failed)?,
            signal(SignalKind::terminate()).map_err(failed)?,
        )
    };
    let stop = Stop::default();
    let noted = stop.clone();
    thread::spawn(move || {
        runtime.block_on(async {
            let mut next = async || {
                tokio::select! {
                    _ = interrupt.recv() => 130,
                    _ = terminate.recv() => 143,
                }
            };
            noted.set(next().await);
            // Whoever waited may have ended by itself meanwhile.
            let _ = ring.send(word);
            process::exit(next().await.into());
        });
    });
    Ok(stop)
}

/// Has SIGHUP end nothing but be told in the log: what was started from a terminal outlives it. For a node that has no
/// certificate which it would read again.
pub(crate) fn ignore_hangups() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::local(format!("cannot handle SIGHUP: {error}"), "");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(failed)?;
    let mut hangup = {
        let _inside = runtime.enter();
        signal(SignalKind::hangup()).map_err(failed)?
    };
    thread::spawn(move || {
        runtime.block_on(async {
            while hangup.recv().await.is_some() {
                tracing::info!(
                    "SIGHUP changes nothing: there is no certificate to read again; restart the node for a new configuration"
                );
            }
        });
    });
    Ok(())
}
