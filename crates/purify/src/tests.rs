use super::*;
use arbitrary::Unstructured;
use rand::{Rng as _, SeedableRng as _, rngs::ChaCha12Rng};
use wasm_smith::{Config as Smith, Module as Random};
use wasmtime::{Config, Engine, Extern, Instance, Module, Store, Val};

/// An engine that is to see any bits, or one whose own compiler makes NaNs canonical.
fn engine(canonical: bool) -> Engine {
    let mut config = Config::new();
    config
        .cranelift_nan_canonicalization(canonical)
        .consume_fuel(true)
        .wasm_relaxed_simd(false)
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        .wasm_tail_call(true)
        .cranelift_opt_level(wasmtime::OptLevel::Speed);
    Engine::new(&config).unwrap()
}

fn bits(value: &Val) -> (u8, u128) {
    match value {
        Val::I32(value) => (0, (*value).cast_unsigned().into()),
        Val::I64(value) => (1, (*value).cast_unsigned().into()),
        Val::F32(bits) => (2, (*bits).into()),
        Val::F64(bits) => (3, (*bits).into()),
        Val::V128(value) => (4, value.as_u128()),
        _ => (5, 0),
    }
}

/// All that can be seen of a module whose exported functions were called: results or that there was none, globals, memory.
#[derive(Debug, PartialEq)]
struct Seen {
    results: Vec<Option<Vec<(u8, u128)>>>,
    globals: Vec<(String, (u8, u128))>,
    memory: Vec<u8>,
}

/// `None` if it does not end, or cannot begin.
fn run(engine: &Engine, bytes: &[u8], arguments: u64) -> Option<Seen> {
    let module = Module::new(engine, bytes).unwrap_or_else(|error| panic!("{error:#}"));
    let mut store = Store::new(engine, ());
    store.set_fuel(2_000_000).unwrap();
    let instance = Instance::new(&mut store, &module, &[]).ok()?;
    let mut random = ChaCha12Rng::seed_from_u64(arguments);
    let exports: Vec<_> = module.exports().map(|export| export.name().to_owned()).collect();
    let mut seen = Seen {
        results: Vec::new(),
        globals: Vec::new(),
        memory: Vec::new(),
    };
    for name in &exports {
        let Some(function) = instance.get_func(&mut store, name) else {
            continue;
        };
        let kind = function.ty(&store);
        let given = kind.params().map(|kind| argument(&kind, &mut random));
        let given: Option<Vec<Val>> = given.collect();
        let Some(given) = given else { continue };
        let mut results = vec![Val::I32(0); kind.results().len()];
        let done = function.call(&mut store, &given, &mut results);
        if store.get_fuel().unwrap() == 0 {
            return None;
        }
        seen.results
            .push(done.is_ok().then(|| results.iter().map(bits).collect()));
    }
    for name in exports {
        match instance.get_export(&mut store, &name) {
            Some(Extern::Global(global)) => {
                let value = bits(&global.get(&mut store));
                seen.globals.push((name, value));
            }
            Some(Extern::Memory(memory)) => seen.memory.extend_from_slice(memory.data(&store)),
            _ => {}
        }
    }
    Some(seen)
}

/// NaNs of every kind are likely.
fn argument(kind: &wasmtime::ValType, random: &mut ChaCha12Rng) -> Option<Val> {
    const NANS: [u32; 6] = [
        0x7fc0_0000,
        0xffc0_0000,
        0x7fc0_0001,
        0xffff_ffff,
        0x7f80_0001,
        0xff80_0000,
    ];
    let word = random.next_u32();
    let single = match word % 3 {
        0 => NANS[word as usize / 3 % NANS.len()],
        1 => (word as f32 / 1e9).to_bits(),
        _ => word,
    };
    let double = (u64::from(single) << 32) | (u64::from(single) << 29) | u64::from(word & 1);
    Some(match kind {
        wasmtime::ValType::I32 => Val::I32(word.cast_signed() % 1000),
        wasmtime::ValType::I64 => Val::I64(i64::from(word) % 1000),
        wasmtime::ValType::F32 => Val::F32(single),
        wasmtime::ValType::F64 => Val::F64(double),
        wasmtime::ValType::V128 => Val::V128((u128::from(double) << 64 | u128::from(single)).into()),
        wasmtime::ValType::Ref(_) => return None,
    })
}

/// What a compiler that makes each result canonical comes to.
fn check(engines: &(Engine, Engine), bytes: &[u8], arguments: u64) {
    let prepared = prepare(bytes).unwrap();
    let expected = run(&engines.1, bytes, arguments);
    let seen = run(&engines.0, &prepared, arguments);
    if let (Some(expected), Some(seen)) = (expected, seen) {
        assert_eq!(seen, expected, "of module with arguments {arguments}");
    }
}

fn engines() -> (Engine, Engine) {
    (engine(false), engine(true))
}

/// Functions that take and give floats, by text. `$t` stands for `f32`, `$i` for `i32` and then for the wider ones.
fn check_text(text: &str) {
    let engines = engines();
    let texts = [
        text.replace("$t", "f32").replace("$i", "i32"),
        text.replace("$t", "f64").replace("$i", "i64"),
    ];
    for text in texts {
        let bytes = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        for arguments in 0..40 {
            check(&engines, &bytes, arguments);
        }
    }
}

#[test]
fn what_shows_a_nan_shows_the_canonical_one() {
    check_text(
        r#"(module
            (memory (export "memory") 1) (global (export "g") (mut $t) ($t.const 0))
            (table funcref (elem $negative)) (type $one (func (param $t) (result $t)))
            (func $negative (type $one) ($t.neg (local.get 0)))
            (func (export "a store") (param $t $t) ($t.store (i32.const 8) ($t.div (local.get 0) (local.get 1))))
            (func (export "a reinterpretation") (param $t $t) (result $i) ($i.reinterpret_$t ($t.sub (local.get 0) (local.get 1))))
            (func (export "a sign") (param $t $t) (result $t) ($t.copysign ($t.const 1) ($t.mul (local.get 0) (local.get 1))))
            (func (export "another") (param $t $t) (result $t) ($t.copysign ($t.min (local.get 0) (local.get 1)) (local.get 0)))
            (func (export "no sign") (param $t) (result $t) ($t.abs ($t.sqrt (local.get 0))))
            (func (export "a result") (param $t) (result $t) ($t.sqrt (local.get 0)))
            (func (export "an argument") (param $t) (result $t) (call $negative ($t.floor (local.get 0))))
            (func (export "a table") (param $t) (result $t) (call_indirect (type $one) ($t.ceil (local.get 0)) (i32.const 0)))
            (func (export "a tail call") (param $t) (result $t) (return_call $negative ($t.trunc (local.get 0))))
            (func (export "a global") (param $t) (global.set 0 ($t.nearest (local.get 0))))
            (func (export "a branch") (param $t i32) (result $t)
                (block (result $t) (drop (br_if 0 ($t.max (local.get 0) ($t.const 1)) (local.get 1))) ($t.neg (local.get 0))))
            (func (export "a choice") (param $t $t i32) (result $t)
                ($t.neg (select ($t.add (local.get 0) (local.get 1)) ($t.sub (local.get 0) (local.get 1)) (local.get 2))))
            (func (export "a choice of what was given") (param $t $t i32) (result $t)
                (select ($t.add (local.get 0) (local.get 1)) (local.get 0) (local.get 2)))
            (func (export "two branches") (param $t i32) (result $t)
                (if (result $t) (local.get 1) (then ($t.add (local.get 0) (local.get 0))) (else (local.get 0))))
            (func (export "a loop's parameter") (param $t) (result $t)
                (local $n i32)
                ($t.mul (local.get 0) (local.get 0))
                (loop (param $t) (result $t)
                    (local.set $n (i32.add (local.get $n) (i32.const 1)))
                    $t.neg (br_if 0 (i32.lt_u (local.get $n) (i32.const 3)))))
            (func (export "what was given") (param $t) (result $t) (local.get 0))
            (func (export "a tee") (param $t) (result $t) (local $t)
                ($t.store (i32.const 24) (local.tee 1 ($t.mul (local.get 0) ($t.const 3)))) ($t.neg (local.get 1)))
            (func (export "dead code") (param $t) (result $t)
                (return ($t.add (local.get 0) ($t.const 1))) $t.add $t.store unreachable)
        )"#,
    );
}

#[test]
fn locals_are_settled_where_they_are_read_or_written() {
    check_text(
        r#"(module
            (memory (export "memory") 1)
            (func (export "a sum") (param $t i32) (result $t) (local $sum $t)
                (loop (local.set $sum ($t.add (local.get $sum) ($t.mul (local.get 0) (local.get 0))))
                    (br_if 0 (local.tee 1 (i32.shr_u (local.get 1) (i32.const 1)))))
                (local.get $sum))
            (func (export "with what was given") (param $t i32) (result $t) (local $sum $t)
                (local.set $sum (local.get 0))
                (if (local.get 1) (then (local.set $sum ($t.add (local.get $sum) (local.get 0)))))
                (local.get $sum))
            (func (export "one by way of another") (param $t) (result $t) (local $a $t) (local $b $t) (local $c $t)
                (local.set $a (local.get 0)) (local.set $b ($t.mul (local.get 0) (local.get 0)))
                (local.set $c (local.get $b)) (local.set $b (local.get $a)) (local.set $a (local.get $c))
                ($t.store (i32.const 0) (local.get $a)) ($t.store (i32.const 8) (local.get $b)) ($t.neg (local.get $c)))
            (func (export "what was loaded") (param $t) (result $t) (local $v $t)
                ($t.store (i32.const 32) (local.get 0)) (local.set $v ($t.load (i32.const 32)))
                ($t.store (i32.const 40) (local.get $v)) (local.set $v ($t.add (local.get $v) ($t.const 1)))
                ($t.store (i32.const 48) (local.get $v)) (local.get $v))
            (func (export "a constant") (param $t i32) (result $t) (local $v $t)
                (local.set $v ($t.const nan:0x2a))
                (if (local.get 1) (then (local.set $v ($t.sqrt (local.get 0)))))
                (local.get $v))
            (func (export "never set") (result $t) (local $v $t) (local.get $v))
        )"#,
    );
}

#[test]
fn vectors_are_settled_by_their_lanes() {
    let engines = engines();
    let text = r#"(module
        (memory (export "memory") 1)
        (func (export "arithmetic") (param v128 v128) (result v128) (f32x4.add (local.get 0) (f32x4.div (local.get 0) (local.get 1))))
        (func (export "other lanes") (param v128 v128) (result v128) (f64x2.add (f32x4.add (local.get 0) (local.get 1)) (local.get 1)))
        (func (export "integers") (param v128 v128) (result v128) (i32x4.add (f32x4.mul (local.get 0) (local.get 1)) (local.get 1)))
        (func (export "a lane") (param v128) (result f32) (f32x4.extract_lane 2 (f32x4.sqrt (local.get 0))))
        (func (export "another") (param v128) (result f32) (f32.neg (f32x4.extract_lane 0 (f32x4.sqrt (local.get 0)))))
        (func (export "a lane of others") (param v128) (result f32) (f32x4.extract_lane 1 (f64x2.sqrt (local.get 0))))
        (func (export "all lanes") (param f32) (result v128) (f32x4.splat (f32.sqrt (local.get 0))))
        (func (export "one more") (param v128 f64) (result v128)
            (f64x2.replace_lane 1 (f64x2.mul (local.get 0) (local.get 0)) (f64.sqrt (local.get 1))))
        (func (export "one given") (param v128 f64) (result v128) (f64x2.replace_lane 1 (local.get 0) (f64.sqrt (local.get 1))))
        (func (export "the smaller") (param v128 v128) (result v128)
            (f32x4.pmin (f32x4.add (local.get 0) (local.get 1)) (f32x4.sub (local.get 0) (local.get 1))))
        (func (export "the smaller of given ones") (param v128 v128) (result v128)
            (f32x4.pmax (f32x4.add (local.get 0) (local.get 1)) (local.get 1)))
        (func (export "no sign") (param v128) (result v128) (f64x2.abs (f64x2.sqrt (local.get 0))))
        (func (export "signs") (param v128) (result v128) (f64x2.neg (f64x2.sqrt (local.get 0))))
        (func (export "bits") (param v128 v128) (result i32) (i8x16.bitmask (f64x2.max (local.get 0) (local.get 1))))
        (func (export "a mixture") (param v128 v128 v128) (result v128)
            (v128.bitselect (f32x4.mul (local.get 0) (local.get 1)) (f64x2.mul (local.get 0) (local.get 1)) (local.get 2)))
        (func (export "narrower") (param v128) (result v128) (f32x4.demote_f64x2_zero (f64x2.add (local.get 0) (local.get 0))))
        (func (export "wider") (param v128) (result v128) (f64x2.promote_low_f32x4 (local.get 0)))
        (func (export "a choice of lanes") (param v128 i32) (result v128)
            (select (f32x4.sqrt (local.get 0)) (f64x2.sqrt (local.get 0)) (local.get 1)))
        (func (export "a local of two kinds") (param v128 i32) (result v128) (local v128)
            (local.set 2 (f32x4.sqrt (local.get 0)))
            (if (local.get 1) (then (local.set 2 (f64x2.sqrt (local.get 0)))))
            (local.get 2))
        (func (export "a sum") (param v128 i32) (result v128) (local v128)
            (loop (local.set 2 (f32x4.add (local.get 2) (f32x4.mul (local.get 0) (local.get 0))))
                (br_if 0 (local.tee 1 (i32.shr_u (local.get 1) (i32.const 1)))))
            (local.get 2)))"#;
    let bytes = wat::parse_str(text).unwrap();
    for arguments in 0..200 {
        check(&engines, &bytes, arguments);
    }
}

/// How often a body compares something with itself.
fn settled(body: &str) -> usize {
    let text = format!(
        r#"(module (memory 1) (func (param f64 f64 i32) (result f64) (local $sum f64) (local $x f64) {body}))"#
    );
    let bytes = wat::parse_str(text).unwrap();
    let prepared = prepare(&bytes).unwrap();
    let mut count = 0;
    for payload in wasmparser::Parser::new(0).parse_all(&prepared) {
        if let wasmparser::Payload::CodeSectionEntry(body) = payload.unwrap() {
            let operators = body.get_operators_reader().unwrap();
            count += operators
                .into_iter()
                .filter(|operator| matches!(operator, Ok(wasmparser::Operator::F64Eq)))
                .count();
        }
    }
    count
}

#[test]
fn what_nobody_sees_is_left_as_it_is() {
    assert_eq!(settled("(local.get 0)"), 0);
    assert_eq!(
        settled("(f64.load (i32.const 0)) (f64.store (i32.const 8) (local.get 0))"),
        0
    );
    assert_eq!(
        settled("(f64.add (f64.mul (local.get 0) (local.get 1)) (f64.sqrt (local.get 0)))"),
        1
    );
    let sum = "(loop (local.set $sum (f64.add (local.get $sum) (f64.load (local.get 2)))) (br_if 0 (local.get 2))) (local.get $sum)";
    assert_eq!(settled(sum), 1);
    let asked = "(f64.convert_i32_s (f64.lt (f64.add (local.get 0) (local.get 1)) (f64.abs (f64.sub (local.get 0) (local.get 1)))))";
    assert_eq!(settled(asked), 0);
}

#[test]
fn a_local_that_depends_on_many_is_settled_in_the_end() {
    // Each round finds out about one more of them.
    let count = 40;
    let mut body = String::from("(func (export \"f\") (param f64) (result f64)");
    body += &"(local f64)".repeat(count);
    for local in 1..count {
        body += &format!(
            "(local.set {local} (f64.add (local.get {}) (f64.const 1)))",
            local + 1
        );
        body += &format!("(local.set {local} (local.get {}))", local + 1);
    }
    body += &format!("(local.set {count} (local.get 0)) (local.get 1))");
    let bytes = wat::parse_str(format!("(module {body})")).unwrap();
    check(&engines(), &bytes, 1);
}

#[test]
fn random_modules_come_to_what_a_compiler_of_canonical_nans_comes_to() {
    let engines = engines();
    let count = if std::env::var_os("MILLPOND_TEST_LONG").is_some() {
        50_000
    } else {
        400
    };
    let mut compared = 0;
    for seed in 0..count {
        let mut noise = vec![0; 3000];
        ChaCha12Rng::seed_from_u64(seed).fill_bytes(&mut noise);
        let config = Smith {
            exceptions_enabled: false,
            gc_enabled: false,
            memory64_enabled: false,
            multi_value_enabled: true,
            relaxed_simd_enabled: false,
            simd_enabled: true,
            tail_call_enabled: true,
            threads_enabled: false,
            wide_arithmetic_enabled: false,
            shared_everything_threads_enabled: false,
            custom_page_sizes_enabled: false,
            custom_descriptors_enabled: false,
            max_memories: 1,
            // All of it is compared.
            max_memory32_bytes: 1 << 20,
            memory_max_size_required: true,
            max_imports: 0,
            min_funcs: 2,
            max_instructions: 300,
            export_everything: true,
            ..Smith::default()
        };
        let Ok(module) = Random::new(config, &mut Unstructured::new(&noise)) else {
            continue;
        };
        let mut module = module;
        if module.ensure_termination(1000).is_err() {
            continue;
        }
        let bytes = module.to_bytes();
        // Some need what no engine runs.
        let Ok(prepared) = prepare(&bytes) else { continue };
        if Module::validate(&engines.0, &bytes).is_err() {
            continue;
        }
        wasmparser::Validator::new_with_features(FEATURES)
            .validate_all(&prepared)
            .unwrap();
        check(&engines, &bytes, seed);
        compared += 1;
    }
    println!("{compared} of {count} were compared");
    // Most use what no engine runs.
    assert!(compared > count / 8, "only {compared} of {count} were compared");
}

fn refusal(text: &str) -> String {
    prepare(&wat::parse_str(text).unwrap()).unwrap_err().to_string()
}

#[test]
fn what_differs_between_processors_is_refused() {
    let text = "(module (func (param v128) (result v128) (f32x4.relaxed_min (local.get 0) (local.get 0))))";
    assert!(refusal(text).contains("relaxed SIMD"), "{}", refusal(text));
    assert!(refusal("(component)").contains("is for core modules"));
    assert!(matches!(
        prepare(b"\0asm\x01\0\0\0\x7f"),
        Err(PrepareError::Malformed(_))
    ));
    assert_eq!(&*prepare(b"hello").unwrap(), b"hello");
}

/// A module with a structure at 64, and something else of this in its place.
fn with_structure(more: &str) -> String {
    let global = r#"(global (export "__dandelion_system_data") i32 (i32.const 64))"#;
    format!("(module {more} (func (export \"_start\")) {global})")
}

#[test]
fn a_memory_that_would_be_given_becomes_its_own() {
    let text = with_structure(r#"(import "env" "memory" (memory 2 9)) (data (i32.const 3) "text")"#);
    let bytes = wat::parse_str(text).unwrap();
    let prepared = prepare(&bytes).unwrap();
    let engine = engine(false);
    let module = Module::new(&engine, &prepared).unwrap();
    assert_eq!(module.imports().len(), 0);
    let mut store = Store::new(&engine, ());
    store.set_fuel(1000).unwrap();
    let instance = Instance::new(&mut store, &module, &[]).unwrap();
    let memory = instance.get_memory(&mut store, "memory").unwrap();
    assert_eq!(memory.size(&store), 2);
    assert_eq!(memory.ty(&store).maximum(), Some(9));
    assert_eq!(&memory.data(&store)[..8], b"\0\0\0text\0");
    assert!(
        instance
            .get_global(&mut store, "__dandelion_system_data")
            .is_some()
    );
}

#[test]
fn a_structure_that_cannot_be_written_is_refused() {
    let refused = |text: &str, why: &str| {
        let said = refusal(text);
        assert!(said.contains(why), "{said}");
    };
    let memory = r#"(memory (export "memory") 1)"#;
    prepare(&wat::parse_str(with_structure(memory)).unwrap()).unwrap();
    refused(&with_structure(""), "has no memory");
    refused(
        &with_structure(r#"(memory (export "memory") 2 2)"#),
        "cannot grow",
    );
    refused(
        &with_structure(&format!("{memory} (func $f) (start $f)")),
        "start section",
    );
    refused(
        &with_structure(&format!(
            r#"(import "wasi_snapshot_preview1" "proc_exit" (func (param i32))) {memory}"#
        )),
        "imports `wasi_snapshot_preview1.proc_exit`",
    );
    let other = |global: &str| format!("(module {memory} (func $f (export \"_start\")) {global})");
    for global in [
        r#"(global (export "__dandelion_system_data") (mut i32) (i32.const 64))"#,
        r#"(global (export "__dandelion_system_data") i64 (i64.const 64))"#,
        r#"(global (export "__dandelion_system_data") i32 (i32.add (i32.const 64) (i32.const 64)))"#,
        r#"(export "__dandelion_system_data" (func $f))"#,
    ] {
        refused(&other(global), "not a constant global");
    }
    let far = r#"(global (export "__dandelion_system_data") i32 (i32.const 65501))"#;
    refused(&other(far), "outside its memory");
    let below = r#"(global (export "__dandelion_system_data") i32 (i32.const -4))"#;
    refused(&other(below), "outside its memory");
}
