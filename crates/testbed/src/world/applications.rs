//! Creates the applications of a world, and passes events to them.

use mez_core::broker::edge::SubscriptionId;
use mez_core::history::PastAnswer;
use mez_core::name::CameraName;
use mez_core::session::CameraRest;

use super::World;
use super::application::{Application, Delivered, Effect, Told};
use super::edge::EdgeHost;
use super::events::{Event, MadeRecord, Took};
use super::spec::{ApplicationId, ApplicationSpec, Ask};
use super::stage::{Stage, stage};
use crate::time::Moment;
use crate::trace::What;

impl World {
    /// Creates an application, which subscribes now.
    pub fn application(&mut self, spec: ApplicationSpec) -> ApplicationId {
        let index = self.applications.len();
        let random = self.random.split();
        let member = ApplicationId(index).who().to_string().parse().expect("it is a member");
        let certificate = self.site.issue(self.now, &member);
        self.applications.push(Application::new(index, spec, certificate, random, self.now));
        self.subscribe(index);
        self.settle();
        self.report();
        ApplicationId(index)
    }

    /// All frames that an application got so far, in order.
    pub fn deliveries(&self, application: ApplicationId) -> &[Delivered] {
        self.applications[application.0].deliveries.all()
    }

    /// All changes of contract states that an application was told, in order.
    pub fn contract_changes(&self, application: ApplicationId) -> &[Told] {
        &self.applications[application.0].changes
    }

    /// The frames that an application got since `moment`.
    pub fn deliveries_since(&self, application: ApplicationId, moment: Moment) -> &[Delivered] {
        let all = self.deliveries(application);
        &all[all.partition_point(|delivered| delivered.at < moment)..]
    }

    /// How many applications there are.
    pub(crate) fn application_count(&self) -> usize {
        self.applications.len()
    }

    /// How many records of an application its edge has accepted.
    pub fn records_published(&self, application: ApplicationId) -> u64 {
        self.applications[application.0].records_published()
    }

    /// Whether an application's subscription has ended by itself.
    pub fn has_ended(&self, application: ApplicationId) -> bool {
        self.applications[application.0].ended
    }

    /// What an application was told about each camera at the end of its subscription.
    pub fn rest(&self, application: ApplicationId) -> &[CameraRest] {
        &self.applications[application.0].rest
    }

    /// Plans a request of an application for a moment, counted from the beginning of the world. If no session runs then, nothing is asked, but an
    /// update still applies to the next session.
    pub fn asks_at(&mut self, moment: Moment, application: ApplicationId, ask: Ask) -> &mut Self {
        self.events.push(moment, Event::Ask { application: application.0, ask: Box::new(ask) });
        self
    }

    /// Makes a request of an application now.
    pub fn asks(&mut self, application: ApplicationId, ask: Ask) -> &mut Self {
        self.ask(application.0, ask);
        self.settle();
        self.report();
        self
    }

    // ---- events of an application -------------------------------------------------------------------------

    /// Calls `f` with an application and its edge.
    pub(super) fn with_application<R>(
        &mut self,
        index: usize,
        f: impl FnOnce(&mut Application, &mut EdgeHost, &mut Stage<'_>) -> R,
    ) -> R {
        let application = &mut self.applications[index];
        f(application, &mut self.edges[application.spec.edge.0], &mut stage!(self))
    }

    pub(super) fn subscribe(&mut self, index: usize) {
        let id = SubscriptionId(self.subscriptions + 1);
        let used =
            self.with_application(index, |application, edge, stage| application.subscribe(id, edge, stage));
        self.subscriptions += u64::from(used);
    }

    /// Takes a frame, if the application is free and a frame is available.
    pub(super) fn serve_application(&mut self, index: usize) {
        let effect = self.with_application(index, Application::serve);
        if matches!(effect, Effect::Nothing) {
            return;
        }
        if matches!(effect, Effect::RightsChanged) {
            return self.look_at_rights(index);
        }
        let (view, checks) = self.view();
        view.watch_effect(index, &effect, checks);
        self.with_application(index, |application, edge, stage| {
            application.handle_shown(&effect, edge, stage);
        });
    }

    /// Lets an application's stream check the edge's rights, if they have changed. The application subscribes again if other cameras may be granted.
    pub(super) fn look_at_rights(&mut self, index: usize) {
        if self.with_application(index, Application::look_at_rights) {
            self.trace.record(self.now, What::Ended { application: index });
            self.subscribe(index);
        }
    }

    pub(super) fn ask(&mut self, index: usize, ask: Ask) {
        let updated =
            self.with_application(index, |application, edge, stage| application.ask(ask, edge, stage));
        self.disturb_cameras_of(index, updated);
    }

    /// An application has taken a frame from its client library.
    pub(super) fn took(&mut self, index: usize, took: &Took) {
        let updated = self
            .with_application(index, |application, edge, stage| application.handle_took(took, edge, stage));
        self.disturb_cameras_of(index, updated);
    }

    /// A record of an application reaches its edge.
    pub(super) fn derived(&mut self, index: usize, made: MadeRecord) {
        let is_camera = |stream: &CameraName| self.cameras.iter().any(|camera| camera.name == *stream);
        let is_camera = self.applications[index].stream().is_some_and(is_camera);
        self.with_application(index, |application, edge, stage| {
            application.handle_made(made, is_camera, edge, stage);
        });
    }

    /// If `updated`, the cameras that an application reads choose their rungs again.
    fn disturb_cameras_of(&mut self, index: usize, updated: bool) {
        for camera in (0..self.cameras.len()).filter(|_| updated) {
            let (known, host) = (&self.applications[index], &self.cameras[camera]);
            if known.reads(known.spec.edge.0, &host.name) {
                self.disturb(camera);
            }
        }
    }

    /// An edge has the answer to a request for the past.
    pub(super) fn answered(&mut self, edge: usize, request: u64, answer: PastAnswer) {
        let question = |known: &Application| {
            known.questions.camera_of(request).filter(|_| known.spec.edge.0 == edge).cloned()
        };
        let mut asking = self.applications.iter().enumerate();
        let Some((index, camera)) = asking.find_map(|(index, known)| Some((index, question(known)?))) else {
            return;
        };
        let misled = self.view().0.is_with_thief(edge, &camera);
        self.applications[index].handle_answered(request, answer, misled, &mut stage!(self));
    }

    /// The application that has a subscription.
    pub(super) fn application_of(&self, subscription: SubscriptionId) -> Option<usize> {
        self.applications.iter().position(|known| known.subscription() == Some(subscription))
    }
}
