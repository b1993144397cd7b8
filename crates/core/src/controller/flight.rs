//! Tracks frames on their way: what is still in the link's queue, and the delay while the queue is empty.
//!
//! | what | how it is known | source |
//! | --- | --- | --- |
//! | delay | the smallest first-byte delay of the last ten seconds | a minimum filter, as in NTP and BBR |
//! | backlog | own bytes not reported yet, less what has drained since the last report | Lindley's recursion |
//! | wait | how long a first byte took beyond delay and backlog, because of other stations on the link | ours |

use std::collections::VecDeque;
use std::time::Duration;

use super::{Arrival, SentFrame};
use crate::frame::FrameId;
use crate::units::Instant;

/// The most frames on their way that are tracked. Beyond that, the oldest is forgotten.
const FLIGHTS_MAX: usize = 64;
/// The assumed bytes of one packet, if the transport does not say. They have arrived when the frame's first byte has.
pub const PACKET_BYTES: f64 = 1_200.0;
/// A link or a channel has become faster if the measured rate exceeds the estimate by more than this, in natural logarithms: 1.5 times.
pub(super) const FASTER: f64 = 0.4;
/// The number of one-second parts for which the smallest delay is remembered. The route may become longer, so no minimum counts for ever.
const DELAY_PARTS: usize = 10;
const DELAY_PART: Duration = Duration::from_secs(1);

/// Milliseconds from `earlier` to `later`. Negative if `later` is before `earlier`.
pub fn ms_between(earlier: Instant, later: Instant) -> f64 {
    (later.as_nanos() as f64 - earlier.as_nanos() as f64) / 1e6
}

/// A duration in milliseconds.
pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// A frame on its way.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    pub(super) frame: FrameId,
    /// The index of its rung in the ladder from which the rung was chosen.
    pub(super) rung: usize,
    /// Its size; for a cancelled frame, the bytes that had left.
    pub bytes: f64,
    pub(super) sent: Instant,
    pub(super) due: Instant,
    /// The on-time probability that was predicted for it.
    pub(super) on_time_probability: Option<f64>,
    /// Whether it is sent as its source coded it ([`SentFrame::of_source`]).
    pub(super) of_source: bool,
    /// The congestion window in bytes when it was sent, while its path had never been full.
    window: Option<u64>,
    /// The bytes of its first packet. For a frame of a single packet, its whole size.
    pub(super) first_bytes: f64,
    /// For a frame that was cancelled for a newer one: what had arrived of it by then. A
    /// cancelled frame occupies the link only until the bytes that have left are through.
    cancelled: Option<Seen>,
    /// Bytes that the receiver has reported.
    arrived: f64,
    /// When the first byte arrived.
    first: Option<Instant>,
    /// When the last reported byte arrived.
    last: Instant,
    /// The bytes and times of the two reports before the last one, oldest first.
    before: [Option<(f64, Instant)>; 2],
}

/// What had arrived of a frame when it was cancelled. Bytes that arrive later are its tail.
#[derive(Clone, Copy, Debug)]
struct Seen {
    bytes: f64,
    /// When the last of `bytes` arrived. `None`: no byte had arrived.
    until: Option<Instant>,
}

impl Flight {
    /// The bytes that arrived in the last two intervals between the frame's reports. `None` before its third report.
    fn lately(&self) -> Option<Passage> {
        let (arrived, at) = self.before[0]?;
        let passage = Passage { bytes: self.arrived - arrived, ms: ms_between(at, self.last) };
        (passage.ms > 0.0).then_some(passage)
    }
}

/// How a whole frame landed.
#[derive(Clone, Copy, Debug)]
pub struct Landed {
    /// The frame.
    pub flight: Flight,
    /// Milliseconds for which its first byte waited for the link behind frames of others.
    pub wait_ms: f64,
    /// Milliseconds that its first byte took beyond the smallest delay, whatever held it up.
    pub(super) held_ms: f64,
    /// Milliseconds from the first byte to the last.
    pub took_ms: f64,
    /// The bytes that arrived in the last two intervals between reports.
    pub(super) lately: Option<Passage>,
    /// Whether the connection's congestion window, rather than the link, may have held the frame back. Judged by the frame's time.
    pub(super) window_limited: bool,
}

/// Bytes that passed the link, and the time that they took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Passage {
    pub(super) bytes: f64,
    pub(super) ms: f64,
}

impl Passage {
    /// Bytes per millisecond.
    pub(super) fn rate(&self) -> f64 {
        self.bytes / self.ms
    }
}

/// What the frame in service shows about the link before it has passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Service {
    /// All bytes of the frame that have passed. Their rate is an upper bound of the link's rate.
    pub(super) whole: Passage,
    /// The bytes that passed in the last two intervals between reports. They show how the rate has changed
    /// since the frame began.
    pub(super) lately: Option<Passage>,
}

impl Service {
    /// The slower of `whole` and `lately`.
    pub(super) fn slower(&self) -> Passage {
        self.lately.filter(|lately| lately.rate() < self.whole.rate()).unwrap_or(self.whole)
    }
}

/// A frame that took less than this multiple of [`Flights::opening_ms`] may have been held back by the window.
const OPENING_MAX: f64 = 2.5;
/// If a frame waited longer than this behind cancelled frames, in milliseconds, the link was busy with them.
const TAIL_WAIT_MS_MIN: f64 = 2.0;
/// The most parts of a backlog that are kept separate. Beyond that, the oldest two are merged.
const BACKLOG_PARTS_MAX: usize = 8;

/// Own bytes on their way to the end of the link, in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backlog {
    /// For each part: how many milliseconds ago the link could begin with it, and its bytes.
    parts: [(f64, f64); BACKLOG_PARTS_MAX],
    len: usize,
}

impl Backlog {
    pub(super) fn push(&mut self, since_ms: f64, bytes: f64) {
        if self.len == BACKLOG_PARTS_MAX {
            self.parts[1] = (self.parts[0].0, self.parts[0].1 + self.parts[1].1);
            self.parts.copy_within(1.., 0);
            self.len -= 1;
        }
        self.parts[self.len] = (since_ms, bytes);
        self.len += 1;
    }

    /// Milliseconds from now until the last of these bytes is through, if a byte takes `ms_per_byte`. Negative if the last byte is already through.
    ///
    /// A frame cannot pass before it was sent, however long the link was idle.
    pub fn drained_in_ms(&self, ms_per_byte: f64) -> f64 {
        let parts = self.parts[..self.len].iter();
        parts.fold(f64::NEG_INFINITY, |free, (since_ms, bytes)| free.max(-since_ms) + bytes * ms_per_byte)
    }

    /// The backlog without the last `bytes` of its last part.
    pub(super) fn without(mut self, bytes: f64) -> Self {
        if let Some((_, last)) = self.parts[..self.len].last_mut() {
            *last = (*last - bytes).max(0.0);
        }
        self
    }
}

/// The smallest delay of the last [`DELAY_PARTS`] seconds.
#[derive(Debug)]
struct LeastDelay {
    /// The smallest delay of each part, the present part last.
    parts: VecDeque<f64>,
    began: Instant,
}

impl LeastDelay {
    fn new() -> Self {
        Self { parts: VecDeque::with_capacity(DELAY_PARTS), began: Instant::ZERO }
    }

    fn note(&mut self, now: Instant, delay_ms: f64) {
        let passed = now.saturating_since(self.began).as_nanos() / DELAY_PART.as_nanos();
        let passed = if self.parts.is_empty() { DELAY_PARTS } else { (passed as usize).min(DELAY_PARTS) };
        for _ in 0..passed {
            if self.parts.len() == DELAY_PARTS {
                self.parts.pop_front();
            }
            self.parts.push_back(f64::INFINITY);
            self.began = now;
        }
        if let Some(present) = self.parts.back_mut() {
            *present = present.min(delay_ms);
        }
    }

    fn least_ms(&self) -> Option<f64> {
        let least = self.parts.iter().copied().fold(f64::INFINITY, f64::min);
        least.is_finite().then_some(least)
    }
}

/// The frames on their way, oldest first.
#[derive(Debug)]
pub struct Flights {
    flights: VecDeque<Flight>,
    delay: LeastDelay,
    /// The smallest time from the sending of a frame to its first report.
    round_trip: LeastDelay,
    /// When the last frame that is through ended. Such a frame arrived whole, or it was cancelled and all bytes that had left arrived.
    last_end: Option<Instant>,
    /// The bytes of cancelled frames that passed after the cancellation, until [`Flights::take_tail`] takes them.
    tail: Option<Passage>,
}

impl Default for Flights {
    fn default() -> Self {
        Self::new()
    }
}

impl Flights {
    /// No frames on their way, and nothing known about the link.
    pub fn new() -> Self {
        Self {
            flights: VecDeque::with_capacity(FLIGHTS_MAX),
            delay: LeastDelay::new(),
            round_trip: LeastDelay::new(),
            last_end: None,
            tail: None,
        }
    }

    /// A frame was given to the link, with its predicted on-time probability, if there was a prediction.
    pub fn send(&mut self, frame: &SentFrame, on_time_probability: Option<f64>) {
        if self.flights.len() == FLIGHTS_MAX {
            self.flights.pop_front();
        }
        // One queue keeps the order, so `report` treats frames that were cancelled before a reported one as passed.
        let is_in_order = |last: &Flight| last.frame < frame.frame && last.sent <= frame.sent;
        debug_assert!(self.flights.back().is_none_or(is_in_order), "frames are sent out of order");
        self.flights.push_back(Flight {
            frame: frame.frame,
            rung: frame.rung,
            bytes: f64::from(frame.bytes),
            sent: frame.sent,
            due: frame.due,
            on_time_probability,
            of_source: frame.of_source,
            window: frame.window,
            first_bytes: frame.first_packet_bytes.map_or(PACKET_BYTES, f64::from).min(f64::from(frame.bytes)),
            cancelled: None,
            arrived: 0.0,
            first: None,
            last: frame.sent,
            before: [None; 2],
        });
    }

    /// Forgets a frame that was given up.
    pub fn give_up(&mut self, frame: FrameId) -> Option<Flight> {
        let position = self.flights.iter().position(|flight| flight.frame == frame)?;
        self.flights.remove(position)
    }

    /// The frame that was given to the link last. If any frame still has unsent bytes, it is this one.
    pub(super) fn newest(&self) -> Option<&Flight> {
        self.flights.back()
    }

    /// A frame was cancelled after `left_bytes` of its bytes had left. No report will say that it is whole.
    pub(super) fn cancel(&mut self, frame: FrameId, left_bytes: f64) {
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.frame == frame) else { return };
        flight.bytes = left_bytes.min(flight.bytes);
        flight.cancelled = Some(Seen { bytes: flight.arrived, until: flight.first.map(|_| flight.last) });
    }

    /// Takes the bytes of cancelled frames that passed after the cancellation, once they are known.
    pub(super) fn take_tail(&mut self) -> Option<Passage> {
        self.tail.take()
    }

    /// Notes that the oldest `count` frames, some of them cancelled, were through at `end`, together with `more` bytes after them.
    fn end_tail(&mut self, count: usize, more: f64, end: Instant) {
        let cancelled =
            || self.flights.iter().take(count).filter_map(|flight| Some((flight, flight.cancelled?)));
        let Some((oldest, seen)) = cancelled().next() else { return };
        let ms = match seen.until {
            Some(until) => ms_between(until, end),
            // Its first byte could start when the frame was sent or when the frame before it was through, whichever was later.
            None => {
                let since_sent = ms_between(oldest.sent, end) - self.delay_ms();
                self.last_end.map_or(since_sent, |before| since_sent.min(ms_between(before, end)))
            }
        };
        let left = cancelled().map(|(flight, seen)| (flight.bytes - seen.bytes).max(0.0));
        let bytes = left.sum::<f64>() + more;
        self.tail = (ms > 0.0 && bytes > 0.0).then_some(Passage { bytes, ms });
        self.last_end = Some(end);
    }

    /// Takes in a report. Returns how the frame landed once the frame is whole.
    pub fn report(&mut self, now: Instant, arrival: &Arrival) -> Option<Landed> {
        let position = self.flights.iter().position(|flight| flight.frame == arrival.frame)?;
        // One queue keeps the order: a frame that was cancelled before this one has passed, or never will.
        let is_cancelled = |flight: &Flight| flight.cancelled.is_some();
        let cancelled = self.flights.iter().take(position).filter(|flight| is_cancelled(flight)).count();
        if cancelled > 0 && cancelled == position {
            // If this frame had to wait, the link was busy with the cancelled frames until the turn of its first packet.
            let waited_ms = ms_between(self.flights[position].sent, arrival.first) - self.delay_ms();
            if waited_ms > TAIL_WAIT_MS_MIN {
                self.end_tail(cancelled, PACKET_BYTES, arrival.first);
            }
        }
        self.flights.retain(|flight| !is_cancelled(flight) || flight.frame >= arrival.frame);
        let position = position - cancelled;
        let flight = &mut self.flights[position];
        debug_assert_eq!(flight.frame, arrival.frame, "a report is taken for another frame's");
        if flight.first.is_none() {
            flight.first = Some(arrival.first);
            self.delay.note(now, ms_between(flight.sent, arrival.first));
            self.round_trip.note(now, ms_between(flight.sent, now));
        } else {
            flight.before = [flight.before[1], Some((flight.arrived, flight.last))];
        }
        flight.arrived = f64::from(arrival.bytes).min(flight.bytes);
        flight.last = arrival.last;
        if is_cancelled(flight) && flight.arrived >= flight.bytes {
            self.end_tail(position + 1, 0.0, arrival.last);
            self.flights.remove(position);
            return None;
        }
        if !arrival.complete {
            return None;
        }
        let flight = self.flights.remove(position)?;
        let first = flight.first.unwrap_or(arrival.first);
        // Its first byte could start when the frame was sent or when the frame before it was through, whichever was later.
        let since_sent = ms_between(flight.sent, first) - self.delay_ms();
        let wait_ms = self.last_end.map_or(since_sent, |end| since_sent.min(ms_between(end, first)));
        self.last_end = Some(arrival.last);
        let took_ms = ms_between(first, arrival.last);
        let (lately, window_limited) = (flight.lately(), self.is_window_limited(&flight, took_ms));
        let (wait_ms, held_ms) = (wait_ms.max(0.0), since_sent.max(0.0));
        Some(Landed { flight, wait_ms, held_ms, took_ms, lately, window_limited })
    }

    /// The smallest delay of a first byte in the last ten seconds: the propagation
    /// time plus the difference of the two clocks. 0 before the first report.
    pub fn delay_ms(&self) -> f64 {
        self.delay.least_ms().unwrap_or(0.0)
    }

    /// The smallest time from sending a frame to its first report in the last ten
    /// seconds, measured by the camera's clock alone. 0 before the first report.
    pub(super) fn round_trip_ms(&self) -> f64 {
        self.round_trip.least_ms().unwrap_or(0.0)
    }

    /// The least time in milliseconds for which a window of this size holds back the last byte of a frame. At best the
    /// window doubles with every round trip. 0 without a window: the path was full once, so the window fits the path.
    pub(super) fn opening_ms(&self, window: Option<u64>, bytes: f64) -> f64 {
        let Some(window) = window else { return 0.0 };
        let rounds = (1.0 + bytes / (window as f64).max(PACKET_BYTES)).log2().ceil() - 1.0;
        rounds.max(0.0) * self.round_trip_ms()
    }

    /// Whether the window of its connection, rather than the link, may have held a frame back. True if the
    /// frame took less than [`OPENING_MAX`] times the least time in which the window opens for the whole frame.
    fn is_window_limited(&self, flight: &Flight, took_ms: f64) -> bool {
        let opening_ms = self.opening_ms(flight.window, flight.bytes);
        opening_ms > 0.0 && took_ms < OPENING_MAX * opening_ms
    }

    /// Own bytes that had not passed the link at the last report. Each frame is one part.
    pub fn backlog(&self, now: Instant) -> Backlog {
        let mut backlog = Backlog::default();
        let Some(oldest) = self.flights.front() else { return backlog };
        let heard_ms = |arrived: Instant| ms_between(arrived, now) + self.delay_ms();
        let ago_ms = match (oldest.first, self.last_end) {
            (Some(_), _) => heard_ms(oldest.last),
            (None, Some(end)) => heard_ms(end).min(ms_between(oldest.sent, now)),
            (None, None) => ms_between(oldest.sent, now),
        };
        for flight in &self.flights {
            let since_ms = ms_between(flight.sent, now).min(ago_ms).max(0.0);
            backlog.push(since_ms, flight.bytes - flight.arrived);
        }
        backlog
    }

    /// What the oldest frame on its way shows about the link. Its first packet counts as passed from the
    /// beginning. `None` without such a frame, or if the window of the frame's connection may hold it back.
    pub(super) fn in_service(&self, now: Instant) -> Option<Service> {
        let oldest = self.flights.front()?;
        let since = |sent_ms: f64, end_ms: Option<f64>| end_ms.map_or(sent_ms, |end_ms| sent_ms.min(end_ms));
        let (through, ms) = match oldest.first {
            // Nobody knows yet what has passed since the last report.
            Some(_) => {
                let sent_ms = ms_between(oldest.sent, oldest.last) - self.delay_ms();
                (oldest.arrived, since(sent_ms, self.last_end.map(|end| ms_between(end, oldest.last))))
            }
            // No byte was reported yet. The first report would take a round trip, or the way back after the end of
            // the frame before. The difference of the clocks is both in the end and in the delay, so it cancels.
            None => {
                let sent_ms = ms_between(oldest.sent, now) - self.round_trip_ms();
                let back_ms = self.round_trip_ms() - self.delay_ms();
                (0.0, since(sent_ms, self.last_end.map(|end| ms_between(end, now) - back_ms)))
            }
        };
        if self.is_window_limited(oldest, ms) {
            return None;
        }
        let at_least = |passage: Passage| Passage { bytes: passage.bytes.max(PACKET_BYTES), ..passage };
        let whole = at_least(Passage { bytes: through, ms });
        Some(Service { whole, lately: oldest.lately().map(at_least) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::sent;

    /// The first packet has the bytes that the transport says, otherwise those of a small datagram. A frame of one packet is its own first packet.
    #[test]
    fn a_first_packet_has_the_bytes_that_the_transport_says() {
        let first_packet = |bytes: f64, first_packet_bytes: Option<u32>| {
            let mut flights = Flights::new();
            flights.send(&SentFrame { first_packet_bytes, ..sent(1, 0, bytes, Instant::ZERO) }, None);
            flights.newest().map(|flight| flight.first_bytes)
        };
        assert_eq!(first_packet(2_000.0, Some(1_300)), Some(1_300.0));
        assert_eq!(first_packet(2_000.0, None), Some(PACKET_BYTES));
        assert_eq!(first_packet(1_250.0, Some(1_300)), Some(1_250.0));
    }

    /// A frame that was cancelled before another one counts as passed once the other
    /// one is reported. So frames must be given in the order of their sending.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "frames are sent out of order")]
    fn a_frame_that_is_sent_out_of_order_is_noticed() {
        let mut flights = Flights::new();
        flights.send(&sent(2, 0, 1e3, Instant::ZERO), None);
        flights.send(&sent(1, 0, 1e3, Instant::ZERO), None);
    }
}
