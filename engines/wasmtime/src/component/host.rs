//! What a component's store holds.

use super::{
    http::Bodies,
    keep,
    outgoing::Exchanges,
    table::{Source, Table},
};
use crate::turn;
use contract::ByteSize;
use fresh::Area;
use wasi::{Command, Incoming};
use wasmtime::{Error, ResourceLimiter, Result};

/// The request, what the guest holds of it, and the account of its memories.
pub(crate) struct Host {
    /// None between two requests.
    pub(super) command: Option<Command>,
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
    /// Whether the guest has called the host.
    touched: bool,
    /// Its one memory, if the keeper has told.
    area: Option<Area>,
    /// Handles that a guest of this instance ever had at once.
    handles: usize,
    /// Those that its last guest did not drop, as [`keep::LEFT`] tells them.
    pub(super) left: Vec<u32>,
}

/// Of the instance whose first state is kept.
impl Default for Host {
    fn default() -> Self {
        Self {
            command: None,
            table: Table::default(),
            bodies: Bodies::default(),
            exchanges: Exchanges::default(),
            streams: false,
            memory: 0,
            limit: ByteSize(u64::MAX),
            refused: false,
            touched: false,
            area: None,
            handles: 0,
            left: Vec::new(),
        }
    }
}

impl Host {
    pub(crate) fn new(command: Command, streams: bool) -> Self {
        let mut host = Self::default();
        host.begin(command, streams);
        host
    }

    /// Begins a request, in a new instance or in one that is as a new one.
    pub(crate) fn begin(&mut self, command: Command, streams: bool) {
        self.limit = command.grant().limits.memory;
        self.command = Some(command);
        self.streams = streams;
        turn::memory(self.memory);
    }

    /// Ends it: nothing of it is left here but which handles the guest has not dropped. Whether the guest's memory is as large as
    /// it was.
    pub(crate) fn end(&mut self) -> bool {
        let same = self.area.is_some_and(|area| area.size as u64 == self.memory);
        let left = self.table.left().map(|(kind, handle)| keep::left(kind, handle));
        *self = Self {
            memory: self.memory,
            area: self.area,
            handles: self.handles.max(self.table.most()),
            left: left.collect(),
            ..Self::default()
        };
        same
    }

    /// What the guest asks for beyond its component.
    pub(crate) fn command(&mut self) -> Result<&mut Command> {
        let none = || Error::msg("the guest runs without a request");
        self.command.as_mut().ok_or_else(none)
    }

    /// Handles that a guest of this instance ever had at once, or more.
    pub(crate) fn handles(&self) -> usize {
        self.handles
    }

    /// How many of them are to be dropped.
    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    /// The next of these, as [`keep::LEFT`] tells it.
    pub(crate) fn next_left(&mut self) -> Result<u32> {
        let none = || Error::msg("no handle is left");
        self.left.pop().ok_or_else(none)
    }

    pub(crate) fn touch(&mut self) {
        self.touched = true;
    }

    pub(crate) fn touched(&self) -> bool {
        self.touched
    }

    pub(crate) fn set_memory(&mut self, area: Area) {
        self.area = Some(area);
    }

    /// Its one memory, if the keeper has told.
    pub(crate) fn area(&self) -> Option<Area> {
        self.area
    }

    /// The body that an input stream reads.
    pub(crate) fn incoming(&mut self, source: Source) -> Option<&mut Incoming> {
        match source {
            Source::Nothing => None,
            Source::Body => self.command.as_mut().map(Command::body),
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
