//! Answers to requests that are not admitted. Under overload a core says little else, and in the same words: they are made once and copied.
//! Only when, after how long and to which request is put in anew.

use contract::{Problem, Refusal};
use std::time::Duration;

/// The last answer to each kind of refusal.
#[derive(Default)]
pub(crate) struct Refusals(Vec<Said>);

/// A code, the seconds after which to try again, and the length of the timing: what decides the words and where they are.
type Kind = (&'static str, u64, usize);

struct Said {
    kind: Kind,
    status: u16,
    /// Head and body.
    bytes: Vec<u8>,
    /// Where what is to be put in begins.
    date: usize,
    timing: usize,
    ids: [usize; 2],
}

/// What differs between two answers to the same refusal.
#[derive(Clone, Copy)]
pub(crate) struct Novel<'a> {
    pub(crate) date: &'a [u8; 29],
    pub(crate) timing: &'a [u8],
    pub(crate) id: &'a [u8; 32],
}

const MOST: usize = 16;

impl Refusals {
    /// Appends the answer if one of its kind was kept. Returns its status.
    pub(crate) fn repeat(&self, out: &mut Vec<u8>, refusal: Refusal, novel: Novel<'_>) -> Option<u16> {
        let kind = kind(refusal, novel);
        let said = self.0.iter().find(|said| said.kind == kind)?;
        let start = out.len();
        out.extend_from_slice(&said.bytes);
        let [first, second] = said.ids;
        for (place, text) in [
            (said.date, &novel.date[..]),
            (said.timing, novel.timing),
            (first, novel.id),
            (second, novel.id),
        ] {
            let place = start + place;
            out[place..place + text.len()].copy_from_slice(text);
        }
        Some(said.status)
    }

    /// Keeps an answer, in the place of the oldest if there are many, unless something of it is not where it is looked for.
    pub(crate) fn keep(&mut self, refusal: Refusal, status: u16, bytes: &[u8], novel: Novel<'_>) {
        let kind = kind(refusal, novel);
        self.0.retain(|said| said.kind != kind);
        let find = |text: &[u8]| {
            let mut windows = bytes.windows(text.len());
            windows.position(|window| window == text)
        };
        let first = find(novel.id);
        let second = first.and_then(|first| {
            let behind = first + novel.id.len();
            let mut windows = bytes[behind..].windows(novel.id.len());
            Some(behind + windows.position(|window| window == novel.id)?)
        });
        let places = (find(novel.date), find(novel.timing), first, second);
        if let (Some(date), Some(timing), Some(first), Some(second)) = places {
            if self.0.len() == MOST {
                self.0.remove(0);
            }
            self.0.push(Said {
                kind,
                status,
                bytes: bytes.to_vec(),
                date,
                timing,
                ids: [first, second],
            });
        }
    }
}

/// After how long to try again is said in whole seconds.
pub(crate) fn whole_seconds(retry_after: Duration) -> u64 {
    retry_after.as_secs().max(1)
}

fn kind(refusal: Refusal, novel: Novel<'_>) -> Kind {
    (
        Problem::refusal_code(refusal),
        whole_seconds(refusal.retry_after()),
        novel.timing.len(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Refusal = Refusal::TooLate {
        retry_after: Duration::from_millis(20),
    };

    const NOVEL: Novel<'_> = Novel {
        date: b"Sun, 06 Nov 1994 08:49:37 GMT",
        timing: b"queue;dur=0.001",
        id: b"0123456789abcdef0123456789abcdef",
    };

    fn answer(novel: Novel<'_>) -> Vec<u8> {
        let (date, timing, id) = (novel.date, novel.timing, novel.id);
        [
            &b"429\r\n"[..],
            timing,
            b"\r\n",
            id,
            b"\r\n",
            date,
            b"\r\n\r\n{",
            id,
            b"}",
        ]
        .concat()
    }

    #[test]
    fn what_is_repeated_is_what_would_have_been_made() {
        let mut refusals = Refusals::default();
        let first = NOVEL;
        let second = Novel {
            date: b"Sun, 06 Nov 1994 08:49:38 GMT",
            timing: b"queue;dur=9.999",
            id: b"fedcba9876543210fedcba9876543210",
        };
        let mut out = b"before".to_vec();
        assert_eq!(refusals.repeat(&mut out, LATE, first), None);
        refusals.keep(LATE, 429, &answer(first), first);
        assert_eq!(refusals.repeat(&mut out, LATE, second), Some(429));
        assert_eq!(out, [b"before", &answer(second)[..]].concat());
    }

    #[test]
    fn others_are_not_repeated() {
        let mut refusals = Refusals::default();
        refusals.keep(LATE, 429, &answer(NOVEL), NOVEL);
        let mut out = Vec::new();
        let after = |seconds| Refusal::TooLate {
            retry_after: Duration::from_secs(seconds),
        };
        assert_eq!(refusals.repeat(&mut out, after(1), NOVEL), Some(429));
        out.clear();
        for other in [
            after(2),
            Refusal::Draining,
            Refusal::QueueFull {
                retry_after: Duration::from_secs(1),
            },
        ] {
            assert_eq!(refusals.repeat(&mut out, other, NOVEL), None);
        }
        let longer = Novel {
            timing: b"queue;dur=10.001",
            ..NOVEL
        };
        assert_eq!(refusals.repeat(&mut out, LATE, longer), None);
        // One that says the request's id once is not what is expected, and takes the place of none.
        refusals.keep(Refusal::Draining, 503, &answer(NOVEL)[..100], NOVEL);
        assert_eq!(refusals.repeat(&mut out, Refusal::Draining, NOVEL), None);
        assert!(out.is_empty());
    }

    #[test]
    fn those_that_waited_longer_put_no_other_out() {
        let mut refusals = Refusals::default();
        let longer = Novel {
            timing: b"queue;dur=10.001",
            ..NOVEL
        };
        for novel in [NOVEL, longer] {
            refusals.keep(LATE, 429, &answer(novel), novel);
        }
        for novel in [NOVEL, longer, NOVEL] {
            let mut out = Vec::new();
            assert_eq!(refusals.repeat(&mut out, LATE, novel), Some(429));
            assert_eq!(out, answer(novel));
        }
    }

    #[test]
    fn there_are_no_more_than_a_few() {
        let mut refusals = Refusals::default();
        let full = |seconds| Refusal::QueueFull {
            retry_after: Duration::from_secs(seconds),
        };
        for seconds in 1..100 {
            refusals.keep(full(seconds), 429, &answer(NOVEL), NOVEL);
        }
        assert_eq!(refusals.0.len(), MOST);
        let mut out = Vec::new();
        assert_eq!(refusals.repeat(&mut out, full(1), NOVEL), None);
        assert_eq!(refusals.repeat(&mut out, full(99), NOVEL), Some(429));
    }
}
