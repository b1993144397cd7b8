//! Requests of the page and other HTTP clients for a camera's past, each with the rights of its principal.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use mez_core::name::CameraName;
use mez_core::rights::Verb;
use mez_core::units::Timestamp;
use tonic::Code;

use super::edge::EdgeApi;
use super::pb::subscribe_event::Event;
use super::principal::Principal;
use super::request::Subscribe;
use super::{ApiError, pb};
use crate::clock::wall_now;
use crate::export::{ExportError, ExportFormat, ExportOptions, ExportSummary, VideoCodec, export};
use crate::persist::LogKind;

/// Where a picture of the past may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From<'a> {
    /// Only this edge, as it holds the picture.
    Edge,
    /// Also the camera, at this rung, whose frames must need no others.
    Camera(&'a str),
}

/// What to look for in the past.
struct What {
    encoding: pb::Encoding,
    held_only: bool,
    quality: String,
}

impl EdgeApi {
    /// Checks whether a principal may read a camera's past.
    pub(crate) fn check_read(&self, principal: &Principal, camera: &CameraName) -> Result<(), ApiError> {
        self.access.check(principal, Verb::Read, camera)
    }

    /// The first frame captured within `begin..=end`, as a JPEG. `None`: there is none. Uses
    /// a normal subscription, so the frame is counted, recorded and rate limited like others.
    pub(crate) async fn first_within(
        &self,
        principal: &Principal,
        camera: &CameraName,
        (begin, end): (Timestamp, Timestamp),
        from: From<'_>,
    ) -> Result<Option<(Box<pb::Frame>, Bytes)>, ApiError> {
        let (held_only, quality) = match from {
            From::Edge => (true, String::new()),
            From::Camera(rung) => (false, rung.to_owned()),
        };
        let what = What { encoding: pb::Encoding::Jpeg, held_only, quality };
        self.first_of(principal, camera, (begin, end), what).await
    }

    /// The first data record captured within `begin..=end` that this edge holds,
    /// unchanged. `None`: there is none. It is counted, recorded and rate limited too.
    pub(crate) async fn first_record_within(
        &self,
        principal: &Principal,
        camera: &CameraName,
        span: (Timestamp, Timestamp),
    ) -> Result<Option<(Box<pb::Frame>, Bytes)>, ApiError> {
        let what = What { encoding: pb::Encoding::Data, held_only: true, quality: String::new() };
        self.first_of(principal, camera, span, what).await
    }

    async fn first_of(
        &self,
        principal: &Principal,
        camera: &CameraName,
        (begin, end): (Timestamp, Timestamp),
        What { encoding, held_only, quality }: What,
    ) -> Result<Option<(Box<pb::Frame>, Bytes)>, ApiError> {
        let request = pb::SubscribeRequest {
            pattern: camera.as_str().into(),
            application: "page".into(),
            accept_encodings: vec![encoding as i32],
            begin_utc_ns: Some(begin.as_nanos()),
            end_utc_ns: Some(end.as_nanos()),
            deliver: pb::Deliver::Every as i32,
            held_only,
            quality,
            ..pb::SubscribeRequest::default()
        };
        let mut subscribe = Subscribe::parse(request, wall_now())?;
        subscribe.spec.looks_on = true;
        let mut feed = self.open(principal, subscribe, None).await?;
        while let Some(told) = feed.next().await {
            let told = told?;
            match (told.event, told.payload.and_then(|payload| payload.bytes())) {
                (Event::Frame(frame), Some(bytes)) => return Ok(Some((frame, bytes))),
                (Event::Ended(_), _) => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The folder for clips. Fails if the principal may not make clips.
    pub(crate) fn clips(&self, principal: &Principal, camera: &CameraName) -> Result<&Path, ApiError> {
        self.check_read(principal, camera)?;
        self.access.check(principal, Verb::Export, camera)?;
        self.edge.clips().ok_or_else(no_store)
    }

    /// Makes an MP4 at `output` of the frames of a time span on this edge's disk: video unchanged if most
    /// frames are video, otherwise JPEG images. Encodes no video. Needs the rights `read` and `export`.
    pub(crate) async fn clip(
        &self,
        principal: &Principal,
        camera: &CameraName,
        (begin, end): (Timestamp, Timestamp),
        output: &Path,
    ) -> Result<ExportSummary, ApiError> {
        self.check_read(principal, camera)?;
        self.access.check(principal, Verb::Export, camera)?;
        let Some((kept, remembered)) = self.edge.past().kept(camera) else {
            return Err(no_store());
        };
        let notes = remembered.with_file_name(LogKind::Notes.folder());
        let (store, keys, format) = (kept.folder.clone(), kept.keys.clone(), ExportFormat::Mp4);
        let mut options = ExportOptions {
            remembered_notes: Some(notes),
            remembered: Some(remembered),
            begin: Some(begin),
            end: Some(end),
            codec: VideoCodec::Copy,
            ..ExportOptions::new(store, keys, camera.clone(), output.into(), format)
        };
        self.access.exports(principal, camera, (begin, end));
        let mut made = export(&options, |_| {}).await;
        let is_video = match &made {
            Ok(summary) => summary.not_copied <= summary.frames,
            Err(error) => !matches!(error, ExportError::NothingToCopy(_)),
        };
        if !is_video {
            (options.codec, options.overwrite) = (VideoCodec::Jpeg, true);
            made = export(&options, |_| {}).await;
        }
        // Checked again, because the export may take long and a right may be lost meanwhile.
        self.check_read(principal, camera)?;
        self.access.check(principal, Verb::Export, camera)?;
        made.map_err(|error| {
            let (code, reason) = match &error {
                ExportError::Nothing { .. } => (Code::NotFound, "NOTHING_HELD"),
                ExportError::NoPictures(_) | ExportError::Undecodable(_) => {
                    (Code::FailedPrecondition, "NO_PICTURES")
                }
                ExportError::NoFfmpeg(_) => (Code::FailedPrecondition, "NO_FFMPEG"),
                _ => (Code::Internal, "NOT_EXPORTED"),
            };
            let text = match &error {
                ExportError::Nothing { .. } => {
                    "this edge's disk has no frame in this time span; choose another span, or ask again in a second"
                        .into()
                }
                ExportError::NoPictures(_) | ExportError::Undecodable(_) | ExportError::NoFfmpeg(_) => {
                    error.to_string()
                }
                error => format!("{error}; try again, and check the edge's log and disk if the error persists"),
            };
            ApiError::new(code, reason, text)
        })
    }
}

fn no_store() -> ApiError {
    let message = "this edge keeps no frames on disk, so it cannot make clips; start the edge with --store";
    ApiError::new(Code::FailedPrecondition, "NO_STORE", message)
}

/// The minimum age of a time that counts as past for a subscription. A subscription waits this long for frames that are on their way.
pub(crate) const PAST_AGE_MIN: Duration = Duration::from_secs(3);
