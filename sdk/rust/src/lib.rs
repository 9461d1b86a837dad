//! Pure functions: sets of items in, sets of items out, and nothing else.
//!
//! A function's inputs lie in its memory before it begins, and its outputs are taken from there when it has ended. It has no standard library
//! and imports nothing; `alloc` is there.
//!
//! ```ignore
//! #![no_std]
//! extern crate alloc;
//! use millpond_pure::{Failure, Inputs, Outputs};
//!
//! millpond_pure::main!(join);
//!
//! fn join(inputs: &Inputs, outputs: &mut Outputs) -> Result<(), Failure> {
//!     let parts = inputs.set("parts").ok_or(Failure(2))?;
//!     let mut whole = alloc::vec::Vec::new();
//!     for part in parts.items() {
//!         whole.extend_from_slice(part.data);
//!     }
//!     outputs.give("whole", "text", whole)
//! }
//! ```
//!
//! It is built as a `cdylib`, for `wasm32-unknown-unknown`, or for `wasm32-wasip1`, of which it uses nothing. The structure between a function and
//! its host is that of the Dandelion SDK (`data`); the heap (`heap`) is what the host leaves free of the function's memory.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(all(target_family = "wasm", not(test)))]
mod compare;
mod data;
mod heap;

use alloc::{string::String, vec::Vec};
use core::{slice, str};
use data::{Buffer, RawSet};

/// One item: some bytes with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// No other item of its set has it.
    pub name: &'a str,
    /// By which compositions tell items apart; 0 if nobody said otherwise.
    pub key: usize,
    /// The bytes. Those of inputs are aligned to 16 bytes, from 64 bytes on to 64.
    pub data: &'a [u8],
}

/// A named group of input items.
#[derive(Clone, Copy)]
pub struct Set<'a> {
    name: &'a str,
    buffers: &'a [Buffer],
}

/// All input sets.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    sets: &'a [RawSet],
    buffers: &'a [Buffer],
}

/// Code of a failure: what a program would exit with. Not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure(pub i32);

/// What a function leaves.
pub struct Outputs {
    names: Vec<&'static str>,
    items: Vec<(usize, String, usize, Vec<u8>)>,
}

/// # Safety
/// So many elements lie there, for as long as the function runs, and nobody writes to them.
unsafe fn array<'a, T>(at: *const T, length: usize) -> &'a [T] {
    match length {
        0 => &[],
        // SAFETY: see above.
        _ => unsafe { slice::from_raw_parts(at, length) },
    }
}

/// # Safety
/// As of [`array`].
unsafe fn text<'a>(at: *const u8, length: usize) -> &'a str {
    // SAFETY: see above. The host gives names that are text.
    str::from_utf8(unsafe { array(at, length) }).unwrap_or_default()
}

impl<'a> Item<'a> {
    fn of(buffer: &'a Buffer) -> Self {
        // SAFETY: the host has placed both, and they are the function's to read until it ends.
        let (name, data) = unsafe {
            (
                text(buffer.name, buffer.name_length),
                array(buffer.data, buffer.size),
            )
        };
        Self {
            name,
            key: buffer.key,
            data,
        }
    }
}

impl<'a> Set<'a> {
    /// As the manifest calls it.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Its items, in the order of the request.
    pub fn items(&self) -> impl ExactSizeIterator<Item = Item<'a>> + use<'a> {
        self.buffers.iter().map(Item::of)
    }

    /// The item of this name.
    pub fn item(&self, name: &str) -> Option<Item<'a>> {
        self.items().find(|item| item.name == name)
    }
}

impl<'a> Inputs<'a> {
    /// All of them, in the order of the manifest.
    pub fn sets(&self) -> impl Iterator<Item = Set<'a>> + use<'a> {
        let buffers = self.buffers;
        self.sets.windows(2).map(move |pair| Set {
            // SAFETY: as of items.
            name: unsafe { text(pair[0].name, pair[0].name_length) },
            buffers: buffers.get(pair[0].first..pair[1].first).unwrap_or_default(),
        })
    }

    /// The set of this name.
    pub fn set(&self, name: &str) -> Option<Set<'a>> {
        self.sets().find(|set| set.name == name)
    }
}

impl Outputs {
    /// Adds an item to a set, the next of it. Fails if there is no such set.
    pub fn give(
        &mut self,
        set: &str,
        name: impl Into<String>,
        data: impl Into<Vec<u8>>,
    ) -> Result<(), Failure> {
        self.give_with_key(set, name, 0, data)
    }

    /// The same, of an item that has a key.
    pub fn give_with_key(
        &mut self,
        set: &str,
        name: impl Into<String>,
        key: usize,
        data: impl Into<Vec<u8>>,
    ) -> Result<(), Failure> {
        let index = self.names.iter().position(|known| *known == set);
        let index = index.ok_or(Failure(NO_SET))?;
        self.items.push((index, name.into(), key, data.into()));
        Ok(())
    }

    /// The names of the sets that there are.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }
}

/// The code of a function that gives to a set that it does not have.
const NO_SET: i32 = 254;

/// Runs a function on what the host has placed, and leaves what it gives. For [`main!`].
#[doc(hidden)]
pub fn run(function: fn(&Inputs<'_>, &mut Outputs) -> Result<(), Failure>) {
    data::with(|data| {
        // SAFETY: the host has placed these arrays, each of sets with one more behind its last.
        let (sets, outputs) = unsafe {
            (
                array(data.input_sets, data.input_sets_length + 1),
                slice::from_raw_parts_mut(data.output_sets, data.output_sets_length + 1),
            )
        };
        let count = sets.last().map_or(0, |last| last.first);
        let inputs = Inputs {
            sets,
            // SAFETY: so many the last set says there are.
            buffers: unsafe { array(data.inputs, count) },
        };
        let named = &outputs[..data.output_sets_length];
        let mut made = Outputs {
            // SAFETY: as of input sets.
            names: named
                .iter()
                .map(|set| unsafe { text(set.name, set.name_length) })
                .collect(),
            items: Vec::new(),
        };
        if let Err(Failure(code)) = function(&inputs, &mut made) {
            data.exit_code = code;
            return;
        }
        // Stable: within a set the order is that in which they were given.
        made.items.sort_by_key(|(set, ..)| *set);
        let mut buffers: Vec<Buffer> = Vec::with_capacity(made.items.len());
        let mut next = 0;
        for (index, set) in outputs.iter_mut().enumerate() {
            set.first = next;
            let its = made.items[next..].iter().take_while(|(set, ..)| *set == index);
            buffers.extend(its.map(|(_, name, key, data)| Buffer {
                name: name.as_ptr(),
                name_length: name.len(),
                data: data.as_ptr(),
                size: data.len(),
                key: *key,
            }));
            next = buffers.len();
        }
        data.outputs = buffers.as_ptr();
        data.exit_code = 0;
        // The host reads them when nothing of the function runs any more.
        core::mem::forget((buffers, made));
    });
}

/// Makes a function the program's entry: `millpond_pure::main!(function);`, where it is `fn(&Inputs, &mut Outputs) -> Result<(), Failure>`.
#[macro_export]
macro_rules! main {
    ($function:path) => {
        /// The host calls it once.
        #[unsafe(no_mangle)]
        pub extern "C" fn _start() {
            $crate::run($function);
        }
    };
}

#[cfg(all(target_family = "wasm", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

#[cfg(test)]
mod tests;
