//! The official tests of WebAssembly.

use crate::{Bounds, Clang, toolchain};
use native::spec::{Proposal, run_all};

/// All directives, and those of files with accesses outside of memory: there are so many at least.
const ALL: usize = 54_000;
const WITH_TRAPS: usize = 6_000;

/// What is wrong with the files that are chosen: so many directives at least.
fn all(bounds: Bounds, chosen: impl Fn(&str) -> bool, least: usize) -> Vec<String> {
    let Some(toolchain) = toolchain() else {
        return Vec::new();
    };
    let proposals = [Proposal::Simd, Proposal::TailCall, Proposal::ExtendedConst];
    run_all(&Clang::new(toolchain, bounds), &proposals, chosen, least)
}

#[test]
fn the_official_tests_pass_with_guard_pages() {
    let wrong = all(Bounds::Guard, |_| true, ALL);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All files with `MILLPOND_TEST_LONG`, else those with accesses outside of memory: code that has none is what it is with guard pages, and checks.
#[test]
fn the_official_tests_pass_with_checks() {
    let long = is_long();
    let wrong = all(
        Bounds::Software,
        |text| long || text.contains(TRAP),
        if long { ALL } else { WITH_TRAPS },
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const TRAP: &str = "out of bounds memory access";

fn is_long() -> bool {
    std::env::var_os("MILLPOND_TEST_LONG").is_some()
}

/// What comes later in a file of a store that should have trapped, and has gone somewhere inside.
const STORED_INSIDE: [&str; 3] = [
    "memory_grow.wast:28:",
    "memory_trap.wast:269:",
    "memory_trap.wast:270:",
];

/// The differences of `mask`: accesses outside of memory do not trap. All files with `MILLPOND_TEST_LONG`, else those with such accesses.
#[test]
fn with_masks_the_official_tests_differ_in_what_lies_outside_of_memory_only() {
    let long = is_long();
    let wrong = all(
        Bounds::Mask,
        |text| long || text.contains(TRAP),
        if long { ALL } else { WITH_TRAPS },
    );
    let untrapped = format!(" instead of a trap: {TRAP}");
    let other: Vec<_> = wrong
        .iter()
        .filter(|line| {
            !line.ends_with(&untrapped) && !STORED_INSIDE.iter().any(|later| line.starts_with(later))
        })
        .collect();
    assert!(other.is_empty(), "{other:#?}");
}
