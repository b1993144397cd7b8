//! Whether a contract is being kept, over a sliding second, and why not, in a sentence for people.

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

use crate::contract::{Contract, ContractState};
use crate::profile::Ladder;
use crate::units::{BitsPerSecond, Instant};

/// The span that a state is about.
pub const WINDOW: Duration = Duration::from_secs(1);
/// Frames that are remembered of it; at more than this per second the oldest count no more.
const FRAMES_MAX: usize = 1024;
/// The share of frames that must have been infeasible before the contract is called so: one doubtful frame is not news.
const INFEASIBLE_SHARE: f64 = 0.5;

/// What became of one frame that an application was due to get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameOutcome {
    /// It was handed over within the bound. A frame that was skipped or lost was not.
    pub on_time: bool,
    /// The policy saw no rung at or above the floor that would be on time often enough.
    pub infeasible: bool,
    /// What the profile says of its rung. `None`: no profile, or a rung that is not in it.
    pub expected_accuracy: Option<f64>,
}

/// What the sentence is made of besides the frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings<'a> {
    /// What the link carries, if it was measured.
    pub link_rate: Option<BitsPerSecond>,
    /// The rungs of the contract's profile.
    pub ladder: Option<&'a Ladder>,
    /// The time between frames.
    pub interval: Option<Duration>,
}

/// Watches one contract on one camera.
#[derive(Debug)]
pub struct Monitor {
    contract: Contract,
    frames: VecDeque<(Instant, FrameOutcome)>,
    /// Accuracies that were measured, where an application gives feedback.
    measured: VecDeque<(Instant, f64)>,
    began: Instant,
}

/// The frames of the last second, counted.
struct Counts {
    frames: usize,
    on_time: usize,
    infeasible: usize,
    unverified: usize,
    measured: Option<f64>,
}

impl Monitor {
    /// Begins to watch.
    pub fn new(contract: Contract, now: Instant) -> Self {
        Self { contract, frames: VecDeque::new(), measured: VecDeque::new(), began: now }
    }

    /// A frame was handed over, or it is known that it will not be.
    pub fn handle_frame(&mut self, now: Instant, outcome: FrameOutcome) {
        self.forget(now);
        if self.frames.len() == FRAMES_MAX {
            self.frames.pop_front();
        }
        self.frames.push_back((now, outcome));
    }

    /// An application says how accurate its result on a delivered frame was.
    pub fn handle_accuracy(&mut self, now: Instant, accuracy: f64) {
        self.forget(now);
        if self.measured.len() == FRAMES_MAX {
            self.measured.pop_front();
        }
        self.measured.push_back((now, accuracy));
    }

    fn forget(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_since(at) >= WINDOW;
        while self.frames.front().is_some_and(|(at, _)| is_old(*at)) {
            self.frames.pop_front();
        }
        while self.measured.front().is_some_and(|(at, _)| is_old(*at)) {
            self.measured.pop_front();
        }
    }

    fn counts(&self, now: Instant) -> Counts {
        let is_new = |at: Instant| now.saturating_since(at) < WINDOW;
        let frames = || self.frames.iter().filter(|(at, _)| is_new(*at)).map(|(_, outcome)| outcome);
        let measured = || self.measured.iter().filter(|(at, _)| is_new(*at)).map(|(_, accuracy)| accuracy);
        let feedback = measured().count();
        Counts {
            frames: frames().count(),
            on_time: frames().filter(|outcome| outcome.on_time).count(),
            infeasible: frames().filter(|outcome| outcome.infeasible).count(),
            unverified: frames().filter(|outcome| outcome.expected_accuracy.is_none()).count(),
            measured: (feedback > 0).then(|| measured().sum::<f64>() / feedback as f64),
        }
    }

    /// The state over the last second.
    ///
    /// Where several apply, the first of: infeasible, latency missed, accuracy missed, unverified. A second without any frame is
    /// a missed latency, once a second has passed since the beginning.
    pub fn state(&self, now: Instant) -> ContractState {
        let counts = self.counts(now);
        let bounded = self.contract.latency_bound.is_some();
        if counts.frames == 0 {
            let silent = bounded && now.saturating_since(self.began) >= WINDOW;
            return if silent { ContractState::LatencyMiss } else { ContractState::Unverified };
        }
        let frames = counts.frames as f64;
        if counts.infeasible as f64 >= INFEASIBLE_SHARE * frames {
            ContractState::Infeasible
        } else if bounded && (counts.on_time as f64) < self.contract.on_time_share * frames {
            ContractState::LatencyMiss
        } else if self.accuracy_missed(&counts) {
            ContractState::AccuracyMiss
        } else if counts.unverified > 0 {
            ContractState::Unverified
        } else {
            ContractState::Ok
        }
    }

    fn accuracy_missed(&self, counts: &Counts) -> bool {
        matches!((counts.measured, self.contract.accuracy_floor), (Some(measured), Some(floor)) if measured < floor)
    }

    /// The state, and a sentence that says why.
    pub fn describe(&self, now: Instant, around: &Surroundings<'_>) -> (ContractState, String) {
        let state = self.state(now);
        let counts = self.counts(now);
        let text = match state {
            ContractState::Ok => self.on_time_text(&counts),
            ContractState::Unverified if counts.frames == 0 => "no frame yet".to_owned(),
            ContractState::Unverified => match self.contract.profile {
                None => "there is no profile that says what is lost; profile the application".to_owned(),
                Some(_) => format!(
                    "{} of {} frames had a setting that the profile does not know",
                    counts.unverified, counts.frames
                ),
            },
            ContractState::LatencyMiss if counts.frames == 0 => "no frame in the last second".to_owned(),
            ContractState::LatencyMiss => {
                let mut text = self.on_time_text(&counts);
                let _ = write!(text, ", {:.1} % asked", self.contract.on_time_share * 100.0);
                if let Some(rate) = around.link_rate {
                    let _ = write!(text, "; link carries {}", megabits(rate));
                }
                text
            }
            ContractState::Infeasible => self.infeasible_text(around),
            ContractState::AccuracyMiss => format!(
                "measured accuracy {:.3} is below the floor {}; the profile may not fit this scene",
                counts.measured.unwrap_or_default(),
                self.contract.accuracy_floor.unwrap_or_default()
            ),
        };
        (state, text)
    }

    fn on_time_text(&self, counts: &Counts) -> String {
        match self.contract.latency_bound {
            Some(bound) => {
                format!("{} of {} frames within {} ms", counts.on_time, counts.frames, bound.as_millis())
            }
            None => format!("{} frames in the last second", counts.frames),
        }
    }

    fn infeasible_text(&self, around: &Surroundings<'_>) -> String {
        let floor = self.contract.accuracy_floor;
        let wanted =
            floor.map_or_else(|| "the cheapest setting".to_owned(), |floor| format!("the floor {floor}"));
        let Some(ladder) = around.ladder else {
            return format!("{wanted} does not arrive in time often enough");
        };
        let Some(place) = ladder.lowest_at(floor) else {
            let best = ladder.rungs()[ladder.len() - 1].accuracy;
            return format!("no setting of the profile keeps {wanted}; the best keeps {best:.3}");
        };
        let bits = ladder.rungs()[place].bytes.mean * 8.0;
        // What has to pass in each interval between frames, or within the bound where that is shorter.
        let (bound, interval) = (self.contract.latency_bound, around.interval);
        let by_rate = interval.map(|interval| bits / interval.as_secs_f64());
        let by_bound = bound.map(|bound| bits / bound.as_secs_f64());
        let needed = by_rate.unwrap_or(0.0).max(by_bound.unwrap_or(0.0));
        let how = match (interval, bound) {
            (Some(interval), _) if by_bound.unwrap_or(0.0) <= needed && by_rate == Some(needed) => {
                format!("at {:.0} fps", 1.0 / interval.as_secs_f64())
            }
            (_, Some(bound)) => format!("to arrive within {} ms", bound.as_millis()),
            _ => String::from("for each frame"),
        };
        match around.link_rate {
            Some(rate) if rate.0 < needed => {
                format!("link carries {}; {wanted} needs {:.1} {how}", megabits(rate), needed / 1e6)
            }
            Some(rate) => format!(
                "link carries {} and {wanted} needs {:.1} {how}, but the link is too unsteady",
                megabits(rate),
                needed / 1e6
            ),
            None => format!("nothing gets through; {wanted} needs {:.1} Mbit/s {how}", needed / 1e6),
        }
    }
}

fn megabits(rate: BitsPerSecond) -> String {
    format!("{:.1} Mbit/s", rate.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::ladder;

    const GOOD: FrameOutcome =
        FrameOutcome { on_time: true, infeasible: false, expected_accuracy: Some(0.96) };

    fn contract() -> Contract {
        Contract {
            latency_bound: Some(Duration::from_millis(100)),
            accuracy_floor: Some(0.9),
            profile: Some([1; 32]),
            ..Contract::default()
        }
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// A monitor that has seen fifteen such frames in the second before 1000 ms.
    fn after(contract: Contract, outcome: impl Fn(u64) -> FrameOutcome) -> Monitor {
        let mut monitor = Monitor::new(contract, at(0));
        for frame in 0..15 {
            monitor.handle_frame(at(1 + frame * 66), outcome(frame));
        }
        monitor
    }

    #[test]
    fn each_state_has_its_cause_and_its_sentence() {
        let ladder = ladder();
        let around = Surroundings {
            link_rate: Some(BitsPerSecond(2.1e6)),
            ladder: Some(&ladder),
            interval: Some(Duration::from_secs(1) / 15),
        };
        let describe = |monitor: &Monitor| monitor.describe(at(1000), &around);
        let (state, text) = describe(&after(contract(), |_| GOOD));
        assert_eq!((state, text.as_str()), (ContractState::Ok, "15 of 15 frames within 100 ms"));

        let late = after(contract(), |frame| FrameOutcome { on_time: frame != 3, ..GOOD });
        let text = "14 of 15 frames within 100 ms, 98.0 % asked; link carries 2.1 Mbit/s";
        assert_eq!(describe(&late), (ContractState::LatencyMiss, text.into()));

        let slow = after(contract(), |frame| FrameOutcome { infeasible: frame > 5, on_time: false, ..GOOD });
        let text = "link carries 2.1 Mbit/s; the floor 0.9 needs 16.8 at 15 fps";
        assert_eq!(describe(&slow), (ContractState::Infeasible, text.into()));

        let strict = Contract { accuracy_floor: Some(0.9995), ..contract() };
        let strict = after(strict, |_| FrameOutcome { infeasible: true, ..GOOD });
        let text = "no setting of the profile keeps the floor 0.9995; the best keeps 0.999";
        assert_eq!(describe(&strict), (ContractState::Infeasible, text.into()));

        let mut wrong = after(contract(), |_| GOOD);
        wrong.handle_accuracy(at(990), 0.8);
        assert_eq!(describe(&wrong).0, ContractState::AccuracyMiss);

        let unknown = after(contract(), |_| FrameOutcome { expected_accuracy: None, ..GOOD });
        assert_eq!(describe(&unknown).0, ContractState::Unverified);
    }

    #[test]
    fn a_change_for_the_worse_is_told_within_a_second_and_so_is_the_end_of_it() {
        let mut monitor = Monitor::new(contract(), at(0));
        let mut states = Vec::new();
        for frame in 0..90u64 {
            let now = at(frame * 66);
            let bad = (30..60).contains(&frame);
            monitor.handle_frame(now, FrameOutcome { on_time: !bad, infeasible: bad, ..GOOD });
            states.push(monitor.state(now));
        }
        let first = |state: ContractState, from: usize| {
            from + states[from..].iter().position(|known| *known == state).expect("it is told")
        };
        assert!(first(ContractState::Infeasible, 30) <= 30 + 15);
        assert!(first(ContractState::Ok, 60) <= 60 + 16);
    }

    #[test]
    fn silence_is_a_missed_latency() {
        let monitor = after(contract(), |_| GOOD);
        assert_eq!(monitor.state(at(1_500)), ContractState::Ok);
        assert_eq!(monitor.state(at(3_000)), ContractState::LatencyMiss);
        assert_eq!(Monitor::new(contract(), at(0)).state(at(500)), ContractState::Unverified);
    }

    #[test]
    fn memory_is_bounded() {
        let mut monitor = Monitor::new(contract(), at(0));
        for _ in 0..10_000 {
            monitor.handle_frame(at(5), GOOD);
        }
        assert_eq!(monitor.frames.len(), FRAMES_MAX);
    }
}
