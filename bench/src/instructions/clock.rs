//! The clock of a thread that is stepped through.
//!
//! Each of its instructions takes some microseconds then, so to the thread each request would take very long: it would meet
//! deadlines, write another date, and say so in other words. So what its readings of the clock give is replaced: an instruction takes a
//! nanosecond. A reading itself begins anew when the kernel changes what it reads, so each counts as many instructions as the shortest of its
//! kind.

use super::Registers;
use anyhow::{Context, Result};
use object::{Object as _, ObjectSymbol as _};
use std::{
    collections::HashMap,
    fs::{self, File},
    ops::Range,
    os::unix::fs::FileExt as _,
    time::Duration,
};

/// `clock_gettime` of the page that the kernel maps into each process: vdso(7).
const NAME: &str = "__vdso_clock_gettime";

pub(super) struct Clock {
    /// Where the function begins.
    reads: u64,
    memory: File,
    /// What a clock (`clockid_t`) said at first, and after how many steps.
    first: HashMap<u64, (Duration, usize)>,
    now: Option<Reading>,
    past: Vec<(u64, Range<usize>)>,
}

/// One that has begun.
struct Reading {
    clock: u64,
    /// Where its result goes.
    to: u64,
    /// The address to which it returns, and the stack then.
    back: (u64, u64),
    begun: usize,
}

impl Clock {
    pub(super) fn of(process: u32) -> Result<Self> {
        let memory = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{process}/mem"))?;
        let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
        let range = maps
            .lines()
            .find(|line| line.ends_with("[vdso]"))
            .and_then(|line| line.split_whitespace().next()?.split_once('-'))
            .context("the kernel maps no vdso")?;
        let (from, to) = (
            u64::from_str_radix(range.0, 16)?,
            u64::from_str_radix(range.1, 16)?,
        );
        let mut page = vec![0; usize::try_from(to - from)?];
        memory.read_exact_at(&mut page, from)?;
        let file = object::File::parse(&*page).context("the vdso is no ELF file")?;
        let symbol = file
            .dynamic_symbols()
            .find(|symbol| symbol.name() == Ok(NAME))
            .with_context(|| format!("the vdso has no {NAME}"))?;
        Ok(Self {
            reads: from + symbol.address(),
            memory,
            first: HashMap::new(),
            now: None,
            past: Vec::new(),
        })
    }

    /// The thread is here, after so many steps.
    pub(super) fn watch(&mut self, here: &Registers, steps: usize) -> Result<()> {
        if here.rip == self.reads {
            let mut back = [0; 8];
            self.memory.read_exact_at(&mut back, here.rsp)?;
            self.now = Some(Reading {
                clock: here.rdi,
                to: here.rsi,
                back: (u64::from_ne_bytes(back), here.rsp + 8),
                begun: steps,
            });
        } else if let Some(reading) = self.now.take_if(|reading| reading.back == (here.rip, here.rsp)) {
            self.replace(&reading, steps)?;
            self.past.push((reading.clock, reading.begun..steps));
        }
        Ok(())
    }

    /// A `timespec`: seconds and nanoseconds, each of eight bytes.
    fn replace(&mut self, reading: &Reading, steps: usize) -> Result<()> {
        let mut result = [[0; 8]; 2];
        self.memory.read_exact_at(result.as_flattened_mut(), reading.to)?;
        let [seconds, nanoseconds] = result.map(u64::from_ne_bytes);
        let real = Duration::new(seconds, u32::try_from(nanoseconds)?);
        let (said, then) = *self.first.entry(reading.clock).or_insert((real, steps));
        let time = said + Duration::from_nanos((steps - then) as u64);
        let result = [time.as_secs(), time.subsec_nanos().into()].map(u64::to_ne_bytes);
        Ok(self.memory.write_all_at(result.as_flattened(), reading.to)?)
    }

    /// The steps without those that only came of a change of the clock meanwhile.
    pub(super) fn without_repeats<T>(&self, steps: Vec<T>) -> Vec<T> {
        let mut shortest = HashMap::new();
        for (clock, range) in &self.past {
            let least = shortest.entry(clock).or_insert(range.len());
            *least = range.len().min(*least);
        }
        let mut steps: Vec<_> = steps.into_iter().map(Some).collect();
        for (clock, range) in &self.past {
            steps[range.start + shortest[clock]..range.end].fill_with(|| None);
        }
        steps.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONOTONIC: u64 = 1;

    /// A reading by this thread that the kernel answers with so many seconds.
    fn read(clock: &mut Clock, steps: Range<usize>, seconds: u64) -> Duration {
        let back = 4711_u64;
        let mut time = [seconds, 5];
        // SAFETY: plain numbers, all of which may be zero.
        #[expect(unsafe_code, reason = "the structure is libc's")]
        let mut here: Registers = unsafe { std::mem::zeroed() };
        (here.rip, here.rsp, here.rdi) = (
            clock.reads,
            (&raw const back).expose_provenance() as u64,
            MONOTONIC,
        );
        here.rsi = time.as_mut_ptr().expose_provenance() as u64;
        clock.watch(&here, steps.start).unwrap();
        // Somewhere within, at the same place of the stack.
        (here.rip, here.rsp) = (clock.reads + 1, here.rsp + 8);
        clock.watch(&here, steps.start + 1).unwrap();
        here.rip = back;
        clock.watch(&here, steps.end).unwrap();
        let [seconds, nanoseconds] = std::hint::black_box(time);
        Duration::new(seconds, nanoseconds.try_into().unwrap())
    }

    #[test]
    fn a_step_takes_a_nanosecond_however_long_it_took() {
        let mut clock = Clock::of(std::process::id()).unwrap();
        assert_eq!(read(&mut clock, 0..10, 100), Duration::new(100, 5));
        assert_eq!(read(&mut clock, 90..110, 200), Duration::new(100, 105));
        assert_eq!(read(&mut clock, 1000..1010, 200), Duration::new(100, 1005));
    }

    #[test]
    fn all_readings_take_as_long_as_the_shortest() {
        let mut clock = Clock::of(std::process::id()).unwrap();
        read(&mut clock, 2..5, 1);
        read(&mut clock, 6..12, 1);
        let steps: Vec<_> = (0..14).collect();
        assert_eq!(clock.without_repeats(steps), [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13]);
    }
}
