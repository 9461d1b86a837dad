//! Loops over vectors of 128 bits, in vectors of 256.
//!
//! Compilers to WebAssembly make loops over vectors of 128 bits, because it has no others. LLVM vectorises scalars only, so such a loop would
//! stay as narrow as it is. Here a loop whose body is one straight piece of code is understood as a whole ([`Plan`]): its accesses
//! lie at addresses that are linear in `i32` locals, it counts to where it ends, and two vectors that lie side by side in memory come about in the
//! same way. Either its body has both already, or its next turn has the other. Then there is a second loop in front of it, whose accesses and
//! instructions are those of two vectors at once. Whether that is the same is asked before it begins, in a few instructions, and the loop itself
//! does the turns that are left: all of them if it is not the same, one or two otherwise. So what its locals have at its end comes from it.
//!
//! It is the same, because:
//!
//! - The second loop makes fewer turns than the loop itself would, if nothing traps: it is known how many those are, and the last is left.
//! - Accesses of one turn change places only with such as are elsewhere ([`Check`]). How far two addresses are from each other is the same in all
//!   turns: only those count that move by equal steps.
//! - An access traps exactly if one of the two does that it is made of. The first leads outside or not as it always did. If it does not, it lies
//!   below 2 GiB, and the second behind it is below that too or leads outside, which 16 bytes more do also. The same holds from turn
//!   to turn: addresses are counted in 64 bits, from one as it is, signed, to the next. One that does not trap lies inside, and a step of less than 2 GiB from
//!   there either stays inside or leads to where nothing can be accessed, above or below, as the number of 32 bits would. (An offset could
//!   lead back in from below; addresses that have one must not be negative and not go down.)
//! - In `guard` mode, which this is for, it is left open which stores shortly before a trap have happened.

use super::{
    Bounds,
    function::{Function, Text},
    memory::MEMORY,
    simd::{has_neutral, mask},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use wasmparser::{MemArg, Operator, ValType};

/// Of the narrow vectors.
const BYTES: i32 = 16;

/// Bodies that are longer are left alone.
const MOST_OPERATORS: usize = 400;

/// A sum of locals, as they are when a turn begins, times factors, and a constant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Linear {
    constant: i32,
    /// None is 0.
    factors: BTreeMap<u32, i32>,
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
    fn plus(&self, other: &Self, factor: i32) -> Self {
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
    fn change(&self, steps: &BTreeMap<u32, i32>) -> i32 {
        self.factors.iter().fold(0, |sum, (local, factor)| {
            let step = steps.get(local).copied().unwrap_or(0);
            sum.wrapping_add(factor.wrapping_mul(step))
        })
    }
}

/// An instruction whose lanes have nothing to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lanes {
    /// Of two vectors of integers.
    Integer(Lane, &'static str),
    /// Of two vectors of floats.
    Float(Lane, &'static str),
    /// An intrinsic of one or two vectors.
    Intrinsic(Lane, &'static str),
    Negate(Lane),
    Not,
    AndNot,
    /// By as many bits.
    Shift(Lane, &'static str, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lane {
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

impl Lane {
    /// Of a wide vector: LLVM's type, its lanes, and the letters of intrinsics.
    fn wide(self) -> (&'static str, u32, &'static str) {
        match self {
            Self::I8 => ("i8", 32, "v32i8"),
            Self::I16 => ("i16", 16, "v16i16"),
            Self::I32 => ("i32", 8, "v8i32"),
            Self::I64 => ("i64", 4, "v4i64"),
            Self::F32 => ("float", 8, "v8f32"),
            Self::F64 => ("double", 4, "v4f64"),
        }
    }

    fn vector(self) -> String {
        let (lane, lanes, _) = self.wide();
        format!("<{lanes} x {lane}>")
    }
}

fn lanes(operator: &Operator<'_>) -> Option<Lanes> {
    use Lane::{F32, F64, I8, I16, I32, I64};
    use Lanes::{Float, Integer, Intrinsic, Negate};
    Some(match operator {
        Operator::F32x4Add => Float(F32, "fadd"),
        Operator::F32x4Sub => Float(F32, "fsub"),
        Operator::F32x4Mul => Float(F32, "fmul"),
        Operator::F32x4Div => Float(F32, "fdiv"),
        Operator::F64x2Add => Float(F64, "fadd"),
        Operator::F64x2Sub => Float(F64, "fsub"),
        Operator::F64x2Mul => Float(F64, "fmul"),
        Operator::F64x2Div => Float(F64, "fdiv"),
        Operator::F32x4Sqrt => Intrinsic(F32, "sqrt"),
        Operator::F64x2Sqrt => Intrinsic(F64, "sqrt"),
        Operator::F32x4Abs => Intrinsic(F32, "fabs"),
        Operator::F64x2Abs => Intrinsic(F64, "fabs"),
        Operator::F32x4Neg => Negate(F32),
        Operator::F64x2Neg => Negate(F64),
        Operator::I8x16Add => Integer(I8, "add"),
        Operator::I16x8Add => Integer(I16, "add"),
        Operator::I32x4Add => Integer(I32, "add"),
        Operator::I64x2Add => Integer(I64, "add"),
        Operator::I8x16Sub => Integer(I8, "sub"),
        Operator::I16x8Sub => Integer(I16, "sub"),
        Operator::I32x4Sub => Integer(I32, "sub"),
        Operator::I64x2Sub => Integer(I64, "sub"),
        Operator::I16x8Mul => Integer(I16, "mul"),
        Operator::I32x4Mul => Integer(I32, "mul"),
        Operator::I64x2Mul => Integer(I64, "mul"),
        Operator::V128And => Integer(I64, "and"),
        Operator::V128Or => Integer(I64, "or"),
        Operator::V128Xor => Integer(I64, "xor"),
        Operator::V128AndNot => Lanes::AndNot,
        Operator::V128Not => Lanes::Not,
        Operator::I8x16MinS => Intrinsic(I8, "smin"),
        Operator::I8x16MinU => Intrinsic(I8, "umin"),
        Operator::I8x16MaxS => Intrinsic(I8, "smax"),
        Operator::I8x16MaxU => Intrinsic(I8, "umax"),
        Operator::I16x8MinS => Intrinsic(I16, "smin"),
        Operator::I16x8MinU => Intrinsic(I16, "umin"),
        Operator::I16x8MaxS => Intrinsic(I16, "smax"),
        Operator::I16x8MaxU => Intrinsic(I16, "umax"),
        Operator::I32x4MinS => Intrinsic(I32, "smin"),
        Operator::I32x4MinU => Intrinsic(I32, "umin"),
        Operator::I32x4MaxS => Intrinsic(I32, "smax"),
        Operator::I32x4MaxU => Intrinsic(I32, "umax"),
        _ => return None,
    })
}

/// How many bits a shift shifts is a scalar.
fn shift(operator: &Operator<'_>) -> Option<(Lane, &'static str, u32)> {
    Some(match operator {
        Operator::I16x8Shl => (Lane::I16, "shl", 16),
        Operator::I16x8ShrS => (Lane::I16, "ashr", 16),
        Operator::I16x8ShrU => (Lane::I16, "lshr", 16),
        Operator::I32x4Shl => (Lane::I32, "shl", 32),
        Operator::I32x4ShrS => (Lane::I32, "ashr", 32),
        Operator::I32x4ShrU => (Lane::I32, "lshr", 32),
        Operator::I64x2Shl => (Lane::I64, "shl", 64),
        Operator::I64x2ShrS => (Lane::I64, "ashr", 64),
        Operator::I64x2ShrU => (Lane::I64, "lshr", 64),
        _ => return None,
    })
}

/// A value of a turn. Equal ones are one, but for loads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Node {
    /// An `i32`.
    Linear(Linear),
    /// What another local had when the turn began.
    Local(u32),
    Splat(Lane, u32),
    Bytes([u8; 16]),
    /// By the access's number.
    Load(usize),
    Shuffle([u8; 16], usize, usize),
    Lanes(Lanes, Vec<usize>),
}

#[derive(Debug)]
struct Access {
    address: Linear,
    memarg: MemArg,
    /// What a store stores.
    stored: Option<usize>,
}

/// Two accesses side by side, by their numbers, which are their order in the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    first: usize,
    second: usize,
    store: bool,
}

impl Pair {
    /// Stores take place when both were due, loads when the first is.
    fn when(self) -> usize {
        if self.store {
            self.first.max(self.second)
        } else {
            self.first.min(self.second)
        }
    }
}

/// A value of two vectors.
#[derive(Clone, Debug)]
enum Wide {
    /// Twice the same.
    Local(u32),
    Splat(Lane, u32),
    Bytes([u8; 16], [u8; 16]),
    /// By the pair's number.
    Load(usize),
    /// In each half alone.
    Shuffle([u8; 16], usize, usize),
    Lanes(Lanes, Vec<usize>),
    /// What the local had at the turn's begin, and the first half of what it has at its end in the slot of this number.
    Shifted(usize),
}

/// Two accesses must not be so that `difference + more`, unsigned, is below 31: their 16 bytes would overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    difference: Linear,
    more: i32,
}

/// A local that one turn leaves to the next, of which the wide loop keeps the wide value.
#[derive(Debug)]
struct Carried {
    local: u32,
    left: usize,
}

/// What is known of a turn: symbolic execution of a body, once or twice.
#[derive(Default)]
struct Turn {
    nodes: Vec<Node>,
    known: HashMap<Node, usize>,
    accesses: Vec<Access>,
    /// Locals that were set, and to what.
    set: BTreeMap<u32, usize>,
    /// The loop goes on unless this is 0, at the end of the first time.
    condition: Option<Linear>,
}

/// How a loop becomes a wide one.
struct Plan {
    accesses: Vec<Access>,
    pairs: Vec<Pair>,
    wides: Vec<Wide>,
    /// Of pairs that are stores: what they store.
    stored: Vec<(usize, usize)>,
    carried: Vec<Carried>,
    checks: Vec<Check>,
    condition: Linear,
    /// By how much it changes in a turn of the loop itself.
    step: i32,
    /// Turns of the loop itself in one of the wide one.
    times: i32,
    steps: BTreeMap<u32, i32>,
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

    fn linear(&self, id: usize) -> Option<&Linear> {
        match &self.nodes[id] {
            Node::Linear(linear) => Some(linear),
            _ => None,
        }
    }

    /// Executes the body once. `None` if there is something in it of which this knows nothing.
    fn execute(&mut self, body: &[Operator<'_>], locals: &[ValType]) -> Option<()> {
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
                    let sum = self.linear(a)?.plus(self.linear(b)?, 1);
                    self.node(Node::Linear(sum))
                }
                Operator::I32Sub => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    let difference = self.linear(a)?.plus(self.linear(b)?, -1);
                    self.node(Node::Linear(difference))
                }
                // Only in front of the branch, where different is what is not 0.
                Operator::I32Ne if index + 2 == body.len() => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    let difference = self.linear(a)?.plus(self.linear(b)?, -1);
                    self.node(Node::Linear(difference))
                }
                Operator::BrIf { .. } => {
                    let condition = stack.pop()?;
                    let condition = self.linear(condition)?.clone();
                    self.condition.get_or_insert(condition);
                    return stack.is_empty().then_some(());
                }
                Operator::V128Const { value } => self.node(Node::Bytes(*value.bytes())),
                Operator::V128Load { memarg } => {
                    let address = stack.pop()?;
                    let access = Access {
                        address: self.linear(address)?.clone(),
                        memarg,
                        stored: None,
                    };
                    self.accesses.push(access);
                    self.node(Node::Load(self.accesses.len() - 1))
                }
                Operator::V128Store { memarg } => {
                    let (stored, address) = (stack.pop()?, stack.pop()?);
                    let access = Access {
                        address: self.linear(address)?.clone(),
                        memarg,
                        stored: Some(stored),
                    };
                    self.accesses.push(access);
                    continue;
                }
                Operator::I8x16Shuffle { lanes } => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    self.node(Node::Shuffle(lanes, a, b))
                }
                Operator::F32x4Splat | Operator::F64x2Splat => {
                    let lane = match operator {
                        Operator::F32x4Splat => Lane::F32,
                        _ => Lane::F64,
                    };
                    match self.nodes[stack.pop()?] {
                        Node::Local(local) => self.node(Node::Splat(lane, local)),
                        _ => return None,
                    }
                }
                _ => {
                    if let Some((lane, what, bits)) = shift(operator) {
                        let (by, a) = (stack.pop()?, stack.pop()?);
                        let by = self.linear(by).filter(|by| by.factors.is_empty())?;
                        let by = by.constant.cast_unsigned() % bits;
                        self.node(Node::Lanes(Lanes::Shift(lane, what, by), vec![a]))
                    } else {
                        let lanes = lanes(operator)?;
                        let count = match lanes {
                            Lanes::Negate(_) | Lanes::Not | Lanes::Intrinsic(_, "sqrt" | "fabs") => 1,
                            _ => 2,
                        };
                        let from = stack.len().checked_sub(count)?;
                        let operands = stack.split_off(from);
                        self.node(Node::Lanes(lanes, operands))
                    }
                }
            };
            stack.push(made);
        }
        None
    }

    /// By how much each `i32` that goes on from turn to turn changes in one.
    fn steps(&self) -> BTreeMap<u32, i32> {
        let step = |(local, id): (&u32, &usize)| {
            let change = self.linear(*id)?.plus(&Linear::local(*local), -1);
            change.factors.is_empty().then_some((*local, change.constant))
        };
        self.set.iter().filter_map(step).collect()
    }
}

impl Plan {
    /// For a loop that begins with these operators. `None` if it stays as it is.
    fn new(operators: &[Operator<'_>], locals: &[ValType]) -> Option<Self> {
        let length = operators
            .iter()
            .take(MOST_OPERATORS)
            .position(|operator| matches!(operator, Operator::BrIf { .. } | Operator::End))?;
        let Operator::BrIf { relative_depth: 0 } = operators[length] else {
            return None;
        };
        let body = &operators[..=length];
        if !body
            .iter()
            .any(|operator| matches!(operator, Operator::V128Store { .. }))
        {
            return None;
        }
        let mut turn = Turn::default();
        turn.execute(body, locals)?;
        let steps = turn.steps();
        // As it is, or two turns of it.
        if let Some(plan) = Pairing::pair(&turn, &steps, 1) {
            return Some(plan);
        }
        turn.execute(body, locals)?;
        Pairing::pair(&turn, &steps, 2)
    }
}

/// A plan in the making.
struct Pairing<'a> {
    turn: &'a Turn,
    pairs: Vec<Pair>,
    wides: Vec<Wide>,
    carried: Vec<Carried>,
    /// Two values → their wide one. `None` while that is being found.
    known: HashMap<(usize, usize), Option<usize>>,
}

impl Pairing<'_> {
    fn pair(turn: &Turn, steps: &BTreeMap<u32, i32>, times: i32) -> Option<Plan> {
        let condition = turn.condition.clone()?;
        let step = condition.change(steps);
        if step == i32::MIN || !step.unsigned_abs().is_power_of_two() {
            return None;
        }
        let mut made = Pairing {
            turn,
            pairs: Vec::new(),
            wides: Vec::new(),
            carried: Vec::new(),
            known: HashMap::new(),
        };
        let mut stored = Vec::new();
        let mut done = BTreeSet::new();
        for (index, access) in turn.accesses.iter().enumerate() {
            let Some(first) = access.stored else { continue };
            let other = |(other, second): (usize, &Access)| {
                let next = second.stored.filter(|_| side_by_side(access, second))?;
                (!done.contains(&other)).then_some((other, next))
            };
            if done.contains(&index) {
                continue;
            }
            // Side by side in the one direction or in the other: the lower one begins.
            let Some((other, second)) = turn.accesses.iter().enumerate().find_map(other) else {
                continue;
            };
            done.extend([index, other]);
            let wide = made.wide(first, second)?;
            stored.push((made.pairs.len(), wide));
            made.pairs.push(Pair {
                first: index,
                second: other,
                store: true,
            });
        }
        let covered: BTreeSet<usize> = made
            .pairs
            .iter()
            .flat_map(|pair| [pair.first, pair.second])
            .collect();
        if covered.len() != turn.accesses.len() {
            return None;
        }
        if !made.leaves_all(steps) {
            return None;
        }
        let checks = made.checks(steps)?;
        let accesses = turn
            .accesses
            .iter()
            .map(|access| Access {
                address: access.address.clone(),
                ..*access
            })
            .collect();
        Some(Plan {
            accesses,
            pairs: made.pairs,
            wides: made.wides,
            stored,
            carried: made.carried,
            checks,
            condition,
            step,
            times,
            steps: steps.clone(),
        })
    }

    /// The wide value whose halves these are.
    fn wide(&mut self, first: usize, second: usize) -> Option<usize> {
        if let Some(known) = self.known.get(&(first, second)) {
            return *known;
        }
        self.known.insert((first, second), None);
        let unchanged = |local: &u32| !self.turn.set.contains_key(local);
        let made = match (&self.turn.nodes[first], &self.turn.nodes[second]) {
            (Node::Local(a), Node::Local(b)) if a == b && unchanged(a) => Wide::Local(*a),
            (Node::Splat(lane, a), Node::Splat(other, b)) if (lane, a) == (other, b) && unchanged(a) => {
                Wide::Splat(*lane, *a)
            }
            (Node::Bytes(a), Node::Bytes(b)) => Wide::Bytes(*a, *b),
            (Node::Load(a), Node::Load(b))
                if side_by_side(&self.turn.accesses[*a], &self.turn.accesses[*b]) =>
            {
                self.pairs.push(Pair {
                    first: *a,
                    second: *b,
                    store: false,
                });
                Wide::Load(self.pairs.len() - 1)
            }
            (Node::Shuffle(mask, a, b), Node::Shuffle(other, c, d)) if mask == other => {
                Wide::Shuffle(*mask, self.wide(*a, *c)?, self.wide(*b, *d)?)
            }
            (Node::Lanes(lanes, a), Node::Lanes(other, b)) if lanes == other => {
                let operands = a.iter().zip(b).map(|(a, b)| self.wide(*a, *b));
                Wide::Lanes(*lanes, operands.collect::<Option<_>>()?)
            }
            // What the turn before has left, and the first half of what this one leaves.
            (Node::Local(local), _) => {
                let left = self.wide(second, *self.turn.set.get(local)?)?;
                let slot = self.carried.len();
                self.carried.push(Carried { local: *local, left });
                Wide::Shifted(slot)
            }
            _ => return None,
        };
        let id = self.wides.len();
        self.wides.push(made);
        self.known.insert((first, second), Some(id));
        Some(id)
    }

    /// Whether every local that a turn begins with, and that turns change, is one that the wide loop changes, too.
    fn leaves_all(&self, steps: &BTreeMap<u32, i32>) -> bool {
        let changed = |local: &u32| self.turn.set.contains_key(local);
        self.turn.nodes.iter().all(|node| match node {
            Node::Linear(linear) => linear
                .factors
                .keys()
                .all(|local| !changed(local) || steps.contains_key(local)),
            Node::Local(local) => {
                !changed(local) || self.carried.iter().any(|carried| carried.local == *local)
            }
            Node::Splat(_, local) => !changed(local),
            _ => true,
        })
    }

    /// What has to be asked about each two accesses that change places. `None` if the answer is known, and is no.
    fn checks(&self, steps: &BTreeMap<u32, i32>) -> Option<Vec<Check>> {
        let mut checks = Vec::new();
        for store in self.pairs.iter().filter(|pair| pair.store) {
            for other in &self.pairs {
                for (i, mine) in [(0, store.first), (1, store.second)] {
                    for (j, its) in [(0, other.first), (1, other.second)] {
                        if mine == its || (mine < its) == (store.when() < other.when()) {
                            continue;
                        }
                        if store.when() == other.when() {
                            // The two halves of one store.
                            continue;
                        }
                        let (at, from) = (&self.turn.accesses[store.first], &self.turn.accesses[other.first]);
                        let mut difference = at.address.plus(&from.address, -1);
                        if difference.change(steps) != 0 {
                            return None;
                        }
                        let offsets = at.memarg.offset.cast_signed() - from.memarg.offset.cast_signed();
                        difference.constant = difference.constant.wrapping_add(i32::try_from(offsets).ok()?);
                        let more = BYTES * (i - j) + BYTES - 1;
                        if difference.factors.is_empty() {
                            if difference.constant.wrapping_add(more).cast_unsigned() < 31 {
                                return None;
                            }
                            continue;
                        }
                        let check = Check { difference, more };
                        if !checks.contains(&check) {
                            checks.push(check);
                        }
                    }
                }
            }
        }
        Some(checks)
    }
}

/// Whether the second access begins where the first ends. Not by an address that has wrapped in between, or the first is outside.
fn side_by_side(first: &Access, second: &Access) -> bool {
    let apart = second.address.plus(&first.address, -1);
    let offsets = second.memarg.offset.cast_signed() - first.memarg.offset.cast_signed();
    apart.factors.is_empty() && apart.constant >= 0 && i64::from(apart.constant) + offsets == i64::from(BYTES)
}

impl Function<'_, '_> {
    /// A loop begins with these operators: puts a wide one in front of it, if there can be one.
    pub(super) fn widen_loop(&mut self, operators: &[Operator<'_>]) {
        let fits = matches!(self.settings.bounds, Bounds::Guard | Bounds::None)
            && self.settings.target.has_wide_vectors()
            && self.module.has_signed_addresses();
        if !fits {
            return;
        }
        let Some(plan) = Plan::new(operators, self.local_types()) else {
            return;
        };
        let far = |access: &Access| access.memarg.offset + 32 > super::GUARD;
        let falls = |access: &Access| access.memarg.offset > 0 && access.address.change(&plan.steps) < 0;
        if plan.accesses.iter().any(|access| far(access) || falls(access)) {
            return;
        }
        self.settle();
        let (wide, narrow) = (self.label(), self.label());
        // The turns that the loop itself makes after its first: to where the condition is 0.
        let begin = self.linear(&plan.condition);
        let distance = if plan.step < 0 {
            begin
        } else {
            self.define(format_args!("sub i32 0, {begin}"))
        };
        let size = plan.step.unsigned_abs();
        let turns = self.define(format_args!(
            "lshr i32 {distance}, {}",
            size.trailing_zeros() + plan.times.cast_unsigned() - 1
        ));
        let mut good = self.define(format_args!("icmp ne i32 {turns}, 0"));
        let mut and = |text: &mut Self, also: Text| {
            good = text.define(format_args!("and i1 {good}, {also}"));
        };
        if size > 1 {
            let rest = self.define(format_args!("and i32 {distance}, {}", size - 1));
            let also = self.define(format_args!("icmp eq i32 {rest}, 0"));
            and(self, also);
        }
        for check in &plan.checks {
            let difference = self.linear(&check.difference);
            let sum = self.define(format_args!("add i32 {difference}, {}", check.more));
            let also = self.define(format_args!("icmp uge i32 {sum}, 31"));
            and(self, also);
        }
        // Where each pair begins, in 64 bits, and by how much it goes on.
        let mut begins = Vec::new();
        for pair in &plan.pairs {
            let access = &plan.accesses[pair.first];
            let address = self.linear(&access.address);
            if access.memarg.offset > 0 {
                let also = self.define(format_args!("icmp sge i32 {address}, 0"));
                and(self, also);
            }
            let wide = self.define(format_args!("sext i32 {address} to i64"));
            let begin = self.define(format_args!("add nsw i64 {wide}, {}", access.memarg.offset));
            let step = i64::from(access.address.change(&plan.steps)) * i64::from(plan.times);
            begins.push((begin, step));
        }
        self.line(format_args!(
            "br i1 {good}, label %b{wide}, label %b{narrow}, !prof !5"
        ));
        self.place(wide);
        self.wide_loop(&plan, &turns, &begins);
        self.line(format_args!("br label %b{narrow}"));
        self.place(narrow);
    }

    fn linear(&mut self, linear: &Linear) -> Text {
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

    fn wide_loop(&mut self, plan: &Plan, turns: &Text, begins: &[(Text, i64)]) {
        let turns = self.define(format_args!("zext i32 {turns} to i64"));
        let counter = self.slot("i64");
        self.line(format_args!("store i64 0, ptr {counter}"));
        let mut slots = Vec::new();
        for carried in &plan.carried {
            let slot = self.slot("<32 x i8>");
            let value = self.define(format_args!("load <16 x i8>, ptr %l{}", carried.local));
            let twice = self.both_halves(&value, &value);
            self.line(format_args!("store <32 x i8> {twice}, ptr {slot}"));
            slots.push(slot);
        }
        let body = self.label();
        self.line(format_args!("br label %b{body}"));
        self.place(body);
        let turn = self.define(format_args!("load i64, ptr {counter}"));
        let mut values: HashMap<usize, Text> = HashMap::new();
        let mut order: Vec<usize> = (0..plan.pairs.len()).collect();
        order.sort_by_key(|pair| plan.pairs[*pair].when());
        for pair in order {
            let (begin, step) = &begins[pair];
            let far = self.define(format_args!("mul nsw i64 {turn}, {step}"));
            let position = self.define(format_args!("add nsw i64 {begin}, {far}"));
            let base = self.base();
            let address = self.define(format_args!(
                "getelementptr inbounds i8, ptr {base}, i64 {position}"
            ));
            match plan.stored.iter().find(|(stored, _)| *stored == pair) {
                Some((_, value)) => {
                    let value = self.wide_value(plan, *value, &mut values, &slots);
                    self.line(format_args!("store <32 x i8> {value}, ptr {address}, {MEMORY}"));
                }
                None => {
                    let text = self.define(format_args!("load <32 x i8>, ptr {address}, {MEMORY}"));
                    let load = |wide: &Wide| matches!(wide, Wide::Load(number) if *number == pair);
                    if let Some(id) = plan.wides.iter().position(load) {
                        values.insert(id, text);
                    }
                }
            }
        }
        for (carried, slot) in plan.carried.iter().zip(&slots) {
            let left = self.wide_value(plan, carried.left, &mut values, &slots);
            self.line(format_args!("store <32 x i8> {left}, ptr {slot}"));
            let second = self.part(&left, 16);
            self.line(format_args!("store <16 x i8> {second}, ptr %l{}", carried.local));
        }
        for (local, step) in &plan.steps {
            let value = self.define(format_args!("load i32, ptr %l{local}"));
            let next = self.define(format_args!("add i32 {value}, {}", step.wrapping_mul(plan.times)));
            self.line(format_args!("store i32 {next}, ptr %l{local}"));
        }
        let next = self.define(format_args!("add nuw nsw i64 {turn}, 1"));
        self.line(format_args!("store i64 {next}, ptr {counter}"));
        let more = self.define(format_args!("icmp ult i64 {next}, {turns}"));
        let end = self.label();
        self.line(format_args!("br i1 {more}, label %b{body}, label %b{end}"));
        self.place(end);
    }

    /// 16 bytes of a wide value.
    fn part(&mut self, wide: &Text, from: u32) -> Text {
        let lanes = mask(from..from + 16);
        self.define(format_args!(
            "shufflevector <32 x i8> {wide}, <32 x i8> poison, {lanes}"
        ))
    }

    /// A wide value of two halves.
    fn both_halves(&mut self, first: &Text, second: &Text) -> Text {
        let lanes = mask(0..32);
        self.define(format_args!(
            "shufflevector <16 x i8> {first}, <16 x i8> {second}, {lanes}"
        ))
    }

    fn wide_value(
        &mut self,
        plan: &Plan,
        id: usize,
        values: &mut HashMap<usize, Text>,
        slots: &[Text],
    ) -> Text {
        if let Some(text) = values.get(&id) {
            return text.clone();
        }
        let text = match &plan.wides[id] {
            Wide::Local(local) => {
                let value = self.define(format_args!("load <16 x i8>, ptr %l{local}"));
                self.both_halves(&value, &value)
            }
            Wide::Splat(lane, local) => {
                let (kind, lanes, _) = lane.wide();
                let vector = lane.vector();
                let value = self.define(format_args!("load {kind}, ptr %l{local}"));
                let first = self.define(format_args!(
                    "insertelement {vector} poison, {kind} {value}, i32 0"
                ));
                let all = self.define(format_args!(
                    "shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer"
                ));
                self.define(format_args!("bitcast {vector} {all} to <32 x i8>"))
            }
            Wide::Bytes(first, second) => {
                let bytes: Vec<_> = first
                    .iter()
                    .chain(second)
                    .map(|byte| format!("i8 {}", byte.cast_signed()))
                    .collect();
                Text::Constant(format!("<{}>", bytes.join(", ")))
            }
            // Made when its time came, which was before anything is stored that needs it.
            Wide::Load(_) => Text::Constant("poison".into()),
            Wide::Shuffle(shuffled, a, b) => {
                let a = self.wide_value(plan, *a, values, slots);
                let b = self.wide_value(plan, *b, values, slots);
                let lane = |half: u32, lane: u8| match lane {
                    0..16 => 16 * half + u32::from(lane),
                    _ => 32 + 16 * half + u32::from(lane) - 16,
                };
                let lanes = (0..2).flat_map(|half| shuffled.iter().map(move |one| lane(half, *one)));
                let lanes = mask(lanes);
                self.define(format_args!(
                    "shufflevector <32 x i8> {a}, <32 x i8> {b}, {lanes}"
                ))
            }
            Wide::Shifted(slot) => {
                let left = plan.carried[*slot].left;
                let left = self.wide_value(plan, left, values, slots);
                let before = self.define(format_args!("load <32 x i8>, ptr {}", slots[*slot]));
                let lanes = mask(16..48);
                self.define(format_args!(
                    "shufflevector <32 x i8> {before}, <32 x i8> {left}, {lanes}"
                ))
            }
            Wide::Lanes(lanes, operands) => {
                let operands: Vec<_> = operands
                    .iter()
                    .map(|id| self.wide_value(plan, *id, values, slots))
                    .collect();
                self.wide_lanes(*lanes, &operands)
            }
        };
        values.insert(id, text.clone());
        text
    }

    fn wide_lanes(&mut self, lanes: Lanes, operands: &[Text]) -> Text {
        let lane = match lanes {
            Lanes::Integer(lane, _)
            | Lanes::Float(lane, _)
            | Lanes::Intrinsic(lane, _)
            | Lanes::Negate(lane)
            | Lanes::Shift(lane, ..) => lane,
            Lanes::Not | Lanes::AndNot => Lane::I64,
        };
        let vector = lane.vector();
        let (kind, count, letters) = lane.wide();
        let mut shaped = Vec::new();
        for operand in operands {
            let mut text = self.define(format_args!("bitcast <32 x i8> {operand} to {vector}"));
            // As in narrow ones, LLVM shall not see constants that may be neutral.
            let hidden = match (lanes, operand) {
                (Lanes::Float(..), Text::Constant(bytes)) => has_neutral(bytes, kind == "float"),
                _ => false,
            };
            if hidden {
                let register = self.settings.target.vector_register();
                text = self.define(format_args!(
                    "call {vector} asm \"\", \"={register},0\"({vector} {text})"
                ));
            }
            shaped.push(text);
        }
        let all = |value: &str| {
            let lanes = vec![format!("{kind} {value}"); count as usize];
            format!("<{}>", lanes.join(", "))
        };
        let text = match lanes {
            Lanes::Integer(_, what) | Lanes::Float(_, what) => {
                self.define(format_args!("{what} {vector} {}, {}", shaped[0], shaped[1]))
            }
            Lanes::Intrinsic(_, name) => {
                let arguments: Vec<_> = shaped.iter().map(|text| format!("{vector} {text}")).collect();
                self.define(format_args!(
                    "call {vector} @llvm.{name}.{letters}({})",
                    arguments.join(", ")
                ))
            }
            Lanes::Negate(_) => self.define(format_args!("fneg {vector} {}", shaped[0])),
            Lanes::Not => self.define(format_args!("xor {vector} {}, {}", shaped[0], all("-1"))),
            Lanes::AndNot => {
                let not = self.define(format_args!("xor {vector} {}, {}", shaped[1], all("-1")));
                self.define(format_args!("and {vector} {}, {not}", shaped[0]))
            }
            Lanes::Shift(_, what, by) => self.define(format_args!(
                "{what} {vector} {}, {}",
                shaped[0],
                all(&by.to_string())
            )),
        };
        self.define(format_args!("bitcast {vector} {text} to <32 x i8>"))
    }
}
