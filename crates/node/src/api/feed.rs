//! Turns a subscription into a stream of events, for both brokers and both protocols.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mez_core::contract::watch::{Change, FrameVerdict};
use mez_core::frame::{Encoding, Epoch, Frame, FrameId, Sequence, SkipReason};
use mez_core::name::CameraName;
use mez_core::session::{CameraRest, FrameTimes};
use mez_core::stills::PictureAnswer;
use mez_core::subscription::{Deliver, Delivery, Missing};
use mez_core::units::{Instant, Timestamp};
use mez_media::stream::{TranscodeError, jpeg_of};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tonic::Code;
use tracing::warn;

use super::access::StreamAccess;
use super::lent::{Payload, Share};
use super::pb::subscribe_event::Event;
use super::request::Subscribe;
use super::source::Source;
use super::subscriptions::Place;
use super::{ApiError, convert, pb};
use crate::clock::{monotonic_now, wall_now};
use crate::edge::{MemberReports, Served};
use crate::pictures::{Beside, ChainedFrame, Choice, MayMap, SharedPictures};

/// How long converting a frame to JPEG may take. A 4K frame takes a tenth of a second.
const CONVERTING_TIME_MAX: Duration = Duration::from_secs(1);

/// The assumed size of a frame that is in no log, until the size is known.
const OWN_BYTES_ASSUMED: usize = 1 << 20;

/// An event for an application.
pub struct Told {
    /// The event. A frame has no payload here.
    pub event: Event,
    /// A frame's payload.
    pub(crate) payload: Option<Payload>,
}

impl From<Event> for Told {
    fn from(event: Event) -> Self {
        Self { event, payload: None }
    }
}

/// The events of one subscription. Dropping it unsubscribes.
pub struct Feed {
    source: Source,
    /// The rights of the stream. `None` at a camera broker, where the socket's permissions control access.
    access: Option<StreamAccess>,
    place: Place,
    accepts: Vec<Encoding>,
    stopping: watch::Receiver<bool>,
    /// The first event.
    started: Option<pb::Started>,
    /// A frame that is being converted to JPEG.
    converting: Option<Converting>,
    /// The counts of frames that could not be converted, and of frames skipped before them, until the camera's next frame.
    owed: HashMap<CameraName, Missing>,
    /// Whether frames that are in no log may come, such as frames of the past or filled gaps. They need room in memory.
    needs_room: bool,
    room: Option<Share>,
    /// Whether the next frame was converted to JPEG here.
    made: bool,
    /// The rate limit for frames of the past. `None`: no frames of the past were requested.
    past: Option<PastPace>,
    /// Pictures shared with other readers on this host.
    pictures: SharedPictures,
    /// Whether only the newest frame is wanted.
    newest_only: bool,
    over: bool,
}

/// Whether frames of the past may come: they were requested, or a group is behind.
fn reads_past(subscribe: &Subscribe) -> bool {
    let is_behind = subscribe.group.as_ref().is_some_and(|group| group.options.keeps_place());
    subscribe.spec.span.begin.is_some() || subscribe.spec.past.fill || is_behind
}

/// The pace of a reading of the past.
struct PastPace {
    /// When the reading began, by the monotonic clock and by the wall clock.
    begun: (Instant, Timestamp),
    /// Whether the next frame waits until the principal may read another frame of the past.
    waits: bool,
}

impl PastPace {
    fn of(subscribe: &Subscribe) -> Option<Self> {
        let reads = reads_past(subscribe);
        reads.then(|| Self { begun: (monotonic_now(), wall_now()), waits: true })
    }

    /// Whether a frame is of the past: captured before the reading began, or in no log in memory.
    fn is_past(&self, delivery: &Delivery, times: &FrameTimes, was_made: bool) -> bool {
        self.is_before(delivery.record.frame.meta.captured, times) || delivery.log.is_none() && !was_made
    }

    /// Whether a frame may have been captured before the reading began, within the error of the clock comparison.
    fn is_before(&self, captured: Timestamp, times: &FrameTimes) -> bool {
        times.captured.map_or(captured < self.begun.1, |(at, error)| at < self.begun.0 + error)
    }
}

/// A frame that is being converted, because the application does not accept its encoding.
struct Converting {
    task: JoinHandle<Result<Bytes, TranscodeError>>,
    delivery: Box<Delivery>,
    times: FrameTimes,
    verdict: Option<FrameVerdict>,
    attempt: u32,
    room: Share,
}

impl Feed {
    pub(super) fn new(
        (source, access): (Source, Option<StreamAccess>),
        place: Place,
        subscribe: &Subscribe,
        cameras: Vec<String>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let deliver = match subscribe.spec.span.deliver {
            Deliver::Newest => pb::Deliver::Newest,
            Deliver::Every => pb::Deliver::Every,
        };
        let resume = if subscribe.spec.past.fill { pb::Resume::Fill } else { pb::Resume::Newest } as i32;
        let started = pb::Started { subscription_id: place.id, cameras, deliver: deliver as i32, resume };
        Self {
            source,
            access,
            place,
            accepts: subscribe.accepts.clone(),
            stopping,
            started: Some(started),
            converting: None,
            owed: HashMap::new(),
            needs_room: reads_past(subscribe),
            room: None,
            made: false,
            past: PastPace::of(subscribe),
            pictures: SharedPictures::default(),
            newest_only: subscribe.spec.span.deliver == Deliver::Newest,
            over: false,
        }
    }

    /// The next event. It is chosen now, so a frame is the newest of this moment.
    /// `None` after the last event, which is [`Event::Ended`] or an error. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Told, ApiError>> {
        if self.over {
            return None;
        }
        loop {
            let event = match self.started.take() {
                Some(started) => Some(Ok(Event::Started(started).into())),
                None => self.unchecked().await,
            };
            // Checked for every event, whatever it waited for.
            let event = match self.lost() {
                Some(lost) => Some(Err(lost)),
                None => event,
            };
            self.over = match &event {
                Some(Ok(told)) => matches!(told.event, Event::Ended(_)),
                Some(Err(_)) => true,
                None => false,
            };
            if event.is_some() {
                return event;
            }
        }
    }

    /// The way of the member's reports to its group. `None`: this is no stream of a member.
    pub(crate) fn member_reports(&self) -> Option<MemberReports> {
        match &self.source {
            Source::Group(membership) => Some(membership.reports()),
            Source::Edge(_) | Source::Camera(_) => None,
        }
    }

    /// Chooses what comes beside a frame of a chain that goes to a program on
    /// this host. `has_room`: whether a picture of this size can be handed over.
    pub(crate) fn choose_beside(&mut self, frame: &pb::Frame, has_room: impl FnOnce() -> bool) -> Choice {
        let Source::Edge(subscription) = &self.source else { return Choice::Nothing };
        let from = self.place.shared_pictures_from();
        let Some(camera) = frame.camera.parse().ok().filter(|_| self.newest_only) else {
            return Choice::Nothing;
        };
        let Some(stills) = subscription.stills(&camera) else { return Choice::Nothing };
        let encoding = u8::try_from(frame.encoding).ok().and_then(Encoding::from_code);
        let Some(encoding) = encoding else { return Choice::Nothing };
        let chained = ChainedFrame { id: id_of(frame), encoding, index: frame.index_in_chain };
        self.pictures.choose((&camera, &stills), chained, from, has_room)
    }

    /// What comes beside a frame whose picture was requested. `answer`: `None` if the picture was not ready in time.
    pub(crate) fn beside(&mut self, frame: &pb::Frame, answer: Option<PictureAnswer>) -> Beside {
        let camera = frame.camera.parse();
        camera.map_or(Beside::Nothing, |camera| self.pictures.answered(&camera, id_of(frame), answer))
    }

    /// The memory of the picture beside a frame, if it is still in use.
    pub(crate) fn memory_of(&self, event: &Event, beside: &Beside) -> Option<MayMap> {
        let (Event::Frame(frame), Beside::Picture(picture)) = (event, beside) else { return None };
        let Source::Edge(subscription) = &self.source else { return None };
        let stills = subscription.stills(&frame.camera.parse().ok()?)?;
        let memory = stills.memories().memory(picture.place?.memory)?;
        Some(MayMap { memory, rights: self.access.as_ref().map(StreamAccess::rights) })
    }

    /// Why the stream must end now, if it must. For callers that have held back an event.
    pub(crate) fn lost(&mut self) -> Option<ApiError> {
        self.access.as_mut().and_then(StreamAccess::lost)
    }

    /// The next event after the first, not checked against the rights. `None`: a frame must be converted first.
    async fn unchecked(&mut self) -> Option<Result<Told, ApiError>> {
        let served = match self.converted().await {
            Some(served) => Ok(served),
            None => self.served().await,
        };
        match served.map(|served| self.event(served)) {
            Ok(event) => event,
            Err(lost) => Some(Err(lost)),
        }
    }

    /// The next item of the source, or why the stream must end.
    async fn served(&mut self) -> Result<Served, ApiError> {
        let control = Arc::clone(&self.place.control);
        let (lending, principal) = (Arc::clone(self.place.lending()), self.place.principal.clone());
        loop {
            let lacks_room = self.needs_room && self.room.is_none();
            let waits = self.past.as_ref().is_some_and(|past| past.waits);
            let served = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stop| *stop) => Some(Served::Stopped),
                () = changed(self.access.as_mut()) => match self.access.as_mut().and_then(StreamAccess::look) {
                    Some(lost) => return Err(lost),
                    None => continue,
                },
                () = control.unsubscribed.notified() => {
                    self.source.leave();
                    Some(Served::Ended { rest: Vec::new() })
                }
                () = control.came.notified() => None,
                room = lending.room(&principal, OWN_BYTES_ASSUMED), if lacks_room => {
                    self.room = Some(room);
                    continue;
                }
                () = lending.allowance(&principal), if waits => {
                    self.past.iter_mut().for_each(|past| past.waits = false);
                    continue;
                }
                served = self.source.next(), if !lacks_room && !waits => Some(served),
            };
            if let Some(served) = served {
                return Ok(served);
            }
            let asks = control.take();
            let brings = self.access.as_mut().filter(|_| asks.brings_profile);
            if let Some(lost) = brings.and_then(StreamAccess::brings_profile) {
                return Err(lost);
            }
            if self.source.handle_control(asks).await.is_err() {
                return Ok(Served::Stopped);
            }
        }
    }

    /// The frame that was being converted, if its conversion succeeded.
    async fn converted(&mut self) -> Option<Served> {
        let converting = self.converting.as_mut()?;
        // Abandoned after a while, because native code may hang. Cancelling leaves the task running.
        let jpeg = tokio::select! {
            biased;
            _ = self.stopping.wait_for(|stop| *stop) => return Some(Served::Stopped),
            jpeg = timeout(CONVERTING_TIME_MAX, &mut converting.task) => jpeg,
        };
        let Converting { mut delivery, times, verdict, attempt, room, .. } = self.converting.take()?;
        let failure = match jpeg {
            Ok(Ok(Ok(jpeg))) => {
                let frame = &mut delivery.record.frame;
                (frame.payload, frame.meta.encoding) = (jpeg, Encoding::Jpeg);
                (delivery.log, self.room, self.made) = (None, Some(room), true);
                return Some(Served::Frame { delivery, times, verdict, attempt });
            }
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        warn!(camera = %delivery.camera, frame = %delivery.record.frame.meta.id, "a frame could not be converted to JPEG: {failure}");
        self.owe(*delivery, SkipReason::NotDecoded);
        None
    }

    /// Counts a frame that the application does not get. The count is sent with the camera's next frame.
    fn owe(&mut self, delivery: Delivery, why: SkipReason) {
        self.source
            .not_passed(&delivery, "the frame could not be converted to an encoding that the member accepts");
        let owed = self.owed.entry(delivery.camera).or_default();
        owed.merge(&delivery.skipped, delivery.not_held);
        owed.add(why);
    }

    /// Converts an item of the source into an event. `None`: a frame must be converted to JPEG first.
    fn event(&mut self, served: Served) -> Option<Result<Told, ApiError>> {
        let event = match served {
            Served::Frame { delivery, times, verdict, attempt } => {
                if let Some(access) = &mut self.access {
                    access.gives(&delivery.camera);
                }
                return self.frame(delivery, times, verdict, attempt);
            }
            Served::Joined(joined) => Event::GroupJoined(convert::group_joined(joined)),
            Served::Held(open) => Event::GroupHeld(pb::GroupHeld {
                held_back: open.is_some(),
                open: open.map_or(0, |open| u32::try_from(open).unwrap_or(u32::MAX)),
            }),
            Served::Replaced => return Some(Err(replaced())),
            Served::Contract(change) if change.ends => return Some(Err(infeasible(&change))),
            Served::Contract(Change { camera, state, reason, .. }) => {
                Event::ContractChange(pb::ContractChange {
                    camera: camera.as_str().into(),
                    state: state as i32,
                    reason,
                })
            }
            Served::Camera { camera, up, reason } => Event::CameraChange(pb::CameraChange {
                camera: camera.as_str().into(),
                up,
                reason: reason.unwrap_or_default(),
            }),
            Served::Source { camera, source } => Event::SourceChange(pb::SourceChange {
                camera: camera.as_str().into(),
                source: Some(convert::source(&source, monotonic_now())),
            }),
            Served::Waiting { matching } => {
                Event::Waiting(pb::Waiting { matching: u32::try_from(matching).unwrap_or(u32::MAX) })
            }
            Served::Ended { rest } => self.ended(rest),
            Served::Reset { camera } => return Some(Err(reset(&camera))),
            Served::Stopped => return Some(Err(ApiError::stopping())),
        };
        Some(Ok(event.into()))
    }

    fn frame(
        &mut self,
        mut delivery: Box<Delivery>,
        times: FrameTimes,
        verdict: Option<FrameVerdict>,
        attempt: u32,
    ) -> Option<Result<Told, ApiError>> {
        let (lending, principal) = (self.place.lending(), &self.place.principal);
        let encoding = delivery.record.frame.meta.encoding;
        if self.accepts.is_empty() || self.accepts.contains(&encoding) {
            if let Some(owed) = self.owed.remove(&delivery.camera) {
                owed.tell(&mut delivery.skipped, &mut delivery.not_held);
            }
            if let Some(past) = &mut self.past {
                // Once the feed has caught up, it does not wait, even if other readings of the principal do.
                past.waits = past.is_past(&delivery, &times, self.made);
                if past.waits {
                    lending.note_past(principal, delivery.record.frame.payload.len());
                }
            }
            let (log, id) = (delivery.log.take(), delivery.record.frame.meta.id);
            let mut frame = convert::frame(*delivery, &times, verdict, monotonic_now());
            frame.attempt = attempt;
            let bytes = std::mem::take(&mut frame.payload);
            let room = self.room.take();
            // A frame that was converted got its room when the conversion began.
            self.needs_room = log.is_none() && !std::mem::take(&mut self.made);
            let payload = match log {
                Some(log) => Payload::of_log(bytes, (log, id), lending, principal),
                None => Payload::own(bytes, room, lending, principal),
            };
            return Some(Ok(Told { event: Event::Frame(Box::new(frame)), payload: Some(payload) }));
        }
        if !encoding.is_picture() {
            // An application that wants only pictures gets a count of the other records.
            self.owe(*delivery, SkipReason::NotDecoded);
            return None;
        }
        if !self.accepts.contains(&Encoding::Jpeg) {
            return Some(Err(not_accepted(&delivery.camera, encoding)));
        }
        let Frame { meta, payload } = delivery.record.frame.clone();
        let Some(room) = self.room.take().or_else(|| lending.try_room(principal, payload.len())) else {
            // Too many stalled applications hold converted frames, so this application skips a frame.
            self.owe(*delivery, SkipReason::ApplicationBusy);
            self.needs_room = true;
            return None;
        };
        let task = spawn_blocking(move || jpeg_of(encoding, &payload, (meta.width, meta.height)));
        self.converting = Some(Converting { task, delivery, times, verdict, attempt, room });
        None
    }

    fn ended(&mut self, mut rest: Vec<CameraRest>) -> Event {
        for (camera, owed) in std::mem::take(&mut self.owed) {
            match rest.iter_mut().find(|(name, ..)| *name == camera) {
                Some((_, skipped, not_held)) => owed.tell(skipped, not_held),
                None => rest.push((camera, owed.skipped, owed.not_held)),
            }
        }
        let told = rest.into_iter().map(|(camera, skipped, not_held)| pb::CameraRest {
            camera: camera.as_str().into(),
            skipped: convert::skips(&skipped),
            not_held: not_held.map(convert::not_held),
        });
        Event::Ended(pb::Ended { rest: told.collect() })
    }
}

fn id_of(frame: &pb::Frame) -> FrameId {
    FrameId { epoch: Epoch(frame.epoch), sequence: Sequence(frame.sequence) }
}

/// Waits until rights have changed. Never completes without rights to check.
async fn changed(access: Option<&mut StreamAccess>) {
    match access {
        Some(access) => access.changed().await,
        None => std::future::pending().await,
    }
}

/// The error of a subscription that ends because a camera was reset. Repeating the request succeeds.
fn reset(camera: &CameraName) -> ApiError {
    ApiError::new(
        Code::Aborted,
        "CAMERA_RESET",
        format!(
            "camera {camera} was reset at the edge, so its next frames may sort before frames that were delivered; subscribe again"
        ),
    )
}

/// The error of a member's stream that another connection of the same member has replaced.
fn replaced() -> ApiError {
    let message = "another connection joined the group with the same member identifier; use different random bytes (16) for each program, and join again";
    ApiError::new(Code::FailedPrecondition, "MEMBER_REPLACED", message).at("group.member")
}

/// The error of a subscription with `on_infeasible` set to stop.
fn infeasible(change: &Change) -> ApiError {
    ApiError::new(
        Code::FailedPrecondition,
        "INFEASIBLE",
        format!(
            "camera {}: {}; the subscription ends, because its on_infeasible is stop; relax the contract, or set on_infeasible to degrade",
            change.camera, change.reason
        ),
    )
}

fn not_accepted(camera: &CameraName, encoding: Encoding) -> ApiError {
    let name = encoding.name();
    ApiError::new(
        Code::FailedPrecondition,
        "ENCODING_NOT_ACCEPTED",
        format!(
            "camera {camera} sends {name}, which is not in accept_encodings; add {name}, or leave the list empty to accept all encodings"
        ),
    )
    .at("accept_encodings")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A frame from before the reading must never count as a new one, because new frames are not rate limited.
    #[test]
    fn a_capture_time_within_its_error_is_of_the_past() {
        let begun = (Instant::ZERO + Duration::from_secs(10), Timestamp::from_nanos(10_000_000_000));
        let pace = PastPace { begun, waits: true };
        let after = |ms: u64, error_ms: u64| {
            let times = FrameTimes {
                captured: Some((begun.0 + Duration::from_millis(ms), Duration::from_millis(error_ms))),
                trace: None,
            };
            pace.is_before(begun.1, &times)
        };
        assert!(after(0, 1), "captured just before, by a clock that is half a millisecond off");
        assert!(after(30, 40));
        assert!(!after(40, 30));
        let unknown = FrameTimes { captured: None, trace: None };
        assert!(pace.is_before(Timestamp::from_nanos(9_999_999_999), &unknown));
        assert!(!pace.is_before(begun.1, &unknown));
    }
}
