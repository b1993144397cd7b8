//! Checks an edge's rights and its deny list for an application or a group, as the API of a real edge does: when it subscribes, at every change of
//! either, and before its stream gets anything.

use mez_core::broker::edge::SubscriptionId;
use mez_core::name::CameraName;
use mez_core::revocation::Certificate;
use mez_core::rights::{Bearer, Granted, Lost, StreamRights};
use mez_core::subscription::SubscriptionSpec;
use mez_core::units::Timestamp;

use crate::world::bug::Bug;
use crate::world::edge::EdgeHost;
use crate::world::stage::Stage;

/// An application's principal, and what its stream was granted.
pub(in crate::world) struct Access {
    pub(in crate::world) who: Bearer,
    /// What the newest stream was granted. `None`: it was refused, or has not asked yet.
    stream: Option<StreamRights>,
    granted: Granted,
    /// The certificate that the application presents.
    pub(in crate::world) certificate: Certificate,
    /// The change counts of the edge's rights and deny list at the last check.
    noticed: (u64, u64),
}

/// Why a stream has to end.
pub(in crate::world) enum Ending {
    /// The application was revoked.
    Revoked,
    /// The application has lost a right.
    Lost(Lost),
}

impl Access {
    pub(in crate::world) fn new(who: Bearer, certificate: Certificate) -> Self {
        Self { who, stream: None, granted: Granted::EVERYTHING, certificate, noticed: (0, 0) }
    }

    /// Whether the stream may read a camera, by what was granted at its beginning.
    pub(in crate::world) fn allows(&self, camera: &CameraName) -> bool {
        self.granted.allows(camera)
    }

    /// Whether the rights or the deny list have changed since the last check.
    pub(in crate::world) fn have_changed(&self, edge: &EdgeHost, stage: &Stage<'_>) -> bool {
        let (rights, lists) = self.noticed;
        rights != edge.rights.changes && stage.bug != Some(Bug::LostRightForgotten)
            || lists != edge.lists.changes && stage.bug != Some(Bug::RevokedStreamKept)
    }

    /// Whether the application is refused because it was revoked. The rules check both answers.
    pub(in crate::world) fn is_turned_away(&self, edge: &EdgeHost, stage: &mut Stage<'_>) -> bool {
        let is_turned_away = edge.turns_away(&self.certificate, stage.bug);
        match is_turned_away {
            true => stage.checks.shut_out(edge.index, &self.certificate),
            false => stage.checks.let_in(edge.index, &self.certificate, || "something was asked".into()),
        }
        is_turned_away
    }

    /// What the application may have of its request at this time. `None`: it is refused.
    pub(in crate::world) fn ask(
        &mut self,
        spec: SubscriptionSpec,
        now: Timestamp,
        edge: &EdgeHost,
        stage: &mut Stage<'_>,
    ) -> Option<SubscriptionSpec> {
        self.noticed = (edge.rights.changes, edge.lists.changes);
        if self.is_turned_away(edge, stage) {
            self.stream = None;
            return None;
        }
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

    /// The stream begins. The rules learn whose stream it is.
    pub(in crate::world) fn begin(
        &self,
        id: SubscriptionId,
        spec: &SubscriptionSpec,
        edge: &EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        let reads = spec.span.begin.is_some() || spec.past.fill;
        let asks = (reads, spec.wants_originals());
        stage.checks.begins(id, (edge.index, &self.who), asks, &self.certificate);
    }

    /// Checks the deny list and the rights. Returns why the stream has to end, if it has to.
    pub(in crate::world) fn look(&mut self, edge: &EdgeHost, stage: &mut Stage<'_>) -> Option<Ending> {
        self.noticed = (edge.rights.changes, edge.lists.changes);
        if stage.bug != Some(Bug::RevokedStreamKept) && self.is_turned_away(edge, stage) {
            return Some(Ending::Revoked);
        }
        self.stream.as_ref().and_then(|stream| stream.look(&edge.rights.now).err()).map(Ending::Lost)
    }
}
