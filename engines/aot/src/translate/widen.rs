//! Loops over vectors of 128 bits, in vectors of 256.
//!
//! Compilers to WebAssembly make loops over vectors of 128 bits, because it has no others. LLVM vectorises scalars only, so such a loop would
//! stay as narrow as it is. Here a loop of which it is known how often it turns ([`Counted`]) is understood as a whole ([`Plan`]): two vectors that lie
//! side by side in memory come about in the same way. Either its body has both already, or its next turn has the other. Then there is a second
//! loop in front of it, whose accesses and instructions are those of two vectors at once. Whether that is the same is asked before it begins, in a few
//! instructions, and the loop itself does the turns that are left: all of them if it is not the same, one or two otherwise. So what its locals have
//! at its end comes from it.
//!
//! It is the same, because:
//!
//! - The second loop makes fewer turns than the loop itself would: it is known how many those are, and the last is left.
//! - Accesses change places within a turn only with such as are elsewhere ([`Check`]). How far two addresses are from each other is the same in all turns if they
//!   move by equal steps; if not, they must not meet in any.
//! - Where a memory's size is compared beforehand with where all accesses lead ([`super::counted`]), none traps. In `guard` mode one of 32 bytes traps
//!   exactly if one of the two does that it is made of: it begins where the lower one does, and ends where the higher one does. Those are side by side
//!   as addresses, too. If the lower one is inside, it is below 2 GiB, and 16 bytes on nothing wraps.
//! - In `guard` mode it is left open which stores around a trap have happened.
//! - Whatever else a turn does has no effect but on locals, and what a turn finds in locals goes on as it would have.

use super::{
    counted::{Access, All, Counted, Linear, Node, Turn},
    function::{Function, Text},
    memory::MEMORY,
    simd::{has_neutral, mask},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use wasmparser::Operator;

/// Of the narrow vectors.
const BYTES: i32 = 16;

/// An instruction whose lanes have nothing to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lanes {
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
pub(super) enum Lane {
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

/// With the number of its operands.
pub(super) fn lanes(operator: &Operator<'_>) -> Option<(Lanes, usize)> {
    let lanes = lanes_of(operator)?;
    let one = matches!(
        lanes,
        Lanes::Negate(_) | Lanes::Not | Lanes::Intrinsic(_, "sqrt" | "fabs")
    );
    Some((lanes, if one { 1 } else { 2 }))
}

fn lanes_of(operator: &Operator<'_>) -> Option<Lanes> {
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
pub(super) fn shift(operator: &Operator<'_>) -> Option<(Lane, &'static str, u32)> {
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

/// Lanes that are all the same.
pub(super) fn splat(operator: &Operator<'_>) -> Option<Lane> {
    match operator {
        Operator::F32x4Splat => Some(Lane::F32),
        Operator::F64x2Splat => Some(Lane::F64),
        _ => None,
    }
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
    /// The second half first.
    Swapped(usize),
    /// In each half alone.
    Shuffle([u8; 16], usize, usize),
    Lanes(Lanes, Vec<usize>),
    /// What the local had at the turn's begin, and the first half of what it has at its end in the slot of this number.
    Shifted(usize),
}

/// What has to be true of two accesses that change places.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Check {
    /// They go on by the same: this difference and so much more, unsigned, is not below 31, or their 16 bytes would overlap.
    Apart(Linear, i32),
    /// They do not: these accesses of the loop itself nowhere meet, in any two turns.
    Elsewhere(usize, usize),
}

/// A local that one turn leaves to the next, of which the wide loop keeps the wide value.
#[derive(Debug)]
struct Carried {
    local: u32,
    left: usize,
}

/// How a loop becomes a wide one.
pub(super) struct Plan {
    pairs: Vec<Pair>,
    /// Where each pair begins: as this access of the loop itself, so many turns later.
    begins: Vec<(usize, i64)>,
    /// By how much it goes on in a turn.
    changes: Vec<i64>,
    /// The same of each access of the loop itself.
    loop_changes: Vec<i64>,
    wides: Vec<Wide>,
    /// Of pairs that are stores: what they store.
    stored: Vec<(usize, usize)>,
    carried: Vec<Carried>,
    checks: Vec<Check>,
    /// Turns of the loop itself in one of the wide one.
    times: i32,
    steps: BTreeMap<u32, i32>,
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
    fn pair(turn: &Turn, counted: &Counted, steps: &BTreeMap<u32, i32>, times: i32) -> Option<Plan> {
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
        let checks = made.checks(counted.accesses.len(), steps)?;
        let count = counted.accesses.len();
        let begins: Vec<_> = made
            .pairs
            .iter()
            .map(|pair| (pair.first % count, (pair.first / count) as i64))
            .collect();
        let changes = begins
            .iter()
            .map(|(access, _)| counted.accesses[*access].as_ref().map(|(_, change)| *change));
        let all = counted.accesses.iter();
        let loop_changes = all.map(|access| access.as_ref().map(|(_, change)| *change));
        Some(Plan {
            loop_changes: loop_changes.collect::<Option<_>>()?,
            changes: changes.collect::<Option<_>>()?,
            begins,
            pairs: made.pairs,
            wides: made.wides,
            stored,
            carried: made.carried,
            checks,
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
            // Of addresses that go down: the other way round in memory.
            (Node::Load(a), Node::Load(b))
                if side_by_side(&self.turn.accesses[*b], &self.turn.accesses[*a]) =>
            {
                Wide::Swapped(self.wide(second, first)?)
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
            Node::Linear(linear) => self.turn.goes_on(linear, steps),
            Node::Local(local) => {
                !changed(local) || self.carried.iter().any(|carried| carried.local == *local)
            }
            Node::Splat(_, local) => !changed(local),
            _ => true,
        })
    }

    /// What has to be asked about each two accesses that change places. `None` if the answer is known, and is no.
    fn checks(&self, count: usize, steps: &BTreeMap<u32, i32>) -> Option<Vec<Check>> {
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
                        let check = match self.check(store.first, other.first, j - i, steps)? {
                            Some(Check::Elsewhere(..)) => Check::Elsewhere(mine % count, its % count),
                            Some(check) => check,
                            None => continue,
                        };
                        if !checks.contains(&check) {
                            checks.push(check);
                        }
                    }
                }
            }
        }
        Some(checks)
    }

    /// Of the first accesses of two pairs, of which one's first or second 16 bytes change places with the other's, so much farther on.
    /// `Some(None)` if nothing has to be asked, `None` if the answer is known and is no.
    fn check(
        &self,
        store: usize,
        other: usize,
        farther: i32,
        steps: &BTreeMap<u32, i32>,
    ) -> Option<Option<Check>> {
        let (at, from) = (&self.turn.accesses[store], &self.turn.accesses[other]);
        let mut difference = at.address.as_ref()?.plus(from.address.as_ref()?, -1);
        if difference.change(steps) != 0 {
            return Some(Some(Check::Elsewhere(store, other)));
        }
        let offsets = at.offset.cast_signed() - from.offset.cast_signed();
        difference.constant = difference.constant.wrapping_add(i32::try_from(offsets).ok()?);
        let more = BYTES - 1 - BYTES * farther;
        if difference.factors.is_empty() {
            let overlaps = difference.constant.wrapping_add(more).cast_unsigned() < 31;
            return (!overlaps).then_some(None);
        }
        Some(Some(Check::Apart(difference, more)))
    }
}

/// Whether the second access begins where the first ends. Not by an address that has wrapped in between, or the first is outside.
fn side_by_side(first: &Access, second: &Access) -> bool {
    let (Some(from), Some(to)) = (&first.address, &second.address) else {
        return false;
    };
    let apart = to.plus(from, -1);
    let offsets = second.offset.cast_signed() - first.offset.cast_signed();
    apart.factors.is_empty() && apart.constant >= 0 && i64::from(apart.constant) + offsets == i64::from(BYTES)
}

impl Function<'_, '_> {
    /// How a loop becomes a wide one, if it does.
    pub(super) fn widening(
        &self,
        body: &[Operator<'_>],
        turn: &Turn,
        counted: &Counted,
        steps: &BTreeMap<u32, i32>,
    ) -> Option<Plan> {
        let fits = self.settings.target.has_wide_vectors()
            && !turn.does_more
            && turn.accesses.iter().any(|access| access.stored.is_some())
            && counted.accesses.iter().all(Option::is_some);
        if !fits {
            return None;
        }
        // As it is, or two turns of it.
        if let Some(plan) = Pairing::pair(turn, counted, steps, 1) {
            return Some(plan);
        }
        let mut twice = Turn::default();
        for _ in 0..2 {
            twice.execute(body, self.local_types())?;
        }
        Pairing::pair(&twice, counted, steps, 2)
    }

    /// Puts the wide loop in front of the loop itself, which begins at this label. The accesses begin there; it turns as often after its
    /// first, if all of that is true.
    pub(super) fn widen_loop(
        &mut self,
        plan: &Plan,
        begins: &[Option<Text>],
        last: &Text,
        mut all: All,
        narrow: u32,
    ) {
        let turns = match plan.times {
            1 => last.clone(),
            _ => self.define(format_args!("lshr i64 {last}, 1")),
        };
        let some = self.define(format_args!("icmp ne i64 {turns}, 0"));
        all.and(self, some);
        for check in &plan.checks {
            let apart = match check {
                Check::Apart(difference, more) => {
                    let difference = self.linear(difference);
                    let sum = self.define(format_args!("add i32 {difference}, {more}"));
                    self.define(format_args!("icmp uge i32 {sum}, 31"))
                }
                Check::Elsewhere(one, other) => {
                    let (from, to) = self.extent(plan, begins, last, *one);
                    let (its, end) = self.extent(plan, begins, last, *other);
                    let below = self.define(format_args!("icmp sle i64 {to}, {its}"));
                    let above = self.define(format_args!("icmp sle i64 {end}, {from}"));
                    self.define(format_args!("or i1 {below}, {above}"))
                }
            };
            all.and(self, apart);
        }
        let mut places = Vec::new();
        for ((access, turn), change) in plan.begins.iter().zip(&plan.changes) {
            let begin = begins[*access]
                .clone()
                .unwrap_or_else(|| Text::Constant("poison".into()));
            places.push(match turn * change {
                0 => begin,
                later => self.define(format_args!("add nsw i64 {begin}, {later}")),
            });
        }
        let (wide, good) = (self.label(), all.text());
        self.line(format_args!(
            "br i1 {good}, label %b{wide}, label %b{narrow}, !prof !5"
        ));
        self.place(wide);
        self.wide_loop(plan, &turns, &places);
        self.line(format_args!("br label %b{narrow}"));
        self.place(narrow);
    }

    /// Where an access of the loop itself is in all its turns: from here to there.
    fn extent(&mut self, plan: &Plan, begins: &[Option<Text>], last: &Text, access: usize) -> (Text, Text) {
        let begin = begins[access]
            .clone()
            .unwrap_or_else(|| Text::Constant("poison".into()));
        let change = plan.loop_changes[access];
        let far = self.position(&begin, last, change);
        let (low, high) = if change < 0 { (far, begin) } else { (begin, far) };
        let end = self.define(format_args!("add nsw i64 {high}, {BYTES}"));
        (low, end)
    }

    fn wide_loop(&mut self, plan: &Plan, turns: &Text, places: &[Text]) {
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
            let change = plan.changes[pair] * i64::from(plan.times);
            let position = self.position(&places[pair], &turn, change);
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
            Wide::Swapped(of) => {
                let of = self.wide_value(plan, *of, values, slots);
                let lanes = mask((16..32).chain(0..16));
                self.define(format_args!(
                    "shufflevector <32 x i8> {of}, <32 x i8> poison, {lanes}"
                ))
            }
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
