//! libFuzzer on manifests.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| millpond_fuzz::manifest(input));
