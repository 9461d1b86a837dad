//! What the guest `work` computes, for those who compare answers.

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds.
    rounds: u64,
}

/// Writes the answer, as it is.
pub(crate) fn run(options: &Options) {
    println!("{:08x}", state(options.rounds));
}

/// As in `tests/guests/work.c`.
pub(crate) fn state(rounds: u64) -> u32 {
    (0..rounds).fold(2_463_534_242, |mut state: u32, _| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^ state << 5
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn marsaglias_generator_begins_as_in_his_paper() {
        assert_eq!(super::state(1), 723_471_715);
    }
}
