//! What a component's store holds.

use super::{
    http::Bodies,
    outgoing::Exchanges,
    table::{Source, Table},
};
use crate::turn;
use contract::ByteSize;
use wasi::{Command, Incoming};
use wasmtime::ResourceLimiter;

/// The request, what the guest holds of it, and the account of its memories.
pub(crate) struct Host {
    pub(crate) command: Command,
    pub(crate) table: Table,
    /// What became of the responses that it made; a command makes none.
    pub(crate) bodies: Bodies,
    /// What it has asked of others.
    pub(crate) exchanges: Exchanges,
    /// Whether standard input and output are the request and the response.
    pub(crate) streams: bool,
    /// Bytes of all its linear memories.
    memory: u64,
    limit: ByteSize,
    refused: bool,
}

impl Host {
    pub(crate) fn new(command: Command, streams: bool) -> Self {
        Self {
            limit: command.grant().limits.memory,
            command,
            table: Table::default(),
            bodies: Bodies::default(),
            exchanges: Exchanges::default(),
            streams,
            memory: 0,
            refused: false,
        }
    }

    /// The body that an input stream reads.
    pub(crate) fn incoming(&mut self, source: Source) -> Option<&mut Incoming> {
        match source {
            Source::Nothing => None,
            Source::Body => Some(self.command.body()),
            Source::Reply(number) => self.exchanges.reply(number),
        }
    }

    /// The limit, if the guest has asked for more.
    pub(crate) fn refused(&self) -> Option<ByteSize> {
        self.refused.then_some(self.limit)
    }
}

impl ResourceLimiter for Host {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let total = self.memory.saturating_add(desired.saturating_sub(current) as u64);
        let within = total <= self.limit.0;
        if within {
            self.memory = total;
            turn::memory(total);
        } else if maximum.is_none_or(|maximum| desired <= maximum) {
            // Beyond its own declared maximum it is the component that refuses.
            self.refused = true;
        }
        Ok(within)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        _desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // The pool's size of a table holds.
        Ok(true)
    }
}
