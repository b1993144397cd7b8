//! Decoders of chains at the edge: one for each camera whose frames need others, on threads of its own, so that neither the broker nor other cameras
//! wait for it; one that panics or hangs costs its frame and its chain ([`mez_media::worker`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use mez_core::broker::LinkId;
use mez_core::broker::edge::{DECODING_FRAMES_MAX, Decoded};
use mez_core::frame::{Encoding, Frame, FrameId};
use mez_core::name::CameraName;
use mez_media::jpeg::PIXELS_MAX_DEFAULT;
use mez_media::stream::{Still, TranscodeError, Transcoder};
use mez_media::worker::Worker;
use tokio::sync::mpsc;
use tracing::{debug, warn};

/// How long the decoder and the encoder may take together for a frame. They take about 10 ms at 1080p.
const TIME_MAX: Duration = Duration::from_millis(250);
/// Answers that may wait for the broker; beyond that decoders wait with theirs.
const ANSWERS_MAX: usize = 64;
/// The same failure of one camera is logged again only after so many others.
const LOGGED_ONCE_IN: u64 = 100;

/// What became of a frame.
pub(super) type Answer = (CameraName, LinkId, FrameId, Decoded);

/// A frame for a decoder.
type Work = (LinkId, Box<Frame>);

/// The decoders of all cameras. They stop when this is dropped.
pub(super) struct Decoders {
    cameras: HashMap<CameraName, Decoder>,
    answers: mpsc::Sender<Answer>,
}

struct Decoder {
    work: SyncSender<Work>,
    /// Frames that were given to it and that it has not begun with.
    waiting: Arc<AtomicUsize>,
}

impl Decoders {
    /// No decoders yet; and where answers come.
    pub(super) fn new() -> (Self, mpsc::Receiver<Answer>) {
        let (answers, receiver) = mpsc::channel(ANSWERS_MAX);
        (Self { cameras: HashMap::new(), answers }, receiver)
    }

    /// Begins to decode a frame, as soon as those before it are done. Gives the answer at once where there is no decoder.
    pub(super) fn decode(&mut self, camera: CameraName, link: LinkId, frame: Box<Frame>) -> Option<Answer> {
        let id = frame.meta.id;
        let decoder = match self.cameras.get(&camera) {
            Some(decoder) => Some(decoder),
            None => match Decoder::start(&camera, self.answers.clone()) {
                Ok(decoder) => Some(&*self.cameras.entry(camera.clone()).or_insert(decoder)),
                Err(error) => {
                    warn!(%camera, "frames of this camera cannot be decoded: {error}");
                    None
                }
            },
        };
        let taken = decoder.is_some_and(|decoder| {
            decoder.waiting.fetch_add(1, Ordering::AcqRel);
            decoder.work.try_send((link, frame)).is_ok()
        });
        if taken {
            return None;
        }
        // There is room for all that the broker has open, so its thread is gone; the next frame starts another.
        self.cameras.remove(&camera);
        Some((camera, link, id, Decoded::Failed))
    }
}

impl Decoder {
    fn start(camera: &CameraName, answers: mpsc::Sender<Answer>) -> std::io::Result<Self> {
        let (work, todo) = sync_channel(DECODING_FRAMES_MAX);
        let waiting = Arc::new(AtomicUsize::new(0));
        let (left, camera) = (Arc::clone(&waiting), camera.clone());
        let serve = move || serve(&camera, &todo, &left, &answers);
        thread::Builder::new().name("mez decoder".into()).spawn(serve)?;
        Ok(Self { work, waiting })
    }
}

/// What a decoder's thread is given: a frame, whether it is to forget what it holds, and whether a still is wanted.
struct Job {
    frame: Box<Frame>,
    afresh: bool,
    wanted: bool,
}

fn serve(camera: &CameraName, todo: &Receiver<Work>, waiting: &AtomicUsize, answers: &mpsc::Sender<Answer>) {
    let mut worker = Worker::new("mez decode", transcoder);
    let (mut last, mut failures) = (None, 0u64);
    while let Ok((link, frame)) = todo.recv() {
        let id = frame.meta.id;
        // Newest wins: of those that wait, only the last is shown. All are decoded.
        let wanted = waiting.fetch_sub(1, Ordering::AcqRel) == 1;
        let afresh = last.replace((link, id.epoch)).is_none_or(|last| last != (link, id.epoch));
        let decoded = match worker.run(Job { frame, afresh, wanted }, TIME_MAX) {
            Ok(Ok(Some(Still { payload, width, height }))) => {
                Decoded::Still { payload, encoding: Encoding::Jpeg, width, height }
            }
            Ok(Ok(None)) => Decoded::Passed,
            Ok(Err(error)) if error.is_not_held() => {
                debug!(%camera, frame = %id, "a frame is not shown: {error}");
                Decoded::NotHeld
            }
            Ok(Err(error)) => failed(camera, id, &mut failures, &error),
            Err(error) => failed(camera, id, &mut failures, &error),
        };
        if answers.blocking_send((camera.clone(), link, id, decoded)).is_err() {
            return;
        }
    }
}

fn failed(camera: &CameraName, frame: FrameId, failures: &mut u64, error: &dyn std::error::Error) -> Decoded {
    if failures.is_multiple_of(LOGGED_ONCE_IN) {
        warn!(%camera, %frame, failures, "a frame was not decoded: {error}");
    }
    *failures += 1;
    Decoded::Failed
}

/// The state and the work of a decoder's thread.
fn transcoder() -> impl FnMut(Job) -> Result<Option<Still>, TranscodeError> {
    let mut state: Option<Transcoder> = None;
    move |Job { frame, afresh, wanted }| {
        let transcoder = match &mut state {
            Some(transcoder) => transcoder,
            None => state.insert(Transcoder::new(PIXELS_MAX_DEFAULT)?),
        };
        if afresh {
            transcoder.forget();
        }
        let place = (frame.meta.id.sequence, &frame.meta.chain);
        transcoder.transcode(frame.meta.encoding, place, &frame.payload, wanted)
    }
}
