use crate::{
    Action, Application, Error, History, LIVE, Permits, Plan, Settings, Snapshot, Stored, Usage, Version,
    disk::{self, CodeFiles},
    images::{Images, LoadError, Ready, Source},
    plan::{self, Wanted},
    record::{self, APPLICATIONS, ApplicationRecord, CounterRecord, USAGE, VERSIONS, VersionRecord},
    routes,
    snapshot::unknown_version,
    tiers::{Ladder, Tiers},
};
use contract::{
    ApplicationId, ByteSize, Digest, Engine, Entry, Expect, FunctionId, FunctionRef, Name, PrepareError,
    Protocol, Qualifier, Revision, S3Grant, Store, StoreError, VersionNumber,
};
use manifest::Manifest;
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    io::Read,
    num::NonZeroU32,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};
use telemetry::metrics::Metrics;

/// What a registry may be told.
#[derive(Clone)]
pub struct Options {
    /// The largest code that may be uploaded.
    pub code: ByteSize,
    /// How many versions of a function are kept to roll back to, besides those that an alias names.
    pub keep: usize,
    /// How long code and artefacts that no version uses are kept.
    pub litter: Duration,
    /// Where compiling and loading are counted.
    pub metrics: Option<Arc<Metrics>>,
    /// The services of which something can be granted.
    pub services: Vec<&'static str>,
    /// Whether the node hears of new objects, so that they can make functions run.
    pub hears_objects: bool,
    /// What tenants may be granted of objects and of AWS's services.
    pub permits: Arc<Permits>,
    /// Whether a function can have all of these.
    pub fits: Option<Fits>,
    /// Between which engines the node chooses where a manifest leaves it to it.
    pub tiers: Tiers,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            code: ByteSize::mib(256),
            keep: 10,
            litter: Duration::from_secs(24 * 60 * 60),
            metrics: None,
            services: Vec::new(),
            hears_objects: false,
            permits: Arc::default(),
            fits: None,
            tiers: Tiers::default(),
        }
    }
}

/// Whether a function can have all of these grants together; if not, why.
pub type Fits = Arc<dyn Fn(&[S3Grant]) -> Result<(), String> + Send + Sync>;

/// Whether a tenant may have so many functions.
pub type Admit<'a> = &'a dyn Fn(usize) -> Result<(), Error>;

/// How many uploads of a tenant are remembered until they are deployed.
const UPLOADS: usize = 1024;

type Subscriber = Box<dyn Fn(&Arc<Snapshot>) + Send>;

/// What is deployed on this node. See the crate's introduction.
pub struct Registry {
    pub(crate) store: Arc<dyn Store>,
    images: Arc<Images>,
    options: Options,
    published: RwLock<Arc<Snapshot>>,
    /// Who is told; also the lock under which everything changes.
    changing: Mutex<Vec<Subscriber>>,
    /// What tenants uploaded and may deploy, the oldest first: whoever only knows a digest does not get the code.
    uploads: Mutex<BTreeMap<Name, VecDeque<Digest>>>,
    stop: Arc<AtomicBool>,
    loader: Option<JoinHandle<()>>,
    ladder: Ladder,
}

impl Registry {
    /// Reads what is deployed, collects litter, and begins to make ready, behind the caller's back, the images of all
    /// versions that an alias names.
    ///
    /// `data` is the node's data folder, and the store has no other writer.
    pub fn open(
        store: Arc<dyn Store>,
        data: &Path,
        engines: Vec<Arc<dyn Engine>>,
        options: Options,
    ) -> Result<Self, Error> {
        disk::make_folder(data)?;
        let images = Arc::new(Images::open(
            Arc::clone(&store),
            data,
            engines,
            options.tiers,
            options.metrics.clone(),
        )?);
        let snapshot = Arc::new(read_all(&*store, &images, &options)?);
        let stop = Arc::new(AtomicBool::new(false));
        let mut registry = Self {
            store,
            images,
            options,
            published: RwLock::new(Arc::clone(&snapshot)),
            changing: Mutex::new(Vec::new()),
            uploads: Mutex::default(),
            stop: Arc::clone(&stop),
            loader: None,
            ladder: Ladder::start().map_err(disk::failed("start a thread for the images in", data))?,
        };
        registry.collect()?;
        let loader = std::thread::Builder::new().name("images".to_owned());
        let loader = loader.spawn(move || load_all(&snapshot, &stop));
        registry.loader = Some(loader.map_err(disk::failed("start a thread for the images in", data))?);
        Ok(registry)
    }

    /// What is deployed now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.published.read())
    }

    /// Calls `subscriber` with what is deployed now, and then, before the change that made it returns, with each new
    /// snapshot, in order. It must not change the registry.
    pub fn subscribe(&self, subscriber: impl Fn(&Arc<Snapshot>) + Send + 'static) {
        let mut subscribers = self.changing.lock();
        subscriber(&self.snapshot());
        subscribers.push(Box::new(subscriber));
    }

    /// The names of this node's engines.
    pub fn engines(&self) -> Vec<&'static str> {
        self.images.engines().iter().map(|engine| engine.name()).collect()
    }

    /// The largest code that may be uploaded.
    pub fn code_limit(&self) -> ByteSize {
        self.options.code
    }

    /// Reads code to its end and keeps it under its digest, for a deployment to come.
    pub fn put_code(&self, digest: Digest, reader: &mut dyn Read) -> Result<Stored, Error> {
        let stored = self.code().put(digest, reader, self.options.code)?;
        let snapshot = self.snapshot();
        let functions = snapshot
            .applications
            .values()
            .flat_map(|application| application.functions.values());
        for version in functions.flat_map(|function| function.versions.values()) {
            // What failed for want of this code may work now.
            if version.code == digest {
                version.forget_failure();
            }
        }
        Ok(stored)
    }

    /// As [`Registry::put_code`], for a tenant: who tells nobody what others uploaded.
    pub fn put_code_for(
        &self,
        tenant: Option<&Name>,
        digest: Digest,
        reader: &mut dyn Read,
    ) -> Result<Stored, Error> {
        let stored = self.put_code(digest, reader)?;
        let Some(tenant) = tenant else { return Ok(stored) };
        let known = self.has_code(&self.snapshot(), Some(tenant), digest);
        let mut uploads = self.uploads.lock();
        let its = uploads.entry(tenant.clone()).or_default();
        its.retain(|known| *known != digest);
        its.push_back(digest);
        if its.len() > UPLOADS {
            its.pop_front();
        }
        Ok(if known { Stored::Known } else { Stored::New })
    }

    /// Whether code is here that this tenant has shown to have.
    pub(crate) fn has_code(&self, snapshot: &Snapshot, tenant: Option<&Name>, digest: Digest) -> bool {
        let deployed = || {
            let functions = snapshot
                .of_tenant(tenant)
                .flat_map(|(_, application)| application.functions.values());
            functions
                .flat_map(|function| function.versions.values())
                .any(|version| version.code == digest)
        };
        let uploaded = |tenant| {
            let uploads = self.uploads.lock();
            uploads.get(tenant).is_some_and(|its| its.contains(&digest))
        };
        self.code().contains(digest) && tenant.is_none_or(|tenant| uploaded(tenant) || deployed())
    }

    /// Runs something while nothing is deployed or deleted.
    pub fn while_unchanged<T>(&self, act: impl FnOnce(&Snapshot) -> T) -> T {
        let _changing = self.changing.lock();
        act(&self.snapshot())
    }

    /// What tenants may be granted.
    pub fn permits(&self) -> &Permits {
        &self.options.permits
    }

    pub(crate) fn images(&self) -> &Arc<Images> {
        &self.images
    }

    /// Of a version that nobody has used.
    pub(crate) fn no_usage(&self) -> Usage {
        Usage::new(cores(&self.options), None, milliseconds_since_1970())
    }

    pub(crate) fn code(&self) -> &CodeFiles {
        &self.images.code
    }

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

    fn write<T: serde::Serialize>(
        &self,
        application: &ApplicationId,
        key: &str,
        record: &T,
        expect: Expect,
    ) -> Result<Revision, Error> {
        self.store
            .put(key, &record::write(key, record)?, expect)
            .map_err(|error| match error {
                StoreError::Conflict { .. } => Error::Conflict(application.clone()),
                error => error.into(),
            })
    }

    /// Makes a record the state of an application, in the store and then for everybody. `new` has versions that the
    /// present snapshot does not.
    fn publish(
        &self,
        subscribers: &[Subscriber],
        application: &ApplicationId,
        record: ApplicationRecord,
        new: &HashMap<(Name, VersionNumber), Arc<Version>>,
    ) -> Result<Revision, Error> {
        let mut snapshot = Snapshot::clone(&self.snapshot());
        let current = snapshot.applications.get(application).cloned();
        let key = record::application_key(application);
        let expect = current
            .as_ref()
            .map_or(Expect::Absent, |current| Expect::At(current.revision));
        let next = Application::of(record.clone(), Revision(0), |function, number| {
            let known = current
                .as_ref()
                .and_then(|current| current.functions.get(function)?.versions.get(&number));
            let found = known.or_else(|| new.get(&(function.clone(), number)));
            found
                .cloned()
                .ok_or_else(|| missing_version(&key, function, number))
        })?;
        let revision = if record.functions.is_empty() {
            let deleted = self.store.delete(&key, expect).map_err(|error| match error {
                StoreError::Conflict { .. } => Error::Conflict(application.clone()),
                error => error.into(),
            })?;
            snapshot.applications.remove(application);
            deleted
        } else {
            let revision = self.write(application, &key, &record, expect)?;
            snapshot
                .applications
                .insert(application.clone(), Arc::new(Application { revision, ..next }));
            revision
        };
        let snapshot = Arc::new(snapshot);
        *self.published.write() = Arc::clone(&snapshot);
        for subscriber in subscribers {
            subscriber(&snapshot);
        }
        self.forget(application, current.as_deref(), &record);
        Ok(revision)
    }

    /// Deletes the records of versions that are no more, and what compilers kept of functions that are no more. What fails here, the next start collects.
    fn forget(&self, application: &ApplicationId, before: Option<&Application>, after: &ApplicationRecord) {
        let mut any = false;
        for (name, function) in before.iter().flat_map(|before| &before.functions) {
            let kept = after.functions.get(name).map(|function| &function.versions);
            let id = FunctionId {
                application: application.clone(),
                function: name.clone(),
            };
            if kept.is_none()
                && let Err(error) = self.images.forget(&id)
            {
                tracing::warn!(%error, function = %id, "cannot delete the compiled code of a function");
            }
            for number in function
                .versions
                .keys()
                .filter(|number| kept.is_none_or(|kept| !kept.contains(number)))
            {
                any = true;
                let version = record::version_key(application, name, *number);
                let usage = record::usage_key(application, name, *number);
                for key in [version, usage] {
                    if let Err(error) = self.store.delete(&key, Expect::Any) {
                        tracing::warn!(%error, "cannot delete an old version");
                    }
                }
            }
        }
        if any {
            let snapshot = self.snapshot();
            let versions = functions(&snapshot).flat_map(|(_, _, function)| function.versions.values());
            let used: BTreeSet<_> = versions.map(|version| version.code).collect();
            self.images.collect_code(&|digest| used.contains(&digest));
        }
    }

    /// Changes an application that is deployed.
    fn change(
        &self,
        application: &ApplicationId,
        edit: impl FnOnce(&Snapshot, &mut ApplicationRecord) -> Result<(), Error>,
    ) -> Result<Revision, Error> {
        let subscribers = self.changing.lock();
        let snapshot = self.snapshot();
        let current = snapshot.application(application)?;
        let before = current.record();
        let mut record = before.clone();
        edit(&snapshot, &mut record)?;
        if record == before {
            return Ok(current.revision);
        }
        self.publish(&subscribers, application, record, &HashMap::new())
    }

    /// Points the alias at a version, whose image is made ready first. Returns the function, and the version that the
    /// alias named before.
    pub fn set_alias(
        &self,
        reference: &FunctionRef,
        alias: &Name,
        number: VersionNumber,
    ) -> Result<(FunctionId, Option<VersionNumber>), Error> {
        let id = self.whole_function(reference)?;
        let version = Qualifier::Version(number);
        let exact = FunctionRef {
            qualifier: Some(version.clone()),
            ..FunctionRef::from(&id)
        };
        self.snapshot().version(&exact)?.image()?;
        let mut before = None;
        self.change(&id.application, |snapshot, record| {
            let (id, function) = snapshot.function(&exact)?;
            let target = function
                .version(Some(&version))
                .ok_or_else(|| unknown_version(id.clone(), function, Some(version)))?;
            // It may have been set aside between the two looks; as a rule this has been done already.
            target.image()?;
            if let Some(record) = record.functions.get_mut(&id.function) {
                before = record.aliases.insert(alias.clone(), number);
            }
            Ok(())
        })?;
        Ok((id, before))
    }

    /// Points `live` at an earlier version: `to`, or the one with the next lower number. Returns the function, the
    /// version that was live and the one that is.
    pub fn rollback(
        &self,
        reference: &FunctionRef,
        to: Option<VersionNumber>,
    ) -> Result<(FunctionId, VersionNumber, VersionNumber), Error> {
        let id = self.whole_function(reference)?;
        let snapshot = self.snapshot();
        let (_, function) = snapshot.function(reference)?;
        let live = function
            .live()
            .ok_or_else(|| unknown_version(id.clone(), function, None))?
            .number;
        let earlier = || {
            function
                .versions
                .range(..live)
                .next_back()
                .map(|(number, _)| *number)
        };
        let Some(to) = to.or_else(earlier) else {
            return Err(Error::NoEarlierVersion { function: id, live });
        };
        let (id, before) = self.set_alias(reference, &LIVE, to)?;
        Ok((id, before.unwrap_or(live), to))
    }

    /// Deletes an alias; returns the version that it named.
    pub fn delete_alias(&self, reference: &FunctionRef, alias: &Name) -> Result<VersionNumber, Error> {
        let id = self.whole_function(reference)?;
        if *alias == *LIVE {
            return Err(Error::LiveAlias(id));
        }
        let mut before = None;
        self.change(&id.application, |_, record| {
            before = record
                .functions
                .get_mut(&id.function)
                .and_then(|function| function.aliases.remove(alias));
            Ok(())
        })?;
        let snapshot = self.snapshot();
        let (id, function) = snapshot.function(reference)?;
        before.ok_or_else(|| unknown_version(id, function, Some(Qualifier::Alias(alias.clone()))))
    }

    /// Deletes a function with all its versions, aliases and routes, and its application with the last one.
    pub fn delete_function(&self, reference: &FunctionRef) -> Result<FunctionId, Error> {
        let id = self.whole_function(reference)?;
        self.change(&id.application, |_, record| {
            record.functions.remove(&id.function);
            record.triggers.retain(|trigger| trigger.function != id.function);
            record.schedules.retain(|trigger| trigger.function != id.function);
            record
                .subscriptions
                .retain(|trigger| trigger.function != id.function);
            record.objects.retain(|trigger| trigger.function != id.function);
            Ok(())
        })?;
        Ok(id)
    }

    /// Deletes an application with all that it has.
    pub fn delete_application(&self, application: &ApplicationId) -> Result<(), Error> {
        let none = ApplicationRecord {
            functions: BTreeMap::new(),
            triggers: Vec::new(),
            schedules: Vec::new(),
            subscriptions: Vec::new(),
            objects: Vec::new(),
        };
        self.change(application, |_, record| {
            *record = none;
            Ok(())
        })
        .map(drop)
    }

    fn whole_function(&self, reference: &FunctionRef) -> Result<FunctionId, Error> {
        if reference.qualifier.is_some() {
            return Err(Error::Unqualified(reference.clone()));
        }
        self.snapshot().function(reference).map(|(id, _)| id)
    }

    /// Takes up what cores recorded since the last time, and writes one history that has not been written for longest: however
    /// much happens, that is one small write for each call. To be called every second or so.
    pub fn learn(&self) -> Result<(), Error> {
        self.write_histories(false, 1, Duration::MAX)
    }

    /// The same before the node ends: writes all that have changed, as far as that takes no longer than `time`.
    pub fn learn_last(&self, time: Duration) -> Result<(), Error> {
        self.write_histories(true, usize::MAX, time)
    }

    fn write_histories(&self, at_once: bool, most: usize, time: Duration) -> Result<(), Error> {
        let (snapshot, now, begun) = (self.snapshot(), milliseconds_since_1970(), Instant::now());
        let mut due = Vec::new();
        for (application, name, function) in functions(&snapshot) {
            for version in function.versions.values() {
                version.usage.learn(now);
                if let Some(image) = version.loaded() {
                    image.expect(&version.grant, version.usage.demand(now));
                }
                if function.is_aliased(version.number) {
                    self.ladder.consider(version);
                }
                if let Some(written) = version.usage.due(now, at_once) {
                    due.push((written, application, name, version));
                }
            }
        }
        due.sort_by_key(|(written, ..)| *written);
        for (_, application, name, version) in due.into_iter().take(most) {
            if begun.elapsed() >= time {
                break;
            }
            let key = record::usage_key(application, name, version.number);
            let record = record::write(&key, &version.usage.to_write(now))?;
            // Nothing is deleted meanwhile, whose history this would leave behind.
            let _changing = self.changing.lock();
            let current = self.snapshot();
            let function = current
                .applications
                .get(application)
                .and_then(|a| a.functions.get(name));
            if function.is_some_and(|function| function.versions.contains_key(&version.number)) {
                self.store.put(&key, &record, Expect::Any)?;
            }
        }
        Ok(())
    }

    /// Removes what crashes and deletions left behind: drafts, records of versions that no application has, and, once
    /// they are old enough, code and artefacts that no version uses. Called at start; may be called at any time.
    pub fn collect(&self) -> Result<(), Error> {
        let _changing = self.changing.lock();
        let snapshot = self.snapshot();
        let (mut keys, mut histories) = (BTreeSet::new(), BTreeSet::new());
        let mut used = BTreeMap::new();
        for (application, name, function) in functions(&snapshot) {
            for number in function.versions.keys() {
                keys.insert(record::version_key(application, name, *number));
                histories.insert(record::usage_key(application, name, *number));
            }
            let id = FunctionId {
                application: application.clone(),
                function: name.clone(),
            };
            // The code itself, and what it is compiled to.
            let versions = function.versions.values();
            let digests = versions.flat_map(|version| [version.code, version.source().identity()]);
            used.insert(id, digests.collect());
        }
        for (prefix, kept) in [(VERSIONS, keys), (USAGE, histories)] {
            for entry in self.store.list(prefix)? {
                if !kept.contains(&entry.key) {
                    self.store.delete(&entry.key, Expect::At(entry.revision))?;
                }
            }
        }
        self.images.collect(self.options.litter, &used)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(loader) = self.loader.take() {
            // A loader that panicked has said so already.
            let _ = loader.join();
        }
    }
}

fn functions(snapshot: &Snapshot) -> impl Iterator<Item = (&ApplicationId, &Name, &crate::Function)> {
    snapshot.applications.iter().flat_map(|(application, found)| {
        found
            .functions
            .iter()
            .map(move |(name, function)| (application, name, function))
    })
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

pub(crate) fn milliseconds_since_1970() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

fn missing_version(key: &str, function: &Name, number: VersionNumber) -> Error {
    Error::Record {
        key: key.to_owned(),
        reason: format!("version {number} of `{function}` has no record"),
    }
}

/// How many cores there are that record.
fn cores(options: &Options) -> usize {
    options.metrics.as_ref().map_or(0, |metrics| metrics.cores())
}

fn read_all(store: &dyn Store, images: &Arc<Images>, options: &Options) -> Result<Snapshot, Error> {
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
fn load_all(snapshot: &Snapshot, stop: &AtomicBool) {
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
