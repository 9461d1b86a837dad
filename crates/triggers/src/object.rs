//! New objects, as S3 tells functions of them.

use crate::{Event, Milliseconds};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

/// An object that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// The region of its bucket.
    pub region: &'a str,
    /// Where it lies.
    pub bucket: &'a str,
    /// Its key.
    pub key: &'a str,
    /// Bytes.
    pub size: u64,
    /// Without quotes.
    pub etag: &'a str,
    /// How it came, as S3 says it: `ObjectCreated:Put`.
    pub how: &'a str,
    /// When.
    pub at: Milliseconds,
    /// Larger than those of all objects before it.
    pub sequencer: u64,
}

/// What stands in a key as it is: the rest is as in forms of HTML, which those who read it undo with `unquote_plus`.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'*')
    .remove(b'/')
    .remove(b' ');

/// The event that a new object is, whose data is that of [Amazon's S3][s3], version 2.1. Its other attributes are those of
/// [the adapter of CloudEvents][ce].
///
/// [s3]: https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
/// [ce]: https://github.com/cloudevents/spec/blob/main/cloudevents/adapters/aws-s3.md
pub fn created(id: String, object: &Object<'_>) -> Event {
    let at = i64::try_from(object.at)
        .ok()
        .and_then(|at| Timestamp::from_millisecond(at).ok());
    let time = format!("{:.3}", at.unwrap_or(Timestamp::MAX));
    let Object { region, bucket, .. } = object;
    let key = utf8_percent_encode(object.key, PLAIN)
        .to_string()
        .replace(' ', "+");
    let data = json!({ "Records": [{
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": region,
        "eventTime": time,
        "eventName": object.how,
        "userIdentity": { "principalId": "millpond" },
        "requestParameters": { "sourceIPAddress": "127.0.0.1" },
        "responseElements": { "x-amz-request-id": id, "x-amz-id-2": id },
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "millpond",
            "bucket": {
                "name": bucket,
                "ownerIdentity": { "principalId": "millpond" },
                "arn": format!("arn:aws:s3:::{bucket}"),
            },
            "object": {
                "key": key,
                "size": object.size,
                "eTag": object.etag,
                "sequencer": format!("{:016X}", object.sequencer),
            },
        },
    }] });
    let attributes = [
        ("id", id),
        ("source", format!("aws:s3.{region}.{bucket}")),
        ("type", format!("com.amazonaws.s3.{}", object.how)),
        ("subject", object.key.to_owned()),
        ("time", time),
        ("datacontenttype", "application/json".to_owned()),
    ];
    Event::of(attributes, data.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_as_s3_tells_it() {
        let object = Object {
            region: "us-east-1",
            bucket: "photos",
            key: "in/a b+c/ü%.jpg",
            size: 5,
            etag: "5d41402abc4b2a76b9719d911017c592",
            how: "ObjectCreated:Put",
            at: 1_700_000_000_000,
            sequencer: 26,
        };
        let event = created("7".to_owned(), &object);
        assert_eq!(event.kind(), "com.amazonaws.s3.ObjectCreated:Put");
        assert_eq!(event.source(), "aws:s3.us-east-1.photos");
        let data: serde_json::Value = serde_json::from_slice(&event.data).unwrap();
        let record = &data["Records"][0];
        assert_eq!(record["eventTime"], "2023-11-14T22:13:20.000Z");
        assert_eq!(record["s3"]["object"]["key"], "in/a+b%2Bc/%C3%BC%25.jpg");
        assert_eq!(record["s3"]["object"]["sequencer"], "000000000000001A");
        assert_eq!(record["s3"]["bucket"]["arn"], "arn:aws:s3:::photos");
        let headers: Vec<_> = event.headers().collect();
        assert!(headers.contains(&("Content-Type".to_owned(), b"application/json".to_vec())));
    }
}
