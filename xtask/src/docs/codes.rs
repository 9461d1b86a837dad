//! Error codes: those that the code can answer with, and with which statuses.
//!
//! Codes are text where they are made, so they are found by how they are made: beside an HTTP status, as the code of a
//! manifest's fault, or in a function that maps errors to codes. Tests are not looked at. What [`pages`](super::pages) says of a
//! code is held against this.

use anyhow::{Context, Result};
use contract::{ByteSize, Fault, Problem, Quota, Refusal};
use regex::Regex;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// A text of the form of a code, and what stands before it where a code is made; white space is free. What is between the
/// two is its status: a number, a name, or something that only a running node knows.
const MAKINGS: [&str; 3] = [
    // A problem: (404, "…", Problem::new(status, "…", 400 "…" "…", StatusCode::FORBIDDEN, "…", rejection.status(), "…".
    r#"(?:\b(?<number>[45][0-9]{2})|StatusCode::(?<name>[A-Z_]+)|(?<open>Problem::new\(\s*[a-z]\w*|\.status\(\)))\s*,?\s*"(?<code>[a-z][a-z0-9-]*)"\s*[,"]"#,
    r#"\b(?<forbidden>forbidden)\(\s*"(?<code>[a-z][a-z0-9-]*)""#,
    // A manifest's fault.
    r#"(?:Diagnostic::new|self\.check|self\.refuse|self\.value_fault|self\.unreadable|\bErr\(|\{)\s*\(?\s*"(?<code>[a-z]+(?:-[a-z]+)*)"\s*,"#,
];
/// A code that has a name of its own.
const NAMED: &str = r#"\bconst (PLATFORM|CODE): &str = ("[a-z-]+")"#;

/// The whole of a function that maps errors to codes.
const MAPPING: &str = r#"(?s)fn (?:\w+_)?code\(.*?\n    \}"#;
const MAPPED: &str = r#"=>\s*"([a-z][a-z0-9-]*)""#;

/// A code as it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    /// A file that makes it.
    pub(super) path: PathBuf,
    /// The HTTP statuses that stand beside it; none for what only the command line says.
    pub(super) statuses: BTreeSet<u16>,
    /// Whether there may be others, which only a running node knows.
    pub(super) open: bool,
}

/// Each code, and how it is made.
pub(super) fn defined(root: &Path) -> Result<BTreeMap<String, Made>> {
    let mut codes = BTreeMap::<String, Made>::new();
    for krate in fs::read_dir(root.join("crates")).context("cannot list crates")? {
        let source = krate?.path().join("src");
        if source.is_dir() {
            visit(&source, &mut |path, text| {
                for (code, made) in in_source(text) {
                    let known = codes.entry(code).or_default();
                    known.path = path.strip_prefix(root).unwrap_or(path).to_owned();
                    known.statuses.extend(made.statuses);
                    known.open |= made.open;
                }
            })?;
        }
    }
    // Their statuses and their codes are made in two places.
    for problem in of_contract() {
        if let Some(made) = codes.get_mut(&*problem.code) {
            made.statuses.insert(problem.status);
        }
    }
    Ok(codes)
}

/// Every fault and every refusal.
fn of_contract() -> Vec<Problem> {
    let (limit, reason) = (ByteSize(1), String::new);
    let faults = [
        Fault::Exit { code: 1 },
        Fault::Trap { reason: reason() },
        Fault::StackOverflow,
        Fault::OutOfMemory {
            limit,
            reason: reason(),
        },
        Fault::OutputTooLarge { limit },
        Fault::Timeout {
            limit: Duration::ZERO,
        },
        Fault::CpuTime {
            limit: Duration::ZERO,
        },
        Fault::Raised {
            kind: String::new(),
            message: String::new(),
            document: Vec::new().into(),
        },
        Fault::BadInput { reason: reason() },
        Fault::BadOutput { reason: reason() },
    ];
    let retry_after = Duration::ZERO;
    let quotas = [Quota::Concurrency, Quota::Memory, Quota::Rate];
    let quotas = quotas.map(|quota| Refusal::Quota { quota, retry_after });
    let refusals = [
        Refusal::TooLate { retry_after },
        Refusal::QueueFull { retry_after },
        Refusal::Draining,
    ];
    let refusals = refusals.into_iter().chain(quotas);
    let faults = faults.iter().map(Problem::of_fault);
    faults.chain(refusals.map(Problem::of_refusal)).collect()
}

/// The number of a status that is written by its name.
fn status(name: &str) -> Option<u16> {
    (400..600).find(|number| {
        let reason = http::StatusCode::from_u16(*number).ok();
        let reason = reason.and_then(|status| status.canonical_reason());
        reason.is_some_and(|reason| reason.to_uppercase().replace([' ', '-'], "_").replace('\'', "") == name)
    })
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
fn in_source(text: &str) -> Vec<(String, Made)> {
    // By the house's custom tests are the last thing of a file.
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut codes = Vec::new();
    let is_manifest = text.contains("Diagnostic");
    let text = with_names(text);
    for (i, making) in MAKINGS.iter().enumerate() {
        let Ok(making) = Regex::new(making) else { continue };
        if i == 2 && !is_manifest {
            continue;
        }
        for found in making.captures_iter(&text) {
            let named = |name| found.name(name).map(|part| part.as_str());
            let code = named("code").unwrap_or_default().to_owned();
            let number = match (named("number"), named("name")) {
                (Some(number), _) => number.parse().ok(),
                (None, Some(name)) => status(name),
                (None, None) => named("forbidden").map(|_| 403),
            };
            let made = Made {
                statuses: number.into_iter().collect(),
                open: named("open").is_some() || (named("name").is_some() && number.is_none()),
                ..Made::default()
            };
            codes.push((code, made));
        }
    }
    if let (Ok(mapping), Ok(mapped)) = (Regex::new(MAPPING), Regex::new(MAPPED)) {
        for function in mapping.find_iter(&text) {
            let found = mapped.captures_iter(function.as_str());
            codes.extend(found.map(|found| (found[1].to_owned(), Made::default())));
        }
    }
    codes
}

/// The text with codes in place of their names.
fn with_names(text: &str) -> String {
    let mut with = text.to_owned();
    if let Ok(named) = Regex::new(NAMED) {
        for found in named.captures_iter(text) {
            with = with.replace(&format!("{},", &found[1]), &format!("{},", &found[2]));
        }
    }
    with
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, Vec<u16>, bool)> {
        in_source(text)
            .into_iter()
            .map(|(code, made)| (code, made.statuses.into_iter().collect(), made.open))
            .collect()
    }

    fn one(code: &str, status: Option<u16>, open: bool) -> Vec<(String, Vec<u16>, bool)> {
        vec![(code.to_owned(), status.into_iter().collect(), open)]
    }

    #[test]
    fn codes_are_found_where_they_are_made_with_their_statuses() {
        for (text, code, status) in [
            (
                "Problem::new(\n    404,\n    \"route-unknown\",\n",
                "route-unknown",
                404,
            ),
            (
                "TLS = 400 \"http-tls\"\n  \"a text of 400 words\";",
                "http-tls",
                400,
            ),
            (
                "Self::Conflict(_) => (\n 409,\n \"conflict\", x)",
                "conflict",
                409,
            ),
            (
                "Failure::new(StatusCode::NOT_FOUND, \"not-found\", d)",
                "not-found",
                404,
            ),
            ("StatusCode::PAYLOAD_TOO_LARGE,\n \"large\",", "large", 413),
            ("forbidden(\n \"host-forbidden\", d)", "host-forbidden", 403),
            (
                "Problem::new(\n 500,\n PLATFORM,\n);\nconst PLATFORM: &str = \"platform\";",
                "platform",
                500,
            ),
        ] {
            assert_eq!(found(text), one(code, Some(status), false), "{text}");
        }
    }

    #[test]
    fn what_only_a_running_node_knows_is_open() {
        for text in [
            "Problem::new(status, \"x-y\", detail)",
            "rejection.status(), \"x-y\", d",
            "StatusCode::NO_SUCH, \"x-y\", d",
        ] {
            assert_eq!(found(text), one("x-y", None, true), "{text}");
        }
    }

    #[test]
    fn faults_of_a_manifest_and_the_command_lines_own_have_no_status() {
        assert_eq!(
            found("use x::Diagnostic; self.check(\n \"too-large\", at)"),
            one("too-large", None, false)
        );
        assert_eq!(
            found(
                "impl X {\n    fn code(&self) -> &str {\n        match self { A => \"a-b\",\n B => \"c\" }\n    }\n    fn other() { A => \"d\" }\n}"
            ),
            [one("a-b", None, false), one("c", None, false)].concat()
        );
    }

    #[test]
    fn other_texts_and_tests_are_no_codes() {
        assert!(found("{\"minimum\": 400, \"maximum\": 599}").is_empty());
        assert!(found("self.check(\"x-y\", z); header(\"content-length\", 400)").is_empty());
        assert!(found("#[cfg(test)]\nmod tests { Problem::new(404, \"x\", y) }").is_empty());
    }

    #[test]
    fn every_fault_and_refusal_has_its_status() {
        let statuses: BTreeMap<_, _> = of_contract()
            .into_iter()
            .map(|problem| (problem.code, problem.status))
            .collect();
        assert_eq!(statuses["function-exit"], 502);
        assert_eq!(statuses["limit-queue"], 429);
        let text = fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../crates/contract/src/fault.rs"
        ));
        for (code, _) in in_source(&text.unwrap()) {
            assert!(
                statuses.contains_key(&*code),
                "`{code}` is missing in `of_contract`"
            );
        }
    }
}
