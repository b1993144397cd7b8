//! Frames of the past that the edge asks for: one at a time has unsent bytes, behind live frames, with a bounded share of the link.
//! The next one is looked for meanwhile, and made into what was asked for (`making.rs`).

mod making;

use std::collections::VecDeque;
use std::time::Duration;

use self::making::Making;
use super::connection::Link;
use super::ledger::SkipLedger;
use super::{CameraBroker, CameraOutput};
use crate::broker::LinkId;
use crate::frame::{Epoch, FrameId, SkipRange, SkipReason};
use crate::history::PastAnswer;
use crate::log::Record;
use crate::setting::Setting;
use crate::trace::CameraTrace;
use crate::units::{Instant, Timestamp};
use crate::wire::{FrameHeader, HistoryCode, HistoryEnd, HistoryRequest, Message};

/// Questions for the past that may wait at a camera; one more is answered with [`HistoryCode::Busy`].
pub const HISTORY_REQUESTS_MAX: usize = 16;
/// Frames that one request may ask for; of more, these come.
pub const HISTORY_FRAMES_MAX: u16 = 32;
/// The part of the time for which frames of the past may use the link, beside live ones. Default a quarter.
pub const HISTORY_SHARE: f64 = 0.25;
/// The least that this part may be: a hundredth.
pub const HISTORY_SHARE_MIN: f64 = 0.01;

/// The past never waits longer for its turn. What took so long that it should was not working but standing still.
const REST_MAX: Duration = Duration::from_secs(60);

/// Requests that were answered in full and may yet be continued.
const ENDS_MAX: usize = HISTORY_REQUESTS_MAX;
/// Frames that are looked for while another one leaves.
const READY_MAX: usize = 1;

/// A request of the edge, with what is left of it.
struct Asked {
    link: LinkId,
    /// The number of its first frame.
    first: u64,
    /// What the next frame answers: its number, and what it comes behind.
    next: HistoryRequest,
    /// What its rung says.
    setting: Setting,
    /// Frames behind the last one that was found that cannot be sent, all of one epoch.
    skipped: (Epoch, SkipLedger),
}

impl Asked {
    fn skip(&mut self, id: FrameId, reason: SkipReason) {
        if self.skipped.0 != id.epoch {
            self.skipped = (id.epoch, SkipLedger::default());
        }
        self.skipped.1.add(id.sequence, reason);
    }

    /// What was skipped before this frame.
    fn take_skipped(&mut self, before: FrameId) -> Vec<SkipRange> {
        let (epoch, skipped) = std::mem::take(&mut self.skipped);
        if epoch == before.epoch { skipped.before(before.sequence) } else { Vec::new() }
    }
}

impl Asked {
    /// The number after the last that it may be answered with.
    fn end(&self) -> u64 {
        self.next.request.saturating_add(self.next.count.into())
    }
}

/// A frame that was found and waits for the link to have nothing better to do.
struct Ready {
    link: LinkId,
    request: u64,
    record: Box<Record>,
    skipped: Vec<SkipRange>,
}

/// The edge's questions.
pub(super) struct History {
    /// The oldest first, which is looked after until it is answered in full.
    asked: VecDeque<Asked>,
    /// Whether the log is being looked at for the first of them, or what was found is being made into something else.
    looking: bool,
    making: Making,
    ready: VecDeque<Ready>,
    /// What requests that were answered in full ended with: the number after theirs, and their last frame.
    ends: VecDeque<(LinkId, u64, FrameId)>,
    /// What was given to the link and has bytes that have not left, and since when.
    sending: Option<(LinkId, u64, Instant)>,
    share: f64,
    /// Epochs from this one on, up to the one at hand, were begun by mistake: an earlier start has used their numbers, so that two
    /// frames have the same name.
    doubtful_from: Option<Epoch>,
    /// Counts what was looked for: an answer may come when nobody waits for it any more.
    ticket: u64,
    /// Before this, frames of the past would take more than their share.
    rests_until: Instant,
}

impl History {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            asked: VecDeque::new(),
            looking: false,
            making: Making::new(now),
            ready: VecDeque::new(),
            ends: VecDeque::new(),
            sending: None,
            share: HISTORY_SHARE,
            doubtful_from: None,
            ticket: 0,
            rests_until: now,
        }
    }

    /// The epoch at hand turned out to be one that an earlier start had used.
    pub(super) fn epoch_raised(&mut self, used: Epoch) {
        self.doubtful_from = Some(self.doubtful_from.map_or(used, |from| from.min(used)));
    }

    /// When the next frame may be made, if nothing else keeps it.
    pub(super) fn making_due(&self) -> Option<Instant> {
        self.making.due()
    }

    /// When a frame that waits may be sent, if nothing else keeps it.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.sending.is_none() && !self.ready.is_empty()).then_some(self.rests_until)
    }
}

impl CameraBroker {
    /// Sets the part of the time for which frames of the past may use the link beside live ones, above 0 and at most 1. Default
    /// [`HISTORY_SHARE`]. More of it means that the past comes sooner and that live frames are smaller or fewer meanwhile.
    pub fn set_history_share(&mut self, share: f64) {
        self.history.share =
            if share.is_finite() { share.clamp(HISTORY_SHARE_MIN, 1.0) } else { HISTORY_SHARE };
    }

    /// What the log holds of the past that [`CameraOutput::ReadHistory`] asked for.
    pub fn handle_history(&mut self, now: Instant, ticket: u64, answer: PastAnswer) {
        if !self.history.looking || self.history.ticket != ticket {
            return;
        }
        let Some(setting) = self.history.asked.front().map(|asked| asked.setting) else { return };
        let Some(record) = answer.record else {
            return self.end_history(HistoryCode::None, answer.held_from);
        };
        let id = record.frame.meta.id;
        let is_doubtful =
            id.epoch < self.live.epoch() && self.history.doubtful_from.is_some_and(|from| id.epoch >= from);
        if is_doubtful {
            self.pass_over(id, None);
        } else if setting == Setting::ORIGINAL {
            self.found(now, record);
        } else {
            self.history.making.found(ticket, record);
            self.pump(now);
        }
    }

    /// The next frame of the first request, as it is to be sent.
    fn found(&mut self, now: Instant, record: Record) {
        let Some(asked) = self.history.asked.front_mut() else { return };
        let id = record.frame.meta.id;
        let link = asked.link;
        let bytes_max = self.connections.get(link).map_or(0, |known| known.frame_bytes_max);
        if record.frame.payload.len() > bytes_max as usize {
            return self.pass_over(id, Some(SkipReason::Refused));
        }
        let request = asked.next.request;
        asked.next.query.after = Some(id);
        asked.next.request = request.saturating_add(1);
        asked.next.count -= 1;
        let skipped = asked.take_skipped(id);
        if asked.next.count == 0 {
            let end = (link, asked.next.request, id);
            self.history.asked.pop_front();
            if self.history.ends.len() >= ENDS_MAX {
                self.history.ends.pop_front();
            }
            self.history.ends.push_back(end);
        }
        self.history.looking = false;
        self.history.ready.push_back(Ready { link, request, record: Box::new(record), skipped });
        self.look_on();
        self.pump(now);
    }

    /// A frame cannot be sent. That keeps nobody from what comes behind it.
    fn pass_over(&mut self, id: FrameId, reason: Option<SkipReason>) {
        let Some(asked) = self.history.asked.front_mut() else { return };
        if asked.next.query.newest {
            return self.end_history(HistoryCode::TooLarge, None);
        }
        asked.next.query.after = Some(id);
        if let Some(reason) = reason {
            asked.skip(id, reason);
        }
        self.history.looking = false;
        self.look_on();
    }

    /// The last byte of a frame of the past has left.
    pub fn handle_history_sent(&mut self, now: Instant, link: LinkId, request: u64) {
        let sending = self.history.sending.take_if(|(of, number, _)| (*of, *number) == (link, request));
        if let Some((_, _, begun)) = sending {
            let took = now.saturating_since(begun);
            self.history.rests_until = now + self.rest_after(took);
            self.pump(now);
        }
    }

    /// How long the link is left to others after it was used for so long. Where nobody wants live frames there are no others.
    fn rest_after(&self, took: Duration) -> Duration {
        if self.demand().is_none() {
            return Duration::ZERO;
        }
        took.mul_f64(1.0 / self.history.share - 1.0).min(REST_MAX)
    }

    pub(super) fn ask_history(&mut self, link: LinkId, mut request: HistoryRequest) {
        if request.request == 0 {
            // A frame with this number would be taken for a live one.
            return;
        }
        if request.count == 0 {
            return self.withdraw_history(link, request.request);
        }
        let mut lost = false;
        if request.continues {
            let goes_on = |asked: &&mut Asked| asked.link == link && asked.end() == request.request;
            if let Some(asked) = self.history.asked.iter_mut().find(goes_on) {
                let room = HISTORY_FRAMES_MAX.saturating_mul(2).saturating_sub(asked.next.count);
                asked.next.count += request.count.min(room);
                return;
            }
            let end =
                self.history.ends.iter().position(|(of, next, _)| (*of, *next) == (link, request.request));
            let end = end.and_then(|place| self.history.ends.remove(place));
            request.query.after = end.map(|(.., last)| last);
            lost = end.is_none();
        }
        let setting = request.rung.setting().ok().filter(Setting::stands_alone);
        let refused = if lost {
            Some(HistoryCode::None)
        } else if setting.is_none() {
            Some(HistoryCode::Rung)
        } else if self.history.asked.len() >= HISTORY_REQUESTS_MAX {
            Some(HistoryCode::Busy)
        } else {
            None
        };
        if let Some(code) = refused {
            let end = HistoryEnd { request: request.request, code, held_from: None };
            return self.outputs.push_back(CameraOutput::Send { link, message: Message::HistoryEnd(end) });
        }
        let count = if request.query.newest { 1 } else { request.count.min(HISTORY_FRAMES_MAX) };
        let (first, setting) = (request.request, setting.unwrap_or(Setting::ORIGINAL));
        let next = HistoryRequest { count, ..request };
        self.history.asked.push_back(Asked { link, first, next, setting, skipped: Default::default() });
        self.look_on();
    }

    /// Nobody wants the rest of what a request asked for.
    fn withdraw_history(&mut self, link: LinkId, number: u64) {
        let holds = |asked: &Asked| asked.link == link && (asked.first..asked.end()).contains(&number);
        let withdrawn = self.history.asked.iter().position(holds);
        if withdrawn == Some(0) {
            self.history.looking = false;
        }
        withdrawn.and_then(|place| self.history.asked.remove(place));
        self.look_on();
    }

    /// Whether the link has nothing better to do than to carry a frame of the past.
    pub(super) fn history_can_go(&self) -> bool {
        let wants_live = self.live.making().is_some() || self.live.is_waiting() && self.demand().is_some();
        let link = self.history.ready.front().map(|ready| ready.link);
        let is_idle = |known: &Link| Some(known.id) == link && !known.is_sending() && !known.is_out();
        !wants_live && self.history.sending.is_none() && self.active_link().is_some_and(is_idle)
    }

    /// Gives a frame of the past to the link, if that is free of live ones, and the next one to its codec.
    pub(super) fn pump_history(&mut self, now: Instant) {
        self.pump_making(now);
        if !self.history_can_go() || now < self.history.rests_until {
            return;
        }
        let Some(Ready { link, request, record, skipped }) = self.history.ready.pop_front() else { return };
        self.history.sending = Some((link, request, now));
        let frame = record.frame;
        let header = FrameHeader {
            payload_bytes: frame.payload.len() as u32,
            sent: now,
            expected_accuracy: None,
            infeasible: false,
            skipped,
            meta: frame.meta,
            history: request,
            trace: CameraTrace::default(),
        };
        let payload = frame.payload;
        self.outputs.push_back(CameraOutput::SendFrame { link, header: Box::new(header), payload });
        self.look_on();
    }

    /// Forgets what was asked for on a connection that is gone.
    pub(super) fn forget_history(&mut self, link: LinkId) {
        if self.history.asked.front().is_some_and(|asked| asked.link == link) {
            self.history.looking = false;
        }
        self.history.asked.retain(|asked| asked.link != link);
        self.history.ready.retain(|ready| ready.link != link);
        self.history.ends.retain(|(of, ..)| *of != link);
        self.history.sending.take_if(|(of, ..)| *of == link);
        self.look_on();
    }

    /// Ends the first request: no frame answers its next number, and so none the later ones.
    fn end_history(&mut self, code: HistoryCode, held_from: Option<Timestamp>) {
        self.history.looking = false;
        if let Some(asked) = self.history.asked.pop_front() {
            let end = HistoryEnd { request: asked.next.request, code, held_from };
            self.outputs
                .push_back(CameraOutput::Send { link: asked.link, message: Message::HistoryEnd(end) });
        }
        self.look_on();
    }

    /// Looks for the next frame, unless one waits already.
    fn look_on(&mut self) {
        if self.history.looking || self.history.ready.len() >= READY_MAX {
            return;
        }
        if let Some(asked) = self.history.asked.front() {
            self.history.looking = true;
            self.history.ticket += 1;
            let (ticket, query) = (self.history.ticket, asked.next.query);
            self.outputs.push_back(CameraOutput::ReadHistory { ticket, query });
        }
    }
}
