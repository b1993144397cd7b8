//! Results that applications send back to cameras: opaque bytes, or typed detections.
//!
//! An application gives detections in the pixels of the image that it searched. The edge converts them, and publishers
//! get them in the pixels of the frame as it was published.

mod detections;
mod message;

use bytes::Bytes;

pub use self::detections::{
    CLASS_NAME_BYTES_MAX, DETECTIONS_MAX, Detection, Detections, DetectionsError, KeyPoint, MASK_PIXELS_MAX,
    Mask,
};

/// An application's result for a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyContent {
    /// Bytes that mean something to the application and the publisher only.
    Opaque(Bytes),
    /// What was found in the frame.
    Detections(Detections),
}
