//! Bounds the congestion window of a connection: to what the path carries in one round trip, and little more.
//!
//! Sent bytes cannot be called back. CUBIC (RFC 9438) lets a window grow until a packet is lost. On a path with a deep queue,
//! the window then holds more than a second of data once the path becomes slower. If a stale frame is cancelled, its bytes
//! are still ahead of those of the newest frame. So the window is bounded by `GAIN · (rate · (round trip + SLACK) + pause)`,
//! with the greatest delivery rate and the shortest round trip seen lately, as in BBR (Cardwell et al., 2016).
//!
//! A rate sample from packets that met no queue is only a lower bound of the path's capacity, so it counts only if it raises the estimate.
//! The pause is the longest recent time without an acknowledgement while bytes were in flight. A station of a crowded Wi-Fi cell needs the
//! pause: it waits for its turn to send, and with too few bytes in flight, each turn would carry less than the last. A pause counts with
//! the rate of the packets that ended it, not with the greatest rate, because a path that has become slower pauses before every packet.
//!
//! While the rate of a new connection still grows with the bound, the capacity of the path is unknown. The
//! bound then doubles with every round trip, as in slow start (RFC 9002, section 7.3.1).

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Instant;

/// The bound exceeds the estimated capacity by this factor, so that it can grow when the path becomes faster.
/// BBR probes with the same factor.
const GAIN: f64 = 1.25;
/// Replaces [`GAIN`] until the path was full for the first time. The bound then doubles with every round
/// trip, as in slow start.
const GAIN_AT_FIRST: f64 = 2.0;
/// How much longer than the shortest a round trip may be while the path is still filled. It covers a few
/// queued packets, and a receiver that acknowledges every other packet.
const SLACK: Duration = Duration::from_millis(5);
/// The longest pause that counts as a wait for a turn on the radio. A longer one is an outage.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// The bound is never below this many packets. With fewer packets in flight, a loss
/// would not be detected (RFC 9002, section 6.1.1: three later packets must arrive).
const PACKETS_MIN: u64 = 4;
/// The lowest bound until the path was full for the first time, in packets. It is also the bound before the
/// first acknowledgement: the initial window of RFC 9002, section 7.2.
pub const PACKETS_AT_FIRST: u64 = 10;
/// Half of the time for which the greatest rate counts. 1 s in all is long against a round trip, and short
/// enough to notice soon that a path has become slower.
const RATE_HALF: Duration = Duration::from_millis(500);
/// Half of the time for which the shortest round trip counts. 10 s, as in BBR; a route may become longer.
const ROUND_TRIP_HALF: Duration = Duration::from_secs(5);
/// The smallest packet size that QUIC allows a path to have, in bytes (RFC 9000, section 14).
const MTU_MIN: u64 = 1_200;
/// The path counts as full once its rate grows by less than this factor for [`ROUNDS_FULL`] round trips. The
/// value is that of BBR's startup.
const GROWTH: f64 = 1.25;
/// The path counts as full after this many round trips without growth. Only those count in which the bound,
/// not the application, limited the rate. BBR waits for three.
const ROUNDS_FULL: u32 = 2;
/// The most groups of packets in flight that are tracked; beyond that, the oldest are forgotten.
const SENDINGS_MAX: usize = 1024;

/// A maximum or minimum over a sliding window, kept as its current and its previous half.
#[derive(Clone, Copy, Debug)]
struct Extreme {
    begun: Option<Instant>,
    recent: f64,
    before: f64,
    better: fn(f64, f64) -> f64,
}

impl Extreme {
    const fn new(worst: f64, better: fn(f64, f64) -> f64) -> Self {
        Self { begun: None, recent: worst, before: worst, better }
    }

    fn note(&mut self, now: Instant, half: Duration, value: f64) {
        let begun = *self.begun.get_or_insert(now);
        if now.saturating_since(begun) >= half {
            (self.before, self.recent, self.begun) = (self.recent, value, Some(now));
        }
        self.recent = (self.better)(self.recent, value);
    }

    fn value(&self) -> f64 {
        (self.better)(self.recent, self.before)
    }
}

/// Packets that were sent at the same time.
#[derive(Clone, Copy, Debug)]
struct Sending {
    at: Instant,
    /// Bytes of these packets that are not acknowledged.
    bytes: u64,
    /// Bytes that had been delivered when these packets were sent.
    delivered: u64,
    /// When the last of the delivered bytes was acknowledged.
    delivered_at: Instant,
}

/// Bounds the window of one connection.
#[derive(Clone, Debug)]
pub struct Bound {
    sendings: VecDeque<Sending>,
    sent: u64,
    delivered: u64,
    lost: u64,
    delivered_at: Option<Instant>,
    /// In bytes per second.
    rate: Extreme,
    /// In seconds.
    round_trip: Extreme,
    /// In bytes: the bytes that pass in a pause.
    pause: Extreme,
    start: Start,
}

/// The state of a connection whose path was never full.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    /// Whether the path was full once.
    is_over: bool,
    /// A round trip ends once this many bytes are delivered or lost: all that was sent before it began.
    round_until: u64,
    /// Whether the bound held bytes back in this round trip.
    limited: bool,
    /// The greatest rate when it last grew by [`GROWTH`].
    rate: f64,
    /// Round trips without growth since then.
    rounds: u32,
}

impl Default for Bound {
    fn default() -> Self {
        Self::new()
    }
}

impl Bound {
    /// The bound of a connection that has sent nothing.
    pub fn new() -> Self {
        Self {
            sendings: VecDeque::new(),
            sent: 0,
            delivered: 0,
            lost: 0,
            delivered_at: None,
            rate: Extreme::new(0.0, f64::max),
            round_trip: Extreme::new(f64::INFINITY, f64::min),
            pause: Extreme::new(0.0, f64::max),
            start: Start::default(),
        }
    }

    /// `bytes` were sent.
    pub fn on_sent(&mut self, now: Instant, bytes: u64) {
        // Idle time of the sender does not count as time of the path.
        let rested = self.delivered + self.lost >= self.sent;
        let delivered_at = self.delivered_at.filter(|_| !rested).unwrap_or(now);
        self.sent += bytes;
        let in_flight = self.sent.saturating_sub(self.delivered + self.lost);
        self.start.limited |= self.bytes_max(MTU_MIN).is_some_and(|most| in_flight + MTU_MIN > most);
        if let Some(last) = self.sendings.back_mut().filter(|last| last.at == now) {
            last.bytes += bytes;
            return;
        }
        if self.sendings.len() == SENDINGS_MAX {
            self.sendings.pop_front();
        }
        // `on_ack` finds a sending by its time, and forgets those before it.
        debug_assert!(self.sendings.back().is_none_or(|last| last.at < now), "time goes back");
        self.sendings.push_back(Sending { at: now, bytes, delivered: self.delivered, delivered_at });
    }

    /// `bytes` that were sent at `sent` have been acknowledged.
    pub fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivered += bytes;
        let delivered_at = self.delivered_at.replace(now);
        while self.sendings.front().is_some_and(|first| first.at < sent) {
            self.sendings.pop_front();
        }
        let Some(sending) = self.sendings.front_mut().filter(|first| first.at == sent) else { return };
        sending.bytes = sending.bytes.saturating_sub(bytes);
        let sending = *sending;
        let round_trip = now.saturating_since(sent).as_secs_f64();
        self.round_trip.note(now, ROUND_TRIP_HALF, round_trip);
        let least = self.round_trip.value();
        let took = now.saturating_since(sending.delivered_at).as_secs_f64().max(least).max(1e-6);
        let rate = (self.delivered - sending.delivered) as f64 / took;
        let late = self.answer_due(&sending).map(|due| now.saturating_since(due));
        // The acknowledgement could have come together with the previous one.
        let pause = late.map(|late| late.min(now.saturating_since(delivered_at.unwrap_or(now))));
        if let Some(pause) = pause {
            self.pause.note(now, RATE_HALF, pause.min(PAUSE_MAX).as_secs_f64() * rate);
        }
        if late.is_some_and(|late| late > SLACK) || rate > self.rate.value() {
            self.rate.note(now, RATE_HALF, rate);
        }
        self.look_at_round();
    }

    /// The earliest time at which a packet can be acknowledged. A receiver acknowledges every other packet at
    /// once. It may delay the acknowledgement of a packet that no other follows (RFC 9000, section 13.2);
    /// `None` for such a packet.
    fn answer_due(&self, sending: &Sending) -> Option<Instant> {
        let followed = match sending.bytes {
            0 => self.sendings.get(1)?.at,
            _ => sending.at,
        };
        Some(followed + Duration::from_secs_f64(self.round_trip.value()))
    }

    /// Decides at the end of a round trip whether the path is full: more bytes were in flight, and the rate did not grow.
    fn look_at_round(&mut self) {
        if self.start.is_over || self.delivered + self.lost < self.start.round_until {
            return;
        }
        let rate = self.rate.value();
        if rate >= GROWTH * self.start.rate {
            (self.start.rate, self.start.rounds) = (rate, 0);
        } else if self.start.limited {
            self.start.rounds += 1;
        }
        self.start.is_over = self.start.rounds >= ROUNDS_FULL;
        (self.start.round_until, self.start.limited) = (self.sent, false);
    }

    /// `bytes` are declared lost.
    pub fn on_lost(&mut self, bytes: u64) {
        self.lost += bytes;
    }

    /// The bytes that the path lately carried in this `time`; 0 while the rate is unknown.
    pub fn bytes_in(&self, time: Duration) -> u64 {
        (self.rate.value() * time.as_secs_f64()) as u64
    }

    /// The most bytes that may be in flight, with packets of `mtu` bytes. `None` while the rate is unknown.
    pub fn bytes_max(&self, mtu: u64) -> Option<u64> {
        let (rate, round_trip) = (self.rate.value(), self.round_trip.value());
        let (gain, least) = match self.start.is_over {
            true => (GAIN, PACKETS_MIN),
            false => (GAIN_AT_FIRST, PACKETS_AT_FIRST),
        };
        let bytes = rate * (gain * round_trip + GAIN * SLACK.as_secs_f64()) + GAIN * self.pause.value();
        // The rate is known as soon as a round trip is, so the product is finite.
        debug_assert!(rate <= 0.0 || bytes.is_finite(), "a bound of {bytes} bytes");
        (rate > 0.0).then(|| (bytes as u64).max(least * mtu))
    }

    /// The most bytes that may be in flight while the path was never full. Doubles
    /// with every round trip that it limits. `None` once the path was full.
    pub fn opening(&self, mtu: u64) -> Option<u64> {
        (!self.start.is_over).then(|| self.bytes_max(mtu).unwrap_or(PACKETS_AT_FIRST * mtu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1_452;

    /// A path with one queue and a delay. Its sender always sends as much as the bound allows, except for rests.
    struct Path {
        bound: Bound,
        now_us: u64,
        free_us: u64,
        /// When each packet is acknowledged, and when it was sent.
        on_way: VecDeque<(u64, u64)>,
        queued_most: u64,
        /// If the sender has to wait for turns: the time between turns, the start
        /// of the next turn with room, both in µs, and the packets in this turn.
        turns: Option<(u64, u64, u64)>,
        /// By how much the receiver is late with the acknowledgement of a frame's last packet.
        answers_late_us: u64,
    }

    /// The packets that a turn carries.
    const TURN: u64 = 20;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    impl Path {
        fn new() -> Self {
            let (bound, on_way) = (Bound::new(), VecDeque::new());
            Self { bound, now_us: 0, free_us: 0, on_way, queued_most: 0, turns: None, answers_late_us: 0 }
        }

        /// Sends for `ms` milliseconds over a path that carries `bytes_per_ms`: a frame of `frame` bytes every 66 ms.
        fn run(&mut self, ms: u64, bytes_per_ms: u64, round_trip_us: u64, frame: u64) {
            let end = self.now_us + ms * 1_000;
            let (mut left, mut next) = (0, self.now_us);
            self.queued_most = 0;
            while self.now_us < end {
                while let Some((_, sent)) = self.on_way.pop_front_if(|(due, _)| *due <= self.now_us) {
                    let (now, sent) = (at(self.now_us), at(sent));
                    self.bound.on_ack(now, sent, MTU);
                }
                if self.now_us >= next {
                    (left, next) = (frame, next + 66_000);
                }
                let window = self.bound.bytes_max(MTU).unwrap_or(10 * MTU);
                while left > 0 && (self.on_way.len() as u64 + 1) * MTU <= window {
                    left = left.saturating_sub(MTU);
                    let now = at(self.now_us);
                    self.bound.on_sent(now, MTU);
                    self.free_us = self.through_us(bytes_per_ms);
                    let late_us = if left == 0 { self.answers_late_us } else { 0 };
                    self.on_way.push_back((self.free_us + round_trip_us + late_us, self.now_us));
                }
                let queued = self.free_us.saturating_sub(self.now_us) * bytes_per_ms / 1_000;
                self.queued_most = self.queued_most.max(queued);
                self.now_us += 100;
            }
        }

        /// When a packet that is sent now has passed the path.
        fn through_us(&mut self, bytes_per_ms: u64) -> u64 {
            let packet_us = MTU * 1_000 / bytes_per_ms;
            let Some((every_us, next_us, packets)) = &mut self.turns else {
                return self.free_us.max(self.now_us) + packet_us;
            };
            // A turn carries the packets that wait when it begins.
            let begins_us = self.now_us.next_multiple_of(*every_us);
            if begins_us > *next_us {
                (*next_us, *packets) = (begins_us, 0);
            } else if *packets == TURN {
                (*next_us, *packets) = (*next_us + *every_us, 0);
            }
            *packets += 1;
            *next_us + *packets * packet_us
        }

        fn window(&self) -> u64 {
            self.bound.bytes_max(MTU).expect("something was sent")
        }
    }

    #[test]
    fn the_bound_is_what_the_path_carries_and_a_little_more() {
        for round_trip_us in [2_000, 6_000, 40_000, 140_000] {
            let mut path = Path::new();
            path.run(4_000, 3_000, round_trip_us, u64::MAX);
            // The queue of the start does not count.
            path.run(3_000, 3_000, round_trip_us, u64::MAX);
            let carries = 3_000 * round_trip_us / 1_000;
            assert!(path.window() >= carries, "{} of {carries} bytes", path.window());
            let most = carries * 5 / 4 + 3_000 * 8;
            assert!(path.window() <= most, "{} bytes, where {carries} fill the path", path.window());
            assert!(path.queued_most <= most - carries / 2, "{} bytes waited", path.queued_most);
        }
    }

    /// As in slow start. Little more than twice the bytes that fill the path are ever in flight.
    #[test]
    fn the_bound_of_a_new_connection_doubles_with_every_round_trip() {
        for (round_trip_us, round_trips) in [(6_000, 4), (40_000, 7), (140_000, 8)] {
            let mut path = Path::new();
            path.run(round_trips * round_trip_us / 1_000, 3_000, round_trip_us, u64::MAX);
            let carries = 3_000 * round_trip_us / 1_000;
            assert!(path.window() >= carries, "{} of {carries} bytes", path.window());
            path.run(10 * round_trip_us / 1_000, 3_000, round_trip_us, u64::MAX);
            let most = carries + 3_000 * 8;
            assert!(
                path.queued_most <= most,
                "{} bytes waited, where {carries} fill the path",
                path.queued_most
            );
        }
    }

    /// While less is sent than the path carries, its capacity is unknown.
    #[test]
    fn a_path_is_opening_until_it_was_full() {
        let mut path = Path::new();
        assert_eq!(path.bound.opening(MTU), Some(PACKETS_AT_FIRST * MTU), "before anything is known");
        path.run(5_000, 3_000, 140_000, 2 * MTU);
        let opening = path.bound.opening(MTU).expect("frames of two packets do not fill it");
        assert!(opening <= 2 * PACKETS_AT_FIRST * MTU, "{opening} bytes");
        path.run(420, 3_000, 140_000, u64::MAX);
        let opening = path.bound.opening(MTU).expect("the path carries 420 kB in a round trip");
        assert!(opening >= 4 * PACKETS_AT_FIRST * MTU, "{opening} bytes after three round trips");
        path.run(3_000, 3_000, 140_000, u64::MAX);
        assert_eq!(path.bound.opening(MTU), None);
    }

    #[test]
    fn a_path_that_became_faster_is_filled_again() {
        let mut path = Path::new();
        path.run(3_000, 100, 6_000, u64::MAX);
        assert!(path.window() <= 5 * MTU, "{}", path.window());
        path.run(500, 3_000, 6_000, u64::MAX);
        assert!(path.window() >= 18_000, "{}", path.window());
    }

    #[test]
    fn a_path_that_became_slower_holds_less_soon() {
        let mut path = Path::new();
        path.run(3_000, 3_000, 6_000, u64::MAX);
        path.run(2_500, 75, 6_000, 3_000);
        assert!(path.window() <= 5 * MTU, "{}", path.window());
        path.run(500, 75, 6_000, 9_000);
        assert!(path.queued_most <= 6 * MTU, "{} bytes waited", path.queued_most);
    }

    /// A slower path pauses before each packet. No pause ends with as many bytes as a turn does.
    #[test]
    fn a_path_that_becomes_slower_is_not_taken_for_one_with_turns() {
        let mut path = Path::new();
        path.run(5_000, 3_000, 6_000, 60_000);
        let before = path.window();
        path.run(150, 75, 6_000, 60_000);
        assert!(path.window() <= before * 5 / 4, "{} bytes, {before} before", path.window());
    }

    /// A station of a crowded Wi-Fi cell: with only the bytes that a short round trip needs in flight, each turn would carry less than the last.
    #[test]
    fn who_waits_for_turns_has_enough_for_a_whole_one() {
        for turns_us in [20_000, 40_000] {
            let mut path = Path::new();
            path.turns = Some((turns_us, 0, 0));
            path.run(3_000, 3_000, 2_000, u64::MAX);
            let before = path.bound.delivered;
            path.run(4_000, 3_000, 2_000, u64::MAX);
            let turns = 4_000_000 / turns_us;
            let share = (path.bound.delivered - before) as f64 / (turns * TURN * MTU) as f64;
            assert!(share >= 0.9, "{share} of what turns every {turns_us} µs carry");
            assert!(path.window() <= 4 * TURN * MTU, "{} bytes", path.window());
        }
    }

    /// A receiver may delay the acknowledgement of a packet that no other follows for 25 ms. The delay is neither a pause nor a queue.
    #[test]
    fn a_late_answer_says_nothing_of_the_path() {
        let window = |answers_late_us| {
            let mut path = Path::new();
            path.answers_late_us = answers_late_us;
            path.run(1_000, 3_000, 2_000, 60_000);
            path.run(5_000, 3_000, 2_000, 7 * MTU);
            path.window()
        };
        let (prompt, late) = (window(0), window(25_000));
        assert!(prompt >= 7 * MTU, "a frame goes at once: {prompt}");
        assert!(
            late >= prompt * 9 / 10 && late <= prompt * 11 / 10,
            "{late} bytes, {prompt} with prompt answers"
        );
    }

    #[test]
    fn frames_that_do_not_fill_the_path_do_not_lower_the_bound() {
        let mut path = Path::new();
        path.run(1_000, 3_000, 6_000, 150_000);
        let before = path.window();
        path.run(20_000, 3_000, 6_000, MTU);
        assert!(path.window() >= before * 3 / 4, "{} of {before} bytes", path.window());
    }
    /// Sendings are found by their times, so time must not go back.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "time goes back")]
    fn a_clock_that_goes_back_is_noticed() {
        let mut bound = Bound::new();
        bound.on_sent(at(2_000), MTU);
        bound.on_sent(at(1_000), MTU);
    }
}
