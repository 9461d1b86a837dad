//! `millpond up`: one loop that looks, builds, deploys and waits.
//!
//! Two threads beside the node's own. The main one waits for a signal or the end of the other, then stops the node in
//! order. The other is the [`Session`]: it looks at the manifest and the files that the build commands watch; when they
//! are not as they were, it builds what changed and deploys; then it waits for the next change. What fails is told, and
//! leaves alone what serves. A thread for each function passes its log on.

use super::{
    deploy::{Deployed, Request},
    lines,
    serve::{address, exported, exporter},
};
use crate::{
    builds::{self, Unit},
    client::{Client, Connection},
    failure::Failure,
    output::{self, Output, visible},
    plan,
    project::Project,
    signals::{self, Stop},
    watch::{self, Bell, Seen},
};
use admin::wire::{Action, Record};
use clap::Args;
use contract::Name;
use manifest::Manifest;
use node::{Config, Node, Overrides};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{self, IsTerminal, Write},
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};
use telemetry::otlp::Options;

/// Develop: build, serve, and do so again after each change
///
/// Runs a node whose data is in the folder .millpond beside the manifest. When a file that `watch` names or the manifest
/// changes, what is made from it is built and deployed; requests that run finish on the version before. When that fails,
/// the version before keeps serving. What functions log is shown as it comes. As with `serve`, the standard OTEL_* variables have
/// traces, metrics and logs exported.
#[derive(Args, Debug)]
pub(crate) struct Up {
    /// The manifest, or the folder with a millpond.toml
    #[arg(value_name = "FOLDER|FILE", default_value = ".")]
    place: PathBuf,
    /// Where functions are served; port 0 is any that is free [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", env = "MILLPOND_LISTEN")]
    listen: Option<SocketAddr>,
    /// Show what the build commands print, not only when they fail
    #[arg(short, long)]
    verbose: bool,
}

/// How long requests may take to end when the session does.
const DRAIN: Duration = Duration::from_secs(2);
/// How often to see whether a signal came.
const PATIENCE: Duration = Duration::from_millis(100);

impl Up {
    pub(crate) fn run(self, connection: &Connection, output: Output) -> Result<(), Failure> {
        let project = Project::at(self.place);
        // Before anything is made for it: a folder without a manifest is a slip.
        project.manifest()?;
        let filter = env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned());
        let options = exported()?;
        let places = options.as_ref().map(Options::places).unwrap_or_default();
        let exporter = exporter(options)?;
        telemetry::init_exporting(telemetry::Format::Auto, &filter, exporter.as_ref())
            .map_err(|error| Failure::usage(error.to_string(), "check RUST_LOG"))?;
        let config = config(&project, self.listen, connection)?;

        let (ring, ended) = mpsc::channel();
        let stop = signals::listen(ring.clone(), ())?;
        let failed = |error: node::Error| Failure::local(error.to_string(), "");
        let node = Node::start_with(&config, exporter, |engines| engines).map_err(failed)?;
        let teller = Teller { output };
        let session = Session {
            client: connection.client_of(&node.admin().to_string())?,
            bell: Bell::new()?,
            project,
            teller,
            verbose: self.verbose,
            stop: stop.clone(),
            globs: Vec::new(),
            seen: None,
            built: BTreeMap::new(),
            followed: BTreeSet::new(),
            serving: None,
        };
        teller.event(
            &json!({
                "event": "listening",
                "listen": format!("http://{}", node.listen()),
                "admin": format!("http://{}", node.admin()),
            }),
            || {
                format!(
                    "functions at http://{}, control API at http://{}\n",
                    node.listen(),
                    node.admin()
                )
            },
        )?;
        if !places.is_empty() {
            let listed: Vec<String> = places
                .iter()
                .map(|(signal, url)| format!("{signal} to {url}"))
                .collect();
            let mut event: Value = places.into_iter().collect();
            event["event"] = json!("exporting");
            teller.event(&event, || format!("telemetry: {}\n", listed.join(", ")))?;
        }
        let session = thread::Builder::new().name("session".into()).spawn(move || {
            let result = session.run();
            // The main thread may be stopping already.
            let _ = ring.send(());
            result
        });
        let session =
            session.map_err(|error| Failure::local(format!("cannot start a thread: {error}"), ""))?;

        let waited = node.wait(&ended);
        if stop.signal().is_none() {
            // A core or the session failed: the session's own failure, if any, comes first below.
            stop.set(1);
        }
        let stopped = node.stop();
        match session.join() {
            Ok(Err(failure @ Failure::Interrupted(_))) => {
                waited.and(stopped).map_err(failed).and(Err(failure))
            }
            Ok(result) => result.and(waited.and(stopped).map_err(failed)),
            Err(_) => Err(Failure::local("the session broke off", "")),
        }
    }
}

/// The configuration of the session's node. Its folder ignores itself, as far as version control goes.
fn config(project: &Project, listen: Option<SocketAddr>, connection: &Connection) -> Result<Config, Failure> {
    let data = project.folder.join(".millpond");
    let config = Config::load(
        None,
        &Overrides {
            listen,
            admin: connection.admin().map(address).transpose()?,
            data: Some(data.join("node")),
            admin_token: connection.token(),
            ..Overrides::default()
        },
    )
    .map_err(|error| Failure::usage(error.to_string(), "see `millpond up --help`"))?;
    // A node shares its port with others of the same user, which is not what is meant here.
    TcpListener::bind(config.listen).map_err(|error| {
        Failure::local(
            format!("cannot listen on {} for functions: {error}", config.listen),
            "end what listens there, or choose another with --listen; 127.0.0.1:0 is any that is free",
        )
    })?;
    fs::create_dir_all(&data)
        .and_then(|()| fs::write(data.join(".gitignore"), "*\n"))
        .map_err(|error| {
            Failure::local(
                format!("cannot use the folder {}: {error}", data.display()),
                "the session's node keeps its data there",
            )
        })?;
    Ok(Config {
        drain: DRAIN,
        ..config
    })
}

/// Says what happens: text for people, or an object a line.
#[derive(Clone, Copy, Debug)]
struct Teller {
    output: Output,
}

impl Teller {
    fn event(self, value: &Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.output.json() {
            self.output.line(&value.to_string())
        } else {
            self.output.bytes(text().as_bytes())
        }
    }

    fn failure(self, failure: &Failure, serving: bool) -> Result<(), Failure> {
        if self.output.json() {
            let event = json!({ "event": "failed", "error": failure.json(), "serving": serving });
            return self.output.line(&event.to_string());
        }
        let mut text = failure.text(io::stderr().is_terminal());
        text.push_str(if serving {
            "  the version before keeps serving; waiting for a change\n"
        } else {
            "  nothing is served yet; waiting for a change\n"
        });
        // Nobody is left to tell when standard error fails.
        let _ = io::stderr().lock().write_all(text.as_bytes());
        Ok(())
    }
}

struct Session {
    project: Project,
    client: Client,
    bell: Bell,
    teller: Teller,
    verbose: bool,
    stop: Stop,
    /// What is watched: of the last manifest that could be read.
    globs: Vec<String>,
    /// The files as they were when they were last built and deployed, or failed to be.
    seen: Option<Seen>,
    /// By command: its sources as they were when it last succeeded.
    built: BTreeMap<String, Seen>,
    /// The functions whose logs are passed on.
    followed: BTreeSet<String>,
    /// The triggers of what was deployed last, as they were told; none if nothing was.
    serving: Option<String>,
}

impl Session {
    /// Goes on until a signal comes, or standard output fails.
    fn run(mut self) -> Result<(), Failure> {
        self.bell.cover(std::slice::from_ref(&self.project.folder));
        loop {
            self.stop.check()?;
            let (seen, manifest) = self.look();
            if self.seen.as_ref() == Some(&seen) {
                while !self.bell.wait(PATIENCE) {
                    self.stop.check()?;
                }
                continue;
            }
            self.seen = Some(seen);
            let Err(failure) = manifest.and_then(|manifest| self.apply(&manifest)) else {
                continue;
            };
            self.stop.check()?;
            if matches!(failure, Failure::Output(_)) {
                return Err(failure);
            }
            self.teller.failure(&failure, self.serving.is_some())?;
        }
    }

    /// The files and the manifest as they are now. What changes from here on rings the bell, or is seen by the next
    /// look: each file is noted before it is read.
    fn look(&mut self) -> (Seen, Result<Manifest, Failure>) {
        let mut seen = Seen::new();
        watch::note(&mut seen, self.project.path.clone());
        let manifest = self.project.manifest();
        if let Ok(manifest) = &manifest {
            self.globs = globs(manifest);
        }
        let (folder, globs) = (&self.project.folder, &self.globs);
        let globs: Vec<&str> = globs.iter().map(String::as_str).collect();
        let looked = watch::folders(folder, &globs).and_then(|folders| {
            self.bell.cover(&folders);
            watch::look(folder, &globs)
        });
        match looked {
            Ok(sources) => {
                seen.extend(sources);
                (seen, manifest)
            }
            Err(failure) => (seen, manifest.and(Err(failure))),
        }
    }

    /// Builds what is not as its sources are, and deploys.
    fn apply(&mut self, manifest: &Manifest) -> Result<(), Failure> {
        for unit in builds::units(manifest, &self.project, None)? {
            // Before the command runs: what is edited meanwhile is built again.
            let sources = unit.sources(&self.project)?;
            let done = match self.built.get(unit.command) {
                Some(built) => *built == sources && unit.is_made(),
                None => unit.is_fresh(&sources),
            };
            if !done {
                self.build(&unit)?;
            }
            self.built.insert(unit.command.to_owned(), sources);
        }
        let code = self.project.code(manifest)?;
        let deployed = Request::new(manifest, &code).deploy(&self.client)?;
        for name in manifest.function.keys() {
            self.follow(&manifest.application.name, name)?;
        }
        let before = self.serving.replace(plan::triggers(&deployed.deployment));
        let mut event = deployed.answer.clone();
        event["event"] = json!("deployed");
        self.teller.event(&event, || told(&deployed, before.as_deref()))
    }

    /// Builds, and says that it does: on a terminal with a spinner, elsewhere with a line before and the time after.
    fn build(&self, unit: &Unit<'_>) -> Result<(), Failure> {
        let names: Vec<&str> = unit.makes.iter().map(|(name, _)| name.as_str()).collect();
        let what = format!("{}: {}", names.join(", "), unit.command);
        let event = |event| json!({ "event": event, "command": unit.command, "functions": names });
        let spins = output::shows_progress();
        self.teller.event(&event("building"), || match spins {
            true => String::new(),
            false => format!("building {what}\n"),
        })?;
        let begun = Instant::now();
        unit.build(&self.project, self.verbose, &self.stop)?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut built = event("built");
        built["seconds"] = json!(seconds);
        self.teller.event(&built, || match spins {
            true => format!("built {what}\n"),
            false => format!("built {what} ({seconds:.1} s)\n"),
        })
    }

    /// Passes on what a function logs from here on.
    fn follow(&mut self, application: &Name, name: &Name) -> Result<(), Failure> {
        let function = format!("{application}.{name}");
        if self.followed.contains(&function) {
            return Ok(());
        }
        let path = format!("/v1/functions/{function}/logs?follow=true&tail=0");
        let log = self.client.open(&path)?;
        let (teller, label) = (self.teller, name.to_string());
        let passing = move || {
            // It breaks off when the node ends, and nobody reads standard output when that fails.
            let _ = lines::each(log, "the log", |line| {
                pass_on(teller, &label, &String::from_utf8_lossy(line))
            });
        };
        thread::Builder::new()
            .name("log".into())
            .spawn(passing)
            .map_err(|error| Failure::local(format!("cannot start a thread: {error}"), ""))?;
        self.followed.insert(function);
        Ok(())
    }
}

/// What is watched: the sources of what is built, and the code of what is not.
fn globs(manifest: &Manifest) -> Vec<String> {
    let of = |function: &manifest::Function| match &function.build {
        Some(build) => build.watch.clone(),
        None => vec![glob::Pattern::escape(&function.source)],
    };
    manifest.function.values().flat_map(of).collect()
}

/// The first time all that is served, then what changed; `before` are the triggers as they were told the last time.
fn told(deployed: &Deployed, before: Option<&str>) -> String {
    let Deployed {
        deployment,
        addresses,
        ..
    } = deployed;
    let Some(before) = before else {
        return format!(
            "{}\n{}\nwaiting for changes; Ctrl-C ends\n",
            plan::render(deployment),
            plan::listed(addresses)
        );
    };
    let mut changed = deployment.clone();
    changed
        .changes
        .retain(|change| change.action != Action::Unchanged);
    let mut text = plan::changes(&changed);
    let triggers = plan::triggers(deployment);
    match triggers.as_str() {
        now if now == before => {}
        "" => text.push_str("no triggers any more\n"),
        now => text.push_str(now),
    }
    if text.is_empty() {
        text.push_str("deployed: nothing changed\n");
    }
    text + &plan::warnings(deployment)
}

fn pass_on(teller: Teller, label: &str, line: &str) -> Result<(), Failure> {
    let record: Value = serde_json::from_str(line).unwrap_or_else(|_| json!(line));
    let event = json!({ "event": "log", "record": record });
    teller.event(&event, || match serde_json::from_str::<Record>(line) {
        Ok(record) if record.stream == "platform" => {
            format!("{label} | [millpond] {}\n", visible(&record.message))
        }
        Ok(record) => format!("{label} | {}\n", visible(&record.message)),
        Err(_) => format!("{label} | {}\n", visible(line)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_is_not_built_here_is_watched_itself() {
        let text = "[application]\nname = \"shop\"\n\
            [function.a]\nsource = \"a[1].wasm\"\n\
            [function.b]\nsource = \"b.wasm\"\nbuild = { command = \"make\", watch = [\"src/**\"] }\n";
        assert_eq!(
            globs(&manifest::parse(text).unwrap()),
            ["a[[]1[]].wasm", "src/**"]
        );
    }

    #[test]
    fn a_trigger_alone_is_a_change() {
        let deployed = |schedules: Value| {
            Deployed {
            answer: Value::Null,
            deployment: serde_json::from_value(json!({
                "application": "shop", "revision": 7, "missing_code": [], "routes": [], "events": [],
                "changes": [{ "function": "tick", "action": "unchanged", "from": 1, "to": 1, "differences": [] }],
                "schedules": schedules,
            }))
            .unwrap(),
            addresses: Vec::new(),
        }
        };
        let (none, one) = (
            deployed(json!([])),
            deployed(json!([{ "function": "tick", "when": "every 2s", "missed": "once", "enabled": true }])),
        );
        let triggers = plan::triggers(&one.deployment);
        assert!(told(&one, None).ends_with("waiting for changes; Ctrl-C ends\n"));
        assert_eq!(told(&one, Some("")), "schedules\n  every 2s  -> tick\n");
        assert_eq!(told(&one, Some(&triggers)), "deployed: nothing changed\n");
        assert_eq!(told(&none, Some(&triggers)), "no triggers any more\n");
    }
}
