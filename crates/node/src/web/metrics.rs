//! Metrics for Prometheus: of the edge's process, of all its subscriptions together, and of each camera.
//!
//! Camera names are labels, and names come and go. [`Labels`] decides which cameras have a label of their own. This bounds the number of series
//! at any time, and the number that a Prometheus server collects in a day. The other cameras are counted together under the name `other`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mez_core::contract::ContractState;
use mez_core::frame::SkipReason;
use mez_core::group::members::GroupKey;
use mez_core::name::CameraName;
use mez_core::source::SourceState;
use mez_core::units::Instant;

use super::lags::furthest;
use super::text::{Kind, Labelled, Text};
use super::watcher::{Edge, Look, Looked};
use crate::edge::{AGE_BOUNDS, GroupReport, Totals};

/// The most cameras and derived streams that have series of their own.
pub(super) const LABELS_MAX: usize = 128;
/// The label of all other cameras. A camera with this name has no series of its own, and is counted here.
const OTHER: &str = "other";
/// How long a camera's label is reserved after the edge has forgotten the camera. So names that come and go make few series.
const RELEASED_AFTER: Duration = Duration::from_secs(60 * 60);
/// The most absent cameras without a label whose counters are remembered. Beyond that, the cameras that
/// left first are forgotten; if they come back, their earlier counts are added again.
const GONE_MAX: usize = 1024;

/// Decides which cameras have series of their own, and counts the others together.
#[derive(Default)]
pub(super) struct Labels {
    /// Cameras with a label of their own, and when each was last seen.
    given: BTreeMap<CameraName, Instant>,
    /// Cameras without a label: when each was last seen, and its counters then. Only increases since then are added to `other`.
    seen: BTreeMap<CameraName, (Instant, Counters)>,
    other: Counters,
}

/// The labels at one moment.
#[derive(Default)]
pub(super) struct Labelling {
    own: BTreeSet<CameraName>,
    /// The counters of all other cameras. `None`: every camera so far has had a label of its own.
    other: Option<Counters>,
}

/// The dead letters of all groups, including groups that were forgotten.
#[derive(Default)]
pub(super) struct DeadLetters {
    /// The count of each group at the last look.
    seen: BTreeMap<GroupKey, u64>,
    sum: u64,
}

/// The counters of a camera.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters([u64; COUNTERS.len()]);

/// A counter: its name, its help text, and how to read it.
type Counted = (&'static str, &'static str, fn(&Looked) -> u64);

const COUNTERS: [Counted; 9] = [
    ("mez_camera_frames_published_total", "Frames that the camera published since its start.", |looked| {
        looked.camera.info.status.published
    }),
    ("mez_camera_frames_refused_total", "Frames that the camera refused since its start.", |looked| {
        looked.camera.info.status.refused
    }),
    ("mez_camera_published_bytes_total", "Payload that the camera published since its start.", |looked| {
        looked.camera.info.status.published_bytes
    }),
    ("mez_camera_frames_received_total", "Frames that arrived at the edge before newer ones.", |looked| {
        looked.camera.info.counters.received
    }),
    ("mez_camera_frames_late_total", "Frames that arrived after newer ones.", |looked| {
        looked.camera.info.counters.late
    }),
    ("mez_camera_frames_cancelled_total", "Frames that the camera cancelled on their way.", |looked| {
        looked.camera.info.counters.cancelled
    }),
    (
        "mez_camera_frames_not_decoded_total",
        "Frames that arrived and could not be decoded, or were overtaken meanwhile.",
        |looked| looked.camera.info.counters.not_decoded,
    ),
    ("mez_camera_link_bytes_total", "Payload that crossed the link.", |looked| {
        looked.camera.info.counters.bytes
    }),
    (
        "mez_camera_store_lost_frames_total",
        "Frames that were dropped before they could be written to the edge's disk.",
        |looked| looked.store.as_ref().map_or(0, |store| store.lost),
    ),
];

/// A gauge: its name, its help text, and how to read it. `None`: the value is not known.
type Gauged = (&'static str, &'static str, fn(&Looked) -> Option<f64>);

/// Gauges of cameras with a label of their own. The other cameras have no gauges: a sum of ages means nothing.
const GAUGES: [Gauged; 12] = [
    ("mez_camera_connected", "Whether the camera is connected.", |looked| {
        Some(f64::from(looked.camera.info.connected))
    }),
    ("mez_camera_frames_per_second", "Frames that the camera publishes.", |looked| {
        looked.camera.info.connected.then_some(looked.camera.info.status.frames_per_second)
    }),
    ("mez_camera_newest_frame_age_seconds", "Age of the newest frame that the edge holds.", |looked| {
        Some(looked.camera.newest.as_ref()?.age?.as_secs_f64())
    }),
    ("mez_camera_newest_frame_bytes", "Payload of the newest frame that the edge holds.", |looked| {
        Some(looked.camera.newest.as_ref()?.bytes as f64)
    }),
    ("mez_camera_link_capacity_bytes_per_second", "What the link carries, as far as measured.", |looked| {
        Some(looked.camera.info.feasibility.link_rate?.0 / 8.0)
    }),
    ("mez_camera_link_round_trip_seconds", "Round trip between edge and camera.", |looked| {
        Some(looked.camera.info.clock?.round_trip_time.as_secs_f64())
    }),
    ("mez_camera_clock_error_seconds", "Greatest error of the ages of its frames.", |looked| {
        Some(looked.camera.info.clock?.error.as_secs_f64())
    }),
    ("mez_camera_log_bytes", "Its frames in the edge's memory.", |looked| {
        Some(looked.camera.info.log_bytes as f64)
    }),
    ("mez_camera_store_bytes", "Its frames on the edge's disk.", |looked| {
        Some(looked.store.as_ref()?.disk_bytes as f64)
    }),
    (
        "mez_camera_store_degraded",
        "Whether frames are at present not written to the edge's disk as they should be.",
        |looked| Some(f64::from(looked.store.as_ref()?.degraded.is_some())),
    ),
    ("mez_camera_subscriptions", "Subscriptions that want its frames.", |looked| {
        Some(looked.camera.info.subscriptions as f64)
    }),
    ("mez_camera_certificate_end_timestamp_seconds", "When the certificate of its host ends.", |looked| {
        Some(seconds(looked.camera.certificate_ends?) as f64)
    }),
];

impl Counters {
    fn of(looked: &Looked) -> Self {
        Self(COUNTERS.map(|(.., count)| count(looked)))
    }

    /// Adds the increase from `before` to `now`.
    fn add_since(&mut self, before: &Self, now: &Self) {
        for ((sum, before), now) in self.0.iter_mut().zip(before.0).zip(now.0) {
            *sum += come_since(before, now);
        }
    }
}

/// The increase of a counter since it was at `before`. A counter that fell has restarted from zero.
fn come_since(before: u64, now: u64) -> u64 {
    if now >= before { now - before } else { now }
}

impl DeadLetters {
    /// Adds the dead letters of a look. Returns the total.
    pub(super) fn handle_look(&mut self, groups: &[GroupReport]) -> u64 {
        let dead = |report: &GroupReport| Some(report.standing.as_ref()?.account.dead);
        self.handle_groups(groups.iter().map(|report| (&report.key, dead(report))))
    }

    fn handle_groups<'a>(&mut self, groups: impl Iterator<Item = (&'a GroupKey, Option<u64>)>) -> u64 {
        let before = std::mem::take(&mut self.seen);
        for (key, dead) in groups {
            let seen = before.get(key).copied().unwrap_or_default();
            let now = dead.unwrap_or(seen);
            self.sum += come_since(seen, now);
            self.seen.insert(key.clone(), now);
        }
        self.sum
    }
}

impl Labels {
    /// Takes in a look: gives labels to new cameras while there are any, and counts the increase of the other cameras.
    pub(super) fn handle_look(&mut self, now: Instant, cameras: &[Looked]) {
        self.handle_cameras(now, cameras.iter().map(|looked| (looked.name(), Counters::of(looked))));
    }

    fn handle_cameras<'a>(
        &mut self,
        now: Instant,
        cameras: impl Iterator<Item = (&'a CameraName, Counters)>,
    ) {
        self.given.retain(|_, seen| now.saturating_since(*seen) < RELEASED_AFTER);
        for (name, counters) in cameras {
            if let Some(seen) = self.given.get_mut(name) {
                *seen = now;
                continue;
            }
            // A camera that was counted under `other` stays there: a series of its own would begin in the middle.
            let before = self.seen.get(name).map(|(_, counters)| *counters);
            if before.is_none() && self.given.len() < LABELS_MAX && name.as_str() != OTHER {
                self.given.insert(name.clone(), now);
                continue;
            }
            // The whole count of a new camera is added: it was in no series before.
            self.other.add_since(&before.unwrap_or_default(), &counters);
            self.seen.insert(name.clone(), (now, counters));
        }
        self.forget_gone(now);
    }

    /// Forgets cameras without a label that have been gone for too long, or of which there are too many.
    fn forget_gone(&mut self, now: Instant) {
        self.seen.retain(|_, (seen, _)| now.saturating_since(*seen) < RELEASED_AFTER);
        let gone = self.seen.iter().map(|(name, (seen, _))| (*seen, name)).filter(|(seen, _)| *seen != now);
        // Many cameras may leave at the same look. Then their names decide which of them are remembered.
        let mut gone: Vec<(Instant, &CameraName)> = gone.collect();
        let Some(too_many) = gone.len().checked_sub(GONE_MAX + 1) else { return };
        let (_, newest_forgotten, _) = gone.select_nth_unstable(too_many);
        let newest_forgotten = (newest_forgotten.0, newest_forgotten.1.clone());
        self.seen.retain(|name, (seen, _)| (*seen, name) > (newest_forgotten.0, &newest_forgotten.1));
    }

    /// The labels at this moment.
    pub(super) fn labelling(&self) -> Labelling {
        let other = (!self.seen.is_empty() || self.other != Counters::default()).then_some(self.other);
        Labelling { own: self.given.keys().cloned().collect(), other }
    }
}

impl Labelling {
    fn has(&self, camera: &CameraName) -> bool {
        self.own.contains(camera)
    }
}

/// The part of the metrics that was seen in a look. It stays the same until the next look.
pub(super) fn of_look(look: &Look, labels: &Labelling) -> String {
    let mut text = Text::default();
    of_subscriptions(&mut text, look);
    of_cameras(&mut text, look, labels);
    of_contracts(&mut text, look, labels);
    of_groups(&mut text, look);
    text.finish()
}

/// The part of the metrics that is read on request: readiness, the edge's certificate, and its process.
pub(super) fn of_moment(look: &Look, edge: &Edge) -> String {
    let mut text = Text::default();
    of_edge(&mut text, look, edge);
    of_process(&mut text, edge);
    text.finish()
}

fn of_edge(text: &mut Text, look: &Look, edge: &Edge) {
    use Kind::Gauge;
    let version = [(Labelled::one("version", env!("CARGO_PKG_VERSION")), 1)];
    text.metric(("mez_build_info", Gauge, "The version that runs; always 1."), version);
    let health = look.health(edge);
    text.single(("mez_edge_ready", Gauge, "Whether /readyz answers with 200."), u8::from(health.ok));
    text.single(
        ("mez_edge_certificate_end_timestamp_seconds", Gauge, "When the edge's certificate ends."),
        seconds(edge.credentials.validity().not_after),
    );
}

fn of_subscriptions(text: &mut Text, look: &Look) {
    use Kind::{Counter, Gauge};
    let connected = look.cameras.iter().filter(|looked| looked.camera.info.connected).count();
    let cameras = [("connected", connected), ("absent", look.cameras.len() - connected)];
    text.metric(
        ("mez_edge_cameras", Gauge, "Cameras and derived streams that the edge knows."),
        cameras.map(|(state, count)| (Labelled::one("state", state), count)),
    );
    let (views, applications): (Vec<_>, Vec<_>) =
        look.subscriptions.iter().partition(|account| account.asked.looks_on);
    let subscriptions = [("application", applications.len()), ("page", views.len())];
    text.metric(
        ("mez_edge_subscriptions", Gauge, "Open subscriptions."),
        subscriptions.map(|(of, count)| (Labelled::one("of", of), count)),
    );
    let Totals { delivered, skipped, ages } = &look.totals;
    text.single(
        ("mez_frames_delivered_total", Counter, "Frames that were handed to applications."),
        delivered,
    );
    text.histograms(
        ("mez_frame_age_seconds", "Age of live frames when they were handed to applications."),
        &AGE_BOUNDS,
        [(Labelled::NONE, ages.counts, ages.sum.as_secs_f64())],
    );
    text.metric(
        ("mez_frames_skipped_total", Counter, "Frames that applications did not get, by reason."),
        SkipReason::ALL.map(|reason| (Labelled::one("reason", reason.name()), skipped.of(reason))),
    );
}

fn of_cameras(text: &mut Text, look: &Look, labels: &Labelling) {
    let own = || look.cameras.iter().filter(|looked| labels.has(looked.name()));
    for (place, (name, help, count)) in COUNTERS.into_iter().enumerate() {
        let has_store = |looked: &&Looked| !name.contains("_store_") || looked.store.is_some();
        let samples = own().filter(has_store).map(|looked| (label(looked), count(looked)));
        let other = labels.other.map(|other| (Labelled::one("camera", OTHER), other.0[place]));
        text.metric((name, Kind::Counter, help), samples.chain(other));
    }
    for (name, help, gauge) in GAUGES {
        let samples = own().filter_map(|looked| Some((label(looked), gauge(looked)?)));
        text.metric((name, Kind::Gauge, help), samples);
    }
    // Cameras without a label have no histogram: `mez_frame_age_seconds` counts all cameras together.
    let ages = own().filter_map(|looked| Some((looked, look.ages.get(looked.name())?)));
    text.histograms(
        (
            "mez_camera_frame_age_seconds",
            "Age of the camera's live frames when they were handed to applications.",
        ),
        &AGE_BOUNDS,
        ages.map(|(looked, ages)| (label(looked), ages.counts, ages.sum.as_secs_f64())),
    );
    let states = own().filter_map(|looked| Some((looked, looked.camera.info.source.as_ref()?.state)));
    let states = states.flat_map(|(looked, is)| {
        let of_state = move |state: SourceState| {
            (
                Labelled::two(("camera", looked.name().as_str()), ("state", state.name())),
                u8::from(state == is),
            )
        };
        SourceState::ALL.into_iter().map(of_state)
    });
    text.metric(
        ("mez_camera_source_state", Kind::Gauge, "1 for the state that the camera's source is in."),
        states,
    );
}

fn label(looked: &Looked) -> Labelled<'_> {
    Labelled::one("camera", looked.name().as_str())
}

/// Contracts by camera and state, and how late the latest of them is. Applications are not labels, because they choose their names themselves.
fn of_contracts(text: &mut Text, look: &Look, labels: &Labelling) {
    let mut states = BTreeMap::<(&str, usize), u64>::new();
    let mut latest = BTreeMap::<&str, f64>::new();
    for account in look.subscriptions.iter().filter(|account| !account.asked.looks_on) {
        for (camera, given) in &account.cameras {
            let camera = if labels.has(camera) { camera.as_str() } else { OTHER };
            if let Some((state, ..)) = &given.state {
                let place = ContractState::ALL.iter().position(|known| known == state).unwrap_or_default();
                *states.entry((camera, place)).or_default() += 1;
            }
            if let (Some(ages), Some(bound)) = (given.ages, account.contract.latency_bound) {
                let ratio = ages.p95.as_secs_f64() / bound.as_secs_f64();
                let latest = latest.entry(camera).or_default();
                *latest = latest.max(ratio);
            }
        }
    }
    let samples = states.into_iter().map(|((camera, place), count)| {
        (Labelled::two(("camera", camera), ("state", ContractState::ALL[place].name())), count)
    });
    text.metric(
        ("mez_contracts", Kind::Gauge, "Contracts on the camera in each state that one of them is in."),
        samples,
    );
    let samples = latest.into_iter().map(|(camera, ratio)| (Labelled::one("camera", camera), ratio));
    text.metric(
        (
            "mez_contract_latency_p95_ratio",
            Kind::Gauge,
            "Largest share of a latency bound that 95 % of frames stay within, over ten seconds; above 1 is too late.",
        ),
        samples,
    );
}

/// All groups together. Groups are not labels, because applications choose their names.
fn of_groups(text: &mut Text, look: &Look) {
    use Kind::{Counter, Gauge};
    let standing = || look.groups.iter().filter_map(|report| report.standing.as_ref());
    text.single(("mez_edge_groups", Gauge, "Groups of readers that the edge knows."), look.groups.len());
    let open: usize = standing().map(|standing| standing.open).sum();
    text.single(("mez_group_open_records", Gauge, "Records that were given and are not settled."), open);
    text.single(
        ("mez_group_dead_letters_total", Counter, "Records that nobody could work on."),
        look.dead_letters,
    );
    let lags = look.groups.iter().filter_map(|report| furthest(report, |camera| look.newest(camera)));
    let lag = lags.map(|(_, lag)| lag).max().unwrap_or_default();
    text.single(
        ("mez_group_lag_records_max", Gauge, "Records that the group furthest behind is behind."),
        lag,
    );
}

/// Seconds since 1970.
fn seconds(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The process metrics of Prometheus' client libraries, under the same names.
fn of_process(text: &mut Text, edge: &Edge) {
    let started = edge.started_utc.as_nanos() as f64 / 1e9;
    text.single(("process_start_time_seconds", Kind::Gauge, "When the edge was started."), started);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command name, in parentheses, may contain any character.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let field = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok());
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    if let (Some(user), Some(system), Some(pages)) = (field(11), field(12), field(21)) {
        let seconds = (user + system) / ticks;
        text.single(("process_cpu_seconds_total", Kind::Counter, "Processor time of the edge."), seconds);
        let bytes = pages * rustix::param::page_size() as f64;
        text.single(("process_resident_memory_bytes", Kind::Gauge, "Memory of the edge."), bytes);
    }
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    text.single(("process_open_fds", Kind::Gauge, "Open file descriptors."), open);
    text.single(("process_max_fds", Kind::Gauge, "The most file descriptors."), crate::descriptors::max());
}

#[cfg(test)]
mod tests {
    use mez_core::rights::Bearer;

    use super::*;

    fn name(text: &str) -> CameraName {
        text.parse().unwrap()
    }

    /// Ten thousand names that come and go in an hour get no more series than there are labels. None of their frames is lost.
    #[test]
    fn names_that_come_and_go_make_a_bounded_number_of_series() {
        let (mut labels, mut now) = (Labels::default(), Instant::from_nanos(1));
        let (kept, published) = (name("dock/kept"), 7);
        let mut ever = std::collections::BTreeSet::new();
        for round in 0..10_000 {
            let passing = name(&format!("lane/cam{round}"));
            let frames = Counters([published; COUNTERS.len()]);
            labels.handle_cameras(now, [(&kept, frames), (&passing, frames)].into_iter());
            ever.extend(labels.given.keys().cloned());
            now += Duration::from_millis(350);
        }
        assert_eq!((ever.len(), labels.given.len()), (LABELS_MAX, LABELS_MAX));
        assert!(ever.contains(&kept));
        let of_others = 10_000 - (LABELS_MAX as u64 - 1);
        assert_eq!(labels.other, Counters([published * of_others; COUNTERS.len()]));
        assert_eq!(labels.seen.len(), GONE_MAX + 1, "many that are gone take little room");
        // After an hour without the cameras, labels are free again.
        labels.handle_cameras(now + RELEASED_AFTER, std::iter::empty());
        assert!(labels.given.is_empty() && labels.seen.is_empty());
    }

    /// The link to a site with more cameras than are remembered breaks, and comes back.
    #[test]
    fn of_many_cameras_that_go_at_once_as_many_as_may_be_are_remembered() {
        let (mut labels, now) = (Labels::default(), Instant::from_nanos(1));
        let names: Vec<_> =
            (0..LABELS_MAX + 1_100).map(|camera| name(&format!("lane/cam{camera}"))).collect();
        let all = |count| names.iter().map(move |name| (name, Counters([count; COUNTERS.len()])));
        let second = |seconds| now + Duration::from_secs(seconds);
        labels.handle_cameras(now, all(10));
        labels.handle_cameras(second(1), std::iter::empty());
        assert_eq!(labels.seen.len(), GONE_MAX);
        labels.handle_cameras(second(2), all(11));
        let again = 10 * (1_100 - GONE_MAX as u64);
        assert_eq!(labels.labelling().other, Some(Counters([11 * 1_100 + again; COUNTERS.len()])));
    }

    /// The link of a camera comes and goes, and the edge forgets the camera in between. The camera's own counters go on.
    #[test]
    fn what_counts_under_other_counts_once() {
        let (mut labels, now) = (Labels::default(), Instant::from_nanos(1));
        let (other, at) = (name(OTHER), |count| Counters([count; COUNTERS.len()]));
        for (second, count) in [(0, Some(10)), (1, None), (2, Some(12)), (3, None), (4, Some(15))] {
            let cameras = count.map(|count| (&other, at(count)));
            labels.handle_cameras(now + Duration::from_secs(second), cameras.into_iter());
        }
        assert_eq!(labels.labelling().other, Some(at(15)));
    }

    #[test]
    fn dead_letters_of_a_group_that_is_forgotten_stay_counted() {
        let group = |name: &str| GroupKey { owner: Bearer::Owner, name: name.parse().unwrap() };
        let (one, two, mut letters) = (group("one"), group("two"), DeadLetters::default());
        let mut look = |groups: &[(&GroupKey, Option<u64>)]| letters.handle_groups(groups.iter().copied());
        assert_eq!(look(&[(&one, Some(3)), (&two, Some(1))]), 4);
        assert_eq!(look(&[(&one, None), (&two, Some(2))]), 5, "it does not say how it stands");
        assert_eq!(look(&[(&one, Some(4))]), 6);
        assert_eq!(look(&[(&one, Some(4)), (&two, Some(1))]), 7, "another one of the same name");
        assert_eq!(look(&[]), 7);
        assert!(letters.seen.is_empty());
    }

    #[test]
    fn a_camera_that_starts_anew_takes_nothing_back() {
        let mut sum = Counters::default();
        let at = |count| Counters([count; COUNTERS.len()]);
        sum.add_since(&at(0), &at(10));
        sum.add_since(&at(10), &at(3));
        sum.add_since(&at(3), &at(5));
        assert_eq!(sum, at(15));
        assert!(COUNTERS.iter().all(|(name, ..)| name.ends_with("_total")));
        assert!(GAUGES.iter().all(|(name, ..)| !name.ends_with("_total")));
    }
}
