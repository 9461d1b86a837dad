//! The page of each error code, `docs/src/reference/errors/CODE.md`, and what is written from all of them: the index of codes
//! and their lines in the table of contents.
//!
//! A page is written by hand, in one form, which `millpond explain` reads too:
//!
//! ```text
//! # `CODE`
//!
//! **STATUS, STATUS** · SECTION
//!
//! What it means, in a paragraph that stands in the index, too.
//!
//! ## Causes, What to do, Example, See also
//! ```

use super::{MARK, codes::Made};
use anyhow::{Context, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
};

/// What every page has.
const HEADINGS: [&str; 4] = ["Causes", "What to do", "Example", "See also"];

/// What stands in place of a status where there is none.
const NO_STATUS: &str = "no status";

/// The sections of the index: what a page says of itself, the heading, and what holds for all of them.
const SECTIONS: [(&str, &str, &str); 10] = [
    (
        "a fault of the function",
        "Faults of a function",
        "Its owner mends it. Its log has the reason, and what it said before.",
    ),
    (
        "a refusal",
        "Refusals",
        "There is more to do than may be done at once, or the node is going. The client tries again, later.",
    ),
    (
        "no such function",
        "Which function",
        "The request is well-formed and leads nowhere.",
    ),
    (
        "a refused event or callback",
        "Events and callbacks",
        "Of `/events`, and of a call's `X-Callback-Url`. Nothing of the request was accepted.",
    ),
    (
        "a malformed request",
        "The request",
        "The connection is closed after these: where the next request begins is not known, or not waited for.",
    ),
    (
        "a failure of the platform",
        "Failures",
        "Neither the client nor the function did anything wrong. The node's own log says more.",
    ),
    (
        "a refused deployment",
        "Deploying",
        "Nothing was changed: what was deployed before goes on.",
    ),
    (
        "an answer of the control API",
        "The control API",
        "Of the admin port, and so of the command line's verbs.",
    ),
    (
        "a fault of the manifest",
        "Faults of a manifest",
        "The command line shows these with the lines that they are about, all that are found at once, and ends with exit \
         code 2. A node lists them in the detail of [`manifest-invalid`](errors/manifest-invalid.md).",
    ),
    (
        "the command line's own",
        "The command line's own",
        "With `-o json` these are the codes of what did not come from a node.",
    ),
];

/// What a page says of its code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Explained {
    code: String,
    statuses: BTreeSet<u16>,
    /// Its place in [`SECTIONS`].
    section: usize,
    meaning: String,
}

/// The pages of a folder.
#[derive(Debug)]
pub(super) struct Pages(Vec<Explained>);

impl Pages {
    /// Reads all pages, and says what is wrong with each.
    pub(super) fn read(folder: &Path) -> Result<(Self, Vec<String>)> {
        let (mut pages, mut faults) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            match explained(&stem, &text) {
                Ok(page) => pages.push(page),
                Err(fault) => faults.push(format!("docs/src/reference/errors/{stem}.md {fault}")),
            }
        }
        pages.sort_by(|a, b| (a.section, &a.code).cmp(&(b.section, &b.code)));
        Ok((Self(pages), faults))
    }

    /// What is missing, too much or wrong.
    pub(super) fn check(&self, defined: &BTreeMap<String, Made>) -> Vec<String> {
        let mut faults = Vec::new();
        for page in &self.0 {
            let place = format!("docs/src/reference/errors/{}.md", page.code);
            let Some(made) = defined.get(&page.code) else {
                faults.push(format!("{place} explains what nothing answers with"));
                continue;
            };
            let agrees = match made.open {
                true => page.statuses.is_superset(&made.statuses),
                false => page.statuses == made.statuses,
            };
            if !agrees {
                faults.push(format!(
                    "{place} says {}, and {} says {}",
                    listed(&page.statuses),
                    made.path.display(),
                    listed(&made.statuses)
                ));
            }
        }
        for (code, made) in defined {
            if !self.0.iter().any(|page| page.code == *code) {
                faults.push(format!(
                    "`{code}` of {} has no page docs/src/reference/errors/{code}.md; write one like those beside it",
                    made.path.display()
                ));
            }
        }
        faults
    }

    /// The index of all codes.
    pub(super) fn index(&self) -> Result<String> {
        let mut page = format!(
            "# Errors\n\n{MARK}\n\nEvery error has a code that does not change, and every code a page, which `millpond explain CODE` \
             prints. On both ports the code is `code` of the [problem](http.md#problems), and on the data plane the header \
             `X-Millpond-Error`; the command line prints it beside the status, and gives it as `error.code` with `-o json`; in metrics \
             it is the label `code`.\n\nWhose it is decides what to do. A *fault* is the function's: its owner mends it. A *refusal* is \
             overload: the operator's. A *rejection* is the client's: its address or its request is wrong. A *failure* is the \
             platform's.\n"
        );
        for (i, (_, heading, intro)) in SECTIONS.iter().enumerate() {
            writeln!(
                page,
                "\n## {heading}\n\n{intro}\n\n| code | status | meaning |\n|---|---|---|"
            )?;
            for explained in self.0.iter().filter(|explained| explained.section == i) {
                let statuses = match explained.statuses.is_empty() {
                    true => String::new(),
                    false => listed(&explained.statuses),
                };
                writeln!(
                    page,
                    "| [`{0}`](errors/{0}.md) | {statuses} | {1} |",
                    explained.code,
                    explained.meaning.replace('|', "\\|")
                )?;
            }
        }
        Ok(page)
    }

    /// The table of contents with a line for each page.
    pub(super) fn contents(&self, present: &str) -> String {
        let mut contents = String::new();
        for line in present
            .lines()
            .filter(|line| !line.contains("(reference/errors/"))
        {
            contents.push_str(line);
            contents.push('\n');
            if line.contains("(reference/errors.md)") {
                for Explained { code, .. } in &self.0 {
                    contents.push_str(&format!("  - [{code}](reference/errors/{code}.md)\n"));
                }
            }
        }
        contents
    }
}

fn listed(statuses: &BTreeSet<u16>) -> String {
    if statuses.is_empty() {
        return NO_STATUS.to_owned();
    }
    statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

/// Reads a page, or says what its form lacks.
fn explained(stem: &str, text: &str) -> Result<Explained, String> {
    let mut paragraphs = text.split("\n\n");
    let title = format!("# `{stem}`");
    if paragraphs.next() != Some(title.as_str()) {
        return Err(format!("does not begin with the line \"{title}\""));
    }
    let (statuses, section) = paragraphs
        .next()
        .and_then(|line| line.strip_prefix("**")?.split_once("** · "))
        .ok_or("has no second line \"**STATUS** · SECTION\"")?;
    let statuses = match statuses {
        NO_STATUS => BTreeSet::new(),
        numbers => numbers
            .split(", ")
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| format!("has the status \"{numbers}\"; write numbers, or \"{NO_STATUS}\""))?,
    };
    let known = || SECTIONS.map(|(section, ..)| format!("\"{section}\"")).join(", ");
    let section = SECTIONS
        .iter()
        .position(|(known, ..)| *known == section)
        .ok_or_else(|| format!("is of the section \"{section}\"; there are {}", known()))?;
    let meaning = paragraphs.next().unwrap_or_default();
    if meaning.is_empty() || meaning.starts_with('#') {
        return Err("does not say what the code means before its first heading".to_owned());
    }
    if meaning.contains("](") {
        return Err(
            "has a link in its first paragraph, which the index shows from another folder".to_owned(),
        );
    }
    let missing = HEADINGS
        .iter()
        .find(|heading| !text.contains(&format!("\n\n## {heading}\n\n")));
    if let Some(heading) = missing {
        return Err(format!("has no heading \"## {heading}\""));
    }
    Ok(Explained {
        code: stem.to_owned(),
        statuses,
        section,
        meaning: meaning.split_whitespace().collect::<Vec<_>>().join(" "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const PAGE: &str = "# `limit-x`\n\n**429, 503** · a refusal\n\nToo much\nof it.\n\nMore.\n\n\
        ## Causes\n\nc\n\n## What to do\n\nd\n\n## Example\n\ne\n\n## See also\n\nf\n";

    fn made(statuses: &[u16], open: bool) -> Made {
        Made {
            path: PathBuf::from("x.rs"),
            statuses: statuses.iter().copied().collect(),
            open,
        }
    }

    fn pages() -> Pages {
        Pages(vec![explained("limit-x", PAGE).unwrap()])
    }

    #[test]
    fn a_page_is_read() {
        let page = explained("limit-x", PAGE).unwrap();
        assert_eq!(page.statuses, BTreeSet::from([429, 503]));
        assert_eq!(SECTIONS[page.section].1, "Refusals");
        assert_eq!(page.meaning, "Too much of it.");
        let none = PAGE.replace("429, 503", NO_STATUS);
        assert!(explained("limit-x", &none).unwrap().statuses.is_empty());
    }

    #[test]
    fn a_page_of_another_form_is_told_what_it_lacks() {
        for (from, to, said) in [
            ("# `limit-x`", "# limit-x", "begin"),
            ("**429, 503**", "429", "second line"),
            ("429, 503", "4zz", "4zz"),
            ("a refusal", "an idea", "an idea"),
            ("Too much\nof it.\n\nMore.\n\n", "", "means"),
            ("of it", "of [it](it.md)", "link"),
            ("## See also", "## More", "See also"),
        ] {
            let fault = explained("limit-x", &PAGE.replace(from, to)).unwrap_err();
            assert!(fault.contains(said), "{fault}");
        }
    }

    #[test]
    fn both_directions_and_statuses_are_checked() {
        let check = |code: &str, made| pages().check(&BTreeMap::from([(code.to_owned(), made)]));
        assert!(check("limit-x", made(&[429, 503], false)).is_empty());
        assert!(check("limit-x", made(&[429], true)).is_empty());
        let other = check("limit-x", made(&[429], false));
        assert!(
            other.len() == 1 && other[0].contains("says 429, 503"),
            "{other:?}"
        );
        assert_eq!(check("limit-x", made(&[404], true)).len(), 1);
        let missing = check("limit-y", made(&[429], false));
        assert!(
            missing.len() == 2 && missing[1].contains("limit-y.md"),
            "{missing:?}"
        );
    }

    #[test]
    fn the_index_and_the_contents_name_every_page() {
        let index = pages().index().unwrap();
        assert!(
            index.contains("\n| [`limit-x`](errors/limit-x.md) | 429, 503 | Too much of it. |\n"),
            "{index}"
        );
        let contents = pages()
            .contents("- [Errors](reference/errors.md)\n  - [old](reference/errors/old.md)\n- [Z](z.md)\n");
        assert_eq!(
            contents,
            "- [Errors](reference/errors.md)\n  - [limit-x](reference/errors/limit-x.md)\n- [Z](z.md)\n"
        );
        assert_eq!(pages().contents(&contents), contents);
    }
}
