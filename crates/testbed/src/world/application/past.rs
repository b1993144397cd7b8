//! Gets an application's requests for the past answered.
//!
//! What an edge's memory lacks is searched on its disk, if it keeps a log there. The camera is asked for the rest, as in `mez-node`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::edge::SubscriptionId;
use mez_core::history::{PastAnswer, Unanswered};
use mez_core::log::Record;
use mez_core::name::CameraName;
use mez_core::session::Session;
use mez_core::units::Timestamp;

use crate::random::Random;
use crate::time::{Moment, ms};
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::edge::{DiskStills, EdgeHost};
use crate::world::node::Node;
use crate::world::stage::Stage;

/// The longest time until an answer reaches an application's reading.
const ANSWER_TIME_MAX: Duration = ms(5);

/// A request of a reading.
struct Asked {
    subscription: SubscriptionId,
    camera: CameraName,
    /// What the edge's disk had.
    on_disk: PastAnswer,
}

/// An application's requests for the past.
pub(in crate::world) struct Questions {
    /// How many requests were made.
    count: u64,
    /// Open requests, by number.
    open: BTreeMap<u64, Asked>,
    /// Decoders of frames from the edge's disk.
    stills: BTreeMap<CameraName, DiskStills>,
    /// Frames found on the edge's disk that come after what a camera was asked for.
    ahead: BTreeMap<CameraName, Record>,
    /// Whether a request was not answered in time or in full. There may then be holes.
    pub(in crate::world) excused: bool,
    /// Cameras for which a thief has answered a request since their last frame.
    pub(in crate::world) misled: BTreeSet<CameraName>,
    /// When a request was last answered.
    pub(in crate::world) past_until: Moment,
}

impl Questions {
    pub(super) const fn new(now: Moment) -> Self {
        Self {
            count: 0,
            open: BTreeMap::new(),
            stills: BTreeMap::new(),
            ahead: BTreeMap::new(),
            excused: false,
            misled: BTreeSet::new(),
            past_until: now,
        }
    }

    /// Whether all requests are answered.
    pub(in crate::world) fn are_answered(&self) -> bool {
        self.open.is_empty()
    }

    /// The camera of an open request.
    pub(in crate::world) fn camera_of(&self, request: u64) -> Option<&CameraName> {
        self.open.get(&request).map(|asked| &asked.camera)
    }

    /// Makes the requests of a reading.
    pub(super) fn put(
        &mut self,
        (application, subscription): (usize, SubscriptionId),
        reading: &mut Session,
        edge: &mut EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        while let Some((camera, query)) = reading.poll_past() {
            self.count += 1;
            let lost = stage.bug == Some(Bug::PastNotAsked) && self.count % 3 == 2;
            let ahead = self.ahead.remove(&camera).filter(|record| query.admits(&record.frame.meta));
            let on_disk = match ahead {
                Some(record) => PastAnswer { record: Some(record), ..PastAnswer::default() },
                None if !query.asks_disk() => PastAnswer::default(),
                None => {
                    let stills = self.stills.entry(camera.clone()).or_default();
                    edge.find((&camera, application), &query, stills, stage)
                }
            };
            let asks = on_disk.left_to_ask(&query).filter(|_| !lost);
            stage.checks.asks_past(subscription, &camera, asks.map(|asks| asks.rung()));
            let Some(asks) = asks else {
                let answer = if lost { PastAnswer::default() } else { on_disk };
                reading.handle_past(&camera, answer);
                stage.touch(Node::Application(application));
                continue;
            };
            let request = edge
                .with_process(stage, |process, now| process.broker.handle_history_query(now, &camera, asks));
            let Some(request) = request else { return };
            stage.trace.record(stage.now, What::Asked { application, request });
            self.open.insert(request, Asked { subscription, camera, on_disk });
        }
    }

    /// The edge has an answer. `misled`: a thief was asked in the camera's place. Returns how long the answer takes to reach the reading.
    pub(super) fn handle_answered(
        &mut self,
        request: u64,
        answer: &PastAnswer,
        misled: bool,
        random: &mut Random,
    ) -> Duration {
        let robbed = self.camera_of(request).filter(|_| misled && answer.unanswered.is_none()).cloned();
        self.misled.extend(robbed);
        random.duration(Duration::ZERO..=ANSWER_TIME_MAX)
    }

    /// An answer reaches the reading.
    pub(super) fn handle_answer(
        &mut self,
        (application, request): (usize, u64),
        mut answer: PastAnswer,
        reading: Option<&mut (SubscriptionId, Session)>,
        stage: &mut Stage<'_>,
    ) {
        let Some(asked) = self.open.remove(&request) else { return };
        self.past_until = stage.now;
        let Some((_, reading)) = reading.filter(|(id, _)| *id == asked.subscription) else { return };
        match stage.bug {
            // The camera is taken to hold nothing there.
            Some(Bug::AbsenceTakenForNothing) if answer.unanswered.is_some() => {
                answer = PastAnswer { camera_holds_from: Some(Timestamp::MIN), ..PastAnswer::default() };
            }
            _ => self.excused |= answer.unanswered == Some(Unanswered::TimedOut),
        }
        let (mut answer, ahead) = asked.on_disk.with_camera(answer);
        self.excused |= answer.broken;
        self.ahead.extend(ahead.map(|record| (asked.camera.clone(), record)));
        if let Some(record) = answer.record.as_mut().filter(|_| stage.bug == Some(Bug::PastMixedUp)) {
            record.frame.payload = Bytes::from_static(b"another frame");
        }
        stage.trace.record(stage.now, What::Answered { application, found: answer.record.is_some() });
        reading.handle_past(&asked.camera, answer);
        stage.touch(Node::Application(application));
    }

    /// Drops all requests. Their answers are not wanted any more.
    pub(super) fn drop_all(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        let open = std::mem::take(&mut self.open);
        self.stills.clear();
        self.excused = false;
        self.misled.clear();
        edge.with_process(stage, |process, _| {
            open.keys().for_each(|request| process.broker.handle_history_dropped(*request));
        });
    }

    /// The edge's process has ended, and the requests with it.
    pub(super) fn lose(&mut self) {
        self.open.clear();
        self.stills.clear();
        self.ahead.clear();
        self.excused = false;
        self.misled.clear();
    }
}
