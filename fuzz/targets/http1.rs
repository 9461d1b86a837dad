//! libFuzzer on the HTTP/1.1 edge.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| millpond_fuzz::http1(input));
