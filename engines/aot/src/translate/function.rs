//! One function on its way into LLVM IR: its operand stack, its locals, and which loads have to happen.

use super::{
    Module, Settings,
    control::{Control, is_control},
    counted::access,
    llvm,
    needs::Record,
    parameters, results,
};
use native::layout::{Offsets, Trap};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display, Write as _},
};
use wasmparser::{FuncType, FunctionBody, Operator, ValType};

/// A value of LLVM's.
#[derive(Clone, Debug)]
pub(super) enum Text {
    Register(u32),
    Constant(String),
}

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(number) => write!(f, "%v{number}"),
            Self::Constant(text) => f.write_str(text),
        }
    }
}

/// An operand.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) kind: ValType,
    pub(super) text: Text,
    /// Loads that happen if this value is needed; see [`Function::force`].
    pub(super) loads: Vec<u32>,
}

impl Value {
    pub(super) fn constant(kind: ValType, text: impl Display) -> Self {
        Self {
            kind,
            text: Text::Constant(text.to_string()),
            loads: Vec::new(),
        }
    }

    pub(super) fn is_constant(&self) -> bool {
        matches!(self.text, Text::Constant(_))
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

pub(super) struct Function<'m, 'a> {
    pub(super) module: &'m Module<'a>,
    pub(super) offsets: &'m Offsets,
    pub(super) settings: Settings,
    index: u32,
    /// What the first block has before anything else.
    entry: String,
    pub(super) text: String,
    registers: u32,
    pub(super) labels: u32,
    pub(super) stack: Vec<Value>,
    pub(super) controls: Vec<Control>,
    /// How deep in constructs that are never reached.
    pub(super) unreachable: Option<u32>,
    locals: Vec<ValType>,
    /// What a local was last set to in this straight piece of code: its loads.
    local_loads: BTreeMap<u32, Vec<u32>>,
    /// See [`super::returns_in_memory`].
    pub(super) returns_in_memory: bool,
    /// Which of the function's operators is being translated.
    pub(super) at: usize,
    /// Whether a store comes next after the branch that is being translated, if that is not taken.
    pub(super) store_follows: bool,
    /// What locals are for, while the function is translated for the first of two times.
    pub(super) record: Option<Record>,
    /// Operators after which a load may be lost that is assigned to a local; see [`super::needs`].
    uncertain: BTreeSet<usize>,
    /// It has loops whose loads end in its results.
    pub(super) forces_results: bool,
    /// Loads of this straight piece of code that nothing is known to need yet, with their values.
    pending: BTreeMap<u32, Value>,
    /// Loops around.
    pub(super) loops: u32,
    traps: BTreeMap<u8, u32>,
    uses_memory: bool,
    /// Of the accesses to come, the last first: where they are, if that is known. See [`super::counted`].
    pub(super) positions: Vec<Option<Text>>,
    /// The last float that was made a double.
    pub(super) promoted: Option<String>,
}

impl<'m, 'a> Function<'m, 'a> {
    pub(super) fn new(module: &'m Module<'a>, offsets: &'m Offsets, settings: Settings, index: u32) -> Self {
        Self {
            module,
            offsets,
            settings,
            index,
            entry: String::new(),
            text: String::new(),
            registers: 0,
            labels: 0,
            stack: Vec::new(),
            controls: Vec::new(),
            unreachable: None,
            locals: Vec::new(),
            returns_in_memory: super::returns_in_memory(module.type_of(index)),
            local_loads: BTreeMap::new(),
            at: 0,
            store_follows: false,
            record: None,
            uncertain: BTreeSet::new(),
            forces_results: false,
            pending: BTreeMap::new(),
            loops: 0,
            traps: BTreeMap::new(),
            uses_memory: false,
            positions: Vec::new(),
            promoted: None,
        }
    }

    pub(super) fn translate(
        mut self,
        linkage: &str,
        body: &FunctionBody<'_>,
        out: &mut String,
    ) -> wasmparser::Result<()> {
        let kind = self.module.type_of(self.index).clone();
        let operators = body
            .get_operators_reader()?
            .into_iter()
            .collect::<wasmparser::Result<Vec<_>>>()?;
        let loops = operators
            .iter()
            .any(|operator| matches!(operator, Operator::Loop { .. }));
        if loops && self.settings.bounds == super::Bounds::Guard {
            self.forces_results = true;
            let mut first = Self::new(self.module, self.offsets, self.settings, self.index);
            first.forces_results = true;
            first.record = Some(Record::new());
            first.text(&kind, body, &operators)?;
            if let Some(record) = first.record {
                self.uncertain = record.uncertain(first.locals.len());
            }
        }
        self.text(&kind, body, &operators)?;
        self.write(linkage, &kind, out);
        Ok(())
    }

    fn text(
        &mut self,
        kind: &FuncType,
        body: &FunctionBody<'_>,
        operators: &[Operator<'_>],
    ) -> wasmparser::Result<()> {
        self.declare(kind, body)?;
        self.begin(kind.results());
        let mut join = None;
        for (index, operator) in operators.iter().enumerate() {
            if matches!(operator, Operator::Loop { .. })
                && self.unreachable.is_none()
                && self.record.is_none()
            {
                let beside = self.count_loop(index + 1, &operators[index + 1..]);
                join = beside.and_then(|beside| Some((index + beside.length, beside.join?)));
            }
            self.at(index, &operators[index..]);
            self.operator(operator);
            // The branch that ends the loop: the one beside it leads to where this one does.
            if let Some((_, label)) = join.take_if(|(branch, _)| *branch == index) {
                self.line(format_args!("br label %b{label}"));
                self.place(label);
            }
        }
        Ok(())
    }

    /// The operator with this number is next, which these begin with.
    pub(super) fn at(&mut self, index: usize, operators: &[Operator<'_>]) {
        self.at = index;
        self.store_follows = matches!(operators[0], Operator::BrIf { .. } | Operator::If { .. })
            && operators[1..]
                .iter()
                .take_while(|operator| !is_control(operator))
                .any(|operator| access(operator).is_some_and(|(_, _, stores)| stores));
    }

    fn declare(&mut self, kind: &FuncType, body: &FunctionBody<'_>) -> wasmparser::Result<()> {
        for (local, kind) in kind.params().iter().enumerate() {
            let _ = writeln!(
                self.entry,
                "  %l{local} = alloca {0}\n  store {0} %p{local}, ptr %l{local}",
                llvm(*kind)
            );
            self.locals.push(*kind);
        }
        for group in body.get_locals_reader()? {
            let (count, kind) = group?;
            for _ in 0..count {
                let local = self.locals.len();
                let _ = writeln!(
                    self.entry,
                    "  %l{local} = alloca {0}\n  store {0} zeroinitializer, ptr %l{local}",
                    llvm(kind)
                );
                self.locals.push(kind);
            }
        }
        Ok(())
    }

    /// Of parameters and other locals.
    pub(super) fn local_types(&self) -> &[ValType] {
        &self.locals
    }

    fn write(self, linkage: &str, kind: &FuncType, out: &mut String) {
        let (index, results, parameters) = (self.index, results(kind), parameters(kind));
        let _ = writeln!(
            out,
            "define {linkage} {} {results} @f{index}({parameters}) #0 {{",
            self.module.convention()
        );
        if self.uses_memory {
            let aligned = "!invariant.load !0, !nonnull !0, !noundef !0, !align !1";
            let _ = writeln!(out, "  %m = load ptr, ptr %c, align 8, {aligned}");
        }
        out.push_str(&self.entry);
        out.push_str(&self.text);
        for (trap, label) in &self.traps {
            let instruction = self.settings.target.trap(*trap);
            let _ = writeln!(
                out,
                "b{label}:\n  call void asm sideeffect \"{instruction}\", \"~{{memory}}\"() #2\n  unreachable"
            );
        }
        out.push_str("}\n");
    }

    // --- writing ---

    pub(super) fn line(&mut self, line: impl Display) {
        let begin = self.text.len();
        let _ = writeln!(self.text, "  {line}");
        if let Some(record) = &mut self.record {
            record.line(self.text[begin..].trim_ascii());
        }
    }

    /// An instruction with a result.
    pub(super) fn define(&mut self, instruction: impl Display) -> Text {
        let register = self.registers;
        self.registers += 1;
        let _ = writeln!(self.text, "  %v{register} = {instruction}");
        Text::Register(register)
    }

    /// A stack slot.
    pub(super) fn slot(&mut self, kind: &str) -> Text {
        let register = self.registers;
        self.registers += 1;
        let _ = writeln!(self.entry, "  %v{register} = alloca {kind}");
        Text::Register(register)
    }

    pub(super) fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    pub(super) fn place(&mut self, label: u32) {
        let _ = writeln!(self.text, "b{label}:");
        if let Some(record) = &mut self.record {
            record.begin(label);
        }
    }

    /// The linear memory's first byte.
    pub(super) fn base(&mut self) -> &'static str {
        self.uses_memory = true;
        "%m"
    }

    /// Something of the context that never changes.
    pub(super) fn constant_of_context(&mut self, offset: u32, kind: &str, base: &str) -> Text {
        let address = self.define(format_args!(
            "getelementptr inbounds i8, ptr {base}, i64 {offset}"
        ));
        self.define(format_args!(
            "load {kind}, ptr {address}, align 8, !invariant.load !0, !noundef !0"
        ))
    }

    /// Goes on only if the condition does not hold.
    pub(super) fn trap_if(&mut self, condition: &Text, trap: Trap) {
        // A load before it happens before it traps, and so do those for this condition, which may be known without them.
        self.settle();
        let trap = self.trap_label(trap);
        let on = self.label();
        self.line(format_args!(
            "br i1 {condition}, label %b{trap}, label %b{on}, !prof !2"
        ));
        self.place(on);
    }

    pub(super) fn trap_label(&mut self, trap: Trap) -> u32 {
        match self.traps.get(&(trap as u8)) {
            Some(label) => *label,
            None => {
                let label = self.label();
                self.traps.insert(trap as u8, label);
                label
            }
        }
    }

    // --- the operand stack ---

    pub(super) fn push(&mut self, kind: ValType, text: Text) {
        self.push_with(kind, text, Vec::new());
    }

    pub(super) fn push_with(&mut self, kind: ValType, text: Text, loads: Vec<u32>) {
        self.stack.push(Value { kind, text, loads });
    }

    /// The topmost value. Validation has seen to it that there is one.
    pub(super) fn pop(&mut self) -> Value {
        self.stack
            .pop()
            .unwrap_or_else(|| Value::constant(ValType::I32, "poison"))
    }

    pub(super) fn pop_many(&mut self, count: usize) -> Vec<Value> {
        let from = self.stack.len().saturating_sub(count);
        self.stack.split_off(from)
    }

    // --- loads that must happen ---
    //
    // LLVM deletes a load whose value nobody uses, and moves one to the only branch that uses it. In `guard` mode its trap would
    // go with it. A load is forced by a use that LLVM cannot see through, which costs a register and keeps a loop from being
    // vectorised. So in loops, where that matters, those are left alone whose value goes, within the same straight piece of code and
    // with all of its bits, into something that stays: a store, a branch that leads around a store, or a local from which it is certain to go there
    // ([`super::needs`]). Not any other branch, whose ways may come to the same; nor a call, whose function may not look; nor a global, of which LLVM keeps what it has last. Outside of
    // loops, and of less than four bytes, all are forced.

    /// A value was loaded.
    pub(super) fn loaded(&mut self, kind: ValType, text: Text, address: Vec<u32>) {
        let mut value = Value {
            kind,
            text,
            loads: Vec::new(),
        };
        if self.settings.bounds == super::Bounds::Guard {
            if self.loops == 0 {
                self.force(&value);
                self.needed(&address);
            } else if let Text::Register(number) = value.text {
                self.pending.insert(number, value.clone());
                value.loads.push(number);
            }
        }
        value.loads.extend(address);
        self.stack.push(value);
    }

    /// Uses a value so that LLVM cannot know what for.
    pub(super) fn force(&mut self, value: &Value) {
        let register = match value.kind {
            ValType::I32 | ValType::I64 | ValType::Ref(_) => "r",
            _ => self.settings.target.vector_register(),
        };
        self.line(format_args!(
            "call void asm sideeffect \"\", \"{register}\"({} {value})",
            llvm(value.kind)
        ));
    }

    /// Something that stays needs these.
    pub(super) fn needed(&mut self, loads: &[u32]) {
        for load in loads {
            self.pending.remove(load);
        }
        if let Some(record) = &mut self.record {
            record.used(loads);
        }
    }

    /// Nothing needs these any more, or not all of their bits: LLVM makes narrower loads of such.
    pub(super) fn dropped(&mut self, loads: &[u32]) {
        for load in loads {
            if let Some(value) = self.pending.remove(load) {
                self.force(&value);
            }
        }
        if let Some(record) = &mut self.record {
            record.lost(loads);
        }
    }

    /// Of values of which an instruction may make the same whatever they are, if they are one.
    pub(super) fn dropped_if_same(&mut self, a: &Value, b: &Value) {
        if a.loads.iter().any(|load| b.loads.contains(load)) {
            self.dropped(&a.loads);
            self.dropped(&b.loads);
        }
    }

    /// The straight piece of code ends: what nothing is known to need is forced.
    pub(super) fn settle(&mut self) {
        self.local_loads.clear();
        if let Some(record) = &mut self.record {
            record.forget();
        }
        for value in &mut self.stack {
            value.loads.clear();
        }
        for (_, value) in std::mem::take(&mut self.pending) {
            self.force(&value);
        }
    }

    /// What two operands need, for what is computed from them.
    pub(super) fn both(a: Value, b: Value) -> Vec<u32> {
        let mut loads = a.loads;
        loads.extend(b.loads);
        loads
    }

    // --- operators ---

    pub(super) fn operator(&mut self, operator: &Operator<'_>) {
        if self.skip(operator) || self.control(operator) {
            return;
        }
        let known = self.variable(operator)
            || self.memory(operator)
            || self.reference(operator)
            || self.numeric(operator)
            || self.vector(operator);
        debug_assert!(known, "validation lets no other operator in: {operator:?}");
    }

    fn variable(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::Nop => {}
            Operator::Drop => {
                let value = self.pop();
                self.dropped(&value.loads);
            }
            Operator::Select | Operator::TypedSelect { .. } => {
                let condition = self.pop();
                let (b, a) = (self.pop(), self.pop());
                let (kind, whether) = (a.kind, self.truth(&condition));
                let llvm = llvm(kind);
                let text = self.define(format_args!("select i1 {whether}, {llvm} {a}, {llvm} {b}"));
                // Only one of the two is used, and none of the condition if they are the same. But of a minimum and its like all that
                // is chosen from is in the condition.
                let of_condition =
                    |value: &Value| value.loads.iter().all(|load| condition.loads.contains(load));
                if of_condition(&a) && of_condition(&b) && a.loads != b.loads {
                    self.push_with(kind, text, condition.loads);
                } else {
                    for value in [a, b, condition] {
                        self.dropped(&value.loads);
                    }
                    self.push(kind, text);
                }
            }
            Operator::LocalGet { local_index } => {
                let kind = self.locals[local_index as usize];
                let text = self.define(format_args!("load {}, ptr %l{local_index}", llvm(kind)));
                let mut loads = self.local_loads.get(&local_index).cloned().unwrap_or_default();
                if let (Some(record), Text::Register(register)) = (&mut self.record, &text) {
                    loads.push(record.read(*register, local_index));
                }
                self.push_with(kind, text, loads);
            }
            Operator::LocalSet { local_index } => {
                let value = self.pop();
                self.set_local(local_index, &value);
            }
            Operator::LocalTee { local_index } => {
                let value = self.pop();
                self.set_local(local_index, &value);
                self.stack.push(value);
            }
            Operator::GlobalGet { global_index } => {
                let (kind, address, metadata) = self.global(global_index);
                let text = self.define(format_args!(
                    "load {}, ptr {address}, align 8{metadata}",
                    llvm(kind)
                ));
                self.push(kind, text);
            }
            Operator::GlobalSet { global_index } => {
                let value = self.pop();
                let (kind, address, metadata) = self.global(global_index);
                self.line(format_args!(
                    "store {} {value}, ptr {address}, align 8{metadata}",
                    llvm(kind)
                ));
                self.dropped(&value.loads);
            }
            _ => return false,
        }
        true
    }

    fn set_local(&mut self, local: u32, value: &Value) {
        self.line(format_args!("store {} {value}, ptr %l{local}", llvm(value.kind)));
        match &mut self.record {
            Some(record) => {
                let loaded = value.loads.iter().any(|load| self.pending.contains_key(load));
                record.assign(local, &value.loads, self.at, loaded);
            }
            None if !self.uncertain.contains(&self.at) => self.needed(&value.loads),
            None => {}
        }
        self.local_loads.insert(local, value.loads.clone());
    }

    /// A global's type, its address, and what is known of it.
    fn global(&mut self, index: u32) -> (ValType, Text, &'static str) {
        let kind = self.module.globals[index as usize].kind;
        let address = match index.checked_sub(self.module.imported_globals) {
            None => self.constant_of_context(self.offsets.imported_global(index), "ptr", "%c"),
            Some(own) => {
                let offset = self.offsets.global(own);
                self.define(format_args!("getelementptr inbounds i8, ptr %c, i64 {offset}"))
            }
        };
        let metadata = if kind.mutable {
            ", !alias.scope !4, !noalias !3"
        } else {
            ", !invariant.load !0"
        };
        (kind.content_type, address, metadata)
    }

    /// An `i32` as a condition.
    pub(super) fn truth(&mut self, value: &Value) -> Text {
        self.define(format_args!("icmp ne i32 {value}, 0"))
    }
}
