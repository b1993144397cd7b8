//! Notes as messages of an MCAP file: topics, schemas, and boxes that viewers draw.

use mez_core::frame::FrameMeta;
use serde_json::{Value, json};

use super::said::{Said, decimal, label};
use crate::notes::NotedReply;
use crate::reply::Detection;

/// A topic below the topic of the camera.
pub(super) struct Topic {
    pub(super) name: &'static str,
    pub(super) schema_name: &'static str,
    pub(super) schema: fn() -> Value,
}

pub(super) const RECORDS: Topic = Topic { name: "records", schema_name: "mez.Record", schema: record_schema };
pub(super) const REPLIES: Topic = Topic { name: "replies", schema_name: "mez.Reply", schema: reply_schema };
pub(super) const CONTRACTS: Topic =
    Topic { name: "contracts", schema_name: "mez.ContractState", schema: contract_schema };
pub(super) const SOURCE: Topic =
    Topic { name: "source", schema_name: "mez.SourceState", schema: source_schema };
pub(super) const ANNOTATIONS: Topic =
    Topic { name: "annotations", schema_name: "foxglove.ImageAnnotations", schema: annotations_schema };

/// Codes of `foxglove.PointsAnnotation.type`.
const POINTS: u32 = 1;
const LINE_LOOP: u32 = 2;
/// The height of a label as a share of the image height. At least [`FONT_PIXELS_MIN`] pixels.
const FONT_SHARE: f64 = 1.0 / 40.0;
const FONT_PIXELS_MIN: f64 = 8.0;

/// The detections in a frame as `foxglove.ImageAnnotations`, in the pixels of the
/// image in the file, where viewers draw them. `None` if no reply has detections.
pub(super) fn annotations(meta: &FrameMeta, replies: &[Said<NotedReply>]) -> Option<Value> {
    let size = (meta.width, meta.height);
    let found: Vec<_> = replies.iter().filter_map(|reply| reply.detections_in(size)).collect();
    if found.is_empty() {
        return None;
    }
    let nanos = meta.captured.as_nanos();
    let timestamp = json!({ "sec": nanos / 1_000_000_000, "nsec": nanos % 1_000_000_000 });
    let font_size = (f64::from(size.1) * FONT_SHARE).max(FONT_PIXELS_MIN);
    let (mut points, mut texts) = (Vec::new(), Vec::new());
    for item in found.iter().flat_map(|found| found.items()) {
        points.push(line(&timestamp, item));
        if !item.key_points.is_empty() {
            let places = item.key_points.iter().map(|point| place(point.x, point.y)).collect();
            points.push(drawn(&timestamp, POINTS, places));
        }
        let label = label(item);
        if !label.is_empty() {
            texts.push(json!({
                "timestamp": timestamp,
                "position": place(item.xyxy[0], item.xyxy[1]),
                "text": label,
                "font_size": font_size,
                "text_color": colour(1.0),
                "background_color": { "r": 0, "g": 0, "b": 0, "a": 0.5 },
            }));
        }
    }
    Some(json!({ "circles": [], "points": points, "texts": texts }))
}

/// The box around an object.
fn line(timestamp: &Value, item: &Detection) -> Value {
    let [x1, y1, x2, y2] = item.xyxy;
    let corners = vec![place(x1, y1), place(x2, y1), place(x2, y2), place(x1, y2)];
    drawn(timestamp, LINE_LOOP, corners)
}

fn drawn(timestamp: &Value, kind: u32, points: Vec<Value>) -> Value {
    json!({
        "timestamp": timestamp,
        "type": kind,
        "points": points,
        "outline_color": colour(1.0),
        "outline_colors": [],
        "fill_color": colour(0.0),
        "thickness": 2,
    })
}

fn place(x: f32, y: f32) -> Value {
    json!({ "x": decimal(x), "y": decimal(y) })
}

fn colour(a: f64) -> Value {
    json!({ "r": 0, "g": 1, "b": 0, "a": a })
}

fn object(title: &str, description: &str, properties: Value) -> Value {
    json!({ "title": title, "description": description, "type": "object", "properties": properties })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn record_schema() -> Value {
    let (text, count) = (json!({ "type": "string" }), json!({ "type": "integer", "minimum": 0 }));
    object(
        RECORDS.schema_name,
        "What a data record is, and the frame that it was made of, if its publisher named one",
        json!({
            "epoch": count,
            "sequence": count,
            "content_type": text,
            "of_camera": text,
            "of_epoch": count,
            "of_sequence": count,
            "of_captured_ns": count,
        }),
    )
}

fn reply_schema() -> Value {
    let (text, number) = (json!({ "type": "string" }), json!({ "type": "number" }));
    let count = json!({ "type": "integer", "minimum": 0 });
    let detection = json!({
        "xyxy": list(number.clone()),
        "score": number,
        "class_id": { "type": "integer" },
        "class_name": text,
        "tracker_id": { "type": "integer" },
        "mask": { "type": "object" },
        "key_points": list(list(number.clone())),
    });
    let description =
        "An application's result for a frame; coordinates are in the pixels of the frame as it was published";
    object(
        REPLIES.schema_name,
        description,
        json!({
            "kind": text,
            "epoch": count,
            "sequence": count,
            "captured": text,
            "captured_ns": count,
            "noted": text,
            "noted_ns": count,
            "application": text,
            "width": count,
            "height": count,
            "detections": list(object("mez.Detection", "An object in the frame", detection)),
            "payload_base64": text,
            "result": {},
        }),
    )
}

fn contract_schema() -> Value {
    let text = json!({ "type": "string" });
    object(
        CONTRACTS.schema_name,
        "How the contract of an application stands on the camera from then on",
        json!({
            "kind": text,
            "noted": text,
            "noted_ns": { "type": "integer", "minimum": 0 },
            "application": text,
            "state": text,
            "reason": text,
        }),
    )
}

fn source_schema() -> Value {
    let (text, time) = (json!({ "type": "string" }), json!({ "type": "integer", "minimum": 0 }));
    object(
        SOURCE.schema_name,
        "Whether the source of the camera gives frames from then on: live, stalled, lost or ended",
        json!({
            "kind": text,
            "noted": text,
            "noted_ns": time,
            "state": text,
            "reason": text,
            "since": { "type": ["string", "null"] },
            "since_ns": { "type": ["integer", "null"] },
        }),
    )
}

/// The used parts of Foxglove's schema.
fn annotations_schema() -> Value {
    let number = json!({ "type": "number" });
    let time = object(
        "time",
        "A time, since 1970",
        json!({ "sec": { "type": "integer", "minimum": 0 }, "nsec": { "type": "integer", "minimum": 0 } }),
    );
    let point =
        object("foxglove.Point2", "A place in the image, in pixels", json!({ "x": number, "y": number }));
    let colour = object(
        "foxglove.Color",
        "A colour, each part from 0 to 1",
        json!({ "r": number, "g": number, "b": number, "a": number }),
    );
    let points = json!({
        "timestamp": time,
        "type": { "title": "foxglove.PointsAnnotationType", "oneOf": [
            { "title": "UNKNOWN", "const": 0 },
            { "title": "POINTS", "const": POINTS },
            { "title": "LINE_LOOP", "const": LINE_LOOP },
            { "title": "LINE_STRIP", "const": 3 },
            { "title": "LINE_LIST", "const": 4 },
        ] },
        "points": list(point.clone()),
        "outline_color": colour,
        "outline_colors": list(colour.clone()),
        "fill_color": colour,
        "thickness": number,
    });
    let texts = json!({
        "timestamp": time,
        "position": point,
        "text": { "type": "string" },
        "font_size": number,
        "text_color": colour,
        "background_color": colour,
    });
    object(
        ANNOTATIONS.schema_name,
        "What is drawn on an image",
        json!({
            "circles": list(json!({ "type": "object" })),
            "points": list(object("foxglove.PointsAnnotation", "Points or lines", points)),
            "texts": list(object("foxglove.TextAnnotation", "A label", texts)),
        }),
    )
}
