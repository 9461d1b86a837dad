//! Programs that compilers consist of.

use std::{
    env,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program of this name, on the path.
pub fn on_path(name: &OsStr) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// A file that is mapped when a program starts.
#[derive(Debug, PartialEq, Eq)]
pub struct Library {
    /// Where it is.
    pub path: PathBuf,
    /// Whether it is what maps the others.
    pub loads: bool,
}

/// What the loader would map for this program: it says so in place of running it.
pub fn libraries(program: &Path) -> io::Result<Vec<Library>> {
    let output = Command::new(program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()?;
    Ok(mapped(&String::from_utf8_lossy(&output.stdout)))
}

/// Of `libz.so.1 => /lib/libz.so.1 (0x…)` and `/lib64/ld-linux-x86-64.so.2 (0x…)`, a line each.
fn mapped(text: &str) -> Vec<Library> {
    let line = |line: &str| {
        let line = line.trim();
        let (path, loads) = match line.split_once(" => ") {
            Some((_, path)) => (path, false),
            None => (line, true),
        };
        let (path, _) = path.rsplit_once(" (0x")?;
        path.starts_with('/').then(|| Library {
            path: path.into(),
            loads,
        })
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loader_says_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007f0000000000)\n\tlibz.so.1 => /lib/libz.so.1 (0x00007f0000000000)\n\
                    \tlibno.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f0000000000)\n";
        let library = |path: &str, loads| Library {
            path: path.into(),
            loads,
        };
        let expected = [
            library("/lib/libz.so.1", false),
            library("/lib64/ld-linux-x86-64.so.2", true),
        ];
        assert_eq!(mapped(text), expected);
    }
}
