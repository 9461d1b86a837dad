//! See [`Room`].

use std::{collections::BTreeMap, ops::Range};

/// Places begin at multiples of it and are multiples of it, which is a line of the processor's cache.
pub const STEP: u64 = 64;

/// What of one half of a channel's bulk is free. The lowest is given first, so that pages that were touched are used again.
#[derive(Debug)]
pub struct Room {
    /// By its beginning, where each free part ends. No two of them touch.
    free: BTreeMap<u64, u64>,
    /// Bytes of all of them.
    bytes: u64,
    /// A part of all that there is, kept for what must go on: see [`Room::spare`].
    reserve: u64,
}

/// How much of it that is, one of so many parts.
const RESERVE: u64 = 4;

impl Room {
    /// All of it is free.
    pub fn new(range: Range<usize>) -> Self {
        let start = (range.start as u64).next_multiple_of(STEP);
        let end = range.end as u64 / STEP * STEP;
        let bytes = end.saturating_sub(start);
        Self {
            free: (start < end).then_some((start, end)).into_iter().collect(),
            bytes,
            reserve: bytes / RESERVE,
        }
    }

    /// Bytes that are free for what has not begun. The reserve is for what has: who holds something, and waits for room to end, does not wait for those
    /// who have taken room and wait for what it holds.
    pub fn spare(&self) -> u64 {
        self.bytes.saturating_sub(self.reserve)
    }

    /// Bytes that each of so many, who have nothing yet, finds in the reserve.
    pub fn least(&self, each: usize) -> u64 {
        self.reserve / each as u64 / STEP * STEP
    }

    /// A place for so many bytes: where, and how many it really has. Where there is none so large, the largest that there is.
    /// `None` if nothing is left.
    pub fn take(&mut self, bytes: u64) -> Option<Range<u64>> {
        let wanted = bytes.max(1).checked_next_multiple_of(STEP)?;
        let parts = || self.free.iter().map(|(start, end)| (*start, *end));
        let (start, end) = parts()
            .find(|(start, end)| end - start >= wanted)
            .or_else(|| parts().max_by_key(|(start, end)| end - start))?;
        self.free.remove(&start);
        let cut = end.min(start + wanted);
        if cut < end {
            self.free.insert(cut, end);
        }
        self.bytes -= cut - start;
        Some(start..cut)
    }

    /// Has back a place that it gave.
    pub fn give_back(&mut self, place: Range<u64>) {
        let (mut start, mut end) = (place.start, place.end);
        self.bytes += end - start;
        if let Some((before, its_end)) = self.free.range(..start).next_back().map(|(at, end)| (*at, *end))
            && its_end == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        self.free.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_is_given_first_and_parts_join_again() {
        let mut room = Room::new(10..1000);
        let places: Vec<_> = (0..3).map(|_| room.take(100).unwrap()).collect();
        assert_eq!(places, [64..192, 192..320, 320..448]);
        room.give_back(places[0].clone());
        room.give_back(places[2].clone());
        assert_eq!(room.take(65), Some(64..192));
        room.give_back(64..192);
        room.give_back(places[1].clone());
        assert_eq!(room.take(10_000), Some(64..960));
        assert_eq!(room.take(1), None);
        room.give_back(64..960);
        assert_eq!(room.take(0), Some(64..128));
    }

    #[test]
    fn a_quarter_is_kept_for_what_has_begun() {
        let mut room = Room::new(0..6400);
        assert_eq!((room.spare(), room.least(10), room.least(100)), (4800, 128, 0));
        let first = room.take(4800).unwrap();
        assert_eq!(room.spare(), 0);
        let second = room.take(1600).unwrap();
        assert_eq!((room.spare(), room.take(1)), (0, None));
        room.give_back(first);
        room.give_back(second);
        assert_eq!(room.spare(), 4800);
    }

    #[test]
    fn what_is_too_large_gets_the_largest() {
        let mut room = Room::new(0..640);
        let first = room.take(64).unwrap();
        let _second = room.take(64).unwrap();
        room.give_back(first);
        assert_eq!(room.take(1 << 40), Some(128..640));
        assert_eq!(room.take(u64::MAX), None, "no such number of bytes can be");
        assert_eq!(room.take(1 << 40), Some(0..64));
    }
}
