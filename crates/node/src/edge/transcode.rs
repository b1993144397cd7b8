//! Decodes chained frames to stills at the edge, with one decoder for each camera that sends chains.
//!
//! Decoders run on threads of their own, so neither the broker nor other cameras wait for them. A decoder ends with its camera's connection.
//! One that panics or hangs costs one frame and its chain ([`mez_media::worker`]).

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

/// The deadline for decoding and encoding one frame. At 1080p both together take about 10 ms.
const TIME_MAX: Duration = Duration::from_millis(250);
/// Decoded frames that may wait for the broker. Beyond that the decoders wait.
const ANSWERS_MAX: usize = 64;
/// A repeated failure of one camera is logged once in this many.
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
    /// Where its last frame came from.
    link: LinkId,
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

    /// Starts to decode a frame once those before it are done. Returns the answer at once if there is no decoder.
    pub(super) fn decode(&mut self, camera: CameraName, link: LinkId, frame: Box<Frame>) -> Option<Answer> {
        let id = frame.meta.id;
        let decoder = match self.cameras.get_mut(&camera) {
            Some(decoder) => Some(decoder),
            None => match Decoder::start(&camera, link, self.answers.clone()) {
                Ok(decoder) => Some(self.cameras.entry(camera.clone()).or_insert(decoder)),
                Err(error) => {
                    warn!(%camera, "frames of this camera cannot be decoded: {error}");
                    None
                }
            },
        };
        let taken = decoder.is_some_and(|decoder| {
            decoder.link = link;
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

    /// Ends the decoders of a closed connection once they have decoded what they were given. Frames of another connection do not need what
    /// they hold.
    pub(super) fn release(&mut self, link: LinkId) {
        self.cameras.retain(|_, decoder| decoder.link != link);
    }
}

impl Decoder {
    fn start(camera: &CameraName, link: LinkId, answers: mpsc::Sender<Answer>) -> std::io::Result<Self> {
        let (work, todo) = sync_channel(DECODING_FRAMES_MAX);
        let waiting = Arc::new(AtomicUsize::new(0));
        let (left, camera) = (Arc::clone(&waiting), camera.clone());
        let serve = move || serve(&camera, &todo, &left, &answers);
        thread::Builder::new().name("mez decoder".into()).spawn(serve)?;
        Ok(Self { link, work, waiting })
    }
}

/// A job of a decoder's thread: a frame, whether to forget earlier frames first, and whether a still is wanted.
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

#[cfg(test)]
mod tests {
    use mez_core::frame::{ChainLink, ClockSource, Epoch, FrameMeta, Rung, Sequence};
    use mez_core::units::Timestamp;

    use super::*;

    /// Bytes that no decoder takes: what becomes of them is an answer all the same.
    fn frame(sequence: u64) -> Box<Frame> {
        let id = FrameId { epoch: Epoch(1), sequence: Sequence(sequence) };
        let meta = FrameMeta {
            id,
            captured: Timestamp::from_nanos(sequence),
            clock_source: ClockSource::Broker,
            width: 64,
            height: 64,
            published: (64, 64),
            encoding: Encoding::H264,
            rung: Rung::original(),
            chain: ChainLink::still(id.sequence),
        };
        Box::new(Frame { meta, payload: vec![0; 8].into() })
    }

    /// Cameras come and go for as long as an edge runs: their decoders must not stay. What they were given is answered.
    #[tokio::test]
    async fn a_decoder_goes_with_the_connection_of_its_camera() {
        let (mut decoders, mut answers) = Decoders::new();
        let (camera, other): (CameraName, CameraName) = ("a".parse().unwrap(), "b".parse().unwrap());
        assert!(decoders.decode(camera.clone(), LinkId(1), frame(0)).is_none());
        assert!(decoders.decode(other.clone(), LinkId(2), frame(0)).is_none());
        decoders.release(LinkId(1));
        assert_eq!(decoders.cameras.keys().collect::<Vec<_>>(), [&other]);
        let mut answered = [answers.recv().await.unwrap().0, answers.recv().await.unwrap().0];
        answered.sort();
        assert_eq!(answered, [camera.clone(), other.clone()]);
        // A camera that is back begins anew, and what is late of the connection before ends nothing.
        assert!(decoders.decode(camera.clone(), LinkId(3), frame(1)).is_none());
        decoders.release(LinkId(1));
        assert_eq!(answers.recv().await.unwrap().0, camera);
        assert_eq!(decoders.cameras.len(), 2);
        // Every thread answers through a sender of its own: none is left when they are gone.
        decoders.release(LinkId(2));
        decoders.release(LinkId(3));
        drop(decoders);
        assert!(answers.recv().await.is_none());
    }
}
