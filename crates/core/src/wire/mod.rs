//! Encodes the bytes that cross the link, version 1. `docs/wire.md` draws them one by one.
//!
//! One bidirectional control stream carries [`Message`]s, each after its length. Every frame travels on a
//! unidirectional stream of its own: a [`FrameHeader`], then the payload. All integers are little-endian.
//! Outside bytes become a value or a [`WireError`], and never allocate more than the stated limits.

mod answers;
pub(crate) mod codec;
mod demand;
mod feasibility;
mod header;
mod history;
mod inquiry;
mod message;
mod negotiation;
mod profile;
mod record;
mod report;
mod session;
mod share;
mod source;
mod status;
mod survey;

pub use self::answers::{AnswerAccount, AnswerRequest, AnswerSkip, AnswerSkips};
pub use self::codec::{TEXT_BYTES_MAX, WireError};
pub use self::demand::{CONTRACTS_MAX, Demand};
pub use self::feasibility::{FeasibilityReport, ProfileUse};
pub use self::header::{FRAME_HEADER_BYTES_MAX, FrameHeader, SKIP_RANGES_MAX};
pub use self::history::{Abilities, HistoryCode, HistoryEnd, HistoryRequest};
pub use self::inquiry::{Inquiry, Standing};
pub use self::message::{
    MESSAGE_BYTES_MAX, Message, MessageBuffer, RENEWAL_BYTES_MAX, REPLY_BYTES_MAX, REVOCATION_LIST_BYTES_MAX,
    ReplyResult,
};
pub use self::negotiation::NegotiationResult;
pub use self::profile::{PROFILE_BYTES_MAX, PROFILE_PART_BYTES_MAX, ProfilePart, ProfileRequest};
pub use self::record::{RECORD_BYTES_MAX, RECORD_HEAD_BYTES, RecordHead, RecordKind};
pub use self::report::Report;
pub use self::session::{Hello, RefuseCode, Welcome};
pub use self::share::{SHARE_LIFETIME_MAX, SHARE_REQUEST_RUNGS_MAX, Share, ShareRequest};
pub use self::source::SourceReport;
pub use self::status::{DiskStatus, Status};
pub use self::survey::{NoSurvey, SurveyAnswer, SurveyRequest};

/// The version of the wire format that this code speaks.
pub const VERSION: u16 = 1;
/// The application protocol that both sides name in the TLS handshake (ALPN, RFC 7301).
pub const ALPN: &[u8] = b"mez/1";
