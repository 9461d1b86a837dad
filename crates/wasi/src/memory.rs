//! Reading and writing a guest's linear memory: every access names its address and length, and is checked.

use crate::Errno;

/// A piece of guest memory.
pub(crate) fn slice(memory: &[u8], address: u32, length: usize) -> Result<&[u8], Errno> {
    let start = address as usize;
    let end = start.checked_add(length).ok_or(Errno::FAULT)?;
    memory.get(start..end).ok_or(Errno::FAULT)
}

/// A piece of guest memory, to be written.
pub(crate) fn slice_mut(memory: &mut [u8], address: u32, length: usize) -> Result<&mut [u8], Errno> {
    let start = address as usize;
    let end = start.checked_add(length).ok_or(Errno::FAULT)?;
    memory.get_mut(start..end).ok_or(Errno::FAULT)
}

fn array<const N: usize>(memory: &[u8], address: u32) -> Result<[u8; N], Errno> {
    slice(memory, address, N)?.try_into().map_err(|_| Errno::FAULT)
}

pub(crate) fn read_u8(memory: &[u8], address: u32) -> Result<u8, Errno> {
    array::<1>(memory, address).map(|[byte]| byte)
}

pub(crate) fn read_u16(memory: &[u8], address: u32) -> Result<u16, Errno> {
    array(memory, address).map(u16::from_le_bytes)
}

pub(crate) fn read_u32(memory: &[u8], address: u32) -> Result<u32, Errno> {
    array(memory, address).map(u32::from_le_bytes)
}

pub(crate) fn read_u64(memory: &[u8], address: u32) -> Result<u64, Errno> {
    array(memory, address).map(u64::from_le_bytes)
}

pub(crate) fn write(memory: &mut [u8], address: u32, bytes: &[u8]) -> Result<(), Errno> {
    slice_mut(memory, address, bytes.len())?.copy_from_slice(bytes);
    Ok(())
}

pub(crate) fn write_u32(memory: &mut [u8], address: u32, value: u32) -> Result<(), Errno> {
    write(memory, address, &value.to_le_bytes())
}

pub(crate) fn write_u64(memory: &mut [u8], address: u32, value: u64) -> Result<(), Errno> {
    write(memory, address, &value.to_le_bytes())
}

/// A host length as a guest reads it.
pub(crate) fn length(length: usize) -> Result<u32, Errno> {
    u32::try_from(length).map_err(|_| Errno::OVERFLOW)
}

/// The address of element `index` of an array of `size`-byte elements; whether it is in memory is for the access to say.
pub(crate) fn element(address: u32, index: u32, size: u32) -> Result<u32, Errno> {
    index
        .checked_mul(size)
        .and_then(|offset| address.checked_add(offset))
        .ok_or(Errno::FAULT)
}
