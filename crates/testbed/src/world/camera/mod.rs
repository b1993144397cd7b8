//! Models a camera host: the publisher, the intake, the camera broker, and the broker's driver.
//!
//! [`CameraHost`] owns all of these. The world lends it its link and the [`Stage`]. The host returns what the world has to do.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | starts and stops the process, and keeps its state |
//! | `publishing.rs` | appends frames of the publisher to the log, and tells the broker |
//! | `outputs.rs` | carries out the broker's outputs |
//! | `link.rs` | passes what arrives over the link to the broker |
//! | `answers.rs`, `publisher.rs` | receives answers, and gives them to the publisher |
//! | `making.rs`, `encoder.rs` | encodes frames at smaller sizes |
//! | `lists.rs` | carries deny lists, and leaves revoked edges |
//! | `video.rs` | models a source's own video, and its decoder |
//! | `past.rs` | finds, encodes and sends frames of the past |

mod answers;
mod encoder;
mod link;
mod lists;
mod making;
mod outputs;
mod past;
mod publisher;
mod publishing;
mod video;

use std::collections::{BTreeMap, BTreeSet};

use mez_core::broker::camera::{CameraBroker, CameraConfig};
use mez_core::broker::{EdgeIndex, Intake, IntakeConfig, LinkId};
use mez_core::controller::named::PolicyName;
use mez_core::frame::{Epoch, FrameId};
use mez_core::history::{PastAnswer, PastQuery};
use mez_core::log::{LogConfig, LogReader, log};
use mez_core::name::CameraName;
use mez_core::revocation::Certificate;
use mez_core::store::Recovery;
use mez_core::units::{ClockAnchor, Timestamp};
use mez_core::wire::MessageBuffer;

use self::encoder::Encoder;
pub(super) use self::outputs::Effect;
use self::publisher::Publisher;
use self::video::VideoState;
use super::action::Counter;
use super::bug::Bug;
use super::events::Event;
use super::node::{Owner, Timer};
use super::site::HeldList;
use super::spec::{CameraSpec, EdgeId, TakeSpec};
use super::stage::Stage;
use super::storage::{KeptLog, past_of};
use crate::disk::{DiskBug, Faults};
use crate::footage::Scene;
use crate::payload::knobs;
use crate::random::Random;
use crate::time::{HostClock, Moment, ms};

/// The longest time until a raised counter is on the disk, in milliseconds.
const PERSIST_MS_MAX: u64 = 20;

/// Counts of what a camera's host has done, over all starts of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CameraCounts {
    /// Frames that were published.
    pub published: u64,
    /// Frames that the broker refused.
    pub refused: u64,
    /// Frames whose sending began.
    pub sent: u64,
    /// Dials that the broker asked for.
    pub dials: u64,
    /// Connections on which the broker sent its greeting.
    pub greetings: u64,
    /// Replies of applications that arrived.
    pub replies: u64,
    /// Frames that were cancelled for newer ones.
    pub cancelled: u64,
}

pub(super) struct CameraHost {
    /// The host's index among the cameras.
    pub(super) index: usize,
    pub(super) name: CameraName,
    pub(super) identity: String,
    pub(super) spec: CameraSpec,
    pub(super) link: usize,
    pub(super) clock: HostClock,
    pub(super) publishing: bool,
    /// How the publisher takes answers. `None`: it takes none.
    takes: Option<TakeSpec>,
    /// How many answers the publishers of this host got.
    pub(super) answers_given: u64,
    /// When a fault last touched the camera or its path.
    pub(super) disturbed: Moment,
    /// When the publisher last gave a frame that no application can get: with a wrong capture time, or a video picture whose reference is missing.
    pub(super) useless: Moment,
    /// When the edge last refused the camera with a reason. The camera may then wait before it dials again.
    pub(super) refused: Option<Moment>,
    /// Whether another process claims, or has claimed, the same name.
    pub(super) rivals: bool,
    /// Whether this host was created as a rival or thief of another one.
    pub(super) is_rival: bool,
    /// When the camera last started without its whole counter. The edge may then take the connection of the previous start for a later one.
    pub(super) counter_lost: Option<Moment>,
    pub(super) timer: Timer,
    pub(super) process: Option<CameraProcess>,
    pub(super) random: Random,
    /// What the camera sees.
    scene: Scene,
    /// The log on disk.
    kept: Option<KeptLog>,
    counts: CameraCounts,
    /// The counter of starts on the disk.
    pub(super) persisted: u64,
    /// Whether the counter was ever lost, so that frames of two starts may have the same ids.
    lost_counter: bool,
    /// The certificate that the camera presents.
    pub(super) certificate: Certificate,
    /// The deny list that the camera carries. It outlives the process.
    pub(super) lists: HeldList,
    /// Whether the camera lies about deny lists, as a thief may.
    forges: bool,
    /// Whether the camera and its edge refuse each other, because one of them was revoked.
    pub(super) is_shut_out: bool,
    /// The edges that the camera dials, in this order. It reaches only the edge of its `spec`.
    edges: Vec<EdgeId>,
}

impl CameraHost {
    // ---- changes ------------------------------------------------------------------------------------------

    /// A fault touches the camera or its path. Its time to recover begins now.
    pub(super) fn disturb(&mut self, now: Moment) {
        self.disturbed = now;
    }

    /// The edge has refused the camera, and had a reason to.
    pub(super) fn handle_refused(&mut self, now: Moment) {
        self.refused = Some(now);
    }

    /// Another process claims the same name from now on.
    pub(super) fn handle_rival(&mut self) {
        self.rivals = true;
    }

    /// Makes this host a rival, with its own counter of starts. Its process does not run yet.
    pub(super) fn become_rival(&mut self) {
        (self.persisted, self.is_rival, self.rivals) = (0, true, true);
    }

    /// Stops or continues publishing.
    pub(super) fn set_publishing(&mut self, publishing: bool) {
        self.publishing = publishing;
    }

    /// Sets the counter of starts on the disk.
    pub(super) fn set_persisted(&mut self, epoch: u64) {
        self.persisted = epoch;
    }

    /// Steps the wall clock forwards by this many seconds, or backwards.
    pub(super) fn step_wall(&mut self, seconds: i64) {
        self.clock.step_wall(seconds * 1_000_000_000);
    }

    // ---- state --------------------------------------------------------------------------------------------

    /// Whether two frames may have the same id, or another process claims the camera's name. The camera's frames are then not to be trusted.
    pub(super) fn is_doubtful(&self) -> bool {
        self.lost_counter || self.rivals
    }

    /// A host whose process does not run yet.
    pub(super) fn new(
        index: usize,
        name: CameraName,
        spec: CameraSpec,
        (link, clock): (usize, HostClock),
        certificate: Certificate,
        mut random: Random,
        (disk_bug, now): (Option<DiskBug>, Moment),
    ) -> Self {
        let identity = spec.identity.clone().unwrap_or_else(|| format!("spiffe://world/camera/{name}"));
        let scene = Scene::new(&spec.footage, random.split());
        let kept = spec.disk.clone();
        let kept = kept.map(|disk| KeptLog::new(&name, disk, random.split(), disk_bug));
        let edges = std::iter::once(spec.edge).chain(spec.second_edge).collect();
        Self {
            index,
            name,
            identity,
            spec,
            link,
            clock,
            publishing: true,
            takes: None,
            answers_given: 0,
            disturbed: now,
            useless: Moment::START,
            refused: None,
            rivals: false,
            is_rival: false,
            counter_lost: None,
            timer: Timer::new(),
            process: None,
            random,
            scene,
            kept,
            counts: CameraCounts::default(),
            // The camera has been started a few times before.
            persisted: 3,
            lost_counter: false,
            certificate,
            lists: HeldList::none(),
            forges: false,
            is_shut_out: false,
            edges,
        }
    }

    /// The place of the edge that the camera reaches among the edges that it dials.
    pub(super) fn reached(&self) -> EdgeIndex {
        EdgeIndex(self.edges.iter().position(|edge| *edge == self.spec.edge).unwrap_or(0))
    }

    /// Counts of what the host has done so far.
    pub(super) const fn counts(&self) -> CameraCounts {
        self.counts
    }

    /// When the broker's timer is due.
    pub(super) fn due(&self) -> Moment {
        let process = self.process.as_ref();
        process.map_or(Moment::NEVER, |process| self.clock.moment_of(process.broker.poll_timeout()))
    }

    /// The broker's timer is due.
    pub(super) fn handle_timeout(&mut self, stage: &Stage<'_>) {
        if stage.bug == Some(Bug::TimerIgnored) {
            return;
        }
        if let Some(process) = &mut self.process {
            process.broker.handle_timeout(self.clock.monotonic(stage.now));
        }
    }

    /// Starts a process, with the log on disk and the remembered counter.
    pub(super) fn start(&mut self, run: u64, counter: Counter, stage: &mut Stage<'_>) {
        debug_assert!(self.process.is_none(), "a host runs one process at a time");
        let now = stage.now;
        let recovery = self.recover(stage);
        let newest = recovery.as_ref().and_then(|recovery| recovery.resume.newest_epoch);
        let epoch = self.count_start(counter, newest, now);
        let anchor = self.clock.anchor(now);
        let log_bytes_max = self.spec.log_bytes_max * if stage.bug == Some(Bug::LogTooLarge) { 4 } else { 1 };
        let (mut writer, reader) = log(LogConfig::with_bytes_max(log_bytes_max));
        if let Some(recovery) = recovery {
            for record in recovery.records {
                // Records that do not fit into memory stay on disk.
                let _ = writer.append(record.frame, record.skipped, record.arrived);
            }
            let clocks = (self.clock.monotonic(now), self.clock.wall(now));
            if let Some(kept) = &mut self.kept {
                kept.write(recovery.resume, reader.cursor_at_end(), (epoch, anchor), clocks);
            }
        }
        let config = CameraConfig {
            camera: self.name.clone(),
            epoch,
            anchor,
            software: "world".into(),
            policy: PolicyName::default(),
            edges: self.edges.len(),
        };
        let mut broker = CameraBroker::new(config, &reader, self.clock.monotonic(now));
        if self.spec.knobs {
            broker.set_knobs(knobs());
        }
        broker.set_answers(self.takes.map(|takes| takes.bound));
        let intake = Intake::new(writer, IntakeConfig::new(epoch, anchor));
        self.process = Some(CameraProcess::new(run, broker, intake, anchor, reader));
        self.hand_on(stage);
        let first = self.random.duration(ms(0)..=self.spec.interval);
        stage.events.push(now + first, Event::Publish { camera: self.index, run });
        if let Some(kept) = &mut self.kept {
            kept.arm(now, (Owner::Camera(self.index), run), stage);
        }
    }

    /// Recovers the log on disk, if there is one.
    fn recover(&mut self, stage: &mut Stage<'_>) -> Option<Recovery> {
        let (now, bytes_max) = (self.clock.monotonic(stage.now), self.spec.log_bytes_max);
        let recovered = self.kept.as_mut()?.recover(now, bytes_max);
        stage.checks.recovered(&self.name, recovered)
    }

    /// Ends the process. The log on disk stays. Returns the process as it was, if it ran.
    pub(super) fn stop(&mut self, stage: &mut Stage<'_>) -> Option<CameraProcess> {
        let process = self.process.take()?;
        if let Some(kept) = &mut self.kept {
            stage.checks.disk_left(kept.end());
        }
        Some(process)
    }

    /// Notes whether a channel's share holds frames back. The newest frame may then have been left out for good.
    pub(super) fn note_held_back(&mut self, now: Moment) {
        let local = self.clock.monotonic(now);
        if let Some(process) = self.process.as_mut().filter(|process| process.broker.holds_back(local)) {
            (process.held_back, process.held_back_until) = (process.told, now);
        }
    }

    // ---- the disk -----------------------------------------------------------------------------------------

    /// Runs the log's writer for the process `run`. The writer does nothing while the host is `frozen`.
    pub(super) fn handle_store(&mut self, run: u64, frozen: bool, stage: &mut Stage<'_>) {
        if self.process.as_ref().is_some_and(|process| process.run == run)
            && let Some(kept) = &mut self.kept
        {
            kept.handle_due(self.clock, frozen, (Owner::Camera(self.index), run), stage);
        }
    }

    /// Sets the faults of the disk.
    pub(super) fn set_disk_faults(&mut self, faults: Faults) {
        if let Some(kept) = &mut self.kept {
            kept.set_faults(faults);
        }
    }

    /// Cuts the power of a host without a process: any part of the unsynced data may be left.
    pub(super) fn cut_power(&mut self) {
        debug_assert!(self.process.is_none(), "a process needs power");
        if let Some(kept) = &mut self.kept {
            kept.cut_power();
        }
    }

    // ---- the counter of starts ----------------------------------------------------------------------------

    /// Counts a start, as far as the counter is remembered. `newest` is the newest epoch in the log on disk.
    fn count_start(&mut self, counter: Counter, newest: Option<Epoch>, now: Moment) -> Epoch {
        self.lost_counter |= counter != Counter::Kept;
        match counter {
            Counter::Kept => self.persisted += 1,
            Counter::LastWriteLost => self.counter_lost = Some(now),
            Counter::Lost => (self.persisted, self.counter_lost) = (1, Some(now)),
        }
        if let Some(newest) = newest.filter(|newest| newest.0 >= self.persisted) {
            // The log on disk knows a later start than the counter.
            self.persisted = newest.0 + 1;
        }
        Epoch(self.persisted)
    }
}

pub(in crate::world) struct CameraProcess {
    pub(super) run: u64,
    pub(super) broker: CameraBroker,
    pub(super) intake: Intake,
    /// The newest frame that the broker was told of.
    pub(super) told: Option<FrameId>,
    /// The newest frame that was sent, or that need not be sent, such as frames captured before the present demand.
    pub(super) sent: Option<FrameId>,
    /// How many frames after `sent` the rung leaves out.
    left_out: u64,
    /// When the broker was last told a window, which is only while a connection's path was never full.
    pub(super) opening_until: Option<Moment>,
    /// Until when the codec hangs.
    pub(super) stuck_until: Moment,
    /// Until when the decoder works on the frames that a video frame needs.
    pub(super) catching_up_until: Moment,
    /// The newest frame when the share of a channel last held frames back.
    pub(super) held_back: Option<FrameId>,
    /// When the share of a channel last held frames back.
    pub(super) held_back_until: Moment,
    anchor: ClockAnchor,
    reader: LogReader,
    connections: BTreeMap<LinkId, Connection>,
    up: bool,
    /// Whether an edge has accepted the present epoch, and has named no other start with it since.
    accepted: bool,
    /// Epochs in which no edge accepted this process. Another start may have the same epochs, so none of their frames is delivered.
    pub(super) doubted: BTreeSet<Epoch>,
    dialled: bool,
    /// How many dials are in progress.
    dialling: u32,
    captured: Option<Timestamp>,
    encoder: Encoder,
    video: VideoState,
    /// Whether the last report to the edge said that no rung keeps the leading contracts.
    says_infeasible: bool,
    /// When the demand last ended.
    unwanted: Option<Moment>,
    /// The cap of the present connection: the mean frame size, and from when until when it is valid.
    capped: Option<(u32, [Moment; 2])>,
    pub(super) publisher: Publisher,
}

#[derive(Default)]
struct Connection {
    buffer: MessageBuffer,
    /// Frames that were sent and not reported as complete.
    under_way: BTreeSet<FrameId>,
    /// Answers that the broker has accepted and that are still arriving.
    answers: BTreeSet<FrameId>,
    /// When the edge last reported bytes, or a frame was sent while none was in flight.
    progress: Moment,
}

impl CameraProcess {
    fn new(run: u64, broker: CameraBroker, intake: Intake, anchor: ClockAnchor, reader: LogReader) -> Self {
        Self {
            run,
            broker,
            intake,
            told: None,
            sent: None,
            left_out: 0,
            opening_until: None,
            stuck_until: Moment::START,
            catching_up_until: Moment::START,
            held_back: None,
            held_back_until: Moment::START,
            anchor,
            reader,
            connections: BTreeMap::new(),
            up: false,
            accepted: false,
            doubted: BTreeSet::new(),
            dialled: false,
            dialling: 0,
            captured: None,
            encoder: Encoder::default(),
            video: VideoState::default(),
            says_infeasible: false,
            unwanted: None,
            capped: None,
            publisher: Publisher::default(),
        }
    }

    /// Whether a connection is open.
    pub(super) fn knows(&self, connection: LinkId) -> bool {
        self.connections.contains_key(&connection)
    }

    /// How many connections are open.
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// What the camera holds of the past, in memory and on disk.
    pub(super) fn whole_past(&self, kept: Option<&mut KeptLog>, query: PastQuery) -> PastAnswer {
        past_of(&self.reader, kept, query)
    }

    /// The log in memory.
    pub(super) fn log(&self) -> LogReader {
        self.reader.clone()
    }

    /// Whether the leading contracts want no frames below their bounds, and the camera has reported that no rung keeps the bounds.
    pub(super) fn is_silenced(&self) -> bool {
        self.says_infeasible && self.broker.joint().is_some_and(|joint| !joint.degrade)
    }

    /// Whether the camera has a frame that it should send.
    pub(super) fn has_to_send(&self) -> bool {
        match (self.told, self.sent) {
            (Some(told), Some(sent)) if told.epoch == sent.epoch => {
                told.sequence.0 > sent.sequence.0.saturating_add(self.left_out)
            }
            (told, sent) => told.is_some() && told != sent,
        }
    }

    pub(super) fn open_connections(&self) -> impl Iterator<Item = LinkId> {
        self.connections.keys().copied()
    }
}
