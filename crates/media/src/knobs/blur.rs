//! Knob 3: blurs with a normalised box filter, as `cv2.blur` does with its default border.
//!
//! The mean is rounded exactly, halves to the even number. OpenCV's shortcut for small boxes is sometimes one step off.

use crate::image::Image;

/// Blurs `source` into `target` with a box of `side` × `side` pixels. The image is mirrored at its border, without
/// repeating the border row or column. A box with an even side reaches one pixel further left and up than right and down.
///
/// # Panics
/// If `side` is 0 or above 255.
pub fn blur(source: &Image, side: u32, target: &mut Image) {
    assert!((1..=255).contains(&side), "a box of {side} pixels");
    let (width, height) = (source.width() as usize, source.height() as usize);
    let channels = source.format().bytes_per_pixel();
    let row_bytes = width * channels;
    let mut output = target.reset(source.width(), source.height(), source.format());
    let output = output.data_mut();
    let row = |at: isize| {
        let at = mirrored(at, height);
        &source.data()[at * row_bytes..(at + 1) * row_bytes]
    };
    let (side, before) = (side as isize, (side / 2) as isize);
    // Sums of the box's columns. At each step down, one row enters and one row leaves.
    let mut columns = vec![0u32; row_bytes];
    for at in -before..side - before {
        columns.iter_mut().zip(row(at)).for_each(|(sum, &value)| *sum += u32::from(value));
    }
    let places: Vec<usize> =
        (-before..width as isize + side - before).map(|at| mirrored(at, width) * channels).collect();
    let divide = Divider::new((side * side) as u32);
    for y in 0..height {
        let line = &mut output[y * row_bytes..(y + 1) * row_bytes];
        for channel in 0..channels {
            let mut sum: u32 = places[..side as usize].iter().map(|place| columns[place + channel]).sum();
            for x in 0..width {
                line[x * channels + channel] = divide.round(sum);
                sum += columns[places[x + side as usize] + channel];
                sum -= columns[places[x] + channel];
            }
        }
        let (leaves, enters) = (row(y as isize - before), row(y as isize - before + side));
        for ((sum, &leaves), &enters) in columns.iter_mut().zip(leaves).zip(enters) {
            *sum = *sum + u32::from(enters) - u32::from(leaves);
        }
    }
}

/// The index inside `0..len` that `at` mirrors: 3 2 1 | 0 1 2 3 | 2 1 0.
fn mirrored(at: isize, len: usize) -> usize {
    if len == 1 {
        return 0;
    }
    let period = 2 * (len as isize - 1);
    let at = at.rem_euclid(period);
    (if at < len as isize { at } else { period - at }) as usize
}

/// Divides by the area of the box and rounds; halves go to the even number.
struct Divider {
    area: u32,
    /// 2^32 / area, rounded up.
    reciprocal: u64,
}

impl Divider {
    fn new(area: u32) -> Self {
        Self { area, reciprocal: (1u64 << 32).div_ceil(u64::from(area)) }
    }

    fn round(&self, sum: u32) -> u8 {
        // Exact: sums stay below 2^24, so the reciprocal's error changes a quotient by less than 2^24 / 2^32.
        let quotient = ((u64::from(sum) * self.reciprocal) >> 32) as u32;
        let rest = 2 * (sum - quotient * self.area);
        let up = rest > self.area || (rest == self.area && quotient % 2 == 1);
        (quotient + u32::from(up)) as u8
    }
}
