//! Comparisons, lane by lane.

use super::{F32, F64, I8, I16, I32, I64, Shape};
use crate::translate::function::Function;
use wasmparser::Operator;

impl Function<'_, '_> {
    pub(super) fn vector_comparison(&mut self, operator: &Operator<'_>) -> bool {
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
}
