//! The structure that pure functions export as `__dandelion_system_data`: where their inputs lie, where their heap is, and where they
//! left their outputs (thesis on WebAssembly in Dandelion, section 3.2.1; the fields and their order are those of the Dandelion SDK's `system.h`).
//!
//! One definition serves both widths: every field but the exit code is a [`Word`] of the guest's. The host places inputs, and what
//! describes them, in memory that is the function's and that its code does not know of yet, and the rest of that memory is its heap.
//!
//! | structure | fields |
//! |---|---|
//! | system data | exit code (32 bits, then padding to a word), heap begin, heap end, input sets' number and address, output sets' number and address, input buffers' address, output buffers' address |
//! | set | name's address and length, number of its first buffer |
//! | buffer | name's address and length, data's address and length, key |
//!
//! After the last set of an array comes one more, whose first buffer's number is the number of all buffers. Of outputs the host writes
//! the sets' names; the guest writes the first buffers' numbers, the buffers, and their address.
//!
//! What a guest leaves behind may be anything. Each field is read once, each address and length is checked, and so is what they add up to.

use crate::{BadName, Item, LONGEST_NAME, MOST_ITEMS, Set, check_name};
use bytes::Bytes;
use std::{collections::HashSet, ops::Range, str};

/// The name of the structure among a module's exports.
pub const EXPORT: &str = "__dandelion_system_data";

/// The exit code before the guest has said any: one above those that a process can have.
pub const UNTOUCHED: i32 = 256;

/// An address or a size as a guest has it.
pub trait Word {
    /// Bytes.
    const SIZE: usize;

    /// From so many bytes.
    fn read(bytes: &[u8]) -> Option<u64>;

    /// To so many bytes. `None` if it is too large.
    fn write(value: u64, bytes: &mut [u8]) -> Option<()>;
}

macro_rules! word {
    ($($type:ty),*) => {$(
        impl Word for $type {
            const SIZE: usize = size_of::<Self>();

            fn read(bytes: &[u8]) -> Option<u64> {
                Some(Self::from_le_bytes(bytes.try_into().ok()?).into())
            }

            fn write(value: u64, bytes: &mut [u8]) -> Option<()> {
                bytes.copy_from_slice(&Self::try_from(value).ok()?.to_le_bytes());
                Some(())
            }
        }
    )*};
}
word!(u32, u64);

/// Bytes of the structure.
pub const fn size<W: Word>() -> usize {
    // The exit code takes a word of its own.
    W::SIZE * 9
}

// Words of the structure, by their place in it.
const HEAP_BEGIN: usize = 1;
const HEAP_END: usize = 2;
const INPUT_SETS_LENGTH: usize = 3;
const INPUT_SETS: usize = 4;
const OUTPUT_SETS_LENGTH: usize = 5;
const OUTPUT_SETS: usize = 6;
const INPUT_BUFFERS: usize = 7;
const OUTPUT_BUFFERS: usize = 8;

/// Words of a set, and of a buffer.
const SET: usize = 3;
const BUFFER: usize = 5;

/// Of items' data and of the heap.
const ALIGNMENT: u64 = 16;
/// Of data that fills a line of the processor's cache. Each vector of 512 bits lies across two lines otherwise.
const LINE: u64 = 64;

fn alignment(data: &[u8]) -> u64 {
    if (data.len() as u64) < LINE {
        ALIGNMENT
    } else {
        LINE
    }
}

/// A guest's memory: its bytes, and the address that the first has for the guest.
pub struct Memory<'a> {
    /// The bytes.
    pub bytes: &'a mut [u8],
    /// 0 in Wasm.
    pub base: u64,
}

impl Memory<'_> {
    fn range(&self, address: u64, length: u64) -> Option<Range<usize>> {
        let start = address.checked_sub(self.base)?;
        let end = start.checked_add(length)?;
        (end <= self.bytes.len() as u64).then_some(start as usize..end as usize)
    }

    fn slice(&self, address: u64, length: u64) -> Option<&[u8]> {
        self.bytes.get(self.range(address, length)?)
    }

    fn slice_mut(&mut self, address: u64, length: usize) -> Option<&mut [u8]> {
        let range = self.range(address, length as u64)?;
        self.bytes.get_mut(range)
    }

    /// The word of this number after an address.
    fn word<W: Word>(&self, address: u64, number: usize) -> Option<u64> {
        let at = address.checked_add((number * W::SIZE) as u64)?;
        W::read(self.slice(at, W::SIZE as u64)?)
    }

    fn put<W: Word>(&mut self, address: u64, words: &[u64]) -> Option<()> {
        let bytes = self.slice_mut(address, words.len() * W::SIZE)?;
        let mut cells = bytes.chunks_exact_mut(W::SIZE).zip(words);
        cells.try_for_each(|(cell, word)| W::write(*word, cell))
    }
}

/// Inputs that a guest cannot be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadInputs {
    /// They do not fit.
    #[error("its inputs and what describes them take {needed} bytes, and its memory has room for {room}")]
    NoRoom {
        /// Bytes that they take, without any heap.
        needed: u64,
        /// Bytes that there are.
        room: u64,
    },
    /// A key is larger than the guest's words are.
    #[error("the key of `{set}/{item}` is {key}, and the function's numbers have {} bits", .bytes * 8)]
    Key {
        /// The item's set.
        set: String,
        /// Its name.
        item: String,
        /// The key.
        key: u64,
        /// Of a word.
        bytes: usize,
    },
}

/// Takes what it needs from a range of addresses, upwards.
struct Room(Range<u64>);

impl Room {
    fn take(&mut self, bytes: u64, alignment: u64) -> u64 {
        let at = self.0.start.next_multiple_of(alignment);
        self.0.start = at.saturating_add(bytes);
        at
    }
}

/// Bytes that inputs and what describes them take at most, whatever the addresses.
pub fn room<W: Word>(inputs: &[Set], outputs: &[String]) -> u64 {
    let word = W::SIZE as u64;
    let items = inputs.iter().flat_map(|set| &set.items);
    let data = items.map(|item| {
        (item.data.len() + item.name.len()) as u64 + alignment(&item.data) + BUFFER as u64 * word
    });
    let names = inputs.iter().map(|set| &set.name).chain(outputs);
    let sets = names.map(|name| name.len() as u64 + SET as u64 * word);
    data.sum::<u64>() + sets.sum::<u64>() + 2 * SET as u64 * word + 4 * ALIGNMENT
}

/// Places inputs in `free`, and what describes them, and writes the structure at `at`, which is not in `free`. The rest of `free` is
/// the heap.
pub fn place<W: Word>(
    memory: &mut Memory<'_>,
    at: u64,
    free: Range<u64>,
    inputs: &[Set],
    outputs: &[String],
) -> Result<(), BadInputs> {
    let (needed, room) = (room::<W>(inputs, outputs), free.end.saturating_sub(free.start));
    let fault = BadInputs::NoRoom { needed, room };
    if needed > room {
        return Err(fault);
    }
    let mut all = inputs
        .iter()
        .flat_map(|set| set.items.iter().map(move |item| (set, item)));
    if let Some((set, item)) = all.find(|(_, item)| W::write(item.key, &mut [0; 8][..W::SIZE]).is_none()) {
        return Err(BadInputs::Key {
            set: set.name.clone(),
            item: item.name.clone(),
            key: item.key,
            bytes: W::SIZE,
        });
    }
    try_place::<W>(memory, at, free, inputs, outputs).ok_or(fault)
}

fn try_place<W: Word>(
    memory: &mut Memory<'_>,
    at: u64,
    free: Range<u64>,
    inputs: &[Set],
    outputs: &[String],
) -> Option<()> {
    let heap_end = free.end;
    let mut room = Room(free);
    let text = |memory: &mut Memory<'_>, room: &mut Room, bytes: &[u8], alignment| {
        let at = room.take(bytes.len() as u64, alignment);
        memory.slice_mut(at, bytes.len())?.copy_from_slice(bytes);
        Some(at)
    };
    let words = |sets: usize| sets as u64 * (SET * W::SIZE) as u64;
    let input_sets = room.take(words(inputs.len() + 1), ALIGNMENT);
    let output_sets = room.take(words(outputs.len() + 1), ALIGNMENT);
    let count: usize = inputs.iter().map(|set| set.items.len()).sum();
    let input_buffers = room.take(count as u64 * (BUFFER * W::SIZE) as u64, ALIGNMENT);
    let mut buffers = 0;
    for (index, set) in inputs.iter().enumerate() {
        let name = text(memory, &mut room, set.name.as_bytes(), 1)?;
        let words = [name, set.name.len() as u64, buffers];
        memory.put::<W>(input_sets + (index * SET * W::SIZE) as u64, &words)?;
        for item in &set.items {
            let name = text(memory, &mut room, item.name.as_bytes(), 1)?;
            let data = text(memory, &mut room, &item.data, alignment(&item.data))?;
            let words = [
                name,
                item.name.len() as u64,
                data,
                item.data.len() as u64,
                item.key,
            ];
            memory.put::<W>(input_buffers + buffers * (BUFFER * W::SIZE) as u64, &words)?;
            buffers += 1;
        }
    }
    memory.put::<W>(input_sets + words(inputs.len()), &[0, 0, buffers])?;
    for (index, name) in outputs.iter().enumerate() {
        let address = text(memory, &mut room, name.as_bytes(), 1)?;
        let words = [address, name.len() as u64, 0];
        memory.put::<W>(output_sets + (index * SET * W::SIZE) as u64, &words)?;
    }
    memory.put::<W>(output_sets + words(outputs.len()), &[0, 0, 0])?;
    let heap_begin = room.take(0, ALIGNMENT);
    let mut fields = [0; 9];
    fields[HEAP_BEGIN] = heap_begin;
    fields[HEAP_END] = heap_end;
    fields[INPUT_SETS_LENGTH] = inputs.len() as u64;
    fields[INPUT_SETS] = input_sets;
    fields[OUTPUT_SETS_LENGTH] = outputs.len() as u64;
    fields[OUTPUT_SETS] = output_sets;
    fields[INPUT_BUFFERS] = input_buffers;
    fields[OUTPUT_BUFFERS] = 0;
    memory.put::<W>(at, &fields)?;
    memory.slice_mut(at, 4)?.copy_from_slice(&UNTOUCHED.to_le_bytes());
    Some(())
}

/// Why what a guest left behind is no outputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadOutputs {
    /// An address or a length leads out of its memory.
    #[error("{0} lies outside its memory")]
    Outside(&'static str),
    /// It counts more sets than it was given, or fewer.
    #[error("it left {found} output sets in place of {declared}")]
    Sets {
        /// It says.
        found: u64,
        /// The manifest says.
        declared: usize,
    },
    /// Its sets' first buffers are not in order, or are too many.
    #[error("its output sets do not say which of at most {MOST_ITEMS} buffers are theirs")]
    Order,
    /// An item cannot be called what it is called.
    #[error("an item of its output set `{set}` has a bad name: {why}")]
    Name {
        /// The item's set.
        set: String,
        /// What is wrong.
        why: BadName,
    },
    /// Two items of a set are called the same.
    #[error("two items of its output set `{set}` are called `{item}`")]
    Twice {
        /// Their set.
        set: String,
        /// Their name.
        item: String,
    },
    /// Outputs have more bytes than they may.
    #[error("its outputs are larger than {0} bytes")]
    TooLarge(u64),
}

/// An output set as a guest has left it: its items' data lie in the guest's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The set's name.
    pub name: String,
    /// Its items.
    pub items: Vec<FoundItem>,
}

/// An item of such a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundItem {
    /// Its name.
    pub name: String,
    /// Its key.
    pub key: u64,
    /// Where its data lie in [`Memory::bytes`].
    pub data: Range<usize>,
}

impl Found {
    /// The set, with the data that `take` gives for a range.
    pub fn with(self, mut take: impl FnMut(Range<usize>) -> Bytes) -> Set {
        let items = self.items.into_iter().map(|item| Item {
            name: item.name,
            data: take(item.data),
            key: item.key,
        });
        Set {
            name: self.name,
            items: items.collect(),
        }
    }
}

/// What the guest has left of the structure at `at`: its exit code, and its outputs if that is 0. Their data have at most `most` bytes in all,
/// and may lie in each other.
pub fn find<W: Word>(
    memory: &Memory<'_>,
    at: u64,
    outputs: &[String],
    most: u64,
) -> Result<(i32, Vec<Found>), BadOutputs> {
    let structure = || BadOutputs::Outside("its system data");
    let code = memory.slice(at, 4).and_then(|bytes| bytes.try_into().ok());
    let code = i32::from_le_bytes(code.ok_or_else(structure)?);
    if code != 0 {
        return Ok((code, Vec::new()));
    }
    let field = |number| memory.word::<W>(at, number).ok_or_else(structure);
    let found = field(OUTPUT_SETS_LENGTH)?;
    if found != outputs.len() as u64 {
        return Err(BadOutputs::Sets {
            found,
            declared: outputs.len(),
        });
    }
    let (sets, buffers) = (field(OUTPUT_SETS)?, field(OUTPUT_BUFFERS)?);
    let array = |of: u64, index: u64, words: usize, what| {
        let offset = index.checked_mul((words * W::SIZE) as u64);
        offset
            .and_then(|offset| of.checked_add(offset))
            .ok_or(BadOutputs::Outside(what))
    };
    let mut firsts = Vec::with_capacity(outputs.len() + 1);
    for index in 0..=found {
        let set = array(sets, index, SET, "an output set")?;
        let first = memory.word::<W>(set, 2);
        firsts.push(first.ok_or(BadOutputs::Outside("an output set"))?);
    }
    if !firsts.is_sorted() || firsts.first().is_some_and(|first| *first != 0) {
        return Err(BadOutputs::Order);
    }
    if firsts.last().is_some_and(|last| *last > MOST_ITEMS as u64) {
        return Err(BadOutputs::Order);
    }
    let mut left = most;
    let bytes = |address, length, what| memory.slice(address, length).ok_or(BadOutputs::Outside(what));
    let mut made = Vec::with_capacity(outputs.len());
    for (name, range) in outputs.iter().zip(firsts.windows(2)) {
        let (mut items, mut names) = (Vec::new(), HashSet::new());
        for index in range[0]..range[1] {
            const WHAT: &str = "an output buffer";
            let buffer = array(buffers, index, BUFFER, WHAT)?;
            let word = |number| memory.word::<W>(buffer, number).ok_or(BadOutputs::Outside(WHAT));
            let text = bytes(word(0)?, word(1)?, "an item's name")?;
            let bad = |why| BadOutputs::Name {
                set: name.clone(),
                why,
            };
            if text.len() > LONGEST_NAME {
                return Err(bad(BadName::Length));
            }
            let text = str::from_utf8(text).map_err(|_| bad(BadName::NotText))?;
            check_name(text).map_err(bad)?;
            if !names.insert(text) {
                return Err(BadOutputs::Twice {
                    set: name.clone(),
                    item: text.to_owned(),
                });
            }
            let data = memory.range(word(2)?, word(3)?);
            let data = data.ok_or(BadOutputs::Outside("an item's data"))?;
            // Items may lie in each other: what is copied is bounded by this, and not by the memory.
            left = left
                .checked_sub(data.len() as u64)
                .ok_or(BadOutputs::TooLarge(most))?;
            items.push(FoundItem {
                name: text.to_owned(),
                key: word(4)?,
                data,
            });
        }
        made.push(Found {
            name: name.clone(),
            items,
        });
    }
    Ok((code, made))
}

#[cfg(test)]
mod tests;
