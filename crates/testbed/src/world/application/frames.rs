//! Takes frames from an application's session at the application's pace, and tells the application of changes of its contract.

use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::ContractState;
use mez_core::contract::watch::{Change, FrameVerdict, LOOK_INTERVAL};
use mez_core::frame::{SkipCounts, SkipReason};
use mez_core::session::{AtEdge, Session, SessionOutput};
use mez_core::subscription::{Delivery, LastFrame};
use mez_core::units::Instant;
use mez_core::wire::ReplyResult;

use super::{Application, Delivered, Told};
use crate::payload::reply_to;
use crate::time::secs;
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::edge::EdgeHost;
use crate::world::events::Event;
use crate::world::node::Node;
use crate::world::stage::Stage;

/// The shortest time between two frames of one application. Without it, a moment of the world might never end.
const CONSUMES_MIN: Duration = Duration::from_micros(1);

/// What the rules have to be shown. The application then continues with [`Application::handle_shown`].
pub(in crate::world) enum Effect {
    /// Nothing.
    Nothing,
    /// The application has taken a frame. `had` is the last frame of the same camera before.
    Took { had: Option<LastFrame> },
    /// The reading has reached its end, and the application was told the rest.
    Ended,
    /// A right may be lost: the application gets nothing until the rights are checked.
    RightsChanged,
}

impl Application {
    /// Takes a frame, if the application is free and a frame is available.
    pub(in crate::world) fn serve(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) -> Effect {
        if self.stalled || self.held.is_some() {
            return Effect::Nothing;
        }
        let Some((id, session)) = &mut self.reading else { return Effect::Nothing };
        if edge.process.is_none() {
            return Effect::Nothing;
        }
        if self.access.have_changed(edge, stage) {
            return Effect::RightsChanged;
        }
        let now = edge.clock.monotonic(stage.now);
        for letter in self.letters.extract_if(.., |letter| letter.arrives <= stage.now) {
            session.handle_attach(now, letter.camera.clone(), letter.log, letter.present);
        }
        if !self.letters.is_empty() && session.cameras().next().is_none() {
            // The first logs are noticed before the session is polled.
            return Effect::Nothing;
        }
        // In a world, the edge's view of a camera is always up to date.
        session.handle_view_changed();
        let id = *id;
        while let Some(output) = self.poll_session(true, edge, stage) {
            match output {
                SessionOutput::Frame { delivery, times, verdict } => {
                    return self.take(id, delivery, times.captured, verdict, edge, stage);
                }
                SessionOutput::Contract(change) => self.handle_change(id, change, edge, stage),
                SessionOutput::Ended { rest } => {
                    if let Some(process) = &edge.process {
                        stage.checks.ended(id, &rest, &process.logs);
                    }
                    rest.iter().for_each(|(camera, ..)| stage.checks.hears_of(id, camera));
                    self.rest = rest;
                    return Effect::Ended;
                }
            }
        }
        self.put_questions(edge, stage);
        Effect::Nothing
    }

    /// Continues after the rules were shown what was taken, or how the reading ended.
    pub(in crate::world) fn handle_shown(
        &mut self,
        shown: &Effect,
        edge: &mut EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        match shown {
            Effect::Nothing | Effect::RightsChanged => {}
            Effect::Took { .. } => {
                let of_it = self.deliveries.last().map(|(got, _)| &got.camera);
                of_it.map(|camera| self.questions.misled.remove(camera));
                self.tell_contract(edge, stage);
                // Another camera may lack something meanwhile.
                self.put_questions(edge, stage);
            }
            Effect::Ended => {
                self.ended = true;
                stage.trace.record(stage.now, What::Ended { application: self.index });
                self.unsubscribe(edge, stage);
            }
        }
    }

    /// Polls the session. `ready`: the application can take a frame.
    fn poll_session(&mut self, ready: bool, edge: &EdgeHost, stage: &Stage<'_>) -> Option<SessionOutput> {
        let (Some(process), Some((_, session))) = (&edge.process, &mut self.reading) else { return None };
        if self.access.have_changed(edge, stage) {
            return None;
        }
        let now = edge.clock.monotonic(stage.now);
        let mut output = session.poll(now, ready, &AtEdge { broker: &process.broker, now })?;
        match (&mut output, stage.bug) {
            (SessionOutput::Frame { delivery, .. }, Some(Bug::HolesUntold)) => delivery.not_held = None,
            (SessionOutput::Frame { delivery, .. }, Some(Bug::Miscounted)) if self.frames % 20 == 19 => {
                delivery.skipped.add(SkipReason::LinkBusy, 1);
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

    /// Takes a frame, and plans the end of the work on it.
    fn take(
        &mut self,
        id: SubscriptionId,
        delivery: Box<Delivery>,
        stated: Option<(Instant, Duration)>,
        verdict: Option<FrameVerdict>,
        edge: &EdgeHost,
        stage: &mut Stage<'_>,
    ) -> Effect {
        let now = stage.now;
        let published = stage.checks.delivered(id, &delivery, stated, &edge.clock);
        if stage.bug == Some(Bug::FrameAgain) && self.frames == 30 {
            stage.checks.delivered(id, &delivery, stated, &edge.clock);
        }
        let (camera, meta) = (&delivery.camera, &delivery.record.frame.meta);
        let frame = meta.id;
        let has = LastFrame { id: frame, captured: Some(meta.captured) };
        let had = self.has.insert(camera.clone(), has);
        if let (Some(verdict), Some(published)) = (&verdict, published) {
            let age = (now.since(published), stated.map(|(_, error)| error));
            stage.checks.judged(id, camera, frame, &meta.rung, age, verdict);
        }
        let skipped = delivery.skipped.total();
        stage.trace.record(now, What::Delivered { application: self.index, frame, skipped });
        let got = published.map(|published| Delivered {
            at: now,
            camera: camera.clone(),
            frame,
            captured: meta.captured,
            published,
            skipped: delivery.skipped,
            not_held: delivery.not_held,
            subscription: self.subscriptions - 1,
            verdict,
            rung: meta.rung.clone(),
            encoding: meta.encoding,
        });
        got.into_iter().for_each(|got| self.deliveries.push(got));
        let camera = delivery.camera.clone();
        self.held = Some(*delivery);
        self.frames += 1;
        let done = now + self.spec.consumes.max(CONSUMES_MIN);
        stage.events.push(done, Event::Ready { application: self.index, frames: self.frames });
        self.give_to_library(id, camera, (frame, stated.map(|(captured, _)| captured)), edge, stage);
        Effect::Took { had }
    }

    /// The work on the frame with this number is done.
    pub(in crate::world) fn handle_done(&mut self, frames: u64, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        if self.frames != frames {
            return;
        }
        let done = self.held.take().filter(|_| self.reading.is_some());
        if let Some(delivery) = &done {
            self.make_record(delivery, stage);
            self.make_answer(delivery, stage);
        }
        if let Some(delivery) = done.filter(|_| self.spec.replies) {
            let (camera, frame) = (delivery.camera, delivery.record.frame.meta.id);
            let altered = stage.bug == Some(Bug::ReplyAltered);
            let said = if altered { ReplyResult::Opaque("something else".into()) } else { reply_to(frame) };
            let name = format!("application {}", self.index);
            let may = self.may_reply(&camera, edge, stage);
            let told = edge.with_process(stage, |process, _| {
                may && process.broker.handle_reply(&camera, frame, &name, said).is_ok()
            });
            if told == Some(true) {
                stage.checks.replies(&camera, frame, &name);
            }
        }
        stage.touch(Node::Application(self.index));
    }

    // ---- the contract and the end -------------------------------------------------------------------------

    /// Learns of changes of the contract's state.
    fn tell_contract(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        let Some((id, session)) = &mut self.reading else { return };
        let id = *id;
        // In a world, the edge's view of a camera is always up to date.
        session.handle_view_changed();
        while let Some(output) = self.poll_session(false, edge, stage) {
            if let SessionOutput::Contract(change) = output {
                self.handle_change(id, change, edge, stage);
            }
        }
    }

    /// Records a change of the contract's state. The change may end the subscription.
    fn handle_change(
        &mut self,
        id: SubscriptionId,
        change: Change,
        edge: &mut EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        if stage.bug == Some(Bug::AllIsWell) {
            return;
        }
        stage.checks.told(id, &change.camera, change.state);
        stage.checks.hears_of(id, &change.camera);
        let ends = change.ends;
        self.changes.push(Told { at: stage.now, change });
        if ends {
            self.ended = true;
            self.unsubscribe(edge, stage);
        }
    }

    /// Checks whether frames that did not come have broken the contract.
    pub(in crate::world) fn look_at_contract(
        &mut self,
        subscription: SubscriptionId,
        edge: &mut EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        let tells = |session: &Session| session.tells_between_frames();
        if self.reading.as_ref().is_some_and(|(id, session)| *id == subscription && tells(session)) {
            self.tell_contract(edge, stage);
            // The session may have waited for this moment.
            stage.touch(Node::Application(self.index));
            let event = Event::Contract { application: self.index, subscription };
            stage.events.push(stage.now + LOOK_INTERVAL, event);
        }
    }

    /// Polls a subscription whose end may have passed. If the edge's clock is slow, the poll is repeated.
    pub(in crate::world) fn look(&mut self, subscription: SubscriptionId, stage: &mut Stage<'_>) {
        if self.subscription() == Some(subscription) {
            stage.touch(Node::Application(self.index));
            let event = Event::Look { application: self.index, subscription };
            stage.events.push(stage.now + secs(1), event);
        }
    }
}
