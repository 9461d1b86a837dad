//! The site of `docs/`: what of it the code writes, and whether the rest agrees with the code.
//!
//! The reference of the manifest, the command line and the control API is written from where each is defined. The page of
//! each error code is written by hand, so the check is that every code has its page, every page its code, and both the same
//! status; their index is written from the pages. Links and anchors are followed in all pages and in the documents of the
//! repository's root.

mod codes;
mod links;
mod pages;
mod reference;

use crate::generated::{Mode, bring};
use anyhow::{Context, Result, bail};
use std::{fs, path::Path};

/// What generated pages begin with, after their title.
const MARK: &str = "<!-- Written by `cargo xtask docs`; do not edit. -->";

/// Brings the generated pages up to date or checks them, then checks codes and links.
pub(crate) fn run(root: &Path, mode: Mode) -> Result<String> {
    let site = root.join("docs/src");
    let folder = site.join("reference");
    // Before anything is written: what the index does not have would be gone from it.
    let (explained, mut faults) = pages::Pages::read(&folder.join("errors"))?;
    faults.extend(explained.check(&codes::defined(root)?));
    told(&faults)?;
    let contents = site.join("SUMMARY.md");
    let present = fs::read_to_string(&contents).context("cannot read SUMMARY.md")?;
    let written = [
        (
            folder.join("manifest.md"),
            reference::manifest(manifest::schema())?,
        ),
        (
            folder.join("control-api.md"),
            reference::control_api(&admin::openapi())?,
        ),
        (folder.join("cli.md"), reference::command_line()?),
        (folder.join("errors.md"), explained.index()?),
        (contents, explained.contents(&present)),
    ];
    let mut outcomes = Vec::new();
    for (path, text) in written {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        outcomes.push(format!("{name} {}", bring(&path, &text, mode, "docs")?));
    }
    let (pages, broken) = links::check(root)?;
    told(&broken)?;
    Ok(format!(
        "{}; {pages} pages, all links lead somewhere",
        outcomes.join(", ")
    ))
}

fn told(faults: &[String]) -> Result<()> {
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{} faults:\n  {}", faults.len(), faults.join("\n  "))
}
