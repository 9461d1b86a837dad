//! epoll, and the eventfd by which others interrupt it.

use crate::bell::Event;
use rustix::{
    buffer::spare_capacity,
    event::{EventfdFlags, Timespec, epoll, eventfd},
    fd::{AsFd, OwnedFd},
    io::{self, Errno},
};
use std::{sync::Arc, time::Duration};

/// A core's epoll instance. Tokens are whatever the [`crate::Front`] chose, [`Poller::MAIL`] excepted.
pub struct Poller {
    epoll: Arc<OwnedFd>,
    events: Vec<epoll::Event>,
}

/// What a socket is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// There is something to read, be it the end.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The connection is over in both directions.
    pub closed: bool,
}

impl Poller {
    /// The token of the core's own eventfd.
    pub(crate) const MAIL: u64 = u64::MAX;

    pub(crate) fn new(event: &Eventfd, batch: usize) -> io::Result<Self> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        epoll::add(
            &epoll,
            &event.0,
            epoll::EventData::new_u64(Self::MAIL),
            epoll::EventFlags::IN,
        )?;
        Ok(Self {
            epoll,
            events: Vec::with_capacity(batch.max(1)),
        })
    }

    /// Watches a descriptor for input, level-triggered, and for output if asked.
    pub fn add(&self, fd: impl AsFd, token: u64, output: bool) -> io::Result<()> {
        epoll::add(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(token),
            Self::flags(true, output),
        )
    }

    /// Changes what a descriptor is watched for.
    pub fn modify(&self, fd: impl AsFd, token: u64, input: bool, output: bool) -> io::Result<()> {
        epoll::modify(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(token),
            Self::flags(input, output),
        )
    }

    /// Forgets a descriptor.
    pub fn delete(&self, fd: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.epoll, fd)
    }

    fn flags(input: bool, output: bool) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        if input {
            flags |= epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        }
        if output {
            flags |= epoll::EventFlags::OUT;
        }
        flags
    }

    /// Waits for events, at most `timeout`; for ever without one.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> std::io::Result<()> {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: t.subsec_nanos().into(),
        });
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Becomes readable when there is an event.
    pub(crate) fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.epoll
    }

    /// Whether there may be more events than the last wait gave.
    pub(crate) fn is_full(&self) -> bool {
        self.events.len() == self.events.capacity()
    }

    /// The events of the last wait.
    pub(crate) fn events(&self) -> impl Iterator<Item = (u64, Readiness)> + use<> {
        // Copied out, because whoever handles an event needs the poller.
        let events: smallvec::SmallVec<[_; 64]> = self
            .events
            .iter()
            .map(|event| {
                let flags = event.flags;
                let closed = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
                let readiness = Readiness {
                    readable: flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP) || closed,
                    writable: flags.contains(epoll::EventFlags::OUT),
                    closed,
                };
                (event.data.u64(), readiness)
            })
            .collect();
        events.into_iter()
    }
}

/// What a core is woken by.
pub(crate) struct Eventfd(pub(crate) OwnedFd);

impl Eventfd {
    pub(crate) fn new() -> io::Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }
}

impl Event for Eventfd {
    fn signal(&self) {
        // A full counter would mean that it is signalled already.
        let _ = io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn clear(&self) {
        let _ = io::read(&self.0, &mut [0u8; 8]);
    }
}
