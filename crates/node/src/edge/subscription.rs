//! One application's subscription at an edge. It reads the replica logs itself, and gets everything else from the loop.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use mez_core::broker::edge::{CameraView, SubscriptionId};
use mez_core::contract::Contract;
use mez_core::contract::monitor::TakenReport;
use mez_core::contract::watch::{Change, FrameVerdict};
use mez_core::group::session::Joined;
use mez_core::log::Record;
use mez_core::name::CameraName;
use mez_core::session::{CameraRest, FrameTimes, KnownCameras, SessionOutput};
use mez_core::source::SourceStanding;
use mez_core::stills::{StillAnswer, StillQuery};
use mez_core::subscription::Delivery;
use mez_core::units::Instant;
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use super::accounts::Open;
use super::failure::Stopped;
use super::lock;
use super::request::Request;
use super::standing::{Standing, Standings, forget};
use super::subscribers::{Attached, CameraNews, Mailbox, SharedCamera};
use crate::clock::monotonic_now;
use crate::notes::{NoteContent, NotedContract, Notes};
use crate::profiles::HeldProfile;
use crate::reading::{AsksStills, Reading};
use crate::stills::Stills;

/// What a broker serves to an application.
#[derive(Debug)]
pub enum Served {
    /// A frame.
    Frame {
        /// The frame, and what was skipped before it.
        delivery: Box<Delivery>,
        /// When the frame passed each stage, by this machine's monotonic clock.
        times: FrameTimes,
        /// Its verdict under the contract, and the contract's state. `None` for frames of the past.
        verdict: Option<FrameVerdict>,
        /// In a group: how often this record has been given, this time included. Outside groups: 0.
        attempt: u32,
    },
    /// The application is a member of a group from now on. Told once, at the start.
    Joined(Joined),
    /// A group gives nothing new because this many records are not settled. `None`: it goes on.
    Held(Option<usize>),
    /// Another stream has joined the group as this member, which ends the subscription.
    Replaced,
    /// The state of the contract changed on a camera.
    Contract(Change),
    /// A matching camera came or went.
    Camera {
        /// The camera.
        camera: CameraName,
        /// Whether it is connected.
        up: bool,
        /// The reason, if the camera went.
        reason: Option<String>,
    },
    /// A matching camera reports a new state of its source.
    Source {
        /// The camera.
        camera: CameraName,
        /// The state of the source.
        source: SourceStanding,
    },
    /// No matching camera is connected; frames come as soon as one connects. Told once, at the start.
    Waiting {
        /// How many cameras match, connected or not.
        matching: usize,
    },
    /// The end of the subscription's span has passed.
    Ended {
        /// For each camera the frames that were skipped since its last frame, and what is not held.
        rest: Vec<CameraRest>,
    },
    /// A camera was reset, which ends the subscription: later frames may have lower epochs than frames that were delivered.
    Reset {
        /// The camera.
        camera: CameraName,
    },
    /// The broker stops.
    Stopped,
}

impl From<SessionOutput> for Served {
    fn from(output: SessionOutput) -> Self {
        match output {
            SessionOutput::Frame { delivery, times, verdict } => {
                Self::Frame { delivery, times, verdict, attempt: 0 }
            }
            SessionOutput::Contract(change) => Self::Contract(change),
            SessionOutput::Ended { rest } => Self::Ended { rest },
        }
    }
}

/// What the driver shares of the cameras that a subscription reads.
#[derive(Default)]
pub(super) struct SharedCameras(HashMap<CameraName, Arc<SharedCamera>>);

impl SharedCameras {
    /// Adds a camera that the subscription reads from now on.
    pub(super) fn insert(&mut self, camera: CameraName, shared: Arc<SharedCamera>) {
        self.0.insert(camera, shared);
    }

    /// Removes a camera that was forgotten.
    pub(super) fn remove(&mut self, camera: &CameraName) {
        self.0.remove(camera);
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &CameraName> {
        self.0.keys()
    }
}

impl AsksStills for SharedCameras {
    fn still(&self, camera: &CameraName, query: StillQuery) -> Option<oneshot::Receiver<StillAnswer>> {
        self.0.get(camera)?.stills().map(|stills| stills.ask(query))
    }
}

impl KnownCameras for SharedCameras {
    fn times(&self, camera: &CameraName, record: &Record) -> FrameTimes {
        let clock = self.0.get(camera).and_then(|shared| *lock(&shared.clock));
        clock.map(|clock| FrameTimes::by_clock(&clock, record)).unwrap_or_default()
    }

    fn view(&self, camera: &CameraName) -> Arc<CameraView> {
        self.0.get(camera).map(|shared| Arc::clone(&lock(&shared.view))).unwrap_or_default()
    }
}

/// An application's subscription at the edge. Dropping it unsubscribes.
pub struct EdgeSubscription {
    pub(super) id: SubscriptionId,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) reading: Reading,
    pub(super) cameras: SharedCameras,
    pub(super) application: String,
    pub(super) standings: Arc<Mutex<Standings>>,
    /// The account of what it was given.
    pub(super) account: Open,
    /// Notes on frames. `None`: the edge keeps no notes.
    pub(super) notes: Option<Notes>,
    /// The application must still be told that no camera is connected.
    pub(super) waiting: bool,
    /// How often the application was too slow for a chain.
    pub(super) chains_lost: u64,
    pub(super) requests: mpsc::Sender<Request>,
}

impl EdgeSubscription {
    /// The subscription's identity at this broker.
    pub fn id(&self) -> SubscriptionId {
        self.id
    }

    /// The maker of stills and pictures of a camera's frames, if the subscription reads the camera.
    pub(crate) fn stills(&self, camera: &CameraName) -> Option<Arc<Stills>> {
        self.cameras.0.get(camera)?.stills()
    }

    /// Waits for the next message. Cancel-safe.
    pub async fn next(&mut self) -> Served {
        loop {
            let looked = monotonic_now();
            if let Some(served) = self.try_next() {
                return served;
            }
            let mailbox = Arc::clone(&self.mailbox);
            tokio::select! {
                () = mailbox.changed.notified() => {}
                () = self.reading.stirs(looked) => {}
            }
        }
    }

    /// Replaces the contract and the profile that it names. Has no effect on a subscription to the past, whose contract is not watched.
    pub async fn update(
        &mut self,
        contract: Contract,
        profile: Option<Arc<HeldProfile>>,
    ) -> Result<(), Stopped> {
        let sized = profile.as_ref().map(|held| Arc::clone(&held.profile));
        if self.reading.session().handle_update(monotonic_now(), contract.clone(), sized) {
            self.account.update(contract.clone());
            let request = Request::Update(self.id, Box::new(contract), profile);
            self.requests.send(request).await.map_err(|_| Stopped)?;
        }
        Ok(())
    }

    /// Takes accuracies that the application measured on frames, from 0 to 1. Cameras that the subscription does not read are ignored.
    pub fn handle_accuracies(&mut self, measured: impl IntoIterator<Item = (CameraName, f64)>) {
        let now = monotonic_now();
        for (camera, accuracy) in measured {
            self.reading.session().handle_accuracy(now, &camera, accuracy);
        }
    }

    /// Takes reports of the client library on when the application had frames. Cameras that the subscription does not read are ignored.
    pub fn handle_taken(&mut self, taken: impl IntoIterator<Item = (CameraName, TakenReport)>) {
        let now = monotonic_now();
        let session = self.reading.session();
        for (camera, report) in taken {
            session.handle_taken(now, &camera, &report);
            self.account.note_taken(&camera, &report);
        }
        if let Some(way) = session.poll_way(now) {
            // If the loop's queue is full, the next change is reported instead.
            let _ = self.requests.try_send(Request::Way(self.id, way));
        }
    }

    /// Restarts a camera's chain that the application can no longer decode. Until then the application gets
    /// stills. The camera is asked at most once in two seconds, for all applications together.
    pub fn restart_chain(&mut self, camera: CameraName) {
        if self.reading.session().handle_chain_lost(&camera) {
            // If the loop's queue is full, the request is lost; the chain ends by itself after a while.
            let _ = self.requests.try_send(Request::ChainLost(camera));
        }
    }

    /// The next message, if there is one now.
    pub fn try_next(&mut self) -> Option<Served> {
        let now = monotonic_now();
        if let Some(served) = self.read_letters(now) {
            return Some(served);
        }
        if std::mem::take(&mut self.waiting) {
            return Some(Served::Waiting { matching: self.reading.session().cameras().count() });
        }
        let output = self.reading.poll(now, &self.cameras);
        let lost = self.reading.session().chains_lost();
        if std::mem::replace(&mut self.chains_lost, lost) < lost {
            debug!(subscription = self.id.0, application = self.application, "too slow for a chain");
        }
        let output = output?;
        // A subscription that only looks on asks for small frames. Its contract state is no concern of applications, so it is not published.
        if let SessionOutput::Contract(change) = &output
            && !self.account.looks_on()
        {
            self.note_standing(change);
        }
        let served = output.into();
        self.account.note_served(&served);
        Some(served)
    }

    /// Takes in what the driver has told. Returns news that goes to the application unchanged.
    fn read_letters(&mut self, now: Instant) -> Option<Served> {
        let mut letters = lock(&self.mailbox.letters);
        // A forgotten camera may have come again, so `detached` is handled before `attached`.
        for camera in letters.detached.drain(..) {
            self.reading.forget(&camera);
            self.cameras.remove(&camera);
            self.account.forget(&camera);
            forget(&mut lock(&self.standings), &camera, self.id);
        }
        let session = self.reading.session();
        for Attached { camera, log, present, shared } in letters.attached.drain(..) {
            self.cameras.insert(camera.clone(), shared);
            session.handle_attach(now, camera, log, present);
        }
        if std::mem::take(&mut letters.view_changed) {
            session.handle_view_changed();
        }
        if let Some(change) = letters.changes.pop_front() {
            return Some(match change {
                CameraNews::Camera(camera, up, reason) => Served::Camera { camera, up, reason },
                CameraNews::Source(camera, source) => Served::Source { camera, source },
            });
        }
        if let Some(camera) = letters.reset.take() {
            return Some(Served::Reset { camera });
        }
        letters.stopped.then_some(Served::Stopped)
    }

    /// Publishes the contract's state to those who ask the broker, and notes it.
    fn note_standing(&mut self, change: &Change) {
        let Some(contract) = self.reading.session().contract().cloned() else { return };
        let Change { camera, state, reason, .. } = change.clone();
        if let Some(notes) = &self.notes {
            let (application, reason) = (self.application.clone(), reason.clone());
            notes.note(&camera, NoteContent::Contract(NotedContract { application, state, reason }));
        }
        let standing = Standing { application: self.application.clone(), contract, state, reason };
        lock(&self.standings).entry(camera).or_default().insert(self.id, standing);
    }
}

impl Drop for EdgeSubscription {
    fn drop(&mut self) {
        let (id, requests) = (self.id, self.requests.clone());
        {
            let mut standings = lock(&self.standings);
            self.cameras.names().for_each(|camera| forget(&mut standings, camera, id));
        }
        if let Err(mpsc::error::TrySendError::Full(request)) = requests.try_send(Request::Unsubscribe(id))
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { requests.send(request).await });
        }
    }
}
