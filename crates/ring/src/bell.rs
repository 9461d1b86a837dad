//! See [`Bell`].

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{self, Errno, IoSlice, IoSliceMut, retry_on_intr},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socketpair,
    },
};
use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// One end's doorbell: a socket, on which a byte rings at the other end. It tells, too, that the other end has gone, and carries the
/// memory in which the channel lies.
///
/// How a call waits is said in each call and never in the open file: that belongs to one end alone, but a guest may do with its own what it likes.
/// What a guest writes there is read and forgotten; what it does not read is lost to it alone.
#[derive(Debug)]
pub struct Bell<T = OwnedFd>(T);

/// What was heard of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing since the last time.
    Nothing,
    /// It has rung.
    Rung,
    /// Nobody has it any more.
    Gone,
}

/// The doorbells of a channel, the host's and the guest's.
///
/// # Errors
/// The kernel's: no descriptor is left, or no memory.
pub fn bells() -> io::Result<(Bell, Bell)> {
    let (host, guest) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok((Bell(host), Bell(guest)))
}

impl<T: AsFd> Bell<T> {
    /// Of what was a doorbell's, here or in another process.
    pub fn new(socket: T) -> Self {
        Self(socket)
    }

    /// What it is.
    pub fn get_ref(&self) -> &T {
        &self.0
    }

    /// What it was.
    pub fn into_inner(self) -> T {
        self.0
    }

    /// Wakes the other end, be it from its next wait. Never waits. Whether anybody has the other end, [`Bell::heard`] tells.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ring(&self) -> io::Result<()> {
        self.say(&mut SendAncillaryBuffer::default())
    }

    /// Rings, and gives a file. Never waits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let files = [file];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
        self.say(&mut ancillary)
    }

    fn say(&self, ancillary: &mut SendAncillaryBuffer<'_, '_, '_>) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match retry_on_intr(|| sendmsg(&self.0, &[IoSlice::new(&[0])], ancillary, flags)) {
            // Where there is no room it was rung, and not heard yet.
            Ok(_) | Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What there was since the last time. Files that came with it are closed. Never waits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn heard(&self) -> io::Result<Heard> {
        let mut bytes = [0; 256];
        match retry_on_intr(|| recv(&self.0, &mut bytes[..], RecvFlags::DONTWAIT)) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Ok(Heard::Gone),
            Ok(_) => Ok(Heard::Rung),
            Err(Errno::AGAIN) => Ok(Heard::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Whether nobody has the other end any more. Hears nothing, and never waits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn is_gone(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.0, PollFlags::empty())];
        retry_on_intr(|| poll(&mut polled, Some(&Timespec::default())))?;
        Ok(polled[0].revents().contains(PollFlags::HUP))
    }

    /// Waits until the other end rings, unless it has since the last time: whether it is still there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self) -> io::Result<bool> {
        loop {
            match self.heard()? {
                Heard::Rung => return Ok(true),
                Heard::Gone => return Ok(false),
                Heard::Nothing => {
                    retry_on_intr(|| poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None))?;
                }
            }
        }
    }

    /// Waits for the file that the other end gives before it rings for the first time. `None` if it has gone.
    ///
    /// # Errors
    /// The kernel's, or the other end has rung and given none (`EBADMSG`).
    pub fn take(&self) -> io::Result<Option<OwnedFd>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received =
            retry_on_intr(|| recvmsg(&self.0, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags));
        match received {
            Err(Errno::CONNRESET) => return Ok(None),
            Ok(received) if received.bytes == 0 => return Ok(None),
            other => other?,
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut files) = message {
                return files.next().map(Some).ok_or(Errno::BADMSG);
            }
        }
        Err(Errno::BADMSG)
    }
}

impl<T: AsFd> AsFd for Bell<T> {
    /// Readable when there is something to hear.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
