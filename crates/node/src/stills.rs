//! Makes stills of chained frames, on demand, for readers that do not decode chains.
//! Also makes pictures for readers on this host that share them (`pictures/`).
//!
//! Each camera has a thread for this while there are requests, at the edge and at the camera's own broker. The
//! thread drives the state machine of `mez-core`. Frames are decoded on other threads, or by a process beside
//! this one (`pictures/service/`). A decoder that panics or hangs costs its frame and its chain (`transcode.rs`).

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use mez_core::frame::{Encoding, FrameId};
use mez_core::log::LogReader;
use mez_core::name::CameraName;
use mez_core::stills::{
    DECODERS_MAX, Decoded, Form, PictureAnswer, StillAnswer, StillMaker, StillOutput, StillQuery,
};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use crate::clock::monotonic_now;
use crate::decoders::Decoders;
use crate::pictures::{
    DecoderBeside, PictureService, PictureStore, Sharing, Slot, Writer, picture_bytes_max,
};
use crate::transcode::{ChainDecoder, Failure, Task};

/// Capacity of the queue to the thread. Each reader of the camera has at most one open request.
const JOBS_MAX: usize = 1024;
/// The most records to search for a later picture.
const RECORDS_LOOKED_AT_MAX: usize = 64;
/// Of one camera's failures, one in this many is logged.
const LOGGED_ONCE_IN: u64 = 100;

/// Asks the camera for a new chain. Must not block.
type AskForChain = Arc<dyn Fn() + Send + Sync>;

/// The decoders besides the library in this process.
#[derive(Clone, Debug)]
pub(crate) struct Helpers {
    /// Decoders of the platform.
    pub(crate) decoders: Decoders,
    /// A process that decodes for programs of this host.
    pub(crate) pictures: PictureService,
}

impl Helpers {
    /// Only these decoders, and no process beside this one.
    pub(crate) fn only(decoders: Decoders) -> Self {
        Self { decoders, pictures: PictureService::off() }
    }

    /// Whether shared pictures of an encoding are made in the process beside this one.
    /// Encodings that this process does not know are decoded by a child process anyway.
    fn decode_beside(&self, encoding: Encoding) -> bool {
        let is_of_library = encoding.is_chained() && !encoding.is_foreign();
        self.pictures.is_on() && is_of_library && self.decoders.outside().is_none()
    }
}

/// Makes the stills of one camera's frames.
pub(crate) struct Stills {
    camera: CameraName,
    log: LogReader,
    ask_for_chain: AskForChain,
    helpers: Helpers,
    /// The readers of the camera that could share pictures. May outlive this value.
    sharing: Arc<Sharing>,
    /// The memory of the camera's pictures.
    memories: Arc<PictureStore>,
    /// The queue to the thread, if the thread runs.
    thread: Mutex<Option<SyncSender<Job>>>,
}

enum Job {
    Ask(StillQuery, oneshot::Sender<StillAnswer>),
    Picture(FrameId, oneshot::Sender<PictureAnswer>),
    /// Records were appended to the log.
    Appended,
}

impl Stills {
    /// Makes stills of the frames in this log. The thread starts with the first request. `ask_for_chain` is
    /// called if a chain cannot be decoded any further, or if decoding it takes long. It must not block.
    pub(crate) fn new(
        camera: CameraName,
        log: LogReader,
        helpers: Helpers,
        ask_for_chain: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (ask_for_chain, sharing, memories) = (Arc::new(ask_for_chain), Arc::default(), Arc::default());
        Arc::new(Self { camera, log, ask_for_chain, helpers, sharing, memories, thread: Mutex::default() })
    }

    /// Requests the still of a frame. The sender is dropped without an answer if no still can be made.
    pub(crate) fn ask(self: &Arc<Self>, query: StillQuery) -> oneshot::Receiver<StillAnswer> {
        let (answer, answered) = oneshot::channel();
        self.give(Job::Ask(query, answer));
        answered
    }

    /// Requests the picture of the newest frame. The sender is dropped without an answer if no picture can be made.
    pub(crate) fn ask_for_picture(self: &Arc<Self>, frame: FrameId) -> oneshot::Receiver<PictureAnswer> {
        let (answer, answered) = oneshot::channel();
        self.give(Job::Picture(frame, answer));
        answered
    }

    /// The readers of the camera that could share pictures.
    pub(crate) fn sharing(&self) -> &Arc<Sharing> {
        &self.sharing
    }

    /// The memory of the camera's pictures.
    pub(crate) fn memories(&self) -> &PictureStore {
        &self.memories
    }

    /// Whether pictures can be made of a chain of this encoding that begins now. Starts the process for this if needed.
    pub(crate) fn can_share(&self, encoding: Encoding) -> bool {
        !self.helpers.decode_beside(encoding) || self.helpers.pictures.is_ready()
    }

    /// Whether the log has a later picture than this frame. Data records do not count. The search ends after [`RECORDS_LOOKED_AT_MAX`] records.
    pub(crate) fn have_newer_than(&self, frame: FrameId) -> bool {
        let behind = self.log.index_of(frame.next())..self.log.held().end;
        let mut records = behind.take(RECORDS_LOOKED_AT_MAX).filter_map(|index| self.log.get(index));
        records.any(|record| record.frame.meta.encoding.is_picture())
    }

    /// Passes a job to the thread, and starts the thread if needed.
    fn give(self: &Arc<Self>, job: Job) {
        let mut thread = lock(&self.thread);
        let left = match &*thread {
            Some(running) => running.try_send(job).err(),
            None => Some(TrySendError::Disconnected(job)),
        };
        if let Some(TrySendError::Disconnected(job)) = left {
            let (sender, jobs) = sync_channel(JOBS_MAX);
            // A new channel has room.
            let _ = sender.try_send(job);
            let (shared, camera) = (Arc::downgrade(self), self.camera.clone());
            let service = Service::new(camera, self);
            let serve = move || service.serve(&shared, &jobs);
            *thread = match thread::Builder::new().name("mez stills".into()).spawn(serve) {
                Ok(_) => Some(sender),
                Err(error) => {
                    warn!(camera = %self.camera, "no stills can be made of this camera's frames: {error}");
                    None
                }
            };
        }
    }

    /// Wakes the thread after records were appended to the log.
    pub(crate) fn wake(&self) {
        if let Some(running) = &*lock(&self.thread) {
            // If the queue is full, the thread looks at the log anyway.
            let _ = running.try_send(Job::Appended);
        }
    }

    /// Whether this makes stills of the frames in `log`.
    pub(crate) fn is_of(&self, log: &LogReader) -> bool {
        self.log.share().log == log.share().log
    }
}

/// The state of the thread.
struct Service {
    camera: CameraName,
    maker: StillMaker,
    ask_for_chain: AskForChain,
    helpers: Helpers,
    sharing: Arc<Sharing>,
    memories: Arc<PictureStore>,
    decoders: [Seat; DECODERS_MAX],
    /// The open requests by number.
    waiting: HashMap<u64, Waiting>,
    questions: u64,
    failures: u64,
}

/// A decoder, in this process or in another one.
enum Seat {
    Here(ChainDecoder),
    Beside(DecoderBeside),
}

impl Seat {
    fn here(helpers: &Helpers) -> Self {
        Self::Here(ChainDecoder::with(&helpers.decoders))
    }

    fn run(&mut self, task: Task, slot: Option<Slot>) -> (Decoded, Option<Failure>) {
        match self {
            Self::Here(decoder) => decoder.run(task, slot),
            Self::Beside(decoder) => decoder.run(task, slot),
        }
    }

    /// A slot for a picture of at most `bytes`, which this decoder will fill.
    fn slot(&mut self, bytes: usize, memories: &PictureStore) -> Option<Slot> {
        match self {
            Self::Here(_) => memories.slot(bytes, Writer::Here, |_| Ok(())),
            Self::Beside(decoder) => {
                memories.slot(bytes, Writer::Beside(decoder.number()), |file| decoder.map(file))
            }
        }
    }
}

/// An open request.
enum Waiting {
    ForStill(oneshot::Sender<StillAnswer>),
    ForPicture(oneshot::Sender<PictureAnswer>),
}

impl Waiting {
    fn has_gone(&self) -> bool {
        match self {
            Self::ForStill(waiting) => waiting.is_closed(),
            Self::ForPicture(waiting) => waiting.is_closed(),
        }
    }
}

impl Service {
    fn new(camera: CameraName, stills: &Stills) -> Self {
        let helpers = stills.helpers.clone();
        Self {
            camera,
            maker: StillMaker::new(stills.log.clone()),
            ask_for_chain: Arc::clone(&stills.ask_for_chain),
            decoders: std::array::from_fn(|_| Seat::here(&helpers)),
            helpers,
            sharing: Arc::clone(&stills.sharing),
            memories: Arc::clone(&stills.memories),
            waiting: HashMap::new(),
            questions: 0,
            failures: 0,
        }
    }

    /// Works until there was no request for a while, or the camera is forgotten.
    fn serve(mut self, shared: &Weak<Stills>, jobs: &Receiver<Job>) {
        loop {
            let job = match self.maker.poll_timeout() {
                Some(due) => jobs.recv_timeout(due.saturating_since(monotonic_now())),
                None if self.maker.is_idle() => match rest(shared, jobs) {
                    Some(job) => Ok(job),
                    None => return,
                },
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match job {
                Ok(job) => self.take(job),
                Err(RecvTimeoutError::Timeout) => self.maker.handle_timeout(monotonic_now()),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Some(output) = self.maker.poll_output() {
                self.perform(output);
                // A request for the newest frame must not wait for all frames that another request needs.
                while let Ok(job) = jobs.try_recv() {
                    self.take(job);
                }
            }
        }
    }

    fn take(&mut self, job: Job) {
        let now = monotonic_now();
        match job {
            Job::Ask(query, answer) => {
                let question = self.waits(Waiting::ForStill(answer));
                self.maker.handle_query(now, question, query);
            }
            Job::Picture(frame, answer) => {
                let question = self.waits(Waiting::ForPicture(answer));
                self.maker.handle_picture_query(now, question, frame);
            }
            Job::Appended => self.maker.handle_appended(now),
        }
    }

    /// Registers a request, and returns its number.
    fn waits(&mut self, waiting: Waiting) -> u64 {
        let gone: Vec<u64> =
            self.waiting.extract_if(|_, waiting| waiting.has_gone()).map(|(gone, _)| gone).collect();
        gone.into_iter().for_each(|question| self.maker.handle_dropped(question));
        self.questions += 1;
        self.waiting.insert(self.questions, waiting);
        self.questions
    }

    fn perform(&mut self, output: StillOutput) {
        match output {
            StillOutput::Decode { decoder, frame, afresh, wanted } => {
                let id = frame.meta.id;
                self.run(decoder, id, Task::Decode { frame, afresh, wanted });
            }
            StillOutput::Show { decoder, frame, form } => {
                self.run(decoder, frame, Task::Show(frame.sequence, form));
            }
            StillOutput::Release { decoder } => {
                self.decoders[decoder] = Seat::here(&self.helpers);
            }
            StillOutput::Answer { question, answer } => {
                if let Some(Waiting::ForStill(waiting)) = self.waiting.remove(&question) {
                    let _ = waiting.send(answer);
                }
            }
            StillOutput::Picture { question, answer } => {
                if let Some(Waiting::ForPicture(waiting)) = self.waiting.remove(&question) {
                    let _ = waiting.send(answer);
                }
            }
            StillOutput::ChainLost => (self.ask_for_chain)(),
            StillOutput::TriesAgain { frame } => {
                let camera = &self.camera;
                debug!(%camera, %frame, "a decoder failed on a frame; its chain is decoded again for readers of past frames");
            }
        }
    }

    /// Makes a decoder run a task, and reports the result to the maker.
    fn run(&mut self, decoder: usize, frame: FrameId, task: Task) {
        if let Task::Decode { frame, .. } = &task
            && frame.meta.chain.index == 0
        {
            self.seat(decoder, frame.meta.encoding);
        }
        let slot = self.slot(decoder, frame, &task);
        let (decoded, failure) = self.decoders[decoder].run(task, slot);
        let (camera, failures) = (&self.camera, self.failures);
        match (&decoded, failure) {
            (Decoded::Failed, Some(error)) => {
                if failures.is_multiple_of(LOGGED_ONCE_IN) {
                    warn!(%camera, %frame, failures, "a frame could not be decoded: {error}");
                }
                self.failures += 1;
            }
            (_, Some(error)) => debug!(%camera, %frame, "a frame is not available as a picture: {error}"),
            (_, None) => {}
        }
        self.maker.handle_decoded(monotonic_now(), decoder, frame, decoded);
    }
}

impl Service {
    /// Replaces a decoder by one in the right process. Only where a chain begins, since a decoder then needs no earlier frames.
    fn seat(&mut self, decoder: usize, encoding: Encoding) {
        let is_beside = self.sharing.is_shared() && self.helpers.decode_beside(encoding);
        let seat = &mut self.decoders[decoder];
        let is_there = match seat {
            Seat::Here(_) => !is_beside,
            Seat::Beside(decoder) => is_beside && !decoder.has_failed(),
        };
        if is_there {
            return;
        }
        match is_beside.then(|| self.helpers.pictures.decoder()).flatten() {
            Some(decoder) => *seat = Seat::Beside(decoder),
            None if matches!(seat, Seat::Beside(_)) => *seat = Seat::here(&self.helpers),
            None => {}
        }
    }

    /// The slot for the picture of a frame. `None` if no picture is requested, or if there is no room.
    fn slot(&mut self, decoder: usize, frame: FrameId, task: &Task) -> Option<Slot> {
        let meta = match task {
            Task::Decode { frame, wanted: Some(Form::Picture), .. } => frame.meta.clone(),
            Task::Show(_, Form::Picture) => self.maker.meta(frame)?,
            Task::Decode { .. } | Task::Show(..) => return None,
        };
        let bytes = picture_bytes_max(meta.encoding, (meta.width, meta.height))?;
        self.decoders[decoder].slot(bytes, &self.memories)
    }
}

/// Ends the thread, unless there is a new request, which is returned.
fn rest(shared: &Weak<Stills>, jobs: &Receiver<Job>) -> Option<Job> {
    let shared = shared.upgrade()?;
    let mut thread = lock(&shared.thread);
    while let Ok(job) = jobs.try_recv() {
        if !matches!(job, Job::Appended) {
            return Some(job);
        }
    }
    *thread = None;
    None
}

/// Each statement leaves the fields consistent and cannot panic, so a poisoned lock is safe to use.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use mez_core::frame::{
        ChainLink, ClockSource, Encoding, Epoch, Frame, FrameMeta, Quality, Rung, Sequence,
    };
    use mez_core::log::{LogConfig, Record, log};
    use mez_core::units::{Instant, Timestamp};

    use super::*;

    fn id(sequence: u64) -> FrameId {
        FrameId { epoch: Epoch(1), sequence: Sequence(sequence) }
    }

    fn query(sequence: u64) -> StillQuery {
        StillQuery { frame: id(sequence), newest: true }
    }

    /// A record with a payload that no decoder accepts.
    pub(crate) fn record(sequence: u64, encoding: Encoding) -> Record {
        let meta = FrameMeta {
            id: id(sequence),
            captured: Timestamp::from_nanos(sequence),
            clock_source: ClockSource::Broker,
            width: 64,
            height: 64,
            published: (64, 64),
            encoding,
            rung: Rung::original(),
            chain: ChainLink::still(Sequence(sequence)),
        };
        Record {
            frame: Frame { meta, payload: vec![0; 8].into() },
            skipped: [].into(),
            quality: Quality::default(),
            trace: None,
            link_bytes: None,
            arrived: Instant::ZERO,
        }
    }

    /// A frame that cannot be decoded is answered too, and the camera is asked for a new chain.
    #[tokio::test]
    async fn every_question_is_answered() {
        let (mut writer, reader) = log(LogConfig::default());
        writer.append_record(record(1, Encoding::H264)).unwrap();
        writer.append_record(record(2, Encoding::Jpeg)).unwrap();
        let asked = Arc::new(AtomicU32::new(0));
        let asks = Arc::clone(&asked);
        let ask_for_chain = move || _ = asks.fetch_add(1, Ordering::Relaxed);
        let stills =
            Stills::new("a".parse().unwrap(), reader, Helpers::only(Decoders::software()), ask_for_chain);
        assert!(lock(&stills.thread).is_none(), "nobody has asked");
        assert!(matches!(stills.ask(query(1)).await, Ok(StillAnswer::NotDecoded)));
        assert!(matches!(stills.ask(query(2)).await, Ok(StillAnswer::Still(..))));
        assert!(matches!(stills.ask(query(3)).await, Ok(StillAnswer::Gone)));
        assert!(asked.load(Ordering::Relaxed) > 0, "the camera is asked for another chain");
        stills.wake();
    }
}
