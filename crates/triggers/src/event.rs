//! Events: their attributes, their data, and what they may be.

use crate::message::media_type;
use bytes::Bytes;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};
use std::{collections::BTreeMap, fmt};

/// The extension attribute that counts the functions an event's chain has come through.
pub const HOPS: &str = "millpondhops";
/// As many functions may answer each other with events.
pub const MOST_HOPS: u32 = 16;

/// An event: context attributes, and data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// By name, as strings in their canonical form. The required ones are among them.
    attributes: BTreeMap<String, String>,
    /// The data, as `datacontenttype` says.
    pub data: Bytes,
}

/// Something that is no event, or none that is understood.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventError {
    /// An attribute that each event has.
    #[error("the required attribute `{0}` is missing")]
    Missing(&'static str),
    /// Another version of the specification.
    #[error("`specversion` is {0:?}; this node understands \"1.0\"")]
    Version(String),
    /// A name that no attribute may have.
    #[error("`{0}` cannot be an attribute's name: it takes the letters a-z and digits")]
    Name(String),
    /// An attribute that is said elsewhere.
    #[error("`{name}` is not an attribute here; {instead}")]
    Elsewhere {
        /// Its name.
        name: String,
        /// Where it is said.
        instead: &'static str,
    },
    /// An attribute that is there twice.
    #[error("the attribute `{0}` is there twice")]
    Twice(String),
    /// A value that its attribute cannot have.
    #[error("the attribute `{name}` is {value:?}: {reason}")]
    Value {
        /// The attribute.
        name: String,
        /// What it was to be; the first hundred characters.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Not JSON, or no event in JSON.
    #[error("the body is not an event in JSON: {0}")]
    Json(String),
    /// A format that is not JSON.
    #[error("{0:?} is not a format of events that this node understands: send application/cloudevents+json")]
    Format(String),
    /// One of a batch.
    #[error("event {index} of the batch: {error}")]
    InBatch {
        /// Counted from 0.
        index: usize,
        /// What is wrong with it.
        error: Box<EventError>,
    },
}

pub(crate) fn value(name: &str, value: &str, reason: &'static str) -> EventError {
    EventError::Value {
        name: name.to_owned(),
        value: value.chars().take(100).collect(),
        reason,
    }
}

const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];

impl Event {
    /// An event of our own, of the version that we speak; its attributes are good.
    pub(crate) fn of<const N: usize>(attributes: [(&str, String); N], data: Bytes) -> Self {
        let version = [("specversion", "1.0".to_owned())];
        let attributes = version.into_iter().chain(attributes);
        Self {
            attributes: attributes.map(|(name, value)| (name.to_owned(), value)).collect(),
            data,
        }
    }

    /// Checks what was read.
    pub(crate) fn checked(attributes: BTreeMap<String, String>, data: Bytes) -> Result<Self, EventError> {
        for name in REQUIRED {
            if !attributes.contains_key(name) {
                return Err(EventError::Missing(name));
            }
        }
        for (name, value) in &attributes {
            check(name, value)?;
        }
        Ok(Self { attributes, data })
    }

    /// An attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    /// What kind of event it is.
    pub fn kind(&self) -> &str {
        self.attribute("type").unwrap_or_default()
    }

    /// Where it comes from.
    pub fn source(&self) -> &str {
        self.attribute("source").unwrap_or_default()
    }

    /// The functions that its chain has come through.
    pub fn hops(&self) -> u32 {
        let hops = self.attribute(HOPS);
        hops.and_then(|hops| hops.parse().ok()).unwrap_or(0)
    }

    /// The same with another count of functions.
    #[must_use]
    pub fn with_hops(mut self, hops: u32) -> Self {
        self.attributes.insert(HOPS.to_owned(), hops.to_string());
        self
    }

    /// The headers that say it in binary mode (HTTP protocol binding, section 3.1).
    pub fn headers(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        self.attributes.iter().map(|(name, value)| {
            if name == "datacontenttype" {
                return ("Content-Type".to_owned(), value.clone().into_bytes());
            }
            let value = utf8_percent_encode(value, ENCODED).to_string();
            (format!("ce-{name}"), value.into_bytes())
        })
    }
}

/// Space, quotation mark, percent sign and all that is not printable ASCII (section 3.1.3.2).
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// A header's value as an attribute's.
pub(crate) fn decoded(name: &str, header: &[u8]) -> Result<String, EventError> {
    let shown = || String::from_utf8_lossy(header).into_owned();
    let unquoted = unquoted(header).ok_or_else(|| value(name, &shown(), "its quotation does not end"))?;
    percent_decode(&unquoted)
        .decode_utf8()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| value(name, &shown(), "it is not UTF-8"))
}

/// Without the quotation of RFC 9110, section 5.6.4.
fn unquoted(header: &[u8]) -> Option<Vec<u8>> {
    let Some(inner) = header.strip_prefix(b"\"") else {
        return Some(header.to_vec());
    };
    let mut plain = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => plain.push(*bytes.next()?),
            b'"' => return bytes.next().is_none().then_some(plain),
            byte => plain.push(*byte),
        }
    }
    None
}

/// Whether a text can be an attribute's name.
pub(crate) fn check_name(name: &str) -> Result<(), EventError> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if name.is_empty() || !name.bytes().all(good) {
        return Err(EventError::Name(name.chars().take(100).collect()));
    }
    Ok(())
}

fn check(name: &str, text: &str) -> Result<(), EventError> {
    let bad = |reason| Err(value(name, text, reason));
    let noncharacter = |c: char| matches!(c, '\u{fdd0}'..='\u{fdef}') || (u32::from(c) & 0xfffe) == 0xfffe;
    if text.chars().any(|c| c.is_control() || noncharacter(c)) {
        return bad("it contains a control character or a noncharacter");
    }
    let known = matches!(
        name,
        "id" | "source" | "type" | "subject" | "dataschema" | "datacontenttype" | "time"
    );
    if known && text.is_empty() {
        return bad("it must not be empty");
    }
    match name {
        "specversion" if text != "1.0" => Err(EventError::Version(text.chars().take(100).collect())),
        "source" if !is_reference(text) => bad("it is not a URI reference"),
        "dataschema" if !is_reference(text) || !has_scheme(text) => bad("it is not an absolute URI"),
        "time" if !is_time(text) => bad("it is not a time as RFC 3339 writes it"),
        "datacontenttype" if media_type(text).is_none() => bad("it is not a media type"),
        HOPS if text.parse::<u32>().is_err() => bad("it is a count of functions"),
        _ => Ok(()),
    }
}

/// RFC 3986, by its characters.
fn is_reference(text: &str) -> bool {
    let bytes = text.as_bytes();
    let good = |(at, byte): (usize, &u8)| match byte {
        b'%' => bytes
            .get(at + 1..at + 3)
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)),
        byte => byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=".contains(byte),
    };
    bytes.iter().enumerate().all(good) && bytes.iter().filter(|byte| **byte == b'#').count() <= 1
}

fn has_scheme(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, rest)| {
        !rest.is_empty()
            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

fn is_time(text: &str) -> bool {
    // The library reads more ways to write a time than RFC 3339 has.
    let shape = |from: usize, shape: &str| {
        text.get(from..from + shape.len()).is_some_and(|part| {
            part.bytes().zip(shape.bytes()).all(|(byte, like)| match like {
                b'0' => byte.is_ascii_digit(),
                b'T' => matches!(byte, b'T' | b't'),
                like => byte == like,
            })
        })
    };
    if !shape(0, "0000-00-00T00:00:00") {
        return false;
    }
    let mut at = "0000-00-00T00:00:00".len();
    if let Some(fraction) = text[at..].strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return false;
        }
        at += 1 + digits;
    }
    let offset = match &text[at..] {
        "Z" | "z" => true,
        other => other.len() == 6 && (shape(at, "+00:00") || shape(at, "-00:00")),
    };
    // The library keeps nanoseconds; what is finer does not matter to whether it is a time.
    let whole = format!("{}{}", &text[..19], &text[at..]);
    offset && whole.parse::<Timestamp>().is_ok()
}

/// Which events a trigger wants: all whose text is this, or begins with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    prefix: bool,
}

/// A pattern that means nothing.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternError {
    /// No text.
    #[error("is empty")]
    Empty,
    /// A star within.
    #[error("has a `*` that is not its end")]
    Star,
    /// Characters that no event has there.
    #[error("contains a space or a control character")]
    Character,
}

impl std::str::FromStr for Pattern {
    type Err = PatternError;
    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (text, prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        if text.contains('*') {
            return Err(PatternError::Star);
        }
        if text.is_empty() && !prefix {
            return Err(PatternError::Empty);
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(PatternError::Character);
        }
        Ok(Self {
            text: text.to_owned(),
            prefix,
        })
    }
}

impl Pattern {
    /// Whether it wants this.
    pub fn matches(&self, text: &str) -> bool {
        if self.prefix {
            text.starts_with(&self.text)
        } else {
            text == self.text
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.prefix { "*" } else { "" })
    }
}
