//! Holds the newest frames of a camera as they came, beside its replica log, for applications that decode
//! whole chains themselves. It does so only as long as a subscription wants that
//! (`docs/decisions/0012-whole-chains-beside-the-log.md`).

use bytes::Bytes;

use super::account::Account;
use super::record::{Times, record};
use crate::frame::{Reference, SkipReason};
use crate::log::{CHAIN_LOG_BYTES_MAX, ChainLogWriter, LogReader, chain_log};
use crate::wire::FrameHeader;

/// The frames of one camera as they came.
pub(super) struct Chains {
    log: ChainLogWriter,
    reader: LogReader,
    /// A subscription wants them.
    wanted: bool,
    /// Somebody waits for a chain to begin, and the camera has not been asked for one.
    joins: bool,
    /// Of frames that are not among them.
    pub(super) account: Account,
}

/// What frames as they came may take of a camera's share, in bytes.
pub(in super::super) fn chain_bytes_max(share: u64) -> u64 {
    (share / 16).min(CHAIN_LOG_BYTES_MAX)
}

impl Chains {
    pub(super) fn new(bytes_max: u64) -> Self {
        let (log, reader) = chain_log(bytes_max);
        Self { log, reader, wanted: false, joins: false, account: Account::default() }
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
    #[cfg(all(test, not(loom)))]
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

    /// Takes in a frame as it came. Returns whether the readers have another frame.
    pub(super) fn append(&mut self, header: &FrameHeader, payload: &Bytes, times: Times) -> bool {
        debug_assert!(self.wanted, "frames are held as they came, and nobody wants them");
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
        let record =
            record(header.clone(), payload.clone(), times, (times.arrived, false), (newest, &skipped));
        self.log.append(record)
    }
}
