//! Changes of uploads in parts, and how parts become an object.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html>

use crate::{
    Event,
    conditions::Writing,
    fault,
    files::{Draft, Id},
    record::{Layout, Millis, Part, Piece, Place, Record, Upload, decode, encode},
    sums::{Algorithm, Sum, etag_of_parts, sum_of_parts},
    writer::{Change, Tables},
};
use redb::ReadableTable;
use s3s::{S3Result, s3_error};
use std::collections::HashSet;

/// Bytes of every part but the last one, at least.
pub(crate) const PART_MINIMUM: u64 = 5 << 20;
/// Parts of an upload at most.
pub(crate) const PARTS_LIMIT: u32 = 10_000;

pub(crate) struct Begin {
    pub(crate) bucket: String,
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) upload: Upload,
}

impl Change for Begin {
    type Answer = ();

    fn apply(self, tables: &mut Tables<'_>) -> Result<S3Result<()>, redb::Error> {
        if !tables.is_bucket(&self.bucket)? {
            return Ok(Err(fault::no_such_bucket()));
        }
        let upload = match encode(&self.upload) {
            Ok(upload) => upload,
            Err(error) => return Ok(Err(error)),
        };
        let at = (self.bucket.as_str(), self.key.as_str(), self.id.as_str());
        tables.uploads.insert(at, upload.as_slice())?;
        tables.after.changed = true;
        Ok(Ok(()))
    }
}

pub(crate) struct PutPart {
    pub(crate) bucket: String,
    pub(crate) key: String,
    pub(crate) upload: String,
    pub(crate) number: u32,
    pub(crate) part: Part,
    pub(crate) draft: Draft,
}

impl Change for PutPart {
    type Answer = ();

    fn apply(self, tables: &mut Tables<'_>) -> Result<S3Result<()>, redb::Error> {
        if let Err(refused) = tables.upload(&self.bucket, &self.key, &self.upload)? {
            return Ok(Err(refused));
        }
        let part = match encode(&self.part) {
            Ok(part) => part,
            Err(error) => return Ok(Err(error)),
        };
        let at = (self.upload.as_str(), self.number);
        let old = tables
            .parts
            .insert(at, part.as_slice())?
            .map(|old| decode::<Part>(old.value()))
            .transpose()?;
        tables.after.doomed.extend(old.map(|old| old.file));
        tables.after.kept.push(self.draft);
        tables.after.changed = true;
        Ok(Ok(()))
    }
}

pub(crate) struct Abort {
    pub(crate) bucket: String,
    pub(crate) key: String,
    pub(crate) upload: String,
}

impl Change for Abort {
    type Answer = ();
    const FREES: bool = true;

    fn apply(self, tables: &mut Tables<'_>) -> Result<S3Result<()>, redb::Error> {
        if let Err(refused) = tables.upload(&self.bucket, &self.key, &self.upload)? {
            return Ok(Err(refused));
        }
        tables.forget_upload(&self.bucket, &self.key, &self.upload)?;
        Ok(Ok(()))
    }
}

/// A part that the object is to have, as the client knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) number: u32,
    /// Without quotes.
    pub(crate) etag: String,
    /// In base 64.
    pub(crate) sum: Option<(Algorithm, String)>,
}

pub(crate) struct Complete {
    pub(crate) bucket: String,
    pub(crate) key: String,
    pub(crate) upload: String,
    pub(crate) chosen: Vec<Chosen>,
    pub(crate) condition: Writing,
    /// What the client says that it comes to: bytes, and a checksum in base 64.
    pub(crate) size: Option<u64>,
    pub(crate) sum: Option<(Algorithm, String)>,
    /// Of the object.
    pub(crate) id: Id,
    pub(crate) modified: Millis,
}

impl Change for Complete {
    type Answer = Record;

    fn apply(self, tables: &mut Tables<'_>) -> Result<S3Result<Record>, redb::Error> {
        let upload = match tables.upload(&self.bucket, &self.key, &self.upload)? {
            Ok(upload) => upload,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Err(refused) = tables.may_write(&self.bucket, &self.key, &self.condition)? {
            return Ok(Err(refused));
        }
        let mut parts = Vec::with_capacity(self.chosen.len());
        for chosen in &self.chosen {
            let part = tables.parts.get((self.upload.as_str(), chosen.number))?;
            parts.push(part.map(|part| decode::<Part>(part.value())).transpose()?);
        }
        let (record, layout) = match assemble(&self, upload, &parts) {
            Ok(assembled) => assembled,
            Err(refused) => return Ok(Err(refused)),
        };
        let encoded = match encode(&layout) {
            Ok(encoded) => encoded,
            Err(error) => return Ok(Err(error)),
        };
        tables.contents.insert(self.id.0, encoded.as_slice())?;
        let doomed = tables.after.doomed.len();
        tables.forget_upload(&self.bucket, &self.key, &self.upload)?;
        let kept: HashSet<Id> = layout.0.iter().map(|piece| piece.file).collect();
        let uploaded = tables.after.doomed.split_off(doomed);
        tables
            .after
            .doomed
            .extend(uploaded.into_iter().filter(|file| !kept.contains(file)));
        tables.put_record(self.bucket, self.key, record, Event::CompleteMultipartUpload)
    }
}

/// The object that the chosen parts make, or what is wrong with them.
fn assemble(complete: &Complete, upload: Upload, parts: &[Option<Part>]) -> S3Result<(Record, Layout)> {
    let chosen = &complete.chosen;
    if chosen.is_empty() {
        return Err(s3_error!(
            MalformedXML,
            "The XML you provided was not well-formed or did not validate against our published schema"
        ));
    }
    if !chosen.is_sorted_by(|one, next| one.number < next.number) {
        return Err(s3_error!(
            InvalidPartOrder,
            "The list of parts was not in ascending order. Parts must be ordered by part number."
        ));
    }
    let parts: Vec<&Part> = chosen
        .iter()
        .zip(parts)
        .map(|(chosen, part)| {
            let part = part.as_ref().filter(|part| part.etag == chosen.etag);
            let part = part.ok_or_else(fault::invalid_part)?;
            match &chosen.sum {
                Some((algorithm, value)) if upload.sum.is_some() => {
                    let same = *algorithm == part.sum.algorithm && *value == part.sum.value;
                    if same {
                        Ok(part)
                    } else {
                        Err(fault::invalid_part())
                    }
                }
                _ => Ok(part),
            }
        })
        .collect::<S3Result<_>>()?;
    if let Some((_, before)) = parts.split_last()
        && before.iter().any(|part| part.size < PART_MINIMUM)
    {
        return Err(s3_error!(
            EntityTooSmall,
            "Your proposed upload is smaller than the minimum allowed size"
        ));
    }
    let size = parts.iter().map(|part| part.size).sum();
    if complete.size.is_some_and(|said| said != size) {
        return Err(s3_error!(
            InvalidRequest,
            "The provided 'x-amz-mp-object-size' header value {} does not match what was computed: {size}",
            complete.size.unwrap_or_default()
        ));
    }
    let etag =
        etag_of_parts(chosen.iter().map(|chosen| chosen.etag.as_str())).ok_or_else(fault::invalid_part)?;
    let (algorithm, kind) = upload.checks();
    let sums: Vec<_> = parts
        .iter()
        .map(|part| (part.sum.value.as_str(), part.size))
        .collect();
    let sum = sum_of_parts(algorithm, kind, &sums)
        .ok_or_else(|| fault::internal("combine checksums", &"a part's checksum is none"))?;
    if let Some((said, value)) = &complete.sum {
        // Without the number of parts it is the same sum.
        let bare = sum.value.split('-').next();
        if *said == algorithm && *value != sum.value && bare != Some(value) {
            return Err(fault::bad_digest(algorithm.name()));
        }
    }
    let layout = Layout(
        chosen
            .iter()
            .zip(&parts)
            .map(|(chosen, part)| Piece {
                number: chosen.number,
                size: part.size,
                file: part.file,
                sum: upload.sum.is_some().then(|| part.sum.clone()),
            })
            .collect(),
    );
    let record = Record {
        id: complete.id,
        place: Place::Parts,
        size,
        etag,
        modified: complete.modified,
        fields: upload.fields,
        sum: Some(sum),
        tags: upload.tags,
        parts: u32::try_from(chosen.len()).unwrap_or(u32::MAX),
    };
    Ok((record, layout))
}

impl Tables<'_> {
    fn upload(&self, bucket: &str, key: &str, upload: &str) -> Result<S3Result<Upload>, redb::Error> {
        if let Some(upload) = self.uploads.get((bucket, key, upload))? {
            return Ok(Ok(decode(upload.value())?));
        }
        Ok(Err(match self.is_bucket(bucket)? {
            true => fault::no_such_upload(),
            false => fault::no_such_bucket(),
        }))
    }
}

/// The checksum of a part as it is kept.
pub(crate) fn part_sum(algorithm: Algorithm, value: &str) -> Sum {
    Sum {
        algorithm,
        // A part is whole.
        kind: crate::sums::Kind::FullObject,
        value: value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{files::Id, sums::Hasher};

    fn part(data: &[u8], number: u128) -> Part {
        let mut hasher = Hasher::new(&[Algorithm::Crc64Nvme]);
        hasher.update(data);
        let digests = hasher.finish();
        Part {
            size: digests.size,
            etag: digests.etag(),
            modified: 0,
            file: Id(number),
            sum: part_sum(Algorithm::Crc64Nvme, digests.sum(Algorithm::Crc64Nvme).unwrap()),
        }
    }

    fn attempt(
        numbers: &[u32],
        parts: &[Part],
        change: impl Fn(&mut Complete),
    ) -> Result<(Record, Layout), String> {
        let mut complete = Complete {
            bucket: "b".to_owned(),
            key: "k".to_owned(),
            upload: "u".to_owned(),
            chosen: numbers
                .iter()
                .zip(parts)
                .map(|(number, part)| Chosen {
                    number: *number,
                    etag: part.etag.clone(),
                    sum: None,
                })
                .collect(),
            condition: Writing::Always,
            size: None,
            sum: None,
            id: Id(9),
            modified: 7,
        };
        change(&mut complete);
        let upload = Upload {
            started: 0,
            fields: crate::record::Fields::default(),
            tags: Vec::new(),
            sum: None,
        };
        let parts: Vec<_> = parts.iter().cloned().map(Some).collect();
        assemble(&complete, upload, &parts).map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn parts_become_an_object_by_reference() {
        let data = [vec![1; 5 << 20], vec![2; 3]];
        let parts = [part(&data[0], 1), part(&data[1], 2)];
        let (record, layout) =
            attempt(&[1, 7], &parts, |complete| complete.size = Some((5 << 20) + 3)).unwrap();
        assert_eq!(record.size, (5 << 20) + 3);
        assert!(record.etag.ends_with("-2"));
        let mut whole = Hasher::new(&[Algorithm::Crc64Nvme]);
        whole.update(&data.concat());
        assert_eq!(
            record.sum.unwrap().value,
            whole.finish().sum(Algorithm::Crc64Nvme).unwrap()
        );
        let files: Vec<_> = layout.0.iter().map(|piece| (piece.number, piece.file)).collect();
        assert_eq!(files, [(1, Id(1)), (7, Id(2))]);
    }

    #[test]
    fn what_is_wrong_with_parts_is_said() {
        let parts = [part(&vec![1; 5 << 20], 1), part(b"x", 2)];
        let refused = |numbers: &[u32], parts: &[Part], change: &dyn Fn(&mut Complete)| {
            attempt(numbers, parts, |complete| change(complete)).unwrap_err()
        };
        assert_eq!(refused(&[2, 1], &parts, &|_| {}), "InvalidPartOrder");
        assert_eq!(refused(&[1, 1], &parts, &|_| {}), "InvalidPartOrder");
        assert_eq!(refused(&[], &[], &|_| {}), "MalformedXML");
        let short = [parts[1].clone(), parts[0].clone()];
        assert_eq!(refused(&[1, 2], &short, &|_| {}), "EntityTooSmall");
        assert_eq!(
            refused(&[1, 2], &parts, &|complete| complete.chosen[1].etag.push('0')),
            "InvalidPart"
        );
        assert_eq!(
            refused(&[1, 2], &parts, &|complete| complete.size = Some(1)),
            "InvalidRequest"
        );
        let wrong = Some((Algorithm::Crc64Nvme, "AAAAAAAAAAA=".to_owned()));
        assert_eq!(
            refused(&[1, 2], &parts, &|complete| complete.sum.clone_from(&wrong)),
            "BadDigest"
        );
    }
}
