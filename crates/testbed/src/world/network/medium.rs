//! Models what several cameras share on their way to the edge: one queue in front of one bottleneck, or a Wi-Fi medium.
//!
//! Each camera keeps a [`Link`](crate::link::Link) of its own, with its connections, its bounded queues and its delays. The network tells the
//! medium what enters a link's queues, and the medium says when that has been transmitted. So this is no second model of a link. It replaces the
//! transmitter of each link.

use std::collections::VecDeque;
use std::time::Duration;

use crate::channel::wifi::{Medium as Air, Station, Through};
use crate::link::{Side, Transmitter};
use crate::random::Random;
use crate::time::{Moment, ms, secs};
use crate::world::spec::MediumSpec;

/// The share of a Wi-Fi medium's highest rate that rules assume all stations to get together, at least. Preambles, acknowledgements, collisions and
/// the lower rates after them take the rest.
const WIFI_SHARE: f64 = 0.2;
/// The same share if stations are hidden from each other, or something disturbs them.
const WIFI_SHARE_DISTURBED: f64 = 0.02;
/// Stations that do not hear each other and never ask for leave may get nothing through at all.
const WIFI_SHARE_HIDDEN: f64 = 0.000_2;
/// How long a station may be unlucky: its attempts fail, or others always come first.
const BAD_LUCK: Duration = ms(300);
/// The same if stations are hidden from each other, or something disturbs them.
const BAD_LUCK_DISTURBED: Duration = secs(1);

pub(super) enum Medium {
    Queue(Bottleneck),
    Wifi(Box<Wifi>),
}

/// First come, first served, each way at one rate.
pub(super) struct Bottleneck {
    spec_bits_per_second: u64,
    queue_bytes_max: u64,
    cameras: usize,
    /// Each way: who has a piece in it, and its bits.
    queues: [VecDeque<(usize, u64)>; 2],
    /// Each way: transmits the first.
    transmitters: [Transmitter; 2],
}

/// Stations that contend.
pub(super) struct Wifi {
    air: Air,
    /// The stations as they were made, and as they are now.
    stations: Vec<(Station, Station)>,
    /// How many stations there are, those included that are no cameras of the world.
    contenders: usize,
    is_disturbed: bool,
    never_asks: bool,
    /// For each station and each way: pieces, with the number of packets that are not through, and whether one was given up.
    pieces: Vec<[VecDeque<(usize, bool)>; 2]>,
}

/// A piece is through, or was given up.
pub(super) struct Passed {
    pub(super) member: usize,
    pub(super) from: Side,
    pub(super) arrives: bool,
}

impl Bottleneck {
    fn due(&self) -> Moment {
        self.transmitters.iter().filter_map(Transmitter::due).min().unwrap_or(Moment::NEVER)
    }

    fn serve(&mut self, now: Moment, side: usize) {
        let transmitter = &mut self.transmitters[side];
        if let Some((_, bits)) = self.queues[side].front().filter(|_| !transmitter.is_busy()) {
            transmitter.begin(now, *bits);
        }
    }

    fn pass(&mut self, now: Moment) -> Option<Passed> {
        for from in Side::BOTH {
            let side = from as usize;
            if self.transmitters[side].take_done(now)
                && let Some((member, _)) = self.queues[side].pop_front()
            {
                self.serve(now, side);
                return Some(Passed { member, from, arrives: true });
            }
        }
        None
    }

    fn set_rate(&mut self, now: Moment, bits_per_second: u64) {
        self.transmitters.iter_mut().for_each(|transmitter| transmitter.set_rate(now, bits_per_second));
    }
}

impl Wifi {
    fn pass(&mut self, now: Moment) -> Option<Passed> {
        loop {
            while let Some(through) = self.air.poll_through() {
                let (member, from, arrives) = match through {
                    Through::Up(member) => (member, Side::Camera, true),
                    Through::GivenUp(member) => (member, Side::Camera, false),
                    Through::Down(member) => (member, Side::Edge, true),
                };
                let Some((left, lost)) = self.pieces[member][from as usize].front_mut() else { continue };
                *left -= 1;
                *lost |= !arrives;
                let (done, arrives) = (*left == 0, !*lost);
                if done {
                    self.pieces[member][from as usize].pop_front();
                    return Some(Passed { member, from, arrives });
                }
            }
            if self.air.due().is_none_or(|due| due > now.as_nanos()) || !self.air.step() {
                return None;
            }
        }
    }
}

impl Medium {
    pub(super) fn new(spec: MediumSpec, mut random: Random) -> Self {
        match spec {
            MediumSpec::Queue { bits_per_second, queue_bytes_max, cameras } => Medium::Queue(Bottleneck {
                spec_bits_per_second: bits_per_second,
                queue_bytes_max,
                cameras,
                queues: Default::default(),
                transmitters: [Transmitter::new(bits_per_second); 2],
            }),
            MediumSpec::Wifi(scene) => {
                let stations = scene.cameras.iter().take_while(|(_, load)| load.is_none());
                let stations: Vec<_> = stations.map(|(station, _)| (*station, *station)).collect();
                Medium::Wifi(Box::new(Wifi {
                    air: Air::live(&scene, stations.len(), random.next_u64()),
                    pieces: vec![Default::default(); stations.len()],
                    contenders: scene.cameras.len(),
                    never_asks: !scene.hidden.is_empty()
                        && scene.constants.request_after_failures == u32::MAX,
                    is_disturbed: !scene.hidden.is_empty() || !scene.interferers.is_empty(),
                    stations,
                }))
            }
        }
    }

    /// How many cameras it has places for.
    pub(super) fn places(&self) -> usize {
        match self {
            Medium::Queue(queue) => queue.cameras,
            Medium::Wifi(wifi) => wifi.stations.len(),
        }
    }

    /// What each camera can count on, in bits per second.
    pub(super) fn share(&self) -> u64 {
        match self {
            Medium::Queue(queue) => queue.transmitters[0].bits_per_second() / queue.cameras.max(1) as u64,
            Medium::Wifi(wifi) => {
                let share = match (wifi.is_disturbed, wifi.never_asks) {
                    (_, true) => WIFI_SHARE_HIDDEN,
                    (true, false) => WIFI_SHARE_DISTURBED,
                    (false, false) => WIFI_SHARE,
                };
                // A slow station holds up all others.
                let slowest = wifi.stations.iter().map(|(_, now)| now.phy_mbps).fold(f64::MAX, f64::min);
                (slowest * 1e6 * share / wifi.contenders as f64) as u64
            }
        }
    }

    /// How long a camera may wait beside what its share takes.
    pub(super) fn bad_luck(&self) -> Duration {
        match self {
            Medium::Queue(_) => Duration::ZERO,
            Medium::Wifi(wifi) if wifi.is_disturbed => BAD_LUCK_DISTURBED,
            Medium::Wifi(_) => BAD_LUCK,
        }
    }

    /// How many bytes of each camera may wait, if the medium sets that bound.
    pub(super) fn queue_share(&self) -> Option<u64> {
        match self {
            Medium::Queue(queue) => Some(queue.queue_bytes_max / queue.cameras.max(1) as u64),
            // Every station has a queue of its own.
            Medium::Wifi(_) => None,
        }
    }

    /// Sets a rate: that of all members of a queue together, or the highest rate of a member's station on Wi-Fi.
    pub(super) fn set_rate(&mut self, now: Moment, member: usize, bits_per_second: u64) {
        match self {
            Medium::Queue(queue) => queue.set_rate(now, bits_per_second),
            Medium::Wifi(wifi) => {
                let to = Station { phy_mbps: bits_per_second as f64 / 1e6, ..wifi.stations[member].1 };
                wifi.stations[member].1 = to;
                wifi.air.alter(member, to);
            }
        }
    }

    /// The rate with which a member was made, in bits per second.
    pub(super) fn made_with(&self, member: usize) -> u64 {
        match self {
            Medium::Queue(queue) => queue.spec_bits_per_second,
            Medium::Wifi(wifi) => (wifi.stations[member].0.phy_mbps * 1e6) as u64,
        }
    }

    /// Bytes of a member's link wait to be transmitted.
    pub(super) fn queue(&mut self, now: Moment, member: usize, from: Side, bytes: u64) {
        match self {
            Medium::Queue(queue) => {
                queue.queues[from as usize].push_back((member, bytes * 8));
                queue.serve(now, from as usize);
            }
            Medium::Wifi(wifi) => {
                let packets = match from {
                    Side::Camera => {
                        let packets = Air::packets(bytes);
                        wifi.air.offer(now.as_nanos(), member, packets);
                        packets
                    }
                    Side::Edge => wifi.air.offer_down(now.as_nanos(), member, bytes),
                };
                wifi.pieces[member][from as usize].push_back((packets, false));
            }
        }
    }

    /// The next piece that is through by now, or was given up.
    pub(super) fn pass(&mut self, now: Moment) -> Option<Passed> {
        match self {
            Medium::Queue(queue) => queue.pass(now),
            Medium::Wifi(wifi) => wifi.pass(now),
        }
    }

    /// When it is through with something next.
    pub(super) fn due(&mut self) -> Moment {
        match self {
            Medium::Queue(queue) => queue.due(),
            Medium::Wifi(wifi) => wifi.air.due().map_or(Moment::NEVER, Moment::from_nanos),
        }
    }
}
