//! Lanes: constants, shuffles, one lane in and out.

use super::{F32, F64, I8, I16, I32, I64, Shape, mask};
use crate::translate::function::{Function, Text, Value};
use wasmparser::{Operator, ValType};

use ValType::V128;

impl Function<'_, '_> {
    pub(super) fn vector_lanes(&mut self, operator: &Operator<'_>) -> bool {
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
        use crate::translate::Target;
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
}
