//! Holds the newest frames of a camera as they came, beside its replica log, for applications that decode
//! whole chains themselves. It does so only as long as a subscription wants that
//! (`docs/decisions/0012-whole-chains-beside-the-log.md`).

use std::collections::VecDeque;

use bytes::Bytes;

use super::account::Account;
use super::record::{Times, record};
use crate::frame::{Reference, SkipReason};
use crate::log::{LogReader, ShortLogWriter, short_log};
use crate::units::Instant;
use crate::wire::FrameHeader;

/// The most stale frames that wait for a newer one. Beyond that, the oldest waits no longer.
const STALE_FRAMES_MAX: usize = 16;
/// The most bytes of such frames.
const STALE_BYTES_MAX: usize = 8 << 20;

/// The most bytes of frames as they came.
const CHAIN_BYTES_MAX: u64 = 8 << 20;

/// A frame that waits for a newer one.
struct Stale {
    header: FrameHeader,
    payload: Bytes,
    times: Times,
    until: Instant,
}

/// The frames of one camera as they came.
pub(super) struct Chains {
    log: ShortLogWriter,
    reader: LogReader,
    /// A subscription wants them.
    wanted: bool,
    /// Somebody waits for a chain to begin, and the camera has not been asked for one.
    joins: bool,
    /// Stale frames, oldest first. A newer one may come right behind them, and may need them.
    stale: VecDeque<Stale>,
    /// Of frames that are not among them.
    pub(super) account: Account,
}

/// What frames as they came may take of a camera's share, in bytes.
pub(in super::super) fn chain_bytes_max(share: u64) -> u64 {
    (share / 16).min(CHAIN_BYTES_MAX)
}

impl Chains {
    pub(super) fn new(bytes_max: u64) -> Self {
        let (log, reader) = short_log(bytes_max);
        let stale = VecDeque::new();
        Self { log, reader, wanted: false, joins: false, stale, account: Account::default() }
    }

    /// Whether a subscription wants frames as they came.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether somebody waits for a chain to begin, and the camera has not been asked for one.
    pub(super) fn is_awaited(&self) -> bool {
        self.joins
    }

    /// Reads them.
    pub(super) fn reader(&self) -> LogReader {
        self.reader.clone()
    }

    /// What they take, in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    pub(super) fn set_bytes_max(&mut self, bytes_max: u64) {
        self.log.set_bytes_max(bytes_max);
    }

    /// Somebody wants them, or nobody does any more. True if that is new.
    pub(super) fn set_wanted(&mut self, wanted: bool) -> bool {
        if self.wanted == wanted {
            return false;
        }
        self.wanted = wanted;
        self.account = Account::default();
        if !wanted {
            self.joins = false;
            self.stale.clear();
            self.log.clear();
        }
        true
    }

    /// Somebody is in the middle of a chain that it cannot enter.
    pub(super) fn handle_lost(&mut self) {
        self.joins = self.wanted;
    }

    /// The camera is asked for a chain.
    pub(super) fn handle_asked(&mut self) {
        self.joins = false;
    }

    /// Takes in a frame as it came. If it is stale, it waits for a newer one: of a burst after a silence, those who take the
    /// newest frame are given what that one needs, and none of the others. Returns whether the readers have another frame.
    pub(super) fn append(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        payload: &Bytes,
        times: Times,
    ) -> bool {
        debug_assert!(self.wanted, "frames are held as they came, and nobody wants them");
        let Some(until) = times.stale_until.filter(|until| now < *until) else {
            let more = self.release(now, 0);
            return self.append_now(now, (header, payload, times), false) || more;
        };
        let stale = Stale { header: header.clone(), payload: payload.clone(), times, until };
        self.stale.push_back(stale);
        let bytes = |stale: &VecDeque<Stale>| stale.iter().map(|stale| stale.payload.len()).sum::<usize>();
        let mut more = false;
        while self.stale.len() > STALE_FRAMES_MAX
            || self.stale.len() > 1 && bytes(&self.stale) > STALE_BYTES_MAX
        {
            more |= self.release(now, self.stale.len() - 1);
        }
        more
    }

    /// When the stale frames have waited long enough.
    pub(super) fn stale_due(&self) -> Option<Instant> {
        self.stale.back().map(|stale| stale.until)
    }

    /// Appends the stale frames if they have waited long enough: no newer one came. Returns whether the readers have another
    /// frame.
    pub(super) fn take_stale(&mut self, now: Instant) -> bool {
        if self.stale_due().is_none_or(|due| now < due) {
            return false;
        }
        let more = self.release(now, 1);
        let Some(Stale { header, payload, times, .. }) = self.stale.pop_front() else { return more };
        self.append_now(now, (&header, &payload, times), false) || more
    }

    /// Appends the oldest stale frames, for which a newer one is here, until so many are left.
    fn release(&mut self, now: Instant, left: usize) -> bool {
        let mut more = false;
        while self.stale.len() > left {
            let Some(Stale { header, payload, times, .. }) = self.stale.pop_front() else { break };
            more |= self.append_now(now, (&header, &payload, times), true);
        }
        more
    }

    /// Appends a frame as it came; `overtaken`: a newer one is right behind it.
    fn append_now(
        &mut self,
        now: Instant,
        (header, payload, times): (&FrameHeader, &Bytes, Times),
        overtaken: bool,
    ) -> bool {
        let FrameHeader { meta, skipped, .. } = header;
        let newest = self.log.last();
        if !self.log.admits(meta.id, payload.len()) {
            let is_late = newest.is_some_and(|newest| meta.id <= newest);
            let reason = if is_late { SkipReason::LateOrLost } else { SkipReason::Evicted };
            self.account.not_shown(header, reason);
            return false;
        }
        self.joins &= !(meta.encoding.is_chained() && meta.chain.reference == Reference::Independent);
        let skipped = self.account.shown(meta.id, skipped);
        let record = record(header.clone(), payload.clone(), times, (now, overtaken), (newest, &skipped));
        self.log.append(record)
    }
}
