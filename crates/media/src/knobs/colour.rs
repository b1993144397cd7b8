//! Knob 2: converts between colour spaces, in OpenCV's 8-bit ranges.
//!
//! All arithmetic uses integers and tables, so results do not depend on a machine's mathematics library. Grey and HSV equal
//! OpenCV's bit for bit, L*a*b* and L*u*v* within one step. sRGB primaries and transfer curve, D65 white (IEC 61966-2-1; CIE 15).

use std::sync::OnceLock;

use mez_core::setting::ColourSpace;

use crate::image::{Image, PixelFormat};

/// Converts BGR to `space`, into `target`. A grey image stays grey for `Gray` and `Bgr`. For other spaces, its value is used for all channels of BGR.
pub fn convert(source: &Image, space: ColourSpace, target: &mut Image) {
    let (width, height) = (source.width(), source.height());
    match (source.format(), space) {
        (PixelFormat::Gray8, ColourSpace::Gray | ColourSpace::Bgr)
        | (PixelFormat::Bgr8, ColourSpace::Bgr)
        | (PixelFormat::Bgra8, ColourSpace::Bgr) => target.clone_from(source),
        (format, ColourSpace::Gray) => {
            let channels = format.bytes_per_pixel();
            let mut output = target.reset(width, height, PixelFormat::Gray8);
            for (grey, pixel) in output.data_mut().iter_mut().zip(source.data().chunks_exact(channels)) {
                *grey = luma(pixel[0], pixel[1], pixel[2]);
            }
        }
        (format, space) => {
            let channels = format.bytes_per_pixel();
            let tables = tables();
            let mut output = target.reset(width, height, PixelFormat::Bgr8);
            let pixels = source.data().chunks_exact(channels);
            for (out, pixel) in output.data_mut().chunks_exact_mut(3).zip(pixels) {
                let (b, g, r) = if channels == 1 {
                    (pixel[0], pixel[0], pixel[0])
                } else {
                    (pixel[0], pixel[1], pixel[2])
                };
                out.copy_from_slice(&match space {
                    ColourSpace::Hsv => tables.hsv(b, g, r),
                    ColourSpace::Lab => tables.lab(b, g, r),
                    ColourSpace::Luv => tables.luv(b, g, r),
                    ColourSpace::Bgr | ColourSpace::Gray => [b, g, r],
                });
            }
        }
    }
}

/// Luma by ITU-R BT.601: 0.299 R + 0.587 G + 0.114 B.
pub(crate) fn luma(b: u8, g: u8, r: u8) -> u8 {
    ((u32::from(b) * 3735 + u32::from(g) * 19_235 + u32::from(r) * 9798 + (1 << 14)) >> 15) as u8
}

/// Fractional bits of X, Y and Z relative to white, and of their cube roots.
const BITS: u32 = 15;
const ONE: i64 = 1 << BITS;
/// Steps of the cube root's table. Values between two entries are interpolated.
const ROOTS: usize = 4096;
/// Fractional bits that interpolate between two entries of the cube root's table.
const ROOT_BITS: u32 = 3;

struct Tables {
    /// 255 / value, in 1/4096.
    saturation: [u32; 256],
    /// 30 / chroma, in 1/4096: hue is in units of 2 degrees.
    hue: [u32; 256],
    /// Linear light of an sRGB value, in units of 1/`ONE`.
    linear: [i64; 256],
    /// Cube root of i / `ROOTS` in units of 1/`ONE`, with the linear part of CIE for small values.
    root: Vec<i64>,
}

fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| {
        let over = |numerator: f64| {
            std::array::from_fn(|i| if i == 0 { 0 } else { (numerator / i as f64).round_ties_even() as u32 })
        };
        let one = ONE as f64;
        Tables {
            saturation: over(255.0 * 4096.0),
            hue: over(30.0 * 4096.0),
            linear: std::array::from_fn(|i| {
                let v = i as f64 / 255.0;
                let linear = if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) };
                (linear * one).round() as i64
            }),
            root: (0..=ROOTS + 1)
                .map(|i| {
                    let t = i as f64 / ROOTS as f64;
                    let root = if t > 216.0 / 24389.0 { t.cbrt() } else { t * 841.0 / 108.0 + 4.0 / 29.0 };
                    (root * one).round() as i64
                })
                .collect(),
        }
    })
}

impl Tables {
    fn hsv(&self, b: u8, g: u8, r: u8) -> [u8; 3] {
        let value = b.max(g).max(r);
        let chroma = value - b.min(g).min(r);
        let saturation = (u32::from(chroma) * self.saturation[usize::from(value)] + (1 << 11)) >> 12;
        let (b, g, r) = (i32::from(b), i32::from(g), i32::from(r));
        let sixth = i32::from(chroma);
        let turned = if i32::from(value) == r {
            g - b
        } else if i32::from(value) == g {
            b - r + 2 * sixth
        } else {
            r - g + 4 * sixth
        };
        let hue = (turned * self.hue[usize::from(chroma)] as i32 + (1 << 11)) >> 12;
        let hue = if hue < 0 { hue + 180 } else { hue };
        [hue as u8, saturation as u8, value]
    }

    /// X, Y and Z relative to white, in units of 1/`ONE`.
    fn xyz(&self, b: u8, g: u8, r: u8) -> [i64; 3] {
        let [b, g, r] = [b, g, r].map(|value| self.linear[usize::from(value)]);
        // Rows of the sRGB matrix divided by the white point (0.950456, 1, 1.088754), in 1/65536.
        let row = |of_r: i64, of_g: i64, of_b: i64| (of_r * r + of_g * g + of_b * b + (1 << 15)) >> 16;
        [row(28_440, 24_655, 12_441), row(13_938, 46_868, 4_730), row(1_164, 7_176, 57_196)]
    }

    fn root(&self, t: i64) -> i64 {
        let at = (t >> ROOT_BITS) as usize;
        let (low, high) = (self.root[at], self.root[at + 1]);
        low + (((high - low) * (t & ((1 << ROOT_BITS) - 1))) >> ROOT_BITS)
    }

    /// Lightness times 2.55, in units of 1/`ONE`.
    fn lightness(root_of_y: i64) -> i64 {
        ((116 * root_of_y - 16 * ONE) * 255 + 50) / 100
    }

    fn lab(&self, b: u8, g: u8, r: u8) -> [u8; 3] {
        let [x, y, z] = self.xyz(b, g, r).map(|share| self.root(share));
        [round(Self::lightness(y)), round(500 * (x - y) + 128 * ONE), round(200 * (y - z) + 128 * ONE)]
    }

    fn luv(&self, b: u8, g: u8, r: u8) -> [u8; 3] {
        let shares = self.xyz(b, g, r);
        let lightness = Self::lightness(self.root(shares[1]));
        // White's X, Y and Z, in 1/1000000.
        let [x, y, z] = [shares[0] * 950_456, shares[1] * 1_000_000, shares[2] * 1_088_754];
        let sum = x + 15 * y + 3 * z;
        let (u, v) = if sum == 0 {
            (0, 0)
        } else {
            // u′ and v′ minus white's 0.1979394 and 0.4683110, times 13 L*, are u* and v*.
            // The largest share, 9 Y, is below 2^39; times ten million it is below 2^63.
            let l = lightness * 100 / 255;
            let against = |share: i64, white: i64| {
                let prime = share * 10_000_000 / sum - white;
                13 * l * prime / 10_000_000
            };
            (against(4 * x, 1_979_394), against(9 * y, 4_683_110))
        };
        let scaled = |value: i64, shift: i64, range: i64| round((value + shift * ONE) * 255 / range);
        [round(lightness), scaled(u, 134, 354), scaled(v, 140, 262)]
    }
}

fn round(value: i64) -> u8 {
    ((value + ONE / 2) >> BITS).clamp(0, 255) as u8
}
