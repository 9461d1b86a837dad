//! One run of a command: what it was given, what it has said so far.

use crate::{
    Incoming, cgi,
    environment::{self, Strings},
    files::{self, Files},
    pure::Pure,
};
use ::pure::Set;
use bytes::Bytes;
use contract::{
    BodyError, Fault, Grant, Head, Input, Protocol, ResponseHead, ResponseSink, Services, Trailers,
};
use std::{
    sync::Arc,
    task::{Poll, Waker},
    time::{Duration, Instant},
};

/// How a host function ends its guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The guest asked to leave: hand the code to [`Command::finish`].
    #[error("the guest exited with code {0}")]
    Exit(i32),
    /// The guest did what it must not.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// What a descriptor leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Input,
    Output,
    Log,
}

/// The state of one request in one sandbox: what the host functions of this crate work on.
pub struct Command {
    grant: Arc<Grant>,
    head: Box<Head>,
    body: Incoming,
    services: Option<Arc<Services>>,
    response: Box<dyn ResponseSink>,
    output: Vec<u8>,
    /// Bytes of the response's body that were sent already.
    sent: usize,
    descriptors: [Option<Stream>; 3],
    pub(crate) arguments: Option<Strings>,
    pub(crate) environment: Option<Strings>,
    /// When the wait began that `poll_oneoff` is in the middle of.
    pub(crate) waiting_since: Option<Instant>,
    /// The reading of the thread's CPU clock that the guest sees as 0.
    pub(crate) cpu_origin: Option<Duration>,
    /// A pure function's world, once its inputs are there.
    pub(crate) pure: Option<Box<Pure>>,
}

/// Longer pieces of a log are handed over in several.
const LOG_PIECE: usize = 16 << 10;

impl Command {
    /// A command that has not begun. Costs a few moves and no allocation.
    pub fn new(grant: Arc<Grant>, input: Input) -> Self {
        Self {
            grant,
            head: input.head,
            body: Incoming::new(input.body),
            services: input.services,
            response: input.response,
            output: Vec::new(),
            sent: 0,
            descriptors: [Some(Stream::Input), Some(Stream::Output), Some(Stream::Log)],
            arguments: None,
            environment: None,
            waiting_since: None,
            cpu_origin: None,
            pure: None,
        }
    }

    /// What this command may use.
    pub fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }

    /// The request.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Adds to the request's log, as the guest's standard error does.
    pub fn log(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(LOG_PIECE) {
            self.response.log(piece);
        }
    }

    /// Adds a line of the host's own to the request's log.
    pub fn note(&mut self, line: &str) {
        self.response.note(line);
    }

    /// Ends a command whose `_start` returned (code 0) or that left by [`Stop::Exit`]: makes its output the response.
    ///
    /// The response's head and body are handed over, the body without a copy, or nothing is, and the fault says why.
    /// To be called once: the output is gone afterwards.
    pub fn finish(&mut self, code: i32) -> Result<(), Fault> {
        if code != 0 {
            return Err(Fault::Exit { code });
        }
        let output = Bytes::from(std::mem::take(&mut self.output));
        let (head, body) = match &self.grant.protocol {
            Protocol::Pure { outputs, .. } => {
                let files = self
                    .pure
                    .take()
                    .map(|mut pure| pure.files().take_outputs(outputs));
                let sets = files.unwrap_or_else(|| Ok(Vec::new()));
                return self.answer_sets(sets.map_err(|reason| Fault::BadOutput { reason })?);
            }
            Protocol::Lambda { .. } => {
                let reason = "a handler is run by an engine for its language".to_owned();
                return Err(Fault::Trap { reason });
            }
            Protocol::Raw { content_type } => (
                ResponseHead {
                    status: 200,
                    headers: vec![("content-type".into(), content_type.clone())],
                },
                output,
            ),
            Protocol::Cgi => return self.respond(output),
        };
        self.response.head(head);
        if !body.is_empty() {
            self.response.body(body);
        }
        Ok(())
    }

    /// Makes the output of a CGI program (RFC 3875, section 6) the response, or nothing. To be called once, and not with [`Command::answer`].
    pub fn respond(&mut self, output: Bytes) -> Result<(), Fault> {
        let limit = self.grant.limits.response_body;
        let (head, body) =
            cgi::parse(output, self.head.method()).map_err(|reason| Fault::BadOutput { reason })?;
        if body.len() > limit.bytes() {
            return Err(Fault::OutputTooLarge { limit });
        }
        self.response.head(head);
        if !body.is_empty() {
            self.response.body(body);
        }
        Ok(())
    }

    /// All of the standard output of a program that is not run by host functions of this crate. Fails beyond the grant's limit.
    pub fn write_whole(&mut self, output: Vec<u8>) -> Result<(), Fault> {
        if output.len() > self.output_limit() {
            return Err(Fault::OutputTooLarge {
                limit: self.grant.limits.response_body,
            });
        }
        self.output = output;
        Ok(())
    }

    /// How much it may write, with what its protocol adds.
    pub fn most_output(&self) -> usize {
        self.output_limit()
    }

    /// Makes a pure function's outputs the response.
    pub(crate) fn answer_sets(&mut self, sets: Vec<Set>) -> Result<(), Fault> {
        let Protocol::Pure { content_type, .. } = &self.grant.protocol else {
            return Ok(());
        };
        let limit = self.grant.limits.response_body;
        let (content_type, pieces) = ::pure::response(sets, content_type);
        if pieces.iter().map(Bytes::len).sum::<usize>() > limit.bytes() {
            return Err(Fault::OutputTooLarge { limit });
        }
        self.response.head(ResponseHead {
            status: 200,
            headers: vec![("content-type".into(), content_type)],
        });
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            self.response.body(piece);
        }
        Ok(())
    }

    /// Begins a response that does not come by standard output: [`Command::send`] follows, and not
    /// [`Command::finish`]. To be called once.
    pub fn answer(&mut self, head: ResponseHead) {
        self.response.head(head);
    }

    /// Adds to the body of the response that [`Command::answer`] began. Fails beyond the grant's limit.
    pub fn send(&mut self, chunk: Bytes) -> Result<(), Fault> {
        let limit = self.grant.limits.response_body;
        self.sent = self.sent.saturating_add(chunk.len());
        if self.sent > limit.bytes() {
            return Err(Fault::OutputTooLarge { limit });
        }
        if !chunk.is_empty() {
            self.response.body(chunk);
        }
        Ok(())
    }

    /// What the response that [`Command::answer`] began ends with.
    pub fn trail(&mut self, trailers: Trailers) {
        self.response.trailers(trailers);
    }

    /// How much more of the response is welcome: [`ResponseSink::poll_room`].
    pub fn poll_room(&mut self, waker: &Waker) -> Poll<Result<usize, BodyError>> {
        self.response.poll_room(waker)
    }

    /// What was sent of the response should not wait: [`ResponseSink::flush`].
    pub fn flush(&mut self) {
        self.response.flush();
    }

    /// The request's body.
    pub fn body(&mut self) -> &mut Incoming {
        &mut self.body
    }

    /// What the function was granted beyond its request.
    pub fn services(&self) -> Option<&Arc<Services>> {
        self.services.as_ref()
    }

    /// Whether the request's body is still on its way, or has yet to become a pure function's inputs: a WASI 0.1 command begins when it is
    /// here, by [`Command::poll_complete`].
    pub fn is_incomplete(&self) -> bool {
        self.body.rest.is_some()
            || self.pure.is_none() && matches!(self.grant.protocol, Protocol::Pure { .. })
    }

    /// Takes in all of the request's body. To be called until it is ready, and before anything else.
    pub fn poll_complete(&mut self, waker: &Waker) -> Poll<Result<(), Fault>> {
        while let Some(rest) = &mut self.body.rest {
            match std::task::ready!(rest.poll_next(waker)) {
                // What comes is within `request_body`: whoever feeds the stream sees to that.
                Ok(Some(piece)) => self.output.extend_from_slice(&piece),
                Ok(None) => {
                    self.body.here = std::mem::take(&mut self.output).into();
                    self.body.rest = None;
                }
                Err(error) => {
                    let reason = format!("the request's body broke off: {error}");
                    return Poll::Ready(Err(Fault::Trap { reason }));
                }
            }
        }
        if let Protocol::Pure { inputs, .. } = &self.grant.protocol {
            let body = std::mem::take(&mut self.body.here);
            let sets = ::pure::read_request(self.head.header("content-type"), body, inputs);
            let sets = sets.map_err(|error| Fault::BadInput {
                reason: error.to_string(),
            })?;
            self.pure = Some(Box::new(Pure::new(sets, self.grant.clone())));
        }
        Poll::Ready(Ok(()))
    }

    /// The environment: the manifest's variables, then the request's. What is not UTF-8 is replaced.
    pub fn variables(&mut self) -> Vec<(String, String)> {
        let pair = |text: &[u8]| {
            let text = String::from_utf8_lossy(text);
            let (name, value) = text.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        self.environment().iter().filter_map(pair).collect()
    }

    /// The function's name, then the manifest's arguments.
    pub fn words(&mut self) -> Vec<String> {
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        self.arguments().iter().map(text).collect()
    }

    /// A pure function's files, if this descriptor is one of them.
    pub(crate) fn files(&mut self, fd: u32) -> Option<&mut Files> {
        let pure = self.pure.as_mut().filter(|_| fd >= files::ROOT)?;
        Some(pure.files()).filter(|files| files.has(fd))
    }

    pub(crate) fn stream(&self, fd: u32) -> Option<Stream> {
        self.descriptors.get(fd as usize).copied().flatten()
    }

    pub(crate) fn close(&mut self, fd: u32) -> Option<Stream> {
        self.descriptors.get_mut(fd as usize).and_then(Option::take)
    }

    /// Puts a stream where another was, as `dup2` followed by `close` does. Both descriptors are open.
    pub(crate) fn replace(&mut self, fd: u32, stream: Stream) {
        if let Some(slot) = self.descriptors.get_mut(fd as usize) {
            *slot = Some(stream);
        }
    }

    /// How much of the request's body has not been read.
    pub fn unread(&self) -> usize {
        self.body.unread()
    }

    /// Takes the next bytes of the request's body, as many as there are and `into` holds.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> usize {
        self.body.read(into)
    }

    /// How much more the guest may write.
    pub(crate) fn room(&self) -> usize {
        self.output_limit().saturating_sub(self.output.len())
    }

    fn output_limit(&self) -> usize {
        let head = match self.grant.protocol {
            Protocol::Raw { .. } | Protocol::Pure { .. } | Protocol::Lambda { .. } => 0,
            Protocol::Cgi => cgi::MAX_HEAD,
        };
        self.grant.limits.response_body.bytes().saturating_add(head)
    }

    /// Adds to the standard output. Fails beyond the grant's limit.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if self.pure.is_some() {
            // Its outputs are its items.
            self.log(bytes);
            return Ok(());
        }
        if bytes.len() > self.room() {
            return Err(Fault::OutputTooLarge {
                limit: self.grant.limits.response_body,
            });
        }
        let (length, capacity) = (self.output.len(), self.output.capacity());
        if capacity - length < bytes.len() {
            // Doubling, but never past what the guest may use: a limit is on the host's memory, too.
            let wanted = capacity
                .saturating_mul(2)
                .min(self.output_limit())
                .max(length + bytes.len());
            self.output.reserve_exact(wanted - length);
        }
        self.output.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn arguments(&mut self) -> &Strings {
        self.arguments
            .get_or_insert_with(|| environment::arguments(&self.grant))
    }

    pub(crate) fn environment(&mut self) -> &Strings {
        self.environment
            .get_or_insert_with(|| environment::environment(&self.grant, &self.head, self.body.here.len()))
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("function", &self.grant.function)
            .field("request", &self.head.id)
            .field("output", &self.output.len())
            .finish_non_exhaustive()
    }
}
