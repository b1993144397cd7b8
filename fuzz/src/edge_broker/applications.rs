//! Sends an edge what applications may request, and checks what they get.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::monitor::TakenReport;
use mez_core::contract::{Contract, ContractState, OnInfeasible};
use mez_core::frame::{ChainKinds, Encoding, Epoch, FrameId, FrameMeta, Reference, Sequence};
use mez_core::history::{PastOptions, PastQuery, Tier};
use mez_core::log::Read;
use mez_core::name::CameraName;
use mez_core::session::{AtEdge, Session, SessionOutput};
use mez_core::subscription::{Deliver, Span, SubscriptionSpec};
use mez_core::units::Timestamp;

use super::{EPOCHS, NAMES, ORIGIN, PATTERNS, Reader, SUBSCRIPTIONS, World, captured, sequence};
use crate::profiles::{PROFILES, profile};
use crate::script::{NUMBERS, pick};

/// Ages that a client library may claim, in nanoseconds.
const CLAIMS: [u64; 4] = [0, 30_000_000, 900_000_000, u64::MAX / 2];

impl World {
    /// An application subscribes. a is its number, b the pattern, c the span and the contract.
    pub(super) fn subscribe(&mut self, a: u8, b: u8, c: u8) {
        let id = SubscriptionId(u64::from(a % SUBSCRIPTIONS));
        self.broker.handle_unsubscribe(id);
        self.drain();
        let span = span(c);
        assert_eq!(span.validate(), Ok(()));
        let cameras = pick(&PATTERNS, b).parse().unwrap();
        let chains = match b & 0x60 {
            0x60 => ChainKinds::among(&[Encoding::H264, Encoding::Tiles]),
            0x40 => ChainKinds::among(&[Encoding::H264]),
            _ => ChainKinds::NONE,
        };
        let application = if b & 0x80 == 0 { "people".into() } else { String::new() };
        let contract = contract(c);
        // Requests for the past are made separately.
        let past = PastOptions { tier_max: Tier::Memory, ..PastOptions::ALL };
        let spec =
            SubscriptionSpec { contract, chains, past, application, ..SubscriptionSpec::new(cameras, span) };
        self.readers.insert(id, Reader::new(Session::at_edge(self.clock(), &spec, id, None)));
        self.broker.handle_subscribe(self.clock(), id, spec);
    }

    /// An application changes its contract. b and c give the new one.
    pub(super) fn update(&mut self, a: u8, b: u8, c: u8) {
        let id = SubscriptionId(u64::from(a % SUBSCRIPTIONS));
        let contract = Contract {
            accuracy_floor: (b & 1 == 0).then(|| f64::from(b) / 255.0),
            profile: pick(&PROFILES, b >> 1),
            min_fps: if b & 0x80 == 0 { 0.0 } else { 1000.0 },
            ..contract(c)
        };
        assert_eq!(contract.validate(), Ok(()));
        if let Some(reader) = self.readers.get_mut(&id) {
            let profile = contract.profile.map(|_| Arc::new(profile(b)));
            reader.session.handle_update(self.now, contract.clone(), profile);
        }
        self.broker.handle_update(self.now, id, contract);
    }

    /// The edge gets or loses a profile.
    pub(super) fn profiles(&mut self, b: u8, c: u8) {
        let Some(hash) = pick(&PROFILES, b) else { return };
        match c {
            0xf0.. => self.broker.remove_profile(hash),
            _ => self.broker.add_profile(hash, vec![b; usize::from(c) << 8].into()),
        }
    }

    /// A reader requests the past. a selects the camera, b the frame before, c the query.
    pub(super) fn ask(&mut self, a: u8, b: u8, c: u8) {
        let camera: CameraName = pick(&NAMES, a).parse().unwrap();
        let id = |byte: u8| FrameId { epoch: Epoch(pick(&EPOCHS, c)), sequence: sequence(byte) };
        // Often the frame after the last answer, like a real reader.
        let after = match c >> 6 {
            0 => None,
            1 | 2 => self.last_past.or(Some(id(b))),
            _ => Some(id(b)),
        };
        let span = if c & 0x08 == 0 { (Timestamp::MIN, Timestamp::MAX) } else { (captured(3), captured(b)) };
        let query = PastQuery {
            quality: (c & 1 != 0).then(|| "jpeg/q50/420".parse().expect("a rung")),
            ..past_query((after, (c & 0x10 != 0).then(|| id(b))), span, c & 0x20 != 0)
        };
        let question = self.broker.handle_history_query(self.now, &camera, query);
        assert_eq!(self.questions.insert(question, query), None, "a number is given twice");
    }

    /// A reader requests a survey of a camera. a selects the camera, b the length. With an odd c, the oldest request is dropped instead.
    pub(super) fn survey(&mut self, a: u8, b: u8, c: u8) {
        if c & 1 == 1 {
            let Some((question, _)) = self.surveys.pop_first() else { return };
            return self.broker.handle_survey_dropped(question);
        }
        let camera: CameraName = pick(&NAMES, a).parse().unwrap();
        let span = (ORIGIN, ORIGIN + Duration::from_millis(pick(&NUMBERS, b).min(1 << 20)));
        let question = self.broker.handle_survey_query(&camera, span);
        assert_eq!(self.surveys.insert(question, span), None, "a number is given twice");
    }

    /// The reader no longer waits for an answer.
    pub(super) fn drop_question(&mut self, b: u8) {
        let Some(question) = self.questions.keys().nth(usize::from(b)).copied() else { return };
        self.questions.remove(&question);
        self.broker.handle_history_dropped(question);
    }

    pub(super) fn read(&mut self, id: SubscriptionId, times: u8) {
        let known = AtEdge { broker: &self.broker, now: self.now };
        let Some(reader) = self.readers.get_mut(&id) else { return };
        let mut changes = 0;
        let mut frames = 0;
        let mut way = None;
        while frames <= times {
            let (delivery, verdict) = match reader.session.poll(self.now, true, &known) {
                Some(SessionOutput::Frame { delivery, verdict, .. }) => (delivery, verdict),
                Some(SessionOutput::Contract(_)) => {
                    changes += 1;
                    assert!(changes <= NAMES.len(), "the state of a contract changes without end");
                    continue;
                }
                Some(SessionOutput::Ended { .. }) | None => break,
            };
            (frames, changes) = (frames + 1, 0);
            if let Some(verdict) = verdict {
                assert!(!verdict.reason.is_empty() || verdict.state == ContractState::Ok);
            }
            let id = delivery.record.frame.meta.id;
            // The client library claims any times, of this frame or of another.
            let claim = |factor: u64| Some(Duration::from_nanos(CLAIMS[usize::from(times) % 4] * factor));
            let frame = if times & 8 == 0 { id } else { FrameId { sequence: sequence(times), ..id } };
            let report = TakenReport {
                frame,
                received: claim(1).filter(|_| times & 16 == 0),
                taken: claim(2).filter(|_| times & 32 == 0),
                error: Duration::from_millis(u64::from(times)),
            };
            reader.session.handle_taken(self.now, &delivery.camera, &report);
            way = reader.session.poll_way(self.now).or(way);
            let given = reader.given.entry(delivery.camera.clone()).or_default();
            given.take(&delivery.record.frame.meta);
            self.delivered += 1;
            let skipped = delivery.skipped.total();
            if let Some(last) = reader.last.insert(delivery.camera.clone(), id) {
                assert!(id > last, "{}: frame {id} after {last}", delivery.camera);
                if id.epoch == last.epoch {
                    let missing = id.sequence.0 - last.sequence.0 - 1;
                    assert_eq!(skipped, missing, "{}: frame {id} after {last}", delivery.camera);
                }
            }
            for range in delivery.record.skipped.iter() {
                assert!(range.count > 0 && range.end() <= id.sequence, "{range:?} with frame {id}");
            }
        }
        while let Some((camera, query)) = reader.session.poll_still() {
            self.stills.push_back((id, camera, query.frame));
        }
        if let Some(way) = way {
            self.broker.handle_way(id, way);
            self.drain();
        }
    }

    /// Makes all kinds of queries of a log.
    pub(super) fn query(&self, a: u8, b: u8, c: u8) {
        let camera: CameraName = pick(&NAMES, a).parse().unwrap();
        let captured = captured(b);
        if let Some(clock) = self.broker.capture_clock(self.now, &camera) {
            let frame = FrameId { epoch: Epoch(pick(&EPOCHS, c)), sequence: sequence(b) };
            let _ = clock.captured_at(frame, captured);
        }
        let Some(log) = self.logs.get(&camera) else { return };
        if let Some(found) = log.at(captured) {
            assert!(found.frame.meta.captured <= captured);
        }
        let mut records = 0;
        for range in log.between(captured, captured + Duration::from_nanos(u64::from(c) << 20)) {
            assert!(range.start < range.end && log.held().start <= range.start);
            for index in range {
                records += u64::from(log.get(index).is_some());
            }
        }
        let held = log.held();
        assert!(records <= held.end - held.start, "a range of times has more frames than the log");
        let index = log.index_of(FrameId { epoch: Epoch(pick(&EPOCHS, c)), sequence: sequence(b) });
        assert!((held.start..=held.end).contains(&index));
        let (mut cursor, mut last) = (log.cursor(u64::from(c).min(held.end)), None);
        loop {
            match cursor.next() {
                Read::Record(record) => {
                    let id = record.frame.meta.id;
                    assert!(last.replace(id).is_none_or(|last| last < id));
                }
                Read::Evicted { records } => assert!(records > 0),
                Read::Pending => break,
            }
        }
    }
}

impl Reader {
    pub(super) fn new(session: Session) -> Self {
        Self { session, last: BTreeMap::new(), given: BTreeMap::new() }
    }
}

/// The frames of a camera's current chain that an application got.
#[derive(Default)]
pub(super) struct Given {
    chain: Option<(Encoding, Epoch, Sequence)>,
    index: u32,
    frames: BTreeSet<Sequence>,
}

impl Given {
    /// Checks that a frame of a chain comes only after all frames that it refers to.
    fn take(&mut self, meta: &FrameMeta) {
        if !meta.encoding.is_chained() {
            return;
        }
        let chain = (meta.encoding, meta.id.epoch, meta.chain.chain);
        let decodes = match meta.chain.reference {
            Reference::Independent => {
                self.frames.clear();
                true
            }
            Reference::Previous => {
                self.chain == Some(chain) && self.index.checked_add(1) == Some(meta.chain.index)
            }
            Reference::Acknowledged(refers) => self.chain == Some(chain) && self.frames.contains(&refers),
        };
        assert!(decodes, "frame {} was handed on before what it refers to: {:?}", meta.id, meta.chain);
        self.frames.insert(meta.id.sequence);
        (self.chain, self.index) = (Some(chain), meta.chain.index);
    }
}

pub(super) fn past_query(
    (after, before): (Option<FrameId>, Option<FrameId>),
    (begin, end): (Timestamp, Timestamp),
    newest: bool,
) -> PastQuery {
    PastQuery { after, before, begin, end, newest, tier_max: Tier::Camera, quality: None }
}

fn span(c: u8) -> Span {
    let deliver = if c & 1 == 0 { Deliver::Newest } else { Deliver::Every };
    let (begin, end) = match c >> 5 {
        0..=2 => (None, None),
        3 => (Some(captured(c)), None),
        4 => (Some(Timestamp::MIN), Some(captured(c))),
        5 => (Some(captured(3)), Some(captured(200))),
        6 => (None, Some(captured(c))),
        _ => (Some(Timestamp::MIN), Some(Timestamp::MAX)),
    };
    Span { begin, end, deliver }
}

fn contract(c: u8) -> Contract {
    let contract = Contract {
        latency_bound: (c & 2 == 0).then_some(Duration::from_millis(100)),
        priority: i32::from(c) - 128,
        on_infeasible: match c & 12 {
            0 | 8 => OnInfeasible::Degrade,
            4 => OnInfeasible::Stop,
            _ => OnInfeasible::Skip,
        },
        accuracy_floor: (c & 0x10 != 0).then_some(0.5),
        ..Contract::default()
    };
    assert_eq!(contract.validate(), Ok(()));
    contract
}
