//! Judges over a sliding second whether a contract is kept, and explains in a sentence why not.
//!
//! A frame is judged when it is handed over, and again when the client library reports that the application
//! took it ([`TakenReport`]). The time that a frame waited for the application is the application's own.

mod hands;
mod originals;
mod outcome;
mod way;

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

pub use self::hands::{Handed, TakenReport};
use self::hands::{Hands, Seen, Step, Takes, Took};
pub use self::originals::OriginalsGot;
pub use self::outcome::{FrameOutcome, WINDOW};
pub use self::way::Way;
use super::{Contract, ContractState};
use crate::profile::SizeDrift;
use crate::units::{BitsPerSecond, Instant};

/// The span of time over which measured accuracies are averaged. It is longer than [`WINDOW`], because a
/// single frame says little and applications score few frames.
pub const ACCURACY_WINDOW: Duration = Duration::from_secs(10);
/// The most frames that are remembered of [`WINDOW`]. At more frames per second than this, the oldest no
/// longer count.
const FRAMES_MAX: usize = 1024;
/// A contract is called infeasible if more than this share of its frames were. One doubtful frame does not
/// change the state.
const INFEASIBLE_SHARE: f64 = 0.5;
/// Times below this share of the latency bound are not mentioned.
const MENTIONED_SHARE: f64 = 0.1;
/// If no frames show it, a contract counts as infeasible only after a camera
/// or an edge has called it so for this long. No contract is given up sooner.
const INFEASIBLE_LASTS: Duration = Duration::from_millis(300);

/// An application misses its latency bound if it waits longer than the bound and this many frame intervals.
const OVERDUE_FRAMES: u32 = 5;
/// An application misses its latency bound only after it has waited for the bound and at least this long.
pub const OVERDUE_MIN: Duration = Duration::from_millis(300);

/// The sentence about a source whose own video is not sent as it is.
const INTERRUPTED: &str = "; the source's own video is interrupted until one of its keyframes is sent; until then frames are re-encoded";

/// What it takes to keep the floor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Need {
    /// Mean bytes of the cheapest rung that keeps the floor.
    Bytes(f64),
    /// No rung keeps the floor: the best one keeps this accuracy.
    Best(f64),
}

/// What the state and its sentence depend on, apart from the frames. While no frames come, nothing else is known.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The rate of the link, if it was measured.
    pub link_rate: Option<BitsPerSecond>,
    /// What it takes to keep the floor. `None`: not known.
    pub need: Option<Need>,
    /// The time between frames, if the camera publishes any.
    pub interval: Option<Duration>,
    /// One in this many published frames is sent, at the rung of the last frame. 0 means the same as 1.
    pub one_in: u32,
    /// How long the application has waited for the camera's next frame. `None`: the application is still busy with the last frame.
    pub waited: Option<Duration>,
    /// The one-way delay of the idle path.
    pub one_way_delay: Option<Duration>,
    /// Whether the camera is disconnected.
    pub is_away: bool,
    /// Why the camera's source gives no frames. `None`: it gives frames, as far as is known.
    pub source: Option<String>,
    /// How long the source has given frames again. `None`: it was never interrupted, as far as is known.
    pub live_for: Option<Duration>,
    /// Whether the source gives its own video, but frames are made of it until one of its key frames is sent as it is.
    pub interrupted: bool,
    /// Since when the camera finds no rung that keeps the contract.
    pub infeasible_since: Option<Instant>,
    /// Since when the camera's shared channel has no room for the camera, and why.
    pub shed: Option<(Instant, String)>,
    /// How frames differ from those with which the profile was measured, if they do.
    pub drift: Option<SizeDrift>,
    /// Why no accuracies are known. Empty if accuracies are known.
    pub unverified: String,
    /// What conflicts with the contract, apart from the link. May be empty.
    pub conflict: String,
    /// How long frames take from the edge into the application's client library.
    pub way: Duration,
}

/// Watches one contract on one camera.
#[derive(Debug)]
pub struct Monitor {
    contract: Contract,
    frames: VecDeque<Seen>,
    hands: Hands,
    /// Frames that the application was too busy to take.
    passed: VecDeque<(Instant, u64)>,
    /// Accuracies that the application measured.
    measured: VecDeque<(Instant, f64)>,
    /// When the last frame was judged, and whether it was infeasible.
    last: Option<(Instant, bool)>,
    began: Instant,
}

impl Surroundings {
    /// How many frames the camera publishes per second.
    fn fps(&self) -> f64 {
        self.interval.map_or(0.0, |interval| 1.0 / interval.as_secs_f64())
    }
}

/// The basis of a judgement at one moment.
struct Look<'a> {
    now: Instant,
    counts: Counts,
    around: &'a Surroundings,
    /// Whether a whole [`WINDOW`] has been watched.
    full: bool,
}

impl Look<'_> {
    /// Whether frames should have come for a whole [`WINDOW`].
    fn is_due(&self) -> bool {
        self.full && self.around.live_for.is_none_or(|live_for| live_for >= WINDOW)
    }
}

/// Counts of the frames of the last second.
#[derive(Clone, Copy)]
struct Counts {
    frames: usize,
    came: usize,
    passed: usize,
    /// Frames that are known to be on time or late. If the application's client library reports, these
    /// are the frames that it took, and frames that were lost or handed over late. Otherwise all frames.
    judged: usize,
    on_time: usize,
    /// Frames that the application had within the bound.
    in_hand: usize,
    takes: Takes,
    infeasible: usize,
    unverified: usize,
    measured: Option<f64>,
}

impl Monitor {
    /// Starts to watch a contract.
    pub fn new(contract: Contract, now: Instant) -> Self {
        Self {
            contract,
            frames: VecDeque::new(),
            hands: Hands::default(),
            passed: VecDeque::new(),
            measured: VecDeque::new(),
            last: None,
            began: now,
        }
    }

    /// Takes in one frame that came, or that is known not to come. Whether the application takes the frame is not tracked.
    pub fn handle_frame(&mut self, now: Instant, outcome: FrameOutcome) {
        self.see(now, Seen { at: now, outcome, step: Step::None });
    }

    /// Takes in one frame that was handed over to the application.
    pub fn handle_handed(&mut self, now: Instant, outcome: FrameOutcome, handed: Handed) {
        let step = self.hands.handle_handed(now, (handed, outcome), self.contract.latency_bound);
        self.see(now, Seen { at: now, outcome, step });
    }

    /// Takes in the client library's report of a frame. Returns how long the frame took from the
    /// edge into the library, if that is known. Does nothing for frames that were not handed over.
    pub fn handle_taken(&mut self, now: Instant, report: &TakenReport) -> Option<Duration> {
        let reported = self.hands.handle_report(now, report, self.contract.latency_bound)?;
        let is_it = |seen: &Seen| matches!(seen.step, Step::Handed(took) if took.frame == report.frame);
        let place = self.frames.iter().rposition(is_it);
        // A frame that has left the window, or is about to, counts as a frame of now.
        if let Some(place) = place.filter(|_| now.saturating_since(reported.seen.at) < WINDOW / 2) {
            self.frames[place] = reported.seen;
        } else {
            place.map(|place| self.frames.remove(place));
            self.see(now, Seen { at: now, ..reported.seen });
        }
        reported.way
    }

    fn see(&mut self, now: Instant, seen: Seen) {
        self.forget(now);
        if self.frames.len() == FRAMES_MAX {
            self.frames.pop_front();
        }
        self.last = Some((seen.at, seen.outcome.infeasible));
        self.frames.push_back(seen);
    }

    /// Takes in frames that came while the application was busy. They count in the frame rate only.
    pub fn handle_passed(&mut self, now: Instant, frames: u64) {
        self.forget(now);
        if frames > 0 {
            if self.passed.len() == FRAMES_MAX {
                self.passed.pop_front();
            }
            self.passed.push_back((now, frames));
        }
    }

    /// Takes in the accuracy, from 0 to 1, that the application measured on a delivered frame.
    pub fn handle_accuracy(&mut self, now: Instant, accuracy: f64) {
        self.forget(now);
        if self.measured.len() == FRAMES_MAX {
            self.measured.pop_front();
        }
        self.measured.push_back((now, accuracy));
    }

    fn forget(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_since(at) >= WINDOW;
        let is_stale = |at: Instant| now.saturating_since(at) >= ACCURACY_WINDOW;
        while self.frames.front().is_some_and(|seen| is_old(seen.at)) {
            self.frames.pop_front();
        }
        while self.passed.front().is_some_and(|(at, _)| is_old(*at)) {
            self.passed.pop_front();
        }
        while self.measured.front().is_some_and(|(at, _)| is_stale(*at)) {
            self.measured.pop_front();
        }
    }

    fn counts(&self, now: Instant) -> Counts {
        let is_new = |at: Instant| now.saturating_since(at) < WINDOW;
        let seen = || self.frames.iter().filter(|seen| is_new(seen.at));
        let frames = || seen().map(|seen| &seen.outcome);
        let is_fresh = |at: Instant| now.saturating_since(at) < ACCURACY_WINDOW;
        let measured = || self.measured.iter().filter(|(at, _)| is_fresh(*at)).map(|(_, accuracy)| accuracy);
        let feedback = measured().count();
        let passed = self.passed.iter().filter(|(at, _)| is_new(*at)).map(|(_, frames)| *frames as usize);
        let reported = seen().any(|seen| matches!(seen.step, Step::Taken(_)));
        let judged = || {
            seen().filter(|seen| match seen.step {
                Step::None | Step::Taken(_) => true,
                // A frame that was late when it was handed over will not be on time in the application's hands.
                Step::Handed(took) => !reported || !took.in_time,
                Step::Replaced => false,
            })
        };
        let took = judged().filter_map(|seen| match seen.step {
            Step::Handed(took) | Step::Taken(took) => Some(took),
            Step::None | Step::Replaced => None,
        });
        let took: Vec<Took> = took.collect();
        Counts {
            frames: frames().count(),
            came: frames().filter(|outcome| outcome.came).count(),
            passed: passed.sum(),
            judged: judged().count(),
            on_time: judged().filter(|seen| seen.outcome.on_time).count(),
            in_hand: judged().filter(|seen| seen.is_in_hand()).count(),
            takes: Takes::of(&took, reported, self.hands.gap()),
            infeasible: frames().filter(|outcome| outcome.infeasible).count(),
            unverified: frames()
                .filter(|outcome| outcome.came && outcome.expected_accuracy.is_none())
                .count(),
            measured: (feedback > 0).then(|| measured().sum::<f64>() / feedback as f64),
        }
    }

    /// The state over the last second, and a sentence that says why.
    ///
    /// If several states apply, the first of [`ContractState::ALL`] counts. The latency is missed if the application waits for a frame
    /// of a publishing camera for longer than the bound and five intervals. It is also missed after a whole second without a frame.
    pub fn describe(&self, now: Instant, around: &Surroundings) -> (ContractState, String) {
        let full = now.saturating_since(self.began) >= WINDOW;
        let look = Look { now, counts: self.counts(now), around, full };
        let (state, mut text) = self.judge(&look);
        if matches!(state, ContractState::Infeasible | ContractState::LatencyMiss)
            && !around.conflict.is_empty()
        {
            let _ = write!(text, "; {}", around.conflict);
        }
        if around.interrupted && !matches!(state, ContractState::Absent | ContractState::SourceLost) {
            text.push_str(INTERRUPTED);
        }
        (state, text)
    }

    /// Runs the checks in order of precedence; the first that finds something decides.
    fn judge(&self, look: &Look) -> (ContractState, String) {
        self.away(look)
            .or_else(|| without_source(look))
            .or_else(|| self.infeasible(look))
            .or_else(|| self.starving(look))
            .or_else(|| self.without_frames(look))
            .or_else(|| self.late(look))
            .or_else(|| self.slow(look))
            .or_else(|| self.application_late(look))
            .or_else(|| self.inaccurate(look))
            .or_else(|| self.drifted(look))
            .or_else(|| self.unverified(look))
            .unwrap_or_else(|| (ContractState::Ok, self.ok_text(&look.counts)))
    }

    /// Whether the camera is disconnected, and the application has waited long enough for frames that were sent before.
    fn away(&self, look: &Look) -> Option<(ContractState, String)> {
        let misses = look.around.is_away && (look.counts.came == 0 || self.overdue(look.around).is_some());
        let state = if look.full { ContractState::Absent } else { ContractState::Unverified };
        misses.then(|| match &look.around.source {
            Some(source) => (state, format!("the camera is not connected; {source}")),
            None => (state, "the camera is not connected".to_owned()),
        })
    }

    /// Whether no rung keeps both bounds: the path alone takes too long, most frames are infeasible, or the
    /// camera or the edge says so.
    fn infeasible(&self, look: &Look) -> Option<(ContractState, String)> {
        let Look { counts, around, now, .. } = look;
        if let (Some(bound), Some(delay)) = (self.contract.latency_bound, around.one_way_delay)
            && delay >= bound
        {
            let text = format!(
                "no frame can arrive within {}: the path alone takes {}",
                milliseconds(bound),
                milliseconds(delay)
            );
            return Some((ContractState::Infeasible, text));
        }
        let mostly = counts.frames > 0
            && counts.infeasible as f64 >= INFEASIBLE_SHARE * counts.frames as f64
            && now.saturating_since(self.began) >= INFEASIBLE_LASTS;
        (mostly || self.was_infeasible(look) || self.said_infeasible(look))
            .then(|| (ContractState::Infeasible, self.infeasible_text(around)))
    }

    /// Whether the last frame of a camera that publishes seldom was infeasible, and the next one is not due yet.
    fn was_infeasible(&self, look: &Look) -> bool {
        let interval = look.around.interval.unwrap_or_default();
        let (at, was_infeasible) = self.last.unwrap_or_default();
        was_infeasible && look.counts.frames == 0 && look.now.saturating_since(at) < interval * 2
    }

    /// Whether the camera or the edge has called the contract infeasible for at least [`INFEASIBLE_LASTS`].
    fn said_infeasible(&self, look: &Look) -> bool {
        let Look { around, now, .. } = look;
        let long = |since: Instant| now.saturating_since(since) >= INFEASIBLE_LASTS;
        let shed_since = around.shed.as_ref().map(|(since, _)| *since);
        // Without a floor no frame is ever marked infeasible: frames come unmodified, and most are not sent.
        if self.contract.accuracy_floor.is_none() && shed_since.is_some_and(long) {
            return true;
        }
        // Frames that came since then are better evidence than the camera's report.
        around.infeasible_since.into_iter().chain(shed_since).min().is_some_and(|since| {
            let came = self.frames.iter().filter(|seen| seen.at >= since).map(|seen| &seen.outcome);
            let kept = came.clone().filter(|outcome| !outcome.infeasible).count();
            long(since) && kept as f64 <= (1.0 - INFEASIBLE_SHARE) * came.count() as f64
        })
    }

    /// Whether the application waits although the camera publishes.
    fn starving(&self, look: &Look) -> Option<(ContractState, String)> {
        let waited = self.overdue(look.around).filter(|_| look.full)?.as_secs_f64();
        let fps = look.around.fps();
        Some((
            ContractState::LatencyMiss,
            format!("no frame for {waited:.1} s; the camera publishes {fps:.1} fps"),
        ))
    }

    /// Whether no frame came in the last second.
    fn without_frames(&self, look: &Look) -> Option<(ContractState, String)> {
        let Look { counts, around, .. } = look;
        let full = look.is_due();
        let bounded = self.contract.latency_bound.is_some();
        let (state, text) = match around.interval.map(|interval| interval * around.one_in.max(1)) {
            _ if counts.frames > 0 => return None,
            Some(interval) if bounded && full && interval < WINDOW => {
                (ContractState::LatencyMiss, "no frame in the last second")
            }
            None if full => (ContractState::Unverified, "the camera publishes nothing"),
            _ => (ContractState::Unverified, "no frame yet"),
        };
        Some((state, text.to_owned()))
    }

    /// Whether too few of the frames were on time.
    fn late(&self, look: &Look) -> Option<(ContractState, String)> {
        let Contract { latency_bound, on_time_share, .. } = self.contract;
        let Counts { judged, on_time, .. } = look.counts;
        let bound = latency_bound?;
        if on_time as f64 >= on_time_share * judged as f64 {
            return None;
        }
        let mut text = self.on_time_text(&look.counts, on_time);
        let _ = write!(text, ", {:.1} % required", on_time_share * 100.0);
        if let Some(rate) = look.around.link_rate {
            let _ = write!(text, "; the link carries {}", per_second(rate.0));
        }
        let way = look.around.way;
        if way >= bound.mul_f64(MENTIONED_SHARE) {
            let _ = write!(text, "; the path from the edge to the application takes {}", milliseconds(way));
        }
        Some((ContractState::LatencyMiss, text))
    }

    /// Whether enough frames arrived in time, but the application took too few of them in time.
    fn application_late(&self, look: &Look) -> Option<(ContractState, String)> {
        let Contract { latency_bound, on_time_share, .. } = self.contract;
        latency_bound?;
        let Counts { judged, in_hand, takes, .. } = look.counts;
        let text = if let Some(idle) = self.hands.idle(look.now) {
            format!("the application has taken no frame for {:.1} s", idle.as_secs_f64())
        } else if (in_hand as f64) < on_time_share * judged as f64 {
            let mut text = self.on_time_text(&look.counts, in_hand);
            let _ = write!(text, ", {:.1} % required", on_time_share * 100.0);
            let waited = milliseconds(takes.waited);
            let _ = match takes.every {
                Some(every) => write!(
                    text,
                    "; the application takes a frame every {}; frames wait {waited} for the application",
                    milliseconds(every)
                ),
                None => write!(text, "; frames wait {waited} for the application"),
            };
            text
        } else {
            return None;
        };
        Some((ContractState::ApplicationLate, text))
    }

    /// Whether too few frames came.
    fn slow(&self, look: &Look) -> Option<(ContractState, String)> {
        let (Counts { came, passed, .. }, min_fps) = (look.counts, self.contract.min_fps);
        // By chance, one frame more or less can lie within the window.
        let few = ((came + passed) as f64) < min_fps * WINDOW.as_secs_f64() - 1.5;
        (look.is_due() && few).then(|| {
            let published = look.around.fps();
            let text = format!(
                "{came} frames in the last second, {min_fps} required; the camera publishes {published:.1} fps"
            );
            (ContractState::LatencyMiss, text)
        })
    }

    /// Whether the accuracy that the application measured is below the floor.
    fn inaccurate(&self, look: &Look) -> Option<(ContractState, String)> {
        let floor = self.contract.accuracy_floor?;
        let measured = look.counts.measured.filter(|measured| *measured < floor)?;
        let text = format!(
            "measured accuracy {measured:.3} is below the floor {floor}; the profile may not fit this scene"
        );
        Some((ContractState::AccuracyMiss, text))
    }

    /// Whether frames differ so much from those of the profile that its accuracies may not hold.
    fn drifted(&self, look: &Look) -> Option<(ContractState, String)> {
        let SizeDrift { measured, profiled } =
            look.around.drift.filter(|_| self.contract.accuracy_floor.is_some())?;
        let text = format!(
            "frames have {measured:.0} bytes where the profile says {profiled:.0}; profile this scene as well \
             (mez profile run --camera)"
        );
        Some((ContractState::Drifted, text))
    }

    /// Whether the accuracy of the frames is unknown.
    fn unverified(&self, look: &Look) -> Option<(ContractState, String)> {
        let Counts { frames, came, unverified, infeasible, .. } = look.counts;
        let text = if self.contract.accuracy_floor.is_some() && unverified > 0 {
            if look.around.unverified.is_empty() {
                format!("{unverified} of {came} frames had a rung that is not in the profile")
            } else {
                look.around.unverified.clone()
            }
        } else if infeasible >= frames {
            // This may pass within a moment, but to report that all is well would be false.
            "no frame has kept the accuracy floor yet".to_owned()
        } else {
            return None;
        };
        Some((ContractState::Unverified, text))
    }

    /// How long the application has waited for a frame, if it would not wait this long under a kept contract.
    fn overdue(&self, around: &Surroundings) -> Option<Duration> {
        let (bound, interval) = (self.contract.latency_bound?, around.interval.filter(|one| *one < WINDOW)?);
        // Frames that the rung leaves out are not missing.
        let left_out = interval * around.one_in.saturating_sub(1);
        let most = bound + left_out + (interval * OVERDUE_FRAMES).max(OVERDUE_MIN);
        // Nobody waits for frames that were never captured.
        let waited = around.waited.map(|waited| waited.min(around.live_for.unwrap_or(Duration::MAX)));
        waited.filter(|waited| *waited > most)
    }

    fn ok_text(&self, counts: &Counts) -> String {
        // Newer frames replaced all frames that came.
        if counts.judged == 0 && counts.came > 0 {
            return match self.hands.gap() {
                Some(gap) => format!("the application takes a frame every {}", milliseconds(gap)),
                None => "the application has taken no frame yet".to_owned(),
            };
        }
        self.on_time_text(counts, counts.in_hand)
    }

    /// How many frames were on time, and where that was measured.
    fn on_time_text(&self, counts: &Counts, on_time: usize) -> String {
        let Some(bound) = self.contract.latency_bound else {
            return format!("{} frames in the last second", counts.came);
        };
        let Counts { judged, takes, .. } = counts;
        let where_ = if takes.reported { "" } else { " handed over" };
        let mut text = format!("{on_time} of {judged} frames{where_} within {}", milliseconds(bound));
        if takes.error >= bound.mul_f64(MENTIONED_SHARE) {
            let _ = write!(text, " (their ages may be wrong by {})", milliseconds(takes.error));
        }
        text
    }

    fn infeasible_text(&self, around: &Surroundings) -> String {
        if let Some((_, why)) = &around.shed {
            return why.clone();
        }
        let floor = self.contract.accuracy_floor;
        let wanted =
            floor.map_or_else(|| "the cheapest rung".to_owned(), |floor| format!("the floor {floor}"));
        let bytes = match around.need {
            None => return format!("too few frames at {wanted} would arrive in time"),
            Some(Need::Best(best)) => {
                return format!("no rung of the profile keeps {wanted}; the best keeps {best:.3}");
            }
            Some(Need::Bytes(bytes)) => bytes,
        };
        let bits = bytes * 8.0;
        // A frame must pass in each interval between frames, or within the bound where that is shorter.
        let (bound, interval) = (self.contract.latency_bound, around.interval);
        let by_rate = interval.map(|interval| bits / interval.as_secs_f64());
        let by_bound = bound.map(|bound| bits / bound.as_secs_f64());
        let needed = by_rate.unwrap_or(0.0).max(by_bound.unwrap_or(0.0));
        let how = match (interval, bound) {
            (Some(interval), _) if by_bound.unwrap_or(0.0) <= needed && by_rate == Some(needed) => {
                format!("at {:.0} fps", 1.0 / interval.as_secs_f64())
            }
            (_, Some(bound)) => format!("to arrive within {}", milliseconds(bound)),
            _ => String::from("for each frame"),
        };
        match around.link_rate {
            Some(rate) if rate.0 < needed => {
                format!(
                    "the link carries {}; {wanted} needs {} {how}",
                    per_second(rate.0),
                    per_second(needed)
                )
            }
            Some(rate) => format!(
                "the link carries {} and {wanted} needs {} {how}, but frames would not arrive in time: the rate of the link is unsteady or was \
                 measured too briefly, or encoding takes too long",
                per_second(rate.0),
                per_second(needed)
            ),
            None => format!("nothing gets through the link; {wanted} needs {} {how}", per_second(needed)),
        }
    }
}

/// Whether the camera's source gives no frames. This is reported at once, because no frame can be missing on the way.
fn without_source(look: &Look) -> Option<(ContractState, String)> {
    let source = look.around.source.clone()?;
    Some((ContractState::SourceLost, source))
}

/// Bits per second in the unit that leaves a figure of at least 1.
fn per_second(bits: f64) -> String {
    match bits {
        1e6.. => format!("{:.1} Mbit/s", bits / 1e6),
        1e3.. => format!("{:.0} kbit/s", bits / 1e3),
        _ => format!("{bits:.0} bit/s"),
    }
}

/// The duration in whole milliseconds; short times with one decimal.
fn milliseconds(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    if ms < 10.0 && ms.fract() > 0.05 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

#[cfg(test)]
mod tests;
