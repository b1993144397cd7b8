//! The camera broker: decides which frame goes to the edge, when, over which connection and in which form.
//!
//! The broker consists of parts (`docs/decisions/0021-brokers-of-parts.md`). Each part owns its state and
//! returns outputs; no part knows the broker. If a part needs something of another part, the broker lends
//! it as an argument. This file holds the parts, passes events to them, and collects their outputs.
//!
//! | question | part |
//! | --- | --- |
//! | which frames are published, and how often? | `Published`: `published.rs`, `rate.rs` |
//! | which edge is dialled, and when is a connection given up? | `Connections`: `connection/mod.rs`, `dialler.rs` |
//! | does the camera stay with an edge that welcomes it? | `connection/welcome.rs` |
//! | which frames are on their way, and do they get through? | `EdgeLink`: `connection/link.rs` |
//! | which frame is sent next, and is the frame before it cancelled? | `Live`: `live/mod.rs` |
//! | which frame may the next one refer to? | `live/chain.rs` |
//! | which frames does a rung with frame skip leave out? | `live/frame_skip.rs` |
//! | which frames of a source's own video go as they are? | `live/source_chain.rs` |
//! | how is a frame encoded before it is sent? | `Adapter`: `adapt/mod.rs`; the rungs and their costs: `forms.rs`, `rungs.rs` |
//! | what is the policy offered? | `adapt/candidate.rs`, built only by `Live::candidate` |
//! | which profile applies, and how does the camera get it? | `Profiles`: `adapt/profiles.rs` |
//! | which contracts does the camera serve? | `Negotiation`: `negotiation/contracts.rs` |
//! | how much does the camera use of a shared channel? | `Negotiation`: `negotiation/share.rs` |
//! | what does the edge learn about the contracts? | `Negotiation`: `negotiation/feasibility.rs` |
//! | what does the edge learn about frames that are not sent? | `ledger.rs` |
//! | when is a frame of the past sent, and at which rung? | `History`: `history/mod.rs`, `codec.rs` |
//! | when is the camera's own log surveyed? | `Surveys`: `surveys.rs` |
//! | what is the camera's status? | `StatusReport`: `status.rs` |
//! | does its source give frames? | `SourceWatch`: `source.rs` |
//! | which answers of applications arrive? | `Answers`: `answers.rs` |
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

/// Behind an answer of this many bytes or more, reports of the edge may be late.
const HOLDING_BYTES_MIN: u32 = 4 << 10;

/// A camera broker. See the [module](super) for how to drive it.
pub struct CameraBroker {
    /// What the driver must do, oldest first.
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
    /// The knobs by which data records may be degraded, if the publisher declares any.
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

    /// The demand of the applications. `None` if there is none, or no connection on which the edge has welcomed the camera.
    pub fn demand(&self) -> Option<&Demand> {
        self.connections.demand()
    }

    /// How the edge's clock relates to the camera's clock.
    pub fn clock(&self, now: Instant) -> Option<ClockEstimate> {
        self.connections.active().and_then(|link| link.clock.estimate(now))
    }

    /// For the frame in the codec: the mean bytes that its rung needs in each interval between
    /// published frames, and the mean bytes of the cheapest rung that keeps the floor.
    pub fn expected_bytes(&self) -> Option<(f64, f64)> {
        self.adapter.expected_bytes(self.live.making()?)
    }

    /// What the served contracts ask together on the present connection. `None` if frames go unchanged.
    pub fn joint(&self) -> Option<Joint> {
        self.negotiation.joint(self.connections.active()?)
    }

    /// The state of the camera's source.
    pub fn source_state(&self) -> SourceState {
        self.source.state()
    }

    /// Whether the camera leaves frames out, or sends them rarely, because of its share of a channel.
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
                if let Some(change) = link.take_demand(now, demand).filter(|_| is_active) {
                    self.outputs.extend(self.live.handle_demand(now, link, &mut self.adapter, change));
                }
            }
            Message::Rest => link.handle_rest(),
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
                let text = "an edge does not send this message, or not at this point".into();
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

    /// `bytes` of the payload of a frame that is being sent have not left yet. If the frame is cancelled now, they
    /// never will. The driver calls this whenever bytes have left, but not more often than every few milliseconds.
    /// Before the first call, no byte has left. Decides whether a frame that will be late is cancelled for a newer one.
    pub fn handle_unsent(&mut self, now: Instant, link: LinkId, frame: FrameId, bytes: u64) {
        let Some(known) = self.connections.get_mut(link) else { return };
        known.unsent(frame, bytes);
        self.pump(now);
    }

    /// Sets the most bytes that may be on their way, while the path of this connection was never full
    /// ([`Bound::opening`](crate::window::Bound::opening)). `None` once it was. The driver calls this when a connection is made,
    /// and before each message of the edge if the value has changed. A transport that does not know the value does not call this.
    pub fn handle_window(&mut self, link: LinkId, window: Option<u64>) {
        if let Some(known) = self.connections.get_mut(link) {
            known.window = window;
        }
    }

    /// Sets how many bytes of a frame and its header a packet of this connection
    /// carries. A transport that does not know the value does not call this.
    pub fn handle_packet_bytes(&mut self, link: LinkId, bytes: Option<u32>) {
        if let Some(known) = self.connections.get_mut(link) {
            known.packet_bytes = bytes;
        }
    }

    /// The intake has begun a later epoch, as [`CameraOutput::RaiseEpoch`] asked.
    pub fn handle_epoch(&mut self, now: Instant, epoch: Epoch) {
        self.connections.handle_epoch(now, self.live.epoch());
        self.live.handle_epoch(epoch);
        // Every connection was opened with the old epoch, even if the edge has not answered yet.
        for link in self.connections.all() {
            self.close(now, link);
        }
    }

    /// A codec has finished [`CameraOutput::Transform`], or has failed.
    pub fn handle_transformed(&mut self, now: Instant, frame: FrameId, transformed: Transformed) {
        let Some(made) = self.live.take_made(frame) else { return };
        let (live, lent) = self.lend(now);
        let output = live.handle_transformed(lent, made, transformed);
        self.outputs.extend(output);
        self.pump(now);
    }

    /// Sets the knobs by which the data records of the stream may be degraded, as the publisher
    /// declares them. The driver applies them. Must be called before the first record.
    pub fn set_knobs(&mut self, knobs: DeclaredKnobs) {
        let knobs = Arc::new(knobs);
        self.history.set_knobs(Arc::clone(&knobs));
        self.knobs = Some(knobs);
    }

    /// Sets the share of the time for which frames of the past may use the link beside live ones, above 0 and at most 1.
    /// Default [`HISTORY_SHARE`]. With a larger share, the past arrives sooner, and live frames are smaller or fewer meanwhile.
    pub fn set_history_share(&mut self, share: f64) {
        self.history.set_share(share);
    }

    /// The answer of the log to [`CameraOutput::ReadHistory`].
    pub fn handle_history(&mut self, now: Instant, ticket: u64, answer: PastAnswer) {
        let live = live_traffic(&self.live, &self.connections);
        let effects = self.history.handle_answer(ticket, answer, live);
        self.go_on_with_history(now, effects);
    }

    /// The result of [`CameraOutput::Survey`]; `None` if the log cannot be read.
    pub fn handle_surveyed(&mut self, now: Instant, survey: Option<Survey>) {
        self.outputs.extend(self.surveys.handle_surveyed(now, survey));
        self.pump(now);
    }

    /// A codec has finished [`CameraOutput::TransformPast`], or has failed.
    pub fn handle_past_transformed(&mut self, now: Instant, ticket: u64, transformed: Transformed) {
        let live = live_traffic(&self.live, &self.connections);
        let Some(effects) = self.history.handle_transformed(now, ticket, transformed, live) else { return };
        self.go_on_with_history(now, effects);
        // The codec is free now, whatever the result.
        self.pump(now);
    }

    /// Sets whether the publisher takes answers: pictures that applications make of its frames. An answer leaves the
    /// edge at most `bound` after the capture of its frame. `None`, the default: the publisher takes no answers.
    pub fn set_answers(&mut self, bound: Option<Duration>) {
        if self.answers.set_bound(bound) {
            let link = self.link();
            self.outputs.extend(link.and_then(|link| self.answers.request(link)));
        }
    }

    /// The header of an answer has arrived. After `Ok`, its payload may be received, until
    /// [`CameraBroker::handle_answer_complete`] or [`CameraBroker::handle_answer_cancelled`].
    pub fn handle_answer_header(
        &mut self,
        now: Instant,
        link: LinkId,
        header: Box<FrameHeader>,
    ) -> Result<(), AnswerRefused> {
        let epoch = (self.link() == Some(link)).then(|| self.live.epoch());
        let is_large = header.payload_bytes >= HOLDING_BYTES_MIN;
        let (taken, refused) = self.answers.handle_header(now, (link, epoch), header);
        self.outputs.extend(refused);
        if let (true, Some(known)) = (is_large && taken.is_ok(), self.connections.get_mut(link)) {
            known.answer_begins(now);
        }
        taken
    }

    /// The payload of an answer has arrived completely.
    pub fn handle_answer_complete(&mut self, now: Instant, link: LinkId, frame: FrameId, payload: Bytes) {
        let clock = self.clock(now);
        if let Some(known) = self.connections.get_mut(link) {
            known.answer_ends(now);
        }
        self.outputs.extend(self.answers.handle_complete(now, (link, frame), payload, clock));
    }

    /// The rest of the payload of an answer will not come.
    pub fn handle_answer_cancelled(&mut self, now: Instant, link: LinkId, frame: FrameId) {
        self.answers.handle_cancelled(link, frame);
        if let Some(known) = self.connections.get_mut(link) {
            known.answer_ends(now);
        }
    }

    /// The last byte of a frame of the past has left.
    pub fn handle_history_sent(&mut self, now: Instant, link: LinkId, request: u64) {
        if self.history.handle_sent(now, (link, request), live_traffic(&self.live, &self.connections)) {
            self.pump(now);
        }
    }

    /// A profile was read, as [`CameraOutput::ReadProfile`] asked. `None` if the bytes are no profile, or do not match the hash.
    pub fn handle_profile(&mut self, now: Instant, hash: ProfileHash, profile: Option<SizedProfile>) {
        self.profiles.handle_profile(hash, profile);
        self.adapter.handle_profile();
        self.pump(now);
    }

    /// Numbers that only the intake knows, for the operators of the edge.
    pub fn handle_intake(&mut self, refused: u64, log_bytes: u64) {
        self.status.handle_intake(refused, log_bytes);
    }

    /// The state of the log on disk, for the operators of the edge; `None` if there is no such log.
    pub fn handle_disk(&mut self, disk: Option<DiskStatus>) {
        self.status.handle_disk(disk);
    }

    /// There is news about the source of the camera's frames. The frames themselves show that the source is live.
    pub fn handle_source(&mut self, now: Instant, news: SourceNews) {
        self.source.handle_news(now, news);
        self.pump(now);
    }

    /// This deny list is held from now on. Edges with an older list are told so.
    pub fn handle_revocations(&mut self, version: u64, signed: Bytes) {
        let said = self.courier.handle_held(version, signed);
        self.outputs.extend(said.into_iter().map(|(link, message)| CameraOutput::Send { link, message }));
    }

    /// The camera broker ends soon. Reports that wait are sent to the edge now.
    pub fn handle_leaving(&mut self, now: Instant) {
        self.source.handle_leaving();
        self.pump(now);
    }

    /// Does what is due at `now`. The driver calls this at [`CameraBroker::poll_timeout`], and may call it at any other time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.source.handle_timeout(now);
        self.outputs.extend(self.connections.dial(now));
        for link in self.connections.unanswered(now) {
            self.close(now, link);
        }
        // This comes before the pings, because an outage begins with a ping.
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

    /// The next output to carry out. `None`: there is none for now.
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

    /// The edge has welcomed the camera.
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

    /// Carries out the effects of an event that concerns the past.
    fn go_on_with_history(&mut self, now: Instant, Effects { outputs, goes_on }: Effects) {
        self.outputs.extend(outputs);
        if goes_on {
            self.pump(now);
        }
    }

    /// The live part, and what the other parts lend it.
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
        // Frames of a source's own video are not left out: if they do not fit, they are encoded at a rung.
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

    /// Does what may be due after any event: asks for a missing profile, sends or encodes
    /// the waiting frame, sends a frame of the past, and reports changes to the edge.
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

    /// A connection is gone, and with it the frames that were on their way.
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

/// The state of the live frames, for the part that sends frames of the past.
fn live_traffic<'a>(live: &Live, connections: &'a Connections) -> LiveTraffic<'a> {
    let (is_made, waits) = (live.making().is_some(), live.is_waiting());
    LiveTraffic { connections, epoch: live.epoch(), is_made, waits, unmodified: live.unmodified() }
}

#[cfg(test)]
mod tests;
