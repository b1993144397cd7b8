//! Defines the ladders of the reference set, and how sizes vary. The links of the set are in [`crate::channel::classes`].

use std::time::Duration;

use mez_core::frame::Rung;
use mez_core::profile::{ByteSizes, Ladder, Profile, RungProfile};

/// Mean sizes of the rungs of the reference ladder, in bytes.
pub const RUNG_BYTES: [f64; 10] = [20e3, 30e3, 45e3, 65e3, 95e3, 140e3, 200e3, 290e3, 420e3, 600e3];
/// The relative deviation of sizes.
pub const SIZE_NOISE: f64 = 0.08;
/// The bytes over which the lack of accuracy falls by a factor of e, for one camera.
pub const ACCURACY_BYTES: f64 = 110e3;
/// The same constant for five cameras: some scenes are harder than others.
pub const ACCURACY_BYTES_OF_FIVE: [f64; 5] = [40e3, 80e3, 110e3, 200e3, 350e3];

/// The reference ladder, with accuracy `1 − 0.30 · exp(−bytes / accuracy_bytes)`.
pub fn ladder(accuracy_bytes: f64) -> Ladder {
    let rungs = RUNG_BYTES.map(|bytes| RungProfile {
        rung: Rung::new(&format!("bytes/{bytes}")).expect("short and printable"),
        bytes: ByteSizes::around(bytes, SIZE_NOISE),
        accuracy: 1.0 - 0.30 * (-bytes / accuracy_bytes).exp(),
        camera_time: Duration::ZERO,
        detector_time: None,
    });
    Profile::new(rungs.to_vec()).expect("ten different rungs").ladder()
}
