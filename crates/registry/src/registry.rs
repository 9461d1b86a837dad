mod changes;
mod deployment;
mod start;

pub(crate) use deployment::application_of;

use crate::{
    Application, Error, Permits, Snapshot, Stored, Usage, Version,
    disk::{self, CodeFiles},
    images::Images,
    record::{self, ApplicationRecord, USAGE, VERSIONS},
    tiers::{Ladder, Tiers},
};
use contract::{
    ApplicationId, ByteSize, Digest, Engine, Expect, FunctionId, Name, Revision, S3Grant, Store, StoreError,
    VersionNumber,
};
use parking_lot::{Mutex, RwLock};
use start::{load_all, read_all};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    io::Read,
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
