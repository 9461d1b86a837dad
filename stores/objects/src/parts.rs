//! Uploads in parts.

use crate::{
    Inner,
    attributes::page,
    body::{LARGEST, receive},
    buckets::owner,
    changes::Data,
    conditions::{Reading, Writing},
    fault,
    files::{Id, upload_id},
    index::{self, PARTS},
    objects::{check_source, copy, source_of},
    read::open,
    record::{Part, Upload, decode, now},
    request::{
        Claims, algorithm, etag, fields_of, header, kind_of, refuse_unsupported, set_sum, sums_of, time_of,
        timestamp,
    },
    sums::{Algorithm, Digests, Kind, Sum},
    tags,
    uploads::{Abort, Begin, Chosen, Complete, PARTS_LIMIT, PutPart, part_sum},
};
use s3s::{
    S3Request, S3Response, S3Result,
    dto::{
        self, AbortMultipartUploadInput, AbortMultipartUploadOutput, ChecksumAlgorithm, ChecksumType,
        CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CopyPartResult,
        CreateMultipartUploadInput, CreateMultipartUploadOutput, Initiator, ListPartsInput, ListPartsOutput,
        StorageClass, UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
    },
    s3_error,
};
use std::sync::Arc;

pub(crate) fn named(algorithm: Algorithm) -> ChecksumAlgorithm {
    ChecksumAlgorithm::from_static(algorithm.name())
}

pub(crate) fn initiator() -> Initiator {
    let owner = owner();
    Initiator {
        display_name: owner.display_name,
        id: owner.id,
    }
}

pub(crate) async fn create(
    inner: &Arc<Inner>,
    request: S3Request<CreateMultipartUploadInput>,
) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
    let mut input = request.input;
    refuse_unsupported!(input)?;
    let kind =
        match &input.checksum_type {
            None => None,
            Some(kind) => Some(Kind::parse(kind.as_str()).ok_or_else(|| {
                s3_error!(InvalidRequest, "Value for x-amz-checksum-type header is invalid.")
            })?),
        };
    let sum = match (algorithm(input.checksum_algorithm.as_ref())?, kind) {
        (None, None) => None,
        (None, Some(_)) => {
            return Err(s3_error!(
                InvalidRequest,
                "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header."
            ));
        }
        (Some(algorithm), kind) => {
            let kind = kind.unwrap_or(algorithm.default_kind());
            if !algorithm.takes(kind) {
                return Err(s3_error!(
                    InvalidRequest,
                    "The {} checksum type cannot be used with the {} checksum algorithm.",
                    kind.name(),
                    algorithm.name().to_ascii_lowercase()
                ));
            }
            Some((algorithm, kind))
        }
    };
    let started = now();
    let id = upload_id(started).map_err(|error| fault::disk("draw an id", &error))?;
    let begin = Begin {
        bucket: input.bucket.clone(),
        key: input.key.clone(),
        id: id.clone(),
        upload: Upload {
            started,
            fields: fields_of!(input)?,
            tags: tags::parse(input.tagging.as_deref())?,
            sum,
        },
    };
    inner.change(begin).await?;
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        checksum_algorithm: sum.map(|(algorithm, _)| named(algorithm)),
        checksum_type: sum.map(|(_, kind)| ChecksumType::from_static(kind.name())),
        key: Some(input.key),
        upload_id: Some(id),
        ..Default::default()
    }))
}

fn part_number(number: i32) -> S3Result<u32> {
    let number = u32::try_from(number).ok();
    number
        .filter(|number| (1..=PARTS_LIMIT).contains(number))
        .ok_or_else(|| {
            fault::invalid_argument("Part number must be an integer between 1 and 10000, inclusive")
        })
}

async fn find(inner: &Arc<Inner>, bucket: &str, key: &str, upload: &str) -> S3Result<Upload> {
    let at = (bucket.to_owned(), key.to_owned(), upload.to_owned());
    inner
        .read("look for an upload", move |transaction| {
            index::upload(transaction, &at.0, &at.1, &at.2)
        })
        .await
}

/// Which part of which upload.
struct At {
    bucket: String,
    key: String,
    upload: String,
    number: u32,
}

async fn put(inner: &Arc<Inner>, at: At, data: Data, digests: &Digests, keeps: Algorithm) -> S3Result<Part> {
    let Data::File(draft) = data else {
        return Err(fault::internal("put a part", &"it has no file"));
    };
    let sum = digests
        .sum(keeps)
        .ok_or_else(|| fault::internal("put a part", &"it has no checksum"))?;
    let part = Part {
        size: digests.size,
        etag: digests.etag(),
        modified: now(),
        file: draft.id,
        sum: part_sum(keeps, sum),
    };
    let change = PutPart {
        bucket: at.bucket,
        key: at.key,
        upload: at.upload,
        number: at.number,
        part: part.clone(),
        draft,
    };
    inner.change(change).await?;
    Ok(part)
}

pub(crate) async fn upload_part(
    inner: &Arc<Inner>,
    request: S3Request<UploadPartInput>,
) -> S3Result<S3Response<UploadPartOutput>> {
    let mut input = request.input;
    let number = part_number(input.part_number)?;
    let claims = Claims::new(
        &request.headers,
        request.trailing_headers,
        input.content_md5.as_deref(),
        sums_of!(input),
    )?;
    let upload = find(inner, &input.bucket, &input.key, &input.upload_id).await?;
    let (keeps, _) = upload.checks();
    if let (Some((expected, _)), Some(given)) = (upload.sum, claims.algorithm())
        && expected != given
    {
        return Err(s3_error!(
            InvalidRequest,
            "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
            expected.name().to_ascii_lowercase(),
            given.name().to_ascii_lowercase()
        ));
    }
    let received = receive(inner, input.body, input.content_length, &claims, keeps, None).await?;
    let at = At {
        bucket: input.bucket,
        key: input.key,
        upload: input.upload_id,
        number,
    };
    let part = put(inner, at, received.data, &received.digests, keeps).await?;
    let mut output = UploadPartOutput {
        e_tag: etag(&part.etag),
        ..Default::default()
    };
    // What was sent is confirmed; else the upload's own, if it has one.
    let confirmed = claims.algorithm().or(upload.sum.map(|(algorithm, _)| algorithm));
    let value = confirmed.and_then(|algorithm| Some((algorithm, received.digests.sum(algorithm)?)));
    set_sum!(output, value.map(|(algorithm, value)| part_sum(algorithm, value)));
    Ok(S3Response::new(output))
}

pub(crate) async fn upload_part_copy(
    inner: &Arc<Inner>,
    request: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let input = request.input;
    let number = part_number(input.part_number)?;
    let upload = find(inner, &input.bucket, &input.key, &input.upload_id).await?;
    let (bucket, key) = source_of(input.copy_source)?;
    let source = open(inner, &bucket, &key).await?;
    let reading = Reading {
        matches: input.copy_source_if_match,
        none_matches: input.copy_source_if_none_match,
        modified_since: time_of(input.copy_source_if_modified_since),
        unmodified_since: time_of(input.copy_source_if_unmodified_since),
    };
    check_source(&reading, &source.record)?;
    let size = source.record.size;
    let range = match input.copy_source_range.as_deref() {
        None => 0..size,
        Some(text) => {
            let Ok(dto::Range::Int {
                first,
                last: Some(last),
            }) = dto::Range::parse(text)
            else {
                return Err(fault::invalid_argument(
                    "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy",
                ));
            };
            if last >= size {
                return Err(s3_error!(
                    InvalidArgument,
                    "Range specified is not valid for source object of size: {size}"
                ));
            }
            first..last + 1
        }
    };
    if range.end - range.start > LARGEST {
        return Err(crate::body::too_large());
    }
    let (keeps, _) = upload.checks();
    let (data, digests) = copy(inner, source, range, keeps, None).await?;
    let at = At {
        bucket: input.bucket,
        key: input.key,
        upload: input.upload_id,
        number,
    };
    let part = put(inner, at, data, &digests, keeps).await?;
    let mut result = CopyPartResult {
        e_tag: etag(&part.etag),
        last_modified: Some(timestamp(part.modified)),
        ..Default::default()
    };
    set_sum!(result, upload.sum.map(|_| &part.sum));
    Ok(S3Response::new(UploadPartCopyOutput {
        copy_part_result: Some(result),
        ..Default::default()
    }))
}

pub(crate) async fn complete(
    inner: &Arc<Inner>,
    request: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let mut input = request.input;
    let malformed = || {
        s3_error!(
            MalformedXML,
            "The XML you provided was not well-formed or did not validate against our published schema"
        )
    };
    let parts = input
        .multipart_upload
        .take()
        .and_then(|upload| upload.parts)
        .unwrap_or_default();
    let sum_in = |sums: [Option<String>; 5]| {
        let mut said = Algorithm::ALL.into_iter().zip(sums);
        said.find_map(|(algorithm, value)| Some((algorithm, value?)))
    };
    let chosen = parts
        .into_iter()
        .map(|mut part| {
            Ok(Chosen {
                number: part_number(part.part_number.ok_or_else(malformed)?)?,
                etag: part.e_tag.take().ok_or_else(malformed)?.into_value(),
                sum: sum_in(sums_of!(part)),
            })
        })
        .collect::<S3Result<Vec<_>>>()?;
    let location = format!(
        "http://{}/{}/{}",
        header(&request.headers, "host").unwrap_or("localhost"),
        input.bucket,
        crate::lists::encoded(&input.key).replace('/', "%2F")
    );
    let change = Complete {
        bucket: input.bucket.clone(),
        key: input.key.clone(),
        upload: input.upload_id.clone(),
        chosen,
        condition: Writing::new(input.if_match.take(), input.if_none_match.take())?,
        size: input.mpu_object_size.and_then(|size| u64::try_from(size).ok()),
        sum: sum_in(sums_of!(input)),
        id: Id::fresh().map_err(|error| fault::disk("draw an id", &error))?,
        modified: now(),
    };
    let record = inner.change(change).await?;
    let mut output = CompleteMultipartUploadOutput {
        bucket: Some(input.bucket),
        checksum_type: kind_of(record.sum.as_ref()),
        e_tag: etag(&record.etag),
        key: Some(input.key),
        location: Some(location),
        ..Default::default()
    };
    set_sum!(output, &record.sum);
    Ok(S3Response::new(output))
}

pub(crate) async fn abort(
    inner: &Arc<Inner>,
    request: S3Request<AbortMultipartUploadInput>,
) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    let input = request.input;
    let change = Abort {
        bucket: input.bucket,
        key: input.key,
        upload: input.upload_id,
    };
    inner.change(change).await?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

pub(crate) async fn list_parts(
    inner: &Arc<Inner>,
    request: S3Request<ListPartsInput>,
) -> S3Result<S3Response<ListPartsOutput>> {
    let input = request.input;
    let limit = page(input.max_parts)?;
    let marker = input.part_number_marker.unwrap_or(0);
    let from = u32::try_from(marker)
        .map_err(|_| {
            fault::invalid_argument("Argument part-number-marker must be an integer between 0 and 2147483647")
        })?
        .saturating_add(1);
    let at = (input.bucket.clone(), input.key.clone(), input.upload_id.clone());
    let (upload, parts, more) = inner
        .read("list parts", move |transaction| {
            let upload = match index::upload(transaction, &at.0, &at.1, &at.2)? {
                Ok(upload) => upload,
                Err(refused) => return Ok(Err(refused)),
            };
            let mut parts: Vec<(u32, Part)> = Vec::new();
            let table = transaction.open_table(PARTS)?;
            let id = at.2.as_str();
            for entry in table.range((id, from)..=(id, u32::MAX))? {
                if parts.len() == limit {
                    return Ok(Ok((upload, parts, true)));
                }
                let (at, part) = entry?;
                parts.push((at.value().1, decode(part.value())?));
            }
            Ok(Ok((upload, parts, false)))
        })
        .await?;
    let next = parts.last().and_then(|(number, _)| i32::try_from(*number).ok());
    let parts: Vec<_> = parts
        .into_iter()
        .map(|(number, part)| {
            let mut shown = dto::Part {
                e_tag: etag(&part.etag),
                last_modified: Some(timestamp(part.modified)),
                part_number: i32::try_from(number).ok(),
                size: i64::try_from(part.size).ok(),
                ..Default::default()
            };
            let sum: Option<&Sum> = upload.sum.map(|_| &part.sum);
            set_sum!(shown, sum);
            shown
        })
        .collect();
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(input.bucket),
        checksum_algorithm: upload.sum.map(|(algorithm, _)| named(algorithm)),
        checksum_type: upload.sum.map(|(_, kind)| ChecksumType::from_static(kind.name())),
        initiator: Some(initiator()),
        is_truncated: Some(more),
        key: Some(input.key),
        max_parts: i32::try_from(limit).ok(),
        next_part_number_marker: next.or(Some(0)),
        owner: Some(owner()),
        part_number_marker: Some(marker),
        parts: (!parts.is_empty()).then_some(parts),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        upload_id: Some(input.upload_id),
        ..Default::default()
    }))
}
