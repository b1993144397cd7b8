//! Cameras with their sources' video: rules that detect what would spoil it, and contracts that it keeps on a channel with interference.

use mez_core::contract::Contract;
use mez_testbed::scenario_file::{SHIPPED, Scenario};
use mez_testbed::{
    Action, ApplicationSpec, Bug, CameraSpec, Failure, Moment, SourceVideo, World, mbps, ms, noticed, secs,
};

/// A camera with long chains whose link becomes slow, and an application that joins late.
fn run(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    let mut world = World::seeded(3);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let video = SourceVideo { key_every: 120, spare_once_in: 3, answers: false, ..SourceVideo::X264 };
    let spec = CameraSpec { video: Some(video), ..CameraSpec::frames(20, 60_000) };
    let camera = world.camera("dock/cam1", spec.at_rate(mbps(20)));
    let contract =
        Contract { latency_bound: Some(ms(150)), accuracy_floor: Some(0.5), ..Contract::default() };
    world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("**") });
    let late = world.application(ApplicationSpec::newest("dock/*"));
    let second = |s| Moment::START + secs(s);
    world.at(second(1), Action::Unsubscribe(late)).at(second(11), Action::Subscribe(late));
    world.at(second(13), Action::Rate(camera, 400_000)).at(second(16), Action::Rate(camera, mbps(20)));
    world.try_run(secs(24))
}

fn assert_noticed(bug: Bug, rule: &str) {
    noticed(bug, run(Some(bug)).err(), rule);
}

#[test]
fn video_of_a_source_keeps_every_rule() {
    if let Err(failure) = run(None) {
        panic!("{failure}");
    }
}

#[test]
fn a_needed_frame_that_is_not_sent_is_noticed() {
    assert_noticed(Bug::NeededNotSent, "references");
}

#[test]
fn frames_that_are_skipped_without_a_reason_are_noticed() {
    assert_noticed(Bug::LostSkipRanges, "reasons");
}

#[test]
fn a_source_s_video_that_goes_on_amid_a_chain_is_noticed() {
    assert_noticed(Bug::BackAmidChain, "references");
}

#[test]
fn a_key_frame_that_is_asked_for_and_never_comes_is_noticed() {
    assert_noticed(Bug::RefreshIgnored, "entry");
}

/// The results for frames in `interference`, with such sources.
struct Kept {
    on_time: f64,
    accuracy: f64,
    as_they_were: f64,
}

fn interference(frames_per_second: u64, video: &str, seed: u64) -> Kept {
    let shipped = SHIPPED.iter().find(|(name, _)| *name == "interference").expect("it is shipped").1;
    let (cameras, _) = shipped.split_once("[[expect]]").expect("it expects something");
    let text = cameras
        .replace("frame_kilobytes = [45, 60]", &format!("footage = \"street\"\n{video}"))
        .replace("frames_per_second = 15\n", &format!("frames_per_second = {frames_per_second}\n"))
        .replace("accuracy = 0.95\n", "accuracy = 0.95\nprofile = \"street\"\n");
    let text = format!("{text}[[expect]]\nsubscription = \"people\"\nframes_min = 1\n");
    let scenario: Scenario = text.parse().expect("a scenario");
    let report = scenario.run(seed).unwrap_or_else(|failure| panic!("{failure}"));
    let seen = &report.seen[0];
    let published = 3.0 * frames_per_second as f64 * scenario.length().as_secs_f64();
    Kept {
        on_time: seen.on_time as f64 / published,
        accuracy: seen.accuracy.unwrap_or_default(),
        as_they_were: seen.originals as f64 / published,
    }
}

/// The contract asks for 100 ms and 0.95 of three cameras. Links fall to a tenth and to a fortieth of their rate. With key frames every ten seconds,
/// or every two seconds at 25 frames per second, one key frame falls into each step.
#[test]
fn contracts_on_sources_of_video_are_kept_through_interference() {
    for (frames_per_second, video) in [
        (15, "video = \"x264\"\n"),
        (15, "video = \"x264\"\nkey_frame_every = 150\n"),
        (15, "video = \"x264\"\nkey_frame_every = 37\n"),
        (15, "video = \"openh264\"\n"),
        (15, "video = \"openh264\"\nkey_frame_every = 150\n"),
        (25, "video = \"x264\"\nkey_frame_every = 50\n"),
        (25, "video = \"x264\"\n"),
        (25, "video = \"openh264\"\n"),
        (25, ""),
    ] {
        let mut worst = Kept { on_time: 1.0, accuracy: 1.0, as_they_were: 1.0 };
        for seed in 0..4 {
            let kept = interference(frames_per_second, video, seed);
            println!(
                "{frames_per_second} fps, {video:?}, seed {seed}: {:.2} % on time, accuracy {:.3}, {:.0} % as they were",
                kept.on_time * 100.0,
                kept.accuracy,
                kept.as_they_were * 100.0
            );
            worst.on_time = worst.on_time.min(kept.on_time);
            worst.accuracy = worst.accuracy.min(kept.accuracy);
        }
        assert!(worst.on_time >= 0.98, "{frames_per_second} fps, {video}: {:.4} on time", worst.on_time);
        assert!(worst.accuracy >= 0.95, "{video}: accuracy {:.4}", worst.accuracy);
    }
}
