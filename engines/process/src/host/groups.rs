//! Control groups of guests, which outlast them.

use confine::{Group, GroupLimits, Groups};
use parking_lot::Mutex;
use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// Control groups, as many as guests have been there at once.
pub(super) struct Pool {
    // Before the groups that they are in.
    idle: Mutex<Vec<Group>>,
    groups: Option<Groups>,
    made: AtomicU32,
}

impl Pool {
    pub(super) fn new(groups: Option<Groups>) -> Self {
        Self {
            idle: Mutex::default(),
            groups,
            made: AtomicU32::new(0),
        }
    }

    /// Whether there are any on this host.
    pub(super) fn are_there(&self) -> bool {
        self.groups.is_some()
    }

    /// One of them, with these limits. None if there are none on this host.
    pub(super) fn lease(this: &Arc<Self>, limits: GroupLimits) -> io::Result<Option<Lease>> {
        let Some(groups) = &this.groups else {
            return Ok(None);
        };
        let idle = this.idle.lock().pop();
        let mut group = match idle {
            Some(group) => group,
            None => {
                let number = this.made.fetch_add(1, Ordering::Relaxed);
                groups.group(&number.to_string())?
            }
        };
        group.limit(limits)?;
        Ok(Some(Lease {
            before: group.time().unwrap_or_default(),
            group: Some(group),
            pool: this.clone(),
        }))
    }
}

/// A guest's control group, which goes back when nothing of the guest is left.
pub(crate) struct Lease {
    group: Option<Group>,
    /// Time on processors of guests that had it before.
    before: Duration,
    pool: Arc<Pool>,
}

impl Lease {
    /// For the guest to go in by.
    pub(crate) fn doors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.group.iter().flat_map(Group::doors)
    }

    /// Time is counted from here on.
    pub(crate) fn begin(&mut self) {
        if let Some(time) = self.group.as_mut().and_then(Group::time) {
            self.before = time;
        }
    }

    /// Time on processors of all the guest's processes. `None` if this host does not count it.
    pub(crate) fn time(&mut self) -> Option<Duration> {
        Some(self.group.as_mut()?.time()?.saturating_sub(self.before))
    }

    /// Whether a process of the guest was ended for want of memory.
    pub(crate) fn ran_out(&mut self) -> bool {
        self.group.as_mut().is_some_and(Group::ran_out)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(mut group) = self.group.take() {
            // The next guest has nothing to do with it.
            group.ran_out();
            self.pool.idle.lock().push(group);
        }
    }
}
