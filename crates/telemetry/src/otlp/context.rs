//! W3C Trace Context (the Recommendation of 2021, version 00): who called us, and who we say we are.

use contract::Head;

/// Where in which trace something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    pub(crate) sampled: bool,
}

/// The name of the header.
pub(crate) const TRACEPARENT: &str = "traceparent";
/// The name of the header that goes with it.
pub(crate) const TRACESTATE: &str = "tracestate";

/// Length of a version 00 header; later versions begin the same way.
const LENGTH: usize = 55;
const SAMPLED: u8 = 1;

impl Context {
    /// Reads a `traceparent` as section 3.2 has it: lower-case digits only, no zero ids, version `ff` never. Of later
    /// versions it takes what this one defines, as section 4.3 says.
    pub(crate) fn parse(header: &[u8]) -> Option<Self> {
        let known = header.get(..LENGTH)?;
        let version = number(&known[..2])?;
        let rest_is_good = match version {
            0 => header.len() == LENGTH,
            0xff => false,
            _ => header.get(LENGTH).is_none_or(|next| *next == b'-'),
        };
        if !rest_is_good || [2, 35, 52].iter().any(|at| known[*at] != b'-') {
            return None;
        }
        let trace = number(&known[3..35])?;
        let span = u64::try_from(number(&known[36..52])?).ok()?;
        let flags = u8::try_from(number(&known[53..])?).ok()?;
        (trace != 0 && span != 0).then_some(Self {
            trace,
            span,
            sampled: flags & SAMPLED != 0,
        })
    }

    /// The caller of a request, if it says who it is, and says so once.
    pub(crate) fn of(head: &Head) -> Option<Self> {
        let mut said = head
            .headers()
            .filter(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT));
        match (said.next(), said.next()) {
            (Some((_, value)), None) => Self::parse(value),
            _ => None,
        }
    }

    /// As a header of version 00.
    pub(crate) fn header(&self) -> String {
        let Self { trace, span, sampled } = self;
        format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(*sampled))
    }
}

/// Lower-case hexadecimal digits, at most 32.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

/// Whether a trace is exported. Its caller's word holds where `by_parent` is set and there is a caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampler {
    pub(crate) by_parent: bool,
    /// Of traces that begin here: a share from 0 to 1.
    pub(crate) share: f64,
}

impl Sampler {
    /// Decides. The share is taken by the trace id, so that all services which take the same share take the same traces.
    pub(crate) fn decide(&self, parent: Option<&Context>, trace: u128) -> bool {
        match parent {
            Some(parent) if self.by_parent => parent.sampled,
            _ => self.takes(trace),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of the lower 63 bits; the conversion saturates"
    )]
    fn takes(&self, trace: u128) -> bool {
        let bound = (self.share * (1u64 << 63) as f64) as u64;
        self.share >= 1.0 || (trace as u64) >> 1 < bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{HeadBuilder, RequestId};
    use proptest::prelude::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parse(text: &str) -> Option<Context> {
        Context::parse(text.as_bytes())
    }

    #[test]
    fn a_header_is_what_the_recommendation_says_or_nothing() {
        let context = parse(GOOD).unwrap();
        assert_eq!(context.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span, 0x00f0_67aa_0ba9_02b7);
        assert!(context.sampled);
        assert!(!parse(&GOOD.replace("-01", "-00")).unwrap().sampled);
        assert!(
            parse(&GOOD.replace("-01", "-03")).unwrap().sampled,
            "flags we do not know"
        );
        assert!(
            parse(&GOOD.replacen("00-", "cc-", 1)).is_some(),
            "a later version"
        );
        assert!(parse(&format!("{}-what-comes", GOOD.replacen("00-", "cc-", 1))).is_some());

        for bad in [
            "",
            "00",
            &GOOD[..54],
            &format!("{GOOD}-"),
            &format!("{GOOD}0"),
            &format!("{GOOD}-x"),
            &format!("{}x", GOOD.replacen("00-", "cc-", 1)),
            &GOOD.replacen("00-", "ff-", 1),
            &GOOD.to_uppercase(),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GOOD.replace('-', "_"),
            &GOOD.replace("-01", "-0g"),
            &GOOD.replace("4bf", "+bf"),
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn who_says_two_things_says_nothing() {
        let head = |headers: &[&str]| {
            let mut builder = HeadBuilder::new("GET", "/", 128);
            for value in headers {
                builder.header("TraceParent", value.as_bytes());
            }
            builder.build(RequestId(1))
        };
        assert_eq!(Context::of(&head(&[GOOD])), parse(GOOD));
        assert_eq!(Context::of(&head(&[])), None);
        assert_eq!(Context::of(&head(&[GOOD, GOOD])), None);
    }

    #[test]
    fn a_share_is_that_share() {
        let sampler = |share| Sampler {
            by_parent: false,
            share,
        };
        for trace in [1, u128::MAX, u128::from(u64::MAX)] {
            assert!(sampler(1.0).takes(trace));
            assert!(!sampler(0.0).takes(trace));
        }
        let step = u128::from(u64::MAX) / 1000;
        let taken = (0..1000)
            .filter(|n| sampler(0.25).takes(n * step + step / 2))
            .count();
        assert_eq!(taken, 250);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(trace in 1u128.., span in 1u64.., sampled: bool) {
            let context = Context { trace, span, sampled };
            prop_assert_eq!(parse(&context.header()), Some(context));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Context::parse(&bytes);
        }
    }
}
