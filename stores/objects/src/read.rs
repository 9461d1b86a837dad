//! Reading objects.

use crate::{
    Inner, blocking,
    body::Reader,
    conditions::{Failed, Reading},
    fault,
    files::Pin,
    index::{self, CONTENTS, layout},
    record::{Layout, Place, Record},
    request::{
        check_version, content_type, etag, instant, kind_of, metadata, refuse, set_sum, time_of, timestamp,
    },
    sums::Sum,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use s3s::{
    Body, S3Error, S3Request, S3Response, S3Result,
    dto::{
        self, ChecksumMode, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, StreamingBlob,
    },
    s3_error,
};
use std::{collections::VecDeque, ops::Range, sync::Arc};

/// An object as it was at one moment, and keeps being for this reader.
pub(crate) struct Source {
    pub(crate) record: Record,
    pub(crate) layout: Option<Layout>,
    small: Option<Bytes>,
    pin: Pin,
}

/// Opens an object for reading.
pub(crate) async fn open(inner: &Arc<Inner>, bucket: &str, key: &str) -> S3Result<Source> {
    let (inner, bucket, key) = (Arc::clone(inner), bucket.to_owned(), key.to_owned());
    blocking(move || {
        let read = || {
            inner.index.read("read an object", |transaction| {
                let record = match index::record(transaction, &bucket, &key)? {
                    Ok(record) => record,
                    Err(refused) => return Ok(Err(refused)),
                };
                let contents = transaction.open_table(CONTENTS)?;
                let (mut parts, mut small, mut files) = (None, None, Vec::new());
                match record.place {
                    Place::Nowhere => {}
                    Place::Index => {
                        let data = contents.get(record.id.0)?;
                        let data = data.ok_or_else(|| {
                            redb::Error::Corrupted(format!("the data {} is gone", record.id))
                        })?;
                        small = Some(Bytes::copy_from_slice(data.value()));
                    }
                    Place::File => files.push(record.id),
                    Place::Parts => {
                        let layout = layout(&contents, record.id)?;
                        files.extend(layout.0.iter().map(|piece| piece.file));
                        parts = Some(layout);
                    }
                }
                Ok(Ok(((record, parts, small), files)))
            })?
        };
        let ((record, layout, small), pin) = inner.files.pinned(read)?;
        Ok(Source {
            record,
            layout,
            small,
            pin,
        })
    })
    .await
}

impl Source {
    /// Reads some of its bytes.
    pub(crate) fn reader(self, inner: &Inner, range: Range<u64>) -> Content {
        let Self {
            record,
            layout,
            small,
            pin,
        } = self;
        if record.place == Place::Nowhere || range.is_empty() {
            return Content::Small(Bytes::new());
        }
        if let Some(small) = small {
            let bounds = |at| usize::try_from(at).unwrap_or(usize::MAX).min(small.len());
            return Content::Small(small.slice(bounds(range.start)..bounds(range.end)));
        }
        let mut ahead = VecDeque::new();
        let mut start = 0;
        let whole = [(record.id, record.size)];
        let pieces = layout.iter().flat_map(|layout| &layout.0);
        let pieces: Vec<_> = match layout {
            Some(_) => pieces.map(|piece| (piece.file, piece.size)).collect(),
            None => whole.to_vec(),
        };
        for (file, size) in pieces {
            let (from, to) = (range.start.max(start), range.end.min(start + size));
            if from < to {
                ahead.push_back((file, from - start..to - start));
            }
            start += size;
        }
        Content::Files(Reader::new(Arc::clone(&inner.files), ahead, pin))
    }
}

/// Bytes of an object.
pub(crate) enum Content {
    Small(Bytes),
    Files(Reader),
}

impl Content {
    async fn send(self) -> S3Result<StreamingBlob> {
        match self {
            Self::Small(bytes) => Ok(StreamingBlob::from(Body::from(bytes))),
            Self::Files(reader) => reader.send().await,
        }
    }
}

/// Which of an object's bytes a request is for.
#[derive(Debug, PartialEq, Eq)]
struct Selection {
    range: Range<u64>,
    /// Whether it asked for less than all, even if that is all.
    partial: bool,
    sum: Option<Sum>,
}

fn select(
    record: &Record,
    layout: Option<&Layout>,
    range: Option<dto::Range>,
    part: Option<i32>,
) -> S3Result<Selection> {
    let whole = 0..record.size;
    match (range, part) {
        (Some(_), Some(_)) => Err(s3_error!(
            InvalidRequest,
            "Cannot specify both Range header and partNumber query parameter"
        )),
        (None, None) => Ok(Selection {
            range: whole,
            partial: false,
            sum: record.sum.clone(),
        }),
        (Some(range), None) => {
            let found = range.check(record.size).ok().filter(|range| !range.is_empty());
            let range = found.ok_or_else(|| unsatisfiable(record.size))?;
            let sum = record.sum.clone().filter(|_| range == whole);
            Ok(Selection {
                range,
                partial: true,
                sum,
            })
        }
        (None, Some(part)) => {
            let no_part = || {
                fault::coded(
                    "InvalidPartNumber",
                    StatusCode::RANGE_NOT_SATISFIABLE,
                    "The requested partnumber is not satisfiable",
                )
            };
            let Some(layout) = layout else {
                return match part {
                    1 => Ok(Selection {
                        range: whole,
                        partial: record.size > 0,
                        sum: record.sum.clone(),
                    }),
                    _ => Err(no_part()),
                };
            };
            let mut start = 0;
            for piece in &layout.0 {
                if i64::from(piece.number) == i64::from(part) {
                    return Ok(Selection {
                        range: start..start + piece.size,
                        partial: piece.size > 0,
                        sum: piece.sum.clone(),
                    });
                }
                start += piece.size;
            }
            Err(no_part())
        }
    }
}

fn unsatisfiable(size: u64) -> S3Error {
    let mut error = s3_error!(InvalidRange, "The requested range is not satisfiable");
    let mut headers = HeaderMap::new();
    headers.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/xml"),
    );
    if let Ok(range) = format!("bytes */{size}").parse() {
        headers.insert(http::header::CONTENT_RANGE, range);
    }
    error.set_headers(headers);
    error
}

fn check(reading: &Reading, record: &Record) -> S3Result<()> {
    match reading.check(&record.etag, record.modified) {
        Ok(()) => Ok(()),
        Err(Failed::Precondition) => Err(fault::precondition()),
        Err(Failed::NotModified) => {
            let mut error = s3_error!(NotModified);
            let mut headers = HeaderMap::new();
            if let Ok(etag) = format!("\"{}\"", record.etag).parse() {
                headers.insert(http::header::ETAG, etag);
            }
            let mut modified = Vec::new();
            let written = timestamp(record.modified).format(dto::TimestampFormat::HttpDate, &mut modified);
            if let (Ok(()), Ok(modified)) = (written, HeaderValue::from_bytes(&modified)) {
                headers.insert(http::header::LAST_MODIFIED, modified);
            }
            error.set_headers(headers);
            Err(error)
        }
    }
}

pub(crate) fn signed(number: u64) -> Option<i64> {
    i64::try_from(number).ok()
}

fn content_range(selection: &Selection, record: &Record) -> Option<String> {
    let Range { start, end } = selection.range;
    let last = end.checked_sub(1)?;
    selection
        .partial
        .then(|| format!("bytes {start}-{last}/{}", record.size))
}

/// The fields that GET and HEAD have in common.
macro_rules! describe {
    ($output:ident, $record:expr, $selection:expr, $wants_sum:expr, $part:expr) => {
        $output {
            accept_ranges: Some("bytes".to_owned()),
            cache_control: $record.fields.cache_control.clone(),
            checksum_type: $wants_sum.then(|| kind_of($selection.sum.as_ref())).flatten(),
            content_disposition: $record.fields.content_disposition.clone(),
            content_encoding: $record.fields.content_encoding.clone(),
            content_language: $record.fields.content_language.clone(),
            content_length: signed($selection.range.end - $selection.range.start),
            content_range: content_range(&$selection, &$record),
            content_type: content_type(&$record.fields),
            e_tag: etag(&$record.etag),
            expires: $record.fields.expires.map(instant),
            last_modified: Some(timestamp($record.modified)),
            metadata: metadata(&$record.fields),
            parts_count: $part
                .and(i32::try_from($record.parts).ok())
                .filter(|count| *count > 0),
            website_redirect_location: $record.fields.redirect.clone(),
            ..Default::default()
        }
    };
}

fn tag_count(record: &Record) -> Option<i32> {
    i32::try_from(record.tags.len()).ok().filter(|count| *count > 0)
}

fn enabled(mode: Option<&ChecksumMode>) -> bool {
    mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED)
}

pub(crate) async fn get_object(
    inner: &Arc<Inner>,
    request: S3Request<GetObjectInput>,
) -> S3Result<S3Response<GetObjectOutput>> {
    let input = request.input;
    check_version(input.version_id.as_deref())?;
    refuse(&[(
        "encryption with keys of the client",
        input.sse_customer_algorithm.is_some(),
    )])?;
    let source = open(inner, &input.bucket, &input.key).await?;
    let reading = Reading {
        matches: input.if_match,
        none_matches: input.if_none_match,
        modified_since: time_of(input.if_modified_since),
        unmodified_since: time_of(input.if_unmodified_since),
    };
    check(&reading, &source.record)?;
    let selection = select(
        &source.record,
        source.layout.as_ref(),
        input.range,
        input.part_number,
    )?;
    let wants_sum = enabled(input.checksum_mode.as_ref());
    let record = &source.record;
    let mut output = describe!(GetObjectOutput, record, selection, wants_sum, input.part_number);
    output.tag_count = tag_count(record);
    if wants_sum {
        set_sum!(output, &selection.sum);
    }
    output.body = Some(source.reader(inner, selection.range).send().await?);
    Ok(S3Response::new(output))
}

pub(crate) async fn head_object(
    inner: &Arc<Inner>,
    request: S3Request<HeadObjectInput>,
) -> S3Result<S3Response<HeadObjectOutput>> {
    let input = request.input;
    check_version(input.version_id.as_deref())?;
    let (record, layout) = find(inner, input.bucket, input.key, input.part_number.is_some()).await?;
    let reading = Reading {
        matches: input.if_match,
        none_matches: input.if_none_match,
        modified_since: time_of(input.if_modified_since),
        unmodified_since: time_of(input.if_unmodified_since),
    };
    check(&reading, &record)?;
    let selection = select(&record, layout.as_ref(), input.range, input.part_number)?;
    let wants_sum = enabled(input.checksum_mode.as_ref());
    let mut output = describe!(HeadObjectOutput, record, selection, wants_sum, input.part_number);
    if wants_sum {
        set_sum!(output, &selection.sum);
    }
    let over = |with: Option<String>, own: &mut Option<String>| {
        if with.is_some() {
            *own = with;
        }
    };
    over(input.response_cache_control, &mut output.cache_control);
    over(
        input.response_content_disposition,
        &mut output.content_disposition,
    );
    over(input.response_content_encoding, &mut output.content_encoding);
    over(input.response_content_language, &mut output.content_language);
    over(input.response_content_type, &mut output.content_type);
    if input.response_expires.is_some() {
        output.expires = input.response_expires;
    }
    let mut response = S3Response::new(output);
    if let Some(count) = tag_count(&record) {
        response
            .headers
            .insert("x-amz-tagging-count", HeaderValue::from(count));
    }
    Ok(response)
}

/// An object's record, with its layout if that is wanted.
pub(crate) async fn find(
    inner: &Arc<Inner>,
    bucket: String,
    key: String,
    parts: bool,
) -> S3Result<(Record, Option<Layout>)> {
    inner
        .read("read an object's entry", move |transaction| {
            let record = match index::record(transaction, &bucket, &key)? {
                Ok(record) => record,
                Err(refused) => return Ok(Err(refused)),
            };
            let layout = match record.place {
                Place::Parts if parts => Some(layout(&transaction.open_table(CONTENTS)?, record.id)?),
                _ => None,
            };
            Ok(Ok((record, layout)))
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        files::Id,
        record::{Fields, Piece},
    };

    fn object(size: u64, parts: &[u64]) -> (Record, Option<Layout>) {
        let record = Record {
            id: Id(1),
            place: Place::Parts,
            size,
            etag: "e".to_owned(),
            modified: 0,
            fields: Fields::default(),
            sum: None,
            tags: Vec::new(),
            parts: u32::try_from(parts.len()).unwrap(),
        };
        let pieces = parts.iter().zip(1..).map(|(size, number)| Piece {
            number,
            size: *size,
            file: Id(u128::from(number)),
            sum: None,
        });
        (record, (!parts.is_empty()).then(|| Layout(pieces.collect())))
    }

    fn selected(
        size: u64,
        parts: &[u64],
        range: Option<&str>,
        part: Option<i32>,
    ) -> Result<(Range<u64>, bool), String> {
        let (record, layout) = object(size, parts);
        let range = range.map(|range| dto::Range::parse(range).unwrap());
        select(&record, layout.as_ref(), range, part)
            .map(|selection| (selection.range, selection.partial))
            .map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn ranges_and_parts() {
        assert_eq!(selected(10, &[], None, None), Ok((0..10, false)));
        assert_eq!(selected(10, &[], Some("bytes=2-3"), None), Ok((2..4, true)));
        assert_eq!(selected(10, &[], Some("bytes=5-100"), None), Ok((5..10, true)));
        assert_eq!(selected(10, &[], Some("bytes=-3"), None), Ok((7..10, true)));
        assert_eq!(
            selected(10, &[], Some("bytes=10-"), None),
            Err("InvalidRange".to_owned())
        );
        assert_eq!(
            selected(0, &[], Some("bytes=-3"), None),
            Err("InvalidRange".to_owned())
        );
        assert_eq!(selected(10, &[4, 6], None, Some(2)), Ok((4..10, true)));
        assert_eq!(
            selected(10, &[4, 6], None, Some(3)),
            Err("InvalidPartNumber".to_owned())
        );
        assert_eq!(selected(10, &[], None, Some(1)), Ok((0..10, true)));
        assert_eq!(
            selected(10, &[], Some("bytes=0-"), Some(1)),
            Err("InvalidRequest".to_owned())
        );
    }
}
