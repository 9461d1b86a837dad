//! Error codes: those that the code can answer with, against those that the manual explains.
//!
//! Codes are text where they are made, so they are found by how they are made: beside an HTTP status, as the code of a
//! manifest's fault, or in a function that maps errors to codes. Tests are not looked at.

use anyhow::{Context, Result};
use regex::Regex;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A text of the form of a code, and what stands before it where a code is made; white space is free.
const MAKINGS: [&str; 4] = [
    // A problem: (404, "…", Problem::new(status, "…", 400 "…" "…", StatusCode::FORBIDDEN, "…", rejection.status(), "…".
    r#"(?:\b[45][0-9]{2}|Problem::new\(\s*\w+|StatusCode::[A-Z_]+|\.status\(\))\s*,?\s*"([a-z][a-z0-9-]*)"\s*[,"]"#,
    r#"\bforbidden\(\s*"([a-z][a-z0-9-]*)""#,
    // A manifest's fault.
    r#"(?:Diagnostic::new|self\.check|self\.refuse|self\.value_fault|self\.unreadable|\bErr\(|\{)\s*\(?\s*"([a-z]+(?:-[a-z]+)*)"\s*,"#,
    r#"\bconst (?:PLATFORM|CODE): &str = "([a-z-]+)""#,
];

/// The whole of a function that maps errors to codes.
const MAPPING: &str = r#"(?s)fn (?:\w+_)?code\(.*?\n    \}"#;
const MAPPED: &str = r#"=>\s*"([a-z][a-z0-9-]*)""#;

/// Each code with a file that makes it.
pub(super) fn defined(root: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut codes = BTreeMap::new();
    for krate in fs::read_dir(root.join("crates")).context("cannot list crates")? {
        let source = krate?.path().join("src");
        if source.is_dir() {
            visit(&source, &mut |path, text| {
                for code in in_source(text) {
                    codes
                        .entry(code)
                        .or_insert_with(|| path.strip_prefix(root).unwrap_or(path).to_owned());
                }
            })?;
        }
    }
    Ok(codes)
}

fn visit(folder: &Path, each: &mut impl FnMut(&Path, &str)) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if name != "tests" && name != "conformance" {
                visit(&path, each)?;
            }
        } else if name.ends_with(".rs") && name != "test.rs" && name != "tests.rs" {
            each(
                &path,
                &fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?,
            );
        }
    }
    Ok(())
}

/// The codes that a source file makes.
fn in_source(text: &str) -> BTreeSet<String> {
    // By the house's custom tests are the last thing of a file.
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut codes = BTreeSet::new();
    let mut take = |pattern: &str, text: &str| {
        if let Ok(pattern) = Regex::new(pattern) {
            codes.extend(pattern.captures_iter(text).map(|found| found[1].to_owned()));
        }
    };
    let is_manifest = text.contains("Diagnostic");
    for (i, making) in MAKINGS.iter().enumerate() {
        if i != 2 || is_manifest {
            take(making, text);
        }
    }
    if let Ok(mapping) = Regex::new(MAPPING) {
        for function in mapping.find_iter(text) {
            take(MAPPED, function.as_str());
        }
    }
    codes
}

/// The codes that are headings of the manual's page.
pub(super) fn explained(page: &str) -> Vec<String> {
    page.lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`').map(str::to_owned))
        .collect()
}

/// What is missing or too much in the manual.
pub(super) fn check(defined: &BTreeMap<String, PathBuf>, explained: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for code in explained {
        if !seen.insert(code) {
            faults.push(format!("docs/src/reference/errors.md explains `{code}` twice"));
        }
        if !defined.contains_key(code) {
            faults.push(format!(
                "docs/src/reference/errors.md explains `{code}`, which nothing answers with"
            ));
        }
    }
    for (code, path) in defined.iter().filter(|(code, _)| !seen.contains(code)) {
        faults.push(format!(
            "`{code}` of {} has no heading \"### `{code}`\" in docs/src/reference/errors.md",
            path.display()
        ));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        in_source(text).into_iter().collect()
    }

    #[test]
    fn codes_are_found_where_they_are_made() {
        assert_eq!(
            found("Problem::new(\n    404,\n    \"route-unknown\",\n"),
            ["route-unknown"]
        );
        assert_eq!(
            found("TLS = 400 \"http-tls\"\n  \"a text of 400 words\";"),
            ["http-tls"]
        );
        assert_eq!(
            found("Problem::new(status, \"http-status\", detail)"),
            ["http-status"]
        );
        assert_eq!(
            found("Self::Conflict(_) => (\n 409,\n \"conflict\", x)"),
            ["conflict"]
        );
        assert_eq!(
            found("Failure::new(StatusCode::NOT_FOUND, \"not-found\", d)"),
            ["not-found"]
        );
        assert_eq!(found("forbidden(\n \"host-forbidden\", d)"), ["host-forbidden"]);
        assert_eq!(
            found("use x::Diagnostic; self.check(\n \"too-large\", at)"),
            ["too-large"]
        );
        assert_eq!(
            found(
                "impl X {\n    fn code(&self) -> &str {\n        match self { A => \"a-b\",\n B => \"c\" }\n    }\n    fn other() { A => \"d\" }\n}"
            ),
            ["a-b", "c"]
        );
    }

    #[test]
    fn other_texts_and_tests_are_no_codes() {
        assert!(found("{\"minimum\": 400, \"maximum\": 599}").is_empty());
        assert!(found("self.check(\"x-y\", z); header(\"content-length\", 400)").is_empty());
        assert!(found("#[cfg(test)]\nmod tests { Problem::new(404, \"x\", y) }").is_empty());
    }

    #[test]
    fn both_directions_are_checked() {
        let defined = BTreeMap::from([
            ("a".to_owned(), PathBuf::from("x.rs")),
            ("b".to_owned(), PathBuf::from("x.rs")),
        ]);
        let faults = check(&defined, &explained("# Errors\n### `a`\n### `c`\n### `a`\n"));
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(check(&defined, &explained("### `b`\ntext\n### `a`\n")).is_empty());
    }
}
