//! Decides what happens to the newest frame: it waits, is encoded, is sent, or replaces the frame that
//! is being sent. For a source's own video, also decides about the frames that the newest one needs.

mod candidate;
mod chain;
mod frame_skip;
mod lent;
mod source_chain;
mod unchanged;
mod waiting;

use std::time::Duration;

use self::chain::Chain;
use self::frame_skip::FrameSkip;
use self::lent::Considered;
pub(super) use self::lent::{Lent, Present};
use self::source_chain::SourceChain;
use self::waiting::Waiting;
use super::adapt::{Adapter, EncodePlan, Own, Plan};
use super::connection::{DemandChange, EdgeLink};
use super::ledger::SkipLedger;
use super::types::{CameraOutput, Transform, Transformed};
use crate::broker::LinkId;
use crate::contract::Joint;
use crate::frame::{Epoch, Frame, FrameId, FrameMeta, Quality, Sequence, SkipReason};
use crate::log::Record;
use crate::setting::Form;
use crate::trace::{CameraTrace, Stage};
use crate::units::{ClockAnchor, Instant};
use crate::wire::{FrameHeader, Report};

/// A frame that exceeded its byte budget is encoded again once the link has been silent for this long and no
/// newer frame has come. It is encoded again at once if no newer frame is due by then. The value is
/// [`crate::controller::quantile::SEND_GAP_MAX`] less the time to encode a frame.
const SILENCE_ACCEPTED: Duration = Duration::from_millis(200);

/// The live frames of one camera.
pub(super) struct Live {
    /// The epoch of the frames that the edge accepts. Frames of an earlier one are dropped.
    epoch: Epoch,
    /// Relates capture times to the monotonic clock.
    anchor: ClockAnchor,
    /// The newest frame that has not been sent.
    waiting: Option<Waiting>,
    /// The source's own chain, with the frames that wait behind the newest.
    source_chain: SourceChain,
    /// The frame that is in a codec.
    making: Option<(Frame, EncodePlan)>,
    chain: Chain,
    frame_skip: FrameSkip,
    ledger: SkipLedger,
    /// When to ask the policy again.
    ask_again: Option<Instant>,
    /// The newest frame that was sent as it was published, and was not lost.
    unmodified: Option<FrameId>,
}

impl Live {
    pub(super) fn new(epoch: Epoch, anchor: ClockAnchor) -> Self {
        Self {
            epoch,
            anchor,
            waiting: None,
            source_chain: SourceChain::default(),
            making: None,
            chain: Chain::default(),
            frame_skip: FrameSkip::default(),
            ledger: SkipLedger::default(),
            ask_again: None,
            unmodified: None,
        }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// The present epoch.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The frame that is in a codec.
    pub(super) fn making(&self) -> Option<&EncodePlan> {
        self.making.as_ref().map(|(_, making)| making)
    }

    /// The newest frame that was sent as it was published, and was not lost.
    pub(super) fn unmodified(&self) -> Option<FrameId> {
        self.unmodified
    }

    /// The mean bytes of the frames of a source's own video.
    pub(super) fn source_bytes(&self) -> f64 {
        self.source_chain.mean_bytes()
    }

    /// Whether a frame waits to be sent.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The skip reason that a frame published now gets if it never leaves.
    pub(super) fn reason_to_wait(
        &self,
        now: Instant,
        link: Option<&EdgeLink>,
        frame: &FrameMeta,
    ) -> SkipReason {
        match link {
            None => SkipReason::LinkDown,
            Some(link) if now.saturating_since(link.heard) > link.silence_max() => SkipReason::LinkDown,
            Some(link) if link.demand.contracts.is_empty() => SkipReason::NotWanted,
            Some(link) if link.is_out() => SkipReason::Stalled,
            Some(link) if self.frame_skip.leaves_out(frame, link) => SkipReason::LeftOut,
            Some(_) => SkipReason::LinkBusy,
        }
    }

    /// When [`Live::pump`] may have something to do on a link, if nothing happens before.
    pub(super) fn due(&self, link: &EdgeLink) -> Option<Instant> {
        if self.waiting.is_none() || self.making.is_some() || link.demand.contracts.is_empty() {
            return None;
        }
        self.ask_again.filter(|_| link.is_free())
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// A frame was published. It replaces an older frame that waits, unless it needs that frame.
    pub(super) fn handle_published(
        &mut self,
        now: Instant,
        record: Record,
        reason: SkipReason,
        link: Option<LinkId>,
    ) {
        let newest = Waiting { record, reason, published: now, rests_until: None, is_plain: false };
        if newest.meta().encoding.is_chained() {
            self.source_chain.published(newest.record.frame.payload.len());
        }
        if let Some(older) = self.waiting.take() {
            // Otherwise no frame goes now, and the frames that must go first would only become more.
            let goes = matches!(reason, SkipReason::LinkBusy | SkipReason::LeftOut);
            let skipped = self.source_chain.replace(now, older, newest.meta(), link.filter(|_| goes));
            self.skip_all(skipped);
        }
        self.waiting = Some(newest);
        self.assert_newest_waits();
    }

    /// Records that frames that waited are not sent.
    fn skip_all(&mut self, skipped: Vec<Waiting>) {
        for waiting in skipped {
            self.skip(waiting.id(), waiting.reason);
        }
    }

    /// Records that a frame will not reach the edge completely.
    pub(super) fn skip(&mut self, frame: FrameId, reason: SkipReason) {
        if frame.epoch != self.epoch {
            return;
        }
        self.unmodified.take_if(|sent| *sent == frame);
        self.ledger.add(frame.sequence, reason);
        self.chain.lost(frame.sequence);
        self.source_chain.lost(frame.sequence);
        if self.frame_skip.end_after(frame)
            && let Some(waiting) = &mut self.waiting
            && waiting.reason == SkipReason::LeftOut
        {
            waiting.reason = SkipReason::LinkBusy;
        }
    }

    /// The edge reports how a frame arrives, or that it refuses the frame.
    pub(super) fn handle_report(
        &mut self,
        now: Instant,
        link: &mut EdgeLink,
        adapter: &mut Adapter,
        report: Report,
    ) {
        match report {
            Report::Refused { frame } => {
                if link.refused(now, frame) {
                    adapter.handle_cancelled(now, frame, u64::MAX);
                    self.skip(frame, SkipReason::Refused);
                }
            }
            Report::Progress { frame, .. } | Report::Complete { frame, .. } => {
                if let Some(arrival) = link.arrival(now, report) {
                    adapter.handle_arrival(now, &arrival);
                }
                if link.reported(now, report) {
                    self.handle_arrived(frame);
                }
            }
        }
    }

    /// The edge has a frame.
    fn handle_arrived(&mut self, frame: FrameId) {
        if frame.epoch == self.epoch {
            self.ledger.acknowledged(frame.sequence);
            self.chain.arrived(frame.sequence);
        }
    }

    /// The edge that welcomed the camera knows all frames up to this one, or why they were skipped.
    pub(super) fn handle_known(&mut self, newest: Option<Sequence>) {
        if let Some(newest) = newest {
            self.ledger.acknowledged(newest);
        }
    }

    /// The edge could not decode a frame.
    pub(super) fn handle_refresh(&mut self, now: Instant, link: LinkId, frame: FrameId) {
        if frame.epoch == self.epoch {
            self.chain.refresh(now, link, frame.sequence);
            self.source_chain.refresh(link, frame.sequence);
        }
    }

    /// The applications want something else on the active connection.
    pub(super) fn handle_demand(
        &mut self,
        now: Instant,
        link: &mut EdgeLink,
        adapter: &mut Adapter,
        change: DemandChange,
    ) -> Option<CameraOutput> {
        adapter.forget_seen();
        if change.begins
            && let Some(waiting) = self.waiting.take_if(|waiting| waiting.reason == SkipReason::NotWanted)
        {
            // The frame was captured before any application asked.
            self.skip(waiting.id(), waiting.reason);
        }
        if !change.ends {
            return None;
        }
        // Frames that no application wants do not cross the link, not even the rest of a frame.
        let cancelled = link.give_up_sending();
        if let Some(frame) = cancelled {
            adapter.handle_cancelled(now, frame, 0);
            self.skip(frame, SkipReason::NotWanted);
        }
        for behind in self.source_chain.take_behind() {
            self.skip(behind.id(), SkipReason::NotWanted);
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.reason = SkipReason::NotWanted;
        }
        cancelled.map(|frame| CameraOutput::Reset { link: link.id, frame })
    }

    /// A connection is gone, and with it the frames that were on their way.
    pub(super) fn handle_closed(&mut self, now: Instant, adapter: &mut Adapter, in_flight: Vec<FrameId>) {
        for frame in in_flight {
            adapter.handle_reset(now, frame);
            self.skip(frame, SkipReason::LinkDown);
        }
    }

    /// Gives up the frames on their way on the active connection if it has stalled.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        link: &mut EdgeLink,
        adapter: &mut Adapter,
    ) -> Vec<CameraOutput> {
        let is_stalled = link.stall_due().is_some_and(|due| now >= due);
        let stalled = if is_stalled { link.give_up_stalled(now) } else { Vec::new() };
        for frame in &stalled {
            adapter.handle_reset(now, *frame);
            self.source_chain.gives_way(now, frame.sequence);
            self.skip(*frame, SkipReason::Stalled);
        }
        stalled.into_iter().map(|frame| CameraOutput::Reset { link: link.id, frame }).collect()
    }

    /// A later epoch has begun: forgets everything of earlier ones.
    pub(super) fn handle_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.waiting.take_if(|waiting| waiting.id().epoch != epoch);
        self.source_chain.take_behind();
        self.source_chain.end();
        self.ledger.clear();
        self.chain.end();
    }

    /// Takes the frame that a codec has reported on; `None` if another frame is in the codec.
    pub(super) fn take_made(&mut self, frame: FrameId) -> Option<(Frame, EncodePlan)> {
        self.making.take_if(|(source, _)| source.meta.id == frame)
    }

    /// A codec has encoded a frame ([`Live::take_made`]), or has given up: sends the frame, encodes it again,
    /// or skips it.
    pub(super) fn handle_transformed(
        &mut self,
        lent: Lent<'_>,
        (source, mut making): (Frame, EncodePlan),
        transformed: Transformed,
    ) -> Option<CameraOutput> {
        let Lent { present: Present { now, interval, .. }, link, adapter, .. } = lent;
        let frame = source.meta.id;
        if frame.epoch != self.epoch {
            // The frame was in the codec when a later epoch began. The edge no longer accepts frames of its epoch.
            return None;
        }
        // A codec that has not begun with the frame has changed nothing in its chain.
        let untouched = matches!(transformed, Transformed::NotYet | Transformed::Lacking);
        let chained = making.setting.is_chained() && !untouched;
        self.source_chain.handle_transformed(now, &transformed);
        let (mut again, mut is_plain) = (None, false);
        let reason = match (transformed, link) {
            (_, None) => SkipReason::LinkDown,
            // An outage began while the codec was at work. A newer frame goes when the link is back.
            (Transformed::Made { .. }, Some(link)) if link.is_out() => SkipReason::Stalled,
            (Transformed::Made { payload, encoding, width, height, rung, chain }, Some(link))
                if !link.demand.contracts.is_empty() && (!chained || self.chain.holds(link.id, &chain)) =>
            {
                adapter.handle_made(now, &mut making, (&rung, &chain), payload.len());
                if encoding.is_chained() {
                    let sent = (frame.sequence, source.meta.captured);
                    self.chain.sent(link.id, sent, &chain, making.at);
                }
                let meta = FrameMeta { encoding, width, height, rung, chain, ..source.meta };
                let published = making.published;
                return self.send(now, link, adapter, Frame { meta, payload }, published, Some(&making));
            }
            (Transformed::TooLarge { .. }, Some(link)) => {
                // The frame may succeed with a larger budget. A newer frame is better, if one comes soon.
                let silent_at = link.begun() + SILENCE_ACCEPTED;
                let rests_until = (now + interval <= silent_at).then_some(silent_at);
                let has_more = adapter.handle_too_large(&making)
                    && !link.demand.contracts.is_empty()
                    && self.waiting.is_none();
                again = has_more.then_some((making.published, rests_until));
                SkipReason::NotMade
            }
            (Transformed::NotYet, Some(link)) => {
                adapter.handle_not_yet();
                let goes_on = !link.demand.contracts.is_empty() && self.waiting.is_none();
                again = goes_on.then_some((making.published, None));
                SkipReason::NotMade
            }
            (Transformed::Lacking, Some(_)) => SkipReason::NotMade,
            (Transformed::Failed, Some(link)) => {
                adapter.handle_failed(now, &making);
                // A data record whose knobs have failed goes without them. A newer record is better.
                is_plain = making.setting.is_of_data();
                let goes_on = is_plain && !link.demand.contracts.is_empty() && self.waiting.is_none();
                again = goes_on.then_some((making.published, None));
                SkipReason::NotMade
            }
            (Transformed::Made { .. }, Some(link)) if link.demand.contracts.is_empty() => {
                SkipReason::NotWanted
            }
            // A frame that this one refers to was lost meanwhile.
            (Transformed::Made { .. }, Some(_)) => SkipReason::NotMade,
        };
        if chained {
            self.chain.not_sent(frame.sequence);
        }
        match again {
            Some((published, rests_until)) => {
                let (skipped, quality) = ([].into(), Quality::default());
                let record =
                    Record { frame: source, skipped, quality, trace: None, link_bytes: None, arrived: now };
                self.waiting = Some(Waiting { record, reason, published, rests_until, is_plain });
            }
            None => self.skip(frame, reason),
        }
        None
    }

    // ---- what is to be done -------------------------------------------------------------------------------

    /// Sends the waiting frame if the link is free, or gives it to its codec.
    pub(super) fn pump(&mut self, mut lent: Lent<'_>) -> Vec<CameraOutput> {
        self.ask_again = None;
        let mut outputs = Vec::from_iter(self.cancel_late(&mut lent));
        outputs.extend(self.send_next(lent));
        outputs.extend(self.source_chain.take_question().then_some(CameraOutput::AskKeyFrame));
        self.assert_newest_waits();
        outputs
    }

    /// Cancels the frame that is being sent if it will be late in any case and the waiting frame would not
    /// be. Frames that go unchanged are never cancelled, they only stall: if each took longer than the bound,
    /// none would ever arrive.
    fn cancel_late(&mut self, lent: &mut Lent<'_>) -> Option<CameraOutput> {
        let Lent { present, link, adapter, contracts } = lent;
        let (now, link) = (present.now, link.as_deref_mut()?);
        link.note_pause(now);
        let joint = contracts.joint(link)?;
        let (sending, bytes, unsent_bytes) = link.being_sent(now)?;
        if unsent_bytes == 0 || link.is_out() || self.making.is_some() {
            return None;
        }
        if self.waiting.as_ref()?.id().epoch != self.epoch || sending.epoch != self.epoch {
            return None;
        }
        let instead = Considered::InPlaceOf { frame: sending.sequence, unsent_bytes };
        if !adapter.gives_up(&self.candidate(instead, *present, link, &joint)?) {
            return None;
        }
        adapter.handle_cancelled(now, sending, bytes - unsent_bytes);
        self.source_chain.gives_way(now, sending.sequence);
        link.give_up(sending);
        let link = link.id;
        self.skip(sending, SkipReason::Stalled);
        Some(CameraOutput::Reset { link, frame: sending })
    }

    /// Sends the waiting frame, or gives it to its codec, if the link is free and the policy finds a rung for it.
    fn send_next(&mut self, lent: Lent<'_>) -> Option<CameraOutput> {
        let Lent { present, link, adapter, contracts } = lent;
        let (now, link) = (present.now, link?);
        if link.demand.contracts.is_empty() || self.making.is_some() || !link.is_free() {
            return None;
        }
        self.waiting.take_if(|waiting| waiting.id().epoch != self.epoch);
        let waiting = self.waiting.as_ref()?;
        if let Some(until) = waiting.rests_until.filter(|until| now < *until) {
            self.ask_again = Some(until);
            return None;
        }
        // Otherwise a rung that leaves out every keyframe of its source would never end.
        let begins = self.source_chain.begins(now, waiting.meta());
        if !begins && self.frame_skip.leaves_out(waiting.meta(), link) {
            return None;
        }
        if waiting.meta().encoding.is_picture() {
            let is_video = waiting.meta().encoding.is_chained();
            adapter.see_source(is_video.then(|| self.source_chain.mean_bytes()));
        }
        if let Some(joint) = contracts.prepare(link) {
            let like_this = self.candidate(Considered::OneOfMany, present, link, &joint)?;
            // During an outage the policy cannot tell, and the negotiation stays as it was.
            if let Some(looks) = adapter.kept_by(&like_this, &link.demand.contracts, link.path()) {
                link.kept_bound = contracts.negotiate(now, link, &looks);
            }
        }
        let asked = contracts.joint(link);
        let has_floor = asked.is_some();
        let possible = self.source_chain.own(link.id, self.waiting.as_ref()?, &self.anchor);
        let may = asked.as_ref().is_none_or(|joint| present.profiles.take_source_video(joint));
        let rests = has_floor && self.source_chain.rests(now);
        let own = possible.filter(|_| may).map(|own| Own { rests: rests && own.has_alternative, ..own });
        let possible = own.filter(|own| !own.rests);
        let own = own.filter(|own| own.first_bytes <= link.frame_bytes_max);
        if !has_floor && let Some(next) = self.take_unchanged(now, (link, adapter), own, possible.is_some()) {
            return self.send(now, link, adapter, next.record.frame, next.published, None);
        }
        let joint = asked.unwrap_or_else(|| Joint::without_floor(&link.demand.contracts));
        self.chain.refresh_late(now);
        let next = Considered::Next(own.filter(|_| has_floor));
        let plan = adapter.plan(&self.candidate(next, present, link, &joint)?);
        match plan {
            // The record would be late, and so would those behind it.
            Plan::Send(making) if making.infeasible && self.waiting.as_ref()?.is_plain => {
                let record = self.take_alone(now, possible.is_some())?;
                self.skip(record.id(), SkipReason::NotMade);
                None
            }
            Plan::Wait(until) => {
                self.ask_again = Some(until);
                if !joint.degrade
                    && adapter.seen().is_some_and(|seen| seen.infeasible)
                    && let Some(waiting) = &mut self.waiting
                {
                    waiting.reason = SkipReason::Infeasible;
                }
                None
            }
            Plan::Send(making) if making.setting.form == Form::Original => {
                let Waiting { record: Record { mut frame, .. }, published, .. } =
                    self.take_alone(now, possible.is_some())?;
                if making.setting.skip > 0 {
                    frame.meta.rung = making.setting.rung();
                }
                self.send(now, link, adapter, frame, published, Some(&making))
            }
            Plan::Own(making) => {
                let Waiting { record, published, .. } = self.source_chain.take_first(&mut self.waiting)?;
                self.send(now, link, adapter, record.frame, published, Some(&making))
            }
            Plan::Send(mut making) => {
                making.infeasible &= has_floor;
                self.make(now, (link, adapter), *making, possible.is_some())
            }
        }
    }

    /// Gives the waiting frame to its codec. Skips the frames behind it. `is_refused`: its source's chain could have gone as it is.
    fn make(
        &mut self,
        now: Instant,
        (link, adapter): (&EdgeLink, &mut Adapter),
        mut making: EncodePlan,
        is_refused: bool,
    ) -> Option<CameraOutput> {
        let Waiting { record: Record { frame, .. }, published, .. } = self.waiting.take()?;
        adapter.goes(true, frame.meta.encoding.is_chained());
        if frame.meta.encoding.is_chained() || self.source_chain.has_behind() {
            let behind = self.source_chain.give_up(now, is_refused);
            self.skip_all(behind);
        }
        making.published = published;
        let EncodePlan { setting, deadline, anchor_bytes_max, .. } = making;
        let bytes_max = making.bytes_max.unwrap_or(u32::MAX).min(link.frame_bytes_max);
        self.making = Some((frame.clone(), making));
        let reference = self.chain.reference(link.id, frame.meta.captured);
        let news = self.chain.take_news();
        let transform = Transform { frame, setting, reference, news, bytes_max, anchor_bytes_max, deadline };
        Some(CameraOutput::Transform(Box::new(transform)))
    }

    /// Gives a frame to the link. The broker found it in the log at `published`.
    fn send(
        &mut self,
        now: Instant,
        link: &mut EdgeLink,
        adapter: &mut Adapter,
        frame: Frame,
        published: Instant,
        making: Option<&EncodePlan>,
    ) -> Option<CameraOutput> {
        let id = frame.meta.id;
        if frame.payload.len() > link.frame_bytes_max as usize {
            self.skip(id, SkipReason::Refused);
            return None;
        }
        let payload_bytes = frame.payload.len() as u32;
        link.begin(now, id, frame.payload.len());
        let is_original = making.is_none_or(|making| making.setting.form == Form::Original);
        if is_original {
            adapter.goes(false, frame.meta.encoding.is_chained());
        }
        match (is_original, frame.meta.encoding.is_chained()) {
            (true, true) => {
                // The edge takes no frame of an earlier chain after this.
                self.chain.end();
                self.source_chain.sent(now, link.id, &frame.meta);
            }
            (true, false) => self.unmodified = Some(id),
            (false, _) => {}
        }
        self.frame_skip.begin(&frame.meta, making.map_or(0, |making| making.setting.skip), link);
        let covered = |waiting: &&mut Waiting| self.frame_skip.covers(waiting.meta());
        if let Some(waiting) = self.waiting.as_mut().filter(covered) {
            // The waiting frame was published while the sent one was in the codec.
            waiting.reason = SkipReason::LeftOut;
        }
        let mut trace = CameraTrace::default();
        trace.stamp(Stage::Published, published);
        if let Some(making) = making {
            trace.stamp(Stage::Considered, making.begun);
        }
        let header = FrameHeader {
            payload_bytes,
            sent: now,
            expected_accuracy: making.and_then(|making| making.expected_accuracy),
            infeasible: making.is_some_and(|making| making.infeasible),
            skipped: self.ledger.before(id.sequence),
            meta: frame.meta,
            history: 0,
            trace,
        };
        let path = (link.window, link.first_packet(&header));
        adapter.handle_sent(now, id, payload_bytes, path, making);
        Some(CameraOutput::SendFrame { link: link.id, header: Box::new(header), payload: frame.payload })
    }

    /// Asserts that the waiting frame is newer than the one in the codec. Frames come in the log's order. A
    /// frame that enters a codec no longer waits, and a frame is encoded again only if no newer one waits.
    fn assert_newest_waits(&self) {
        let making = self.making.as_ref().map(|(frame, _)| frame.meta.id);
        let waiting = self.waiting.as_ref().map(Waiting::id);
        debug_assert!(making.zip(waiting).is_none_or(|(making, waiting)| making < waiting));
    }
}
