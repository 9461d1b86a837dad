//! Whether a core and its client hold each other up.

use crate::Period;
use std::time::Duration;

/// A [patient](crate::Patience) core does not interrupt its client, but its answers wake the client, which may interrupt the core. Where the
/// client then has only that one answer to take, it asks once more, sleeps, and lets the core go on, which finds one request or two: both do
/// everything in steps, at two switches of the processor each. Where it has more to take when it wakes, from other cores, it sends many
/// requests in a row, and the core finds as many. Either lasts once it has begun.
///
/// So a core that is in step rests for a moment, and what has come meanwhile can be enough to begin with. It tries that a few times. Where it never
/// is, as with few connections, it does so seldom from then on.
#[derive(Clone, Copy, Debug)]
pub struct Lockstep {
    /// How often it may still rest in a row,
    tries: u32,
    /// and for how many periods it does not, once that is used up.
    left: u32,
}

impl Default for Lockstep {
    fn default() -> Self {
        Self {
            tries: Self::TRIES,
            left: Self::PAUSE,
        }
    }
}

impl Lockstep {
    /// So long a core rests: a client that asks without pause does so a few hundred times meanwhile.
    pub const REST: Duration = Duration::from_millis(1);
    /// A core that is woken less often is in step with nobody: three times in a millisecond.
    const WOKEN: u32 = 48;
    /// Nor is one that finds so many events each time. In step, a core found 2 to 4, and else 25 and more, of 100 connections on two cores
    /// (AMD EPYC).
    const MANY: u32 = 6;
    /// Nor is one that waited for its processor for less than so much of a period: nobody who runs there is held up by it. It was 34 to 48 % in
    /// step, and 1 % on a core of its own.
    const SHARED: u32 = 8;
    /// For a quarter of a second.
    const TRIES: u32 = 16;
    /// Periods after that: where resting is in vain, 0.1 % of the core's time is lost.
    const PAUSE: u32 = 64;

    /// A period has passed, in which the core was patient or not. Whether it should rest now.
    pub fn note(&mut self, patient: bool, period: &Period) -> bool {
        if !(patient && Self::is_in_step(period)) {
            *self = Self::default();
            return false;
        }
        if self.tries > 0 {
            self.tries -= 1;
            return true;
        }
        self.left -= 1;
        if self.left == 0 {
            self.left = Self::PAUSE;
            return true;
        }
        false
    }

    fn is_in_step(period: &Period) -> bool {
        period.woken > Self::WOKEN
            && period.events < Self::MANY * period.woken
            && period.waited * Self::SHARED > crate::Patience::PERIOD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// As measured on an AMD EPYC: 100 connections, two cores, the client on one of them.
    const IN_STEP: Period = Period {
        woken: 240,
        events: 620,
        spent: MS.saturating_mul(11),
        waited: MS.saturating_mul(6),
        rate: 110_000.0,
    };
    const IN_A_ROW: Period = Period {
        woken: 20,
        events: 640,
        spent: MS.saturating_mul(14),
        waited: MS.saturating_mul(9),
        rate: 130_000.0,
    };

    /// In which of so many periods it rests.
    fn rests(lockstep: &mut Lockstep, patient: bool, period: Period, periods: u32) -> Vec<u32> {
        (0..periods).filter(|_| lockstep.note(patient, &period)).collect()
    }

    #[test]
    fn a_core_in_step_rests_a_few_times_and_then_seldom() {
        let mut lockstep = Lockstep::default();
        let first: Vec<u32> = (0..16).collect();
        assert_eq!(rests(&mut lockstep, true, IN_STEP, 16), first);
        assert_eq!(rests(&mut lockstep, true, IN_STEP, 200), [63, 127, 191]);
    }

    #[test]
    fn once_it_helped_the_next_rest_comes_at_once() {
        let mut lockstep = Lockstep::default();
        rests(&mut lockstep, true, IN_STEP, 60);
        assert_eq!(rests(&mut lockstep, true, IN_A_ROW, 100), []);
        assert_eq!(rests(&mut lockstep, true, IN_STEP, 3), [0, 1, 2]);
    }

    #[test]
    fn others_do_not_rest() {
        let alone = Period {
            waited: MS / 10,
            ..IN_STEP
        };
        let little = Period {
            woken: 40,
            events: 41,
            ..IN_STEP
        };
        for (patient, period) in [(false, IN_STEP), (true, IN_A_ROW), (true, alone), (true, little)] {
            let mut lockstep = Lockstep::default();
            assert_eq!(rests(&mut lockstep, patient, period, 100), [], "{period:?}");
        }
    }
}
