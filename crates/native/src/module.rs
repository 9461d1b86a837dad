//! A module as the translator and the loader see it: its index spaces, and its bodies.

use crate::{layout::Offsets, types};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeSet, HashMap};
use wasmparser::{
    Data, Element, ElementItems, Export, ExternalKind, FuncType, FunctionBody, GlobalType, Import,
    MemoryType, Operator, Parser, Payload, TableType, TypeRef, Validator, WasmFeatures,
};

/// Wasm 2.0 and what today's toolchains emit beyond it.
pub const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::EXTENDED_CONST);

/// Why a module cannot be translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no module.
    #[error("{0}")]
    Malformed(String),
    /// It is one that a compiler or this crate does not know what to do with.
    #[error("{0}")]
    Unsupported(String),
}

impl From<wasmparser::BinaryReaderError> for Refusal {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// A function that a module has: its type, and its place among those that are referred to.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Of its type.
    pub type_index: u32,
    /// Of its [`FunctionReference`](crate::layout::FunctionReference) in the context, if something refers to it.
    pub place: Option<u32>,
}

/// A global.
pub struct Global<'a> {
    /// Its type.
    pub kind: GlobalType,
    /// None for imported ones.
    pub init: Option<wasmparser::ConstExpr<'a>>,
}

/// A table.
pub struct Table<'a> {
    /// Its type.
    pub kind: TableType,
    /// What its elements are at first, if they are not null.
    pub init: Option<wasmparser::ConstExpr<'a>>,
}

/// A valid module. Of each index space, what is imported comes first.
#[derive(Default)]
#[expect(missing_docs, reason = "sections, by the specification's names")]
pub struct Module<'a> {
    pub types: Vec<FuncType>,
    pub imports: Vec<Import<'a>>,
    pub functions: Vec<Function>,
    pub tables: Vec<Table<'a>>,
    pub memory: Option<MemoryType>,
    pub globals: Vec<Global<'a>>,
    pub exports: Vec<Export<'a>>,
    pub elements: Vec<Element<'a>>,
    pub data: Vec<Data<'a>>,
    pub start: Option<u32>,
    pub bodies: Vec<FunctionBody<'a>>,
    /// Whether any body has a tail call.
    pub tail_calls: bool,
    /// Whether any body makes the memory larger.
    pub grows: bool,
    /// Whether any body writes to a table by itself.
    pub sets_tables: bool,
    pub imported_functions: u32,
    pub imported_tables: u32,
    pub imported_globals: u32,
    pub imported_memory: bool,
    /// Functions that are referred to, imported ones first and all of them.
    pub referred: Vec<u32>,
}

impl<'a> Module<'a> {
    /// Reads a module, which is valid afterwards.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Refusal> {
        Validator::new_with_features(FEATURES)
            .validate_all(bytes)
            .map_err(|error| refusal(bytes, &error))?;
        let mut module = Self::default();
        for payload in Parser::new(0).parse_all(bytes) {
            module.section(payload?)?;
        }
        module.refer()?;
        Ok(module)
    }

    fn section(&mut self, payload: Payload<'a>) -> wasmparser::Result<()> {
        match payload {
            Payload::TypeSection(section) => {
                for group in section {
                    for kind in group?.into_types() {
                        self.types.push(kind.unwrap_func().clone());
                    }
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    self.import(&import);
                    self.imports.push(import);
                }
            }
            Payload::FunctionSection(section) => {
                for type_index in section {
                    self.functions.push(Function {
                        type_index: type_index?,
                        place: None,
                    });
                }
            }
            Payload::TableSection(section) => {
                for table in section {
                    let table = table?;
                    self.tables.push(Table {
                        kind: table.ty,
                        init: match table.init {
                            wasmparser::TableInit::RefNull => None,
                            wasmparser::TableInit::Expr(init) => Some(init),
                        },
                    });
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    self.memory = Some(memory?);
                }
            }
            Payload::GlobalSection(section) => {
                for global in section {
                    let global = global?;
                    self.globals.push(Global {
                        kind: global.ty,
                        init: Some(global.init_expr),
                    });
                }
            }
            Payload::ExportSection(section) => {
                self.exports = section.into_iter().collect::<Result<_, _>>()?
            }
            Payload::StartSection { func, .. } => self.start = Some(func),
            Payload::ElementSection(section) => {
                self.elements = section.into_iter().collect::<Result<_, _>>()?
            }
            Payload::DataSection(section) => self.data = section.into_iter().collect::<Result<_, _>>()?,
            Payload::CodeSectionEntry(body) => {
                for operator in body.get_operators_reader()? {
                    match operator? {
                        Operator::ReturnCall { .. } | Operator::ReturnCallIndirect { .. } => {
                            self.tail_calls = true;
                        }
                        Operator::MemoryGrow { .. } => self.grows = true,
                        Operator::TableSet { .. } => self.sets_tables = true,
                        _ => {}
                    }
                }
                self.bodies.push(body);
            }
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, import: &Import<'a>) {
        match import.ty {
            TypeRef::Func(type_index) | TypeRef::FuncExact(type_index) => {
                self.imported_functions += 1;
                self.functions.push(Function {
                    type_index,
                    place: None,
                });
            }
            TypeRef::Table(kind) => {
                self.imported_tables += 1;
                self.tables.push(Table { kind, init: None });
            }
            TypeRef::Memory(kind) => {
                self.imported_memory = true;
                self.memory = Some(kind);
            }
            TypeRef::Global(kind) => {
                self.imported_globals += 1;
                self.globals.push(Global { kind, init: None });
            }
            TypeRef::Tag(_) => {}
        }
    }

    /// Gives a place to each function that a table, a global, an export or an instruction refers to: validation has seen to
    /// it that instructions refer to such functions only as segments, globals or exports name.
    fn refer(&mut self) -> Result<(), Refusal> {
        let mut referred: BTreeSet<u32> = self
            .exports
            .iter()
            .filter(|export| export.kind == ExternalKind::Func)
            .map(|export| export.index)
            .chain(self.start)
            .collect();
        let mut expressions: Vec<_> = self
            .globals
            .iter()
            .filter_map(|global| global.init.clone())
            .collect();
        expressions.extend(self.tables.iter().filter_map(|table| table.init.clone()));
        for element in &self.elements {
            match element.items.clone() {
                ElementItems::Functions(functions) => {
                    for function in functions {
                        referred.insert(function?);
                    }
                }
                ElementItems::Expressions(_, items) => {
                    for item in items {
                        expressions.push(item?);
                    }
                }
            }
        }
        for expression in expressions {
            for operator in expression.get_operators_reader() {
                if let Operator::RefFunc { function_index } = operator? {
                    referred.insert(function_index);
                }
            }
        }
        let own = referred
            .into_iter()
            .filter(|index| *index >= self.imported_functions);
        self.referred = (0..self.imported_functions).chain(own).collect();
        for (place, function) in (0..).zip(&self.referred) {
            self.functions[*function as usize].place = Some(place);
        }
        Ok(())
    }

    /// How functions of this module call each other. With tail calls a callee removes what it was given on the stack, and that costs
    /// every call something, so only who needs it has it. Modules of which only one has tail calls cannot be linked; this engine
    /// links none but to the host.
    pub fn convention(&self) -> &'static str {
        if self.tail_calls { "tailcc" } else { "fastcc" }
    }

    /// Whether it has a memory that can never be larger than 2 GiB.
    pub fn has_signed_addresses(&self) -> bool {
        self.memory
            .is_some_and(|memory| types::MemoryType::from(memory).has_signed_addresses())
    }

    /// Two types with the same number would be one to an indirect call.
    pub fn refuse_collisions(&self) -> Result<(), Refusal> {
        let mut known = HashMap::new();
        for kind in &self.types {
            if known
                .insert(signature(kind), kind)
                .is_some_and(|other| other != kind)
            {
                let reason =
                    "two of its function types have the same number; change the order of one's parameters";
                return Err(Refusal::Unsupported(reason.into()));
            }
        }
        Ok(())
    }

    /// A function's type.
    pub fn type_of(&self, function: u32) -> &FuncType {
        &self.types[self.functions[function as usize].type_index as usize]
    }

    /// Where in the context of this module's instances what lies.
    pub fn offsets(&self) -> Result<Offsets, Refusal> {
        let count = |length: usize| u32::try_from(length).ok();
        count(self.tables.len())
            .zip(count(self.globals.len()))
            .zip(count(self.referred.len()))
            .and_then(|((tables, globals), functions)| {
                Offsets::new(
                    tables,
                    self.imported_globals,
                    globals - self.imported_globals,
                    functions,
                )
            })
            .ok_or_else(|| {
                Refusal::Unsupported("it has more globals and functions than this engine can address".into())
            })
    }
}

/// Pages of 2 GiB.
pub const SIGNED_PAGES: u64 = 32 << 10;

/// Malformed, or valid by proposals that this engine does not know: these are named.
fn refusal(bytes: &[u8], error: &wasmparser::BinaryReaderError) -> Refusal {
    const LATER: [(WasmFeatures, &str); 8] = [
        (WasmFeatures::MULTI_MEMORY, "multi-memory"),
        (WasmFeatures::MEMORY64, "memory64"),
        (WasmFeatures::THREADS, "threads"),
        (WasmFeatures::RELAXED_SIMD, "relaxed SIMD"),
        (WasmFeatures::EXCEPTIONS, "exception handling"),
        (WasmFeatures::FUNCTION_REFERENCES, "typed function references"),
        (
            WasmFeatures::GC.union(WasmFeatures::FUNCTION_REFERENCES),
            "garbage collection",
        ),
        (WasmFeatures::CUSTOM_PAGE_SIZES, "custom page sizes"),
    ];
    let needed = LATER.iter().find(|(feature, _)| {
        Validator::new_with_features(FEATURES.union(*feature))
            .validate_all(bytes)
            .is_ok()
    });
    match needed {
        Some((_, name)) => Refusal::Unsupported(format!("it uses {name}, which this engine does not run")),
        None => Refusal::Malformed(error.to_string()),
    }
}

/// A number for a function type that is the same in all modules. Never 0.
pub fn signature(kind: &FuncType) -> u64 {
    let mut hash = Sha256::new();
    hash.update(kind.to_string());
    let digest: [u8; 32] = hash.finalize().into();
    u64::from_le_bytes(digest[..8].try_into().unwrap_or_default()) | 1
}
