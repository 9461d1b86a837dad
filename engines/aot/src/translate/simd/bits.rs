//! Vectors as bits, and what is asked of all lanes.

use super::{I8, I16, I32, I64, Shape};
use crate::translate::function::Function;
use wasmparser::{Operator, ValType};

impl Function<'_, '_> {
    pub(super) fn vector_bits(&mut self, operator: &Operator<'_>) -> bool {
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
}
