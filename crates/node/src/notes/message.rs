//! Notes as messages of the application API, and as records on disk.
//!
//! The payload of a record is a [`pb::Note`] without ID, time and missing count, which the
//! record itself contains. Of the record's frame metadata, only ID and time are meaningful.

use bytes::Bytes;
use mez_core::contract::ContractState;
use mez_core::frame::{
    ChainLink, ClockSource, Encoding, Epoch, Frame, FrameId, FrameMeta, Rung, Sequence, SkipCounts,
};
use mez_core::source::SourceState;
use mez_core::units::Timestamp;
use prost::Message;

use super::{Note, NoteContent, NoteId, NotedContract, NotedReply, NotedSource};
use crate::api::pb;
use crate::reply::ReplyContent;

/// Why bytes are not a valid note.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this version cannot read the note: {0}")]
pub struct NoNote(String);

impl NoteContent {
    /// The record of this note.
    pub(super) fn to_record(&self, id: NoteId, at: Timestamp) -> Frame {
        let payload = Bytes::from(self.to_message().encode_to_vec());
        let size = (u32::try_from(payload.len()).unwrap_or(u32::MAX), 1);
        let meta = FrameMeta {
            id,
            captured: at,
            clock_source: ClockSource::Broker,
            width: size.0,
            height: size.1,
            published: size,
            encoding: Encoding::Gray8,
            rung: Rung::original(),
            chain: ChainLink::still(id.sequence),
        };
        Frame { meta, payload }
    }

    /// Decodes the payload of a record.
    pub fn decode(payload: Bytes) -> Result<Self, NoNote> {
        let message = pb::Note::decode(payload).map_err(|error| NoNote(error.to_string()))?;
        Self::from_message(message)
    }

    fn to_message(&self) -> pb::Note {
        let (note, captured) = match self {
            Self::Reply(NotedReply { frame, captured, application, content }) => {
                let reply = pb::Reply {
                    epoch: frame.epoch.0,
                    sequence: frame.sequence.0,
                    application: application.clone(),
                    content: Some(content.clone().into_reply()),
                };
                (pb::note::Note::Reply(reply), captured.map(Timestamp::as_nanos))
            }
            Self::Contract(NotedContract { application, state, reason }) => {
                let contract = pb::NotedContract {
                    application: application.clone(),
                    state: *state as i32,
                    reason: reason.clone(),
                };
                (pb::note::Note::Contract(contract), None)
            }
            Self::Source(NotedSource { state, reason, since }) => {
                let source = pb::NotedSource {
                    state: *state as i32,
                    reason: reason.clone(),
                    since_utc_ns: since.map(Timestamp::as_nanos),
                };
                (pb::note::Note::Source(source), None)
            }
        };
        pb::Note { note: Some(note), captured_utc_ns: captured, ..Default::default() }
    }

    fn from_message(message: pb::Note) -> Result<Self, NoNote> {
        match message.note {
            Some(pb::note::Note::Reply(reply)) => Ok(Self::Reply(NotedReply {
                frame: FrameId { epoch: Epoch(reply.epoch), sequence: Sequence(reply.sequence) },
                captured: message.captured_utc_ns.map(Timestamp::from_nanos),
                application: reply.application,
                content: ReplyContent::from_reply(reply.content)
                    .map_err(|error| NoNote(error.to_string()))?,
            })),
            Some(pb::note::Note::Contract(contract)) => {
                let code = u8::try_from(contract.state).ok();
                let state = code.and_then(ContractState::from_code);
                let unknown = || NoNote(format!("the contract's state {} is unknown", contract.state));
                let state = state.ok_or_else(unknown)?;
                let pb::NotedContract { application, reason, .. } = contract;
                Ok(Self::Contract(NotedContract { application, state, reason }))
            }
            Some(pb::note::Note::Source(pb::NotedSource { state, reason, since_utc_ns })) => {
                let known = u8::try_from(state).ok().and_then(SourceState::from_code);
                let state = known.ok_or_else(|| NoNote(format!("the source's state {state} is unknown")))?;
                let since = since_utc_ns.map(Timestamp::from_nanos);
                Ok(Self::Source(NotedSource { state, reason, since }))
            }
            None => Err(NoNote("it is empty".into())),
        }
    }
}

impl Note {
    /// Decodes a record of the log of notes. `missing` counts the notes that are missing before it.
    pub(super) fn of_record(record: Frame, missing: &SkipCounts) -> Result<Self, NoNote> {
        let Frame { meta, payload } = record;
        let content = NoteContent::decode(payload)?;
        Ok(Self { id: meta.id, at: meta.captured, missing: missing.total(), content })
    }

    /// Its size in a message to applications, without ID and time.
    pub(super) fn encoded_bytes(&self) -> usize {
        self.content.to_message().encoded_len()
    }

    /// The message for applications.
    pub(crate) fn into_message(self) -> pb::Note {
        let Self { id, at, missing, content } = self;
        let id = Some(pb::NoteId { series: id.epoch.0, number: id.sequence.0 });
        pb::Note { id, noted_utc_ns: at.as_nanos(), missing, ..content.to_message() }
    }

    /// Decodes a message for applications.
    pub(crate) fn from_message(message: pb::Note) -> Result<Self, NoNote> {
        let place = message.id.unwrap_or_default();
        let (at, missing) = (Timestamp::from_nanos(message.noted_utc_ns), message.missing);
        let content = NoteContent::from_message(message)?;
        Ok(Self { id: note_id(place), at, missing, content })
    }
}

/// The ID of a note.
pub(crate) fn note_id(place: pb::NoteId) -> NoteId {
    FrameId { epoch: Epoch(place.series), sequence: Sequence(place.number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::{Detection, Detections};

    fn contents() -> [NoteContent; 5] {
        let frame = FrameId { epoch: Epoch(3), sequence: Sequence(41) };
        let item =
            Detection { xyxy: [1.0, 2.0, 3.0, 4.0], class_name: "person".into(), ..Detection::default() };
        let found = Detections::new((640, 480), vec![item]).unwrap();
        let reply = |content, captured| {
            NoteContent::Reply(NotedReply { frame, captured, application: "counter".into(), content })
        };
        [
            reply(ReplyContent::Detections(found), Some(Timestamp::from_nanos(5))),
            reply(ReplyContent::Opaque(Bytes::from_static(b"\x00seen")), None),
            NoteContent::Contract(NotedContract {
                application: "counter".into(),
                state: ContractState::LatencyMiss,
                reason: "7 of 9 within 40 ms".into(),
            }),
            NoteContent::Source(NotedSource {
                state: SourceState::Lost,
                reason: "connection refused".into(),
                since: Some(Timestamp::from_nanos(7)),
            }),
            NoteContent::Source(NotedSource { state: SourceState::Live, reason: String::new(), since: None }),
        ]
    }

    #[test]
    fn a_note_is_read_as_it_was_written_from_disk_and_by_applications() {
        let id = FrameId { epoch: Epoch(2), sequence: Sequence(7) };
        let at = Timestamp::from_nanos(1_700_000_000_000_000_000);
        let mut missing = SkipCounts::default();
        missing.add(mez_core::frame::SkipReason::Evicted, 4);
        for content in contents() {
            let read = Note::of_record(content.to_record(id, at), &missing).unwrap();
            assert_eq!(read, Note { id, at, missing: 4, content });
            assert_eq!(Note::from_message(read.clone().into_message()).unwrap(), read);
        }
    }

    #[test]
    fn bytes_that_are_no_note_are_an_error() {
        let none = NoteContent::decode(Bytes::new()).unwrap_err().to_string();
        assert!(none.contains("is empty"), "{none}");
        assert!(NoteContent::decode(Bytes::from_static(&[0xff; 9])).is_err());
        let contract = pb::NotedContract { state: 99, ..Default::default() };
        let later = pb::Note { note: Some(pb::note::Note::Contract(contract)), ..Default::default() };
        let error = NoteContent::decode(later.encode_to_vec().into()).unwrap_err().to_string();
        assert!(error.contains("state 99 is unknown"), "{error}");
        let source = pb::NotedSource { state: 77, ..Default::default() };
        let later = pb::Note { note: Some(pb::note::Note::Source(source)), ..Default::default() };
        let error = NoteContent::decode(later.encode_to_vec().into()).unwrap_err().to_string();
        assert!(error.contains("state 77 is unknown"), "{error}");
    }
}
