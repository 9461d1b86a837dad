//! Rows of characters, and how much one is like a number plate.
//!
//! Each mark that may be a character points to the nearest one to its right that has about its height and stands at about its
//! level; what hangs together by these pointers is a row. A plate has 4 to 10 characters, in high contrast on an even ground.

use crate::{Rectangle, ink::Mark};

const CHARACTER_HEIGHT: std::ops::RangeInclusive<usize> = 9..=120;
const FEWEST: usize = 4;
const MOST: usize = 10;
/// Rows of marks are searched by bands of the picture of this height.
const BAND: usize = 32;

/// A row of characters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The plate around it.
    pub(crate) plate: Rectangle,
    /// How much it is like a plate; only to be compared.
    pub(crate) score: u64,
}

/// Whether a mark may be a character: upright, neither a hair nor a frame.
fn is_character(mark: &Mark) -> bool {
    let (width, height) = (mark.bounds.width(), mark.bounds.height());
    let filled = 100 * mark.area / (width * height);
    CHARACTER_HEIGHT.contains(&height)
        && 10 * width >= height
        && 2 * width <= 3 * height
        && (18..=100).contains(&filled)
}

/// Whether `next` may be the character after `mark`, and how far it is. A gap of a character's height is a space.
fn gap(mark: &Rectangle, next: &Rectangle) -> Option<usize> {
    let taller = mark.height().max(next.height());
    let overlap = (mark.right.min(next.right)).saturating_sub(next.left);
    let distance = next.left.saturating_sub(mark.right);
    let level = (mark.top + mark.bottom).abs_diff(next.top + next.bottom);
    let fits = next.left > mark.left
        && 4 * overlap <= mark.width().min(next.width())
        && 10 * distance <= 11 * taller
        && 5 * mark.height().abs_diff(next.height()) <= taller
        // Twice the distance of the middles.
        && 2 * level <= taller;
    fits.then_some(distance)
}

/// The row that is most like a plate, among marks that are darker than the ground in `grey`.
pub(crate) fn best(marks: &[Mark], grey: &[u8], width: usize, height: usize) -> Option<Row> {
    let mut characters: Vec<Rectangle> = marks
        .iter()
        .filter(|mark| is_character(mark))
        .map(|mark| mark.bounds)
        .collect();
    characters.sort_unstable_by_key(|bounds| (bounds.left, bounds.top));

    // Characters by the band of their middle; each band stays in order from left to right.
    let band = |bounds: &Rectangle| (bounds.top + bounds.bottom) / 2 / BAND;
    let mut bands = vec![Vec::new(); height / BAND + 1];
    for (index, bounds) in characters.iter().enumerate() {
        bands[band(bounds)].push(index);
    }
    let following: Vec<Option<usize>> = characters
        .iter()
        .map(|bounds| {
            let (middle, reach) = ((bounds.top + bounds.bottom) / 2, bounds.height() / 2);
            let near =
                &bands[middle.saturating_sub(reach) / BAND..=((middle + reach) / BAND).min(bands.len() - 1)];
            let farthest = bounds.right + 2 * bounds.height();
            near.iter()
                .flat_map(|band| {
                    let from = band.partition_point(|&other| characters[other].left <= bounds.left);
                    band[from..]
                        .iter()
                        .copied()
                        .take_while(|&other| characters[other].left <= farthest)
                })
                .filter_map(|other| gap(bounds, &characters[other]).map(|distance| (distance, other)))
                .min()
                .map(|(_, other)| other)
        })
        .collect();

    // From every character that follows no other, along the pointers. They point to the right: there is an end.
    let mut follows = vec![false; characters.len()];
    following
        .iter()
        .flatten()
        .for_each(|&other| follows[other] = true);
    let mut best = None;
    for start in (0..characters.len()).filter(|&index| !follows[index]) {
        let chain: Vec<Rectangle> = std::iter::successors(Some(start), |&index| following[index])
            .take(MOST + 1)
            .map(|index| characters[index])
            .collect();
        if (FEWEST..=MOST).contains(&chain.len()) {
            let row = judge(&chain, grey, width, height);
            if best.is_none_or(|best: Row| row.score > best.score) {
                best = Some(row);
            }
        }
    }
    best
}

/// The plate around a chain of characters and its score: the more characters, the higher their contrast, the evener ink and
/// ground each are, and the more alike the heights, the better.
fn judge(chain: &[Rectangle], grey: &[u8], width: usize, height: usize) -> Row {
    let text = chain
        .iter()
        .skip(1)
        .fold(chain[0], |all, bounds| all.with(*bounds));
    let mut heights: Vec<usize> = chain.iter().map(|bounds| bounds.height()).collect();
    heights.sort_unstable();
    let usual = heights[heights.len() / 2];
    let uneven: usize = heights.iter().map(|height| height.abs_diff(usual)).sum();

    // Ink and ground part at the middle between the darkest and the lightest tenth of the text's pixels.
    let rows = (text.top..text.bottom).map(|y| &grey[y * width + text.left..][..text.width()]);
    let mut levels = [0_u64; 256];
    rows.flatten().for_each(|&level| levels[usize::from(level)] += 1);
    let total: u64 = levels.iter().sum();
    let quantile = |wanted: u64| {
        let mut seen = 0;
        (0..256_u64).find(|&level| {
            seen += levels[level as usize];
            seen > wanted
        })
    };
    let (low, high) = (
        quantile(total / 10).unwrap_or(0),
        quantile(total * 9 / 10).unwrap_or(255),
    );
    let middle = (low + high).div_ceil(2);
    let mean = |range: std::ops::Range<u64>| {
        let count: u64 = range.clone().map(|level| levels[level as usize]).sum();
        let sum: u64 = range.map(|level| level * levels[level as usize]).sum();
        sum / count.max(1)
    };
    let (ink, ground) = (mean(0..middle), mean(middle..256));
    let spread: u64 = (0..256_u64)
        .map(|level| levels[level as usize] * level.abs_diff(if level < middle { ink } else { ground }))
        .sum();

    let contrast = ground.saturating_sub(ink);
    let score = 10_000 * chain.len() as u64 * contrast
        / (12 + spread / total.max(1))
        / (4 + 20 * uneven as u64 / (usual * chain.len()) as u64);
    // A plate's characters take about two thirds of its height.
    Row {
        plate: text.grown(usual / 2, usual * 3 / 10, width, height),
        score,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(left: usize, top: usize, width: usize, height: usize) -> Mark {
        Mark {
            bounds: Rectangle {
                left,
                top,
                right: left + width,
                bottom: top + height,
            },
            area: width * height,
        }
    }

    #[test]
    fn a_row_has_like_heights_and_one_level() {
        let grey = vec![128; 400 * 100];
        let row = |marks: &[Mark]| best(marks, &grey, 400, 100).map(|row| row.plate);
        let even: Vec<Mark> = (0..6)
            .map(|index| bar(20 + 20 * index, 30 + index, 10, 20))
            .collect();
        let plate = row(&even).unwrap();
        assert!(plate.left < 20 && plate.right > 130 && plate.top < 30 && plate.bottom > 55);
        let steep: Vec<Mark> = (0..6)
            .map(|index| bar(20 + 20 * index, 5 + 12 * index, 10, 20))
            .collect();
        assert_eq!(row(&steep), None);
        let growing: Vec<Mark> = (0..5)
            .map(|index| bar(20 + 40 * index, 40 - 7 * index, 10, 12 + 14 * index))
            .collect();
        assert_eq!(row(&growing), None);
        assert_eq!(row(&even[..3]), None);
    }

    #[test]
    fn a_fence_is_no_plate() {
        let grey = vec![128; 800 * 100];
        let posts: Vec<Mark> = (0..30).map(|index| bar(20 + 20 * index, 30, 10, 20)).collect();
        assert!(best(&posts, &grey, 800, 100).is_none());
    }
}
