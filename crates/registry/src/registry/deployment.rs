//! From a manifest to versions that are served.

use super::{Admit, Options, Registry, milliseconds_since_1970};
use crate::{
    Action, Error, LIVE, Plan, Settings, Snapshot, Version,
    images::{LoadError, Ready, Source},
    plan::{self, Wanted},
    record::{self, ApplicationRecord, CounterRecord, VersionRecord},
    routes,
};
use contract::{
    ApplicationId, Digest, Expect, FunctionId, Name, PrepareError, Protocol, Revision, VersionNumber,
};
use manifest::Manifest;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    num::NonZeroU32,
    sync::Arc,
};

impl Registry {
    /// What [`Registry::deploy`] would do.
    pub fn plan(&self, manifest: &Manifest, code: &BTreeMap<Name, Digest>) -> Result<Plan, Error> {
        self.plan_for(None, manifest, code, &|_| Ok(()))
    }

    /// What [`Registry::deploy_for`] would do.
    pub fn plan_for(
        &self,
        tenant: Option<&Name>,
        manifest: &Manifest,
        code: &BTreeMap<Name, Digest>,
        admit: Admit<'_>,
    ) -> Result<Plan, Error> {
        let application = application_of(tenant, manifest);
        let wanted = self.wanted(&application, manifest, code)?;
        let snapshot = self.snapshot();
        admit(functions_after(&snapshot, &application, &wanted))?;
        check_routes(&application, manifest, &snapshot)?;
        self.plan_against(&snapshot, &application, manifest, &wanted)
    }

    pub(crate) fn wanted(
        &self,
        application: &ApplicationId,
        manifest: &Manifest,
        code: &BTreeMap<Name, Digest>,
    ) -> Result<Wanted, Error> {
        let triggers = &manifest.trigger.object;
        if let (Some(trigger), false) = (triggers.first(), self.options.hears_objects) {
            return Err(Error::TriggerUnavailable {
                function: FunctionId {
                    application: application.clone(),
                    function: trigger.function.clone(),
                },
            });
        }
        let Options {
            services,
            permits,
            fits,
            tiers,
            ..
        } = &self.options;
        let engines = self.images.engines();
        let wanted = plan::wanted(
            application,
            manifest,
            code,
            (&engines, tiers.first),
            services,
            permits,
        )?;
        permits.check_triggers(application, triggers)?;
        for (name, (settings, _)) in &wanted {
            let result = fits.as_ref().map_or(Ok(()), |fits| fits(&settings.s3));
            result.map_err(|reason| Error::GrantsTooMany {
                function: FunctionId {
                    application: application.clone(),
                    function: name.clone(),
                },
                reason,
            })?;
        }
        Ok(wanted)
    }

    fn plan_against(
        &self,
        snapshot: &Snapshot,
        application: &ApplicationId,
        manifest: &Manifest,
        wanted: &Wanted,
    ) -> Result<Plan, Error> {
        let (counters, _) = self.counters(application)?;
        let next = |function: &Name| {
            let number = counters.0.get(function).copied().unwrap_or(0).checked_add(1)?;
            NonZeroU32::new(number).map(VersionNumber)
        };
        let current = snapshot.applications.get(application).map(|current| &**current);
        let has_code = |digest| self.has_code(snapshot, application.tenant.as_ref(), digest);
        Ok(plan::plan(
            application,
            wanted,
            &manifest.trigger,
            current,
            next,
            has_code,
        ))
    }

    /// Makes the node serve what the manifest says, all at once: new versions where code or settings differ, no more
    /// than the manifest's functions, its routes. `code` names each function's code, which has been uploaded.
    pub fn deploy(&self, manifest: &Manifest, code: &BTreeMap<Name, Digest>) -> Result<Plan, Error> {
        self.deploy_for(None, manifest, code, &|_| Ok(()))
    }

    /// The same for a tenant. `admit` is asked whether the tenant may have so many functions, at first and again when nothing
    /// else can change any more.
    pub fn deploy_for(
        &self,
        tenant: Option<&Name>,
        manifest: &Manifest,
        code: &BTreeMap<Name, Digest>,
        admit: Admit<'_>,
    ) -> Result<Plan, Error> {
        let application = &application_of(tenant, manifest);
        let wanted = self.wanted(application, manifest, code)?;
        let plan = {
            let snapshot = self.snapshot();
            admit(functions_after(&snapshot, application, &wanted))?;
            check_routes(application, manifest, &snapshot)?;
            self.plan_against(&snapshot, application, manifest, &wanted)?
        };
        if !plan.missing_code.is_empty() {
            return Err(Error::CodeMissing(plan.missing_code));
        }
        let mut loaded = self.load_new(&plan, &wanted)?;

        let subscribers = self.changing.lock();
        let snapshot = self.snapshot();
        let current = snapshot.applications.get(application);
        if current.map_or(Revision(0), |current| current.revision) != plan.revision {
            return Err(Error::Conflict(application.clone()));
        }
        admit(functions_after(&snapshot, application, &wanted))?;
        check_routes(application, manifest, &snapshot)?;
        if plan.is_unchanged() {
            return Ok(plan);
        }
        let mut plan = plan;
        self.reserve_numbers(&mut plan)?;
        let mut versions = HashMap::new();
        for change in &plan.changes {
            let (Some(ready), Some(number), Some((settings, code))) = (
                loaded.remove(&change.function),
                change.to,
                wanted.get(&change.function),
            ) else {
                continue;
            };
            let record = VersionRecord {
                code: *code,
                code_size: self.code().size(*code)?,
                created: milliseconds_since_1970(),
                settings: settings.clone(),
            };
            let key = record::version_key(application, &change.function, number);
            self.store
                .put(&key, &record::write(&key, &record)?, Expect::Absent)?;
            let function = FunctionId {
                application: application.clone(),
                function: change.function.clone(),
            };
            let usage = self.no_usage();
            let predecessor = current.and_then(|current| current.functions.get(&change.function)?.live());
            if let Some(predecessor) = predecessor {
                usage.follow(&predecessor.usage);
            }
            let images = Arc::clone(&self.images);
            let permits = &self.options.permits;
            let version = Version::new(function, number, record, images, usage, permits).with_image(ready);
            versions.insert((change.function.clone(), number), Arc::new(version));
        }
        let record = self.next_record(&plan, current.map(|current| current.record()));
        plan.revision = self.publish(&subscribers, application, record, &versions)?;
        Ok(plan)
    }

    /// The images of the versions that a deployment makes.
    fn load_new(&self, plan: &Plan, wanted: &Wanted) -> Result<BTreeMap<Name, Ready>, Error> {
        let mut loaded = BTreeMap::new();
        for change in &plan.changes {
            let (Action::Create | Action::Update, Some((settings, code))) =
                (change.action, wanted.get(&change.function))
            else {
                continue;
            };
            let function = FunctionId {
                application: plan.application.clone(),
                function: change.function.clone(),
            };
            let ready = self.ready(&function, settings, *code)?;
            loaded.insert(change.function.clone(), ready);
        }
        Ok(loaded)
    }

    /// The image of code that is to run so, if it can.
    pub(crate) fn ready(
        &self,
        function: &FunctionId,
        settings: &Settings,
        code: Digest,
    ) -> Result<Ready, Error> {
        let refused = |reason| Error::CodeRefused {
            function: function.clone(),
            reason,
        };
        let source = Source::new(code, &settings.protocol);
        let ready = match self.images.load(&settings.engine, function, source) {
            Ok(ready) => ready,
            Err(LoadError::Failed(error)) => return Err(error),
            Err(LoadError::Refused(reason)) => return Err(refused(reason)),
        };
        if matches!(settings.protocol, Protocol::Pure { .. })
            && let Err(reason) = ready.image.pure()
        {
            return Err(refused(PrepareError::Unsupported(reason)));
        }
        if let Err(reason) = ready.image.keeps(&settings.limits, &settings.protocol) {
            return Err(Error::LimitsUnavailable {
                function: function.clone(),
                reason,
            });
        }
        let initial = ready.image.initial_memory();
        if initial > settings.limits.memory {
            return Err(Error::MemoryTooSmall {
                function: function.clone(),
                limit: settings.limits.memory,
                initial,
            });
        }
        Ok(ready)
    }

    fn next_record(&self, plan: &Plan, before: Option<ApplicationRecord>) -> ApplicationRecord {
        let mut functions = before.map(|before| before.functions).unwrap_or_default();
        for change in &plan.changes {
            match (change.action, change.to) {
                (Action::Create | Action::Update, Some(number)) => {
                    let function = functions.entry(change.function.clone()).or_default();
                    function.versions.insert(number);
                    function.aliases.insert(LIVE.clone(), number);
                    let superfluous = function.versions.len().saturating_sub(self.options.keep.max(1));
                    let oldest: Vec<_> = function.versions.iter().copied().take(superfluous).collect();
                    let aliased: BTreeSet<_> = function.aliases.values().copied().collect();
                    function
                        .versions
                        .retain(|number| !oldest.contains(number) || aliased.contains(number));
                }
                (Action::Delete, _) => drop(functions.remove(&change.function)),
                _ => {}
            }
        }
        ApplicationRecord {
            functions,
            triggers: plan.routes.clone(),
            schedules: plan.schedules.clone(),
            subscriptions: plan.subscriptions.clone(),
            objects: plan.objects.clone(),
        }
    }

    fn counters(&self, application: &ApplicationId) -> Result<(CounterRecord, Expect), Error> {
        match self.store.get(&record::counter_key(application))? {
            Some(entry) => Ok((record::read(&entry)?, Expect::At(entry.revision))),
            None => Ok((CounterRecord::default(), Expect::Absent)),
        }
    }

    /// Gives each new version a number that no version of its function ever had.
    fn reserve_numbers(&self, plan: &mut Plan) -> Result<(), Error> {
        let key = record::counter_key(&plan.application);
        let (mut counters, expect) = self.counters(&plan.application)?;
        for change in &mut plan.changes {
            if !matches!(change.action, Action::Create | Action::Update) {
                continue;
            }
            let counter = counters.0.entry(change.function.clone()).or_default();
            *counter = counter.saturating_add(1);
            change.to = NonZeroU32::new(*counter).map(VersionNumber);
        }
        self.write(&plan.application, &key, &counters, expect).map(drop)
    }
}

pub(crate) fn application_of(tenant: Option<&Name>, manifest: &Manifest) -> ApplicationId {
    ApplicationId {
        tenant: tenant.cloned(),
        name: manifest.application.name.clone(),
    }
}

/// How many functions the tenant will have.
fn functions_after(snapshot: &Snapshot, application: &ApplicationId, wanted: &Wanted) -> usize {
    let others = snapshot
        .of_tenant(application.tenant.as_ref())
        .filter(|(id, _)| *id != application);
    others.map(|(_, other)| other.functions.len()).sum::<usize>() + wanted.len()
}

/// Routes of one tenant must differ; those of two never meet.
fn check_routes(application: &ApplicationId, manifest: &Manifest, snapshot: &Snapshot) -> Result<(), Error> {
    let others: Vec<_> = snapshot
        .of_tenant(application.tenant.as_ref())
        .filter(|(id, _)| *id != application)
        .map(|(id, other)| (id, other.triggers.as_slice()))
        .collect();
    routes::check(&manifest.trigger.http, others.iter().copied())
}
