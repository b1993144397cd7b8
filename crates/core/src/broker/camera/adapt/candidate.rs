//! Builds what the policy is offered for a frame: the contracts, the profile, and what is known of the link.

use std::time::Duration;

use super::basis::{makeable, may_be};
use super::profiles::Profiles;
use super::rungs::{Before, Rungs};
use crate::contract::Joint;
use crate::controller::{Cap, Offer};
use crate::frame::Frame;
use crate::profile::{RungProfile, SizedProfile};
use crate::setting::{Chains, DeclaredKnobs};
use crate::units::Instant;
use crate::wire::ProfileUse;

/// The latency bound if no contract gives one. Frames are then wanted as soon as possible, and after a second
/// they are of little use.
pub(crate) const BOUND_DEFAULT: Duration = Duration::from_secs(1);

/// A frame as its source coded it, with the unsent frames that it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// The bytes of all these frames.
    pub(crate) bytes: u64,
    /// When the first of these frames was captured. It goes first.
    pub(crate) captured: Instant,
    /// The bytes of the first frame.
    pub(crate) first_bytes: u32,
    /// Whether the first frame is a keyframe, with which the chain begins.
    pub(crate) begins: bool,
    /// The mean bytes of the source's frames.
    pub(crate) mean_bytes: f64,
    /// Whether the chain rests, because the link had no room for it a short time ago.
    pub(crate) rests: bool,
    /// Whether frames can be encoded at rungs instead: lately, the codec encoded most of the frames that it was given.
    pub(crate) has_alternative: bool,
}

/// A frame that may be sent next, and the circumstances of the decision.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) now: Instant,
    pub(crate) joint: &'a Joint,
    pub(crate) profiles: &'a Profiles,
    pub(crate) frame: &'a Frame,
    /// The frame that it can refer to; `None`: it must be a keyframe.
    pub(crate) before: Option<Before<'a>>,
    /// Set if it may go as its source coded it. `None`: it is a still, or needs frames that the edge does not get.
    pub(crate) own: Option<Own>,
    /// The knobs of the stream's data records, if it declares any.
    pub(crate) knobs: Option<&'a DeclaredKnobs>,
    /// Whether it is a data record whose knobs have failed: it goes as it was published, or not at all.
    pub(crate) is_plain: bool,
    /// When the frame was captured.
    pub(crate) captured: Instant,
    /// The usual time between frames.
    pub(crate) interval: Duration,
    /// Unsent bytes of the frame that is being sent before it. They are never sent if that frame is cancelled.
    pub(crate) unsent_bytes: u64,
    /// The congestion window in bytes, while the link's path was never full.
    pub(crate) window: Option<u64>,
}

impl<'a> Candidate<'a> {
    /// What is offered to the policy, except for what its choice would change.
    pub(crate) fn offer<'r>(&self, rungs: &'r Rungs, cap: Option<Cap>) -> Offer<'r> {
        Offer {
            now: self.now,
            captured: self.captured,
            interval: self.interval,
            ladder: &rungs.ladder,
            latency_bound: self.joint.latency_bound.unwrap_or(BOUND_DEFAULT),
            result_latency_bound: None,
            accuracy_floor: rungs.basis.profile.is_some().then_some(self.joint.accuracy_floor),
            on_time_share: self.joint.on_time_share,
            degrade: self.joint.degrade,
            cap,
            unsent_bytes: self.unsent_bytes,
            window: self.window,
            coding: None,
            prefers_finer: false,
        }
    }

    /// The wanted profile, if frames of this size can be encoded by it, and its state.
    pub(super) fn profile(
        &self,
        chains: Chains,
        with_knobs: bool,
        skip_max: u8,
    ) -> (Option<&'a SizedProfile>, ProfileUse) {
        let encoding = self.frame.meta.encoding;
        // A profile says nothing about data records without knobs, which go as they are.
        let wanted = self.joint.profile.filter(|_| encoding.is_picture() || self.knobs.is_some());
        let Some(hash) = wanted else { return (None, ProfileUse::None) };
        let pixels = self.pixels();
        let makes = |rung: &RungProfile| {
            makeable(&rung.rung, pixels, chains)
                .filter(|setting| with_knobs || !setting.is_of_data())
                .is_some_and(|setting| setting.skip <= skip_max && may_be(encoding, self.knobs, &setting))
        };
        match self.profiles.get(hash) {
            None => (None, self.profiles.absent(hash)),
            Some(known) if known.size != pixels => (None, ProfileUse::OtherSize),
            Some(known) if !known.profile.rungs().iter().any(makes) => (None, ProfileUse::NoRung),
            Some(known) => (Some(known), ProfileUse::InUse),
        }
    }

    pub(super) fn pixels(&self) -> (u32, u32) {
        (self.frame.meta.width, self.frame.meta.height)
    }
}
