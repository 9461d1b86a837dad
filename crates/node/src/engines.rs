//! The engines of a node, and the compilers that it starts for them.

use crate::{Config, Error, Room, limits, outside};
use confine::{Groups, Programs};
use contract::{ByteSize, Engine, PrepareError};
use engine_aot::Aot;
use engine_process::{Counted, Process, Python, PythonOptions};
use engine_rwasm::Rwasm;
use engine_wasmtime::{Layout, OnDemand, Wasmtime};
use registry::Tiers;
use std::{
    ffi::OsString,
    fs, io,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
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
    let failed = |engine: &'static str| {
        move |error: PrepareError| Error::Engine {
            engine,
            reason: error.to_string(),
        }
    };
    let (clang, rustc) = compilers(config);
    let whole = Wasmtime::new(&whole).map_err(failed(Layout::Guarded.name()))?;
    let on_demand = OnDemand::new(on_demand).map_err(failed(Layout::Dense.name()))?;
    let places = whole.places();
    let keep_resident = config.keep_resident.bytes();
    let mut all = vec![
        apart(Arc::new(whole), vec![COMPILE.into()]),
        apart(Arc::new(on_demand), vec![COMPILE_DENSE.into()]),
    ];
    let mut tiers = Tiers {
        after: config.aot.tier_up.unwrap_or_default(),
        ..Tiers::default()
    };
    let ahead = found("aot", clang.map(|clang| (clang.version().to_owned(), clang)));
    let safe = found("rwasm", rustc.map(|rustc| (first_line(rustc.version()), rustc)));
    let mut native: Vec<(Arc<dyn Engine>, [OsString; 3])> = Vec::new();
    // The first of those that compile to native code has the sandboxes of all of them.
    let mut first = None;
    if let Some(clang) = ahead {
        use engine_aot::Bounds;
        let options = engine_aot::Options {
            bounds: Bounds::Guard,
            places: places.clone(),
            keep_resident,
        };
        let path = clang.clang().to_owned();
        let guarded = Arc::new(Aot::new(clang, &options).map_err(failed("aot"))?);
        tiers.then = config.aot.tier_up.is_some().then(|| guarded.name());
        let mut add = |engine: Arc<Aot>, bounds: Bounds| {
            native.push((
                engine,
                [COMPILE_AHEAD.into(), bounds.name().into(), path.clone().into()],
            ));
        };
        add(guarded.clone(), Bounds::Guard);
        let unchecked = config.aot.allow_unchecked.then_some(Bounds::None);
        for bounds in [Bounds::Software, Bounds::Mask].into_iter().chain(unchecked) {
            add(Arc::new(guarded.beside(bounds)), bounds);
        }
        first = Some(guarded);
    }
    if let Some(rustc) = safe {
        use engine_rwasm::Bounds;
        let path = rustc.rustc().to_owned();
        let options = engine_rwasm::Options {
            bounds: Bounds::Checked,
            places,
            keep_resident,
        };
        let checked = match &first {
            Some(first) => Rwasm::beside(first.native(), rustc.clone(), options.bounds),
            None => Rwasm::new(rustc.clone(), &options).map_err(failed("rwasm"))?,
        };
        let mask = Rwasm::beside(checked.native(), rustc, Bounds::Mask);
        for (engine, bounds) in [(checked, Bounds::Checked), (mask, Bounds::Mask)] {
            let arguments = [COMPILE_SAFE.into(), bounds.name().into(), path.clone().into()];
            native.push((Arc::new(engine), arguments));
        }
    }
    match engine_process::supported() {
        Ok(()) => {
            let options = engine_process::Options {
                sandboxes: config.process.sandboxes,
                zygotes: config.process.zygotes,
                allow_uncounted: config.process.allow_uncounted,
                python: python_here(config),
                ..engine_process::Options::default()
            };
            let process = Process::new(&options).map_err(failed("process"))?;
            all.push(Arc::new(process));
        }
        Err(reason) => tracing::info!(reason, "there is no engine process here"),
    }
    all.extend(
        native
            .into_iter()
            .map(|(engine, arguments)| of_programs(engine, arguments)),
    );
    Ok(Engines { all, tiers })
}

/// What functions in Python need: an interpreter of the host's, and the runtime, which is unpacked here.
fn python_here(config: &Config) -> Result<PythonOptions, String> {
    let data = &config.data;
    let found = interpreter(config).and_then(|python| {
        let (runtime, packages) = (data.join("python"), data.join("packages"));
        let unpacked = python::unpack(&runtime).and_then(|is_new| {
            if is_new {
                python.compile(&runtime)?;
            }
            fs::create_dir_all(&packages)?;
            Ok((runtime.canonicalize()?, packages.canonicalize()?))
        });
        let (runtime, packages) = unpacked
            .map_err(|error| format!("the runtime cannot be unpacked to {}: {error}", runtime.display()))?;
        Ok(PythonOptions {
            python,
            runtime,
            packages,
        })
    });
    match &found {
        Ok(options) => {
            let (major, minor) = options.python.version();
            let program = options.python.program().display();
            tracing::info!(%program, "functions run on Python {major}.{minor}");
        }
        Err(reason) => tracing::info!(reason, "functions in Python cannot run here"),
    }
    found
}

fn interpreter(config: &Config) -> Result<Python, String> {
    let named = config.process.python.as_deref();
    Python::find(named.unwrap_or(Path::new("python3")))
}

fn apart(engine: Arc<dyn Engine>, arguments: Vec<OsString>) -> Arc<dyn Engine> {
    in_a_process(engine, arguments, false)
}

/// An engine whose compiler consists of programs, which write files.
fn of_programs(engine: Arc<dyn Engine>, arguments: [OsString; 3]) -> Arc<dyn Engine> {
    in_a_process(engine, arguments.into(), true)
}

fn in_a_process(engine: Arc<dyn Engine>, arguments: Vec<OsString>, scratch: bool) -> Arc<dyn Engine> {
    let compiler = compile::Options {
        scratch,
        // This very program, whatever has become of its file.
        program: "/proc/self/exe".into(),
        arguments,
        time: COMPILE_TIME,
    };
    Arc::new(compile::Apart::new(engine, compiler))
}

type Found<T> = Result<T, String>;

/// Those of the host that engines use, or why there are none. Each is asked who it is, both at once.
fn compilers(config: &Config) -> (Found<engine_aot::Toolchain>, Found<engine_rwasm::Toolchain>) {
    use engine_aot::Toolchain as Clang;
    use engine_rwasm::Toolchain as Rustc;
    thread::scope(|scope| {
        let clang = scope.spawn(|| config.aot.clang.as_deref().map_or_else(Clang::find, Clang::at));
        let rustc = config.rwasm.rustc.as_deref().map_or_else(Rustc::find, Rustc::at);
        let clang = clang
            .join()
            .unwrap_or_else(|_| Err("looking for it failed".to_owned()));
        (clang, rustc)
    })
}

/// Says whether an engine has its compiler.
fn found<T>(engine: &'static str, compiler: Found<(String, T)>) -> Option<T> {
    match compiler {
        Ok((version, compiler)) => {
            tracing::info!(compiler = version, "the engine {engine} has a compiler");
            Some(compiler)
        }
        Err(reason) => {
            tracing::info!(reason, "there is no engine {engine} here");
            None
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Whether this host has what the engine `process` needs; or what is missing.
pub fn supports_processes() -> Result<(), String> {
    engine_process::supported()
}

/// Which limits of native executables and of functions in Python a node of this configuration keeps here. `Err` says which functions do not run for
/// want of that.
pub fn process_limits(config: &Config) -> Result<String, String> {
    let groups = Groups::make().map_err(|error| error.to_string());
    let counted = Counted::new(
        groups.as_ref().map_err(String::clone),
        config.process.allow_uncounted,
    );
    match counted.refusals() {
        None => Ok(counted.kept()),
        Some(refusals) => Err(refusals),
    }
}

/// A compiler of the host that an engine needs.
#[derive(Clone, Debug)]
pub struct HostCompiler {
    /// The engine.
    pub engine: &'static str,
    /// Where it is and what it says of itself; or what is missing.
    pub found: Result<String, String>,
    /// How to get it.
    pub remedy: &'static str,
}

/// What a node of this configuration would find of them.
pub fn host_compilers(config: &Config) -> Vec<HostCompiler> {
    let python = interpreter(config).map(|python| {
        let (major, minor) = python.version();
        format!("{} (Python {major}.{minor})", python.program().display())
    });
    let (clang, rustc) = compilers(config);
    let needs = |error: io::Error| error.to_string();
    let clang = clang.and_then(|clang| {
        clang.needs().map_err(needs)?;
        Ok(format!("{} ({})", clang.clang().display(), clang.version()))
    });
    let rustc = rustc.and_then(|rustc| {
        rustc.needs().map_err(needs)?;
        Ok(format!(
            "{} ({})",
            rustc.rustc().display(),
            first_line(rustc.version())
        ))
    });
    vec![
        HostCompiler {
            engine: "aot",
            found: clang,
            remedy: "apt-get install clang-22 lld-22, from apt.llvm.org where the distribution has none; or name another one as `clang` \
                     in [aot] of the configuration",
        },
        HostCompiler {
            engine: "rwasm",
            found: rustc,
            remedy: "install Rust by rustup (https://rustup.rs), whose rustc brings its linker along; or name another one as `rustc` in \
                     [rwasm] of the configuration",
        },
        HostCompiler {
            engine: "python",
            found: python,
            remedy: "apt-get install python3, 3.11 or later; or name another one as `python` in [process] of the configuration",
        },
    ]
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
/// for those of `aot`, with bounds and the compiler's path,
const COMPILE_AHEAD: &str = "compile-code-ahead";
/// and, with the same, for those of `rwasm`.
const COMPILE_SAFE: &str = "compile-code-safe";

/// How long compiling one module may take, if it is no larger than most: see [`compile::time_for`].
const COMPILE_TIME: Duration = Duration::from_secs(60);

/// What the program does if its arguments say that a node started it: as a compiler ([`compile::answer`]), as the process from which those of
/// native executables are forked ([`engine_process::answer`]), or as the backend ([`backend::serve`]).
pub fn helper(arguments: &[OsString]) -> Option<ExitCode> {
    if let Some(code) = engine_process::answer(arguments) {
        return Some(code);
    }
    let (first, rest) = arguments.split_first()?;
    if first == outside::SERVE {
        return Some(outside::answer(rest));
    }
    let layout = match first.to_str()? {
        COMPILE => Layout::Guarded,
        COMPILE_DENSE => Layout::Dense,
        COMPILE_AHEAD => return Some(compile_by(rest, ahead_of_time)),
        COMPILE_SAFE => return Some(compile_by(rest, safe_code)),
        _ => return None,
    };
    Some(compile::answer(COMPILE_TIME, None, |pieces| {
        Wasmtime::new(&options(layout, 1, ByteSize(0), pieces))
    }))
}

/// By programs of the host, for an engine with bounds of this name. `prepare` finds them by the compiler's path, and makes the engine later.
fn compile_by<E: Engine, M: FnOnce() -> Result<E, PrepareError>>(
    arguments: &[OsString],
    prepare: impl FnOnce(&str, &Path) -> Result<(Programs, M), String>,
) -> ExitCode {
    // Before anything is read: what its programs need is asked of themselves.
    let prepared = match arguments {
        [bounds, compiler] => prepare(&bounds.to_string_lossy(), Path::new(compiler)),
        _ => Err("it was started with other arguments than a node's".to_owned()),
    };
    let (programs, make) = match prepared {
        Ok((needs, make)) => (Some(needs), Ok(make)),
        Err(reason) => (None, Err(PrepareError::Compiler(reason))),
    };
    compile::answer(COMPILE_TIME, programs, |_| make?())
}

const NO_SUCH_BOUNDS: &str = "it knows no such bounds";

fn ahead_of_time(
    bounds: &str,
    clang: &Path,
) -> Result<(Programs, impl FnOnce() -> Result<Aot, PrepareError> + use<>), String> {
    use engine_aot::{Bounds, Options, Toolchain};
    let options = Options {
        bounds: Bounds::named(bounds).ok_or(NO_SUCH_BOUNDS)?,
        ..Options::default()
    };
    let toolchain = Toolchain::at(clang)?;
    let needs = toolchain
        .needs()
        .map_err(|error| format!("it cannot tell what clang needs: {error}"))?;
    Ok((needs, move || Aot::new(toolchain, &options)))
}

fn safe_code(
    bounds: &str,
    rustc: &Path,
) -> Result<(Programs, impl FnOnce() -> Result<Rwasm, PrepareError> + use<>), String> {
    use engine_rwasm::{Bounds, Options, Toolchain};
    let options = Options {
        bounds: Bounds::named(bounds).ok_or(NO_SUCH_BOUNDS)?,
        ..Options::default()
    };
    let toolchain = Toolchain::at(rustc)?;
    let needs = toolchain
        .needs()
        .map_err(|error| format!("it cannot tell what rustc needs: {error}"))?;
    Ok((needs, move || Rwasm::new(toolchain, &options)))
}
