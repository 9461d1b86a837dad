//! Vectors of 128 bits. On the stack they are 16 bytes; each instruction sees them in its own shape.

use super::{
    function::{Function, Text, Value},
    memory::{MEMORY, size},
};
use std::fmt::Write as _;
use wasmparser::{MemArg, Operator, ValType};

use ValType::V128;

/// How a vector is divided.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    lanes: u32,
    lane: &'static str,
    /// The letters that LLVM's intrinsics have for it.
    letters: &'static str,
}

const I8: Shape = shape(16, "i8", "v16i8");
const I16: Shape = shape(8, "i16", "v8i16");
const I32: Shape = shape(4, "i32", "v4i32");
const I64: Shape = shape(2, "i64", "v2i64");
const F32: Shape = shape(4, "float", "v4f32");
const F64: Shape = shape(2, "double", "v2f64");

const fn shape(lanes: u32, lane: &'static str, letters: &'static str) -> Shape {
    Shape { lanes, lane, letters }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<{} x {}>", self.lanes, self.lane)
    }
}

impl Shape {
    /// Half as many lanes of twice the size.
    fn wide(self) -> Self {
        match self.lane {
            "i8" => I16,
            "i16" => I32,
            _ => I64,
        }
    }

    /// A vector whose lanes are all the same.
    fn all(self, value: impl std::fmt::Display) -> String {
        let lanes: Vec<_> = (0..self.lanes)
            .map(|_| format!("{} {value}", self.lane))
            .collect();
        format!("<{}>", lanes.join(", "))
    }

    fn bits(self) -> u32 {
        128 / self.lanes
    }
}

pub(super) fn mask(lanes: impl Iterator<Item = u32>) -> String {
    let lanes: Vec<_> = lanes.map(|lane| format!("i32 {lane}")).collect();
    format!("<{} x i32> <{}>", lanes.len(), lanes.join(", "))
}

impl Function<'_, '_> {
    pub(super) fn vector(&mut self, operator: &Operator<'_>) -> bool {
        self.vector_memory(operator)
            || self.vector_lanes(operator)
            || self.vector_comparison(operator)
            || self.vector_bits(operator)
            || self.vector_integer(operator)
            || self.vector_float(operator)
            || self.vector_conversion(operator)
    }

    // --- in and out of a shape ---

    fn shaped(&mut self, value: &Value, shape: Shape) -> Text {
        if shape == I8 {
            return value.text.clone();
        }
        self.define(format_args!("bitcast <16 x i8> {value} to {shape}"))
    }

    fn push_shaped(&mut self, shape: Shape, text: Text, loads: Vec<u32>) {
        let text = if shape == I8 {
            text
        } else {
            self.define(format_args!("bitcast {shape} {text} to <16 x i8>"))
        };
        self.push_with(V128, text, loads);
    }

    /// `what` is an instruction of two vectors.
    fn two(&mut self, shape: Shape, what: &str) {
        self.two_by(shape, |text, a, b| {
            text.define(format_args!("{what} {shape} {a}, {b}"))
        });
    }

    fn two_by(&mut self, shape: Shape, how: impl FnOnce(&mut Self, &Text, &Text) -> Text) {
        let (b, a) = (self.pop(), self.pop());
        let (first, second) = (self.shaped(&a, shape), self.shaped(&b, shape));
        let text = how(self, &first, &second);
        if shape.lane.starts_with('i') {
            self.dropped_if_same(&a, &b);
        }
        self.push_shaped(shape, text, Self::both(a, b));
    }

    fn one_by(&mut self, shape: Shape, how: impl FnOnce(&mut Self, &Text) -> Text) {
        let value = self.pop();
        let of = self.shaped(&value, shape);
        let text = how(self, &of);
        self.push_shaped(shape, text, value.loads);
    }

    /// An intrinsic of one vector.
    fn intrinsic(&mut self, shape: Shape, name: &str) {
        self.one_by(shape, |text, a| {
            text.define(format_args!(
                "call {shape} @llvm.{name}.{}({shape} {a})",
                shape.letters
            ))
        });
    }

    /// An intrinsic of two vectors.
    fn intrinsic_of_two(&mut self, shape: Shape, name: &str) {
        self.two_by(shape, |text, a, b| {
            let letters = shape.letters;
            text.define(format_args!(
                "call {shape} @llvm.{name}.{letters}({shape} {a}, {shape} {b})"
            ))
        });
    }

    /// The topmost values are about to be used in part only.
    fn lose(&mut self, count: usize) {
        let from = self.stack.len().saturating_sub(count);
        let loads: Vec<u32> = self.stack[from..]
            .iter()
            .flat_map(|value| value.loads.clone())
            .collect();
        self.dropped(&loads);
    }

    // --- memory ---

    fn vector_memory(&mut self, operator: &Operator<'_>) -> bool {
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

    fn splat_of(&mut self, shape: Shape, one: &Text) -> Text {
        let first = self.define(format_args!(
            "insertelement {shape} poison, {} {one}, i32 0",
            shape.lane
        ));
        self.define(format_args!(
            "shufflevector {shape} {first}, {shape} poison, <{} x i32> zeroinitializer",
            shape.lanes
        ))
    }

    fn vector_lanes(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::V128Const { value } => {
                let lanes: Vec<_> = value
                    .bytes()
                    .iter()
                    .map(|byte| format!("i8 {}", *byte as i8))
                    .collect();
                self.stack
                    .push(Value::constant(V128, format_args!("<{}>", lanes.join(", "))));
            }
            Operator::I8x16Shuffle { lanes } => {
                self.lose(2);
                self.two_by(I8, |text, a, b| {
                    let mask = mask(lanes.iter().map(|lane| u32::from(*lane)));
                    text.define(format_args!("shufflevector <16 x i8> {a}, <16 x i8> {b}, {mask}"))
                });
            }
            Operator::I8x16Swizzle => self.swizzle(),
            Operator::I8x16Splat => self.splat(I8),
            Operator::I16x8Splat => self.splat(I16),
            Operator::I32x4Splat => self.splat(I32),
            Operator::I64x2Splat => self.splat(I64),
            Operator::F32x4Splat => self.splat(F32),
            Operator::F64x2Splat => self.splat(F64),
            Operator::I8x16ExtractLaneS { lane } => self.extract(I8, lane, Some("sext"), ValType::I32),
            Operator::I8x16ExtractLaneU { lane } => self.extract(I8, lane, Some("zext"), ValType::I32),
            Operator::I16x8ExtractLaneS { lane } => self.extract(I16, lane, Some("sext"), ValType::I32),
            Operator::I16x8ExtractLaneU { lane } => self.extract(I16, lane, Some("zext"), ValType::I32),
            Operator::I32x4ExtractLane { lane } => self.extract(I32, lane, None, ValType::I32),
            Operator::I64x2ExtractLane { lane } => self.extract(I64, lane, None, ValType::I64),
            Operator::F32x4ExtractLane { lane } => self.extract(F32, lane, None, ValType::F32),
            Operator::F64x2ExtractLane { lane } => self.extract(F64, lane, None, ValType::F64),
            Operator::I8x16ReplaceLane { lane } => self.replace(I8, lane),
            Operator::I16x8ReplaceLane { lane } => self.replace(I16, lane),
            Operator::I32x4ReplaceLane { lane } => self.replace(I32, lane),
            Operator::I64x2ReplaceLane { lane } => self.replace(I64, lane),
            Operator::F32x4ReplaceLane { lane } => self.replace(F32, lane),
            Operator::F64x2ReplaceLane { lane } => self.replace(F64, lane),
            _ => return false,
        }
        true
    }

    /// A scalar of the stack as a lane.
    fn narrow(&mut self, shape: Shape, value: &Value) -> Text {
        match shape.lane {
            "i8" | "i16" => self.define(format_args!("trunc i32 {value} to {}", shape.lane)),
            _ => value.text.clone(),
        }
    }

    fn splat(&mut self, shape: Shape) {
        if matches!(shape.lane, "i8" | "i16") {
            self.lose(1);
        }
        let value = self.pop();
        let one = self.narrow(shape, &value);
        let text = self.splat_of(shape, &one);
        self.push_shaped(shape, text, value.loads);
    }

    fn extract(&mut self, shape: Shape, lane: u8, extend: Option<&str>, kind: ValType) {
        self.lose(1);
        let value = self.pop();
        let vector = self.shaped(&value, shape);
        let mut text = self.define(format_args!("extractelement {shape} {vector}, i32 {lane}"));
        if let Some(extend) = extend {
            text = self.define(format_args!("{extend} {} {text} to i32", shape.lane));
        }
        self.push_with(kind, text, value.loads);
    }

    fn replace(&mut self, shape: Shape, lane: u8) {
        self.lose(2);
        let (value, vector) = (self.pop(), self.pop());
        let one = self.narrow(shape, &value);
        let text = self.shaped(&vector, shape);
        let text = self.define(format_args!(
            "insertelement {shape} {text}, {} {one}, i32 {lane}",
            shape.lane
        ));
        self.push_shaped(shape, text, Self::both(vector, value));
    }

    /// Both processors have an instruction for it, LLVM has no word for it.
    fn swizzle(&mut self) {
        self.lose(2);
        use super::Target;
        let target = self.settings.target;
        self.two_by(I8, |text, a, b| match target {
            Target::X86_64 => {
                // Its indices wrap at 16 and give 0 from 128 on: those from 16 on are made such.
                let lifted = text.define(format_args!(
                    "call <16 x i8> @llvm.uadd.sat.v16i8(<16 x i8> {b}, <16 x i8> {})",
                    I8.all(112)
                ));
                text.define(format_args!(
                    "call <16 x i8> @llvm.x86.ssse3.pshuf.b.128(<16 x i8> {a}, <16 x i8> {lifted})"
                ))
            }
            Target::Aarch64 => text.define(format_args!(
                "call <16 x i8> @llvm.aarch64.neon.tbl1.v16i8(<16 x i8> {a}, <16 x i8> {b})"
            )),
        });
    }

    // --- comparisons ---

    fn vector_comparison(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::I8x16Eq => self.compare_lanes(I8, "icmp eq"),
            Operator::I8x16Ne => self.compare_lanes(I8, "icmp ne"),
            Operator::I8x16LtS => self.compare_lanes(I8, "icmp slt"),
            Operator::I8x16LtU => self.compare_lanes(I8, "icmp ult"),
            Operator::I8x16GtS => self.compare_lanes(I8, "icmp sgt"),
            Operator::I8x16GtU => self.compare_lanes(I8, "icmp ugt"),
            Operator::I8x16LeS => self.compare_lanes(I8, "icmp sle"),
            Operator::I8x16LeU => self.compare_lanes(I8, "icmp ule"),
            Operator::I8x16GeS => self.compare_lanes(I8, "icmp sge"),
            Operator::I8x16GeU => self.compare_lanes(I8, "icmp uge"),
            Operator::I16x8Eq => self.compare_lanes(I16, "icmp eq"),
            Operator::I16x8Ne => self.compare_lanes(I16, "icmp ne"),
            Operator::I16x8LtS => self.compare_lanes(I16, "icmp slt"),
            Operator::I16x8LtU => self.compare_lanes(I16, "icmp ult"),
            Operator::I16x8GtS => self.compare_lanes(I16, "icmp sgt"),
            Operator::I16x8GtU => self.compare_lanes(I16, "icmp ugt"),
            Operator::I16x8LeS => self.compare_lanes(I16, "icmp sle"),
            Operator::I16x8LeU => self.compare_lanes(I16, "icmp ule"),
            Operator::I16x8GeS => self.compare_lanes(I16, "icmp sge"),
            Operator::I16x8GeU => self.compare_lanes(I16, "icmp uge"),
            Operator::I32x4Eq => self.compare_lanes(I32, "icmp eq"),
            Operator::I32x4Ne => self.compare_lanes(I32, "icmp ne"),
            Operator::I32x4LtS => self.compare_lanes(I32, "icmp slt"),
            Operator::I32x4LtU => self.compare_lanes(I32, "icmp ult"),
            Operator::I32x4GtS => self.compare_lanes(I32, "icmp sgt"),
            Operator::I32x4GtU => self.compare_lanes(I32, "icmp ugt"),
            Operator::I32x4LeS => self.compare_lanes(I32, "icmp sle"),
            Operator::I32x4LeU => self.compare_lanes(I32, "icmp ule"),
            Operator::I32x4GeS => self.compare_lanes(I32, "icmp sge"),
            Operator::I32x4GeU => self.compare_lanes(I32, "icmp uge"),
            Operator::I64x2Eq => self.compare_lanes(I64, "icmp eq"),
            Operator::I64x2Ne => self.compare_lanes(I64, "icmp ne"),
            Operator::I64x2LtS => self.compare_lanes(I64, "icmp slt"),
            Operator::I64x2GtS => self.compare_lanes(I64, "icmp sgt"),
            Operator::I64x2LeS => self.compare_lanes(I64, "icmp sle"),
            Operator::I64x2GeS => self.compare_lanes(I64, "icmp sge"),
            Operator::F32x4Eq => self.compare_lanes(F32, "fcmp oeq"),
            Operator::F32x4Ne => self.compare_lanes(F32, "fcmp une"),
            Operator::F32x4Lt => self.compare_lanes(F32, "fcmp olt"),
            Operator::F32x4Gt => self.compare_lanes(F32, "fcmp ogt"),
            Operator::F32x4Le => self.compare_lanes(F32, "fcmp ole"),
            Operator::F32x4Ge => self.compare_lanes(F32, "fcmp oge"),
            Operator::F64x2Eq => self.compare_lanes(F64, "fcmp oeq"),
            Operator::F64x2Ne => self.compare_lanes(F64, "fcmp une"),
            Operator::F64x2Lt => self.compare_lanes(F64, "fcmp olt"),
            Operator::F64x2Gt => self.compare_lanes(F64, "fcmp ogt"),
            Operator::F64x2Le => self.compare_lanes(F64, "fcmp ole"),
            Operator::F64x2Ge => self.compare_lanes(F64, "fcmp oge"),
            _ => return false,
        }
        true
    }

    fn compare_lanes(&mut self, shape: Shape, how: &str) {
        let (b, a) = (self.pop(), self.pop());
        let (first, second) = (self.shaped(&a, shape), self.shaped(&b, shape));
        let is = self.define(format_args!("{how} {shape} {first}, {second}"));
        let whole = match shape.lane {
            "float" => I32,
            "double" => I64,
            _ => shape,
        };
        let text = self.define(format_args!("sext <{} x i1> {is} to {whole}", shape.lanes));
        self.push_shaped(whole, text, Self::both(a, b));
    }

    // --- bits ---

    fn vector_bits(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::V128Not => {
                self.one_by(I64, |text, a| {
                    text.define(format_args!("xor <2 x i64> {a}, {}", I64.all(-1)))
                });
            }
            Operator::V128And => {
                self.lose(2);
                self.two(I64, "and");
            }
            Operator::V128Or => {
                self.lose(2);
                self.two(I64, "or");
            }
            Operator::V128Xor => self.two(I64, "xor"),
            Operator::V128AndNot => {
                self.lose(2);
                self.two_by(I64, |text, a, b| {
                    let not = text.define(format_args!("xor <2 x i64> {b}, {}", I64.all(-1)));
                    text.define(format_args!("and <2 x i64> {a}, {not}"))
                });
            }
            Operator::V128Bitselect => {
                self.lose(3);
                let (mask, b, a) = (self.pop(), self.pop(), self.pop());
                let (m, second, first) = (
                    self.shaped(&mask, I64),
                    self.shaped(&b, I64),
                    self.shaped(&a, I64),
                );
                let not = self.define(format_args!("xor <2 x i64> {m}, {}", I64.all(-1)));
                let first = self.define(format_args!("and <2 x i64> {first}, {m}"));
                let second = self.define(format_args!("and <2 x i64> {second}, {not}"));
                let text = self.define(format_args!("or <2 x i64> {first}, {second}"));
                let mut loads = Self::both(a, b);
                loads.extend(mask.loads);
                self.push_shaped(I64, text, loads);
            }
            Operator::V128AnyTrue => {
                let value = self.pop();
                let whole = self.define(format_args!("bitcast <16 x i8> {value} to i128"));
                let is = self.define(format_args!("icmp ne i128 {whole}, 0"));
                self.answer(&is, value.loads);
            }
            Operator::I8x16AllTrue => self.all_true(I8),
            Operator::I16x8AllTrue => self.all_true(I16),
            Operator::I32x4AllTrue => self.all_true(I32),
            Operator::I64x2AllTrue => self.all_true(I64),
            Operator::I8x16Bitmask => self.bitmask(I8),
            Operator::I16x8Bitmask => self.bitmask(I16),
            Operator::I32x4Bitmask => self.bitmask(I32),
            Operator::I64x2Bitmask => self.bitmask(I64),
            _ => return false,
        }
        true
    }

    fn all_true(&mut self, shape: Shape) {
        self.lose(1);
        let value = self.pop();
        let vector = self.shaped(&value, shape);
        let lanes = shape.lanes;
        let is = self.define(format_args!("icmp ne {shape} {vector}, zeroinitializer"));
        let bits = self.define(format_args!("bitcast <{lanes} x i1> {is} to i{lanes}"));
        let is = self.define(format_args!("icmp eq i{lanes} {bits}, -1"));
        self.answer(&is, value.loads);
    }

    fn bitmask(&mut self, shape: Shape) {
        self.lose(1);
        let value = self.pop();
        let vector = self.shaped(&value, shape);
        let lanes = shape.lanes;
        let is = self.define(format_args!("icmp slt {shape} {vector}, zeroinitializer"));
        let bits = self.define(format_args!("bitcast <{lanes} x i1> {is} to i{lanes}"));
        let text = self.define(format_args!("zext i{lanes} {bits} to i32"));
        self.push_with(ValType::I32, text, value.loads);
    }

    // --- integers ---

    fn vector_integer(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::I8x16Add => self.two(I8, "add"),
            Operator::I16x8Add => self.two(I16, "add"),
            Operator::I32x4Add => self.two(I32, "add"),
            Operator::I64x2Add => self.two(I64, "add"),
            Operator::I8x16Sub => self.two(I8, "sub"),
            Operator::I16x8Sub => self.two(I16, "sub"),
            Operator::I32x4Sub => self.two(I32, "sub"),
            Operator::I64x2Sub => self.two(I64, "sub"),
            Operator::I16x8Mul => self.two(I16, "mul"),
            Operator::I32x4Mul => self.two(I32, "mul"),
            Operator::I64x2Mul => self.two(I64, "mul"),
            Operator::I8x16AddSatS => self.intrinsic_of_two(I8, "sadd.sat"),
            Operator::I8x16AddSatU => self.intrinsic_of_two(I8, "uadd.sat"),
            Operator::I8x16SubSatS => self.intrinsic_of_two(I8, "ssub.sat"),
            Operator::I8x16SubSatU => self.intrinsic_of_two(I8, "usub.sat"),
            Operator::I16x8AddSatS => self.intrinsic_of_two(I16, "sadd.sat"),
            Operator::I16x8AddSatU => self.intrinsic_of_two(I16, "uadd.sat"),
            Operator::I16x8SubSatS => self.intrinsic_of_two(I16, "ssub.sat"),
            Operator::I16x8SubSatU => self.intrinsic_of_two(I16, "usub.sat"),
            Operator::I8x16MinS => self.intrinsic_of_two(I8, "smin"),
            Operator::I8x16MinU => self.intrinsic_of_two(I8, "umin"),
            Operator::I8x16MaxS => self.intrinsic_of_two(I8, "smax"),
            Operator::I8x16MaxU => self.intrinsic_of_two(I8, "umax"),
            Operator::I16x8MinS => self.intrinsic_of_two(I16, "smin"),
            Operator::I16x8MinU => self.intrinsic_of_two(I16, "umin"),
            Operator::I16x8MaxS => self.intrinsic_of_two(I16, "smax"),
            Operator::I16x8MaxU => self.intrinsic_of_two(I16, "umax"),
            Operator::I32x4MinS => self.intrinsic_of_two(I32, "smin"),
            Operator::I32x4MinU => self.intrinsic_of_two(I32, "umin"),
            Operator::I32x4MaxS => self.intrinsic_of_two(I32, "smax"),
            Operator::I32x4MaxU => self.intrinsic_of_two(I32, "umax"),
            Operator::I8x16Abs => self.absolute(I8),
            Operator::I16x8Abs => self.absolute(I16),
            Operator::I32x4Abs => self.absolute(I32),
            Operator::I64x2Abs => self.absolute(I64),
            Operator::I8x16Neg => self.negate(I8),
            Operator::I16x8Neg => self.negate(I16),
            Operator::I32x4Neg => self.negate(I32),
            Operator::I64x2Neg => self.negate(I64),
            Operator::I8x16Popcnt => self.intrinsic(I8, "ctpop"),
            Operator::I8x16Shl => self.shift_lanes(I8, "shl"),
            Operator::I8x16ShrS => self.shift_lanes(I8, "ashr"),
            Operator::I8x16ShrU => self.shift_lanes(I8, "lshr"),
            Operator::I16x8Shl => self.shift_lanes(I16, "shl"),
            Operator::I16x8ShrS => self.shift_lanes(I16, "ashr"),
            Operator::I16x8ShrU => self.shift_lanes(I16, "lshr"),
            Operator::I32x4Shl => self.shift_lanes(I32, "shl"),
            Operator::I32x4ShrS => self.shift_lanes(I32, "ashr"),
            Operator::I32x4ShrU => self.shift_lanes(I32, "lshr"),
            Operator::I64x2Shl => self.shift_lanes(I64, "shl"),
            Operator::I64x2ShrS => self.shift_lanes(I64, "ashr"),
            Operator::I64x2ShrU => self.shift_lanes(I64, "lshr"),
            Operator::I8x16AvgrU => self.average(I8),
            Operator::I16x8AvgrU => self.average(I16),
            Operator::I16x8Q15MulrSatS => self.q15(),
            Operator::I16x8ExtMulLowI8x16S => self.multiply_extended(I8, "sext", 0),
            Operator::I16x8ExtMulHighI8x16S => self.multiply_extended(I8, "sext", 1),
            Operator::I16x8ExtMulLowI8x16U => self.multiply_extended(I8, "zext", 0),
            Operator::I16x8ExtMulHighI8x16U => self.multiply_extended(I8, "zext", 1),
            Operator::I32x4ExtMulLowI16x8S => self.multiply_extended(I16, "sext", 0),
            Operator::I32x4ExtMulHighI16x8S => self.multiply_extended(I16, "sext", 1),
            Operator::I32x4ExtMulLowI16x8U => self.multiply_extended(I16, "zext", 0),
            Operator::I32x4ExtMulHighI16x8U => self.multiply_extended(I16, "zext", 1),
            Operator::I64x2ExtMulLowI32x4S => self.multiply_extended(I32, "sext", 0),
            Operator::I64x2ExtMulHighI32x4S => self.multiply_extended(I32, "sext", 1),
            Operator::I64x2ExtMulLowI32x4U => self.multiply_extended(I32, "zext", 0),
            Operator::I64x2ExtMulHighI32x4U => self.multiply_extended(I32, "zext", 1),
            Operator::I16x8ExtAddPairwiseI8x16S => self.add_pairs(I8, "sext"),
            Operator::I16x8ExtAddPairwiseI8x16U => self.add_pairs(I8, "zext"),
            Operator::I32x4ExtAddPairwiseI16x8S => self.add_pairs(I16, "sext"),
            Operator::I32x4ExtAddPairwiseI16x8U => self.add_pairs(I16, "zext"),
            Operator::I32x4DotI16x8S => self.dot(),
            _ => return false,
        }
        true
    }

    fn absolute(&mut self, shape: Shape) {
        self.one_by(shape, |text, a| {
            text.define(format_args!(
                "call {shape} @llvm.abs.{}({shape} {a}, i1 false)",
                shape.letters
            ))
        });
    }

    fn negate(&mut self, shape: Shape) {
        self.one_by(shape, |text, a| {
            text.define(format_args!("sub {shape} zeroinitializer, {a}"))
        });
    }

    fn shift_lanes(&mut self, shape: Shape, how: &str) {
        self.lose(2);
        let (count, vector) = (self.pop(), self.pop());
        let masked = self.define(format_args!("and i32 {count}, {}", shape.bits() - 1));
        let one = match shape.lane {
            "i64" => self.define(format_args!("zext i32 {masked} to i64")),
            "i32" => masked,
            lane => self.define(format_args!("trunc i32 {masked} to {lane}")),
        };
        let counts = self.splat_of(shape, &one);
        let value = self.shaped(&vector, shape);
        let text = self.define(format_args!("{how} {shape} {value}, {counts}"));
        self.push_shaped(shape, text, Self::both(vector, count));
    }

    /// Of each pair of lanes, as if there were a bit more.
    fn average(&mut self, shape: Shape) {
        let wide = format!("<{} x {}>", shape.lanes, if shape == I8 { "i16" } else { "i32" });
        self.two_by(shape, |text, a, b| {
            let a = text.define(format_args!("zext {shape} {a} to {wide}"));
            let b = text.define(format_args!("zext {shape} {b} to {wide}"));
            let sum = text.define(format_args!("add {wide} {a}, {b}"));
            let ones = splat_constant(&wide, shape.lanes, 1);
            let sum = text.define(format_args!("add {wide} {sum}, {ones}"));
            let half = text.define(format_args!("lshr {wide} {sum}, {ones}"));
            text.define(format_args!("trunc {wide} {half} to {shape}"))
        });
    }

    fn q15(&mut self) {
        const WIDE: &str = "<8 x i32>";
        self.two_by(I16, |text, a, b| {
            let a = text.define(format_args!("sext {I16} {a} to {WIDE}"));
            let b = text.define(format_args!("sext {I16} {b} to {WIDE}"));
            let product = text.define(format_args!("mul {WIDE} {a}, {b}"));
            let rounded = text.define(format_args!(
                "add {WIDE} {product}, {}",
                splat_constant(WIDE, 8, 1 << 14)
            ));
            let scaled = text.define(format_args!(
                "ashr {WIDE} {rounded}, {}",
                splat_constant(WIDE, 8, 15)
            ));
            let most = splat_constant(WIDE, 8, i64::from(i16::MAX));
            let bounded = text.define(format_args!(
                "call {WIDE} @llvm.smin.v8i32({WIDE} {scaled}, {WIDE} {most})"
            ));
            text.define(format_args!("trunc {WIDE} {bounded} to {I16}"))
        });
    }

    /// One half of a vector's lanes, each twice as wide.
    fn half(&mut self, shape: Shape, vector: &Text, extend: &str, which: u32) -> Text {
        let lanes = shape.lanes / 2;
        let mask = mask((0..lanes).map(|lane| lane + which * lanes));
        let half = self.define(format_args!(
            "shufflevector {shape} {vector}, {shape} poison, {mask}"
        ));
        self.define(format_args!(
            "{extend} <{lanes} x {}> {half} to {}",
            shape.lane,
            shape.wide()
        ))
    }

    fn multiply_extended(&mut self, shape: Shape, extend: &str, which: u32) {
        self.lose(2);
        let (b, a) = (self.pop(), self.pop());
        let (first, second) = (self.shaped(&a, shape), self.shaped(&b, shape));
        let first = self.half(shape, &first, extend, which);
        let second = self.half(shape, &second, extend, which);
        let text = self.define(format_args!("mul {} {first}, {second}", shape.wide()));
        self.push_shaped(shape.wide(), text, Self::both(a, b));
    }

    /// Every second lane, each twice as wide.
    fn every_second(&mut self, shape: Shape, vector: &Text, extend: &str, from: u32) -> Text {
        let lanes = shape.lanes / 2;
        let mask = mask((0..lanes).map(|lane| 2 * lane + from));
        let part = self.define(format_args!(
            "shufflevector {shape} {vector}, {shape} poison, {mask}"
        ));
        self.define(format_args!(
            "{extend} <{lanes} x {}> {part} to {}",
            shape.lane,
            shape.wide()
        ))
    }

    fn add_pairs(&mut self, shape: Shape, extend: &str) {
        let value = self.pop();
        let vector = self.shaped(&value, shape);
        let even = self.every_second(shape, &vector, extend, 0);
        let odd = self.every_second(shape, &vector, extend, 1);
        let text = self.define(format_args!("add {} {even}, {odd}", shape.wide()));
        self.push_shaped(shape.wide(), text, value.loads);
    }

    fn dot(&mut self) {
        let (b, a) = (self.pop(), self.pop());
        let (first, second) = (self.shaped(&a, I16), self.shaped(&b, I16));
        let mut products = Vec::new();
        for from in 0..2 {
            let one = self.every_second(I16, &first, "sext", from);
            let other = self.every_second(I16, &second, "sext", from);
            products.push(self.define(format_args!("mul {I32} {one}, {other}")));
        }
        let text = self.define(format_args!("add {I32} {}, {}", products[0], products[1]));
        self.push_shaped(I32, text, Self::both(a, b));
    }

    // --- floats ---

    fn vector_float(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::F32x4Ceil => self.intrinsic(F32, "ceil"),
            Operator::F32x4Floor => self.intrinsic(F32, "floor"),
            Operator::F32x4Trunc => self.intrinsic(F32, "trunc"),
            Operator::F32x4Nearest => self.intrinsic(F32, "roundeven"),
            Operator::F32x4Abs => self.intrinsic(F32, "fabs"),
            Operator::F32x4Sqrt => self.intrinsic(F32, "sqrt"),
            Operator::F64x2Ceil => self.intrinsic(F64, "ceil"),
            Operator::F64x2Floor => self.intrinsic(F64, "floor"),
            Operator::F64x2Trunc => self.intrinsic(F64, "trunc"),
            Operator::F64x2Nearest => self.intrinsic(F64, "roundeven"),
            Operator::F64x2Abs => self.intrinsic(F64, "fabs"),
            Operator::F64x2Sqrt => self.intrinsic(F64, "sqrt"),
            Operator::F32x4Neg => self.one_by(F32, |text, a| text.define(format_args!("fneg {F32} {a}"))),
            Operator::F64x2Neg => self.one_by(F64, |text, a| text.define(format_args!("fneg {F64} {a}"))),
            Operator::F32x4Add => self.two_floats(F32, "fadd"),
            Operator::F32x4Sub => self.two_floats(F32, "fsub"),
            Operator::F32x4Mul => self.two_floats(F32, "fmul"),
            Operator::F32x4Div => self.two_floats(F32, "fdiv"),
            Operator::F64x2Add => self.two_floats(F64, "fadd"),
            Operator::F64x2Sub => self.two_floats(F64, "fsub"),
            Operator::F64x2Mul => self.two_floats(F64, "fmul"),
            Operator::F64x2Div => self.two_floats(F64, "fdiv"),
            Operator::F32x4Min => self.extreme_lanes(F32, "minimum"),
            Operator::F32x4Max => self.extreme_lanes(F32, "maximum"),
            Operator::F64x2Min => self.extreme_lanes(F64, "minimum"),
            Operator::F64x2Max => self.extreme_lanes(F64, "maximum"),
            Operator::F32x4PMin => self.select_lanes(F32, false),
            Operator::F32x4PMax => self.select_lanes(F32, true),
            Operator::F64x2PMin => self.select_lanes(F64, false),
            Operator::F64x2PMax => self.select_lanes(F64, true),
            _ => return false,
        }
        true
    }

    /// As for scalars, LLVM shall not see constants that may be neutral.
    fn two_floats(&mut self, shape: Shape, what: &str) {
        let (b, a) = (self.pop(), self.pop());
        let mut operands = [self.shaped(&a, shape), self.shaped(&b, shape)];
        let register = self.settings.target.vector_register();
        for (operand, value) in operands.iter_mut().zip([&a, &b]) {
            if matches!(&value.text, Text::Constant(bytes) if has_neutral(bytes, shape == F32)) {
                *operand = self.define(format_args!(
                    "call {shape} asm \"\", \"={register},0\"({shape} {operand})"
                ));
            }
        }
        let [first, second] = operands;
        let text = self.define(format_args!("{what} {shape} {first}, {second}"));
        self.push_shaped(shape, text, Self::both(a, b));
    }

    /// As for scalars, a signalling NaN ends here.
    fn extreme_lanes(&mut self, shape: Shape, what: &str) {
        self.two_by(shape, |text, a, b| {
            let letters = shape.letters;
            let nan = text.define(format_args!("fcmp uno {shape} {a}, {b}"));
            let sum = text.define(format_args!("fadd {shape} {a}, {b}"));
            let other = text.define(format_args!(
                "call nnan {shape} @llvm.{what}.{letters}({shape} {a}, {shape} {b})"
            ));
            text.define(format_args!(
                "select <{} x i1> {nan}, {shape} {sum}, {shape} {other}",
                shape.lanes
            ))
        });
    }

    /// `b < a ? b : a`, or `a < b ? b : a`.
    fn select_lanes(&mut self, shape: Shape, most: bool) {
        self.two_by(shape, |text, a, b| {
            let (less, more) = if most { (a, b) } else { (b, a) };
            let is = text.define(format_args!("fcmp olt {shape} {less}, {more}"));
            text.define(format_args!(
                "select <{} x i1> {is}, {shape} {b}, {shape} {a}",
                shape.lanes
            ))
        });
    }

    // --- conversions ---

    fn vector_conversion(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::I8x16NarrowI16x8S => self.narrow_lanes(I16, I8, true),
            Operator::I8x16NarrowI16x8U => self.narrow_lanes(I16, I8, false),
            Operator::I16x8NarrowI32x4S => self.narrow_lanes(I32, I16, true),
            Operator::I16x8NarrowI32x4U => self.narrow_lanes(I32, I16, false),
            Operator::I16x8ExtendLowI8x16S => self.widen(I8, "sext", 0),
            Operator::I16x8ExtendHighI8x16S => self.widen(I8, "sext", 1),
            Operator::I16x8ExtendLowI8x16U => self.widen(I8, "zext", 0),
            Operator::I16x8ExtendHighI8x16U => self.widen(I8, "zext", 1),
            Operator::I32x4ExtendLowI16x8S => self.widen(I16, "sext", 0),
            Operator::I32x4ExtendHighI16x8S => self.widen(I16, "sext", 1),
            Operator::I32x4ExtendLowI16x8U => self.widen(I16, "zext", 0),
            Operator::I32x4ExtendHighI16x8U => self.widen(I16, "zext", 1),
            Operator::I64x2ExtendLowI32x4S => self.widen(I32, "sext", 0),
            Operator::I64x2ExtendHighI32x4S => self.widen(I32, "sext", 1),
            Operator::I64x2ExtendLowI32x4U => self.widen(I32, "zext", 0),
            Operator::I64x2ExtendHighI32x4U => self.widen(I32, "zext", 1),
            Operator::I32x4TruncSatF32x4S => self.saturate_lanes("fptosi", F32),
            Operator::I32x4TruncSatF32x4U => self.saturate_lanes("fptoui", F32),
            Operator::I32x4TruncSatF64x2SZero => self.saturate_lanes("fptosi", F64),
            Operator::I32x4TruncSatF64x2UZero => self.saturate_lanes("fptoui", F64),
            Operator::F32x4ConvertI32x4S => self.convert_lanes(I32, "sitofp", F32),
            Operator::F32x4ConvertI32x4U => self.convert_lanes(I32, "uitofp", F32),
            Operator::F64x2ConvertLowI32x4S => self.convert_low(I32, "sitofp"),
            Operator::F64x2ConvertLowI32x4U => self.convert_low(I32, "uitofp"),
            Operator::F64x2PromoteLowF32x4 => self.convert_low(F32, "fpext"),
            Operator::F32x4DemoteF64x2Zero => {
                let value = self.pop();
                let vector = self.shaped(&value, F64);
                let half = self.define(format_args!("fptrunc {F64} {vector} to <2 x float>"));
                let text = self.lengthen("float", &half);
                self.push_shaped(F32, text, value.loads);
            }
            _ => return false,
        }
        true
    }

    /// Two lanes, and two of zeros.
    fn lengthen(&mut self, lane: &str, half: &Text) -> Text {
        self.define(format_args!(
            "shufflevector <2 x {lane}> {half}, <2 x {lane}> zeroinitializer, {}",
            mask(0..4)
        ))
    }

    fn narrow_lanes(&mut self, from: Shape, to: Shape, signed: bool) {
        self.lose(2);
        let (b, a) = (self.pop(), self.pop());
        let (least, most) = if signed {
            (-(1_i64 << (to.bits() - 1)), (1_i64 << (to.bits() - 1)) - 1)
        } else {
            (0, (1_i64 << to.bits()) - 1)
        };
        let mut halves = Vec::new();
        for value in [&a, &b] {
            let vector = self.shaped(value, from);
            let letters = from.letters;
            let low = self.define(format_args!(
                "call {from} @llvm.smax.{letters}({from} {vector}, {from} {})",
                from.all(least)
            ));
            let both = self.define(format_args!(
                "call {from} @llvm.smin.{letters}({from} {low}, {from} {})",
                from.all(most)
            ));
            halves.push(self.define(format_args!(
                "trunc {from} {both} to <{} x {}>",
                from.lanes, to.lane
            )));
        }
        let half = format!("<{} x {}>", from.lanes, to.lane);
        let text = self.define(format_args!(
            "shufflevector {half} {}, {half} {}, {}",
            halves[0],
            halves[1],
            mask(0..to.lanes)
        ));
        self.push_shaped(to, text, Self::both(a, b));
    }

    fn widen(&mut self, shape: Shape, extend: &str, which: u32) {
        self.lose(1);
        let value = self.pop();
        let vector = self.shaped(&value, shape);
        let text = self.half(shape, &vector, extend, which);
        self.push_shaped(shape.wide(), text, value.loads);
    }

    fn saturate_lanes(&mut self, how: &str, from: Shape) {
        self.lose(1);
        let value = self.pop();
        let vector = self.shaped(&value, from);
        let (lanes, letters) = (from.lanes, from.letters);
        let text = self.define(format_args!(
            "call <{lanes} x i32> @llvm.{how}.sat.v{lanes}i32.{letters}({from} {vector})"
        ));
        let text = if from == F64 {
            self.lengthen("i32", &text)
        } else {
            text
        };
        self.push_shaped(I32, text, value.loads);
    }

    fn convert_lanes(&mut self, from: Shape, how: &str, to: Shape) {
        let value = self.pop();
        let vector = self.shaped(&value, from);
        let text = self.define(format_args!("{how} {from} {vector} to {to}"));
        self.push_shaped(to, text, value.loads);
    }

    fn convert_low(&mut self, from: Shape, how: &str) {
        self.lose(1);
        let value = self.pop();
        let vector = self.shaped(&value, from);
        let low = self.define(format_args!(
            "shufflevector {from} {vector}, {from} poison, {}",
            mask(0..2)
        ));
        let text = self.define(format_args!("{how} <2 x {}> {low} to {F64}", from.lane));
        self.push_shaped(F64, text, value.loads);
    }
}

/// Whether a constant, of bytes, has a lane of 0, 1 or -1 if its lanes are floats, or doubles.
pub(super) fn has_neutral(constant: &str, floats: bool) -> bool {
    let bytes: Vec<u8> = constant
        .trim_matches(['<', '>'])
        .split(", ")
        .filter_map(|lane| lane.strip_prefix("i8 ")?.parse::<i8>().ok())
        .map(i8::cast_unsigned)
        .collect();
    let neutral = |value: f64| [0.0, 1.0, -1.0].contains(&value);
    if floats {
        let lanes = bytes.as_chunks().0;
        lanes.iter().any(|lane| neutral(f32::from_le_bytes(*lane).into()))
    } else {
        let lanes = bytes.as_chunks().0;
        lanes.iter().any(|lane| neutral(f64::from_le_bytes(*lane)))
    }
}

/// A constant whose lanes are all the same, of a vector type that no register has.
fn splat_constant(kind: &str, lanes: u32, value: i64) -> String {
    let lane = kind.rsplit(' ').next().unwrap_or_default().trim_end_matches('>');
    let mut text = String::from("<");
    for index in 0..lanes {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{lane} {value}");
    }
    text.push('>');
    text
}
