//! What must hold for any bytes from outside: one function for each fuzz target, which panics when it does not.
//!
//! The targets in `targets/` hand these functions to libFuzzer; the tests here run them on the seed corpus in `corpus/`,
//! so a seed that once broke something guards against it in every test run. `fuzz/run` fuzzes for real, with the
//! workspace's own toolchain; `cargo fuzz run http1` does too, where it and a nightly toolchain are installed.

mod aot;
// The tests of the ring run the same, so there is one text of it.
#[path = "../../crates/ring/tests/channel/script.rs"]
mod script;
// The gateway's property tests check the same, so there is one text of it.
#[path = "../../crates/gateway/tests/http1/conversation.rs"]
mod conversation;
#[path = "../../crates/gateway/tests/http1/invariants.rs"]
mod invariants;
mod sets;

/// A connection's bytes: verdicts do not depend on how they are split, what is accepted is strict, chunks decode as an
/// oracle says, responses read back.
pub fn http1(input: &[u8]) {
    invariants::all(input);
}

/// A manifest's text: what is accepted reads back from its JSON as the same, and each fault lies inside the text.
pub fn manifest(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match manifest::parse(text) {
        Ok(accepted) => {
            let json = serde_json::to_value(&accepted).expect("a manifest is JSON");
            assert_eq!(manifest::from_json(&json).as_ref(), Ok(&accepted));
        }
        Err(faults) => {
            assert!(!faults.is_empty(), "refused without a reason");
            for fault in faults {
                if let Some(span) = fault.span {
                    assert!(text.get(span.clone()).is_some(), "{span:?} is not in the text");
                }
            }
        }
    }
}

/// Inputs with any names, keys and sizes, and what a guest leaves of the structure that described them: what is placed is found again, what is
/// collected are outputs within their limits, and nothing else is read.
pub fn sets(input: &[u8]) {
    sets::all(input);
}

/// A script of what a guest does to its channel between the host's steps: the host's answers and all bytes of the memory are what the layout
/// says, and a good guest and the host exchange all messages.
pub fn channel(input: &[u8]) {
    script::all(input);
}

/// A module, or noise that becomes one: the ahead-of-time engine and Wasmtime come to the same results, traps and memory.
pub fn aot(input: &[u8]) {
    let Some(oracle) = aot::Oracle::get() else {
        return;
    };
    if let Err(what) = oracle.compare_input(input) {
        panic!("{what}");
    }
}

/// An input of [`aot`] that is much like this one. `None` if that is left to libFuzzer.
pub fn aot_mutated(input: &[u8], seed: u32) -> Option<Vec<u8>> {
    aot::mutated(input, seed)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha12Rng};
    use std::{fs, path::Path};

    /// Runs a target on its whole corpus; names the seed that breaks it.
    fn seeds(target: &str, run: fn(&[u8]), least: usize) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        let mut count = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let input = fs::read(&path).unwrap();
            let outcome = std::panic::catch_unwind(|| run(&input));
            assert!(outcome.is_ok(), "broken by {}", path.display());
            count += 1;
        }
        assert!(count >= least, "only {count} seeds of {target}");
    }

    #[test]
    fn the_seeds_of_aot_hold() {
        seeds("aot", super::aot, 40);
    }

    #[test]
    fn the_seeds_of_channel_hold() {
        seeds("channel", super::channel, 20);
    }

    #[test]
    fn the_seeds_of_http1_hold() {
        seeds("http1", super::http1, 120);
    }

    #[test]
    fn the_seeds_of_sets_hold() {
        seeds("sets", super::sets, 20);
    }

    /// As many random inputs as take a second or two; and shifted seeds, which are nearer to what can be read.
    #[test]
    fn noise_of_sets_holds() {
        let mut random = ChaCha12Rng::seed_from_u64(7);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/sets");
        let seeds: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| fs::read(entry.unwrap().path()).unwrap())
            .collect();
        for round in 0..20_000 {
            let mut input = match seeds.get(round % (2 * seeds.len())) {
                Some(seed) => seed.clone(),
                None => vec![0; random.random_range(0..600)],
            };
            let changes = if round % (2 * seeds.len()) < seeds.len() {
                3
            } else {
                input.len()
            };
            for _ in 0..changes {
                if !input.is_empty() {
                    let at = random.random_range(0..input.len());
                    input[at] = random.random();
                }
            }
            super::sets(&input);
        }
    }

    #[test]
    fn the_seeds_of_manifest_hold() {
        seeds("manifest", super::manifest, 10);
    }
}
