//! Which of a program's limits this host keeps, and what does not run where it keeps less.
//!
//! A program may have several processes, and what these use together only control groups count. Without them each is limited by itself, so a
//! program would have its `memory` as often as it may have processes; and nobody would keep `cpus`. What a manifest promises the others is then not kept,
//! and such a function is refused, unless the operator says that it may run all the same. A pure function is one process with one thread in a memory
//! that was laid out for it: it needs none of this.

use confine::{Controller, Groups};
use contract::{Demanded, Limits};

/// What a node's control groups count of its guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Or why there are no groups.
    controllers: Result<Vec<Controller>, String>,
    /// Whether programs run with less than their manifests demand.
    allow_uncounted: bool,
}

impl Counted {
    /// By groups of this host, or by none for this reason.
    pub fn new(groups: Result<&Groups, String>, allow_uncounted: bool) -> Self {
        let counted = |groups: &Groups| {
            Controller::ALL
                .into_iter()
                .filter(|one| groups.counts(*one))
                .collect()
        };
        Self {
            controllers: groups.map(counted),
            allow_uncounted,
        }
    }

    fn counts(&self, controller: Controller) -> bool {
        self.controllers
            .as_ref()
            .is_ok_and(|all| all.contains(&controller))
    }

    /// Whether a program may run with these limits, or what would not be kept of them.
    pub(crate) fn keeps(&self, limits: &Limits) -> Result<(), String> {
        match self.refused(limits.demanded) {
            Some(reason) if !self.allow_uncounted => Err(reason),
            _ => Ok(()),
        }
    }

    /// What is not kept of what a program's manifest demands.
    fn refused(&self, Demanded { cpu_time, cpus }: Demanded) -> Option<String> {
        let controllers = match &self.controllers {
            Ok(controllers) => controllers,
            Err(reason) => {
                return Some(format!(
                    "the memory and the processes of a request to a native executable, or to a function in Python, cannot be counted \
                     together on this host ({reason})"
                ));
            }
        };
        let demands = [
            (cpus, "cpus", Controller::Cores),
            (cpu_time, "cpu_time", Controller::Time),
        ];
        let (_, key, controller) = demands
            .into_iter()
            .find(|(demanded, _, controller)| *demanded && !controllers.contains(controller))?;
        Some(format!(
            "it names `{key}`, which this host's control groups do not count (there is no controller `{}`)",
            controller.name()
        ))
    }

    /// Which limits of a program are kept, and by what.
    pub fn kept(&self) -> String {
        let Ok(_) = &self.controllers else {
            return "memory and time of each process by itself; cores are not limited".to_owned();
        };
        let (cores, time) = (self.counts(Controller::Cores), self.counts(Controller::Time));
        let together = match (cores, time) {
            (true, true) => "memory, processes, cores and time",
            (true, false) => "memory, processes and cores",
            (false, true) => "memory, processes and time",
            (false, false) => "memory and processes",
        };
        let mut kept = format!("{together} of all of a request's processes together");
        if !time {
            kept.push_str("; time of each by itself");
        }
        if !cores {
            kept.push_str("; cores are not limited");
        }
        kept
    }

    /// Which functions do not run here, and why; `None` if none are refused for this.
    pub fn refusals(&self) -> Option<String> {
        if self.allow_uncounted {
            return None;
        }
        let all = Demanded {
            cpu_time: true,
            cpus: true,
        };
        let reason = match &self.controllers {
            Err(_) => format!("none but pure functions run: {}", self.refused(all)?),
            Ok(_) => {
                let keys = [("cpus", Controller::Cores), ("cpu_time", Controller::Time)];
                let refused = keys
                    .into_iter()
                    .filter(|(_, controller)| !self.counts(*controller));
                let refused: Vec<_> = refused.map(|(key, _)| format!("`{key}`")).collect();
                if refused.is_empty() {
                    return None;
                }
                format!("those whose manifests name {} do not run", refused.join(" or "))
            }
        };
        Some(reason)
    }
}

/// What a pure function in native code is limited by, on every host.
pub(crate) const PURE: &str = "memory by what is laid out for it, time of its one process";

#[cfg(test)]
mod tests {
    use super::*;
    use Controller::{Cores, Memory, Processes, Time};

    fn host(controllers: &[Controller]) -> Counted {
        Counted {
            controllers: Ok(controllers.into()),
            allow_uncounted: false,
        }
    }

    fn nothing() -> Counted {
        Counted::new(Err("they were not delegated".to_owned()), false)
    }

    fn demanding(cpu_time: bool, cpus: bool) -> Limits {
        Limits {
            demanded: Demanded { cpu_time, cpus },
            ..Limits::default()
        }
    }

    #[test]
    fn a_host_that_counts_nothing_runs_no_program() {
        let reason = nothing().keeps(&Limits::default()).unwrap_err();
        assert!(
            reason.contains("they were not delegated") && reason.contains("memory"),
            "{reason}"
        );
        assert!(nothing().refusals().unwrap().contains("they were not delegated"));
        let allowed = Counted {
            allow_uncounted: true,
            ..nothing()
        };
        assert_eq!(allowed.keeps(&demanding(true, true)), Ok(()));
        assert_eq!(allowed.refusals(), None);
        assert!(allowed.kept().contains("each process by itself"));
    }

    #[test]
    fn what_a_manifest_does_not_name_may_be_uncounted() {
        let no_cores = host(&[Memory, Processes, Time]);
        assert_eq!(no_cores.keeps(&demanding(true, false)), Ok(()));
        let reason = no_cores.keeps(&demanding(false, true)).unwrap_err();
        assert!(reason.contains("`cpus`") && reason.contains("`cpu`"), "{reason}");
        assert_eq!(
            no_cores.refusals().unwrap(),
            "those whose manifests name `cpus` do not run"
        );
        let no_time = host(&[Memory, Processes, Cores]);
        assert_eq!(no_time.keeps(&demanding(false, true)), Ok(()));
        let reason = no_time.keeps(&demanding(true, false)).unwrap_err();
        assert!(
            reason.contains("`cpu_time`") && reason.contains("`cpuacct`"),
            "{reason}"
        );
        assert_eq!(host(&[Memory, Processes]).keeps(&Limits::default()), Ok(()));
        assert_eq!(host(&Controller::ALL).keeps(&demanding(true, true)), Ok(()));
        assert_eq!(host(&Controller::ALL).refusals(), None);
    }

    #[test]
    fn what_is_kept_is_said() {
        for (controllers, kept) in [
            (
                &Controller::ALL[..],
                "memory, processes, cores and time of all of a request's processes together",
            ),
            (
                &[Memory, Processes, Time],
                "memory, processes and time of all of a request's processes together; cores are not limited",
            ),
            (
                &[Memory, Processes],
                "memory and processes of all of a request's processes together; time of each by itself; cores are not limited",
            ),
        ] {
            assert_eq!(host(controllers).kept(), kept);
        }
    }
}
