//! Decides which forms a frame can take: the rungs that there are for it, what each costs by what was measured, and which codecs rest
//! because they have failed.

use std::time::Duration;

use super::candidate::Candidate;
use super::making::Making;
use super::rungs::{Basis, Costs, Ratios, Rungs, chains_take, coarsened, skip_max};
use crate::controller::{Cap, Offer, Policy};
use crate::frame::{ChainLink, Reference, Rung};
use crate::profile::{Profile, ProfileHash};
use crate::setting::{Chains, Form, Setting};
use crate::units::Instant;
use crate::wire::ProfileUse;

/// The weight of a measurement of how long a frame takes to be made.
const TIME_GAIN: f64 = 0.1;
/// The weight of a frame's size in what is expected of the next ones.
const SIZE_GAIN: f64 = 0.2;
/// The same for frames of chains that stand alone, of which there are few.
const ALONE_GAIN: f64 = 0.5;
/// A codec of chains is not used for a while after a second failure within this time. The first costs its frame alone: a new beginning is
/// cheaper than stills.
const FAILS_AGAIN: Duration = Duration::from_secs(10);
/// How long a codec is not used after it has failed twice. Doubles with each failure after that.
const REST_TIME_MIN: Duration = Duration::from_secs(2);
/// The longest time for which a codec is not used.
const REST_TIME_MAX: Duration = Duration::from_secs(64);
/// Each frame that a codec makes multiplies the time of its next rest by this.
const REST_TIME_KEPT: f64 = 0.99;
/// Each frame of a chain that is made multiplies the lift of budgets by this, down to 1.
const LIFT_KEPT: f64 = 0.9;
/// The least budgets are multiplied by this at most.
const LIFT_MAX: f64 = 64.0;

/// A candidate beside the rungs that there are for it.
pub(crate) struct Prepared<'a> {
    pub(crate) rungs: &'a Rungs,
    /// What each of them costs with it.
    pub(crate) costs: Costs,
    /// What has become of the profile that is wanted.
    pub(crate) profile_use: ProfileUse,
    /// But for what a choice would change.
    offer: Offer<'a>,
}

impl Prepared<'_> {
    /// What is offered to the policy.
    pub(crate) fn offer(&self) -> Offer<'_> {
        let coding = self.rungs.need_coding().then(|| self.costs.coding(self.rungs));
        Offer { coding, ..self.offer }
    }
}

/// A codec of chains, which is left alone for a while after it has failed twice.
struct Rest {
    /// When it last failed.
    failed: Option<Instant>,
    /// It is not used before.
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

/// The forms that frames can take at present.
pub(crate) struct Forms {
    /// The rungs that there were for the last candidate.
    rungs: Option<Rungs>,
    /// Those that there would be but for the frame rate that is asked for, where they are more: some contract may do without.
    wider: Option<Rungs>,
    /// What was measured against what the rungs say.
    ratios: Ratios,
    /// The rest of the codec of video.
    video: Rest,
    /// The rest of the codec of changed tiles.
    tiles: Rest,
    /// What the least budgets are multiplied with, because a frame did not come down to one.
    lift: f64,
}

impl Forms {
    pub(crate) fn new() -> Self {
        let ratios = Ratios::default();
        Self { rungs: None, wider: None, ratios, video: Rest::NONE, tiles: Rest::NONE, lift: 1.0 }
    }

    /// The rungs that there were for the last candidate.
    pub(crate) fn rungs(&self) -> Option<&Rungs> {
        self.rungs.as_ref()
    }

    /// The rungs have to be chosen anew.
    pub(crate) fn forget_rungs(&mut self) {
        (self.rungs, self.wider) = (None, None);
    }

    /// Looks which rungs there are for a frame, and what each costs where as many bytes are there in time as the policy says.
    pub(crate) fn prepare<'a>(
        &'a mut self,
        policy: &dyn Policy,
        candidate: &Candidate<'_>,
        cap: Option<Cap>,
    ) -> Prepared<'a> {
        let (basis, profile, profile_use) = self.basis(candidate);
        let rungs = renewed(&mut self.rungs, basis, profile);
        let offer = candidate.offer(rungs, cap);
        let in_time = policy.bytes_in_time(&offer, rungs.chain_time());
        let costs = rungs.costs(candidate.before, in_time, self.lift);
        Prepared { rungs, costs, profile_use, offer }
    }

    /// The rungs that there are for a frame, or would be for contracts that do with so many frames a second, where those are more.
    pub(crate) fn widest(&mut self, candidate: &Candidate<'_>, min_fps: f64) -> &Rungs {
        let (basis, profile, _) = self.basis(candidate);
        let rungs = renewed(&mut self.rungs, basis, profile);
        let within = rungs.skip_within(skip_max(candidate.interval, min_fps));
        if within <= rungs.basis.skip_max {
            self.wider = None;
            return rungs;
        }
        renewed(&mut self.wider, Basis { skip_max: within, ..rungs.basis }, profile)
    }

    /// What the rungs for a frame depend on; the profile that is wanted, if frames can be made by it, and what has become of it.
    fn basis<'a>(&self, candidate: &Candidate<'a>) -> (Basis, Option<&'a Profile>, ProfileUse) {
        let Candidate { now, wish, frame, interval, .. } = *candidate;
        let pixels = candidate.pixels();
        let takes = chains_take(pixels);
        let chains =
            Chains { video: takes && now >= self.video.until, tiles: takes && now >= self.tiles.until };
        let skip_max = skip_max(interval, wish.min_fps);
        let (profile, profile_use) = candidate.profile(chains, skip_max);
        let hash: Option<ProfileHash> = wish.profile.filter(|_| profile.is_some());
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
        (basis, profile, profile_use)
    }

    /// A frame was made. What it took, and how large it became, is remembered; and what is expected of it is set right, where a budget
    /// forced less than was asked for.
    pub(crate) fn made(
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
        if asked.is_chained() && alone && making.goes_on {
            // The codec had nothing that it could go on after: that this frame is larger says nothing of those to come.
            making.expected_bytes =
                making.bytes_max.map_or(usual.1, |most| usual.1.min(f64::from(most))) as u32;
        }
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
    pub(crate) fn failed(&mut self, now: Instant, making: &Making) {
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
    pub(crate) fn too_large(&mut self, making: &Making) -> bool {
        let may_have_more = making.bytes_max.is_some() && self.lift < LIFT_MAX;
        if may_have_more {
            self.lift = (self.lift * 2.0).min(LIFT_MAX);
        }
        may_have_more
    }
}

/// Rungs on a basis: those that are known, if they will do for it, or else new ones.
fn renewed<'a>(known: &'a mut Option<Rungs>, basis: Basis, profile: Option<&Profile>) -> &'a Rungs {
    let rungs = known.take().filter(|rungs| rungs.basis.will_do_for(&basis));
    known.insert(rungs.unwrap_or_else(|| Rungs::new(basis, profile)))
}
