//! What a registry does at its start: it reads what is deployed, and has it ready.

use super::{Options, cores, functions, milliseconds_since_1970, missing_version};
use crate::{
    Application, Error, History, Snapshot, Usage, Version,
    images::Images,
    record::{self, APPLICATIONS, USAGE, VERSIONS},
};
use contract::{ApplicationId, Entry, FunctionId, Store};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// What the store has.
pub(super) fn read_all(
    store: &dyn Store,
    images: &Arc<Images>,
    options: &Options,
) -> Result<Snapshot, Error> {
    let (now, cores, permits) = (milliseconds_since_1970(), cores(options), &options.permits);
    let mut histories: HashMap<String, History> = HashMap::new();
    for entry in store.list(USAGE)? {
        match record::read(&entry) {
            Ok(history) => drop(histories.insert(entry.key, history)),
            Err(error) => tracing::warn!(%error, "the history of a version begins anew"),
        }
    }

    let versions: HashMap<String, Entry> = store
        .list(VERSIONS)?
        .into_iter()
        .map(|entry| (entry.key.clone(), entry))
        .collect();
    let mut snapshot = Snapshot::default();
    for entry in store.list(APPLICATIONS)? {
        let name = entry
            .key
            .strip_prefix(APPLICATIONS)
            .unwrap_or_default()
            .parse::<ApplicationId>();
        let name = name.map_err(|error| Error::Record {
            key: entry.key.clone(),
            reason: error.to_string(),
        })?;
        let application = Application::of(record::read(&entry)?, entry.revision, |function, number| {
            let found = versions.get(&record::version_key(&name, function, number));
            let found = found.ok_or_else(|| missing_version(&entry.key, function, number))?;
            let history = histories.remove(&record::usage_key(&name, function, number));
            let function = FunctionId {
                application: name.clone(),
                function: function.clone(),
            };
            Ok(Arc::new(Version::new(
                function,
                number,
                record::read(found)?,
                Arc::clone(images),
                Usage::new(cores, history, now),
                permits,
            )))
        })?;
        for trigger in &application.objects {
            if let Err(error) = permits.check_triggers(&name, std::slice::from_ref(trigger)) {
                tracing::warn!(%error, "a trigger makes nothing run: it was permitted when it was deployed, and is not any more");
            }
        }
        for function in application.functions.values() {
            let versions = function.versions.values();
            for (earlier, later) in versions.clone().zip(versions.skip(1)) {
                later.usage.follow(&earlier.usage);
            }
        }
        snapshot.applications.insert(name, Arc::new(application));
    }
    Ok(snapshot)
}

/// The live versions first: they are what requests ask for.
pub(super) fn load_all(snapshot: &Snapshot, stop: &AtomicBool) {
    let live = functions(snapshot).filter_map(|(_, _, function)| function.live());
    let others = functions(snapshot).flat_map(|(_, _, function)| {
        function
            .aliases
            .values()
            .filter_map(|number| function.versions.get(number))
    });
    for version in live.chain(others) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = version.image() {
            tracing::error!(%error, "a deployed version cannot run");
        }
    }
}
