//! LLVM as it is installed here.

use crate::translate::{Target, Translation};
use confine::Programs;
use native::{
    Refusal,
    tools::{libraries, on_path},
};
use parking_lot::Mutex;
use std::{
    ffi::OsStr,
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// The oldest LLVM whose IR this is. Older ones than 18 do not probe stacks on ARM: a large frame would reach past a stack's guard.
const OLDEST: u32 = if cfg!(target_arch = "aarch64") { 18 } else { 16 };
/// Newer ones than this are tried by the name without a version.
const NEWEST: u32 = 24;

/// What clang is told that compiles IR.
const COMPILE: [&str; 12] = [
    "-x",
    "ir",
    "-",
    "-O3",
    "-fPIC",
    "-ffp-contract=off",
    "-Wno-override-module",
    // What LLVM may make of loops, but for what there is in `library`.
    "-fno-builtin-strlen",
    "-fno-builtin-wcslen",
    "-fno-builtin-bcmp",
    "-fno-builtin-memcmp",
    "-fno-builtin-bzero",
];
/// The longest vectors that the processor has. On Intel's with AVX-512, LLVM takes half of their length, since older ones lowered their clock
/// for more. Measured on one (Xeon, family 6 model 167): the thirty kernels of `make bench-aot` take as long either way (1.005 with SIMD, 0.999
/// without, geometric mean), a product of matrices of 64-bit integers 0.67 of it.
const WIDEST: [&str; 4] = ["-Xclang", "-target-feature", "-Xclang", "-prefer-256-bit"];
/// What clang is told that links.
const LINK: [&str; 4] = [
    "-shared",
    "-nostdlib",
    "-fuse-ld=lld",
    "-Wl,--no-undefined,-z,noexecstack,-z,separate-code,-z,norelro,--hash-style=gnu,--build-id=none",
];

/// A compiler of LLVM's IR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    clang: PathBuf,
    /// What it says of itself.
    version: String,
    /// Whether it runs on a processor of this process's kind, and so can see which one this is.
    native: bool,
}

/// Why code was not compiled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    #[error(transparent)]
    Code(#[from] Refusal),
    #[error("{}: {error}", clang.display())]
    Start { clang: PathBuf, error: io::Error },
    #[error("clang failed: {0}")]
    Failed(String),
}

impl Toolchain {
    /// The newest clang on the path, with its linker. The error says what was looked for.
    pub fn find() -> Result<Self, String> {
        let names = (OLDEST..=NEWEST).rev().map(|version| format!("clang-{version}"));
        let clangs = names.chain(["clang".to_owned()]);
        let found = clangs
            .filter_map(|name| on_path(OsStr::new(&name)))
            .filter_map(Self::ask)
            .find(Self::is_new_enough);
        found.ok_or_else(|| {
            format!(
                "no clang from version {OLDEST} on is on the path: install one with its linker, for example clang-22 and lld-22"
            )
        })
    }

    /// This clang, with its linker. The error says what is wrong with it.
    pub fn at(clang: &Path) -> Result<Self, String> {
        let toolchain =
            Self::ask(clang.to_owned()).ok_or_else(|| format!("{} does not start", clang.display()))?;
        if !toolchain.is_new_enough() {
            let (clang, version) = (clang.display(), &toolchain.version);
            return Err(format!(
                "{clang} is {version}, and clang from version {OLDEST} on is needed"
            ));
        }
        Ok(toolchain)
    }

    /// What a program says that is called as a clang.
    fn ask(clang: PathBuf) -> Option<Self> {
        let output = Command::new(&clang).arg("--version").output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(Self {
            clang,
            version: text.lines().next()?.to_owned(),
            native: is_native(&text),
        })
    }

    fn is_new_enough(&self) -> bool {
        major(&self.version).is_some_and(|major| major >= OLDEST)
    }

    /// Where it is.
    pub fn clang(&self) -> &Path {
        &self.clang
    }

    /// What it says of itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What it needs of the host while it compiles, beside a folder to write to: clang, its linker, what loads both, and their libraries as
    /// the loader finds them. Fails if the loader does not say.
    pub fn needs(&self) -> io::Result<Programs> {
        let clang = fs::canonicalize(&self.clang)?;
        let folder = clang.parent().unwrap_or(Path::new("/"));
        let mut needs = Programs {
            // Where the loader looks libraries up.
            read: vec!["/etc/ld.so.cache".into()],
            // As it was called, too: a link's name is what says where clang is installed.
            execute: vec![self.clang.clone(), clang.clone()],
        };
        if cfg!(target_arch = "aarch64") {
            // What processor this is.
            needs.read.push("/proc/cpuinfo".into());
        }
        for linker in ["ld.lld", "lld"].map(|name| folder.join(name)) {
            if linker.exists() {
                needs.execute.push(linker);
            }
        }
        for program in needs.execute.clone() {
            for library in libraries(&program)? {
                // The loader itself is named without what it was found for, and the kernel runs it.
                let list = if library.loads {
                    &mut needs.execute
                } else {
                    &mut needs.read
                };
                if !list.contains(&library.path) {
                    list.push(library.path);
                }
            }
        }
        Ok(needs)
    }

    /// A shared object of this code, in a folder for what is needed meanwhile. As many pieces at once as there are processors.
    pub(crate) fn compile(&self, code: &Translation<'_, '_>, folder: &Path) -> Result<Vec<u8>, ToolError> {
        let out = folder.join("code.so");
        if code.pieces() == 1 {
            let mut command = self.compiler(code.target(), folder);
            self.run(command.args(LINK).arg("-o").arg(&out), &code.piece(0)?)?;
        } else {
            let objects: Vec<_> = (0..code.pieces())
                .map(|piece| folder.join(format!("{piece}.o")))
                .collect();
            let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
            let work = || {
                loop {
                    let piece = next.fetch_add(1, Ordering::Relaxed);
                    let Some(object) = objects.get(piece) else { break };
                    let mut command = self.compiler(code.target(), folder);
                    command.args(["-c", "-o"]).arg(object);
                    let done = code
                        .piece(piece)
                        .map_err(ToolError::from)
                        .and_then(|ir| self.run(&mut command, &ir));
                    if let Err(error) = done {
                        // The others would be for nothing.
                        next.store(objects.len(), Ordering::Relaxed);
                        failed.lock().get_or_insert(error);
                    }
                }
            };
            thread::scope(|scope| {
                let threads = thread::available_parallelism().map_or(1, usize::from);
                for _ in 1..threads.min(objects.len()) {
                    scope.spawn(work);
                }
                work();
            });
            if let Some(error) = failed.into_inner() {
                return Err(error);
            }
            let mut command = self.command(code.target(), folder);
            self.run(command.args(LINK).arg("-o").arg(&out).args(&objects), "")?;
        }
        fs::read(out).map_err(|error| self.not_started(error))
    }

    fn command(&self, target: Target, folder: &Path) -> Command {
        let mut command = Command::new(&self.clang);
        command
            .arg(format!("--target={}", target.triple()))
            .env("TMPDIR", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// Clang, about to compile IR from its standard input.
    fn compiler(&self, target: Target, folder: &Path) -> Command {
        let mut command = self.command(target, folder);
        command.args(COMPILE);
        if target == Target::HERE && self.native {
            command.arg("-march=native");
            if target == Target::X86_64 {
                command.args(WIDEST);
            }
        }
        command
    }

    fn run(&self, command: &mut Command, input: &str) -> Result<(), ToolError> {
        let mut child = command.spawn().map_err(|error| self.not_started(error))?;
        // Clang reads all of it before it writes anything but the first errors.
        let written = child
            .stdin
            .take()
            .map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
        let output = child
            .wait_with_output()
            .map_err(|error| self.not_started(error))?;
        if !output.status.success() {
            return Err(ToolError::Failed(format!(
                "{}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        written.map_err(|error| self.not_started(error))
    }

    fn not_started(&self, error: io::Error) -> ToolError {
        ToolError::Start {
            clang: self.clang.clone(),
            error,
        }
    }
}

/// Of `Debian clang version 22.1.8 (1~deb12u1)`.
fn major(version: &str) -> Option<u32> {
    let number = version.split("version ").nth(1)?;
    number.split('.').next()?.parse().ok()
}

/// Of `Target: x86_64-pc-linux-gnu`, what it compiles for unless told, which is what it was built for.
fn is_native(text: &str) -> bool {
    let processor = |triple: &str| triple.split('-').next().map(str::to_owned);
    let own = text.lines().find_map(|line| line.strip_prefix("Target: "));
    own.is_some_and(|own| processor(own) == processor(Target::HERE.triple()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate;
    use std::ffi::CString;

    /// What code says that has the declarations of every module linked into it.
    #[test]
    fn division_of_128_bits_is_right() {
        const PROGRAM: &str = r#"
            typedef unsigned __int128 u128;
            typedef __int128 i128;
            u128 __udivti3(u128, u128);
            u128 __umodti3(u128, u128);
            i128 __divti3(i128, i128);
            i128 __modti3(i128, i128);
            static unsigned long long state = 1;
            static u128 any(void) {
                u128 value = 0;
                for (int i = 0; i < 2; i++) {
                    state = state * 6364136223846793005ull + 1442695040888963407ull;
                    value = value << 64 | state;
                }
                return value >> (state >> 57);
            }
            int check(void) {
                for (int i = 0; i < 100000; i++) {
                    u128 n = any(), d = any();
                    if (d == 0) d = 1;
                    u128 q = __udivti3(n, d), r = __umodti3(n, d);
                    if (q * d + r != n || r >= d) return 1;
                    i128 sn = i % 2 ? (i128)n : -(i128)n, sd = i % 3 ? (i128)d : -(i128)d;
                    i128 sq = __divti3(sn, sd), sr = __modti3(sn, sd);
                    if ((u128)sq * (u128)sd + (u128)sr != (u128)sn) return 2;
                    if (sr != 0 && (sr < 0) != (sn < 0)) return 3;
                    u128 rest = sr < 0 ? -(u128)sr : sr, most = sd < 0 ? -(u128)sd : sd;
                    if (rest >= most) return 4;
                }
                return 0;
            }"#;
        let Ok(toolchain) = Toolchain::find() else {
            println!("skipped: there is no LLVM");
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let triple = format!("target triple = \"{}\"\n", Target::HERE.triple());
        fs::write(
            path("a.ll"),
            [&triple, translate::LIBRARY, translate::DECLARATIONS].concat(),
        )
        .unwrap();
        fs::write(path("check.c"), PROGRAM).unwrap();
        let library = path("check.so");
        let built = Command::new(toolchain.clang())
            .args([
                "-O1",
                "-shared",
                "-fPIC",
                "-nostdlib",
                "-fuse-ld=lld",
                "-fno-builtin",
            ])
            .args(["-Wno-override-module", "-o"])
            .args([&library, &path("a.ll"), &path("check.c")])
            .arg(format!("--target={}", Target::HERE.triple()))
            .output()
            .unwrap();
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        let library = CString::new(library.into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: a library that does nothing when it is loaded, stays loaded, and has this function of this type.
        let answer = unsafe {
            let library = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null());
            let check = libc::dlsym(library, c"check".as_ptr());
            assert!(!check.is_null());
            std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> i32>(check)()
        };
        assert_eq!(answer, 0);
    }

    #[test]
    fn a_version_is_read() {
        assert_eq!(major("Debian clang version 22.1.8 (1~deb12u1)"), Some(22));
        assert_eq!(major("clang version 16.0.6"), Some(16));
        assert_eq!(major("cc (Debian 12.2.0) 12.2.0"), None);
    }

    #[test]
    fn a_clang_of_another_processor_is_known() {
        let says = |triple: &str| {
            is_native(&format!(
                "clang version 22.1.8\nTarget: {triple}\nThread model: posix\n"
            ))
        };
        assert!(says(Target::HERE.triple()));
        assert!(!says("riscv64-unknown-linux-gnu"));
        assert!(!is_native("clang version 22.1.8"));
    }
}
