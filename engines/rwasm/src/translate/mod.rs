//! From core Wasm to Rust without `unsafe`.
//!
//! Each function becomes one of the same control flow, whose first parameter is the context: blocks have labels, locals and what blocks answer
//! are mutable variables, and every other value is bound once. Memory is a slice of cells, or an array of them, that is taken from the context
//! when a function begins and after what may change its size, so that it lies in registers.
//!
//! A crate has three modules: `wrapper`, the same for all, which is the only one that may be wrong about memory; `roots`, a list of names and
//! numbers for its macros; and `code`, which forbids `unsafe` and reaches nothing but the wrapper.

mod cycles;
mod function;
mod numeric;
mod places;

use cycles::Cycles;
use function::Function;
use native::{
    Module, Refusal,
    layout::{Offsets, SLOT},
    module::signature,
};
use std::fmt::Write as _;
use wasmparser::{FuncType, TypeRef, ValType};

/// How accesses of linear memory are kept inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bounds {
    /// Memory is a slice: every access is compared with its size, and traps exactly.
    #[default]
    Checked,
    /// Memory is an array of all that 32 bits can address, so that no address has to be compared with anything. What lies behind the
    /// memory's size is read as zeros, and traps when it is written; addresses lose what lies beyond 32 bits.
    Mask,
}

impl Bounds {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Checked, Self::Mask];

    /// Those of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bounds| bounds.name() == name)
    }

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checked => "checked",
            Self::Mask => "mask",
        }
    }
}

/// See [`wrapper`](self).
const WRAPPER: &str = include_str!("../wrapper.rs");

/// The type of Rust's for a value.
fn rust(kind: ValType) -> &'static str {
    match kind {
        ValType::I32 => "i32",
        ValType::I64 => "i64",
        ValType::F32 => "f32",
        ValType::F64 => "f64",
        kind if is_function(kind) => "Funcref",
        // Vectors are refused.
        ValType::V128 | ValType::Ref(_) => "Externref",
    }
}

/// Whether it is a reference to a function.
fn is_function(kind: ValType) -> bool {
    matches!(kind, ValType::Ref(kind) if kind.heap_type() == wasmparser::HeapType::FUNC)
}

/// What a local is at first.
fn zero(kind: ValType) -> &'static str {
    match kind {
        ValType::I32 | ValType::I64 => "0",
        ValType::F32 | ValType::F64 => "0.0",
        kind if is_function(kind) => "Funcref::NULL",
        ValType::V128 | ValType::Ref(_) => "Externref::NULL",
    }
}

/// What a function returns.
fn results(kind: &FuncType) -> String {
    match kind.results() {
        [] => "()".into(),
        [one] => rust(*one).into(),
        several => {
            let several: Vec<_> = several.iter().map(|kind| rust(*kind)).collect();
            format!("({})", several.join(", "))
        }
    }
}

/// A pointer to a function.
fn pointer(kind: &FuncType) -> String {
    let mut text = String::from("fn(&Context");
    for kind in kind.params() {
        let _ = write!(text, ", {}", rust(*kind));
    }
    let _ = write!(text, ") -> {}", results(kind));
    text
}

/// The head of a function, with parameters `l0` and so on.
fn head(name: &str, kind: &FuncType, out: &mut String) {
    let _ = write!(out, "pub fn {name}(c: &Context");
    for (index, kind) in kind.params().iter().enumerate() {
        let _ = write!(out, ", mut l{index}: {}", rust(*kind));
    }
    let _ = writeln!(out, ") -> {} {{", results(kind));
}

/// A crate for a module.
pub(crate) fn translate(module: &Module<'_>) -> Result<String, Refusal> {
    module.refuse_collisions()?;
    refuse(module)?;
    let mut code = String::from("pub mod code {\n#![forbid(unsafe_code)]\nuse crate::wrapper::*;\n");
    for import in 0..module.imported_functions {
        imported(module, import, &mut code);
    }
    let reloads = reloads(module);
    let cycles = Cycles::new(module)?;
    for (index, body) in (module.imported_functions..).zip(&module.bodies) {
        Function::new(module, index, reloads, &cycles).translate(body, &mut code)?;
    }
    code.push_str("}\n");
    Ok(format!(
        "#![no_std]\n#![allow(warnings)]\npub mod wrapper {{\n{WRAPPER}\n}}\n{}{code}",
        roots(module)?
    ))
}

/// Vectors and tail calls have nothing in Rust without `unsafe` that they could be.
fn refuse(module: &Module<'_>) -> Result<(), Refusal> {
    let vectors = |kinds: &[ValType]| kinds.contains(&ValType::V128);
    let types = module
        .types
        .iter()
        .any(|kind| vectors(kind.params()) || vectors(kind.results()));
    if types
        || module
            .globals
            .iter()
            .any(|global| global.kind.content_type == ValType::V128)
    {
        return Err(no_vectors());
    }
    match module.tail_calls {
        true => Err(Refusal::Unsupported(
            "it uses tail calls, which this engine does not run".into(),
        )),
        false => Ok(()),
    }
}

fn no_vectors() -> Refusal {
    let reason = "it uses SIMD, which this engine does not run: compile it without (`-mno-simd128`, `-C target-feature=-simd128`), or leave \
                  `engine` out";
    Refusal::Unsupported(reason.into())
}

/// Whether a call may change the size of the memory.
fn reloads(module: &Module<'_>) -> bool {
    let from_host = |import: &wasmparser::Import<'_>| {
        matches!(import.ty, TypeRef::Func(_)) && import.module.starts_with("wasi_")
    };
    let tables = module
        .exports
        .iter()
        .any(|export| export.kind == wasmparser::ExternalKind::Table);
    module.grows || tables || !module.imports.iter().all(from_host)
}

/// `f0`, which calls an imported function, and `h0`, which calls the host for it.
fn imported(module: &Module<'_>, import: u32, out: &mut String) {
    let kind = module.type_of(import);
    let count = kind.params().len();
    head(&format!("f{import}"), kind, out);
    let arguments: String = (0..count).map(|index| format!(", l{index}")).collect();
    let _ = writeln!(
        out,
        "let (f, x) = c.imported::<{import}, {}>();\nlet r = f(x{arguments});\nstay();\nr\n}}",
        pointer(kind)
    );
    head(&format!("h{import}"), kind, out);
    let slots = count.max(kind.results().len());
    let _ = writeln!(out, "let mut s = Slots::<{slots}>::new();");
    for (index, kind) in kind.params().iter().enumerate() {
        let set = of_kind("set", *kind);
        let _ = writeln!(out, "s.{set}({index}, l{index});");
    }
    let _ = writeln!(out, "c.enter({import}, &mut s);");
    let answers = kind.results().iter().enumerate();
    let answers: Vec<_> = answers
        .map(|(index, kind)| format!("s.{}({index})", of_kind("get", *kind)))
        .collect();
    let _ = match &answers[..] {
        [one] => writeln!(out, "{one}\n}}"),
        several => writeln!(out, "({})\n}}", several.join(", ")),
    };
}

/// A method of the wrapper's that has a twin for references.
fn of_kind(method: &str, kind: ValType) -> String {
    match kind {
        ValType::Ref(_) => format!("{method}_reference"),
        _ => method.to_owned(),
    }
}

/// The names and numbers that the wrapper needs.
fn roots(module: &Module<'_>) -> Result<String, Refusal> {
    let offsets = module.offsets()?;
    let mut out = String::from("pub mod roots {\nuse crate::{code::*, wrapper::*};\n");
    places(module, &offsets, &mut out);
    let mut types: Vec<&FuncType> = Vec::new();
    for kind in &module.types {
        if !types.contains(&kind) {
            types.push(kind);
        }
    }
    out.push_str("signatures! {\n");
    for kind in types {
        let _ = writeln!(out, "{} = {};", pointer(kind), signature(kind));
    }
    out.push_str("}\n");
    let mut entries: Vec<u32> = module
        .referred
        .iter()
        .map(|function| module.functions[*function as usize].type_index)
        .collect();
    entries.sort_unstable();
    entries.dedup();
    for index in &entries {
        entry(*index, &module.types[*index as usize], &mut out);
    }
    out.push_str("image! {\n");
    for function in &module.referred {
        let letter = if *function < module.imported_functions {
            'h'
        } else {
            'f'
        };
        let _ = writeln!(out, "{letter}{function},");
    }
    for index in entries {
        let _ = writeln!(out, "e{index},");
    }
    out.push_str("}\n}\n");
    Ok(out)
}

fn places(module: &Module<'_>, offsets: &Offsets, out: &mut String) {
    let references: Vec<_> = module
        .globals
        .iter()
        .map(|global| {
            let kind = global.kind.content_type;
            matches!(kind, ValType::Ref(_)).then(|| is_function(kind))
        })
        .collect();
    let tables: Vec<_> = module
        .tables
        .iter()
        .map(|table| is_function(ValType::Ref(table.kind.element_type)))
        .collect();
    let _ = writeln!(
        out,
        "pub const PLACES: Places = Places {{ tables: {}, imported_globals: {}, own_globals: {}, references: &{references:?}, function_tables: &{tables:?}, imported_globals_at: {}, globals_at: {}, functions: {}, functions_at: {} }};",
        module.tables.len(),
        module.imported_globals,
        module.globals.len() - module.imported_globals as usize,
        offsets.imported_global(0),
        offsets.global(0),
        module.referred.len(),
        offsets.function(0),
    );
}

fn entry(index: u32, kind: &FuncType, out: &mut String) {
    let list = |kinds: &[ValType], place: &dyn Fn(usize) -> String| -> String {
        let one = |(index, kind): (usize, &ValType)| format!("{}{index} {}, ", place(index), rust(*kind));
        kinds.iter().enumerate().map(one).collect()
    };
    let place = |index: usize| match kind.results().len() {
        1 => "whole ".to_owned(),
        _ => format!("{index} "),
    };
    let _ = writeln!(
        out,
        "entry!(e{index}, ({}), ({}), {});",
        list(kind.params(), &|_| String::new()),
        list(kind.results(), &place),
        pointer(kind)
    );
}

const _: () = assert!(SLOT == 16);
