//! Which functions want new objects, and the calls that these are.

use calls::{CallId, Request};
use contract::FunctionId;
use gateway::{Later, events::Cause};
use manifest::ObjectTrigger;
use registry::{Permits, Snapshot};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use triggers::{Object, created};

/// The triggers of what is deployed, as of the last snapshot that it was told.
#[derive(Clone, Default)]
pub(crate) struct Wanted(Arc<RwLock<Vec<(FunctionId, ObjectTrigger)>>>);

impl Wanted {
    /// Those of tenants, as far as they are permitted.
    pub(crate) fn learn(&self, snapshot: &Snapshot, permits: &Permits) {
        let all = snapshot.applications.iter().flat_map(|(application, found)| {
            let objects = found.objects.iter();
            let permitted = objects.filter(move |trigger| permits.lets_run(application, trigger));
            permitted.map(move |trigger| {
                let function = FunctionId {
                    application: application.clone(),
                    function: trigger.function.clone(),
                };
                (function, trigger.clone())
            })
        });
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = all.collect();
    }

    pub(crate) fn all(&self) -> RwLockReadGuard<'_, Vec<(FunctionId, ObjectTrigger)>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any function wants this object.
    pub(crate) fn has(&self, bucket: &str, key: &str) -> bool {
        self.all().iter().any(|(_, trigger)| trigger.matches(bucket, key))
    }

    /// The calls that a new object is. The same cause makes the same calls.
    pub(crate) fn calls(&self, later: &Later, cause: Cause<'_>, new: &Object<'_>) -> Vec<(CallId, Request)> {
        let all = self.all();
        let matching = all
            .iter()
            .filter(|(_, trigger)| trigger.matches(new.bucket, new.key));
        let mut functions: Vec<_> = matching.map(|(function, _)| function).collect();
        // However many of its triggers want an object, a function is told once.
        functions.sort_unstable();
        functions.dedup();
        let call = |function: &FunctionId| {
            let id = cause.call(0, function);
            let event = created(id.to_string(), new).with_hops(0);
            (id, later.call(id, function, &event))
        };
        functions.into_iter().map(call).collect()
    }
}
