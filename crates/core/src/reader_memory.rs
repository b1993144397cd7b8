//! Bounds the memory that a broker holds for readers that have not taken their frames yet.
//!
//! A broker holds a frame until the reader has its last byte, even after the log evicted it. The log counts this memory, so stalled readers
//! could leave the log no room for new frames. Frames made or fetched for one reader are in no log's budget. So every such frame needs a
//! share, within the bounds of its log, its principal and the broker. A reader that gets no share continues with the frames that the log
//! still has. A reader that makes no progress for [`ReaderMemoryLimits::patience`] loses its share as soon as another reader needs it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::units::Instant;

/// Readers may hold one part in this many of a log's budget, in frames that the log has evicted: a quarter.
/// Three quarters always stay for new frames.
pub const PART_OF_LOG: u64 = 4;

/// Bounds on the memory held for readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderMemoryLimits {
    /// Bytes held for all readers together. Default 16 MiB.
    pub bytes_max: u64,
    /// Bytes held for the readers of one principal. Default 8 MiB.
    pub principal_bytes_max: u64,
    /// A reader that makes no progress for this long loses its share when another one needs it. Default 5 s.
    pub patience: Duration,
}

impl Default for ReaderMemoryLimits {
    fn default() -> Self {
        Self { bytes_max: 16 << 20, principal_bytes_max: 8 << 20, patience: Duration::from_secs(5) }
    }
}

/// A log whose budget is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogShare {
    /// Identifies the log.
    pub log: usize,
    /// The log's budget in bytes.
    pub bytes_max: u64,
}

/// A request for a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked<P> {
    /// The principal that the reader belongs to.
    pub principal: P,
    /// The log that counts the memory; `None` if no log does.
    pub log: Option<LogShare>,
    /// The bytes of the frame.
    pub bytes: u64,
}

/// Identifies a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareId(u64);

/// The answer to a request for a share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The share, if there was room.
    pub share: Option<ShareId>,
    /// Shares that were taken away, because they made no progress for too long. Their memory must be freed
    /// now.
    pub lost: Vec<ShareId>,
}

struct Share<P> {
    asked: Asked<P>,
    progressed: Instant,
}

/// All shares. There are at most as many as readers.
pub struct ReaderMemory<P> {
    limits: ReaderMemoryLimits,
    shares: BTreeMap<ShareId, Share<P>>,
    next: u64,
}

impl<P: PartialEq> ReaderMemory<P> {
    /// An account without shares.
    pub fn new(limits: ReaderMemoryLimits) -> Self {
        Self { limits, shares: BTreeMap::new(), next: 0 }
    }

    /// Sets other bounds. Shares that were granted stay, even beyond the bounds.
    pub fn set_limits(&mut self, limits: ReaderMemoryLimits) {
        self.limits = limits;
    }

    /// Requests a share. Shares that made no progress for too long may be taken away for it. If a principal has no
    /// other share, or the broker has none, the share may exceed that bound, because a single frame can be larger.
    pub fn take(&mut self, now: Instant, asked: Asked<P>) -> Granted {
        let mut lost = Vec::new();
        let ReaderMemoryLimits { bytes_max, principal_bytes_max, .. } = self.limits;
        let Asked { principal, log, bytes } = &asked;
        let fits = log.is_none_or(|log| {
            let of_log = |share: &Share<P>| share.asked.log.is_some_and(|other| other.log == log.log);
            self.make_room(now, *bytes, (log.bytes_max / PART_OF_LOG, false), of_log, &mut lost)
        }) && {
            let of_principal = |share: &Share<P>| share.asked.principal == *principal;
            self.make_room(now, *bytes, (principal_bytes_max, true), of_principal, &mut lost)
        } && self.make_room(now, *bytes, (bytes_max, true), |_| true, &mut lost);
        let bytes = *bytes;
        let share = fits.then(|| {
            // A frame that is larger than the bound is held alone.
            let held = self.bytes();
            debug_assert!(held == 0 || held + bytes <= bytes_max, "{bytes} bytes are granted beside {held}");
            self.next += 1;
            let id = ShareId(self.next);
            self.shares.insert(id, Share { asked, progressed: now });
            id
        });
        Granted { share, lost }
    }

    /// The reader took some of the share's bytes.
    pub fn handle_progress(&mut self, now: Instant, id: ShareId) {
        if let Some(share) = self.shares.get_mut(&id) {
            share.progressed = now;
        }
    }

    /// Corrects the size of a share that was requested with an estimate.
    pub fn resize(&mut self, id: ShareId, bytes: u64) {
        if let Some(share) = self.shares.get_mut(&id) {
            share.asked.bytes = bytes;
        }
    }

    /// Returns a share: the reader has the whole frame, or no longer wants it.
    pub fn give_back(&mut self, id: ShareId) {
        self.shares.remove(&id);
    }

    /// When the first share becomes overdue, so that it may be taken away.
    pub fn next_overdue(&self) -> Option<Instant> {
        self.shares.values().map(|share| share.progressed + self.limits.patience).min()
    }

    /// The bytes of all shares.
    pub fn bytes(&self) -> u64 {
        self.shares.values().map(|share| share.asked.bytes).sum()
    }

    /// Makes room for `bytes` beside the shares that `counts` selects. Returns whether there is room.
    fn make_room(
        &mut self,
        now: Instant,
        bytes: u64,
        (bytes_max, alone_may_be_larger): (u64, bool),
        counts: impl Fn(&Share<P>) -> bool,
        lost: &mut Vec<ShareId>,
    ) -> bool {
        loop {
            let counted = self.shares.iter().filter(|(_, share)| counts(share));
            let held: u64 = counted.clone().map(|(_, share)| share.asked.bytes).sum();
            if held + bytes <= bytes_max || held == 0 && alone_may_be_larger {
                return true;
            }
            let overdue = counted
                .filter(|(_, share)| share.progressed + self.limits.patience <= now && share.asked.bytes > 0);
            let Some((&id, _)) = overdue.min_by_key(|(_, share)| share.progressed) else { return false };
            self.shares.remove(&id);
            lost.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: ReaderMemoryLimits =
        ReaderMemoryLimits { bytes_max: 1_000, principal_bytes_max: 500, patience: Duration::from_secs(5) };

    fn own(principal: u8, bytes: u64) -> Asked<u8> {
        Asked { principal, log: None, bytes }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// However many readers of one principal are stalled, readers of another principal get their share.
    #[test]
    fn one_principal_leaves_room_for_others() {
        let mut memory = ReaderMemory::new(LIMITS);
        let of_one = (0..100).filter(|_| memory.take(at(0), own(1, 100)).share.is_some()).count();
        assert_eq!(of_one, 5);
        assert!(memory.take(at(0), own(2, 400)).share.is_some());
    }

    /// A stalled reader loses its share, but only if another reader needs it. A reader that makes progress keeps its share.
    #[test]
    fn those_who_stand_still_make_room() {
        let mut memory = ReaderMemory::new(LIMITS);
        let still = memory.take(at(0), own(1, 250)).share.unwrap();
        let moves = memory.take(at(0), own(1, 250)).share.unwrap();
        memory.handle_progress(at(4), moves);
        assert_eq!(memory.take(at(4), own(1, 100)), Granted::default());
        let granted = memory.take(at(5), own(1, 100));
        assert!(granted.share.is_some());
        assert_eq!(granted.lost, [still]);
        assert_eq!(memory.take(at(5), own(1, 300)), Granted::default(), "the other one has made progress");
    }

    #[test]
    fn a_frame_that_is_alone_may_be_larger_than_the_bound_but_no_part_of_a_log_is() {
        let mut memory = ReaderMemory::new(LIMITS);
        let large = memory.take(at(0), own(1, 5_000)).share.unwrap();
        assert_eq!(memory.take(at(0), own(1, 1)).share, None);
        assert_eq!(memory.take(at(0), own(2, 1)).share, None);
        memory.give_back(large);
        let log = Some(LogShare { log: 7, bytes_max: 400 });
        assert_eq!(memory.take(at(0), Asked { log, ..own(1, 101) }).share, None);
        assert!(memory.take(at(0), Asked { log, ..own(1, 100) }).share.is_some());
        assert_eq!(memory.take(at(0), Asked { log, ..own(2, 1) }).share, None);
        let other = Some(LogShare { log: 8, bytes_max: 400 });
        assert!(memory.take(at(0), Asked { log: other, ..own(2, 1) }).share.is_some());
    }

    proptest! {
        /// For any requests at any times, the bytes held stay within every bound, and lost shares are not counted.
        #[test]
        fn what_is_held_stays_within_its_bounds(
            steps in proptest::collection::vec((0u8..4, 0usize..3, 1u64..400, 0u64..4, any::<bool>()), 1..200),
        ) {
            let mut memory = ReaderMemory::new(LIMITS);
            let mut held: BTreeMap<ShareId, (u8, usize, u64)> = BTreeMap::new();
            let mut now = 0;
            for (principal, log, bytes, later, gives_back) in steps {
                now += later;
                let share = (log > 0).then_some(LogShare { log, bytes_max: 1_200 });
                let granted = memory.take(at(now), Asked { principal, log: share, bytes });
                for lost in granted.lost {
                    prop_assert!(held.remove(&lost).is_some());
                }
                if let Some(id) = granted.share {
                    held.insert(id, (principal, log, bytes));
                }
                let sum = |counts: &dyn Fn(&(u8, usize, u64)) -> bool| -> u64 {
                    held.values().filter(|share| counts(share)).map(|share| share.2).sum()
                };
                prop_assert_eq!(memory.bytes(), sum(&|_| true));
                prop_assert!(sum(&|_| true) <= LIMITS.bytes_max);
                for principal in 0..4 {
                    prop_assert!(sum(&|share| share.0 == principal) <= LIMITS.principal_bytes_max);
                }
                for log in 1..3 {
                    prop_assert!(sum(&|share| share.1 == log) <= 1_200 / PART_OF_LOG);
                }
                if gives_back && let Some((id, _)) = held.pop_first() {
                    memory.give_back(id);
                }
            }
        }
    }
}
