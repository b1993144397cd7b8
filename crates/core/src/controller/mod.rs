//! Chooses the rung of each frame. Each way to choose is a [`Policy`].
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`quantile`] | Mez's own policy: the best rung that arrives in time with the required probability |
//! | [`baselines`] | published policies, for comparison |
//! | [`named`] | the registry of policies by the names that users give |
//! | [`flight`] | frames on their way; any policy may build on it |
//! | [`share`] | how cameras share a channel, decided at the edge |
//!
//! A policy is driven like a broker, without input or output. The owner of the link calls
//! 1. [`Policy::handle_sent`] when a frame is given to the link,
//! 2. [`Policy::handle_left`] when its last byte has left the camera,
//! 3. [`Policy::handle_arrival`] when the receiver reports bytes of the frame,
//! 4. [`Policy::handle_reset`] when the frame is given up because nothing gets through,
//! 5. [`Policy::handle_cancelled`] when the frame is cancelled for a newer one,
//!
//! and [`Policy::decide`] whenever the link is free and a frame waits. All instants are of the camera's
//! clock. The receiver's instants are converted first ([`crate::clock::ClockEstimate::to_ours`]). A constant
//! error of that conversion does no harm, because policies subtract the smallest delay that they have seen.

pub mod baselines;
pub mod flight;
pub mod named;
pub mod quantile;
pub mod share;

use std::time::Duration;

use crate::frame::FrameId;
use crate::profile::{ByteSizes, Ladder};
use crate::units::{BitsPerSecond, Instant};

pub use self::quantile::Calibration;

/// The interval between frames that test whether a link that is out is back.
pub const OUTAGE_INTERVAL: Duration = Duration::from_millis(100);

/// A frame that was given to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentFrame {
    /// Which frame.
    pub frame: FrameId,
    /// The index of its rung in the ladder.
    pub rung: usize,
    /// The mean size at this rung by the profile, rounded. For a keyframe, the mean size of keyframes.
    pub expected_bytes: u32,
    /// The actual size of this frame.
    pub bytes: u32,
    /// When it was captured.
    pub captured: Instant,
    /// When it was given to the link.
    pub sent: Instant,
    /// The latest arrival time at which the frame is on time.
    pub due: Instant,
    /// The most bytes that could be on their way when the frame was sent, if its path was never full ([`Offer::window`]).
    pub window: Option<u64>,
    /// The frame's bytes in its first packet. `None`: the transport cannot tell.
    pub first_packet_bytes: Option<u32>,
    /// Whether the frame is part of its source's own video and is sent as the source coded it. Such a frame
    /// has no rung: `rung` is the best rung, and the frame's size says nothing about the sizes of rungs.
    pub of_source: bool,
    /// Whether the frame was sent although no rung is expected to keep the contract.
    pub infeasible: bool,
}

/// A frame of a source's own video that could be sent as the source coded it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceFrame {
    /// Its bytes, with those of unsent frames that it needs.
    pub bytes: f64,
    /// The mean size of the source's frames.
    pub mean_bytes: f64,
}

/// The receiver's report of a frame that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Which frame.
    pub frame: FrameId,
    /// The frame's bytes that have arrived.
    pub bytes: u32,
    /// When the frame's first byte arrived.
    pub first: Instant,
    /// When the last of `bytes` arrived.
    pub last: Instant,
    /// Whether the whole frame has arrived.
    pub complete: bool,
}

/// A temporary limit on what a camera may send. The edge sets it, because the edge sees all cameras of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cap {
    /// The largest allowed [`Offer::bytes_needed`] of the camera's rung.
    pub frame_bytes_max: f64,
    /// When the cap expires.
    pub until: Instant,
}

/// The share of a camera's own choice that it may use once its cap has expired. The channel is still shared, but the edge no longer says how.
pub const EXPIRED_CAP_SHARE: f64 = 0.7;

/// A frame that waits for a decision, and the terms of its contract.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The current time.
    pub now: Instant,
    /// When the frame was captured.
    pub captured: Instant,
    /// The time between published frames.
    pub interval: Duration,
    /// The rungs to choose from.
    pub ladder: &'a Ladder,
    /// The longest allowed time from capture to the application.
    pub latency_bound: Duration,
    /// The longest allowed time from capture to the detector's result. It counts only for rungs with a detector time in the profile.
    pub result_latency_bound: Option<Duration>,
    /// The lowest accuracy that is accepted. `None`: any.
    pub accuracy_floor: Option<f64>,
    /// The share of frames that must be on time, in 0..=1.
    pub on_time_share: f64,
    /// Whether a frame that cannot keep the bounds is wanted nevertheless
    /// ([`OnInfeasible::Degrade`](crate::contract::OnInfeasible::Degrade)).
    pub degrade: bool,
    /// The last cap that the edge has sent, if it ever sent one.
    pub cap: Option<Cap>,
    /// The previous frame's bytes that have not left the camera. If [`Policy::gives_up`]
    /// cancels that frame, these bytes never leave. 0 while the link is free.
    pub unsent_bytes: u64,
    /// The most bytes that may be on their way at once while the path of a new connection was never full. This
    /// window doubles with every round trip in which nothing else limits. `None`: no such limit is known.
    pub window: Option<u64>,
    /// The cost of changing the rung where frames refer to each other. `None`: every frame stands alone.
    pub coding: Option<Coding<'a>>,
    /// Whether the profile's accuracies no longer hold, because frames have drifted from the profile. If so, the
    /// finest rung that is on time often enough is wanted. A policy that does not know this flag chooses as usual.
    pub prefers_finer: bool,
}

/// The properties of rungs whose frames refer to earlier frames, or that leave frames out.
#[derive(Clone, Copy, Debug)]
pub struct Coding<'a> {
    /// The rung at which the next frame can refer to the last one. At any other rung it must stand alone.
    /// `None`: it must stand alone at every rung.
    pub continues: Option<usize>,
    /// The number of frames that this rung left out since the frame to which the next one would refer. The next frame carries what changed meanwhile.
    pub left_out: u32,
    /// The sizes of keyframes, by index in the ladder.
    pub alone: &'a [ByteSizes],
    /// One in this many captured frames is sent, by index in the ladder. At least 1.
    pub every: &'a [u32],
    /// Whether a frame that refers to others can be made larger than its rung says
    /// ([`Choice::stretch_bytes`]).
    pub stretches: bool,
    /// Whether a frame can refer to the last one at another rung, by index in the ladder. It can if the rungs
    /// differ only in their quantiser. Empty: only at `continues`.
    pub goes_on: &'a [bool],
}

impl Offer<'_> {
    /// The frame's age.
    pub fn age(&self) -> Duration {
        self.now.saturating_since(self.captured)
    }

    /// The sizes that the profile predicts for this frame at a rung.
    pub fn bytes(&self, rung: usize) -> ByteSizes {
        let sizes = self.ladder.rungs()[rung].bytes;
        match self.coding {
            Some(coding) if coding.continues != Some(rung) => coding.alone[rung],
            Some(coding) if coding.left_out > 0 => {
                // It needs at most as many bytes as a new keyframe.
                let times = 1.0 + f64::from(coding.left_out);
                let times = times.min((coding.alone[rung].mean / sizes.mean).max(1.0));
                sizes.times(times)
            }
            _ => sizes,
        }
    }

    /// The time between frames that are sent at a rung.
    pub fn interval_at(&self, rung: usize) -> Duration {
        self.interval * self.coding.map_or(1, |coding| coding.every[rung].max(1))
    }

    /// The index of the cheapest rung that keeps the floor, and `true`. If no rung keeps it, the index of the
    /// best rung, and `false`.
    pub fn floor_rung(&self) -> (usize, bool) {
        match self.ladder.lowest_at(self.accuracy_floor) {
            Some(place) => (place, true),
            None => (self.ladder.len() - 1, false),
        }
    }

    /// The mean bytes that must pass in each interval between published frames. If the rung sends every frame,
    /// that is the mean size. If it leaves frames out, a frame may take until the next one that is sent, but no
    /// longer than the latency bound.
    pub fn bytes_needed(&self, rung: usize) -> f64 {
        let every = self.coding.map_or(1, |coding| coding.every[rung]);
        bytes_needed(self.ladder.rungs()[rung].bytes.mean, every, self.interval, self.latency_bound)
    }

    /// Whether the cap allows a rung. An expired cap allows every rung.
    pub fn allows(&self, rung: usize) -> bool {
        let live = self.cap.filter(|cap| self.now < cap.until);
        live.is_none_or(|cap| self.bytes_needed(rung) <= cap.frame_bytes_max)
    }

    /// The index of the highest rung that the cap allows, given the choice without a cap. Never below
    /// `floor`.
    pub fn capped(&self, chosen: usize, floor: usize) -> usize {
        let Some(cap) = self.cap else { return chosen };
        let bytes_max = if self.now < cap.until {
            cap.frame_bytes_max
        } else {
            self.bytes_needed(chosen) * EXPIRED_CAP_SHARE
        };
        // With frame skip, a better rung may need less than a lower one.
        let within = |rung: &usize| self.bytes_needed(*rung) <= bytes_max;
        (0..=chosen).rev().find(within).unwrap_or(0).max(floor)
    }
}

/// Computes [`Offer::bytes_needed`] for frames of `mean` bytes of which one in `every` published frames is
/// sent.
pub(crate) fn bytes_needed(mean: f64, every: u32, interval: Duration, bound: Duration) -> f64 {
    if every <= 1 {
        return mean;
    }
    let within_bound = mean * interval.as_secs_f64() / bound.as_secs_f64().max(1e-3);
    (mean / f64::from(every)).max(within_bound).min(mean)
}

/// A rung for a frame, and its prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The index of the rung in the ladder.
    pub rung: usize,
    /// The predicted probability that the frame is on time. `None`: the policy does not predict.
    pub on_time_probability: Option<f64>,
    /// Whether no rung that keeps the floor is expected to reach the on-time share.
    pub infeasible: bool,
    /// Padding bytes to send after the frame, to test whether the link carries more. Only
    /// [`baselines::awstream`] asks for them. The owner of the link may leave them out.
    pub probe_bytes: u32,
    /// The size to which a finer quantiser should enlarge the frame, to measure the link. Only where
    /// [`Coding::stretches`].
    pub stretch_bytes: Option<f64>,
}

impl Choice {
    /// A choice without a prediction.
    pub const fn plain(rung: usize, infeasible: bool) -> Self {
        Self { rung, on_time_probability: None, infeasible, probe_bytes: 0, stretch_bytes: None }
    }
}

/// What to do with a frame that waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Send it at this rung, now.
    Send(Choice),
    /// Do not send the frame now. Ask again when something has arrived, when there is a newer frame, or at `until`.
    Wait {
        /// When to ask again at the latest.
        until: Instant,
    },
}

/// A way to choose rungs. See the [module](self) for how to drive one.
pub trait Policy: Send {
    /// The name that configuration and results use.
    fn name(&self) -> &'static str;

    /// A frame was given to the link, as [`Policy::decide`] chose.
    fn handle_sent(&mut self, frame: &SentFrame);

    /// The last byte of a frame has left the camera: the link is free for another.
    fn handle_left(&mut self, _now: Instant, _frame: FrameId) {}

    /// The receiver has reported bytes of a frame. The report came in at `now`.
    fn handle_arrival(&mut self, now: Instant, arrival: &Arrival);

    /// A frame on its way was given up.
    fn handle_reset(&mut self, now: Instant, frame: FrameId);

    /// Decides what to do with the frame that waits. Runs in microseconds and allocates nothing.
    fn decide(&mut self, offer: &Offer<'_>) -> Decision;

    /// Whether the frame that is being sent should be cancelled for the offered one, because it will be late anyway. Called while a frame waits
    /// behind one that has not left. If true, the owner of the link cancels the frame, calls [`Policy::handle_cancelled`], and asks for a decision.
    fn gives_up(&mut self, _offer: &Offer<'_>) -> bool {
        false
    }

    /// A frame was cancelled for a newer one after `left_bytes` of its bytes had left.
    fn handle_cancelled(&mut self, _now: Instant, _frame: FrameId, _left_bytes: u64) {}

    /// The largest size in bytes at which a frame is on time with the required
    /// probability, if it takes `camera_time` to make. `None`: the policy cannot tell.
    fn bytes_in_time(&self, _offer: &Offer<'_>, _camera_time: Duration) -> Option<f64> {
        None
    }

    /// Whether `bytes` bytes, sent now, are on time with the required probability. They may be a frame
    /// that cannot be made smaller and the frames that must go before it. False if the policy cannot tell.
    fn carries(&self, offer: &Offer<'_>, bytes: f64) -> bool {
        self.bytes_in_time(offer, Duration::ZERO).is_some_and(|in_time| bytes <= in_time)
    }

    /// Whether a frame of the source's own video serves at least as well as a frame at the rung of `choice`, which
    /// [`Policy::decide`] has just returned. Asked only if no rung is expected to keep the contract, or few frames are encoded. If it serves as
    /// well, the owner of the link sends the source's frame with the returned choice.
    fn prefers_source(
        &mut self,
        _offer: &Offer<'_>,
        _source: SourceFrame,
        _choice: Choice,
    ) -> Option<Choice> {
        None
    }

    /// Whether the last frame was too small to show whether the link carries more.
    fn measured_little(&self) -> bool {
        false
    }

    /// The probability that successive frames at a rung, each referring to the last, are on
    /// time on a link that is idle at first. `None`: the policy cannot tell now, or never can.
    fn steady_on_time(&self, _offer: &Offer<'_>, _rung: usize) -> Option<f64> {
        None
    }

    /// Whether at the last decision, even a decision to wait, no rung that keeps the floor was expected to reach the on-time share.
    fn is_infeasible(&self) -> bool {
        false
    }

    /// The estimated rate of the link. `None`: not known.
    fn link_rate(&self) -> Option<BitsPerSecond> {
        None
    }

    /// The predicted and the actual share of late frames, for policies that predict.
    fn calibration(&self) -> Option<Calibration> {
        None
    }
}

#[cfg(test)]
pub(crate) mod tests;
