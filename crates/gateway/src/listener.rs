//! Listening sockets: one for each core, all on one address.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType, sockopt},
};
use std::{io, net::SocketAddr};

/// One core's share of an address.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
}

/// Connections that wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

impl Listener {
    /// Binds `count` sockets to one address, among which the kernel divides connections. Port 0 asks for any free one,
    /// which all of them share.
    pub fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<Self>> {
        let mut listeners = Vec::with_capacity(count);
        let mut address = address;
        for _ in 0..count {
            let listener = Self::bind_one(address)?;
            address = listener.address;
            listeners.push(listener);
        }
        Ok(listeners)
    }

    fn bind_one(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        net::bind(&socket, &address)?;
        net::listen(&socket, BACKLOG)?;
        let address = SocketAddr::try_from(net::getsockname(&socket)?)?;
        Ok(Self { socket, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection, if one waits.
    pub(crate) fn accept(&self) -> Result<Option<(OwnedFd, Option<SocketAddr>)>, Errno> {
        match net::acceptfrom_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok((socket, address)) => {
                // It only ever fails for a connection that is gone already.
                let _ = sockopt::set_tcp_nodelay(&socket, true);
                Ok(Some((
                    socket,
                    address.and_then(|address| SocketAddr::try_from(address).ok()),
                )))
            }
            Err(Errno::AGAIN) => Ok(None),
            // The client left between its handshake and now.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
