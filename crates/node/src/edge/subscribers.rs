//! Tells the readers at an edge what changes: which logs exist, which cameras come and go, and that there are new frames.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use mez_core::broker::edge::{CameraView, CaptureClock, SubscriptionId};
use mez_core::log::LogReader;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::rights::Granted;
use mez_core::source::SourceStanding;
use tokio::sync::Notify;

use super::lock;
use crate::profiles::HeldProfile;
use crate::stills::Stills;

/// Camera changes that wait for an application. Beyond that the oldest is dropped.
const CHANGES_MAX: usize = 256;

/// What the driver knows of a camera and subscribers need: the one is updated with every frame, the other when something
/// changes that bears on contracts.
#[derive(Default)]
pub(super) struct SharedCamera {
    pub(super) clock: Mutex<Option<CaptureClock>>,
    pub(super) view: Mutex<Arc<CameraView>>,
    /// Who makes stills of its frames, once somebody reads it.
    pub(super) stills: Mutex<Option<Arc<Stills>>>,
}

impl SharedCamera {
    /// Who makes stills of its frames, if somebody has read it.
    pub(super) fn stills(&self) -> Option<Arc<Stills>> {
        lock(&self.stills).clone()
    }
}

/// What the driver has for a subscription. All but the notification is bounded: by the number of cameras, and by
/// [`CHANGES_MAX`].
#[derive(Default)]
pub(super) struct Mailbox {
    /// Something new is in one of the logs or here.
    pub(super) changed: Notify,
    pub(super) letters: Mutex<Letters>,
}

impl Mailbox {
    /// Leaves news for the application. If it does not take any, the oldest are dropped.
    fn tell(&self, news: CameraNews) {
        let mut letters = lock(&self.letters);
        if letters.changes.len() == CHANGES_MAX {
            letters.changes.pop_front();
        }
        letters.changes.push_back(news);
        self.changed.notify_one();
    }
}

#[derive(Default)]
pub(super) struct Letters {
    pub(super) attached: Vec<Attached>,
    pub(super) changes: VecDeque<CameraNews>,
    /// Cameras that were forgotten. Letters about one that came again since stand in `attached`.
    pub(super) detached: Vec<CameraName>,
    /// Something has changed that bears on the contract.
    pub(super) view_changed: bool,
    /// A camera was reset, and the subscription is over with that.
    pub(super) reset: Option<CameraName>,
    pub(super) stopped: bool,
}

/// What the application is told of a camera as it is.
pub(super) enum CameraNews {
    /// It came or went; why, if it went.
    Camera(CameraName, bool, Option<String>),
    /// Its source gives frames, or no longer.
    Source(CameraName, SourceStanding),
}

/// A camera's log that a subscription is to read.
pub(super) struct Attached {
    pub(super) camera: CameraName,
    pub(super) log: LogReader,
    /// The end of the log when the subscription began to want it, which is before the application looks.
    pub(super) present: u64,
    pub(super) shared: Arc<SharedCamera>,
}

struct Subscriber {
    pattern: CameraPattern,
    granted: Granted,
    mailbox: Arc<Mailbox>,
    /// Held for its cameras.
    profile: Option<Arc<HeldProfile>>,
}

impl Subscriber {
    fn selects(&self, camera: &CameraName) -> bool {
        self.pattern.matches(camera) && self.granted.allows(camera)
    }
}

/// All subscriptions, as the driver knows them.
#[derive(Default)]
pub(super) struct Subscribers(HashMap<SubscriptionId, Subscriber>);

impl Subscribers {
    pub(super) fn add(
        &mut self,
        id: SubscriptionId,
        (pattern, granted): (CameraPattern, Granted),
        mailbox: Arc<Mailbox>,
        profile: Option<Arc<HeldProfile>>,
    ) {
        self.0.insert(id, Subscriber { pattern, granted, mailbox, profile });
    }

    /// Returns the profile of the removed subscription, if no other uses it.
    pub(super) fn remove(&mut self, id: SubscriptionId) -> Option<Arc<HeldProfile>> {
        let gone = self.0.remove(&id);
        self.unused(gone.and_then(|subscriber| subscriber.profile))
    }

    pub(super) fn knows(&self, id: SubscriptionId) -> bool {
        self.0.contains_key(&id)
    }

    /// Returns the profile that the subscription had before, if no other uses it.
    pub(super) fn set_profile(
        &mut self,
        id: SubscriptionId,
        profile: Option<Arc<HeldProfile>>,
    ) -> Option<Arc<HeldProfile>> {
        let before = std::mem::replace(&mut self.0.get_mut(&id)?.profile, profile);
        self.unused(before)
    }

    fn unused(&self, profile: Option<Arc<HeldProfile>>) -> Option<Arc<HeldProfile>> {
        profile.filter(|held| {
            let profiles = self.0.values().filter_map(|subscriber| subscriber.profile.as_ref());
            !profiles.into_iter().any(|other| other.sha256 == held.sha256)
        })
    }

    /// A subscription is to read a camera's log from now on.
    pub(super) fn attach(&self, id: SubscriptionId, attached: Attached) {
        if let Some(Subscriber { mailbox, .. }) = self.0.get(&id) {
            lock(&mailbox.letters).attached.push(attached);
            mailbox.changed.notify_one();
        }
    }

    /// A frame has been appended to a camera's log.
    pub(super) fn appended(&self, camera: &CameraName) {
        self.of(camera).for_each(|mailbox| mailbox.changed.notify_one());
    }

    /// Something of a camera has changed that bears on contracts.
    pub(super) fn view_changed(&self, camera: &CameraName) {
        for mailbox in self.of(camera) {
            lock(&mailbox.letters).view_changed = true;
            mailbox.changed.notify_one();
        }
    }

    /// A camera came or went.
    pub(super) fn camera_changed(&self, camera: &CameraName, up: bool, reason: Option<&String>) {
        self.of(camera)
            .for_each(|mailbox| mailbox.tell(CameraNews::Camera(camera.clone(), up, reason.cloned())));
    }

    /// A camera's source gives frames, or no longer.
    pub(super) fn source_changed(&self, camera: &CameraName, source: &SourceStanding) {
        self.of(camera).for_each(|mailbox| mailbox.tell(CameraNews::Source(camera.clone(), source.clone())));
    }

    /// A subscription begins, and a camera of it has a source that gives no frames.
    pub(super) fn begins_without(&self, id: SubscriptionId, camera: CameraName, source: SourceStanding) {
        if let Some(subscriber) = self.0.get(&id).filter(|subscriber| subscriber.selects(&camera)) {
            subscriber.mailbox.tell(CameraNews::Source(camera, source));
        }
    }

    /// A subscription is to read the log of a camera no more, which was forgotten.
    pub(super) fn detach(&self, id: SubscriptionId, camera: CameraName) {
        if let Some(Subscriber { mailbox, .. }) = self.0.get(&id) {
            let mut letters = lock(&mailbox.letters);
            letters.attached.retain(|attached| attached.camera != camera);
            letters.detached.push(camera);
            mailbox.changed.notify_one();
        }
    }

    /// A camera that a subscription reads was reset, which ends the subscription.
    pub(super) fn end(&self, id: SubscriptionId, camera: CameraName) {
        if let Some(Subscriber { mailbox, .. }) = self.0.get(&id) {
            lock(&mailbox.letters).reset = Some(camera);
            mailbox.changed.notify_one();
        }
    }

    /// The broker stops.
    pub(super) fn stop(&self) {
        for Subscriber { mailbox, .. } in self.0.values() {
            lock(&mailbox.letters).stopped = true;
            mailbox.changed.notify_one();
        }
    }

    fn of<'a>(&'a self, camera: &'a CameraName) -> impl Iterator<Item = &'a Arc<Mailbox>> {
        let matching = self.0.values().filter(|subscriber| subscriber.selects(camera));
        matching.map(|subscriber| &subscriber.mailbox)
    }
}
