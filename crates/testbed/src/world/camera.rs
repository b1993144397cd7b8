//! A camera host: the publisher, the intake, the camera broker, and its driver.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::camera::{CameraBroker, CameraConfig, CameraOutput, Transform, Transformed};
use mez_core::broker::edge::CameraInfo;
use mez_core::broker::{EdgeIndex, Intake, IntakeConfig, LinkId, PublishError, Published};
use mez_core::controller::named::PolicyName;
use mez_core::frame::{ChainLink, Encoding, Epoch, FrameId};
use mez_core::history::{PastAnswer, PastQuery};
use mez_core::log::{AppendError, LogConfig, LogReader, Record, log};
use mez_core::name::CameraName;
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::{Message, MessageBuffer, Report, Share};

use super::chain::{Coded, Encoder};
use super::events::Event;
use super::past::request_of;
use super::storage::{KeptLog, Owner, past_of};
use super::{Bug, CameraId, CameraSpec, CaptureTimes, Counter, LinkNode, Node, Timer, World};
use crate::footage::{Footage, Scene};
use crate::link::{Link, LinkOutput, LinkSpec, Side};
use crate::payload::{payload, received};
use crate::random::Random;
use crate::time::{HostClock, Moment, ms, secs};
use crate::trace::What;

/// How long it takes until a counter is on the disk.
const PERSIST_MS_MAX: u64 = 20;
/// How long it takes until the broker's thread learns that the log has grown, in nanoseconds.
const TELL_NANOS_MAX: u64 = 100_000;
/// How long something that a codec made waits where its host is frozen, until it is looked at again.
const FROZEN_LOOK: Duration = ms(15);
/// One frame in so many makes the codec fail, and one in so many makes it hang.
const CODEC_FAILS_ONCE_IN: u64 = 150;
const CODEC_HANGS_ONCE_IN: u64 = 400;
/// Frames are not given up as stalled while something has got through within the latency bound, or this where there is none.
const STALL_BOUND_DEFAULT: Duration = ms(1_000);
/// Caps count for so much less than they last: clocks differ.
const CAP_MARGIN: Duration = ms(2);
/// How late [`Bug::LeftUntold`] is.
const LEFT_UNTOLD_MS: u64 = 100;
/// A camera that takes turns moves its frames this often at most.
const TURN_INTERVAL: Duration = secs(3);
/// How long before its publishing a frame was exposed, as publishers say who give capture times.
const EXPOSED_BEFORE: Duration = ms(7);

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
    /// When the edge last refused it: it may then wait.
    pub(super) refused: Option<Moment>,
    /// Another process claims, or has claimed, the same name.
    pub(super) rivals: bool,
    /// It is such a process itself.
    pub(super) is_rival: bool,
    pub(super) timer: Timer,
    pub(super) process: Option<CameraProcess>,
    pub(super) random: Random,
    /// What it sees.
    scene: Scene,
    /// Its log on disk.
    pub(super) kept: Option<KeptLog>,
    counts: CameraCounts,
    /// The counter on the disk.
    persisted: u64,
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
    /// Since when there is something to send and nothing is sent.
    pub(super) idle_since: Option<Moment>,
    anchor: ClockAnchor,
    reader: LogReader,
    connections: BTreeMap<LinkId, Connection>,
    up: bool,
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

    /// The frame of the past that a question admits, as its log in memory answers.
    pub(super) fn past(&self, query: &PastQuery) -> Option<Record> {
        self.reader.find(query)
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
        let longer = if self.bug == Some(Bug::LongQueue) { 100 } else { 1 };
        let carries = LinkSpec { queue_bytes_max: spec.link.queue_bytes_max * longer, ..spec.link };
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
            refused: None,
            rivals: false,
            is_rival: false,
            timer: Timer::new(),
            process: None,
            random,
            scene,
            kept,
            counts: CameraCounts::default(),
            // It has been started a few times before.
            persisted: 3,
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
        match counter {
            Counter::Kept => host.persisted += 1,
            Counter::LastWriteLost => {}
            Counter::Lost => host.persisted = 1,
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
            idle_since: None,
            anchor,
            reader,
            connections: BTreeMap::new(),
            up: false,
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

    // ---- publishing ---------------------------------------------------------------------------------------

    pub(super) fn publish(&mut self, index: usize, run: u64) {
        let host = &mut self.cameras[index];
        let Some(process) = host.process.as_mut().filter(|process| process.run == run) else { return };
        let jitter = host.spec.jitter.min(host.spec.interval);
        let pause = host.spec.interval
            + host.random.duration(ms(0)..=2 * jitter)
            + process.turn(self.now, &host.spec);
        self.events.push(self.now + pause - jitter, Event::Publish { camera: index, run });
        if !host.publishing || self.links[host.link].frozen.is_some() {
            return;
        }
        host.scene.pass(host.spec.interval);
        let within = (*host.spec.frame_bytes.start(), *host.spec.frame_bytes.end());
        let bytes = Footage::published_bytes(within, &mut host.scene);
        let (captured, wrong) = match host.spec.capture_times {
            CaptureTimes::Broker => (None, false),
            CaptureTimes::Publisher { wrong_once_in } => {
                let wrong = process.captured.is_some() && host.random.one_in(wrong_once_in);
                // A driver that stamps frames knows when they were exposed, a little before they are published.
                let time = process.anchor.wall_at(host.clock.monotonic(self.now)) - EXPOSED_BEFORE;
                (if wrong { process.captured } else { Some(time) }, wrong)
            }
        };
        self.payloads += 1;
        let payload = payload(self.payloads, bytes);
        let (width, height) = host.spec.pixels;
        let frame = Published { payload: payload.clone(), encoding: Encoding::Jpeg, width, height, captured };
        match process.intake.publish(host.clock.monotonic(self.now), frame) {
            Ok(id) => {
                let record = process.reader.newest().expect("a frame was just appended");
                let captured = record.frame.meta.captured;
                process.captured = Some(captured);
                host.counts.published += 1;
                let entered = payload.clone();
                self.checks.published(&host.name, run, id, (payload, host.spec.pixels), captured);
                self.checks
                    .expect(!wrong, "order", || format!("{id} was taken with the capture time of the last"));
                self.trace.record(self.now, What::Published { camera: index, frame: id, bytes });
                let told = self.now + Duration::from_nanos(host.random.within(0..=TELL_NANOS_MAX));
                self.events.push(told, Event::Told { camera: index, run });
                self.enter_log(&Owner::Camera(index), id, &entered);
            }
            Err(error) => {
                let expected = match error {
                    PublishError::Log(AppendError::CaptureTime { .. }) => wrong,
                    // The link holds payloads until they have left; a small log may be full of them.
                    PublishError::Log(AppendError::Held { .. }) => true,
                    _ => false,
                };
                host.counts.refused += 1;
                self.checks.expect(expected, "order", || format!("a frame was refused: {error}"));
                self.trace.record(self.now, What::Refused { camera: index });
            }
        }
    }

    pub(super) fn tell(&mut self, index: usize, run: u64) {
        if self.is_frozen(Node::Camera(index)) {
            // It will be told when it goes on.
            return;
        }
        let host = &mut self.cameras[index];
        let Some(process) = host.process.as_mut().filter(|process| process.run == run) else { return };
        // A frame that is too large for the edge need not be sent.
        let bytes_max = self.edges[host.spec.edge.0].spec.frame_bytes_max as usize;
        let epoch = process.broker.epoch();
        let newest = process
            .reader
            .newest()
            .filter(|record| record.frame.meta.id.epoch == epoch && record.frame.payload.len() <= bytes_max);
        process.told = newest.map(|record| record.frame.meta.id).or(process.told);
        if self.bug == Some(Bug::FramesKeptBack) && process.told.is_some_and(|id| id.sequence.0 % 50 > 40) {
            return;
        }
        process.broker.handle_intake(process.intake.refused(), process.intake.log_bytes());
        let now = host.clock.monotonic(self.now);
        process.broker.handle_published(now);
        if process.broker.holds_back(now) {
            // It may have left the frame out, for which there was no room then.
            process.sent = process.sent.max(process.told);
        }
        self.touch(Node::Camera(index));
    }

    /// Sees to it that a frame is made of another: of the same bytes, fewer of them.
    fn make(&mut self, index: usize, transform: &Transform) {
        let host = &mut self.cameras[index];
        let Some(process) = &mut host.process else { return };
        let (frame, setting) = (&transform.frame, &transform.setting);
        let id = frame.meta.id;
        let (fails, hangs) =
            (host.random.one_in(CODEC_FAILS_ONCE_IN), host.random.one_in(CODEC_HANGS_ONCE_IN));
        // What was chosen at the moment at which it was told may have been chosen before.
        let live = process.capped.filter(|(_, [from, until])| *from < self.now && self.now < *until);
        if let (Some((bytes_max, _)), Some((expected, floor))) = (live, process.broker.expected_bytes()) {
            // Never below the floor; where there is no room at all, the cheapest rung.
            let most = f64::from(bytes_max).max(floor);
            self.checks.expect(expected <= most, "caps", || {
                format!("camera {index} makes {id} of {expected} bytes on average; {most} were allowed")
            });
        }
        process.encoder.heed(transform, self.bug);
        let (takes, mut coded) = process.encoder.encode(transform, &host.spec.footage, &mut host.scene);
        self.follow_profile(index, transform, &mut coded);
        let host = &mut self.cameras[index];
        let Some(process) = &mut host.process else { return };
        let deadline = host.clock.moment_of(transform.deadline).max(self.now);
        let done = self.now + takes * host.spec.codec_slowness;
        let (done, late) = if hangs || done > deadline { (deadline, true) } else { (done, false) };
        let made = match coded {
            _ if fails || late => {
                // Whatever it held is gone.
                process.encoder = Encoder::default();
                Transformed::Failed
            }
            Err(bytes) => Transformed::TooLarge { bytes },
            Ok(Coded { link: chain, refers, setting: made, bytes }) => {
                let (width, height) = setting.size((frame.meta.width, frame.meta.height));
                // Memory of its own: the log's frame is let go of.
                let payload = received(&frame.payload).slice(..bytes as usize);
                let (rung, encoding) = (made.rung(), Encoder::encoding(setting));
                self.checks.made(&host.name, process.run, id, (&rung, payload.clone()), (encoding, refers));
                Transformed::Made { payload, encoding, width, height, rung, chain }
            }
        };
        let (run, made) = (process.run, Box::new(made));
        self.events.push(done, Event::Made { camera: index, run, frame: id, made });
    }

    /// Where a contract's profile knows the rung of a still, it is right about its size.
    fn follow_profile(&self, index: usize, transform: &Transform, coded: &mut Result<Coded, u32>) {
        let Transform { frame, setting, bytes_max, .. } = transform;
        let (pixels, rung) = ((frame.meta.width, frame.meta.height), setting.rung());
        let host = &self.cameras[index];
        let profiles = self.profiles.values().filter(|known| known.size == pixels && !setting.is_chained());
        let Some(known) = profiles.filter_map(|known| known.profile.get(&rung)).next() else { return };
        if host.spec.footage.knows(&rung) {
            return;
        }
        let bytes = (known.bytes.mean as u64).min(frame.payload.len() as u64);
        *coded = match bytes <= u64::from(*bytes_max) {
            true => Ok(Coded {
                link: ChainLink::still(frame.meta.id.sequence),
                refers: None,
                setting: *setting,
                bytes,
            }),
            false => Err(bytes as u32),
        };
    }

    pub(super) fn made(&mut self, index: usize, run: u64, frame: FrameId, made: Transformed) {
        if self.is_frozen(Node::Camera(index)) {
            let later = self.now + FROZEN_LOOK;
            return self.events.push(later, Event::Made { camera: index, run, frame, made: Box::new(made) });
        }
        let host = &mut self.cameras[index];
        let Some(process) = host.process.as_mut().filter(|process| process.run == run) else { return };
        // If it is not sent now, it need not be any more; but a budget that was not kept is no reason for silence.
        if !matches!(made, Transformed::TooLarge { .. }) {
            (process.sent, process.left_out) = (process.sent.max(Some(frame)), 0);
        }
        if made == Transformed::Failed {
            // A codec that fails or hangs costs its frame; one that does so twice in a row is not the broker's silence.
            process.idle_since = None;
        }
        process.broker.handle_transformed(host.clock.monotonic(self.now), frame, made);
        self.touch(Node::Camera(index));
    }

    pub(super) fn raise_epoch(&mut self, index: usize, run: u64, above: Epoch) {
        if self.is_frozen(Node::Camera(index)) {
            let later = self.now + ms(PERSIST_MS_MAX);
            return self.events.push(later, Event::EpochPersisted { camera: index, run, above });
        }
        let host = &mut self.cameras[index];
        let Some(process) = host.process.as_mut().filter(|process| process.run == run) else { return };
        let epoch = Epoch(process.broker.epoch().max(above).0 + 1);
        host.persisted = epoch.0;
        process.intake.raise_epoch(epoch);
        process.captured = None;
        if let Some(kept) = &mut host.kept {
            kept.set_start(epoch, process.anchor);
        }
        process.broker.handle_epoch(host.clock.monotonic(self.now), epoch);
        self.trace.record(self.now, What::EpochRaised { camera: index, epoch: epoch.0 });
        self.disturb(index);
        self.touch(Node::Camera(index));
    }

    // ---- the broker ---------------------------------------------------------------------------------------

    pub(super) fn camera_due(&self, index: usize) -> Moment {
        let host = &self.cameras[index];
        host.process
            .as_ref()
            .map_or(Moment::NEVER, |process| host.clock.moment_of(process.broker.poll_timeout()))
    }

    pub(super) fn camera_timeout(&mut self, index: usize) {
        let host = &mut self.cameras[index];
        if self.bug == Some(Bug::TimerIgnored) {
            return;
        }
        if let Some(process) = &mut host.process {
            process.broker.handle_timeout(host.clock.monotonic(self.now));
        }
    }

    pub(super) fn drain_camera(&mut self, index: usize) {
        while let Some(process) = &mut self.cameras[index].process {
            let Some(output) = process.broker.poll_output() else { break };
            self.on_camera(index, output);
        }
        if let Some(process) = &self.cameras[index].process {
            let (said, thinks) = (process.up, process.broker.is_up());
            self.checks.expect(said == thinks, "state", || {
                format!("camera {index} said that its link is up: {said}; but it thinks: {thinks}")
            });
        }
    }

    fn on_camera(&mut self, index: usize, output: CameraOutput) {
        let now = self.now;
        let host = &mut self.cameras[index];
        let Some(process) = &mut host.process else { return };
        let link = &mut self.links[host.link].link;
        match output {
            CameraOutput::Dial { .. } => {
                self.trace.record(now, What::Dial { camera: index });
                host.counts.dials += 1;
                if self.bug == Some(Bug::NoRedial) && std::mem::replace(&mut process.dialled, true) {
                    return;
                }
                link.dial(now, process.run);
            }
            CameraOutput::Send { link: connection, message } => {
                if let Message::Outlook(outlook) = &message {
                    process.says_infeasible = outlook.infeasible;
                }
                if process.connections.contains_key(&connection) {
                    host.counts.greetings += u64::from(matches!(message, Message::Hello(_)));
                    link.send(now, Side::Camera, connection, encoded(&message));
                }
            }
            CameraOutput::Transform(transform) => return self.make(index, &transform),
            CameraOutput::TransformPast { ticket, transform } => {
                return self.make_past(index, ticket, &transform);
            }
            CameraOutput::SendFrame { link: connection, header, payload } if header.history > 0 => {
                self.send_past(index, connection, &header, payload);
            }
            CameraOutput::ReadProfile { hash, bytes } => {
                let whole = bytes.len() == PROFILE_BYTES && bytes.iter().all(|byte| *byte == hash[0]);
                let profile = self.profiles.get(&hash).filter(|_| whole).cloned();
                self.checks.expect(whole, "bytes", || format!("a profile came as {} bytes", bytes.len()));
                process.broker.handle_profile(host.clock.monotonic(now), hash, profile);
            }
            CameraOutput::SendFrame { link: connection, header, payload } => {
                let id = header.meta.id;
                self.checks.sends(
                    &host.name,
                    process.run,
                    connection,
                    &header,
                    link.unsent_frames(connection),
                );
                let skipped = header.skipped.iter().map(|range| range.count).sum();
                self.trace.record(now, What::Sends { camera: index, link: connection, frame: id, skipped });
                process.sent = Some(id);
                process.left_out = u64::from(header.meta.rung.one_in() - 1);
                process.idle_since = None;
                if let Some(known) = process.connections.get_mut(&connection) {
                    if known.under_way.is_empty() {
                        known.progress = now;
                    }
                    known.under_way.insert(id);
                }
                host.counts.sent += 1;
                let mut bytes = Vec::with_capacity(256);
                header.encode(&mut bytes);
                if self.bug == Some(Bug::SentTwice) && id.sequence.0 % 20 == 19 {
                    self.checks.sends(&host.name, process.run, connection, &header, 0);
                }
                link.send_frame(now, connection, id, bytes.into(), payload);
                if self.bug == Some(Bug::SentTooSoon) {
                    process.broker.handle_sent(host.clock.monotonic(now), connection, id);
                }
            }
            CameraOutput::Reset { link: connection, frame } => {
                self.trace.record(now, What::Resets { camera: index, link: connection, frame });
                self.checks.gives_up(&host.name, process.run, frame);
                let unsent = link.unsent_bytes(connection, frame);
                let gives_way = unsent > 0 && process.told > Some(frame);
                let progress =
                    process.connections.get(&connection).map_or(Moment::START, |known| known.progress);
                // What makes no progress may be cancelled at any time, and what nobody wants: also where the same packet brought the news that
                // somebody wants it again.
                let demand = process.broker.demand();
                let bounds = demand.iter().flat_map(|demand| &demand.contracts);
                let bound = bounds.filter_map(|contract| contract.latency_bound).min();
                let unwanted = demand.is_none() || process.unwanted == Some(now);
                let stalled = now.since(progress) >= bound.unwrap_or(STALL_BOUND_DEFAULT) || unwanted;
                self.checks.expect(gives_way || stalled, "cancels", || {
                    format!(
                        "camera {index} cancels {frame}, of which {unsent} bytes are unsent, for no newer one"
                    )
                });
                host.counts.cancelled += u64::from(gives_way && !stalled);
                if self.bug == Some(Bug::CancelIgnored) && unsent > 0 {
                    return;
                }
                if let Some(known) = process.connections.get_mut(&connection) {
                    known.under_way.remove(&frame);
                }
                link.reset(now, connection, frame);
            }
            CameraOutput::Close { link: connection } => {
                for frame in
                    process.connections.remove(&connection).into_iter().flat_map(|known| known.under_way)
                {
                    self.checks.gives_up(&host.name, process.run, frame);
                }
                link.close(now, Side::Camera, connection);
            }
            CameraOutput::RaiseEpoch { above } => {
                let run = process.run;
                let persisted = now + ms(host.random.within(1..=PERSIST_MS_MAX));
                self.events.push(persisted, Event::EpochPersisted { camera: index, run, above });
            }
            CameraOutput::Refused { code, .. } => {
                host.refused = Some(now);
                self.trace.record(now, What::RefusedBy { camera: index, code: code as u16 });
            }
            CameraOutput::ReadHistory { ticket, query } => return self.look_for(index, ticket, query),
            CameraOutput::LinkChanged { up } => {
                // What was told before was told on another connection.
                process.capped = None;
                let before = std::mem::replace(&mut process.up, up);
                self.checks
                    .expect(before != up, "state", || format!("camera {index} said twice: link up {up}"));
                self.trace.record(now, What::LinkChanged { camera: index, up });
            }
            CameraOutput::Reply { frame, application, payload } => {
                host.counts.replies += 1;
                self.trace.record(now, What::Replied { camera: index, frame });
                self.checks.replied(&host.name, frame, &application, &payload);
            }
        }
        self.touch(Node::Link(self.cameras[index].link));
    }

    // ---- the link -----------------------------------------------------------------------------------------

    /// The camera whose process made a connection, if that process still runs.
    fn dialler(&self, owner: u64) -> Option<usize> {
        let index = *self.owners.get(&owner)?;
        self.cameras[index].process.as_ref().filter(|process| process.run == owner).map(|_| index)
    }

    /// The camera that has a connection open.
    fn camera_of(&self, link: usize, connection: LinkId) -> Option<usize> {
        self.cameras.iter().position(|camera| {
            camera.link == link
                && camera
                    .process
                    .as_ref()
                    .is_some_and(|process| process.connections.contains_key(&connection))
        })
    }

    pub(super) fn on_link(&mut self, index: usize, output: LinkOutput) {
        match output {
            LinkOutput::Dialled { connection, owner } => {
                let Some(camera) = self.dialler(owner) else { return };
                self.trace.record(self.now, What::Dialled { camera, link: connection });
                self.with_camera(camera, |process, now| {
                    process.connections.insert(connection, Connection::default());
                    process.broker.handle_dialled(now, connection, EdgeIndex(0));
                });
            }
            LinkOutput::DialFailed { owner } => {
                let Some(camera) = self.dialler(owner) else { return };
                self.trace.record(self.now, What::DialFailed { camera });
                self.with_camera(camera, |process, now| process.broker.handle_dial_failed(now, EdgeIndex(0)));
            }
            LinkOutput::Message { to: Side::Camera, connection, bytes } => {
                if let Some(camera) = self.camera_of(index, connection) {
                    self.camera_hears(camera, connection, &bytes);
                }
            }
            LinkOutput::FrameSent { connection, frame } | LinkOutput::FrameStopped { connection, frame }
                if request_of(frame).is_some() =>
            {
                let Some(camera) = self.camera_of(index, connection) else { return };
                self.past_left(camera, connection, request_of(frame).unwrap_or_default());
            }
            LinkOutput::FrameLeft { connection, frame, unsent } => {
                let Some(camera) = self.camera_of(index, connection) else { return };
                self.with_camera(camera, |process, now| {
                    process.broker.handle_unsent(now, connection, frame, unsent);
                });
            }
            LinkOutput::FrameSent { connection, frame } => {
                let Some(camera) = self.camera_of(index, connection) else { return };
                self.trace.record(self.now, What::Left { camera, link: connection, frame });
                if self.bug == Some(Bug::LeftUntold) {
                    let later = self.now + ms(LEFT_UNTOLD_MS);
                    return self.events.push(later, Event::LeftTold { camera, connection, frame });
                }
                self.with_camera(camera, |process, now| process.broker.handle_sent(now, connection, frame));
            }
            LinkOutput::Closed { to: Side::Camera, connection } => {
                let Some(camera) = self.camera_of(index, connection) else { return };
                self.trace.record(self.now, What::CameraClosed { camera, link: connection });
                let host = &mut self.cameras[camera];
                if let Some(process) = &mut host.process {
                    for frame in
                        process.connections.remove(&connection).into_iter().flat_map(|known| known.under_way)
                    {
                        self.checks.gives_up(&host.name, process.run, frame);
                    }
                }
                self.with_camera(camera, |process, now| process.broker.handle_closed(now, connection));
            }
            to_edge => self.on_link_at_edge(index, to_edge),
        }
    }

    pub(super) fn left_told(&mut self, index: usize, connection: LinkId, frame: FrameId) {
        self.with_camera(index, |process, now| process.broker.handle_sent(now, connection, frame));
    }

    fn with_camera(&mut self, index: usize, f: impl FnOnce(&mut CameraProcess, Instant)) {
        let host = &mut self.cameras[index];
        if let Some(process) = &mut host.process {
            f(process, host.clock.monotonic(self.now));
        }
        self.touch(Node::Camera(index));
    }

    fn camera_hears(&mut self, index: usize, connection: LinkId, bytes: &Bytes) {
        let host = &mut self.cameras[index];
        let Some(process) = &mut host.process else { return };
        let Some(known) = process.connections.get_mut(&connection) else { return };
        known.buffer.push(bytes);
        let now = host.clock.monotonic(self.now);
        loop {
            match known.buffer.next() {
                Ok(Some(message)) => {
                    let kind = bytes[4];
                    self.trace.record(self.now, What::ToCamera { camera: index, link: connection, kind });
                    let lost = self.bug == Some(Bug::DemandKept)
                        && matches!(&message, Message::Demand(demand) if demand.contracts.is_empty());
                    if let Message::Report(report) = message {
                        known.progress = self.now;
                        if let Report::Complete { frame, .. } = report {
                            known.under_way.remove(&frame);
                        }
                    }
                    if let Message::Share(share) = message {
                        process.capped = match share {
                            Share::Cap { frame_bytes_max, lifetime, .. } => {
                                Some((frame_bytes_max, [self.now, self.now + lifetime - CAP_MARGIN]))
                            }
                            Share::Shed { lifetime } => {
                                Some((0, [self.now, self.now + lifetime - CAP_MARGIN]))
                            }
                            Share::Free => None,
                        };
                        if self.bug == Some(Bug::ShareUntold) && process.capped.is_some() {
                            continue;
                        }
                    }
                    if !lost {
                        let wanted = process.broker.demand().is_some();
                        process.broker.handle_message(now, connection, message);
                        match process.broker.demand() {
                            Some(_) if !wanted => process.sent = process.told,
                            None if wanted => process.unwanted = Some(self.now),
                            _ => {}
                        }
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    self.checks.fail("bytes", format!("an edge's message makes no sense: {error}"));
                    break;
                }
            }
        }
        self.touch(Node::Camera(index));
    }
}

/// A message as it crosses the link.
pub(super) fn encoded(message: &Message) -> Bytes {
    let mut bytes = Vec::with_capacity(64);
    message.encode(&mut bytes);
    bytes.into()
}
