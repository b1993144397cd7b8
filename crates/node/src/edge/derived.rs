//! Serves the publishers of derived streams at this edge.

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

/// Why a publisher may not publish a derived stream.
#[derive(Debug, thiserror::Error)]
pub enum DeriveFailure {
    /// The broker refused the publisher.
    #[error(transparent)]
    Refused(#[from] PublisherRefused),
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The stream's last epoch could not be read, or the new one not recorded.
    #[error(transparent)]
    State(#[from] BeginError),
}

/// Why a record of a derived stream was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum DerivedFailure {
    /// The broker refused the record.
    #[error(transparent)]
    Refused(#[from] DerivedError),
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// What a publisher asks of the loop.
pub(super) enum DerivedRequest {
    /// Open a stream, with its new epoch if the broker has asked for one.
    Open(Opening, oneshot::Sender<Result<Epoch, PublisherRefused>>),
    /// Publish a record, with the time when its publisher had it.
    Record(PublisherId, Instant, Published, oneshot::Sender<Result<FrameId, DerivedError>>),
    /// The publisher has nothing to publish for now, with the reason.
    Lost(PublisherId, String),
    /// The publisher has ended. The reason is given unless it ended in good order.
    Gone(PublisherId, Option<String>),
}

/// A stream that a publisher asks to open.
#[derive(Clone)]
pub(super) struct Opening {
    id: PublisherId,
    stream: CameraName,
    deriving: Deriving,
    start: Option<(Epoch, ClockAnchor)>,
}

impl EdgeHandle {
    /// Opens a derived stream for publishing. The edge numbers and keeps its records; applications read it like a camera.
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

    /// Waits until a record of a derived stream, and every record before it, is on disk as durably as the store promises.
    ///
    /// # Errors
    ///
    /// As [`LogKeeper::on_disk`](crate::persist::LogKeeper::on_disk). Also fails if the edge keeps no logs on disk.
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

/// Publishes a derived stream. Dropping it reports the publisher as lost.
pub struct DerivedPublisher {
    id: PublisherId,
    epoch: Epoch,
    requests: mpsc::Sender<Request>,
    is_over: bool,
}

impl DerivedPublisher {
    /// The epoch of the records that it publishes.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Publishes a record that the publisher had at `captured`, by the edge's clock.
    pub async fn publish(&self, captured: Instant, record: Published) -> Result<FrameId, DerivedFailure> {
        let (answer, published) = oneshot::channel();
        let request = DerivedRequest::Record(self.id, captured, record, answer);
        self.requests.send(Request::Derived(Box::new(request))).await.map_err(|_| Stopped)?;
        Ok(published.await.map_err(|_| Stopped)??)
    }

    /// Reports that there is nothing to publish for now, and why.
    pub async fn tell_lost(&self, reason: String) {
        let request = DerivedRequest::Lost(self.id, reason);
        let _ = self.requests.send(Request::Derived(Box::new(request))).await;
    }

    /// Ends the stream. `reason`: why, unless it ends in good order.
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
        self.go(Some("the publisher disconnected without closing its stream".into()));
    }
}

impl Driver {
    /// Serves a request of a publisher.
    pub(super) fn serve_derived(&mut self, request: DerivedRequest) {
        let now = monotonic_now();
        match request {
            DerivedRequest::Open(Opening { id, stream, deriving, start }, answer) => {
                let opened = self.broker.handle_publisher(id, &stream, deriving, start);
                let is_open = opened.is_ok();
                // If the publisher has gone meanwhile, the stream must not stay open.
                if answer.send(opened).is_err() && is_open {
                    self.broker.handle_publisher_gone(now, id, Some("the publisher disconnected".into()));
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
