//! Bodies on their way: up as hyper takes them, down as a sandbox reads them.

use crate::{
    checksum::{Checksum, Summing},
    chunks::Chunked,
    sign::Chain,
};
use aws::Progress;
use bytes::{Bytes, BytesMut};
use contract::{Body, BodyError, BodyStream, Trailers};
use http_body::{Frame, SizeHint};
use std::{
    future::poll_fn,
    pin::Pin,
    sync::atomic::Ordering::Relaxed,
    task::{Context, Poll, Waker, ready},
};

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
    Chunked(Box<Chunked>),
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

    /// The same in chunks.
    pub(crate) fn chunked(chunked: Chunked) -> Self {
        Self {
            left: chunked.encoded(),
            source: Source::Chunked(Box::new(chunked)),
            progress: Progress::default(),
        }
    }

    /// The head is signed: chunks are to be, after it.
    pub(crate) fn sign(&mut self, chain: Chain) {
        if let Source::Chunked(chunked) = &mut self.source {
            chunked.sign(chain);
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
            Source::Chunked(chunked) => ready!(chunked.poll(waker))?,
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
pub(crate) mod tests {
    use super::*;
    use std::collections::VecDeque;

    struct Pieces(VecDeque<Bytes>);

    impl BodyStream for Pieces {
        fn poll_next(&mut self, _: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
            Poll::Ready(Ok(self.0.pop_front()))
        }

        fn trailers(&mut self) -> Trailers {
            Trailers::new()
        }
    }

    pub(crate) fn pieces(bytes: &[u8], each: usize) -> Box<dyn BodyStream> {
        Box::new(Pieces(bytes.chunks(each).map(Bytes::copy_from_slice).collect()))
    }

    /// All that is polled, which is as long as it said.
    pub(crate) fn sent(
        length: u64,
        mut poll: impl FnMut() -> Poll<Result<Option<Bytes>, BodyError>>,
    ) -> Result<Vec<u8>, BodyError> {
        let mut all = Vec::new();
        loop {
            match poll() {
                Poll::Pending => panic!("nothing waits"),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(Some(piece))) => all.extend_from_slice(&piece),
                Poll::Ready(Ok(None)) => break,
            }
        }
        assert_eq!(all.len() as u64, length, "it is as long as it said");
        Ok(all)
    }

    fn outgoing(mut body: Outgoing) -> Result<Vec<u8>, BodyError> {
        sent(body.length(), || body.poll(Waker::noop()))
    }

    #[test]
    fn a_body_that_is_not_as_long_as_it_says_breaks_off() {
        for length in [8, 10] {
            let plain = Outgoing::stream(pieces(b"123456789", 4), length);
            assert_eq!(outgoing(plain), Err(BodyError::Bad), "{length}");
        }
        assert_eq!(
            outgoing(Outgoing::stream(pieces(b"123456789", 4), 9)).unwrap(),
            b"123456789"
        );
        assert_eq!(
            outgoing(Outgoing::whole(Bytes::from_static(b"123"))).unwrap(),
            b"123"
        );
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
