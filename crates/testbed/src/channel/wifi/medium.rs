//! Stations on one medium.

use std::collections::VecDeque;

use super::Constants;
use crate::chance::Chance;
use crate::random::Random;

/// An idle slot, in microseconds.
const SLOT_US: f64 = 9.0;
/// Before an acknowledgement, in microseconds.
const SIFS_US: f64 = 16.0;
/// Preamble and header of a PPDU, in microseconds.
const PREAMBLE_US: f64 = 40.0;
/// A block acknowledgement, in microseconds.
const BLOCK_ACK_US: f64 = 32.0;
/// Bytes of a data packet's payload, and of all of it on the air.
const PAYLOAD_BYTES: f64 = 1_448.0;
const MPDU_BYTES: f64 = 1_538.0;
/// Bytes of a transport acknowledgement on the air.
const ANSWER_BYTES: f64 = 104.0;
/// Packets that one answer acknowledges.
const ANSWERED_PACKETS: u32 = 2;
/// Bytes of a PPDU, at most.
const PPDU_BYTES_MAX: f64 = 65_535.0;
/// The transport's first window, in packets.
const WINDOW_FIRST: f64 = 10.0;
/// A pause after which the window begins anew, in microseconds: the shortest retransmission timeout.
const PAUSE_US: f64 = 200_000.0;

/// What a camera sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Mean bytes of a frame.
    pub bytes: f64,
    /// Frames in a second.
    pub frames_per_second: f64,
    /// How much the sizes vary, as a share.
    pub size_noise: f64,
}

/// One contender: a camera, or the access point with answers for all.
struct Station {
    backoff: Option<u64>,
    cw: u64,
    mbps: f64,
    /// Packets that wait for the medium.
    queued: usize,
}

/// The transport of one camera.
struct Flow {
    load: Load,
    /// Packets of the frame in service that are not yet in the driver's queue.
    to_queue: usize,
    /// Packets of it that have not arrived.
    to_arrive: usize,
    captured_us: f64,
    next_due_us: f64,
    frames: usize,
    window: f64,
    /// Sent and not answered.
    unanswered: usize,
    /// Arrived, and not answered yet.
    owed: u32,
    idle_since_us: f64,
    latencies_ms: Vec<f64>,
}

/// A medium with cameras, on its own clock.
pub struct Medium {
    constants: Constants,
    chance: Chance,
    now_us: f64,
    stations: Vec<Station>,
    flows: Vec<Flow>,
    /// Answers that wait at the access point: for whom, and for how many packets.
    answers: VecDeque<(usize, u32)>,
    /// Answers on their way beside the medium: when they are there, for whom, for how many packets.
    returning: VecDeque<(f64, usize, u32)>,
}

/// Latencies of `frames` frames of each camera.
pub fn latencies_ms(constants: &Constants, loads: &[Load], frames: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut medium = Medium::new(constants, loads, frames, seed);
    while medium.step() {}
    medium.flows.into_iter().map(|flow| flow.latencies_ms).collect()
}

impl Medium {
    /// Cameras that all capture their first frame at once.
    pub fn new(constants: &Constants, loads: &[Load], frames: usize, seed: u64) -> Self {
        let station = || Station { backoff: None, cw: constants.cw_min, mbps: constants.phy_mbps, queued: 0 };
        let flows = loads.iter().map(|load| Flow {
            load: *load,
            to_queue: 0,
            to_arrive: 0,
            captured_us: 0.0,
            next_due_us: 0.0,
            frames,
            window: WINDOW_FIRST,
            unanswered: 0,
            owed: 0,
            idle_since_us: 0.0,
            latencies_ms: Vec::with_capacity(frames),
        });
        Self {
            constants: *constants,
            chance: Chance::new(Random::seeded(seed)),
            now_us: 0.0,
            // The last one is the access point.
            stations: (0..=loads.len()).map(|_| station()).collect(),
            flows: flows.collect(),
            answers: VecDeque::new(),
            returning: VecDeque::new(),
        }
    }

    /// One access to the medium, or a wait for something to do. False once all frames have arrived.
    pub fn step(&mut self) -> bool {
        self.capture();
        self.return_answers();
        self.fill_queues();
        let access_point = self.flows.len();
        self.stations[access_point].queued = self.answers.len();
        let Some(slots) = self.draw() else { return self.wait() };
        self.now_us += self.constants.aifs_us + slots as f64 * SLOT_US;
        let mut winners = Vec::new();
        for (index, station) in self.stations.iter_mut().enumerate() {
            let Some(backoff) = &mut station.backoff else { continue };
            *backoff -= slots;
            if *backoff == 0 {
                station.backoff = None;
                winners.push(index);
            }
        }
        if let [winner] = winners[..] {
            self.transmit(winner);
        } else {
            self.collide(&winners);
        }
        true
    }

    /// Back-offs of those who have something to send; the smallest of all.
    fn draw(&mut self) -> Option<u64> {
        for station in &mut self.stations {
            if station.queued == 0 {
                station.backoff = None;
            } else if station.backoff.is_none() {
                station.backoff = Some(self.chance.within(0..=station.cw));
            }
        }
        self.stations.iter().filter_map(|station| station.backoff).min()
    }

    fn ppdu_us(&self, index: usize) -> (usize, f64) {
        let station = &self.stations[index];
        let bytes = if index == self.flows.len() { ANSWER_BYTES } else { MPDU_BYTES };
        let fit = ((PPDU_BYTES_MAX / bytes) as usize).min(self.constants.mpdus_max);
        let mpdus = station.queued.min(fit);
        (mpdus, PREAMBLE_US + mpdus as f64 * bytes * 8.0 / station.mbps)
    }

    fn transmit(&mut self, index: usize) {
        let (mpdus, air_us) = self.ppdu_us(index);
        self.now_us += air_us + SIFS_US + BLOCK_ACK_US;
        let got = (0..mpdus).filter(|_| self.chance.unit() >= self.constants.mpdu_loss).count();
        let station = &mut self.stations[index];
        station.cw = self.constants.cw_min;
        let factor = if got > 0 { self.constants.rate_rise } else { self.constants.rate_fall };
        station.mbps = (station.mbps * factor).clamp(self.constants.rate_mbps_min, self.constants.phy_mbps);
        if index == self.flows.len() {
            for _ in 0..got {
                let Some((flow, packets)) = self.answers.pop_front() else { break };
                let jitter_us = self.constants.delay_us * self.chance.unit();
                self.returning.push_back((self.now_us + self.constants.delay_us + jitter_us, flow, packets));
            }
        } else {
            self.stations[index].queued -= got;
            self.arrive(index, got);
        }
    }

    fn collide(&mut self, winners: &[usize]) {
        let longest = winners.iter().map(|index| self.ppdu_us(*index).1).fold(0.0, f64::max);
        // Nobody acknowledges; all wait as long as an acknowledgement would have taken.
        self.now_us += longest + SIFS_US + BLOCK_ACK_US;
        for index in winners {
            let station = &mut self.stations[*index];
            station.cw = (2 * station.cw + 1).min(self.constants.cw_max);
            station.mbps = (station.mbps * self.constants.rate_fall).max(self.constants.rate_mbps_min);
        }
    }

    /// Packets have arrived at the edge.
    fn arrive(&mut self, index: usize, packets: usize) {
        let flow = &mut self.flows[index];
        flow.to_arrive -= packets;
        flow.owed += packets as u32;
        while flow.owed >= ANSWERED_PACKETS || (flow.owed > 0 && flow.to_arrive == 0) {
            let packets = flow.owed.min(ANSWERED_PACKETS);
            flow.owed -= packets;
            self.answers.push_back((index, packets));
        }
        if flow.to_arrive == 0 {
            let jitter_us = self.constants.delay_us * self.chance.unit();
            let there_us = self.now_us + self.constants.delay_us + jitter_us;
            flow.latencies_ms.push((there_us - flow.captured_us) / 1e3);
            flow.idle_since_us = self.now_us;
        }
    }

    fn return_answers(&mut self) {
        while let Some((_, index, packets)) = self.returning.pop_front_if(|(at, ..)| *at <= self.now_us) {
            let flow = &mut self.flows[index];
            flow.unanswered -= packets as usize;
            flow.window = (flow.window + f64::from(packets)).min(self.constants.queue_packets_max as f64);
        }
    }

    /// A camera whose last frame is through sends the next, when it is due.
    fn capture(&mut self) {
        for flow in &mut self.flows {
            let free = flow.to_arrive == 0 && flow.frames > 0;
            if !free || self.now_us < flow.next_due_us {
                continue;
            }
            let noise = 1.0 + flow.load.size_noise * self.chance.normal();
            let packets = (flow.load.bytes * noise.max(0.2) / PAYLOAD_BYTES).ceil() as usize;
            flow.captured_us = self.now_us;
            (flow.to_queue, flow.to_arrive) = (packets, packets);
            if self.now_us - flow.idle_since_us > PAUSE_US / 2.0 {
                flow.window = WINDOW_FIRST;
            }
            flow.frames -= 1;
            let interval_us = 1e6 / flow.load.frames_per_second;
            // The next multiple of the interval: a camera that could not keep up goes on with the beat.
            while flow.next_due_us <= self.now_us {
                flow.next_due_us += interval_us;
            }
        }
    }

    fn fill_queues(&mut self) {
        for (flow, station) in self.flows.iter_mut().zip(&mut self.stations) {
            let room = self.constants.queue_packets_max - station.queued;
            let window = (flow.window as usize).saturating_sub(flow.unanswered);
            let packets = flow.to_queue.min(room).min(window);
            flow.to_queue -= packets;
            flow.unanswered += packets;
            station.queued += packets;
        }
    }

    /// Nobody has anything to send: until an answer is there, or a frame is due.
    fn wait(&mut self) -> bool {
        let answer = self.returning.front().map(|(at, ..)| *at);
        let due = self.flows.iter().filter(|flow| flow.to_arrive == 0 && flow.frames > 0);
        let next = due.map(|flow| flow.next_due_us).chain(answer).fold(f64::INFINITY, f64::min);
        if !next.is_finite() {
            return false;
        }
        self.now_us = self.now_us.max(next);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load { bytes: 1e6, frames_per_second: 5.0, size_noise: 0.05 };

    #[test]
    fn every_frame_arrives_and_the_same_seed_gives_the_same_latencies() {
        let run = |seed| latencies_ms(&Constants::CALIBRATED, &[LOAD; 3], 20, seed);
        assert!(run(1).iter().all(|latencies| latencies.len() == 20));
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn one_station_gets_most_of_its_rate_and_five_get_less_than_a_fifth_each() {
        let mean = |stations: usize| {
            let latencies = latencies_ms(&Constants::CALIBRATED, &vec![LOAD; stations], 40, 3);
            latencies.iter().flatten().sum::<f64>() / (40 * stations) as f64
        };
        let (one, five) = (mean(1), mean(5));
        let alone_mbps = LOAD.bytes * 8.0 / one / 1e3;
        assert!((100.0..325.0).contains(&alone_mbps), "{alone_mbps} Mbit/s");
        assert!(five > 3.0 * one, "{one} and {five} ms");
    }
}
