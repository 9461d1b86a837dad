//! The connections of the reference servers: one thread, epoll, httparse. All ready connections are read and their
//! requests handled before anything is written, as the node does it.

use anyhow::{Context, Result};
use rustix::{
    event::{Timespec, epoll},
    io::Errno,
    net,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, OwnedFd},
};

/// Which connection. Of no effect once that connection is closed, though its place be taken by another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    index: usize,
    generation: u32,
}

/// What happened.
pub(crate) trait Handler {
    /// A request has come, with its body. Its answer is appended to `output` now, or sent later with
    /// [`Connections::respond`] when this returns false; until then no further request of this connection is read.
    fn request(&mut self, connection: ConnectionId, body: &[u8], output: &mut Vec<u8>) -> bool;

    /// Whether there is something to do that no descriptor tells of: a turn waits for nothing then.
    fn is_busy(&self) -> bool {
        false
    }
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    waits_for_answer: bool,
    wants_writable: bool,
}

/// All connections of a server.
pub(crate) struct Connections {
    epoll: OwnedFd,
    listener: TcpListener,
    places: Vec<(u32, Option<Connection>)>,
    free: Vec<usize>,
    dirty: Vec<usize>,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
}

const LISTENER: u64 = u64::MAX;
/// Events above this are not of connections but of the caller.
const FOREIGN: u64 = 1 << 32;
const LARGEST_REQUEST: usize = 64 << 20;

enum Next {
    /// No complete request is there.
    Incomplete,
    /// One of this length, whose body begins at this offset.
    Request { body: usize, length: usize },
    /// No HTTP.
    Broken,
}

fn next(bytes: &[u8]) -> Next {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let body = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Next::Incomplete,
        Err(_) => return Next::Broken,
    };
    let mut length = body;
    for header in request.headers.iter() {
        if header.name.len() == 14 && header.name.eq_ignore_ascii_case("content-length") {
            match std::str::from_utf8(header.value)
                .ok()
                .and_then(|text| text.parse::<usize>().ok())
            {
                Some(count) if count <= LARGEST_REQUEST => length += count,
                _ => return Next::Broken,
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Next::Broken;
        }
    }
    if bytes.len() < length {
        Next::Incomplete
    } else {
        Next::Request { body, length }
    }
}

impl Connections {
    /// Listens.
    pub(crate) fn listen(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address)
            .with_context(|| format!("cannot listen on {address}; is it taken?"))?;
        Self::of(listener)
    }

    /// Listens beside others that do so: the kernel gives each its part of the connections.
    pub(crate) fn listen_beside(address: SocketAddr) -> Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => net::AddressFamily::INET,
            SocketAddr::V6(_) => net::AddressFamily::INET6,
        };
        let socket = net::socket_with(family, net::SocketType::STREAM, net::SocketFlags::CLOEXEC, None)?;
        net::sockopt::set_socket_reuseaddr(&socket, true)?;
        net::sockopt::set_socket_reuseport(&socket, true)?;
        net::bind(&socket, &address).with_context(|| format!("cannot listen on {address}; is it taken?"))?;
        Self::of(socket.into())
    }

    fn of(listener: TcpListener) -> Result<Self> {
        // A thousand clients come at once; the standard library's backlog is 128.
        net::listen(&listener, 4096)?;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &listener,
            epoll::EventData::new_u64(LISTENER),
            epoll::EventFlags::IN,
        )?;
        Ok(Self {
            epoll,
            listener,
            places: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            events: Vec::with_capacity(1024),
            buffer: vec![0; 256 * 1024],
        })
    }

    /// Where it listens: with port 0, which port it got.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Watches a descriptor of the caller's, whose events [`Connections::turn`] returns as `key`.
    pub(crate) fn watch(&self, fd: impl AsFd, key: u32, flags: epoll::EventFlags) -> Result<()> {
        let data = epoll::EventData::new_u64(FOREIGN + u64::from(key));
        Ok(epoll::add(&self.epoll, fd, data, flags)?)
    }

    /// Waits for something to happen, unless its handler is busy, and handles it. `foreign` is filled with the keys of the caller's descriptors
    /// that are ready.
    pub(crate) fn turn(&mut self, handler: &mut impl Handler, foreign: &mut Vec<u32>) -> Result<()> {
        let mut ready = std::mem::take(&mut self.events);
        ready.clear();
        foreign.clear();
        let at_once = handler.is_busy().then(Timespec::default);
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut ready),
            at_once.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &ready {
            let data = event.data.u64();
            if data == LISTENER {
                self.accept()?;
            } else if data >= FOREIGN {
                foreign.push(u32::try_from(data - FOREIGN)?);
            } else {
                let index = usize::try_from(data)?;
                let flags = event.flags;
                if flags.intersects(epoll::EventFlags::OUT) {
                    self.dirty.push(index);
                }
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                    self.read(index, handler);
                }
            }
        }
        self.events = ready;
        self.flush();
        Ok(())
    }

    /// Sends an answer that came later.
    pub(crate) fn respond(&mut self, id: ConnectionId, answer: &[&[u8]], handler: &mut impl Handler) {
        let Some((generation, Some(connection))) = self.places.get_mut(id.index) else {
            return;
        };
        if *generation != id.generation {
            return;
        }
        answer
            .iter()
            .for_each(|part| connection.output.extend_from_slice(part));
        connection.waits_for_answer = false;
        self.dirty.push(id.index);
        let input = std::mem::take(&mut connection.input);
        self.handle(id.index, &input, handler);
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("cannot accept a connection"),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or_else(|| {
                self.places.push((0, None));
                self.places.len() - 1
            });
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?;
            self.places[index].1 = Some(Connection {
                stream,
                input: Vec::new(),
                output: Vec::new(),
                written: 0,
                waits_for_answer: false,
                wants_writable: false,
            });
        }
    }

    fn close(&mut self, index: usize) {
        let (generation, connection) = &mut self.places[index];
        if connection.take().is_some() {
            *generation = generation.wrapping_add(1);
            self.free.push(index);
        }
    }

    fn read(&mut self, index: usize, handler: &mut impl Handler) {
        let Some(connection) = &mut self.places[index].1 else {
            return;
        };
        match connection.stream.read(&mut self.buffer) {
            Ok(0) => self.close(index),
            Ok(count) if connection.input.is_empty() && !connection.waits_for_answer => {
                let buffer = std::mem::take(&mut self.buffer);
                self.handle(index, &buffer[..count], handler);
                self.buffer = buffer;
            }
            Ok(count) => {
                connection.input.extend_from_slice(&self.buffer[..count]);
                if !connection.waits_for_answer {
                    let input = std::mem::take(&mut connection.input);
                    self.handle(index, &input, handler);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.close(index),
        }
    }

    /// Handles the requests in `bytes` and keeps what is left of them.
    fn handle(&mut self, index: usize, mut bytes: &[u8], handler: &mut impl Handler) {
        let (generation, place) = &mut self.places[index];
        let id = ConnectionId {
            index,
            generation: *generation,
        };
        let Some(connection) = place else { return };
        while !bytes.is_empty() && !connection.waits_for_answer {
            match next(bytes) {
                Next::Incomplete => break,
                Next::Request { body, length } => {
                    let answered = handler.request(id, &bytes[body..length], &mut connection.output);
                    connection.waits_for_answer = !answered;
                    bytes = &bytes[length..];
                }
                Next::Broken => return self.close(index),
            }
        }
        connection.input.extend_from_slice(bytes);
        self.dirty.push(index);
    }

    /// Writes what is to be written.
    pub(crate) fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            if self.write(index).is_err() {
                self.close(index);
            }
        }
        self.dirty = dirty;
    }

    fn write(&mut self, index: usize) -> std::io::Result<()> {
        let Some(connection) = &mut self.places[index].1 else {
            return Ok(());
        };
        while connection.written < connection.output.len() {
            match connection.stream.write(&connection.output[connection.written..]) {
                Ok(count) => connection.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let wants_writable = connection.written < connection.output.len();
        if !wants_writable {
            connection.output.clear();
            connection.written = 0;
        }
        if wants_writable != connection.wants_writable {
            connection.wants_writable = wants_writable;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, wants_writable);
            epoll::modify(
                &self.epoll,
                &connection.stream,
                epoll::EventData::new_u64(index as u64),
                flags,
            )?;
        }
        Ok(())
    }
}
