//! The handlers.

use crate::{Control, Fault, arch};
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use std::{cell::Cell, io, marker::PhantomData, mem, ptr, sync::OnceLock};

/// What preempts: ignored by default, and pending once at most for each thread.
const PREEMPT: c_int = libc::SIGURG;

thread_local! {
    /// Of the fiber that this thread is in. A handler reads it: it has no destructor and is there from the thread's begin.
    static CURRENT: Cell<*mut Control> = const { Cell::new(ptr::null_mut()) };
}

/// Asked about an access that the processor refused, with its address: whether it will not be refused again.
pub type Rescue = unsafe fn(data: *const c_void, address: usize) -> bool;

thread_local! {
    static RESCUE: Cell<Option<(Rescue, *const c_void)>> = const { Cell::new(None) };
}

/// While this lives, its thread's accesses that the processor refuses, the guest's and the host's, go on if they were rescued.
pub struct Rescued(PhantomData<*const ()>);

impl Rescued {
    /// From now on, on this thread; one at a time.
    ///
    /// # Safety
    /// `rescue` can be called with `data` in a signal's handler until this is dropped.
    pub unsafe fn by(rescue: Rescue, data: *const c_void) -> Self {
        RESCUE.set(Some((rescue, data)));
        Self(PhantomData)
    }
}

impl Drop for Rescued {
    fn drop(&mut self) {
        RESCUE.set(None);
    }
}

/// Runs `enter`, which switches to this fiber.
pub(crate) fn within(control: *mut Control, enter: impl FnOnce() -> u32) -> u32 {
    CURRENT.set(control);
    let event = enter();
    CURRENT.set(ptr::null_mut());
    event
}

/// What had the faults before.
static BEFORE: OnceLock<Vec<(c_int, libc::sigaction)>> = OnceLock::new();

/// Installs the handlers, once for the process.
pub fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        let failed = |error: io::Error| error.raw_os_error().unwrap_or(0);
        let mut before = Vec::new();
        for &signal in arch::FAULTS {
            before.push((signal, action(signal, None).map_err(failed)?));
        }
        // Known before the first handler can need it.
        let _ = BEFORE.set(before);
        for &signal in arch::FAULTS {
            action(signal, Some(faulted)).map_err(failed)?;
        }
        action(PREEMPT, Some(interrupted)).map_err(failed)?;
        Ok(())
    });
    installed.map_err(io::Error::from_raw_os_error)
}

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Sets a signal's handler, if any is given; what was before.
fn action(signal: c_int, handler: Option<Handler>) -> io::Result<libc::sigaction> {
    // SAFETY: all zeros is an action; the kernel reads one and writes the other.
    unsafe {
        let mut before: libc::sigaction = mem::zeroed();
        let mut new: libc::sigaction = mem::zeroed();
        let mut given = ptr::null();
        if let Some(handler) = handler {
            new.sa_sigaction = handler as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigemptyset(&mut new.sa_mask);
            // Neither comes while the other is being handled.
            libc::sigaddset(&mut new.sa_mask, PREEMPT);
            given = &raw const new;
        }
        if libc::sigaction(signal, given, &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(before)
    }
}

/// `SIGURG`: takes the guest from the core, if this thread is in one and on its stack.
extern "C" fn interrupted(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    let control = CURRENT.get();
    let context = context.cast::<ucontext_t>();
    // SAFETY: the kernel's context; the control of the fiber that this thread is in, which is alive.
    unsafe {
        if control.is_null() {
            return;
        }
        let pointer = arch::stack_pointer(context);
        if pointer < (*control).low || pointer > (*control).high {
            return;
        }
        let Control { frame, host, .. } = *control;
        if frame.keep(context) {
            arch::leave(context, frame, host, arch::PREEMPTED);
        }
    }
}

extern "C" fn faulted(signal: c_int, information: *mut siginfo_t, context: *mut c_void) {
    let control = CURRENT.get();
    // SAFETY: as above; whoever wants to rescue says that it may be asked here.
    unsafe {
        if let (libc::SIGSEGV, Some((rescue, data))) = (signal, RESCUE.get())
            && rescue(data, (*information).si_addr().addr())
        {
            return;
        }
        if control.is_null() {
            return forward(signal, information, context);
        }
        let context = context.cast::<ucontext_t>();
        let instruction = arch::instruction(context);
        let address = match signal {
            libc::SIGSEGV | libc::SIGBUS => (*information).si_addr().addr(),
            _ => 0,
        };
        let Control { low, high, .. } = *control;
        (*control).fault = Some(Fault {
            signal,
            instruction,
            address,
            trap: arch::trap(signal, instruction),
            stack_overflow: address >= low && address < high,
        });
        arch::divert(context, (*control).host, arch::FAULT);
    }
}

/// To whoever had it before.
unsafe fn forward(signal: c_int, information: *mut siginfo_t, context: *mut c_void) {
    let before = BEFORE
        .get()
        .and_then(|all| all.iter().find(|(one, _)| *one == signal));
    let action = before.map(|(_, action)| *action);
    match action.map(|action| action.sa_sigaction) {
        None | Some(libc::SIG_DFL | libc::SIG_IGN) => {
            // The instruction faults again, and the process ends as it would have.
            // SAFETY: all zeros is the default action.
            unsafe {
                let default: libc::sigaction = mem::zeroed();
                libc::sigaction(signal, &raw const default, ptr::null_mut());
            }
        }
        Some(handler) => {
            let with_information = action.is_some_and(|action| action.sa_flags & libc::SA_SIGINFO != 0);
            // SAFETY: whoever set the action says that it is a function of this type.
            unsafe {
                if with_information {
                    mem::transmute::<usize, Handler>(handler)(signal, information, context);
                } else {
                    mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal);
                }
            }
        }
    }
}

/// A thread that may resume fibers, and that others may [`preempt`].
#[derive(Debug)]
pub struct Thread {
    id: libc::pid_t,
    /// Kept mapped while the thread may use it.
    alternate: Option<(*mut c_void, usize)>,
}

/// Enough for the state of any processor, and a handler.
fn alternate_size() -> usize {
    Frame::size() + (64 << 10)
}

use arch::Frame;

impl Thread {
    /// This thread, with an alternate stack that is large enough.
    pub fn here() -> io::Result<Self> {
        // SAFETY: plain queries, and a new mapping that becomes the thread's alternate stack.
        unsafe {
            let id = libc::gettid();
            let mut has: libc::stack_t = mem::zeroed();
            if libc::sigaltstack(ptr::null(), &raw mut has) != 0 {
                return Err(io::Error::last_os_error());
            }
            let size = alternate_size();
            if has.ss_flags & libc::SS_DISABLE == 0 && has.ss_size >= size {
                return Ok(Self { id, alternate: None });
            }
            let memory = libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if memory == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let stack = libc::stack_t {
                ss_sp: memory,
                ss_flags: 0,
                ss_size: size,
            };
            if libc::sigaltstack(&raw const stack, ptr::null_mut()) != 0 {
                let error = io::Error::last_os_error();
                libc::munmap(memory, size);
                return Err(error);
            }
            Ok(Self {
                id,
                alternate: Some((memory, size)),
            })
        }
    }

    /// For [`preempt`].
    pub fn id(&self) -> i32 {
        self.id
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some((memory, size)) = self.alternate {
            // SAFETY: the thread's own alternate stack, on which it is not now; it is given up before it goes.
            unsafe {
                let none = libc::stack_t {
                    ss_sp: ptr::null_mut(),
                    ss_flags: libc::SS_DISABLE,
                    ss_size: 0,
                };
                libc::sigaltstack(&raw const none, ptr::null_mut());
                libc::munmap(memory, size);
            }
        }
    }
}

/// Asks the fiber that runs on this thread of the process, if any, to come back. It may be missed: see the crate's documentation.
pub fn preempt(thread: i32) {
    // SAFETY: a signal to a thread; there may be none of this id any more.
    unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, PREEMPT);
    }
}
