//! Encodes the request for a survey of what a camera holds of its past, and the answer.
//!
//! The answer is sent before frames, so it is kept small: its times are milliseconds since the beginning of the span, and its counts have 32 bits.

use std::time::Duration;

use super::codec::{Reader, WireError, Write};
use crate::frame::{SkipCounts, SkipReason};
use crate::history::{HeldSpan, Hole, HoleReason, SURVEY_HOLES_MAX, SURVEY_SPANS_MAX, Survey};
use crate::units::Timestamp;

const FLAG_HOLDS: u8 = 1;
const FLAG_CUT: u8 = 2;

/// The code of an answer with a survey.
const SURVEYED: u8 = 1;

/// The code of [`HoleReason::Gone`]. Codes from here on are reasons other than skipped frames.
const GONE: u8 = 0x80;
const CAMERA_RESTARTED: u8 = 0x81;
const NOT_PUBLISHED: u8 = 0x82;
const CAMERA_ABSENT: u8 = 0x83;

/// Asks what a camera holds of a span of capture times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurveyRequest {
    /// The edge's number for the request, from 1. The answer repeats it.
    pub request: u64,
    /// The first capture time of the span.
    pub begin: Timestamp,
    /// The length of the span. Sent in whole milliseconds, rounded up; at most 49 days.
    pub length: Duration,
}

impl SurveyRequest {
    /// The last capture time of the span.
    pub fn end(&self) -> Timestamp {
        self.begin + Duration::from_millis(millis_up(self.length).into())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.request);
        out.u64(self.begin.as_nanos());
        out.u32(millis_up(self.length));
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (request, begin) = (r.u64("request")?, Timestamp::from_nanos(r.u64("begin")?));
        Ok(Self { request, begin, length: Duration::from_millis(r.u32("length")?.into()) })
    }
}

fn millis_up(length: Duration) -> u32 {
    u32::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

/// Why a camera sends no survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NoSurvey {
    /// Too many requests wait already.
    Busy = 2,
    /// The camera's log on disk cannot be read.
    Unreadable = 3,
}

impl NoSurvey {
    /// All reasons, in the order of their codes.
    pub const ALL: [Self; 2] = [Self::Busy, Self::Unreadable];
}

/// What a camera holds of a span of capture times, in answer to a [`SurveyRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyAnswer {
    /// The number of the request.
    pub request: u64,
    /// The first capture time of the span.
    pub begin: Timestamp,
    /// The survey, or why there is none. If there are more spans or holes than a survey may have, the first ones are sent.
    pub survey: Result<Survey, NoSurvey>,
}

impl SurveyAnswer {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let Self { request, begin, survey } = self;
        out.u64(*request);
        out.u64(begin.as_nanos());
        let survey = match survey {
            Ok(survey) => survey,
            Err(why) => return out.u8(*why as u8),
        };
        out.u8(SURVEYED);
        let flag = |set, flag| if set { flag } else { 0 };
        out.u8(flag(survey.held_from.is_some(), FLAG_HOLDS) | flag(survey.cut_at.is_some(), FLAG_CUT));
        out.u64(survey.held_from.unwrap_or(Timestamp::MIN).as_nanos());
        out.u32(survey.cut_at.map_or(0, |at| behind(*begin, at)));
        let spans = &survey.spans[..survey.spans.len().min(SURVEY_SPANS_MAX as usize)];
        out.u16(spans.len() as u16);
        for HeldSpan { begin: from, end, frames, skipped } in spans {
            out.u32(behind(*begin, *from));
            out.u32(behind(*begin, *end));
            out.u32(u32::try_from(*frames).unwrap_or(u32::MAX));
            encode_skips(skipped, out);
        }
        let holes = &survey.holes[..survey.holes.len().min(SURVEY_HOLES_MAX as usize)];
        out.u16(holes.len() as u16);
        for Hole { begin: from, end, reason, skipped } in holes {
            out.u32(behind(*begin, *from));
            out.u32(behind(*begin, *end));
            out.u8(code_of(*reason));
            encode_skips(skipped, out);
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (request, begin) = (r.u64("request")?, Timestamp::from_nanos(r.u64("begin")?));
        let code = r.u8("code")?;
        if code != SURVEYED {
            // An unknown reason of a later version still says that there is no survey.
            let why = NoSurvey::ALL.into_iter().find(|why| *why as u8 == code);
            return Ok(Self { request, begin, survey: Err(why.unwrap_or(NoSurvey::Unreadable)) });
        }
        let flags = r.u8("flags")?;
        let held_from = Timestamp::from_nanos(r.u64("held from")?);
        let cut_at = moment(r, begin, "cut at")?;
        let mut spans = Vec::new();
        for _ in 0..count(r, "spans", SURVEY_SPANS_MAX)? {
            spans.push(HeldSpan {
                begin: moment(r, begin, "span begin")?,
                end: moment(r, begin, "span end")?,
                frames: r.u32("frames")?.into(),
                skipped: decode_skips(r)?,
            });
        }
        let mut holes = Vec::new();
        for _ in 0..count(r, "holes", SURVEY_HOLES_MAX)? {
            holes.push(Hole {
                begin: moment(r, begin, "hole begin")?,
                end: moment(r, begin, "hole end")?,
                reason: reason_of(r.u8("hole reason")?),
                skipped: decode_skips(r)?,
            });
        }
        let held_from = (flags & FLAG_HOLDS != 0).then_some(held_from);
        let cut_at = (flags & FLAG_CUT != 0).then_some(cut_at);
        Ok(Self { request, begin, survey: Ok(Survey { held_from, cut_at, spans, holes }) })
    }
}

/// Whole milliseconds from the beginning of the span to a moment in it.
fn behind(begin: Timestamp, at: Timestamp) -> u32 {
    u32::try_from(at.saturating_since(begin).as_millis()).unwrap_or(u32::MAX)
}

fn moment(r: &mut Reader<'_>, begin: Timestamp, field: &'static str) -> Result<Timestamp, WireError> {
    Ok(begin + Duration::from_millis(r.u32(field)?.into()))
}

fn count(r: &mut Reader<'_>, field: &'static str, max: u32) -> Result<u16, WireError> {
    let count = r.u16(field)?;
    if u32::from(count) > max {
        return Err(WireError::TooLong { field, length: count.into(), max: max.into() });
    }
    Ok(count)
}

fn code_of(reason: HoleReason) -> u8 {
    match reason {
        HoleReason::Skipped(reason) => reason as u8,
        HoleReason::Gone => GONE,
        HoleReason::CameraRestarted => CAMERA_RESTARTED,
        HoleReason::NotPublished => NOT_PUBLISHED,
        HoleReason::CameraAbsent => CAMERA_ABSENT,
    }
}

fn reason_of(code: u8) -> HoleReason {
    match code {
        GONE => HoleReason::Gone,
        CAMERA_RESTARTED => HoleReason::CameraRestarted,
        NOT_PUBLISHED => HoleReason::NotPublished,
        CAMERA_ABSENT => HoleReason::CameraAbsent,
        code => HoleReason::Skipped(skip_of(code)),
    }
}

/// An unknown reason of a later version still means that the frames are not held.
fn skip_of(code: u8) -> SkipReason {
    SkipReason::from_code(code).unwrap_or(SkipReason::NotHeld)
}

fn encode_skips(skipped: &SkipCounts, out: &mut Vec<u8>) {
    out.u8(skipped.iter().count() as u8);
    for (reason, count) in skipped.iter() {
        out.u8(reason as u8);
        out.u32(u32::try_from(count).unwrap_or(u32::MAX));
    }
}

fn decode_skips(r: &mut Reader<'_>) -> Result<SkipCounts, WireError> {
    let mut skipped = SkipCounts::default();
    for _ in 0..r.u8("skip reasons")? {
        let reason = skip_of(r.u8("skip reason")?);
        skipped.add(reason, r.u32("skip count")?.into());
    }
    Ok(skipped)
}
