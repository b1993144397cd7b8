//! Encodes requests for frames of the past, and the answer that no frame matches.

use super::codec::{Reader, WireError, Write};
use crate::frame::{RUNG_BYTES_MAX, Rung};
use crate::history::{PastQuery, Tier};
use crate::units::Timestamp;

const FLAG_AFTER: u8 = 1;
const FLAG_BEFORE: u8 = 2;
const FLAG_NEWEST: u8 = 4;
const FLAG_CONTINUES: u8 = 8;

/// A request for successive frames of the past.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryRequest {
    /// The edge's number for the request, from 1. The frames that answer the request
    /// have this number and the following ones. No other request uses these numbers.
    pub request: u64,
    /// The query for the first frame; each further frame is the next one after it.
    /// The query's `tier_max` is not sent: the camera asks its own memory and disk.
    pub query: PastQuery,
    /// The rung of the frames. It must stand alone
    /// ([`Setting::stands_alone`](crate::setting::Setting::stands_alone)). The query's `quality` is not sent.
    pub rung: Rung,
    /// The most frames to send. 0: the rest of the request with this number is no longer wanted.
    pub count: u16,
    /// Whether the numbers continue those of an earlier request. The frames then follow the
    /// last frame that answers the earlier request, and the query's `after` is ignored.
    pub continues: bool,
}

impl HistoryRequest {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let PastQuery { after, before, begin, end, newest, .. } = self.query;
        let flag = |set, flag| if set { flag } else { 0 };
        out.u64(self.request);
        out.u8(flag(after.is_some(), FLAG_AFTER)
            | flag(before.is_some(), FLAG_BEFORE)
            | flag(newest, FLAG_NEWEST)
            | flag(self.continues, FLAG_CONTINUES));
        out.frame_id(after.unwrap_or_default());
        out.frame_id(before.unwrap_or_default());
        out.u64(begin.as_nanos());
        out.u64(end.as_nanos());
        out.text(self.rung.as_str(), RUNG_BYTES_MAX);
        out.u16(self.count);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let request = r.u64("request")?;
        let flags = r.u8("flags")?;
        let (after, before) = (r.frame_id()?, r.frame_id()?);
        let query = PastQuery {
            after: (flags & FLAG_AFTER != 0).then_some(after),
            before: (flags & FLAG_BEFORE != 0).then_some(before),
            begin: Timestamp::from_nanos(r.u64("begin")?),
            end: Timestamp::from_nanos(r.u64("end")?),
            newest: flags & FLAG_NEWEST != 0,
            tier_max: Tier::Disk,
            quality: None,
        };
        let rung = Rung::new(r.text("rung", RUNG_BYTES_MAX)?).ok_or(WireError::Text { field: "rung" })?;
        let count = r.u16("count")?;
        Ok(Self { request, query, rung, count, continues: flags & FLAG_CONTINUES != 0 })
    }
}

/// Why no frame answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HistoryCode {
    /// The camera holds no such frame.
    None = 1,
    /// The camera does not make this rung from frames of the past.
    Rung = 2,
    /// Too many requests wait already.
    Busy = 3,
    /// The frame is larger than the edge accepts.
    TooLarge = 4,
}

impl HistoryCode {
    /// All codes, in ascending order.
    pub const ALL: [Self; 4] = [Self::None, Self::Rung, Self::Busy, Self::TooLarge];
}

/// The answer that no frame matches a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryEnd {
    /// The number of the request.
    pub request: u64,
    /// Why no frame matches.
    pub code: HistoryCode,
    /// The capture time of the oldest frame that the camera holds, if it holds any before the request's upper limit.
    pub held_from: Option<Timestamp>,
}

impl HistoryEnd {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.request);
        out.u8(self.code as u8);
        out.u8(u8::from(self.held_from.is_some()));
        out.u64(self.held_from.unwrap_or(Timestamp::MIN).as_nanos());
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let request = r.u64("request")?;
        let code = r.u8("code")?;
        // An unknown reason of a later version still says that no frame will come.
        let known = HistoryCode::ALL.into_iter().find(|known| *known as u8 == code);
        let holds = r.u8("holds any")? != 0;
        let held_from = Timestamp::from_nanos(r.u64("held from")?);
        let code = known.unwrap_or(HistoryCode::None);
        Ok(Self { request, code, held_from: holds.then_some(held_from) })
    }
}

/// The abilities of a camera beyond those that every camera of this wire format has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// The camera answers every [`HistoryRequest`], with a frame or with [`HistoryEnd`].
    pub past: bool,
    /// The camera answers every [`SurveyRequest`](super::SurveyRequest), with a [`SurveyAnswer`](super::SurveyAnswer).
    pub surveys: bool,
}

const ABILITY_PAST: u64 = 1;
const ABILITY_SURVEYS: u64 = 2;

impl Abilities {
    /// All abilities.
    pub const ALL: Self = Self { past: true, surveys: true };

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let flag = |set, flag| if set { flag } else { 0 };
        out.u64(flag(self.past, ABILITY_PAST) | flag(self.surveys, ABILITY_SURVEYS));
    }

    /// Abilities of a later version are ignored.
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let flags = r.u64("abilities")?;
        Ok(Self { past: flags & ABILITY_PAST != 0, surveys: flags & ABILITY_SURVEYS != 0 })
    }
}
