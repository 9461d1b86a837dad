//! A module compiled with the pieces of an earlier one is the module compiled without, byte for byte.

use compile::Pieces;
use contract::conformance::guest::{self, Running, grant};
use millpond_engine_wasmtime::{Options, Wasmtime};
use std::{env, fmt::Write as _, fs, path::Path, sync::Arc};

fn engine(pieces: Option<Arc<Pieces>>) -> Wasmtime {
    let options = Options {
        sandboxes: 1,
        keep_resident: 0,
        pieces,
        ..Options::default()
    };
    Wasmtime::new(&options).expect("the pool can be reserved")
}

fn compile(code: &[u8]) -> Vec<u8> {
    guest::compile(&engine(None), code).expect("it compiles")
}

struct Compiled {
    artefact: Vec<u8>,
    /// For the next.
    kept: Vec<u8>,
    reused: u32,
    made: u32,
}

fn compile_with(kept: &[u8], code: &[u8]) -> Compiled {
    let pieces = Arc::new(Pieces::read(kept.to_vec()));
    let artefact = guest::compile(&engine(Some(Arc::clone(&pieces))), code).expect("it compiles");
    let mut kept = Vec::new();
    pieces.write(&mut kept, u64::MAX).expect("memory can be written");
    Compiled {
        artefact,
        kept,
        reused: pieces.reused(),
        made: pieces.made_anew(),
    }
}

/// Many functions, one text, one number in a function.
fn module(text: &str, number: u32) -> Vec<u8> {
    let mut functions = String::new();
    for n in 0..300_u32 {
        let before = n.saturating_sub(1);
        write!(
            functions,
            "(func $f{n} (param i32) (result i32) (local i64 f64)
                (local.set 1 (i64.mul (i64.extend_i32_u (local.get 0)) (i64.const {n})))
                (local.set 2 (f64.convert_i64_u (local.get 1)))
                (if (i32.gt_u (local.get 0) (i32.const {n}))
                    (then (return (call $f{before} (i32.shr_u (local.get 0) (i32.const 1))))))
                (i32.add (i32.trunc_sat_f64_u (local.get 2)) (i32.load offset={n} (local.get 0))))"
        )
        .expect("a string takes all");
    }
    let length = text.len();
    guest::wasm(&format!(
        r#"(module
            (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (data (i32.const 0) "\20\00\00\00\{length:02x}\00\00\00")
            (data (i32.const 32) "{text}")
            {functions}
            (func (export "_start")
                (drop (call $f299 (i32.const {number})))
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#
    ))
}

#[test]
fn an_edit_of_data_compiles_next_to_nothing() {
    let first = compile_with(b"", &module("before", 1));
    assert_eq!(first.artefact, compile(&module("before", 1)));
    assert_eq!(first.reused, 0);
    assert!(first.made >= 300, "{}", first.made);

    let edited = module("and after", 1);
    let second = compile_with(&first.kept, &edited);
    assert_eq!(second.artefact, compile(&edited));
    // Not all: a few keys depend on what else Cranelift compiled on the same thread before.
    assert!(second.reused >= 100, "{}", second.reused);
    assert!(
        second.made <= first.made * 2 / 3,
        "{} of {}",
        second.made,
        first.made
    );

    let image = guest::image(&engine(None), &edited);
    let mut running = Running::spawn(&image, &grant(), b"");
    running.finish().expect("it answers");
    assert_eq!(running.said().text(), "and after");
}

#[test]
fn an_edit_of_code_compiles_that() {
    let first = compile_with(b"", &module("text", 1));
    let edited = module("text", 2);
    let second = compile_with(&first.kept, &edited);
    assert_eq!(second.artefact, compile(&edited));
    assert!(second.reused >= 100, "{}", second.reused);
    assert!((1..=first.made * 2 / 3).contains(&second.made), "{}", second.made);
}

#[test]
fn damaged_pieces_change_nothing() {
    let code = module("text", 1);
    let (expected, kept) = (compile(&code), compile_with(b"", &code).kept);
    for damage in [0, 1 << 10, 16 << 10, kept.len() / 2, kept.len() - 1] {
        let mut damaged = kept.clone();
        damaged[damage] ^= 1;
        assert_eq!(compile_with(&damaged, &code).artefact, expected, "byte {damage}");
        let torn = compile_with(&kept[..damage], &code);
        assert_eq!(torn.artefact, expected, "the first {damage} bytes");
    }
}

/// What compilers of C and Rust make: `make guests` builds them.
#[test]
fn real_modules_and_components_are_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/guests");
    let modules = ["hello-rust", "cgi", "command-component", "http-component"];
    let mut kept = Vec::new();
    for round in 0..2 {
        for name in modules {
            let path = folder.join(format!("{name}.wasm"));
            let code = fs::read(&path)
                .unwrap_or_else(|error| panic!("{}: {error}; `make guests` builds it", path.display()));
            // One after the other with the same pieces: whatever they share they may share.
            let compiled = compile_with(&kept, &code);
            assert_eq!(compiled.artefact, compile(&code), "{name}, round {round}");
            if round > 0 {
                // How many depends on how Cranelift's threads shared the work, in small modules most of all.
                assert!(compiled.reused > 0, "{name}: {} made", compiled.made);
            }
            kept = compiled.kept;
        }
    }
}

/// What componentize-py and componentize-js make: `make examples` builds them where it can.
#[test]
fn components_with_an_interpreter_are_the_same() {
    if env::var_os("MILLPOND_TEST_LONG").is_none() {
        return eprintln!("skipped: MILLPOND_TEST_LONG is not set");
    }
    for name in ["hello-http-python", "hello-http-js"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../build/examples/{name}.wasm"));
        let Ok(code) = fs::read(&path) else {
            eprintln!("skipped: {} is not built", path.display());
            continue;
        };
        let expected = compile(&code);
        let first = compile_with(b"", &code);
        assert_eq!(first.artefact, expected, "{name}");
        let again = compile_with(&first.kept, &code);
        assert_eq!(again.artefact, expected, "{name}");
        assert!(
            again.made <= first.made / 4,
            "{name}: {} of {}",
            again.made,
            first.made
        );
    }
}
