//! Keeps an account of what each subscription was given, for the page and the edge's metrics.
//!
//! A subscription notes each frame that it hands over. The note takes the account's own lock and
//! allocates no memory. Rates and quantiles are computed on request, from the frames of the last seconds.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::monitor::TakenReport;
use mez_core::contract::watch::Change;
use mez_core::contract::{Contract, ContractState};
use mez_core::frame::{SkipCounts, SkipReason};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::subscription::{Deliver, SubscriptionSpec};
use mez_core::units::{Instant, Timestamp};

use super::lock;
use super::subscription::Served;
use crate::clock::{monotonic_now, wall_now};

/// The span of time over which rates and quantiles are computed.
pub const ACCOUNT_WINDOW: Duration = Duration::from_secs(10);
/// The most frames of one camera that an account remembers. At higher frame rates the window is shorter than [`ACCOUNT_WINDOW`].
const FRAMES_MAX: usize = 1024;

/// The upper bounds of the buckets of [`AgesSeen`], in seconds: the default buckets of Prometheus' client libraries.
pub(crate) const AGE_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The accounts of all subscriptions of an edge. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Accounts(Arc<All>);

#[derive(Default)]
struct All {
    /// One entry per open subscription.
    open: Mutex<BTreeMap<SubscriptionId, Arc<Account>>>,
    /// Frames handed to applications. Subscriptions that only look on are left out: only their own accounts count their frames.
    delivered: AtomicU64,
    skipped: [AtomicU64; SkipReason::ALL.len()],
    ages: AgesKept,
    /// The ages by camera: one entry per camera that the edge knows or whose frames an open subscription was given.
    ages_of_cameras: Mutex<BTreeMap<CameraName, Arc<AgesKept>>>,
}

/// A histogram of the ages of live frames at delivery.
#[derive(Default)]
struct AgesKept {
    /// The number of frames by the first of [`AGE_BOUNDS`] that is not below their age. Last: frames older than all bounds.
    counts: [AtomicU64; AGE_BOUNDS.len() + 1],
    /// The sum of their ages, in nanoseconds.
    sum: AtomicU64,
}

/// What all applications of an edge were given since its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// Frames that were handed over.
    pub(crate) delivered: u64,
    /// Frames that were skipped.
    pub(crate) skipped: SkipCounts,
    /// The ages of live frames at delivery.
    pub(crate) ages: AgesSeen,
}

/// A histogram of the ages of frames.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AgesSeen {
    /// The number of frames by the first of [`AGE_BOUNDS`] that is not below their age. Last: frames older than all bounds.
    pub(crate) counts: [u64; AGE_BOUNDS.len() + 1],
    /// The sum of their ages.
    pub(crate) sum: Duration,
}

/// What one subscription was given. Removed when the subscription ends.
pub(crate) struct Account {
    id: SubscriptionId,
    all: Arc<All>,
    asked: Asked,
    began: Timestamp,
    kept: Mutex<Kept>,
}

/// What a subscription asked for at its beginning.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) application: String,
    pub(crate) cameras: CameraPattern,
    pub(crate) deliver: Deliver,
    /// The group that it serves.
    pub(crate) group: Option<String>,
    /// The subscription only looks on, for a page.
    pub(crate) looks_on: bool,
}

struct Kept {
    contract: Contract,
    cameras: BTreeMap<CameraName, OfCamera>,
}

/// What a subscription was given of one camera.
#[derive(Default)]
struct OfCamera {
    /// The contract's state, a sentence with the reason, and the time of the last change.
    state: Option<(ContractState, String, Timestamp)>,
    delivered: u64,
    skipped: SkipCounts,
    /// The ages of the camera's live frames, shared by all subscriptions. `None`: no live frame yet.
    ages: Option<Arc<AgesKept>>,
    /// Delivered frames: time of delivery, age, and expected accuracy.
    handed: VecDeque<(Instant, Option<Duration>, Option<f64>)>,
    /// Frames that the application took, as its client reports: time of the report, and age.
    taken: VecDeque<(Instant, Duration)>,
}

/// How a subscription stands at this moment.
#[derive(Clone, Debug)]
pub(crate) struct AccountNow {
    pub(crate) id: SubscriptionId,
    pub(crate) asked: Asked,
    pub(crate) contract: Contract,
    pub(crate) began: Timestamp,
    pub(crate) cameras: BTreeMap<CameraName, GivenNow>,
}

/// What a subscription is given of one camera at this moment. Rates and quantiles cover the last [`ACCOUNT_WINDOW`].
#[derive(Clone, Debug)]
pub(crate) struct GivenNow {
    pub(crate) state: Option<(ContractState, String, Timestamp)>,
    pub(crate) delivered: u64,
    pub(crate) skipped: SkipCounts,
    pub(crate) frames_per_second: f64,
    /// The mean expected accuracy. `None`: not known for any frame.
    pub(crate) accuracy: Option<f64>,
    pub(crate) ages: Option<Ages>,
}

/// Quantiles of the ages of frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ages {
    /// The median.
    pub(crate) p50: Duration,
    /// The 95 % quantile.
    pub(crate) p95: Duration,
    /// The share of frames within the latency bound. `None`: the contract has no bound.
    pub(crate) on_time_share: Option<f64>,
    /// True: ages when the application took the frames. False: ages when the edge handed the frames over.
    pub(crate) at_application: bool,
}

impl Accounts {
    /// Begins the account of a subscription.
    pub(super) fn open(
        &self,
        id: SubscriptionId,
        spec: &SubscriptionSpec,
        group: Option<String>,
    ) -> Arc<Account> {
        let account = Arc::new(Account {
            id,
            all: Arc::clone(&self.0),
            asked: Asked {
                application: spec.application.clone(),
                cameras: spec.cameras.clone(),
                deliver: spec.span.deliver,
                group,
                looks_on: spec.looks_on,
            },
            began: wall_now(),
            kept: Mutex::new(Kept { contract: spec.contract.clone(), cameras: BTreeMap::new() }),
        });
        lock(&self.0.open).insert(id, Arc::clone(&account));
        account
    }

    /// How all subscriptions stand, by number.
    pub(crate) fn now(&self) -> Vec<AccountNow> {
        let open: Vec<_> = lock(&self.0.open).values().cloned().collect();
        let now = monotonic_now();
        open.iter().map(|account| account.now(now)).collect()
    }

    /// What applications were given since the edge started.
    pub(crate) fn totals(&self) -> Totals {
        let mut skipped = SkipCounts::default();
        for (reason, count) in SkipReason::ALL.into_iter().zip(&self.0.skipped) {
            skipped.add(reason, count.load(Ordering::Relaxed));
        }
        Totals { delivered: self.0.delivered.load(Ordering::Relaxed), skipped, ages: self.0.ages.seen() }
    }

    /// The ages of live frames by camera. Removes cameras that are neither known to the edge nor read.
    pub(crate) fn ages(&self, is_known: impl Fn(&CameraName) -> bool) -> BTreeMap<CameraName, AgesSeen> {
        let mut of_cameras = lock(&self.0.ages_of_cameras);
        of_cameras.retain(|camera, ages| is_known(camera) || Arc::strong_count(ages) > 1);
        of_cameras.iter().map(|(camera, ages)| (camera.clone(), ages.seen())).collect()
    }
}

impl AgesKept {
    fn note(&self, age: Duration) {
        let bucket = AGE_BOUNDS.partition_point(|bound| age.as_secs_f64() > *bound);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(age.as_nanos() as u64, Ordering::Relaxed);
    }

    fn seen(&self) -> AgesSeen {
        let counts = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        AgesSeen { counts, sum: Duration::from_nanos(self.sum.load(Ordering::Relaxed)) }
    }
}

impl All {
    /// Counts a frame that was handed to an application. `live`: the age of a live frame; ages of past frames are not counted.
    fn note_delivered(&self, camera: &CameraName, of_camera: &mut OfCamera, live: Option<Duration>) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
        if let Some(age) = live {
            self.ages.note(age);
            of_camera.ages.get_or_insert_with(|| self.ages_of(camera)).note(age);
        }
    }

    fn ages_of(&self, camera: &CameraName) -> Arc<AgesKept> {
        Arc::clone(lock(&self.ages_of_cameras).entry(camera.clone()).or_default())
    }
}

impl Account {
    /// Whether the subscription only looks on.
    pub(super) fn looks_on(&self) -> bool {
        self.asked.looks_on
    }

    /// Replaces the subscription's contract.
    pub(super) fn update(&self, contract: Contract) {
        lock(&self.kept).contract = contract;
    }

    /// Removes a camera that the subscription no longer reads.
    pub(super) fn forget(&self, camera: &CameraName) {
        lock(&self.kept).cameras.remove(camera);
    }

    /// Notes a new contract state on a camera.
    pub(super) fn note_contract(&self, change: &Change) {
        let mut kept = lock(&self.kept);
        let of_camera = kept.cameras.entry(change.camera.clone()).or_default();
        of_camera.state = Some((change.state, change.reason.clone(), wall_now()));
    }

    /// Notes what is handed to the application.
    pub(super) fn note_served(&self, served: &Served) {
        match served {
            Served::Frame { delivery, times, verdict, .. } => {
                let now = monotonic_now();
                let age = times.captured.map(|(captured, _)| now.saturating_since(captured));
                let accuracy = verdict.as_ref().and_then(|verdict| verdict.expected_accuracy);
                let mut kept = lock(&self.kept);
                let of_camera = kept.cameras.entry(delivery.camera.clone()).or_default();
                of_camera.delivered += 1;
                push(&mut of_camera.handed, (now, age, accuracy));
                if !self.asked.looks_on {
                    let live = age.filter(|_| verdict.is_some());
                    self.all.note_delivered(&delivery.camera, of_camera, live);
                }
                self.note_skipped(of_camera, &delivery.skipped);
            }
            Served::Ended { rest } => {
                let mut kept = lock(&self.kept);
                for (camera, skipped, _) in rest {
                    self.note_skipped(kept.cameras.entry(camera.clone()).or_default(), skipped);
                }
            }
            Served::Contract(change) => self.note_contract(change),
            _ => {}
        }
    }

    /// Notes the age of a frame when the application took the frame, as its client reports.
    pub(super) fn note_taken(&self, camera: &CameraName, report: &TakenReport) {
        let (Some(age), mut kept) = (report.taken, lock(&self.kept)) else { return };
        if let Some(of_camera) = kept.cameras.get_mut(camera) {
            push(&mut of_camera.taken, (monotonic_now(), age));
        }
    }

    fn note_skipped(&self, of_camera: &mut OfCamera, skipped: &SkipCounts) {
        of_camera.skipped.merge(skipped);
        if self.asked.looks_on {
            return;
        }
        for (reason, count) in skipped.iter() {
            self.all.skipped[reason as usize - 1].fetch_add(count, Ordering::Relaxed);
        }
    }

    fn now(&self, now: Instant) -> AccountNow {
        let kept = lock(&self.kept);
        let bound = kept.contract.latency_bound;
        AccountNow {
            id: self.id,
            asked: self.asked.clone(),
            contract: kept.contract.clone(),
            began: self.began,
            cameras: kept
                .cameras
                .iter()
                .map(|(camera, given)| (camera.clone(), given.now(now, bound)))
                .collect(),
        }
    }
}

/// The account of an open subscription. Dropping it removes the account.
pub(super) struct Open(pub(super) Arc<Account>);

impl std::ops::Deref for Open {
    type Target = Account;
    fn deref(&self) -> &Account {
        &self.0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.0.all.open).remove(&self.0.id);
    }
}

impl OfCamera {
    fn now(&self, now: Instant, bound: Option<Duration>) -> GivenNow {
        let is_new = |at: Instant| now.saturating_since(at) < ACCOUNT_WINDOW;
        let handed = || self.handed.iter().filter(|(at, ..)| is_new(*at));
        let accuracies: Vec<f64> = handed().filter_map(|(.., accuracy)| *accuracy).collect();
        let taken: Vec<Duration> =
            self.taken.iter().filter(|(at, _)| is_new(*at)).map(|(_, age)| *age).collect();
        let at_application = !taken.is_empty();
        let ages = if at_application { taken } else { handed().filter_map(|(_, age, _)| *age).collect() };
        GivenNow {
            state: self.state.clone(),
            delivered: self.delivered,
            skipped: self.skipped,
            frames_per_second: rate(now, handed().map(|(at, ..)| *at)),
            accuracy: (!accuracies.is_empty())
                .then(|| accuracies.iter().sum::<f64>() / accuracies.len() as f64),
            ages: Ages::of(ages, bound, at_application),
        }
    }
}

impl Ages {
    fn of(mut ages: Vec<Duration>, bound: Option<Duration>, at_application: bool) -> Option<Self> {
        ages.sort_unstable();
        let last = ages.len().checked_sub(1)?;
        // Nearest-rank quantile.
        let rank = |share: f64| (ages.len() as f64 * share).ceil() as usize;
        let quantile = |share: f64| ages[rank(share).saturating_sub(1).min(last)];
        let on_time = |bound| ages.iter().filter(|age| **age <= bound).count() as f64 / ages.len() as f64;
        Some(Self {
            p50: quantile(0.5),
            p95: quantile(0.95),
            on_time_share: bound.map(on_time),
            at_application,
        })
    }
}

/// Events per second, from the oldest event to `now`. `times`: the events, oldest first.
fn rate(now: Instant, mut times: impl Iterator<Item = Instant>) -> f64 {
    let Some(first) = times.next() else { return 0.0 };
    let (count, span) = (times.count(), now.saturating_since(first).as_secs_f64());
    if span > 0.0 { count as f64 / span } else { 0.0 }
}

fn push<T>(frames: &mut VecDeque<T>, frame: T) {
    if frames.len() == FRAMES_MAX {
        frames.pop_front();
    }
    frames.push_back(frame);
}

#[cfg(test)]
mod tests {
    use mez_core::subscription::Span;

    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn ages_are_those_at_the_application_if_its_client_tells_them() {
        let start = Instant::from_nanos(1_000_000_000_000);
        let mut given = OfCamera::default();
        for frame in 0..100 {
            given.handed.push_back((start + ms(100 * frame), Some(ms(frame)), Some(0.9)));
        }
        let now = start + ms(10_000);
        let read = given.now(now, Some(ms(49)));
        let ages = read.ages.expect("there are frames");
        assert_eq!((ages.p50, ages.p95, ages.at_application), (ms(50), ms(95), false));
        // The first of the hundred frames has left the window.
        assert_eq!(ages.on_time_share, Some(49.0 / 99.0));
        assert!((read.frames_per_second - 9.9).abs() < 0.1, "{}", read.frames_per_second);
        assert!((read.accuracy.expect("it is known") - 0.9).abs() < 1e-9);
        given.taken.push_back((now, ms(300)));
        let ages = given.now(now, None).ages.expect("there are frames");
        assert_eq!((ages.p95, ages.on_time_share, ages.at_application), (ms(300), None, true));
        assert_eq!(given.now(now + ACCOUNT_WINDOW, None).ages, None, "nothing came lately");
    }

    #[test]
    fn an_account_ends_with_its_subscription() {
        let accounts = Accounts::default();
        let spec = SubscriptionSpec::new("dock/*".parse().unwrap(), Span::LIVE);
        let open = Open(accounts.open(SubscriptionId(7), &spec, None));
        assert_eq!(accounts.now().len(), 1);
        drop(open);
        assert!(accounts.now().is_empty());
    }

    #[test]
    fn what_the_page_is_shown_is_not_counted_as_handed_to_applications() {
        let accounts = Accounts::default();
        for (id, looks_on) in [(1, true), (2, false)] {
            let spec = SubscriptionSpec { looks_on, ..SubscriptionSpec::live("dock/*".parse().unwrap()) };
            let mut skipped = SkipCounts::default();
            skipped.add(SkipReason::Stalled, 3);
            let rest = vec![("dock/cam1".parse().unwrap(), skipped, None)];
            let account = accounts.open(SubscriptionId(id), &spec, None);
            account.note_served(&Served::Ended { rest });
            let given = &account.now(monotonic_now()).cameras[&"dock/cam1".parse().unwrap()];
            assert_eq!(given.skipped, skipped, "it is in its own account");
        }
        assert_eq!(accounts.totals().skipped.of(SkipReason::Stalled), 3);
    }

    #[test]
    fn ages_are_counted_by_the_first_bound_that_they_are_within() {
        let accounts = Accounts::default();
        let names = ["dock/cam1", "yard/cam1"].map(|name| name.parse::<CameraName>().unwrap());
        let mut given = [OfCamera::default(), OfCamera::default()];
        for (place, live) in [(0, Some(ms(5))), (0, Some(ms(6))), (1, Some(ms(60_000))), (1, None), (1, None)]
        {
            accounts.0.note_delivered(&names[place], &mut given[place], live);
        }
        let totals = accounts.totals();
        assert_eq!((totals.delivered, totals.ages.sum), (5, ms(60_011)));
        assert_eq!(totals.ages.counts, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let of = |known: &CameraName| accounts.ages(|camera| camera == known);
        let seen = of(&names[0]);
        assert_eq!((seen[&names[0]].sum, seen[&names[1]].sum), (ms(11), ms(60_000)), "both are read");
        drop(given);
        assert_eq!(of(&names[1]).keys().collect::<Vec<_>>(), [&names[1]], "the other is forgotten");
    }
}
