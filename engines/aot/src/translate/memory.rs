//! Linear memory.

use super::{
    Bounds,
    function::{Function, Text, Value},
    llvm,
};
use native::layout::{self, Builtin, GUARD, Trap};
use wasmparser::{MemArg, Operator, ValType};

/// What is known of every access of linear memory.
pub(super) const MEMORY: &str = "align 1, !alias.scope !3, !noalias !4";

impl Function<'_, '_> {
    pub(super) fn memory(&mut self, operator: &Operator<'_>) -> bool {
        use ValType::{F32, F64, I32, I64};
        match *operator {
            Operator::I32Load { memarg } => self.load(I32, memarg),
            Operator::I64Load { memarg } => self.load(I64, memarg),
            Operator::F32Load { memarg } => self.load(F32, memarg),
            Operator::F64Load { memarg } => self.load(F64, memarg),
            Operator::I32Load8S { memarg } => self.load_part(I32, "i8", "sext", memarg),
            Operator::I32Load8U { memarg } => self.load_part(I32, "i8", "zext", memarg),
            Operator::I32Load16S { memarg } => self.load_part(I32, "i16", "sext", memarg),
            Operator::I32Load16U { memarg } => self.load_part(I32, "i16", "zext", memarg),
            Operator::I64Load8S { memarg } => self.load_part(I64, "i8", "sext", memarg),
            Operator::I64Load8U { memarg } => self.load_part(I64, "i8", "zext", memarg),
            Operator::I64Load16S { memarg } => self.load_part(I64, "i16", "sext", memarg),
            Operator::I64Load16U { memarg } => self.load_part(I64, "i16", "zext", memarg),
            Operator::I64Load32S { memarg } => self.load_part(I64, "i32", "sext", memarg),
            Operator::I64Load32U { memarg } => self.load_part(I64, "i32", "zext", memarg),
            Operator::I32Store { memarg }
            | Operator::I64Store { memarg }
            | Operator::F32Store { memarg }
            | Operator::F64Store { memarg } => self.store(memarg),
            Operator::I32Store8 { memarg } | Operator::I64Store8 { memarg } => self.store_part("i8", memarg),
            Operator::I32Store16 { memarg } | Operator::I64Store16 { memarg } => {
                self.store_part("i16", memarg)
            }
            Operator::I64Store32 { memarg } => self.store_part("i32", memarg),
            Operator::MemorySize { .. } => {
                let bytes = self.bytes();
                let pages = self.define(format_args!("lshr exact i64 {bytes}, 16"));
                let text = self.define(format_args!("trunc nuw nsw i64 {pages} to i32"));
                self.push(I32, text);
            }
            Operator::MemoryGrow { .. } => {
                let pages = self.pop();
                self.enter(Builtin::MemoryGrow, &[pages], true);
            }
            Operator::MemoryInit { data_index, .. } => {
                let (length, from, to) = (self.pop(), self.pop(), self.pop());
                let segment = Value::constant(I32, data_index as i32);
                self.enter(Builtin::MemoryInit, &[segment, to, from, length], false);
            }
            Operator::DataDrop { data_index } => {
                self.enter(
                    Builtin::DataDrop,
                    &[Value::constant(I32, data_index as i32)],
                    false,
                );
            }
            Operator::MemoryFill { .. } => {
                let (length, byte, to) = (self.pop(), self.pop(), self.pop());
                let (to, length) = (self.range(&to, &length), self.wide(&length));
                let byte = self.define(format_args!("trunc i32 {byte} to i8"));
                self.line(format_args!(
                    "call void @llvm.memset.p0.i64(ptr {to}, i8 {byte}, i64 {length}, i1 false), !alias.scope !3, !noalias !4"
                ));
            }
            Operator::MemoryCopy { .. } => {
                let (length, from, to) = (self.pop(), self.pop(), self.pop());
                let from = self.range(&from, &length);
                let (to, length) = (self.range(&to, &length), self.wide(&length));
                self.line(format_args!(
                    "call void @llvm.memmove.p0.p0.i64(ptr {to}, ptr {from}, i64 {length}, i1 false), !alias.scope !3, !noalias !4"
                ));
            }
            _ => return false,
        }
        true
    }

    /// The memory's size in bytes.
    pub(super) fn bytes(&mut self) -> Text {
        let size = self.constant_of_context(layout::MEMORY_SIZE, "ptr", "%c");
        self.define(format_args!(
            "load i64, ptr {size}, align 8, !range !6, !alias.scope !4, !noalias !3"
        ))
    }

    fn wide(&mut self, value: &Value) -> Text {
        self.define(format_args!("zext i32 {value} to i64"))
    }

    /// The address of a range, which is checked in every mode: it may be longer than what guards a memory.
    fn range(&mut self, from: &Value, length: &Value) -> Text {
        let (wide, length) = (self.wide(from), self.wide(length));
        let end = self.define(format_args!("add nuw nsw i64 {wide}, {length}"));
        let bytes = self.bytes();
        let outside = self.define(format_args!("icmp ugt i64 {end}, {bytes}"));
        self.trap_if(&outside, Trap::MemoryOutOfBounds);
        let base = self.base();
        self.define(format_args!(
            "getelementptr inbounds nuw i8, ptr {base}, i64 {wide}"
        ))
    }

    /// Where an access of so many bytes goes.
    ///
    /// A loop's counter and an address in it are 32 bits that wrap. LLVM counts in 64 bits if it can prove that they do not, and with
    /// signed numbers that is easier: counters often begin below zero, and what ends at zero has no sign. In a memory of 2 GiB at most an
    /// address that is negative as a signed number lies outside, and leads below the memory's begin, where nothing can be accessed either.
    /// With an offset that is not so: it would lead back in.
    pub(super) fn address(&mut self, index: &Value, memarg: MemArg, bytes: u64) -> Text {
        if let Some(Some(position)) = self.positions.pop() {
            let base = self.base();
            return self.define(format_args!(
                "getelementptr inbounds i8, ptr {base}, i64 {position}"
            ));
        }
        let signed = memarg.offset == 0 && self.module.has_signed_addresses();
        let wide = if signed && self.settings.bounds == Bounds::Guard {
            self.define(format_args!("sext i32 {index} to i64"))
        } else {
            self.wide(index)
        };
        let position = match memarg.offset {
            0 => wide,
            offset => self.define(format_args!("add nuw nsw i64 {wide}, {offset}")),
        };
        let far = memarg.offset + bytes > GUARD;
        let position = match self.settings.bounds {
            Bounds::Guard if !far => position,
            Bounds::None => position,
            Bounds::Guard | Bounds::Software => {
                let size = self.bytes();
                let end = self.define(format_args!("add nuw nsw i64 {position}, {bytes}"));
                let outside = self.define(format_args!("icmp ugt i64 {end}, {size}"));
                self.trap_if(&outside, Trap::MemoryOutOfBounds);
                // What is inside has no sign.
                match signed {
                    true => self.define(format_args!("sext i32 {index} to i64")),
                    false => position,
                }
            }
            Bounds::Mask => {
                let size = self.constant_of_context(layout::MEMORY_SIZE, "ptr", "%c");
                let at = self.define(format_args!(
                    "getelementptr inbounds i8, ptr {size}, i64 {}",
                    layout::MASK
                ));
                let mask = self.define(format_args!(
                    "load i64, ptr {at}, align 8, !alias.scope !4, !noalias !3"
                ));
                self.define(format_args!("and i64 {position}, {mask}"))
            }
        };
        let base = self.base();
        let unsigned = if signed { "" } else { " nuw" };
        self.define(format_args!(
            "getelementptr inbounds{unsigned} i8, ptr {base}, i64 {position}"
        ))
    }

    fn load(&mut self, kind: ValType, memarg: MemArg) {
        let index = self.pop();
        let llvm = llvm(kind);
        let address = self.address(&index, memarg, size(llvm));
        let text = self.define(format_args!("load {llvm}, ptr {address}, {MEMORY}"));
        self.loaded(kind, text, index.loads);
    }

    fn load_part(&mut self, kind: ValType, part: &str, extend: &str, memarg: MemArg) {
        let index = self.pop();
        let address = self.address(&index, memarg, size(part));
        let text = self.define(format_args!("load {part}, ptr {address}, {MEMORY}"));
        let text = self.define(format_args!("{extend} {part} {text} to {}", llvm(kind)));
        self.loaded(kind, text, index.loads);
        // A comparison with what no value of this size has is decided without it.
        let loads = self
            .stack
            .last()
            .map(|value| value.loads.clone())
            .unwrap_or_default();
        self.dropped(&loads);
    }

    fn store(&mut self, memarg: MemArg) {
        let (value, index) = (self.pop(), self.pop());
        let kind = llvm(value.kind);
        let address = self.address(&index, memarg, size(kind));
        self.line(format_args!("store {kind} {value}, ptr {address}, {MEMORY}"));
        self.needed(&Self::both(value, index));
    }

    fn store_part(&mut self, part: &str, memarg: MemArg) {
        let (value, index) = (self.pop(), self.pop());
        let address = self.address(&index, memarg, size(part));
        let text = self.define(format_args!("trunc {} {value} to {part}", llvm(value.kind)));
        self.dropped(&value.loads);
        self.line(format_args!("store {part} {text}, ptr {address}, {MEMORY}"));
        self.needed(&Self::both(value, index));
    }
}

/// Bytes of a type of LLVM's, as far as memory accesses have them.
pub(super) fn size(kind: &str) -> u64 {
    match kind {
        "i8" => 1,
        "i16" => 2,
        "i32" | "float" => 4,
        "<16 x i8>" => 16,
        _ => 8,
    }
}
