//! Brings the samples of other encoders to ours: full range, BT.601.

use super::{Planes, Yuv420};

/// What the samples of a video stream mean (ITU-T H.264, E.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Colour {
    /// Black is 0 and white 255, as here. Otherwise they are 16 and 235, which is so if a stream says nothing.
    pub(crate) is_full: bool,
    /// Differences of colour are those of BT.709, as in most HD video that says so. Otherwise those of BT.601.
    pub(crate) is_bt709: bool,
}

impl Colour {
    /// That of pictures here.
    pub(crate) const OURS: Self = Self { is_full: true, is_bt709: false };
}

/// Fixed point: factors in 1/65536.
const ONE: f64 = 65_536.0;
/// From differences of BT.709 to those of BT.601: how much of blue and red is added to brightness, and the matrix of blue and red. From the
/// luma coefficients of both (0.2126, 0.0722 and 0.299, 0.114).
const LUMA_OF: [f64; 2] = [0.101_579, 0.196_076];
const BLUE_OF: [f64; 2] = [0.989_854, -0.110_653];
const RED_OF: [f64; 2] = [-0.072_453, 0.983_398];

/// Copies borrowed planes into `target`, converted from `colour` to [`Colour::OURS`].
pub(crate) fn to_ours(planes: &Planes<'_>, (width, height): (u32, u32), colour: Colour, target: &mut Yuv420) {
    target.copy_from(planes, width, height);
    if colour == Colour::OURS {
        return;
    }
    let (luma_scale, chroma_scale) = if colour.is_full { (1.0, 1.0) } else { (255.0 / 219.0, 255.0 / 224.0) };
    let black = if colour.is_full { 0 } else { 16 };
    let [luma_of, blue_of, red_of] = match colour.is_bt709 {
        true => [LUMA_OF, BLUE_OF, RED_OF],
        false => [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]],
    };
    let fixed = |of: [f64; 2]| of.map(|factor| (factor * chroma_scale * ONE).round() as i32);
    let (luma_of, blue_of, red_of) = (fixed(luma_of), fixed(blue_of), fixed(red_of));
    let factor = (luma_scale * ONE).round() as i32;
    let half = width.div_ceil(2) as usize;
    let (luma, rest) = target.data_mut().split_at_mut(width as usize * height as usize);
    let (blue, red) = rest.split_at_mut(half * height.div_ceil(2) as usize);
    let sample = |value: i32| ((value + (1 << 15)) >> 16).clamp(0, 255) as u8;
    let chroma = blue.chunks_exact_mut(half).zip(red.chunks_exact_mut(half));
    for (rows, (blue, red)) in luma.chunks_mut(2 * width as usize).zip(chroma) {
        for row in rows.chunks_exact_mut(width as usize) {
            for ((pixels, blue), red) in row.chunks_mut(2).zip(&*blue).zip(&*red) {
                let [blue, red] = [i32::from(*blue) - 128, i32::from(*red) - 128];
                let added = luma_of[0] * blue + luma_of[1] * red;
                for pixel in pixels {
                    *pixel = sample((i32::from(*pixel) - black) * factor + added);
                }
            }
        }
        for (blue, red) in blue.iter_mut().zip(red) {
            let [b, r] = [i32::from(*blue) - 128, i32::from(*red) - 128];
            *blue = sample(blue_of[0] * b + blue_of[1] * r + (128 << 16));
            *red = sample(red_of[0] * b + red_of[1] * r + (128 << 16));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture of 3 × 3 pixels of one colour, converted.
    fn converted([luma, blue, red]: [u8; 3], colour: Colour) -> [u8; 3] {
        let planes =
            Planes { luma: &[luma; 9], luma_stride: 3, blue: &[blue; 4], red: &[red; 4], chroma_stride: 2 };
        let mut target = Yuv420::empty();
        to_ours(&planes, (3, 3), colour, &mut target);
        let data = target.data();
        assert!(data[..9].iter().all(|sample| *sample == data[0]), "{data:?}");
        [data[0], data[9], data[13]]
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
