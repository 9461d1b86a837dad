//! Tags of objects.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-tagging.html>

use crate::{
    Inner,
    changes::Tag,
    fault, index,
    request::{check_version, decode_form},
};
use http::StatusCode;
use s3s::{
    S3Error, S3Request, S3Response, S3Result,
    dto::{
        self, DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput,
        GetObjectTaggingOutput, PutObjectTaggingInput, PutObjectTaggingOutput,
    },
    s3_error,
};
use std::{collections::HashSet, sync::Arc};

const TAGS_LIMIT: usize = 10;
/// Characters.
const KEY_LIMIT: usize = 128;
const VALUE_LIMIT: usize = 256;

type Tags = Vec<(String, String)>;

/// Tags of a header, written like a form.
pub(crate) fn parse(header: Option<&str>) -> S3Result<Tags> {
    let invalid = || {
        s3_error!(
            InvalidArgument,
            "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates."
        )
    };
    let mut tags = Vec::new();
    for pair in header
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        tags.push((
            decode_form(key).ok_or_else(invalid)?,
            decode_form(value).ok_or_else(invalid)?,
        ));
    }
    check(&tags)?;
    Ok(tags)
}

fn check(tags: &Tags) -> S3Result<()> {
    if tags.len() > TAGS_LIMIT {
        return Err(fault::coded(
            "BadRequest",
            StatusCode::BAD_REQUEST,
            "Object tags cannot be greater than 10",
        ));
    }
    let mut keys = HashSet::new();
    for (key, value) in tags {
        if key.is_empty() || key.chars().count() > KEY_LIMIT {
            return Err(s3_error!(InvalidTag, "The TagKey you have provided is invalid"));
        }
        if value.chars().count() > VALUE_LIMIT {
            return Err(s3_error!(InvalidTag, "The TagValue you have provided is invalid"));
        }
        if !keys.insert(key) {
            return Err(s3_error!(
                InvalidTag,
                "Cannot provide multiple Tags with the same key"
            ));
        }
    }
    Ok(())
}

pub(crate) async fn put_object_tagging(
    inner: &Arc<Inner>,
    request: S3Request<PutObjectTaggingInput>,
) -> S3Result<S3Response<PutObjectTaggingOutput>> {
    let input = request.input;
    check_version(input.version_id.as_deref())?;
    let malformed = || -> S3Error {
        s3_error!(
            MalformedXML,
            "The XML you provided was not well-formed or did not validate against our published schema"
        )
    };
    let tags = input
        .tagging
        .tag_set
        .into_iter()
        .map(|tag| Ok((tag.key.ok_or_else(malformed)?, tag.value.ok_or_else(malformed)?)))
        .collect::<S3Result<Tags>>()?;
    check(&tags)?;
    set(inner, input.bucket, input.key, tags).await?;
    Ok(S3Response::new(PutObjectTaggingOutput::default()))
}

pub(crate) async fn delete_object_tagging(
    inner: &Arc<Inner>,
    request: S3Request<DeleteObjectTaggingInput>,
) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
    let input = request.input;
    check_version(input.version_id.as_deref())?;
    set(inner, input.bucket, input.key, Vec::new()).await?;
    Ok(S3Response::new(DeleteObjectTaggingOutput::default()))
}

async fn set(inner: &Arc<Inner>, bucket: String, key: String, tags: Tags) -> S3Result<()> {
    inner.change(Tag { bucket, key, tags }).await
}

pub(crate) async fn get_object_tagging(
    inner: &Arc<Inner>,
    request: S3Request<GetObjectTaggingInput>,
) -> S3Result<S3Response<GetObjectTaggingOutput>> {
    let input = request.input;
    check_version(input.version_id.as_deref())?;
    let record = inner
        .read("read an object's tags", move |transaction| {
            index::record(transaction, &input.bucket, &input.key)
        })
        .await?;
    let tag_set = record
        .tags
        .into_iter()
        .map(|(key, value)| dto::Tag {
            key: Some(key),
            value: Some(value),
        })
        .collect();
    Ok(S3Response::new(GetObjectTaggingOutput {
        tag_set,
        version_id: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_a_header() {
        let tags = parse(Some("color=red&n=1%202&plus=a+b&bare")).unwrap();
        let expected = [("color", "red"), ("n", "1 2"), ("plus", "a b"), ("bare", "")];
        assert_eq!(
            tags,
            expected.map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
        assert_eq!(parse(None).unwrap(), []);
        for wrong in ["a=1&a=2", "=1", "a=%ff", "a&b&c&d&e&f&g&h&i&j&k"] {
            assert!(parse(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
