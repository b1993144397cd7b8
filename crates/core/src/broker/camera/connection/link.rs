//! Decides whether one connection is free for a frame, stalled, or in an outage, from the frames on their way
//! and from the edge's reports.

use std::collections::VecDeque;
use std::time::Duration;

use crate::broker::camera::types::CameraOutput;
use crate::broker::{
    EdgeIndex, LinkId, PEER_SILENCE_MAX, PING_INTERVAL, REST_PING_INTERVAL, REST_SILENCE_MAX,
};
use crate::clock::{ClockEstimator, Exchange};
use crate::controller::Arrival;
use crate::frame::FrameId;
use crate::units::Instant;
use crate::wire::{Demand, FRAME_HEADER_BYTES_MAX, FrameHeader, Message, Report};

/// The most frames that are sent in full and not acknowledged. Beyond that, the newest frame waits. At 60
/// frames per second these are half a second: a long round trip, and a lost report on top.
const UNACKNOWLEDGED_FRAMES_MAX: usize = 32;
/// The most bytes that are sent in full and not acknowledged. Beyond that, the newest frame waits.
const UNACKNOWLEDGED_BYTES_MAX: u64 = 16 << 20;
/// The latency bound for deciding when a transfer has stalled, if no contract gives one.
const STALL_BOUND_DEFAULT: Duration = Duration::from_secs(1);
/// A transfer counts as stalled after this long without progress, however slow the link has been before.
const STALL_MAX: Duration = Duration::from_secs(5);
/// The longest pause that counts as usual for a link. A longer one is an outage.
const USUAL_GAP_MAX: Duration = Duration::from_secs(1);
/// How long the longest usual pause is remembered.
const USUAL_GAP_WINDOW: Duration = Duration::from_secs(10);
/// While an answer arrives, a transfer may go without progress for this many times as long: the reports wait behind the answer in the network.
const ANSWER_STALLS: u32 = 4;
/// The driver reports within this time how many bytes of a frame have left, if any have.
const SAID_WITHIN: Duration = Duration::from_millis(10);
/// How often a ping is sent during an outage. No frame is sent meanwhile, so the answer tells that the link is
/// back.
const OUTAGE_PING_INTERVAL: Duration = Duration::from_millis(100);
/// How many pongs are needed before the path counts as measured: the pings of two seconds.
/// Only pongs while no frame is on its way count, because a ping waits behind a frame.
const ANSWERS_MIN: u32 = 8;
/// The round trip that is assumed before one is measured.
const ROUND_TRIP_TIME_DEFAULT: Duration = Duration::from_millis(100);

/// A connection on which the edge has welcomed the camera, or is about to.
pub(crate) struct EdgeLink {
    pub(crate) id: LinkId,
    pub(crate) edge: EdgeIndex,
    /// Whether the edge has welcomed the camera on it.
    pub(crate) welcomed: bool,
    /// When a message of the edge last came; before the first, when the connection was made.
    pub(crate) heard: Instant,
    /// When the last ping went.
    pinged: Instant,
    /// When the next ping goes, unless the link rests.
    ping_due: Instant,
    /// Whether the edge has said that nobody wants frames, since the last demand with contracts.
    unwanted: bool,
    /// The estimate of the edge's clock relative to ours.
    pub(crate) clock: ClockEstimator,
    /// How many pings the edge has answered while no frame was on its way.
    answers: u32,
    /// The applications' demand, as the edge last sent it.
    pub(crate) demand: Demand,
    /// The tightest latency bound of the contracts that the camera serves; `None` before they are negotiated.
    pub(crate) kept_bound: Option<Duration>,
    /// The largest payload that the edge accepts.
    pub(crate) frame_bytes_max: u32,
    /// The congestion window in bytes, while the path was never full.
    pub(crate) window: Option<u64>,
    /// Bytes that one packet of the connection carries, if the transport knows it.
    pub(crate) packet_bytes: Option<u32>,
    /// The frame that still has unsent bytes.
    sending: Option<InFlight>,
    /// Frames that are sent in full and not acknowledged.
    unacknowledged: VecDeque<InFlight>,
    newest_sent: Option<FrameId>,
    /// When a frame was last given to the link; before the first, when the link was made.
    begun: Instant,
    /// When bytes last arrived, or when the first frame after an idle time was given to the link.
    progress: Instant,
    /// The longest recent pause after which bytes arrived again, and when that was.
    usual_gap: (Duration, Instant),
    /// How often in succession frames were given up. The stall limit doubles with each, as a retransmission
    /// timer does (RFC 6298, section 5.5), until a frame arrives that was not given up. So even on a link that is
    /// slower than expected, a frame gets through in the end.
    stalls: u32,
    /// Until when no transfer counts as stalled, because reports wait behind an answer.
    held_until: Instant,
    /// Since when the link is in an outage; `None` if it is not.
    out_since: Option<Instant>,
    /// When this process last resumed after a pause.
    went_on: Instant,
}

/// What a new demand changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DemandChange {
    /// Frames are wanted from now on; before they were not.
    pub(crate) begins: bool,
    /// Frames are no longer wanted.
    pub(crate) ends: bool,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    frame: FrameId,
    bytes: u64,
    /// Bytes of it that have not left, as far as was reported.
    unsent: u64,
    /// Payload bytes that the edge has reported.
    arrived: u32,
    /// When it was given to the link.
    begun: Instant,
}

impl EdgeLink {
    pub(crate) fn new(id: LinkId, edge: EdgeIndex, now: Instant) -> Self {
        Self {
            id,
            edge,
            welcomed: false,
            heard: now,
            pinged: now,
            ping_due: now,
            unwanted: false,
            clock: ClockEstimator::default(),
            answers: 0,
            demand: Demand::default(),
            kept_bound: None,
            frame_bytes_max: u32::MAX,
            window: None,
            packet_bytes: None,
            sending: None,
            unacknowledged: VecDeque::new(),
            newest_sent: None,
            begun: now,
            progress: now,
            usual_gap: (Duration::ZERO, now),
            stalls: 0,
            held_until: now,
            out_since: None,
            went_on: now,
        }
    }

    /// A ping or a pong arrived. Returns the answer to a ping.
    pub(crate) fn handle_ping(&mut self, now: Instant, message: Message) -> Option<CameraOutput> {
        match message {
            Message::Ping { t1 } => {
                let message = Message::Pong { t1, t2: now, t3: now };
                return Some(CameraOutput::Send { link: self.id, message });
            }
            Message::Pong { t1, t2, t3 } => self.answered(now, Exchange { t1, t2, t3, t4: now }),
            _ => {}
        }
        None
    }

    /// Sends a ping, if one is due.
    pub(super) fn ping(&mut self, now: Instant) -> Option<CameraOutput> {
        self.note_pause(now);
        if now < self.ping_due() {
            return None;
        }
        self.pinged = now;
        self.ping_due = now + if self.is_out() { OUTAGE_PING_INTERVAL } else { PING_INTERVAL };
        Some(CameraOutput::Send { link: self.id, message: Message::Ping { t1: now } })
    }

    /// When the next ping goes. On a resting link it goes later, if the edge was heard since the last one.
    pub(super) fn ping_due(&self) -> Instant {
        match self.is_resting() && self.heard >= self.pinged {
            true => self.ping_due + (REST_PING_INTERVAL - PING_INTERVAL),
            false => self.ping_due,
        }
    }

    /// The longest silence of a working edge.
    pub(crate) fn silence_max(&self) -> Duration {
        // A rest ends with a message of the edge, so the shorter limit never finds an older silence.
        if self.is_resting() { REST_SILENCE_MAX } else { PEER_SILENCE_MAX }
    }

    /// The edge says that nobody wants frames.
    pub(crate) fn handle_rest(&mut self) {
        // An edge does not say this while its demand has contracts. If one did, the rest would never end.
        self.unwanted = self.demand.contracts.is_empty();
    }

    /// Whether the link rests: nobody wants frames, none is on its way, and the path works and is measured.
    fn is_resting(&self) -> bool {
        self.unwanted && self.answers >= ANSWERS_MIN && !self.is_out() && self.in_flight().next().is_none()
    }

    /// Checks whether this process has just paused, as when its host has no processor to spare. A ping is
    /// then overdue, and what is known of the link is old.
    pub(crate) fn note_pause(&mut self, now: Instant) {
        if now.saturating_since(self.ping_due()) > SAID_WITHIN {
            self.went_on = now;
        }
    }

    /// Whether the link is in an outage: nothing arrived for too long. No frame is sent before the edge answers a ping or
    /// reports a frame. A frame that was sent meanwhile would be stale when the link is back, and would delay the newest frame.
    pub(crate) fn is_out(&self) -> bool {
        self.out_since.is_some()
    }

    /// Whether the link is free for a frame.
    pub(crate) fn is_free(&self) -> bool {
        self.sending.is_none()
            && self.unacknowledged.len() < UNACKNOWLEDGED_FRAMES_MAX
            && self.unacknowledged.iter().map(|f| f.bytes).sum::<u64>() < UNACKNOWLEDGED_BYTES_MAX
            && self.out_since.is_none()
    }

    /// The minimum one-way delay of the path. `None` until it is measured well.
    pub(crate) fn path(&self) -> Option<Duration> {
        let round_trip_time = self.clock.round_trip_time_min().filter(|_| self.answers >= ANSWERS_MIN)?;
        Some(round_trip_time / 2)
    }

    /// When a frame was last given to the link; before the first, when the link was made.
    pub(crate) const fn begun(&self) -> Instant {
        self.begun
    }

    /// Whether a frame still has unsent bytes.
    pub(crate) fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    /// The frame that still has unsent bytes, with its size and its unsent bytes. `None` also if the driver
    /// has had no time to report: the frame was only just given to the link, or this process has only just
    /// resumed.
    pub(crate) fn being_sent(&self, now: Instant) -> Option<(FrameId, u64, u64)> {
        let known = |sending: &InFlight| now.saturating_since(sending.begun.max(self.went_on)) >= SAID_WITHIN;
        self.sending.filter(known).map(|sending| (sending.frame, sending.bytes, sending.unsent))
    }

    /// The driver reports how many bytes of the frame have not left. The number never grows again, whatever
    /// is reported.
    pub(crate) fn unsent(&mut self, frame: FrameId, bytes: u64) {
        if let Some(sending) = self.sending.as_mut().filter(|sending| sending.frame == frame) {
            sending.unsent = sending.unsent.min(bytes);
        }
    }

    /// A frame is given to the link.
    pub(crate) fn begin(&mut self, now: Instant, frame: FrameId, bytes: usize) {
        // Frames are given only to a free link, and never while another one is in a codec.
        debug_assert!(self.sending.is_none(), "two frames have bytes not yet sent");
        if self.unacknowledged.is_empty() {
            // The link was idle, so the time without progress begins now. Otherwise a camera with a low frame
            // rate would give up each frame at once.
            self.progress = now;
        }
        self.newest_sent = self.newest_sent.max(Some(frame));
        self.begun = now;
        self.sending =
            Some(InFlight { frame, bytes: bytes as u64, unsent: bytes as u64, arrived: 0, begun: now });
    }

    /// The last byte of a frame has left.
    pub(crate) fn sent(&mut self, frame: FrameId) {
        self.unacknowledged.extend(self.sending.take_if(|sending| sending.frame == frame));
        // A link with that many unacknowledged frames is not free.
        debug_assert!(self.unacknowledged.len() <= UNACKNOWLEDGED_FRAMES_MAX, "more frames than are allowed");
    }

    /// The edge sends a demand. Returns `None` if it is older than the known one.
    pub(crate) fn take_demand(&mut self, now: Instant, demand: Demand) -> Option<DemandChange> {
        if demand.revision <= self.demand.revision {
            return None;
        }
        let (wanted, wants) = (!self.demand.contracts.is_empty(), !demand.contracts.is_empty());
        self.demand = demand;
        if wants && std::mem::take(&mut self.unwanted) {
            // Not overdue: that would look like a pause of this process.
            self.ping_due = now;
        }
        self.kept_bound = None;
        Some(DemandChange { begins: !wanted && wants, ends: wanted && !wants })
    }

    /// How many payload bytes of a frame with this header its first packet carries.
    pub(crate) fn first_packet(&self, header: &FrameHeader) -> Option<u32> {
        let packet_bytes = self.packet_bytes?;
        let mut encoded = Vec::with_capacity(FRAME_HEADER_BYTES_MAX);
        header.encode(&mut encoded);
        Some(packet_bytes.saturating_sub(encoded.len() as u32).min(header.payload_bytes))
    }

    /// Converts a report on a frame's arrival to our clock; `None` while the edge's clock is unknown.
    pub(crate) fn arrival(&self, now: Instant, report: Report) -> Option<Arrival> {
        let (frame, bytes, first, last, complete) = match report {
            Report::Progress { frame, bytes, first, now } => (frame, bytes, first, now, false),
            Report::Complete { frame, bytes, first, last } => (frame, bytes, first, last, true),
            Report::Refused { .. } => return None,
        };
        let clock = self.clock.estimate(now)?;
        // A peer may claim any time. Clamp: nothing arrives in the future or ends before it begins.
        let last = clock.to_ours(last).min(now);
        let first = clock.to_ours(first).min(last);
        Some(Arrival { frame, bytes, first, last, complete })
    }

    /// The edge reports how a frame is arriving. Returns true if all of it has arrived.
    pub(crate) fn reported(&mut self, now: Instant, report: Report) -> bool {
        let (frame, bytes, complete) = match report {
            Report::Progress { frame, bytes, .. } => (frame, bytes, false),
            Report::Complete { frame, bytes, .. } => (frame, bytes, true),
            Report::Refused { frame } => {
                self.refused(now, frame);
                return false;
            }
        };
        let known = self.sending.iter_mut().chain(&mut self.unacknowledged).find(|f| f.frame == frame);
        let was_given_up = known.is_none();
        match known {
            Some(known) => {
                let more = bytes > known.arrived || complete;
                // Ignore a report of more bytes than the frame has, or of no new ones.
                if !more || bytes < known.arrived || u64::from(bytes) > known.bytes {
                    return false;
                }
                known.arrived = bytes;
            }
            // The frame was given up, and still it arrives: the link is slow, not dead. Without this case,
            // frames would fill a queue that is longer than the stall limit, and each would be given up
            // before its turn.
            None if self.newest_sent.is_some_and(|newest| frame <= newest) => {}
            None => return false,
        }
        let gap = now.saturating_since(self.progress).min(USUAL_GAP_MAX);
        let is_longest = gap >= self.usual_gap.0 || now.saturating_since(self.usual_gap.1) > USUAL_GAP_WINDOW;
        // A report that waited behind an answer says nothing about the way to the edge.
        if is_longest && now > self.held_until {
            self.usual_gap = (gap, now);
        }
        self.progress = now;
        self.out_since = None;
        if complete {
            self.give_up(frame);
            // A frame that arrives after it was given up shows that the limit was too short. With the short limit,
            // each next frame would be given up too, and begin a new chain (Karn's algorithm, RFC 6298, section 3).
            if !was_given_up {
                self.stalls = 0;
            }
        }
        complete
    }

    /// The edge has answered a ping. That ends an outage, if the ping arrived during it: frames sent from now on get through.
    pub(crate) fn answered(&mut self, now: Instant, exchange: Exchange) {
        self.clock.record(exchange);
        let was_idle = self.in_flight().next().is_none() && self.begun.max(self.progress) <= exchange.t1;
        self.answers = self.answers.saturating_add(u32::from(was_idle));
        let arrived = self.clock.estimate(now).map(|clock| clock.to_ours(exchange.t2));
        self.out_since.take_if(|since| arrived.is_some_and(|arrived| arrived >= *since));
    }

    /// The edge has refused a frame. Returns true if the frame was on its way; the link then works.
    pub(crate) fn refused(&mut self, now: Instant, frame: FrameId) -> bool {
        let known = self.give_up(frame);
        if known {
            self.progress = now;
            self.out_since = None;
        }
        known
    }

    /// Forgets a frame. Returns true if it was on its way.
    pub(crate) fn give_up(&mut self, frame: FrameId) -> bool {
        let before = self.in_flight().count();
        self.sending.take_if(|sending| sending.frame == frame);
        self.unacknowledged.retain(|f| f.frame != frame);
        self.in_flight().count() < before
    }

    /// Forgets the frame that still has unsent bytes, and returns it.
    pub(crate) fn give_up_sending(&mut self) -> Option<FrameId> {
        self.sending.take().map(|sending| sending.frame)
    }

    /// The frames on their way, oldest first.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = FrameId> {
        self.unacknowledged.iter().chain(&self.sending).map(|f| f.frame)
    }

    /// When the frames on their way count as stalled, unless bytes arrive before.
    pub(crate) fn stall_due(&self) -> Option<Instant> {
        self.in_flight().next()?;
        Some((self.progress + self.stall_limit()).max(self.held_until))
    }

    /// An answer begins to arrive. Reports that the edge sends now come after its last byte.
    pub(crate) fn answer_begins(&mut self, now: Instant) {
        self.held_until = now + (self.stall_limit() * ANSWER_STALLS).min(STALL_MAX);
    }

    /// An answer has arrived, or its rest will not come. If the way to the edge does not work, the edge soon has nothing to answer.
    pub(crate) fn answer_ends(&mut self, now: Instant) {
        self.held_until = self.held_until.min(now + self.stall_limit());
    }

    /// Gives up all frames on their way, because nothing arrived for too long. They are stale, and when the
    /// link comes back, their bytes would delay the newest frame.
    pub(crate) fn give_up_stalled(&mut self, now: Instant) -> Vec<FrameId> {
        let stalled = self.in_flight().collect();
        self.unacknowledged.clear();
        self.sending = None;
        self.out_since = Some(now);
        // The pong shows at once that the link is back.
        self.ping_due = now;
        self.progress = now;
        self.stalls = self.stalls.saturating_add(1);
        stalled
    }

    /// How long without progress counts as an outage: 1.5 latency bounds, three round trips, or twice the
    /// longest usual pause, whichever is longest. A full queue or a lost packet causes usual pauses.
    fn stall_limit(&self) -> Duration {
        // A bound that the negotiation gave up as too tight must not turn every frame into an outage.
        let tightest = || self.demand.contracts.iter().filter_map(|contract| contract.latency_bound).min();
        let bound = self.kept_bound.or_else(tightest);
        let round_trip_time = self.clock.round_trip_time_min().unwrap_or(ROUND_TRIP_TIME_DEFAULT);
        let bound = bound.unwrap_or(STALL_BOUND_DEFAULT);
        let limit = (bound + bound / 2).max(round_trip_time * 3).max(self.usual_gap.0 * 2);
        limit.saturating_mul(1 << self.stalls.min(16)).min(STALL_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Epoch, Sequence};

    /// After a pause of this process, nothing is decided by older knowledge: first the link says which bytes have left meanwhile.
    #[test]
    fn after_a_pause_a_link_has_time_to_say_what_left() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut link = EdgeLink::new(LinkId(1), EdgeIndex(0), at(0));
        let frame = FrameId { epoch: Epoch(1), sequence: Sequence(7) };
        (link.ping_due, link.welcomed) = (at(250), true);
        link.begin(at(100), frame, 5_000);
        link.unsent(frame, 4_000);
        assert_eq!(link.being_sent(at(105)), None, "it was only just begun");
        assert_eq!(link.being_sent(at(200)), Some((frame, 5_000, 4_000)));
        // A timer that is a little late is no pause.
        link.note_pause(at(255));
        assert_eq!(link.being_sent(at(255)), Some((frame, 5_000, 4_000)));
        link.note_pause(at(2_000));
        link.ping_due = at(2_250);
        assert_eq!(link.being_sent(at(2_000)), None);
        link.unsent(frame, 3_000);
        assert_eq!(link.being_sent(at(2_000) + SAID_WITHIN), Some((frame, 5_000, 3_000)));
    }

    /// A keyframe of one packet takes 90 ms, 1.5 bounds are 67. It is given up, and arrives. The next one takes as long, and would be
    /// given up as well, and so on for ever.
    #[test]
    fn a_frame_that_arrives_after_it_was_given_up_shows_that_the_limit_was_too_short() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let frame = |number| FrameId { epoch: Epoch(1), sequence: Sequence(number) };
        let whole =
            |number, now| Report::Complete { frame: frame(number), bytes: 1_300, first: now, last: now };
        let mut link = EdgeLink::new(LinkId(1), EdgeIndex(0), at(0));
        link.kept_bound = Some(Duration::from_millis(45));
        link.answered(at(8), Exchange { t1: at(0), t2: at(4), t3: at(4), t4: at(8) });
        let mut given_up = Vec::new();
        for number in 0..20 {
            let begun = 100 * number;
            link.begin(at(begun), frame(number), 1_300);
            link.sent(frame(number));
            if link.stall_due().is_some_and(|due| due <= at(begun + 90)) {
                given_up.extend(link.give_up_stalled(at(begun + 67)));
            }
            assert!(link.reported(at(begun + 90), whole(number, at(begun + 90))));
        }
        assert_eq!(given_up, [frame(0)]);
    }

    /// The rate falls while an answer arrives. Reports come only behind it, so their absence says nothing about the frames.
    #[test]
    fn reports_that_wait_behind_an_answer_are_no_outage() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let frame = |number| FrameId { epoch: Epoch(1), sequence: Sequence(number) };
        let mut link = EdgeLink::new(LinkId(1), EdgeIndex(0), at(0));
        link.kept_bound = Some(Duration::from_millis(40));
        link.answered(at(8), Exchange { t1: at(0), t2: at(4), t3: at(4), t4: at(8) });
        link.begin(at(100), frame(1), 2_000);
        link.sent(frame(1));
        assert_eq!(link.stall_due(), Some(at(160)), "1.5 bounds");
        link.answer_begins(at(110));
        assert_eq!(link.stall_due(), Some(at(350)));
        link.answer_ends(at(240));
        assert_eq!(link.stall_due(), Some(at(300)));
        // Nothing is on its way any more.
        link.reported(
            at(250),
            Report::Complete { frame: frame(1), bytes: 2_000, first: at(120), last: at(120) },
        );
        assert_eq!(link.stall_due(), None);
    }

    /// A ping that waits behind a keyframe says nothing about the path.
    #[test]
    fn pings_behind_frames_do_not_measure_the_path() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut link = EdgeLink::new(LinkId(1), EdgeIndex(0), at(0));
        let ping = |link: &mut EdgeLink, sent: u64, took: u64| {
            let there = at(sent + took / 2);
            link.answered(
                at(sent + took),
                Exchange { t1: at(sent), t2: there, t3: there, t4: at(sent + took) },
            );
        };
        for number in 0..20 {
            let (frame, now) = (FrameId { epoch: Epoch(1), sequence: Sequence(number) }, 250 * number);
            link.begin(at(now), frame, 5_000);
            ping(&mut link, now + 10, 180);
            link.sent(frame);
            link.reported(
                at(now + 200),
                Report::Complete { frame, bytes: 5_000, first: at(now), last: at(now) },
            );
        }
        assert_eq!(link.path(), None);
        for number in 0..u64::from(ANSWERS_MIN) {
            ping(&mut link, 6_000 + 250 * number, 8);
        }
        assert_eq!(link.path(), Some(Duration::from_millis(4)));
    }

    /// Frames are given only to a link that is free.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "two frames have bytes not yet sent")]
    fn a_second_frame_on_a_busy_link_is_noticed() {
        let mut link = EdgeLink::new(LinkId(1), EdgeIndex(0), Instant::ZERO);
        let frame = |sequence| FrameId { epoch: Epoch(1), sequence: Sequence(sequence) };
        link.begin(Instant::ZERO, frame(1), 100);
        link.begin(Instant::ZERO, frame(2), 100);
    }
}
