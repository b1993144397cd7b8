//! Runs the edge broker: it accepts cameras, keeps a replica log of each, and asks each for what applications want.
//!
//! Like the camera broker, the edge broker consists of parts (`docs/decisions/0021-brokers-of-parts.md`).
//! This file holds the parts, passes events to them, and collects their outputs.
//!
//! | question | part |
//! | --- | --- |
//! | which connection may be which camera, and which start takes over? | `Sessions`: `session.rs` |
//! | which camera is on which connection? | `Roster`: `roster.rs` |
//! | which connections may stay? | its `Connections`: `connection.rs` |
//! | which frame may arrive, and when is it taken? | `Arrivals` of a connection: `arrivals.rs` |
//! | which cameras are known, and how much memory does each get? | its `Cameras`: `camera.rs` |
//! | what becomes of a camera's frames? | `Replica` of a camera: `replica/mod.rs` |
//! | what is a camera asked for, and what does it report? | `CameraReport` of a camera: `report.rs` |
//! | how much does a camera publish, and how much of that crosses the link? | its `TrafficMeter`: `traffic.rs` |
//! | who publishes which derived stream? | `Publishers`: `publishing.rs` |
//! | who owns a derived stream, and how are its records numbered? | its `Derived`: `derived.rs` |
//! | what is a camera's share of its channel? | its `Shares`: `shares.rs` |
//! | what do applications want, and where do cameras get profiles from? | `Applications`: `applications.rs` |
//! | how is a frame of the past fetched? | `History`: `history/mod.rs`, asked in `past.rs` |
//! | what does a camera hold of a span of its past? | `Surveys`: `surveys.rs`, asked in `past.rs` |
//! | what do contracts and people see of a camera? | `view.rs` |
//! | which answers of applications go to a camera? | `Outlet` of a camera: `answers.rs`, [`crate::answers`] |
//! | who lacks the newest deny list? | `Courier`: `broker/revocations.rs` |
//! | how does an application get frames? | [`crate::subscription`], from the logs handed out by [`EdgeOutput::Attach`] |

mod answers;
mod applications;
mod arrivals;
mod camera;
mod connection;
mod derived;
mod history;
mod pace;
mod past;
mod profiles;
mod publishing;
mod replica;
mod report;
mod roster;
mod session;
mod shares;
mod subscriptions;
mod surveys;
mod traffic;
mod types;
mod view;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use self::applications::Applications;
pub use self::arrivals::{ARRIVING_BYTES_MAX, ARRIVING_FRAMES_MAX, FrameRefused, HELD_MAX};
use self::connection::Due;
pub use self::connection::{NAMELESS_LINKS_MAX, NAMELESS_LINKS_OF_IDENTITY_MAX};
use self::derived::Derived;
use self::history::History;
pub use self::history::{CAMERA_RETURN_MAX, HISTORY_QUESTIONS_MAX, HISTORY_TIME_MAX};
use self::publishing::{Publishers, capture_clock};
pub use self::replica::KEYFRAME_REQUEST_INTERVAL;
use self::roster::Roster;
use self::session::{Judgement, Sessions};
use self::surveys::Surveys;
pub use self::types::{
    AnswerError, CameraCounters, CameraInfo, CameraView, CaptureClock, ChannelShare, DERIVED_BYTES_MAX,
    DERIVED_MAX, DERIVED_OF_OWNER_MAX, DerivedError, Deriving, EdgeConfig, EdgeOutput, ForgetError,
    Forgotten, GivenAnswer, KeptStream, NamedContract, NotSurveyed, Peer, PublisherId, PublisherRefused,
    ReplyError, SubscriptionId,
};
use self::view::Views;
use super::revocations::Courier;
use super::{LinkId, Published};
use crate::contract::Contract;
use crate::controller::share::Channels;
use crate::frame::{Epoch, FrameId};
use crate::log::{LogReader, Record};
use crate::name::{CameraName, CameraPattern};
use crate::profile::ProfileHash;
use crate::subscription::SubscriptionSpec;
use crate::units::{ClockAnchor, Instant, Timestamp};
use crate::wire::{FrameHeader, Hello, Inquiry, Message, RefuseCode, ReplyResult, Standing};

/// An edge broker. See the [module](super) for how to drive it.
pub struct EdgeBroker {
    /// What the driver must do, oldest first.
    outputs: VecDeque<EdgeOutput>,
    sessions: Sessions,
    roster: Roster,
    applications: Applications,
    publishers: Publishers,
    history: History,
    surveys: Surveys,
    courier: Courier,
    forget_after: Option<Duration>,
    /// When the broker began to listen to cameras.
    started: Instant,
}

impl EdgeBroker {
    /// A broker without cameras.
    pub fn new(config: EdgeConfig) -> Self {
        Self {
            outputs: VecDeque::new(),
            roster: Roster::new(&config),
            sessions: Sessions::new(config.software),
            applications: Applications::default(),
            publishers: Publishers::default(),
            history: History::new(config.history_bytes_max),
            surveys: Surveys::default(),
            courier: Courier::default(),
            forget_after: config.forget_after,
            started: Instant::ZERO,
        }
    }

    /// Starts to listen to cameras. Cameras of an earlier run are expected to connect, so questions to cameras that are not
    /// connected wait for [`CAMERA_RETURN_MAX`]. Without this call, questions wait only for cameras that were connected in this run.
    pub fn handle_started(&mut self, now: Instant) {
        self.started = now;
        self.history.handle_started(now);
    }

    /// Restores cameras that an earlier run of this edge knew: for each camera the epoch and the anchor of its last start, and the frames read
    /// from a log on disk. Must be called before anything else. Cameras beyond the limit are left out. Returns how many frames did not fit.
    pub fn restore(&mut self, cameras: Vec<(CameraName, (Epoch, ClockAnchor), Vec<Record>)>) -> u64 {
        // All cameras become known before a frame is restored, because each takes its share of the memory.
        for (camera, start, _) in cameras.iter().take(self.roster.cameras.room()) {
            self.outputs.extend(self.applications.introduce(&mut self.roster, camera, "", *start, None));
        }
        let restored = cameras.into_iter();
        restored.map(|(camera, _, records)| self.roster.cameras.restore(&camera, records)).sum()
    }

    /// Restores derived streams that an earlier run of this edge knew. Must be called after
    /// [`EdgeBroker::restore`]. Streams beyond the limit are left out. Returns how many records did not fit.
    pub fn restore_derived(&mut self, streams: Vec<KeptStream>) -> u64 {
        let mut kept = Vec::new();
        for stream in streams.into_iter().take(self.roster.cameras.derived_room()) {
            let KeptStream { name: stream, deriving, start, records } = stream;
            let (roster, owner) = (&mut self.roster, deriving.owner.clone());
            let derived = Some(Derived::new(deriving));
            self.outputs.extend(self.applications.introduce(roster, &stream, &owner, start, derived));
            kept.push((stream, records));
        }
        kept.into_iter().map(|(stream, records)| self.roster.cameras.restore(&stream, records)).sum()
    }

    // ---- settings that may change ---------------------------------------------------------------------------

    /// Sets after how long a camera that is not connected may be forgotten. `None`: never.
    pub fn set_forget_after(&mut self, forget_after: Option<Duration>) {
        self.forget_after = forget_after;
    }

    /// Replaces the channels that cameras share. Measurements of a channel that stays are kept.
    pub fn set_channels(&mut self, channels: Channels) {
        let outputs = self.roster.set_channels(channels);
        self.outputs.extend(outputs);
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// All cameras, sorted by name.
    pub fn cameras(&self, now: Instant) -> Vec<CameraInfo> {
        self.views().infos(now)
    }

    /// The number of cameras that a pattern selects.
    pub fn matching(&self, pattern: &CameraPattern) -> usize {
        self.roster.cameras.matching(pattern).len()
    }

    /// The memory budget of the frames of all cameras together, in bytes.
    pub fn log_bytes_max(&self) -> u64 {
        self.roster.cameras.log_bytes_max()
    }

    /// A camera's log, with the epoch and the anchor of its newest start.
    pub fn log(&self, camera: &CameraName) -> Option<(LogReader, Epoch, ClockAnchor)> {
        let camera = self.roster.cameras.get(camera)?;
        let (epoch, anchor) = camera.newest_start;
        Some((camera.replica.reader(), epoch, anchor))
    }

    /// Maps capture times of a camera to the edge's clock. `None` if the camera is not connected, or its clock is not measured yet.
    pub fn capture_clock(&self, now: Instant, camera: &CameraName) -> Option<CaptureClock> {
        let camera = self.roster.cameras.get(camera)?;
        capture_clock(now, camera).or_else(|| self.roster.link_of(camera)?.capture_clock(now))
    }

    /// What affects the contracts on a camera. Empty if the camera is not known. [`EdgeOutput::ViewChanged`] tells of changes.
    pub fn view(&self, now: Instant, name: &CameraName) -> CameraView {
        self.views().view(now, name).unwrap_or_default()
    }

    /// The cameras that have not been connected for [`EdgeConfig::forget_after`], and that no subscription names. A subscription to a
    /// pattern does not count. A caller that keeps no frames of these cameras elsewhere may forget them ([`EdgeBroker::handle_forget`]).
    pub fn stale(&self, now: Instant) -> Vec<CameraName> {
        let Some(forget_after) = self.forget_after else { return Vec::new() };
        let subscriptions = &self.applications.subscriptions;
        self.roster.cameras.names(|name, camera| {
            let gone = camera.gone.unwrap_or(self.started);
            let is_old =
                camera.link.is_none() && !camera.is_heard() && now.saturating_since(gone) >= forget_after;
            is_old && !subscriptions.are_for(name)
        })
    }

    fn views(&self) -> Views<'_> {
        Views { roster: &self.roster, subscriptions: &self.applications.subscriptions }
    }

    // ---- connections --------------------------------------------------------------------------------------

    /// A camera broker has connected and proven its identity, but has not said which camera it is. The connection is closed
    /// if there are already [`NAMELESS_LINKS_MAX`] such connections, or [`NAMELESS_LINKS_OF_IDENTITY_MAX`] of its identity.
    pub fn handle_connected(&mut self, now: Instant, link: LinkId, peer: Peer) {
        self.outputs.extend(self.roster.connections.handle_connected(now, link, peer));
    }

    /// A connection is gone.
    pub fn handle_closed(&mut self, _now: Instant, link: LinkId) {
        self.forget(link, "the connection ended");
    }

    /// A message arrived on a connection's control stream.
    pub fn handle_message(&mut self, now: Instant, id: LinkId, message: Message) {
        self.roster.handle_control(now, id, &message);
        let Some(link) = self.roster.connections.get_mut(id) else { return };
        link.hear(now);
        match message {
            Message::Hello(hello) if link.session.is_none() => self.handle_hello(now, id, hello),
            Message::Ping { .. } | Message::Pong { .. } => {
                self.outputs.extend(link.handle_ping(now, message));
            }
            Message::Abilities(abilities) => {
                link.abilities = Some(abilities);
                self.outputs.extend(self.history.handle_abilities(id, abilities));
            }
            Message::Status(_)
            | Message::DiskStatus(_)
            | Message::SourceReport(_)
            | Message::FeasibilityReport(_)
            | Message::NegotiationResult(_) => {
                self.outputs.extend(self.roster.handle_report(now, id, message));
            }
            Message::AnswerRequest(_) | Message::Report(_) => self.handle_answer_message(now, id, message),
            Message::ShareRequest(claim) => self.roster.handle_share_request(now, id, claim),
            Message::ProfileRequest(request) => {
                self.outputs.extend(self.applications.handle_profile_request(link, &request));
            }
            Message::HistoryEnd(end) => {
                self.outputs.extend(self.history.handle_end(now, &self.roster, id, end));
            }
            Message::SurveyAnswer(answer) => self.outputs.extend(self.surveys.handle_answer(id, answer)),
            Message::RevocationVersion { version } => {
                let answer = self.courier.handle_version(id, version);
                self.outputs.extend(answer.map(|message| EdgeOutput::Send { link: id, message }));
            }
            Message::RevocationList { signed } => {
                let is_asked = self.courier.handle_list(id);
                self.outputs.extend(is_asked.then_some(EdgeOutput::Revocations { link: id, signed }));
            }
            _ => self.handle_protocol_error(id, "a camera does not send this message, or not at this point"),
        }
    }

    /// How this edge would judge a connection as the camera of an [`Inquiry`]. `wall` is the wall
    /// clock of this edge. The inquiry changes nothing. `None`: the connection is not known.
    pub fn standing(&self, link: LinkId, inquiry: &Inquiry, wall: Timestamp) -> Option<Standing> {
        self.sessions.standing(&self.roster, link, inquiry, wall)
    }

    /// A connection's control stream violated the protocol. The connection is refused.
    pub fn handle_protocol_error(&mut self, link: LinkId, error: &str) {
        self.refuse(link, RefuseCode::Protocol, error.into());
    }

    /// The certificate of a connection's peer is no longer accepted. The connection is refused. `why` is for people at both ends.
    pub fn handle_revoked(&mut self, link: LinkId, why: String) {
        self.refuse(link, RefuseCode::Revoked, why);
    }

    /// This deny list is held from now on. Cameras with an older list are told so, and carry the new list
    /// to other edges. Connections that the list denies are passed to [`EdgeBroker::handle_revoked`].
    pub fn handle_revocations(&mut self, version: u64, signed: Bytes) {
        let said = self.courier.handle_held(version, signed);
        self.outputs.extend(said.into_iter().map(|(link, message)| EdgeOutput::Send { link, message }));
    }

    /// Forgets everything about a camera, so that its next start may have a lower or a much higher epoch. Closes the camera's
    /// connection. Ends the subscriptions that read the camera ([`EdgeOutput::Ended`]), because its next frames may sort before frames
    /// already delivered. Returns what was known, or `None` for an unknown camera. The owner of the log on disk puts that log aside.
    pub fn handle_reset(&mut self, name: &CameraName) -> Option<Forgotten> {
        self.sessions.handle_reset(name);
        let camera = self.roster.cameras.get(name)?;
        let forgotten = camera.forgotten();
        if let Some(link) = camera.link {
            self.close(link, "the camera was reset");
        }
        self.outputs.extend(self.applications.handle_reset(name));
        self.publishers.handle_forgotten(name);
        self.roster.cameras.remove(name);
        self.history.handle_reset(name);
        self.outputs.extend(self.applications.ask_all(&mut self.roster));
        Some(forgotten)
    }

    /// Forgets a camera that is not connected, with its frames in memory. Subscriptions that read the
    /// camera continue without it ([`EdgeOutput::Detach`]). If the camera connects again, it counts as
    /// new: its epoch may be lower or much higher. The owner of the log on disk puts that log aside.
    pub fn handle_forget(&mut self, name: &CameraName) -> Result<Forgotten, ForgetError> {
        let camera = || name.clone();
        let Some(known) = self.roster.cameras.get(name) else {
            return Err(ForgetError::Unknown { camera: camera() });
        };
        if known.is_heard() {
            return Err(ForgetError::Connected { camera: camera() });
        }
        let (forgotten, silent) = (known.forgotten(), known.link);
        if let Some(link) = silent {
            self.close(link, "the camera was forgotten");
        }
        self.sessions.handle_reset(name);
        let readers = self.applications.subscriptions.readers(name).into_iter();
        self.outputs
            .extend(readers.map(|subscription| EdgeOutput::Detach { subscription, camera: camera() }));
        self.publishers.handle_forgotten(name);
        self.roster.cameras.remove(name);
        self.history.handle_reset(name);
        Ok(forgotten)
    }

    // ---- frames -------------------------------------------------------------------------------------------

    /// A frame's header arrived. After `Ok`, its payload may be received. A live frame ends with
    /// [`EdgeBroker::handle_frame_complete`] or [`EdgeBroker::handle_frame_cancelled`]. A frame that answers
    /// a question about the past ends with [`EdgeBroker::handle_history_complete`] or
    /// [`EdgeBroker::handle_history_cancelled`].
    pub fn handle_frame_header(
        &mut self,
        now: Instant,
        id: LinkId,
        header: FrameHeader,
    ) -> Result<(), FrameRefused> {
        let (taken, outputs) = if header.history > 0 {
            self.roster.handle_heard(now, id)?;
            self.history.handle_header(now, &self.roster, id, header)
        } else {
            self.roster.handle_frame_header(now, id, header)
        };
        self.outputs.extend(outputs);
        taken
    }

    /// In total, `bytes` of a frame's payload have arrived.
    pub fn handle_frame_progress(&mut self, now: Instant, id: LinkId, frame: FrameId, bytes: u32) {
        self.outputs.extend(self.roster.handle_frame_progress(now, id, frame, bytes));
    }

    /// A frame's payload has arrived completely.
    pub fn handle_frame_complete(&mut self, now: Instant, id: LinkId, frame: FrameId, payload: Bytes) {
        self.outputs.extend(self.roster.handle_frame_complete(now, id, frame, payload));
    }

    /// The rest of a frame's payload will not come.
    pub fn handle_frame_cancelled(&mut self, now: Instant, id: LinkId, frame: FrameId) {
        self.outputs.extend(self.roster.handle_frame_cancelled(now, id, frame));
    }

    /// A subscription has lost its chain of a camera: its decoder failed, or no still can be made from the chain. The
    /// camera is asked for a new chain, at most once in [`KEYFRAME_REQUEST_INTERVAL`] for all subscriptions together.
    pub fn handle_chain_lost(&mut self, now: Instant, name: &CameraName) {
        self.outputs.extend(self.roster.handle_chain_lost(now, name));
    }

    // ---- derived streams ----------------------------------------------------------------------------------

    /// A client wants to publish a derived stream. The stream's first publisher since the edge's start must give `start`: an epoch above
    /// all earlier ones, and its anchor. Returns the stream's epoch. The publisher ends with [`EdgeBroker::handle_publisher_gone`].
    pub fn handle_publisher(
        &mut self,
        id: PublisherId,
        stream: &CameraName,
        deriving: Deriving,
        start: Option<(Epoch, ClockAnchor)>,
    ) -> Result<Epoch, PublisherRefused> {
        let parts = (&mut self.roster, &self.applications);
        let (epoch, outputs) = self.publishers.handle_opened(parts, id, stream, deriving, start)?;
        self.outputs.extend(outputs);
        Ok(epoch)
    }

    /// A publisher published a record of a derived stream. `captured` is the capture time of a record that has none of its own.
    pub fn handle_derived(
        &mut self,
        (now, captured): (Instant, Instant),
        id: PublisherId,
        record: Published,
    ) -> Result<FrameId, DerivedError> {
        let published = self.publishers.handle_published((now, captured), &mut self.roster, id, record);
        let (frame, outputs) = published?;
        self.outputs.extend(outputs);
        Ok(frame)
    }

    /// A publisher has nothing to publish for now. `reason` says why.
    pub fn handle_publisher_lost(&mut self, now: Instant, id: PublisherId, reason: String) {
        self.outputs.extend(self.publishers.handle_lost(now, &mut self.roster, id, reason));
    }

    /// A publisher is gone. `reason` says why, unless it left in good order.
    pub fn handle_publisher_gone(&mut self, now: Instant, id: PublisherId, reason: Option<String>) {
        self.outputs.extend(self.publishers.handle_gone(now, &mut self.roster, id, reason));
    }

    // ---- applications -------------------------------------------------------------------------------------

    /// An application subscribes. Matching cameras come as [`EdgeOutput::Attach`], now and later. `clock` relates the
    /// wall clock to the monotonic clock now, so that a later change of the wall clock does not move the end of the span.
    ///
    /// Returns until when the subscription waits for cameras that are not known yet and whose past it wants. The subscription does not end before.
    pub fn handle_subscribe(
        &mut self,
        clock: ClockAnchor,
        id: SubscriptionId,
        asked: SubscriptionSpec,
    ) -> Option<Instant> {
        let expected = self.history.any_expected_until();
        let (patience, outputs) =
            self.applications.handle_subscribe(&mut self.roster, &clock, id, asked, expected);
        self.outputs.extend(outputs);
        patience
    }

    /// A subscription is over.
    pub fn handle_unsubscribe(&mut self, id: SubscriptionId) {
        self.outputs.extend(self.applications.handle_unsubscribe(&mut self.roster, id));
    }

    /// Replaces a subscription's contract, at most ten times a second. Of more changes, the last counts.
    pub fn handle_update(&mut self, now: Instant, id: SubscriptionId, contract: Contract) {
        self.outputs.extend(self.applications.handle_update(now, &mut self.roster, id, contract));
    }

    /// Frames take `way` from the edge to a subscription's application. Cameras are asked for
    /// a latency bound that is shorter by `way`, so that frames reach the application in time.
    pub fn handle_way(&mut self, id: SubscriptionId, way: Duration) {
        self.outputs.extend(self.applications.handle_way(&mut self.roster, id, way));
    }

    /// Holds a profile for cameras whose contracts name it. The caller bounds the number of profiles, and
    /// removes them with [`EdgeBroker::remove_profile`].
    pub fn add_profile(&mut self, hash: ProfileHash, bytes: Bytes) {
        self.applications.profiles.add(hash, bytes);
    }

    /// Forgets a profile.
    pub fn remove_profile(&mut self, hash: ProfileHash) {
        self.applications.profiles.remove(hash);
    }

    /// Sends an application's result for a frame to the camera.
    pub fn handle_reply(
        &mut self,
        camera: &CameraName,
        frame: FrameId,
        application: &str,
        result: ReplyResult,
    ) -> Result<(), ReplyError> {
        self.outputs.push_back(self.roster.reply(camera, frame, application, result)?);
        Ok(())
    }

    // ---- time ---------------------------------------------------------------------------------------------

    /// Does what is due at `now`. The driver calls this at [`EdgeBroker::poll_timeout`], and may call it at any other time.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Due { outputs, given_up } = self.roster.connections.handle_timeout(now);
        self.outputs.extend(outputs);
        for (link, reason) in given_up {
            self.close(link, reason);
        }
        self.outputs.extend(self.roster.handle_waits(now));
        self.outputs.extend(self.history.handle_timeout(now, &self.roster));
        self.outputs.extend(self.applications.handle_updates(now, &mut self.roster));
        self.outputs.extend(self.roster.handle_channels(now));
        self.outputs.extend(self.applications.handle_ends(now, &mut self.roster));
        self.handle_old_answers(now);
    }

    /// The next output to carry out. `None`: there is none for now.
    pub fn poll_output(&mut self) -> Option<EdgeOutput> {
        loop {
            let output = self.outputs.pop_front()?;
            if !self.is_superseded(&output) {
                return Some(output);
            }
        }
    }

    /// When [`EdgeBroker::handle_timeout`] is due. `None`: not before the next event.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = [self.roster.due(), self.history.due(&self.roster), self.applications.subscriptions.due()];
        due.into_iter().chain([self.answers_due()]).flatten().min()
    }

    // ---- inside -------------------------------------------------------------------------------------------

    /// Whether an output is a demand that a later demand to the same camera replaces. Many subscriptions
    /// may begin or end at once, and on a slow link their demands would queue for seconds.
    fn is_superseded(&self, output: &EdgeOutput) -> bool {
        let demanded = |output: &EdgeOutput| match output {
            EdgeOutput::Send { link, message: Message::Demand(_) } => Some(*link),
            _ => None,
        };
        let link = demanded(output);
        link.is_some() && self.outputs.iter().any(|later| demanded(later) == link)
    }

    /// A connection says which camera it is.
    fn handle_hello(&mut self, now: Instant, id: LinkId, hello: Hello) {
        match self.sessions.handle_hello(&self.roster, id, &hello) {
            None => {}
            Some(Judgement::Refused { code, text }) => self.refuse(id, code, text),
            Some(Judgement::EpochTaken { newest }) => {
                self.outputs.push_back(self.sessions.tell_taken(&self.roster, id, newest));
                self.close(id, "the camera's epoch is already in use");
            }
            Some(Judgement::Accepted { replaces }) => {
                if let Some(holder) = replaces {
                    let text = format!("a newer connection of camera {} has taken over", hello.camera);
                    self.refuse(holder, RefuseCode::Replaced, text);
                }
                let (roster, applications) = (&mut self.roster, &self.applications);
                self.outputs.extend(self.sessions.take_in(now, roster, applications, id, hello));
                self.outputs.extend(self.history.handle_connected(now, &self.roster));
                let greeting = self.courier.handle_taken_in(id);
                self.outputs.extend(greeting.map(|message| EdgeOutput::Send { link: id, message }));
            }
        }
    }

    fn refuse(&mut self, link: LinkId, code: RefuseCode, text: String) {
        self.outputs
            .push_back(EdgeOutput::Send { link, message: Message::Refuse { code, text: text.clone() } });
        self.close(link, &text);
    }

    fn close(&mut self, link: LinkId, reason: &str) {
        self.outputs.push_back(EdgeOutput::Close { link });
        self.forget(link, reason);
    }

    /// A connection is gone, and with it the questions asked on it.
    fn forget(&mut self, link: LinkId, reason: &str) {
        self.outputs.extend(self.roster.handle_closed(link, reason));
        self.outputs.extend(self.history.handle_closed(link));
        self.outputs.extend(self.surveys.handle_closed(link));
        self.courier.handle_closed(link);
    }
}

#[cfg(test)]
mod tests;
