//! Answers one request: standard input is its body, the environment says the rest, standard output is the answer.

use std::{
    env,
    io::{self, Read},
};

fn main() -> io::Result<()> {
    let mut body = String::new();
    io::stdin().read_to_string(&mut body)?;
    let name = match body.trim() {
        "" => "world",
        name => name,
    };
    let variable = |name| env::var(name).unwrap_or_default();

    println!("Hello, {name}!");
    println!(
        "You sent {} with the query \"{}\" and {} bytes.",
        variable("REQUEST_METHOD"),
        variable("QUERY_STRING"),
        body.len()
    );
    // Standard error is the log.
    eprintln!("greeted {name}");
    Ok(())
}
