//! The guest's clocks.

use crate::{Command, Errno};
use std::{
    sync::LazyLock,
    time::{Duration, Instant, SystemTime},
};

/// The monotonic clock's 0: when this process first needed one. The machine's uptime is nobody's business.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Clocks by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Realtime,
    Monotonic,
    /// The process's and the thread's: a sandbox has one thread. It reads the CPU clock of the core's thread since the
    /// guest's first reading; other sandboxes that ran on the core in between are in it.
    Cpu,
}

impl Clock {
    pub(crate) fn from_id(id: u32) -> Result<Self, Errno> {
        match id {
            0 => Ok(Self::Realtime),
            1 => Ok(Self::Monotonic),
            2 | 3 => Ok(Self::Cpu),
            _ => Err(Errno::INVAL),
        }
    }

    /// Nanoseconds.
    pub(crate) fn now(self, command: &mut Command) -> Result<u64, Errno> {
        if let Some(pure) = &mut command.pure {
            return Ok(pure.time(self));
        }
        let now = match self {
            Self::Realtime => realtime(),
            Self::Monotonic => origin().elapsed(),
            Self::Cpu => {
                let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                let now = Duration::new(
                    u64::try_from(time.tv_sec).unwrap_or_default(),
                    u32::try_from(time.tv_nsec).unwrap_or_default(),
                );
                now.saturating_sub(*command.cpu_origin.get_or_insert(now))
            }
        };
        u64::try_from(now.as_nanos()).map_err(|_| Errno::OVERFLOW)
    }
}

/// The beginning of the year 2000, in nanoseconds since 1970: when every run of a pure function begins.
pub(crate) const PURE_BEGIN: u64 = 946_684_800_000_000_000;

/// When the guests' monotonic clock was at 0.
pub fn origin() -> Instant {
    *ORIGIN
}

/// Since 1970.
pub fn realtime() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
