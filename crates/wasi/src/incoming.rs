//! A body that a guest reads: that of the request, or of a reply to one of its own.

use bytes::Bytes;
use contract::{Body, BodyError, BodyStream, Trailers};
use std::task::{Poll, Waker};

/// What is here of a body, and where the rest comes from.
pub struct Incoming {
    pub(crate) here: Bytes,
    pub(crate) position: usize,
    pub(crate) rest: Option<Box<dyn BodyStream>>,
    /// How the rest broke off.
    broken: Option<BodyError>,
}

impl Incoming {
    /// A body of which nothing was read.
    pub fn new(body: Body) -> Self {
        let (here, rest) = match body {
            Body::Whole(bytes) => (bytes, None),
            Body::Stream(stream) => (Bytes::new(), Some(stream)),
        };
        Self {
            here,
            position: 0,
            rest,
            broken: None,
        }
    }

    /// How many of the bytes that are here were not read.
    pub fn unread(&self) -> usize {
        self.here.len() - self.position
    }

    /// How many bytes can be taken now, at least 1; 0 at the body's end.
    pub fn poll_unread(&mut self, waker: &Waker) -> Poll<Result<usize, BodyError>> {
        if self.unread() > 0 {
            return Poll::Ready(Ok(self.unread()));
        }
        if let Some(error) = self.broken {
            return Poll::Ready(Err(error));
        }
        let Some(rest) = &mut self.rest else {
            return Poll::Ready(Ok(0));
        };
        rest.poll_next(waker).map(|next| match next {
            Ok(Some(piece)) => {
                self.position = 0;
                self.here = piece;
                Ok(self.here.len())
            }
            Ok(None) => Ok(0),
            Err(error) => {
                self.broken = Some(error);
                Err(error)
            }
        })
    }

    /// Takes the next bytes that are here, at most so many, without a copy.
    pub fn take(&mut self, most: usize) -> Bytes {
        let from = self.position;
        self.position += most.min(self.unread());
        self.here.slice(from..self.position)
    }

    /// Takes the next bytes that are here, as many as `into` holds.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.unread());
        into[..count].copy_from_slice(&self.here[self.position..self.position + count]);
        self.position += count;
        count
    }

    /// Reads to the end.
    pub fn poll_end(&mut self, waker: &Waker) -> Poll<Result<(), BodyError>> {
        while std::task::ready!(self.poll_unread(waker))? > 0 {
            self.take(usize::MAX);
        }
        Poll::Ready(Ok(()))
    }

    /// What followed the body, once that was taken to its end.
    pub fn trailers(&mut self) -> Trailers {
        self.rest
            .as_mut()
            .map_or_else(Trailers::new, |rest| rest.trailers())
    }
}
