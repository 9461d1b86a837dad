//! What all sandboxes of an engine share: the places, and the instances between two requests.

use crate::{Options, component, host::Park, instance::Instance, turn};
use fresh::{Guards, Idle, Pages, Place, Places, Spare, Watched};
use rustix::{io::Errno, process::Signal};
use std::sync::Arc;
use wasmtime::{Store, unix::StoreExt as _};

pub(crate) struct Pool {
    sandboxes: Arc<Places>,
    /// Of instances that never run.
    pristine: Arc<Places>,
    /// Instances of modules,
    pub(crate) idle: Idle<Box<Instance>>,
    /// and of components, that are as new ones.
    pub(crate) components: Idle<Box<component::Instance>>,
    pub(crate) guards: Arc<Guards>,
    /// None where the kernel cannot tell which pages were written: then every instance is a new one.
    pub(crate) pages: Option<Pages>,
    /// Bytes of written pages that an instance may have and still be restored.
    pub(crate) keep_resident: usize,
}

impl Pool {
    pub(crate) fn new(options: &Options, threads: usize) -> Self {
        Self {
            sandboxes: Places::new(options.sandboxes, Spare::hold(), options.refusals.clone()),
            pristine: Places::new(PRISTINE, None, Arc::default()),
            guards: Arc::new(Guards::new(2 * fresh::most(threads))),
            idle: Idle::new(threads),
            components: Idle::new(threads),
            pages: Pages::open(),
            keep_resident: options.keep_resident,
        }
    }

    pub(crate) fn places(&self) -> Arc<Places> {
        self.sandboxes.clone()
    }

    /// So many places at once: one for each memory.
    pub(crate) fn take(&self, places: u32) -> Option<Place> {
        self.sandboxes.take(places)
    }

    /// The host has refused what a sandbox needs that has a place: for a while there are no more places than are taken. Waits until
    /// it may be tried again.
    pub(crate) async fn refused(&self) {
        turn::wait_until(self.sandboxes.refused());
        Park::default().await;
    }

    /// Whether that has ever happened.
    pub(crate) fn was_refused(&self) -> bool {
        self.sandboxes.was_refused()
    }

    /// A place for an instance that never runs.
    pub(crate) fn take_kept(&self) -> Option<Place> {
        self.pristine.take(1)
    }
}

/// Whether an instance could not be made because the host lacks maps or memory for it.
pub(crate) fn is_refused(error: &wasmtime::Error) -> bool {
    error.downcast_ref() == Some(&Errno::NOMEM)
        || error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.raw_os_error() == Some(Errno::NOMEM.raw_os_error()))
}

/// Components whose first state is kept at once; others are made anew for each request.
pub(crate) const PRISTINE: u32 = 256;

/// Has a store's handler of faults tell a memory of them.
pub(crate) fn watch<T>(store: &mut Store<T>, watched: Arc<Watched>) {
    // SAFETY: the handler is safe in a signal: see `Watched::surprise`. The kernel gave `fault`.
    unsafe {
        store.set_signal_handler(move |signal, fault, _| {
            signal == Signal::SEGV.as_raw() && watched.surprise((*fault).si_addr().addr())
        });
    }
}
