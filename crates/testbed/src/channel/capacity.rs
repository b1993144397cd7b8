//! Holds what a link can carry, millisecond by millisecond, and computes when a given byte has passed.

use mez_core::units::Instant;

const NANOS_PER_MS: u64 = 1_000_000;

/// The future of a link: how many bytes it can carry in each millisecond.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// Total bytes that can have passed by the beginning of each millisecond, and by the end of the last.
    passed: Vec<f64>,
}

impl Capacity {
    /// A link that carries this many bytes in each millisecond.
    pub fn new(bytes_per_ms: impl IntoIterator<Item = f64>) -> Self {
        let mut passed = vec![0.0];
        let mut total = 0.0;
        for bytes in bytes_per_ms {
            total += bytes.max(0.0);
            passed.push(total);
        }
        Self { passed }
    }

    /// A link of `ms` milliseconds. Each step gives a first millisecond and the bytes in each millisecond
    /// from there on, in order. Before the first step nothing passes.
    pub fn of_steps(ms: usize, steps: &[(usize, f64)]) -> Self {
        let rate =
            |ms: usize| steps.iter().rev().find(|(from, _)| ms >= *from).map_or(0.0, |(_, bytes)| *bytes);
        Self::new((0..ms).map(rate))
    }

    /// A link that carries `factor` times as many bytes.
    pub fn times(&self, factor: f64) -> Self {
        Self { passed: self.passed.iter().map(|bytes| bytes * factor).collect() }
    }

    /// The length of the known future, in milliseconds.
    pub fn ms(&self) -> usize {
        self.passed.len() - 1
    }

    /// Bytes that can have passed between 0 and `at`.
    pub fn passed(&self, at: Instant) -> f64 {
        let (ms, rest) = (at.as_nanos() / NANOS_PER_MS, at.as_nanos() % NANOS_PER_MS);
        let Some([begin, end]) = self.passed.get(ms as usize..).and_then(|rest| rest.first_chunk::<2>())
        else {
            return self.total();
        };
        begin + (end - begin) * rest as f64 / NANOS_PER_MS as f64
    }

    /// When `bytes` can have passed, counted from 0. `None` if the known future carries fewer.
    pub fn when(&self, bytes: f64) -> Option<Instant> {
        let end = self.passed.partition_point(|passed| *passed < bytes);
        if end == 0 {
            return Some(Instant::ZERO);
        }
        let (before, after) = (self.passed[end - 1], *self.passed.get(end)?);
        let part = (bytes - before) / (after - before);
        let nanos = (end - 1) as u64 * NANOS_PER_MS + (part * NANOS_PER_MS as f64).ceil() as u64;
        Some(Instant::from_nanos(nanos))
    }

    /// The total bytes of the known future.
    pub fn total(&self) -> f64 {
        self.passed[self.passed.len() - 1]
    }

    /// Bytes that pass in one millisecond.
    pub fn at_ms(&self, ms: usize) -> f64 {
        self.passed[ms + 1] - self.passed[ms]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_hold_from_their_moment_on() {
        let bytes = [0.0, 3.0, 3.0, 1.0];
        assert_eq!(Capacity::of_steps(4, &[(1, 3.0), (3, 1.0)]), Capacity::new(bytes));
    }

    #[test]
    fn what_passes_by_an_instant_passes_no_later() {
        let capacity = Capacity::new([10.0, 0.0, 0.5, 30.0]);
        assert_eq!(capacity.when(0.0), Some(Instant::ZERO));
        assert_eq!(capacity.when(5.0), Some(Instant::from_nanos(500_000)));
        // Nothing passes in the second millisecond.
        assert_eq!(capacity.when(10.25), Some(Instant::from_nanos(2_500_000)));
        assert_eq!(capacity.when(41.0), None);
        for bytes in [0.1, 9.9, 10.0, 10.1, 25.5, 40.5] {
            let at = capacity.when(bytes).expect("within the known future");
            assert!((capacity.passed(at) - bytes).abs() < 1e-4, "{bytes} bytes by {at:?}");
        }
    }
}
