//! What of a module is needed to make instances of it, once its code is compiled: an artefact has it beside its object. To read
//! the module again took most of the time that loading a small function takes.

use crate::{
    layout::{Offsets, SLOT},
    module::{Module, Refusal},
    table,
    types::{FunctionType, GlobalType, MemoryType, TableType},
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use wasmparser::{ConstExpr, DataKind, ElementItems, ElementKind, ExternalKind, Operator, TypeRef};

/// A parameter, a result or a global, as it lies in memory.
pub(crate) type Slot = [u8; SLOT as usize];

/// These bytes, and zeros behind them.
pub fn slot(bytes: &[u8]) -> Slot {
    let mut slot = [0; SLOT as usize];
    slot[..bytes.len()].copy_from_slice(bytes);
    slot
}

/// A step of a constant expression.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Step {
    Constant(Slot),
    Global(u32),
    /// A reference to a function, by its place.
    Function(u32),
    I32(Arithmetic),
    I64(Arithmetic),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
}

impl Arithmetic {
    pub(crate) fn on_i32(self, a: i32, b: i32) -> i32 {
        match self {
            Self::Add => a.wrapping_add(b),
            Self::Subtract => a.wrapping_sub(b),
            Self::Multiply => a.wrapping_mul(b),
        }
    }

    pub(crate) fn on_i64(self, a: i64, b: i64) -> i64 {
        match self {
            Self::Add => a.wrapping_add(b),
            Self::Subtract => a.wrapping_sub(b),
            Self::Multiply => a.wrapping_mul(b),
        }
    }
}

pub(crate) type Expression = Box<[Step]>;

/// Of the segment of a table.
pub(crate) type Elements = Box<[Expression]>;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Import {
    pub(crate) module: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) kind: Imported,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Imported {
    /// Its place is the next one of a function.
    Function,
    Table(TableType),
    Memory(MemoryType),
    Global(GlobalType),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Exported {
    /// By its place.
    Function(u32),
    Table(u32),
    Memory,
    Global(u32),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Segment<C> {
    pub(crate) content: C,
    /// Of an active one, the table (0 for memory) and the position.
    pub(crate) at: Option<(u32, Expression)>,
    /// There is nothing of it once an instance is made.
    pub(crate) declared: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) offsets: Offsets,
    pub(crate) imports: Box<[Import]>,
    pub(crate) imported_functions: u32,
    /// Of functions that are referred to, by place: which entry leads to those of its type. Imported ones come first.
    pub(crate) functions: Box<[u32]>,
    /// The types, in the entries' order.
    pub(crate) entries: Box<[FunctionType]>,
    pub(crate) tables: Box<[(TableType, Option<Expression>)]>,
    pub(crate) imported_tables: u32,
    pub(crate) memory: Option<MemoryType>,
    pub(crate) imported_memory: bool,
    /// Imported ones first, which have no expression.
    pub(crate) globals: Box<[(GlobalType, Option<Expression>)]>,
    pub(crate) imported_globals: u32,
    pub(crate) data: Box<[Segment<ByteBuf>]>,
    pub(crate) elements: Box<[Segment<Elements>]>,
    pub(crate) exports: Box<[(Box<str>, Exported)]>,
    /// By place.
    pub(crate) start: Option<u32>,
    /// Whether its code may write to its tables by itself.
    pub(crate) sets_tables: bool,
}

impl Plan {
    pub(crate) fn new(module: &Module<'_>) -> Result<Self, Refusal> {
        for table in &module.tables[module.imported_tables as usize..] {
            let room = table::room(&table.kind.into());
            room.map_err(|error| Refusal::Unsupported(format!("it has {error}")))?;
        }
        let mut entries: Vec<u32> = module
            .referred
            .iter()
            .map(|function| module.functions[*function as usize].type_index)
            .collect();
        entries.sort_unstable();
        entries.dedup();
        let functions = module.referred.iter().map(|function| {
            let type_index = module.functions[*function as usize].type_index;
            entries.binary_search(&type_index).unwrap_or(0) as u32
        });
        let optional =
            |init: &Option<ConstExpr<'_>>| init.as_ref().map(|init| expression(module, init)).transpose();
        Ok(Self {
            offsets: module.offsets()?,
            imports: imports(module),
            imported_functions: module.imported_functions,
            functions: functions.collect(),
            entries: entries
                .iter()
                .map(|index| (&module.types[*index as usize]).into())
                .collect(),
            tables: module
                .tables
                .iter()
                .map(|table| Ok((table.kind.into(), optional(&table.init)?)))
                .collect::<Result<_, Refusal>>()?,
            imported_tables: module.imported_tables,
            memory: module.memory.map(Into::into),
            imported_memory: module.imported_memory,
            globals: module
                .globals
                .iter()
                .map(|global| Ok((global.kind.into(), optional(&global.init)?)))
                .collect::<Result<_, Refusal>>()?,
            imported_globals: module.imported_globals,
            data: data(module)?,
            elements: elements(module)?,
            exports: exports(module),
            start: module.start.map(|start| place(module, start)),
            sets_tables: module.sets_tables,
        })
    }

    /// Of a function that is referred to, by its place.
    pub(crate) fn type_of(&self, place: u32) -> &FunctionType {
        &self.entries[self.functions[place as usize] as usize]
    }

    /// How many an object has for it: the functions, and the entries.
    pub(crate) fn symbols(&self) -> usize {
        self.functions.len() + self.entries.len()
    }
}

fn place(module: &Module<'_>, function: u32) -> u32 {
    // `Module::refer` has given one to each that is referred to.
    module.functions[function as usize].place.unwrap_or(0)
}

fn imports(module: &Module<'_>) -> Box<[Import]> {
    let imports = module.imports.iter().map(|import| Import {
        module: import.module.into(),
        name: import.name.into(),
        kind: match import.ty {
            TypeRef::Table(kind) => Imported::Table(kind.into()),
            TypeRef::Memory(kind) => Imported::Memory(kind.into()),
            TypeRef::Global(kind) => Imported::Global(kind.into()),
            // Validation lets no tags in.
            TypeRef::Func(_) | TypeRef::FuncExact(_) | TypeRef::Tag(_) => Imported::Function,
        },
    });
    imports.collect()
}

fn exports(module: &Module<'_>) -> Box<[(Box<str>, Exported)]> {
    let exports = module.exports.iter().filter_map(|export| {
        let exported = match export.kind {
            ExternalKind::Func | ExternalKind::FuncExact => Exported::Function(place(module, export.index)),
            ExternalKind::Table => Exported::Table(export.index),
            ExternalKind::Memory => Exported::Memory,
            ExternalKind::Global => Exported::Global(export.index),
            ExternalKind::Tag => return None,
        };
        Some((export.name.into(), exported))
    });
    exports.collect()
}

fn data(module: &Module<'_>) -> Result<Box<[Segment<ByteBuf>]>, Refusal> {
    let segments = module.data.iter().map(|data| {
        Ok(Segment {
            content: ByteBuf::from(data.data),
            at: match &data.kind {
                DataKind::Active { offset_expr, .. } => Some((0, expression(module, offset_expr)?)),
                DataKind::Passive => None,
            },
            declared: false,
        })
    });
    segments.collect()
}

fn elements(module: &Module<'_>) -> Result<Box<[Segment<Elements>]>, Refusal> {
    let segments = module.elements.iter().map(|element| {
        let content = match element.items.clone() {
            ElementItems::Functions(functions) => functions
                .into_iter()
                .map(|function| Ok([Step::Function(place(module, function?))].into()))
                .collect::<Result<_, Refusal>>()?,
            ElementItems::Expressions(_, items) => items
                .into_iter()
                .map(|item| expression(module, &item?))
                .collect::<Result<_, Refusal>>()?,
        };
        let at = match &element.kind {
            ElementKind::Active {
                table_index,
                offset_expr,
            } => Some((table_index.unwrap_or(0), expression(module, offset_expr)?)),
            ElementKind::Passive | ElementKind::Declared => None,
        };
        Ok(Segment {
            content,
            at,
            declared: matches!(element.kind, ElementKind::Declared),
        })
    });
    segments.collect()
}

fn expression(module: &Module<'_>, expression: &ConstExpr<'_>) -> Result<Expression, Refusal> {
    let mut steps = Vec::new();
    for operator in expression.get_operators_reader() {
        steps.push(match operator? {
            Operator::I32Const { value } => Step::Constant(slot(&value.to_le_bytes())),
            Operator::I64Const { value } => Step::Constant(slot(&value.to_le_bytes())),
            Operator::F32Const { value } => Step::Constant(slot(&value.bits().to_le_bytes())),
            Operator::F64Const { value } => Step::Constant(slot(&value.bits().to_le_bytes())),
            Operator::V128Const { value } => Step::Constant(*value.bytes()),
            Operator::RefNull { .. } => Step::Constant(slot(&[])),
            Operator::RefFunc { function_index } => Step::Function(place(module, function_index)),
            Operator::GlobalGet { global_index } => Step::Global(global_index),
            Operator::I32Add => Step::I32(Arithmetic::Add),
            Operator::I32Sub => Step::I32(Arithmetic::Subtract),
            Operator::I32Mul => Step::I32(Arithmetic::Multiply),
            Operator::I64Add => Step::I64(Arithmetic::Add),
            Operator::I64Sub => Step::I64(Arithmetic::Subtract),
            Operator::I64Mul => Step::I64(Arithmetic::Multiply),
            Operator::End => break,
            other => {
                return Err(Refusal::Unsupported(format!(
                    "{other:?} in a constant expression"
                )));
            }
        });
    }
    Ok(steps.into())
}
