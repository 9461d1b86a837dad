//! What a store holds, and the bindings of crate `wasi`.

use crate::turn;
use contract::ByteSize;
use std::{future::Future, pin::Pin, task};
use wasi::{Command, Errno, Poll, Stop};
use wasmtime::{Caller, Engine, Extern, Linker, Memory, ResourceLimiter};

/// A store's data: the command of the request that it serves, and the account of its memory.
#[derive(Default)]
pub(crate) struct Host {
    command: Option<Command>,
    memory: Option<Memory>,
    limit: ByteSize,
    refused: bool,
    touched: bool,
}

impl Host {
    /// Begins a request, in a new instance or in one that has served others.
    pub(crate) fn begin(&mut self, command: Command) {
        self.limit = command.grant().limits.memory;
        self.command = Some(command);
        self.refused = false;
        self.touched = false;
    }

    /// Ends it: nothing of it is left here.
    pub(crate) fn end(&mut self) {
        self.command = None;
    }

    /// Ends it, which has not begun to be served.
    pub(crate) fn take(&mut self) -> Option<Command> {
        self.command.take()
    }

    pub(crate) fn command(&mut self) -> Option<&mut Command> {
        self.command.as_mut()
    }

    pub(crate) fn set_memory(&mut self, memory: Memory) {
        self.memory = Some(memory);
    }

    /// The limit, if the guest has asked for more.
    pub(crate) fn refused(&self) -> Option<ByteSize> {
        self.refused.then_some(self.limit)
    }

    /// Whether the guest has called the host since the request began.
    pub(crate) fn touched(&self) -> bool {
        self.touched
    }
}

impl ResourceLimiter for Host {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let within = u64::try_from(desired).is_ok_and(|desired| desired <= self.limit.0);
        if within {
            turn::memory(desired as u64);
        } else if maximum.is_none_or(|maximum| desired <= maximum) {
            // Beyond its own declared maximum it is the module that refuses.
            self.refused = true;
        }
        Ok(within)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        _desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // The pool's size of a table holds.
        Ok(true)
    }
}

/// The guest's memory and its command, for one host call.
fn enter<'a>(caller: &'a mut Caller<'_, Host>) -> wasmtime::Result<(&'a mut [u8], &'a mut Command)> {
    let memory = match caller.data().memory {
        Some(memory) => memory,
        // A start section runs before the handle is noted.
        None => caller
            .get_export("memory")
            .and_then(Extern::into_memory)
            .ok_or_else(|| wasmtime::Error::msg("the module exports no memory"))?,
    };
    let (bytes, host) = memory.data_and_store_mut(caller);
    host.touched = true;
    let command = host.command.as_mut();
    Ok((
        bytes,
        command.ok_or_else(|| wasmtime::Error::msg("the guest runs without a request"))?,
    ))
}

fn errno(result: Result<Errno, Stop>) -> wasmtime::Result<u32> {
    match result {
        Ok(errno) => Ok(u32::from(errno.0)),
        Err(stop) => Err(wasmtime::Error::new(stop)),
    }
}

/// Pending once; then the guest's call is made again.
#[derive(Default)]
pub(crate) struct Park {
    parked: bool,
}

impl Future for Park {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut task::Context<'_>) -> task::Poll<()> {
        if self.parked {
            return task::Poll::Ready(());
        }
        self.parked = true;
        task::Poll::Pending
    }
}

macro_rules! bind {
    (
        answers { $($answers:ident($($a:ident: $at:ty),*);)* }
        waits { $($waits:ident($($w:ident: $wt:ty),*);)* }
        ends { $($ends:ident($($e:ident: $et:ty),*);)* }
    ) => {
        /// WASI 0.1 for every module of this engine.
        pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<Host>> {
            let mut linker = Linker::new(engine);
            $(linker.func_wrap(
                wasi::MODULE,
                stringify!($answers),
                |mut caller: Caller<'_, Host>, $($a: $at),*| -> wasmtime::Result<u32> {
                    let (memory, command) = enter(&mut caller)?;
                    errno(wasi::$answers(command, memory, $($a),*))
                },
            )?;)*
            $(linker.func_wrap_async(
                wasi::MODULE,
                stringify!($waits),
                |mut caller: Caller<'_, Host>, ($($w,)*): ($($wt,)*)| {
                    Box::new(async move {
                        loop {
                            let (memory, command) = enter(&mut caller)?;
                            match wasi::$waits(command, memory, $($w),*) {
                                Ok(Poll::Until(moment)) => {
                                    turn::wait_until(moment);
                                    Park::default().await;
                                }
                                Ok(Poll::Ready(answer)) => return errno(Ok(answer)),
                                Err(stop) => return errno(Err(stop)),
                            }
                        }
                    })
                },
            )?;)*
            $(linker.func_wrap(
                wasi::MODULE,
                stringify!($ends),
                |mut caller: Caller<'_, Host>, $($e: $et),*| -> wasmtime::Result<()> {
                    let (memory, command) = enter(&mut caller)?;
                    Err(wasmtime::Error::new(wasi::$ends(command, memory, $($e),*)))
                },
            )?;)*
            Ok(linker)
        }
    };
}
wasi::for_each_function!(bind);
