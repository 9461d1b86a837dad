//! Rust as it is installed here.

use crate::translate::Bounds;
use confine::{Programs, Support, Wall};
use native::{
    Refusal,
    tools::{libraries, on_path},
};
use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The oldest rustc that compiles the wrapper: edition 2024, and floats that are cells of bytes in constants.
const OLDEST: u32 = 85;

/// For which processor, as rustc says it.
const TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

/// What rustc is told.
const COMPILE: [&str; 16] = [
    "--edition=2024",
    "--crate-name=code",
    "--crate-type=rlib",
    // An archive would be renamed from another folder, which confinement forbids.
    "--emit=obj",
    "-Ccodegen-units=1",
    "-Copt-level=3",
    "--cap-lints=allow",
    "-Cpanic=abort",
    "-Ctarget-cpu=native",
    "-Crelocation-model=pic",
    "-Cforce-unwind-tables=no",
    "-Coverflow-checks=off",
    "-Cdebuginfo=0",
    "-Cembed-bitcode=no",
    "-Cmetadata=millpond",
    "-Cincremental=",
];

/// What its linker is told.
const LINK: [&str; 15] = [
    "-flavor",
    "gnu",
    "-shared",
    "--gc-sections",
    "--strip-all",
    "--no-undefined",
    "--discard-all",
    "-z",
    "noexecstack",
    "-z",
    "separate-code",
    "-z",
    "norelro",
    "--hash-style=gnu",
    "--build-id=none",
];

/// What an object offers.
const EXPORTS: &str = "{ global: millpond; local: *; };\n";

/// A compiler of Rust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    rustc: PathBuf,
    sysroot: PathBuf,
    /// What it says of itself.
    version: String,
}

/// Why code was not compiled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    #[error(transparent)]
    Code(#[from] Refusal),
    #[error("{}: {error}", program.display())]
    Start { program: PathBuf, error: io::Error },
    #[error("{program} failed: {reason}")]
    Failed { program: &'static str, reason: String },
}

impl Toolchain {
    /// The rustc on the path, with its linker and its library. The error says what was looked for.
    pub fn find() -> Result<Self, String> {
        let rustc = on_path(OsStr::new("rustc"));
        let rustc = rustc.ok_or_else(|| {
            format!("no rustc is on the path: install one from version 1.{OLDEST} on, for example by rustup")
        })?;
        Self::at(&rustc)
    }

    /// This rustc, or the one that it stands for. The error says what is wrong with it.
    pub fn at(rustc: &Path) -> Result<Self, String> {
        let ask = |program: &Path, arguments: &[&str]| {
            let mut command = Command::new(program);
            // A question is no reason to install what a folder's `rust-toolchain.toml` names.
            command.args(arguments).env("RUSTUP_AUTO_INSTALL", "0");
            let output = command.stdin(Stdio::null()).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            (output.status.success() && !text.is_empty()).then(|| text.trim_end().to_owned())
        };
        let no_start = || format!("{} does not start", rustc.display());
        let sysroot = PathBuf::from(ask(rustc, &["--print", "sysroot"]).ok_or_else(no_start)?);
        // What is on the path may only choose one of several.
        let own = sysroot.join("bin/rustc");
        let rustc = if own.exists() { own } else { rustc.to_owned() };
        let version = ask(&rustc, &["-vV"]).ok_or_else(no_start)?;
        let toolchain = Self {
            rustc,
            sysroot,
            version,
        };
        if minor(&toolchain.version).is_none_or(|minor| minor < OLDEST) {
            let first = toolchain.version.lines().next().unwrap_or_default();
            return Err(format!(
                "{} is {first}, and rustc from version 1.{OLDEST} on is needed",
                toolchain.rustc.display()
            ));
        }
        for needed in [toolchain.linker(), toolchain.library()] {
            if !needed.exists() {
                return Err(format!(
                    "{} is not there: rustc has it where rustup installs it",
                    needed.display()
                ));
            }
        }
        Ok(toolchain)
    }

    /// Where it is.
    pub fn rustc(&self) -> &Path {
        &self.rustc
    }

    /// What it says of itself, in several lines.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn linker(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib").join(TARGET).join("bin/rust-lld")
    }

    /// The folder of `core`.
    fn library(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib").join(TARGET).join("lib")
    }

    /// What it needs of the host while it compiles, beside a folder to write to. Fails if the loader does not say, or if it lies where a
    /// confined process, which is not root, cannot look: without a file system of its own, in no folder that is root's alone.
    pub fn needs(&self) -> io::Result<Programs> {
        self.can_be_reached()?;
        let mut needs = Programs {
            read: vec![
                // Where the loader looks libraries up.
                "/etc/ld.so.cache".into(),
                // What processor this is.
                "/proc/cpuinfo".into(),
                self.sysroot.join("lib"),
            ],
            execute: vec![self.rustc.clone(), self.linker()],
        };
        for program in needs.execute.clone() {
            for library in libraries(&program)? {
                // The loader itself is named without what it was found for, and the kernel runs it.
                let list = match library.loads {
                    true => &mut needs.execute,
                    false => &mut needs.read,
                };
                let path = fs::canonicalize(&library.path)?;
                for path in [library.path, path] {
                    if !path.components().any(|part| part.as_os_str() == "..") && !list.contains(&path) {
                        list.push(path);
                    }
                }
            }
        }
        Ok(needs)
    }

    /// Behind a wall of mounts it can be, wherever it lies, if only others may enter it itself.
    fn can_be_reached(&self) -> io::Result<()> {
        const OTHERS_ENTER: u32 = 1;
        let own = fs::metadata("/proc/self")?.uid();
        let library = self.sysroot.join("lib");
        let seen = match Support::probe().offers(Wall::Mounts) {
            true => 1,
            false => usize::MAX,
        };
        for folder in library.ancestors().take(seen) {
            let found = fs::metadata(folder)?;
            let enters = found.mode() & OTHERS_ENTER != 0 || (own != 0 && found.uid() == own);
            if !enters {
                return Err(io::Error::other(format!(
                    "{} is in {}, where only its owner may look: install rustc elsewhere, or let others enter",
                    self.rustc.display(),
                    folder.display()
                )));
            }
        }
        Ok(())
    }

    /// A shared object of this code, in a folder for what is needed meanwhile.
    pub(crate) fn compile(&self, code: &str, bounds: Bounds, folder: &Path) -> Result<Vec<u8>, ToolError> {
        let path = |name: &str| folder.join(name);
        let write = |name: &str, text: &str| {
            fs::write(path(name), text).map_err(|error| self.not_started(&path(name), error))
        };
        write("code.rs", code)?;
        write("exports", EXPORTS)?;
        let mut rustc = Command::new(&self.rustc);
        rustc
            .args(COMPILE)
            .arg(format!("--target={TARGET}"))
            .arg("--sysroot")
            .arg(&self.sysroot)
            .arg(format!("--cfg=bounds=\"{}\"", bounds.name()))
            // The same names wherever it is compiled.
            .args(["code.rs", "-o", "code.o"]);
        self.run("rustc", &mut rustc, folder)?;
        let mut linker = Command::new(self.linker());
        linker
            .args(LINK)
            .args(["--version-script", "exports", "-o", "code.so"])
            .arg("code.o")
            .args(self.archives()?);
        self.run("rust-lld", &mut linker, folder)?;
        fs::read(path("code.so")).map_err(|error| self.not_started(&path("code.so"), error))
    }

    /// Of `core` and of what the compiler calls by itself: hardly ever is anything of them needed.
    fn archives(&self) -> Result<Vec<PathBuf>, ToolError> {
        let folder = self.library();
        let failed = |error| self.not_started(&folder, error);
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let wanted = name.starts_with("libcore-") || name.starts_with("libcompiler_builtins-");
            if wanted && name.ends_with(".rlib") {
                found.push(path);
            }
        }
        found.sort();
        // `core` first, which needs the other.
        found.reverse();
        Ok(found)
    }

    fn run(&self, program: &'static str, command: &mut Command, folder: &Path) -> Result<(), ToolError> {
        let output = command
            .current_dir(folder)
            .env("TMPDIR", folder)
            // In confinement the loader cannot find out where a program lies.
            .env("LD_LIBRARY_PATH", self.sysroot.join("lib"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .map_err(|error| self.not_started(Path::new(program), error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(ToolError::Failed {
            program,
            reason: format!("{}: {}", output.status, said.trim()),
        })
    }

    fn not_started(&self, program: &Path, error: io::Error) -> ToolError {
        ToolError::Start {
            program: program.to_owned(),
            error,
        }
    }
}

/// Of `rustc 1.95.0 (…)`.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("rustc 1.")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read() {
        assert_eq!(
            minor("rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc"),
            Some(95)
        );
        assert_eq!(minor("clang version 16.0.6"), None);
    }
}
