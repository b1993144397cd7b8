use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

mod adapting;
mod chains;
mod connections;
mod edges;
mod frame_skip;
mod giving_up;
mod history;
mod knobs;
mod negotiation;
mod random;
mod rest;
mod settling;
mod share;
mod source;
mod source_chains;
mod surveys;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{CameraBroker, CameraConfig, CameraOutput, Transform, Transformed};
use crate::broker::{
    EPOCH_BASE, EPOCH_MAX, EPOCH_RAISE_MAX, EdgeIndex, Intake, IntakeConfig, LinkId, NUMBER_MAX, Published,
    REFUSED_INTERVAL,
};
use crate::contract::{Contract, OnInfeasible};
use crate::controller::named::PolicyName;
use crate::data::DataRecord;
use crate::frame::{Encoding, Epoch, FrameId, Rung, Sequence, SkipRange, SkipReason};
use crate::log::{LogConfig, log};
use crate::profile::{ByteSizes, Profile, RungProfile, SizedProfile};
use crate::units::{ClockAnchor, Instant, Timestamp};
use crate::wire::{Demand, Message, RefuseCode, Report, Status, VERSION, Welcome};

const MS: Duration = Duration::from_millis(1);

/// A camera broker with its log, driven by hand.
struct Rig {
    now: Instant,
    intake: Intake,
    broker: CameraBroker,
    /// The outputs of the broker, except pings and statuses.
    outputs: Vec<CameraOutput>,
    /// Whether the broker has sent a ping that was not answered.
    asked: bool,
}

impl Rig {
    fn new() -> Self {
        Self::with_edges(1)
    }

    fn with_edges(edges: usize) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let anchor = ClockAnchor { wall: Timestamp::from_nanos(1 << 60), monotonic: now };
        let (writer, reader) = log(LogConfig::default());
        let config = CameraConfig {
            camera: "dock/cam1".parse().unwrap(),
            epoch: Epoch(3),
            anchor,
            software: "".into(),
            policy: PolicyName::default(),
            edges,
        };
        let broker = CameraBroker::new(config, &reader, now);
        let intake = Intake::new(writer, IntakeConfig::new(Epoch(3), anchor));
        Self { now, intake, broker, outputs: Vec::new(), asked: false }
    }

    /// With a connection on which the camera is welcomed and wanted.
    fn connected(contract: Contract) -> Self {
        Self::connected_with(1, contract)
    }

    fn connected_with(edges: usize, contract: Contract) -> Self {
        let mut rig = Self::with_edges(edges);
        rig.welcome(1, None);
        rig.demand(1, 1, vec![contract]);
        rig.take();
        rig
    }

    fn drain(&mut self) {
        while let Some(output) = self.broker.poll_output() {
            match output {
                CameraOutput::Send { message: Message::Ping { .. }, .. } => self.asked = true,
                CameraOutput::Send { message: Message::Status(_), .. } => {}
                output => self.outputs.push(output),
            }
        }
    }

    /// The outputs since the last call.
    fn take(&mut self) -> Vec<CameraOutput> {
        self.drain();
        std::mem::take(&mut self.outputs)
    }

    /// Lets time pass and serves the timer. The edge pings on the given connections meanwhile.
    fn pass(&mut self, duration: Duration, alive: &[u64]) {
        let end = self.now + duration;
        while self.broker.poll_timeout() <= end {
            self.now = self.now.max(self.broker.poll_timeout());
            for link in alive {
                self.message(*link, Message::Ping { t1: self.now });
            }
            self.broker.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn message(&mut self, link: u64, message: Message) {
        self.broker.handle_message(self.now, LinkId(link), message);
    }

    /// The edge answers the last ping, if it has not answered yet.
    fn answer_ping(&mut self, link: u64) {
        self.drain();
        if std::mem::take(&mut self.asked) {
            self.answer(link);
        }
    }

    /// The edge answers a ping, with a round trip of zero.
    fn answer(&mut self, link: u64) {
        self.message(link, Message::Pong { t1: self.now, t2: self.now, t3: self.now });
    }

    fn welcome(&mut self, link: u64, newest: Option<FrameId>) {
        self.welcome_at(0, link, newest);
    }

    fn welcome_at(&mut self, edge: usize, link: u64, newest: Option<FrameId>) {
        self.broker.handle_dialled(self.now, LinkId(link), EdgeIndex(edge));
        let welcome = Welcome { version: VERSION, newest, frame_bytes_max: 1000, software: "".into() };
        self.message(link, Message::Welcome(welcome));
    }

    fn demand(&mut self, link: u64, revision: u64, contracts: Vec<Contract>) {
        self.message(link, Message::Demand(Demand { revision, contracts }));
    }

    fn publish(&mut self, bytes: usize) -> FrameId {
        self.publish_image(bytes, (4, 4))
    }

    fn publish_image(&mut self, bytes: usize, (width, height): (u32, u32)) -> FrameId {
        let (payload, encoding) = (vec![0; bytes].into(), Encoding::Jpeg);
        let frame = Published { payload, encoding, width, height, captured: None };
        let id = self.intake.publish(self.now, frame).unwrap();
        self.broker.handle_published(self.now);
        id
    }

    fn publish_data(&mut self, body: &[u8]) -> FrameId {
        let content_type = "application/octet-stream".parse().unwrap();
        let record = DataRecord { content_type, of: None, body: Bytes::copy_from_slice(body) };
        let id = self.intake.publish(self.now, Published::data(&record, None)).unwrap();
        self.broker.handle_published(self.now);
        id
    }

    fn sent(&mut self, link: u64, frame: FrameId) {
        self.broker.handle_sent(self.now, LinkId(link), frame);
    }

    fn complete(&mut self, link: u64, frame: FrameId, bytes: u32) {
        let report = Report::Complete { frame, bytes, first: self.now, last: self.now };
        self.message(link, Message::Report(report));
    }
}

fn frames_sent(outputs: &[CameraOutput]) -> Vec<(FrameId, Vec<SkipRange>)> {
    let sent = |output: &CameraOutput| match output {
        CameraOutput::SendFrame { header, .. } => Some((header.meta.id, header.skipped.clone())),
        _ => None,
    };
    outputs.iter().filter_map(sent).collect()
}

fn resets(outputs: &[CameraOutput]) -> Vec<FrameId> {
    let reset = |output: &CameraOutput| match output {
        CameraOutput::Reset { frame, .. } => Some(*frame),
        _ => None,
    };
    outputs.iter().filter_map(reset).collect()
}

fn dials(outputs: &[CameraOutput]) -> usize {
    outputs.iter().filter(|output| matches!(output, CameraOutput::Dial { .. })).count()
}

fn skipped(first: u64, count: u64, reason: SkipReason) -> SkipRange {
    SkipRange { first: Sequence(first), count, reason }
}

/// A rung of a profile: the mean bytes of its frames with their deviation, the accuracy, and the encoding time.
fn rung(name: &str, bytes: (f64, f64), accuracy: f64, camera_time: Duration) -> RungProfile {
    RungProfile {
        rung: Rung::new(name).expect("a valid rung"),
        bytes: ByteSizes::around(bytes.0, bytes.1),
        accuracy,
        camera_time,
        detector_time: None,
    }
}

/// A profile of a single rung, for frames of 64×48 pixels.
fn one_rung(name: &str) -> SizedProfile {
    let profile = Profile::new(vec![rung(name, (100.0, 0.3), 0.95, 8 * MS)]).expect("a valid profile");
    SizedProfile { size: (64, 48), interval: None, profile }
}

fn bound(bound: Duration) -> Contract {
    Contract { latency_bound: Some(bound), ..Contract::default() }
}
