//! What a command can fail with, what it tells then, and its exit code: 1 for a function's or a service's error, 2 for
//! wrong usage (a manifest included), 124 for a timeout, 130 for an interruption (where a verb has nothing to put in order
//! before it ends, `client` sees to that).

use crate::{
    codes,
    output::{Output, visible},
};
use contract::Problem;
use manifest::Diagnostic;
use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report, Severity,
    ThemeCharacters, ThemeStyles,
};
use serde_json::json;
use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

/// Why a command did not do what it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command was given what it cannot work with.
    #[error("{message}")]
    Usage { message: String, hint: String },
    /// The manifest is refused.
    #[error("{} has {} error{}", path.display(), faults.len(), if faults.len() == 1 { "" } else { "s" })]
    Manifest {
        path: PathBuf,
        text: String,
        faults: Vec<Diagnostic>,
    },
    /// Something on this machine went wrong.
    #[error("{message}")]
    Local { message: String, hint: String },
    /// A build command failed.
    #[error("{message}")]
    Build {
        message: String,
        folder: PathBuf,
        /// What it printed, where that was not shown already.
        output: String,
    },
    /// A signal ended it; the exit code that shells give to that.
    #[error("interrupted")]
    Interrupted(u8),
    /// No answer came.
    #[error("{attempt}: {reason}")]
    Unreachable {
        attempt: String,
        reason: String,
        hint: String,
    },
    /// The answer is an error.
    #[error("{}", problem.detail)]
    Answer { attempt: String, problem: Box<Problem> },
    /// The function's own answer has a status of 400 or above. Its body has been written already.
    #[error("the function answered with status {status}")]
    Function { status: u16 },
    /// The answer did not come in time.
    #[error("{attempt}: no answer within {}", contract::format_duration(*.after))]
    Timeout { attempt: String, after: Duration },
    /// The answer is not one of a node.
    #[error("{attempt}: the answer is not what a Millpond node says: {reason}")]
    Foreign { attempt: String, reason: String },
    /// Standard output failed.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage {
            message: message.into(),
            hint: hint.into(),
        }
    }

    pub(crate) fn local(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Local {
            message: message.into(),
            hint: hint.into(),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage { .. } | Self::Manifest { .. } => 2,
            Self::Timeout { .. } => 124,
            Self::Interrupted(code) => *code,
            Self::Answer { problem, .. } if problem.status == 504 => 124,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            _ => 1,
        })
    }

    fn code(&self) -> &str {
        match self {
            Self::Usage { .. } => "usage",
            Self::Manifest { .. } => "manifest",
            Self::Local { .. } | Self::Output(_) => "local",
            Self::Build { .. } => "build",
            Self::Interrupted(_) => "interrupted",
            Self::Unreachable { .. } => "unreachable",
            Self::Answer { problem, .. } => &problem.code,
            Self::Function { .. } => "function-status",
            Self::Timeout { .. } => "timeout",
            Self::Foreign { .. } => "foreign",
        }
    }

    fn hint(&self) -> &str {
        match self {
            Self::Usage { hint, .. } | Self::Local { hint, .. } | Self::Unreachable { hint, .. } => hint,
            Self::Answer { problem, .. } => &problem.hint,
            Self::Function { .. } => "see what it logged with `millpond logs`",
            Self::Timeout { .. } => {
                "wait longer with --timeout, or see what the node does with `millpond logs`"
            }
            Self::Foreign { .. } => "check --admin: it must be the address of a node's control API",
            Self::Build { .. } => "mend what it says, or `build.command`: it runs in the manifest's folder",
            Self::Manifest { .. } | Self::Output(_) | Self::Interrupted(_) => "",
        }
    }

    /// Writes the failure to standard error.
    pub(crate) fn tell(&self, output: &Output) {
        let silent = match self {
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::Interrupted(_) => true,
            _ => false,
        };
        if silent {
            return;
        }
        let text = if output.json() {
            format!("{:#}\n", json!({ "error": self.json() }))
        } else {
            self.text(io::stderr().is_terminal())
        };
        // Nobody is left to tell when standard error fails too.
        let _ = io::Write::write_all(&mut io::stderr().lock(), text.as_bytes());
    }

    /// The failure for machines.
    pub(crate) fn json(&self) -> serde_json::Value {
        let mut error = json!({ "code": self.code(), "detail": self.to_string(), "hint": self.hint() });
        match self {
            Self::Answer { attempt, problem } => {
                error["attempt"] = json!(attempt);
                error["status"] = json!(problem.status);
                error["request_id"] = json!(problem.request_id);
            }
            Self::Function { status } => error["status"] = json!(status),
            Self::Manifest { path, faults, .. } => {
                error["path"] = json!(path);
                error["faults"] = json!(faults);
            }
            Self::Build { output, folder, .. } => {
                error["output"] = json!(output);
                error["folder"] = json!(folder);
            }
            _ => {}
        }
        error
    }

    /// The failure for people: what it is about, what went wrong, what to try.
    pub(crate) fn text(&self, terminal: bool) -> String {
        let mut text = String::new();
        if let Self::Build { output, .. } = self {
            for line in output.lines() {
                text.push_str(&format!("{}\n", visible(line)));
            }
        }
        if let Self::Manifest {
            path,
            text: source,
            faults,
        } = self
        {
            for fault in faults {
                text.push_str(&explain(&path.display().to_string(), source, fault, terminal));
            }
        }
        text.push_str(&format!("error: {}\n", visible(&self.to_string())));
        if let Self::Answer { attempt, problem } = self {
            let request = problem
                .request_id
                .map(|id| format!(", request {id}"))
                .unwrap_or_default();
            text.push_str(&format!(
                "  from: {} ({} {}{request})\n",
                attempt,
                problem.status,
                visible(&problem.code)
            ));
        }
        if !self.hint().is_empty() {
            text.push_str(&format!("  try: {}\n", visible(self.hint())));
        }
        for code in self.explained() {
            text.push_str(&format!("  more: millpond explain {code}\n"));
        }
        text
    }

    /// The codes of which the manual's page says more than is told here already.
    fn explained(&self) -> Vec<&str> {
        let mut codes = match self {
            Self::Answer { .. } | Self::Unreachable { .. } | Self::Timeout { .. } | Self::Foreign { .. } => {
                vec![self.code()]
            }
            Self::Manifest { faults, .. } => faults.iter().map(|fault| fault.code.as_str()).collect(),
            _ => Vec::new(),
        };
        codes.sort_unstable();
        codes.dedup();
        // A node of another version may have others.
        codes.retain(|code| codes::page(code).is_some());
        codes
    }
}

/// A fault of a manifest with the lines that it is about.
fn explain(path: &str, source: &str, fault: &Diagnostic, terminal: bool) -> String {
    let mut diagnostic = MietteDiagnostic::new(&fault.message)
        .with_code(&fault.code)
        .with_severity(Severity::Error);
    if !fault.help.is_empty() {
        diagnostic = diagnostic.with_help(&fault.help);
    }
    if let Some(span) = &fault.span {
        let label = (!fault.label.is_empty()).then(|| fault.label.clone());
        diagnostic = diagnostic.with_label(LabeledSpan::new(label, span.start, span.len()));
    }
    let report = Report::new(diagnostic)
        .with_source_code(NamedSource::new(path, source.to_owned()).with_language("toml"));
    let theme = if terminal {
        GraphicalTheme::default()
    } else {
        GraphicalTheme {
            characters: ThemeCharacters::ascii(),
            styles: ThemeStyles::none(),
        }
    };
    let handler = GraphicalReportHandler::new_themed(theme);
    let handler = if terminal {
        handler
    } else {
        handler.with_width(100).with_links(false)
    };
    let mut text = String::new();
    match handler.render_report(&mut text, report.as_ref()) {
        Ok(()) => text,
        // Only a span outside the text could fail, and then its words still help.
        Err(_) => format!("{fault}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_explained_with_its_lines() {
        let text = "[application]\nname = \"shop\"\n\n[function.resize]\nsource = \"r.wasm\"\nmemroy = \"64MiB\"\ntimeout = \"5 parsecs\"\n";
        let faults = manifest::parse(text).unwrap_err();
        let failure = Failure::Manifest {
            path: "millpond.toml".into(),
            text: text.to_owned(),
            faults,
        };
        insta::assert_snapshot!(failure.text(false));
    }

    #[test]
    fn each_failure_says_what_to_try() {
        let mut problem = Problem::new(
            504,
            "limit-timeout",
            "the function did not answer within its timeout of 30s",
            "raise `timeout`",
        );
        problem.request_id = Some(contract::RequestId(42));
        let failures = [
            Failure::usage("`Shop` is not a name", "write it in lower case"),
            Failure::Answer {
                attempt: "POST http://127.0.0.1:8080/function/resize".to_owned(),
                problem: Box::new(problem),
            },
            Failure::Timeout {
                attempt: "GET http://127.0.0.1:9080/v1/node".to_owned(),
                after: Duration::from_secs(5),
            },
            Failure::Function { status: 500 },
            Failure::Foreign {
                attempt: "GET http://127.0.0.1:80/v1/node".to_owned(),
                reason: "expected JSON".to_owned(),
            },
        ];
        let texts: Vec<String> = failures.iter().map(|failure| failure.text(false)).collect();
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn a_node_cannot_write_on_the_terminal() {
        let problem = Problem::new(500, "x\u{1b}[2J", "a\u{7}b", "\u{9b}c");
        let text = Failure::Answer {
            attempt: String::new(),
            problem: Box::new(problem),
        }
        .text(false);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
}
