//! Compares what applications are told about their contracts with what they got.

use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::ContractState;
use mez_core::contract::watch::FrameVerdict;
use mez_core::frame::{FrameId, Rung};
use mez_core::name::CameraName;

use super::Checks;
use super::known::{Kept, Taken, WINDOW_MAX, WINDOW_MIN};
use crate::time::{Moment, ms};

/// Stamps are whole nanoseconds, and a frame is stamped a moment after it is published.
const ROUNDING: Duration = Duration::from_micros(2);
/// Guarantee I6: an application that gets no frame in time is told so within a second. The contract watch checks every 250 ms, and frames that are
/// late by then are still in flight.
const TOLD_MAX: Duration = ms(1_500);

impl Checks {
    /// Begins to watch a contract.
    pub(crate) fn contracted(&mut self, id: SubscriptionId, kept: Kept) {
        self.contracts.insert(id, kept);
    }

    /// Ends the watch of a contract.
    pub(crate) fn released(&mut self, id: SubscriptionId) {
        self.contracts.remove(&id);
    }

    /// Checks a delivered frame and its verdict. `age` is the frame's true age, `error` the largest error of the edge's age, if it knows the age.
    pub(crate) fn judged(
        &mut self,
        id: SubscriptionId,
        camera: &CameraName,
        frame: FrameId,
        rung: &Rung,
        (age, error): (Duration, Option<Duration>),
        verdict: &FrameVerdict,
    ) {
        let now = self.now;
        let Some(kept) = self.contracts.get_mut(&id) else { return };
        let (floor, bound) = (kept.contract.accuracy_floor, kept.contract.latency_bound);
        let accuracy =
            kept.profile.as_ref().and_then(|known| known.profile.get(rung)).map(|rung| rung.accuracy);
        let below = accuracy.zip(floor).is_some_and(|(accuracy, floor)| accuracy < floor);
        // Before the clocks are compared, the edge does not know the age.
        let late = bound.zip(error).is_some_and(|(bound, error)| age > bound + error + ROUNDING);
        let recent = kept.frames.entry(camera.clone()).or_default();
        recent.push_back((now, late));
        while recent.front().is_some_and(|(at, _)| now.since(*at) >= WINDOW_MAX) {
            recent.pop_front();
        }
        let frames = recent.len();
        let lates = recent.iter().filter(|(at, late)| *late && now.since(*at) < WINDOW_MIN).count();
        if !late && !below {
            kept.unkept_since = now;
        }
        kept.states.insert(camera.clone(), verdict.state);
        let misses = kept.misses_floor(camera, now);
        let (taken, taken_late) = kept.takes_late(camera, now);
        let in_hand_late = is_too_late(taken_late, taken, kept);
        self.expect(!in_hand_late || verdict.state != ContractState::Ok, "contract", || {
            format!("{taken_late} of {taken} frames were taken late, and {frame} says that all is well: {verdict:?}")
        });
        let Some(kept) = self.contracts.get_mut(&id) else { return };
        let too_late = is_too_late(lates, frames, kept);
        self.expect(!below || verdict.infeasible, "floor", || {
            format!("{frame} lies below the floor {floor:?} and is not marked: {verdict:?}")
        });
        self.expect(!too_late || verdict.state != ContractState::Ok, "contract", || {
            format!("{lates} of {frames} frames were late, and {frame} says that all is well: {verdict:?}")
        });
        self.expect(!misses || verdict.state != ContractState::Ok, "contract", || {
            format!("the accuracy that was measured is below the floor {floor:?}, and {frame} says that all is well: {verdict:?}")
        });
    }

    /// Checks a change that an application was told about its contract on a camera.
    pub(crate) fn told(&mut self, id: SubscriptionId, camera: &CameraName, state: ContractState) {
        let now = self.now;
        let Some(kept) = self.contracts.get_mut(&id) else { return };
        kept.states.insert(camera.clone(), state);
        let misses = kept.misses_floor(camera, now);
        self.expect(!misses || state != ContractState::Ok, "contract", || {
            format!("{id:?} measured less than its floor on {camera}, and is told that all is well")
        });
    }

    /// Notes that an application took a frame, which was handed over at `handed`. `age` is the frame's age when taken, by the edge's clock.
    pub(crate) fn took_in_hand(
        &mut self,
        id: SubscriptionId,
        camera: &CameraName,
        handed: Moment,
        age: Duration,
    ) {
        let now = self.now;
        let Some(kept) = self.contracts.get_mut(&id).filter(|kept| handed > kept.since) else { return };
        let late = kept.contract.latency_bound.is_some_and(|bound| age > bound + ROUNDING);
        kept.taken.entry(camera.clone()).or_default().push_back(Taken { handed, taken: now, late });
    }

    /// Notes an accuracy that an application measured on a camera's frames.
    pub(crate) fn measured(&mut self, id: SubscriptionId, camera: &CameraName, accuracy: f64) {
        let now = self.now;
        if let Some(kept) = self.contracts.get_mut(&id) {
            kept.measured.entry(camera.clone()).or_default().push_back((now, accuracy));
        }
    }

    /// The state that an application was last told for a camera.
    pub(crate) fn told_state(&self, id: SubscriptionId, camera: &CameraName) -> Option<ContractState> {
        self.contracts.get(&id)?.states.get(camera).copied()
    }

    /// Checks that an application is not told that its contract is kept while no frame comes in time. Frames should come since `since`.
    pub(crate) fn watch_contract(&mut self, id: SubscriptionId, camera: &CameraName, since: Moment) {
        let now = self.now;
        let Some(kept) = self.contracts.get(&id) else { return };
        let (unkept, state, bounded) =
            (kept.unkept_since.max(since), kept.states.get(camera), kept.contract.latency_bound.is_some());
        let silent = bounded && now.since(unkept) > TOLD_MAX;
        self.expect(!silent || state != Some(&ContractState::Ok), "contract", || {
            format!("{id:?} has had no frame in time since {unkept}, and thinks that all is well")
        });
    }
}

/// Whether fewer frames are on time than a contract asks for. The formula gives exactly nine tenths for nine of ten, despite rounding.
fn is_too_late(late: usize, of: usize, kept: &Kept) -> bool {
    let on_time = of.saturating_sub(late) as f64;
    on_time < kept.contract.on_time_share * of as f64
}
