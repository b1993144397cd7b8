//! Which rung a frame is sent at: one small [`Policy`] for each way to decide, and what they share.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`quantile`] | Mez's own policy: the best rung that arrives in time with the asked probability |
//! | [`baselines`] | policies of others that a user may choose, to compare with |
//! | [`named`] | the registry: policies by the names that users give |
//! | [`flight`] | frames on their way: what any policy may build on |
//! | [`share`] | how cameras share a channel, decided at the edge |
//!
//! A policy is driven like a broker, without input or output: whoever owns the link tells it
//! 1. [`Policy::handle_sent`] when a frame is given to the link,
//! 2. [`Policy::handle_left`] when the last byte of it has left the camera,
//! 3. [`Policy::handle_arrival`] when the receiver reports bytes of it,
//! 4. [`Policy::handle_reset`] when it is given up because nothing gets through,
//! 5. [`Policy::handle_cancelled`] when it is cancelled for a newer one,
//!
//! and asks it [`Policy::decide`] whenever the link is free and a frame waits. All instants are of the camera's clock;
//! those of the receiver are converted before ([`crate::clock::ClockEstimate::to_ours`]). A constant error of that conversion is
//! harmless, because policies subtract the smallest delay that they have seen.

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

/// While the link is out, a frame is tried this often.
pub const OUTAGE_INTERVAL: Duration = Duration::from_millis(100);

/// A frame that was given to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentFrame {
    /// Which frame.
    pub frame: FrameId,
    /// The place of its rung in the ladder.
    pub rung: usize,
    /// What the profile says a frame of this rung has, rounded; one that stands alone, if this one does.
    pub expected_bytes: u32,
    /// What this one has.
    pub bytes: u32,
    /// When it was captured.
    pub captured: Instant,
    /// When it was given to the link.
    pub sent: Instant,
    /// When it has to be there.
    pub due: Instant,
    /// The most bytes that could be on their way then, over a path that was never full: [`Offer::window`].
    pub window: Option<u64>,
}

/// What the receiver says of a frame that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Which frame.
    pub frame: FrameId,
    /// Bytes of it that are there.
    pub bytes: u32,
    /// When its first byte arrived.
    pub first: Instant,
    /// When the last of those bytes arrived.
    pub last: Instant,
    /// Whether the frame is whole.
    pub complete: bool,
}

/// What a camera may send for now, from the edge, which sees all cameras of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cap {
    /// Bytes of one frame, at most.
    pub frame_bytes_max: f64,
    /// When the cap expires.
    pub until: Instant,
}

/// What is left of a camera's own choice once its cap has expired: the channel is shared, and nobody says how.
pub const EXPIRED_CAP_SHARE: f64 = 0.7;

/// A frame that waits, and what is asked of it.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The present.
    pub now: Instant,
    /// When the frame was captured.
    pub captured: Instant,
    /// The time between frames.
    pub interval: Duration,
    /// The rungs to choose from.
    pub ladder: &'a Ladder,
    /// The most time from capture to the application.
    pub latency_bound: Duration,
    /// The most time from capture to the detector's result. Counts only for rungs whose detector time the profile has.
    pub result_latency_bound: Option<Duration>,
    /// The least accuracy that is accepted. `None`: any.
    pub accuracy_floor: Option<f64>,
    /// The share of frames that must be on time, in 0..=1.
    pub on_time_share: f64,
    /// Whether a frame that cannot keep the bounds is wanted nevertheless
    /// ([`OnInfeasible::Degrade`](crate::contract::OnInfeasible::Degrade)).
    pub degrade: bool,
    /// The last cap that the edge has sent, if it ever sent one.
    pub cap: Option<Cap>,
    /// Bytes of the frame before it that have not left the camera: with [`Policy::gives_up`] they never will. 0 while the link is free.
    pub unsent_bytes: u64,
    /// The most bytes that may be on their way at once, while the connection is so new that its path was never full: twice as many with every
    /// round trip in which that is all that limits. `None` where nothing is known of such a limit.
    pub window: Option<u64>,
    /// What changing the rung costs, where frames need each other. `None`: every frame stands alone.
    pub coding: Option<Coding<'a>>,
}

/// What holds for rungs whose frames refer to the frame before, and for those that leave frames out.
#[derive(Clone, Copy, Debug)]
pub struct Coding<'a> {
    /// The rung that the next frame can go on at. At any other, and with `None` at any, it has to stand alone.
    pub continues: Option<usize>,
    /// Frames of that rung that were left out since the one that the next would refer to: what changed meanwhile comes with it.
    pub left_out: u32,
    /// By place in the ladder: what a frame has that stands alone.
    pub alone: &'a [ByteSizes],
    /// By place in the ladder: of so many frames that are captured one is sent, the others are left out. At least 1.
    pub every: &'a [u32],
    /// Whether a frame that goes on can be made larger than its rung says ([`Choice::stretch_bytes`]).
    pub stretches: bool,
    /// By place in the ladder: whether a frame can go on there, as one of another quantiser and the same width can. None: only at `continues`.
    pub goes_on: &'a [bool],
}

impl Offer<'_> {
    /// The frame's age.
    pub fn age(&self) -> Duration {
        self.now.saturating_since(self.captured)
    }

    /// What a frame would have at a rung, as far as the profile knows.
    pub fn bytes(&self, rung: usize) -> ByteSizes {
        let sizes = self.ladder.rungs()[rung].bytes;
        match self.coding {
            Some(coding) if coding.continues != Some(rung) => coding.alone[rung],
            Some(coding) if coding.left_out > 0 => {
                // At most what it takes to begin anew.
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

    /// The place of the cheapest rung that keeps the floor; where none does, of the best there is, and `false`.
    pub fn floor_rung(&self) -> (usize, bool) {
        match self.ladder.lowest_at(self.accuracy_floor) {
            Some(place) => (place, true),
            None => (self.ladder.len() - 1, false),
        }
    }

    /// Mean bytes of a rung that have to pass in each interval between published frames, or as many for as long as the bound, whichever is more: of
    /// frames that are followed by such as are left out, a part.
    pub fn bytes_needed(&self, rung: usize) -> f64 {
        let every = self.coding.map_or(1, |coding| coding.every[rung]);
        bytes_needed(self.ladder.rungs()[rung].bytes.mean, every, self.interval, self.latency_bound)
    }

    /// Whether the cap, as long as it lasts, allows a rung.
    pub fn allows(&self, rung: usize) -> bool {
        let live = self.cap.filter(|cap| self.now < cap.until);
        live.is_none_or(|cap| self.bytes_needed(rung) <= cap.frame_bytes_max)
    }

    /// The place of the highest rung that the cap allows, given what would be chosen without a cap. Never below `floor`.
    pub fn capped(&self, chosen: usize, floor: usize) -> usize {
        let Some(cap) = self.cap else { return chosen };
        let bytes_max = if self.now < cap.until {
            cap.frame_bytes_max
        } else {
            self.ladder.rungs()[chosen].bytes.mean * EXPIRED_CAP_SHARE
        };
        chosen.min(self.ladder.best_within(bytes_max).unwrap_or(0)).max(floor)
    }
}

/// What [`Offer::bytes_needed`] says, of frames of `mean` bytes of which one in `every` published frames is sent.
pub(crate) fn bytes_needed(mean: f64, every: u32, interval: Duration, bound: Duration) -> f64 {
    if every <= 1 {
        return mean;
    }
    let within_bound = mean * interval.as_secs_f64() / bound.as_secs_f64().max(1e-3);
    (mean / f64::from(every)).max(within_bound).min(mean)
}

/// A rung for a frame, and what is expected of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The place of the rung in the ladder.
    pub rung: usize,
    /// How probable it is that the frame will be on time, where the policy says so.
    pub on_time_probability: Option<f64>,
    /// No rung at or above the floor is expected to reach the on-time share.
    pub infeasible: bool,
    /// Bytes without meaning to send after the frame, to see whether the link carries more. Only [`baselines::awstream`] asks for any; whoever
    /// owns the link may leave them out.
    pub probe_bytes: u32,
    /// Make the frame about so large, by a finer quantiser, to measure the link by it. Asked for only where [`Coding::stretches`].
    pub stretch_bytes: Option<f64>,
}

impl Choice {
    /// A rung, without a prediction.
    pub const fn plain(rung: usize, infeasible: bool) -> Self {
        Self { rung, on_time_probability: None, infeasible, probe_bytes: 0, stretch_bytes: None }
    }
}

/// What to do with a frame that waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Send it at this rung, now.
    Send(Choice),
    /// Not now: ask again when something has arrived, when a newer frame is there, or at this instant.
    Wait {
        /// When to ask again at the latest.
        until: Instant,
    },
}

/// A way to choose rungs. See the [module](self) for how to drive one.
pub trait Policy: Send {
    /// The name that configuration and results use.
    fn name(&self) -> &'static str;

    /// A frame was given to the link, as [`Policy::decide`] said.
    fn handle_sent(&mut self, frame: &SentFrame);

    /// The last byte of a frame has left the camera: the link is free for another.
    fn handle_left(&mut self, _now: Instant, _frame: FrameId) {}

    /// The receiver has reported bytes of a frame; the report came in at `now`.
    fn handle_arrival(&mut self, now: Instant, arrival: &Arrival);

    /// A frame on its way was given up.
    fn handle_reset(&mut self, now: Instant, frame: FrameId);

    /// What to do with the frame that waits. Costs microseconds, and allocates nothing.
    fn decide(&mut self, offer: &Offer<'_>) -> Decision;

    /// Whether the frame that is being sent should be cancelled for the one that is offered, because it will be too late anyway.
    /// Asked while a frame waits behind one that has not left. Whoever owns the link then cancels that one, says so with
    /// [`Policy::handle_cancelled`], and asks for a decision.
    fn gives_up(&mut self, _offer: &Offer<'_>) -> bool {
        false
    }

    /// A frame was cancelled for a newer one; so many of its bytes had left by then.
    fn handle_cancelled(&mut self, _now: Instant, _frame: FrameId, _left_bytes: u64) {}

    /// How many bytes a frame may have that takes `camera_time` to be made, so that it is on time with the asked probability. `None`: the policy
    /// cannot tell.
    fn bytes_in_time(&self, _offer: &Offer<'_>, _camera_time: Duration) -> Option<f64> {
        None
    }

    /// How probable it is that frames which go on at a rung, one after the other, are on time, from an idle link on. `None`: the policy
    /// cannot tell, or not now.
    fn steady_on_time(&self, _offer: &Offer<'_>, _rung: usize) -> Option<f64> {
        None
    }

    /// Whether, when it was last asked, no rung at or above the floor was expected to reach the on-time share; also where it then
    /// said to wait.
    fn is_infeasible(&self) -> bool {
        false
    }

    /// What the link carries, as far as the policy knows.
    fn link_rate(&self) -> Option<BitsPerSecond> {
        None
    }

    /// Predicted against actual lateness, of policies that predict.
    fn calibration(&self) -> Option<Calibration> {
        None
    }
}

#[cfg(test)]
pub(crate) mod tests;
