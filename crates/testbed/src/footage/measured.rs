//! Holds measured sizes and encoding times of the codecs of `mez-media`: 150 frames (60 at 1080 rows) of the demo's video, cropped, enlarged or made
//! noisy as each entry says, and published as JPEG of quality 95. Each measurement encodes raw pixels on one thread of a server. Keyframes: the mean
//! over every tenth frame. Accuracies are those of `python/mez/profiles/pedestrian-hog-vtest.json`, also for `street`. Those of `street_low_contrast`
//! were measured on the same video at 15 % of its contrast (120 and 40 frames scored).

use super::stills::{LARGE_STILLS, SMALL_STILLS, TOP_PAGES};
use super::{Footage, Measured};

impl Footage {
    /// All measured footage.
    pub const ALL: [Self; 5] = [PEDESTRIANS, NOISY_1080P, PANNING_720P, STREET, STREET_LOW_CONTRAST];
    /// Ladders of stills as footage. No such footage was filmed.
    pub const STILLS: [Self; 3] = [LARGE_STILLS, SMALL_STILLS, TOP_PAGES];
    /// People who walk by, seen by a fixed camera.
    pub const PEDESTRIANS: Self = PEDESTRIANS;

    /// The footage that scenario files can name.
    pub fn known() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain(Self::STILLS)
    }

    /// The footage of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::known().find(|known| known.name == name)
    }
}

const fn measured(
    rung: &'static str,
    bytes: [f64; 3],
    alone_bytes: f64,
    ms: (f64, f64),
    alone_ms: f64,
    accuracy: Option<f64>,
) -> Measured {
    Measured { rung, bytes, alone_bytes, ms, alone_ms, accuracy }
}

const PEDESTRIANS: Footage = Footage {
    name: "pedestrians",
    about: "People walk by on a street, seen by a camera that stands still.",
    pixels: (768, 576),
    frames_per_second: 10.0,
    published: [154_374.0, 155_584.0, 157_065.0],
    rungs: &[
        measured("h264/q24", [4_726.0, 5_692.0, 7_558.0], 62_861.0, (2.5, 3.0), 6.9, None),
        measured("h264/q28", [2_557.0, 3_194.0, 4_201.0], 42_496.0, (2.0, 2.3), 6.0, None),
        measured("h264/q32", [1_366.0, 1_876.0, 2_541.0], 27_725.0, (1.7, 1.9), 5.6, None),
        measured("h264/q40", [493.0, 700.0, 1_044.0], 11_045.0, (1.4, 1.6), 5.0, None),
        measured("h264/w512/q30", [785.0, 1_080.0, 1_535.0], 15_599.0, (1.8, 2.0), 4.3, None),
        measured("h264/w512/q36", [397.0, 550.0, 813.0], 8_059.0, (1.7, 1.9), 6.5, Some(0.966)),
        measured("h264/w384/q34", [317.0, 460.0, 676.0], 6_420.0, (0.9, 1.1), 2.6, None),
        measured("h264/w384/q40", [148.0, 228.0, 344.0], 3_355.0, (0.8, 1.0), 2.4, Some(0.942)),
        measured("h264/w256/q36", [142.0, 210.0, 322.0], 2_720.0, (0.6, 0.7), 1.4, None),
        measured("tiles/q70/420", [6_968.0, 9_144.0, 11_215.0], 60_726.0, (0.5, 0.8), 1.5, None),
        measured("tiles/w512/q40/gray", [1_569.0, 2_606.0, 3_380.0], 15_863.0, (1.2, 1.3), 1.4, Some(0.979)),
        measured("tiles/w320/q20/gray", [710.0, 1_029.0, 1_322.0], 4_432.0, (0.6, 0.7), 0.7, Some(0.907)),
        measured("jpeg/q85/420", [88_590.0, 89_616.0, 90_465.0], 0.0, (1.2, 1.3), 0.0, None),
        measured("jpeg/q70/420", [60_889.0, 61_574.0, 62_134.0], 0.0, (1.1, 1.2), 0.0, None),
        measured("jpeg/w512/q70/420", [28_296.0, 28_563.0, 28_875.0], 0.0, (1.2, 1.3), 0.0, None),
        measured("jpeg/w384/q70/420", [17_069.0, 17_302.0, 17_494.0], 0.0, (0.7, 0.8), 0.0, None),
        measured("jpeg/w256/q60/420", [7_400.0, 7_534.0, 7_626.0], 0.0, (0.5, 0.5), 0.0, None),
        measured("jpeg/w192/q50/420", [4_039.0, 4_116.0, 4_167.0], 0.0, (0.3, 0.4), 0.0, None),
        measured("jpeg/q95/420", [154_374.0, 155_584.0, 157_065.0], 0.0, (1.6, 1.8), 0.0, Some(1.0)),
    ],
};

const NOISY_1080P: Footage = Footage {
    name: "noisy_1080p",
    about: "The same enlarged to 1080 rows, with the noise of a small sensor: pictures that stand alone are many times as large as others.",
    pixels: (1920, 1080),
    frames_per_second: 15.0,
    published: [718_691.0, 721_734.0, 722_962.0],
    rungs: &[
        measured("h264/q24", [26_394.0, 29_194.0, 49_745.0], 193_238.0, (14.9, 19.8), 24.4, None),
        measured("h264/q32", [3_837.0, 4_885.0, 6_616.0], 74_216.0, (8.2, 9.2), 21.1, None),
        measured("h264/q40", [1_226.0, 1_737.0, 2_574.0], 29_829.0, (6.8, 7.1), 18.7, None),
        measured("h264/w1280/q30", [2_452.0, 3_066.0, 4_154.0], 48_874.0, (7.8, 8.3), 14.3, None),
        measured("h264/w960/q34", [885.0, 1_234.0, 1_837.0], 21_484.0, (3.5, 3.7), 7.4, None),
        measured("h264/w640/q36", [423.0, 580.0, 867.0], 9_267.0, (2.2, 2.3), 4.2, None),
        measured("tiles/q70/420", [18_818.0, 23_538.0, 28_426.0], 201_851.0, (4.1, 4.4), 9.8, None),
        measured("jpeg/q85/420", [317_081.0, 319_270.0, 320_159.0], 0.0, (5.1, 5.2), 0.0, None),
        measured("jpeg/q70/420", [201_578.0, 202_954.0, 203_941.0], 0.0, (4.7, 4.9), 0.0, None),
        measured("jpeg/w960/q70/420", [62_945.0, 63_490.0, 63_820.0], 0.0, (2.8, 2.8), 0.0, None),
        measured("jpeg/w480/q50/420", [14_377.0, 14_602.0, 14_731.0], 0.0, (1.2, 1.3), 0.0, None),
    ],
};

const PANNING_720P: Footage = Footage {
    name: "panning_720p",
    about: "A camera that turns: all of the picture moves, and what refers to others saves less.",
    pixels: (1280, 720),
    frames_per_second: 15.0,
    published: [206_408.0, 212_654.0, 221_219.0],
    rungs: &[
        measured("h264/q24", [10_322.0, 12_485.0, 15_697.0], 68_133.0, (6.2, 7.1), 10.7, None),
        measured("h264/q32", [3_697.0, 4_475.0, 5_771.0], 31_126.0, (4.5, 5.1), 9.3, None),
        measured("h264/q40", [2_234.0, 2_721.0, 3_363.0], 12_530.0, (4.8, 5.3), 8.3, None),
        measured("h264/w852/q30", [3_111.0, 4_090.0, 5_391.0], 21_240.0, (4.9, 5.3), 7.0, None),
        measured("h264/w640/q34", [1_304.0, 1_596.0, 2_064.0], 9_184.0, (2.2, 2.5), 3.7, None),
        measured("h264/w426/q36", [632.0, 773.0, 1_002.0], 3_897.0, (1.2, 1.4), 2.0, None),
        measured("tiles/q70/420", [66_916.0, 77_547.0, 82_146.0], 80_473.0, (2.9, 3.3), 3.6, None),
        measured("jpeg/q85/420", [112_569.0, 117_157.0, 121_839.0], 0.0, (2.2, 2.3), 0.0, None),
        measured("jpeg/q70/420", [77_441.0, 80_762.0, 84_006.0], 0.0, (2.3, 2.3), 0.0, None),
        measured("jpeg/w640/q70/420", [26_528.0, 27_491.0, 28_752.0], 0.0, (1.3, 1.4), 0.0, None),
        measured("jpeg/w320/q50/420", [6_454.0, 6_686.0, 7_166.0], 0.0, (0.6, 0.7), 0.0, None),
    ],
};

const STREET: Footage = Footage {
    name: "street",
    about: "The same street as `pedestrians`, with rungs up to the original, each with its accuracy.",
    pixels: (768, 576),
    frames_per_second: 10.0,
    published: [147_094.0, 151_659.0, 157_302.0],
    rungs: &[
        measured("h264/w512/q40", [179.0, 388.0, 638.0], 5_275.0, (3.3, 3.6), 5.0, Some(0.967)),
        measured("h264/q30", [1_384.0, 2_674.0, 4_032.0], 34_664.0, (3.5, 3.7), 7.6, Some(0.996)),
        measured("h264/q22", [7_486.0, 9_895.0, 12_807.0], 80_250.0, (4.4, 5.0), 8.2, Some(0.996)),
        measured("h264/q18", [13_815.0, 17_315.0, 23_466.0], 110_725.0, (5.0, 5.7), 9.5, Some(1.0)),
        measured("tiles/w512/q30/gray", [1_273.0, 2_392.0, 3_355.0], 13_115.0, (2.3, 2.5), 2.5, Some(0.971)),
        measured("original", [147_094.0, 151_659.0, 157_302.0], 0.0, (0.1, 0.1), 0.0, Some(1.0)),
    ],
};

const STREET_LOW_CONTRAST: Footage = Footage {
    name: "street_low_contrast",
    about: "The same in fog: frames are a fifth as large, and coarse ones keep little.",
    pixels: (768, 576),
    frames_per_second: 10.0,
    published: [75_736.0, 78_260.0, 79_579.0],
    rungs: &[
        measured("h264/w512/q40", [45.0, 90.5, 180.0], 1_546.0, (2.2, 2.5), 3.6, Some(0.396)),
        measured("h264/q30", [212.0, 467.0, 832.0], 8_844.0, (2.0, 2.4), 4.2, Some(0.927)),
        measured("h264/q22", [877.0, 1_588.0, 2_584.0], 24_842.0, (2.3, 2.7), 4.5, Some(0.981)),
        measured("h264/q18", [1_875.0, 3_092.0, 4_590.0], 40_309.0, (2.6, 3.0), 4.9, Some(0.981)),
        measured("tiles/w512/q30/gray", [298.0, 536.0, 750.0], 3_973.0, (1.6, 1.8), 1.8, Some(0.824)),
        measured("original", [75_736.0, 78_260.0, 79_579.0], 0.0, (0.1, 0.1), 0.0, Some(1.0)),
    ],
};
