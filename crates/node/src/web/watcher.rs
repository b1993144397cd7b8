//! Looks at the edge once a second, for the page, metrics and events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use mez_core::frame::FrameId;
use mez_core::group::members::GroupKey;
use mez_core::name::CameraName;
use mez_core::store::StoreStatus;
use mez_core::units::{Instant, Timestamp};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::answers::Health;
use super::certificates::{self, Ending};
use super::events::Events;
use super::lags::{self, Behind};
use super::metrics::{DeadLetters, Labelling, Labels, of_look, of_moment};
use crate::api::Listens;
use crate::clock::{monotonic_now, wall_now};
use crate::edge::{AccountNow, AgesSeen, CameraLook, EdgeHandle, GroupReport, Totals};
use crate::identity::Credentials;

/// The time between looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// If the last look is older than this, the broker counts as hanging.
const OVERDUE: Duration = Duration::from_secs(5);
/// The number of looks over which the rate of received frames is computed.
const RATE_LOOKS_MAX: usize = 6;

/// The edge at one moment.
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) at_utc: Timestamp,
    /// Sorted by name.
    pub(super) cameras: Vec<Looked>,
    /// Sorted by number.
    pub(super) subscriptions: Vec<AccountNow>,
    pub(super) groups: Vec<GroupReport>,
    /// The groups that are behind.
    pub(super) behind: Behind,
    /// Sorted by expiry, soonest first.
    pub(super) certificates: Vec<Ending>,
    /// What applications were given since the edge started.
    pub(super) totals: Totals,
    /// The ages of live frames when they were handed to applications, by camera. Cameras without such frames have no entry.
    pub(super) ages: BTreeMap<CameraName, AgesSeen>,
    /// Dead letters of groups since the edge started.
    pub(super) dead_letters: u64,
    /// The text for Prometheus of what this look has seen, once it was requested.
    metrics: OnceLock<String>,
    labels: Labelling,
}

/// A camera at one moment.
pub(super) struct Looked {
    pub(super) camera: CameraLook,
    /// The camera's log on the edge's disk.
    pub(super) store: Option<StoreStatus>,
    pub(super) received_frames_per_second: f64,
}

impl Looked {
    pub(super) fn name(&self) -> &CameraName {
        &self.camera.info.camera
    }

    fn newest(&self) -> Option<FrameId> {
        self.camera.info.newest.map(|(newest, _)| newest)
    }
}

/// What stays the same while the edge runs.
pub(super) struct Edge {
    pub(super) credentials: Credentials,
    pub(super) started: Instant,
    pub(super) started_utc: Timestamp,
    /// Where it serves applications.
    pub(super) listens: Listens,
}

impl Edge {
    pub(super) fn new(credentials: Credentials, listens: Listens) -> Self {
        Self { credentials, started: monotonic_now(), started_utc: wall_now(), listens }
    }
}

impl Look {
    /// The camera with this name.
    pub(super) fn camera(&self, name: &CameraName) -> Option<&Looked> {
        find(&self.cameras, name)
    }

    /// The newest frame of a camera.
    pub(super) fn newest(&self, camera: &CameraName) -> Option<FrameId> {
        self.camera(camera)?.newest()
    }

    /// The checks that fail.
    pub(super) fn health(&self, edge: &Edge) -> Health {
        let is_degraded =
            |looked: &Looked| looked.store.as_ref().is_some_and(|store| store.degraded.is_some());
        let checks = [
            ("broker", monotonic_now().saturating_since(self.at) >= OVERDUE),
            ("stores", self.cameras.iter().any(is_degraded)),
            ("certificate", !edge.credentials.validity().holds_at(SystemTime::now())),
        ];
        let failing: Vec<_> = checks.into_iter().filter(|(_, fails)| *fails).map(|(name, _)| name).collect();
        Health { ok: failing.is_empty(), failing }
    }

    /// The text for Prometheus. The part that was seen in the look is written once, however often it is
    /// scraped. An overdue look is still reported, together with the fact that the edge is not ready.
    pub(super) fn metrics(&self, edge: &Edge) -> Bytes {
        let seen = self.metrics.get_or_init(|| of_look(self, &self.labels));
        [of_moment(self, edge).as_str(), seen].concat().into()
    }
}

/// Finds a camera by name in a look, whose cameras are sorted by name.
fn find<'a>(cameras: &'a [Looked], name: &CameraName) -> Option<&'a Looked> {
    let place = cameras.binary_search_by(|looked| looked.name().cmp(name)).ok()?;
    Some(&cameras[place])
}

/// Looks at the edge until it stops, and reports the changes.
pub(super) struct Watcher {
    handle: EdgeHandle,
    credentials: Credentials,
    events: Arc<Events>,
    labels: Labels,
    dead_letters: DeadLetters,
    /// The groups that were behind at the last look.
    behind: Behind,
    /// By camera: the number of received frames at each of the last looks.
    received: BTreeMap<CameraName, VecDeque<(Instant, u64)>>,
}

impl Watcher {
    /// Looks for the first time. `None`: the broker has stopped.
    pub(super) async fn begin(
        handle: EdgeHandle,
        credentials: Credentials,
        events: Arc<Events>,
    ) -> Option<(Self, Arc<Look>)> {
        let (labels, dead_letters, behind, received) = Default::default();
        let mut watcher = Self { handle, credentials, events, labels, dead_letters, behind, received };
        let look = Arc::new(watcher.look().await?);
        watcher.events.begin(&look);
        Some((watcher, look))
    }

    /// Looks once per [`INTERVAL`] until the broker stops.
    pub(super) async fn run(mut self, looks: watch::Sender<Arc<Look>>) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            // `None`: the broker has stopped.
            let Some(look) = self.look().await else { return };
            let look = Arc::new(look);
            self.events.compare(&looks.borrow(), &look);
            looks.send_replace(look);
        }
    }

    async fn look(&mut self) -> Option<Look> {
        let cameras = self.handle.look().await.ok()?;
        let groups = self.handle.groups(|_: &GroupKey| true).await;
        let (at, at_utc) = (monotonic_now(), wall_now());
        self.received.retain(|name, _| {
            // Cameras are sorted by name.
            cameras.binary_search_by(|camera| camera.info.camera.cmp(name)).is_ok()
        });
        let cameras: Vec<_> = cameras.into_iter().map(|camera| self.looked(at, camera)).collect();
        self.labels.handle_look(at, &cameras);
        let is_known = |name: &CameraName| find(&cameras, name).is_some();
        let ages = self.handle.ages(is_known);
        let lag_max = self.events.bounds().lag_records_max;
        let newest = |name: &CameraName| find(&cameras, name).and_then(Looked::newest);
        self.behind = lags::behind(&groups, &self.behind, lag_max, newest);
        Some(Look {
            at,
            at_utc,
            behind: self.behind.clone(),
            certificates: certificates::ending(&self.credentials, &cameras),
            cameras,
            subscriptions: self.handle.accounts(),
            dead_letters: self.dead_letters.handle_look(&groups),
            groups,
            totals: self.handle.totals(),
            ages,
            metrics: OnceLock::new(),
            labels: self.labels.labelling(),
        })
    }

    fn looked(&mut self, at: Instant, camera: CameraLook) -> Looked {
        let received = self.received.entry(camera.info.camera.clone()).or_default();
        if received.len() == RATE_LOOKS_MAX {
            received.pop_front();
        }
        received.push_back((at, camera.info.counters.received));
        let rate = received.front().map_or(0.0, |(first, count)| {
            let seconds = at.saturating_since(*first).as_secs_f64();
            let more = camera.info.counters.received.saturating_sub(*count);
            if seconds > 0.0 { more as f64 / seconds } else { 0.0 }
        });
        let store = self.handle.log_on_disk(&camera.info.camera);
        Looked { camera, store, received_frames_per_second: rate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Role, TemporarySite};

    /// A broker that hangs gives no further looks, so the edge is not ready.
    #[test]
    fn an_overdue_look_that_was_scraped_is_told_as_not_ready() {
        let site = TemporarySite::create(&"harbour".parse().unwrap()).unwrap();
        let edge = Edge::new(site.keys().credentials(Role::Edge, None).unwrap(), Listens::default());
        let mut look = Look {
            at: monotonic_now(),
            at_utc: wall_now(),
            cameras: Vec::new(),
            subscriptions: Vec::new(),
            groups: Vec::new(),
            behind: Behind::new(),
            certificates: Vec::new(),
            totals: Totals::default(),
            ages: BTreeMap::new(),
            dead_letters: 0,
            metrics: OnceLock::new(),
            labels: Labelling::default(),
        };
        let scraped = |look: &Look| String::from_utf8(look.metrics(&edge).to_vec()).unwrap();
        let ready = scraped(&look);
        assert!(ready.contains("\nmez_edge_ready 1\n"), "{ready}");
        look.at = Instant::from_nanos(look.at.as_nanos().saturating_sub(OVERDUE.as_nanos() as u64));
        let overdue = scraped(&look);
        assert!(overdue.contains("\nmez_edge_ready 0\n"), "{overdue}");
        let families = overdue.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let mut families: Vec<_> = families.map(|line| line.split(' ').next()).collect();
        let count = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), count, "each metric is written once");
    }
}
