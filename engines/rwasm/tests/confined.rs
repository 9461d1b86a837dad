//! rustc and its linker in a compiler's confinement: they make what they make without one.
//!
//! This program has no harness, because it is the compiler, too.

use compile::{Apart, Options};
use contract::{Code, CodeKind, Engine as _};
use millpond_engine_rwasm::{Rwasm, Toolchain};
use std::{
    env,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

const LONG: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|argument| argument == "compile-code-rwasm")
    {
        let rustc = PathBuf::from(arguments.next().expect("the path of rustc"));
        let toolchain = Toolchain::at(&rustc).expect("a rustc");
        let needs = toolchain.needs().expect("what it needs");
        return compile::answer(LONG, Some(needs), |_| Rwasm::new(toolchain, &Default::default()));
    }
    let toolchain = match Toolchain::find() {
        Ok(toolchain) => toolchain,
        Err(error) => {
            println!("skipped: {error}");
            return ExitCode::SUCCESS;
        }
    };
    if let Err(error) = toolchain.needs() {
        println!("skipped: {error}");
        return ExitCode::SUCCESS;
    }
    let rustc = toolchain.rustc().to_owned();
    let here = Rwasm::new(toolchain.clone(), &Default::default()).expect("an engine");
    let same = Rwasm::new(toolchain, &Default::default()).expect("an engine");
    let apart = Apart::new(
        Arc::new(same),
        Options {
            program: env::current_exe().expect("this program"),
            arguments: vec!["compile-code-rwasm".into(), rustc.into()],
            time: LONG,
            scratch: true,
        },
    );
    let text = r#"(module
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 1)
        (func (export "_start") (local $i i32)
            (loop $again
                (i32.store (local.get $i) (i32.mul (local.get $i) (i32.const 7)))
                (local.set $i (i32.add (local.get $i) (i32.const 4)))
                (br_if $again (i32.lt_u (local.get $i) (i32.const 4096))))
            (call $exit (i32.const 3))))"#;
    let bytes = wat(text);
    let code = Code {
        kind: CodeKind::Wasm,
        bytes: &bytes,
        pieces: None,
        background: None,
    };
    let began = Instant::now();
    let without = here.compile(&code).expect("compiled in this process");
    let between = Instant::now();
    let confined = apart.compile(&code).expect("compiled in confinement");
    println!(
        "{} ms in this process, {} ms confined in its own",
        (between - began).as_millis(),
        between.elapsed().as_millis()
    );
    assert!(without == confined, "the same code, whoever compiled it");
    println!("rustc in confinement: ok");
    ExitCode::SUCCESS
}

fn wat(text: &str) -> Vec<u8> {
    let buffer = wast::parser::ParseBuffer::new(text).expect("text");
    let mut module = wast::parser::parse::<wast::Wat<'_>>(&buffer).expect("a module");
    module.encode().expect("a module")
}
