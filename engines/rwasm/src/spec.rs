//! The official tests of WebAssembly, without vectors.

use crate::{Bounds, Rustc, Toolchain};
use native::spec::{Proposal, run_all};
use std::env;

/// Modules of a file that every run has.
const FEW: usize = 25;

/// rustc takes a fraction of a second for each of more than a thousand modules: `MILLPOND_TEST_LONG` has all 93 files, a quicker run the 81 that have few
/// modules, which are a fourth of the modules and two thirds of what is asserted.
fn is_due(text: &str) -> bool {
    let modules = text.lines().filter(|line| line.starts_with("(module"));
    is_long() || modules.count() <= FEW
}

fn is_long() -> bool {
    env::var_os("MILLPOND_TEST_LONG").is_some()
}

/// What is wrong with the files that are chosen: so many directives at least.
fn all(bounds: Bounds, chosen: impl Fn(&str) -> bool, least: usize) -> Vec<String> {
    match Toolchain::find() {
        Ok(toolchain) => {
            let rustc = Rustc::new(toolchain, bounds);
            run_all(&rustc, &[Proposal::ExtendedConst], chosen, least)
        }
        Err(reason) => {
            println!("skipped: {reason}");
            Vec::new()
        }
    }
}

#[test]
fn the_official_tests_pass_with_checks() {
    let wrong = all(Bounds::Checked, is_due, if is_long() { 28_000 } else { 18_500 });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What comes later in a file of a store that should have trapped: it has, but its neighbours have not.
const LOADED_OUTSIDE: &str = "out of bounds memory access";

/// The differences of `mask`: loads from outside of memory give zeros, or what lies at its begin, and do not trap. Of all files those
/// that have such accesses.
#[test]
fn with_masks_the_official_tests_differ_in_what_lies_outside_of_memory_only() {
    let least = if is_long() { 6_000 } else { 1_300 };
    let chosen = |text: &str| is_due(text) && text.contains(LOADED_OUTSIDE);
    let wrong = all(Bounds::Mask, chosen, least);
    let untrapped = format!(" instead of a trap: {LOADED_OUTSIDE}");
    let other: Vec<_> = wrong.iter().filter(|line| !line.ends_with(&untrapped)).collect();
    assert!(other.is_empty(), "{other:#?}");
}
