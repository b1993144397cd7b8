//! A camera's past: what is held, notes on frames, and a picture or record at an instant.
//!
//! A caller with the right to read the past may ask for all of this; a clip also needs the right to
//! export. Times are milliseconds since 1970, by the camera's clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, Uri};
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::history::{HeldSpan, Hole, HoleReason, Survey};
use mez_core::log::LogReader;
use mez_core::name::CameraName;
use mez_core::subscription::NotHeldReason;
use mez_core::units::Timestamp;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

use super::answers::Found;
use super::caller::Caller;
use super::clip;
use super::fill::{self, utc_ms};
use super::record;
use super::response::{Answer, Refused, bytes, empty, json};
use super::route::{Site, camera_of, describe};
use super::views;
use super::watcher::Looked;
use crate::api::page::{VIEW_QUALITY, VIEW_WIDTH_MAX};
use crate::api::past::{From, PAST_AGE_MIN};
use crate::api::pb;
use crate::clock::wall_now;
use crate::edge::LastReply;
use crate::held::{AtCamera, LogOf, Surveyor};
use crate::notes::{Note, NoteContent, NoteId};
use crate::work;

/// The most requests for the past that are answered at once.
const REQUESTS_MAX: usize = 16;
/// The most surveys of logs at once. Others wait.
const SURVEYS_MAX: usize = 2;
/// The longest span of one request for what is held, or for notes.
const SPAN_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest and the default span in which a picture is looked for, in milliseconds.
const WITHIN_MS: (u64, u64) = (60_000, 1_000);
/// How long to wait for a picture. A camera that does not answer is given up earlier.
const PICTURE_TIME_MAX: Duration = Duration::from_secs(10);

/// What a request asks of a camera's past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// What is held.
    Held,
    /// Notes on frames.
    Notes,
    /// A picture.
    Instant,
    /// A record.
    Record,
    /// A clip.
    Clip,
}

impl Wanted {
    const ALL: [(&str, Self); 5] = [
        ("/history", Self::Held),
        ("/notes", Self::Notes),
        ("/instant", Self::Instant),
        ("/record", Self::Record),
        ("/clip", Self::Clip),
    ];

    /// Whether a path belongs to this module.
    pub(super) fn is(path: &str) -> bool {
        Self::of(path).is_some()
    }

    fn of(path: &str) -> Option<(Self, Result<CameraName, Refused>)> {
        Self::ALL.into_iter().find_map(|(end, wanted)| Some((wanted, camera_of(path, end)?)))
    }
}

/// Answers requests for the past, and bounds how many run at once.
pub(super) struct History {
    requests: Arc<Semaphore>,
    surveys: Arc<Semaphore>,
    clips: Arc<Semaphore>,
}

impl Default for History {
    fn default() -> Self {
        let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
        let clips = Arc::new(Semaphore::new(clip::CLIPS_MAX));
        Self { requests, surveys: Arc::new(Semaphore::new(SURVEYS_MAX)), clips }
    }
}

impl History {
    /// Answers a request whose path belongs to this module ([`Wanted::is`]).
    pub(super) async fn answer(&self, site: &Site, caller: &Caller, uri: &Uri) -> Result<Answer, Refused> {
        let Some((wanted, camera)) = Wanted::of(uri.path()) else { return Err(Refused::not_found()) };
        let (camera, asked) = (camera?, Asked::parse(uri.query().unwrap_or_default())?);
        site.api.check_read(&caller.principal, &camera)?;
        if wanted == Wanted::Clip {
            let span = asked.span(clip::SPAN_MAX)?;
            let place = place(&self.clips, clip::CLIPS_MAX, "clips are being made")?;
            return clip::answer(site, caller, (camera, span), place).await;
        }
        let place = place(&self.requests, REQUESTS_MAX, "requests for past frames are being answered")?;
        match wanted {
            Wanted::Held => self.held(site, caller, &camera, asked.span(SPAN_MAX)?).await,
            Wanted::Notes => notes(site, caller, &camera, &asked).await,
            Wanted::Record => {
                site.look().camera(&camera).ok_or_else(|| unknown(&camera))?;
                record::answer(site, caller, &camera, asked.instant()?).await
            }
            Wanted::Instant | Wanted::Clip => instant(site, caller, &camera, asked.instant()?, place).await,
        }
    }

    /// What is held of a camera and where, and why the rest is not held.
    async fn held(
        &self,
        site: &Site,
        caller: &Caller,
        camera: &CameraName,
        (begin, end): (Timestamp, Timestamp),
    ) -> Result<Answer, Refused> {
        let look = site.look();
        let looked = look.camera(camera).ok_or_else(|| unknown(camera))?;
        let connected = looked.camera.info.connected;
        let rest = if connected { HoleReason::NotPublished } else { HoleReason::CameraAbsent };
        let places = site.api.handle().past();
        // The semaphore is never closed.
        let turn = Arc::clone(&self.surveys).acquire_owned().await.ok();
        let memory = looked.camera.log.clone();
        let newest = memory.as_ref().and_then(LogReader::newest);
        let held_until = newest.map(|newest| newest.frame.meta.captured);
        let logs = (places.skimming(camera), memory);
        let surveyor = |stop| Surveyor::new(LogOf::Edge(rest), logs, (begin, end), stop);
        let survey = work::run(turn, surveyor, Surveyor::run);
        let asks = async {
            if connected { AtCamera::ask(places, camera, (begin, end)).await } else { AtCamera::ABSENT }
        };
        let (survey, at_camera) = tokio::join!(survey, asks);
        // The disk may have taken long, and the right may have been revoked meanwhile.
        site.api.check_read(&caller.principal, camera)?;
        // The survey fails to return only when the runtime shuts down.
        let survey = survey.unwrap_or_else(|_| Ok(Survey::default())).map_err(|error| {
            warn!(%camera, "the log on disk cannot be surveyed: {error}");
            let detail = format!(
                "the log of {camera} on the edge's disk cannot be read: {error}; `mez store verify` names the damage"
            );
            Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "UNREADABLE", detail)
        })?;
        let stored = places.kept(camera).is_some();
        let started = utc_ms(site.edge.started_utc);
        Ok(json(&held_answer(started, (begin, end), (survey, held_until, stored), at_camera)))
    }
}

fn place(of: &Arc<Semaphore>, max: usize, what: &str) -> Result<OwnedSemaphorePermit, Refused> {
    Arc::clone(of).try_acquire_owned().map_err(|_| {
        let detail = format!("{max} {what}, which is the limit; ask again in a moment");
        Refused::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS", detail)
    })
}

fn unknown(camera: &CameraName) -> Refused {
    let detail = format!("the edge knows no camera {camera}");
    Refused::new(StatusCode::NOT_FOUND, "UNKNOWN_CAMERA", detail)
}

// ---- parameters -------------------------------------------------------------------------------------------

/// The parameters of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    since: Option<u64>,
    until: Option<u64>,
    at: Option<u64>,
    within: Option<u64>,
    after: Option<NoteId>,
}

impl Asked {
    fn parse(query: &str) -> Result<Self, Refused> {
        let mut asked = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let field = match name {
                "since_utc_ms" => &mut asked.since,
                "until_utc_ms" => &mut asked.until,
                "at_utc_ms" => &mut asked.at,
                "within_ms" => &mut asked.within,
                "after" => {
                    asked.after = Some(note_id(value).ok_or_else(|| {
                        invalid("after is not a valid position; give `next` of the previous answer")
                    })?);
                    continue;
                }
                _ => return Err(invalid("unknown parameter; /openapi.json lists all parameters")),
            };
            // Nanoseconds since 1970 must fit into 64 bits, with room for a day.
            let number = value.parse().ok().filter(|ms| *ms < u64::MAX / 2_000_000);
            *field = Some(number.ok_or_else(|| invalid(&format!("{name} is not a number of milliseconds")))?);
        }
        Ok(asked)
    }

    /// The requested span.
    fn span(&self, longest: Duration) -> Result<(Timestamp, Timestamp), Refused> {
        let (Some(since), Some(until)) = (self.since, self.until) else {
            return Err(invalid("give since_utc_ms and until_utc_ms, milliseconds since 1970"));
        };
        if since >= until {
            return Err(invalid("until_utc_ms must be after since_utc_ms"));
        }
        if Duration::from_millis(until - since) > longest {
            let seconds = longest.as_secs();
            return Err(invalid(&format!(
                "the time span is longer than {seconds} s, the limit for one request"
            )));
        }
        Ok((moment(since), moment(until)))
    }

    /// The requested instant, and the end of the span in which the picture or record may have been captured.
    fn instant(&self) -> Result<(Timestamp, Timestamp), Refused> {
        let Some(at) = self.at.map(moment) else {
            return Err(invalid("give at_utc_ms, milliseconds since 1970"));
        };
        let (longest, usual) = WITHIN_MS;
        let within = self.within.unwrap_or(usual);
        if !(1..=longest).contains(&within) {
            return Err(invalid(&format!("within_ms must be from 1 to {longest}")));
        }
        let newest = Timestamp::from_nanos(utc_ns_before(wall_now(), PAST_AGE_MIN));
        if at > newest {
            let seconds = PAST_AGE_MIN.as_secs();
            let detail =
                format!("at_utc_ms is too recent; give a time at least {seconds} s ago, or use …/picture");
            return Err(invalid(&detail));
        }
        Ok((at, (at + Duration::from_millis(within)).min(newest)))
    }
}

fn invalid(detail: &str) -> Refused {
    Refused::new(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", detail)
}

fn moment(utc_ms: u64) -> Timestamp {
    Timestamp::from_nanos(utc_ms * 1_000_000)
}

fn note_id(text: &str) -> Option<NoteId> {
    let (epoch, sequence) = text.split_once('-')?;
    Some(FrameId { epoch: Epoch(epoch.parse().ok()?), sequence: Sequence(sequence.parse().ok()?) })
}

// ---- what is held -----------------------------------------------------------------------------------------

/// What is held of a span.
#[derive(Debug, Serialize)]
struct Held {
    edge_start: u64,
    now_utc_ms: u64,
    since_utc_ms: u64,
    until_utc_ms: u64,
    surveyed_until_utc_ms: u64,
    stored: bool,
    edge_from_utc_ms: Option<u64>,
    edge_until_utc_ms: Option<u64>,
    camera_from_utc_ms: Option<u64>,
    camera_unanswered: Option<&'static str>,
    camera_surveyed_until_utc_ms: Option<u64>,
    camera_spans: Option<Vec<Stretch>>,
    camera_holes: Option<Vec<Stretch>>,
    spans: Vec<Stretch>,
    holes: Vec<Stretch>,
}

/// A stretch of time, with frames or without.
#[derive(Debug, Serialize)]
struct Stretch {
    from_utc_ms: u64,
    to_utc_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    skipped: BTreeMap<&'static str, u64>,
}

impl Stretch {
    fn span(HeldSpan { begin, end, frames, skipped }: HeldSpan) -> Self {
        let skipped = fill::skipped(&skipped);
        Self {
            from_utc_ms: utc_ms(begin),
            to_utc_ms: utc_ms(end),
            frames: Some(frames),
            reason: None,
            skipped,
        }
    }

    fn hole(Hole { begin, end, reason, skipped }: Hole) -> Self {
        let (reason, skipped) = (Some(reason.name()), fill::skipped(&skipped));
        Self { from_utc_ms: utc_ms(begin), to_utc_ms: utc_ms(end), frames: None, reason, skipped }
    }
}

fn held_answer(
    edge_start: u64,
    (begin, end): (Timestamp, Timestamp),
    (survey, held_until, stored): (Survey, Option<Timestamp>, bool),
    at_camera: AtCamera,
) -> Held {
    let AtCamera { from, survey: of_camera } = at_camera;
    let surveyed_until = |survey: &Survey| utc_ms(survey.cut_at.unwrap_or(end));
    let camera_surveyed_until_utc_ms = of_camera.as_ref().map(surveyed_until);
    let stretches = |survey: Survey| -> (Vec<Stretch>, Vec<Stretch>) {
        let (spans, holes) = (survey.spans.into_iter(), survey.holes.into_iter());
        (spans.map(Stretch::span).collect(), holes.map(Stretch::hole).collect())
    };
    let (camera_spans, camera_holes) = of_camera.map(stretches).unzip();
    let (surveyed_until_utc_ms, held_from) = (surveyed_until(&survey), survey.held_from);
    let (spans, holes) = stretches(survey);
    Held {
        edge_start,
        now_utc_ms: utc_ms(wall_now()),
        since_utc_ms: utc_ms(begin),
        until_utc_ms: utc_ms(end),
        surveyed_until_utc_ms,
        stored,
        edge_from_utc_ms: held_from.map(utc_ms),
        edge_until_utc_ms: held_until.map(utc_ms),
        camera_from_utc_ms: from.ok().filter(|from| *from < Timestamp::MAX).map(utc_ms),
        camera_unanswered: from.err().map(|why| NotHeldReason::from(why).name()),
        camera_surveyed_until_utc_ms,
        camera_spans,
        camera_holes,
        spans,
        holes,
    }
}

// ---- notes ------------------------------------------------------------------------------------------------

/// The notes on a camera's frames in a span.
#[derive(Debug, Serialize)]
struct Notes {
    edge_start: u64,
    now_utc_ms: u64,
    notes: Vec<NoteSaid>,
    next: Option<String>,
}

/// A note.
#[derive(Debug, Serialize)]
struct NoteSaid {
    at_utc_ms: u64,
    missing: u64,
    kind: &'static str,
    application: Option<String>,
    state: Option<&'static str>,
    sentence: String,
    reply: Option<NotedReply>,
}

/// An application's detections in a frame.
#[derive(Debug, Serialize)]
struct NotedReply {
    epoch: u64,
    sequence: u64,
    captured_utc_ms: Option<u64>,
    width: u32,
    height: u32,
    found: usize,
    detections: Vec<Found>,
}

async fn notes(site: &Site, caller: &Caller, camera: &CameraName, asked: &Asked) -> Result<Answer, Refused> {
    let (begin, end) = asked.span(SPAN_MAX)?;
    let page = site.api.noted(&caller.principal, camera, (begin, end, asked.after)).await?;
    let (notes, more) = page;
    let last = notes.last().filter(|_| more).map(|note| note.id);
    Ok(json(&Notes {
        edge_start: utc_ms(site.edge.started_utc),
        now_utc_ms: utc_ms(wall_now()),
        notes: notes.into_iter().map(said).collect(),
        next: last.map(|id| format!("{}-{}", id.epoch.0, id.sequence.0)),
    }))
}

fn said(note: Note) -> NoteSaid {
    let Note { at, missing, content, .. } = note;
    let plain = NoteSaid {
        at_utc_ms: utc_ms(at),
        missing,
        kind: "reply",
        application: None,
        state: None,
        sentence: String::new(),
        reply: None,
    };
    match content {
        NoteContent::Reply(reply) => {
            let (frame, captured) = (reply.frame, reply.captured);
            let found = LastReply::of(frame, &reply.application, &reply.content);
            let reply_of = |found: LastReply| NotedReply {
                epoch: frame.epoch.0,
                sequence: frame.sequence.0,
                captured_utc_ms: captured.map(utc_ms),
                width: found.size.0,
                height: found.size.1,
                found: found.found,
                detections: found.detections.into_iter().map(fill::found).collect(),
            };
            NoteSaid { application: Some(reply.application), reply: found.map(reply_of), ..plain }
        }
        NoteContent::Contract(contract) => NoteSaid {
            kind: "contract",
            application: Some(contract.application),
            state: Some(contract.state.name()),
            sentence: contract.reason,
            ..plain
        },
        NoteContent::Source(source) => {
            NoteSaid { kind: "source", state: Some(source.state.name()), sentence: source.reason, ..plain }
        }
    }
}

// ---- a picture --------------------------------------------------------------------------------------------

/// The first picture within a span: as the edge holds it, or else a small picture from the camera.
async fn instant(
    site: &Site,
    caller: &Caller,
    camera: &CameraName,
    span: (Timestamp, Timestamp),
    place: OwnedSemaphorePermit,
) -> Result<Answer, Refused> {
    let look = site.look();
    let looked = look.camera(camera).ok_or_else(|| unknown(camera))?;
    let looking = find(site, caller, (camera, looked), span);
    let found = tokio::time::timeout(PICTURE_TIME_MAX, looking).await;
    let Some((frame, jpeg)) = found.unwrap_or(Ok(None))? else { return Ok(empty(StatusCode::NO_CONTENT)) };
    let small = work::run(Some(place), |_| jpeg, |jpeg| views::made_small(&jpeg)).await;
    let Ok(Ok(jpeg)) = small else { return Ok(empty(StatusCode::NO_CONTENT)) };
    let picture = views::picture(*frame, jpeg);
    let mut answer = bytes("image/jpeg", picture.jpeg.clone());
    describe(&picture, answer.headers_mut());
    Ok(answer)
}

type Picture = (Box<pb::Frame>, bytes::Bytes);

async fn find(
    site: &Site,
    caller: &Caller,
    (camera, looked): (&CameraName, &Looked),
    span: (Timestamp, Timestamp),
) -> Result<Option<Picture>, Refused> {
    let held = site.api.first_within(&caller.principal, camera, span, From::Edge).await?;
    let info = &looked.camera.info;
    if held.is_some() || !info.connected || info.derived.is_some() {
        return Ok(held);
    }
    let size = if info.status.width > VIEW_WIDTH_MAX { format!("/w{VIEW_WIDTH_MAX}") } else { String::new() };
    let rung = format!("jpeg{size}/q{VIEW_QUALITY}/420");
    Ok(site.api.first_within(&caller.principal, camera, span, From::Camera(&rung)).await?)
}

fn utc_ns_before(moment: Timestamp, age: Duration) -> u64 {
    moment.as_nanos().saturating_sub(age.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_queries_are_refused_with_a_reason() {
        let span = |query: &str| {
            let spanned = Asked::parse(query).and_then(|asked| asked.span(SPAN_MAX));
            spanned.map_err(|refused| refused.detail)
        };
        assert_eq!(span("since_utc_ms=5&until_utc_ms=6"), Ok((moment(5), moment(6))));
        for (query, says) in [
            ("", "give since_utc_ms"),
            ("since_utc_ms=5", "give since_utc_ms"),
            ("since_utc_ms=6&until_utc_ms=5", "must be after"),
            ("since_utc_ms=5&until_utc_ms=5", "must be after"),
            ("since_utc_ms=-1&until_utc_ms=5", "is not a number"),
            ("since_utc_ms=now&until_utc_ms=5", "is not a number"),
            ("since_utc_ms=5&until_utc_ms=18446744073709551615", "is not a number"),
            ("since_utc_ms=0&until_utc_ms=86400001", "longer than 86400 s"),
            ("from=5", "openapi"),
            ("after=7", "not a valid position"),
        ] {
            let refused = span(query).expect_err(query);
            assert!(refused.contains(says), "{query}: {refused}");
        }
        assert_eq!(
            Asked::parse("after=3-4").unwrap().after.map(|id| (id.epoch.0, id.sequence.0)),
            Some((3, 4))
        );
    }
}
