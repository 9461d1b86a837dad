//! The site of `docs/`: what of it the code writes, and whether the rest agrees with the code.
//!
//! The reference of the manifest, the command line and the control API is written from where each is defined. Error codes
//! are explained by hand, so the check is that every code has its entry and every entry its code. Links and anchors are
//! followed in all pages and in the documents of the repository's root.

mod codes;
mod links;
mod reference;

use crate::generated::{Mode, bring};
use anyhow::{Context, Result, bail};
use std::{fs, path::Path};

/// What generated pages begin with, after their title.
const MARK: &str = "<!-- Written by `cargo xtask docs`; do not edit. -->";

/// Brings the generated pages up to date or checks them, then checks codes and links.
pub(crate) fn run(root: &Path, mode: Mode) -> Result<String> {
    let folder = root.join("docs/src/reference");
    let pages = [
        ("manifest.md", reference::manifest(manifest::schema())?),
        ("control-api.md", reference::control_api(&admin::openapi())?),
        ("cli.md", reference::command_line()?),
    ];
    let mut outcomes = Vec::new();
    for (name, text) in pages {
        outcomes.push(format!(
            "{name} {}",
            bring(&folder.join(name), &text, mode, "docs")?
        ));
    }
    let explained =
        fs::read_to_string(folder.join("errors.md")).context("cannot read reference/errors.md")?;
    let mut faults = codes::check(&codes::defined(root)?, &codes::explained(&explained));
    let (pages, broken) = links::check(root)?;
    faults.extend(broken);
    if !faults.is_empty() {
        bail!("{} faults:\n  {}", faults.len(), faults.join("\n  "));
    }
    Ok(format!(
        "{}; {pages} pages, all links lead somewhere",
        outcomes.join(", ")
    ))
}
