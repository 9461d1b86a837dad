//! The ahead-of-time engine: Wasm at native speed, without checks in loops.

mod instance;
mod layout;
mod object;
mod plan;
mod toolchain;
mod translate;

#[cfg(test)]
mod spec;

pub use toolchain::Toolchain;
pub use translate::{Bounds, Target};
