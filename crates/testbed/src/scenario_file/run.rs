//! Runs a scenario in a world, and reports the results.

use std::time::Duration;

use mez_core::contract::ContractState;
use mez_core::frame::Rung;

use super::{Expectation, Happening, Scenario, Sharing};
use crate::channel::links::Kind;
use crate::channel::wifi::{Constants, Interferer, Scene};
use crate::random::Random;
use crate::time::Moment;
use crate::world::{
    Action, ApplicationId, CameraId, CameraSpec, Delivered, EdgeId, EdgeSpec, Failure, Host, MediumId,
    MediumSpec, World,
};

/// A link with a drawn capacity gets a new rate at this interval, in milliseconds.
const RATE_MS: usize = 5;
/// The mean time for which an oven is on, in milliseconds. Its pauses are as long.
const OVEN_MS: f64 = 10_000.0;
/// The lowest drawn rate, in bits per second, so that every frame gets through eventually.
const RATE_MIN: u64 = 10_000;

/// The results for an expectation.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The subscription's name.
    pub subscription: String,
    /// The camera's name, if the expectation names one.
    pub camera: Option<String>,
    /// Frames that were delivered.
    pub frames: u64,
    /// Delivered frames within the latency bound of the contract. All, if it has none.
    pub on_time: u64,
    /// The age of the first frame.
    pub first_age: Option<Duration>,
    /// The median age of the frames.
    pub age_p50: Option<Duration>,
    /// The 95th percentile of the frames' ages.
    pub age_p95: Option<Duration>,
    /// The longest time without a frame.
    pub gap: Duration,
    /// The mean accuracy of the frames for what the camera sees. `None`: there are no frames, or none with a measured accuracy.
    pub accuracy: Option<f64>,
    /// Frames that came as published.
    pub originals: u64,
    /// Frames that were marked as infeasible.
    pub infeasible: u64,
    /// Frames whose accuracy the profile does not state.
    pub unmeasured: u64,
    /// Frames whose rung has an accuracy below the floor, for what the camera sees.
    pub below_floor: u64,
    /// Frames below the floor that came while the contract was stated as kept.
    pub ok_below_floor: u64,
    /// Expectations that were not met, one sentence each.
    pub missed: Vec<String>,
}

/// The result of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The results, one for each expectation, in the file's order.
    pub seen: Vec<Seen>,
    /// Frames that all subscriptions got.
    pub frames: u64,
    /// The hash of the trace. The same seed gives the same hash.
    pub trace_hash: u64,
    /// How many events happened.
    pub trace_entries: u64,
}

impl Report {
    /// All expectations that were not met.
    pub fn missed(&self) -> Vec<&str> {
        self.seen.iter().flat_map(|seen| seen.missed.iter().map(String::as_str)).collect()
    }
}

impl Scenario {
    /// Runs the scenario with a seed, which need not be the file's. All rules of [`crate::check`] are checked at every event.
    ///
    /// # Errors
    /// The first breach of a rule. An expectation that is not met is no error: see [`Report::missed`].
    pub fn run(&self, seed: u64) -> Result<Report, Box<Failure>> {
        let edge =
            EdgeSpec { disk: self.edge_disk.clone(), channels: self.declared.clone(), ..EdgeSpec::default() };
        let mut world = World::seeded_with(seed, edge);
        world.codecs_fail(self.codecs_fail);
        let shared = self.medium(&mut world);
        let cameras = self.cameras.iter().enumerate().map(|(index, (name, spec))| {
            let medium =
                shared.as_ref().filter(|(_, on_it)| on_it.contains(&index)).map(|(medium, _)| *medium);
            world.camera(name, CameraSpec { medium, ..spec.clone() })
        });
        let cameras: Vec<CameraId> = cameras.collect();
        let applications = self.subscriptions.iter().zip(&self.profiles).map(|((_, spec), footage)| {
            let mut spec = spec.clone();
            spec.contract.profile =
                footage.and_then(|known| known.profile()).map(|known| world.profile(known));
            world.application(spec)
        });
        let applications: Vec<ApplicationId> = applications.collect();
        for change in &self.changes {
            world.at(Moment::START + change.at, change.what.action(&cameras, &applications));
        }
        for (index, kind) in self.channels.iter().enumerate() {
            let Some(kind) = kind else { continue };
            for (at, bits_per_second) in rates(*kind, self.length, seed, index) {
                world.at(Moment::START + at, Action::Rate(cameras[index], bits_per_second));
            }
        }
        world.try_run(self.length)?;
        let seen = self.expectations.iter().map(|expectation| {
            expectation.look(self, world.deliveries(applications[expectation.subscription]))
        });
        Ok(Report {
            seen: seen.collect(),
            frames: applications.iter().map(|id| world.deliveries(*id).len() as u64).sum(),
            trace_hash: world.trace_hash(),
            trace_entries: world.trace_entries(),
        })
    }
}

impl Scenario {
    /// The shared medium, and the cameras that share it.
    fn medium(&self, world: &mut World) -> Option<(MediumId, &[usize])> {
        let (sharing, cameras) = self.shared.as_ref()?;
        let mut scene = Scene::new(&Constants::CALIBRATED, &[]);
        scene.cameras = vec![(Constants::CALIBRATED.station(), None); cameras.len()];
        let spec = match sharing {
            Sharing::Queue => MediumSpec::Queue {
                bits_per_second: self.cameras[*cameras.first()?].1.link.bits_per_second,
                queue_bytes_max: self.cameras[*cameras.first()?].1.link.queue_bytes_max,
                cameras: cameras.len(),
            },
            Sharing::Wifi => MediumSpec::Wifi(scene),
            Sharing::WifiHidden => {
                scene.hidden = vec![(0, 1)];
                scene.constants.request_after_failures = 1;
                MediumSpec::Wifi(scene)
            }
            Sharing::WifiOven => {
                scene.interferers = vec![Interferer::oven(OVEN_MS, OVEN_MS)];
                MediumSpec::Wifi(scene)
            }
        };
        Some((world.medium(spec), cameras))
    }
}

/// The rates of one camera's link, drawn from this kind of link with a scenario's seed. Each rate holds from a moment on.
pub(super) fn rates(kind: Kind, length: Duration, seed: u64, camera: usize) -> Vec<(Duration, u64)> {
    let mut random = Random::seeded(seed.wrapping_mul(1_000).wrapping_add(camera as u64));
    let capacity = kind.link(length.as_millis() as usize + RATE_MS, &mut random).capacity;
    let steps = (0..capacity.ms()).step_by(RATE_MS).map(|ms| {
        let until = (ms + RATE_MS).min(capacity.ms());
        let bytes: f64 = (ms..until).map(|ms| capacity.at_ms(ms)).sum();
        let bits_per_second = (bytes * 8e3 / (until - ms) as f64) as u64;
        (Duration::from_millis(ms as u64), bits_per_second.max(RATE_MIN))
    });
    let mut rates: Vec<(Duration, u64)> = steps.collect();
    rates.dedup_by_key(|(_, rate)| *rate);
    rates
}

impl Scenario {
    /// The accuracy of a frame's rung for what its camera sees. `None`: it was not measured.
    fn accuracy_of(&self, got: &Delivered) -> Option<f64> {
        let camera = self.cameras.iter().find(|(name, _)| got.camera.as_str() == name);
        camera.and_then(|(_, spec)| spec.footage.accuracy_of(&got.rung))
    }

    fn mean_accuracy(&self, frames: &[&Delivered]) -> Option<f64> {
        let known: Vec<f64> = frames.iter().filter_map(|got| self.accuracy_of(got)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }
}

impl Happening {
    fn action(self, cameras: &[CameraId], applications: &[ApplicationId]) -> Action {
        let edge = EdgeId::default();
        match self {
            // One bit in a second is practically nothing, and no rule divides by zero.
            Self::Rate(camera, bits_per_second) => Action::Rate(cameras[camera], bits_per_second.max(1)),
            Self::Cut(camera) => Action::Cut(cameras[camera]),
            Self::Restore(camera) => Action::Restore(cameras[camera]),
            Self::Break(camera) => Action::Break(cameras[camera]),
            Self::KillCamera(camera) => Action::KillCamera(cameras[camera]),
            Self::StartCamera(camera, counter) => Action::StartCamera(cameras[camera], counter),
            Self::FreezeCamera(camera) => Action::Freeze(Host::Camera(cameras[camera])),
            Self::ThawCamera(camera) => Action::Thaw(Host::Camera(cameras[camera])),
            Self::SilenceCamera(camera) => Action::Silence(cameras[camera]),
            Self::PublishCamera(camera) => Action::Publish(cameras[camera]),
            Self::StepWallOfCamera(camera, seconds) => {
                Action::StepWall(Host::Camera(cameras[camera]), seconds)
            }
            Self::CutPowerOfCamera(camera) => Action::CutPower(Host::Camera(cameras[camera])),
            Self::DiskOfCamera(camera, faults) => Action::Disk(Host::Camera(cameras[camera]), faults),
            Self::CutPowerOfEdge => Action::CutPower(Host::Edge(edge)),
            Self::KillEdge => Action::KillEdge(edge),
            Self::StartEdge => Action::StartEdge(edge),
            Self::FreezeEdge => Action::Freeze(Host::Edge(edge)),
            Self::ThawEdge => Action::Thaw(Host::Edge(edge)),
            Self::Stall(subscription) => Action::Stall(applications[subscription]),
            Self::Resume(subscription) => Action::Resume(applications[subscription]),
            Self::Subscribe(subscription) => Action::Subscribe(applications[subscription]),
            Self::Unsubscribe(subscription) => Action::Unsubscribe(applications[subscription]),
            Self::Heal => Action::Heal,
        }
    }
}

fn is_infeasible(got: &Delivered) -> bool {
    got.verdict.as_ref().is_some_and(|verdict| verdict.infeasible)
}

fn is_unmeasured(got: &Delivered) -> bool {
    got.verdict.as_ref().is_some_and(|verdict| verdict.expected_accuracy.is_none())
}

fn is_ok(got: &Delivered) -> bool {
    got.verdict.as_ref().is_some_and(|verdict| verdict.state == ContractState::Ok)
}

fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    sorted.get((sorted.len() * percent).div_ceil(100).checked_sub(1)?).copied()
}

impl Expectation {
    fn look(&self, scenario: &Scenario, deliveries: &[Delivered]) -> Seen {
        let (from, until) = (Moment::START + self.from, Moment::START + self.until);
        let mine: Vec<&Delivered> = deliveries
            .iter()
            .filter(|delivered| delivered.at >= from && delivered.at <= until)
            .filter(|delivered| self.camera.as_ref().is_none_or(|name| delivered.camera.as_str() == name))
            .collect();
        let bound = scenario.subscriptions[self.subscription].1.contract.latency_bound;
        let in_time = |delivered: &&&Delivered| bound.is_none_or(|bound| delivered.age() <= bound);
        let mut ages: Vec<Duration> = mine.iter().map(|delivered| delivered.age()).collect();
        ages.sort();
        let moments: Vec<Moment> =
            std::iter::once(from).chain(mine.iter().map(|delivered| delivered.at)).chain([until]).collect();
        let gaps = moments.windows(2).map(|pair| pair[1].since(pair[0]));
        let below_floor: Vec<&Delivered> =
            mine.iter().copied().filter(|got| self.is_below_floor(scenario, got)).collect();
        let mut seen = Seen {
            subscription: scenario.subscriptions[self.subscription].0.clone(),
            camera: self.camera.clone(),
            frames: mine.len() as u64,
            on_time: mine.iter().filter(in_time).count() as u64,
            first_age: mine.first().map(|delivered| delivered.age()),
            age_p50: percentile(&ages, 50),
            age_p95: percentile(&ages, 95),
            gap: gaps.max().unwrap_or_default(),
            accuracy: scenario.mean_accuracy(&mine),
            originals: mine.iter().filter(|got| got.rung == Rung::original()).count() as u64,
            infeasible: mine.iter().filter(|got| is_infeasible(got)).count() as u64,
            unmeasured: mine.iter().filter(|got| is_unmeasured(got)).count() as u64,
            below_floor: below_floor.len() as u64,
            ok_below_floor: below_floor.iter().filter(|got| is_ok(got)).count() as u64,
            missed: Vec::new(),
        };
        let of = match &self.camera {
            Some(camera) => format!("subscription {:?}, camera {camera}", seen.subscription),
            None => format!("subscription {:?}", seen.subscription),
        };
        let of = format!("{of}, {:?} to {:?}", self.from, self.until);
        let mut expect = |holds: bool, text: String| {
            if !holds {
                seen.missed.push(format!("{of}: {text}"));
            }
        };
        if let Some(min) = self.frames_min {
            expect(seen.frames >= min, format!("{} frames, at least {min} expected", seen.frames));
        }
        if let Some(max) = self.frames_max {
            expect(seen.frames <= max, format!("{} frames, at most {max} expected", seen.frames));
        }
        if let Some(min) = self.on_time_min {
            expect(seen.on_time >= min, format!("{} frames on time, at least {min} expected", seen.on_time));
        }
        for (name, age, max) in [
            ("of the first frame", seen.first_age, self.first_age_max),
            ("p50", seen.age_p50, self.age_p50_max),
            ("p95", seen.age_p95, self.age_p95_max),
        ] {
            if let Some(max) = max {
                let holds = age.is_some_and(|age| age <= max);
                expect(holds, format!("age {name} {age:?}, at most {max:?} expected"));
            }
        }
        let frames = seen.frames;
        for (count, what, max) in [
            (seen.infeasible, "infeasible", self.infeasible_share_max),
            (seen.unmeasured, "of a rung that nobody measured", self.unmeasured_share_max),
            (seen.below_floor, "below the floor", self.below_floor_share_max),
            (seen.ok_below_floor, "called ok below the floor", self.ok_below_floor_share_max),
        ] {
            if let Some(max) = max {
                let text = format!("{count} of {frames} frames {what}, a share of at most {max} expected");
                expect(count as f64 <= max * frames.max(1) as f64, text);
            }
        }
        if let Some(max) = self.gap_max {
            expect(seen.gap <= max, format!("{:?} without a frame, at most {max:?} expected", seen.gap));
        }
        seen
    }

    /// Whether a frame's rung has an accuracy below the floor for what its camera sees, if there is a
    /// floor. An accuracy that was not measured counts as below.
    fn is_below_floor(&self, scenario: &Scenario, got: &Delivered) -> bool {
        let floor = scenario.subscriptions[self.subscription].1.contract.accuracy_floor;
        let Some(floor) = floor else { return false };
        scenario.accuracy_of(got).is_none_or(|accuracy| accuracy < floor)
    }
}
