//! Holds one camera's frames as they arrived, in its replica log, and accounts for frames that are not in the log.
//!
//! A frame that needs others enters the log if its parent has entered. So every frame in the log can be decoded
//! from the beginning of its chain on, and nothing is decoded here (`docs/decisions/0043-video-stays-video.md`).
//!
//! | question | where |
//! | --- | --- |
//! | when is the camera asked for a keyframe? | `refresh.rs` |
//! | what becomes of frames that do not enter the log? | `account.rs` |
//! | how does a frame become a record? | `record.rs` |

mod account;
mod record;
mod refresh;

use bytes::Bytes;

use self::account::Account;
use self::record::{Times, record};
pub use self::refresh::KEYFRAME_REQUEST_INTERVAL;
use self::refresh::Refresh;
use super::arrivals::Ready;
use super::connection::Way;
use super::types::{CameraCounters, EdgeOutput, SubscriptionId};
use crate::broker::LinkId;
use crate::chain::{ChainFollower, begins_chain};
use crate::frame::{FrameId, FrameMeta, SkipReason};
use crate::log::{AppendError, LogConfig, LogReader, LogWriter, Record, log};
use crate::name::CameraName;
use crate::stills::still_bytes_max;
use crate::units::{Instant, Timestamp};
use crate::wire::FrameHeader;

/// A frame that has arrived completely.
struct Arrived {
    link: LinkId,
    header: FrameHeader,
    payload: Bytes,
    times: Times,
}

/// A stale frame, which waits until this instant for a newer one.
struct Stale {
    frame: Arrived,
    until: Instant,
}

/// The frames of one camera at the edge.
pub(super) struct Replica {
    camera: CameraName,
    log: LogWriter,
    /// The memory budget of the camera's frames, in bytes.
    share: u64,
    /// The newest frame, if it is stale and a newer one may come right behind it.
    stale: Option<Stale>,
    /// The chain that goes on in the log.
    entered: ChainFollower,
    /// The connection on which that chain came.
    of_link: Option<LinkId>,
    /// Whether a frame of a chain has ever entered. Stills made of chains take a part of the share.
    has_chains: bool,
    /// Whether a reader waits for a chain to begin, and the camera has not been asked for one.
    joins: bool,
    /// The account of frames that are not in the log.
    account: Account,
    refresh: Refresh,
    /// What became of the camera's frames.
    pub(super) counters: CameraCounters,
}

impl Replica {
    /// An empty replica with a budget of `share` bytes.
    pub(super) fn new(camera: CameraName, share: u64) -> Self {
        let (writer, _) = log(LogConfig::with_bytes_max(share));
        Self {
            camera,
            log: writer,
            share,
            stale: None,
            entered: ChainFollower::default(),
            of_link: None,
            has_chains: false,
            joins: false,
            account: Account::default(),
            refresh: Refresh::default(),
            counters: CameraCounters::default(),
        }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// A reader of its log.
    pub(super) fn reader(&self) -> LogReader {
        self.log.reader()
    }

    /// The newest frame of the log, with its capture time.
    pub(super) fn newest(&self) -> Option<(FrameId, Timestamp)> {
        self.log.last()
    }

    /// The capture time of the oldest frame of the log that can be decoded.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.log.reader().held_from()
    }

    /// Bytes in its log.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// When the camera may be asked for a keyframe. `None`: no reader waits for one.
    pub(super) fn join_due(&self) -> Option<Instant> {
        self.joins.then(|| self.refresh.due())
    }

    /// When a stale frame has waited long enough for a newer one.
    pub(super) fn stale_due(&self) -> Option<Instant> {
        self.stale.as_ref().map(|stale| stale.until)
    }

    // ---- readers ------------------------------------------------------------------------------------------

    /// Hands a subscription the log.
    pub(super) fn attach(&self, subscription: SubscriptionId) -> EdgeOutput {
        EdgeOutput::Attach { subscription, camera: self.camera.clone(), log: self.log.reader() }
    }

    /// A reader has lost its chain, or joined in the middle of a chain. It waits for the next chain.
    pub(super) fn handle_chain_lost(&mut self, now: Instant, way: Option<Way>) -> Option<EdgeOutput> {
        self.joins = true;
        self.ask_to_join(now, way)
    }

    /// Asks the camera for a chain that a reader waits for, if this is due.
    pub(super) fn ask_to_join(&mut self, now: Instant, way: Option<Way>) -> Option<EdgeOutput> {
        self.join_due().filter(|due| now >= *due)?;
        self.joins = false;
        self.refresh.join(now, way)
    }

    // ---- memory -------------------------------------------------------------------------------------------

    /// Sets the budget of the camera's frames.
    pub(super) fn set_share(&mut self, share: u64) {
        self.share = share;
        let of_stills = if self.has_chains { still_bytes_max(share) } else { 0 };
        self.log.set_bytes_max(share - of_stills);
    }

    /// Restores a frame from a log on disk. Returns false if the frame does not fit, or needs a frame that was not restored.
    pub(super) fn restore(&mut self, mut record: Record) -> bool {
        let meta = record.frame.meta.clone();
        if !self.entered.allows(&meta) {
            self.account.not_held(meta.id, &record.skipped, SkipReason::NotDecoded);
            return false;
        }
        self.meet(&meta);
        if !self.account.is_empty() {
            record.skipped = self.account.shown(meta.id, &record.skipped).into();
        }
        let taken = self.log.append_record(record).is_ok();
        if taken {
            self.entered.note(&meta);
        }
        taken
    }

    // ---- frames -------------------------------------------------------------------------------------------

    /// Appends a record that was published at this edge. No record before it can be missing, so nothing needs an account.
    pub(super) fn publish(&mut self, record: Record) -> Result<(), AppendError> {
        let appended = self.log.append_record(record);
        match appended {
            Ok(_) => self.counters.received += 1,
            Err(_) => self.counters.refused += 1,
        }
        appended.map(|_| ())
    }

    /// It is the turn of a complete frame. `stale_until`: the frame was captured
    /// before its link's last silence ended, and a newer one may come until then.
    pub(super) fn handle_ready(
        &mut self,
        now: Instant,
        link: LinkId,
        ready: Ready,
        (way, stale_until): (Option<Way>, Option<Instant>),
    ) -> Vec<EdgeOutput> {
        let Ready { header, payload, first, is_overtaken, overtakes } = ready;
        if is_overtaken {
            self.not_decoded(&header);
            return Vec::new();
        }
        // The camera knows that the overtaken frames have arrived, so it does not repeat the skips in their headers.
        for header in &overtakes {
            self.account.note(header.meta.id, &header.skipped);
        }
        let times = Times { arriving: first, arrived: now };
        let mut outputs = self.take_stale(now, way);
        outputs.extend(self.append(now, Arrived { link, header, payload, times }, (way, stale_until)));
        outputs
    }

    /// Appends a frame to the log. A stale frame waits for a newer one first: of
    /// a burst after a silence, a reader of the newest frame gets only the last.
    fn append(
        &mut self,
        now: Instant,
        frame: Arrived,
        (way, stale_until): (Option<Way>, Option<Instant>),
    ) -> Vec<EdgeOutput> {
        let id = frame.header.meta.id;
        let mut outputs = Vec::new();
        if let Some(Stale { frame, .. }) = self.stale.take_if(|stale| stale.frame.header.meta.id < id) {
            outputs.extend(self.append_now(now, frame, (way, true)));
        }
        match stale_until {
            // The frame is older than the stale frame that waits.
            _ if self.stale.is_some() => outputs.extend(self.append_now(now, frame, (way, true))),
            Some(until) if now < until => self.stale = Some(Stale { frame, until }),
            _ => outputs.extend(self.append_now(now, frame, (way, false))),
        }
        outputs
    }

    /// Appends the stale frame, if it has waited long enough without a newer one.
    pub(super) fn take_stale(&mut self, now: Instant, way: Option<Way>) -> Vec<EdgeOutput> {
        let stale = self.stale.take_if(|stale| now >= stale.until);
        stale.map(|Stale { frame, .. }| self.append_now(now, frame, (way, false))).unwrap_or_default()
    }

    /// Appends a frame to the log; `overtaken`: a newer one came right behind it.
    fn append_now(
        &mut self,
        now: Instant,
        frame: Arrived,
        (way, overtaken): (Option<Way>, bool),
    ) -> Vec<EdgeOutput> {
        let Arrived { link, header, payload, times } = frame;
        let (meta, newest) = (header.meta.clone(), self.log.last().map(|(id, _)| id));
        if newest.is_some_and(|newest| newest >= meta.id) {
            self.counters.late += 1;
            return Vec::new();
        }
        let (id, chain) = (meta.id, meta.chain.chain);
        let begins = begins_chain(&meta);
        // A chain of another connection may be of another start of the camera.
        let goes_on = !meta.encoding.is_chained() || begins || self.of_link == Some(link);
        if !goes_on || !self.entered.allows(&meta) {
            self.not_decoded(&header);
            return Vec::from_iter(self.refresh.replace(now, way, link, (chain, id)));
        }
        self.meet(&meta);
        let skipped = self.account.shown(id, &header.skipped);
        match self.log.append_record(record(header, payload, times, (now, overtaken), (newest, &skipped))) {
            Ok(_) => {
                self.counters.received += 1;
                self.entered.note(&meta);
                if meta.encoding.is_chained() {
                    self.of_link = Some(link);
                    self.joins &= !begins;
                }
                let appended = EdgeOutput::Appended { camera: self.camera.clone() };
                let refresh =
                    self.is_too_long(&meta).then(|| self.refresh.replace(now, way, link, (chain, id)));
                return std::iter::once(appended).chain(refresh.flatten()).collect();
            }
            Err(AppendError::OutOfOrder { .. } | AppendError::CaptureTime { .. }) => self.counters.late += 1,
            Err(AppendError::LargerThanLog { .. } | AppendError::Held { .. }) => self.counters.refused += 1,
        }
        Vec::new()
    }

    /// A frame is about to enter the log. From the first frame of a chain on, stills take their part of the share.
    fn meet(&mut self, meta: &FrameMeta) {
        if meta.encoding.is_chained() && !self.has_chains {
            self.has_chains = true;
            self.set_share(self.share);
        }
    }

    /// Whether a chain takes more than half of the log, so that its beginning would be evicted before it ends.
    fn is_too_long(&self, meta: &FrameMeta) -> bool {
        let half = self.log.reader().share().bytes_max / 2;
        meta.encoding.is_chained() && self.log.chain_bytes() > half
    }

    fn not_decoded(&mut self, header: &FrameHeader) {
        self.account.not_held(header.meta.id, &header.skipped, SkipReason::NotDecoded);
        self.counters.not_decoded += 1;
    }
}
