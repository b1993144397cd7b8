//! Answers of applications to frames, which go back to the publisher: stories, planted bugs that the rules detect, and random worlds in which every
//! rule holds.

use std::time::Duration;

use mez_core::wire::AnswerSkip;
use mez_testbed::scenario::answering;
use mez_testbed::{
    Action, AnswerSpec, ApplicationId, ApplicationSpec, Bug, CameraId, CameraSpec, Counter, EdgeId, Failure,
    Moment, TakeSpec, World, mbps, ms, noticed, secs,
};

const EDGE: EdgeId = EdgeId::FIRST;

/// A camera with ten frames per second whose publisher takes answers.
fn one_camera(seed: u64, spec: CameraSpec, takes: TakeSpec) -> (World, CameraId) {
    let mut world = World::seeded(seed);
    let camera = world.camera("dock/cam1", spec);
    world.act(Action::TakeAnswers(camera, Some(takes)));
    (world, camera)
}

fn answers(bytes: u32) -> AnswerSpec {
    AnswerSpec { bytes: bytes..=bytes, ..AnswerSpec::default() }
}

fn at(millis: u64) -> Moment {
    Moment::START + ms(millis)
}

// ---- stories ----------------------------------------------------------------------------------------------

/// On a good link, the publisher gets the answer to each frame.
#[test]
fn every_answer_comes_back() {
    let takes = TakeSpec::within(ms(200));
    let (mut world, camera) = one_camera(1, CameraSpec::frames(10, 10_000), takes);
    let engine = world.application(ApplicationSpec::newest("dock/*").answering(answers(20_000)));
    world.run(secs(10));
    let (given, skipped) = world.answers(camera);
    assert!(world.answers_accepted(engine) > 90 && given + 1 >= world.answers_accepted(engine), "{given}");
    assert_eq!(skipped.total(), 0, "{skipped:?}");
}

/// A downlink at a fraction of the rate gives up answers, and all of them are told.
#[test]
fn a_slow_downlink_tells_what_it_gives_up() {
    let takes = TakeSpec::within(ms(200));
    let (mut world, camera) = one_camera(2, CameraSpec::frames(10, 3_000).at_rate(mbps(1)), takes);
    let spec = AnswerSpec { until: at(10_000), ..answers(24_000) };
    let engine = world.application(ApplicationSpec::newest("dock/*").answering(spec));
    world.run(secs(15));
    let (given, skipped) = world.answers(camera);
    assert!(skipped.get(AnswerSkip::Late) + skipped.get(AnswerSkip::Replaced) > 20, "{given}, {skipped:?}");
    assert_eq!(given + skipped.total(), world.answers_accepted(engine), "{skipped:?}");
}

/// Two engines answer the same frames, and a slow publisher takes some of the answers.
#[test]
fn several_engines_and_a_slow_publisher_keep_one_account() {
    let takes = TakeSpec { bound: ms(300), pause: ms(250) };
    let (mut world, camera) = one_camera(3, CameraSpec::frames(10, 10_000), takes);
    let spec = AnswerSpec { computes: ms(1)..=ms(150), until: at(10_000), ..answers(5_000) };
    let engines: Vec<ApplicationId> = (0..2)
        .map(|_| world.application(ApplicationSpec::newest("dock/*").answering(spec.clone())))
        .collect();
    world.run(secs(15));
    let (given, skipped) = world.answers(camera);
    let accepted: u64 = engines.iter().map(|engine| world.answers_accepted(*engine)).sum();
    for reason in [AnswerSkip::Repeated, AnswerSkip::Overtaken, AnswerSkip::Unread] {
        assert!(skipped.get(reason) > 10, "{skipped:?}");
    }
    assert_eq!(given + skipped.total(), accepted, "{skipped:?}");
}

/// A publisher that stops taking answers is told how many came meanwhile when it begins again.
#[test]
fn what_comes_while_nobody_takes_answers_is_told_later() {
    let takes = TakeSpec::within(ms(200));
    let (mut world, camera) = one_camera(4, CameraSpec::frames(10, 10_000), takes);
    let spec = AnswerSpec { until: at(10_000), ..answers(5_000) };
    let engine = world.application(ApplicationSpec::newest("dock/*").answering(spec));
    world.at(at(3_000), Action::TakeAnswers(camera, None));
    world.at(at(6_000), Action::TakeAnswers(camera, Some(takes)));
    world.run(secs(13));
    let (given, skipped) = world.answers(camera);
    assert!((25..=32).contains(&skipped.get(AnswerSkip::NotWanted)), "{skipped:?}");
    assert_eq!(given + skipped.total(), world.answers_accepted(engine));
}

// ---- planted bugs -----------------------------------------------------------------------------------------

/// Two engines and a slow publisher on a link that becomes slow, with a cut and restarts of edge and camera. At the end no frame is answered.
fn run(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    let takes = TakeSpec { bound: ms(200), pause: ms(120) };
    let (mut world, camera) = one_camera(5, CameraSpec::frames(10, 10_000).at_rate(mbps(4)), takes);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let spec =
        AnswerSpec { computes: ms(1)..=ms(60), replaced_once_in: 20, until: at(25_000), ..answers(25_000) };
    for _ in 0..2 {
        world.application(ApplicationSpec::newest("dock/*").answering(spec.clone()));
    }
    world.at(at(4_000), Action::Slow(camera, 4)).at(at(7_000), Action::Slow(camera, 1));
    world.at(at(9_000), Action::Cut(camera)).at(at(9_400), Action::Restore(camera));
    world.at(at(14_000), Action::KillEdge(EDGE)).at(at(14_500), Action::StartEdge(EDGE));
    world.at(at(20_000), Action::KillCamera(camera));
    world.at(at(20_500), Action::StartCamera(camera, Counter::Kept));
    world.at(at(22_000), Action::Slow(camera, 4)).at(at(24_000), Action::Slow(camera, 1));
    world.try_run(secs(31))?;
    assert!(world.answers(camera).0 > 100);
    Ok(())
}

fn assert_noticed(bug: Bug, rule: &str) {
    noticed(bug, run(Some(bug)).err(), rule);
}

#[test]
fn nothing_is_noticed_where_nothing_is_planted() {
    run(None).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_replaced_answer_that_is_not_counted_is_noticed() {
    assert_noticed(Bug::ReplacedAnswerUncounted, "answer account");
}

#[test]
fn an_answer_that_was_not_read_and_is_not_told_is_noticed() {
    assert_noticed(Bug::UnreadAnswerForgotten, "answer account");
}

#[test]
fn an_older_answer_is_noticed() {
    assert_noticed(Bug::OlderAnswerGiven, "answer order");
}

#[test]
fn an_answer_that_is_sent_after_it_was_cancelled_is_noticed() {
    assert_noticed(Bug::AnswerResetIgnored, "one answer");
}

#[test]
fn half_of_an_answer_is_noticed() {
    assert_noticed(Bug::AnswerMixedUp, "answer bytes");
}

// ---- random worlds ----------------------------------------------------------------------------------------

const SEEDS: u64 = 60;
const FAILURES_MAX: usize = 20;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a whole number")))
}

/// Runs every second seed, so that both cores are used.
fn run_half(half: u64) {
    let seeds = match number("MEZ_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("MEZ_SEEDS").unwrap_or(SEEDS)).collect(),
    };
    let (mut failures, mut accepted, mut given) = (Vec::new(), 0, 0);
    for seed in seeds.into_iter().filter(|seed| seed % 2 == half) {
        let (mut world, engines, length): (World, Vec<ApplicationId>, Duration) = answering(seed);
        if let Err(failure) = world.try_run(length) {
            failures.push(format!("seed {seed}: {}", failure.violation));
            if failures.len() == 1 {
                failures.push(failure.trace);
            }
        }
        accepted += engines.iter().map(|engine| world.answers_accepted(*engine)).sum::<u64>();
        given += world.answers(CameraId::FIRST).0;
        if failures.len() > FAILURES_MAX {
            // There are enough failures to investigate.
            break;
        }
    }
    assert!(failures.is_empty(), "{} worlds break a rule:\n{}", failures.len() - 1, failures.join("\n"));
    println!("{accepted} answers, of which {given} came back to first cameras");
    assert!(
        accepted > 0 && given > 0 || number("MEZ_SEED").is_some(),
        "nothing was answered: this shows nothing"
    );
}

#[test]
fn every_rule_holds_where_applications_answer_in_even_worlds() {
    run_half(0);
}

#[test]
fn every_rule_holds_where_applications_answer_in_odd_worlds() {
    run_half(1);
}

/// Nothing depends on a real clock, a hash map's order or an address.
#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = |seed| {
        let (mut world, _, length) = answering(seed);
        world.run(length);
        (world.trace_hash(), world.trace_entries())
    };
    let first: Vec<_> = (0..4).map(trace).collect();
    assert_eq!(first, (0..4).map(trace).collect::<Vec<_>>());
}
