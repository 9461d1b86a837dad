//! `wasi:io`, `wasi:clocks` and `wasi:random`.
//!
//! The request's body may still be on its way, and a response that is streamed may have no room: then a blocking call parks the
//! sandbox, and the others say that nothing is ready. Everything else is always ready: other output goes to memory.

use super::{
    functions,
    host::Host,
    table::{Event, Object, Source, Target, mistaken},
};
use crate::turn;
use bytes::Bytes;
use contract::BodyError;
use std::{
    future::poll_fn,
    task::{Poll, Waker},
    time::{Duration, Instant},
};
use wasmtime::{
    Error, Result, StoreContextMut,
    component::{ComponentType, Lift, Linker, Lower, Resource, ResourceType},
};

/// Marks of resource types.
pub(crate) struct IoError;
pub(crate) struct Pollable;
pub(crate) struct InputStream;
pub(crate) struct OutputStream;

#[derive(ComponentType, Lift, Lower)]
#[component(variant)]
pub(crate) enum StreamError {
    #[component(name = "last-operation-failed")]
    Failed(Resource<IoError>),
    #[component(name = "closed")]
    Closed,
}

#[derive(ComponentType, Lift, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

/// What one call moves at most: a guest can only be preempted between calls.
pub(crate) const MAX_TRANSFER: usize = 1 << 20;

/// What one call writes; more is offered when that was taken.
const PERMIT: usize = 64 << 10;

/// Pollables that one call looks at.
const MAX_POLLABLES: usize = 1024;

/// Beyond what the host's clock can say, a wait is this long and then goes on.
const LONG: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Host {
    /// Whether something can be read, or never will be.
    fn poll_input(&mut self, from: Source, waker: &Waker) -> Poll<Result<usize, BodyError>> {
        match self.incoming(from) {
            None => Poll::Ready(Ok(0)),
            Some(body) => body.poll_unread(waker),
        }
    }

    /// How much may be written.
    fn poll_output(&mut self, to: Target, waker: &Waker) -> Poll<Result<usize, BodyError>> {
        match to {
            Target::Response(number) if self.is_answer(number) => match self.command() {
                Ok(command) => command.poll_room(waker),
                Err(_) => Poll::Ready(Err(BodyError::Gone)),
            },
            Target::Request(number) => match self.exchanges.upload(number) {
                Some(upload) => upload.poll_room(waker),
                None => Poll::Ready(Err(BodyError::Gone)),
            },
            _ => Poll::Ready(Ok(PERMIT)),
        }
    }

    fn read(&mut self, from: &Resource<InputStream>, length: u64) -> Result<Result<Bytes, StreamError>> {
        let most = usize::try_from(length).unwrap_or(MAX_TRANSFER).min(MAX_TRANSFER);
        let source = self.table.source(from)?;
        Ok(match self.poll_input(source, Waker::noop()) {
            Poll::Pending => Ok(Bytes::new()),
            Poll::Ready(Ok(0)) => Err(StreamError::Closed),
            Poll::Ready(Ok(_)) => Ok(self
                .incoming(source)
                .map_or_else(Bytes::new, |body| body.take(most))),
            Poll::Ready(Err(error)) => Err(StreamError::Failed(self.table.push(Object::Error(error))?)),
        })
    }

    fn write(&mut self, to: &Resource<OutputStream>, bytes: Bytes) -> Result<Result<(), StreamError>> {
        match self.table.target(to)? {
            Target::Log => self.command()?.log(&bytes),
            Target::Output => self
                .command()?
                .write(&bytes)
                .map_err(|fault| Error::new(wasi::Stop::Fault(fault)))?,
            Target::Response(number) => self.write_response(number, bytes)?,
            Target::Request(number) => match self.exchanges.upload(number) {
                Some(upload) => upload.send(bytes),
                None => return Ok(Err(StreamError::Closed)),
            },
        }
        Ok(Ok(()))
    }

    fn zeroes(&mut self, to: &Resource<OutputStream>, length: u64) -> Result<Result<(), StreamError>> {
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= MAX_TRANSFER);
        let length = length.ok_or_else(|| Error::msg("it writes too many zeroes at once"))?;
        self.write(to, Bytes::from(vec![0; length]))
    }

    fn splice(
        &mut self,
        to: &Resource<OutputStream>,
        from: &Resource<InputStream>,
        length: u64,
    ) -> Result<Result<u64, StreamError>> {
        let room = match self.permit(to)? {
            Ok(room) => room,
            Err(error) => return Ok(Err(error)),
        };
        let bytes = match self.read(from, length.min(room))? {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Err(error)),
        };
        let length = bytes.len() as u64;
        Ok(self.write(to, bytes)?.map(|()| length))
    }

    /// How much may be written at once: nothing if there is no room.
    fn permit(&mut self, to: &Resource<OutputStream>) -> Result<Result<u64, StreamError>> {
        let target = self.table.target(to)?;
        Ok(match self.poll_output(target, Waker::noop()) {
            Poll::Pending => Ok(0),
            Poll::Ready(Ok(room)) => Ok(room.min(PERMIT) as u64),
            Poll::Ready(Err(_)) => Err(StreamError::Closed),
        })
    }

    /// What was written should not wait for what will be.
    fn flush(&mut self, stream: &Resource<OutputStream>) -> Result<Result<(), StreamError>> {
        if let Target::Response(number) = self.table.target(stream)? {
            self.flush_response(number)?;
            self.command()?.flush();
        }
        Ok(Ok(()))
    }

    pub(crate) fn pollable(&mut self, event: Event) -> Result<Resource<Pollable>> {
        self.table.push(Object::Pollable(event))
    }

    fn wake(&mut self, moment: Option<Instant>) -> Result<Resource<Pollable>> {
        self.pollable(Event::Moment(moment.unwrap_or_else(|| Instant::now() + LONG)))
    }

    /// Which of these have happened, or until when to wait; `waker` is woken if one happens earlier.
    fn look(
        &mut self,
        pollables: &[Resource<Pollable>],
        waker: &Waker,
    ) -> Result<Result<Vec<u32>, Option<Instant>>> {
        if !(1..=MAX_POLLABLES).contains(&pollables.len()) {
            return Err(Error::msg("it polls nothing, or too much at once"));
        }
        let now = Instant::now();
        let (mut happened, mut next) = (Vec::new(), None::<Instant>);
        for (index, pollable) in (0..).zip(pollables) {
            let is_ready = match self.table.pollable(pollable)? {
                Event::Moment(moment) if moment > now => {
                    next = Some(next.map_or(moment, |next| next.min(moment)));
                    false
                }
                Event::Moment(_) => true,
                Event::Input(source) => self.poll_input(source, waker).is_ready(),
                Event::Output(target) => self.poll_output(target, waker).is_ready(),
                Event::Trailers(source) => self.poll_body_end(source, waker).is_ready(),
                Event::Reply(number) => self.poll_reply(number, waker)?.is_ready(),
            };
            if is_ready {
                happened.push(index);
            }
        }
        Ok(if happened.is_empty() {
            Err(next)
        } else {
            Ok(happened)
        })
    }
}

type Store<'a> = StoreContextMut<'a, Host>;

/// Parks the guest until one of these has happened.
async fn poll(mut store: Store<'_>, pollables: Vec<Resource<Pollable>>) -> Result<Vec<u32>> {
    if let Ok(happened) = store.data_mut().look(&pollables, Waker::noop())? {
        return Ok(happened);
    }
    store.data_mut().flush_answer()?;
    poll_fn(
        |context| match store.data_mut().look(&pollables, context.waker()) {
            Ok(Ok(happened)) => Poll::Ready(Ok(happened)),
            Ok(Err(moment)) => {
                if let Some(moment) = moment {
                    turn::wait_until(moment);
                }
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        },
    )
    .await
}

/// Parks the guest until there is something to read.
async fn readable(store: &mut Store<'_>, from: &Resource<InputStream>) -> Result<()> {
    let source = store.data().table.source(from)?;
    if store.data_mut().poll_input(source, Waker::noop()).is_pending() {
        store.data_mut().flush_answer()?;
        // An error is the reading call's to tell.
        let _ = poll_fn(|context| store.data_mut().poll_input(source, context.waker())).await;
    }
    Ok(())
}

/// Parks the guest until there is room to write. Fails once nobody reads.
async fn writable(store: &mut Store<'_>, to: &Resource<OutputStream>) -> Result<Result<(), StreamError>> {
    let target = store.data().table.target(to)?;
    let room = poll_fn(|context| store.data_mut().poll_output(target, context.waker())).await;
    Ok(room.map(drop).map_err(|_| StreamError::Closed))
}

fn random(length: u64) -> Result<Vec<u8>> {
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= MAX_TRANSFER);
    let length = length.ok_or_else(|| Error::msg("it asks for too many random bytes at once"))?;
    let mut bytes = vec![0; length];
    wasi::fill_random(&mut bytes);
    Ok(bytes)
}

fn random_number() -> u64 {
    let mut bytes = [0; 8];
    wasi::fill_random(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Since the guests' monotonic clock was at 0, in nanoseconds.
fn monotonic() -> u64 {
    u64::try_from(wasi::origin().elapsed().as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn link(linker: &mut Linker<Host>) -> Result<()> {
    let mut error = linker.instance("wasi:io/error@0.2.0")?;
    error.resource("error", ResourceType::host::<IoError>(), super::forget)?;
    functions!(error {
        "[method]error.to-debug-string" => |host, this: Resource<IoError>| match host.table.get(&this)? {
            Object::Error(error) => Ok((error.to_string(),)),
            _ => Err(mistaken()),
        };
    });

    let mut polls = linker.instance("wasi:io/poll@0.2.0")?;
    polls.resource("pollable", ResourceType::host::<Pollable>(), super::forget)?;
    functions!(polls {
        "[method]pollable.ready" => |host, this: Resource<Pollable>| Ok((host.look(&[this], Waker::noop())?.is_ok(),));
    });
    polls.func_wrap_async(
        "[method]pollable.block",
        |store, (this,): (Resource<Pollable>,)| {
            Box::new(async move { poll(store, vec![this]).await.map(drop) })
        },
    )?;
    polls.func_wrap_async("poll", |store, (pollables,): (Vec<Resource<Pollable>>,)| {
        Box::new(async move { poll(store, pollables).await.map(|happened| (happened,)) })
    })?;

    let mut streams = linker.instance("wasi:io/streams@0.2.0")?;
    streams.resource("input-stream", ResourceType::host::<InputStream>(), super::forget)?;
    streams.resource(
        "output-stream",
        ResourceType::host::<OutputStream>(),
        super::forget,
    )?;
    functions!(streams {
        "[method]input-stream.read" => |host, this: Resource<InputStream>, length: u64|
            Ok((host.read(&this, length)?,));
        "[method]input-stream.skip" => |host, this: Resource<InputStream>, length: u64|
            Ok((host.read(&this, length)?.map(|bytes| bytes.len() as u64),));
        "[method]input-stream.subscribe" => |host, this: Resource<InputStream>| {
            let source = host.table.source(&this)?;
            Ok((host.pollable(Event::Input(source))?,))
        };
        "[method]output-stream.check-write" => |host, this: Resource<OutputStream>| Ok((host.permit(&this)?,));
        "[method]output-stream.write" => |host, this: Resource<OutputStream>, bytes: Vec<u8>|
            Ok((host.write(&this, bytes.into())?,));
        "[method]output-stream.write-zeroes" => |host, this: Resource<OutputStream>, length: u64|
            Ok((host.zeroes(&this, length)?,));
        "[method]output-stream.flush" => |host, this: Resource<OutputStream>| Ok((host.flush(&this)?,));
        "[method]output-stream.splice" =>
            |host, this: Resource<OutputStream>, from: Resource<InputStream>, length: u64|
                Ok((host.splice(&this, &from, length)?,));
        "[method]output-stream.subscribe" => |host, this: Resource<OutputStream>| {
            let target = host.table.target(&this)?;
            Ok((host.pollable(Event::Output(target))?,))
        };
    });
    streams.func_wrap_async(
        "[method]input-stream.blocking-read",
        |mut store, (this, length): (Resource<InputStream>, u64)| {
            Box::new(async move {
                readable(&mut store, &this).await?;
                Ok((store.data_mut().read(&this, length)?,))
            })
        },
    )?;
    streams.func_wrap_async(
        "[method]input-stream.blocking-skip",
        |mut store, (this, length): (Resource<InputStream>, u64)| {
            Box::new(async move {
                readable(&mut store, &this).await?;
                let skipped = store.data_mut().read(&this, length)?;
                Ok((skipped.map(|bytes| bytes.len() as u64),))
            })
        },
    )?;
    // What was written goes out when there is more of it, when the guest waits, or at its end: a flush behind every piece, as
    // guests' libraries like to write, must not make a stream of a short answer.
    streams.func_wrap_async(
        "[method]output-stream.blocking-write-and-flush",
        |mut store, (this, bytes): (Resource<OutputStream>, Vec<u8>)| {
            Box::new(async move {
                Ok((match writable(&mut store, &this).await? {
                    Ok(()) => store.data_mut().write(&this, bytes.into())?,
                    Err(error) => Err(error),
                },))
            })
        },
    )?;
    streams.func_wrap_async(
        "[method]output-stream.blocking-write-zeroes-and-flush",
        |mut store, (this, length): (Resource<OutputStream>, u64)| {
            Box::new(async move {
                Ok((match writable(&mut store, &this).await? {
                    Ok(()) => store.data_mut().zeroes(&this, length)?,
                    Err(error) => Err(error),
                },))
            })
        },
    )?;
    streams.func_wrap_async(
        "[method]output-stream.blocking-flush",
        |mut store, (this,): (Resource<OutputStream>,)| {
            Box::new(async move {
                let flushed = store.data_mut().flush(&this)?;
                Ok((match writable(&mut store, &this).await? {
                    Ok(()) => flushed,
                    Err(error) => Err(error),
                },))
            })
        },
    )?;
    streams.func_wrap_async(
        "[method]output-stream.blocking-splice",
        |mut store, (this, from, length): (Resource<OutputStream>, Resource<InputStream>, u64)| {
            Box::new(async move {
                readable(&mut store, &from).await?;
                Ok((match writable(&mut store, &this).await? {
                    Ok(()) => store.data_mut().splice(&this, &from, length)?,
                    Err(error) => Err(error),
                },))
            })
        },
    )?;

    let mut clock = linker.instance("wasi:clocks/monotonic-clock@0.2.0")?;
    functions!(clock {
        "now" => |_host| Ok((monotonic(),));
        "resolution" => |_host| Ok((1_u64,));
        "subscribe-instant" => |host, when: u64|
            Ok((host.wake(wasi::origin().checked_add(Duration::from_nanos(when)))?,));
        "subscribe-duration" => |host, after: u64|
            Ok((host.wake(Instant::now().checked_add(Duration::from_nanos(after)))?,));
    });

    let mut clock = linker.instance("wasi:clocks/wall-clock@0.2.0")?;
    functions!(clock {
        "now" => |_host| {
            let now = wasi::realtime();
            Ok((Datetime { seconds: now.as_secs(), nanoseconds: now.subsec_nanos() },))
        };
        "resolution" => |_host| Ok((Datetime { seconds: 0, nanoseconds: 1 },));
    });

    functions!(linker.instance("wasi:random/random@0.2.0")? {
        "get-random-bytes" => |_host, length: u64| Ok((random(length)?,));
        "get-random-u64" => |_host| Ok((random_number(),));
    });
    functions!(linker.instance("wasi:random/insecure@0.2.0")? {
        "get-insecure-random-bytes" => |_host, length: u64| Ok((random(length)?,));
        "get-insecure-random-u64" => |_host| Ok((random_number(),));
    });
    functions!(linker.instance("wasi:random/insecure-seed@0.2.0")? {
        "insecure-seed" => |_host| Ok(((random_number(), random_number()),));
    });
    Ok(())
}
