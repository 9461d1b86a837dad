//! The functions, in the order of [`for_each_function!`](crate::for_each_function).
//!
//! Parameters that end as `…: u32` and are written to are addresses of results in guest memory. A descriptor is a stream, or of a pure
//! function's files.

use crate::{
    Command, Errno, Stop,
    clock::{self, Clock},
    command::Stream,
    environment::Strings,
    files::{Files, How, ROOT, Stat, Whence},
    memory::{self, length},
};
use contract::Fault;
use rand::Rng;

/// What one call copies at most, in bytes: a guest can only be preempted between calls. Reads and writes are short
/// beyond it, as they may always be.
const MAX_TRANSFER: usize = 1 << 20;

/// Buffers that one call reads or writes at most, as Linux's `IOV_MAX`; beyond it the call is short.
const MAX_VECTORS: u32 = 1024;

/// Signals that a process ignores unless it says otherwise: NONE, CHLD, CONT, URG, WINCH.
const IGNORED_SIGNALS: [u32; 5] = [0, 16, 17, 22, 27];
const LAST_SIGNAL: u32 = 30;

const FILE_TYPE_UNKNOWN: u8 = 0;
const FILE_TYPE_DIRECTORY: u8 = 3;
const FILE_TYPE_REGULAR: u8 = 4;
const FLAG_APPEND: u16 = 1;
const RIGHT_READ: u64 = 1 << 1;
const RIGHT_WRITE: u64 = 1 << 6;
const RIGHT_FILESTAT_GET: u64 = 1 << 21;
const RIGHT_POLL: u64 = 1 << 27;

/// An answer from a computation that fails by an error number.
fn answer(result: Result<(), Errno>) -> Result<Errno, Stop> {
    Ok(result.err().unwrap_or(Errno::SUCCESS))
}

/// The answer to what no stream can do: `otherwise`, unless it is not even open.
fn refuse(command: &Command, fd: u32, otherwise: Errno) -> Result<Errno, Stop> {
    Ok(if command.stream(fd).is_some() {
        otherwise
    } else {
        Errno::BADF
    })
}

/// What a file can do and a stream cannot.
fn with_file(
    command: &mut Command,
    fd: u32,
    otherwise: Errno,
    does: impl FnOnce(&mut Files) -> Result<(), Errno>,
) -> Result<Errno, Stop> {
    match command.files(fd) {
        Some(files) => answer(does(files)),
        None => refuse(command, fd, otherwise),
    }
}

fn path(memory: &[u8], address: u32, length: u32) -> Result<&str, Errno> {
    str::from_utf8(memory::slice(memory, address, length as usize)?).map_err(|_| Errno::INVAL)
}

fn file_type(stat: Stat) -> u8 {
    if stat.is_directory {
        FILE_TYPE_DIRECTORY
    } else {
        FILE_TYPE_REGULAR
    }
}

/// `filestat`, with the time that a pure function's clock begins at.
fn write_stat(memory: &mut [u8], address: u32, stat: Stat) -> Result<(), Errno> {
    let mut bytes = [0; 64];
    bytes[8..16].copy_from_slice(&stat.inode.to_le_bytes());
    bytes[16] = file_type(stat);
    bytes[24] = 1;
    bytes[32..40].copy_from_slice(&stat.size.to_le_bytes());
    for time in bytes[40..].chunks_exact_mut(8) {
        time.copy_from_slice(&clock::PURE_BEGIN.to_le_bytes());
    }
    memory::write(memory, address, &bytes)
}

fn strings_sizes(strings: &Strings, memory: &mut [u8], count: u32, size: u32) -> Result<(), Errno> {
    memory::write_u32(memory, count, length(strings.starts().len())?)?;
    memory::write_u32(memory, size, length(strings.bytes().len())?)
}

fn strings_get(strings: &Strings, memory: &mut [u8], pointers: u32, buffer: u32) -> Result<(), Errno> {
    memory::write(memory, buffer, strings.bytes())?;
    for (index, start) in (0..).zip(strings.starts()) {
        let address = buffer.checked_add(length(*start)?).ok_or(Errno::FAULT)?;
        memory::write_u32(memory, memory::element(pointers, index, 4)?, address)?;
    }
    Ok(())
}

/// Writes the addresses of the arguments, and the arguments.
pub fn args_get(command: &mut Command, memory: &mut [u8], pointers: u32, buffer: u32) -> Result<Errno, Stop> {
    answer(strings_get(command.arguments(), memory, pointers, buffer))
}

/// Writes how many arguments there are, and their size in bytes.
pub fn args_sizes_get(
    command: &mut Command,
    memory: &mut [u8],
    count: u32,
    size: u32,
) -> Result<Errno, Stop> {
    answer(strings_sizes(command.arguments(), memory, count, size))
}

/// Writes the addresses of the environment variables, and the variables as `NAME=VALUE`.
pub fn environ_get(
    command: &mut Command,
    memory: &mut [u8],
    pointers: u32,
    buffer: u32,
) -> Result<Errno, Stop> {
    answer(strings_get(command.environment(), memory, pointers, buffer))
}

/// Writes how many environment variables there are, and their size in bytes.
pub fn environ_sizes_get(
    command: &mut Command,
    memory: &mut [u8],
    count: u32,
    size: u32,
) -> Result<Errno, Stop> {
    answer(strings_sizes(command.environment(), memory, count, size))
}

/// Writes a clock's resolution in nanoseconds.
pub fn clock_res_get(_: &mut Command, memory: &mut [u8], clock: u32, resolution: u32) -> Result<Errno, Stop> {
    answer(Clock::from_id(clock).and_then(|_| memory::write_u64(memory, resolution, 1)))
}

/// Writes a clock's time in nanoseconds.
pub fn clock_time_get(
    command: &mut Command,
    memory: &mut [u8],
    clock: u32,
    _precision: u64,
    time: u32,
) -> Result<Errno, Stop> {
    answer(
        Clock::from_id(clock)
            .and_then(|clock| clock.now(command))
            .and_then(|now| memory::write_u64(memory, time, now)),
    )
}

/// Advice is taken, and nothing made of it.
pub fn fd_advise(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _offset: u64,
    _length: u64,
    _advice: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::SPIPE, |_| Ok(()))
}

/// Lets a file grow to the end of a range. Streams have no extent.
pub fn fd_allocate(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    offset: u64,
    length: u64,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::SPIPE, |files| {
        files.allocate(fd, offset.checked_add(length).ok_or(Errno::NOSPC)?)
    })
}

/// Closes a descriptor.
pub fn fd_close(command: &mut Command, _: &mut [u8], fd: u32) -> Result<Errno, Stop> {
    answer(match command.files(fd) {
        Some(files) => files.close(fd),
        None => command.close(fd).map(drop).ok_or(Errno::BADF),
    })
}

/// Nothing is on a disk.
pub fn fd_datasync(command: &mut Command, _: &mut [u8], fd: u32) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::INVAL, |_| Ok(()))
}

/// Writes what a descriptor is and may. A stream is of unknown type, as a pipe is: a terminal's output would be flushed
/// line by line. A file may what it was opened for, which its functions see to.
pub fn fd_fdstat_get(command: &mut Command, memory: &mut [u8], fd: u32, stat: u32) -> Result<Errno, Stop> {
    let mut bytes = [0; 24];
    if let Some(files) = command.files(fd) {
        return answer(files.stat(fd).and_then(|of| {
            let flags = if files.appends(fd)? { FLAG_APPEND } else { 0 };
            bytes[0] = file_type(of);
            bytes[2..4].copy_from_slice(&flags.to_le_bytes());
            bytes[8..].fill(0xff);
            memory::write(memory, stat, &bytes)
        }));
    }
    let Some(stream) = command.stream(fd) else {
        return Ok(Errno::BADF);
    };
    let rights = RIGHT_FILESTAT_GET
        | RIGHT_POLL
        | match stream {
            Stream::Input => RIGHT_READ,
            Stream::Output | Stream::Log => RIGHT_WRITE,
        };
    bytes[0] = FILE_TYPE_UNKNOWN;
    bytes[8..16].copy_from_slice(&rights.to_le_bytes());
    answer(memory::write(memory, stat, &bytes))
}

/// A file may be told to append. For streams it is without effect: nothing blocks, and they only append.
pub fn fd_fdstat_set_flags(command: &mut Command, _: &mut [u8], fd: u32, flags: u32) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::SUCCESS, |files| {
        files.set_appends(fd, flags & u32::from(FLAG_APPEND) != 0)
    })
}

/// Rights stay as they are.
pub fn fd_fdstat_set_rights(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _base: u64,
    _inheriting: u64,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTSUP, |_| Err(Errno::NOTSUP))
}

/// Writes the attributes of a file; a stream has none.
pub fn fd_filestat_get(command: &mut Command, memory: &mut [u8], fd: u32, stat: u32) -> Result<Errno, Stop> {
    if let Some(files) = command.files(fd) {
        return answer(files.stat(fd).and_then(|of| write_stat(memory, stat, of)));
    }
    if command.stream(fd).is_none() {
        return Ok(Errno::BADF);
    }
    let mut bytes = [0; 64];
    bytes[16] = FILE_TYPE_UNKNOWN;
    // One link.
    bytes[24] = 1;
    answer(memory::write(memory, stat, &bytes))
}

/// Cuts a file off, or lets it grow. Streams have no size.
pub fn fd_filestat_set_size(command: &mut Command, _: &mut [u8], fd: u32, size: u64) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::INVAL, |files| files.set_size(fd, size))
}

/// Files keep the one time that there is; streams carry none.
pub fn fd_filestat_set_times(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _accessed: u64,
    _modified: u64,
    _flags: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTCAPABLE, |_| Ok(()))
}

/// Reads from a position of a file into buffers. Streams have no positions.
pub fn fd_pread(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    vectors: u32,
    count: u32,
    offset: u64,
    read: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::SPIPE, |files| {
        let mut position = offset;
        read_into(memory, vectors, count, read, |buffer| {
            let taken = files.read_at(fd, position, buffer)?;
            position = position.saturating_add(taken as u64);
            Ok(taken)
        })
    })
}

/// Writes that `/` is open beforehand, where there are files, and how long that name is.
pub fn fd_prestat_get(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    prestat: u32,
) -> Result<Errno, Stop> {
    Ok(match command.files(fd) {
        Some(_) if fd == ROOT => {
            // A directory, by its tag of a byte; then the name's length.
            return answer(memory::write(memory, prestat, &[0, 0, 0, 0, 1, 0, 0, 0]));
        }
        _ => Errno::BADF,
    })
}

/// Writes the name of what is open beforehand.
pub fn fd_prestat_dir_name(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    path: u32,
    length: u32,
) -> Result<Errno, Stop> {
    Ok(match command.files(fd) {
        Some(_) if fd == ROOT && length >= 1 => return answer(memory::write(memory, path, b"/")),
        Some(_) if fd == ROOT => Errno::NAMETOOLONG,
        _ => Errno::BADF,
    })
}

/// Writes buffers to a position of a file. Streams have no positions.
pub fn fd_pwrite(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    vectors: u32,
    count: u32,
    offset: u64,
    written: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::SPIPE, |files| {
        let mut position = offset;
        write_from(memory, vectors, count, written, |buffer| {
            let taken = files.write_at(fd, position, buffer)?;
            position = position.saturating_add(taken as u64);
            Ok::<_, Errno>(taken)
        })
    })
}

/// The address and length of the buffers of a read or write. An element is read when it is its turn, once: where a
/// read overwrites the elements to come, the guest gets what it asked for.
fn vector(memory: &[u8], vectors: u32, index: u32) -> Result<(u32, usize), Errno> {
    let address = memory::element(vectors, index, 8)?;
    let bytes = memory::slice(memory, address, 8)?;
    Ok((memory::read_u32(bytes, 0)?, memory::read_u32(bytes, 4)? as usize))
}

/// Reads from a stream or a file into buffers; 0 bytes at its end.
pub fn fd_read(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    vectors: u32,
    count: u32,
    read: u32,
) -> Result<Errno, Stop> {
    if let Some(files) = command.files(fd) {
        return answer(read_into(memory, vectors, count, read, |buffer| {
            files.read(fd, buffer)
        }));
    }
    if command.stream(fd) != Some(Stream::Input) {
        return Ok(Errno::BADF);
    }
    answer(read_into(memory, vectors, count, read, |buffer| {
        Ok(command.read(buffer))
    }))
}

/// Fills buffers one after another until there is no more, and writes how much that was.
fn read_into(
    memory: &mut [u8],
    vectors: u32,
    count: u32,
    read: u32,
    mut fill: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    memory::slice(memory, read, 4)?;
    let mut total = 0;
    for index in 0..count.min(MAX_VECTORS) {
        let (address, size) = vector(memory, vectors, index)?;
        let buffer = memory::slice_mut(memory, address, size)?;
        let wanted = size.min(MAX_TRANSFER - total);
        let taken = fill(&mut buffer[..wanted])?;
        total += taken;
        if taken < size {
            break;
        }
    }
    memory::write_u32(memory, read, length(total)?)
}

/// Writes the entries of a directory from the one on that `cookie` counts, as many as there is room for; the last may be cut off.
pub fn fd_readdir(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    buffer: u32,
    length: u32,
    cookie: u64,
    used: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTDIR, |files| {
        let room = memory::slice_mut(memory, buffer, length as usize)?;
        let mut at = 0;
        // In this order: behind the last entry no number is asked for, and the guest's may be the largest that there is.
        for ((name, stat), next) in files.entries_from(fd, cookie)?.zip(cookie.saturating_add(1)..) {
            let mut head = [0; 24];
            head[..8].copy_from_slice(&next.to_le_bytes());
            head[8..16].copy_from_slice(&stat.inode.to_le_bytes());
            head[16..20].copy_from_slice(&memory::length(name.len())?.to_le_bytes());
            head[20] = file_type(stat);
            for part in [&head, name.as_bytes()] {
                let count = part.len().min(room.len() - at);
                room[at..at + count].copy_from_slice(&part[..count]);
                at += count;
            }
            if at == room.len() {
                break;
            }
        }
        memory::write_u32(memory, used, memory::length(at)?)
    })
}

/// Moves a stream, or a file, to the place of another, which is closed.
pub fn fd_renumber(command: &mut Command, _: &mut [u8], from: u32, to: u32) -> Result<Errno, Stop> {
    let is_file = [from, to].map(|fd| command.files(fd).is_some());
    let is_stream = [from, to].map(|fd| command.stream(fd).is_some());
    if let (Some(files), [true, true]) = (command.files(from), is_file) {
        return answer(files.renumber(from, to));
    }
    if is_stream != [true, true] {
        let is_open = (0..2).all(|which| is_file[which] || is_stream[which]);
        return Ok(if is_open { Errno::NOTSUP } else { Errno::BADF });
    }
    if from != to
        && let Some(stream) = command.close(from)
    {
        command.replace(to, stream);
    }
    Ok(Errno::SUCCESS)
}

/// Moves a file's position, and writes it. Streams have none.
pub fn fd_seek(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    offset: u64,
    whence: u32,
    position: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::SPIPE, |files| {
        let whence = match whence {
            0 => Whence::Start,
            1 => Whence::Here,
            2 => Whence::End,
            _ => return Err(Errno::INVAL),
        };
        memory::slice(memory, position, 8)?;
        memory::write_u64(memory, position, files.seek(fd, offset.cast_signed(), whence)?)
    })
}

/// Nothing is on a disk.
pub fn fd_sync(command: &mut Command, _: &mut [u8], fd: u32) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::INVAL, |_| Ok(()))
}

/// Writes a file's position. Streams have none.
pub fn fd_tell(command: &mut Command, memory: &mut [u8], fd: u32, position: u32) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::SPIPE, |files| {
        memory::write_u64(memory, position, files.seek(fd, 0, Whence::Here)?)
    })
}

/// Writes buffers to a file, or to a stream: the response or the log.
pub fn fd_write(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    vectors: u32,
    count: u32,
    written: u32,
) -> Result<Errno, Stop> {
    if let Some(files) = command.files(fd) {
        return answer(write_from(memory, vectors, count, written, |buffer| {
            files.write(fd, buffer)
        }));
    }
    let stream = match command.stream(fd) {
        None | Some(Stream::Input) => return Ok(Errno::BADF),
        Some(stream) => stream,
    };
    let attempt = write_from(memory, vectors, count, written, |buffer| {
        match stream {
            Stream::Output => command.write(buffer).map_err(Failure::Fault)?,
            Stream::Log | Stream::Input => command.log(buffer),
        }
        Ok::<_, Failure>(buffer.len())
    });
    match attempt {
        Ok(()) => Ok(Errno::SUCCESS),
        Err(Failure::Errno(errno)) => Ok(errno),
        Err(Failure::Fault(fault)) => Err(Stop::Fault(fault)),
    }
}

/// Has buffers taken one after another, and writes how much that was.
fn write_from<E: From<Errno>>(
    memory: &mut [u8],
    vectors: u32,
    count: u32,
    written: u32,
    mut take: impl FnMut(&[u8]) -> Result<usize, E>,
) -> Result<(), E> {
    memory::slice(memory, written, 4)?;
    let mut total = 0;
    for index in 0..count.min(MAX_VECTORS) {
        let (address, size) = vector(memory, vectors, index)?;
        let buffer = memory::slice(memory, address, size)?;
        let taken = take(&buffer[..size.min(MAX_TRANSFER - total)])?;
        total += taken;
        if taken < size {
            break;
        }
    }
    Ok(memory::write_u32(memory, written, length(total)?)?)
}

/// How a write fails: for the guest to mend, or for good.
enum Failure {
    Errno(Errno),
    Fault(Fault),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// Makes a directory.
pub fn path_create_directory(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    path: u32,
    length: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTCAPABLE, |files| {
        files.create_directory(fd, self::path(memory, path, length)?)
    })
}

/// Writes the attributes of what is found at a path.
pub fn path_filestat_get(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    _flags: u32,
    path: u32,
    length: u32,
    stat: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTCAPABLE, |files| {
        let of = files.stat_at(fd, self::path(memory, path, length)?)?;
        write_stat(memory, stat, of)
    })
}

/// Files keep the one time that there is.
#[expect(clippy::too_many_arguments, reason = "as WASI has it")]
pub fn path_filestat_set_times(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    _flags: u32,
    path: u32,
    length: u32,
    _accessed: u64,
    _modified: u64,
    _set: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTCAPABLE, |files| {
        files.stat_at(fd, self::path(memory, path, length)?).map(drop)
    })
}

/// There are no links.
#[expect(clippy::too_many_arguments, reason = "as WASI has it")]
pub fn path_link(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _flags: u32,
    _path: u32,
    _length: u32,
    _new_fd: u32,
    _new_path: u32,
    _new_length: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTCAPABLE, |_| Err(Errno::NOTSUP))
}

/// Opens a file or a directory, for what the rights in `base` say, and writes its descriptor.
#[expect(clippy::too_many_arguments, reason = "as WASI has it")]
pub fn path_open(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    _flags: u32,
    path: u32,
    length: u32,
    open: u32,
    base: u64,
    _inheriting: u64,
    fdflags: u32,
    opened: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTCAPABLE, |files| {
        let asks = |bit: u32| open & bit != 0;
        let how = How {
            create: asks(1),
            directory: asks(2),
            exclusive: asks(4),
            truncate: asks(8),
            reads: base & RIGHT_READ != 0,
            writes: base & RIGHT_WRITE != 0,
            appends: fdflags & u32::from(FLAG_APPEND) != 0,
        };
        memory::slice(memory, opened, 4)?;
        let fd = files.open(fd, self::path(memory, path, length)?, how)?;
        memory::write_u32(memory, opened, fd)
    })
}

/// There are no links.
#[expect(clippy::too_many_arguments, reason = "as WASI has it")]
pub fn path_readlink(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    path: u32,
    length: u32,
    _buffer: u32,
    _size: u32,
    _used: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTCAPABLE, |files| {
        files.stat_at(fd, self::path(memory, path, length)?)?;
        Err(Errno::INVAL)
    })
}

/// Removes a directory that is empty.
pub fn path_remove_directory(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    path: u32,
    length: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTCAPABLE, |files| {
        files.remove_directory(fd, self::path(memory, path, length)?)
    })
}

/// Moves a file or a directory to another name.
#[expect(clippy::too_many_arguments, reason = "as WASI has it")]
pub fn path_rename(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    path: u32,
    length: u32,
    new_fd: u32,
    new_path: u32,
    new_length: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTCAPABLE, |files| {
        let (from, to) = (
            self::path(memory, path, length)?,
            self::path(memory, new_path, new_length)?,
        );
        files.rename(fd, from, new_fd, to)
    })
}

/// There are no links.
pub fn path_symlink(
    command: &mut Command,
    _: &mut [u8],
    _path: u32,
    _length: u32,
    fd: u32,
    _new_path: u32,
    _new_length: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTCAPABLE, |_| Err(Errno::NOTSUP))
}

/// Removes a file.
pub fn path_unlink_file(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    path: u32,
    length: u32,
) -> Result<Errno, Stop> {
    with_file(command, fd, Errno::NOTCAPABLE, |files| {
        files.remove_file(fd, self::path(memory, path, length)?)
    })
}

/// Ends the guest: [`Stop::Exit`].
pub fn proc_exit(_: &mut Command, _: &mut [u8], code: u32) -> Stop {
    Stop::Exit(code.cast_signed())
}

/// Raises a signal: no guest handles one, so it ends unless it is ignored.
pub fn proc_raise(_: &mut Command, _: &mut [u8], signal: u32) -> Result<Errno, Stop> {
    if signal > LAST_SIGNAL {
        return Ok(Errno::INVAL);
    }
    if IGNORED_SIGNALS.contains(&signal) {
        return Ok(Errno::SUCCESS);
    }
    Err(Stop::Fault(Fault::Trap {
        reason: format!("it raised signal {signal}"),
    }))
}

/// Fills a buffer with random bytes, at most a mebibyte. A pure function's depend on its inputs alone.
pub fn random_get(command: &mut Command, memory: &mut [u8], buffer: u32, length: u32) -> Result<Errno, Stop> {
    if length as usize > MAX_TRANSFER {
        return Ok(Errno::INVAL);
    }
    answer(
        memory::slice_mut(memory, buffer, length as usize).map(|buffer| match &mut command.pure {
            Some(pure) => pure.fill_random(buffer),
            None => fill_random(buffer),
        }),
    )
}

/// Fills a buffer of the host with what [`random_get`] gives.
pub fn fill_random(buffer: &mut [u8]) {
    // The thread's generator is a cipher seeded by the kernel; no two sandboxes see the same of its stream.
    rand::rng().fill_bytes(buffer);
}

/// Goes on: the core's quantum decides who runs.
pub fn sched_yield(_: &mut Command, _: &mut [u8]) -> Result<Errno, Stop> {
    Ok(Errno::SUCCESS)
}

/// No descriptor is a socket.
pub fn sock_accept(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _flags: u32,
    _accepted: u32,
) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::NOTSOCK)
}

/// No descriptor is a socket.
#[expect(clippy::too_many_arguments, reason = "as WASI has it")]
pub fn sock_recv(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _vectors: u32,
    _count: u32,
    _flags: u32,
    _read: u32,
    _flags_out: u32,
) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::NOTSOCK)
}

/// No descriptor is a socket.
pub fn sock_send(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _vectors: u32,
    _count: u32,
    _flags: u32,
    _written: u32,
) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::NOTSOCK)
}

/// No descriptor is a socket.
pub fn sock_shutdown(command: &mut Command, _: &mut [u8], fd: u32, _how: u32) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::NOTSOCK)
}
