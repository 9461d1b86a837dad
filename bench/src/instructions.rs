//! The instructions that one ping costs a core, in user mode, by phase.
//!
//! A real node serves a real request while its core's thread is taken through it instruction by instruction (`ptrace`). What is
//! counted does not depend on what else the machine does, nor on how long the steps take ([`clock`]), and to see a change of one per cent one request is enough. Valgrind's
//! callgrind would say the same, but has no room for a pool of reservations of 4 GiB.
//!
//! An instruction belongs to the crate of the innermost function on the stack that is one of the project's; Wasmtime's are the
//! engine's, compiled code is the guest's, and libraries work for who called them. A string instruction that repeats counts once.

mod clock;

use anyhow::{Context, Result, bail, ensure};
use clock::Clock;
use libc::user_regs_struct as Registers;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SegmentFlags};
use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, waitpid},
};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The command `millpond`.
    #[arg(long, default_value = "target/release/millpond")]
    millpond: PathBuf,
    /// The function: a WebAssembly command that answers without a request's body.
    #[arg(long, default_value = "build/guests/ping.wasm")]
    module: PathBuf,
    /// Requests that are stepped through.
    #[arg(long, default_value_t = 9)]
    requests: usize,
}

#[derive(Serialize)]
pub(crate) struct Report {
    /// For each request, what each phase took.
    requests: Vec<BTreeMap<&'static str, u64>>,
    /// What each function itself took of the last of them.
    functions: BTreeMap<String, u64>,
}

/// The phase of what belongs to none.
const OTHERS: &str = "libraries";
const GUEST: &str = "guest";

/// Crates, and whose phase their functions are.
const PHASES: [(&str, &str); 13] = [
    ("millpond_gateway", "gateway"),
    ("millpond_trailers", "gateway"),
    ("millpond_flow", "gateway"),
    ("millpond_dispatcher", "dispatcher"),
    ("millpond_tenants", "dispatcher"),
    ("millpond_policy", "policy"),
    ("millpond_worker", "worker"),
    ("millpond_telemetry", "telemetry"),
    ("millpond_wasi", "wasi"),
    ("millpond_engine_wasmtime", "engine"),
    ("wasmtime", "engine"),
    ("millpond_fresh", "engine"),
    ("httparse", "gateway"),
];

pub(crate) fn run(options: &Options) -> Result<Report> {
    let node = Node::start(options)?;
    let steps = node.step(options.requests)?;
    let code = CodeMap::of(node.process.id())?;
    let (whole, requests): (Vec<_>, Vec<_>) = split(&steps, &code)
        .map(|steps| (steps, count(steps, &code)))
        .filter(|(_, phases)| phases.contains_key(GUEST))
        .unzip();
    ensure!(
        requests.len() >= options.requests / 2,
        "only {} of {} requests were seen whole; is the machine very busy?",
        requests.len(),
        options.requests
    );
    let mut functions = BTreeMap::new();
    for step in whole.last().into_iter().copied().flatten() {
        *functions.entry(code.name(step.at)).or_insert(0) += 1;
    }
    Ok(Report { requests, functions })
}

/// A node on one core, with the function deployed and warm.
struct Node {
    process: Child,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

const PATH: &str = "/function/steps.ping";
const WAIT: Duration = Duration::from_secs(60);
/// libc chooses loops by what the processor can do. With these it chooses the same ones on all that have AVX2.
const LOOPS: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-RTM,-Prefer_No_VZEROUPPER";

impl Node {
    fn start(options: &Options) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let module = fs::canonicalize(&options.module)
            .with_context(|| format!("cannot find {}; `make guests` makes it", options.module.display()))?;
        let manifest = format!(
            "[application]\nname = \"steps\"\n\n[function.ping]\nsource = {}\nengine = \"wasmtime\"\nmemory = \"1MiB\"\n",
            serde_json::to_string(&module)?
        );
        fs::write(folder.path().join("millpond.toml"), manifest)?;
        let (address, admin) = (free_address()?, free_address()?);
        let mut command = Command::new(&options.millpond);
        command
            .args(["serve", "--cores", "0", "--listen", &address.to_string()])
            .args(["--admin", &admin.to_string(), "--data"])
            .arg(folder.path().join("data"));
        let process = command
            .env("GLIBC_TUNABLES", LOOPS)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", options.millpond.display()))?;
        let node = Self {
            process,
            address,
            folder,
        };
        let end = Instant::now() + WAIT;
        while node.ask("/readyz").is_err() {
            ensure!(Instant::now() < end, "the node does not answer");
            thread::sleep(Duration::from_millis(5));
        }
        let deployed = Command::new(&options.millpond)
            .arg("deploy")
            .arg(node.folder.path())
            .env("MILLPOND_ADMIN", format!("http://{admin}"))
            .output()?;
        ensure!(
            deployed.status.success(),
            "`millpond deploy` failed: {}",
            String::from_utf8_lossy(&deployed.stderr)
        );
        Ok(node)
    }

    fn ask(&self, path: &str) -> Result<()> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(WAIT))?;
        ask(&mut stream, path)
    }

    /// The thread of this name.
    fn thread(&self, name: &str) -> Result<Pid> {
        for entry in fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let entry = entry?;
            let its = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            if its.trim() == name {
                let id = Pid::from_raw(entry.file_name().to_string_lossy().parse()?);
                return id.context("no thread has this number");
            }
        }
        bail!("the node has no thread `{name}`")
    }

    /// Steps its core through so many requests.
    fn step(&self, requests: usize) -> Result<Vec<Step>> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.set_nodelay(true)?;
        for _ in 0..2_000 {
            ask(&mut stream, PATH)?;
        }
        let (core, ticker) = (self.thread("core-0")?, self.thread("ticker")?);
        // To the ticker, a guest that is stepped through takes very long.
        let held = Held::new(ticker)?;
        let mut core = Held::new(core)?;
        let clock = Clock::of(self.process.id())?;
        let ended = AtomicBool::new(false);
        let steps = thread::scope(|scope| {
            let client = scope.spawn(|| {
                let asked = (0..requests).try_for_each(|_| ask(&mut stream, PATH));
                ended.store(true, Ordering::SeqCst);
                asked
            });
            let steps = trace(&mut core, clock, &ended);
            let asked = client.join().unwrap_or_else(|_| bail!("the client failed"));
            // Without steps nobody answers the client, either.
            steps.and_then(|steps| asked.map(|()| steps))
        })?;
        drop(held);
        Ok(steps)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// One request on a connection, and its answer.
fn ask(stream: &mut TcpStream, path: &str) -> Result<()> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")?;
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer)?;
    ensure!(
        answer[..length].starts_with(b"HTTP/1.1 200"),
        "not the answer that was expected: {}",
        String::from_utf8_lossy(&answer[..length])
    );
    Ok(())
}

/// Where a thread was.
struct Step {
    at: u64,
    stack: u64,
    /// The number of the system call, if it is one.
    call: u64,
}

/// The end of a run is noticed when the thread comes back from where it waits, which it does each second.
fn trace(core: &mut Held, mut clock: Clock, ended: &AtomicBool) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    while !ended.load(Ordering::SeqCst) {
        let here = core.here()?;
        clock.watch(&here, steps.len())?;
        if steps.last().is_none_or(|last| last.at != here.rip) {
            steps.push(Step {
                at: here.rip,
                stack: here.rsp,
                call: here.rax,
            });
        }
        core.step()?;
    }
    Ok(clock.without_repeats(steps))
}

/// A thread of another process that is stopped, unless it is told to step.
struct Held {
    thread: Pid,
    /// To be delivered with the next step.
    signal: i32,
}

/// `__WALL` of waitpid(2): threads, too.
const ALL: WaitOptions = WaitOptions::from_bits_retain(0x4000_0000);

impl Held {
    fn new(thread: Pid) -> Result<Self> {
        request(libc::PTRACE_SEIZE, thread, 0)
            .context("cannot trace the node; `ptrace` must be allowed (kernel.yama.ptrace_scope, seccomp)")?;
        request(libc::PTRACE_INTERRUPT, thread, 0)?;
        waitpid(Some(thread), ALL)?;
        Ok(Self { thread, signal: 0 })
    }

    fn here(&self) -> Result<Registers> {
        // SAFETY: plain numbers, all of which may be zero; the kernel fills exactly this structure.
        #[expect(unsafe_code, reason = "rustix has no ptrace")]
        unsafe {
            let mut registers: Registers = std::mem::zeroed();
            let to: *mut Registers = &raw mut registers;
            if libc::ptrace(libc::PTRACE_GETREGS, self.thread.as_raw_pid(), 0, to) == -1 {
                return Err(std::io::Error::last_os_error().into());
            }
            Ok(registers)
        }
    }

    fn step(&mut self) -> Result<()> {
        request(
            libc::PTRACE_SINGLESTEP,
            self.thread,
            std::mem::take(&mut self.signal),
        )?;
        let status = loop {
            match waitpid(Some(self.thread), ALL) {
                Ok(Some((_, status))) => break status,
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        match status.stopping_signal() {
            Some(signal) if signal == Signal::TRAP.as_raw() => Ok(()),
            Some(signal) => {
                self.signal = signal;
                Ok(())
            }
            None => bail!("the node's core has ended: {status:?}"),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Its process could not be waited for otherwise.
        let _ = request(libc::PTRACE_DETACH, self.thread, 0);
    }
}

fn request(what: libc::c_uint, thread: Pid, data: i32) -> Result<()> {
    // SAFETY: none of these requests reads or writes memory of this process.
    #[expect(unsafe_code, reason = "rustix has no ptrace")]
    let result = unsafe { libc::ptrace(what, thread.as_raw_pid(), 0, i64::from(data)) };
    ensure!(result != -1, "ptrace: {}", std::io::Error::last_os_error());
    Ok(())
}

/// From one wait for events to the next; the end of the run, which comes amid what follows the last answer, is nothing whole.
fn split<'a>(steps: &'a [Step], code: &'a CodeMap) -> impl Iterator<Item = &'a [Step]> {
    let end = steps.iter().rposition(|step| code.is_wait(step)).unwrap_or(0);
    steps[..end].split(|step| code.is_wait(step))
}

/// What of these steps is whose.
fn count(steps: &[Step], code: &CodeMap) -> BTreeMap<&'static str, u64> {
    let mut phases = BTreeMap::new();
    // Functions that were entered and not left, each with its phase.
    let mut stack: Vec<(usize, &'static str)> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let function = code.function(step.at);
        let entered = index > 0 && {
            let before = &steps[index - 1];
            let far = !(1..16).contains(&step.at.wrapping_sub(before.at));
            if far && step.stack == before.stack.wrapping_add(8) && stack.len() > 1 {
                stack.pop();
            }
            far && step.stack == before.stack.wrapping_sub(8)
        };
        // A jump into another function takes its caller's place.
        let stays = stack.last().is_some_and(|(its, _)| *its == function.0);
        if entered || !stays {
            if !entered {
                stack.pop();
            }
            let outer = stack.last().map_or(OTHERS, |(_, phase)| phase);
            stack.push((function.0, function.1.unwrap_or(outer)));
        }
        let phase = stack.last().map_or(OTHERS, |(_, phase)| phase);
        *phases.entry(phase).or_insert(0) += 1;
    }
    phases
}

/// What lies where in the node's memory.
struct CodeMap {
    memory: File,
    areas: Vec<Area>,
    known: std::cell::RefCell<HashMap<u64, (usize, Option<&'static str>)>>,
}

struct Area {
    from: u64,
    to: u64,
    /// The file that is mapped, or what the kernel says in its place.
    name: String,
    functions: Vec<Function>,
    is_guest: bool,
}

impl Area {
    /// The last of so many functions.
    fn last(&self, of: usize) -> Option<&Function> {
        self.functions.get(of.checked_sub(1)?)
    }
}

struct Function {
    at: u64,
    name: String,
    phase: Option<&'static str>,
}

const PAGE: u64 = 4096;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `epoll_wait`, `epoll_pwait`, `epoll_pwait2`.
const WAITS: [u64; 3] = [232, 281, 441];

impl CodeMap {
    fn of(process: u32) -> Result<Self> {
        let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
        let own = fs::read_link(format!("/proc/{process}/exe"))?;
        let mut areas = Vec::new();
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (Some(range), Some(rights), Some(offset)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            if !rights.contains('x') {
                continue;
            }
            let name = words.nth(2).unwrap_or_default();
            let (from, to) = range.split_once('-').context("no range of addresses")?;
            let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
            let functions = if Path::new(name) == own {
                functions(&own, from, u64::from_str_radix(offset, 16)?)?
            } else {
                Vec::new()
            };
            // Code that Wasmtime mapped; libraries have a name, and so has the kernel's own page.
            let is_guest = !name.starts_with('[') && !name.contains(".so") && Path::new(name) != own;
            areas.push(Area {
                from,
                to,
                name: name.to_owned(),
                functions,
                is_guest,
            });
        }
        areas.sort_by_key(|area| area.from);
        Ok(Self {
            memory: File::open(format!("/proc/{process}/mem"))?,
            areas,
            known: HashMap::new().into(),
        })
    }

    /// The area of this address with its number, and how many of its functions begin at the address or before.
    fn place(&self, at: u64) -> Option<(usize, &Area, usize)> {
        let index = self
            .areas
            .partition_point(|area| area.from <= at)
            .checked_sub(1)?;
        let area = self.areas.get(index).filter(|area| at < area.to)?;
        let before = area.functions.partition_point(|function| function.at <= at);
        Some((index, area, before))
    }

    /// A number for the function at this address, and its phase if it has one of its own.
    fn function(&self, at: u64) -> (usize, Option<&'static str>) {
        *self.known.borrow_mut().entry(at).or_insert_with(|| {
            let Some((index, area, before)) = self.place(at) else {
                return (0, None);
            };
            let phase = match area.is_guest {
                true => Some(GUEST),
                false => area.last(before).and_then(|function| function.phase),
            };
            (index << 32 | before, phase)
        })
    }

    fn name(&self, at: u64) -> String {
        match self.place(at) {
            None => "?".to_owned(),
            Some((_, area, _)) if area.is_guest => GUEST.to_owned(),
            Some((_, area, before)) => match area.last(before) {
                Some(function) => function.name.clone(),
                None => area.name.rsplit('/').next().unwrap_or_default().to_owned(),
            },
        }
    }

    fn is_wait(&self, step: &Step) -> bool {
        let mut bytes = [0; 2];
        WAITS.contains(&step.call)
            && self.memory.read_exact_at(&mut bytes, step.at).is_ok()
            && bytes == SYSCALL
    }
}

/// The functions of an executable whose part from this offset is mapped here.
fn functions(path: &Path, from: u64, offset: u64) -> Result<Vec<Function>> {
    let bytes = fs::read(path)?;
    let file = object::File::parse(&*bytes)?;
    // What is mapped begins with a page, and the end of the segment before may lie on that.
    let segment = file
        .segments()
        .filter(|segment| matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & object::elf::PF_X != 0))
        .find(|segment| {
            let (start, size) = segment.file_range();
            start - start % PAGE <= offset && offset < start + size
        })
        .context("nothing of the executable is mapped")?;
    let shift = from.wrapping_sub((segment.address() + offset).wrapping_sub(segment.file_range().0));
    let mut functions: Vec<_> = file
        .symbols()
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text)
        .filter_map(|symbol| {
            let name = format!("{:#}", rustc_demangle::demangle(symbol.name().ok()?));
            Some(Function {
                at: symbol.address().wrapping_add(shift),
                phase: phase(&name),
                name,
            })
        })
        .collect();
    functions.sort_by_key(|function| function.at);
    functions.dedup_by_key(|function| function.at);
    Ok(functions)
}

/// Whose a function is, by the first of the crates in its name.
fn phase(name: &str) -> Option<&'static str> {
    PHASES
        .iter()
        .filter_map(|(crate_name, phase)| Some((name.find(crate_name)?, *phase)))
        .min_by_key(|(at, _)| *at)
        .map(|(_, phase)| phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_where_they_are_mapped() {
        let code = CodeMap::of(std::process::id()).unwrap();
        for function in [
            functions_are_where_they_are_mapped as *const () as u64,
            run as *const () as u64,
        ] {
            let known = |area: &Area| area.functions.iter().any(|known| known.at == function);
            assert!(code.areas.iter().any(known), "{function:x}");
        }
    }

    #[test]
    fn functions_belong_to_crates() {
        for (name, whose) in [
            ("millpond_gateway::edge::Edge::take", Some("gateway")),
            (
                "<millpond_policy::shares::Shares<P> as millpond_contract::policy::Policy>::put",
                Some("policy"),
            ),
            (
                "core::ptr::drop_in_place<millpond_wasi::command::Command>",
                Some("wasi"),
            ),
            ("wasmtime::runtime::fiber::resume_fiber", Some("engine")),
            ("alloc::vec::Vec<T,A>::push", None),
        ] {
            assert_eq!(phase(name), whose, "{name}");
        }
    }
}
