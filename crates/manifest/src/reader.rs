//! From text to a tree of values, and along the schema.
//!
//! The schema is the only list of keys, types and ranges. The words of JSON schema that it uses and that are obeyed
//! here are `type`, `properties`, `patternProperties` (whose one pattern is a [`Name`]), `additionalProperties`,
//! `required`, `minProperties`, `items`, `minItems`, `minLength`, `minimum`, `maximum`, `oneOf` of `const`s, `anyOf` of
//! types, and our `format`s; a test sees to it that no other words come in. `pattern` is left to the formats and to
//! `rules`, which explain more.

use crate::{
    Diagnostic, MAXIMUM_LENGTH,
    diagnostic::Diagnostics,
    schema::{format, schema},
};
use contract::{ByteSize, Name, Template, parse_duration};
use serde_json::{Map, Value};
use std::{collections::HashMap, ops::Range, time::Duration};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// What the published shape promises for later. Said apart from unknown keys, so that nobody looks for a typing error.
const LATER_KEYS: [(&str, &str); 2] = [("trigger", "object"), ("function.*", "inputs")];
const LATER_ENGINES: [&str; 1] = ["microvm"];

const MEMORY: (ByteSize, ByteSize) = (ByteSize(64 << 10), ByteSize(4 << 30));
const BODY: (ByteSize, ByteSize) = (ByteSize(0), ByteSize(1 << 30));
const TIME: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(3600));

/// Where in the text the keys and values stood, by their paths.
#[derive(Debug, Default)]
pub(crate) struct Spans(HashMap<String, Place>);

#[derive(Debug)]
struct Place {
    key: Option<Range<usize>>,
    value: Range<usize>,
}

impl Spans {
    /// The key that the path ends with.
    pub(crate) fn key(&self, at: &str) -> Option<Range<usize>> {
        self.0
            .get(at)
            .and_then(|place| place.key.clone())
            .or_else(|| self.value(at))
    }

    /// The value there; for something absent, the nearest table that encloses it.
    pub(crate) fn value(&self, at: &str) -> Option<Range<usize>> {
        match self.0.get(at) {
            Some(place) => Some(place.value.clone()),
            None => at.rfind(['.', '[']).and_then(|end| self.value(&at[..end])),
        }
    }
}

/// The path of a key in a table.
pub(crate) fn join(at: &str, key: &str) -> String {
    let bare = !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let key = if bare { key.to_owned() } else { format!("{key:?}") };
    if at.is_empty() { key } else { format!("{at}.{key}") }
}

/// The path of an array's element.
pub(crate) fn nth(at: &str, index: usize) -> String {
    format!("{at}[{index}]")
}

/// Reads TOML.
pub(crate) fn read(text: &str) -> Result<(Value, Spans), Vec<Diagnostic>> {
    if text.len() > MAXIMUM_LENGTH {
        let message = format!(
            "the manifest has {} bytes; it may have {MAXIMUM_LENGTH}",
            text.len()
        );
        return Err(vec![Diagnostic::new("too-large", "", message)]);
    }
    let table = DeTable::parse(text).map_err(|error| {
        vec![
            Diagnostic::new(
                "toml-syntax",
                "",
                format!("this is not TOML: {}", error.message()),
            )
            .span(error.span())
            .label("here"),
        ]
    })?;
    let mut converter = Converter::default();
    let value = converter.table(table.get_ref(), "");
    if converter.faults.is_empty() {
        Ok((value, converter.spans))
    } else {
        Err(converter.faults.sorted())
    }
}

#[derive(Default)]
struct Converter {
    spans: Spans,
    faults: Diagnostics,
}

impl Converter {
    fn table(&mut self, table: &DeTable<'_>, at: &str) -> Value {
        let mut map = Map::new();
        for (key, value) in table {
            let path = join(at, key.get_ref());
            let converted = self.value(value, Some(key.span()), &path);
            map.insert(key.get_ref().clone().into_owned(), converted);
        }
        Value::Object(map)
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, key: Option<Range<usize>>, at: &str) -> Value {
        let span = value.span();
        self.spans.0.insert(
            at.to_owned(),
            Place {
                key,
                value: span.clone(),
            },
        );
        match value.get_ref() {
            DeValue::String(text) => Value::String(text.clone().into_owned()),
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(integer) => integer.into(),
                Err(_) => self.refuse("out-of-range", at, span, "is an integer of more than 64 bits"),
            },
            DeValue::Float(float) => float.as_str().parse::<f64>().map_or(Value::Null, Value::from),
            DeValue::Datetime(_) => self.refuse(
                "wrong-type",
                at,
                span,
                "is a date; no key of a manifest takes one",
            ),
            DeValue::Array(items) => items
                .iter()
                .enumerate()
                .map(|(i, item)| self.value(item, None, &nth(at, i)))
                .collect(),
            DeValue::Table(table) => self.table(table, at),
        }
    }

    fn refuse(&mut self, code: &str, at: &str, span: Range<usize>, reason: &str) -> Value {
        self.faults
            .push(Diagnostic::new(code, at, format!("`{at}` {reason}")).span(Some(span)));
        Value::Null
    }
}

/// Walks along the schema.
pub(crate) fn check(value: &Value, spans: &Spans, faults: &mut Diagnostics) {
    Walk { spans, faults }.any(value, schema(), "");
}

struct Walk<'a> {
    spans: &'a Spans,
    faults: &'a mut Diagnostics,
}

impl Walk<'_> {
    /// Reports a fault of the value at a path.
    fn value_fault(
        &mut self,
        code: &str,
        at: &str,
        reason: impl AsRef<str>,
        label: &str,
        help: impl Into<String>,
    ) {
        let subject = if at.is_empty() {
            "the manifest".to_owned()
        } else {
            format!("`{at}`")
        };
        let message = format!("{subject} {}", reason.as_ref());
        self.faults.push(
            Diagnostic::new(code, at, message)
                .span(self.spans.value(at))
                .label(label)
                .help(help),
        );
    }

    fn any(&mut self, value: &Value, schema: &Value, at: &str) {
        if let Some(options) = schema["oneOf"].as_array() {
            let known: Vec<&str> = options
                .iter()
                .filter_map(|option| option["const"].as_str())
                .collect();
            return self.choice(value, &known, at);
        }
        let options = schema["anyOf"]
            .as_array()
            .map_or(std::slice::from_ref(schema), Vec::as_slice);
        let Some(schema) = options.iter().find(|option| option["type"] == kind(value)) else {
            return self.wrong_type(value, options, at);
        };
        match value {
            Value::Object(map) => self.table(map, schema, at),
            Value::Array(items) => self.array(items, schema, at),
            Value::String(text) => self.text(text, schema, at),
            Value::Number(number) => self.number(number, schema, at),
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn wrong_type(&mut self, value: &Value, options: &[Value], at: &str) {
        let expected: Vec<&str> = options
            .iter()
            .filter_map(|option| option["type"].as_str())
            .map(with_article)
            .collect();
        let reason = format!(
            "must be {}, not {}",
            expected.join(" or "),
            with_article(kind(value))
        );
        let example = options.iter().find_map(|option| option["examples"].get(0));
        let help = match example {
            Some(example) => format!("for example {example}"),
            None => String::new(),
        };
        self.value_fault(
            "wrong-type",
            at,
            reason,
            &format!("this is {}", with_article(kind(value))),
            help,
        );
    }

    fn choice(&mut self, value: &Value, known: &[&str], at: &str) {
        let listed = list(known, "or");
        let Some(given) = value.as_str() else {
            let reason = format!("must be one of {listed}, not {}", with_article(kind(value)));
            return self.value_fault("wrong-type", at, reason, "", "");
        };
        if known.contains(&given) {
            return;
        }
        if at.ends_with(".engine") && LATER_ENGINES.contains(&given) {
            let reason = format!("is \"{given}\", an engine that is not available yet");
            return self.value_fault(
                "not-available",
                at,
                reason,
                "not available yet",
                format!("use {listed}"),
            );
        }
        let help = nearest(given, known.iter().copied()).map(|near| format!("did you mean \"{near}\"?"));
        let reason = format!("is {given:?}; it can be {listed}");
        self.value_fault("unknown-value", at, reason, "not known", help.unwrap_or_default());
    }

    fn table(&mut self, map: &Map<String, Value>, schema: &Value, at: &str) {
        let empty = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&empty);
        let named = schema["patternProperties"]
            .as_object()
            .and_then(|patterns| patterns.values().next());
        for (key, value) in map {
            let path = join(at, key);
            if let Some(schema) = properties.get(key) {
                self.any(value, schema, &path);
            } else if let Some(schema) = named {
                if let Err(error) = key.parse::<Name>() {
                    let message = format!("`{path}`: {error}");
                    self.faults.push(
                        Diagnostic::new("bad-name", &path, message)
                            .span(self.spans.key(&path))
                            .label("this name"),
                    );
                }
                self.any(value, schema, &path);
            } else if schema["additionalProperties"].is_object() {
                self.any(value, &schema["additionalProperties"], &path);
            } else {
                self.unknown_key(key, properties, at, &path);
            }
        }
        for key in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !map.contains_key(key) {
                let path = join(at, key);
                let example = match &properties[key]["examples"][0] {
                    Value::Null if at.is_empty() => format!("add a `[{key}]` table"),
                    Value::Null => format!("add `{key}`"),
                    example => format!("add `{key} = {example}`"),
                };
                self.value_fault("missing-key", &path, "is missing", "in this table", example);
            }
        }
        if schema["minProperties"]
            .as_u64()
            .is_some_and(|minimum| (map.len() as u64) < minimum)
        {
            self.value_fault("empty", at, "has no entry; it needs at least one", "", "");
        }
    }

    fn unknown_key(&mut self, key: &str, properties: &Map<String, Value>, at: &str, path: &str) {
        let later = LATER_KEYS.iter().any(|(table, name)| {
            *name == key
                && match table.strip_suffix(".*") {
                    None => *table == at,
                    Some(parent) => at
                        .strip_prefix(parent)
                        .is_some_and(|rest| rest.starts_with('.') && !rest[1..].contains('.')),
                }
        });
        let table = if at.is_empty() {
            "the manifest".to_owned()
        } else {
            format!("`{at}`")
        };
        let fault = if later {
            Diagnostic::new(
                "not-available",
                path,
                format!("`{key}` in {table} is not available yet"),
            )
            .label("not available yet")
            .help("remove it; a later version of Millpond will read it")
        } else {
            let known = || properties.keys().map(String::as_str);
            let help = if let Some(near) = nearest(key, known()) {
                format!("did you mean `{near}`?")
            } else if let Some(home) = home_of(key) {
                format!("`{key}` belongs in {home}")
            } else {
                format!(
                    "known here: {}",
                    known()
                        .map(|key| format!("`{key}`"))
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            };
            Diagnostic::new("unknown-key", path, format!("`{key}` is not a key of {table}"))
                .label("not known")
                .help(help)
        };
        self.faults.push(fault.span(self.spans.key(path)));
    }

    fn array(&mut self, items: &[Value], schema: &Value, at: &str) {
        if schema["minItems"]
            .as_u64()
            .is_some_and(|minimum| (items.len() as u64) < minimum)
        {
            self.value_fault(
                "empty",
                at,
                "is an empty list; it needs at least one entry",
                "empty",
                "",
            );
        }
        for (i, item) in items.iter().enumerate() {
            self.any(item, &schema["items"], &nth(at, i));
        }
    }

    fn number(&mut self, number: &serde_json::Number, schema: &Value, at: &str) {
        let (Some(minimum), Some(maximum)) = (schema["minimum"].as_i64(), schema["maximum"].as_i64()) else {
            return;
        };
        if !number
            .as_i64()
            .is_some_and(|number| (minimum..=maximum).contains(&number))
        {
            self.range(at, &number, &minimum, &maximum);
        }
    }

    fn range(
        &mut self,
        at: &str,
        given: &dyn std::fmt::Display,
        minimum: &dyn std::fmt::Display,
        maximum: &dyn std::fmt::Display,
    ) {
        let reason = format!("is {given}; it can be {minimum} to {maximum}");
        self.value_fault("out-of-range", at, reason, "out of range", "");
    }

    fn text(&mut self, text: &str, schema: &Value, at: &str) {
        if text.contains('\0') {
            return self.value_fault("bad-text", at, "contains a NUL character", "NUL in here", "");
        }
        if schema["minLength"]
            .as_u64()
            .is_some_and(|minimum| (text.chars().count() as u64) < minimum)
        {
            let reason = if text.is_empty() {
                "is empty".to_owned()
            } else {
                format!("is {text:?}: too short")
            };
            return self.value_fault("bad-text", at, reason, "too short", "");
        }
        match schema["format"].as_str() {
            Some(format::NAME) => {
                if let Err(error) = text.parse::<Name>() {
                    self.unreadable("bad-name", at, &error);
                }
            }
            Some(format::SIZE) => {
                let (minimum, maximum) = if at.ends_with(".memory") { MEMORY } else { BODY };
                match text.parse::<ByteSize>() {
                    Err(error) => self.unreadable("bad-size", at, &error),
                    Ok(size) if size < minimum || size > maximum => self.range(at, &size, &minimum, &maximum),
                    Ok(_) => {}
                }
            }
            Some(format::DURATION) => match parse_duration(text) {
                Err(error) => self.unreadable("bad-duration", at, &error),
                Ok(time) if time < TIME.0 || time > TIME.1 => self.range(
                    at,
                    &text.trim(),
                    &contract::format_duration(TIME.0),
                    &contract::format_duration(TIME.1),
                ),
                Ok(_) => {}
            },
            Some(format::TEMPLATE) => {
                if let Err(error) = text.parse::<Template>() {
                    self.unreadable("bad-header", at, &error);
                }
            }
            _ => {}
        }
    }

    fn unreadable(&mut self, code: &str, at: &str, error: &dyn std::fmt::Display) {
        let message = format!("`{at}`: {error}");
        self.faults.push(
            Diagnostic::new(code, at, message)
                .span(self.spans.value(at))
                .label("this value"),
        );
    }
}

/// A value's type, in the words of JSON schema.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The same in the words of TOML.
fn with_article(kind: &str) -> &'static str {
    match kind {
        "boolean" => "a boolean",
        "number" => "a number with a fraction",
        "integer" => "an integer",
        "string" => "a string",
        "array" => "an array",
        "object" => "a table",
        _ => "nothing",
    }
}

/// `"a", "b" or "c"`.
fn list(items: &[&str], last: &str) -> String {
    match items {
        [] => String::new(),
        [one] => format!("\"{one}\""),
        [head @ .., tail] => {
            format!(
                "{} {last} \"{tail}\"",
                head.iter()
                    .map(|item| format!("\"{item}\""))
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
    }
}

/// The known word that was probably meant; none if none is near.
pub fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let given = plain(given.get(..64).unwrap_or(given));
    let mut best = None;
    for word in known {
        let likeness = strsim::jaro_winkler(&given, &plain(word));
        if likeness > best.map_or(0.8, |(likeness, _)| likeness) {
            best = Some((likeness, word));
        }
    }
    best.map(|(_, word)| word)
}

/// The table that a key belongs in, as a header in TOML.
fn home_of(key: &str) -> Option<String> {
    fn search(schema: &Value, header: &str, array: bool, key: &str) -> Option<String> {
        let properties = schema["properties"].as_object();
        if properties.is_some_and(|properties| properties.contains_key(key)) {
            return Some(if array {
                format!("`[[{header}]]`")
            } else if header.is_empty() {
                "the manifest itself".to_owned()
            } else {
                format!("`[{header}]`")
            });
        }
        let below = |name: &str| {
            if header.is_empty() {
                name.to_owned()
            } else {
                format!("{header}.{name}")
            }
        };
        let named = schema["patternProperties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(_, schema)| ("NAME", schema));
        properties
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.as_str(), schema))
            .chain(named)
            .find_map(|(name, schema)| match schema.get("items") {
                Some(items) => search(items, &below(name), true, key),
                None => search(schema, &below(name), false, key),
            })
    }
    search(schema(), "", false, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_no_word_that_the_reader_does_not_obey() {
        fn walk(schema: &Value, words: &mut Vec<String>) {
            for (word, value) in schema.as_object().into_iter().flatten() {
                words.push(word.clone());
                match word.as_str() {
                    "properties" | "patternProperties" => {
                        value
                            .as_object()
                            .into_iter()
                            .flatten()
                            .for_each(|(_, schema)| walk(schema, words));
                    }
                    "items" | "additionalProperties" => walk(value, words),
                    "oneOf" | "anyOf" => value
                        .as_array()
                        .into_iter()
                        .flatten()
                        .for_each(|schema| walk(schema, words)),
                    _ => {}
                }
            }
        }
        let mut words = Vec::new();
        walk(schema(), &mut words);
        words.sort();
        words.dedup();
        let obeyed = [
            "additionalProperties",
            "anyOf",
            "const",
            "format",
            "items",
            "maximum",
            "minItems",
            "minLength",
            "minProperties",
            "minimum",
            "oneOf",
            "patternProperties",
            "properties",
            "required",
            "type",
        ];
        let by_rules = ["pattern", "maxLength"];
        let spoken = ["$schema", "default", "description", "examples", "title"];
        for word in words {
            let word = word.as_str();
            assert!(
                obeyed.contains(&word) || by_rules.contains(&word) || spoken.contains(&word),
                "{word}"
            );
        }
    }

    #[test]
    fn a_key_knows_where_it_belongs() {
        assert_eq!(home_of("memory").as_deref(), Some("`[function.NAME]`"));
        assert_eq!(
            home_of("bucket").as_deref(),
            Some("`[[function.NAME.grants.s3]]`")
        );
        assert_eq!(home_of("path").as_deref(), Some("`[[trigger.http]]`"));
        assert_eq!(home_of("zebra"), None);
    }

    #[test]
    fn the_nearest_word_is_near() {
        let known = ["memory", "timeout", "cpu_time", "content_type", "env"];
        for (given, near) in [
            ("memroy", "memory"),
            ("time-out", "timeout"),
            ("cpu", "cpu_time"),
            ("Environment", "env"),
        ] {
            assert_eq!(nearest(given, known.into_iter()), Some(near), "{given}");
        }
        assert_eq!(nearest("zebra", known.into_iter()), None);
    }
}
