//! The camera broker: decides which frame goes to the edge, when, over which connection and in which form.
//!
//! It is made of parts (`docs/decisions/0021-brokers-of-parts.md`). Each owns its state and returns what is to be
//! done; none knows the broker. Where a part needs something of another, the broker lends it as an argument. This
//! file holds the parts, passes on what happened, and carries out what they return.
//!
//! | question | part |
//! | --- | --- |
//! | which frames are published, and how often? | `Published`: `published.rs`, `rate.rs` |
//! | which edge is dialled, and when is a connection given up? | `Connections`: `connection/mod.rs`, `dialler.rs` |
//! | does the camera stay with an edge that welcomes it? | `connection/welcome.rs` |
//! | what is on its way, and does it get through? | `EdgeLink`: `connection/link.rs` |
//! | which frame is sent next, and is the one before it cancelled? | `Live`: `live/mod.rs` |
//! | what may it refer to? | `live/chain.rs` |
//! | which frames does its rung leave out? | `live/frame_skip.rs` |
//! | which frames of a source's own video go as they are? | `live/source_chain.rs` |
//! | what is made of it before it is sent? | `Adapter`: `adapt/mod.rs`; of which rungs, at which cost: `forms.rs`, `rungs.rs` |
//! | what is the policy offered? | `adapt/candidate.rs`, which `Live::candidate` alone makes |
//! | which profile is that by, and how does it come here? | `Profiles`: `adapt/profiles.rs` |
//! | whose contracts is it made for? | `Negotiation`: `negotiation/contracts.rs` |
//! | what does the camera have of a channel that it shares? | `Negotiation`: `negotiation/share.rs` |
//! | what does the edge learn of that? | `Negotiation`: `negotiation/feasibility.rs` |
//! | what does the edge learn of frames that are not sent? | `ledger.rs` |
//! | when is a frame of the past sent, and as what? | `History`: `history/mod.rs`, `codec.rs` |
//! | when is the camera's own log surveyed? | `Surveys`: `surveys.rs` |
//! | how is the camera? | `StatusReport`: `status.rs` |
//! | does its source give frames? | `SourceWatch`: `source.rs` |
//! | which pictures of applications arrive? | `Answers`: `answers.rs` |
//! | who lacks the newest deny list? | `Courier`: `broker/revocations.rs` |

mod adapt;
mod answers;
mod connection;
mod history;
mod ledger;
mod live;
mod negotiation;
mod published;
mod rate;
mod source;
mod status;
mod surveys;
mod types;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use self::adapt::PROFILES_MAX;
use self::adapt::{Adapter, Profiles};
use self::answers::Answers;
use self::connection::{Connections, Identity, Removed};
use self::history::{Effects, History, LiveTraffic};
pub use self::history::{HISTORY_FRAMES_MAX, HISTORY_REQUESTS_MAX, HISTORY_SHARE, HISTORY_SHARE_MIN};
use self::live::{Lent, Live, Present};
use self::negotiation::Negotiation;
use self::published::Published;
use self::source::SourceWatch;
use self::status::StatusReport;
pub use self::surveys::SURVEY_REQUESTS_MAX;
use self::surveys::Surveys;
pub use self::types::{CameraConfig, CameraOutput, News, SourceNews, Transform, Transformed};
use super::revocations::Courier;
use super::{EdgeIndex, LinkId};
use crate::answers::AnswerRefused;
use crate::clock::ClockEstimate;
use crate::contract::Joint;
use crate::frame::{Epoch, FrameId};
use crate::history::{PastAnswer, Survey};
use crate::log::{LogReader, Record};
use crate::profile::{ProfileHash, SizedProfile};
use crate::setting::DeclaredKnobs;
use crate::source::SourceState;
use crate::units::Instant;
use crate::wire::{Demand, DiskStatus, FrameHeader, Message, RefuseCode, Welcome};

/// A camera broker. See the [module](super) for how to drive it.
pub struct CameraBroker {
    /// What is to be done, the oldest first.
    outputs: VecDeque<CameraOutput>,
    published: Published,
    connections: Connections,
    live: Live,
    adapter: Adapter,
    profiles: Profiles,
    negotiation: Negotiation,
    history: History,
    surveys: Surveys,
    status: StatusReport,
    source: SourceWatch,
    courier: Courier,
    answers: Answers,
    /// By which knobs data records may be degraded, if the publisher declares any.
    knobs: Option<Arc<DeclaredKnobs>>,
}

impl CameraBroker {
    /// A broker that sends what is appended to `log` from now on. It dials at the first timeout, which is due at once.
    pub fn new(config: CameraConfig, log: &LogReader, now: Instant) -> Self {
        let CameraConfig { camera, epoch, anchor, software, policy, edges } = config;
        Self {
            outputs: VecDeque::new(),
            published: Published::new(log),
            connections: Connections::new(Identity { camera, anchor, software }, edges, now),
            live: Live::new(epoch, anchor),
            adapter: Adapter::new(policy),
            profiles: Profiles::default(),
            negotiation: Negotiation::default(),
            history: History::new(now),
            surveys: Surveys::new(now),
            status: StatusReport::new(now),
            source: SourceWatch::new(now),
            courier: Courier::default(),
            answers: Answers::new(anchor),
            knobs: None,
        }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// Whether there is a connection on which the edge has welcomed the camera.
    pub fn is_up(&self) -> bool {
        self.connections.active().is_some()
    }

    /// The connection on which the edge has welcomed the camera.
    pub fn link(&self) -> Option<LinkId> {
        self.connections.active().map(|link| link.id)
    }

    /// The edge that has welcomed the camera.
    pub fn edge(&self) -> Option<EdgeIndex> {
        self.connections.active().map(|link| link.edge)
    }

    /// What the applications want; without a connection, nothing.
    pub fn demand(&self) -> Option<&Demand> {
        self.connections.demand()
    }

    /// How the edge's clock relates to ours.
    pub fn clock(&self, now: Instant) -> Option<ClockEstimate> {
        self.connections.active().and_then(|link| link.clock.estimate(now))
    }

    /// Of the frame that a codec is at work on: bytes that frames of its rung need on average in each interval
    /// between published frames, and those that the cheapest rung needs that keeps the floor.
    pub fn expected_bytes(&self) -> Option<(f64, f64)> {
        self.adapter.expected_bytes(self.live.making()?)
    }

    /// What the contracts that frames are made for ask, of the present connection; `None` where frames go as
    /// they are.
    pub fn joint(&self) -> Option<Joint> {
        self.negotiation.joint(self.connections.active()?)
    }

    /// Whether the camera's source gives frames.
    pub fn source_state(&self) -> SourceState {
        self.source.state()
    }

    /// Whether the camera leaves frames out, or sends them seldom, because of what it has of a channel.
    pub fn holds_back(&self, now: Instant) -> bool {
        self.negotiation.holds_back(now, self.connections.active())
    }

    /// The present epoch.
    pub fn epoch(&self) -> Epoch {
        self.live.epoch()
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// A connection to `edge` was made, as [`CameraOutput::Dial`] asked.
    pub fn handle_dialled(&mut self, now: Instant, link: LinkId, edge: EdgeIndex) {
        self.outputs.push_back(self.connections.handle_dialled(now, link, edge, self.live.epoch()));
    }

    /// A connection could not be made.
    pub fn handle_dial_failed(&mut self, _now: Instant, edge: EdgeIndex) {
        self.connections.handle_dial_failed(edge);
    }

    /// A connection is gone.
    pub fn handle_closed(&mut self, now: Instant, link: LinkId) {
        self.forget(now, link);
        self.pump(now);
    }

    /// A message arrived on a connection's control stream.
    pub fn handle_message(&mut self, now: Instant, id: LinkId, message: Message) {
        let is_active = self.connections.active().is_some_and(|active| active.id == id);
        let Some(link) = self.connections.get_mut(id) else { return };
        link.heard = now;
        match message {
            Message::Welcome(welcome) if !link.welcomed => self.handle_welcome(now, id, &welcome),
            Message::Refuse { code, text } => {
                self.connections.handle_refuse(now, id, code);
                self.give_up(now, id, code, text);
            }
            Message::Ping { .. } | Message::Pong { .. } => {
                self.outputs.extend(link.handle_ping(now, message));
            }
            Message::Demand(demand) => {
                if let Some(change) = link.take_demand(demand).filter(|_| is_active) {
                    self.outputs.extend(self.live.handle_demand(now, link, &mut self.adapter, change));
                }
            }
            Message::Report(report) => self.live.handle_report(now, link, &mut self.adapter, report),
            Message::Reply { frame, application, result } => {
                self.outputs.push_back(CameraOutput::Reply { frame, application, result });
            }
            Message::HistoryRequest(request) if link.welcomed => {
                self.outputs.extend(self.history.handle_request(id, request));
            }
            Message::SurveyRequest(request) if link.welcomed => {
                self.outputs.extend(self.surveys.handle_request(now, id, request));
            }
            Message::Refresh { frame } => self.live.handle_refresh(now, id, frame),
            Message::ProfilePart(part) => self.outputs.extend(self.profiles.handle_part(now, &part)),
            Message::Share(share) if is_active => {
                self.negotiation.handle_share(now, share, &mut self.adapter);
            }
            Message::Share(_) => {}
            Message::AnswerAccount(account) => self.outputs.push_back(self.answers.handle_account(account)),
            Message::RevocationVersion { version } => {
                let answer = self.courier.handle_version(id, version);
                self.outputs.extend(answer.map(|message| CameraOutput::Send { link: id, message }));
            }
            Message::RevocationList { signed } => {
                let is_asked = self.courier.handle_list(id);
                self.outputs.extend(is_asked.then_some(CameraOutput::Revocations { link: id, signed }));
            }
            _ => {
                let text = "an edge does not send this message, or not now".into();
                self.give_up(now, id, RefuseCode::Protocol, text);
            }
        }
        self.pump(now);
    }

    /// The log has grown.
    pub fn handle_published(&mut self, now: Instant) {
        while let Some(record) = self.published.next(now, self.live.epoch()) {
            self.take_published(now, record);
        }
    }

    /// The last byte of a frame has left.
    pub fn handle_sent(&mut self, now: Instant, link: LinkId, frame: FrameId) {
        let Some(known) = self.connections.get_mut(link) else { return };
        known.sent(frame);
        self.adapter.handle_left(now, frame);
        self.pump(now);
    }

    /// Of the payload of a frame that is being sent, so many bytes have not left: cancelled now, they never will.
    /// To be told whenever bytes have left, though not more often than every few milliseconds; until then none
    /// has. Decides whether a frame that will be late is cancelled for a newer one.
    pub fn handle_unsent(&mut self, now: Instant, link: LinkId, frame: FrameId, bytes: u64) {
        let Some(known) = self.connections.get_mut(link) else { return };
        known.unsent(frame, bytes);
        self.pump(now);
    }

    /// So many bytes may be on their way at most, as long as the path of this connection was never full
    /// ([`Bound::opening`](crate::window::Bound::opening)); `None` once it was. To be told when a connection is
    /// there, and before each message of the edge where it is another. A transport that cannot tell says nothing.
    pub fn handle_window(&mut self, link: LinkId, window: Option<u64>) {
        if let Some(known) = self.connections.get_mut(link) {
            known.window = window;
        }
    }

    /// A packet of this connection carries so many bytes of a frame and its header. A transport that cannot tell says nothing.
    pub fn handle_packet_bytes(&mut self, link: LinkId, bytes: Option<u32>) {
        if let Some(known) = self.connections.get_mut(link) {
            known.packet_bytes = bytes;
        }
    }

    /// The intake has begun a later epoch, as [`CameraOutput::RaiseEpoch`] asked.
    pub fn handle_epoch(&mut self, now: Instant, epoch: Epoch) {
        self.connections.handle_epoch(now, self.live.epoch());
        self.live.handle_epoch(epoch);
        // On every connection the edge was told the old epoch, also where its answer is still to come.
        for link in self.connections.all() {
            self.close(now, link);
        }
    }

    /// A codec has done what [`CameraOutput::Transform`] asked, or has not.
    pub fn handle_transformed(&mut self, now: Instant, frame: FrameId, transformed: Transformed) {
        let Some(made) = self.live.take_made(frame) else { return };
        let (live, lent) = self.lend(now);
        let output = live.handle_transformed(lent, made, transformed);
        self.outputs.extend(output);
        self.pump(now);
    }

    /// The publisher declares by which knobs the data records of its stream may be degraded, and whoever drives the broker carries them out. To be
    /// told before the first record.
    pub fn set_knobs(&mut self, knobs: DeclaredKnobs) {
        let knobs = Arc::new(knobs);
        self.history.set_knobs(Arc::clone(&knobs));
        self.knobs = Some(knobs);
    }

    /// Sets the part of the time for which frames of the past may use the link beside live ones, above 0 and at
    /// most 1. Default [`HISTORY_SHARE`]. More of it means that the past comes sooner and that live frames are
    /// smaller or fewer meanwhile.
    pub fn set_history_share(&mut self, share: f64) {
        self.history.set_share(share);
    }

    /// What the log holds of the past that [`CameraOutput::ReadHistory`] asked for.
    pub fn handle_history(&mut self, now: Instant, ticket: u64, answer: PastAnswer) {
        let live = live_traffic(&self.live, &self.connections);
        let effects = self.history.handle_answer(ticket, answer, live);
        self.go_on_with_history(now, effects);
    }

    /// What the log holds of the span that [`CameraOutput::Survey`] asked for; `None` if the log cannot be read.
    pub fn handle_surveyed(&mut self, now: Instant, survey: Option<Survey>) {
        self.outputs.extend(self.surveys.handle_surveyed(now, survey));
        self.pump(now);
    }

    /// A codec has done what [`CameraOutput::TransformPast`] asked, or has not.
    pub fn handle_past_transformed(&mut self, now: Instant, ticket: u64, transformed: Transformed) {
        let live = live_traffic(&self.live, &self.connections);
        let Some(effects) = self.history.handle_transformed(now, ticket, transformed, live) else { return };
        self.go_on_with_history(now, effects);
        // Whatever came of it, the codec is free.
        self.pump(now);
    }

    /// The publisher takes answers from now on: pictures that applications make of its frames. They leave the edge no later than
    /// so long after the frame's capture. `None`, the default: it takes none.
    pub fn set_answers(&mut self, bound: Option<Duration>) {
        if self.answers.set_bound(bound) {
            let link = self.link();
            self.outputs.extend(link.and_then(|link| self.answers.request(link)));
        }
    }

    /// The header of an answer is here. After `Ok`, its payload may be received, until [`CameraBroker::handle_answer_complete`]
    /// or [`CameraBroker::handle_answer_cancelled`].
    pub fn handle_answer_header(
        &mut self,
        now: Instant,
        link: LinkId,
        header: Box<FrameHeader>,
    ) -> Result<(), AnswerRefused> {
        let epoch = (self.link() == Some(link)).then(|| self.live.epoch());
        let (taken, refused) = self.answers.handle_header(now, (link, epoch), header);
        self.outputs.extend(refused);
        taken
    }

    /// All of the payload of an answer is here.
    pub fn handle_answer_complete(&mut self, now: Instant, link: LinkId, frame: FrameId, payload: Bytes) {
        let clock = self.clock(now);
        self.outputs.extend(self.answers.handle_complete(now, (link, frame), payload, clock));
    }

    /// The rest of the payload of an answer will not come.
    pub fn handle_answer_cancelled(&mut self, link: LinkId, frame: FrameId) {
        self.answers.handle_cancelled(link, frame);
    }

    /// The last byte of a frame of the past has left.
    pub fn handle_history_sent(&mut self, now: Instant, link: LinkId, request: u64) {
        if self.history.handle_sent(now, (link, request), live_traffic(&self.live, &self.connections)) {
            self.pump(now);
        }
    }

    /// A profile has been read, as [`CameraOutput::ReadProfile`] asked; `None` if it is none, or not what its name says.
    pub fn handle_profile(&mut self, now: Instant, hash: ProfileHash, profile: Option<SizedProfile>) {
        self.profiles.handle_profile(hash, profile);
        self.adapter.handle_profile();
        self.pump(now);
    }

    /// Numbers that only the intake knows, for the edge's people.
    pub fn handle_intake(&mut self, refused: u64, log_bytes: u64) {
        self.status.handle_intake(refused, log_bytes);
    }

    /// How the log on disk is doing, for the edge's people; `None` if there is none.
    pub fn handle_disk(&mut self, disk: Option<DiskStatus>) {
        self.status.handle_disk(disk);
    }

    /// Something was heard of the source of the camera's frames. That it gives frames, they tell themselves.
    pub fn handle_source(&mut self, now: Instant, news: SourceNews) {
        self.source.handle_news(now, news);
        self.pump(now);
    }

    /// This deny list is held from now on: edges that lack it are told so.
    pub fn handle_revocations(&mut self, version: u64, signed: Bytes) {
        let said = self.courier.handle_held(version, signed);
        self.outputs.extend(said.into_iter().map(|(link, message)| CameraOutput::Send { link, message }));
    }

    /// The camera broker ends soon: what the edge should know is said now.
    pub fn handle_leaving(&mut self, now: Instant) {
        self.source.handle_leaving();
        self.pump(now);
    }

    /// The instant of [`CameraBroker::poll_timeout`] has come, or any other.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.source.handle_timeout(now);
        self.outputs.extend(self.connections.dial(now));
        for link in self.connections.unanswered(now) {
            self.close(now, link);
        }
        // An outage begins with a ping.
        if let Some(link) = self.connections.active_mut() {
            self.outputs.extend(self.live.handle_timeout(now, link, &mut self.adapter));
        }
        self.outputs.extend(self.connections.ping(now));
        if self.status.take_due(now)
            && let Some(link) = self.connections.active()
        {
            self.outputs.extend(self.status.tell(link.id, self.published.frames_per_second(now)));
            self.outputs.extend(self.negotiation.tell(now, link, &self.adapter));
        }
        self.pump(now);
    }

    // ---- what is to be done -------------------------------------------------------------------------------

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<CameraOutput> {
        self.outputs.pop_front()
    }

    /// When [`CameraBroker::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Instant {
        let link = self.connections.active();
        let due = [
            self.history.due(live_traffic(&self.live, &self.connections)),
            link.and_then(|link| self.live.due(link)),
            link.and_then(|link| self.negotiation.due(link, &self.adapter)),
            link.and_then(|_| self.profiles.due()),
            self.source.due(link.is_some()),
            self.surveys.due(),
        ];
        let soonest = self.connections.due().min(self.status.due());
        due.into_iter().flatten().fold(soonest, Instant::min)
    }

    // ---- inside -------------------------------------------------------------------------------------------

    /// The edge takes the camera in.
    fn handle_welcome(&mut self, now: Instant, link: LinkId, welcome: &Welcome) {
        let epoch = self.live.epoch();
        match self.connections.handle_welcome(now, link, welcome, self.published.next_frame(epoch)) {
            Ok(newest) => self.live.handle_known(newest),
            Err(left) => {
                self.outputs.push_back(*left);
                return self.close(now, link);
            }
        }
        for older in self.connections.older_than(link) {
            self.close(now, older);
        }
        self.negotiation.handle_link_changed(&mut self.adapter);
        self.status.handle_welcomed(now);
        self.source.handle_welcomed();
        self.outputs.extend(self.connections.handle_accepted(now, link, welcome, epoch));
        self.outputs.extend(self.answers.request(link));
        let greeting = self.courier.handle_taken_in(link);
        self.outputs.extend(greeting.map(|message| CameraOutput::Send { link, message }));
    }

    /// Carries out what came of an event that concerns the past.
    fn go_on_with_history(&mut self, now: Instant, Effects { outputs, goes_on }: Effects) {
        self.outputs.extend(outputs);
        if goes_on {
            self.pump(now);
        }
    }

    /// The live frames, and what they are lent of the other parts.
    fn lend(&mut self, now: Instant) -> (&mut Live, Lent<'_>) {
        let interval = self.published.interval(now);
        let present = Present { now, interval, profiles: &self.profiles, knobs: self.knobs.as_deref() };
        let (link, contracts) = (self.connections.active_mut(), &mut self.negotiation.contracts);
        (&mut self.live, Lent { present, link, adapter: &mut self.adapter, contracts })
    }

    /// A frame was published.
    fn take_published(&mut self, now: Instant, record: Record) {
        let (link, meta, bytes) = (self.connections.active(), &record.frame.meta, record.frame.payload.len());
        let rate = self.published.frames_per_second(now);
        self.status.handle_published(meta, bytes);
        self.source.handle_published(now);
        let reason = self.live.reason_to_wait(now, link, meta);
        // Frames of a source's own video that do not fit are made smaller.
        let is_video = meta.encoding.is_chained();
        let bytes = if is_video { self.live.source_bytes() as usize } else { bytes };
        if self.negotiation.leaves_out(now, link, bytes) && !is_video {
            self.live.skip(meta.id, reason);
            self.outputs.extend(self.negotiation.tell_claim(now, link, &self.adapter, rate));
            return;
        }
        self.live.handle_published(now, record, reason, link.map(|link| link.id));
        self.pump(now);
    }

    /// Does what the parts may have to do after any event: asks for the profile that is wanted and not here,
    /// sends the waiting frame or has it made ready, sends one of the past, and tells the edge what has changed.
    fn pump(&mut self, now: Instant) {
        let link = self.connections.active();
        let wanted =
            link.and_then(|link| Some((link.id, self.negotiation.joint(link)?, &*link.demand.contracts)));
        self.outputs.extend(self.profiles.fetch(now, wanted));
        let (live, lent) = self.lend(now);
        let outputs = live.pump(lent);
        self.outputs.extend(outputs);
        self.outputs.extend(self.history.pump(now, live_traffic(&self.live, &self.connections)));
        self.outputs.extend(self.surveys.pump(now));
        let (link, rate) = (self.connections.active(), self.published.frames_per_second(now));
        self.outputs.extend(link.and_then(|link| self.source.tell(now, link.id)));
        self.outputs.extend(self.negotiation.tell_news(now, link, &self.adapter));
        self.outputs.extend(self.negotiation.tell_claim(now, link, &self.adapter, rate));
    }

    /// Closes a connection for a reason that people should know.
    fn give_up(&mut self, now: Instant, link: LinkId, code: RefuseCode, text: String) {
        self.outputs.push_back(CameraOutput::Refused { code, text });
        self.close(now, link);
    }

    /// Closes a connection.
    fn close(&mut self, now: Instant, link: LinkId) {
        self.outputs.push_back(CameraOutput::Close { link });
        self.forget(now, link);
    }

    /// A connection is gone, and what was on its way there with it.
    fn forget(&mut self, now: Instant, link: LinkId) {
        self.courier.handle_closed(link);
        self.answers.handle_closed(link);
        let Some(Removed { in_flight, was_active }) = self.connections.remove(link) else { return };
        self.live.handle_closed(now, &mut self.adapter, in_flight);
        self.outputs.extend(self.history.handle_closed(link));
        self.surveys.handle_closed(link);
        if was_active {
            self.negotiation.handle_link_changed(&mut self.adapter);
            self.outputs.push_back(CameraOutput::LinkChanged { up: false });
        }
    }
}

/// What goes on beside frames of the past.
fn live_traffic<'a>(live: &Live, connections: &'a Connections) -> LiveTraffic<'a> {
    let (is_made, waits) = (live.making().is_some(), live.is_waiting());
    LiveTraffic { connections, epoch: live.epoch(), is_made, waits, unmodified: live.unmodified() }
}

#[cfg(test)]
mod tests;
