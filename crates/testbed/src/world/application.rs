//! Models applications. Each reads the replica logs through a session of core, at its own pace.
//!
//! The session is the one that the edge's driver uses, so that worlds test what users run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::ContractState;
use mez_core::contract::watch::{Change, FrameVerdict, LOOK_INTERVAL};
use mez_core::frame::{ChainKinds, FrameId, SkipCounts};
use mez_core::history::PastWish;
use mez_core::log::{LogReader, Record};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::session::{AtEdge, CameraRest, Session, SessionOutput};
use mez_core::subscription::{Delivery, LastFrame, Span, SubscriptionSpec};
use mez_core::units::{ClockAnchor, Instant, Timestamp};

use super::camera::PROFILE_BYTES;
use super::deliveries::{Delivered, Deliveries};
use super::events::Event;
use super::past::Asked;
use super::{ApplicationId, ApplicationSpec, Bug, Node, PAST_RUNG, Resumes, World};
use crate::check::{Kept, Reading};
use crate::random::Random;
use crate::time::{Moment, ms, secs};
use crate::trace::What;

/// The longest time until an application's thread notices a log that it is to read.
const LETTER_TIME_MAX: Duration = Duration::from_millis(5);
/// The shortest time between two frames of one application. Without it, a moment of the world might never end.
const CONSUMES_MIN: Duration = Duration::from_micros(1);
/// How long a subscription still waits after its end, with a small margin.
const LOOK_AFTER_END: Duration = Duration::from_millis(2_001);

/// A change of a contract's state, as an application was told it.
#[derive(Clone, Debug)]
pub struct Told {
    /// When it was told.
    pub at: Moment,
    /// The change.
    pub change: Change,
}

pub(super) struct Application {
    pub(super) spec: ApplicationSpec,
    pub(super) pattern: CameraPattern,
    /// It subscribes again when the edge is back.
    pub(super) wants: bool,
    pub(super) stalled: bool,
    /// Since when it is ready for frames.
    pub(super) ready_since: Moment,
    pub(super) deliveries: Deliveries,
    pub(super) reading: Option<(SubscriptionId, Session)>,
    changes: Vec<Told>,
    pub(super) random: Random,
    /// When its reading was last busy with the past.
    pub(super) past_until: Moment,
    /// How many questions for the past it has asked.
    pub(super) questions: u64,
    /// Questions for the past that are not answered yet.
    pub(super) asked: BTreeMap<u64, Asked>,
    /// Frames from the edge's disk. They come after what a camera was asked for.
    pub(super) ahead: BTreeMap<CameraName, Record>,
    /// The last frame that it has of each camera.
    has: BTreeMap<CameraName, LastFrame>,
    /// Whether a question for the past was not answered in time or in full. There may then be holes.
    pub(super) excused: bool,
    /// Cameras of which a thief has answered a question since their last frame.
    pub(super) misled: BTreeSet<CameraName>,
    /// When it last subscribed.
    pub(super) subscribed: Moment,
    /// Logs that it is to read. Its thread learns of them a little later.
    letters: Vec<Letter>,
    /// How many subscriptions it has had.
    pub(super) subscriptions: u64,
    /// How many frames it has taken.
    frames: u64,
    /// The frame that it works on.
    held: Option<Delivery>,
    pub(super) ended: bool,
    /// What it was told at the end.
    rest: Vec<CameraRest>,
}

struct Letter {
    arrives: Moment,
    camera: CameraName,
    log: LogReader,
    /// The end of the log when the subscription began to want it.
    present: u64,
    /// The log of frames as they came, for an application that decodes chains.
    chains: Option<(LogReader, ChainKinds)>,
}

impl Application {
    pub(super) fn reads(&self, edge: usize, camera: &CameraName) -> bool {
        self.spec.edge.0 == edge && self.reading.is_some() && self.pattern.matches(camera)
    }

    /// The last frame of a camera that it had before it subscribed, if it resumes after that frame.
    pub(super) fn had(&self, camera: &CameraName) -> Option<LastFrame> {
        self.has.get(camera).copied().filter(|_| self.spec.resumes != Resumes::Anew)
    }

    pub(super) fn lose_subscription(&mut self) {
        self.reading = None;
        self.asked.clear();
        self.ahead.clear();
        self.excused = false;
        self.misled.clear();
        self.letters.clear();
    }
}

/// What an application says of a frame.
pub(crate) fn reply_to(frame: FrameId) -> Bytes {
    frame.to_string().into()
}

impl World {
    /// An application that subscribes now.
    pub fn application(&mut self, spec: ApplicationSpec) -> ApplicationId {
        let index = self.applications.len();
        let pattern = spec.cameras.parse().expect("scenarios give applications valid patterns");
        self.applications.push(Application {
            spec,
            pattern,
            wants: false,
            stalled: false,
            ready_since: self.now,
            deliveries: Deliveries::default(),
            reading: None,
            changes: Vec::new(),
            random: self.random.split(),
            past_until: self.now,
            questions: 0,
            asked: BTreeMap::new(),
            ahead: BTreeMap::new(),
            has: BTreeMap::new(),
            excused: false,
            misled: BTreeSet::new(),
            subscribed: self.now,
            letters: Vec::new(),
            subscriptions: 0,
            frames: 0,
            held: None,
            ended: false,
            rest: Vec::new(),
        });
        self.subscribe(index);
        self.settle();
        self.report();
        ApplicationId(index)
    }

    /// What an application got so far, in order.
    pub fn deliveries(&self, application: ApplicationId) -> &[Delivered] {
        self.applications[application.0].deliveries.all()
    }

    /// All changes of its contract's state that an application was told, in order.
    pub fn contract_changes(&self, application: ApplicationId) -> &[Told] {
        &self.applications[application.0].changes
    }

    /// What an application got since `moment`.
    pub fn deliveries_since(&self, application: ApplicationId, moment: Moment) -> &[Delivered] {
        let all = self.deliveries(application);
        &all[all.partition_point(|delivered| delivered.at < moment)..]
    }

    /// Whether an application's subscription reached its own end.
    pub fn has_ended(&self, application: ApplicationId) -> bool {
        self.applications[application.0].ended
    }

    /// What an application was told at the end of its subscription, of each camera.
    pub fn rest(&self, application: ApplicationId) -> &[CameraRest] {
        &self.applications[application.0].rest
    }

    pub(super) fn subscribe(&mut self, index: usize) {
        self.unsubscribe(index);
        let application = &mut self.applications[index];
        application.wants = true;
        application.ended = false;
        application.ready_since = self.now;
        let edge = application.spec.edge.0;
        if self.edges[edge].process.is_none() {
            return;
        }
        self.subscriptions += 1;
        let id = SubscriptionId(self.subscriptions);
        let (pattern, contract) = (application.pattern.clone(), application.spec.contract.clone());
        let (begin, end, deliver) =
            (application.spec.begin_before, application.spec.end_after_ms, application.spec.deliver);
        let (resumes, decodes) = (application.spec.resumes, application.spec.chains);
        let fill = resumes == Resumes::Filling;
        let quality = application.spec.reduced.then(|| PAST_RUNG.parse().expect("it is a rung"));
        let past = PastWish { reach: application.spec.reach, quality, fill };
        let has = if resumes == Resumes::Anew { BTreeMap::new() } else { application.has.clone() };
        let after = has.iter().map(|(camera, last)| (camera.clone(), *last)).collect();
        let chains = if decodes { ChainKinds { h264: true, tiles: true } } else { ChainKinds::NONE };
        let profile = contract.profile.and_then(|hash| self.profiles.get(&hash)).cloned();
        let named = contract.profile.filter(|_| profile.is_some());
        let shared = profile.clone().map(Arc::new);
        let opened = self.with_edge(edge, |process, now| {
            if let Some(hash) = named {
                process.broker.add_profile(hash, vec![hash[0]; PROFILE_BYTES].into());
            }
            let wall = process.wall(now);
            let end = end.map(|end_ms| {
                Timestamp::from_nanos(wall.as_nanos().saturating_add_signed(end_ms * 1_000_000))
            });
            let span = Span { begin: begin.map(|before| wall - before), end, deliver };
            let spec =
                SubscriptionSpec { contract, past, after, chains, ..SubscriptionSpec::new(pattern, span) };
            let clock = ClockAnchor { wall, monotonic: now };
            let mut session = Session::at_edge(clock, &spec, id, shared);
            let patience = process.broker.handle_subscribe(clock, id, spec.clone());
            patience.into_iter().for_each(|until| session.expect_cameras_until(until));
            (session, spec, process.run, patience)
        });
        let Some((session, spec, edge_run, patience)) = opened else { return };
        let takes_chains = !spec.present_chains().is_none();
        self.checks.subscribed(id, Reading::new(edge_run, spec.span, (past.reach, fill), takes_chains, &has));
        if let Some(at) = patience {
            let at = self.edges[edge].clock.moment_of(at) + ms(1);
            self.events.push(at, Event::Look { application: index, subscription: id });
        }
        if let Some(contract) = session.contract().filter(|contract| !contract.asks_nothing()) {
            self.checks.contracted(id, Kept::new(contract.clone(), profile, self.now));
            self.events.push(self.now, Event::Contract { application: index, subscription: id });
        }
        let application = &mut self.applications[index];
        application.reading = Some((id, session));
        application.subscribed = self.now;
        application.subscriptions += 1;
        self.edges[edge].subscriptions_changed = self.now;
        if let Some(end_ms) = self.applications[index].spec.end_after_ms {
            // The edge's clock may be slow by its drift.
            let after = Duration::from_millis(end_ms.max(0) as u64) + LOOK_AFTER_END;
            self.events.push(self.now + after, Event::Look { application: index, subscription: id });
        }
        self.touch(Node::Application(index));
    }

    pub(super) fn unsubscribe(&mut self, index: usize) {
        let application = &mut self.applications[index];
        application.wants = false;
        let edge = application.spec.edge.0;
        application.letters.clear();
        let reading = application.reading.take();
        self.drop_questions(index);
        self.let_go(index);
        if let Some((id, _)) = reading {
            self.checks.released(id);
            self.with_edge(edge, |process, _| process.broker.handle_unsubscribe(id));
            self.edges[edge].subscriptions_changed = self.now;
        }
    }

    pub(super) fn attach(&mut self, subscription: SubscriptionId, camera: CameraName, log: LogReader) {
        let reads = |known: &Application| known.reading.as_ref().is_some_and(|(id, _)| *id == subscription);
        let Some(index) = self.applications.iter().position(reads) else { return };
        let application = &mut self.applications[index];
        let arrives = self.now + application.random.duration(Duration::ZERO..=LETTER_TIME_MAX);
        let present = log.held().end;
        application.letters.push(Letter { arrives, camera, log, present, chains: None });
        self.events.push(arrives, Event::Wake { application: index });
    }

    /// Gives an application that decodes chains the log of a camera's frames as they came.
    pub(super) fn attach_chains(
        &mut self,
        subscription: SubscriptionId,
        camera: &CameraName,
        chains: (LogReader, ChainKinds),
    ) {
        let reads =
            |known: &&mut Application| known.reading.as_ref().is_some_and(|(id, _)| *id == subscription);
        let letters = self.applications.iter_mut().find(reads).map(|application| &mut application.letters);
        let letter = letters.and_then(|letters| letters.iter_mut().find(|letter| letter.camera == *camera));
        if let Some(letter) = letter {
            letter.chains = Some(chains);
        }
    }

    /// Wakes an application's thread, which has something to look at.
    pub(super) fn wake(&mut self, index: usize) {
        self.touch(Node::Application(index));
    }

    /// Takes a frame, if the application is free and there is one.
    pub(super) fn serve_application(&mut self, index: usize) {
        let application = &mut self.applications[index];
        if application.stalled || application.held.is_some() {
            return;
        }
        let Some((id, session)) = &mut application.reading else { return };
        let edge = &self.edges[application.spec.edge.0];
        if edge.process.is_none() {
            return;
        }
        let now = edge.clock.monotonic(self.now);
        for letter in application.letters.extract_if(.., |letter| letter.arrives <= self.now) {
            session.handle_attach(now, letter.camera.clone(), letter.log, letter.present);
            if let Some((log, kinds)) = letter.chains {
                session.handle_chains(&letter.camera, log, kinds);
            }
        }
        if !application.letters.is_empty() && session.cameras().next().is_none() {
            // The first logs are there before anybody looks.
            return;
        }
        // The edge's view of a camera is as new as it can be here.
        session.handle_view_changed();
        let id = *id;
        while let Some(output) = self.poll_session(index, true) {
            match output {
                SessionOutput::Frame { delivery, times, verdict } => {
                    return self.hand_over_frame(index, id, delivery, times.captured, verdict);
                }
                SessionOutput::Contract(change) => self.told(index, id, change),
                SessionOutput::Ended { rest } => {
                    let edge = &self.edges[self.applications[index].spec.edge.0];
                    if let Some(process) = &edge.process {
                        self.checks.ended(id, &rest, &process.logs);
                    }
                    self.watch_end(index, &rest);
                    self.applications[index].rest = rest;
                    self.applications[index].ended = true;
                    self.trace.record(self.now, What::Ended { application: index });
                    return self.unsubscribe(index);
                }
            }
        }
        self.ask_past(index);
    }

    /// Asks the session of an application what it has. `ready`: the application can take a frame.
    fn poll_session(&mut self, index: usize, ready: bool) -> Option<SessionOutput> {
        let application = &mut self.applications[index];
        let edge = &self.edges[application.spec.edge.0];
        let (Some(process), Some((_, session))) = (&edge.process, &mut application.reading) else {
            return None;
        };
        let now = edge.clock.monotonic(self.now);
        let mut output = session.poll(now, ready, &AtEdge { broker: &process.broker, now })?;
        match (&mut output, self.bug) {
            (SessionOutput::Frame { delivery, .. }, Some(Bug::HolesUntold)) => delivery.not_held = None,
            (SessionOutput::Frame { delivery, .. }, Some(Bug::Miscounted))
                if application.frames % 20 == 19 =>
            {
                delivery.skipped.add(mez_core::frame::SkipReason::LinkBusy, 1);
            }
            (SessionOutput::Ended { rest }, Some(Bug::RestForgotten)) => {
                rest.iter_mut().for_each(|(_, skipped, _)| *skipped = SkipCounts::default());
            }
            (SessionOutput::Frame { verdict: Some(verdict), .. }, Some(Bug::AllIsWell)) => {
                verdict.state = ContractState::Ok;
            }
            _ => {}
        }
        Some(output)
    }

    fn hand_over_frame(
        &mut self,
        index: usize,
        id: SubscriptionId,
        delivery: Box<Delivery>,
        stated: Option<(Instant, Duration)>,
        verdict: Option<FrameVerdict>,
    ) {
        let application = &mut self.applications[index];
        let edge = &self.edges[application.spec.edge.0];
        let published = self.checks.delivered(id, &delivery, stated, &edge.clock);
        if self.bug == Some(Bug::FrameAgain) && application.frames == 30 {
            self.checks.delivered(id, &delivery, stated, &edge.clock);
        }
        let meta = &delivery.record.frame.meta;
        let frame = meta.id;
        let had = application
            .has
            .insert(delivery.camera.clone(), LastFrame { id: frame, captured: Some(meta.captured) });
        if let (Some(verdict), Some(published)) = (&verdict, published) {
            self.checks.judged(
                id,
                &delivery.camera,
                frame,
                &meta.rung,
                (self.now.since(published), stated.map(|(_, error)| error)),
                verdict,
            );
        }
        let skipped = delivery.skipped.total();
        self.trace.record(self.now, What::Delivered { application: index, frame, skipped });
        let got = published.map(|published| Delivered {
            at: self.now,
            camera: delivery.camera.clone(),
            frame,
            published,
            skipped: delivery.skipped,
            not_held: delivery.not_held,
            subscription: application.subscriptions - 1,
            verdict,
            rung: meta.rung.clone(),
            encoding: meta.encoding,
        });
        got.into_iter().for_each(|got| application.deliveries.push(got));
        let camera = delivery.camera.clone();
        application.held = Some(*delivery);
        application.frames += 1;
        let done = self.now + application.spec.consumes.max(CONSUMES_MIN);
        let frames = application.frames;
        self.events.push(done, Event::Ready { application: index, frames });
        self.give_to_library(index, id, camera, (frame, stated.map(|(captured, _)| captured)));
        self.watch_age(index);
        self.watch_holes(index, had);
        self.watch_told(index, had);
        let Application { deliveries, misled, .. } = &mut self.applications[index];
        deliveries.last().map(|(got, _)| misled.remove(&got.camera));
        self.tell_contract(index);
        // Another camera may lack something meanwhile.
        self.ask_past(index);
    }

    /// Tells an application the state of its contract, if it has changed.
    fn tell_contract(&mut self, index: usize) {
        let Some((id, session)) = &mut self.applications[index].reading else { return };
        let id = *id;
        // The edge's view of a camera is as new as it can be here.
        session.handle_view_changed();
        while let Some(output) = self.poll_session(index, false) {
            if let SessionOutput::Contract(change) = output {
                self.told(index, id, change);
            }
        }
    }

    /// Records a change of a contract's state. It may end the subscription.
    fn told(&mut self, index: usize, id: SubscriptionId, change: Change) {
        if self.bug == Some(Bug::AllIsWell) {
            return;
        }
        self.checks.told(id, &change.camera, change.state);
        let ends = change.ends;
        self.applications[index].changes.push(Told { at: self.now, change });
        if ends {
            self.applications[index].ended = true;
            self.unsubscribe(index);
        }
    }

    /// Checks whether frames that did not come have broken a contract.
    pub(super) fn look_at_contract(&mut self, index: usize, subscription: SubscriptionId) {
        let application = &self.applications[index];
        let watches = |session: &Session| session.contract().is_some_and(|contract| !contract.asks_nothing());
        if application.reading.as_ref().is_some_and(|(id, session)| *id == subscription && watches(session)) {
            self.tell_contract(index);
            // It may have been waiting.
            self.touch(Node::Application(index));
            self.events.push(self.now + LOOK_INTERVAL, Event::Contract { application: index, subscription });
        }
    }

    pub(super) fn finish_frame(&mut self, index: usize, frames: u64) {
        let application = &mut self.applications[index];
        if application.frames != frames {
            return;
        }
        if let Some(delivery) = application.held.take()
            && application.spec.replies
            && application.reading.is_some()
        {
            let (edge, camera, frame) =
                (application.spec.edge.0, delivery.camera, delivery.record.frame.meta.id);
            let said = if self.bug == Some(Bug::ReplyAltered) {
                Bytes::from("something else")
            } else {
                reply_to(frame)
            };
            let (name, payload) = (format!("application {index}"), said);
            let told = self.with_edge(edge, |process, _| {
                process.broker.handle_reply(&camera, frame, &name, payload).is_ok()
            });
            if told == Some(true) {
                self.checks.replies(&camera, frame, &name);
            }
        }
        self.touch(Node::Application(index));
    }

    /// Ends a subscription whose end has passed, unless the edge's clock is slow.
    pub(super) fn look(&mut self, index: usize, subscription: SubscriptionId) {
        if self.applications[index].reading.as_ref().is_some_and(|(id, _)| *id == subscription) {
            self.touch(Node::Application(index));
            self.events.push(self.now + secs(1), Event::Look { application: index, subscription });
        }
    }
}
