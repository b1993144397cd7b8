//! Models applications. Each reads the replica logs through a session of core, at its own pace.
//!
//! The edge's driver uses the same session, so that worlds test what users run. An [`Application`] owns its session and its deliveries. The world
//! lends it its edge and the [`Stage`]. The application returns what the rules have to be shown.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | subscribes and unsubscribes |
//! | `access.rs` | asks for grants and keeps them |
//! | `rights.rs` | notices lost rights and revocation, and does what needs rights |
//! | `frames.rs` | takes frames, and learns of changes of its contract |
//! | `answers.rs` | answers frames |
//! | `asks.rs` | makes requests to a running session |
//! | `hands.rs` | models a client library, which reports when frames are taken |
//! | `past.rs` | gets requests for the past answered |
//! | `deliveries.rs` | records the deliveries |
//! | `records.rs` | makes records of frames |
//! | `publishing.rs` | publishes records as a derived stream |

mod access;
mod answers;
mod asks;
mod deliveries;
mod frames;
mod hands;
mod past;
mod publishing;
mod records;
mod rights;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::watch::Change;
use mez_core::frame::{ChainKinds, Encoding};
use mez_core::history::{PastAnswer, PastOptions};
use mez_core::log::LogReader;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::revocation::Certificate;
use mez_core::session::{CameraRest, Session};
use mez_core::subscription::{Delivery, LastFrame, Span, SubscriptionSpec};
use mez_core::units::{ClockAnchor, Timestamp};

pub(super) use self::access::Access;
pub use self::deliveries::Delivered;
use self::deliveries::Deliveries;
pub(super) use self::frames::Effect;
use self::past::Questions;
use self::publishing::Publishing;
use super::bug::Bug;
use super::edge::EdgeHost;
use super::events::{Event, StillMade};
use super::node::{Node, Reader};
use super::spec::{ApplicationId, ApplicationSpec, PROFILE_BYTES, Resumes};
use super::stage::Stage;
use crate::check::{Kept, Reading};
use crate::payload::PAST_RUNG;
use crate::random::Random;
use crate::time::{Moment, ms};

/// The longest time until an application's thread notices a new log to read.
const LETTER_TIME_MAX: Duration = Duration::from_millis(5);
/// How long after its end a subscription is checked. A subscription waits 2 s after its end.
const LOOK_AFTER_END: Duration = Duration::from_millis(2_001);

/// A change of a contract's state that an application was told.
#[derive(Clone, Debug)]
pub struct Told {
    /// When the application was told.
    pub at: Moment,
    /// The change.
    pub change: Change,
}

pub(super) struct Application {
    /// The application's index.
    index: usize,
    pub(super) spec: ApplicationSpec,
    pub(super) pattern: CameraPattern,
    /// Whether the application subscribes again when its edge is back.
    pub(super) wants: bool,
    /// The granted rights.
    pub(super) access: Access,
    pub(super) stalled: bool,
    /// Since when the application is ready for frames.
    pub(super) ready_since: Moment,
    pub(super) deliveries: Deliveries,
    pub(super) reading: Option<(SubscriptionId, Session)>,
    /// All changes of the contract's state that the application was told, in order.
    pub(super) changes: Vec<Told>,
    random: Random,
    pub(super) questions: Questions,
    /// The last frame of each camera that the application has.
    has: BTreeMap<CameraName, LastFrame>,
    /// When the application last subscribed.
    pub(super) subscribed: Moment,
    /// Logs to read that the application's thread has not noticed yet.
    letters: Vec<Letter>,
    /// How many subscriptions the application has had.
    pub(super) subscriptions: u64,
    /// How many frames the application has taken.
    frames: u64,
    /// The frame that the application works on.
    held: Option<Delivery>,
    pub(super) ended: bool,
    /// What the application was told at the end.
    pub(super) rest: Vec<CameraRest>,
    /// The derived stream that the application publishes.
    publishing: Option<Publishing>,
    /// How many answers the application has made, and how many of them its edge has accepted.
    answers_made: u64,
    answers_accepted: u64,
    /// How many answers to each camera the application has replaced since its last one.
    replaced: BTreeMap<CameraName, u32>,
}

struct Letter {
    arrives: Moment,
    camera: CameraName,
    log: LogReader,
    /// The end of the log when the subscription began to read it.
    present: u64,
}

impl Application {
    /// An application that has not subscribed yet.
    pub(super) fn new(
        index: usize,
        spec: ApplicationSpec,
        certificate: Certificate,
        random: Random,
        now: Moment,
    ) -> Self {
        let pattern = spec.cameras.parse().expect("scenarios give applications valid patterns");
        let publishing = spec.derives.clone().map(|derives| Publishing::new(index, derives));
        Self {
            index,
            spec,
            pattern,
            wants: false,
            access: Access::new(ApplicationId(index).who(), certificate),
            stalled: false,
            ready_since: now,
            deliveries: Deliveries::default(),
            reading: None,
            changes: Vec::new(),
            random,
            questions: Questions::new(now),
            has: BTreeMap::new(),
            subscribed: now,
            letters: Vec::new(),
            subscriptions: 0,
            frames: 0,
            held: None,
            ended: false,
            rest: Vec::new(),
            publishing,
            answers_made: 0,
            answers_accepted: 0,
            replaced: BTreeMap::new(),
        }
    }

    /// The present subscription.
    pub(super) fn subscription(&self) -> Option<SubscriptionId> {
        self.reading.as_ref().map(|(id, _)| *id)
    }

    pub(super) fn reads(&self, edge: usize, camera: &CameraName) -> bool {
        self.spec.edge.0 == edge
            && self.reading.is_some()
            && self.pattern.matches(camera)
            && self.access.allows(camera)
    }

    /// The last frame of a camera that the application had before it subscribed, if it resumes after that frame.
    pub(super) fn had(&self, camera: &CameraName) -> Option<LastFrame> {
        self.has.get(camera).copied().filter(|_| self.spec.resumes != Resumes::Anew)
    }

    /// The edge's process has ended, and the subscription with it.
    pub(super) fn lose_edge(&mut self, stage: &mut Stage<'_>) {
        self.publishing.iter_mut().for_each(|publishing| publishing.lose_edge(stage));
        self.reading = None;
        self.questions.lose();
        self.letters.clear();
    }

    // ---- subscribing --------------------------------------------------------------------------------------

    /// Subscribes, as the subscription `id`. Returns whether `id` was used: not if the edge does not run or refuses.
    pub(super) fn subscribe(
        &mut self,
        id: SubscriptionId,
        edge: &mut EdgeHost,
        stage: &mut Stage<'_>,
    ) -> bool {
        self.unsubscribe(edge, stage);
        self.wants = true;
        self.ended = false;
        self.ready_since = stage.now;
        if edge.process.is_none() {
            return false;
        }
        let has = if self.spec.resumes == Resumes::Anew { BTreeMap::new() } else { self.has.clone() };
        let profile = self.spec.contract.profile.and_then(|hash| stage.profiles.get(&hash)).cloned();
        let named = self.spec.contract.profile.filter(|_| profile.is_some());
        let shared = profile.clone().map(Arc::new);
        let (wish, bug) = ((&self.spec, &self.pattern), stage.bug);
        let clock = edge.with_process(stage, |process, now| {
            if let Some(hash) = named {
                process.broker.add_profile(hash, vec![hash[0]; PROFILE_BYTES].into());
            }
            ClockAnchor { wall: process.wall(now), monotonic: now }
        });
        let Some(clock) = clock else { return false };
        let spec = asked_for(wish, &has, clock.wall);
        let Some(spec) = self.access.ask(spec, clock.wall, edge, stage) else { return false };
        let opened = edge.with_process(stage, |process, _| {
            let mut session = Session::at_edge(clock, &opened_with(&spec, bug), id, shared);
            let patience = process.broker.handle_subscribe(clock, id, spec.clone());
            patience.into_iter().for_each(|until| session.expect_cameras_until(until));
            (session, spec, process.run, patience)
        });
        let Some((session, spec, edge_run, patience)) = opened else { return true };
        let (takes_chains, past) = (!spec.present_chains().is_none(), (spec.past.tier_max, spec.past.fill));
        let reading = Reading::new(edge_run, spec.span, past, (takes_chains, self.spec.originals), &has);
        stage.checks.subscribed(id, reading);
        self.access.begin(id, &spec, edge, stage);
        let (application, subscription) = (self.index, id);
        if let Some(at) = patience {
            let at = edge.clock.moment_of(at) + ms(1);
            stage.events.push(at, Event::Look { application, subscription });
        }
        if let Some(contract) = session.contract().filter(|contract| !contract.asks_nothing()) {
            stage.checks.contracted(id, Kept::new(contract.clone(), profile, stage.now));
        }
        if session.tells_between_frames() {
            stage.events.push(stage.now, Event::Contract { application, subscription });
        }
        self.reading = Some((id, session));
        self.subscribed = stage.now;
        self.subscriptions += 1;
        edge.disturb(stage.now);
        if let Some(end_ms) = self.spec.end_after_ms {
            // The edge's clock may be slow by its drift.
            let after = Duration::from_millis(end_ms.max(0) as u64) + LOOK_AFTER_END;
            stage.events.push(stage.now + after, Event::Look { application, subscription });
        }
        stage.touch(Node::Application(self.index));
        true
    }

    /// Ends the subscription, if there is one.
    pub(super) fn unsubscribe(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        self.wants = false;
        self.letters.clear();
        let reading = self.reading.take();
        self.questions.drop_all(edge, stage);
        self.publishing.iter_mut().for_each(|publishing| publishing.end(None, edge, stage));
        edge.let_go(self.index);
        if let Some((id, _)) = reading {
            stage.checks.released(id);
            edge.with_process(stage, |process, _| process.broker.handle_unsubscribe(id));
            edge.disturb(stage.now);
        }
    }

    /// Stalls in the middle of a frame.
    pub(super) fn stall(&mut self, edge: &mut EdgeHost, stage: &Stage<'_>) {
        self.stalled = true;
        if self.reading.is_some() {
            let reads = |camera: &CameraName| self.pattern.matches(camera) && self.access.allows(camera);
            edge.stand_still(self.index, reads, stage);
        }
    }

    /// Takes frames again.
    pub(super) fn resume(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        self.stalled = false;
        self.ready_since = stage.now;
        edge.let_go(self.index);
        stage.touch(Node::Application(self.index));
    }

    // ---- new logs -----------------------------------------------------------------------------------------

    /// The subscription reads a camera's log from now on. The application's thread notices it a little later.
    pub(super) fn handle_attach(&mut self, camera: CameraName, log: LogReader, stage: &mut Stage<'_>) {
        let arrives = stage.now + self.random.duration(Duration::ZERO..=LETTER_TIME_MAX);
        let present = log.held().end;
        self.letters.push(Letter { arrives, camera, log, present });
        stage.events.push(arrives, Event::Wake { application: self.index });
    }

    // ---- the past, and stills -----------------------------------------------------------------------------

    /// Makes the requests of the reading for the past and for stills.
    fn put_questions(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        if let Some((id, session)) = &mut self.reading {
            self.questions.put((self.index, *id), session, edge, stage);
            while let Some((camera, query)) = session.poll_still() {
                edge.ask_still((Reader::Application(self.index), *id), &camera, query, stage);
            }
        }
    }

    /// The edge has made a still for the application, or cannot make it.
    pub(super) fn handle_still(&mut self, made: StillMade, stage: &mut Stage<'_>) {
        let StillMade { subscription, camera, frame, answer } = made;
        if let Some((_, session)) = self.reading.as_mut().filter(|(id, _)| *id == subscription) {
            session.handle_still(&camera, frame, answer);
            stage.touch(Node::Application(self.index));
        }
    }

    /// The edge has the answer to a request. `misled`: a thief was asked in the camera's place.
    pub(super) fn handle_answered(
        &mut self,
        request: u64,
        answer: PastAnswer,
        misled: bool,
        stage: &mut Stage<'_>,
    ) {
        let later = self.questions.handle_answered(request, &answer, misled, &mut self.random);
        let event = Event::Answered { application: self.index, request, answer: Box::new(answer) };
        stage.events.push(stage.now + later, event);
    }

    /// The answer reaches the reading.
    pub(super) fn handle_answer(&mut self, request: u64, answer: PastAnswer, stage: &mut Stage<'_>) {
        self.questions.handle_answer((self.index, request), answer, self.reading.as_mut(), stage);
    }
}

/// The spec with which a session is opened. A planted bug may forget a part of the request.
fn opened_with(spec: &SubscriptionSpec, bug: Option<Bug>) -> SubscriptionSpec {
    let forgets = bug == Some(Bug::OriginalsForgotten) && spec.wants_originals();
    let past = if forgets { PastOptions::ALL } else { spec.past };
    SubscriptionSpec { past, ..spec.clone() }
}

/// The spec of an application that subscribes at this time. `has`: the last frame of each camera that the application has, if it resumes.
fn asked_for(
    (spec, pattern): (&ApplicationSpec, &CameraPattern),
    has: &BTreeMap<CameraName, LastFrame>,
    wall: Timestamp,
) -> SubscriptionSpec {
    let end = spec
        .end_after_ms
        .map(|end_ms| Timestamp::from_nanos(wall.as_nanos().saturating_add_signed(end_ms * 1_000_000)));
    let span = Span { begin: spec.begin_before.map(|before| wall - before), end, deliver: spec.deliver };
    let quality = spec.reduced.then(|| PAST_RUNG.parse().expect("it is a rung"));
    let past = PastOptions { tier_max: spec.tier_max, quality, fill: spec.resumes == Resumes::Filling };
    let past =
        if spec.originals { PastOptions { quality: PastOptions::ORIGINALS.quality, ..past } } else { past };
    let after = has.iter().map(|(camera, last)| (camera.clone(), *last)).collect();
    let chains =
        if spec.chains { ChainKinds::among(&[Encoding::H264, Encoding::Tiles]) } else { ChainKinds::NONE };
    let contract = spec.contract.clone();
    SubscriptionSpec { contract, past, after, chains, ..SubscriptionSpec::new(pattern.clone(), span) }
}
