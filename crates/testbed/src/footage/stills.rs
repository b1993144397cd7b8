//! Holds footage that consists only of stills, for the ladders of experiments. None was filmed. A frame is as large as its rung says, and no frame
//! refers to another. Such frames show properties of links that video hides.

use super::{Footage, Measured};

const fn still(rung: &'static str, bytes: [f64; 3], accuracy: f64) -> Measured {
    Measured { rung, bytes, alone_bytes: 0.0, ms: (1.0, 1.1), alone_ms: 0.0, accuracy: Some(accuracy) }
}

/// Frames that take 32 ms to a second on a link of 5 Mbit/s, and a tenth of this on 50 Mbit/s. Sizes
/// and accuracies are those of the reference ladder of `policies/reference.rs`.
pub(super) const LARGE_STILLS: Footage = Footage {
    name: "large_stills",
    about: "The reference ladder of experiments: ten stills of 20 to 600 kB.",
    pixels: (1920, 1080),
    frames_per_second: 15.0,
    published: [690e3, 700e3, 710e3],
    rungs: &[
        still("jpeg/q10/420", [17.5e3, 20e3, 22.8e3], 0.750),
        still("jpeg/q20/420", [26.3e3, 30e3, 34.2e3], 0.772),
        still("jpeg/q30/420", [39.5e3, 45e3, 51.3e3], 0.801),
        still("jpeg/q40/420", [57.0e3, 65e3, 74.1e3], 0.834),
        still("jpeg/q50/420", [83.3e3, 95e3, 108.4e3], 0.874),
        still("jpeg/q60/420", [122.7e3, 140e3, 159.7e3], 0.916),
        still("jpeg/q70/420", [175.3e3, 200e3, 228.1e3], 0.951),
        still("jpeg/q80/420", [254.2e3, 290e3, 330.8e3], 0.979),
        still("jpeg/q90/420", [368.2e3, 420e3, 479.1e3], 0.993),
        still("jpeg/q95/420", [526.0e3, 600e3, 684.4e3], 0.999),
    ],
};

/// Frames of one packet, which cannot measure a link, and one rung each of two and of three packets.
pub(super) const SMALL_STILLS: Footage = Footage {
    name: "small_stills",
    about: "Thumbnails of 0.4 to 3 kB: most of them are one packet, so that no rate can be measured by them.",
    pixels: (160, 120),
    frames_per_second: 15.0,
    published: [3.8e3, 4e3, 4.2e3],
    rungs: &[
        still("jpeg/q10/420", [350.0, 400.0, 456.0], 0.85),
        still("jpeg/q20/420", [526.0, 600.0, 684.0], 0.89),
        still("jpeg/q40/420", [789.0, 900.0, 1_027.0], 0.92),
        still("jpeg/q70/420", [1_577.0, 1_800.0, 2_053.0], 0.95),
        still("jpeg/q90/420", [2_630.0, 3_000.0, 3_422.0], 0.98),
    ],
};

/// The counts of one server of a web log, at rungs of its knob `top` (`python/mez/apps/web_log.py`). Sizes and accuracies are those of this
/// application on logs of the seeds 1 to 4, of four servers together. The rungs have the names of stills, for which there is a ladder of the same
/// length.
pub(super) const TOP_PAGES: Footage = Footage {
    name: "top_pages",
    about: "Counts of a web log every quarter of a second, of 0.6 to 15 kB, whose accuracy is that of the list of the top.",
    pixels: (64, 48),
    frames_per_second: 4.0,
    published: [80.8e3, 81.9e3, 83.2e3],
    rungs: &[
        still("jpeg/q10/420", [602.0, 603.0, 604.0], 0.591),
        still("jpeg/q20/420", [901.0, 903.0, 904.0], 0.709),
        still("jpeg/q30/420", [1_493.0, 1_496.0, 1_499.0], 0.830),
        still("jpeg/q40/420", [2_228.0, 2_232.0, 2_236.0], 0.904),
        still("jpeg/q50/420", [2_959.0, 2_963.0, 2_969.0], 0.940),
        still("jpeg/q60/420", [4_409.0, 4_415.0, 4_421.0], 0.970),
        still("jpeg/q70/420", [5_859.0, 5_865.0, 5_871.0], 0.981),
        still("jpeg/q80/420", [8_759.0, 8_765.0, 8_771.0], 0.991),
        still("jpeg/q90/420", [14_559.0, 14_565.0, 14_571.0], 0.996),
    ],
};
