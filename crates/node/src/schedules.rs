//! The schedules of what is deployed: when each was last due, durably, and the calls that its runs are.
//!
//! A run is a call whose id comes from the schedule and the time when it was due. First the calls are accepted, then it is
//! written down that they were due; whoever crashes in between does the same again, and calls refuse an id that they know.

use calls::{CallId, Request, SubmitError};
use contract::{Expect, FunctionId, Store, StoreError};
use gateway::{Later, events::Cause};
use registry::Snapshot;
use std::{collections::BTreeMap, sync::Arc};
use triggers::{Agenda, Decision, Milliseconds, Missed, Timing, decide, scheduled};

/// Where it is written when each was last due: JSON, by the schedules' keys.
const KEY: &str = "schedules";

/// All schedules of a node.
pub(crate) struct Schedules {
    store: Arc<dyn Store>,
    agenda: Agenda,
    /// What the schedules are of.
    snapshot: Option<Arc<Snapshot>>,
    known: BTreeMap<String, Schedule>,
    /// When each was last due, or began.
    last: BTreeMap<String, Milliseconds>,
    /// That is not what the store has.
    changed: bool,
}

struct Schedule {
    function: FunctionId,
    when: String,
    timing: Timing,
    missed: Missed,
    payload: String,
}

/// Schedules that could not be looked after.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("when schedules were last due cannot be read: {0}")]
    Record(#[from] serde_json::Error),
    #[error("the calls of schedules were not accepted: {0}")]
    Calls(#[from] SubmitError),
}

impl Schedules {
    /// Reads when each was last due.
    pub(crate) fn open(store: Arc<dyn Store>, agenda: Agenda) -> Result<Self, Error> {
        let last = match store.get(KEY)? {
            Some(entry) => serde_json::from_slice(&entry.value)?,
            None => BTreeMap::new(),
        };
        Ok(Self {
            store,
            agenda,
            snapshot: None,
            known: BTreeMap::new(),
            last,
            changed: false,
        })
    }

    /// When something will be due.
    pub(crate) fn next_due(&self) -> Option<Milliseconds> {
        self.agenda.first()
    }

    /// Has everything run that is due.
    pub(crate) fn look(
        &mut self,
        snapshot: &Arc<Snapshot>,
        later: &Later,
        now: Milliseconds,
    ) -> Result<(), Error> {
        let same = self
            .snapshot
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, snapshot));
        let back = |agenda: Option<Milliseconds>| agenda.is_some_and(|due| due <= now);
        if same && !self.changed && !back(self.next_due()) && !self.is_set_back(now) {
            return Ok(());
        }
        if !same {
            self.learn(snapshot, now);
        }
        let mut runs = Vec::new();
        let mut decisions = Vec::new();
        for (key, schedule) in &self.known {
            let Some(last) = self.last.get(key).copied() else {
                continue;
            };
            let decision = decide(&schedule.timing, schedule.missed, last, now);
            if decision.last == last {
                continue;
            }
            let call = |due: &Milliseconds| schedule.call(key, *due, later);
            runs.extend(decision.runs.iter().map(call));
            decisions.push((key.clone(), decision));
        }
        if !runs.is_empty() {
            later.calls.submit_all(&runs, calls::Timestamp(now))?;
        }
        for (key, decision) in decisions {
            let Decision {
                last, left_out, anew, ..
            } = decision;
            if left_out {
                tracing::warn!(schedule = key, "runs were missed that are not made up for");
            }
            if anew {
                tracing::warn!(
                    schedule = key,
                    "the clock was set back by hours: the schedule begins anew"
                );
            }
            self.last.insert(key, last);
            self.changed = true;
        }
        self.agenda.set(
            self.known
                .iter()
                .filter_map(|(key, schedule)| {
                    let next = schedule.timing.next(*self.last.get(key)?)?;
                    Some((key.clone(), next))
                })
                .collect(),
        );
        if self.changed {
            let record = serde_json::to_vec(&self.last)?;
            self.store.put(KEY, &record, Expect::Any)?;
            self.changed = false;
        }
        Ok(())
    }

    fn is_set_back(&self, now: Milliseconds) -> bool {
        self.last
            .values()
            .any(|last| now.saturating_add(triggers::SETBACK) < *last)
    }

    /// Takes the schedules of what is deployed; one that is new begins now, one that has gone is forgotten.
    fn learn(&mut self, snapshot: &Arc<Snapshot>, now: Milliseconds) {
        self.known.clear();
        for (application, found) in &snapshot.applications {
            for trigger in found.schedules.iter().filter(|trigger| trigger.enabled) {
                let when = trigger.when();
                let key = triggers::key(&application.to_string(), trigger.function.as_str(), &when);
                match trigger.timing() {
                    Ok(timing) => drop(self.known.insert(
                        key,
                        Schedule {
                            function: FunctionId {
                                application: application.clone(),
                                function: trigger.function.clone(),
                            },
                            when,
                            timing,
                            missed: trigger.missed.into(),
                            payload: trigger.payload.clone(),
                        },
                    )),
                    // The registry refuses such a deploy; a time zone may have gone from the host since.
                    Err(error) => tracing::error!(schedule = key, %error, "a schedule does not run"),
                }
            }
        }
        let before = self.last.len();
        self.last.retain(|key, _| self.known.contains_key(key));
        self.changed |= self.last.len() != before;
        for key in self.known.keys() {
            if !self.last.contains_key(key) {
                self.last.insert(key.clone(), now);
                self.changed = true;
            }
        }
        self.snapshot = Some(snapshot.clone());
    }
}

impl Schedule {
    fn call(&self, key: &str, due: Milliseconds, later: &Later) -> (CallId, Request) {
        let FunctionId {
            application,
            function,
        } = self.function.local();
        let id = Cause::Schedule(key, due).call(0, &self.function);
        let source = format!("/{application}/{function}/schedule");
        let event = scheduled(id.to_string(), &source, &self.when, due, &self.payload).with_hops(0);
        (id, later.call(id, &self.function, &event))
    }
}
