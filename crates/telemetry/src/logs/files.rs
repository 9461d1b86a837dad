//! The files of the log: for each function one that grows, `NAME.log`, and the one before it, `NAME.log.1`.
//!
//! A file that has its full size is renamed to the older one, which thereby ends. Lines are whole unless the process or
//! the disk failed in the middle of one; a reader skips what is not a record, and a writer that comes after a failure
//! begins a new line first.

use super::{Filter, Record};
use contract::FunctionId;
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// Files kept open for writing, so that many functions do not use up the process's descriptors.
const OPEN: usize = 64;

/// How much is read at a time when looking backwards.
const BLOCK: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    limit: u64,
    open: HashMap<FunctionId, Open>,
    clock: u64,
}

#[derive(Debug)]
struct Open {
    file: File,
    size: u64,
    /// The file may end in the middle of a line.
    torn: bool,
    used: u64,
}

/// A function's files as they were at one moment, for reading.
#[derive(Debug)]
pub(super) struct Reader {
    /// Newest first, with their size at that moment.
    files: Vec<(File, u64)>,
}

fn path(folder: &Path, function: &FunctionId, suffix: &str) -> PathBuf {
    folder.join(format!("{}.log{suffix}", function.file_name()))
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

impl Files {
    pub(super) fn open(folder: &Path, limit: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            limit,
            open: HashMap::new(),
            clock: 0,
        })
    }

    /// Appends whole lines.
    pub(super) fn append(&mut self, function: &FunctionId, lines: &[u8]) -> io::Result<()> {
        let result = self.try_append(function, lines);
        if result.is_err() {
            // Opened again, the file is looked at anew.
            self.open.remove(function);
        }
        result
    }

    fn try_append(&mut self, function: &FunctionId, lines: &[u8]) -> io::Result<()> {
        if self
            .open
            .get(function)
            .is_some_and(|open| open.size >= self.limit)
        {
            self.open.remove(function);
            fs::rename(
                path(&self.folder, function, ""),
                path(&self.folder, function, ".1"),
            )?;
        }
        if !self.open.contains_key(function) {
            self.make_room();
            let open = Open::new(&path(&self.folder, function, ""))?;
            self.open.insert(function.clone(), open);
        }
        self.clock += 1;
        let Some(open) = self.open.get_mut(function) else {
            return Ok(());
        };
        open.used = self.clock;
        if open.torn {
            open.file.write_all(b"\n")?;
            open.torn = false;
            open.size += 1;
        }
        open.file.write_all(lines)?;
        open.size += lines.len() as u64;
        Ok(())
    }

    fn make_room(&mut self) {
        if self.open.len() >= OPEN
            && let Some(oldest) = self
                .open
                .iter()
                .min_by_key(|(_, open)| open.used)
                .map(|(id, _)| id.clone())
        {
            self.open.remove(&oldest);
        }
    }

    pub(super) fn read(&self, function: &FunctionId) -> io::Result<Reader> {
        let mut files = Vec::new();
        for suffix in ["", ".1"] {
            match File::open(path(&self.folder, function, suffix)) {
                Ok(file) => {
                    let size = file.metadata()?.len();
                    files.push((file, size));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Reader { files })
    }

    pub(super) fn delete(&mut self, function: &FunctionId) -> io::Result<()> {
        self.open.remove(function);
        absent_is_fine(fs::remove_file(path(&self.folder, function, "")))?;
        absent_is_fine(fs::remove_file(path(&self.folder, function, ".1")))
    }
}

impl Open {
    fn new(path: &Path) -> io::Result<Self> {
        let mut file = File::options().read(true).append(true).create(true).open(path)?;
        let size = file.metadata()?.len();
        let mut torn = false;
        if size > 0 {
            let mut last = [0];
            file.seek(SeekFrom::Start(size - 1))?;
            file.read_exact(&mut last)?;
            torn = last != *b"\n";
        }
        Ok(Self {
            file,
            size,
            torn,
            used: 0,
        })
    }
}

impl Reader {
    /// The last `n` records that a filter accepts, oldest first.
    pub(super) fn tail(self, filter: &Filter, n: usize) -> io::Result<Vec<Record>> {
        // Most lines of a search for one request are of others; this finds that out without parsing them.
        let needle = filter.request.map(|request| request.to_string());
        let finder = needle.as_ref().map(memchr::memmem::Finder::new);
        let mut records = Vec::new();
        for (mut file, size) in self.files {
            lines_backwards(&mut file, size, |line| {
                if records.len() < n
                    && finder.as_ref().is_none_or(|finder| finder.find(line).is_some())
                    && let Some(record) = Record::from_json(line)
                    && filter.accepts(&record)
                {
                    records.push(record);
                }
                records.len() < n
            })?;
        }
        records.reverse();
        Ok(records)
    }
}

/// Hands the lines of a file's first `size` bytes to `line`, the last one first, until that returns false.
fn lines_backwards(
    file: &mut (impl Read + Seek),
    size: u64,
    mut line: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let mut position = size;
    // What was read and not handed out yet: the beginning of the file's rest, up to a line that is complete.
    let mut pending = Vec::new();
    while position > 0 {
        let block = position.min(BLOCK);
        position -= block;
        file.seek(SeekFrom::Start(position))?;
        let mut bytes = Vec::new();
        file.by_ref().take(block).read_to_end(&mut bytes)?;
        bytes.append(&mut pending);
        let mut end = bytes.len();
        for newline in memchr::memrchr_iter(b'\n', &bytes) {
            if newline + 1 < end && !line(&bytes[newline + 1..end]) {
                return Ok(());
            }
            end = newline;
        }
        bytes.truncate(end);
        pending = bytes;
    }
    if !pending.is_empty() {
        line(&pending);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn backwards_is_the_reverse_of_forwards(lengths in prop::collection::vec(0usize..40_000, 0..12)) {
            let mut text = Vec::new();
            for (i, length) in lengths.iter().enumerate() {
                text.extend(std::iter::repeat_n(b'a' + (i % 26) as u8, *length));
                text.push(b'\n');
            }
            let mut found = Vec::new();
            lines_backwards(&mut io::Cursor::new(&text), text.len() as u64, |line| {
                found.push(line.to_vec());
                true
            }).unwrap();
            found.reverse();
            let expected: Vec<_> = text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
