//! The published documents that the code itself writes.

use crate::generated::{Mode, bring};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// Brings `docs/manifest.schema.json` and `docs/openapi.json` to what `manifest` and `admin` publish.
pub(crate) fn run(root: &Path, mode: Mode) -> Result<String> {
    let manifest = document(root, "docs/manifest.schema.json", manifest::schema(), mode)?;
    let openapi = document(root, "docs/openapi.json", &admin::openapi(), mode)?;
    Ok(format!("{manifest}; {openapi}"))
}

fn document(root: &Path, path: &str, document: &Value, mode: Mode) -> Result<String> {
    let text = serde_json::to_string_pretty(document).with_context(|| format!("{path} would not be JSON"))?;
    let outcome = bring(&root.join(path), &(text + "\n"), mode, "schema")?;
    Ok(format!("{path} {outcome}"))
}
