//! The templates are embedded folder by folder: a new one is noticed by this line, not by the compiler.

fn main() {
    println!("cargo::rerun-if-changed=templates");
}
