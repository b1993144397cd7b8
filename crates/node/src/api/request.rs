//! Checks requests. Everything that leaves this module is valid.

use std::time::Duration;

use bytes::Bytes;
use mez_core::answers::{AnswerKind, SMALLER_MAX};
use mez_core::broker::edge::GivenAnswer;
use mez_core::broker::{NUMBER_MAX, PublishError, Published};
use mez_core::contract::Contract;
use mez_core::contract::monitor::TakenReport;
use mez_core::data::{ContentTypeError, DataRecord};
use mez_core::frame::{ChainKinds, Encoding, Epoch, FrameId, Sequence};
use mez_core::history::{self, PastOptions, Tier};
use mez_core::log::AppendError;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::rights::Granted;
use mez_core::setting::Setting;
use mez_core::subscription::{Deliver, LastFrame, Span, SubscriptionSpec};
use mez_core::units::{Instant, Timestamp};
use tonic::Code;

use super::contract::Profile;
use super::error::ApiError;
use super::group::GroupAsk;
use super::image::{PayloadError, answer_kind, size_in_pixels};
use super::{APPLICATION_BYTES_MAX, contract, convert, pb};
use crate::reply::ReplyContent;

/// The most cameras for which one subscription may resume, with one frame each.
pub const AFTER_MAX: usize = 1024;

/// The most frames in one report of taken frames.
pub const TAKEN_MAX: usize = 256;

/// A checked request to subscribe.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe {
    /// What the session must deliver. The profile of the contract must still be looked up.
    pub spec: SubscriptionSpec,
    /// The profile that the request names or contains.
    pub profile: Option<Profile>,
    /// The encodings that the application can decode. Empty: all stills.
    pub accepts: Vec<Encoding>,
    /// Whether the frames will be written into files.
    pub for_export: bool,
    /// The group to join.
    pub group: Option<GroupAsk>,
}

impl Subscribe {
    /// Checks a request. `now`: the broker's wall clock, which decides whether `begin` is in the past.
    pub fn parse(request: pb::SubscribeRequest, now: Timestamp) -> Result<Self, ApiError> {
        let cameras = parse_pattern(&request.pattern)?;
        let span = span(&request, now)?;
        let past = past(&request, &span, now)?;
        let after = after(&request, &cameras)?;
        let (contract, profile) = contract::parse(request.contract)?;
        if is_for_originals(&past, &span) {
            check_originals(&contract)?;
        }
        let accepts = request.accept_encodings.iter().map(|code| encoding("accept_encodings", *code));
        let accepts: Vec<Encoding> = accepts.collect::<Result<_, _>>()?;
        if !accepts.is_empty() && accepts.iter().all(|encoding| encoding.is_chained()) {
            return Err(ApiError::invalid(
                "accept_encodings",
                "CHAINS_NEED_STILLS",
                "video encodings are not enough: frames come as jpeg until a chain begins, and where a camera sends stills; accept jpeg as well",
            ));
        }
        let (chains, application) = (ChainKinds::among(&accepts), application(request.application)?);
        // The caller is not known here, and restricts this to its own rights.
        let granted = Granted::EVERYTHING;
        let looks_on = false;
        let spec =
            SubscriptionSpec { cameras, granted, contract, span, past, after, chains, application, looks_on };
        let for_export = request.for_export;
        let group = request.group.map(|group| GroupAsk::parse(group, &spec, profile.as_ref(), for_export));
        Ok(Self { spec, profile, accepts, for_export, group: group.transpose()? })
    }
}

/// Reads a report of a measured accuracy: the camera, and the accuracy from 0 to 1.
pub fn measured(request: &pb::ReportAccuracyRequest) -> Result<(CameraName, f64), ApiError> {
    let (camera, accuracy) = (parse_camera(&request.camera)?, request.accuracy);
    if !(0.0..=1.0).contains(&accuracy) {
        let text = format!("accuracy is {accuracy}; give the accuracy of the result, from 0 to 1");
        return Err(ApiError::invalid("accuracy", "INVALID_ACCURACY", text));
    }
    Ok((camera, accuracy))
}

/// Reads a report of the times when an application took frames.
pub fn taken(request: &pb::ReportTakenRequest) -> Result<Vec<(CameraName, TakenReport)>, ApiError> {
    let frames = &request.frames;
    if frames.len() > TAKEN_MAX {
        let text = format!("the report has {} frames; report at most {TAKEN_MAX} at once", frames.len());
        return Err(ApiError::invalid("frames", "TOO_MANY_FRAMES", text));
    }
    let report = |frame: &pb::TakenFrame| {
        let report = TakenReport {
            frame: FrameId { epoch: Epoch(frame.epoch), sequence: Sequence(frame.sequence) },
            received: frame.received_since_capture_ns.map(Duration::from_nanos),
            taken: frame.taken_since_capture_ns.map(Duration::from_nanos),
            error: Duration::from_nanos(frame.error_ns),
        };
        Ok((parse_camera(&frame.camera)?, report))
    };
    frames.iter().map(report).collect()
}

/// Parses a pattern of camera names.
pub fn parse_pattern(text: &str) -> Result<CameraPattern, ApiError> {
    text.parse().map_err(|error: mez_core::name::NameError| {
        ApiError::invalid("pattern", "INVALID_PATTERN", error.to_string())
    })
}

/// Parses a camera's name.
pub fn parse_camera(text: &str) -> Result<CameraName, ApiError> {
    text.parse().map_err(|error: mez_core::name::NameError| {
        ApiError::invalid("camera", "INVALID_CAMERA", error.to_string())
    })
}

/// Checks an application's name.
pub fn application(name: String) -> Result<String, ApiError> {
    if name.len() > APPLICATION_BYTES_MAX {
        return Err(ApiError::invalid(
            "application",
            "NAME_TOO_LONG",
            format!("the application's name has {} bytes; give at most {APPLICATION_BYTES_MAX}", name.len()),
        ));
    }
    Ok(name)
}

fn span(request: &pb::SubscribeRequest, now: Timestamp) -> Result<Span, ApiError> {
    let begin = request.begin_utc_ns.map(Timestamp::from_nanos);
    let end = request.end_utc_ns.map(Timestamp::from_nanos);
    let fills = resume(request)? == pb::Resume::Fill;
    let deliver = match pb::Deliver::try_from(request.deliver) {
        Ok(pb::Deliver::Newest) if fills => {
            let message = "resume=\"fill\" delivers every frame; leave out deliver or resume";
            return Err(ApiError::invalid("deliver", "NEWEST_CANNOT_FILL", message));
        }
        Ok(_) if fills => Deliver::Every,
        Ok(pb::Deliver::Newest) => Deliver::Newest,
        Ok(pb::Deliver::Every) => Deliver::Every,
        Ok(pb::Deliver::Unspecified) if begin.is_some_and(|begin| begin < now) => Deliver::Every,
        Ok(pb::Deliver::Unspecified) => Deliver::Newest,
        Err(_) => return Err(ApiError::unknown_value("deliver", request.deliver)),
    };
    let span = Span { begin, end, deliver };
    let invalid = |message| ApiError::invalid("end_utc_ns", "INVALID_SPAN", message);
    span.validate().map_err(|error| invalid(error.to_string()))?;
    if let (None, Some(end)) = (begin, end)
        && end < now
    {
        return Err(invalid(format!(
            "the end {end} is in the past; give a beginning (since) to read past frames"
        )));
    }
    Ok(span)
}

fn past(request: &pb::SubscribeRequest, span: &Span, now: Timestamp) -> Result<PastOptions, ApiError> {
    let tier_max = if request.held_only { Tier::Disk } else { Tier::Camera };
    let invalid = |message| ApiError::invalid("quality", "INVALID_QUALITY", message);
    let quality = match request.quality.as_str() {
        "" => None,
        rung => Some(history::quality(rung).map_err(|error| invalid(error.to_string()))?),
    };
    let reads_past = span.begin.is_some_and(|begin| begin < now) && span.deliver == Deliver::Every;
    let fill = resume(request)? == pb::Resume::Fill;
    if let Some(quality) = quality.filter(|_| !reads_past) {
        let is_newest = span.begin.is_none() && span.deliver == Deliver::Newest;
        if quality != Setting::ORIGINAL || !is_newest || fill {
            let message = "live frames come at the rung of the camera's contracts, or as originals (the newest frame of each camera). Any other quality is only for past frames: ask for every frame, with a beginning in the past";
            return Err(invalid(message.into()));
        }
    }
    if quality.is_some() && request.held_only {
        let message = "frames that the edge holds come unchanged; leave out quality or held_only";
        return Err(invalid(message.into()));
    }
    if fill && request.held_only {
        let message = "resume=\"fill\" fetches missing frames from cameras; leave out held_only or resume";
        return Err(ApiError::invalid("held_only", "FILL_ASKS_CAMERAS", message));
    }
    Ok(PastOptions { tier_max, quality, fill })
}

/// Whether originals of live frames are requested.
fn is_for_originals(past: &PastOptions, span: &Span) -> bool {
    past.wants_originals() && span.begin.is_none()
}

/// Refuses bounds that a subscription for originals cannot have.
pub(super) fn check_originals(contract: &Contract) -> Result<(), ApiError> {
    if contract.accuracy_floor.is_none() {
        return Ok(());
    }
    let message = "originals have accuracy 1, and an accuracy floor would reduce the camera's frames for all applications; leave out the accuracy floor or the quality";
    Err(ApiError::invalid("accuracy_floor", "FLOOR_WITH_ORIGINALS", message))
}

fn resume(request: &pb::SubscribeRequest) -> Result<pb::Resume, ApiError> {
    pb::Resume::try_from(request.resume).map_err(|_| ApiError::unknown_value("resume", request.resume))
}

fn after(
    request: &pb::SubscribeRequest,
    pattern: &CameraPattern,
) -> Result<Vec<(CameraName, LastFrame)>, ApiError> {
    let invalid = |message: String| ApiError::invalid("after", "INVALID_AFTER", message);
    if request.after.len() > AFTER_MAX {
        let count = request.after.len();
        return Err(invalid(format!(
            "after names {count} frames; give at most {AFTER_MAX}, one for each camera"
        )));
    }
    let mut known: Vec<(CameraName, LastFrame)> = Vec::with_capacity(request.after.len());
    for pb::LastFrame { camera, epoch, sequence, captured_utc_ns } in &request.after {
        let name: CameraName =
            camera.parse().map_err(|error: mez_core::name::NameError| invalid(error.to_string()))?;
        if !pattern.matches(&name) {
            return Err(invalid(format!("after names camera {name}, which {pattern} does not select")));
        }
        if known.iter().any(|(other, _)| *other == name) {
            return Err(invalid(format!("after names two frames of camera {name}; give the last one")));
        }
        if *epoch > NUMBER_MAX || *sequence > NUMBER_MAX {
            return Err(invalid(format!(
                "the number of frame {epoch}.{sequence} of camera {name} is above the limit, {NUMBER_MAX}"
            )));
        }
        let id = FrameId { epoch: Epoch(*epoch), sequence: Sequence(*sequence) };
        known.push((name, LastFrame { id, captured: captured_utc_ns.map(Timestamp::from_nanos) }));
    }
    Ok(known)
}

/// A frame to publish, and when its publisher got it, by this host's clock. The payload is checked against its description.
pub fn published(request: pb::PublishRequest) -> Result<(Published, Option<Instant>), ApiError> {
    let encoding = encoding("encoding", request.encoding)?;
    let stated = (request.width, request.height);
    let (width, height) = size_in_pixels(encoding, stated, &request.payload)?;
    let captured = request.captured_utc_ns.map(Timestamp::from_nanos);
    let had = request.captured_monotonic_ns.map(Instant::from_nanos);
    let payload = if encoding == Encoding::Data { data(request)?.encode() } else { picture(request)? };
    Ok((Published { payload, encoding, width, height, captured }, had))
}

/// The payload of a picture.
fn picture(request: pb::PublishRequest) -> Result<Bytes, ApiError> {
    if !request.content_type.is_empty() || request.of.is_some() {
        let message =
            "content_type and of are only for data records; publish data records with ENCODING_DATA";
        return Err(ApiError::invalid("content_type", "NOT_DATA", message));
    }
    Ok(request.payload)
}

fn data(request: pb::PublishRequest) -> Result<DataRecord, ApiError> {
    let invalid = |error: ContentTypeError| {
        ApiError::invalid("content_type", "INVALID_CONTENT_TYPE", error.to_string())
    };
    let content_type = request.content_type.parse().map_err(invalid)?;
    let of = request.of.as_ref().map(convert::origin_back).transpose();
    let of = of.map_err(|field| {
        ApiError::invalid(field, "INVALID_ORIGIN", format!("{field} is not a camera name"))
    })?;
    Ok(DataRecord { content_type, of, body: request.payload })
}

fn encoding(field: &str, code: i32) -> Result<Encoding, ApiError> {
    u8::try_from(code).ok().and_then(Encoding::from_code).ok_or_else(|| ApiError::unknown_value(field, code))
}

impl From<PayloadError> for ApiError {
    fn from(error: PayloadError) -> Self {
        let (field, reason) = match error {
            PayloadError::Damaged { .. } => ("payload", "DAMAGED_IMAGE"),
            PayloadError::Size { .. } => ("width", "WRONG_SIZE"),
            PayloadError::Bytes { .. } => ("payload", "WRONG_SIZE"),
            PayloadError::Chained { .. } => ("encoding", "ENCODING_NOT_PUBLISHED"),
        };
        Self::invalid(field, reason, error.to_string())
    }
}

impl From<PublishError> for ApiError {
    fn from(error: PublishError) -> Self {
        let message = error.to_string();
        match error {
            PublishError::Empty { .. } => Self::invalid("payload", "EMPTY_FRAME", message),
            PublishError::TooLarge { .. } => Self::invalid("payload", "FRAME_TOO_LARGE", message),
            PublishError::EmptyData => Self::invalid("payload", "EMPTY_DATA", message),
            PublishError::NotData(_) => Self::invalid("payload", "INVALID_DATA", message),
            PublishError::TooFarAhead { .. } => Self::invalid("captured_utc_ns", "CAPTURE_TIME", message),
            PublishError::Log(AppendError::CaptureTime { .. } | AppendError::OutOfOrder { .. }) => {
                Self::invalid("captured_utc_ns", "CAPTURE_TIME", message)
            }
            PublishError::Log(AppendError::LargerThanLog { .. }) => {
                Self::invalid("payload", "FRAME_LARGER_THAN_LOG", message)
            }
            PublishError::Log(AppendError::Held { .. }) => {
                Self::new(Code::ResourceExhausted, "LOG_HELD", message)
            }
        }
    }
}

/// The size in which an answer of this size is shown. `said`: what the application says, 0 for nothing.
fn shown(kind: AnswerKind, size: (u32, u32), said: (u32, u32)) -> Result<(u32, u32), ApiError> {
    if kind != AnswerKind::Picture || said == (0, 0) {
        return Ok(size);
    }
    let is_sound = |coded: u32, shown: u32| (coded..=coded.saturating_mul(SMALLER_MAX)).contains(&shown);
    if is_sound(size.0, said.0) && is_sound(size.1, said.1) {
        return Ok(said);
    }
    let message = format!(
        "a JPEG of {}x{} pixels cannot be shown in {}x{}: give no size, or one to {SMALLER_MAX} times its own",
        size.0, size.1, said.0, said.1
    );
    Err(ApiError::invalid("published_width", "SIZE", message))
}

/// Checks an answer. Pixels are not decoded. Boxes are converted to pixels of the frame as it was published.
pub(super) fn given_answer(request: pb::AnswerRequest) -> Result<GivenAnswer, ApiError> {
    use pb::answer_request::Content;
    let pb::AnswerRequest { content, replaced, published_width, published_height, .. } = request;
    let coded = match content {
        Some(Content::Detections(detections)) => {
            let size = (published_width, published_height);
            let payload = ReplyContent::published(detections, size)?.into_result().bytes().clone();
            return Ok(GivenAnswer { kind: AnswerKind::Boxes, payload, size, shown: size, replaced });
        }
        Some(Content::Payload(payload)) => payload,
        None => Bytes::new(),
    };
    let (kind, size) = answer_kind(&coded)?;
    let shown = shown(kind, size, (published_width, published_height))?;
    Ok(GivenAnswer { kind, payload: coded, size, shown, replaced })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_nanos(1_000_000);

    fn request() -> pb::SubscribeRequest {
        pb::SubscribeRequest { pattern: "dock/*".into(), ..Default::default() }
    }

    fn demanding(contract: pb::Contract) -> pb::SubscribeRequest {
        pb::SubscribeRequest { contract: Some(contract), ..request() }
    }

    #[test]
    fn a_request_with_a_pattern_alone_is_live_and_newest() {
        let parsed = Subscribe::parse(request(), NOW).unwrap();
        assert_eq!(parsed.spec.span, Span::LIVE);
        assert_eq!(parsed.spec.contract, Contract::default());
    }

    #[test]
    fn the_past_is_delivered_whole_unless_told_otherwise() {
        let past = pb::SubscribeRequest { begin_utc_ns: Some(5), ..request() };
        assert_eq!(Subscribe::parse(past.clone(), NOW).unwrap().spec.span.deliver, Deliver::Every);
        let newest = pb::SubscribeRequest { deliver: pb::Deliver::Newest as i32, ..past };
        assert_eq!(Subscribe::parse(newest, NOW).unwrap().spec.span.deliver, Deliver::Newest);
        let future = pb::SubscribeRequest { begin_utc_ns: Some(2_000_000), ..request() };
        assert_eq!(Subscribe::parse(future, NOW).unwrap().spec.span.deliver, Deliver::Newest);
    }

    /// Originals of live frames may have a latency bound, which is judged.
    #[test]
    fn originals_of_the_newest_frames_are_asked_for_by_name() {
        let bounded = demanding(pb::Contract { latency_bound_ns: Some(9), ..Default::default() });
        let parsed = Subscribe::parse(pb::SubscribeRequest { quality: "original".into(), ..bounded }, NOW);
        let spec = parsed.unwrap().spec;
        assert_eq!((spec.span, spec.past), (Span::LIVE, PastOptions::ORIGINALS));
        assert!(spec.wants_originals());
    }

    const FILL: i32 = pb::Resume::Fill as i32;
    const EVERY: i32 = pb::Deliver::Every as i32;

    fn last(camera: &str, epoch: u64) -> pb::LastFrame {
        pb::LastFrame { camera: camera.into(), epoch, sequence: 5, captured_utc_ns: Some(9) }
    }

    #[test]
    fn who_resumes_gets_every_frame_behind_the_last_one() {
        let asked = pb::SubscribeRequest { resume: FILL, after: vec![last("dock/cam1", 3)], ..request() };
        let parsed = Subscribe::parse(asked, NOW).unwrap();
        assert_eq!((parsed.spec.span.deliver, parsed.spec.past), (Deliver::Every, PastOptions::FILLED));
        let id = FrameId { epoch: Epoch(3), sequence: Sequence(5) };
        let captured = Some(Timestamp::from_nanos(9));
        assert_eq!(parsed.spec.after, [("dock/cam1".parse().unwrap(), LastFrame { id, captured })]);
    }

    #[test]
    fn every_field_that_makes_no_sense_is_named() {
        let table = [
            (pb::SubscribeRequest { pattern: "dock/cam*".into(), ..request() }, "pattern"),
            (pb::SubscribeRequest { pattern: String::new(), ..request() }, "pattern"),
            (pb::SubscribeRequest { begin_utc_ns: Some(9), end_utc_ns: Some(8), ..request() }, "end_utc_ns"),
            (pb::SubscribeRequest { end_utc_ns: Some(8), ..request() }, "end_utc_ns"),
            (demanding(pb::Contract { latency_bound_ns: Some(0), ..Default::default() }), "latency_bound_ns"),
            (
                demanding(pb::Contract { accuracy_floor: Some(f64::NAN), ..Default::default() }),
                "accuracy_floor",
            ),
            (demanding(pb::Contract { on_time_share: Some(0.0), ..Default::default() }), "on_time_share"),
            (demanding(pb::Contract { min_fps: -1.0, ..Default::default() }), "min_fps"),
            (demanding(pb::Contract { on_infeasible: 9, ..Default::default() }), "on_infeasible"),
            (pb::SubscribeRequest { deliver: -4, ..request() }, "deliver"),
            (pb::SubscribeRequest { accept_encodings: vec![1, 77], ..request() }, "accept_encodings"),
            (pb::SubscribeRequest { application: "x".repeat(129), ..request() }, "application"),
            (pb::SubscribeRequest { quality: "jpeg/w640/q70/420".into(), ..request() }, "quality"),
            (pb::SubscribeRequest { quality: "original".into(), deliver: EVERY, ..request() }, "quality"),
            (pb::SubscribeRequest { quality: "original".into(), resume: FILL, ..request() }, "quality"),
            (pb::SubscribeRequest { quality: "original".into(), held_only: true, ..request() }, "quality"),
            (
                pb::SubscribeRequest {
                    quality: "original".into(),
                    ..demanding(pb::Contract { accuracy_floor: Some(0.9), ..Default::default() })
                },
                "accuracy_floor",
            ),
            (pb::SubscribeRequest { resume: 7, ..request() }, "resume"),
            (pb::SubscribeRequest { resume: FILL, held_only: true, ..request() }, "held_only"),
            (
                pb::SubscribeRequest { resume: FILL, deliver: pb::Deliver::Newest as i32, ..request() },
                "deliver",
            ),
            (pb::SubscribeRequest { after: vec![last("yard/cam1", 1)], ..request() }, "after"),
            (pb::SubscribeRequest { after: vec![last("dock/*", 1)], ..request() }, "after"),
            (pb::SubscribeRequest { after: vec![last("dock/cam1", u64::MAX)], ..request() }, "after"),
            (
                pb::SubscribeRequest { after: vec![last("dock/a", 1), last("dock/a", 2)], ..request() },
                "after",
            ),
            (
                pb::SubscribeRequest {
                    after: (0..=AFTER_MAX).map(|camera| last(&format!("dock/{camera}"), 1)).collect(),
                    ..request()
                },
                "after",
            ),
            (
                pb::SubscribeRequest { quality: "h264/q32".into(), begin_utc_ns: Some(5), ..request() },
                "quality",
            ),
            (
                pb::SubscribeRequest { quality: "jpeg:80".into(), begin_utc_ns: Some(5), ..request() },
                "quality",
            ),
            (
                pb::SubscribeRequest {
                    quality: "original".into(),
                    held_only: true,
                    begin_utc_ns: Some(5),
                    ..request()
                },
                "quality",
            ),
        ];
        for (request, field) in table {
            let error = Subscribe::parse(request, NOW).expect_err(field);
            assert_eq!((error.code, error.field.as_deref()), (Code::InvalidArgument, Some(field)), "{error}");
        }
    }

    proptest! {
        /// For all numbers, the result is a valid subscription or an error that names a field.
        #[test]
        fn any_numbers_are_valid_or_refused(
            times in any::<(Option<u64>, Option<u64>)>(),
            bounds in any::<(Option<u64>, Option<f64>, Option<f64>, f64)>(),
            codes in any::<(i32, i32, i32, i32)>(),
        ) {
            let request = pb::SubscribeRequest {
                begin_utc_ns: times.0,
                end_utc_ns: times.1,
                contract: Some(pb::Contract {
                    latency_bound_ns: bounds.0,
                    accuracy_floor: bounds.1,
                    on_time_share: bounds.2,
                    min_fps: bounds.3,
                    on_infeasible: codes.0 % 5,
                    priority: codes.3,
                    profile: None,
                }),
                deliver: codes.1 % 4,
                accept_encodings: vec![codes.2 % 6],
                ..request()
            };
            match Subscribe::parse(request, NOW) {
                Ok(parsed) => {
                    prop_assert_eq!(parsed.spec.contract.validate(), Ok(()));
                    prop_assert_eq!(parsed.spec.span.validate(), Ok(()));
                }
                Err(error) => prop_assert!(error.field.is_some()),
            }
        }
    }
}
