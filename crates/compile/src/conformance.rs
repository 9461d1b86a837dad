//! What every engine has to show whose compiler consists of programs: that they work in confinement, and make there what they make without one.

use crate::{Apart, Options, answer};
use confine::Programs;
use contract::{Engine, PrepareError, conformance::guest};
use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

/// An engine and its compiler.
pub struct Subject<E> {
    /// Where the compiler is.
    pub compiler: PathBuf,
    /// What its programs need.
    pub needs: Programs,
    /// Makes the engine.
    pub engine: Box<dyn Fn() -> Result<E, PrepareError>>,
}

const TIME: Duration = Duration::from_secs(60);

/// What the program that is its own compiler says first, before the compiler's path.
const COMPILE: &str = "compile-code-confined";

const MODULE: &str = r#"(module
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (func (export "_start") (local $i i32)
        (loop $again
            (i32.store (local.get $i) (i32.mul (local.get $i) (i32.const 7)))
            (local.set $i (i32.add (local.get $i) (i32.const 4)))
            (br_if $again (i32.lt_u (local.get $i) (i32.const 4096))))
        (call $exit (i32.const 3))))"#;

/// All that a test's program does, which must have no harness: it is the compiler, too. It gets a subject by the compiler's path, or finds
/// one; if there is none, that is said.
///
/// # Panics
/// If the engine falls short.
pub fn confined<E: Engine + 'static>(
    subject: impl Fn(Option<&Path>) -> Result<Subject<E>, String>,
) -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == COMPILE) {
        let compiler = arguments.next().map(PathBuf::from);
        let Subject { needs, engine, .. } = subject(compiler.as_deref()).expect("it was there just now");
        return answer(TIME, Some(needs), |_| engine());
    }
    let Subject { compiler, engine, .. } = match subject(None) {
        Ok(subject) => subject,
        Err(reason) => {
            println!("skipped: {reason}");
            return ExitCode::SUCCESS;
        }
    };
    let [here, same] = [engine(), engine()].map(|engine| engine.expect("an engine"));
    let apart = Apart::new(
        Arc::new(same),
        Options {
            program: env::current_exe().expect("this program"),
            arguments: vec![COMPILE.into(), compiler.into()],
            time: TIME,
            scratch: true,
        },
    );
    let code = guest::wasm(MODULE);
    let began = Instant::now();
    let without = guest::compile(&here, &code).expect("compiled in this process");
    let between = Instant::now();
    let confined = guest::compile(&apart, &code).expect("compiled in confinement");
    println!(
        "{}: {} ms in this process, {} ms confined in its own",
        here.name(),
        (between - began).as_millis(),
        between.elapsed().as_millis()
    );
    assert!(without == confined, "the same code, whoever compiled it");
    ExitCode::SUCCESS
}
