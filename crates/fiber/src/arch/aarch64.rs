//! 64-bit ARM, its procedure call standard. Callee-saved are x19 to x28, the frame pointer, the link register and the lower halves of
//! v8 to v15.

use super::{CALL, RETURNED};
use crate::Control;
use libc::{c_int, ucontext_t};
use std::{
    arch::naked_asm,
    ffi::c_void,
    mem::{offset_of, size_of},
    ptr,
    sync::OnceLock,
};

/// What a processor refuses, and `brk`.
pub(crate) const FAULTS: &[c_int] = &[
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
];

/// Saves what a callee must keep, 160 bytes of it.
macro_rules! save {
    () => {
        "sub sp, sp, #160
        stp x19, x20, [sp, #0]
        stp x21, x22, [sp, #16]
        stp x23, x24, [sp, #32]
        stp x25, x26, [sp, #48]
        stp x27, x28, [sp, #64]
        stp x29, x30, [sp, #80]
        stp d8, d9, [sp, #96]
        stp d10, d11, [sp, #112]
        stp d12, d13, [sp, #128]
        stp d14, d15, [sp, #144]"
    };
}

/// Restores it and returns.
macro_rules! restore {
    () => {
        "ldp x19, x20, [sp, #0]
        ldp x21, x22, [sp, #16]
        ldp x23, x24, [sp, #32]
        ldp x25, x26, [sp, #48]
        ldp x27, x28, [sp, #64]
        ldp x29, x30, [sp, #80]
        ldp d8, d9, [sp, #96]
        ldp d10, d11, [sp, #112]
        ldp d12, d13, [sp, #128]
        ldp d14, d15, [sp, #144]
        add sp, sp, #160
        ret"
    };
}

/// From the host to a guest that waits in a call, or has not begun.
///
/// # Safety
/// `guest` is the stack pointer that [`enter_host`] or [`first_frame`] left.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch(control: *mut Control) -> u32 {
    naked_asm!(
        save!(),
        "mov x9, sp",
        "str x9, [x0, #{host}]",
        "ldr x9, [x0, #{guest}]",
        "mov sp, x9",
        restore!(),
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
        save!(),
        "mov x9, sp",
        "str x9, [x0, #{host}]",
        "mov sp, x1",
        "mov x8, #{rt_sigreturn}",
        "svc #0",
        "brk #0",
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
        save!(),
        "str w1, [x0, #{number}]",
        "str x2, [x0, #{slots}]",
        "str x3, [x0, #{context}]",
        "mov x9, sp",
        "str x9, [x0, #{guest}]",
        "ldr x9, [x0, #{host}]",
        "mov w0, #{call}",
        "mov sp, x9",
        "b {land}",
        number = const offset_of!(Control, number),
        slots = const offset_of!(Control, slots),
        context = const offset_of!(Control, context),
        guest = const offset_of!(Control, guest),
        host = const offset_of!(Control, host),
        call = const CALL,
        land = sym land,
    )
}

/// On the host's stack: the end of [`switch`] and [`give_back`], with the answer in w0.
#[unsafe(naked)]
unsafe extern "C" fn land() {
    naked_asm!(restore!())
}

/// Where a fiber's stack begins: calls the function in x19, and goes back to the host.
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    naked_asm!(
        "mov x0, x20",
        "mov x1, x21",
        "mov x2, x22",
        "blr x19",
        "ldr x9, [x23, #{host}]",
        "mov w0, #{returned}",
        "mov sp, x9",
        "b {land}",
        returned = const RETURNED,
        host = const offset_of!(Control, host),
        land = sym land,
    )
}

/// Makes the stack such that [`switch`] leads to [`begin`]; the stack pointer.
///
/// # Safety
/// The 256 bytes below `high`, which is aligned, are writable and free.
pub(crate) unsafe fn first_frame(
    high: usize,
    function: usize,
    arguments: [usize; 3],
    control: usize,
) -> usize {
    let [one, two, three] = arguments;
    let mut words = [0; 20];
    words[..5].copy_from_slice(&[function, one, two, three, control]);
    // x30
    words[11] = begin as *const () as usize;
    let pointer = high - 64 - size_of_val(&words);
    // SAFETY: see above.
    unsafe { ptr::with_exposed_provenance_mut::<[usize; 20]>(pointer).write(words) };
    pointer
}

/// Before the context, the kernel keeps what it says of the signal.
const INFORMATION: usize = 128;
/// The record that says that vectors lie behind the context, because it has no room for them (`struct extra_context`).
const EXTRA: u32 = 0x4558_5401;

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
            let least = usize::try_from(least).unwrap_or(0).max(5120);
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
    pub(crate) unsafe fn keep(self, context: *mut ucontext_t) -> bool {
        // SAFETY: the kernel's records follow each other, and the last has no size.
        unsafe {
            let from = context.cast::<u8>().sub(INFORMATION);
            let records = offset_of!(ucontext_t, uc_mcontext) + RECORDS;
            let mut size = INFORMATION + size_of::<ucontext_t>();
            let mut moved = None;
            let mut at = records;
            while at + 16 <= size_of::<ucontext_t>() {
                let record = context.cast::<u8>().add(at);
                let [magic, length] = record.cast::<[u32; 2]>().read_unaligned();
                if length == 0 {
                    break;
                }
                if magic == EXTRA {
                    let data = record.add(8).cast::<u64>().read_unaligned() as usize;
                    let bytes = record.add(16).cast::<u32>().read_unaligned() as usize;
                    let offset = data.wrapping_sub(from.addr());
                    size = size.max(offset.saturating_add(bytes));
                    moved = Some((INFORMATION + at + 8, offset));
                }
                at += length as usize;
            }
            if size > self.size {
                return false;
            }
            let base = ptr::with_exposed_provenance_mut::<u8>(self.base);
            ptr::copy_nonoverlapping(from, base, size);
            if let Some((field, offset)) = moved {
                base.add(field)
                    .cast::<u64>()
                    .write_unaligned((self.base + offset) as u64);
            }
            true
        }
    }
}

/// Where the records begin in the machine's context: behind the address of a fault, 31 registers, the stack pointer, the program
/// counter and the flags, aligned.
const RECORDS: usize = (8 * 35_usize).next_multiple_of(16);

pub(crate) unsafe fn stack_pointer(context: *mut ucontext_t) -> usize {
    // SAFETY: the kernel's context.
    unsafe { (*context).uc_mcontext.sp as usize }
}

pub(crate) unsafe fn instruction(context: *mut ucontext_t) -> usize {
    // SAFETY: the kernel's context.
    unsafe { (*context).uc_mcontext.pc as usize }
}

/// Has the thread go on in its host, after the handler.
pub(crate) unsafe fn divert(context: *mut ucontext_t, host: usize, event: u32) {
    /// The kind of the last branch, of which the next instruction must not be told.
    const BRANCH: u64 = 3 << 10;
    // SAFETY: the kernel's context, and a stack pointer that `switch` or `give_back` left.
    unsafe {
        let machine = &mut (*context).uc_mcontext;
        machine.pc = land as *const () as u64;
        machine.sp = host as u64;
        machine.regs[0] = u64::from(event);
        machine.pstate &= !BRANCH;
    }
}

/// As [`divert`] does: vectors are the kernel's to give back.
pub(crate) unsafe fn leave(context: *mut ucontext_t, _: Frame, host: usize, event: u32) {
    // SAFETY: the caller's.
    unsafe { divert(context, host, event) }
}

/// The number in `brk #0x55NN`, the instruction that traps on purpose.
///
/// # Safety
/// The signal came from this instruction.
pub(crate) unsafe fn trap(signal: i32, instruction: usize) -> Option<u8> {
    if signal != libc::SIGTRAP {
        return None;
    }
    // SAFETY: an instruction that was fetched.
    let word = unsafe { ptr::with_exposed_provenance::<u32>(instruction).read() };
    let number = word.checked_sub(0xd420_0000 | 0x5500 << 5)? >> 5;
    u8::try_from(number).ok()
}
