//! The table of SPECIFICATION.md, from `bench/results/*.json`: a promise without a measurement cannot be written down.

use crate::generated::{Mode, bring};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

const BEGIN: &str = "<!-- Begin of what `cargo xtask spec` writes; do not edit. -->";
const END: &str = "<!-- End of what `cargo xtask spec` writes. -->";

/// What one bench wrote.
#[derive(Debug, Deserialize)]
struct Results {
    /// Cores, kernel, versions, load: whatever a reader must know to judge the numbers.
    #[serde(default)]
    conditions: BTreeMap<String, Value>,
    claims: Vec<Claim>,
}

/// One measured promise.
#[derive(Debug, Deserialize)]
struct Claim {
    id: String,
    /// What was measured, in words.
    #[serde(default)]
    what: Option<String>,
    value: f64,
    #[serde(default)]
    low: Option<f64>,
    #[serde(default)]
    high: Option<f64>,
    #[serde(default)]
    unit: String,
    /// For example `<= 4`; absent where nothing is promised.
    #[serde(default)]
    target: Option<Value>,
    #[serde(default)]
    holds: Option<bool>,
    #[serde(default)]
    peers: BTreeMap<String, Value>,
}

/// Regenerates the table, or checks that it is fresh.
pub(crate) fn run(root: &Path, mode: Mode) -> Result<String> {
    let mut benches = BTreeMap::new();
    let folder = root.join("bench/results");
    if folder.is_dir() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let name = path
                    .file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                let text =
                    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let results: Results = serde_json::from_str(&text).with_context(|| {
                    format!(
                        "{} is not what a bench writes (see the head of bench/src/main.rs)",
                        path.display()
                    )
                })?;
                benches.insert(name, results);
            }
        }
    }
    let path = root.join("SPECIFICATION.md");
    let document = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let document = replace(&document, &table(&benches)?)?;
    let outcome = bring(&path, &document, mode, "spec")?;
    let claims: usize = benches.values().map(|results| results.claims.len()).sum();
    Ok(format!("{outcome}, {claims} claims of {} benches", benches.len()))
}

/// Puts `table` between the marks of `document`.
fn replace(document: &str, table: &str) -> Result<String> {
    let parts = document
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        bail!("SPECIFICATION.md has lost its marks; it needs the lines\n{BEGIN}\n{END}");
    };
    Ok(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

fn table(benches: &BTreeMap<String, Results>) -> Result<String> {
    let mut out = String::new();
    if benches.is_empty() {
        out.push_str("Nothing has been measured yet.\n");
    }
    for (name, Results { conditions, claims }) in benches {
        writeln!(out, "### `make bench-{name}`\n")?;
        if !conditions.is_empty() {
            let conditions: Vec<String> = conditions
                .iter()
                .map(|(key, value)| format!("{} {}", cell(&key.replace('_', " ")), text(value)))
                .collect();
            writeln!(out, "Measured with: {}.\n", conditions.join("; "))?;
        }
        writeln!(out, "| claim | measured | range | target | holds | peers |")?;
        writeln!(out, "|---|---:|---:|---:|---|---|")?;
        for claim in claims {
            let range = match (claim.low, claim.high) {
                (Some(low), Some(high)) => format!("{} to {}", number(low), number(high)),
                _ => String::new(),
            };
            let holds = match claim.holds {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "",
            };
            let peers: Vec<String> = claim
                .peers
                .iter()
                .map(|(peer, value)| format!("{} {}", cell(peer), text(value)))
                .collect();
            writeln!(
                out,
                "| {} | {} | {range} | {} | {holds} | {} |",
                cell(claim.what.as_ref().unwrap_or(&claim.id)),
                cell(format!("{} {}", number(claim.value), claim.unit).trim()),
                claim.target.as_ref().map(text).unwrap_or_default(),
                peers.join("; "),
            )?;
        }
        out.push('\n');
    }
    Ok(out)
}

/// Three significant digits or all before the point: more is noise.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "not measured".to_owned(),
        Value::String(text) => cell(text),
        Value::Number(value) if value.is_f64() => value.as_f64().map(number).unwrap_or_default(),
        Value::Number(value) => value.to_string(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| format!("{} {}", cell(key), text(value)))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Bool(value) => value.to_string(),
    }
}

/// Text that cannot break out of its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(json: &str) -> BTreeMap<String, Results> {
        BTreeMap::from([("node".to_owned(), serde_json::from_str(json).unwrap())])
    }

    #[test]
    fn a_claim_becomes_a_line() {
        let benches = one(r#"{"conditions": {"cores": 2, "kernel": "6.1"}, "claims": [
            {"id": "churn-mean", "value": 2.2345, "low": 2.1, "high": 2.4, "unit": "µs", "target": "<= 4", "holds": true,
             "peers": {"fork + exec": 193.2}},
            {"id": "ping", "what": "ping | fresh", "value": 115000.0, "unit": "requests/s", "holds": false}]}"#);
        let table = table(&benches).unwrap();
        assert!(table.contains("### `make bench-node`"), "{table}");
        assert!(table.contains("Measured with: cores 2; kernel 6.1."), "{table}");
        assert!(
            table.contains("| churn-mean | 2.23 µs | 2.10 to 2.40 | <= 4 | yes | fork + exec 193 |"),
            "{table}"
        );
        assert!(
            table.contains("| ping \\| fresh | 115000 requests/s |  |  | **no** |  |"),
            "{table}"
        );
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let document = format!("# Promises\n{BEGIN}\nold\n{END}\nlast line\n");
        let replaced = replace(&document, "new\n").unwrap();
        assert_eq!(
            replaced,
            format!("# Promises\n{BEGIN}\n\nnew\n\n{END}\nlast line\n")
        );
        assert_eq!(replace(&replaced, "new\n").unwrap(), replaced);
    }

    #[test]
    fn lost_marks_are_an_error() {
        for document in ["", BEGIN, END, &format!("{END}{BEGIN}")] {
            assert!(replace(document, "new").is_err(), "{document}");
        }
    }

    #[test]
    fn a_claim_without_a_value_is_refused() {
        assert!(serde_json::from_str::<Results>(r#"{"claims": [{"id": "churn", "unit": "µs"}]}"#).is_err());
    }
}
