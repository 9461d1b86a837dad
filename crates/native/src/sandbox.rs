//! A sandbox: one instance, its fiber and its request.

use crate::{
    guest::Guest,
    image::Shared,
    instance::InstanceError,
    layout::{self, Builtin, Trap},
    memory::{self, PAGE},
    plan::Slot,
    pool::Inside,
    wasi_host::Answer,
};
use contract::{ByteSize, Fault, Grant, Input, Sandbox, Step, Until, Usage};
use fiber::Event;
use fresh::Place;
use std::{
    mem, slice,
    sync::Arc,
    task::{self, Waker},
    time::Instant,
};
use wasi::{Command, Stop};

/// A host call of a guest that waits for its answer.
#[derive(Clone, Copy)]
struct Call {
    number: u32,
    slots: *mut Slot,
}

enum State {
    /// For the last piece of the request's body, or for a place of the host's.
    New,
    /// In the start section,
    Starting,
    /// or in `_start`.
    Running,
    /// Ended well: it can take another request.
    Idle,
    Over,
}

/// See the module.
pub(crate) struct Running {
    state: State,
    command: Option<Command>,
    guest: Option<Box<Guest>>,
    /// Whether its guest has served another request,
    used: bool,
    /// and whether this one has called the host.
    touched: bool,
    /// Made again when the sandbox runs next.
    call: Option<Call>,
    refused: bool,
    usage: Usage,
    grant: Arc<Grant>,
    image: Arc<Shared>,
    // Last: the place is free once all else is gone.
    _place: Place,
}

impl Running {
    pub(crate) fn new(image: Arc<Shared>, grant: Arc<Grant>, input: Input, place: Place) -> Self {
        Self {
            state: State::New,
            command: Some(Command::new(grant.clone(), input)),
            guest: None,
            used: false,
            touched: false,
            call: None,
            refused: false,
            usage: Usage::default(),
            grant,
            image,
            _place: place,
        }
    }

    fn limit(&self) -> ByteSize {
        self.grant.limits.memory
    }

    /// Begins, once the request's body is complete. `Some` if there is nothing to run yet, or never.
    fn begin(&mut self, waker: &Waker) -> Option<Step> {
        let command = self.command.as_mut()?;
        if command.is_incomplete() {
            match command.poll_complete(waker) {
                task::Poll::Pending => return Some(Step::Waiting { until: None }),
                task::Poll::Ready(Ok(())) => {}
                task::Poll::Ready(Err(fault)) => return Some(self.end(Err(Stop::Fault(fault)))),
            }
        }
        if self.guest.is_some() {
            return self.run_command();
        }
        let bytes = self.image.initial_memory();
        self.usage.memory = bytes;
        if bytes > self.limit().0 {
            self.refused = true;
            let reason = "its memory is larger from the beginning";
            return Some(self.end(Err(trapped(reason))));
        }
        let extended = self.extended();
        let guest = match self.image.take() {
            Some(mut guest) => match guest.extend(extended) {
                Ok(()) => Ok(guest),
                Err(error) => Err(InstanceError::Host(error)),
            },
            None => Guest::new(&self.image, extended).map(Box::new),
        };
        match guest {
            Ok(guest) => {
                self.usage.memory = guest.instance.memory.map_or(0, |memory| memory.bytes());
                self.guest = Some(guest);
            }
            Err(InstanceError::Host(_)) => {
                let until = Some(self.image.pool.places.refused());
                return Some(Step::Waiting { until });
            }
            Err(error) => return Some(self.end(Err(trapped(&error.to_string())))),
        }
        match (self.image.image.plan.start, &mut self.guest) {
            (Some(start), Some(guest)) => {
                self.usage.started = Some(Instant::now());
                guest.start(start);
                self.state = State::Starting;
                None
            }
            _ => self.run_command(),
        }
    }

    /// `Some` if it cannot be run.
    fn run_command(&mut self) -> Option<Step> {
        if let Err(fault) = self.place() {
            return Some(self.end(Err(Stop::Fault(fault))));
        }
        if let Some(guest) = &mut self.guest {
            self.usage.started = self.usage.started.or_else(|| Some(Instant::now()));
            guest.start(self.image.start);
            self.state = State::Running;
        }
        None
    }

    /// The guest's memory.
    ///
    /// # Safety
    /// The guest does not run as long as this is used.
    unsafe fn memory<'a>(guest: &Guest) -> &'a mut [u8] {
        guest.instance.memory.map_or(&mut [][..], |memory| {
            let bytes = usize::try_from(memory.bytes()).unwrap_or(0);
            // SAFETY: the guest's memory, which nobody else has a reference to while it does not run.
            unsafe { slice::from_raw_parts_mut(memory.base.as_ptr(), bytes) }
        })
    }

    /// Bytes of memory that a pure function has whose sets lie there.
    fn extended(&self) -> Option<u64> {
        let (command, kind) = (self.command.as_ref()?, self.image.image.plan.memory?);
        let is_pure = self.image.structure.is_some() && command.is_pure();
        is_pure.then(|| command.extended(memory::most(kind)))
    }

    /// Gives a pure function its sets, if it has them in its memory.
    fn place(&mut self) -> Result<(), Fault> {
        let (Some(at), Some(guest), Some(command)) = (self.image.structure, &self.guest, &self.command)
        else {
            return Ok(());
        };
        if !command.is_pure() {
            return Ok(());
        }
        // SAFETY: its code has not begun.
        command.place(unsafe { Self::memory(guest) }, at, self.image.initial_memory())
    }

    /// What the guest has come to.
    fn end(&mut self, result: Result<(), Stop>) -> Step {
        let command = self.command.take();
        let structure = self.image.structure.zip(self.guest.as_deref());
        let finish = |code| {
            let Some(mut command) = command else { return Ok(()) };
            match structure {
                // SAFETY: its code has ended.
                Some((at, guest)) if command.is_pure() => command.collect(unsafe { Self::memory(guest) }, at),
                _ => command.finish(code),
            }
        };
        let result = match result {
            Ok(()) | Err(Stop::Exit(0)) => finish(0),
            Err(Stop::Exit(code)) => finish(code),
            Err(Stop::Fault(fault)) => Err(fault),
        };
        match result {
            Ok(()) => {
                self.state = State::Idle;
                Step::Done(self.usage)
            }
            Err(fault) => {
                self.state = State::Over;
                Step::Fault(self.after_refusal(fault), self.usage)
            }
        }
    }

    /// A guest that was refused memory and then failed is out of memory.
    fn after_refusal(&self, fault: Fault) -> Fault {
        let limit = self.limit();
        match fault {
            Fault::Trap { reason } if self.refused => Fault::OutOfMemory { limit, reason },
            Fault::Exit { code } if self.refused => Fault::OutOfMemory {
                limit,
                reason: format!("it exited with code {code}"),
            },
            other => other,
        }
    }

    /// Answers a host call. `Some` if the guest does not go on.
    fn answer(&mut self, call: Call) -> Option<Step> {
        let (Some(guest), Some(command)) = (&mut self.guest, &mut self.command) else {
            return Some(self.end(Ok(())));
        };
        if let Some(builtin) = Builtin::from_number(call.number) {
            if builtin == Builtin::MemoryGrow && !self.may_grow(call) {
                return None;
            }
            // SAFETY: compiled code passes the slots that its builtin has, which lie on the guest's stack.
            let done = unsafe { self.guest.as_mut()?.instance.builtin(builtin, call.slots) };
            let bytes = self
                .guest
                .as_ref()?
                .instance
                .memory
                .map_or(0, |memory| memory.bytes());
            self.usage.memory = self.usage.memory.max(bytes);
            return done.err().map(|trap| self.end(Err(trapped(trap.message()))));
        }
        let Some((function, slots)) = self.image.functions.get(call.number as usize) else {
            return Some(self.end(Err(trapped("it called what it does not import"))));
        };
        // SAFETY: as above; the guest, whose memory it is, does not run.
        let (slots, memory) = unsafe {
            let memory = Self::memory(guest);
            (slice::from_raw_parts_mut(call.slots, *slots), memory)
        };
        self.touched = true;
        match function(command, memory, slots) {
            Answer::Given => None,
            Answer::Wait(until) => {
                self.call = Some(call);
                Some(Step::Waiting { until: Some(until) })
            }
            Answer::Stop(stop) => Some(self.end(Err(stop))),
        }
    }

    /// Whether memory may grow as this call says; answers the call if not.
    fn may_grow(&mut self, call: Call) -> bool {
        let Some(memory) = self.guest.as_ref().and_then(|guest| guest.instance.memory) else {
            return true;
        };
        // SAFETY: as in `answer`: the call has one slot.
        let pages = unsafe { call.slots.cast::<u32>().read() };
        let wanted = memory.bytes() + u64::from(pages) * PAGE;
        if wanted <= self.limit().0 {
            return true;
        }
        // Beyond its own declared maximum it is the module that refuses.
        self.refused |= wanted <= memory.most();
        // SAFETY: as above.
        unsafe { call.slots.cast::<u32>().write(u32::MAX) };
        false
    }

    /// `None` if it goes on.
    fn fault(&mut self, fault: &fiber::Fault) -> Option<Step> {
        if fault.stack_overflow {
            return Some(self.end(Err(Stop::Fault(Fault::StackOverflow))));
        }
        let trap = fault.trap.and_then(|number| Trap::ALL.get(usize::from(number)));
        if trap == Some(&Trap::Unreachable) && self.begin_anew() {
            return None;
        }
        let reason = match trap {
            Some(trap) => trap.message().to_owned(),
            None if fault.signal == libc::SIGSEGV => Trap::MemoryOutOfBounds.message().to_owned(),
            None => format!("signal {} at {:#x}", fault.signal, fault.instruction),
        };
        Some(self.end(Err(trapped(&reason))))
    }

    /// Newer libcs trap at a second `_start` in one memory, before anything else: then nobody has seen the attempt, and the request
    /// gets a guest that is as new. `false` if this is nothing of the kind.
    fn begin_anew(&mut self) -> bool {
        if !self.used || self.touched {
            return false;
        }
        self.image.refuse_reuse();
        self.used = false;
        self.give_back();
        self.state = State::New;
        true
    }

    /// Its guest, for another sandbox.
    fn give_back(&mut self) {
        if let Some(guest) = self.guest.take() {
            self.image.put(guest);
        }
    }

    /// Runs the guest until it ends, waits, has to give way, or has to begin anew (`None`).
    fn go_on(&mut self, inside: &Inside, until: Until<'_>) -> Option<Step> {
        let rescued = self.guest.as_ref().and_then(|guest| guest.rescued());
        if let Some(step) = self.call.take().and_then(|call| self.answer(call)) {
            return Some(step);
        }
        loop {
            let (State::Starting | State::Running, Some(guest)) = (&self.state, &mut self.guest) else {
                return Some(self.end(Err(trapped("it was run after its end"))));
            };
            // SAFETY: the code is that of this engine's compiler, loaded by this engine's loader; this thread has been entered; a
            // sandbox stays on its thread.
            match unsafe { guest.fiber.resume() } {
                Some(Event::Returned) if matches!(self.state, State::Starting) => {
                    if let Some(step) = self.run_command() {
                        return Some(step);
                    }
                }
                Some(Event::Returned) | None => return Some(self.end(Ok(()))),
                Some(Event::Preempted) => {}
                Some(Event::Call { number, slots, .. }) => {
                    let call = Call {
                        number,
                        slots: slots.cast(),
                    };
                    if let Some(step) = self.answer(call) {
                        return Some(step);
                    }
                }
                Some(Event::Fault(fault)) => {
                    // What is watched may be given back with the guest.
                    drop(rescued);
                    return self.fault(&fault);
                }
            }
            if inside.is_asked() && until.is_over() {
                return Some(Step::Preempted);
            }
        }
    }
}

fn trapped(reason: &str) -> Stop {
    Stop::Fault(Fault::Trap {
        reason: reason.to_owned(),
    })
}

impl Sandbox for Running {
    fn run(&mut self, waker: &Waker, until: Until<'_>) -> Step {
        let inside = match Inside::enter() {
            Ok(inside) => inside,
            Err(error) => {
                let reason = format!("the host has no alternate stack for its thread: {error}");
                return self.end(Err(trapped(&reason)));
            }
        };
        loop {
            if let State::New = self.state
                && let Some(step) = self.begin(waker)
            {
                return step;
            }
            if let Some(step) = self.go_on(&inside, until) {
                return step;
            }
        }
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    fn renew(&mut self, grant: &Arc<Grant>, input: Input) -> Result<(), Input> {
        if self.image.refuses_reuse() {
            return Err(input);
        }
        match mem::replace(&mut self.state, State::New) {
            State::Idle => {
                self.command = Some(Command::new(grant.clone(), input));
                self.usage.started = None;
                self.refused = false;
                self.used = true;
                self.touched = false;
                Ok(())
            }
            other => {
                self.state = other;
                Err(input)
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.give_back();
    }
}

const _: () = assert!(layout::SLOT == 16);
