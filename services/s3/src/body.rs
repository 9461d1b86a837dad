//! Bodies on their way: up as hyper takes them, down as a sandbox reads them.

use crate::checksum::{Checksum, Summing};
use aws::Progress;
use bytes::{Bytes, BytesMut};
use contract::{Body, BodyError, BodyStream, Trailers};
use http_body::{Frame, SizeHint};
use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::atomic::Ordering::Relaxed,
    task::{Context, Poll, Waker, ready},
};

/// What is in one chunk of a body that has a checksum behind it. All but the last are of S3's 8 KiB at least; some servers take
/// none beyond 16 MiB.
const CHUNK: u64 = 1 << 20;

/// A request's body, whose length is known.
pub(crate) struct Outgoing {
    source: Source,
    /// What is to come, as it is sent.
    left: u64,
    progress: Progress,
}

enum Source {
    Whole(Bytes),
    Stream(Box<dyn BodyStream>),
    Trailed(Box<Trailed>),
}

impl Outgoing {
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self {
            left: bytes.len() as u64,
            source: Source::Whole(bytes),
            progress: Progress::default(),
        }
    }

    /// As many bytes as that: if there are fewer or more, what is sent breaks off.
    pub(crate) fn stream(stream: Box<dyn BodyStream>, length: u64) -> Self {
        Self {
            left: length,
            source: Source::Stream(stream),
            progress: Progress::default(),
        }
    }

    /// The same with a checksum behind it, framed as `aws-chunked`.
    pub(crate) fn trailed(stream: Box<dyn BodyStream>, length: u64, checksum: Checksum) -> Self {
        let trailed = Trailed::new(stream, length, checksum);
        Self {
            left: trailed.encoded(),
            source: Source::Trailed(Box::new(trailed)),
            progress: Progress::default(),
        }
    }

    /// Its length as it is sent.
    pub(crate) fn length(&self) -> u64 {
        self.left
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        let piece = match &mut self.source {
            Source::Whole(bytes) if bytes.is_empty() => None,
            Source::Whole(bytes) => Some(std::mem::take(bytes)),
            Source::Stream(stream) => ready!(stream.poll_next(waker))?,
            Source::Trailed(trailed) => ready!(trailed.poll(waker))?,
        };
        let length = piece.as_ref().map_or(0, Bytes::len) as u64;
        let left = self.left.checked_sub(length).ok_or(BodyError::Bad)?;
        if piece.is_none() && left > 0 {
            return Poll::Ready(Err(BodyError::Bad));
        }
        self.left = left;
        if !matches!(self.source, Source::Whole(_)) {
            self.progress.fetch_add(1, Relaxed);
        }
        Poll::Ready(Ok(piece))
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let piece = ready!(self.poll(context.waker()));
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// A body in chunks, and its checksum: `STREAMING-UNSIGNED-PAYLOAD-TRAILER` of the Amazon S3 API reference, "Signature Calculations
/// for the Authorization Header: Including Trailing Headers".
struct Trailed {
    stream: Box<dyn BodyStream>,
    checksum: Checksum,
    /// Until it is in the trailer.
    summing: Option<Summing>,
    /// What is still to come of the content, and of this chunk.
    left: u64,
    chunk: u64,
    /// What came and is not sent.
    piece: Bytes,
    /// What is framed.
    ready: VecDeque<Bytes>,
}

impl Trailed {
    fn new(stream: Box<dyn BodyStream>, length: u64, checksum: Checksum) -> Self {
        Self {
            stream,
            checksum,
            summing: Some(checksum.begin()),
            left: length,
            chunk: 0,
            piece: Bytes::new(),
            ready: VecDeque::new(),
        }
    }

    /// How long all of it will be.
    fn encoded(&self) -> u64 {
        let framed = |length: u64| head(length).len() as u64 + length + 2;
        let (full, rest) = (self.left / CHUNK, self.left % CHUNK);
        let last = if rest > 0 { framed(rest) } else { 0 };
        // A checksum is as long as any other of its kind.
        full * framed(CHUNK) + last + self.end(&self.checksum.of(b"")).len() as u64
    }

    fn end(&self, sum: &str) -> String {
        format!("0\r\n{}:{sum}\r\n\r\n", self.checksum.field())
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Ok(Some(piece)));
            }
            let Some(summing) = &mut self.summing else {
                return Poll::Ready(Ok(None));
            };
            if self.piece.is_empty() {
                match ready!(self.stream.poll_next(waker))? {
                    Some(piece) => self.piece = piece,
                    None if self.left == 0 => {
                        let sum = self.summing.take().map(Summing::end).unwrap_or_default();
                        self.ready.push_back(self.end(&sum).into());
                        continue;
                    }
                    None => return Poll::Ready(Err(BodyError::Bad)),
                }
            }
            if self.left == 0 {
                return Poll::Ready(Err(BodyError::Bad));
            }
            if self.chunk == 0 {
                self.chunk = self.left.min(CHUNK);
                self.ready.push_back(head(self.chunk).into());
            }
            let part = self.piece.len().min(self.chunk as usize);
            let part = self.piece.split_to(part);
            summing.add(&part);
            self.chunk -= part.len() as u64;
            self.left -= part.len() as u64;
            self.ready.push_back(part);
            if self.chunk == 0 {
                self.ready.push_back(Bytes::from_static(b"\r\n"));
            }
        }
    }
}

fn head(length: u64) -> String {
    format!("{length:x}\r\n")
}

/// All of a body, if it is not longer than that. Where it is known how long it will be, its memory is not made larger piece by piece.
pub(crate) async fn gathered(
    body: Body,
    most: usize,
    known: Option<u64>,
) -> Result<Option<Bytes>, BodyError> {
    let mut stream = match body {
        Body::Whole(bytes) => return Ok((bytes.len() <= most).then_some(bytes)),
        Body::Stream(stream) => stream,
    };
    let known = known.and_then(|known| usize::try_from(known).ok());
    let mut all = BytesMut::with_capacity(known.unwrap_or(0).min(most));
    while let Some(piece) = poll_fn(|context| stream.poll_next(context.waker())).await? {
        if all.len() + piece.len() > most {
            return Ok(None);
        }
        all.extend_from_slice(&piece);
    }
    Ok(Some(all.freeze()))
}

/// A reply's body whose checksum was told. What came last is held back until the sum is found to be right: who takes as many bytes as it said
/// it has, and asks for no more, has not got a damaged one either.
pub(crate) struct Verified<B> {
    body: B,
    /// Until it is compared.
    summing: Option<Summing>,
    expected: String,
    last: Option<Bytes>,
    end: Option<Result<(), BodyError>>,
}

impl<B: BodyStream> Verified<B> {
    pub(crate) fn new(body: B, (checksum, expected): (Checksum, String)) -> Self {
        Self {
            body,
            summing: Some(checksum.begin()),
            expected,
            last: None,
            end: None,
        }
    }
}

impl<B: BodyStream> BodyStream for Verified<B> {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            if let Some(end) = self.end {
                return Poll::Ready(end.map(|()| None));
            }
            match ready!(self.body.poll_next(waker)) {
                Ok(Some(piece)) => {
                    if let Some(summing) = &mut self.summing {
                        summing.add(&piece);
                    }
                    if let Some(before) = self.last.replace(piece) {
                        return Poll::Ready(Ok(Some(before)));
                    }
                }
                Ok(None) => {
                    let sum = self.summing.take().map(Summing::end);
                    let is_right = sum.as_ref() == Some(&self.expected);
                    self.end = Some(if is_right { Ok(()) } else { Err(BodyError::Damaged) });
                    if let Some(last) = self.last.take().filter(|_| is_right) {
                        return Poll::Ready(Ok(Some(last)));
                    }
                }
                Err(error) => self.end = Some(Err(error)),
            }
        }
    }

    fn trailers(&mut self) -> Trailers {
        self.body.trailers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pieces(VecDeque<Bytes>);

    impl BodyStream for Pieces {
        fn poll_next(&mut self, _: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
            Poll::Ready(Ok(self.0.pop_front()))
        }

        fn trailers(&mut self) -> Trailers {
            Trailers::new()
        }
    }

    fn pieces(bytes: &[u8], each: usize) -> Box<dyn BodyStream> {
        Box::new(Pieces(bytes.chunks(each).map(Bytes::copy_from_slice).collect()))
    }

    fn sent(mut body: Outgoing) -> Result<Vec<u8>, BodyError> {
        let (length, mut all) = (body.length(), Vec::new());
        loop {
            match body.poll(Waker::noop()) {
                Poll::Pending => panic!("nothing waits"),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(Some(piece))) => all.extend_from_slice(&piece),
                Poll::Ready(Ok(None)) => break,
            }
        }
        assert_eq!(all.len() as u64, length, "it is as long as it said");
        Ok(all)
    }

    #[test]
    fn a_checksum_comes_behind_a_body_in_chunks() {
        let body = Outgoing::trailed(pieces(b"123456789", 4), 9, Checksum::Crc32);
        let expected = "9\r\n123456789\r\n0\r\nx-amz-checksum-crc32:y/Q5Jg==\r\n\r\n";
        assert_eq!(sent(body).unwrap(), expected.as_bytes());
        let none = Outgoing::trailed(pieces(b"", 1), 0, Checksum::Sha256);
        assert!(sent(none).unwrap().starts_with(b"0\r\nx-amz-checksum-sha256:"));
        for length in [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 5] {
            let content = vec![0; length as usize];
            for each in [1000, 300_000, 5 << 20] {
                let body = Outgoing::trailed(pieces(&content, each), length, Checksum::Crc64Nvme);
                let all = sent(body).unwrap();
                let kept = all.iter().filter(|byte| **byte == 0).count();
                assert_eq!(kept as u64, length);
            }
        }
    }

    #[test]
    fn a_body_that_is_not_as_long_as_it_says_breaks_off() {
        for length in [8, 10] {
            let plain = Outgoing::stream(pieces(b"123456789", 4), length);
            assert_eq!(sent(plain), Err(BodyError::Bad), "{length}");
            let trailed = Outgoing::trailed(pieces(b"123456789", 4), length, Checksum::Crc32);
            assert_eq!(sent(trailed), Err(BodyError::Bad), "{length}");
        }
        assert_eq!(
            sent(Outgoing::stream(pieces(b"123456789", 4), 9)).unwrap(),
            b"123456789"
        );
        assert_eq!(sent(Outgoing::whole(Bytes::from_static(b"123"))).unwrap(), b"123");
    }

    #[test]
    fn a_body_that_does_not_have_its_checksum_never_comes_whole() {
        let read = |bytes: &[u8], each, expected: &str| {
            let pieces = Pieces(bytes.chunks(each).map(Bytes::copy_from_slice).collect());
            let mut body = Verified::new(pieces, (Checksum::Crc32, expected.to_owned()));
            let mut all = Vec::new();
            loop {
                match body.poll_next(Waker::noop()) {
                    Poll::Pending => panic!("nothing waits"),
                    Poll::Ready(Ok(Some(piece))) => all.extend_from_slice(&piece),
                    Poll::Ready(Ok(None)) => return Ok(all),
                    Poll::Ready(Err(error)) => {
                        let again = body.poll_next(Waker::noop());
                        assert_eq!(again, Poll::Ready(Err(error)), "the error stays the same");
                        return Err((all.len(), error));
                    }
                }
            }
        };
        for each in [1, 4, 9] {
            assert_eq!(read(b"123456789", each, "y/Q5Jg=="), Ok(b"123456789".to_vec()));
            let (came, error) = read(b"123456780", each, "y/Q5Jg==").unwrap_err();
            assert_eq!(error, BodyError::Damaged);
            assert!(came < 9, "{came} of 9 bytes came");
        }
        assert_eq!(read(b"", 1, "AAAAAA=="), Ok(Vec::new()));
        assert_eq!(read(b"", 1, "y/Q5Jg=="), Err((0, BodyError::Damaged)));
        assert_eq!(read(b"1", 1, "no sum"), Err((0, BodyError::Damaged)));
    }
}
