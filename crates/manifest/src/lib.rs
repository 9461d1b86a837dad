//! `millpond.toml`: what an application is made of, read strictly and explained well.
//!
//! A manifest comes in as TOML text ([`parse`], in the command) or as JSON ([`from_json`], in the control API); both
//! take the same way and find the same faults:
//!
//! 1. `reader` turns the text into a tree of plain values and notes where each of them stood.
//! 2. `reader` walks that tree along the JSON schema ([`schema()`], derived from the types in `model`): unknown keys,
//!    missing keys, wrong types, quantities, ranges. What the schema publishes and what is accepted is one thing.
//! 3. `rules` checks what a schema cannot say: paths, hosts, methods, environment, routes that exclude each other,
//!    schedules that are never due.
//!
//! All faults of a step are reported at once, as [`Diagnostic`]s that name the key, say what to try, and carry the
//! place in the text. Nothing here does I/O, and no input makes it panic.

#![forbid(unsafe_code)]

mod diagnostic;
mod model;
mod reader;
mod rules;
mod schema;

use diagnostic::Diagnostics;

pub use diagnostic::Diagnostic;
pub use model::{
    Application, AwsGrant, Build, CloudEventsTrigger, DEFAULT_CONTENT_TYPE, Engine, Function, Grants,
    HttpGrant, HttpTrigger, Manifest, Missed, ObjectTrigger, Protocol, S3Action, S3Grant, ScheduleTrigger,
    Triggers,
};
pub use reader::nearest;
pub use schema::{schema, schema_text};

use serde_json::Value;

/// The longest manifest that is read, in bytes.
pub const MAXIMUM_LENGTH: usize = 1 << 20;

/// Reads a manifest from its TOML text. The diagnostics come in the order of the text.
pub fn parse(text: &str) -> Result<Manifest, Vec<Diagnostic>> {
    let (value, spans) = reader::read(text)?;
    build(&value, &spans)
}

/// Reads a manifest from its JSON, as the control API receives it.
pub fn from_json(value: &Value) -> Result<Manifest, Vec<Diagnostic>> {
    build(value, &reader::Spans::default())
}

impl Manifest {
    /// What is wrong with a manifest that was made by other means than [`parse`] and [`from_json`]; empty when
    /// nothing is. The diagnostics have no spans.
    pub fn validate(&self) -> Vec<Diagnostic> {
        match serde_json::to_value(self) {
            Ok(value) => from_json(&value).err().unwrap_or_default(),
            Err(error) => vec![Diagnostic::new("not-a-manifest", "", error.to_string())],
        }
    }
}

fn build(value: &Value, spans: &reader::Spans) -> Result<Manifest, Vec<Diagnostic>> {
    let mut faults = Diagnostics::default();
    reader::check(value, spans, &mut faults);
    if faults.is_empty() {
        // The walk along the schema leaves nothing for this to refuse; what it would say is said all the same.
        match serde_json::from_value::<Manifest>(value.clone()) {
            Ok(manifest) => {
                rules::check(&manifest, spans, &mut faults);
                if faults.is_empty() {
                    return Ok(manifest);
                }
            }
            Err(error) => faults.push(Diagnostic::new("not-a-manifest", "", error.to_string())),
        }
    }
    Err(faults.sorted())
}
