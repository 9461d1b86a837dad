//! S3's errors with the sentences that AWS writes.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>

use http::StatusCode;
use s3s::{S3Error, S3ErrorCode, s3_error};
use std::fmt::Display;

pub(crate) fn no_such_bucket() -> S3Error {
    s3_error!(NoSuchBucket, "The specified bucket does not exist")
}

pub(crate) fn no_such_key() -> S3Error {
    s3_error!(NoSuchKey, "The specified key does not exist.")
}

pub(crate) fn no_such_upload() -> S3Error {
    s3_error!(
        NoSuchUpload,
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."
    )
}

pub(crate) fn precondition() -> S3Error {
    s3_error!(
        PreconditionFailed,
        "At least one of the pre-conditions you specified did not hold"
    )
}

pub(crate) fn not_implemented(what: &str) -> S3Error {
    s3_error!(NotImplemented, "{what} is not supported by this server")
}

pub(crate) fn invalid_argument(message: &'static str) -> S3Error {
    s3_error!(InvalidArgument, "{message}")
}

pub(crate) fn invalid_part() -> S3Error {
    s3_error!(
        InvalidPart,
        "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified entity tag may \
         not match the part's entity tag."
    )
}

pub(crate) fn bad_digest(what: &str) -> S3Error {
    s3_error!(
        BadDigest,
        "The {what} you specified did not match the calculated checksum."
    )
}

/// A code that s3s has no name for.
pub(crate) fn coded(code: &'static str, status: StatusCode, message: &'static str) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message);
    error.set_status_code(status);
    error
}

/// The disk or the index failed: our fault, said in the log, and the client may try again.
pub(crate) fn internal(attempt: &str, reason: &dyn Display) -> S3Error {
    tracing::error!("the embedded S3 failed to {attempt}: {reason}");
    s3_error!(
        InternalError,
        "We encountered an internal error. Please try again."
    )
}

/// The operating system refused; a full disk is said by name.
pub(crate) fn disk(attempt: &str, error: &std::io::Error) -> S3Error {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    if !matches!(error.kind(), StorageFull | QuotaExceeded) {
        return internal(attempt, error);
    }
    tracing::error!("the embedded S3 failed to {attempt}, for its disk is full: {error}");
    full()
}

/// No room: the code is one that clients know and try again, the status says what it is.
pub(crate) fn full() -> S3Error {
    let mut error = s3_error!(
        InternalError,
        "The disk of the server is full: delete something, or give it a larger one."
    );
    error.set_status_code(StatusCode::INSUFFICIENT_STORAGE);
    error
}

/// The index failed.
pub(crate) fn index(attempt: &str, error: &redb::Error) -> S3Error {
    match error {
        redb::Error::Io(error) => disk(attempt, error),
        other => internal(attempt, other),
    }
}
