//! The templates and the pages of error codes are embedded folder by folder: a new one is noticed by these lines, not by the
//! compiler.

fn main() {
    println!("cargo::rerun-if-changed=templates");
    println!("cargo::rerun-if-changed=../../docs/src/reference/errors");
}
