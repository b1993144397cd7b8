use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::contract::negotiation::ContractOutcome;
use crate::contract::{Contract, OnInfeasible};
use crate::controller::Calibration;
use crate::controller::share::Step;
use crate::frame::{
    ChainLink, ClockSource, Encoding, Epoch, FrameMeta, Reference, Rung, Sequence, SkipRange, SkipReason,
};
use crate::history::{PastQuery, Tier};
use crate::profile::SizeDrift;
use crate::source::SourceState;
use crate::trace::{CameraTrace, Stage};
use crate::units::{BitsPerSecond, ClockAnchor, Timestamp};
use crate::wire::{
    AnswerSkip, AnswerSkips, CONTRACTS_MAX, FrameHeader, HistoryCode, ProfileUse, SHARE_LIFETIME_MAX,
    SHARE_REQUEST_RUNGS_MAX, SKIP_RANGES_MAX,
};

mod surveys;

fn any_instant() -> impl Strategy<Value = Instant> {
    any::<u64>().prop_map(Instant::from_nanos)
}

fn any_id() -> impl Strategy<Value = FrameId> {
    (any::<u64>(), any::<u64>())
        .prop_map(|(epoch, sequence)| FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) })
}

fn any_contract() -> impl Strategy<Value = Contract> {
    (
        prop::option::of(1u64..u64::MAX),
        prop::option::of(0.0..=1.0f64),
        0.01..=1.0f64,
        prop::option::of(any::<[u8; 32]>()),
        0.0..=1000.0f64,
        1u8..=3,
        any::<i32>(),
    )
        .prop_map(|(bound, accuracy_floor, on_time_share, profile, min_fps, code, priority)| Contract {
            latency_bound: bound.map(Duration::from_nanos),
            accuracy_floor,
            on_time_share,
            profile,
            min_fps,
            on_infeasible: OnInfeasible::from_code(code).unwrap(),
            priority,
        })
}

const TEXT: &str = "[ -~äöü]{0,40}";

fn any_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        3 => any_greeting(),
        2 => any_status(),
        2 => any_history(),
        12 => any_other(),
    ]
}

/// How a connection begins, or does not.
fn any_greeting() -> impl Strategy<Value = Message> {
    prop_oneof![
        ("[a-z]{1,8}/[a-z0-9]{1,8}", any::<(u16, u64, u64, u64)>(), any_instant(), TEXT).prop_map(
            |(camera, (version, epoch, attempt, wall), monotonic, software)| Message::Hello(Hello {
                version,
                camera: camera.parse().unwrap(),
                epoch: Epoch(epoch),
                attempt,
                anchor: ClockAnchor { wall: Timestamp::from_nanos(wall), monotonic },
                software,
            })
        ),
        (any::<(u16, u32)>(), prop::option::of(any_id()), TEXT).prop_map(
            |((version, frame_bytes_max), newest, software)| Message::Welcome(Welcome {
                version,
                newest,
                frame_bytes_max,
                software
            })
        ),
        (1u16..=8, TEXT)
            .prop_map(|(code, text)| Message::Refuse { code: RefuseCode::from_code(code).unwrap(), text }),
    ]
}

fn any_status() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<(u64, u64, u32, u32, u64, u64)>(), 0.0..1000.0f64).prop_map(
            |((published, refused, width, height, log_bytes, published_bytes), frames_per_second)| {
                Message::Status(Status {
                    published,
                    refused,
                    width,
                    height,
                    frames_per_second,
                    log_bytes,
                    published_bytes,
                })
            }
        ),
        (any::<(u64, u64)>(), TEXT).prop_map(|((bytes, lost), degraded)| {
            Message::DiskStatus(DiskStatus { bytes, lost, degraded })
        }),
        (0usize..4, 0..u64::MAX - 1, proptest::option::of(0..u64::MAX - 1), TEXT).prop_map(
            |(state, lasts, retry, reason)| {
                Message::SourceReport(SourceReport {
                    state: SourceState::ALL[state],
                    reason,
                    lasts: Duration::from_nanos(lasts),
                    retry: retry.map(Duration::from_nanos),
                })
            }
        ),
    ]
}

fn any_history() -> impl Strategy<Value = Message> {
    prop_oneof![
        (
            any::<(u64, bool, u64, u64)>(),
            prop::option::of(any_id()),
            prop::option::of(any_id()),
            "[!-~]{1,64}"
        )
            .prop_map(|((request, newest, begin, end), after, before, rung)| {
                let (begin, end) = (Timestamp::from_nanos(begin), Timestamp::from_nanos(end));
                let query =
                    PastQuery { after, before, begin, end, newest, tier_max: Tier::Disk, quality: None };
                Message::HistoryRequest(HistoryRequest {
                    request,
                    query,
                    rung: Rung::new(&rung).unwrap(),
                    count: request as u16,
                    continues: newest,
                })
            }),
        (any::<(u64, Option<u64>)>(), 0..HistoryCode::ALL.len()).prop_map(|((request, held_from), code)| {
            let held_from = held_from.map(Timestamp::from_nanos);
            Message::HistoryEnd(HistoryEnd { request, code: HistoryCode::ALL[code], held_from })
        }),
        surveys::any_question(),
        surveys::any_answer(),
    ]
}

fn any_other() -> impl Strategy<Value = Message> {
    prop_oneof![
        any_instant().prop_map(|t1| Message::Ping { t1 }),
        any_standing().prop_map(Message::Standing),
        TEXT.prop_map(|software| {
            Message::Inquiry(Inquiry { camera: "dock/cam1".parse().unwrap(), software })
        }),
        [any_instant(), any_instant(), any_instant()].prop_map(|[t1, t2, t3]| Message::Pong { t1, t2, t3 }),
        (any::<u64>(), prop::collection::vec(any_contract(), 0..5))
            .prop_map(|(revision, contracts)| Message::Demand(Demand { revision, contracts })),
        (any_id(), any::<u32>(), any_instant(), any_instant(), any::<bool>()).prop_map(
            |(frame, bytes, first, last, complete)| Message::Report(if complete {
                Report::Complete { frame, bytes, first, last }
            } else {
                Report::Progress { frame, bytes, first, now: last }
            })
        ),
        any_outlook().prop_map(Message::FeasibilityReport),
        any_negotiation_result().prop_map(Message::NegotiationResult),
        any_share().prop_map(Message::Share),
        any_claim().prop_map(Message::ShareRequest),
        any::<(bool, bool)>().prop_map(|(past, surveys)| Message::Abilities(Abilities { past, surveys })),
        any::<([u8; 32], u32)>()
            .prop_map(|(hash, offset)| Message::ProfileRequest(ProfileRequest { hash, offset })),
        (any::<([u8; 32], u32, u32)>(), prop::collection::vec(any::<u8>(), 0..100)).prop_map(
            |((hash, total, offset), bytes)| Message::ProfilePart(ProfilePart {
                hash,
                total,
                offset,
                bytes: bytes.into()
            })
        ),
        any_id().prop_map(|frame| Message::Refresh { frame }),
        Just(Message::Rest),
        proptest::option::of(1..u64::MAX).prop_map(|bound| {
            Message::AnswerRequest(AnswerRequest { bound: bound.map(Duration::from_nanos) })
        }),
        (any::<(u64, u64)>(), prop::collection::vec((0..AnswerSkip::ALL.len(), 1..u64::MAX), 0..9)).prop_map(
            |((since, answered), counts)| {
                let mut skipped = AnswerSkips::default();
                counts.into_iter().for_each(|(place, count)| skipped.add(AnswerSkip::ALL[place], count));
                Message::AnswerAccount(AnswerAccount { since, answered, skipped })
            }
        ),
        any::<u64>().prop_map(|version| Message::RevocationVersion { version }),
        prop::collection::vec(any::<u8>(), 0..100)
            .prop_map(|signed| Message::RevocationList { signed: signed.into() }),
        (prop::collection::vec(any::<u8>(), 0..100), any::<bool>()).prop_map(|(bytes, asks)| match asks {
            true => Message::RenewalRequest(bytes.into()),
            false => Message::RenewalAnswer(bytes.into()),
        }),
        (any_id(), TEXT, prop::collection::vec(any::<u8>(), 0..100), any::<bool>()).prop_map(
            |(frame, application, bytes, typed)| {
                let bytes = bytes.into();
                let result = if typed { ReplyResult::Detections(bytes) } else { ReplyResult::Opaque(bytes) };
                Message::Reply { frame, application, result }
            }
        ),
    ]
}

fn any_standing() -> impl Strategy<Value = Standing> {
    (any::<(u16, u64, bool)>(), prop::option::of((1u16..=7, TEXT)), TEXT).prop_map(
        |((version, wall, is_connected), refusal, software)| Standing {
            version,
            wall: Timestamp::from_nanos(wall),
            is_connected,
            refusal: refusal.map(|(code, text)| (RefuseCode::from_code(code).unwrap(), text)),
            software,
        },
    )
}

fn any_share() -> impl Strategy<Value = Share> {
    (any::<u32>(), 0..=1_000u64, 0..3).prop_map(|(frame_bytes_max, lifetime, code)| {
        let lifetime = Duration::from_millis(lifetime);
        match code {
            0 => Share::Free,
            1 => Share::Cap { frame_bytes_max, lifetime },
            _ => Share::Shed { lifetime },
        }
    })
}

fn any_claim() -> impl Strategy<Value = ShareRequest> {
    let step = (1..100_000_000u32, 0..=1_000_000u32);
    let steps = prop::collection::btree_map(0..u64::from(u32::MAX), step, 0..=SHARE_REQUEST_RUNGS_MAX);
    (any::<(u32, u32)>(), any::<usize>(), steps).prop_map(|((interval, bound), floor, steps)| {
        if steps.is_empty() {
            return ShareRequest::default();
        }
        let (mut bytes, mut accuracies): (Vec<u32>, Vec<u32>) = steps.into_values().unzip();
        bytes.sort_unstable();
        accuracies.sort_unstable();
        let bytes = bytes.iter().enumerate().map(|(place, bytes)| f64::from(*bytes) + place as f64);
        let steps = bytes
            .zip(accuracies)
            .map(|(bytes, accuracy)| Step { bytes, accuracy: f64::from(accuracy) / 1e6 });
        let steps: Vec<Step> = steps.collect();
        let micros = |micros: u32| Duration::from_micros(micros.max(1).into());
        ShareRequest {
            interval: micros(interval),
            latency_bound: micros(bound),
            floor: floor % steps.len(),
            steps,
        }
    })
}

/// Impossible values are refused, or decoded as empty. No cap lasts longer than the longest lifetime.
#[test]
fn shares_and_claims_that_make_no_sense_are_refused_or_claim_nothing() {
    let share = |code: u8, lifetime: [u8; 2]| {
        let bytes = [&[0x93, code, 1, 0, 0, 0], &lifetime[..]].concat();
        Message::decode(&bytes)
    };
    let longest = Share::Shed { lifetime: SHARE_LIFETIME_MAX };
    assert_eq!(share(2, [0xff, 0xff]), Ok(Some(Message::Share(longest))));
    assert_eq!(share(3, [0, 0]), Err(WireError::Value { field: "share", value: 3 }));
    let claim = |interval: u8, count: u8, floor: u8, steps: &[[u32; 2]]| {
        let mut bytes = vec![0xa0, interval, 0, 0, 0, 1, 0, 0, 0, count, floor];
        steps.as_flattened().iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        Message::decode(&bytes)
    };
    let nothing = Ok(Some(Message::ShareRequest(ShareRequest::default())));
    assert_ne!(claim(1, 2, 1, &[[5, 1], [6, 1]]), nothing);
    for (interval, floor, steps) in [
        (0, 0, [[5, 1], [6, 1]]),
        (1, 2, [[5, 1], [6, 1]]),
        (1, 0, [[6, 1], [6, 1]]),
        (1, 0, [[5, 2], [6, 1]]),
        (1, 0, [[0, 1], [6, 1]]),
    ] {
        assert_eq!(claim(interval, 2, floor, &steps), nothing, "{interval} {floor} {steps:?}");
    }
    assert!(matches!(claim(1, 33, 0, &[[1, 1]; 33]), Err(WireError::TooLong { field: "rungs", .. })));
    assert!(matches!(claim(1, 2, 0, &[[1, 1]]), Err(WireError::Truncated { .. })));
}

fn any_negotiation_result() -> impl Strategy<Value = NegotiationResult> {
    let outcomes = prop::collection::vec(0..5u8, 0..=CONTRACTS_MAX).prop_map(|codes| {
        let verdict = |(place, code): (usize, &u8)| match code {
            1 => Some(ContractOutcome::Kept),
            // With its neighbour.
            2 if codes.len() > 1 => {
                Some(ContractOutcome::Conflict { with: if place == 0 { 1 } else { place - 1 } })
            }
            3 => Some(ContractOutcome::Outvoted),
            4 => Some(ContractOutcome::Infeasible),
            _ => None,
        };
        codes.iter().enumerate().map(verdict).collect()
    });
    (any::<u64>(), outcomes).prop_map(|(revision, outcomes)| NegotiationResult { revision, outcomes })
}

/// Outcomes that name contracts that do not exist are not believed, and more outcomes than there can be are refused.
#[test]
fn claims_of_contracts_that_do_not_exist_are_clamped() {
    let decode = |outcomes: &[[u8; 2]]| {
        let mut bytes = vec![0x92, 3, 0, 0, 0, 0, 0, 0, 0, outcomes.len() as u8];
        bytes.extend_from_slice(outcomes.as_flattened());
        Message::decode(&bytes)
    };
    let said = vec![
        Some(ContractOutcome::Kept),
        Some(ContractOutcome::Outvoted),
        Some(ContractOutcome::Outvoted),
        None,
    ];
    let expected = Message::NegotiationResult(NegotiationResult { revision: 3, outcomes: said });
    assert_eq!(decode(&[[1, 7], [2, 4], [2, 2], [9, 0]]), Ok(Some(expected)));
    assert!(decode(&[[1, 0]; CONTRACTS_MAX]).is_ok());
    assert!(decode(&[[1, 0]; CONTRACTS_MAX + 1]).is_err());
}

fn any_outlook() -> impl Strategy<Value = FeasibilityReport> {
    let positive = || prop::option::of(1e-3..1e12f64);
    let best = prop::option::of(0.0..=1.0f64);
    let calibration =
        (any::<u32>(), 0..=1_000_000u32, 0..=1_000_000u32).prop_map(|(frames, expected, actual)| {
            let [expected_late, actual_late] = [expected, actual].map(|parts| f64::from(parts) / 1e6);
            Calibration { frames: frames.into(), expected_late, actual_late }
        });
    let drift = prop::option::of((1e-3..1e12f64, 1e-3..1e12f64))
        .prop_map(|drift| drift.map(|(measured, profiled)| SizeDrift { measured, profiled }));
    let flags = (any::<bool>(), any::<bool>(), any::<Option<[u8; 32]>>(), drift);
    (positive(), positive(), best, flags, 0..ProfileUse::ALL.len(), calibration).prop_map(
        |(rate, floor_bytes, best_accuracy, (infeasible, interrupted, profile, drift), code, calibration)| {
            FeasibilityReport {
                link_rate: rate.map(BitsPerSecond),
                floor_bytes,
                best_accuracy,
                infeasible,
                interrupted,
                profile_use: ProfileUse::ALL[code],
                profile,
                drift,
                calibration,
            }
        },
    )
}

fn any_header() -> impl Strategy<Value = FrameHeader> {
    let range = (any::<(u64, u64)>(), 0..SkipReason::ALL.len()).prop_map(|((first, count), reason)| {
        SkipRange { first: Sequence(first), count, reason: SkipReason::ALL[reason] }
    });
    (
        any_id(),
        any::<(u64, bool, u32, u32, u64, u32, u32, bool)>(),
        (1u8..=6, 0u8..3, any::<u64>()),
        any_instant(),
        prop::option::of(0.0..=1.0f64),
        "[!-~]{1,64}",
        prop::collection::vec(range, 0..=SKIP_RANGES_MAX),
        prop::collection::vec((0..Stage::AT_CAMERA, any::<i32>()), 0..8),
    )
        .prop_map(
            |(id, numbers, (encoding, kind, reference), sent, expected_accuracy, rung, skipped, stamps)| {
                let (captured, broker, width, height, chain, index, payload_bytes, infeasible) = numbers;
                let history = u64::from(chain % 2 == 0) * captured;
                let mut trace = CameraTrace::default();
                for (stage, micros) in stamps {
                    // Whole microseconds, neither before the clock's origin nor beyond its end.
                    let at = i128::from(sent.as_nanos()) + i128::from(micros) * 1_000;
                    if let Ok(at) = u64::try_from(at) {
                        trace.stamp(Stage::ALL[stage], Instant::from_nanos(at));
                    }
                }
                FrameHeader {
                    meta: FrameMeta {
                        id,
                        captured: Timestamp::from_nanos(captured),
                        clock_source: if broker { ClockSource::Broker } else { ClockSource::Publisher },
                        width,
                        height,
                        // Often it is not scaled.
                        published: if index % 2 == 0 { (width, height) } else { (height, payload_bytes) },
                        encoding: Encoding::from_code(encoding).unwrap(),
                        rung: Rung::new(&rung).unwrap(),
                        chain: ChainLink {
                            chain: Sequence(chain),
                            index,
                            reference: match kind {
                                0 => Reference::Independent,
                                1 => Reference::Previous,
                                _ => Reference::Acknowledged(Sequence(reference)),
                            },
                        },
                    },
                    payload_bytes,
                    sent,
                    expected_accuracy,
                    infeasible,
                    history,
                    trace,
                    skipped,
                }
            },
        )
}

proptest! {
    #[test]
    fn messages_survive_the_wire_in_any_pieces(
        messages in prop::collection::vec(any_message(), 1..8),
        cut in 1usize..200,
    ) {
        let mut bytes = Vec::new();
        for message in &messages {
            message.encode(&mut bytes);
        }
        let (mut buffer, mut decoded) = (MessageBuffer::default(), Vec::new());
        for piece in bytes.chunks(cut) {
            buffer.push(piece);
            while let Some(message) = buffer.next().unwrap() {
                decoded.push(message);
            }
        }
        prop_assert_eq!(decoded, messages);
    }

    #[test]
    fn headers_survive_the_wire_and_may_grow(header in any_header(), extra in prop::collection::vec(any::<u8>(), 0..9)) {
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        prop_assert_eq!(FrameHeader::length([bytes[0], bytes[1]]).unwrap(), bytes.len());
        prop_assert_eq!(&FrameHeader::decode(&bytes).unwrap(), &header);
        for end in 0..bytes.len() {
            prop_assert!(FrameHeader::decode(&bytes[..end]).is_err());
        }
        bytes.extend(extra);
        prop_assert_eq!(&FrameHeader::decode(&bytes).unwrap(), &header);
    }

    #[test]
    fn garbage_becomes_an_error_or_a_value(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Message::decode(&bytes);
        let _ = FrameHeader::decode(&bytes);
        let mut buffer = MessageBuffer::default();
        buffer.push(&bytes);
        while let Ok(Some(_)) = buffer.next() {}
    }
}

#[test]
fn a_message_that_may_be_passed_over_is_and_another_is_not() {
    let mut buffer = MessageBuffer::default();
    buffer.push(&[3, 0, 0, 0, 0xff, 1, 2]);
    let mut bytes = Vec::new();
    Message::Ping { t1: Instant::from_nanos(9) }.encode(&mut bytes);
    buffer.push(&bytes);
    assert_eq!(buffer.next(), Ok(Some(Message::Ping { t1: Instant::from_nanos(9) })));
    buffer.push(&[1, 0, 0, 0, 0x7f]);
    assert_eq!(buffer.next(), Err(WireError::Value { field: "kind", value: 0x7f }));
}

#[test]
fn a_message_above_the_limit_is_refused_before_it_is_gathered() {
    let mut buffer = MessageBuffer::default();
    buffer.push(&u32::MAX.to_le_bytes());
    assert!(matches!(buffer.next(), Err(WireError::TooLong { field: "message", .. })));
}

#[test]
fn the_largest_header_stays_within_its_limit() {
    let skip = SkipRange { first: Sequence(0), count: 1, reason: SkipReason::LinkBusy };
    let mut trace = CameraTrace::default();
    Stage::ALL.into_iter().for_each(|stage| trace.stamp(stage, Instant::ZERO));
    let header = FrameHeader {
        meta: FrameMeta {
            id: FrameId::default(),
            captured: Timestamp::MIN,
            clock_source: ClockSource::Broker,
            width: 1,
            height: 1,
            published: (1, 1),
            encoding: Encoding::Jpeg,
            rung: Rung::new(&"x".repeat(64)).unwrap(),
            chain: ChainLink::still(Sequence(0)),
        },
        payload_bytes: 0,
        sent: Instant::ZERO,
        expected_accuracy: None,
        infeasible: false,
        history: 1,
        trace,
        skipped: vec![skip; SKIP_RANGES_MAX + 5],
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    assert!(bytes.len() <= crate::wire::FRAME_HEADER_BYTES_MAX);
    assert_eq!(FrameHeader::decode(&bytes).unwrap().skipped.len(), SKIP_RANGES_MAX);
}

/// Stamps come after all fields that version 1 began with. A reader that does not
/// know their flag ignores them; other readers ignore stages of later versions.
#[test]
fn stamps_are_passed_over_by_whoever_does_not_know_them() {
    let at = Instant::from_nanos;
    let mut header = FrameHeader {
        meta: FrameMeta {
            id: FrameId::default(),
            captured: Timestamp::MIN,
            clock_source: ClockSource::Broker,
            width: 1,
            height: 1,
            published: (1, 1),
            encoding: Encoding::Jpeg,
            rung: Rung::original(),
            chain: ChainLink::still(Sequence(0)),
        },
        payload_bytes: 9,
        sent: at(5_000_000),
        expected_accuracy: None,
        infeasible: false,
        history: 0,
        trace: CameraTrace::default(),
        skipped: Vec::new(),
    };
    let without = header.clone();
    header.trace.stamp(Stage::Published, at(4_999_001));
    header.trace.stamp(Stage::Sent, at(u64::MAX));
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    let read = FrameHeader::decode(&bytes).unwrap();
    // Rounded down to a microsecond, and limited to the reach of a stamp from `sent`.
    assert_eq!(read.trace.get(Stage::Published), Some(at(4_999_000)));
    assert_eq!(read.trace.get(Stage::Sent), Some(at(5_000_000 + 1_000 * i32::MAX as u64)));

    let mut old = bytes.clone();
    let flags = 2 + 16 + 8 + 1 + 1 + 4 + 4 + 8 + 4 + 1 + 8 + 8 + 8;
    assert_eq!(old[flags], 4);
    old[flags] = 0;
    assert_eq!(FrameHeader::decode(&old), Ok(without));

    let stage = bytes.len() - 2 * 5;
    assert_eq!(bytes[stage], Stage::Published as u8);
    bytes[stage] = 200;
    let read = FrameHeader::decode(&bytes).unwrap();
    assert_eq!(read.trace.iter().map(|(stage, _)| stage).collect::<Vec<_>>(), [Stage::Sent]);
    bytes.pop();
    assert_eq!(FrameHeader::decode(&bytes), Err(WireError::Truncated { field: "stamp" }));
}
