//! The handle of a running edge broker: subscribes applications, and answers questions about cameras.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use mez_core::answers::Room;
use mez_core::broker::edge::{CameraInfo, GivenAnswer, SubscriptionId};
use mez_core::contract::Contract;
use mez_core::contract::monitor::TakenReport;
use mez_core::controller::share::Channels;
use mez_core::frame::FrameId;
use mez_core::group::members::GroupKey;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::session::Session;
use mez_core::store::StoreStatus;
use mez_core::subscription::{Span, SubscriptionSpec};
use tokio::sync::{mpsc, oneshot, watch};

use super::accounts::{AccountNow, Accounts, AgesSeen, Open, Totals};
use super::failure::{AnswerFailure, ReplyFailure, Stopped};
use super::forget::{ForgetFailure, ForgetReport};
use super::groups::{
    EdgeGroups, ForgetGroupFailure, GroupMember, GroupReport, JoinFailure, Joining, SettledRecords,
    Settlements,
};
use super::lock;
use super::look::CameraLook;
use super::renewals::{Asker, Renewals};
use super::replies::{LastReplies, LastReply};
use super::request::{Opening, Replied, Request};
use super::reset::{ResetFailure, ResetReport};
use super::standing::{Standing, Standings};
use super::starts::{CameraRecord, Starts};
use super::subscribers::Mailbox;
use super::subscription::{EdgeSubscription, SharedCameras};
use crate::audit::Audit;
use crate::clock::anchor;
use crate::derived::DerivedStates;
use crate::identity::Signer;
use crate::identity::name::SiteName;
use crate::notes::Notes;
use crate::persist::{LogFiles, LogKeeper};
use crate::profiles::{HeldProfile, ProfileStore};
use crate::reading::{PastSources, Reading};
use crate::reply::ReplyContent;
use crate::revocation::LiveRevocations;

/// A running edge broker. Cheap to clone.
#[derive(Clone)]
pub struct EdgeHandle {
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) address: SocketAddr,
    pub(super) site: SiteName,
    pub(super) frame_bytes_max: u32,
    pub(super) next_subscription: Arc<AtomicU64>,
    pub(super) next_publisher: Arc<AtomicU64>,
    /// The private folder in which clips are made. `None`: there is no store to make clips of.
    pub(super) clips: Option<PathBuf>,
    /// The epochs of derived streams.
    pub(super) derived: DerivedStates,
    pub(super) stop: Arc<watch::Sender<bool>>,
    pub(super) keeper: Option<LogKeeper<LogFiles>>,
    /// Notes on frames, such as replies. `None`: the edge keeps no notes.
    pub(super) notes: Option<Notes>,
    pub(super) starts: Starts,
    /// The deny list.
    pub(super) revoked: LiveRevocations,
    pub(super) renewals: Renewals,
    /// The sources of past frames.
    pub(super) places: Arc<PastSources>,
    pub(super) profiles: Arc<ProfileStore>,
    pub(super) standings: Arc<Mutex<Standings>>,
    pub(super) accounts: Accounts,
    pub(super) replies: LastReplies,
    pub(super) audit: Audit,
    pub(super) groups: EdgeGroups,
}

impl EdgeHandle {
    /// The address that camera brokers connect to.
    pub fn link_address(&self) -> SocketAddr {
        self.address
    }

    /// The largest payload that is accepted from a camera, in bytes.
    pub fn frame_bytes_max(&self) -> u32 {
        self.frame_bytes_max
    }

    /// Has certificates renewed by this signer from now on. Only the first call counts.
    pub fn set_signer(&self, signer: Signer) {
        self.renewals.set(signer);
    }

    /// Answers a `RenewCertificateRequest`.
    pub(crate) async fn renew(&self, request: Bytes, asker: &Asker) -> Bytes {
        self.renewals.answer(request, asker).await
    }

    /// Stops the broker: ends subscriptions, closes connections, writes out logs and notes, and waits until all is done.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        self.requests.closed().await;
        let (keeper, notes, audit) = (self.keeper.clone(), self.notes.clone(), self.audit.clone());
        let stop = move || {
            audit.stop();
            if let Some(notes) = notes {
                notes.stop();
            }
            if let Some(keeper) = keeper {
                keeper.stop();
            }
        };
        let _ = tokio::task::spawn_blocking(stop).await;
    }

    /// The state of a camera's log on this disk. `None`: there is no such log.
    pub fn log_on_disk(&self, camera: &CameraName) -> Option<StoreStatus> {
        self.keeper.as_ref()?.status(camera)
    }

    /// Subscribes to all cameras that match, present and future.
    pub async fn subscribe(
        &self,
        pattern: CameraPattern,
        contract: Contract,
        span: Span,
    ) -> Result<EdgeSubscription, Stopped> {
        let spec = SubscriptionSpec { contract, ..SubscriptionSpec::new(pattern, span) };
        self.subscribe_as(spec, None).await
    }

    /// Subscribes with everything that an application can ask for, and the profile that its contract names.
    pub async fn subscribe_as(
        &self,
        spec: SubscriptionSpec,
        profile: Option<Arc<HeldProfile>>,
    ) -> Result<EdgeSubscription, Stopped> {
        let id = SubscriptionId(self.next_subscription.fetch_add(1, Ordering::Relaxed));
        let (mailbox, clock) = (Arc::new(Mailbox::default()), anchor());
        let (answer, connected) = oneshot::channel();
        let sized = profile.as_ref().map(|held| Arc::clone(&held.profile));
        let opening = Opening { id, spec: spec.clone(), profile, clock, mailbox: Arc::clone(&mailbox) };
        self.requests.send(Request::Subscribe(Box::new(opening), answer)).await.map_err(|_| Stopped)?;
        let account = Open(self.accounts.open(id, &spec, None));
        let (span, application) = (spec.span, spec.application.clone());
        let open = |spec: &SubscriptionSpec| Session::at_edge(clock, spec, id, sized);
        // From here on, dropping the subscription unsubscribes.
        let mut subscription = EdgeSubscription {
            id,
            mailbox,
            reading: Reading::new(spec, Some(Arc::clone(&self.places)), open),
            cameras: SharedCameras::default(),
            application,
            standings: Arc::clone(&self.standings),
            account,
            notes: self.notes.clone(),
            waiting: false,
            chains_lost: 0,
            requests: self.requests.clone(),
        };
        let (connected, patience) = connected.await.map_err(|_| Stopped)?;
        if let Some(patience) = patience {
            subscription.reading.session().expect_cameras_until(patience);
        }
        let may_come = span.is_live(clock.wall) || patience.is_some();
        subscription.waiting = connected == 0 && may_come;
        Ok(subscription)
    }

    /// Lets an application into a group of readers. A new group begins.
    pub async fn join_group(&self, joining: Joining) -> Result<GroupMember, JoinFailure> {
        self.groups.join(joining).await
    }

    /// Passes on what a member of a group reports of records. `None`: the group has no members.
    pub async fn settle(&self, group: &GroupKey, settlements: Settlements) -> Option<SettledRecords> {
        self.groups.settle(group, settlements).await
    }

    /// Passes on when members of a group had records.
    pub(crate) async fn taken_in_group(&self, group: &GroupKey, taken: Vec<(CameraName, TakenReport)>) {
        self.groups.taken(group, taken).await;
    }

    /// The state of the groups that `wants` selects, by owner and name.
    pub async fn groups(&self, wants: impl Fn(&GroupKey) -> bool) -> Vec<GroupReport> {
        self.groups.list(wants).await
    }

    /// Forgets a group without members, with its place.
    pub async fn forget_group(&self, group: &GroupKey) -> Result<(), ForgetGroupFailure> {
        self.groups.forget(group).await
    }

    /// The site that the edge belongs to.
    pub(crate) fn site(&self) -> &SiteName {
        &self.site
    }

    /// The site's deny list as it is in force here.
    pub fn revoked(&self) -> &LiveRevocations {
        &self.revoked
    }

    /// The sources of past frames.
    pub(crate) fn past(&self) -> &Arc<PastSources> {
        &self.places
    }

    /// Notes on frames that are kept on disk. `None`: this edge keeps no notes.
    pub fn notes(&self) -> Option<&Notes> {
        self.notes.as_ref()
    }

    /// The audit log.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Becomes true when the broker stops.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// The folder in which clips are made. `None`: this edge has no store.
    pub(crate) fn clips(&self) -> Option<&Path> {
        self.clips.as_deref()
    }

    /// The profiles that applications name or have sent.
    pub fn profiles(&self) -> &Arc<ProfileStore> {
        &self.profiles
    }

    /// The states of the contracts on a camera, by subscription. Contracts that ask for nothing are left out.
    pub fn standings(&self, camera: &CameraName) -> Vec<(SubscriptionId, Standing)> {
        let standings = lock(&self.standings);
        standings.get(camera).into_iter().flatten().map(|(id, standing)| (*id, standing.clone())).collect()
    }

    /// What subscriptions were given, by number.
    pub(crate) fn accounts(&self) -> Vec<AccountNow> {
        self.accounts.now()
    }

    /// The last detections of each application in a camera's frames.
    pub(crate) fn last_replies(&self, camera: &CameraName) -> Vec<LastReply> {
        self.replies.of(camera)
    }

    /// Frames handed to applications, and skipped frames by reason, since the edge started.
    pub(crate) fn totals(&self) -> Totals {
        self.accounts.totals()
    }

    /// The ages of live frames by camera when they were handed to applications. Removes cameras that are neither known nor read.
    pub(crate) fn ages(&self, is_known: impl Fn(&CameraName) -> bool) -> BTreeMap<CameraName, AgesSeen> {
        self.accounts.ages(is_known)
    }

    /// The state of every camera, with its newest frame.
    pub(crate) async fn look(&self) -> Result<Vec<CameraLook>, Stopped> {
        let (answer, looked) = oneshot::channel();
        self.requests.send(Request::Look(answer)).await.map_err(|_| Stopped)?;
        looked.await.map_err(|_| Stopped)
    }

    /// The state of every camera.
    pub async fn cameras(&self) -> Result<Vec<CameraInfo>, Stopped> {
        let (answer, cameras) = oneshot::channel();
        self.requests.send(Request::Cameras(answer)).await.map_err(|_| Stopped)?;
        cameras.await.map_err(|_| Stopped)
    }

    /// Resets a camera: forgets its starts and puts its log aside, so that its next start is accepted whatever its epoch. Subscriptions
    /// that read the camera end. `uid` is the user who asked for it.
    pub async fn reset(&self, camera: CameraName, uid: u32) -> Result<ResetReport, ResetFailure> {
        let (answer, done) = oneshot::channel();
        self.requests.send(Request::Reset(camera, uid, answer)).await.map_err(|_| Stopped)?;
        done.await.map_err(|_| Stopped)?
    }

    /// Forgets a camera that is not connected, and puts its log aside. Subscriptions go on without it.
    pub async fn forget(&self, camera: CameraName) -> Result<ForgetReport, ForgetFailure> {
        let (answer, done) = oneshot::channel();
        self.requests.send(Request::Forget(camera, answer)).await.map_err(|_| Stopped)?;
        done.await.map_err(|_| Stopped)?
    }

    /// Changes after how long an absent camera may be forgotten, and which channels cameras share.
    pub async fn change(&self, forget_after: Option<Duration>, channels: Channels) -> Result<(), Stopped> {
        let (answer, done) = oneshot::channel();
        self.requests.send(Request::Change(forget_after, channels, answer)).await.map_err(|_| Stopped)?;
        done.await.map_err(|_| Stopped)
    }

    /// The recorded starts of a camera, with their certificates, and its resets.
    pub async fn record(&self, camera: &CameraName) -> CameraRecord {
        self.starts.read(camera).await
    }

    /// Passes an application's result for a frame on to the camera. Detections are in pixels of the frame as it was published.
    pub async fn reply(
        &self,
        camera: CameraName,
        frame: FrameId,
        application: String,
        content: ReplyContent,
    ) -> Result<(), ReplyFailure> {
        let (answer, done) = oneshot::channel();
        // Cloned here, so that the loop only has to look up when the frame was captured.
        let noted = self.notes.as_ref().map(|_| content.clone());
        let last = LastReply::of(frame, &application, &content);
        let of = camera.clone();
        let replied = Replied { camera, frame, application, result: content.into_result(), noted };
        let request = Request::Reply(Box::new(replied), answer);
        self.requests.send(request).await.map_err(|_| Stopped)?;
        done.await.map_err(|_| Stopped)??;
        self.replies.note(of, last);
        Ok(())
    }

    /// Takes an answer of an application to a frame, for the camera. Returns the limits for the next picture.
    pub async fn answer(
        &self,
        camera: CameraName,
        frame: FrameId,
        given: GivenAnswer,
    ) -> Result<Room, AnswerFailure> {
        let (answer, done) = oneshot::channel();
        let request = Request::Answer(Box::new((camera, frame, given)), answer);
        self.requests.send(request).await.map_err(|_| Stopped)?;
        Ok(done.await.map_err(|_| Stopped)??)
    }
}
