//! Reads the answers on one connection: HTTP/1.1 with a content length, with chunks, or until the end.

use std::fmt;

/// What is wrong with an answer; the connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Not HTTP/1.1.
    Head,
    /// Chunks that do not hold together.
    Chunk,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "the answer's head is not HTTP/1.1",
            Self::Chunk => "the answer's chunks do not hold together",
        })
    }
}

/// One complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The body was what was expected.
    pub(crate) equal: bool,
    /// The server will close the connection.
    pub(crate) last: bool,
}

#[derive(Clone, Copy)]
enum Phase {
    Head,
    Length { left: usize },
    ChunkSize,
    ChunkData { left: usize },
    ChunkEnd,
    Trailer,
    ToTheEnd,
}

/// Takes the bytes of a connection as they come. The body is compared as it goes by and never kept.
pub(crate) struct Reader {
    phase: Phase,
    /// A line or head that has not come to its end.
    partial: Vec<u8>,
    status: u16,
    last: bool,
    seen: usize,
    equal: bool,
}

const LONGEST_HEAD: usize = 64 * 1024;

impl Reader {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Head,
            partial: Vec::new(),
            status: 0,
            last: false,
            seen: 0,
            equal: true,
        }
    }

    /// Reads `bytes` and hands on each answer that they complete. With no `expected` body every body is as expected.
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        expected: Option<&[u8]>,
        mut answered: impl FnMut(Answer),
    ) -> Result<(), Broken> {
        if self.partial.is_empty() {
            let used = self.advance(bytes, expected, &mut answered)?;
            self.partial.extend_from_slice(&bytes[used..]);
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(bytes);
            let used = self.advance(&whole, expected, &mut answered)?;
            whole.drain(..used);
            self.partial = whole;
        }
        if self.partial.len() > LONGEST_HEAD {
            Err(Broken::Head)
        } else {
            Ok(())
        }
    }

    /// The server closed the connection. True if that completes an answer.
    pub(crate) fn end(&mut self, expected: Option<&[u8]>) -> Option<Answer> {
        matches!(self.phase, Phase::ToTheEnd).then(|| self.complete(expected))
    }

    fn advance(
        &mut self,
        bytes: &[u8],
        expected: Option<&[u8]>,
        answered: &mut impl FnMut(Answer),
    ) -> Result<usize, Broken> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.phase {
                Phase::Head => {
                    let Some(length) = self.head(rest)? else {
                        return Ok(at);
                    };
                    at += length;
                    if matches!(self.phase, Phase::Length { left: 0 }) {
                        answered(self.complete(expected));
                    }
                }
                Phase::Length { left } => {
                    let take = left.min(rest.len());
                    self.body(&rest[..take], expected);
                    at += take;
                    self.phase = Phase::Length { left: left - take };
                    if take == left {
                        answered(self.complete(expected));
                    }
                }
                Phase::ToTheEnd => {
                    self.body(rest, expected);
                    at = bytes.len();
                }
                Phase::ChunkData { left } => {
                    let take = left.min(rest.len());
                    self.body(&rest[..take], expected);
                    at += take;
                    self.phase = if take == left {
                        Phase::ChunkEnd
                    } else {
                        Phase::ChunkData { left: left - take }
                    };
                }
                Phase::ChunkSize | Phase::ChunkEnd | Phase::Trailer => {
                    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                        return Ok(at);
                    };
                    at += end + 1;
                    let line = rest[..end].strip_suffix(b"\r").ok_or(Broken::Chunk)?;
                    self.phase = match self.phase {
                        Phase::ChunkSize => match chunk_size(line)? {
                            0 => Phase::Trailer,
                            left => Phase::ChunkData { left },
                        },
                        Phase::ChunkEnd if line.is_empty() => Phase::ChunkSize,
                        Phase::Trailer if !line.is_empty() => Phase::Trailer,
                        Phase::Trailer => {
                            answered(self.complete(expected));
                            Phase::Head
                        }
                        _ => return Err(Broken::Chunk),
                    };
                }
            }
        }
        Ok(at)
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Broken> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Broken::Head),
        };
        self.status = response.code.ok_or(Broken::Head)?;
        self.phase = Phase::ToTheEnd;
        self.last = false;
        for header in response.headers.iter() {
            // Lengths first: most names then need no comparison.
            match header.name.len() {
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    let text = std::str::from_utf8(header.value).map_err(|_| Broken::Head)?;
                    self.phase = Phase::Length {
                        left: text.trim().parse().map_err(|_| Broken::Head)?,
                    };
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    self.phase = Phase::ChunkSize;
                }
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    self.last = header.value.eq_ignore_ascii_case(b"close");
                }
                _ => {}
            }
        }
        Ok(Some(length))
    }

    fn body(&mut self, bytes: &[u8], expected: Option<&[u8]>) {
        let end = self.seen + bytes.len();
        self.equal &= expected.is_none_or(|expected| expected.get(self.seen..end) == Some(bytes));
        self.seen = end;
    }

    fn complete(&mut self, expected: Option<&[u8]>) -> Answer {
        let whole = expected.is_none_or(|expected| self.seen == expected.len());
        let answer = Answer {
            status: self.status,
            equal: self.equal && whole,
            last: self.last,
        };
        self.phase = Phase::Head;
        self.seen = 0;
        self.equal = true;
        answer
    }
}

fn chunk_size(line: &[u8]) -> Result<usize, Broken> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(digits).map_err(|_| Broken::Chunk)?;
    usize::from_str_radix(text.trim(), 16).map_err(|_| Broken::Chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(stream: &[u8], piece: usize, expected: &[u8]) -> Result<Vec<Answer>, Broken> {
        let mut reader = Reader::new();
        let mut all = Vec::new();
        for bytes in stream.chunks(piece) {
            reader.read(bytes, Some(expected), |answer| all.push(answer))?;
        }
        all.extend(reader.end(Some(expected)));
        Ok(all)
    }

    #[test]
    fn answers_come_whole_however_they_are_cut() {
        let stream = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npong\n\
            HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\npo\r\n3;x=y\r\nng\n\r\n0\r\nDate: x\r\n\r\n\
            HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npung\n\
            HTTP/1.1 200 OK\r\nConnection: close\r\n\r\npong\n";
        let answer = |status, equal, last| Answer { status, equal, last };
        let expected = vec![
            answer(200, true, false),
            answer(200, true, false),
            answer(503, false, false),
            answer(200, false, false),
            answer(200, true, true),
        ];
        for piece in 1..stream.len() {
            assert_eq!(
                answers(stream, piece, b"pong\n"),
                Ok(expected.clone()),
                "in pieces of {piece}"
            );
        }
    }

    #[test]
    fn a_body_that_is_too_long_or_too_short_is_not_equal() {
        for body in ["pong\n\n", "pong"] {
            let stream = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let got = answers(stream.as_bytes(), 7, b"pong\n").unwrap();
            assert_eq!(
                got,
                [Answer {
                    status: 200,
                    equal: false,
                    last: false
                }]
            );
        }
    }

    #[test]
    fn what_is_no_answer_is_said_to_be_none() {
        assert_eq!(answers(b"SSH-2.0-OpenSSH\r\n\r\n", 100, b""), Err(Broken::Head));
        let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        assert_eq!(answers(chunks, 100, b""), Err(Broken::Chunk));
    }
}
