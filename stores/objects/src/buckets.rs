//! Buckets.

use crate::{
    Inner,
    changes::{CreateBucket, DeleteBucket},
    fault,
    index::{BUCKETS, is_bucket},
    record::{Bucket, decode, now},
    request::{check_acl, refuse, timestamp},
};
use s3s::{
    S3Request, S3Response, S3Result,
    dto::{
        self, BucketLocationConstraint, CreateBucketInput, CreateBucketOutput, DeleteBucketInput,
        DeleteBucketOutput, GetBucketLocationInput, GetBucketLocationOutput, GetBucketVersioningInput,
        GetBucketVersioningOutput, HeadBucketInput, HeadBucketOutput, ListBucketsInput, ListBucketsOutput,
        Owner,
    },
    s3_error,
};
use std::{ops::Bound, sync::Arc};

/// Buckets that a page lists at most.
const PAGE: usize = 10_000;

/// The region that the protocol calls by no name.
const NAMELESS: &str = "us-east-1";

/// Who owns everything here.
pub(crate) fn owner() -> Owner {
    Owner {
        display_name: None,
        id: Some("millpond".to_owned()),
    }
}

pub(crate) async fn create_bucket(
    inner: &Arc<Inner>,
    request: S3Request<CreateBucketInput>,
) -> S3Result<S3Response<CreateBucketOutput>> {
    let input = request.input;
    check_acl(input.acl.as_ref().map(|acl| acl.as_str()))?;
    refuse(&[
        ("object lock", input.object_lock_enabled_for_bucket == Some(true)),
        (
            "a grant",
            input.grant_full_control.is_some()
                || input.grant_read.is_some()
                || input.grant_read_acp.is_some()
                || input.grant_write.is_some()
                || input.grant_write_acp.is_some(),
        ),
    ])?;
    let asked = input
        .create_bucket_configuration
        .and_then(|one| one.location_constraint);
    if asked.is_some_and(|region| region.as_str() != inner.options.region && !region.as_str().is_empty()) {
        return Err(s3_error!(
            InvalidLocationConstraint,
            "The specified location-constraint is not valid"
        ));
    }
    let location = Some(format!("/{}", input.bucket));
    let change = CreateBucket {
        name: input.bucket,
        created: now(),
    };
    inner.change(change).await?;
    Ok(S3Response::new(CreateBucketOutput { location }))
}

pub(crate) async fn delete_bucket(
    inner: &Arc<Inner>,
    request: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    let name = request.input.bucket;
    inner.change(DeleteBucket { name }).await?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}

/// Refuses what is asked of a bucket that is not there.
async fn check(inner: &Arc<Inner>, bucket: String) -> S3Result<()> {
    inner
        .read("look for a bucket", move |transaction| {
            Ok(match is_bucket(transaction, &bucket)? {
                true => Ok(()),
                false => Err(fault::no_such_bucket()),
            })
        })
        .await
}

pub(crate) async fn head_bucket(
    inner: &Arc<Inner>,
    request: S3Request<HeadBucketInput>,
) -> S3Result<S3Response<HeadBucketOutput>> {
    check(inner, request.input.bucket).await?;
    Ok(S3Response::new(HeadBucketOutput {
        bucket_region: Some(inner.options.region.clone()),
        ..Default::default()
    }))
}

pub(crate) async fn get_bucket_location(
    inner: &Arc<Inner>,
    request: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    check(inner, request.input.bucket).await?;
    let region = &inner.options.region;
    let named = region != NAMELESS;
    Ok(S3Response::new(GetBucketLocationOutput {
        location_constraint: named.then(|| BucketLocationConstraint::from(region.clone())),
    }))
}

/// There are no versions, and that is what this says.
pub(crate) async fn get_bucket_versioning(
    inner: &Arc<Inner>,
    request: S3Request<GetBucketVersioningInput>,
) -> S3Result<S3Response<GetBucketVersioningOutput>> {
    check(inner, request.input.bucket).await?;
    Ok(S3Response::new(GetBucketVersioningOutput::default()))
}

pub(crate) async fn list_buckets(
    inner: &Arc<Inner>,
    request: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let input = request.input;
    let limit = match input.max_buckets {
        None => PAGE,
        Some(asked) => usize::try_from(asked)
            .ok()
            .filter(|asked| (1..=PAGE).contains(asked))
            .ok_or_else(|| {
                fault::invalid_argument("Argument max-buckets must be an integer between 1 and 10000")
            })?,
    };
    let region = inner.options.region.clone();
    if input.bucket_region.is_some_and(|asked| asked != region) {
        return Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(Vec::new()),
            owner: Some(owner()),
            ..Default::default()
        }));
    }
    let paged = input.max_buckets.is_some();
    let prefix = input.prefix.clone().unwrap_or_default();
    let after = input.continuation_token;
    let (buckets, more) = inner
        .read("list buckets", move |transaction| {
            let table = transaction.open_table(BUCKETS)?;
            let from = match &after {
                Some(after) if **after >= *prefix => Bound::Excluded(after.as_str()),
                _ => Bound::Included(prefix.as_str()),
            };
            let mut found: Vec<(String, Bucket)> = Vec::new();
            for entry in table.range::<&str>((from, Bound::Unbounded))? {
                let (name, bucket) = entry?;
                if !name.value().starts_with(&prefix) {
                    break;
                }
                if found.len() == limit {
                    return Ok(Ok((found, true)));
                }
                found.push((name.value().to_owned(), decode(bucket.value())?));
            }
            Ok(Ok((found, false)))
        })
        .await?;
    let continuation_token = match buckets.last() {
        Some((name, _)) if more => Some(name.clone()),
        _ => None,
    };
    let buckets = buckets
        .into_iter()
        .map(|(name, bucket)| dto::Bucket {
            bucket_region: paged.then(|| region.clone()),
            creation_date: Some(timestamp(bucket.created)),
            name: Some(name),
        })
        .collect();
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(buckets),
        continuation_token,
        owner: Some(owner()),
        prefix: input.prefix,
    }))
}
