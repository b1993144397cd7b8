//! Models what several cameras share on their way to the edge: one queue before one bottleneck, or a Wi-Fi medium.
//!
//! Each camera keeps its own [`Link`](crate::link::Link), with its connections, bounded queues and delays. The network tells the medium what enters a
//! link's queues, and the medium reports transmissions. So a medium only replaces the transmitters of the links.

use std::collections::VecDeque;
use std::time::Duration;

use crate::channel::wifi::{Medium as Air, Station, Through};
use crate::link::{Side, Transmitter};
use crate::random::Random;
use crate::time::{Moment, ms, secs};
use crate::world::spec::MediumSpec;

/// Rules assume that all stations together get at least this share of a Wi-Fi medium's highest rate. Preambles, acknowledgements, collisions and the
/// lower rates after collisions take the rest.
const WIFI_SHARE: f64 = 0.2;
/// The same share if stations are hidden from each other, or an interferer disturbs them.
const WIFI_SHARE_DISTURBED: f64 = 0.02;
/// The same share if stations are hidden from each other and never send a request to send (RTS). Such stations may get almost nothing through.
const WIFI_SHARE_HIDDEN: f64 = 0.000_2;
/// How long a station may be unlucky: its attempts fail, or other stations always come first.
const BAD_LUCK: Duration = ms(300);
/// The same time if stations are hidden from each other, or an interferer disturbs them.
const BAD_LUCK_DISTURBED: Duration = secs(1);

pub(super) enum Medium {
    Queue(Bottleneck),
    Wifi(Box<Wifi>),
}

/// One queue in each direction, first come, first served, at one rate.
pub(super) struct Bottleneck {
    spec_bits_per_second: u64,
    queue_bytes_max: u64,
    cameras: usize,
    /// For each direction: the member and the bits of each piece.
    queues: [VecDeque<(usize, u64)>; 2],
    /// For each direction: transmits the first piece.
    transmitters: [Transmitter; 2],
}

/// Wi-Fi stations that contend.
pub(super) struct Wifi {
    air: Air,
    /// Each station as it was created, and as it is now.
    stations: Vec<(Station, Station)>,
    /// The number of stations, including those that are not cameras of the world.
    contenders: usize,
    is_disturbed: bool,
    never_asks: bool,
    /// For each station and direction: for each piece, the number of packets not yet transmitted, and whether one was given up.
    pieces: Vec<[VecDeque<(usize, bool)>; 2]>,
}

/// A piece was transmitted, or given up.
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

    /// How many cameras the medium has places for.
    pub(super) fn places(&self) -> usize {
        match self {
            Medium::Queue(queue) => queue.cameras,
            Medium::Wifi(wifi) => wifi.stations.len(),
        }
    }

    /// The rate that each camera can count on, in bits per second.
    pub(super) fn share(&self) -> u64 {
        match self {
            Medium::Queue(queue) => queue.transmitters[0].bits_per_second() / queue.cameras.max(1) as u64,
            Medium::Wifi(wifi) => {
                let share = match (wifi.is_disturbed, wifi.never_asks) {
                    (_, true) => WIFI_SHARE_HIDDEN,
                    (true, false) => WIFI_SHARE_DISTURBED,
                    (false, false) => WIFI_SHARE,
                };
                // A slow station delays all others.
                let slowest = wifi.stations.iter().map(|(_, now)| now.phy_mbps).fold(f64::MAX, f64::min);
                (slowest * 1e6 * share / wifi.contenders as f64) as u64
            }
        }
    }

    /// How long a camera may wait beyond what its share takes.
    pub(super) fn bad_luck(&self) -> Duration {
        match self {
            Medium::Queue(_) => Duration::ZERO,
            Medium::Wifi(wifi) if wifi.is_disturbed => BAD_LUCK_DISTURBED,
            Medium::Wifi(_) => BAD_LUCK,
        }
    }

    /// How many bytes of each camera may wait, if the medium sets this bound.
    pub(super) fn queue_share(&self) -> Option<u64> {
        match self {
            Medium::Queue(queue) => Some(queue.queue_bytes_max / queue.cameras.max(1) as u64),
            // Every station has its own queue.
            Medium::Wifi(_) => None,
        }
    }

    /// Sets the rate of all members of a queue together, or the highest rate of a member's Wi-Fi station.
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

    /// The rate with which a member was created, in bits per second.
    pub(super) fn made_with(&self, member: usize) -> u64 {
        match self {
            Medium::Queue(queue) => queue.spec_bits_per_second,
            Medium::Wifi(wifi) => (wifi.stations[member].0.phy_mbps * 1e6) as u64,
        }
    }

    /// Adds bytes of a member's link that wait for transmission.
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

    /// The next piece that was transmitted or given up by now.
    pub(super) fn pass(&mut self, now: Moment) -> Option<Passed> {
        match self {
            Medium::Queue(queue) => queue.pass(now),
            Medium::Wifi(wifi) => wifi.pass(now),
        }
    }

    /// When the next transmission may end.
    pub(super) fn due(&mut self) -> Moment {
        match self {
            Medium::Queue(queue) => queue.due(),
            Medium::Wifi(wifi) => wifi.air.due().map_or(Moment::NEVER, Moment::from_nanos),
        }
    }
}
