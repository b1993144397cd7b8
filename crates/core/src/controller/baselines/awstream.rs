//! Implements AWStream's adaptation as published (B. Zhang et al., "AWStream: adaptive wide-area streaming
//! analytics", SIGCOMM 2018): a state machine over the levels of a profile, driven by a monitor of the
//! sender's queue and by the receiver.
//!
//! | state | on | it |
//! | --- | --- | --- |
//! | start-up | an empty queue | goes a level up; at the top → steady |
//! | | the fifth congestion | adjusts to the measured rate → degrade |
//! | degrade | congestion | adjusts |
//! | | an empty queue | → steady |
//! | steady | congestion | adjusts → degrade |
//! | | several empty queues in a row, below the top | → probe |
//! | probe | congestion | stops probing → steady |
//! | | an empty queue | probes harder; when the next level would fit, goes a level up → steady |
//!
//! An adjustment takes the largest level whose rate is not above the measured one. If that is the present
//! level, nothing changes three times; the fourth time the level goes down by one. The monitor ticks every
//! 100 ms. The receiver looks at windows of 1 s.

use std::collections::VecDeque;
use std::time::Duration;

use crate::controller::flight::{Flights, ms, ms_between};
use crate::controller::{Arrival, Choice, Decision, OUTAGE_INTERVAL, Offer, Policy, SentFrame};
use crate::frame::FrameId;
use crate::units::{BitsPerSecond, Instant};

/// How often the monitor looks at the queue.
const TICK: Duration = Duration::from_millis(100);
/// The weight of a tick in the moving average of the sending rate.
const TICK_GAIN: f64 = 0.5;
/// A queue that takes longer than this to drain counts as congestion, in milliseconds.
const QUEUE_MS_MAX: f64 = 1.0;
/// The share of the sending rate that is taken as the link's rate.
const RATE_SHARE: f64 = 0.9;
/// How many congestions are ignored in start-up.
const STARTUP_IGNORED: u32 = 4;
/// How many successive adjustments to the present level are ignored.
const SAME_LEVEL_IGNORED: u32 = 3;
/// How far probing goes, as a multiple of the rate difference between two levels.
const PROBE_SHARE: f64 = 1.05;
/// The window of the receiver's measurements.
const WINDOW: Duration = Duration::from_secs(1);
/// The shortest time between two congestion reports of the receiver.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// The receiver notes the latency after this many frames. The smallest of the last [`NOTES`] notes is the ideal latency.
const NOTE_FRAMES: u32 = 30;
const NOTES: usize = 10;
/// The most ticks that are caught up after a pause.
const TICKS_MAX: u32 = 100;
/// The most frames that are tracked until they have left.
const QUEUED_MAX: usize = 4096;

/// The constants of which two different sets were published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// The name of the set.
    pub name: &'static str,
    /// The number of ticks without a queue that count as an empty queue.
    pub clean_ticks: u32,
    /// The number of successive empty queues in the steady state before probing begins.
    pub steady_empties: u32,
    /// The number of steps in which probing is raised.
    pub probe_steps: u32,
    /// Pairs of an ideal latency in milliseconds and a factor. Up to that ideal latency, a latency above this multiple of it is congestion.
    pub congestion_factors: [(f64, f64); 4],
}

impl Constants {
    /// The set of the newest code, of 2017-09-13.
    pub const NEWEST: Self = Self {
        name: "newest",
        clean_ticks: 20,
        steady_empties: 3,
        probe_steps: 3,
        congestion_factors: [(100.0, 10.0), (200.0, 7.0), (300.0, 4.0), (f64::INFINITY, 5.0)],
    };
    /// The set of 2017-09-12, which made the published logs.
    pub const EARLIER: Self = Self {
        name: "earlier",
        clean_ticks: 5,
        steady_empties: 5,
        probe_steps: 5,
        congestion_factors: [(100.0, 3.0), (200.0, 2.0), (300.0, 1.5), (f64::INFINITY, 1.5)],
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    StartUp,
    Degrade,
    Steady,
    Probe,
}

/// The report of a monitor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Signal {
    Empty,
    /// The measured rate, in bytes per millisecond.
    Congestion(f64),
}

/// The policy. See the [module](self).
#[derive(Debug)]
pub struct AwStream {
    constants: Constants,
    state: State,
    level: usize,
    /// Rates of the levels, in bytes per millisecond.
    rates: Vec<f64>,
    interval: Duration,
    ignored: u32,
    same_level: u32,
    empties: u32,
    probe_step: u32,
    monitor: Monitor,
    receiver: Receiver,
    flights: Flights,
    out: bool,
    tried: Option<Instant>,
}

/// Looks at the sender's queue at every tick.
#[derive(Debug)]
struct Monitor {
    due: Option<Instant>,
    /// Frames that have not left: identity, time of sending, bytes.
    queued: VecDeque<(FrameId, Instant, f64)>,
    /// Bytes that have left since the last tick.
    left_bytes: f64,
    /// Bytes per millisecond.
    rate: f64,
    clean: u32,
}

/// Looks at the frames that arrive in windows of one second.
#[derive(Debug)]
struct Receiver {
    window_began: Option<Instant>,
    bytes: f64,
    latency_ms: f64,
    frames: u32,
    /// The rate of the last whole window.
    rate: f64,
    noted: VecDeque<f64>,
    until_note: u32,
    reported: Instant,
}

impl Monitor {
    /// Looks at the queue once, and returns what it signals.
    ///
    /// A frame that was sent within the last frame interval is in the socket's buffer, not in the queue.
    fn tick(&mut self, at: Instant, interval: Duration, constants: &Constants) -> Option<Signal> {
        let bytes = std::mem::take(&mut self.left_bytes);
        let rate = bytes / (TICK.as_millis() as f64);
        self.rate += TICK_GAIN * (rate - self.rate);
        let waiting = self.queued.iter().filter(|(_, sent, _)| *sent + interval <= at);
        let queued: f64 = waiting.map(|(_, _, bytes)| bytes).sum();
        if queued > QUEUE_MS_MAX * self.rate {
            self.clean = 0;
            return Some(Signal::Congestion(RATE_SHARE * self.rate));
        }
        self.clean += 1;
        if self.clean < constants.clean_ticks {
            return None;
        }
        self.clean = 0;
        Some(Signal::Empty)
    }
}

impl Receiver {
    fn arrive(&mut self, now: Instant, bytes: f64, latency_ms: f64, constants: &Constants) -> Option<Signal> {
        if self.until_note == 0 {
            self.until_note = NOTE_FRAMES;
            if self.noted.len() == NOTES {
                self.noted.pop_front();
            }
            self.noted.push_back(latency_ms);
        }
        self.until_note -= 1;
        let began = *self.window_began.get_or_insert(now);
        if now >= began + WINDOW {
            self.rate = self.bytes / ms_between(began, now);
            (self.bytes, self.latency_ms, self.frames) = (0.0, 0.0, 0);
            self.window_began = Some(now);
        }
        self.bytes += bytes;
        self.latency_ms += latency_ms;
        self.frames += 1;
        let ideal = self.noted.iter().copied().fold(f64::INFINITY, f64::min);
        let factor = constants.congestion_factors.iter().find(|(up_to, _)| ideal <= *up_to)?.1;
        let due = now >= self.reported + REPORT_INTERVAL;
        if !due || self.rate <= 0.0 || latency_ms <= factor * ideal {
            return None;
        }
        self.reported = now;
        Some(Signal::Congestion(self.rate))
    }
}

impl AwStream {
    /// A controller that begins at the lowest level.
    pub fn new(constants: Constants) -> Self {
        Self {
            constants,
            state: State::StartUp,
            level: 0,
            rates: Vec::new(),
            interval: Duration::ZERO,
            ignored: 0,
            same_level: 0,
            empties: 0,
            probe_step: 0,
            monitor: Monitor { due: None, queued: VecDeque::new(), left_bytes: 0.0, rate: 0.0, clean: 0 },
            receiver: Receiver {
                window_began: None,
                bytes: 0.0,
                latency_ms: 0.0,
                frames: 0,
                rate: 0.0,
                noted: VecDeque::with_capacity(NOTES),
                until_note: 0,
                reported: Instant::ZERO,
            },
            flights: Flights::new(),
            out: false,
            tried: None,
        }
    }

    fn top(&self) -> usize {
        self.rates.len().saturating_sub(1)
    }

    fn handle_signal(&mut self, signal: Signal) {
        match (self.state, signal) {
            (State::StartUp, Signal::Empty) => self.climb(),
            (State::StartUp, Signal::Congestion(_)) if self.ignored < STARTUP_IGNORED => self.ignored += 1,
            (State::StartUp | State::Steady | State::Degrade, Signal::Congestion(rate)) => {
                self.adjust(rate);
                self.state = State::Degrade;
                self.empties = 0;
            }
            (State::Degrade, Signal::Empty) => {
                self.state = State::Steady;
                self.empties = 0;
            }
            (State::Steady, Signal::Empty) => {
                self.empties += 1;
                if self.empties >= self.constants.steady_empties && self.level < self.top() {
                    self.state = State::Probe;
                    self.probe_step = 1;
                }
            }
            (State::Probe, Signal::Empty) if self.probe_step < self.constants.probe_steps => {
                self.probe_step += 1;
            }
            (State::Probe, Signal::Empty) => {
                self.climb();
                self.state = State::Steady;
                self.empties = 0;
                self.probe_step = 0;
            }
            (State::Probe, Signal::Congestion(_)) => {
                self.state = State::Steady;
                self.empties = 0;
                self.probe_step = 0;
            }
        }
    }

    fn climb(&mut self) {
        self.level = (self.level + 1).min(self.top());
        if self.state == State::StartUp && self.level == self.top() {
            self.state = State::Steady;
            self.empties = 0;
        }
    }

    /// Takes the largest level whose rate is not above `rate`.
    fn adjust(&mut self, rate: f64) {
        let level = self.rates.partition_point(|known| *known <= rate).saturating_sub(1);
        if level < self.level {
            self.level = level;
            self.same_level = 0;
        } else if self.same_level < SAME_LEVEL_IGNORED {
            self.same_level += 1;
        } else {
            self.same_level = 0;
            self.level = self.level.saturating_sub(1);
        }
    }

    fn catch_up(&mut self, now: Instant) {
        let mut due = *self.monitor.due.get_or_insert(now + TICK);
        for _ in 0..TICKS_MAX {
            if now < due {
                break;
            }
            if let Some(signal) = self.monitor.tick(due, self.interval, &self.constants) {
                self.handle_signal(signal);
            }
            due += TICK;
        }
        self.monitor.due = Some(due.max(now));
    }

    fn learn_rates(&mut self, offer: &Offer<'_>) {
        self.interval = offer.interval;
        let rates = offer.ladder.rungs().iter().enumerate();
        let rates = rates.map(|(place, rung)| rung.bytes.mean / ms(offer.interval_at(place)));
        self.rates.clear();
        self.rates.extend(rates);
        self.level = self.level.min(self.top());
    }

    /// The bytes to add to a frame while probing.
    fn probe_bytes(&self, interval: Duration) -> u32 {
        if self.state != State::Probe || self.level >= self.top() {
            return 0;
        }
        let gap = PROBE_SHARE * (self.rates[self.level + 1] - self.rates[self.level]);
        let pace = gap * f64::from(self.probe_step) / f64::from(self.constants.probe_steps);
        (pace * interval.as_secs_f64() * 1e3) as u32
    }

    fn forget(&mut self, frame: FrameId) {
        self.monitor.queued.retain(|(other, ..)| *other != frame);
    }
}

impl Policy for AwStream {
    fn name(&self) -> &'static str {
        "awstream"
    }

    fn handle_sent(&mut self, frame: &SentFrame) {
        self.tried = Some(frame.sent);
        self.flights.send(frame, None);
        if self.monitor.queued.len() == QUEUED_MAX {
            self.monitor.queued.pop_front();
        }
        self.monitor.queued.push_back((frame.frame, frame.sent, f64::from(frame.bytes)));
    }

    fn handle_left(&mut self, now: Instant, frame: FrameId) {
        self.catch_up(now);
        let position = self.monitor.queued.iter().position(|(queued, ..)| *queued == frame);
        if let Some((_, _, bytes)) = position.and_then(|position| self.monitor.queued.remove(position)) {
            self.monitor.left_bytes += bytes;
        }
    }

    fn handle_arrival(&mut self, now: Instant, arrival: &Arrival) {
        self.out = false;
        self.catch_up(now);
        let Some(landed) = self.flights.report(now, arrival) else { return };
        let latency_ms = ms_between(landed.flight.sent, arrival.last);
        let signal = self.receiver.arrive(now, landed.flight.bytes, latency_ms, &self.constants);
        if let Some(signal) = signal {
            self.handle_signal(signal);
        }
    }

    fn handle_reset(&mut self, _: Instant, frame: FrameId) {
        self.out = true;
        self.flights.give_up(frame);
        self.forget(frame);
        // A link that is out carries nothing.
        self.level = 0;
        self.state = State::Degrade;
    }

    fn decide(&mut self, offer: &Offer<'_>) -> Decision {
        self.catch_up(offer.now);
        self.learn_rates(offer);
        let (floor, reaches_floor) = offer.floor_rung();
        if self.out {
            return match self.tried.map(|tried| tried + OUTAGE_INTERVAL) {
                Some(due) if offer.now < due => Decision::Wait { until: due },
                _ => Decision::Send(Choice::plain(floor, true)),
            };
        }
        let rung = self.level.max(floor);
        let infeasible = !reaches_floor || self.level < floor;
        let rung = offer.capped(rung, floor);
        Decision::Send(Choice {
            probe_bytes: self.probe_bytes(offer.interval),
            ..Choice::plain(rung, infeasible)
        })
    }

    fn link_rate(&self) -> Option<BitsPerSecond> {
        (self.receiver.rate > 0.0).then_some(BitsPerSecond(self.receiver.rate * 8e3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::{arrival, ladder, offer, sent};

    /// A link with a rate in bytes per millisecond behind a policy, and one frame every 33 ms.
    struct Path {
        free: Instant,
        latencies_ms: Vec<f64>,
        levels: Vec<usize>,
    }

    impl Path {
        fn frames(&mut self, policy: &mut AwStream, from: u64, count: u64, bytes_per_ms: f64) {
            let ladder = ladder();
            for frame in from..from + count {
                let now = Instant::ZERO + Duration::from_millis(33 * frame);
                let offer = Offer { interval: Duration::from_millis(33), ..offer(now, &ladder) };
                let Decision::Send(choice) = policy.decide(&offer) else { panic!("it always sends") };
                let bytes = ladder.rungs()[choice.rung].bytes.mean;
                self.levels.push(choice.rung);
                let begin = self.free.max(now);
                let all = bytes + f64::from(choice.probe_bytes);
                self.free = begin + Duration::from_secs_f64(all / bytes_per_ms / 1e3);
                policy.handle_sent(&sent(frame, choice.rung, bytes, now));
                policy.handle_left(self.free, crate::controller::tests::frame_id(frame));
                policy.handle_arrival(self.free, &arrival(frame, bytes, begin, self.free));
                self.latencies_ms.push(ms_between(now, self.free));
            }
        }
    }

    #[test]
    fn it_climbs_on_a_free_link_and_falls_on_a_narrow_one() {
        for constants in [Constants::NEWEST, Constants::EARLIER] {
            let mut policy = AwStream::new(constants);
            let mut path = Path { free: Instant::ZERO, latencies_ms: Vec::new(), levels: Vec::new() };
            path.frames(&mut policy, 0, 1800, 100e3);
            assert_eq!(path.levels.last(), Some(&9), "{}: a minute brings it to the top", constants.name);
            path.frames(&mut policy, 1800, 600, 2e3);
            let level = *path.levels.last().expect("frames were sent");
            assert!(
                level <= 3,
                "{}: 2 kB/ms carry 66 kB in 33 ms, and it is at level {level}",
                constants.name
            );
        }
    }

    #[test]
    fn the_present_level_is_given_up_the_fourth_time() {
        let mut policy = AwStream::new(Constants::NEWEST);
        policy.rates = vec![1.0, 2.0, 3.0];
        policy.level = 2;
        let levels: Vec<usize> = (0..5)
            .map(|_| {
                policy.adjust(3.5);
                policy.level
            })
            .collect();
        assert_eq!(levels, [2, 2, 2, 1, 1]);
    }
}
