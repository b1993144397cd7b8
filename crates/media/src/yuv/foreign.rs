//! Converts the samples of other encoders to the format of this crate: full range, BT.601.

use super::{Planes, Yuv420};

/// The meaning of a video stream's samples (ITU-T H.264, E.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Colour {
    /// Black is 0 and white 255. Otherwise they are 16 and 235, the default for streams that do not state it.
    pub(crate) is_full: bool,
    /// The chroma samples are those of BT.709, as in most HD video that states it. Otherwise those of BT.601.
    pub(crate) is_bt709: bool,
}

impl Colour {
    /// The format of this crate.
    pub(crate) const OURS: Self = Self { is_full: true, is_bt709: false };
}

/// Fixed point: factors in 1/65536.
const ONE: f64 = 65_536.0;
/// From BT.709 to BT.601: weights of the blue and red difference that are added to luma. All three
/// pairs follow from the luma coefficients of both standards (0.2126, 0.0722 and 0.299, 0.114).
const LUMA_OF: [f64; 2] = [0.101_579, 0.196_076];
/// From BT.709 to BT.601: weights of the blue and red difference in the new blue difference.
const BLUE_OF: [f64; 2] = [0.989_854, -0.110_653];
/// From BT.709 to BT.601: weights of the blue and red difference in the new red difference.
const RED_OF: [f64; 2] = [-0.072_453, 0.983_398];

/// Factors of a conversion, in 1/65536. Factors near 1 are stored minus 1, so that all fit 16 bits: compilers vectorise products of 16 bits.
struct Matrix {
    /// The value of a black sample.
    black: u8,
    /// Factor of luma, minus 1.
    luma: i16,
    /// Factors of the blue and red difference that are added to luma.
    luma_of: [i16; 2],
    /// Factors of the blue difference (minus 1) and the red difference in the new blue difference.
    blue_of: [i16; 2],
    /// Factors of the blue difference and the red difference (minus 1) in the new red difference.
    red_of: [i16; 2],
}

impl Matrix {
    fn of(colour: Colour) -> Self {
        let (luma, chroma) = if colour.is_full { (1.0, 1.0) } else { (255.0 / 219.0, 255.0 / 224.0) };
        let [luma_of, blue_of, red_of] = match colour.is_bt709 {
            true => [LUMA_OF, BLUE_OF, RED_OF],
            false => [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]],
        };
        let fixed = |factor: f64, above: f64| ((factor - above) * ONE).round() as i16;
        Self {
            black: if colour.is_full { 0 } else { 16 },
            luma: fixed(luma, 1.0),
            luma_of: luma_of.map(|factor| fixed(factor * chroma, 0.0)),
            blue_of: [fixed(blue_of[0] * chroma, 1.0), fixed(blue_of[1] * chroma, 0.0)],
            red_of: [fixed(red_of[0] * chroma, 0.0), fixed(red_of[1] * chroma, 1.0)],
        }
    }

    /// Converts a row of luma without the influence of chroma.
    fn scale(&self, from: &[u8], to: &mut [u8]) {
        let (black, above) = (self.black, self.luma as u16);
        for (to, from) in to.iter_mut().zip(from) {
            let value = u16::from(from.saturating_sub(black));
            // Twice the product, truncated: adding 1 and halving then rounds it.
            let twice = ((u32::from(2 * value) * u32::from(above)) >> 16) as u16;
            *to = (value + twice.div_ceil(2)).min(255) as u8;
        }
    }

    /// Converts a row of luma and adds `added`, in 1/65536, to each sample.
    fn shift(&self, from: &[u8], added: &[i32], to: &mut [u8]) {
        for ((to, from), added) in to.iter_mut().zip(from).zip(added) {
            let value = i16::from(*from) - i16::from(self.black);
            *to = sample((i32::from(value) << 16) + i32::from(value) * i32::from(self.luma) + added);
        }
    }

    /// Computes what a row of chroma adds to the luma of its pixels, in 1/65536.
    fn add(&self, blue: &[u8], red: &[u8], added: &mut [i32]) {
        for (added, (blue, red)) in added.chunks_mut(2).zip(blue.iter().zip(red)) {
            added.fill(product(self.luma_of, [difference(*blue), difference(*red)]));
        }
    }

    /// Converts a row of both chroma planes.
    fn turn(&self, [blue, red]: [&[u8]; 2], [to_blue, to_red]: [&mut [u8]; 2]) {
        let to = to_blue.iter_mut().zip(to_red);
        for ((to_blue, to_red), (blue, red)) in to.zip(blue.iter().zip(red)) {
            let both @ [b, r] = [difference(*blue), difference(*red)];
            *to_blue = sample((i32::from(b) << 16) + product(self.blue_of, both) + (128 << 16));
            *to_red = sample((i32::from(r) << 16) + product(self.red_of, both) + (128 << 16));
        }
    }
}

fn difference(chroma: u8) -> i16 {
    i16::from(chroma) - 128
}

fn product(factors: [i16; 2], of: [i16; 2]) -> i32 {
    i32::from(factors[0]) * i32::from(of[0]) + i32::from(factors[1]) * i32::from(of[1])
}

/// Rounds a value in 1/65536 to a sample.
fn sample(value: i32) -> u8 {
    ((value + (1 << 15)) >> 16).clamp(0, 255) as u8
}

/// Copies borrowed planes into `target`, converted from `colour` to [`Colour::OURS`].
pub(crate) fn to_ours(planes: &Planes<'_>, (width, height): (u32, u32), colour: Colour, target: &mut Yuv420) {
    if colour == Colour::OURS {
        return target.copy_from(planes, width, height);
    }
    let matrix = Matrix::of(colour);
    let [luma, to_blue, to_red] = target.reset(width, height);
    let (row, half) = (width as usize, width.div_ceil(2) as usize);
    let from = planes.blue.chunks(planes.chroma_stride).zip(planes.red.chunks(planes.chroma_stride));
    let to = to_blue.chunks_exact_mut(half).zip(to_red.chunks_exact_mut(half));
    let pairs = luma.chunks_mut(2 * row).zip(planes.luma.chunks(2 * planes.luma_stride));
    let mut added = vec![0; row];
    for (((blue, red), (to_blue, to_red)), (rows, from_rows)) in from.zip(to).zip(pairs) {
        let (blue, red) = (&blue[..half], &red[..half]);
        matrix.turn([blue, red], [to_blue, to_red]);
        if colour.is_bt709 {
            matrix.add(blue, red, &mut added);
        }
        for (to, from) in rows.chunks_exact_mut(row).zip(from_rows.chunks(planes.luma_stride)) {
            match colour.is_bt709 {
                true => matrix.shift(&from[..row], &added, to),
                false => matrix.scale(&from[..row], to),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts a picture of 3 × 3 equal pixels, and returns its pixel.
    fn converted([luma, blue, red]: [u8; 3], colour: Colour) -> [u8; 3] {
        let planes =
            Planes { luma: &[luma; 9], luma_stride: 3, blue: &[blue; 4], red: &[red; 4], chroma_stride: 2 };
        let mut target = Yuv420::empty();
        to_ours(&planes, (3, 3), colour, &mut target);
        let data = target.data();
        assert!(data[..9].iter().all(|sample| *sample == data[0]), "{data:?}");
        [data[0], data[9], data[13]]
    }

    /// The expected pixel, computed directly with the formula.
    fn by_formula([luma, blue, red]: [u8; 3], colour: Colour) -> [u8; 3] {
        let (luma_scale, chroma_scale) =
            if colour.is_full { (1.0, 1.0) } else { (255.0 / 219.0, 255.0 / 224.0) };
        let [luma_of, blue_of, red_of] = match colour.is_bt709 {
            true => [LUMA_OF, BLUE_OF, RED_OF],
            false => [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]],
        };
        let both = [i64::from(blue) - 128, i64::from(red) - 128];
        let of = |factors: [f64; 2]| -> i64 {
            let fixed = factors.map(|factor| (factor * chroma_scale * ONE).round() as i64);
            fixed[0] * both[0] + fixed[1] * both[1]
        };
        let black = if colour.is_full { 0 } else { 16 };
        let brightness = (i64::from(luma) - black) * (luma_scale * ONE).round() as i64 + of(luma_of);
        let sample = |value: i64| ((value + (1 << 15)) >> 16).clamp(0, 255) as u8;
        [sample(brightness), sample(of(blue_of) + (128 << 16)), sample(of(red_of) + (128 << 16))]
    }

    #[test]
    fn every_sample_is_what_the_formula_says() {
        for (is_full, is_bt709) in [(false, false), (false, true), (true, true)] {
            let colour = Colour { is_full, is_bt709 };
            for at in 0..=u16::MAX {
                let [blue, red] = at.to_be_bytes();
                let pixel = [blue.wrapping_mul(77).wrapping_add(red), blue, red];
                assert_eq!(converted(pixel, colour), by_formula(pixel, colour), "{pixel:?} of {colour:?}");
            }
        }
    }

    /// Rows with gaps, and a picture with odd sides.
    #[test]
    fn what_is_beside_a_picture_is_left_out() {
        let colour = Colour { is_full: false, is_bt709: true };
        let luma: Vec<u8> = (0..40).collect();
        let chroma: Vec<u8> = (100..118).collect();
        let planes =
            Planes { luma: &luma, luma_stride: 8, blue: &chroma, red: &chroma[..], chroma_stride: 6 };
        let mut target = Yuv420::empty();
        to_ours(&planes, (5, 5), colour, &mut target);
        let data = target.data();
        for (row, column) in [(0, 0), (0, 4), (3, 1), (4, 4)] {
            let (half, pixel) = (row / 2 * 6 + column / 2, luma[row * 8 + column]);
            let expected = by_formula([pixel, chroma[half], chroma[half]], colour);
            let at = row / 2 * 3 + column / 2;
            assert_eq!([data[row * 5 + column], data[25 + at], data[34 + at]], expected, "{row}, {column}");
        }
    }

    fn near(found: [u8; 3], expected: [u8; 3]) {
        let apart = found.iter().zip(&expected).map(|(one, other)| one.abs_diff(*other)).max();
        assert!(apart <= Some(1), "{found:?}, not {expected:?}");
    }

    #[test]
    fn black_and_white_of_video_become_those_of_pictures() {
        let video = Colour::default();
        assert_eq!(converted([16, 128, 128], video), [0, 128, 128]);
        assert_eq!(converted([235, 128, 128], video), [255, 128, 128]);
        assert_eq!(converted([0, 16, 240], video), [0, 0, 255], "below black there is nothing");
        assert_eq!(converted([90, 30, 200], Colour::OURS), [90, 30, 200]);
    }

    /// Red, green and blue, by the matrices of both standards.
    #[test]
    fn colours_of_hd_video_stay_what_they_are() {
        let hd = Colour { is_full: false, is_bt709: true };
        for (of_hd, ours) in [
            ([63, 102, 240], [76, 85, 255]),
            ([173, 42, 26], [150, 44, 21]),
            ([32, 240, 118], [29, 255, 107]),
            ([219, 16, 138], [226, 0, 149]),
        ] {
            near(converted(of_hd, hd), ours);
        }
        let full = Colour { is_full: true, is_bt709: true };
        near(converted([54, 99, 255], full), [76, 85, 255]);
    }
}
