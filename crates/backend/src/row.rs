//! See [`Row`].

use exchange::{BEFORE, BEHIND, PIECE, STEP};
use std::ops::Range;

/// Where a reply's body goes that the sandbox may keep: one place, of which each piece gets the next part.
#[derive(Debug)]
pub(crate) struct Row {
    /// What no piece has yet.
    rest: Range<u64>,
    /// Of that, where the body goes.
    body: Range<u64>,
}

/// A place that is being filled with a piece of a reply.
#[derive(Debug)]
pub(crate) struct Filling {
    pub(crate) place: Range<u64>,
    /// Of that, where the piece goes.
    pub(crate) body: Range<u64>,
    /// Bytes of it that are there.
    pub(crate) filled: u64,
    /// Whether it is of a [`Row`].
    pub(crate) in_row: bool,
}

impl Filling {
    /// A whole place.
    pub(crate) fn of(place: Range<u64>) -> Self {
        Self {
            body: place.clone(),
            place,
            filled: 0,
            in_row: false,
        }
    }
}

impl Row {
    /// Bytes of a place for a body of so many, in steps of which places are.
    pub(crate) fn size(length: u64) -> u64 {
        (BEFORE + length + BEHIND).next_multiple_of(STEP)
    }

    /// In a place of that size at least.
    pub(crate) fn new(place: Range<u64>, length: u64) -> Self {
        let start = place.start + BEFORE;
        Self {
            body: start..start + length,
            rest: place,
        }
    }

    /// Where the body's next byte goes.
    pub(crate) fn start(&self) -> u64 {
        self.body.start
    }

    /// For the next piece; the last one has all that is left. None is larger than a piece may be.
    pub(crate) fn cut(&mut self) -> Option<Filling> {
        if self.body.is_empty() {
            return None;
        }
        let cut = self.rest.start + PIECE;
        let (body, place) = match cut < self.body.end {
            true => (self.body.start..cut, self.rest.start..cut),
            false => (self.body.clone(), self.rest.clone()),
        };
        (self.body.start, self.rest.start) = (body.end, place.end);
        Some(Filling {
            place,
            body,
            filled: 0,
            in_row: true,
        })
    }

    /// What no piece has got.
    pub(crate) fn rest(self) -> Option<Range<u64>> {
        Some(self.rest).filter(|rest| !rest.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_in_a_row_and_their_places_are_all_of_it() {
        for length in [
            1,
            PIECE - BEFORE,
            PIECE - BEFORE + 1,
            PIECE,
            3 * PIECE,
            3 * PIECE + 7,
        ] {
            let place = STEP..STEP + Row::size(length);
            let mut row = Row::new(place.clone(), length);
            let (mut at, mut next) = (place.start, row.start());
            assert_eq!(next, place.start + BEFORE);
            while let Some(piece) = row.cut() {
                assert_eq!((piece.place.start, piece.body.start), (at, next));
                assert!(piece.body.end - piece.body.start <= PIECE, "{piece:?}");
                assert!(piece.body.end <= piece.place.end && piece.in_row);
                (at, next) = (piece.place.end, piece.body.end);
            }
            assert_eq!((at, next), (place.end, place.start + BEFORE + length));
            assert_eq!(row.rest(), None);
        }
    }

    #[test]
    fn what_no_piece_has_is_the_rest() {
        let mut row = Row::new(0..4 * PIECE, 3 * PIECE);
        row.cut();
        assert_eq!(row.rest(), Some(PIECE..4 * PIECE));
    }
}
