//! A command of WASI 0.2: answers its input in capitals, counts its runs, and does what its input asks for.
use std::{
    io::{Read, Write},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

static RUNS: AtomicU32 = AtomicU32::new(0);

fn main() {
    let mut input = String::new();
    std::io::stdin()
        .read_to_string(&mut input)
        .expect("the input is text");
    let runs = RUNS.fetch_add(1, Ordering::Relaxed) + 1;
    eprintln!("run {runs}");
    match input.as_str() {
        "exit" => std::process::exit(3),
        "sleep" => {
            let begun = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
            assert!(begun.elapsed() >= Duration::from_millis(20));
        }
        "connect" => {
            let error = std::net::TcpStream::connect("127.0.0.1:80").expect_err("there is no network");
            print!("{:?} ", error.kind());
        }
        "open" => {
            let error = std::fs::File::open("/etc/passwd").expect_err("there are no files");
            print!("{:?} ", error.kind());
        }
        _ => {}
    }
    let method = std::env::var("REQUEST_METHOD").unwrap_or_default();
    write!(std::io::stdout(), "{runs} {method} {}", input.to_uppercase()).expect("it is written");
}
