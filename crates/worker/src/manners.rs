//! What a core does when it is woken while somebody else runs on its processor.

use policy::{Lockstep, Patience, Period};
use priority::{Spent, Times};
use std::time::{Duration, Instant};

/// See [`Patience`] and [`Lockstep`]. Where the kernel does not say how long a thread has waited, it always interrupts; where an operator chose how the
/// kernel schedules the node (`chrt(1)`), that stays.
pub(crate) struct Manners {
    patience: Patience,
    patient: bool,
    lockstep: Lockstep,
    rests: bool,
    spent: Option<Spent>,
    before: Times,
    /// When it is time to decide again.
    next: Instant,
    /// How many events all cores had found when it last did.
    found: u64,
    woken: u32,
    events: u32,
}

impl Manners {
    /// Of this thread.
    pub(crate) fn new(now: Instant) -> Self {
        let spent = priority::is_default()
            .then(Spent::of_this_thread)
            .and_then(Result::ok);
        let before = spent.as_ref().and_then(|spent| spent.read().ok());
        Self {
            patience: Patience::default(),
            patient: false,
            lockstep: Lockstep::default(),
            rests: false,
            spent,
            before: before.unwrap_or_default(),
            next: now + Patience::PERIOD,
            found: 0,
            woken: 0,
            events: 0,
        }
    }

    /// A look at the sockets, for which the core slept or not, found so many ready.
    pub(crate) fn looked(&mut self, slept: bool, events: usize) {
        self.woken += u32::from(slept);
        self.events += u32::try_from(events).unwrap_or(u32::MAX);
    }

    /// Decides how to be woken from now on, if it is time: whether to be patient, if that changes. `found` says how many events all
    /// cores have found since they began.
    pub(crate) fn review(&mut self, now: Instant, found: impl FnOnce() -> u64) -> Option<bool> {
        (now >= self.next).then(|| self.decide(now, found())).flatten()
    }

    #[cold]
    fn decide(&mut self, now: Instant, found: u64) -> Option<bool> {
        let spent = self.spent.as_ref().and_then(|spent| spent.read().ok());
        let period = self.period(now, found, spent.unwrap_or(self.before));
        let patient = spent.is_some() && self.note(&period);
        let changed = patient != self.patient && priority::be_patient(patient).is_ok();
        changed.then(|| {
            self.patient = patient;
            patient
        })
    }

    /// Whether to be patient from now on.
    fn note(&mut self, period: &Period) -> bool {
        self.rests = self.lockstep.note(self.patient, period);
        self.patience.note(period)
    }

    /// How long to wait, whatever the sockets have, before the next look at them.
    pub(crate) fn rest(&mut self) -> Option<Duration> {
        std::mem::take(&mut self.rests).then_some(Lockstep::REST)
    }

    /// The period that ends now, and begins the next. The thread has `spent` so much since it began.
    fn period(&mut self, now: Instant, found: u64, spent: Times) -> Period {
        let passed = Patience::PERIOD + now.saturating_duration_since(self.next);
        #[expect(
            clippy::cast_precision_loss,
            reason = "what is found in a few periods is no such number"
        )]
        let found_meanwhile = found.wrapping_sub(self.found) as f32;
        let period = Period {
            woken: std::mem::take(&mut self.woken),
            events: std::mem::take(&mut self.events),
            spent: spent.both().saturating_sub(self.before.both()),
            waited: spent.waited.saturating_sub(self.before.waited),
            rate: found_meanwhile / passed.as_secs_f32(),
        };
        (self.next, self.found, self.before) = (now + Patience::PERIOD, found, spent);
        period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says of this thread: `proc_pid_stat(5)`, the 41st field.
    fn policy() -> u32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields
            .split_ascii_whitespace()
            .nth(41 - 3)
            .unwrap()
            .parse()
            .unwrap()
    }

    const OTHER: u32 = 0;
    const BATCH: u32 = 3;

    fn much_to_do(begun: Instant) -> Manners {
        let mut manners = Manners::new(begun);
        for _ in 0..1000 {
            manners.looked(true, 2);
        }
        manners
    }

    #[test]
    fn a_core_with_much_to_do_tries_to_be_patient_and_one_with_nothing_is_not() {
        let begun = Instant::now();
        let mut manners = much_to_do(begun);
        let mut review = |at| (manners.review(at, || 2000), policy());
        assert_eq!(review(begun + Patience::PERIOD / 2), (None, OTHER));
        assert_eq!(review(begun + Patience::PERIOD), (Some(true), BATCH));
        assert_eq!(review(begun + 2 * Patience::PERIOD), (Some(false), OTHER));
        assert_eq!(review(begun + 3 * Patience::PERIOD), (None, OTHER));
    }

    #[test]
    fn a_period_has_what_came_since_the_last_and_the_rate_of_all_cores() {
        let (begun, ms) = (Instant::now(), Duration::from_millis);
        let times = |ran, waited| Times {
            ran: ms(ran),
            waited: ms(waited),
        };
        let mut manners = Manners::new(begun);
        manners.before = times(80, 20);
        manners.looked(true, 3);
        manners.looked(false, 5);
        let period = manners.period(begun + ms(16), 160, times(85, 22));
        assert_eq!((period.woken, period.events), (1, 8));
        assert_eq!((period.spent, period.waited), (ms(7), ms(2)));
        assert!((period.rate / 10_000.0 - 1.0).abs() < 1e-3, "{period:?}");

        // The next began then, and this core looks 4 ms late.
        manners.looked(true, 1);
        let period = manners.period(begun + ms(36), 200, times(86, 22));
        assert_eq!((period.woken, period.events), (1, 1));
        assert_eq!((period.spent, period.waited), (ms(1), ms(0)));
        assert!((period.rate / 2_000.0 - 1.0).abs() < 1e-3, "{period:?}");
    }

    #[test]
    fn a_core_in_step_with_its_client_rests_once() {
        let mut manners = Manners::new(Instant::now());
        let in_step = Period {
            woken: 240,
            events: 620,
            spent: Patience::PERIOD * 2 / 3,
            waited: Patience::PERIOD / 3,
            rate: 110_000.0,
        };
        manners.note(&in_step);
        assert_eq!(manners.rest(), None);
        manners.patient = true;
        manners.note(&in_step);
        assert_eq!(manners.rest(), Some(Lockstep::REST));
        assert_eq!(manners.rest(), None);
    }

    #[test]
    fn what_an_operator_chose_stays() {
        priority::be_patient(true).unwrap();
        let begun = Instant::now();
        let mut manners = much_to_do(begun);
        for period in 1..4 {
            let at = begun + period * Patience::PERIOD;
            assert_eq!((manners.review(at, || 2000), policy()), (None, BATCH));
        }
    }
}
