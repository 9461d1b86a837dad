//! Data on its way in and out.
//!
//! In: pieces are collected to [`WRITE`] bytes, then a thread that may wait for the disk hashes and writes them, and only
//! then more is taken from the connection. Out: [`READ`] bytes are read when the connection has taken those before.

use crate::{
    Inner, blocking,
    changes::Data,
    fault,
    files::{Draft, Files, Id, Pin},
    request::Claims,
    sums::{Algorithm, Digests, Hasher},
};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::StatusCode;
use s3s::{S3Error, S3Result, StdError, dto::StreamingBlob, s3_error};
use std::{
    collections::VecDeque, fs::File, io, ops::Range, os::unix::fs::FileExt, sync::Arc, time::Duration,
};
use tokio::time::timeout;

const WRITE: usize = 512 << 10;
const READ: usize = 256 << 10;
/// How long a client may send nothing of what it owes.
const IDLE: Duration = Duration::from_secs(60);
/// Bytes of an object that is put at once, or of a part, at most.
pub(crate) const LARGEST: u64 = 5 << 30;

/// Data that was received, is what the client says, and lies on the disk unless it is small.
pub(crate) struct Received {
    pub(crate) data: Data,
    pub(crate) digests: Digests,
}

/// What is being received.
struct Receiving {
    files: Arc<Files>,
    hasher: Hasher,
    pieces: Vec<Bytes>,
    draft: Option<Draft>,
}

impl Receiving {
    fn write(mut self) -> S3Result<Self> {
        let failed = |error| fault::disk("write an object's data", &error);
        let mut draft = match self.draft.take() {
            Some(draft) => draft,
            None => self.files.draft().map_err(failed)?,
        };
        for piece in self.pieces.drain(..) {
            self.hasher.update(&piece);
            draft.write(&piece).map_err(failed)?;
        }
        self.draft = Some(draft);
        Ok(self)
    }
}

/// Receives data of up to `small` bytes into memory, and more, or all if `small` is `None`, into a file.
pub(crate) async fn receive(
    inner: &Arc<Inner>,
    body: Option<StreamingBlob>,
    length: Option<i64>,
    claims: &Claims,
    keeps: Algorithm,
    small: Option<usize>,
) -> S3Result<Received> {
    let length = length.and_then(|length| u64::try_from(length).ok());
    if length.is_some_and(|length| length > LARGEST) {
        return Err(too_large());
    }
    let mut algorithms = vec![keeps];
    algorithms.extend(claims.algorithm());
    let mut receiving = Receiving {
        files: Arc::clone(&inner.files),
        hasher: Hasher::new(&algorithms),
        pieces: Vec::new(),
        draft: None,
    };
    let (mut size, mut waiting) = (0_u64, 0);
    let mut body = body;
    while let Some(stream) = &mut body {
        let piece = match timeout(IDLE, stream.next()).await {
            Ok(Some(piece)) => piece.map_err(|error| broken(&error))?,
            Ok(None) => break,
            Err(_) => {
                return Err(s3_error!(
                    RequestTimeout,
                    "Your socket connection to the server was not read from or written to within the timeout period. Idle connections will be closed."
                ));
            }
        };
        size += piece.len() as u64;
        waiting += piece.len();
        if size > length.unwrap_or(LARGEST) {
            return Err(if length.is_some() {
                incomplete()
            } else {
                too_large()
            });
        }
        receiving.pieces.push(piece);
        if waiting >= WRITE {
            receiving = blocking(move || receiving.write()).await?;
            waiting = 0;
        }
    }
    // A body in chunks may end early without a word.
    if length.is_some_and(|length| length != size) {
        return Err(incomplete());
    }
    if receiving.draft.is_none() && small.is_some_and(|small| size <= small as u64) {
        let mut data = BytesMut::with_capacity(waiting);
        for piece in receiving.pieces {
            receiving.hasher.update(&piece);
            data.extend_from_slice(&piece);
        }
        let digests = receiving.hasher.finish();
        claims.check(&digests)?;
        return Ok(Received {
            data: Data::Small(data.freeze()),
            digests,
        });
    }
    let Receiving { hasher, draft, .. } = blocking(move || receiving.write()).await?;
    let digests = hasher.finish();
    claims.check(&digests)?;
    let Some(draft) = draft else {
        return Err(fault::internal("write an object's data", &"its file is gone"));
    };
    let data = synced(draft).await?;
    Ok(Received { data, digests })
}

async fn synced(draft: Draft) -> S3Result<Data> {
    blocking(move || match draft.sync() {
        Ok(()) => Ok(Data::File(draft)),
        Err(error) => Err(fault::disk("flush an object's data", &error)),
    })
    .await
}

pub(crate) fn too_large() -> S3Error {
    s3_error!(
        EntityTooLarge,
        "Your proposed upload exceeds the maximum allowed size"
    )
}

fn incomplete() -> S3Error {
    s3_error!(
        IncompleteBody,
        "You did not provide the number of bytes specified by the Content-Length HTTP header"
    )
}

/// Why a body came to no good end. The types of these errors are private to s3s, their texts are not.
fn broken(error: &StdError) -> S3Error {
    let text = error.to_string();
    if text.contains("Sha256Mismatch") {
        fault::coded(
            "XAmzContentSHA256Mismatch",
            StatusCode::BAD_REQUEST,
            "The provided 'x-amz-content-sha256' header does not match what was computed.",
        )
    } else if text.contains("SignatureMismatch") {
        s3_error!(
            SignatureDoesNotMatch,
            "The request signature we calculated does not match the signature you provided. Check your key and signing method."
        )
    } else {
        tracing::debug!("a body broke off: {text}");
        incomplete()
    }
}

/// Bytes of files, one after the other.
pub(crate) struct Reader {
    files: Arc<Files>,
    /// Which bytes of which file come yet.
    ahead: VecDeque<(Id, Range<u64>)>,
    open: Option<(Id, File)>,
    _pin: Pin,
}

impl Reader {
    pub(crate) fn new(files: Arc<Files>, ahead: VecDeque<(Id, Range<u64>)>, pin: Pin) -> Self {
        Self {
            files,
            ahead,
            open: None,
            _pin: pin,
        }
    }

    /// The next bytes; none at the end.
    pub(crate) fn next(&mut self) -> io::Result<Bytes> {
        while let Some((id, range)) = self.ahead.front_mut() {
            if range.is_empty() {
                self.ahead.pop_front();
                continue;
            }
            let file = match &self.open {
                Some((open, file)) if open == id => file,
                _ => {
                    let file = self.files.read(*id)?;
                    &self.open.insert((*id, file)).1
                }
            };
            let length = usize::try_from(range.end - range.start).map_or(READ, |length| length.min(READ));
            let mut data = BytesMut::zeroed(length);
            file.read_exact_at(&mut data, range.start)?;
            range.start += length as u64;
            return Ok(data.freeze());
        }
        Ok(Bytes::new())
    }

    /// Sends it. The first bytes are read now, so that a file that cannot be is an error and no broken answer.
    pub(crate) async fn send(self) -> S3Result<StreamingBlob> {
        let first = step(self).await;
        let first = first.map_err(|error| fault::disk("read an object's data", &error))?;
        let rest = stream::unfold(Some(first), |state| async {
            match state? {
                (data, _) if data.is_empty() => None,
                (data, reader) => match step(reader).await {
                    Ok(next) => Some((Ok(data), Some(next))),
                    Err(error) => {
                        let _ = fault::disk("read on in an object's data", &error);
                        Some((Err(error), None))
                    }
                },
            }
        });
        Ok(StreamingBlob::wrap(rest))
    }

    /// Reads it all into a file of its own, or into memory if it has `small` bytes at most. Waits for the disk.
    pub(crate) fn copy(
        mut self,
        size: u64,
        small: Option<usize>,
        mut hasher: Hasher,
    ) -> S3Result<(Data, Digests)> {
        let read = |error| fault::disk("read an object's data", &error);
        let write = |error| fault::disk("write an object's data", &error);
        if small.is_some_and(|small| size <= small as u64) {
            let mut data = BytesMut::new();
            loop {
                let piece = self.next().map_err(read)?;
                if piece.is_empty() {
                    break;
                }
                hasher.update(&piece);
                data.extend_from_slice(&piece);
            }
            return Ok((Data::Small(data.freeze()), hasher.finish()));
        }
        let mut draft = self.files.draft().map_err(write)?;
        loop {
            let piece = self.next().map_err(read)?;
            if piece.is_empty() {
                break;
            }
            hasher.update(&piece);
            draft.write(&piece).map_err(write)?;
        }
        draft.sync().map_err(write)?;
        Ok((Data::File(draft), hasher.finish()))
    }
}

async fn step(mut reader: Reader) -> io::Result<(Bytes, Reader)> {
    let step = tokio::task::spawn_blocking(move || Ok((reader.next()?, reader)));
    step.await.map_err(io::Error::other)?
}
