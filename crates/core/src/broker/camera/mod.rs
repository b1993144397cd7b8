//! The camera broker: decides which frame goes to the edge, when, over which connection and in which form.
//!
//! It is made of parts (`docs/decisions/0021-brokers-of-parts.md`). Each owns its state and returns what is to be done; none knows the
//! broker. Where a part needs something of another, the broker lends it as an argument. This file holds the parts, passes on what happened,
//! and carries out what they return.
//!
//! | question | part |
//! | --- | --- |
//! | which edge is dialled, and when is a connection given up? | `Connections`: `connection/mod.rs`, `dialler.rs` |
//! | does the camera stay with an edge that welcomes it? | `connection/welcome.rs` |
//! | what is on its way, and does it get through? | `EdgeLink`: `connection/link.rs` |
//! | which frame is sent next, and is the one before it cancelled? | `Live`: `live/mod.rs` |
//! | what may it refer to? | `live/chain.rs` |
//! | which frames does its rung leave out? | `live/frame_skip.rs` |
//! | what is made of it before it is sent? | `Adapter`: `adapt/mod.rs`; of which rungs, at which cost: `forms.rs`, `rungs.rs` |
//! | what is the policy offered? | `adapt/candidate.rs`, which `Live::candidate` alone makes |
//! | which profile is that by, and how does it come here? | `Profiles`: `adapt/profiles.rs` |
//! | whose contracts is it made for? | `Negotiation`: `negotiation/contracts.rs` |
//! | what does the camera have of a channel that it shares? | `Sharing`: `negotiation/share.rs` |
//! | what does the edge learn of that? | `Feasibility`: `negotiation/feasibility.rs` |
//! | what does the edge learn of frames that are not sent? | `ledger.rs` |
//! | when is a frame of the past sent, and as what? | `History`: `history/mod.rs`, `codec.rs` |
//! | how often are frames published, and how is the camera? | `rate.rs`, `status.rs` |

mod adapt;
mod connection;
mod history;
mod ledger;
mod live;
mod negotiation;
mod rate;
mod status;
mod types;

use std::collections::VecDeque;

pub use self::adapt::PROFILES_MAX;
use self::adapt::{Adapter, Profiles};
use self::connection::{Connections, EdgeLink, Identity, Judgement, Removed};
pub use self::history::{HISTORY_FRAMES_MAX, HISTORY_REQUESTS_MAX, HISTORY_SHARE, HISTORY_SHARE_MIN};
use self::history::{History, LiveTraffic, Step};
use self::live::{Lent, Live, Present};
use self::negotiation::{Feasibility, Frames, Negotiation, Sharing};
use self::rate::PublishingRate;
use self::status::StatusReport;
pub use self::types::{CameraConfig, CameraOutput, News, Transform, Transformed};
use super::{EdgeIndex, LinkId};
use crate::clock::{ClockEstimate, Exchange};
use crate::contract::Joint;
use crate::frame::{Epoch, FrameId, Sequence, SkipReason};
use crate::history::PastAnswer;
use crate::log::{Cursor, LogReader, Read, Record};
use crate::profile::{ProfileHash, SizedProfile};
use crate::units::Instant;
use crate::wire::{Abilities, Demand, DiskStatus, Message, RefuseCode, Report, Welcome};

/// A camera broker. See the [module](super) for how to drive it.
pub struct CameraBroker {
    /// The place in the log after the last frame that was looked at.
    cursor: Cursor,
    /// What is to be done, the oldest first.
    outputs: VecDeque<CameraOutput>,
    connections: Connections,
    live: Live,
    adapter: Adapter,
    profiles: Profiles,
    negotiation: Negotiation,
    sharing: Sharing,
    feasibility: Feasibility,
    history: History,
    rate: PublishingRate,
    status: StatusReport,
}

impl CameraBroker {
    /// A broker that sends what is appended to `log` from now on. It dials at the first timeout, which is due at once.
    pub fn new(config: CameraConfig, log: &LogReader, now: Instant) -> Self {
        let CameraConfig { camera, epoch, anchor, software, policy, edges } = config;
        Self {
            cursor: log.cursor_at_end(),
            outputs: VecDeque::new(),
            connections: Connections::new(Identity { camera, anchor, software }, edges, now),
            live: Live::new(epoch, anchor),
            adapter: Adapter::new(policy),
            profiles: Profiles::default(),
            negotiation: Negotiation::default(),
            sharing: Sharing::default(),
            feasibility: Feasibility::default(),
            history: History::new(now),
            rate: PublishingRate::default(),
            status: StatusReport::new(now),
        }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// Whether there is a connection on which the edge has welcomed the camera.
    pub fn is_up(&self) -> bool {
        self.connections.active().is_some()
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

    /// Of the frame that a codec is at work on: bytes that frames of its rung need on average in each interval between published frames, and those that
    /// the cheapest rung needs that keeps the floor.
    pub fn expected_bytes(&self) -> Option<(f64, f64)> {
        self.adapter.expected_bytes(self.live.making()?)
    }

    /// What the contracts that frames are made for ask, of the present connection; `None` where frames go as they are.
    pub fn joint(&self) -> Option<Joint> {
        self.negotiation.joint(self.connections.active()?)
    }

    /// Whether the camera leaves frames out, or sends them seldom, because of what it has of a channel.
    pub fn holds_back(&self, now: Instant) -> bool {
        self.sharing.holds_back(now, self.is_sent_as_it_is())
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
    pub fn handle_message(&mut self, now: Instant, link: LinkId, message: Message) {
        let Some(known) = self.connections.get_mut(link) else { return };
        known.heard = now;
        match message {
            Message::Welcome(welcome) if !known.welcomed => self.handle_welcome(now, link, &welcome),
            Message::Refuse { code, text } => {
                self.connections.handle_refuse(now, link, code);
                self.outputs.push_back(CameraOutput::Refused { code, text });
                self.close(now, link);
            }
            Message::Ping { t1 } => {
                let message = Message::Pong { t1, t2: now, t3: now };
                self.outputs.push_back(CameraOutput::Send { link, message });
            }
            Message::Pong { t1, t2, t3 } => known.answered(now, Exchange { t1, t2, t3, t4: now }),
            Message::Demand(demand) => self.handle_demand(now, link, demand),
            Message::Report(Report::Refused { frame }) => {
                if known.refused(now, frame) {
                    self.adapter.handle_cancelled(now, frame, u64::MAX);
                    self.live.skip(frame, SkipReason::Refused);
                }
            }
            Message::Report(report @ (Report::Progress { frame, .. } | Report::Complete { frame, .. })) => {
                if let Some(arrival) = known.arrival(now, report) {
                    self.adapter.handle_arrival(now, &arrival);
                }
                if known.reported(now, report) {
                    self.live.handle_arrived(frame);
                }
            }
            Message::Reply { frame, application, payload } => {
                self.outputs.push_back(CameraOutput::Reply { frame, application, payload });
            }
            Message::HistoryRequest(request) if known.welcomed => {
                self.outputs.extend(self.history.handle_request(link, request));
            }
            Message::Refresh { frame } => self.live.handle_refresh(now, link, frame),
            Message::ProfilePart(part) => self.outputs.extend(self.profiles.handle_part(now, &part)),
            Message::Share(share) if self.is_active(link) => {
                self.sharing.handle_share(now, share);
                self.adapter.set_share(self.sharing.limits());
            }
            Message::Share(_) => {}
            Message::Welcome(_)
            | Message::HistoryRequest(_)
            | Message::Hello(_)
            | Message::Status(_)
            | Message::DiskStatus(_)
            | Message::FeasibilityReport(_)
            | Message::NegotiationResult(_)
            | Message::ShareRequest(_)
            | Message::ProfileRequest(_)
            | Message::Abilities(_)
            | Message::HistoryEnd(_) => {
                let text = "an edge does not send this message, or not now".into();
                self.outputs.push_back(CameraOutput::Refused { code: RefuseCode::Protocol, text });
                self.close(now, link);
            }
        }
        self.pump(now);
    }

    /// The log has grown.
    pub fn handle_published(&mut self, now: Instant) {
        loop {
            match self.cursor.next() {
                Read::Record(record) => self.take_published(now, record),
                // Frames that the log dropped before the broker looked: their place in the sequence tells of them.
                Read::Evicted { .. } => {}
                Read::Pending => break,
            }
        }
    }

    /// The last byte of a frame has left.
    pub fn handle_sent(&mut self, now: Instant, link: LinkId, frame: FrameId) {
        let Some(known) = self.connections.get_mut(link) else { return };
        known.sent(frame);
        self.adapter.handle_left(now, frame);
        self.pump(now);
    }

    /// Of the payload of a frame that is being sent, so many bytes have not left: cancelled now, they never will. To be told whenever
    /// bytes have left, though not more often than every few milliseconds; until then none has. Decides whether a frame that will be late
    /// is cancelled for a newer one.
    pub fn handle_unsent(&mut self, now: Instant, link: LinkId, frame: FrameId, bytes: u64) {
        let Some(known) = self.connections.get_mut(link) else { return };
        known.unsent(frame, bytes);
        self.pump(now);
    }

    /// So many bytes may be on their way at most, as long as the path of this connection was never full
    /// ([`Bound::opening`](crate::window::Bound::opening)); `None` once it was. To be told when a connection is there, and before each message
    /// of the edge where it is another. A transport that cannot tell says nothing.
    pub fn handle_window(&mut self, link: LinkId, window: Option<u64>) {
        if let Some(known) = self.connections.get_mut(link) {
            known.window = window;
        }
    }

    /// The intake has begun a later epoch, as [`CameraOutput::RaiseEpoch`] asked.
    pub fn handle_epoch(&mut self, now: Instant, epoch: Epoch) {
        self.history.handle_epoch_raised(self.live.epoch());
        self.live.handle_epoch(epoch);
        // On every connection the edge was told the old epoch, also where its answer is still to come.
        while let Some(link) = self.connections.oldest() {
            self.close(now, link);
        }
        self.connections.handle_epoch(now);
    }

    /// A codec has done what [`CameraOutput::Transform`] asked, or has not.
    pub fn handle_transformed(&mut self, now: Instant, frame: FrameId, transformed: Transformed) {
        let Some(made) = self.live.take_made(frame) else { return };
        let (live, lent) = self.lend(now);
        let output = live.handle_transformed(lent, made, transformed);
        self.outputs.extend(output);
        self.pump(now);
    }

    /// Sets the part of the time for which frames of the past may use the link beside live ones, above 0 and at most 1. Default
    /// [`HISTORY_SHARE`]. More of it means that the past comes sooner and that live frames are smaller or fewer meanwhile.
    pub fn set_history_share(&mut self, share: f64) {
        self.history.set_share(share);
    }

    /// What the log holds of the past that [`CameraOutput::ReadHistory`] asked for.
    pub fn handle_history(&mut self, now: Instant, ticket: u64, answer: PastAnswer) {
        let live = live_traffic(&self.live, &self.connections);
        let step = self.history.handle_answer(ticket, answer, live);
        self.go_on_with_history(now, step);
    }

    /// A codec has done what [`CameraOutput::TransformPast`] asked, or has not.
    pub fn handle_past_transformed(&mut self, now: Instant, ticket: u64, transformed: Transformed) {
        let live = live_traffic(&self.live, &self.connections);
        let Some(step) = self.history.handle_transformed(now, ticket, transformed, live) else { return };
        self.go_on_with_history(now, step);
        // Whatever came of it, the codec is free.
        self.pump(now);
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

    /// The instant of [`CameraBroker::poll_timeout`] has come, or any other.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.outputs.extend(self.connections.dial(now));
        for link in self.connections.unanswered(now) {
            self.close(now, link);
        }
        // An outage begins with a ping.
        self.reset_stalled(now);
        self.outputs.extend(self.connections.ping(now));
        if self.status.take_due(now)
            && let Some(link) = self.connections.active()
        {
            self.outputs.extend(self.status.tell(link.id, self.rate.frames_per_second(now)));
            self.outputs.extend(self.feasibility.tell(now, link, &self.negotiation, &self.adapter));
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
        let mut due = self.connections.due().min(self.status.due());
        due = due.min(self.connections.active().and_then(|link| self.live.due(link)).unwrap_or(due));
        due = due.min(self.history.due(live_traffic(&self.live, &self.connections)).unwrap_or(due));
        let news = self.connections.active();
        let news = news.and_then(|link| self.feasibility.due(link, &self.negotiation, &self.adapter));
        due = due.min(news.unwrap_or(due));
        due.min(self.profiles.due().filter(|_| self.is_up()).unwrap_or(due))
    }

    // ---- inside -------------------------------------------------------------------------------------------

    /// The edge takes the camera in.
    fn handle_welcome(&mut self, now: Instant, link: LinkId, welcome: &Welcome) {
        match self.connections.handle_welcome(now, link, welcome, self.next_frame()) {
            Judgement::Refused { code, text } => {
                self.outputs.push_back(CameraOutput::Refused { code, text });
                return self.close(now, link);
            }
            // The edge's newest frame is not one of ours: a lost epoch counter, or a replaced device.
            Judgement::Foreign { above } => {
                if let Some(edge) = self.connections.get(link).map(|link| link.edge) {
                    self.history.handle_taken(edge, above);
                }
                self.outputs.push_back(CameraOutput::RaiseEpoch { above });
                return self.close(now, link);
            }
            Judgement::Accepted { newest: Some(newest) } => self.live.handle_known(newest),
            Judgement::Accepted { newest: None } => {}
        }
        for older in self.connections.older_than(link) {
            self.close(now, older);
        }
        self.connections.handle_accepted(now, link, welcome.frame_bytes_max);
        if let Some(edge) = self.connections.get(link).map(|link| link.edge) {
            self.history.handle_accepted(edge, self.live.epoch());
        }
        self.forget_share();
        self.status.handle_welcomed(now);
        let message = Message::Abilities(Abilities::ALL);
        self.outputs.push_back(CameraOutput::Send { link, message });
        self.outputs.push_back(CameraOutput::LinkChanged { up: true });
    }

    /// The applications want something else.
    fn handle_demand(&mut self, now: Instant, link: LinkId, demand: Demand) {
        let Some(known) = self.connections.get_mut(link) else { return };
        let Some(change) = known.take_demand(demand) else { return };
        if !self.is_active(link) {
            return;
        }
        self.adapter.forget_seen();
        if change.begins {
            self.live.handle_wanted();
        }
        if change.ends {
            // What nobody wants any more does not cross, not even the rest of a frame.
            if let Some(frame) = self.connections.get_mut(link).and_then(EdgeLink::give_up_sending) {
                self.adapter.handle_cancelled(now, frame, 0);
                self.outputs.push_back(CameraOutput::Reset { link, frame });
                self.live.skip(frame, SkipReason::NotWanted);
            }
            self.live.handle_unwanted();
        }
    }

    /// Carries out what came of an event that concerns the past.
    fn go_on_with_history(&mut self, now: Instant, Step { outputs, goes_on }: Step) {
        self.outputs.extend(outputs);
        if goes_on {
            self.pump(now);
        }
    }

    /// The live frames, and what they are lent of the other parts.
    fn lend(&mut self, now: Instant) -> (&mut Live, Lent<'_>) {
        let present = Present { now, interval: self.rate.interval(now), profiles: &self.profiles };
        let link = self.connections.active_mut();
        let lent = Lent { present, link, adapter: &mut self.adapter, negotiation: &mut self.negotiation };
        (&mut self.live, lent)
    }

    /// A frame was published.
    fn take_published(&mut self, now: Instant, record: Record) {
        let meta = &record.frame.meta;
        if meta.id.epoch < self.live.epoch() {
            // Published just before the epoch was raised: the edge would refuse it.
            return;
        }
        self.status.handle_published(meta);
        self.rate.note(now);
        let (id, bytes, as_it_is) = (meta.id, record.frame.payload.len(), self.is_sent_as_it_is());
        let reason = self.live.reason_to_wait(now, self.connections.active(), id);
        if self.sharing.leaves_out(now, bytes, as_it_is) {
            self.live.skip(id, reason);
            return self.tell_claim(now);
        }
        self.live.handle_published(now, record, reason);
        self.pump(now);
    }

    /// Asks for the profile that is wanted and not here, if that is due.
    fn fetch_profile(&mut self, now: Instant) {
        let lacking = self.connections.active().zip(self.joint()).and_then(|(link, joint)| {
            Some((link.id, self.profiles.lacking(&joint, &link.demand.contracts)?))
        });
        self.outputs.extend(self.profiles.fetch(now, lacking));
    }

    /// Sends the waiting frame if the link is free for it, or has it made ready; or else sends one of the past.
    fn pump(&mut self, now: Instant) {
        self.fetch_profile(now);
        let (live, lent) = self.lend(now);
        let outputs = live.pump(lent);
        self.outputs.extend(outputs);
        self.outputs.extend(self.history.pump(now, live_traffic(&self.live, &self.connections)));
        if let Some(link) = self.connections.active() {
            self.outputs.extend(self.feasibility.tell_news(now, link, &self.negotiation, &self.adapter));
        }
        self.tell_claim(now);
    }

    /// Tells the edge what the camera would have of the channel that it shares, if it does not know.
    fn tell_claim(&mut self, now: Instant) {
        let Some(link) = self.connections.active() else { return };
        let rate = self.rate.frames_per_second(now);
        let frames = Frames { link, rate, negotiation: &self.negotiation, adapter: &self.adapter };
        self.outputs.extend(self.sharing.tell(now, frames));
    }

    /// The connection is another one: nothing is known of what the camera has there.
    fn forget_share(&mut self) {
        self.sharing.forget();
        self.adapter.set_share(self.sharing.limits());
    }

    /// Whether frames are sent on a connection.
    fn is_active(&self, link: LinkId) -> bool {
        self.connections.active().is_some_and(|active| active.id == link)
    }

    /// Whether frames are wanted, and go as they are.
    fn is_sent_as_it_is(&self) -> bool {
        self.demand().is_some() && self.joint().is_none()
    }

    /// Cancels what is on its way when nothing has got through for too long.
    fn reset_stalled(&mut self, now: Instant) {
        let Some((link, frames)) = self.connections.give_up_stalled(now) else { return };
        for frame in frames {
            self.adapter.handle_reset(now, frame);
            self.outputs.push_back(CameraOutput::Reset { link, frame });
            self.live.skip(frame, SkipReason::Stalled);
        }
    }

    /// Closes a connection.
    fn close(&mut self, now: Instant, link: LinkId) {
        self.outputs.push_back(CameraOutput::Close { link });
        self.forget(now, link);
    }

    /// A connection is gone, and what was on its way there with it.
    fn forget(&mut self, now: Instant, link: LinkId) {
        let Some(Removed { in_flight, was_active }) = self.connections.remove(link) else { return };
        for frame in in_flight {
            self.adapter.handle_reset(now, frame);
            self.live.skip(frame, SkipReason::LinkDown);
        }
        self.outputs.extend(self.history.handle_closed(link));
        if was_active {
            self.forget_share();
            self.outputs.push_back(CameraOutput::LinkChanged { up: false });
        }
    }

    /// The frame that is published next.
    fn next_frame(&self) -> FrameId {
        let newest = self.cursor.reader().newest().map(|record| record.frame.meta.id);
        let newest = newest.filter(|newest| newest.epoch == self.live.epoch());
        FrameId {
            epoch: self.live.epoch(),
            sequence: Sequence(newest.map_or(0, |newest| newest.sequence.0 + 1)),
        }
    }
}

/// What goes on beside frames of the past.
fn live_traffic<'a>(live: &Live, connections: &'a Connections) -> LiveTraffic<'a> {
    let (is_made, waits) = (live.making().is_some(), live.is_waiting());
    LiveTraffic { connections, epoch: live.epoch(), is_made, waits }
}

#[cfg(all(test, not(loom)))]
mod tests;
