//! Which assignments of locals are certain to matter.
//!
//! A load that traps must happen, and LLVM deletes one whose value nobody uses, or moves it to the only branch that uses it. Within a straight piece of
//! code it is seen at once whether a loaded value ends in something that stays, such as a store. What ends in a local stays if the local does: if
//! *every* way from there on leads to such a use before the local is assigned anew. Loops that add up are the case that matters: a load that
//! is forced there (see [`Function::force`](super::function::Function)) keeps them from being vectorised.
//!
//! So a function with loops is translated twice. The first time, whose text is thrown away, makes this record: its straight pieces, where
//! each leads, and in what order locals are read and assigned in it. Then it is asked backwards, from piece to piece until nothing changes any more,
//! what is certain to be used from each piece's begin on. A trap is a way that uses nothing, and so is a turn of a loop that nothing leaves.

use std::collections::{BTreeSet, HashMap, HashSet};

/// A local is read into this register, or assigned.
#[derive(Debug)]
enum Event {
    Read {
        register: u32,
        local: u32,
    },
    Assign {
        local: u32,
        /// What it is computed from, as far as that was read in the same piece.
        from: Vec<u32>,
        /// Which of the function's operators this is.
        operator: usize,
        /// A load is in it that this assignment would have to keep.
        loaded: bool,
    },
}

/// A straight piece of code.
#[derive(Debug, Default)]
struct Piece {
    events: Vec<Event>,
    /// Labels.
    leads_to: Vec<u32>,
}

/// What a function does with its locals.
#[derive(Debug)]
pub(super) struct Record {
    pieces: Vec<Piece>,
    /// Where each label's piece is.
    labels: HashMap<u32, usize>,
    /// Into which register a local was read in this piece, since it was assigned.
    read: HashMap<u32, u32>,
    /// Registers whose values end in something that stays,
    used: HashSet<u32>,
    /// or lose what LLVM could then leave out.
    lost: HashSet<u32>,
}

impl Record {
    pub(super) fn new() -> Self {
        Self {
            pieces: vec![Piece::default()],
            labels: HashMap::new(),
            read: HashMap::new(),
            used: HashSet::new(),
            lost: HashSet::new(),
        }
    }

    fn last(&mut self) -> Option<&mut Piece> {
        self.pieces.last_mut()
    }

    /// A label is placed, and a piece begins.
    pub(super) fn begin(&mut self, label: u32) {
        self.read.clear();
        self.labels.insert(label, self.pieces.len());
        self.pieces.push(Piece::default());
    }

    /// A line of the function's text: if it ends the piece, it names where that leads.
    pub(super) fn line(&mut self, line: &str) {
        if line.starts_with("br ") || line.starts_with("switch ") {
            let labels = line.split("label %b").skip(1).filter_map(|rest| {
                let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                rest[..end].parse().ok()
            });
            let labels: Vec<u32> = labels.collect();
            if let Some(piece) = self.last() {
                piece.leads_to.extend(labels);
            }
        }
    }

    /// The register by which this is known: the same for all that read the same value.
    pub(super) fn read(&mut self, register: u32, local: u32) -> u32 {
        if let Some(known) = self.read.get(&local) {
            return *known;
        }
        self.read.insert(local, register);
        if let Some(piece) = self.last() {
            piece.events.push(Event::Read { register, local });
        }
        register
    }

    /// What was read so far is read anew from here on.
    pub(super) fn forget(&mut self) {
        self.read.clear();
    }

    pub(super) fn assign(&mut self, local: u32, from: &[u32], operator: usize, loaded: bool) {
        self.read.remove(&local);
        if let Some(piece) = self.last() {
            piece.events.push(Event::Assign {
                local,
                from: from.to_vec(),
                operator,
                loaded,
            });
        }
    }

    pub(super) fn used(&mut self, registers: &[u32]) {
        self.used.extend(registers);
    }

    pub(super) fn lost(&mut self, registers: &[u32]) {
        self.lost.extend(registers);
    }

    /// The operators that assign what is loaded to a local, of which it is not certain that it matters.
    pub(super) fn uncertain(&self, locals: usize) -> BTreeSet<usize> {
        let leads_to: Vec<Vec<Option<usize>>> = self
            .pieces
            .iter()
            .map(|piece| {
                // Code that traps has no piece.
                let find = |label| self.labels.get(label).copied();
                piece.leads_to.iter().map(find).collect()
            })
            .collect();
        let ends = ends(&leads_to);
        let mut begins: Vec<Locals> = ends.iter().map(|ends| Locals::new(locals, *ends)).collect();
        let mut uncertain = BTreeSet::new();
        loop {
            let mut changed = false;
            uncertain.clear();
            for (index, piece) in self.pieces.iter().enumerate().rev() {
                let mut certain = Locals::new(locals, ends[index] && !leads_to[index].is_empty());
                for next in &leads_to[index] {
                    match next {
                        Some(next) => certain.keep(&begins[*next]),
                        None => certain = Locals::new(locals, false),
                    }
                }
                self.go_back(piece, &mut certain, &mut uncertain);
                if begins[index] != certain {
                    begins[index] = certain;
                    changed = true;
                }
            }
            if !changed {
                return uncertain;
            }
        }
    }

    /// From what is certain at a piece's end to what is at its begin.
    fn go_back(&self, piece: &Piece, certain: &mut Locals, uncertain: &mut BTreeSet<usize>) {
        let mut passed_on = HashSet::<u32>::new();
        for event in piece.events.iter().rev() {
            match event {
                Event::Read { register, local } => {
                    let used = self.used.contains(register) || passed_on.contains(register);
                    if used && !self.lost.contains(register) {
                        certain.insert(*local);
                    }
                }
                Event::Assign {
                    local,
                    from,
                    operator,
                    loaded,
                } => {
                    if certain.remove(*local) {
                        passed_on.extend(from);
                    } else if *loaded {
                        uncertain.insert(*operator);
                    }
                }
            }
        }
    }
}

/// Of each piece, whether any way from it ends: where the function does, or in a trap.
fn ends(leads_to: &[Vec<Option<usize>>]) -> Vec<bool> {
    let mut ends = vec![false; leads_to.len()];
    loop {
        let mut changed = false;
        for (index, next) in leads_to.iter().enumerate().rev() {
            let one = |next: &Option<usize>| next.is_none_or(|next| ends[next]);
            if !ends[index] && (next.is_empty() || next.iter().any(one)) {
                ends[index] = true;
                changed = true;
            }
        }
        if !changed {
            return ends;
        }
    }
}

/// A set of locals.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Locals(Vec<u64>);

impl Locals {
    fn new(count: usize, all: bool) -> Self {
        Self(vec![if all { u64::MAX } else { 0 }; count.div_ceil(64)])
    }

    fn insert(&mut self, local: u32) {
        self.0[local as usize / 64] |= 1 << (local % 64);
    }

    /// Whether it was there.
    fn remove(&mut self, local: u32) -> bool {
        let (word, bit) = (&mut self.0[local as usize / 64], 1 << (local % 64));
        let there = *word & bit != 0;
        *word &= !bit;
        there
    }

    fn keep(&mut self, others: &Self) {
        for (word, other) in self.0.iter_mut().zip(&others.0) {
            *word &= other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: u32 = 0;
    const OTHER: u32 = 1;
    /// Where a load is assigned.
    const HERE: usize = 7;

    /// A loop at label 1 that reads the sum, adds a load, assigns it, and goes on at label 2.
    fn adding() -> Record {
        let mut record = Record::new();
        record.line("br label %b1");
        record.begin(1);
        let sum = record.read(10, SUM);
        record.assign(SUM, &[sum, 11], HERE, true);
        record.line("br i1 %v12, label %b1, label %b2, !prof !5");
        record.begin(2);
        record
    }

    fn use_of(record: &mut Record, register: u32, local: u32) {
        let read = record.read(register, local);
        record.used(&[read]);
    }

    #[test]
    fn a_sum_matters_that_is_used_after_its_loop() {
        let mut record = adding();
        use_of(&mut record, 20, SUM);
        assert!(record.uncertain(2).is_empty());
    }

    #[test]
    fn it_does_by_way_of_another_local() {
        let mut record = adding();
        let sum = record.read(20, SUM);
        record.assign(OTHER, &[sum], 8, false);
        record.line("br label %b3");
        record.begin(3);
        use_of(&mut record, 30, OTHER);
        assert!(record.uncertain(2).is_empty());
    }

    #[test]
    fn it_does_not_where_nobody_uses_it() {
        for drop in [false, true] {
            let mut record = adding();
            if drop {
                record.read(20, SUM);
            }
            assert_eq!(record.uncertain(2), [HERE].into());
        }
    }

    #[test]
    fn it_does_not_if_one_way_leads_elsewhere() {
        // To code that traps, to a use that leaves some of it out, and to a new value.
        let ways: [fn(&mut Record); 3] = [
            |record| {
                record.line("br i1 %v13, label %b9, label %b3, !prof !2");
                record.begin(3);
                use_of(record, 20, SUM);
            },
            |record| {
                let read = record.read(20, SUM);
                record.lost(&[read]);
                record.used(&[read]);
            },
            |record| {
                record.line("br i1 %v13, label %b4, label %b3");
                record.begin(3);
                record.assign(SUM, &[], 8, false);
                record.line("br label %b4");
                record.begin(4);
                use_of(record, 20, SUM);
            },
        ];
        for (number, way) in ways.into_iter().enumerate() {
            let mut record = adding();
            way(&mut record);
            assert_eq!(record.uncertain(2), [HERE].into(), "way {number}");
        }
    }

    #[test]
    fn it_does_not_in_a_loop_that_nothing_leaves() {
        let mut record = adding();
        record.line("br label %b1");
        assert_eq!(record.uncertain(2), [HERE].into());
    }
}
