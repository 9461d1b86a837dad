//! x86-64, System V convention. Callee-saved are rbx, rbp and r12 to r15; the control words of the two floating-point units are, too, and no
//! guest changes them.

use super::{CALL, RETURNED};
use crate::Control;
use libc::{c_int, ucontext_t};
use std::{
    arch::{asm, naked_asm},
    ffi::c_void,
    mem::{offset_of, size_of},
    ptr, slice,
    sync::OnceLock,
};

/// What a processor refuses.
pub(crate) const FAULTS: &[c_int] = &[libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// From the host to a guest that waits in a call, or has not begun.
///
/// # Safety
/// `guest` is the stack pointer that [`enter_host`] or [`first_frame`] left.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch(control: *mut Control) -> u32 {
    naked_asm!(
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
        "mov [rdi + {host}], rsp",
        "mov rsp, [rdi + {guest}]",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
        "ret",
        host = const offset_of!(Control, host),
        guest = const offset_of!(Control, guest),
    )
}

/// From the host to a guest that was interrupted: the kernel restores everything from the frame.
///
/// # Safety
/// The frame is one that [`Frame::keep`] has filled, and the control's.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn give_back(control: *mut Control, frame: usize) -> u32 {
    naked_asm!(
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
        "mov [rdi + {host}], rsp",
        "mov rsp, rsi",
        "mov eax, {rt_sigreturn}",
        "syscall",
        "ud2",
        host = const offset_of!(Control, host),
        rt_sigreturn = const libc::SYS_rt_sigreturn,
    )
}

/// From a guest to its host.
///
/// # Safety
/// Called on the stack of the control's fiber.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn enter_host(
    control: *mut Control,
    number: u32,
    slots: *mut u8,
    context: *mut c_void,
) {
    naked_asm!(
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
        "mov [rdi + {number}], esi",
        "mov [rdi + {slots}], rdx",
        "mov [rdi + {context}], rcx",
        "mov [rdi + {guest}], rsp",
        "mov eax, {call}",
        "mov rsp, [rdi + {host}]",
        "jmp {land}",
        number = const offset_of!(Control, number),
        slots = const offset_of!(Control, slots),
        context = const offset_of!(Control, context),
        guest = const offset_of!(Control, guest),
        host = const offset_of!(Control, host),
        call = const CALL,
        land = sym land,
    )
}

/// On the host's stack: the end of [`switch`] and [`give_back`], with the answer in eax.
#[unsafe(naked)]
unsafe extern "C" fn land() {
    naked_asm!(
        "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp", "ret",
    )
}

/// Where a fiber's stack begins: calls the function in rbx, and goes back to the host.
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    naked_asm!(
        "mov rdi, r12",
        "mov rsi, r13",
        "mov rdx, r14",
        "call rbx",
        "mov eax, {returned}",
        "mov rsp, [r15 + {host}]",
        "jmp {land}",
        returned = const RETURNED,
        host = const offset_of!(Control, host),
        land = sym land,
    )
}

/// Makes the stack such that [`switch`] leads to [`begin`]; the stack pointer.
///
/// # Safety
/// The 128 bytes below `high`, which is aligned, are writable and free.
pub(crate) unsafe fn first_frame(
    high: usize,
    function: usize,
    arguments: [usize; 3],
    control: usize,
) -> usize {
    let [one, two, three] = arguments;
    // From the stack pointer up: r15, r14, r13, r12, rbx, rbp, and where to return to.
    let words = [control, three, two, one, function, 0, begin as *const () as usize];
    let pointer = high - 64 - size_of_val(&words);
    // SAFETY: see above.
    unsafe { ptr::with_exposed_provenance_mut::<[usize; 7]>(pointer).write(words) };
    pointer
}

/// Bytes of the kernel's signal masks.
const SIGNALS: usize = 8;
/// What the kernel's `struct ucontext` has of `ucontext_t`: flags, link, alternate stack, registers, and the signal mask.
const CONTEXT: usize = offset_of!(ucontext_t, uc_sigmask) + SIGNALS;
/// In the state of vectors and floats (`struct _fpx_sw_bytes`): a number that says that it is more than the first 512 bytes, and how
/// much.
const MAGIC_AT: usize = 464;
const MAGIC: u32 = 0x4650_5853;
const SIZE_AT: usize = 468;
const LEGACY: usize = 512;

/// Room for the state of an interrupted guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    base: usize,
    size: usize,
}

impl Frame {
    /// Bytes that one takes: what the kernel says that its own take on this processor.
    pub(crate) fn size() -> usize {
        static SIZE: OnceLock<usize> = OnceLock::new();
        *SIZE.get_or_init(|| {
            // SAFETY: a query.
            let least = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
            let least = usize::try_from(least).unwrap_or(0).max(4096);
            least.next_multiple_of(64) + 1024
        })
    }

    pub(crate) fn at(base: usize) -> Self {
        Self {
            base: base.next_multiple_of(64),
            size: Self::size() - 64,
        }
    }

    /// For [`give_back`].
    pub(crate) fn address(self) -> usize {
        self.base
    }

    /// Copies what the kernel has saved. Whether there was room.
    ///
    /// # Safety
    /// The kernel's context of the signal that is being handled, and a frame that is writable.
    pub(crate) unsafe fn keep(self, context: *const ucontext_t) -> bool {
        // SAFETY: the kernel says how large its state is.
        unsafe {
            let state = (*context).uc_mcontext.fpregs.cast::<u8>();
            if state.is_null() {
                return false;
            }
            let word = |at: usize| state.add(at).cast::<u32>().read_unaligned();
            let extended = word(MAGIC_AT) == MAGIC;
            let size = if extended { word(SIZE_AT) as usize } else { LEGACY };
            let vectors = CONTEXT.next_multiple_of(64);
            if vectors + size > self.size {
                return false;
            }
            let base = ptr::with_exposed_provenance_mut::<u8>(self.base);
            ptr::copy_nonoverlapping(context.cast::<u8>(), base, CONTEXT);
            ptr::copy_nonoverlapping(state, base.add(vectors), size);
            let kept = base.cast::<ucontext_t>();
            (&raw mut (*kept).uc_mcontext.fpregs).write(base.add(vectors).cast());
            true
        }
    }
}

unsafe fn register(context: *mut ucontext_t, which: i32) -> *mut i64 {
    // SAFETY: the kernel's context.
    unsafe {
        (&raw mut (*context).uc_mcontext.gregs)
            .cast::<i64>()
            .add(which as usize)
    }
}

pub(crate) unsafe fn stack_pointer(context: *mut ucontext_t) -> usize {
    // SAFETY: the kernel's context.
    unsafe { register(context, libc::REG_RSP).read() as usize }
}

pub(crate) unsafe fn instruction(context: *mut ucontext_t) -> usize {
    // SAFETY: the kernel's context.
    unsafe { register(context, libc::REG_RIP).read() as usize }
}

/// Has the thread go on in its host, after the handler.
pub(crate) unsafe fn divert(context: *mut ucontext_t, host: usize, event: u32) {
    /// Direction, trap and alignment check: clear in code of the convention.
    const FLAGS: i64 = 1 << 10 | 1 << 8 | 1 << 18;
    // SAFETY: the kernel's context, and a stack pointer that `switch` or `give_back` left.
    unsafe {
        register(context, libc::REG_RIP).write(land as *const () as i64);
        register(context, libc::REG_RSP).write(host as i64);
        register(context, libc::REG_RAX).write(i64::from(event));
        let flags = register(context, libc::REG_EFL);
        flags.write(flags.read() & !FLAGS);
    }
}

/// Goes on in the host, out of the handler: the kernel has made flags and vectors as code of the convention expects them, for the
/// handler, so only the signal mask is to be given back. It is read from the frame: the alternate stack is free for the next signal as soon as it is
/// left.
///
/// # Safety
/// In a handler that nothing on the alternate stack is waiting for. The frame has been filled with its context; `host` is a stack
/// pointer that [`switch`] or [`give_back`] left.
pub(crate) unsafe fn leave(_: *mut ucontext_t, frame: Frame, host: usize, event: u32) {
    // SAFETY: `land` finds what they have pushed.
    unsafe {
        asm!(
            "mov rsp, r8",
            "syscall",
            "mov eax, r9d",
            "jmp {land}",
            land = sym land,
            in("eax") libc::SYS_rt_sigprocmask as u32,
            in("edi") libc::SIG_SETMASK,
            in("rsi") frame.base + offset_of!(ucontext_t, uc_sigmask),
            in("edx") 0,
            in("r10") SIGNALS,
            in("r8") host,
            in("r9d") event,
            options(noreturn),
        )
    }
}

/// The number in `ud1l N(%eax), %eax`, the instruction that traps on purpose.
///
/// # Safety
/// The signal came from this instruction.
pub(crate) unsafe fn trap(signal: i32, instruction: usize) -> Option<u8> {
    if signal != libc::SIGILL {
        return None;
    }
    let code = ptr::with_exposed_provenance::<u8>(instruction);
    // SAFETY: an instruction that was fetched; its bytes are read one by one, up to the first that is not the trap's.
    let bytes = unsafe { slice::from_raw_parts(code, 1) };
    if bytes != [0x67] {
        return None;
    }
    // SAFETY: as above: an instruction that begins like this is longer.
    match unsafe { slice::from_raw_parts(code, 5) } {
        [0x67, 0x0f, 0xb9, 0x40, number] => Some(*number),
        _ => None,
    }
}

const _: () = assert!(size_of::<*const c_void>() == 8);
