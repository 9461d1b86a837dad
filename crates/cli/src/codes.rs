//! The manual's page of each error code, embedded in the program: what `millpond explain` prints.
//!
//! A page is Markdown of one form, which `cargo xtask docs` checks: a title, a line with the status and whose the error is, the
//! meaning in a paragraph, then headings.

use include_dir::{Dir, include_dir};

static FOLDER: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../docs/src/reference/errors");

/// The page of a code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    /// The code.
    pub(crate) code: &'static str,
    /// In Markdown.
    pub(crate) markdown: &'static str,
}

/// All pages, by code.
pub(crate) fn all() -> Vec<Page> {
    let mut pages: Vec<Page> = FOLDER
        .files()
        .filter_map(|file| {
            Some(Page {
                code: file.path().file_stem()?.to_str()?,
                markdown: file.contents_utf8()?,
            })
        })
        .collect();
    pages.sort_by_key(|page| page.code);
    pages
}

/// The page of a code, if there is such a code in this version.
pub(crate) fn page(code: &str) -> Option<Page> {
    all().into_iter().find(|page| page.code == code)
}

impl Page {
    /// Its statuses, as numbers; none for what is not an HTTP answer.
    pub(crate) fn statuses(self) -> Vec<u16> {
        let line = self.markdown.lines().nth(2).unwrap_or_default();
        let numbers = line.split("**").nth(1).unwrap_or_default();
        numbers
            .split(", ")
            .filter_map(|number| number.parse().ok())
            .collect()
    }

    /// What it means, in a line.
    pub(crate) fn meaning(self) -> String {
        let paragraph = self.markdown.split("\n\n").nth(2).unwrap_or_default();
        plain(&paragraph.replace('\n', " "))
    }

    /// For a terminal: blocks are indented, and of links only the words are left.
    pub(crate) fn text(self) -> String {
        let mut text = String::new();
        // Words of a link may stand in two lines.
        let mut prose = String::new();
        let mut fenced = false;
        for line in self.markdown.lines() {
            if line.starts_with("```") {
                text.push_str(&plain(&std::mem::take(&mut prose)));
                fenced = !fenced;
            } else if fenced {
                text.push_str(format!("    {line}").trim_end());
                text.push('\n');
            } else {
                prose.push_str(line.strip_prefix("# ").unwrap_or(line));
                prose.push('\n');
            }
        }
        text + &plain(&prose)
    }
}

/// Markdown without what only a browser shows: `[words](place)` is the words, `**strong**` is strong.
fn plain(markdown: &str) -> String {
    let mut out = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](") {
        let (Some(open), Some((_, beyond))) = (before.rfind('['), after.split_once(')')) else {
            break;
        };
        out.push_str(&before[..open]);
        out.push_str(&before[open + 1..]);
        rest = beyond;
    }
    out.push_str(rest);
    out.replace("**", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_says_what_its_code_means() {
        let pages = all();
        assert_eq!(pages.len(), FOLDER.entries().len());
        for page in pages {
            let meaning = page.meaning();
            assert!(!meaning.is_empty() && !meaning.starts_with('#'), "{}", page.code);
            assert!(!page.text().contains("```"), "{}", page.code);
        }
        assert_eq!(page("limit-timeout").unwrap().statuses(), [504]);
        assert!(page("unknown-key").unwrap().statuses().is_empty());
        assert!(page("no-such-code").is_none());
    }

    #[test]
    fn markdown_becomes_plain_text() {
        let page = Page {
            code: "x",
            markdown: "# `x`\n\n**429, 503** · a refusal\n\nToo\nmuch.\n\n## See also\n\n```sh,run\nls **\n\n```\n\n\
                [`y`](y.md), and [Lim\nits](../a.md#b) [so] (far).\n",
        };
        assert_eq!(page.meaning(), "Too much.");
        assert_eq!(page.statuses(), [429, 503]);
        assert_eq!(
            page.text(),
            "`x`\n\n429, 503 · a refusal\n\nToo\nmuch.\n\n## See also\n\n    ls **\n\n\n`y`, and Lim\nits [so] (far).\n"
        );
    }
}
