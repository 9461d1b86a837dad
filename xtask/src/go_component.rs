//! `cargo xtask go-component`: makes a component of `wasi:http` from a handler in Go, with Go's own compiler.
//!
//! The bindings are wit-bindgen's. The package that they share is in the generator's own sources, so that Go fetches nothing.

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::MetadataCommand;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use wit_bindgen_core::Files;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, WorldId};

/// The package of the bindings that calls the handler.
const PACKAGE: &str = "export_wasi_http_incoming_handler";
/// The module path of what bindings share.
const SHARED: &str = "go.bytecodealliance.org/pkg";

/// `wit` has the world `proxy`, `handler` is a file of the package [`PACKAGE`] with the function `Handle`.
pub(crate) fn run(root: &Path, wit: &str, handler: &str, component: &str) -> Result<String> {
    let sources = root.join("build/go-component");
    let (mut resolve, world) = world(&root.join(wit))?;
    if sources.exists() {
        fs::remove_dir_all(&sources).with_context(|| format!("failed to empty {}", sources.display()))?;
    }
    generate(&mut resolve.clone(), world, &sources)?;
    let module = compile(root, &sources, &root.join(handler))?;
    let bytes = encode(&mut resolve, world, fs::read(&module)?)?;
    let component = root.join(component);
    fs::write(&component, &bytes).with_context(|| format!("failed to write {}", component.display()))?;
    Ok(format!("{}, {} KiB", component.display(), bytes.len() >> 10))
}

fn world(wit: &Path) -> Result<(Resolve, WorldId)> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve
        .push_path(wit)
        .with_context(|| format!("failed to read the interfaces of {}", wit.display()))?;
    let world = resolve.select_world(&[package], Some("proxy"))?;
    Ok((resolve, world))
}

fn generate(resolve: &mut Resolve, world: WorldId, into: &Path) -> Result<()> {
    let mut files = Files::default();
    let mut generator = wit_bindgen_go::Opts::default().build();
    generator.generate(resolve, world, &mut files)?;
    for (name, content) in files.iter() {
        let path = into.join(name);
        fs::create_dir_all(path.parent().unwrap_or(into))?;
        fs::write(&path, content).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}

fn compile(root: &Path, sources: &Path, handler: &Path) -> Result<PathBuf> {
    let package = sources.join(PACKAGE);
    fs::create_dir_all(&package)?;
    fs::copy(handler, package.join("handler.go"))
        .with_context(|| format!("failed to take {}", handler.display()))?;
    let module = sources.join("go.mod");
    let mut text = fs::read_to_string(&module)?;
    text += &format!("replace {SHARED} => {}\n", shared(root)?.display());
    fs::write(&module, text)?;
    let output = root.join("build/go-component.wasm");
    let status = Command::new("go")
        // The bindings call `runtime.sbrk`, which Go's linker else keeps for itself.
        .args(["build", "-ldflags=-checklinkname=0", "-buildmode=c-shared", "-o"])
        .arg(&output)
        .arg(".")
        .current_dir(sources)
        .env("GOOS", "wasip1")
        .env("GOARCH", "wasm")
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local")
        .env("GOCACHE", root.join("build/go-cache"))
        .status()
        .context("failed to run go, version 1.25 or later (Debian: golang)")?;
    ensure!(status.success(), "go build failed in {}", sources.display());
    Ok(output)
}

/// Where cargo has put the package that bindings share.
fn shared(root: &Path) -> Result<PathBuf> {
    // What other systems need was never fetched.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let options = ["--locked", "--offline", "--filter-platform", &platform].map(str::to_owned);
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .other_options(options)
        .exec()?;
    let generator = metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == "wit-bindgen-go")
        .and_then(|package| package.manifest_path.parent())
        .context("cargo does not know wit-bindgen-go")?;
    Ok(generator.join("src/pkg").into())
}

fn encode(resolve: &mut Resolve, world: WorldId, mut module: Vec<u8>) -> Result<Vec<u8>> {
    use wasi_preview1_component_adapter_provider::{
        WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as ADAPTER,
    };
    embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8)?;
    ComponentEncoder::default()
        .module(&module)?
        .adapter(NAME, ADAPTER)?
        .validate(true)
        .encode()
}
