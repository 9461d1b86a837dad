//! The functions, in the order of [`for_each_function!`](crate::for_each_function).
//!
//! Parameters that end as `…: u32` and are written to are addresses of results in guest memory.

use crate::{
    Command, Errno, Stop,
    clock::Clock,
    command::Stream,
    environment::Strings,
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
const RIGHT_READ: u64 = 1 << 1;
const RIGHT_WRITE: u64 = 1 << 6;
const RIGHT_FILESTAT_GET: u64 = 1 << 21;
const RIGHT_POLL: u64 = 1 << 27;

/// An answer from a computation that fails by an error number.
fn answer(result: Result<(), Errno>) -> Result<Errno, Stop> {
    Ok(result.err().unwrap_or(Errno::SUCCESS))
}

/// The answer to what no descriptor can do here: `otherwise`, unless it is not even open.
fn refuse(command: &Command, fd: u32, otherwise: Errno) -> Result<Errno, Stop> {
    Ok(if command.stream(fd).is_some() {
        otherwise
    } else {
        Errno::BADF
    })
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

/// Streams take no advice.
pub fn fd_advise(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _offset: u64,
    _length: u64,
    _advice: u32,
) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::SPIPE)
}

/// Streams have no extent.
pub fn fd_allocate(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _offset: u64,
    _length: u64,
) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::SPIPE)
}

/// Closes a descriptor.
pub fn fd_close(command: &mut Command, _: &mut [u8], fd: u32) -> Result<Errno, Stop> {
    answer(command.close(fd).map(drop).ok_or(Errno::BADF))
}

/// Streams are not on a disk.
pub fn fd_datasync(command: &mut Command, _: &mut [u8], fd: u32) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::INVAL)
}

/// Writes what a descriptor is and may. It is of unknown type, as a pipe is: a terminal's output would be flushed
/// line by line.
pub fn fd_fdstat_get(command: &mut Command, memory: &mut [u8], fd: u32, stat: u32) -> Result<Errno, Stop> {
    let Some(stream) = command.stream(fd) else {
        return Ok(Errno::BADF);
    };
    let rights = RIGHT_FILESTAT_GET
        | RIGHT_POLL
        | match stream {
            Stream::Input => RIGHT_READ,
            Stream::Output | Stream::Log => RIGHT_WRITE,
        };
    let mut bytes = [0; 24];
    bytes[0] = FILE_TYPE_UNKNOWN;
    bytes[8..16].copy_from_slice(&rights.to_le_bytes());
    answer(memory::write(memory, stat, &bytes))
}

/// Accepted and without effect: nothing blocks, and streams only append.
pub fn fd_fdstat_set_flags(command: &mut Command, _: &mut [u8], fd: u32, _flags: u32) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::SUCCESS)
}

/// Rights stay as they are.
pub fn fd_fdstat_set_rights(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _base: u64,
    _inheriting: u64,
) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::NOTSUP)
}

/// Writes the attributes of a stream: it has none.
pub fn fd_filestat_get(command: &mut Command, memory: &mut [u8], fd: u32, stat: u32) -> Result<Errno, Stop> {
    if command.stream(fd).is_none() {
        return Ok(Errno::BADF);
    }
    let mut bytes = [0; 64];
    bytes[16] = FILE_TYPE_UNKNOWN;
    // One link.
    bytes[24] = 1;
    answer(memory::write(memory, stat, &bytes))
}

/// Streams have no size.
pub fn fd_filestat_set_size(command: &mut Command, _: &mut [u8], fd: u32, _size: u64) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::INVAL)
}

/// Streams carry no times.
pub fn fd_filestat_set_times(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _accessed: u64,
    _modified: u64,
    _flags: u32,
) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::NOTCAPABLE)
}

/// Streams have no positions.
pub fn fd_pread(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _vectors: u32,
    _count: u32,
    _offset: u64,
    _read: u32,
) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::SPIPE)
}

/// No directory is opened beforehand.
pub fn fd_prestat_get(_: &mut Command, _: &mut [u8], _fd: u32, _prestat: u32) -> Result<Errno, Stop> {
    Ok(Errno::BADF)
}

/// No directory is opened beforehand.
pub fn fd_prestat_dir_name(
    _: &mut Command,
    _: &mut [u8],
    _fd: u32,
    _path: u32,
    _length: u32,
) -> Result<Errno, Stop> {
    Ok(Errno::BADF)
}

/// Streams have no positions.
pub fn fd_pwrite(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _vectors: u32,
    _count: u32,
    _offset: u64,
    _written: u32,
) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::SPIPE)
}

/// The address and length of the buffers of a read or write. An element is read when it is its turn, once: where a
/// read overwrites the elements to come, the guest gets what it asked for.
fn vector(memory: &[u8], vectors: u32, index: u32) -> Result<(u32, usize), Errno> {
    let address = memory::element(vectors, index, 8)?;
    let bytes = memory::slice(memory, address, 8)?;
    Ok((memory::read_u32(bytes, 0)?, memory::read_u32(bytes, 4)? as usize))
}

/// Reads from a stream into buffers; 0 bytes at its end.
pub fn fd_read(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    vectors: u32,
    count: u32,
    read: u32,
) -> Result<Errno, Stop> {
    if command.stream(fd) != Some(Stream::Input) {
        return Ok(Errno::BADF);
    }
    let mut attempt = || {
        memory::slice(memory, read, 4)?;
        let mut total = 0;
        for index in 0..count.min(MAX_VECTORS) {
            let (address, size) = vector(memory, vectors, index)?;
            let buffer = memory::slice_mut(memory, address, size)?;
            let wanted = size.min(MAX_TRANSFER - total);
            let taken = command.read(&mut buffer[..wanted]);
            total += taken;
            if taken < size {
                break;
            }
        }
        memory::write_u32(memory, read, length(total)?)
    };
    answer(attempt())
}

/// There are no directories.
pub fn fd_readdir(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _buffer: u32,
    _length: u32,
    _cookie: u64,
    _used: u32,
) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::NOTDIR)
}

/// Moves a stream to the place of another, which is closed.
pub fn fd_renumber(command: &mut Command, _: &mut [u8], from: u32, to: u32) -> Result<Errno, Stop> {
    if command.stream(from).is_none() || command.stream(to).is_none() {
        return Ok(Errno::BADF);
    }
    if from != to
        && let Some(stream) = command.close(from)
    {
        command.replace(to, stream);
    }
    Ok(Errno::SUCCESS)
}

/// Streams have no positions.
pub fn fd_seek(
    command: &mut Command,
    _: &mut [u8],
    fd: u32,
    _offset: u64,
    _whence: u32,
    _position: u32,
) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::SPIPE)
}

/// Streams are not on a disk.
pub fn fd_sync(command: &mut Command, _: &mut [u8], fd: u32) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::INVAL)
}

/// Streams have no positions.
pub fn fd_tell(command: &mut Command, _: &mut [u8], fd: u32, _position: u32) -> Result<Errno, Stop> {
    refuse(command, fd, Errno::SPIPE)
}

/// Writes buffers to a stream: the response or the log.
pub fn fd_write(
    command: &mut Command,
    memory: &mut [u8],
    fd: u32,
    vectors: u32,
    count: u32,
    written: u32,
) -> Result<Errno, Stop> {
    let stream = match command.stream(fd) {
        None | Some(Stream::Input) => return Ok(Errno::BADF),
        Some(stream) => stream,
    };
    let mut total = 0;
    let mut attempt = || {
        memory::slice(memory, written, 4)?;
        for index in 0..count.min(MAX_VECTORS) {
            let (address, size) = vector(memory, vectors, index)?;
            let buffer = memory::slice(memory, address, size)?;
            let taken = size.min(MAX_TRANSFER - total);
            match stream {
                Stream::Output => command.write(&buffer[..taken]).map_err(Failure::Fault)?,
                Stream::Log | Stream::Input => command.log(&buffer[..taken]),
            }
            total += taken;
            if taken < size {
                break;
            }
        }
        memory::write_u32(memory, written, length(total)?)?;
        Ok(())
    };
    match attempt() {
        Ok(()) => Ok(Errno::SUCCESS),
        Err(Failure::Errno(errno)) => Ok(errno),
        Err(Failure::Fault(fault)) => Err(Stop::Fault(fault)),
    }
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

/// The functions on paths: no descriptor is a directory.
macro_rules! path_functions {
    ($($name:ident($($before:ident: $type:ty),*; fd $(, $after:ident: $after_type:ty)*);)*) => {$(
        /// No descriptor is a directory.
        #[allow(clippy::too_many_arguments, reason = "as WASI has it: some take few, some many")]
        pub fn $name(
            command: &mut Command,
            _: &mut [u8],
            $($before: $type,)*
            fd: u32,
            $($after: $after_type,)*
        ) -> Result<Errno, Stop> {
            $(let _ = $before;)*
            $(let _ = $after;)*
            refuse(command, fd, Errno::NOTCAPABLE)
        }
    )*};
}
path_functions! {
    path_create_directory(; fd, path: u32, length: u32);
    path_filestat_get(; fd, flags: u32, path: u32, length: u32, stat: u32);
    path_filestat_set_times(; fd, flags: u32, path: u32, length: u32, accessed: u64, modified: u64, set: u32);
    path_link(; fd, flags: u32, path: u32, length: u32, new_fd: u32, new_path: u32, new_length: u32);
    path_open(; fd, flags: u32, path: u32, length: u32, open: u32, base: u64, inheriting: u64, fdflags: u32, opened: u32);
    path_readlink(; fd, path: u32, length: u32, buffer: u32, size: u32, used: u32);
    path_remove_directory(; fd, path: u32, length: u32);
    path_rename(; fd, path: u32, length: u32, new_fd: u32, new_path: u32, new_length: u32);
    path_symlink(path: u32, length: u32; fd, new_path: u32, new_length: u32);
    path_unlink_file(; fd, path: u32, length: u32);
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

/// Fills a buffer with random bytes, at most a mebibyte.
pub fn random_get(_: &mut Command, memory: &mut [u8], buffer: u32, length: u32) -> Result<Errno, Stop> {
    if length as usize > MAX_TRANSFER {
        return Ok(Errno::INVAL);
    }
    answer(memory::slice_mut(memory, buffer, length as usize).map(fill_random))
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
