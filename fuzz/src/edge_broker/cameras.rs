//! Sends an edge any message that a camera may send, valid or not.

use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::contract::negotiation::ContractOutcome;
use mez_core::controller::Calibration;
use mez_core::controller::share::Step;
use mez_core::frame::{
    ChainLink, ClockSource, Encoding, Epoch, FrameId, FrameMeta, Reference, Rung, Sequence, SkipCounts,
    SkipRange, SkipReason,
};
use mez_core::history::{HeldSpan, Hole, HoleReason, Survey};
use mez_core::profile::SizeDrift;
use mez_core::source::SourceState;
use mez_core::stills::StillAnswer;
use mez_core::trace::{CameraTrace, Stage};
use mez_core::units::{BitsPerSecond, Instant, Timestamp};
use mez_core::wire::{
    Abilities, Demand, DiskStatus, FeasibilityReport, FrameHeader, HistoryCode, HistoryEnd, HistoryRequest,
    Message, NegotiationResult, NoSurvey, ProfilePart, ProfileRequest, ProfileUse, RefuseCode, ReplyResult,
    Report, SKIP_RANGES_MAX, ShareRequest, SourceReport, Status, SurveyAnswer, VERSION, Welcome,
};

use super::applications::past_query;
use super::{ORIGIN, World, captured};
use crate::profiles::PROFILES;
use crate::script::{NUMBERS, pick};

impl World {
    /// A still is made. The outcome depends on the sequence of its frame.
    pub(super) fn still_made(&mut self) {
        let outcome = self.stills.front().map_or(0, |(.., frame)| frame.sequence.0 as u8);
        self.still_made_as(0, outcome);
    }

    /// A request for a still is answered. b selects the request, c the outcome.
    pub(super) fn still_made_as(&mut self, b: u8, c: u8) {
        let place = usize::from(b) % self.stills.len().max(1);
        let Some((reader, camera, frame)) = self.stills.remove(place) else { return };
        let record = self.logs.get(&camera).and_then(|log| log.get_frame(frame));
        let answer = match (c % 8, record) {
            (0, _) => StillAnswer::NotDecoded,
            (1, _) | (_, None) => StillAnswer::Gone,
            (_, Some(mut record)) => {
                record.frame.meta.encoding = Encoding::Jpeg;
                record.frame.meta.chain = ChainLink::still(frame.sequence);
                StillAnswer::Still(Box::new(record), None)
            }
        };
        if let Some(reader) = self.readers.get_mut(&reader) {
            reader.session.handle_still(&camera, frame, answer);
        }
        if c & 0x40 != 0 {
            self.broker.handle_chain_lost(self.now, &camera);
        }
        self.drain();
    }

    /// A camera answers a request for the past. a selects the connection, b the
    /// frame, c the kind of answer. If `done`, the whole frame arrives immediately.
    pub(super) fn answers(&mut self, link: LinkId, frame: FrameId, b: u8, c: u8, done: bool) {
        let now = self.now;
        let number = self.asked.get(&link).and_then(|numbers| numbers.get(usize::from(c >> 5)).copied());
        let number = number.unwrap_or(pick(&NUMBERS, c));
        let kind = c & 0x1f;
        if kind == 7 {
            let held_from = (b & 1 == 0).then_some(captured(b));
            let end = HistoryEnd { request: number, code: pick(&HistoryCode::ALL, b), held_from };
            return self.broker.handle_message(now, link, Message::HistoryEnd(end));
        }
        if kind == 6 {
            self.broker.handle_history_cancelled(now, link, number);
            return;
        }
        if number == 0 {
            // This is not a frame of the past.
            return;
        }
        let mut header = FrameHeader { history: number, ..header(frame, b, kind) };
        if kind & 1 == 1 {
            header.meta.rung = Rung::new("jpeg/q50/420").expect("a rung's name");
        }
        let bytes = if kind == 5 { 3 } else { header.payload_bytes.min(1 << 16) as usize };
        let taken = self.broker.handle_frame_header(now, link, header);
        if taken.is_ok() {
            let numbers = self.asked.get(&link).into_iter().flatten();
            assert!(numbers.copied().any(|asked| asked == number), "a frame was taken that nobody asked for");
            self.arriving.push((link, number, bytes));
            if self.arriving.len() > super::ARRIVING_MAX {
                self.arriving.remove(0);
            }
        }
        if done {
            self.past_arrived(u8::MAX, b);
        }
    }

    /// A camera answers a survey. b selects the content, c the request.
    pub(super) fn surveyed(&mut self, link: LinkId, b: u8, c: u8) {
        let question = self.surveys.keys().nth(usize::from(c & 7)).copied().unwrap_or(pick(&NUMBERS, c));
        let at = |millis: u8| ORIGIN + Duration::from_millis(millis.into());
        let skipped = SkipCounts::default();
        let span = HeldSpan { begin: at(b & 3), end: at(b >> 2 & 3), frames: b.into(), skipped };
        let hole = Hole { begin: at(b >> 4 & 3), end: at(b >> 6), reason: HoleReason::Gone, skipped };
        let (spans, holes) = (vec![span; 1 + usize::from(c >> 5)], vec![hole; usize::from(c & 1)]);
        let survey = match c & 0x18 {
            0x18 => Err(pick(&NoSurvey::ALL, b)),
            _ => Ok(Survey { held_from: None, cut_at: (c & 8 != 0).then(|| at(b)), spans, holes }),
        };
        let answer = SurveyAnswer { request: question, begin: ORIGIN, survey };
        self.broker.handle_message(self.now, link, Message::SurveyAnswer(answer));
    }

    /// A past frame has arrived completely, or was cancelled. b selects the frame, c the case.
    pub(super) fn past_arrived(&mut self, b: u8, c: u8) {
        let place = if b == u8::MAX { self.arriving.len().saturating_sub(1) } else { usize::from(b) };
        if place >= self.arriving.len() {
            return;
        }
        let (link, number, bytes) = self.arriving.remove(place);
        if c & 7 == 7 {
            self.broker.handle_history_cancelled(self.now, link, number);
        } else {
            self.broker.handle_history_complete(self.now, link, number, vec![c; bytes].into());
        }
    }
}

/// Sizes of payloads: 0, usual ones, the limit, and above the limit. The last one is the size of a short frame.
pub(super) const SIZES: [u16; 32] = [
    64, 64, 64, 64, 64, 64, 64, 64, 512, 512, 512, 512, 1000, 1000, 1000, 1000, 2048, 2048, 2048, 2048, 64,
    64, 64, 64, 64, 64, 64, 64, 0, 1, 2049, 65535,
];

/// Stamps in any order, also before the camera's start and at the end of its clock.
fn trace(b: u8, kind: u8) -> CameraTrace {
    let mut trace = CameraTrace::default();
    for (place, stage) in Stage::ALL.into_iter().enumerate().filter(|(place, _)| (b >> (place % 8)) & 1 == 1)
    {
        let at = (u64::from(kind) << (8 * (place % 8))).wrapping_mul(1_000_003);
        trace.stamp(stage, Instant::from_nanos(if kind == 30 { u64::MAX } else { at }));
    }
    trace
}

pub(super) fn header(id: FrameId, b: u8, kind: u8) -> FrameHeader {
    let range = |first: u64, count: u64, reason| SkipRange { first: Sequence(first), count, reason };
    let (chain, skipped) = match kind {
        0..16 => (ChainLink::still(id.sequence), Vec::new()),
        16 => (ChainLink::still(id.sequence), vec![range(0, u64::from(b), SkipReason::LinkBusy)]),
        17 => (ChainLink::still(id.sequence), vec![range(u64::MAX, u64::MAX, SkipReason::Stalled)]),
        18 => {
            let ranges = (0..SKIP_RANGES_MAX as u64).map(|n| range(n, u64::MAX, SkipReason::NotWanted));
            (ChainLink::still(id.sequence), ranges.collect())
        }
        // Ranges that overlap, are empty, or go backwards.
        19 => {
            let ranges = [
                range(9, 3, SkipReason::LinkBusy),
                range(2, 0, SkipReason::Stalled),
                range(1, 10, SkipReason::LinkDown),
            ];
            (ChainLink::still(id.sequence), ranges.into())
        }
        20..24 => {
            let chain =
                ChainLink { chain: Sequence(0), index: id.sequence.0 as u32, reference: Reference::Previous };
            (chain, Vec::new())
        }
        // Chains as cameras encode them: four frames each, the last of which refers to the second.
        24..27 => {
            let (first, index) = (id.sequence.0 & !3, id.sequence.0 as u32 & 3);
            let reference = match index {
                0 => Reference::Independent,
                3 => Reference::Acknowledged(Sequence(first + 1)),
                _ => Reference::Previous,
            };
            (ChainLink { chain: Sequence(first), index, reference }, Vec::new())
        }
        _ => {
            let reference = Reference::Acknowledged(Sequence(u64::MAX));
            (ChainLink { chain: Sequence(u64::MAX), index: u32::MAX, reference }, Vec::new())
        }
    };
    let meta = FrameMeta {
        id,
        captured: captured(b),
        clock_source: ClockSource::Broker,
        width: if kind == 27 { 0 } else { 640 },
        height: 480,
        published: (1280, 960),
        encoding: match kind {
            20..22 | 24 | 25 => Encoding::H264,
            22 | 23 | 26 | 28 => Encoding::Tiles,
            _ => Encoding::Jpeg,
        },
        rung: Rung::original(),
        chain,
    };
    let payload_bytes = match kind {
        31 => u32::MAX,
        _ => u32::from(pick(&SIZES, kind)),
    };
    FrameHeader {
        meta,
        payload_bytes,
        sent: Instant::from_nanos(u64::from(b)),
        expected_accuracy: (kind & 4 != 0).then(|| f64::from(b) / 255.0),
        infeasible: kind & 6 == 6,
        history: 0,
        trace: trace(b, kind),
        skipped,
    }
}

/// Any other message, including those that a camera may not send.
pub(super) fn message(b: u8, c: u8, now: Instant) -> Message {
    let number = pick(&NUMBERS, c);
    let instant = Instant::from_nanos(number);
    let frame = FrameId { epoch: Epoch(1), sequence: Sequence(number) };
    match b % 20 {
        0 => Message::Ping { t1: instant },
        1 => Message::Pong { t1: now, t2: instant, t3: instant },
        2 => Message::Pong { t1: instant, t2: instant, t3: Instant::from_nanos(u64::MAX) },
        3 | 4 => Message::Status(Status {
            published_bytes: number,
            published: number,
            refused: number,
            width: number as u32,
            height: number as u32,
            frames_per_second: if c & 0x80 == 0 { 15.0 } else { f64::NAN },
            log_bytes: number,
        }),
        5 => Message::Welcome(Welcome {
            version: VERSION,
            newest: Some(frame),
            frame_bytes_max: c.into(),
            software: String::new(),
        }),
        6 => Message::Refuse { code: RefuseCode::Full, text: String::new() },
        7 => Message::Demand(Demand::default()),
        9 => Message::ShareRequest(ShareRequest {
            interval: Duration::from_millis(u64::from(c >> 4)),
            latency_bound: Duration::from_millis(100),
            floor: usize::from(c & 3),
            steps: (1..=c & 7)
                .map(|place| Step {
                    bytes: (number % (1 << 20)) as f64 + f64::from(place),
                    accuracy: f64::from(place) / 8.0,
                })
                .collect(),
        }),
        10 if c & 1 == 0 => Message::SourceReport(SourceReport {
            state: pick(&SourceState::ALL, c >> 1),
            reason: String::new(),
            lasts: Duration::from_nanos(number),
            retry: (c & 8 == 0).then(|| Duration::from_nanos(number)),
        }),
        10 => Message::DiskStatus(DiskStatus { bytes: number, lost: number, degraded: String::new() }),
        11 | 12 => Message::FeasibilityReport(FeasibilityReport {
            link_rate: (c & 1 == 0).then_some(BitsPerSecond(number as f64)),
            floor_bytes: (c & 2 == 0).then_some(number as f64 + 1.0),
            best_accuracy: (c & 4 == 0).then(|| f64::from(c) / 255.0),
            infeasible: c & 0x80 != 0,
            interrupted: c & 0x40 != 0,
            profile_use: pick(&ProfileUse::ALL, c),
            profile: pick(&PROFILES, c >> 4),
            drift: (c & 8 == 0).then_some(SizeDrift { measured: number as f64 + 1.0, profiled: 145.0 }),
            calibration: Calibration::default(),
        }),
        13 | 14 => Message::ProfileRequest(ProfileRequest {
            hash: pick(&PROFILES, c).unwrap_or_default(),
            offset: pick(&NUMBERS, c >> 2) as u32,
        }),
        15 => Message::ProfilePart(ProfilePart { hash: [c; 32], total: 1, offset: 0, bytes: vec![c].into() }),
        16 if c & 1 == 0 => Message::Rest,
        16 => Message::Refresh { frame },
        19 => Message::NegotiationResult(NegotiationResult {
            revision: u64::from(c >> 5),
            outcomes: (0..c & 3)
                .map(|place| match (c >> 2).wrapping_add(place) & 3 {
                    0 => Some(ContractOutcome::Kept),
                    1 => Some(ContractOutcome::Conflict { with: usize::from(place == 0) }),
                    2 => Some(ContractOutcome::Infeasible),
                    _ => None,
                })
                .collect(),
        }),
        18 => Message::Abilities(Abilities { past: c & 1 == 0, surveys: c & 2 == 0 }),
        17 => {
            let span = (Timestamp::MIN, Timestamp::MAX);
            let query = past_query((None, None), span, false);
            let rung = Rung::original();
            Message::HistoryRequest(HistoryRequest {
                request: number,
                query,
                rung,
                count: 1,
                continues: false,
            })
        }
        8 => Message::Report(Report::Complete { frame, bytes: 9, first: instant, last: instant }),
        _ => {
            let result = ReplyResult::Opaque(Bytes::new());
            Message::Reply { frame, application: String::new(), result }
        }
    }
}
