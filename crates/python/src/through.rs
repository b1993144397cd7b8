//! Publishes frames through a camera broker in another process, and derived streams at an edge.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant as StdInstant};

use mez_core::frame::FrameId;
use mez_core::name::CameraName;
use mez_node::api::{ANSWERS_TAKEN, ApiError};
use mez_node::background::{Background, Task};
use mez_node::camera::{AnswerSkips, Answered, Reply};
use mez_node::client::{
    Address, ClientError, DerivedStream, PublisherClient, PublisherCounts, PublisherEvent, PublisherOptions,
    SendError, Which,
};
use mez_node::identity::Role;
use mez_node::persist::ON_DISK_TIME_MAX;
use pyo3::prelude::*;

use crate::runtime::{Deadline, Waited, finish, lock};
use crate::{error, keys, log};

/// How long the broker may take to answer for a frame. On the same host, it takes about a millisecond.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(250);
/// How long to wait for an edge, which may be restarting. A restarted edge is back within two seconds.
const EDGE_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum number of records of other threads that wait for an edge.
const WAITING_RECORDS_MAX: usize = 64;
/// Maximum number of answers that came after their caller had given up. Beyond that the oldest is dropped.
const ANSWERS_MAX: usize = 64;
/// Maximum number of replies that wait for the publisher. Beyond that the oldest is dropped.
const REPLIES_MAX: usize = 64;

/// A publisher's connection to a camera broker in another process, or to an edge.
pub(crate) struct Through {
    client: Arc<PublisherClient>,
    news: Arc<News>,
    /// Whether it leads to an edge. Records published there are never replaced by newer ones.
    is_derived: bool,
    _sort: Task,
}

/// The broker's messages, sorted by the caller that waits for them.
#[derive(Default)]
struct News {
    sorted: Mutex<Sorted>,
    came: Condvar,
}

#[derive(Default)]
struct Sorted {
    answers: VecDeque<(u64, Result<FrameId, ApiError>)>,
    on_disk: VecDeque<(u64, Result<(), ApiError>)>,
    replies: VecDeque<Reply>,
    failed: Option<ClientError>,
}

/// Why a frame was not published.
pub(crate) enum Refusal {
    Send(SendError),
    Broker(ApiError),
    /// The edge did not answer. `is_sent`: whether the record was sent.
    Away {
        is_sent: bool,
    },
    /// The edge reported a permanent failure.
    Over(ClientError),
}

impl Through {
    /// The largest payload that the broker accepts, in bytes.
    pub(crate) fn frame_bytes_max(&self) -> u32 {
        self.client.frame_bytes_max()
    }

    /// Connects to the broker at `address`, retrying for 5 seconds.
    pub(crate) fn connect(
        py: Python<'_>,
        background: &'static Background,
        camera: &CameraName,
        address: &str,
        keys: Option<&Path>,
    ) -> PyResult<Self> {
        let address = Address::parse(address, Which::Camera)
            .map_err(|failure| error::argument(py, "broker", failure))?;
        let credentials = match address {
            Address::Unix(_) => None,
            Address::Tcp { .. } => Some(keys::credentials(py, keys, Role::Camera, Some(camera.as_str()))?),
        };
        // One frame in flight is enough: a frame that waits behind it would be old.
        let options = PublisherOptions { waiting_frames_max: 1, ..PublisherOptions::default() };
        let connect = || PublisherClient::connect(address, credentials.as_ref(), Some(camera), options);
        let client = finish(py, background, connect)?.map_err(|failure| error::client(py, &failure))?;
        Ok(Self::of(background, client, false))
    }

    /// Connects to the first edge of `edges` that accepts the stream, retrying for `patience`.
    pub(crate) fn connect_to_edge(
        py: Python<'_>,
        background: &'static Background,
        stream: &DerivedStream,
        edges: Vec<Address>,
        (keys, patience): (Option<PathBuf>, Duration),
    ) -> PyResult<Self> {
        let is_remote = edges.iter().any(|address| address.as_unix().is_none());
        let credentials = match is_remote {
            true => {
                let keys = keys.map_or_else(|| keys::of_application(py), |keys| Ok(Some(keys)))?;
                Some(keys::credentials(py, keys.as_deref(), Role::App, None)?)
            }
            false => None,
        };
        let options = PublisherOptions { patience, waiting_frames_max: WAITING_RECORDS_MAX };
        let connect = || PublisherClient::connect_to_edge(edges, credentials.as_ref(), stream, options);
        let client = finish(py, background, connect)?.map_err(|failure| error::client(py, &failure))?;
        Ok(Self::of(background, client, true))
    }

    fn of(background: &'static Background, client: PublisherClient, is_derived: bool) -> Self {
        let (client, news) = (Arc::new(client), Arc::<News>::default());
        let sort = background.spawn(News::sort(Arc::clone(&news), Arc::clone(&client)));
        Self { client, news, is_derived, _sort: sort }
    }

    /// Whether it leads to an edge.
    pub(crate) fn is_derived(&self) -> bool {
        self.is_derived
    }

    /// Whether the broker is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.client.is_connected()
    }

    pub(crate) fn counts(&self) -> PublisherCounts {
        self.client.counts()
    }

    /// Tells the broker that no more frames follow.
    pub(crate) async fn finish(&self) {
        self.client.finish().await;
    }

    /// Tells the broker why the source gives no frames.
    pub(crate) fn tell_lost(&self, reason: &str) {
        self.client.tell_lost(reason);
    }

    /// Publishes with `send`, and waits up to [`ANSWER_TIME_MAX`] for the broker's answer. `None` without an answer:
    /// a newer frame replaced this one, or the broker is away. Do not call it while attached to the interpreter.
    pub(crate) fn publish(
        &self,
        send: impl FnOnce(&PublisherClient) -> Result<u64, SendError>,
    ) -> Result<Option<FrameId>, Refusal> {
        if self.is_derived {
            return self.publish_derived(send).map(Some);
        }
        let is_away = !self.client.is_connected() && lock(&self.news.sorted).failed.is_none();
        let number = send(&self.client).map_err(Refusal::Send)?;
        if is_away {
            // The client counts the frame as dropped.
            return Ok(None);
        }
        let mut answer = None;
        self.news.wait(ANSWER_TIME_MAX, |sorted| {
            answer = sorted.take_answer(number);
            answer.is_some() || sorted.failed.is_some() || !self.client.is_connected()
        });
        answer.transpose().map_err(Refusal::Broker)
    }

    /// Publishes a record of a derived stream. On success it is in the stream; otherwise the error says whether it may be.
    fn publish_derived(
        &self,
        send: impl FnOnce(&PublisherClient) -> Result<u64, SendError>,
    ) -> Result<FrameId, Refusal> {
        self.asked(EDGE_TIME_MAX, send, Sorted::take_answer)
    }

    /// Waits until a record of a derived stream, and every one before it, is on disk as
    /// the edge's store guarantees. Do not call it while attached to the interpreter.
    pub(crate) fn wait_on_disk(&self, frame: FrameId) -> Result<(), Refusal> {
        let time_max = ON_DISK_TIME_MAX + EDGE_TIME_MAX;
        self.asked(time_max, |client| client.await_on_disk(frame), Sorted::take_on_disk)
    }

    /// Sends a request to the edge when it is connected, and waits for its answer.
    fn asked<T>(
        &self,
        time_max: Duration,
        ask: impl FnOnce(&PublisherClient) -> Result<u64, SendError>,
        mut answered: impl FnMut(&mut Sorted, u64) -> Option<Result<T, ApiError>>,
    ) -> Result<T, Refusal> {
        self.news.wait(EDGE_TIME_MAX, |sorted| self.client.is_connected() || sorted.failed.is_some());
        if let Some(failure) = lock(&self.news.sorted).failed.clone() {
            return Err(Refusal::Over(failure));
        }
        if !self.client.is_connected() {
            return Err(Refusal::Away { is_sent: false });
        }
        let number = ask(&self.client).map_err(Refusal::Send)?;
        let mut answer = None;
        self.news.wait(time_max, |sorted| {
            answer = answered(sorted, number);
            answer.is_some() || sorted.failed.is_some() || !self.client.is_connected()
        });
        match (answer, lock(&self.news.sorted).failed.clone()) {
            (Some(answer), _) => answer.map_err(Refusal::Broker),
            (None, Some(failure)) => Err(Refusal::Over(failure)),
            (None, None) => Err(Refusal::Away { is_sent: true }),
        }
    }

    /// Takes answers that leave the edge no later than `bound` after their frame's capture.
    pub(crate) fn begin_answers(
        &self,
        py: Python<'_>,
        background: &'static Background,
        bound: Duration,
    ) -> PyResult<()> {
        match finish(py, background, || self.client.begin_answers(bound))? {
            Ok(()) => Ok(()),
            Err(ClientError::Refused(refusal)) if refusal.reason == ANSWERS_TAKEN => {
                Err(error::with(py, error::raise(py, "BusyError", &refusal), "reason", &refusal.reason))
            }
            Err(failure) => Err(error::client(py, &failure)),
        }
    }

    pub(crate) fn end_answers(&self) {
        self.client.set_answers(None);
    }

    /// The newest answer, when there is one that was not given yet. `None`: no answers are taken.
    pub(crate) async fn next_answer(&self) -> Result<Option<(Answered, AnswerSkips)>, ClientError> {
        self.client.next_answer().await.transpose()
    }

    pub(crate) fn answers_skipped(&self) -> AnswerSkips {
        self.client.answers_skipped()
    }

    /// Waits for the next reply.
    pub(crate) fn next_reply(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        stopped: impl Fn() -> bool,
    ) -> PyResult<Waited<Reply>> {
        loop {
            let mut reply = None;
            let slice = deadline.slice();
            let failed = py.detach(|| {
                self.news.wait(slice, |sorted| {
                    reply = sorted.replies.pop_front();
                    reply.is_some() || sorted.failed.is_some()
                });
                lock(&self.news.sorted).failed.clone()
            });
            match (reply, failed) {
                (Some(reply), _) => return Ok(Waited::Done(reply)),
                (None, Some(failure)) => return Err(error::client(py, &failure)),
                (None, None) => {}
            }
            log::hand_on(py);
            py.check_signals()?;
            if stopped() {
                return Ok(Waited::Stopped);
            }
            if deadline.has_passed() {
                return Ok(Waited::TimedOut);
            }
        }
    }
}

impl News {
    /// Waits until `is_here` returns true, at most for `limit`.
    fn wait(&self, limit: Duration, mut is_here: impl FnMut(&mut Sorted) -> bool) {
        let until = StdInstant::now() + limit;
        let mut sorted = lock(&self.sorted);
        while !is_here(&mut sorted) {
            let left = until.saturating_duration_since(StdInstant::now());
            if left.is_zero() {
                return;
            }
            sorted = self.came.wait_timeout(sorted, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    async fn sort(news: Arc<Self>, client: Arc<PublisherClient>) {
        while let Some(event) = client.next_event().await {
            let mut sorted = lock(&news.sorted);
            match event {
                PublisherEvent::Accepted { number, frame } => add(&mut sorted.answers, number, Ok(frame)),
                PublisherEvent::Refused { number, error } => add(&mut sorted.answers, number, Err(error)),
                PublisherEvent::OnDisk { number, error } => {
                    add(&mut sorted.on_disk, number, error.map_or(Ok(()), Err));
                }
                PublisherEvent::Reply { frame, application, content } => {
                    if sorted.replies.len() == REPLIES_MAX {
                        sorted.replies.pop_front();
                    }
                    sorted.replies.push_back(Reply { frame, application, content });
                }
                PublisherEvent::Failed { reason } => sorted.failed = Some(reason),
                PublisherEvent::Disconnected { .. } | PublisherEvent::Reconnected => {}
            }
            drop(sorted);
            news.came.notify_all();
        }
    }
}

impl Sorted {
    fn take_answer(&mut self, number: u64) -> Option<Result<FrameId, ApiError>> {
        take(&mut self.answers, number)
    }

    fn take_on_disk(&mut self, number: u64) -> Option<Result<(), ApiError>> {
        take(&mut self.on_disk, number)
    }
}

/// Adds an answer. If there are too many, the oldest, which nobody took, is dropped.
fn add<T>(answers: &mut VecDeque<(u64, T)>, number: u64, answer: T) {
    if answers.len() == ANSWERS_MAX {
        answers.pop_front();
    }
    answers.push_back((number, answer));
}

fn take<T>(answers: &mut VecDeque<(u64, T)>, number: u64) -> Option<T> {
    let position = answers.iter().position(|(answered, _)| *answered == number)?;
    answers.remove(position).map(|(_, answer)| answer)
}
