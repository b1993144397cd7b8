//! Drives the state machine of an edge broker: carries out its outputs and reports events to it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mez_core::audit::{Event, Kind};
use mez_core::broker::LinkId;
use mez_core::broker::edge::{EdgeBroker as Broker, EdgeOutput, ReplyError, SubscriptionId};
use mez_core::contract::Contract;
use mez_core::frame::{Epoch, FrameId};
use mez_core::history::PastAnswer;
use mez_core::log::LogReader;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::source::{SourceStanding, SourceState};
use mez_core::wire::{Inquiry, Message, RefuseCode};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;
use tracing::{debug, error, info, warn};

use super::lock;
use super::look::look;
use super::renewals::{Renewals, Turns};
use super::request::{CameraSurvey, Opening, Replied, Request};
use super::reset::{ResetFailure, ResetReport};
use super::sources::NotedSources;
use super::starts::{CameraReset, CameraStart, Starts};
use super::subscribers::{Attached, SharedCamera, Subscribers};
use crate::audit::Audit;
use crate::clock::{monotonic_now, sleep_until, wall_now};
use crate::derived::DerivedStates;
use crate::identity::name::member;
use crate::identity::refusals::Refusals;
use crate::link::{Command, CommandSender, EdgeEvent, Listener, Shown};
use crate::notes::{NoteContent, NotedReply, Notes};
use crate::persist::replicas::Replicas;
use crate::profiles::HeldProfile;
use crate::reply::ReplyContent;
use crate::revocation::LiveRevocations;
use crate::stills::{Helpers, Stills};

/// How often to look for cameras that may be forgotten, and for questions that nobody waits for.
const STALE_INTERVAL: Duration = Duration::from_secs(1);

/// A connection of a camera host.
pub(super) struct CameraLink {
    /// The identity and address, for messages.
    pub(super) who: String,
    /// The certificate.
    pub(super) shown: Shown,
    pub(super) from: IpAddr,
    pub(super) commands: CommandSender,
    /// Certificate requests of this connection, which are answered one at a time.
    pub(super) renewing: Turns,
}

pub(super) struct Driver {
    pub(super) broker: Broker,
    /// Logs on disk. `None`: replica logs are in memory only.
    pub(super) replicas: Option<Replicas>,
    /// Notes on frames, such as replies. `None`: the edge keeps no notes.
    notes: Option<Notes>,
    noted_sources: NotedSources,
    /// Records which certificate made which start of a camera.
    pub(super) starts: Starts,
    /// The epochs of derived streams.
    derived: DerivedStates,
    /// What decodes, for stills and shared pictures.
    helpers: Helpers,
    /// Sends requests to this loop, for the makers of stills.
    requests: mpsc::WeakSender<Request>,
    pub(super) links: HashMap<LinkId, CameraLink>,
    pub(super) renewals: Renewals,
    refusals: Refusals,
    /// The deny list.
    pub(super) revoked: LiveRevocations,
    pub(super) audit: Audit,
    shared: HashMap<CameraName, Arc<SharedCamera>>,
    subscribers: Subscribers,
    /// Which cameras are connected.
    up: HashMap<CameraName, bool>,
    /// Waiters for frames of the past, by request. At most one per reading of a camera's past.
    questions: HashMap<u64, oneshot::Sender<PastAnswer>>,
    /// Waiters for surveys of cameras, by question. The broker bounds the number of cameras that are asked.
    surveys: HashMap<u64, oneshot::Sender<CameraSurvey>>,
}

impl Driver {
    pub(super) fn new(
        broker: Broker,
        (replicas, notes): (Option<Replicas>, Option<Notes>),
        requests: mpsc::WeakSender<Request>,
        (starts, derived, audit): (Starts, DerivedStates, Audit),
        (revoked, renewals): (LiveRevocations, Renewals),
        helpers: Helpers,
    ) -> Self {
        Self {
            helpers,
            broker,
            replicas,
            notes,
            noted_sources: NotedSources::default(),
            starts,
            derived,
            requests,
            links: HashMap::new(),
            renewals,
            refusals: Refusals::default(),
            revoked,
            audit,
            shared: HashMap::new(),
            subscribers: Subscribers::default(),
            up: HashMap::new(),
            questions: HashMap::new(),
            surveys: HashMap::new(),
        }
    }

    /// Runs the loop: carries out the broker's outputs, waits for an event, and reports the event to the broker.
    pub(super) async fn run(
        mut self,
        listener: Listener,
        mut events: mpsc::Receiver<EdgeEvent>,
        mut requests: mpsc::Receiver<Request>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let mut stale = tokio::time::interval(STALE_INTERVAL);
        stale.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut revoked = self.revoked.clone();
        self.apply_revocations();
        loop {
            while let Some(output) = self.broker.poll_output() {
                self.perform(output);
            }
            let due = self.broker.poll_timeout();
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => break,
                () = revoked.changed() => {
                    revoked.notice();
                    self.apply_revocations();
                }
                Some(event) = events.recv() => self.handle(event),
                request = requests.recv() => match request {
                    Some(request) => self.serve(request),
                    None => break,
                },
                _ = stale.tick() => {
                    self.drop_questions();
                    self.forget_stale();
                }
                () = sleep_until(due.unwrap_or_default()), if due.is_some() => {
                    self.broker.handle_timeout(monotonic_now());
                }
            }
        }
        self.subscribers.stop();
        listener.close().await;
        debug!("the edge broker stopped");
    }

    fn handle(&mut self, event: EdgeEvent) {
        let now = monotonic_now();
        match event {
            EdgeEvent::Connected(link, shown, from, commands) => {
                let peer = shown.peer.clone();
                let who = format!("{} at {from}", peer.identity);
                self.renewals.certificates.note(peer.identity.clone(), shown.ends);
                self.audit.connected(member(&peer.identity), "link", from.to_canonical().to_string());
                self.links.insert(link, CameraLink { who, shown, from, commands, renewing: Turns::new(now) });
                self.broker.handle_connected(now, link, peer);
                self.refuse_revoked(link);
            }
            EdgeEvent::Message(link, Message::Inquiry(inquiry)) => self.answer(link, &inquiry),
            EdgeEvent::Message(link, Message::RenewalRequest(request)) => self.renew(link, request),
            EdgeEvent::Message(link, message) => self.broker.handle_message(now, link, message),
            EdgeEvent::ProtocolError(link, error) => self.broker.handle_protocol_error(link, &error),
            EdgeEvent::FrameHeader(link, header, answer) => {
                let _ = answer.send(self.broker.handle_frame_header(now, link, *header));
            }
            EdgeEvent::FrameProgress(link, frame, bytes) => {
                self.broker.handle_frame_progress(now, link, frame, bytes);
            }
            EdgeEvent::FrameComplete(link, frame, payload) => {
                self.broker.handle_frame_complete(now, link, frame, payload);
            }
            EdgeEvent::FrameCancelled(link, frame) => self.broker.handle_frame_cancelled(now, link, frame),
            EdgeEvent::HistoryComplete(link, request, payload) => {
                self.broker.handle_history_complete(now, link, request, payload);
            }
            EdgeEvent::HistoryCancelled(link, request) => {
                self.broker.handle_history_cancelled(now, link, request)
            }
            EdgeEvent::AnswerSent(link, frame) => self.broker.handle_answer_sent(now, link, frame),
            EdgeEvent::AnswerUnsent(link, frame, bytes) => {
                self.broker.handle_answer_unsent(now, link, frame, bytes);
            }
            EdgeEvent::Closed(link, reason) => {
                debug!(?link, reason, "a connection ended");
                self.forget(link);
                self.broker.handle_closed(now, link);
            }
        }
    }

    /// Answers how a camera would stand here. The broker's state does not change.
    fn answer(&self, link: LinkId, inquiry: &Inquiry) {
        let (Some(standing), Some(asking)) =
            (self.broker.standing(link, inquiry, wall_now()), self.links.get(&link))
        else {
            return;
        };
        debug!(who = asking.who, camera = %inquiry.camera, software = inquiry.software, "a camera host asks whether the edge would accept it");
        asking.commands.send(Command::Send(Message::Standing(standing)));
    }

    fn serve(&mut self, request: Request) {
        match request {
            Request::Subscribe(opening, answer) => {
                let Opening { id, spec, profile, clock, mailbox } = *opening;
                let matches = |camera| spec.selects(camera);
                let connected = self.up.iter().filter(|(camera, up)| **up && matches(camera)).count();
                if let Some(held) = &profile {
                    self.broker.add_profile(held.sha256, held.bytes.clone());
                }
                let cameras = spec.cameras.clone();
                self.subscribers.add(id, (cameras.clone(), spec.granted.clone()), mailbox, profile);
                let patience = self.broker.handle_subscribe(clock, id, spec);
                // The subscription's logs are in the mailbox before the application polls for the first time.
                while let Some(output) = self.broker.poll_output() {
                    self.perform(output);
                }
                self.tell_lost_sources(id, &cameras);
                if answer.send((connected, patience)).is_err() {
                    self.unsubscribe(id);
                }
            }
            Request::Unsubscribe(id) => self.unsubscribe(id),
            Request::ChainLost(camera) => self.broker.handle_chain_lost(monotonic_now(), &camera),
            Request::Update(id, contract, profile) => self.update(id, *contract, profile),
            Request::Way(id, way) => self.broker.handle_way(id, way),
            Request::History(asked, answer) => {
                let (camera, query) = *asked;
                self.drop_questions();
                let request = self.broker.handle_history_query(monotonic_now(), &camera, query);
                self.questions.insert(request, answer);
            }
            Request::Survey(asked, answer) => {
                let (camera, span) = *asked;
                self.drop_questions();
                let question = self.broker.handle_survey_query(&camera, span);
                self.surveys.insert(question, answer);
            }
            Request::Cameras(answer) => {
                let _ = answer.send(self.broker.cameras(monotonic_now()));
            }
            Request::Look(answer) => {
                let _ = answer.send(look(&self.broker, &self.renewals.certificates, monotonic_now()));
            }
            Request::Reset(camera, uid, answer) => self.reset(camera, uid, answer),
            Request::Forget(camera, answer) => self.forget_by_hand(&camera, answer),
            Request::Change(forget_after, channels, answer) => {
                self.broker.set_forget_after(forget_after);
                self.broker.set_channels(channels);
                let _ = answer.send(());
            }
            Request::Derived(request) => self.serve_derived(*request),
            Request::Answer(picture, answer) => {
                let (camera, frame, picture) = *picture;
                let _ = answer.send(self.broker.handle_answer(monotonic_now(), &camera, frame, picture));
            }
            Request::Reply(reply, answer) => {
                let Replied { camera, frame, application, result, noted } = *reply;
                let replied = self.broker.handle_reply(&camera, frame, &application, result);
                // The reply is also noted if the camera cannot get it: it is about a frame that this edge has handed out.
                if matches!(
                    replied,
                    Ok(()) | Err(ReplyError::NotConnected { .. } | ReplyError::IsDerived { .. })
                ) && let Some(content) = noted
                {
                    self.note_reply(&camera, frame, application, content);
                }
                let _ = answer.send(replied);
            }
        }
    }

    fn note_reply(&self, camera: &CameraName, frame: FrameId, application: String, content: ReplyContent) {
        let Some(notes) = &self.notes else { return };
        let held = self.broker.log(camera).and_then(|(log, ..)| log.get_frame(frame));
        let captured = held.map(|record| record.frame.meta.captured);
        notes.note(camera, NoteContent::Reply(NotedReply { frame, captured, application, content }));
    }

    /// Withdraws questions whose waiter has closed its channel. The channel may close only after the unsubscribe request.
    fn drop_questions(&mut self) {
        let dropped = self.questions.extract_if(|_, answer| answer.is_closed());
        dropped.for_each(|(request, _)| self.broker.handle_history_dropped(request));
        let dropped = self.surveys.extract_if(|_, answer| answer.is_closed());
        dropped.for_each(|(question, _)| self.broker.handle_survey_dropped(question));
    }

    /// Tells a new subscription which connected cameras have a source that gives no frames. Absent cameras
    /// are left out: what they said last is void once they reconnect, and nobody would retract it.
    fn tell_lost_sources(&self, id: SubscriptionId, cameras: &CameraPattern) {
        let now = monotonic_now();
        let connected = self.up.iter().filter(|(camera, up)| **up && cameras.matches(camera));
        for (camera, _) in connected {
            let source = self.broker.view(now, camera).source;
            if let Some(source) = source.filter(|source| source.state != SourceState::Live) {
                self.subscribers.begins_without(id, camera.clone(), source);
            }
        }
    }

    fn unsubscribe(&mut self, id: SubscriptionId) {
        self.drop_questions();
        let unused = self.subscribers.remove(id);
        self.broker.handle_unsubscribe(id);
        self.let_go(unused);
    }

    fn update(&mut self, id: SubscriptionId, contract: Contract, profile: Option<Arc<HeldProfile>>) {
        if !self.subscribers.knows(id) {
            return;
        }
        if let Some(held) = &profile {
            self.broker.add_profile(held.sha256, held.bytes.clone());
        }
        let unused = self.subscribers.set_profile(id, profile);
        self.broker.handle_update(monotonic_now(), id, contract);
        self.let_go(unused);
    }

    /// Removes a profile that no subscription uses any longer.
    fn let_go(&mut self, profile: Option<Arc<HeldProfile>>) {
        if let Some(held) = profile {
            self.broker.remove_profile(held.sha256);
        }
    }

    pub(super) fn perform(&mut self, output: EdgeOutput) {
        match output {
            EdgeOutput::Send { link, message } => {
                if let Message::Refuse { code, text } = &message {
                    self.note_refusal(link, *code, text);
                }
                self.command(link, Command::Send(message));
            }
            EdgeOutput::Close { link } => {
                self.command(link, Command::Close);
                self.forget(link);
            }
            EdgeOutput::SendAnswer { link, header, payload } => {
                self.command(link, Command::SendFrame(header, payload));
            }
            EdgeOutput::ResetAnswer { link, frame } => self.command(link, Command::Reset(frame)),
            EdgeOutput::Attach { subscription, camera, log } => {
                let shared = Arc::clone(self.shared.entry(camera.clone()).or_default());
                *lock(&shared.view) = Arc::new(self.broker.view(monotonic_now(), &camera));
                self.make_stills(&camera, &log, &shared);
                let attached = Attached { camera, present: log.held().end, log, shared };
                self.subscribers.attach(subscription, attached);
            }
            EdgeOutput::Appended { camera } => {
                if let Some(replicas) = &self.replicas {
                    replicas.wake();
                }
                self.set_clock(&camera);
                self.note_frames(&camera);
                if let Some(stills) = self.shared.get(&camera).and_then(|shared| shared.stills()) {
                    stills.wake();
                }
                self.subscribers.appended(&camera);
            }
            EdgeOutput::ViewChanged { camera } => {
                let view = Arc::new(self.broker.view(monotonic_now(), &camera));
                *lock(&self.shared.entry(camera.clone()).or_default().view) = view;
                self.subscribers.view_changed(&camera);
            }
            EdgeOutput::History { request, answer } => {
                if let Some(waiting) = self.questions.remove(&request) {
                    let _ = waiting.send(answer);
                }
            }
            EdgeOutput::Surveyed { question, survey } => {
                if let Some(waiting) = self.surveys.remove(&question) {
                    let _ = waiting.send(survey);
                }
            }
            EdgeOutput::Started { camera, link, epoch, anchor } => {
                let Some(CameraLink { shown, from, .. }) = self.links.get(&link) else { return };
                let Shown { peer, certificate, fingerprint, .. } = shown;
                let texts = [
                    peer.identity.clone(),
                    certificate.serial.to_string(),
                    fingerprint.to_string(),
                    from.to_canonical().to_string(),
                ];
                self.starts.started(&camera, CameraStart::new((epoch, anchor), wall_now(), texts));
            }
            EdgeOutput::Ended { subscription, camera } => {
                self.subscribers.end(subscription, camera);
                self.unsubscribe(subscription);
            }
            EdgeOutput::Detach { subscription, camera } => self.subscribers.detach(subscription, camera),
            EdgeOutput::SourceChanged { camera, source } => self.tell_source(&camera, &source),
            EdgeOutput::Revocations { link, signed } => self.take_revocations(link, signed),
            EdgeOutput::CameraChanged { camera, up, reason } => {
                match &reason {
                    Some(reason) => info!(%camera, up, "{reason}"),
                    None => info!(%camera, up, "the camera is connected"),
                }
                self.up.insert(camera.clone(), up);
                if let (true, Some(replicas)) = (up, &mut self.replicas) {
                    replicas.keep(&self.broker, &camera);
                }
                self.subscribers.camera_changed(&camera, up, reason.as_ref());
            }
        }
    }

    /// Prepares stills of a camera's frames for a subscription that reads its log.
    fn make_stills(&self, camera: &CameraName, log: &LogReader, shared: &SharedCamera) {
        let mut stills = lock(&shared.stills);
        if stills.as_ref().is_some_and(|stills| stills.is_of(log)) {
            return;
        }
        let (lost, requests) = (camera.clone(), self.requests.clone());
        let ask_for_chain = move || {
            // If the loop's queue is full, the request is lost; the chain ends by itself after a while.
            let _ = requests.upgrade().map(|requests| requests.try_send(Request::ChainLost(lost.clone())));
        };
        *stills = Some(Stills::new(camera.clone(), log.clone(), self.helpers.clone(), ask_for_chain));
    }

    /// Tells operators and subscriptions whether a camera's source gives frames.
    fn tell_source(&mut self, camera: &CameraName, source: &SourceStanding) {
        match source.sentence() {
            Some(why) => warn!(%camera, "{why}"),
            None => info!(%camera, "the camera's source gives frames again"),
        }
        if let Some(notes) = &self.notes {
            self.noted_sources.changed((monotonic_now(), wall_now()), (notes, camera), source);
        }
        self.subscribers.source_changed(camera, source);
    }

    /// Notes that a camera's source is live again when a frame comes after the source was noted as dark.
    fn note_frames(&mut self, camera: &CameraName) {
        let Some(notes) = self.notes.as_ref().filter(|_| self.noted_sources.is_dark(camera)) else { return };
        let now = monotonic_now();
        // A frame that was on its way may come after the news that the source is dark. A camera that reconnects does not report a live source.
        let source = self.broker.view(now, camera).source;
        if source.is_none_or(|source| source.state == SourceState::Live) {
            let live =
                SourceStanding { state: SourceState::Live, reason: String::new(), since: None, retry: None };
            self.noted_sources.changed((now, wall_now()), (notes, camera), &live);
        }
    }

    /// Removes a camera that the broker has forgotten.
    pub(super) fn forget_camera(&mut self, camera: &CameraName, epoch: Option<Epoch>) {
        if let Some(epoch) = epoch {
            let (derived, stream) = (self.derived.clone(), camera.clone());
            tokio::task::spawn_blocking(move || derived.forget(&stream, epoch));
        }
        self.shared.remove(camera);
        self.up.remove(camera);
        self.noted_sources.forget(camera);
    }

    /// Updates the camera's clock, by which readers know the age of its newest frame.
    fn set_clock(&mut self, camera: &CameraName) {
        if let Some(clock) = self.broker.capture_clock(monotonic_now(), camera) {
            *lock(&self.shared.entry(camera.clone()).or_default().clock) = Some(clock);
        }
    }

    /// Logs why a camera is refused. The camera host gets the reason as well; the operators of this edge must know it too.
    pub(super) fn note_refusal(&self, link: LinkId, code: RefuseCode, why: &str) {
        match self.links.get(&link) {
            // A newer connection of the same host took over, which is normal.
            Some(known) if code == RefuseCode::Replaced => debug!(peer = known.who, "{why}"),
            Some(known) => {
                self.refusals.log(monotonic_now(), &known.who, why);
                let refused = Event::new(wall_now(), Kind::Refused, member(&known.shown.peer.identity));
                self.audit.note(refused.what("link").from(known.from.to_canonical().to_string()).why(why));
            }
            None => {}
        }
    }

    fn forget(&mut self, link: LinkId) {
        self.links.remove(&link);
    }

    fn command(&mut self, link: LinkId, command: Command) {
        // If the task of the connection has ended, its `Closed` event follows in order, behind the camera's last messages.
        if let Some(known) = self.links.get(&link)
            && !known.commands.send(command)
            && !known.commands.is_gone()
        {
            self.forget(link);
            self.broker.handle_closed(monotonic_now(), link);
        }
    }

    /// Resets a camera. Forgets it at once, and puts its log on disk aside in the background; no new frames enter this log.
    pub(super) fn reset(
        &mut self,
        camera: CameraName,
        uid: u32,
        answer: oneshot::Sender<Result<ResetReport, ResetFailure>>,
    ) {
        let forgotten = self.broker.handle_reset(&camera);
        while let Some(output) = self.broker.poll_output() {
            self.perform(output);
        }
        self.forget_camera(&camera, forgotten.as_ref().map(|forgotten| forgotten.epoch));
        let putting = self.replicas.as_mut().map(|replicas| replicas.put_aside(&camera));
        let starts = self.starts.clone();
        tokio::spawn(async move {
            let put = match putting {
                Some(putting) => putting.await,
                None => Ok(None),
            };
            let reset = CameraReset {
                utc_ns: wall_now().as_nanos(),
                uid,
                epoch: forgotten.as_ref().map(|forgotten| forgotten.epoch.0),
                identity: forgotten.as_ref().map(|forgotten| forgotten.identity.clone()).unwrap_or_default(),
                put_aside: put.as_ref().ok().cloned().flatten(),
            };
            let recorded = starts.reset(&camera, reset.clone()).await;
            let CameraReset { epoch, identity, put_aside, .. } = reset;
            warn!(%camera, uid, ?epoch, identity, ?put_aside, "the camera was reset: its next start is accepted with any epoch");
            let result = match (put, recorded) {
                (Err(error), _) => Err(error.into()),
                (Ok(_), Err(error)) => Err(ResetFailure::Record(error)),
                (Ok(put_aside), Ok(())) => Ok(ResetReport { forgotten, put_aside }),
            };
            if let Err(error) = &result {
                error!(%camera, "{error}");
            }
            let _ = answer.send(result);
        });
    }
}
