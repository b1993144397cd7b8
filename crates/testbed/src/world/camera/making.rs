//! Encodes frames at smaller sizes, as a codec would, without any pixels.

use std::collections::BTreeMap;
use std::time::Duration;

use mez_core::broker::camera::{Transform, Transformed};
use mez_core::frame::{ChainLink, Encoding, FrameId, Sequence};
use mez_core::profile::{ProfileHash, SizedProfile};
use mez_core::setting::Form;

use super::CameraHost;
use super::encoder::{Coded, Encoder};
use super::video::Decoding;
use crate::footage::Footage;
use crate::payload::{PAYLOAD_BYTES_MAX, degraded, knobs, payload, received};
use crate::time::ms;
use crate::world::bug::Bug;
use crate::world::events::Event;
use crate::world::stage::Stage;

/// One frame in this many makes the codec fail.
const CODEC_FAILS_ONCE_IN: u64 = 150;
/// One frame in this many makes the codec hang.
const CODEC_HANGS_ONCE_IN: u64 = 400;

/// How long a knob's function takes.
const DEGRADING: Duration = ms(2);

/// How long the decoder takes to notice that its log lacks a frame.
const LOOKING: Duration = ms(1);

impl CameraHost {
    /// Begins to encode a frame. The result is the beginning of the frame's payload.
    pub(super) fn make(&mut self, transform: &Transform, stage: &mut Stage<'_>) {
        let Some(process) = &mut self.process else { return };
        let (now, id) = (stage.now, transform.frame.meta.id);
        let fails = stage.codecs_fail && self.random.one_in(CODEC_FAILS_ONCE_IN);
        let hangs = stage.codecs_fail && self.random.one_in(CODEC_HANGS_ONCE_IN);
        // A rung chosen at the moment of the cap may have been chosen before the cap arrived.
        let live = process.capped.filter(|(_, [from, until])| *from < now && now < *until);
        if let (Some((bytes_max, _)), Some((expected, floor))) = (live, process.broker.expected_bytes()) {
            // A cap never goes below the floor. If the channel has no room at all, the rung is the cheapest.
            let most = f64::from(bytes_max).max(floor);
            stage.checks.makes_within_cap(self.index, id, expected, most);
        }
        process.encoder.heed(transform, stage.bug);
        if transform.setting.is_of_data() {
            return self.degrade(transform, (fails, hangs), stage);
        }
        let decodes = match process.video.decode(transform, &process.reader) {
            Decoding::Done(takes) => takes,
            Decoding::NotYet(takes, rest) => {
                process.catching_up_until = now + takes + rest;
                let (camera, run, made) = (self.index, process.run, Box::new(Transformed::NotYet));
                return stage.events.push(now + takes, Event::Made { camera, run, frame: id, made });
            }
            Decoding::Lacking => {
                self.useless = now;
                let (camera, run, made) = (self.index, process.run, Box::new(Transformed::Lacking));
                return stage.events.push(now + LOOKING, Event::Made { camera, run, frame: id, made });
            }
        };
        let picture_bytes = self.spec.picture_bytes(&transform.frame);
        let (takes, mut coded) =
            process.encoder.encode((transform, picture_bytes), &self.spec.footage, &mut self.scene);
        follow_profiles(stage.profiles, &self.spec.footage, (transform, picture_bytes), &mut coded);
        let deadline = self.clock.moment_of(transform.deadline).max(now);
        let done = now + takes * self.spec.codec_slowness + decodes;
        let (done, late) = if hangs || done > deadline { (deadline, true) } else { (done, false) };
        let made = if fails || late {
            process.stuck_until = done;
            // A failed encoder loses all its state.
            process.encoder = Encoder::default();
            process.video.fail();
            Transformed::Failed
        } else {
            let (made, refers) = transformed(transform, coded);
            if let Transformed::Made { payload, encoding, rung, .. } = &made {
                let (made, coding) = ((rung, payload.clone()), (*encoding, refers));
                stage.checks.made(&self.name, process.run, id, made, coding);
            }
            made
        };
        let (camera, run, made) = (self.index, process.run, Box::new(made));
        stage.events.push(done, Event::Made { camera, run, frame: id, made });
    }

    /// Begins to degrade a data record, by a function that may fail or hang.
    fn degrade(&mut self, transform: &Transform, (fails, hangs): (bool, bool), stage: &mut Stage<'_>) {
        let Some(process) = &mut self.process else { return };
        let (now, frame) = (stage.now, transform.frame.meta.id);
        let Form::Data(asked) = transform.setting.form else { return };
        // Another value of the knob: the next one, or the first.
        let other = || {
            let all = knobs().all();
            let place = all.iter().position(|known| *known == asked).unwrap_or_default();
            all[(place + 1) % all.len()]
        };
        let misnamed = stage.bug == Some(Bug::KnobMisnamed) && frame.sequence.0.is_multiple_of(3);
        let applied = if misnamed { other() } else { asked };
        let deadline = self.clock.moment_of(transform.deadline).max(now);
        let done = now + DEGRADING * self.spec.codec_slowness;
        let (done, late) = if hangs || done > deadline { (deadline, true) } else { (done, false) };
        let hidden = stage.bug == Some(Bug::KnobFailureHidden);
        let payload = match fails || late {
            true => hidden.then(|| received(&transform.frame.payload)),
            false => degraded(&transform.frame.payload, &applied),
        };
        let made = match payload {
            Some(payload) => {
                let (rung, chain) = (transform.setting.rung(), ChainLink::still(frame.sequence));
                stage.checks.made(
                    &self.name,
                    process.run,
                    frame,
                    (&rung, payload.clone()),
                    (Encoding::Data, None),
                );
                Transformed::Made { payload, encoding: Encoding::Data, width: 0, height: 0, rung, chain }
            }
            None => {
                process.stuck_until = done;
                Transformed::Failed
            }
        };
        let (camera, run, made) = (self.index, process.run, Box::new(made));
        stage.events.push(done, Event::Made { camera, run, frame, made });
    }

    /// Ends the codec's work on a frame. Returns whether the process that asked for it still runs.
    pub(in crate::world) fn handle_made(
        &mut self,
        run: u64,
        frame: FrameId,
        made: Transformed,
        stage: &mut Stage<'_>,
    ) -> bool {
        let Some(process) = self.process.as_mut().filter(|process| process.run == run) else { return false };
        // A frame that is not sent now need not be sent later. But a missed byte budget is no excuse for silence.
        if !matches!(made, Transformed::TooLarge { .. } | Transformed::NotYet) {
            (process.sent, process.left_out) = (process.sent.max(Some(frame)), 0);
        }
        if made == Transformed::Failed {
            // A codec that fails or hangs costs its frame. If that happens twice in a row, the silence is not the broker's fault.
            stage.checks.breaks_silence(run);
        }
        process.broker.handle_transformed(self.clock.monotonic(stage.now), frame, made);
        true
    }
}

/// What the broker is told of a codec's result, and the frame that the result refers to.
fn transformed(transform: &Transform, coded: Result<Coded, u32>) -> (Transformed, Option<Sequence>) {
    let Transform { frame, setting, .. } = transform;
    let Coded { link: chain, refers, setting: made, bytes } = match coded {
        Ok(coded) => coded,
        Err(bytes) => return (Transformed::TooLarge { bytes }, None),
    };
    let (width, height) = setting.size((frame.meta.width, frame.meta.height));
    // The copy has its own memory, so that the log's frame can be freed.
    let payload = match frame.meta.encoding.is_chained() {
        // Encoding a small video frame anew may enlarge it.
        true => payload(frame.meta.id.sequence.0, bytes.min(PAYLOAD_BYTES_MAX.into()) as u32),
        false => received(&frame.payload).slice(..bytes as usize),
    };
    let (rung, encoding) = (made.rung(), Encoder::encoding(setting));
    (Transformed::Made { payload, encoding, width, height, rung, chain }, refers)
}

/// Gives a still the size that a profile states for its rung, if there is such a profile.
fn follow_profiles(
    profiles: &BTreeMap<ProfileHash, SizedProfile>,
    footage: &Footage,
    (transform, picture_bytes): (&Transform, u64),
    coded: &mut Result<Coded, u32>,
) {
    let Transform { frame, setting, bytes_max, .. } = transform;
    let (pixels, rung) = ((frame.meta.width, frame.meta.height), setting.rung());
    let profiles = profiles.values().filter(|known| known.size == pixels && !setting.is_chained());
    let Some(known) = profiles.filter_map(|known| known.profile.get(&rung)).next() else { return };
    if footage.knows(&rung) {
        return;
    }
    let bytes = (known.bytes.mean as u64).min(picture_bytes);
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
