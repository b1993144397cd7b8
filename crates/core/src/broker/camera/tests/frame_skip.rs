//! Rungs that skip frames.

use super::*;
use crate::broker::camera::News;
use crate::frame::{ChainLink, Reference};
use crate::wire::ProfileUse;

const HASH: [u8; 32] = [5; 32];
const INTERVAL: Duration = Duration::from_millis(100);

fn contract(min_fps: f64) -> Contract {
    Contract { accuracy_floor: Some(0.9), profile: Some(HASH), min_fps, ..bound(Duration::from_secs(1)) }
}

/// A camera broker with a codec.
struct Camera {
    rig: Rig,
    /// The first frame of the codec's chain.
    first: Sequence,
}

/// A camera whose application has a profile of one rung.
fn camera(rung: &str, min_fps: f64) -> Camera {
    let mut rig = Rig::connected(contract(min_fps));
    rig.broker.handle_profile(rig.now, HASH, Some(one_rung(rung)));
    Camera { rig, first: Sequence(0) }
}

/// What became of a published frame.
#[derive(Debug, Default)]
struct Step {
    /// What the codec was asked for: what the frame may refer to, and the news.
    asked: Option<(Reference, News)>,
    /// What was sent: the frame, its rung, and what was skipped before it.
    sent: Option<(FrameId, String, Vec<SkipRange>)>,
}

impl Camera {
    /// Publishes the next frame; the codec encodes it if asked.
    fn publish(&mut self) -> (FrameId, Step) {
        self.rig.now += INTERVAL;
        self.rig.message(1, Message::Ping { t1: self.rig.now });
        self.rig.answer_ping(1);
        let id = self.rig.publish_image(500, (64, 48));
        self.rig.broker.handle_timeout(self.rig.now);
        (id, self.serve())
    }

    /// Lets the codec encode the frame that it was given.
    fn serve(&mut self) -> Step {
        let mut step = Step::default();
        let mut outputs: VecDeque<CameraOutput> = self.rig.take().into();
        while let Some(output) = outputs.pop_front() {
            match output {
                CameraOutput::Transform(transform) => {
                    let Transform { frame, setting, reference, news, .. } = *transform;
                    let sequence = frame.meta.id.sequence;
                    if reference == Reference::Independent {
                        self.first = sequence;
                    }
                    let index = (sequence.0 - self.first.0) as u32;
                    let made = Transformed::Made {
                        payload: vec![0; 100].into(),
                        encoding: if setting.is_chained() { Encoding::H264 } else { Encoding::Jpeg },
                        width: 64,
                        height: 48,
                        rung: setting.rung(),
                        chain: ChainLink { chain: self.first, index, reference },
                    };
                    step.asked = Some((reference, news));
                    self.rig.broker.handle_transformed(self.rig.now, frame.meta.id, made);
                    outputs.extend(self.rig.take());
                }
                CameraOutput::SendFrame { header, .. } => {
                    let rung = header.meta.rung.as_str().to_owned();
                    assert!(step.sent.replace((header.meta.id, rung, header.skipped)).is_none());
                }
                _ => {}
            }
        }
        step
    }

    fn arrives(&mut self, frame: FrameId) {
        self.rig.sent(1, frame);
        self.rig.complete(1, frame, 100);
    }

    /// Publishes a frame. If a frame is sent, it arrives.
    fn through(&mut self) -> Step {
        let (_, step) = self.publish();
        if let Some((frame, ..)) = step.sent {
            self.arrives(frame);
        }
        step
    }
}

#[test]
fn every_third_frame_is_sent_and_the_others_say_why_not() {
    let mut camera = camera("jpeg/w32/q50/420/skip2", 0.0);
    let sent: Vec<_> = (0..9).filter_map(|_| camera.through().sent).collect();
    let rung = || "jpeg/w32/q50/420/skip2".to_owned();
    let frame = |sequence| FrameId { epoch: Epoch(3), sequence: Sequence(sequence) };
    let after = |sequence| vec![skipped(sequence, 2, SkipReason::LeftOut)];
    let expected = [(frame(0), rung(), vec![]), (frame(3), rung(), after(1)), (frame(6), rung(), after(4))];
    assert_eq!(sent, expected);
}

/// If a frame after which others are skipped is lost, none is skipped: the newest goes in its place.
#[test]
fn where_a_frame_is_lost_the_next_one_goes() {
    let mut camera = camera("jpeg/w32/q50/420/skip3", 0.0);
    let (zero, step) = camera.publish();
    assert!(step.sent.is_some());
    camera.rig.sent(1, zero);
    assert!(camera.publish().1.sent.is_none());
    let (two, step) = camera.publish();
    assert!(step.sent.is_none());
    camera.rig.message(1, Message::Report(Report::Refused { frame: zero }));
    let Some((frame, _, before)) = camera.serve().sent else { panic!("nothing goes") };
    let expected = vec![skipped(0, 1, SkipReason::Refused), skipped(1, 1, SkipReason::LeftOut)];
    assert_eq!((frame, before), (two, expected));
}

#[test]
fn where_something_else_is_asked_for_the_next_one_goes() {
    let mut camera = camera("jpeg/w32/q50/420/skip3", 0.0);
    assert!(camera.through().sent.is_some());
    assert!(camera.through().sent.is_none());
    camera.rig.demand(1, 2, vec![contract(0.0), contract(0.0)]);
    assert!(camera.serve().sent.is_some(), "who has just come waits for no frame that others left out");
}

/// Skipped frames are no losses: the chain continues after the frame that was sent.
#[test]
fn a_chain_goes_on_after_what_was_sent() {
    let mut camera = camera("h264/q32/skip1", 0.0);
    let asked: Vec<_> = (0..6).filter_map(|_| camera.through().asked).collect();
    let arrived = |sequence| News { arrived: vec![Sequence(sequence)], lost: vec![] };
    let expected = [
        (Reference::Independent, News::default()),
        (Reference::Previous, arrived(0)),
        (Reference::Previous, arrived(2)),
    ];
    assert_eq!(asked, expected);
}

#[test]
fn originals_can_be_left_out_and_say_so() {
    let mut camera = camera("original/skip1", 0.0);
    let steps: Vec<Step> = (0..4).map(|_| camera.through()).collect();
    assert!(steps.iter().all(|step| step.asked.is_none()), "no codec is needed: {steps:?}");
    let rungs: Vec<_> = steps.into_iter().map(|step| step.sent.map(|(_, rung, _)| rung)).collect();
    let sent = Some("original/skip1".to_owned());
    assert_eq!(rungs, [sent.clone(), None, sent, None]);
}

/// A rung that sends fewer frames than an application needs, or too few to judge a contract by, is passed over.
#[test]
fn rungs_that_leave_out_too_much_are_passed_over() {
    for (rung, min_fps, usable) in [
        ("jpeg/w32/q50/420/skip2", 3.0, true),
        ("jpeg/w32/q50/420/skip2", 5.0, false),
        ("jpeg/w32/q50/420/skip4", 0.0, true),
        ("jpeg/w32/q50/420/skip5", 0.0, false),
    ] {
        let mut camera = camera(rung, min_fps);
        (0..40).for_each(|_| drop(camera.through()));
        let used = camera.rig.broker.adapter.seen().map(|seen| seen.profile_use);
        let expected = if usable { ProfileUse::InUse } else { ProfileUse::NoRung };
        assert_eq!(used, Some(expected), "{rung} at 10 fps, of which {min_fps} are needed");
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Publish,
    Arrive,
    Refuse,
    Ask,
    Pass,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Publish),
        4 => Just(Event::Arrive),
        1 => Just(Event::Refuse),
        1 => Just(Event::Ask),
        1 => Just(Event::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever becomes of frames, each is sent or accounted for. A frame that counts
    /// as left out was published right after a sent frame whose rung skips it.
    #[test]
    fn only_frames_after_one_that_was_sent_are_left_out(skip in 1u64..4, events in prop::collection::vec(event(), 1..80)) {
        let mut camera = camera(&format!("h264/q32/skip{skip}"), 0.0);
        let mut revision = 1;
        // With frames further apart the rung is passed over for a while, and other rungs skip no frame.
        let mut sent: Vec<(u64, bool)> = Vec::new();
        let mut on_its_way: Option<FrameId> = None;
        let mut arrived = None;
        for event in events {
            let mut step = Step::default();
            match event {
                Event::Publish => step = camera.publish().1,
                Event::Arrive => {
                    if let Some(frame) = on_its_way.take() {
                        camera.arrives(frame);
                        arrived = Some(frame.sequence.0);
                    }
                }
                Event::Refuse => {
                    if let Some(frame) = on_its_way.take() {
                        camera.rig.sent(1, frame);
                        camera.rig.message(1, Message::Report(Report::Refused { frame }));
                    }
                }
                Event::Ask => {
                    revision += 1;
                    camera.rig.demand(1, revision, vec![contract(0.0)]);
                }
                Event::Pass => {
                    camera.rig.now += 300 * MS;
                    camera.rig.message(1, Message::Ping { t1: camera.rig.now });
                    camera.rig.answer_ping(1);
                }
            }
            camera.rig.broker.handle_timeout(camera.rig.now);
            let later = camera.serve();
            prop_assert!(step.sent.is_none() || later.sent.is_none(), "two frames have bytes unsent");
            step.sent = step.sent.or(later.sent);
            prop_assert!(camera.rig.broker.poll_timeout() > camera.rig.now, "a timer that was served is due again");
            let Some((frame, rung, before)) = step.sent else { continue };
            let told: Vec<u64> = before.iter().flat_map(|range| range.first.0..range.end().0).collect();
            let from = arrived.map_or(0, |arrived| arrived + 1);
            let missing = (from..frame.sequence.0).find(|lost| !told.contains(lost));
            prop_assert!(missing.is_none(), "{missing:?} is missing before {frame}: {before:?}");
            for range in before.iter().filter(|range| range.reason == SkipReason::LeftOut) {
                for left_out in range.first.0..range.end().0 {
                    let by = sent.iter().any(|(sent, leaves)| *leaves && *sent < left_out && left_out - sent <= skip);
                    prop_assert!(by, "{left_out} is called left out, and {sent:?} were sent");
                }
            }
            sent.push((frame.sequence.0, rung.ends_with(&format!("/skip{skip}"))));
            on_its_way = Some(frame);
        }
    }
}
