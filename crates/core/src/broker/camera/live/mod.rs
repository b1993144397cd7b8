//! Decides what becomes of the newest frame: it waits, is made smaller, goes onto the link, or takes the place of the one that is being sent.

mod chain;
mod frame_skip;

use std::time::Duration;

use self::chain::Chain;
use self::frame_skip::FrameSkip;
use super::adapt::{Adapter, Candidate, Making, Plan, Profiles};
use super::connection::Link;
use super::ledger::SkipLedger;
use super::negotiation::Negotiation;
use super::types::{CameraOutput, Transform, Transformed};
use crate::broker::{LinkId, SILENCE_MAX};
use crate::contract::Joint;
use crate::frame::{Epoch, Frame, FrameId, FrameMeta, Quality, Sequence, SkipReason};
use crate::log::Record;
use crate::setting::Form;
use crate::trace::{CameraTrace, Stage};
use crate::units::{ClockAnchor, Instant};
use crate::wire::FrameHeader;

/// A frame that did not fit is made again once the link has been silent for this, if no newer one has come; at once where none will have
/// come by then: [`crate::controller::quantile::SILENCE_MAX`], less what making one takes.
const SILENCE_ACCEPTED: Duration = Duration::from_millis(200);

/// What the way of a live frame is lent of the other parts.
pub(super) struct Lent<'a> {
    pub(super) present: Present<'a>,
    /// The active connection.
    pub(super) link: Option<&'a mut Link>,
    pub(super) adapter: &'a mut Adapter,
    pub(super) negotiation: &'a mut Negotiation,
}

/// What is so at present, whichever frame it is about.
#[derive(Clone, Copy)]
pub(super) struct Present<'a> {
    pub(super) now: Instant,
    /// The usual time between frames.
    pub(super) interval: Duration,
    pub(super) profiles: &'a Profiles,
}

/// The newest frame that has not been sent.
struct Waiting {
    record: Record,
    /// Why it was not sent at once, which becomes the reason if a newer frame takes its place.
    reason: SkipReason,
    /// When it was found in the log.
    published: Instant,
    /// It was made and did not fit: it is not made again before this.
    rests_until: Option<Instant>,
}

impl Waiting {
    fn id(&self) -> FrameId {
        self.record.frame.meta.id
    }
}

/// As what the waiting frame is considered.
#[derive(Clone, Copy)]
enum Considered {
    /// To be sent next.
    Next,
    /// In place of the one that is being sent, of which so many bytes have not left.
    InPlaceOf { frame: Sequence, unsent_bytes: u64 },
    /// As one of many like it, each of them given to an idle link as soon as it is captured.
    OneOfMany,
}

/// The live frames of one camera.
pub(super) struct Live {
    /// Of the frames that the edge takes; those of an earlier one are dropped.
    epoch: Epoch,
    /// Relates capture times to the monotonic clock.
    anchor: ClockAnchor,
    waiting: Option<Waiting>,
    /// The frame that a codec is at work on.
    making: Option<(Frame, Making)>,
    chain: Chain,
    frame_skip: FrameSkip,
    ledger: SkipLedger,
    /// When the policy wants to be asked again.
    ask_again: Option<Instant>,
}

impl Live {
    pub(super) fn new(epoch: Epoch, anchor: ClockAnchor) -> Self {
        Self {
            epoch,
            anchor,
            waiting: None,
            making: None,
            chain: Chain::default(),
            frame_skip: FrameSkip::default(),
            ledger: SkipLedger::default(),
            ask_again: None,
        }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// The present epoch.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The frame that a codec is at work on.
    pub(super) fn making(&self) -> Option<&Making> {
        self.making.as_ref().map(|(_, making)| making)
    }

    /// Whether a frame waits to be sent.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Why a frame that was just published would wait.
    pub(super) fn reason_to_wait(&self, now: Instant, link: Option<&Link>, frame: FrameId) -> SkipReason {
        match link {
            None => SkipReason::LinkDown,
            Some(link) if now.saturating_since(link.heard) > SILENCE_MAX => SkipReason::LinkDown,
            Some(link) if link.demand.contracts.is_empty() => SkipReason::NotWanted,
            Some(link) if link.is_out() => SkipReason::Stalled,
            Some(link) if self.frame_skip.leaves_out(frame, link) => SkipReason::LeftOut,
            Some(_) => SkipReason::LinkBusy,
        }
    }

    /// When [`Live::pump`] may have something to do on a link, if nothing happens before.
    pub(super) fn due(&self, link: &Link) -> Option<Instant> {
        if self.waiting.is_none() || self.making.is_some() || link.demand.contracts.is_empty() {
            return None;
        }
        // While the link is out both have to be over: its pause, and the policy's.
        link.retry_due().max(self.ask_again).filter(|again| link.is_free(*again))
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// A frame was published. It takes the place of an older one.
    pub(super) fn handle_published(&mut self, now: Instant, record: Record, reason: SkipReason) {
        let newest = Waiting { record, reason, published: now, rests_until: None };
        if let Some(older) = self.waiting.replace(newest) {
            self.skip(older.id(), older.reason);
        }
        self.assert_newest_waits();
    }

    /// A frame will not reach the edge, or not in full.
    pub(super) fn skip(&mut self, frame: FrameId, reason: SkipReason) {
        if frame.epoch != self.epoch {
            return;
        }
        self.ledger.add(frame.sequence, reason);
        self.chain.lost(frame.sequence);
        if self.frame_skip.end_after(frame)
            && let Some(waiting) = &mut self.waiting
            && waiting.reason == SkipReason::LeftOut
        {
            waiting.reason = SkipReason::LinkBusy;
        }
    }

    /// The edge has a frame.
    pub(super) fn handle_arrived(&mut self, frame: FrameId) {
        if frame.epoch == self.epoch {
            self.ledger.acknowledged(frame.sequence);
            self.chain.arrived(frame.sequence);
        }
    }

    /// The edge that has welcomed the camera knows what became of all frames up to this one.
    pub(super) fn handle_known(&mut self, newest: Sequence) {
        self.ledger.acknowledged(newest);
    }

    /// The edge could not decode a frame.
    pub(super) fn handle_refresh(&mut self, now: Instant, link: LinkId, frame: FrameId) {
        if frame.epoch == self.epoch {
            self.chain.refresh(now, link, frame.sequence);
        }
    }

    /// Frames are wanted, which were not.
    pub(super) fn handle_wanted(&mut self) {
        if let Some(waiting) = self.waiting.take_if(|waiting| waiting.reason == SkipReason::NotWanted) {
            // It was captured before anybody asked.
            self.skip(waiting.id(), waiting.reason);
        }
    }

    /// Frames are not wanted any more.
    pub(super) fn handle_unwanted(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.reason = SkipReason::NotWanted;
        }
    }

    /// A later epoch has begun: nothing of an earlier one counts any more.
    pub(super) fn handle_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.waiting.take_if(|waiting| waiting.id().epoch != epoch);
        self.ledger.clear();
        self.chain.end();
    }

    /// The frame that a codec was at work on and has reported; `None` if it was not this one.
    pub(super) fn take_made(&mut self, frame: FrameId) -> Option<(Frame, Making)> {
        self.making.take_if(|(source, _)| source.meta.id == frame)
    }

    /// A codec is done with a frame ([`Live::take_made`]), or has given up.
    pub(super) fn handle_transformed(
        &mut self,
        lent: Lent<'_>,
        (source, mut making): (Frame, Making),
        transformed: Transformed,
    ) -> Option<CameraOutput> {
        let Lent { present: Present { now, interval, .. }, link, adapter, .. } = lent;
        let frame = source.meta.id;
        if frame.epoch != self.epoch {
            // It was being made when a later epoch began, of which the edge takes frames from now on.
            return None;
        }
        let chained = making.setting.is_chained();
        let mut again = None;
        let reason = match (transformed, link) {
            (_, None) => SkipReason::LinkDown,
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
                // With more room it may do. A newer frame is better, where one comes soon.
                let silent_at = link.begun() + SILENCE_ACCEPTED;
                let rests_until = (now + interval <= silent_at).then_some(silent_at);
                let has_more = adapter.handle_too_large(&making)
                    && !link.demand.contracts.is_empty()
                    && self.waiting.is_none();
                again = has_more.then_some((making.published, rests_until));
                SkipReason::NotMade
            }
            (Transformed::Failed, Some(_)) => {
                adapter.handle_failed(now, &making);
                SkipReason::NotMade
            }
            (Transformed::Made { .. }, Some(link)) if link.demand.contracts.is_empty() => {
                SkipReason::NotWanted
            }
            // What it refers to was lost while it was made.
            (Transformed::Made { .. }, Some(_)) => SkipReason::NotMade,
        };
        if chained {
            self.chain.not_sent(frame.sequence);
        }
        match again {
            Some((published, rests_until)) => {
                let (skipped, quality) = ([].into(), Quality::default());
                let record = Record { frame: source, skipped, quality, trace: None, arrived: now };
                self.waiting = Some(Waiting { record, reason, published, rests_until });
            }
            None => self.skip(frame, reason),
        }
        None
    }

    // ---- what is to be done -------------------------------------------------------------------------------

    /// Sends the waiting frame if the link is free for it, or has it made ready.
    pub(super) fn pump(&mut self, mut lent: Lent<'_>) -> Vec<CameraOutput> {
        self.ask_again = None;
        let mut outputs = Vec::from_iter(self.cancel_late(&mut lent));
        outputs.extend(self.send_next(lent));
        self.assert_newest_waits();
        outputs
    }

    /// Cancels the frame that is being sent where it will be late whatever happens and the one that waits would not be. Frames that go as
    /// they are only stall: where each of them takes longer than the bound, none would ever arrive.
    fn cancel_late(&mut self, lent: &mut Lent<'_>) -> Option<CameraOutput> {
        let Lent { present, link, adapter, negotiation } = lent;
        let (now, link) = (present.now, link.as_deref_mut()?);
        link.note_pause(now);
        let wish = negotiation.joint(link)?;
        let (sending, bytes, unsent_bytes) = link.being_sent(now)?;
        if unsent_bytes == 0 || link.is_out() || self.making.is_some() {
            return None;
        }
        if self.waiting.as_ref()?.id().epoch != self.epoch || sending.epoch != self.epoch {
            return None;
        }
        let instead = Considered::InPlaceOf { frame: sending.sequence, unsent_bytes };
        if !adapter.gives_up(&self.candidate(instead, *present, link, &wish)?) {
            return None;
        }
        adapter.handle_cancelled(now, sending, bytes - unsent_bytes);
        link.give_up(sending);
        let link = link.id;
        self.skip(sending, SkipReason::Stalled);
        Some(CameraOutput::Reset { link, frame: sending })
    }

    /// Sends the waiting frame, or gives it to its codec, if the link is free and the policy finds a rung for it.
    fn send_next(&mut self, lent: Lent<'_>) -> Option<CameraOutput> {
        let Lent { present, link, adapter, negotiation } = lent;
        let (now, link) = (present.now, link?);
        if link.demand.contracts.is_empty() || self.making.is_some() || !link.is_free(now) {
            return None;
        }
        self.waiting.take_if(|waiting| waiting.id().epoch != self.epoch);
        let waiting = self.waiting.as_ref()?;
        if let Some(until) = waiting.rests_until.filter(|until| now < *until) {
            self.ask_again = Some(until);
            return None;
        }
        if self.frame_skip.leaves_out(waiting.id(), link) {
            return None;
        }
        if let Some(wish) = negotiation.prepare(link) {
            let like_this = self.candidate(Considered::OneOfMany, present, link, &wish)?;
            // While the link is out nothing is known: it stays as it was.
            if let Some(looks) = adapter.kept_by(&like_this, &link.demand.contracts) {
                link.kept_bound = negotiation.settle(now, link, &looks);
            }
        }
        let Some(wish) = negotiation.joint(link) else {
            let Waiting { record, published, .. } = self.waiting.take()?;
            return self.send(now, link, adapter, record.frame, published, None);
        };
        self.chain.refresh_late(now);
        let plan = adapter.plan(&self.candidate(Considered::Next, present, link, &wish)?);
        match plan {
            Plan::Wait(until) => {
                self.ask_again = Some(until);
                if !wish.degrade
                    && adapter.seen().is_some_and(|seen| seen.infeasible)
                    && let Some(waiting) = &mut self.waiting
                {
                    waiting.reason = SkipReason::Infeasible;
                }
                None
            }
            Plan::Send(making) if making.setting.form == Form::Original => {
                let Waiting { record: Record { mut frame, .. }, published, .. } = self.waiting.take()?;
                if making.setting.skip > 0 {
                    frame.meta.rung = making.setting.rung();
                }
                self.send(now, link, adapter, frame, published, Some(&making))
            }
            Plan::Send(making) => self.make(link, *making),
        }
    }

    /// What the policy is offered with the waiting frame. No other place decides this.
    fn candidate<'a>(
        &'a self,
        considered: Considered,
        present: Present<'a>,
        link: &Link,
        wish: &'a Joint,
    ) -> Option<Candidate<'a>> {
        let Present { now, interval, profiles } = present;
        let frame = &self.waiting.as_ref()?.record.frame;
        let captured = frame.meta.captured;
        let captured_at = self.anchor.instant_at(captured);
        let (before, captured, unsent_bytes, window) = match considered {
            Considered::Next => (self.chain.goes_on(link.id, captured), captured_at, 0, link.window),
            Considered::InPlaceOf { frame, unsent_bytes } => {
                let before = self.chain.goes_on_without(link.id, captured, frame);
                (before, captured_at, unsent_bytes, link.window)
            }
            Considered::OneOfMany => (None, now, 0, None),
        };
        Some(Candidate { now, wish, profiles, frame, before, captured, interval, unsent_bytes, window })
    }

    /// Gives the waiting frame to its codec.
    fn make(&mut self, link: &Link, mut making: Making) -> Option<CameraOutput> {
        let Waiting { record: Record { frame, .. }, published, .. } = self.waiting.take()?;
        making.published = published;
        let (setting, deadline) = (making.setting, making.deadline);
        let bytes_max = making.bytes_max.unwrap_or(u32::MAX).min(link.frame_bytes_max);
        self.making = Some((frame.clone(), making));
        let reference = self.chain.reference(link.id, frame.meta.captured);
        let news = self.chain.take_news();
        let transform = Transform { frame, setting, reference, news, bytes_max, deadline };
        Some(CameraOutput::Transform(Box::new(transform)))
    }

    /// Gives a frame to the link, which was found in the log at `published`.
    fn send(
        &mut self,
        now: Instant,
        link: &mut Link,
        adapter: &mut Adapter,
        frame: Frame,
        published: Instant,
        making: Option<&Making>,
    ) -> Option<CameraOutput> {
        let id = frame.meta.id;
        if frame.payload.len() > link.frame_bytes_max as usize {
            self.skip(id, SkipReason::Refused);
            return None;
        }
        let payload_bytes = frame.payload.len() as u32;
        link.begin(now, id, frame.payload.len());
        self.frame_skip.begin(id, making.map_or(0, |making| making.setting.skip), link);
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| self.frame_skip.covers(waiting.id())) {
            // It was published while that one was being made.
            waiting.reason = SkipReason::LeftOut;
        }
        adapter.handle_sent(now, id, payload_bytes, link.window, making);
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
        Some(CameraOutput::SendFrame { link: link.id, header: Box::new(header), payload: frame.payload })
    }

    /// Frames come in the log's order, one that is given to its codec waits no longer, and one that is to be made again waits only where no
    /// newer one does: what waits is newer than what is being made.
    fn assert_newest_waits(&self) {
        let making = self.making.as_ref().map(|(frame, _)| frame.meta.id);
        let waiting = self.waiting.as_ref().map(Waiting::id);
        debug_assert!(making.zip(waiting).is_none_or(|(making, waiting)| making < waiting));
    }
}
