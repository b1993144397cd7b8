//! Test pictures for codecs, and a measure of how much a decoded picture differs.

/// Makes a picture of three bytes per pixel, row by row. `of` returns the bytes of the pixel at a column and a row.
pub fn painted((width, height): (u32, u32), of: impl Fn(u32, u32) -> [u8; 3]) -> Vec<u8> {
    let mut pixels = vec![0; width as usize * height as usize * 3];
    let row_bytes = (width as usize * 3).max(1);
    for (y, row) in (0..).zip(pixels.chunks_exact_mut(row_bytes)) {
        for (x, pixel) in (0..).zip(row.chunks_exact_mut(3)) {
            pixel.copy_from_slice(&of(x, y));
        }
    }
    pixels
}

/// Colour gradients with a bright square, which moves with the picture's number.
pub fn square((width, height): (u32, u32), number: u64) -> Vec<u8> {
    let left = 40 + 16 * number as u32;
    painted((width, height), |x, y| {
        let is_square = (left..left + 96).contains(&x) && (160..256).contains(&y);
        if is_square { [230; 3] } else { [x * 255 / width, y * 255 / height, 128].map(|value| value as u8) }
    })
}

/// Colour gradients with a texture, which moves with the picture's number.
pub fn texture((width, height): (u32, u32), number: u64) -> Vec<u8> {
    let left = 8 * number as u32;
    painted((width, height), |x, y| {
        let texture = (x + left).wrapping_mul(2_654_435_761).wrapping_add(y.wrapping_mul(40_503)) >> 27;
        [x * 200 / width, y * 200 / height, 128].map(|value| (value + texture) as u8)
    })
}

/// The mean absolute difference of two pictures' bytes. `None` if they differ in length or are empty.
pub fn difference(one: &[u8], other: &[u8]) -> Option<f64> {
    let sum: u64 = one.iter().zip(other).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    (one.len() == other.len() && !one.is_empty()).then(|| sum as f64 / one.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_painted_row_by_row() {
        assert_eq!(painted((2, 2), |x, y| [x as u8, y as u8, 9]), [0, 0, 9, 1, 0, 9, 0, 1, 9, 1, 1, 9]);
        assert_ne!(square((320, 300), 0), square((320, 300), 1));
        assert_ne!(texture((32, 30), 0), texture((32, 30), 1));
    }

    #[test]
    fn pictures_of_other_sizes_are_not_compared() {
        assert_eq!(difference(&[1, 2], &[1]), None);
        assert_eq!(difference(&[], &[]), None);
        assert_eq!(difference(&[1, 5], &[3, 5]), Some(1.0));
    }
}
