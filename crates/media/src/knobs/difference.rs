//! Knob 5: leaves out frames that differ little from the last frame sent.
//!
//! The paper gives the scale (0: identical pixel by pixel, 1: completely dissimilar), but not the
//! formula. Mez uses the share of pixels that differ in any channel. The paper compares consecutive
//! frames. Mez compares with the last frame that was *sent*, so slow changes add up and are not missed.

use crate::image::Image;

/// The last frame that was sent.
#[derive(Debug, Default)]
pub struct LastSent {
    image: Image,
}

impl LastSent {
    /// The share of `image`'s pixels that differ from the last frame sent, 0 to 1. Infinite if there is no frame of this size and format.
    #[must_use]
    pub fn difference(&self, image: &Image) -> f64 {
        let same_shape = (self.image.width(), self.image.height(), self.image.format())
            == (image.width(), image.height(), image.format());
        if !same_shape || image.data().is_empty() {
            return f64::INFINITY;
        }
        let channels = image.format().bytes_per_pixel();
        let pairs = image.data().chunks_exact(channels).zip(self.image.data().chunks_exact(channels));
        let differing = pairs.filter(|(a, b)| a != b).count();
        differing as f64 / (image.data().len() / channels) as f64
    }

    /// Remembers `image` as the last frame sent.
    pub fn sent(&mut self, image: &Image) {
        self.image.clone_from(image);
    }

    /// Forgets the last frame, so the next frame is not left out.
    pub fn forget(&mut self) {
        self.image = Image::empty();
    }
}
