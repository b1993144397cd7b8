//! Tells the subscriptions at an edge what changes: which logs exist, which cameras come and go, and that there are new frames.

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

/// The most news items about cameras that wait for an application. Beyond that, the oldest is dropped.
const CHANGES_MAX: usize = 256;

/// What the driver shares with the subscriptions of a camera. `clock` is updated with every frame, `view` with every change that affects contracts.
#[derive(Default)]
pub(super) struct SharedCamera {
    pub(super) clock: Mutex<Option<CaptureClock>>,
    pub(super) view: Mutex<Arc<CameraView>>,
    /// Makes stills of the camera's frames. `None`: no subscription has read the camera yet.
    pub(super) stills: Mutex<Option<Arc<Stills>>>,
}

impl SharedCamera {
    /// The maker of stills of its frames, if a subscription has read the camera.
    pub(super) fn stills(&self) -> Option<Arc<Stills>> {
        lock(&self.stills).clone()
    }
}

/// What the driver has for a subscription. Its letters are bounded by the number of cameras and by [`CHANGES_MAX`].
#[derive(Default)]
pub(super) struct Mailbox {
    /// A log of the subscription has a new frame, or there is a new letter.
    pub(super) changed: Notify,
    pub(super) letters: Mutex<Letters>,
}

impl Mailbox {
    /// Queues news for the application. If the application takes none, the oldest are dropped.
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
    /// Cameras that were forgotten. If such a camera came again, its new log is in `attached`.
    pub(super) detached: Vec<CameraName>,
    /// A camera view has changed in a way that affects the contract.
    pub(super) view_changed: bool,
    /// A camera was reset, which ends the subscription.
    pub(super) reset: Option<CameraName>,
    pub(super) stopped: bool,
}

/// News about a camera that the application gets unchanged.
pub(super) enum CameraNews {
    /// The camera came or went. If it went, the reason.
    Camera(CameraName, bool, Option<String>),
    /// The camera's source gives frames, or no longer.
    Source(CameraName, SourceStanding),
}

/// A camera's log for a subscription to read.
pub(super) struct Attached {
    pub(super) camera: CameraName,
    pub(super) log: LogReader,
    /// The end of the log when the subscription was attached.
    pub(super) present: u64,
    pub(super) shared: Arc<SharedCamera>,
}

struct Subscriber {
    pattern: CameraPattern,
    granted: Granted,
    mailbox: Arc<Mailbox>,
    /// The profile that its contract names, which the driver holds for cameras.
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

    /// Gives a subscription a camera's log to read.
    pub(super) fn attach(&self, id: SubscriptionId, attached: Attached) {
        if let Some(Subscriber { mailbox, .. }) = self.0.get(&id) {
            lock(&mailbox.letters).attached.push(attached);
            mailbox.changed.notify_one();
        }
    }

    /// Wakes the subscriptions of a camera after a frame was appended to its log.
    pub(super) fn appended(&self, camera: &CameraName) {
        self.of(camera).for_each(|mailbox| mailbox.changed.notify_one());
    }

    /// Tells the subscriptions of a camera that a change affects their contracts.
    pub(super) fn view_changed(&self, camera: &CameraName) {
        for mailbox in self.of(camera) {
            lock(&mailbox.letters).view_changed = true;
            mailbox.changed.notify_one();
        }
    }

    /// Tells the subscriptions of a camera that it came or went.
    pub(super) fn camera_changed(&self, camera: &CameraName, up: bool, reason: Option<&String>) {
        self.of(camera)
            .for_each(|mailbox| mailbox.tell(CameraNews::Camera(camera.clone(), up, reason.cloned())));
    }

    /// Tells the subscriptions of a camera that its source gives frames, or no longer.
    pub(super) fn source_changed(&self, camera: &CameraName, source: &SourceStanding) {
        self.of(camera).for_each(|mailbox| mailbox.tell(CameraNews::Source(camera.clone(), source.clone())));
    }

    /// Tells a new subscription that the source of one of its cameras gives no frames.
    pub(super) fn begins_without(&self, id: SubscriptionId, camera: CameraName, source: SourceStanding) {
        if let Some(subscriber) = self.0.get(&id).filter(|subscriber| subscriber.selects(&camera)) {
            subscriber.mailbox.tell(CameraNews::Source(camera, source));
        }
    }

    /// Takes the log of a camera that was forgotten away from a subscription.
    pub(super) fn detach(&self, id: SubscriptionId, camera: CameraName) {
        if let Some(Subscriber { mailbox, .. }) = self.0.get(&id) {
            let mut letters = lock(&mailbox.letters);
            letters.attached.retain(|attached| attached.camera != camera);
            letters.detached.push(camera);
            mailbox.changed.notify_one();
        }
    }

    /// Ends a subscription because a camera that it reads was reset.
    pub(super) fn end(&self, id: SubscriptionId, camera: CameraName) {
        if let Some(Subscriber { mailbox, .. }) = self.0.get(&id) {
            lock(&mailbox.letters).reset = Some(camera);
            mailbox.changed.notify_one();
        }
    }

    /// Tells all subscriptions that the broker stops.
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
