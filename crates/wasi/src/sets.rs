//! A pure function whose sets lie in its memory ([`pure::system_data`](::pure::system_data)), and that so needs no host functions.
//!
//! An engine asks for the structure's address, [`EXPORT`](::pure::system_data::EXPORT) among the module's exports, and runs such a guest like this:
//! once the request's body is complete, it makes the memory as large as [`Command::extended`] says and calls [`Command::place`]; after `_start` it
//! calls [`Command::collect`] in place of [`Command::finish`]. The memory's size is the same for all requests to a version, and so are the
//! addresses of equal inputs: a guest that looks at them still gives equal outputs.

use crate::Command;
use ::pure::system_data::{self, BadInputs, BadOutputs, Found, Memory, UNTOUCHED, Word};
use bytes::Bytes;
use contract::{Fault, Protocol};
use std::ops::Range;

/// Bytes that all engines can give a memory, and whose end is an address of 32 bits.
const MOST: u64 = 2 << 30;

/// Bytes of a page of Wasm's.
const PAGE: u64 = 64 << 10;

impl Command {
    /// Whether it is one of a pure function.
    pub fn is_pure(&self) -> bool {
        matches!(self.grant().protocol, Protocol::Pure { .. })
    }

    /// Bytes that the memory of such a function is to have if it can have `most`: all that it may use.
    pub fn extended(&self, most: u64) -> u64 {
        let limit = self.grant().limits.memory.0;
        limit.min(most).min(MOST) / PAGE * PAGE
    }

    /// Places the inputs in a memory of Wasm's, from `free` on, and writes the structure at `at`. Nothing else is copied of them.
    pub fn place(&self, memory: &mut [u8], at: u32, free: u64) -> Result<(), Fault> {
        let end = memory.len() as u64;
        let mut memory = Memory {
            bytes: memory,
            base: 0,
        };
        self.place_in::<u32>(&mut memory, at.into(), free..end)
    }

    /// The same in any memory, in this range of its addresses.
    pub fn place_in<W: Word>(&self, memory: &mut Memory<'_>, at: u64, free: Range<u64>) -> Result<(), Fault> {
        let outputs: &[String] = match &self.grant().protocol {
            Protocol::Pure { outputs, .. } => outputs,
            _ => &[],
        };
        let inputs = self.pure.as_ref().map_or(&[][..], |pure| &pure.inputs);
        let placed = system_data::place::<W>(memory, at, free, inputs, outputs);
        placed.map_err(|error| match error {
            BadInputs::NoRoom { .. } => Fault::OutOfMemory {
                limit: self.grant().limits.memory,
                reason: error.to_string(),
            },
            BadInputs::Key { .. } => Fault::BadInput {
                reason: error.to_string(),
            },
        })
    }

    /// Ends a function whose `_start` has returned: what it has left in its memory, one of Wasm's, is the response, or the fault says what is
    /// wrong with it. To be called once.
    pub fn collect(&mut self, memory: &mut [u8], at: u32) -> Result<(), Fault> {
        let memory = Memory {
            bytes: memory,
            base: 0,
        };
        self.collect_from::<u32>(&memory, at.into())
    }

    /// The same from any memory.
    pub fn collect_from<W: Word>(&mut self, memory: &Memory<'_>, at: u64) -> Result<(), Fault> {
        let found = self.find::<W>(memory, at)?;
        self.answer_with(found, |data| Bytes::copy_from_slice(&memory.bytes[data]))
    }

    /// What such a function has left in its memory, for [`Command::answer_with`].
    pub fn find<W: Word>(&self, memory: &Memory<'_>, at: u64) -> Result<Vec<Found>, Fault> {
        let outputs: &[String] = match &self.grant().protocol {
            Protocol::Pure { outputs, .. } => outputs,
            _ => &[],
        };
        let limit = self.grant().limits.response_body;
        let found = system_data::find::<W>(memory, at, outputs, limit.0);
        let (code, sets) = found.map_err(|error| match error {
            BadOutputs::TooLarge(_) => Fault::OutputTooLarge { limit },
            _ => Fault::BadOutput {
                reason: error.to_string(),
            },
        })?;
        match code {
            0 => Ok(sets),
            UNTOUCHED => Err(Fault::BadOutput {
                reason: "it has ended and left no exit code in its system data".to_owned(),
            }),
            code => Err(Fault::Exit { code }),
        }
    }

    /// Answers with what was found, whose data `take` gives: no engine needs to copy what it can keep.
    pub fn answer_with(
        &mut self,
        found: Vec<Found>,
        mut take: impl FnMut(Range<usize>) -> Bytes,
    ) -> Result<(), Fault> {
        self.answer_sets(found.into_iter().map(|set| set.with(&mut take)).collect())
    }
}
