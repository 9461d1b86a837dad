//! Vectors to and from memory.

use super::{I8, I16, I32, I64, Shape};
use crate::translate::{
    function::{Function, Text, Value},
    memory::{MEMORY, size},
};
use wasmparser::{MemArg, Operator, ValType};

use ValType::V128;

impl Function<'_, '_> {
    pub(super) fn vector_memory(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::V128Load { memarg } => {
                let index = self.pop();
                let address = self.address(&index, memarg, 16);
                let text = self.define(format_args!("load <16 x i8>, ptr {address}, {MEMORY}"));
                self.loaded(V128, text, index.loads);
            }
            Operator::V128Store { memarg } => {
                let (value, index) = (self.pop(), self.pop());
                let address = self.address(&index, memarg, 16);
                self.line(format_args!("store <16 x i8> {value}, ptr {address}, {MEMORY}"));
                self.needed(&Self::both(value, index));
            }
            Operator::V128Load8x8S { memarg } => self.load_extended(I16, "i8", "sext", memarg),
            Operator::V128Load8x8U { memarg } => self.load_extended(I16, "i8", "zext", memarg),
            Operator::V128Load16x4S { memarg } => self.load_extended(I32, "i16", "sext", memarg),
            Operator::V128Load16x4U { memarg } => self.load_extended(I32, "i16", "zext", memarg),
            Operator::V128Load32x2S { memarg } => self.load_extended(I64, "i32", "sext", memarg),
            Operator::V128Load32x2U { memarg } => self.load_extended(I64, "i32", "zext", memarg),
            Operator::V128Load8Splat { memarg } => self.load_splat(I8, memarg),
            Operator::V128Load16Splat { memarg } => self.load_splat(I16, memarg),
            Operator::V128Load32Splat { memarg } => self.load_splat(I32, memarg),
            Operator::V128Load64Splat { memarg } => self.load_splat(I64, memarg),
            Operator::V128Load32Zero { memarg } => self.load_zero(I32, memarg),
            Operator::V128Load64Zero { memarg } => self.load_zero(I64, memarg),
            Operator::V128Load8Lane { memarg, lane } => self.load_lane(I8, memarg, lane),
            Operator::V128Load16Lane { memarg, lane } => self.load_lane(I16, memarg, lane),
            Operator::V128Load32Lane { memarg, lane } => self.load_lane(I32, memarg, lane),
            Operator::V128Load64Lane { memarg, lane } => self.load_lane(I64, memarg, lane),
            Operator::V128Store8Lane { memarg, lane } => self.store_lane(I8, memarg, lane),
            Operator::V128Store16Lane { memarg, lane } => self.store_lane(I16, memarg, lane),
            Operator::V128Store32Lane { memarg, lane } => self.store_lane(I32, memarg, lane),
            Operator::V128Store64Lane { memarg, lane } => self.store_lane(I64, memarg, lane),
            _ => return false,
        }
        true
    }

    fn loaded_shaped(&mut self, shape: Shape, text: Text, address: Vec<u32>) {
        let text = if shape == I8 {
            text
        } else {
            self.define(format_args!("bitcast {shape} {text} to <16 x i8>"))
        };
        self.loaded(V128, text, address);
    }

    fn load_extended(&mut self, shape: Shape, part: &str, extend: &str, memarg: MemArg) {
        let index = self.pop();
        let address = self.address(&index, memarg, 8);
        let parts = format!("<{} x {part}>", shape.lanes);
        let text = self.define(format_args!("load {parts}, ptr {address}, {MEMORY}"));
        let text = self.define(format_args!("{extend} {parts} {text} to {shape}"));
        self.loaded_shaped(shape, text, index.loads);
    }

    fn load_one(&mut self, shape: Shape, memarg: MemArg, index: &Value) -> Text {
        let address = self.address(index, memarg, size(shape.lane));
        self.define(format_args!("load {}, ptr {address}, {MEMORY}", shape.lane))
    }

    fn load_splat(&mut self, shape: Shape, memarg: MemArg) {
        let index = self.pop();
        let one = self.load_one(shape, memarg, &index);
        let text = self.splat_of(shape, &one);
        self.loaded_shaped(shape, text, index.loads);
    }

    fn load_zero(&mut self, shape: Shape, memarg: MemArg) {
        let index = self.pop();
        let one = self.load_one(shape, memarg, &index);
        let text = self.define(format_args!(
            "insertelement {shape} zeroinitializer, {} {one}, i32 0",
            shape.lane
        ));
        self.loaded_shaped(shape, text, index.loads);
    }

    fn load_lane(&mut self, shape: Shape, memarg: MemArg, lane: u8) {
        self.lose(1);
        let (vector, index) = (self.pop(), self.pop());
        let one = self.load_one(shape, memarg, &index);
        let vector_text = self.shaped(&vector, shape);
        let text = self.define(format_args!(
            "insertelement {shape} {vector_text}, {} {one}, i32 {lane}",
            shape.lane
        ));
        self.loaded_shaped(shape, text, Self::both(vector, index));
    }

    fn store_lane(&mut self, shape: Shape, memarg: MemArg, lane: u8) {
        self.lose(1);
        let (vector, index) = (self.pop(), self.pop());
        let text = self.shaped(&vector, shape);
        let one = self.define(format_args!("extractelement {shape} {text}, i32 {lane}"));
        let address = self.address(&index, memarg, size(shape.lane));
        self.line(format_args!(
            "store {} {one}, ptr {address}, {MEMORY}",
            shape.lane
        ));
        self.needed(&Self::both(vector, index));
    }

    // --- lanes ---

    pub(super) fn splat_of(&mut self, shape: Shape, one: &Text) -> Text {
        let first = self.define(format_args!(
            "insertelement {shape} poison, {} {one}, i32 0",
            shape.lane
        ));
        self.define(format_args!(
            "shufflevector {shape} {first}, {shape} poison, <{} x i32> zeroinitializer",
            shape.lanes
        ))
    }
}
