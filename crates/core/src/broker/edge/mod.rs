//! The edge broker: takes cameras in, keeps a replica log of each, and asks of each what applications want.
//!
//! | question | where |
//! | --- | --- |
//! | who may be which camera, and who takes over? | `EdgeBroker::take_in` |
//! | what is a camera asked to send? | `EdgeBroker::update_demand` |
//! | what becomes of a frame that arrives? | [`EdgeBroker::handle_frame_complete`] |
//! | how does an application get frames? | [`crate::subscription`], from the logs handed out by [`EdgeOutput::Attach`] |

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{LinkId, PING_INTERVAL, SILENCE_MAX};
use crate::clock::{ClockEstimate, ClockEstimator, Exchange};
use crate::contract::Contract;
use crate::frame::{Epoch, FRAME_BYTES_MAX, Frame, FrameId, SkipRange};
use crate::log::{LogConfig, LogReader, LogWriter, log};
use crate::name::{CameraName, CameraPattern};
use crate::subscription::Span;
use crate::units::{ClockAnchor, Instant, Timestamp};
use crate::wire::{
    CONTRACTS_MAX, Demand, FrameHeader, Hello, Message, REPLY_BYTES_MAX, RefuseCode, Report, Status, VERSION,
    Welcome,
};

/// How long a connection may take to say who it is.
const HELLO_TIME_MAX: Duration = Duration::from_secs(5);
/// After this long without a word a connection is given up.
const LINK_SILENCE_MAX: Duration = Duration::from_secs(10);
/// The least time between two progress reports of a frame.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(10);
/// Frames that may be arriving on one connection at once.
pub const ARRIVING_FRAMES_MAX: usize = 8;

/// How an edge broker is set up.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// The budget of all replica logs together, in bytes; each camera has an equal share. Default 1 GiB.
    pub log_bytes_max: u64,
    /// The most cameras. Default 64. One more is refused, with that reason.
    pub cameras_max: usize,
    /// The largest payload that is accepted, in bytes. Default [`FRAME_BYTES_MAX`].
    pub frame_bytes_max: u32,
    /// The software, for people.
    pub software: String,
}

impl Default for EdgeConfig {
    fn default() -> Self {
        Self {
            log_bytes_max: 1 << 30,
            cameras_max: 64,
            frame_bytes_max: FRAME_BYTES_MAX,
            software: concat!("mez ", env!("CARGO_PKG_VERSION")).into(),
        }
    }
}

/// Who is at the other end of a connection, as its certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The identity, such as `spiffe://site/camera/dock`.
    pub identity: String,
    /// The cameras that it may be.
    pub cameras: Vec<CameraPattern>,
}

/// Identifies a subscription, given by whoever serves applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u64);

/// What an edge broker wants done.
#[derive(Clone, Debug)]
pub enum EdgeOutput {
    /// Send a message on a connection's control stream.
    Send {
        /// The connection.
        link: LinkId,
        /// The message.
        message: Message,
    },
    /// Close a connection, after what was sent on it has left, and forget it.
    Close {
        /// The connection.
        link: LinkId,
    },
    /// A subscription is to read a camera's log, from now on or as far back as it asked for.
    Attach {
        /// The subscription.
        subscription: SubscriptionId,
        /// The camera.
        camera: CameraName,
        /// Its replica log.
        log: LogReader,
    },
    /// A camera's log has grown: whoever waits for it may look.
    Appended {
        /// The camera.
        camera: CameraName,
    },
    /// A camera came or went; for people.
    CameraChanged {
        /// The camera.
        camera: CameraName,
        /// Whether it is connected.
        up: bool,
        /// Why, if it went or was refused.
        reason: Option<String>,
    },
}

/// Why a frame that announced itself is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameRefused {
    /// The connection has not been taken in, or has been replaced.
    #[error("the connection has not been taken in")]
    NotWelcome,
    /// The frame is of another epoch than the connection.
    #[error("a frame of epoch {} on a connection of epoch {}", .frame.0, .connection.0)]
    Epoch {
        /// The frame's epoch.
        frame: Epoch,
        /// The connection's epoch.
        connection: Epoch,
    },
    /// The payload is larger than the limit.
    #[error("a frame of {bytes} bytes; the limit is {bytes_max}")]
    TooLarge {
        /// The size announced.
        bytes: u32,
        /// The limit.
        bytes_max: u32,
    },
    /// The frame is empty.
    #[error("a frame without pixels or bytes")]
    Empty,
    /// More frames at once than a camera has reason to send.
    #[error("more than {ARRIVING_FRAMES_MAX} frames at once")]
    TooMany,
    /// The frame is arriving or has arrived already.
    #[error("frame {frame} came twice")]
    Twice {
        /// The frame.
        frame: FrameId,
    },
}

/// Why an application's result was not passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// No such camera.
    #[error("no camera {camera} is known; see `mez cameras`")]
    UnknownCamera {
        /// The name.
        camera: CameraName,
    },
    /// The camera is not connected.
    #[error("camera {camera} is not connected; the reply was dropped")]
    NotConnected {
        /// The name.
        camera: CameraName,
    },
    /// The result is too large.
    #[error("the reply has {bytes} bytes, more than the limit of {REPLY_BYTES_MAX}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// A connection.
struct Link {
    peer: Peer,
    /// Whom it has been taken in as.
    session: Option<Session>,
    opened: Instant,
    heard: Instant,
    ping_due: Instant,
    clock: ClockEstimator,
    arriving: Vec<Arriving>,
}

#[derive(Clone, Debug)]
struct Session {
    camera: CameraName,
    epoch: Epoch,
    attempt: u64,
    anchor: ClockAnchor,
}

/// A frame of which the header is here and the payload not yet all.
struct Arriving {
    header: FrameHeader,
    first: Instant,
    reported: Instant,
}

/// A camera that is or was connected.
struct Camera {
    log: LogWriter,
    link: Option<LinkId>,
    /// Whether the link was heard of lately.
    silent: bool,
    identity: String,
    demand: Demand,
    status: Status,
    counters: CameraCounters,
}

/// What became of a camera's frames at the edge, since the edge started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CameraCounters {
    /// Frames that arrived in time to be appended.
    pub received: u64,
    /// Frames that arrived after a newer one.
    pub late: u64,
    /// Frames whose stream the camera cancelled.
    pub cancelled: u64,
    /// Frames that were refused.
    pub refused: u64,
    /// Payload bytes that crossed the link, also of late frames.
    pub bytes: u64,
}

/// What is known of a camera.
#[derive(Clone, Debug)]
pub struct CameraInfo {
    /// The camera.
    pub camera: CameraName,
    /// Whether it is connected and was heard of within the last 750 ms.
    pub connected: bool,
    /// Who it is.
    pub identity: String,
    /// What it last said of itself.
    pub status: Status,
    /// What became of its frames here.
    pub counters: CameraCounters,
    /// The newest frame here.
    pub newest: Option<(FrameId, Timestamp)>,
    /// The capture time of the oldest frame here.
    pub oldest: Option<Timestamp>,
    /// Bytes in its replica log.
    pub log_bytes: u64,
    /// How its clock relates to ours.
    pub clock: Option<ClockEstimate>,
    /// How many subscriptions want its frames.
    pub subscriptions: usize,
}

struct SubscriptionEntry {
    pattern: CameraPattern,
    contract: Contract,
    span: Span,
}

/// An edge broker. See the [module](super) for how to drive it.
pub struct EdgeBroker {
    config: EdgeConfig,
    links: BTreeMap<LinkId, Link>,
    cameras: BTreeMap<CameraName, Camera>,
    subscriptions: BTreeMap<SubscriptionId, SubscriptionEntry>,
    outputs: VecDeque<EdgeOutput>,
}

impl EdgeBroker {
    /// A broker without cameras.
    pub fn new(config: EdgeConfig) -> Self {
        Self {
            config,
            links: BTreeMap::new(),
            cameras: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            outputs: VecDeque::new(),
        }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// All cameras, by name.
    pub fn cameras(&self, now: Instant) -> Vec<CameraInfo> {
        self.cameras.iter().map(|(name, camera)| self.info(name, camera, now)).collect()
    }

    /// The cameras that a pattern selects.
    pub fn matching(&self, pattern: &CameraPattern) -> usize {
        self.cameras.keys().filter(|camera| pattern.matches(camera)).count()
    }

    /// How long ago a frame was captured, with the most by which that is wrong; `None` before the first exchange
    /// of clock readings with its camera.
    pub fn age(
        &self,
        now: Instant,
        camera: &CameraName,
        captured: Timestamp,
    ) -> Option<(Duration, Duration)> {
        let link = self.links.get(&self.cameras.get(camera)?.link?)?;
        let anchor = link.session.as_ref()?.anchor;
        let estimate = link.clock.estimate(now)?;
        let captured = estimate.to_ours(anchor.instant_at(captured));
        Some((now.saturating_since(captured), estimate.error))
    }

    /// How capture times of a camera map to instants of our clock.
    pub fn capture_clock(&self, now: Instant, camera: &CameraName) -> Option<CaptureClock> {
        let link = self.links.get(&self.cameras.get(camera)?.link?)?;
        let session = link.session.as_ref()?;
        Some(CaptureClock {
            epoch: session.epoch,
            anchor: session.anchor,
            estimate: link.clock.estimate(now)?,
        })
    }

    // ---- connections --------------------------------------------------------------------------------------

    /// A camera broker has connected and proven who it is; it has not said which camera it is.
    pub fn handle_connected(&mut self, now: Instant, link: LinkId, peer: Peer) {
        self.links.insert(
            link,
            Link {
                peer,
                session: None,
                opened: now,
                heard: now,
                ping_due: now,
                clock: ClockEstimator::default(),
                arriving: Vec::new(),
            },
        );
    }

    /// A connection is gone.
    pub fn handle_closed(&mut self, _now: Instant, link: LinkId) {
        self.forget(link, "the connection ended");
    }

    /// A message arrived on a connection's control stream.
    pub fn handle_message(&mut self, now: Instant, id: LinkId, message: Message) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.heard = now;
        match message {
            Message::Hello(hello) if link.session.is_none() => self.take_in(now, id, hello),
            Message::Ping { t1 } => self.send(id, Message::Pong { t1, t2: now, t3: now }),
            Message::Pong { t1, t2, t3 } => link.clock.record(Exchange { t1, t2, t3, t4: now }),
            Message::Status(status) => {
                if let Some(camera) = self.camera_of(id) {
                    camera.status = status;
                }
            }
            _ => self.refuse(
                id,
                RefuseCode::Protocol,
                "a camera does not send this message, or not now".into(),
            ),
        }
    }

    /// A connection's control stream made no sense.
    pub fn handle_protocol_error(&mut self, link: LinkId, error: &str) {
        self.refuse(link, RefuseCode::Protocol, error.into());
    }

    // ---- frames -------------------------------------------------------------------------------------------

    /// A frame's header arrived. After `Ok`, its payload may be received, and the frame ends with either
    /// [`EdgeBroker::handle_frame_complete`] or [`EdgeBroker::handle_frame_cancelled`].
    pub fn handle_frame_header(
        &mut self,
        now: Instant,
        id: LinkId,
        header: FrameHeader,
    ) -> Result<(), FrameRefused> {
        let bytes_max = self.config.frame_bytes_max;
        let Some(link) = self.links.get_mut(&id) else { return Err(FrameRefused::NotWelcome) };
        let Some(session) = &link.session else { return Err(FrameRefused::NotWelcome) };
        link.heard = now;
        let frame = header.meta.id;
        let refused = if frame.epoch != session.epoch {
            Some(FrameRefused::Epoch { frame: frame.epoch, connection: session.epoch })
        } else if header.payload_bytes > bytes_max {
            Some(FrameRefused::TooLarge { bytes: header.payload_bytes, bytes_max })
        } else if header.payload_bytes == 0 || header.meta.width == 0 || header.meta.height == 0 {
            Some(FrameRefused::Empty)
        } else if link.arriving.len() >= ARRIVING_FRAMES_MAX {
            Some(FrameRefused::TooMany)
        } else if link.arriving.iter().any(|arriving| arriving.header.meta.id == frame) {
            Some(FrameRefused::Twice { frame })
        } else {
            None
        };
        if let Some(refused) = refused {
            if let Some(camera) = self.camera_of(id) {
                camera.counters.refused += 1;
            }
            return Err(refused);
        }
        link.arriving.push(Arriving { header, first: now, reported: now });
        Ok(())
    }

    /// Part of a frame's payload is here: `bytes` of it in all.
    pub fn handle_frame_progress(&mut self, now: Instant, id: LinkId, frame: FrameId, bytes: u32) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.heard = now;
        let Some(arriving) = link.arriving.iter_mut().find(|arriving| arriving.header.meta.id == frame)
        else {
            return;
        };
        if now.saturating_since(arriving.reported) >= PROGRESS_INTERVAL {
            arriving.reported = now;
            let report = Report::Progress { frame, bytes, first: arriving.first, now };
            self.send(id, Message::Report(report));
        }
    }

    /// All of a frame's payload is here.
    pub fn handle_frame_complete(&mut self, now: Instant, id: LinkId, frame: FrameId, payload: Bytes) {
        let Some(Arriving { header, first, .. }) = self.take_arriving(id, frame) else { return };
        let bytes = payload.len() as u32;
        self.send(id, Message::Report(Report::Complete { frame, bytes, first, last: now }));
        if let Some(link) = self.links.get_mut(&id) {
            link.heard = now;
        }
        let Some(camera) = self.camera_of(id) else { return };
        camera.counters.bytes += u64::from(bytes);
        if bytes != header.payload_bytes {
            camera.counters.refused += 1;
            return;
        }
        let FrameHeader { meta, skipped, .. } = header;
        let skipped = skipped_since(camera.log.last().map(|(id, _)| id), frame, &skipped);
        match camera.log.append(Frame { meta, payload }, skipped, now) {
            Ok(_) => {
                camera.counters.received += 1;
                let camera = self.session(id).map(|session| session.camera.clone());
                self.outputs.extend(camera.map(|camera| EdgeOutput::Appended { camera }));
            }
            Err(_) => camera.counters.late += 1,
        }
    }

    /// The rest of a frame's payload will not come.
    pub fn handle_frame_cancelled(&mut self, now: Instant, id: LinkId, frame: FrameId) {
        if self.take_arriving(id, frame).is_some()
            && let Some(camera) = self.camera_of(id)
        {
            camera.counters.cancelled += 1;
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.heard = now;
        }
    }

    // ---- applications -------------------------------------------------------------------------------------

    /// An application subscribes. Cameras that match come as [`EdgeOutput::Attach`], now and later.
    pub fn handle_subscribe(
        &mut self,
        now: Timestamp,
        id: SubscriptionId,
        pattern: CameraPattern,
        contract: Contract,
        span: Span,
    ) {
        for (name, camera) in &self.cameras {
            if pattern.matches(name) {
                let (camera, log) = (name.clone(), camera.log.reader());
                self.outputs.push_back(EdgeOutput::Attach { subscription: id, camera, log });
            }
        }
        if span.is_live(now) {
            self.subscriptions.insert(id, SubscriptionEntry { pattern, contract, span });
            self.update_all_demands();
        }
    }

    /// A subscription is over.
    pub fn handle_unsubscribe(&mut self, id: SubscriptionId) {
        if self.subscriptions.remove(&id).is_some() {
            self.update_all_demands();
        }
    }

    /// An application's result for a frame is to go to the camera.
    pub fn handle_reply(
        &mut self,
        camera: &CameraName,
        frame: FrameId,
        application: &str,
        payload: Bytes,
    ) -> Result<(), ReplyError> {
        if payload.len() > REPLY_BYTES_MAX {
            return Err(ReplyError::TooLarge { bytes: payload.len() });
        }
        let known =
            self.cameras.get(camera).ok_or_else(|| ReplyError::UnknownCamera { camera: camera.clone() })?;
        let link = known.link.ok_or_else(|| ReplyError::NotConnected { camera: camera.clone() })?;
        self.send(link, Message::Reply { frame, application: application.into(), payload });
        Ok(())
    }

    // ---- time ---------------------------------------------------------------------------------------------

    /// The instant of [`EdgeBroker::poll_timeout`] has come, or any other. `wall` is the wall clock, which only
    /// decides when subscriptions end.
    pub fn handle_timeout(&mut self, now: Instant, wall: Timestamp) {
        let mut closed = Vec::new();
        for (&id, link) in &mut self.links {
            let silence = now.saturating_since(link.heard);
            if link.session.is_none() && now.saturating_since(link.opened) >= HELLO_TIME_MAX {
                closed.push((id, "it did not say which camera it is"));
            } else if silence >= LINK_SILENCE_MAX {
                closed.push((id, "nothing was heard of it"));
            }
            if link.session.is_some() && now >= link.ping_due {
                link.ping_due = now + PING_INTERVAL;
                self.outputs.push_back(EdgeOutput::Send { link: id, message: Message::Ping { t1: now } });
            }
        }
        for (link, reason) in closed {
            self.outputs.push_back(EdgeOutput::Close { link });
            self.forget(link, reason);
        }
        for (name, camera) in &mut self.cameras {
            let heard = camera.link.and_then(|link| self.links.get(&link)).map(|link| link.heard);
            let silent = heard.is_some_and(|heard| now.saturating_since(heard) > SILENCE_MAX);
            if silent != camera.silent {
                camera.silent = silent;
                let reason = silent.then(|| "nothing heard for 750 ms".into());
                self.outputs.push_back(EdgeOutput::CameraChanged {
                    camera: name.clone(),
                    up: !silent,
                    reason,
                });
            }
        }
        let before = self.subscriptions.len();
        self.subscriptions.retain(|_, subscription| subscription.span.is_live(wall));
        if self.subscriptions.len() != before {
            self.update_all_demands();
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<EdgeOutput> {
        self.outputs.pop_front()
    }

    /// When [`EdgeBroker::handle_timeout`] is due; `None`: not before something happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.links
            .values()
            .map(|link| if link.session.is_some() { link.ping_due } else { link.opened + HELLO_TIME_MAX })
            .min()
    }

    // ---- inside -------------------------------------------------------------------------------------------

    /// Decides whether a connection becomes the camera's.
    fn take_in(&mut self, now: Instant, id: LinkId, hello: Hello) {
        let Hello { version, camera: name, epoch, attempt, anchor, .. } = hello;
        let Some(link) = self.links.get(&id) else { return };
        let peer = link.peer.clone();
        if version != VERSION {
            let text =
                format!("the edge speaks version {VERSION} of the wire format, the camera version {version}");
            return self.refuse(id, RefuseCode::Version, text);
        }
        if !peer.cameras.iter().any(|pattern| pattern.matches(&name)) {
            let text = format!("the identity {} may not be camera {name}; enrol one that may", peer.identity);
            return self.refuse(id, RefuseCode::NotPermitted, text);
        }
        let holder = self.cameras.get(&name).and_then(|camera| camera.link);
        if let Some(holder_link) = holder.and_then(|link| self.links.get(&link)) {
            let held = holder_link.session.as_ref().map(|session| (session.epoch, session.attempt));
            if holder_link.peer.identity != peer.identity {
                let text = format!("camera {name} is held by {}", holder_link.peer.identity);
                return self.refuse(id, RefuseCode::NameHeld, text);
            }
            if held.is_some_and(|held| held >= (epoch, attempt)) {
                let text = format!("a newer start of camera {name} is connected");
                return self.refuse(id, RefuseCode::Replaced, text);
            }
        }
        if !self.cameras.contains_key(&name) && self.cameras.len() >= self.config.cameras_max {
            let text = format!("the edge has {} cameras, as many as it may", self.config.cameras_max);
            return self.refuse(id, RefuseCode::Full, text);
        }
        if let Some(holder) = holder {
            let text = format!("a newer connection of camera {name} has taken over");
            self.refuse(holder, RefuseCode::Replaced, text);
        }
        self.know(&name, &peer.identity);
        let camera = self.cameras.get_mut(&name).expect("the camera was made known above");
        camera.link = Some(id);
        camera.silent = false;
        camera.identity = peer.identity;
        camera.demand.contracts.clear();
        let newest = camera.log.last().map(|(id, _)| id);
        if let Some(link) = self.links.get_mut(&id) {
            link.session = Some(Session { camera: name.clone(), epoch, attempt, anchor });
            link.ping_due = now;
        }
        let welcome = Welcome {
            version: VERSION,
            newest,
            frame_bytes_max: self.config.frame_bytes_max,
            software: self.config.software.clone(),
        };
        self.send(id, Message::Welcome(welcome));
        self.outputs.push_back(EdgeOutput::CameraChanged { camera: name.clone(), up: true, reason: None });
        self.update_demand(&name);
    }

    /// Makes a log for a camera that was not known, and tells the subscriptions that it matches.
    fn know(&mut self, name: &CameraName, identity: &str) {
        if self.cameras.contains_key(name) {
            return;
        }
        let share = self.config.log_bytes_max / (self.cameras.len() as u64 + 1);
        for camera in self.cameras.values_mut() {
            camera.log.set_bytes_max(share);
        }
        let (writer, reader) = log(LogConfig::with_bytes_max(share));
        let camera = Camera {
            log: writer,
            link: None,
            silent: false,
            identity: identity.into(),
            demand: Demand::default(),
            status: Status::default(),
            counters: CameraCounters::default(),
        };
        self.cameras.insert(name.clone(), camera);
        for (&subscription, entry) in &self.subscriptions {
            if entry.pattern.matches(name) {
                let (camera, log) = (name.clone(), reader.clone());
                self.outputs.push_back(EdgeOutput::Attach { subscription, camera, log });
            }
        }
    }

    fn update_all_demands(&mut self) {
        let names: Vec<CameraName> = self.cameras.keys().cloned().collect();
        for name in names {
            self.update_demand(&name);
        }
    }

    /// Tells a camera what the subscriptions that select it want together, if that has changed.
    fn update_demand(&mut self, name: &CameraName) {
        let mut contracts: Vec<Contract> = self
            .subscriptions
            .values()
            .filter(|subscription| subscription.pattern.matches(name))
            .map(|subscription| subscription.contract.clone())
            .collect();
        contracts.sort_by_key(|contract| std::cmp::Reverse(contract.priority));
        contracts.truncate(CONTRACTS_MAX);
        let Some(camera) = self.cameras.get_mut(name) else { return };
        if camera.demand.contracts == contracts {
            return;
        }
        camera.demand = Demand { revision: camera.demand.revision + 1, contracts };
        if let Some(link) = camera.link {
            let message = Message::Demand(camera.demand.clone());
            self.send(link, message);
        }
    }

    fn send(&mut self, link: LinkId, message: Message) {
        self.outputs.push_back(EdgeOutput::Send { link, message });
    }

    fn refuse(&mut self, link: LinkId, code: RefuseCode, text: String) {
        self.send(link, Message::Refuse { code, text: text.clone() });
        self.outputs.push_back(EdgeOutput::Close { link });
        self.forget(link, &text);
    }

    fn forget(&mut self, id: LinkId, reason: &str) {
        let Some(link) = self.links.remove(&id) else { return };
        let Some(name) = link.session.map(|session| session.camera) else { return };
        if let Some(camera) = self.cameras.get_mut(&name)
            && camera.link == Some(id)
        {
            camera.link = None;
            camera.silent = false;
            camera.counters.cancelled += link.arriving.len() as u64;
            let reason = Some(reason.into());
            self.outputs.push_back(EdgeOutput::CameraChanged { camera: name, up: false, reason });
        }
    }

    fn session(&self, link: LinkId) -> Option<&Session> {
        self.links.get(&link)?.session.as_ref()
    }

    /// The camera whose present connection this is.
    fn camera_of(&mut self, link: LinkId) -> Option<&mut Camera> {
        let name = &self.links.get(&link)?.session.as_ref()?.camera;
        self.cameras.get_mut(name).filter(|camera| camera.link == Some(link))
    }

    fn take_arriving(&mut self, link: LinkId, frame: FrameId) -> Option<Arriving> {
        let arriving = &mut self.links.get_mut(&link)?.arriving;
        let position = arriving.iter().position(|arriving| arriving.header.meta.id == frame)?;
        Some(arriving.swap_remove(position))
    }

    fn info(&self, name: &CameraName, camera: &Camera, now: Instant) -> CameraInfo {
        let reader = camera.log.reader();
        let link = camera.link.and_then(|link| self.links.get(&link));
        CameraInfo {
            camera: name.clone(),
            connected: link.is_some() && !camera.silent,
            identity: camera.identity.clone(),
            status: camera.status,
            counters: camera.counters,
            newest: camera.log.last(),
            oldest: reader.get(reader.held().start).map(|record| record.frame.meta.captured),
            log_bytes: camera.log.bytes(),
            clock: link.and_then(|link| link.clock.estimate(now)),
            subscriptions: self.subscriptions.values().filter(|entry| entry.pattern.matches(name)).count(),
        }
    }
}

/// Maps a camera's capture times to the edge's clock.
#[derive(Clone, Copy, Debug)]
pub struct CaptureClock {
    epoch: Epoch,
    anchor: ClockAnchor,
    estimate: ClockEstimate,
}

impl CaptureClock {
    /// When a frame was captured, by our clock, and the most by which that is wrong. `None` for frames of
    /// another epoch, whose anchor is another.
    pub fn captured_at(&self, frame: FrameId, captured: Timestamp) -> Option<(Instant, Duration)> {
        let instant = || self.estimate.to_ours(self.anchor.instant_at(captured));
        (frame.epoch == self.epoch).then(|| (instant(), self.estimate.error))
    }
}

/// The part of what a camera said it skipped that lies between the newest frame held and the one that arrived.
fn skipped_since(newest: Option<FrameId>, frame: FrameId, skipped: &[SkipRange]) -> Arc<[SkipRange]> {
    let from = match newest {
        Some(newest) if newest.epoch == frame.epoch => {
            crate::frame::Sequence(newest.sequence.0.saturating_add(1))
        }
        _ => crate::frame::Sequence(0),
    };
    skipped.iter().filter_map(|range| range.clipped(from, frame.sequence)).collect()
}
