//! Linear memory, globals, references and tables.

use super::{
    function::{Function, Value},
    is_function, of_kind, rust, zero,
};
use native::layout::Builtin;
use wasmparser::{HeapType, MemArg, Operator, ValType};

use ValType::{F32, F64, I32, I64};

/// A type, as the wrapper's methods tell them apart: of references, whether they are to functions.
fn which(kind: ValType) -> String {
    match kind {
        ValType::Ref(_) => is_function(kind).to_string(),
        _ => rust(kind).to_owned(),
    }
}

fn number(number: u32) -> Value {
    Value {
        kind: I32,
        text: format!("{}_i32", number as i32),
    }
}

impl Function<'_, '_> {
    pub(super) fn places(&mut self, operator: &Operator<'_>) -> bool {
        self.access(operator) || self.bulk(operator) || self.reference(operator)
    }

    fn access(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::I32Load { memarg } => self.load(I32, 4, "i32", memarg),
            Operator::I64Load { memarg } => self.load(I64, 8, "i64", memarg),
            Operator::F32Load { memarg } => self.load(F32, 4, "f32", memarg),
            Operator::F64Load { memarg } => self.load(F64, 8, "f64", memarg),
            Operator::I32Load8S { memarg } => self.load(I32, 1, "i8", memarg),
            Operator::I32Load8U { memarg } => self.load(I32, 1, "u8", memarg),
            Operator::I32Load16S { memarg } => self.load(I32, 2, "i16", memarg),
            Operator::I32Load16U { memarg } => self.load(I32, 2, "u16", memarg),
            Operator::I64Load8S { memarg } => self.load(I64, 1, "i8", memarg),
            Operator::I64Load8U { memarg } => self.load(I64, 1, "u8", memarg),
            Operator::I64Load16S { memarg } => self.load(I64, 2, "i16", memarg),
            Operator::I64Load16U { memarg } => self.load(I64, 2, "u16", memarg),
            Operator::I64Load32S { memarg } => self.load(I64, 4, "i32", memarg),
            Operator::I64Load32U { memarg } => self.load(I64, 4, "u32", memarg),
            Operator::I32Store { memarg } => self.store(4, "i32", memarg),
            Operator::I64Store { memarg } => self.store(8, "i64", memarg),
            Operator::F32Store { memarg } => self.store(4, "f32", memarg),
            Operator::F64Store { memarg } => self.store(8, "f64", memarg),
            Operator::I32Store8 { memarg } | Operator::I64Store8 { memarg } => self.store(1, "u8", memarg),
            Operator::I32Store16 { memarg } | Operator::I64Store16 { memarg } => self.store(2, "u16", memarg),
            Operator::I64Store32 { memarg } => self.store(4, "u32", memarg),
            _ => return false,
        }
        true
    }

    fn load(&mut self, kind: ValType, bytes: u32, part: &str, memarg: MemArg) {
        let address = self.pop();
        self.push(
            kind,
            format_args!(
                "{part}::from_le_bytes(at::<{bytes}>(m, {address}, {}).get()) as {}",
                memarg.offset,
                rust(kind)
            ),
        );
    }

    fn store(&mut self, bytes: u32, part: &str, memarg: MemArg) {
        let (value, address) = (self.pop(), self.pop());
        self.line(format_args!(
            "at::<{bytes}>(m, {address}, {}).set(({value} as {part}).to_le_bytes());",
            memarg.offset
        ));
    }

    fn bulk(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::MemorySize { .. } => self.push(I32, format_args!("c.memory_size()")),
            Operator::MemoryGrow { .. } => {
                let pages = self.pop();
                self.enter(Builtin::MemoryGrow, &[pages], true);
                self.reload();
            }
            Operator::MemoryFill { .. } | Operator::MemoryCopy { .. } => {
                let (length, from, to) = (self.pop(), self.pop(), self.pop());
                let what = match operator {
                    Operator::MemoryFill { .. } => "fill",
                    _ => "copy",
                };
                self.line(format_args!("c.memory_{what}({to}, {from}, {length});"));
            }
            Operator::MemoryInit { data_index, .. } => {
                let (length, from, to) = (self.pop(), self.pop(), self.pop());
                self.enter(
                    Builtin::MemoryInit,
                    &[number(data_index), to, from, length],
                    false,
                );
            }
            Operator::DataDrop { data_index } => self.enter(Builtin::DataDrop, &[number(data_index)], false),
            Operator::GlobalGet { global_index } => {
                let kind = self.module.globals[global_index as usize].kind.content_type;
                let get = of_kind("global", kind);
                let kinds = which(kind);
                self.push(kind, format_args!("c.{get}::<{global_index}, {kinds}>()"));
            }
            Operator::GlobalSet { global_index } => {
                let value = self.pop();
                let set = of_kind("set_global", value.kind);
                let kinds = which(value.kind);
                self.line(format_args!("c.{set}::<{global_index}, {kinds}>({value});"));
            }
            _ => return false,
        }
        true
    }

    fn reference(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::RefNull { hty } => {
                // Validation lets no other heap type in.
                let kind = wasmparser::RefType::new(true, hty).unwrap_or(wasmparser::RefType::FUNCREF);
                let kind = ValType::Ref(kind);
                self.constant(kind, zero(kind).into());
            }
            Operator::RefIsNull => {
                let value = self.pop();
                self.push(I32, format_args!("{value}.is_null()"));
            }
            Operator::RefFunc { function_index } => {
                let place = self.module.functions[function_index as usize].place.unwrap_or(0);
                self.push(
                    ValType::Ref(wasmparser::RefType::FUNCREF),
                    format_args!("c.function::<{place}>()"),
                );
            }
            Operator::TableGet { table } => {
                let index = self.pop();
                let kind = ValType::Ref(self.module.tables[table as usize].kind.element_type);
                let which = which(kind);
                self.push(kind, format_args!("c.table_get::<{table}, {which}>({index})"));
            }
            Operator::TableSet { table } => {
                let (value, index) = (self.pop(), self.pop());
                let kind = self.module.tables[table as usize].kind.element_type;
                let what = match kind.heap_type() == HeapType::FUNC {
                    true => "_function",
                    false => "",
                };
                self.line(format_args!("c.table_set{what}::<{table}>({index}, {value});"));
            }
            Operator::TableSize { table } => self.push(I32, format_args!("c.table_size::<{table}>()")),
            Operator::TableGrow { table } => {
                let (count, value) = (self.pop(), self.pop());
                self.enter(Builtin::TableGrow, &[number(table), count, value], true);
            }
            Operator::TableFill { table } => {
                let (count, value, from) = (self.pop(), self.pop(), self.pop());
                self.enter(Builtin::TableFill, &[number(table), from, value, count], false);
            }
            Operator::TableCopy { dst_table, src_table } => {
                let (count, from, to) = (self.pop(), self.pop(), self.pop());
                let arguments = [number(dst_table), number(src_table), to, from, count];
                self.enter(Builtin::TableCopy, &arguments, false);
            }
            Operator::TableInit { elem_index, table } => {
                let (count, from, to) = (self.pop(), self.pop(), self.pop());
                let arguments = [number(table), number(elem_index), to, from, count];
                self.enter(Builtin::TableInit, &arguments, false);
            }
            Operator::ElemDrop { elem_index } => {
                self.enter(Builtin::ElementsDrop, &[number(elem_index)], false);
            }
            _ => return false,
        }
        true
    }
}
