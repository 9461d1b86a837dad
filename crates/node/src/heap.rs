//! What the allocator is told of before a program begins.

use backend::TUNABLES_SAID;
use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    process::Command,
};

const TUNABLES: &str = "GLIBC_TUNABLES";
/// How many freed pieces of a size a thread keeps for itself (`GLIBC Tunables` in glibc's manual).
const KEPT: &str = "glibc.malloc.tcache_count";
/// More than glibc's 7, and the most that all its versions take: as many as a core has requests at once. Pieces are of 1 KiB and less in 64
/// sizes, so this is 4 MiB for a thread that has freed as many of each.
const ENOUGH: u8 = 127;

/// Begins this program anew in this process, with an allocator by which a thread keeps more of what it frees: a core frees as much as all
/// requests of a batch had. glibc reads this only where a program begins, so it is for the first line of one that is a node.
///
/// Returns if the environment says already how much is kept, and where the program cannot be begun anew: it then runs as well, and
/// takes a little longer.
pub fn keep_freed_pieces() {
    // Once: a program with privileges of its own (`setcap(8)`) finds no tunables in its environment, whatever was put there.
    if !cfg!(target_env = "gnu") || env::var_os(TUNABLES_SAID).is_some() {
        return;
    }
    let said = env::var_os(TUNABLES);
    let Some(tunables) = tunables(said.as_deref()) else {
        return;
    };
    let (Ok(program), mut arguments) = (env::current_exe(), env::args_os()) else {
        return;
    };
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // What comes back is an error, and not worth a word.
    let _ = again
        .args(arguments)
        .env(TUNABLES, tunables)
        .env(TUNABLES_SAID, said.unwrap_or_default())
        .exec();
}

/// What is to be said in the place of this, unless it says enough.
fn tunables(said: Option<&OsStr>) -> Option<OsString> {
    let said = said.unwrap_or_default();
    let mut each = said.as_bytes().split(|byte| *byte == b':');
    if each.any(|one| one.starts_with(KEPT.as_bytes())) {
        return None;
    }
    let mut tunables = said.to_owned();
    if !said.is_empty() {
        tunables.push(":");
    }
    tunables.push(format!("{KEPT}={ENOUGH}"));
    Some(tunables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_environment_says_stays() {
        let of = |said: &str| tunables(Some(OsStr::new(said)));
        let kept = "glibc.malloc.tcache_count=127";
        assert_eq!(tunables(None), Some(kept.into()));
        assert_eq!(of(""), Some(kept.into()));
        let others = "glibc.cpu.hwcaps=-ERMS:glibc.malloc.arena_max=1";
        assert_eq!(of(others), Some(format!("{others}:{kept}").into()));
        assert_eq!(of("glibc.malloc.tcache_count=0"), None, "somebody wants it so");
        assert_eq!(of(&format!("{others}:{kept}")), None, "it says enough");
    }
}
