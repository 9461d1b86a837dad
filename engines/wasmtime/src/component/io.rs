//! `wasi:io`, `wasi:clocks` and `wasi:random`.
//!
//! Streams are always ready: the request's body is complete before its sandbox exists, and output goes to memory. So
//! only a pollable of a clock ever waits, and its moment is known when it is made.

use super::{
    functions,
    host::Host,
    table::{Object, Source, Target},
};
use crate::{host::Park, turn};
use bytes::Bytes;
use std::time::{Duration, Instant};
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
const PERMIT: u64 = 64 << 10;

/// Pollables that one call looks at.
const MAX_POLLABLES: usize = 1024;

/// Beyond what the host's clock can say, a wait is this long and then goes on.
const LONG: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Host {
    fn read(&mut self, from: &Resource<InputStream>, length: u64) -> Result<Result<Bytes, StreamError>> {
        let most = usize::try_from(length).unwrap_or(MAX_TRANSFER).min(MAX_TRANSFER);
        let bytes = match self.table.source(from)? {
            Source::Nothing => return Ok(Err(StreamError::Closed)),
            Source::Body if self.command.unread() == 0 => return Ok(Err(StreamError::Closed)),
            Source::Body => self.command.take(most),
        };
        Ok(Ok(bytes))
    }

    fn skip(&mut self, from: &Resource<InputStream>, length: u64) -> Result<Result<u64, StreamError>> {
        Ok(self.read(from, length)?.map(|bytes| bytes.len() as u64))
    }

    fn write(&mut self, to: &Resource<OutputStream>, bytes: Bytes) -> Result<Result<(), StreamError>> {
        match self.table.target(to)? {
            Target::Nothing => {}
            Target::Log => self.command.log(&bytes),
            Target::Output => self
                .command
                .write(&bytes)
                .map_err(|fault| Error::new(wasi::Stop::Fault(fault)))?,
            Target::Response(number) => self.write_response(number, bytes)?,
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
        let bytes = match self.read(from, length)? {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Err(error)),
        };
        let length = bytes.len() as u64;
        Ok(self.write(to, bytes)?.map(|()| length))
    }

    /// Looks at an output stream, which is always ready.
    fn check(&self, stream: &Resource<OutputStream>) -> Result<()> {
        self.table.target(stream).map(drop)
    }

    pub(crate) fn ready(&mut self) -> Result<Resource<Pollable>> {
        self.table.push(Object::Pollable(None))
    }

    fn wake(&mut self, moment: Option<Instant>) -> Result<Resource<Pollable>> {
        let moment = moment.unwrap_or_else(|| Instant::now() + LONG);
        self.table.push(Object::Pollable(Some(moment)))
    }

    /// Which of these have happened, or until when to wait.
    fn look(&self, pollables: &[Resource<Pollable>]) -> Result<Result<Vec<u32>, Instant>> {
        if !(1..=MAX_POLLABLES).contains(&pollables.len()) {
            return Err(Error::msg("it polls nothing, or too much at once"));
        }
        let now = Instant::now();
        let (mut happened, mut next) = (Vec::new(), now + LONG);
        for (index, pollable) in (0..).zip(pollables) {
            match self.table.pollable(pollable)? {
                Some(moment) if moment > now => next = next.min(moment),
                _ => happened.push(index),
            }
        }
        Ok(if happened.is_empty() {
            Err(next)
        } else {
            Ok(happened)
        })
    }
}

/// Parks the guest until one of these has happened.
async fn poll(store: StoreContextMut<'_, Host>, pollables: Vec<Resource<Pollable>>) -> Result<Vec<u32>> {
    loop {
        match store.data().look(&pollables)? {
            Ok(happened) => return Ok(happened),
            Err(moment) => {
                turn::wait_until(moment);
                Park::default().await;
            }
        }
    }
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
        // No call here fails in a way that would make one.
        "[method]error.to-debug-string" => |_host, _this: Resource<IoError>| Ok((String::new(),));
    });

    let mut polls = linker.instance("wasi:io/poll@0.2.0")?;
    polls.resource("pollable", ResourceType::host::<Pollable>(), super::forget)?;
    functions!(polls {
        "[method]pollable.ready" => |host, this: Resource<Pollable>| Ok((host.look(&[this])?.is_ok(),));
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
    for name in ["read", "blocking-read"] {
        functions!(streams {
            &format!("[method]input-stream.{name}") =>
                |host, this: Resource<InputStream>, length: u64| Ok((host.read(&this, length)?,));
        });
    }
    for name in ["skip", "blocking-skip"] {
        functions!(streams {
            &format!("[method]input-stream.{name}") =>
                |host, this: Resource<InputStream>, length: u64| Ok((host.skip(&this, length)?,));
        });
    }
    for name in ["write", "blocking-write-and-flush"] {
        functions!(streams {
            &format!("[method]output-stream.{name}") =>
                |host, this: Resource<OutputStream>, bytes: Vec<u8>| Ok((host.write(&this, bytes.into())?,));
        });
    }
    for name in ["flush", "blocking-flush"] {
        functions!(streams {
            &format!("[method]output-stream.{name}") =>
                |host, this: Resource<OutputStream>| host.check(&this).map(|()| (Ok::<(), StreamError>(()),));
        });
    }
    for name in ["write-zeroes", "blocking-write-zeroes-and-flush"] {
        functions!(streams {
            &format!("[method]output-stream.{name}") =>
                |host, this: Resource<OutputStream>, length: u64| Ok((host.zeroes(&this, length)?,));
        });
    }
    for name in ["splice", "blocking-splice"] {
        functions!(streams {
            &format!("[method]output-stream.{name}") =>
                |host, this: Resource<OutputStream>, from: Resource<InputStream>, length: u64|
                    Ok((host.splice(&this, &from, length)?,));
        });
    }
    functions!(streams {
        "[method]input-stream.subscribe" => |host, this: Resource<InputStream>| {
            host.table.source(&this)?;
            Ok((host.ready()?,))
        };
        "[method]output-stream.subscribe" => |host, this: Resource<OutputStream>| {
            host.check(&this)?;
            Ok((host.ready()?,))
        };
        "[method]output-stream.check-write" => |host, this: Resource<OutputStream>|
            host.check(&this).map(|()| (Ok::<u64, StreamError>(PERMIT),));
    });

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
