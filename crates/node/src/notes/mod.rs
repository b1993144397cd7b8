//! Keeps notes about a camera's frames on disk: results of applications, changes of contracts, and changes of the camera's source.
//!
//! An edge with a store has a second log for each camera, `CAMERA/@notes` beside `CAMERA/@log`. It has the
//! same format, its own keys, and a share of the camera's limit on disk. Each record is a note ([`message`]).
//!
//! | file | what it does |
//! | --- | --- |
//! | [`message`] | encodes and decodes notes |
//! | [`keeper`] | queues notes without blocking; the thread that numbers them |
//! | [`reader`] | reads notes from disk, one by one |

pub mod keeper;
pub mod message;
pub mod reader;

use mez_core::contract::ContractState;
use mez_core::frame::FrameId;
use mez_core::source::SourceState;
use mez_core::units::Timestamp;

pub use self::keeper::Notes;
pub use self::reader::NoteReader;
use crate::reply::ReplyContent;

/// The position of a note among the notes of its camera. The epoch counts those starts of the edge
/// at which it noted something about the camera. The sequence numbers the notes within an epoch.
pub type NoteId = FrameId;

/// A note about a camera's frames.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// Its position among the notes of the camera.
    pub id: NoteId,
    /// When the edge made the note, by its wall clock. Increases from note to note, unless the clock was set back before a start.
    pub at: Timestamp,
    /// Number of missing notes before this one: too many came at once, the disk was too slow, or it is damaged.
    pub missing: u64,
    /// The content.
    pub content: NoteContent,
}

/// The content of a note.
#[derive(Clone, Debug, PartialEq)]
pub enum NoteContent {
    /// An application's result for a frame.
    Reply(NotedReply),
    /// The state of a contract from now on.
    Contract(NotedContract),
    /// The state of the camera's source from now on.
    Source(NotedSource),
}

/// An application's result for a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct NotedReply {
    /// The frame.
    pub frame: FrameId,
    /// The capture time, by the clock of the camera host. `None` if the frame was no longer in the edge's memory.
    pub captured: Option<Timestamp>,
    /// The application's name, for display.
    pub application: String,
    /// The result. Detections are in the pixels of the frame as it was published.
    pub content: ReplyContent,
}

/// The state of a subscription's contract on the camera, from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedContract {
    /// The name of the subscription's application, for display.
    pub application: String,
    /// The state of the contract.
    pub state: ContractState,
    /// A sentence that says why.
    pub reason: String,
}

/// The state of the camera's source from now on: why there are frames, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedSource {
    /// The state.
    pub state: SourceState,
    /// The reason, as text. May be empty.
    pub reason: String,
    /// Start of the state, by the edge's wall clock; for a stalled source, the time of its last frame. `None` if unknown.
    pub since: Option<Timestamp>,
}
