//! Frames as they come.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mez_core::contract::{Contract, ContractState};
use mez_core::frame::{Encoding, Rung, SkipCounts};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::subscription::{Deliver, LastFrame, NotHeld, merged};
use mez_core::trace::Stage;
use mez_core::units::{Instant, Timestamp};
use tokio::sync::Notify;

use super::chains::{ChainDecoders, Sink};
use super::dial::{Dialler, EventStream};
use super::edges::Edges;
use super::error::ClientError;
use super::frame::{ReceivedFrame, contract_state};
use super::mailbox::Mailbox;
use super::{OwnedTask, REDIAL_INTERVAL};
use crate::api::contract::Profile;
use crate::api::pb::subscribe_event::Event as Message;
use crate::api::{contract, convert, pb};
use crate::clock::{monotonic_now, wall_now};

/// How long no frame has to come before a program that knows several edges looks whether its cameras are at another one, and how
/// often it looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The edge is told at most so often that a camera's chain cannot be decoded; it asks the camera no more often.
const RESTART_INTERVAL: Duration = Duration::from_secs(2);

/// What to subscribe to, and how.
#[derive(Clone, Debug)]
pub struct SubscribeOptions {
    /// Which cameras.
    pub pattern: CameraPattern,
    /// The first capture time wanted. Default: what is published from now on.
    pub begin: Option<Timestamp>,
    /// The last capture time wanted. Default: no end.
    pub end: Option<Timestamp>,
    /// What is demanded of the frames. Default: nothing, so that they come unmodified, as soon as possible. The hash in it is not looked at:
    /// `profile` says which.
    pub contract: Contract,
    /// What each way to make frames cheaper costs and keeps. Default: none.
    pub profile: Option<Profile>,
    /// Newest or every. Default: every where `begin` lies in the past, else newest.
    pub deliver: Option<Deliver>,
    /// The encodings that may come. Default: all stills. Where H264 or tiles are named, together with a still, whole chains come and are
    /// decoded here: their frames have pixels ([`Encoding::Bgr8`]), and a rung that says what the camera did.
    pub accept_encodings: Vec<Encoding>,
    /// Of the past: the rung at which frames are wanted, one for which a frame needs no other. Default: as the edge holds them, and as they
    /// were published where it has to ask the camera.
    pub quality: Option<Rung>,
    /// Of the past: only frames that the edge holds; no camera is asked. Default false.
    pub held_only: bool,
    /// What becomes of frames that the program did not get when they were new, also because a broker was killed. Default: they are counted.
    pub resume: Resume,
    /// The last frames that the program has from an earlier subscription, behind which the account of their cameras goes on; of each camera
    /// at most one. Default: none.
    pub after: Vec<(CameraName, LastFrame)>,
    /// Whether to dial again, every 250 ms and without end, when the broker is lost. Default true. Otherwise the loss is
    /// the last event.
    pub reconnect: bool,
    /// With every frame: how many may wait in this program before the broker has to wait. Default 8.
    pub waiting_frames_max: usize,
}

impl SubscribeOptions {
    /// The defaults, for the cameras that match `pattern`.
    pub fn new(pattern: CameraPattern) -> Self {
        Self {
            pattern,
            begin: None,
            end: None,
            contract: Contract::default(),
            profile: None,
            deliver: None,
            accept_encodings: Vec::new(),
            quality: None,
            held_only: false,
            resume: Resume::default(),
            after: Vec::new(),
            reconnect: true,
            waiting_frames_max: 8,
        }
    }

    fn message(&self, application: &str) -> pb::SubscribeRequest {
        pb::SubscribeRequest {
            pattern: self.pattern.as_str().into(),
            begin_utc_ns: self.begin.map(Timestamp::as_nanos),
            end_utc_ns: self.end.map(Timestamp::as_nanos),
            contract: Some(contract::message(&self.contract, self.profile.as_ref())),
            deliver: self.deliver.map_or(pb::Deliver::Unspecified, |deliver| match deliver {
                Deliver::Newest => pb::Deliver::Newest,
                Deliver::Every => pb::Deliver::Every,
            }) as i32,
            accept_encodings: self.accept_encodings.iter().map(|encoding| *encoding as i32).collect(),
            application: application.into(),
            quality: self.quality.as_ref().map(|rung| rung.as_str().into()).unwrap_or_default(),
            held_only: self.held_only,
            resume: match self.resume {
                Resume::Newest => pb::Resume::Newest,
                Resume::Fill => pb::Resume::Fill,
            } as i32,
            after: self.after.iter().map(convert::last_frame).collect(),
        }
    }
}

/// What becomes of frames that a program did not get when they were new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// They are told, by number or by time.
    #[default]
    Newest,
    /// They are fetched, and come before the frames behind them: every frame that its camera still has, in order, exactly once, also when
    /// brokers were killed in between.
    Fill,
}

/// What happens on a subscription.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A frame.
    Frame(Box<ReceivedFrame>),
    /// A camera that matches came or went.
    Camera {
        /// The camera.
        camera: CameraName,
        /// Whether it is connected.
        up: bool,
        /// Why it went, for people.
        reason: Option<String>,
    },
    /// The contract stands otherwise than before on a camera. Also told where no frames come.
    Contract {
        /// The camera.
        camera: CameraName,
        /// The state.
        state: ContractState,
        /// A sentence that says why.
        reason: String,
    },
    /// Nothing that matches is connected; frames come as soon as it is.
    Waiting {
        /// How many cameras match that the edge knows.
        matching: usize,
    },
    /// The broker was lost, and is being dialled.
    Disconnected {
        /// Why.
        reason: ClientError,
    },
    /// The broker is back. Frames missed meanwhile come, with [`Resume::Fill`], or are counted as `link_down` with the next of each camera.
    Reconnected,
    /// The end that was asked for has passed. The last event.
    Ended {
        /// What is left to account for of each camera.
        rest: Vec<(CameraName, SkipCounts, Option<NotHeld>)>,
    },
    /// The subscription cannot go on. The last event.
    Failed {
        /// Why.
        reason: ClientError,
    },
}

/// A subscription of a program. Dropping it unsubscribes.
///
/// A task reads all that comes without waiting for the program. With [`Deliver::Newest`] it keeps the newest frame of
/// each camera, so that what [`Subscription::next`] returns is the newest however long the program took, and counts the
/// ones in between as `application_busy`; cameras take turns. With [`Deliver::Every`] it keeps a few, and then lets the broker wait.
///
/// Per camera, frames come at most once and in order, also when the connection was lost in between.
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<Shared>,
    deliver: Deliver,
    cameras: Vec<CameraName>,
    _task: OwnedTask,
}

#[derive(Debug)]
struct Shared {
    mailbox: Mutex<Mailbox>,
    /// Something was put into the mailbox.
    came: Notify,
    /// Something was taken out of it.
    went: Notify,
    opened: Mutex<Opened>,
}

/// What is asked, and of whom; all may change.
#[derive(Debug)]
struct Opened {
    edge: Dialler,
    /// The edge's number for the subscription.
    id: u64,
    request: pb::SubscribeRequest,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Mailbox> {
        // Every call leaves it whole.
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        // Every statement leaves it whole.
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, put: impl FnOnce(&mut Mailbox)) {
        put(&mut self.lock());
        self.came.notify_one();
    }

    async fn has_room(&self) {
        while !self.lock().has_room() {
            self.went.notified().await;
        }
    }
}

impl Subscription {
    pub(super) async fn open(
        edges: Edges,
        options: SubscribeOptions,
        application: &str,
        compare: Arc<Notify>,
    ) -> Result<Self, ClientError> {
        let (request, opened) = (options.message(application), wall_now());
        let (dialler, stream, started) = edges.subscribe(edges.place(), &request).await?;
        let deliver = match started.deliver() {
            pb::Deliver::Every => Deliver::Every,
            _ => Deliver::Newest,
        };
        let shared = Arc::new(Shared {
            mailbox: Mutex::new(Mailbox::new(deliver, options.waiting_frames_max)),
            came: Notify::new(),
            went: Notify::new(),
            // Asked anew, it has to mean the same also when the beginning has passed meanwhile.
            opened: Mutex::new(Opened {
                edge: dialler.clone(),
                id: started.subscription_id,
                request: pb::SubscribeRequest { deliver: started.deliver, ..request },
            }),
        });
        let reading = Reading {
            edges,
            dialler,
            deliver,
            reconnect: options.reconnect,
            decoders: ChainDecoders::new(deliver == Deliver::Every, Handing::new(&shared)),
            shared: Arc::clone(&shared),
            compare,
            last: options.after,
            opened,
            untold: HashMap::new(),
        };
        let cameras = started.cameras.iter().filter_map(|camera| camera.parse().ok()).collect();
        Ok(Self { shared, deliver, cameras, _task: OwnedTask::spawn(reading.run(stream)) })
    }

    /// The cameras that matched at the start, connected or not.
    pub fn cameras(&self) -> &[CameraName] {
        &self.cameras
    }

    /// Newest or every: what was asked for, or what the broker chose.
    pub fn deliver(&self) -> Deliver {
        self.deliver
    }

    /// What changes and informs it, also while something waits for its next event.
    pub fn control(&self) -> SubscriptionControl {
        SubscriptionControl { shared: Arc::clone(&self.shared) }
    }

    /// See [`SubscriptionControl::update`].
    pub async fn update(&self, contract: &Contract, profile: Option<&Profile>) -> Result<(), ClientError> {
        self.control().update(contract, profile).await
    }

    /// What comes next; nothing after [`Event::Ended`] or [`Event::Failed`]. Cancelling this loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            if self.shared.lock().is_over() {
                return None;
            }
            self.shared.came.notified().await;
        }
    }

    /// What is there now.
    pub fn try_next(&mut self) -> Option<Event> {
        let mut event = self.shared.lock().take();
        self.shared.went.notify_one();
        if let Some(Event::Frame(frame)) = &mut event {
            frame.stamp(Stage::Taken);
        }
        event
    }
}

/// Where decoders put pictures, and whom they tell what they cannot decode.
struct Handing {
    shared: Arc<Shared>,
    runtime: tokio::runtime::Handle,
    /// When the edge was last told of a camera.
    told: Mutex<HashMap<CameraName, Instant>>,
}

impl Handing {
    fn new(shared: &Arc<Shared>) -> Arc<Self> {
        let (shared, runtime) = (Arc::clone(shared), tokio::runtime::Handle::current());
        Arc::new(Self { shared, runtime, told: Mutex::default() })
    }
}

impl Sink for Handing {
    fn put(&self, frame: Box<ReceivedFrame>) {
        self.shared.put(|mailbox| mailbox.put_frame(frame));
    }

    fn restart(&self, camera: &CameraName) {
        let now = monotonic_now();
        // Every statement leaves it whole.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(camera).is_some_and(|last| now.saturating_since(*last) < RESTART_INTERVAL) {
            return;
        }
        told.insert(camera.clone(), now);
        let (edge, subscription_id) = {
            let opened = self.shared.opened();
            (opened.edge.clone(), opened.id)
        };
        let request = pb::RestartChainRequest { subscription_id, camera: camera.as_str().into() };
        self.runtime.spawn(async move {
            if let Err(error) = edge.restart_chain(request).await {
                tracing::debug!("the edge was not told of a chain that cannot be decoded: {error}");
            }
        });
    }
}

/// Changes and informs a subscription. Does not keep it open.
#[derive(Clone, Debug)]
pub struct SubscriptionControl {
    shared: Arc<Shared>,
}

impl SubscriptionControl {
    /// Asks for something else from now on; cameras, span and encodings stay as they were. Also holds after the connection was lost.
    pub async fn update(&self, contract: &Contract, profile: Option<&Profile>) -> Result<(), ClientError> {
        let contract = Some(contract::message(contract, profile));
        let (edge, subscription_id) = {
            let mut opened = self.shared.opened();
            opened.request.contract.clone_from(&contract);
            (opened.edge.clone(), opened.id)
        };
        edge.update_contract(pb::UpdateContractRequest { subscription_id, contract }).await.map(|_| ())
    }

    /// Says how accurate the application's own result on a frame of `camera` was, from 0 to 1.
    pub async fn report_accuracy(&self, camera: &CameraName, accuracy: f64) -> Result<(), ClientError> {
        let (edge, subscription_id) = {
            let opened = self.shared.opened();
            (opened.edge.clone(), opened.id)
        };
        let camera = camera.as_str().to_owned();
        let request = pb::ReportAccuracyRequest { subscription_id, camera, accuracy };
        edge.report_accuracy(request).await.map(|_| ())
    }
}

/// Why a subscription has to be opened anew, and where first; nowhere: where it was.
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
struct Reading {
    edges: Edges,
    /// The edge that the stream is of.
    dialler: Dialler,
    deliver: Deliver,
    reconnect: bool,
    decoders: ChainDecoders<Handing>,
    shared: Arc<Shared>,
    compare: Arc<Notify>,
    /// The last frame that came of each camera.
    last: Vec<(CameraName, LastFrame)>,
    /// When the program subscribed, by its own clock.
    opened: Timestamp,
    /// Stretches that are not held and were to be told with frames that could not be shown, until the next frame of their camera.
    untold: HashMap<CameraName, NotHeld>,
}

impl Reading {
    async fn run(mut self, mut stream: EventStream) {
        loop {
            let read = self.read(&mut stream).await;
            let owed = self.decoders.finish().await;
            let (reason, preferred) = match read {
                Ok(mut rest) => {
                    for (camera, skipped, not_held) in &mut rest {
                        owed.get(camera).copied().unwrap_or_default().tell(skipped, not_held);
                    }
                    return self.shared.put(|mailbox| mailbox.finish(Event::Ended { rest }));
                }
                // What is owed then counts with what is missed meanwhile; stretches are told with the next frame.
                Err(Lost { reason, preferred }) => {
                    let untold = owed.into_iter().filter_map(|(camera, owed)| Some((camera, owed.not_held?)));
                    self.untold.extend(untold);
                    (reason, preferred)
                }
            };
            if !self.reconnect || !reason.is_passing() {
                return self.shared.put(|mailbox| mailbox.finish(Event::Failed { reason }));
            }
            self.shared.put(|mailbox| {
                mailbox.put_notice(Event::Disconnected { reason });
                mailbox.resume();
            });
            stream = match self.redial(preferred).await {
                Ok(stream) => stream,
                Err(reason) => return self.shared.put(|mailbox| mailbox.finish(Event::Failed { reason })),
            };
            self.compare.notify_one();
            self.shared.put(|mailbox| mailbox.put_notice(Event::Reconnected));
        }
    }

    /// Reads until the subscription has ended or the connection is lost.
    async fn read(
        &mut self,
        stream: &mut EventStream,
    ) -> Result<Vec<(CameraName, SkipCounts, Option<NotHeld>)>, Lost> {
        let mut look = tokio::time::Instant::now() + LOOK_INTERVAL;
        loop {
            let lost = || ClientError::Unreachable {
                address: self.dialler.address().clone(),
                reason: "the broker closed the connection".into(),
            };
            match self.next(stream, &mut look).await?.ok_or_else(lost)? {
                Message::Started(_) => {}
                Message::Frame(frame) => {
                    look = tokio::time::Instant::now() + LOOK_INTERVAL;
                    let clock = self.dialler.clock();
                    let frame = ReceivedFrame::from_message(*frame, monotonic_now(), clock);
                    let mut frame = Box::new(frame.map_err(|what| self.dialler.protocol(what))?);
                    self.note(&frame);
                    frame.not_held = merged(self.untold.remove(&frame.camera), frame.not_held);
                    self.shared.has_room().await;
                    self.decoders.take(frame).await;
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

    /// What comes next. While no frame does, it looks whether a camera has moved to another edge.
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

    /// Dials until the broker is back, or another one is there, or one says something that will not pass.
    async fn redial(&mut self, preferred: Option<usize>) -> Result<EventStream, ClientError> {
        let mut request = self.shared.opened().request.clone();
        // Go on where we were.
        request.after = self.last.iter().map(convert::last_frame).collect();
        if request.resume() == pb::Resume::Fill {
            // Of cameras that have sent nothing so far, from when we began.
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
            match self.edges.subscribe(preferred.take().unwrap_or_else(|| self.edges.place()), &request).await
            {
                Ok((edge, stream, started)) => {
                    let mut opened = self.shared.opened();
                    (opened.edge, opened.id) = (edge.clone(), started.subscription_id);
                    drop(opened);
                    self.dialler = edge;
                    return Ok(stream);
                }
                Err(error) if error.is_passing() => tracing::trace!(%error, "the broker is still away"),
                Err(error) => return Err(error),
            }
        }
    }
}
