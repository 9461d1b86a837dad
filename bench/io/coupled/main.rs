//! What starts an instance of the coupled baseline: the confinement of a function in Python (`engines/process`, `crates/confine`), with a network.
//!
//!     coupled [--execute PATH | --read PATH | --placed PATH=PATH] … --memory BYTES --threads COUNT -- PROGRAM ARGUMENT …
//!
//! The confinement is the product's own code, but for what keeps the network out: `bench/io/baseline.py` copies that crate, changes the lines
//! that it names, and builds this with it. The product itself has no way to ask for a network.
//!
//! Descriptor 3 is the program's, and all of its environment. Each line of the standard input is the number of a process that the program has forked,
//! which is given a folder of its own; then it is said again on the standard output. The first line that is said is the program's own number. All ends when
//! the standard input does.

use confine::{Confinement, Guests, Limits, Placed};
use std::{
    env,
    error::Error,
    ffi::CString,
    io::{self, BufRead as _, Write as _},
    os::unix::ffi::OsStringExt as _,
    ptr,
    time::Duration,
};

/// As the engine has them (`engines/process/src/python.rs`, and `NICE` of `zygote.rs`).
const SCRATCH: &str = "/tmp";
const MOST_MEMORY: u64 = 1 << 46;
const STACK: u64 = 8 << 20;
const OPEN_FILES: u64 = 1_024;
const PROCESSOR: Duration = Duration::from_secs(120);
const NICE: libc::c_int = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut confinement, mut memory, mut threads) = (Confinement::default(), 0, 0);
    let mut arguments = env::args_os().skip(1);
    loop {
        let flag = arguments.next().ok_or("there is no program")?;
        if flag == "--" {
            break;
        }
        let value = arguments.next().ok_or("there is no value")?;
        let text = value.to_string_lossy().into_owned();
        match flag.to_str() {
            Some("--execute") => confinement.execute.push(value.into()),
            Some("--read") => confinement.read.push(value.into()),
            Some("--placed") => {
                let (path, at) = text.split_once('=').ok_or("a place is PATH=PATH")?;
                confinement.placed.push(Placed {
                    path: path.into(),
                    at: at.into(),
                });
            }
            Some("--memory") => memory = text.parse()?,
            Some("--threads") => threads = text.parse()?,
            _ => return Err(format!("what is {}?", flag.display()).into()),
        }
    }
    let program: Vec<CString> = arguments
        .map(|word| CString::new(word.into_vec()))
        .collect::<Result<_, _>>()?;
    confinement.limits = Limits {
        memory: MOST_MEMORY,
        stack: Some(STACK),
        file_size: memory,
        threads,
        processor: Some(PROCESSOR),
        open_files: OPEN_FILES,
        ..Limits::default()
    };
    // SAFETY: both calls take numbers. Children are the kernel's to bury.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    let cell = confinement.enter_to_fork(Guests::Interpreter {
        scratch: Some((SCRATCH.into(), memory)),
    })?;
    cell.settle()?;
    match cell.fork()? {
        None => {
            let Err(error) = start(&cell, &program);
            eprintln!("the program could not be started: {error}");
            // SAFETY: it ends this process, in which nothing has to be done before.
            unsafe { libc::_exit(1) }
        }
        Some(process) => {
            // SAFETY: nothing here has this descriptor, which is the program's.
            unsafe { libc::close(3) };
            println!("{process}");
        }
    }
    for line in io::stdin().lock().lines() {
        let process = line?;
        cell.furnish(process.parse()?)?;
        println!("{process}");
        io::stdout().flush()?;
    }
    Ok(())
}

/// In the child.
fn start(cell: &confine::Cell, program: &[CString]) -> io::Result<std::convert::Infallible> {
    cell.open()?;
    cell.close(|| Ok(()))?;
    let mut words: Vec<_> = program.iter().map(|word| word.as_ptr()).collect();
    words.push(ptr::null());
    // SAFETY: the list ends with a null pointer, and each other pointer is that of a string that ends with a zero and outlives the call.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        // To be confined has closed all others for programs.
        libc::fcntl(3, libc::F_SETFD, 0);
        // Nobody's standard input is the node's.
        libc::close(0);
        libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
        libc::execv(words[0], words.as_ptr());
    }
    Err(io::Error::last_os_error())
}
