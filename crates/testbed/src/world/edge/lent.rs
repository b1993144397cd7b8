//! Counts the memory that an edge holds for applications that are stalled in the middle of a frame, as the edge's driver does.

use std::collections::BTreeMap;

use bytes::Bytes;
use mez_core::frame::FrameId;
use mez_core::log::LogReader;
use mez_core::reader_memory::{Asked, LogShare, PART_OF_LOG, ReaderMemory, ReaderMemoryLimits, ShareId};
use mez_core::units::Instant;

use crate::world::bug::Bug;

/// The number of principals to which the applications belong.
const PRINCIPALS: usize = 3;

/// The memory that one edge process holds.
pub(in crate::world) struct Lent {
    reader_memory: ReaderMemory<usize>,
    /// Frames by application.
    held: BTreeMap<usize, Held>,
}

struct Held {
    share: Option<ShareId>,
    log: LogReader,
    /// The log's budget when the share was granted. Budgets change when cameras come.
    budget: LogShare,
    frame: FrameId,
    payload: Bytes,
}

impl Lent {
    pub(super) fn new() -> Self {
        Self { reader_memory: ReaderMemory::new(ReaderMemoryLimits::default()), held: BTreeMap::new() }
    }

    /// Lets an application take the beginning of the newest frame of a log, and then stall.
    pub(super) fn stand_still(
        &mut self,
        now: Instant,
        application: usize,
        log: &LogReader,
        bug: Option<Bug>,
    ) {
        let Some(record) = log.newest().filter(|_| !self.held.contains_key(&application)) else { return };
        let (frame, payload, budget) = (record.frame.meta.id, record.frame.payload, log.share());
        let asked =
            Asked { principal: application % PRINCIPALS, log: Some(budget), bytes: payload.len() as u64 };
        let granted = self.reader_memory.take(now, asked);
        self.held.retain(|_, held| held.share.is_none_or(|share| !granted.lost.contains(&share)));
        if granted.share.is_some() || bug == Some(Bug::HeldWithoutShare) {
            let held = Held { share: granted.share, log: log.clone(), budget, frame, payload };
            self.held.insert(application, held);
        }
    }

    /// Ends a stall: the application takes the rest of the frame, or has gone.
    pub(super) fn let_go(&mut self, application: usize) {
        if let Some(share) = self.held.remove(&application).and_then(|held| held.share) {
            self.reader_memory.give_back(share);
        }
    }

    /// Finds a log of which readers hold more evicted bytes than they may. Returns how many they hold, and how many they may hold.
    pub(in crate::world) fn excess(&self) -> Option<(u64, u64)> {
        self.held.values().find_map(|Held { budget, .. }| {
            let evicted =
                |held: &&Held| held.budget.log == budget.log && held.log.get_frame(held.frame).is_none();
            let bytes: u64 = self.held.values().filter(evicted).map(|held| held.payload.len() as u64).sum();
            let bytes_max = budget.bytes_max / PART_OF_LOG;
            (bytes > bytes_max).then_some((bytes, bytes_max))
        })
    }
}
