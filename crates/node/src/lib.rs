//! Assembly of a node: the only crate that names concrete engines and stores.
//!
//! [`Node::start`] reads as the list of what a node is. Its threads: one for each core, the ticker, the loader, the log's
//! writer, the registry's, the driver of asynchronous calls, one that carries the control API on a small tokio runtime, those of the runtime for TLS and HTTP/2, and the exporter's if telemetry is
//! exported, and with an S3 of its own that one's. [`Node::wait`] ends
//! with the first signal or failure; [`Node::stop`] drains:
//!
//! 1. `/readyz` turns red and admission refuses with 503;
//! 2. each core accepts who is already waiting, closes its listener and its idle connections, and answers what it has;
//! 3. when the drain's time is over, what still runs is dropped and answered with 503;
//! 4. clients of TLS and HTTP/2, which were told to go at first, read what they are owed;
//! 5. what came of asynchronous calls is written down; those that did not end wait for the next start;
//! 6. the control API ends, then the log is written out, and what telemetry is left is exported.
//!
//! Whatever is killed in between loses no deploy: those are on disk before they are acknowledged.

#![forbid(unsafe_code)]

mod callbacks;
mod config;
mod cores;
mod driver;
mod embedded;
mod engines;
mod functions;
mod heap;
mod limits;
mod objects;
mod once;
mod outside;
mod protocols;
mod schedules;
mod wanted;
mod watches;

pub use config::{Config, ConfigError, KeyOptions, LambdaOptions, Overrides, TenantOptions, TlsOptions};
pub use driver::CallOptions;
pub use engines::{HostCompiler, helper, host_compilers, process_limits, supports_processes};
pub use heap::keep_freed_pieces;
pub use limits::{Limit, Room, meminfo, room};
pub use objects::{Addressing, Payload, S3Options};
pub use outside::AwsOptions;

use admin::Audit;
use backend::{Backend, Lines, Proxy};
use callbacks::Courier;
use contract::{CoreId, Engine, Service};
use cores::Common;
use dispatcher::Dispatcher;
use driver::{Driver, Made};
use embedded::Embedded as OwnObjects;
use engines::{Engines, Refusals};
use functions::Functions;
use gateway::{Later, Listener};
use outside::Outside;
use protocols::{Bounds, Door, Protocols, Ways};
use registry::Registry;
use schedules::Schedules;
use secrets::Secrets;
use service_http::Traced;
use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use store_embedded::Embedded;
use telemetry::{
    logs::{LogOptions, Logs},
    metrics::Metrics,
    otlp::{Exporter, Tracer},
};
use tenants::Tenants;
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
    time::MissedTickBehavior,
};
use triggers::Agenda;
use watches::Watches;
use worker::{Shared, Ticker};

/// A node that runs.
pub struct Node {
    shared: Arc<Shared>,
    cores: Vec<JoinHandle<()>>,
    failures: mpsc::Receiver<io::Error>,
    refusals: Refusals,
    driver: Driver,
    protocols: Protocols,
    network: Runtime,
    control: JoinHandle<io::Result<()>>,
    stop_control: oneshot::Sender<()>,
    /// What `/readyz` says on both ports.
    ready: Arc<AtomicBool>,
    logs: Logs,
    exporter: Option<Exporter>,
    listen: SocketAddr,
    admin: SocketAddr,
    tls: Option<SocketAddr>,
    /// Ends after the requests that call it.
    _backend: Backend,
    /// Ends after the backend.
    own_objects: Option<OwnObjects>,
    _watches: Option<Watches>,
    // Last: the ticker outlives the cores.
    _ticker: Ticker,
}

/// A node that cannot start, or could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration asks for processors that are not there.
    #[error("{0}")]
    Cores(String),
    /// The data folder cannot be used.
    #[error("failed to open the data folder {path}: {reason}")]
    Data {
        /// The folder.
        path: String,
        /// What is wrong with it, and what to try.
        reason: String,
    },
    /// An address cannot be listened on.
    #[error(
        "failed to listen on {address} for {what}: {source}. Check that no other process does, or choose another with --{flag}"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What for.
        what: &'static str,
        /// The option that sets it.
        flag: &'static str,
        /// The system's word.
        source: io::Error,
    },
    /// An engine does not start here.
    #[error("failed to start the engine {engine}: {reason}. `millpond doctor` says what this host lacks")]
    Engine {
        /// Which.
        engine: &'static str,
        /// Why.
        reason: String,
    },
    /// What is deployed cannot be read.
    #[error("failed to read what is deployed: {0}")]
    Registry(String),
    /// What was called asynchronously cannot be read.
    #[error("failed to read the log of asynchronous calls: {0}")]
    Calls(#[from] calls::Error),
    /// S3 cannot be used as the configuration says.
    #[error("failed to use S3 as `[s3]` of the configuration says: {0}")]
    Objects(String),
    /// AWS's services cannot be used as the configuration says.
    #[error("failed to use AWS's services as `[aws]` of the configuration says: {0}")]
    Aws(String),
    /// TLS has nothing to show.
    #[error(transparent)]
    Certificates(#[from] proxy::CertificateError),
    /// The operating system refused something else.
    #[error("failed to {attempt}: {source}")]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// Its word.
        source: io::Error,
    },
}

fn system(attempt: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::System { attempt, source }
}

impl Node {
    /// Starts everything; when it returns, requests are answered.
    pub fn start(config: &Config) -> Result<Self, Error> {
        Self::start_with(config, None, |engines| engines)
    }

    /// As [`Node::start`]. The exporter sends what the node records, and is closed by [`Node::stop`]. What `adapt` makes of the
    /// usual engines is what runs functions.
    pub fn start_with(
        config: &Config,
        exporter: Option<Exporter>,
        adapt: impl FnOnce(Vec<Arc<dyn Engine>>) -> Vec<Arc<dyn Engine>>,
    ) -> Result<Self, Error> {
        let files = limits::raise_files();
        let processors = cores::processors(&config.cores).map_err(Error::Cores)?;
        let count =
            u16::try_from(processors.len()).map_err(|_| Error::Cores("there are too many cores".into()))?;
        make_data_folder(&config.data)?;

        // Memory and records: what survives a restart.
        let data_error = |reason: String| Error::Data {
            path: config.data.display().to_string(),
            reason,
        };
        let store = Embedded::open(&config.data.join("millpond.redb"))
            .map_err(|error| data_error(error.to_string()))?;
        let store = Arc::new(store);
        let logs = Logs::open(&config.data.join("logs"), LogOptions::default())
            .map_err(|error| data_error(error.to_string()))?;
        let metrics = Arc::new(Metrics::new(processors.len()));
        let counted = logs.clone();
        metrics.add_source(move |page| counted.render(page));
        if let Some(exporter) = &exporter {
            exporter.attach(&metrics, &logs);
        }

        // What functions may ask for, engines, and what is deployed for them.
        let network = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("services")
            .enable_all()
            .build()
            .map_err(system("start the threads of the services"))?;
        let refusals = Refusals::default();
        let Engines { all, tiers } = engines::engines(config, &metrics, &refusals)?;
        let engines = adapt(all);
        let secrets =
            Secrets::open(&config.data.join(SECRETS)).map_err(|error| data_error(error.to_string()))?;
        let tracer = exporter.as_ref().and_then(Exporter::tracer);
        let files = usize::try_from(files).unwrap_or(1024);
        let own = config.s3.as_ref().and_then(|s3| Some((s3.embedded?, &s3.region)));
        let own = own.map(|(address, region)| OwnObjects::start(&config.data, address, region));
        let own = own.transpose().map_err(Error::Objects)?;
        let s3 = match (&config.s3, &own) {
            (Some(s3), Some(own)) => Some(own.options(s3)),
            (s3, _) => s3.clone(),
        };
        s3.as_ref()
            .map_or(Ok(()), S3Options::probe)
            .map_err(Error::Objects)?;
        config
            .aws
            .as_ref()
            .map_or(Ok(()), AwsOptions::probe)
            .map_err(Error::Aws)?;
        let calls = limits::calls(files);
        let backend = Outside::of(s3, config.aws.clone(), calls)
            .start(limits::objects(files), &config.data.join(SECRETS), &metrics)
            .map_err(system("start the backend"))?;
        let runtime = || network.handle().clone();
        let objects = config.s3.iter().map(|_| objects::service(&backend, runtime()));
        let operations = config
            .aws
            .iter()
            .map(|_| outside::operations(&backend, runtime()));
        let carried = objects.chain(operations);
        let http = outside::http(&backend, runtime(), calls).map_err(system("reach the backend"))?;
        // Places of its own: functions that wait for replies hold no callback back.
        let deliveries =
            outside::http(&backend, runtime(), DELIVERIES).map_err(system("reach the backend"))?;
        // Its own S3 tells of new objects; another one is asked.
        let watches = match (&config.s3, &own) {
            (Some(s3), None) => Some(
                Watches::open(&config.data, s3, &metrics).map_err(|error| data_error(error.to_string()))?,
            ),
            _ => None,
        };
        let functions = Functions::new(network.handle().clone(), limits::links(files), boot_number());
        let services = services(carried, http, tracer, &functions);
        let permits = Arc::new(config.permits());
        let fits = config.s3.as_ref().map(S3Options::fits).transpose();
        let options = registry::Options {
            services: services.iter().map(|service| service.name()).collect(),
            hears_objects: config.s3.is_some(),
            permits: permits.clone(),
            fits: fits.map_err(Error::Objects)?.flatten(),
            metrics: Some(metrics.clone()),
            tiers,
            ..registry::Options::default()
        };
        let registry = Registry::open(store.clone(), &config.data, engines.clone(), options)
            .map_err(|error| Error::Registry(error.to_string()))?;
        let registry = Arc::new(registry);
        if let Some(own) = &own {
            registry.subscribe(own.learner(permits.clone()));
        }
        if let Some(watches) = &watches {
            registry.subscribe(watches.learner(permits));
        }
        let tenants = Tenants::open(store.clone()).map_err(|error| data_error(error.to_string()))?;
        let tenants = Arc::new(tenants);
        for name in config.tenants.keys() {
            if tenants.directory().tenant(name).is_none() {
                tracing::warn!(tenant = %name, "the configuration permits something to a tenant that there is not: see `millpond tenant list`");
            }
        }
        let audit = Audit::open(&config.data).map_err(|error| data_error(error.to_string()))?;
        let agenda = Agenda::default();
        let schedules =
            Schedules::open(store.clone(), agenda.clone()).map_err(|error| data_error(error.to_string()))?;
        let opened = driver::open(store, &config.calls)?;
        let calls = opened.calls.clone();

        // Cores, and how requests find what is deployed.
        let (shared, seats, ticker) = Shared::assemble(count, engines).map_err(system("start the worker"))?;
        let dispatcher = Arc::new(Dispatcher::new(
            shared.clone(),
            services,
            tenants.published(),
            metrics.clone(),
            logs.clone(),
        ));
        let publish = dispatcher.clone();
        registry.subscribe(move |snapshot| publish.publish(snapshot));
        dispatcher.publish(&registry.snapshot());

        // All addresses are bound before anything is served on any.
        let listeners = Listener::bind(config.listen, processors.len()).map_err(|source| Error::Listen {
            address: config.listen,
            what: "functions",
            flag: "listen",
            source,
        })?;
        let listen = listeners.first().map_or(config.listen, Listener::address);
        let admin_listener = std::net::TcpListener::bind(config.admin).map_err(|source| Error::Listen {
            address: config.admin,
            what: "the control API",
            flag: "admin",
            source,
        })?;
        let admin = admin_listener
            .local_addr()
            .map_err(system("read the control API's address"))?;

        let door = Door::open(&config.tls)?;
        let tls = door.as_ref().map(Door::address);

        let (failed, failures) = mpsc::channel();
        let ways = Ways::new(&shared);
        let later = Later {
            calls: calls.clone(),
            shared: shared.clone(),
            attempts: config.calls.attempts,
            maximum_age: config.calls.maximum_age,
            callbacks: config.calls.hosts().into(),
        };
        let courier = Courier::new(network.handle().clone(), &deliveries, &later.callbacks);
        let common = Common {
            shared: shared.clone(),
            metrics: metrics.clone(),
            quantum: config.quantum,
            policy: config.policy,
            drain: config.drain,
            boot: boot_number(),
            gateway: gateway::Options {
                connections: config
                    .connections
                    .min(limits::connections(files) / processors.len())
                    .max(16),
                tracer: exporter.as_ref().and_then(Exporter::tracer),
                later: Some(later.clone()),
                keys: config.lambda.load()?,
                adoption: Some(ways.adoption.clone()),
                departure: Some(ways.departure.clone()),
                ..gateway::Options::default()
            },
            failed: failed.clone(),
        };
        functions.open(functions::Ways {
            worker: shared.clone(),
            reader: dispatcher.reader(CoreId(0)).into(),
            later: later.clone(),
            tracer: exporter.as_ref().and_then(Exporter::tracer),
        });
        let cores = seats
            .into_iter()
            .zip(processors.iter().copied())
            .zip(listeners)
            .map(|((seat, processor), listener)| {
                let reader = dispatcher.reader(seat.core());
                cores::start(common.clone(), seat, processor, listener, reader)
            })
            .collect::<io::Result<Vec<_>>>()
            .map_err(system("start a core's thread"))?;

        let bounds = Bounds {
            threads: processors.len(),
            files,
            connections: config.connections.saturating_mul(processors.len()),
        };
        let protocols = Protocols::start(ways, door, &bounds, &metrics, failed)
            .map_err(system("start the runtime of TLS and HTTP/2"))?;

        let tracer = exporter.as_ref().and_then(Exporter::tracer);
        let made = Made {
            later,
            schedules,
            courier,
        };
        if let Some(own) = &own {
            own.tell(made.later.clone());
        }
        if let Some(watches) = &watches {
            watches.tell(made.later.clone(), &backend, network.handle());
        }
        let driver = Driver::start(opened, shared.clone(), dispatcher.reader(CoreId(0)), tracer, made)
            .map_err(system("start the thread of asynchronous calls"))?;

        let (stop_control, stopped) = oneshot::channel();
        let ready = dispatcher.ready();
        let state = admin::State {
            registry,
            tenants,
            audit,
            logs: logs.clone(),
            calls: Some(calls),
            agenda,
            secrets,
            objects: own.as_ref().map(OwnObjects::owner),
            once: Arc::new(once::Runner {
                shared: shared.clone(),
                dispatcher: dispatcher.clone(),
                boot: boot_number(),
                requests: AtomicU64::new(0),
            }),
            metrics,
            node: admin::NodeInfo {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                listen,
                admin,
                tls,
                s3: own.as_ref().map(OwnObjects::address),
                cores: processors,
                started: SystemTime::now(),
            },
            token: config.admin_token.clone(),
            ready: ready.clone(),
        };
        let control = control(admin_listener, state, stopped).map_err(system("start the control API"))?;
        Ok(Self {
            shared,
            cores,
            failures,
            refusals,
            driver,
            protocols,
            network,
            control,
            stop_control,
            ready,
            logs,
            exporter,
            listen,
            admin,
            tls,
            _backend: backend,
            own_objects: own,
            _watches: watches,
            _ticker: ticker,
        })
    }

    /// Where functions are served.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Where functions are served by TLS, if they are.
    pub fn tls(&self) -> Option<SocketAddr> {
        self.tls
    }

    /// Where the node's own S3 is, if it has one.
    pub fn s3(&self) -> Option<SocketAddr> {
        self.own_objects.as_ref().map(OwnObjects::address)
    }

    /// Where the control API is.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Blocks until a core fails, or `stop` says so.
    pub fn wait(&self, stop: &mpsc::Receiver<()>) -> Result<(), Error> {
        let mut told = self.refusals.count();
        loop {
            let refused = self.refusals.count();
            if refused > told {
                told = refused;
                tracing::warn!(
                    refused,
                    "the kernel refuses memory maps or memory for another sandbox, and requests wait: raise vm.max_map_count, \
                     add memory, or lower `sandboxes` and `dense_sandboxes` of the configuration"
                );
            }
            match stop.recv_timeout(Duration::from_millis(200)) {
                Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if let Ok(source) = self.failures.try_recv() {
                return Err(Error::System {
                    attempt: "go on with a core",
                    source,
                });
            }
        }
    }

    /// Drains and ends. See the crate's introduction.
    pub fn stop(self) -> Result<(), Error> {
        self.ready.store(false, Ordering::Release);
        self.protocols.drain();
        self.shared.drain();
        for core in self.cores {
            // A panic on a core is a bug that its own message tells; the others still end in order.
            let _ = core.join();
        }
        self.protocols.stop();
        self.driver.stop();
        // No sandbox is left that could wait for a reply.
        self.network.shutdown_background();
        // Whoever asks for the log or for metrics had until now; the API may have failed before.
        let _ = self.stop_control.send(());
        let ended = self
            .control
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
        self.logs.close();
        if let Some(exporter) = self.exporter {
            exporter.close();
        }
        ended.map_err(system("serve the control API"))
    }
}

/// Whether the files that TLS needs can be used, as [`Node::start`] would find.
pub fn check_tls(options: &TlsOptions) -> Result<(), Error> {
    if let (Some(certificate), Some(key)) = (&options.certificate, &options.key) {
        proxy::Certificates::load(certificate, key)?;
    }
    Ok(())
}

/// What functions of this node may be granted beyond their request.
fn services(
    carried: impl Iterator<Item = Proxy>,
    http: Lines,
    tracer: Option<Tracer>,
    functions: &Functions,
) -> Vec<Arc<dyn Service>> {
    let http: Arc<dyn Service> = Arc::new(http);
    let http = match tracer {
        Some(tracer) => Arc::new(Traced::new(http, tracer)),
        None => http,
    };
    carried
        .map(|service| Arc::new(service) as Arc<dyn Service>)
        .chain([http, Arc::new(functions.clone())])
        .collect()
}

/// Of the data folder: secrets, whose names the node knows, and whose values the backend reads.
const SECRETS: &str = "secrets";

/// Callbacks that are delivered at once.
const DELIVERIES: usize = 256;

/// Only its owner may read a node's folder, and nobody else write to it: compiled code is mapped from there.
fn make_data_folder(path: &Path) -> Result<(), Error> {
    let error = |reason: String| Error::Data {
        path: path.display().to_string(),
        reason,
    };
    if !path.exists() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|source| error(source.to_string()))?;
    }
    let mode = fs::metadata(path)
        .map_err(|source| error(source.to_string()))?
        .mode();
    if mode & 0o022 != 0 {
        return Err(error(format!(
            "others may write to it (mode {:03o}), and the node would run what they put there: chmod 700 it",
            mode & 0o777
        )));
    }
    Ok(())
}

/// Distinguishes the request ids of this start from those of others.
fn boot_number() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // 48 bits of microseconds are nine years; the process is mixed in for nodes started together.
    (u64::try_from(since.as_micros()).unwrap_or_default() << 16) | u64::from(std::process::id() & 0xffff)
}

/// Runs the control API on a thread and a runtime of its own.
fn control(
    listener: std::net::TcpListener,
    state: admin::State,
    stopped: oneshot::Receiver<()>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()?;
    thread::Builder::new().name("control".into()).spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let stopped = async {
                let _ = stopped.await;
            };
            let registry = state.registry.clone();
            let collecting = tokio::spawn(collect(registry.clone()));
            let learning = tokio::spawn(learn(registry.clone()));
            let served = admin::serve(listener, state, stopped).await;
            collecting.abort();
            learning.abort();
            // No core runs any more when a node ends in order.
            if let Err(error) = registry.learn_last(LEARN_LAST) {
                tracing::warn!(%error, "what functions used of late is forgotten");
            }
            served
        })
    })
}

/// How often what requests used is taken up into the histories of their versions.
const LEARN: Duration = Duration::from_secs(1);

/// How long writing all histories may take when the node ends.
const LEARN_LAST: Duration = Duration::from_secs(2);

async fn learn(registry: Arc<Registry>) {
    let mut interval = tokio::time::interval(LEARN);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        interval.tick().await;
        let registry = registry.clone();
        match tokio::task::spawn_blocking(move || registry.learn()).await {
            Ok(Ok(())) => failing = false,
            // Said once: the disk that fails has worse to say.
            Ok(Err(error)) if !failing => {
                failing = true;
                tracing::warn!(%error, "what functions use is not written down");
            }
            Ok(Err(_)) => {}
            Err(_) => return,
        }
    }
}

/// How often what no version uses any more is removed from the disk.
const COLLECT: Duration = Duration::from_secs(60 * 60);

async fn collect(registry: Arc<Registry>) {
    let mut interval = tokio::time::interval(COLLECT);
    // The first tick is now, and the registry has collected when it was opened.
    interval.tick().await;
    loop {
        interval.tick().await;
        let registry = registry.clone();
        match tokio::task::spawn_blocking(move || registry.collect()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "unused code stays on disk until the next collection"),
            Err(_) => return,
        }
    }
}
