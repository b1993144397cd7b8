//! Lets applications ask something of a running session: another contract, a measured accuracy taken into account, a new chain.

use std::sync::Arc;

use mez_core::contract::Contract;
use mez_core::name::CameraName;

use super::camera::PROFILE_BYTES;
use super::events::Event;
use super::hands::Library;
use super::{ApplicationId, Bug, Node, World};
use crate::check::Kept;
use crate::time::Moment;
use crate::trace::What;

/// Something that an application asks of its running session.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Its contract is this from now on.
    Update(Contract),
    /// It measured this accuracy of its results, from 0 to 1, on the frames of all cameras that it reads.
    Accuracy(f64),
    /// It cannot decode the chains of its cameras any further.
    ChainsLost,
    /// From now on it has a client library that reports when it takes frames.
    Library(Library),
}

impl World {
    /// Plans what an application asks at a moment from the beginning. If no session runs then, nothing is asked. An update then
    /// holds for the next session.
    pub fn asks_at(&mut self, moment: Moment, application: ApplicationId, ask: Ask) -> &mut Self {
        self.events.push(moment, Event::Ask { application: application.0, ask: Box::new(ask) });
        self
    }

    /// Asks it now.
    pub fn asks(&mut self, application: ApplicationId, ask: Ask) -> &mut Self {
        self.asked(application.0, ask);
        self.settle();
        self.report();
        self
    }

    pub(super) fn asked(&mut self, index: usize, ask: Ask) {
        self.trace.record(self.now, What::Asks { application: index });
        match ask {
            Ask::Update(contract) => self.update_contract(index, contract),
            Ask::Accuracy(accuracy) => self.report_accuracy(index, accuracy),
            Ask::ChainsLost => self.lose_chains(index),
            Ask::Library(library) => self.applications[index].spec.library = Some(library),
        }
        self.touch(Node::Application(index));
    }

    fn update_contract(&mut self, index: usize, contract: Contract) {
        let profile = contract.profile.and_then(|hash| self.profiles.get(&hash)).cloned();
        let shared = profile.clone().map(Arc::new);
        let application = &mut self.applications[index];
        let asked_nothing = application.spec.contract.asks_nothing();
        application.spec.contract = contract.clone();
        let edge = application.spec.edge.0;
        let Some((id, session)) = &mut application.reading else { return };
        let id = *id;
        let now = self.edges[edge].clock.monotonic(self.now);
        // The planted bug is that the session is not told. The broker is.
        let forgets = self.bug == Some(Bug::UpdateForgotten);
        let told = if forgets {
            session.contract().is_some()
        } else {
            session.handle_update(now, contract.clone(), shared)
        };
        if !told {
            return;
        }
        self.checks.contracted(id, Kept::new(contract.clone(), profile, self.now));
        if asked_nothing && !contract.asks_nothing() {
            self.events.push(self.now, Event::Contract { application: index, subscription: id });
        }
        self.with_edge(edge, |process, now| {
            if let Some(hash) = contract.profile {
                process.broker.add_profile(hash, vec![hash[0]; PROFILE_BYTES].into());
            }
            process.broker.handle_update(now, id, contract);
        });
        // Cameras choose their rungs again.
        for camera in 0..self.cameras.len() {
            if self.applications[index].reads(edge, &self.cameras[camera].name) {
                self.disturb(camera);
            }
        }
    }

    fn report_accuracy(&mut self, index: usize, accuracy: f64) {
        let application = &mut self.applications[index];
        let now = self.edges[application.spec.edge.0].clock.monotonic(self.now);
        let Some((id, session)) = &mut application.reading else { return };
        let cameras: Vec<CameraName> = session.cameras().cloned().collect();
        for camera in cameras {
            if self.bug != Some(Bug::AccuracyForgotten) {
                session.handle_accuracy(now, &camera, accuracy);
            }
            self.checks.measured(*id, &camera, accuracy);
        }
    }

    fn lose_chains(&mut self, index: usize) {
        let application = &mut self.applications[index];
        let edge = application.spec.edge.0;
        let Some((id, session)) = &mut application.reading else { return };
        let id = *id;
        let read: Vec<CameraName> = session.cameras().cloned().collect();
        for camera in read {
            self.checks.chain_lost(id, &camera);
            let Some((_, session)) = &mut self.applications[index].reading else { return };
            if self.bug != Some(Bug::ChainLossForgotten) && session.handle_chain_lost(&camera) {
                self.with_edge(edge, |process, now| process.broker.handle_chain_lost(now, &camera));
            }
        }
    }
}
