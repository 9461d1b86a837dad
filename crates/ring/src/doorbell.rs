//! The doorbells of a channel.
//!
//! ```text
//! host ──writes──▶ eventfd ──is watched by──▶ epoll ◀──waits── guest
//! host ──polls───▶ eventfd ◀─────────────────writes─────────── guest
//! ```
//!
//! Whether a write to an eventfd waits when its counter is full is a flag of the open file, which whoever has a descriptor of it can change
//! (`F_SETFL`), and fill the counter besides. So a guest does not get the one that the host writes to. It gets an epoll that watches it,
//! which tells of each ringing once, and nobody needs to read it. The one that the guest writes to the host only reads, in a way that never
//! waits whatever the flag is.

use rustix::{
    event::{
        EventfdFlags,
        epoll::{self, CreateFlags, EventData, EventFlags},
        eventfd,
    },
    io::{self, Errno, IoSliceMut, ReadWriteFlags, preadv2, write},
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// For one channel.
///
/// # Errors
/// The kernel's: no descriptor is left, or no memory.
pub fn doorbells() -> io::Result<(HostBells, GuestBells)> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let (rings, own) = (eventfd(0, flags)?, eventfd(0, flags)?);
    let waits = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &waits,
        &rings,
        EventData::new_u64(0),
        EventFlags::IN | EventFlags::ET,
    )?;
    let guest = GuestBells {
        rings: own
            .try_clone()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))?,
        waits,
    };
    Ok((HostBells { rings, own }, guest))
}

/// The host's. Its own can be polled: it is readable when it was rung.
#[derive(Debug)]
pub struct HostBells {
    rings: OwnedFd,
    own: OwnedFd,
}

impl HostBells {
    /// Wakes the guest, be it from its next wait. Never waits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ring(&self) -> io::Result<()> {
        ring(&self.rings)
    }

    /// Forgets all ringing so far: whether there was any. Never waits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(&self) -> io::Result<bool> {
        let mut counter = [0; 8];
        // An offset of -1 is the file's own, which an eventfd has none of.
        match preadv2(
            &self.own,
            &mut [IoSliceMut::new(&mut counter)],
            u64::MAX,
            ReadWriteFlags::NOWAIT,
        ) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for HostBells {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }
}

/// The guest's. The host passes both descriptors on, and need not keep them.
#[derive(Debug)]
pub struct GuestBells {
    rings: OwnedFd,
    waits: OwnedFd,
}

impl GuestBells {
    /// Of what [`GuestBells::files`] were where they come from.
    pub fn from_files([rings, waits]: [OwnedFd; 2]) -> Self {
        Self { rings, waits }
    }

    /// An eventfd, to which a number is written to ring, and an epoll, to wait at.
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.rings.as_fd(), self.waits.as_fd()]
    }

    /// Wakes the host.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ring(&self) -> io::Result<()> {
        ring(&self.rings)
    }

    /// Until the host rings, unless it has since the last wait.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self) -> io::Result<()> {
        let mut events = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }];
        loop {
            match epoll::wait(&self.waits, &mut events, None) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn ring(file: &OwnedFd) -> io::Result<()> {
    match write(file, &1_u64.to_ne_bytes()) {
        // A full counter was rung.
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error),
    }
}
