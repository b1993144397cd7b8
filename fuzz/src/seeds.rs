//! Builds the initial inputs of the fuzzers.
//!
//! Inputs of the first kind are built here. They are also in `seeds/TARGET/`, so that libFuzzer finds them:
//! `cargo run -p mez-fuzz --example seeds` writes them, and a test checks that these files are up to date. Inputs
//! of the second kind are only in that folder, with names that begin with `broke-`. The test runs them like all others.
//!
//! Scripts for brokers, of both kinds, are text: `scripts/TARGET/NAME.txt` (see [`crate::text`]). To
//! convert an input of a fuzzer to text, run `cargo run -p mez-fuzz --example script TARGET FILE`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use mez_core::contract::negotiation::ContractOutcome;
use mez_core::contract::{Contract, OnInfeasible};
use mez_core::controller::Calibration;
use mez_core::controller::share::Step;
use mez_core::frame::{
    ChainLink, ClockSource, Encoding, Epoch, FrameId, FrameMeta, Reference, Rung, Sequence, SkipRange,
    SkipReason,
};
use mez_core::history::{PastQuery, Tier};
use mez_core::profile::SizeDrift;
use mez_core::setting::{Jpeg, Quality};
use mez_core::source::SourceState;
use mez_core::trace::{CameraTrace, Stage};
use mez_core::units::{BitsPerSecond, ClockAnchor, Instant, Timestamp};
use mez_core::wire::{
    Abilities, Demand, DiskStatus, FeasibilityReport, FrameHeader, Hello, HistoryCode, HistoryEnd,
    HistoryRequest, Inquiry, Message, NegotiationResult, ProfilePart, ProfileRequest, ProfileUse, RefuseCode,
    ReplyResult, Report, SKIP_RANGES_MAX, Share, ShareRequest, SourceReport, Standing, Status, VERSION,
    Welcome,
};
use mez_media::jpeg::{Encoder, Sampling};
use mez_media::stream::{Outcome, Request, Source, StreamEncoder};
use mez_media::tiles::{Base, TileEncoder};
use mez_media::{ImageView, PixelFormat};
use mez_node::api::pb;
use mez_node::local::Kind;
use mez_node::revocation::SignedList;
use prost::Message as _;

use crate::text::Language;
use crate::{access_units, camera_broker, deny_list, edge_broker, nut, surveys};

/// An input that is built here.
pub struct Seed {
    /// Its target.
    pub target: &'static str,
    /// Its file name.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

/// All inputs that are built here.
pub fn all() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |target, name: &str, bytes| seeds.push(Seed { target, name: name.into(), bytes });
    for (name, message) in messages() {
        let mut bytes = vec![7];
        message.encode(&mut bytes);
        add("wire_message", name, bytes);
    }
    let mut conversation = vec![2];
    messages().iter().for_each(|(_, message)| message.encode(&mut conversation));
    add("wire_message", "all", conversation);
    for (name, header) in headers() {
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        add("frame_header", name, bytes);
    }
    for (name, text) in [
        ("one", "dock/cam1\ndock/cam1"),
        ("star", "dock/*\ndock/cam1"),
        ("stars", "**/north/**/cam1\ndock/north/a/b/cam1"),
        ("all", "**\na/b/c/d/e/f/g/h"),
        ("most", "**/a/**/a/**/a/**/a\na/a/a/a/a/a/a/b"),
    ] {
        add("camera_pattern", name, text.into());
    }
    let images = images();
    for (name, image) in &images {
        add("jpeg", name, [&[255], &**image].concat());
    }
    let stream: Vec<u8> = images.iter().flat_map(|(_, image)| image.iter().copied().chain([0, 0])).collect();
    add("jpeg", "stream", [&[100], &*stream].concat());
    for (name, bytes) in tiles() {
        add("tiles", name, bytes);
    }
    for (name, bytes) in streams() {
        add("stream", name, bytes);
    }
    for (name, bytes) in access_units::seeds() {
        add("h264_access_units", name, bytes);
    }
    for (name, bytes) in nut::seeds() {
        add("nut", name, bytes);
    }
    for (name, edits) in LOG_EDITS {
        add("log_segments", name, edits.to_vec());
    }
    for (name, bytes) in requests(&images[0].1) {
        add("api_request", name, bytes);
    }
    for (name, bytes) in deny_lists() {
        add("deny_list", name, bytes);
    }
    seeds.extend(scripts("edge_broker", &edge_broker::LANGUAGE));
    seeds.extend(scripts("camera_broker", &camera_broker::LANGUAGE));
    seeds
}

/// The scripts in `scripts/TARGET/`, in the order of their names.
fn scripts(target: &'static str, language: &Language) -> Vec<Seed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a folder that can be read").path()).collect();
    paths.sort();
    let seed = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let bytes = language.parse(&text).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()));
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Seed { target, name, bytes }
    };
    paths.into_iter().map(seed).collect()
}

fn id(epoch: u64, sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) }
}

fn messages() -> Vec<(&'static str, Message)> {
    [other_messages(), surveys::messages()].concat()
}

fn other_messages() -> Vec<(&'static str, Message)> {
    let at = Instant::from_nanos;
    let software = || String::from("mez 0.1.0");
    let contract = Contract {
        latency_bound: Some(Duration::from_millis(100)),
        accuracy_floor: Some(0.95),
        profile: Some([7; 32]),
        min_fps: 5.0,
        on_infeasible: OnInfeasible::Skip,
        priority: -1,
        ..Contract::default()
    };
    let welcome =
        |newest| Welcome { version: VERSION, newest, frame_bytes_max: 32 << 20, software: software() };
    vec![
        (
            "hello",
            Message::Hello(Hello {
                version: VERSION,
                camera: "dock/cam1".parse().expect("a valid name"),
                epoch: Epoch(3),
                attempt: 2,
                anchor: ClockAnchor {
                    wall: Timestamp::from_nanos(1_700_000_000_000_000_000),
                    monotonic: at(5),
                },
                software: software(),
            }),
        ),
        ("welcome", Message::Welcome(welcome(Some(id(3, 41))))),
        ("welcome-new", Message::Welcome(welcome(None))),
        ("refuse", Message::Refuse { code: RefuseCode::NameHeld, text: "camera dock/cam1 is held".into() }),
        ("ping", Message::Ping { t1: at(1_000) }),
        ("pong", Message::Pong { t1: at(1_000), t2: at(7_000), t3: at(7_100) }),
        ("demand", Message::Demand(Demand { revision: 4, contracts: vec![contract, Contract::default()] })),
        ("demand-none", Message::Demand(Demand { revision: 5, contracts: Vec::new() })),
        (
            "progress",
            Message::Report(Report::Progress {
                frame: id(3, 42),
                bytes: 65_536,
                first: at(9_000),
                now: at(19_000),
            }),
        ),
        (
            "complete",
            Message::Report(Report::Complete {
                frame: id(3, 42),
                bytes: 100_000,
                first: at(9_000),
                last: at(29_000),
            }),
        ),
        ("refused", Message::Report(Report::Refused { frame: id(3, 42) })),
        (
            "status",
            Message::Status(Status {
                published: 43,
                refused: 1,
                width: 1920,
                height: 1080,
                frames_per_second: 15.0,
                log_bytes: 9_000_000,
                published_bytes: 5_848_000,
            }),
        ),
        (
            "reply",
            Message::Reply {
                frame: id(3, 42),
                application: "people".into(),
                result: ReplyResult::Opaque(Bytes::from_static(b"{\"boxes\":[]}")),
            },
        ),
        (
            "reply-detections",
            Message::Reply {
                frame: id(3, 42),
                application: "people".into(),
                result: ReplyResult::Detections(detections().encode_to_vec().into()),
            },
        ),
        (
            "disk-status",
            Message::DiskStatus(DiskStatus { bytes: 5_000_000, lost: 2, degraded: "no space".into() }),
        ),
        (
            "source",
            Message::SourceReport(SourceReport {
                state: SourceState::Lost,
                reason: "connection refused".into(),
                lasts: Duration::from_secs(3),
                retry: Some(Duration::from_millis(250)),
            }),
        ),
        (
            "feasibility",
            Message::FeasibilityReport(FeasibilityReport {
                link_rate: Some(BitsPerSecond(8e6)),
                floor_bytes: Some(20_000.0),
                best_accuracy: Some(0.98),
                infeasible: true,
                interrupted: true,
                profile_use: ProfileUse::InUse,
                profile: Some([7; 32]),
                drift: Some(SizeDrift { measured: 50.0, profiled: 145.0 }),
                calibration: Calibration { frames: 900, expected_late: 0.01, actual_late: 0.02 },
            }),
        ),
        (
            "negotiation-result",
            Message::NegotiationResult(NegotiationResult {
                revision: 5,
                outcomes: vec![
                    Some(ContractOutcome::Kept),
                    Some(ContractOutcome::Conflict { with: 0 }),
                    Some(ContractOutcome::Outvoted),
                    Some(ContractOutcome::Infeasible),
                    None,
                ],
            }),
        ),
        (
            "share",
            Message::Share(Share::Cap { frame_bytes_max: 24_000, lifetime: Duration::from_millis(300) }),
        ),
        ("share-shed", Message::Share(Share::SHED)),
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
        ("revocation-version", Message::RevocationVersion { version: 7 }),
        ("revocation-list", Message::RevocationList { signed: Bytes::from_static(&[0xaa; 16]) }),
        ("profile-request", Message::ProfileRequest(ProfileRequest { hash: [7; 32], offset: 8192 })),
        (
            "profile-part",
            Message::ProfilePart(ProfilePart {
                hash: [7; 32],
                total: 8200,
                offset: 8192,
                bytes: Bytes::from_static(b"{\"rungs\"}"),
            }),
        ),
        ("history-request", Message::HistoryRequest(history(3, false))),
        ("history-goes-on", Message::HistoryRequest(history(8, true))),
        ("history-withdrawn", Message::HistoryRequest(history(0, false))),
        (
            "history-end",
            Message::HistoryEnd(HistoryEnd {
                request: 1 << 32,
                code: HistoryCode::None,
                held_from: Some(Timestamp::from_nanos(1_700_000_000_000_000_000)),
            }),
        ),
        ("abilities", Message::Abilities(Abilities::ALL)),
        ("renewal-request", Message::RenewalRequest(vec![0x0a, 0x00].into())),
        ("renewal-answer", Message::RenewalAnswer(vec![0x20, 0x01].into())),
        ("rest", Message::Rest),
        ("refresh", Message::Refresh { frame: id(3, 42) }),
        (
            "inquiry",
            Message::Inquiry(Inquiry {
                camera: "dock/cam1".parse().expect("a name"),
                software: "mez 0.1.0".into(),
            }),
        ),
        (
            "standing",
            Message::Standing(Standing {
                version: VERSION,
                wall: Timestamp::from_nanos(1_700_000_000_000_000_000),
                is_connected: true,
                refusal: Some((RefuseCode::NameHeld, "held".into())),
                software: "mez 0.1.0".into(),
            }),
        ),
    ]
}

fn history(count: u16, continues: bool) -> HistoryRequest {
    let query = PastQuery {
        after: Some(id(3, 12)),
        before: Some(id(3, 40)),
        begin: Timestamp::from_nanos(1_700_000_000_000_000_000),
        end: Timestamp::MAX,
        newest: false,
        tier_max: Tier::Disk,
        quality: None,
    };
    HistoryRequest { request: 1 << 32, query, rung: Rung::original(), count, continues }
}

fn headers() -> Vec<(&'static str, FrameHeader)> {
    let still = FrameHeader {
        meta: FrameMeta {
            id: id(3, 42),
            captured: Timestamp::from_nanos(1_700_000_000_000_000_000),
            clock_source: ClockSource::Broker,
            width: 1920,
            height: 1080,
            published: (1920, 1080),
            encoding: Encoding::Jpeg,
            rung: Rung::original(),
            chain: ChainLink::still(Sequence(42)),
        },
        payload_bytes: 100_000,
        sent: Instant::from_nanos(9_000),
        expected_accuracy: None,
        infeasible: false,
        history: 0,
        trace: CameraTrace::default(),
        skipped: Vec::new(),
    };
    let range = |first, count, reason| SkipRange { first: Sequence(first), count, reason };
    let mut gaps = still.clone();
    gaps.skipped = vec![range(30, 2, SkipReason::LinkBusy), range(35, 7, SkipReason::LinkDown)];
    let mut full = gaps.clone();
    full.skipped =
        (0..SKIP_RANGES_MAX as u64).map(|n| range(n, 1, SkipReason::ALL[n as usize % 9])).collect();
    let mut chained = still.clone();
    chained.meta.chain =
        ChainLink { chain: Sequence(40), index: 2, reference: Reference::Acknowledged(Sequence(40)) };
    chained.meta.rung = Rung::new("jpeg/w1280/q70/420").expect("a valid rung");
    chained.meta.clock_source = ClockSource::Publisher;
    chained.expected_accuracy = Some(0.97);
    chained.infeasible = true;
    let mut traced = still.clone();
    traced.trace.stamp(Stage::Published, Instant::from_nanos(8_000));
    traced.trace.stamp(Stage::Sent, Instant::from_nanos(11_000));
    vec![("still", still), ("gaps", gaps), ("full", full), ("chained", chained), ("traced", traced)]
}

/// A person in a scaled frame.
fn detections() -> pb::Detections {
    let person = pb::Detection {
        x1: 10.0,
        y1: 20.5,
        x2: 60.0,
        y2: 120.0,
        score: Some(0.75),
        class_id: Some(0),
        class_name: "person".into(),
        tracker_id: Some(7),
        mask: Some(pb::Mask { width: 4, height: 2, runs: vec![3, 2, 3] }),
        key_points: vec![pb::KeyPoint { x: 30.0, y: 40.0, score: Some(0.5) }],
    };
    pb::Detections { width: 384, height: 288, detections: vec![person] }
}

/// Requests of the application interface, alone and in packets.
fn requests(image: &Bytes) -> Vec<(&'static str, Vec<u8>)> {
    let subscribe = pb::SubscribeRequest {
        pattern: "dock/*".into(),
        begin_utc_ns: Some(1_700_000_000_000_000_000),
        end_utc_ns: Some(1_800_000_000_000_000_000),
        contract: Some(pb::Contract {
            latency_bound_ns: Some(100_000_000),
            accuracy_floor: Some(0.95),
            on_time_share: Some(0.9),
            min_fps: 5.0,
            priority: -3,
            ..Default::default()
        }),
        accept_encodings: vec![1, 2],
        application: "people".into(),
        ..Default::default()
    };
    let publish = pb::PublishRequest {
        camera: "dock/cam1".into(),
        number: 7,
        encoding: 1,
        width: 32,
        height: 24,
        payload: image.clone(),
        ..Default::default()
    };
    let packet = |kind: Kind, message: Vec<u8>, payload: &[u8]| {
        let length = |bytes: &[u8]| (bytes.len() as u32).to_le_bytes();
        [&[kind as u8, 0, 0, 0][..], &length(&message), &length(payload), &message, payload].concat()
    };
    let update = pb::UpdateContractRequest {
        subscription_id: 1,
        contract: Some(pb::Contract {
            latency_bound_ns: Some(50_000_000),
            accuracy_floor: Some(0.9),
            priority: 2,
            ..Default::default()
        }),
    };
    let measured =
        pb::ReportAccuracyRequest { subscription_id: 1, camera: "dock/cam1".into(), accuracy: 0.8 };
    let rung = |name: &str, bytes: u32, accuracy: f64| {
        format!(
            r#"{{"rung":"{name}","bytes":{{"mean":{bytes},"p05":{bytes},"p50":{bytes},"p95":{bytes}}},"accuracy_normalised":{{"value":{accuracy}}}}}"#
        )
    };
    let profile = format!(
        r#"{{"format":"mez-profile","version":1,"app":"people","width":64,"height":48,"rungs":[{},{}]}}"#,
        rung("h264/q40", 300, 0.9),
        rung("original", 4000, 1.0)
    );
    let inline = pb::PublishRequest { payload: Bytes::new(), ..publish.clone() };
    let reply = pb::ReplyRequest {
        camera: "dock/cam1".into(),
        epoch: 3,
        sequence: 42,
        content: Some(pb::reply_request::Content::Detections(detections())),
        published_width: 768,
        published_height: 576,
        ..Default::default()
    };
    let said = pb::Reply {
        epoch: 3,
        sequence: 42,
        application: "people".into(),
        content: Some(pb::reply::Content::Detections(detections())),
    };
    let note = pb::Note {
        note: Some(pb::note::Note::Reply(said)),
        captured_utc_ns: Some(1_700_000_000_000_000_000),
        ..Default::default()
    };
    let stands =
        pb::NotedContract { application: "people".into(), state: 3, reason: "3 of 9 within 40 ms".into() };
    let contract = pb::Note { note: Some(pb::note::Note::Contract(stands)), ..Default::default() };
    let lost = pb::NotedSource { state: 3, reason: "no such device".into(), since_utc_ns: Some(7) };
    let source = pb::Note { note: Some(pb::note::Note::Source(lost)), ..Default::default() };
    let packets = [
        packet(Kind::Subscribe, subscribe.encode_to_vec(), &[]),
        packet(Kind::Publish, inline.encode_to_vec(), image),
        packet(Kind::UpdateContract, update.encode_to_vec(), &[]),
        packet(Kind::ReportAccuracy, measured.encode_to_vec(), &[]),
        packet(Kind::Reply, reply.encode_to_vec(), &[]),
    ];
    vec![
        ("subscribe", [&[0][..], &subscribe.encode_to_vec()].concat()),
        ("publish", [&[1][..], &publish.encode_to_vec()].concat()),
        ("packets", [&[2][..], &packets.concat()].concat()),
        ("update", [&[3][..], &update.encode_to_vec()].concat()),
        ("profile", [&[4][..], profile.as_bytes()].concat()),
        ("note-reply", [&[5][..], &note.encode_to_vec()].concat()),
        ("note-contract", [&[5][..], &contract.encode_to_vec()].concat()),
        ("note-source", [&[5][..], &source.encode_to_vec()].concat()),
    ]
}

fn images() -> Vec<(&'static str, Bytes)> {
    let pixels: Vec<u8> = (0..32 * 24 * 3).map(|n| (n % 251) as u8).collect();
    let encode = |format: PixelFormat, sampling| {
        let image = ImageView::packed(&pixels[..32 * 24 * format.bytes_per_pixel()], 32, 24, format);
        let mut encoder = Encoder::new(60, sampling).expect("60 is a quality");
        encoder.encode(&image.expect("the image has its size")).expect("a small image can be encoded")
    };
    vec![
        ("colour", encode(PixelFormat::Bgr8, Sampling::Yuv420)),
        ("full-colour", encode(PixelFormat::Bgr8, Sampling::Yuv444)),
        ("grey", encode(PixelFormat::Gray8, Sampling::Yuv420)),
    ]
}

/// Pairs of frames of a small picture: first all tiles, then none, one or all tiles.
fn tiles() -> Vec<(&'static str, Vec<u8>)> {
    let pair = |second: u8, base: Base| {
        let setting = Jpeg { width: None, quality: Quality::clamped(40), sampling: Sampling::Yuv420 };
        let mut encoder = TileEncoder::new().expect("memory");
        let mut frame = |number, right: u8, base| {
            let pixels: Vec<u8> = (0..70 * 40).map(|at| if at % 70 < 40 { 60 } else { right }).collect();
            let view = ImageView::packed(&pixels, 70, 40, PixelFormat::Gray8).expect("a picture");
            encoder.encode(&view, &setting, number, base, None).expect("memory").payload
        };
        let (first, second) = (frame(1, 60, Base::Nothing), frame(2, second, base));
        [&(first.len() as u16).to_le_bytes()[..], &first, &second].concat()
    };
    vec![
        ("unchanged", pair(60, Base::Last)),
        ("changed", pair(200, Base::Last)),
        ("all-again", pair(200, Base::Nothing)),
        ("since-the-first", pair(200, Base::Frame(1))),
    ]
}

/// Deny lists: the content, a list without a valid signature, and edits of the genuine list.
fn deny_lists() -> Vec<(&'static str, Vec<u8>)> {
    let content = deny_list::example().encode();
    // A signature of eight bytes, and no certificate of a replacing authority.
    let unsigned = [&[8, 0][..], &[0x30; 8], &[0, 0], &content].concat();
    let file = SignedList { list: deny_list::example(), bytes: unsigned.clone().into() }.to_text();
    vec![
        ("content", [&[0][..], &content].concat()),
        ("unsigned", [&[1][..], &unsigned].concat()),
        ("unsigned-file", [&[2][..], file.as_bytes()].concat()),
        ("untouched", vec![3]),
        // The first bytes of the signature itself, after its length.
        ("another-signature", vec![3, 8, 0, 1]),
    ]
}

/// Scripts of edits to a log on disk, for `log_segments.rs`.
const LOG_EDITS: [(&str, &[u8]); 8] = [
    ("untouched", &[]),
    ("torn-tail", &[0, 2, 0x60, 0x01]),
    ("flipped-in-the-middle", &[1, 1, 0x40, 0x01, 0x10]),
    ("foreign", &[2, 3, 4, 0, b'R', b'I', b'F', b'F']),
    ("copied-to-another-number", &[3, 3, 0]),
    ("longer", &[4, 2, 3, 0, 1, 2, 3]),
    ("rolled-back", &[5, 0, 9]),
    ("bounds-lost", &[5, 0, 255]),
];

/// Frames for `stream.rs`, made by the encoder: chains of H.264 and of changed tiles, and stills.
fn streams() -> Vec<(&'static str, Vec<u8>)> {
    let pixels: Vec<u8> = (0..64u32 * 48 * 3).map(|at| (at * 7 % 251) as u8).collect();
    let view = ImageView::packed(&pixels, 64, 48, PixelFormat::Bgr8).expect("a picture");
    let stream = |rung: &str, encoding: u8| {
        let mut encoder = StreamEncoder::new(1 << 14).expect("memory");
        let setting = rung.parse().expect("a valid rung");
        (1..=4u8).fold(Vec::new(), |mut out, number| {
            let sequence = Sequence(number.into());
            let request = Request {
                sequence,
                captured: Instant::from_nanos(u64::from(number) * 66_000_000),
                setting: &setting,
                bytes_max: None,
                reference: Reference::Previous,
            };
            let outcome = encoder.encode(&Source::Pixels(view), &request).expect("it can be encoded");
            let Outcome::Frame(frame) = outcome else { panic!("{rung}: {outcome:?}") };
            encoder.acknowledge(sequence);
            let reference = match frame.chain.reference {
                Reference::Independent => 0,
                Reference::Previous => 1,
                Reference::Acknowledged(sequence) => sequence.0 as u8 + 2,
            };
            out.extend([encoding, number, frame.chain.chain.0 as u8, frame.chain.index as u8, reference]);
            out.extend([frame.width as u8, frame.height as u8]);
            out.extend((frame.payload.len() as u16).to_le_bytes());
            out.extend_from_slice(&frame.payload);
            out
        })
    };
    vec![
        ("h264", stream("h264/q40", 0)),
        ("tiles", stream("tiles/q40/420", 1)),
        ("jpeg", stream("jpeg/q40/420", 2)),
        ("h265", crate::stream::of_source(include_bytes!("../../crates/media/tests/streams/h265.nut"), 6)),
        ("av1", crate::stream::of_source(include_bytes!("../../crates/media/tests/streams/av1.nut"), 7)),
    ]
}
