//! Notes about the frames of an export, in the order of the frames, and as JSON: results of applications, changes of contracts, states of the source.

use std::collections::{BTreeMap, VecDeque};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mez_core::frame::{FrameId, FrameMeta};
use mez_core::source::SourceState;
use mez_core::store::StorageError;
use mez_core::units::Timestamp;
use serde_json::{Value, json};

use super::ExportOptions;
use crate::notes::{Note, NoteContent, NoteReader, NotedContract, NotedReply, NotedSource};
use crate::reply::{Detection, Detections, ReplyContent};

/// A note, and the time when the edge made it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Said<T> {
    pub(super) noted: Timestamp,
    pub(super) what: T,
}

/// All notes of a span that are not in the file yet. Held in memory; their size is limited by that of the log of notes on disk.
#[derive(Default)]
pub(super) struct SaidOfSpan {
    replies: BTreeMap<FrameId, Vec<Said<NotedReply>>>,
    contracts: VecDeque<Said<NotedContract>>,
    /// The first may be older than the span: the source's state at the beginning of the span, if it is not live.
    sources: VecDeque<Said<NotedSource>>,
    /// The number of missing notes in the span.
    pub(super) missing: u64,
}

/// The notes that come before a frame, or after the last one.
#[derive(Default)]
pub(super) struct Due {
    /// Replies to frames that are not in the file.
    pub(super) replies: Vec<Said<NotedReply>>,
    pub(super) contracts: Vec<Said<NotedContract>>,
    pub(super) sources: Vec<Said<NotedSource>>,
}

impl SaidOfSpan {
    /// Reads the replies to frames that were captured in the span, whenever they
    /// were made, and the changes of contracts and of the source within the span.
    pub(super) fn read(
        options: &ExportOptions,
        (begin, end): (Timestamp, Timestamp),
    ) -> Result<Self, StorageError> {
        let ExportOptions { store, camera, keys, remembered_notes, .. } = options;
        let every = (Timestamp::MIN, Timestamp::MAX, None);
        let mut reader = NoteReader::open(store, camera, keys, remembered_notes.clone(), every);
        let mut said = Self::default();
        let within = |time: Timestamp| begin <= time && time <= end;
        let mut before = None;
        while let Some(Note { at, missing, content, .. }) = reader.read()? {
            said.missing += if within(at) { missing } else { 0 };
            match content {
                NoteContent::Contract(what) if within(at) => {
                    said.contracts.push_back(Said { noted: at, what });
                }
                // A reply without a capture time may belong to a frame of the span.
                NoteContent::Reply(what) if what.captured.is_none_or(within) => {
                    said.replies.entry(what.frame).or_default().push(Said { noted: at, what });
                }
                NoteContent::Source(what) if within(at) => said.sources.push_back(Said { noted: at, what }),
                NoteContent::Source(what) if at < begin => before = Some(Said { noted: at, what }),
                _ => {}
            }
        }
        if let Some(before) = before.filter(|before| before.what.state != SourceState::Live) {
            said.sources.push_front(before);
        }
        Ok(said)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty() && self.contracts.is_empty() && self.sources.is_empty()
    }

    /// The notes that come before a frame.
    pub(super) fn due_before(&mut self, frame: &FrameMeta) -> Due {
        let later = self.replies.split_off(&frame.id);
        let earlier = std::mem::replace(&mut self.replies, later);
        let contracts = noted_by(&mut self.contracts, frame.captured);
        Due { replies: known(earlier), contracts, sources: noted_by(&mut self.sources, frame.captured) }
    }

    /// The replies to a frame, oldest first.
    pub(super) fn of_frame(&mut self, frame: &FrameMeta) -> Vec<Said<NotedReply>> {
        let mut replies = self.replies.remove(&frame.id).unwrap_or_default();
        for reply in &mut replies {
            reply.what.captured = Some(frame.captured);
        }
        replies
    }

    /// The notes that are left after the last frame.
    pub(super) fn rest(self) -> Due {
        let (contracts, sources) = (self.contracts.into(), self.sources.into());
        Due { replies: known(self.replies), contracts, sources }
    }
}

/// Removes and returns the notes made until `time`.
fn noted_by<T>(said: &mut VecDeque<Said<T>>, time: Timestamp) -> Vec<Said<T>> {
    let count = said.iter().take_while(|said| said.noted <= time).count();
    said.drain(..count).collect()
}

/// Replies with a known capture time. The others belong to another span.
fn known(replies: BTreeMap<FrameId, Vec<Said<NotedReply>>>) -> Vec<Said<NotedReply>> {
    replies.into_values().flatten().filter(|reply| reply.what.captured.is_some()).collect()
}

impl Said<NotedReply> {
    pub(super) fn to_json(&self) -> Value {
        let NotedReply { frame, captured, application, content } = &self.what;
        let mut value = json!({
            "kind": "reply",
            "epoch": frame.epoch.0,
            "sequence": frame.sequence.0,
            "captured": captured.map(|time| time.to_string()),
            "captured_ns": captured.map(Timestamp::as_nanos),
            "noted": self.noted.to_string(),
            "noted_ns": self.noted.as_nanos(),
            "application": application,
        });
        match content {
            ReplyContent::Detections(found) => {
                value["width"] = found.size().0.into();
                value["height"] = found.size().1.into();
                value["detections"] = found.items().iter().map(detection).collect();
            }
            ReplyContent::Opaque(bytes) => {
                value["payload_base64"] = STANDARD.encode(bytes).into();
                if let Ok(result) = serde_json::from_slice::<Value>(bytes) {
                    value["result"] = result;
                }
            }
        }
        value
    }

    /// The detections in a frame, in the pixels of an image of `size`. `None` if the result is opaque.
    pub(super) fn detections_in(&self, size: (u32, u32)) -> Option<Detections> {
        match &self.what.content {
            ReplyContent::Detections(found) => Some(found.clone().scaled_to(size)),
            ReplyContent::Opaque(_) => None,
        }
    }
}

impl Said<NotedContract> {
    pub(super) fn to_json(&self) -> Value {
        let NotedContract { application, state, reason } = &self.what;
        json!({
            "kind": "contract",
            "noted": self.noted.to_string(),
            "noted_ns": self.noted.as_nanos(),
            "application": application,
            "state": state.name(),
            "reason": reason,
        })
    }
}

impl Said<NotedSource> {
    pub(super) fn to_json(&self) -> Value {
        let NotedSource { state, reason, since } = &self.what;
        json!({
            "kind": "source",
            "noted": self.noted.to_string(),
            "noted_ns": self.noted.as_nanos(),
            "state": state.name(),
            "reason": reason,
            "since": since.map(|time| time.to_string()),
            "since_ns": since.map(Timestamp::as_nanos),
        })
    }
}

/// A detection with its mask, in the form of the Python package.
fn detection(item: &Detection) -> Value {
    let Detection { xyxy, score, class_id, class_name, tracker_id, mask, key_points } = item;
    let mut value = json!({ "xyxy": xyxy.map(decimal) });
    let mut put = |name: &str, known: Option<Value>| {
        if let Some(known) = known {
            value[name] = known;
        }
    };
    put("score", score.map(|score| decimal(score).into()));
    put("class_id", class_id.map(Value::from));
    put("class_name", (!class_name.is_empty()).then(|| class_name.as_str().into()));
    put("tracker_id", tracker_id.map(Value::from));
    let raster =
        |mask: &crate::reply::Mask| json!({ "width": mask.width, "height": mask.height, "runs": mask.runs });
    put("mask", mask.as_ref().map(raster));
    let point = |point: &crate::reply::KeyPoint| {
        json!([decimal(point.x), decimal(point.y), point.score.map(decimal)])
    };
    put("key_points", (!key_points.is_empty()).then(|| key_points.iter().map(point).collect()));
    value
}

/// The shortest decimal number that stands for an `f32`: 0.93, not 0.9300000071525574.
pub(super) fn decimal(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| number.into())
}

/// The label of a detection, such as `person 0.93 #12`.
pub(super) fn label(item: &Detection) -> String {
    let class = match (item.class_name.as_str(), item.class_id) {
        ("", Some(id)) => Some(format!("class {id}")),
        ("", None) => None,
        (name, _) => Some(name.to_owned()),
    };
    let score = item.score.map(|score| format!("{score:.2}"));
    let tracker = item.tracker_id.map(|id| format!("#{id}"));
    [class, score, tracker].into_iter().flatten().collect::<Vec<_>>().join(" ")
}
