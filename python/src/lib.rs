//! What Python functions run in: the runtime and the modules that they find there.
//!
//! It comes within the program, and is written to a folder of the node's once ([`unpack`]), from where the sandboxes of functions have it
//! read-only.

#![forbid(unsafe_code)]

use include_dir::{Dir, include_dir};
use std::{fs, io, path::Path};

static MODULES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/guest");

/// The extension module `millpond.native`, for every Python from 3.11 on.
static NATIVE: &[u8] = include_bytes!(env!("MILLPOND_PYTHON_NATIVE"));

/// Where the extension module lies.
const NATIVE_FILE: &str = "millpond/native.abi3.so";

/// The module that is a function's zygote.
pub const ZYGOTE: &str = "millpond.zygote";

/// Writes all of it to a folder, which is made: whether anything was not there yet. What is there and different is replaced.
pub fn unpack(folder: &Path) -> io::Result<bool> {
    let mut changed = false;
    for file in files(&MODULES) {
        changed |= write(&folder.join(file.path()), file.contents())?;
    }
    Ok(changed | write(&folder.join(NATIVE_FILE), NATIVE)?)
}

fn files<'a>(folder: &'a Dir<'a>) -> Box<dyn Iterator<Item = &'a include_dir::File<'a>> + 'a> {
    let sources = folder
        .files()
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "py"));
    Box::new(sources.chain(folder.dirs().flat_map(files)))
}

fn write(path: &Path, contents: &[u8]) -> io::Result<bool> {
    if fs::read(path).is_ok_and(|there| there == contents) {
        return Ok(false);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    // Whoever has it mapped keeps what was there.
    let new = path.with_extension("new");
    fs::write(&new, contents)?;
    fs::rename(new, path)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_is_written_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        assert!(unpack(folder.path()).unwrap());
        assert!(!unpack(folder.path()).unwrap());
        let zygote = folder.path().join("millpond/zygote.py");
        fs::write(&zygote, "broken").unwrap();
        assert!(unpack(folder.path()).unwrap());
        assert!(fs::read_to_string(&zygote).unwrap().contains("def main"));
        assert!(
            fs::read(folder.path().join(NATIVE_FILE))
                .unwrap()
                .starts_with(b"\x7fELF")
        );
    }
}
