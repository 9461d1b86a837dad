//! What a node, its spawner and its zygotes say to each other: packets on a socket, some with descriptors.
//!
//! All of them are ours; guests have none of these sockets. Numbers are little-endian.

use rustix::{
    io::{Errno, Result, retry_on_intr},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};
use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Bytes of the largest packet: what a request has of arguments and environment.
pub(crate) const LARGEST: usize = 192 << 10;

/// Descriptors of one packet, at most: what a guest is given, and the doors of its group.
const DESCRIPTORS: usize = 10;

/// A guest's number at its zygote, while it lives.
pub(crate) type Id = u32;

/// What a node asks of a zygote.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order<'a> {
    /// To fork a pure guest. A region comes with it.
    Pure(Id),
    /// To fork a guest that runs the program. Its three standard streams come with it, and the doors of its control group.
    Program(Id, Words<'a>),
    /// To have an interpreter forked for a guest, which waits in its control group for a request: the group's doors come with it.
    Wait(Id),
    /// To give a request to a guest that waits, or is about to: these words, and all descriptors that come with them.
    Call(Id, &'a [u8]),
    /// To end a guest.
    End(Id),
    /// What an interpreter has asked for comes: this word is for it, with a descriptor if there is one.
    Link(&'a [u8]),
}

/// Arguments and environment: each string ends with a zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words<'a> {
    /// How many of them are arguments.
    pub(crate) arguments: u32,
    /// All of them.
    pub(crate) text: &'a [u8],
}

impl<'a> Order<'a> {
    /// As bytes, after which the words come if there are any.
    pub(crate) fn head(&self) -> [u8; 9] {
        let (kind, id, arguments) = match self {
            Self::Pure(id) => (0, *id, 0),
            Self::Program(id, words) => (1, *id, words.arguments),
            Self::End(id) => (2, *id, 0),
            Self::Call(id, _) => (3, *id, 0),
            Self::Link(_) => (4, 0, 0),
            Self::Wait(id) => (5, *id, 0),
        };
        let mut bytes = [kind; 9];
        bytes[1..5].copy_from_slice(&id.to_le_bytes());
        bytes[5..].copy_from_slice(&arguments.to_le_bytes());
        bytes
    }

    /// From a packet.
    pub(crate) fn read(packet: &'a [u8]) -> Option<Self> {
        let (head, text) = packet.split_first_chunk::<9>()?;
        let (id, arguments) = (number(&head[1..5])?, number(&head[5..])?);
        match head[0] {
            0 => Some(Self::Pure(id)),
            1 => Some(Self::Program(id, Words { arguments, text })),
            2 => Some(Self::End(id)),
            3 => Some(Self::Call(id, text)),
            4 => Some(Self::Link(text)),
            5 => Some(Self::Wait(id)),
            _ => None,
        }
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// What a zygote tells its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It is confined, and forks; or its interpreter, which has imported the function's module, does.
    Ready(Imported),
    /// A guest has begun, as a process of this number.
    Begun(Id, i32),
    /// A guest could not be forked, with this error of the kernel's.
    Failed(Id, i32),
    /// A guest has ended. Nothing of it is left.
    Ended(Id, End),
    /// There are no more guests to be had here.
    Refused(Id),
    /// Its interpreter wants a link to a service of this name, while it imports the function's module. Zeros follow the name.
    Wanted([u8; NAME]),
}

/// What an interpreter is after its import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Imported {
    /// Threads that were started: if there are any, it is not forked, and serves one request by itself.
    pub(crate) threads: u32,
    /// Bytes of memory that it has.
    pub(crate) memory: u64,
}

/// Bytes of a service's name, at most.
pub(crate) const NAME: usize = 16;

/// How a guest ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// As `wait` gives it.
    pub(crate) status: i32,
    /// Whether a program's stack was too large.
    pub(crate) overflowed: bool,
    /// Time that it had on processors, in microseconds.
    pub(crate) processor: u64,
    /// The most memory that it had at a time, in bytes.
    pub(crate) memory: u64,
}

impl News {
    /// As bytes.
    pub(crate) fn packet(self) -> [u8; 26] {
        let (kind, id, number, end) = match self {
            Self::Ready(Imported { threads, memory }) => {
                let end = End {
                    memory,
                    ..End::default()
                };
                (0, threads, 0, end)
            }
            Self::Begun(id, process) => (1, id, process, End::default()),
            Self::Failed(id, error) => (2, id, error, End::default()),
            Self::Ended(id, end) => (3, id, end.status, end),
            Self::Refused(id) => (4, id, 0, End::default()),
            Self::Wanted(_) => (5, 0, 0, End::default()),
        };
        let mut bytes = [kind; 26];
        bytes[1..5].copy_from_slice(&id.to_le_bytes());
        bytes[5..9].copy_from_slice(&number.to_le_bytes());
        bytes[9..17].copy_from_slice(&end.processor.to_le_bytes());
        bytes[17..25].copy_from_slice(&end.memory.to_le_bytes());
        bytes[25] = end.overflowed.into();
        if let Self::Wanted(name) = self {
            bytes[9..25].copy_from_slice(&name);
        }
        bytes
    }

    /// From a packet.
    pub(crate) fn read(packet: &[u8]) -> Option<Self> {
        let bytes: &[u8; 26] = packet.try_into().ok()?;
        let (id, value) = (number(&bytes[1..5])?, number(&bytes[5..9])?.cast_signed());
        let long = |from: usize| Some(u64::from_le_bytes(bytes.get(from..from + 8)?.try_into().ok()?));
        match bytes[0] {
            0 => Some(Self::Ready(Imported {
                threads: id,
                memory: long(17)?,
            })),
            1 => Some(Self::Begun(id, value)),
            2 => Some(Self::Failed(id, value)),
            3 => Some(Self::Ended(
                id,
                End {
                    status: value,
                    overflowed: bytes[25] != 0,
                    processor: long(9)?,
                    memory: long(17)?,
                },
            )),
            4 => Some(Self::Refused(id)),
            5 => Some(Self::Wanted(bytes[9..25].try_into().ok()?)),
            _ => None,
        }
    }
}

/// Sends a packet of several parts, with descriptors. It waits only if the socket does.
pub(crate) fn send(socket: impl AsFd, parts: &[&[u8]], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    retry_on_intr(|| sendmsg(&socket, &parts, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Takes the next packet into `buffer`: its length, 0 if the other side has gone, and its descriptors.
pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let received = recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}

/// The process that sent the next packet, as the kernel knows it, or `None` if the other side has gone. The socket is one that asks for that
/// (`SO_PASSCRED`).
pub(crate) fn receive_with_sender(socket: impl AsFd) -> Result<Option<i32>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0; 8];
    let mut parts = [IoSliceMut::new(&mut word)];
    let received = match recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Err(Errno::CONNRESET) => return Ok(None),
        other => other?,
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid.as_raw_nonzero().get()),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn orders_and_news_arrive_as_they_were_sent() {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let words = Words {
            arguments: 1,
            text: b"a\0B=c\0",
        };
        for order in [
            Order::Pure(7),
            Order::Program(u32::MAX, words),
            Order::Wait(3),
            Order::Call(3, b"{}"),
            Order::End(0),
            Order::Link(b"c"),
        ] {
            let text = match &order {
                Order::Program(_, words) => words.text,
                Order::Call(_, text) | Order::Link(text) => text,
                _ => &[],
            };
            send(&one, &[&order.head(), text], &[one.as_fd()]).unwrap();
            let mut buffer = [0; 64];
            let (length, descriptors) = receive(&other, &mut buffer).unwrap();
            assert_eq!(Order::read(&buffer[..length]), Some(order));
            assert_eq!(descriptors.len(), 1);
        }
        let end = End {
            status: -1,
            overflowed: true,
            processor: u64::MAX,
            memory: 3,
        };
        for news in [
            News::Ready(Imported {
                threads: 3,
                memory: 1 << 40,
            }),
            News::Begun(1, 2),
            News::Failed(3, 4),
            News::Ended(5, end),
            News::Refused(6),
            News::Wanted(*b"s3\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        ] {
            assert_eq!(News::read(&news.packet()), Some(news));
        }
        drop(one);
        assert_eq!(receive(&other, &mut [0; 1]).unwrap().0, 0);
    }

    #[test]
    fn what_is_no_packet_is_none() {
        for length in [0, 8, 25, 27] {
            assert_eq!(News::read(&vec![0; length]), None, "{length}");
        }
        assert_eq!(Order::read(&[9; 9]), None);
        assert_eq!(Order::read(&[0; 8]), None);
    }
}
