//! The messages of the control stream.

use std::time::Duration;

use bytes::Bytes;

use super::codec::{Reader, WireError, Write};
use super::history::{Abilities, HistoryEnd, HistoryRequest};
use super::outlook::Outlook;
use super::profile::{ProfilePart, ProfileRequest};
use super::settled::Settled;
use super::share::{Claim, Share};
use crate::contract::{Contract, OnInfeasible};
use crate::frame::{Epoch, FrameId, Sequence};
use crate::name::CameraName;
use crate::units::{ClockAnchor, Instant, Timestamp};

/// The most bytes in a message, without its length field.
pub const MESSAGE_BYTES_MAX: usize = 80 << 10;
/// The most bytes of a reply to a frame.
pub const REPLY_BYTES_MAX: usize = 64 << 10;
/// The most contracts in a demand; beyond that the edge sends those of highest priority.
pub const CONTRACTS_MAX: usize = 64;
/// The most bytes of a text for people.
pub const TEXT_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 1024;

/// Set in the kinds of messages that a receiver who does not know them may pass over.
const OPTIONAL: u8 = 0x80;

/// A message of the control stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Camera to edge, first: who is there.
    Hello(Hello),
    /// Edge to camera: the camera is taken in.
    Welcome(Welcome),
    /// Edge to camera: the camera is not taken in, or no longer.
    Refuse {
        /// What kind of refusal.
        code: RefuseCode,
        /// A sentence for people.
        text: String,
    },
    /// Either way: asks for a [`Message::Pong`]. Carries the sender's clock, `t1`.
    Ping {
        /// When it was sent.
        t1: Instant,
    },
    /// The answer, at once: `t1` as it came, `t2` and `t3` by the answerer's clock.
    Pong {
        /// As it came.
        t1: Instant,
        /// When the question arrived.
        t2: Instant,
        /// When the answer was sent.
        t3: Instant,
    },
    /// Edge to camera: what the applications want.
    Demand(Demand),
    /// Edge to camera: how a frame is arriving.
    Report(Report),
    /// Camera to edge, about once a second: what the camera is doing.
    Status(Status),
    /// Camera to edge: how its log on disk is doing, if it keeps one.
    DiskStatus(DiskStatus),
    /// Camera to edge, with every [`Message::Status`] and when it matters: what it can do for the contracts that lead.
    Outlook(Outlook),
    /// Camera to edge, with every [`Message::Status`] and when it has changed, where applications do not ask all the same: whose
    /// contracts its frames keep.
    Settled(Settled),
    /// Edge to camera, every 100 ms where the camera shares a declared channel with others: what it has of it.
    Share(Share),
    /// Camera to edge, every second and when it has changed, once it was told of a share: what it would have of it.
    Claim(Claim),
    /// Camera to edge: a contract names a profile that is not here.
    ProfileRequest(ProfileRequest),
    /// Edge to camera: a part of that profile.
    ProfilePart(ProfilePart),
    /// Edge to camera: a reading lacks a frame of the past.
    HistoryRequest(HistoryRequest),
    /// Camera to edge: no frame answers a question for the past.
    HistoryEnd(HistoryEnd),
    /// Camera to edge, once, before its first [`Message::Status`]: what it can do. One that does not say so can do none of it.
    Abilities(Abilities),
    /// Edge to camera: a frame cannot be decoded, or somebody wants to join its chain; the next one is to stand alone.
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
        /// At most [`REPLY_BYTES_MAX`] bytes, opaque to Mez.
        payload: Bytes,
    },
}

/// Who a camera broker is.
#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    /// The version of the wire format that the camera speaks.
    pub version: u16,
    /// The camera's name; its certificate must allow it.
    pub camera: CameraName,
    /// The camera broker's start.
    pub epoch: Epoch,
    /// Counts the connections of this start: the highest is the current one.
    pub attempt: u64,
    /// Relates the camera's capture times to its monotonic clock.
    pub anchor: ClockAnchor,
    /// The software, for people.
    pub software: String,
}

/// The edge's answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq)]
pub struct Welcome {
    /// The version of the wire format that the edge speaks.
    pub version: u16,
    /// The newest frame of this camera that the edge holds, if any.
    pub newest: Option<FrameId>,
    /// The largest payload that the edge accepts, in bytes.
    pub frame_bytes_max: u32,
    /// The software, for people.
    pub software: String,
}

/// Why a camera was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RefuseCode {
    /// The wire format's version is not spoken here.
    Version = 1,
    /// The certificate does not allow the name.
    NotPermitted = 2,
    /// Another identity holds the name, or had it with an epoch that none can follow.
    NameHeld = 3,
    /// A newer connection or a newer start of the same camera has taken over.
    Replaced = 4,
    /// A message made no sense, or claims an epoch that is not believed.
    Protocol = 5,
    /// The edge has as many cameras as it may.
    Full = 6,
    /// The edge is stopping.
    Stopping = 7,
}

impl RefuseCode {
    fn from_code(code: u16) -> Option<Self> {
        match code {
            1 => Some(Self::Version),
            2 => Some(Self::NotPermitted),
            3 => Some(Self::NameHeld),
            4 => Some(Self::Replaced),
            5 => Some(Self::Protocol),
            6 => Some(Self::Full),
            7 => Some(Self::Stopping),
            _ => None,
        }
    }

    /// Whether dialling again soon is of use.
    pub const fn is_lasting(self) -> bool {
        matches!(self, Self::Version | Self::NotPermitted | Self::NameHeld | Self::Full)
    }
}

/// What the applications want of a camera. Without contracts the camera sends nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Counts the demands of one edge for one camera; an older one is ignored.
    pub revision: u64,
    /// One for each subscription, highest priority first.
    pub contracts: Vec<Contract>,
}

/// How a frame is arriving, by the edge's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Part of the payload is there. The first such report has the first byte's time.
    Progress {
        /// The frame.
        frame: FrameId,
        /// Payload bytes so far.
        bytes: u32,
        /// When the first of them arrived.
        first: Instant,
        /// When this was true.
        now: Instant,
    },
    /// All of the payload is there; also the frame's acknowledgement.
    Complete {
        /// The frame.
        frame: FrameId,
        /// Payload bytes.
        bytes: u32,
        /// When the first byte arrived.
        first: Instant,
        /// When the last byte arrived.
        last: Instant,
    },
    /// The frame was not taken. The edge stops its stream too, which tells nothing where all of it is there already.
    Refused {
        /// The frame.
        frame: FrameId,
    },
}

/// How a camera's log on its own disk is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskStatus {
    /// Bytes that it takes on disk.
    pub bytes: u64,
    /// Frames that left memory before the disk took them, since the camera broker's start.
    pub lost: u64,
    /// Why the promises of durability are suspended, for people; empty if they hold.
    pub degraded: String,
}

/// What a camera is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Frames published in this epoch.
    pub published: u64,
    /// Frames refused in this epoch.
    pub refused: u64,
    /// Pixels in a row of the newest frame, 0 if there is none.
    pub width: u32,
    /// Rows of the newest frame.
    pub height: u32,
    /// Frames per second over the last few seconds.
    pub frames_per_second: f64,
    /// Bytes in the camera's log.
    pub log_bytes: u64,
}

impl Message {
    /// Appends the message, its length first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u32(0);
        match self {
            Self::Hello(hello) => {
                out.u8(1);
                out.u16(hello.version);
                out.text(hello.camera.as_str(), NAME_BYTES_MAX);
                out.u64(hello.epoch.0);
                out.u64(hello.attempt);
                out.u64(hello.anchor.wall.as_nanos());
                out.u64(hello.anchor.monotonic.as_nanos());
                out.text(&hello.software, TEXT_BYTES_MAX);
            }
            Self::Welcome(welcome) => {
                out.u8(2);
                out.u16(welcome.version);
                out.u8(u8::from(welcome.newest.is_some()));
                frame_id(out, welcome.newest.unwrap_or_default());
                out.u32(welcome.frame_bytes_max);
                out.text(&welcome.software, TEXT_BYTES_MAX);
            }
            Self::Refuse { code, text } => {
                out.u8(3);
                out.u16(*code as u16);
                out.text(text, TEXT_BYTES_MAX);
            }
            Self::Ping { t1 } => {
                out.u8(4);
                out.u64(t1.as_nanos());
            }
            Self::Pong { t1, t2, t3 } => {
                out.u8(5);
                for stamp in [t1, t2, t3] {
                    out.u64(stamp.as_nanos());
                }
            }
            Self::Demand(demand) => {
                out.u8(6);
                out.u64(demand.revision);
                let contracts = &demand.contracts[..demand.contracts.len().min(CONTRACTS_MAX)];
                out.u8(contracts.len() as u8);
                for contract in contracts {
                    encode_contract(out, contract);
                }
            }
            Self::Report(Report::Progress { frame, bytes, first, now }) => {
                out.u8(7);
                frame_id(out, *frame);
                out.u32(*bytes);
                out.u64(first.as_nanos());
                out.u64(now.as_nanos());
            }
            Self::Report(Report::Complete { frame, bytes, first, last }) => {
                out.u8(8);
                frame_id(out, *frame);
                out.u32(*bytes);
                out.u64(first.as_nanos());
                out.u64(last.as_nanos());
            }
            Self::Report(Report::Refused { frame }) => {
                out.u8(11);
                frame_id(out, *frame);
            }
            Self::Status(status) => {
                out.u8(9 | OPTIONAL);
                out.u64(status.published);
                out.u64(status.refused);
                out.u32(status.width);
                out.u32(status.height);
                out.f64(status.frames_per_second);
                out.u64(status.log_bytes);
            }
            Self::DiskStatus(status) => {
                out.u8(12 | OPTIONAL);
                out.u64(status.bytes);
                out.u64(status.lost);
                out.text(&status.degraded, TEXT_BYTES_MAX);
            }
            Self::HistoryRequest(request) => {
                out.u8(13 | OPTIONAL);
                request.encode(out);
            }
            Self::HistoryEnd(end) => {
                out.u8(14 | OPTIONAL);
                end.encode(out);
            }
            Self::Refresh { frame } => {
                out.u8(24 | OPTIONAL);
                frame_id(out, *frame);
            }
            Self::Abilities(abilities) => {
                out.u8(25 | OPTIONAL);
                abilities.encode(out);
            }
            Self::Outlook(outlook) => {
                out.u8(15 | OPTIONAL);
                outlook.encode(out);
            }
            Self::Settled(settled) => {
                out.u8(18 | OPTIONAL);
                settled.encode(out);
            }
            Self::Share(share) => {
                out.u8(19 | OPTIONAL);
                share.encode(out);
            }
            Self::Claim(claim) => {
                out.u8(32 | OPTIONAL);
                claim.encode(out);
            }
            Self::ProfileRequest(request) => {
                out.u8(16 | OPTIONAL);
                request.encode(out);
            }
            Self::ProfilePart(part) => {
                out.u8(17 | OPTIONAL);
                part.encode(out);
            }
            Self::Reply { frame, application, payload } => {
                out.u8(10 | OPTIONAL);
                frame_id(out, *frame);
                out.text(application, TEXT_BYTES_MAX);
                let payload = &payload[..payload.len().min(REPLY_BYTES_MAX)];
                out.u32(payload.len() as u32);
                out.extend_from_slice(payload);
            }
        }
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Decodes a message without its length field. `None`: of a kind that may be passed over and is not known.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let mut r = Reader::new(bytes);
        let kind = r.u8("kind")?;
        let message = match kind {
            1 => Self::Hello(Hello {
                version: r.u16("version")?,
                camera: r
                    .text("camera", NAME_BYTES_MAX)?
                    .parse()
                    .map_err(|_| WireError::Text { field: "camera" })?,
                epoch: Epoch(r.u64("epoch")?),
                attempt: r.u64("attempt")?,
                anchor: ClockAnchor {
                    wall: Timestamp::from_nanos(r.u64("anchor wall")?),
                    monotonic: instant(&mut r, "anchor monotonic")?,
                },
                software: r.text("software", TEXT_BYTES_MAX)?.into(),
            }),
            2 => Self::Welcome(Welcome {
                version: r.u16("version")?,
                newest: {
                    let known = r.u8("newest known")? != 0;
                    let id = read_frame_id(&mut r)?;
                    known.then_some(id)
                },
                frame_bytes_max: r.u32("frame_bytes_max")?,
                software: r.text("software", TEXT_BYTES_MAX)?.into(),
            }),
            3 => {
                let code = r.u16("code")?;
                Self::Refuse {
                    code: RefuseCode::from_code(code)
                        .ok_or(WireError::Value { field: "code", value: code.into() })?,
                    text: r.text("text", TEXT_BYTES_MAX)?.into(),
                }
            }
            4 => Self::Ping { t1: instant(&mut r, "t1")? },
            5 => Self::Pong {
                t1: instant(&mut r, "t1")?,
                t2: instant(&mut r, "t2")?,
                t3: instant(&mut r, "t3")?,
            },
            6 => {
                let revision = r.u64("revision")?;
                let count = usize::from(r.u8("contracts")?);
                if count > CONTRACTS_MAX {
                    return Err(WireError::TooLong {
                        field: "contracts",
                        length: count as u64,
                        max: CONTRACTS_MAX as u64,
                    });
                }
                let contracts = (0..count).map(|_| decode_contract(&mut r)).collect::<Result<_, _>>()?;
                Self::Demand(Demand { revision, contracts })
            }
            7 => Self::Report(Report::Progress {
                frame: read_frame_id(&mut r)?,
                bytes: r.u32("bytes")?,
                first: instant(&mut r, "first")?,
                now: instant(&mut r, "now")?,
            }),
            8 => Self::Report(Report::Complete {
                frame: read_frame_id(&mut r)?,
                bytes: r.u32("bytes")?,
                first: instant(&mut r, "first")?,
                last: instant(&mut r, "last")?,
            }),
            11 => Self::Report(Report::Refused { frame: read_frame_id(&mut r)? }),
            0x89 => Self::Status(Status {
                published: r.u64("published")?,
                refused: r.u64("refused")?,
                width: r.u32("width")?,
                height: r.u32("height")?,
                frames_per_second: r.f64("frames_per_second")?,
                log_bytes: r.u64("log_bytes")?,
            }),
            0x8c => Self::DiskStatus(DiskStatus {
                bytes: r.u64("bytes")?,
                lost: r.u64("lost")?,
                degraded: r.text("degraded", TEXT_BYTES_MAX)?.into(),
            }),
            0x8d => Self::HistoryRequest(HistoryRequest::decode(&mut r)?),
            0x8e => Self::HistoryEnd(HistoryEnd::decode(&mut r)?),
            0x99 => Self::Abilities(Abilities::decode(&mut r)?),
            0x98 => Self::Refresh { frame: read_frame_id(&mut r)? },
            0x8f => Self::Outlook(Outlook::decode(&mut r)?),
            0x92 => Self::Settled(Settled::decode(&mut r)?),
            0x93 => Self::Share(Share::decode(&mut r)?),
            0xa0 => Self::Claim(Claim::decode(&mut r)?),
            0x90 => Self::ProfileRequest(ProfileRequest::decode(&mut r)?),
            0x91 => Self::ProfilePart(ProfilePart::decode(&mut r)?),
            0x8a => Self::Reply {
                frame: read_frame_id(&mut r)?,
                application: r.text("application", TEXT_BYTES_MAX)?.into(),
                payload: {
                    let length = r.u32("payload length")? as usize;
                    if length > REPLY_BYTES_MAX {
                        return Err(WireError::TooLong {
                            field: "payload",
                            length: length as u64,
                            max: REPLY_BYTES_MAX as u64,
                        });
                    }
                    Bytes::copy_from_slice(r.bytes("payload", length)?)
                },
            },
            kind if kind & OPTIONAL != 0 => return Ok(None),
            kind => return Err(WireError::Value { field: "kind", value: kind.into() }),
        };
        r.finish()?;
        Ok(Some(message))
    }
}

fn instant(r: &mut Reader<'_>, field: &'static str) -> Result<Instant, WireError> {
    r.u64(field).map(Instant::from_nanos)
}

pub(super) fn frame_id(out: &mut Vec<u8>, id: FrameId) {
    out.u64(id.epoch.0);
    out.u64(id.sequence.0);
}

pub(super) fn read_frame_id(r: &mut Reader<'_>) -> Result<FrameId, WireError> {
    Ok(FrameId { epoch: Epoch(r.u64("epoch")?), sequence: Sequence(r.u64("sequence")?) })
}

/// Zero stands for "no bound": a contract's bound is never zero.
fn encode_contract(out: &mut Vec<u8>, contract: &Contract) {
    let bound = contract.latency_bound.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    out.u64(bound);
    out.f64(contract.accuracy_floor.unwrap_or(f64::NAN));
    out.f64(contract.on_time_share);
    out.u8(u8::from(contract.profile.is_some()));
    out.extend_from_slice(&contract.profile.unwrap_or_default());
    out.f64(contract.min_fps);
    out.u8(contract.on_infeasible as u8);
    out.i32(contract.priority);
}

fn decode_contract(r: &mut Reader<'_>) -> Result<Contract, WireError> {
    let bound = r.u64("latency_bound")?;
    let floor = r.f64("accuracy_floor")?;
    let on_time_share = r.f64("on_time_share")?;
    let has_profile = r.u8("has profile")? != 0;
    let hash = r.fixed::<32>("profile")?;
    let min_fps = r.f64("min_fps")?;
    let code = r.u8("on_infeasible")?;
    let contract = Contract {
        latency_bound: (bound > 0).then(|| Duration::from_nanos(bound)),
        accuracy_floor: (!floor.is_nan()).then_some(floor),
        on_time_share,
        profile: has_profile.then_some(hash),
        min_fps,
        on_infeasible: OnInfeasible::from_code(code)
            .ok_or(WireError::Value { field: "on_infeasible", value: code.into() })?,
        priority: r.i32("priority")?,
    };
    contract.validate().map_err(|_| WireError::Value { field: "contract", value: 0 })?;
    Ok(contract)
}

/// Cuts a stream of bytes into messages.
#[derive(Debug, Default)]
pub struct MessageBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl MessageBuffer {
    /// Takes in bytes from the stream. Call [`MessageBuffer::next`] until it has nothing left before the next
    /// push: then at most one message waits here.
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
