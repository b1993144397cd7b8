//! Decides how a frame is encoded before it is sent, from the contracts, the rungs that are available, and
//! the policy's choice.
//!
//! A frame is adapted if any application gives an accuracy floor ([`accuracy_floor`](crate::contract::Contract::accuracy_floor)). Otherwise
//! frames go unchanged. The rungs are those of the profile that the strictest application names. Without a profile, or while it is missing,
//! the rungs are those of the [`default_ladder`](crate::setting::default_ladder). Their accuracy is unknown, so the floor has no effect.
//!
//! A frame of a chain has a byte budget: the bytes that arrive in time with the requested probability, as far as the policy can
//! predict. The budget makes no frame coarser than a measured rung as long as a measured rung fits. A rung with frame skip is
//! used only if the frames that it sends reach the requested frame rate. Rungs that skip frames because of their content are not
//! used. After the video codec fails, frames are encoded as changed tiles for a while; after that codec fails too, as stills.

mod basis;
mod budgets;
mod candidate;
mod drift;
mod encode_plan;
mod forms;
mod profiles;
mod punctuality;
mod rungs;

use std::time::Duration;

use self::basis::skip_max;
pub(super) use self::candidate::{BOUND_DEFAULT, Candidate, Own};
pub(super) use self::encode_plan::EncodePlan;
use self::forms::Forms;
pub use self::profiles::PROFILES_MAX;
pub(super) use self::profiles::Profiles;
pub(super) use self::punctuality::Lateness;
use self::punctuality::Punctuality;
pub(super) use self::rungs::Before;
use self::rungs::{Rungs, finer};
use crate::contract::{Contract, OnInfeasible};
use crate::controller::named::PolicyName;
use crate::controller::share::{SHED_INTERVAL, Step};
use crate::controller::{Arrival, Calibration, Cap, Choice, Decision, Offer, Policy, SentFrame, SourceFrame};
use crate::frame::{ChainLink, FrameId, Rung};
use crate::profile::SizeDrift;
use crate::units::{BitsPerSecond, Instant};
use crate::wire::ProfileUse;

/// The longest time that a codec gets for a frame, however late the frame may be. With it, an idle link that
/// has a frame to send is never silent for longer than 250 ms, even if a codec hangs.
const ENCODE_TIME_MAX: Duration = Duration::from_millis(200);
/// The shortest time that a codec gets for a frame. The first frame of a size takes longer than later ones.
const ENCODE_TIME_MIN: Duration = Duration::from_millis(100);
/// A frame that is enlarged to probe the link may exceed the requested size by this factor.
const STRETCHED_MAX: f64 = 1.25;
/// The most different latency bounds that a negotiation considers; contracts with
/// further bounds are left out of it. Each bound costs one prediction for every rung.
const BOUNDS_MAX: usize = 16;

/// A marginal contract is served by rungs that need at most this many times the bytes of the cheapest one. How many
/// frames would be on time at finer rungs is not known: measurements with large frames say little about small ones.
const CHEAPEST_MAX: f64 = 1.05;

/// Which rungs keep a contract.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeptBy {
    /// For each place in the ladder, whether its rung keeps the contract; if the contract is marginal, whether
    /// it is among the cheapest that keep the floor.
    pub(super) rungs: Vec<bool>,
    /// Whether no rung keeps the contract in full, but some may keep it for a part of the frames.
    pub(super) marginal: bool,
    /// The best on-time probability of the rungs that keep all but the latency bound.
    pub(super) chance: f64,
    /// For each place in the ladder, whether its rung is among the cheapest that keep the floor.
    pub(super) cheapest: Vec<bool>,
    /// How many of the newest frames were late by the contract's bound, whichever contracts they were made for.
    pub(super) lateness: Lateness,
    /// The contract's accuracy floor, converted to the profile of the ladder: the accuracy of the lowest rung
    /// that keeps the floor by the contract's own profile. 0 if both are the same profile.
    pub(super) floor: f64,
}

/// What to do with the waiting frame.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// Send the frame at a rung.
    Send(Box<EncodePlan>),
    /// Send the first waiting frame of its source's chain, as it is.
    Own(Box<EncodePlan>),
    /// Ask again after the next event, or at this instant.
    Wait(Instant),
}

/// How a waiting frame is sent.
enum Course {
    /// As its source coded it. `infeasible`: no rung is expected to keep the contract either.
    Own { own: Own, infeasible: bool },
    /// At the rung that the policy chose, if any.
    Rung(Decision),
}

/// What was found when a waiting frame was last considered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) profile_use: ProfileUse,
    /// The mean bytes of the cheapest rung that keeps the floor.
    pub(super) floor_bytes: Option<f64>,
    pub(super) best_accuracy: Option<f64>,
    pub(super) infeasible: bool,
    /// How the sizes of frames differ from those of the profile, if they do.
    pub(super) drift: Option<SizeDrift>,
    /// The place of the cheapest rung that keeps the floor, or of the best rung if none does.
    floor: usize,
    interval: Duration,
    bound: Duration,
}

/// Decides how frames are encoded, and follows what becomes of them.
pub(super) struct Adapter {
    policy: Box<dyn Policy>,
    forms: Forms,
    punctuality: Punctuality,
    /// What was found when a waiting frame was last considered.
    seen: Option<Seen>,
    /// The edge's cap on the mean size of frames, if there is one.
    cap: Option<Cap>,
    /// Until when the channel has no room for any rung that keeps the floor.
    shed_until: Option<Instant>,
    /// When a rung was last chosen for a frame, unless its codec could not begin yet.
    chosen: Option<Instant>,
    /// Whether the last frame that went was encoded from a source's own video.
    interrupts_source: bool,
    /// The mean bytes of the frames of a source's own video, if it gives any.
    source_bytes: Option<f64>,
}

impl Adapter {
    pub(super) fn new(policy: PolicyName) -> Self {
        Self {
            policy: policy.policy(),
            forms: Forms::new(),
            punctuality: Punctuality::default(),
            seen: None,
            cap: None,
            shed_until: None,
            chosen: None,
            interrupts_source: false,
            source_bytes: None,
        }
    }

    /// A frame goes. `is_made`: it is encoded at a rung. `of_source`: it is of a source's own video.
    pub(super) fn goes(&mut self, is_made: bool, of_source: bool) {
        self.interrupts_source = is_made && of_source;
    }

    /// Sets the mean bytes of the frames of a source's own video. `None`: the source gives stills.
    pub(super) fn see_source(&mut self, mean_bytes: Option<f64>) {
        self.source_bytes = mean_bytes;
    }

    /// Whether the camera's share of a channel has room for frames of this mean size.
    pub(super) fn has_room(&self, now: Instant, mean_bytes: f64) -> bool {
        has_room(self.cap, now, mean_bytes)
    }

    /// Whether a source's own video is interrupted: frames are encoded from it until one of its keyframes goes as it is.
    pub(super) fn interrupts_source(&self) -> bool {
        self.interrupts_source
    }

    /// The edge has told the camera its share of a channel.
    pub(super) fn set_share(&mut self, limits: (Option<Cap>, Option<Instant>)) {
        (self.cap, self.shed_until) = limits;
    }

    /// The place of the cheapest rung that keeps the floor, and the bytes and accuracy of all rungs,
    /// ascending. `None` before the first frame was considered.
    pub(super) fn steps(&self) -> Option<(usize, Vec<Step>)> {
        let (rungs, seen) = self.forms.rungs().zip(self.seen.as_ref())?;
        let mut steps: Vec<(usize, Step)> = Vec::new();
        for (place, rung) in rungs.ladder.rungs().iter().enumerate() {
            let bytes = rungs.bytes_needed(place, seen.interval, seen.bound);
            // With frame skip, a better rung may cost less.
            while steps.last().is_some_and(|(_, before)| before.bytes >= bytes) {
                steps.pop();
            }
            steps.push((place, Step { bytes, accuracy: rung.accuracy }));
        }
        let floor = steps.partition_point(|(place, _)| *place < seen.floor);
        // A source's own video is finer than every rung that is made from it.
        let finest =
            self.source_bytes.filter(|bytes| steps.last().is_some_and(|(_, last)| last.bytes < *bytes));
        steps.extend(finest.map(|bytes| (rungs.ladder.len(), Step { bytes, accuracy: 1.0 })));
        Some((floor, steps.into_iter().map(|(_, step)| step).collect()))
    }

    /// The mean bytes that the chosen rung needs, and those of the cheapest rung that keeps the floor.
    pub(super) fn expected_bytes(&self, making: &EncodePlan) -> Option<(f64, f64)> {
        let (rungs, seen) = self.forms.rungs().zip(self.seen.as_ref())?;
        let needs = |place: usize| {
            (place < rungs.ladder.len()).then(|| rungs.bytes_needed(place, seen.interval, seen.bound))
        };
        needs(making.rung).zip(needs(seen.floor))
    }

    /// The demand has changed: forgets what was found for the last one.
    pub(super) fn forget_seen(&mut self) {
        self.seen = None;
    }

    pub(super) fn seen(&self) -> Option<&Seen> {
        self.seen.as_ref()
    }

    pub(super) fn link_rate(&self) -> Option<BitsPerSecond> {
        self.policy.link_rate()
    }

    pub(super) fn calibration(&self) -> Calibration {
        self.policy.calibration().unwrap_or_default()
    }

    /// Decides what to do with a frame that waits for a free link.
    pub(super) fn plan(&mut self, candidate: &Candidate<'_>) -> Plan {
        let Candidate { now, captured, interval, .. } = *candidate;
        let prepared = self.forms.prepare(&*self.policy, candidate, self.cap);
        let (rungs, offer) = (prepared.rungs, prepared.offer());
        let Rungs { basis, ladder, settings, .. } = rungs;
        let verified = basis.profile.is_some();
        let bound = offer.latency_bound;
        let shed = self.shed_until.filter(|until| now < *until);
        let own = candidate.own.filter(|_| shed.is_none());
        let course = match shed {
            Some(until) => Course::Rung(without_room(now, until, self.chosen, &offer)),
            None => course(&mut *self.policy, &offer, own),
        };
        let floor = ladder.lowest_at(offer.accuracy_floor);
        self.seen = Some(Seen {
            at: now,
            profile_use: prepared.profile_use,
            floor_bytes: floor.map(|place| rungs.bytes_needed(place, interval, bound)),
            best_accuracy: verified.then(|| ladder.rungs()[ladder.len() - 1].accuracy),
            infeasible: match course {
                Course::Own { infeasible, .. } => infeasible,
                Course::Rung(_) => shed.is_some() || self.policy.is_infeasible(),
            },
            drift: prepared.drift,
            floor: offer.floor_rung().0,
            interval,
            bound,
        });
        match course {
            Course::Own { own, infeasible } => {
                self.chosen = Some(now);
                let plan = EncodePlan::of_source(&own, &offer, verified, basis.ratios);
                Plan::Own(Box::new(EncodePlan { infeasible, ..plan }))
            }
            Course::Rung(Decision::Wait { until }) => Plan::Wait(until.max(now + Duration::from_millis(1))),
            Course::Rung(Decision::Send(Choice { rung, infeasible, stretch_bytes, .. })) => {
                self.chosen = Some(now);
                let profile = &ladder.rungs()[rung];
                let usual_bytes = rungs.bytes_at(rung);
                let setting = settings[rung];
                let setting = stretch_bytes.map_or(setting, |bytes| finer(setting, bytes / usual_bytes.0));
                Plan::Send(Box::new(EncodePlan {
                    setting,
                    at: settings[rung],
                    expected_accuracy: verified.then_some(profile.accuracy),
                    infeasible,
                    deadline: now + bound.clamp(ENCODE_TIME_MIN, ENCODE_TIME_MAX),
                    due: captured + bound,
                    captured,
                    begun: now,
                    published: now,
                    rung,
                    bytes_max: match stretch_bytes {
                        Some(bytes) => Some((bytes * STRETCHED_MAX) as u32),
                        None => prepared.costs.bytes_max_at(rung),
                    },
                    anchor_bytes_max: match stretch_bytes {
                        Some(_) => 0,
                        None => {
                            let most = prepared.costs.anchor_bytes_max_at(rung, interval, bound);
                            self.cap.map_or(most, |cap| most.min(cap.frame_bytes_max as u32))
                        }
                    },
                    expected_bytes: stretch_bytes.unwrap_or(offer.bytes(rung).mean) as u32,
                    goes_on: prepared.costs.goes_on_at(rung),
                    // The size of a frame that was enlarged says nothing about the size of other frames.
                    usual_bytes: if stretch_bytes.is_some() { (0.0, usual_bytes.1) } else { usual_bytes },
                    expected_time: profile.camera_time,
                    ratios: basis.ratios,
                    floor: offer.accuracy_floor,
                    profiled: stretch_bytes.is_none().then(|| rungs.profiled_at(rung)).flatten(),
                    differs: rungs.differs(candidate.frame.meta.encoding, candidate.frame.payload.len()),
                    of_source: false,
                }))
            }
        }
    }

    /// Whether to cancel the frame that is being sent in favour of the candidate, which waits.
    pub(super) fn gives_up(&mut self, candidate: &Candidate<'_>) -> bool {
        let prepared = self.forms.prepare(&*self.policy, candidate, self.cap);
        self.policy.gives_up(&prepared.offer())
    }

    /// For each contract, the rungs that keep it with frames like this one; `None` for a contract that was not
    /// considered. `path`: the minimum one-way delay, if it was measured. Returns `None` while the policy cannot tell.
    pub(super) fn kept_by(
        &mut self,
        candidate: &Candidate<'_>,
        contracts: &[Contract],
        path: Option<Duration>,
    ) -> Option<Vec<Option<KeptBy>>> {
        let Candidate { profiles, interval, .. } = *candidate;
        let with_floor = contracts.iter().filter(|contract| contract.accuracy_floor.is_some());
        let lowest_rate = with_floor.map(|contract| contract.min_fps).fold(f64::INFINITY, f64::min);
        let rungs = self.forms.widest(candidate, lowest_rate);
        let offer = candidate.offer(rungs, self.cap);
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
            looks.push(on_time.zip(contract.accuracy_floor).and_then(|(on_time, floor)| {
                let own = profiles.own(contract, rungs);
                let lowest = rungs.lowest_for(own, floor);
                // The source's own video may keep the floor.
                if lowest.is_none() && candidate.frame.meta.encoding.is_chained() {
                    return None;
                }
                let skip_max = skip_max(interval, contract.min_fps);
                let fine = (0..on_time.len()).map(|place| {
                    let often = rungs.settings[place].skip <= skip_max;
                    let is_fine = often && lowest.is_some_and(|lowest| place >= lowest);
                    is_fine.then(|| rungs.bytes_needed(place, interval, bound))
                });
                let fine: Vec<Option<f64>> = fine.collect();
                let translated = lowest.filter(|_| own.is_some());
                let floor = translated.map_or(0.0, |place| rungs.ladder.rungs()[place].accuracy);
                let lateness = self.punctuality.lateness(bound);
                Some(KeptBy { floor, lateness, ..served(contract, &fine, on_time, path) })
            }));
        }
        Some(looks)
    }

    /// A codec has encoded a frame: learns from its time and size. If the budget forced a coarser quality,
    /// corrects what is expected of the frame.
    pub(super) fn handle_made(
        &mut self,
        now: Instant,
        making: &mut EncodePlan,
        made: (&Rung, &ChainLink),
        bytes: usize,
    ) {
        self.forms.made(now, making, made, bytes);
    }

    /// The codec is still decoding earlier frames. No frame was made, so the next try need not wait for [`SHED_INTERVAL`].
    pub(super) fn handle_not_yet(&mut self) {
        self.chosen = None;
    }

    /// A codec has failed.
    pub(super) fn handle_failed(&mut self, now: Instant, making: &EncodePlan) {
        self.forms.failed(now, making);
    }

    /// A frame exceeded its budget. Returns whether it would get a larger one if it were encoded again.
    pub(super) fn handle_too_large(&mut self, making: &EncodePlan) -> bool {
        self.forms.too_large(making)
    }

    /// A profile has come: it may replace the default ladder.
    pub(super) fn handle_profile(&mut self) {
        self.forms.forget_rungs();
    }

    /// A frame of `bytes` bytes is given to the link. `window`: the most bytes that may
    /// be on their way. `first_packet_bytes`: bytes of the frame in its first packet.
    pub(super) fn handle_sent(
        &mut self,
        now: Instant,
        frame: FrameId,
        bytes: u32,
        (window, first_packet_bytes): (Option<u64>, Option<u32>),
        making: Option<&EncodePlan>,
    ) {
        // A frame that was enlarged to probe the link may be late by any contract's bound.
        if let Some(making) = making.filter(|making| !making.is_enlarged()) {
            self.punctuality.handle_sent(frame, making.captured);
        }
        self.policy.handle_sent(&match making {
            Some(making) => SentFrame {
                frame,
                rung: making.rung,
                expected_bytes: making.expected_bytes,
                bytes,
                captured: making.captured,
                sent: now,
                due: making.due,
                window,
                first_packet_bytes,
                of_source: making.of_source,
                infeasible: making.infeasible,
            },
            // The frame goes unchanged: nothing was expected of it, but it still measures the link.
            None => SentFrame {
                frame,
                rung: 0,
                expected_bytes: bytes,
                bytes,
                captured: now,
                sent: now,
                due: now + BOUND_DEFAULT,
                window,
                first_packet_bytes,
                of_source: false,
                infeasible: false,
            },
        });
    }

    pub(super) fn handle_left(&mut self, now: Instant, frame: FrameId) {
        self.policy.handle_left(now, frame);
    }

    pub(super) fn handle_arrival(&mut self, now: Instant, arrival: &Arrival) {
        if arrival.complete {
            self.punctuality.handle_arrived(arrival.frame, arrival.last);
        }
        self.policy.handle_arrival(now, arrival);
    }

    /// A frame was given up, because nothing arrives or the link is gone.
    pub(super) fn handle_reset(&mut self, now: Instant, frame: FrameId) {
        self.punctuality.handle_lost(frame);
        self.policy.handle_reset(now, frame);
    }

    /// A frame was cancelled although the link works.
    pub(super) fn handle_cancelled(&mut self, now: Instant, frame: FrameId, left_bytes: u64) {
        self.punctuality.handle_lost(frame);
        self.policy.handle_cancelled(now, frame, left_bytes);
    }
}

/// Which rungs keep a contract, given the bytes of each rung that keeps all but the latency bound, and the on-time probability of
/// each rung. If no rung keeps the contract, and it wants frames all the same, it is marginal, and the cheapest rungs serve it.
fn served(contract: &Contract, fine: &[Option<f64>], on_time: &[f64], path: Option<Duration>) -> KeptBy {
    let least = contract.latency_bound.map_or(0.0, |_| contract.on_time_share);
    let keeps = |(fine, on_time): (&Option<f64>, &f64)| fine.is_some() && *on_time >= least;
    let rungs: Vec<bool> = fine.iter().zip(on_time).map(keeps).collect();
    let is_hopeless = path.is_some_and(|path| contract.latency_bound.is_some_and(|bound| path >= bound));
    let least_bytes = fine.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let is_cheap = |bytes: &Option<f64>| bytes.is_some_and(|bytes| bytes <= least_bytes * CHEAPEST_MAX);
    let cheapest: Vec<bool> = fine.iter().map(is_cheap).collect();
    let marginal = contract.on_infeasible == OnInfeasible::Degrade
        && !is_hopeless
        && !rungs.contains(&true)
        && cheapest.contains(&true);
    let rungs = if marginal { cheapest.clone() } else { rungs };
    let chances = fine.iter().zip(on_time).filter(|(fine, _)| fine.is_some()).map(|(_, on_time)| *on_time);
    let chance = chances.fold(0.0, f64::max);
    KeptBy { rungs, marginal, chance, cheapest, lateness: Lateness::default(), floor: 0.0 }
}

/// Decides whether a frame of a source's chain is sent as it is. It is, if the channel has room for such frames and one of these holds:
///
/// - The frame is likely enough to be on time, and the chain does not rest.
/// - It is a keyframe, the chain does not rest, and the policy would take the best rung, whose frames are too small to tell what the link
///   carries beyond them. The keyframe is then a trial. If the link cannot carry it, the chain ends, and rests before the next trial.
/// - No rung keeps the contract, or the codec encodes few frames, and a frame at the rung of the policy's choice would serve no better. This happens
///   where frames wait for something other than their own bytes, such as a busy processor. Encoding them at a rung would only add work.
fn course(policy: &mut dyn Policy, offer: &Offer<'_>, own: Option<Own>) -> Course {
    let own = own.filter(|own| has_room(offer.cap, offer.now, own.mean_bytes));
    if let Some(own) = own.filter(|own| !own.rests && policy.carries(offer, own.bytes as f64)) {
        return Course::Own { own, infeasible: false };
    }
    let decision = policy.decide(offer);
    let (Some(own), Decision::Send(choice)) = (own, decision) else { return Course::Rung(decision) };
    let is_best = choice.rung + 1 == offer.ladder.len() && !choice.infeasible;
    if own.begins && !own.rests && is_best && policy.measured_little() {
        return Course::Own { own, infeasible: false };
    }
    let source = SourceFrame { bytes: own.bytes as f64, mean_bytes: own.mean_bytes };
    let is_asked = (choice.infeasible || !own.has_alternative) && offer.degrade;
    match is_asked.then(|| policy.prefers_source(offer, source, choice)).flatten() {
        Some(choice) => Course::Own { own, infeasible: choice.infeasible },
        None => Course::Rung(decision),
    }
}

/// Whether a cap has room for frames of this mean size.
fn has_room(cap: Option<Cap>, now: Instant, mean_bytes: f64) -> bool {
    cap.is_none_or(|cap| now < cap.until && mean_bytes <= cap.frame_bytes_max)
}

/// Decides about a frame while the channel has no room for any rung that keeps the floor. If the contracts
/// want frames below the floor, a frame of the cheapest rung goes from time to time.
fn without_room(now: Instant, until: Instant, chosen: Option<Instant>, offer: &Offer<'_>) -> Decision {
    match chosen.map(|chosen| chosen + SHED_INTERVAL).filter(|due| now < *due) {
        _ if !offer.degrade => Decision::Wait { until },
        Some(due) => Decision::Wait { until: due },
        None => {
            // Not the lowest rung: with frame skip, it may need more bytes within the latency bound.
            let needs = |rung: &usize| offer.bytes_needed(*rung);
            let cheapest = (0..offer.ladder.len()).min_by(|one, other| needs(one).total_cmp(&needs(other)));
            Decision::Send(Choice::plain(cheapest.unwrap_or(0), true))
        }
    }
}
