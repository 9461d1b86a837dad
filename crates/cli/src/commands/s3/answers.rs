//! What S3 says, in XML.

use crate::failure::Failure;
use contract::Problem;
use percent_encoding::percent_decode_str;
use quick_xml::{Reader, escape::resolve_predefined_entity, events::Event};

/// Something that a listing has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// What keys have in common up to a slash.
    Prefix(String),
    Object {
        key: String,
        /// Bytes.
        size: u64,
        modified: String,
    },
}

/// A page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) entries: Vec<Entry>,
    /// Where the next page begins.
    pub(super) next: Option<String>,
}

/// The texts of a document in their order, each with the names of the elements around it.
fn texts(document: &str) -> Result<Vec<(String, String)>, Failure> {
    let wrong = |reason: String| Failure::Foreign {
        attempt: "read what S3 says".to_owned(),
        reason,
    };
    let mut reader = Reader::from_str(document);
    let mut path = Vec::new();
    let mut texts: Vec<(String, String)> = Vec::new();
    loop {
        match reader.read_event().map_err(|error| wrong(error.to_string()))? {
            Event::Start(element) => {
                path.push(element.local_name().as_ref().to_owned());
                texts.push((path.join("/"), String::new()));
            }
            Event::End(_) => drop(path.pop()),
            Event::Text(text) => {
                if let Some((_, last)) = texts.last_mut() {
                    last.push_str(&text.xml10_content());
                }
            }
            Event::GeneralRef(reference) => {
                let known = reference.resolve_char_ref();
                let character = known.map_err(|error| wrong(error.to_string()))?;
                let name = reference.xml10_content();
                let text = match character {
                    Some(character) => character.to_string(),
                    None => resolve_predefined_entity(&name)
                        .ok_or_else(|| wrong(format!("`{name}` is unknown")))?
                        .to_owned(),
                };
                if let Some((_, last)) = texts.last_mut() {
                    last.push_str(&text);
                }
            }
            Event::Eof => return Ok(texts),
            _ => {}
        }
    }
}

/// The names of buckets, and when they were made.
pub(super) fn buckets(document: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut buckets: Vec<(String, String)> = Vec::new();
    for (path, text) in texts(document)? {
        match path.strip_prefix("ListAllMyBucketsResult/Buckets/Bucket") {
            Some("") => buckets.push(Default::default()),
            Some("/Name") => buckets
                .last_mut()
                .into_iter()
                .for_each(|one| one.0.clone_from(&text)),
            Some("/CreationDate") => buckets
                .last_mut()
                .into_iter()
                .for_each(|one| one.1.clone_from(&text)),
            _ => {}
        }
    }
    Ok(buckets)
}

/// A page of a listing whose keys are percent-encoded.
pub(super) fn list(document: &str) -> Result<Listed, Failure> {
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let mut listed = Listed::default();
    for (path, text) in texts(document)? {
        let Some(path) = path.strip_prefix("ListBucketResult/") else {
            continue;
        };
        match (path, listed.entries.last_mut()) {
            ("Contents", _) => listed.entries.push(Entry::Object {
                key: String::new(),
                size: 0,
                modified: String::new(),
            }),
            ("Contents/Key", Some(Entry::Object { key, .. })) => *key = plain(&text),
            ("Contents/Size", Some(Entry::Object { size, .. })) => *size = text.parse().unwrap_or_default(),
            ("Contents/LastModified", Some(Entry::Object { modified, .. })) => *modified = text,
            ("CommonPrefixes/Prefix", _) => listed.entries.push(Entry::Prefix(plain(&text))),
            ("NextContinuationToken", _) => listed.next = Some(text),
            _ => {}
        }
    }
    Ok(listed)
}

/// What S3 refused, in words for people.
pub(super) fn refusal(failure: Failure) -> Failure {
    let Failure::Answer { attempt, problem } = failure else {
        return failure;
    };
    let said = texts(&problem.detail).unwrap_or_default();
    let find = |name: &str| {
        let mut found = said.iter().filter(|(path, _)| path == name);
        found.next().map(|(_, text)| text.clone())
    };
    let Some(code) = find("Error/Code") else {
        return Failure::Answer { attempt, problem };
    };
    let hint = match code.as_str() {
        "NoSuchBucket" => "make it with `millpond s3 mb`, or see which there are with `millpond s3 ls`",
        "NoSuchKey" => "see which there are with `millpond s3 ls --recursive s3://BUCKET`",
        "InvalidBucketName" => {
            "use 3 to 63 of a-z, 0-9, `-` and `.`, beginning and ending with a letter or digit"
        }
        "BucketNotEmpty" => "empty it with `millpond s3 rm --recursive s3://BUCKET`",
        _ => "",
    };
    let message = find("Error/Message").unwrap_or_default();
    let (status, detail) = (problem.status, format!("S3 says {code}: {message}"));
    Failure::Answer {
        attempt,
        problem: Box::new(Problem::new(status, "s3-refused", detail, hint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_are_read() {
        let document = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><Name>b</Name><EncodingType>url</EncodingType>\
            <Contents><Key>a%20%26</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>7</Size></Contents>\
            <CommonPrefixes><Prefix>in/</Prefix></CommonPrefixes><NextContinuationToken>x&amp;y</NextContinuationToken></ListBucketResult>";
        let listed = list(document).unwrap();
        let object = Entry::Object {
            key: "a &".to_owned(),
            size: 7,
            modified: "2026-01-01T00:00:00.000Z".to_owned(),
        };
        assert_eq!(listed.entries, [object, Entry::Prefix("in/".to_owned())]);
        assert_eq!(listed.next.as_deref(), Some("x&y"));
        assert!(list("<ListBucketResult><Contents>").is_ok_and(|listed| listed.entries.len() == 1));
        assert!(list("<a></b>").is_err());
    }

    #[test]
    fn refusals_are_said_in_words() {
        let problem = |detail: &'static str| Failure::Answer {
            attempt: "GET x".to_owned(),
            problem: Box::new(Problem::new(404, "http-status", detail, "")),
        };
        let document =
            "<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>";
        let Failure::Answer { problem: said, .. } = refusal(problem(document)) else {
            panic!("it is an answer");
        };
        assert_eq!(
            said.detail,
            "S3 says NoSuchBucket: The specified bucket does not exist"
        );
        assert!(said.hint.contains("millpond s3 mb"));
        let Failure::Answer { problem: kept, .. } = refusal(problem("not XML <")) else {
            panic!("it is an answer");
        };
        assert_eq!(kept.code, "http-status");
    }
}
