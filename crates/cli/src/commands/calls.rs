use crate::{
    answer,
    client::Client,
    failure::Failure,
    output::{Output, columns, outline, visible},
};
use admin::wire;
use clap::{Args, Subcommand, ValueEnum};
use contract::RequestId;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Look after asynchronous calls: list them, fetch results, retry or drop dead letters
#[derive(Args, Debug)]
pub(crate) struct Calls {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// List calls, in the order of their ids
    List(List),
    /// Show a call: its state, its attempts, when it is due, why it failed
    Show(One),
    /// Write what the function answered to standard output
    Result(Fetch),
    /// Try a dead letter again, at once
    Retry(One),
    /// Discard a dead letter
    Drop(One),
}

#[derive(Args, Debug)]
struct List {
    /// Only calls in this state
    #[arg(long, value_enum, default_value = "all")]
    state: State,
    /// Only what follows this call
    #[arg(long, value_name = "ID")]
    after: Option<RequestId>,
    /// How many at most
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    /// Whatever their state
    All,
    /// To be run, or running
    Pending,
    /// With a result
    Succeeded,
    /// Dead letters
    Dead,
}

#[derive(Args, Debug)]
struct One {
    /// The call's id, as `invoke --async` printed it
    #[arg(value_name = "ID")]
    id: RequestId,
}

#[derive(Args, Debug)]
struct Fetch {
    #[command(flatten)]
    call: One,
    /// Write the answer's body to a file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Calls {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        match self.verb {
            Verb::List(list) => list.run(client, output),
            Verb::Show(one) => {
                let call: Value = client.get(&one.path())?;
                output.answer(&call, || outline(&call))
            }
            Verb::Result(fetch) => fetch.run(client, output),
            Verb::Retry(one) => {
                let call: wire::Call = client.post(&format!("{}/retry", one.path()), &json!({}))?;
                output.answer(&json!(call), || format!("{} is tried again\n", one.id))
            }
            Verb::Drop(one) => {
                client.delete(&one.path())?;
                output.answer(&json!({ "dropped": one.id }), || format!("dropped {}\n", one.id))
            }
        }
    }
}

impl One {
    fn path(&self) -> String {
        format!("/v1/calls/{}", self.id)
    }
}

impl List {
    fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let state = self.state.to_possible_value();
        let mut path = format!(
            "/v1/calls?state={}&limit={}",
            state.as_ref().map_or("all", |state| state.get_name()),
            self.limit
        );
        if let Some(after) = self.after {
            path.push_str(&format!("&after={after}"));
        }
        let calls: wire::Calls = client.get(&path)?;
        output.answer(&json!(calls), || table(&calls))
    }
}

impl Fetch {
    fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let (attempt, mut response) = client.fetch(&format!("{}/result", self.call.path()))?;
        let status = response
            .headers_mut()
            .remove("x-function-status")
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .ok_or_else(|| Failure::Foreign {
                attempt,
                reason: "it has no X-Function-Status".to_owned(),
            })?;
        let file = self.output.as_deref();
        if output.json() {
            let document = answer::document(&mut response, status, file)?;
            output.answer(&document, String::new)
        } else {
            answer::write(&mut response, file, output)
        }?;
        if status >= 400 {
            Err(Failure::Function { status })
        } else {
            Ok(())
        }
    }
}

fn table(list: &wire::Calls) -> String {
    if list.calls.is_empty() {
        return "no calls; make one with `millpond invoke FUNCTION --async`\n".to_owned();
    }
    let mut rows = vec![
        [
            "CALL", "FUNCTION", "STATE", "ATTEMPTS", "ACCEPTED", "CALLBACK", "WHY",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for call in &list.calls {
        rows.push(vec![
            call.id.to_string(),
            call.function.to_string(),
            state(call.state).to_owned(),
            call.attempts.to_string(),
            visible(&call.accepted),
            callback(call),
            visible(call.reason.as_deref().unwrap_or_default()),
        ]);
    }
    let mut text = columns(&rows);
    if let Some(next) = list.next {
        text.push_str(&format!("there are more: add --after {next}\n"));
    }
    text
}

/// What a call has to do with callbacks, in a few words.
fn callback(call: &wire::Call) -> String {
    match (&call.callback_of, &call.callback) {
        (Some(id), _) => format!("of {id}"),
        (None, Some(wire::Callback { id: None, .. })) => "wanted".to_owned(),
        (None, Some(wire::Callback { state: Some(its), .. })) => state(*its).to_owned(),
        (None, Some(_)) => "forgotten".to_owned(),
        (None, None) => String::new(),
    }
}

fn state(state: wire::CallState) -> &'static str {
    match state {
        wire::CallState::Accepting => "accepting",
        wire::CallState::Waiting => "waiting",
        wire::CallState::Running => "running",
        wire::CallState::Succeeded => "succeeded",
        wire::CallState::Dead => "dead",
    }
}
