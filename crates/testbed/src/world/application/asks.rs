//! Lets an application make requests to a running session: a new contract, a measured accuracy, a new chain, or a list of cameras.

use std::sync::Arc;

use mez_core::contract::Contract;
use mez_core::name::CameraName;

use super::Application;
use crate::check::Kept;
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::edge::EdgeHost;
use crate::world::events::Event;
use crate::world::node::Node;
use crate::world::spec::{Ask, PROFILE_BYTES};
use crate::world::stage::Stage;

impl Application {
    /// Makes a request to the session, if there is one. Returns whether the cameras may choose their rungs again.
    pub(in crate::world) fn ask(&mut self, ask: Ask, edge: &mut EdgeHost, stage: &mut Stage<'_>) -> bool {
        stage.trace.record(stage.now, What::Asks { application: self.index });
        let updated = match ask {
            Ask::Update(contract) => self.update_contract(contract, edge, stage),
            Ask::Accuracy(accuracy) => {
                self.report_accuracy(accuracy, edge, stage);
                false
            }
            Ask::ChainsLost => {
                self.lose_chains(edge, stage);
                false
            }
            Ask::Library(library) => {
                self.spec.library = Some(library);
                false
            }
            Ask::List => {
                self.list_cameras(edge, stage);
                false
            }
        };
        stage.touch(Node::Application(self.index));
        updated
    }

    fn update_contract(&mut self, contract: Contract, edge: &mut EdgeHost, stage: &mut Stage<'_>) -> bool {
        let profile = contract.profile.and_then(|hash| stage.profiles.get(&hash)).cloned();
        // An application that asks for originals has no floor.
        let contract = match self.spec.originals {
            true => Contract { accuracy_floor: None, profile: None, ..contract },
            false => contract,
        };
        let profile = profile.filter(|_| !self.spec.originals);
        let asked_nothing = self.reading.as_ref().is_none_or(|(_, session)| !session.tells_between_frames());
        let shared = profile.clone().map(Arc::new);
        let Some((id, session)) = &mut self.reading else {
            self.spec.contract = contract;
            return false;
        };
        let id = *id;
        let now = edge.clock.monotonic(stage.now);
        // With the planted bug, the broker is told and the session is not.
        let forgets = stage.bug == Some(Bug::UpdateForgotten);
        let told = if forgets {
            session.contract().is_some()
        } else {
            session.handle_update(now, contract.clone(), shared)
        };
        if !told {
            // A reading of the past keeps its first contract, and its application knows that.
            return false;
        }
        self.spec.contract = contract.clone();
        stage.checks.contracted(id, Kept::new(contract.clone(), profile, stage.now));
        if asked_nothing && !contract.asks_nothing() {
            let event = Event::Contract { application: self.index, subscription: id };
            stage.events.push(stage.now, event);
        }
        edge.with_process(stage, |process, now| {
            if let Some(hash) = contract.profile {
                process.broker.add_profile(hash, vec![hash[0]; PROFILE_BYTES].into());
            }
            process.broker.handle_update(now, id, contract);
        });
        true
    }

    fn report_accuracy(&mut self, accuracy: f64, edge: &EdgeHost, stage: &mut Stage<'_>) {
        let now = edge.clock.monotonic(stage.now);
        let Some((id, session)) = &mut self.reading else { return };
        let cameras: Vec<CameraName> = session.cameras().cloned().collect();
        for camera in cameras {
            if stage.bug != Some(Bug::AccuracyForgotten) {
                session.handle_accuracy(now, &camera, accuracy);
            }
            stage.checks.measured(*id, &camera, accuracy);
        }
    }

    fn lose_chains(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        let Some((id, session)) = &mut self.reading else { return };
        let read: Vec<CameraName> = session.cameras().cloned().collect();
        for camera in read {
            stage.checks.chain_lost(*id, &camera);
            if stage.bug != Some(Bug::ChainLossForgotten) && session.handle_chain_lost(&camera) {
                edge.with_process(stage, |process, now| process.broker.handle_chain_lost(now, &camera));
            }
        }
    }
}
