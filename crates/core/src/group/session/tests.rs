//! Tests of groups over real logs: where records come from, and what members are told.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::broker::edge::CameraView;
use crate::contract::Contract;
use crate::frame::{ChainLink, Encoding, Epoch, Frame, Reference};
use crate::group::End;
use crate::log::{LogConfig, LogWriter, log};
use crate::sample;
use crate::units::Timestamp;

const WALL: ClockAnchor = ClockAnchor { wall: Timestamp::from_nanos(0), monotonic: Instant::ZERO };
const A: MemberId = MemberId(1);
const B: MemberId = MemberId(2);
const FIRST: Life = Life(1);

struct Known;

impl KnownCameras for Known {
    fn times(&self, _: &CameraName, record: &Record) -> FrameTimes {
        FrameTimes { captured: Some((record.arrived, Duration::ZERO)), trace: None }
    }

    fn view(&self, _: &CameraName) -> Arc<CameraView> {
        Arc::default()
    }
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn camera(number: u8) -> CameraName {
    format!("dock/cam{number}").parse().unwrap()
}

fn frame(sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(1), sequence: Sequence(sequence) }
}

fn record(id: FrameId) -> Record {
    let meta = sample::meta(id, Timestamp::from_nanos(1 + id.sequence.0));
    sample::record(Frame { meta, payload: Bytes::from(format!("frame {}", id.sequence.0)) })
}

/// An edge with one group, and cameras with logs.
struct Edge {
    group: GroupSession,
    logs: Vec<(CameraName, LogWriter, LogReader)>,
}

impl Edge {
    /// A group of A and B, which can take `free` records each.
    fn open(group: GroupSession, cameras: u8, free: u32) -> Self {
        let mut edge = Self { group, logs: Vec::new() };
        for number in 1..=cameras {
            let (writer, reader) = log(LogConfig::default());
            edge.logs.push((camera(number), writer, reader));
        }
        edge.begin(at(0), SubscriptionSpec::live("dock/*".parse().unwrap()));
        for member in [A, B] {
            edge.group.join(member, None).unwrap();
            edge.group.ready(member, free).unwrap();
        }
        edge
    }

    fn begin(&mut self, now: Instant, spec: SubscriptionSpec) {
        let options = *self.group.group().options();
        let spec = self.group.asked_for(WALL, spec, &options);
        self.group.open(WALL, (SubscriptionId(1), spec.clone()), options, None);
        for (camera, _, reader) in self.logs.iter().filter(|(camera, ..)| spec.selects(camera)) {
            self.group.handle_attach(now, camera.clone(), reader.clone(), reader.held().end);
        }
    }

    fn append(&mut self, camera: u8, sequence: u64) {
        self.append_at(0, camera, sequence);
    }

    /// Appends a record that arrives at this millisecond.
    fn append_at(&mut self, ms: u64, camera: u8, sequence: u64) {
        let record = Record { arrived: at(ms), ..record(frame(sequence)) };
        self.logs[usize::from(camera) - 1].1.append_record(record).unwrap();
    }

    /// The records that members get at a moment, as `camera/frame to member`, from an edge without a disk.
    fn given(&mut self, now: Instant) -> Vec<String> {
        let mut given = Vec::new();
        loop {
            while let Some(output) = self.group.poll(now, &Known) {
                given.push(match output {
                    GroupOutput::Record(record) => {
                        let GivenRecord { given, delivery, .. } = *record;
                        let text = format!("frame {}", given.frame.sequence.0);
                        assert_eq!(delivery.record.frame.payload, text.as_bytes());
                        assert!(!delivery.record.frame.meta.encoding.is_chained());
                        format!("{}/{} to {}", given.camera, given.frame.sequence.0, given.member.0)
                    }
                    GroupOutput::HeldBack { open } => format!("held back by {open}"),
                    GroupOutput::GoesOn => "goes on".into(),
                    GroupOutput::Contract(change) => change.state.name().into(),
                });
            }
            let Some(question) = self.group.poll_question() else { return given };
            match question {
                GroupQuestion::Still(camera, query) => {
                    let log =
                        self.logs.iter().find(|(of, ..)| *of == camera).map(|(.., reader)| reader.clone());
                    let held = log.as_ref().and_then(|log| log.get_frame(query.frame));
                    let still = Box::new(record(query.frame));
                    let answer = held.map_or(StillAnswer::Gone, |_| StillAnswer::Still(still, log.clone()));
                    self.group.handle_still(&camera, query.frame, answer);
                }
                GroupQuestion::Past(camera, asked, _) => {
                    self.group.handle_past(&camera, asked, PastAnswer::default());
                }
            }
        }
    }

    /// [`Edge::given`], without what members are told of their contract.
    fn records(&mut self, now: Instant) -> Vec<String> {
        self.given(now).into_iter().filter(|output| output.contains(" to ")).collect()
    }

    fn ends(&mut self) -> Vec<(u64, End)> {
        let changes = std::iter::from_fn(|| self.group.poll_change());
        let ends = changes.filter_map(|change| match change {
            Change::Settled { frame, end, .. } => Some((frame.sequence.0, end)),
            _ => None,
        });
        ends.collect()
    }
}

fn every() -> GroupSession {
    GroupSession::new(at(0), GroupOptions::EVERY, FIRST, true)
}

#[test]
fn every_record_goes_to_whoever_is_free_and_comes_again_from_memory() {
    let mut edge = Edge::open(every(), 1, 1);
    for sequence in 0..3 {
        edge.append(1, sequence);
    }
    assert_eq!(edge.given(at(1)), ["dock/cam1/0 to 1", "dock/cam1/1 to 2"]);
    edge.group.leave(A);
    assert_eq!(edge.given(at(2)), [""; 0], "B is busy");
    edge.group.done(B, &camera(1), frame(1)).unwrap();
    edge.group.ready(B, 5).unwrap();
    assert_eq!(
        edge.given(at(3)),
        ["dock/cam1/2 to 2", "dock/cam1/0 to 2"],
        "looked for, and meanwhile the next"
    );
    assert_eq!(edge.ends(), [(1, End::Done(B))]);
}

#[test]
fn a_record_that_the_edge_holds_no_more_is_lost_and_told() {
    let mut edge = Edge::open(every(), 1, 1);
    edge.append(1, 0);
    assert_eq!(edge.given(at(1)), ["dock/cam1/0 to 1"]);
    edge.logs[0].2 = log(LogConfig::default()).1;
    edge.group.failed(A, &camera(1), frame(0), "no model").unwrap();
    assert_eq!(edge.given(at(2)), [""; 0]);
    assert_eq!(edge.ends(), [(0, End::Lost(LostReason::Evicted))]);
}

#[test]
fn the_newest_wins_across_the_group() {
    let newest = GroupSession::new(at(0), GroupOptions::NEWEST, FIRST, true);
    let mut edge = Edge::open(newest, 2, 1);
    for sequence in 0..4 {
        edge.append(1, sequence);
        edge.append(2, sequence);
    }
    assert_eq!(edge.given(at(1)), ["dock/cam1/3 to 1", "dock/cam2/3 to 2"]);
    for sequence in 4..9 {
        edge.append(1, sequence);
    }
    assert_eq!(edge.given(at(2)), [""; 0], "nobody is free");
    edge.group.ready(B, 1).unwrap();
    assert_eq!(edge.given(at(3)), ["dock/cam1/8 to 2"]);
    assert_eq!(edge.group.skipped().total(), 3 + 3 + 4, "as for one application");
    assert!(!edge.group.join(A, Some(Life(9))).unwrap().survives, "a group of the newest has no place");
}

const FRESH: GroupOptions = GroupOptions { fresh: true, ..GroupOptions::NEWEST };

/// A group that was given what cameras had each 100 ms, the last time at 410 ms, the second camera later by this many. Then the first one had a
/// record at 510 ms.
fn busy(cameras: u8, later: u64, contract: Contract) -> Edge {
    let mut edge = Edge::open(GroupSession::new(at(0), FRESH, FIRST, true), cameras, 0);
    edge.group.close();
    edge.begin(at(0), SubscriptionSpec { contract, ..SubscriptionSpec::live("dock/*".parse().unwrap()) });
    for sequence in 1..=4 {
        for camera in 1..=cameras {
            let delay = if camera == 2 { later } else { 0 };
            edge.append_at(10 + 100 * sequence + delay, camera, sequence);
        }
    }
    edge.group.ready(B, cameras.into()).unwrap();
    assert_eq!(edge.records(at(415 + later)).len(), cameras.into());
    edge.append_at(510, 1, 5);
    edge
}

#[test]
fn a_free_member_waits_for_a_fresh_record() {
    let mut edge = busy(1, 0, Contract::default());
    edge.group.ready(A, 1).unwrap();
    assert_eq!(edge.given(at(580)), [""; 0], "the next one is due at 610");
    assert_eq!(edge.group.poll_timeout(at(580)), Some(at(635)));
    edge.append_at(612, 1, 6);
    assert_eq!(edge.given(at(612)), ["dock/cam1/6 to 1"]);
    // The next one does not come.
    edge.group.ready(B, 1).unwrap();
    edge.append_at(710, 1, 7);
    assert_eq!(edge.given(at(710)), ["dock/cam1/7 to 2"], "at once: nothing is younger");
    edge.append_at(810, 1, 8);
    edge.group.ready(A, 1).unwrap();
    assert_eq!(edge.given(at(880)), [""; 0]);
    assert_eq!(edge.given(at(935)), ["dock/cam1/8 to 1"]);
}

#[test]
fn nobody_waits_while_another_camera_has_a_record_or_is_due_first() {
    let mut edge = busy(2, 60, Contract::default());
    edge.group.ready(A, 1).unwrap();
    assert_eq!(edge.given(at(580)), ["dock/cam1/5 to 1"], "the second camera is due at 570");

    let mut edge = busy(2, 120, Contract::default());
    edge.group.ready(A, 1).unwrap();
    assert_eq!(edge.given(at(580)), [""; 0], "the second camera is due at 630");
    edge.append_at(585, 2, 5);
    assert_eq!(edge.given(at(585)).len(), 1, "both have one");
}

#[test]
fn nobody_waits_until_a_record_is_late() {
    let bound = |ms| Contract { latency_bound: Some(Duration::from_millis(ms)), ..Contract::default() };
    let mut edge = busy(1, 0, bound(120));
    edge.group.ready(A, 1).unwrap();
    assert_eq!(edge.records(at(580)), ["dock/cam1/5 to 1"]);
    let mut edge = busy(1, 0, bound(130));
    edge.group.ready(A, 1).unwrap();
    assert_eq!(edge.records(at(580)), [""; 0]);
}

#[test]
fn with_order_cameras_take_turns_and_none_overtakes_itself() {
    let options = GroupOptions { ordered: true, ..GroupOptions::EVERY };
    let mut edge = Edge::open(GroupSession::new(at(0), options, FIRST, true), 2, 5);
    for sequence in 0..2 {
        edge.append(1, sequence);
        edge.append(2, sequence);
    }
    assert_eq!(edge.given(at(1)), ["dock/cam1/0 to 1", "dock/cam2/0 to 2"]);
    edge.group.done(B, &camera(2), frame(0)).unwrap();
    assert_eq!(edge.given(at(2)), ["dock/cam2/1 to 2"]);
    edge.group.failed(A, &camera(1), frame(0), "").unwrap();
    assert_eq!(edge.given(at(3)), ["dock/cam1/0 to 2"], "again before the next");
}

#[test]
fn members_are_told_why_nothing_comes() {
    let options = GroupOptions { open_max: 2, ..GroupOptions::EVERY };
    let mut edge = Edge::open(GroupSession::new(at(0), options, FIRST, true), 1, 2);
    for sequence in 0..3 {
        edge.append(1, sequence);
    }
    assert_eq!(edge.given(at(1)), ["dock/cam1/0 to 1", "dock/cam1/1 to 2", "held back by 2"]);
    edge.group.done(A, &camera(1), frame(0)).unwrap();
    assert_eq!(edge.given(at(2))[..2], ["goes on", "dock/cam1/2 to 1"]);
}

/// The edge is restarted. With its journal, the group continues after the last
/// given record. Without one, the group begins now. Members are told of both.
#[test]
fn what_becomes_of_a_place_is_told_to_members_that_knew_it() {
    let mut edge = Edge::open(every(), 1, 1);
    for sequence in 0..4 {
        edge.append(1, sequence);
    }
    assert_eq!(edge.given(at(1)).len(), 2);
    edge.group.done(A, &camera(1), frame(0)).unwrap();
    let mut place = Place::new();
    while let Some(change) = edge.group.poll_change() {
        place.apply(&change);
    }
    let logs = edge.logs;

    let restored = GroupSession::restored(at(5_000), GroupOptions::EVERY, Life(2), place);
    let mut after = Edge { group: restored, logs };
    after.begin(at(5_000), SubscriptionSpec::live("dock/*".parse().unwrap()));
    let joined = after.group.join(A, Some(FIRST)).unwrap();
    assert_eq!(joined, Joined { life: Life(2), place: PlaceTold::Restored, survives: true });
    after.group.ready(A, 9).unwrap();
    assert_eq!(
        after.given(at(5_001)),
        ["dock/cam1/2 to 1", "dock/cam1/3 to 1"],
        "B may come back with the one that it has"
    );
    assert_eq!(after.given(at(6_000)), ["dock/cam1/1 to 1"]);

    let fresh = GroupSession::new(at(9_000), GroupOptions::EVERY, Life(3), false);
    let mut lost = Edge { group: fresh, logs: after.logs };
    lost.begin(at(9_000), SubscriptionSpec::live("dock/*".parse().unwrap()));
    let joined = lost.group.join(A, Some(Life(2))).unwrap();
    assert_eq!(joined, Joined { life: Life(3), place: PlaceTold::Lost, survives: false });
    assert_eq!(lost.group.join(A, Some(Life(3))).unwrap().place, PlaceTold::Kept);
    assert!(lost.group.done(A, &camera(1), frame(1)).is_err(), "nobody here knows of it");
}

/// An open record of a camera that the group may no longer read is not given again, and members are told.
#[test]
fn what_a_group_may_no_longer_have_is_lost_and_told() {
    let mut edge = Edge::open(every(), 2, 1);
    edge.append(1, 0);
    edge.append(2, 0);
    assert_eq!(edge.given(at(1)).len(), 2);
    edge.group.leave(A);
    edge.group.leave(B);
    assert_eq!(edge.group.close(), Some(SubscriptionId(1)));
    edge.begin(at(2), SubscriptionSpec::live("dock/cam2".parse().unwrap()));
    edge.group.join(A, Some(FIRST)).unwrap();
    edge.group.ready(A, 5).unwrap();
    assert_eq!(edge.given(at(3)), ["dock/cam2/0 to 1"]);
    assert_eq!(edge.ends(), [(0, End::Lost(LostReason::NotRead))]);
}

/// Members get stills, because another member may get the next frame of a chain.
#[test]
fn a_frame_of_a_chain_comes_as_a_still() {
    let mut edge = Edge::open(every(), 1, 1);
    assert!(edge.group.spec().unwrap().present_chains().is_none());
    let mut first = record(frame(0));
    first.frame.meta.encoding = Encoding::H264;
    first.frame.meta.chain = ChainLink { chain: Sequence(0), index: 0, reference: Reference::Independent };
    edge.logs[0].1.append_record(first).unwrap();
    assert_eq!(edge.given(at(2)), ["dock/cam1/0 to 1"]);
}
