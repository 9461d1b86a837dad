//! Counted loops as [`super::counted`] and [`super::widen`] know them, with everything at random that these look at: here and in Wasmtime.

use crate::{
    Bounds, Toolchain,
    instance::{Image, InstanceError},
    layout::Trap,
    machine::{Machine, compile, toolchain},
    plan::{Exported, slot},
};
use contract::conformance::guest::wasm;
use fiber::Thread;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use std::{fmt::Write as _, sync::Arc};

/// Loops in a module, and calls of each.
const LOOPS: u32 = 12;
const CALLS: u32 = 40;
const MEMORY: u32 = 65_536;

fn pick<T: Copy>(random: &mut StdRng, from: &[T]) -> T {
    from[random.next_u32() as usize % from.len()]
}

/// A function of `$a`, `$b`, `$c`: addresses; and `$n`: turns, more or less.
fn function(random: &mut StdRng, number: u32) -> String {
    let mut text = format!(
        "(func (export \"f{number}\") (param $a i32) (param $b i32) (param $c i32) (param $n i32) (result i64)
  (local $i i32) (local $t i32) (local $last v128) (local $v v128) (local $k v128) (local $s i64)
  (local.set $k (v128.const i32x4 3 5 7 11))
"
    );
    let vectors = !random.next_u32().is_multiple_of(3);
    let copies = if vectors {
        pick(random, &[1, 1, 1, 2, 4])
    } else {
        pick(random, &[1, 2])
    };
    let size: i32 = if vectors { 16 } else { pick(random, &[1, 4, 8]) };
    let down = random.next_u32().is_multiple_of(5);
    let step = size * copies * if down { -1 } else { 1 };
    // Addresses count by themselves, or by one counter.
    let apart = random.next_u32().is_multiple_of(2);
    let carried = vectors && random.next_u32().is_multiple_of(3);
    let other_way = random.next_u32().is_multiple_of(6);
    let by = pick(random, &[1, 2, 4, 3]);
    let begin = pick(
        random,
        &[
            "(local.get $n)",
            "(i32.mul (local.get $n) (i32.const 2))",
            "(i32.const 8)",
        ],
    );
    let _ = writeln!(text, "  (local.set $t {begin})\n  (loop $l");
    for copy in 0..copies {
        let address = |random: &mut StdRng, pointer: &str| {
            let place = size * if down { copies - 1 - copy } else { copy };
            // As a constant that is added, or as the instruction's offset, or as some of both.
            let more = pick(random, &[0, 0, 0, 8, 16, 400]);
            let (add, offset) = match random.next_u32() % 3 {
                0 => (place, more),
                1 => (more, place),
                _ => (place + more, 0),
            };
            let of = match apart {
                true => format!("(local.get ${pointer})"),
                false => format!("(i32.add (local.get ${pointer}) (local.get $i))"),
            };
            (format!("(i32.add {of} (i32.const {add}))"), offset)
        };
        let (first, first_offset) = address(random, "a");
        let (second, second_offset) = address(random, "b");
        let pointer = pick(random, &["a", "b", "c", "c"]);
        let (to, to_offset) = address(random, pointer);
        let value = if vectors {
            let mut value = format!("(v128.load offset={first_offset} {first})");
            let mut other = format!("(v128.load offset={second_offset} {second})");
            if carried {
                other = format!(
                    "(i8x16.shuffle 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 (local.get $last) (local.tee $v {other}))"
                );
            }
            let how = pick(
                random,
                &[
                    "i32x4.add",
                    "i64x2.sub",
                    "i16x8.mul",
                    "i32x4.max_s",
                    "v128.xor",
                    "v128.andnot",
                    "i8x16.min_u",
                ],
            );
            value = format!("({how} {value} {other})");
            match random.next_u32() % 4 {
                0 => value = format!("(i32x4.mul {value} (local.get $k))"),
                1 => value = format!("(i32x4.shr_u {value} (i32.const 5))"),
                2 => {
                    value = format!(
                        "(i8x16.add {value} (v128.const i8x16 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16))"
                    )
                }
                _ => {}
            }
            value
        } else {
            let load = |offset: i32, at: &str| match size {
                1 => format!("(i64.load8_u offset={offset} {at})"),
                4 => format!("(i64.load32_s offset={offset} {at})"),
                _ => format!("(i64.load offset={offset} {at})"),
            };
            let how = pick(random, &["i64.add", "i64.sub", "i64.xor"]);
            format!(
                "({how} {} {})",
                load(first_offset, &first),
                load(second_offset, &second)
            )
        };
        let store = match (vectors, size) {
            (true, _) => "v128.store",
            (_, 1) => "i64.store8",
            (_, 4) => "i64.store32",
            _ => "i64.store",
        };
        let store = format!("({store} offset={to_offset} {to} {value})");
        // A turn that does nothing else at this address must not be one that may never end.
        let look = format!("(local.set $s (i64.add (local.get $s) (i64.load8_u offset={to_offset} {to})))");
        let store = match random.next_u32() % 12 {
            0 => format!("(if (i32.and (local.get $t) (i32.const 1)) (then {store})) {look}"),
            1 => format!("{look} (block (br_if 0 (i32.and (local.get $t) (i32.const 4))) {store})"),
            _ => store,
        };
        let _ = writeln!(text, "    {store}");
        if carried {
            text.push_str("    (local.set $last (local.get $v))\n");
        }
        if !vectors && random.next_u32().is_multiple_of(3) {
            let (at, offset) = address(random, "b");
            let _ = writeln!(
                text,
                "    (local.set $s (i64.add (local.get $s) (i64.load8_u offset={offset} {at})))"
            );
        }
    }
    if apart {
        let back = if other_way { -step } else { step };
        for (pointer, step) in [("a", step), ("b", back), ("c", step)] {
            let _ = writeln!(
                text,
                "    (local.set ${pointer} (i32.add (local.get ${pointer}) (i32.const {step})))"
            );
        }
    } else {
        let _ = writeln!(
            text,
            "    (local.set $i (i32.add (local.get $i) (i32.const {step})))"
        );
    }
    if random.next_u32().is_multiple_of(2) {
        let _ = writeln!(
            text,
            "    (br_if $l (local.tee $t (i32.sub (local.get $t) (i32.const {by})))))"
        );
    } else {
        let _ = writeln!(
            text,
            "    (br_if $l (i32.ne (local.tee $t (i32.add (local.get $t) (i32.const {by}))) (i32.const 40))))"
        );
    }
    text.push_str(
        "  (i64.add (local.get $s) (i64.add (i64.extend_i32_s (local.get $t)) (i64.add
    (i64x2.extract_lane 1 (local.get $last)) (i64.extend_i32_u (i32.add (local.get $i) (local.get $c)))))))\n",
    );
    text
}

/// With a function that fills the memory.
fn module(random: &mut StdRng, most: &str) -> String {
    let mut text = format!(
        "(module (memory (export \"memory\") {} {most})
(func (export \"fill\") (param i64) (local $i i32)
  (loop $l
    (i64.store (local.get $i) (local.tee 0 (i64.add (i64.mul (local.get 0) (i64.const 6364136223846793005)) (i64.const 1442695040888963407))))
    (br_if $l (i32.ne (local.tee $i (i32.add (local.get $i) (i32.const 8))) (i32.const {MEMORY})))))
",
        MEMORY / 65_536
    );
    for number in 0..LOOPS {
        text.push_str(&function(random, number));
    }
    text.push(')');
    text
}

/// Arrays that overlap or not, in the middle or at the edges, and outside.
fn addresses(random: &mut StdRng) -> [u32; 3] {
    let around = match random.next_u32() % 8 {
        0 => 0,
        1 => MEMORY.wrapping_sub(random.next_u32() % 700),
        2 => 0_u32.wrapping_sub(random.next_u32() % 500),
        3 => 1 << 31,
        _ => 20_000,
    };
    [(); 3].map(|()| match random.next_u32() % 4 {
        0 => around.wrapping_add(random.next_u32() % 80).wrapping_sub(40),
        1 => around.wrapping_add(8 * (random.next_u32() % 10)),
        2 => around.wrapping_add(random.next_u32() % 4_000),
        _ => around,
    })
}

fn compare(
    random: &mut StdRng,
    bounds: Bounds,
    toolchain: &Toolchain,
    engine: &wasmtime::Engine,
) -> Result<(), String> {
    let most = pick(random, &["1", "", "65536"]);
    let text = module(random, most);
    let bytes = wasm(&text);
    let failed = |what: String| format!("{what}\n{text}");
    let image: Arc<Image> =
        Arc::new(compile(&bytes, bounds, toolchain).map_err(|refusal| failed(refusal.to_string()))?);
    let theirs = wasmtime::Module::new(engine, &bytes).map_err(|error| failed(format!("{error:#}")))?;
    let mut store = wasmtime::Store::new(engine, ());
    let theirs =
        wasmtime::Instance::new(&mut store, &theirs, &[]).map_err(|error| failed(format!("{error:#}")))?;
    let mut machine = Machine::new();
    machine
        .instantiate(&image, &[])
        .map_err(|error| failed(format!("{error:?}")))?;
    let place = |name: &str| {
        let exported = image.plan.exports.iter().find(|(export, _)| **export == *name);
        match exported {
            Some((_, Exported::Function(place))) => *place,
            _ => panic!("{name} is not there"),
        }
    };
    let word = |outcome: crate::machine::Outcome| {
        outcome.map(|values| u64::from_le_bytes(values[0].1[..8].try_into().unwrap()))
    };
    let memory = theirs.get_memory(&mut store, "memory").unwrap();
    let fill = theirs.get_typed_func::<u64, ()>(&mut store, "fill").unwrap();
    for number in 0..LOOPS {
        let name = format!("f{number}");
        let function = theirs
            .get_typed_func::<(u32, u32, u32, u32), u64>(&mut store, &name)
            .unwrap();
        for _ in 0..CALLS {
            let [a, b, c] = addresses(random);
            let n = pick(
                random,
                &[
                    1,
                    2,
                    3,
                    4,
                    5,
                    6,
                    7,
                    8,
                    12,
                    16,
                    20,
                    31,
                    32,
                    33,
                    64,
                    100,
                    0,
                    u32::MAX - 3,
                ],
            );
            let seed = random.next_u64();
            machine
                .call(0, place("fill"), &[slot(&seed.to_le_bytes())])
                .unwrap();
            fill.call(&mut store, seed).unwrap();
            let arguments = [a, b, c, n].map(|value| slot(&value.to_le_bytes()));
            let ours = word(machine.call(0, place(&name), &arguments));
            let expected = function.call(&mut store, (a, b, c, n));
            let what = format!(
                "{name}({}, {}, {}, {n})",
                a.cast_signed(),
                b.cast_signed(),
                c.cast_signed()
            );
            match (ours, expected) {
                (Ok(ours), Ok(expected)) if ours == expected => {}
                (Err(InstanceError::Trap(Trap::MemoryOutOfBounds)), Err(error))
                    if error.downcast_ref() == Some(&wasmtime::Trap::MemoryOutOfBounds) =>
                {
                    if bounds == Bounds::Guard {
                        // What was stored around the trap is left open.
                        continue;
                    }
                }
                (ours, expected) => return Err(failed(format!("{what}: {ours:?} instead of {expected:?}"))),
            }
            let base = machine.instances[0].memory.unwrap().base;
            // SAFETY: the memory of an instance that does not run.
            let ours = unsafe { std::slice::from_raw_parts(base.as_ptr(), MEMORY as usize) };
            let expected = memory.data(&store);
            let differs = (0..ours.len()).find(|at| ours[*at] != expected[*at]);
            if let Some(at) = differs {
                let last = (0..ours.len()).rfind(|at| ours[*at] != expected[*at]);
                return Err(failed(format!("{what}: memory differs from {at} to {last:?}")));
            }
        }
    }
    Ok(())
}

fn all(bounds: Bounds) {
    let Some(toolchain) = toolchain() else { return };
    let _thread = Thread::here().unwrap();
    // With checks there, too: a store across the memory's end that faults has left its first half behind on some processors.
    let mut config = wasmtime::Config::new();
    config.memory_reservation(0).memory_guard_size(0);
    let engine = wasmtime::Engine::new(&config).unwrap();
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let modules = number("MILLPOND_TEST_MODULES").unwrap_or(150) / 10;
    let first = number("MILLPOND_TEST_SEED");
    for seed in first.unwrap_or(0)..first.map_or(modules, |first| first + 1) {
        let mut random = StdRng::seed_from_u64(seed);
        if let Err(what) = compare(&mut random, bounds, &toolchain, &engine) {
            panic!("seed {seed}: {what}");
        }
    }
}

#[test]
fn counted_loops_do_as_in_wasmtime_with_guard_pages() {
    all(Bounds::Guard);
}

#[test]
fn counted_loops_do_as_in_wasmtime_with_checks() {
    all(Bounds::Software);
}
