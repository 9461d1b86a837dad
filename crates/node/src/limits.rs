//! What the host's limits carry.

use crate::Config;
use engine_wasmtime::{Kept, Layout};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{fmt, fs};

/// Raises this process's limit of open files as far as it may, and returns it.
pub(crate) fn raise_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20);
    // Refused only if it is as high as it may be already.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(most),
            maximum: limit.maximum,
        },
    );
    getrlimit(Resource::Nofile).current.unwrap_or(most)
}

/// What the descriptors of a node are for: of twenty, ten are for connections of clients,
pub(crate) fn connections(files: usize) -> usize {
    files / 2
}

/// eight for calls of functions to others, and the rest for files, engines and the control API. The backend, which has as many, needs two for each of
/// these calls,
pub(crate) fn calls(files: usize) -> usize {
    files / 20 * 8
}

/// and has two of twenty for connections to S3.
pub(crate) fn objects(files: usize) -> usize {
    files / 20 * 2
}

/// Links of sandboxes to the node itself, each a socket and memory: what is left beside connections and calls, and few among maps.
pub(crate) fn links(files: usize) -> usize {
    (files / 40).clamp(16, 1024)
}

/// Linux's default of `vm.max_map_count`.
const MAPS: u64 = 65_530;
/// Maps for the rest of the node: its own, and some of each function that is loaded.
const MAPS_OTHER: u64 = 4_000;
/// Of eight maps for sandboxes, this many are for guarded ones.
const GUARDED_OF_EIGHT: u64 = 7;
/// More are of no use to one process.
const MOST: u64 = 20_000;
const MOST_DENSE: u64 = 60_000;
/// Fewer would make a node that hardly works; what the host then lacks shows when they are made.
const LEAST: u64 = 16;

/// How many sandboxes may be alive at once, running or parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// As many.
    pub sandboxes: u32,
    /// Not more, because of this.
    pub limit: Limit,
}

/// What bounds the number of sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The configuration asks for no more.
    Configured,
    /// A node takes no more.
    Most,
    /// The value of `vm.max_map_count`.
    Maps(u64),
    /// Bytes of address space in one piece.
    AddressSpace(u64),
    /// Bytes of memory that are free for this process.
    Memory(u64),
    /// Bytes that may yet be committed under `vm.overcommit_memory = 2`.
    Committed(u64),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => f.write_str("the configuration asks for no more"),
            Self::Most => f.write_str("a node takes no more"),
            Self::Maps(count) => write!(f, "vm.max_map_count is {count}"),
            Self::AddressSpace(bytes) => write!(f, "the process has {} GiB of address space", bytes >> 30),
            Self::Memory(bytes) => write!(f, "{} MiB of memory are free", bytes >> 20),
            Self::Committed(bytes) => write!(
                f,
                "vm.overcommit_memory is 2 and {} MiB may yet be committed",
                bytes >> 20
            ),
        }
    }
}

impl Limit {
    /// What to do for more.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Configured => "raise `sandboxes` or `dense_sandboxes` of the node's configuration",
            Self::Most => "start another node",
            Self::Maps(_) => {
                "sysctl -w vm.max_map_count=1048576, and the same in /etc/sysctl.d to keep it; then start the node again"
            }
            Self::AddressSpace(_) => {
                "raise ulimit -v if it is set; give functions that wait much `engine = \"wasmtime-dense\"`"
            }
            Self::Memory(_) => "free some memory, add some, or raise the limit of this group of processes",
            Self::Committed(_) => "sysctl -w vm.overcommit_memory=0",
        }
    }
}

/// What the host has.
struct Host {
    maps: u64,
    address_space: u64,
    memory: Option<u64>,
    /// None where the kernel overcommits.
    committed: Option<u64>,
    /// What a pool has beside its sandboxes.
    kept: Kept,
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn number(path: &str) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

/// A value of the text of `/proc/meminfo`, in bytes.
pub fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// Bytes that this process's group may use yet.
fn group() -> Option<u64> {
    let (limit, used) = match number("/sys/fs/cgroup/memory.max") {
        Some(limit) => (limit, number("/sys/fs/cgroup/memory.current")),
        None => (
            number("/sys/fs/cgroup/memory/memory.limit_in_bytes")?,
            number("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
        ),
    };
    Some(limit.saturating_sub(used.unwrap_or(0)))
}

/// Bytes of memory that are free for this process, if that can be told.
pub(crate) fn free_memory() -> Option<u64> {
    let memory = read("/proc/meminfo").unwrap_or_default();
    let free = [meminfo(&memory, "MemAvailable"), group()];
    free.into_iter().flatten().min()
}

impl Host {
    fn look() -> Self {
        let memory = read("/proc/meminfo").unwrap_or_default();
        let strict = number("/proc/sys/vm/overcommit_memory") == Some(2);
        let committed = || {
            let limit = meminfo(&memory, "CommitLimit")?;
            Some(limit.saturating_sub(meminfo(&memory, "Committed_AS")?))
        };
        Self {
            maps: number("/proc/sys/vm/max_map_count").unwrap_or(MAPS),
            address_space: engine_wasmtime::address_space(),
            memory: free_memory(),
            committed: strict.then(committed).flatten(),
            kept: Kept {
                maps: Kept::here().maps + native::kept_maps(),
                ..Kept::here()
            },
        }
    }

    /// Room in a pool that may have so many maps, beside so many other sandboxes; `asked` is what the configuration says.
    fn room(&self, layout: Layout, asked: u32, maps: u64, others: u64) -> Room {
        let each = layout.footprint();
        let kept = u64::from(self.kept.places);
        // A part of everything is left to the rest of the node.
        let memory = self.memory.map(|bytes| {
            let carried = (bytes - bytes / 8) / each.memory;
            (carried.saturating_sub(others), Limit::Memory(bytes))
        });
        let committed = self.committed.map(|bytes| {
            let carried = bytes / 2 / each.committed;
            (carried.saturating_sub(others + kept), Limit::Committed(bytes))
        });
        let most = match (asked, layout) {
            (0, Layout::Guarded) => (MOST, Limit::Most),
            (0, Layout::Dense) => (MOST_DENSE, Limit::Most),
            (some, _) => (u64::from(some), Limit::Configured),
        };
        let maps = (
            maps.saturating_sub(self.kept.maps) / each.maps,
            Limit::Maps(self.maps),
        );
        let space = self.address_space - self.address_space / 64;
        let space = (
            (space / each.address_space).saturating_sub(kept),
            Limit::AddressSpace(self.address_space),
        );
        let bounds = [Some(most), Some(maps), Some(space), memory, committed];
        // The first of equals: nobody has to raise what is no bound.
        let (carried, limit) = bounds
            .into_iter()
            .flatten()
            .min_by_key(|(carried, _)| *carried)
            .unwrap_or(most);
        Room {
            sandboxes: u32::try_from(carried.max(LEAST).min(most.0)).unwrap_or(u32::MAX),
            limit,
        }
    }

    /// Room for guarded and for dense sandboxes.
    fn rooms(&self, config: &Config) -> (Room, Room) {
        let maps = self.maps.saturating_sub(MAPS_OTHER);
        let guarded = self.room(Layout::Guarded, config.sandboxes, maps / 8 * GUARDED_OF_EIGHT, 0);
        let others = u64::from(guarded.sandboxes);
        let taken = others * Layout::Guarded.footprint().maps + self.kept.maps;
        let dense = self.room(
            Layout::Dense,
            config.dense_sandboxes,
            maps.saturating_sub(taken),
            others,
        );
        (guarded, dense)
    }
}

/// How many sandboxes a node with this configuration would have room for, were it started now: guarded ones, and dense ones
/// (`engine = "wasmtime-dense"`) beside them.
pub fn room(config: &Config) -> (Room, Room) {
    Host::look().rooms(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Host = Host {
        maps: MAPS,
        address_space: 84 << 40,
        memory: Some(16 << 30),
        committed: None,
        kept: Kept {
            places: 321,
            maps: 2_438,
        },
    };

    fn rooms(host: &Host) -> (Room, Room) {
        host.rooms(&Config::default())
    }

    #[test]
    fn memory_is_read() {
        let text = "MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:    8192 kB\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(16 << 20));
        assert_eq!(meminfo(text, "MemAvailable"), Some(8 << 20));
        assert_eq!(meminfo(text, "Mem"), None);
    }

    #[test]
    fn the_defaults_of_a_kernel_carry_eight_thousand() {
        let (guarded, dense) = rooms(&HOST);
        assert!(guarded.sandboxes >= 8_000, "{guarded:?}");
        assert_eq!(guarded.limit, Limit::Maps(MAPS));
        assert!(dense.sandboxes >= LEAST as u32, "{dense:?}");
        let maps = 6 * (u64::from(guarded.sandboxes) + u64::from(dense.sandboxes)) + 2 * HOST.kept.maps;
        assert!(maps + MAPS_OTHER <= MAPS, "{guarded:?} {dense:?}");
    }

    #[test]
    fn more_maps_carry_as_many_as_there_is_address_space_for_and_dense_ones_beside() {
        let (guarded, dense) = rooms(&Host {
            maps: 1 << 20,
            ..HOST
        });
        assert_eq!((guarded.sandboxes, guarded.limit), (20_000, Limit::Most));
        assert!(dense.sandboxes >= 40_000, "{dense:?}");
    }

    #[test]
    fn the_scarcest_is_the_bound() {
        let small = Host {
            address_space: 1 << 39,
            ..HOST
        };
        let (guarded, _) = rooms(&small);
        assert!(guarded.sandboxes < 128, "{guarded:?}");
        assert_eq!(guarded.limit, Limit::AddressSpace(1 << 39));
        let (guarded, dense) = rooms(&Host {
            memory: Some(64 << 20),
            ..HOST
        });
        assert_eq!((guarded.sandboxes, guarded.limit), (896, Limit::Memory(64 << 20)));
        assert_eq!(
            (u64::from(dense.sandboxes), dense.limit),
            (LEAST, Limit::Memory(64 << 20))
        );
        let (guarded, _) = rooms(&Host {
            committed: Some(8 << 30),
            ..HOST
        });
        assert_eq!(guarded.limit, Limit::Committed(8 << 30));
        assert!(u64::from(guarded.sandboxes) * Layout::Guarded.footprint().committed < 4 << 30);
        let asked = Config {
            sandboxes: 100,
            dense_sandboxes: 50_000,
            ..Config::default()
        };
        let (guarded, dense) = HOST.rooms(&asked);
        assert_eq!((guarded.sandboxes, guarded.limit), (100, Limit::Configured));
        assert_eq!(dense.limit, Limit::Maps(MAPS));
    }

    #[test]
    fn this_host_has_room() {
        let (guarded, dense) = room(&Config::default());
        assert!(
            guarded.sandboxes > 0 && dense.sandboxes > 0,
            "{guarded:?} {dense:?}"
        );
    }
}
