//! How a forked process becomes a pure function, and nothing else.
//!
//! A pure function has its segments, a heap behind them, and a stack. All of it but what is read-only lies in the region that the host has
//! filled with its inputs, and reads its outputs from. Before its first instruction everything else of the process goes away, and every system call but the
//! one that leaves: first the memory, by code that lies in a page of its own, because it takes away what it would else stand on.
//!
//! | addresses | |
//! |---|---|
//! | [`ADDRESSES`] | its segments, and the rest of the region |
//! | above | what nobody can touch, where a stack that is too large ends |
//! | | its stack, and that of the handler of its faults |
//! | | the page that the thread pointer points to, all 0: a compiler's stack protector reads there |
//! | | what the code that starts it reads, which can be neither written to nor run: the guest's own numbers are among it |
//! | | the page of that code, and of the handler, which can be run and not written to |
//!
//! The handler is for the host to learn why a guest ended: it leaves with a code that says whether the stack was too large. A guest
//! that leaves with the same code says the same of itself, which is its own affair.
//!
//! Equal inputs are to make equal runs, so there is no clock: reading the processor's faults, and the kernel's page of times is gone. Nor are there
//! random numbers: code that asks the processor for some does not get here ([`instructions`](crate::instructions)), and nothing else can be run.

use crate::{
    executable::{ADDRESSES, Layout},
    page,
};
use rustix::{
    io::{Errno, Result},
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect},
};
use std::{
    convert::Infallible,
    ffi::c_void,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    ptr,
};

/// Bytes of stack, of what lies below it, and of the handler's.
const STACK: u64 = 1 << 20;
const GUARD: u64 = 1 << 20;
const HANDLERS_STACK: u64 = 64 << 10;

/// Where each begins: see above.
const STACK_BEGIN: u64 = ADDRESSES.end + GUARD;
const HANDLERS: u64 = STACK_BEGIN + STACK;
const THREAD: u64 = HANDLERS + HANDLERS_STACK;
const READS: u64 = THREAD + page::SIZE;
const START: u64 = READS + page::SIZE;
const END: u64 = START + page::SIZE;

/// The end of what a process can have on this processor, as Linux gives it without being asked for more.
const HIGHEST: u64 = (1 << 47) - page::SIZE;

/// The exit code of a guest whose stack was too large,
pub(crate) const STACK_OVERFLOW: i32 = 201;
/// and of one that touched what it does not have.
pub(crate) const BAD_ACCESS: i32 = 202;

/// A range of addresses that is not the guest's.
type Range = std::ops::Range<u64>;

/// What the code of the start page reads, at fixed places.
#[repr(C)]
struct Start {
    /// What goes away: each an address and a length.
    away: [[u64; 2]; 3],
    /// A `sock_fprog`: the number of a filter's instructions, and where they are.
    filter: [u64; 2],
    /// The thread pointer.
    thread: u64,
    /// Where the stack begins to grow down from, and where the guest begins.
    stack: u64,
    entry: u64,
}

/// Behind that lie a filter's instructions.
const FILTER: u64 = READS + size_of::<Start>() as u64;

std::arch::global_asm!(
    ".pushsection .text.millpond_start, \"ax\", @progbits",
    ".globl millpond_start, millpond_start_handler, millpond_start_end",
    // rdi: what it reads.
    "millpond_start:",
    "mov rbx, rdi",
    "xor r12d, r12d",
    "2:",
    "mov eax, 11", // munmap
    "mov rdi, [rbx + r12]",
    "mov rsi, [rbx + r12 + 8]",
    "test rsi, rsi",
    "jz 3f",
    "syscall",
    "test rax, rax",
    "jnz 9f",
    "3:",
    "add r12, 16",
    "cmp r12, 48",
    "jne 2b",
    "mov eax, 158", // arch_prctl
    "mov edi, 0x1002", // ARCH_SET_FS
    "mov rsi, [rbx + 64]",
    "syscall",
    "test rax, rax",
    "jnz 9f",
    "mov eax, 317", // seccomp
    "mov edi, 1", // SECCOMP_SET_MODE_FILTER
    "xor esi, esi",
    "lea rdx, [rbx + 48]",
    "syscall",
    "test rax, rax",
    "jnz 9f",
    "mov rsp, [rbx + 72]",
    "push qword ptr [rbx + 80]",
    "xor eax, eax",
    "xor ebx, ebx",
    "xor ecx, ecx",
    "xor edx, edx",
    "xor esi, esi",
    "xor edi, edi",
    "xor ebp, ebp",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "xor r10d, r10d",
    "xor r11d, r11d",
    "xor r12d, r12d",
    "ret",
    "9:",
    "mov eax, 231", // exit_group
    "mov edi, 126",
    "syscall",
    "hlt",
    // rsi: the signal's information, whose address of the fault is at 16.
    "millpond_start_handler:",
    "mov edi, {bad_access}",
    "mov rax, [rsi + 16]",
    "mov rcx, {guard}",
    "sub rax, rcx",
    "cmp rax, {guard_size}",
    "jae 4f",
    "mov edi, {stack_overflow}",
    "4:",
    "mov eax, 231",
    "syscall",
    "hlt",
    "millpond_start_end:",
    ".popsection",
    bad_access = const BAD_ACCESS,
    stack_overflow = const STACK_OVERFLOW,
    guard = const ADDRESSES.end,
    guard_size = const GUARD,
);

unsafe extern "C" {
    static millpond_start: u8;
    static millpond_start_handler: u8;
    static millpond_start_end: u8;
}

/// The code of the start page.
fn start_code() -> &'static [u8] {
    // SAFETY: both symbols are of one piece of code, the second at its end.
    unsafe {
        let begin = &raw const millpond_start;
        let bytes = (&raw const millpond_start_end).byte_offset_from(begin) as usize;
        std::slice::from_raw_parts(begin, bytes)
    }
}

/// What a zygote has made ready for all its guests.
pub(crate) struct Prepared {
    /// Parts of the region, which each guest maps: by address.
    own: Vec<Range>,
    /// The region's first address.
    base: u64,
}

fn at(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

fn length(range: &Range) -> usize {
    (range.end - range.start) as usize
}

impl Prepared {
    /// Maps what all guests read, and the pages beside the region.
    pub(crate) fn new(
        layout: &Layout,
        memory: u64,
        executable: &OwnedFd,
        filter: &[confine::Instruction],
    ) -> io::Result<Self> {
        let base = layout.span.start;
        let whole = base..base + page::up(memory);
        if whole.end > ADDRESSES.end || whole.end < layout.span.end {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut own = Vec::new();
        let mut free = whole.start;
        for segment in layout.segments.iter().filter(|segment| !segment.write) {
            let pages = segment.pages();
            if free < pages.start {
                own.push(free..pages.start);
            }
            free = pages.end;
            let mut rights = ProtFlags::READ;
            if segment.execute {
                rights |= ProtFlags::EXEC;
            }
            // SAFETY: nothing is mapped there yet, or the kernel refuses.
            unsafe {
                mmap(
                    at(pages.start),
                    length(&pages),
                    rights,
                    MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE,
                    executable,
                    page::down(segment.offset),
                )?;
            }
        }
        if free < whole.end {
            own.push(free..whole.end);
        }
        let private = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE | MapFlags::NORESERVE;
        let all = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as above.
        unsafe {
            mmap_anonymous(at(ADDRESSES.end), GUARD as usize, ProtFlags::empty(), private)?;
            mmap_anonymous(at(STACK_BEGIN), (END - STACK_BEGIN) as usize, all, private)?;
        }
        let start = Start {
            away: [0x1_0000..whole.start, whole.end..ADDRESSES.end, END..HIGHEST]
                .map(|range| [range.start, range.end.saturating_sub(range.start)]),
            filter: [filter.len() as u64, FILTER],
            thread: THREAD,
            // As a program finds it: no arguments, no environment, nothing that the kernel tells.
            stack: HANDLERS - 64,
            entry: layout.entry,
        };
        let code = start_code();
        if FILTER + size_of_val(filter) as u64 > START || code.len() as u64 > page::SIZE {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // SAFETY: the pages are this process's, have just been mapped, and are as large as what is copied into them, which was checked.
        unsafe {
            ptr::copy_nonoverlapping(code.as_ptr(), at(START).cast(), code.len());
            at(READS).cast::<Start>().write(start);
            ptr::copy_nonoverlapping(
                filter.as_ptr().cast::<u8>(),
                at(FILTER).cast(),
                size_of_val(filter),
            );
            let page = page::SIZE as usize;
            mprotect(at(READS), page, MprotectFlags::READ)?;
            mprotect(at(START), page, MprotectFlags::READ | MprotectFlags::EXEC)?;
        }
        handle_faults()?;
        Ok(Self { own, base })
    }

    /// In a guest that is confined but for its filter: becomes the function.
    pub(crate) fn enter(&self, region: &OwnedFd) -> io::Result<Infallible> {
        // SAFETY: the call takes numbers. From here on nothing in this process asks for the time.
        if unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV, 0, 0, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        for range in &self.own {
            self.map(range, region.as_fd())?;
        }
        // SAFETY: from here on nothing in this process uses a descriptor.
        if unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the page holds code that never returns and needs nothing of this process but the page itself.
        unsafe {
            let start: extern "C" fn(*const c_void) -> ! = std::mem::transmute(at(START));
            start(at(READS))
        }
    }

    fn map(&self, range: &Range, region: BorrowedFd<'_>) -> Result<()> {
        let all = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
        // SAFETY: nothing is mapped there yet, or the kernel refuses.
        let mapped = unsafe {
            mmap(
                at(range.start),
                length(range),
                all,
                flags,
                region,
                range.start - self.base,
            )
        }?;
        if mapped == at(range.start) {
            Ok(())
        } else {
            Err(Errno::EXIST)
        }
    }
}

/// For all guests. The zygote itself would leave as they do.
fn handle_faults() -> io::Result<()> {
    // SAFETY: the handler never returns, and its stack is nobody else's. The structures outlive the calls.
    unsafe {
        let handler = (&raw const millpond_start_handler).byte_offset_from(&raw const millpond_start) as u64;
        let stack = libc::stack_t {
            ss_sp: at(HANDLERS),
            ss_flags: 0,
            ss_size: HANDLERS_STACK as usize,
        };
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = (START + handler) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaltstack(&stack, ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            if libc::sigaction(signal, &action, ptr::null_mut()) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starts_a_guest_has_nothing_that_a_guest_may_not_have() {
        assert!(start_code().len() > 100);
        assert_eq!(crate::instructions::find(start_code(), START), None);
    }
}
