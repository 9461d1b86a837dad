//! Files in memory and sockets between the node and a guest, and how a sandbox fails that has none.

use contract::Fault;
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::{Result, pwrite},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
};
use std::{fmt, os::fd::OwnedFd};

/// Bytes of log that are kept of one request.
pub(crate) const LOG: u64 = 16 << 20;

/// Two ends of a socket for packets.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// An empty file.
pub(crate) fn stream() -> Result<OwnedFd> {
    memfd_create("millpond-stream", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
}

/// A file with these bytes, which nobody can change.
pub(crate) fn fixed(mut bytes: &[u8]) -> Result<OwnedFd> {
    let file = stream()?;
    let mut at = 0;
    while !bytes.is_empty() {
        let written = pwrite(&file, bytes, at)?;
        at += written as u64;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    let fixed = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, fixed)?;
    Ok(file)
}

pub(crate) fn trap(reason: &str) -> Fault {
    Fault::Trap {
        reason: reason.to_owned(),
    }
}

pub(crate) fn no_memory(error: impl fmt::Display) -> Fault {
    trap(&format!("the host has no memory for it: {error}"))
}
