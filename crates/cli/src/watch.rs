//! What files look like, and when that may have changed.
//!
//! The kernel's notices (inotify) only ring a bell: whether something changed is decided by comparing two looks at the
//! files that the globs match. So a notice that is lost costs a second, and one too many costs a look.

use crate::failure::Failure;
use glob::{MatchOptions, Pattern};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    fs::inotify::{self, CreateFlags, WatchFlags},
    io::{Errno, read},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

/// Files as they were seen: when they were written, and their length.
pub(crate) type Seen = BTreeMap<PathBuf, (SystemTime, u64)>;

/// `*` does not mean `.git`.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Notes how a file looks, if it is one.
pub(crate) fn note(seen: &mut Seen, path: PathBuf) {
    // One that is gone between the listing and now is not there, and that is what is noted.
    if let Ok(metadata) = fs::metadata(&path)
        && metadata.is_file()
        && let Ok(written) = metadata.modified()
    {
        seen.insert(path, (written, metadata.len()));
    }
}

/// Looks at the files below `folder` that the globs match.
pub(crate) fn look(folder: &Path, globs: &[&str]) -> Result<Seen, Failure> {
    let mut seen = Seen::new();
    for glob in globs {
        // A tail of `**` means files to everybody but the library.
        let tail = if glob.ends_with("**") { "/*" } else { "" };
        for path in matching(folder, &format!("{glob}{tail}"), glob)? {
            note(&mut seen, path);
        }
    }
    Ok(seen)
}

/// The folders in which a file can come, go or change that the globs match.
pub(crate) fn folders(folder: &Path, globs: &[&str]) -> Result<Vec<PathBuf>, Failure> {
    let mut folders = vec![folder.to_owned()];
    for glob in globs {
        let whole = if glob.ends_with("**") { glob.len() } else { 0 };
        let ends = glob.match_indices('/').map(|(at, _)| at).chain([whole]);
        for end in ends.filter(|end| *end > 0) {
            folders.extend(
                matching(folder, &glob[..end], glob)?
                    .into_iter()
                    .filter(|path| path.is_dir()),
            );
        }
    }
    folders.sort();
    folders.dedup();
    Ok(folders)
}

fn matching(folder: &Path, pattern: &str, written: &str) -> Result<Vec<PathBuf>, Failure> {
    let below = Pattern::escape(&folder.to_string_lossy());
    let paths = glob::glob_with(&format!("{below}/{pattern}"), OPTIONS).map_err(|error| {
        Failure::usage(
            format!("`watch` has `{written}`, which is not a glob: {}", error.msg),
            "`*` and `?` match within a name, `[a-z]` one character, `**` as a whole name any folders",
        )
    })?;
    // A folder that cannot be read matches nothing.
    Ok(paths.flatten().collect())
}

/// A bell that rings when something happens in a set of folders.
#[derive(Debug)]
pub(crate) struct Bell {
    notices: OwnedFd,
    /// Whether each folder is watched: the kernel's limit may be met.
    complete: bool,
}

/// A change is over when nothing came for so long: editors and version control write several files.
const QUIET: Duration = Duration::from_millis(40);
/// But not longer than this.
const RESTLESS: Duration = Duration::from_millis(400);
/// How often to look where notices cannot be had.
const LOOK: Duration = Duration::from_secs(1);

impl Bell {
    pub(crate) fn new() -> Result<Self, Failure> {
        let notices = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|error| {
            Failure::local(
                format!("cannot watch files: {error}"),
                "raise fs.inotify.max_user_instances with sysctl",
            )
        })?;
        Ok(Self {
            notices,
            complete: true,
        })
    }

    /// Watches these folders, beside those that it watches already.
    pub(crate) fn cover(&mut self, folders: &[PathBuf]) {
        let what = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR;
        let watched = |folder: &PathBuf| inotify::add_watch(&self.notices, folder, what);
        self.complete = folders
            .iter()
            .all(|folder| matches!(watched(folder), Ok(_) | Err(Errno::NOENT | Errno::NOTDIR)));
    }

    /// Waits for at most `patience`; whether it may be worth a look.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let patience = if self.complete {
            patience
        } else {
            patience.min(LOOK)
        };
        if !self.rings(patience) {
            return !self.complete;
        }
        let begun = Instant::now();
        while begun.elapsed() < RESTLESS && self.rings(QUIET) {}
        true
    }

    /// Waits for a notice and takes all that are there.
    fn rings(&self, patience: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&self.notices, PollFlags::IN)];
        if !matches!(poll(&mut fds, Some(&timeout)), Ok(1..)) {
            return false;
        }
        let mut buffer = [0; 16 << 10];
        while matches!(read(&self.notices, &mut buffer[..]), Ok(1..)) {}
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(paths: impl IntoIterator<Item = PathBuf>, folder: &Path) -> Vec<String> {
        paths
            .into_iter()
            .map(|path| path.strip_prefix(folder).unwrap().display().to_string())
            .collect()
    }

    /// In a folder whose own name looks like a glob.
    fn tree() -> (tempfile::TempDir, PathBuf) {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("a[b]*");
        for path in [
            "main.c",
            "io.h",
            "src/one.rs",
            "src/deep/two.rs",
            "src/.hidden/three.rs",
            ".git/four.rs",
            "common/five.h",
        ] {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        (outer, folder)
    }

    #[test]
    fn globs_match_files() {
        let (_outer, folder) = tree();
        let matched = |globs: &[&str]| names(look(&folder, globs).unwrap().into_keys(), &folder).join(" ");
        assert_eq!(matched(&["*.c", "*.h"]), "io.h main.c");
        assert_eq!(matched(&["src/**/*.rs"]), "src/deep/two.rs src/one.rs");
        assert_eq!(matched(&["src/**"]), "src/deep/two.rs src/one.rs");
        assert_eq!(matched(&["**/*.rs"]), "src/deep/two.rs src/one.rs");
        assert_eq!(matched(&["src/*"]), "src/one.rs");
        assert_eq!(matched(&["nothing"]), "");
        let failure = look(&folder, &["a**"]).unwrap_err().to_string();
        assert!(failure.contains("`a**`"), "{failure}");
    }

    #[test]
    fn folders_are_those_where_a_match_can_appear() {
        let (_outer, folder) = tree();
        let found = |globs: &[&str]| names(folders(&folder, globs).unwrap(), &folder).join(" ");
        assert_eq!(found(&["*.c"]), "");
        assert_eq!(found(&["src/**/*.rs", "Cargo.toml"]), " src src/deep");
        assert_eq!(found(&["src/**"]), " src src/deep");
        assert_eq!(found(&["common/*.h"]), " common");
    }

    #[test]
    fn the_bell_rings_for_what_happens_in_a_folder() {
        let (_outer, folder) = tree();
        let mut bell = Bell::new().unwrap();
        bell.cover(&folders(&folder, &["src/*.rs"]).unwrap());
        assert!(!bell.wait(Duration::ZERO));
        fs::write(folder.join("src/one.rs"), "longer").unwrap();
        assert!(bell.wait(Duration::from_secs(30)));
        assert!(!bell.wait(Duration::ZERO), "all notices were taken");
        fs::rename(folder.join("main.c"), folder.join("src/six.rs")).unwrap();
        assert!(bell.wait(Duration::from_secs(30)));
    }
}
