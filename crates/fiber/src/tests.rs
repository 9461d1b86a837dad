use super::*;
use std::{
    cell::Cell,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

fn next(fiber: &mut Fiber) -> Option<Event> {
    // SAFETY: these tests' guests are what `resume` asks for, and each test stays on its thread.
    unsafe { fiber.resume() }
}

fn fiber() -> (Thread, Fiber) {
    install().unwrap();
    (Thread::here().unwrap(), Fiber::new(Stack::new(64 << 10).unwrap()))
}

extern "C" fn adds(handle: usize, a: usize, b: usize) {
    // SAFETY: a function of this type.
    let enter: extern "C" fn(usize, u32, *mut u8, *mut c_void) =
        unsafe { std::mem::transmute::<*const c_void, _>(enter_host()) };
    let mut sum = a + b;
    enter(handle, 7, (&raw mut sum).cast(), ptr::null_mut());
    enter(handle, 8, (&raw mut sum).cast(), ptr::null_mut());
}

#[test]
fn a_guest_calls_its_host_and_returns() {
    let (_thread, mut fiber) = fiber();
    let handle = fiber.handle().addr();
    fiber.start(adds as *const c_void, [handle, 2, 3]);
    for wanted in [(7, 5), (8, 6)] {
        let Some(Event::Call { number, slots, .. }) = next(&mut fiber) else {
            panic!("no call");
        };
        let sum = slots.cast::<usize>();
        // SAFETY: the guest's own, which lives while it waits.
        let sum = unsafe { &mut *sum };
        assert_eq!((number, *sum), wanted);
        *sum += 1;
    }
    assert_eq!(next(&mut fiber), Some(Event::Returned));
    assert_eq!(next(&mut fiber), None);
}

extern "C" fn reads(address: usize, _: usize, _: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads, or faults.
    unsafe {
        std::arch::asm!("mov rax, [{}]", in(reg) address, out("rax") _)
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("ldr x9, [{}]", in(reg) address, out("x9") _)
    };
}

#[test]
fn a_fault_ends_the_guest_and_nothing_else() {
    let (_thread, mut fiber) = fiber();
    for address in [8, fiber.stack.low()] {
        fiber.start(reads as *const c_void, [address, 0, 0]);
        let Some(Event::Fault(fault)) = next(&mut fiber) else {
            panic!("no fault");
        };
        assert_eq!((fault.signal, fault.address), (libc::SIGSEGV, address));
        assert_eq!(fault.stack_overflow, address != 8);
        assert_eq!(next(&mut fiber), None);
    }
}

/// Counts in a vector register and in a general one until told to stop.
extern "C" fn counts(stop: usize, out: usize, _: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads the one and writes the other, which the test keeps.
    unsafe {
        std::arch::asm!(
            "pxor xmm7, xmm7",
            "pcmpeqd xmm6, xmm6",
            "xor rcx, rcx",
            "2:",
            "psubq xmm7, xmm6",
            "inc rcx",
            "cmp byte ptr [rdi], 0",
            "je 2b",
            "movq [rsi], xmm7",
            "mov [rsi + 8], rcx",
            in("rdi") stop, in("rsi") out, out("rcx") _, out("xmm6") _, out("xmm7") _,
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "movi d7, #0",
            "mov x9, #1",
            "fmov d6, x9",
            "mov x9, #0",
            "2:",
            "add d7, d7, d6",
            "add x9, x9, #1",
            "ldrb w10, [x0]",
            "cbz w10, 2b",
            "str d7, [x1]",
            "str x9, [x1, #8]",
            in("x0") stop, in("x1") out, out("x9") _, out("x10") _, out("d6") _, out("d7") _,
        );
    }
}

/// The same in the eight lanes of a wide vector register.
#[cfg(target_arch = "x86_64")]
extern "C" fn counts_in_eight(stop: usize, out: usize, _: usize) {
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "vpxorq zmm27, zmm27, zmm27",
            "vpternlogd zmm26, zmm26, zmm26, 255",
            "xor rcx, rcx",
            "2:",
            "vpsubq zmm27, zmm27, zmm26",
            "inc rcx",
            "cmp byte ptr [rdi], 0",
            "je 2b",
            "vmovdqu64 [rsi], zmm27",
            "mov [rsi + 64], rcx",
            "vzeroupper",
            in("rdi") stop, in("rsi") out, out("rcx") _, out("zmm26") _, out("zmm27") _,
        );
    }
}

#[test]
fn a_guest_is_interrupted_wherever_it_is_and_goes_on() {
    is_interrupted(counts, 2);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn wide_vectors_outlive_an_interruption() {
    if std::arch::is_x86_feature_detected!("avx512f") {
        is_interrupted(counts_in_eight, 9);
    } else {
        println!("skipped: this processor has no AVX-512");
    }
}

/// A guest that leaves equal numbers in so many words.
fn is_interrupted(guest: extern "C" fn(usize, usize, usize), words: usize) {
    thread_local! {
        static OURS: Cell<u64> = const { Cell::new(0) };
    }
    // Each needs a core for its guest and one for who asks.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();

    let (thread, mut fiber) = fiber();
    let id = thread.id();
    let stop = AtomicBool::new(false);
    let (done, times) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut out = [0_u64; 9];
    fiber.start(
        guest as *const c_void,
        [(&raw const stop).addr(), (&raw mut out).expose_provenance(), 0],
    );
    let asking = thread::spawn({
        let (done, times) = (done.clone(), times.clone());
        move || {
            // Again when the last was heeded, or missed: a thread that only ever handles signals gets nowhere.
            while !done.load(Ordering::Relaxed) {
                let before = times.load(Ordering::Relaxed);
                preempt(id);
                for _ in 0..10_000 {
                    if times.load(Ordering::Relaxed) != before {
                        break;
                    }
                    std::hint::spin_loop();
                }
                thread::yield_now();
            }
        }
    });
    let long = std::env::var_os("MILLPOND_TEST_LONG").is_some();
    let enough = if long { 1_000_000 } else { 10_000 };
    // SAFETY: this thread's own.
    let errno = unsafe { libc::__errno_location() };
    for turn in 0.. {
        OURS.set(turn);
        // SAFETY: as above.
        let (event, errno) = unsafe {
            errno.write(42);
            (next(&mut fiber), errno.read())
        };
        assert_eq!((OURS.get(), errno), (turn, 42));
        match event {
            Some(Event::Preempted) => {
                if times.fetch_add(1, Ordering::Relaxed) + 1 == enough {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            other => {
                assert_eq!(other, Some(Event::Returned));
                break;
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    asking.join().unwrap();
    assert!(times.load(Ordering::Relaxed) >= enough);
    assert!(
        out[0] > 0 && out[..words].iter().all(|word| *word == out[0]),
        "{out:?}"
    );
}
