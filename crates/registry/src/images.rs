//! From code to images, by way of artefacts: compiled code that is kept by content.

use crate::{
    Error, crash,
    disk::{CodeFiles, Files, Verified, digest_of, remove},
    record::{self, ARTEFACTS, ArtefactRecord},
};
use contract::{Artefact, Code, CodeKind, Digest, Engine, Expect, Image, PrepareError, Store};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
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

/// One engine's artefacts.
struct Kept {
    engine: Arc<dyn Engine>,
    /// Short for [`Engine::fingerprint`], fit for a file's name.
    fingerprint: String,
    files: Files,
}

impl Kept {
    fn key(&self, code: Digest) -> String {
        record::artefact_key(self.engine.name(), &self.fingerprint, code)
    }
}

/// Where images come from.
pub(crate) struct Images {
    store: Arc<dyn Store>,
    pub(crate) code: CodeFiles,
    kept: Vec<Kept>,
    metrics: Option<Arc<Metrics>>,
    /// A compiler takes all cores and much memory: one at a time.
    compiling: Mutex<()>,
}

impl Images {
    pub(crate) fn open(
        store: Arc<dyn Store>,
        data: &Path,
        engines: Vec<Arc<dyn Engine>>,
        metrics: Option<Arc<Metrics>>,
    ) -> Result<Self, Error> {
        let kept = engines.into_iter().map(|engine| {
            let digest = digest_of(&mut engine.fingerprint().as_bytes());
            let fingerprint = digest.map(|digest| digest.to_string()[..16].to_owned());
            let fingerprint =
                fingerprint.map_err(crate::disk::failed("read the fingerprint of an engine for", data))?;
            let files = Files::open(
                data.join("artefacts")
                    .join(format!("{}-{fingerprint}", engine.name())),
                "",
            )?;
            Ok(Kept {
                engine,
                fingerprint,
                files,
            })
        });
        let kept = kept.collect::<Result<_, Error>>()?;
        Ok(Self {
            store,
            code: CodeFiles::open(data)?,
            kept,
            metrics,
            compiling: Mutex::new(()),
        })
    }

    pub(crate) fn engines(&self) -> Vec<Arc<dyn Engine>> {
        self.kept.iter().map(|kept| Arc::clone(&kept.engine)).collect()
    }

    /// Maps the artefact of some code, compiling it first if there is none or if it is not what it was.
    pub(crate) fn load(&self, engine: &str, code: Digest) -> Result<Arc<dyn Image>, LoadError> {
        let kept = self.kept.iter().find(|kept| kept.engine.name() == engine);
        let kept = kept.ok_or_else(|| {
            LoadError::Refused(PrepareError::Unsupported(format!(
                "this node has no engine `{engine}`"
            )))
        })?;
        if let Some(image) = self.load_kept(kept, code)? {
            return Ok(image);
        }
        let _one_at_a_time = self.compiling.lock();
        // Somebody may have compiled it meanwhile.
        if let Some(image) = self.load_kept(kept, code)? {
            return Ok(image);
        }
        let bytes = self.code.read(code)?;
        let started = Instant::now();
        let compiled = compile(&*kept.engine, &bytes).map_err(LoadError::Refused)?;
        self.measure(ImagePhase::Compile, started);
        drop(bytes);
        self.keep(kept, code, &compiled)?;
        drop(compiled);
        match self.load_kept(kept, code)? {
            Some(image) => Ok(image),
            None => Err(LoadError::Refused(PrepareError::Artefact(
                "the engine does not take what it compiled".to_owned(),
            ))),
        }
    }

    /// `None` if there is no artefact that matches its record and that the engine takes.
    fn load_kept(&self, kept: &Kept, code: Digest) -> Result<Option<Arc<dyn Image>>, LoadError> {
        let key = kept.key(code);
        let Some(entry) = self.store.get(&key)? else {
            return Ok(None);
        };
        let path = kept.files.path(code);
        // A record that cannot be read is as good as none: the artefact is made anew.
        let Ok(record) = record::read::<ArtefactRecord>(&entry) else {
            return Ok(None);
        };
        let started = Instant::now();
        let reason = match kept.files.open_verified(code, record.digest)? {
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
        self.store.delete(&key, Expect::Any)?;
        Ok(None)
    }

    fn measure(&self, phase: ImagePhase, started: Instant) {
        if let Some(metrics) = &self.metrics {
            metrics.image(phase, started.elapsed());
        }
    }

    /// The file first: a record always speaks of a file that was whole.
    fn keep(&self, kept: &Kept, code: Digest, compiled: &[u8]) -> Result<(), LoadError> {
        crash::point();
        let digest =
            digest_of(&mut &*compiled).map_err(crate::disk::failed("hash", &kept.files.path(code)))?;
        kept.files.write(code, compiled)?;
        let key = kept.key(code);
        self.store.put(
            &key,
            &record::write(&key, &ArtefactRecord { digest })?,
            Expect::Any,
        )?;
        Ok(())
    }

    /// Removes what no version uses: artefacts of other fingerprints at once, code and artefacts once they are older
    /// than `age`.
    pub(crate) fn collect(&self, age: Duration, used: &BTreeSet<Digest>) -> Result<(), Error> {
        let wanted = |digest| used.contains(&digest);
        self.code.collect(age, &wanted);
        for kept in &self.kept {
            kept.files.collect(age, &wanted);
        }
        self.collect_folders();
        for entry in self.store.list(ARTEFACTS)? {
            let known = |kept: &Kept| {
                let code = entry
                    .key
                    .rsplit('/')
                    .next()
                    .and_then(|digest| digest.parse().ok());
                code.is_some_and(|code| kept.key(code) == entry.key && kept.files.contains(code))
            };
            if !self.kept.iter().any(known) {
                self.store.delete(&entry.key, Expect::At(entry.revision))?;
            }
        }
        Ok(())
    }

    /// Folders of engines, or of versions of engines, that this node no longer has.
    fn collect_folders(&self) {
        let Some(artefacts) = self.kept.first().and_then(|kept| kept.files.folder().parent()) else {
            return;
        };
        for entry in fs::read_dir(artefacts).into_iter().flatten().flatten() {
            let path = entry.path();
            if self.kept.iter().all(|kept| kept.files.folder() != path)
                && let Err(error) = fs::remove_dir_all(&path)
            {
                tracing::warn!(path = %path.display(), %error, "cannot remove litter");
            }
        }
    }
}

/// A compiler that panics on some code has a fault of its own, which must not become the node's.
fn compile(engine: &dyn Engine, bytes: &[u8]) -> Result<Vec<u8>, PrepareError> {
    let code = Code {
        kind: CodeKind::Wasm,
        bytes,
    };
    catch_unwind(AssertUnwindSafe(|| engine.compile(&code))).unwrap_or_else(|_| {
        Err(PrepareError::Compiler(
            "it panicked; see the node's log".to_owned(),
        ))
    })
}
