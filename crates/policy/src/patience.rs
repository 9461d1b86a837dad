//! Whether a core that is woken interrupts whoever runs on its processor.

use std::time::Duration;

/// A core that shares its processor with its clients can be too quick: woken by the first request of many that a client is about to
/// send, it interrupts the client for that one, and again for the next. One that waits until the client has nothing more to
/// do finds all of them, for the same two switches of the processor. But where somebody computes beside it who sends nothing, it
/// waits in vain.
///
/// So it tries, and compares what an event costs it both ways: its own time and what it waits for its processor, together. It is
/// patient where that is no dearer than to interrupt, but for a little: where both have all they want of one processor, the sum is the
/// same, and the client has what the core saves.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    patient: bool,
    /// What an event has cost while it interrupted others, in nanoseconds,
    hasty: Option<f32>,
    /// and in this try.
    trial: Option<f32>,
    /// Until it changes its way: so many times of being woken, to be patient, or periods, to see how the other way is now.
    left: u32,
    /// Times of being woken after the next try that fails.
    pause: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            patient: false,
            hasty: None,
            trial: None,
            left: Self::SHORTEST,
            pause: Self::SHORTEST,
        }
    }
}

impl Patience {
    /// A period is at least so long.
    pub const PERIOD: Duration = Duration::from_millis(16);
    /// Fewer events in a period of [`Patience::PERIOD`] are not worth a try: one for each millisecond.
    const FEW: u32 = 16;
    /// How many periods it is patient before it compares again.
    const TERM: u32 = 64;
    const SHORTEST: u32 = 64;
    const LONGEST: u32 = 16_384;
    /// What a period counts among those before it: they differ by a third.
    const WEIGHT: f32 = 0.25;
    /// A try has so many periods, if it is not so much dearer at once.
    const TRY: u32 = 4;
    const DEAR: f32 = 2.0;
    /// So much dearer it may be in the long run.
    const WORTH: f32 = 1.2;

    /// A period has passed in which the core was woken so often and found so many events, and ran or waited for its processor for so
    /// long. Whether it is to be patient in the next.
    pub fn note(&mut self, woken: u32, events: u32, spent: Duration) -> bool {
        if events < Self::FEW {
            // Nothing is learnt, and nothing is to be had.
            self.patient = false;
            self.left = self.left.max(1);
            return false;
        }
        #[expect(clippy::cast_precision_loss, reason = "a period has no millions of events")]
        let cost = spent.as_secs_f32() * 1e9 / events as f32;
        let mean = if self.patient {
            &mut self.trial
        } else {
            &mut self.hasty
        };
        let mean = *mean.insert(mean.map_or(cost, |mean| mean + Self::WEIGHT * (cost - mean)));
        if !self.patient {
            self.left = self.left.saturating_sub(woken);
            if self.left == 0 {
                (self.patient, self.trial, self.left) = (true, None, Self::TERM);
            }
            return self.patient;
        }
        self.left -= 1;
        let tried = Self::TERM - self.left >= Self::TRY;
        let limit = if tried { Self::WORTH } else { Self::DEAR };
        if self.hasty.is_some_and(|hasty| mean > hasty * limit) {
            (self.patient, self.left) = (false, self.pause);
            self.pause = (self.pause * 2).min(Self::LONGEST);
        } else if self.left == 0 {
            (self.patient, self.left) = (false, 1);
            self.pause = Self::SHORTEST;
        }
        self.patient
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an event costs, in microseconds, if the core interrupts others and if it does not.
    struct Beside(u64, u64);

    /// One who keeps a processor busy together with the core.
    const CLIENT: Beside = Beside(44, 45);
    /// One who computes.
    const STRANGER: Beside = Beside(56, 98);

    /// So many periods with so many events each, of which every tenth wakes a core that is not patient. In how many it was patient.
    fn live(patience: &mut Patience, Beside(hasty, patient): &Beside, events: u32, periods: u32) -> u32 {
        (0..periods)
            .map(|period| {
                let before = patience.patient;
                let (woken, cost) = if before {
                    (events.div_ceil(100), *patient)
                } else {
                    (events.div_ceil(10), *hasty)
                };
                // They differ by a third, and that by turns.
                let cost = Duration::from_micros(cost) * [100, 133, 67][period as usize % 3] / 100;
                let after = patience.note(woken, events, cost * events);
                assert_eq!(after, patience.patient);
                u32::from(before)
            })
            .sum()
    }

    #[test]
    fn beside_a_client_it_is_patient_nearly_always() {
        let mut patience = Patience::default();
        let patient = live(&mut patience, &CLIENT, 500, 10_000);
        assert!((9_800..10_000).contains(&patient), "{patient}");
    }

    #[test]
    fn beside_one_that_computes_it_tries_ever_more_seldom() {
        let mut patience = Patience::default();
        let patient = live(&mut patience, &STRANGER, 160, 100_000);
        // 16 times of being woken in each: after 4 periods, after 8, and so on to 1,024, for 1 to 4 each.
        assert!((100..=450).contains(&patient), "{patient}");
    }

    #[test]
    fn what_is_much_dearer_is_seen_at_once() {
        let mut patience = Patience::default();
        let patient = live(&mut patience, &Beside(50, 1_200), 160, 100_000);
        assert!((90..=110).contains(&patient), "{patient}");
    }

    #[test]
    fn it_follows_those_who_come_and_go() {
        let mut patience = Patience::default();
        for _ in 0..10 {
            assert!(live(&mut patience, &CLIENT, 500, 10_000) > 9_500);
            assert!(live(&mut patience, &STRANGER, 160, 10_000) < 100);
        }
    }

    #[test]
    fn one_that_is_like_the_other_in_patience_is_found_out_by_comparing() {
        let mut patience = Patience::default();
        live(&mut patience, &CLIENT, 500, 1000);
        // No dearer than the client was, and much cheaper if it is interrupted.
        let patient = live(&mut patience, &Beside(9, 45), 500, 100_000);
        assert!((1..10 * Patience::TERM).contains(&patient), "{patient}");
    }

    #[test]
    fn a_core_with_little_to_do_interrupts() {
        let mut patience = Patience::default();
        assert_eq!(live(&mut patience, &CLIENT, Patience::FEW - 1, 10_000), 0);
        live(&mut patience, &CLIENT, 500, 100);
        assert!(live(&mut patience, &CLIENT, Patience::FEW - 1, 10_000) <= 1);
        assert!(live(&mut patience, &CLIENT, 0, 10_000) <= 1);
        assert!(live(&mut patience, &CLIENT, 500, 10_000) > 9_500);
    }
}
