//! The published documents that the code itself writes.

use crate::generated::{Mode, bring};
use anyhow::{Context, Result};
use std::path::Path;

/// Brings `docs/manifest.schema.json` to what `manifest` publishes.
pub(crate) fn run(root: &Path, mode: Mode) -> Result<String> {
    let schema =
        serde_json::to_string_pretty(manifest::schema()).context("the manifest's schema is not JSON")?;
    let outcome = bring(
        &root.join("docs/manifest.schema.json"),
        &(schema + "\n"),
        mode,
        "schema",
    )?;
    Ok(outcome.to_owned())
}
