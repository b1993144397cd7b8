//! Decides which frame of the past is sent next, and when. One frame is sent at a time, behind live
//! frames, with a bounded share of the link. Meanwhile the next one is looked up in the log and encoded.
//!
//! Readers that want originals beside a contract ask for the original of the newest frame in the same
//! way. It is looked up only when the link is free for it, because a newer frame may be published before.

mod codec;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use self::codec::PastCodec;
use super::connection::{Connections, EdgeLink};
use super::ledger::SkipLedger;
use super::types::{CameraOutput, Transformed};
use crate::broker::LinkId;
use crate::frame::{Epoch, Frame, FrameId, FrameMeta, SkipRange, SkipReason};
use crate::history::{PastAnswer, still_of_video};
use crate::log::Record;
use crate::setting::{DeclaredKnobs, Form, Setting};
use crate::trace::CameraTrace;
use crate::units::{Instant, Timestamp};
use crate::wire::{FrameHeader, HistoryCode, HistoryEnd, HistoryRequest, Message};

/// The most requests for the past that may wait at a camera. A further one is answered with
/// [`HistoryCode::Busy`].
pub const HISTORY_REQUESTS_MAX: usize = 16;
/// The most frames that one request may ask for. A request for more gets this many.
pub const HISTORY_FRAMES_MAX: u16 = 32;
/// The default share of the time for which frames of the past may use the link beside live ones: a quarter.
pub const HISTORY_SHARE: f64 = 0.25;
/// The smallest share that can be set for frames of the past. With 0, the pause between two of them would be
/// endless.
pub const HISTORY_SHARE_MIN: f64 = 0.01;

/// The longest pause between two frames of the past. After a very long transfer, the share alone would demand
/// more; but then the link mostly stood still.
const REST_MAX: Duration = Duration::from_secs(60);

/// The most completed requests that are remembered, so that a later request can continue them.
const ENDS_MAX: usize = HISTORY_REQUESTS_MAX;
/// The most frames that are looked up ahead while another one is being sent.
const READY_MAX: usize = 1;

/// A request of the edge, and what is left of it.
struct Asked {
    link: LinkId,
    /// The number of its first frame.
    first: u64,
    /// The rest of the request: the number of the next frame, and the frame after which it comes.
    next: HistoryRequest,
    /// The setting of its rung.
    setting: Setting,
    /// Frames after the last found one that cannot be sent, all of one epoch.
    skipped: (Epoch, SkipLedger),
}

impl Asked {
    fn skip(&mut self, id: FrameId, reason: SkipReason) {
        if self.skipped.0 != id.epoch {
            self.skipped = (id.epoch, SkipLedger::default());
        }
        self.skipped.1.add(id.sequence, reason);
    }

    /// The skips before this frame.
    fn take_skipped(&mut self, before: FrameId) -> Vec<SkipRange> {
        let (epoch, skipped) = std::mem::take(&mut self.skipped);
        if epoch == before.epoch { skipped.before(before.sequence) } else { Vec::new() }
    }

    /// Whether the request is for the original of the newest frame.
    fn is_for_present(&self) -> bool {
        self.next.query.is_for_present() && self.setting == Setting::ORIGINAL
    }

    /// The setting at which a codec encodes a frame for this request. `is_video`: the frame is of a source's own video.
    fn makes(&self, is_video: bool) -> Setting {
        let has_none = self.setting == Setting::ORIGINAL || self.setting.is_of_data();
        if is_video && has_none { still_of_video() } else { self.setting }
    }

    /// One past the number of the last frame that may answer the request.
    fn end(&self) -> u64 {
        self.next.request.saturating_add(self.next.count.into())
    }
}

/// A frame that was found and waits until the link is idle.
struct Ready {
    link: LinkId,
    request: u64,
    record: Box<Record>,
    skipped: Vec<SkipRange>,
}

/// The state of the live frames, which go before those of the past.
#[derive(Clone, Copy)]
pub(super) struct LiveTraffic<'a> {
    pub(super) connections: &'a Connections,
    /// The present epoch.
    pub(super) epoch: Epoch,
    /// Whether a live frame is in a codec.
    pub(super) is_made: bool,
    /// Whether a live frame waits to be sent.
    pub(super) waits: bool,
    /// The newest live frame that was sent as it was published, and was not lost.
    pub(super) unmodified: Option<FrameId>,
}

/// The effects of an event.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) outputs: Vec<CameraOutput>,
    /// Whether there is something new to send or to encode.
    pub(super) goes_on: bool,
}

impl Effects {
    fn stops(outputs: Vec<CameraOutput>) -> Self {
        Self { outputs, goes_on: false }
    }
}

/// The edge's requests for the past.
pub(super) struct History {
    /// The open requests, oldest first. Only the first one is served, until it is complete.
    asked: VecDeque<Asked>,
    /// Whether the log is being read for the first request, or its frame is being encoded.
    looking: bool,
    codec: PastCodec,
    ready: VecDeque<Ready>,
    /// Where completed requests ended: one past the number of their last frame, and that frame.
    ends: VecDeque<(LinkId, u64, FrameId)>,
    /// The frame that is being sent, and since when.
    sending: Option<(LinkId, u64, Instant)>,
    share: f64,
    /// Counts the look-ups, because an answer may come when it is no longer wanted.
    ticket: u64,
    /// The past rests until this instant, to keep to its share of the link.
    rests_until: Instant,
    /// The knobs of the stream's data records, if it declares any.
    knobs: Option<Arc<DeclaredKnobs>>,
}

impl History {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            asked: VecDeque::new(),
            looking: false,
            codec: PastCodec::new(now),
            ready: VecDeque::new(),
            ends: VecDeque::new(),
            sending: None,
            share: HISTORY_SHARE,
            ticket: 0,
            rests_until: now,
            knobs: None,
        }
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// Sets the share of the time for which frames of the past may use the link beside live ones.
    pub(super) fn set_share(&mut self, share: f64) {
        self.share = if share.is_finite() { share.clamp(HISTORY_SHARE_MIN, 1.0) } else { HISTORY_SHARE };
    }

    /// Sets the knobs by which data records may be degraded.
    pub(super) fn set_knobs(&mut self, knobs: Arc<DeclaredKnobs>) {
        self.knobs = Some(knobs);
    }

    /// The edge requests frames of the past, continues a request, or withdraws one.
    pub(super) fn handle_request(
        &mut self,
        link: LinkId,
        mut request: HistoryRequest,
    ) -> Option<CameraOutput> {
        if request.request == 0 {
            // A frame with this number would count as live.
            return None;
        }
        if request.count == 0 {
            return self.withdraw(link, request.request);
        }
        let mut lost = false;
        if request.continues {
            let goes_on = |asked: &&mut Asked| asked.link == link && asked.end() == request.request;
            if let Some(asked) = self.asked.iter_mut().find(goes_on) {
                let room = HISTORY_FRAMES_MAX.saturating_mul(2).saturating_sub(asked.next.count);
                asked.next.count += request.count.min(room);
                return None;
            }
            let end = self.ends.iter().position(|(of, next, _)| (*of, *next) == (link, request.request));
            let end = end.and_then(|place| self.ends.remove(place));
            request.query.after = end.map(|(.., last)| last);
            lost = end.is_none();
        }
        let setting = request.rung.setting().ok().filter(|setting| self.can_make(setting));
        let refused = if lost {
            // The request that this one continues is forgotten. That does not mean that there are no more frames.
            Some(HistoryCode::Busy)
        } else if setting.is_none() {
            Some(HistoryCode::Rung)
        } else if self.asked.len() >= HISTORY_REQUESTS_MAX {
            Some(HistoryCode::Busy)
        } else {
            None
        };
        if let Some(code) = refused {
            let end = HistoryEnd { request: request.request, code, held_from: None };
            return Some(CameraOutput::Send { link, message: Message::HistoryEnd(end) });
        }
        let count = if request.query.newest { 1 } else { request.count.min(HISTORY_FRAMES_MAX) };
        let (first, setting) = (request.request, setting.unwrap_or(Setting::ORIGINAL));
        let next = HistoryRequest { count, ..request };
        self.asked.push_back(Asked { link, first, next, setting, skipped: Default::default() });
        self.look_on()
    }

    /// The answer of the log to [`CameraOutput::ReadHistory`].
    pub(super) fn handle_answer(
        &mut self,
        ticket: u64,
        answer: PastAnswer,
        live: LiveTraffic<'_>,
    ) -> Effects {
        if !self.looking || self.ticket != ticket {
            return Effects::default();
        }
        let asked = self.asked.front().map(|asked| (asked.link, asked.setting, asked.is_for_present()));
        let Some((link, setting, is_for_present)) = asked else { return Effects::default() };
        let Some(record) = answer.record else {
            return Effects::stops(self.end(HistoryCode::None, answer.held_from));
        };
        let id = record.frame.meta.id;
        let is_video = record.frame.meta.encoding.is_chained();
        if is_for_present && (is_video || live.unmodified == Some(id)) {
            // The edge has this frame, or gets it as a live frame. Video that does not go as it is has no originals that stand alone.
            Effects::stops(self.end(HistoryCode::None, answer.held_from))
        } else if live.connections.is_doubtful(link, id.epoch, live.epoch) {
            Effects::stops(self.pass_over(id, None))
        } else if is_as_published(&setting, &record.frame.meta) {
            self.handle_found(record, live.connections)
        } else {
            self.codec.handle_found(ticket, record);
            Effects { outputs: Vec::new(), goes_on: true }
        }
    }

    /// A codec has encoded a frame, or has given up. Returns `None` if no such frame was in the codec.
    pub(super) fn handle_transformed(
        &mut self,
        now: Instant,
        ticket: u64,
        transformed: Transformed,
        live: LiveTraffic<'_>,
    ) -> Option<Effects> {
        let (begun, found) = self.codec.handle_done(ticket)?;
        self.codec.rest_until(now + self.rest_after(now.saturating_since(begun), live));
        let Some(record) = found.filter(|_| self.looking && self.ticket == ticket) else {
            return Some(Effects::default());
        };
        let is_video = record.frame.meta.encoding.is_chained();
        let asked = self.asked.front().map(|asked| asked.makes(is_video).rung());
        Some(match transformed {
            // A frame that had to be encoded with less quality is of another rung.
            Transformed::Made { payload, encoding, width, height, rung, chain }
                if Some(&rung) == asked.as_ref() =>
            {
                let meta = FrameMeta { encoding, width, height, rung, chain, ..record.frame.meta };
                let record = Record { frame: Frame { meta, payload }, ..record };
                self.handle_found(record, live.connections)
            }
            // The codec is asked again after its rest, and continues the decoding.
            Transformed::NotYet => {
                self.codec.handle_found(ticket, record);
                Effects::default()
            }
            _ => Effects::stops(self.pass_over(record.frame.meta.id, Some(SkipReason::NotMade))),
        })
    }

    /// The last byte of a frame of the past has left. Returns whether it was the frame that was being sent.
    pub(super) fn handle_sent(
        &mut self,
        now: Instant,
        (link, request): (LinkId, u64),
        live: LiveTraffic<'_>,
    ) -> bool {
        let sending = self.sending.take_if(|(of, number, _)| (*of, *number) == (link, request));
        if let Some((_, _, begun)) = sending {
            self.rests_until = now + self.rest_after(now.saturating_since(begun), live);
        }
        sending.is_some()
    }

    /// Forgets the requests of a connection that is gone.
    pub(super) fn handle_closed(&mut self, link: LinkId) -> Option<CameraOutput> {
        if self.asked.front().is_some_and(|asked| asked.link == link) {
            self.looking = false;
        }
        self.asked.retain(|asked| asked.link != link);
        self.ready.retain(|ready| ready.link != link);
        self.ends.retain(|(of, ..)| *of != link);
        self.sending.take_if(|(of, ..)| *of == link);
        self.look_on()
    }

    // ---- what is to be done -------------------------------------------------------------------------------

    /// When to call [`History::pump`], if nothing happens before.
    pub(super) fn due(&self, live: LiveTraffic<'_>) -> Option<Instant> {
        let making = self.codec.due().filter(|_| !live.is_made);
        let sending = Some(self.rests_until).filter(|_| self.can_send(live) || self.can_look(live));
        making.into_iter().chain(sending).min()
    }

    /// Gives a frame of the past to the link, if no live frame needs it, and the next one to its codec.
    pub(super) fn pump(&mut self, now: Instant, live: LiveTraffic<'_>) -> Vec<CameraOutput> {
        let mut outputs = Vec::from_iter(self.make(now, live));
        if now >= self.rests_until && self.can_look(live) {
            outputs.extend(self.look());
        }
        if !self.can_send(live) || now < self.rests_until {
            return outputs;
        }
        let Some(Ready { link, request, record, skipped }) = self.ready.pop_front() else { return outputs };
        self.sending = Some((link, request, now));
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
        outputs.push(CameraOutput::SendFrame { link, header: Box::new(header), payload });
        outputs.extend(self.look_on());
        outputs
    }

    /// Gives a frame of the past to its codec, unless a live one is in a codec.
    fn make(&mut self, now: Instant, live: LiveTraffic<'_>) -> Option<CameraOutput> {
        self.codec.keep_only(self.looking.then_some(self.ticket));
        let asked = self.asked.front().filter(|_| !live.is_made)?;
        let bytes_max = live.connections.get(asked.link).map_or(0, |link| link.frame_bytes_max);
        let setting = asked.makes(self.codec.is_of_video());
        self.codec.begin(now, setting, bytes_max)
    }

    /// Whether a frame waits and its link is idle.
    fn can_send(&self, live: LiveTraffic<'_>) -> bool {
        self.ready.front().is_some_and(|ready| self.is_idle(ready.link, live))
    }

    /// Whether the newest frame is asked for next, and could be sent now.
    fn can_look(&self, live: LiveTraffic<'_>) -> bool {
        let asked = self.asked.front().filter(|asked| asked.is_for_present());
        let may = !self.looking && self.ready.len() < READY_MAX;
        asked.is_some_and(|asked| may && self.is_idle(asked.link, live))
    }

    /// Whether no frame needs a connection now.
    fn is_idle(&self, link: LinkId, live: LiveTraffic<'_>) -> bool {
        let wants_live = live.is_made || live.waits && live.connections.demand().is_some();
        let is_idle = |active: &EdgeLink| active.id == link && !active.is_sending() && !active.is_out();
        self.sending.is_none() && !wants_live && live.connections.active().is_some_and(is_idle)
    }

    /// How long frames of the past pause after one took this long. No pause is needed if no application wants live frames.
    fn rest_after(&self, took: Duration, live: LiveTraffic<'_>) -> Duration {
        if live.connections.demand().is_none() {
            return Duration::ZERO;
        }
        took.mul_f64(1.0 / self.share - 1.0).min(REST_MAX)
    }

    /// The next frame of the first request is ready to be sent.
    fn handle_found(&mut self, record: Record, connections: &Connections) -> Effects {
        let Some(asked) = self.asked.front_mut() else { return Effects::default() };
        let id = record.frame.meta.id;
        let link = asked.link;
        let bytes_max = connections.get(link).map_or(0, |known| known.frame_bytes_max);
        if record.frame.payload.len() > bytes_max as usize {
            return Effects::stops(self.pass_over(id, Some(SkipReason::Refused)));
        }
        let request = asked.next.request;
        asked.next.query.after = Some(id);
        asked.next.request = request.saturating_add(1);
        asked.next.count -= 1;
        let skipped = asked.take_skipped(id);
        if asked.next.count == 0 {
            let end = (link, asked.next.request, id);
            self.asked.pop_front();
            if self.ends.len() >= ENDS_MAX {
                self.ends.pop_front();
            }
            self.ends.push_back(end);
        }
        self.looking = false;
        self.ready.push_back(Ready { link, request, record: Box::new(record), skipped });
        // No frame is looked up while READY_MAX frames wait.
        debug_assert!(self.ready.len() <= READY_MAX, "more frames wait than may");
        Effects { outputs: Vec::from_iter(self.look_on()), goes_on: true }
    }

    /// A frame cannot be sent: passes over it, and continues with the frames after it.
    fn pass_over(&mut self, id: FrameId, reason: Option<SkipReason>) -> Vec<CameraOutput> {
        let Some(asked) = self.asked.front_mut() else { return Vec::new() };
        if asked.next.query.newest {
            return self.end(HistoryCode::TooLarge, None);
        }
        asked.next.query.after = Some(id);
        if let Some(reason) = reason {
            asked.skip(id, reason);
        }
        self.looking = false;
        Vec::from_iter(self.look_on())
    }

    /// The edge withdraws the rest of a request.
    fn withdraw(&mut self, link: LinkId, number: u64) -> Option<CameraOutput> {
        let holds = |asked: &Asked| asked.link == link && (asked.first..asked.end()).contains(&number);
        let withdrawn = self.asked.iter().position(holds);
        if withdrawn == Some(0) {
            self.looking = false;
        }
        withdrawn.and_then(|place| self.asked.remove(place));
        self.look_on()
    }

    /// Ends the first request: no further frame answers it.
    fn end(&mut self, code: HistoryCode, held_from: Option<Timestamp>) -> Vec<CameraOutput> {
        self.looking = false;
        let end = self.asked.pop_front().map(|asked| {
            let end = HistoryEnd { request: asked.next.request, code, held_from };
            CameraOutput::Send { link: asked.link, message: Message::HistoryEnd(end) }
        });
        end.into_iter().chain(self.look_on()).collect()
    }

    /// Whether frames of the past can be made at a setting.
    fn can_make(&self, setting: &Setting) -> bool {
        let is_known = match &setting.form {
            Form::Data(of) => self.knobs.as_ref().is_some_and(|knobs| knobs.has(of)),
            _ => true,
        };
        is_known && setting.stands_alone()
    }

    /// Looks up the next frame, unless one waits already. The newest frame is not looked up ahead.
    fn look_on(&mut self) -> Option<CameraOutput> {
        // Whatever removes the first request also ends its look-up.
        debug_assert!(!self.looking || !self.asked.is_empty(), "looking for a request that is gone");
        if self.looking || self.ready.len() >= READY_MAX || self.asked.front()?.is_for_present() {
            return None;
        }
        self.look()
    }

    fn look(&mut self) -> Option<CameraOutput> {
        let query = self.asked.front()?.next.query;
        self.looking = true;
        self.ticket += 1;
        Some(CameraOutput::ReadHistory { ticket: self.ticket, query })
    }
}

/// Whether a frame goes as it was published if this setting is asked for. Knobs apply to
/// data records, the other settings to pictures. From a source's own video, stills are made.
fn is_as_published(setting: &Setting, meta: &FrameMeta) -> bool {
    let is_original = *setting == Setting::ORIGINAL;
    match meta.encoding.is_picture() {
        true => (is_original || setting.is_of_data()) && !meta.encoding.is_chained(),
        false => !setting.is_of_data(),
    }
}
