//! Converts the core's values to messages of the applications' interface, and back.
//!
//! The core's enumerations have the same numbers as the interface. A test compares them.

use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::edge::{CameraInfo, SubscriptionId};
use mez_core::contract::ContractState;
use mez_core::contract::watch::FrameVerdict;
use mez_core::data::{DataRecord, Origin};
use mez_core::frame::{Encoding, Epoch, FrameId, Reference, Sequence, SkipCounts, SkipReason};
use mez_core::group::session::{Joined, PlaceTold};
use mez_core::name::CameraName;
use mez_core::session::FrameTimes;
use mez_core::source::{SourceStanding, SourceState};
use mez_core::store::StoreStatus;
use mez_core::subscription::{Delivery, LastFrame, NotHeld, NotHeldReason};
use mez_core::trace::{Stage, Trace};
use mez_core::units::{Instant, Timestamp};
use mez_core::wire::Share;

use super::duration::nanos;
use super::{contract, pb};
use crate::clock::monotonic_now;
use crate::edge::{CameraRecord, CameraReset, CameraStart, Standing};

/// A frame for an application, handed over now. `times` are by this machine's monotonic
/// clock. `verdict`: the frame's effect on the contract, `None` for a frame of the past.
pub fn frame(
    delivery: Delivery,
    times: &FrameTimes,
    verdict: Option<FrameVerdict>,
    now: Instant,
) -> pb::Frame {
    let (captured, trace) = (times.captured, times.trace.as_deref());
    let Delivery { camera, record, skipped, not_held, log: _ } = delivery;
    let meta = record.frame.meta;
    let (content_type, of, payload) = data(meta.encoding, record.frame.payload);
    let verdict = verdict.unwrap_or_else(|| FrameVerdict {
        expected_accuracy: record.quality.expected_accuracy,
        infeasible: record.quality.infeasible,
        state: ContractState::Unverified,
        reason: "read from a log: there are no bounds to keep".into(),
    });
    let reference_sequence = match meta.chain.reference {
        Reference::Acknowledged(sequence) => Some(sequence.0),
        Reference::Independent | Reference::Previous => None,
    };
    pb::Frame {
        camera: camera.as_str().into(),
        epoch: meta.id.epoch.0,
        sequence: meta.id.sequence.0,
        captured_utc_ns: meta.captured.as_nanos(),
        clock_source: meta.clock_source as i32,
        width: meta.width,
        height: meta.height,
        published_width: meta.published.0,
        published_height: meta.published.1,
        encoding: meta.encoding as i32,
        rung: meta.rung.as_str().into(),
        chain_sequence: meta.chain.chain.0,
        index_in_chain: meta.chain.index,
        reference: reference(meta.chain.reference) as i32,
        reference_sequence,
        accuracy_expected: verdict.expected_accuracy,
        age_ns: captured.map(|(at, _)| nanos(now.saturating_since(at))),
        age_error_ns: captured.map(|(_, error)| nanos(error)),
        captured_monotonic_ns: captured.map(|(at, _)| at.as_nanos()),
        captured_monotonic_error_ns: captured.map(|(_, error)| nanos(error)),
        contract_state: verdict.state as i32,
        contract_reason: verdict.reason,
        infeasible: verdict.infeasible,
        skipped: skips(&skipped),
        not_held: not_held.map(self::not_held),
        trace: captured.map(|(at, error)| handed(trace, now.saturating_since(at), error)).unwrap_or_default(),
        link_bytes: record.link_bytes.map(u64::from),
        content_type,
        of,
        attempt: 0,
        payload,
    }
}

/// The message for a member that has joined its group.
pub fn group_joined(joined: Joined) -> pb::GroupJoined {
    let place = match joined.place {
        PlaceTold::Kept => pb::GroupPlace::Kept,
        PlaceTold::Restored => pb::GroupPlace::Restored,
        PlaceTold::Lost => pb::GroupPlace::Lost,
    };
    let life = joined.life.0.to_be_bytes().to_vec().into();
    pb::GroupJoined { life, place: place as i32, survives: joined.survives }
}

/// Content type, origin and payload of a data record, without its head. For a picture, only the payload.
/// If a data record has no valid head, the whole payload is returned, with unknown content type.
fn data(encoding: Encoding, payload: Bytes) -> (String, Option<pb::Origin>, Bytes) {
    match DataRecord::decode(&payload) {
        Ok(DataRecord { content_type, of, body }) if encoding == Encoding::Data => {
            (content_type.as_str().into(), of.map(origin), body)
        }
        _ => (String::new(), None, payload),
    }
}

/// Converts the origin of a data record into a message.
pub fn origin(origin: Origin) -> pb::Origin {
    let Origin { camera, frame, captured } = origin;
    pb::Origin {
        camera: camera.as_str().into(),
        epoch: frame.epoch.0,
        sequence: frame.sequence.0,
        captured_utc_ns: captured.as_nanos(),
    }
}

/// Reads the origin of a data record. The error names the invalid field.
pub fn origin_back(origin: &pb::Origin) -> Result<Origin, &'static str> {
    Ok(Origin {
        camera: origin.camera.parse().map_err(|_| "of.camera")?,
        frame: FrameId { epoch: Epoch(origin.epoch), sequence: Sequence(origin.sequence) },
        captured: Timestamp::from_nanos(origin.captured_utc_ns),
    })
}

/// The stages of a frame that is handed over now, `age` after its capture.
fn handed(trace: Option<&Trace>, age: Duration, error: Duration) -> Vec<pb::StageTime> {
    let mut trace = trace.copied().unwrap_or(Trace::with_error(Some(error)));
    trace.stamp(Stage::Handed, age);
    let time = |(stage, since)| pb::StageTime { stage: stage as i32, since_capture_ns: nanos(since) };
    trace.iter().map(time).collect()
}

/// Reads stages from a message. Stages that this version does not know are left out.
pub fn trace_back(times: &[pb::StageTime], error: Option<Duration>) -> Trace {
    let mut trace = Trace::with_error(error);
    for time in times {
        if let Some(stage) = u8::try_from(time.stage).ok().and_then(Stage::from_code) {
            trace.stamp(stage, Duration::from_nanos(time.since_capture_ns));
        }
    }
    trace
}

fn reference(reference: Reference) -> pb::Reference {
    match reference {
        Reference::Independent => pb::Reference::Independent,
        Reference::Previous => pb::Reference::Previous,
        Reference::Acknowledged(_) => pb::Reference::Acknowledged,
    }
}

/// Converts counts of skipped frames into messages.
pub fn skips(counts: &SkipCounts) -> Vec<pb::Skipped> {
    counts.iter().map(|(reason, count)| pb::Skipped { reason: reason as i32, count }).collect()
}

/// Reads counts of skipped frames. An unknown reason counts as late or lost, so that the sum stays right.
pub fn skips_back(skipped: &[pb::Skipped]) -> SkipCounts {
    let mut counts = SkipCounts::default();
    for pb::Skipped { reason, count } in skipped {
        let known = u8::try_from(*reason).ok().and_then(SkipReason::from_code);
        counts.add(known.unwrap_or(SkipReason::LateOrLost), *count);
    }
    counts
}

/// Converts a time span with missing frames into a message.
pub fn not_held(not_held: NotHeld) -> pb::NotHeld {
    let NotHeld { begin, end, reason } = not_held;
    pb::NotHeld { begin_utc_ns: begin.as_nanos(), end_utc_ns: end.as_nanos(), reason: reason as i32 }
}

/// Reads a time span with missing frames. An unknown or missing reason counts as gone.
pub fn not_held_back(not_held: pb::NotHeld) -> NotHeld {
    NotHeld {
        begin: Timestamp::from_nanos(not_held.begin_utc_ns),
        end: Timestamp::from_nanos(not_held.end_utc_ns),
        reason: u8::try_from(not_held.reason)
            .ok()
            .and_then(NotHeldReason::from_code)
            .unwrap_or(NotHeldReason::Gone),
    }
}

/// Converts the last frame that an application has of a camera into a message.
pub fn last_frame((camera, last): &(CameraName, LastFrame)) -> pb::LastFrame {
    pb::LastFrame {
        camera: camera.as_str().into(),
        epoch: last.id.epoch.0,
        sequence: last.id.sequence.0,
        captured_utc_ns: last.captured.map(Timestamp::as_nanos),
    }
}

/// Converts the state of a camera's source into a message.
pub fn source(source: &SourceStanding, now: Instant) -> pb::Source {
    pb::Source {
        state: source.state as i32,
        reason: source.reason.clone(),
        lasts_ns: source.lasts(now).map(nanos),
        retry_ns: source.retry_in(now).map(nanos),
    }
}

/// Reads the state of a camera's source. `None` for a state that this version does not know.
pub fn source_back(source: pb::Source, now: Instant) -> Option<SourceStanding> {
    Some(SourceStanding {
        state: u8::try_from(source.state).ok().and_then(SourceState::from_code)?,
        reason: source.reason,
        since: source.lasts_ns.map(|lasts| now - Duration::from_nanos(lasts)),
        retry: source.retry_ns.map(|retry| now + Duration::from_nanos(retry)),
    })
}

/// Converts the record of a camera's starts and resets into a message.
pub fn camera_starts(record: CameraRecord) -> pb::GetCameraStartsResponse {
    let start = |start: CameraStart| pb::CameraStart {
        epoch: start.epoch,
        first_utc_ns: start.first_utc_ns,
        identity: start.identity,
        certificate_serial: start.serial,
        certificate_fingerprint: start.fingerprint,
        address: start.address,
    };
    let reset = |reset: CameraReset| pb::CameraReset {
        utc_ns: reset.utc_ns,
        uid: reset.uid,
        epoch: reset.epoch,
        identity: reset.identity,
        put_aside: reset.put_aside.map(|folder| folder.display().to_string()).unwrap_or_default(),
    };
    pb::GetCameraStartsResponse {
        starts: record.starts.into_iter().map(start).collect(),
        resets: record.resets.into_iter().map(reset).collect(),
    }
}

/// Converts the edge's knowledge of a camera into a message.
pub fn camera_info(
    info: CameraInfo,
    disk: Option<StoreStatus>,
    standings: Vec<(SubscriptionId, Standing)>,
) -> pb::CameraInfo {
    // An instant far from both ends of the clock, so that no offset overflows.
    const SOME_TIME: Instant = Instant::from_nanos(1 << 62);
    let (status, counters, now) = (info.status, info.counters, monotonic_now());
    let ahead = |clock: mez_core::clock::ClockEstimate| {
        clock.to_theirs(SOME_TIME).as_nanos() as i64 - SOME_TIME.as_nanos() as i64
    };
    pb::CameraInfo {
        camera: info.camera.as_str().into(),
        connected: info.connected,
        identity: info.identity,
        source: info.source.as_ref().map(|known| source(known, now)),
        subscriptions: u32::try_from(info.subscriptions).unwrap_or(u32::MAX),
        newest_epoch: info.newest.map(|(id, _)| id.epoch.0),
        newest_sequence: info.newest.map(|(id, _)| id.sequence.0),
        newest_captured_utc_ns: info.newest.map(|(_, captured)| captured.as_nanos()),
        oldest_captured_utc_ns: info.oldest.map(Timestamp::as_nanos),
        edge_log_bytes: info.log_bytes,
        published: status.published,
        refused: status.refused,
        width: status.width,
        height: status.height,
        frames_per_second: status.frames_per_second,
        camera_log_bytes: status.log_bytes,
        frames_received: counters.received,
        frames_late: counters.late,
        frames_cancelled: counters.cancelled,
        frames_refused: counters.refused,
        frames_not_decoded: counters.not_decoded,
        link_bytes: counters.bytes,
        published_bytes: status.published_bytes,
        published_bits_per_second: info.traffic.map(|traffic| traffic.published.0),
        crossed_bits_per_second: info.traffic.map(|traffic| traffic.crossed.0),
        clock_offset_ns: info.clock.map(ahead),
        clock_error_ns: info.clock.map(|clock| nanos(clock.error)),
        round_trip_time_ns: info.clock.map(|clock| nanos(clock.round_trip_time)),
        edge_disk: disk.map(log_on_disk),
        camera_disk: info.disk.map(|disk| pb::LogOnDisk {
            degraded: disk.degraded,
            bytes: disk.bytes,
            lost: disk.lost,
        }),
        link_bits_per_second: info.feasibility.link_rate.map(|rate| rate.0),
        predicted_on_time_share: info.feasibility.calibration.predicted_on_time(),
        observed_on_time_share: info.feasibility.calibration.observed_on_time(),
        channel_bits_per_second: info.share.as_ref().and_then(|share| Some(share.carries?.0)),
        share_frame_bytes: info.share.as_ref().and_then(|share| match share.share? {
            Share::Free => None,
            Share::Cap { frame_bytes_max, .. } => Some(frame_bytes_max.into()),
            Share::Shed { .. } => Some(0),
        }),
        channel: info.share.map(|share| share.channel),
        publishers: info
            .derived
            .as_ref()
            .map(|(_, publishers)| u32::try_from(*publishers).unwrap_or(u32::MAX)),
        derived_from: info
            .derived
            .map(|(deriving, _)| deriving.of.iter().map(ToString::to_string).collect())
            .unwrap_or_default(),
        contracts: standings
            .into_iter()
            .map(|(id, standing)| pb::ContractStanding {
                subscription_id: id.0,
                application: standing.application,
                state: standing.state as i32,
                reason: standing.reason,
                contract: Some(contract::message(&standing.contract, None)),
            })
            .collect(),
    }
}

fn log_on_disk(status: StoreStatus) -> pb::LogOnDisk {
    pb::LogOnDisk {
        degraded: status.degraded.map(|why| why.to_string()).unwrap_or_default(),
        bytes: status.disk_bytes,
        lost: status.lost,
    }
}

#[cfg(test)]
mod tests {
    use mez_core::contract::{ContractState, OnInfeasible};
    use mez_core::frame::{ClockSource, Encoding};

    use super::*;

    /// The names of the codes 1, 2, 3 … in the interface, without their prefix.
    fn names(name_of: impl Fn(i32) -> Option<&'static str>, prefix: &str) -> Vec<String> {
        let names = (1..).map_while(name_of);
        names.map(|name| name.strip_prefix(prefix).expect(prefix).to_lowercase()).collect()
    }

    #[test]
    fn the_core_and_the_interface_number_alike() {
        let encodings = names(|code| pb::Encoding::try_from(code).ok().map(|e| e.as_str_name()), "ENCODING_");
        let ours: Vec<_> = (1..).map_while(Encoding::from_code).map(Encoding::name).collect();
        assert_eq!(encodings, ours);

        let reasons =
            names(|code| pb::SkipReason::try_from(code).ok().map(|r| r.as_str_name()), "SKIP_REASON_");
        assert_eq!(reasons, SkipReason::ALL.map(SkipReason::name));

        let why = |code| pb::NotHeldReason::try_from(code).ok().map(|r| r.as_str_name());
        assert_eq!(names(why, "NOT_HELD_REASON_"), NotHeldReason::ALL.map(NotHeldReason::name));

        let states =
            names(|code| pb::ContractState::try_from(code).ok().map(|s| s.as_str_name()), "CONTRACT_STATE_");
        let ours: Vec<_> = (1..).map_while(ContractState::from_code).map(ContractState::name).collect();
        assert_eq!(states, ours);

        let sources =
            names(|code| pb::SourceState::try_from(code).ok().map(|s| s.as_str_name()), "SOURCE_STATE_");
        assert_eq!(sources, SourceState::ALL.map(SourceState::name));

        let choices =
            names(|code| pb::OnInfeasible::try_from(code).ok().map(|o| o.as_str_name()), "ON_INFEASIBLE_");
        assert_eq!(choices, ["degrade", "skip", "stop"]);
        let ours: Vec<_> = (1..).map_while(OnInfeasible::from_code).collect();
        assert_eq!(ours, [OnInfeasible::Degrade, OnInfeasible::Skip, OnInfeasible::Stop]);

        assert_eq!(pb::ClockSource::Broker as i32, ClockSource::Broker as i32);
        assert_eq!(pb::ClockSource::Publisher as i32, ClockSource::Publisher as i32);
    }

    #[test]
    fn a_reason_from_the_future_still_counts() {
        let skipped = [pb::Skipped { reason: 99, count: 3 }, pb::Skipped { reason: -1, count: 1 }];
        assert_eq!(skips_back(&skipped).total(), 4);
    }
}
