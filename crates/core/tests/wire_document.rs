//! Checks that `docs/wire.md` agrees with the code: encodes its worked examples, and compares its tables of numbers.

mod document;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::camera::{HISTORY_FRAMES_MAX, HISTORY_REQUESTS_MAX, SURVEY_REQUESTS_MAX};
use mez_core::broker::edge::{ARRIVING_BYTES_MAX, ARRIVING_FRAMES_MAX};
use mez_core::broker::{
    DIAL_TIME_MAX, EPOCH_BASE, EPOCH_JUMP_MAX, EPOCH_MAX, EPOCH_RAISE_MAX, NUMBER_MAX, PEER_SILENCE_MAX,
    PING_INTERVAL, REDIAL_INTERVAL, REFUSED_INTERVAL, REST_PING_INTERVAL, REST_SILENCE_MAX,
};
use mez_core::contract::negotiation::ContractOutcome;
use mez_core::contract::{Contract, OnInfeasible};
use mez_core::controller::Calibration;
use mez_core::controller::share::Step;
use mez_core::frame::{
    ChainLink, ClockSource, Encoding, Epoch, FRAME_BYTES_MAX, FrameId, FrameMeta, RUNG_BYTES_MAX, Reference,
    Rung, Sequence, SkipCounts, SkipRange, SkipReason,
};
use mez_core::history::{
    HeldSpan, Hole, HoleReason, PastQuery, SURVEY_HOLES_MAX, SURVEY_SPANS_MAX, Survey, Tier,
};
use mez_core::profile::SizeDrift;
use mez_core::source::SourceState;
use mez_core::trace::{CameraTrace, Stage};
use mez_core::units::{BitsPerSecond, ClockAnchor, Instant, Timestamp};
use mez_core::wire::{
    ALPN, Abilities, AnswerAccount, AnswerRequest, AnswerSkip, AnswerSkips, CONTRACTS_MAX, Demand,
    DiskStatus, FRAME_HEADER_BYTES_MAX, FeasibilityReport, FrameHeader, Hello, HistoryCode, HistoryEnd,
    HistoryRequest, Inquiry, MESSAGE_BYTES_MAX, Message, MessageBuffer, NegotiationResult, NoSurvey,
    PROFILE_BYTES_MAX, PROFILE_PART_BYTES_MAX, ProfilePart, ProfileRequest, ProfileUse, RECORD_BYTES_MAX,
    REPLY_BYTES_MAX, REVOCATION_LIST_BYTES_MAX, RecordHead, RecordKind, RefuseCode, ReplyResult, Report,
    SHARE_REQUEST_RUNGS_MAX, SKIP_RANGES_MAX, Share, ShareRequest, SourceReport, Standing, Status,
    SurveyAnswer, SurveyRequest, TEXT_BYTES_MAX, VERSION, Welcome,
};

use self::document::{blocks, hex};

const DOCUMENT: &str = include_str!("../../../docs/wire.md");

fn id(epoch: u64, sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) }
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// The messages of the worked examples, one story in order.
fn messages() -> Vec<(&'static str, Message)> {
    [greetings(), reports(), contracts(), profiles(), past_and_replies(), surveys()].concat()
}

fn greetings() -> Vec<(&'static str, Message)> {
    vec![
        (
            "hello",
            Message::Hello(Hello {
                version: VERSION,
                camera: "dock/cam1".parse().unwrap(),
                epoch: Epoch(3),
                attempt: 1,
                anchor: ClockAnchor {
                    wall: Timestamp::from_nanos(1_700_000_000_000_000_000),
                    monotonic: at(5_000),
                },
                software: "mez 0.1.0".into(),
            }),
        ),
        (
            "welcome",
            Message::Welcome(Welcome {
                version: VERSION,
                newest: Some(id(2, 900)),
                frame_bytes_max: FRAME_BYTES_MAX,
                software: "mez 0.1.0".into(),
            }),
        ),
        ("refuse", Message::Refuse { code: RefuseCode::Full, text: "64 cameras already".into() }),
        (
            "inquiry",
            Message::Inquiry(Inquiry { camera: "dock/cam1".parse().unwrap(), software: "mez 0.1.0".into() }),
        ),
        (
            "standing",
            Message::Standing(Standing {
                version: VERSION,
                wall: Timestamp::from_nanos(1_700_000_000_000_000_000),
                is_connected: false,
                refusal: Some((RefuseCode::Full, "64 cameras already".into())),
                software: "mez 0.1.0".into(),
            }),
        ),
        ("ping", Message::Ping { t1: at(6_000) }),
        ("pong", Message::Pong { t1: at(6_000), t2: at(80_002), t3: at(80_003) }),
    ]
}

/// Demand, and reports of how frames arrive.
fn reports() -> Vec<(&'static str, Message)> {
    let contract = Contract {
        latency_bound: Some(Duration::from_millis(100)),
        accuracy_floor: Some(0.95),
        ..Contract::default()
    };
    vec![
        ("demand", Message::Demand(Demand { revision: 1, contracts: vec![contract] })),
        ("demand-none", Message::Demand(Demand { revision: 2, contracts: Vec::new() })),
        (
            "progress",
            Message::Report(Report::Progress {
                frame: id(3, 42),
                bytes: 65_536,
                first: at(81_000),
                now: at(81_010),
            }),
        ),
        (
            "complete",
            Message::Report(Report::Complete {
                frame: id(3, 42),
                bytes: 100_000,
                first: at(81_000),
                last: at(81_016),
            }),
        ),
        ("refused", Message::Report(Report::Refused { frame: id(3, 42) })),
        (
            "status",
            Message::Status(Status {
                published: 43,
                refused: 0,
                width: 1920,
                height: 1080,
                frames_per_second: 15.0,
                log_bytes: 4_300_000,
                published_bytes: 5_848_000,
            }),
        ),
        (
            "source-report",
            Message::SourceReport(SourceReport {
                state: SourceState::Lost,
                reason: "the server closed the stream.".into(),
                lasts: Duration::from_secs(3),
                retry: Some(Duration::from_millis(250)),
            }),
        ),
        (
            "disk-status",
            Message::DiskStatus(DiskStatus {
                bytes: 4_000_000,
                lost: 3,
                degraded: "the disk is full".into(),
            }),
        ),
    ]
}

/// What a camera can do for its contracts, and its share of a channel.
fn contracts() -> Vec<(&'static str, Message)> {
    vec![
        (
            "feasibility",
            Message::FeasibilityReport(FeasibilityReport {
                link_rate: Some(BitsPerSecond(2_100_000.0)),
                floor_bytes: Some(28_000.0),
                best_accuracy: Some(0.99),
                infeasible: true,
                interrupted: false,
                profile_use: ProfileUse::InUse,
                profile: Some([0xab; 32]),
                drift: Some(SizeDrift { measured: 50.0, profiled: 145.0 }),
                calibration: Calibration { frames: 1_200, expected_late: 0.012, actual_late: 0.015 },
            }),
        ),
        (
            "negotiation-result",
            Message::NegotiationResult(NegotiationResult {
                revision: 3,
                outcomes: vec![Some(ContractOutcome::Kept), Some(ContractOutcome::Conflict { with: 0 })],
            }),
        ),
        (
            "share",
            Message::Share(Share::Cap { frame_bytes_max: 24_000, lifetime: Duration::from_millis(300) }),
        ),
        (
            "claim",
            Message::ShareRequest(ShareRequest {
                interval: Duration::from_micros(66_667),
                latency_bound: Duration::from_millis(100),
                floor: 1,
                steps: vec![
                    Step { bytes: 8_000.0, accuracy: 0.85 },
                    Step { bytes: 20_000.0, accuracy: 0.92 },
                ],
            }),
        ),
    ]
}

fn profiles() -> Vec<(&'static str, Message)> {
    vec![
        ("profile-request", Message::ProfileRequest(ProfileRequest { hash: [0xab; 32], offset: 8_192 })),
        (
            "profile-part",
            Message::ProfilePart(ProfilePart {
                hash: [0xab; 32],
                total: 8_200,
                offset: 8_192,
                bytes: Bytes::from_static(br#"1.0 }]}"#),
            }),
        ),
    ]
}

fn past_and_replies() -> Vec<(&'static str, Message)> {
    let mut skipped = AnswerSkips::default();
    skipped.add(AnswerSkip::Replaced, 3);
    skipped.add(AnswerSkip::Late, 1);
    vec![
        (
            "history-request",
            Message::HistoryRequest(HistoryRequest {
                request: 7,
                query: PastQuery {
                    after: Some(id(3, 41)),
                    before: None,
                    begin: Timestamp::from_nanos(1_700_000_000_000_000_000),
                    end: Timestamp::from_nanos(1_700_000_060_000_000_000),
                    newest: false,
                    tier_max: Tier::Disk,
                    quality: None,
                },
                rung: Rung::original(),
                count: 32,
                continues: false,
            }),
        ),
        (
            "history-end",
            Message::HistoryEnd(HistoryEnd {
                request: 7,
                code: HistoryCode::None,
                held_from: Some(Timestamp::from_nanos(1_700_000_030_000_000_000)),
            }),
        ),
        ("abilities", Message::Abilities(Abilities::ALL)),
        ("renewal-request", Message::RenewalRequest(vec![0x0a, 0x00].into())),
        ("renewal-answer", Message::RenewalAnswer(vec![0x20, 0x01].into())),
        ("rest", Message::Rest),
        ("refresh", Message::Refresh { frame: id(3, 42) }),
        ("answer-request", Message::AnswerRequest(AnswerRequest { bound: Some(Duration::from_millis(150)) })),
        ("answer-account", Message::AnswerAccount(AnswerAccount { since: 1, answered: 100, skipped })),
        ("revocation-version", Message::RevocationVersion { version: 7 }),
        ("revocation-list", Message::RevocationList { signed: Bytes::from_static(&[0xaa; 16]) }),
        (
            "reply",
            Message::Reply {
                frame: id(3, 42),
                application: "people".into(),
                result: ReplyResult::Opaque(Bytes::from_static(br#"{"people":2}"#)),
            },
        ),
    ]
}

/// A camera's survey of ten minutes with a restart in between.
fn surveys() -> Vec<(&'static str, Message)> {
    let at = |seconds: u64| Timestamp::from_nanos((1_700_000_000 + seconds) * 1_000_000_000);
    let mut skipped = SkipCounts::default();
    skipped.add(SkipReason::Damaged, 3);
    let span = |begin, end, frames, skipped| HeldSpan { begin: at(begin), end: at(end), frames, skipped };
    let reason = HoleReason::CameraRestarted;
    let hole = Hole { begin: at(200), end: at(240), reason, skipped: SkipCounts::default() };
    let survey = Survey {
        held_from: Some(at(0) - Duration::from_hours(1)),
        cut_at: None,
        spans: vec![span(0, 200, 2_997, skipped), span(240, 600, 5_400, SkipCounts::default())],
        holes: vec![hole],
    };
    let (begin, length) = (at(0), Duration::from_mins(10));
    vec![
        ("survey-request", Message::SurveyRequest(SurveyRequest { request: 7, begin, length })),
        ("survey-answer", Message::SurveyAnswer(SurveyAnswer { request: 7, begin, survey: Ok(survey) })),
        (
            "survey-busy",
            Message::SurveyAnswer(SurveyAnswer { request: 7, begin, survey: Err(NoSurvey::Busy) }),
        ),
    ]
}

/// The frame headers of the worked examples.
fn headers() -> Vec<(&'static str, FrameHeader)> {
    let still = FrameHeader {
        meta: FrameMeta {
            id: id(3, 42),
            captured: Timestamp::from_nanos(1_700_000_002_000_000_000),
            clock_source: ClockSource::Broker,
            width: 1920,
            height: 1080,
            published: (1920, 1080),
            encoding: Encoding::Jpeg,
            rung: Rung::original(),
            chain: ChainLink::still(Sequence(42)),
        },
        payload_bytes: 100_000,
        sent: Instant::from_nanos(7_000_500_000),
        expected_accuracy: None,
        infeasible: false,
        history: 0,
        trace: CameraTrace::default(),
        skipped: vec![
            SkipRange { first: Sequence(0), count: 40, reason: SkipReason::NotWanted },
            SkipRange { first: Sequence(41), count: 1, reason: SkipReason::LinkBusy },
        ],
    };
    let mut chained = still.clone();
    chained.meta.id = id(3, 45);
    chained.meta.rung = Rung::new("jpeg/w1280/q70/420").unwrap();
    (chained.meta.width, chained.meta.height) = (1280, 720);
    chained.meta.chain =
        ChainLink { chain: Sequence(42), index: 3, reference: Reference::Acknowledged(Sequence(42)) };
    chained.expected_accuracy = Some(0.97);
    chained.infeasible = true;
    chained.skipped = Vec::new();
    let past = FrameHeader { history: 7, skipped: Vec::new(), ..still.clone() };
    let mut traced = FrameHeader { skipped: Vec::new(), ..still.clone() };
    for (stage, micros) in
        [(Stage::Published, 7_000_120), (Stage::Queued, 7_000_540), (Stage::Sent, 7_000_600)]
    {
        traced.trace.stamp(stage, Instant::from_nanos(micros * 1_000));
    }
    vec![("frame-still", still), ("frame-chained", chained), ("frame-past", past), ("frame-traced", traced)]
}

fn examples() -> Vec<(&'static str, Vec<u8>)> {
    let mut examples = Vec::new();
    for (name, message) in messages() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        examples.push((name, bytes));
    }
    for (name, header) in headers() {
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        examples.push((name, bytes));
    }
    examples.extend(records().map(|(name, head)| (name, head.encode().to_vec())));
    examples
}

/// The heads of records over TCP.
fn records() -> [(&'static str, RecordHead); 2] {
    [
        ("record-data", RecordHead { kind: RecordKind::Data, bytes: RECORD_BYTES_MAX as u16, stream: 5 }),
        ("record-stop", RecordHead { kind: RecordKind::Stop, bytes: 0, stream: 5 }),
    ]
}

#[test]
fn the_worked_examples_are_what_the_code_writes() {
    let documented = blocks(DOCUMENT);
    let mut names = BTreeSet::new();
    for (name, bytes) in examples() {
        let block = documented.get(name);
        let block = block.unwrap_or_else(|| panic!("docs/wire.md lacks {name}:\n{}", hex(&bytes)));
        assert_eq!(hex(block), hex(&bytes), "the example {name} in docs/wire.md is out of date");
        names.insert(name);
    }
    let surplus: Vec<_> = documented.keys().filter(|name| !names.contains(**name)).collect();
    assert!(surplus.is_empty(), "examples of docs/wire.md that nothing checks: {surplus:?}");
}

#[test]
fn the_worked_examples_are_read_as_what_they_are_said_to_be() {
    let documented = blocks(DOCUMENT);
    for (name, message) in messages() {
        let mut buffer = MessageBuffer::default();
        buffer.push(&documented[name]);
        assert_eq!(buffer.next(), Ok(Some(message)), "{name}");
        assert_eq!(buffer.next(), Ok(None), "{name}");
    }
    for (name, header) in headers() {
        assert_eq!(FrameHeader::decode(&documented[name]), Ok(header), "{name}");
    }
    for (name, head) in records() {
        assert_eq!(RecordHead::decode(documented[name][..].try_into().unwrap()), Ok(head), "{name}");
    }
}

/// The rows of the tables under a heading: first cell → second cell, both without backquotes.
fn rows(heading: &str) -> BTreeMap<String, String> {
    let section = DOCUMENT.split(&format!("\n{heading}\n")).nth(1);
    let section = section.unwrap_or_else(|| panic!("docs/wire.md has no section {heading:?}"));
    let section = section.split("\n#").next().unwrap_or(section);
    let cells = |line: &str| {
        let mut cells =
            line.strip_prefix('|')?.split('|').map(|cell| cell.trim().trim_matches('`').to_owned());
        Some((cells.next()?, cells.next()?))
    };
    section.lines().filter_map(cells).collect()
}

#[test]
fn limits_and_times_are_those_of_the_code() {
    let limits = rows("## Limits");
    for (name, value) in [
        ("MESSAGE_BYTES_MAX", MESSAGE_BYTES_MAX as u64),
        ("RECORD_BYTES_MAX", RECORD_BYTES_MAX as u64),
        ("FRAME_HEADER_BYTES_MAX", FRAME_HEADER_BYTES_MAX as u64),
        ("FRAME_BYTES_MAX", FRAME_BYTES_MAX.into()),
        ("TEXT_BYTES_MAX", TEXT_BYTES_MAX as u64),
        ("RUNG_BYTES_MAX", RUNG_BYTES_MAX as u64),
        ("REPLY_BYTES_MAX", REPLY_BYTES_MAX as u64),
        ("REVOCATION_LIST_BYTES_MAX", REVOCATION_LIST_BYTES_MAX as u64),
        ("CONTRACTS_MAX", CONTRACTS_MAX as u64),
        ("SKIP_RANGES_MAX", SKIP_RANGES_MAX as u64),
        ("ARRIVING_FRAMES_MAX", ARRIVING_FRAMES_MAX as u64),
        ("ARRIVING_BYTES_MAX", ARRIVING_BYTES_MAX),
        ("NUMBER_MAX", NUMBER_MAX),
        ("EPOCH_MAX", EPOCH_MAX.0),
        ("EPOCH_BASE", EPOCH_BASE.0),
        ("EPOCH_JUMP_MAX", EPOCH_JUMP_MAX),
        ("EPOCH_RAISE_MAX", EPOCH_RAISE_MAX),
        ("PROFILE_BYTES_MAX", PROFILE_BYTES_MAX.into()),
        ("PROFILE_PART_BYTES_MAX", PROFILE_PART_BYTES_MAX as u64),
        ("SHARE_REQUEST_RUNGS_MAX", SHARE_REQUEST_RUNGS_MAX as u64),
        ("HISTORY_REQUESTS_MAX", HISTORY_REQUESTS_MAX as u64),
        ("HISTORY_FRAMES_MAX", u64::from(HISTORY_FRAMES_MAX)),
        ("SURVEY_REQUESTS_MAX", SURVEY_REQUESTS_MAX as u64),
        ("SURVEY_SPANS_MAX", SURVEY_SPANS_MAX.into()),
        ("SURVEY_HOLES_MAX", SURVEY_HOLES_MAX.into()),
    ] {
        let said = limits.get(name).map(|text| text.replace(',', ""));
        assert_eq!(said, Some(value.to_string()), "{name}");
    }
    let times = rows("## Times");
    for (name, value) in [
        ("PING_INTERVAL", PING_INTERVAL),
        ("REST_PING_INTERVAL", REST_PING_INTERVAL),
        ("PEER_SILENCE_MAX", PEER_SILENCE_MAX),
        ("REST_SILENCE_MAX", REST_SILENCE_MAX),
        ("REDIAL_INTERVAL", REDIAL_INTERVAL),
        ("DIAL_TIME_MAX", DIAL_TIME_MAX),
        ("REFUSED_INTERVAL", REFUSED_INTERVAL),
    ] {
        assert_eq!(times.get(name), Some(&format!("{} ms", value.as_millis())), "{name}");
    }
    let alpn = std::str::from_utf8(ALPN).unwrap();
    assert!(DOCUMENT.contains(&format!("ALPN `{alpn}`")), "docs/wire.md does not name the protocol {alpn}");
}

#[test]
fn codes_are_those_of_the_code() {
    let encodings = rows("### Encodings");
    let reasons = rows("### Why frames were skipped");
    for code in 0..=u8::MAX {
        let number = code.to_string();
        let encoding = Encoding::from_code(code).map(Encoding::name);
        assert_eq!(encodings.get(&number).map(String::as_str), encoding, "encoding {code}");
        let reason = SkipReason::from_code(code).map(SkipReason::name);
        assert_eq!(reasons.get(&number).map(String::as_str), reason, "reason {code}");
    }
    let named = |heading: &str, code: u16, name: &str| {
        assert_eq!(rows(heading).get(&code.to_string()).map(String::as_str), Some(name), "{heading}");
    };
    let stages = rows("### Stages");
    for code in 0..=u8::MAX {
        let stage =
            Stage::from_code(code).filter(|stage| (*stage as usize) <= Stage::AT_CAMERA).map(Stage::name);
        assert_eq!(stages.get(&code.to_string()).map(String::as_str), stage, "stage {code}");
    }
    // Only cameras give the last reason.
    for reason in &AnswerSkip::ALL[..8] {
        named("### AnswerRequest and AnswerAccount", *reason as u16, reason.name());
    }
    for (code, name) in HistoryCode::ALL.into_iter().zip(["none", "rung", "busy", "too_large"]) {
        named("### HistoryEnd", code as u16, name);
    }
    named("### SurveyAnswer", 1, "surveyed");
    for (code, name) in NoSurvey::ALL.into_iter().zip(["busy", "unreadable"]) {
        named("### SurveyAnswer", code as u16, name);
    }
    for (code, reason) in [
        (0x80, HoleReason::Gone),
        (0x81, HoleReason::CameraRestarted),
        (0x82, HoleReason::NotPublished),
        (0x83, HoleReason::CameraAbsent),
    ] {
        named("### Why nothing is held", code, reason.name());
    }
    let uses = ["none", "fetching", "in_use", "other_size", "no_rung", "unreadable"];
    for (code, name) in ProfileUse::ALL.into_iter().zip(uses) {
        named("### FeasibilityReport", code as u16, name);
    }
    named("### Refuse", RefuseCode::Version as u16, "version");
    named("### Refuse", RefuseCode::NotPermitted as u16, "not_permitted");
    named("### Refuse", RefuseCode::NameHeld as u16, "name_held");
    named("### Refuse", RefuseCode::Replaced as u16, "replaced");
    named("### Refuse", RefuseCode::Protocol as u16, "protocol");
    named("### Refuse", RefuseCode::Full as u16, "full");
    named("### Refuse", RefuseCode::Stopping as u16, "stopping");
    named("### Refuse", RefuseCode::Revoked as u16, "revoked");
    named("### What to do when both bounds cannot be held", OnInfeasible::Degrade as u16, "degrade");
    named("### What to do when both bounds cannot be held", OnInfeasible::Skip as u16, "skip");
    named("### What to do when both bounds cannot be held", OnInfeasible::Stop as u16, "stop");
    named("### Clock sources", ClockSource::Broker as u16, "broker");
    named("### Clock sources", ClockSource::Publisher as u16, "publisher");
}
