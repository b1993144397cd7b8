//! Converts results of applications between Rust and Python.

use mez_node::reply::{Detection, Detections, DetectionsError, KeyPoint, Mask};

/// A detection as a tuple: box, score, class number, class name, tracker's number, mask (width, height, runs), key points (x, y, score).
pub(crate) type DetectionParts = (
    [f32; 4],
    Option<f32>,
    Option<i32>,
    String,
    Option<i64>,
    Option<(u32, u32, Vec<u32>)>,
    Vec<(f32, f32, Option<f32>)>,
);

/// Detections as a tuple: width and height of the picture to whose pixels they refer, and the detections.
pub(crate) type DetectionsParts = ((u32, u32), Vec<DetectionParts>);

/// Converts detections from Python.
pub(crate) fn detections((size, parts): DetectionsParts) -> Result<Detections, DetectionsError> {
    let item = |(xyxy, score, class_id, class_name, tracker_id, mask, points): DetectionParts| Detection {
        xyxy,
        score,
        class_id,
        class_name,
        tracker_id,
        mask: mask.map(|(width, height, runs)| Mask { width, height, runs }),
        key_points: points.into_iter().map(|(x, y, score)| KeyPoint { x, y, score }).collect(),
    };
    Detections::new(size, parts.into_iter().map(item).collect())
}

/// Converts detections for Python.
pub(crate) fn parts(detections: Detections) -> DetectionsParts {
    let part = |item: Detection| {
        let Detection { xyxy, score, class_id, class_name, tracker_id, mask, key_points } = item;
        let mask = mask.map(|Mask { width, height, runs }| (width, height, runs));
        let points = key_points.into_iter().map(|KeyPoint { x, y, score }| (x, y, score)).collect();
        (xyxy, score, class_id, class_name, tracker_id, mask, points)
    };
    (detections.size(), detections.into_items().into_iter().map(part).collect())
}
