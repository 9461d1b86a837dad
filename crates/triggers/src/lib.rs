//! What makes functions run besides requests: schedules, new objects, and events of the [CloudEvents specification][ce] 1.0.2.
//!
//! Everything here is a pure function: when a schedule is due ([`Timing`]), what is to be done about runs that are due or
//! were missed ([`decide`]), what an HTTP message says as an event ([`Message`]) and how an event is said in HTTP
//! ([`Event::headers`]). Above lie the manifest, which uses it to refuse what could never work; the gateway, which takes
//! events in; and the node, whose driver makes an asynchronous call of everything that is to run.
//!
//! Nothing is run twice because of a restart: the id of a call that a trigger makes is a function of what made it
//! ([`identity`]), and calls refuse an id that they know.
//!
//! [ce]: https://github.com/cloudevents/spec/tree/v1.0.2

#![forbid(unsafe_code)]

mod event;
mod message;
mod object;
mod schedule;
mod timing;

pub use event::{Event, EventError, HOPS, MOST_HOPS, Pattern, PatternError};
pub use message::{Message, is_event};
pub use object::{Object, created};
pub use schedule::{Agenda, Decision, GRACE, MOST_MISSED, Missed, SETBACK, decide, key, scheduled};
pub use timing::{Milliseconds, SHORTEST, Timing, TimingError, rfc3339};

use sha2::{Digest, Sha256};

/// A number that is always the same for the same parts, and different for others: the id of the call that they make.
pub fn identity(parts: &[&[u8]]) -> u128 {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    let digest = digest.finalize();
    let mut half = [0; 16];
    half.copy_from_slice(&digest[..16]);
    u128::from_be_bytes(half)
}

#[cfg(test)]
mod tests {
    use super::identity;

    #[test]
    fn parts_do_not_run_together() {
        assert_eq!(identity(&[b"ab", b"c"]), identity(&[b"ab", b"c"]));
        assert_ne!(identity(&[b"ab", b"c"]), identity(&[b"a", b"bc"]));
        assert_ne!(identity(&[b"ab", b"c"]), identity(&[b"ab", b"c", b""]));
    }
}
