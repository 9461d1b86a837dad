//! Types as images keep them. Where they come from, `wasmparser` has a name for each.

use crate::module::{self, SIGNED_PAGES};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// Of a parameter, a result, a global or an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ValueType {
    I32,
    I64,
    F32,
    F64,
    V128,
    Function,
    /// Whatever the host means by it.
    External,
}

impl From<wasmparser::ValType> for ValueType {
    fn from(kind: wasmparser::ValType) -> Self {
        match kind {
            wasmparser::ValType::I32 => Self::I32,
            wasmparser::ValType::I64 => Self::I64,
            wasmparser::ValType::F32 => Self::F32,
            wasmparser::ValType::F64 => Self::F64,
            wasmparser::ValType::V128 => Self::V128,
            wasmparser::ValType::Ref(reference) => reference.into(),
        }
    }
}

impl From<wasmparser::RefType> for ValueType {
    fn from(kind: wasmparser::RefType) -> Self {
        // By the features that modules are read with, there are no others.
        match kind.is_func_ref() {
            true => Self::Function,
            false => Self::External,
        }
    }
}

impl Display for ValueType {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::V128 => "v128",
            Self::Function => "funcref",
            Self::External => "externref",
        })
    }
}

/// Of functions that are referred to.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FunctionType {
    pub(crate) parameters: Box<[ValueType]>,
    pub(crate) results: Box<[ValueType]>,
    /// See [`signature`](module::signature).
    pub(crate) signature: u64,
}

impl From<&wasmparser::FuncType> for FunctionType {
    fn from(kind: &wasmparser::FuncType) -> Self {
        let values = |of: &[wasmparser::ValType]| of.iter().copied().map(Into::into).collect();
        Self {
            parameters: values(kind.params()),
            results: values(kind.results()),
            signature: module::signature(kind),
        }
    }
}

/// As the text format has it.
impl Display for FunctionType {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str("(func")?;
        for (name, values) in [("param", &self.parameters), ("result", &self.results)] {
            if !values.is_empty() {
                write!(out, " ({name}")?;
                values.iter().try_for_each(|value| write!(out, " {value}"))?;
                out.write_str(")")?;
            }
        }
        out.write_str(")")
    }
}

/// Of a table: what it holds, and how many elements at first and at most.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct TableType {
    pub(crate) element: ValueType,
    pub(crate) initial: u64,
    pub(crate) maximum: Option<u64>,
}

impl From<wasmparser::TableType> for TableType {
    fn from(kind: wasmparser::TableType) -> Self {
        Self {
            element: kind.element_type.into(),
            initial: kind.initial,
            maximum: kind.maximum,
        }
    }
}

/// Of a memory: its pages at first and at most.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct MemoryType {
    pub(crate) initial: u64,
    pub(crate) maximum: Option<u64>,
}

impl MemoryType {
    /// Whether it never gets larger than 2 GiB: none does that does not begin so.
    pub(crate) fn has_signed_addresses(self) -> bool {
        self.initial <= SIGNED_PAGES
    }
}

impl From<wasmparser::MemoryType> for MemoryType {
    fn from(kind: wasmparser::MemoryType) -> Self {
        Self {
            initial: kind.initial,
            maximum: kind.maximum,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GlobalType {
    content: ValueType,
    mutable: bool,
}

impl From<wasmparser::GlobalType> for GlobalType {
    fn from(kind: wasmparser::GlobalType) -> Self {
        Self {
            content: kind.content_type.into(),
            mutable: kind.mutable,
        }
    }
}
