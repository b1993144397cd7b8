//! Publishes frames through a camera broker in another process, and derived streams at an edge.

mod answers;
mod queue;
mod types;

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mez_core::broker::Published;
use mez_core::broker::edge::DERIVED_BYTES_MAX;
use mez_core::data::DataRecord;
use mez_core::frame::{Encoding, Epoch, FrameId, Sequence};
use mez_core::name::CameraName;
use mez_core::units::{Instant, Timestamp};
use tokio::sync::Notify;

use self::answers::Answers;
use self::queue::Queue;
pub use self::types::{DerivedStream, PublisherCounts, PublisherEvent, PublisherOptions, SendError};
use super::address::Address;
use super::dial::Dialler;
use super::error::ClientError;
use super::streams::{AnswerStream, FrameSink};
use super::{OwnedTask, REDIAL_INTERVAL, persist};
use crate::api::pb::publish_event::Event as Message;
use crate::api::socket::Which;
use crate::api::{convert, pb};
use crate::clock::monotonic_now;
use crate::identity::Credentials;
use crate::reply::ReplyContent;

/// The most events that wait for the program. Beyond that, the oldest is dropped.
const EVENTS_MAX: usize = 1024;

/// Publishes the frames of one camera through a camera broker in another process.
/// Reconnects by itself. Dropping it ends the publishing, and unsent frames are lost.
pub struct PublisherClient {
    shared: Arc<Shared>,
    camera: CameraName,
    /// The largest payload that the broker takes, as it reported on the first connection.
    frame_bytes_max: u32,
    answers: Arc<Answers>,
    _task: OwnedTask,
    _answers_task: OwnedTask,
}

struct Shared {
    state: Mutex<State>,
    /// The stream for frames, while there is a connection. The task that sends holds the lock.
    sink: tokio::sync::Mutex<Option<FrameSink>>,
    /// Signals that there is a frame to send.
    frame: Notify,
    /// Signals that there is an event to take.
    event: Notify,
    /// Signals that a frame was answered, dropped or lost.
    settled: Notify,
}

#[derive(Default)]
struct State {
    next_number: u64,
    queue: Queue,
    /// Whether a request that is no longer in `queue` is being sent, so that the next one must wait.
    sending: bool,
    connected: bool,
    events: VecDeque<PublisherEvent>,
    over: Option<ClientError>,
    /// The program has said that nothing follows: the end of the connection is not an error.
    finished: bool,
    /// Why the source gives no frames, since the last frame that the program sent.
    lost: Option<String>,
    /// Whether the broker has not been told that yet.
    lost_untold: bool,
}

impl PublisherClient {
    /// Connects to the camera broker at `address`, to publish as `camera` or as the
    /// broker's only camera. `credentials` are needed except for a Unix socket.
    pub async fn connect(
        address: Address,
        credentials: Option<&Credentials>,
        camera: Option<&CameraName>,
        options: PublisherOptions,
    ) -> Result<Self, ClientError> {
        let diallers = vec![Dialler::new(address, Which::Camera, credentials)?];
        let asked = camera.map(ToString::to_string).unwrap_or_default();
        let first = pb::PublishRequest { camera: asked, ..Default::default() };
        Self::open(Brokers { diallers, at: 0 }, first, u32::MAX, options).await
    }

    /// Publishes a derived stream at the first edge broker of `addresses` that takes it. The addresses are in
    /// order of preference. At least one is needed. If that edge is gone, the stream continues at the next
    /// one, which numbers its records from the start. `credentials` are needed except for a Unix socket.
    pub async fn connect_to_edge(
        addresses: Vec<Address>,
        credentials: Option<&Credentials>,
        stream: &DerivedStream,
        options: PublisherOptions,
    ) -> Result<Self, ClientError> {
        let diallers = addresses.into_iter().map(|address| Dialler::new(address, Which::Edge, credentials));
        let diallers = diallers.collect::<Result<Vec<_>, _>>()?;
        let derived_from = stream.of.iter().map(ToString::to_string).collect();
        let camera = stream.name.to_string();
        let first = pb::PublishRequest { camera, derived_from, ..Default::default() };
        Self::open(Brokers { diallers, at: 0 }, first, DERIVED_BYTES_MAX, options).await
    }

    async fn open(
        mut brokers: Brokers,
        first: pb::PublishRequest,
        bytes_max: u32,
        options: PublisherOptions,
    ) -> Result<Self, ClientError> {
        let at = Cell::new(0);
        let opened = persist(options.patience, async || {
            let dialler = &brokers.diallers[at.get()];
            let opened = async {
                let broker = dialler.connect().await?;
                Ok((broker.frame_bytes_max.min(bytes_max), dialler.publish(first.clone()).await?))
            };
            let opened = opened.await;
            if opened.is_err() {
                at.set((at.get() + 1) % brokers.diallers.len());
            }
            opened
        });
        let (frame_bytes_max, (sink, answers, started)) = opened.await?;
        brokers.at = at.get();
        let name = started.camera.parse();
        let camera: CameraName = name.map_err(|_| brokers.current().protocol("a camera's name"))?;
        let first = pb::PublishRequest { camera: camera.to_string(), ..first };
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                connected: true,
                queue: Queue::new(options.waiting_frames_max),
                ..State::default()
            }),
            sink: tokio::sync::Mutex::new(Some(sink)),
            frame: Notify::new(),
            event: Notify::new(),
            settled: Notify::new(),
        });
        let taken = Answers::new();
        let taking = Arc::clone(&taken).run(brokers.current().clone(), camera.clone());
        let work = run(brokers, first, Arc::clone(&shared), answers);
        Ok(Self {
            shared,
            camera,
            frame_bytes_max,
            answers: taken,
            _task: OwnedTask::spawn(work),
            _answers_task: OwnedTask::spawn(taking),
        })
    }

    /// The largest payload that the broker takes.
    pub fn frame_bytes_max(&self) -> u32 {
        self.frame_bytes_max
    }

    /// The camera.
    pub fn camera(&self) -> &CameraName {
        &self.camera
    }

    /// Sends a frame, and returns its number for events. Works on any thread and does not
    /// wait. A frame that the broker does not accept in time makes room for newer ones.
    pub fn send(&self, frame: Published) -> Result<u64, SendError> {
        self.send_at(monotonic_now(), frame)
    }

    /// Like [`PublisherClient::send`], for a frame that the program got at `had`, by this machine's monotonic clock.
    pub fn send_at(&self, had: Instant, frame: Published) -> Result<u64, SendError> {
        let Published { payload, encoding, width, height, captured } = frame;
        let bytes = payload.len();
        if width == 0 || height == 0 || bytes == 0 {
            return Err(SendError::Empty { width, height, bytes });
        }
        let picture =
            pb::PublishRequest { encoding: encoding as i32, width, height, payload, ..Default::default() };
        self.pass_on(had, captured, picture)
    }

    /// Sends a data record, like [`PublisherClient::send`] a frame. `captured`: its time, if not now.
    pub fn send_data(&self, record: DataRecord, captured: Option<Timestamp>) -> Result<u64, SendError> {
        let DataRecord { content_type, of, body } = record;
        if body.is_empty() {
            return Err(SendError::EmptyData);
        }
        let data = pb::PublishRequest {
            encoding: Encoding::Data as i32,
            content_type: content_type.as_str().into(),
            of: of.map(convert::origin),
            payload: body,
            ..Default::default()
        };
        self.pass_on(monotonic_now(), captured, data)
    }

    /// Asks an edge when a record of the derived stream, and all records before it, are durable in the edge's store. Returns the
    /// number of the [`PublisherEvent::OnDisk`] that answers, within a little more than 5 s while there is a connection. If
    /// waiting frames leave no room for the question, the answer comes at once, with the reason `TOO_MANY_AWAITED`. Does not wait.
    pub fn await_on_disk(&self, frame: FrameId) -> Result<u64, SendError> {
        let mut state = self.shared.lock();
        if let Some(reason) = &state.over {
            return Err(SendError::Over(reason.clone()));
        }
        let number = state.next_number;
        state.next_number += 1;
        if state.connected {
            let awaited = pb::AwaitOnDisk { epoch: frame.epoch.0, sequence: frame.sequence.0 };
            let request = pb::PublishRequest { number, await_on_disk: Some(awaited), ..Default::default() };
            self.shared.pass_on(state, request);
        }
        Ok(number)
    }

    /// Numbers a frame or record that the program got at `had`, and sends it.
    fn pass_on(
        &self,
        had: Instant,
        captured: Option<Timestamp>,
        request: pb::PublishRequest,
    ) -> Result<u64, SendError> {
        let bytes = request.payload.len();
        if bytes > self.frame_bytes_max as usize {
            return Err(SendError::TooLarge { bytes, bytes_max: self.frame_bytes_max });
        }
        let mut state = self.shared.lock();
        if let Some(reason) = &state.over {
            return Err(SendError::Over(reason.clone()));
        }
        let number = state.next_number;
        state.next_number += 1;
        let connected = state.connected;
        state.queue.note_frame(connected);
        (state.lost, state.lost_untold) = (None, false);
        if !connected {
            return Ok(number);
        }
        let request = pb::PublishRequest {
            number,
            captured_utc_ns: captured.map(Timestamp::as_nanos),
            captured_monotonic_ns: Some(had.as_nanos()),
            ..request
        };
        self.shared.pass_on(state, request);
        Ok(number)
    }

    /// The next event. `None` after [`PublisherEvent::Failed`], or once the broker has processed
    /// [`PublisherClient::finish`]. If events are not taken, the oldest beyond 1024 are dropped. Cancel safe.
    pub async fn next_event(&self) -> Option<PublisherEvent> {
        loop {
            {
                let mut state = self.shared.lock();
                match state.events.pop_front() {
                    Some(event) => return Some(event),
                    None if state.over.is_some() || state.finished && !state.connected => return None,
                    None => {}
                }
            }
            self.shared.event.notified().await;
        }
    }

    /// The counts of frames so far.
    pub fn counts(&self) -> PublisherCounts {
        self.shared.lock().queue.counts()
    }

    /// Whether the broker is connected.
    pub fn is_connected(&self) -> bool {
        self.shared.lock().connected
    }

    /// Tells the broker, after all sent frames, that nothing follows. A publisher
    /// that disconnects without this counts as lost. Send nothing after this call.
    pub async fn finish(&self) {
        self.set_answers(None);
        self.flush().await;
        let lost = {
            let mut state = self.shared.lock();
            state.finished = true;
            state.lost.clone().unwrap_or_default()
        };
        if let Some(sink) = &mut *self.shared.sink.lock().await {
            // If the broker is gone, the message is not needed.
            let last = pb::PublishRequest { last: true, source_lost: lost, ..Default::default() };
            let _ = sink.send(last).await;
        }
    }

    /// Tells the broker, after all sent frames, that the source gives no frames for now, and why.
    /// The next frame cancels this. Does not wait. A broker that is away is told when it is back.
    pub fn tell_lost(&self, reason: &str) {
        let mut state = self.shared.lock();
        (state.lost, state.lost_untold) = (Some(reason.to_owned()), true);
        drop(state);
        self.shared.frame.notify_one();
    }

    /// Waits until every frame so far was answered, dropped or lost.
    pub async fn flush(&self) {
        loop {
            let settled = self.shared.settled.notified();
            {
                let state = self.shared.lock();
                if state.queue.is_settled() {
                    return;
                }
            }
            settled.await;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each statement leaves the state consistent, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request on the calling thread if this needs no waiting, which saves waking another thread. Otherwise leaves the request to the task.
    fn pass_on<'a>(&'a self, mut state: MutexGuard<'a, State>, mut request: pb::PublishRequest) {
        let idle = !state.sending && !state.queue.waits();
        let mut unasked = None;
        if idle
            && let Ok(mut sink) = self.sink.try_lock()
            && let Some(sink) = &mut *sink
            && sink.is_at_once(request.payload.len())
        {
            // While `sending` is set, nobody else sends, so the order is kept.
            state.sending = true;
            // Counted before the answer can come.
            state.queue.note_sending(&request);
            drop(state);
            let sent = sink.send_at_once(&mut request);
            state = self.lock();
            state.sending = false;
            if !sent {
                unasked = state.queue.take_back(request);
            }
        } else {
            unasked = state.queue.push(request);
        }
        if let Some(unasked) = unasked {
            state.add_event(unasked.into_event());
            self.event.notify_one();
        }
        let waiting = state.queue.waits();
        drop(state);
        if waiting {
            self.frame.notify_one();
        }
    }

    /// Waits for the next request to send: a frame, a question, or the message that the source gives no frames.
    async fn next_request(&self) -> pb::PublishRequest {
        loop {
            {
                let mut state = self.lock();
                if !state.sending
                    && let Some(request) = state.queue.pop()
                {
                    state.sending = true;
                    return request;
                }
                if !state.sending
                    && let Some(reason) = state.lost.clone().filter(|_| state.lost_untold)
                {
                    // The broker does not answer this request.
                    (state.sending, state.lost_untold) = (true, false);
                    return pb::PublishRequest { source_lost: reason, ..Default::default() };
                }
            }
            self.frame.notified().await;
        }
    }

    fn tell(&self, event: PublisherEvent) {
        let mut state = self.lock();
        state.queue.handle(&event);
        // Set under the same lock as the event: a program that knows the event cannot send, and `over` is not visible before the event.
        if let PublisherEvent::Failed { reason } = &event {
            state.over = Some(reason.clone());
        }
        state.add_event(event);
        drop(state);
        self.event.notify_one();
        self.settled.notify_waiters();
    }

    /// Handles a lost connection.
    fn disconnected(&self) {
        let mut state = self.lock();
        state.connected = false;
        state.sending = false;
        state.lost_untold = state.lost.is_some();
        state.queue.handle_disconnected();
        drop(state);
        self.settled.notify_waiters();
    }

    fn fail(&self, reason: ClientError) {
        self.tell(PublisherEvent::Failed { reason });
    }
}

impl State {
    /// Queues an event for the program.
    fn add_event(&mut self, event: PublisherEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

/// The brokers that take the stream, in order of preference, and the index of the one in use.
struct Brokers {
    diallers: Vec<Dialler>,
    at: usize,
}

impl Brokers {
    fn current(&self) -> &Dialler {
        &self.diallers[self.at]
    }
}

async fn run(
    mut brokers: Brokers,
    first: pb::PublishRequest,
    shared: Arc<Shared>,
    mut answers: AnswerStream,
) {
    loop {
        let reason = publish(brokers.current(), &shared, answers).await;
        *shared.sink.lock().await = None;
        shared.disconnected();
        if shared.lock().finished {
            // Another connection would begin another publishing, and its end would count as a loss.
            return shared.event.notify_one();
        }
        if !reason.is_passing() {
            return shared.fail(reason);
        }
        shared.tell(PublisherEvent::Disconnected { reason });
        let sink;
        (sink, answers) = loop {
            tokio::time::sleep(REDIAL_INTERVAL).await;
            if shared.lock().finished {
                return shared.event.notify_one();
            }
            let dialler = brokers.current();
            let opened = async {
                if dialler.is_remote() {
                    // A restarted broker, perhaps on another host, has another clock.
                    dialler.forget_clock();
                    dialler.connect().await?;
                }
                dialler.publish(first.clone()).await
            };
            match opened.await {
                Ok((sink, answers, _)) => break (sink, answers),
                Err(error) if error.is_passing() => brokers.at = (brokers.at + 1) % brokers.diallers.len(),
                Err(error) => return shared.fail(error),
            }
        };
        *shared.sink.lock().await = Some(sink);
        shared.lock().connected = true;
        shared.tell(PublisherEvent::Reconnected);
    }
}

/// Sends frames and receives answers until the connection is lost. Returns the reason.
async fn publish(dialler: &Dialler, shared: &Shared, mut answers: AnswerStream) -> ClientError {
    let send = async {
        loop {
            let mut request = shared.next_request().await;
            request.captured_monotonic_ns =
                request.captured_monotonic_ns.and_then(|had| dialler.to_theirs(had));
            let sent = match &mut *shared.sink.lock().await {
                Some(sink) => sink.send(request).await,
                // The stream is removed only after this future has ended.
                None => std::future::pending().await,
            };
            shared.lock().sending = false;
            if let Err(lost) = sent {
                return lost.explain(dialler.address());
            }
        }
    };
    let listen = async {
        loop {
            match answers.next().await {
                Ok(Some(answer)) => {
                    if let Some(event) = event(answer) {
                        shared.tell(event);
                    }
                }
                Ok(None) => {
                    return ClientError::Unreachable {
                        address: dialler.address().clone(),
                        reason: "the broker closed the connection".into(),
                    };
                }
                Err(error) => return error,
            }
        }
    };
    tokio::select! {
        // If both are ready, the broker's own reason is more helpful.
        biased;
        reason = listen => reason,
        reason = send => reason,
    }
}

fn event(answer: Message) -> Option<PublisherEvent> {
    let id = |epoch, sequence| FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) };
    Some(match answer {
        Message::Started(_) => return None,
        Message::Accepted(pb::Accepted { number, epoch, sequence }) => {
            PublisherEvent::Accepted { number, frame: id(epoch, sequence) }
        }
        Message::Refused(pb::Refused { number, error }) => {
            PublisherEvent::Refused { number, error: error.unwrap_or_default().into() }
        }
        Message::OnDisk(pb::OnDisk { number, error }) => {
            PublisherEvent::OnDisk { number, error: error.map(Into::into) }
        }
        Message::Reply(pb::Reply { epoch, sequence, application, content }) => {
            let frame = id(epoch, sequence);
            match ReplyContent::from_reply(content) {
                Ok(content) => PublisherEvent::Reply { frame, application, content },
                Err(error) => {
                    tracing::debug!(%frame, application, "a reply cannot be read: {error}");
                    return None;
                }
            }
        }
    })
}
