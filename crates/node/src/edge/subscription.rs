//! One application's subscription at an edge. It reads the replica logs itself, and hears of everything else from the loop.

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
        /// When it was where, by this machine's monotonic clock.
        times: FrameTimes,
        /// Its verdict under the contract, and the contract's state. `None` for frames of the past.
        verdict: Option<FrameVerdict>,
        /// In a group: the how manieth time it is given, from 1. 0 outside groups.
        attempt: u32,
    },
    /// The application is a member of a group from now on. Told once, at the start.
    Joined(Joined),
    /// A group gives nothing new because so many records are not settled; or, with `None`, it goes on.
    Held(Option<usize>),
    /// Somebody else has said that it is this member of the group, which ends the subscription.
    Replaced,
    /// The state of the contract changed on a camera.
    Contract(Change),
    /// A camera that matches came or went.
    Camera {
        /// The camera.
        camera: CameraName,
        /// Whether it is connected.
        up: bool,
        /// Why, if it went.
        reason: Option<String>,
    },
    /// What a camera that matches says of its source has changed.
    Source {
        /// The camera.
        camera: CameraName,
        /// How its source is.
        source: SourceStanding,
    },
    /// No camera that matches is connected; frames come as soon as one is. Told once, at the start.
    Waiting {
        /// How many cameras match, connected or not.
        matching: usize,
    },
    /// The end of the subscription's span has passed.
    Ended {
        /// The skipped frames since each camera's last frame, and what is not held.
        rest: Vec<CameraRest>,
    },
    /// A camera was reset, which ends the subscription: later frames may have lower epochs than frames that it has delivered.
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

/// What the driver knows of the cameras that a subscription reads.
#[derive(Default)]
pub(super) struct SharedCameras(HashMap<CameraName, Arc<SharedCamera>>);

impl SharedCameras {
    /// The subscription reads a camera from now on.
    pub(super) fn insert(&mut self, camera: CameraName, shared: Arc<SharedCamera>) {
        self.0.insert(camera, shared);
    }

    /// A camera was forgotten.
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
    /// What it was given, for those who look.
    pub(super) account: Open,
    /// What is said of frames is kept there, if it is kept.
    pub(super) notes: Option<Notes>,
    /// That no camera is connected is still to be told.
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

    /// Who makes stills and pictures of a camera's frames, if the camera is read.
    pub(crate) fn stills(&self, camera: &CameraName) -> Option<Arc<Stills>> {
        self.cameras.0.get(camera)?.stills()
    }

    /// What comes next. Cancelling this loses nothing.
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

    /// Asks for something else from now on, with the profile that the contract names. Readings of the past are left alone.
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

    /// Takes the accuracies that the application measured on frames, from 0 to 1. Cameras that it does not read are ignored.
    pub fn handle_accuracies(&mut self, measured: impl IntoIterator<Item = (CameraName, f64)>) {
        let now = monotonic_now();
        for (camera, accuracy) in measured {
            self.reading.session().handle_accuracy(now, &camera, accuracy);
        }
    }

    /// Takes in when the application had frames, by its client library. Cameras that it does not read are ignored.
    pub fn handle_taken(&mut self, taken: impl IntoIterator<Item = (CameraName, TakenReport)>) {
        let now = monotonic_now();
        let session = self.reading.session();
        for (camera, report) in taken {
            session.handle_taken(now, &camera, &report);
            self.account.note_taken(&camera, &report);
        }
        if let Some(way) = session.poll_way(now) {
            // Where the broker has too much to do, the next change tells.
            let _ = self.requests.try_send(Request::Way(self.id, way));
        }
    }

    /// Restarts a camera's chain that the application can no longer decode. The application gets stills until then. The camera is asked at
    /// most once in two seconds, for all applications together.
    pub fn restart_chain(&mut self, camera: CameraName) {
        if self.reading.session().handle_chain_lost(&camera) {
            // Where the broker has too much to do, the chain ends by itself after a while.
            let _ = self.requests.try_send(Request::ChainLost(camera));
        }
    }

    /// What is there now, if anything.
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
        // Whoever only looks on asks for small frames, and no application is the worse for not getting them.
        if let SessionOutput::Contract(change) = &output
            && !self.account.looks_on()
        {
            self.note_standing(change);
        }
        let served = output.into();
        self.account.note_served(&served);
        Some(served)
    }

    /// What the driver has told: what the session is to know, and what goes to the application as it is.
    fn read_letters(&mut self, now: Instant) -> Option<Served> {
        let mut letters = lock(&self.mailbox.letters);
        // One that was forgotten may have come again since.
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

    /// How the contract stands is known to whoever asks the broker.
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
