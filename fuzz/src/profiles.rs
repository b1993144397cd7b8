//! Provides profiles for scripts.

use std::time::Duration;

use mez_core::frame::Rung;
use mez_core::profile::{ByteSizes, Profile, ProfileHash, RungProfile, SizedProfile};

use crate::script::{PAUSES, pick};

/// The profiles that contracts may name.
pub(crate) const PROFILES: [Option<ProfileHash>; 4] = [None, Some([1; 32]), Some([2; 32]), Some([3; 32])];

/// A profile: for the size of sent pictures or another one, with rungs of every kind, and with absurd sizes.
pub(crate) fn profile(b: u8) -> SizedProfile {
    const RUNGS: [&str; 8] = [
        "original",
        "jpeg/w32/q50/420",
        "h264/w48/q32",
        "h264/q40",
        "tiles/q40/420",
        "nonsense",
        "knobs/s50/gray/q50",
        "jpeg/q90/444/skip3",
    ];
    let rung = |(place, name): (usize, &&str)| {
        let mean = match b >> 6 {
            0 => 100.0 * (place + 1) as f64,
            1 => 1e-300,
            2 => 1e300,
            _ => 1e6 / (place + 1) as f64,
        };
        RungProfile {
            rung: Rung::new(name).expect("a rung's name"),
            bytes: ByteSizes::around(mean, 0.2),
            accuracy: (place + 1) as f64 / 8.0,
            camera_time: Duration::from_nanos(pick(&PAUSES, b >> 3)),
            detector_time: None,
        }
    };
    let first = usize::from(b >> 3) % RUNGS.len();
    let profile = Profile::new(RUNGS[first..].iter().enumerate().map(rung).collect());
    let size = if b & 4 == 0 { (64, 48) } else { (1920, 1080) };
    let interval = (b & 1 == 0).then(|| pick(&PAUSES, b >> 1)).map(Duration::from_nanos);
    SizedProfile { size, interval, profile: profile.expect("a profile without sense can be held") }
}
