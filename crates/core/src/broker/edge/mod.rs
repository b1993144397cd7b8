//! Runs the edge broker: it accepts cameras, keeps a replica log of each, and asks each for what applications
//! want.
//!
//! It is made of parts, as the camera broker is (`docs/decisions/0021-brokers-of-parts.md`). This file holds
//! the parts, passes events on to them, and carries out what they return.
//!
//! | question | part |
//! | --- | --- |
//! | which connections may stay? | `Connections`: `connection.rs` |
//! | who may be which camera, and who takes over? | `session.rs` |
//! | which cameras are known, and what of the memory is each one's? | `Cameras`: `camera.rs` |
//! | which camera is on which connection? | `Roster`: `roster.rs` |
//! | which frame may arrive, and when is it its turn? | `Arrivals`: `arrivals.rs` |
//! | what becomes of it then? | `Replica`: `replica/mod.rs`; with those that need others: `replica/decoding.rs` |
//! | who gets it as it came? | `replica/chains.rs` |
//! | what do applications ask of a camera? | `Subscriptions`: `subscriptions.rs` |
//! | what did the camera say to that? | `CameraReport`: `report.rs` |
//! | how is a frame of the past fetched? | `History`: `history/mod.rs` |
//! | what does a camera have of a channel that it shares with others? | `Shares`: `shares.rs` |
//! | where do cameras get profiles from? | `Profiles`: `profiles.rs` |
//! | what is told of a camera? | `view.rs` |
//! | how does an application get frames? | [`crate::subscription`], from the logs handed out by [`EdgeOutput::Attach`] |

mod arrivals;
mod camera;
mod connection;
mod history;
mod profiles;
mod replica;
mod report;
mod roster;
mod session;
mod shares;
mod subscriptions;
mod types;
mod view;

use std::collections::VecDeque;

use bytes::Bytes;

pub use self::arrivals::{ARRIVING_BYTES_MAX, ARRIVING_FRAMES_MAX, FrameRefused, HELD_MAX};
use self::camera::{Camera, Cameras};
use self::connection::{Due, Session};
pub use self::connection::{NAMELESS_LINKS_MAX, NAMELESS_LINKS_OF_IDENTITY_MAX};
use self::history::History;
pub use self::history::{CAMERA_RETURN_MAX, HISTORY_QUESTIONS_MAX, HISTORY_TIME_MAX};
use self::profiles::Profiles;
pub use self::replica::{DECODING_BYTES_MAX, DECODING_FRAMES_MAX, Decoded, KEYFRAME_REQUEST_INTERVAL};
use self::report::{Bears, CameraReport};
use self::roster::{Gone, Roster};
use self::session::{Judgement, judge};
use self::shares::{Shares, Standing};
use self::subscriptions::{Subscribed, Subscriptions};
pub use self::types::{
    CameraCounters, CameraInfo, CameraView, CaptureClock, ChannelShare, EdgeConfig, EdgeOutput, Forgotten,
    NamedContract, Peer, ReplyError, SubscriptionId,
};
use self::view::Seen;
use super::epochs::Claims;
use super::{LinkId, NUMBER_MAX};
use crate::clock::Exchange;
use crate::contract::Contract;
use crate::frame::{ChainKinds, Epoch, FrameId, Sequence};
use crate::history::PastQuery;
use crate::log::{LogReader, Record};
use crate::name::{CameraName, CameraPattern};
use crate::profile::ProfileHash;
use crate::subscription::SubscriptionSpec;
use crate::units::{ClockAnchor, Instant};
use crate::wire::{FrameHeader, Hello, Message, REPLY_BYTES_MAX, RefuseCode, VERSION, Welcome};

/// An edge broker. See the [module](super) for how to drive it.
pub struct EdgeBroker {
    /// What the driver must do, oldest first.
    outputs: VecDeque<EdgeOutput>,
    /// The cameras, and their connections.
    roster: Roster,
    /// How far cameras are believed.
    claims: Claims,
    subscriptions: Subscriptions,
    history: History,
    profiles: Profiles,
    shares: Shares,
    /// The software, for people.
    software: String,
}

impl EdgeBroker {
    /// A broker without cameras.
    pub fn new(config: EdgeConfig) -> Self {
        Self {
            outputs: VecDeque::new(),
            roster: Roster::new(Cameras::new(&config)),
            claims: Claims::default(),
            subscriptions: Subscriptions::default(),
            history: History::new(config.history_bytes_max),
            profiles: Profiles::default(),
            shares: Shares::new(config.channels),
            software: config.software,
        }
    }

    /// Starts to listen to cameras. Those that knew the edge before are expected, and questions to them wait
    /// for [`CAMERA_RETURN_MAX`]. Without this call, only cameras that have been here are waited for.
    pub fn handle_started(&mut self, now: Instant) {
        self.history.handle_started(now);
    }

    /// Restores cameras that an earlier run of this edge knew: for each the epoch and the anchor of its last
    /// start, and the frames that a log on disk returned. Must be called before anything else. Cameras beyond
    /// the limit are left out. Returns how many frames did not fit.
    pub fn restore(&mut self, cameras: Vec<(CameraName, (Epoch, ClockAnchor), Vec<Record>)>) -> u64 {
        // All are made known first: each takes its share of the memory.
        for (camera, start, _) in cameras.iter().take(self.roster.cameras.room()) {
            self.know(camera, "", *start);
        }
        let mut left_out = 0;
        for (camera, _, records) in cameras {
            let mut known = self.roster.cameras.get_mut(&camera);
            for record in records {
                let is_held = known.as_mut().is_some_and(|known| known.replica.restore(record));
                left_out += u64::from(!is_held);
            }
        }
        left_out
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// All cameras, by name.
    pub fn cameras(&self, now: Instant) -> Vec<CameraInfo> {
        self.roster.cameras.iter().map(|(name, camera)| self.seen(name, camera).info(now)).collect()
    }

    /// The cameras that a pattern selects.
    pub fn matching(&self, pattern: &CameraPattern) -> usize {
        self.roster.cameras.iter().filter(|(name, _)| pattern.matches(name)).count()
    }

    /// What the frames of all cameras may take in memory together, in bytes.
    pub fn log_bytes_max(&self) -> u64 {
        self.roster.cameras.log_bytes_max()
    }

    /// A camera's log, with the epoch and the anchor of the start whose frames come now.
    pub fn log(&self, camera: &CameraName) -> Option<(LogReader, Epoch, ClockAnchor)> {
        let camera = self.roster.cameras.get(camera)?;
        let (epoch, anchor) = camera.newest_start;
        Some((camera.replica.reader(), epoch, anchor))
    }

    /// How capture times of a camera map to instants of our clock.
    pub fn capture_clock(&self, now: Instant, camera: &CameraName) -> Option<CaptureClock> {
        self.roster.link_of(self.roster.cameras.get(camera)?)?.capture_clock(now)
    }

    /// What affects the contracts on a camera. Empty if the camera is not known. It changes with
    /// [`EdgeOutput::ViewChanged`].
    pub fn view(&self, now: Instant, name: &CameraName) -> CameraView {
        let camera = self.roster.cameras.get(name);
        camera.map(|camera| self.seen(name, camera).view(now)).unwrap_or_default()
    }

    // ---- connections --------------------------------------------------------------------------------------

    /// A camera broker has connected and proven its identity, but has not said which camera it is. The
    /// connection is closed if it exceeds [`NAMELESS_LINKS_MAX`], or [`NAMELESS_LINKS_OF_IDENTITY_MAX`] for
    /// its identity.
    pub fn handle_connected(&mut self, now: Instant, link: LinkId, peer: Peer) {
        self.outputs.extend(self.roster.connections.handle_connected(now, link, peer));
    }

    /// A connection is gone.
    pub fn handle_closed(&mut self, _now: Instant, link: LinkId) {
        self.forget(link, "the connection ended");
    }

    /// A message arrived on a connection's control stream.
    pub fn handle_message(&mut self, now: Instant, id: LinkId, message: Message) {
        let Some(link) = self.roster.connections.get_mut(id) else { return };
        link.hear(now);
        match message {
            Message::Hello(hello) if link.session.is_none() => self.handle_hello(now, id, &hello),
            Message::Ping { t1 } => self.send(id, Message::Pong { t1, t2: now, t3: now }),
            Message::Pong { t1, t2, t3 } => link.handle_answer(Exchange { t1, t2, t3, t4: now }),
            Message::Abilities(abilities) => link.abilities = Some(abilities),
            Message::Status(status) => {
                // A camera that sends other messages before its abilities has a version that answers no
                // questions.
                if !link.abilities.get_or_insert_default().past {
                    self.outputs.extend(self.history.handle_unable(id));
                }
                self.note(id, |report| report.handle_status(status));
            }
            Message::DiskStatus(disk) => self.note(id, |report| report.handle_disk(disk)),
            Message::FeasibilityReport(feasibility) => {
                self.note(id, |report| report.handle_feasibility(now, feasibility))
            }
            Message::NegotiationResult(negotiated) => {
                self.note(id, |report| report.handle_negotiated(now, &negotiated))
            }
            Message::ShareRequest(claim) => {
                if let Some(camera) = link.camera() {
                    self.shares.handle_share_request(now, camera, claim);
                }
            }
            Message::ProfileRequest(request) => {
                if let Some(camera) = link.camera() {
                    let is_named = self.subscriptions.name_profile(camera, request.hash);
                    let part = self.profiles.part(&request, is_named);
                    self.send(id, Message::ProfilePart(part));
                }
            }
            Message::HistoryEnd(end) => {
                let outputs = self.history.handle_end(now, &self.roster, id, end);
                self.outputs.extend(outputs);
            }
            _ => {
                let text = "a camera does not send this message, or not now".into();
                self.refuse(id, RefuseCode::Protocol, text);
            }
        }
    }

    /// A connection's control stream made no sense.
    pub fn handle_protocol_error(&mut self, link: LinkId, error: &str) {
        self.refuse(link, RefuseCode::Protocol, error.into());
    }

    /// Forgets everything about a camera, so that its next start is accepted with any epoch. Its connection
    /// is closed, and the subscriptions that read it end ([`EdgeOutput::Ended`]), because its next frames may
    /// sort before those that they were given. Returns what was known, or `None` for an unknown camera. The
    /// owner of the log on disk puts that log aside.
    pub fn handle_reset(&mut self, name: &CameraName) -> Option<Forgotten> {
        self.claims.vouch(name);
        let camera = self.roster.cameras.get(name)?;
        let (epoch, identity) = (camera.newest_start.0, camera.identity.clone());
        let forgotten = Forgotten { epoch, identity, connected: camera.is_heard() };
        if let Some(link) = camera.link {
            self.close(link, "it was reset");
        }
        for subscription in self.subscriptions.handle_reset(name) {
            self.outputs.push_back(EdgeOutput::Ended { subscription, camera: name.clone() });
        }
        self.roster.cameras.remove(name);
        self.history.handle_reset(name);
        self.update_demands();
        Some(forgotten)
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
        if header.history > 0 {
            self.roster.handle_heard(now, id)?;
            let (taken, outputs) = self.history.handle_header(now, &self.roster, id, header);
            self.outputs.extend(outputs);
            return taken;
        }
        let (taken, output) = self.roster.handle_frame_header(now, id, header);
        self.outputs.extend(output);
        taken
    }

    /// More of a frame's payload has arrived: `bytes` in all.
    pub fn handle_frame_progress(&mut self, now: Instant, id: LinkId, frame: FrameId, bytes: u32) {
        self.outputs.extend(self.roster.handle_frame_progress(now, id, frame, bytes));
    }

    /// All of a frame's payload is here.
    pub fn handle_frame_complete(&mut self, now: Instant, id: LinkId, frame: FrameId, payload: Bytes) {
        let (whole, outputs) = self.roster.handle_frame_complete(now, id, frame, payload);
        self.outputs.extend(outputs);
        if let Some((whole, link)) = whole.zip(self.roster.connections.get(id)) {
            link.camera().into_iter().for_each(|camera| self.shares.handle_whole(camera, &whole));
        }
    }

    /// The rest of a frame's payload will not come.
    pub fn handle_frame_cancelled(&mut self, now: Instant, id: LinkId, frame: FrameId) {
        self.outputs.extend(self.roster.handle_frame_cancelled(now, id, frame));
    }

    /// The decoder has finished what [`EdgeOutput::Decode`] asked, or failed. Any order is allowed, but the
    /// order of asking is fastest.
    pub fn handle_decoded(
        &mut self,
        now: Instant,
        name: &CameraName,
        link: LinkId,
        frame: FrameId,
        decoded: Decoded,
    ) {
        self.outputs.extend(self.roster.handle_decoded(now, name, (link, frame), decoded));
    }

    /// A subscription has lost its chain of a camera because its decoder failed, and asks for a new one. The
    /// camera is asked at most once in [`KEYFRAME_REQUEST_INTERVAL`] for all subscriptions.
    pub fn handle_chain_lost(&mut self, now: Instant, name: &CameraName) {
        if let Some((camera, way)) = self.roster.camera_and_way(name) {
            self.outputs.extend(camera.replica.handle_chain_lost(now, way));
        }
    }

    // ---- frames of the past -------------------------------------------------------------------------------

    /// A reader lacks a frame that its camera may have. The answer comes as [`EdgeOutput::History`] with the
    /// number that this returns. It comes at once if the frame was fetched before, or if the camera is
    /// neither connected nor expected soon.
    pub fn handle_history_query(&mut self, now: Instant, camera: &CameraName, query: PastQuery) -> u64 {
        let (question, outputs) = self.history.handle_query(now, &self.roster, camera, query);
        self.outputs.extend(outputs);
        question
    }

    /// Nobody waits for the answer any more.
    pub fn handle_history_dropped(&mut self, question: u64) {
        self.outputs.extend(self.history.handle_dropped(question));
    }

    /// All of the payload of a frame of the past is here.
    pub fn handle_history_complete(&mut self, now: Instant, id: LinkId, number: u64, payload: Bytes) {
        let _ = self.roster.handle_heard(now, id);
        let (bytes, outputs) = self.history.handle_complete(now, &self.roster, (id, number), payload);
        if let Some(camera) = self.roster.camera_of(id) {
            camera.replica.counters.bytes += bytes;
        }
        self.outputs.extend(outputs);
    }

    /// The rest of a frame of the past will not come.
    pub fn handle_history_cancelled(&mut self, now: Instant, link: LinkId, number: u64) {
        let outputs = self.history.handle_cancelled(now, &self.roster, (link, number));
        self.outputs.extend(outputs);
    }

    // ---- applications -------------------------------------------------------------------------------------

    /// An application subscribes. Matching cameras come as [`EdgeOutput::Attach`], now and later. `clock`
    /// relates the wall clock to the monotonic clock. It fixes the end of the span now, so that a later
    /// change of the wall clock does not move it.
    ///
    /// Returns until when unknown cameras may come whose past the subscription wants. The subscription does
    /// not end before.
    pub fn handle_subscribe(
        &mut self,
        clock: ClockAnchor,
        id: SubscriptionId,
        asked: SubscriptionSpec,
    ) -> Option<Instant> {
        let chains = asked.present_chains();
        let matching = self.roster.cameras.matching(&asked.cameras);
        for name in &matching {
            self.attach(id, name, chains);
        }
        let is_whole = asked.cameras.as_camera().is_some_and(|camera| matching.contains(&camera));
        let expected = (self.history.any_expected_until(), is_whole);
        let asked = SubscriptionSpec { chains, ..asked };
        let Subscribed { stays, patience } = self.subscriptions.handle_subscribe(&clock, id, asked, expected);
        if stays {
            self.update_demands();
        }
        if stays && !chains.is_none() {
            matching.iter().for_each(|name| self.handle_chain_lost(clock.monotonic, name));
        }
        patience
    }

    /// A subscription is over.
    pub fn handle_unsubscribe(&mut self, id: SubscriptionId) {
        if self.subscriptions.handle_unsubscribe(id) {
            self.update_demands();
        }
    }

    /// Replaces a subscription's contract, at most ten times a second. Of more changes, the last counts.
    pub fn handle_update(&mut self, now: Instant, id: SubscriptionId, contract: Contract) {
        if self.subscriptions.handle_update(id, contract) && self.subscriptions.handle_updates(now) {
            self.update_demands();
        }
    }

    /// Holds a profile for cameras whose contracts name it. The caller bounds the number of profiles, and
    /// removes them with [`EdgeBroker::remove_profile`].
    pub fn add_profile(&mut self, hash: ProfileHash, bytes: Bytes) {
        self.profiles.add(hash, bytes);
    }

    /// Forgets a profile.
    pub fn remove_profile(&mut self, hash: ProfileHash) {
        self.profiles.remove(hash);
    }

    /// Sends an application's result for a frame to the camera.
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
        if self.roster.cameras.get(camera).is_none() {
            return Err(ReplyError::UnknownCamera { camera: camera.clone() });
        }
        // Nothing is heard of one that is silent, so it would not be known whether the result arrives.
        let reached = self.roster.reached(camera).map(|link| link.id);
        let link = reached.ok_or_else(|| ReplyError::NotConnected { camera: camera.clone() })?;
        self.send(link, Message::Reply { frame, application: application.into(), payload });
        Ok(())
    }

    // ---- time ---------------------------------------------------------------------------------------------

    /// The instant of [`EdgeBroker::poll_timeout`] has come, or any other.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Due { outputs, given_up } = self.roster.handle_timeout(now);
        self.outputs.extend(outputs);
        for (link, reason) in given_up {
            self.close(link, reason);
        }
        self.outputs.extend(self.roster.handle_waits(now));
        self.outputs.extend(self.history.handle_timeout(now, &self.roster));
        if self.subscriptions.handle_updates(now) {
            self.update_demands();
        }
        self.outputs.extend(self.shares.handle_timeout(now, |name| standing(self.roster.cameras.get(name)?)));
        if self.subscriptions.handle_ends(now) {
            self.update_demands();
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<EdgeOutput> {
        self.outputs.pop_front()
    }

    /// When [`EdgeBroker::handle_timeout`] is due. `None`: not before something happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due =
            [self.roster.due(), self.history.due(&self.roster), self.shares.due(), self.subscriptions.due()];
        due.into_iter().flatten().min()
    }

    // ---- inside -------------------------------------------------------------------------------------------

    /// A connection says which camera it is.
    fn handle_hello(&mut self, now: Instant, id: LinkId, hello: &Hello) {
        let Some(link) = self.roster.connections.get(id) else { return };
        let identity = link.peer.identity.clone();
        let replaces = match judge(&self.roster, link, hello, &mut self.claims) {
            Judgement::Refused { code, text } => return self.refuse(id, code, text),
            Judgement::EpochTaken { newest } => {
                // It learns that from a frame that no camera ever publishes.
                self.welcome(id, Some(FrameId { epoch: newest, sequence: Sequence(NUMBER_MAX) }));
                return self.close(id, "its epoch is taken");
            }
            Judgement::Accepted { replaces } => replaces,
        };
        let Hello { camera: name, epoch, attempt, anchor, .. } = hello;
        if let Some(holder) = replaces {
            let text = format!("a newer connection of camera {name} has taken over");
            self.refuse(holder, RefuseCode::Replaced, text);
        }
        let (camera, epoch, anchor) = (name.clone(), *epoch, *anchor);
        self.know(name, &identity, (epoch, anchor));
        self.claims.settled(name);
        let session = Session { camera: camera.clone(), epoch, attempt: *attempt, anchor };
        self.roster.handle_taken_in(now, id, session);
        self.shares.join(name);
        let known = self.roster.cameras.get(name);
        self.welcome(id, known.and_then(|known| known.replica.newest()).map(|(newest, _)| newest));
        self.outputs.push_back(EdgeOutput::Started { camera: camera.clone(), link: id, epoch, anchor });
        self.outputs.push_back(EdgeOutput::CameraChanged { camera, up: true, reason: None });
        self.update_demand(name);
        self.outputs.extend(self.history.handle_connected(now, &self.roster));
    }

    fn welcome(&mut self, link: LinkId, newest: Option<FrameId>) {
        let (frame_bytes_max, software) = (self.roster.cameras.frame_bytes_max(), self.software.clone());
        let welcome = Welcome { version: VERSION, newest, frame_bytes_max, software };
        self.send(link, Message::Welcome(welcome));
    }

    fn refuse(&mut self, link: LinkId, code: RefuseCode, text: String) {
        self.send(link, Message::Refuse { code, text: text.clone() });
        self.close(link, &text);
    }

    fn close(&mut self, link: LinkId, reason: &str) {
        self.outputs.push_back(EdgeOutput::Close { link });
        self.forget(link, reason);
    }

    /// Removes a connection that is gone, and disconnects its camera.
    fn forget(&mut self, link: LinkId, reason: &str) {
        let Some(Gone { camera, outputs }) = self.roster.handle_closed(link) else { return };
        self.outputs.extend(outputs);
        self.shares.leave(&camera);
        self.outputs.push_back(EdgeOutput::ViewChanged { camera: camera.clone() });
        self.outputs.push_back(EdgeOutput::CameraChanged { camera, up: false, reason: Some(reason.into()) });
        self.outputs.extend(self.history.handle_closed(link));
    }

    /// A camera is known from now on: subscriptions that match it get its log.
    fn know(&mut self, name: &CameraName, identity: &str, start: (Epoch, ClockAnchor)) {
        if self.roster.cameras.know(name, identity, start) {
            for (subscription, chains) in self.subscriptions.readers(name) {
                self.attach(subscription, name, chains);
            }
        }
    }

    fn attach(&mut self, subscription: SubscriptionId, name: &CameraName, chains: ChainKinds) {
        let camera = self.roster.cameras.get_mut(name);
        self.outputs
            .extend(camera.into_iter().flat_map(|camera| camera.replica.attach(subscription, chains)));
    }

    fn update_demands(&mut self) {
        for name in self.roster.cameras.names(|_, _| true) {
            self.update_demand(&name);
        }
    }

    /// Tells a camera the joint demand of the subscriptions that select it, if it has changed.
    fn update_demand(&mut self, name: &CameraName) {
        let Some(camera) = self.roster.cameras.get_mut(name) else { return };
        camera.replica.want_chains(self.subscriptions.want_chains(name));
        // Also if the demand is unchanged: there may be more contracts than are sent.
        self.outputs.push_back(EdgeOutput::ViewChanged { camera: name.clone() });
        let Some(demand) = camera.report.ask(self.subscriptions.contracts(name)) else { return };
        if let Some(link) = camera.link {
            let is_wanted = !demand.contracts.is_empty();
            self.outputs.push_back(EdgeOutput::Send { link, message: Message::Demand(demand.clone()) });
            self.outputs.extend(self.shares.handle_demand(name, link, is_wanted));
        }
    }

    /// Takes in a camera's message about itself. If it affects contracts, the subscriptions with one hear of
    /// it.
    fn note(&mut self, link: LinkId, note: impl FnOnce(&mut CameraReport) -> Bears) {
        let Some(camera) = self.roster.camera_of(link) else { return };
        if note(&mut camera.report) == Bears::OnContracts
            && let Some(camera) = self.roster.connections.get(link).and_then(|link| link.camera())
        {
            self.outputs.push_back(EdgeOutput::ViewChanged { camera: camera.clone() });
        }
    }

    fn send(&mut self, link: LinkId, message: Message) {
        self.outputs.push_back(EdgeOutput::Send { link, message });
    }

    /// A camera as its view describes it.
    fn seen<'a>(&'a self, name: &'a CameraName, camera: &'a Camera) -> Seen<'a> {
        let link = self.roster.link_of(camera);
        Seen { name, camera, link, subscriptions: &self.subscriptions, shares: &self.shares }
    }
}

/// The state of a camera, if it is connected.
fn standing(camera: &Camera) -> Option<Standing> {
    Some(Standing { link: camera.link?, silent: camera.silent, priority: camera.report.priority() })
}

#[cfg(all(test, not(loom)))]
mod tests;
