//! What an HTTP message says as events (HTTP protocol binding and JSON format of CloudEvents 1.0.2).

use crate::event::{Event, EventError, check_name, decoded, value};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, de};
use serde_json::{Value, value::RawValue};
use std::{collections::BTreeMap, fmt};

const PREFIX: &str = "ce-";
const STRUCTURED: &str = "application/cloudevents+json";
const BATCH: &str = "application/cloudevents-batch+json";

/// The events of a message, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// One, unless it is a batch.
    pub events: Vec<Event>,
}

/// A media type without its parameters, in lower case, and its `charset`.
pub(crate) fn media_type(text: &str) -> Option<(String, Option<String>)> {
    let token = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let mut parts = text.split(';');
    let media = parts.next()?.trim();
    let (kind, subtype) = media.split_once('/')?;
    if !token(kind) || !token(subtype) {
        return None;
    }
    let mut charset = None;
    for part in parts {
        let (name, value) = part.trim().split_once('=')?;
        if !token(name) || value.is_empty() {
            return None;
        }
        if name.eq_ignore_ascii_case("charset") {
            charset = Some(value.trim_matches('"').to_ascii_lowercase());
        }
    }
    Some((media.to_ascii_lowercase(), charset))
}

fn is_json(media: &str) -> bool {
    let subtype = media.split_once('/').map_or(media, |(_, subtype)| subtype);
    subtype == "json" || subtype.ends_with("+json")
}

/// Whether a message means to be an event: it has an attribute of one, or the type of one.
pub fn is_event<'a>(mut headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> bool {
    headers.any(|(name, value)| {
        let begins = |text: &[u8], with: &str| {
            text.get(..with.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
        };
        begins(name.as_bytes(), PREFIX)
            || (name.eq_ignore_ascii_case("content-type") && begins(value, "application/cloudevents"))
    })
}

impl Message {
    /// Reads a message. Its `Content-Type` says which mode it is in.
    pub fn read<'a>(
        headers: impl Iterator<Item = (&'a str, &'a [u8])>,
        body: &Bytes,
    ) -> Result<Self, EventError> {
        let mut content_type = None;
        let mut attributes = Vec::new();
        for (name, header) in headers {
            if name.eq_ignore_ascii_case("content-type") {
                let text = std::str::from_utf8(header);
                let shown = || String::from_utf8_lossy(header).into_owned();
                content_type = Some(
                    text.map_err(|_| value("datacontenttype", &shown(), "it is not a media type"))?
                        .trim(),
                );
            } else if let Some(name) = name
                .get(..PREFIX.len())
                .filter(|start| start.eq_ignore_ascii_case(PREFIX))
                .and_then(|_| name.get(PREFIX.len()..))
            {
                attributes.push((name.to_ascii_lowercase(), header));
            }
        }
        let media = content_type.and_then(media_type);
        match media {
            Some((media, charset)) if media.starts_with("application/cloudevents") => {
                if charset.is_some_and(|charset| charset != "utf-8") {
                    return Err(EventError::Format(content_type.unwrap_or_default().to_owned()));
                }
                match media.as_str() {
                    STRUCTURED => Ok(Self {
                        events: vec![structured(body)?],
                    }),
                    BATCH => batch(body),
                    _ => Err(EventError::Format(content_type.unwrap_or_default().to_owned())),
                }
            }
            _ => Ok(Self {
                events: vec![binary(content_type, attributes, body)?],
            }),
        }
    }
}

fn binary(
    content_type: Option<&str>,
    headers: Vec<(String, &[u8])>,
    body: &Bytes,
) -> Result<Event, EventError> {
    let mut attributes = BTreeMap::new();
    for (name, header) in headers {
        let instead = match name.as_str() {
            "datacontenttype" => Some("binary mode says it in `Content-Type`"),
            "data" => Some("binary mode says the data in the body"),
            _ => None,
        };
        if let Some(instead) = instead {
            return Err(EventError::Elsewhere { name, instead });
        }
        check_name(&name)?;
        let value = decoded(&name, header)?;
        if attributes.insert(name.clone(), value).is_some() {
            return Err(EventError::Twice(name));
        }
    }
    if let Some(content_type) = content_type {
        attributes.insert("datacontenttype".to_owned(), content_type.to_owned());
    }
    Event::checked(attributes, body.clone())
}

/// A JSON object's members in their order, twice if they are there twice.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

fn json(error: &serde_json::Error) -> EventError {
    EventError::Json(error.to_string())
}

fn structured(body: &[u8]) -> Result<Event, EventError> {
    event(serde_json::from_slice(body).map_err(|error| json(&error))?)
}

fn batch(body: &[u8]) -> Result<Message, EventError> {
    let events: Vec<Members<'_>> = serde_json::from_slice(body).map_err(|error| json(&error))?;
    let one = |(index, members)| {
        event(members).map_err(|error| EventError::InBatch {
            index,
            error: Box::new(error),
        })
    };
    let events: Result<_, _> = events.into_iter().enumerate().map(one).collect();
    Ok(Message { events: events? })
}

fn event(Members(members): Members<'_>) -> Result<Event, EventError> {
    let mut seen = BTreeMap::new();
    for (name, raw) in members {
        if name != "data_base64" {
            check_name(&name)?;
        }
        if seen.insert(name.clone(), raw).is_some() {
            return Err(EventError::Twice(name));
        }
    }
    // A member that is null is one that is not there.
    seen.retain(|_, raw| raw.get() != "null");
    let (data, base64) = (seen.remove("data"), seen.remove("data_base64"));
    let mut attributes = BTreeMap::new();
    for (name, raw) in seen {
        let text = attribute(&name, raw)?;
        attributes.insert(name, text);
    }
    let data = match (data, base64) {
        (None, None) => Bytes::new(),
        (Some(_), Some(_)) => {
            return Err(EventError::Json(
                "it has both `data` and `data_base64`".to_owned(),
            ));
        }
        (None, Some(raw)) => {
            let text: String = serde_json::from_str(raw.get())
                .map_err(|_| EventError::Json("`data_base64` is not a string".to_owned()))?;
            let decoded = STANDARD.decode(text);
            decoded
                .map_err(|_| {
                    EventError::Json("`data_base64` is not Base64 (RFC 4648, section 4)".to_owned())
                })?
                .into()
        }
        (Some(raw), None) => {
            let declared = attributes
                .entry("datacontenttype".to_owned())
                .or_insert_with(|| "application/json".to_owned());
            if media_type(declared).is_some_and(|(media, _)| is_json(&media)) {
                Bytes::copy_from_slice(raw.get().as_bytes())
            } else {
                let text: String = serde_json::from_str(raw.get()).map_err(|_| {
                    EventError::Json("`data` is not a string, and `datacontenttype` is not JSON".to_owned())
                })?;
                text.into()
            }
        }
    };
    Event::checked(attributes, data)
}

/// An attribute's value in its canonical string form (CloudEvents, section 3.1; JSON format, section 2.2).
fn attribute(name: &str, raw: &RawValue) -> Result<String, EventError> {
    let bad = |reason| Err(value(name, raw.get(), reason));
    let known = matches!(
        name,
        "specversion" | "id" | "source" | "type" | "subject" | "time" | "dataschema" | "datacontenttype"
    );
    match serde_json::from_str(raw.get()).map_err(|error| json(&error))? {
        Value::String(text) => Ok(text),
        _ if known => bad("it must be a string"),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Number(number) => match number.as_i64().and_then(|number| i32::try_from(number).ok()) {
            Some(number) => Ok(number.to_string()),
            None => bad("numbers are integers of 32 bits"),
        },
        _ => bad("it is neither a string, a boolean nor an integer"),
    }
}
