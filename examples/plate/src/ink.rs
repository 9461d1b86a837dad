//! Marks: connected components of pixels that are darker than their surroundings.
//!
//! The threshold is local: a pixel is ink when it is darker than the mean of the square around it by a part of that mean
//! (Bradley and Roth, "Adaptive Thresholding Using the Integral Image", 2007). Components are built from runs of ink in
//! rows, joined by a disjoint-set forest; neighbours are eight.

use crate::Rectangle;

/// Half the side of the square around a pixel: about the height of a character.
const REACH: usize = 24;
/// Ink is darker than the mean by one part in this many, and by [`LEAST`] levels.
const PART: u32 = 7;
const LEAST: u32 = 12;
/// Runs of ink in one picture: what bounds the memory. Grain of 3 pixels over the largest picture stays below.
pub(crate) const RUN_LIMIT: usize = 1 << 20;

/// A connected component of ink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// The pixels it spans.
    pub(crate) bounds: Rectangle,
    /// Its pixels.
    pub(crate) area: usize,
}

/// All marks of a grey picture; nothing when there are more than [`RUN_LIMIT`] runs of ink.
pub(crate) fn marks(grey: &[u8], width: usize, height: usize) -> Option<Vec<Mark>> {
    let sums = integral(grey, width, height);
    let mut sets = Sets::default();
    let mut above: Vec<Run> = Vec::new();
    let mut current: Vec<Run> = Vec::new();
    let mut ink = vec![false; width];
    for y in 0..height {
        threshold(&grey[y * width..][..width], &sums, y, width, height, &mut ink);
        current.clear();
        let mut touching = 0;
        let mut x = 0;
        while let Some(from) = ink[x..].iter().position(|&is_ink| is_ink).map(|at| x + at) {
            let to = ink[from..]
                .iter()
                .position(|&is_ink| !is_ink)
                .map_or(width, |at| from + at);
            if sets.parents.len() == RUN_LIMIT {
                return None;
            }
            let mut set = sets.add(Mark {
                bounds: Rectangle {
                    left: from,
                    top: y,
                    right: to,
                    bottom: y + 1,
                },
                area: to - from,
            });
            while touching < above.len() && above[touching].to < from {
                touching += 1;
            }
            for run in above[touching..].iter().take_while(|run| run.from <= to) {
                set = sets.join(set, run.set);
            }
            current.push(Run { from, to, set });
            x = to;
        }
        std::mem::swap(&mut above, &mut current);
    }
    Some(sets.into_marks())
}

/// Pixels `from..to` of one row, in a set.
struct Run {
    from: usize,
    to: usize,
    set: usize,
}

/// Sums of all pixels above and left of each: `(width + 1) * (height + 1)`, at most 255 * `picture::PIXEL_LIMIT`, which
/// fits 32 bits.
fn integral(grey: &[u8], width: usize, height: usize) -> Vec<u32> {
    let stride = width + 1;
    let mut sums = vec![0; stride * (height + 1)];
    for (y, row) in grey.chunks_exact(width).enumerate() {
        let (before, after) = sums.split_at_mut((y + 1) * stride);
        let mut sum = 0;
        for ((level, above), out) in row.iter().zip(&before[y * stride + 1..]).zip(&mut after[1..]) {
            sum += u32::from(*level);
            *out = above + sum;
        }
    }
    sums
}

/// Which pixels of row `y` are ink.
fn threshold(row: &[u8], sums: &[u32], y: usize, width: usize, height: usize, ink: &mut [bool]) {
    let stride = width + 1;
    let (top, bottom) = (y.saturating_sub(REACH), (y + REACH + 1).min(height));
    let (above, below) = (
        &sums[top * stride..][..stride],
        &sums[bottom * stride..][..stride],
    );
    for (x, (level, ink)) in row.iter().zip(ink).enumerate() {
        let (left, right) = (x.saturating_sub(REACH), (x + REACH + 1).min(width));
        let area = ((right - left) * (bottom - top)) as u32;
        // In this order every step stays positive.
        let sum = below[right] - below[left] - (above[right] - above[left]);
        // level < mean - max(mean / PART, LEAST), without a division.
        let level = u32::from(*level) * area;
        *ink = level + (sum / PART).max(LEAST * area) < sum;
    }
}

/// A disjoint-set forest; each root holds the mark of its set.
#[derive(Default)]
struct Sets {
    parents: Vec<usize>,
    marks: Vec<Mark>,
}

impl Sets {
    /// A new set.
    fn add(&mut self, mark: Mark) -> usize {
        self.parents.push(self.parents.len());
        self.marks.push(mark);
        self.parents.len() - 1
    }

    fn root(&mut self, mut set: usize) -> usize {
        while self.parents[set] != set {
            self.parents[set] = self.parents[self.parents[set]];
            set = self.parents[set];
        }
        set
    }

    /// Makes one set of two and returns its root.
    fn join(&mut self, a: usize, b: usize) -> usize {
        let (a, b) = (self.root(a), self.root(b));
        let (root, other) = (a.min(b), a.max(b));
        if root != other {
            self.parents[other] = root;
            let joined = self.marks[other];
            let mark = &mut self.marks[root];
            mark.bounds = mark.bounds.with(joined.bounds);
            mark.area += joined.area;
        }
        root
    }

    fn into_marks(self) -> Vec<Mark> {
        let roots = self
            .parents
            .iter()
            .enumerate()
            .filter(|(set, parent)| set == *parent);
        roots.map(|(set, _)| self.marks[set]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(rows: &[&str]) -> (Vec<u8>, usize, usize) {
        let grey = rows
            .iter()
            .flat_map(|row| row.bytes().map(|b| if b == b'#' { 10 } else { 200 }))
            .collect();
        (grey, rows[0].len(), rows.len())
    }

    #[test]
    fn diagonal_neighbours_belong_together() {
        let (grey, width, height) = draw(&[
            "#.....#", ".#...#.", "..#.#..", "...#...", ".......", "##.....", "......#",
        ]);
        let mut found: Vec<_> = marks(&grey, width, height)
            .unwrap()
            .iter()
            .map(|mark| (mark.area, mark.bounds.left))
            .collect();
        found.sort_unstable();
        assert_eq!(found, [(1, 6), (2, 0), (7, 0)]);
    }

    #[test]
    fn an_even_picture_has_no_marks() {
        for level in [0, 128, 255] {
            assert!(marks(&[level; 60 * 70], 60, 70).unwrap().is_empty());
        }
    }

    #[test]
    fn noise_is_refused_before_it_fills_the_memory() {
        let (width, height) = (4096, 1024);
        let grey: Vec<u8> = (0..width * height)
            .map(|at| {
                if (at % width + at / width) % 2 == 0 {
                    255
                } else {
                    0
                }
            })
            .collect();
        assert!(marks(&grey, width, height).is_none());
    }
}
