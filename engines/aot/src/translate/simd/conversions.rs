//! Lanes of one kind made lanes of another.

use super::{F32, F64, I8, I16, I32, Shape, mask};
use crate::translate::function::{Function, Text};
use wasmparser::Operator;

impl Function<'_, '_> {
    pub(super) fn vector_conversion(&mut self, operator: &Operator<'_>) -> bool {
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
