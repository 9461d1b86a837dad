//! Listings of objects and uploads.

use crate::{
    Inner,
    buckets::owner,
    fault,
    index::{OBJECTS, UPLOADS, behind, is_bucket, objects},
    listing::{self, After, Item, Page, Query},
    parts::{initiator, named},
    record::{Record, Upload, decode},
    request::{etag, kind_of, timestamp},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::{
    S3Request, S3Response, S3Result,
    dto::{
        ChecksumType, CommonPrefix, EncodingType, ListMultipartUploadsInput, ListMultipartUploadsOutput,
        ListObjectVersionsInput, ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput,
        ListObjectsV2Input, ListObjectsV2Output, MultipartUpload, Object, ObjectStorageClass, ObjectVersion,
        ObjectVersionStorageClass, StorageClass,
    },
};
use std::{ops::Bound, sync::Arc};

/// Entries that a page has at most.
const PAGE: i32 = 1000;

/// What an encoded key keeps as it is.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'*')
    .remove(b'/');

pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, KEPT).to_string()
}

/// Whether the names of an answer are encoded, so that XML can hold them all.
#[derive(Clone, Copy)]
struct Encoding(bool);

impl Encoding {
    fn new(asked: Option<&EncodingType>) -> S3Result<Self> {
        match asked.map(EncodingType::as_str) {
            None => Ok(Self(false)),
            Some("url") => Ok(Self(true)),
            Some(_) => Err(fault::invalid_argument(
                "Invalid Encoding Method specified in Request",
            )),
        }
    }

    fn apply(self, text: String) -> String {
        if self.0 { encoded(&text) } else { text }
    }
}

fn page(asked: Option<i32>, refusal: &'static str) -> S3Result<(i32, usize)> {
    let asked = asked.unwrap_or(PAGE).min(PAGE);
    let limit = usize::try_from(asked).map_err(|_| fault::invalid_argument(refusal))?;
    Ok((asked, limit))
}

const KEYS: &str = "Argument maxKeys must be an integer between 0 and 2147483647";

async fn list(inner: &Arc<Inner>, bucket: String, query: Query) -> S3Result<Page<Record>> {
    inner
        .read("list objects", move |transaction| {
            if !is_bucket(transaction, &bucket)? {
                return Ok(Err(fault::no_such_bucket()));
            }
            let table = transaction.open_table(OBJECTS)?;
            listing::list(&query, |from| objects(&table, &bucket, from)).map(Ok)
        })
        .await
}

/// The parts of a page in the protocol's words.
struct Shown {
    contents: Option<Vec<Object>>,
    prefixes: Option<Vec<CommonPrefix>>,
    count: i32,
}

fn show(page: Page<Record>, encoding: Encoding, with_owner: bool) -> Shown {
    let (mut contents, mut prefixes) = (Vec::new(), Vec::new());
    let count = i32::try_from(page.items.len()).unwrap_or(i32::MAX);
    for item in page.items {
        match item {
            Item::Prefix(prefix) => prefixes.push(CommonPrefix {
                prefix: Some(encoding.apply(prefix)),
            }),
            Item::Key(key, record) => contents.push(Object {
                checksum_algorithm: record.sum.as_ref().map(|sum| vec![named(sum.algorithm)]),
                checksum_type: kind_of(record.sum.as_ref()),
                e_tag: etag(&record.etag),
                key: Some(encoding.apply(key)),
                last_modified: Some(timestamp(record.modified)),
                owner: with_owner.then(owner),
                size: i64::try_from(record.size).ok(),
                storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
                ..Default::default()
            }),
        }
    }
    Shown {
        contents: (!contents.is_empty()).then_some(contents),
        prefixes: (!prefixes.is_empty()).then_some(prefixes),
        count,
    }
}

pub(crate) async fn list_objects_v2(
    inner: &Arc<Inner>,
    request: S3Request<ListObjectsV2Input>,
) -> S3Result<S3Response<ListObjectsV2Output>> {
    let input = request.input;
    let encoding = Encoding::new(input.encoding_type.as_ref())?;
    let (max_keys, limit) = page(input.max_keys, KEYS)?;
    let bad = || fault::invalid_argument("The continuation token provided is incorrect");
    let after = match (&input.continuation_token, &input.start_after) {
        (Some(token), _) => {
            let name = URL_SAFE_NO_PAD.decode(token).map_err(|_| bad())?;
            let name = String::from_utf8(name).map_err(|_| bad())?;
            if name.is_empty() {
                return Err(bad());
            }
            After::Key(name)
        }
        (None, Some(after)) if !after.is_empty() => After::Key(after.clone()),
        (None, _) => After::Nothing,
    };
    let query = Query {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().unwrap_or_default(),
        after,
        limit,
    };
    let page = list(inner, input.bucket.clone(), query).await?;
    let truncated = page.truncated;
    let next = page
        .last()
        .filter(|_| truncated)
        .map(|last| URL_SAFE_NO_PAD.encode(last));
    let shown = show(page, encoding, input.fetch_owner == Some(true));
    Ok(S3Response::new(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(encoding.apply(input.prefix.unwrap_or_default())),
        max_keys: Some(max_keys),
        key_count: Some(shown.count),
        continuation_token: input.continuation_token,
        is_truncated: Some(truncated),
        next_continuation_token: next,
        contents: shown.contents,
        common_prefixes: shown.prefixes,
        delimiter: input.delimiter.map(|text| encoding.apply(text)),
        encoding_type: input.encoding_type,
        start_after: input.start_after.map(|text| encoding.apply(text)),
        ..Default::default()
    }))
}

pub(crate) async fn list_objects(
    inner: &Arc<Inner>,
    request: S3Request<ListObjectsInput>,
) -> S3Result<S3Response<ListObjectsOutput>> {
    let input = request.input;
    let encoding = Encoding::new(input.encoding_type.as_ref())?;
    let (max_keys, limit) = page(input.max_keys, KEYS)?;
    let query = Query {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().unwrap_or_default(),
        after: input
            .marker
            .clone()
            .filter(|marker| !marker.is_empty())
            .map_or(After::Nothing, After::Key),
        limit,
    };
    let delimited = !query.delimiter.is_empty();
    let page = list(inner, input.bucket.clone(), query).await?;
    let truncated = page.truncated;
    // Without a delimiter the last key is the marker.
    let next = page
        .last()
        .filter(|_| truncated && delimited)
        .map(|last| encoding.apply(last.to_owned()));
    let shown = show(page, encoding, true);
    Ok(S3Response::new(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(encoding.apply(input.prefix.unwrap_or_default())),
        marker: Some(encoding.apply(input.marker.unwrap_or_default())),
        max_keys: Some(max_keys),
        is_truncated: Some(truncated),
        contents: shown.contents,
        common_prefixes: shown.prefixes,
        delimiter: input.delimiter.map(|text| encoding.apply(text)),
        next_marker: next,
        encoding_type: input.encoding_type,
        ..Default::default()
    }))
}

/// Of each object its only version, which is called `null`.
pub(crate) async fn list_object_versions(
    inner: &Arc<Inner>,
    request: S3Request<ListObjectVersionsInput>,
) -> S3Result<S3Response<ListObjectVersionsOutput>> {
    let input = request.input;
    let encoding = Encoding::new(input.encoding_type.as_ref())?;
    let (max_keys, limit) = page(input.max_keys, KEYS)?;
    let query = Query {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().unwrap_or_default(),
        after: input
            .key_marker
            .clone()
            .filter(|marker| !marker.is_empty())
            .map_or(After::Nothing, After::Key),
        limit,
    };
    let page = list(inner, input.bucket.clone(), query).await?;
    let truncated = page.truncated;
    let next = page
        .last()
        .filter(|_| truncated)
        .map(|last| encoding.apply(last.to_owned()));
    let at_key = matches!(page.items.last(), Some(Item::Key(..)));
    let shown = show(page, encoding, true);
    let versions = shown.contents.map(|contents| {
        let version = |object: Object| ObjectVersion {
            checksum_algorithm: object.checksum_algorithm,
            checksum_type: object.checksum_type,
            e_tag: object.e_tag,
            is_latest: Some(true),
            key: object.key,
            last_modified: object.last_modified,
            owner: object.owner,
            size: object.size,
            storage_class: Some(ObjectVersionStorageClass::from_static(
                ObjectVersionStorageClass::STANDARD,
            )),
            version_id: Some("null".to_owned()),
            ..Default::default()
        };
        contents.into_iter().map(version).collect()
    });
    Ok(S3Response::new(ListObjectVersionsOutput {
        common_prefixes: shown.prefixes,
        delimiter: input.delimiter.map(|text| encoding.apply(text)),
        encoding_type: input.encoding_type,
        is_truncated: Some(truncated),
        key_marker: Some(encoding.apply(input.key_marker.unwrap_or_default())),
        max_keys: Some(max_keys),
        name: Some(input.bucket),
        next_version_id_marker: next.as_ref().filter(|_| at_key).map(|_| "null".to_owned()),
        next_key_marker: next,
        prefix: Some(encoding.apply(input.prefix.unwrap_or_default())),
        version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
        versions,
        ..Default::default()
    }))
}

type Uploads = Page<(String, Upload)>;

/// Uploads by their keys and beginnings, behind a marker of both.
fn uploads(
    transaction: &redb::ReadTransaction,
    bucket: &str,
    mut query: Query,
    behind_upload: Option<&str>,
) -> Result<Uploads, redb::Error> {
    let table = transaction.open_table(UPLOADS)?;
    let end = behind(bucket);
    let limit = query.limit;
    let mut first = Vec::new();
    // Of the marker's key those that began later come first.
    if let (After::Key(key), Some(upload)) = (&query.after, behind_upload)
        && key.starts_with(&query.prefix)
    {
        let next = format!("{key}\0");
        let from = Bound::Excluded((bucket, key.as_str(), upload));
        for entry in
            table.range::<(&str, &str, &str)>((from, Bound::Excluded((bucket, next.as_str(), ""))))?
        {
            let (at, upload) = entry?;
            first.push(Item::Key(
                key.clone(),
                (at.value().2.to_owned(), decode(upload.value())?),
            ));
        }
    }
    if first.len() > limit {
        first.truncate(limit);
        return Ok(Page {
            items: first,
            truncated: limit > 0,
        });
    }
    // With one more, so that a full page knows whether there is more.
    query.limit = (limit - first.len()).max(1);
    let page = listing::list(&query, |from| {
        let from = match from {
            Bound::Included(key) => Bound::Included((bucket, key.to_owned(), "")),
            // Behind all uploads of the key.
            Bound::Excluded(key) => Bound::Included((bucket, format!("{key}\0"), "")),
            Bound::Unbounded => Bound::Included((bucket, String::new(), "")),
        };
        let from = from
            .as_ref()
            .map(|(bucket, key, upload)| (*bucket, key.as_str(), *upload));
        let range = table.range::<(&str, &str, &str)>((from, Bound::Excluded((end.as_str(), "", ""))))?;
        Ok::<_, redb::Error>(range.map(|entry| {
            let (at, upload) = entry?;
            let (_, key, id) = at.value();
            Ok((key.to_owned(), (id.to_owned(), decode(upload.value())?)))
        }))
    })?;
    if first.len() == limit {
        let truncated = limit > 0 && !page.items.is_empty();
        return Ok(Page {
            items: first,
            truncated,
        });
    }
    first.extend(page.items);
    Ok(Page {
        items: first,
        truncated: page.truncated,
    })
}

pub(crate) async fn list_multipart_uploads(
    inner: &Arc<Inner>,
    request: S3Request<ListMultipartUploadsInput>,
) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    let input = request.input;
    let encoding = Encoding::new(input.encoding_type.as_ref())?;
    let refusal = "Argument max-uploads must be an integer between 0 and 2147483647";
    let (max_uploads, limit) = page(input.max_uploads, refusal)?;
    let query = Query {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().unwrap_or_default(),
        after: input
            .key_marker
            .clone()
            .filter(|marker| !marker.is_empty())
            .map_or(After::Nothing, After::Key),
        limit,
    };
    let (bucket, marker) = (input.bucket.clone(), input.upload_id_marker.clone());
    let page = inner
        .read("list uploads", move |transaction| {
            if !is_bucket(transaction, &bucket)? {
                return Ok(Err(fault::no_such_bucket()));
            }
            uploads(
                transaction,
                &bucket,
                query,
                marker.as_deref().filter(|marker| !marker.is_empty()),
            )
            .map(Ok)
        })
        .await?;
    let truncated = page.truncated;
    let next = page
        .last()
        .filter(|_| truncated)
        .map(|last| encoding.apply(last.to_owned()));
    let next_upload = match page.items.last() {
        Some(Item::Key(_, (id, _))) if truncated => Some(id.clone()),
        _ => None,
    };
    let (mut shown, mut prefixes) = (Vec::new(), Vec::new());
    for item in page.items {
        match item {
            Item::Prefix(prefix) => prefixes.push(CommonPrefix {
                prefix: Some(encoding.apply(prefix)),
            }),
            Item::Key(key, (id, upload)) => shown.push(MultipartUpload {
                checksum_algorithm: upload.sum.map(|(algorithm, _)| named(algorithm)),
                checksum_type: upload.sum.map(|(_, kind)| ChecksumType::from_static(kind.name())),
                initiated: Some(timestamp(upload.started)),
                initiator: Some(initiator()),
                key: Some(encoding.apply(key)),
                owner: Some(owner()),
                storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
                upload_id: Some(id),
            }),
        }
    }
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        common_prefixes: (!prefixes.is_empty()).then_some(prefixes),
        delimiter: input.delimiter.map(|text| encoding.apply(text)),
        encoding_type: input.encoding_type,
        is_truncated: Some(truncated),
        key_marker: Some(encoding.apply(input.key_marker.unwrap_or_default())),
        max_uploads: Some(max_uploads),
        next_key_marker: next,
        next_upload_id_marker: next_upload,
        prefix: Some(encoding.apply(input.prefix.unwrap_or_default())),
        upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
        uploads: (!shown.is_empty()).then_some(shown),
        ..Default::default()
    }))
}
