//! Integers and floats.

use super::{
    function::{Function, Text, Value},
    llvm,
};
use native::layout::Trap;
use wasmparser::{Operator, ValType};

use ValType::{F32, F64, I32, I64};

/// What every integer, or none, is less than.
const EXTREMES: [&str; 6] = [
    "0",
    "-1",
    "-2147483648",
    "2147483647",
    "-9223372036854775808",
    "9223372036854775807",
];

/// The letters that LLVM's intrinsics have for a type.
fn letters(kind: ValType) -> &'static str {
    match kind {
        I32 => "i32",
        I64 => "i64",
        F32 => "f32",
        _ => "f64",
    }
}

impl Function<'_, '_> {
    pub(super) fn numeric(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::I32Const { value } => self.stack.push(Value::constant(I32, value)),
            Operator::I64Const { value } => self.stack.push(Value::constant(I64, value)),
            Operator::F32Const { value } => self.stack.push(Value::constant(F32, float(value.bits()))),
            Operator::F64Const { value } => self.stack.push(Value::constant(F64, double(value.bits()))),
            _ => return self.integer(operator) || self.floating(operator) || self.conversion(operator),
        }
        true
    }

    fn integer(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::I32Eqz => self.compare_zero("i32"),
            Operator::I64Eqz => self.compare_zero("i64"),
            Operator::I32Eq | Operator::I64Eq => self.compare("icmp eq"),
            Operator::I32Ne | Operator::I64Ne => self.compare("icmp ne"),
            Operator::I32LtS | Operator::I64LtS => self.compare("icmp slt"),
            Operator::I32LtU | Operator::I64LtU => self.compare("icmp ult"),
            Operator::I32GtS | Operator::I64GtS => self.compare("icmp sgt"),
            Operator::I32GtU | Operator::I64GtU => self.compare("icmp ugt"),
            Operator::I32LeS | Operator::I64LeS => self.compare("icmp sle"),
            Operator::I32LeU | Operator::I64LeU => self.compare("icmp ule"),
            Operator::I32GeS | Operator::I64GeS => self.compare("icmp sge"),
            Operator::I32GeU | Operator::I64GeU => self.compare("icmp uge"),
            Operator::I32Clz | Operator::I64Clz => self.count("ctlz", ", i1 false"),
            Operator::I32Ctz | Operator::I64Ctz => self.count("cttz", ", i1 false"),
            Operator::I32Popcnt | Operator::I64Popcnt => self.count("ctpop", ""),
            Operator::I32Add | Operator::I64Add => self.binary("add"),
            Operator::I32Sub | Operator::I64Sub => self.binary("sub"),
            Operator::I32Mul | Operator::I64Mul => self.binary("mul"),
            Operator::I32And | Operator::I64And => self.binary("and"),
            Operator::I32Or | Operator::I64Or => self.binary("or"),
            Operator::I32Xor | Operator::I64Xor => self.binary("xor"),
            Operator::I32DivS | Operator::I64DivS => self.divide("sdiv"),
            Operator::I32DivU | Operator::I64DivU => self.divide("udiv"),
            Operator::I32RemS | Operator::I64RemS => self.divide("srem"),
            Operator::I32RemU | Operator::I64RemU => self.divide("urem"),
            Operator::I32Shl | Operator::I64Shl => self.shift("shl"),
            Operator::I32ShrS | Operator::I64ShrS => self.shift("ashr"),
            Operator::I32ShrU | Operator::I64ShrU => self.shift("lshr"),
            Operator::I32Rotl | Operator::I64Rotl => self.rotate("fshl"),
            Operator::I32Rotr | Operator::I64Rotr => self.rotate("fshr"),
            Operator::I32Extend8S | Operator::I64Extend8S => self.extend("i8"),
            Operator::I32Extend16S | Operator::I64Extend16S => self.extend("i16"),
            Operator::I64Extend32S => self.extend("i32"),
            _ => return false,
        }
        true
    }

    fn floating(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::F32Eq | Operator::F64Eq => self.compare("fcmp oeq"),
            Operator::F32Ne | Operator::F64Ne => self.compare("fcmp une"),
            Operator::F32Lt | Operator::F64Lt => self.compare("fcmp olt"),
            Operator::F32Gt | Operator::F64Gt => self.compare("fcmp ogt"),
            Operator::F32Le | Operator::F64Le => self.compare("fcmp ole"),
            Operator::F32Ge | Operator::F64Ge => self.compare("fcmp oge"),
            Operator::F32Abs | Operator::F64Abs => self.call_float("fabs"),
            Operator::F32Neg | Operator::F64Neg => {
                let value = self.pop();
                let text = self.define(format_args!("fneg {} {value}", llvm(value.kind)));
                self.push_with(value.kind, text, value.loads);
            }
            Operator::F32Ceil | Operator::F64Ceil => self.call_float("ceil"),
            Operator::F32Floor | Operator::F64Floor => self.call_float("floor"),
            Operator::F32Trunc | Operator::F64Trunc => self.call_float("trunc"),
            Operator::F32Nearest | Operator::F64Nearest => self.call_float("roundeven"),
            Operator::F32Sqrt | Operator::F64Sqrt => self.call_float("sqrt"),
            Operator::F32Add | Operator::F64Add => self.arithmetic("fadd"),
            Operator::F32Sub | Operator::F64Sub => self.arithmetic("fsub"),
            Operator::F32Mul | Operator::F64Mul => self.arithmetic("fmul"),
            Operator::F32Div | Operator::F64Div => self.arithmetic("fdiv"),
            Operator::F32Min | Operator::F64Min => self.extreme("minimum"),
            Operator::F32Max | Operator::F64Max => self.extreme("maximum"),
            Operator::F32Copysign | Operator::F64Copysign => self.call_floats("copysign"),
            _ => return false,
        }
        true
    }

    fn conversion(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::I32WrapI64 => self.convert("trunc", I32),
            Operator::I64ExtendI32S => self.convert("sext", I64),
            Operator::I64ExtendI32U => self.convert("zext", I64),
            Operator::I32TruncF32S | Operator::I32TruncF64S => self.truncate("fptosi", I32),
            Operator::I32TruncF32U | Operator::I32TruncF64U => self.truncate("fptoui", I32),
            Operator::I64TruncF32S | Operator::I64TruncF64S => self.truncate("fptosi", I64),
            Operator::I64TruncF32U | Operator::I64TruncF64U => self.truncate("fptoui", I64),
            Operator::I32TruncSatF32S | Operator::I32TruncSatF64S => self.saturate("fptosi", I32),
            Operator::I32TruncSatF32U | Operator::I32TruncSatF64U => self.saturate("fptoui", I32),
            Operator::I64TruncSatF32S | Operator::I64TruncSatF64S => self.saturate("fptosi", I64),
            Operator::I64TruncSatF32U | Operator::I64TruncSatF64U => self.saturate("fptoui", I64),
            Operator::F32ConvertI32S | Operator::F32ConvertI64S => self.convert("sitofp", F32),
            Operator::F32ConvertI32U | Operator::F32ConvertI64U => self.convert("uitofp", F32),
            Operator::F64ConvertI32S | Operator::F64ConvertI64S => self.convert("sitofp", F64),
            Operator::F64ConvertI32U | Operator::F64ConvertI64U => self.convert("uitofp", F64),
            Operator::F32DemoteF64 => {
                // What was a float before is not taken for the same: a signalling NaN ends here.
                let value = self.pop();
                let value = if self.promoted == Some(value.to_string()) {
                    self.opaque(value)
                } else {
                    value
                };
                self.stack.push(value);
                self.convert("fptrunc", F32);
            }
            Operator::F64PromoteF32 => {
                self.convert("fpext", F64);
                self.promoted = self.stack.last().map(ToString::to_string);
            }
            Operator::I32ReinterpretF32 => self.convert("bitcast", I32),
            Operator::I64ReinterpretF64 => self.convert("bitcast", I64),
            Operator::F32ReinterpretI32 => self.convert("bitcast", F32),
            Operator::F64ReinterpretI64 => self.convert("bitcast", F64),
            _ => return false,
        }
        true
    }

    pub(super) fn compare(&mut self, how: &str) {
        let (b, a) = (self.pop(), self.pop());
        let is = self.define(format_args!("{how} {} {a}, {b}", llvm(a.kind)));
        let decided = |value: &Value| value.is_constant() && EXTREMES.contains(&value.to_string().as_str());
        if decided(&a) || decided(&b) {
            self.dropped(&a.loads);
            self.dropped(&b.loads);
        }
        self.dropped_if_same(&a, &b);
        self.answer(&is, Self::both(a, b));
    }

    fn compare_zero(&mut self, kind: &str) {
        let value = self.pop();
        let is = self.define(format_args!("icmp eq {kind} {value}, 0"));
        self.answer(&is, value.loads);
    }

    /// A condition as an `i32`.
    pub(super) fn answer(&mut self, is: &Text, loads: Vec<u32>) {
        let text = self.define(format_args!("zext i1 {is} to i32"));
        self.push_with(I32, text, loads);
    }

    fn count(&mut self, what: &str, more: &str) {
        let value = self.pop();
        let kind = llvm(value.kind);
        let text = self.define(format_args!(
            "call {kind} @llvm.{what}.{kind}({kind} {value}{more})"
        ));
        self.push_with(value.kind, text, value.loads);
    }

    fn binary(&mut self, how: &str) {
        let (b, a) = (self.pop(), self.pop());
        let kind = a.kind;
        let text = self.define(format_args!("{how} {} {a}, {b}", llvm(kind)));
        if matches!(how, "and" | "or" | "mul") && (a.is_constant() || b.is_constant()) {
            self.dropped(&a.loads);
            self.dropped(&b.loads);
        }
        if matches!(how, "sub" | "xor") {
            self.dropped_if_same(&a, &b);
        }
        self.push_with(kind, text, Self::both(a, b));
    }

    /// Division by zero, and of the least by -1, are undefined in LLVM.
    fn divide(&mut self, how: &str) {
        let (b, a) = (self.pop(), self.pop());
        let kind = a.kind;
        let name = llvm(kind);
        let zero = self.define(format_args!("icmp eq {name} {b}, 0"));
        self.trap_if(&zero, Trap::IntegerDivideByZero);
        let mut divisor = b.text.clone();
        let least = if kind == I32 {
            i64::from(i32::MIN)
        } else {
            i64::MIN
        };
        if how == "sdiv" {
            let minus = self.define(format_args!("icmp eq {name} {b}, -1"));
            let least = self.define(format_args!("icmp eq {name} {a}, {least}"));
            let both = self.define(format_args!("and i1 {minus}, {least}"));
            self.trap_if(&both, Trap::IntegerOverflow);
        } else if how == "srem" {
            // Nothing is left over by 1 either.
            let minus = self.define(format_args!("icmp eq {name} {b}, -1"));
            divisor = self.define(format_args!("select i1 {minus}, {name} 1, {name} {b}"));
        }
        let text = self.define(format_args!("{how} {name} {a}, {divisor}"));
        if b.is_constant() {
            self.dropped(&a.loads);
        }
        self.push_with(kind, text, Self::both(a, b));
    }

    fn shift(&mut self, how: &str) {
        let (b, a) = (self.pop(), self.pop());
        let kind = a.kind;
        let most = if kind == I32 { 31 } else { 63 };
        let count = self.define(format_args!("and {} {b}, {most}", llvm(kind)));
        let text = self.define(format_args!("{how} {} {a}, {count}", llvm(kind)));
        // Of a count only some bits matter.
        self.dropped(&b.loads);
        if b.is_constant() {
            self.dropped(&a.loads);
        }
        self.push_with(kind, text, Self::both(a, b));
    }

    fn rotate(&mut self, how: &str) {
        let (b, a) = (self.pop(), self.pop());
        let (kind, name) = (a.kind, llvm(a.kind));
        let text = self.define(format_args!(
            "call {name} @llvm.{how}.{name}({name} {a}, {name} {a}, {name} {b})"
        ));
        self.dropped(&b.loads);
        self.push_with(kind, text, Self::both(a, b));
    }

    fn extend(&mut self, from: &str) {
        let value = self.pop();
        let name = llvm(value.kind);
        let part = self.define(format_args!("trunc {name} {value} to {from}"));
        let text = self.define(format_args!("sext {from} {part} to {name}"));
        self.dropped(&value.loads);
        self.push_with(value.kind, text, value.loads);
    }

    fn convert(&mut self, how: &str, to: ValType) {
        let value = self.pop();
        let text = self.define(format_args!("{how} {} {value} to {}", llvm(value.kind), llvm(to)));
        if how == "trunc" {
            self.dropped(&value.loads);
        }
        self.push_with(to, text, value.loads);
    }

    /// Out of range is undefined in LLVM.
    fn truncate(&mut self, how: &str, to: ValType) {
        let value = self.pop();
        let name = llvm(value.kind);
        let nan = self.define(format_args!("fcmp uno {name} {value}, {value}"));
        self.trap_if(&nan, Trap::InvalidConversion);
        let (below, above) = limits(how == "fptosi", to, value.kind);
        let small = self.define(format_args!("fcmp ole {name} {value}, {below}"));
        let large = self.define(format_args!("fcmp oge {name} {value}, {above}"));
        let outside = self.define(format_args!("or i1 {small}, {large}"));
        self.trap_if(&outside, Trap::IntegerOverflow);
        let text = self.define(format_args!("{how} {name} {value} to {}", llvm(to)));
        self.push_with(to, text, value.loads);
    }

    fn saturate(&mut self, how: &str, to: ValType) {
        let value = self.pop();
        let (from, name) = (llvm(value.kind), llvm(to));
        let letters = letters(value.kind);
        let text = self.define(format_args!(
            "call {name} @llvm.{how}.sat.{name}.{letters}({from} {value})"
        ));
        self.push_with(to, text, value.loads);
    }

    /// LLVM takes `x * 1` for `x`, which leaves a signalling NaN one. So it shall not see such constants.
    fn arithmetic(&mut self, how: &str) {
        let (b, a) = (self.pop(), self.pop());
        let kind = a.kind;
        let (b, a) = (self.hidden(b), self.hidden(a));
        let text = self.define(format_args!("{how} {} {a}, {b}", llvm(kind)));
        self.push_with(kind, text, Self::both(a, b));
    }

    fn hidden(&mut self, value: Value) -> Value {
        const NEUTRAL: [f64; 4] = [0.0, -0.0, 1.0, -1.0];
        let text = value.to_string();
        if !value.is_constant() || !NEUTRAL.iter().any(|neutral| text == double(neutral.to_bits())) {
            return value;
        }
        self.opaque(value)
    }

    /// A value of which LLVM knows nothing.
    fn opaque(&mut self, value: Value) -> Value {
        let (register, name) = (self.settings.target.vector_register(), llvm(value.kind));
        let text = self.define(format_args!(
            "call {name} asm \"\", \"={register},0\"({name} {value})"
        ));
        Value {
            kind: value.kind,
            text,
            loads: value.loads,
        }
    }

    fn call_float(&mut self, what: &str) {
        let value = self.pop();
        let (name, letters) = (llvm(value.kind), letters(value.kind));
        let text = self.define(format_args!("call {name} @llvm.{what}.{letters}({name} {value})"));
        self.push_with(value.kind, text, value.loads);
    }

    /// Of two of which one is a NaN, what arithmetic would make of them: LLVM leaves a signalling one as it is.
    fn extreme(&mut self, what: &str) {
        let (b, a) = (self.pop(), self.pop());
        let (kind, name, letters) = (a.kind, llvm(a.kind), letters(a.kind));
        let nan = self.define(format_args!("fcmp uno {name} {a}, {b}"));
        let sum = self.define(format_args!("fadd {name} {a}, {b}"));
        let other = self.define(format_args!(
            "call nnan {name} @llvm.{what}.{letters}({name} {a}, {name} {b})"
        ));
        let text = self.define(format_args!("select i1 {nan}, {name} {sum}, {name} {other}"));
        self.push_with(kind, text, Self::both(a, b));
    }

    fn call_floats(&mut self, what: &str) {
        let (b, a) = (self.pop(), self.pop());
        let (kind, name, letters) = (a.kind, llvm(a.kind), letters(a.kind));
        let text = self.define(format_args!(
            "call {name} @llvm.{what}.{letters}({name} {a}, {name} {b})"
        ));
        self.push_with(kind, text, Self::both(a, b));
    }
}

/// A constant. LLVM writes floats as doubles, which loses what a NaN has to say.
pub(super) fn float(bits: u32) -> String {
    let value = f32::from_bits(bits);
    if value.is_nan() {
        format!("bitcast (i32 {bits} to float)")
    } else {
        double(f64::from(value).to_bits())
    }
}

pub(super) fn double(bits: u64) -> String {
    format!("0x{bits:016X}")
}

/// The largest float that is too small for an integer, and the smallest that is too large.
fn limits(signed: bool, to: ValType, from: ValType) -> (String, String) {
    let (below, above) = match (signed, to, from) {
        // The next float below -2^31.
        (true, I32, F32) => (-2_147_483_904.0, 2_147_483_648.0),
        (true, I32, _) => (-2_147_483_649.0, 2_147_483_648.0),
        (true, _, F32) => (-9_223_373_136_366_403_584.0, 9_223_372_036_854_775_808.0),
        (true, _, _) => (-9_223_372_036_854_777_856.0, 9_223_372_036_854_775_808.0),
        (false, I32, _) => (-1.0, 4_294_967_296.0),
        (false, _, _) => (-1.0, 18_446_744_073_709_551_616.0),
    };
    (double(f64::to_bits(below)), double(f64::to_bits(above)))
}
