//! Who runs when: turns and their ends, waiting, many at once.

use super::*;

/// A loop without an end gives its core back again and again, others run in between, and dropping it is enough.
pub(super) fn an_endless_loop_is_preempted_and_can_be_dropped(subject: &Subject<'_>) {
    let (spin, echo) = (subject.image("spins", 0, &start(SPIN)), echo(subject));
    ticking(subject.engine, || {
        let mut spinning: Vec<_> = (0..3).map(|_| Running::spawn(&spin, &grant(), b"")).collect();
        for round in 0..5 {
            for running in &mut spinning {
                subject.preempt(running, 1);
                assert_eq!(
                    answer(&echo, &grant(), &[b'a' + round]),
                    char::from(b'a' + round).to_string()
                );
            }
        }
        drop(spinning);
        assert_eq!(answer(&echo, &grant(), b"after"), "after");
    });
}

/// Its quantum need not be over for that; and what was asked in another turn does not count.
pub(super) fn a_guest_that_is_asked_for_its_core_gives_it_back(engine: &dyn Engine) {
    engine.seat(CoreId(0)).expect("a thread can be a core's");
    let mut running = Running::spawn(&image(engine, &start(SPIN)), &grant(), b"");
    let at = Instant::now() + Duration::from_secs(3600);
    for _ in 0..3 {
        let asked = AtomicBool::new(false);
        let until = Until { at, asked: &asked };
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                asked.store(true, Ordering::SeqCst);
                engine.preempt(CoreId(0));
            });
            let step = running.step_until(until);
            assert!(
                matches!(step, Step::Preempted),
                "it should be preempted, but: {step:?}"
            );
            assert!(asked.load(Ordering::SeqCst), "nobody asked for that");
        });
    }
}

/// A compiler must not think that a function that it does not know leaves a module's state alone.
pub(super) fn who_is_called_by_a_table_sees_globals_and_memory(engine: &dyn Engine) {
    let image = image(
        engine,
        &command(
            r#"
            (type $unary (func (param i32) (result i32)))
            (table 4 funcref)
            (elem (i32.const 1) $twice $deeper)
            (global $depth (mut i32) (i32.const 4096))
            (func $twice (param $n i32) (result i32)
                (i32.store (global.get $depth) (local.get $n))
                (i32.mul (local.get $n) (i32.const 2)))
            ;; As code with a stack of its own in memory does.
            (func $deeper (param $n i32) (result i32)
                (local $frame i32)
                (global.set $depth (local.tee $frame (i32.sub (global.get $depth) (i32.const 16))))
                (i64.store offset=8 (local.get $frame) (i64.const 5))
                (local.set $n (call_indirect (type $unary)
                    (local.get $n)
                    (i32.add (i32.const 1) (i32.gt_u (local.get $n) (i32.const 100)))))
                (local.set $n (i32.add (local.get $n) (i32.load offset=8 (local.get $frame))))
                (global.set $depth (i32.add (local.get $frame) (i32.const 16)))
                (local.get $n))
            (func (export "_start")
                (local $n i32)
                (local.set $n (call_indirect (type $unary) (call $letter) (i32.const 2)))
                (call $say (local.get $n))
                (call $say (global.get $depth))
                (call $say (i32.load (i32.const 4080)))
                (call $say (i32.load (i32.const 4088))))
            "#,
        ),
    );
    assert_eq!(answer(&image, &grant(), b"a"), "199 4096 97 5 ");
}

/// Integers, floating-point numbers, locals and memory survive being preempted, among many that take turns.
pub(super) fn a_preempted_computation_comes_out_right(engine: &dyn Engine) {
    const ROUNDS: u32 = 10_000_000;
    let image = image(
        engine,
        &start(&format!(
            "(local $n i32) (local $mix i64) (local $sum f64) (local $step f32)
            (local.set $mix (i64.extend_i32_u (call $letter)))
            (local.set $step (f32.convert_i64_u (local.get $mix)))
            (loop $next
                (local.set $mix (i64.add
                    (i64.mul (local.get $mix) (i64.const 6364136223846793005))
                    (i64.const 1442695040888963407)))
                (local.set $sum (f64.add
                    (f64.mul (local.get $sum) (f64.const 0.5))
                    (f64.promote_f32 (f32.mul (local.get $step) (f32.convert_i32_u (local.get $n))))))
                (i64.store (i32.const 2048) (i64.xor (i64.load (i32.const 2048)) (local.get $mix)))
                (local.set $n (i32.add (local.get $n) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get $n) (i32.const {ROUNDS}))))
            (call $number (i32.const 1) (local.get $mix))
            (call $number (i32.const 1) (i64.reinterpret_f64 (local.get $sum)))
            (call $number (i32.const 1) (i64.load (i32.const 2048)))",
        )),
    );
    let expected = |letter: u8| {
        let (mut mix, mut sum, mut all) = (u64::from(letter), 0.0_f64, 0);
        for n in 0..ROUNDS {
            mix = mix
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            #[expect(clippy::cast_precision_loss, reason = "as f32.convert_i32_u does")]
            let n = n as f32;
            sum = sum * 0.5 + f64::from(f32::from(letter) * n);
            all ^= mix;
        }
        format!("{mix} {} {all} ", sum.to_bits())
    };
    ticking(engine, || {
        let mut running: Vec<_> = (b'a'..b'm')
            .map(|letter| (letter, Running::spawn(&image, &grant(), &[letter])))
            .collect();
        let mut preempted = 0;
        while !running.is_empty() {
            running.retain_mut(|(letter, running)| {
                let Some(end) = running.turn() else { return true };
                end.expect("it answers");
                assert_eq!(running.said().text(), expected(*letter));
                preempted += running.preempted;
                false
            });
        }
        assert!(preempted > 0, "120 million rounds take longer than a quantum");
    });
}

/// Code that runs before `_start` is untrusted, too.
pub(super) fn an_endless_start_section_is_preempted(engine: &dyn Engine) {
    let section = |body: &str| {
        command(&format!(
            r#"(func $section {body}) (start $section) (func (export "_start") (call $say (i32.const 1)))"#
        ))
    };
    let spin = image(engine, &section(SPIN));
    let trap = image(engine, &section("(unreachable)"));
    let write = image(engine, &section("(call $say (i32.const 0))"));
    ticking(engine, || {
        let mut running = Running::spawn(&spin, &grant(), b"");
        Subject::wasm(engine).preempt(&mut running, 3);
        drop(running);
        assert!(matches!(fault(&trap, &grant(), b""), Fault::Trap { .. }));
        assert_eq!(answer(&write, &grant(), b""), "0 1 ");
    });
}

/// A guest that sleeps for 20 ms, then says how many events there were.
fn sleeper(subject: &Subject<'_>) -> Arc<dyn Image> {
    subject.image(
        "sleeps",
        0,
        &start(
            "(i32.store (i32.const 1040) (i32.const 1))
            (i64.store (i32.const 1048) (i64.const 20000000))
            (call $say (call $poll_oneoff (i32.const 1024) (i32.const 2048) (i32.const 1) (i32.const 3000)))
            (call $say (i32.load (i32.const 3000)))",
        ),
    )
}

/// Sleeping is [`Step::Waiting`]: others run meanwhile, running it early is harmless, and it ends in time.
pub(super) fn a_sleeping_guest_leaves_its_core(subject: &Subject<'_>) {
    let (sleeper, echo) = (sleeper(subject), echo(subject));
    ticking(subject.engine, || {
        let before = Instant::now();
        let mut running = Running::spawn(&sleeper, &grant(), b"");
        while running.waited == 0 {
            let step = running.step();
            assert!(matches!(step, Step::Waiting { .. } | Step::Preempted), "{step:?}");
        }
        assert_eq!(answer(&echo, &grant(), b"meanwhile"), "meanwhile");
        let end = running.turn().unwrap_or_else(|| running.finish());
        end.expect("it answers");
        assert!(before.elapsed() >= Duration::from_millis(20), "it slept");
        assert_eq!(running.said().text(), "0 1 ");
        // Many at once, each woken on its own.
        let mut many: Vec<_> = (0..20).map(|_| Running::spawn(&sleeper, &grant(), b"")).collect();
        for running in &mut many {
            assert!(running.turn().is_none());
        }
        for running in &mut many {
            running.finish().expect("it answers");
            assert_eq!(running.said().text(), "0 1 ");
        }
    });
}

/// Dropped before its first turn, when preempted, waiting, done or failed, a sandbox gives all back.
pub(super) fn a_sandbox_can_be_dropped_at_any_step(subject: &Subject<'_>) {
    let (spin, echo, sleeper) = (
        subject.image("spins", 0, &start(SPIN)),
        echo(subject),
        sleeper(subject),
    );
    let trap = subject.image("dies", 0, &start("(unreachable)"));
    ticking(subject.engine, || {
        // More than an engine has places, so that one that is not given back is missed.
        for _ in 0..3000 {
            drop(Running::spawn(&echo, &grant(), b""));
        }
        for _ in 0..20 {
            subject.preempt(&mut Running::spawn(&spin, &grant(), b""), 1);
        }
        for _ in 0..300 {
            let mut running = Running::spawn(&sleeper, &grant(), b"");
            while running.waited == 0 {
                let _ = running.step();
            }
            drop(running);
            assert!(matches!(fault(&trap, &grant(), b""), Fault::Trap { .. }));
            assert_eq!(answer(&echo, &grant(), b"x"), "x");
        }
    });
}

/// Sixty-four that are in the middle of something, and each goes on as if alone.
pub(super) fn many_sandboxes_live_at_once(subject: &Subject<'_>) {
    let (sleeper, echo) = (sleeper(subject), echo(subject));
    ticking(subject.engine, || {
        let mut sleeping: Vec<_> = (0..64).map(|_| Running::spawn(&sleeper, &grant(), b"")).collect();
        for running in &mut sleeping {
            let _ = running.step();
        }
        for n in 0..64_u32 {
            assert_eq!(answer(&echo, &grant(), n.to_string().as_bytes()), n.to_string());
        }
        for running in &mut sleeping {
            running.finish().expect("it answers");
        }
    });
}

/// An image is spawned and run on several threads at once.
pub(super) fn an_image_serves_several_threads(subject: &Subject<'_>) {
    let echo = echo(subject);
    ticking(subject.engine, || {
        thread::scope(|scope| {
            for thread in 0..4_u32 {
                let echo = &echo;
                scope.spawn(move || {
                    for n in 0..200_u32 {
                        let body = format!("{thread} {n}");
                        assert_eq!(answer(echo, &grant(), body.as_bytes()), body);
                    }
                });
            }
        });
    });
}
