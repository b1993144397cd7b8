//! A camera host: the publisher, the intake, the camera broker, and its driver.

mod connections;
mod making;
mod outputs;
mod publishing;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::camera::{CameraBroker, CameraConfig};
use mez_core::broker::edge::CameraInfo;
use mez_core::broker::{Intake, IntakeConfig, LinkId};
use mez_core::controller::named::PolicyName;
use mez_core::frame::{Epoch, FrameId};
use mez_core::history::{PastAnswer, PastQuery};
use mez_core::log::{LogConfig, LogReader, log};
use mez_core::name::CameraName;
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::{Message, MessageBuffer};

use super::chain::Encoder;
use super::events::Event;
use super::storage::{KeptLog, Owner, past_of};
use super::{Bug, CameraId, CameraSpec, Counter, LinkNode, Node, Timer, World};
use crate::footage::Scene;
use crate::link::{Link, LinkSpec};
use crate::random::Random;
use crate::time::{HostClock, Moment, ms, secs};

/// How long it takes until a counter is on the disk.
const PERSIST_MS_MAX: u64 = 20;
/// A camera that takes turns moves its frames this often at most.
const TURN_INTERVAL: Duration = secs(3);

/// What a profile has in these worlds, in place of JSON: the first byte of its hash, so often.
pub(super) const PROFILE_BYTES: usize = 20_000;

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
    pub(super) name: CameraName,
    pub(super) identity: String,
    pub(super) spec: CameraSpec,
    pub(super) link: usize,
    pub(super) clock: HostClock,
    pub(super) publishing: bool,
    /// When a fault last touched the camera or its path.
    pub(super) disturbed: Moment,
    /// When its publisher last gave a frame a capture time that its log had to refuse: nobody gets that frame.
    pub(super) misstamped: Moment,
    /// When the edge last refused it: it may then wait.
    pub(super) refused: Option<Moment>,
    /// Another process claims, or has claimed, the same name.
    pub(super) rivals: bool,
    /// It is such a process itself.
    pub(super) is_rival: bool,
    /// It is a thief of this camera's identity.
    pub(super) robs: Option<usize>,
    /// A thief of its identity went without being heard, or the edge was told to believe none of its starts: until then nothing is promised.
    pub(super) robbed_until: Moment,
    /// When it last started with less of its counter than there was: the connection of the start before it may count as a later one.
    pub(super) counter_lost: Option<Moment>,
    pub(super) timer: Timer,
    pub(super) process: Option<CameraProcess>,
    pub(super) random: Random,
    /// What it sees.
    scene: Scene,
    /// Its log on disk.
    pub(super) kept: Option<KeptLog>,
    counts: CameraCounts,
    /// The counter on the disk.
    pub(super) persisted: u64,
    /// That was lost once, so that frames of two starts had the same names.
    lost_counter: bool,
}

impl CameraHost {
    /// Whether two frames may have the same name, or another process claims its own: then nobody may believe what it holds.
    pub(super) fn is_doubtful(&self) -> bool {
        self.lost_counter || self.rivals
    }
}

pub(super) struct CameraProcess {
    pub(super) run: u64,
    pub(super) broker: CameraBroker,
    pub(super) intake: Intake,
    /// The newest frame of which the broker knows.
    pub(super) told: Option<FrameId>,
    /// The newest frame that it sent, or need not send since it was captured before anybody asked.
    pub(super) sent: Option<FrameId>,
    /// So many frames after it are left out by its rung.
    left_out: u64,
    /// When it was last told that the path of a connection was never full.
    pub(super) opening_until: Option<Moment>,
    /// Until when its codec hangs.
    pub(super) stuck_until: Moment,
    /// The newest frame while its share of a channel last held it back.
    pub(super) held_back: Option<FrameId>,
    /// And when that was.
    pub(super) held_back_until: Moment,
    anchor: ClockAnchor,
    reader: LogReader,
    connections: BTreeMap<LinkId, Connection>,
    up: bool,
    /// Whether its edge has taken it in with the epoch at hand, and has named no other start with it since.
    accepted: bool,
    /// Epochs that it went through in which no edge took it in: another start may have the same, so it gives none of their frames.
    pub(super) doubted: BTreeSet<Epoch>,
    dialled: bool,
    captured: Option<Timestamp>,
    encoder: Encoder,
    /// It told the edge last that no rung keeps the contracts that lead.
    says_infeasible: bool,
    /// When it last heard that nothing is wanted any more.
    unwanted: Option<Moment>,
    /// The most bytes that frames may have on average, and from and until when, as it was told on its present connection.
    capped: Option<(u32, [Moment; 2])>,
    /// When it may begin its frames later again.
    turns_from: Moment,
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

    /// How much later its next frame begins, so that cameras take turns.
    fn turn(&mut self, now: Moment, spec: &CameraSpec) -> Duration {
        let later = self.broker.later();
        if !spec.takes_turns || later.is_zero() || now < self.turns_from {
            return Duration::ZERO;
        }
        // Not again before it is known what came of it.
        self.turns_from = now + TURN_INTERVAL;
        later
    }

    /// Whether it leaves frames out because of what it has of a channel.
    pub(super) fn holds_back(&self, now: Instant) -> bool {
        self.broker.holds_back(now)
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

impl World {
    /// A camera on a host and a link of its own, whose broker runs.
    ///
    /// # Panics
    /// The medium that it is to share has no place left.
    pub fn camera(&mut self, name: &str, mut spec: CameraSpec) -> CameraId {
        let random = self.random.split();
        let link = self.links.len();
        let medium = spec.medium.map(|medium| self.join(medium, link));
        if let Some((medium, _)) = medium {
            spec.link.bits_per_second = self.media[medium].share();
            spec.link.queue_bytes_max = self.media[medium].queue_share().unwrap_or(spec.link.queue_bytes_max);
        }
        let carries = match self.bug {
            Some(Bug::LongQueue) => {
                LinkSpec { queue_bytes_max: spec.link.queue_bytes_max * 100, bounded: false, ..spec.link }
            }
            _ => spec.link,
        };
        let make = if medium.is_some() { Link::shared } else { Link::new };
        self.links.push(LinkNode {
            link: make(carries, random, (link as u64 + 1) << 32),
            medium,
            timer: Timer::new(),
            frozen: None,
        });
        let clock = spec.clock.unwrap_or_else(|| self.draw_clock());
        self.camera_on(name, spec, link, clock)
    }

    /// A second process on the host of `beside`, under the same name; with another identity, if one is given.
    /// It does not run yet, and its counter of starts is one of its own.
    pub fn rival(&mut self, beside: CameraId, identity: Option<&str>) -> CameraId {
        let host = &self.cameras[beside.0];
        let identity = identity.map_or_else(|| host.identity.clone(), str::to_owned);
        let (name, link, clock) = (host.name.to_string(), host.link, host.clock);
        let spec = CameraSpec { identity: Some(identity), ..host.spec.clone() };
        let rival = self.camera_on(&name, spec, link, clock);
        self.kill_camera(rival.0);
        self.cameras[rival.0].persisted = 0;
        self.cameras[rival.0].is_rival = true;
        for camera in [beside, rival] {
            self.cameras[camera.0].rivals = true;
        }
        rival
    }

    /// What a camera's host has done so far.
    pub fn camera_counts(&self, camera: CameraId) -> CameraCounts {
        self.cameras[camera.0].counts
    }

    /// The epoch of a camera's process, if it runs.
    pub fn epoch(&self, camera: CameraId) -> Option<u64> {
        self.cameras[camera.0].process.as_ref().map(|process| process.broker.epoch().0)
    }

    /// Whether a camera's process has a connection on which the edge has welcomed it.
    pub fn is_up(&self, camera: CameraId) -> bool {
        self.cameras[camera.0].process.as_ref().is_some_and(|process| process.broker.is_up())
    }

    /// What a camera's edge knows of it.
    pub fn camera_info(&self, camera: CameraId) -> Option<CameraInfo> {
        let camera = &self.cameras[camera.0];
        let edge = &self.edges[camera.spec.edge.0];
        let known = edge.process.as_ref()?.broker.cameras(edge.clock.monotonic(self.now));
        known.into_iter().find(|known| known.camera == camera.name)
    }

    /// Where a camera's counter of starts stands, on the disk.
    pub fn persisted_epoch(&self, camera: CameraId) -> u64 {
        self.cameras[camera.0].persisted
    }

    /// Sets a camera's counter of starts, on the disk; its next start has the next number.
    pub fn set_persisted_epoch(&mut self, camera: CameraId, epoch: u64) -> &mut Self {
        self.cameras[camera.0].persisted = epoch;
        self
    }

    fn camera_on(&mut self, name: &str, spec: CameraSpec, link: usize, clock: HostClock) -> CameraId {
        let index = self.cameras.len();
        let identity = spec.identity.clone().unwrap_or_else(|| format!("spiffe://world/camera/{name}"));
        let mut random = self.random.split();
        let scene = Scene::new(&spec.footage, random.split());
        let name: CameraName = name.parse().expect("scenarios give cameras valid names");
        let kept = spec.disk.clone();
        let kept = kept.map(|disk| KeptLog::new(&name, disk, random.split(), self.disk_bug));
        self.cameras.push(CameraHost {
            name,
            identity,
            spec,
            link,
            clock,
            publishing: true,
            disturbed: self.now,
            misstamped: Moment::START,
            refused: None,
            rivals: false,
            is_rival: false,
            robs: None,
            robbed_until: Moment::START,
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
        });
        self.start_camera(index, Counter::Kept);
        self.settle();
        CameraId(index)
    }

    pub(super) fn start_camera(&mut self, index: usize, counter: Counter) {
        self.kill_camera(index);
        let run = self.next_run();
        let now = self.now;
        let recovery = self.recover_camera(index);
        let host = &mut self.cameras[index];
        host.lost_counter |= counter != Counter::Kept;
        match counter {
            Counter::Kept => host.persisted += 1,
            Counter::LastWriteLost => host.counter_lost = Some(now),
            Counter::Lost => (host.persisted, host.counter_lost) = (1, Some(now)),
        }
        let newest = recovery.as_ref().and_then(|recovery| recovery.resume.newest_epoch);
        if let Some(newest) = newest.filter(|newest| newest.0 >= host.persisted) {
            // The log on disk knows a later start.
            host.persisted = newest.0 + 1;
        }
        let epoch = Epoch(host.persisted);
        let anchor = host.clock.anchor(now);
        let log_bytes_max = host.spec.log_bytes_max * if self.bug == Some(Bug::LogTooLarge) { 4 } else { 1 };
        let (mut writer, reader) = log(LogConfig::with_bytes_max(log_bytes_max));
        if let Some(recovery) = recovery {
            for record in recovery.records {
                // What does not fit stays on disk.
                let _ = writer.append(record.frame, record.skipped, record.arrived);
            }
            let clocks = (host.clock.monotonic(now), host.clock.wall(now));
            if let Some(kept) = &mut host.kept {
                kept.write(recovery.resume, reader.cursor_at_end(), (epoch, anchor), clocks);
            }
        }
        let config = CameraConfig {
            camera: host.name.clone(),
            epoch,
            anchor,
            software: "world".into(),
            policy: PolicyName::default(),
            edges: 1,
        };
        host.process = Some(CameraProcess {
            run,
            broker: CameraBroker::new(config, &reader, host.clock.monotonic(now)),
            intake: Intake::new(writer, IntakeConfig::new(epoch, anchor)),
            told: None,
            sent: None,
            left_out: 0,
            opening_until: None,
            stuck_until: Moment::START,
            held_back: None,
            held_back_until: Moment::START,
            anchor,
            reader,
            connections: BTreeMap::new(),
            up: false,
            accepted: false,
            doubted: BTreeSet::new(),
            dialled: false,
            captured: None,
            encoder: Encoder::default(),
            says_infeasible: false,
            unwanted: None,
            capped: None,
            turns_from: Moment::START,
        });
        let first = host.random.duration(ms(0)..=host.spec.interval);
        self.events.push(now + first, Event::Publish { camera: index, run });
        self.owners.insert(run, index);
        self.arm_log(Owner::Camera(index), run, now);
        self.disturb(index);
        self.touch(Node::Camera(index));
    }

    pub(super) fn kill_camera(&mut self, index: usize) {
        if let Some(process) = self.cameras[index].process.take() {
            let link = self.cameras[index].link;
            self.links[link].link.lose_owner(process.run);
            self.end_log(&Owner::Camera(index));
            self.thaw_camera_host(link);
            self.disturb(index);
            self.touch(Node::Link(link));
        }
    }
}

/// A message as it crosses the link.
pub(super) fn encoded(message: &Message) -> Bytes {
    let mut bytes = Vec::with_capacity(64);
    message.encode(&mut bytes);
    bytes.into()
}
