//! Draws what cameras share: a medium, and channels declared to the edge.

use mez_core::controller::share::{Channels, DeclaredChannel};

use crate::channel::wifi::{Constants, Interferer, Load, Scene};
use crate::random::Random;
use crate::world::{CameraSpec, MediumSpec};

/// Draws the channels declared to the edge, which need not be true. They have their own random numbers, so that nothing else of a seed changes.
pub(super) fn declared(seed: u64) -> Channels {
    let mut random = Random::seeded(seed ^ 0x6368_616e_6e65_6c73);
    let all: &[&str] = match random.within(0..=5) {
        0 | 1 => &["all=**"],
        2 => &["dock:sum=dock/*", "yard:bandwidth=yard/*"],
        3 => &["some=*/cam1"],
        _ => &[],
    };
    let channel = |text: &&str| text.parse::<DeclaredChannel>().expect("a channel that makes sense");
    Channels::new(all.iter().map(channel).collect()).expect("few, of different names")
}

/// Draws the medium that all cameras share, if they share one.
pub(super) fn medium(random: &mut Random, cameras: &[CameraSpec]) -> Option<MediumSpec> {
    match random.within(0..=5) {
        0 => {
            let most = cameras.iter().map(|camera| camera.link.bits_per_second).max().unwrap_or_default();
            let bits_per_second = most * cameras.len() as u64;
            let queue = cameras.iter().map(|camera| camera.link.queue_bytes_max).min().unwrap_or_default();
            let queue_bytes_max = queue * cameras.len() as u64;
            Some(MediumSpec::Queue { bits_per_second, queue_bytes_max, cameras: cameras.len() })
        }
        1 => Some(MediumSpec::Wifi(wifi(random, cameras.len()))),
        _ => None,
    }
}

/// Draws a Wi-Fi medium with up to two other cameras, perhaps two stations that do not hear each other, and perhaps a microwave oven.
fn wifi(random: &mut Random, cameras: usize) -> Scene {
    let load = |bytes: u64| Load {
        bytes: bytes as f64,
        frames_per_second: 15.0,
        size_noise: 0.1,
        on_off_ms: Some((2_000.0, 2_000.0)),
    };
    let others: Vec<Load> =
        (0..random.within(0..=2)).map(|_| load(random.within(20_000..=300_000))).collect();
    let mut scene = Scene::new(&Constants::CALIBRATED, &others);
    let stations = std::iter::repeat_n((Constants::CALIBRATED.station(), None), cameras);
    scene.cameras = stations.chain(scene.cameras).collect();
    if scene.cameras.len() > 1 && random.one_in(4) {
        scene.hidden = vec![(0, 1)];
        scene.constants.request_after_failures = 1;
    }
    if random.one_in(6) {
        scene.interferers = vec![Interferer::oven(2_000.0, 4_000.0)];
    }
    scene
}
