//! Filters of system calls as programs for the kernel.
//!
//! When a filter is put up, the kernel runs it once for each call that there is, to know those that are always allowed; later it runs it for each call
//! that is not. So what a filter costs is how far it has to look: of 250 calls in a row that took a millisecond each time, which is most of what
//! starting a guest may take. Here the call is found by halves, in 8 steps.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, c_long,
    sock_filter,
};
use std::{collections::BTreeMap, io};

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is made.
    Allow,
    /// It fails with this error.
    Refuse(i32),
    /// The process ends.
    Kill,
}

impl Answer {
    fn code(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Refuse(error) => libc::SECCOMP_RET_ERRNO | (error.unsigned_abs() & libc::SECCOMP_RET_DATA),
            Self::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

/// That of these bits of an argument exactly those of the value are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// Which argument, from 0.
    pub(crate) argument: u32,
    /// Which of its bits count.
    pub(crate) bits: u64,
    /// What they must be.
    pub(crate) value: u64,
}

/// When a call gets another answer than most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Always.
    Always(Answer),
    /// It is allowed if all conditions of one of these hold.
    If(Vec<Vec<Condition>>),
}

/// Rules by the number of the call.
pub(crate) type Rules = BTreeMap<c_long, Rule>;

/// Where the kernel shows a filter the call's number, the processor's, and the arguments.
const NUMBER: u32 = 0;
const PROCESSOR: u32 = 4;
const ARGUMENTS: u32 = 16;

const THIS_PROCESSOR: u32 = if cfg!(target_arch = "aarch64") {
    0xc000_00b7
} else {
    0xc000_003e
};

fn instruction(code: u32, k: u32, then: u8, otherwise: u8) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: then,
        jf: otherwise,
        k,
    }
}

fn load(at: u32) -> sock_filter {
    instruction(BPF_LD | BPF_W | BPF_ABS, at, 0, 0)
}

fn answer(answer: Answer) -> sock_filter {
    instruction(BPF_RET | BPF_K, answer.code(), 0, 0)
}

/// A program: calls without a rule get `default`, all calls of other processors are the end.
pub(crate) fn program(rules: &Rules, default: Answer) -> io::Result<Vec<sock_filter>> {
    let equal = BPF_JMP | BPF_JEQ | BPF_K;
    let mut program = vec![
        load(PROCESSOR),
        instruction(equal, THIS_PROCESSOR, 1, 0),
        answer(Answer::Kill),
        load(NUMBER),
    ];
    // From each number on, up to the next.
    let other = Rule::Always(default);
    let mut spans: Vec<(u32, &Rule)> = vec![(0, &other)];
    for (number, rule) in rules {
        let after = number + 1;
        let next = (!rules.contains_key(&after)).then_some((after, &other));
        for (begin, rule) in [Some((*number, rule)), next].into_iter().flatten() {
            let begin = u32::try_from(begin).map_err(io::Error::other)?;
            match spans.last_mut() {
                Some(last) if last.0 == begin => last.1 = rule,
                Some(last) if last.1 == rule => {}
                _ => spans.push((begin, rule)),
            }
        }
    }
    let spans: Vec<_> = spans
        .into_iter()
        .map(|(begin, rule)| (begin, leaf(rule, default)))
        .collect();
    program.extend(find(&spans));
    if program.len() > libc::BPF_MAXINSNS as usize {
        return Err(io::Error::other("a filter of system calls is too long"));
    }
    Ok(program)
}

/// Goes to the last span that begins at the call's number or below.
fn find(spans: &[(u32, Vec<sock_filter>)]) -> Vec<sock_filter> {
    let (lower, upper) = spans.split_at(spans.len() / 2);
    let (false, Some((begin, _))) = (lower.is_empty(), upper.first()) else {
        return spans.first().map(|(_, code)| code.clone()).unwrap_or_default();
    };
    let at_least = BPF_JMP | BPF_JGE | BPF_K;
    let (below, above) = (find(lower), find(upper));
    // A jump on a condition reaches no further than 255.
    let mut code = match u8::try_from(below.len()) {
        Ok(length) => vec![instruction(at_least, *begin, length, 0)],
        Err(_) => vec![
            instruction(at_least, *begin, 0, 1),
            instruction(BPF_JMP | BPF_JA, below.len() as u32, 0, 0),
        ],
    };
    code.extend(below);
    code.extend(above);
    code
}

fn leaf(rule: &Rule, default: Answer) -> Vec<sock_filter> {
    let alternatives = match rule {
        Rule::Always(always) => return vec![answer(*always)],
        Rule::If(alternatives) => alternatives,
    };
    let mut code = Vec::new();
    for conditions in alternatives {
        let mut tests = Vec::new();
        for condition in conditions {
            for half in [0, 1] {
                let part = |value: u64| (value >> (32 * half)) as u32;
                let bits = part(condition.bits);
                if bits == 0 {
                    continue;
                }
                let mut test = vec![load(ARGUMENTS + 8 * condition.argument + 4 * half)];
                if bits != u32::MAX {
                    test.push(instruction(BPF_ALU | BPF_AND | BPF_K, bits, 0, 0));
                }
                tests.push((test, part(condition.value)));
            }
        }
        // All that comes after a test, and the answer, is left out if it fails.
        let mut rest = vec![answer(Answer::Allow)];
        for (test, value) in tests.into_iter().rev() {
            let left_out = rest.len() as u8;
            let mut whole = test;
            whole.push(instruction(BPF_JMP | BPF_JEQ | BPF_K, value, 0, left_out));
            whole.extend(rest);
            rest = whole;
        }
        code.extend(rest);
    }
    code.push(answer(default));
    code
}

/// Has the kernel use a program for this process, and for those that it starts, for good.
pub(crate) fn apply(program: &[sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the program is as long as said and outlives the call, which only reads it.
    let applied = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    crate::limit::check(applied)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel runs it: the answer, and after how many steps.
    fn run(program: &[sock_filter], processor: u32, number: u32, arguments: [u64; 6]) -> (u32, usize) {
        let (mut at, mut value, mut steps) = (0, 0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            (at, steps) = (at + 1, steps + 1);
            let jump = |holds: bool| usize::from(if holds { jt } else { jf });
            match u32::from(code) {
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    value = match k {
                        NUMBER => number,
                        PROCESSOR => processor,
                        k => {
                            let (argument, half) = ((k - ARGUMENTS) / 8, (k - ARGUMENTS) % 8 / 4);
                            (arguments[argument as usize] >> (32 * half)) as u32
                        }
                    }
                }
                code if code == BPF_ALU | BPF_AND | BPF_K => value &= k,
                code if code == BPF_JMP | BPF_JGE | BPF_K => at += jump(value >= k),
                code if code == BPF_JMP | BPF_JEQ | BPF_K => at += jump(value == k),
                code if code == BPF_JMP | BPF_JA => at += k as usize,
                code if code == BPF_RET | BPF_K => return (k, steps),
                other => panic!("no such instruction: {other}"),
            }
        }
    }

    fn naive(rules: &Rules, default: Answer, number: u32, arguments: [u64; 6]) -> Answer {
        let holds = |condition: &Condition| {
            arguments[condition.argument as usize] & condition.bits == condition.value
        };
        match rules.get(&c_long::from(number)) {
            None => default,
            Some(Rule::Always(answer)) => *answer,
            Some(Rule::If(any)) if any.iter().any(|all| all.iter().all(holds)) => Answer::Allow,
            Some(Rule::If(_)) => default,
        }
    }

    #[test]
    fn a_program_answers_as_its_rules_do() {
        let condition = |argument, bits, value| Condition {
            argument,
            bits,
            value,
        };
        let mut rules = Rules::new();
        for number in 0..400 {
            let rule = match number % 7 {
                0 => continue,
                1 | 2 => Rule::Always(Answer::Allow),
                3 => Rule::Always(Answer::Kill),
                4 => Rule::Always(Answer::Refuse(38)),
                5 => Rule::If(vec![vec![condition(5, u64::MAX, 1 << 40 | 3)]]),
                _ => Rule::If(vec![
                    vec![condition(0, 0xff00, 0x100), condition(1, u64::MAX << 32, 0)],
                    vec![condition(2, u64::from(u32::MAX), 7)],
                ]),
            };
            rules.insert(number, rule);
        }
        for default in [Answer::Refuse(1), Answer::Kill] {
            let program = program(&rules, default).unwrap();
            for number in (0..420).chain([u32::MAX]) {
                for arguments in [
                    [0; 6],
                    [0x100, 9, 7, 0, 0, 1 << 40 | 3],
                    [0x1ff, 1 << 33, 8, 0, 0, 3],
                    [0x12_0000_0100, 5, 1 << 32 | 7, 0, 0, 1 << 40],
                ] {
                    let (found, steps) = run(&program, THIS_PROCESSOR, number, arguments);
                    let expected = naive(&rules, default, number, arguments).code();
                    assert_eq!(found, expected, "{number} {arguments:x?}");
                    assert!(steps < 40, "{number} takes {steps} steps");
                }
            }
            let kill = Answer::Kill.code();
            assert_eq!(run(&program, THIS_PROCESSOR ^ 1, 1, [0; 6]).0, kill);
            // Of the other interface of this processor.
            assert_eq!(
                run(&program, THIS_PROCESSOR, 0x4000_0001, [0; 6]).0,
                default.code()
            );
        }
    }
}
