//! The node's side: it starts the backend, and starts it again.

use crate::{
    client,
    control::{self, Attach, Open},
    line::Lines,
};
use contract::{Attachment, Call, CallError, Caller, Calling, Grant, Service, Session};
use ring::bells;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    env,
    ffi::OsString,
    io,
    os::fd::{AsFd as _, OwnedFd},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::runtime::Handle;

/// Where the C library finds what its parts are told, unless the operator has told them something else.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// What the operator said there, where this process has begun anew since, with more.
pub const TUNABLES_SAID: &str = "MILLPOND_TUNABLES_SAID";

/// What its allocator is told. Of itself it gives memory back with nearly each buffer of a reply, and each page comes anew at the next, by a
/// fault of its own.
const MALLOC: &str = "glibc.malloc.mmap_threshold=4194304:glibc.malloc.trim_threshold=16777216";

/// One that has lived for less is not started again at once.
const YOUNG: Duration = Duration::from_secs(1);

/// The first wait before a young one is started again, which doubles each time,
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A backend that is kept running. Dropping it ends the process.
pub struct Backend {
    shared: Arc<Shared>,
    /// Closed to stop.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) struct Shared {
    /// Where links are asked for. What waits there survives the process at the other end, whose descriptor the node keeps, too.
    pub(crate) control: OwnedFd,
    /// Whether anybody has ever wanted it, and by whose end it is told.
    is_wanted: AtomicBool,
    wanted: OwnedFd,
    starts: AtomicU64,
    process: AtomicU64,
}

impl Backend {
    /// Has this program, called with these arguments, serve ([`crate::serve`]) with its standard input for the control socket, as soon as a function is
    /// granted something of it, or [`Backend::want`] says so.
    ///
    /// # Errors
    /// The kernel's. A program that does not start is tried again, and the log says why.
    pub fn start(program: OsString, arguments: Vec<OsString>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (control, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let (stop, stopped) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let (wanted, want) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let shared = Arc::new(Shared {
            control,
            is_wanted: AtomicBool::new(false),
            wanted,
            starts: AtomicU64::new(0),
            process: AtomicU64::new(0),
        });
        let its = shared.clone();
        let thread = thread::Builder::new().name("backend".into()).spawn(move || {
            let start = || -> io::Result<Child> {
                let mut command = Command::new(&program);
                let said = env::var_os(TUNABLES_SAID).or_else(|| env::var_os(TUNABLES));
                let said = said.filter(|said| !said.is_empty());
                command
                    .env(TUNABLES, said.unwrap_or_else(|| MALLOC.into()))
                    .args(&arguments)
                    .stdin(Stdio::from(theirs.try_clone()?))
                    .stdout(Stdio::null())
                    .spawn()
            };
            if is_wanted(&want, &stopped) {
                its.supervise(start, &stopped);
            }
        })?;
        Ok(Self {
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// It is to run from now on.
    pub fn want(&self) {
        self.shared.want();
    }

    /// How often it was started.
    pub fn starts(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || shared.starts.load(Ordering::Relaxed)
    }

    /// Its process, 0 while there is none.
    pub fn process(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || shared.process.load(Ordering::Relaxed)
    }

    /// A service of the backend's, for those to whom something of it is granted. Calls that are made here wait on this runtime.
    pub fn service(&self, name: &'static str, is_granted: fn(&Grant) -> bool, runtime: Handle) -> Proxy {
        Proxy {
            runtime,
            name,
            is_granted,
            shared: self.shared.clone(),
        }
    }

    /// A service of the backend's that the node alone asks, for those to whom something of it is granted: on this runtime, so many calls at once, those of
    /// which the reply is still being read included.
    ///
    /// # Errors
    /// The kernel's.
    pub fn lines(
        &self,
        name: &'static str,
        is_granted: fn(&Grant) -> bool,
        runtime: Handle,
        calls: usize,
    ) -> io::Result<Lines> {
        Lines::new(name, is_granted, runtime, calls, self.shared.clone())
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there is a bug that its own message tells.
            let _ = thread.join();
        }
    }
}

impl Shared {
    pub(crate) fn want(&self) {
        if !self.is_wanted.swap(true, Ordering::Relaxed) {
            // Who listens hears its end close.
            let _ = shutdown(&self.wanted, Shutdown::Both);
        }
    }

    fn supervise(&self, start: impl Fn() -> io::Result<Child>, stopped: &OwnedFd) {
        let mut wait = FIRST_WAIT;
        loop {
            let began = Instant::now();
            match start() {
                Ok(mut child) => {
                    self.starts.fetch_add(1, Ordering::Relaxed);
                    self.process.store(child.id().into(), Ordering::Relaxed);
                    tracing::info!(process = child.id(), "the backend starts");
                    let is_over = wait_for(&child, stopped);
                    if is_over {
                        let _ = child.kill();
                    }
                    let ended = child.wait();
                    self.process.store(0, Ordering::Relaxed);
                    if is_over {
                        return;
                    }
                    let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                    tracing::warn!(how, "the backend has ended; it is started again");
                }
                Err(error) => tracing::error!(%error, "the backend cannot be started; it is tried again"),
            }
            if began.elapsed() >= YOUNG {
                wait = FIRST_WAIT;
                continue;
            }
            let time = Timespec::try_from(wait).unwrap_or_default();
            if poll(&mut [PollFd::new(stopped, PollFlags::IN)], Some(&time)) != Ok(0) {
                return;
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}

/// Until the process has ended, or is to end: whether it is.
fn wait_for(child: &Child, stopped: &OwnedFd) -> bool {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(Ok(process)) = process.map(|process| pidfd_open(process, PidfdFlags::empty())) else {
        return true;
    };
    is_stopped(&process, stopped)
}

/// Until somebody wants it, or nobody will: whether it is wanted.
fn is_wanted(want: &OwnedFd, stopped: &OwnedFd) -> bool {
    !is_stopped(want, stopped)
}

/// Until one of the two is ready: whether it is the second.
fn is_stopped(other: &OwnedFd, stopped: &OwnedFd) -> bool {
    loop {
        let mut files = [
            PollFd::new(other, PollFlags::IN),
            PollFd::new(stopped, PollFlags::IN),
        ];
        match poll(&mut files, None) {
            Ok(_) => return !files[1].revents().is_empty(),
            Err(Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

/// A service that is the backend's.
pub struct Proxy {
    name: &'static str,
    is_granted: fn(&Grant) -> bool,
    runtime: Handle,
    shared: Arc<Shared>,
}

impl Service for Proxy {
    fn name(&self) -> &'static str {
        self.name
    }

    fn bind(&self, grant: &Grant) -> Option<Arc<dyn Session>> {
        (self.is_granted)(grant).then(|| {
            self.shared.want();
            Arc::new(ProxySession {
                service: self.name,
                grant: grant.clone(),
                runtime: self.runtime.clone(),
                shared: self.shared.clone(),
            }) as Arc<dyn Session>
        })
    }
}

#[derive(Clone)]
struct ProxySession {
    service: &'static str,
    grant: Grant,
    runtime: Handle,
    shared: Arc<Shared>,
}

impl Session for ProxySession {
    fn call(&self, call: Call) -> Calling {
        let (session, caller) = (self.clone(), call.caller.clone());
        let attach = Arc::new(move || session.attach(&caller));
        egress::call(&self.runtime, client::make(attach, call))
    }

    fn attach(&self, caller: &Caller) -> Result<Attachment, CallError> {
        let attach = Open::Link(Attach::new(self.service, &self.grant, caller));
        let made = bells().and_then(|(host, guest)| {
            control::send(&self.shared.control, &attach, host.as_fd())?;
            Ok(guest)
        });
        match made {
            Ok(bell) => Ok(Attachment {
                bell: bell.into_inner(),
                lasts: caller.traceparent.is_none(),
            }),
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => Err(CallError::Busy),
            Err(error) => Err(CallError::Broken(format!("no link to the backend: {error}"))),
        }
    }
}
