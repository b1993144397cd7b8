//! Decodes every frame of a chain, and gives the program pictures, of which the newest wins. They stay as the codec gives
//! them until the program looks at them.
//!
//! Each camera has a decoder on threads of its own, as those that make stills (`transcode.rs`). A decoder that
//! panics or hangs costs its frame. Stills follow until the camera begins another chain. An edge on the same host may decode for several
//! programs; pictures then come beside the frames, and nothing is decoded here.

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

/// How long decoding a frame may take. It takes about 10 ms at 1080p.
const TIME_MAX: Duration = Duration::from_millis(250);
/// The same of a frame that is decoded by a process, which may have to be started.
const FOREIGN_TIME_MAX: Duration = Duration::from_secs(3);
/// The most frames of one camera that may wait for its decoder. If one more comes, the connection waits.
const WAITING_MAX: usize = 8;
/// After the first, only one in this many equal failures of a camera is logged.
const LOGGED_ONCE_IN: u64 = 100;

/// Takes in what decoders make.
pub(super) trait Sink: Send + Sync + 'static {
    /// A frame that the program can look at: one that decodes by itself, or one with its picture.
    fn put(&self, frame: Box<ReceivedFrame>);
    /// A camera's chain cannot be decoded any further.
    fn restart(&self, camera: &CameraName);
}

/// The decoders of a subscription's cameras. They stop when this is dropped.
pub(super) struct ChainDecoders<S> {
    /// As many as the edge has cameras.
    cameras: HashMap<CameraName, Decoder>,
    /// The account of frames that could not be decoded, and of those skipped before them.
    owed: HashMap<CameraName, Missing>,
    /// Every picture is wanted, and not only the newest.
    every: bool,
    sink: Arc<S>,
}

impl<S: Sink> ChainDecoders<S> {
    /// No decoders yet.
    pub(super) fn new(every: bool, sink: Arc<S>) -> Self {
        Self { cameras: HashMap::new(), owed: HashMap::new(), every, sink }
    }

    /// Takes a frame. Waits while its camera's decoder is overloaded. If every picture is wanted, waits until
    /// this one has been passed on. `beside`: what came with it.
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
        // Stills go through the decoder's queue too, so that frames keep their order.
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

    /// Waits until every frame that was taken has been passed on or has failed. Returns the rest of each
    /// camera's account. The next frames belong to other chains.
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

/// Gives a frame the picture that came beside it. False if it is one that is not shown. A still needs none.
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

/// Counts a frame that is not passed on, with what was skipped before it.
fn owe(owed: &mut Missing, frame: &ReceivedFrame, reason: SkipReason) {
    owed.merge(&frame.skipped, frame.not_held);
    owed.add(reason);
}

enum Job {
    /// A frame with what came beside it, and the sender that tells when it is done.
    Frame(Box<ReceivedFrame>, Shared, Option<oneshot::Sender<()>>),
    /// A request for the rest of the account.
    Finish(oneshot::Sender<Missing>),
}

struct Decoder {
    work: mpsc::Sender<Job>,
    /// Frames that were given to it and that it has not begun with.
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
                        // Of frames that wait, only the last is shown. All are decoded.
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

    /// Gives the decoder a frame. The frame comes back if the thread is gone.
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

/// What a decoder's thread knows.
struct Serving<S> {
    camera: CameraName,
    worker: Work,
    sink: Arc<S>,
    /// The epoch of the last frame.
    last: Option<Epoch>,
    /// Frames came that were not decoded here, so that what the decoder holds is worth nothing.
    is_outside: bool,
    /// Frames since the last that was put.
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

    /// Decodes a frame. Returns whether it has its picture now.
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
            warn!(%camera, frame = %id, failures, "a frame was not decoded: {error}");
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
    /// Whether the decoder must forget what it holds.
    afresh: bool,
    /// The picture is wanted.
    wanted: bool,
}

type Work = Worker<Task, Result<Option<OwnedPicture>, StreamDecodeError>>;

/// The state and the work of the thread that decodes.
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
