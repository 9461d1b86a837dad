//! Runs a numerical kernel (`bench/aot/kernels`) compiled to WebAssembly: with our ahead-of-time compilers, or with
//! Wasmtime's compiler alone, with and without epoch checks. The kernel reads the clock itself and says what it took.

use crate::{machine, sandbox};
use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use contract::{Artefact, ByteSize, Code, CodeKind, Digest, Engine, Grant, Input, Step, Until};
use engine_aot::{Aot, Bounds, Options as AotOptions, Toolchain};
use engine_rwasm::Rwasm;
use object::{Object as _, ObjectSection as _};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::{
    fs::{self, File},
    io::{Seek as _, Write as _},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    task::Waker,
    time::{Duration, Instant},
};
use wasmtime::{Caller, Config, Extern, Linker, Module, Store};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// What compiles and runs it.
    #[arg(long, value_enum)]
    compiler: Compiler,
    /// Where compiled code is kept: made if it is missing. Not for Wasmtime, which compiles every time.
    #[arg(long)]
    artefact: Option<PathBuf>,
    /// The core to run on.
    #[arg(long)]
    core: Option<usize>,
    /// As a pure function's, whose NaNs are canonical.
    #[arg(long)]
    pure: bool,
    /// How often the kernel runs; the least time is said.
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// The module.
    module: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Compiler {
    Guard,
    Software,
    Mask,
    None,
    Rwasm,
    RwasmMask,
    Wasmtime,
    WasmtimeEpochs,
}

#[derive(Serialize)]
pub(crate) struct Report {
    /// Name, nanoseconds, checksum.
    said: String,
    /// None if it was compiled before.
    compile_us: Option<f64>,
    /// Of machine code.
    code_bytes: u64,
}

pub(crate) fn run(options: &Options) -> Result<Report> {
    let module =
        fs::read(&options.module).with_context(|| format!("cannot read {}", options.module.display()))?;
    let module = match options.pure {
        true => purify::prepare(&module)?.into_owned(),
        false => module,
    };
    match options.compiler {
        Compiler::Guard => ours(options, &module, &aot(Bounds::Guard)?),
        Compiler::Software => ours(options, &module, &aot(Bounds::Software)?),
        Compiler::Mask => ours(options, &module, &aot(Bounds::Mask)?),
        Compiler::None => ours(options, &module, &aot(Bounds::None)?),
        Compiler::Rwasm => ours(options, &module, &rwasm(engine_rwasm::Bounds::Checked)?),
        Compiler::RwasmMask => ours(options, &module, &rwasm(engine_rwasm::Bounds::Mask)?),
        Compiler::Wasmtime => theirs(options, &module, false),
        Compiler::WasmtimeEpochs => theirs(options, &module, true),
    }
}

/// Bytes of sections that can be executed, in the ELF file that these end with.
fn code_bytes(bytes: &[u8]) -> Result<u64> {
    let begin = bytes
        .windows(4)
        .position(|window| window == b"\x7fELF")
        .context("there is no object in what was compiled")?;
    let elf = object::File::parse(&bytes[begin..])?;
    let code = elf
        .sections()
        .filter(|section| section.kind() == object::SectionKind::Text);
    Ok(code.map(|section| section.size()).sum())
}

fn aot(bounds: Bounds) -> Result<Aot> {
    let toolchain = Toolchain::find().map_err(|reason| anyhow!(reason))?;
    let options = AotOptions {
        bounds,
        ..AotOptions::default()
    };
    Ok(Aot::new(toolchain, &options)?)
}

fn rwasm(bounds: engine_rwasm::Bounds) -> Result<Rwasm> {
    let toolchain = engine_rwasm::Toolchain::find().map_err(|reason| anyhow!(reason))?;
    let options = engine_rwasm::Options {
        bounds,
        ..engine_rwasm::Options::default()
    };
    Ok(Rwasm::new(toolchain, &options)?)
}

fn ours(options: &Options, module: &[u8], engine: &dyn Engine) -> Result<Report> {
    let kept = options.artefact.as_ref().and_then(|path| fs::read(path).ok());
    let (compiled, compile) = match kept {
        Some(kept) => (kept, None),
        None => {
            let begin = Instant::now();
            let compiled = engine.compile(&Code {
                kind: CodeKind::Wasm,
                bytes: module,
                pieces: None,
                background: None,
            })?;
            let compile = begin.elapsed();
            if let Some(path) = &options.artefact {
                fs::write(path, &compiled).with_context(|| format!("cannot write {}", path.display()))?;
            }
            (compiled, Some(compile))
        }
    };
    let mut file: File = tempfile::tempfile()?;
    file.write_all(&compiled)?;
    file.rewind()?;
    let digest = Digest(Sha256::digest(&compiled).into());
    let image = engine.load(Artefact { file, digest })?;
    if let Some(core) = options.core {
        machine::pin(core)?;
    }
    let grant = sandbox::grant(ByteSize::mib(512))?;
    let arguments = vec![options.repeat.to_string()];
    let grant = Arc::new(Grant {
        arguments,
        ..Grant::clone(&grant)
    });
    let answer = Arc::new(Mutex::new(sandbox::Answer::default()));
    let input = Input {
        head: sandbox::head("GET", 1),
        body: Bytes::new().into(),
        response: Box::new(sandbox::Sink(answer.clone())),
        services: None,
    };
    let mut sandbox = image
        .spawn(&grant, input)
        .map_err(|error| anyhow!("cannot make a sandbox: {error:?}"))?;
    loop {
        let until = Until {
            at: Instant::now() + sandbox::QUANTUM,
            asked: &AtomicBool::new(false),
        };
        match sandbox.run(Waker::noop(), until) {
            Step::Done(_) => break,
            Step::Preempted => {}
            Step::Waiting { .. } => bail!("the kernel waits for something"),
            Step::Fault(fault, _) => bail!("{fault}"),
        }
    }
    let body = std::mem::take(&mut answer.lock().unwrap_or_else(PoisonError::into_inner).body);
    Ok(Report {
        said: String::from_utf8(body)?,
        compile_us: compile.map(|time| time.as_secs_f64() * 1e6),
        code_bytes: code_bytes(&compiled)?,
    })
}

/// What a kernel is given and what it wrote.
struct Host {
    arguments: Vec<u8>,
    written: Vec<u8>,
    began: Instant,
}

const SUCCESS: i32 = 0;
const BAD_DESCRIPTOR: i32 = 8;

/// As much of WASI 0.1 as a kernel uses.
fn host_functions(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    const WASI: &str = "wasi_snapshot_preview1";
    linker.func_wrap(
        WASI,
        "args_sizes_get",
        |mut caller: Caller<'_, Host>, count: u32, size: u32| {
            let arguments = &caller.data().arguments;
            let (many, bytes) = (
                arguments.iter().filter(|byte| **byte == 0).count() as u32,
                arguments.len() as u32,
            );
            put(&mut caller, count, &many.to_le_bytes())?;
            put(&mut caller, size, &bytes.to_le_bytes())?;
            wasmtime::Result::Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(
        WASI,
        "args_get",
        |mut caller: Caller<'_, Host>, vector: u32, buffer: u32| {
            let arguments = caller.data().arguments.clone();
            put(&mut caller, buffer, &arguments)?;
            let mut at = 0;
            for (index, one) in arguments.split_inclusive(|byte| *byte == 0).enumerate() {
                put(
                    &mut caller,
                    vector + 4 * index as u32,
                    &(buffer + at).to_le_bytes(),
                )?;
                at += one.len() as u32;
            }
            wasmtime::Result::Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(
        WASI,
        "clock_time_get",
        |mut caller: Caller<'_, Host>, _: u32, _: u64, at: u32| {
            let now = caller.data().began.elapsed().as_nanos() as u64;
            put(&mut caller, at, &now.to_le_bytes())?;
            wasmtime::Result::Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(
        WASI,
        "fd_write",
        |mut caller: Caller<'_, Host>, _: u32, vectors: u32, count: u32, at: u32| {
            let mut whole = 0_u32;
            for index in 0..count {
                let from = word(&mut caller, vectors + 8 * index)?;
                let length = word(&mut caller, vectors + 8 * index + 4)?;
                let bytes = memory(&mut caller)?
                    .data(&caller)
                    .get(from as usize..(from + length) as usize)
                    .ok_or_else(|| wasmtime::Error::msg("it wrote what it does not have"))?
                    .to_vec();
                caller.data_mut().written.extend(bytes);
                whole += length;
            }
            put(&mut caller, at, &whole.to_le_bytes())?;
            wasmtime::Result::Ok(SUCCESS)
        },
    )?;
    // A terminal, so that nothing is kept back: a character device without rights.
    linker.func_wrap(
        WASI,
        "fd_fdstat_get",
        |mut caller: Caller<'_, Host>, _: u32, at: u32| {
            let mut stat = [0; 24];
            stat[0] = 2;
            put(&mut caller, at, &stat)?;
            wasmtime::Result::Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(WASI, "fd_close", |_: u32| SUCCESS)?;
    linker.func_wrap(WASI, "fd_seek", |_: u32, _: i64, _: u32, _: u32| BAD_DESCRIPTOR)?;
    linker.func_wrap(WASI, "proc_exit", |code: i32| -> wasmtime::Result<()> {
        Err(wasmtime::Error::msg(format!("it exited with {code}")))
    })?;
    Ok(())
}

fn memory(caller: &mut Caller<'_, Host>) -> wasmtime::Result<wasmtime::Memory> {
    caller
        .get_export("memory")
        .and_then(Extern::into_memory)
        .ok_or_else(|| wasmtime::Error::msg("it exports no memory"))
}

fn put(caller: &mut Caller<'_, Host>, at: u32, bytes: &[u8]) -> wasmtime::Result<()> {
    let memory = memory(caller)?;
    Ok(memory.write(caller, at as usize, bytes)?)
}

fn word(caller: &mut Caller<'_, Host>, at: u32) -> wasmtime::Result<u32> {
    let mut bytes = [0; 4];
    memory(caller)?.read(&*caller, at as usize, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// A deadline that never comes: what checking for it costs is what is asked.
const NEVER: u64 = 1 << 40;

fn theirs(options: &Options, module: &[u8], epochs: bool) -> Result<Report> {
    let mut config = Config::new();
    config.epoch_interruption(epochs);
    let engine = wasmtime::Engine::new(&config).map_err(|error| anyhow!("{error:#}"))?;
    let begin = Instant::now();
    let module = Module::new(&engine, module).map_err(|error| anyhow!("{error:#}"))?;
    let compile = begin.elapsed();
    let code = code_bytes(&module.serialize().map_err(|error| anyhow!("{error:#}"))?)?;
    if let Some(core) = options.core {
        machine::pin(core)?;
    }
    let mut linker = Linker::new(&engine);
    host_functions(&mut linker).map_err(|error| anyhow!("{error:#}"))?;
    let host = Host {
        arguments: format!("kernel\0{}\0", options.repeat).into_bytes(),
        written: Vec::new(),
        began: Instant::now(),
    };
    let mut store = Store::new(&engine, host);
    if epochs {
        store.set_epoch_deadline(NEVER);
    }
    let run = || -> wasmtime::Result<Vec<u8>> {
        let instance = linker.instantiate(&mut store, &module)?;
        let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
        start.call(&mut store, ())?;
        Ok(store.into_data().written)
    };
    let written = run().map_err(|error| anyhow!("{error:#}"))?;
    ensure!(!written.is_empty(), "the kernel said nothing");
    Ok(Report {
        said: String::from_utf8(written)?,
        compile_us: Some(Duration::as_secs_f64(&compile) * 1e6),
        code_bytes: code,
    })
}
