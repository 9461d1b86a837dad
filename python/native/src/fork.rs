//! Processes for requests: forks of this one into namespaces of their own, and what they give up first.

use crate::{arenas, check, heap, libraries};
use pyo3::{exceptions::PyOSError, ffi, prelude::*};
use std::{io, mem, os::fd::RawFd, ptr};

/// Which each request's process has for itself.
const OWN: libc::c_int = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWNS;

/// Every flag of `clone` that makes a namespace.
const NAMESPACES: libc::c_int = OWN | libc::CLONE_NEWCGROUP | libc::CLONE_NEWNET | libc::CLONE_NEWUTS;

/// Asks where the kernel clears this thread's number when it ends; not in `libc` yet.
const PR_GET_TID_ADDRESS: libc::c_int = 40;

/// An order on the control socket: to fork.
const FORK: u8 = b'f';

/// Milliseconds without an order, or so many forks without such a rest, after which what forks share is put into few pieces and large pages: the first request
/// is not to wait for that, nor is it worth the while for a single one.
const REST: libc::c_int = 100;
const FORKS: u32 = 16;

/// Does what is ordered on a control socket, until this process has something to do itself: the order's first byte, and the descriptor that came
/// with it. That is `f` in a new process, and any other order in this one; with nobody there any more, 0 and no descriptor.
///
/// This process runs nothing of Python's between two forks, so that it writes to hardly any page that they share: what is to be done before a fork
/// is done before the first, and what is to be done in this process after one is done after the last. Where forks are ordered there is to be one
/// thread: the others would be missing in the new processes, with all that they hold. Raises `OSError`.
#[pyfunction]
pub(crate) fn obey(control: RawFd) -> PyResult<(u8, Option<RawFd>)> {
    // The C library keeps its thread's number there. In a new process namespace numbers begin anew, so one that is not renewed would be
    // that of another thread soon, and locks that know their owners by it would have two.
    let mut number: *mut libc::pid_t = ptr::null_mut();
    // SAFETY: the kernel writes a pointer to the place that outlives the call.
    check(unsafe { libc::prctl(PR_GET_TID_ADDRESS, &raw mut number) }.into())?;
    let mut is_forking = false;
    // Those before it is done.
    let mut forks = Some(0);
    let heard = loop {
        if forks.is_some_and(|forks| forks >= FORKS || forks > 0 && rests(control)) {
            forks = None;
            libraries::join();
            arenas::collapse();
        }
        let (order, socket) = match receive(control) {
            Ok((FORK, Some(socket))) => (FORK, socket),
            other => break other,
        };
        if !is_forking {
            is_forking = true;
            arenas::close();
            // SAFETY: this thread holds the interpreter, and gives it what is owed to it in each process: in this one below.
            unsafe { ffi::PyOS_BeforeFork() };
        }
        let flags = OWN | libc::CLONE_PARENT | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
        // SAFETY: without a stack and shared memory this is a fork, of one thread, and what the kernel writes to in the new process is where
        // the C library has that number.
        let child = unsafe {
            #[cfg(target_arch = "x86_64")]
            let child = libc::syscall(libc::SYS_clone, flags, 0, 0, number, 0);
            #[cfg(target_arch = "aarch64")]
            let child = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, number);
            child
        };
        if child == 0 {
            // A signal to one's own group reaches all that are in it, whichever namespaces they are in: other requests, too. Nothing of the function
            // runs before this, and it does not fail for a new process.
            // SAFETY: the calls take numbers.
            unsafe {
                if libc::setsid() < 0 {
                    libc::_exit(1);
                }
            }
            // SAFETY: what was done before the fork is completed in the new process.
            unsafe { ffi::PyOS_AfterFork_Child() };
            return Ok((order, Some(socket)));
        }
        if child < 0 {
            // That the socket is closed tells who asked.
            eprintln!("no process can be forked: {}", io::Error::last_os_error());
        }
        forks = forks.map(|forks| forks + 1);
        // SAFETY: it came with the order, and nobody else has it.
        unsafe { libc::close(socket) };
    };
    match is_forking {
        // SAFETY: what was done before the first fork is completed.
        true => unsafe { ffi::PyOS_AfterFork_Parent() },
        false => heap::open(),
    }
    heard.map_err(|error| PyOSError::new_err(error.raw_os_error()))
}

/// Whether there is no order for some time.
fn rests(control: RawFd) -> bool {
    let mut awaited = libc::pollfd {
        fd: control,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the kernel reads and writes one entry, which outlives the call.
    unsafe { libc::poll(&raw mut awaited, 1, REST) == 0 }
}

/// The next order, and its descriptor.
fn receive(control: RawFd) -> io::Result<(u8, Option<RawFd>)> {
    #[repr(C)]
    struct Ancillary {
        head: libc::cmsghdr,
        descriptor: RawFd,
        _rest: RawFd,
    }
    loop {
        let mut order = 0_u8;
        let mut part = libc::iovec {
            iov_base: (&raw mut order).cast(),
            iov_len: 1,
        };
        // SAFETY: numbers and null pointers.
        let (mut ancillary, mut message): (Ancillary, libc::msghdr) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut ancillary).cast();
        message.msg_controllen = size_of::<Ancillary>() as _;
        // SAFETY: all that the message points to outlives the call, and has the lengths that it says.
        let length = unsafe { libc::recvmsg(control, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if length < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        // Its type is not everywhere the same.
        let came = message.msg_controllen as u64 >= (size_of::<libc::cmsghdr>() + size_of::<RawFd>()) as u64
            && ancillary.head.cmsg_level == libc::SOL_SOCKET
            && ancillary.head.cmsg_type == libc::SCM_RIGHTS;
        return Ok((order, came.then_some(ancillary.descriptor)));
    }
}

/// Gives up what a process for a request has over its zygote: capabilities in its own namespaces, and the right to make further ones; with
/// `threads`, all of its threads do. Raises `OSError`.
#[pyfunction]
pub(crate) fn enclose(threads: bool) -> PyResult<()> {
    /// `_LINUX_CAPABILITY_VERSION_3`.
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    let none = [0_u32; 6];
    // SAFETY: header and sets have the lengths that this version asks for, and outlive the call.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) })?;

    let load = |offset| bpf(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let answer = |value| bpf(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    // The zygote's filter has seen to the architecture, and to `clone3`.
    let filter = [
        load(mem::offset_of!(libc::seccomp_data, nr) as u32),
        bpf(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            3,
            libc::SYS_clone as u32,
        ),
        // The lower half of the first argument, of little-endian processors.
        load(mem::offset_of!(libc::seccomp_data, args) as u32),
        bpf(
            libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
            0,
            1,
            NAMESPACES as u32,
        ),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    let flags = match threads {
        true => libc::SECCOMP_FILTER_FLAG_TSYNC,
        false => 0,
    };
    // SAFETY: the program and its instructions outlive the call, which only reads them.
    let other = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program) };
    check(other)?;
    if other > 0 {
        return Err(PyOSError::new_err((
            libc::ESRCH,
            "a thread that the import has started has a filter of system calls of its own",
        )));
    }
    Ok(())
}

fn bpf(code: u32, if_true: u8, if_false: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: if_true,
        jf: if_false,
        k: value,
    }
}
