//! Counts the bytes that have left, which QUIC does not report, with a congestion controller that counts.
//!
//! QUIC buffers bytes long before it sends them, and a buffered frame can no longer be replaced by a newer frame. [`SentBytes`] counts the bytes that
//! leave according to the congestion controller, minus the bytes that it reports lost. With this count a frame is written in pieces, each just before
//! it is sent. `docs/decisions/0001-delivery-path.md` measures this against the alternatives.
//!
//! The count is an estimate: the payload of a packet is not reported. On a link that is always full, errors would add up from frame to frame, and
//! each frame would begin behind more and more bytes of earlier frames. Three measures prevent this. The count errs on the side of too few sent
//! bytes. Each frame counts from the end of the previous frame. When QUIC reports that it has nothing left to send, the count is corrected.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mez_core::units;
use mez_core::window::Bound;
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;
use tokio::sync::Notify;

use super::quic::DATAGRAM_BYTES_ETHERNET;

/// The least that may be written ahead of sending, in bytes. Up to [`AHEAD_BYTES_MAX`] it is a quarter of the congestion window.
const AHEAD_BYTES_MIN: u64 = 16 << 10;
/// The most bytes that the congestion window allows to be written ahead of sending.
const AHEAD_BYTES_MAX: u64 = 256 << 10;
/// The bytes that leave within this time may always be written ahead. Holding them back would not help
/// a newer frame, and on the fastest links smaller pieces would take longer to write than to send.
const AHEAD_TIME: Duration = Duration::from_millis(1);
/// The smallest piece in bytes, even if less may be written ahead.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// Bytes of a packet that carry no payload: 33 to 37 for its header, its tag and the stream frame's header, and the rest for
/// acknowledgements and messages. A packet has at most one of these, as reports come once in 10 ms, so the number errs on the high side.
const PACKET_OVERHEAD_BYTES: u64 = 50;
/// The most packets that one transmission counts as. Packets are counted by the difference of their
/// numbers, and QUIC sometimes skips numbers (RFC 9000, section 21.4).
const PACKETS_AT_ONCE_MAX: u64 = 64;
/// A frame counts as sent when at most this many bytes of it seem unsent, because [`PACKET_OVERHEAD_BYTES`] is not exact.
const UNSENT_BYTES_MIN: u64 = 3 << 10;
/// For a large frame, the tolerance is one byte in this many: a little more than the error of [`PACKET_OVERHEAD_BYTES`].
const UNSENT_ONCE_IN: u64 = 64;

/// The value of `Counters::opening` once the path of a connection has been full.
const OPEN: u64 = u64::MAX;

/// The number of bytes of a connection that have left. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct SentBytes(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    sent: AtomicU64,
    lost: AtomicU64,
    /// How many bytes may be written ahead.
    ahead: AtomicU64,
    /// How many bytes may be in flight, as long as the path was never full; [`OPEN`] once it was.
    opening: AtomicU64,
    /// The stream bytes in a packet; 0 until known.
    packet: AtomicU64,
    /// The total at which the waiting task is woken. Waking it for each datagram would cost a thread switch each.
    wake_at: AtomicU64,
    changed: Notify,
    written: Mutex<Written>,
}

/// What was written to QUIC of live frames. Totals are values of [`SentBytes::total`].
#[derive(Debug, Default)]
struct Written {
    /// The number of the frame in progress.
    frame: u64,
    /// The total when all of its written bytes have left.
    end: u64,
    /// The value of `end` when a packet last left. If QUIC has nothing left to send now, everything up to it has left.
    passed: u64,
    /// The total when all of the last completely written frame has left.
    whole: u64,
}

impl Default for Counters {
    fn default() -> Self {
        let (sent, lost, packet, changed, written) = Default::default();
        let (ahead, opening, wake_at) = (AHEAD_BYTES_MIN.into(), OPEN.into(), u64::MAX.into());
        Self { sent, lost, ahead, opening, packet, wake_at, changed, written }
    }
}

impl SentBytes {
    fn total(&self) -> u64 {
        self.0.sent.load(Ordering::SeqCst).saturating_sub(self.0.lost.load(Ordering::SeqCst))
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.written.lock().expect("nobody panics while it is held")
    }

    /// Counts a packet that has left, with this many bytes of payload.
    fn on_sent(&self, bytes: u64) {
        let mut written = self.written();
        written.passed = written.end;
        drop(written);
        self.add_sent(bytes);
    }

    /// Corrects the count: QUIC had nothing left to send when it last looked, though it could have sent.
    fn on_dry(&self) {
        let written = self.written();
        self.add_sent(written.passed.saturating_sub(self.total()));
    }

    fn add_sent(&self, bytes: u64) {
        self.0.sent.fetch_add(bytes, Ordering::SeqCst);
        if self.total() >= self.0.wake_at.load(Ordering::SeqCst) {
            // A task that waits for a higher total sets `wake_at` again.
            self.0.wake_at.store(u64::MAX, Ordering::SeqCst);
            self.0.changed.notify_waiters();
        }
    }

    /// Waits until the total has reached this value.
    async fn reaches(&self, total: u64) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // From here on no wake-up is missed, so the total is checked after this.
            changed.as_mut().enable();
            self.0.wake_at.fetch_min(total, Ordering::SeqCst);
            if self.total() >= total {
                return;
            }
            changed.await;
        }
    }

    /// The most bytes that may be in flight, as long as the connection's path was never full.
    pub(super) fn opening(&self) -> Option<u64> {
        Some(self.0.opening.load(Ordering::Relaxed)).filter(|window| *window != OPEN)
    }

    /// The number of stream bytes in a packet. `None`: not known yet.
    pub(super) fn packet_bytes(&self) -> Option<u32> {
        u32::try_from(self.0.packet.load(Ordering::Relaxed)).ok().filter(|bytes| *bytes > 0)
    }

    /// Starts the count of a live frame. Its bytes leave after the last bytes of the previous frame, unless that frame was given up.
    pub(super) fn live_frame(&self) -> FrameSent {
        let mut written = self.written();
        let base = self.total().max(written.whole);
        let passed = written.passed.min(base);
        *written = Written { frame: written.frame + 1, end: base, passed, whole: base };
        FrameSent { base, written: 0, live: Some(written.frame), counters: self.clone() }
    }

    /// Starts the count of a piece of a frame of the past. Live frames go first.
    pub(super) fn past_piece(&self) -> FrameSent {
        FrameSent { base: self.total(), written: 0, live: None, counters: self.clone() }
    }
}

/// Tracks how much of one frame has left.
#[derive(Clone)]
pub(super) struct FrameSent {
    counters: SentBytes,
    /// The total when the frame's first byte leaves.
    base: u64,
    written: u64,
    /// The number of the live frame. `None`: a frame of the past.
    live: Option<u64>,
}

impl FrameSent {
    /// Notes bytes that were handed to QUIC. Called after the write, because the bytes cannot have left before.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
        self.note(|written, end| written.end = end);
    }

    /// Updates the totals of live frames, unless this frame was given up and a newer frame is in progress.
    fn note(&self, tell: impl FnOnce(&mut Written, u64)) {
        let mut written = self.counters.written();
        if self.live == Some(written.frame) {
            tell(&mut written, self.base + self.written);
        }
    }

    /// Notes that the frame was given up after it counted as sent: the rest of it never leaves, so the next frame must not count it.
    pub(super) fn give_up(&self) {
        let mut written = self.counters.written();
        if self.live == Some(written.frame) {
            written.whole = 0;
        }
    }

    /// Waits until at most half of the allowance is unsent, and returns how many bytes may be written now.
    pub(super) async fn ready(&self) -> usize {
        let ahead = self.counters.0.ahead.load(Ordering::Relaxed);
        self.unsent_at_most(ahead / 2).await;
        let unsent = self.written.saturating_sub(self.left());
        ahead.saturating_sub(unsent).max(PIECE_BYTES_MIN) as usize
    }

    /// Waits until all written bytes have left, of a whole frame or of a piece of the past.
    pub(super) async fn all_sent(&self) {
        self.unsent_at_most(UNSENT_BYTES_MIN.max(self.written / UNSENT_ONCE_IN)).await;
        self.note(|written, end| written.whole = end);
    }

    /// Reports how many of `payload_bytes` are unsent when the number changes, at most once per `interval`, until
    /// all have left. Never returns by itself. A frame that leaves within the first `interval` is not reported.
    pub(super) async fn tell_unsent<F: Future<Output = ()>>(
        &self,
        payload_bytes: u64,
        interval: Duration,
        mut tell: impl FnMut(u64) -> F,
    ) {
        let mut told = payload_bytes;
        tokio::time::sleep(interval).await;
        while told > 0 {
            self.counters.reaches(self.base + payload_bytes - told + 1).await;
            told = payload_bytes.saturating_sub(self.left());
            tell(told).await;
            tokio::time::sleep(interval).await;
        }
        std::future::pending().await
    }

    /// The bytes of the frame that have left, including its header.
    fn left(&self) -> u64 {
        self.counters.total().saturating_sub(self.base)
    }

    async fn unsent_at_most(&self, bytes: u64) {
        self.counters.reaches((self.base + self.written).saturating_sub(bytes)).await;
    }
}

/// Makes CUBIC controllers that count.
pub(super) struct CountingCubic {
    cubic: Arc<CubicConfig>,
    counters: SentBytes,
}

impl CountingCubic {
    pub(super) fn new(counters: SentBytes) -> Self {
        Self { cubic: Arc::new(CubicConfig::default()), counters }
    }
}

impl ControllerFactory for CountingCubic {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = Arc::clone(&self.cubic).build(now, current_mtu);
        let counting = Counting {
            inner,
            counters: self.counters.clone(),
            bound: Bound::new(),
            origin: now,
            newest_packet: 0,
            mtu: current_mtu.into(),
        };
        counting.note_window();
        Box::new(counting)
    }
}

/// A controller that counts and bounds the window, and passes everything on to CUBIC.
struct Counting {
    inner: Box<dyn Controller>,
    counters: SentBytes,
    bound: Bound,
    /// The zero of the bound's clock.
    origin: Instant,
    newest_packet: u64,
    mtu: u64,
}

impl Counting {
    fn since_origin(&self, at: Instant) -> units::Instant {
        units::Instant::ZERO + at.saturating_duration_since(self.origin)
    }

    /// Updates the counters after a change of the window or the rate.
    fn note_window(&self) {
        let by_window = (self.window() / 4).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
        let ahead = by_window.max(self.bound.bytes_in(AHEAD_TIME));
        self.counters.0.ahead.store(ahead, Ordering::Relaxed);
        let opening = self.bound.opening(self.mtu).map_or(OPEN, |most| most.min(self.inner.window()));
        self.counters.0.opening.store(opening, Ordering::Relaxed);
        // On a host's own routes packets have up to 64 kB. A frame in one such packet measures its link as well as several packets do.
        let packet = self.mtu.min(DATAGRAM_BYTES_ETHERNET.into()).saturating_sub(PACKET_OVERHEAD_BYTES);
        self.counters.0.packet.store(packet, Ordering::Relaxed);
    }
}

impl Controller for Counting {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
        self.bound.on_sent(self.since_origin(now), bytes);
        let packets = last_packet_number.saturating_sub(self.newest_packet).clamp(1, PACKETS_AT_ONCE_MAX);
        self.newest_packet = self.newest_packet.max(last_packet_number);
        let payload = bytes.saturating_sub(packets * PACKET_OVERHEAD_BYTES);
        self.counters.on_sent(payload);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
        self.bound.on_ack(self.since_origin(now), self.since_origin(sent), bytes);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        if app_limited {
            self.counters.on_dry();
        }
        self.note_window();
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.inner.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
        self.bound.on_lost(lost_bytes);
        let payload = lost_bytes.saturating_sub(lost_bytes.div_ceil(self.mtu) * PACKET_OVERHEAD_BYTES);
        self.counters.0.lost.fetch_add(payload, Ordering::SeqCst);
        self.note_window();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
        self.mtu = new_mtu.into();
        self.note_window();
    }

    fn window(&self) -> u64 {
        let inner = self.inner.window();
        self.bound.bytes_max(self.mtu).map_or(inner, |most| inner.min(most))
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let (inner, counters, bound) = (self.inner.clone_box(), self.counters.clone(), self.bound.clone());
        Box::new(Self { inner, counters, bound, ..*self })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    const FRAME_BYTES: usize = 1_000_000;
    /// The bytes that a full link carries between the ends of two frames.
    const SENT: u64 = FRAME_BYTES as u64;

    fn is_sent(frame: &FrameSent) -> bool {
        pin!(frame.all_sent()).now_or_never().is_some()
    }

    fn write(sent: &SentBytes) -> FrameSent {
        let mut frame = sent.live_frame();
        frame.wrote(FRAME_BYTES);
        frame
    }

    /// A frame counts as sent with its last bytes unsent. If the next frame were counted from there, it would begin behind these bytes, and so on.
    #[test]
    fn what_is_left_of_a_frame_does_not_add_up() {
        let sent = SentBytes::default();
        let mut all_sent = 0;
        for number in 1..=100 {
            let frame = write(&sent);
            while !is_sent(&frame) {
                sent.on_sent(1_000);
                all_sent += 1_000;
            }
            let left = number * SENT - all_sent;
            assert!(left <= SENT / UNSENT_ONCE_IN, "{left} bytes are left after {number} frames");
        }
    }

    /// The count takes too few bytes as sent. QUIC reports that nothing is left.
    #[test]
    fn a_count_that_lags_behind_is_set_right() {
        let sent = SentBytes::default();
        for _ in 0..100 {
            let frame = write(&sent);
            sent.on_sent(SENT * 99 / 100);
            sent.on_dry();
            assert!(is_sent(&frame));
            assert_eq!(frame.left(), SENT);
        }
    }

    /// Bytes that were written after QUIC last looked have not left, even if it reported that nothing was left.
    #[test]
    fn what_quic_has_not_seen_has_not_left() {
        let sent = SentBytes::default();
        let mut frame = write(&sent);
        sent.on_sent(SENT * 9 / 10);
        frame.wrote(FRAME_BYTES);
        sent.on_dry();
        assert!(!is_sent(&frame));
        assert_eq!(frame.left(), SENT);
    }

    /// The next frame does not wait for bytes of a given-up frame, which never leave.
    #[test]
    fn a_frame_that_is_given_up_counts_no_more() {
        let sent = SentBytes::default();
        let mut given_up = write(&sent);
        sent.on_sent(SENT / 2);
        let next = write(&sent);
        // The given-up frame's task learns of this a moment later.
        given_up.wrote(FRAME_BYTES);
        sent.on_sent(SENT);
        assert!(is_sent(&next));
    }

    /// A frame is given up after it counted as sent: an outage has lost its last bytes.
    #[test]
    fn a_frame_that_is_given_up_after_it_was_sent_counts_no_more() {
        for tells in [true, false] {
            let sent = SentBytes::default();
            let given_up = write(&sent);
            sent.on_sent(SENT);
            assert!(is_sent(&given_up));
            sent.0.lost.fetch_add(SENT / 2, Ordering::SeqCst);
            if tells {
                given_up.give_up();
            }
            let next = sent.live_frame();
            // If the next frame begins first, QUIC reports that nothing is left.
            if !tells {
                assert!(next.base > sent.total());
                sent.on_dry();
            }
            assert_eq!(next.base, sent.total(), "nothing is in front of the next one");
        }
    }
}
