use crate::{
    failure::Failure,
    output::Output,
    probe::{self, Finding, State},
};
use clap::Args;
use node::{AwsOptions, Config, HostCompiler, Overrides};
use serde_json::json;
use std::path::PathBuf;

/// Look at this machine: what Millpond can use here, and how to get what is missing
///
/// Nothing is changed and no privilege is needed. The exit code is 1 if `millpond serve` cannot work here.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Look at what this configuration file needs, too
    #[arg(long, value_name = "FILE", env = "MILLPOND_CONFIG")]
    config: Option<PathBuf>,
}

impl Doctor {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let config = Config::load(self.config.as_deref(), &Overrides::default())
            .map_err(|error| Failure::usage(error.to_string(), "see `millpond doctor --help`"))?;
        let mut findings = probe::all();
        findings.extend(node::host_compilers(&config).into_iter().map(compiler));
        findings.push(processes());
        findings.push(process_limits(&config));
        findings.push(tls(&config));
        findings.push(objects(&config));
        findings.extend(config.aws.as_ref().map(operations));
        output.answer(&json!(findings), || report(&findings))?;
        let broken: Vec<&str> = findings
            .iter()
            .filter(|finding| finding.required && finding.state == State::Missing)
            .map(|finding| finding.capability)
            .collect();
        if broken.is_empty() {
            Ok(())
        } else {
            Err(Failure::local(
                format!(
                    "`millpond serve` cannot work here for want of {}",
                    broken.join(", ")
                ),
                "",
            ))
        }
    }
}

/// Whether an engine that compiles by programs of the host has them.
fn compiler(compiler: HostCompiler) -> Finding {
    let (capability, needed_for) = match compiler.engine {
        "aot" => (
            "compiler of aot",
            "engine = \"aot\" and its like, and taking over from wasmtime",
        ),
        "python" => ("Python", "functions with a `handler`"),
        _ => ("compiler of rwasm", "engine = \"rwasm\" and \"rwasm-mask\""),
    };
    let (state, found) = match compiler.found {
        Ok(found) => (State::Ok, found),
        Err(reason) => (State::Missing, reason),
    };
    Finding {
        capability,
        state,
        found,
        needed_for,
        remedy: compiler.remedy.to_owned(),
        required: false,
    }
}

/// Whether native executables can be kept in.
fn processes() -> Finding {
    let (state, found) = match node::supports_processes() {
        Ok(()) => (
            State::Ok,
            "each request in namespaces of its own, Landlock, seccomp".to_owned(),
        ),
        Err(reason) => (State::Missing, reason),
    };
    Finding {
        capability: "native executables",
        state,
        found,
        needed_for: "engine = \"process\"",
        remedy: "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
                 kernel.apparmor_restrict_unprivileged_userns=0); in a container, run it with its own seccomp profile off"
            .to_owned(),
        required: false,
    }
}

/// Whether they run with all that their manifests demand.
fn process_limits(config: &Config) -> Finding {
    let (state, found) = match node::process_limits(config) {
        Ok(kept) => (State::Ok, kept),
        Err(refusals) => (State::Limited, refusals),
    };
    Finding {
        capability: "limits of executables",
        state,
        found,
        needed_for: "functions in native code and in Python: one whose limits cannot be kept does not run",
        remedy: "run the node as root, or delegate memory, pids and cpu to it (systemd: Delegate=yes, DelegateSubgroup=node); or set \
                 `allow_uncounted = true` in [process] of the configuration"
            .to_owned(),
        required: false,
    }
}

/// Where TLS listens, and whether it has something to show.
fn tls(config: &Config) -> Finding {
    let finding = |state, found| Finding {
        capability: "TLS",
        state,
        found,
        needed_for: "clients beyond this machine",
        remedy: "mend the files that [tls] of the configuration names".to_owned(),
        required: state == State::Missing,
    };
    match (config.tls.listen, node::check_tls(&config.tls)) {
        (None, _) => finding(
            State::Ok,
            "not configured: set [tls], or use `serve --tls-listen`".to_owned(),
        ),
        (Some(listen), Ok(())) => finding(State::Ok, format!("at https://{listen}")),
        (Some(listen), Err(error)) => finding(State::Missing, format!("at https://{listen}: {error}")),
    }
}

/// Where objects are, and whether there are keys for them. Nobody is asked there.
fn objects(config: &Config) -> Finding {
    let finding = |state, found| Finding {
        capability: "S3",
        state,
        found,
        needed_for: "functions with `grants.s3`",
        remedy: "mend [s3] of the configuration, or what it names".to_owned(),
        required: state == State::Missing,
    };
    let Some(s3) = &config.s3 else {
        return finding(State::Ok, "not configured: set [s3]".to_owned());
    };
    if let Some(address) = s3.embedded {
        return finding(State::Ok, format!("the node's own, at http://{address}"));
    }
    let place = match &s3.endpoint {
        Some(endpoint) => format!("at {endpoint}"),
        None => format!("of AWS, in {}", s3.region),
    };
    let place = match &s3.role {
        Some(role) => format!("{place}, in the role {role}"),
        None => place,
    };
    match s3.probe() {
        Ok(()) => finding(State::Ok, place),
        Err(reason) => finding(State::Missing, format!("{place}: {reason}")),
    }
}

/// Where AWS's other services are, and whether there are keys for them. Nobody is asked there.
fn operations(aws: &AwsOptions) -> Finding {
    let finding = |state, found| Finding {
        capability: "AWS",
        state,
        found,
        needed_for: "functions with `grants.aws`",
        remedy: "mend [aws] of the configuration, or what it names".to_owned(),
        required: state == State::Missing,
    };
    let place = match &aws.endpoint {
        Some(endpoint) => format!("at {endpoint}"),
        None => "AWS's own".to_owned(),
    };
    match aws.probe() {
        Ok(()) => finding(State::Ok, place),
        Err(reason) => finding(State::Missing, format!("{place}: {reason}")),
    }
}

fn report(findings: &[Finding]) -> String {
    let width = findings
        .iter()
        .map(|finding| finding.capability.len())
        .max()
        .unwrap_or_default();
    let mut text = String::new();
    for finding in findings {
        let state = match finding.state {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Missing => "missing",
        };
        text.push_str(&format!(
            "{state:8}{:width$}  {}\n",
            finding.capability, finding.found
        ));
        if finding.state != State::Ok {
            text.push_str(&format!(
                "{:8}{:width$}  needed for: {}\n",
                "", "", finding.needed_for
            ));
            text.push_str(&format!("{:8}{:width$}  to get it: {}\n", "", "", finding.remedy));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_to_do() {
        let finding = |capability, state| Finding {
            capability,
            state,
            found: "what was found".to_owned(),
            needed_for: "something",
            remedy: "do that".to_owned(),
            required: false,
        };
        let findings = [
            finding("memory", State::Ok),
            finding("open files", State::Limited),
            finding("kvm", State::Missing),
        ];
        insta::assert_snapshot!(report(&findings));
    }
}
