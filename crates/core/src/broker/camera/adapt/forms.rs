//! Decides which rungs are available for a frame, learns from measurements what
//! each rung costs, and disables codecs for a while after they have failed.

use std::time::Duration;

use super::basis::{Basis, Ratios, chains_take, skip_max};
use super::budgets::Spendable;
use super::candidate::Candidate;
use super::drift::{Drift, Made};
use super::encode_plan::EncodePlan;
use super::rungs::{Costs, Rungs, coarsened};
use crate::controller::{Cap, Offer, Policy};
use crate::frame::{ChainLink, Reference, Rung};
use crate::profile::{ProfileHash, SizeDrift, SizedProfile};
use crate::setting::{Chains, DeclaredKnobs, Form, Setting};
use crate::units::Instant;
use crate::wire::ProfileUse;

/// The weight of one measurement in the learned encoding time. With 0.1, the average covers about the last
/// ten frames.
const TIME_GAIN: f64 = 0.1;
/// The weight of one frame in the learned sizes. With 0.2, the average covers about the last five frames.
const SIZE_GAIN: f64 = 0.2;
/// The weight of one keyframe in the learned sizes of keyframes. It is higher because keyframes are rare.
const ALONE_GAIN: f64 = 0.5;
/// A chained codec rests (is disabled for a while) after a second failure within this time.
/// The first failure costs only its frame, because a new chain is cheaper than stills.
const FAILS_AGAIN: Duration = Duration::from_secs(10);
/// How long a codec rests after its second failure. The time doubles with each further failure.
const REST_TIME_MIN: Duration = Duration::from_secs(2);
/// The longest rest of a codec: [`REST_TIME_MIN`] doubled five times.
const REST_TIME_MAX: Duration = Duration::from_secs(64);
/// Each frame that a codec encodes multiplies its next rest by this, so that a codec that works again is
/// trusted again: after 70 frames the rest has halved.
const REST_TIME_KEPT: f64 = 0.99;
/// Each encoded frame of a chain multiplies the lift of budgets by this, down to 1.
const LIFT_KEPT: f64 = 0.9;
/// A frame fits if it is at least as likely on time as late.
const LIKELY: f64 = 0.5;
/// The highest lift: the factor on the smallest budget after frames that exceeded theirs.
const LIFT_MAX: f64 = 64.0;

/// A candidate, with the rungs that are available for it.
pub(crate) struct Prepared<'a> {
    pub(crate) rungs: &'a Rungs,
    /// What each rung costs for the candidate.
    pub(crate) costs: Costs,
    /// The state of the wanted profile.
    pub(crate) profile_use: ProfileUse,
    /// How the sizes of frames differ from those of the profile, if they do.
    pub(crate) drift: Option<SizeDrift>,
    /// The offer to the policy, except for what its choice would change.
    offer: Offer<'a>,
}

impl Prepared<'_> {
    /// What is offered to the policy.
    pub(crate) fn offer(&self) -> Offer<'_> {
        let coding = self.rungs.need_coding().then(|| self.costs.coding(self.rungs));
        Offer { coding, ..self.offer }
    }
}

/// The rest of a chained codec, or of knobs, which is not used for a while after its second failure.
struct Rest {
    /// When it last failed.
    failed: Option<Instant>,
    /// The codec is not used before this.
    until: Instant,
    /// How long the next rest lasts.
    time: Duration,
}

impl Rest {
    const NONE: Self = Self { failed: None, until: Instant::ZERO, time: REST_TIME_MIN };

    fn failed(&mut self, now: Instant) {
        let before = self.failed.replace(now);
        if before.is_none_or(|before| now.saturating_since(before) > FAILS_AGAIN) {
            return;
        }
        self.until = now + self.time;
        self.time = (self.time * 2).min(REST_TIME_MAX);
    }

    fn worked(&mut self) {
        self.time = self.time.mul_f64(REST_TIME_KEPT).max(REST_TIME_MIN);
    }
}

/// The rungs that are available at present, and what is learned about them.
pub(crate) struct Forms {
    /// The rungs for the last candidate.
    rungs: Option<Rungs>,
    /// The rungs without the limit that the requested frame rate sets, if these are more. Some contract may
    /// accept a lower rate.
    wider: Option<Rungs>,
    /// The learned ratios of measured to predicted values.
    ratios: Ratios,
    /// Compares the sizes of frames with those of the profile.
    drift: Drift,
    /// The capture time of the last frame of a chain that a codec has encoded.
    chained: Option<Instant>,
    /// The rest of the video codec.
    video: Rest,
    /// The rest of the codec for changed tiles.
    tiles: Rest,
    /// The rest of the knobs of data records.
    knobs: Rest,
    /// The factor on the smallest budgets, above 1 after a frame exceeded its budget.
    lift: f64,
}

impl Forms {
    pub(crate) fn new() -> Self {
        let ratios = Ratios::default();
        Self {
            rungs: None,
            wider: None,
            ratios,
            drift: Drift::default(),
            chained: None,
            video: Rest::NONE,
            tiles: Rest::NONE,
            knobs: Rest::NONE,
            lift: 1.0,
        }
    }

    /// The rungs for the last candidate.
    pub(crate) fn rungs(&self) -> Option<&Rungs> {
        self.rungs.as_ref()
    }

    /// Forgets the rungs: the next candidate gets new ones.
    pub(crate) fn forget_rungs(&mut self) {
        (self.rungs, self.wider) = (None, None);
    }

    /// Finds the rungs for a frame, and what each costs if the policy's bytes in time are its budget.
    pub(crate) fn prepare<'a>(
        &'a mut self,
        policy: &dyn Policy,
        candidate: &Candidate<'_>,
        cap: Option<Cap>,
    ) -> Prepared<'a> {
        let (basis, profile, profile_use) = self.basis(candidate);
        let drift = self.drift.drift(candidate.now, (basis.profile, basis.pixels));
        let drift = drift.filter(|_| basis.profile.is_some());
        let rungs = renewed(&mut self.rungs, basis, profile, candidate.knobs);
        let prefers_finer = drift.is_some() && self.drift.wants_finer();
        let offer = Offer { prefers_finer, ..candidate.offer(rungs, cap) };
        let in_time =
            |on_time_share: f64| policy.bytes_in_time(&Offer { on_time_share, ..offer }, rungs.chain_time());
        let spendable = in_time(offer.on_time_share).zip(in_time(LIKELY));
        let spendable = spendable.map(|(in_time, likely)| Spendable { in_time, likely });
        let costs = rungs.costs(candidate.before, spendable, offer.accuracy_floor, self.lift);
        Prepared { rungs, costs, profile_use, drift, offer }
    }

    /// The rungs for a frame, or those for contracts with a frame rate of only `min_fps`, if these are more.
    pub(crate) fn widest(&mut self, candidate: &Candidate<'_>, min_fps: f64) -> &Rungs {
        let (basis, profile, _) = self.basis(candidate);
        let rungs = renewed(&mut self.rungs, basis, profile, candidate.knobs);
        let within = rungs.skip_within(skip_max(candidate.interval, min_fps));
        if within <= rungs.basis.skip_max {
            self.wider = None;
            return rungs;
        }
        renewed(&mut self.wider, Basis { skip_max: within, ..rungs.basis }, profile, candidate.knobs)
    }

    /// What the rungs for a frame depend on, the wanted profile if frames can be encoded by it, and the state
    /// of that profile.
    fn basis<'a>(&self, candidate: &Candidate<'a>) -> (Basis, Option<&'a SizedProfile>, ProfileUse) {
        let Candidate { now, joint, frame, interval, .. } = *candidate;
        let pixels = candidate.pixels();
        let takes = chains_take(pixels);
        let chains =
            Chains { video: takes && now >= self.video.until, tiles: takes && now >= self.tiles.until };
        let knobs = !candidate.is_plain && now >= self.knobs.until;
        let skip_max = skip_max(interval, joint.min_fps);
        let (profile, profile_use) = candidate.profile(chains, knobs, skip_max);
        let hash: Option<ProfileHash> = joint.profile.filter(|_| profile.is_some());
        // The interval is measured and varies. Intervals that allow the same skips give the same basis.
        let known = self.rungs.as_ref().filter(|rungs| rungs.basis.profile == hash);
        let basis = Basis {
            profile: hash,
            skip_max: known.map_or(skip_max, |rungs| rungs.skip_within(skip_max)),
            pixels,
            encoding: frame.meta.encoding,
            // The size of a frame of a source's chain says nothing about the next one.
            original_bytes: match frame.meta.encoding.is_chained() {
                true => 1.0,
                false => frame.payload.len().max(1) as f64,
            },
            chains,
            knobs,
            ratios: self.ratios,
        };
        (basis, profile, profile_use)
    }

    /// A frame was encoded: learns from its time and size. If the budget forced a coarser quality, corrects
    /// what is expected of the frame.
    pub(crate) fn made(
        &mut self,
        now: Instant,
        making: &mut EncodePlan,
        (rung, chain): (&Rung, &ChainLink),
        bytes: usize,
    ) {
        let learn = |ratio: &mut f64, gain: f64, measured: f64| {
            // In logarithms, so that half and double weigh the same. Clamped, so that one absurd frame does
            // not spoil the average.
            let error = (measured / *ratio).ln().clamp(-2.0, 2.0);
            *ratio = (*ratio * (gain * error).exp()).clamp(1e-3, 1e3);
        };
        let (asked, mut was) = (making.setting, making.ratios);
        let made: Setting = rung.as_str().parse().unwrap_or(asked);
        let alone = chain.reference == Reference::Independent;
        let is_anchor = making.anchor_bytes_max > 0 && matches!(chain.reference, Reference::Acknowledged(_));
        let was_ratio = *was.learned(&asked, alone);
        let ratio = self.ratios.learned(&asked, alone);
        let usual = making.usual_bytes;
        let expected = if asked.is_chained() && alone { usual.1 } else { usual.0 };
        if asked.is_chained() && alone && making.goes_on {
            // The codec had no frame to refer to. So the larger size of this frame says nothing about later
            // ones.
            making.expected_bytes =
                making.bytes_max.map_or(usual.1, |most| usual.1.min(f64::from(most))) as u32;
        }
        if is_anchor {
            // The size of an anchor says nothing about later frames either.
            making.expected_bytes = bytes.min(u32::MAX as usize) as u32;
        }
        if bytes > 0 && expected >= 1.0 && !is_anchor {
            let at_asked = bytes as f64 * coarsened(&asked, &made, alone);
            learn(
                ratio,
                if asked.is_chained() && alone { ALONE_GAIN } else { SIZE_GAIN },
                at_asked / expected * was_ratio,
            );
        }
        // A keyframe, and a frame that its budget made coarser, have sizes that the profile does not give.
        let going_on = asked.is_chained() && !alone && !is_anchor;
        let gap = self.chained.filter(|_| going_on).map(|before| making.captured.saturating_since(before));
        if asked.is_chained() {
            self.chained = Some(making.captured);
        }
        if let Some(profiled) = making.profiled.filter(|_| made == asked && (going_on || !asked.is_chained()))
        {
            let made = Made { bytes: bytes as f64, gap, differs: making.differs };
            self.drift.handle_made(now, made, &profiled);
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

    /// A frame could not be encoded.
    pub(crate) fn failed(&mut self, now: Instant, making: &EncodePlan) {
        if let Some(rest) = self.rest_of(&making.setting) {
            rest.failed(now);
        }
    }

    /// The rest of the codec that encodes a setting.
    fn rest_of(&mut self, setting: &Setting) -> Option<&mut Rest> {
        match setting.form {
            Form::H264(_) => Some(&mut self.video),
            Form::Tiles(_) => Some(&mut self.tiles),
            Form::Data(_) => Some(&mut self.knobs),
            _ => None,
        }
    }

    /// A frame exceeded its budget. Returns whether it would get a larger one if it were encoded again.
    pub(crate) fn too_large(&mut self, making: &EncodePlan) -> bool {
        let may_have_more = making.bytes_max.is_some() && self.lift < LIFT_MAX;
        if may_have_more {
            self.lift = (self.lift * 2.0).min(LIFT_MAX);
        }
        may_have_more
    }
}

/// The rungs on a basis: the known ones if they still apply, otherwise new ones.
fn renewed<'a>(
    known: &'a mut Option<Rungs>,
    basis: Basis,
    profile: Option<&SizedProfile>,
    knobs: Option<&DeclaredKnobs>,
) -> &'a Rungs {
    let rungs = known.take().filter(|rungs| rungs.basis.will_do_for(&basis));
    known.insert(rungs.unwrap_or_else(|| Rungs::new(basis, profile, knobs)))
}
