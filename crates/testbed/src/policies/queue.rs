//! Models the queue of one link: what is in it, when each byte is through, and what can be taken back.
//!
//! [`crate::link`] transmits piece after piece and knows no future. Here the future is known, because places in the queue are byte counts
//! of a [`Capacity`]. So an oracle and a policy answer the same question, and taking a frame back is arithmetic.

use std::collections::VecDeque;

use mez_core::units::Instant;

use crate::channel::capacity::Capacity;

/// How many bytes have arrived when the first report is made.
const PACKET_BYTES: f64 = 1_200.0;

/// A frame in the link's queue.
pub(super) struct Burst {
    pub(super) camera: usize,
    pub(super) frame: usize,
    pub(super) bytes: f64,
    /// Its begin, in bytes that the link could have carried.
    begin: f64,
    /// Its end, in the same measure.
    end: f64,
    /// When its first byte arrived.
    pub(super) first: Option<Instant>,
    /// A number that changes when the plan does. What was planned under an earlier number is void.
    version: u32,
    pub(super) recalled: bool,
    gone: bool,
}

impl Burst {
    /// Bytes that will have passed when it is over, whole or not.
    pub(super) fn passing_bytes(&self) -> f64 {
        self.end - self.begin
    }
}

/// When things will happen to a burst, if nothing comes between.
pub(super) struct Plan {
    pub(super) burst: usize,
    pub(super) version: u32,
    /// All but the window has been served. The camera may then send the next frame.
    pub(super) left: Option<Instant>,
    /// The first packet is through.
    pub(super) passing: Option<Instant>,
    /// The last byte is through.
    pub(super) passed: Option<Instant>,
}

/// The queue: first come, first served. Nothing is removed from the list, so that a place names a burst.
pub(super) struct Queue<'a> {
    capacity: &'a Capacity,
    /// How many bytes of a frame may be in the network.
    window_bytes: f64,
    bursts: Vec<Burst>,
    waiting: VecDeque<usize>,
    /// Bytes that the link can have carried when the queue will be empty.
    tail: f64,
}

impl<'a> Queue<'a> {
    pub(super) const fn new(capacity: &'a Capacity, window_bytes: f64) -> Self {
        Self { capacity, window_bytes, bursts: Vec::new(), waiting: VecDeque::new(), tail: 0.0 }
    }

    pub(super) fn burst(&self, burst: usize) -> &Burst {
        &self.bursts[burst]
    }

    pub(super) fn burst_mut(&mut self, burst: usize) -> &mut Burst {
        &mut self.bursts[burst]
    }

    /// Whether it is empty.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether what was planned still holds.
    pub(super) fn is_current(&self, burst: usize, version: u32) -> bool {
        self.bursts[burst].version == version && !self.bursts[burst].gone
    }

    /// Adds a frame to the queue, with padding behind it.
    pub(super) fn push(&mut self, now: Instant, camera: usize, frame: usize, bytes: f64, extra: f64) -> Plan {
        let begin = self.tail.max(self.capacity.passed(now));
        self.tail = begin + bytes + extra;
        let burst = self.bursts.len();
        self.bursts.push(Burst {
            camera,
            frame,
            bytes,
            begin,
            end: begin + bytes,
            first: None,
            version: 0,
            recalled: false,
            gone: false,
        });
        self.waiting.push_back(burst);
        self.plan(burst)
    }

    /// Bytes of a burst that are through.
    pub(super) fn through_bytes(&self, now: Instant, burst: usize) -> f64 {
        let known = &self.bursts[burst];
        (self.capacity.passed(now) - known.begin).clamp(0.0, known.bytes)
    }

    /// Bytes of a burst that have not left the camera.
    pub(super) fn unsent_bytes(&self, now: Instant, burst: usize) -> f64 {
        let known = &self.bursts[burst];
        let through = (self.capacity.passed(now) - known.begin).max(0.0);
        (known.bytes - through - self.window_bytes).max(0.0)
    }

    /// Ends a burst whose last byte is through.
    pub(super) fn end(&mut self, burst: usize) {
        self.bursts[burst].gone = true;
        self.waiting.retain(|other| *other != burst);
    }

    /// Takes back what has not left the camera. What waits behind it moves up. Returns the new schedule.
    pub(super) fn recall(&mut self, now: Instant, burst: usize) -> Vec<Plan> {
        let passed = self.capacity.passed(now);
        let known = &mut self.bursts[burst];
        if known.gone {
            return Vec::new();
        }
        known.recalled = true;
        known.version += 1;
        let through = (passed - known.begin).max(0.0);
        known.end = known.end.min(known.begin + through + self.window_bytes);
        let mut tail = known.end;
        let position = self.waiting.iter().position(|other| *other == burst).expect("it is not gone");
        let mut plans = vec![self.plan(burst)];
        for index in position + 1..self.waiting.len() {
            let known = &mut self.bursts[self.waiting[index]];
            let bytes = known.passing_bytes();
            known.begin = tail.max(passed.min(known.begin));
            known.end = known.begin + bytes;
            known.version += 1;
            tail = known.end;
            plans.push(self.plan(self.waiting[index]));
        }
        self.tail = tail;
        plans
    }

    fn plan(&self, burst: usize) -> Plan {
        let Burst { begin, end, bytes, version, first, recalled, .. } = self.bursts[burst];
        let when = |wanted: bool, at: f64| if wanted { self.capacity.when(at) } else { None };
        Plan {
            burst,
            version,
            left: when(!recalled, end - self.window_bytes.min(bytes)),
            passing: when(first.is_none(), begin + PACKET_BYTES.min(bytes)),
            passed: when(true, end),
        }
    }
}
