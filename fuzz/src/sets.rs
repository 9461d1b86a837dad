//! The structure of a pure function's sets, between a host and a guest that may do anything.

use arbitrary::{Arbitrary, Result, Unstructured};
use bytes::Bytes;
use pure::{
    Item, MOST_ITEMS, Set, check_name, response,
    system_data::{self, BadInputs, Memory, UNTOUCHED, Word},
};
use std::collections::HashSet;

/// What a call has.
#[derive(Debug, Arbitrary)]
struct Call {
    wide: bool,
    /// Where a guest's memory begins, if it is one of 64 bits.
    base: u32,
    /// Bytes of it.
    size: u16,
    /// Where the structure lies, and where what is free begins.
    at: u8,
    inputs: Vec<Given>,
    outputs: Vec<String>,
    /// Of outputs.
    most: u16,
    /// Whether the guest says that all is well,
    good: bool,
    /// leaves items as it should before it does what it likes,
    honest: bool,
    /// and writes these words at these places.
    writes: Vec<(u16, u64)>,
}

/// A set, by its name and its items' names, keys and data.
#[derive(Debug, Arbitrary)]
struct Given(String, Vec<(String, u64, Vec<u8>)>);

pub(crate) fn all(input: &[u8]) {
    let mut bytes = Unstructured::new(input);
    let call: Result<Call> = bytes.arbitrary();
    let Ok(call) = call else { return };
    match call.wide {
        true => run::<u64>(&call, call.base.into()),
        false => run::<u32>(&call, 0),
    }
}

fn run<W: Word>(call: &Call, base: u64) {
    let mut bytes = vec![0xa5; call.size.into()];
    let (at, begin) = (
        base + u64::from(call.at),
        base + u64::from(call.at) + system_data::size::<W>() as u64,
    );
    let end = base + bytes.len() as u64;
    let inputs: Vec<Set> = call.inputs.iter().map(set).collect();
    let mut memory = Memory {
        bytes: &mut bytes,
        base,
    };
    let outputs = &call.outputs;
    match system_data::place::<W>(&mut memory, at, begin..end, &inputs, outputs) {
        Ok(()) => placed::<W>(&memory, at, begin..end, &inputs, outputs),
        Err(BadInputs::NoRoom { needed, room }) => assert!(needed > room || begin > end, "{needed} > {room}"),
        Err(BadInputs::Key { key, .. }) => assert!(W::SIZE == 4 && key > u32::MAX.into()),
    }
    if call.honest {
        give::<W>(&mut memory, at, end, outputs);
    }
    for (offset, value) in &call.writes {
        put::<W>(&mut memory, base + u64::from(*offset), *value);
    }
    if call.good {
        put::<W>(&mut memory, at, 0);
    }
    let Ok((code, found)) = system_data::find::<W>(&memory, at, outputs, call.most.into()) else {
        return;
    };
    let copy = |data| Bytes::copy_from_slice(&memory.bytes[data]);
    let sets: Vec<_> = found.into_iter().map(|set| set.with(copy)).collect();
    if code != 0 {
        return assert!(sets.is_empty());
    }
    collected(&memory, &sets, outputs, call.most.into());
    let (_, pieces) = response(sets, &Bytes::new());
    assert!(pieces.len() <= 3 * MOST_ITEMS + 1);
}

fn set(Given(name, items): &Given) -> Set {
    let items = items.iter().map(|(name, key, data)| Item {
        name: name.clone(),
        key: *key,
        data: data.clone().into(),
    });
    Set {
        name: name.clone(),
        items: items.collect(),
    }
}

fn slice<'a>(memory: &'a Memory<'_>, address: u64, length: u64) -> &'a [u8] {
    let start = usize::try_from(address - memory.base).expect("it is in memory");
    &memory.bytes[start..start + usize::try_from(length).expect("it is in memory")]
}

fn word<W: Word>(memory: &Memory<'_>, address: u64, number: u64) -> u64 {
    let size = W::SIZE as u64;
    W::read(slice(memory, address + number * size, size)).expect("so many bytes are a word")
}

/// If it lies in memory and fits.
fn put<W: Word>(memory: &mut Memory<'_>, address: u64, value: u64) {
    let start = usize::try_from(address.wrapping_sub(memory.base)).unwrap_or(usize::MAX);
    if let Some(bytes) = memory.bytes.get_mut(start..start.saturating_add(W::SIZE)) {
        // Of a word that is too large, what fits.
        let value = if W::SIZE == 4 { value & 0xffff_ffff } else { value };
        W::write(value, bytes).expect("it fits");
    }
}

/// A guest finds what it was given, in memory that was free, and its heap behind it.
fn placed<W: Word>(
    memory: &Memory<'_>,
    at: u64,
    free: std::ops::Range<u64>,
    inputs: &[Set],
    outputs: &[String],
) {
    let size = W::SIZE as u64;
    let field = |number| word::<W>(memory, at, number);
    assert_eq!(slice(memory, at, 4), UNTOUCHED.to_le_bytes());
    assert!(free.contains(&field(1)) || field(1) == free.end);
    assert_eq!(
        (field(2), field(3), field(5)),
        (free.end, inputs.len() as u64, outputs.len() as u64)
    );
    let (mut buffer, mut first) = (field(7), 0);
    for (index, set) in (0_u64..).zip(inputs) {
        let its = field(4) + index * 3 * size;
        let name = slice(memory, word::<W>(memory, its, 0), word::<W>(memory, its, 1));
        assert_eq!(name, set.name.as_bytes());
        assert_eq!(word::<W>(memory, its, 2), first);
        for item in &set.items {
            let part = |number| {
                slice(
                    memory,
                    word::<W>(memory, buffer, number),
                    word::<W>(memory, buffer, number + 1),
                )
            };
            assert_eq!((part(0), part(2)), (item.name.as_bytes(), &*item.data));
            assert!(word::<W>(memory, buffer, 2).is_multiple_of(16));
            assert_eq!(word::<W>(memory, buffer, 4), item.key);
            buffer += 5 * size;
            first += 1;
        }
    }
    assert_eq!(
        word::<W>(memory, field(4) + inputs.len() as u64 * 3 * size, 2),
        first
    );
}

/// Leaves an item in the first set, as a guest does, if there is room for it at the end of the memory.
fn give<W: Word>(memory: &mut Memory<'_>, at: u64, end: u64, outputs: &[String]) {
    let size = W::SIZE as u64;
    let Some(buffer) = end
        .checked_sub(5 * size)
        .filter(|buffer| *buffer >= at + system_data::size::<W>() as u64)
    else {
        return;
    };
    let sets = word::<W>(memory, at, 6);
    for (number, value) in [buffer, 1, at, 16, 3].into_iter().enumerate() {
        put::<W>(memory, buffer + number as u64 * size, value);
    }
    for set in 1..=outputs.len() as u64 {
        put::<W>(memory, sets.wrapping_add((set * 3 + 2) * size), 1);
    }
    put::<W>(memory, at + 8 * size, buffer);
}

/// What was collected are outputs.
fn collected(memory: &Memory<'_>, sets: &[Set], outputs: &[String], most: u64) {
    assert!(sets.iter().map(|set| &set.name).eq(outputs));
    let (mut bytes, mut count) = (0, 0);
    for set in sets {
        let mut names = HashSet::new();
        for item in &set.items {
            assert_eq!(check_name(&item.name), Ok(()));
            assert!(names.insert(&item.name), "{} is there twice", item.name);
            assert!(item.data.len() <= memory.bytes.len());
            bytes += item.data.len() as u64;
            count += 1;
        }
    }
    assert!(bytes <= most && count <= MOST_ITEMS);
}
