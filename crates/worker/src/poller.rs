//! epoll, and the eventfd by which others interrupt it.

use crate::bell::Event;
use rustix::{
    buffer::spare_capacity,
    event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll},
    fd::{AsFd, OwnedFd},
    io::{self, Errno},
};
use smallvec::SmallVec;
use std::{ops::BitOrAssign, sync::Arc, time::Duration};

/// A core's epoll instance. Tokens are whatever the [`crate::Front`] chose, [`Poller::MAIL`] excepted.
pub struct Poller {
    epoll: Arc<OwnedFd>,
    events: Vec<epoll::Event>,
}

/// What a descriptor is watched for, beside its end in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Something to read.
    pub input: bool,
    /// Room to write.
    pub output: bool,
}

/// When there is an event for a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// As long as there is something to read, or room to write.
    Level,
    /// Once for what has come since the last event, or was there when the descriptor was added or modified. Whoever leaves
    /// some of it unread modifies it again. The kernel need not look once more whether an event is still true.
    Edge,
}

/// What a socket is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// There is something to read, be it the end.
    pub readable: bool,
    /// The other end sends nothing more.
    pub ended: bool,
    /// There is room to write.
    pub writable: bool,
    /// The connection is over in both directions.
    pub closed: bool,
}

impl BitOrAssign for Readiness {
    fn bitor_assign(&mut self, more: Self) {
        self.readable |= more.readable;
        self.ended |= more.ended;
        self.writable |= more.writable;
        self.closed |= more.closed;
    }
}

impl Interest {
    fn flags(self, trigger: Trigger) -> epoll::EventFlags {
        let mut flags = match trigger {
            Trigger::Level => epoll::EventFlags::empty(),
            Trigger::Edge => epoll::EventFlags::ET,
        };
        if self.input {
            flags |= epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        }
        if self.output {
            flags |= epoll::EventFlags::OUT;
        }
        flags
    }
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

    /// Watches a descriptor for input.
    pub fn add(&self, fd: impl AsFd, token: u64, trigger: Trigger) -> io::Result<()> {
        let interest = Interest {
            input: true,
            output: false,
        };
        let data = epoll::EventData::new_u64(token);
        epoll::add(&self.epoll, fd, data, interest.flags(trigger))
    }

    /// Changes what a descriptor is watched for, or asks again for what it is ready for now.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest, trigger: Trigger) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        epoll::modify(&self.epoll, fd, data, interest.flags(trigger))
    }

    /// Forgets a descriptor.
    pub fn delete(&self, fd: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.epoll, fd)
    }

    /// Waits for events, at most `timeout`; for ever without one.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> std::io::Result<()> {
        let timeout = timeout.map(timespec);
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

    /// How many events the last wait gave.
    pub(crate) fn found(&self) -> usize {
        self.events.len()
    }

    /// The events of the last wait.
    pub(crate) fn events(&self) -> SmallVec<[(u64, Readiness); 64]> {
        // Copied out, because whoever handles an event needs the poller.
        self.events
            .iter()
            .map(|event| {
                let flags = event.flags;
                let closed = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
                let readiness = Readiness {
                    readable: flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP) || closed,
                    ended: flags.contains(epoll::EventFlags::RDHUP),
                    writable: flags.contains(epoll::EventFlags::OUT),
                    closed,
                };
                (event.data.u64(), readiness)
            })
            .collect()
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// What a core is woken by.
pub(crate) struct Eventfd(pub(crate) OwnedFd);

impl Eventfd {
    pub(crate) fn new() -> io::Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Waits for it and for nothing else.
    pub(crate) fn wait(&self, timeout: Duration) -> io::Result<()> {
        let timeout = timespec(timeout);
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, time::Instant};

    const FOR_EVER: Duration = Duration::from_hours(1);

    #[test]
    fn an_event_ends_the_wait_for_it_whenever_it_comes() {
        let event = Eventfd::new().unwrap();
        event.signal();
        event.wait(FOR_EVER).unwrap();
        event.clear();
        thread::scope(|scope| {
            scope.spawn(|| event.signal());
            event.wait(FOR_EVER).unwrap();
        });
    }

    #[test]
    fn without_an_event_the_time_ends_it() {
        let event = Eventfd::new().unwrap();
        let (begin, time) = (Instant::now(), Duration::from_millis(1));
        event.wait(time).unwrap();
        // The kernel may be late, but is never early.
        assert!(begin.elapsed() >= time);
    }
}
