//! The files of a pure function: in memory, and gone with it.
//!
//! `/in/SET/ITEM` are its inputs, which share their bytes with whoever gave them and cannot be changed. What it leaves as `/out/SET/ITEM` are
//! its outputs. `/tmp` is for anything else. Nothing leads out of here: there are no links, and `..` ends at a descriptor's directory.

use crate::Errno;
use bytes::Bytes;
use pure::{Item, Set, check_name};
use std::collections::BTreeMap;

/// Where a function finds its inputs, leaves its outputs, and may write what it likes.
const PLACES: [(&str, bool); 3] = [("in", false), ("out", true), ("tmp", true)];

/// The descriptor of `/`, which is open from the beginning: the first after the streams.
pub(crate) const ROOT: u32 = 3;

/// Descriptors that can be open at once, and files and directories that there can be besides the inputs.
const MOST_OPEN: usize = 1024;
const MOST_NODES: usize = pure::MOST_ITEMS;

/// What a file or directory takes of a function's room beside its bytes, about.
const NODE: usize = 256;

type Index = usize;

/// Index of `/`.
const TOP: Index = 0;

struct Node {
    kind: Kind,
    writable: bool,
    /// Where it is listed, and descriptors that lead to it: without any it is free.
    links: usize,
}

enum Kind {
    Directory(BTreeMap<String, Index>),
    File(Content),
    Free,
}

enum Content {
    Given(Bytes),
    Written(Vec<u8>),
}

impl Content {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Given(bytes) => bytes,
            Self::Written(bytes) => bytes,
        }
    }
}

struct Open {
    node: Index,
    position: u64,
    reads: bool,
    writes: bool,
    appends: bool,
}

/// What a file or directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Of nothing else here.
    pub(crate) inode: u64,
    pub(crate) is_directory: bool,
    pub(crate) size: u64,
}

/// How a path is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    pub(crate) create: bool,
    pub(crate) directory: bool,
    pub(crate) exclusive: bool,
    pub(crate) truncate: bool,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) appends: bool,
}

/// From where a position counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whence {
    Start,
    Here,
    End,
}

/// See the module.
pub(crate) struct Files {
    nodes: Vec<Node>,
    free: Vec<Index>,
    open: Vec<Option<Open>>,
    /// Bytes that may yet be written.
    room: usize,
}

/// A name, and the directory that lists it or would.
struct Place<'a> {
    directory: Index,
    /// Empty for the directory itself.
    name: &'a str,
    /// The path ended with a `/`.
    wants_directory: bool,
}

impl Files {
    /// With these inputs, directories for these outputs, and room for so many bytes beside the inputs.
    pub(crate) fn new(inputs: &[Set], outputs: &[String], room: usize) -> Self {
        let mut files = Self {
            nodes: Vec::new(),
            free: Vec::new(),
            open: Vec::new(),
            room,
        };
        files.add(Kind::Directory(BTreeMap::new()), false);
        for (name, writable) in PLACES {
            files.list(TOP, name, Kind::Directory(BTreeMap::new()), writable);
        }
        let [given, left] = [PLACES[0].0, PLACES[1].0].map(|name| files.entry(TOP, name).unwrap_or(TOP));
        for set in inputs {
            let directory = files.list(given, &set.name, Kind::Directory(BTreeMap::new()), false);
            for item in &set.items {
                files.list(
                    directory,
                    &item.name,
                    Kind::File(Content::Given(item.data.clone())),
                    false,
                );
            }
        }
        for name in outputs {
            files.list(left, name, Kind::Directory(BTreeMap::new()), true);
        }
        files.open.push(Some(Open {
            node: TOP,
            position: 0,
            reads: true,
            writes: true,
            appends: false,
        }));
        files
    }

    fn add(&mut self, kind: Kind, writable: bool) -> Index {
        let node = Node {
            kind,
            writable,
            links: 0,
        };
        if let Some(index) = self.free.pop() {
            self.nodes[index] = node;
            return index;
        }
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Adds an entry to a directory, which has none of this name.
    fn list(&mut self, directory: Index, name: &str, kind: Kind, writable: bool) -> Index {
        let index = self.add(kind, writable);
        self.nodes[index].links = 1;
        if let Kind::Directory(entries) = &mut self.nodes[directory].kind {
            entries.insert(name.to_owned(), index);
        }
        index
    }

    fn entries(&self, directory: Index) -> Result<&BTreeMap<String, Index>, Errno> {
        match &self.nodes[directory].kind {
            Kind::Directory(entries) => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn entry(&self, directory: Index, name: &str) -> Result<Index, Errno> {
        self.entries(directory)?.get(name).copied().ok_or(Errno::NOENT)
    }

    fn is_directory(&self, node: Index) -> bool {
        matches!(self.nodes[node].kind, Kind::Directory(_))
    }

    /// Whether this descriptor is one of these files.
    pub(crate) fn has(&self, fd: u32) -> bool {
        self.get(fd).is_ok()
    }

    fn get(&self, fd: u32) -> Result<&Open, Errno> {
        let open = fd
            .checked_sub(ROOT)
            .and_then(|index| self.open.get(index as usize));
        open.and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    fn get_mut(&mut self, fd: u32) -> Result<&mut Open, Errno> {
        let open = fd
            .checked_sub(ROOT)
            .and_then(|index| self.open.get_mut(index as usize));
        open.and_then(Option::as_mut).ok_or(Errno::BADF)
    }

    /// Where a path leads, up to its last name.
    fn place<'a>(&self, fd: u32, path: &'a str) -> Result<Place<'a>, Errno> {
        let start = self.get(fd)?.node;
        self.entries(start)?;
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.starts_with('/') {
            return Err(Errno::NOTCAPABLE);
        }
        let mut way = vec![start];
        let mut names = path
            .split('/')
            .filter(|name| !name.is_empty() && *name != ".")
            .peekable();
        let wants_directory = path.ends_with('/') || path.ends_with("/.") || path == ".";
        while let Some(name) = names.next() {
            let here = way[way.len() - 1];
            if name.len() > 255 {
                return Err(Errno::NAMETOOLONG);
            }
            if name == ".." {
                way.pop();
                if way.is_empty() {
                    return Err(Errno::NOTCAPABLE);
                }
            } else if names.peek().is_none() {
                self.entries(here)?;
                return Ok(Place {
                    directory: here,
                    name,
                    wants_directory,
                });
            } else {
                let next = self.entry(here, name)?;
                self.entries(next)?;
                way.push(next);
            }
        }
        Ok(Place {
            directory: way[way.len() - 1],
            name: "",
            wants_directory: true,
        })
    }

    fn find(&self, place: &Place<'_>) -> Result<Index, Errno> {
        if place.name.is_empty() {
            return Ok(place.directory);
        }
        let node = self.entry(place.directory, place.name)?;
        if place.wants_directory {
            self.entries(node)?;
        }
        Ok(node)
    }

    /// A new entry where there is none yet.
    fn create(&mut self, place: &Place<'_>, kind: Kind) -> Result<Index, Errno> {
        if !self.nodes[place.directory].writable {
            return Err(Errno::ROFS);
        }
        if check_name(place.name).is_err() {
            return Err(Errno::INVAL);
        }
        if self.nodes.len() - self.free.len() >= MOST_NODES * 2 || self.room < NODE {
            return Err(Errno::NOSPC);
        }
        self.room -= NODE;
        Ok(self.list(place.directory, place.name, kind, true))
    }

    pub(crate) fn open(&mut self, fd: u32, path: &str, how: How) -> Result<u32, Errno> {
        let place = self.place(fd, path)?;
        let node = match self.find(&place) {
            Ok(_) if how.create && how.exclusive => return Err(Errno::EXIST),
            Err(Errno::NOENT) if how.create => {
                if how.directory || place.wants_directory {
                    return Err(Errno::INVAL);
                }
                self.create(&place, Kind::File(Content::Written(Vec::new())))?
            }
            found => found?,
        };
        if self.is_directory(node) {
            if how.truncate {
                return Err(Errno::ISDIR);
            }
        } else if how.directory {
            return Err(Errno::NOTDIR);
        } else if (how.writes || how.truncate) && !self.nodes[node].writable {
            return Err(Errno::ROFS);
        } else if how.truncate {
            self.resize(node, 0)?;
        }
        let free = self.open.iter().position(Option::is_none);
        let slot = match free {
            Some(slot) => slot,
            None if self.open.len() < MOST_OPEN => {
                self.open.push(None);
                self.open.len() - 1
            }
            None => return Err(Errno::MFILE),
        };
        self.nodes[node].links += 1;
        self.open[slot] = Some(Open {
            node,
            position: 0,
            reads: how.reads,
            writes: how.writes,
            appends: how.appends,
        });
        Ok(ROOT + u32::try_from(slot).map_err(|_| Errno::MFILE)?)
    }

    /// Forgets a link, and what had no other.
    fn unlink(&mut self, node: Index) {
        self.nodes[node].links -= 1;
        if self.nodes[node].links == 0 {
            if let Kind::File(Content::Written(bytes)) = &self.nodes[node].kind {
                self.room += bytes.len();
            }
            self.room += NODE;
            self.nodes[node].kind = Kind::Free;
            self.free.push(node);
        }
    }

    pub(crate) fn close(&mut self, fd: u32) -> Result<(), Errno> {
        let node = self.get(fd)?.node;
        self.open[(fd - ROOT) as usize] = None;
        // The tree's top is listed nowhere.
        if node != TOP {
            self.unlink(node);
        }
        Ok(())
    }

    /// Moves a descriptor to the place of another, which is closed.
    pub(crate) fn renumber(&mut self, from: u32, to: u32) -> Result<(), Errno> {
        self.get(from)?;
        self.get(to)?;
        if from != to {
            self.close(to)?;
            self.open[(to - ROOT) as usize] = self.open[(from - ROOT) as usize].take();
        }
        Ok(())
    }

    fn content(&self, fd: u32) -> Result<&[u8], Errno> {
        let open = self.get(fd)?;
        match &self.nodes[open.node].kind {
            Kind::File(_) if !open.reads => Err(Errno::NOTCAPABLE),
            Kind::File(content) => Ok(content.bytes()),
            _ => Err(Errno::ISDIR),
        }
    }

    /// Reads at a position; how much.
    pub(crate) fn read_at(&self, fd: u32, position: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let content = self.content(fd)?;
        let start = usize::try_from(position).unwrap_or(usize::MAX).min(content.len());
        let count = into.len().min(content.len() - start);
        into[..count].copy_from_slice(&content[start..start + count]);
        Ok(count)
    }

    pub(crate) fn read(&mut self, fd: u32, into: &mut [u8]) -> Result<usize, Errno> {
        let count = self.read_at(fd, self.get(fd)?.position, into)?;
        self.get_mut(fd)?.position += count as u64;
        Ok(count)
    }

    fn resize(&mut self, node: Index, size: u64) -> Result<(), Errno> {
        if !self.nodes[node].writable {
            return Err(Errno::ROFS);
        }
        let Kind::File(content) = &mut self.nodes[node].kind else {
            return Err(Errno::ISDIR);
        };
        // Only what was given is not `Written`, and that is not writable.
        let Content::Written(bytes) = content else {
            return Err(Errno::ROFS);
        };
        let size = usize::try_from(size).map_err(|_| Errno::NOSPC)?;
        let more = size.saturating_sub(bytes.len());
        self.room = self.room.checked_sub(more).ok_or(Errno::NOSPC)?;
        self.room += bytes.len().saturating_sub(size);
        if bytes.capacity() < size {
            // Doubling, but never past what may be written.
            let wanted = size.max((bytes.capacity() * 2).min(size + self.room));
            bytes.reserve_exact(wanted - bytes.len());
        }
        bytes.resize(size, 0);
        Ok(())
    }

    /// Writes at a position; all of it, or nothing.
    pub(crate) fn write_at(&mut self, fd: u32, position: u64, from: &[u8]) -> Result<usize, Errno> {
        let open = self.get(fd)?;
        let node = open.node;
        if self.is_directory(node) {
            return Err(Errno::ISDIR);
        }
        if !open.writes {
            return Err(Errno::NOTCAPABLE);
        }
        if from.is_empty() {
            return Ok(0);
        }
        let end = position.checked_add(from.len() as u64).ok_or(Errno::NOSPC)?;
        let Kind::File(content) = &self.nodes[node].kind else {
            return Err(Errno::ISDIR);
        };
        if end > content.bytes().len() as u64 {
            self.resize(node, end)?;
        }
        let Kind::File(Content::Written(bytes)) = &mut self.nodes[node].kind else {
            return Err(Errno::ROFS);
        };
        let end = usize::try_from(end).map_err(|_| Errno::NOSPC)?;
        bytes[end - from.len()..end].copy_from_slice(from);
        Ok(from.len())
    }

    pub(crate) fn write(&mut self, fd: u32, from: &[u8]) -> Result<usize, Errno> {
        let open = self.get(fd)?;
        let position = if open.appends {
            self.stat(fd)?.size
        } else {
            open.position
        };
        let count = self.write_at(fd, position, from)?;
        self.get_mut(fd)?.position = position + count as u64;
        Ok(count)
    }

    /// Makes room for a file to grow to, as zeros.
    pub(crate) fn allocate(&mut self, fd: u32, size: u64) -> Result<(), Errno> {
        if size > self.stat(fd)?.size {
            self.set_size(fd, size)?;
        }
        Ok(())
    }

    pub(crate) fn set_size(&mut self, fd: u32, size: u64) -> Result<(), Errno> {
        let open = self.get(fd)?;
        let node = open.node;
        if !open.writes {
            return Err(Errno::NOTCAPABLE);
        }
        self.resize(node, size)
    }

    pub(crate) fn set_appends(&mut self, fd: u32, appends: bool) -> Result<(), Errno> {
        self.get_mut(fd)?.appends = appends;
        Ok(())
    }

    pub(crate) fn appends(&self, fd: u32) -> Result<bool, Errno> {
        self.get(fd).map(|open| open.appends)
    }

    pub(crate) fn seek(&mut self, fd: u32, offset: i64, whence: Whence) -> Result<u64, Errno> {
        let base = match whence {
            Whence::Start => 0,
            Whence::Here => self.get(fd)?.position,
            Whence::End => self.stat(fd)?.size,
        };
        let position = base.checked_add_signed(offset).ok_or(Errno::INVAL)?;
        self.get_mut(fd)?.position = position;
        Ok(position)
    }

    fn stat_of(&self, node: Index) -> Stat {
        Stat {
            inode: node as u64 + 1,
            is_directory: self.is_directory(node),
            size: match &self.nodes[node].kind {
                Kind::File(content) => content.bytes().len() as u64,
                _ => 0,
            },
        }
    }

    pub(crate) fn stat(&self, fd: u32) -> Result<Stat, Errno> {
        Ok(self.stat_of(self.get(fd)?.node))
    }

    pub(crate) fn stat_at(&self, fd: u32, path: &str) -> Result<Stat, Errno> {
        let place = self.place(fd, path)?;
        Ok(self.stat_of(self.find(&place)?))
    }

    /// The entries of a directory from this one on: `.` and `..` come first.
    pub(crate) fn entries_from(
        &self,
        fd: u32,
        first: u64,
    ) -> Result<impl Iterator<Item = (&str, Stat)>, Errno> {
        let node = self.get(fd)?.node;
        let dots = [".", ".."].into_iter().map(move |name| (name, node));
        let entries = self
            .entries(node)?
            .iter()
            .map(|(name, node)| (name.as_str(), *node));
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let named = dots.chain(entries).skip(first);
        Ok(named.map(|(name, node)| (name, self.stat_of(node))))
    }

    pub(crate) fn create_directory(&mut self, fd: u32, path: &str) -> Result<(), Errno> {
        let place = self.place(fd, path)?;
        match self.find(&place) {
            Ok(_) | Err(Errno::NOTDIR) => Err(Errno::EXIST),
            Err(Errno::NOENT) => self.create(&place, Kind::Directory(BTreeMap::new())).map(drop),
            Err(error) => Err(error),
        }
    }

    /// The node of an entry that may be taken away.
    fn removable(&self, place: &Place<'_>) -> Result<Index, Errno> {
        let node = self.find(place)?;
        if place.name.is_empty() {
            return Err(Errno::INVAL);
        }
        if !self.nodes[place.directory].writable {
            return Err(Errno::ROFS);
        }
        Ok(node)
    }

    fn remove(&mut self, directory: Index, name: &str) {
        if let Kind::Directory(entries) = &mut self.nodes[directory].kind
            && let Some(node) = entries.remove(name)
        {
            self.unlink(node);
        }
    }

    pub(crate) fn remove_file(&mut self, fd: u32, path: &str) -> Result<(), Errno> {
        let place = self.place(fd, path)?;
        let node = self.removable(&place)?;
        if self.is_directory(node) {
            return Err(Errno::ISDIR);
        }
        self.remove(place.directory, place.name);
        Ok(())
    }

    pub(crate) fn remove_directory(&mut self, fd: u32, path: &str) -> Result<(), Errno> {
        let place = self.place(fd, path)?;
        let node = self.removable(&place)?;
        if !self.entries(node)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.remove(place.directory, place.name);
        Ok(())
    }

    pub(crate) fn rename(&mut self, fd: u32, path: &str, new_fd: u32, new_path: &str) -> Result<(), Errno> {
        let (from, to) = (self.place(fd, path)?, self.place(new_fd, new_path)?);
        let node = self.removable(&from)?;
        if to.name.is_empty() || self.is_below(to.directory, node) {
            return Err(Errno::INVAL);
        }
        if check_name(to.name).is_err() {
            return Err(Errno::INVAL);
        }
        if !self.nodes[to.directory].writable {
            return Err(Errno::ROFS);
        }
        if to.wants_directory {
            self.entries(node)?;
        }
        match self.entry(to.directory, to.name) {
            Err(Errno::NOENT) => {}
            Ok(there) if there == node => return Ok(()),
            Ok(there) => match (self.is_directory(node), self.is_directory(there)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !self.entries(there)?.is_empty() => return Err(Errno::NOTEMPTY),
                _ => self.remove(to.directory, to.name),
            },
            Err(error) => return Err(error),
        }
        self.nodes[node].links += 1;
        self.remove(from.directory, from.name);
        if let Kind::Directory(entries) = &mut self.nodes[to.directory].kind {
            entries.insert(to.name.to_owned(), node);
        }
        Ok(())
    }

    /// Whether a directory is another, or somewhere in it.
    fn is_below(&self, directory: Index, other: Index) -> bool {
        let mut look = vec![other];
        while let Some(node) = look.pop() {
            if node == directory {
                return true;
            }
            if let Kind::Directory(entries) = &self.nodes[node].kind {
                look.extend(entries.values().copied().filter(|node| self.is_directory(*node)));
            }
        }
        false
    }

    /// Takes what was left in `/out`, or says what does not belong there. Written bytes are not copied.
    pub(crate) fn take_outputs(&mut self, outputs: &[String]) -> Result<Vec<Set>, String> {
        let left = self.entry(TOP, PLACES[1].0).unwrap_or(TOP);
        let found: Vec<_> = match self.entries(left) {
            Ok(entries) => entries.keys().cloned().collect(),
            Err(_) => Vec::new(),
        };
        if let Some(stray) = found.iter().find(|name| !outputs.contains(name)) {
            return Err(format!("it left `/out/{stray}`, and has no such output set"));
        }
        let mut sets = Vec::with_capacity(outputs.len());
        for name in outputs {
            let mut items = Vec::new();
            // A set whose directory was removed has no items.
            let directory = self.entry(left, name);
            let entries = directory.and_then(|directory| self.entries(directory).cloned());
            let entries = match entries {
                Ok(entries) => entries,
                Err(Errno::NOENT) => BTreeMap::new(),
                Err(_) => {
                    return Err(format!(
                        "it left `/out/{name}` as a file, and it is to be a directory"
                    ));
                }
            };
            for (item, node) in entries {
                let Kind::File(content) = &mut self.nodes[node].kind else {
                    return Err(format!(
                        "it left `/out/{name}/{item}` as a directory, and items are files"
                    ));
                };
                let data = match content {
                    Content::Given(bytes) => bytes.clone(),
                    Content::Written(bytes) => std::mem::take(bytes).into(),
                };
                items.push(Item {
                    name: item,
                    key: 0,
                    data,
                });
            }
            sets.push(Set {
                name: name.clone(),
                items,
            });
        }
        Ok(sets)
    }
}

#[cfg(test)]
mod tests;
