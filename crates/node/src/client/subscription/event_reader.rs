//! The task behind a subscription: it reads events, and subscribes again when the broker is lost.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use mez_core::frame::SkipCounts;
use mez_core::group::session::PlaceTold;
use mez_core::name::CameraName;
use mez_core::subscription::{Deliver, LastFrame, NotHeld, merged};
use mez_core::units::Timestamp;
use tokio::sync::Notify;

use super::decoded::DecodedFrames;
use super::event::Event;
use super::group::Member;
use super::shared::Shared;
use crate::api::pb::subscribe_event::Event as Message;
use crate::api::{convert, pb};
use crate::client::REDIAL_INTERVAL;
use crate::client::chains::ChainDecoders;
use crate::client::dial::Dialler;
use crate::client::edges::Edges;
use crate::client::error::ClientError;
use crate::client::frame::{ReceivedFrame, contract_state};
use crate::client::streams::{EventStream, ReportLine};
use crate::clock::monotonic_now;

/// The reason of a refusal for lack of a grant.
const NO_GRANT: &str = "PERMISSION_DENIED";

/// How long to wait for a frame before checking whether the cameras have moved to
/// another edge, and how often to check. Only for programs with several edges.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Why a subscription must be opened again. `preferred`: the edge to ask first, or `None` for the same one.
struct Lost {
    reason: ClientError,
    preferred: Option<usize>,
}

impl From<ClientError> for Lost {
    fn from(reason: ClientError) -> Self {
        Self { reason, preferred: None }
    }
}

/// The task behind a subscription.
pub(super) struct EventReader {
    pub(super) edges: Edges,
    /// The edge of the current stream.
    pub(super) dialler: Dialler,
    pub(super) deliver: Deliver,
    pub(super) reconnect: bool,
    pub(super) decoders: ChainDecoders<DecodedFrames>,
    pub(super) shared: Arc<Shared>,
    pub(super) compare: Arc<Notify>,
    /// The last received frame of each camera.
    pub(super) last: Vec<(CameraName, LastFrame)>,
    /// Cameras that were reported as gone after a change of rights, and are not back.
    pub(super) lost: BTreeSet<CameraName>,
    /// When the program subscribed, by its own clock.
    pub(super) opened: Timestamp,
    /// Time spans with missing frames. They came with frames that could not be decoded, and are reported with the next frame of their camera.
    pub(super) untold: HashMap<CameraName, NotHeld>,
}

impl EventReader {
    pub(super) async fn run(mut self, stream: EventStream) {
        let last = self.read_all(stream).await;
        if let Some(member) = &self.shared.member {
            member.stream_is_over();
        }
        self.shared.put(|mailbox| mailbox.finish(last));
    }

    /// Reads one stream after the other, and returns the last event.
    async fn read_all(&mut self, mut stream: EventStream) -> Event {
        loop {
            let read = self.read(&mut stream).await;
            let owed = self.decoders.finish().await;
            let (reason, preferred) = match read {
                Ok(mut rest) => {
                    for (camera, skipped, not_held) in &mut rest {
                        owed.get(camera).copied().unwrap_or_default().tell(skipped, not_held);
                    }
                    return Event::Ended { rest };
                }
                // The remaining counts are then part of the frames missed meanwhile. Missing time spans are reported with the next frame.
                Err(Lost { reason, preferred }) => {
                    let untold = owed.into_iter().filter_map(|(camera, owed)| Some((camera, owed.not_held?)));
                    self.untold.extend(untold);
                    (reason, preferred)
                }
            };
            if !self.reconnect || !reason.is_passing() {
                return Event::Failed { reason };
            }
            let taken = reason.is_change_of_rights().then(|| reason.to_string());
            self.shared.put(|mailbox| {
                mailbox.put_notice(Event::Disconnected { reason });
                mailbox.resume();
            });
            let (next, has) = match self.redial(preferred).await {
                Ok(opened) => opened,
                Err(reason) => return Event::Failed { reason },
            };
            stream = next;
            self.compare.notify_one();
            self.shared.put(|mailbox| mailbox.put_notice(Event::Reconnected));
            if let Some(why) = taken {
                self.tell_lost(&has, &why);
            }
        }
    }

    /// Reports, once, the cameras that the program can no longer read.
    fn tell_lost(&mut self, has: &[String], why: &str) {
        let has = |camera: &CameraName| has.iter().any(|name| name == camera.as_str());
        self.lost.retain(|camera| !has(camera));
        for (camera, _) in self.last.iter().filter(|(camera, _)| !has(camera)) {
            if !self.lost.insert(camera.clone()) {
                continue;
            }
            let (camera, reason) = (camera.clone(), Some(why.to_owned()));
            self.shared.put(|mailbox| mailbox.put_notice(Event::Camera { camera, up: false, reason }));
        }
    }

    /// Reads until the subscription has ended or the connection is lost.
    async fn read(
        &mut self,
        stream: &mut EventStream,
    ) -> Result<Vec<(CameraName, SkipCounts, Option<NotHeld>)>, Lost> {
        let mut look = tokio::time::Instant::now() + LOOK_INTERVAL;
        // Whether the last frame had to wait for the program, so that the next one waited behind it.
        let mut held_back = false;
        loop {
            let lost = || ClientError::Unreachable {
                address: self.dialler.address().clone(),
                reason: "the broker closed the connection".into(),
            };
            match self.next(stream, &mut look).await?.ok_or_else(lost)? {
                Message::Started(_) => {}
                Message::GroupJoined(joined) => self.has_joined(joined, stream.report_line()),
                Message::GroupHeld(held) => {
                    let open = held.held_back.then_some(held.open as usize);
                    self.shared.put(|mailbox| mailbox.put_notice(Event::Held { open }));
                }
                Message::Frame(frame) => {
                    look = tokio::time::Instant::now() + LOOK_INTERVAL;
                    let clock = self.dialler.clock();
                    let frame = ReceivedFrame::from_message(*frame, monotonic_now(), clock);
                    let mut frame = Box::new(frame.map_err(|what| self.dialler.protocol(what))?);
                    if self.shared.member.is_some() {
                        // A record that is given again may be older than the previous one.
                        frame.held_back = held_back;
                        held_back = self.shared.has_room().await;
                        self.shared.put_given(frame);
                        continue;
                    }
                    self.note(&frame);
                    frame.not_held = merged(self.untold.remove(&frame.camera), frame.not_held);
                    frame.held_back = held_back;
                    held_back = self.shared.has_room().await;
                    self.decoders.take(frame, stream.take_beside()).await;
                }
                Message::CameraChange(change) => {
                    let camera = self.camera(&change.camera)?;
                    let reason = (!change.reason.is_empty()).then_some(change.reason);
                    let notice = Event::Camera { camera, up: change.up, reason };
                    self.shared.put(|mailbox| mailbox.put_notice(notice));
                }
                Message::ContractChange(change) => {
                    let camera = self.camera(&change.camera)?;
                    let state = contract_state(change.state);
                    let notice = Event::Contract { camera, state, reason: change.reason };
                    self.shared.put(|mailbox| mailbox.put_notice(notice));
                }
                Message::SourceChange(change) => {
                    let camera = self.camera(&change.camera)?;
                    let source =
                        change.source.and_then(|source| convert::source_back(source, monotonic_now()));
                    // A state that this version does not know is not reported.
                    if let Some(source) = source {
                        self.shared.put(|mailbox| mailbox.put_notice(Event::Source { camera, source }));
                    }
                }
                Message::Waiting(waiting) => {
                    let notice = Event::Waiting { matching: waiting.matching as usize };
                    self.shared.put(|mailbox| mailbox.put_notice(notice));
                }
                Message::Ended(ended) => {
                    let rest = ended.rest.into_iter().map(|rest| {
                        let skipped = convert::skips_back(&rest.skipped);
                        Ok((self.camera(&rest.camera)?, skipped, rest.not_held.map(convert::not_held_back)))
                    });
                    return rest.collect::<Result<_, ClientError>>().map_err(Lost::from);
                }
            }
        }
    }

    /// Handles the message that the program is in its group.
    fn has_joined(&self, joined: pb::GroupJoined, line: Option<ReportLine>) {
        let place = match joined.place() {
            pb::GroupPlace::Restored => PlaceTold::Restored,
            pb::GroupPlace::Lost => PlaceTold::Lost,
            pb::GroupPlace::Kept | pb::GroupPlace::Unspecified => PlaceTold::Kept,
        };
        let survives = joined.survives;
        if let Some(member) = &self.shared.member {
            member.has_joined(joined.life, line);
        }
        self.shared.put(|mailbox| mailbox.put_notice(Event::Joined { place, survives }));
    }

    /// Waits for the next message. While no frame comes, checks whether a camera has moved to another edge.
    async fn next(
        &self,
        stream: &mut EventStream,
        look: &mut tokio::time::Instant,
    ) -> Result<Option<Message>, Lost> {
        let next = stream.next();
        if !self.reconnect || !self.edges.are_several() {
            return Ok(next.await?);
        }
        tokio::pin!(next);
        loop {
            tokio::select! {
                message = &mut next => return Ok(message?),
                () = tokio::time::sleep_until(*look) => {
                    let pattern = self.shared.opened().request.pattern.clone();
                    if let Some((place, to)) = self.edges.elsewhere(&self.dialler, &pattern).await {
                        let (from, to) = (self.dialler.address().clone(), to.clone());
                        return Err(Lost { reason: ClientError::Elsewhere { from, to }, preferred: Some(place) });
                    }
                    *look = tokio::time::Instant::now() + LOOK_INTERVAL;
                }
            }
        }
    }

    fn camera(&self, name: &str) -> Result<CameraName, ClientError> {
        name.parse().map_err(|_| self.dialler.protocol("a camera's name"))
    }

    fn note(&mut self, frame: &ReceivedFrame) {
        let last = LastFrame { id: frame.meta.id, captured: Some(frame.meta.captured) };
        match self.last.iter_mut().find(|(camera, _)| *camera == frame.camera) {
            Some((_, known)) => *known = last,
            None => self.last.push((frame.camera.clone(), last)),
        }
    }

    /// Dials until this or another edge answers, or until one refuses permanently. Also returns the matching cameras.
    async fn redial(&mut self, preferred: Option<usize>) -> Result<(EventStream, Vec<String>), ClientError> {
        let mut request = self.shared.opened().request.clone();
        // Continue after the last frames.
        request.after = self.last.iter().map(convert::last_frame).collect();
        let asked_begin = request.begin_utc_ns;
        if self.shared.member.is_some() {
            // The group knows its place.
            request.after.clear();
        } else if request.resume() == pb::Resume::Fill {
            // For cameras that have sent nothing so far: from the start of this subscription.
            request.begin_utc_ns = request.begin_utc_ns.or(Some(self.opened.as_nanos()));
        } else if self.deliver == Deliver::Every {
            let captured = self.last.iter().filter_map(|(_, last)| Some(last.captured?.as_nanos()));
            request.begin_utc_ns = captured.min().or(request.begin_utc_ns);
        }
        let mut preferred = preferred;
        loop {
            if preferred.is_none() {
                tokio::time::sleep(REDIAL_INTERVAL).await;
            }
            request.group = self.shared.member.as_ref().map(Member::request);
            match self.edges.subscribe(preferred.take().unwrap_or_else(|| self.edges.place()), &request).await
            {
                Ok((edge, stream, started)) => {
                    let mut opened = self.shared.opened();
                    (opened.edge, opened.id) = (edge.clone(), started.subscription_id);
                    drop(opened);
                    self.dialler = edge;
                    return Ok((stream, started.cameras));
                }
                // A program with the right to watch but not to read continues with live frames. The missed frames are counted.
                Err(ClientError::Refused(error))
                    if error.reason == NO_GRANT && request.begin_utc_ns != asked_begin =>
                {
                    tracing::debug!(%error, "missed frames are not read");
                    request.begin_utc_ns = asked_begin;
                    preferred = Some(self.edges.place());
                }
                Err(error) if error.is_passing() => tracing::trace!(%error, "the broker is still away"),
                Err(error) => return Err(error),
            }
        }
    }
}
