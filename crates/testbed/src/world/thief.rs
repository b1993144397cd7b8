//! Models thieves of a camera's identity, and the resets by which an operator undoes what they did.

use std::time::Duration;

use mez_core::broker::edge::{EdgeBroker, SubscriptionId};
use mez_core::broker::{EPOCH_MAX, LinkId, NUMBER_MAX};
use mez_core::frame::Epoch;
use mez_core::name::CameraName;
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::{Hello, Message};

use super::storage::Owner;
use super::{Bug, CameraId, Counter, Node, World};
use crate::check::RIVAL_MAX;
use crate::link::Side;
use crate::time::secs;
use crate::trace::What;

/// How late a refusal may come, because it was on its way.
const REFUSED_LATE_MAX: Duration = secs(1);

impl World {
    /// Makes a host that has a camera's keys and uses its name. It dials from [`Action::Claim`](super::Action::Claim) to
    /// [`Action::Leave`](super::Action::Leave), publishes frames of its own, and numbers them as the edge asks.
    pub fn thief(&mut self, of: CameraId) -> CameraId {
        let rivals = self.cameras[of.0].rivals;
        let thief = self.rival(of, None);
        self.cameras[of.0].rivals = rivals;
        self.cameras[thief.0].robs = Some(of.0);
        thief
    }

    pub(super) fn claim(&mut self, index: usize, epoch: u64) {
        self.leave(index);
        // The start itself counts one up.
        self.cameras[index].persisted = epoch.saturating_sub(1);
        self.start_camera(index, Counter::Kept);
    }

    pub(super) fn leave(&mut self, index: usize) {
        let Some(of) = self.cameras[index].robs else { return };
        let Some(process) = self.cameras[index].process.take() else { return };
        let link = self.cameras[index].link;
        for connection in process.open_connections() {
            self.links[link].link.close(self.now, Side::Camera, connection);
        }
        self.links[link].link.give_up_dials(process.run);
        self.end_log(&Owner::Camera(index));
        // What was under way goes before the word that it is gone.
        let (path, heard) = (self.path(index), self.is_heard(index));
        let told = if heard { (path.queue_time() + path.service_time()) * 2 } else { RIVAL_MAX };
        self.cameras[of].robbed_until = self.now + told;
        self.disturb(index);
        self.touch(Node::Link(link));
    }

    /// Whether what a host says now reaches its edge.
    fn is_heard(&self, index: usize) -> bool {
        let host = &self.cameras[index];
        let frozen = self.is_frozen(Node::Camera(index)) || self.is_frozen(Node::Edge(host.spec.edge.0));
        !frozen && !self.links[host.link].link.is_cut()
    }

    /// Whether the camera's name may be with somebody else now.
    pub(super) fn is_robbed(&self, index: usize) -> bool {
        let thief = self.cameras.iter().any(|other| other.robs == Some(index) && other.process.is_some());
        thief || self.is_poisoned(index)
    }

    /// Whether what an edge hears of a camera now comes from a thief.
    pub(super) fn is_with_thief(&self, edge: usize, camera: &CameraName) -> bool {
        let holder = self.edges[edge].process.as_ref().and_then(|process| process.holders.get(camera));
        holder.is_some_and(|holder| self.stolen.contains(holder))
    }

    /// Whether the edge may refuse a camera. If a camera had thieves and they are gone, there is no reason left to refuse it.
    pub(super) fn may_be_refused(&self, index: usize) -> bool {
        let host = &self.cameras[index];
        let has_thieves = self.cameras.iter().any(|other| other.robs == Some(index));
        let own = host.counter_lost.is_some_and(|lost| self.now <= lost + RIVAL_MAX);
        !has_thieves
            || own
            || self.is_robbed(index)
            || self.now <= host.disturbed.max(host.robbed_until) + REFUSED_LATE_MAX
    }

    /// Whether the camera's edge has a state with an epoch beyond all bounds.
    pub(super) fn is_poisoned(&self, index: usize) -> bool {
        let host = &self.cameras[index];
        self.edges[host.spec.edge.0].poisoned.contains_key(&host.name)
    }

    pub(super) fn poison(&mut self, index: usize) {
        let (edge, name) = (self.cameras[index].spec.edge.0, self.cameras[index].name.clone());
        self.edges[edge].poisoned.insert(name, Epoch(NUMBER_MAX - 1));
        self.kill_edge(edge);
        self.start_edge(edge);
    }

    /// Gives a broker that starts the epochs beyond all bounds that its state holds.
    pub(super) fn take_up_poison(&mut self, edge: usize) {
        let poisoned: Vec<_> = self.edges[edge]
            .poisoned
            .iter()
            .map(|(name, epoch)| (name.clone(), nobodys(*epoch), Vec::new()))
            .collect();
        self.with_edge(edge, |process, _| process.broker.restore(poisoned));
    }

    /// Resets a camera, as `mez cameras reset` does.
    pub(super) fn reset(&mut self, index: usize) {
        let (edge, name) = (self.cameras[index].spec.edge.0, self.cameras[index].name.clone());
        let keeps = self.bug == Some(Bug::ResetKeepsEpoch);
        let done = self.with_edge(edge, |process, _| {
            let forgotten = process.broker.handle_reset(&name);
            if let Some(forgotten) = forgotten.filter(|_| keeps) {
                process.broker.restore(vec![(name.clone(), nobodys(forgotten.epoch), Vec::new())]);
            }
            process.logs.remove(&name);
            process.appended.remove(&name);
            process.run
        });
        // An edge that does not run resets nothing.
        let Some(run) = done else { return };
        self.edges[edge].poisoned.remove(&name);
        self.put_aside(edge, &name);
        self.checks.put_aside(run, &name);
        self.drain_edge(edge);
        // A reading of the past alone goes on with what was put aside. Here it begins anew.
        for application in 0..self.applications.len() {
            let known = &self.applications[application];
            let is_past = known.reading.as_ref().is_some_and(|(_, reading)| reading.span().end.is_some());
            if is_past && known.reads(edge, &name) {
                self.subscribe(application);
            }
        }
        self.disturb_edge(edge);
    }

    /// A replica log is kept apart, and can still be read.
    fn put_aside(&mut self, edge: usize, camera: &CameraName) {
        self.end_log(&Owner::Edge(edge, camera.clone()));
        let now = self.edges[edge].clock.monotonic(self.now);
        let Some(mut aside) = self.edges[edge].kept.remove(camera) else { return };
        let read = aside.recover(now, u64::MAX);
        let _ = self.checks.recovered(camera, read);
    }

    /// A subscription is over because a camera was reset: its application subscribes again, as clients do.
    pub(super) fn end_reset(&mut self, subscription: SubscriptionId) {
        let reads =
            |known: &super::Application| known.reading.as_ref().is_some_and(|(id, _)| *id == subscription);
        if let Some(index) = self.applications.iter().position(reads) {
            self.trace.record(self.now, What::Ended { application: index });
            self.subscribe(index);
        }
    }
}

/// A start with an epoch, and with an anchor that is nobody's.
fn nobodys(epoch: Epoch) -> (Epoch, ClockAnchor) {
    (epoch, ClockAnchor { wall: Timestamp::MIN, monotonic: Instant::ZERO })
}

/// What an edge without bounds would make of a greeting: whatever it claims becomes the newest start.
pub(super) fn believe(broker: &mut EdgeBroker, now: Instant, link: LinkId, hello: Hello) {
    let known = broker.log(&hello.camera).map_or(Epoch(0), |(_, epoch, _)| epoch);
    let absurd = hello.epoch > EPOCH_MAX && known < EPOCH_MAX;
    if absurd {
        broker.handle_reset(&hello.camera);
        broker.restore(vec![(hello.camera.clone(), nobodys(EPOCH_MAX), Vec::new())]);
    }
    let epoch = if absurd { EPOCH_MAX } else { hello.epoch };
    broker.handle_message(now, link, Message::Hello(Hello { epoch, ..hello }));
}
