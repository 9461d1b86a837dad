//! libFuzzer on the ahead-of-time engine.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| millpond_fuzz::aot(input));

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, most: usize, seed: u32| {
    match millpond_fuzz::aot_mutated(&data[..size], seed) {
        Some(module) if module.len() <= most => {
            data[..module.len()].copy_from_slice(&module);
            module.len()
        }
        _ => libfuzzer_sys::fuzzer_mutate(data, size, most),
    }
});
