//! What the loader takes of objects, and what not.

use crate::{Target, Toolchain, toolchain};
use native::{
    arena::Arena,
    object::{Object, ObjectError},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use std::{fs, io::Write as _, path::Path, process::Command};

/// What every object has: an image of no function but the library.
const IMAGE: &str = r#"
    static void *library[3] __attribute__((used));
    __asm__(".section .rodata\n.globl millpond\n.type millpond,@object\n.align 4\nmillpond:\n.long library-millpond\n.size millpond,4\n.text");
"#;

/// Compiles C as the toolchain compiles IR, but for what a test adds.
fn object(toolchain: &Toolchain, source: &str, more: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (code, out) = (folder.path().join("code.c"), folder.path().join("code.so"));
    fs::write(&code, format!("{IMAGE}\n{source}")).unwrap();
    let done = Command::new(toolchain.clang())
        .args([
            "-O1",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-nostdlib",
            "-fuse-ld=lld",
            "-o",
        ])
        .args([
            out.as_path(),
            Path::new("-Wl,-z,noexecstack,-z,separate-code,-z,norelro,--hash-style=gnu,--build-id=none"),
            &code,
        ])
        .arg(format!("--target={}", Target::HERE.triple()))
        .args(more)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    fs::read(out).unwrap()
}

/// In an arena, and without one.
fn load(bytes: &[u8]) -> Result<[Object; 2], ObjectError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let load = |arena| Object::load(&file, 0, bytes, 0, arena);
    match (load(Arena::new().as_ref()), load(None)) {
        (Ok(one), Ok(other)) => Ok([one, other]),
        (Err(one), Err(other)) => {
            assert_eq!(one.to_string(), other.to_string());
            Err(one)
        }
        (one, other) => panic!("{one:?} in an arena, {other:?} without one"),
    }
}

#[test]
fn an_object_that_asks_for_nothing_is_loaded() {
    let Some(toolchain) = toolchain() else { return };
    let plain = object(&toolchain, "int two(void) { return 2; } int zeros[10000];", &[]);
    load(&plain).unwrap();
}

#[test]
fn an_object_that_asks_for_more_is_refused() {
    let Some(toolchain) = toolchain() else { return };
    const EXPORT: &str = "__attribute__((visibility(\"default\")))";
    for (source, more, named) in [
        (
            "__attribute__((constructor)) static void first(void) { *(volatile int *)library = 0; }",
            &[][..],
            "dynamic entry of type 0x1",
        ),
        (
            "__attribute__((destructor)) static void last(void) { *(volatile int *)library = 0; }",
            &[],
            "dynamic entry of type 0x1",
        ),
        (
            "int one(void) { return 1; }",
            &["-Wl,--no-as-needed,-soname,other", "-lc"],
            "dynamic entry of type 0x1",
        ),
        (
            "int one(void) { return 1; }",
            &["-Wl,-soname,other"],
            "dynamic entry of type 0xe",
        ),
        (
            "__thread int own; int *get(void) { return &own; }",
            &[],
            "segment of type 0x7",
        ),
        (
            "extern int other(void); int one(void) { return other(); }",
            &[],
            "dynamic entry of type 0x17",
        ),
        ("EXPORT int one(void) { return 1; }", &[], "a symbol `one`"),
        (
            "int one(void) { return 1; } int (*kept)(void) __attribute__((used)) = one;",
            &["-DKEPT"],
            "",
        ),
        (
            "static int one(void) { return 1; } static int (*choose(void))(void) { return one; }
             EXPORT int chosen(void) __attribute__((ifunc(\"choose\")));",
            &[],
            "",
        ),
        ("int one(void) { return 1; }", &["-Wl,--omagic"], ""),
    ] {
        let source = source.replace("EXPORT", EXPORT);
        let result = load(&object(&toolchain, &source, more));
        if more == ["-DKEPT"] {
            // By its own address it may be relocated.
            result.unwrap();
            continue;
        }
        let error = result
            .err()
            .unwrap_or_else(|| panic!("{source} {more:?} is loaded"))
            .to_string();
        assert!(error.contains(named), "{source} {more:?}: {error}");
    }
}

#[test]
fn damage_is_an_error_and_nothing_worse() {
    let Some(toolchain) = toolchain() else { return };
    let whole = object(
        &toolchain,
        "int two(void) { return 2; } int (*kept)(void) __attribute__((used)) = two;",
        &[],
    );
    for length in (0..whole.len()).step_by(61) {
        // What lies behind the segments may go.
        if let Err(error) = load(&whole[..length]) {
            assert!(!error.to_string().is_empty());
        }
    }
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..5_000 {
        let mut bytes = whole.clone();
        for _ in 0..random.random_range(1..4) {
            // Where the tables are.
            let at = random.random_range(0..bytes.len().min(4096));
            bytes[at] = random.random();
        }
        let _ = load(&bytes);
    }
}
