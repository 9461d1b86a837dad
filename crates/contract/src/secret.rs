//! Secrets by their names, never by their values: what a manifest and a [`crate::Grant`] may say of them.

use crate::NameError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr, sync::Arc};

/// The name of a secret: 1 to 64 of `A-Z`, `a-z`, `0-9`, `_` and `-`, beginning with a letter.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(Arc<str>);

impl SecretName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let bytes = text.as_bytes();
        let good = matches!(bytes.len(), 1..=64)
            && bytes[0].is_ascii_alphabetic()
            && bytes
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        if good {
            Ok(Self(text.into()))
        } else {
            Err(NameError::new(
                text,
                "the name of a secret: use 1 to 64 of A-Z, a-z, 0-9, `_` and `-`, beginning with a letter",
            ))
        }
    }
}

/// The value of a header field as a manifest writes it: text, in which `{secret:NAME}` stands for a secret's value, and `{{`
/// and `}}` for braces. It holds no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    written: Arc<str>,
    pieces: Arc<[Piece]>,
}

/// A part of a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text as it is sent.
    Text(String),
    /// In its place goes the value of the secret of this name.
    Secret(SecretName),
}

/// Text that is no [`Template`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// A brace without its other half.
    #[error(
        "a `{0}` stands alone; write `{{secret:NAME}}` for a secret's value, `{{{{` and `}}}}` for braces"
    )]
    Brace(char),
    /// Braces around something else.
    #[error("`{{{0}}}` stands for nothing; write `{{secret:NAME}}` for a secret's value")]
    Unknown(String),
    /// Braces around what is no name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// What cannot stand in a header field.
    #[error("{0:?} cannot stand in a header")]
    Character(char),
    /// Blanks at its ends, which every reader drops, or nothing at all.
    #[error("it is empty, or begins or ends with a blank")]
    Blank,
}

impl Template {
    /// Its parts, in their order. No two texts follow each other.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The secrets that it names.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Secret(name) => Some(name),
        })
    }
}

impl FromStr for Template {
    type Err = TemplateError;
    fn from_str(written: &str) -> Result<Self, TemplateError> {
        let blank = |c: char| c == ' ' || c == '\t';
        if written.is_empty() || written.starts_with(blank) || written.ends_with(blank) {
            return Err(TemplateError::Blank);
        }
        if let Some(c) = written.chars().find(|c| !matches!(c, ' '..='~' | '\t')) {
            return Err(TemplateError::Character(c));
        }
        let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), written);
        while let Some(at) = rest.find(['{', '}']) {
            let brace = rest[at..].chars().next().unwrap_or('{');
            text.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                text.push(brace);
                rest = after;
                continue;
            }
            let (inside, after) = match rest.split_once('}') {
                Some(halves) if brace == '{' => halves,
                _ => return Err(TemplateError::Brace(brace)),
            };
            let name = inside
                .strip_prefix("secret:")
                .ok_or_else(|| TemplateError::Unknown(inside.to_owned()))?
                .parse()?;
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Secret(name));
            rest = after;
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        Ok(Self {
            written: written.into(),
            pieces: pieces.into(),
        })
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

macro_rules! serialized_as_text {
    ($($type:ident),*) => {
        $(
            impl fmt::Debug for $type {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    fmt::Debug::fmt(&self.to_string(), f)
                }
            }
            impl Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }
            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let text = String::deserialize(deserializer)?;
                    text.parse().map_err(serde::de::Error::custom)
                }
            }
        )*
    };
}

serialized_as_text!(SecretName, Template);

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(written: &str) -> Vec<Piece> {
        let template: Template = written
            .parse()
            .unwrap_or_else(|error| panic!("{written}: {error}"));
        assert_eq!(template.to_string(), written);
        template.pieces().to_vec()
    }

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    fn secret(name: &str) -> Piece {
        Piece::Secret(name.parse().unwrap())
    }

    #[test]
    fn a_template_is_text_and_secrets() {
        assert_eq!(
            pieces("Bearer {secret:API_KEY}"),
            [text("Bearer "), secret("API_KEY")]
        );
        assert_eq!(pieces("{secret:a}"), [secret("a")]);
        assert_eq!(
            pieces("{secret:a}{secret:b-2}, c"),
            [secret("a"), secret("b-2"), text(", c")]
        );
        assert_eq!(pieces("application/json"), [text("application/json")]);
        assert_eq!(
            pieces("{{secret:a}} {{{secret:a}}}"),
            [text("{secret:a} {"), secret("a"), text("}")]
        );
    }

    #[test]
    fn what_is_no_template_is_told_why() {
        use TemplateError::*;
        for (written, error) in [
            ("", Blank),
            (" a", Blank),
            ("a\t", Blank),
            ("a\r\nb", Character('\r')),
            ("é", Character('é')),
            ("a\0", Character('\0')),
            ("a {", Brace('{')),
            ("a }", Brace('}')),
            ("{secret:a", Brace('{')),
            ("{{secret:a}", Brace('}')),
            ("{API_KEY}", Unknown("API_KEY".to_owned())),
            ("{}", Unknown(String::new())),
            ("{env:A}", Unknown("env:A".to_owned())),
        ] {
            assert_eq!(written.parse::<Template>(), Err(error), "{written:?}");
        }
        for written in ["{secret:}", "{secret:a b}", "{secret:../a}", "{secret:1}"] {
            assert!(matches!(written.parse::<Template>(), Err(Name(_))), "{written}");
        }
    }

    #[test]
    fn names_are_names_of_files_and_variables() {
        for good in ["A", "API_KEY", "api-key", "k2", &"a".repeat(64)] {
            assert!(good.parse::<SecretName>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "_A",
            "-a",
            "2a",
            "a.b",
            "a/b",
            "..",
            "a b",
            "é",
            &"a".repeat(65),
        ] {
            assert!(bad.parse::<SecretName>().is_err(), "{bad}");
        }
    }
}
