//! What is deployed, at one moment.

use crate::{
    Error, History, LIVE, Permits, Settings, Usage,
    images::{Images, LoadError, Ready, Source},
    record::{ApplicationRecord, FunctionRecord, VersionRecord},
    registry::milliseconds_since_1970,
    tiers::{AUTO, Better, Next, NextState, Tier},
};
use contract::{
    ApplicationId, Digest, FunctionId, FunctionRef, Grant, Image, Name, Qualifier, Revision, VersionNumber,
};
use manifest::{CloudEventsTrigger, HttpTrigger, ObjectTrigger, ScheduleTrigger};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::{Duration, Instant, SystemTime},
};

/// How long a failure to make an image is remembered: a compiler must not run for every request.
const FAILURE: Duration = Duration::from_secs(10);

/// Everything that is deployed. It does not change; the registry publishes another one.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By name.
    pub applications: BTreeMap<ApplicationId, Arc<Application>>,
}

/// An application.
#[derive(Clone, Debug)]
pub struct Application {
    /// Of its last change.
    pub revision: Revision,
    /// By name.
    pub functions: BTreeMap<Name, Function>,
    /// Its routes. Each names a function of this application, and means its live version.
    pub triggers: Vec<HttpTrigger>,
    /// Its schedules, in the same way.
    pub schedules: Vec<ScheduleTrigger>,
    /// The events that it wants, in the same way.
    pub subscriptions: Vec<CloudEventsTrigger>,
    /// The new objects that it wants, in the same way.
    pub objects: Vec<ObjectTrigger>,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Which version each alias names. [`LIVE`] is among them.
    pub aliases: BTreeMap<Name, VersionNumber>,
    /// The versions that are kept.
    pub versions: BTreeMap<VersionNumber, Arc<Version>>,
}

/// One version of a function. It does not change.
pub struct Version {
    /// The function.
    pub function: FunctionId,
    /// Its number.
    pub number: VersionNumber,
    /// What its sandboxes may use.
    pub grant: Arc<Grant>,
    /// How it runs.
    pub settings: Settings,
    /// Its code.
    pub code: Digest,
    /// The code's length in bytes.
    pub code_size: u64,
    /// When it was deployed.
    pub created: SystemTime,
    /// What its requests used.
    pub usage: Arc<Usage>,
    images: Arc<Images>,
    ready: OnceLock<Ready>,
    better: Better,
    failure: Mutex<Option<(Instant, String)>>,
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.function, self.number)
    }
}

impl Version {
    pub(crate) fn new(
        function: FunctionId,
        number: VersionNumber,
        record: VersionRecord,
        images: Arc<Images>,
        usage: Usage,
        permits: &Permits,
    ) -> Self {
        let mut grant = record.settings.grant(&function, number);
        for beyond in permits.withhold(&mut grant) {
            // It was deployed under another configuration.
            tracing::warn!(
                %function,
                version = %number,
                withheld = %beyond,
                permitted = beyond.permitted,
                "a function goes without what its manifest grants: its tenant is not permitted that any more"
            );
        }
        Self {
            grant: Arc::new(grant),
            function,
            number,
            settings: record.settings,
            code: record.code,
            code_size: record.code_size,
            created: SystemTime::UNIX_EPOCH + Duration::from_millis(record.created),
            usage: Arc::new(usage),
            images,
            ready: OnceLock::new(),
            better: Better::default(),
            failure: Mutex::new(None),
        }
    }

    pub(crate) fn with_image(self, ready: Ready) -> Self {
        Self {
            ready: ready.into(),
            ..self
        }
    }

    /// The same version without its image, whose memory goes when the last request that has it ends.
    pub(crate) fn unloaded(&self) -> Self {
        Self {
            function: self.function.clone(),
            number: self.number,
            grant: Arc::clone(&self.grant),
            settings: self.settings.clone(),
            code: self.code,
            code_size: self.code_size,
            created: self.created,
            usage: Arc::clone(&self.usage),
            images: Arc::clone(&self.images),
            ready: OnceLock::new(),
            better: Better::default(),
            failure: Mutex::new(None),
        }
    }

    pub(crate) fn forget_failure(&self) {
        *self.failure.lock() = None;
    }

    /// What its requests used, until now.
    pub fn history(&self) -> History {
        self.usage.history(milliseconds_since_1970())
    }

    fn best(&self) -> Option<&Ready> {
        self.better.ready().or_else(|| self.ready.get())
    }

    /// Its image, if it is ready: never blocks.
    pub fn loaded(&self) -> Option<&Arc<dyn Image>> {
        self.best().map(|ready| &ready.image)
    }

    /// Calls `listener` once another image has taken over.
    pub fn when_better(&self, listener: impl FnOnce(Arc<dyn Image>) + Send + 'static) {
        self.better.listen(Box::new(listener));
    }

    /// What it runs on.
    pub fn tier(&self) -> Tier {
        let engine = self.best().map(|ready| ready.engine);
        let tiers = self.images.tiers;
        let next = tiers
            .then
            .filter(|_| self.settings.engine == AUTO && engine.is_none_or(|engine| engine == tiers.first))
            .map(|then| Next {
                engine: then,
                state: self.better.state().unwrap_or(NextState::After(tiers.after)),
            });
        let image = self.loaded();
        Tier {
            engine,
            origin: image.and_then(|image| image.origin(&self.grant)),
            kept: image.and_then(|image| image.kept(&self.grant)),
            next,
        }
    }

    /// What it is compiled from.
    pub(crate) fn source(&self) -> Source {
        Source::new(self.code, &self.settings.protocol)
    }

    pub(crate) fn better(&self) -> &Better {
        &self.better
    }

    /// Whether it has run for so long that another engine should take over.
    pub(crate) fn is_worth_more(&self) -> bool {
        let tiers = self.images.tiers;
        self.settings.engine == AUTO
            && tiers.then.is_some()
            && self.best().is_some_and(|ready| ready.engine == tiers.first)
            && self.usage.ran() >= tiers.after
    }

    pub(crate) fn load_better(&self, stop: &AtomicBool) -> Result<Ready, LoadError> {
        let then = self.images.tiers.then.unwrap_or(AUTO);
        self.images.load_behind(then, &self.function, self.source(), stop)
    }

    /// Its image, made ready by the first caller while others wait: may block for seconds. A failure is remembered for
    /// a while.
    pub fn image(&self) -> Result<&Arc<dyn Image>, Error> {
        if let Some(image) = self.loaded() {
            return Ok(image);
        }
        let unavailable = |reason: String| Error::ImageUnavailable {
            function: self.function.clone(),
            version: self.number,
            reason,
        };
        let mut failure = self.failure.lock();
        if let Some((at, reason)) = &*failure
            && at.elapsed() < FAILURE
        {
            return Err(unavailable(reason.clone()));
        }
        if let Some(image) = self.loaded() {
            return Ok(image);
        }
        let loaded = self
            .images
            .load(&self.settings.engine, &self.function, self.source())
            .map_err(|error| match error {
                LoadError::Refused(error) => error.to_string(),
                LoadError::Failed(error) => error.to_string(),
            });
        let kept = loaded.and_then(|ready| {
            let kept = ready.image.keeps(&self.settings.limits, &self.settings.protocol);
            kept.map(|()| ready)
        });
        match kept {
            Ok(ready) => Ok(&self.ready.get_or_init(|| ready).image),
            Err(reason) => {
                *failure = Some((Instant::now(), reason.clone()));
                Err(unavailable(reason))
            }
        }
    }
}

impl Function {
    /// The version that routes and unqualified references mean.
    pub fn live(&self) -> Option<&Arc<Version>> {
        self.versions.get(self.aliases.get(&*LIVE)?)
    }

    /// The version that is meant.
    pub fn version(&self, qualifier: Option<&Qualifier>) -> Option<&Arc<Version>> {
        match qualifier {
            None => self.live(),
            Some(Qualifier::Version(number)) => self.versions.get(number),
            Some(Qualifier::Alias(alias)) => self.versions.get(self.aliases.get(alias)?),
        }
    }

    /// Whether an alias names this version.
    pub fn is_aliased(&self, number: VersionNumber) -> bool {
        self.aliases.values().any(|version| *version == number)
    }
}

impl Application {
    pub(crate) fn record(&self) -> ApplicationRecord {
        let function = |function: &Function| FunctionRecord {
            aliases: function.aliases.clone(),
            versions: function.versions.keys().copied().collect(),
        };
        ApplicationRecord {
            functions: self
                .functions
                .iter()
                .map(|(name, f)| (name.clone(), function(f)))
                .collect(),
            triggers: self.triggers.clone(),
            schedules: self.schedules.clone(),
            subscriptions: self.subscriptions.clone(),
            objects: self.objects.clone(),
        }
    }

    /// Builds what a record says out of versions that `find` has. An image stays with a version only while an alias
    /// names it.
    pub(crate) fn of(
        record: ApplicationRecord,
        revision: Revision,
        mut find: impl FnMut(&Name, VersionNumber) -> Result<Arc<Version>, Error>,
    ) -> Result<Self, Error> {
        let mut functions = BTreeMap::new();
        for (
            name,
            FunctionRecord {
                aliases,
                versions: numbers,
            },
        ) in record.functions
        {
            let mut versions = BTreeMap::new();
            for number in numbers {
                let version = find(&name, number)?;
                let idle = version.loaded().is_some() && !aliases.values().any(|named| *named == number);
                versions.insert(
                    number,
                    if idle {
                        Arc::new(version.unloaded())
                    } else {
                        version
                    },
                );
            }
            functions.insert(name, Function { aliases, versions });
        }
        Ok(Self {
            revision,
            functions,
            triggers: record.triggers,
            schedules: record.schedules,
            subscriptions: record.subscriptions,
            objects: record.objects,
        })
    }
}

impl Snapshot {
    /// The application of this name.
    pub fn application(&self, name: &ApplicationId) -> Result<&Arc<Application>, Error> {
        self.applications
            .get(name)
            .ok_or_else(|| Error::UnknownApplication(name.clone()))
    }

    /// The applications of a tenant, or with `None` those of the node's own.
    pub fn of_tenant(
        &self,
        tenant: Option<&Name>,
    ) -> impl Iterator<Item = (&ApplicationId, &Arc<Application>)> {
        self.applications
            .iter()
            .filter(move |(id, _)| id.tenant.as_ref() == tenant)
    }

    /// The function that is meant, whatever the qualifier.
    pub fn function(&self, reference: &FunctionRef) -> Result<(FunctionId, &Function), Error> {
        let unknown = || {
            let whole = FunctionRef {
                qualifier: None,
                ..reference.clone()
            };
            Error::UnknownFunction(whole)
        };
        let in_application =
            |(application, found): (&ApplicationId, &Arc<Application>)| -> Option<FunctionId> {
                found
                    .functions
                    .contains_key(&reference.function)
                    .then(|| FunctionId {
                        application: application.clone(),
                        function: reference.function.clone(),
                    })
            };
        let mut found: Vec<FunctionId> = match &reference.application {
            Some(name) => self
                .applications
                .get_key_value(&ApplicationId {
                    tenant: reference.tenant.clone(),
                    name: name.clone(),
                })
                .and_then(in_application)
                .into_iter()
                .collect(),
            None => self
                .of_tenant(reference.tenant.as_ref())
                .filter_map(in_application)
                .collect(),
        };
        if found.len() > 1 {
            return Err(Error::AmbiguousFunction {
                function: reference.function.clone(),
                candidates: found,
            });
        }
        let id = found.pop().ok_or_else(unknown)?;
        let function = self
            .applications
            .get(&id.application)
            .and_then(|found| found.functions.get(&id.function));
        function.map(|function| (id, function)).ok_or_else(unknown)
    }

    /// The version that is meant; without a qualifier the live one.
    pub fn version(&self, reference: &FunctionRef) -> Result<&Arc<Version>, Error> {
        let (id, function) = self.function(reference)?;
        function
            .version(reference.qualifier.as_ref())
            .ok_or_else(|| unknown_version(id, function, reference.qualifier.clone()))
    }
}

pub(crate) fn unknown_version(id: FunctionId, function: &Function, qualifier: Option<Qualifier>) -> Error {
    Error::UnknownVersion {
        function: id,
        qualifier: qualifier.unwrap_or_else(|| Qualifier::Alias(LIVE.clone())),
        versions: function.versions.keys().copied().collect(),
    }
}
