//! Limits how many bytes of the past each principal may read per second (a token bucket).
//!
//! Reads of the past are as fast as disk, link and application allow. Without a limit, one principal could take
//! the whole disk of an edge, or the whole link of a camera. So each principal has an allowance: a rate in bytes
//! per second, with a burst of one second. A reading that has used up its allowance waits. No frame is lost.

use std::time::Duration;

use crate::units::Instant;

/// The burst: how much of its allowance a principal may use at once, in time.
const IN_ADVANCE: Duration = Duration::from_secs(1);

/// The allowances of all principals that read the past recently.
#[derive(Debug)]
pub struct Allowances<P> {
    bytes_per_second: Option<u64>,
    /// For each principal, the time up to which its allowance is used. The principal waits until this time.
    used: Vec<(P, Instant)>,
}

impl<P: Clone + PartialEq> Allowances<P> {
    /// Each principal may read `bytes_per_second`. `None`: no limit.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, used: Vec::new() }
    }

    /// Sets another allowance. If it differs, everything read before is forgiven.
    pub fn set(&mut self, bytes_per_second: Option<u64>) {
        if self.bytes_per_second != bytes_per_second {
            *self = Self::new(bytes_per_second);
        }
    }

    /// When a principal may read its next frame. `None`: now.
    pub fn due(&self, now: Instant, principal: &P) -> Option<Instant> {
        let (_, until) = self.used.iter().find(|(owner, _)| owner == principal)?;
        Some(*until).filter(|until| *until > now)
    }

    /// Counts `bytes` of the past that a principal has read.
    pub fn handle_read(&mut self, now: Instant, principal: &P, bytes: u64) {
        let Some(rate) = self.bytes_per_second else { return };
        // A principal with a full allowance needs no entry.
        let whole = now - IN_ADVANCE;
        self.used.retain(|(_, until)| *until > whole);
        let takes = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        match self.used.iter_mut().find(|(owner, _)| owner == principal) {
            Some((_, until)) => *until += takes,
            None => self.used.push((principal.clone(), whole + takes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(100) + Duration::from_millis(ms)
    }

    #[test]
    fn who_has_used_its_allowance_waits_and_others_do_not() {
        let mut all = Allowances::new(Some(1_000));
        for _ in 0..10 {
            assert_eq!(all.due(at(0), &'a'), None);
            all.handle_read(at(0), &'a', 100);
        }
        assert_eq!(all.due(at(0), &'a'), None, "a second's worth may go at once");
        all.handle_read(at(0), &'a', 500);
        assert_eq!(all.due(at(0), &'a'), Some(at(500)));
        assert_eq!(all.due(at(0), &'b'), None);
        assert_eq!(all.due(at(500), &'a'), None);
        all.handle_read(at(5_000), &'b', 1);
        assert_eq!(all.used.len(), 1, "who reads no more is forgotten");
        all.set(None);
        all.handle_read(at(5_000), &'a', 1 << 40);
        assert_eq!(all.due(at(5_000), &'a'), None, "without a limit nothing is counted");
    }

    proptest! {
        /// A principal that reads as soon as it may gets at most its rate, a burst of one second, and the last frame.
        #[test]
        fn no_more_is_read_than_is_allowed(
            rate in 1_u64..10_000,
            frames in proptest::collection::vec((1_u64..5_000, 0_u64..2_000), 1..100),
        ) {
            let mut all = Allowances::new(Some(rate));
            let (mut now, mut read) = (at(0), 0.0);
            for (bytes, pause) in frames {
                now += Duration::from_millis(pause);
                now = all.due(now, &'a').unwrap_or(now);
                let allowed = rate as f64 * (now.saturating_since(at(0)).as_secs_f64() + 1.0);
                prop_assert!(read <= allowed + 1.0, "{read} of {allowed}");
                all.handle_read(now, &'a', bytes);
                read += bytes as f64;
            }
        }
    }
}
