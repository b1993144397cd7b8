//! Holds an edge's frames of one camera: its replica log, its frames as they came if somebody wants those,
//! and the account of those that are in neither.
//!
//! | question | where |
//! | --- | --- |
//! | which frame waits for the decoder, or for those before it? | `decoding.rs` |
//! | who gets frames as they came? | `chains.rs` |
//! | when is the camera asked for a frame that stands alone? | `refresh.rs` |
//! | what becomes of frames that are not shown? | `account.rs` |
//! | how does a frame become a record? | `record.rs` |

mod account;
mod chains;
mod decoding;
mod record;
mod refresh;

use bytes::Bytes;

use self::account::Account;
use self::chains::Chains;
pub(super) use self::chains::chain_bytes_max;
pub use self::decoding::{DECODING_BYTES_MAX, DECODING_FRAMES_MAX, Decoded};
use self::decoding::{Decoding, Lost, Pending};
use self::record::{Times, record};
pub use self::refresh::KEYFRAME_REQUEST_INTERVAL;
use self::refresh::Refresh;
use super::arrivals::Ready;
use super::connection::Way;
use super::types::{CameraCounters, EdgeOutput, SubscriptionId};
use crate::broker::LinkId;
use crate::frame::{ChainKinds, ChainLink, Frame, FrameId, FrameMeta, SkipReason};
use crate::log::{AppendError, LogConfig, LogReader, LogWriter, Record, log};
use crate::name::CameraName;
use crate::units::{Instant, Timestamp};
use crate::wire::FrameHeader;

/// A frame that decodes by itself, and waits until this instant for a newer one.
struct Stale {
    header: FrameHeader,
    payload: Bytes,
    times: Times,
    until: Instant,
}

/// The frames of one camera.
pub(super) struct Replica {
    camera: CameraName,
    log: LogWriter,
    /// What its frames may take in memory, in bytes.
    share: u64,
    decoding: Decoding,
    /// The newest frame, if it is stale and a newer one may come right behind it.
    stale: Option<Stale>,
    /// Of frames that are not in the log.
    account: Account,
    /// Its frames as they come, once somebody has wanted them.
    chains: Option<Box<Chains>>,
    refresh: Refresh,
    /// What became of its frames.
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
            decoding: Decoding::default(),
            stale: None,
            account: Account::default(),
            chains: None,
            refresh: Refresh::default(),
            counters: CameraCounters::default(),
        }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// A reader of its log.
    pub(super) fn reader(&self) -> LogReader {
        self.log.reader()
    }

    /// The newest frame of its log, and when that was captured.
    pub(super) fn newest(&self) -> Option<(FrameId, Timestamp)> {
        self.log.last()
    }

    /// When the oldest frame of its log was captured.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.log.reader().held_from()
    }

    /// Bytes in its log.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Bytes of the log of frames as they came. `None` if nobody has wanted them.
    #[cfg(test)]
    pub(super) fn chain_bytes(&self) -> Option<u64> {
        self.chains.as_ref().map(|chains| chains.bytes())
    }

    /// Whether a frame of a chain can go to the decoder.
    pub(super) fn has_room_for(&self, bytes: u32) -> bool {
        self.decoding.has_room_for(bytes)
    }

    /// When the camera may be asked for a frame that stands alone, if somebody waits for one.
    pub(super) fn join_due(&self) -> Option<Instant> {
        self.chains.as_ref().filter(|chains| chains.is_awaited()).map(|_| self.refresh.due())
    }

    /// When a stale frame has waited long enough for a newer one.
    pub(super) fn stale_due(&self) -> Option<Instant> {
        let as_came = self.chains.as_ref().and_then(|chains| chains.stale_due());
        self.stale.as_ref().map(|stale| stale.until).into_iter().chain(as_came).min()
    }

    // ---- readers ------------------------------------------------------------------------------------------

    /// Hands a subscription the log, and the frames as they come if it decodes such chains itself.
    pub(super) fn attach(&mut self, subscription: SubscriptionId, kinds: ChainKinds) -> Vec<EdgeOutput> {
        let mut outputs =
            vec![EdgeOutput::Attach { subscription, camera: self.camera.clone(), log: self.log.reader() }];
        if !kinds.is_none() {
            let bytes_max = chain_bytes_max(self.share);
            let chains = self.chains.get_or_insert_with(|| Box::new(Chains::new(bytes_max)));
            let (camera, log) = (self.camera.clone(), chains.reader());
            outputs.push(EdgeOutput::AttachChains { subscription, camera, log, kinds });
        }
        outputs
    }

    /// Starts to hold frames as they come when a subscription wants them, and stops when none does.
    pub(super) fn want_chains(&mut self, wanted: bool) {
        if self.chains.as_mut().is_some_and(|chains| chains.set_wanted(wanted)) {
            self.set_share(self.share);
        }
    }

    /// A subscription has lost its chain, or joined in the middle of one: it waits for the next.
    pub(super) fn handle_chain_lost(&mut self, now: Instant, way: Option<Way>) -> Option<EdgeOutput> {
        self.chains.as_mut()?.handle_lost();
        self.ask_to_join(now, way)
    }

    /// Asks the camera for a chain that somebody waits for, if that is due.
    pub(super) fn ask_to_join(&mut self, now: Instant, way: Option<Way>) -> Option<EdgeOutput> {
        self.join_due().filter(|due| now >= *due)?;
        self.chains.as_mut()?.handle_asked();
        self.refresh.join(now, way)
    }

    // ---- memory -------------------------------------------------------------------------------------------

    /// Sets the budget of the camera's frames.
    pub(super) fn set_share(&mut self, share: u64) {
        self.share = share;
        let is_wanted = self.chains.as_ref().is_some_and(|chains| chains.is_wanted());
        let of_chains = if is_wanted { chain_bytes_max(share) } else { 0 };
        if let Some(chains) = &mut self.chains {
            chains.set_bytes_max(of_chains);
        }
        self.log.set_bytes_max(share - of_chains);
    }

    /// Takes up a frame that a log on disk gave back. False if it finds no place.
    pub(super) fn restore(&mut self, record: Record) -> bool {
        self.log.append_record(record).is_ok()
    }

    // ---- frames -------------------------------------------------------------------------------------------

    /// It is the turn of a frame that is here. `stale_until`: it was captured before its link's last silence
    /// ended, and a newer one may come until then.
    pub(super) fn handle_ready(
        &mut self,
        now: Instant,
        link: LinkId,
        ready: Ready,
        (way, stale_until): (Option<Way>, Option<Instant>),
    ) -> Vec<EdgeOutput> {
        let Ready { header, payload, first, is_overtaken, overtakes } = ready;
        if is_overtaken {
            let chains = self.chains.as_mut().map(|chains| &mut chains.account);
            for account in [Some(&mut self.account), chains].into_iter().flatten() {
                account.not_shown(&header, SkipReason::NotDecoded);
            }
            self.counters.not_decoded += 1;
            return Vec::new();
        }
        // What those that it overtakes say of others was said for the last time: the camera knows that they
        // are here.
        for header in &overtakes {
            let chains = self.chains.as_mut().map(|chains| &mut chains.account);
            for account in [Some(&mut self.account), chains].into_iter().flatten() {
                account.note(header.meta.id, &header.skipped);
            }
        }
        let times = Times { arriving: first, arrived: now, decoded: None, stale_until };
        let mut outputs = self.take_stale(now);
        if let Some(chains) = self.chains.as_mut().filter(|chains| chains.is_wanted())
            && chains.append(now, &header, &payload, times)
        {
            outputs.push(EdgeOutput::Came { camera: self.camera.clone() });
        }
        outputs.extend(if header.meta.encoding.is_chained() {
            Vec::from_iter(self.decode(now, link, (header, payload), times, way))
        } else {
            self.take_still(now, link, (header, payload), times)
        });
        outputs
    }

    /// A frame that decodes by itself is here. While frames before it are being decoded it waits for its
    /// turn.
    fn take_still(
        &mut self,
        now: Instant,
        link: LinkId,
        (header, payload): (FrameHeader, Bytes),
        times: Times,
    ) -> Vec<EdgeOutput> {
        if self.decoding.is_empty() {
            return self.append(now, header, payload, times);
        }
        let bytes = payload.len() as u32;
        if self.decoding.has_room_for(bytes) {
            let FrameMeta { encoding, width, height, .. } = header.meta;
            let outcome = Some(Decoded::Still { payload, encoding, width, height });
            self.decoding.push(Pending { link, header, bytes, times, outcome });
        } else {
            self.not_decoded(&header, SkipReason::EdgeBusy);
        }
        Vec::new()
    }

    /// A frame that may need others is here.
    fn decode(
        &mut self,
        now: Instant,
        link: LinkId,
        (header, payload): (FrameHeader, Bytes),
        times: Times,
        way: Option<Way>,
    ) -> Option<EdgeOutput> {
        let bytes = payload.len() as u32;
        if self.decoding.has_room_for(bytes) {
            let frame = Box::new(Frame { meta: header.meta.clone(), payload });
            self.decoding.push(Pending { link, header, bytes, times, outcome: None });
            return Some(EdgeOutput::Decode { camera: self.camera.clone(), link, frame });
        }
        // What comes after it in its chain cannot be decoded now.
        self.not_decoded(&header, SkipReason::EdgeBusy);
        self.refresh.replace(now, way, link, (header.meta.chain.chain, header.meta.id))
    }

    /// The decoder has finished a frame that came on `link`. `None` if it does not have this frame.
    pub(super) fn handle_decoded(
        &mut self,
        now: Instant,
        link: LinkId,
        frame: FrameId,
        decoded: Decoded,
        way: Option<Way>,
    ) -> Option<Vec<EdgeOutput>> {
        let lost = self.decoding.handle_decoded(now, link, frame, decoded)?;
        let mut outputs = self.take_stale(now);
        if let Some(Lost { chain, frame }) = lost {
            outputs.extend(self.refresh.replace(now, way, link, (chain, frame)));
        }
        // Frames whose turn it is enter the log, or the account of those that do not.
        while let Some(Pending { mut header, times, outcome, .. }) = self.decoding.pop_done() {
            match outcome {
                Some(Decoded::Still { payload, encoding, width, height }) if !encoding.is_chained() => {
                    let chain = ChainLink::still(header.meta.id.sequence);
                    header.meta = FrameMeta { encoding, width, height, chain, ..header.meta };
                    outputs.extend(self.append(now, header, payload, times));
                }
                Some(Decoded::Passed) => self.not_decoded(&header, SkipReason::EdgeBusy),
                _ => self.not_decoded(&header, SkipReason::NotDecoded),
            }
        }
        Some(outputs)
    }

    fn not_decoded(&mut self, header: &FrameHeader, reason: SkipReason) {
        self.account.not_shown(header, reason);
        self.counters.not_decoded += 1;
    }

    /// Appends a frame that decodes by itself to the log. If it is stale, it waits for a newer one first: of a
    /// burst after a silence, only the newest frame is for those who take the newest.
    fn append(&mut self, now: Instant, header: FrameHeader, payload: Bytes, times: Times) -> Vec<EdgeOutput> {
        debug_assert!(!header.meta.encoding.is_chained(), "a frame that needs others enters the replica log");
        let is_newest = |stale: &mut Stale| stale.header.meta.id < header.meta.id;
        let mut outputs = Vec::new();
        if let Some(Stale { header, payload, times, .. }) = self.stale.take_if(is_newest) {
            outputs.extend(self.append_now(now, header, payload, (times, true)));
        }
        match times.stale_until {
            // It came late, even of those that are stale.
            _ if self.stale.is_some() => outputs.extend(self.append_now(now, header, payload, (times, true))),
            Some(until) if now < until => self.stale = Some(Stale { header, payload, times, until }),
            _ => outputs.extend(self.append_now(now, header, payload, (times, false))),
        }
        outputs
    }

    /// Appends the stale frame, and those as they came, if they have waited long enough: no newer one came.
    pub(super) fn take_stale(&mut self, now: Instant) -> Vec<EdgeOutput> {
        // As it came, a frame is there before its still.
        let came = self.chains.as_mut().is_some_and(|chains| chains.take_stale(now));
        let came = came.then(|| EdgeOutput::Came { camera: self.camera.clone() });
        let stale = self.stale.take_if(|stale| now >= stale.until);
        let appended = stale.and_then(|Stale { header, payload, times, .. }| {
            self.append_now(now, header, payload, (times, false))
        });
        came.into_iter().chain(appended).collect()
    }

    /// Appends a frame to the log; `overtaken`: a newer one came right behind it.
    fn append_now(
        &mut self,
        now: Instant,
        header: FrameHeader,
        payload: Bytes,
        (times, overtaken): (Times, bool),
    ) -> Option<EdgeOutput> {
        let (id, newest) = (header.meta.id, self.log.last().map(|(id, _)| id));
        if newest.is_some_and(|newest| newest >= id) {
            self.counters.late += 1;
            return None;
        }
        let skipped = self.account.shown(id, &header.skipped);
        match self.log.append_record(record(header, payload, times, (now, overtaken), (newest, &skipped))) {
            Ok(_) => {
                self.counters.received += 1;
                return Some(EdgeOutput::Appended { camera: self.camera.clone() });
            }
            Err(AppendError::OutOfOrder { .. } | AppendError::CaptureTime { .. }) => self.counters.late += 1,
            Err(AppendError::LargerThanLog { .. } | AppendError::Held { .. }) => self.counters.refused += 1,
        }
        None
    }
}
