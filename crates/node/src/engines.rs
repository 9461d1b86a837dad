//! The engines of a node, and the compilers that it starts for them.

use crate::{Config, Error, Room, limits};
use contract::{ByteSize, Engine, PrepareError};
use engine_aot::{Aot, Bounds, Toolchain};
use engine_wasmtime::{Layout, OnDemand, Wasmtime};
use registry::Tiers;
use std::{
    ffi::OsString,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use telemetry::metrics::{Kind, Metrics};

/// How often the kernel has refused an engine what it should have had by [`limits::room`]. Cores count, for they must not wait for
/// a log; [`Node::wait`] tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals([Arc<AtomicU64>; 2]);

impl Refusals {
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// All engines of a node; a manifest's `engine` names one.
pub(crate) struct Engines {
    pub(crate) all: Vec<Arc<dyn Engine>>,
    /// Between which the node chooses.
    pub(crate) tiers: Tiers,
}

pub(crate) fn engines(
    config: &Config,
    metrics: &Metrics,
    Refusals([guarded_refused, dense_refused]): &Refusals,
) -> Result<Engines, Error> {
    let (guarded, dense) = limits::room(config);
    tell(config, (guarded, dense));
    let pools = [
        (Layout::Guarded, guarded, guarded_refused.clone()),
        (Layout::Dense, dense, dense_refused.clone()),
    ];
    let [whole, on_demand] = pools
        .clone()
        .map(|(layout, room, refusals)| engine_wasmtime::Options {
            refusals,
            ..options(layout, room.sandboxes, config.keep_resident, None)
        });
    metrics.add_source(move |page| {
        let name = "millpond_sandboxes_limit";
        let family = page.family(Kind::Gauge, name, "Sandboxes that may be alive at once.");
        for (layout, room, _) in &pools {
            family.sample(&[("engine", layout.name())], i64::from(room.sandboxes));
        }
        let name = "millpond_sandboxes_refused_total";
        let help = "Times that the kernel had no memory maps or memory for a sandbox for which there should have been room.";
        let family = page.family(Kind::Counter, name, help);
        for (layout, _, refusals) in &pools {
            family.sample(&[("engine", layout.name())], refusals.load(Ordering::Relaxed));
        }
    });
    let failed = |layout: Layout| {
        move |error: PrepareError| Error::Engine {
            engine: layout.name(),
            reason: error.to_string(),
        }
    };
    // Its handlers of faults come first: Wasmtime's ask those that were there before.
    let ahead = ahead_of_time(config);
    let whole = Wasmtime::new(&whole).map_err(failed(Layout::Guarded))?;
    let on_demand = OnDemand::new(on_demand).map_err(failed(Layout::Dense))?;
    let places = whole.places();
    let mut all = vec![
        apart(Arc::new(whole), vec![COMPILE.into()]),
        apart(Arc::new(on_demand), vec![COMPILE_DENSE.into()]),
    ];
    let mut tiers = Tiers {
        after: config.aot.tier_up.unwrap_or_default(),
        ..Tiers::default()
    };
    if let Some(toolchain) = ahead {
        let clang = toolchain.clang().to_owned();
        let options = engine_aot::Options {
            places,
            keep_resident: config.keep_resident.bytes(),
            ..engine_aot::Options::default()
        };
        let guarded = Aot::new(toolchain, &options).map_err(|error| Error::Engine {
            engine: "aot",
            reason: error.to_string(),
        })?;
        tiers.then = config.aot.tier_up.is_some().then(|| guarded.name());
        let mut others = vec![Bounds::Software, Bounds::Mask];
        if config.aot.allow_unchecked {
            others.push(Bounds::None);
        }
        let others: Vec<_> = others
            .into_iter()
            .map(|bounds| (guarded.beside(bounds), bounds))
            .collect();
        for (engine, bounds) in [(guarded, Bounds::Guard)].into_iter().chain(others) {
            let arguments = vec![COMPILE_AHEAD.into(), bounds.name().into(), clang.clone().into()];
            all.push(apart(Arc::new(engine), arguments));
        }
    }
    Ok(Engines { all, tiers })
}

fn apart(engine: Arc<dyn Engine>, arguments: Vec<OsString>) -> Arc<dyn Engine> {
    // That of `aot` consists of programs, which write files.
    let scratch = arguments
        .first()
        .is_some_and(|argument| argument == COMPILE_AHEAD);
    let compiler = compile::Options {
        scratch,
        // This very program, whatever has become of its file.
        program: "/proc/self/exe".into(),
        arguments,
        time: COMPILE_TIME,
    };
    Arc::new(compile::Apart::new(engine, compiler))
}

/// The compiler of `aot`, if there is one.
fn ahead_of_time(config: &Config) -> Option<Toolchain> {
    let toolchain = match &config.aot.clang {
        Some(clang) => Toolchain::at(clang),
        None => Toolchain::find(),
    };
    match toolchain {
        Ok(toolchain) => {
            tracing::info!(compiler = toolchain.version(), "the engine aot has a compiler");
            Some(toolchain)
        }
        Err(reason) => {
            tracing::info!(reason, "there is no engine aot here");
            None
        }
    }
}

/// Says how many sandboxes there is room for, and what to raise for more.
fn tell(config: &Config, (guarded, dense): (Room, Room)) {
    tracing::info!(
        sandboxes = guarded.sandboxes,
        because = %guarded.limit,
        dense_sandboxes = dense.sandboxes,
        dense_because = %dense.limit,
        "there is room for so many sandboxes at once; requests beyond them wait"
    );
    let asked = [
        ("sandboxes", config.sandboxes, guarded),
        ("dense_sandboxes", config.dense_sandboxes, dense),
    ];
    for (key, asked, room) in asked {
        if asked > room.sandboxes {
            tracing::warn!(
                key,
                asked,
                room = room.sandboxes,
                because = %room.limit,
                remedy = room.limit.remedy(),
                "the configuration asks for more sandboxes than this host carries"
            );
        }
    }
}

fn options(
    layout: Layout,
    sandboxes: u32,
    keep_resident: ByteSize,
    pieces: Option<Arc<compile::Pieces>>,
) -> engine_wasmtime::Options {
    engine_wasmtime::Options {
        layout,
        sandboxes,
        keep_resident: keep_resident.bytes(),
        pieces,
        ..engine_wasmtime::Options::default()
    }
}

/// The arguments with which a node starts its own program as a compiler: for guarded sandboxes,
const COMPILE: &str = "compile-code";
/// for dense ones,
const COMPILE_DENSE: &str = "compile-code-dense";
/// and for those of `aot`, with bounds and the compiler's path.
const COMPILE_AHEAD: &str = "compile-code-ahead";

/// How long compiling one module may take, if it is no larger than most: see [`compile::time_for`].
const COMPILE_TIME: Duration = Duration::from_secs(60);

/// What the program does if its arguments say that a node started it as a compiler: see [`compile::answer`].
pub fn compile(arguments: &[OsString]) -> Option<ExitCode> {
    let (first, rest) = arguments.split_first()?;
    let layout = match first.to_str()? {
        COMPILE => Layout::Guarded,
        COMPILE_DENSE => Layout::Dense,
        COMPILE_AHEAD => return Some(compile_ahead(rest)),
        _ => return None,
    };
    Some(compile::answer(COMPILE_TIME, None, |pieces| {
        Wasmtime::new(&options(layout, 1, ByteSize(0), pieces))
    }))
}

fn compile_ahead(arguments: &[OsString]) -> ExitCode {
    // Before anything is read: what its programs need is asked of themselves.
    let prepared = || {
        let [bounds, clang] = arguments else {
            return Err("it was started with other arguments than a node's".to_owned());
        };
        let bounds = bounds.to_str().and_then(Bounds::named);
        let options = engine_aot::Options {
            bounds: bounds.ok_or("it knows no such bounds")?,
            ..engine_aot::Options::default()
        };
        let toolchain = Toolchain::at(Path::new(clang))?;
        let needs = toolchain
            .needs()
            .map_err(|error| format!("it cannot tell what clang needs: {error}"))?;
        Ok((toolchain, options, needs))
    };
    let (programs, engine) = match prepared() {
        Ok((toolchain, options, needs)) => (Some(needs), Ok((toolchain, options))),
        Err(reason) => (None, Err(PrepareError::Compiler(reason))),
    };
    compile::answer(COMPILE_TIME, programs, |_| {
        let (toolchain, options) = engine?;
        Aot::new(toolchain, &options)
    })
}
