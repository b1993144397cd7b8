//! Frames that are made smaller, over a simulated link whose bytes pass one after another at a rate.

use super::*;
use crate::frame::{ChainLink, Reference};
use crate::setting::{Form, Setting};

/// The result that a codec reports: JPEG bytes, or a failure.
pub(super) fn transformed(frame: FrameId, made: Option<usize>) -> Transformed {
    match made {
        None => Transformed::Failed,
        Some(bytes) => Transformed::Made {
            payload: vec![0; bytes].into(),
            encoding: Encoding::Jpeg,
            width: 2,
            height: 2,
            rung: Rung::new("jpeg/w16/q50/420").expect("a valid rung"),
            chain: ChainLink::still(frame.sequence),
        },
    }
}

const INTERVAL: Duration = Duration::from_millis(66);
const BOUND: Duration = Duration::from_millis(100);
const DELAY: Duration = Duration::from_millis(3);
const CODEC: Duration = Duration::from_millis(8);
pub(super) const HASH: [u8; 32] = [7; 32];
const ORIGINAL_BYTES: usize = 200_000;

pub(super) fn contract(profile: bool) -> Contract {
    Contract { accuracy_floor: Some(0.9), profile: profile.then_some(HASH), ..bound(BOUND) }
}

/// A rung of stills.
pub(super) fn still(name: &str, bytes: f64, accuracy: f64) -> RungProfile {
    rung(name, (bytes, 0.08), accuracy, CODEC)
}

fn profile() -> Profile {
    Profile::new(vec![
        still("jpeg/w320/q50/420", 8e3, 0.85),
        still("jpeg/w640/q60/420", 20e3, 0.92),
        still("jpeg/w1280/q70/420", 60e3, 0.96),
        rung("original", (ORIGINAL_BYTES as f64, 0.08), 1.0, Duration::ZERO),
    ])
    .expect("a valid profile")
}

pub(super) fn sized() -> SizedProfile {
    SizedProfile { size: (1280, 960), interval: None, profile: profile() }
}

#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) rung: String,
    pub(super) latency: Duration,
    pub(super) infeasible: bool,
    pub(super) expected_accuracy: Option<f64>,
}

/// Publishes at a steady rate over a link of `bytes_per_ms`. The codec makes JPEGs of the sizes in `profile`; pixels do not matter.
pub(super) fn run(rig: &mut Rig, seconds: u64, bytes_per_ms: f64) -> Vec<Delivered> {
    run_while(rig, Duration::from_secs(seconds), bytes_per_ms, |_, _| ())
}

/// Runs like [`run`], and calls `happens` every millisecond with the milliseconds since the beginning.
pub(super) fn run_while(
    rig: &mut Rig,
    duration: Duration,
    bytes_per_ms: f64,
    happens: impl FnMut(&mut Rig, u64),
) -> Vec<Delivered> {
    run_scene(rig, duration, bytes_per_ms, (&profile(), 1.0), happens)
}

/// Runs like [`run_while`], in a scene whose frames have `detail` times the bytes of the profile `sizes`.
fn run_scene(
    rig: &mut Rig,
    duration: Duration,
    bytes_per_ms: f64,
    (sizes, detail): (&Profile, f64),
    mut happens: impl FnMut(&mut Rig, u64),
) -> Vec<Delivered> {
    let (end, begin) = (rig.now + duration, rig.now);
    let mut delivered = Vec::new();
    let mut published = rig.now;
    let mut made: Option<(Instant, FrameId, Rung, ChainLink, u32)> = None;
    let mut chain = ChainLink::still(crate::frame::Sequence(0));
    let mut left: Option<(Instant, FrameId)> = None;
    let mut whole: Vec<(Instant, Report)> = Vec::new();
    let mut captured = BTreeMap::new();
    // Frames that are on their way at the end still arrive.
    while rig.now < end || made.is_some() || left.is_some() || !whole.is_empty() {
        rig.now += MS;
        let now = rig.now;
        happens(rig, now.saturating_since(begin).as_millis() as u64);
        if now >= published + INTERVAL && now <= end {
            published = now;
            let id = rig.publish_image(ORIGINAL_BYTES, (1280, 960));
            captured.insert(id, now);
        }
        if let Some((_, frame, rung, chain, bytes_max)) = made.take_if(|(at, ..)| *at <= now) {
            let video = rung.as_str().starts_with("h264");
            let encoding = if video { Encoding::H264 } else { Encoding::Jpeg };
            // Smaller rungs of the default ladder have fewer bytes: a quarter less than is assumed.
            let assumed = || 0.75 * ORIGINAL_BYTES as f64 * default_share(&rung);
            let size = detail * sizes.get(&rung).map_or_else(assumed, |rung| rung.bytes.mean);
            // A keyframe has eight times the bytes of another frame.
            let size = if video && chain.index == 0 { size * 8.0 } else { size };
            let payload = vec![0; (size as usize).min(bytes_max as usize)].into();
            let what = Transformed::Made { payload, encoding, width: 2, height: 2, rung, chain };
            rig.broker.handle_transformed(now, frame, what);
        }
        if let Some((_, frame)) = left.take_if(|(at, _)| *at <= now) {
            rig.sent(1, frame);
        }
        for (_, report) in whole.extract_if(.., |(at, _)| *at <= now) {
            rig.message(1, Message::Report(report));
        }
        rig.message(1, Message::Ping { t1: now });
        rig.answer_ping(1);
        rig.broker.handle_timeout(now);
        for output in rig.take() {
            match output {
                CameraOutput::Transform(transform) => {
                    let frame = transform.frame.meta.id;
                    chain = match transform.reference {
                        _ if !transform.setting.is_chained() => ChainLink::still(frame.sequence),
                        Reference::Independent => ChainLink::still(frame.sequence),
                        reference => ChainLink { index: chain.index + 1, reference, ..chain },
                    };
                    let rung = transform.setting.rung();
                    made = Some((now + CODEC, frame, rung, chain, transform.bytes_max));
                }
                CameraOutput::SendFrame { header, payload, .. } => {
                    let takes = Duration::from_secs_f64(payload.len() as f64 / bytes_per_ms / 1e3);
                    let (frame, bytes) = (header.meta.id, payload.len() as u32);
                    left = Some((now + takes, frame));
                    let (first, last) = (now + DELAY, now + takes + DELAY);
                    whole.push((last + DELAY, Report::Complete { frame, bytes, first, last }));
                    delivered.push(Delivered {
                        rung: header.meta.rung.as_str().into(),
                        // A frame that waited from before was captured before.
                        latency: last.saturating_since(captured.get(&frame).copied().unwrap_or(begin)),
                        infeasible: header.infeasible,
                        expected_accuracy: header.expected_accuracy,
                    });
                }
                _ => {}
            }
        }
    }
    delivered
}

fn default_share(rung: &Rung) -> f64 {
    let (width, share) = match rung.as_str().parse::<Setting>().expect("a valid rung").form {
        Form::Jpeg(jpeg) => (jpeg.width, if jpeg.quality.get() == 85 { 0.5 } else { 0.3 }),
        Form::H264(h264) => (h264.width, 0.05 * (-0.15 * (f64::from(h264.quantiser.get()) - 24.0)).exp()),
        _ => return 1.0,
    };
    width.map_or(1.0, |width| f64::from(width.get()) / 1280.0).powf(1.6) * share
}

pub(super) fn rig(contracts: Vec<Contract>) -> Rig {
    let mut rig = Rig::new();
    rig.broker.handle_dialled(rig.now, LinkId(1), EdgeIndex(0));
    let welcome = Welcome { version: VERSION, newest: None, frame_bytes_max: 1 << 20, software: "".into() };
    rig.message(1, Message::Welcome(welcome));
    // The two clocks agree.
    rig.message(1, Message::Pong { t1: rig.now, t2: rig.now, t3: rig.now });
    rig.demand(1, 1, contracts);
    rig.take();
    rig
}

fn on_time(delivered: &[Delivered]) -> f64 {
    delivered.iter().filter(|frame| frame.latency <= BOUND).count() as f64 / delivered.len() as f64
}

#[test]
fn a_frame_is_made_as_large_as_the_link_carries_in_time() {
    let mut rig = rig(vec![contract(true)]);
    rig.broker.handle_profile(rig.now, HASH, Some(sized()));
    for (mbps, expected) in [(60.0, "original"), (12.0, "jpeg/w1280/q70/420"), (4.0, "jpeg/w640/q60/420")] {
        let delivered = run(&mut rig, 6, mbps * 125.0);
        let steady = &delivered[delivered.len() / 2..];
        assert!(steady.len() > 40, "{} frames in 3 s", steady.len());
        assert!(on_time(steady) > 0.95, "{mbps} Mbit/s: {:.2} on time", on_time(steady));
        let share = steady.iter().filter(|frame| frame.rung == expected).count() as f64 / steady.len() as f64;
        assert!(share > 0.9, "{mbps} Mbit/s: {steady:?}");
        assert!(steady.iter().all(|frame| !frame.infeasible), "{steady:?}");
        assert!(steady.iter().all(|frame| frame.expected_accuracy >= Some(0.9)));
    }
}

/// Fog comes and goes. During the fog, frames are a third as large as the profile says, and the edge is told.
#[test]
fn in_fog_the_edge_is_told_that_frames_have_drifted() {
    let mut rig = rig(vec![contract(true)]);
    rig.broker.handle_profile(rig.now, HASH, Some(sized()));
    let drift = |rig: &Rig| rig.broker.adapter.seen().and_then(|seen| seen.drift);
    run(&mut rig, 6, 4.0 * 125.0);
    assert_eq!(drift(&rig), None);
    run_scene(&mut rig, Duration::from_secs(6), 4.0 * 125.0, (&profile(), 0.3), |_, _| ());
    let found = drift(&rig).expect("six seconds of fog are known");
    assert!((0.25..0.35).contains(&(found.measured / found.profiled)), "{found:?}");
    run(&mut rig, 8, 4.0 * 125.0);
    assert_eq!(drift(&rig), None, "the fog has lifted");
}

/// By day a finer rung gains nothing by the profile, and would take most of the link. In fog the accuracy of the coarser
/// rung is not known, so frames become as fine as the link carries. They become coarse again when the fog has lifted.
#[test]
fn in_fog_frames_become_finer() {
    let (coarse, fine) = ("jpeg/w640/q60/420", "jpeg/w640/q90/420");
    let rungs = vec![
        still(coarse, 20e3, 0.92),
        still(fine, 60e3, 0.9201),
        rung("original", (ORIGINAL_BYTES as f64, 0.08), 1.0, Duration::ZERO),
    ];
    let profile = Profile::new(rungs).expect("a valid profile");
    let mut rig = rig(vec![contract(true)]);
    rig.broker.handle_profile(rig.now, HASH, Some(SizedProfile { profile: profile.clone(), ..sized() }));
    // 20 kB take 30 ms by day. In fog 60 kB become 18, which take 27: two fifths of the link.
    for (scene, detail, expected) in [("day", 1.0, coarse), ("fog", 0.3, fine), ("the next day", 1.0, coarse)]
    {
        let seen = run_scene(&mut rig, Duration::from_secs(9), 667.0, (&profile, detail), |_, _| ());
        let last = &seen[seen.len() - 30..];
        let share = last.iter().filter(|frame| frame.rung == expected).count() as f64 / 30.0;
        assert!(share > 0.9, "{scene}: {share:.2} of the last frames are {expected}: {last:?}");
        assert!(on_time(last) > 0.95, "{scene}: {:.2} on time", on_time(last));
    }
}

/// A profile comes from outside. Absurd sizes and an endless encoding time break no camera: it learns the real sizes of its frames, and sends them.
#[test]
fn a_profile_of_absurd_sizes_breaks_no_camera() {
    let absurd = |name: &str, bytes: f64, accuracy: f64, camera_time: Duration| RungProfile {
        bytes: ByteSizes { mean: bytes, p05: 0.0, p50: bytes / 2.0, p95: bytes },
        camera_time,
        ..still(name, 1.0, accuracy)
    };
    let (none, ever) = (Duration::ZERO, Duration::MAX);
    for (low, high) in
        [((1.0, none), (1e12, ever)), ((1e-3, ever), (1e12, none)), ((1e-3, none), (1e-3, ever))]
    {
        // The floor is that of the last rung or of the last two. What is learned at one rung counts for all.
        for accuracy in [0.7, 0.92] {
            let profile = Profile::new(vec![
                absurd("jpeg/w320/q50/420", low.0, accuracy, low.1),
                absurd("jpeg/w640/q60/420", high.0, 0.95, high.1),
                absurd("jpeg/w1280/q70/420", 1e12, 0.97, Duration::MAX),
            ]);
            let profile = SizedProfile { profile: profile.expect("each can be believed"), ..sized() };
            let mut rig = rig(vec![contract(true), Contract { priority: 1, ..contract(true) }]);
            rig.broker.handle_profile(rig.now, HASH, Some(profile));
            let delivered = run(&mut rig, 10, 4.0 * 125.0);
            assert!(delivered.len() > 20, "{low:?}, {high:?}: {} frames", delivered.len());
        }
    }
}

#[test]
fn where_nothing_keeps_the_floor_in_time_the_floor_goes_on_and_says_so() {
    let mut rig = rig(vec![contract(true)]);
    rig.broker.handle_profile(rig.now, HASH, Some(sized()));
    // 20 kB take 200 ms.
    let delivered = run(&mut rig, 6, 100.0);
    let steady = &delivered[delivered.len() / 2..];
    assert!(steady.len() > 8, "{} frames in 3 s", steady.len());
    assert!(steady.iter().all(|frame| frame.infeasible && frame.rung == "jpeg/w640/q60/420"), "{steady:?}");
}

#[test]
fn without_a_profile_frames_are_made_smaller_and_nothing_is_promised() {
    let mut rig = rig(vec![contract(true)]);
    let delivered = run(&mut rig, 6, 4.0 * 125.0);
    let steady = &delivered[delivered.len() / 2..];
    assert!(on_time(steady) > 0.95, "{:.2} on time", on_time(steady));
    assert!(steady.iter().all(|frame| frame.expected_accuracy.is_none()));
    assert!(steady.iter().all(|frame| frame.rung != "original"));
}

/// A contract without a floor takes the rung of those with a floor, whatever the priorities. Without any floor, frames go as they are.
#[test]
fn looking_on_without_a_floor_changes_nothing() {
    let unmodified = Contract { accuracy_floor: None, ..contract(false) };
    for (contracts, original) in [
        (vec![unmodified.clone()], true),
        (vec![contract(false), unmodified.clone()], false),
        (vec![Contract { priority: 1, ..unmodified.clone() }, contract(false)], false),
        (vec![Contract { priority: 1, ..contract(false) }, unmodified.clone()], false),
        (vec![contract(false), Contract { priority: -1, ..unmodified }], false),
    ] {
        let mut rig = rig(contracts);
        let id = rig.publish(1_000);
        let outputs = rig.take();
        assert_eq!(frames_sent(&outputs).len(), usize::from(original));
        let transforms = outputs.iter().filter(|output| matches!(output, CameraOutput::Transform(_))).count();
        assert_eq!(transforms, usize::from(!original), "{id}");
    }
}

/// With and without a profile, and also between pictures.
#[test]
fn an_accuracy_floor_leaves_data_records_as_they_are() {
    for profile in [false, true] {
        let mut rig = rig(vec![contract(profile)]);
        if profile {
            rig.broker.handle_profile(rig.now, HASH, Some(sized()));
        }
        for number in 0..20 {
            rig.now += INTERVAL;
            rig.message(1, Message::Ping { t1: rig.now });
            if number % 4 == 3 {
                let picture = rig.publish_image(1_000, (1280, 960));
                rig.take();
                rig.broker.handle_transformed(rig.now, picture, transformed(picture, Some(300)));
                rig.sent(1, picture);
                rig.complete(1, picture, 300);
                rig.take();
                continue;
            }
            let record = rig.publish_data(&[7; 2_000]);
            let outputs = rig.take();
            let transforms = outputs.iter().any(|output| matches!(output, CameraOutput::Transform(_)));
            assert!(!transforms, "record {number}");
            let sent = outputs.iter().find_map(|output| match output {
                CameraOutput::SendFrame { header, .. } => Some(header.meta.clone()),
                _ => None,
            });
            let sent = sent.unwrap_or_else(|| panic!("record {number} did not go: {outputs:?}"));
            assert_eq!((sent.id, sent.encoding, sent.rung), (record, Encoding::Data, Rung::original()));
            rig.sent(1, record);
            rig.complete(1, record, 2_030);
        }
    }
}

#[test]
fn a_codec_that_fails_costs_its_frame_and_no_other() {
    let mut rig = rig(vec![contract(false)]);
    let first = rig.publish(1_000);
    let second = rig.publish(1_000);
    rig.broker.handle_transformed(rig.now, first, Transformed::Failed);
    // The first frame was lost to the codec; the second one is being encoded.
    rig.now += 200 * MS;
    rig.broker.handle_timeout(rig.now);
    rig.broker.handle_transformed(rig.now, second, transformed(second, Some(300)));
    assert_eq!(frames_sent(&rig.take()), [(second, vec![skipped(0, 1, SkipReason::NotMade)])]);
}

#[test]
fn what_nobody_wants_any_more_is_not_sent_when_it_has_been_made() {
    let mut rig = rig(vec![contract(false)]);
    let first = rig.publish(1_000);
    rig.demand(1, 2, Vec::new());
    rig.broker.handle_transformed(rig.now, first, transformed(first, Some(300)));
    assert!(frames_sent(&rig.take()).is_empty());
    rig.demand(1, 3, vec![bound(BOUND)]);
    let second = rig.publish(1_000);
    assert_eq!(frames_sent(&rig.take()), [(second, vec![skipped(0, 1, SkipReason::NotWanted)])]);
}

#[test]
fn what_is_made_while_the_link_is_down_is_not_sent() {
    let mut rig = rig(vec![contract(false)]);
    let first = rig.publish(1_000);
    rig.broker.handle_closed(rig.now, LinkId(1));
    rig.broker.handle_transformed(rig.now, first, transformed(first, Some(300)));
    rig.welcome(2, None);
    rig.demand(2, 1, vec![bound(BOUND)]);
    let second = rig.publish(1_000);
    assert_eq!(frames_sent(&rig.take()), [(second, vec![skipped(0, 1, SkipReason::LinkDown)])]);
}
