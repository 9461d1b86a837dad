//! libFuzzer on the sets of pure functions.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| millpond_fuzz::sets(input));
