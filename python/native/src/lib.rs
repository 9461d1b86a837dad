//! What the runtime for Python cannot say in Python: to fork into namespaces of its own, and to give up what that took.

mod link;

use pyo3::{exceptions::PyOSError, ffi, prelude::*};
use std::{io, mem, ptr};

/// Which each request's process has for itself.
const OWN: libc::c_int = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWNS;

/// Every flag of `clone` that makes a namespace.
const NAMESPACES: libc::c_int = OWN | libc::CLONE_NEWCGROUP | libc::CLONE_NEWNET | libc::CLONE_NEWUTS;

/// Asks where the kernel clears this thread's number when it ends; not in `libc` yet.
const PR_GET_TID_ADDRESS: libc::c_int = 40;

/// Forks this process into namespaces of its own, as a child of its parent, not its own: 0 in the new process, its number in this one.
///
/// There is to be one thread: the others would be missing in the new process, with all that they hold. Raises `OSError`.
#[pyfunction]
fn fork() -> PyResult<libc::c_long> {
    // The C library keeps its thread's number there. In a new process namespace numbers begin anew, so one that is not renewed would be
    // that of another thread soon, and locks that know their owners by it would have two.
    let mut number: *mut libc::pid_t = ptr::null_mut();
    // SAFETY: the kernel writes a pointer to the place that outlives the call.
    check(unsafe { libc::prctl(PR_GET_TID_ADDRESS, &raw mut number) }.into())?;
    let flags = OWN | libc::CLONE_PARENT | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
    // SAFETY: the interpreter is told before and after, as by its own `fork`; without a stack and shared memory this is one, of one thread, and
    // what the kernel writes to in the new process is where the C library has that number.
    let child = unsafe {
        ffi::PyOS_BeforeFork();
        #[cfg(target_arch = "x86_64")]
        let child = libc::syscall(libc::SYS_clone, flags, 0, 0, number, 0);
        #[cfg(target_arch = "aarch64")]
        let child = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, number);
        if child == 0 {
            ffi::PyOS_AfterFork_Child();
        } else {
            ffi::PyOS_AfterFork_Parent();
        }
        child
    };
    check(child)?;
    Ok(child)
}

/// Gives up what a process of `fork` has over its zygote: capabilities in its own namespaces, and the right to make further ones. Raises `OSError`.
#[pyfunction]
fn enclose() -> PyResult<()> {
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
    // SAFETY: the program and its instructions outlive the call, which only reads them.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program) })
}

fn bpf(code: u32, if_true: u8, if_false: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: if_true,
        jf: if_false,
        k: value,
    }
}

fn check(result: libc::c_long) -> PyResult<()> {
    if result < 0 {
        Err(PyOSError::new_err(io::Error::last_os_error().raw_os_error()))
    } else {
        Ok(())
    }
}

#[pymodule]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(fork, module)?)?;
    module.add_function(wrap_pyfunction!(enclose, module)?)?;
    module.add_class::<link::Link>()?;
    module.add_class::<link::Call>()
}
