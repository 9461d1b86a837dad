//! A chunked body (RFC 9112, section 7.1).

use super::{
    reject::{self, Reject},
    syntax,
};

/// Extensions mean nothing here; their bytes in one body, together, are bounded.
const MOST_EXTENSION_BYTES: u32 = 256;
/// Bytes of the trailers, line ends included.
const MOST_TRAILER_BYTES: usize = 4096;
/// As many as fit 64 bits.
const MOST_SIZE_DIGITS: u32 = 16;

/// Takes a chunked body apart, in pieces of any size. What it decides does not depend on the pieces.
///
/// Extensions and trailers are checked and bounded; extensions are dropped. No white space is taken around a chunk's size.
#[derive(Clone, Debug)]
pub struct ChunkDecoder {
    state: State,
    /// The size that is being read, then what is missing of the chunk.
    size: u64,
    digits: u32,
    extension_bytes: u32,
    trailers: Vec<u8>,
    /// How much of the body was announced so far.
    total: u64,
}

/// What [`ChunkDecoder::feed`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// How many bytes it took; all of them unless `done`.
    pub consumed: usize,
    /// Whether the body is complete. The next request begins after `consumed`.
    pub done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    SizeEnd,
    Data,
    DataReturn,
    DataEnd,
    LineStart,
    TrailerName,
    TrailerValue,
    TrailerEnd,
    BodyEnd,
    Done,
    Failed(Reject),
}

impl Default for ChunkDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkDecoder {
    /// At the start of a body.
    pub const fn new() -> Self {
        Self {
            state: State::Size,
            size: 0,
            digits: 0,
            extension_bytes: 0,
            trailers: Vec::new(),
            total: 0,
        }
    }

    /// Takes what has arrived and appends the body's bytes to `out`. A body of more than `limit` bytes is refused as soon
    /// as a chunk announces it. After an error it says the same for ever.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>, limit: u64) -> Result<Fed, Reject> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let missing = usize::try_from(self.size).unwrap_or(usize::MAX);
                let take = missing.min(input.len() - at);
                out.extend_from_slice(&input[at..at + take]);
                at += take;
                self.size -= take as u64;
                if self.size == 0 {
                    self.state = State::DataReturn;
                }
            } else {
                self.state = self.step(input[at], limit).unwrap_or_else(State::Failed);
                at += 1;
            }
            if let State::Failed(reject) = self.state {
                return Err(reject);
            }
        }
        match self.state {
            State::Failed(reject) => Err(reject),
            state => Ok(Fed {
                consumed: at,
                done: state == State::Done,
            }),
        }
    }

    /// The trailer section so far: lines of a name, a colon and a value.
    pub fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Everything but data, byte by byte.
    fn step(&mut self, byte: u8, limit: u64) -> Result<State, Reject> {
        if matches!(
            self.state,
            State::LineStart | State::TrailerName | State::TrailerValue | State::TrailerEnd
        ) {
            if self.trailers.len() >= MOST_TRAILER_BYTES {
                return Err(reject::TRAILER_LARGE);
            }
            // Most bodies have none: their last line is not worth an allocation.
            if !(byte == b'\r' && self.state == State::LineStart) {
                self.trailers.push(byte);
            }
        }
        match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.digits += 1;
                if self.digits > MOST_SIZE_DIGITS {
                    return Err(reject::CHUNK);
                }
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                self.size = (self.size << 4) | u64::from(digit);
                Ok(State::Size)
            }
            (State::Size, b'\r' | b';') if self.digits > 0 => {
                self.total = self
                    .total
                    .checked_add(self.size)
                    .filter(|n| *n <= limit)
                    .ok_or(reject::BODY_LARGE)?;
                Ok(if byte == b'\r' {
                    State::SizeEnd
                } else {
                    State::Extension
                })
            }
            (State::Extension, b'\r') => Ok(State::SizeEnd),
            (State::Extension, byte) if syntax::is_value_byte(byte) => {
                self.extension_bytes += 1;
                if self.extension_bytes > MOST_EXTENSION_BYTES {
                    Err(reject::CHUNK_EXTENSION)
                } else {
                    Ok(State::Extension)
                }
            }
            (State::SizeEnd, b'\n') => {
                self.digits = 0;
                Ok(if self.size == 0 {
                    State::LineStart
                } else {
                    State::Data
                })
            }
            (State::DataReturn, b'\r') => Ok(State::DataEnd),
            (State::DataEnd, b'\n') => Ok(State::Size),
            (State::LineStart, b'\r') => Ok(State::BodyEnd),
            (State::LineStart | State::TrailerName, byte) if syntax::is_token_byte(byte) => {
                Ok(State::TrailerName)
            }
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerValue, b'\r') => Ok(State::TrailerEnd),
            (State::TrailerValue, byte) if syntax::is_value_byte(byte) => Ok(State::TrailerValue),
            (State::TrailerEnd, b'\n') => Ok(State::LineStart),
            (State::BodyEnd, b'\n') => Ok(State::Done),
            (
                State::LineStart
                | State::TrailerName
                | State::TrailerValue
                | State::TrailerEnd
                | State::BodyEnd,
                _,
            ) => Err(reject::TRAILER),
            (State::Failed(reject), _) => Err(reject),
            _ => Err(reject::CHUNK),
        }
    }
}
