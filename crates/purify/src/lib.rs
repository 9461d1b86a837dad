//! What becomes of a pure function's module before any compiler sees it.
//!
//! Pure means repeatable: equal inputs give equal outputs, whichever engine runs a function, and on whichever processor. WebAssembly leaves two
//! things open that a program can see without asking its host: the bits of a NaN that arithmetic gives, and all of relaxed SIMD. [`prepare`]
//! refuses the latter and makes the former those of the specification's deterministic profile ([`nan`]), in the module itself: what a
//! compiler then makes of it is the same by whatever compiler, and none of them has to know.
//!
//! A function may have its sets in its memory ([`pure::system_data`]). For such a module [`prepare`] sees to it that the structure is where it
//! can be written to, and gives it a memory of its own where it imports one, as the Dandelion SDK's builds do.

#![forbid(unsafe_code)]

mod nan;
mod structure;

use contract::PrepareError;
use std::borrow::Cow;
use wasmparser::{Validator, WasmFeatures};

/// Changes with what [`prepare`] makes of a module, and so what is compiled.
pub const VERSION: u32 = 1;

/// What an engine may run of it: all that any of them does, without relaxed SIMD.
const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::FUNCTION_REFERENCES);

/// The module that is to be compiled in place of this one. What is no module at all is left to the engine to refuse.
pub fn prepare(bytes: &[u8]) -> Result<Cow<'_, [u8]>, PrepareError> {
    if !bytes.starts_with(b"\0asm") {
        return Ok(Cow::Borrowed(bytes));
    }
    if bytes.get(6) == Some(&1) {
        let reason = "`protocol = \"pure\"` is for core modules, and this is a component";
        return Err(PrepareError::Unsupported(reason.to_owned()));
    }
    validate(bytes)?;
    let malformed = |nan::Error(what)| PrepareError::Malformed(what);
    match structure::prepare(bytes)? {
        Cow::Borrowed(bytes) => nan::canonical(bytes).map_err(malformed),
        Cow::Owned(bytes) => Ok(Cow::Owned(
            nan::canonical(&bytes).map_err(malformed)?.into_owned(),
        )),
    }
}

fn validate(bytes: &[u8]) -> Result<(), PrepareError> {
    let valid = |features| Validator::new_with_features(features).validate_all(bytes);
    let Err(error) = valid(FEATURES) else {
        return Ok(());
    };
    if valid(FEATURES | WasmFeatures::RELAXED_SIMD).is_ok() {
        let reason =
            "it uses relaxed SIMD, whose results differ between processors, and a pure function's must not";
        return Err(PrepareError::Unsupported(reason.to_owned()));
    }
    // What is valid with every feature on is not malformed, only ahead of us.
    Err(match valid(WasmFeatures::all()) {
        Ok(_) => PrepareError::Unsupported(error.to_string()),
        Err(_) => PrepareError::Malformed(error.to_string()),
    })
}

#[cfg(test)]
mod tests;
