//! What is made of a frame before it is sent: what the applications ask, the rungs that there are for it, and the policy's choice.
//!
//! A frame is made smaller where every application that leads gives an accuracy floor; where one of them gives none, frames go
//! as they are ([`Contract::accuracy_floor`]). Those lead that have the highest priority. The rungs are those of the profile that the
//! strictest of them names; while that profile is not here, or where none is named, they are
//! [`default_ladder`](crate::setting::default_ladder)'s, whose accuracy nobody knows, and the floor says nothing.
//!
//! Only stills are made so far: rungs whose frames need others, or leave others out, are passed over.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::contract::{Contract, OnInfeasible};
use crate::controller::quantile::{self, Quantile};
use crate::controller::{Arrival, Choice, Decision, Offer, Policy, SentFrame};
use crate::frame::{Encoding, Frame, FrameId, Rung};
use crate::profile::{ByteSizes, Ladder, Profile, RungProfile};
use crate::setting::{Form, Setting, default_ladder};
use crate::units::Instant;

/// The latency bound where no contract gives one: frames are wanted as soon as possible.
const BOUND_DEFAULT: Duration = Duration::from_secs(1);
/// Profiles that are kept; beyond that the one that was given first is forgotten.
pub const PROFILES_MAX: usize = 16;
/// How long a rung may take before its frame is given up, where the bound allows more: an idle link with a frame to send is
/// never silent for longer than a quarter of a second, also when a codec hangs.
const MAKING_TIME_MAX: Duration = Duration::from_millis(200);
/// The least that a codec is given: the first frame of a size takes longer than others.
const MAKING_TIME_MIN: Duration = Duration::from_millis(100);
/// What making a JPEG takes for each pixel of the source, before it was measured: about 10 ms at 1080p.
const NANOS_PER_PIXEL: f64 = 5.0;
/// The weight of a measurement of it.
const TIME_GAIN: f64 = 0.1;
/// Measurements that differ from what the ladder says by less than this factor leave it as it is.
const TIME_TOLERANCE: f64 = 1.25;
/// The weight of a frame's size in what is expected of the next ones.
const SIZE_GAIN: f64 = 0.2;
/// Sizes that differ from what the ladder says by less than this factor leave it as it is.
const SIZE_TOLERANCE: f64 = 1.15;
/// Relative deviation of the sizes of JPEGs of one rung around what is expected of them.
const JPEG_DEVIATION: f64 = 0.08;

/// What the applications that lead ask together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Wish {
    pub(super) bound: Duration,
    floor: f64,
    on_time_share: f64,
    degrade: bool,
    profile: Option<[u8; 32]>,
}

impl Wish {
    /// What the contracts come to; `None` where frames go as they are.
    pub(super) fn of(contracts: &[Contract]) -> Option<Self> {
        let highest = contracts.iter().map(|contract| contract.priority).max()?;
        let leading: Vec<&Contract> =
            contracts.iter().filter(|contract| contract.priority == highest).collect();
        let floor_of = |contract: &&&Contract| contract.accuracy_floor;
        if leading.iter().any(|contract| contract.accuracy_floor.is_none()) {
            return None;
        }
        let strictest = leading
            .iter()
            .max_by(|a, b| floor_of(a).partial_cmp(&floor_of(b)).unwrap_or(std::cmp::Ordering::Equal))?;
        Some(Self {
            bound: leading
                .iter()
                .filter_map(|contract| contract.latency_bound)
                .min()
                .unwrap_or(BOUND_DEFAULT),
            floor: strictest.accuracy_floor?,
            on_time_share: leading.iter().map(|contract| contract.on_time_share).fold(0.0, f64::max),
            degrade: leading.iter().any(|contract| contract.on_infeasible == OnInfeasible::Degrade),
            profile: strictest.profile,
        })
    }
}

/// What to do with the waiting frame.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// Send it like this.
    Send(Making),
    /// Ask again when something has happened, or at this instant.
    Wait(Instant),
}

/// A rung for a frame.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Making {
    pub(super) setting: Setting,
    pub(super) expected_accuracy: Option<f64>,
    pub(super) infeasible: bool,
    /// When the codec is given up.
    pub(super) deadline: Instant,
    /// When the frame has to be there.
    pub(super) due: Instant,
    captured: Instant,
    begun: Instant,
    rung: usize,
    expected_bytes: u32,
    expected_time: Duration,
    /// What is in those two already.
    size_ratio: f64,
    time_ratio: f64,
}

/// What the rungs to choose from depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Basis {
    profile: Option<[u8; 32]>,
    pixels: (u32, u32),
    encoding: Encoding,
    /// Of a frame as it was published.
    original_bytes: f64,
    /// Sizes of frames that were made ÷ what the profile says, or the default ladder.
    size_ratio: f64,
    /// What making them takes ÷ the same.
    time_ratio: f64,
}

impl Basis {
    /// Whether rungs on this basis will do for another.
    fn will_do_for(&self, other: &Self) -> bool {
        let near = |ours: f64, theirs: f64, factor: f64| (1.0 / factor..=factor).contains(&(theirs / ours));
        (self.profile, self.pixels, self.encoding) == (other.profile, other.pixels, other.encoding)
            && near(self.original_bytes, other.original_bytes, SIZE_TOLERANCE)
            && near(self.size_ratio, other.size_ratio, SIZE_TOLERANCE)
            && near(self.time_ratio, other.time_ratio, TIME_TOLERANCE)
    }
}

/// The rungs to choose from.
#[derive(Debug)]
struct Rungs {
    basis: Basis,
    ladder: Ladder,
    /// Of each place of the ladder.
    settings: Vec<Setting>,
}

/// Decides what is made of frames, and follows what becomes of them.
pub(super) struct Adapter {
    policy: Box<dyn Policy>,
    /// In the order in which they were given.
    profiles: BTreeMap<u64, ([u8; 32], Profile)>,
    profiles_given: u64,
    rungs: Option<Rungs>,
    size_ratio: f64,
    time_ratio: f64,
}

impl Adapter {
    pub(super) fn new() -> Self {
        Self {
            policy: Box::new(Quantile::new(quantile::Config::default())),
            profiles: BTreeMap::new(),
            profiles_given: 0,
            rungs: None,
            size_ratio: 1.0,
            time_ratio: 1.0,
        }
    }

    /// Takes in a profile under its SHA-256.
    pub(super) fn add_profile(&mut self, hash: [u8; 32], profile: Profile) {
        self.profiles.retain(|_, (known, _)| *known != hash);
        if self.profiles.len() == PROFILES_MAX {
            self.profiles.pop_first();
        }
        self.profiles_given += 1;
        self.profiles.insert(self.profiles_given, (hash, profile));
        // It may take the place of the default ladder.
        self.rungs = None;
    }

    /// What to do with a frame that waits while the link is free.
    pub(super) fn plan(
        &mut self,
        now: Instant,
        wish: &Wish,
        frame: &Frame,
        captured: Instant,
        interval: Duration,
    ) -> Plan {
        let basis = Basis {
            profile: wish.profile.filter(|hash| find(&self.profiles, *hash).is_some()),
            pixels: (frame.meta.width, frame.meta.height),
            encoding: frame.meta.encoding,
            original_bytes: frame.payload.len().max(1) as f64,
            size_ratio: self.size_ratio,
            time_ratio: self.time_ratio,
        };
        let rungs = self.rungs.take().filter(|rungs| rungs.basis.will_do_for(&basis));
        let rungs = rungs
            .unwrap_or_else(|| Rungs::new(basis, basis.profile.and_then(|hash| find(&self.profiles, hash))));
        let Rungs { basis, ladder, settings } = &*self.rungs.insert(rungs);
        let verified = basis.profile.is_some();
        let offer = Offer {
            now,
            captured,
            interval,
            ladder,
            latency_bound: wish.bound,
            result_latency_bound: None,
            accuracy_floor: verified.then_some(wish.floor),
            on_time_share: wish.on_time_share,
            degrade: wish.degrade,
            cap: None,
            unsent_bytes: 0,
            coding: None,
        };
        match self.policy.decide(&offer) {
            Decision::Wait { until } => Plan::Wait(until.max(now + Duration::from_millis(1))),
            Decision::Send(Choice { rung, infeasible, .. }) => {
                let profile = &ladder.rungs()[rung];
                Plan::Send(Making {
                    setting: settings[rung],
                    expected_accuracy: verified.then_some(profile.accuracy),
                    infeasible,
                    deadline: now + wish.bound.clamp(MAKING_TIME_MIN, MAKING_TIME_MAX),
                    due: captured + wish.bound,
                    captured,
                    begun: now,
                    rung,
                    expected_bytes: profile.bytes.mean as u32,
                    expected_time: profile.camera_time,
                    size_ratio: basis.size_ratio,
                    time_ratio: basis.time_ratio,
                })
            }
        }
    }

    /// A frame was made. What it took, and how large it became, is remembered.
    pub(super) fn made(&mut self, now: Instant, making: &Making, bytes: usize) {
        let Making { expected_bytes, expected_time, size_ratio, time_ratio, .. } = *making;
        let learn = |ratio: &mut f64, gain: f64, measured: f64| {
            // In logarithms, so that half and double weigh the same; one absurd frame must not spoil the rest.
            let error = (measured / *ratio).ln().clamp(-2.0, 2.0);
            *ratio = (*ratio * (gain * error).exp()).clamp(1e-3, 1e3);
        };
        if bytes > 0 && expected_bytes > 0 {
            learn(&mut self.size_ratio, SIZE_GAIN, bytes as f64 / f64::from(expected_bytes) * size_ratio);
        }
        let took = now.saturating_since(making.begun);
        if !took.is_zero() && !expected_time.is_zero() {
            learn(&mut self.time_ratio, TIME_GAIN, took.div_duration_f64(expected_time) * time_ratio);
        }
    }

    /// A frame of `bytes` is given to the link.
    pub(super) fn handle_sent(&mut self, now: Instant, frame: FrameId, bytes: u32, making: Option<&Making>) {
        self.policy.handle_sent(&match making {
            Some(making) => SentFrame {
                frame,
                rung: making.rung,
                expected_bytes: making.expected_bytes,
                bytes,
                captured: making.captured,
                sent: now,
                due: making.due,
            },
            // As it is: nothing was expected of it, and it is still a measurement of the link.
            None => SentFrame {
                frame,
                rung: 0,
                expected_bytes: bytes,
                bytes,
                captured: now,
                sent: now,
                due: now + BOUND_DEFAULT,
            },
        });
    }

    pub(super) fn handle_left(&mut self, now: Instant, frame: FrameId) {
        self.policy.handle_left(now, frame);
    }

    pub(super) fn handle_arrival(&mut self, now: Instant, arrival: &Arrival) {
        self.policy.handle_arrival(now, arrival);
    }

    /// Frames were given up, because nothing gets through or the link is gone.
    pub(super) fn handle_reset(&mut self, now: Instant, frame: FrameId) {
        self.policy.handle_reset(now, frame);
    }

    /// A frame was cancelled although the link works.
    pub(super) fn handle_cancelled(&mut self, now: Instant, frame: FrameId, left_bytes: u64) {
        self.policy.handle_cancelled(now, frame, left_bytes);
    }
}

/// A profile that has a rung which can be made.
fn find(profiles: &BTreeMap<u64, ([u8; 32], Profile)>, hash: [u8; 32]) -> Option<&Profile> {
    let (_, profile) = profiles.values().find(|(known, _)| *known == hash)?;
    profile.rungs().iter().any(|rung| still(&rung.rung).is_some()).then_some(profile)
}

impl Rungs {
    fn new(basis: Basis, profile: Option<&Profile>) -> Self {
        let mut rungs: Vec<RungProfile> = match profile {
            Some(profile) => {
                profile.rungs().iter().filter(|rung| still(&rung.rung).is_some()).cloned().collect()
            }
            None => assumed(&basis),
        };
        for rung in &mut rungs {
            if rung.rung == Rung::original() {
                // It goes as it is: nothing is to be assumed of it.
                rung.bytes = ByteSizes::around(basis.original_bytes, JPEG_DEVIATION);
                rung.camera_time = Duration::ZERO;
            } else {
                let ByteSizes { mean, p05, p50, p95 } = rung.bytes;
                let [mean, p05, p50, p95] = [mean, p05, p50, p95].map(|bytes| bytes * basis.size_ratio);
                rung.bytes = ByteSizes { mean, p05, p50, p95 };
                rung.camera_time = rung.camera_time.mul_f64(basis.time_ratio);
            }
        }
        let ladder =
            Profile::new(rungs).expect("rungs of a profile that was checked, or assumed ones").ladder();
        let settings = ladder.rungs().iter().map(|rung| still(&rung.rung).expect("only these")).collect();
        Self { basis, ladder, settings }
    }
}

/// The setting of a rung whose frames stand for themselves.
fn still(rung: &Rung) -> Option<Setting> {
    let setting: Setting = rung.as_str().parse().ok()?;
    let refers = matches!(setting.form, Form::Knobs(knobs) if knobs.difference.is_some());
    (!setting.is_chained() && !refers && setting.skip == 0).then_some(setting)
}

/// The default ladder with what can be said of it before any frame was made: the sizes of JPEGs against each other, and that
/// more bytes keep more. The policy learns how the sizes really are; the accuracies only order the rungs.
fn assumed(basis: &Basis) -> Vec<RungProfile> {
    let Basis { pixels, encoding, original_bytes, .. } = *basis;
    let area = f64::from(pixels.0) * f64::from(pixels.1);
    // Published JPEGs are mostly of quality 95; pixels would have about a tenth of their bytes as such a JPEG.
    let jpeg_bytes = if encoding == Encoding::Jpeg { original_bytes } else { area * 0.3 };
    let mut rungs: Vec<RungProfile> = Vec::new();
    for setting in default_ladder(pixels, false) {
        let (bytes, camera_time) = match setting.form {
            Form::Jpeg(jpeg) => {
                let (width, height) = setting.size(pixels);
                let share = f64::from(width) * f64::from(height) / area.max(1.0);
                // Smaller pictures have more bits for each of their pixels.
                let bytes = jpeg_bytes * quality_share(jpeg.quality.get()) * share.powf(0.8);
                (bytes, Duration::from_nanos((area * NANOS_PER_PIXEL) as u64))
            }
            _ => (original_bytes, Duration::ZERO),
        };
        if rungs.iter().any(|rung| rung.rung == setting.rung()) {
            continue;
        }
        rungs.push(RungProfile {
            rung: setting.rung(),
            bytes: ByteSizes::around(bytes.max(1.0), JPEG_DEVIATION),
            accuracy: bytes / (bytes + jpeg_bytes / 16.0),
            camera_time,
            detector_time: None,
        });
    }
    rungs
}

/// The bytes of a JPEG of a quality against one of quality 95, for natural pictures: half at 85, a third at 70, a quarter at 50.
fn quality_share(quality: u8) -> f64 {
    let scale = |quality: f64| if quality < 50.0 { 50.0 / quality } else { 2.0 - quality / 50.0 };
    // libjpeg scales its tables by this; bytes fall with about its power of -0.6.
    (scale(f64::from(quality.clamp(1, 99))) / scale(95.0)).powf(-0.6)
}
