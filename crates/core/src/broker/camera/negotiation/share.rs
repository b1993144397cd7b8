//! Decides how much the camera uses of a shared channel, and what it tells the edge about its rungs.
//!
//! Only the camera knows what its rungs cost: how large its frames are now, which codecs work, and which
//! profile fits. So it tells the edge ([`ShareRequest`]). The edge divides the channel and answers with the bytes
//! that a frame may have ([`Share`]). Such a cap only lowers what the camera would choose without it. It
//! expires soon, by the camera's own clock, and applies to no other connection.
//!
//! Frames that go unchanged cannot be made smaller. Under a cap, some of them are skipped instead.

use std::time::Duration;

use super::contracts::ServedContracts;
use crate::broker::camera::adapt::{Adapter, BOUND_DEFAULT};
use crate::broker::camera::connection::EdgeLink;
use crate::broker::camera::types::CameraOutput;
use crate::controller::share::Step;
use crate::controller::{Cap, EXPIRED_CAP_SHARE};
use crate::units::Instant;
use crate::wire::{Message, Share, ShareRequest};

/// The shortest time between two claims. The edge computes shares as often, ten times a second.
const CLAIM_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The longest time between two claims.
const CLAIM_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// A claim is sent early only if a size or an interval has changed by more than this factor.
const TOLERANCE: f64 = 1.1;
/// However small the share is, an unchanged frame is sent at least this often.
const AS_IT_IS_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// The rungs that a camera of unchanged frames claims: one in this many frames is sent.
const ONE_IN: [u32; 5] = [16, 8, 4, 2, 1];
/// The assumed accuracy of sending one frame in n is n to this power. It only orders the rungs.
const ONE_IN_EXPONENT: f64 = -0.25;
/// A cap above this share of a frame's bytes lets every frame pass, because sizes vary.
const WHOLE_SHARE: f64 = 0.8;

/// What the edge said about the channel, and what it was told.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Whether the edge shares a channel between this camera and others.
    is_member: bool,
    cap: Option<Cap>,
    /// Until when the channel has no room for this camera.
    shed_until: Option<Instant>,
    /// Bytes of the newest published frame.
    frame_bytes: usize,
    told: Option<(Instant, ShareRequest)>,
    /// How many unchanged frames may still be sent now; it may be a fraction.
    credit: f64,
    /// When the last unchanged frame was sent.
    passed: Option<Instant>,
}

/// The present state of the frames, from which a claim is made.
#[derive(Clone, Copy)]
pub(crate) struct Frames<'a> {
    pub(crate) link: &'a EdgeLink,
    /// Published frames per second.
    pub(crate) rate: f64,
    pub(crate) contracts: &'a ServedContracts,
    pub(crate) adapter: &'a Adapter,
}

impl Sharing {
    /// When the channel may have room again, if it has none.
    fn shed_until(&self, now: Instant) -> Option<Instant> {
        self.shed_until.filter(|until| now < *until)
    }

    /// The cap on frames, and until when the channel has no room for any frame that keeps the floor.
    pub(crate) fn limits(&self) -> (Option<Cap>, Option<Instant>) {
        (self.cap, self.shed_until)
    }

    /// Whether the camera skips frames, or sends them rarely, because of its share of the channel.
    pub(crate) fn holds_back(&self, now: Instant, as_it_is: bool) -> bool {
        self.shed_until(now).is_some() || as_it_is && self.part(now, self.frame_bytes) < 1.0
    }

    /// The edge sends the camera its share of a channel.
    pub(crate) fn handle_share(&mut self, now: Instant, share: Share) {
        self.is_member = true;
        (self.cap, self.shed_until) = match share {
            Share::Free => (None, None),
            Share::Cap { frame_bytes_max, lifetime } => {
                let cap = Cap { frame_bytes_max: f64::from(frame_bytes_max), until: now + lifetime };
                (Some(cap), None)
            }
            // After it expires, the camera may use as much as after an expired cap.
            Share::Shed { lifetime } => {
                let until = now + lifetime;
                (Some(Cap { frame_bytes_max: 0.0, until }), Some(until))
            }
        };
    }

    /// The connection has changed: forgets the share.
    pub(crate) fn forget(&mut self) {
        *self = Self { frame_bytes: self.frame_bytes, ..Self::default() };
    }

    /// Whether a frame that was just published is skipped, because frames go unchanged and the share has no
    /// room for all of them.
    pub(crate) fn leaves_out(&mut self, now: Instant, bytes: usize, as_it_is: bool) -> bool {
        self.frame_bytes = bytes;
        self.cap.is_some() && as_it_is && !self.lets_pass(now, bytes)
    }

    /// What the edge was told last.
    #[cfg(test)]
    pub(crate) fn told(&self) -> Option<ShareRequest> {
        self.told.as_ref().map(|(_, claim)| claim.clone())
    }

    /// Sends the edge a claim, if something has changed or the last one is old.
    pub(crate) fn tell(&mut self, now: Instant, frames: Frames<'_>) -> Option<CameraOutput> {
        let told = self.told.as_ref().map(|(at, _)| now.saturating_since(*at));
        if !self.is_member || told.is_some_and(|since| since < CLAIM_INTERVAL_MIN) {
            return None;
        }
        let claim = self.claim(frames)?;
        let is_news = self.told.as_ref().is_none_or(|(_, before)| !is_like(before, &claim));
        if !is_news && told.is_none_or(|since| since < CLAIM_INTERVAL_MAX) {
            return None;
        }
        // The edge uses the floor as an index into the steps.
        debug_assert!(
            claim.steps.is_empty() || claim.floor < claim.steps.len(),
            "the floor of a claim is rung {} of {}",
            claim.floor,
            claim.steps.len()
        );
        let message = Message::ShareRequest(claim.clone());
        self.told = Some((now, claim));
        Some(CameraOutput::Send { link: frames.link.id, message })
    }

    /// The present claim; `None` before the first frame was considered.
    fn claim(&self, frames: Frames<'_>) -> Option<ShareRequest> {
        let Frames { link, rate, contracts, adapter } = frames;
        if rate <= 0.0 || link.demand.contracts.is_empty() {
            return Some(ShareRequest::default());
        }
        let interval = Duration::from_secs_f64(1.0 / rate);
        if let Some(joint) = contracts.joint(link) {
            let (floor, steps) = adapter.steps()?;
            let latency_bound = joint.latency_bound.unwrap_or(BOUND_DEFAULT);
            return Some(ShareRequest::new(interval, latency_bound, floor, steps));
        }
        let bounds = link.demand.contracts.iter().filter_map(|contract| contract.latency_bound);
        let latency_bound = bounds.min().unwrap_or(BOUND_DEFAULT);
        let often = |one_in: &&u32| **one_in == 1 || interval * **one_in <= AS_IT_IS_INTERVAL_MAX;
        let bytes = self.frame_bytes.max(1) as f64;
        let steps = ONE_IN.iter().filter(often).map(|one_in| {
            let one_in = f64::from(*one_in);
            Step { bytes: bytes / one_in, accuracy: one_in.powf(ONE_IN_EXPONENT) }
        });
        Some(ShareRequest::new(interval, latency_bound, 0, steps.collect()))
    }

    /// The share of frames of this size that may go unchanged.
    fn part(&self, now: Instant, bytes: usize) -> f64 {
        let part = match self.cap {
            _ if self.shed_until(now).is_some() => 0.0,
            None => 1.0,
            Some(cap) if now < cap.until => cap.frame_bytes_max / bytes.max(1) as f64,
            Some(_) => EXPIRED_CAP_SHARE,
        };
        if part >= WHOLE_SHARE { 1.0 } else { part }
    }

    /// Whether a frame of this size, which is to go unchanged, is sent.
    fn lets_pass(&mut self, now: Instant, bytes: usize) -> bool {
        let part = self.part(now, bytes);
        self.credit = (self.credit + part).min(2.0);
        let is_long_ago =
            self.passed.is_none_or(|passed| now.saturating_since(passed) >= AS_IT_IS_INTERVAL_MAX);
        let passes = part >= 1.0 || self.credit >= 1.0 || is_long_ago;
        if passes {
            self.credit = (self.credit - 1.0).max(0.0);
            self.passed = Some(now);
        }
        // At most two frames are saved up, and none is spent that is not there.
        debug_assert!((0.0..=2.0).contains(&self.credit), "a credit of {}", self.credit);
        passes
    }
}

/// Whether two claims are nearly the same.
fn is_like(one: &ShareRequest, other: &ShareRequest) -> bool {
    let near = |one: f64, other: f64| (1.0 / TOLERANCE..=TOLERANCE).contains(&(one / other.max(1e-9)));
    one.floor == other.floor
        && one.latency_bound == other.latency_bound
        && one.steps.len() == other.steps.len()
        && (one.steps.is_empty() || near(one.interval.as_secs_f64(), other.interval.as_secs_f64()))
        && one.steps.iter().zip(&other.steps).all(|(one, other)| near(one.bytes, other.bytes))
}
