//! plate: finds a number plate in a JPEG on standard input and writes the picture as a JPEG with a box around it.
//!
//! A plate is a row of characters: marks of like height, beside each other, on an even ground. [`ink`] finds all marks that
//! are darker (then: lighter) than their surroundings, [`row`] chains them into rows and chooses the row that is most like a
//! plate, and this file decodes, draws and encodes. The JPEG's comment says where the plate is: `plate X Y WIDTH HEIGHT`
//! in pixels, or `no plate`.

mod ink;
mod row;

use jpeg_encoder::{ColorType, Encoder, EncodingError};
use picture::Picture;
use std::process::ExitCode;

const QUALITY: u8 = 80;
const BOX_COLOUR: [u8; 3] = [255, 0, 90];
const BOX_THICKNESS: usize = 3;

/// A picture that could not be searched.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Picture(#[from] picture::Error),
    #[error(
        "the picture has more than {} strokes: it is noise, not a photograph",
        ink::RUN_LIMIT
    )]
    Noise,
    #[error("the JPEG cannot be written: {0}")]
    Encode(#[from] EncodingError),
}

/// A rectangle of pixels; `right` and `bottom` are one past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rectangle {
    left: usize,
    top: usize,
    right: usize,
    bottom: usize,
}

impl Rectangle {
    fn width(self) -> usize {
        self.right - self.left
    }

    fn height(self) -> usize {
        self.bottom - self.top
    }

    /// The smallest rectangle that holds both.
    fn with(self, other: Self) -> Self {
        Self {
            left: self.left.min(other.left),
            top: self.top.min(other.top),
            right: self.right.max(other.right),
            bottom: self.bottom.max(other.bottom),
        }
    }

    /// `x` more at the left and right, `y` above and below, within a picture of this size.
    fn grown(self, x: usize, y: usize, width: usize, height: usize) -> Self {
        Self {
            left: self.left.saturating_sub(x),
            top: self.top.saturating_sub(y),
            right: (self.right + x).min(width),
            bottom: (self.bottom + y).min(height),
        }
    }
}

/// Brightness, 0 to 255 (ITU-R BT.601, in 1/256).
fn luma(picture: &Picture) -> Vec<u8> {
    let weigh =
        |p: &[u8]| ((77 * u32::from(p[0]) + 150 * u32::from(p[1]) + 29 * u32::from(p[2]) + 128) >> 8) as u8;
    picture.rgb.chunks_exact(3).map(weigh).collect()
}

/// Where the plate is, if there is one.
fn find(picture: &Picture) -> Result<Option<Rectangle>, Error> {
    let (width, height) = (picture.width, picture.height);
    let mut grey = luma(picture);
    let mut best: Option<row::Row> = None;
    // Dark characters; then the negative, for light ones.
    for _ in 0..2 {
        let marks = ink::marks(&grey, width, height).ok_or(Error::Noise)?;
        let found = row::best(&marks, &grey, width, height);
        best = best.into_iter().chain(found).max_by_key(|row| row.score);
        grey.iter_mut().for_each(|level| *level = 255 - *level);
    }
    Ok(best.map(|row| row.plate))
}

/// Draws the rectangle's border, outwards from its edge.
fn draw(picture: &mut Picture, rectangle: Rectangle) {
    let outer = rectangle.grown(BOX_THICKNESS, BOX_THICKNESS, picture.width, picture.height);
    for y in outer.top..outer.bottom {
        for x in outer.left..outer.right {
            let inside = (rectangle.left..rectangle.right).contains(&x)
                && (rectangle.top..rectangle.bottom).contains(&y);
            if !inside {
                picture.rgb[(y * picture.width + x) * 3..][..3].copy_from_slice(&BOX_COLOUR);
            }
        }
    }
}

/// The picture as a JPEG with a comment.
fn encode(picture: &Picture, comment: &str) -> Result<Vec<u8>, Error> {
    let mut jpeg = Vec::new();
    // A side is at most `picture::SIDE_LIMIT`.
    let (width, height) = (picture.width as u16, picture.height as u16);
    Encoder::new(&mut jpeg, QUALITY).encode(&picture.rgb, width, height, ColorType::Rgb)?;
    // COM (ITU-T T.81, B.2.4.5), after the JFIF header: that must come first.
    let header = 4 + usize::from(u16::from_be_bytes([jpeg[4], jpeg[5]]));
    let mut segment = vec![0xff, 0xfe];
    segment.extend((comment.len() as u16 + 2).to_be_bytes());
    segment.extend(comment.as_bytes());
    jpeg.splice(header..header, segment);
    Ok(jpeg)
}

fn mark_plate(input: &[u8]) -> Result<Vec<u8>, Error> {
    let mut picture = Picture::from_jpeg(input)?;
    let comment = match find(&picture)? {
        Some(plate) => {
            draw(&mut picture, plate);
            format!(
                "plate {} {} {} {}",
                plate.left,
                plate.top,
                plate.width(),
                plate.height()
            )
        }
        None => "no plate".to_owned(),
    };
    encode(&picture, &comment)
}

fn main() -> ExitCode {
    picture::filter("plate", mark_plate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plate of upright bars instead of letters, in the middle of an even picture.
    fn scene(ground: u8, plate: u8, bars: u8) -> Picture {
        let (width, height) = (320, 200);
        let mut rgb = vec![ground; width * height * 3];
        let mut fill = |x: usize, y: usize, w: usize, h: usize, level: u8| {
            for row in y..y + h {
                rgb[(row * width + x) * 3..][..w * 3].fill(level);
            }
        };
        fill(90, 80, 140, 34, plate);
        (0..7).for_each(|index| fill(100 + 18 * index, 86, 9, 22, bars));
        Picture { width, height, rgb }
    }

    #[test]
    fn dark_and_light_characters_are_found() {
        for picture in [scene(120, 240, 20), scene(120, 10, 230)] {
            let found = find(&picture).unwrap().unwrap();
            let (wide, high) = (
                found.right.min(230) - found.left.max(90),
                found.bottom.min(114) - found.top.max(80),
            );
            let union = found.width() * found.height() + 140 * 34 - wide * high;
            assert!(2 * wide * high > union, "{found:?}");
        }
    }

    #[test]
    fn an_empty_picture_has_no_plate() {
        let pixel = Picture {
            width: 1,
            height: 1,
            rgb: vec![0; 3],
        };
        for picture in [scene(120, 120, 120), pixel] {
            assert_eq!(find(&picture).unwrap(), None);
        }
    }

    #[test]
    fn the_comment_can_be_read_back() {
        let jpeg = encode(&scene(120, 240, 20), "plate 1 2 3 4").unwrap();
        assert!(
            jpeg.windows(17)
                .any(|window| window == b"\xff\xfe\x00\x0fplate 1 2 3 4")
        );
        let again = Picture::from_jpeg(&jpeg).unwrap();
        assert_eq!((again.width, again.height), (320, 200));
    }
}
