//! Attributes of objects, and their parts.

use crate::{
    Inner, fault,
    read::{find, signed},
    record::Layout,
    request::{check_version, etag, kind_of, set_sum, timestamp},
};
use s3s::{
    S3Request, S3Response, S3Result,
    dto::{
        self, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts,
        ObjectAttributes, ObjectPart, StorageClass,
    },
};
use std::sync::Arc;

pub(crate) async fn get_object_attributes(
    inner: &Arc<Inner>,
    request: S3Request<GetObjectAttributesInput>,
) -> S3Result<S3Response<GetObjectAttributesOutput>> {
    let input = request.input;
    check_version(input.version_id.as_deref())?;
    // s3s leaves a list in one field whole.
    let named = || {
        input
            .object_attributes
            .iter()
            .flat_map(|one| one.as_str().split(','))
    };
    let wants = |name| named().any(|one| one.trim() == name);
    let parts = wants(ObjectAttributes::OBJECT_PARTS);
    let (record, layout) = find(inner, input.bucket, input.key, parts).await?;
    let mut output = GetObjectAttributesOutput {
        last_modified: Some(timestamp(record.modified)),
        ..Default::default()
    };
    if wants(ObjectAttributes::ETAG) {
        output.e_tag = etag(&record.etag);
    }
    if wants(ObjectAttributes::OBJECT_SIZE) {
        output.object_size = signed(record.size);
    }
    if wants(ObjectAttributes::STORAGE_CLASS) {
        output.storage_class = Some(StorageClass::from_static(StorageClass::STANDARD));
    }
    if wants(ObjectAttributes::CHECKSUM) {
        let mut checksum = dto::Checksum {
            checksum_type: kind_of(record.sum.as_ref()),
            ..Default::default()
        };
        set_sum!(checksum, &record.sum);
        output.checksum = Some(checksum);
    }
    if let Some(layout) = layout {
        let limit = page(input.max_parts)?;
        output.object_parts = Some(parts_page(&layout, limit, input.part_number_marker.unwrap_or(0)));
    }
    Ok(S3Response::new(output))
}

/// How many parts a page has.
pub(crate) fn page(asked: Option<i32>) -> S3Result<usize> {
    match asked {
        None => Ok(1000),
        Some(asked) => usize::try_from(asked).map(|asked| asked.min(1000)).map_err(|_| {
            fault::invalid_argument("Argument max-parts must be an integer between 0 and 2147483647")
        }),
    }
}

fn parts_page(layout: &Layout, limit: usize, marker: i32) -> GetObjectAttributesParts {
    let mut rest = layout
        .0
        .iter()
        .filter(|piece| i64::from(piece.number) > i64::from(marker));
    let shown: Vec<_> = rest.by_ref().take(limit).collect();
    // Parts are only listed where they have checksums of their own.
    let parts: Vec<_> = shown
        .iter()
        .filter(|piece| piece.sum.is_some())
        .map(|piece| {
            let mut part = ObjectPart {
                part_number: i32::try_from(piece.number).ok(),
                size: signed(piece.size),
                ..Default::default()
            };
            set_sum!(part, &piece.sum);
            part
        })
        .collect();
    GetObjectAttributesParts {
        is_truncated: Some(rest.next().is_some()),
        max_parts: i32::try_from(limit).ok(),
        next_part_number_marker: shown.last().and_then(|piece| i32::try_from(piece.number).ok()),
        part_number_marker: Some(marker),
        parts: (!parts.is_empty()).then_some(parts),
        total_parts_count: i32::try_from(layout.0.len()).ok(),
    }
}
