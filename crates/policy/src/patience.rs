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
///
/// A client that also talks to other cores has more for these when it is not interrupted. Then this core's events seem dear, since it
/// waits while others are sent to, but the node answers more. So where all its cores together find clearly more events while this one is
/// patient, an event may cost this one far more. One who sends nothing makes nobody find more.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    patient: bool,
    /// How it was while it interrupted others,
    hasty: Option<Seen>,
    /// and in this try.
    trial: Option<Seen>,
    /// Until it changes its way: so many times of being woken, to be patient, or periods, to see how the other way is now.
    left: u32,
    /// Times of being woken after the next try that fails.
    pause: u32,
}

/// What a core did in a period of [`Patience::PERIOD`], and the node with it.
#[derive(Clone, Copy, Debug)]
pub struct Period {
    /// How often it was woken.
    pub woken: u32,
    /// How many events it found at its sockets.
    pub events: u32,
    /// How long it ran or waited for its processor.
    pub spent: Duration,
    /// How much of that it waited.
    pub waited: Duration,
    /// How many events all cores of the node found meanwhile, this one among them: for each second.
    pub rate: f32,
}

/// Means of periods.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// What an event took of the core's time, with waiting, in nanoseconds.
    cost: f32,
    /// Events of all cores in a second.
    rate: f32,
}

impl Seen {
    fn of(period: &Period) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a period has no millions of events")]
        let events = period.events as f32;
        Self {
            cost: period.spent.as_secs_f32() * 1e9 / events,
            rate: period.rate,
        }
    }

    /// With one more, which counts as [`Patience::WEIGHT`] says.
    fn and(self, next: Self) -> Self {
        let mean = |before: f32, next: f32| before + Patience::WEIGHT * (next - before);
        Self {
            cost: mean(self.cost, next.cost),
            rate: mean(self.rate, next.rate),
        }
    }
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
    /// All cores find clearly more if they find so many times as much.
    const MORE: f32 = 1.1;
    /// So much dearer it may be where they do: with 2 a core beside its client still gave up now and then.
    const WORTH_FOR_MORE: f32 = 3.0;

    /// A period has passed. Whether the core is to be patient in the next.
    pub fn note(&mut self, period: &Period) -> bool {
        if period.events < Self::FEW {
            // Nothing is learnt, and nothing is to be had.
            self.patient = false;
            self.left = self.left.max(1);
            return false;
        }
        let way = if self.patient {
            &mut self.trial
        } else {
            &mut self.hasty
        };
        let now = Seen::of(period);
        let now = *way.insert(way.map_or(now, |seen| seen.and(now)));
        if !self.patient {
            self.left = self.left.saturating_sub(period.woken);
            if self.left == 0 {
                (self.patient, self.trial, self.left) = (true, None, Self::TERM);
            }
            return self.patient;
        }
        self.left -= 1;
        if self
            .hasty
            .is_some_and(|hasty| now.cost > hasty.cost * self.limit(hasty, now))
        {
            (self.patient, self.left) = (false, self.pause);
            self.pause = (self.pause * 2).min(Self::LONGEST);
        } else if self.left == 0 {
            (self.patient, self.left) = (false, 1);
            self.pause = Self::SHORTEST;
        }
        self.patient
    }

    /// How many times as much an event may cost.
    fn limit(&self, hasty: Seen, patient: Seen) -> f32 {
        let tried = Self::TERM - self.left >= Self::TRY;
        if patient.rate > hasty.rate * Self::MORE {
            Self::WORTH_FOR_MORE
        } else if tried {
            Self::WORTH
        } else {
            Self::DEAR
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is beside the core: what an event costs it, in microseconds, if it interrupts others and if it does not, and how many all
    /// cores find then, in thousands a second.
    struct Beside {
        cost: [u64; 2],
        rate: [u32; 2],
    }

    /// One who keeps a processor busy together with the core.
    const CLIENT: Beside = Beside {
        cost: [44, 45],
        rate: [60, 60],
    };
    /// One who has all it wants of a processor and sends more to another core if this one lets it. The node found a third more on an AMD EPYC;
    /// what an event costs the core is made up, between the limits.
    const CLIENT_OF_TWO: Beside = Beside {
        cost: [40, 70],
        rate: [70, 93],
    };
    /// One who computes.
    const STRANGER: Beside = Beside {
        cost: [56, 98],
        rate: [10, 10],
    };

    /// So many periods with so many events each, of which every tenth wakes a core that is not patient. In how many it was patient.
    fn live(patience: &mut Patience, beside: &Beside, events: u32, periods: u32) -> u32 {
        (0..periods)
            .map(|period| {
                let before = patience.patient;
                let way = usize::from(before);
                let cost = Duration::from_micros(beside.cost[way]);
                // They differ by a third, and that by turns; what is found, by a tenth.
                let turn = period as usize % 3;
                let after = patience.note(&Period {
                    woken: events.div_ceil([10, 100][way]),
                    events,
                    spent: cost * [100, 133, 67][turn] / 100 * events,
                    waited: Duration::ZERO,
                    rate: (beside.rate[way] * [1000, 900, 1100][turn]) as f32,
                });
                assert_eq!(after, patience.patient);
                u32::from(before)
            })
            .sum()
    }

    #[test]
    fn beside_a_client_it_is_patient_nearly_always() {
        for client in [CLIENT, CLIENT_OF_TWO] {
            let mut patience = Patience::default();
            let patient = live(&mut patience, &client, 500, 10_000);
            assert!((9_800..10_000).contains(&patient), "{patient}");
        }
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
        let beside = Beside {
            cost: [50, 1_200],
            ..STRANGER
        };
        let patient = live(&mut patience, &beside, 160, 100_000);
        assert!((90..=110).contains(&patient), "{patient}");
    }

    #[test]
    fn what_is_dearer_is_not_worth_any_price_nor_where_all_find_no_more() {
        for (cost, rate) in [([40, 140], [70, 93]), ([40, 70], [70, 74]), ([40, 70], [70, 60])] {
            let mut patience = Patience::default();
            let patient = live(&mut patience, &Beside { cost, rate }, 160, 100_000);
            assert!((100..1_000).contains(&patient), "{patient} with {rate:?}");
        }
    }

    #[test]
    fn it_follows_those_who_come_and_go() {
        let mut patience = Patience::default();
        for _ in 0..10 {
            for client in [CLIENT, CLIENT_OF_TWO] {
                assert!(live(&mut patience, &client, 500, 10_000) > 9_500);
                assert!(live(&mut patience, &STRANGER, 160, 10_000) < 100);
            }
        }
    }

    #[test]
    fn one_that_is_like_the_other_in_patience_is_found_out_by_comparing() {
        for client in [CLIENT, CLIENT_OF_TWO] {
            let mut patience = Patience::default();
            live(&mut patience, &client, 500, 1000);
            // No dearer than the client was, nothing lost, and much cheaper if it is interrupted.
            let beside = Beside {
                cost: [9, client.cost[1]],
                rate: [client.rate[1]; 2],
            };
            let patient = live(&mut patience, &beside, 500, 100_000);
            assert!((1..10 * Patience::TERM).contains(&patient), "{patient}");
        }
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
