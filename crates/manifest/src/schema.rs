//! The JSON schema of a manifest, derived from the types in `model`. The reader walks it to find unknown keys and
//! wrong types, so what the schema accepts and what the reader accepts are one thing.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde::Deserialize;
use serde_json::Value;
use std::{borrow::Cow, sync::LazyLock};

/// Where the schema says it lives.
const TITLE: &str = "millpond.toml";

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let generator = SchemaSettings::draft2020_12()
        .with(|s| s.inline_subschemas = true)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<crate::Manifest>();
    schema.insert("title".to_owned(), TITLE.into());
    schema.to_value()
});

/// The JSON schema (draft 2020-12) of a manifest, as it stands in `docs/manifest.schema.json`.
pub fn schema() -> &'static Value {
    &SCHEMA
}

/// The schema as text, as it stands in the repository.
pub fn schema_text() -> String {
    format!("{:#}\n", *SCHEMA)
}

/// Formats that the reader checks beside the schema's own words.
pub(crate) mod format {
    pub(crate) const NAME: &str = "millpond-name";
    pub(crate) const SIZE: &str = "millpond-size";
    pub(crate) const DURATION: &str = "millpond-duration";
    pub(crate) const TEMPLATE: &str = "millpond-template";
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $schema:tt) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

text!(
    /// A [`contract::Name`].
    NameText,
    {
        "type": "string",
        "format": format::NAME,
        "pattern": "^[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?$",
        "examples": ["resize"],
    }
);
text!(
    /// A [`contract::ByteSize`].
    Size,
    {
        "type": "string",
        "format": format::SIZE,
        "pattern": "^\\s*[0-9]+(?:\\.[0-9]{1,9})?\\s*(?:B|[KMGT]i?B)?\\s*$",
        "examples": ["64MiB"],
    }
);
text!(
    /// A duration as [`contract::parse_duration`] reads it.
    Span,
    {
        "type": "string",
        "format": format::DURATION,
        "pattern": "^\\s*[0-9]+(?:\\.[0-9]{1,9})?\\s*(?:us|µs|ms|s|m|h)\\s*$",
        "examples": ["30s"],
    }
);
text!(
    /// A [`contract::Template`].
    TemplateText,
    {
        "type": "string",
        "format": format::TEMPLATE,
        "minLength": 1,
        "examples": ["Bearer {secret:API_KEY}"],
    }
);
text!(
    /// The name of an environment variable. What it must not be is left to the rules, with a better message.
    Variable,
    { "type": "string" }
);

/// One method or several.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Methods {
    /// One.
    One(#[schemars(length(min = 1), extend("examples" = ["GET"]))] String),
    /// Several.
    Many(#[schemars(length(min = 1), extend("examples" = [["GET", "HEAD"]]))] Vec<String>),
}
