//! How fast the link is now, and how wrong such estimates have been.

use super::config::{Config, Mechanism};
use crate::controller::flight::{PACKET_BYTES, Passage, Service};

/// Pairs of wait and error that are remembered: at 15 frames per second the last eight seconds.
pub(super) const PAIRS_MAX: usize = 120;
/// Before so many pairs it is not known what an error of usual size is.
const SHIFT_PAIRS_MIN: usize = 20;
/// Errors above this, in logarithms, are not the usual: half as fast again.
const FASTER: f64 = 0.4;
/// Above this the link is another: 2.7 times as fast.
const ANOTHER: f64 = 1.0;
/// A link that is slower, by this in logarithms, than the worst of the remembered errors has it is another as well: 2.2 times as slow.
const TURNED: f64 = 0.8;
/// Fewer bytes than these may have come in one burst, whatever the link.
const ANOTHER_BYTES_MIN: f64 = 6e3;
/// What is assumed of errors before any was seen: the link may be half as fast as the first frame showed.
const UNKNOWN: [Pair; 2] = [Pair::waiting(0.0, 1.0, 1.0), Pair::waiting(0.0, 1.0, 2.0)];

/// How long a frame waited behind other stations, and how wrong the estimate of the rate was: kept together, because a
/// link that others use is at once late and slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pair {
    /// Milliseconds behind others, beyond what the first packet itself may have taken.
    wait_ms: f64,
    /// What of the wait the first packet may have taken, as bytes: it takes more or less where the link is another.
    packet_bytes: f64,
    /// The rate that was estimated ÷ the rate that was measured then, `exp(−ε)`: above 1 where the link was slower than
    /// thought.
    pub(super) slowness: f64,
    /// The estimate was still coming down to a link that had become slower.
    catching_up: bool,
}

impl Pair {
    /// The first packet waited so long on a link that carried so many bytes per millisecond.
    const fn waiting(wait_ms: f64, rate: f64, slowness: f64) -> Self {
        let packet_ms = wait_ms.min(PACKET_BYTES / rate);
        let packet_bytes = packet_ms * rate;
        Self { wait_ms: wait_ms - packet_ms, packet_bytes, slowness, catching_up: false }
    }

    /// How long it would have waited on one that carries `rate` bytes per millisecond.
    pub(super) fn wait_at(&self, rate: f64) -> f64 {
        self.wait_ms + self.packet_bytes / rate
    }
}

/// A finished measurement of the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Bytes that took the time.
    pub(super) bytes: f64,
    /// Milliseconds from the first to the last of them.
    pub(super) took_ms: f64,
    /// The last part of them.
    pub(super) lately: Option<Passage>,
    /// Milliseconds that the first of them had waited for the link.
    pub(super) wait_ms: f64,
    /// The congestion window held the frame back, so the link may be faster.
    pub(super) window_limited: bool,
    /// The frame was cancelled because it took too long: the link is another one than was thought.
    pub(super) cancelled: bool,
}

/// The moving average of the logarithm of the rate, `x`, and its past errors.
#[derive(Debug)]
pub(super) struct Rate {
    /// Natural logarithm of bytes per millisecond. `None` until a frame was measured.
    log_rate: Option<f64>,
    pairs: Vec<Pair>,
    next: usize,
    /// Samples that are still to be believed more than usual.
    renewed: u32,
    /// The last error, in standard deviations.
    deviations: f64,
    /// The last error was a surprise, or one of those that follow it until the estimate has come down.
    catching_up: bool,
    /// The last frame was too small to measure anything by.
    pub(super) blind: bool,
    /// The last frame told nothing of the link's rate: it was too small, or it was over too soon.
    pub(super) is_dull: bool,
    /// The last frame showed that the link is much faster than was thought.
    pub(super) is_faster: bool,
    /// It showed that the link is another than it was: several times as fast.
    pub(super) is_another: bool,
    /// The last sample was held back by the congestion window.
    pub(super) window_limited: bool,
}

impl Rate {
    pub(super) fn new() -> Self {
        Self {
            log_rate: None,
            pairs: Vec::with_capacity(PAIRS_MAX),
            next: 0,
            renewed: 0,
            deviations: 0.0,
            catching_up: false,
            blind: false,
            is_dull: false,
            is_faster: false,
            is_another: false,
            window_limited: false,
        }
    }

    /// `x ← x + α (y − x)` with `y = ln(bytes ÷ time)`, and the error is remembered.
    pub(super) fn record(&mut self, config: &Config, sample: &Sample) {
        self.window_limited = sample.window_limited;
        // A frame of one packet has no duration.
        self.blind = sample.bytes < 1.0;
        (self.is_dull, self.is_faster, self.is_another) = (self.blind, false, false);
        if self.blind {
            return;
        }
        // A burst that is over at once, or a few packets that nothing held up, were too short to tell the link's rate from
        // that of a buffer on the way. Like a frame that the window held back, they show what the link carries at least.
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
        // Too little to be sure of, as long as the estimate holds.
        self.is_dull = few;
        if at_least && error < 0.0 {
            return;
        }
        let deviation = self.deviation();
        let shifted = self.shifted(error, deviation);
        let whole = Passage { bytes: sample.bytes, ms: sample.took_ms };
        let service = Service { whole, lately: sample.lately };
        let turned = self.turned(config, &service).filter(|_| !sample.window_limited && !sample.cancelled);
        let error = turned.unwrap_or(error);
        // Until the estimate has come down it is wrong in the same way again: that is one surprise, however many frames show it.
        let slower_by = |deviations: f64| deviation.is_some_and(|one| error < -deviations * one);
        let catching_up = self.catching_up && slower_by(1.0);
        let wait_ms = if config.has(Mechanism::Waits) { sample.wait_ms.max(0.0) } else { 0.0 };
        let pair = Pair::waiting(wait_ms, log_rate.exp(), (-error).exp());
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
        self.log_rate = Some(log_rate + gain * error);
        // Neither a frame without bytes nor one without a time is recorded.
        debug_assert!(self.log_rate.is_some_and(f64::is_finite), "a rate of {:?}", self.log_rate);
    }

    /// The standard deviation of the remembered errors, once there are enough of them.
    fn deviation(&self) -> Option<f64> {
        let squares: f64 = self.pairs.iter().map(|pair| pair.slowness.ln().powi(2)).sum();
        (self.pairs.len() >= SHIFT_PAIRS_MIN).then(|| (squares / self.pairs.len() as f64).sqrt().max(1e-6))
    }

    /// Whether two errors in a row of the same sign, each above a standard deviation, say that the rate is another now.
    fn shifted(&mut self, error: f64, deviation: Option<f64>) -> bool {
        let Some(deviation) = deviation else { return false };
        let deviations = error / deviation;
        let before = std::mem::replace(&mut self.deviations, deviations);
        before * deviations > 0.0 && before.abs().min(deviations.abs()) > 1.0
    }

    /// The error of a frame that shows, by all of it or by what came last, that the link has become another: slower than any of the
    /// remembered errors had it, by far. On a link that others use that takes more than on one that was steady until now.
    fn turned(&self, config: &Config, service: &Service) -> Option<f64> {
        let log_rate = self
            .log_rate
            .filter(|_| self.pairs.len() >= SHIFT_PAIRS_MIN && config.has(Mechanism::AnotherLink))?;
        let is_enough =
            |part: &Passage| part.bytes >= config.sample_bytes_min && part.ms > config.censor_ms_min;
        let parts = [Some(service.whole), service.lately].into_iter().flatten().filter(is_enough);
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

    /// The link has come back: what is known of it is old.
    pub(super) fn renew(&mut self, config: &Config) {
        self.renewed = config.renewed_samples;
    }

    /// Bytes per millisecond, once a frame was measured.
    ///
    /// A frame that is still in service shows an upper bound of the rate. Where that is below the estimate, the middle of both
    /// logarithms counts for now, and all of it where the link has become another; it is not remembered, since the frame is not over.
    pub(super) fn estimate(&self, config: &Config, service: Option<Service>) -> Option<f64> {
        let log_rate = self.log_rate?;
        let turned = service.and_then(|service| self.turned(config, &service));
        let seen = service.map(|service| service.whole).filter(|whole| whole.ms > config.censor_ms_min);
        let middle = seen.map_or(log_rate, |whole| log_rate.min(f64::midpoint(log_rate, whole.rate().ln())));
        Some(turned.map_or(middle, |error| log_rate + error).exp())
    }

    /// Past waits and errors; never empty.
    ///
    /// Those of an estimate that was still coming down count only while it does: with the first error of a step the others would say
    /// that several such steps have to be expected, for as long as they are remembered.
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
        Sample { bytes, took_ms, lately: None, wait_ms: 0.0, window_limited: false, cancelled: false }
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

    /// Frames of a link that varies by a twentieth, some of them after a step to a fifth of the rate.
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
        // A link that became faster surprises nobody to their harm: all of it counts.
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

        // Where others use the link a frame in ten is three times as slow as thought, and a fifth of the rate tells less.
        let mut shared = Rate::new();
        for frame in 0..60 {
            shared.record(&config, &sample(100e3, if frame % 10 == 5 { 60.0 } else { 20.0 }));
        }
        assert!(shared.estimate(&config, Some(service)).unwrap() > 2e3);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_pair_goes_first() {
        let config = Config::default();
        let mut rate = Rate::new();
        for index in 0..1000 {
            rate.record(&config, &Sample { wait_ms: f64::from(index), ..sample(100e3, 10.0) });
        }
        assert_eq!(rate.pairs().count(), PAIRS_MAX);
        assert!(rate.pairs().all(|pair| pair.wait_at(10e3) >= (1000 - PAIRS_MAX) as f64));
    }
}
