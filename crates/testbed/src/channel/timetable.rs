//! Describes the rate of a link as steps in time, and computes when a transmission ends.

use std::time::Duration;

/// Rates, each from a moment on. At rate 0 nothing passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timetable {
    /// The beginning of each step in nanoseconds, and its rate in bits per second. The first step begins at 0.
    steps: Vec<(u64, u64)>,
}

impl Timetable {
    /// The same rate for ever.
    pub fn constant(bits_per_second: u64) -> Self {
        Self { steps: vec![(0, bits_per_second)] }
    }

    /// The rate `first`, then each rate of `changes` from its moment on. The order does not matter, except
    /// that of two rates at the same moment, the later in the list counts.
    pub fn new(first: u64, changes: impl IntoIterator<Item = (Duration, u64)>) -> Self {
        let mut steps = vec![(0, first)];
        steps.extend(changes.into_iter().map(|(at, rate)| (at.as_nanos() as u64, rate)));
        steps.sort_by_key(|(at, _)| *at);
        let mut kept: Vec<(u64, u64)> = Vec::with_capacity(steps.len());
        for step in steps {
            kept.pop_if(|before| before.0 == step.0);
            if kept.last().is_none_or(|before| before.1 != step.1) {
                kept.push(step);
            }
        }
        Self { steps: kept }
    }

    /// Bits per second at a moment, in nanoseconds since the beginning.
    pub fn rate_at(&self, at_ns: u64) -> u64 {
        self.steps[self.step_at(at_ns)].1
    }

    /// All rates, each with the time of its beginning.
    pub fn steps(&self) -> impl Iterator<Item = (Duration, u64)> {
        self.steps.iter().map(|(at, rate)| (Duration::from_nanos(*at), *rate))
    }

    /// When a transmission of `bits` that begins at `from_ns` ends, in nanoseconds since the beginning. `None`: never.
    pub fn end(&self, from_ns: u64, bits: u64) -> Option<u64> {
        let (mut at, mut left) = (u128::from(from_ns), u128::from(bits) * 1_000_000_000);
        for index in self.step_at(from_ns).. {
            let rate = u128::from(self.steps[index].1);
            let until = self.steps.get(index + 1).map(|(until, _)| u128::from(*until));
            let carried = until.map(|until| (until - at) * rate);
            match (until, carried) {
                (Some(until), Some(carried)) if carried < left => (at, left) = (until, left - carried),
                _ if rate == 0 => return (left == 0).then_some(at as u64),
                _ => return Some((at + left.div_ceil(rate)) as u64),
            }
        }
        None
    }

    fn step_at(&self, at_ns: u64) -> usize {
        self.steps.partition_point(|(from, _)| *from <= at_ns).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{ms, secs};

    const MS: u64 = 1_000_000;

    #[test]
    fn what_begins_before_a_change_ends_at_both_rates() {
        // 1 Mbit/s, nothing from 10 to 30 ms, then 2 Mbit/s.
        let timetable = Timetable::new(1_000_000, [(ms(30), 2_000_000), (ms(10), 0)]);
        assert_eq!(timetable.end(0, 5_000), Some(5 * MS));
        assert_eq!(timetable.end(5 * MS, 5_000), Some(10 * MS));
        assert_eq!(timetable.end(5 * MS, 6_000), Some(30 * MS + MS / 2));
        assert_eq!(timetable.end(20 * MS, 2_000), Some(31 * MS));
        assert_eq!([9, 10, 29, 30].map(|at| timetable.rate_at(at * MS)), [1_000_000, 0, 0, 2_000_000]);
    }

    #[test]
    fn a_link_that_is_cut_for_good_carries_nothing() {
        let timetable = Timetable::new(8, [(secs(1), 0)]);
        assert_eq!(timetable.end(0, 8), Some(1_000_000_000));
        assert_eq!(timetable.end(0, 9), None);
    }

    #[test]
    fn the_last_word_on_a_moment_counts() {
        assert_eq!(Timetable::new(5, [(ms(0), 7), (ms(1), 7)]), Timetable::constant(7));
    }
}
