//! Requests from applications to the edge's loop.

use std::sync::Arc;
use std::time::Duration;

use mez_core::answers::Room;
use mez_core::broker::edge::{AnswerError, CameraInfo, GivenAnswer, NotSurveyed, ReplyError, SubscriptionId};
use mez_core::contract::Contract;
use mez_core::controller::share::Channels;
use mez_core::frame::FrameId;
use mez_core::history::{PastAnswer, PastQuery, Survey, Unanswered};
use mez_core::name::CameraName;
use mez_core::subscription::SubscriptionSpec;
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::ReplyResult;
use tokio::sync::{mpsc, oneshot};

use super::derived::DerivedRequest;
use super::forget::{ForgetFailure, ForgetReport};
use super::look::CameraLook;
use super::reset::{ResetFailure, ResetReport};
use super::subscribers::Mailbox;
use crate::profiles::HeldProfile;
use crate::reply::ReplyContent;

/// A subscription to begin.
pub(super) struct Opening {
    pub(super) id: SubscriptionId,
    pub(super) spec: SubscriptionSpec,
    /// The profile that the contract names.
    pub(super) profile: Option<Arc<HeldProfile>>,
    /// The clocks by which the beginning and end of its span are converted.
    pub(super) clock: ClockAnchor,
    pub(super) mailbox: Arc<Mailbox>,
}

/// What a camera holds, or why that is not known.
pub(super) type CameraSurvey = Result<Survey, NotSurveyed>;

pub(super) enum Request {
    /// Answered with the number of connected cameras that match, and until when unknown cameras may still come.
    Subscribe(Box<Opening>, oneshot::Sender<(usize, Option<Instant>)>),
    Update(SubscriptionId, Box<Contract>, Option<Arc<HeldProfile>>),
    /// The time that frames take from this edge to the application of a subscription.
    Way(SubscriptionId, Duration),
    Unsubscribe(SubscriptionId),
    /// A subscription needs a new chain of a camera.
    ChainLost(CameraName),
    History(Box<(CameraName, PastQuery)>, oneshot::Sender<PastAnswer>),
    /// Asks what a camera itself holds of a span.
    Survey(Box<(CameraName, (Timestamp, Timestamp))>, oneshot::Sender<CameraSurvey>),
    Cameras(oneshot::Sender<Vec<CameraInfo>>),
    /// Like `Cameras`, with the newest frames.
    Look(oneshot::Sender<Vec<CameraLook>>),
    /// Resets a camera for the user with this uid.
    Reset(CameraName, u32, oneshot::Sender<Result<ResetReport, ResetFailure>>),
    /// Forgets a camera that is not connected.
    Forget(CameraName, oneshot::Sender<Result<ForgetReport, ForgetFailure>>),
    /// A request of a publisher of a derived stream.
    Derived(Box<DerivedRequest>),
    /// An application has made a picture of a frame. Answered with the limits for the next picture.
    Answer(Box<(CameraName, FrameId, GivenAnswer)>, oneshot::Sender<Result<Room, AnswerError>>),
    Reply(Box<Replied>, oneshot::Sender<Result<(), ReplyError>>),
    /// Changes after how long absent cameras may be forgotten, and the channels. Answered once the change is in force.
    Change(Option<Duration>, Channels, oneshot::Sender<()>),
}

/// An application's result for a frame.
pub(super) struct Replied {
    pub(super) camera: CameraName,
    pub(super) frame: FrameId,
    pub(super) application: String,
    /// The result as it crosses the link.
    pub(super) result: ReplyResult,
    /// The result as it is noted. `None`: the edge keeps no notes.
    pub(super) noted: Option<ReplyContent>,
}

/// Asks cameras for frames of the past, and for surveys of what they hold. Does not keep the broker alive.
pub(crate) struct Cameras(pub(super) mpsc::WeakSender<Request>);

impl Cameras {
    /// Asks a camera for a frame of the past. Unanswered if the broker has stopped.
    pub(crate) async fn ask(&self, camera: &CameraName, query: PastQuery) -> PastAnswer {
        let Some(requests) = self.0.upgrade() else {
            return PastAnswer::unanswered(Unanswered::TimedOut);
        };
        let (answer, answered) = oneshot::channel();
        let request = Request::History(Box::new((camera.clone(), query)), answer);
        if requests.send(request).await.is_err() {
            return PastAnswer::unanswered(Unanswered::TimedOut);
        }
        drop(requests);
        answered.await.unwrap_or_else(|_| PastAnswer::unanswered(Unanswered::TimedOut))
    }

    /// Asks what a camera itself holds of a span. Dropping the future withdraws the question.
    pub(crate) async fn survey(&self, camera: &CameraName, span: (Timestamp, Timestamp)) -> CameraSurvey {
        let stopped = Err(NotSurveyed::Unanswered(Unanswered::TimedOut));
        let Some(requests) = self.0.upgrade() else { return stopped };
        let (answer, answered) = oneshot::channel();
        if requests.send(Request::Survey(Box::new((camera.clone(), span)), answer)).await.is_err() {
            return stopped;
        }
        drop(requests);
        answered.await.unwrap_or(stopped)
    }
}
