//! Random modules, here and in Wasmtime: results, traps and memory are the same.

use crate::{
    Bounds, Toolchain,
    instance::{Image, InstanceError},
    layout::Trap,
    machine::{Machine, compile, toolchain},
    plan::{Exported, Slot, slot},
};
use arbitrary::Unstructured;
use fiber::Thread;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
use wasm_smith::Config;

/// Steps that a module may take before it stops itself.
const FUEL: u32 = 10_000;

/// A module that imports nothing, ends, exports everything, and whose NaNs have no payload that is left open.
fn module(seed: u64) -> Option<Vec<u8>> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut bytes = vec![0; 2048 + (seed as usize % 7) * 1024];
    random.fill_bytes(&mut bytes);
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
        // Wasmtime as it is built here knows no `externref`: of four modules with references it refuses three.
        reference_types_enabled: seed.is_multiple_of(4),
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
    let mut module = wasm_smith::Module::new(config, &mut Unstructured::new(&bytes)).ok()?;
    module.ensure_termination(FUEL).ok()?;
    Some(module.to_bytes())
}

/// What Wasmtime calls our traps.
fn known(trap: wasmtime::Trap) -> Option<Trap> {
    Some(match trap {
        wasmtime::Trap::StackOverflow => Trap::StackOverflow,
        wasmtime::Trap::MemoryOutOfBounds => Trap::MemoryOutOfBounds,
        wasmtime::Trap::TableOutOfBounds => Trap::TableOutOfBounds,
        wasmtime::Trap::IndirectCallToNull => Trap::UninitializedElement,
        wasmtime::Trap::BadSignature => Trap::IndirectCallType,
        wasmtime::Trap::IntegerOverflow => Trap::IntegerOverflow,
        wasmtime::Trap::IntegerDivisionByZero => Trap::IntegerDivideByZero,
        wasmtime::Trap::BadConversionToInteger => Trap::InvalidConversion,
        wasmtime::Trap::UnreachableCodeReached => Trap::Unreachable,
        _ => return None,
    })
}

/// Both say the same; what Wasmtime calls out of a table's bounds is an undefined element for an indirect call.
fn same(ours: Trap, theirs: &wasmtime::Error) -> bool {
    let theirs = theirs
        .downcast_ref::<wasmtime::Trap>()
        .and_then(|trap| known(*trap));
    theirs == Some(ours) || (ours, theirs) == (Trap::UndefinedElement, Some(Trap::TableOutOfBounds))
}

fn argument(kind: &wasmtime::ValType, random: &mut StdRng) -> wasmtime::Val {
    let bits = match random.next_u32() % 4 {
        0 => u64::from(random.next_u32() % 64),
        1 => random.next_u64(),
        2 => u64::MAX,
        _ => 0,
    };
    match kind {
        wasmtime::ValType::I32 => wasmtime::Val::I32(bits as i32),
        wasmtime::ValType::I64 => wasmtime::Val::I64(bits as i64),
        wasmtime::ValType::F32 => wasmtime::Val::F32((bits as f32).to_bits()),
        wasmtime::ValType::F64 => wasmtime::Val::F64((bits as f64).to_bits()),
        wasmtime::ValType::V128 => wasmtime::Val::V128(u128::from(bits).into()),
        wasmtime::ValType::Ref(kind) => wasmtime::Val::null_ref(kind.heap_type()),
    }
}

/// None for references, of which only that they are null can be told.
fn bits(value: &wasmtime::Val) -> Option<Slot> {
    Some(match value {
        wasmtime::Val::I32(value) => slot(&value.to_le_bytes()),
        wasmtime::Val::I64(value) => slot(&value.to_le_bytes()),
        wasmtime::Val::F32(value) => slot(&value.to_le_bytes()),
        wasmtime::Val::F64(value) => slot(&value.to_le_bytes()),
        wasmtime::Val::V128(value) => slot(&value.as_u128().to_le_bytes()),
        other => return other.unwrap_null().then(|| slot(&[])),
    })
}

trait Null {
    fn unwrap_null(&self) -> bool;
}

impl Null for wasmtime::Val {
    fn unwrap_null(&self) -> bool {
        self.ref_().is_some_and(|reference| reference.is_null())
    }
}

/// Says what differs, if anything does.
fn compare(
    seed: u64,
    bounds: Bounds,
    toolchain: &Toolchain,
    engine: &wasmtime::Engine,
) -> Result<(), String> {
    let Some(bytes) = module(seed) else {
        return Ok(());
    };
    let theirs = match wasmtime::Module::new(engine, &bytes) {
        Ok(theirs) => theirs,
        Err(error) if format!("{error:#}").contains("gc types") => return Ok(()),
        Err(error) => return Err(format!("{error:#}")),
    };
    let image: Arc<Image> =
        Arc::new(compile(&bytes, bounds, toolchain).map_err(|refusal| refusal.to_string())?);
    let mut store = wasmtime::Store::new(engine, ());
    let mut machine = Machine::new();
    let instances = (
        machine.instantiate(&image, &[]),
        wasmtime::Instance::new(&mut store, &theirs, &[]),
    );
    let theirs = match instances {
        (Ok(_), Ok(theirs)) => theirs,
        (Err(InstanceError::Trap(Trap::StackOverflow)), _) => return Ok(()),
        (_, Err(error)) if error.downcast_ref() == Some(&wasmtime::Trap::StackOverflow) => return Ok(()),
        (Err(InstanceError::Trap(trap)), Err(error)) if same(trap, &error) => return Ok(()),
        (Err(InstanceError::Table(_)), _) => return Ok(()),
        (ours, theirs) => return Err(format!("an instance: {:?}, and {:?}", ours.err(), theirs.err())),
    };
    let mut random = StdRng::seed_from_u64(seed);
    for (name, exported) in &image.plan.exports {
        let Exported::Function(place) = exported else {
            continue;
        };
        let function = theirs.get_func(&mut store, name).ok_or("an export is missing")?;
        let kind = function.ty(&store);
        let arguments: Vec<_> = kind.params().map(|kind| argument(&kind, &mut random)).collect();
        let mut results = vec![wasmtime::Val::I32(0); kind.results().len()];
        let slots: Vec<_> = arguments
            .iter()
            .map(|value| bits(value).unwrap_or_default())
            .collect();
        let ours = machine.call(0, *place, &slots);
        match (ours, function.call(&mut store, &arguments, &mut results)) {
            (Ok(ours), Ok(())) => {
                for ((_, ours), theirs) in ours.iter().zip(&results) {
                    if bits(theirs).is_some_and(|theirs| theirs != *ours) {
                        return Err(format!("{name}: {ours:?} instead of {theirs:?}"));
                    }
                }
            }
            // How deep a stack is differs.
            (Err(InstanceError::Trap(Trap::StackOverflow)), _) => return Ok(()),
            (_, Err(error)) if error.downcast_ref() == Some(&wasmtime::Trap::StackOverflow) => return Ok(()),
            (Err(InstanceError::Trap(trap)), Err(error)) if same(trap, &error) => {
                if bounds == Bounds::Guard {
                    // What was stored just before a trap may be missing: see `Bounds::Guard`.
                    return Ok(());
                }
            }
            (ours, theirs) => return Err(format!("{name}: {ours:?}, and {:?}", theirs.err())),
        }
        memories(&machine, &theirs, &mut store).map_err(|what| format!("after {name}: {what}"))?;
    }
    Ok(())
}

fn memories(
    machine: &Machine,
    theirs: &wasmtime::Instance,
    store: &mut wasmtime::Store<()>,
) -> Result<(), String> {
    let instance = &machine.instances[0];
    let Some(memory) = instance.memory else {
        return Ok(());
    };
    let exports = &instance.image.plan.exports;
    let name = exports
        .iter()
        .find_map(|(name, exported)| (*exported == Exported::Memory).then_some(name));
    let Some(theirs) = name.and_then(|name| theirs.get_memory(&mut *store, name)) else {
        return Ok(());
    };
    let theirs = theirs.data(&*store);
    if memory.bytes() != theirs.len() as u64 {
        return Err(format!(
            "a memory of {} bytes instead of {}",
            memory.bytes(),
            theirs.len()
        ));
    }
    // SAFETY: the memory of an instance that does not run.
    let ours = unsafe { std::slice::from_raw_parts(memory.base.as_ptr(), theirs.len()) };
    match ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs) {
        Some(at) => Err(format!("memory differs at {at:#x}")),
        None => Ok(()),
    }
}

fn all(bounds: Bounds, modules: u64) {
    let Some(toolchain) = toolchain() else { return };
    let first = number("MILLPOND_TEST_SEED").unwrap_or(0);
    let engine = wasmtime::Engine::default();
    let next = AtomicU64::new(first);
    let end = first + modules;
    let wrong = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let _thread = Thread::here().unwrap();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    if let Err(what) = compare(seed, bounds, &toolchain, &engine) {
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
        "{} of {modules} modules differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// How many modules; `MILLPOND_TEST_MODULES` says another number, `MILLPOND_TEST_SEED` the first one's seed.
fn count() -> u64 {
    let long = std::env::var_os("MILLPOND_TEST_LONG").is_some();
    number("MILLPOND_TEST_MODULES").unwrap_or(if long { 5_000 } else { 150 })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_modules_do_as_in_wasmtime_with_guard_pages() {
    all(Bounds::Guard, count());
}

#[test]
fn random_modules_do_as_in_wasmtime_with_checks() {
    all(Bounds::Software, count());
}
