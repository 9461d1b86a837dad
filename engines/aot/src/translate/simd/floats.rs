//! Arithmetic of lanes that are floats.

use super::{F32, F64, Shape, has_neutral};
use crate::translate::function::{Function, Text};
use wasmparser::Operator;

impl Function<'_, '_> {
    pub(super) fn vector_float(&mut self, operator: &Operator<'_>) -> bool {
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
}
