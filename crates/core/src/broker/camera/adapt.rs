//! What is made of a frame before it is sent: what the applications ask, the rungs that there are for it, and the policy's choice.
//!
//! A frame is made smaller where every application of the highest priority gives an accuracy floor; where one of them gives none, frames go
//! as they are ([`accuracy_floor`](crate::contract::Contract::accuracy_floor)). Of those that give one, the most are kept (`coalition.rs`). The rungs are those of the profile that the
//! strictest of them names; while that profile is not here, or where none is named, they are
//! [`default_ladder`](crate::setting::default_ladder)'s, whose accuracy nobody knows, and the floor says nothing.
//!
//! Frames of a chain have a byte budget: what arrives in time with the probability that is asked for, as far as the policy knows. Rungs that
//! leave out every so many frames are there as long as what they send makes the frame rate that is asked for (`left_out.rs`); those that leave
//! out frames for what is in them are passed over. After the codec of video has failed, frames are made of changed tiles for a while, and stills after
//! that has failed as well.

use std::time::Duration;

use super::chain::Before;
use super::profiles::Profiles;
use super::rungs::{Basis, Ratios, Rungs, chains_take, coarsened, finer, makeable, skip_max};
use crate::contract::{Contract, Joint};
use crate::controller::named::PolicyName;
use crate::controller::share::{SHED_INTERVAL, Step};
use crate::controller::{Arrival, Cap, Choice, Decision, Offer, Policy, SentFrame};
use crate::frame::{ChainLink, Frame, FrameId, Reference, Rung};
use crate::profile::{Profile, ProfileHash, RungProfile};
use crate::setting::{Chains, Form, Setting};
use crate::units::{BitsPerSecond, Instant};
use crate::wire::ProfileUse;

/// The latency bound where no contract gives one: frames are wanted as soon as possible.
pub(super) const BOUND_DEFAULT: Duration = Duration::from_secs(1);
/// How long a rung may take before its frame is given up, where the bound allows more: an idle link with a frame to send is
/// never silent for longer than a quarter of a second, also when a codec hangs.
const MAKING_TIME_MAX: Duration = Duration::from_millis(200);
/// The least that a codec is given: the first frame of a size takes longer than others.
const MAKING_TIME_MIN: Duration = Duration::from_millis(100);
/// The weight of a measurement of it.
const TIME_GAIN: f64 = 0.1;
/// The weight of a frame's size in what is expected of the next ones.
const SIZE_GAIN: f64 = 0.2;
/// The same for frames of chains that stand alone, of which there are few.
const ALONE_GAIN: f64 = 0.5;
/// After a codec of chains has failed, it is left alone for this long; for twice as long each time it fails again,
const REST_TIME_MIN: Duration = Duration::from_secs(2);
/// and no longer than this.
const REST_TIME_MAX: Duration = Duration::from_secs(64);
/// What is left of that time's growth with every frame that it makes.
const REST_TIME_KEPT: f64 = 0.99;
/// What is left with every frame of what was added to budgets that could not be kept.
const LIFT_KEPT: f64 = 0.9;
/// A frame that is made larger to measure the link by may be larger than was asked for by this.
const STRETCHED_MAX: f64 = 1.25;
/// Budgets are never lifted by more.
const LIFT_MAX: f64 = 64.0;
/// The different latency bounds that are looked at when contracts are settled between; those with one more are told nothing.
const BOUNDS_MAX: usize = 16;

/// The rungs that keep a contract.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeptBy {
    /// By place in the ladder.
    pub(super) rungs: Vec<bool>,
    /// The least accuracy, by the profile of the ladder, from which on the contract's own profile has its floor; 0 where that is the same
    /// profile.
    pub(super) floor: f64,
}

/// What to do with the waiting frame.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// Send it like this.
    Send(Box<Making>),
    /// Ask again when something has happened, or at this instant.
    Wait(Instant),
}

/// A rung for a frame.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Making {
    /// What is asked of the codec.
    pub(super) setting: Setting,
    /// The setting of the rung: a frame may be made larger to measure the link by it.
    pub(super) at: Setting,
    pub(super) expected_accuracy: Option<f64>,
    pub(super) infeasible: bool,
    /// When the codec is given up.
    pub(super) deadline: Instant,
    /// When the frame has to be there.
    pub(super) due: Instant,
    captured: Instant,
    /// When it was chosen.
    pub(super) begun: Instant,
    /// When the frame was found in the log.
    pub(super) published: Instant,
    rung: usize,
    /// The most bytes that it may have.
    pub(super) bytes_max: Option<u32>,
    expected_bytes: u32,
    /// Bytes without a budget, if it goes on after others and if it stands alone.
    usual_bytes: (f64, f64),
    expected_time: Duration,
    /// What is in those already.
    ratios: Ratios,
    /// The least accuracy that is accepted, where accuracies are known.
    floor: Option<f64>,
}

/// What was seen when a frame last waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) profile_use: ProfileUse,
    /// Bytes of the cheapest rung that keeps the floor.
    pub(super) floor_bytes: Option<f64>,
    pub(super) best_accuracy: Option<f64>,
    pub(super) infeasible: bool,
    /// The place of that rung; of the best, where none keeps the floor.
    floor: usize,
    interval: Duration,
    bound: Duration,
}

/// A codec of chains, which is left alone for a while after it has failed.
struct Rest {
    until: Instant,
    /// How long the next time.
    time: Duration,
}

impl Rest {
    const NONE: Self = Self { until: Instant::ZERO, time: REST_TIME_MIN };

    fn failed(&mut self, now: Instant) {
        self.until = now + self.time;
        self.time = (self.time * 2).min(REST_TIME_MAX);
    }

    fn worked(&mut self) {
        self.time = self.time.mul_f64(REST_TIME_KEPT).max(REST_TIME_MIN);
    }
}

/// Decides what is made of frames, and follows what becomes of them.
pub(super) struct Adapter {
    policy: Box<dyn Policy>,
    rungs: Option<Rungs>,
    /// Those that there would be but for the frame rate that is asked for, where they are more: some contract may do without.
    wider: Option<Rungs>,
    seen: Option<Seen>,
    ratios: Ratios,
    video: Rest,
    tiles: Rest,
    /// What the least budgets are multiplied with, because a frame did not come down to one.
    lift: f64,
    /// What the edge says that frames may have, and until when there is no room for any that keeps the floor.
    cap: Option<Cap>,
    shed_until: Option<Instant>,
    /// When a frame was last chosen.
    chosen: Option<Instant>,
}

impl Adapter {
    pub(super) fn new(policy: PolicyName) -> Self {
        Self {
            policy: policy.policy(),
            rungs: None,
            wider: None,
            seen: None,
            ratios: Ratios::default(),
            video: Rest::NONE,
            tiles: Rest::NONE,
            lift: 1.0,
            cap: None,
            shed_until: None,
            chosen: None,
        }
    }

    /// The edge has said what the camera has of a channel.
    pub(super) fn set_share(&mut self, cap: Option<Cap>, shed_until: Option<Instant>) {
        (self.cap, self.shed_until) = (cap, shed_until);
    }

    /// The place of the cheapest rung that keeps the floor, and what all rungs cost and keep, ascending; `None` before a frame was looked at.
    pub(super) fn steps(&self) -> Option<(usize, Vec<Step>)> {
        let (rungs, seen) = self.rungs.as_ref().zip(self.seen.as_ref())?;
        let mut steps: Vec<(usize, Step)> = Vec::new();
        for (place, rung) in rungs.ladder.rungs().iter().enumerate() {
            let bytes = rungs.bytes_needed(place, seen.interval, seen.bound);
            // Of rungs that leave frames out a better one may cost less.
            while steps.last().is_some_and(|(_, before)| before.bytes >= bytes) {
                steps.pop();
            }
            steps.push((place, Step { bytes, accuracy: rung.accuracy }));
        }
        let floor = steps.partition_point(|(place, _)| *place < seen.floor);
        Some((floor, steps.into_iter().map(|(_, step)| step).collect()))
    }

    /// What frames of the rung that was chosen need on average, and those of the cheapest that keeps the floor.
    pub(super) fn expected_bytes(&self, making: &Making) -> Option<(f64, f64)> {
        let (rungs, seen) = self.rungs.as_ref().zip(self.seen.as_ref())?;
        let needs = |place: usize| {
            (place < rungs.ladder.len()).then(|| rungs.bytes_needed(place, seen.interval, seen.bound))
        };
        needs(making.rung).zip(needs(seen.floor))
    }

    /// The rungs have to be chosen anew.
    pub(super) fn forget_rungs(&mut self) {
        (self.rungs, self.wider) = (None, None);
    }

    /// Something else is asked from now on.
    pub(super) fn forget_seen(&mut self) {
        self.seen = None;
    }

    pub(super) fn seen(&self) -> Option<&Seen> {
        self.seen.as_ref()
    }

    pub(super) fn link_rate(&self) -> Option<BitsPerSecond> {
        self.policy.link_rate()
    }

    /// What to do with a frame that waits while the link is free.
    pub(super) fn plan(
        &mut self,
        now: Instant,
        wish: &Joint,
        profiles: &Profiles,
        frame: &Frame,
        before: Option<Before<'_>>,
        (captured, interval): (Instant, Duration),
    ) -> Plan {
        let profile_use = self.renew_rungs(now, wish, profiles, frame, interval);
        let Some(rungs) = &self.rungs else { unreachable!("they were just renewed") };
        let Rungs { basis, ladder, settings, .. } = rungs;
        let verified = basis.profile.is_some();
        let mut offer = offer(now, wish, rungs, (captured, interval), self.cap);
        let bound = offer.latency_bound;
        let in_time = self.policy.bytes_in_time(&offer, rungs.chain_time());
        let costs = rungs.costs(before, in_time, self.lift);
        offer.coding = rungs.need_coding().then(|| costs.coding(rungs));
        let shed = self.shed_until.filter(|until| now < *until);
        let decision = match shed {
            Some(until) => without_room(now, until, self.chosen, &offer),
            None => self.policy.decide(&offer),
        };
        let floor = ladder.lowest_at(offer.accuracy_floor);
        self.seen = Some(Seen {
            at: now,
            profile_use,
            floor_bytes: floor.map(|place| rungs.bytes_needed(place, interval, bound)),
            best_accuracy: verified.then(|| ladder.rungs()[ladder.len() - 1].accuracy),
            infeasible: shed.is_some() || self.policy.is_infeasible(),
            floor: offer.floor_rung().0,
            interval,
            bound,
        });
        match decision {
            Decision::Wait { until } => Plan::Wait(until.max(now + Duration::from_millis(1))),
            Decision::Send(Choice { rung, infeasible, stretch_bytes, .. }) => {
                self.chosen = Some(now);
                let profile = &ladder.rungs()[rung];
                let usual_bytes = rungs.bytes_at(rung);
                let setting = settings[rung];
                let setting = stretch_bytes.map_or(setting, |bytes| finer(setting, bytes / usual_bytes.0));
                Plan::Send(Box::new(Making {
                    setting,
                    at: settings[rung],
                    expected_accuracy: verified.then_some(profile.accuracy),
                    infeasible,
                    deadline: now + bound.clamp(MAKING_TIME_MIN, MAKING_TIME_MAX),
                    due: captured + bound,
                    captured,
                    begun: now,
                    published: now,
                    rung,
                    bytes_max: match stretch_bytes {
                        Some(bytes) => Some((bytes * STRETCHED_MAX) as u32),
                        None => costs.bytes_max_at(rung),
                    },
                    expected_bytes: stretch_bytes.unwrap_or(offer.bytes(rung).mean) as u32,
                    // What is made of one that was made larger says nothing of the others.
                    usual_bytes: if stretch_bytes.is_some() { (0.0, usual_bytes.1) } else { usual_bytes },
                    expected_time: profile.camera_time,
                    ratios: basis.ratios,
                    floor: offer.accuracy_floor,
                }))
            }
        }
    }

    /// Whether the frame that is being sent should be cancelled for one that waits, which could go on after `before` then. Of the
    /// former, so many bytes have not left.
    pub(super) fn gives_up(
        &mut self,
        now: Instant,
        wish: &Joint,
        profiles: &Profiles,
        frame: &Frame,
        before: Option<Before<'_>>,
        (captured, interval, unsent): (Instant, Duration, u64),
    ) -> bool {
        self.renew_rungs(now, wish, profiles, frame, interval);
        let Some(rungs) = &self.rungs else { return false };
        let mut offer = offer(now, wish, rungs, (captured, interval), self.cap);
        offer.unsent_bytes = unsent;
        let in_time = self.policy.bytes_in_time(&offer, rungs.chain_time());
        let costs = rungs.costs(before, in_time, self.lift);
        offer.coding = rungs.need_coding().then(|| costs.coding(rungs));
        self.policy.gives_up(&offer)
    }

    /// Which rungs keep each contract with frames like this one, one after the other; `None` for a contract that was not looked at. `None` while
    /// the policy cannot tell.
    pub(super) fn kept_by(
        &mut self,
        now: Instant,
        wish: &Joint,
        profiles: &Profiles,
        frame: &Frame,
        interval: Duration,
        contracts: &[Contract],
    ) -> Option<Vec<Option<KeptBy>>> {
        self.renew_rungs(now, wish, profiles, frame, interval);
        let lowest_rate = contracts.iter().map(|contract| contract.min_fps).fold(f64::INFINITY, f64::min);
        self.widen_rungs(profiles, skip_max(interval, lowest_rate));
        let rungs = self.wider.as_ref().or(self.rungs.as_ref())?;
        let offer = offer(now, wish, rungs, (now, interval), self.cap);
        let mut known: Vec<(Duration, Vec<f64>)> = Vec::new();
        let mut looks = Vec::with_capacity(contracts.len());
        for contract in contracts {
            let bound = contract.latency_bound.unwrap_or(BOUND_DEFAULT);
            if known.iter().all(|(of, _)| *of != bound) && known.len() < BOUNDS_MAX {
                let offer = Offer { latency_bound: bound, ..offer };
                let on_time = (0..rungs.ladder.len()).map(|rung| self.policy.steady_on_time(&offer, rung));
                known.push((bound, on_time.collect::<Option<_>>()?));
            }
            let on_time = known.iter().find(|(of, _)| *of == bound).map(|(_, on_time)| on_time);
            looks.push(on_time.zip(contract.accuracy_floor).map(|(on_time, floor)| {
                let own = profiles.own(contract, rungs);
                let lowest = rungs.lowest_for(own, floor);
                let in_time =
                    |on_time: &f64| contract.latency_bound.is_none() || *on_time >= contract.on_time_share;
                let skip_max = skip_max(interval, contract.min_fps);
                let keeps = |(place, on_time): (usize, &f64)| {
                    let often = rungs.settings[place].skip <= skip_max;
                    in_time(on_time) && often && lowest.is_some_and(|lowest| place >= lowest)
                };
                let rungs_kept = on_time.iter().enumerate().map(keeps).collect();
                let translated = lowest.filter(|_| own.is_some());
                let floor = translated.map_or(0.0, |place| rungs.ladder.rungs()[place].accuracy);
                KeptBy { rungs: rungs_kept, floor }
            }));
        }
        Some(looks)
    }

    /// Sees to it that there are rungs for a frame; says what has become of the profile that is wanted.
    fn renew_rungs(
        &mut self,
        now: Instant,
        wish: &Joint,
        profiles: &Profiles,
        frame: &Frame,
        interval: Duration,
    ) -> ProfileUse {
        let pixels = (frame.meta.width, frame.meta.height);
        let takes = chains_take(pixels);
        let chains =
            Chains { video: takes && now >= self.video.until, tiles: takes && now >= self.tiles.until };
        let skip_max = skip_max(interval, wish.min_fps);
        let (profile, profile_use) = usable(profiles, wish.profile, pixels, (chains, skip_max));
        let hash = wish.profile.filter(|_| profile.is_some());
        // The interval is measured: what comes to the same is the same.
        let known = self.rungs.as_ref().filter(|rungs| rungs.basis.profile == hash);
        let basis = Basis {
            profile: hash,
            skip_max: known.map_or(skip_max, |rungs| rungs.skip_within(skip_max)),
            pixels,
            encoding: frame.meta.encoding,
            original_bytes: frame.payload.len().max(1) as f64,
            chains,
            ratios: self.ratios,
        };
        let rungs = self.rungs.take().filter(|rungs| rungs.basis.will_do_for(&basis));
        self.rungs = Some(rungs.unwrap_or_else(|| Rungs::new(basis, profile)));
        profile_use
    }

    /// Sees to it that there are rungs that leave out up to so many frames, beside those that there are, where these leave out fewer.
    fn widen_rungs(&mut self, profiles: &Profiles, skip_max: u8) {
        let wider = self.rungs.as_ref().and_then(|rungs| {
            let within = rungs.skip_within(skip_max);
            (within > rungs.basis.skip_max).then_some(Basis { skip_max: within, ..rungs.basis })
        });
        let known = self.wider.take();
        self.wider = wider.map(|basis| {
            let profile = basis.profile.and_then(|hash| profiles.get(hash)).map(|known| &known.profile);
            known
                .filter(|rungs| rungs.basis.will_do_for(&basis))
                .unwrap_or_else(|| Rungs::new(basis, profile))
        });
    }

    /// A frame was made. What it took, and how large it became, is remembered; and what is expected of it is set right, where a budget
    /// forced less than was asked for.
    pub(super) fn made(
        &mut self,
        now: Instant,
        making: &mut Making,
        (rung, chain): (&Rung, &ChainLink),
        bytes: usize,
    ) {
        let learn = |ratio: &mut f64, gain: f64, measured: f64| {
            // In logarithms, so that half and double weigh the same; one absurd frame must not spoil the rest.
            let error = (measured / *ratio).ln().clamp(-2.0, 2.0);
            *ratio = (*ratio * (gain * error).exp()).clamp(1e-3, 1e3);
        };
        let (asked, mut was) = (making.setting, making.ratios);
        let made: Setting = rung.as_str().parse().unwrap_or(asked);
        let alone = chain.reference == Reference::Independent;
        let was_ratio = *was.learned(&asked, alone);
        let ratio = self.ratios.learned(&asked, alone);
        let usual = making.usual_bytes;
        let expected = if asked.is_chained() && alone { usual.1 } else { usual.0 };
        if bytes > 0 && expected >= 1.0 {
            let bytes = bytes as f64 * coarsened(&asked, &made, alone);
            learn(
                ratio,
                if asked.is_chained() && alone { ALONE_GAIN } else { SIZE_GAIN },
                bytes / expected * was_ratio,
            );
        }
        let took = now.saturating_since(making.begun);
        if !took.is_zero() && !making.expected_time.is_zero() {
            learn(&mut self.ratios.time, TIME_GAIN, took.div_duration_f64(making.expected_time) * was.time);
        }
        if asked.is_chained() {
            self.lift = (self.lift * LIFT_KEPT).max(1.0);
        }
        if let Some(rest) = self.rest_of(&asked) {
            rest.worked();
        }
        if let Some(floor) = making.floor.filter(|_| made != asked) {
            let known = self.rungs.as_ref().and_then(|rungs| rungs.accuracy_of(&made));
            making.expected_accuracy = known;
            making.infeasible |= known.is_none_or(|accuracy| accuracy < floor);
        }
    }

    /// A frame could not be made.
    pub(super) fn failed(&mut self, now: Instant, making: &Making) {
        if let Some(rest) = self.rest_of(&making.setting) {
            rest.failed(now);
        }
    }

    /// The rest of the codec that makes a setting.
    fn rest_of(&mut self, setting: &Setting) -> Option<&mut Rest> {
        match setting.form {
            Form::H264(_) => Some(&mut self.video),
            Form::Tiles(_) => Some(&mut self.tiles),
            _ => None,
        }
    }

    /// A frame did not come down to its budget. Says whether it would have more, were it made again.
    pub(super) fn too_large(&mut self, making: &Making) -> bool {
        let may_have_more = making.bytes_max.is_some() && self.lift < LIFT_MAX;
        if may_have_more {
            self.lift = (self.lift * 2.0).min(LIFT_MAX);
        }
        may_have_more
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

/// What is offered to the policy, but for what its choice would change.
fn offer<'a>(
    now: Instant,
    wish: &Joint,
    rungs: &'a Rungs,
    (captured, interval): (Instant, Duration),
    cap: Option<Cap>,
) -> Offer<'a> {
    Offer {
        now,
        captured,
        interval,
        ladder: &rungs.ladder,
        latency_bound: wish.latency_bound.unwrap_or(BOUND_DEFAULT),
        result_latency_bound: None,
        accuracy_floor: rungs.basis.profile.is_some().then_some(wish.accuracy_floor),
        on_time_share: wish.on_time_share,
        degrade: wish.degrade,
        cap,
        unsent_bytes: 0,
        coding: None,
    }
}

/// What becomes of a frame while the channel has no room for any that keeps the floor: where something is wanted all the same, one of the
/// cheapest rung goes from time to time.
fn without_room(now: Instant, until: Instant, chosen: Option<Instant>, offer: &Offer<'_>) -> Decision {
    match chosen.map(|chosen| chosen + SHED_INTERVAL).filter(|due| now < *due) {
        _ if !offer.degrade => Decision::Wait { until },
        Some(due) => Decision::Wait { until: due },
        None => {
            // Not the lowest, which may owe that to frames left out, and take more within the bound.
            let needs = |rung: &usize| offer.bytes_needed(*rung);
            let cheapest = (0..offer.ladder.len()).min_by(|one, other| needs(one).total_cmp(&needs(other)));
            Decision::Send(Choice::plain(cheapest.unwrap_or(0), true))
        }
    }
}

/// The profile that is wanted, if frames of this size can be made by it; and what has become of it.
fn usable(
    profiles: &Profiles,
    wanted: Option<ProfileHash>,
    pixels: (u32, u32),
    (chains, skip_max): (Chains, u8),
) -> (Option<&Profile>, ProfileUse) {
    let Some(hash) = wanted else { return (None, ProfileUse::None) };
    let makes = |rung: &RungProfile| {
        makeable(&rung.rung, pixels, chains).is_some_and(|setting| setting.skip <= skip_max)
    };
    match profiles.get(hash) {
        None => (None, profiles.absent(hash)),
        Some(known) if known.size != pixels => (None, ProfileUse::OtherSize),
        Some(known) if !known.profile.rungs().iter().any(makes) => (None, ProfileUse::NoRung),
        Some(known) => (Some(&known.profile), ProfileUse::InUse),
    }
}
