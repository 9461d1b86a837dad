//! What the host's limits carry.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;

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

/// A pooled sandbox takes up to five memory maps while it lives, and its slot keeps some of them after.
const MAPS_EACH: u64 = 6;
/// What the rest of the node needs.
const MAPS_OTHER: u64 = 8_000;
/// Each reserves 4 GiB and guard pages of 47 bits of address space.
const MOST: u64 = 4_000;

/// How many sandboxes can live at once under `vm.max_map_count`.
pub(crate) fn sandboxes() -> u32 {
    let maps = fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let maps: u64 = maps.unwrap_or(65_530);
    let carried = (maps.saturating_sub(MAPS_OTHER) / MAPS_EACH).clamp(16, MOST);
    u32::try_from(carried).unwrap_or(16)
}
