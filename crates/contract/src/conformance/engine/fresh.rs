//! Nothing of one request is left for another, nor seen by it.

use super::*;

/// A counter in a global, in memory and in memory that was zero reads 1 in every sandbox.
pub(super) fn each_sandbox_is_fresh(subject: &Subject<'_>) {
    let image = subject.image(
        "counters",
        0,
        &command(
            r#"(global $counter (mut i32) (i32.const 0))
            (data (i32.const 4096) "\00\01\00\00")
            (func (export "_start")
                (global.set $counter (i32.add (global.get $counter) (i32.const 1)))
                (i32.store (i32.const 4096) (i32.add (i32.load (i32.const 4096)) (i32.const 1)))
                (i32.store (i32.const 70000) (i32.add (i32.load (i32.const 70000)) (i32.const 1)))
                (call $say (global.get $counter))
                (call $say (i32.load (i32.const 4096)))
                (call $say (i32.load (i32.const 70000))))"#,
        ),
    );
    ticking(subject.engine, || {
        for _ in 0..300 {
            assert_eq!(answer(&image, &grant(), b""), "1 257 1 ");
        }
        let mut kept: Vec<_> = (0..20).map(|_| Running::spawn(&image, &grant(), b"")).collect();
        for running in &mut kept {
            running.finish().expect("it answers");
            assert_eq!(running.said().text(), "1 257 1 ");
        }
    });
}

/// A guest that dirties all it can and then fails, or that looks for dirt.
fn dirty(subject: &Subject<'_>) -> Arc<dyn Image> {
    subject.image(
        "dirty",
        0,
        &command(
            r#"(table $table 8 funcref)
            (elem (table $table) (i32.const 0) func $zero)
            (elem declare func $one)
            (type $number (func (result i32)))
            (global $global (mut i64) (i64.const 42))
            (global $float (mut f64) (f64.const 0.5))
            (data (i32.const 4096) "clean")
            (data $passive "passive")
            (func $zero (result i32) (i32.const 0))
            (func $one (result i32) (i32.const 1))
            (func $deep (result i32) (i32.add (call $deep) (i32.const 1)))
            ;; Where memory from an address on is not zero, or its end.
            (func $zeros (param $at i32) (result i32)
                (local $end i32)
                (local.set $end (i32.mul (memory.size) (i32.const 65536)))
                (loop $next
                    (if (i32.lt_u (local.get $at) (local.get $end)) (then
                        (if (i64.eqz (i64.load (local.get $at))) (then
                            (local.set $at (i32.add (local.get $at) (i32.const 8)))
                            (br $next))))))
                (local.get $at))
            (func $dirty
                (drop (memory.grow (i32.const 62)))
                (memory.fill (i32.const 128) (i32.const 0xaa)
                    (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 128)))
                (global.set $global (i64.const 0xaaaa))
                (global.set $float (f64.const 1.5))
                (table.set $table (i32.const 0) (ref.func $one))
                (table.set $table (i32.const 7) (ref.func $one))
                (data.drop $passive))
            (func (export "_start")
                (local $letter i32)
                (local.set $letter (call $letter))
                (if (i32.ne (local.get $letter) (i32.const 99)) (then (call $dirty)))
                (if (i32.eq (local.get $letter) (i32.const 116)) (then (unreachable)))
                (if (i32.eq (local.get $letter) (i32.const 111)) (then (drop (call $deep))))
                (if (i32.eq (local.get $letter) (i32.const 115)) (then (loop $spin (br $spin))))
                (if (i32.eq (local.get $letter) (i32.const 101)) (then (call $proc_exit (i32.const 9))))
                (if (i32.eq (local.get $letter) (i32.const 114)) (then (return)))
                (call $say (memory.size))
                (call $say (call $zeros (i32.const 5000)))
                (call $say (memory.grow (i32.const 62)))
                (call $say (call $zeros (i32.const 5000)))
                (call $print (i32.const 4096) (i32.const 5))
                (memory.init $passive (i32.const 4096) (i32.const 0) (i32.const 7))
                (call $print (i32.const 4096) (i32.const 7))
                (call $number (i32.const 1) (global.get $global))
                (call $say (i32.trunc_f64_u (f64.mul (global.get $float) (f64.const 2))))
                (call $say (call_indirect $table (type $number) (i32.const 0)))
                (call $say (ref.is_null (table.get $table (i32.const 7)))))"#,
        ),
    )
}

const CLEAN: &str = "2 131072 2 4194304 cleanpassive42 1 0 1 ";

/// After sandboxes that filled memory, globals and tables and then answered, failed or were dropped, the next is as
/// the module says: also in pages that it grows, and also when it is another module's.
pub(super) fn a_sandbox_shows_nothing_of_those_before_it(subject: &Subject<'_>) {
    let (first, second) = (dirty(subject), dirty(subject));
    ticking(subject.engine, || {
        let clean = answer(&first, &grant(), b"c");
        assert!(clean == CLEAN || subject.is_native() && !clean.is_empty());
        for round in 0..15 {
            for ending in [b't', b'o', b'e', b'r', b's'] {
                let mut running = Running::spawn(&first, &grant(), &[ending]);
                match ending {
                    b's' => subject.preempt(&mut running, 2),
                    _ => drop(running.finish()),
                }
                drop(running);
                let next = if round % 2 == 0 { &first } else { &second };
                assert_eq!(
                    answer(next, &grant(), b"c"),
                    clean,
                    "after {:?}",
                    char::from(ending)
                );
            }
        }
    });
}

/// Each kind of state that a module can change, alone: what it declares, how it reads it, how it changes it.
const STATES: &[(&str, &str, &str)] = &[
    (
        "(global $g (mut i32) (i32.const -7))",
        "(call $say (global.get $g))",
        "(global.set $g (i32.const 1))",
    ),
    (
        "(global $g (mut i64) (i64.const 0x123456789abcdef0))",
        "(call $number (i32.const 1) (global.get $g))",
        "(global.set $g (i64.const 1))",
    ),
    (
        "(global $g (mut f32) (f32.const nan:0x200001))",
        "(call $say (i32.reinterpret_f32 (global.get $g)))",
        "(global.set $g (f32.const 1))",
    ),
    (
        "(global $g (mut f64) (f64.const -0))",
        "(call $number (i32.const 1) (i64.reinterpret_f64 (global.get $g)))",
        "(global.set $g (f64.const 1))",
    ),
    (
        "(global $other (mut i32) (i32.const 1)) (global $g (mut v128) (v128.const i64x2 3 4))",
        "(call $number (i32.const 1) (i64x2.extract_lane 1 (global.get $g))) (call $say (global.get $other))",
        "(global.set $g (v128.const i64x2 5 6)) (global.set $other (i32.const 2))",
    ),
    (
        "(global $g (mut funcref) (ref.null func))",
        "(call $say (ref.is_null (global.get $g)))",
        "(global.set $g (ref.func $one))",
    ),
    (
        r#"(data (i32.const 65530) "across a page's end")"#,
        "(call $print (i32.const 65530) (i32.const 19))",
        "(memory.fill (i32.const 65530) (i32.const 46) (i32.const 7))",
    ),
    (
        "",
        "(call $say (i32.load8_u (i32.const 131071)))",
        "(i32.store8 (i32.const 131071) (i32.const 1))",
    ),
    (
        "",
        "(call $say (memory.size))",
        "(drop (memory.grow (i32.const 1)))",
    ),
    (
        r#"(data (i32.const 1024) "first") (data $passive "second")"#,
        "(call $print (i32.const 1024) (i32.const 6))",
        "(memory.init $passive (i32.const 1024) (i32.const 0) (i32.const 6))",
    ),
    (
        r#"(data $passive "bytes")"#,
        "(memory.init $passive (i32.const 1024) (i32.const 0) (i32.const 5)) (call $print (i32.const 1024) (i32.const 5))",
        "(data.drop $passive)",
    ),
    (
        "",
        "(call $say (call_indirect $table (type $number) (i32.const 0)))",
        "(table.set $table (i32.const 0) (ref.func $one))",
    ),
    (
        "",
        "(call $say (table.size $table))",
        "(drop (table.grow $table (ref.func $one) (i32.const 2)))",
    ),
    (
        "",
        "(call $say (ref.is_null (table.get $table (i32.const 3))))",
        "(table.fill $table (i32.const 2) (ref.func $one) (i32.const 2))",
    ),
    (
        "",
        "(call $say (call_indirect $table (type $number) (i32.const 1)))",
        "(table.copy $table $table (i32.const 1) (i32.const 0) (i32.const 1))",
    ),
    (
        "(elem $segment func $one)",
        "(call $say (call_indirect $table (type $number) (i32.const 0)))",
        "(table.init $table $segment (i32.const 0) (i32.const 0) (i32.const 1))",
    ),
    (
        "(elem $segment func $one)",
        "(table.init $table $segment (i32.const 2) (i32.const 0) (i32.const 1))
        (call $say (call_indirect $table (type $number) (i32.const 2)))",
        "(elem.drop $segment)",
    ),
    (
        "(global $g (mut i32) (i32.const 0)) (func $begin (global.set $g (i32.const 5))) (start $begin)",
        "(call $say (global.get $g))",
        "(global.set $g (i32.const 6))",
    ),
];

/// Whatever a request changed, the next finds as the module says; also after a request that left by `proc_exit(0)`, and
/// also after one that wrote to much memory besides.
pub(super) fn each_kind_of_state_is_fresh(engine: &dyn Engine) {
    for (declared, read, change) in STATES {
        let much = "(memory.fill (i32.const 2048) (i32.const 7) (i32.const 60000))
            (memory.fill (i32.const 65600) (i32.const 7) (i32.const 65000))";
        for more in ["", much, "(call $proc_exit (i32.const 0))"] {
            let bytes = command(&format!(
                r#"(type $number (func (result i32)))
                    (table $table 4 funcref)
                    (elem (table $table) (i32.const 0) func $zero $two)
                    (elem declare func $one)
                    (func $zero (result i32) (i32.const 0))
                    (func $one (result i32) (i32.const 1))
                    (func $two (result i32) (i32.const 2))
                    {declared}
                    (func (export "_start") {read} {change} {more})"#
            ));
            let compiled = compile(engine, &bytes);
            if let (Err(PrepareError::Unsupported(reason)), true) = (&compiled, declared.contains("v128")) {
                println!("skipped: a global of SIMD, by {}: {reason}", engine.name());
                continue;
            }
            let artefact = compiled.unwrap_or_else(|error| panic!("compiling failed: {error}"));
            let image = load(engine, &artefact).unwrap_or_else(|error| panic!("loading failed: {error}"));
            ticking(engine, || {
                let first = answer(&image, &grant(), b"");
                assert!(!first.is_empty(), "{read} says something");
                for _ in 0..5 {
                    assert_eq!(answer(&image, &grant(), b""), first, "after {change}");
                }
            });
        }
    }
}

/// A guest that adds up its memory, says the sum, and then writes where and how the request says.
const WRITES: &str = r#"
    (data (i32.const 20000) "\01\02\03\04 in a page of its own")
    (data (i32.const 300000) "and another")
    (func $sum (result i64) (local $at i32) (local $sum i64)
        (local.set $at (i32.const 64))
        (loop $next
            (local.set $sum (i64.add (i64.mul (local.get $sum) (i64.const 31)) (i64.load (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (br_if $next (i32.lt_u (local.get $at) (i32.mul (memory.size) (i32.const 65536)))))
        (local.get $sum))
    (func (export "_start") (local $how i32) (local $at i32) (local $round i32)
        (call $number (i32.const 1) (call $sum))
        (drop (call $read (i32.const 16) (i32.const 2)))
        (local.set $how (i32.load8_u (i32.const 16)))
        ;; The pages from 16 KiB on: those before have written pages in every request.
        (local.set $at (i32.add (i32.const 17000) (i32.mul (i32.load8_u (i32.const 17)) (i32.const 4096))))
        (if (i32.eq (local.get $how) (i32.const 115)) ;; s: a store
            (then (i32.store (local.get $at) (i32.const -1))))
        (if (i32.eq (local.get $how) (i32.const 102)) ;; f: a fill of three pages
            (then (memory.fill (local.get $at) (i32.const 255) (i32.const 9000))))
        (if (i32.eq (local.get $how) (i32.const 99)) ;; c: a copy into the next page
            (then (memory.copy (i32.add (local.get $at) (i32.const 3000)) (i32.const 20000) (i32.const 4))
                (memory.copy (local.get $at) (i32.const 20000) (i32.const 4000))))
        (if (i32.eq (local.get $how) (i32.const 114)) ;; r: a host call
            (then (drop (call $random_get (local.get $at) (i32.const 5000)))))
        (if (i32.eq (local.get $how) (i32.const 105)) ;; i: another one
            (then (drop (call $read (local.get $at) (i32.const 5000)))))
        (if (i32.eq (local.get $how) (i32.const 103)) ;; g: a memory that grew
            (then (i32.store (local.get $at) (i32.const -1))
                (i32.store (i32.mul (memory.grow (i32.const 1)) (i32.const 65536)) (i32.const -1))))
        (if (i32.eq (local.get $how) (i32.const 97)) ;; a: all of it
            (then (memory.fill (i32.const 64) (i32.const 255) (i32.const 524000))))
        (if (i32.eq (local.get $how) (i32.const 116)) ;; t: before a trap
            (then (i32.store (local.get $at) (i32.const -1)) (unreachable)))
        (if (i32.eq (local.get $how) (i32.const 111)) ;; o: before a store beyond the end
            (then (i32.store (local.get $at) (i32.const -1)) (i32.store (i32.const -65536) (i32.const 1))))
        (if (i32.eq (local.get $how) (i32.const 119)) ;; w: before and after a wait
            (then (i32.store (local.get $at) (i32.const -1))
                (i32.store (i32.const 1040) (i32.const 1))
                (i64.store (i32.const 1048) (i64.const 2000000))
                (drop (call $poll_oneoff (i32.const 1024) (i32.const 1200) (i32.const 1) (i32.const 1300)))
                (i32.store (i32.add (local.get $at) (i32.const 4096)) (i32.const -1))))
        (if (i32.eq (local.get $how) (i32.const 98)) ;; b: all along, through several turns
            (then (loop $more
                (i32.store (i32.add (local.get $at) (i32.and (local.get $round) (i32.const 32764))) (i32.const -1))
                (local.set $round (i32.add (local.get $round) (i32.const 1)))
                (br_if $more (i32.lt_u (local.get $round) (i32.const 4000000)))))))
"#;

/// Requests that write to the same pages, and between them others that write elsewhere in one of the ways there are: each
/// finds the memory as the module says.
pub(super) fn memory_is_fresh_whichever_pages_were_written(engine: &dyn Engine) {
    let code = with_memory(r#"(memory (export "memory") 8)"#, WRITES);
    ticking(engine, || {
        for (seed, ways) in [&b"sfcri"[..], b"sgatowb", b"ssssssssri", b"wsotf"]
            .iter()
            .enumerate()
        {
            let image = image(engine, &code);
            let first = answer(&image, &grant(), b"n");
            let mut state = seed as u32;
            let mut random = |below: usize| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) as usize % below
            };
            for request in 0..120 {
                // Runs of requests that write nothing unusual, of many lengths.
                let way = if random(4) == 0 {
                    ways[random(ways.len())]
                } else {
                    b'n'
                };
                let mut body = vec![way, random(100) as u8];
                body.resize(4_000, 0xee);
                let (ended, said) = serve(&image, &grant(), &body);
                match way {
                    b't' | b'o' => assert!(ended.is_err(), "{} traps", char::from(way)),
                    _ => {
                        ended.expect("it ends");
                        assert_eq!(
                            said,
                            first,
                            "request {request} of {}",
                            String::from_utf8_lossy(ways)
                        );
                    }
                }
            }
        }
    });
}

/// Sandboxes that take turns keep what they wrote, and read nothing that another wrote.
pub(super) fn sandboxes_do_not_see_each_other(subject: &Subject<'_>) {
    let image = subject.image(
        "keeps",
        0,
        &start(
            "(local $letter i32) (local $round i32) (local $at i32)
            (local.set $letter (call $letter))
            (drop (memory.grow (i32.const 14)))
            (memory.fill (i32.const 1024) (local.get $letter) (i32.const 1047552))
            (loop $again
                (local.set $at (i32.const 1024))
                (loop $next
                    (if (i32.ne (i32.load8_u (local.get $at)) (local.get $letter)) (then (unreachable)))
                    (local.set $at (i32.add (local.get $at) (i32.const 1)))
                    (br_if $next (i32.lt_u (local.get $at) (i32.const 1048576))))
                (local.set $round (i32.add (local.get $round) (i32.const 1)))
                (br_if $again (i32.lt_u (local.get $round) (i32.const 20))))
            (call $print (i32.const 1048575) (i32.const 1))",
        ),
    );
    ticking(subject.engine, || {
        let mut running: Vec<_> = (b'a'..b'i')
            .map(|letter| (letter, Running::spawn(&image, &grant(), &[letter])))
            .collect();
        let (mut ended, mut turns) = (0, 0);
        while !running.is_empty() {
            running.retain_mut(|(letter, running)| {
                turns += 1;
                let Some(end) = running.turn() else { return true };
                end.expect("it answers");
                assert_eq!(running.said().text(), char::from(*letter).to_string());
                ended += 1;
                false
            });
        }
        assert!(ended == 8 && turns > 8, "they took {turns} turns");
    });
}

/// Where `reuse` is offered, the next request finds the memory of the last; where not, the input comes back whole.
pub(super) fn a_renewed_sandbox_keeps_its_memory(subject: &Subject<'_>) {
    let image = subject.image(
        "counts",
        0,
        &command(
            r#"(global $counter (mut i32) (i32.const 0))
            (func (export "_start")
                (global.set $counter (i32.add (global.get $counter) (i32.const 1)))
                (call $say (global.get $counter))
                (call $print (i32.const 1024) (call $read (i32.const 1024) (i32.const 100))))"#,
        ),
    );
    ticking(subject.engine, || {
        let mut running = Running::spawn(&image, &grant(), b"first");
        running.finish().expect("it answers");
        assert_eq!(running.said().text(), "1 first");
        for (count, body) in [(2, "second"), (3, "third")] {
            match running.renew(&grant(), body.as_bytes()) {
                Ok(()) => {
                    running.finish().expect("it answers");
                    assert_eq!(running.said().text(), format!("{count} {body}"));
                }
                Err(Input {
                    body: Body::Whole(back),
                    ..
                }) => assert_eq!(back, body.as_bytes()),
                Err(input) => panic!("it comes back as {input:?}"),
            }
        }
        // Whatever was kept is not kept for others.
        assert_eq!(answer(&image, &grant(), b"other"), "1 other");
    });
}
