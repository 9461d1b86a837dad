//! What is said about a manifest that is refused.

use serde::{Deserialize, Serialize};
use std::{fmt, ops::Range};

/// One thing that is wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// A stable code, for example `unknown-key`. The manual has an entry for each.
    pub code: String,
    /// Where: the path of the key, for example `function.resize.memory`; empty for the manifest as a whole.
    pub at: String,
    /// What is wrong, understandable without the manifest at hand.
    pub message: String,
    /// The bytes of the manifest's text that are meant, where it was text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Range<usize>>,
    /// A few words for that span; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// What to try; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub help: String,
}

impl Diagnostic {
    pub(crate) fn new(code: &str, at: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            at: at.into(),
            message: message.into(),
            span: None,
            label: String::new(),
            help: String::new(),
        }
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    pub(crate) fn span(mut self, span: Option<Range<usize>>) -> Self {
        self.span = span;
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.help.is_empty() {
            write!(f, " ({})", self.help)?;
        }
        Ok(())
    }
}

/// The faults found so far; beyond a hundred they are no longer collected.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    const MAXIMUM: usize = 100;

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        if self.0.len() < Self::MAXIMUM {
            self.0.push(diagnostic);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order of the text.
    pub(crate) fn sorted(mut self) -> Vec<Diagnostic> {
        self.0
            .sort_by_key(|diagnostic| diagnostic.span.as_ref().map_or(usize::MAX, |span| span.start));
        self.0
    }
}
