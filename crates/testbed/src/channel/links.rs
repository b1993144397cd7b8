//! Generates links beyond the reference set: steps, outages, movement through a building or a cell. Each link follows from a seed.

use std::time::Duration;

use mez_core::units::Instant;

use super::capacity::Capacity;
use super::classes::{CLASSES, Class};
use super::wifi::{self, Change, Constants, Interferer, Load, Scene, Station, What};
use crate::chance::Chance;
use crate::random::Random;

/// An event of a link after which an experiment measures how fast a policy recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The link becomes slower for good.
    Slower(Instant),
    /// An outage ends.
    Back(Instant),
}

/// The future of a link, and the events in it.
#[derive(Clone, Debug)]
pub struct LinkModel {
    /// The capacity of the link.
    pub capacity: Capacity,
    /// The events, in order.
    pub marks: Vec<Mark>,
}

/// A kind of link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A class of the reference set.
    Reference(Class),
    /// 60 Mbit/s. Every ten seconds, at a random moment between two frames, the rate falls to 12 Mbit/s for five seconds.
    Step,
    /// 40 Mbit/s with an outage of 0.3 to 1.5 s about every eight seconds.
    Outages,
    /// A cellular link. Its rate has a median of 20 Mbit/s, is log-normal with deviation 0.7 and a time constant of 3 s, and comes in grants of a few
    /// milliseconds. Handovers of 50 to 300 ms come about every 20 s.
    Cellular,
    /// From 90 to 3 Mbit/s and back, half a minute each way, with the fading and the bursts of a mixed link.
    WalkingAway,
    /// 40 Mbit/s with the fading of a mixed link. Every half minute, the doors close for 6 to 12 s.
    Elevator,
    /// A Wi-Fi medium.
    Wifi(Wifi),
}

/// The other stations on the camera's Wi-Fi medium. They send frames of 0.2 to 1 MB at 15 per second for some seconds, and pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wifi {
    /// Four cameras.
    Cameras,
    /// Two cameras, one of which is hidden from this camera. After a failure, a station sends an RTS before it tries again.
    Hidden,
    /// One camera, and a microwave oven that is active half of the time.
    Oven,
    /// Two cameras. This camera moves from beside the access point to where only the lowest rate holds, and back, half a minute each way.
    Roaming,
}

/// Shape of the gamma distribution of bursts on a link that is not shared. Higher is smoother.
const SMOOTH: f64 = 6.0;
/// Shape of the gamma distribution of bursts on a shared link.
const BURSTY: f64 = 0.6;
/// The share of the capacity that remains behind closed doors and in an outage.
const CLOSED: f64 = 0.002;

impl Kind {
    /// All kinds, with their names in results.
    pub const ALL: [(&'static str, Self); 12] = [
        ("calm", Self::Reference(CLASSES[0])),
        ("mixed", Self::Reference(CLASSES[1])),
        ("harsh", Self::Reference(CLASSES[2])),
        ("step_60_12", Self::Step),
        ("outages", Self::Outages),
        ("cellular", Self::Cellular),
        ("walking_away", Self::WalkingAway),
        ("elevator", Self::Elevator),
        ("wifi_cameras", Self::Wifi(Wifi::Cameras)),
        ("wifi_hidden", Self::Wifi(Wifi::Hidden)),
        ("wifi_oven", Self::Wifi(Wifi::Oven)),
        ("wifi_roaming", Self::Wifi(Wifi::Roaming)),
    ];

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, kind)| kind)
    }

    /// A link of this kind, `ms` milliseconds long.
    pub fn link(&self, ms: usize, random: &mut Random) -> LinkModel {
        let mut marks = Vec::new();
        let capacity = match self {
            Self::Reference(class) => class.capacity(ms, random),
            Self::Step => step(ms, random, &mut marks),
            Self::Outages => outages(ms, random, &mut marks),
            Self::Cellular => cellular(ms, random),
            Self::WalkingAway => walking_away(ms, random),
            Self::Elevator => elevator(ms, random, &mut marks),
            Self::Wifi(wifi) => wifi::capacity(&wifi.scene(ms, random), ms, random.next_u64()),
        };
        LinkModel { capacity, marks }
    }
}

impl Wifi {
    /// A medium for `ms` milliseconds. This camera is the first station.
    pub fn scene(self, ms: usize, random: &mut Random) -> Scene {
        let mut chance = Chance::new(random.split());
        let others = match self {
            Self::Cameras => 4,
            Self::Hidden | Self::Roaming => 2,
            Self::Oven => 1,
        };
        let loads: Vec<Load> = (0..=others)
            .map(|_| Load {
                bytes: 1e3 * chance.within(200..=1_000) as f64,
                frames_per_second: 15.0,
                size_noise: 0.1,
                on_off_ms: Some((8_000.0, 4_000.0)),
            })
            .collect();
        let mut scene = Scene::new(&Constants::CALIBRATED, &loads);
        match self {
            Self::Cameras => {}
            Self::Hidden => {
                scene.hidden = vec![(0, 1)];
                scene.constants.request_after_failures = 1;
            }
            Self::Oven => scene.interferers = vec![Interferer::oven(10_000.0, 10_000.0)],
            Self::Roaming => scene.changes = roaming(ms, &scene.constants),
        }
        scene
    }
}

/// The rates of a camera that moves away and comes back. Its losses grow as the rate falls.
fn roaming(ms: usize, constants: &Constants) -> Vec<Change> {
    let slowest = constants.rate_mbps_min / constants.phy_mbps;
    let change = |at_ms: usize| {
        // 0 beside the access point, 1 at the far end.
        let far = 1.0 - ((at_ms % 60_000) as f64 / 30_000.0 - 1.0).abs();
        let phy_mbps = constants.phy_mbps * slowest.powf(far);
        let to = Station { phy_mbps, mpdu_loss: constants.mpdu_loss + 0.1 * far, ..constants.station() };
        Change { at_ms: at_ms as f64, what: What::Station { station: 0, to } }
    };
    (0..ms).step_by(200).map(change).collect()
}

/// A rate in bytes per millisecond.
fn mbps(mbps: f64) -> f64 {
    mbps * 1e6 / 8.0 / 1e3
}

fn instant(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// The exponential of an Ornstein–Uhlenbeck process.
struct Fading {
    log: f64,
    kept: f64,
    fresh: f64,
}

impl Fading {
    fn new(deviation: f64, constant_ms: f64, chance: &mut Chance) -> Self {
        let kept = (-1.0 / constant_ms).exp();
        Self { log: deviation * chance.normal(), kept, fresh: deviation * (1.0 - kept * kept).sqrt() }
    }

    fn next(&mut self, chance: &mut Chance) -> f64 {
        self.log = self.kept * self.log + self.fresh * chance.normal();
        self.log.exp()
    }
}

fn step(ms: usize, random: &mut Random, marks: &mut Vec<Mark>) -> Capacity {
    let mut chance = Chance::new(random.split());
    let (mut slow_from, mut slow_until) = (5_000 + chance.within(0..=200), 0);
    Capacity::new((0..ms as u64).map(|ms| {
        if ms == slow_from {
            marks.push(Mark::Slower(instant(ms)));
            slow_until = ms + 5_000;
            slow_from = ms + 10_000 + chance.within(0..=200);
        }
        mbps(if ms < slow_until { 12.0 } else { 60.0 }) * chance.gamma(SMOOTH)
    }))
}

fn outages(ms: usize, random: &mut Random, marks: &mut Vec<Mark>) -> Capacity {
    let mut chance = Chance::new(random.split());
    let (mut from, mut until) = (4_000 + chance.within(0..=2_000), 0);
    Capacity::new((0..ms as u64).map(|ms| {
        if ms == from {
            until = ms + chance.within(300..=1_500);
            from = until + 4_000 + chance.within(0..=6_000);
            marks.push(Mark::Back(instant(until)));
        }
        mbps(40.0) * chance.gamma(SMOOTH) * if ms < until { CLOSED } else { 1.0 }
    }))
}

fn cellular(ms: usize, random: &mut Random) -> Capacity {
    let mut chance = Chance::new(random.split());
    let mut fading = Fading::new(0.7, 3_000.0, &mut chance);
    let (mut from, mut until) = (chance.exponential(20_000.0), 0.0);
    Capacity::new((0..ms).map(|ms| {
        let at = ms as f64;
        if at >= from {
            until = at + chance.within(50..=300) as f64;
            from = until + chance.exponential(20_000.0);
        }
        let handover = if at < until { CLOSED } else { 1.0 };
        mbps(20.0) * fading.next(&mut chance) * chance.gamma(0.4) * handover
    }))
}

fn walking_away(ms: usize, random: &mut Random) -> Capacity {
    let mut chance = Chance::new(random.split());
    let mut fading = Fading::new(0.35, 1_500.0, &mut chance);
    Capacity::new((0..ms).map(|ms| {
        // 0 beside the access point, 1 at the far end of the corridor.
        let far = 1.0 - ((ms % 60_000) as f64 / 30_000.0 - 1.0).abs();
        mbps(90.0) * (3.0f64 / 90.0).powf(far) * fading.next(&mut chance) * chance.gamma(BURSTY)
    }))
}

fn elevator(ms: usize, random: &mut Random, marks: &mut Vec<Mark>) -> Capacity {
    let mut chance = Chance::new(random.split());
    let mut fading = Fading::new(0.35, 1_500.0, &mut chance);
    let (mut from, mut until) = (10_000 + chance.within(0..=5_000), 0);
    Capacity::new((0..ms as u64).map(|ms| {
        if ms == from {
            until = ms + chance.within(6_000..=12_000);
            from = until + 15_000 + chance.within(0..=10_000);
            marks.push(Mark::Back(instant(until)));
        }
        let doors = if ms < until { CLOSED } else { 1.0 };
        mbps(40.0) * fading.next(&mut chance) * chance.gamma(BURSTY) * doors
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_link_and_another_seed_another() {
        for (name, kind) in Kind::ALL {
            let link = |seed| kind.link(20_000, &mut Random::seeded(seed)).capacity;
            assert_eq!(link(1), link(1), "{name}");
            assert_ne!(link(1), link(2), "{name}");
        }
    }

    #[test]
    fn the_reference_set_carries_what_it_says() {
        // The mean of 1 ÷ (k + 1) for k from 0 to 6, times the mean of log-normal fading and the share of time without outages.
        let shared = (1..=7).map(|n| 1.0 / f64::from(n)).sum::<f64>() / 7.0;
        for class in CLASSES {
            let outage = 1.0 - 825.0 / (825.0 + class.outage_gap_ms_mean);
            let mean = mbps(90.0) * shared * (class.fading_deviation.powi(2) / 2.0).exp() * outage;
            let links = (0..30).map(|seed| class.capacity(60_000, &mut Random::seeded(seed)));
            let seen = links.map(|link| link.passed(instant(60_000)) / 60_000.0).sum::<f64>() / 30.0;
            assert!(
                (seen / mean - 1.0).abs() < 0.15,
                "{}: {seen} bytes per millisecond, not {mean}",
                class.name
            );
        }
    }

    #[test]
    fn marks_are_where_the_link_changes() {
        let link = Kind::Step.link(40_000, &mut Random::seeded(3));
        assert_eq!(link.marks.len(), 4);
        for mark in link.marks {
            let Mark::Slower(at) = mark else { panic!("a step is no outage") };
            let mean = |from: Instant, to: Instant| link.capacity.passed(to) - link.capacity.passed(from);
            let half = Duration::from_millis(500);
            assert!(mean(at, at + half) < 0.3 * mean(at - half, at));
        }
    }
}
