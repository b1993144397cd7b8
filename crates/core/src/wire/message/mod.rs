//! Defines the messages of the control stream.

use bytes::Bytes;

use super::answers::{AnswerAccount, AnswerRequest};
use super::codec::{Reader, TEXT_BYTES_MAX, WireError, Write};
use super::demand::Demand;
use super::feasibility::FeasibilityReport;
use super::history::{Abilities, HistoryEnd, HistoryRequest};
use super::inquiry::{Inquiry, Standing};
use super::negotiation::NegotiationResult;
use super::profile::{ProfilePart, ProfileRequest};
use super::report::Report;
use super::session::{Hello, RefuseCode, Welcome};
use super::share::{Share, ShareRequest};
use super::source::SourceReport;
use super::status::{DiskStatus, Status};
use super::survey::{SurveyAnswer, SurveyRequest};
use crate::frame::FrameId;
use crate::units::Instant;

/// The most bytes of a message, without its length field.
pub const MESSAGE_BYTES_MAX: usize = 80 << 10;
/// The most bytes of a reply to a frame.
pub const REPLY_BYTES_MAX: usize = 64 << 10;
/// The most bytes of a signed deny list.
pub const REVOCATION_LIST_BYTES_MAX: usize = 64 << 10;

/// The most bytes of a request for a certificate, and of the answer.
pub const RENEWAL_BYTES_MAX: usize = 16 << 10;

/// The bit that marks kinds of messages that a receiver may ignore if it does not know them.
const OPTIONAL: u8 = 0x80;

/// A message of the control stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Camera to edge, first: which camera connects.
    Hello(Hello),
    /// Edge to camera: the camera is accepted.
    Welcome(Welcome),
    /// Edge to camera: the camera is refused, or no longer accepted.
    Refuse {
        /// The kind of refusal.
        code: RefuseCode,
        /// A sentence for people.
        text: String,
    },
    /// Camera host to edge, instead of a [`Message::Hello`]: asks whether the edge would accept a camera.
    Inquiry(Inquiry),
    /// Edge to camera host, in answer to [`Message::Inquiry`].
    Standing(Standing),
    /// Either way: asks for a [`Message::Pong`]. Carries the sender's clock, `t1`.
    Ping {
        /// When the ping was sent.
        t1: Instant,
    },
    /// The answer to a [`Message::Ping`], sent at once: `t1` unchanged, `t2` and `t3` by the clock of the answering side.
    Pong {
        /// The `t1` of the [`Message::Ping`].
        t1: Instant,
        /// When the ping arrived.
        t2: Instant,
        /// When the pong was sent.
        t3: Instant,
    },
    /// Edge to camera: what the applications want.
    Demand(Demand),
    /// Edge to camera, after [`Message::Welcome`] or a [`Message::Demand`] without contracts: nobody wants frames, so both sides may ping less
    /// often. The next demand with contracts ends this.
    Rest,
    /// Edge to camera: how a frame is arriving. Camera to edge: how an answer is arriving.
    Report(Report),
    /// Camera to edge, about once a second: what the camera is doing.
    Status(Status),
    /// Camera to edge: the state of the camera's log on disk, if there is one.
    DiskStatus(DiskStatus),
    /// Camera to edge: the state of the camera's source, when the state changes. Until the first report on a connection, the source counts as live.
    SourceReport(SourceReport),
    /// Camera to edge, with every [`Message::Status`] and when it matters: what the camera can do for the leading contracts.
    FeasibilityReport(FeasibilityReport),
    /// Camera to edge, with every [`Message::Status`] and when it has changed:
    /// which contracts the camera's frames keep. Only if the contracts differ.
    NegotiationResult(NegotiationResult),
    /// Edge to camera, every 100 ms while the camera shares a declared channel with others: its share of the
    /// channel.
    Share(Share),
    /// Camera to edge, every second and when it has changed, once the camera has got a share: the rungs that the camera could send.
    ShareRequest(ShareRequest),
    /// Camera to edge: asks for a profile that a contract names and the camera lacks.
    ProfileRequest(ProfileRequest),
    /// Edge to camera: a part of a profile.
    ProfilePart(ProfilePart),
    /// Edge to camera: asks for frames of the past that a reader lacks.
    HistoryRequest(HistoryRequest),
    /// Camera to edge: no frame answers a [`Message::HistoryRequest`].
    HistoryEnd(HistoryEnd),
    /// Edge to camera: asks what the camera holds of a span of its past.
    SurveyRequest(SurveyRequest),
    /// Camera to edge, in answer to [`Message::SurveyRequest`].
    SurveyAnswer(SurveyAnswer),
    /// Camera to edge, once, before its first [`Message::Status`]: its abilities. A camera that does not send this message has none.
    Abilities(Abilities),
    /// Edge to camera: a keyframe request. A frame cannot be decoded, or a reader wants to join its chain, so the next frame must stand alone.
    Refresh {
        /// The frame.
        frame: FrameId,
    },
    /// Edge to camera: an application's result for a frame.
    Reply {
        /// The frame.
        frame: FrameId,
        /// The application, for people.
        application: String,
        /// The result.
        result: ReplyResult,
    },
    /// Camera to edge, after [`Message::Welcome`] and when it has changed: whether the publisher
    /// takes answers. Until the first one on a connection, the publisher takes no answers.
    AnswerRequest(AnswerRequest),
    /// Edge to camera, in answer to [`Message::AnswerRequest`] and when it has changed: the account of answers.
    AnswerAccount(AnswerAccount),
    /// Either way, after [`Message::Welcome`]: the version of the site's deny list that the sender holds; 0 if it holds none. A side that holds a
    /// list sends this message first. A receiver answers a version above its own with its own version, and a version below its own with its list.
    RevocationVersion {
        /// The version.
        version: u64,
    },
    /// Either way, in answer to a [`Message::RevocationVersion`]: the site's deny list, signed by the site's authority.
    RevocationList {
        /// The list with its signature, at most [`REVOCATION_LIST_BYTES_MAX`] bytes.
        signed: Bytes,
    },
    /// Camera to edge: the camera host asks for its next certificate. A message `RenewCertificateRequest`
    /// of `mez.proto`, which this crate does not parse, in at most [`RENEWAL_BYTES_MAX`] bytes.
    RenewalRequest(Bytes),
    /// Edge to camera: the answer, a message `RenewCertificateResponse` of `mez.proto`, in at most [`RENEWAL_BYTES_MAX`] bytes.
    RenewalAnswer(Bytes),
}

/// An application's result for a frame, in at most [`REPLY_BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyResult {
    /// Bytes that only the application and the publisher understand.
    Opaque(Bytes),
    /// A message `Detections` of `mez.proto`, in the pixels of the frame as it was published.
    Detections(Bytes),
}

impl ReplyResult {
    /// The bytes of the result.
    pub const fn bytes(&self) -> &Bytes {
        match self {
            Self::Opaque(bytes) | Self::Detections(bytes) => bytes,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.u8(match self {
            Self::Opaque(_) => 0,
            Self::Detections(_) => 1,
        });
        let bytes = &self.bytes()[..self.bytes().len().min(REPLY_BYTES_MAX)];
        out.u32(bytes.len() as u32);
        out.extend_from_slice(bytes);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let kind = r.u8("kind of result")?;
        let length = r.u32("result length")? as usize;
        if length > REPLY_BYTES_MAX {
            let (length, max) = (length as u64, REPLY_BYTES_MAX as u64);
            return Err(WireError::TooLong { field: "result", length, max });
        }
        let bytes = Bytes::copy_from_slice(r.bytes("result", length)?);
        match kind {
            0 => Ok(Self::Opaque(bytes)),
            1 => Ok(Self::Detections(bytes)),
            value => Err(WireError::Value { field: "kind of result", value: value.into() }),
        }
    }
}

impl Message {
    /// Appends the message to `out`, with its length first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u32(0);
        out.u8(self.kind());
        self.encode_body(out);
        let length = (out.len() - start - 4) as u32;
        debug_assert!(
            length as usize <= MESSAGE_BYTES_MAX,
            "a message of {length} bytes, which nobody takes"
        );
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Decodes a message without its length field. `None`: the kind is unknown and may be ignored.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let mut r = Reader::new(bytes);
        let kind = r.u8("kind")?;
        let Some(message) = Self::decode_body(kind, &mut r)? else { return Ok(None) };
        r.finish()?;
        debug_assert_eq!(message.kind(), kind, "a message is read as another kind than it is written as");
        Ok(Some(message))
    }

    /// The number of the message's kind.
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Welcome(_) => 2,
            Self::Refuse { .. } => 3,
            Self::Ping { .. } => 4,
            Self::Pong { .. } => 5,
            Self::Demand(_) => 6,
            Self::Report(Report::Progress { .. }) => 7,
            Self::Report(Report::Complete { .. }) => 8,
            Self::Status(_) => 9 | OPTIONAL,
            Self::Reply { .. } => 10 | OPTIONAL,
            Self::Report(Report::Refused { .. }) => 11,
            Self::DiskStatus(_) => 12 | OPTIONAL,
            Self::HistoryRequest(_) => 13 | OPTIONAL,
            Self::HistoryEnd(_) => 14 | OPTIONAL,
            Self::FeasibilityReport(_) => 15 | OPTIONAL,
            Self::ProfileRequest(_) => 16 | OPTIONAL,
            Self::ProfilePart(_) => 17 | OPTIONAL,
            Self::NegotiationResult(_) => 18 | OPTIONAL,
            Self::Share(_) => 19 | OPTIONAL,
            Self::SourceReport(_) => 20 | OPTIONAL,
            Self::Rest => 21 | OPTIONAL,
            Self::Refresh { .. } => 24 | OPTIONAL,
            Self::Abilities(_) => 25 | OPTIONAL,
            Self::RenewalRequest(_) => 26 | OPTIONAL,
            Self::RenewalAnswer(_) => 27 | OPTIONAL,
            Self::SurveyRequest(_) => 28 | OPTIONAL,
            Self::SurveyAnswer(_) => 29 | OPTIONAL,
            Self::ShareRequest(_) => 32 | OPTIONAL,
            Self::Inquiry(_) => 56 | OPTIONAL,
            Self::Standing(_) => 57 | OPTIONAL,
            Self::RevocationVersion { .. } => 40 | OPTIONAL,
            Self::RevocationList { .. } => 41 | OPTIONAL,
            Self::AnswerRequest(_) => 64 | OPTIONAL,
            Self::AnswerAccount(_) => 65 | OPTIONAL,
        }
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.encode(out),
            Self::Welcome(welcome) => welcome.encode(out),
            Self::Inquiry(inquiry) => inquiry.encode(out),
            Self::Standing(standing) => standing.encode(out),
            Self::Refuse { code, text } => {
                out.u16(*code as u16);
                out.text(text, TEXT_BYTES_MAX);
            }
            Self::Ping { t1 } => out.instant(*t1),
            Self::Pong { t1, t2, t3 } => [t1, t2, t3].into_iter().for_each(|stamp| out.instant(*stamp)),
            Self::Demand(demand) => demand.encode(out),
            Self::Rest => {}
            Self::Report(report) => report.encode(out),
            Self::Status(status) => status.encode(out),
            Self::DiskStatus(status) => status.encode(out),
            Self::HistoryRequest(request) => request.encode(out),
            Self::HistoryEnd(end) => end.encode(out),
            Self::SurveyRequest(request) => request.encode(out),
            Self::SurveyAnswer(answer) => answer.encode(out),
            Self::Refresh { frame } => out.frame_id(*frame),
            Self::Abilities(abilities) => abilities.encode(out),
            Self::RenewalRequest(bytes) | Self::RenewalAnswer(bytes) => encode_renewal(bytes, out),
            Self::FeasibilityReport(feasibility) => feasibility.encode(out),
            Self::NegotiationResult(negotiated) => negotiated.encode(out),
            Self::Share(share) => share.encode(out),
            Self::SourceReport(source) => source.encode(out),
            Self::ShareRequest(claim) => claim.encode(out),
            Self::ProfileRequest(request) => request.encode(out),
            Self::ProfilePart(part) => part.encode(out),
            Self::AnswerRequest(request) => request.encode(out),
            Self::AnswerAccount(account) => account.encode(out),
            Self::RevocationVersion { version } => out.u64(*version),
            Self::RevocationList { signed } => {
                let signed = &signed[..signed.len().min(REVOCATION_LIST_BYTES_MAX)];
                out.u32(signed.len() as u32);
                out.extend_from_slice(signed);
            }
            Self::Reply { frame, application, result } => {
                out.frame_id(*frame);
                out.text(application, TEXT_BYTES_MAX);
                result.encode(out);
            }
        }
    }

    fn decode_body(kind: u8, r: &mut Reader<'_>) -> Result<Option<Self>, WireError> {
        Ok(Some(match kind {
            1 => Self::Hello(Hello::decode(r)?),
            2 => Self::Welcome(Welcome::decode(r)?),
            3 => Self::Refuse { code: RefuseCode::decode(r)?, text: r.text("text", TEXT_BYTES_MAX)?.into() },
            4 => Self::Ping { t1: r.instant("t1")? },
            5 => Self::Pong { t1: r.instant("t1")?, t2: r.instant("t2")?, t3: r.instant("t3")? },
            6 => Self::Demand(Demand::decode(r)?),
            7 => Self::Report(Report::decode_progress(r)?),
            8 => Self::Report(Report::decode_complete(r)?),
            11 => Self::Report(Report::Refused { frame: r.frame_id()? }),
            0x89 => Self::Status(Status::decode(r)?),
            0x8a => Self::Reply {
                frame: r.frame_id()?,
                application: r.text("application", TEXT_BYTES_MAX)?.into(),
                result: ReplyResult::decode(r)?,
            },
            0x8c => Self::DiskStatus(DiskStatus::decode(r)?),
            0x8d => Self::HistoryRequest(HistoryRequest::decode(r)?),
            0x8e => Self::HistoryEnd(HistoryEnd::decode(r)?),
            0x8f => Self::FeasibilityReport(FeasibilityReport::decode(r)?),
            0x90 => Self::ProfileRequest(ProfileRequest::decode(r)?),
            0x91 => Self::ProfilePart(ProfilePart::decode(r)?),
            0x92 => Self::NegotiationResult(NegotiationResult::decode(r)?),
            0x93 => Self::Share(Share::decode(r)?),
            0x94 => Self::SourceReport(SourceReport::decode(r)?),
            0x95 => Self::Rest,
            0x98 => Self::Refresh { frame: r.frame_id()? },
            0x99 => Self::Abilities(Abilities::decode(r)?),
            0x9a => Self::RenewalRequest(decode_renewal(r)?),
            0x9b => Self::RenewalAnswer(decode_renewal(r)?),
            0x9c => Self::SurveyRequest(SurveyRequest::decode(r)?),
            0x9d => Self::SurveyAnswer(SurveyAnswer::decode(r)?),
            0xa0 => Self::ShareRequest(ShareRequest::decode(r)?),
            0xb8 => Self::Inquiry(Inquiry::decode(r)?),
            0xb9 => Self::Standing(Standing::decode(r)?),
            0xc0 => Self::AnswerRequest(AnswerRequest::decode(r)?),
            0xc1 => Self::AnswerAccount(AnswerAccount::decode(r)?),
            0xa8 => Self::RevocationVersion { version: r.u64("version")? },
            0xa9 => Self::RevocationList { signed: decode_list(r)? },
            kind if kind & OPTIONAL != 0 => return Ok(None),
            kind => return Err(WireError::Value { field: "kind", value: kind.into() }),
        }))
    }
}

fn decode_list(r: &mut Reader<'_>) -> Result<Bytes, WireError> {
    let length = r.u32("list length")? as usize;
    if length > REVOCATION_LIST_BYTES_MAX {
        let (length, max) = (length as u64, REVOCATION_LIST_BYTES_MAX as u64);
        return Err(WireError::TooLong { field: "list", length, max });
    }
    r.bytes("list", length).map(Bytes::copy_from_slice)
}

/// Writes a request for a certificate, or the answer. A longer one is cut, which the reader detects.
fn encode_renewal(bytes: &Bytes, out: &mut Vec<u8>) {
    let bytes = &bytes[..bytes.len().min(RENEWAL_BYTES_MAX)];
    out.u32(bytes.len() as u32);
    out.extend_from_slice(bytes);
}

fn decode_renewal(r: &mut Reader<'_>) -> Result<Bytes, WireError> {
    let length = r.u32("renewal length")? as usize;
    if length > RENEWAL_BYTES_MAX {
        let (length, max) = (length as u64, RENEWAL_BYTES_MAX as u64);
        return Err(WireError::TooLong { field: "renewal", length, max });
    }
    Ok(Bytes::copy_from_slice(r.bytes("renewal", length)?))
}

/// Cuts a stream of bytes into messages.
#[derive(Debug, Default)]
pub struct MessageBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl MessageBuffer {
    /// Takes in bytes from the stream. Before the next push, call [`MessageBuffer::next`]
    /// until it returns `None`. The buffer then holds at most one message.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message.
    #[allow(clippy::should_implement_trait, reason = "it fails")]
    pub fn next(&mut self) -> Result<Option<Message>, WireError> {
        loop {
            let rest = &self.bytes[self.start..];
            let Some(prefix) = rest.first_chunk::<4>() else { return Ok(None) };
            let length = u32::from_le_bytes(*prefix) as usize;
            if length > MESSAGE_BYTES_MAX {
                return Err(WireError::TooLong {
                    field: "message",
                    length: length as u64,
                    max: MESSAGE_BYTES_MAX as u64,
                });
            }
            let Some(body) = rest.get(4..4 + length) else { return Ok(None) };
            self.start += 4 + length;
            if let Some(message) = Message::decode(body)? {
                return Ok(Some(message));
            }
        }
    }
}

#[cfg(test)]
mod tests;
