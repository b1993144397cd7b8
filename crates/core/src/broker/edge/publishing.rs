//! Decides who may publish a derived stream at this edge, and appends what is published.

use std::collections::BTreeMap;
use std::time::Duration;

use super::applications::Applications;
use super::camera::Camera;
use super::derived::Derived;
use super::roster::Roster;
use super::types::{
    CaptureClock, DERIVED_OF_OWNER_MAX, DerivedError, Deriving, EdgeOutput, PublisherId, PublisherRefused,
};
use crate::broker::Published;
use crate::clock::ClockEstimate;
use crate::frame::{Epoch, FrameId};
use crate::name::CameraName;
use crate::source::{SourceStanding, SourceState};
use crate::units::{ClockAnchor, Instant};
use crate::wire::{Message, SourceReport};

/// How often the view of a stream changes while it is published: as often as cameras report.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The publishers of derived streams.
#[derive(Default)]
pub(super) struct Publishers {
    streams: BTreeMap<PublisherId, CameraName>,
    /// When the view of each stream last changed because of published records.
    told: BTreeMap<CameraName, Instant>,
}

impl Publishers {
    /// A client wants to publish a stream. `start`: the epoch and its anchor to begin with,
    /// if the stream has no epoch of this run of the edge. Returns the stream's epoch.
    pub(super) fn handle_opened(
        &mut self,
        (roster, applications): (&mut Roster, &Applications),
        id: PublisherId,
        stream: &CameraName,
        deriving: Deriving,
        start: Option<(Epoch, ClockAnchor)>,
    ) -> Result<(Epoch, Vec<EdgeOutput>), PublisherRefused> {
        debug_assert!(!self.streams.contains_key(&id), "two publishers have the number {}", id.0);
        let known = roster.cameras.get(stream);
        let newest = known.map(|known| known.newest_start.0).unwrap_or_default();
        let is_begun = judge(roster, known, stream, &deriving)?;
        let start = start.filter(|(epoch, _)| *epoch > newest);
        if !is_begun && start.is_none() {
            return Err(PublisherRefused::NeedsEpoch { above: newest });
        }
        let mut outputs = Vec::new();
        if let (false, Some(start)) = (is_begun, start) {
            let derived = Derived::new(deriving.clone());
            outputs = applications.introduce(roster, stream, &deriving.owner, start, Some(derived));
        }
        let Some(camera) = roster.cameras.get_mut(stream) else { return Ok((newest, outputs)) };
        let Some(derived) = &mut camera.derived else { return Ok((newest, outputs)) };
        if let (false, Some(start)) = (is_begun, start) {
            derived.begin(start);
            camera.newest_start = start;
        }
        camera.identity.clone_from(&deriving.owner);
        derived.deriving = deriving;
        derived.publishers += 1;
        let (epoch, is_first) = (camera.newest_start.0, derived.publishers == 1);
        self.streams.insert(id, stream.clone());
        if is_first {
            camera.report.handle_taken_in();
            outputs.push(EdgeOutput::CameraChanged { camera: stream.clone(), up: true, reason: None });
            // A derived stream has no connection, so the demand is not sent. But contracts are judged by it.
            outputs.extend(applications.ask(roster, stream));
        }
        Ok((epoch, outputs))
    }

    /// A record was published. `captured` is the capture time of a record that has none of its own.
    pub(super) fn handle_published(
        &mut self,
        (now, captured): (Instant, Instant),
        roster: &mut Roster,
        id: PublisherId,
        frame: Published,
    ) -> Result<(FrameId, Vec<EdgeOutput>), DerivedError> {
        let stream = self.streams.get(&id).ok_or(DerivedError::NotOpen)?;
        let bytes_max = roster.cameras.derived_bytes_max();
        let camera = roster.cameras.get_mut(stream).ok_or(DerivedError::NotOpen)?;
        let Camera { derived: Some(derived), replica, report, pace, traffic, .. } = camera else {
            return Err(DerivedError::NotOpen);
        };
        let mut outputs = Vec::new();
        let published = derived.publish((now, captured), replica, frame, bytes_max);
        if let Ok(meta) = &published {
            pace.note(meta);
            outputs.push(EdgeOutput::Appended { camera: stream.clone() });
        }
        let rate = pace.interval(None).map_or(0.0, |interval| 1.0 / interval.as_secs_f64().max(1e-3));
        report.status = derived.status(rate);
        let told = self.told.get(stream).copied();
        if told.is_none_or(|told| now.saturating_since(told) >= STATUS_INTERVAL) {
            self.told.insert(stream.clone(), now);
            traffic.handle_status(now, report.status.published_bytes, replica.counters.bytes);
            outputs.push(EdgeOutput::ViewChanged { camera: stream.clone() });
        }
        let is_back = published.is_ok() && report.source.is_some();
        if is_back {
            outputs.extend(tell_source(now, camera, stream, SourceState::Live, String::new()));
            camera.report.source = None;
        }
        Ok((published?.id, outputs))
    }

    /// A publisher has nothing to publish for now. `reason` says why. The next record ends this state.
    pub(super) fn handle_lost(
        &mut self,
        now: Instant,
        roster: &mut Roster,
        id: PublisherId,
        reason: String,
    ) -> Vec<EdgeOutput> {
        let Some(stream) = self.streams.get(&id) else { return Vec::new() };
        let Some(camera) = roster.cameras.get_mut(stream) else { return Vec::new() };
        tell_source(now, camera, stream, SourceState::Lost, reason)
    }

    /// A publisher is gone. `reason` says why, unless it left in good order.
    pub(super) fn handle_gone(
        &mut self,
        now: Instant,
        roster: &mut Roster,
        id: PublisherId,
        reason: Option<String>,
    ) -> Vec<EdgeOutput> {
        let Some(stream) = self.streams.remove(&id) else { return Vec::new() };
        let Some(camera) = roster.cameras.get_mut(&stream) else { return Vec::new() };
        let Some(derived) = &mut camera.derived else { return Vec::new() };
        derived.publishers = derived.publishers.saturating_sub(1);
        if derived.publishers > 0 {
            return Vec::new();
        }
        self.told.remove(&stream);
        // The last report about the source says more than that the publisher left in good order.
        let stays_lost = reason.is_none() && camera.report.source.is_some();
        let mut outputs = match (stays_lost, reason) {
            (true, _) => Vec::new(),
            (false, Some(reason)) => tell_source(now, camera, &stream, SourceState::Lost, reason),
            (false, None) => tell_source(now, camera, &stream, SourceState::Ended, String::new()),
        };
        let why = camera.report.source.as_ref().and_then(SourceStanding::sentence);
        camera.handle_gone(now);
        outputs.push(EdgeOutput::ViewChanged { camera: stream.clone() });
        outputs.push(EdgeOutput::CameraChanged { camera: stream, up: false, reason: why });
        outputs
    }

    /// A stream is forgotten: its publishers must begin anew.
    pub(super) fn handle_forgotten(&mut self, stream: &CameraName) {
        self.streams.retain(|_, published| published != stream);
        self.told.remove(stream);
    }
}

/// Maps the times of a derived stream to the edge's clock, which also stamped them.
pub(super) fn capture_clock(now: Instant, stream: &Camera) -> Option<CaptureClock> {
    let is_begun = stream.derived.as_ref().is_some_and(Derived::is_begun);
    let (epoch, anchor) = stream.newest_start;
    is_begun.then(|| CaptureClock::new(now, epoch, anchor, ClockEstimate::SAME))
}

/// Whether the stream has an epoch of this run of the edge, or why this owner may not publish it.
fn judge(
    roster: &Roster,
    known: Option<&Camera>,
    stream: &CameraName,
    deriving: &Deriving,
) -> Result<bool, PublisherRefused> {
    let Deriving { owner, .. } = deriving;
    let derived = known.map(|known| {
        known.derived.as_ref().ok_or_else(|| PublisherRefused::IsCamera { stream: stream.clone() })
    });
    let derived = derived.transpose()?;
    let of_another = derived.filter(|derived| derived.publishers > 0 && derived.deriving.owner != *owner);
    if let Some(other) = of_another {
        let owner = other.deriving.owner.clone();
        return Err(PublisherRefused::OfAnother { stream: stream.clone(), owner });
    }
    if derived.is_none() && roster.cameras.derived_room() == 0 {
        return Err(PublisherRefused::TooMany);
    }
    let is_theirs = |derived: &Derived| derived.deriving.owner == *owner;
    let of_owner = roster.cameras.derived().filter(|derived| is_theirs(derived)).count();
    if !derived.is_some_and(is_theirs) && of_owner >= DERIVED_OF_OWNER_MAX {
        return Err(PublisherRefused::TooManyOfOwner { owner: owner.clone() });
    }
    Ok(derived.is_some_and(Derived::is_begun))
}

/// The state of a stream's source changes.
fn tell_source(
    now: Instant,
    camera: &mut Camera,
    stream: &CameraName,
    state: SourceState,
    reason: String,
) -> Vec<EdgeOutput> {
    let report = SourceReport { state, reason, lasts: Duration::ZERO, retry: None };
    camera.report.handle_message(now, Message::SourceReport(report));
    let told = camera
        .report
        .source
        .clone()
        .map(|source| EdgeOutput::SourceChanged { camera: stream.clone(), source });
    told.into_iter().chain([EdgeOutput::ViewChanged { camera: stream.clone() }]).collect()
}
