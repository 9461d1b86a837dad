//! What a core does when it is woken while somebody else runs on its processor.

use policy::Patience;
use priority::Spent;
use std::time::{Duration, Instant};

/// See [`Patience`]. Where the kernel does not say how long a thread has waited, it always interrupts; where an operator chose how the
/// kernel schedules the node (`chrt(1)`), that stays.
pub(crate) struct Manners {
    patience: Patience,
    patient: bool,
    spent: Option<Spent>,
    before: Duration,
    /// When it is time to decide again.
    next: Instant,
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
            spent,
            before: before.unwrap_or_default(),
            next: now + Patience::PERIOD,
            woken: 0,
            events: 0,
        }
    }

    /// A look at the sockets, for which the core slept or not, found so many ready.
    pub(crate) fn looked(&mut self, slept: bool, events: usize) {
        self.woken += u32::from(slept);
        self.events += u32::try_from(events).unwrap_or(u32::MAX);
    }

    /// Decides how to be woken from now on, if it is time: whether to be patient, if that changes.
    pub(crate) fn review(&mut self, now: Instant) -> Option<bool> {
        (now >= self.next).then(|| self.decide(now)).flatten()
    }

    #[cold]
    fn decide(&mut self, now: Instant) -> Option<bool> {
        let (woken, events) = (std::mem::take(&mut self.woken), std::mem::take(&mut self.events));
        self.next = now + Patience::PERIOD;
        let patient = match self.spent.as_ref().map(Spent::read) {
            Some(Ok(spent)) => {
                let passed = spent.saturating_sub(self.before);
                self.before = spent;
                self.patience.note(woken, events, passed)
            }
            _ => false,
        };
        let changed = patient != self.patient && priority::be_patient(patient).is_ok();
        changed.then(|| {
            self.patient = patient;
            patient
        })
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
        assert_eq!(
            (manners.review(begun + Patience::PERIOD / 2), policy()),
            (None, OTHER)
        );
        assert_eq!(
            (manners.review(begun + Patience::PERIOD), policy()),
            (Some(true), BATCH)
        );
        assert_eq!(
            (manners.review(begun + 2 * Patience::PERIOD), policy()),
            (Some(false), OTHER)
        );
        assert_eq!(
            (manners.review(begun + 3 * Patience::PERIOD), policy()),
            (None, OTHER)
        );
    }

    #[test]
    fn what_an_operator_chose_stays() {
        priority::be_patient(true).unwrap();
        let begun = Instant::now();
        let mut manners = much_to_do(begun);
        for period in 1..4 {
            assert_eq!(
                (manners.review(begun + period * Patience::PERIOD), policy()),
                (None, BATCH)
            );
        }
    }
}
