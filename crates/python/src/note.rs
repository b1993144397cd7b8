//! Passes notes about frames to Python.

use std::borrow::Cow;

use mez_core::units::Timestamp;
use mez_node::notes::{Note, NoteContent, NotedContract, NotedReply, NotedSource};
use mez_node::reply::ReplyContent;

use crate::reply::{self, DetectionsParts};
use crate::subscription::SourceParts;

/// A reply as a tuple: frame, capture time, opaque bytes, detections.
type ReplyParts = ((u64, u64), Option<u64>, Cow<'static, [u8]>, Option<DetectionsParts>);

/// A note as a tuple: place, time, notes missing before it, application, reply, contract (state, reason), source.
pub(crate) type NoteParts =
    ((u64, u64), u64, u64, String, Option<ReplyParts>, Option<(&'static str, String)>, Option<SourceParts>);

/// Converts a note for Python.
pub(crate) fn parts(note: Note) -> NoteParts {
    let Note { id, at, missing, content } = note;
    let place = (id.epoch.0, id.sequence.0);
    let (application, reply, contract, source) = match content {
        NoteContent::Reply(NotedReply { frame, captured, application, content }) => {
            let (payload, found) = match content {
                ReplyContent::Opaque(bytes) => (bytes.to_vec(), None),
                ReplyContent::Detections(found) => (Vec::new(), Some(reply::parts(found))),
            };
            let frame = (frame.epoch.0, frame.sequence.0);
            let captured = captured.map(Timestamp::as_nanos);
            (application, Some((frame, captured, Cow::Owned(payload), found)), None, None)
        }
        NoteContent::Contract(NotedContract { application, state, reason }) => {
            (application, None, Some((state.name(), reason)), None)
        }
        NoteContent::Source(NotedSource { state, reason, since }) => {
            let lasts = since.map(|since| at.saturating_since(since).as_secs_f64());
            (String::new(), None, None, Some((state.name(), reason, lasts, None)))
        }
    };
    (place, at.as_nanos(), missing, application, reply, contract, source)
}
