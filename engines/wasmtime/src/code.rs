//! What a module must be before it is worth compiling, in words that its author understands.

use crate::{component::keep, exposed};
use contract::PrepareError;
use wasmparser::{
    Encoding, ExternalKind, Parser, Payload, TypeRef, ValType, Validator, WasmFeatures, types::Types,
};
use wasmtime::Precompiled;

/// An error that is one line of text, and not a long one: modules choose their names, and errors repeat them.
pub(crate) fn readable(error: PrepareError) -> PrepareError {
    const LONGEST: usize = 300;
    let line = |text: String| {
        let mut line = String::with_capacity(text.len().min(LONGEST));
        for part in text.chars() {
            if line.len() > LONGEST {
                line.push('…');
                break;
            }
            match part {
                '\n' => line.push(' '),
                part if part.is_control() => line.extend(part.escape_default()),
                part => line.push(part),
            }
        }
        line
    };
    match error {
        PrepareError::Malformed(text) => PrepareError::Malformed(line(text)),
        PrepareError::Unsupported(text) => PrepareError::Unsupported(line(text)),
        other => other,
    }
}

fn unsupported<T>(what: impl Into<String>) -> Result<T, PrepareError> {
    Err(PrepareError::Unsupported(what.into()))
}

/// Which of the two it is, if it is one that can run here.
pub(crate) fn check(bytes: &[u8]) -> Result<Precompiled, PrepareError> {
    if bytes.is_empty() {
        return Err(PrepareError::Malformed("it is empty".into()));
    }
    if !bytes.starts_with(b"\0asm") {
        let seen = bytes
            .iter()
            .take(16)
            .flat_map(|b| std::ascii::escape_default(*b))
            .map(char::from)
            .collect::<String>();
        return Err(PrepareError::Malformed(format!(
            "it begins with `{seen}` instead of `\\0asm`"
        )));
    }
    if let Some(Ok(Payload::Version {
        encoding: Encoding::Component,
        ..
    })) = Parser::new(0).parse_all(bytes).next()
    {
        check_component(bytes)?;
        return Ok(Precompiled::Component);
    }
    check_command(bytes)?;
    Ok(Precompiled::Module)
}

fn features() -> WasmFeatures {
    let features = WasmFeatures::default() | WasmFeatures::TAIL_CALL | WasmFeatures::RELAXED_SIMD;
    features
        & !(WasmFeatures::MULTI_MEMORY
            | WasmFeatures::MEMORY64
            | WasmFeatures::THREADS
            | WasmFeatures::GC
            | WasmFeatures::GC_TYPES
            | WasmFeatures::EXCEPTIONS
            | WasmFeatures::WIDE_ARITHMETIC
            | WasmFeatures::COMPACT_IMPORTS
            | WasmFeatures::CM_ASYNC)
}

/// Of what this engine compiles.
pub(crate) fn validator() -> Validator {
    Validator::new_with_features(features())
}

fn validate(bytes: &[u8]) -> Result<Types, PrepareError> {
    validator().validate_all(bytes).map_err(|error| {
        // What is valid with every feature on is not malformed, only ahead of us.
        let ahead = Validator::new_with_features(WasmFeatures::all())
            .validate_all(bytes)
            .is_ok();
        if ahead {
            PrepareError::Unsupported(error.to_string())
        } else {
            PrepareError::Malformed(error.to_string())
        }
    })
}

/// A component that exports one of the two that can be called, and imports of WASI 0.2 what this engine offers.
fn check_component(bytes: &[u8]) -> Result<(), PrepareError> {
    const LATER: &str = "WASI 0.3 is asynchronous, and this node runs components of WASI 0.2";
    let malformed = |error: wasmparser::BinaryReaderError| PrepareError::Malformed(error.to_string());
    // Before validation: it would speak of encodings where the author knows interfaces.
    let (mut depth, mut callable, mut later) = (0_u32, false, None);
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(malformed)? {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(imports) if depth == 1 => {
                for import in imports {
                    let name = import.map_err(malformed)?.name.name;
                    if is_later(name) {
                        later = Some(format!("it imports `{name}`"));
                    } else if !offered(name) {
                        return unsupported(format!(
                            "it imports `{name}`; a component may import `wasi:cli`, `wasi:clocks`, `wasi:filesystem`, \
                             `wasi:http`, `wasi:io`, `wasi:random` and `wasi:sockets` of WASI 0.2, and `millpond:s3/objects@0.1.0`"
                        ));
                    }
                }
            }
            Payload::ComponentExportSection(exports) if depth == 1 => {
                for export in exports {
                    let name = export.map_err(malformed)?.name.name;
                    if is_later(name) {
                        later = Some(format!("it exports `{name}`"));
                    }
                    if keep::is_reserved(name) {
                        return unsupported(format!(
                            "it exports `{name}`, which is a name of the platform's"
                        ));
                    }
                    callable |= ["wasi:cli/run@0.2.", "wasi:http/incoming-handler@0.2."]
                        .iter()
                        .any(|entry| name.starts_with(entry));
                }
            }
            _ => {}
        }
    }
    if let Some(what) = later {
        return unsupported(format!("{what}; {LATER}"));
    }
    validate(bytes)?;
    if callable {
        return Ok(());
    }
    unsupported(
        "it is a component that exports neither `wasi:cli/run` nor `wasi:http/incoming-handler` of WASI 0.2, \
         so nothing can call it",
    )
}

/// An interface of WASI 0.3.
fn is_later(name: &str) -> bool {
    name.starts_with("wasi:") && name.contains("@0.3")
}

fn offered(name: &str) -> bool {
    let packages = ["cli", "clocks", "filesystem", "http", "io", "random", "sockets"];
    let its = name.strip_prefix("wasi:").and_then(|name| name.split_once('/'));
    let is_wasi =
        its.is_some_and(|(package, interface)| packages.contains(&package) && interface.contains("@0.2."));
    is_wasi || name.starts_with("millpond:s3/objects@0.1.")
}

/// A core module that exports `_start: () -> ()` and `memory`, and imports WASI 0.1 functions only.
fn check_command(bytes: &[u8]) -> Result<(), PrepareError> {
    let types = validate(bytes)?;
    let types = types.as_ref();
    let malformed = |error: wasmparser::BinaryReaderError| PrepareError::Malformed(error.to_string());
    let (mut start, mut memory) = (false, false);
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(malformed)? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import.map_err(malformed)?;
                    let name = format!("{}.{}", import.module, import.name);
                    if import.module != wasi::MODULE {
                        return unsupported(format!(
                            "it imports `{name}`; a WASI 0.1 command imports from `{}` only",
                            wasi::MODULE
                        ));
                    }
                    let (TypeRef::Func(index) | TypeRef::FuncExact(index)) = import.ty else {
                        return unsupported(format!(
                            "it imports `{name}`, which is a function there and nothing else"
                        ));
                    };
                    let Some(function) = wasi::function(import.name) else {
                        return unsupported(format!("it imports `{name}`, which WASI 0.1 does not have"));
                    };
                    let parameters: Vec<_> = function.parameters.iter().copied().map(value).collect();
                    let result: Vec<_> = function.result.into_iter().map(value).collect();
                    let its = types[types.core_type_at_in_module(index)].unwrap_func();
                    if its.params() != parameters || its.results() != result {
                        return unsupported(format!(
                            "it imports `{name}` as {its}, which is not its type in WASI 0.1"
                        ));
                    }
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export.map_err(malformed)?;
                    if export.name.starts_with(exposed::RESERVED) {
                        return unsupported(format!(
                            "it exports `{}`; names that begin with `{}` are the platform's",
                            export.name,
                            exposed::RESERVED
                        ));
                    }
                    memory |= export.name == "memory" && export.kind == ExternalKind::Memory;
                    if export.name == "_start" && export.kind == ExternalKind::Func {
                        let its = types[types.core_function_at(export.index)].unwrap_func();
                        if !its.params().is_empty() || !its.results().is_empty() {
                            return unsupported(format!(
                                "its `_start` is {its}; a command's takes and returns nothing"
                            ));
                        }
                        start = true;
                    }
                }
            }
            _ => {}
        }
    }
    if !start {
        return unsupported(
            "it exports no function `_start`, so it is not a command (a library or a reactor cannot answer requests)",
        );
    }
    if !memory {
        return unsupported("it exports no `memory`, which a WASI 0.1 command must");
    }
    Ok(())
}

fn value(of: wasi::ValueType) -> ValType {
    match of {
        wasi::ValueType::I32 => ValType::I32,
        wasi::ValueType::I64 => ValType::I64,
    }
}
