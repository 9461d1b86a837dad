//! Builds the extension module, which this crate carries within itself.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=native");
    println!("cargo::rerun-if-changed=guest");
    println!("cargo::rerun-if-changed=../crates/exchange/src");
    println!("cargo::rerun-if-changed=../crates/ring/src");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let target = env::var("TARGET").expect("cargo sets it");
    let built = folder.join("native");
    let status = Command::new(env::var_os("CARGO").expect("cargo sets it"))
        .args([
            "build",
            "--release",
            "--locked",
            "--quiet",
            "--manifest-path",
            "native/Cargo.toml",
        ])
        .args(["--target", &target])
        .arg("--target-dir")
        .arg(&built)
        // What the outer cargo says of its own build is not for this one.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "the extension module does not build");
    let library = built.join(&target).join("release/libnative.so");
    println!("cargo::rustc-env=MILLPOND_PYTHON_NATIVE={}", library.display());
}
