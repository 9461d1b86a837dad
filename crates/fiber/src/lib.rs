//! Guests on stacks of their own, which a signal can take from the core at any instruction.
//!
//! A [`Fiber`] runs native code that knows nothing of it. It comes back to its host in one of four ways, each an [`Event`]: the code
//! has returned; it calls the host ([`enter_host`]); it did what a processor refuses; or [`preempt`] was called for its thread. After a call
//! and a preemption it goes on where it was. Only guest code ever lies on a fiber's stack: the host answers a call on its own
//! stack and then resumes the fiber. So to end a fiber is to forget it: nothing on its stack has to be dropped.
//!
//! # Why a guest can be interrupted anywhere
//!
//! *Preempting.* The signal's handler runs on the thread's alternate stack. The kernel has put the interrupted state there, all of
//! it: general registers, flags, vectors, the signal mask. If the stack pointer lies in the stack of the fiber that this thread is
//! running, the handler copies that state to the fiber, and the thread goes on in [`Fiber::resume`], as if the guest had called it: on
//! x86-64 the handler jumps there itself, since the kernel has cleaned flags and vectors for it; elsewhere it changes what is on the
//! alternate stack and returns. To resume is to give the copy back to the kernel by `rt_sigreturn`, which is what
//! the handler's own return would have done. Nothing of the guest is restored by hand, so nothing can be forgotten.
//!
//! *Never in host code.* Whatever runs while the stack pointer is in the fiber's stack is the guest, or one of the two switches
//! below, up to the instruction that changes the stack pointer. They keep all they know in registers, in the fiber's stack and
//! in [`Control`], whose field `host` is written before the guest's stack is entered and read in the very instruction that
//! leaves it; so a switch that is interrupted there goes on later, and goes back to whoever resumed it last. Code on the host's stack
//! is never diverted: a preemption that comes then is lost, and whoever wants it asks again (the worker's ticker does).
//!
//! *Library code.* A guest that copies memory runs the C library's `memcpy` on its own stack. It may be interrupted too: these
//! functions have no state but registers.
//!
//! *Threads.* A fiber stays on its thread, so what is the thread's (`errno`, thread-locals, the alternate stack) is not the guest's concern:
//! a handler that diverts the guest leaves before it has called anything that sets `errno`.
//!
//! *Faults.* The handler of `SIGSEGV`, `SIGBUS`, `SIGILL` and `SIGFPE` does the same without keeping the state, if this thread is in a guest. Else
//! the fault is not the guest's, and whoever had a handler before gets it. Before either, whoever is watching pages that the guest may
//! write to is asked ([`Rescued`]).

mod arch;
mod signal;
mod stack;

pub use signal::{Rescue, Rescued, Thread, install, preempt};
pub use stack::Stack;

use std::{ffi::c_void, ptr};

/// How a guest came back to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The function that it was started with has returned.
    Returned,
    /// It called [`enter_host`].
    Call {
        /// What it wants, and
        number: u32,
        /// where what goes with it lies, as it says: on its stack, if it is honest.
        slots: *mut u8,
        /// Whose call it is, as it says.
        context: *mut c_void,
    },
    /// [`preempt`] was called.
    Preempted,
    /// It cannot go on, and must not be resumed.
    Fault(Fault),
}

/// What a processor refused to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// `SIGSEGV`, `SIGBUS`, `SIGILL`, `SIGFPE`, or where traps are such, `SIGTRAP`.
    pub signal: i32,
    /// The instruction's address.
    pub instruction: usize,
    /// The address that it accessed, for `SIGSEGV` and `SIGBUS`.
    pub address: usize,
    /// The number in an instruction that traps on purpose, if it was one.
    pub trap: Option<u8>,
    /// Whether the address is below the fiber's stack: it has used it up.
    pub stack_overflow: bool,
}

/// What the switches and the handlers know of a fiber.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Control {
    /// Stack pointer of the guest, while it is in a call,
    guest: usize,
    /// and of its host, while it is not.
    host: usize,
    slots: *mut u8,
    context: *mut c_void,
    number: u32,
    /// The stack's bounds: the guard below it is no part of it.
    low: usize,
    high: usize,
    /// Where the interrupted state is kept.
    frame: arch::Frame,
    fault: Option<Fault>,
}

enum State {
    /// Nothing to run.
    Idle,
    /// In a call, or not begun.
    Waiting,
    Interrupted,
}

/// A guest's stack and where it is on it.
pub struct Fiber {
    /// In a place of its own: the guest and the handlers have its address.
    control: Box<Control>,
    state: State,
    stack: Stack,
}

impl Fiber {
    /// With nothing to run.
    pub fn new(stack: Stack) -> Self {
        let (low, high, frame) = (stack.low(), stack.high(), stack.frame());
        Self {
            control: Box::new(Control {
                guest: 0,
                host: 0,
                slots: ptr::null_mut(),
                context: ptr::null_mut(),
                number: 0,
                low,
                high,
                frame,
                fault: None,
            }),
            state: State::Idle,
            stack,
        }
    }

    /// What compiled code passes to [`enter_host`].
    pub fn handle(&self) -> *const c_void {
        ptr::from_ref(&*self.control).cast()
    }

    /// Forgets what it ran. The next [`Self::resume`] calls a function of the C convention with these arguments.
    pub fn start(&mut self, function: *const c_void, arguments: [usize; 3]) {
        let control = ptr::from_ref(&*self.control).addr();
        // SAFETY: the topmost words of the stack, which nothing uses now.
        self.control.guest =
            unsafe { arch::first_frame(self.control.high, function.addr(), arguments, control) };
        self.state = State::Waiting;
    }

    /// Runs until the next event. `None` if there is nothing to run.
    ///
    /// # Safety
    /// [`install`] has been called, and this thread has a [`Thread`]. The fiber has always been resumed on this thread since it was
    /// started. The function it was started with, and all that it calls, is code that may run on a stack of this size, that uses
    /// no thread-locals, that unwinds nowhere, and that may be left for ever at any instruction.
    pub unsafe fn resume(&mut self) -> Option<Event> {
        let control: *mut Control = &raw mut *self.control;
        // SAFETY: the caller's word, and `Interrupted` is the state only if a handler has filled the frame.
        let event = unsafe {
            match self.state {
                State::Idle => return None,
                State::Waiting => signal::within(control, || arch::switch(control)),
                State::Interrupted => {
                    signal::within(control, || arch::give_back(control, (*control).frame.address()))
                }
            }
        };
        let (state, event) = match event {
            arch::RETURNED => (State::Idle, Event::Returned),
            arch::PREEMPTED => (State::Interrupted, Event::Preempted),
            arch::CALL => {
                let call = Event::Call {
                    number: self.control.number,
                    slots: self.control.slots,
                    context: self.control.context,
                };
                (State::Waiting, call)
            }
            _ => {
                let fault = self.control.fault.take()?;
                (State::Idle, Event::Fault(fault))
            }
        };
        self.state = state;
        Some(event)
    }

    /// The stack, for another fiber.
    pub fn into_stack(self) -> Stack {
        self.stack
    }
}

/// For compiled code: `void (handle, u32 number, void *slots, void *context)`. Leaves the guest for its host with an [`Event::Call`], and
/// returns when the fiber is resumed.
pub fn enter_host() -> *const c_void {
    arch::enter_host as *const c_void
}

#[cfg(test)]
mod tests;
