//! Loops that are innermost, have one way out and count to where they end: most of the loops in which numerical programs
//! spend their time.
//!
//! An address is 32 bits that wrap, and LLVM cannot know that those of a loop do not: then it neither counts in 64 bits nor vectorises well. Nor
//! can it take the checks of `software` out of a loop. But all that is known before such a loop begins: [`Turn`] says which addresses are
//! linear in what the loop counts, and [`Counted`] how many turns there will be. So there is a second loop, whose addresses are positions of 64 bits that go on by
//! equal steps, without checks. What has to be true for that is asked in front of it, in a few instructions ([`Function::count_loop`]); if it is not, the loop
//! is as it always was. Loops over vectors become wider by the way ([`super::widen`]).
//!
//! Positions are the same as the addresses would be:
//!
//! - In `guard` mode, with a memory of 2 GiB at most, an access whose address is 2 GiB or more, or, signed, negative, traps, and so does one at such a
//!   position, which lies above or below what can be accessed. If it does not trap, it is inside, and a step of at most [`MOST_STEP`] from there leads
//!   to the same place in 32 bits and in 64, or outside in both. Each turn makes each of its accesses, or another at the same address. Only an offset could
//!   lead from a negative position back inside: where there is one, addresses must not go down.
//!   LLVM thinks that nothing traps, so it may let a loop be one call of `memset`, which begins to write at its end, or make accesses
//!   of many turns before one that traps. So what it makes of positions must stay where nothing else is mapped, too: none begins below the memory, none goes farther
//!   than [`MOST_WAY`], and the 2 GiB below and 4 GiB and more above are as long.
//! - Otherwise all accesses of all turns are compared with the memory's size, which no turn changes. What lies inside is the same in all
//!   modes: nothing wraps, nothing is masked, and nothing traps.

use super::{
    Bounds,
    control::is_control,
    function::{Function, Text},
    widen::{self, Lane, Lanes},
};
use native::layout::GUARD;
use std::collections::{BTreeMap, HashMap};
use wasmparser::{BlockType, ContType, FrameKind, FuncType, MemArg, Operator, RefType, SubType, ValType};

/// Bodies that are longer are left alone.
const MOST_OPERATORS: usize = 1_000;

/// An address that changes by more in a turn is computed anew.
const MOST_STEP: i32 = 1 << 20;

/// How far an access goes in all turns, where nothing but what can be mapped there keeps it inside.
const MOST_WAY: i64 = 1 << 31;

/// A sum of locals, as they are when a turn begins, times factors, and a constant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Linear {
    pub(super) constant: i32,
    /// None is 0.
    pub(super) factors: BTreeMap<u32, i32>,
}

impl Linear {
    fn constant(constant: i32) -> Self {
        Self {
            constant,
            factors: BTreeMap::new(),
        }
    }

    fn local(local: u32) -> Self {
        Self {
            constant: 0,
            factors: [(local, 1)].into(),
        }
    }

    /// `self + factor * other`
    pub(super) fn plus(&self, other: &Self, factor: i32) -> Self {
        let mut sum = self.clone();
        sum.constant = sum.constant.wrapping_add(other.constant.wrapping_mul(factor));
        for (local, times) in &other.factors {
            let entry = sum.factors.entry(*local).or_default();
            *entry = entry.wrapping_add(times.wrapping_mul(factor));
        }
        sum.factors.retain(|_, factor| *factor != 0);
        sum
    }

    /// How it changes when each local does so.
    pub(super) fn change(&self, steps: &BTreeMap<u32, i32>) -> i32 {
        self.factors.iter().fold(0, |sum, (local, factor)| {
            let step = steps.get(local).copied().unwrap_or(0);
            sum.wrapping_add(factor.wrapping_mul(step))
        })
    }
}

/// A value of a turn. Equal ones are one, but for those of which nothing is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// An `i32`.
    Linear(Linear),
    /// What another local had when the turn began.
    Local(u32),
    Splat(Lane, u32),
    Bytes([u8; 16]),
    /// A vector, by the access's number.
    Load(usize),
    Shuffle([u8; 16], usize, usize),
    Lanes(Lanes, Vec<usize>),
    /// Nothing is known of it.
    Other(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Access {
    /// If it is linear.
    pub(super) address: Option<Linear>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Which vector a store stores.
    pub(super) stored: Option<usize>,
    /// Whether every turn makes it.
    always: bool,
}

/// What is known of a turn: symbolic execution of a body, once or more often.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) nodes: Vec<Node>,
    known: HashMap<Node, usize>,
    pub(super) accesses: Vec<Access>,
    /// Locals that were set, and to what.
    pub(super) set: BTreeMap<u32, usize>,
    /// The loop goes on unless this is 0, at the end of the first time.
    pub(super) condition: Option<Linear>,
    /// Whether there is anything in it but accesses and what is computed from them lane by lane.
    pub(super) does_more: bool,
    open: Vec<Open>,
}

/// The body of a loop that begins with these operators, up to the branch that ends it. `None` if another branch leaves it or begins a turn.
pub(super) fn body<'o, 'a>(operators: &'o [Operator<'a>]) -> Option<&'o [Operator<'a>]> {
    let mut inside = 0;
    for (index, operator) in operators.iter().take(MOST_OPERATORS).enumerate() {
        match *operator {
            Operator::Block { .. } | Operator::If { .. } => inside += 1,
            Operator::End if inside == 0 => return None,
            Operator::End => inside -= 1,
            Operator::BrIf { relative_depth: 0 } if inside == 0 => return Some(&operators[..=index]),
            Operator::BrIf { relative_depth } if relative_depth >= inside => return None,
            _ => {}
        }
    }
    None
}

/// A block or an if in a body.
struct Open {
    /// What had been set before it.
    set: BTreeMap<u32, usize>,
    /// Whether something in it leads to its end, or leads around its begin.
    skips: bool,
}

impl Turn {
    fn node(&mut self, node: Node) -> usize {
        if let Some(id) = self.known.get(&node) {
            return *id;
        }
        let id = self.nodes.len();
        self.nodes.push(node.clone());
        self.known.insert(node, id);
        id
    }

    fn other(&mut self) -> usize {
        self.node(Node::Other(self.nodes.len()))
    }

    fn linear(&self, id: usize) -> Option<&Linear> {
        match &self.nodes[id] {
            Node::Linear(linear) => Some(linear),
            _ => None,
        }
    }

    /// Of two numbers, if they are linear.
    fn sum(&mut self, a: usize, b: usize, factor: i32) -> usize {
        match (self.linear(a), self.linear(b)) {
            (Some(a), Some(b)) => {
                let sum = a.plus(b, factor);
                self.node(Node::Linear(sum))
            }
            _ => self.other(),
        }
    }

    fn product(&mut self, a: usize, b: usize) -> usize {
        let constant = |linear: Option<&Linear>| {
            linear
                .filter(|linear| linear.factors.is_empty())
                .map(|linear| linear.constant)
        };
        let (of, by) = match (constant(self.linear(a)), constant(self.linear(b))) {
            (_, Some(by)) => (a, by),
            (Some(by), None) => (b, by),
            (None, None) => return self.other(),
        };
        match self.linear(of) {
            Some(linear) => {
                let product = Linear::default().plus(linear, by);
                self.node(Node::Linear(product))
            }
            None => self.other(),
        }
    }

    /// Opens a block, or closes one: what was set in it is known no more if that may have been skipped.
    fn block(&mut self, operator: &Operator<'_>, stack: &mut Vec<usize>) -> Option<()> {
        self.does_more = true;
        match *operator {
            Operator::Block { .. } => self.open.push(Open {
                set: self.set.clone(),
                skips: false,
            }),
            Operator::If { .. } => {
                stack.pop()?;
                self.open.push(Open {
                    set: self.set.clone(),
                    skips: true,
                });
            }
            Operator::BrIf { relative_depth } => {
                stack.pop()?;
                let target = self.open.len().checked_sub(relative_depth as usize + 1)?;
                self.open[target].skips = true;
            }
            _ => {
                let mut open = self.open.pop()?;
                if open.skips {
                    let set = std::mem::take(&mut self.set);
                    for (local, value) in set {
                        let same = open.set.get(&local) == Some(&value);
                        let value = if same { value } else { self.other() };
                        self.set.insert(local, value);
                    }
                }
                if matches!(operator, Operator::Else) {
                    open.set.clone_from(&self.set);
                    self.open.push(open);
                }
            }
        }
        Some(())
    }

    /// Executes the body once. `None` if it calls something, or does what changes the memory's size.
    pub(super) fn execute(&mut self, body: &[Operator<'_>], locals: &[ValType]) -> Option<()> {
        let mut stack: Vec<usize> = Vec::new();
        for (index, operator) in body.iter().enumerate() {
            let made = match *operator {
                Operator::LocalGet { local_index } => match self.set.get(&local_index) {
                    Some(id) => *id,
                    None if locals[local_index as usize] == ValType::I32 => {
                        self.node(Node::Linear(Linear::local(local_index)))
                    }
                    None => self.node(Node::Local(local_index)),
                },
                Operator::LocalSet { local_index } => {
                    self.set.insert(local_index, stack.pop()?);
                    continue;
                }
                Operator::LocalTee { local_index } => {
                    self.set.insert(local_index, *stack.last()?);
                    continue;
                }
                Operator::I32Const { value } => self.node(Node::Linear(Linear::constant(value))),
                Operator::I32Add => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    self.sum(a, b, 1)
                }
                Operator::I32Sub => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    self.sum(a, b, -1)
                }
                // In front of the branch what is different is what is not 0.
                Operator::I32Ne if index + 2 == body.len() => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    self.sum(a, b, -1)
                }
                Operator::I32Mul => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    self.product(a, b)
                }
                Operator::I32Shl => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    match self.linear(b) {
                        Some(by) if by.factors.is_empty() => {
                            let by = Linear::constant(1_i32.wrapping_shl(by.constant.cast_unsigned()));
                            let by = self.node(Node::Linear(by));
                            self.product(a, by)
                        }
                        _ => self.other(),
                    }
                }
                Operator::Block {
                    blockty: BlockType::Empty,
                }
                | Operator::If {
                    blockty: BlockType::Empty,
                }
                | Operator::Else
                | Operator::End => {
                    self.block(operator, &mut stack)?;
                    continue;
                }
                Operator::BrIf { .. } if !self.open.is_empty() => {
                    self.block(operator, &mut stack)?;
                    continue;
                }
                Operator::BrIf { .. } => {
                    let condition = stack.pop()?;
                    let condition = self.linear(condition)?.clone();
                    self.condition.get_or_insert(condition);
                    return stack.is_empty().then_some(());
                }
                Operator::V128Const { value } => self.node(Node::Bytes(*value.bytes())),
                Operator::I8x16Shuffle { lanes } => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    self.node(Node::Shuffle(lanes, a, b))
                }
                _ => {
                    if let Some((memarg, bytes, store)) = access(operator) {
                        self.access(operator, &mut stack, memarg, bytes, store)?;
                        continue;
                    }
                    self.lanes(operator, &mut stack)?
                }
            };
            stack.push(made);
        }
        None
    }

    fn access(
        &mut self,
        operator: &Operator<'_>,
        stack: &mut Vec<usize>,
        memarg: MemArg,
        bytes: u64,
        store: bool,
    ) -> Option<()> {
        let lane = matches!(
            operator,
            Operator::V128Load8Lane { .. }
                | Operator::V128Load16Lane { .. }
                | Operator::V128Load32Lane { .. }
                | Operator::V128Load64Lane { .. }
        );
        let value = (store || lane).then(|| stack.pop());
        let address = stack.pop()?;
        let vector = bytes == 16;
        self.accesses.push(Access {
            address: self.linear(address).cloned(),
            offset: memarg.offset,
            bytes,
            stored: value.flatten().filter(|_| store && vector),
            always: !self.open.iter().any(|open| open.skips),
        });
        if !store {
            let number = self.accesses.len() - 1;
            let loaded = match vector {
                true => self.node(Node::Load(number)),
                false => self.other(),
            };
            stack.push(loaded);
        }
        Some(())
    }

    /// An instruction that is neither an access nor of the `i32`s that are linear.
    fn lanes(&mut self, operator: &Operator<'_>, stack: &mut Vec<usize>) -> Option<usize> {
        if let Some(lane) = widen::splat(operator) {
            let of = stack.pop()?;
            return Some(match self.nodes[of] {
                Node::Local(local) => self.node(Node::Splat(lane, local)),
                _ => self.other(),
            });
        }
        if let Some((lane, what, bits)) = widen::shift(operator) {
            let (by, a) = (stack.pop()?, stack.pop()?);
            return Some(match self.linear(by) {
                Some(by) if by.factors.is_empty() => {
                    let by = by.constant.cast_unsigned() % bits;
                    self.node(Node::Lanes(Lanes::Shift(lane, what, by), vec![a]))
                }
                _ => self.other(),
            });
        }
        if let Some((lanes, count)) = widen::lanes(operator) {
            let operands = stack.split_off(stack.len().checked_sub(count)?);
            return Some(self.node(Node::Lanes(lanes, operands)));
        }
        if !is_plain(operator) {
            return None;
        }
        let (taken, left) = operator.operator_arity(&Nothing)?;
        stack.truncate(stack.len().checked_sub(taken as usize)?);
        self.does_more = true;
        (left == 1).then(|| self.other())
    }

    /// By how much each `i32` that goes on from turn to turn changes in one.
    pub(super) fn steps(&self) -> BTreeMap<u32, i32> {
        let step = |(local, id): (&u32, &usize)| {
            let change = self.linear(*id)?.plus(&Linear::local(*local), -1);
            change.factors.is_empty().then_some((*local, change.constant))
        };
        self.set.iter().filter_map(step).collect()
    }

    /// Whether every local in it goes on by equal steps, or stays.
    pub(super) fn goes_on(&self, linear: &Linear, steps: &BTreeMap<u32, i32>) -> bool {
        let mut locals = linear.factors.keys();
        locals.all(|local| !self.set.contains_key(local) || steps.contains_key(local))
    }
}

/// An operator of one result that has nothing to do with control, calls, or sizes.
fn is_plain(operator: &Operator<'_>) -> bool {
    // Those that a body may have were dealt with before.
    let ends = matches!(operator, Operator::End | Operator::BrIf { .. });
    let sizes = matches!(operator, Operator::MemoryGrow { .. } | Operator::TableGrow { .. });
    ends || !is_control(operator) && !sizes
}

/// What instructions take and leave that need no module to know it.
struct Nothing;

impl wasmparser::ModuleArity for Nothing {
    fn sub_type_at(&self, _: u32) -> Option<&SubType> {
        None
    }
    fn tag_type_arity(&self, _: u32) -> Option<(u32, u32)> {
        None
    }
    fn type_index_of_function(&self, _: u32) -> Option<u32> {
        None
    }
    fn func_type_of_cont_type(&self, _: &ContType) -> Option<&FuncType> {
        None
    }
    fn sub_type_of_ref_type(&self, _: &RefType) -> Option<&SubType> {
        None
    }
    fn control_stack_height(&self) -> u32 {
        0
    }
    fn label_block(&self, _: u32) -> Option<(BlockType, FrameKind)> {
        None
    }
}

/// Of an access: where, how many bytes, and whether it is a store.
pub(super) fn access(operator: &Operator<'_>) -> Option<(MemArg, u64, bool)> {
    Some(match *operator {
        Operator::I32Load8S { memarg }
        | Operator::I32Load8U { memarg }
        | Operator::I64Load8S { memarg }
        | Operator::I64Load8U { memarg }
        | Operator::V128Load8Splat { memarg }
        | Operator::V128Load8Lane { memarg, .. } => (memarg, 1, false),
        Operator::I32Load16S { memarg }
        | Operator::I32Load16U { memarg }
        | Operator::I64Load16S { memarg }
        | Operator::I64Load16U { memarg }
        | Operator::V128Load16Splat { memarg }
        | Operator::V128Load16Lane { memarg, .. } => (memarg, 2, false),
        Operator::I32Load { memarg }
        | Operator::F32Load { memarg }
        | Operator::I64Load32S { memarg }
        | Operator::I64Load32U { memarg }
        | Operator::V128Load32Splat { memarg }
        | Operator::V128Load32Zero { memarg }
        | Operator::V128Load32Lane { memarg, .. } => (memarg, 4, false),
        Operator::I64Load { memarg }
        | Operator::F64Load { memarg }
        | Operator::V128Load8x8S { memarg }
        | Operator::V128Load8x8U { memarg }
        | Operator::V128Load16x4S { memarg }
        | Operator::V128Load16x4U { memarg }
        | Operator::V128Load32x2S { memarg }
        | Operator::V128Load32x2U { memarg }
        | Operator::V128Load64Splat { memarg }
        | Operator::V128Load64Zero { memarg }
        | Operator::V128Load64Lane { memarg, .. } => (memarg, 8, false),
        Operator::V128Load { memarg } => (memarg, 16, false),
        Operator::I32Store8 { memarg }
        | Operator::I64Store8 { memarg }
        | Operator::V128Store8Lane { memarg, .. } => (memarg, 1, true),
        Operator::I32Store16 { memarg }
        | Operator::I64Store16 { memarg }
        | Operator::V128Store16Lane { memarg, .. } => (memarg, 2, true),
        Operator::I32Store { memarg }
        | Operator::F32Store { memarg }
        | Operator::I64Store32 { memarg }
        | Operator::V128Store32Lane { memarg, .. } => (memarg, 4, true),
        Operator::I64Store { memarg }
        | Operator::F64Store { memarg }
        | Operator::V128Store64Lane { memarg, .. } => (memarg, 8, true),
        Operator::V128Store { memarg } => (memarg, 16, true),
        _ => return None,
    })
}

/// A loop of which it is known how often it turns.
pub(super) struct Counted {
    /// Linear in what the loop counts, with the change in a turn; `None` if not.
    pub(super) accesses: Vec<Option<(Access, i64)>>,
    condition: Linear,
    /// By how much the condition changes in a turn.
    step: i32,
}

impl Counted {
    fn new(turn: &Turn, steps: &BTreeMap<u32, i32>, guarded: bool) -> Option<Self> {
        let condition = turn.condition.clone()?;
        let step = condition.change(steps);
        if !turn.goes_on(&condition, steps) || step == i32::MIN || !step.unsigned_abs().is_power_of_two() {
            return None;
        }
        let every_turn = |access: &Access| {
            let same = |other: &Access| other.always && other.address == access.address;
            turn.accesses.iter().any(same)
        };
        let known = |access: &Access| {
            let address = access.address.as_ref()?;
            let change = address.change(steps);
            let fits = turn.goes_on(address, steps)
                && change.unsigned_abs() <= MOST_STEP.cast_unsigned()
                && access.offset + 2 * access.bytes <= GUARD
                && !(guarded && access.offset > 0 && change < 0)
                && (!guarded || every_turn(access));
            fits.then(|| (access.clone(), i64::from(change)))
        };
        let accesses: Vec<_> = turn.accesses.iter().map(known).collect();
        accesses
            .iter()
            .flatten()
            .any(|(_, change)| *change != 0)
            .then_some(Self {
                accesses,
                condition,
                step,
            })
    }
}

/// A conjunction that is being written.
pub(super) struct All(Option<Text>);

impl All {
    pub(super) fn and(&mut self, function: &mut Function<'_, '_>, also: Text) {
        self.0 = Some(match self.0.take() {
            None => also,
            Some(before) => function.define(format_args!("and i1 {before}, {also}")),
        });
    }

    pub(super) fn text(&self) -> Text {
        self.0.clone().unwrap_or_else(|| Text::Constant("true".into()))
    }
}

/// What a loop became, beside itself.
pub(super) struct Beside {
    /// Operators of its body, the branch that ends it included.
    pub(super) length: usize,
    /// Where the other loop leads after all turns.
    pub(super) join: Option<u32>,
}

impl Function<'_, '_> {
    /// A loop begins with these operators, of which the first has this number: puts one in front of it that has positions instead of addresses, if there can be one.
    pub(super) fn count_loop(&mut self, first: usize, operators: &[Operator<'_>]) -> Option<Beside> {
        let body = body(operators)?;
        let mut turn = Turn::default();
        turn.execute(body, self.local_types())?;
        let steps = turn.steps();
        // Whether what is outside is found by what can be mapped there, signed.
        let guarded = matches!(self.settings.bounds, Bounds::Guard | Bounds::None)
            && self.module.has_signed_addresses();
        let counted = Counted::new(&turn, &steps, guarded)?;
        let plan = self.widening(body, &turn, &counted, &steps);
        self.settle();
        let (good, last) = self.turns(&counted);
        let mut all = All(None);
        if let Some(good) = good {
            all.and(self, good);
        }
        let begins = self.begins(&counted, &last, guarded, &mut all);
        let slow = self.label();
        if let Some(plan) = plan {
            self.widen_loop(&plan, &begins, &last, all, slow);
            return Some(Beside {
                length: body.len(),
                join: None,
            });
        }
        let (fast, join) = (self.label(), self.label());
        let good = all.text();
        self.line(format_args!(
            "br i1 {good}, label %b{fast}, label %b{slow}, !prof !5"
        ));
        self.place(fast);
        let counter = self.slot("i64");
        self.line(format_args!("store i64 0, ptr {counter}"));
        let again = self.label();
        self.line(format_args!("br label %b{again}"));
        self.place(again);
        let now = self.define(format_args!("load i64, ptr {counter}"));
        let mut positions: Vec<_> = Vec::new();
        for (begin, access) in begins.iter().zip(&counted.accesses) {
            positions.push(match (begin, access) {
                (Some(begin), Some((_, change))) => Some(self.position(begin, &now, *change)),
                _ => None,
            });
        }
        positions.reverse();
        self.loops += 1;
        self.positions = positions;
        for (at, operator) in body[..body.len() - 1].iter().enumerate() {
            self.at(first + at, &body[at..]);
            self.operator(operator);
        }
        self.positions.clear();
        self.pop();
        self.settle();
        self.loops -= 1;
        let next = self.define(format_args!("add nuw nsw i64 {now}, 1"));
        self.line(format_args!("store i64 {next}, ptr {counter}"));
        let more = self.define(format_args!("icmp ult i64 {now}, {last}"));
        // With checks it is like any other loop: see `again` in `control`.
        let checked = self.settings.bounds == Bounds::Software && begins.iter().any(Option::is_none);
        let vectors = if checked { super::NEVER_VECTORS } else { "" };
        self.line(format_args!(
            "br i1 {more}, label %b{again}, label %b{join}{vectors}"
        ));
        self.place(slow);
        Some(Beside {
            length: body.len(),
            join: Some(join),
        })
    }

    /// Where an access is in a turn, with its offset.
    pub(super) fn position(&mut self, begin: &Text, turn: &Text, change: i64) -> Text {
        if change == 0 {
            return begin.clone();
        }
        let far = self.define(format_args!("mul nsw i64 {turn}, {change}"));
        self.define(format_args!("add nsw i64 {begin}, {far}"))
    }

    /// How many turns there are after the first, and whether that is so: to where the condition is 0.
    fn turns(&mut self, counted: &Counted) -> (Option<Text>, Text) {
        let begin = self.linear(&counted.condition);
        let distance = match counted.step < 0 {
            true => begin,
            false => self.define(format_args!("sub i32 0, {begin}")),
        };
        let size = counted.step.unsigned_abs();
        let good = (size > 1).then(|| {
            let rest = self.define(format_args!("and i32 {distance}, {}", size - 1));
            self.define(format_args!("icmp eq i32 {rest}, 0"))
        });
        let turns = self.define(format_args!("lshr i32 {distance}, {}", size.trailing_zeros()));
        (good, self.define(format_args!("zext i32 {turns} to i64")))
    }

    /// Where each access begins, in 64 bits, and what must be true for that; see the module.
    fn begins(&mut self, counted: &Counted, last: &Text, guarded: bool, all: &mut All) -> Vec<Option<Text>> {
        let size = (!guarded).then(|| self.bytes());
        let mut begins = Vec::new();
        let changes = counted.accesses.iter().flatten().map(|(_, change)| change.abs());
        if let Some(most) = changes.max().filter(|most| guarded && *most > 0) {
            let near = self.define(format_args!("icmp ule i64 {last}, {}", MOST_WAY / most));
            all.and(self, near);
        }
        for access in &counted.accesses {
            let Some((access, change)) = access else {
                begins.push(None);
                continue;
            };
            let address = access.address.clone().unwrap_or_default();
            let address = self.linear(&address);
            let extend = match size {
                None => "sext",
                Some(_) => "zext",
            };
            let wide = self.define(format_args!("{extend} i32 {address} to i64"));
            let begin = match access.offset {
                0 => wide.clone(),
                offset => self.define(format_args!("add nsw i64 {wide}, {offset}")),
            };
            if let Some(size) = &size {
                // The highest end, and the lowest begin.
                let far = self.define(format_args!("mul nsw i64 {last}, {change}"));
                let end = match change {
                    0.. => self.define(format_args!("add nsw i64 {begin}, {far}")),
                    _ => begin.clone(),
                };
                let end = self.define(format_args!("add nsw i64 {end}, {}", access.bytes));
                let inside = self.define(format_args!("icmp ule i64 {end}, {size}"));
                all.and(self, inside);
                if *change < 0 {
                    let lowest = self.define(format_args!("add nsw i64 {wide}, {far}"));
                    let inside = self.define(format_args!("icmp sge i64 {lowest}, 0"));
                    all.and(self, inside);
                }
            } else {
                let above = self.define(format_args!("icmp sge i32 {address}, 0"));
                all.and(self, above);
            }
            begins.push(Some(begin));
        }
        begins
    }

    pub(super) fn linear(&mut self, linear: &Linear) -> Text {
        let mut sum = Text::Constant(linear.constant.to_string());
        for (local, factor) in &linear.factors {
            let value = self.define(format_args!("load i32, ptr %l{local}"));
            let product = match factor {
                1 => value,
                _ => self.define(format_args!("mul i32 {value}, {factor}")),
            };
            sum = self.define(format_args!("add i32 {product}, {sum}"));
        }
        sum
    }
}
