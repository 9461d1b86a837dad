//! Bodies in chunks (`aws-chunked`), with what can only be said once they have come: a checksum behind all of it, and a signature of each chunk.
//!
//! Amazon S3 API reference, "Signature Calculations for the Authorization Header: Transferring Payload in Multiple Chunks", and "Including Trailing Headers".

use crate::{
    checksum::{Checksum, Summing},
    sign::Chain,
};
use bytes::{Bytes, BytesMut};
use contract::{BodyError, BodyStream};
use std::{
    collections::VecDeque,
    task::{Poll, Waker, ready},
};

/// What is in one chunk. All but the last are of S3's 8 KiB at least; some servers take none beyond 16 MiB.
const CHUNK: u64 = 1 << 20;

/// The same where it is signed: it is hashed where it is, and more would keep others waiting.
const SIGNED_CHUNK: u64 = 256 << 10;

/// Hexadecimal digits of a signature.
const DIGITS: u64 = 64;

pub(crate) struct Chunked {
    stream: Box<dyn BodyStream>,
    checksum: Option<Checksum>,
    /// Of what has come so far.
    summing: Option<Summing>,
    signs: Signs,
    /// What is in one chunk.
    size: u64,
    /// What is still to come of the content, and of this chunk.
    left: u64,
    chunk: u64,
    /// What came and is in no chunk.
    piece: Bytes,
    /// What there is of a chunk that is to be signed.
    gathered: BytesMut,
    /// What is framed.
    ready: VecDeque<Bytes>,
    is_over: bool,
}

enum Signs {
    Nothing,
    /// Once the head is signed, of which the first signature is made.
    Waits,
    Chunks(Box<Chain>),
}

impl Chunked {
    /// With a checksum behind it, unsigned.
    pub(crate) fn trailed(stream: Box<dyn BodyStream>, length: u64, checksum: Checksum) -> Self {
        Self::new(stream, length, Some(checksum), Signs::Nothing, CHUNK)
    }

    /// With signatures, which [`Chunked::sign`] begins, and perhaps a checksum behind it.
    pub(crate) fn signed(stream: Box<dyn BodyStream>, length: u64, checksum: Option<Checksum>) -> Self {
        Self::new(stream, length, checksum, Signs::Waits, SIGNED_CHUNK)
    }

    fn new(
        stream: Box<dyn BodyStream>,
        length: u64,
        checksum: Option<Checksum>,
        signs: Signs,
        size: u64,
    ) -> Self {
        Self {
            stream,
            checksum,
            summing: checksum.map(Checksum::begin),
            signs,
            size,
            left: length,
            chunk: 0,
            piece: Bytes::new(),
            gathered: BytesMut::new(),
            ready: VecDeque::new(),
            is_over: false,
        }
    }

    /// The head is signed.
    pub(crate) fn sign(&mut self, chain: Chain) {
        self.signs = Signs::Chunks(Box::new(chain));
    }

    fn is_signed(&self) -> bool {
        !matches!(self.signs, Signs::Nothing)
    }

    /// How long all of it will be.
    pub(crate) fn encoded(&self) -> u64 {
        let is_signed = self.is_signed();
        let framed = |length: u64| {
            let signature = if is_signed {
                SIGNATURE.len() as u64 + DIGITS
            } else {
                0
            };
            format!("{length:x}").len() as u64 + signature + 2 + length + 2
        };
        let (full, rest) = (self.left / self.size, self.left % self.size);
        let last = if rest > 0 { framed(rest) } else { 0 };
        // A checksum is as long as any other of its kind.
        let trailer = self.checksum.map_or(0, |checksum| {
            let signature = if is_signed {
                TRAILER_SIGNATURE.len() as u64 + DIGITS + 2
            } else {
                0
            };
            line(checksum, &checksum.of(b"")).len() as u64 + 2 + signature
        });
        full * framed(self.size) + last + framed(0) - 2 + trailer + 2
    }

    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Ok(Some(piece)));
            }
            if self.is_over {
                return Poll::Ready(Ok(None));
            }
            if self.piece.is_empty() {
                match ready!(self.stream.poll_next(waker))? {
                    Some(piece) => self.piece = piece,
                    None if self.left == 0 => {
                        let end = self.end()?;
                        self.ready.push_back(end.into());
                        self.is_over = true;
                        continue;
                    }
                    None => return Poll::Ready(Err(BodyError::Bad)),
                }
            }
            if !self.piece.is_empty() {
                self.take()?;
            }
        }
    }

    /// Of the piece that came, what belongs to this chunk.
    fn take(&mut self) -> Result<(), BodyError> {
        if self.left == 0 {
            return Err(BodyError::Bad);
        }
        if self.chunk == 0 {
            self.chunk = self.left.min(self.size);
            if !self.is_signed() {
                self.ready.push_back(format!("{:x}\r\n", self.chunk).into());
            }
        }
        let part = self.piece.len().min(self.chunk as usize);
        let part = self.piece.split_to(part);
        if let Some(summing) = &mut self.summing {
            summing.add(&part);
        }
        self.chunk -= part.len() as u64;
        self.left -= part.len() as u64;
        if self.is_signed() {
            self.gathered.extend_from_slice(&part);
        } else {
            self.ready.push_back(part);
        }
        if self.chunk == 0 {
            if self.is_signed() {
                let chunk = self.gathered.split().freeze();
                let head = self.head(&chunk)?;
                self.ready.extend([head.into(), chunk]);
            }
            self.ready.push_back(Bytes::from_static(b"\r\n"));
        }
        Ok(())
    }

    fn head(&mut self, chunk: &Bytes) -> Result<String, BodyError> {
        let length = chunk.len();
        match &mut self.signs {
            Signs::Nothing => Ok(format!("{length:x}\r\n")),
            Signs::Waits => Err(BodyError::Bad),
            Signs::Chunks(chain) => {
                let signature = chain.chunk(chunk).ok_or(BodyError::Bad)?;
                Ok(format!("{length:x}{SIGNATURE}{signature}\r\n"))
            }
        }
    }

    /// A chunk of nothing, and what comes behind it.
    fn end(&mut self) -> Result<String, BodyError> {
        let mut end = self.head(&Bytes::new())?;
        if let Some((checksum, summing)) = self.checksum.zip(self.summing.take()) {
            let sum = summing.end();
            end.push_str(&line(checksum, &sum));
            end.push_str("\r\n");
            if let Signs::Chunks(chain) = &mut self.signs {
                let signature = chain.trailer(checksum.field(), sum).ok_or(BodyError::Bad)?;
                end.push_str(TRAILER_SIGNATURE);
                end.push_str(signature);
                end.push_str("\r\n");
            }
        }
        end.push_str("\r\n");
        Ok(end)
    }
}

const SIGNATURE: &str = ";chunk-signature=";
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature:";

fn line(checksum: Checksum, sum: &str) -> String {
    format!("{}:{sum}", checksum.field())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        body::tests::{self, pieces},
        sign,
    };

    fn sent(mut body: Chunked) -> Result<Vec<u8>, BodyError> {
        tests::sent(body.encoded(), || body.poll(Waker::noop()))
    }

    #[test]
    fn a_checksum_comes_behind_a_body_in_chunks() {
        let body = Chunked::trailed(pieces(b"123456789", 4), 9, Checksum::Crc32);
        let expected = "9\r\n123456789\r\n0\r\nx-amz-checksum-crc32:y/Q5Jg==\r\n\r\n";
        assert_eq!(sent(body).unwrap(), expected.as_bytes());
        let none = Chunked::trailed(pieces(b"", 1), 0, Checksum::Sha256);
        assert!(sent(none).unwrap().starts_with(b"0\r\nx-amz-checksum-sha256:"));
        for length in [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 5] {
            let content = vec![0; length as usize];
            for each in [1000, 300_000, 5 << 20] {
                let body = Chunked::trailed(pieces(&content, each), length, Checksum::Crc64Nvme);
                let all = sent(body).unwrap();
                let kept = all.iter().filter(|byte| **byte == 0).count();
                assert_eq!(kept as u64, length);
            }
        }
    }

    #[test]
    fn a_body_that_is_not_as_long_as_it_says_breaks_off() {
        for length in [8, 10] {
            let trailed = Chunked::trailed(pieces(b"123456789", 4), length, Checksum::Crc32);
            assert_eq!(sent(trailed), Err(BodyError::Bad), "{length}");
            let mut signed = Chunked::signed(pieces(b"123456789", 4), length, None);
            signed.sign(sign::tests::chain(""));
            assert_eq!(sent(signed), Err(BodyError::Bad), "{length}");
        }
        let unsigned = Chunked::signed(pieces(b"123456789", 4), 9, None);
        assert_eq!(sent(unsigned), Err(BodyError::Bad), "its head was not signed");
    }

    /// The examples of the reference: 66,560 letters in chunks of 64 KiB.
    #[test]
    fn the_examples_of_chunks_that_are_signed() {
        let content = vec![b'a'; 66560];
        for (each, checksum, seed, signatures, behind) in [
            (
                1000,
                None,
                "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
                [
                    "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
                    "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
                    "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
                ],
                "",
            ),
            (
                100_000,
                Some(Checksum::Crc32c),
                "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
                [
                    "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
                    "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
                    "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
                ],
                "x-amz-checksum-crc32c:sOO8/Q==\r\n\
                 x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n",
            ),
        ] {
            let mut body = Chunked::new(pieces(&content, each), 66560, checksum, Signs::Waits, 64 << 10);
            body.sign(sign::tests::chain(seed));
            let all = String::from_utf8(sent(body).unwrap()).unwrap();
            let [first, second, last] = signatures;
            let expected = format!(
                "10000;chunk-signature={first}\r\n{}\r\n400;chunk-signature={second}\r\n{}\r\n0;chunk-signature={last}\r\n{behind}\r\n",
                "a".repeat(65536),
                "a".repeat(1024),
            );
            assert!(all == expected, "{}", all.replace(&"a".repeat(64), ""));
        }
    }
}
