//! The instructions that one ping costs a core, in user mode, by phase.
//!
//! A real node serves a real request while its core's thread is taken through it instruction by instruction (`ptrace`). What is
//! counted does not depend on what else the machine does, and to see a change of one per cent one request is enough. Valgrind's
//! callgrind would say the same, but has no room for a pool of reservations of 4 GiB.
//!
//! An instruction belongs to the crate of the innermost function on the stack that is one of the project's; Wasmtime's are the
//! engine's, compiled code is the guest's, and libraries work for who called them. A string instruction that repeats counts once.

use anyhow::{Context, Result, bail, ensure};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
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
    let requests = split(&steps, &code)
        .map(|steps| count(steps, &code))
        .filter(|phases| phases.contains_key(GUEST))
        .collect::<Vec<_>>();
    ensure!(
        requests.len() >= options.requests / 2,
        "only {} of {} requests were seen whole; is the machine very busy?",
        requests.len(),
        options.requests
    );
    Ok(Report { requests })
}

/// A node on one core, with the function deployed and warm.
struct Node {
    process: Child,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

const PATH: &str = "/function/steps.ping";
const WAIT: Duration = Duration::from_secs(60);

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
        let ended = AtomicBool::new(false);
        let steps = thread::scope(|scope| {
            let client = scope.spawn(|| {
                let asked = (0..requests).try_for_each(|_| ask(&mut stream, PATH));
                ended.store(true, Ordering::SeqCst);
                asked
            });
            let steps = trace(&mut core, &ended);
            client.join().unwrap_or_else(|_| bail!("the client failed"))?;
            steps
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
fn trace(core: &mut Held, ended: &AtomicBool) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    while !ended.load(Ordering::SeqCst) {
        let step = core.here()?;
        if steps.last().is_none_or(|last| last.at != step.at) {
            steps.push(step);
        }
        core.step()?;
    }
    Ok(steps)
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

    fn here(&self) -> Result<Step> {
        // SAFETY: plain numbers, all of which may be zero; the kernel fills exactly this structure.
        #[expect(unsafe_code, reason = "rustix has no ptrace")]
        let registers = unsafe {
            let mut registers: libc::user_regs_struct = std::mem::zeroed();
            let to: *mut libc::user_regs_struct = &raw mut registers;
            if libc::ptrace(libc::PTRACE_GETREGS, self.thread.as_raw_pid(), 0, to) == -1 {
                return Err(std::io::Error::last_os_error().into());
            }
            registers
        };
        Ok(Step {
            at: registers.rip,
            stack: registers.rsp,
            call: registers.rax,
        })
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

/// From one wait for events to the next.
fn split<'a>(steps: &'a [Step], code: &'a CodeMap) -> impl Iterator<Item = &'a [Step]> {
    steps.split(|step| code.is_wait(step))
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
    /// Functions by their addresses, and whose they are.
    functions: Vec<(u64, Option<&'static str>)>,
    is_guest: bool,
}

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

    /// A number for the function at this address, and its phase if it has one of its own.
    fn function(&self, at: u64) -> (usize, Option<&'static str>) {
        *self.known.borrow_mut().entry(at).or_insert_with(|| {
            let index = self.areas.partition_point(|area| area.from <= at);
            let Some(area) = index
                .checked_sub(1)
                .and_then(|index| self.areas.get(index))
                .filter(|area| at < area.to)
            else {
                return (0, None);
            };
            if area.is_guest {
                return (index << 32, Some(GUEST));
            }
            let place = area.functions.partition_point(|(from, _)| *from <= at);
            let phase = place.checked_sub(1).and_then(|place| area.functions[place].1);
            (index << 32 | place, phase)
        })
    }

    fn is_wait(&self, step: &Step) -> bool {
        let mut bytes = [0; 2];
        WAITS.contains(&step.call)
            && self.memory.read_exact_at(&mut bytes, step.at).is_ok()
            && bytes == SYSCALL
    }
}

/// The functions of an executable whose part from this offset is mapped here.
fn functions(path: &Path, from: u64, offset: u64) -> Result<Vec<(u64, Option<&'static str>)>> {
    let bytes = fs::read(path)?;
    let file = object::File::parse(&*bytes)?;
    let segment = file
        .segments()
        .find(|segment| {
            let (start, size) = segment.file_range();
            (start..start + size).contains(&offset)
        })
        .context("nothing of the executable is mapped")?;
    let shift = from.wrapping_sub(segment.address() + (offset - segment.file_range().0));
    let mut functions: Vec<_> = file
        .symbols()
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text)
        .filter_map(|symbol| Some((symbol.address().wrapping_add(shift), phase(symbol.name().ok()?))))
        .collect();
    functions.sort_by_key(|(at, _)| *at);
    functions.dedup_by_key(|(at, _)| *at);
    Ok(functions)
}

/// Whose a function is, by the first of the crates in its name.
fn phase(name: &str) -> Option<&'static str> {
    let name = format!("{:#}", rustc_demangle::demangle(name));
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
