//! Takes in derived streams: results that applications publish at the edge.

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use mez_core::broker::edge::{DERIVED_MAX, DERIVED_OF_OWNER_MAX, DerivedError, Deriving, PublisherRefused};
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::name::CameraName;
use tonic::Code;

use super::access::StreamAccess;
use super::camera::{PublishAnswers, PublishRequests, loss_after};
use super::edge::EdgeApi;
use super::pb::publish_event::Event;
use super::principal::Principal;
use super::request::{parse_camera, published};
use super::{ApiError, Limit, pb};
use crate::clock::{monotonic_now, plausible};
use crate::edge::{DeriveFailure, DerivedFailure, DerivedPublisher};
use crate::persist::{AWAITED_MAX, NotOnDisk};

/// The most sources of one derived stream.
pub const SOURCES_MAX: usize = 64;
/// The most records of one publishing stream whose durability may be awaited at once.
pub const AWAITED_OF_STREAM_MAX: usize = 64;

/// The pending answers to questions whether records are on disk.
type Waits = FuturesUnordered<BoxFuture<'static, Event>>;

impl EdgeApi {
    /// Takes in a derived stream until `next` has no more, and puts the answers into `answers`. Continues to read even if the answers are not taken.
    pub async fn publish<N>(&self, principal: &Principal, mut next: N, answers: &PublishAnswers)
    where
        N: PublishRequests,
    {
        let mut stopping = self.stopping.clone();
        let mut publisher = None;
        let work = self.take_stream(principal, &mut next, answers, &mut publisher);
        let result = tokio::select! {
            result = work => Some(result),
            _ = stopping.wait_for(|stop| *stop) => None,
        };
        if let (Some(publisher), Some(result)) = (publisher, &result) {
            let publisher: DerivedPublisher = publisher;
            publisher.end(loss_after(result, next.has_ended()));
        }
        answers.finish(result.unwrap_or_else(|| Err(ApiError::stopping())));
    }

    async fn take_stream<N: PublishRequests>(
        &self,
        principal: &Principal,
        next: &mut N,
        answers: &PublishAnswers,
        open: &mut Option<DerivedPublisher>,
    ) -> Result<(), ApiError> {
        let Some(first) = next.next().await else { return Ok(()) };
        let mut request = first?;
        let stream: CameraName = parse_camera(&request.camera)?;
        let mut access = self.access.publish(principal, &stream)?;
        let of = sources(&stream, &request.derived_from)?;
        let deriving = Deriving { owner: principal.bearer().to_string(), of };
        let publisher = open.insert(self.edge.derive(stream.clone(), deriving).await?);
        tracing::info!(%principal, %stream, epoch = publisher.epoch().0, "publishes");
        answers.push(Event::Started(pb::PublishStarted { camera: stream.to_string() }));
        let mut waits = Waits::new();
        loop {
            if !request.source_lost.is_empty() {
                publisher.tell_lost(std::mem::take(&mut request.source_lost)).await;
            }
            let is_last = request.last;
            if let Some(awaited) = request.await_on_disk.take() {
                self.wait_for_disk(&stream, request.number, awaited, (&mut waits, answers));
            }
            if !request.payload.is_empty() {
                answers.push(take_in(publisher, request).await?);
            } else if request.encoding != 0 {
                answers.push(refused(request.number, ApiError::empty_record()));
            }
            let following = match is_last {
                true => None,
                false => self.following(next, &mut access, &mut waits, answers).await?,
            };
            let Some(following) = following else {
                // A publisher that ends normally still gets the pending answers.
                while let Some(event) = waits.next().await {
                    answers.push(event);
                }
                return Ok(());
            };
            if !following.camera.is_empty() && following.camera != stream.as_str() {
                let message =
                    format!("this stream publishes {stream}, not {}; open another stream", following.camera);
                return Err(ApiError::invalid("camera", "OTHER_STREAM", message));
            }
            request = following;
        }
    }

    /// Answers when a record is on disk.
    fn wait_for_disk(
        &self,
        stream: &CameraName,
        number: u64,
        awaited: pb::AwaitOnDisk,
        (waits, answers): (&mut Waits, &PublishAnswers),
    ) {
        let answer = move |known: Result<(), ApiError>| {
            Event::OnDisk(pb::OnDisk { number, error: known.err().map(Into::into) })
        };
        if waits.len() == AWAITED_OF_STREAM_MAX {
            let limit = Limit::of_broker("awaited_of_stream_max", AWAITED_OF_STREAM_MAX);
            let message = format!(
                "{AWAITED_OF_STREAM_MAX} records of this stream already wait for the disk, which is the limit; wait until one of these records is \
                 on disk"
            );
            return answers.push(answer(Err(ApiError::exhausted("TOO_MANY_AWAITED", limit, message))));
        }
        let (edge, stream) = (self.edge.clone(), stream.clone());
        let frame = FrameId { epoch: Epoch(awaited.epoch), sequence: Sequence(awaited.sequence) };
        waits.push(Box::pin(
            async move { answer(edge.on_disk(&stream, frame).await.map_err(ApiError::from)) },
        ));
    }

    /// Waits for the next request, if the publisher still has the right. Also
    /// ends an idle stream whose right was lost. Meanwhile sends pending answers.
    async fn following<N: PublishRequests>(
        &self,
        next: &mut N,
        access: &mut StreamAccess,
        waits: &mut Waits,
        answers: &PublishAnswers,
    ) -> Result<Option<pb::PublishRequest>, ApiError> {
        let mut coming = std::pin::pin!(next.next());
        loop {
            tokio::select! {
                request = &mut coming => {
                    return match access.lost() {
                        Some(lost) => Err(lost),
                        None => request.transpose(),
                    };
                }
                Some(event) = waits.next(), if !waits.is_empty() => answers.push(event),
                () = access.changed() => {
                    if let Some(lost) = access.look() {
                        return Err(lost);
                    }
                }
            }
        }
    }
}

async fn take_in(publisher: &DerivedPublisher, request: pb::PublishRequest) -> Result<Event, ApiError> {
    let (number, arrived) = (request.number, monotonic_now());
    let (record, had) = match published(request) {
        Ok(published) => published,
        Err(error) => return Ok(refused(number, error)),
    };
    match publisher.publish(plausible(had.unwrap_or(arrived)), record).await {
        Ok(id) => Ok(Event::Accepted(pb::Accepted { number, epoch: id.epoch.0, sequence: id.sequence.0 })),
        Err(DerivedFailure::Refused(DerivedError::Publish(error))) => Ok(refused(number, error.into())),
        Err(failure @ DerivedFailure::Refused(DerivedError::NotOpen)) => {
            Err(ApiError::new(Code::Aborted, "CAMERA_RESET", failure.to_string()))
        }
        Err(DerivedFailure::Stopped(stopped)) => Err(stopped.into()),
    }
}

fn refused(number: u64, error: ApiError) -> Event {
    Event::Refused(pb::Refused { number, error: Some(error.into()) })
}

/// The sources of a stream: the named ones, or else the stream whose name is the parent of its name.
fn sources(stream: &CameraName, named: &[String]) -> Result<Vec<CameraName>, ApiError> {
    let invalid = |message: String| ApiError::invalid("derived_from", "INVALID_SOURCE", message);
    if named.len() > SOURCES_MAX {
        return Err(invalid(format!(
            "{} sources are more than the limit of {SOURCES_MAX}; name fewer sources",
            named.len()
        )));
    }
    if named.is_empty() {
        let above = stream.as_str().rsplit_once('/').and_then(|(above, _)| above.parse().ok());
        return above.map(|above| vec![above]).ok_or_else(|| {
            invalid(format!(
                "the name {stream} does not begin with the name of its source; give the source, or name the stream CAMERA/{stream}"
            ))
        });
    }
    let mut of: Vec<CameraName> = Vec::with_capacity(named.len());
    for name in named {
        let source: CameraName = parse_camera(name).map_err(|error| error.at("derived_from"))?;
        if source == *stream {
            return Err(invalid(format!("{stream} cannot be its own source; name another stream")));
        }
        if !of.contains(&source) {
            of.push(source);
        }
    }
    Ok(of)
}

impl From<DeriveFailure> for ApiError {
    fn from(failure: DeriveFailure) -> Self {
        let message = failure.to_string();
        match failure {
            DeriveFailure::Stopped(stopped) => stopped.into(),
            DeriveFailure::State(_) => Self::new(Code::FailedPrecondition, "STATE_UNUSABLE", message),
            DeriveFailure::Refused(refused) => match refused {
                PublisherRefused::IsCamera { .. } => {
                    Self::new(Code::FailedPrecondition, "NAME_IS_CAMERA", message).at("camera")
                }
                PublisherRefused::OfAnother { .. } => {
                    Self::new(Code::FailedPrecondition, "STREAM_HELD", message).at("camera")
                }
                PublisherRefused::TooManyOfOwner { owner } => {
                    let (name, value) = ("derived_per_principal_max".into(), DERIVED_OF_OWNER_MAX as u64);
                    let limit = Limit { name, value, subject: owner };
                    Self::exhausted("TOO_MANY_STREAMS", limit, message)
                }
                PublisherRefused::TooMany => {
                    let limit = Limit::of_broker("derived_max", DERIVED_MAX);
                    Self::exhausted("TOO_MANY_STREAMS", limit, message)
                }
                // Cannot happen: an epoch was given.
                PublisherRefused::NeedsEpoch { .. } => Self::new(Code::Internal, "NO_EPOCH", message),
            },
        }
    }
}

impl From<NotOnDisk> for ApiError {
    fn from(failure: NotOnDisk) -> Self {
        let message = failure.to_string();
        match failure {
            NotOnDisk::NoStore => Self::new(Code::FailedPrecondition, "NO_STORE", message),
            NotOnDisk::Lost => Self::new(Code::Aborted, "RECORD_LOST", message),
            NotOnDisk::Degraded(_) | NotOnDisk::Late => Self::new(Code::Unavailable, "LOG_DEGRADED", message),
            NotOnDisk::TooMany => {
                Self::exhausted("TOO_MANY_AWAITED", Limit::of_broker("awaited_max", AWAITED_MAX), message)
            }
            NotOnDisk::Stopped => Self::stopping(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_made_of_what_it_names_or_of_what_it_lies_below() {
        let of = |stream: &str, named: &[&str]| {
            let named: Vec<String> = named.iter().map(ToString::to_string).collect();
            sources(&stream.parse().unwrap(), &named)
                .map(|of| of.iter().map(ToString::to_string).collect::<Vec<_>>())
                .map_err(|error| (error.reason, error.field.unwrap_or_default()))
        };
        assert_eq!(of("dock/cam1/faces", &[]).unwrap(), ["dock/cam1"]);
        assert_eq!(
            of("tracks", &["dock/cam1", "dock/cam2", "dock/cam1"]).unwrap(),
            ["dock/cam1", "dock/cam2"]
        );
        let invalid = ("INVALID_SOURCE".to_owned(), "derived_from".to_owned());
        assert_eq!(of("tracks", &[]).unwrap_err(), invalid);
        assert_eq!(of("tracks", &["tracks"]).unwrap_err(), invalid);
        assert_eq!(of("tracks", &["dock/*"]).unwrap_err().1, "derived_from");
        let many: Vec<String> = (0..=SOURCES_MAX).map(|number| format!("cam{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(of("tracks", &many).unwrap_err(), invalid);
    }
}
