//! libFuzzer on the channel between the host and a guest.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| millpond_fuzz::channel(input));
