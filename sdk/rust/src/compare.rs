//! What the compiler expects to be there, where no library has it.

/// As C has it.
///
/// # Safety
/// So many bytes lie at both places.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, size: usize) -> i32 {
    for index in 0..size {
        // SAFETY: see above.
        let (a, b) = unsafe { (*a.add(index), *b.add(index)) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}
