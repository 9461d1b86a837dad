//! What the Rust examples share: a program that turns standard input into standard output ([`filter`]), and a JPEG
//! into pixels ([`Picture::from_jpeg`]) within bounds that no input can exceed.

use std::{
    fmt,
    io::{self, Read, Write},
    process::ExitCode,
};
use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::JpegDecoder;

/// The longest input, in bytes.
pub const INPUT_LIMIT: usize = 8 << 20;
/// The widest and highest picture, in pixels.
pub const SIDE_LIMIT: usize = 4096;
/// The most pixels: 3 bytes each, and twice that while a progressive JPEG is decoded.
pub const PIXEL_LIMIT: usize = 8 << 20;

/// A picture: rows from the top, 3 bytes (red, green, blue) for each pixel.
pub struct Picture {
    /// Pixels in a row, at least 1.
    pub width: usize,
    /// Rows, at least 1.
    pub height: usize,
    /// `3 * width * height` bytes.
    pub rgb: Vec<u8>,
}

/// A JPEG that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing came in.
    #[error("there is no picture: standard input is empty")]
    Empty,
    /// Something else came in.
    #[error("not a JPEG: it does not begin with FF D8")]
    NotJpeg,
    /// Its header is understood, and asks for too much.
    #[error(
        "the picture has {width} x {height} pixels; at most {SIDE_LIMIT} on a side and {PIXEL_LIMIT} in all are possible"
    )]
    TooLarge {
        /// Pixels in a row.
        width: usize,
        /// Rows.
        height: usize,
    },
    /// The decoder refuses it.
    #[error("the JPEG cannot be decoded: {0}")]
    Decode(String),
}

impl Picture {
    /// Decodes a baseline or progressive JPEG; grey and CMYK become RGB. A damaged or truncated one is an error.
    pub fn from_jpeg(input: &[u8]) -> Result<Self, Error> {
        if input.is_empty() {
            return Err(Error::Empty);
        }
        if !input.starts_with(&[0xff, 0xd8]) {
            return Err(Error::NotJpeg);
        }
        let options = DecoderOptions::default()
            .set_strict_mode(true)
            .set_max_width(usize::from(u16::MAX))
            .set_max_height(usize::from(u16::MAX))
            .jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(input), options);
        decoder.decode_headers().map_err(decode_error)?;
        let info = decoder
            .info()
            .ok_or_else(|| Error::Decode("it has no frame header".to_owned()))?;
        let (width, height) = (usize::from(info.width), usize::from(info.height));
        if width > SIDE_LIMIT || height > SIDE_LIMIT || width * height > PIXEL_LIMIT {
            return Err(Error::TooLarge { width, height });
        }
        let rgb = decoder.decode().map_err(decode_error)?;
        if width == 0 || height == 0 || rgb.len() != 3 * width * height {
            return Err(Error::Decode("the header and the pixels do not agree".to_owned()));
        }
        Ok(Self { width, height, rgb })
    }
}

/// The decoder's reason on one line.
fn decode_error(error: impl fmt::Debug) -> Error {
    Error::Decode(
        format!("{error:?}")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
    )
}

/// Runs `transform` from standard input to standard output. On an error: `program: message` on standard error, nothing
/// on standard output, exit code 1.
pub fn filter<E: fmt::Display>(
    program: &str,
    transform: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>,
) -> ExitCode {
    let mut input = Vec::new();
    let message = match io::stdin()
        .lock()
        .take(INPUT_LIMIT as u64 + 1)
        .read_to_end(&mut input)
    {
        Err(error) => format!("standard input cannot be read: {error}"),
        Ok(length) if length > INPUT_LIMIT => format!("the input is longer than {INPUT_LIMIT} bytes"),
        Ok(_) => match transform(&input) {
            Err(error) => error.to_string(),
            Ok(output) => match io::stdout()
                .lock()
                .write_all(&output)
                .and_then(|()| io::stdout().flush())
            {
                Err(error) => format!("standard output cannot be written: {error}"),
                Ok(()) => return ExitCode::SUCCESS,
            },
        },
    };
    // Nobody is left to tell when standard error is closed too.
    let _ = writeln!(io::stderr(), "{program}: {message}");
    ExitCode::FAILURE
}
