//! Modules by the ahead-of-time engine and by Wasmtime: results, traps and memory are the same.
//!
//! Where a module comes from, what it is called with and how it ends says [`Subject`]; [`loops`] has modules of its own kind.

mod loops;

use arbitrary::Unstructured;
use engine_aot::{Bounds, Clang, Toolchain};
use native::machine::{Machine, Program, Stop, Value};
use rand::{Rng, SeedableRng as _, rngs::StdRng};
use std::{convert::Infallible, env, fs, sync::OnceLock};
use wasm_smith::Config;
use wasmparser::{Operator, Parser, Payload, Validator};
use wasmtime::{Error, Instance, Module, ResourceLimiter, Store, Trap, Val, ValType};

/// Turns and calls that a module of wasm-smith's may take before it stops itself.
const TURNS: u32 = 10_000;
/// What Wasmtime's code may do in a call. Ours is not called then.
const FUEL: u64 = 20_000_000;
/// To what a memory may grow, and could.
const MEMORY: usize = 16 << 20;
const ADDRESSES: usize = 4 << 30;
/// Ours have no room for larger tables.
const TABLE: usize = 64 << 10;
/// A trap of ours.
const STACK_OVERFLOW: &str = "call stack exhausted";

/// What modules are compiled with.
pub(crate) struct Oracle {
    ours: Toolchain,
    theirs: wasmtime::Engine,
}

impl Oracle {
    /// The process's. `None`, and said so, if there is no LLVM.
    pub(crate) fn get() -> Option<&'static Self> {
        static ORACLE: OnceLock<Option<Oracle>> = OnceLock::new();
        let oracle = ORACLE.get_or_init(|| {
            let ours = Toolchain::find()
                .inspect_err(|reason| println!("skipped: {reason}"))
                .ok()?;
            let mut config = wasmtime::Config::new();
            config.consume_fuel(true).parallel_compilation(false);
            let theirs = wasmtime::Engine::new(&config).expect("a plain engine");
            Some(Self { ours, theirs })
        });
        oracle.as_ref()
    }

    /// Says what differs for libFuzzer's bytes, if anything does.
    ///
    /// They are a module (text or binary), or what chooses one: of the first byte, the lowest bit is for the bounds and the next two are
    /// for how the rest becomes a module.
    pub(crate) fn compare_input(&self, input: &[u8]) -> Result<(), String> {
        if let Some(module) = module(input) {
            let Some(subject) = Subject::given(module) else {
                return Ok(());
            };
            return [Bounds::Guard, Bounds::Software]
                .into_iter()
                .try_for_each(|bounds| self.compare(&subject, bounds));
        }
        let Some((how, noise)) = input.split_first() else {
            return Ok(());
        };
        let bounds = if how & 1 == 0 {
            Bounds::Guard
        } else {
            Bounds::Software
        };
        let (references, bounded) = match how >> 1 & 3 {
            0 => (false, true),
            1 => (true, true),
            2 => (false, false),
            _ => return loops::compare(self, &mut Noise(noise), bounds, 3, 12),
        };
        match Subject::smith(noise, references, bounded) {
            Some(subject) => self.compare(&subject, bounds),
            None => Ok(()),
        }
    }

    /// The same for a module that a number makes.
    #[cfg(test)]
    fn compare_seed(&self, seed: u64, bounds: Bounds) -> Result<(), String> {
        let mut noise = vec![0; 2048 + (seed as usize % 7) * 1024];
        StdRng::seed_from_u64(seed).fill_bytes(&mut noise);
        // Wasmtime as it is built here knows no `externref`: of four modules with references it refuses three.
        match Subject::smith(&noise, seed.is_multiple_of(4), true) {
            Some(subject) => self.compare(&Subject { seed, ..subject }, bounds),
            None => Ok(()),
        }
    }

    fn compare(&self, subject: &Subject, bounds: Bounds) -> Result<(), String> {
        let Some(mut pair) = Pair::new(self, subject, bounds)? else {
            return Ok(());
        };
        let mut random = StdRng::seed_from_u64(subject.seed);
        let names: Vec<_> = pair.program.functions().map(str::to_owned).collect();
        for name in names.iter().cycle().take(subject.rounds * names.len()) {
            let arguments: Vec<_> = pair
                .function(name)?
                .ty(&pair.store)
                .params()
                .map(|kind| argument(&kind, &mut random))
                .collect();
            if pair.call(name, &arguments)? != Ended::Same {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The module that an input is, if it is one.
fn module(input: &[u8]) -> Option<Vec<u8>> {
    match input {
        [b'\0', b'a', b's', b'm', ..] => Some(input.to_vec()),
        [b'(' | b';', ..] => Some(wat::parse_bytes(input).ok()?.into_owned()),
        _ => None,
    }
}

/// Another module, if the input is one.
pub(crate) fn mutated(input: &[u8], seed: u32) -> Option<Vec<u8>> {
    let module = module(input)?;
    // What is no module makes the mutator panic.
    Validator::new().validate_all(&module).ok()?;
    let mut mutate = wasm_mutate::WasmMutate::default();
    mutate.seed(seed.into()).fuel(300).preserve_semantics(false);
    mutate.run(&module).ok()?.find_map(Result::ok)
}

/// Noise, and zeros behind it.
struct Noise<'a>(&'a [u8]);

impl rand::TryRng for Noise<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        // Most of what is chosen is one of a few.
        let mut bytes = [0; 2];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u16::from_le_bytes(bytes).into())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Infallible> {
        let (now, later) = self.0.split_at(to.len().min(self.0.len()));
        to[..now.len()].copy_from_slice(now);
        to[now.len()..].fill(0);
        self.0 = later;
        Ok(())
    }
}

/// A module that imports nothing, and whose NaNs have no payload that is left open.
struct Subject {
    bytes: Vec<u8>,
    /// For arguments.
    seed: u64,
    /// How often each function is called.
    rounds: usize,
    /// Whether it stops itself.
    bounded: bool,
    /// Whether both engines take it for sure.
    plain: bool,
}

impl Subject {
    fn smith(noise: &[u8], references: bool, bounded: bool) -> Option<Self> {
        let config = Config {
            allow_start_export: true,
            bulk_memory_enabled: true,
            canonicalize_nans: true,
            exceptions_enabled: false,
            export_everything: true,
            extended_const_enabled: true,
            gc_enabled: false,
            custom_page_sizes_enabled: false,
            max_imports: 0,
            max_memories: 1,
            max_memory32_bytes: 1 << 20,
            max_tables: 4,
            max_table_elements: 1000,
            max_funcs: 20,
            memory64_enabled: false,
            min_funcs: 1,
            multi_value_enabled: true,
            reference_types_enabled: references,
            relaxed_simd_enabled: false,
            saturating_float_to_int_enabled: true,
            shared_everything_threads_enabled: false,
            sign_extension_ops_enabled: true,
            simd_enabled: true,
            tail_call_enabled: true,
            threads_enabled: false,
            wide_arithmetic_enabled: false,
            ..Config::default()
        };
        let mut module = wasm_smith::Module::new(config, &mut Unstructured::new(noise)).ok()?;
        if bounded {
            module.ensure_termination(TURNS).ok()?;
        }
        Some(Self {
            bytes: module.to_bytes(),
            seed: Noise(noise).next_u64(),
            rounds: 1,
            bounded,
            plain: true,
        })
    }

    /// None if what it does is left open.
    fn given(bytes: Vec<u8>) -> Option<Self> {
        is_decided(&bytes).then_some(Self {
            bytes,
            seed: 0,
            rounds: 4,
            bounded: false,
            plain: false,
        })
    }
}

/// Whether nothing in a module computes with floats: what comes of it may be a NaN, of whose bits not all are said.
fn is_decided(bytes: &[u8]) -> bool {
    let decided = |operator: &Operator<'_>| {
        const OPEN: [&str; 11] = [
            "Add", "Sub", "Mul", "Div", "Sqrt", "Min", "Max", "Ceil", "Floor", "Trunc", "Nearest",
        ];
        const CONVERSIONS: [&str; 2] = ["Promote", "Demote"];
        let name = format!("{operator:?}");
        let is_float = name.starts_with("F32") || name.starts_with("F64");
        !is_float || !OPEN.iter().chain(&CONVERSIONS).any(|open| name.contains(open))
    };
    Parser::new(0).parse_all(bytes).all(|payload| match payload {
        Ok(Payload::CodeSectionEntry(body)) => body.get_operators_reader().is_ok_and(|operators| {
            operators
                .into_iter()
                .all(|operator| operator.is_ok_and(|operator| decided(&operator)))
        }),
        Ok(Payload::ImportSection(_)) | Err(_) => false,
        Ok(_) => true,
    })
}

/// To what Wasmtime's instances may grow.
#[derive(Default)]
struct Room {
    /// A memory wanted more, and ours may have given it: nothing more is compared.
    refused: bool,
}

impl ResourceLimiter for Room {
    fn memory_growing(&mut self, _: usize, to: usize, most: Option<usize>) -> Result<bool, Error> {
        if to > most.unwrap_or(ADDRESSES) {
            return Ok(false);
        }
        self.refused |= to > MEMORY;
        match self.refused {
            true => Err(Error::msg("a memory too large to compare")),
            false => Ok(true),
        }
    }

    fn table_growing(&mut self, _: usize, to: usize, _: Option<usize>) -> Result<bool, Error> {
        Ok(to <= TABLE)
    }
}

/// How a call ended, if not differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Same,
    /// With the same trap, around which memory is left open.
    Open,
    /// In a way that is each engine's own: the instances are not the same from now on.
    Apart,
}

/// An instance of ours and one of Wasmtime's.
struct Pair {
    program: Program,
    bounds: Bounds,
    bounded: bool,
    machine: Machine,
    instance: usize,
    store: Store<Room>,
    theirs: Instance,
}

impl Pair {
    /// None if there is nothing to compare. If `MILLPOND_TEST_KEEP` names a file, the module goes there first.
    fn new(oracle: &Oracle, subject: &Subject, bounds: Bounds) -> Result<Option<Self>, String> {
        if let Some(file) = env::var_os("MILLPOND_TEST_KEEP") {
            fs::write(file, &subject.bytes).map_err(|error| error.to_string())?;
        }
        let module = match Module::new(&oracle.theirs, &subject.bytes) {
            Ok(module) => module,
            Err(error) if !subject.plain || format!("{error:#}").contains("gc types") => return Ok(None),
            Err(error) => return Err(format!("{error:#}")),
        };
        let mut store = Store::new(&oracle.theirs, Room::default());
        store.limiter(|room| room);
        refuel(&mut store);
        let theirs = Instance::new(&mut store, &module, &[]);
        if !is_comparable(&theirs, &store, subject.bounded) {
            return Ok(None);
        }
        let program = match Program::compile(&subject.bytes, &Clang::new(oracle.ours.clone(), bounds)) {
            Ok(program) => program,
            Err(contract::PrepareError::Unsupported(_)) if !subject.plain => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let mut machine = Machine::new().map_err(|error| error.to_string())?;
        match (machine.instantiate(&program), theirs) {
            (Ok(instance), Ok(theirs)) => Ok(Some(Self {
                program,
                bounds,
                bounded: subject.bounded,
                machine,
                instance,
                store,
                theirs,
            })),
            // How deep a stack is differs.
            (Err(Stop::Trap(STACK_OVERFLOW) | Stop::Refused(_)), _) => Ok(None),
            (_, Err(theirs)) if theirs.downcast_ref() == Some(&Trap::StackOverflow) => Ok(None),
            (Err(ours), Err(theirs)) if same(&ours, &theirs) => Ok(None),
            (ours, theirs) => Err(format!("an instance: {:?}, and {:?}", ours.err(), theirs.err())),
        }
    }

    fn function(&mut self, name: &str) -> Result<wasmtime::Func, String> {
        let function = self.theirs.get_func(&mut self.store, name);
        function.ok_or_else(|| format!("{name} is missing"))
    }

    /// Says what differs, if anything does.
    fn call(&mut self, name: &str, arguments: &[Val]) -> Result<Ended, String> {
        let function = self.function(name)?;
        let mut results = vec![Val::I32(0); function.ty(&self.store).results().len()];
        refuel(&mut self.store);
        let theirs = function.call(&mut self.store, arguments, &mut results);
        if !is_comparable(&theirs, &self.store, self.bounded) {
            return Ok(Ended::Apart);
        }
        let slots: Vec<_> = arguments.iter().map(bits).collect();
        match (self.machine.call(self.instance, name, &slots), theirs) {
            (Ok(ours), Ok(())) => {
                let same = |(ours, theirs): (&Value, &Val)| match theirs.ref_() {
                    // Of others, only that they are not null can be told.
                    Some(theirs) if !theirs.is_null() => *ours != Value::default(),
                    _ => *ours == bits(theirs),
                };
                if ours.len() != results.len() || !ours.iter().zip(&results).all(same) {
                    return Err(format!("{name}: {ours:?} instead of {results:?}"));
                }
            }
            // As above.
            (Err(Stop::Trap(STACK_OVERFLOW)), _) => return Ok(Ended::Apart),
            (_, Err(theirs)) if theirs.downcast_ref() == Some(&Trap::StackOverflow) => {
                return Ok(Ended::Apart);
            }
            (Err(ours), Err(theirs)) if same(&ours, &theirs) => {
                if self.bounds == Bounds::Guard {
                    // What was stored just before a trap may be missing: see `Bounds::Guard`.
                    return Ok(Ended::Open);
                }
            }
            (ours, theirs) => return Err(format!("{name}: {ours:?}, and {:?}", theirs.err())),
        }
        self.memories().map_err(|what| format!("after {name}: {what}"))?;
        Ok(Ended::Same)
    }

    fn memories(&mut self) -> Result<(), String> {
        let theirs = self
            .theirs
            .exports(&mut self.store)
            .find_map(|export| export.into_memory());
        let (Some(ours), Some(theirs)) = (self.machine.memory(self.instance), theirs) else {
            return Ok(());
        };
        let theirs = theirs.data(&self.store);
        if ours.len() != theirs.len() {
            return Err(format!(
                "a memory of {} bytes instead of {}",
                ours.len(),
                theirs.len()
            ));
        }
        // All at once first: it is large, and seldom differs.
        if ours == theirs {
            return Ok(());
        }
        let differs = |at: &usize| ours[*at] != theirs[*at];
        let (first, last) = ((0..ours.len()).find(differs), (0..ours.len()).rfind(differs));
        Err(format!("memory differs from {first:?} to {last:?}"))
    }
}

fn refuel(store: &mut Store<Room>) {
    store.set_fuel(FUEL).expect("an engine with fuel");
}

/// Whether ours has to end as Wasmtime's did. Ours may be a loop where theirs used its stack up, and only what stops itself is let.
fn is_comparable<T>(theirs: &Result<T, Error>, store: &Store<Room>, bounded: bool) -> bool {
    let trap = theirs.as_ref().err().and_then(|error| error.downcast_ref());
    match trap {
        Some(Trap::OutOfFuel) => false,
        Some(Trap::StackOverflow) => bounded,
        _ => !store.data().refused,
    }
}

/// Both say the same; what Wasmtime calls out of a table's bounds is an undefined element for an indirect call.
fn same(ours: &Stop, theirs: &Error) -> bool {
    let (Stop::Trap(ours), Some(theirs)) = (ours, theirs.downcast_ref()) else {
        return false;
    };
    let names: &[&str] = match theirs {
        Trap::StackOverflow => &[STACK_OVERFLOW],
        Trap::MemoryOutOfBounds => &["out of bounds memory access"],
        Trap::TableOutOfBounds => &["out of bounds table access", "undefined element"],
        Trap::IndirectCallToNull => &["uninitialized element"],
        Trap::BadSignature => &["indirect call type mismatch"],
        Trap::IntegerOverflow => &["integer overflow"],
        Trap::IntegerDivisionByZero => &["integer divide by zero"],
        Trap::BadConversionToInteger => &["invalid conversion to integer"],
        Trap::UnreachableCodeReached => &["unreachable"],
        _ => &[],
    };
    names.contains(ours)
}

fn argument(kind: &ValType, random: &mut impl Rng) -> Val {
    let bits = match random.next_u32() % 4 {
        0 => u64::from(random.next_u32() % 64),
        1 => random.next_u64(),
        2 => u64::MAX,
        _ => 0,
    };
    match kind {
        ValType::I32 => Val::I32(bits as i32),
        ValType::I64 => Val::I64(bits as i64),
        ValType::F32 => Val::F32((bits as f32).to_bits()),
        ValType::F64 => Val::F64((bits as f64).to_bits()),
        ValType::V128 => Val::V128(u128::from(bits).into()),
        ValType::Ref(kind) => Val::null_ref(kind.heap_type()),
    }
}

/// Zeros for references.
fn bits(value: &Val) -> Value {
    let bits = match value {
        Val::I32(value) => u128::from(value.cast_unsigned()),
        Val::I64(value) => u128::from(value.cast_unsigned()),
        Val::F32(value) => u128::from(*value),
        Val::F64(value) => u128::from(*value),
        Val::V128(value) => value.as_u128(),
        _ => 0,
    };
    bits.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        path::Path,
        sync::{
            Mutex,
            atomic::{AtomicU64, Ordering},
        },
        thread,
    };

    /// Runs `compare` for so many seeds.
    fn all(count: u64, compare: impl Fn(&Oracle, u64) -> Result<(), String> + Sync) {
        let Some(oracle) = Oracle::get() else { return };
        let first = number("MILLPOND_TEST_SEED").unwrap_or(0);
        let (next, end) = (AtomicU64::new(first), first + count);
        let wrong = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end {
                            break;
                        }
                        if let Err(what) = compare(oracle, seed) {
                            eprintln!("seed {seed}: {what}");
                            wrong.lock().unwrap().push(format!("seed {seed}: {what}"));
                        }
                    }
                });
            }
        });
        let wrong = wrong.into_inner().unwrap();
        assert!(
            wrong.is_empty(),
            "{} of {count} modules differ:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }

    /// How many modules; `MILLPOND_TEST_MODULES` says another number, `MILLPOND_TEST_SEED` the first one's seed.
    fn count() -> u64 {
        let long = env::var_os("MILLPOND_TEST_LONG").is_some();
        number("MILLPOND_TEST_MODULES").unwrap_or(if long { 50_000 } else { 150 })
    }

    fn number(name: &str) -> Option<u64> {
        env::var(name).ok()?.parse().ok()
    }

    fn counted_loops(bounds: Bounds) {
        all(count().div_ceil(10), |oracle, seed| {
            loops::compare(oracle, &mut StdRng::seed_from_u64(seed), bounds, 12, 40)
        });
    }

    /// Loads whose traps LLVM had deleted or moved behind others: into dead locals, across checks, as arguments that nobody reads.
    #[test]
    fn modules_that_once_differed_do_not() {
        let Some(oracle) = Oracle::get() else { return };
        for seed in [2338, 2891, 3109, 4407, 9378, 9403, 10_578] {
            assert_eq!(oracle.compare_seed(seed, Bounds::Guard), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn random_modules_do_as_in_wasmtime_with_guard_pages() {
        all(count(), |oracle, seed| oracle.compare_seed(seed, Bounds::Guard));
    }

    #[test]
    fn random_modules_do_as_in_wasmtime_with_checks() {
        all(count(), |oracle, seed| {
            oracle.compare_seed(seed, Bounds::Software)
        });
    }

    #[test]
    fn counted_loops_do_as_in_wasmtime_with_guard_pages() {
        counted_loops(Bounds::Guard);
    }

    #[test]
    fn counted_loops_do_as_in_wasmtime_with_checks() {
        counted_loops(Bounds::Software);
    }

    #[test]
    fn the_texts_among_the_seeds_are_modules() {
        let Some(oracle) = Oracle::get() else { return };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/aot");
        let mut count = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy();
            if path.extension().is_none_or(|extension| extension != "wat") || name.starts_with("refused") {
                continue;
            }
            let bytes = wat::parse_file(&path).unwrap();
            assert!(is_decided(&bytes), "{name}");
            if let Err(error) = Module::new(&oracle.theirs, &bytes) {
                panic!("{name}: {error:#}");
            }
            count += 1;
        }
        assert!(count >= 20, "only {count}");
    }

    /// What is compared is told apart: a module whose answer Wasmtime does not give.
    #[test]
    fn a_difference_is_found() {
        let Some(oracle) = Oracle::get() else { return };
        let module = |value: i32| {
            let text = format!(
                r#"(module (memory (export "memory") 1)
                    (func (export "answer") (result i32) (i32.const {value}))
                    (func (export "store") (i32.store (i32.const 8) (i32.const {value})))
                    (func (export "trap") (i32.store (i32.const 8) (i32.const {value})) unreachable))"#
            );
            Subject::given(wat::parse_str(text).unwrap()).unwrap()
        };
        for name in ["answer", "store", "trap"] {
            let mut pair = Pair::new(oracle, &module(1), Bounds::Software).unwrap().unwrap();
            let mut other = Pair::new(oracle, &module(2), Bounds::Software).unwrap().unwrap();
            assert_eq!(pair.call(name, &[]), Ok(Ended::Same), "{name}");
            pair.machine = std::mem::replace(&mut other.machine, Machine::new().unwrap());
            let found = pair.call(name, &[]);
            assert!(found.is_err(), "{name}: {found:?}");
        }
    }
}
