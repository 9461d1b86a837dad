//! Replies: S3's, as a sandbox gets them, and those that this service gives in S3's place.

use crate::document::Document;
use bytes::Bytes;
use contract::{Body, Reply, ResponseHead, Trailers};
use http::{HeaderMap, HeaderName, header};
use serde_json::{Value, json};

/// What S3 would say of a request that is not sent to it: the codes are those of "Error responses" in the Amazon S3 API reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: u16,
    code: &'static str,
    message: String,
}

/// `AccessDenied`'s message.
pub(crate) const DENIED: &str = "Access Denied";

impl Refusal {
    fn new(status: u16, code: &'static str, message: &str) -> Self {
        Self {
            status,
            code,
            message: message.to_owned(),
        }
    }

    pub(crate) fn denied() -> Self {
        Self::new(403, "AccessDenied", DENIED)
    }

    pub(crate) fn invalid(message: &str) -> Self {
        Self::new(400, "InvalidRequest", message)
    }

    pub(crate) fn target() -> Self {
        Self::new(400, "InvalidURI", "Couldn't parse the specified URI.")
    }

    pub(crate) fn bucket() -> Self {
        Self::new(400, "InvalidBucketName", "The specified bucket is not valid.")
    }

    pub(crate) fn source() -> Self {
        let message = "Copy Source must mention the source bucket and key: sourcebucket/sourcekey";
        Self::new(400, "InvalidArgument", message)
    }

    pub(crate) fn incomplete() -> Self {
        let message = "You did not provide the number of bytes specified by the Content-Length HTTP header.";
        Self::new(400, "IncompleteBody", message)
    }

    pub(crate) fn lengthless() -> Self {
        let message = "You must provide the Content-Length HTTP header.";
        Self::new(411, "MissingContentLength", message)
    }

    pub(crate) fn malformed() -> Self {
        let message =
            "The XML you provided was not well-formed or did not validate against our published schema";
        Self::new(400, "MalformedXML", message)
    }

    pub(crate) fn busy() -> Self {
        Self::new(503, "SlowDown", "Please reduce your request rate.")
    }

    /// S3 says that an upload has become an object, and the object is not there. It may be soon, so that one may ask again.
    pub(crate) fn unfinished() -> Self {
        let message = "The upload is said to be complete, but its object is not there. Upload it again if this stays so.";
        Self::new(500, "InternalError", message)
    }

    /// As a reply about this resource; without a body to a HEAD.
    pub(crate) fn reply(self, resource: &str, form: Form) -> Reply {
        let document = Document {
            root: "Error".to_owned(),
            content: json!({ "Code": self.code, "Message": self.message, "Resource": resource }),
        };
        document_reply(self.status, &document, form)
    }
}

/// In which form a document goes to the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Xml,
    Json,
    /// None at all: the reply to a HEAD.
    Nothing,
}

impl Form {
    pub(crate) fn bytes(self, document: &Document) -> Bytes {
        match self {
            Self::Xml => document.xml().into(),
            Self::Json => document.json().into(),
            Self::Nothing => Bytes::new(),
        }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            _ => "application/xml",
        }
    }
}

/// A document of this service's own.
pub(crate) fn document_reply(status: u16, document: &Document, form: Form) -> Reply {
    whole(status, form.media_type(), form.bytes(document))
}

/// A reply that is all here.
pub(crate) fn whole(status: u16, media_type: &'static str, bytes: Bytes) -> Reply {
    let headers = vec![
        ("content-type".into(), Bytes::from_static(media_type.as_bytes())),
        ("content-length".into(), bytes.len().to_string().into()),
    ];
    Reply {
        head: ResponseHead { status, headers },
        body: Body::Whole(bytes),
    }
}

/// Those of the connection's, which end here (RFC 9110, section 7.6.1).
const HOPS: [HeaderName; 9] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// A reply's fields, without those of the connection's.
pub(crate) fn fields(headers: &HeaderMap) -> Trailers {
    let all = headers.iter().filter(|(name, _)| !HOPS.contains(name));
    all.map(|(name, value)| {
        let value = Bytes::copy_from_slice(value.as_bytes());
        (name.as_str().to_owned().into(), value)
    })
    .collect()
}

/// Whether what comes can be a document of S3's, by what its head says.
pub(crate) fn may_be_document(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE);
    media_type.is_none_or(|media_type| {
        let text = media_type.to_str().unwrap_or_default();
        text.to_ascii_lowercase().contains("xml")
    })
}

/// Whether it is one, by how it begins.
pub(crate) fn is_document(bytes: &[u8]) -> bool {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    text.trim_ascii_start().starts_with(b"<")
}

/// Leaves in a listing of buckets those that pass.
pub(crate) fn show_buckets(document: &mut Document, pass: impl Fn(&str) -> bool) {
    let Some(buckets) = document.content.get_mut("Buckets") else {
        return;
    };
    let all = crate::document::list(buckets.get("Bucket")).iter();
    let shown = all.filter(|bucket| bucket.get("Name").and_then(Value::as_str).is_some_and(&pass));
    let shown: Vec<_> = shown.cloned().collect();
    *buckets = match shown.len() {
        0 => "".into(),
        1 => json!({ "Bucket": shown[0] }),
        _ => json!({ "Bucket": shown }),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_reply_of_s3s() {
        let text = |form| {
            let reply = Refusal::denied().reply("/bucket/<k>", form);
            let Body::Whole(bytes) = reply.body else {
                panic!("it is here");
            };
            assert_eq!(reply.head.status, 403);
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        assert_eq!(
            text(Form::Xml),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied</Message>\
             <Resource>/bucket/&lt;k&gt;</Resource></Error>"
        );
        assert_eq!(
            text(Form::Json),
            r#"{"Code":"AccessDenied","Message":"Access Denied","Resource":"/bucket/<k>"}"#
        );
        assert_eq!(text(Form::Nothing), "");
    }

    #[test]
    fn buckets_that_are_not_granted_are_not_shown() {
        let xml = "<ListAllMyBucketsResult><Buckets><Bucket><Name>one</Name></Bucket><Bucket><Name>two</Name></Bucket>\
            <Bucket><Name>three</Name></Bucket></Buckets><Owner><ID>1</ID></Owner></ListAllMyBucketsResult>";
        for (granted, expected) in [
            (
                &["one", "three"][..],
                r#"{"Bucket":[{"Name":"one"},{"Name":"three"}]}"#,
            ),
            (&["two"], r#"{"Bucket":{"Name":"two"}}"#),
            (&[], r#""""#),
        ] {
            let mut document = Document::parse(xml.as_bytes()).unwrap();
            show_buckets(&mut document, |bucket| granted.contains(&bucket));
            assert_eq!(document.content["Buckets"].to_string(), expected);
            assert_eq!(document.content["Owner"]["ID"], "1");
        }
    }

    #[test]
    fn fields_of_the_connection_end_here() {
        let headers: HeaderMap = [
            (header::CONNECTION, "close".parse().unwrap()),
            (header::TRANSFER_ENCODING, "chunked".parse().unwrap()),
            (header::ETAG, "\"x\"".parse().unwrap()),
        ]
        .into_iter()
        .collect();
        assert_eq!(fields(&headers), [("etag".into(), Bytes::from_static(b"\"x\""))]);
    }
}
