use crate::{
    codes::{self, Page},
    failure::Failure,
    output::{self, Output},
};
use clap::Args;
use serde_json::{Value, json};

/// Explain an error code; without one, list them all
///
/// Prints the manual's page of the code: what it means, its usual causes, what to do, and an example. For example:
/// millpond explain limit-timeout
#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The code, as an error shows it
    #[arg(value_name = "CODE")]
    code: Option<String>,
}

impl Explain {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let Some(code) = self.code else {
            return list(&codes::all(), output);
        };
        let page = codes::page(&code).ok_or_else(|| unknown(&code))?;
        let mut answer = entry(page);
        answer["page"] = json!(page.markdown);
        output.answer(&answer, || page.text())
    }
}

fn entry(page: Page) -> Value {
    json!({ "code": page.code, "statuses": page.statuses(), "meaning": page.meaning() })
}

fn unknown(code: &str) -> Failure {
    let pages = codes::all();
    let near = manifest::nearest(code, pages.iter().map(|page| page.code));
    let hint = match near {
        Some(near) => format!("did you mean `{near}`? `millpond explain` lists all codes"),
        None => "`millpond explain` lists all codes".to_owned(),
    };
    Failure::usage(format!("`{code}` is not an error code of this version"), hint)
}

fn list(pages: &[Page], output: Output) -> Result<(), Failure> {
    let entries: Vec<Value> = pages.iter().map(|page| entry(*page)).collect();
    output.answer(&json!({ "codes": entries }), || {
        let rows: Vec<Vec<String>> = pages
            .iter()
            .map(|page| {
                let statuses: Vec<String> = page.statuses().iter().map(u16::to_string).collect();
                let meaning = page.meaning();
                let sentence = meaning.split_inclusive(". ").next().unwrap_or_default();
                vec![
                    page.code.to_owned(),
                    statuses.join(" "),
                    sentence.trim_end().to_owned(),
                ]
            })
            .collect();
        format!("{}\nMore of one: millpond explain CODE\n", output::columns(&rows))
    })
}
