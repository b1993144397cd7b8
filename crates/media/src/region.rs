//! A region of a picture in which an application found an object.

/// A rectangle of a picture, in pixels of the encoded picture. It is a hint that this part should keep its quality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// The first column.
    pub x: u32,
    /// The first row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Region {
    /// The same part of a picture that was scaled from `from` to `to` pixels (width, height), rounded outwards.
    #[must_use]
    pub fn scaled(self, from: (u32, u32), to: (u32, u32)) -> Self {
        let axis = |start: u32, len: u32, from: u32, to: u32| {
            let (start, len) = (u64::from(start), u64::from(len));
            let (from, to) = (u64::from(from.max(1)), u64::from(to));
            let first = start * to / from;
            let end = ((start + len) * to).div_ceil(from);
            (first.min(to) as u32, (end.min(to) - first.min(to)) as u32)
        };
        let (x, width) = axis(self.x, self.width, from.0, to.0);
        let (y, height) = axis(self.y, self.height, from.1, to.1);
        Self { x, y, width, height }
    }

    /// Whether it has a pixel in common with the rectangle at `x`, `y`.
    pub(crate) fn touches(&self, x: usize, y: usize, width: usize, height: usize) -> bool {
        let overlap = |a: u32, a_len: u32, b: usize, b_len: usize| {
            (a as usize) < b + b_len && b < a as usize + a_len as usize
        };
        overlap(self.x, self.width, x, width) && overlap(self.y, self.height, y, height)
    }
}
