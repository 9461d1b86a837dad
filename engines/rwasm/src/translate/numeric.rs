//! Integers and floats.

use super::{
    function::{Function, Value},
    rust,
};
use wasmparser::{Operator, ValType};

use ValType::{F32, F64, I32, I64};

/// What arithmetic with these comes to is known without it, except for a signalling NaN.
const NEUTRAL: [f64; 4] = [0.0, -0.0, 1.0, -1.0];

impl Function<'_, '_> {
    pub(super) fn numeric(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::I32Const { value } => self.constant(I32, format!("({value}_i32)")),
            Operator::I64Const { value } => self.constant(I64, format!("({value}_i64)")),
            Operator::F32Const { value } => self.constant(F32, single(value.bits())),
            Operator::F64Const { value } => self.constant(F64, double(value.bits())),
            _ => return self.integer(operator) || self.floating(operator) || self.conversion(operator),
        }
        true
    }

    fn integer(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::I32Eqz | Operator::I64Eqz => self.unary(I32, |a| format!("({a} == 0) as i32")),
            Operator::I32Eq | Operator::I64Eq => self.compare("==", ""),
            Operator::I32Ne | Operator::I64Ne => self.compare("!=", ""),
            Operator::I32LtS | Operator::I64LtS => self.compare("<", ""),
            Operator::I32GtS | Operator::I64GtS => self.compare(">", ""),
            Operator::I32LeS | Operator::I64LeS => self.compare("<=", ""),
            Operator::I32GeS | Operator::I64GeS => self.compare(">=", ""),
            Operator::I32LtU => self.compare("<", " as u32"),
            Operator::I32GtU => self.compare(">", " as u32"),
            Operator::I32LeU => self.compare("<=", " as u32"),
            Operator::I32GeU => self.compare(">=", " as u32"),
            Operator::I64LtU => self.compare("<", " as u64"),
            Operator::I64GtU => self.compare(">", " as u64"),
            Operator::I64LeU => self.compare("<=", " as u64"),
            Operator::I64GeU => self.compare(">=", " as u64"),
            Operator::I32Clz | Operator::I64Clz => {
                self.same(|a, kind| format!("{a}.leading_zeros() as {kind}"))
            }
            Operator::I32Ctz | Operator::I64Ctz => {
                self.same(|a, kind| format!("{a}.trailing_zeros() as {kind}"));
            }
            Operator::I32Popcnt | Operator::I64Popcnt => {
                self.same(|a, kind| format!("{a}.count_ones() as {kind}"));
            }
            Operator::I32Add | Operator::I64Add => self.binary(|a, b| format!("{a}.wrapping_add({b})")),
            Operator::I32Sub | Operator::I64Sub => self.binary(|a, b| format!("{a}.wrapping_sub({b})")),
            Operator::I32Mul | Operator::I64Mul => self.binary(|a, b| format!("{a}.wrapping_mul({b})")),
            Operator::I32And | Operator::I64And => self.binary(|a, b| format!("{a} & {b}")),
            Operator::I32Or | Operator::I64Or => self.binary(|a, b| format!("{a} | {b}")),
            Operator::I32Xor | Operator::I64Xor => self.binary(|a, b| format!("{a} ^ {b}")),
            Operator::I32DivS | Operator::I64DivS => self.function("div_s", 2),
            Operator::I32DivU | Operator::I64DivU => self.function("div_u", 2),
            Operator::I32RemS | Operator::I64RemS => self.function("rem_s", 2),
            Operator::I32RemU | Operator::I64RemU => self.function("rem_u", 2),
            Operator::I32Shl | Operator::I64Shl => {
                self.binary(|a, b| format!("{a}.wrapping_shl({b} as u32)"))
            }
            Operator::I32ShrS | Operator::I64ShrS => {
                self.binary(|a, b| format!("{a}.wrapping_shr({b} as u32)"));
            }
            Operator::I32ShrU => self.binary(|a, b| format!("({a} as u32).wrapping_shr({b} as u32) as i32")),
            Operator::I64ShrU => self.binary(|a, b| format!("({a} as u64).wrapping_shr({b} as u32) as i64")),
            Operator::I32Rotl => self.binary(|a, b| format!("{a}.rotate_left({b} as u32 & 31)")),
            Operator::I64Rotl => self.binary(|a, b| format!("{a}.rotate_left({b} as u32 & 63)")),
            Operator::I32Rotr => self.binary(|a, b| format!("{a}.rotate_right({b} as u32 & 31)")),
            Operator::I64Rotr => self.binary(|a, b| format!("{a}.rotate_right({b} as u32 & 63)")),
            Operator::I32Extend8S | Operator::I64Extend8S => {
                self.same(|a, kind| format!("{a} as i8 as {kind}"))
            }
            Operator::I32Extend16S | Operator::I64Extend16S => {
                self.same(|a, kind| format!("{a} as i16 as {kind}"));
            }
            Operator::I64Extend32S => self.same(|a, kind| format!("{a} as i32 as {kind}")),
            _ => return false,
        }
        true
    }

    fn floating(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::F32Eq | Operator::F64Eq => self.compare("==", ""),
            Operator::F32Ne | Operator::F64Ne => self.compare("!=", ""),
            Operator::F32Lt | Operator::F64Lt => self.compare("<", ""),
            Operator::F32Gt | Operator::F64Gt => self.compare(">", ""),
            Operator::F32Le | Operator::F64Le => self.compare("<=", ""),
            Operator::F32Ge | Operator::F64Ge => self.compare(">=", ""),
            Operator::F32Abs | Operator::F64Abs => self.same(|a, _| format!("{a}.abs()")),
            Operator::F32Neg | Operator::F64Neg => self.same(|a, _| format!("-{a}")),
            Operator::F32Copysign | Operator::F64Copysign => self.binary(|a, b| format!("{a}.copysign({b})")),
            Operator::F32Ceil | Operator::F64Ceil => self.function("ceil", 1),
            Operator::F32Floor | Operator::F64Floor => self.function("floor", 1),
            Operator::F32Trunc | Operator::F64Trunc => self.function("trunc", 1),
            Operator::F32Nearest | Operator::F64Nearest => self.function("nearest", 1),
            Operator::F32Sqrt | Operator::F64Sqrt => self.function("sqrt", 1),
            Operator::F32Min | Operator::F64Min => self.function("min", 2),
            Operator::F32Max | Operator::F64Max => self.function("max", 2),
            Operator::F32Add | Operator::F64Add => self.arithmetic("+"),
            Operator::F32Sub | Operator::F64Sub => self.arithmetic("-"),
            Operator::F32Mul | Operator::F64Mul => self.arithmetic("*"),
            Operator::F32Div | Operator::F64Div => self.arithmetic("/"),
            _ => return false,
        }
        true
    }

    fn conversion(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::I32WrapI64 => self.through(&[], I32),
            Operator::I64ExtendI32S => self.through(&[], I64),
            Operator::I64ExtendI32U => self.through(&["u32"], I64),
            Operator::I32TruncF32S => self.named("i32_trunc_f32_s", I32),
            Operator::I32TruncF32U => self.named("i32_trunc_f32_u", I32),
            Operator::I32TruncF64S => self.named("i32_trunc_f64_s", I32),
            Operator::I32TruncF64U => self.named("i32_trunc_f64_u", I32),
            Operator::I64TruncF32S => self.named("i64_trunc_f32_s", I64),
            Operator::I64TruncF32U => self.named("i64_trunc_f32_u", I64),
            Operator::I64TruncF64S => self.named("i64_trunc_f64_s", I64),
            Operator::I64TruncF64U => self.named("i64_trunc_f64_u", I64),
            // A cast of Rust's saturates.
            Operator::I32TruncSatF32S | Operator::I32TruncSatF64S => self.through(&[], I32),
            Operator::I32TruncSatF32U | Operator::I32TruncSatF64U => self.through(&["u32"], I32),
            Operator::I64TruncSatF32S | Operator::I64TruncSatF64S => self.through(&[], I64),
            Operator::I64TruncSatF32U | Operator::I64TruncSatF64U => self.through(&["u64"], I64),
            Operator::F32ConvertI32S | Operator::F32ConvertI64S => self.through(&[], F32),
            Operator::F32ConvertI32U => self.through(&["u32"], F32),
            Operator::F32ConvertI64U => self.through(&["u64"], F32),
            Operator::F64ConvertI32S | Operator::F64ConvertI64S => self.through(&[], F64),
            Operator::F64ConvertI32U => self.through(&["u32"], F64),
            Operator::F64ConvertI64U => self.through(&["u64"], F64),
            Operator::F32DemoteF64 => {
                // What was a float before is not taken for the same: a signalling NaN ends here.
                if self.stack.last().map(|value| &value.text) == self.promoted.as_ref() {
                    self.function("hidden", 1);
                }
                self.through(&[], F32);
            }
            Operator::F64PromoteF32 => {
                self.through(&[], F64);
                self.promoted = self.stack.last().map(|value| value.text.clone());
            }
            Operator::I32ReinterpretF32 => self.unary(I32, |a| format!("{a}.to_bits() as i32")),
            Operator::I64ReinterpretF64 => self.unary(I64, |a| format!("{a}.to_bits() as i64")),
            Operator::F32ReinterpretI32 => self.unary(F32, |a| format!("f32::from_bits({a} as u32)")),
            Operator::F64ReinterpretI64 => self.unary(F64, |a| format!("f64::from_bits({a} as u64)")),
            _ => return false,
        }
        true
    }

    fn unary(&mut self, to: ValType, text: impl FnOnce(&Value) -> String) {
        let value = self.pop();
        self.push(to, format_args!("{}", text(&value)));
    }

    /// Of the same type.
    fn same(&mut self, text: impl FnOnce(&Value, &str) -> String) {
        let value = self.pop();
        self.push(value.kind, format_args!("{}", text(&value, rust(value.kind))));
    }

    fn binary(&mut self, text: impl FnOnce(&Value, &Value) -> String) {
        let (b, a) = (self.pop(), self.pop());
        self.push(a.kind, format_args!("{}", text(&a, &b)));
    }

    fn compare(&mut self, how: &str, cast: &str) {
        let (b, a) = (self.pop(), self.pop());
        self.push(I32, format_args!("(({a}{cast}) {how} ({b}{cast})) as i32"));
    }

    /// By a function of the wrapper's for this type.
    fn function(&mut self, name: &str, parameters: usize) {
        let (b, a) = match parameters {
            1 => (None, self.pop()),
            _ => (Some(self.pop()), self.pop()),
        };
        let b = b.map(|b| format!(", {b}")).unwrap_or_default();
        self.push(a.kind, format_args!("{}_{name}({a}{b})", rust(a.kind)));
    }

    fn named(&mut self, name: &str, to: ValType) {
        self.unary(to, |a| format!("{name}({a})"));
    }

    /// A cast, or several.
    fn through(&mut self, casts: &[&str], to: ValType) {
        let casts: String = casts.iter().map(|cast| format!(" as {cast}")).collect();
        self.unary(to, |a| format!("{a}{casts} as {}", rust(to)));
    }

    fn arithmetic(&mut self, how: &str) {
        let (b, a) = (self.pop(), self.pop());
        let (b, a) = (hidden(b), hidden(a));
        self.push(a.kind, format_args!("{a} {how} {b}"));
    }
}

/// LLVM takes `x * 1` for `x`, which leaves a signalling NaN one. So it shall not see such constants.
fn hidden(value: Value) -> Value {
    let neutral = NEUTRAL.iter().any(|neutral| match value.kind {
        F32 => value.text == single((*neutral as f32).to_bits()),
        _ => value.text == double(neutral.to_bits()),
    });
    match neutral {
        true => Value {
            kind: value.kind,
            text: format!("{}_hidden({value})", rust(value.kind)),
        },
        false => value,
    }
}

fn single(bits: u32) -> String {
    format!("f32::from_bits({bits:#x})")
}

fn double(bits: u64) -> String {
    format!("f64::from_bits({bits:#x})")
}
