use serde::{Deserialize, Serialize};
use std::{fmt, ops::Range};

/// One thing that is wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// A stable code, for example `unknown-key`. The manual has an entry for each.
    pub code: String,
    /// Where: the key's path, for example `function.resize.memory`; empty for the manifest as a whole.
    pub at: String,
    /// What is wrong, understandable without the manifest at hand.
    pub message: String,
    /// The bytes of the manifest's text that are meant, where it was text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Range<usize>>,
    /// A few words for that span.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// What to try; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub help: String,
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
