//! Records what an application got. The last frame of each camera is kept at hand, because rules look at it after every event.

use std::collections::BTreeMap;
use std::time::Duration;

use mez_core::contract::watch::FrameVerdict;
use mez_core::frame::{Encoding, FrameId, Rung, SkipCounts};
use mez_core::name::CameraName;
use mez_core::subscription::NotHeld;
use mez_core::units::Timestamp;

use crate::time::Moment;

/// A frame that an application got.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// When the application got the frame.
    pub at: Moment,
    /// The camera.
    pub camera: CameraName,
    /// The frame.
    pub frame: FrameId,
    /// The capture time of the frame.
    pub captured: Timestamp,
    /// When the frame was published.
    pub published: Moment,
    /// The frames skipped before this one.
    pub skipped: SkipCounts,
    /// What was requested before this frame and is not held.
    pub not_held: Option<NotHeld>,
    /// How many subscriptions the application had before this one.
    pub subscription: u64,
    /// The verdict of the contract watch, if the reading is live.
    pub verdict: Option<FrameVerdict>,
    /// The rung at which the frame was encoded.
    pub rung: Rung,
    /// The encoding in which it came.
    pub encoding: Encoding,
}

impl Delivered {
    /// The time from publishing until the application had the frame.
    pub fn age(&self) -> Duration {
        self.at.since(self.published)
    }
}

/// All frames that an application got, in order.
#[derive(Default)]
pub(in crate::world) struct Deliveries {
    all: Vec<Delivered>,
    last: BTreeMap<CameraName, Last>,
}

/// The last frame of a camera that an application got.
#[derive(Clone, Copy)]
struct Last {
    at: Moment,
    subscription: u64,
    /// The newest frame that this subscription got, with and without the last one.
    newest: FrameId,
    before: Option<FrameId>,
}

impl Deliveries {
    pub(in crate::world) fn all(&self) -> &[Delivered] {
        &self.all
    }

    pub(super) fn push(&mut self, got: Delivered) {
        let of_it = self.last.get(&got.camera).filter(|last| last.subscription == got.subscription);
        let before = of_it.map(|last| last.newest);
        let newest = before.map_or(got.frame, |before| before.max(got.frame));
        let last = Last { at: got.at, subscription: got.subscription, newest, before };
        match self.last.get_mut(&got.camera) {
            Some(known) => *known = last,
            None => drop(self.last.insert(got.camera.clone(), last)),
        }
        self.all.push(got);
    }

    /// The last frame of any camera, and the newest frame of the same camera that the same subscription got before.
    pub(in crate::world) fn last(&self) -> Option<(&Delivered, Option<FrameId>)> {
        let got = self.all.last()?;
        Some((got, self.last.get(&got.camera).and_then(|last| last.before)))
    }

    /// When the last frame of a camera came.
    pub(in crate::world) fn last_at(&self, camera: &CameraName) -> Option<Moment> {
        self.last.get(camera).map(|last| last.at)
    }

    /// The newest frame of a camera that this subscription got.
    pub(in crate::world) fn newest(&self, camera: &CameraName, subscription: u64) -> Option<FrameId> {
        self.last.get(camera).filter(|last| last.subscription == subscription).map(|last| last.newest)
    }
}
