//! A compiler that somebody took over: what it can still do.

use confine::{Support, Wall};
use contract::{Artefact, Code, CodeKind, CoreId, Engine, Image, PrepareError};
use millpond_compile::{Apart, BACKGROUND, Options, UNKEPT};
use std::{
    fs,
    io::{Read as _, Write as _},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const ATTEMPT: &str = env!("CARGO_BIN_EXE_compile-attempt");

struct Unused;

impl Engine for Unused {
    fn name(&self) -> &'static str {
        "unused"
    }
    fn fingerprint(&self) -> &str {
        "none"
    }
    fn compile(&self, _: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        Err(PrepareError::Compiler("it was called in this process".into()))
    }
    fn load(&self, _: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        Err(PrepareError::Artefact("nothing loads here".into()))
    }
    fn preempt(&self, _: CoreId) {}
}

fn compile(programs: bool, time: Duration, code: &str) -> Result<Vec<u8>, PrepareError> {
    let options = Options {
        program: ATTEMPT.into(),
        arguments: programs.then(|| "programs".into()).into_iter().collect(),
        time,
        scratch: programs,
    };
    Apart::new(Arc::new(Unused), options).compile(&Code {
        kind: CodeKind::Wasm,
        bytes: code.as_bytes(),
        pieces: None,
        background: None,
    })
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn it_compiles() {
    let code = format!("echo {}", "x".repeat(1 << 20));
    for programs in [false, true] {
        assert_eq!(compile(programs, LONG, &code).unwrap(), code.as_bytes());
    }
}

#[test]
fn it_has_no_files_and_no_network() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = format!("connect {}", listener.local_addr().unwrap());
    for programs in [false, true] {
        for code in [
            "read /etc/passwd",
            "read /proc/self/environ",
            "read /etc/hostname",
            &connect,
        ] {
            let error = compile(programs, LONG, code).unwrap_err();
            assert!(matches!(error, PrepareError::Malformed(_)), "{code}: {error}");
        }
    }
    assert!(compile(false, LONG, "scratch").is_err());
    assert_eq!(compile(true, LONG, "scratch").unwrap(), b"scratch");
}

#[test]
fn it_starts_no_program_unless_it_consists_of_some() {
    let error = compile(false, LONG, "linger /bin/sleep 1").unwrap_err();
    assert!(matches!(error, PrepareError::Malformed(_)), "{error}");
}

#[test]
fn too_much_memory_is_told() {
    let error = compile(false, LONG, "fill").unwrap_err();
    assert!(
        matches!(&error, PrepareError::Unsupported(reason) if reason.contains("4 GiB")),
        "{error}"
    );
    let error = compile(true, LONG, "fill").unwrap_err();
    assert!(
        matches!(&error, PrepareError::Unsupported(reason) if reason.contains("4 GiB")),
        "{error}"
    );
}

#[test]
fn in_the_background_it_gives_way() {
    let own = rustix::process::getpriority_process(None).unwrap().to_string();
    for (flags, nice) in [(0, own.as_str()), (BACKGROUND, "19")] {
        let mut compiler = Command::new(ATTEMPT)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = compiler.stdin.take().unwrap();
        input.write_all(&[flags]).unwrap();
        input.write_all(&UNKEPT.to_le_bytes()).unwrap();
        input.write_all(b"nice").unwrap();
        drop(input);
        let mut said = Vec::new();
        compiler.stdout.take().unwrap().read_to_end(&mut said).unwrap();
        assert_eq!(String::from_utf8_lossy(&said[16..]), nice);
        assert!(compiler.wait().unwrap().success());
    }
}

fn is_running(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).ends_with(&format!("sleep\0{argument}\0")))
}

#[test]
fn its_programs_end_with_it() {
    if !Support::probe().offers(Wall::Processes) {
        println!("skipped: this host offers no process namespace");
        return;
    }
    let time = "765432";
    thread::scope(|scope| {
        let compiling =
            scope.spawn(|| compile(true, Duration::from_secs(3), &format!("linger /bin/sleep {time}")));
        let began = Instant::now();
        while !is_running(time) {
            assert!(began.elapsed() < Duration::from_secs(3), "it did not start");
            thread::sleep(Duration::from_millis(5));
        }
        let error = compiling.join().unwrap().unwrap_err();
        assert!(matches!(error, PrepareError::Unsupported(_)), "{error}");
    });
    let began = Instant::now();
    while is_running(time) {
        assert!(began.elapsed() < Duration::from_secs(5), "it goes on");
        thread::sleep(Duration::from_millis(5));
    }
}
