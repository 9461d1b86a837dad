//! Pages of this host's memory.

/// Bytes of one. Executables are laid out for these.
pub(crate) const SIZE: u64 = 4096;

/// The page that an address is in.
pub(crate) fn down(address: u64) -> u64 {
    address & !(SIZE - 1)
}

/// The first page that begins at an address or after it.
pub(crate) fn up(address: u64) -> u64 {
    address.next_multiple_of(SIZE)
}
