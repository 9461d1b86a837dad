//! Files that are written by a program and kept in the repository.

use anyhow::{Context, Result, bail};
use std::{fs, path::Path};

/// What to do with a generated file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write it if it differs.
    Write,
    /// Fail if it differs.
    Check,
}

/// Brings `path` to `content`, or fails when it is not there yet and only a check was asked for.
pub(crate) fn bring(path: &Path, content: &str, mode: Mode, chore: &str) -> Result<&'static str> {
    if fs::read_to_string(path).is_ok_and(|present| present == content) {
        return Ok("fresh");
    }
    if mode == Mode::Check {
        bail!(
            "{} is stale: run `cargo xtask {chore}` and commit what it writes",
            path.display()
        );
    }
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))?;
    Ok("written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_finds_what_is_stale_and_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("generated.txt");
        assert!(bring(&path, "new", Mode::Check, "spec").is_err());
        assert!(!path.exists());
        assert_eq!(bring(&path, "new", Mode::Write, "spec").unwrap(), "written");
        assert_eq!(bring(&path, "new", Mode::Check, "spec").unwrap(), "fresh");
        let error = bring(&path, "newer", Mode::Check, "spec")
            .unwrap_err()
            .to_string();
        assert!(error.contains("cargo xtask spec"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
}
