//! Writing and deleting objects.

use crate::{
    Event, Inner, blocking,
    body::{LARGEST, receive, too_large},
    changes::{Data, Delete, Doomed, Put},
    conditions::{Reading, Writing},
    fault,
    files::Id,
    read::{Content, Source, open},
    record::{Fields, Place, Record, now},
    request::{
        Claims, algorithm, check_version, etag, fields_of, header, kind_of, refuse_unsupported, set_sum,
        sums_of, time_of, timestamp,
    },
    sums::{Algorithm, Digests, Hasher, Kind, Sum},
    tags,
};
use s3s::{
    S3Error, S3Request, S3Response, S3Result,
    dto::{
        self, CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, DeleteObjectInput,
        DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETagCondition,
        MetadataDirective, PutObjectInput, PutObjectOutput, TaggingDirective,
    },
    s3_error,
};
use std::{ops::Range, sync::Arc};

/// Objects that one request deletes at most.
const DELETIONS: usize = 1000;
/// Bytes of a key at most.
const KEY: usize = 1024;

fn new_record(
    digests: &Digests,
    algorithm: Algorithm,
    fields: Fields,
    tags: Vec<(String, String)>,
) -> S3Result<Record> {
    let id = Id::fresh().map_err(|error| fault::disk("draw an id", &error))?;
    Ok(Record {
        id,
        place: Place::Nowhere,
        size: digests.size,
        etag: digests.etag(),
        modified: now(),
        fields,
        sum: digests.sum(algorithm).map(|value| Sum {
            algorithm,
            kind: Kind::FullObject,
            value: value.to_owned(),
        }),
        tags,
        parts: 0,
    })
}

pub(crate) async fn put_object(
    inner: &Arc<Inner>,
    request: S3Request<PutObjectInput>,
) -> S3Result<S3Response<PutObjectOutput>> {
    let mut input = request.input;
    refuse_unsupported!(input)?;
    let claims = Claims::new(
        &request.headers,
        request.trailing_headers,
        input.content_md5.as_deref(),
        sums_of!(input),
    )?;
    let tags = tags::parse(input.tagging.as_deref())?;
    let fields = fields_of!(input)?;
    let condition = Writing::new(input.if_match, input.if_none_match)?;
    // Before all the data comes: the verdict is given again with the change.
    may_write(inner, &input.bucket, &input.key, &condition).await?;
    let keeps = claims.algorithm().unwrap_or(Algorithm::Crc64Nvme);
    let small = Some(inner.options.small);
    let received = receive(inner, input.body, input.content_length, &claims, keeps, small).await?;
    let record = new_record(&received.digests, keeps, fields, tags)?;
    let put = Put {
        bucket: input.bucket,
        key: input.key,
        record,
        data: received.data,
        condition,
        event: Event::Put,
    };
    let record = inner.change(put).await?;
    let mut output = PutObjectOutput {
        checksum_type: kind_of(record.sum.as_ref()),
        e_tag: etag(&record.etag),
        ..Default::default()
    };
    set_sum!(output, &record.sum);
    Ok(S3Response::new(output))
}

/// Whether a write would be refused now.
async fn may_write(inner: &Arc<Inner>, bucket: &str, key: &str, condition: &Writing) -> S3Result<()> {
    let (bucket, key, condition) = (bucket.to_owned(), key.to_owned(), condition.clone());
    inner
        .read("read what is to be replaced", move |transaction| {
            if !crate::index::is_bucket(transaction, &bucket)? {
                return Ok(Err(fault::no_such_bucket()));
            }
            if condition == Writing::Always {
                return Ok(Ok(()));
            }
            let found = crate::index::record(transaction, &bucket, &key)?.ok();
            Ok(condition.check(found.as_ref()))
        })
        .await
}

pub(crate) async fn delete_object(
    inner: &Arc<Inner>,
    request: S3Request<DeleteObjectInput>,
) -> S3Result<S3Response<DeleteObjectOutput>> {
    let input = request.input;
    check_version(input.version_id.as_deref())?;
    if input.if_match_size.is_some() || input.if_match_last_modified_time.is_some() {
        return Err(fault::not_implemented(
            "a condition on the size or time of what is deleted",
        ));
    }
    let doomed = Doomed {
        key: input.key,
        condition: Writing::new(input.if_match, None)?,
    };
    let change = Delete {
        bucket: input.bucket,
        objects: vec![doomed],
    };
    inner
        .change(change)
        .await?
        .into_iter()
        .collect::<S3Result<()>>()?;
    Ok(S3Response::new(DeleteObjectOutput::default()))
}

pub(crate) async fn delete_objects(
    inner: &Arc<Inner>,
    request: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let input = request.input;
    let objects = input.delete.objects;
    if objects.is_empty() || objects.len() > DELETIONS {
        return Err(s3_error!(
            MalformedXML,
            "The XML you provided was not well-formed or did not validate against our published schema"
        ));
    }
    let named: Vec<_> = objects
        .iter()
        .map(|one| (one.key.clone(), one.version_id.clone()))
        .collect();
    let mut doomed = Vec::new();
    let mut refused = Vec::new();
    for one in objects {
        let condition = one.e_tag.map(|etag| match etag.value() {
            "*" => ETagCondition::Any,
            _ => ETagCondition::ETag(etag),
        });
        let version = check_version(one.version_id.as_deref());
        let length = match one.key.len() {
            0..=KEY => Ok(()),
            _ => Err(s3_error!(KeyTooLongError, "Your key is too long")),
        };
        match length.and(version).and_then(|()| Writing::new(condition, None)) {
            Ok(condition) => {
                refused.push(None);
                doomed.push(Doomed {
                    key: one.key,
                    condition,
                });
            }
            Err(error) => refused.push(Some(error)),
        }
    }
    let change = Delete {
        bucket: input.bucket,
        objects: doomed,
    };
    let mut verdicts = inner.change(change).await?.into_iter();
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for ((key, version_id), refused) in named.into_iter().zip(refused) {
        let verdict = match refused {
            Some(error) => Err(error),
            None => verdicts.next().unwrap_or(Ok(())),
        };
        match verdict {
            Ok(()) => deleted.push(DeletedObject {
                key: Some(key),
                version_id,
                ..Default::default()
            }),
            Err(error) => errors.push(not_deleted(key, version_id, &error)),
        }
    }
    let quiet = input.delete.quiet.unwrap_or(false);
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted: (!quiet).then_some(deleted),
        errors: (!errors.is_empty()).then_some(errors),
        ..Default::default()
    }))
}

fn not_deleted(key: String, version_id: Option<String>, error: &S3Error) -> dto::Error {
    dto::Error {
        code: Some(error.code().as_str().to_owned()),
        key: Some(key),
        message: error.message().map(ToOwned::to_owned),
        version_id,
    }
}

/// Bucket and key of what is to be copied.
pub(crate) fn source_of(source: CopySource) -> S3Result<(String, String)> {
    match source {
        CopySource::Bucket {
            bucket,
            key,
            version_id,
        } => {
            check_version(version_id.as_deref())?;
            Ok((bucket.into(), key.into()))
        }
        _ => Err(fault::not_implemented("a copy from an access point")),
    }
}

/// Copies some bytes of an object: to memory if they are small, else to a file that is flushed.
pub(crate) async fn copy(
    inner: &Arc<Inner>,
    source: Source,
    range: Range<u64>,
    algorithm: Algorithm,
    small: Option<usize>,
) -> S3Result<(Data, Digests)> {
    let inner = Arc::clone(inner);
    blocking(move || {
        let size = range.end - range.start;
        let mut hasher = Hasher::new(&[algorithm]);
        match source.reader(&inner, range) {
            Content::Files(reader) => reader.copy(size, small, hasher),
            Content::Small(data) => {
                hasher.update(&data);
                if small.is_some() {
                    return Ok((Data::Small(data), hasher.finish()));
                }
                let failed = |error| fault::disk("write a copy", &error);
                let mut draft = inner.files.draft().map_err(failed)?;
                draft.write(&data).map_err(failed)?;
                draft.sync().map_err(failed)?;
                Ok((Data::File(draft), hasher.finish()))
            }
        }
    })
    .await
}

/// Whether the source of a copy is what the client wants to have.
pub(crate) fn check_source(reading: &Reading, source: &Record) -> S3Result<()> {
    let checked = reading.check(&source.etag, source.modified);
    checked.map_err(|_| fault::precondition())
}

pub(crate) async fn copy_object(
    inner: &Arc<Inner>,
    request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let mut input = request.input;
    refuse_unsupported!(input)?;
    let condition = |name| {
        let text = header(&request.headers, name);
        let parsed = text.map(str::parse::<ETagCondition>).transpose();
        parsed.map_err(|_| fault::invalid_argument("A condition is no entity tag"))
    };
    let condition = Writing::new(condition("if-match")?, condition("if-none-match")?)?;
    let replaces = |directive: Option<&str>, replace: &str| match directive {
        None | Some("COPY") => Ok(false),
        Some(one) if one == replace => Ok(true),
        Some(_) => Err(fault::invalid_argument("Unknown metadata directive.")),
    };
    let new_fields = replaces(
        input.metadata_directive.as_ref().map(MetadataDirective::as_str),
        MetadataDirective::REPLACE,
    )?;
    let new_tags = replaces(
        input.tagging_directive.as_ref().map(TaggingDirective::as_str),
        TaggingDirective::REPLACE,
    )?;
    let (bucket, key) = source_of(input.copy_source)?;
    if bucket == input.bucket && key == input.key && !new_fields && input.website_redirect_location.is_none()
    {
        return Err(s3_error!(
            InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage \
             class, website redirect location or encryption attributes."
        ));
    }
    may_write(inner, &input.bucket, &input.key, &condition).await?;
    let source = open(inner, &bucket, &key).await?;
    let reading = Reading {
        matches: input.copy_source_if_match,
        none_matches: input.copy_source_if_none_match,
        modified_since: time_of(input.copy_source_if_modified_since),
        unmodified_since: time_of(input.copy_source_if_unmodified_since),
    };
    check_source(&reading, &source.record)?;
    if source.record.size > LARGEST {
        return Err(too_large());
    }
    let fields = if new_fields {
        fields_of!(input)?
    } else {
        let mut fields = source.record.fields.clone();
        // It is no part of what is copied.
        fields.redirect = input.website_redirect_location;
        fields
    };
    let tags = if new_tags {
        tags::parse(input.tagging.as_deref())?
    } else {
        source.record.tags.clone()
    };
    let own = source.record.sum.as_ref().map(|sum| sum.algorithm);
    let keeps = algorithm(input.checksum_algorithm.as_ref())?
        .or(own)
        .unwrap_or(Algorithm::Crc64Nvme);
    let range = 0..source.record.size;
    let (data, digests) = copy(inner, source, range, keeps, Some(inner.options.small)).await?;
    let record = new_record(&digests, keeps, fields, tags)?;
    let put = Put {
        bucket: input.bucket,
        key: input.key,
        record,
        data,
        condition,
        event: Event::Copy,
    };
    let record = inner.change(put).await?;
    let mut result = CopyObjectResult {
        checksum_type: kind_of(record.sum.as_ref()),
        e_tag: etag(&record.etag),
        last_modified: Some(timestamp(record.modified)),
        ..Default::default()
    };
    set_sum!(result, &record.sum);
    Ok(S3Response::new(CopyObjectOutput {
        copy_object_result: Some(result),
        ..Default::default()
    }))
}
