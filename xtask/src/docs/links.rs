//! Links between pages: each must lead to a file, and to a heading if it names one.

use anyhow::{Context, Result};
use regex::Regex;
use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};

/// Follows the links of the site's pages and of the root's documents. Says how many there are, and what is broken.
pub(super) fn check(root: &Path) -> Result<(usize, Vec<String>)> {
    let site = root.join("docs/src");
    let mut pages = BTreeMap::new();
    collect(&site, &mut pages)?;
    let mut documents = BTreeMap::new();
    for entry in fs::read_dir(root).with_context(|| format!("cannot list {}", root.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            documents.insert(path.clone(), read(&path)?);
        }
    }
    let mut faults = Vec::new();
    for (path, text) in pages.iter().chain(&documents) {
        for link in links(text) {
            if let Some(fault) = follow(path, &link, &site, &pages, &documents) {
                let path = path.strip_prefix(root).unwrap_or(path).display();
                faults.push(format!("{path}: the link `{link}` {fault}"));
            }
        }
    }
    // A page that the table of contents does not name is not built.
    let contents = links(pages.get(&site.join("SUMMARY.md")).map_or("", String::as_str));
    for page in pages.keys().filter_map(|path| path.strip_prefix(&site).ok()) {
        if page != Path::new("SUMMARY.md") && !contents.iter().any(|link| Path::new(link) == page) {
            faults.push(format!("docs/src/SUMMARY.md does not name {}", page.display()));
        }
    }
    Ok((pages.len() + documents.len(), faults))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// All pages below a folder, with what they include in its place.
fn collect(folder: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let mut text = String::new();
            for line in read(&path)?.lines() {
                match line
                    .strip_prefix("{{#include ")
                    .and_then(|rest| rest.strip_suffix("}}"))
                {
                    Some(included) => text.push_str(&read(&folder.join(included))?),
                    None => text.push_str(line),
                }
                text.push('\n');
            }
            pages.insert(path, text);
        }
    }
    Ok(())
}

/// The text without code, line by line.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Where the links of a page lead, those to other sites left out.
fn links(text: &str) -> Vec<String> {
    let (Ok(code), Ok(link)) = (Regex::new("`[^`]*`"), Regex::new(r"\]\(([^)\s]+)\)")) else {
        return Vec::new();
    };
    let text: Vec<&str> = prose(text).collect();
    let text = text.join("\n");
    let text = code.replace_all(&text, "");
    link.captures_iter(&text)
        .map(|found| found[1].to_owned())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

/// What is wrong with a link.
fn follow(
    from: &Path,
    link: &str,
    site: &Path,
    pages: &BTreeMap<PathBuf, String>,
    documents: &BTreeMap<PathBuf, String>,
) -> Option<String> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => from.to_owned(),
        file => normal(&from.parent().unwrap_or(from).join(file)),
    };
    let is_page = from.starts_with(site);
    if is_page && !target.starts_with(site) {
        return Some("leaves the site; name the file in words instead".to_owned());
    }
    let text = pages.get(&target).or_else(|| documents.get(&target));
    // Of a site, pages and drawings are served.
    let is_served = !is_page || target.extension().is_some_and(|extension| extension == "svg");
    match text {
        None if !is_served || !target.exists() => Some("leads nowhere".to_owned()),
        Some(text) if !anchor.is_empty() && !anchors(text).iter().any(|known| known == anchor) => {
            Some(format!("names no heading of {file}"))
        }
        _ => None,
    }
}

/// Without `..`, by the words alone.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// The anchors of a page's headings, as mdBook makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = Vec::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let name: String = line
            .trim_start_matches('#')
            .trim()
            .chars()
            .filter_map(|c| match c {
                c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c.to_ascii_lowercase()),
                c if c.is_whitespace() => Some('-'),
                _ => None,
            })
            .collect();
        let count = seen.entry(name.clone()).or_default();
        anchors.push(if *count == 0 {
            name
        } else {
            format!("{name}-{count}")
        });
        *count += 1;
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_none() {
        let text = "See [a](b.md#c) and [d](https://example.org), `[x](y)`.\n```sh\n[e](f)\n```\n[g](#h)";
        assert_eq!(links(text), ["b.md#c", "#h"]);
    }

    #[test]
    fn anchors_are_those_of_mdbook() {
        let text = "# What it is\n## `limit-timeout`\n```\n# no heading\n```\n## `[[trigger.http]]`\n## What it is\n";
        assert_eq!(
            anchors(text),
            ["what-it-is", "limit-timeout", "triggerhttp", "what-it-is-1"]
        );
    }

    #[test]
    fn broken_links_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "WORDS.md",
            "# Words\n[readme](README.md) [folder](docs/) [lost](lost.md)",
        );
        write("README.md", "[site](docs/src/a/b.md#here)");
        write(
            "docs/src/SUMMARY.md",
            "- [b](a/b.md)\n- [words](WORDS.md)\n- [README](README.md)",
        );
        write("docs/src/README.md", "# Begin");
        write("docs/src/WORDS.md", "{{#include ../../WORDS.md}}");
        write(
            "docs/src/a/b.md",
            "# Here\n[words](../WORDS.md#words) [no](../WORDS.md#word) [out](../../../README.md) ![a](d.svg) ![b](e.svg) [f](.)",
        );
        write("docs/src/a/d.svg", "<svg/>");
        write("docs/src/a/c.md", "# Not in the summary");
        let (pages, faults) = check(folder.path()).unwrap();
        assert_eq!(pages, 7);
        let faults = faults.join("\n");
        for fault in [
            "docs/src/a/b.md: the link `../WORDS.md#word` names no heading",
            "docs/src/a/b.md: the link `../../../README.md` leaves the site",
            "docs/src/a/b.md: the link `e.svg` leads nowhere",
            "docs/src/a/b.md: the link `.` leads nowhere",
            "WORDS.md: the link `lost.md` leads nowhere",
            "docs/src/WORDS.md: the link `lost.md` leads nowhere",
            "docs/src/WORDS.md: the link `docs/` leads nowhere",
            "docs/src/SUMMARY.md does not name a/c.md",
        ] {
            assert!(faults.contains(fault), "{fault}\n{faults}");
        }
        assert_eq!(faults.lines().count(), 8, "{faults}");
    }
}
