//! Checks that no application gets what no grant allows (I10), and that nothing granted is refused.
//!
//! The rules try every grant, one after the other. They do not use the lookups of the brokers.

use mez_core::broker::edge::SubscriptionId;
use mez_core::frame::{FrameId, Rung};
use mez_core::history::is_unmodified;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::revocation::Certificate;
use mez_core::rights::{Bearer, Rights, Verb};

use super::Checks;
use super::known::{Granting, Holder};

impl Checks {
    /// Notes the new rights at an edge.
    pub(crate) fn rights_changed(&mut self, edge: usize, rights: &Rights) {
        let granting = Granting { stance: rights.stance(), grants: rights.grants().cloned().collect() };
        self.granting.insert(edge, granting);
    }

    /// Whether an application may now do all of `verbs` with a camera.
    pub(crate) fn may(&self, (edge, who): (usize, &Bearer), verbs: &[Verb], camera: &CameraName) -> bool {
        let granting = self.granting.get(&edge);
        granting.is_some_and(|granting| verbs.iter().all(|verb| granting.allows(who, *verb, camera)))
    }

    /// Notes the beginning of a subscription.
    pub(crate) fn begins(
        &mut self,
        id: SubscriptionId,
        (edge, who): (usize, &Bearer),
        (reads, originals): (bool, bool),
        certificate: &Certificate,
    ) {
        let (Some(reading), Some(granting)) = (self.readings.get(&id), self.granting.get(&edge)) else {
            return;
        };
        let held = self.appended.iter().filter(|((run, _), _)| *run == reading.edge_run);
        let before = held.filter_map(|((_, camera), frames)| Some((camera.clone(), *frames.last()?)));
        let before = before.collect();
        let (who, granted) = (who.clone(), granting.of(who));
        let certificate = certificate.clone();
        self.holders.insert(id, Holder { edge, who, reads, originals, before, granted, certificate });
    }

    /// Checks that an application may get a frame. It counts as one of the past if the edge had it before the subscription began.
    pub(super) fn check_granted(&mut self, id: SubscriptionId, camera: &CameraName, frame: FrameId) {
        self.check_not_revoked(id, || format!("{frame} of {camera} was handed over"));
        let Some(holder) = self.holders.get(&id) else { return };
        let (edge, who) = (holder.edge, &holder.who);
        let may = |verb| self.may((edge, who), &[verb], camera);
        let is_past = holder.before.get(camera).is_some_and(|newest| frame <= *newest);
        // A reading of the past up to now continues for a moment.
        let may_have = may(Verb::Read) && holder.reads || may(Verb::Watch) && !is_past;
        let text =
            format!("{who} got {frame} of {camera}, of the past: {is_past}, and no grant gives it that");
        self.expect(may_have, "granted", || text);
    }

    /// Checks that a group's member may get a record that was given before.
    pub(crate) fn given_again(&mut self, id: SubscriptionId, camera: &CameraName, frame: FrameId) {
        self.check_granted(id, camera, frame);
    }

    /// Checks that an application that hears of a camera through a subscription may read the camera.
    pub(crate) fn hears_of(&mut self, id: SubscriptionId, camera: &CameraName) {
        self.check_not_revoked(id, || format!("something was told of {camera}"));
        let Some(holder) = self.holders.get(&id) else { return };
        let may = |verb| self.may((holder.edge, &holder.who), &[verb], camera);
        let may_hear = may(Verb::Watch) || may(Verb::Read);
        let text = format!("{} heard of {camera}, and no grant gives it anything of that", holder.who);
        self.expect(may_hear, "granted", || text);
    }

    /// Checks a request for what memory does not hold. `of_camera`: the rung that the camera is asked for, if it is asked.
    pub(crate) fn asks_past(&mut self, id: SubscriptionId, camera: &CameraName, of_camera: Option<Rung>) {
        self.check_not_revoked(id, || format!("the past of {camera} was asked for"));
        let Some(holder) = self.holders.get(&id) else { return };
        let may = |verb| self.may((holder.edge, &holder.who), &[verb], camera);
        let may_ask = holder.originals || may(Verb::Read);
        let may_fetch = of_camera.as_ref().is_none_or(|rung| !is_unmodified(rung)) || may(Verb::Originals);
        let text = format!(
            "{} asked for the past of {camera}, its camera for {of_camera:?}, and no grant gives it that",
            holder.who
        );
        self.expect(may_ask && may_fetch, "granted", || text);
    }

    /// Checks whether an application was rightly allowed or refused to do something with a camera.
    pub(crate) fn may_do(&mut self, who: (usize, &Bearer), verb: Verb, camera: &CameraName, done: bool) {
        let may = self.may(who, &[verb], camera);
        let rule = if done { "granted" } else { "refusals" };
        self.expect(may == done, rule, || {
            format!("{} did {verb} {camera}: {done}, and by its grants it may: {may}", who.1)
        });
    }

    /// Checks that an application that was refused all cameras of a pattern has no grants for any of them.
    pub(crate) fn denied(&mut self, who: (usize, &Bearer), verbs: &[Verb], cameras: &CameraPattern) {
        let known = self.published.keys().map(|(camera, _)| camera);
        let wronged =
            known.filter(|camera| cameras.matches(camera)).find(|camera| self.may(who, verbs, camera));
        if let Some(camera) = wronged.cloned() {
            self.fail(
                "refusals",
                format!("{} was refused {verbs:?} of {cameras}, and may have {camera}", who.1),
            );
        }
    }

    /// Checks that a subscription ends for its rights only if they have changed.
    pub(crate) fn loses(&mut self, id: SubscriptionId, cameras: &CameraPattern) {
        let Some(holder) = self.holders.get(&id) else { return };
        let same = self.granting.get(&holder.edge).map(|granting| granting.of(&holder.who));
        let text = format!("the stream of {} for {cameras} ended, and its grants are the same", holder.who);
        let changed = same.as_ref() != Some(&holder.granted);
        self.expect(changed, "refusals", || text);
    }
}
