//! Greets whoever standard input names: what Rust's standard library asks of WASI.

use std::io::{self, Read};

fn main() -> io::Result<()> {
    let mut name = String::new();
    io::stdin().read_to_string(&mut name)?;
    let name = name.trim();
    println!("Hello, {}!", if name.is_empty() { "world" } else { name });
    Ok(())
}
