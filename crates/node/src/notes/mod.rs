//! Keeps what was said of a camera's frames beside them on disk: the results of applications, how contracts changed, and why there were no
//! frames.
//!
//! An edge with a store has a second log for each camera, `CAMERA/@notes` beside `CAMERA/@log`: the same format, other keys, a share of the
//! camera's bytes on disk. A note is a record of it ([`message`]).
//!
//! | file | what it does |
//! | --- | --- |
//! | [`message`] | notes as bytes, and back |
//! | [`keeper`] | takes notes in without ever waiting; the thread that numbers them |
//! | [`reader`] | reads them from disk, one by one |

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

/// The place of a note among those of its camera: the epoch counts the starts of the edge, as far as they noted anything of the camera, and
/// the sequence counts notes.
pub type NoteId = FrameId;

/// What was said of a camera's frames.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// Its place among the notes of the camera.
    pub id: NoteId,
    /// When the edge took it in, by its wall clock. It increases from note to note, unless the clock was set back before a start.
    pub at: Timestamp,
    /// Notes before this one that are missing: too many came at once, or the disk did not keep up, or is damaged.
    pub missing: u64,
    /// What was said.
    pub content: NoteContent,
}

/// What a note says.
#[derive(Clone, Debug, PartialEq)]
pub enum NoteContent {
    /// An application's result for a frame.
    Reply(NotedReply),
    /// How a contract stands since then.
    Contract(NotedContract),
    /// How the camera's source stands since then.
    Source(NotedSource),
}

/// An application's result for a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct NotedReply {
    /// The frame.
    pub frame: FrameId,
    /// When it was captured, by its camera. `None`: the edge had no longer that frame in memory.
    pub captured: Option<Timestamp>,
    /// The application's name, for people.
    pub application: String,
    /// The result. Detections are in the pixels of the frame as it was published.
    pub content: ReplyContent,
}

/// How the contract of a subscription stands on the camera since then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedContract {
    /// The subscription's application, for people.
    pub application: String,
    /// The state of the contract.
    pub state: ContractState,
    /// A sentence that says why.
    pub reason: String,
}

/// How the source of a camera's frames stands since then: why there are frames, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedSource {
    /// The state.
    pub state: SourceState,
    /// Why, in words. May be empty.
    pub reason: String,
    /// Since when, by the edge's wall clock: a stalled source since its last frame. `None`: nobody knows.
    pub since: Option<Timestamp>,
}
