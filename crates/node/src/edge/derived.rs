//! Serves those who publish derived streams at this edge.

use std::sync::atomic::Ordering;

use mez_core::broker::Published;
use mez_core::broker::edge::{DerivedError, Deriving, PublisherId, PublisherRefused};
use mez_core::frame::{Epoch, FrameId};
use mez_core::name::CameraName;
use mez_core::units::{ClockAnchor, Instant};
use tokio::sync::{mpsc, oneshot};

use super::driver::Driver;
use super::failure::Stopped;
use super::handle::EdgeHandle;
use super::request::Request;
use crate::clock::{anchor, monotonic_now};
use crate::derived::BeginError;
use crate::persist::NotOnDisk;

/// Why somebody may not publish a derived stream.
#[derive(Debug, thiserror::Error)]
pub enum DeriveFailure {
    /// The broker refused it.
    #[error(transparent)]
    Refused(#[from] PublisherRefused),
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// It is not known how often the stream began.
    #[error(transparent)]
    State(#[from] BeginError),
}

/// Why a record of a derived stream was not taken.
#[derive(Debug, thiserror::Error)]
pub enum DerivedFailure {
    /// The broker refused it.
    #[error(transparent)]
    Refused(#[from] DerivedError),
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// What the loop is asked by those who publish.
pub(super) enum DerivedRequest {
    /// Somebody wants to publish, perhaps with the epoch that begins.
    Open(Opening, oneshot::Sender<Result<Epoch, PublisherRefused>>),
    /// A record, and when its publisher had it.
    Record(PublisherId, Instant, Published, oneshot::Sender<Result<FrameId, DerivedError>>),
    /// There is nothing to publish for now.
    Lost(PublisherId, String),
    /// The publisher is gone; why, if not in good order.
    Gone(PublisherId, Option<String>),
}

/// A stream that somebody wants to publish.
#[derive(Clone)]
pub(super) struct Opening {
    id: PublisherId,
    stream: CameraName,
    deriving: Deriving,
    start: Option<(Epoch, ClockAnchor)>,
}

impl EdgeHandle {
    /// Begins to publish a derived stream. It is numbered and kept here, and read as any camera.
    pub async fn derive(
        &self,
        stream: CameraName,
        deriving: Deriving,
    ) -> Result<DerivedPublisher, DeriveFailure> {
        let id = PublisherId(self.next_publisher.fetch_add(1, Ordering::Relaxed));
        let mut opening = Opening { id, stream, deriving, start: None };
        loop {
            let (answer, opened) = oneshot::channel();
            self.ask(DerivedRequest::Open(opening.clone(), answer)).await?;
            let above = match opened.await.map_err(|_| Stopped)? {
                Ok(epoch) => {
                    let requests = self.requests.clone();
                    return Ok(DerivedPublisher { id, epoch, requests, is_over: false });
                }
                Err(PublisherRefused::NeedsEpoch { above }) => above,
                Err(refused) => return Err(refused.into()),
            };
            let (states, Opening { stream, deriving, .. }) = (self.derived.clone(), opening.clone());
            let begun = tokio::task::spawn_blocking(move || states.begin(&stream, &deriving, above));
            opening.start = Some((begun.await.map_err(|_| Stopped)??, anchor()));
        }
    }

    /// Waits until a record of a derived stream, and every one before it, is on disk as far as the store promises.
    ///
    /// # Errors
    ///
    /// As [`LogKeeper::on_disk`](crate::persist::LogKeeper::on_disk); or there are no logs on disk.
    pub async fn on_disk(&self, stream: &CameraName, frame: FrameId) -> Result<(), NotOnDisk> {
        match &self.keeper {
            Some(keeper) => keeper.on_disk(stream, frame).await,
            None => Err(NotOnDisk::NoStore),
        }
    }

    async fn ask(&self, request: DerivedRequest) -> Result<(), Stopped> {
        self.requests.send(Request::Derived(Box::new(request))).await.map_err(|_| Stopped)
    }
}

/// Publishes a derived stream. Dropping it says that the publisher was lost.
pub struct DerivedPublisher {
    id: PublisherId,
    epoch: Epoch,
    requests: mpsc::Sender<Request>,
    is_over: bool,
}

impl DerivedPublisher {
    /// The epoch of what it publishes.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Publishes a record that its publisher had at `captured`, by the edge's clock.
    pub async fn publish(&self, captured: Instant, record: Published) -> Result<FrameId, DerivedFailure> {
        let (answer, published) = oneshot::channel();
        let request = DerivedRequest::Record(self.id, captured, record, answer);
        self.requests.send(Request::Derived(Box::new(request))).await.map_err(|_| Stopped)?;
        Ok(published.await.map_err(|_| Stopped)??)
    }

    /// Says that there is nothing to publish for now, and why.
    pub async fn tell_lost(&self, reason: String) {
        let request = DerivedRequest::Lost(self.id, reason);
        let _ = self.requests.send(Request::Derived(Box::new(request))).await;
    }

    /// Ends the publishing. `reason`: why, if not in good order.
    pub fn end(mut self, reason: Option<String>) {
        self.go(reason);
    }

    fn go(&mut self, reason: Option<String>) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let request = Request::Derived(Box::new(DerivedRequest::Gone(self.id, reason)));
        if let Err(mpsc::error::TrySendError::Full(request)) = self.requests.try_send(request)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let requests = self.requests.clone();
            runtime.spawn(async move { requests.send(request).await });
        }
    }
}

impl Drop for DerivedPublisher {
    fn drop(&mut self) {
        self.go(Some("its publisher is gone, and did not say that it ends".into()));
    }
}

impl Driver {
    /// Somebody who publishes asks for something.
    pub(super) fn serve_derived(&mut self, request: DerivedRequest) {
        let now = monotonic_now();
        match request {
            DerivedRequest::Open(Opening { id, stream, deriving, start }, answer) => {
                let opened = self.broker.handle_publisher(id, &stream, deriving, start);
                let is_open = opened.is_ok();
                // Whoever asked may have left.
                if answer.send(opened).is_err() && is_open {
                    self.broker.handle_publisher_gone(now, id, Some("its publisher is gone".into()));
                }
            }
            DerivedRequest::Record(id, captured, record, answer) => {
                let _ = answer.send(self.broker.handle_derived((now, captured), id, record));
            }
            DerivedRequest::Lost(id, reason) => self.broker.handle_publisher_lost(now, id, reason),
            DerivedRequest::Gone(id, reason) => self.broker.handle_publisher_gone(now, id, reason),
        }
    }
}
