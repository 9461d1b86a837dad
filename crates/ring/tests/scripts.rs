//! Scripts of what a guest does between the host's steps. The fuzz target `channel` looks for more.

#![cfg(feature = "std")]

extern crate millpond_ring as ring;

#[path = "channel/random.rs"]
mod random;
#[path = "channel/script.rs"]
mod script;

use random::Random;

/// Steps of the kinds that are given, so many of each on average.
fn run(scripts: u64, kinds: &[u8]) {
    for seed in 0..scripts {
        let mut random = Random(seed);
        let mut script = vec![random.next() as u8, random.next() as u8];
        for _ in 0..random.below(200) {
            let kind = kinds[random.below(kinds.len() as u64) as usize];
            script.push(kind);
            // What the other kinds take for steps would not be of these.
            for _ in 0..match kind {
                4 => 7,
                8 => 4,
                9 => 10,
                _ => 0,
            } {
                script.push(random.next() as u8);
            }
        }
        script::all(&script);
    }
}

#[test]
fn a_good_guest_and_a_host_exchange_all() {
    run(1_000, &[0, 0, 1, 1, 2, 3, 5, 5, 6, 6, 7]);
}

#[test]
fn a_bad_guest_is_told() {
    run(2_000, &[0, 0, 0, 1, 1, 1, 2, 3, 5, 5, 6, 6, 7, 8]);
    run(1_000, &[0, 1, 2, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn noise_holds() {
    for seed in 0..3_000 {
        let mut random = Random(seed);
        let script: Vec<u8> = (0..random.below(400)).map(|_| random.next() as u8).collect();
        script::all(&script);
    }
}
