//! What the index keeps, as JSON: a field that is new is absent in old records.

use crate::{
    fault,
    files::Id,
    sums::{Algorithm, Kind, Sum},
};
use s3s::S3Result;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

/// Milliseconds since 1970, UTC.
pub(crate) type Millis = u64;

pub(crate) fn now() -> Millis {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as Millis)
}

/// A bucket, under its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bucket {
    pub(crate) created: Millis,
}

/// Where an object's data lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// It has none.
    Nowhere,
    /// In the index, under its id.
    Index,
    /// In the file of its id.
    File,
    /// In its parts' files, which a [`Layout`] under its id names.
    Parts,
}

/// What a client says of its data, and gets back with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cache_control: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content_disposition: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content_encoding: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content_language: Option<String>,
    /// Seconds since 1970, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) redirect: Option<String>,
    /// `x-amz-meta-*`, without that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) user: BTreeMap<String, String>,
}

/// An object, under its bucket and key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: Id,
    pub(crate) place: Place,
    /// Bytes.
    pub(crate) size: u64,
    /// Without quotes.
    pub(crate) etag: String,
    pub(crate) modified: Millis,
    #[serde(default)]
    pub(crate) fields: Fields,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sum: Option<Sum>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<(String, String)>,
    /// How many it was uploaded in; 0 if at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) parts: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The parts of an object, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout(pub(crate) Vec<Piece>);

/// A part of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) number: u32,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) file: Id,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sum: Option<Sum>,
}

/// An upload in parts, under its bucket, key and id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upload {
    pub(crate) started: Millis,
    #[serde(default)]
    pub(crate) fields: Fields,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<(String, String)>,
    /// `None` if the client named none: then the object gets the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sum: Option<(Algorithm, Kind)>,
}

impl Upload {
    /// The checksum that the object will have.
    pub(crate) fn checks(&self) -> (Algorithm, Kind) {
        self.sum.unwrap_or((Algorithm::Crc64Nvme, Kind::FullObject))
    }
}

/// A part of an upload, under the upload's id and its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Bytes.
    pub(crate) size: u64,
    /// Without quotes.
    pub(crate) etag: String,
    pub(crate) modified: Millis,
    pub(crate) file: Id,
    pub(crate) sum: Sum,
}

pub(crate) fn encode(value: &impl Serialize) -> S3Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| fault::internal("encode a record", &error))
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, redb::Error> {
    serde_json::from_slice(bytes)
        .map_err(|error| redb::Error::Corrupted(format!("a record of the index cannot be read: {error}")))
}
