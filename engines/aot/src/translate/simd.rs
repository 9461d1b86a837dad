//! Vectors of 128 bits. On the stack they are 16 bytes; each instruction sees them in its own shape.

mod bits;
mod comparisons;
mod conversions;
mod floats;
mod integers;
mod lanes;
mod memory;

use super::function::{Function, Text, Value};
use std::fmt::Write as _;
use wasmparser::{Operator, ValType};

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
