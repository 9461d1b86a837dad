//! How a program ended that the kernel says too little of.
//!
//! A program is the first process of its namespace. Such a one ignores the signals that it does not handle, `abort`'s among them, and of a fault the
//! kernel tells the parent its signal and not its place. So the zygote traces the program's first thread: every signal stops the thread and is reported here,
//! and it goes on with the signal as if nobody had looked. Two things are told apart: a fault that nothing handles, by its place and the stack
//! pointer, and an abort. Whoever ends by one of them is ended here, for the kernel does not end the first process of a namespace by a signal while it is traced.
//!
//! A guest cannot trace, so it never meets these calls; all that it can do is to send itself signals. Each costs the zygote one
//! bounded step, and after [`PATIENCE`] of them the program is let go: it runs untraced from then on.
//!
//! ```text
//! zygote   fork ─────── waits ── seizes ── says so ──────────────▶ listens for stops
//! child       └─ can be traced ──── its own walls ──── waits ── cannot any more ── starts the program
//! ```

use confine::Cell;
use std::{
    io,
    ops::Range,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Signals of one program that are looked at.
const PATIENCE: u32 = 10_000;

/// How far a frame can reach beyond the end of the stack. Nothing is mapped there, unless the program has asked for just that.
const FRAME: u64 = 64 << 20;

/// What lies above the first frame: arguments and environment.
const WORDS: u64 = 256 << 10;

/// How far below the stack pointer code may touch its stack.
const BELOW: u64 = 64 << 10;

/// As the kernel has it, everywhere the same.
const PTRACE_EVENT_STOP: libc::c_int = 128;
const NT_PRSTATUS: usize = 1;

/// After which those who wait for each other look whether the other one is still there.
const LOOK: Duration = Duration::from_millis(5);

/// What is known of a program while it runs.
#[derive(Debug, Default)]
pub(crate) struct Traced {
    /// The signal that it was ended for.
    ended_by: Option<i32>,
    /// Whether that was for the size of its stack.
    overflowed: bool,
    /// The main stack, if a handler was told of its overflow.
    told: Option<Range<u64>>,
    looked: u32,
}

/// What is known of a stop.
#[derive(Clone, Debug)]
struct Stop {
    signal: i32,
    /// As the signal's information says: positive if the kernel made it.
    code: i32,
    /// Who sent it, if anybody has: 0 is somebody outside.
    sender: i32,
    /// Of the fault.
    address: u64,
    /// `None` where that is not known.
    at: Option<Place>,
}

/// How the program stood at a stop.
#[derive(Clone, Debug)]
struct Place {
    stack_pointer: u64,
    /// Addresses that the main stack may have.
    stack: Range<u64>,
    /// Bits of signals that it ignores, and handles.
    ignored: u64,
    handled: u64,
}

/// What is done about a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// It goes on with this signal, or without one.
    Pass(i32),
    /// It goes on untraced.
    LetGo(i32),
    /// It ends.
    End,
}

const FAULTS: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

impl Traced {
    fn decide(&mut self, stop: &Stop) -> Act {
        let signal = stop.signal;
        let from_itself = stop.code <= 0 && stop.sender != 0;
        let fault = stop.code > 0 && FAULTS.contains(&signal);
        if signal == libc::SIGSTOP && from_itself {
            // The first process of a namespace cannot stop itself.
            return Act::Pass(0);
        }
        // Whoever writes more than a file may have is sent the second, as if by itself.
        let aborts = [libc::SIGABRT, libc::SIGXFSZ].contains(&signal) && from_itself;
        if !fault && !aborts {
            self.looked += 1;
            return if self.looked < PATIENCE {
                Act::Pass(signal)
            } else {
                Act::LetGo(signal)
            };
        }
        let Some(place) = &stop.at else {
            return Act::LetGo(signal);
        };
        let is_in = |set: u64| set & (1 << (signal - 1)) != 0;
        let overflowed = fault && signal == libc::SIGSEGV && place.overflowed(stop.address);
        // Of a fault the kernel tells nobody who ignores or blocks it, and has made that the default by now.
        if is_in(place.handled) || is_in(place.ignored) {
            if fault {
                self.told = overflowed.then(|| place.stack.clone());
            }
            self.looked += 1;
            return if self.looked < PATIENCE {
                Act::Pass(signal)
            } else {
                Act::LetGo(signal)
            };
        }
        // Who aborts on another stack than the one that overflowed does so in the handler of that.
        let in_handler = |stack: &Range<u64>| !stack.contains(&place.stack_pointer);
        self.overflowed = overflowed || !fault && self.told.as_ref().is_some_and(in_handler);
        self.ended_by = Some(signal);
        Act::End
    }

    /// How it has ended: what `wait` said, and whether its stack was too large.
    pub(crate) fn ended(&self, status: i32) -> (i32, bool) {
        match self.ended_by {
            Some(signal) if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL => {
                (signal, self.overflowed)
            }
            _ => (status, false),
        }
    }

    /// Deals with a stop of this process, which `wait` has told of, in one step.
    pub(crate) fn stopped(&mut self, cell: &Cell, process: libc::pid_t, status: i32) {
        let signal = libc::WSTOPSIG(status);
        // What fails here fails because the process is gone, which `wait` will tell.
        let _ = if status >> 16 == PTRACE_EVENT_STOP {
            let stays = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
            let request = if stays {
                libc::PTRACE_LISTEN as libc::c_long
            } else {
                libc::PTRACE_CONT as libc::c_long
            };
            ptrace(request, process, 0, 0)
        } else {
            match self.decide(&look(cell, process, signal)) {
                Act::Pass(signal) => ptrace(libc::PTRACE_CONT as libc::c_long, process, 0, signal as usize),
                Act::LetGo(signal) => {
                    ptrace(libc::PTRACE_DETACH as libc::c_long, process, 0, signal as usize)
                }
                // SAFETY: the call takes numbers. The process is this one's child, and not buried.
                Act::End => match unsafe { libc::kill(process, libc::SIGKILL) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                },
            }
        };
    }
}

impl Place {
    /// Whether a fault at this address, with the stack pointer near it, is one beyond the stack's end.
    fn overflowed(&self, address: u64) -> bool {
        let end = self.stack.start;
        let beyond = end.saturating_sub(FRAME)..end + WORDS;
        let sp = self.stack_pointer;
        beyond.contains(&address) && sp <= address + BELOW && address <= sp.saturating_add(FRAME)
    }
}

/// All arguments are numbers, or addresses of what outlives the call and is as large as it says.
fn ptrace(request: libc::c_long, process: libc::pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: see above.
    match unsafe { libc::syscall(libc::SYS_ptrace, request, process, address, data) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn look(cell: &Cell, process: libc::pid_t, signal: i32) -> Stop {
    // SAFETY: numbers only, which the call overwrites.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let known = ptrace(
        libc::PTRACE_GETSIGINFO as libc::c_long,
        process,
        0,
        &raw mut info as usize,
    );
    let (mut sender, mut address) = (0, 0);
    if known.is_ok() {
        // SAFETY: whatever the signal, both are numbers in the structure, which is initialised.
        unsafe {
            sender = info.si_pid();
            address = info.si_addr() as u64;
        }
    }
    let interesting = FAULTS.contains(&signal) || [libc::SIGABRT, libc::SIGXFSZ].contains(&signal);
    Stop {
        signal,
        code: info.si_code,
        sender,
        address,
        at: if interesting { place(cell, process) } else { None },
    }
}

fn place(cell: &Cell, process: libc::pid_t) -> Option<Place> {
    let stat = cell.about(process, "stat").ok()?;
    let fields = Fields::read(&stat)?;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure outlives the call, which writes to it.
    if unsafe { libc::prlimit(process, libc::RLIMIT_STACK, ptr::null(), &mut limit) } < 0 {
        return None;
    }
    Some(Place {
        stack_pointer: stack_pointer(process)?,
        stack: fields.stack_begin.saturating_sub(limit.rlim_cur)..fields.stack_begin.saturating_add(WORDS),
        ignored: fields.ignored,
        handled: fields.handled,
    })
}

/// Of `/proc/…/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Fields {
    stack_begin: u64,
    ignored: u64,
    handled: u64,
}

impl Fields {
    fn read(stat: &str) -> Option<Self> {
        // The name before may contain anything, brackets too. The numbers are those of the manual; the first two are before.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        let stack_begin = field(28)?;
        // Who may not know is told 0.
        (stack_begin != 0).then_some(())?;
        Some(Self {
            stack_begin,
            ignored: field(33)?,
            handled: field(34)?,
        })
    }
}

fn stack_pointer(process: libc::pid_t) -> Option<u64> {
    // SAFETY: numbers only, which the call overwrites.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let into = libc::iovec {
        iov_base: (&raw mut registers).cast(),
        iov_len: size_of_val(&registers),
    };
    let request = libc::PTRACE_GETREGSET as libc::c_long;
    ptrace(request, process, NT_PRSTATUS, &raw const into as usize).ok()?;
    #[cfg(target_arch = "x86_64")]
    return Some(registers.rsp);
    #[cfg(target_arch = "aarch64")]
    return Some(registers.sp);
}

/// Where a zygote and its newest child wait for each other: a page that they share. No guest runs before its node can know that it does; so what
/// a node has not heard of when a zygote ends has not begun.
pub(crate) struct Gate {
    words: &'static Words,
    /// Children so far.
    children: u32,
}

/// Each holds the number of the newest child that it is true of.
struct Words {
    /// It can be traced.
    ready: AtomicU32,
    /// It is traced, if it is to be, and the node has been told of it.
    done: AtomicU32,
}

impl Gate {
    pub(crate) fn new() -> io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, which the kernel chooses the place of.
        let page = unsafe { libc::mmap(ptr::null_mut(), size_of::<Words>(), rights, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            // SAFETY: it is as large and aligned as a page, holds zeros, is never unmapped, and all who have it access it as atomics.
            words: unsafe { &*page.cast::<Words>() },
            children: 0,
        })
    }

    /// Before a fork.
    pub(crate) fn next(&mut self) {
        self.children = self.children.wrapping_add(1);
    }

    /// In the zygote: traces the newest child, if that can be.
    pub(crate) fn seize(&self, process: libc::pid_t) {
        while let Some(before) = self.is_ahead_of(&self.words.ready)
            && !has_ended(process)
        {
            wait(&self.words.ready, before);
        }
        let options = libc::PTRACE_O_EXITKILL as usize;
        if let Err(error) = ptrace(libc::PTRACE_SEIZE as libc::c_long, process, 0, options)
            && error.raw_os_error() != Some(libc::ESRCH)
        {
            tracing::debug!(%error, "a program is not traced");
        }
    }

    /// In the zygote: the newest child may start what it is to run.
    pub(crate) fn release(&self) {
        tell(&self.words.done, self.children);
    }

    /// In the child.
    pub(crate) fn ready(&self) {
        tell(&self.words.ready, self.children);
    }

    /// In the child: waits for its zygote.
    pub(crate) fn wait(&self, cell: &Cell) -> io::Result<()> {
        while let Some(before) = self.is_ahead_of(&self.words.done) {
            cell.check_zygote()?;
            wait(&self.words.done, before);
        }
        Ok(())
    }

    /// The word's value, if that was not yet true of this child; it may be one of a later child already.
    fn is_ahead_of(&self, word: &AtomicU32) -> Option<u32> {
        let value = word.load(Ordering::Acquire);
        (self.children.wrapping_sub(value).cast_signed() > 0).then_some(value)
    }
}

/// Sleeps while the word has this value, and not for long.
fn wait(word: &AtomicU32, value: u32) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: LOOK.subsec_nanos().into(),
    };
    // SAFETY: the word and the structure outlive the call. How it ends does not matter: the word is looked at again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const time,
        )
    };
}

fn tell(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Release);
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Whether a child has ended. It is not buried.
fn has_ended(process: libc::pid_t) -> bool {
    // SAFETY: numbers only, which the call overwrites if it has something to tell.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the structure outlives the call, and its field is a number.
    unsafe {
        let told = libc::waitid(libc::P_PID, process.cast_unsigned(), &mut info, how);
        told < 0 || info.si_pid() == process
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: Range<u64> = 0x7fff_0000_0000..0x7fff_0080_0000;

    fn at(stack_pointer: u64, handled: &[i32]) -> Option<Place> {
        Some(Place {
            stack_pointer,
            stack: STACK,
            ignored: 0,
            handled: handled.iter().map(|signal| 1 << (signal - 1)).sum(),
        })
    }

    fn fault(address: u64, at: Option<Place>) -> Stop {
        Stop {
            signal: libc::SIGSEGV,
            code: 1,
            sender: 0,
            address,
            at,
        }
    }

    fn sent(signal: i32, sender: i32, at: Option<Place>) -> Stop {
        Stop {
            signal,
            code: libc::SI_TKILL,
            sender,
            address: 0,
            at,
        }
    }

    const KILLED: i32 = libc::SIGKILL;

    #[test]
    fn a_fault_at_the_end_of_the_stack_is_an_overflow() {
        let end = STACK.start;
        for (address, pointer, overflowed) in [
            (end - 8, end, true),
            (end - 4096, end - 70_000, true),
            (end - (32 << 20), end - (33 << 20), true),
            (end + 4096, end + 4100, true),
            (8, end + 100, false),
            (end - 8, STACK.end - 1000, false),
            (end - 8, 0x1000, false),
            (u64::MAX, u64::MAX, false),
            (0, 0, false),
        ] {
            let mut traced = Traced::default();
            assert_eq!(traced.decide(&fault(address, at(pointer, &[]))), Act::End);
            assert_eq!(
                traced.ended(KILLED),
                (libc::SIGSEGV, overflowed),
                "{address:x} {pointer:x}"
            );
            // What it ended by itself is as it says.
            assert_eq!(traced.ended(3 << 8), (3 << 8, false));
        }
    }

    #[test]
    fn handlers_are_told_and_an_abort_in_one_is_for_its_reason() {
        let handled = &[libc::SIGSEGV];
        for (pointer, overflowed) in [(0x1000_0000, true), (STACK.end - 1000, false)] {
            let mut traced = Traced::default();
            let end = STACK.start;
            let act = traced.decide(&fault(end - 8, at(end, handled)));
            assert_eq!(act, Act::Pass(libc::SIGSEGV));
            assert_eq!(
                traced.decide(&sent(libc::SIGABRT, 1, at(pointer, handled))),
                Act::End
            );
            assert_eq!(traced.ended(KILLED), (libc::SIGABRT, overflowed));
        }
        // As the kernel sends it for a file that would be too large.
        let mut traced = Traced::default();
        let too_large = sent(libc::SIGXFSZ, 1, at(STACK.end - 8, &[]));
        assert_eq!(traced.decide(&too_large), Act::End);
        assert_eq!(traced.ended(KILLED), (libc::SIGXFSZ, false));
        let handled = at(STACK.end - 8, &[libc::SIGABRT]);
        let act = Traced::default().decide(&sent(libc::SIGABRT, 1, handled));
        assert_eq!(act, Act::Pass(libc::SIGABRT));
    }

    #[test]
    fn other_signals_go_on_as_they_came_and_not_for_ever() {
        let mut traced = Traced::default();
        assert_eq!(traced.decide(&sent(libc::SIGSTOP, 1, None)), Act::Pass(0));
        assert_eq!(
            traced.decide(&sent(libc::SIGSTOP, 0, None)),
            Act::Pass(libc::SIGSTOP)
        );
        assert_eq!(
            traced.decide(&sent(libc::SIGABRT, 0, None)),
            Act::Pass(libc::SIGABRT)
        );
        assert_eq!(
            traced.decide(&sent(libc::SIGSEGV, 1, None)),
            Act::Pass(libc::SIGSEGV)
        );
        assert_eq!(traced.decide(&fault(0, None)), Act::LetGo(libc::SIGSEGV));
        let mut traced = Traced::default();
        let passed =
            (0..).take_while(|_| traced.decide(&sent(libc::SIGUSR1, 1, None)) == Act::Pass(libc::SIGUSR1));
        assert_eq!(passed.count() as u32, PATIENCE - 1);
        assert_eq!(traced.ended(KILLED), (KILLED, false));
    }

    #[test]
    fn a_name_does_not_hide_what_is_known() {
        let mut fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let read = |fields: &[String]| Fields::read(&format!("7 (a) b (c)) {}", fields.join(" ")));
        let expected = Fields {
            stack_begin: 28,
            ignored: 33,
            handled: 34,
        };
        assert_eq!(read(&fields), Some(expected));
        assert_eq!(read(&fields[..20]), None);
        fields[25] = "0".to_owned();
        assert_eq!(read(&fields), None);
        assert_eq!(Fields::read(""), None);
    }
}
