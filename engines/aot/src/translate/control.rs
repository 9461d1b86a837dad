//! Blocks, branches and calls.

use super::{
    Bounds,
    function::{Function, Text, Value},
    llvm, results, returns_in_memory,
};
use native::layout::{self, SLOT, Trap};
use std::fmt::Write as _;
use wasmparser::{BlockType, FuncType, Operator, ValType};

/// A block, loop or if that is open.
pub(super) struct Control {
    kind: Kind,
    /// Where a branch to it leads: a loop's begin, everything else's end.
    target: u32,
    end: u32,
    /// Where values lie that go with a branch to it,
    carried: Vec<Text>,
    /// and those that it leaves at its end.
    left: Vec<Text>,
    parameters: Vec<ValType>,
    results: Vec<ValType>,
    /// Values on the stack below.
    height: usize,
}

enum Kind {
    /// Also the function's body.
    Block,
    Loop,
    /// With the label of its else, and the values that begin there.
    If(u32, Vec<Value>),
    Else,
}

impl Control {
    /// The types of what goes with a branch to it.
    fn carries(&self) -> &[ValType] {
        match self.kind {
            Kind::Loop => &self.parameters,
            _ => &self.results,
        }
    }
}

/// Whether a straight piece of code ends here.
pub(super) fn is_control(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::Unreachable
            | Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::If { .. }
            | Operator::Else
            | Operator::End
            | Operator::Br { .. }
            | Operator::BrIf { .. }
            | Operator::BrTable { .. }
            | Operator::Return
            | Operator::Call { .. }
            | Operator::CallIndirect { .. }
            | Operator::ReturnCall { .. }
            | Operator::ReturnCallIndirect { .. }
    )
}

impl Function<'_, '_> {
    /// Opens the function's body.
    pub(super) fn begin(&mut self, results: &[ValType]) {
        let end = self.label();
        let left = self.slots(results);
        self.controls.push(Control {
            kind: Kind::Block,
            target: end,
            end,
            carried: left.clone(),
            left,
            parameters: Vec::new(),
            results: results.to_vec(),
            height: 0,
        });
    }

    /// Whether the operator is never reached; counts the blocks that are not.
    pub(super) fn skip(&mut self, operator: &Operator<'_>) -> bool {
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

    pub(super) fn control(&mut self, operator: &Operator<'_>) -> bool {
        match *operator {
            Operator::Unreachable => {
                let trap = self.trap_label(Trap::Unreachable);
                self.jump(trap);
            }
            Operator::Block { blockty } => self.open(Kind::Block, blockty),
            Operator::Loop { blockty } => self.open(Kind::Loop, blockty),
            Operator::If { blockty } => {
                let condition = self.condition();
                let whether = self.truth(&condition);
                let (then, other) = (self.label(), self.label());
                self.open(Kind::If(other, Vec::new()), blockty);
                self.line(format_args!("br i1 {whether}, label %b{then}, label %b{other}"));
                self.place(then);
                // Both arms begin with the same values.
                let values = self.arguments();
                if let Some(Control {
                    kind: Kind::If(_, kept),
                    ..
                }) = self.controls.last_mut()
                {
                    *kept = values;
                }
            }
            Operator::Else => self.otherwise(),
            Operator::End => self.end(),
            Operator::Br { relative_depth } => {
                self.settle();
                let target = self.carry(relative_depth);
                let again = self.again(relative_depth);
                self.line(format_args!("br label %b{target}{again}"));
                self.unreachable = Some(0);
            }
            Operator::BrIf { relative_depth } => {
                let condition = self.condition();
                let whether = self.truth(&condition);
                self.settle();
                let target = self.carry(relative_depth);
                let (on, again) = (self.label(), self.again(relative_depth));
                self.line(format_args!(
                    "br i1 {whether}, label %b{target}, label %b{on}{again}"
                ));
                self.place(on);
            }
            Operator::BrTable { ref targets } => self.switch(targets),
            Operator::Return => {
                let outermost = u32::try_from(self.controls.len() - 1).unwrap_or(0);
                self.returns(self.controls[0].results.len());
                self.settle();
                let target = self.carry(outermost);
                self.jump(target);
            }
            Operator::Call { function_index } => self.call(function_index, false),
            Operator::ReturnCall { function_index } => self.call(function_index, true),
            Operator::CallIndirect {
                type_index,
                table_index,
            } => self.call_indirect(type_index, table_index, false),
            Operator::ReturnCallIndirect {
                type_index,
                table_index,
            } => {
                self.call_indirect(type_index, table_index, true);
            }
            _ => return false,
        }
        true
    }

    /// Of a branch.
    fn condition(&mut self) -> Value {
        let condition = self.pop();
        if self.store_follows {
            self.needed(&condition.loads);
        }
        condition
    }

    /// What is said of a branch that begins another turn of a loop, if this is one.
    ///
    /// A check is a way out of a loop. LLVM vectorises loops with several, if it can count all of them, and where it then loads parts of a stretch of
    /// memory it loads the stretch, up to the bytes in front of what the next turn would access. That turn may be the one that ends at a check, and then
    /// these bytes may be outside: the loop would trap some turns early, without what those were to store. So loops with checks stay as
    /// they are; those that count have a loop without checks beside them ([`super::counted`]).
    fn again(&self, depth: u32) -> &'static str {
        let control = &self.controls[self.controls.len() - 1 - depth as usize];
        match control.kind {
            Kind::Loop if self.settings.bounds == Bounds::Software => super::NEVER_VECTORS,
            _ => "",
        }
    }

    /// Goes there; what follows is never reached.
    fn jump(&mut self, label: u32) {
        self.settle();
        self.line(format_args!("br label %b{label}"));
        self.unreachable = Some(0);
    }

    fn slots(&mut self, kinds: &[ValType]) -> Vec<Text> {
        kinds.iter().map(|kind| self.slot(llvm(*kind))).collect()
    }

    fn block_type(&self, kind: BlockType) -> (Vec<ValType>, Vec<ValType>) {
        match kind {
            BlockType::Empty => (Vec::new(), Vec::new()),
            BlockType::Type(one) => (Vec::new(), vec![one]),
            BlockType::FuncType(index) => {
                let kind = &self.module.types[index as usize];
                (kind.params().to_vec(), kind.results().to_vec())
            }
        }
    }

    fn open(&mut self, kind: Kind, blockty: BlockType) {
        self.settle();
        let (parameters, results) = self.block_type(blockty);
        let height = self.stack.len() - parameters.len();
        let end = self.label();
        let left = self.slots(&results);
        let (target, carried) = match kind {
            Kind::Loop => {
                let begin = self.label();
                let carried = self.slots(&parameters);
                let values = self.pop_many(parameters.len());
                self.keep(&values, &carried);
                self.line(format_args!("br label %b{begin}"));
                self.place(begin);
                self.loops += 1;
                self.bring(&parameters, &carried);
                (begin, carried)
            }
            _ => (end, left.clone()),
        };
        self.controls.push(Control {
            kind,
            target,
            end,
            carried,
            left,
            parameters,
            results,
            height,
        });
    }

    /// The values with which the innermost block began, which has done nothing yet.
    fn arguments(&self) -> Vec<Value> {
        let height = self.controls.last().map_or(0, |control| control.height);
        self.stack[height..].to_vec()
    }

    fn otherwise(&mut self) {
        let Some(mut control) = self.controls.pop() else {
            return;
        };
        self.fall_to_the_end(&control);
        if let Kind::If(other, values) = std::mem::replace(&mut control.kind, Kind::Else) {
            self.place(other);
            self.stack.truncate(control.height);
            self.stack.extend(values);
        }
        self.unreachable = None;
        self.controls.push(control);
    }

    /// What is on the stack goes where the block leaves its results.
    fn fall_to_the_end(&mut self, control: &Control) {
        if self.unreachable.is_none() {
            if self.controls.is_empty() {
                self.returns(control.results.len());
            }
            self.settle();
            let values = self.pop_many(control.results.len());
            self.keep(&values, &control.left);
            self.line(format_args!("br label %b{}", control.end));
        }
    }

    fn end(&mut self) {
        let Some(control) = self.controls.pop() else {
            return;
        };
        self.fall_to_the_end(&control);
        match &control.kind {
            Kind::If(other, values) => {
                // Without an else, what it begins with is what it leaves.
                self.place(*other);
                let values = values.clone();
                self.keep(&values, &control.left);
                self.line(format_args!("br label %b{}", control.end));
            }
            Kind::Loop => self.loops -= 1,
            Kind::Block | Kind::Else => {}
        }
        self.place(control.end);
        self.unreachable = None;
        self.stack.truncate(control.height);
        self.bring(&control.results, &control.left);
        if self.controls.is_empty() {
            self.give_back(&control.results);
        }
    }

    fn keep(&mut self, values: &[Value], slots: &[Text]) {
        for (value, slot) in values.iter().zip(slots) {
            self.line(format_args!("store {} {value}, ptr {slot}", llvm(value.kind)));
        }
    }

    fn bring(&mut self, kinds: &[ValType], slots: &[Text]) {
        for (kind, slot) in kinds.iter().zip(slots) {
            let text = self.define(format_args!("load {}, ptr {slot}", llvm(*kind)));
            self.push(*kind, text);
        }
    }

    /// Leaves the topmost values where a branch brings them, and on the stack. The label to go to.
    fn carry(&mut self, depth: u32) -> u32 {
        let index = self.controls.len() - 1 - depth as usize;
        let control = &self.controls[index];
        let (target, slots) = (control.target, control.carried.clone());
        let from = self.stack.len() - control.carries().len();
        let values = self.stack[from..].to_vec();
        self.keep(&values, &slots);
        target
    }

    fn switch(&mut self, targets: &wasmparser::BrTable<'_>) {
        let index = self.pop();
        self.settle();
        // Validation has read the targets.
        let depths: Vec<u32> = targets.targets().filter_map(Result::ok).collect();
        let default = self.carry(targets.default());
        let mut line = format!("switch i32 {index}, label %b{default} [");
        for (value, depth) in depths.into_iter().enumerate() {
            let target = self.controls[self.controls.len() - 1 - depth as usize].target;
            if depth != targets.default() {
                self.carry_once(depth);
            }
            if target != default {
                let _ = write!(line, " i32 {}, label %b{target}", i64::from(value as u32 as i32));
            }
        }
        line.push_str(" ]");
        self.line(line);
        self.unreachable = Some(0);
    }

    /// As [`Self::carry`], for targets of a switch, of which many are the same.
    fn carry_once(&mut self, depth: u32) {
        if !self.controls[self.controls.len() - 1 - depth as usize]
            .carried
            .is_empty()
        {
            self.carry(depth);
        }
    }

    /// These topmost values are about to be the function's results.
    fn returns(&mut self, count: usize) {
        let values = self.stack.iter().rev().take(count);
        let loads: Vec<u32> = values.flat_map(|value| value.loads.clone()).collect();
        self.needed(&loads);
    }

    /// Returns what is on the stack.
    fn give_back(&mut self, kinds: &[ValType]) {
        let values = self.pop_many(kinds.len());
        if self.forces_results {
            // The caller may have no use for them.
            for value in &values {
                self.force(value);
            }
        }
        match values.as_slice() {
            [] => self.line("ret void"),
            several if self.returns_in_memory => {
                for (index, value) in several.iter().enumerate() {
                    let slot = self.result_slot(&Text::Constant("%r".into()), index);
                    self.line(format_args!(
                        "store {} {value}, ptr {slot}, align 16",
                        llvm(value.kind)
                    ));
                }
                self.line("ret void");
            }
            [one] => self.line(format_args!("ret {} {one}", llvm(one.kind))),
            several => {
                let whole: Vec<_> = kinds.iter().map(|kind| llvm(*kind)).collect();
                let whole = format!("{{ {} }}", whole.join(", "));
                let mut text = Text::Constant("poison".into());
                for (index, value) in several.iter().enumerate() {
                    text = self.define(format_args!(
                        "insertvalue {whole} {text}, {} {value}, {index}",
                        llvm(value.kind)
                    ));
                }
                self.line(format_args!("ret {whole} {text}"));
            }
        }
    }

    fn result_slot(&mut self, slots: &Text, index: usize) -> Text {
        self.define(format_args!(
            "getelementptr inbounds i8, ptr {slots}, i64 {}",
            index * SLOT as usize
        ))
    }

    // --- calls ---

    fn call(&mut self, function: u32, tail: bool) {
        let kind = self.module.type_of(function).clone();
        if function < self.module.imported_functions {
            let at = self.offsets.function(function);
            let code = self.constant_of_context(at + layout::CODE, "ptr", "%c");
            let context = self.constant_of_context(at + layout::CONTEXT, "ptr", "%c");
            self.call_to(&kind, &code, &context, tail);
        } else {
            let own = Text::Constant("%c".into());
            self.call_to(&kind, &Text::Constant(format!("@f{function}")), &own, tail);
        }
    }

    fn call_to(&mut self, kind: &FuncType, code: &Text, context: &Text, tail: bool) {
        let arguments = self.pop_many(kind.params().len());
        let mut list = format!("ptr {context}");
        // A tail call's callee returns what this function does, to where this one would.
        let left = returns_in_memory(kind).then(|| match tail {
            true => Text::Constant("%r".into()),
            false => self.slot(&format!(
                "[{} x i8], align 16",
                kind.results().len() * SLOT as usize
            )),
        });
        if let Some(left) = &left {
            let _ = write!(list, ", ptr {left}");
        }
        for argument in &arguments {
            let _ = write!(list, ", {} {argument}", llvm(argument.kind));
        }
        // A callee may leave the guest for good, and a load before it happens before that.
        self.settle();
        let whole = results(kind);
        let call = format!("{} {whole} {code}({list})", self.module.convention());
        if tail {
            if whole == "void" {
                self.line(format_args!("musttail call {call}"));
                self.line("ret void");
            } else {
                let text = self.define(format_args!("musttail call {call}"));
                self.line(format_args!("ret {whole} {text}"));
            }
            self.unreachable = Some(0);
            return;
        }
        match (kind.results(), left) {
            ([], _) => self.line(format_args!("call {call}")),
            (several, Some(left)) => {
                self.line(format_args!("call {call}"));
                for (index, kind) in several.iter().enumerate() {
                    let slot = self.result_slot(&left, index);
                    let text = self.define(format_args!("load {}, ptr {slot}, align 16", llvm(*kind)));
                    self.push(*kind, text);
                }
            }
            ([one], None) => {
                let text = self.define(format_args!("call {call}"));
                self.push(*one, text);
            }
            (several, None) => {
                let text = self.define(format_args!("call {call}"));
                for (index, kind) in several.iter().enumerate() {
                    let one = self.define(format_args!("extractvalue {whole} {text}, {index}"));
                    self.push(*kind, one);
                }
            }
        }
    }

    fn call_indirect(&mut self, type_index: u32, table: u32, tail: bool) {
        let kind = self.module.types[type_index as usize].clone();
        let index = self.pop();
        let element = self.element(table, &index, Trap::UndefinedElement);
        let address = self.define(format_args!(
            "getelementptr inbounds i8, ptr {element}, i64 {}",
            layout::SIGNATURE
        ));
        let found = self.define(format_args!(
            "load i64, ptr {address}, align 8, !alias.scope !4, !noalias !3"
        ));
        let wanted = super::signature(&kind) as i64;
        let right = self.define(format_args!("icmp eq i64 {found}, {wanted}"));
        let (on, wrong, other) = (
            self.label(),
            self.label(),
            self.trap_label(Trap::IndirectCallType),
        );
        self.line(format_args!(
            "br i1 {right}, label %b{on}, label %b{wrong}, !prof !5"
        ));
        self.place(wrong);
        let null = self.define(format_args!("icmp eq i64 {found}, 0"));
        let none = self.trap_label(Trap::UninitializedElement);
        self.line(format_args!("br i1 {null}, label %b{none}, label %b{other}"));
        self.place(on);
        let code = self.field(&element, layout::CODE);
        let context = self.field(&element, layout::CONTEXT);
        self.call_to(&kind, &code, &context, tail);
    }

    /// A field of an element that is not null.
    pub(super) fn field(&mut self, element: &Text, field: u32) -> Text {
        let address = self.define(format_args!(
            "getelementptr inbounds i8, ptr {element}, i64 {field}"
        ));
        self.define(format_args!(
            "load ptr, ptr {address}, align 8, !alias.scope !4, !noalias !3"
        ))
    }
}
