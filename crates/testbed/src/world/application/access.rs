//! Asks an edge's rights for an application, as the interface of a real edge does: when it subscribes, at every change of the rights, and before
//! everything that its stream is told.

use mez_core::broker::edge::SubscriptionId;
use mez_core::name::CameraName;
use mez_core::rights::{Bearer, Granted, Lost, StreamRights};
use mez_core::subscription::SubscriptionSpec;
use mez_core::units::Timestamp;

use crate::world::bug::Bug;
use crate::world::edge::EdgeHost;
use crate::world::spec::ApplicationId;
use crate::world::stage::Stage;

/// Who an application is, and what its stream was granted.
pub(in crate::world) struct Access {
    pub(in crate::world) who: Bearer,
    /// What its newest stream was granted. `None`: it was refused, or has not asked yet.
    stream: Option<StreamRights>,
    granted: Granted,
    /// How often the rights of its edge had changed when it last looked.
    noticed: u64,
}

impl Access {
    pub(super) fn new(index: usize) -> Self {
        let who = ApplicationId(index).who();
        Self { who, stream: None, granted: Granted::EVERYTHING, noticed: 0 }
    }

    /// Whether its stream may have a camera, by what it was granted when it began.
    pub(super) fn allows(&self, camera: &CameraName) -> bool {
        self.granted.allows(camera)
    }

    /// Whether the rights have changed since they were last looked at.
    pub(super) fn have_changed(&self, edge: &EdgeHost, stage: &Stage<'_>) -> bool {
        self.noticed != edge.rights.changes && stage.bug != Some(Bug::LostRightForgotten)
    }

    /// What it may have of what it asks for at this time. `None`: it is refused.
    pub(super) fn ask(
        &mut self,
        spec: SubscriptionSpec,
        now: Timestamp,
        edge: &EdgeHost,
        stage: &mut Stage<'_>,
    ) -> Option<SubscriptionSpec> {
        self.noticed = edge.rights.changes;
        let (verbs, cameras) = (spec.needs(now), spec.cameras.clone());
        match StreamRights::ask(&edge.rights.now, self.who.clone(), verbs.clone(), cameras) {
            Ok(stream) => {
                let forgets = stage.bug == Some(Bug::GrantsForgotten);
                self.granted = if forgets { Granted::EVERYTHING } else { stream.granted().clone() };
                self.stream = Some(stream);
                Some(SubscriptionSpec { granted: self.granted.clone(), ..spec })
            }
            Err(_) => {
                self.stream = None;
                stage.checks.denied((edge.index, &self.who), &verbs, &spec.cameras);
                None
            }
        }
    }

    /// Its stream begins. The rules learn whose it is.
    pub(super) fn begin(
        &self,
        id: SubscriptionId,
        spec: &SubscriptionSpec,
        edge: &EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        let reads = spec.span.begin.is_some() || spec.past.fill;
        stage.checks.begins(id, (edge.index, &self.who), (reads, spec.wants_originals()));
    }

    /// Looks at the rights. Returns why the stream has to end, if it has to.
    pub(super) fn look(&mut self, edge: &EdgeHost) -> Option<Lost> {
        self.noticed = edge.rights.changes;
        self.stream.as_ref().and_then(|stream| stream.look(&edge.rights.now).err())
    }
}
