//! Sends a camera any message that an edge may send, valid or not.

use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::camera::Transformed;
use mez_core::contract::{Contract, OnInfeasible};
use mez_core::frame::{ChainLink, Encoding, Epoch, FrameId, Rung, Sequence, SkipCounts};
use mez_core::history::{HeldSummary, HoleReason, PastAnswer, PastQuery, SURVEY_HOLES_MAX, Survey, Tier};
use mez_core::units::{Instant, Timestamp};
use mez_core::wire::{
    Abilities, Demand, DiskStatus, FeasibilityReport, Hello, HistoryCode, HistoryEnd, HistoryRequest,
    Message, NegotiationResult, PROFILE_PART_BYTES_MAX, ProfilePart, ProfileRequest, RefuseCode, ReplyResult,
    Report, Share, Status, SurveyRequest, VERSION, Welcome,
};

use super::{ASKED_MAX, EPOCH, ORIGIN, World};
use crate::profiles::{PROFILES, profile};
use crate::script::{NUMBERS, PAUSES, pick};

/// A text of the maximum length of a rung's name, which is not a rung.
const NO_RUNG: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// A camera's share of a channel, and its lifetime.
fn share(c: u8) -> Share {
    let lifetime = Duration::from_millis(u64::from(c >> 3) * 60);
    let frame_bytes_max = 10u32.saturating_pow(u32::from(c & 7));
    match c & 3 {
        0 => Share::Free,
        1 => Share::Shed { lifetime },
        _ => Share::Cap { frame_bytes_max, lifetime },
    }
}

impl World {
    /// A ping, or the answer to one.
    pub(super) fn ping(&mut self, a: u8, b: u8, c: u8) {
        let (now, number) = (self.now, Instant::from_nanos(pick(&NUMBERS, c)));
        let message = match b % 4 {
            0 => Message::Ping { t1: number },
            1 => Message::Pong { t1: now, t2: number, t3: number },
            2 => Message::Pong { t1: now - Duration::from_millis(c.into()), t2: now, t3: now },
            _ => Message::Pong { t1: number, t2: number, t3: Instant::from_nanos(u64::MAX) },
        };
        self.broker.handle_message(now, self.link(a), message);
    }

    /// The edge refuses the camera.
    pub(super) fn refuse(&mut self, a: u8, b: u8) {
        let codes = [
            RefuseCode::Version,
            RefuseCode::NotPermitted,
            RefuseCode::NameHeld,
            RefuseCode::Replaced,
            RefuseCode::Protocol,
            RefuseCode::Full,
            RefuseCode::Stopping,
        ];
        let refuse = Message::Refuse { code: pick(&codes, b), text: "no".into() };
        self.broker.handle_message(self.now, self.link(a), refuse);
    }

    /// A message that an edge sends rarely, never, or to another peer.
    pub(super) fn aside(&mut self, a: u8, b: u8, c: u8) {
        let frame = FrameId { epoch: EPOCH, sequence: Sequence(pick(&NUMBERS, c)) };
        let message = match b % 8 {
            0 => Message::Status(Status::default()),
            1 => Message::Hello(Hello {
                version: VERSION,
                camera: "x".parse().unwrap(),
                epoch: EPOCH,
                attempt: 1,
                anchor: ORIGIN,
                software: String::new(),
            }),
            2 => {
                let result = ReplyResult::Detections(Bytes::new());
                Message::Reply { frame, application: "a".into(), result }
            }
            3 if c & 6 == 6 => Message::Rest,
            3 => Message::Refresh { frame: self.last_sent.filter(|_| c & 1 == 0).unwrap_or(frame) },
            4 if c & 3 == 3 => Message::Share(share(c >> 2)),
            4 => Message::DiskStatus(DiskStatus::default()),
            5 if c & 1 == 0 => Message::FeasibilityReport(FeasibilityReport::default()),
            5 if c & 2 == 0 => Message::NegotiationResult(NegotiationResult::default()),
            5 => Message::Abilities(Abilities::ALL),
            6 => Message::ProfileRequest(ProfileRequest { hash: [c; 32], offset: u32::MAX }),
            _ => Message::HistoryEnd(HistoryEnd { request: 1, code: HistoryCode::None, held_from: None }),
        };
        self.broker.handle_message(self.now, self.link(a), message);
    }

    /// The edge welcomes the camera. b and c select the newest frame that it claims to have.
    pub(super) fn welcome(&mut self, a: u8, b: u8, c: u8) {
        let link = self.link(a);
        let epoch = match b % 8 {
            0..=3 => None,
            4 => Some(EPOCH.0 - 1),
            5 => Some(self.broker.epoch().0),
            6 => Some(self.broker.epoch().0.saturating_add(1)),
            _ => Some(pick(&NUMBERS, c >> 4)),
        };
        let newest = epoch.map(|epoch| {
            // Often a frame that was sent: the edge has it, but the camera may not know this.
            let sent = self.sent.iter().rev().nth(usize::from(c & 7)).map(|frame| frame.sequence);
            let any = Sequence(pick(&NUMBERS, c));
            FrameId { epoch: Epoch(epoch), sequence: if c & 8 == 0 { sent.unwrap_or(any) } else { any } }
        });
        let frame_bytes_max = if c & 0x80 == 0 { 1 << 20 } else { 1000 };
        let Some(known) = self.links.get_mut(&link) else { return };
        known.welcomed = true;
        known.frame_bytes_max = frame_bytes_max;
        let told = self.told;
        if let Some(newest) = newest.filter(|newest| newest.epoch == self.broker.epoch()) {
            self.told = told.max(Some(newest.sequence));
        }
        let welcome = Welcome { version: VERSION, newest, frame_bytes_max, software: "fuzz".into() };
        self.broker.handle_message(self.now, link, Message::Welcome(welcome));
        self.drain();
        if !self.links.contains_key(&link) {
            // An acknowledgement of an unknown frame has no effect: the broker has closed the connection.
            self.told = told;
        }
    }

    /// Changes the contracts of the next demands, and the profiles that they name.
    fn differ(&self, place: usize, contract: &mut Contract) {
        let (differences, profile) = self.contracts;
        let differs = |bit: usize| differences >> ((bit + 3 * place) % 8) & 1 == 1;
        if differs(0) {
            contract.priority = -1;
        }
        if differs(1) {
            contract.accuracy_floor = contract.accuracy_floor.map(|floor| floor / 2.0);
        }
        if differs(2) {
            (contract.min_fps, contract.on_time_share) = (5.0, 0.5);
        }
        contract.profile = PROFILES[(usize::from(profile) + place) % PROFILES.len()];
    }

    pub(super) fn demand(&mut self, a: u8, b: u8, c: u8) {
        let link = self.link(a);
        let contract = Contract {
            latency_bound: match c >> 4 {
                0 => None,
                bound => Some(Duration::from_nanos(pick(&PAUSES, bound).max(1))),
            },
            accuracy_floor: (a & 0x40 != 0).then_some(f64::from(a & 0x3f) / 63.0),
            on_infeasible: if a & 0x80 == 0 { OnInfeasible::Degrade } else { OnInfeasible::Skip },
            ..Contract::default()
        };
        let mut contracts = vec![contract; usize::from(b & 3)];
        for (place, contract) in contracts.iter_mut().enumerate() {
            self.differ(place, contract);
        }
        let demand = Demand { revision: 1 + u64::from(b >> 2), contracts };
        if let Some(known) = self.links.get_mut(&link)
            && demand.revision > known.demand.revision
        {
            known.demand = demand.clone();
        }
        self.broker.handle_message(self.now, link, Message::Demand(demand));
    }

    /// The edge reports a frame's progress or arrival. b selects the frame, c gives its bytes.
    pub(super) fn report(&mut self, a: u8, b: u8, c: u8) {
        let link = self.link(a);
        let on_the_way = self
            .links
            .get(&link)
            .into_iter()
            .flat_map(|known| known.unacknowledged.iter().copied().chain(known.sending))
            .nth(usize::from(b & 15));
        let frame = match on_the_way {
            Some(frame) if b & 0x80 == 0 => frame,
            _ => FrameId { epoch: EPOCH, sequence: Sequence(pick(&NUMBERS, b)) },
        };
        let known = self.links.get(&link).and_then(|known| known.bytes.get(&frame));
        let (size, arrived) = known.copied().unwrap_or((9, 0));
        let bytes = match c {
            0xff => u32::MAX,
            0xfe => size.saturating_add(1),
            0..=127 => size,
            c => size / 256 * u32::from(c & 0x7f),
        };
        let (first, now) = if b & 0x40 == 0 {
            (Instant::from_nanos(pick(&NUMBERS, c)), Instant::from_nanos(pick(&NUMBERS, c >> 4)))
        } else {
            // The true times: the edge's clock equals the camera's.
            (self.now - Duration::from_millis(u64::from(c & 0x3f)), self.now)
        };
        let complete = !(128..0xf0).contains(&c);
        let report = if complete {
            Report::Complete { frame, bytes, first, last: now }
        } else {
            Report::Progress { frame, bytes, first, now }
        };
        if let Some(known) = self.links.get_mut(&link) {
            let on_its_way = known.sending == Some(frame) || known.unacknowledged.contains(&frame);
            let given_up = !on_its_way && known.newest_sent.is_some_and(|newest| frame <= newest);
            // An invalid report about a frame in flight has no effect.
            let makes_sense = given_up || on_its_way && (arrived..=size).contains(&bytes);
            if !makes_sense {
                return self.broker.handle_message(self.now, link, Message::Report(report));
            }
            known.bytes.insert(frame, (size, bytes));
            if complete {
                if frame.epoch == self.broker.epoch() {
                    self.told = self.told.max(Some(frame.sequence));
                }
                known.sending.take_if(|sending| *sending == frame);
                known.unacknowledged.retain(|other| *other != frame);
            }
        }
        self.broker.handle_message(self.now, link, Message::Report(report));
    }

    /// A part of a profile arrives. b selects whether it is the wanted one, c gives its bytes.
    pub(super) fn profile_part(&mut self, a: u8, b: u8, c: u8) {
        let link = self.link(a);
        let wanted = self.links.get(&link).and_then(|known| known.demand.contracts.first()?.profile);
        let hash = match b % 8 {
            7 => [c; 32],
            _ => wanted.unwrap_or_default(),
        };
        let bytes: usize = match c % 8 {
            0 => 0,
            1 => 1,
            7 => PROFILE_PART_BYTES_MAX,
            _ => usize::from(c),
        };
        let offset = if b & 0x08 == 0 { self.profile_offset } else { pick(&NUMBERS, b >> 4) as u32 };
        let total = match b >> 4 {
            0..4 => offset.saturating_add(bytes as u32),
            4..8 => offset.saturating_add(bytes as u32).saturating_add(1),
            other => pick(&NUMBERS, other) as u32,
        };
        let part = ProfilePart { hash, total, offset, bytes: vec![c; bytes].into() };
        self.broker.handle_message(self.now, link, Message::ProfilePart(part));
    }

    /// A profile was read; b selects the result.
    pub(super) fn profile_read(&mut self, b: u8) {
        let Some(hash) = self.reading.pop_front() else { return };
        let profile = (b % 4 != 3).then(|| profile(b));
        self.broker.handle_profile(self.now, hash, profile);
    }

    /// The edge requests the past. b gives the number of the request and whether it continues another one, c the query.
    pub(super) fn asks(&mut self, a: u8, b: u8, c: u8) {
        let link = self.link(a);
        let last = self.asked.iter().rev().find(|(of, _)| *of == link).map(|(_, numbers)| numbers.end);
        let request = match b >> 5 {
            0..4 => last.unwrap_or(1 << 32),
            4 => self.last_request << 8,
            5 => last.unwrap_or(1).saturating_sub(1),
            _ => pick(&NUMBERS, c),
        };
        self.last_request += 1;
        let id = |byte: u8| FrameId { epoch: self.broker.epoch(), sequence: Sequence(pick(&NUMBERS, byte)) };
        let query = PastQuery {
            after: (c & 1 != 0).then(|| id(c >> 4)),
            before: (c & 2 != 0).then(|| id(c >> 3)),
            begin: if c & 4 == 0 { Timestamp::MIN } else { self.wall() - Duration::from_secs(1) },
            end: if c & 8 == 0 { Timestamp::MAX } else { self.wall() },
            newest: c & 0x30 == 0x30,
            tier_max: Tier::Disk,
            quality: None,
        };
        let count = match b & 0x0f {
            15 => u16::MAX,
            count => count.into(),
        };
        let rung = match b {
            0xff => NO_RUNG,
            0xe0..0xff => "h264/q40",
            0x60..0x80 => "jpeg/w32/q50/420",
            _ => Rung::ORIGINAL,
        };
        self.rungs.insert(rung);
        let rung = Rung::new(rung).expect("a rung's name");
        if count > 0 {
            self.asked.push((link, request..request.saturating_add(count.into())));
            assert!(self.asked.len() <= ASKED_MAX);
        }
        let request = HistoryRequest { request, query, rung, count, continues: b & 0x10 != 0 };
        self.broker.handle_message(self.now, link, Message::HistoryRequest(request));
    }

    /// A look-up of a past frame ends. b selects whether it found one.
    pub(super) fn looked(&mut self, b: u8) {
        // The broker waits for the last one, if it waits for any.
        let look = if b & 0x80 == 0 { self.looks.pop_back() } else { self.looks.pop_front() };
        let Some((ticket, query)) = look else { return };
        let record = match b & 3 {
            3 => None,
            // A frame that does not match the request.
            2 => self.reader.newest(),
            _ => query.find_in(&self.reader),
        };
        let answer = PastAnswer {
            record,
            broken: b & 4 != 0,
            held_from: self.reader.held_from(),
            ..PastAnswer::default()
        };
        self.broker.handle_history(self.now, ticket, answer);
    }

    /// The edge requests a survey. b gives its length, c its begin.
    pub(super) fn survey(&mut self, a: u8, b: u8, c: u8) {
        let link = self.link(a);
        self.last_request += 1;
        // Half the range, because milliseconds are truncated near the end of the clock.
        let begin = Timestamp::from_nanos(pick(&NUMBERS, c) >> 1);
        let length = Duration::from_millis(pick(&NUMBERS, b).min(u32::MAX.into()));
        let request = SurveyRequest { request: self.last_request, begin, length };
        self.broker.handle_message(self.now, link, Message::SurveyRequest(request));
    }

    /// A survey is made. b selects its content, c a time in the span.
    pub(super) fn surveyed(&mut self, b: u8, c: u8) {
        let Some((begin, end)) = self.surveying.take() else { return };
        let at = |millis: u64| begin + Duration::from_millis(millis);
        let place = pick(&NUMBERS, c).min(1 << 33);
        let mut held = HeldSummary::new(begin, end, SURVEY_HOLES_MAX);
        for number in 0..u64::from(b >> 2) {
            let captured = if b & 1 == 0 { at(number * 2_000) } else { at(place / (number + 1)) };
            let id = FrameId { epoch: Epoch(1 + number / 5), sequence: Sequence(number) };
            held.add(id, captured, &SkipCounts::default());
        }
        let until = at(place);
        let (spans, holes) = held.finish((b & 2 == 0).then_some(begin), until, HoleReason::NotPublished);
        let survey = Survey { held_from: Some(begin), cut_at: (c & 1 == 0).then_some(until), spans, holes };
        self.broker.handle_surveyed(self.now, (b != 63).then_some(survey));
    }

    /// The codec of the past finishes. b selects the outcome, c gives the bytes of the payload.
    pub(super) fn past_transformed(&mut self, b: u8, c: u8) {
        let Some((ticket, transform)) = self.making_past.take() else { return };
        let transformed = match b % 4 {
            0 => Transformed::Failed,
            2 if c == 0 => Transformed::TooLarge { bytes: u32::MAX },
            _ => Transformed::Made {
                payload: vec![1; usize::from(c) * 8 + 1].into(),
                encoding: Encoding::Jpeg,
                width: 2,
                height: 2,
                rung: if b % 4 == 3 { Rung::original() } else { transform.setting.rung() },
                chain: ChainLink::still(transform.frame.meta.id.sequence),
            },
        };
        self.broker.handle_past_transformed(self.now, ticket, transformed);
    }

    /// The last byte of a past frame was sent.
    pub(super) fn past_left(&mut self) {
        if let Some((link, request)) = self.past.take() {
            self.broker.handle_history_sent(self.now, link, request);
        }
    }

    /// Forgets a connection.
    pub(super) fn gone(&mut self, link: LinkId) {
        self.links.remove(&link);
        self.past.take_if(|(of, _)| *of == link);
        self.asked.retain(|(of, _)| *of != link);
    }
}
