//! Draws what cameras get from their sources: video, data records, or nothing for a while. Each is drawn from a stream of its own, so that nothing
//! else of a seed changes.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::random::Random;
use crate::time::{Moment, ms, secs};
use crate::world::{Action, CameraId, CameraSpec, SourceVideo, World};

/// Lets cameras give video of their sources, most of them. The shortest chain has one frame, the longest a thousand.
pub(super) fn film(specs: &mut [CameraSpec], seed: u64) {
    let mut random = Random::seeded(seed ^ 0x7669_6465_6f21_2121);
    for spec in specs {
        spec.video = (!random.one_in(6)).then(|| SourceVideo {
            key_every: *random.pick(&[1, 8, 25, 60, 250, 1000]),
            spare_once_in: *random.pick(&[0, 0, 2, 3]),
            answers: random.one_in(2),
            lost_once_in: *random.pick(&[0, 0, 100]),
            permille: *random.pick(&[(1000, 125), (400, 37), (270, 45), (300, 250)]),
        });
    }
}

/// Lets cameras give data records, most of them.
pub(super) fn give_records(specs: &mut [CameraSpec], seed: u64) {
    let mut random = Random::seeded(seed ^ 0x7265_636f_7264_7321);
    for spec in specs {
        spec.record_once_in = *random.pick(&[0, 2, 3, 10, 40]);
    }
}

/// Plans that cameras lose the sources of their frames in a span of time, and get them back.
pub(super) fn lose_sources(
    world: &mut World,
    seed: u64,
    cameras: &[CameraId],
    span: RangeInclusive<Duration>,
) {
    let mut random = Random::seeded(seed ^ 0x736f_7572_6365_7321);
    for _ in 0..random.within(1..=3) {
        let camera = *random.pick(cameras);
        let start = Moment::START + random.duration(span.clone());
        let back = start + random.duration(ms(5)..=secs(5));
        world.at(start, Action::LoseSource(camera)).at(back, Action::Publish(camera));
    }
}
