//! `poll_oneoff`: the one function that may wait.
//!
//! Streams are always ready: a body is complete before its sandbox exists, and output goes to memory. So a wait is a
//! wait for a clock, and its end is known when it begins.

use crate::{
    Command, Errno, Stop,
    clock::{self, Clock},
    command::Stream,
    memory,
};
use std::time::{Duration, Instant};

/// What became of a call that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Poll {
    /// It is over; the guest gets this.
    Ready(Errno),
    /// The guest waits. Park it, and make the same call with the same arguments at this time; earlier is harmless.
    Until(Instant),
}

/// More subscriptions than this at once are refused: each costs work before the guest can be preempted again.
const MAX_SUBSCRIPTIONS: u32 = 1024;

const SUBSCRIPTION_SIZE: u32 = 48;
const EVENT_SIZE: u32 = 32;

const TYPE_CLOCK: u8 = 0;
const TYPE_READ: u8 = 1;
const TYPE_WRITE: u8 = 2;

/// A clock subscription's flag: its timeout is a point in time, not a duration.
const ABSOLUTE: u16 = 1;
/// An event's flag: there will be nothing more to read.
const HANGUP: u16 = 1;

struct Event {
    userdata: u64,
    error: Errno,
    kind: u8,
    bytes: u64,
    flags: u16,
}

/// Waits for the first of several events: clocks, and streams that are always ready.
///
/// `subscriptions` and `events` are addresses of arrays of `count` elements; `stored` receives how many events there
/// are.
pub fn poll_oneoff(
    command: &mut Command,
    memory: &mut [u8],
    subscriptions: u32,
    events: u32,
    count: u32,
    stored: u32,
) -> Result<Poll, Stop> {
    let now = Instant::now();
    if command.pure.is_some() {
        let places = [subscriptions, events, count, stored];
        return Ok(Poll::Ready(at_once(command, memory, places, now)));
    }
    let since = command.waiting_since.take().unwrap_or(now);
    Ok(
        match attempt(
            command,
            memory,
            [subscriptions, events, count, stored],
            now,
            since,
        ) {
            Ok(None) => Poll::Ready(Errno::SUCCESS),
            Ok(Some(deadline)) => {
                command.waiting_since = Some(since);
                Poll::Until(deadline)
            }
            Err(errno) => Poll::Ready(errno),
        },
    )
}

/// For a pure function: its clock goes to when it would have waited, and nobody waits.
fn at_once(command: &mut Command, memory: &mut [u8], places: [u32; 4], now: Instant) -> Errno {
    let deadline = match attempt(command, memory, places, now, now) {
        Ok(None) => return Errno::SUCCESS,
        Ok(Some(deadline)) => deadline,
        Err(errno) => return errno,
    };
    if let Some(pure) = &mut command.pure {
        let passes = deadline.saturating_duration_since(now).as_nanos();
        pure.wait(u64::try_from(passes).unwrap_or(u64::MAX));
    }
    match attempt(command, memory, places, deadline, now) {
        Ok(None) => Errno::SUCCESS,
        Ok(Some(_)) => Errno::OVERFLOW,
        Err(errno) => errno,
    }
}

/// Writes the events that have happened, or says until when to wait.
fn attempt(
    command: &mut Command,
    memory: &mut [u8],
    [subscriptions, events, count, stored]: [u32; 4],
    now: Instant,
    since: Instant,
) -> Result<Option<Instant>, Errno> {
    if !(1..=MAX_SUBSCRIPTIONS).contains(&count) {
        return Err(Errno::INVAL);
    }
    memory::slice(memory, events, (count * EVENT_SIZE) as usize)?;
    memory::slice(memory, stored, 4)?;

    let mut happened = Vec::new();
    let mut deadline: Option<Instant> = None;
    for index in 0..count {
        match subscription(
            command,
            memory,
            memory::element(subscriptions, index, SUBSCRIPTION_SIZE)?,
            now,
            since,
        )? {
            Ok(event) => happened.push(event),
            Err(later) => deadline = Some(deadline.map_or(later, |sooner| sooner.min(later))),
        }
    }
    if happened.is_empty() && deadline.is_some() {
        return Ok(deadline);
    }

    for (index, event) in (0..count).zip(&happened) {
        let address = memory::element(events, index, EVENT_SIZE)?;
        let mut bytes = [0; EVENT_SIZE as usize];
        bytes[0..8].copy_from_slice(&event.userdata.to_le_bytes());
        bytes[8..10].copy_from_slice(&event.error.0.to_le_bytes());
        bytes[10] = event.kind;
        bytes[16..24].copy_from_slice(&event.bytes.to_le_bytes());
        bytes[24..26].copy_from_slice(&event.flags.to_le_bytes());
        memory::write(memory, address, &bytes)?;
    }
    memory::write_u32(memory, stored, memory::length(happened.len())?)?;
    Ok(None)
}

/// What has happened, or `Err` with when it will.
fn subscription(
    command: &mut Command,
    memory: &[u8],
    address: u32,
    now: Instant,
    since: Instant,
) -> Result<Result<Event, Instant>, Errno> {
    let field = |offset: u32| memory::element(address, offset, 1);
    let userdata = memory::read_u64(memory, address)?;
    let kind = memory::read_u8(memory, field(8)?)?;
    let event = |error, bytes, flags| Event {
        userdata,
        error,
        kind,
        bytes,
        flags,
    };
    Ok(match kind {
        TYPE_CLOCK => {
            let id = memory::read_u32(memory, field(16)?)?;
            let nanoseconds = memory::read_u64(memory, field(24)?)?;
            let timeout = Duration::from_nanos(nanoseconds);
            let absolute = memory::read_u16(memory, field(40)?)? & ABSOLUTE != 0;
            let deadline = match (Clock::from_id(id), absolute) {
                (Err(errno), _) => return Ok(Ok(event(errno, 0, 0))),
                // Nothing counts a parked guest's CPU time.
                (Ok(Clock::Cpu), _) => return Ok(Ok(event(Errno::NOTSUP, 0, 0))),
                (Ok(clock), true) if let Some(pure) = &command.pure => {
                    now.checked_add(Duration::from_nanos(pure.until(clock, nanoseconds)))
                }
                (Ok(Clock::Realtime), true) => now.checked_add(timeout.saturating_sub(clock::realtime())),
                (Ok(Clock::Monotonic), true) => clock::origin().checked_add(timeout),
                (Ok(_), false) => since.checked_add(timeout),
            };
            match deadline {
                Some(deadline) if deadline <= now => Ok(event(Errno::SUCCESS, 0, 0)),
                Some(deadline) => Err(deadline),
                // Beyond what the host's clock can say: a year at a time.
                None => Err(now + Duration::from_secs(365 * 24 * 60 * 60)),
            }
        }
        TYPE_READ | TYPE_WRITE => {
            let fd = memory::read_u32(memory, field(16)?)?;
            if let Some(Ok(stat)) = command.files(fd).map(|files| files.stat(fd)) {
                return Ok(Ok(event(Errno::SUCCESS, stat.size, 0)));
            }
            Ok(match (kind, command.stream(fd)) {
                (TYPE_READ, Some(Stream::Input)) => {
                    let unread = command.unread();
                    event(
                        Errno::SUCCESS,
                        unread as u64,
                        if unread == 0 { HANGUP } else { 0 },
                    )
                }
                (TYPE_WRITE, Some(Stream::Output)) => event(Errno::SUCCESS, command.room() as u64, 0),
                (TYPE_WRITE, Some(Stream::Log)) => event(Errno::SUCCESS, u64::from(u16::MAX), 0),
                _ => event(Errno::BADF, 0, 0),
            })
        }
        _ => return Err(Errno::INVAL),
    })
}
