//! Provides the only source of random numbers in a world.

use std::ops::RangeInclusive;
use std::time::Duration;

/// SplitMix64: G. Steele, D. Lea and C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. Its 64 bits of state are enough here.
/// Its numbers are the same on every machine, and it can be split.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that is determined by `seed`.
    pub const fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// An independent generator. A part of a world can draw more from its own without changing what other parts draw.
    pub fn split(&mut self) -> Self {
        Self::seeded(self.next_u64())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform whole number of `range`, with a bias below 2⁻³² for ranges below 2³².
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let span = u128::from(range.end() - range.start()) + 1;
        range.start() + ((u128::from(self.next_u64()) * span) >> 64) as u64
    }

    /// A uniform duration of `range`, in whole nanoseconds.
    pub fn duration(&mut self, range: RangeInclusive<Duration>) -> Duration {
        Duration::from_nanos(self.within(range.start().as_nanos() as u64..=range.end().as_nanos() as u64))
    }

    /// True with probability 1/`n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.within(1..=n) == 1
    }

    /// A uniform choice from `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.within(0..=choices.len() as u64 - 1) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the published numbers for the seed 1234567.
    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        let mut random = Random::seeded(1_234_567);
        let first: Vec<u64> = (0..5).map(|_| random.next_u64()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn draws_stay_within_their_range_and_reach_its_ends() {
        let mut random = Random::seeded(1);
        let draws: Vec<u64> = (0..1000).map(|_| random.within(3..=7)).collect();
        assert!(draws.iter().all(|draw| (3..=7).contains(draw)));
        assert!(draws.contains(&3) && draws.contains(&7));
    }
}
