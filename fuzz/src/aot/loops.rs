//! Counted loops as the engine's `counted` and `widen` know them, with everything at random that these look at.

use super::{Ended, Oracle, Pair, Subject};
use engine_aot::Bounds;
use rand::Rng;
use std::fmt::Write as _;
use wasmtime::Val;

const MEMORY: u32 = 65_536;

fn pick<T: Copy>(random: &mut impl Rng, from: &[T]) -> T {
    from[random.next_u32() as usize % from.len()]
}

/// A function of `$a`, `$b`, `$c`: addresses; and `$n`: turns, more or less.
fn function<R: Rng>(random: &mut R, number: u32) -> String {
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
        let address = |random: &mut R, pointer: &str| {
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
fn module(random: &mut impl Rng, loops: u32, most: &str) -> String {
    let mut text = format!(
        "(module (memory (export \"memory\") {} {most})
(func (export \"fill\") (param i64) (local $i i32)
  (loop $l
    (i64.store (local.get $i) (local.tee 0 (i64.add (i64.mul (local.get 0) (i64.const 6364136223846793005)) (i64.const 1442695040888963407))))
    (br_if $l (i32.ne (local.tee $i (i32.add (local.get $i) (i32.const 8))) (i32.const {MEMORY})))))
",
        MEMORY / 65_536
    );
    for number in 0..loops {
        text.push_str(&function(random, number));
    }
    text.push(')');
    text
}

/// Arrays that overlap or not, in the middle or at the edges, and outside.
fn addresses(random: &mut impl Rng) -> [u32; 3] {
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

/// Says what differs in a module of some loops, each called a few times, if anything does.
pub(super) fn compare(
    oracle: &Oracle,
    random: &mut impl Rng,
    bounds: Bounds,
    loops: u32,
    calls: u32,
) -> Result<(), String> {
    let most = pick(random, &["1", "", "65536"]);
    let text = module(random, loops, most);
    let subject = Subject {
        bytes: wat::parse_str(&text).map_err(|error| format!("{error}\n{text}"))?,
        seed: 0,
        rounds: 1,
        bounded: true,
        plain: true,
    };
    let failed = |what: String| format!("{what}\n{text}");
    let pair = Pair::new(oracle, &subject, bounds).map_err(failed)?;
    let mut pair = pair.ok_or_else(|| failed("it is no instance".into()))?;
    for number in 0..loops {
        let name = format!("f{number}");
        for _ in 0..calls {
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
            // What was stored around a trap is left open: after it, too, both memories are the same.
            let filled = pair.call("fill", &[Val::I64(random.next_u64().cast_signed())]);
            if filled.map_err(failed)? != Ended::Same {
                return Err(failed("the memory is not filled".into()));
            }
            let arguments = [a, b, c, n].map(|value| Val::I32(value.cast_signed()));
            let ended = pair.call(&name, &arguments);
            if ended.map_err(|what| failed(format!("{arguments:?}: {what}")))? == Ended::Apart {
                return Err(failed(format!("{name}: {arguments:?} takes too long")));
            }
        }
    }
    Ok(())
}
