//! Whole chains for applications that decode them themselves: beside the replica log, the newest frames of a camera are held as they came, for as
//! long as a subscription wants that (`docs/decisions/0012-whole-chains-beside-the-log.md`).

use std::sync::Arc;

use bytes::Bytes;

use super::account::Account;
use super::decoding::{REFRESH_INTERVAL, Times, skipped_since};
use super::session::Camera;
use super::{EdgeBroker, EdgeOutput, SubscriptionId};
use crate::frame::{ChainKinds, Frame, FrameId, Quality, Reference, SkipReason};
use crate::log::{CHAIN_LOG_BYTES_MAX, ChainLogWriter, LogReader, Record, chain_log};
use crate::name::CameraName;
use crate::trace::FrameTrace;
use crate::units::Instant;
use crate::wire::{FrameHeader, Message};

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
pub(super) fn chain_bytes_max(share: u64) -> u64 {
    (share / 16).min(CHAIN_LOG_BYTES_MAX)
}

impl Chains {
    fn new(bytes_max: u64) -> Self {
        let (log, reader) = chain_log(bytes_max);
        Self { log, reader, wanted: false, joins: false, account: Account::default() }
    }

    /// Whether a subscription wants frames as they came.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    pub(super) fn set_bytes_max(&mut self, bytes_max: u64) {
        self.log.set_bytes_max(bytes_max);
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Takes in a frame as it came. Says whether there is one more for those who read.
    pub(super) fn append(&mut self, header: &FrameHeader, payload: &Bytes, times: Times) -> bool {
        let FrameHeader { meta, skipped, expected_accuracy, infeasible, trace: stamps, .. } = header;
        let newest = self.log.last();
        if !self.log.admits(meta.id, payload.len()) {
            let is_late = newest.is_some_and(|newest| meta.id <= newest);
            let reason = if is_late { SkipReason::LateOrLost } else { SkipReason::Evicted };
            self.account.not_shown(header, reason);
            return false;
        }
        self.joins &= !(meta.encoding.is_chained() && meta.chain.reference == Reference::Independent);
        let Times { arriving, arrived, .. } = times;
        let trace = FrameTrace { camera: *stamps, arriving, arrived, decoded: None, logged: arrived };
        self.log.append(Record {
            frame: Frame { meta: meta.clone(), payload: payload.clone() },
            skipped: skipped_since(newest, meta.id, &self.account.shown(meta.id, skipped)),
            quality: Quality { expected_accuracy: *expected_accuracy, infeasible: *infeasible },
            trace: Some(Arc::new(trace)),
            arrived,
        })
    }
}

impl Camera {
    /// A frame that arrived enters neither log.
    pub(super) fn not_taken(&mut self, header: &FrameHeader, reason: SkipReason) {
        self.decoding.account.not_shown(header, reason);
        if let Some(chains) = &mut self.chains {
            chains.account.not_shown(header, reason);
        }
    }

    /// What a header says of others is said for the last time.
    pub(super) fn note(&mut self, header: &FrameHeader) {
        let accounts =
            [Some(&mut self.decoding.account), self.chains.as_mut().map(|known| &mut known.account)];
        accounts.into_iter().flatten().for_each(|account| account.note(header.meta.id, &header.skipped));
    }
}

impl EdgeBroker {
    /// A subscription has lost its chain of a camera, and asks for another to begin: its decoder failed. The camera is asked, at most once in
    /// [`REFRESH_INTERVAL`] for all of them.
    pub fn handle_chain_lost(&mut self, now: Instant, camera: &CameraName) {
        if let Some(chains) = self.cameras.get_mut(camera).and_then(|known| known.chains.as_mut()) {
            chains.joins = chains.wanted;
            self.ask_to_join(now, camera);
        }
    }

    /// Hands a subscription the frames of a camera as they come.
    pub(super) fn attach_chains(
        &mut self,
        subscription: SubscriptionId,
        name: &CameraName,
        kinds: ChainKinds,
    ) {
        if kinds.is_none() {
            return;
        }
        let bytes_max = chain_bytes_max(self.share());
        let Some(camera) = self.cameras.get_mut(name) else { return };
        let chains = camera.chains.get_or_insert_with(|| Box::new(Chains::new(bytes_max)));
        let (camera, log) = (name.clone(), chains.reader.clone());
        self.outputs.push_back(EdgeOutput::AttachChains { subscription, camera, log, kinds });
    }

    /// Somebody joined: whoever is in the middle of a chain waits for the next.
    pub(super) fn join_chains(&mut self, now: Instant, name: &CameraName) {
        self.update_chains(name);
        self.handle_chain_lost(now, name);
    }

    /// Begins to hold frames as they come where a subscription wants them, and ends it where none does.
    pub(super) fn update_chains(&mut self, name: &CameraName) {
        let takes = |entry: &super::SubscriptionEntry| !entry.chains.is_none() && entry.pattern.matches(name);
        let wanted = self.subscriptions.values().any(takes);
        let Some(chains) = self.cameras.get_mut(name).and_then(|camera| camera.chains.as_mut()) else {
            return;
        };
        if chains.wanted == wanted {
            return;
        }
        chains.wanted = wanted;
        chains.account = Account::default();
        if !wanted {
            chains.joins = false;
            chains.log.clear();
        }
        self.share_out();
    }

    /// Asks cameras for which somebody waits, where that is due.
    pub(super) fn ask_to_join_all(&mut self, now: Instant) {
        let waits = |camera: &Camera| camera.join_due().is_some_and(|due| now >= due);
        let waiting = self.cameras.iter().filter(|(_, camera)| waits(camera));
        let waiting: Vec<CameraName> = waiting.map(|(name, _)| name.clone()).collect();
        waiting.iter().for_each(|name| self.ask_to_join(now, name));
    }

    fn ask_to_join(&mut self, now: Instant, name: &CameraName) {
        let Some(camera) = self.cameras.get_mut(name) else { return };
        if camera.join_due().is_none_or(|due| now < due) {
            return;
        }
        if let Some(chains) = &mut camera.chains {
            chains.joins = false;
        }
        // Where no chain goes on, the next frame of one stands alone.
        let Some(id) = camera.link else { return };
        let Some(link) = self.links.get(&id).filter(|link| !link.over) else { return };
        let Some((taken, session)) = link.taken.zip(link.session.as_ref()) else { return };
        let frame = FrameId { epoch: session.epoch, sequence: taken.chain };
        camera.decoding.refreshed = Some((id, taken.chain, now));
        self.send(id, Message::Refresh { frame });
    }
}

impl Camera {
    /// When the camera may be asked for a frame that stands alone, if somebody waits for one.
    pub(super) fn join_due(&self) -> Option<Instant> {
        self.chains.as_ref().filter(|chains| chains.joins)?;
        Some(self.decoding.refreshed.map_or(Instant::ZERO, |(_, _, last)| last + REFRESH_INTERVAL))
    }
}
