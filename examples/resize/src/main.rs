//! resize: a JPEG on standard input becomes a PNG of half its width and height on standard output.
//!
//! The filter is Catmull and Rom's cubic (Mitchell and Netravali, "Reconstruction Filters in Computer Graphics",
//! SIGGRAPH 1988, with B = 0, C = 1/2), stretched by two. At exactly half size every output pixel lies in the middle
//! between two input pixels, so the kernel is always sampled at 1/4, 3/4, 5/4 and 7/4: eight weights that are exact
//! multiples of 1/256. Everything is integers; two passes, rows then columns.

use picture::Picture;
use std::process::ExitCode;

/// `256 * k(x / 2) / 2` at x = 1/2, 3/2, 5/2, 7/2: how far the inputs are from the output pixel.
const WEIGHTS: [i32; 4] = [111, 29, -9, -3];
/// The eight inputs of output pixel `j` are `2 * j - BEFORE ..= 2 * j + BEFORE + 1`.
const BEFORE: usize = 3;
/// Bytes of a pixel.
const CHANNELS: usize = 3;

/// A picture that could not be made smaller.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Picture(#[from] picture::Error),
    #[error("the PNG cannot be written: {0}")]
    Png(#[from] png::EncodingError),
}

/// The weighted sum of eight values, the nearest two first in [`WEIGHTS`].
#[inline(always)]
fn weigh(values: [u8; 8]) -> u8 {
    let v = values.map(i32::from);
    let sum = WEIGHTS[0] * (v[3] + v[4])
        + WEIGHTS[1] * (v[2] + v[5])
        + WEIGHTS[2] * (v[1] + v[6])
        + WEIGHTS[3] * (v[0] + v[7]);
    // The weights of the eight add up to 256. Negative lobes may leave 0..=255.
    ((sum + 128) >> 8).clamp(0, 255) as u8
}

/// Half of an even or odd length, rounded up: no pixel is lost.
fn half(length: usize) -> usize {
    length.div_ceil(2)
}

/// One row at half its width, the border pixels repeated outwards. `padded` is room for the longer row.
fn halve_row(row: &[u8], padded: &mut Vec<u8>, out: &mut [u8]) {
    let (first, last) = (&row[..CHANNELS], &row[row.len() - CHANNELS..]);
    padded.clear();
    padded.extend_from_slice(&first.repeat(BEFORE));
    padded.extend_from_slice(row);
    // One more on the right where the width is odd.
    padded.extend_from_slice(&last.repeat(BEFORE + 2));
    for (pixel, inputs) in out
        .chunks_exact_mut(CHANNELS)
        .zip(padded.windows(8 * CHANNELS).step_by(2 * CHANNELS))
    {
        for (channel, value) in pixel.iter_mut().enumerate() {
            *value = weigh(std::array::from_fn(|tap| inputs[tap * CHANNELS + channel]));
        }
    }
}

/// The picture at half its size.
fn halve(picture: &Picture) -> Picture {
    let (width, height) = (half(picture.width), half(picture.height));
    let stride = width * CHANNELS;
    let mut narrow = vec![0; stride * picture.height];
    let mut padded = Vec::new();
    for (row, out) in picture
        .rgb
        .chunks_exact(picture.width * CHANNELS)
        .zip(narrow.chunks_exact_mut(stride))
    {
        halve_row(row, &mut padded, out);
    }
    let mut rgb = vec![0; stride * height];
    for (y, out) in rgb.chunks_exact_mut(stride).enumerate() {
        let rows: [&[u8]; 8] = std::array::from_fn(|tap| {
            let row = (2 * y + tap).saturating_sub(BEFORE).min(picture.height - 1);
            &narrow[row * stride..][..stride]
        });
        for (x, value) in out.iter_mut().enumerate() {
            *value = weigh(rows.map(|row| row[x]));
        }
    }
    Picture { width, height, rgb }
}

fn resize(input: &[u8]) -> Result<Vec<u8>, Error> {
    let small = halve(&Picture::from_jpeg(input)?);
    let mut output = Vec::new();
    // A side is at most `picture::SIDE_LIMIT`.
    let mut encoder = png::Encoder::new(&mut output, small.width as u32, small.height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&small.rgb)?;
    writer.finish()?;
    Ok(output)
}

fn main() -> ExitCode {
    picture::filter("resize", resize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(width: usize, height: usize, pixel: impl Fn(usize, usize) -> u8) -> Picture {
        let rgb = (0..width * height)
            .flat_map(|at| [pixel(at % width, at / width); 3])
            .collect();
        Picture { width, height, rgb }
    }

    #[test]
    fn the_weights_are_the_cubic_of_catmull_and_rom() {
        for (index, weight) in WEIGHTS.into_iter().enumerate() {
            let x = (index as f64 + 0.5) / 2.0;
            let kernel = if x < 1.0 {
                1.5 * x.powi(3) - 2.5 * x.powi(2) + 1.0
            } else {
                -0.5 * x.powi(3) + 2.5 * x.powi(2) - 4.0 * x + 2.0
            };
            assert_eq!(f64::from(weight), 256.0 * kernel / 2.0);
        }
    }

    #[test]
    fn one_colour_stays_one_colour_in_every_size() {
        for (width, height) in [(1, 1), (1, 9), (2, 2), (3, 5), (17, 8)] {
            let small = halve(&picture(width, height, |_, _| 77));
            assert_eq!((small.width, small.height), (half(width), half(height)));
            assert_eq!(small.rgb, vec![77; 3 * half(width) * half(height)]);
        }
    }

    #[test]
    fn a_ramp_stays_a_ramp() {
        let small = halve(&picture(40, 40, |x, y| (3 * x + 2 * y) as u8));
        for y in 2..18 {
            for x in 2..18 {
                // Output (x, y) is input (2x + 1/2, 2y + 1/2); both passes round.
                let exact = 3.0 * (2.0 * x as f64 + 0.5) + 2.0 * (2.0 * y as f64 + 0.5);
                assert!((f64::from(small.rgb[(y * 20 + x) * 3]) - exact).abs() <= 1.0);
            }
        }
    }

    #[test]
    fn what_is_no_jpeg_is_refused() {
        for input in [
            &b""[..],
            b"hello",
            b"\xff\xd8",
            b"\xff\xd8\xff\xda\x00",
            b"\xff\xd8\xff\xc0\x00\x0b\x08",
        ] {
            assert!(resize(input).is_err());
        }
    }
}
