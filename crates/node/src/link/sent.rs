//! Counts the bytes that have left, which QUIC does not report, with a congestion controller that counts.
//!
//! QUIC buffers bytes long before it sends them, and a buffered frame can no longer be replaced by a newer one. [`SentBytes`] counts the
//! bytes that the congestion controller sees leave, less those that it sees lost. So a frame is written in pieces, each just before it is
//! sent. `docs/decisions/0001-delivery-path.md` measures this against the alternatives.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mez_core::units;
use mez_core::window::Bound;
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;
use tokio::sync::Notify;

/// The least that may be written ahead of the sending. Up to [`AHEAD_BYTES_MAX`] it is a quarter of the congestion window.
const AHEAD_BYTES_MIN: u64 = 16 << 10;
/// The most that may be written ahead of the sending because of the congestion window.
const AHEAD_BYTES_MAX: u64 = 256 << 10;
/// What leaves within this time may always be written ahead. Holding it back would not help a newer frame, and on the fastest links
/// smaller pieces would take longer than their sending.
const AHEAD_TIME: Duration = Duration::from_millis(1);
/// The smallest piece, however little may be written ahead.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// Bytes of a packet that carry no payload: its header, its tag, and the header of the stream frame in it. The number is right within a few
/// bytes.
const PACKET_OVERHEAD_BYTES: u64 = 40;
/// The most packets that one transmission counts as. Packets are counted by the difference of their numbers, and QUIC skips numbers now and
/// then (RFC 9000, section 21.4).
const PACKETS_AT_ONCE_MAX: u64 = 64;
/// A frame counts as sent when at most this much of it seems unsent, because [`PACKET_OVERHEAD_BYTES`] is not exact.
const UNSENT_BYTES_MIN: u64 = 3 << 10;

/// The path of a connection has been full before.
const OPEN: u64 = u64::MAX;

/// How many bytes of a connection have left. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct SentBytes(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    sent: AtomicU64,
    lost: AtomicU64,
    /// How much may be written ahead.
    ahead: AtomicU64,
    /// What may be on its way as long as the path was never full; [`OPEN`] once it was.
    opening: AtomicU64,
    /// The total at which the waiting task is woken. Waking it with every datagram would cost a thread switch each.
    wake_at: AtomicU64,
    changed: Notify,
}

impl Default for Counters {
    fn default() -> Self {
        let (sent, lost, changed) = Default::default();
        let (ahead, opening, wake_at) = (AHEAD_BYTES_MIN.into(), OPEN.into(), u64::MAX.into());
        Self { sent, lost, ahead, opening, wake_at, changed }
    }
}

impl SentBytes {
    fn total(&self) -> u64 {
        self.0.sent.load(Ordering::SeqCst).saturating_sub(self.0.lost.load(Ordering::SeqCst))
    }

    fn add_sent(&self, bytes: u64) {
        self.0.sent.fetch_add(bytes, Ordering::SeqCst);
        if self.total() >= self.0.wake_at.load(Ordering::SeqCst) {
            // Whoever waits for more than this says so again.
            self.0.wake_at.store(u64::MAX, Ordering::SeqCst);
            self.0.changed.notify_waiters();
        }
    }

    /// Waits until so many bytes have left.
    async fn reaches(&self, total: u64) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // From here on no wake-up is missed, so look after this and not before.
            changed.as_mut().enable();
            self.0.wake_at.fetch_min(total, Ordering::SeqCst);
            if self.total() >= total {
                return;
            }
            changed.await;
        }
    }

    /// What may be on its way at most, as long as the connection's path was never full.
    pub(super) fn opening(&self) -> Option<u64> {
        Some(self.0.opening.load(Ordering::Relaxed)).filter(|window| *window != OPEN)
    }

    /// Starts to count for a frame.
    pub(super) fn frame(&self) -> FrameSent {
        FrameSent { base: self.total(), written: 0, counters: self.clone() }
    }
}

/// How much of one frame has left. Counting starts again with every frame, so errors do not add up.
#[derive(Clone)]
pub(super) struct FrameSent {
    counters: SentBytes,
    base: u64,
    written: u64,
}

impl FrameSent {
    /// Bytes of the frame were handed to QUIC.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
    }

    /// Waits until half of what may be written ahead has left, and returns how much may be written now.
    pub(super) async fn ready(&self) -> usize {
        let ahead = self.counters.0.ahead.load(Ordering::Relaxed);
        self.unsent_at_most(ahead / 2).await;
        let unsent = self.written.saturating_sub(self.left());
        ahead.saturating_sub(unsent).max(PIECE_BYTES_MIN) as usize
    }

    /// Waits until all that was written has left.
    pub(super) async fn all_sent(&self) {
        self.unsent_at_most(UNSENT_BYTES_MIN.max(self.written / 100)).await;
    }

    /// Reports how many of `payload_bytes` are unsent, whenever that changes, but at most once in `interval`, until all have left.
    /// Otherwise it never ends by itself. A frame that leaves within the first `interval` is not reported.
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

    /// Bytes of the frame that have left, with its header.
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

/// Passes everything on, counts, and bounds the window.
struct Counting {
    inner: Box<dyn Controller>,
    counters: SentBytes,
    bound: Bound,
    /// Where the bound's time begins.
    origin: Instant,
    newest_packet: u64,
    mtu: u64,
}

impl Counting {
    fn since_origin(&self, at: Instant) -> units::Instant {
        units::Instant::ZERO + at.saturating_duration_since(self.origin)
    }

    /// Says how much may be written ahead, after the window or the rate has changed.
    fn note_window(&self) {
        let by_window = (self.window() / 4).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
        let ahead = by_window.max(self.bound.bytes_in(AHEAD_TIME));
        self.counters.0.ahead.store(ahead, Ordering::Relaxed);
        let opening = self.bound.opening(self.mtu).map_or(OPEN, |most| most.min(self.inner.window()));
        self.counters.0.opening.store(opening, Ordering::Relaxed);
    }
}

impl Controller for Counting {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
        self.bound.on_sent(self.since_origin(now), bytes);
        let packets = last_packet_number.saturating_sub(self.newest_packet).clamp(1, PACKETS_AT_ONCE_MAX);
        self.newest_packet = self.newest_packet.max(last_packet_number);
        let payload = bytes.saturating_sub(packets * PACKET_OVERHEAD_BYTES);
        self.counters.add_sent(payload);
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
