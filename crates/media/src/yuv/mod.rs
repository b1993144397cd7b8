//! Planar 4:2:0 images and their conversion between JPEG files or video codecs and the BGR of applications.
//!
//! Full-range Y′CbCr by BT.601, as in JFIF, with chroma at half the resolution in both directions. All arithmetic uses integers, so the same
//! input gives the same output on every machine.

mod foreign;
mod native;
mod planes;

pub(crate) use self::foreign::{Colour, to_ours};
pub(crate) use self::planes::Planes;
use crate::image::{Image, ImageError, ImageView, PixelFormat, Yuv420View};
use crate::knobs::colour::luma;

/// A planar 4:2:0 image that owns its samples. Its memory is reused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Yuv420 {
    data: Vec<u8>,
    width: u32,
    height: u32,
}

impl Yuv420 {
    /// An image without samples.
    #[must_use]
    pub const fn empty() -> Self {
        Self { data: Vec::new(), width: 0, height: 0 }
    }

    /// Luma samples in a row.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Number of rows of luma.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The luma plane, then the blue-difference plane, then the red-difference plane, without gaps.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// A view of the planes.
    ///
    /// # Errors
    /// [`ImageError::ZeroSized`] while the image is empty.
    pub fn view(&self) -> Result<Yuv420View<'_>, ImageError> {
        Yuv420View::packed(&self.data, self.width, self.height)
    }

    /// Resizes this image and returns its samples for overwriting: the luma plane, then the blue-difference plane, then the red-difference plane.
    pub fn resize(&mut self, width: u32, height: u32) -> &mut [u8] {
        self.reset(width, height);
        &mut self.data
    }

    /// Resizes this image and returns the three planes for overwriting.
    pub(crate) fn reset(&mut self, width: u32, height: u32) -> [&mut [u8]; 3] {
        let luma = width as usize * height as usize;
        let chroma = width.div_ceil(2) as usize * height.div_ceil(2) as usize;
        self.data.resize(luma + 2 * chroma, 0);
        (self.width, self.height) = (width, height);
        let (luma, rest) = self.data.split_at_mut(luma);
        let (blue, red) = rest.split_at_mut(chroma);
        [luma, blue, red]
    }

    /// All samples in one slice, for overwriting.
    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// Converts pixels to planes. Each chroma sample is the mean of four pixels
    /// (fewer at an odd edge), within one step. Alpha is dropped; grey has no chroma.
    pub fn fill_from(&mut self, image: &ImageView<'_>) {
        let planes = self.reset(image.width(), image.height());
        if !native::fill(image, planes) {
            self.fill_from_plain(image);
        }
    }

    fn fill_from_plain(&mut self, image: &ImageView<'_>) {
        let (width, height) = (image.width(), image.height());
        let channels = image.format().bytes_per_pixel();
        let [luma_plane, blue_plane, red_plane] = self.reset(width, height);
        if channels == 1 {
            for (to, from) in luma_plane.chunks_exact_mut(width as usize).zip(image.rows()) {
                to.copy_from_slice(from);
            }
            blue_plane.fill(128);
            red_plane.fill(128);
            return;
        }
        let half = width.div_ceil(2) as usize;
        let rows: Vec<&[u8]> = image.rows().collect();
        for (to, from) in luma_plane.chunks_exact_mut(width as usize).zip(&rows) {
            for (luma_sample, pixel) in to.iter_mut().zip(from.chunks_exact(channels)) {
                *luma_sample = luma(pixel[0], pixel[1], pixel[2]);
            }
        }
        let chroma_rows = blue_plane.chunks_exact_mut(half).zip(red_plane.chunks_exact_mut(half));
        for ((blue, red), pair) in chroma_rows.zip(rows.chunks(2)) {
            let (top, bottom) = (pair[0], pair[pair.len() - 1]);
            let quads = top.chunks(2 * channels).zip(bottom.chunks(2 * channels));
            for ((blue, red), (top, bottom)) in blue.iter_mut().zip(red.iter_mut()).zip(quads) {
                // At an odd edge, the last pixel counts twice.
                let right = top.len() - channels;
                let sum = |channel: usize| {
                    i32::from(top[channel])
                        + i32::from(top[right + channel])
                        + i32::from(bottom[channel])
                        + i32::from(bottom[right + channel])
                };
                (*blue, *red) = chroma(sum(0), sum(1), sum(2));
            }
        }
    }
}

impl Yuv420 {
    /// Copies borrowed planes into this image.
    pub(crate) fn copy_from(&mut self, planes: &Planes<'_>, width: u32, height: u32) {
        let [luma, blue, red] = self.reset(width, height);
        let copy = |to: &mut [u8], from: &[u8], stride: usize, row: usize| {
            for (to, from) in to.chunks_exact_mut(row).zip(from.chunks(stride)) {
                to.copy_from_slice(&from[..row]);
            }
        };
        let half = width.div_ceil(2) as usize;
        copy(luma, planes.luma, planes.luma_stride, width as usize);
        copy(blue, planes.blue, planes.chroma_stride, half);
        copy(red, planes.red, planes.chroma_stride, half);
    }

    /// Converts the planes to BGR for applications.
    pub fn to_bgr(&self, target: &mut Image) {
        to_bgr(&self.planes(), self.width, self.height, target);
    }

    pub(crate) fn planes(&self) -> Planes<'_> {
        packed(&self.data, self.width, self.height)
    }
}

/// Views planes that lie in memory one after another, without gaps.
pub(crate) fn packed(data: &[u8], width: u32, height: u32) -> Planes<'_> {
    let (luma, rest) = data.split_at(width as usize * height as usize);
    let (blue, red) = rest.split_at(rest.len() / 2);
    Planes { luma, luma_stride: width as usize, blue, red, chroma_stride: width.div_ceil(2) as usize }
}

/// Blue and red difference of the summed channels of four pixels. Coefficients of JFIF in 1/65536.
fn chroma(b: i32, g: i32, r: i32) -> (u8, u8) {
    const HALF: i32 = (128 << 18) + (1 << 17);
    let blue = (-11_059 * r - 21_709 * g + 32_768 * b + HALF) >> 18;
    let red = (32_768 * r - 27_439 * g - 5_329 * b + HALF) >> 18;
    (blue.clamp(0, 255) as u8, red.clamp(0, 255) as u8)
}

/// Converts planes to BGR. Each chroma sample is used for its four pixels without interpolation.
pub(crate) fn to_bgr(planes: &Planes<'_>, width: u32, height: u32, target: &mut Image) {
    write_bgr(planes, (width, height), target.reset(width, height, PixelFormat::Bgr8).data_mut());
}

/// Converts planes to BGR in memory of three bytes per pixel, without gaps between rows.
pub(crate) fn write_bgr(planes: &Planes<'_>, size: (u32, u32), output: &mut [u8]) {
    if !native::to_bgr(planes, size, output) {
        to_bgr_plain(planes, size.0, output);
    }
}

fn to_bgr_plain(planes: &Planes<'_>, width: u32, output: &mut [u8]) {
    let (row_bytes, half) = (width as usize * 3, width.div_ceil(2) as usize);
    let mut terms = vec![[0i32; 3]; half];
    for (y, row) in output.chunks_exact_mut(row_bytes).enumerate() {
        let luma = &planes.luma[y * planes.luma_stride..][..width as usize];
        if y % 2 == 0 {
            let at = y / 2 * planes.chroma_stride;
            let samples = planes.blue[at..][..half].iter().zip(&planes.red[at..][..half]);
            for (term, (&blue, &red)) in terms.iter_mut().zip(samples) {
                let (blue, red) = (i32::from(blue) - 128, i32::from(red) - 128);
                // The matrix of JFIF in 1/65536, plus a half for rounding.
                *term =
                    [116_130 * blue + 32_768, -22_554 * blue - 46_802 * red + 32_768, 91_881 * red + 32_768];
            }
        }
        for ((pixels, luma), term) in row.chunks_mut(6).zip(luma.chunks(2)).zip(&terms) {
            for (pixel, &luma) in pixels.chunks_exact_mut(3).zip(luma) {
                let luma = i32::from(luma) << 16;
                for (value, term) in pixel.iter_mut().zip(term) {
                    *value = ((luma + term) >> 16).clamp(0, 255) as u8;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The library's code and the plain code do the same conversion. To BGR, the results are equal. To planes, they
        /// differ by at most one step for luma and two for chroma: one averages before the conversion, the other after it.
        #[test]
        fn both_ways_to_convert_agree(
            width in 1u32..40,
            height in 1u32..20,
            gap in 0usize..5,
            samples in prop::collection::vec(any::<u8>(), 80 * 45 * 3),
        ) {
            let (width, height) = (2 * width, 2 * height);
            let (w, h) = (width as usize, height as usize);
            let (luma_stride, chroma_stride) = (w + gap, w / 2 + gap);
            let (luma, rest) = samples.split_at(luma_stride * h);
            let (blue, red) = rest.split_at(chroma_stride * h / 2);
            let planes = Planes { luma, luma_stride, blue, red, chroma_stride };
            let (mut fast, mut plain) = (vec![0; 3 * w * h], vec![1; 3 * w * h]);
            prop_assert!(native::to_bgr(&planes, (width, height), &mut fast));
            to_bgr_plain(&planes, width, &mut plain);
            prop_assert_eq!(fast, plain);

            let stride = 3 * w + gap;
            let view = ImageView::new(&samples[..stride * h], width, height, stride, PixelFormat::Bgr8).unwrap();
            let (mut fast, mut plain) = (Yuv420::empty(), Yuv420::empty());
            prop_assert!(native::fill(&view, fast.reset(width, height)));
            plain.fill_from_plain(&view);
            for (at, (a, b)) in fast.data.iter().zip(&plain.data).enumerate() {
                prop_assert!(a.abs_diff(*b) <= if at < w * h { 1 } else { 2 }, "{}: {} {}", at, a, b);
            }
        }
    }
}
