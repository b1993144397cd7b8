//! Knows what applications want, and passes it on to the cameras: contracts, the profiles that they name, and who reads which log.

use std::time::Duration;

use super::connection::Connection;
use super::derived::Derived;
use super::profiles::Profiles;
use super::roster::Roster;
use super::subscriptions::{Subscribed, Subscriptions};
use super::types::{EdgeOutput, SubscriptionId};
use crate::contract::Contract;
use crate::frame::Epoch;
use crate::name::CameraName;
use crate::subscription::SubscriptionSpec;
use crate::units::{ClockAnchor, Instant};
use crate::wire::{Message, ProfileRequest};

/// The applications of this edge.
#[derive(Default)]
pub(super) struct Applications {
    pub(super) subscriptions: Subscriptions,
    pub(super) profiles: Profiles,
}

impl Applications {
    /// Makes a camera or a derived stream known. If it was not known before, the subscriptions that select it get its log.
    pub(super) fn introduce(
        &self,
        roster: &mut Roster,
        camera: &CameraName,
        identity: &str,
        start: (Epoch, ClockAnchor),
        derived: Option<Derived>,
    ) -> Vec<EdgeOutput> {
        if !roster.cameras.know(camera, identity, start, derived) {
            return Vec::new();
        }
        let readers = self.subscriptions.readers(camera).into_iter();
        readers.filter_map(|subscription| roster.attach(subscription, camera)).collect()
    }

    /// An application subscribes. Unknown cameras may connect until `expected`. Returns until
    /// when the subscription waits for cameras that are not known yet and whose past it wants.
    pub(super) fn handle_subscribe(
        &mut self,
        roster: &mut Roster,
        clock: &ClockAnchor,
        id: SubscriptionId,
        asked: SubscriptionSpec,
        expected: Option<Instant>,
    ) -> (Option<Instant>, Vec<EdgeOutput>) {
        let chains = asked.present_chains();
        let mut matching = roster.cameras.matching(&asked.cameras);
        matching.retain(|name| asked.granted.allows(name));
        let attached = matching.iter().filter_map(|name| roster.attach(id, name));
        let mut outputs: Vec<EdgeOutput> = attached.collect();
        let is_whole = asked.cameras.as_camera().is_some_and(|camera| matching.contains(&camera));
        let Subscribed { stays, patience } =
            self.subscriptions.handle_subscribe(clock, id, asked, (expected, is_whole));
        if stays {
            outputs.extend(self.ask_all(roster));
        }
        if stays && !chains.is_none() {
            let lost = matching.iter().filter_map(|name| roster.handle_chain_lost(clock.monotonic, name));
            outputs.extend(lost);
        }
        (patience, outputs)
    }

    /// A subscription is over.
    pub(super) fn handle_unsubscribe(&mut self, roster: &mut Roster, id: SubscriptionId) -> Vec<EdgeOutput> {
        if self.subscriptions.handle_unsubscribe(id) { self.ask_all(roster) } else { Vec::new() }
    }

    /// A subscription changes its contract, which takes effect as soon as a change is allowed.
    pub(super) fn handle_update(
        &mut self,
        now: Instant,
        roster: &mut Roster,
        id: SubscriptionId,
        contract: Contract,
    ) -> Vec<EdgeOutput> {
        let is_known = self.subscriptions.handle_update(id, contract);
        if is_known { self.handle_updates(now, roster) } else { Vec::new() }
    }

    /// Frames take `way` from the edge to a subscription's application.
    pub(super) fn handle_way(
        &mut self,
        roster: &mut Roster,
        id: SubscriptionId,
        way: Duration,
    ) -> Vec<EdgeOutput> {
        if self.subscriptions.handle_way(id, way) { self.ask_all(roster) } else { Vec::new() }
    }

    /// Applies the contract changes that are due.
    pub(super) fn handle_updates(&mut self, now: Instant, roster: &mut Roster) -> Vec<EdgeOutput> {
        if self.subscriptions.handle_updates(now) { self.ask_all(roster) } else { Vec::new() }
    }

    /// Ends the subscriptions that are over.
    pub(super) fn handle_ends(&mut self, now: Instant, roster: &mut Roster) -> Vec<EdgeOutput> {
        if self.subscriptions.handle_ends(now) { self.ask_all(roster) } else { Vec::new() }
    }

    /// A camera is reset: the subscriptions that read it end.
    pub(super) fn handle_reset(&mut self, camera: &CameraName) -> Vec<EdgeOutput> {
        let ended = self.subscriptions.handle_reset(camera).into_iter();
        ended.map(|subscription| EdgeOutput::Ended { subscription, camera: camera.clone() }).collect()
    }

    /// A camera asks for a part of a profile. Only profiles that contracts on the camera name are sent.
    pub(super) fn handle_profile_request(
        &self,
        link: &Connection,
        request: &ProfileRequest,
    ) -> Option<EdgeOutput> {
        let is_named = self.subscriptions.name_profile(link.camera()?, request.hash);
        let message = Message::ProfilePart(self.profiles.part(request, is_named));
        Some(EdgeOutput::Send { link: link.id, message })
    }

    /// Sends a camera the combined demand of the subscriptions that select it, if the demand has changed.
    pub(super) fn ask(&self, roster: &mut Roster, camera: &CameraName) -> Vec<EdgeOutput> {
        roster.ask(camera, self.subscriptions.contracts(camera))
    }

    /// Sends every camera its demand, if the demand has changed.
    pub(super) fn ask_all(&self, roster: &mut Roster) -> Vec<EdgeOutput> {
        let names = roster.cameras.names(|_, _| true);
        names.iter().flat_map(|name| self.ask(roster, name)).collect()
    }
}
