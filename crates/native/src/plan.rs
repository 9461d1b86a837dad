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

    /// Of an artefact. Whatever it refers to is there, so that those who make instances of it look it up and ask no more.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let plan: Self = postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
        match plan.is_consistent() {
            Some(true) => Ok(plan),
            _ => Err("its plan refers to what it does not have".into()),
        }
    }

    /// `None` if there are more of something than a place can tell.
    fn is_consistent(&self) -> Option<bool> {
        let count = |length: usize| u32::try_from(length).ok();
        let [tables, globals, functions, entries] = [
            count(self.tables.len())?,
            count(self.globals.len())?,
            count(self.functions.len())?,
            count(self.entries.len())?,
        ];
        let imported =
            |of: fn(&Imported) -> bool| self.imports.iter().filter(|import| of(&import.kind)).count();
        let own_globals = globals.checked_sub(self.imported_globals)?;
        let offsets = Offsets::new(tables, self.imported_globals, own_globals, functions)?;
        let is_value = |expression: &Expression| {
            let depth = expression.iter().try_fold(0_usize, |depth, step| match step {
                Step::Constant(_) => Some(depth + 1),
                Step::Global(index) => (*index < globals).then_some(depth + 1),
                Step::Function(place) => (*place < functions).then_some(depth + 1),
                Step::I32(_) | Step::I64(_) => (depth >= 2).then(|| depth - 1),
            });
            depth == Some(1)
        };
        let are_values = |init: Option<&Expression>| init.is_none_or(is_value);
        Some(
            self.offsets == offsets
                && imported(|kind| matches!(kind, Imported::Function)) == self.imported_functions as usize
                && imported(|kind| matches!(kind, Imported::Table(_))) == self.imported_tables as usize
                && imported(|kind| matches!(kind, Imported::Global(_))) == self.imported_globals as usize
                && self.imported_functions <= functions
                && self.imported_tables <= tables
                && (self.memory.is_some() || !self.imported_memory)
                && self.functions.iter().all(|entry| *entry < entries)
                && self.tables.iter().all(|(_, init)| are_values(init.as_ref()))
                && self.globals.iter().all(|(_, init)| are_values(init.as_ref()))
                && self.data.iter().all(|segment| match &segment.at {
                    Some((_, at)) => self.memory.is_some() && is_value(at),
                    None => true,
                })
                && self.elements.iter().all(|segment| {
                    segment.content.iter().all(is_value)
                        && segment
                            .at
                            .as_ref()
                            .is_none_or(|(table, at)| *table < tables && is_value(at))
                })
                && self.exports.iter().all(|(_, exported)| match exported {
                    Exported::Function(place) => *place < functions,
                    Exported::Table(index) => *index < tables,
                    Exported::Memory => self.memory.is_some(),
                    Exported::Global(index) => *index < globals,
                })
                && self.start.is_none_or(|place| place < functions),
        )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ValueType;

    fn constant() -> Expression {
        [Step::Constant(slot(&[]))].into()
    }

    /// Of everything one, and of functions an imported one and its own.
    fn plan() -> Plan {
        let table = TableType {
            element: ValueType::Function,
            initial: 1,
            maximum: None,
        };
        let global = wasmparser::GlobalType {
            content_type: wasmparser::ValType::I32,
            mutable: false,
            shared: false,
        };
        let functions = [Step::Function(0), Step::Function(1)].map(|step| -> Expression { [step].into() });
        Plan {
            offsets: Offsets::new(1, 0, 1, 2).unwrap(),
            imports: [Import {
                module: "m".into(),
                name: "f".into(),
                kind: Imported::Function,
            }]
            .into(),
            imported_functions: 1,
            functions: [0, 0].into(),
            entries: [FunctionType {
                parameters: [].into(),
                results: [].into(),
                signature: 1,
            }]
            .into(),
            tables: [(table, None)].into(),
            imported_tables: 0,
            memory: Some(MemoryType {
                initial: 1,
                maximum: None,
            }),
            imported_memory: false,
            globals: [(global.into(), Some(constant()))].into(),
            imported_globals: 0,
            data: [Segment {
                content: ByteBuf::from(*b"data"),
                at: Some((0, constant())),
                declared: false,
            }]
            .into(),
            elements: [Segment {
                content: functions.into(),
                at: Some((0, constant())),
                declared: false,
            }]
            .into(),
            exports: [
                ("f", Exported::Function(1)),
                ("t", Exported::Table(0)),
                ("m", Exported::Memory),
                ("g", Exported::Global(0)),
            ]
            .map(|(name, exported)| (name.into(), exported))
            .into(),
            start: Some(1),
            sets_tables: false,
        }
    }

    #[test]
    fn a_plan_that_refers_to_what_it_does_not_have_is_refused() {
        let read = |change: &dyn Fn(&mut Plan)| {
            let mut plan = plan();
            change(&mut plan);
            Plan::read(&postcard::to_allocvec(&plan).unwrap()).map(drop)
        };
        read(&|_| ()).unwrap();
        read(&|plan| plan.elements[0].content[0] = [Step::Global(0)].into()).unwrap();
        let sum = [Step::Global(0), Step::Global(0), Step::I32(Arithmetic::Add)];
        read(&|plan| plan.globals[0].1 = Some(sum.into())).unwrap();

        let changes: [&dyn Fn(&mut Plan); 22] = [
            &|plan| plan.offsets = Offsets::new(1, 0, 1, 1).unwrap(),
            &|plan| plan.imports = [].into(),
            &|plan| plan.imports[0].kind = Imported::Table(plan.tables[0].0),
            &|plan| plan.imported_functions = 3,
            &|plan| plan.functions[1] = 1,
            &|plan| plan.functions = [0].into(),
            &|plan| plan.entries = [].into(),
            &|plan| plan.tables = [].into(),
            &|plan| plan.tables[0].1 = Some([Step::Function(2)].into()),
            &|plan| plan.imported_tables = 1,
            &|plan| plan.memory = None,
            &|plan| plan.globals = [].into(),
            &|plan| plan.globals[0].1 = Some([Step::Global(1)].into()),
            &|plan| plan.globals[0].1 = Some(sum[1..].into()),
            &|plan| plan.globals[0].1 = Some([].into()),
            &|plan| plan.imported_globals = 2,
            &|plan| plan.data[0].at = Some((0, [Step::Function(2)].into())),
            &|plan| plan.elements[0].at = Some((1, constant())),
            &|plan| plan.elements[0].content[1] = [Step::Function(2)].into(),
            &|plan| plan.exports[0].1 = Exported::Function(2),
            &|plan| plan.exports[1].1 = Exported::Table(1),
            &|plan| plan.start = Some(2),
        ];
        for (number, change) in changes.iter().enumerate() {
            let refused = read(change).unwrap_err();
            assert_eq!(
                refused, "its plan refers to what it does not have",
                "change {number}"
            );
        }
    }
}
