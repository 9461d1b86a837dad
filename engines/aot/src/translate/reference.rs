//! References and tables.

use super::{
    function::{Function, Text, Value},
    llvm,
};
use native::layout::{self, Builtin, ELEMENT, SLOT, Trap};
use wasmparser::{HeapType, Operator, RefType, ValType};

impl Function<'_, '_> {
    pub(super) fn reference(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::RefNull { hty } => {
                // Validation lets no other heap type in.
                let kind = RefType::new(true, hty).unwrap_or(RefType::FUNCREF);
                self.stack.push(Value::constant(ValType::Ref(kind), "null"));
            }
            Operator::RefIsNull => {
                let value = self.pop();
                let is = self.define(format_args!("icmp eq ptr {value}, null"));
                let text = self.define(format_args!("zext i1 {is} to i32"));
                self.push(ValType::I32, text);
            }
            Operator::RefFunc { function_index } => {
                let place = self.module.functions[function_index as usize].place.unwrap_or(0);
                let offset = self.offsets.function(place);
                let text = self.define(format_args!("getelementptr inbounds i8, ptr %c, i64 {offset}"));
                self.push(ValType::Ref(RefType::FUNCREF), text);
            }
            Operator::TableGet { table } => {
                let index = self.pop();
                let element = self.element(table, &index, Trap::TableOutOfBounds);
                let text = self.field(&element, layout::REFERENCE);
                let kind = self.module.tables[table as usize].kind.element_type;
                self.push(ValType::Ref(kind), text);
            }
            Operator::TableSet { table } => {
                let (value, index) = (self.pop(), self.pop());
                let element = self.element(table, &index, Trap::TableOutOfBounds);
                self.set_element(table, &element, &value);
            }
            Operator::TableSize { table } => {
                let (_, length) = self.table(table);
                self.push(ValType::I32, length);
            }
            Operator::TableGrow { table } => {
                let (count, value) = (self.pop(), self.pop());
                let arguments = [index_value(table), count, value];
                self.enter(Builtin::TableGrow, &arguments, true);
            }
            Operator::TableFill { table } => {
                let (count, value, from) = (self.pop(), self.pop(), self.pop());
                self.enter(
                    Builtin::TableFill,
                    &[index_value(table), from, value, count],
                    false,
                );
            }
            Operator::TableCopy { dst_table, src_table } => {
                let (count, from, to) = (self.pop(), self.pop(), self.pop());
                let arguments = [index_value(dst_table), index_value(src_table), to, from, count];
                self.enter(Builtin::TableCopy, &arguments, false);
            }
            Operator::TableInit { elem_index, table } => {
                let (count, from, to) = (self.pop(), self.pop(), self.pop());
                let arguments = [index_value(table), index_value(elem_index), to, from, count];
                self.enter(Builtin::TableInit, &arguments, false);
            }
            Operator::ElemDrop { elem_index } => {
                self.enter(Builtin::ElementsDrop, &[index_value(elem_index)], false);
            }
            _ => return false,
        }
        true
    }

    /// A table's address and length.
    fn table(&mut self, table: u32) -> (Text, Text) {
        let address = self.constant_of_context(self.offsets.table(table), "ptr", "%c");
        let length = self.define(format_args!(
            "load i32, ptr {address}, align 8, !alias.scope !4, !noalias !3"
        ));
        (address, length)
    }

    /// The address of a table's element.
    pub(super) fn element(&mut self, table: u32, index: &Value, trap: Trap) -> Text {
        let (address, length) = self.table(table);
        let outside = self.define(format_args!("icmp uge i32 {index}, {length}"));
        self.trap_if(&outside, trap);
        let wide = self.define(format_args!("zext i32 {index} to i64"));
        let scaled = self.define(format_args!("mul nuw nsw i64 {wide}, {ELEMENT}"));
        let offset = self.define(format_args!("add nuw nsw i64 {scaled}, {}", layout::ELEMENTS));
        self.define(format_args!(
            "getelementptr inbounds i8, ptr {address}, i64 {offset}"
        ))
    }

    fn set_element(&mut self, table: u32, element: &Text, value: &Value) {
        let functions = self.module.tables[table as usize].kind.element_type.heap_type() == HeapType::FUNC;
        if functions {
            // A function's reference contains what an element does; null is all zeros.
            let (some, none, on) = (self.label(), self.label(), self.label());
            let null = self.define(format_args!("icmp eq ptr {value}, null"));
            self.line(format_args!("br i1 {null}, label %b{none}, label %b{some}"));
            self.place(some);
            self.line(format_args!(
                "call void @llvm.memcpy.p0.p0.i64(ptr align 32 {element}, ptr align 32 {value}, i64 {ELEMENT}, i1 false), !alias.scope !4, !noalias !3"
            ));
            self.line(format_args!("br label %b{on}"));
            self.place(none);
            self.line(format_args!(
                "call void @llvm.memset.p0.i64(ptr align 32 {element}, i8 0, i64 {ELEMENT}, i1 false), !alias.scope !4, !noalias !3"
            ));
            self.line(format_args!("br label %b{on}"));
            self.place(on);
        } else {
            let address = self.define(format_args!(
                "getelementptr inbounds i8, ptr {element}, i64 {}",
                layout::REFERENCE
            ));
            self.line(format_args!(
                "store ptr {value}, ptr {address}, align 8, !alias.scope !4, !noalias !3"
            ));
        }
    }

    /// Leaves the guest for a builtin; pushes what it answers.
    pub(super) fn enter(&mut self, builtin: Builtin, arguments: &[Value], answers: bool) {
        for argument in arguments {
            self.needed(&argument.loads);
        }
        self.settle();
        let bytes = arguments.len() * SLOT as usize;
        let slots = self.slot(&format!("[{bytes} x i8], align 16"));
        for (index, argument) in arguments.iter().enumerate() {
            let offset = index * SLOT as usize;
            let address = self.define(format_args!(
                "getelementptr inbounds i8, ptr {slots}, i64 {offset}"
            ));
            self.line(format_args!(
                "store {} {argument}, ptr {address}, align 16",
                llvm(argument.kind)
            ));
        }
        let host = self.constant_of_context(layout::ENTER_HOST, "ptr", "%c");
        let fiber = self.define(format_args!(
            "getelementptr inbounds i8, ptr %c, i64 {}",
            layout::FIBER
        ));
        let fiber = self.define(format_args!("load ptr, ptr {fiber}, align 8"));
        self.line(format_args!(
            "call void {host}(ptr {fiber}, i32 {}, ptr {slots}, ptr %c)",
            builtin.number() as i32
        ));
        if answers {
            let text = self.define(format_args!("load i32, ptr {slots}, align 16"));
            self.push(ValType::I32, text);
        }
    }
}

fn index_value(index: u32) -> Value {
    Value::constant(ValType::I32, index as i32)
}
