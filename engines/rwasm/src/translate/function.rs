//! A function: its locals, blocks, branches and calls.

use super::{cycles::Cycles, head, no_vectors, of_kind, pointer, rust, zero};
use native::{Module, Refusal, layout::Builtin};
use std::{
    fmt::{self, Write as _},
    mem,
};
use wasmparser::{BlockType, FuncType, FunctionBody, Operator, ValType};

/// A value on the stack: a variable that does not change, or a constant.
#[derive(Clone)]
pub(super) struct Value {
    pub(super) kind: ValType,
    pub(super) text: String,
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

enum Kind {
    /// Also the function's body.
    Block,
    Loop,
    /// With the values that its else begins with.
    If(Vec<Value>),
    Else,
}

/// A block, loop or if that is open.
struct Control {
    kind: Kind,
    label: u32,
    /// Variables for what goes with a branch to it,
    carried: Vec<String>,
    /// and for what it leaves at its end.
    left: Vec<String>,
    results: Vec<ValType>,
    /// Values on the stack below.
    height: usize,
}

pub(super) struct Function<'m, 'a> {
    pub(super) module: &'m Module<'a>,
    pub(super) out: String,
    pub(super) stack: Vec<Value>,
    /// The last value that was made of a float, and is a double.
    pub(super) promoted: Option<String>,
    index: u32,
    names: u32,
    controls: Vec<Control>,
    locals: Vec<ValType>,
    /// Of code that is never reached, how many blocks are open in it.
    unreachable: Option<u32>,
    /// Whether memory is to be looked up after a call.
    reloads: bool,
    cycles: &'m Cycles,
}

impl<'m, 'a> Function<'m, 'a> {
    pub(super) fn new(module: &'m Module<'a>, index: u32, reloads: bool, cycles: &'m Cycles) -> Self {
        Self {
            module,
            out: String::new(),
            stack: Vec::new(),
            promoted: None,
            index,
            names: 0,
            controls: Vec::new(),
            locals: Vec::new(),
            unreachable: None,
            reloads,
            cycles,
        }
    }

    pub(super) fn translate(mut self, body: &FunctionBody<'_>, out: &mut String) -> Result<(), Refusal> {
        let kind = self.module.type_of(self.index);
        head(&format!("f{}", self.index), kind, &mut self.out);
        self.locals = kind.params().to_vec();
        for group in body.get_locals_reader()? {
            let (count, kind) = group?;
            for _ in 0..count {
                let index = self.locals.len();
                self.line(format_args!("let mut l{index}: {} = {};", rust(kind), zero(kind)));
                self.locals.push(kind);
            }
        }
        if self.module.memory.is_some() {
            self.line(format_args!("let mut m = c.memory();"));
        }
        self.open(Kind::Block, &[], kind.results());
        for operator in body.get_operators_reader()? {
            let operator = operator?;
            if !self.skip(&operator)
                && !self.control(&operator)?
                && !self.places(&operator)
                && !self.numeric(&operator)
            {
                return Err(unsupported(&operator));
            }
        }
        self.out.push_str("}\n");
        out.push_str(&self.out);
        Ok(())
    }

    // --- what all operators need ---

    pub(super) fn line(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text);
        self.out.push('\n');
    }

    pub(super) fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    pub(super) fn pop(&mut self) -> Value {
        // Validation has seen to it that there is one.
        self.stack.pop().unwrap_or(Value {
            kind: ValType::I32,
            text: "0".into(),
        })
    }

    fn pop_many(&mut self, count: usize) -> Vec<Value> {
        self.stack.split_off(self.stack.len().saturating_sub(count))
    }

    pub(super) fn push(&mut self, kind: ValType, text: fmt::Arguments<'_>) {
        let name = self.name();
        self.line(format_args!("let {name}: {} = {text};", rust(kind)));
        self.stack.push(Value { kind, text: name });
    }

    pub(super) fn constant(&mut self, kind: ValType, text: String) {
        self.stack.push(Value { kind, text });
    }

    fn variables(&mut self, kinds: &[ValType]) -> Vec<String> {
        let variable = |kind: &ValType| {
            let name = self.name();
            self.line(format_args!("let mut {name}: {} = {};", rust(*kind), zero(*kind)));
            name
        };
        kinds.iter().map(variable).collect()
    }

    fn set(&mut self, variables: &[String], values: &[Value]) {
        for (variable, value) in variables.iter().zip(values) {
            self.line(format_args!("{variable} = {value};"));
        }
    }

    // --- blocks ---

    fn open(&mut self, kind: Kind, parameters: &[ValType], results: &[ValType]) {
        self.names += 1;
        let label = self.names;
        let left = self.variables(results);
        let begin = self.pop_many(parameters.len());
        let height = self.stack.len();
        let carried = if matches!(kind, Kind::Loop) {
            let carried = self.variables(parameters);
            self.set(&carried, &begin);
            self.line(format_args!("'b{label}: loop {{"));
            // What they are when a turn begins: a branch may give one another's value.
            for (variable, kind) in carried.iter().zip(parameters) {
                self.push(*kind, format_args!("{variable}"));
            }
            carried
        } else {
            self.line(format_args!("'b{label}: {{"));
            self.stack.extend(begin.iter().cloned());
            left.clone()
        };
        let kind = match kind {
            Kind::If(_) => Kind::If(begin),
            other => other,
        };
        self.controls.push(Control {
            kind,
            label,
            carried,
            left,
            results: results.to_vec(),
            height,
        });
    }

    fn types(&self, kind: BlockType) -> (Vec<ValType>, Vec<ValType>) {
        match kind {
            BlockType::Empty => (Vec::new(), Vec::new()),
            BlockType::Type(kind) => (Vec::new(), vec![kind]),
            BlockType::FuncType(index) => {
                let kind = &self.module.types[index as usize];
                (kind.params().to_vec(), kind.results().to_vec())
            }
        }
    }

    /// The values that the innermost block leaves go to their variables.
    fn leave(&mut self) {
        let Some(control) = self.controls.last() else {
            return;
        };
        let left = control.left.clone();
        let values = self.pop_many(left.len());
        self.set(&left, &values);
    }

    fn otherwise(&mut self) {
        if self.unreachable.take().is_none() {
            self.leave();
        }
        if let Some(control) = self.controls.last_mut() {
            let begin = match mem::replace(&mut control.kind, Kind::Else) {
                Kind::If(begin) => begin,
                _ => Vec::new(),
            };
            self.stack.truncate(control.height);
            self.stack.extend(begin);
        }
        self.line(format_args!("}} else {{"));
    }

    fn end(&mut self) {
        let reached = self.unreachable.take().is_none();
        if reached {
            self.leave();
        }
        let Some(control) = self.controls.pop() else {
            return;
        };
        self.stack.truncate(control.height);
        match &control.kind {
            Kind::Loop if reached => self.line(format_args!("break 'b{};\n}}", control.label)),
            Kind::Loop | Kind::Block => self.line(format_args!("}}")),
            Kind::If(begin) => {
                self.line(format_args!("}} else {{"));
                self.set(&control.left, begin);
                self.line(format_args!("}}\n}}"));
            }
            Kind::Else => self.line(format_args!("}}\n}}")),
        }
        if self.controls.is_empty() {
            match &control.left[..] {
                [one] => self.line(format_args!("{one}")),
                several => self.line(format_args!("({})", several.join(", "))),
            }
        }
        let values = control.left.into_iter().zip(control.results);
        self.stack.extend(values.map(|(text, kind)| Value { kind, text }));
    }

    /// What leads to a block.
    fn branch(&self, depth: u32) -> String {
        let index = (self.controls.len() - 1).saturating_sub(depth as usize);
        let control = &self.controls[index];
        let values = self.stack.len().saturating_sub(control.carried.len());
        let mut text = String::new();
        for (variable, value) in control.carried.iter().zip(&self.stack[values..]) {
            let _ = write!(text, "{variable} = {value}; ");
        }
        let how = match control.kind {
            Kind::Loop => "continue",
            _ => "break",
        };
        let _ = write!(text, "{how} 'b{};", control.label);
        text
    }

    fn jump(&mut self, depth: u32) {
        let branch = self.branch(depth);
        self.line(format_args!("{branch}"));
        self.unreachable = Some(0);
    }

    /// Whether the operator is never reached; counts the blocks that are not.
    fn skip(&mut self, operator: &Operator<'_>) -> bool {
        let Some(depth) = self.unreachable else {
            return false;
        };
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                self.unreachable = Some(depth + 1);
                true
            }
            Operator::End if depth > 0 => {
                self.unreachable = Some(depth - 1);
                true
            }
            Operator::End => false,
            Operator::Else => depth > 0,
            _ => true,
        }
    }

    fn control(&mut self, operator: &Operator<'_>) -> Result<bool, Refusal> {
        match *operator {
            Operator::Nop => {}
            Operator::Unreachable => {
                self.line(format_args!("trap::<UNREACHABLE>();"));
                self.unreachable = Some(0);
            }
            Operator::Block { blockty } => {
                let (parameters, results) = self.types(blockty);
                self.open(Kind::Block, &parameters, &results);
            }
            Operator::Loop { blockty } => {
                let (parameters, results) = self.types(blockty);
                self.open(Kind::Loop, &parameters, &results);
            }
            Operator::If { blockty } => {
                let condition = self.pop();
                let (parameters, results) = self.types(blockty);
                self.open(Kind::If(Vec::new()), &parameters, &results);
                self.line(format_args!("if {condition} != 0 {{"));
            }
            Operator::Else => self.otherwise(),
            Operator::End => self.end(),
            Operator::Br { relative_depth } => self.jump(relative_depth),
            Operator::Return => self.jump(u32::MAX),
            Operator::BrIf { relative_depth } => {
                let condition = self.pop();
                let branch = self.branch(relative_depth);
                self.line(format_args!("if {condition} != 0 {{ {branch} }}"));
            }
            Operator::BrTable { ref targets } => {
                let index = self.pop();
                self.line(format_args!("match {index} as u32 {{"));
                for (index, target) in targets.targets().enumerate() {
                    let branch = self.branch(target?);
                    self.line(format_args!("{index} => {{ {branch} }}"));
                }
                let branch = self.branch(targets.default());
                self.line(format_args!("_ => {{ {branch} }}\n}}"));
                self.unreachable = Some(0);
            }
            Operator::Call { function_index } => {
                let kind = self.module.type_of(function_index);
                let stays = self.cycles.contains(self.index, function_index);
                self.call(&format!("f{function_index}"), "c", kind, stays);
            }
            Operator::CallIndirect {
                type_index,
                table_index,
            } => {
                let index = self.pop();
                let kind = &self.module.types[type_index as usize];
                let (code, context) = (self.name(), self.name());
                self.line(format_args!(
                    "let ({code}, {context}) = c.callee::<{table_index}, {}>({index});",
                    pointer(kind)
                ));
                self.call(&code, &context, kind, true);
            }
            Operator::Drop => drop(self.pop()),
            Operator::Select | Operator::TypedSelect { .. } => {
                let (condition, other, then) = (self.pop(), self.pop(), self.pop());
                self.push(
                    then.kind,
                    format_args!("if {condition} != 0 {{ {then} }} else {{ {other} }}"),
                );
            }
            Operator::LocalGet { local_index } => {
                let kind = self.locals[local_index as usize];
                self.push(kind, format_args!("l{local_index}"));
            }
            Operator::LocalSet { local_index } => {
                let value = self.pop();
                self.line(format_args!("l{local_index} = {value};"));
            }
            Operator::LocalTee { local_index } => {
                let value = self.pop();
                self.line(format_args!("l{local_index} = {value};"));
                self.stack.push(value);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    // --- calls ---

    /// What may come back to this function must find its frame still there: a runaway recursion is to end at the end of the stack.
    fn call(&mut self, code: &str, context: &str, kind: &FuncType, stays: bool) {
        let arguments = self.pop_many(kind.params().len());
        let mut call = format!("{code}({context}");
        for argument in arguments {
            let _ = write!(call, ", {argument}");
        }
        call.push(')');
        match kind.results() {
            [] => self.line(format_args!("{call};")),
            [one] => self.push(*one, format_args!("{call}")),
            several => {
                let whole = self.name();
                self.line(format_args!("let {whole} = {call};"));
                for (index, kind) in several.iter().enumerate() {
                    self.push(*kind, format_args!("{whole}.{index}"));
                }
            }
        }
        if stays {
            self.line(format_args!("stay();"));
        }
        if self.reloads {
            self.reload();
        }
    }

    pub(super) fn reload(&mut self) {
        if self.module.memory.is_some() {
            self.line(format_args!("m = c.memory();"));
        }
    }

    /// Leaves the guest for a builtin; pushes what it answers.
    pub(super) fn enter(&mut self, builtin: Builtin, arguments: &[Value], answers: bool) {
        let slots = self.name();
        self.line(format_args!(
            "let mut {slots} = Slots::<{}>::new();",
            arguments.len().max(1)
        ));
        for (index, argument) in arguments.iter().enumerate() {
            let set = of_kind("set", argument.kind);
            self.line(format_args!("{slots}.{set}({index}, {argument});"));
        }
        self.line(format_args!("c.enter({}, &mut {slots});", builtin.number()));
        if answers {
            self.push(ValType::I32, format_args!("{slots}.get(0)"));
        }
    }
}

/// What cannot be said without vectors is what compilers are told to use; all else was refused before.
fn unsupported(operator: &Operator<'_>) -> Refusal {
    const VECTORS: [&str; 7] = ["V128", "I8x16", "I16x8", "I32x4", "I64x2", "F32x4", "F64x2"];
    let name = format!("{operator:?}");
    let name = name.split(' ').next().unwrap_or_default();
    match VECTORS.iter().any(|kind| name.starts_with(kind)) {
        true => no_vectors(),
        false => Refusal::Unsupported(format!("it uses {name}, which this engine does not run")),
    }
}
