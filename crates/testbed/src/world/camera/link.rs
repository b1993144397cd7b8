//! Passes what arrives over its link to a camera's broker.

use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::frame::FrameId;
use mez_core::wire::{Message, Report, Share};

use super::{CameraHost, CameraProcess, Connection};
use crate::time::{Moment, ms};
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::events::Event;
use crate::world::stage::Stage;

/// Rules judge a cap for this much less than its lifetime, because clocks differ.
const CAP_MARGIN: Duration = ms(2);
/// How late the broker learns under [`Bug::LeftUntold`] that a frame has left, in milliseconds.
const LEFT_UNTOLD_MS: u64 = 100;

impl CameraHost {
    /// Tells the broker of a new connection. `window` is its congestion window, as long as its path was never full.
    pub(in crate::world) fn handle_dialled(
        &mut self,
        connection: LinkId,
        window: Option<u64>,
        stage: &mut Stage<'_>,
    ) {
        stage.trace.record(stage.now, What::Dialled { camera: self.index, link: connection });
        let reached = self.reached();
        let Some(process) = &mut self.process else { return };
        process.dialling = process.dialling.saturating_sub(1);
        process.connections.insert(connection, Connection::default());
        process.broker.handle_dialled(self.clock.monotonic(stage.now), connection, reached);
        process.handle_window(stage.now, connection, window);
    }

    /// Tells the broker that a dial failed.
    pub(in crate::world) fn handle_dial_failed(&mut self, stage: &mut Stage<'_>) {
        stage.trace.record(stage.now, What::DialFailed { camera: self.index });
        let reached = self.reached();
        let Some(process) = &mut self.process else { return };
        process.dialling = process.dialling.saturating_sub(1);
        process.broker.handle_dial_failed(self.clock.monotonic(stage.now), reached);
    }

    /// Fails all dials in progress, because the edge is out of reach. Returns the process that dialled.
    pub(in crate::world) fn fail_dials(&mut self, stage: &mut Stage<'_>) -> Option<u64> {
        let (run, dialling) = self.process.as_ref().map(|process| (process.run, process.dialling))?;
        (0..dialling).for_each(|_| self.handle_dial_failed(stage));
        Some(run)
    }

    /// Tells the broker how many bytes of a frame are unsent.
    pub(in crate::world) fn handle_unsent(
        &mut self,
        connection: LinkId,
        frame: FrameId,
        unsent: u64,
        stage: &Stage<'_>,
    ) {
        let Some(process) = &mut self.process else { return };
        process.broker.handle_unsent(self.clock.monotonic(stage.now), connection, frame, unsent);
    }

    /// Notes that the last byte of a live frame has left. Returns whether the broker was told.
    pub(in crate::world) fn handle_left(
        &mut self,
        connection: LinkId,
        frame: FrameId,
        stage: &mut Stage<'_>,
    ) -> bool {
        let camera = self.index;
        stage.trace.record(stage.now, What::Left { camera, link: connection, frame });
        if stage.bug == Some(Bug::LeftUntold) {
            let later = stage.now + ms(LEFT_UNTOLD_MS);
            stage.events.push(later, Event::LeftTold { camera, connection, frame });
            return false;
        }
        self.tell_left(connection, frame, stage);
        true
    }

    /// Tells the broker that the last byte of a frame has left.
    pub(in crate::world) fn tell_left(&mut self, connection: LinkId, frame: FrameId, stage: &Stage<'_>) {
        let Some(process) = &mut self.process else { return };
        process.broker.handle_sent(self.clock.monotonic(stage.now), connection, frame);
    }

    /// Tells the broker that a connection has ended.
    pub(in crate::world) fn handle_closed(&mut self, connection: LinkId, stage: &mut Stage<'_>) {
        stage.trace.record(stage.now, What::CameraClosed { camera: self.index, link: connection });
        self.forget(connection, stage);
        let Some(process) = &mut self.process else { return };
        process.broker.handle_closed(self.clock.monotonic(stage.now), connection);
    }

    /// Forgets a connection, and gives up its frames in flight.
    pub(super) fn forget(&mut self, connection: LinkId, stage: &mut Stage<'_>) {
        let Some(process) = &mut self.process else { return };
        let known = process.connections.remove(&connection);
        for frame in known.into_iter().flat_map(|known| known.under_way) {
            stage.checks.gives_up(&self.name, process.run, frame);
        }
    }

    /// Bytes of the edge's messages have arrived.
    pub(in crate::world) fn handle_bytes(
        &mut self,
        connection: LinkId,
        bytes: &Bytes,
        window: Option<u64>,
        stage: &mut Stage<'_>,
    ) {
        let Some(process) = &mut self.process else { return };
        process.handle_window(stage.now, connection, window);
        let Some(known) = process.connections.get_mut(&connection) else { return };
        known.buffer.push(bytes);
        // The buffer is taken out for the loop, which borrows the host, and put back afterwards.
        let mut buffer = std::mem::take(&mut known.buffer);
        loop {
            match buffer.next() {
                Ok(Some(message)) => {
                    let (camera, kind) = (self.index, bytes[4]);
                    stage.trace.record(stage.now, What::ToCamera { camera, link: connection, kind });
                    self.handle_message(connection, message, stage);
                }
                Ok(None) => break,
                Err(error) => {
                    stage.checks.garbled("an edge's message", &error);
                    break;
                }
            }
        }
        let known = self.process.as_mut().and_then(|process| process.connections.get_mut(&connection));
        known.into_iter().for_each(|known| known.buffer = std::mem::take(&mut buffer));
    }

    fn handle_message(&mut self, connection: LinkId, message: Message, stage: &mut Stage<'_>) {
        let Some(process) = &mut self.process else { return };
        if let Message::Refresh { frame } = message {
            if frame.epoch == process.broker.epoch() {
                stage.checks.asks_for_entry(process.run, connection, frame);
            }
            if stage.bug == Some(Bug::RefreshIgnored) {
                return;
            }
        }
        if let Message::AnswerAccount(account) = &message {
            stage.checks.account_heard(process.run, connection, *account);
        }
        if let Message::Report(report) = message {
            process.note_report(stage.now, connection, report);
        }
        if let Message::Share(share) = message {
            process.note_share(stage.now, share);
            if stage.bug == Some(Bug::ShareUntold) && process.capped.is_some() {
                return;
            }
        }
        let no_demand = matches!(&message, Message::Demand(demand) if demand.contracts.is_empty());
        if no_demand && stage.bug == Some(Bug::DemandKept) {
            return;
        }
        let wanted = process.broker.demand().is_some();
        process.broker.handle_message(self.clock.monotonic(stage.now), connection, message);
        match process.broker.demand() {
            Some(_) if !wanted => process.sent = process.told,
            None if wanted => process.unwanted = Some(stage.now),
            _ => {}
        }
    }
}

impl CameraProcess {
    /// Tells the broker the congestion window of a connection. `None` once its path was full.
    fn handle_window(&mut self, now: Moment, connection: LinkId, window: Option<u64>) {
        self.opening_until = window.map(|_| now).or(self.opening_until);
        self.broker.handle_window(connection, window);
    }

    /// The edge reports bytes of a frame.
    fn note_report(&mut self, now: Moment, connection: LinkId, report: Report) {
        let Some(known) = self.connections.get_mut(&connection) else { return };
        known.progress = now;
        if let Report::Complete { frame, .. } = report {
            known.under_way.remove(&frame);
        }
    }

    /// The edge reports the camera's share of a channel.
    fn note_share(&mut self, now: Moment, share: Share) {
        self.capped = match share {
            Share::Cap { frame_bytes_max, lifetime, .. } => {
                Some((frame_bytes_max, [now, now + lifetime - CAP_MARGIN]))
            }
            Share::Shed { lifetime } => Some((0, [now, now + lifetime - CAP_MARGIN])),
            Share::Free => None,
        };
    }
}
