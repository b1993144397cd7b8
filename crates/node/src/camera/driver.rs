//! Drives the state machine of a camera broker: carries out its outputs and reports events to it.
//!
//! One task owns the state machine. Codecs, disks and connections have their own tasks or threads, so this loop never waits for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::camera::{CameraBroker as Broker, CameraOutput, SourceNews, Transform, Transformed};
use mez_core::broker::{EdgeIndex, LinkId};
use mez_core::frame::{Epoch, Rung};
use mez_core::history::{PastAnswer, PastQuery, Survey};
use mez_core::name::CameraName;
use mez_core::profile::{ProfileHash, SizedProfile};
use mez_core::trace::{CameraTrace, Stage};
use mez_core::units::{ClockAnchor, Instant};
use mez_core::wire::{DiskStatus, FrameHeader, Message, RefuseCode};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};

use super::codecs::LazyCodec;
use super::failures::Failures;
use super::renewals::Asking;
use super::shared::{Reply, Shared, lock};
use crate::clock::{monotonic_now, sleep_until};
use crate::codec::H264Library;
use crate::degrade::StreamKnobs;
use crate::link::{CameraEvent, Command, CommandSender, Dialler};
use crate::ports::EdgeAddress;
use crate::profile::NamedProfile;
use crate::reading::LocalPast;
use crate::reply::ReplyContent;
use crate::revocation::{LiveRevocations, Taken};
use crate::source::KeyFrameNeed;
use crate::state::CameraState;

/// How long the edge may take to acknowledge the last messages.
const FAREWELL_TIME_MAX: Duration = Duration::from_millis(500);

/// If no frame of the source's own video could be decoded for this long, its next key frame is far away.
const LACKING_TIME_MIN: Duration = Duration::from_secs(4);

/// The loop that owns the state machine, and everything that the state machine may not use: sockets, threads, clocks.
pub(super) struct Driver {
    pub(super) broker: Broker,
    pub(super) shared: Arc<Shared>,
    state: CameraState,
    anchor: ClockAnchor,
    dialler: Dialler,
    /// The deny list, as far as an edge has brought one.
    revoked: LiveRevocations,
    /// The edges, in order of preference.
    edges: Box<[EdgeAddress]>,
    pub(super) links: HashMap<LinkId, CommandSender>,
    /// The pending request for a certificate: its connection, and the channel for the answer.
    pub(super) renewal: Option<(LinkId, oneshot::Sender<Bytes>)>,
    next_link: u64,
    /// The last failure to connect, so that the same failure is not logged four times a second.
    failures: Failures,
    /// The reader of frames of the past, while it is idle.
    past: Option<LocalPast>,
    /// Reads of the past: one at a time, unless the connection changes meanwhile.
    reads: JoinSet<(LocalPast, u64, PastAnswer)>,
    /// Surveys of the log for an edge: one at a time.
    pub(super) surveys: JoinSet<Option<Survey>>,
    /// Profiles that are being parsed: one at a time, unless the contracts change meanwhile.
    profiles: JoinSet<(ProfileHash, Option<SizedProfile>)>,
    /// The stages of the frame in the codec, which works on one frame at a time.
    trace: CameraTrace,
    /// Since when no frame of the source's own video could be decoded. `None`: the last one was.
    lacking_since: Option<Instant>,
    /// The codec for live frames.
    codec: LazyCodec,
    /// The codec for frames of the past.
    past_codec: LazyCodec,
    /// The question that `past_codec` works on.
    past_ticket: u64,
}

impl Driver {
    pub(super) fn new(
        broker: Broker,
        shared: Arc<Shared>,
        (h264, knobs): (H264Library, Option<Arc<StreamKnobs>>),
        (state, anchor): (CameraState, ClockAnchor),
        (dialler, revoked): (Dialler, LiveRevocations),
        edges: Vec<EdgeAddress>,
    ) -> Self {
        let (log, decoders) = (shared.reader.clone(), shared.decoders.clone());
        Self {
            broker,
            shared,
            state,
            anchor,
            dialler,
            revoked,
            edges: edges.into(),
            links: HashMap::new(),
            renewal: None,
            next_link: 0,
            failures: Failures::default(),
            past: None,
            reads: JoinSet::new(),
            surveys: JoinSet::new(),
            profiles: JoinSet::new(),
            trace: CameraTrace::default(),
            lacking_since: None,
            codec: LazyCodec::new(h264, log.clone(), decoders.clone(), knobs.clone()),
            past_codec: LazyCodec::new(h264, log, decoders, knobs),
            past_ticket: 0,
        }
    }

    /// Runs the loop: carries out the broker's outputs, waits for an event, and reports the event to the broker.
    pub(super) async fn run(
        mut self,
        mut events: mpsc::Receiver<CameraEvent>,
        mut appended: watch::Receiver<u64>,
        mut asked: mpsc::Receiver<Asking>,
        mut stopped: watch::Receiver<()>,
    ) {
        let (shared, mut source) = (Arc::clone(&self.shared), self.shared.source.subscribe());
        let mut answer_bound = shared.answer_bound.subscribe();
        // News of the source, and the wish for answers, may be older than this loop.
        source.mark_changed();
        answer_bound.mark_changed();
        let mut revoked = self.revoked.clone();
        self.hand_on_revocations();
        let mut history_share = shared.history_share.subscribe();
        loop {
            while let Some(output) = self.broker.poll_output() {
                self.perform(output);
            }
            tokio::select! {
                biased;
                Err(_) = stopped.changed() => break,
                // Goes before events: a frame is judged by what was known when it was published.
                Ok(()) = appended.changed() => self.broker.handle_published(monotonic_now()),
                Ok(()) = source.changed() => self.hear_source(&mut source),
                () = revoked.changed() => {
                    revoked.notice();
                    self.hand_on_revocations();
                }
                Ok(()) = history_share.changed() => {
                    self.broker.set_history_share(*history_share.borrow_and_update());
                }
                Ok(()) = answer_bound.changed() => self.take_answers(*answer_bound.borrow_and_update()),
                () = shared.leaving.notified() => break self.say_farewell().await,
                Some(event) = events.recv() => self.handle(event),
                Some(asking) = asked.recv() => self.ask_for_certificate(asking),
                Some(Ok((past, ticket, answer))) = self.reads.join_next() => {
                    self.past = Some(past);
                    self.broker.handle_history(monotonic_now(), ticket, answer);
                }
                Some(survey) = self.surveys.join_next() => {
                    self.broker.handle_surveyed(monotonic_now(), survey.ok().flatten());
                }
                Some(Ok((hash, profile))) = self.profiles.join_next() => {
                    self.broker.handle_profile(monotonic_now(), hash, profile);
                }
                Some((frame, transformed, [begun, done])) = self.codec.next() => {
                    self.trace.stamp(Stage::Encoding, begun);
                    self.trace.stamp(Stage::Encoded, done);
                    self.note_lacking(&transformed);
                    self.broker.handle_transformed(monotonic_now(), frame, transformed);
                }
                Some((_, transformed, _)) = self.past_codec.next() => {
                    self.broker.handle_past_transformed(monotonic_now(), self.past_ticket, transformed);
                }
                () = sleep_until(self.broker.poll_timeout()) => self.handle_timeout(),
            }
        }
        debug!(camera = %self.shared.camera, "the camera broker stopped");
        self.shared.over.send_replace(true);
    }

    /// Passes on news of the source. News older than the last frame is void, because the source has given frames since.
    fn hear_source(&mut self, source: &mut watch::Receiver<Option<(SourceNews, u64)>>) {
        let now = monotonic_now();
        self.broker.handle_published(now);
        let heard = source.borrow_and_update().clone();
        if let Some((news, published)) = heard
            && *self.shared.appended.borrow() == published
        {
            self.broker.handle_source(now, news);
        }
    }

    /// Passes on whether the publisher takes answers.
    fn take_answers(&mut self, bound: Option<Duration>) {
        if bound.is_none() {
            lock(&self.shared.answers).clear();
        }
        self.broker.set_answers(bound);
    }

    /// Closes all connections after the edge has received the last messages.
    async fn say_farewell(&mut self) {
        self.broker.handle_leaving(monotonic_now());
        while let Some(output) = self.broker.poll_output() {
            self.perform(output);
        }
        let links: Vec<CommandSender> = self.links.drain().map(|(_, link)| link).collect();
        let gone = async {
            for link in links.iter().filter(|link| link.send(Command::Farewell)) {
                link.gone().await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL_TIME_MAX, gone).await;
    }

    fn handle(&mut self, event: CameraEvent) {
        let now = monotonic_now();
        match event {
            CameraEvent::Dialled(link, edge, commands) => {
                self.links.insert(link, commands);
                self.broker.handle_dialled(now, link, edge);
            }
            CameraEvent::DialFailed(edge, reason) => {
                if self.failures.is_news(&reason, self.broker.is_up()) {
                    warn!(camera = %self.shared.camera, "{reason}; trying again every 250 ms");
                } else {
                    debug!(camera = %self.shared.camera, "another attempt failed: {reason}");
                }
                self.broker.handle_dial_failed(now, edge);
            }
            CameraEvent::Message(link, Message::RenewalAnswer(answer)) => {
                self.handle_renewal(link, Some(answer));
            }
            CameraEvent::Message(link, message) => self.broker.handle_message(now, link, message),
            CameraEvent::Window(link, window) => self.broker.handle_window(link, window),
            CameraEvent::PacketBytes(link, bytes) => self.broker.handle_packet_bytes(link, bytes),
            CameraEvent::Sent(link, frame) => self.broker.handle_sent(now, link, frame),
            CameraEvent::Unsent(link, frame, bytes) => self.broker.handle_unsent(now, link, frame, bytes),
            CameraEvent::HistorySent(link, request) => self.broker.handle_history_sent(now, link, request),
            CameraEvent::AnswerHeader(link, header, agreed) => {
                let _ = agreed.send(self.broker.handle_answer_header(now, link, header));
            }
            CameraEvent::AnswerComplete(link, frame, payload) => {
                self.broker.handle_answer_complete(now, link, frame, payload);
            }
            CameraEvent::AnswerCancelled(link, frame) => {
                self.broker.handle_answer_cancelled(now, link, frame);
            }
            CameraEvent::Closed(link, reason) => {
                debug!(camera = %self.shared.camera, ?link, reason, "a connection ended");
                // A connection that had worked is reported by `LinkChanged`. This connection never worked.
                if self.links.contains_key(&link) && self.failures.is_news(&reason, self.broker.is_up()) {
                    warn!(camera = %self.shared.camera, "the edge did not accept the camera: {reason}; trying again every 250 ms");
                }
                self.links.remove(&link);
                self.handle_renewal(link, None);
                self.broker.handle_closed(now, link);
            }
        }
    }

    /// Offers the deny list to edges that lack it.
    fn hand_on_revocations(&mut self) {
        let held = self.revoked.now();
        if held.list.version() > 0 {
            self.broker.handle_revocations(held.list.version(), held.bytes.clone());
        }
    }

    /// Takes a list that an edge has brought. A list that is not newer, or not signed by the authority, changes nothing.
    fn take_revocations(&mut self, signed: Bytes) {
        let why = match self.revoked.take(signed, "the edge") {
            Ok(Taken::News | Taken::Known) => return,
            Ok(Taken::Refused(_)) => "its version is not newer than the version of the known list".into(),
            Err(error) => error.to_string(),
        };
        warn!(camera = %self.shared.camera, "a deny list from the edge is refused: {why}");
    }

    fn handle_timeout(&mut self) {
        let (refused, log_bytes) = {
            let intake = lock(&self.shared.intake);
            (intake.refused(), intake.log_bytes())
        };
        self.broker.handle_intake(refused, log_bytes);
        let disk = self.shared.keeper.as_ref().and_then(|keeper| keeper.status(&self.shared.camera));
        self.broker.handle_disk(disk.map(|status| DiskStatus {
            bytes: status.disk_bytes,
            lost: status.lost,
            degraded: status.degraded.map(|why| why.to_string()).unwrap_or_default(),
        }));
        self.broker.handle_timeout(monotonic_now());
    }

    /// Carries out one output of the broker.
    fn perform(&mut self, output: CameraOutput) {
        match output {
            CameraOutput::Dial { edge } => self.dial(edge),
            CameraOutput::AskKeyFrame => {
                let lacks = self
                    .lacking_since
                    .is_some_and(|since| monotonic_now().saturating_since(since) >= LACKING_TIME_MIN);
                let need = if lacks { KeyFrameNeed::Needed } else { KeyFrameNeed::Helps };
                self.shared.key_frames.send_replace(need);
            }
            CameraOutput::Send { link, message } => self.command(link, Command::Send(message)),
            CameraOutput::Transform(transform) => self.encode(transform),
            CameraOutput::TransformPast { ticket, transform } => self.encode_past(ticket, transform),
            CameraOutput::SendFrame { link, mut header, payload } => {
                if header.history == 0 {
                    self.add_stamps(&mut header);
                }
                self.command(link, Command::SendFrame(header, payload));
            }
            CameraOutput::ReadProfile { hash, bytes } => {
                let camera = self.shared.camera.clone();
                self.profiles.spawn_blocking(move || (hash, read_profile(&camera, hash, &bytes)));
            }
            CameraOutput::ReadHistory { ticket, query } => self.read_past(ticket, query),
            CameraOutput::Survey { begin, end } => self.survey((begin, end)),
            CameraOutput::Reset { link, frame } => self.command(link, Command::Reset(frame)),
            CameraOutput::Close { link } => {
                self.command(link, Command::Close);
                self.links.remove(&link);
            }
            CameraOutput::RaiseEpoch { above } => self.raise_epoch(above),
            CameraOutput::Refused { code, text } => self.report_refusal(code, text),
            CameraOutput::Revocations { signed, .. } => self.take_revocations(signed),
            CameraOutput::LinkChanged { up } => self.report_link(up),
            CameraOutput::Answer(answer) => {
                let mut answers = lock(&self.shared.answers);
                answers.put(*answer);
                // The broker may not know yet that nobody takes answers any more. This one must not wait for the next program.
                if self.shared.answer_bound.borrow().is_none() {
                    answers.clear();
                }
                drop(answers);
                self.shared.answered.notify_one();
            }
            CameraOutput::AnswersSkipped(skipped) => {
                lock(&self.shared.answers).set_skipped(skipped);
                self.shared.accounted.send_replace(());
            }
            CameraOutput::Reply { frame, application, result } => match ReplyContent::from_result(result) {
                Ok(content) => self.shared.add_reply(Reply { frame, application, content }),
                Err(error) => debug!(%frame, application, "a reply cannot be parsed: {error}"),
            },
        }
    }

    fn dial(&mut self, edge: EdgeIndex) {
        self.next_link += 1;
        self.dialler.dial(LinkId(self.next_link), edge, self.edges[edge.0].clone());
    }

    fn encode(&mut self, transform: Box<Transform>) {
        let frame = transform.frame.meta.id;
        self.trace = CameraTrace::default();
        self.trace.stamp(Stage::Chosen, monotonic_now());
        if !self.codec.begin(&self.shared.camera, transform) {
            self.broker.handle_transformed(monotonic_now(), frame, Transformed::Failed);
        }
    }

    /// Notes whether the codec could decode a frame of the source's own video.
    fn note_lacking(&mut self, transformed: &Transformed) {
        match transformed {
            Transformed::Lacking => {
                self.lacking_since.get_or_insert_with(monotonic_now);
            }
            Transformed::Made { .. } => self.lacking_since = None,
            _ => {}
        }
    }

    fn encode_past(&mut self, ticket: u64, transform: Box<Transform>) {
        self.past_ticket = ticket;
        if !self.past_codec.begin(&self.shared.camera, transform) {
            self.broker.handle_past_transformed(monotonic_now(), ticket, Transformed::Failed);
        }
    }

    fn read_past(&mut self, ticket: u64, query: PastQuery) {
        let Shared { camera, reader, places, .. } = &*self.shared;
        let past = self.past.take();
        let past = past.unwrap_or_else(|| LocalPast::new(camera, reader.clone(), places.as_deref()));
        self.reads.spawn(past.read(ticket, query));
    }

    fn raise_epoch(&mut self, above: Epoch) {
        match self.state.raise_above(above) {
            Ok(epoch) => {
                info!(camera = %self.shared.camera, epoch = epoch.0, "the edge knows a later start of this camera; continuing with a later epoch");
                if let Some(keeper) = &self.shared.keeper {
                    keeper.set_start(self.shared.camera.clone(), epoch, self.anchor);
                }
                lock(&self.shared.intake).raise_epoch(epoch);
                self.broker.handle_epoch(monotonic_now(), epoch);
            }
            Err(error) => error!(camera = %self.shared.camera, %error, "cannot begin a later epoch"),
        }
    }

    fn report_refusal(&mut self, code: RefuseCode, text: String) {
        // The broker retries after some refusals, four times a second.
        if !self.failures.is_news(&text, false) {
            return debug!(camera = %self.shared.camera, ?code, "the edge refused the camera again: {text}");
        }
        error!(camera = %self.shared.camera, ?code, "the edge refused the camera: {text}");
    }

    fn report_link(&mut self, up: bool) {
        self.failures.handle_link();
        let edge = self.broker.edge().filter(|_| up).map(|edge| self.edges[edge.0].clone());
        match &edge {
            Some(edge) => info!(camera = %self.shared.camera, %edge, "connected to the edge"),
            None => info!(camera = %self.shared.camera, "lost the connection to the edge"),
        }
        self.shared.edge.send_replace(edge);
    }

    /// Adds the stages that the broker cannot stamp because it has no clock: when the rung was chosen, and when the codec worked.
    fn add_stamps(&mut self, header: &mut FrameHeader) {
        let now = monotonic_now();
        if header.meta.rung.as_str() != Rung::ORIGINAL {
            self.trace.iter().for_each(|(stage, at)| header.trace.stamp(stage, at));
        } else if header.trace.get(Stage::Considered).is_some() {
            header.trace.stamp(Stage::Chosen, now);
        }
        header.trace.stamp(Stage::Queued, now);
    }

    pub(super) fn command(&mut self, link: LinkId, command: Command) {
        // If the task of the connection has ended, its `Closed` event follows in order, behind the edge's last messages.
        if let Some(commands) = self.links.get(&link)
            && !commands.send(command)
            && !commands.is_gone()
        {
            self.links.remove(&link);
            self.broker.handle_closed(monotonic_now(), link);
        }
    }
}

/// Parses a profile that the edge sent.
fn read_profile(camera: &CameraName, hash: ProfileHash, bytes: &[u8]) -> Option<SizedProfile> {
    match NamedProfile::read(bytes) {
        Ok(read) if read.sha256 == hash => {
            info!(%camera, app = read.app, "frames are now encoded by the profile of this application");
            Some(SizedProfile { size: read.camera_size, interval: read.interval, profile: read.profile })
        }
        Ok(_) => {
            warn!(%camera, "the edge sent another profile than the camera asked for");
            None
        }
        Err(error) => {
            warn!(%camera, "the profile from the edge cannot be used: {error}");
            None
        }
    }
}
