//! Instructions by which equal inputs could make unequal runs, found in the code of a pure function before it runs.
//!
//! `rdrand` and `rdseed` give random numbers, `rdpid` the number of the core. No setting of a thread's has them fault, as reading the clock does, so code
//! that has them is refused. What can be run is never written to, and all of it is looked at, at each byte: where instructions begin is for the code to say, and it may
//! jump into the middle of one. So data among the code, or parts of other instructions, may look like them: about one in a million bytes does by chance.
//!
//! What tells processors apart (`cpuid`) is not looked for: compilers' libraries use it to choose among code for several.

use std::fmt;

/// What was found, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    name: &'static str,
    at: u64,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, at } = self;
        write!(
            f,
            "it has the instruction `{name}` at {at:#x}, whose result its inputs do not decide: leave out what asks the processor for random numbers \
             or for its number (`_rdrand64_step`, `std::random_device`). Data among the code, or parts of other instructions, can look like it: keep data out of \
             sections of code, or try another optimisation level"
        )
    }
}

/// The first of them in code that begins at an address.
pub(crate) fn find(code: &[u8], address: u64) -> Option<Found> {
    let at = |index: usize| address + index as u64;
    code.array_windows::<3>()
        .enumerate()
        .find_map(|(index, [first, second, third])| {
            // Prefixes come before, with but one exception: APX has one in place of the first byte, whose highest bit stands for it.
            let begins = *first == 0x0f || (*first & 0x80 != 0 && index > 0 && code[index - 1] == 0xd5);
            if !begins || *second != 0xc7 {
                return None;
            }
            // Of a memory operand's the two highest bits are not both 1, and it is another instruction.
            let name = match third {
                0xf0..=0xf7 => "rdrand",
                // With the prefix F3 `rdpid`, which may stand before others.
                0xf8..=0xff => {
                    let prefixes = code[..index].iter().rev().take(14);
                    match prefixes
                        .take_while(|byte| is_prefix(**byte))
                        .any(|byte| *byte == 0xf3)
                    {
                        true => "rdpid",
                        false => "rdseed",
                    }
                }
                _ => return None,
            };
            Some(Found { name, at: at(index) })
        })
}

fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xd5 | 0xf0 | 0xf2 | 0xf3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(code: &[u8]) -> Option<(&'static str, u64)> {
        find(code, 0x1000).map(|found| (found.name, found.at))
    }

    #[test]
    fn instructions_are_found_by_name() {
        for (code, name, at) in [
            // rdrand eax; rax; ax; r15
            (&[0x0f, 0xc7, 0xf0][..], "rdrand", 0x1000),
            (&[0x48, 0x0f, 0xc7, 0xf0], "rdrand", 0x1001),
            (&[0x66, 0x0f, 0xc7, 0xf7], "rdrand", 0x1001),
            (&[0x49, 0x0f, 0xc7, 0xf7], "rdrand", 0x1001),
            // rdseed eax; rdi
            (&[0x0f, 0xc7, 0xf8], "rdseed", 0x1000),
            (&[0x48, 0x0f, 0xc7, 0xff], "rdseed", 0x1001),
            // rdpid rax; r8
            (&[0xf3, 0x0f, 0xc7, 0xf8], "rdpid", 0x1001),
            (&[0xf3, 0x41, 0x0f, 0xc7, 0xf8], "rdpid", 0x1002),
            // rdrand r16, of APX
            (&[0xd5, 0x90, 0xc7, 0xf0], "rdrand", 0x1001),
            // In the middle of mov eax, 0xf0c70f90
            (&[0xb8, 0x90, 0x0f, 0xc7, 0xf0], "rdrand", 0x1002),
        ] {
            assert_eq!(named(code), Some((name, at)), "{code:x?}");
        }
    }

    #[test]
    fn others_are_not_taken_for_them() {
        for code in [
            // cmpxchg8b [rax]; [rdi + rbp]; cmpxchg16b [rsp]
            &[0x0f, 0xc7, 0x08][..],
            &[0x0f, 0xc7, 0x4c, 0x3d, 0xf0],
            &[0x48, 0x0f, 0xc7, 0x0c, 0x24],
            // xsavec [rax]; vmptrld [rax]
            &[0x0f, 0xc7, 0x20],
            &[0x0f, 0xc7, 0x30],
            // cut off
            &[0x0f, 0xc7],
            &[0xc7, 0xf0],
            // of the first map, with a prefix of APX
            &[0xd5, 0x10, 0xc7, 0xf0],
            &[],
        ] {
            assert_eq!(named(code), None, "{code:x?}");
        }
    }

    #[test]
    fn a_refusal_says_what_where_and_what_to_do() {
        let text = find(&[0x0f, 0xc7, 0xf0], 0x40_1000).unwrap().to_string();
        for part in ["`rdrand`", "0x401000", "leave out"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
