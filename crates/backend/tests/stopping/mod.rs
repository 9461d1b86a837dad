//! Stops a process, for tests in which nothing may be taken any more.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{DirEntry, read_dir, read_to_string},
    io, thread,
};

/// Returns when each thread has stopped: the signal is sent to one of them, and the others go on until it has told them.
pub(crate) fn stop(process: Pid) {
    kill_process(process, Signal::STOP).unwrap();
    let threads = format!("/proc/{process}/task");
    while !read_dir(&threads).unwrap().all(has_stopped) {
        thread::yield_now();
    }
}

fn has_stopped(thread: io::Result<DirEntry>) -> bool {
    let about = read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
    about
        .rsplit_once(')')
        .is_some_and(|(_, state)| state.trim_start().starts_with('T'))
}
