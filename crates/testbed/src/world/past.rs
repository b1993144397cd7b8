//! Readings of the past: applications' questions to the camera's log, and the frames that answer them.
//!
//! What an edge's memory lacks is looked for on its disk, if it keeps one, and asked for at the camera, as `mez-node` does it.

use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::camera::{Transform, Transformed};
use mez_core::broker::edge::SubscriptionId;
use mez_core::frame::{ChainLink, Encoding, Epoch, FrameId, SkipCounts};
use mez_core::history::{PastAnswer, PastQuery, Reach, Unanswered};
use mez_core::name::CameraName;
use mez_core::subscription::{Deliver, LastFrame, NotHeld, NotHeldReason};
use mez_core::units::Timestamp;
use mez_core::wire::FrameHeader;

use super::camera::CameraProcess;
use super::events::Event;
use super::watch::RESUME_MAX;
use super::{Bug, Node, Resumes, World};
use crate::link::past_stream;
use crate::payload::{received, reduced};
use crate::time::ms;
use crate::trace::What;

/// How long a camera looks for a frame of the past.
const LOOKS_MS: std::ops::RangeInclusive<u64> = 0..=20;
/// How long it takes until an application's reading has its answer.
const ANSWER_TIME_MAX: Duration = ms(5);

/// A question that a reading has put.
pub(super) struct Asked {
    pub(super) subscription: SubscriptionId,
    pub(super) camera: CameraName,
    /// What the edge's disk had.
    on_disk: PastAnswer,
}

impl World {
    // ---- the application ----------------------------------------------------------------------------------

    /// Puts the questions of an application's reading.
    pub(super) fn ask_past(&mut self, index: usize) {
        loop {
            let application = &mut self.applications[index];
            let edge = application.spec.edge.0;
            let Some((id, reading)) = &mut application.reading else { return };
            let Some((camera, query)) = reading.poll_past() else { return };
            let id = *id;
            application.questions += 1;
            let lost = self.bug == Some(Bug::PastNotAsked) && application.questions % 3 == 2;
            let ahead = application.ahead.remove(&camera).filter(|record| query.admits(&record.frame.meta));
            let on_disk = match ahead {
                Some(record) => PastAnswer { record: Some(record), ..PastAnswer::default() },
                None => {
                    let kept = self.edges[edge].kept.get_mut(&camera);
                    kept.map(|kept| kept.find(&query)).unwrap_or_default()
                }
            };
            let Some(asks) = on_disk.left_to_ask(&query).filter(|_| !lost) else {
                let answer = if lost { PastAnswer::default() } else { on_disk };
                reading.handle_past(&camera, answer);
                self.touch(Node::Application(index));
                continue;
            };
            let request =
                self.with_edge(edge, |process, now| process.broker.handle_history_query(now, &camera, asks));
            let Some(request) = request else { return };
            self.trace.record(self.now, What::Asked { application: index, request });
            self.applications[index].asked.insert(request, Asked { subscription: id, camera, on_disk });
        }
    }

    /// An edge has the answer to a question.
    pub(super) fn past_answered(&mut self, edge: usize, request: u64, answer: PastAnswer) {
        let asks =
            |known: &super::Application| known.spec.edge.0 == edge && known.asked.contains_key(&request);
        let Some(index) = self.applications.iter().position(asks) else { return };
        let known = self.applications[index].asked.get(&request);
        let robbed =
            known.map(|asked| asked.camera.clone()).filter(|camera| self.is_with_thief(edge, camera));
        let application = &mut self.applications[index];
        application.misled.extend(robbed.filter(|_| answer.unanswered.is_none()));
        let later = self.now + application.random.duration(Duration::ZERO..=ANSWER_TIME_MAX);
        let answer = Box::new(answer);
        self.events.push(later, Event::Answered { application: index, request, answer });
    }

    /// An application's reading has its answer.
    pub(super) fn take_answer(&mut self, index: usize, request: u64, mut answer: PastAnswer) {
        let application = &mut self.applications[index];
        let Some(asked) = application.asked.remove(&request) else { return };
        application.past_until = self.now;
        let Some((id, reading)) = &mut application.reading else { return };
        if *id != asked.subscription {
            return;
        }
        match self.bug {
            // As if the camera had said that it holds nothing there.
            Some(Bug::AbsenceTakenForNothing) if answer.unanswered.is_some() => {
                answer = PastAnswer { camera_holds_from: Some(Timestamp::MIN), ..PastAnswer::default() };
            }
            _ => application.excused |= answer.unanswered == Some(Unanswered::TimedOut),
        }
        let (mut answer, ahead) = asked.on_disk.with_camera(answer);
        application.excused |= answer.broken;
        application.ahead.extend(ahead.map(|record| (asked.camera.clone(), record)));
        if let Some(record) = answer.record.as_mut().filter(|_| self.bug == Some(Bug::PastMixedUp)) {
            record.frame.payload = Bytes::from_static(b"another frame");
        }
        self.trace.record(self.now, What::Answered { application: index, found: answer.record.is_some() });
        reading.handle_past(&asked.camera, answer);
        self.touch(Node::Application(index));
    }

    /// Nobody waits for an application's questions any more.
    pub(super) fn drop_questions(&mut self, index: usize) {
        let edge = self.applications[index].spec.edge.0;
        let asked = std::mem::take(&mut self.applications[index].asked);
        self.applications[index].excused = false;
        self.applications[index].misled.clear();
        self.with_edge(edge, |process, _| {
            asked.keys().for_each(|request| process.broker.handle_history_dropped(*request));
        });
    }

    /// A frame that the camera still holds was passed over by a reading that asks the camera, before the frame that it just gave:
    /// that is a hole that nobody had to make.
    pub(super) fn watch_holes(&mut self, index: usize, had: Option<LastFrame>) {
        let application = &self.applications[index];
        let Some((got, before)) = application.deliveries.last() else { return };
        let had = had.filter(|_| application.spec.resumes != Resumes::Anew);
        let last = before.or(had.map(|had| had.id));
        let (next, camera) = (got.frame, got.camera.clone());
        let camera = self.cameras.iter().position(|known| known.name == camera);
        camera.into_iter().for_each(|camera| self.expect_no_hole(index, camera, last, Some(next)));
    }

    /// The same for all that would have come after the last frame that a reading gave before its end; `rest` is what was told then.
    pub(super) fn watch_end(&mut self, index: usize, rest: &[(CameraName, SkipCounts, Option<NotHeld>)]) {
        let application = &self.applications[index];
        let edge = application.spec.edge.0;
        let cameras = self.cameras.iter().map(|camera| &camera.name);
        let names: Vec<CameraName> = cameras.filter(|name| application.reads(edge, name)).cloned().collect();
        let this = application.subscriptions - 1;
        for name in names {
            let given = self.applications[index].deliveries.newest(&name, this);
            let camera = self.cameras.iter().position(|known| known.name == name);
            let given_or_had = given.or(self.applications[index].had(&name).map(|had| had.id));
            if let Some(camera) = camera {
                self.expect_no_hole(index, camera, given_or_had, None);
                // Of a camera that did not come while it lasted, nothing is said.
                if let Some((.., told)) = rest.iter().find(|(camera, ..)| *camera == name) {
                    self.expect_told(index, camera, given_or_had, None, *told);
                }
            }
        }
    }

    /// What lies between the frame that an application had before and the one that it just got was delivered, is counted, or is told;
    /// one that fills was given all that the camera holds of it.
    pub(super) fn watch_told(&mut self, index: usize, had: Option<LastFrame>) {
        let application = &self.applications[index];
        let Some((got, before)) = application.deliveries.last() else { return };
        let resumes = application.spec.resumes != Resumes::Anew;
        let last = before.or(had.filter(|_| resumes).map(|had| had.id));
        let (next, not_held, name) = (got.frame, got.not_held, got.camera.clone());
        let camera = self.cameras.iter().position(|known| known.name == name);
        camera.into_iter().for_each(|camera| self.expect_told(index, camera, last, Some(next), not_held));
    }

    fn expect_told(
        &mut self,
        index: usize,
        camera: usize,
        last: Option<FrameId>,
        next: Option<FrameId>,
        not_held: Option<NotHeld>,
    ) {
        let (application, host) = (&self.applications[index], &self.cameras[camera]);
        let Some((_, reading)) = &application.reading else { return };
        let (span, name) = (reading.span(), host.name.clone());
        let fills = application.spec.resumes == Resumes::Filling;
        if host.is_doubtful() || next.is_some_and(|next| last.is_some_and(|last| next <= last)) {
            return;
        }
        if let (Some(last), Some(next)) = (last, next)
            && last.epoch < next.epoch
        {
            let newest = self.checks.last_published(&name, last.epoch);
            let told = not_held.is_some_and(|told| newest.is_none_or(|newest| told.begin <= newest));
            self.checks.expect(told, "untold", || {
                format!(
                    "application {index} got {next:?} of camera {camera} after {last:?}, and of the end of that epoch, {newest:?}, \
                     was told {not_held:?}"
                )
            });
        }
        // Counts tell the others.
        let counted = !fills && last.is_some() && next.is_some();
        let asks = fills || span.begin.is_some() && span.deliver == Deliver::Every;
        let began = span.begin.is_some() || last.is_some();
        if counted || !asks || !began || application.spec.reach < Reach::Camera {
            return;
        }
        // A thief holds none of the camera's frames, and says so: the edge cannot know that another start would have known better.
        if fills && application.misled.contains(&name) {
            return;
        }
        let frame_bytes_max = self.edges[application.spec.edge.0].spec.frame_bytes_max as usize;
        let since = application.subscribed;
        let begin = span.begin.filter(|_| last.is_none()).unwrap_or(Timestamp::MIN);
        let (end, reach) = (span.end.unwrap_or(Timestamp::MAX), Reach::Memory);
        let mut query =
            PastQuery { after: last, before: next, begin, end, newest: false, reach, quality: None };
        let mut untold = Vec::new();
        while let Some(passed) = host.process.as_ref().and_then(|process| process.past(&query)) {
            let meta = &passed.frame.meta;
            query.after = Some(meta.id);
            // Of one that may have another's name nothing is given.
            let doubted = |process: &CameraProcess| process.doubted.contains(&meta.id.epoch);
            let is_given = !fills || !host.process.as_ref().is_some_and(doubted);
            if is_given && passed.frame.payload.len() <= frame_bytes_max {
                untold.push((meta.id, meta.captured, "the camera holds it"));
            }
        }
        // All that an edge has ever seen, before the first frame; later ones are counted.
        if last.is_none() && next.is_some() {
            let seen = self.checks.seen(&name, &query);
            untold.extend(seen.into_iter().map(|(id, captured)| (id, captured, "an edge has seen it")));
        }
        for (id, captured, why) in untold {
            // A frame that was published while the end came may be on its way.
            let published = self.checks.published_at(&name, id);
            if next.is_none() && published.is_none_or(|published| published + ms(100) >= since) {
                continue;
            }
            // Of a start whose clock was set back nothing lies before the frame in time.
            let covers =
                |told: &NotHeld| told.begin <= captured && (captured < told.end || told.end <= told.begin);
            let heard = |told: &NotHeld| {
                use NotHeldReason::{Busy, CameraAbsent, NotAnswered};
                !fills || matches!(told.reason, CameraAbsent | NotAnswered | Busy)
            };
            let is_told = not_held.as_ref().is_some_and(|told| covers(told) && heard(told));
            let next_at = next.filter(|next| next.epoch != id.epoch);
            let next_at = next_at.and_then(|next| self.checks.captured_at(&name, next));
            let set_back = next_at.is_some_and(|next_at| next_at <= captured);
            self.checks.expect(is_told || set_back, if fills { "filled" } else { "untold" }, || {
                format!(
                    "application {index} got {next:?} of camera {camera} after {last:?}, and nothing of {id}, captured {captured}: \
                     {why}; it was told {not_held:?}"
                )
            });
        }
    }

    fn expect_no_hole(&mut self, index: usize, camera: usize, last: Option<FrameId>, next: Option<FrameId>) {
        let application = &self.applications[index];
        let Some((_, reading)) = &application.reading else { return };
        let span = reading.span();
        let (Some(begin), since) = (span.begin, application.subscribed) else { return };
        let asks = span.deliver == Deliver::Every && application.spec.reach == Reach::Camera;
        let host = &self.cameras[camera];
        let Some(process) = host.process.as_ref().filter(|_| asks && !application.excused) else { return };
        let settled = self.quiet_since(camera) + RESUME_MAX * 2;
        if host.rivals || settled > since || !process.broker.is_up() || !self.is_brisk(camera) {
            return;
        }
        let end = span.end.unwrap_or(Timestamp::MAX);
        let reach = Reach::Memory;
        let mut query =
            PastQuery { after: last, before: next, begin, end, newest: false, reach, quality: None };
        // What it knows to have the names of another start's frames it keeps back.
        let kept_back = |id: FrameId| self.checks.has_given_up(&host.name, process.run, id.epoch);
        let mut behind = std::iter::from_fn(|| {
            let passed = process.past(&query)?;
            query.after = Some(passed.frame.meta.id);
            Some(passed)
        });
        let Some(passed) = behind.find(|passed| !kept_back(passed.frame.meta.id)) else { return };
        let id = passed.frame.meta.id;
        let published = self.checks.published_at(&host.name, id);
        let fits =
            passed.frame.payload.len() <= self.edges[application.spec.edge.0].spec.frame_bytes_max as usize;
        let was_past = published.is_some_and(|published| published + ms(100) < since);
        self.checks.expect(!fits || !was_past, "holes", || {
            format!("application {index} got {next:?} of camera {camera} after {last:?}, but the camera holds {id}")
        });
    }

    // ---- the camera ---------------------------------------------------------------------------------------

    /// A camera's host looks for a frame of the past.
    pub(super) fn look_for(&mut self, index: usize, ticket: u64, query: PastQuery) {
        let host = &mut self.cameras[index];
        let Some(process) = &host.process else { return };
        let (run, done) = (process.run, self.now + ms(host.random.within(LOOKS_MS)));
        self.events.push(done, Event::Found { camera: index, run, ticket, query });
    }

    pub(super) fn found(&mut self, index: usize, run: u64, ticket: u64, query: PastQuery) {
        if self.is_frozen(Node::Camera(index)) {
            let later = self.now + ms(*LOOKS_MS.end());
            return self.events.push(later, Event::Found { camera: index, run, ticket, query });
        }
        let host = &mut self.cameras[index];
        let Some(process) = host.process.as_mut().filter(|process| process.run == run) else { return };
        let mut answer = process.whole_past(host.kept.as_mut(), query);
        if self.bug == Some(Bug::PastWithHoles)
            && let Some(found) =
                answer.record.as_ref().filter(|record| record.frame.meta.id.sequence.0 % 5 == 4)
        {
            let after = Some(found.frame.meta.id);
            answer = process.whole_past(host.kept.as_mut(), PastQuery { after, ..query });
        }
        process.broker.handle_history(host.clock.monotonic(self.now), ticket, answer);
        self.touch(Node::Camera(index));
    }

    /// A camera makes a frame of the past smaller.
    pub(super) fn make_past(&mut self, index: usize, ticket: u64, transform: &Transform) {
        let host = &mut self.cameras[index];
        let Some(process) = &host.process else { return };
        let Transform { frame, setting, .. } = transform;
        let payload = reduced(&received(&frame.payload));
        let (width, height) = setting.size((frame.meta.width, frame.meta.height));
        let (rung, chain) = (setting.rung(), ChainLink::still(frame.meta.id.sequence));
        let encoding = Encoding::Jpeg;
        let made = Box::new(Transformed::Made { payload, encoding, width, height, rung, chain });
        let (run, done) = (process.run, self.now + ms(host.random.within(LOOKS_MS)));
        self.events.push(done, Event::PastMade { camera: index, run, ticket, made });
    }

    pub(super) fn past_made(&mut self, index: usize, run: u64, ticket: u64, made: Box<Transformed>) {
        if self.is_frozen(Node::Camera(index)) {
            let later = self.now + ms(*LOOKS_MS.end());
            return self.events.push(later, Event::PastMade { camera: index, run, ticket, made });
        }
        let host = &mut self.cameras[index];
        let Some(process) = host.process.as_mut().filter(|process| process.run == run) else { return };
        process.broker.handle_past_transformed(host.clock.monotonic(self.now), ticket, *made);
        self.touch(Node::Camera(index));
    }

    /// A camera gives a frame of the past to its link.
    pub(super) fn send_past(
        &mut self,
        index: usize,
        connection: LinkId,
        header: &FrameHeader,
        payload: Bytes,
    ) {
        let now = self.now;
        let host = &mut self.cameras[index];
        let Some(process) = &mut host.process else { return };
        let link = &mut self.links[host.link].link;
        let request = header.history;
        let unsent = (link.unsent_frames(connection), link.unsent_past(connection));
        self.checks.sends_past(&host.name, process.run, &header.meta, &payload, unsent);
        let frame = header.meta.id;
        self.trace.record(now, What::SendsPast { camera: index, link: connection, frame, request });
        let mut bytes = Vec::with_capacity(256);
        header.encode(&mut bytes);
        link.send_frame(now, connection, past_stream(request), bytes.into(), payload);
        if self.bug == Some(Bug::PastHurries) {
            process.broker.handle_history_sent(host.clock.monotonic(now), connection, request);
        }
    }

    /// The last byte of a frame of the past has left, or will not.
    pub(super) fn past_left(&mut self, index: usize, connection: LinkId, request: u64) {
        let host = &mut self.cameras[index];
        let Some(process) = &mut host.process else { return };
        self.checks.past_left(&host.name, process.run, process.broker.demand().is_some());
        process.broker.handle_history_sent(host.clock.monotonic(self.now), connection, request);
        self.touch(Node::Camera(index));
    }

    // ---- the edge -----------------------------------------------------------------------------------------

    /// All of a frame of the past has arrived at an edge, or the rest of it will not.
    pub(super) fn past_arrived(
        &mut self,
        edge: usize,
        connection: LinkId,
        request: u64,
        payload: Option<Bytes>,
    ) {
        self.with_edge(edge, |process, now| match payload {
            Some(payload) => {
                let payload = received(&payload);
                process.broker.handle_history_complete(now, connection, request, payload);
            }
            None => process.broker.handle_history_cancelled(now, connection, request),
        });
    }
}

/// The request that a stream of the link belongs to, if it carries a frame of the past.
pub(super) fn request_of(stream: FrameId) -> Option<u64> {
    (stream.epoch == Epoch(u64::MAX)).then_some(stream.sequence.0)
}
