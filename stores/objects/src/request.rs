//! What requests say, in this crate's words, and answers in the protocol's.

use crate::{
    conditions::seconds,
    fault,
    record::{Fields, Millis},
    sums::{Algorithm, Digests, Sum, decode_md5},
};
use http::{HeaderMap, StatusCode};
use percent_encoding::percent_decode_str;
use s3s::{
    S3Result, TrailingHeaders,
    dto::{self, ETag, Metadata, Timestamp},
    s3_error,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of metadata at most.
const METADATA_LIMIT: usize = 2 << 10;

/// Sets the checksum of an answer.
macro_rules! set_sum {
    ($output:expr, $sum:expr) => {{
        if let Some(sum) = $sum {
            let value = Some(sum.value.clone());
            match sum.algorithm {
                $crate::sums::Algorithm::Crc32 => $output.checksum_crc32 = value,
                $crate::sums::Algorithm::Crc32c => $output.checksum_crc32c = value,
                $crate::sums::Algorithm::Crc64Nvme => $output.checksum_crc64nvme = value,
                $crate::sums::Algorithm::Sha1 => $output.checksum_sha1 = value,
                $crate::sums::Algorithm::Sha256 => $output.checksum_sha256 = value,
            }
        }
    }};
}
pub(crate) use set_sum;

/// The checksums that a request carries, in the order of [`Algorithm::ALL`].
macro_rules! sums_of {
    ($input:expr) => {
        [
            $input.checksum_crc32.take(),
            $input.checksum_crc32c.take(),
            $input.checksum_crc64nvme.take(),
            $input.checksum_sha1.take(),
            $input.checksum_sha256.take(),
        ]
    };
}
pub(crate) use sums_of;

/// The fields of an object that a request brings.
macro_rules! fields_of {
    ($input:expr) => {
        $crate::request::fields($crate::record::Fields {
            content_type: $input.content_type.take(),
            cache_control: $input.cache_control.take(),
            content_disposition: $input.content_disposition.take(),
            content_encoding: $input.content_encoding.take(),
            content_language: $input.content_language.take(),
            expires: $input
                .expires
                .take()
                .and_then(|time| $crate::conditions::seconds(&time)),
            redirect: $input.website_redirect_location.take(),
            user: $input.metadata.take().unwrap_or_default().into_iter().collect(),
        })
    };
}
pub(crate) use fields_of;

/// Refuses what a write asks for and does not get.
macro_rules! refuse_unsupported {
    ($input:expr) => {
        $crate::request::refuse(&[
            (
                "encryption with keys of the client",
                $input.sse_customer_algorithm.is_some() || $input.sse_customer_key.is_some(),
            ),
            (
                "server-side encryption",
                $input.server_side_encryption.is_some() || $input.ssekms_key_id.is_some(),
            ),
            (
                "object lock",
                $input.object_lock_mode.is_some() || $input.object_lock_legal_hold_status.is_some(),
            ),
            (
                "a grant",
                $input.grant_full_control.is_some()
                    || $input.grant_read.is_some()
                    || $input.grant_read_acp.is_some()
                    || $input.grant_write_acp.is_some(),
            ),
        ])
        .and_then(|()| $crate::request::check_acl($input.acl.as_ref().map(|acl| acl.as_str())))
        .and_then(|()| {
            $crate::request::check_class($input.storage_class.as_ref().map(|class| class.as_str()))
        })
    };
}
pub(crate) use refuse_unsupported;

pub(crate) fn refuse(asked: &[(&str, bool)]) -> S3Result<()> {
    match asked.iter().find(|(_, asked)| *asked) {
        Some((what, _)) => Err(fault::not_implemented(what)),
        None => Ok(()),
    }
}

/// The owner has all rights, as without any ACL; there are no others.
pub(crate) fn check_acl(acl: Option<&str>) -> S3Result<()> {
    match acl {
        None | Some("private" | "bucket-owner-full-control") => Ok(()),
        Some(_) => Err(s3_error!(
            AccessControlListNotSupported,
            "The bucket does not allow ACLs"
        )),
    }
}

pub(crate) fn check_class(class: Option<&str>) -> S3Result<()> {
    match class {
        None | Some("STANDARD") => Ok(()),
        Some(_) => Err(s3_error!(
            InvalidStorageClass,
            "The storage class you specified is not valid"
        )),
    }
}

/// There are no versions, and `null` is the name of the one that there is.
pub(crate) fn check_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("null") => Ok(()),
        Some(_) => Err(s3_error!(NoSuchVersion, "The specified version does not exist.")),
    }
}

/// Fields as they are kept: without what is the transfer's, and within their limit.
pub(crate) fn fields(mut fields: Fields) -> S3Result<Fields> {
    if let Some(encoding) = fields.content_encoding.take() {
        let kept: Vec<_> = encoding
            .split(',')
            .map(str::trim)
            .filter(|one| !one.is_empty() && !one.eq_ignore_ascii_case("aws-chunked"))
            .collect();
        fields.content_encoding = (!kept.is_empty()).then(|| kept.join(","));
    }
    fields.content_type = fields.content_type.filter(|kind| !kind.is_empty());
    let size: usize = fields
        .user
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if size > METADATA_LIMIT {
        return Err(s3_error!(
            MetadataTooLarge,
            "Your metadata headers exceed the maximum allowed metadata size"
        ));
    }
    Ok(fields)
}

pub(crate) fn metadata(fields: &Fields) -> Option<Metadata> {
    Some(fields.user.clone().into_iter().collect())
}

pub(crate) fn content_type(fields: &Fields) -> Option<String> {
    let kind = fields.content_type.as_deref().unwrap_or("binary/octet-stream");
    Some(kind.to_owned())
}

/// A time as answers have it: to the second.
pub(crate) fn timestamp(at: Millis) -> Timestamp {
    instant(i64::try_from(at / 1000).unwrap_or(i64::MAX))
}

pub(crate) fn instant(seconds: i64) -> Timestamp {
    let since = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        UNIX_EPOCH.checked_sub(since)
    } else {
        UNIX_EPOCH.checked_add(since)
    };
    // Year 9999 is the last that the protocol can write.
    let last = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    Timestamp::from(time.unwrap_or(last).clamp(SystemTime::UNIX_EPOCH, last))
}

pub(crate) fn etag(etag: &str) -> Option<ETag> {
    Some(ETag::Strong(etag.to_owned()))
}

pub(crate) fn time_of(time: Option<Timestamp>) -> Option<i64> {
    time.as_ref().and_then(seconds)
}

/// A header of the request that the protocol's types leave out.
pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// What a client says of the data that it sends.
pub(crate) struct Claims {
    md5: Option<[u8; 16]>,
    algorithm: Option<Algorithm>,
    /// In base 64; `None` if it comes behind the data.
    value: Option<String>,
    trailers: Option<TrailingHeaders>,
}

impl Claims {
    pub(crate) fn new(
        headers: &HeaderMap,
        trailers: Option<TrailingHeaders>,
        md5: Option<&str>,
        sums: [Option<String>; 5],
    ) -> S3Result<Self> {
        let md5 = match md5 {
            None => None,
            Some(text) => Some(
                decode_md5(text)
                    .ok_or_else(|| s3_error!(InvalidDigest, "The Content-MD5 you specified was invalid."))?,
            ),
        };
        let mut said = Algorithm::ALL
            .into_iter()
            .zip(sums)
            .filter_map(|(algorithm, value)| Some((algorithm, value?)));
        let claim = said.next();
        if said.next().is_some() {
            return Err(s3_error!(
                InvalidRequest,
                "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
            ));
        }
        let (algorithm, value) = match claim {
            Some((algorithm, value)) if algorithm.is_digest(&value) => (Some(algorithm), Some(value)),
            Some((algorithm, _)) => {
                return Err(s3_error!(
                    InvalidRequest,
                    "Value for x-amz-checksum-{} header is invalid.",
                    algorithm.name().to_ascii_lowercase()
                ));
            }
            None => (trailer(headers)?, None),
        };
        if algorithm.is_none() && headers.contains_key("x-amz-sdk-checksum-algorithm") {
            return Err(s3_error!(
                InvalidRequest,
                "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found."
            ));
        }
        Ok(Self {
            md5,
            algorithm,
            value,
            trailers,
        })
    }

    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm
    }

    /// Whether the data is what the client says.
    pub(crate) fn check(&self, digests: &Digests) -> S3Result<()> {
        if self.md5.is_some_and(|md5| md5 != digests.md5) {
            return Err(s3_error!(
                BadDigest,
                "The Content-MD5 you specified did not match what we received."
            ));
        }
        let Some(algorithm) = self.algorithm else {
            return Ok(());
        };
        let behind = || {
            let name = format!("x-amz-checksum-{}", algorithm.name().to_ascii_lowercase());
            let trailers = self.trailers.as_ref()?;
            trailers.read(|trailers| header(trailers, &name).map(ToOwned::to_owned))?
        };
        let value = self.value.clone().or_else(behind).ok_or_else(|| {
            fault::coded(
                "MalformedTrailerError",
                StatusCode::BAD_REQUEST,
                "The request contained trailing data that was not well-formed or did not conform to our published schema.",
            )
        })?;
        if digests.sum(algorithm) == Some(value.as_str()) {
            Ok(())
        } else {
            Err(fault::bad_digest(algorithm.name()))
        }
    }
}

/// The checksum that the request says will come behind the data.
fn trailer(headers: &HeaderMap) -> S3Result<Option<Algorithm>> {
    let Some(names) = header(headers, "x-amz-trailer") else {
        return Ok(None);
    };
    for name in names.split(',') {
        if let Some(name) = name.trim().to_ascii_lowercase().strip_prefix("x-amz-checksum-") {
            return match Algorithm::parse(name) {
                Some(algorithm) => Ok(Some(algorithm)),
                None => Err(s3_error!(
                    InvalidRequest,
                    "The value specified in the x-amz-trailer header is not supported"
                )),
            };
        }
    }
    Ok(None)
}

/// An algorithm that a request names.
pub(crate) fn algorithm(named: Option<&dto::ChecksumAlgorithm>) -> S3Result<Option<Algorithm>> {
    let Some(named) = named else { return Ok(None) };
    match Algorithm::parse(named.as_str()) {
        Some(algorithm) => Ok(Some(algorithm)),
        None => Err(s3_error!(
            InvalidRequest,
            "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]"
        )),
    }
}

pub(crate) fn kind_of(sum: Option<&Sum>) -> Option<dto::ChecksumType> {
    sum.map(|sum| dto::ChecksumType::from_static(sum.kind.name()))
}

/// Percent-decoded, with `+` for a space, as forms are.
pub(crate) fn decode_form(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    percent_decode_str(&text)
        .decode_utf8()
        .ok()
        .map(std::borrow::Cow::into_owned)
}
