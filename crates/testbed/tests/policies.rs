//! Policies in virtual time: the simulation, the oracle, and the guarantees of Mez's own policy. Its constants were not tuned on these seeds.

use std::time::Duration;

use mez_core::controller::quantile::{Config, Quantile};
use mez_core::controller::share::Goal;
use mez_core::controller::{Arrival, Decision, Offer, Policy, SentFrame};
use mez_core::frame::FrameId;
use mez_core::profile::{ByteSizes, Profile, RungProfile};
use mez_core::units::Instant;
use mez_testbed::channel::capacity::Capacity;
use mez_testbed::channel::classes::CLASSES;
use mez_testbed::channel::links::{Kind, Mark};
use mez_testbed::policies::entrants::Entrant;
use mez_testbed::policies::oracle;
use mez_testbed::policies::reference::{ACCURACY_BYTES, ACCURACY_BYTES_OF_FIVE, SIZE_NOISE, ladder};
use mez_testbed::policies::run::{run, watched};
use mez_testbed::policies::score::{Reaction, reactions, score};
use mez_testbed::policies::setting::{CameraSetting, Queueing, Setting, Sizes, SlotResult, Slots};
use mez_testbed::random::Random;

const INTERVAL: Duration = Duration::from_nanos(66_666_667);

fn setting(capacity: Capacity, accuracies: &[f64], seconds: u64, seed: u64) -> Setting {
    let phase = |index: usize| INTERVAL * index as u32 / accuracies.len() as u32;
    let cameras = accuracies.iter().enumerate().map(|(index, bytes)| CameraSetting {
        ladder: ladder(*bytes),
        phase: phase(index),
        latency_bound: Duration::from_millis(100),
        accuracy_floor: None,
    });
    Setting {
        capacity,
        delay: Duration::from_millis(3),
        interval: INTERVAL,
        cameras: cameras.collect(),
        window_bytes: 65_536.0,
        duration: Duration::from_secs(seconds),
        sizes: Sizes::Drawn { noise: SIZE_NOISE, seed },
        queueing: Queueing::NewestWins,
        share: None,
    }
}

fn results(setting: &Setting, slots: &Slots, entrant: Entrant) -> Vec<Vec<SlotResult>> {
    let mut policies: Vec<_> = setting.cameras.iter().map(|_| entrant.policy(setting)).collect();
    run(setting, slots, &mut policies)
}

/// The best of all possible plans, for few frames and rungs.
fn best_by_trying(setting: &Setting, slots: &Slots, frame: usize, free: f64) -> f64 {
    if frame == slots.frames {
        return 0.0;
    }
    let spec = &setting.cameras[0];
    let captured = slots.captured(0, frame);
    let free = free.max(setting.capacity.passed(captured));
    let due = setting.capacity.passed(captured + spec.latency_bound - setting.delay);
    let mut best = best_by_trying(setting, slots, frame + 1, free);
    for (rung, profile) in spec.ladder.rungs().iter().enumerate() {
        let end = free + slots.bytes(0, frame, &spec.ladder, rung);
        if end <= due {
            best = best.max(profile.accuracy + best_by_trying(setting, slots, frame + 1, end));
        }
    }
    best
}

#[test]
fn the_oracle_finds_the_best_of_all_plans() {
    for seed in 500..520 {
        let link = CLASSES[seed as usize % 3].capacity(1_000, &mut Random::seeded(seed));
        // A slow link, so that frames compete.
        let mut setting = setting(link.times(0.4), &[ACCURACY_BYTES], 1, seed);
        setting.duration = INTERVAL * 5;
        let slots = Slots::new(&setting);
        let plan = oracle::plan(&setting, &slots);
        let planned = plan.score(&setting, 0).utility * slots.frames as f64;
        let best = best_by_trying(&setting, &slots, 0, 0.0);
        assert!((planned - best).abs() < 1e-9, "seed {seed}: {planned}, and the best is {best}");
    }
}

#[test]
fn nobody_beats_the_oracle_and_the_same_seed_gives_the_same_run() {
    for (index, class) in CLASSES.iter().enumerate() {
        let seed = 600 + index as u64;
        let link = class.capacity(25_000, &mut Random::seeded(seed));
        let setting = setting(link, &[ACCURACY_BYTES], 20, seed);
        let slots = Slots::new(&setting);
        let best = oracle::plan(&setting, &slots).score(&setting, 0).utility;
        for entrant in Entrant::all() {
            let (first, second) = (results(&setting, &slots, entrant), results(&setting, &slots, entrant));
            let utility = score(&setting, 0, &first[0]).utility;
            assert!(utility <= best + 1e-9, "{} on {}: {utility} of {best}", entrant.name(), class.name);
            assert_eq!(first, second, "{}", entrant.name());
        }
    }
}

#[test]
fn the_own_policy_is_close_to_the_oracle_and_knows_how_often_it_is_late() {
    for (class, share) in CLASSES.iter().zip([0.97, 0.94, 0.89]) {
        let (mut reached, mut possible, mut expected, mut actual, mut frames) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for seed in 700..704 {
            let link = class.capacity(65_000, &mut Random::seeded(seed));
            let setting = setting(link, &[ACCURACY_BYTES], 60, seed);
            let slots = Slots::new(&setting);
            possible += oracle::plan(&setting, &slots).score(&setting, 0).utility;
            let score = score(&setting, 0, &results(&setting, &slots, Entrant::Quantile)[0]);
            reached += score.utility;
            frames += score.predicted.0 as f64;
            expected += score.predicted.1;
            actual += score.predicted.2;
        }
        assert!(reached / possible >= share, "{}: {:.3} of the oracle", class.name, reached / possible);
        let error = (expected - actual) / frames;
        assert!(error.abs() <= 0.02, "{}: calibration is off by {error:.3}", class.name);
    }
}

/// Under `degrade`, an idle link with a waiting frame is silent for at most this time, outside an outage.
const SEND_GAP_MAX: Duration = Duration::from_millis(250);

/// The longest silence of a policy on one link.
fn silence(kind: Kind, seed: u64, delay_ms: u64, times: f64, policy: Box<dyn Policy>) -> Duration {
    let link = kind.link(25_000, &mut Random::seeded(seed)).capacity.times(times);
    let mut setting = setting(link, &[ACCURACY_BYTES], 20, seed);
    setting.delay = Duration::from_millis(delay_ms);
    let slots = Slots::new(&setting);
    watched(&setting, &slots, &mut [policy])[0].silence_max
}

#[test]
fn an_idle_link_with_a_frame_that_waits_is_never_silent() {
    for (name, kind) in Kind::ALL {
        for (seed, delay_ms, times) in [(800, 3, 1.0), (801, 20, 0.2), (802, 70, 1.0), (803, 70, 0.05)] {
            let silence = silence(kind, seed, delay_ms, times, Box::new(Quantile::new(Config::default())));
            assert!(silence <= SEND_GAP_MAX, "{name}, seed {seed}: silent for {silence:?}");
        }
    }
}

/// A bug of an early version: it sends only frames that are on time with the requested probability.
struct OnlySureFrames(Quantile);

impl Policy for OnlySureFrames {
    fn name(&self) -> &'static str {
        "only sure frames"
    }
    fn handle_sent(&mut self, frame: &SentFrame) {
        self.0.handle_sent(frame);
    }
    fn handle_arrival(&mut self, now: Instant, arrival: &Arrival) {
        self.0.handle_arrival(now, arrival);
    }
    fn handle_reset(&mut self, now: Instant, frame: FrameId) {
        self.0.handle_reset(now, frame);
    }
    fn decide(&mut self, offer: &Offer<'_>) -> Decision {
        match self.0.decide(offer) {
            // The last frame is sent eventually, so that the run ends.
            Decision::Send(choice)
                if choice.infeasible
                    && choice.on_time_probability.is_some()
                    && offer.age() < Duration::from_secs(5) =>
            {
                Decision::Wait { until: offer.now + Duration::from_secs(1) }
            }
            decision => decision,
        }
    }
}

#[test]
fn a_policy_that_starves_itself_is_noticed() {
    let policy = || Box::new(OnlySureFrames(Quantile::new(Config::default())));
    let longest = (800..804).map(|seed| silence(Kind::WalkingAway, seed, 3, 0.2, policy())).max();
    assert!(longest > Some(SEND_GAP_MAX), "it went unnoticed: {longest:?}");
}

#[test]
fn after_a_step_or_an_outage_frames_are_soon_on_time_again() {
    for seed in 900..904 {
        for kind in [Kind::Step, Kind::Outages] {
            let link = kind.link(42_000, &mut Random::seeded(seed));
            let setting = setting(link.capacity, &[ACCURACY_BYTES], 40, seed);
            let slots = Slots::new(&setting);
            let results = results(&setting, &slots, Entrant::Quantile);
            let seen = reactions(&setting, &slots, &link.marks, &results[0]);
            assert!(seen.len() >= 3, "seed {seed}: {seen:?}");
            for reaction in seen {
                match reaction {
                    Reaction::Slower { settle_ms, drain_ms } => {
                        assert!(settle_ms <= drain_ms + 400.0, "seed {seed}: {reaction:?}");
                    }
                    Reaction::Recovered { recover_ms } => {
                        assert!(recover_ms <= 500.0, "seed {seed}: {reaction:?}")
                    }
                }
            }
        }
    }
}

/// The share of frames that were called infeasible, among those sent between half a second and five seconds after each step down.
fn infeasible_after_steps(seed: u64, delay_ms: u64, floor: f64) -> f64 {
    let link = Kind::Step.link(62_000, &mut Random::seeded(seed));
    let mut setting = setting(link.capacity, &[ACCURACY_BYTES], 60, seed);
    setting.delay = Duration::from_millis(delay_ms);
    setting.cameras[0].accuracy_floor = Some(floor);
    let slots = Slots::new(&setting);
    let results = results(&setting, &slots, Entrant::Quantile);
    let soon_after = |at: Instant| {
        link.marks.iter().any(|mark| match mark {
            Mark::Slower(step) => {
                let since = at.saturating_since(*step);
                at >= *step && since >= Duration::from_millis(500) && since < Duration::from_secs(5)
            }
            Mark::Back(_) => false,
        })
    };
    let frames = results[0].iter().enumerate().filter(|(frame, _)| soon_after(slots.captured(0, *frame)));
    let sent = frames.filter(|(_, slot)| slot.rung.is_some());
    let frames: Vec<bool> = sent.map(|(_, slot)| slot.infeasible).collect();
    frames.iter().filter(|infeasible| **infeasible).count() as f64 / frames.len() as f64
}

#[test]
fn a_step_down_does_not_make_what_is_kept_look_infeasible_for_long() {
    // An accuracy of 0.82 takes 65 kB, which arrive after 43 ms at 12 Mbit/s.
    for delay_ms in [3, 20] {
        let shares = (930..934).map(|seed| infeasible_after_steps(seed, delay_ms, 0.82));
        let mean = shares.sum::<f64>() / 4.0;
        assert!(mean <= 0.03, "{delay_ms} ms: {mean:.3} of the frames");
    }
    let hopeless = infeasible_after_steps(930, 3, 0.95);
    assert!(hopeless > 0.9, "200 kB do not fit, which is said: {hopeless}");
}

#[test]
fn where_reports_come_late_the_end_of_an_outage_is_not_waited_for() {
    let mut recovered: Vec<f64> = Vec::new();
    for seed in 935..939 {
        let link = Kind::Outages.link(62_000, &mut Random::seeded(seed));
        let mut setting = setting(link.capacity, &[ACCURACY_BYTES], 60, seed);
        setting.delay = Duration::from_millis(70);
        let slots = Slots::new(&setting);
        let results = results(&setting, &slots, Entrant::Quantile);
        let seen = reactions(&setting, &slots, &link.marks, &results[0]).into_iter();
        recovered.extend(seen.filter_map(|reaction| match reaction {
            Reaction::Recovered { recover_ms } => Some(recover_ms),
            Reaction::Slower { .. } => None,
        }));
    }
    recovered.sort_by(f64::total_cmp);
    let median = recovered[recovered.len() / 2];
    // A frame takes 70 ms, and frames are 67 ms apart.
    assert!(median <= 150.0, "{median} ms in the median of {}", recovered.len());
}

#[test]
fn nobody_gives_the_camera_that_has_least_more_than_the_bound() {
    let scenes = [ACCURACY_BYTES_OF_FIVE[0], ACCURACY_BYTES_OF_FIVE[4]];
    for seed in 960..963 {
        let link = CLASSES[seed as usize % 3].capacity(15_000, &mut Random::seeded(seed));
        let mut setting = setting(link, &scenes, 10, seed);
        let slots = Slots::new(&setting);
        let bound = oracle::most_for_worst(&setting, &slots, 12);
        let plan = oracle::plan(&setting, &slots);
        let least = |utility: &dyn Fn(usize) -> f64| utility(0).min(utility(1));
        let planned = least(&|camera| plan.score(&setting, camera).utility);
        assert!(planned <= bound, "seed {seed}: the plan of the greatest sum has {planned}, above {bound}");
        for share in [None, Some(Goal::Sum), Some(Goal::MaxMin)] {
            setting.share = share;
            let results = results(&setting, &slots, Entrant::Quantile);
            let reached = least(&|camera| score(&setting, camera, &results[camera]).utility);
            assert!(reached <= bound, "seed {seed}, {share:?}: {reached}, above {bound}");
            let near = if share == Some(Goal::MaxMin) { 0.85 } else { 0.0 };
            assert!(reached >= near * bound, "seed {seed}: {reached} of {bound}");
        }
    }
}

#[test]
fn cameras_that_share_a_link_do_better_with_shares_from_the_edge() {
    let worst = |share: Option<Goal>| {
        let link = CLASSES[1].capacity(25_000, &mut Random::seeded(950)).times(3.0);
        let mut setting = setting(link, &ACCURACY_BYTES_OF_FIVE, 20, 950);
        setting.share = share;
        let slots = Slots::new(&setting);
        let plan = oracle::plan(&setting, &slots);
        let results = results(&setting, &slots, Entrant::Quantile);
        let shares = (0..5).map(|camera| {
            score(&setting, camera, &results[camera]).utility / plan.score(&setting, camera).utility
        });
        shares.fold(f64::INFINITY, f64::min)
    };
    let (alone, shared) = (worst(None), worst(Some(Goal::Sum)));
    assert!(
        shared > alone && shared > 0.92,
        "the worst camera reaches {alone:.3} alone and {shared:.3} with shares"
    );
}

#[test]
fn a_bound_of_many_frame_intervals_does_not_cost_frames() {
    let link = CLASSES[0].capacity(35_000, &mut Random::seeded(970));
    let mut setting = setting(link, &[ACCURACY_BYTES], 30, 970);
    setting.cameras[0].latency_bound = Duration::from_secs(1);
    let slots = Slots::new(&setting);
    let score = score(&setting, 0, &results(&setting, &slots, Entrant::Quantile)[0]);
    assert!(
        score.on_time_share > 0.95,
        "a large frame kept later ones from being sent: {}",
        score.on_time_share
    );
}

#[test]
fn frames_of_one_packet_do_not_stay_small_for_ever() {
    let link = CLASSES[0].capacity(35_000, &mut Random::seeded(971)).times(0.02);
    let mut setting = setting(link, &[ACCURACY_BYTES], 30, 971);
    let small = setting.cameras[0].ladder.rungs().iter().map(|rung| RungProfile {
        bytes: ByteSizes::around(rung.bytes.mean * 0.02, SIZE_NOISE),
        ..rung.clone()
    });
    setting.cameras[0].ladder = Profile::new(small.collect()).expect("as sound as before").ladder();
    setting.window_bytes = 6e3;
    let slots = Slots::new(&setting);
    let score = score(&setting, 0, &results(&setting, &slots, Entrant::Quantile)[0]);
    // The smallest rung has 400 bytes and an accuracy of 0.75.
    assert!(score.utility > 0.82, "{}", score.utility);
}
