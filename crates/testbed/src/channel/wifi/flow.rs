//! Models a camera's transport: it cuts frames into packets and sends them with a congestion window.

use super::scene::Load;
use crate::chance::Chance;

/// Payload bytes of a data packet: a TCP segment on Ethernet.
pub(super) const PAYLOAD_BYTES: f64 = 1_448.0;
/// Packets that one acknowledgement covers (RFC 5681, section 4.2: at least every second segment).
const ANSWERED_PACKETS: u32 = 2;
/// The initial window, in packets (RFC 6928).
const WINDOW_FIRST: f64 = 10.0;
/// The smallest window, in packets.
const WINDOW_MIN: f64 = 2.0;
/// The idle time after which the window is reset, in nanoseconds: half of Linux's shortest retransmission timeout of 200 ms.
const PAUSE: u64 = 100_000_000;

/// The transport of one camera. It sends a frame once the previous one has arrived.
pub(super) struct Flow {
    pub(super) load: Option<Load>,
    /// Whether a load with pauses is sending now.
    is_on: bool,
    phase_until: u64,
    /// Packets of the frame in service that are not yet in the driver's queue.
    to_queue: usize,
    /// Packets of the frame in service that have not arrived.
    to_arrive: usize,
    captured: u64,
    next_due: u64,
    /// How many more frames will be captured.
    frames: usize,
    window: f64,
    /// Packets that were sent and not acknowledged.
    unanswered: usize,
    /// Packets that have arrived and are not acknowledged.
    owed: u32,
    idle_since: u64,
    pub(super) latencies_ms: Vec<f64>,
}

impl Flow {
    pub(super) fn new(load: Option<Load>, frames: usize) -> Self {
        Self {
            load,
            is_on: true,
            phase_until: 0,
            to_queue: 0,
            to_arrive: 0,
            captured: 0,
            next_due: 0,
            frames,
            window: WINDOW_FIRST,
            unanswered: 0,
            owed: 0,
            idle_since: 0,
            latencies_ms: Vec::new(),
        }
    }

    /// Whether no packet is in flight, and no frame will come.
    pub(super) fn is_over(&self) -> bool {
        self.to_arrive == 0 && (self.frames == 0 || self.load.is_none())
    }

    /// Changes the load after the frame in service.
    pub(super) fn set_load(&mut self, now: u64, load: Option<Load>) {
        self.load = load;
        self.next_due = self.next_due.max(now);
    }

    /// When the next frame may be captured, if the frame in service has arrived.
    pub(super) fn due(&self) -> Option<u64> {
        (self.load.is_some() && self.to_arrive == 0 && self.frames > 0).then_some(self.next_due)
    }

    /// Captures a frame if one is due.
    pub(super) fn capture(&mut self, now: u64, chance: &mut Chance) {
        let (Some(load), Some(due)) = (self.load, self.due()) else { return };
        if now < due {
            return;
        }
        let interval = (1e9 / load.frames_per_second) as u64;
        // The next multiple of the interval: a camera that could not keep up skips frames but keeps its rhythm.
        self.next_due += ((now - due) / interval + 1) * interval;
        if let Some((on_ms, off_ms)) = load.on_off_ms {
            while self.phase_until <= now {
                self.is_on = !self.is_on || self.phase_until == 0;
                let mean_ms = if self.is_on { on_ms } else { off_ms };
                self.phase_until += (chance.exponential(mean_ms) * 1e6) as u64 + 1;
            }
            if !self.is_on {
                return;
            }
        }
        let noise = 1.0 + load.size_noise * chance.normal();
        let packets = (load.bytes * noise.max(0.2) / PAYLOAD_BYTES).ceil() as usize;
        self.captured = now;
        (self.to_queue, self.to_arrive) = (packets, packets);
        if now - self.idle_since > PAUSE {
            self.window = WINDOW_FIRST;
        }
        self.frames -= 1;
    }

    /// Releases packets into the driver's queue, which has `room`. Returns their number.
    pub(super) fn release(&mut self, room: usize) -> usize {
        let window = (self.window as usize).saturating_sub(self.unanswered);
        let packets = self.to_queue.min(room).min(window);
        self.to_queue -= packets;
        self.unanswered += packets;
        packets
    }

    /// Packets have arrived. Returns how many packets each acknowledgement covers, and whether the frame is complete.
    pub(super) fn arrive(&mut self, packets: usize) -> (Vec<u32>, bool) {
        self.to_arrive -= packets;
        self.owed += packets as u32;
        let mut answers = Vec::new();
        while self.owed >= ANSWERED_PACKETS || (self.owed > 0 && self.to_arrive == 0) {
            let packets = self.owed.min(ANSWERED_PACKETS);
            self.owed -= packets;
            answers.push(packets);
        }
        (answers, packets > 0 && self.to_arrive == 0)
    }

    /// The frame has arrived at the edge.
    pub(super) fn end(&mut self, now: u64, there: u64) {
        self.latencies_ms.push((there - self.captured) as f64 / 1e6);
        self.idle_since = now;
    }

    /// The radio gave up packets. They are sent again, with half the window (RFC 5681).
    pub(super) fn lose(&mut self, packets: usize) {
        self.to_queue += packets;
        self.unanswered -= packets;
        self.window = (self.window / 2.0).max(WINDOW_MIN);
    }

    /// An acknowledgement has arrived.
    pub(super) fn answered(&mut self, packets: u32, window_max: f64) {
        self.unanswered -= packets as usize;
        self.window = (self.window + f64::from(packets)).min(window_max);
    }
}
