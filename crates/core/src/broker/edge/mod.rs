//! The edge broker: takes cameras in, keeps a replica log of each, and asks of each what applications want.
//!
//! | question | where |
//! | --- | --- |
//! | who may be which camera, and who takes over? | `sessions.rs` |
//! | what is a camera asked to send? | `EdgeBroker::update_demand` |
//! | what becomes of a frame that arrives? | `frames.rs` |
//! | what becomes of one that needs others to be decoded? | `decoding.rs` |
//! | who gets it as it came? | `chains.rs` |
//! | how is a frame of the past fetched? | `history.rs` |
//! | what does a camera have of a channel that it shares with others? | `shares.rs` |
//! | what bears on contracts, and where do cameras get profiles from? | `view.rs` |
//! | how does an application get frames? | [`crate::subscription`], from the logs handed out by [`EdgeOutput::Attach`] |

mod account;
mod chains;
mod decoding;
mod frames;
mod history;
mod sessions;
mod shares;
mod types;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

pub use self::decoding::{DECODING_BYTES_MAX, DECODING_FRAMES_MAX, Decoded, REFRESH_INTERVAL};
pub use self::frames::{ARRIVING_BYTES_MAX, ARRIVING_FRAMES_MAX, HELD_MAX};
use self::history::Fetch;
use self::history::Waiting;
pub use self::history::{CAMERA_RETURN_MAX, HISTORY_QUESTIONS_MAX, HISTORY_TIME_MAX};
use self::sessions::{Camera, HELLO_TIME_MAX, Link};
use self::shares::{Shares, Standing, Whole};
pub use self::types::{
    CameraCounters, CameraInfo, CaptureClock, ChannelShare, EdgeConfig, EdgeOutput, Forgotten, FrameRefused,
    Peer, ReplyError, SubscriptionId, SubscriptionSpec,
};
use self::view::UPDATE_INTERVAL;
pub use self::view::{CameraView, NamedContract};
use super::epochs::Claims;
use super::{LinkId, PING_INTERVAL, SILENCE_MAX};
use crate::clock::Exchange;
use crate::contract::Contract;
use crate::frame::{ChainKinds, Epoch, FrameId};
use crate::history::FetchedFrames;
use crate::log::LogReader;
use crate::name::{CameraName, CameraPattern};
use crate::profile::ProfileHash;
use crate::units::{ClockAnchor, Instant};
use crate::wire::{CONTRACTS_MAX, Demand, Message, REPLY_BYTES_MAX, RefuseCode};

/// After this long without a word a connection is given up.
const LINK_SILENCE_MAX: Duration = Duration::from_secs(10);
/// Connections that have not said which camera they are; one more is closed. Those that have said so are at most as many
/// as there are cameras.
pub const NAMELESS_LINKS_MAX: usize = 256;
/// The part of [`NAMELESS_LINKS_MAX`] that one identity may have. A camera broker dials at most eight times at once.
pub const NAMELESS_LINKS_OF_IDENTITY_MAX: usize = 16;

struct SubscriptionEntry {
    pattern: CameraPattern,
    contract: Contract,
    /// Chains that its application decodes itself.
    chains: ChainKinds,
    /// Its application's name, for people.
    application: String,
    /// What it asks for as soon as that may change again.
    pending: Option<Contract>,
    /// When it last changed.
    updated: Instant,
    /// When nothing that is published can be wanted any more.
    ends: Option<Instant>,
    /// It wants what is published from now on, and not only to be told of cameras whose past it reads.
    is_live: bool,
    /// Until when it is to be told of those also after its end.
    patience: Option<Instant>,
}

impl SubscriptionEntry {
    /// Whether it asks something of a camera's present.
    fn wants(&self, camera: &CameraName) -> bool {
        self.is_live && self.pattern.matches(camera)
    }

    /// When a change that waits takes effect.
    fn update_due(&self) -> Option<Instant> {
        self.pending.as_ref().map(|_| self.updated + UPDATE_INTERVAL)
    }
}

/// An edge broker. See the [module](super) for how to drive it.
pub struct EdgeBroker {
    config: EdgeConfig,
    links: BTreeMap<LinkId, Link>,
    cameras: BTreeMap<CameraName, Camera>,
    subscriptions: BTreeMap<SubscriptionId, SubscriptionEntry>,
    outputs: VecDeque<EdgeOutput>,
    /// When it began to listen to cameras.
    started: Option<Instant>,
    /// Questions for the past that cameras have not answered yet.
    fetches: BTreeMap<u64, Fetch>,
    /// Questions to cameras that are not connected and may come.
    waiting: BTreeMap<u64, Waiting>,
    last_question: u64,
    last_fetch: u64,
    fetched: FetchedFrames,
    profiles: BTreeMap<ProfileHash, Bytes>,
    shares: Shares,
    /// How far cameras are believed.
    claims: Claims,
}

impl EdgeBroker {
    /// A broker without cameras.
    pub fn new(config: EdgeConfig) -> Self {
        Self {
            fetched: FetchedFrames::new(config.history_bytes_max),
            started: None,
            fetches: BTreeMap::new(),
            waiting: BTreeMap::new(),
            last_question: 0,
            last_fetch: 0,
            shares: Shares::new(config.channels.clone()),
            config,
            links: BTreeMap::new(),
            cameras: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            outputs: VecDeque::new(),
            profiles: BTreeMap::new(),
            claims: Claims::default(),
        }
    }

    /// It listens to cameras from now on: those that knew it before are on their way, and questions to them wait for
    /// [`CAMERA_RETURN_MAX`]. Without this, no camera is waited for that was not here before.
    pub fn handle_started(&mut self, now: Instant) {
        self.started = Some(now);
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

    /// What the frames of all cameras may take in memory together, in bytes.
    pub fn log_bytes_max(&self) -> u64 {
        self.config.log_bytes_max
    }

    /// A camera's log, with the epoch and the anchor of the start whose frames come now.
    pub fn log(&self, camera: &CameraName) -> Option<(LogReader, Epoch, ClockAnchor)> {
        let camera = self.cameras.get(camera)?;
        let (epoch, anchor) = camera.newest_start;
        Some((camera.log.reader(), epoch, anchor))
    }

    /// How capture times of a camera map to instants of our clock.
    pub fn capture_clock(&self, now: Instant, camera: &CameraName) -> Option<CaptureClock> {
        let link = self.links.get(&self.cameras.get(camera)?.link?)?;
        let session = link.session.as_ref()?;
        Some(CaptureClock::new(now, session.epoch, session.anchor, link.clock.estimate(now)?))
    }

    // ---- connections --------------------------------------------------------------------------------------

    /// A camera broker has connected and proven who it is; it has not said which camera it is. One that would be more
    /// than [`NAMELESS_LINKS_MAX`] of the kind, or [`NAMELESS_LINKS_OF_IDENTITY_MAX`] of its identity, is closed.
    pub fn handle_connected(&mut self, now: Instant, link: LinkId, peer: Peer) {
        let nameless = || self.links.values().filter(|link| link.session.is_none());
        let of_identity = nameless().filter(|link| link.peer.identity == peer.identity).count();
        if of_identity >= NAMELESS_LINKS_OF_IDENTITY_MAX || nameless().count() >= NAMELESS_LINKS_MAX {
            self.outputs.push_back(EdgeOutput::Close { link });
            return;
        }
        self.links.insert(link, Link::new(now, peer));
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
            Message::Abilities(abilities) => link.abilities = Some(abilities),
            Message::Status(status) => {
                self.note_silence_about_abilities(id);
                if let Some(camera) = self.camera_of(id) {
                    camera.status = status;
                    self.view_changed_of(id);
                }
            }
            Message::DiskStatus(disk) => {
                if let Some(camera) = self.camera_of(id) {
                    camera.disk = Some(disk);
                }
            }
            Message::HistoryEnd(end) => self.history_end(now, id, end),
            Message::Outlook(outlook) => self.note_outlook(now, id, outlook),
            Message::Settled(settled) => self.note_settled(now, id, &settled),
            Message::Claim(claim) => {
                if let Some(name) = self.present_camera(id) {
                    self.shares.handle_claim(now, &name, claim);
                }
            }
            Message::ProfileRequest(request) => self.send_profile(id, request),
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

    // ---- applications -------------------------------------------------------------------------------------

    /// An application subscribes. Cameras that match come as [`EdgeOutput::Attach`], now and later. `clock` is the wall
    /// clock and the monotonic clock of this moment: when the span ends is settled here, and setting the wall clock
    /// later moves it no more.
    ///
    /// Returns until when cameras may come that are not known yet and whose past it wants: until then it is not over.
    pub fn handle_subscribe(
        &mut self,
        clock: ClockAnchor,
        id: SubscriptionId,
        asked: SubscriptionSpec,
    ) -> Option<Instant> {
        let SubscriptionSpec { cameras: pattern, contract, span, chains } = asked;
        let chains = if span.begin.is_none() { chains } else { ChainKinds::NONE };
        let matching: Vec<CameraName> =
            self.cameras.keys().filter(|name| pattern.matches(name)).cloned().collect();
        for name in &matching {
            let Some(camera) = self.cameras.get(name) else { continue };
            let (camera, log) = (name.clone(), camera.log.reader());
            self.outputs.push_back(EdgeOutput::Attach { subscription: id, camera, log });
            self.attach_chains(id, name, chains);
        }
        let is_whole = pattern.as_camera().is_some_and(|camera| matching.contains(&camera));
        let expected = self.started.map(|started| started + CAMERA_RETURN_MAX);
        let patience = expected.filter(|until| span.begin.is_some() && !is_whole && clock.monotonic < *until);
        let is_live = span.is_live(clock.wall);
        if is_live || patience.is_some() {
            let ends = if is_live { span.ends_at(&clock) } else { patience };
            let (application, updated) = (String::new(), Instant::ZERO);
            let entry = SubscriptionEntry {
                pattern,
                contract,
                chains,
                application,
                pending: None,
                updated,
                ends,
                is_live,
                patience,
            };
            self.subscriptions.insert(id, entry);
            self.update_all_demands();
            if !chains.is_none() {
                matching.iter().for_each(|name| self.join_chains(clock.monotonic, name));
            }
        }
        patience
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
        // Nothing is heard of one that is silent, so it would not be known whether the result arrives.
        let link = known.link.filter(|_| !known.silent);
        let link = link.ok_or_else(|| ReplyError::NotConnected { camera: camera.clone() })?;
        self.send(link, Message::Reply { frame, application: application.into(), payload });
        Ok(())
    }

    // ---- time ---------------------------------------------------------------------------------------------

    /// The instant of [`EdgeBroker::poll_timeout`] has come, or any other.
    pub fn handle_timeout(&mut self, now: Instant) {
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
                self.outputs.push_back(EdgeOutput::ViewChanged { camera: name.clone() });
            }
        }
        self.take_held(now);
        self.ask_to_join_all(now);
        self.expire_history(now);
        self.put_waiting(now);
        self.update_contracts(now);
        self.outputs.extend(self.shares.handle_timeout(now, |name| standing(self.cameras.get(name)?)));
        let mut ended = false;
        self.subscriptions.retain(|_, subscription| {
            if subscription.ends.is_none_or(|ends| now < ends) {
                return true;
            }
            ended = true;
            (subscription.ends, subscription.is_live) = (subscription.patience, false);
            subscription.ends.is_some_and(|ends| now < ends)
        });
        if ended {
            self.update_all_demands();
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<EdgeOutput> {
        self.outputs.pop_front()
    }

    /// When [`EdgeBroker::handle_timeout`] is due; `None`: not before something happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let links = self
            .links
            .values()
            .map(|link| if link.session.is_some() { link.ping_due } else { link.opened + HELLO_TIME_MAX });
        let links = links.chain(self.links.values().filter_map(|link| link.held_until));
        let links = links.chain(self.fetches.values().map(|fetch| fetch.due));
        let links = links.chain(self.waiting_due());
        let links = links.chain(self.cameras.values().filter_map(Camera::join_due));
        let subscriptions = self.subscriptions.values();
        let updates = subscriptions.clone().filter_map(SubscriptionEntry::update_due);
        let links = links.chain(self.shares.due());
        links.chain(subscriptions.filter_map(|subscription| subscription.ends)).chain(updates).min()
    }

    // ---- inside -------------------------------------------------------------------------------------------

    fn update_all_demands(&mut self) {
        let names: Vec<CameraName> = self.cameras.keys().cloned().collect();
        for name in names {
            self.update_demand(&name);
        }
    }

    /// Tells a camera what the subscriptions that select it want together, if that has changed.
    fn update_demand(&mut self, name: &CameraName) {
        self.update_chains(name);
        let mut contracts: Vec<Contract> = self
            .subscriptions
            .values()
            .filter(|subscription| subscription.wants(name))
            .map(|subscription| subscription.contract.clone())
            .collect();
        contracts.sort_by_key(|contract| std::cmp::Reverse(contract.priority));
        contracts.truncate(CONTRACTS_MAX);
        let Some(camera) = self.cameras.get_mut(name) else { return };
        // Also where the demand stays as it is: more than are sent may be wanted.
        self.outputs.push_back(EdgeOutput::ViewChanged { camera: name.clone() });
        if camera.demand.contracts == contracts {
            return;
        }
        camera.demand = Demand { revision: camera.demand.revision + 1, contracts };
        camera.infeasible_since = None;
        camera.settled.clear();
        if let Some(link) = camera.link {
            let is_wanted = !camera.demand.contracts.is_empty();
            let message = Message::Demand(camera.demand.clone());
            self.send(link, message);
            self.outputs.extend(self.shares.handle_demand(name, link, is_wanted));
        }
    }

    /// The name of the camera whose present connection this is.
    fn present_camera(&self, link: LinkId) -> Option<CameraName> {
        let name = &self.session(link)?.camera;
        (self.cameras.get(name)?.link == Some(link)).then(|| name.clone())
    }

    /// A frame of a camera is whole, which measures the channel that it is on.
    fn note_whole(&mut self, link: LinkId, whole: &Whole) {
        let name = self.session(link).map(|session| session.camera.clone());
        let Some(name) = name.filter(|name| self.shares.has(name)) else { return };
        self.shares.handle_whole(&name, whole);
    }

    fn send(&mut self, link: LinkId, message: Message) {
        self.outputs.push_back(EdgeOutput::Send { link, message });
    }

    fn info(&self, name: &CameraName, camera: &Camera, now: Instant) -> CameraInfo {
        let reader = camera.log.reader();
        let link = camera.link.and_then(|link| self.links.get(&link));
        CameraInfo {
            camera: name.clone(),
            connected: link.is_some() && !camera.silent,
            identity: camera.identity.clone(),
            status: camera.status,
            disk: camera.disk.clone(),
            outlook: camera.outlook,
            counters: camera.counters,
            newest: camera.log.last(),
            oldest: reader.get(reader.held().start).map(|record| record.frame.meta.captured),
            log_bytes: camera.log.bytes(),
            clock: link.and_then(|link| link.clock.estimate(now)),
            subscriptions: self.subscriptions.values().filter(|entry| entry.wants(name)).count(),
            share: self.shares.share_of(name),
        }
    }
}

/// How a camera is, where it is connected.
fn standing(camera: &Camera) -> Option<Standing> {
    let priority = camera.demand.contracts.first().map_or(0, |first| first.priority);
    Some(Standing { link: camera.link?, silent: camera.silent, priority })
}

#[cfg(all(test, not(loom)))]
mod chains_tests;
#[cfg(all(test, not(loom)))]
mod decoding_tests;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod thief_tests;
