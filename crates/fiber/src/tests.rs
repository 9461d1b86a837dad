use super::*;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
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

#[test]
fn a_guest_is_interrupted_wherever_it_is_and_goes_on() {
    let (thread, mut fiber) = fiber();
    let id = thread.id();
    let (stop, done) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let mut out = [0_u64; 2];
    fiber.start(
        counts as *const c_void,
        [(&raw const stop).addr(), (&raw mut out).expose_provenance(), 0],
    );
    let asks = done.clone();
    let asking = thread::spawn(move || {
        while !asks.load(Ordering::Relaxed) {
            preempt(id);
            thread::yield_now();
        }
    });
    let long = std::env::var_os("MILLPOND_TEST_LONG").is_some();
    let enough = if long { 1_000_000 } else { 1_000 };
    let mut preempted = 0;
    loop {
        match next(&mut fiber) {
            Some(Event::Preempted) => preempted += 1,
            other => {
                assert_eq!(other, Some(Event::Returned));
                break;
            }
        }
        if preempted == enough {
            stop.store(true, Ordering::Relaxed);
        }
    }
    done.store(true, Ordering::Relaxed);
    asking.join().unwrap();
    assert!(preempted >= enough);
    assert_eq!(out[0], out[1]);
}
