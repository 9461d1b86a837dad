//! The bindings of crate `wasi`: arguments and answers lie in slots.

use crate::{
    plan::{Imported, Plan, Slot, slot},
    types,
};
use std::time::Instant;
use wasi::{Command, Errno, Poll, Stop, ValueType};

/// What became of a host call.
pub(crate) enum Answer {
    /// It is in the first slot, if there is any.
    Given,
    /// The same call is to be made again at this time; earlier is harmless.
    Wait(Instant),
    Stop(Stop),
}

/// A host function over the guest's memory and its slots, of which there are as many as it has parameters, and one at least.
pub(crate) type HostFunction = fn(&mut Command, &mut [u8], &mut [Slot]) -> Answer;

/// Of each import, in their order: the function, and how many slots it has.
pub(crate) type HostFunctions = Box<[(HostFunction, usize)]>;

trait Parameter {
    fn take(slot: &Slot) -> Self;
}

impl Parameter for u32 {
    fn take(slot: &Slot) -> Self {
        let [a, b, c, d, ..] = *slot;
        Self::from_le_bytes([a, b, c, d])
    }
}

impl Parameter for u64 {
    fn take(slot: &Slot) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *slot;
        Self::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

fn give(slots: &mut [Slot], answer: Result<Errno, Stop>) -> Answer {
    match answer {
        Ok(errno) => {
            slots[0] = slot(&u32::from(errno.0).to_le_bytes());
            Answer::Given
        }
        Err(stop) => Answer::Stop(stop),
    }
}

macro_rules! bind {
    (
        answers { $($answers:ident($($a:ident: $at:ty),*);)* }
        waits { $($waits:ident($($w:ident: $wt:ty),*);)* }
        ends { $($ends:ident($($e:ident: $et:ty),*);)* }
    ) => {
        /// By its name.
        fn find(name: &str) -> Option<HostFunction> {
            Some(match name {
                $(stringify!($answers) => |command, memory, slots| {
                    let mut parameters = slots.iter();
                    $(let $a = <$at>::take(parameters.next().unwrap_or(&NONE));)*
                    let _ = &mut parameters;
                    let answer = wasi::$answers(command, memory, $($a),*);
                    give(slots, answer)
                },)*
                $(stringify!($waits) => |command, memory, slots| {
                    let mut parameters = slots.iter();
                    $(let $w = <$wt>::take(parameters.next().unwrap_or(&NONE));)*
                    match wasi::$waits(command, memory, $($w),*) {
                        Ok(Poll::Until(moment)) => Answer::Wait(moment),
                        Ok(Poll::Ready(errno)) => give(slots, Ok(errno)),
                        Err(stop) => Answer::Stop(stop),
                    }
                },)*
                $(stringify!($ends) => |command, memory, slots| {
                    let mut parameters = slots.iter();
                    $(let $e = <$et>::take(parameters.next().unwrap_or(&NONE));)*
                    Answer::Stop(wasi::$ends(command, memory, $($e),*))
                },)*
                _ => return None,
            })
        }
    };
}
const NONE: Slot = [0; 16];
wasi::for_each_function!(bind);

/// Each import's function and how many slots it has, or why this is no command of WASI 0.1.
pub(crate) fn link(plan: &Plan) -> Result<HostFunctions, String> {
    // As long as imports are functions, the place of each is its index.
    let functions = (0..).zip(&plan.imports).map(|(place, import)| {
        let name = format!("{}.{}", import.module, import.name);
        if *import.module != *wasi::MODULE {
            return Err(format!(
                "it imports `{name}`; a WASI 0.1 command imports from `{}` only",
                wasi::MODULE
            ));
        }
        let Imported::Function = import.kind else {
            return Err(format!(
                "it imports `{name}`, which is a function there and nothing else"
            ));
        };
        let kind = plan.type_of(place);
        let (Some(known), Some(function)) = (wasi::function(&import.name), find(&import.name)) else {
            return Err(format!("it imports `{name}`, which WASI 0.1 does not have"));
        };
        let parameters: Vec<_> = known.parameters.iter().copied().map(value).collect();
        let result: Vec<_> = known.result.into_iter().map(value).collect();
        if *kind.parameters != *parameters || *kind.results != *result {
            return Err(format!(
                "it imports `{name}` as {kind}, which is not its type in WASI 0.1"
            ));
        }
        Ok((function, parameters.len().max(1)))
    });
    functions.collect()
}

fn value(of: ValueType) -> types::ValueType {
    match of {
        ValueType::I32 => types::ValueType::I32,
        ValueType::I64 => types::ValueType::I64,
    }
}
