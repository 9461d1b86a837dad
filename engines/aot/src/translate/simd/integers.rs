//! Arithmetic of lanes that are integers.

use super::{I8, I16, I32, I64, Shape, mask, splat_constant};
use crate::translate::function::{Function, Text};
use wasmparser::Operator;

impl Function<'_, '_> {
    pub(super) fn vector_integer(&mut self, operator: &Operator<'_>) -> bool {
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
    pub(super) fn half(&mut self, shape: Shape, vector: &Text, extend: &str, which: u32) -> Text {
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
}
