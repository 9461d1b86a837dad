//! The node's end: the spawner, its zygotes, and the thread that listens to them.

mod groups;
mod listener;
mod zygote;

pub(crate) use groups::Lease;
pub(crate) use listener::Listening;
pub(crate) use zygote::{Held, Links, Ordered, Standing, Zygote};

use crate::{Counted, Options, SPAWNER, files::pair, wire, zygote::Setup};
use confine::{GroupLimits, Groups};
use fresh::Places;
use groups::Pool;
use listener::Listener;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    task::Waker,
};

/// What all images share.
pub(crate) struct Host {
    program: PathBuf,
    places: Arc<Places>,
    groups: Arc<Pool>,
    counted: Counted,
    spawner: Mutex<Option<Spawner>>,
    listener: Arc<Listener>,
    /// Zygotes that may wait for orders at once.
    most_zygotes: usize,
}

struct Spawner {
    socket: OwnedFd,
    process: Child,
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // Its socket closes, and it ends by itself; what is left is to bury it. It runs nothing of anybody's, so it does not tarry.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let _ = self.process.wait();
    }
}

impl Host {
    pub(crate) fn new(options: &Options) -> io::Result<Arc<Self>> {
        let listener = Listener::start()?;
        let groups = Groups::make_with(&options.controllers).map_err(|error| error.to_string());
        let counted = Counted::new(groups.as_ref().map_err(String::clone), options.allow_uncounted);
        match (&groups, counted.refusals()) {
            (_, Some(refusals)) => {
                tracing::warn!("of native executables and functions in Python, {refusals}")
            }
            (Err(error), None) => {
                tracing::info!(
                    error,
                    "native executables are limited by process, and not by request"
                );
            }
            (Ok(_), None) => {}
        }
        Ok(Arc::new(Self {
            program: options.program.clone(),
            places: Places::new(options.sandboxes, None, Arc::default()),
            groups: Arc::new(Pool::new(groups.ok())),
            counted,
            spawner: Mutex::default(),
            listener,
            most_zygotes: options.zygotes as usize,
        }))
    }

    pub(crate) fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Whether what all processes of a guest use together can be limited.
    pub(crate) fn has_groups(&self) -> bool {
        self.groups.are_there()
    }

    /// What this host keeps of a program's limits.
    pub(crate) fn counted(&self) -> &Counted {
        &self.counted
    }

    /// A control group for a guest, with these limits. None if there are none on this host.
    pub(crate) fn group(&self, limits: GroupLimits) -> io::Result<Option<Lease>> {
        Pool::lease(&self.groups, limits)
    }

    /// A zygote that is about to confine itself. `Err` says why there is none.
    ///
    /// An interpreter has a control group, which lasts as long as its zygote, and its guests have others, with the same limits.
    pub(crate) fn zygote(
        &self,
        setup: &Setup,
        executable: &OwnedFd,
        limits: Option<GroupLimits>,
        links: Links,
    ) -> Result<Arc<Zygote>, String> {
        let setup = serde_json::to_vec(setup).map_err(|error| error.to_string())?;
        let group = match limits {
            Some(limits) => self.group(limits).map_err(|error| error.to_string())?,
            None => None,
        };
        let (ours, theirs) = pair().map_err(|error| format!("there is no socket for a zygote: {error}"))?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(|error| error.to_string())?;
        let doors = group.iter().flat_map(Lease::doors);
        let descriptors: Vec<_> = [theirs.as_fd(), executable.as_fd()]
            .into_iter()
            .chain(doors)
            .collect();
        let mut spawner = self.spawner.lock();
        let mut sent = Err(Errno::PIPE);
        if let Some(spawner) = &*spawner {
            sent = wire::send(&spawner.socket, &[&setup], &descriptors);
        }
        if sent == Err(Errno::PIPE) || sent == Err(Errno::CONNRESET) {
            *spawner = None;
            let new = self.start().map_err(|error| {
                format!(
                    "the spawner cannot be started ({}): {error}",
                    self.program.display()
                )
            })?;
            sent = wire::send(&new.socket, &[&setup], &descriptors);
            *spawner = Some(new);
        }
        sent.map_err(|error| format!("the spawner takes no orders: {error}"))?;
        let zygote = Arc::new(Zygote::new(ours, group, self.groups.clone(), limits, links));
        self.listener
            .add(&zygote)
            .map_err(|error| format!("cannot listen to a zygote: {error}"))?;
        self.listener.retire(self.most_zygotes, &zygote);
        zygote.begin();
        Ok(zygote)
    }

    /// Has a waker woken when there is something to be read from a socket, for as long as the answer is kept.
    pub(crate) fn listen_to(&self, socket: &OwnedFd, waker: &Waker) -> io::Result<Listening> {
        self.listener.answer(socket, waker)
    }

    fn start(&self) -> io::Result<Spawner> {
        let (ours, theirs) = pair()?;
        let process = Command::new(&self.program)
            .arg(SPAWNER)
            .env_clear()
            // The kernel writes to a place of each thread's, if it is told of one, which a pure guest has no longer.
            .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Spawner {
            socket: ours,
            process,
        })
    }
}
