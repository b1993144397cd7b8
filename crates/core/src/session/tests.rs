use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::contract::{ContractState, OnInfeasible};
use crate::frame::{Epoch, Frame, FrameId, Quality, Sequence};
use crate::log::{LogConfig, LogWriter, log};
use crate::sample;
use crate::subscription::Deliver;
use crate::trace::{CameraTrace, FrameTrace};

const WALL: ClockAnchor = ClockAnchor { wall: Timestamp::from_nanos(0), monotonic: Instant::ZERO };

/// A connected camera. All its frames were captured at [`Instant::ZERO`].
struct Known;

impl KnownCameras for Known {
    fn times(&self, _: &CameraName, _: &Record) -> FrameTimes {
        FrameTimes { captured: Some((Instant::ZERO, Duration::ZERO)), trace: None }
    }

    fn view(&self, _: &CameraName) -> Arc<CameraView> {
        Arc::new(CameraView { connected: true, frames_per_second: 10.0, ..CameraView::default() })
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn camera() -> CameraName {
    "dock/cam1".parse().unwrap()
}

fn append(writer: &mut LogWriter, sequence: u64, infeasible: bool) {
    append_record(writer, sequence, infeasible, None);
}

/// Appends a frame at `logged`.
fn append_at(writer: &mut LogWriter, sequence: u64, logged: Instant) {
    let camera = CameraTrace::default();
    let trace =
        FrameTrace { camera, arriving: logged, arrived: logged, decoded: None, logged, overtaken: false };
    append_record(writer, sequence, false, Some(Arc::new(trace)));
}

fn append_record(writer: &mut LogWriter, sequence: u64, infeasible: bool, trace: Option<Arc<FrameTrace>>) {
    let id = FrameId { epoch: Epoch(1), sequence: Sequence(sequence) };
    let meta = sample::meta(id, Timestamp::from_nanos(sequence * 100_000_000));
    let quality = Quality { infeasible, ..Quality::default() };
    let record =
        Record { quality, trace, ..sample::record(Frame { meta, payload: Bytes::from_static(b"image") }) };
    writer.append_record(record).unwrap();
}

fn spec(contract: Contract, span: Span) -> SubscriptionSpec {
    SubscriptionSpec { contract, ..SubscriptionSpec::new("dock/cam1".parse().unwrap(), span) }
}

fn open(spec: &SubscriptionSpec) -> (Session, LogWriter) {
    let mut session = Session::at_edge(WALL, spec, SubscriptionId(1), None);
    let (writer, reader) = log(LogConfig::default());
    session.handle_attach(at(0), camera(), reader, 0);
    (session, writer)
}

/// All outputs of a session at a moment: sequences of frames, states, and `end`.
fn all(session: &mut Session, now: Instant, ready: bool) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(output) = session.poll(now, ready, &Known) {
        all.push(match output {
            SessionOutput::Frame { delivery, .. } => delivery.record.frame.meta.id.sequence.0.to_string(),
            SessionOutput::Contract(change) => change.state.name().to_owned(),
            SessionOutput::Ended { rest } => {
                let skipped: u64 = rest.iter().map(|(_, skipped, _)| skipped.total()).sum();
                format!("end, {skipped} skipped")
            }
        });
        assert!(all.len() < 10, "it never ends: {all:?}");
    }
    all
}

fn floor() -> Contract {
    Contract { accuracy_floor: Some(0.9), ..Contract::default() }
}

/// A contract for which no frame is on time.
fn hasty() -> Contract {
    Contract { latency_bound: Some(Duration::from_millis(1)), ..floor() }
}

/// A frame comes first, then its effect on the contract. An application that is not ready gets only the contract's state.
#[test]
fn what_a_frame_means_is_told_behind_it() {
    let (mut session, mut writer) = open(&spec(floor(), Span::LIVE));
    assert_eq!(all(&mut session, at(0), true), [""; 0]);
    append(&mut writer, 0, false);
    assert_eq!(all(&mut session, at(100), false), [""; 0], "it cannot take one");
    assert_eq!(all(&mut session, at(100), true), ["0", "ok"]);
    // By the application's own measurement, the accuracy is below the floor.
    session.handle_accuracy(at(200), &camera(), 0.5);
    assert_eq!(all(&mut session, at(250), false), ["accuracy_miss"]);
    // The new contract has a lower floor; the earlier measurement no longer counts.
    assert!(session.handle_update(at(300), Contract { accuracy_floor: Some(0.4), ..floor() }, None));
    append(&mut writer, 1, false);
    assert_eq!(all(&mut session, at(400), true), ["1", "ok"]);
}

/// Withheld frames are counted at the end, if no later frame reported them.
#[test]
fn what_was_withheld_is_told_at_the_end() {
    let end = Some(Timestamp::from_nanos(150_000_000));
    let contract = Contract { on_infeasible: OnInfeasible::Skip, ..hasty() };
    let (mut session, mut writer) = open(&spec(contract, Span { end, ..Span::LIVE }));
    assert_eq!(all(&mut session, at(0), true), [""; 0]);
    append(&mut writer, 0, true);
    append(&mut writer, 1, true);
    let told = all(&mut session, at(3_000), true);
    assert_eq!(told.last().map(String::as_str), Some("end, 2 skipped"), "{told:?}");
    append(&mut writer, 2, false);
    assert_eq!(all(&mut session, at(3_100), true), [""; 0], "nothing comes behind the end");
}

/// With `on_infeasible` set to stop, the first report that the bounds cannot be kept ends the session.
#[test]
fn a_contract_may_end_its_session() {
    let contract = Contract { on_infeasible: OnInfeasible::Stop, ..hasty() };
    let (mut session, mut writer) = open(&spec(contract, Span { deliver: Deliver::Every, ..Span::LIVE }));
    let mut told = Vec::new();
    for sequence in 0..8 {
        append(&mut writer, sequence, true);
        told.extend(all(&mut session, at(100 * (sequence + 1)), true));
    }
    assert_eq!(told.last().map(String::as_str), Some(ContractState::Infeasible.name()), "{told:?}");
    append(&mut writer, 8, false);
    assert_eq!(all(&mut session, at(900), true), [""; 0]);
}

/// A camera that never connected is reported by the session itself.
#[test]
fn a_camera_that_never_came_is_told_at_the_end() {
    let span =
        Span { begin: Some(Timestamp::from_nanos(1)), end: Some(Timestamp::from_nanos(9)), ..Span::LIVE };
    let mut session = Session::at_edge(WALL, &spec(Contract::default(), span), SubscriptionId(1), None);
    session.expect_cameras_until(at(6_000));
    assert_eq!(session.poll_timeout(at(5_000)), Some(at(6_000)));
    assert!(session.poll(at(5_000), true, &Known).is_none());
    let Some(SessionOutput::Ended { rest }) = session.poll(at(6_000), true, &Known) else {
        panic!("it is over")
    };
    let [(name, _, Some(not_held))] = rest.as_slice() else { panic!("{rest:?}") };
    assert_eq!((name, not_held.reason), (&camera(), NotHeldReason::CameraAbsent));
    assert!(!session.handle_update(at(6_000), floor(), None), "the past has no contract");
    assert!(!session.handle_chain_lost(&camera()), "it does not read that camera");
}

/// A camera that captured the frame with sequence n at 100 n milliseconds.
struct Regular;

impl KnownCameras for Regular {
    fn times(&self, _: &CameraName, record: &Record) -> FrameTimes {
        let captured = at(100 * record.frame.meta.id.sequence.0);
        FrameTimes { captured: Some((captured, Duration::ZERO)), trace: None }
    }

    fn view(&self, camera: &CameraName) -> Arc<CameraView> {
        Known.view(camera)
    }
}

/// The application is the cause if a late frame waited in the log while it was busy, and not if the frame came while the application waited.
#[test]
fn who_was_busy_when_a_frame_came_is_late_itself() {
    let bound = Contract { latency_bound: Some(Duration::from_millis(40)), ..Contract::default() };
    let story = |busy: bool| {
        let (mut session, mut writer) = open(&spec(bound.clone(), Span::LIVE));
        let mut told = Vec::new();
        for sequence in 0..20u64 {
            let captured = at(100 * sequence);
            if !busy {
                assert!(all_of(&mut session, captured).is_empty(), "it has all, and waits");
            }
            append_at(&mut writer, sequence, captured + Duration::from_millis(20));
            let taken = captured + Duration::from_millis(90);
            // An application that is busy with a frame does not poll for another.
            while let Some(output) = session.poll(taken, true, &Regular) {
                if let SessionOutput::Frame { verdict: Some(verdict), .. } = output {
                    told.push((verdict.state, verdict.reason));
                    break;
                }
            }
        }
        told.pop().expect("frames came")
    };
    let (state, reason) = story(false);
    assert_eq!(state, ContractState::LatencyMiss, "{reason}");
    let (state, reason) = story(true);
    let wanted = "; the application takes a frame every 100 ms; frames wait 70 ms for the application";
    assert!(state == ContractState::ApplicationLate && reason.ends_with(wanted), "{state:?}: {reason}");
}

/// The frames that a session gives at a moment.
fn all_of(session: &mut Session, now: Instant) -> Vec<SessionOutput> {
    std::iter::from_fn(|| session.poll(now, true, &Regular))
        .filter(|output| matches!(output, SessionOutput::Frame { .. }))
        .collect()
}
