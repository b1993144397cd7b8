//! Publishes what an application made of frames as a derived stream at its edge, by one or several programs of the application.

use mez_core::broker::Published;
use mez_core::broker::edge::{Deriving, PublisherId};
use mez_core::data::DataRecord;
use mez_core::frame::{FrameId, Sequence};
use mez_core::name::CameraName;
use mez_core::rights::{StreamRights, Verb};

use super::access::Access;
use crate::check::AcceptedSeen;
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::edge::EdgeHost;
use crate::world::events::MadeRecord;
use crate::world::spec::DeriveSpec;
use crate::world::stage::Stage;

/// An application's derived stream.
pub(super) struct Publishing {
    /// The application's index.
    application: usize,
    pub(super) spec: DeriveSpec,
    pub(super) stream: CameraName,
    of: Vec<CameraName>,
    /// The publisher number of each program that the edge has admitted.
    pub(super) workers: Vec<Option<PublisherId>>,
    /// The rights granted at the beginning.
    rights: Option<StreamRights>,
    /// The change counts of the edge's rights and deny list at the last check.
    noticed: (u64, u64),
    opened: u64,
    made: u64,
    /// How many records the edge has accepted.
    pub(super) accepted: u64,
}

impl Publishing {
    pub(super) fn new(application: usize, spec: DeriveSpec) -> Self {
        let name = |name: &String| name.parse().expect("scenarios give streams valid names");
        let (stream, of) = (name(&spec.stream), spec.of.iter().map(name).collect());
        let workers = vec![None; spec.workers];
        let (rights, noticed) = (None, (0, 0));
        Self { application, spec, stream, of, workers, rights, noticed, opened: 0, made: 0, accepted: 0 }
    }

    /// The edge's process has ended.
    pub(super) fn lose_edge(&mut self, stage: &mut Stage<'_>) {
        for id in self.workers.iter_mut().filter_map(Option::take) {
            stage.checks.publisher_gone(&self.stream, id);
        }
    }

    /// Ends all programs. `reason` says why, unless they end in an orderly way.
    pub(super) fn end(&mut self, reason: Option<&str>, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        (0..self.workers.len()).for_each(|worker| self.end_worker(worker, reason, edge, stage));
    }

    fn end_worker(
        &mut self,
        worker: usize,
        reason: Option<&str>,
        edge: &mut EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        let Some(id) = self.workers[worker].take() else { return };
        stage.checks.publisher_gone(&self.stream, id);
        stage.trace.record(stage.now, What::StopsPublishing { application: self.application, worker });
        edge.lose_publisher(id, reason.map(str::to_owned), stage);
    }

    /// Checks the rights and the deny list, if they have changed, and ends the programs if publishing is not allowed any more.
    pub(super) fn look(&mut self, access: &Access, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        let changes = (edge.rights.changes, edge.lists.changes);
        let is_open = self.workers.iter().any(Option::is_some);
        if edge.process.is_none() || self.noticed == changes || !is_open {
            return;
        }
        self.noticed = changes;
        if stage.bug == Some(Bug::PublishRightKept) {
            return;
        }
        let is_lost = |rights: &StreamRights| rights.look(&edge.rights.now).is_err();
        if self.rights.as_ref().is_some_and(is_lost) || access.is_turned_away(edge, stage) {
            self.end(Some("its right was taken away"), edge, stage);
        }
    }

    /// Asks to publish. Returns whether it is allowed. `is_camera`: whether a camera of the world has the name of the stream.
    pub(super) fn open(
        &mut self,
        worker: usize,
        access: &Access,
        is_camera: bool,
        edge: &mut EdgeHost,
        stage: &mut Stage<'_>,
    ) -> bool {
        if access.is_turned_away(edge, stage) {
            return false;
        }
        let (who, publish) = (access.who.clone(), vec![Verb::Publish]);
        let asked = StreamRights::ask(&edge.rights.now, who.clone(), publish, (&self.stream).into());
        stage.checks.may_do((edge.index, &who), Verb::Publish, &self.stream, asked.is_ok());
        let Ok(rights) = asked else { return false };
        self.opened += 1;
        let id = PublisherId((self.application as u64) << 32 | self.opened);
        let deriving = Deriving { owner: who.to_string(), of: self.of.clone() };
        match edge.open_publisher((id, &self.stream), &deriving, stage) {
            Some(Ok(begun)) => {
                stage.checks.publisher_opened(edge.index, &self.stream, (id, &who), begun);
                (self.rights, self.noticed) = (Some(rights), (edge.rights.changes, edge.lists.changes));
                self.workers[worker] = Some(id);
                true
            }
            Some(Err(refused)) => {
                stage.checks.publisher_refused(&self.stream, &who, (&refused, is_camera));
                false
            }
            None => false,
        }
    }

    /// Publishes a record. The program may then die.
    pub(super) fn publish(
        &mut self,
        id: PublisherId,
        made: &MadeRecord,
        edge: &mut EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        let (application, worker) = (self.application, made.worker);
        self.made += 1;
        let mut of = made.of.clone();
        if stage.bug == Some(Bug::OriginMixedUp) && self.made.is_multiple_of(10) {
            of.frame = FrameId { sequence: Sequence(of.frame.sequence.0 + 1), ..of.frame };
        }
        let content_type = "application/octet-stream".parse().expect("a content type");
        let record = DataRecord { content_type, of: Some(of), body: made.body.clone() };
        let record = Published::data(&record, None);
        let payload = record.payload.clone();
        match edge.take_record((id, &self.stream), record, stage) {
            Some(Ok(accepted)) => {
                self.accepted += 1;
                let (run, frame, captured) = (accepted.run, accepted.frame, accepted.captured);
                let (payload, of, is_held) = (&payload, &made.of, accepted.is_held);
                let seen = AcceptedSeen { publisher: id, run, frame, captured, payload, of, is_held };
                stage.checks.accepted(edge.index, &self.stream, &seen);
                stage.trace.record(stage.now, What::Derived { application, worker, frame });
                if self.spec.dies_once_in > 0 && stage.random.one_in(self.spec.dies_once_in) {
                    self.end_worker(worker, Some("it was killed"), edge, stage);
                }
            }
            Some(Err(refused)) => stage.checks.record_refused(&self.stream, &refused.to_string()),
            None => {}
        }
    }
}
