//! Simulates cameras on one medium: their transports, and the air below.

use std::collections::VecDeque;

use super::Constants;
use super::air::{Air, Passed, nanos};
use super::flow::{Flow, PAYLOAD_BYTES};
use super::scene::{Change, Load, Scene, Station, What};
use crate::chance::Chance;
use crate::channel::capacity::Capacity;
use crate::random::Random;

/// Bytes of a data packet on the air.
const MPDU_BYTES: f64 = 1_538.0;
/// Bytes of a transport acknowledgement on the air. An access point drops none, because they are few and small.
const ANSWER_BYTES: f64 = 104.0;
/// Nanoseconds in a millisecond.
const NANOS_PER_MS: u64 = 1_000_000;

/// The fate of a packet of a live station ([`Medium::live`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// A packet of this station arrived at the access point.
    Up(usize),
    /// The radio gave up a packet of this station.
    GivenUp(usize),
    /// A packet of the access point arrived at this station.
    Down(usize),
}

/// A medium with cameras, with its own clock.
pub struct Medium {
    constants: Constants,
    chance: Chance,
    now: u64,
    air: Air,
    stations: Vec<Station>,
    flows: Vec<Flow>,
    /// The camera that always has packets to send, if there is one.
    backlogged: Option<usize>,
    /// How many stations are live. These are the first ones; their packets come through [`Medium::offer`].
    live: usize,
    /// The fates of packets of live stations.
    through: VecDeque<Through>,
    /// Bytes of the backlogged camera that arrived in each millisecond.
    arrived_by_ms: Vec<f64>,
    changes: VecDeque<Change>,
    /// Acknowledgements that wait at the access point: the station, and the number of packets covered. 0
    /// stands for a packet of [`Medium::offer_down`].
    answers: VecDeque<(usize, u32)>,
    /// Acknowledgements in the delay beyond the medium: their time of arrival, the station, and the number of packets covered.
    returning: VecDeque<(u64, usize, u32)>,
}

/// Latencies of `frames` frames of each camera.
pub fn latencies_ms(constants: &Constants, loads: &[Load], frames: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut medium = Medium::new(&Scene::new(constants, loads), frames, seed);
    while medium.step() {}
    medium.flows.into_iter().map(|flow| flow.latencies_ms).collect()
}

/// What the first camera of a scene can send in each of `ms` milliseconds beside the others, if it
/// always has packets to send. The camera's load in `Scene::cameras` is ignored.
pub fn capacity(scene: &Scene, ms: usize, seed: u64) -> Capacity {
    let mut medium = Medium::new(scene, usize::MAX, seed);
    medium.flows[0].load = None;
    medium.backlogged = Some(0);
    medium.arrived_by_ms = vec![0.0; ms];
    while medium.now < ms as u64 * NANOS_PER_MS && medium.step() {}
    Capacity::new(medium.arrived_by_ms)
}

impl Medium {
    /// A medium whose cameras all capture their first frame at the beginning.
    pub fn new(scene: &Scene, frames: usize, seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let chance = Chance::new(random.split());
        let cameras = scene.cameras.iter().map(|(station, _)| (*station, MPDU_BYTES));
        let stations = cameras.chain([(scene.access_point, ANSWER_BYTES)]);
        let air =
            Air::new(&scene.constants, stations, scene.hidden.clone(), &scene.interferers, random.next_u64());
        Self {
            constants: scene.constants,
            chance,
            now: 0,
            air,
            stations: scene.cameras.iter().map(|(station, _)| *station).collect(),
            flows: scene.cameras.iter().map(|(_, load)| Flow::new(*load, frames)).collect(),
            backlogged: None,
            live: 0,
            through: VecDeque::new(),
            arrived_by_ms: Vec::new(),
            changes: scene.changes.iter().copied().collect(),
            answers: VecDeque::new(),
            returning: VecDeque::new(),
        }
    }

    /// A medium whose first `live` stations send only packets from [`Medium::offer`]. The others send frames of their own loads.
    pub fn live(scene: &Scene, live: usize, seed: u64) -> Self {
        let mut medium = Self::new(scene, usize::MAX, seed);
        medium.flows[..live].iter_mut().for_each(|flow| flow.load = None);
        medium.live = live;
        medium
    }

    /// Gives a station packets for the access point. No event may be due before `now`.
    pub fn offer(&mut self, now: u64, station: usize, packets: usize) {
        self.now = self.now.max(now);
        self.air.queue(self.now, station, packets);
    }

    /// Gives the access point `bytes` for a station. Returns the number of packets. No event may be due before `now`.
    pub fn offer_down(&mut self, now: u64, station: usize, bytes: u64) -> usize {
        self.now = self.now.max(now);
        let packets = bytes.div_ceil(ANSWER_BYTES as u64).max(1) as usize;
        self.answer(station, &vec![0; packets]);
        packets
    }

    /// How many packets of a station carry `bytes`.
    pub fn packets(bytes: u64) -> usize {
        bytes.div_ceil(PAYLOAD_BYTES as u64).max(1) as usize
    }

    /// The fate of the next packet of a live station.
    pub fn poll_through(&mut self) -> Option<Through> {
        self.through.pop_front()
    }

    /// When the next event is due, on the medium's own clock.
    pub fn due(&mut self) -> Option<u64> {
        self.fill_queues();
        self.other_due().into_iter().chain(self.air.due()).min().map(|due| due.max(self.now))
    }

    /// Changes the rate, losses and queue of a station.
    pub fn alter(&mut self, station: usize, to: Station) {
        self.air.alter(station, to);
        self.stations[station] = to;
    }

    fn other_due(&self) -> Option<u64> {
        let captures = self.flows.iter().filter_map(Flow::due);
        let answer = self.returning.front().map(|(at, ..)| *at);
        let change = self.changes.front().map(|change| nanos(change.at_ms * 1e3));
        captures.chain(answer).chain(change).min()
    }

    /// Handles the next event. Returns false once all frames have arrived.
    pub fn step(&mut self) -> bool {
        self.fill_queues();
        let Some(other) = self.other_due() else {
            // Only events of the air are left, and interferers never end.
            let is_over = self.backlogged.is_none() && self.live == 0 && self.flows.iter().all(Flow::is_over);
            return !is_over && self.step_air();
        };
        if self.air.due().is_some_and(|due| due < other) {
            return self.step_air();
        }
        self.now = self.now.max(other);
        self.change();
        while let Some((_, flow, packets)) = self.returning.pop_front_if(|(at, ..)| *at <= self.now) {
            if Some(flow) != self.backlogged && flow >= self.live {
                self.flows[flow].answered(packets, self.stations[flow].queue_packets_max as f64);
            }
        }
        for flow in &mut self.flows {
            flow.capture(self.now, &mut self.chance);
        }
        true
    }

    fn step_air(&mut self) -> bool {
        let Some(due) = self.air.due() else { return false };
        self.now = self.now.max(due);
        if let Some(Passed { from, arrived, dropped }) = self.air.step() {
            if from == self.flows.len() {
                self.return_answers(arrived, dropped);
            } else if from < self.live {
                self.through.extend((0..arrived).map(|_| Through::Up(from)));
                self.through.extend((0..dropped).map(|_| Through::GivenUp(from)));
                // Packets that arrived together are acknowledged together.
                self.answer(from, &[1]);
            } else if Some(from) == self.backlogged {
                self.count(from, arrived);
            } else {
                if dropped > 0 {
                    self.flows[from].lose(dropped);
                }
                self.arrive(from, arrived);
            }
        }
        true
    }

    fn delayed(&mut self) -> u64 {
        let delay_us = self.constants.delay_us;
        self.now + nanos(delay_us + delay_us * self.chance.unit())
    }

    fn arrive(&mut self, index: usize, packets: usize) {
        let (answers, is_whole) = self.flows[index].arrive(packets);
        self.answer(index, &answers);
        if is_whole {
            let there = self.delayed();
            self.flows[index].end(self.now, there);
        }
    }

    fn answer(&mut self, index: usize, answers: &[u32]) {
        self.answers.extend(answers.iter().map(|packets| (index, *packets)));
        self.air.queue(self.now, self.flows.len(), answers.len());
    }

    /// Packets of the backlogged camera have arrived. They are acknowledged like other packets.
    fn count(&mut self, index: usize, packets: usize) {
        let ms = (self.now / NANOS_PER_MS) as usize;
        if let Some(bytes) = self.arrived_by_ms.get_mut(ms) {
            *bytes += packets as f64 * PAYLOAD_BYTES;
        }
        self.answer(index, &vec![2; packets / 2]);
    }

    /// Acknowledgements have left the access point. One that the radio gave up counts as arrived, because the next acknowledgement covers it.
    fn return_answers(&mut self, arrived: usize, dropped: usize) {
        for _ in 0..arrived + dropped {
            let Some((flow, packets)) = self.answers.pop_front() else { break };
            if packets == 0 {
                self.through.push_back(Through::Down(flow));
                continue;
            }
            let at = self.delayed();
            self.returning.push_back((at, flow, packets));
        }
    }

    fn fill_queues(&mut self) {
        for index in 0..self.flows.len() {
            let room = self.stations[index].queue_packets_max.saturating_sub(self.air.queued(index));
            let packets = if index < self.live {
                0
            } else if Some(index) == self.backlogged {
                room
            } else {
                self.flows[index].release(room)
            };
            if packets > 0 {
                self.air.queue(self.now, index, packets);
            }
        }
    }

    fn change(&mut self) {
        while let Some(change) = self.changes.pop_front_if(|change| nanos(change.at_ms * 1e3) <= self.now) {
            match change.what {
                What::Station { station, to } => {
                    self.air.alter(station, to);
                    if let Some(known) = self.stations.get_mut(station) {
                        *known = to;
                    }
                }
                What::Load { camera, to } => self.flows[camera].set_load(self.now, to),
                What::Hidden { stations: (one, other), is_hidden } => self.air.hide(one, other, is_hidden),
                What::Interferer { interferer, is_on } => self.air.switch(self.now, interferer, is_on),
            }
        }
    }
}
