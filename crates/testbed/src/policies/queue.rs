//! Models the queue of one link: its frames, when each byte has passed, and which bytes can be recalled.
//!
//! [`crate::link`] transmits piece after piece and knows no future. Here the future is known, because places in the queue are byte counts of a
//! [`Capacity`]. So an oracle and a policy get the same answers, and recalling a frame is arithmetic.

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
    /// Where the frame begins, in bytes that the link could have carried.
    begin: f64,
    /// Where the frame ends, in the same measure.
    end: f64,
    /// When the first byte arrived.
    pub(super) first: Option<Instant>,
    /// Increases when the plan changes. Events planned under an earlier number are void.
    version: u32,
    pub(super) recalled: bool,
    gone: bool,
}

impl Burst {
    /// Bytes that will have passed when the burst ends, whether complete or recalled.
    pub(super) fn passing_bytes(&self) -> f64 {
        self.end - self.begin
    }
}

/// When things will happen to a burst, unless it changes.
pub(super) struct Plan {
    pub(super) burst: usize,
    pub(super) version: u32,
    /// All but the window has been served, so the camera may send the next frame.
    pub(super) left: Option<Instant>,
    /// The first packet has passed.
    pub(super) passing: Option<Instant>,
    /// The last byte has passed.
    pub(super) passed: Option<Instant>,
}

/// The queue: first come, first served. Nothing is removed from the list, so a burst keeps its index.
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

    /// Whether the queue is empty.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether an event planned under this number is still valid.
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

    /// Bytes of a burst that have passed.
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

    /// Ends a burst whose last byte has passed.
    pub(super) fn end(&mut self, burst: usize) {
        self.bursts[burst].gone = true;
        self.waiting.retain(|other| *other != burst);
    }

    /// Recalls the bytes that have not left the camera. Later bursts move forward. Returns the new plans.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use mez_core::broker::LinkId;
    use mez_core::frame::{Epoch, FrameId, Sequence};

    use super::*;
    use crate::link::{Link, LinkOutput, LinkSpec, Side};
    use crate::random::Random;
    use crate::time::{Moment, ms, secs};

    /// Bytes of each frame's header.
    const HEADER_BYTES: usize = 100;
    /// The ratio of bytes on the wire to payload, for a packet with 1,200 bytes of payload.
    const ON_THE_WIRE: f64 = 1_260.0 / 1_200.0;

    /// A link between a camera and an edge, which transmits piece after piece.
    struct Pieces {
        link: Link,
        connection: LinkId,
        now: Moment,
        arrived: Vec<(u64, Moment)>,
    }

    impl Pieces {
        /// A link with a connection, at one second, which is the moment 0 of the other model.
        fn connected(bits_per_second: u64, queue_bytes_max: u64) -> Self {
            let spec = LinkSpec {
                bits_per_second,
                delay_up: ms(5),
                delay_down: ms(5),
                queue_bytes_max,
                lost_once_in: 0,
                bounded: false,
            };
            let link = Link::new(spec, Random::seeded(1), 0);
            let mut pieces = Self { link, connection: LinkId(1), now: Moment::START, arrived: Vec::new() };
            pieces.link.dial(pieces.now, 1);
            pieces.pass_until(Moment::START + secs(1));
            pieces
        }

        fn pass_until(&mut self, end: Moment) {
            while self.link.poll_timeout() <= end {
                self.now = self.link.poll_timeout();
                self.link.handle_timeout(self.now);
                self.gather();
            }
            self.now = end;
        }

        fn gather(&mut self) {
            while let Some(output) = self.link.poll_output() {
                if let LinkOutput::FrameFinished { frame, .. } = output {
                    self.arrived.push((frame.sequence.0, self.now));
                }
            }
        }

        fn send(&mut self, sequence: u64, bytes: usize) {
            let (header, payload) = (Bytes::from(vec![1; HEADER_BYTES]), Bytes::from(vec![2; bytes]));
            let of = (Side::Camera, self.connection);
            self.link.send_frame(self.now, of, frame(sequence), (header, payload));
            self.gather();
        }

        /// How long after `since` a frame arrived, without the delay to the edge, in ms.
        fn arrival_ms(&self, sequence: u64, since: Moment) -> f64 {
            let (_, at) = self.arrived.iter().find(|(of, _)| *of == sequence).expect("it arrives");
            (at.since(since) - ms(5)).as_secs_f64() * 1e3
        }
    }

    fn frame(sequence: u64) -> FrameId {
        FrameId { epoch: Epoch(1), sequence: Sequence(sequence) }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn wire_bytes(payload: usize) -> f64 {
        (payload + HEADER_BYTES) as f64 * ON_THE_WIRE
    }

    fn passed_ms(plan: &Plan) -> f64 {
        plan.passed.expect("the link carries it").as_nanos() as f64 / 1e6
    }

    /// A rate for each 100 ms, in bits per second, between 0.5 and 20 Mbit/s.
    fn rates(random: &mut Random) -> Vec<u64> {
        (0..200).map(|_| random.within(5..=200) * 100_000).collect()
    }

    fn capacity_of(rates: &[u64]) -> Capacity {
        Capacity::new(rates.iter().flat_map(|rate| std::iter::repeat_n(*rate as f64 / 8_000.0, 100)))
    }

    #[test]
    fn frames_arrive_when_a_link_that_carries_pieces_has_carried_them() {
        for seed in 1..=20 {
            let mut random = Random::seeded(seed);
            let rates = rates(&mut random);
            let capacity = capacity_of(&rates);
            let mut queue = Queue::new(&capacity, 0.0);
            // All frames enter the queue at once, so they are carried in their order.
            let mut pieces = Pieces::connected(rates[0], 1 << 30);
            let start = pieces.now;
            let mut expected = Vec::new();
            for step in 0..100 {
                pieces.pass_until(start + ms(step * 100));
                pieces.link.set_rate(pieces.now, rates[step as usize]);
                let bytes = random.within(1_000..=30_000) as usize;
                expected.push(queue.push(at(step * 100), 0, step as usize, wire_bytes(bytes), 0.0));
                pieces.send(step, bytes);
            }
            for (step, rate) in rates.iter().enumerate().skip(100) {
                pieces.pass_until(start + ms(step as u64 * 100));
                pieces.link.set_rate(pieces.now, *rate);
            }
            for (step, plan) in expected.iter().enumerate() {
                let apart = pieces.arrival_ms(step as u64, start) - passed_ms(plan);
                // A piece takes about 2 ms. Headers of packets are rounded up, which accumulates as long as frames wait.
                assert!(apart.abs() < 3.0, "seed {seed}, frame {step}: {apart:.1} ms apart");
            }
        }
    }

    #[test]
    fn what_is_taken_back_makes_room_at_the_same_moment() {
        const WINDOW_BYTES: u64 = 12_600;
        for sent_ms in [20, 50, 100, 150] {
            let capacity = capacity_of(&[8_000_000; 20]);
            let mut queue = Queue::new(&capacity, WINDOW_BYTES as f64);
            let mut pieces = Pieces::connected(8_000_000, WINDOW_BYTES);
            let start = pieces.now;
            queue.push(at(0), 0, 0, wire_bytes(200_000), 0.0);
            pieces.send(0, 200_000);
            pieces.pass_until(start + ms(sent_ms));
            queue.recall(at(sent_ms), 0);
            pieces.link.reset(pieces.now, (Side::Camera, pieces.connection), frame(0));
            let plan = queue.push(at(sent_ms), 0, 1, wire_bytes(20_000), 0.0);
            pieces.send(1, 20_000);
            pieces.pass_until(start + Duration::from_secs(1));
            let apart = pieces.arrival_ms(1, start) - passed_ms(&plan);
            assert!(apart.abs() < 2.0, "taken back after {sent_ms} ms: {apart:.1} ms apart");
        }
    }
}
