//! `DeleteObjects`: many keys in one request, each of which is granted or not. What is not is left out of what is sent, and answered
//! beside the rest, as S3 does.

use crate::{
    access::{Need, is_granted},
    document::{Document, escape},
    reply::DENIED,
};
use contract::{S3Action, S3Grant};
use serde_json::{Map, Value, json};

/// A request's body, at most.
pub(crate) const MAXIMUM: usize = 2 << 20;
/// What an object in the request may have, in the order of S3's schema.
const PARTS: [&str; 5] = ["Key", "VersionId", "ETag", "LastModifiedTime", "Size"];

/// What is asked, taken apart.
#[derive(Debug)]
pub(crate) struct Deletion {
    granted: Vec<Map<String, Value>>,
    pub(crate) denied: Vec<Map<String, Value>>,
    is_quiet: bool,
}

impl Deletion {
    /// Reads it; `None` if it is none.
    pub(crate) fn parse(bytes: &[u8], bucket: &str, grants: &[S3Grant]) -> Option<Self> {
        let document = Document::parse(bytes).ok()?;
        let inner = document.content.as_object()?;
        if document.root != "Delete" || inner.keys().any(|name| name != "Object" && name != "Quiet") {
            return None;
        }
        let mut deletion = Self {
            granted: Vec::new(),
            denied: Vec::new(),
            is_quiet: matches!(inner.get("Quiet").and_then(Value::as_str), Some("true" | "1")),
        };
        for object in document.all("Object") {
            let object = object.as_object()?;
            let is_known = |(name, value): (&String, &Value)| PARTS.contains(&&name[..]) && value.is_string();
            if !object.iter().all(is_known) {
                return None;
            }
            let need = Need {
                action: S3Action::Delete,
                bucket: bucket.to_owned(),
                key: Some(object.get("Key")?.as_str()?.to_owned()),
            };
            match is_granted(grants, &need) {
                true => deletion.granted.push(object.clone()),
                false => deletion.denied.push(object.clone()),
            }
        }
        (!deletion.granted.is_empty() || !deletion.denied.is_empty()).then_some(deletion)
    }

    /// The request for those that are granted, if there are any.
    pub(crate) fn request(&self) -> Option<Vec<u8>> {
        if self.granted.is_empty() {
            return None;
        }
        let mut text = String::from("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        for object in &self.granted {
            text.push_str("<Object>");
            for name in PARTS {
                if let Some(value) = object.get(name).and_then(Value::as_str) {
                    text.push_str(&format!("<{name}>"));
                    escape(&mut text, value);
                    text.push_str(&format!("</{name}>"));
                }
            }
            text.push_str("</Object>");
        }
        if self.is_quiet {
            text.push_str("<Quiet>true</Quiet>");
        }
        text.push_str("</Delete>");
        Some(text.into_bytes())
    }

    /// The result if nothing was asked of S3.
    pub(crate) fn nothing() -> Document {
        Document {
            root: "DeleteResult".to_owned(),
            content: Value::String(String::new()),
        }
    }

    /// Adds to the result what was denied.
    pub(crate) fn complete(&self, result: &mut Document) {
        for object in &self.denied {
            let mut error = json!({ "Code": "AccessDenied", "Message": DENIED, "Key": object.get("Key") });
            if let Some(version) = object.get("VersionId") {
                error["VersionId"] = version.clone();
            }
            result.add("Error", error);
        }
    }

    /// The keys that were denied.
    pub(crate) fn denied_keys(&self) -> impl Iterator<Item = &str> {
        self.denied
            .iter()
            .filter_map(|object| object.get("Key").and_then(Value::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants() -> [S3Grant; 2] {
        let grant = |bucket: &str, prefix: &str, action| S3Grant {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            actions: vec![action],
        };
        [
            grant("bucket", "in/", S3Action::Delete),
            grant("bucket", "", S3Action::Put),
        ]
    }

    fn parse(inner: &str) -> Option<Deletion> {
        Deletion::parse(
            format!("<Delete>{inner}</Delete>").as_bytes(),
            "bucket",
            &grants(),
        )
    }

    #[test]
    fn keys_that_are_not_granted_are_answered_and_not_sent() {
        let deletion = parse(
            "<Object><VersionId>3</VersionId><Key>in/a&amp;&#13;</Key></Object><Object><Key>out/b</Key><VersionId>7</VersionId></Object>\
             <Object><Key>in/../out</Key></Object><Object><Key>in/c</Key></Object><Quiet>true</Quiet>",
        );
        let deletion = deletion.unwrap();
        let request = String::from_utf8(deletion.request().unwrap()).unwrap();
        assert_eq!(
            request,
            "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Object><Key>in/a&amp;&#13;</Key>\
             <VersionId>3</VersionId></Object><Object><Key>in/c</Key></Object><Quiet>true</Quiet></Delete>"
        );
        let mut result = Document::parse(
            b"<DeleteResult><Deleted><Key>in/c</Key></Deleted><Error><Key>in/a</Key></Error></DeleteResult>",
        );
        let result = result.as_mut().unwrap();
        deletion.complete(result);
        let keys: Vec<_> = result
            .all("Error")
            .iter()
            .map(|error| error["Key"].as_str())
            .collect();
        assert_eq!(keys, [Some("in/a"), Some("out/b"), Some("in/../out")]);
        assert_eq!(result.all("Error")[1]["VersionId"], "7");
        assert_eq!(result.all("Error")[1]["Code"], "AccessDenied");
        assert_eq!(result.all("Deleted").len(), 1);
        assert_eq!(deletion.denied_keys().collect::<Vec<_>>(), ["out/b", "in/../out"]);
    }

    #[test]
    fn nothing_is_sent_if_nothing_is_granted() {
        let deletion = parse("<Object><Key>out/b</Key></Object>").unwrap();
        assert_eq!(deletion.request(), None);
        let mut result = Deletion::nothing();
        deletion.complete(&mut result);
        assert_eq!(result.all("Error").len(), 1);
    }

    #[test]
    fn what_is_no_deletion() {
        for bad in [
            "",
            "<Object/>",
            "<Object><VersionId>1</VersionId></Object>",
            "<Object><Key>in/a</Key><Key>out/b</Key></Object>",
            "<Object><Key><Key>in/a</Key></Key></Object>",
            "<Object><Key>in/a</Key></Object><Other/>",
            "<Object><Key>in/a</Key><Other/></Object>",
            "<Key>in/a</Key>",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
        assert!(
            Deletion::parse(
                b"<Other><Object><Key>in/a</Key></Object></Other>",
                "bucket",
                &grants()
            )
            .is_none()
        );
    }
}
