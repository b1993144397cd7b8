//! Frames that are made of others, as a codec would.

use std::time::Duration;

use mez_core::broker::camera::{Transform, Transformed};
use mez_core::frame::{ChainLink, FrameId};

use crate::payload::received;
use crate::time::ms;
use crate::world::chain::{Coded, Encoder};
use crate::world::events::Event;
use crate::world::{Node, World};

/// How long something that a codec made waits where its host is frozen, until it is looked at again.
const FROZEN_LOOK: Duration = ms(15);
/// One frame in so many makes the codec fail, and one in so many makes it hang.
const CODEC_FAILS_ONCE_IN: u64 = 150;
const CODEC_HANGS_ONCE_IN: u64 = 400;

impl World {
    /// Sees to it that a frame is made of another: of the same bytes, fewer of them.
    pub(super) fn make(&mut self, index: usize, transform: &Transform) {
        let host = &mut self.cameras[index];
        let Some(process) = &mut host.process else { return };
        let (frame, setting) = (&transform.frame, &transform.setting);
        let id = frame.meta.id;
        let fails = self.codecs_fail && host.random.one_in(CODEC_FAILS_ONCE_IN);
        let hangs = self.codecs_fail && host.random.one_in(CODEC_HANGS_ONCE_IN);
        // What was chosen at the moment at which it was told may have been chosen before.
        let live = process.capped.filter(|(_, [from, until])| *from < self.now && self.now < *until);
        if let (Some((bytes_max, _)), Some((expected, floor))) = (live, process.broker.expected_bytes()) {
            // Never below the floor; where there is no room at all, the cheapest rung.
            let most = f64::from(bytes_max).max(floor);
            self.checks.makes_within_cap(index, id, expected, most);
        }
        process.encoder.heed(transform, self.bug);
        let (takes, mut coded) = process.encoder.encode(transform, &host.spec.footage, &mut host.scene);
        self.follow_profile(index, transform, &mut coded);
        let host = &mut self.cameras[index];
        let Some(process) = &mut host.process else { return };
        let deadline = host.clock.moment_of(transform.deadline).max(self.now);
        let done = self.now + takes * host.spec.codec_slowness;
        let (done, late) = if hangs || done > deadline { (deadline, true) } else { (done, false) };
        let made = match coded {
            _ if fails || late => {
                process.stuck_until = done;
                // Whatever it held is gone.
                process.encoder = Encoder::default();
                Transformed::Failed
            }
            Err(bytes) => Transformed::TooLarge { bytes },
            Ok(Coded { link: chain, refers, setting: made, bytes }) => {
                let (width, height) = setting.size((frame.meta.width, frame.meta.height));
                // Memory of its own: the log's frame is let go of.
                let payload = received(&frame.payload).slice(..bytes as usize);
                let (rung, encoding) = (made.rung(), Encoder::encoding(setting));
                self.checks.made(&host.name, process.run, id, (&rung, payload.clone()), (encoding, refers));
                Transformed::Made { payload, encoding, width, height, rung, chain }
            }
        };
        let (run, made) = (process.run, Box::new(made));
        self.events.push(done, Event::Made { camera: index, run, frame: id, made });
    }

    /// Where a contract's profile knows the rung of a still, it is right about its size.
    fn follow_profile(&self, index: usize, transform: &Transform, coded: &mut Result<Coded, u32>) {
        let Transform { frame, setting, bytes_max, .. } = transform;
        let (pixels, rung) = ((frame.meta.width, frame.meta.height), setting.rung());
        let host = &self.cameras[index];
        let profiles = self.profiles.values().filter(|known| known.size == pixels && !setting.is_chained());
        let Some(known) = profiles.filter_map(|known| known.profile.get(&rung)).next() else { return };
        if host.spec.footage.knows(&rung) {
            return;
        }
        let bytes = (known.bytes.mean as u64).min(frame.payload.len() as u64);
        *coded = match bytes <= u64::from(*bytes_max) {
            true => Ok(Coded {
                link: ChainLink::still(frame.meta.id.sequence),
                refers: None,
                setting: *setting,
                bytes,
            }),
            false => Err(bytes as u32),
        };
    }

    pub(in crate::world) fn made(&mut self, index: usize, run: u64, frame: FrameId, made: Transformed) {
        if self.is_frozen(Node::Camera(index)) {
            let later = self.now + FROZEN_LOOK;
            return self.events.push(later, Event::Made { camera: index, run, frame, made: Box::new(made) });
        }
        let host = &mut self.cameras[index];
        let Some(process) = host.process.as_mut().filter(|process| process.run == run) else { return };
        // If it is not sent now, it need not be any more; but a budget that was not kept is no reason for silence.
        if !matches!(made, Transformed::TooLarge { .. }) {
            (process.sent, process.left_out) = (process.sent.max(Some(frame)), 0);
        }
        if made == Transformed::Failed {
            // A codec that fails or hangs costs its frame; one that does so twice in a row is not the broker's silence.
            self.checks.breaks_silence(run);
        }
        process.broker.handle_transformed(host.clock.monotonic(self.now), frame, made);
        self.touch(Node::Camera(index));
    }
}
