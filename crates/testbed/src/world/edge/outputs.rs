//! Carries out an edge broker's outputs.

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::edge::{EdgeOutput, SubscriptionId};
use mez_core::frame::FrameId;
use mez_core::history::PastAnswer;
use mez_core::log::LogReader;
use mez_core::name::CameraName;

use super::EdgeHost;
use super::door::TurnedAway;
use crate::payload::encoded;
use crate::trace::What;
use crate::world::node::{Node, Owner};
use crate::world::stage::Stage;

/// What the world has to do after an edge has carried out an output.
pub(in crate::world) enum Effect {
    /// Nothing.
    Nothing,
    /// Sends a message over a link.
    Send { link: usize, connection: LinkId, message: Bytes },
    /// Sends an answer over a link: its header and its payload.
    SendAnswer { link: usize, connection: LinkId, frame: FrameId, of: (Bytes, Bytes) },
    /// Cancels an answer on a link.
    ResetAnswer { link: usize, connection: LinkId, frame: FrameId },
    /// Closes a connection of a link.
    Close { link: usize, connection: LinkId },
    /// A subscription reads a camera's log from now on.
    Attach { subscription: SubscriptionId, camera: CameraName, log: LogReader },
    /// Wakes applications and groups that read a camera.
    Wake { camera: CameraName, of: Readers },
    /// Processes the edge's outputs again.
    Again,
    /// The door has closed a visitor's connection, to make room or because it was too slow.
    TurnedAway { visitor: usize },
    /// A subscription has ended, because this camera was reset.
    Ended { subscription: SubscriptionId, camera: CameraName },
    /// Another deny list is in force.
    ListChanged,
    /// A request for the past is answered.
    Answered { request: u64, answer: PastAnswer },
}

/// Which readers of a camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::world) enum Readers {
    /// All.
    All,
    /// Those with a contract that asks for something.
    WithContract,
}

impl EdgeHost {
    /// The broker's next output.
    pub(in crate::world) fn poll_output(&mut self) -> Option<EdgeOutput> {
        self.process.as_mut()?.broker.poll_output()
    }

    /// Carries out an output, as far as it concerns this host alone.
    pub(in crate::world) fn carry_out(&mut self, output: EdgeOutput, stage: &mut Stage<'_>) -> Effect {
        let Some(process) = &mut self.process else { return Effect::Nothing };
        match output {
            EdgeOutput::Send { link: connection, message } => match process.connections.get(&connection) {
                Some((link, _)) => {
                    let message = encoded(&Self::told_account(connection, message, stage));
                    Effect::Send { link: *link, connection, message }
                }
                None => Effect::Nothing,
            },
            EdgeOutput::Close { link: connection } => match process.forget(connection) {
                Some(link) => Effect::Close { link, connection },
                None => Effect::Nothing,
            },
            EdgeOutput::Attach { subscription, camera, log } => {
                process.logs.insert(camera.clone(), log.clone());
                Effect::Attach { subscription, camera, log }
            }
            EdgeOutput::ViewChanged { camera } => Effect::Wake { camera, of: Readers::WithContract },
            EdgeOutput::Appended { camera } => self.appended(camera, stage),
            EdgeOutput::Started { camera, link, epoch, anchor } => {
                let of = (self.index, process.run);
                stage.checks.account_begins(of, &camera, link, (epoch, anchor));
                process.holders.insert(camera, link);
                Effect::Again
            }
            EdgeOutput::Ended { subscription, camera } => Effect::Ended { subscription, camera },
            EdgeOutput::History { request, answer } => Effect::Answered { request, answer },
            // Worlds have no surveys of what cameras hold.
            EdgeOutput::Surveyed { .. } => Effect::Nothing,
            // Contract watches read the source's state from the view. No camera of a world is forgotten.
            EdgeOutput::SourceChanged { .. } | EdgeOutput::Detach { .. } => Effect::Nothing,
            EdgeOutput::SendAnswer { link, header, payload } => {
                self.send_answer(link, &header, payload, stage)
            }
            EdgeOutput::ResetAnswer { link, frame } => self.reset_answer(link, frame, stage),
            EdgeOutput::Revocations { signed, .. } => match self.take_brought(&signed, stage) {
                true => Effect::ListChanged,
                false => Effect::Nothing,
            },
            EdgeOutput::CameraChanged { camera, up, .. } => {
                stage.trace.record(stage.now, What::CameraChanged { edge: self.index, up });
                if up {
                    self.keep_log(&camera, stage);
                }
                Effect::Nothing
            }
        }
    }

    /// What the world has to do about the next connection that the door has dropped.
    pub(in crate::world) fn poll_door(&mut self, stage: &mut Stage<'_>) -> Option<Effect> {
        let process = self.process.as_mut()?;
        let (link, connection, too_slow) = match process.door.poll_turned_away()? {
            TurnedAway::Visitor(visitor) => return Some(Effect::TurnedAway { visitor }),
            TurnedAway::Camera { link, connection, too_slow } => (link, connection, too_slow),
        };
        if process.knows(connection) {
            stage.trace.record(stage.now, What::EdgeClosed { edge: self.index, link: connection });
            stage.touch(Node::Edge(self.index));
            process.close(self.clock.monotonic(stage.now), connection);
            return Some(Effect::Close { link, connection });
        }
        if !too_slow {
            process.door.shut_out(connection);
        }
        Some(Effect::Nothing)
    }

    /// A frame has entered a camera's replica log.
    fn appended(&mut self, camera: CameraName, stage: &mut Stage<'_>) -> Effect {
        let Some(process) = &mut self.process else { return Effect::Nothing };
        if let Some(left) = process.entered_last.get_mut(&camera).filter(|left| **left > 0) {
            *left -= 1;
            return Effect::Nothing;
        }
        // Several frames may have entered at once. The broker reports each of them.
        let place = process.appended.entry(camera.clone()).or_default();
        let record = process.logs.get(&camera).and_then(|log| log.get(*place));
        *place += 1;
        let Some(record) = record else {
            stage.checks.unasked(&camera);
            return Effect::Nothing;
        };
        let frame = record.frame.meta.id;
        stage.trace.record(stage.now, What::Appended { edge: self.index, frame });
        stage.checks.appended(process.run, &camera, &record);
        let (run, payload) = (process.run, &record.frame.payload);
        if let Some(kept) = self.kept.get_mut(&camera) {
            let owner = Owner::Edge(self.index, camera.clone());
            kept.handle_entered((frame, payload), self.clock, (owner, run), stage);
        }
        self.tell_stills(&camera, stage);
        Effect::Wake { camera, of: Readers::All }
    }
}
