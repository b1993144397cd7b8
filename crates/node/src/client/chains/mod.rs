//! Decodes all frames of chains, and gives the program their pictures. The newest
//! picture wins. A picture stays in the codec's format until the program reads it.
//!
//! Each camera has a decoder with its own threads, like the decoders for stills (`transcode.rs`). If a decoder
//! panics or hangs, its frame is lost, and stills follow until the camera begins another chain. An edge on the same
//! host may decode for several programs. The pictures then come beside the frames, and nothing is decoded here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use mez_core::frame::{ChainLink, Encoding, Epoch, Sequence, SkipReason};
use mez_core::name::CameraName;
use mez_core::subscription::Missing;
use mez_media::jpeg::PIXELS_MAX_DEFAULT;
use mez_media::stream::{OwnedPicture, StreamDecodeError, StreamDecoder};
use mez_media::worker::Worker;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use super::frame::ReceivedFrame;
use super::streams::Shared;
use crate::decoders::Decoders;
use crate::memory::pooled;

/// How long decoding one frame may take. At 1080p, it takes about 10 ms.
const TIME_MAX: Duration = Duration::from_millis(250);
/// The limit for a frame that is decoded by a process, which may have to be started.
const FOREIGN_TIME_MAX: Duration = Duration::from_secs(3);
/// The most frames of one camera that may wait for its decoder. Beyond that, the connection waits.
const WAITING_MAX: usize = 8;
/// After the first failure of a camera, one in this many is logged.
const LOGGED_ONCE_IN: u64 = 100;

/// Receives the results of decoders.
pub(super) trait Sink: Send + Sync + 'static {
    /// Receives a frame that the program can show: one that decodes by itself, or one with its picture.
    fn put(&self, frame: Box<ReceivedFrame>);
    /// The chain of a camera cannot be decoded any further.
    fn restart(&self, camera: &CameraName);
}

/// The decoders of a subscription's cameras. Dropping this stops them.
pub(super) struct ChainDecoders<S> {
    /// At most one for each camera of the edge.
    cameras: HashMap<CameraName, Decoder>,
    /// The counts of frames that could not be decoded, and of frames that were skipped before them.
    owed: HashMap<CameraName, Missing>,
    /// Whether every picture is delivered, not only the newest.
    every: bool,
    sink: Arc<S>,
}

impl<S: Sink> ChainDecoders<S> {
    /// Starts without decoders.
    pub(super) fn new(every: bool, sink: Arc<S>) -> Self {
        Self { cameras: HashMap::new(), owed: HashMap::new(), every, sink }
    }

    /// Takes a frame. Waits while the decoder of its camera is overloaded. If every picture is
    /// delivered, waits until this frame has been passed on. `beside`: what came with the frame.
    pub(super) async fn take(&mut self, mut frame: Box<ReceivedFrame>, beside: Shared) {
        let camera = frame.camera.clone();
        let is_decoded_here = frame.meta.encoding.is_chained() && matches!(beside, Shared::Nothing);
        if !self.cameras.contains_key(&camera) {
            let owed = self.owed.remove(&camera).unwrap_or_default();
            owed.tell(&mut frame.skipped, &mut frame.not_held);
            if !is_decoded_here {
                return match shown(&mut frame, beside) {
                    true => self.sink.put(frame),
                    false => owe(self.owed.entry(camera).or_default(), &frame, SkipReason::ApplicationBusy),
                };
            }
            let worker = Worker::new("mez decode", decoder);
            match Decoder::start(camera.clone(), worker, self.every, Arc::clone(&self.sink)) {
                Ok(decoder) => _ = self.cameras.insert(camera.clone(), decoder),
                Err(error) => warn!(%camera, "frames of this camera cannot be decoded: {error}"),
            }
        }
        // Stills go through the decoder's queue too, to keep the order of frames.
        let refused = match self.cameras.get(&camera) {
            Some(decoder) => decoder.give(frame, beside, self.every).await.err(),
            None => Some(frame),
        };
        if let Some(frame) = refused {
            self.cameras.remove(&camera);
            owe(self.owed.entry(camera.clone()).or_default(), &frame, SkipReason::NotDecoded);
            self.sink.restart(&camera);
        }
    }

    /// Waits until every frame that was taken has been passed on or has failed. Returns
    /// the remaining counts of each camera. The next frames belong to other chains.
    pub(super) async fn finish(&mut self) -> HashMap<CameraName, Missing> {
        let mut owed = std::mem::take(&mut self.owed);
        for (camera, decoder) in self.cameras.drain() {
            let (answer, answered) = oneshot::channel();
            if decoder.work.send(Job::Finish(answer)).await.is_ok()
                && let Ok(rest) = answered.await
            {
                owed.entry(camera).or_default().merge(&rest.skipped, rest.not_held);
            }
        }
        owed
    }
}

/// Adds the picture that came beside the frame. Returns false if the frame is not shown. A still needs no picture.
fn shown(frame: &mut ReceivedFrame, beside: Shared) -> bool {
    match beside {
        Shared::Passed => return false,
        Shared::Picture(picture) => {
            frame.is_shared = true;
            put_into(frame, picture);
        }
        Shared::Nothing => {}
    }
    true
}

fn put_into(frame: &mut ReceivedFrame, picture: OwnedPicture) {
    (frame.meta.width, frame.meta.height) = picture.size();
    frame.picture = Some(Arc::new(picture));
}

/// Counts a frame that is not passed on, and the frames skipped before it.
fn owe(owed: &mut Missing, frame: &ReceivedFrame, reason: SkipReason) {
    owed.merge(&frame.skipped, frame.not_held);
    owed.add(reason);
}

enum Job {
    /// A frame, what came beside it, and a sender that signals when it is done.
    Frame(Box<ReceivedFrame>, Shared, Option<oneshot::Sender<()>>),
    /// A request for the remaining counts.
    Finish(oneshot::Sender<Missing>),
}

struct Decoder {
    work: mpsc::Sender<Job>,
    /// Frames in the queue that the decoder has not begun.
    waiting: Arc<AtomicUsize>,
}

impl Decoder {
    fn start<S: Sink>(camera: CameraName, worker: Work, every: bool, sink: Arc<S>) -> std::io::Result<Self> {
        let (work, mut todo) = mpsc::channel(WAITING_MAX);
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        let owed = Missing::default();
        let mut serving = Serving { camera, worker, sink, last: None, is_outside: false, owed, failures: 0 };
        let serve = move || {
            while let Some(job) = todo.blocking_recv() {
                match job {
                    Job::Frame(frame, beside, done) => {
                        // All waiting frames are decoded, but only the last one is shown.
                        let is_last = left.fetch_sub(1, Ordering::AcqRel) == 1;
                        serving.frame(frame, beside, every || is_last);
                        let _ = done.map(|done| done.send(()));
                    }
                    Job::Finish(answer) => _ = answer.send(std::mem::take(&mut serving.owed)),
                }
            }
        };
        thread::Builder::new().name("mez decoder".into()).spawn(serve)?;
        Ok(Self { work, waiting })
    }

    /// Gives the decoder a frame. Returns the frame if the thread is gone.
    async fn give(
        &self,
        frame: Box<ReceivedFrame>,
        beside: Shared,
        wait: bool,
    ) -> Result<(), Box<ReceivedFrame>> {
        let (done, is_done) = oneshot::channel();
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let sent = self.work.send(Job::Frame(frame, beside, wait.then_some(done))).await;
        if let Err(mpsc::error::SendError(Job::Frame(frame, ..))) = sent {
            return Err(frame);
        }
        if wait {
            let _ = is_done.await;
        }
        Ok(())
    }
}

/// The state of a decoder's thread.
struct Serving<S> {
    camera: CameraName,
    worker: Work,
    sink: Arc<S>,
    /// The epoch of the last frame.
    last: Option<Epoch>,
    /// Frames of a chain came that were not decoded here, so the state of the decoder is obsolete.
    is_outside: bool,
    /// The counts since the last frame that was passed on.
    owed: Missing,
    failures: u64,
}

impl<S: Sink> Serving<S> {
    fn frame(&mut self, mut frame: Box<ReceivedFrame>, beside: Shared, wanted: bool) {
        let is_chained = frame.meta.encoding.is_chained();
        if is_chained && matches!(beside, Shared::Nothing) {
            match self.decode(&mut frame, wanted) {
                Ok(true) => {}
                Ok(false) => return owe(&mut self.owed, &frame, SkipReason::ApplicationBusy),
                Err(()) => {
                    owe(&mut self.owed, &frame, SkipReason::NotDecoded);
                    return self.sink.restart(&self.camera);
                }
            }
        } else {
            self.is_outside |= is_chained;
            if !shown(&mut frame, beside) {
                return owe(&mut self.owed, &frame, SkipReason::ApplicationBusy);
            }
        }
        let owed = std::mem::take(&mut self.owed);
        owed.tell(&mut frame.skipped, &mut frame.not_held);
        self.sink.put(frame);
    }

    /// Decodes a frame. Returns whether the frame now has its picture.
    fn decode(&mut self, frame: &mut ReceivedFrame, wanted: bool) -> Result<bool, ()> {
        let epoch = frame.meta.id.epoch;
        let is_another = self.last.replace(epoch).is_some_and(|last| last != epoch);
        let task = Task {
            encoding: frame.meta.encoding,
            sequence: frame.meta.id.sequence,
            chain: frame.meta.chain,
            payload: frame.payload.clone(),
            afresh: std::mem::take(&mut self.is_outside) || is_another,
            wanted,
        };
        let picture = self.decoded(frame, task)?;
        let is_shown = picture.is_some();
        picture.into_iter().for_each(|picture| put_into(frame, picture));
        Ok(is_shown)
    }

    fn decoded(&mut self, frame: &ReceivedFrame, task: Task) -> Result<Option<OwnedPicture>, ()> {
        let time_max = if task.encoding.is_foreign() { FOREIGN_TIME_MAX } else { TIME_MAX };
        let error: Box<dyn std::error::Error> = match self.worker.run(task, time_max) {
            Ok(Ok(picture)) => return Ok(picture),
            Ok(Err(error)) => error.into(),
            Err(error) => error.into(),
        };
        if self.failures.is_multiple_of(LOGGED_ONCE_IN) {
            let (camera, id, failures) = (&self.camera, frame.meta.id, self.failures);
            warn!(%camera, frame = %id, failures, "a frame could not be decoded: {error}");
        }
        self.failures += 1;
        Err(())
    }
}

/// A frame of a chain for the thread that decodes.
struct Task {
    encoding: Encoding,
    sequence: Sequence,
    chain: ChainLink,
    payload: Bytes,
    /// Whether the decoder must forget its state first.
    afresh: bool,
    /// Whether the picture is needed.
    wanted: bool,
}

type Work = Worker<Task, Result<Option<OwnedPicture>, StreamDecodeError>>;

/// The function of the decoding thread, with its state.
fn decoder() -> impl FnMut(Task) -> Result<Option<OwnedPicture>, StreamDecodeError> {
    let mut decoder = StreamDecoder::new(PIXELS_MAX_DEFAULT).with_platform(Decoders::software().platform());
    move |task| {
        let Task { encoding, sequence, chain, payload, afresh, wanted } = task;
        if afresh {
            decoder.forget();
        }
        let picture = decoder.advance(encoding, sequence, &chain, &payload)?;
        Ok(wanted.then(|| picture.keep(pooled)))
    }
}

#[cfg(test)]
mod tests;
