//! Starts from a state that no broker with bounds has written, and resets cameras: what an operator does after a thief has used a camera's name.

use mez_core::broker::edge::EdgeBroker;
use mez_core::broker::{EPOCH_MAX, LinkId, NUMBER_MAX};
use mez_core::frame::Epoch;
use mez_core::log::Record;
use mez_core::name::CameraName;
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::{Hello, Message};

use super::{EdgeHost, EdgeProcess};
use crate::world::bug::Bug;
use crate::world::node::Owner;
use crate::world::stage::Stage;

impl EdgeHost {
    /// Plants an epoch of a camera that no start can follow in the state on disk. The edge's next start reads it.
    pub(in crate::world) fn poison(&mut self, camera: &CameraName) {
        self.poisoned.insert(camera.clone(), Epoch(NUMBER_MAX - 1));
    }

    /// Whether the state has an epoch of a camera beyond all bounds.
    pub(in crate::world) fn is_poisoned(&self, camera: &CameraName) -> bool {
        self.poisoned.contains_key(camera)
    }

    /// Restores the epochs beyond all bounds from the state into a broker that starts.
    pub(super) fn take_up_poison(&mut self, stage: &mut Stage<'_>) {
        let poisoned = self.poisoned.iter();
        let poisoned = poisoned.map(|(name, epoch)| (name.clone(), nobodys(*epoch), Vec::new())).collect();
        self.with_process(stage, |process, _| process.broker.restore(poisoned));
    }

    /// Resets a camera, as `mez cameras reset` does. Its replica log is put aside, and can still be read.
    /// Returns whether the edge runs; a stopped edge resets nothing.
    pub(in crate::world) fn handle_reset(&mut self, camera: &CameraName, stage: &mut Stage<'_>) -> bool {
        let keeps = stage.bug == Some(Bug::ResetKeepsEpoch);
        let done = self.with_process(stage, |process, _| {
            let forgotten = process.broker.handle_reset(camera);
            if let Some(forgotten) = forgotten.filter(|_| keeps) {
                process.broker.restore(vec![(camera.clone(), nobodys(forgotten.epoch), Vec::new())]);
            }
            (process.run, process.take_log(camera))
        });
        let Some((run, entered)) = done else { return false };
        stage.checks.account_forgotten(run, camera);
        self.poisoned.remove(camera);
        for record in &entered {
            stage.checks.appended(run, camera, record);
            if let Some(kept) = self.kept.get_mut(camera) {
                let (of, frame) = ((Owner::Edge(self.index, camera.clone()), run), &record.frame);
                kept.handle_entered((frame.meta.id, &frame.payload), self.clock, of, stage);
            }
        }
        if let Some(mut aside) = self.kept.remove(camera) {
            stage.checks.disk_left(aside.end());
            let read = aside.recover(self.clock.monotonic(stage.now), u64::MAX);
            let _ = stage.checks.recovered(camera, read);
        }
        stage.checks.put_aside(run, camera);
        true
    }
}

impl EdgeProcess {
    /// Removes the log of a reset camera. Returns the frames that entered the log when the camera's
    /// connection ended. The broker still reports each of them.
    fn take_log(&mut self, camera: &CameraName) -> Vec<Record> {
        let (log, told) = (self.logs.remove(camera), self.appended.remove(camera).unwrap_or_default());
        let entered = log.iter().flat_map(|log| (told..log.held().end).filter_map(|place| log.get(place)));
        let entered: Vec<Record> = entered.collect();
        self.entered_last.insert(camera.clone(), entered.len());
        entered
    }
}

/// A start with this epoch and an unknown anchor.
fn nobodys(epoch: Epoch) -> (Epoch, ClockAnchor) {
    (epoch, ClockAnchor { wall: Timestamp::MIN, monotonic: Instant::ZERO })
}

/// How an edge without bounds handles a greeting: any claimed epoch becomes the newest start.
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
