//! The list of all functions, for engines to bind and to check imports by.

/// Hands the list of all functions to a macro of the caller's.
///
/// The types are those of Wasm: `u32` is an `i32` there, `u64` an `i64`. Functions of the first group answer an
/// [`Errno`](crate::Errno); those of the second do, too, and may wait ([`Poll`](crate::Poll)); those of the third
/// answer nothing and end the guest with the [`Stop`](crate::Stop) that they return.
///
/// ```
/// macro_rules! names {
///     (
///         answers { $($answers:ident($($a:ident: $at:ty),*);)* }
///         waits { $($waits:ident($($w:ident: $wt:ty),*);)* }
///         ends { $($ends:ident($($e:ident: $et:ty),*);)* }
///     ) => {
///         // An engine binds them here, for example
///         // linker.func_wrap(wasi::MODULE, stringify!($answers), |caller, $($a: $at),*| {
///         //     let (command, memory) = …;
///         //     Ok(i32::from(wasi::$answers(command, memory, $($a),*)?))
///         // })?;
///         [$(stringify!($answers),)* $(stringify!($waits),)* $(stringify!($ends),)*]
///     };
/// }
/// let names = millpond_wasi::for_each_function!(names);
/// assert_eq!(names.len(), 46);
/// assert!(names.contains(&"fd_write") && names.contains(&"poll_oneoff") && names.contains(&"proc_exit"));
/// ```
#[macro_export]
macro_rules! for_each_function {
    ($($callback:ident)::+) => {
        $($callback)::+! {
            answers {
                args_get(pointers: u32, buffer: u32);
                args_sizes_get(count: u32, size: u32);
                environ_get(pointers: u32, buffer: u32);
                environ_sizes_get(count: u32, size: u32);
                clock_res_get(clock: u32, resolution: u32);
                clock_time_get(clock: u32, precision: u64, time: u32);
                fd_advise(fd: u32, offset: u64, length: u64, advice: u32);
                fd_allocate(fd: u32, offset: u64, length: u64);
                fd_close(fd: u32);
                fd_datasync(fd: u32);
                fd_fdstat_get(fd: u32, stat: u32);
                fd_fdstat_set_flags(fd: u32, flags: u32);
                fd_fdstat_set_rights(fd: u32, base: u64, inheriting: u64);
                fd_filestat_get(fd: u32, stat: u32);
                fd_filestat_set_size(fd: u32, size: u64);
                fd_filestat_set_times(fd: u32, accessed: u64, modified: u64, flags: u32);
                fd_pread(fd: u32, vectors: u32, count: u32, offset: u64, read: u32);
                fd_prestat_get(fd: u32, prestat: u32);
                fd_prestat_dir_name(fd: u32, path: u32, length: u32);
                fd_pwrite(fd: u32, vectors: u32, count: u32, offset: u64, written: u32);
                fd_read(fd: u32, vectors: u32, count: u32, read: u32);
                fd_readdir(fd: u32, buffer: u32, length: u32, cookie: u64, used: u32);
                fd_renumber(from: u32, to: u32);
                fd_seek(fd: u32, offset: u64, whence: u32, position: u32);
                fd_sync(fd: u32);
                fd_tell(fd: u32, position: u32);
                fd_write(fd: u32, vectors: u32, count: u32, written: u32);
                path_create_directory(fd: u32, path: u32, length: u32);
                path_filestat_get(fd: u32, flags: u32, path: u32, length: u32, stat: u32);
                path_filestat_set_times(fd: u32, flags: u32, path: u32, length: u32, accessed: u64, modified: u64, set: u32);
                path_link(fd: u32, flags: u32, path: u32, length: u32, new_fd: u32, new_path: u32, new_length: u32);
                path_open(fd: u32, flags: u32, path: u32, length: u32, open: u32, base: u64, inheriting: u64, fdflags: u32, opened: u32);
                path_readlink(fd: u32, path: u32, length: u32, buffer: u32, size: u32, used: u32);
                path_remove_directory(fd: u32, path: u32, length: u32);
                path_rename(fd: u32, path: u32, length: u32, new_fd: u32, new_path: u32, new_length: u32);
                path_symlink(path: u32, length: u32, fd: u32, new_path: u32, new_length: u32);
                path_unlink_file(fd: u32, path: u32, length: u32);
                proc_raise(signal: u32);
                random_get(buffer: u32, length: u32);
                sched_yield();
                sock_accept(fd: u32, flags: u32, accepted: u32);
                sock_recv(fd: u32, vectors: u32, count: u32, flags: u32, read: u32, flags_out: u32);
                sock_send(fd: u32, vectors: u32, count: u32, flags: u32, written: u32);
                sock_shutdown(fd: u32, how: u32);
            }
            waits {
                poll_oneoff(subscriptions: u32, events: u32, count: u32, stored: u32);
            }
            ends {
                proc_exit(code: u32);
            }
        }
    };
}

/// A type of Wasm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// `i32`.
    I32,
    /// `i64`.
    I64,
}

/// A function's name and type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name in [`MODULE`](crate::MODULE).
    pub name: &'static str,
    /// Its parameters.
    pub parameters: &'static [ValueType],
    /// What it returns: an `i32` or nothing.
    pub result: Option<ValueType>,
}

/// A function by its name.
pub fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

trait Parameter {
    const TYPE: ValueType;
}
impl Parameter for u32 {
    const TYPE: ValueType = ValueType::I32;
}
impl Parameter for u64 {
    const TYPE: ValueType = ValueType::I64;
}

macro_rules! functions {
    (
        answers { $($answers:ident($($a:ident: $at:ty),*);)* }
        waits { $($waits:ident($($w:ident: $wt:ty),*);)* }
        ends { $($ends:ident($($e:ident: $et:ty),*);)* }
    ) => {
        /// All functions that a guest can import.
        pub static FUNCTIONS: &[Function] = &[
            $(Function {
                name: stringify!($answers),
                parameters: &[$(<$at as Parameter>::TYPE),*],
                result: Some(ValueType::I32),
            },)*
            $(Function {
                name: stringify!($waits),
                parameters: &[$(<$wt as Parameter>::TYPE),*],
                result: Some(ValueType::I32),
            },)*
            $(Function {
                name: stringify!($ends),
                parameters: &[$(<$et as Parameter>::TYPE),*],
                result: None,
            },)*
        ];
    };
}
for_each_function!(functions);
