//! How much of a core those get who have work for it.

use std::time::Duration;

/// The part of a core that guests get while they want all of it. The rest goes to reading, refusing and answering, which comes
/// first: under an overload that is a good deal, and work ahead takes so much longer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// The part that they do not get, of 1.
    taken: f32,
}

impl Pace {
    /// What lies further back counts for little.
    const WINDOW: Duration = Duration::from_millis(100);
    /// No core is thought to have less for its guests.
    const LEAST: f32 = 0.05;

    /// So much time has passed, of which the core spent `other` on other things than guests. `wanted`: guests would have had more
    /// to do. Where they had all that they wanted, nothing was taken from them.
    pub fn note(&mut self, passed: Duration, other: Duration, wanted: bool) {
        let passed = passed.as_secs_f32();
        if passed <= 0.0 {
            return;
        }
        let weight = (passed / Self::WINDOW.as_secs_f32()).min(1.0);
        let taken = if wanted {
            (other.as_secs_f32() / passed).min(1.0)
        } else {
            0.0
        };
        self.taken += weight * (taken - self.taken);
    }

    /// The part of the core that guests can count on, of 1.
    #[must_use]
    pub fn share(&self) -> f32 {
        (1.0 - self.taken).max(Self::LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_guests_get_while_they_want_more() {
        let micros = Duration::from_micros;
        let mut pace = Pace::default();
        let mut note = |times: u32, passed, other, wanted| {
            for _ in 0..times {
                pace.note(micros(passed), micros(other), wanted);
            }
            pace.share()
        };
        assert!((note(0, 0, 0, true) - 1.0).abs() < f32::EPSILON);
        // A core that is busy with requests that want little of it has much to give.
        assert!((note(1000, 1000, 990, false) - 1.0).abs() < 0.01);
        assert!((note(1000, 1000, 400, true) - 0.6).abs() < 0.01);
        // One short turn changes little, a long pause nearly all.
        assert!((note(1, 100, 100, true) - 0.6).abs() < 0.01);
        assert!((note(1, 1_000_000, 10, false) - 1.0).abs() < 0.01);
        // Something is always left, or nothing would be admitted by which to learn that it is.
        assert!(note(1000, 1000, 1000, true) >= Pace::LEAST);
        assert!(note(1, 0, 5, true) >= Pace::LEAST);
    }
}
