//! Results that applications send back to cameras: opaque bytes, or typed detections.
//!
//! An application gives detections in the pixels of the image that it processed. The edge converts them to published pixels for the publisher.

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
    /// Bytes whose meaning only the application and the publisher know.
    Opaque(Bytes),
    /// Objects in the frame.
    Detections(Detections),
}
