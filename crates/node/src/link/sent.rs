//! Knows how many bytes have left, which QUIC does not tell: a congestion controller that counts.
//!
//! QUIC takes bytes into a buffer long before it sends them, and a frame that is buffered can no longer be
//! replaced by a newer one. [`SentBytes`] counts what the congestion controller sees leaving, less what it sees
//! lost, so that a frame is written in pieces just ahead of the sending. Measured in
//! `docs/decisions/0001-delivery-path.md`, against the alternatives.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;
use tokio::sync::Notify;

use super::window::Bound;

/// The least and the most that may be written ahead of the sending; in between, a quarter of the window.
const AHEAD_BYTES_MIN: u64 = 16 << 10;
const AHEAD_BYTES_MAX: u64 = 256 << 10;
/// Bytes of a packet that carry no payload: the packet's header, its tag, and the head of the stream's piece in it, which
/// differ by a few bytes.
const PACKET_OVERHEAD_BYTES: u64 = 40;
/// Packets of one transmission. Numbers are left out now and then (RFC 9000, section 21.4), so their difference may be more.
const PACKETS_AT_ONCE_MAX: u64 = 64;
/// A frame counts as sent when at most this much of it seems unsent: the overhead above is not exact.
const UNSENT_BYTES_MIN: u64 = 3 << 10;

/// How many bytes of a connection have left. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct SentBytes(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    lost: AtomicU64,
    window: AtomicU64,
    changed: Notify,
}

impl SentBytes {
    fn total(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed).saturating_sub(self.0.lost.load(Ordering::Relaxed))
    }

    /// Starts to count for a frame.
    pub(super) fn frame(&self) -> FrameSent {
        FrameSent { base: self.total(), written: 0, counters: self.clone() }
    }
}

/// How much of one frame has left. Counting begins anew with every frame, so that errors do not add up.
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

    /// Waits until more may be written.
    pub(super) async fn ready(&self) {
        let window = self.counters.0.window.load(Ordering::Relaxed);
        self.unsent_at_most((window / 4).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX)).await;
    }

    /// Waits until all that was written has left.
    pub(super) async fn all_sent(&self) {
        self.unsent_at_most(UNSENT_BYTES_MIN.max(self.written / 100)).await;
    }

    /// Tells how many of `payload_bytes` have not left, whenever that has changed and no more often than in every `interval`, until
    /// all have. Never ends by itself otherwise. A frame that leaves within the first `interval` is not worth a word.
    pub(super) async fn tell_unsent<F: Future<Output = ()>>(
        &self,
        payload_bytes: u64,
        interval: Duration,
        mut tell: impl FnMut(u64) -> F,
    ) {
        let mut told = payload_bytes;
        tokio::time::sleep(interval).await;
        while told > 0 {
            let changed = self.counters.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let unsent = payload_bytes.saturating_sub(self.left());
            if unsent >= told {
                changed.await;
                continue;
            }
            told = unsent;
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
        loop {
            let changed = self.counters.0.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed, so look after this and not before.
            changed.as_mut().enable();
            if self.written.saturating_sub(self.left()) <= bytes {
                return;
            }
            changed.await;
        }
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
        self.counters.0.window.store(inner.window(), Ordering::Relaxed);
        Box::new(Counting {
            inner,
            counters: self.counters.clone(),
            bound: Bound::new(),
            newest_packet: 0,
            mtu: current_mtu.into(),
        })
    }
}

/// Passes everything on, counts, and bounds the window.
struct Counting {
    inner: Box<dyn Controller>,
    counters: SentBytes,
    bound: Bound,
    newest_packet: u64,
    mtu: u64,
}

impl Controller for Counting {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
        self.bound.on_sent(now, bytes);
        let packets = last_packet_number.saturating_sub(self.newest_packet).clamp(1, PACKETS_AT_ONCE_MAX);
        self.newest_packet = self.newest_packet.max(last_packet_number);
        let payload = bytes.saturating_sub(packets * PACKET_OVERHEAD_BYTES);
        self.counters.0.sent.fetch_add(payload, Ordering::Relaxed);
        self.counters.0.changed.notify_waiters();
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
        self.bound.on_ack(now, sent, bytes);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        self.counters.0.window.store(self.window(), Ordering::Relaxed);
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
        self.counters.0.lost.fetch_add(payload, Ordering::Relaxed);
        self.counters.0.window.store(self.window(), Ordering::Relaxed);
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
