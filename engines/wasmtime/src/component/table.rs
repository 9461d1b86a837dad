//! What the guest's handles stand for.
//!
//! A handle's number comes from the guest, through Wasmtime, which knows whether the guest has it and of what type it is.
//! What lies under the number is looked at again here: a number that leads nowhere ends the guest and not the host. Both
//! how many objects there are and how many bytes they hold are bounded.

use super::http::{Headers, OutgoingRequest, OutgoingResponse};
use contract::{BodyError, CallError, Calling, Reply};
use std::{mem, time::Instant};
use wasmtime::{Result, component::Resource};

/// Objects of one guest at once.
const MOST_OBJECTS: usize = 4096;

/// Bytes that they may hold together.
const MOST_BYTES: usize = 1 << 20;

/// What a handle can stand for.
pub(crate) enum Object {
    Error(BodyError),
    Pollable(Event),
    Input(Source),
    Output(Target),
    Headers(Headers),
    IncomingRequest {
        consumed: bool,
    },
    IncomingBody {
        of: Source,
        taken: bool,
    },
    FutureTrailers {
        of: Source,
        taken: bool,
    },
    OutgoingRequest(OutgoingRequest),
    RequestOptions([Option<u64>; 3]),
    OutgoingResponse(OutgoingResponse),
    OutgoingBody {
        to: Target,
        taken: bool,
    },
    /// A request that was sent.
    Sent(Sent),
    IncomingResponse {
        status: u16,
        headers: Headers,
        body: usize,
        consumed: bool,
    },
    ResponseOutparam,
    Network,
}

/// What has become of a request.
pub(crate) enum Sent {
    Calling(Calling),
    /// Boxed, because few there are for long.
    Over(Box<Result<Reply, CallError>>),
    /// The guest has been told.
    Told,
}

/// What a pollable waits for.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    Moment(Instant),
    /// Something to read, or the end.
    Input(Source),
    /// Room to write.
    Output(Target),
    /// The end of a body.
    Trailers(Source),
    /// The reply to the request that is the object of this number.
    Reply(u32),
}

/// Where an input stream comes from.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    Nothing,
    /// The request's body.
    Body,
    /// The body of the reply that came as this one, counted from 0.
    Reply(usize),
}

/// Where an output stream leads.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// A command's standard output.
    Output,
    Log,
    /// The body of the response that was made as this one, counted from 0.
    Response(usize),
    /// The body of the request to somebody else that was made as this one, counted from 0.
    Request(usize),
}

/// The types of handles, each with the interface that a guest imports it from, and its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Error,
    Pollable,
    InputStream,
    OutputStream,
    Fields,
    IncomingRequest,
    IncomingBody,
    FutureTrailers,
    OutgoingRequest,
    RequestOptions,
    OutgoingResponse,
    OutgoingBody,
    FutureIncomingResponse,
    IncomingResponse,
    ResponseOutparam,
    Network,
}

const HTTP: &str = "wasi:http/types";

impl Kind {
    pub(crate) const ALL: [(Self, &str, &str); 16] = [
        (Self::Error, "wasi:io/error", "error"),
        (Self::Pollable, "wasi:io/poll", "pollable"),
        (Self::InputStream, "wasi:io/streams", "input-stream"),
        (Self::OutputStream, "wasi:io/streams", "output-stream"),
        (Self::Fields, HTTP, "fields"),
        (Self::IncomingRequest, HTTP, "incoming-request"),
        (Self::IncomingBody, HTTP, "incoming-body"),
        (Self::FutureTrailers, HTTP, "future-trailers"),
        (Self::OutgoingRequest, HTTP, "outgoing-request"),
        (Self::RequestOptions, HTTP, "request-options"),
        (Self::OutgoingResponse, HTTP, "outgoing-response"),
        (Self::OutgoingBody, HTTP, "outgoing-body"),
        (Self::FutureIncomingResponse, HTTP, "future-incoming-response"),
        (Self::IncomingResponse, HTTP, "incoming-response"),
        (Self::ResponseOutparam, HTTP, "response-outparam"),
        (Self::Network, "wasi:sockets/network", "network"),
    ];
}

impl Object {
    fn kind(&self) -> Kind {
        match self {
            Self::Error(_) => Kind::Error,
            Self::Pollable(_) => Kind::Pollable,
            Self::Input(_) => Kind::InputStream,
            Self::Output(_) => Kind::OutputStream,
            Self::Headers(_) => Kind::Fields,
            Self::IncomingRequest { .. } => Kind::IncomingRequest,
            Self::IncomingBody { .. } => Kind::IncomingBody,
            Self::FutureTrailers { .. } => Kind::FutureTrailers,
            Self::OutgoingRequest(_) => Kind::OutgoingRequest,
            Self::RequestOptions(_) => Kind::RequestOptions,
            Self::OutgoingResponse(_) => Kind::OutgoingResponse,
            Self::OutgoingBody { .. } => Kind::OutgoingBody,
            Self::Sent(_) => Kind::FutureIncomingResponse,
            Self::IncomingResponse { .. } => Kind::IncomingResponse,
            Self::ResponseOutparam => Kind::ResponseOutparam,
            Self::Network => Kind::Network,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Headers(headers) => headers.bytes(),
            Self::OutgoingRequest(request) => request.bytes(),
            Self::OutgoingResponse(response) => response.headers.bytes(),
            Self::IncomingResponse { headers, .. } => headers.bytes(),
            _ => 0,
        }
    }
}

/// All objects of one guest.
#[derive(Default)]
pub(crate) struct Table {
    objects: slab::Slab<Object>,
    bytes: usize,
    /// Objects that there ever were at once.
    most: usize,
}

fn message(text: &'static str) -> wasmtime::Error {
    wasmtime::Error::msg(text)
}

impl Table {
    /// The handles that the guest has not dropped: their types, and the numbers that the guest should know them by.
    ///
    /// Wasmtime gives the number that was freed last, from 1 on, and so does this table, from 0 on: an object's number is
    /// its handle's less one wherever handles came and went in the order of their objects. Elsewhere this is wrong, and
    /// whoever drops such a handle finds none, or one of another type.
    pub(crate) fn left(&self) -> impl Iterator<Item = (Kind, usize)> {
        self.objects
            .iter()
            .map(|(number, object)| (object.kind(), number + 1))
    }

    /// Objects that there ever were at once: no guest has had more handles.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    pub(crate) fn push<T: 'static>(&mut self, object: Object) -> Result<Resource<T>> {
        if self.objects.len() >= MOST_OBJECTS {
            return Err(message("it holds too many handles"));
        }
        self.charge(0, object.bytes())?;
        let key = self.objects.insert(object);
        self.most = self.most.max(self.objects.len());
        let number = u32::try_from(key).map_err(|_| message("it holds too many handles"))?;
        Ok(Resource::new_own(number))
    }

    /// Counts bytes that an object of so many has become.
    fn charge(&mut self, before: usize, after: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
        if self.bytes > MOST_BYTES {
            return Err(message("its header fields hold too many bytes"));
        }
        Ok(())
    }

    /// What became of a request, by its object's number.
    pub(crate) fn sent(&mut self, number: u32) -> Result<&mut Sent> {
        match self.objects.get_mut(number as usize) {
            Some(Object::Sent(sent)) => Ok(sent),
            _ => Err(mistaken()),
        }
    }

    pub(crate) fn get<T: 'static>(&self, handle: &Resource<T>) -> Result<&Object> {
        let object = self.objects.get(handle.rep() as usize);
        object.ok_or_else(|| message("a handle leads nowhere"))
    }

    /// For changes that leave the object's bytes as they are.
    pub(crate) fn get_mut<T: 'static>(&mut self, handle: &Resource<T>) -> Result<&mut Object> {
        let object = self.objects.get_mut(handle.rep() as usize);
        object.ok_or_else(|| message("a handle leads nowhere"))
    }

    /// Changes an object, and keeps the account of its bytes.
    pub(crate) fn change<T: 'static, R>(
        &mut self,
        handle: &Resource<T>,
        change: impl FnOnce(&mut Object) -> Result<R>,
    ) -> Result<R> {
        let object = self.get_mut(handle)?;
        let before = object.bytes();
        let result = change(object);
        let after = object.bytes();
        self.charge(before, after)?;
        result
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Object> {
        let object = self.objects.try_remove(number as usize)?;
        self.bytes = self.bytes.saturating_sub(object.bytes());
        Some(object)
    }

    /// The object of a handle that the guest gives away.
    pub(crate) fn take<T: 'static>(&mut self, handle: &Resource<T>) -> Result<Object> {
        let object = self.remove(handle.rep());
        object.ok_or_else(|| message("a handle leads nowhere"))
    }

    pub(crate) fn pollable(&self, handle: &Resource<super::io::Pollable>) -> Result<Event> {
        match self.get(handle)? {
            Object::Pollable(event) => Ok(*event),
            _ => Err(mistaken()),
        }
    }

    pub(crate) fn source(&self, handle: &Resource<super::io::InputStream>) -> Result<Source> {
        match self.get(handle)? {
            Object::Input(source) => Ok(*source),
            _ => Err(mistaken()),
        }
    }

    pub(crate) fn target(&self, handle: &Resource<super::io::OutputStream>) -> Result<Target> {
        match self.get(handle)? {
            Object::Output(target) => Ok(*target),
            _ => Err(mistaken()),
        }
    }
}

/// A handle whose object is of another kind than its type says.
pub(crate) fn mistaken() -> wasmtime::Error {
    message("a handle leads to something else than its type says")
}

/// Sets a mark and says whether it was set before.
pub(crate) fn mark(taken: &mut bool) -> bool {
    mem::replace(taken, true)
}
