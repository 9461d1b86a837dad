//! Changes of buckets and objects.

use crate::{
    Created, Event,
    conditions::Writing,
    fault,
    files::Draft,
    index::{behind, layout},
    record::{Bucket, Millis, Place, Record, decode, encode},
    writer::{Change, Tables},
};
use bytes::Bytes;
use redb::ReadableTable;
use s3s::{S3Result, s3_error};

/// Data that has been received and checked.
pub(crate) enum Data {
    /// It goes to the index.
    Small(Bytes),
    /// It lies in a file, on the disk.
    File(Draft),
}

pub(crate) struct CreateBucket {
    pub(crate) name: String,
    pub(crate) created: Millis,
}

impl Change for CreateBucket {
    type Answer = ();

    fn apply(self, tables: &mut Tables<'_>) -> Result<S3Result<()>, redb::Error> {
        if tables.is_bucket(&self.name)? {
            return Ok(Err(s3_error!(
                BucketAlreadyOwnedByYou,
                "Your previous request to create the named bucket succeeded and you already own it."
            )));
        }
        let bucket = match encode(&Bucket {
            created: self.created,
        }) {
            Ok(bucket) => bucket,
            Err(error) => return Ok(Err(error)),
        };
        tables.buckets.insert(self.name.as_str(), bucket.as_slice())?;
        tables.after.changed = true;
        Ok(Ok(()))
    }
}

pub(crate) struct DeleteBucket {
    pub(crate) name: String,
}

impl Change for DeleteBucket {
    type Answer = ();
    const FREES: bool = true;

    fn apply(self, tables: &mut Tables<'_>) -> Result<S3Result<()>, redb::Error> {
        let name = self.name.as_str();
        if !tables.is_bucket(name)? {
            return Ok(Err(fault::no_such_bucket()));
        }
        let end = behind(name);
        if tables
            .objects
            .range((name, "")..(end.as_str(), ""))?
            .next()
            .is_some()
        {
            return Ok(Err(s3_error!(
                BucketNotEmpty,
                "The bucket you tried to delete is not empty"
            )));
        }
        // Uploads that were never completed end with their bucket.
        let mut uploads = Vec::new();
        for upload in tables.uploads.range((name, "", "")..(end.as_str(), "", ""))? {
            let at = upload?.0;
            let (_, key, upload) = at.value();
            uploads.push((key.to_owned(), upload.to_owned()));
        }
        for (key, upload) in uploads {
            tables.forget_upload(name, &key, &upload)?;
        }
        tables.buckets.remove(name)?;
        tables.after.changed = true;
        Ok(Ok(()))
    }
}

/// Puts an object.
pub(crate) struct Put {
    pub(crate) bucket: String,
    pub(crate) key: String,
    /// Its id and place are those of the data.
    pub(crate) record: Record,
    pub(crate) data: Data,
    pub(crate) condition: Writing,
    pub(crate) event: Event,
}

impl Change for Put {
    type Answer = Record;

    fn size(&self) -> usize {
        match &self.data {
            Data::Small(bytes) => bytes.len(),
            Data::File(_) => 0,
        }
    }

    fn apply(self, tables: &mut Tables<'_>) -> Result<S3Result<Record>, redb::Error> {
        let Self {
            bucket,
            key,
            mut record,
            data,
            condition,
            event,
        } = self;
        if let Err(refused) = tables.may_write(&bucket, &key, &condition)? {
            return Ok(Err(refused));
        }
        match data {
            Data::Small(bytes) if bytes.is_empty() => record.place = Place::Nowhere,
            Data::Small(bytes) => {
                record.place = Place::Index;
                tables.contents.insert(record.id.0, &*bytes)?;
            }
            Data::File(draft) => {
                record.place = Place::File;
                record.id = draft.id;
                tables.after.kept.push(draft);
            }
        }
        tables.put_record(bucket, key, record, event)
    }
}

/// An object that is to go.
pub(crate) struct Doomed {
    pub(crate) key: String,
    pub(crate) condition: Writing,
}

/// Deletes objects of a bucket, each with its own verdict.
pub(crate) struct Delete {
    pub(crate) bucket: String,
    pub(crate) objects: Vec<Doomed>,
}

impl Change for Delete {
    type Answer = Vec<S3Result<()>>;
    const FREES: bool = true;

    fn apply(self, tables: &mut Tables<'_>) -> Result<S3Result<Self::Answer>, redb::Error> {
        if !tables.is_bucket(&self.bucket)? {
            return Ok(Err(fault::no_such_bucket()));
        }
        let mut verdicts = Vec::with_capacity(self.objects.len());
        for Doomed { key, condition } in self.objects {
            let at = (self.bucket.as_str(), key.as_str());
            let found = tables.found(at)?;
            if let Err(refused) = condition.check(found.as_ref()) {
                verdicts.push(Err(refused));
                continue;
            }
            if let Some(found) = found {
                tables.objects.remove(at)?;
                tables.forget(&found)?;
                tables.after.changed = true;
            }
            verdicts.push(Ok(()));
        }
        Ok(Ok(verdicts))
    }
}

/// Sets an object's tags.
pub(crate) struct Tag {
    pub(crate) bucket: String,
    pub(crate) key: String,
    pub(crate) tags: Vec<(String, String)>,
}

impl Change for Tag {
    type Answer = ();

    fn apply(self, tables: &mut Tables<'_>) -> Result<S3Result<()>, redb::Error> {
        let at = (self.bucket.as_str(), self.key.as_str());
        let Some(mut record) = tables.found(at)? else {
            return Ok(Err(match tables.is_bucket(&self.bucket)? {
                true => fault::no_such_key(),
                false => fault::no_such_bucket(),
            }));
        };
        record.tags = self.tags;
        let record = match encode(&record) {
            Ok(record) => record,
            Err(error) => return Ok(Err(error)),
        };
        tables.objects.insert(at, record.as_slice())?;
        tables.after.changed = true;
        Ok(Ok(()))
    }
}

impl Tables<'_> {
    pub(crate) fn found(&self, at: (&str, &str)) -> Result<Option<Record>, redb::Error> {
        let found = self.objects.get(at)?;
        found.map(|found| decode(found.value())).transpose()
    }

    pub(crate) fn may_write(
        &self,
        bucket: &str,
        key: &str,
        condition: &Writing,
    ) -> Result<S3Result<()>, redb::Error> {
        if !self.is_bucket(bucket)? {
            return Ok(Err(fault::no_such_bucket()));
        }
        Ok(match condition {
            Writing::Always => Ok(()),
            condition => condition.check(self.found((bucket, key))?.as_ref()),
        })
    }

    /// Writes an object's record; what was there goes. All that it names is there.
    pub(crate) fn put_record(
        &mut self,
        bucket: String,
        key: String,
        record: Record,
        event: Event,
    ) -> Result<S3Result<Record>, redb::Error> {
        let encoded = match encode(&record) {
            Ok(encoded) => encoded,
            // A record of ours always can be.
            Err(_) => return Err(redb::Error::Corrupted("a record cannot be encoded".to_owned())),
        };
        let old = self
            .objects
            .insert((bucket.as_str(), key.as_str()), encoded.as_slice())?
            .map(|old| decode::<Record>(old.value()))
            .transpose()?;
        if let Some(old) = old {
            self.forget(&old)?;
        }
        self.after.changed = true;
        self.tell(&Created {
            bucket,
            key,
            size: record.size,
            etag: record.etag.clone(),
            modified: record.modified,
            event,
        })?;
        Ok(Ok(record))
    }

    /// Lets go of an object's data, whose record is gone.
    pub(crate) fn forget(&mut self, record: &Record) -> Result<(), redb::Error> {
        match record.place {
            Place::Nowhere => {}
            Place::Index => drop(self.contents.remove(record.id.0)?),
            Place::File => self.after.doomed.push(record.id),
            Place::Parts => {
                let layout = layout(&self.contents, record.id)?;
                self.contents.remove(record.id.0)?;
                self.after.doomed.extend(layout.0.iter().map(|piece| piece.file));
            }
        }
        Ok(())
    }

    /// Removes an upload and what was uploaded. The files of its parts are doomed.
    pub(crate) fn forget_upload(&mut self, bucket: &str, key: &str, upload: &str) -> Result<(), redb::Error> {
        let mut numbers = Vec::new();
        let mut files = Vec::new();
        for part in self.parts.range((upload, 0)..=(upload, u32::MAX))? {
            let (at, part) = part?;
            numbers.push(at.value().1);
            files.push(decode::<crate::record::Part>(part.value())?.file);
        }
        for number in numbers {
            self.parts.remove((upload, number))?;
        }
        self.uploads.remove((bucket, key, upload))?;
        self.after.doomed.append(&mut files);
        self.after.changed = true;
        Ok(())
    }
}
