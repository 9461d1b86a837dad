//! What the kernel says about cores and processes.

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::{collections::HashMap, fs, time::Duration};

/// Ties this thread, and the threads and processes it starts from now on, to one core.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        bail!("there is no core {core}");
    }
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on core {core}; see `nproc`"))
}

/// The CPU time of this thread.
pub(crate) fn own_cpu_time() -> Duration {
    read(rustix::time::ClockId::ThreadCPUTime)
}

/// The CPU time of this process, all its threads.
pub(crate) fn whole_cpu_time() -> Duration {
    read(rustix::time::ClockId::ProcessCPUTime)
}

fn read(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_nanos(count.saturating_mul(1_000_000_000 / per_second))
}

/// The CPU time of a process, all its threads, its living descendants and those it has waited for.
pub(crate) fn tree_cpu_time(root: u32) -> Result<Duration> {
    let mut parents = HashMap::new();
    let mut used = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // It may have ended since the folder was read.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        // proc(5): the name in parentheses may hold anything, so fields count from after the last one.
        let Some((_, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let fields: Vec<&str> = rest.split(' ').collect();
        let field = |n: usize| {
            fields
                .get(n - 3)
                .and_then(|text| text.parse::<u64>().ok())
                .unwrap_or(0)
        };
        parents.insert(pid, u32::try_from(field(4)).unwrap_or(0));
        used.insert(pid, field(14) + field(15) + field(16) + field(17));
    }
    if !used.contains_key(&root) {
        bail!("process {root} does not run");
    }
    let belongs = |mut pid: u32| {
        // A chain longer than this is one that changed while it was read.
        for _ in 0..64 {
            if pid == root {
                return true;
            }
            match parents.get(&pid) {
                Some(&parent) => pid = parent,
                None => return false,
            }
        }
        false
    };
    Ok(ticks(
        used.iter()
            .filter(|(pid, _)| belongs(**pid))
            .map(|(_, used)| used)
            .sum(),
    ))
}

/// How long a core has been idle since the machine started.
pub(crate) fn idle_time(core: usize) -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let name = format!("cpu{core}");
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&name));
    let fields: Vec<u64> = line
        .with_context(|| format!("there is no core {core}"))?
        .split(' ')
        .skip(1)
        .flat_map(str::parse)
        .collect();
    Ok(ticks(
        fields.get(3).copied().unwrap_or(0) + fields.get(4).copied().unwrap_or(0),
    ))
}

/// What a process has of memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) addresses: u64,
}

/// What this process has.
pub(crate) fn memory() -> Result<Memory> {
    let status = fs::read_to_string("/proc/self/statm")?;
    let mut pages = status.split(' ').map(|number| number.trim().parse::<u64>());
    let mut next = || {
        pages
            .next()
            .context("the kernel does not say what memory there is")?
            .context("no number")
    };
    let size = rustix::param::page_size() as u64;
    let addresses = next()? * size;
    Ok(Memory {
        resident: next()? * size,
        addresses,
    })
}
