//! Estimates how fast the link is now, and remembers the errors of past estimates.

use super::config::{Config, LEARNING_INTERVAL, Mechanism};
use crate::controller::flight::{FASTER, PACKET_BYTES, Passage, Service, ms};

/// The most pairs of a wait and an error that are remembered: the last eight seconds at 15 frames per second.
pub(super) const PAIRS_MAX: usize = 120;
/// The fewest pairs from which the usual size of an error is known.
const SHIFT_PAIRS_MIN: usize = 20;
/// An error above this, in natural logarithms, shows that the link has changed: it is 2.7 times as fast.
const ANOTHER: f64 = 1.0;
/// The link has also changed if it is slower than the worst remembered error by more than this, in natural logarithms: 2.2 times.
const TURNED: f64 = 0.8;
/// The fewest bytes that can show that the link has become far slower: three packets.
const FEW_BYTES_MIN: f64 = 3.0 * PACKET_BYTES;
/// Fewer bytes than this may arrive in one burst on any link, so they do not show that the link has changed.
const ANOTHER_BYTES_MIN: f64 = 6e3;
/// The errors that are assumed before any was seen: the link may be half as fast as the first frame showed.
const UNKNOWN: [Pair; 2] =
    [Pair::waiting(0.0, PACKET_BYTES, 1.0, 1.0), Pair::waiting(0.0, PACKET_BYTES, 1.0, 2.0)];

/// How long a frame waited behind other stations, and the error of the estimated rate. They are kept
/// together, because a link that others use is late and slow at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pair {
    /// Milliseconds of waiting behind other stations, without the time that the first packet itself may have taken.
    wait_ms: f64,
    /// The part of the wait that the first packet may have taken, as bytes. Its time depends on the rate of
    /// the link.
    packet_bytes: f64,
    /// The bytes of the first packet. For a frame of a single packet, its whole size.
    pub(super) first_bytes: f64,
    /// The estimated rate ÷ the measured rate, `exp(−ε)`. Above 1, the link was slower than estimated.
    pub(super) slowness: f64,
    /// Whether the estimate was still coming down to a link that had become slower.
    catching_up: bool,
}

impl Pair {
    /// A pair whose first packet, of `first_bytes`, waited `wait_ms` on a link of `rate` bytes per millisecond.
    const fn waiting(wait_ms: f64, first_bytes: f64, rate: f64, slowness: f64) -> Self {
        let packet_ms = wait_ms.min(first_bytes / rate);
        let packet_bytes = packet_ms * rate;
        Self { wait_ms: wait_ms - packet_ms, packet_bytes, first_bytes, slowness, catching_up: false }
    }

    /// The wait in milliseconds of a frame of `bytes` on a link of `rate` bytes per millisecond, until as many of its bytes are through as the
    /// remembered first packet had. A frame smaller than that packet waits less. Among frames of a single packet, only this wait depends on the size.
    pub(super) fn wait_at(&self, rate: f64, bytes: f64) -> f64 {
        let fewer_bytes = (self.first_bytes - bytes).max(0.0);
        self.wait_ms + (self.packet_bytes - fewer_bytes).max(0.0) / rate
    }
}

/// A finished measurement of the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Bytes of the first packet.
    pub(super) first_bytes: f64,
    /// Bytes after the first arrival.
    pub(super) bytes: f64,
    /// Milliseconds from the first arrival to the last of `bytes`.
    pub(super) took_ms: f64,
    /// The last part of `bytes`.
    pub(super) lately: Option<Passage>,
    /// Milliseconds that the frame's first byte had waited for the link.
    pub(super) wait_ms: f64,
    /// An upper bound of the first packet's time on its way, in milliseconds: its time beyond the smallest delay, plus a whole
    /// round trip. The smallest delay itself is unusable here, because it contains the difference of two clocks. 0: not known.
    pub(super) on_way_ms_max: f64,
    /// Whether the congestion window held the frame back. The link may then be faster.
    pub(super) window_limited: bool,
    /// Whether the frame was cancelled because it took too long. The link has then changed.
    pub(super) cancelled: bool,
}

impl Sample {
    /// A sample of `bytes` that took `took_ms`, of a frame that did not wait.
    pub(super) const fn passed(bytes: f64, took_ms: f64) -> Self {
        Self {
            first_bytes: PACKET_BYTES,
            bytes,
            took_ms,
            lately: None,
            wait_ms: 0.0,
            on_way_ms_max: 0.0,
            window_limited: false,
            cancelled: false,
        }
    }
}

/// The moving average `x` of the logarithm of the rate, and its past errors.
#[derive(Debug)]
pub(super) struct Rate {
    /// Natural logarithm of bytes per millisecond. `None` until a frame was measured.
    log_rate: Option<f64>,
    pairs: Vec<Pair>,
    next: usize,
    /// While `pairs` has room: the index of the pair whose error is stored with the next wait that has no error of its own.
    waits: usize,
    /// The number of further samples that weigh more than usual.
    renewed: u32,
    /// The last error, in standard deviations.
    deviations: f64,
    /// Whether the estimate is still coming down after a surprise.
    catching_up: bool,
    /// Whether the last frame was too small to measure anything.
    pub(super) blind: bool,
    /// Whether the last frame did not measure the link's rate, because it was too small or took too short a time.
    pub(super) is_dull: bool,
    /// Whether the last frame showed that the link is much faster than estimated.
    pub(super) is_faster: bool,
    /// Whether the last frame showed that the link has changed: it is several times as fast.
    pub(super) is_another: bool,
    /// Whether the congestion window held back the last sample.
    pub(super) window_limited: bool,
    /// The most samples that one frame may count for, if it kept the link busy for that long.
    steps: f64,
}

impl Rate {
    pub(super) fn new() -> Self {
        Self {
            log_rate: None,
            pairs: Vec::with_capacity(PAIRS_MAX),
            next: 0,
            waits: 0,
            renewed: 0,
            deviations: 0.0,
            catching_up: false,
            blind: false,
            is_dull: false,
            is_faster: false,
            is_another: false,
            window_limited: false,
            steps: 1.0,
        }
    }

    /// Sets the most samples that one frame may count for.
    pub(super) fn set_steps(&mut self, steps: f64) {
        self.steps = steps;
    }

    /// Updates the estimate, `x ← x + α (y − x)` with `y = ln(bytes ÷ time)`, and remembers the error.
    pub(super) fn record(&mut self, config: &Config, sample: &Sample) {
        self.window_limited = sample.window_limited;
        // A frame of one packet has no duration.
        self.blind = sample.bytes < 1.0;
        (self.is_dull, self.is_faster, self.is_another) = (self.blind, false, false);
        if self.blind {
            self.record_packet(config, sample);
            return;
        }
        // A short burst, or a few packets that nothing held up, may show the rate of a buffer on the way
        // instead of the link's. Like a frame that the window held back, they give only a lower bound of the
        // link's rate.
        let few = sample.bytes < config.sample_bytes_min && sample.took_ms < config.censor_ms_min;
        let at_least = sample.window_limited || few || sample.took_ms < config.sample_ms_min;
        let measured = (sample.bytes / sample.took_ms.max(config.sample_ms_min)).ln();
        let Some(log_rate) = self.log_rate else {
            self.log_rate = Some(measured);
            return;
        };
        let error = measured - log_rate;
        (self.is_faster, self.is_another) =
            (error > FASTER, error > ANOTHER && sample.bytes >= ANOTHER_BYTES_MIN);
        // Too few bytes to be sure, as long as the estimate holds.
        self.is_dull = few;
        if at_least && error < 0.0 {
            self.remember_wait(config, sample);
            return;
        }
        let deviation = self.deviation();
        let shifted = self.shifted(error, deviation);
        let whole = Passage { bytes: sample.bytes, ms: sample.took_ms };
        let service = Service { whole, lately: sample.lately };
        let turned = self.turned(config, &service, false);
        let turned = turned.filter(|_| !sample.window_limited && !sample.cancelled);
        let error = turned.unwrap_or(error);
        // Until the estimate has come down, further frames repeat the same error. All of them count as one surprise.
        let slower_by = |deviations: f64| deviation.is_some_and(|one| error < -deviations * one);
        let catching_up = self.catching_up && slower_by(1.0);
        let wait_ms = if config.has(Mechanism::Waits) { sample.wait_ms.max(0.0) } else { 0.0 };
        let pair = Pair::waiting(wait_ms, sample.first_bytes, log_rate.exp(), (-error).exp());
        if config.has(Mechanism::Errors) {
            self.remember(Pair { catching_up, ..pair });
        }
        self.catching_up = config.has(Mechanism::OneSurprise)
            && (catching_up || slower_by(config.surprise) || (sample.cancelled && error < 0.0));
        let gain = if sample.cancelled || turned.is_some() {
            config.gain_another
        } else if self.renewed > 0 {
            self.renewed -= 1;
            config.gain_renewed
        } else if shifted {
            config.gain_renewed
        } else if sample.took_ms < config.short_ms {
            config.gain_short
        } else {
            config.gain
        };
        // A long sample counts for as many samples as a faster stream would have taken in the meantime.
        let steps = (sample.took_ms / ms(LEARNING_INTERVAL)).clamp(1.0, self.steps);
        let gain = 1.0 - (1.0 - gain).powf(steps);
        self.log_rate = Some(log_rate + gain * error);
        // Frames without bytes or without a duration are not recorded.
        debug_assert!(self.log_rate.is_some_and(f64::is_finite), "a rate of {:?}", self.log_rate);
    }

    /// Takes in a frame of a single packet. Such a frame has no duration, but it occupied the link for no longer than it was on its way.
    /// That time bounds the rate from below. Without this bound, an estimate that is too low would stay while all frames are single packets.
    fn record_packet(&mut self, config: &Config, sample: &Sample) {
        let at_least = (sample.first_bytes / sample.on_way_ms_max.max(config.sample_ms_min)).ln();
        let knows = sample.on_way_ms_max > 0.0 && config.has(Mechanism::SinglePackets);
        if let Some(log_rate) = self.log_rate.filter(|log_rate| knows && *log_rate < at_least) {
            self.log_rate = Some(log_rate + config.gain * (at_least - log_rate));
        }
        self.remember_wait(config, sample);
    }

    /// Remembers the wait of a frame that did not measure the rate, with the error of another frame.
    /// Otherwise one long wait would count for as long as frames are too small to measure the rate.
    fn remember_wait(&mut self, config: &Config, sample: &Sample) {
        let Some(log_rate) = self.log_rate.filter(|_| config.has(Mechanism::Waits)) else { return };
        if self.pairs.is_empty() || sample.cancelled {
            return;
        }
        // The wait takes the error of the pair that it replaces. While there is room, it takes the pairs' errors in turn.
        let like = if self.pairs.len() < PAIRS_MAX { self.waits } else { self.next };
        self.waits = (like + 1) % self.pairs.len();
        let Pair { slowness, catching_up, .. } = self.pairs[like];
        let pair = Pair::waiting(sample.wait_ms.max(0.0), sample.first_bytes, log_rate.exp(), slowness);
        self.remember(Pair { catching_up, ..pair });
    }

    /// The standard deviation of the remembered errors, once there are enough of them.
    fn deviation(&self) -> Option<f64> {
        let squares: f64 = self.pairs.iter().map(|pair| pair.slowness.ln().powi(2)).sum();
        (self.pairs.len() >= SHIFT_PAIRS_MIN).then(|| (squares / self.pairs.len() as f64).sqrt().max(1e-6))
    }

    /// Whether two successive errors of the same sign, each above a standard deviation, show that the rate has changed.
    fn shifted(&mut self, error: f64, deviation: Option<f64>) -> bool {
        let Some(deviation) = deviation else { return false };
        let deviations = error / deviation;
        let before = std::mem::replace(&mut self.deviations, deviations);
        before * deviations > 0.0 && before.abs().min(deviations.abs()) > 1.0
    }

    /// The error of a frame that shows that the link has become far slower than any remembered error. All bytes of the
    /// frame may show it, or the last of them. A shared link has larger remembered errors, so it must slow down by
    /// more than a steady link. A few packets show a slower link if they took far longer than any remembered wait and
    /// error predict. For a finished frame, its last packets must show this too: otherwise there was only a pause.
    fn turned(&self, config: &Config, service: &Service, is_in_service: bool) -> Option<f64> {
        let log_rate = self
            .log_rate
            .filter(|_| self.pairs.len() >= SHIFT_PAIRS_MIN && config.has(Mechanism::AnotherLink))?;
        let rate = log_rate.exp();
        let is_long = |part: &Passage| {
            let ms =
                self.pairs().map(|pair| pair.wait_at(rate, part.bytes) + part.bytes * pair.slowness / rate);
            part.ms > config.censor_ms_min.max(TURNED.exp() * ms.fold(0.0, f64::max))
        };
        let lasts = is_in_service || service.lately.as_ref().is_some_and(is_long);
        let few = Some(service.whole).filter(|whole| whole.bytes >= FEW_BYTES_MIN && lasts && is_long(whole));
        let is_enough =
            |part: &Passage| part.bytes >= config.sample_bytes_min && part.ms > config.censor_ms_min;
        let parts = [Some(service.whole), service.lately].into_iter().flatten().filter(is_enough).chain(few);
        let error = parts.map(|part| part.rate().ln() - log_rate).reduce(f64::min)?;
        let worst = self.pairs().fold(1.0, |worst: f64, pair| worst.max(pair.slowness));
        (error < -worst.ln() - TURNED).then_some(error)
    }

    fn remember(&mut self, pair: Pair) {
        if self.pairs.len() < PAIRS_MAX {
            self.pairs.push(pair);
        } else {
            self.pairs[self.next] = pair;
            self.next = (self.next + 1) % PAIRS_MAX;
        }
    }

    /// Makes the next samples weigh more, because the link has come back and its estimate is old.
    pub(super) fn renew(&mut self, config: &Config) {
        self.renewed = config.renewed_samples;
    }

    /// The estimated rate in bytes per millisecond, once a frame was measured.
    ///
    /// A frame in service gives an upper bound of the rate. If the bound is below the estimate, the mean of both logarithms counts
    /// for now. If the link has changed, the bound alone counts. The bound is not remembered, because the frame is not whole yet.
    pub(super) fn estimate(&self, config: &Config, service: Option<Service>) -> Option<f64> {
        let log_rate = self.log_rate?;
        let turned = service.and_then(|service| self.turned(config, &service, true));
        let seen = service.map(|service| service.whole).filter(|whole| whole.ms > config.censor_ms_min);
        let middle = seen.map_or(log_rate, |whole| log_rate.min(f64::midpoint(log_rate, whole.rate().ln())));
        Some(turned.map_or(middle, |error| log_rate + error).exp())
    }

    /// Past waits and errors; never empty.
    ///
    /// Errors of an estimate that was still coming down count only while it does. The first error of a step stays. If
    /// the further errors stayed too, the policy would expect several such steps for as long as it remembers them.
    pub(super) fn pairs(&self) -> impl Iterator<Item = &Pair> + Clone {
        let pairs: &[Pair] = if self.pairs.is_empty() { &UNKNOWN } else { &self.pairs };
        let all = self.catching_up;
        pairs.iter().filter(move |pair| all || !pair.catching_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(bytes: f64, took_ms: f64) -> Sample {
        Sample::passed(bytes, took_ms)
    }

    #[test]
    fn the_estimate_follows_and_the_errors_are_kept() {
        let config = Config::default();
        let mut rate = Rate::new();
        assert_eq!(rate.estimate(&config, None), None);
        rate.record(&config, &sample(100e3, 10.0));
        assert!((rate.estimate(&config, None).unwrap() - 10e3).abs() < 1.0);
        rate.record(&config, &sample(100e3, 20.0));
        assert!((rate.pairs().next().unwrap().slowness - 2.0).abs() < 1e-9, "half as fast as thought");
        for _ in 0..40 {
            rate.record(&config, &sample(100e3, 20.0));
        }
        assert!((rate.estimate(&config, None).unwrap() / 5e3 - 1.0).abs() < 0.01);
    }

    /// In a stream of few frames, a long sample counts for several. A short sample, and a sample of a fast stream, counts for one.
    #[test]
    fn a_long_sample_of_a_slow_stream_counts_for_several() {
        let config = Config::default();
        let after = |steps: f64, took_ms: f64| {
            let mut rate = Rate::new();
            rate.set_steps(steps);
            rate.record(&config, &sample(2e3 * took_ms, took_ms));
            rate.record(&config, &sample(1e3 * took_ms, took_ms));
            rate.estimate(&config, None).unwrap()
        };
        let once = 2e3 * 0.5f64.powf(config.gain);
        assert!((after(1.0, 250.0) - once).abs() < 1.0, "a fast stream");
        assert!((after(4.0, 20.0) - once).abs() < 1.0, "a short sample");
        let three_times = 2e3 * 0.5f64.powf(1.0 - (1.0 - config.gain).powi(3));
        assert!((after(3.0, 250.0) - three_times).abs() < 1.0, "no more than the steps");
    }

    /// A packet of 900 bytes was under way for at most 60 ms, so the link carries at least 15 bytes per millisecond.
    #[test]
    fn single_packets_show_a_link_that_is_faster_and_none_that_is_slower() {
        let packet = |wait_ms: f64| Sample {
            first_bytes: 900.0,
            wait_ms,
            on_way_ms_max: wait_ms + 50.0,
            ..sample(0.0, 0.0)
        };
        let after = |config: &Config, bytes_per_ms: f64, wait_ms: f64| {
            let mut rate = Rate::new();
            rate.record(config, &sample(2e3, 2e3 / bytes_per_ms));
            (0..30).for_each(|_| rate.record(config, &packet(wait_ms)));
            rate.estimate(config, None).unwrap()
        };
        let near = |rate: f64, expected: f64| (rate / expected - 1.0).abs() < 0.02;
        let config = Config::default();
        assert!(near(after(&config, 7.0, 10.0), 15.0), "{}", after(&config, 7.0, 10.0));
        assert!(near(after(&config, 20.0, 10.0), 20.0), "it is no upper bound");
        assert!(near(after(&config, 20.0, 200.0), 20.0), "others may have been on the link");
        let without = Config { off: Some(Mechanism::SinglePackets), ..config };
        assert!(near(after(&without, 7.0, 10.0), 7.0));
    }

    #[test]
    fn a_window_that_limits_does_not_pull_the_estimate_down() {
        let config = Config::default();
        let mut rate = Rate::new();
        rate.record(&config, &sample(100e3, 10.0));
        rate.record(&config, &Sample { window_limited: true, ..sample(100e3, 100.0) });
        assert!((rate.estimate(&config, None).unwrap() - 10e3).abs() < 1.0);
        rate.record(&config, &Sample { window_limited: true, ..sample(100e3, 5.0) });
        assert!(rate.estimate(&config, None).unwrap() > 11e3);
    }

    #[test]
    fn a_frame_in_service_pulls_the_estimate_down_only_while_it_lasts() {
        let config = Config::default();
        let mut rate = Rate::new();
        rate.record(&config, &sample(100e3, 10.0));
        let through = |bytes: f64, ms: f64| Some(Service { whole: Passage { bytes, ms }, lately: None });
        let slow = rate.estimate(&config, through(10e3, 100.0)).unwrap();
        assert!((slow - 1e3).abs() < 1.0, "the geometric mean of 10 kB and 0.1 kB per millisecond: {slow}");
        assert!(
            (rate.estimate(&config, through(10e3, 9.0)).unwrap() - 10e3).abs() < 1.0,
            "too early to tell"
        );
        assert!((rate.estimate(&config, None).unwrap() - 10e3).abs() < 1.0);
    }

    /// Records frames of a link whose rate varies by a twentieth around `bytes_per_ms`.
    fn step(rate: &mut Rate, config: &Config, frames: std::ops::Range<u32>, bytes_per_ms: f64) {
        for frame in frames {
            let wobble = if frame % 2 == 0 { 0.95 } else { 1.05 };
            rate.record(config, &sample(100e3, 100e3 / bytes_per_ms * wobble));
        }
    }

    #[test]
    fn a_step_is_one_surprise_and_what_follows_it_counts_only_meanwhile() {
        let config = Config::default();
        let mut rate = Rate::new();
        step(&mut rate, &config, 0..60, 5e3);
        let far_off = |rate: &Rate| rate.pairs().filter(|pair| pair.slowness > 1.3).count();
        assert_eq!(far_off(&rate), 0);
        step(&mut rate, &config, 60..62, 2.5e3);
        assert_eq!(far_off(&rate), 2, "the estimate is still coming down");
        step(&mut rate, &config, 62..70, 2.5e3);
        assert_eq!(far_off(&rate), 1, "one step, one surprise");
        assert!((rate.estimate(&config, None).unwrap() / 2.5e3 - 1.0).abs() < 0.1);
        // A link that becomes faster does no harm by its surprise, so all of its errors count.
        step(&mut rate, &config, 70..80, 12.5e3);
        assert_eq!(rate.pairs().filter(|pair| pair.slowness < 0.7).count(), 3);
    }

    #[test]
    fn a_link_far_slower_than_any_error_had_it_is_another_at_once() {
        let config = Config::default();
        let mut steady = Rate::new();
        step(&mut steady, &config, 0..60, 5e3);
        let near = |rate: f64, expected: f64| (rate / expected - 1.0).abs() < 0.1;
        let lately = Passage { bytes: 20e3, ms: 20.0 };
        let service = Service { whole: Passage { bytes: 120e3, ms: 40.0 }, lately: Some(lately) };
        assert!(near(steady.estimate(&config, Some(service)).unwrap(), 1e3), "while it is in service");
        let little = Service { lately: Some(Passage { bytes: 4e3, ms: 20.0 }), ..service };
        let middle = (5e3f64 * 3e3).sqrt();
        assert!(near(steady.estimate(&config, Some(little)).unwrap(), middle), "too little to tell by");
        assert!(near(steady.estimate(&config, None).unwrap(), 5e3));
        steady.record(&config, &Sample { lately: Some(lately), ..sample(200e3, 60.0) });
        assert!(near(steady.estimate(&config, None).unwrap(), 1e3), "and when it is over");

        // If others use the link, one frame in ten is three times as slow as expected. A fifth of the rate is then weaker evidence.
        let mut shared = Rate::new();
        for frame in 0..60 {
            shared.record(&config, &sample(100e3, if frame % 10 == 5 { 60.0 } else { 20.0 }));
        }
        assert!(shared.estimate(&config, Some(service)).unwrap() > 2e3);
    }

    /// Four packets that took far too long and still arrive slowly show another link. A pause that is over does not.
    #[test]
    fn a_few_packets_that_take_far_too_long_show_another_link() {
        let config = Config::default();
        let near = |rate: Option<f64>, expected: f64| (rate.unwrap() / expected - 1.0).abs() < 0.1;
        let mut steady = Rate::new();
        step(&mut steady, &config, 0..60, 5e3);
        let slow = Passage { bytes: 2.4e3, ms: 32.0 };
        let of = |bytes, ms| Some(Service { whole: Passage { bytes, ms }, lately: Some(slow) });
        assert!(near(steady.estimate(&config, of(4.8e3, 64.0)), 75.0), "while it is in service");
        assert!(
            near(steady.estimate(&config, of(2.4e3, 32.0)), (5e3f64 * 75.0).sqrt()),
            "two packets are too few"
        );
        let mut paused = Rate::new();
        step(&mut paused, &config, 0..61, 5e3);
        steady.record(&config, &Sample { lately: Some(slow), ..sample(8e3, 107.0) });
        assert!(near(steady.estimate(&config, None), 75.0), "and when it is over");
        let fast = Passage { ms: 0.5, ..slow };
        paused.record(&config, &Sample { lately: Some(fast), ..sample(8e3, 107.0) });
        assert!(paused.estimate(&config, None).unwrap() > 1e3, "the link was away for a while");
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_pair_goes_first() {
        let config = Config::default();
        let mut rate = Rate::new();
        for index in 0..1000 {
            rate.record(&config, &Sample { wait_ms: f64::from(index), ..sample(100e3, 10.0) });
        }
        assert_eq!(rate.pairs().count(), PAIRS_MAX);
        assert!(rate.pairs().all(|pair| pair.wait_at(10e3, 100e3) >= (1000 - PAIRS_MAX) as f64));
    }
}
