//! Models a camera host: the publisher, the intake, the camera broker, and its driver.
//!
//! [`CameraHost`] owns all of it. The world lends it its link and the [`Stage`]. The host returns what it cannot do itself.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | starts a process, and says how it is |
//! | `publishing.rs` | brings frames from the publisher into the log, and tells the broker |
//! | `outputs.rs` | carries out the broker's outputs |
//! | `link.rs` | tells the broker what comes over the link |
//! | `making.rs`, `encoder.rs` | encodes frames smaller |
//! | `lists.rs` | carries deny lists, and leaves edges that were revoked |
//! | `video.rs` | pictures of a source's own video, and their decoder |
//! | `past.rs` | finds, encodes and sends frames of the past |

mod encoder;
mod link;
mod lists;
mod making;
mod outputs;
mod past;
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
use self::video::VideoState;
use super::action::Counter;
use super::bug::Bug;
use super::events::Event;
use super::node::{Owner, Timer};
use super::site::HeldList;
use super::spec::{CameraSpec, EdgeId};
use super::stage::Stage;
use super::storage::{KeptLog, past_of};
use crate::disk::{DiskBug, Faults};
use crate::footage::Scene;
use crate::payload::knobs;
use crate::random::Random;
use crate::time::{HostClock, Moment, ms};

/// The longest time until a counter is on the disk.
const PERSIST_MS_MAX: u64 = 20;

/// What a camera's host has done, over all starts of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CameraCounts {
    /// Frames that its log took.
    pub published: u64,
    /// Frames that its log refused.
    pub refused: u64,
    /// Frames that it gave to the link.
    pub sent: u64,
    /// Connections that it asked for.
    pub dials: u64,
    /// Connections on which it said who it is.
    pub greetings: u64,
    /// Replies of applications that came back.
    pub replies: u64,
    /// Frames that it cancelled for newer ones.
    pub cancelled: u64,
}

pub(super) struct CameraHost {
    /// Its place among the cameras.
    pub(super) index: usize,
    pub(super) name: CameraName,
    pub(super) identity: String,
    pub(super) spec: CameraSpec,
    pub(super) link: usize,
    pub(super) clock: HostClock,
    pub(super) publishing: bool,
    /// When a fault last touched the camera or its path.
    pub(super) disturbed: Moment,
    /// When its publisher last gave a frame that nobody can get: with a wrong capture time, or a picture of video that needs one that is not there.
    pub(super) useless: Moment,
    /// When the edge last refused it. It may then wait before it dials again.
    pub(super) refused: Option<Moment>,
    /// Whether another process claims, or has claimed, the same name.
    pub(super) rivals: bool,
    /// Whether it is such a process itself.
    pub(super) is_rival: bool,
    /// When it last started without all of its counter. The connection of the start before may then count as a later one.
    pub(super) counter_lost: Option<Moment>,
    pub(super) timer: Timer,
    pub(super) process: Option<CameraProcess>,
    pub(super) random: Random,
    /// What it sees.
    scene: Scene,
    /// Its log on disk.
    kept: Option<KeptLog>,
    counts: CameraCounts,
    /// The counter on the disk.
    pub(super) persisted: u64,
    /// Whether the counter was ever lost, so that frames of two starts have the same names.
    lost_counter: bool,
    /// What it shows.
    pub(super) certificate: Certificate,
    /// The deny list that it carries. A start finds the same.
    pub(super) lists: HeldList,
    /// Whether it lies about that, as a thief may.
    forges: bool,
    /// Whether it and its edge have nothing to do with each other, because one of them was revoked.
    pub(super) is_shut_out: bool,
    /// The edges that it dials, in this order. It reaches that of its `spec`.
    edges: Vec<EdgeId>,
}

impl CameraHost {
    // ---- what is done to it -------------------------------------------------------------------------------

    /// A fault touches it or its path. Its time to recover begins now.
    pub(super) fn disturb(&mut self, now: Moment) {
        self.disturbed = now;
    }

    /// Its edge has refused it, and had a reason to.
    pub(super) fn handle_refused(&mut self, now: Moment) {
        self.refused = Some(now);
    }

    /// Another process claims the same name from now on.
    pub(super) fn handle_rival(&mut self) {
        self.rivals = true;
    }

    /// It is such a process itself, with a counter of starts of its own. It does not run yet.
    pub(super) fn become_rival(&mut self) {
        (self.persisted, self.is_rival, self.rivals) = (0, true, true);
    }

    /// Its publisher stops, or goes on.
    pub(super) fn set_publishing(&mut self, publishing: bool) {
        self.publishing = publishing;
    }

    /// Its counter of starts stands here, on the disk.
    pub(super) fn set_persisted(&mut self, epoch: u64) {
        self.persisted = epoch;
    }

    /// Its wall clock is set forwards by this many seconds, or backwards.
    pub(super) fn step_wall(&mut self, seconds: i64) {
        self.clock.step_wall(seconds * 1_000_000_000);
    }

    // ---- as it is -----------------------------------------------------------------------------------------

    /// Whether two frames may have the same name, or another process claims the camera's. What it holds is then not to be trusted.
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
            // It has been started a few times before.
            persisted: 3,
            lost_counter: false,
            certificate,
            lists: HeldList::none(),
            forges: false,
            is_shut_out: false,
            edges,
        }
    }

    /// The place of the edge that it reaches among those that it dials.
    pub(super) fn reached(&self) -> EdgeIndex {
        EdgeIndex(self.edges.iter().position(|edge| *edge == self.spec.edge).unwrap_or(0))
    }

    /// What it has done so far.
    pub(super) const fn counts(&self) -> CameraCounts {
        self.counts
    }

    /// When its broker's timer is due.
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

    /// Starts a process, with what its disk gives back and what it remembers of its counter.
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
                // What does not fit stays on disk.
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
        let intake = Intake::new(writer, IntakeConfig::new(epoch, anchor));
        self.process = Some(CameraProcess::new(run, broker, intake, anchor, reader));
        self.hand_on(stage);
        let first = self.random.duration(ms(0)..=self.spec.interval);
        stage.events.push(now + first, Event::Publish { camera: self.index, run });
        if let Some(kept) = &mut self.kept {
            kept.arm(now, (Owner::Camera(self.index), run), stage);
        }
    }

    /// What the disk holds of its log, if it has one.
    fn recover(&mut self, stage: &mut Stage<'_>) -> Option<Recovery> {
        let (now, bytes_max) = (self.clock.monotonic(stage.now), self.spec.log_bytes_max);
        let recovered = self.kept.as_mut()?.recover(now, bytes_max);
        stage.checks.recovered(&self.name, recovered)
    }

    /// Ends the process. Its log stays on disk. Returns the process as it was, if it ran.
    pub(super) fn stop(&mut self, stage: &mut Stage<'_>) -> Option<CameraProcess> {
        let process = self.process.take()?;
        if let Some(kept) = &mut self.kept {
            stage.checks.disk_left(kept.end());
        }
        Some(process)
    }

    /// Notes whether what it has of a channel holds frames back. The newest may then have been left out for good.
    pub(super) fn note_held_back(&mut self, now: Moment) {
        let local = self.clock.monotonic(now);
        if let Some(process) = self.process.as_mut().filter(|process| process.broker.holds_back(local)) {
            (process.held_back, process.held_back_until) = (process.told, now);
        }
    }

    // ---- its disk -----------------------------------------------------------------------------------------

    /// The writer of its log has something to do, for the process `run`. It does nothing while the host is `frozen`.
    pub(super) fn handle_store(&mut self, run: u64, frozen: bool, stage: &mut Stage<'_>) {
        if self.process.as_ref().is_some_and(|process| process.run == run)
            && let Some(kept) = &mut self.kept
        {
            kept.handle_due(self.clock, frozen, (Owner::Camera(self.index), run), stage);
        }
    }

    /// The disk does this wrong from now on, or nothing.
    pub(super) fn set_disk_faults(&mut self, faults: Faults) {
        if let Some(kept) = &mut self.kept {
            kept.set_faults(faults);
        }
    }

    /// The host has lost its power, and its process: of what was not synced anything may be left.
    pub(super) fn cut_power(&mut self) {
        debug_assert!(self.process.is_none(), "a process needs power");
        if let Some(kept) = &mut self.kept {
            kept.cut_power();
        }
    }

    // ---- its counter of starts ----------------------------------------------------------------------------

    /// Counts a start, as far as the counter is remembered. `newest` is the newest epoch that its log on disk knows.
    fn count_start(&mut self, counter: Counter, newest: Option<Epoch>, now: Moment) -> Epoch {
        self.lost_counter |= counter != Counter::Kept;
        match counter {
            Counter::Kept => self.persisted += 1,
            Counter::LastWriteLost => self.counter_lost = Some(now),
            Counter::Lost => (self.persisted, self.counter_lost) = (1, Some(now)),
        }
        if let Some(newest) = newest.filter(|newest| newest.0 >= self.persisted) {
            // The log on disk knows a later start.
            self.persisted = newest.0 + 1;
        }
        Epoch(self.persisted)
    }
}

pub(in crate::world) struct CameraProcess {
    pub(super) run: u64,
    pub(super) broker: CameraBroker,
    pub(super) intake: Intake,
    /// The newest frame of which the broker knows.
    pub(super) told: Option<FrameId>,
    /// The newest frame that it sent, or that it need not send because it was captured before anybody asked.
    pub(super) sent: Option<FrameId>,
    /// How many frames after it its rung leaves out.
    left_out: u64,
    /// When it was last told that the path of a connection was never full.
    pub(super) opening_until: Option<Moment>,
    /// Until when its codec hangs.
    pub(super) stuck_until: Moment,
    /// Until when it decodes what its frames of video need.
    pub(super) catching_up_until: Moment,
    /// The newest frame when its share of a channel last held it back.
    pub(super) held_back: Option<FrameId>,
    /// And when that was.
    pub(super) held_back_until: Moment,
    anchor: ClockAnchor,
    reader: LogReader,
    connections: BTreeMap<LinkId, Connection>,
    up: bool,
    /// Whether its edge has taken it in with the epoch at hand, and has named no other start with it since.
    accepted: bool,
    /// Epochs in which no edge took it in. Another start may have the same epochs, so it delivers none of their frames.
    pub(super) doubted: BTreeSet<Epoch>,
    dialled: bool,
    /// How many connections it is making.
    dialling: u32,
    captured: Option<Timestamp>,
    encoder: Encoder,
    video: VideoState,
    /// Whether it last told the edge that no rung keeps the leading contracts.
    says_infeasible: bool,
    /// When it last heard that nothing is wanted any more.
    unwanted: Option<Moment>,
    /// The cap that it was told on its present connection: the mean frame size, and from when until when it holds.
    capped: Option<(u32, [Moment; 2])>,
}

#[derive(Default)]
struct Connection {
    buffer: MessageBuffer,
    /// Frames that were sent and not reported as complete.
    under_way: BTreeSet<FrameId>,
    /// When the edge last reported bytes, or a frame was sent after a rest.
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
        }
    }

    /// Whether a connection is open.
    pub(super) fn knows(&self, connection: LinkId) -> bool {
        self.connections.contains_key(&connection)
    }

    /// How many connections it has open.
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// What it has of the past, in memory and on disk.
    pub(super) fn whole_past(&self, kept: Option<&mut KeptLog>, query: PastQuery) -> PastAnswer {
        past_of(&self.reader, kept, query)
    }

    /// Its log in memory.
    pub(super) fn log(&self) -> LogReader {
        self.reader.clone()
    }

    /// Whether those who lead want nothing below their bounds, and it has said that there is nothing else.
    pub(super) fn is_silenced(&self) -> bool {
        self.says_infeasible && self.broker.joint().is_some_and(|joint| !joint.degrade)
    }

    /// Whether it has a frame that it should send.
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
