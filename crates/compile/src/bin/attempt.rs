//! A compiler that the tests tell what to do: its code is one line of words.

#![forbid(unsafe_code)]

use confine::Programs;
use contract::{Artefact, Code, CoreId, Engine, Image, PrepareError};
use std::{
    env, fs,
    io::Write as _,
    net::TcpStream,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

struct Attempt;

impl Engine for Attempt {
    fn name(&self) -> &'static str {
        "attempt"
    }
    fn fingerprint(&self) -> &str {
        "none"
    }
    fn compile(&self, code: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        let said = String::from_utf8_lossy(code.bytes).into_owned();
        let words: Vec<&str> = said.split_whitespace().collect();
        let failed = |error: std::io::Error| PrepareError::Malformed(error.to_string());
        match words.as_slice() {
            ["echo", ..] => Ok(said.into_bytes()),
            ["read", path] => fs::read(path).map_err(failed),
            ["connect", address] => TcpStream::connect(address).map(|_| Vec::new()).map_err(failed),
            ["scratch"] => {
                let path = env::temp_dir().join("file");
                fs::write(&path, "scratch")
                    .and_then(|()| fs::read(path))
                    .map_err(failed)
            }
            ["nice"] => {
                let nice = rustix::process::getpriority_process(None);
                Ok(nice.unwrap_or(-1).to_string().into_bytes())
            }
            ["linger", program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
                command.spawn().map_err(failed)?;
                eprintln!("lingers");
                let _ = std::io::stderr().flush();
                thread::sleep(Duration::from_secs(1000));
                Ok(Vec::new())
            }
            ["fill"] => Ok(vec![1; 5 << 30]),
            other => Err(PrepareError::Malformed(format!("what is {other:?}?"))),
        }
    }
    fn load(&self, _: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        Err(PrepareError::Artefact("nothing loads here".into()))
    }
    fn preempt(&self, _: CoreId) {}
}

fn main() -> ExitCode {
    let programs = env::args().nth(1).map(|_| Programs {
        read: vec!["/etc/ld.so.cache".into()],
        execute: ["/lib", "/lib64", "/usr/lib", "/bin/sleep"]
            .map(Into::into)
            .into(),
    });
    millpond_compile::answer(Duration::from_secs(60), programs, |_| Ok(Attempt))
}
