//! New objects in an S3 elsewhere: the scopes that functions want objects of are looked at, again and again.

use crate::{objects, wanted::Wanted};
use backend::{Backend, Proxy};
use calls::{CallId, Request, SubmitError, Timestamp};
use contract::{Grant, S3Action, S3Grant, Service as _, Session};
use gateway::{Later, events::Cause};
use registry::{Permits, Snapshot};
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use telemetry::metrics::{Kind, Metrics};
use tokio::{
    runtime::Handle,
    sync::watch::{Receiver, Sender, channel},
    task::{JoinSet, spawn_blocking},
    time::sleep,
};
use triggers::Object;
use watch::{Found, LookError, OpenError, Scope, Watch};

/// The file of what was seen, in the node's folder.
const SEEN: &str = "watched.redb";

/// New objects that become calls at a time.
const EVENTS: usize = 64;

/// Between two looks at a scope of which S3 gives no list.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// An S3 elsewhere, as its new objects are found.
pub(crate) struct Watches {
    watch: Watch,
    origin: String,
    region: String,
    poll: Duration,
    wanted: Wanted,
    scopes: Sender<BTreeSet<Scope>>,
    counted: Arc<Counted>,
}

#[derive(Default)]
struct Counted {
    complete: AtomicU64,
    failed: AtomicU64,
    found: AtomicU64,
}

impl Watches {
    /// Of the S3 at this origin.
    pub(crate) fn open(
        data: &Path,
        options: &objects::S3Options,
        metrics: &Metrics,
    ) -> Result<Self, OpenError> {
        let region = options.region.clone();
        let origin = options
            .endpoint
            .clone()
            .unwrap_or_else(|| format!("AWS {region}"));
        let counted = Arc::<Counted>::default();
        let shown = counted.clone();
        metrics.add_source(move |page| {
            let help = "Times that a bucket was listed for new objects, by whether the list came whole.";
            let family = page.family(Kind::Counter, "millpond_watch_looks_total", help);
            family.sample(&[("outcome", "ok")], shown.complete.load(Relaxed));
            family.sample(&[("outcome", "failed")], shown.failed.load(Relaxed));
            let help = "Objects that were found to be new.";
            let family = page.family(Kind::Counter, "millpond_watch_objects_total", help);
            family.sample(&[], shown.found.load(Relaxed));
        });
        Ok(Self {
            watch: Watch::open(&data.join(SEEN), &origin)?,
            origin,
            region,
            poll: options.poll,
            wanted: Wanted::default(),
            scopes: channel(BTreeSet::new()).0,
            counted,
        })
    }

    /// Learns, from each snapshot that it is told, which objects make functions run.
    pub(crate) fn learner(&self, permits: Arc<Permits>) -> impl Fn(&Arc<Snapshot>) + Send + 'static {
        let (watch, wanted, scopes) = (self.watch.clone(), self.wanted.clone(), self.scopes.clone());
        move |snapshot| {
            wanted.learn(snapshot, &permits);
            let all = wanted.all();
            let these: BTreeSet<_> = all.iter().map(|(_, trigger)| scope(trigger)).collect();
            drop(all);
            hold(&watch, &these);
            scopes.send_if_modified(|before| {
                let differs = *before != these;
                *before = these;
                differs
            });
        }
    }

    /// Makes calls of new objects from now on, on this runtime.
    pub(crate) fn tell(&self, later: Later, backend: &Backend, runtime: &Handle) {
        let looker = Arc::new(Looker {
            watch: self.watch.clone(),
            origin: self.origin.clone(),
            region: self.region.clone(),
            poll: self.poll,
            wanted: self.wanted.clone(),
            later,
            service: objects::service(backend, runtime.clone()),
            counted: self.counted.clone(),
        });
        runtime.spawn(looker.run(self.scopes.subscribe()));
    }
}

fn scope(trigger: &manifest::ObjectTrigger) -> Scope {
    Scope {
        bucket: trigger.bucket.clone(),
        prefix: trigger.prefix.clone(),
    }
}

fn hold(watch: &Watch, scopes: &BTreeSet<Scope>) {
    if let Err(error) = watch.hold(scopes, now()) {
        tracing::error!(%error, "what is deployed wants new objects; it is tried again with each look for them");
    }
}

struct Looker {
    watch: Watch,
    origin: String,
    region: String,
    poll: Duration,
    wanted: Wanted,
    later: Later,
    service: Proxy,
    counted: Arc<Counted>,
}

/// A look that came to no end.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Look(#[from] LookError),
    #[error("its calls were not accepted: {0}")]
    Calls(#[from] SubmitError),
    #[error("no function wants its objects any more")]
    Unwanted,
    #[error("the node is shutting down")]
    Ended,
}

impl Looker {
    /// Looks at each scope that is wanted, as long as it is.
    async fn run(self: Arc<Self>, mut scopes: Receiver<BTreeSet<Scope>>) {
        let mut tasks = JoinSet::new();
        let mut watched = HashMap::new();
        loop {
            let wanted = scopes.borrow_and_update().clone();
            watched.retain(|scope, task: &mut tokio::task::AbortHandle| {
                let stays = wanted.contains(scope);
                if !stays {
                    task.abort();
                }
                stays
            });
            for scope in wanted {
                watched
                    .entry(scope)
                    .or_insert_with_key(|scope| tasks.spawn(self.clone().stay(scope.clone())));
            }
            while tasks.try_join_next().is_some() {}
            let watch = self.watch.clone();
            if let Ok(Err(error)) = spawn_blocking(move || watch.tidy()).await {
                tracing::warn!(%error, "what was seen of objects that nobody wants any more is kept for now");
            }
            if scopes.changed().await.is_err() {
                return;
            }
        }
    }

    async fn stay(self: Arc<Self>, scope: Scope) {
        let mut failures = 0;
        let mut said = String::new();
        loop {
            let Scope { bucket, prefix } = &scope;
            let looked = self.look(&scope).await;
            let counter = match looked {
                Ok(()) => &self.counted.complete,
                Err(_) => &self.counted.failed,
            };
            counter.fetch_add(1, Relaxed);
            match looked {
                Ok(()) => {
                    if failures > 0 {
                        tracing::info!(bucket, prefix, "new objects are found again");
                    }
                    (failures, said) = (0, String::new());
                }
                Err(error) => {
                    failures += 1;
                    if matches!(error, Failed::Look(LookError::NotHeld(_))) {
                        let all = self
                            .wanted
                            .all()
                            .iter()
                            .map(|(_, trigger)| self::scope(trigger))
                            .collect();
                        hold(&self.watch, &all);
                    }
                    let error = error.to_string();
                    if error != said {
                        tracing::warn!(
                            bucket,
                            prefix,
                            error,
                            "new objects are not found now; it is tried again"
                        );
                        said = error;
                    }
                }
            }
            let wait = self.poll.saturating_mul(1 << failures.min(16));
            sleep(wait.min(LONGEST_WAIT.max(self.poll))).await;
        }
    }

    async fn look(&self, scope: &Scope) -> Result<(), Failed> {
        let session = self.session(scope).ok_or(Failed::Unwanted)?;
        let mut look = self.watch.look(scope, &*session).await?;
        let at = now();
        while let Some(page) = look.page().await? {
            self.counted.found.fetch_add(page.new.len() as u64, Relaxed);
            for some in page.new.chunks(EVENTS) {
                let calls: Vec<_> = some
                    .iter()
                    .flat_map(|found| self.calls(scope, found, at))
                    .collect();
                let later = self.later.clone();
                let submit = move || later.calls.submit_all(&calls, Timestamp(now()));
                // What did not run was ended with its runtime.
                spawn_blocking(submit).await.map_err(|_| Failed::Ended)??;
            }
            look.keep(page).await?;
        }
        Ok(())
    }

    /// To list a scope, in the name of a function that wants its objects.
    fn session(&self, scope: &Scope) -> Option<Arc<dyn Session>> {
        let all = self.wanted.all();
        let (function, _) = all.iter().find(|(_, trigger)| self::scope(trigger) == *scope)?;
        self.service.bind(&Grant {
            s3: vec![S3Grant {
                bucket: scope.bucket.clone(),
                prefix: scope.prefix.clone(),
                actions: vec![S3Action::List],
            }],
            ..Grant::nothing(function.clone())
        })
    }

    fn calls(&self, scope: &Scope, found: &Found, at: u64) -> Vec<(CallId, Request)> {
        let (bucket, version) = (&scope.bucket, found.version());
        let cause = format!("{}\n{bucket}/{}\n{version:x}", self.origin, found.key);
        let object = Object {
            region: &self.region,
            bucket,
            key: &found.key,
            size: found.size,
            etag: &found.etag,
            // A list does not say it: only what came in parts has such a tag.
            how: match found.etag.contains('-') {
                true => "ObjectCreated:CompleteMultipartUpload",
                false => "ObjectCreated:Put",
            },
            at: found.modified,
            sequencer: at,
        };
        self.wanted.calls(&self.later, Cause::Object(&cause, 0), &object)
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
