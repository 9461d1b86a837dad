//! From code to images, by way of artefacts: compiled code that is kept by content.
//!
//! The compiler leaves pieces of a large module for the next version of the same function. They decide what is compiled
//! then, so a function that got hold of its compiler decides it for all its later versions, whatever their code is. It
//! must not do so for others: what was compiled with pieces is not found by another function that has the same code.

use crate::{
    Error, crash,
    disk::{CodeFiles, Files, Verified, digest_of, make_folder, remove, remove_folder},
    record::{self, ARTEFACTS, ArtefactRecord},
    tiers::{AUTO, Tiers},
};
use contract::{
    Artefact, Code, CodeKind, Digest, Engine, Expect, FunctionId, Image, PrepareError, Protocol, Store,
};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};
use telemetry::metrics::{ImagePhase, Metrics};

/// Why code did not become an image.
pub(crate) enum LoadError {
    /// The engine does not take it.
    Refused(PrepareError),
    /// The node failed.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for LoadError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Smaller code compiles in less than a second: no pieces are kept of it.
pub(crate) const WORTH_KEEPING: usize = 1 << 20;

/// In the folder of a function.
const PIECES: &str = "pieces";

/// One engine's artefacts and pieces, by the [`Source::identity`] of what they were compiled from.
struct Kept {
    engine: Arc<dyn Engine>,
    /// Short for [`Engine::fingerprint`], fit for a file's name.
    fingerprint: String,
    files: Files,
    /// Has a folder for each function that has pieces.
    functions: PathBuf,
}

/// Where an artefact is.
struct Place {
    files: Files,
    key: String,
}

impl Kept {
    /// What was compiled from the code alone is the same for all.
    fn shared(&self, code: Digest) -> Place {
        Place {
            files: self.files.clone(),
            key: record::artefact_key(self.engine.name(), &self.fingerprint, code),
        }
    }

    /// What was compiled with a function's pieces.
    fn own(&self, function: &FunctionId, code: Digest) -> Place {
        Place {
            files: Files::at(self.folder(function), ""),
            key: format!("{}{code}", self.own_artefacts(function)),
        }
    }

    fn folder(&self, function: &FunctionId) -> PathBuf {
        self.functions.join(function.file_name())
    }

    fn own_artefacts(&self, function: &FunctionId) -> String {
        record::own_artefacts(self.engine.name(), &self.fingerprint, function)
    }

    /// Whether a record's file is there.
    fn knows(&self, key: &str) -> bool {
        let all = record::artefacts(self.engine.name(), &self.fingerprint);
        let Some(rest) = key.strip_prefix(&all) else {
            return false;
        };
        let (function, code) = rest.rsplit_once('/').unwrap_or(("", rest));
        let Ok(code) = code.parse() else { return false };
        match function {
            "" => self.files.contains(code),
            function => function
                .parse()
                .is_ok_and(|function| self.own(&function, code).files.contains(code)),
        }
    }
}

/// A version's code, ready to run.
#[derive(Clone)]
pub(crate) struct Ready {
    pub(crate) image: Arc<dyn Image>,
    /// What it runs on.
    pub(crate) engine: &'static str,
}

/// Code, and what it is compiled as.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    code: Digest,
    kind: CodeKind,
}

impl Source {
    pub(crate) fn new(code: Digest, protocol: &Protocol) -> Self {
        let kind = match protocol {
            Protocol::Pure { .. } => CodeKind::PureWasm,
            Protocol::Raw { .. } | Protocol::Cgi | Protocol::Lambda { .. } => CodeKind::Wasm,
        };
        Self { code, kind }
    }

    /// By what its artefacts are known: the code's digest, or one of its own for each other kind.
    pub(crate) fn identity(self) -> Digest {
        let kind = match self.kind {
            CodeKind::PureWasm => "pure",
            _ => return self.code,
        };
        Digest(Sha256::digest(format!("{kind} {}", self.code)).into())
    }
}

/// Where images come from.
pub(crate) struct Images {
    store: Arc<dyn Store>,
    pub(crate) code: CodeFiles,
    kept: Vec<Kept>,
    pub(crate) tiers: Tiers,
    metrics: Option<Arc<Metrics>>,
    /// A compiler takes all cores and much memory: one at a time, but for one in the background,
    compiling: Mutex<()>,
    /// which waits for nobody.
    background: Mutex<()>,
}

impl Images {
    pub(crate) fn open(
        store: Arc<dyn Store>,
        data: &Path,
        engines: Vec<Arc<dyn Engine>>,
        tiers: Tiers,
        metrics: Option<Arc<Metrics>>,
    ) -> Result<Self, Error> {
        let kept = engines.into_iter().map(|engine| {
            let digest = digest_of(&mut engine.fingerprint().as_bytes());
            let fingerprint = digest.map(|digest| digest.to_string()[..16].to_owned());
            let fingerprint =
                fingerprint.map_err(crate::disk::failed("read the fingerprint of an engine for", data))?;
            let folder = format!("{}-{fingerprint}", engine.name());
            let files = Files::open(data.join("artefacts").join(&folder), "")?;
            let functions = data.join("pieces").join(folder);
            make_folder(&functions)?;
            Ok(Kept {
                engine,
                fingerprint,
                files,
                functions,
            })
        });
        let kept = kept.collect::<Result<_, Error>>()?;
        Ok(Self {
            store,
            code: CodeFiles::open(data)?,
            kept,
            tiers,
            metrics,
            compiling: Mutex::new(()),
            background: Mutex::new(()),
        })
    }

    pub(crate) fn engines(&self) -> Vec<Arc<dyn Engine>> {
        self.kept.iter().map(|kept| Arc::clone(&kept.engine)).collect()
    }

    fn kept(&self, engine: &str) -> Result<&Kept, LoadError> {
        let kept = self.kept.iter().find(|kept| kept.engine.name() == engine);
        kept.ok_or_else(|| {
            LoadError::Refused(PrepareError::Unsupported(format!(
                "this node has no engine `{engine}`"
            )))
        })
    }

    /// Maps the artefact of some code of a function, compiling it first if there is none or if it is not what it was. Where the
    /// node chooses, what takes over is taken if it has been compiled before.
    pub(crate) fn load(
        &self,
        engine: &str,
        function: &FunctionId,
        source: Source,
    ) -> Result<Ready, LoadError> {
        let source = Source {
            // An executable is the same for all protocols, and so is a package.
            kind: match self.code.kind(source.code) {
                kind @ (CodeKind::Native | CodeKind::Python) => kind,
                _ => source.kind,
            },
            ..source
        };
        match (engine, source.kind) {
            (AUTO, CodeKind::Native | CodeKind::Python) => {
                return self.load_on(self.tiers.native, function, source, None);
            }
            (AUTO, _) => {}
            (named, _) => return self.load_on(named, function, source, None),
        }
        if let Some(then) = self.tiers.then
            && let Ok(kept) = self.kept(then)
            && let Ok(Some(image)) = self.find(kept, function, source.identity())
        {
            return Ok(Ready { image, engine: then });
        }
        self.load_on(self.tiers.first, function, source, None)
    }

    /// The image of the engine that takes over, compiled behind everything else. Once `stop` is set, it may fail at once.
    pub(crate) fn load_behind(
        &self,
        engine: &str,
        function: &FunctionId,
        source: Source,
        stop: &AtomicBool,
    ) -> Result<Ready, LoadError> {
        self.load_on(engine, function, source, Some(stop))
    }

    /// The image of code that has been compiled, for all or for this function.
    fn find(
        &self,
        kept: &Kept,
        function: &FunctionId,
        code: Digest,
    ) -> Result<Option<Arc<dyn Image>>, LoadError> {
        match self.load_kept(kept, &kept.shared(code), code)? {
            Some(image) => Ok(Some(image)),
            None => self.load_kept(kept, &kept.own(function, code), code),
        }
    }

    fn load_on(
        &self,
        engine: &str,
        function: &FunctionId,
        source: Source,
        background: Option<&AtomicBool>,
    ) -> Result<Ready, LoadError> {
        let kept = self.kept(engine)?;
        let identity = source.identity();
        let ready = |image| Ready {
            image,
            engine: kept.engine.name(),
        };
        if let Some(image) = self.find(kept, function, identity)? {
            return Ok(ready(image));
        }
        let _one_at_a_time = match background {
            None => self.compiling.lock(),
            Some(_) => self.background.lock(),
        };
        // Somebody may have compiled it meanwhile.
        if let Some(image) = self.find(kept, function, identity)? {
            return Ok(ready(image));
        }
        let (shared, own) = (kept.shared(identity), kept.own(function, identity));
        let bytes = self.code.read(source.code)?;
        let pieces = match bytes.len() {
            ..WORTH_KEEPING => None,
            _ => {
                make_folder(own.files.folder())?;
                Some(own.files.folder().join(PIECES))
            }
        };
        let place = match &pieces {
            Some(pieces) if pieces.exists() => own,
            _ => shared,
        };
        let started = Instant::now();
        let code_bytes = Code {
            kind: source.kind,
            bytes: &bytes,
            pieces: pieces.as_deref(),
            background,
        };
        let compiled = tracing::info_span!("compile", %function, engine)
            .in_scope(|| compile(&*kept.engine, &code_bytes))
            .map_err(LoadError::Refused)?;
        self.measure(ImagePhase::Compile, started);
        drop(bytes);
        self.keep(&place, identity, &compiled)?;
        drop(compiled);
        match self.load_kept(kept, &place, identity)? {
            Some(image) => Ok(ready(image)),
            None => Err(LoadError::Refused(PrepareError::Artefact(
                "the engine does not take what it compiled".to_owned(),
            ))),
        }
    }

    /// `None` if there is no artefact that matches its record and that the engine takes.
    fn load_kept(
        &self,
        kept: &Kept,
        place: &Place,
        code: Digest,
    ) -> Result<Option<Arc<dyn Image>>, LoadError> {
        let Some(entry) = self.store.get(&place.key)? else {
            return Ok(None);
        };
        let path = place.files.path(code);
        // A record that cannot be read is as good as none: the artefact is made anew.
        let Ok(record) = record::read::<ArtefactRecord>(&entry) else {
            return Ok(None);
        };
        let started = Instant::now();
        let reason = match place.files.open_verified(code, record.digest)? {
            Verified::Good(file) => match kept.engine.load(Artefact {
                file,
                digest: record.digest,
            }) {
                Ok(image) => {
                    self.measure(ImagePhase::Load, started);
                    return Ok(Some(image));
                }
                Err(PrepareError::Artefact(reason)) => reason,
                Err(error) => return Err(LoadError::Refused(error)),
            },
            Verified::Damaged(actual) => format!("its SHA-256 is {actual}, not {}", record.digest),
            Verified::Absent => "it is gone".to_owned(),
        };
        tracing::warn!(path = %path.display(), reason, "this compiled code is not usable, and is compiled anew");
        remove(&path)?;
        self.store.delete(&place.key, Expect::Any)?;
        Ok(None)
    }

    fn measure(&self, phase: ImagePhase, started: Instant) {
        if let Some(metrics) = &self.metrics {
            metrics.image(phase, started.elapsed());
        }
    }

    /// The file first: a record always speaks of a file that was whole.
    fn keep(&self, place: &Place, code: Digest, compiled: &[u8]) -> Result<(), LoadError> {
        crash::point();
        let digest =
            digest_of(&mut &*compiled).map_err(crate::disk::failed("hash", &place.files.path(code)))?;
        // A function's own may have gone with it meanwhile.
        make_folder(place.files.folder())?;
        place.files.write(code, compiled)?;
        self.store.put(
            &place.key,
            &record::write(&place.key, &ArtefactRecord { digest })?,
            Expect::Any,
        )?;
        Ok(())
    }

    /// Removes the pieces of a function that is no more, and what was compiled with them.
    pub(crate) fn forget(&self, function: &FunctionId) -> Result<(), Error> {
        for kept in &self.kept {
            remove_folder(&kept.folder(function));
            for entry in self.store.list(&kept.own_artefacts(function))? {
                self.store.delete(&entry.key, Expect::Any)?;
            }
        }
        Ok(())
    }

    /// Has engines give up what they keep on disk for code that no version uses.
    pub(crate) fn collect_code(&self, used: &dyn Fn(Digest) -> bool) {
        for kept in &self.kept {
            kept.engine.collect(used);
        }
    }

    /// Removes what no version uses: artefacts of other fingerprints and pieces of other functions at once, code and
    /// artefacts once they are older than `age`.
    pub(crate) fn collect(
        &self,
        age: Duration,
        used: &BTreeMap<FunctionId, BTreeSet<Digest>>,
    ) -> Result<(), Error> {
        let all: BTreeSet<_> = used.values().flatten().collect();
        let wanted = |digest| all.contains(&digest);
        self.code.collect(age, &wanted);
        for kept in &self.kept {
            kept.files.collect(age, &wanted);
            // Nobody writes there meanwhile.
            let _compiling = (self.compiling.lock(), self.background.lock());
            for entry in fs::read_dir(&kept.functions).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let function = name
                    .to_str()
                    .and_then(|name| FunctionId::from_file_name(name).ok());
                match function.and_then(|function| used.get(&function)) {
                    Some(code) => Files::at(entry.path(), "").collect(age, &|digest| code.contains(&digest)),
                    None => remove_folder(&entry.path()),
                }
            }
        }
        self.collect_folders();
        self.collect_code(&wanted);
        for entry in self.store.list(ARTEFACTS)? {
            if !self.kept.iter().any(|kept| kept.knows(&entry.key)) {
                self.store.delete(&entry.key, Expect::At(entry.revision))?;
            }
        }
        Ok(())
    }

    /// Folders of engines, or of versions of engines, that this node no longer has.
    fn collect_folders(&self) {
        let folders = || {
            let of = |kept: &'_ Kept| [kept.files.folder().to_owned(), kept.functions.clone()];
            self.kept.iter().flat_map(of)
        };
        let parents: BTreeSet<_> = folders()
            .filter_map(|folder| Some(folder.parent()?.to_owned()))
            .collect();
        for entry in parents
            .iter()
            .filter_map(|parent| fs::read_dir(parent).ok())
            .flatten()
            .flatten()
        {
            let path = entry.path();
            if folders().all(|folder| folder != path) {
                remove_folder(&path);
            }
        }
    }
}

/// A compiler that panics on some code has a fault of its own, which must not become the node's.
fn compile(engine: &dyn Engine, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
    catch_unwind(AssertUnwindSafe(|| engine.compile(code))).unwrap_or_else(|_| {
        Err(PrepareError::Compiler(
            "it panicked; see the node's log".to_owned(),
        ))
    })
}
