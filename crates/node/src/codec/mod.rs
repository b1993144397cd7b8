//! Encodes a camera's frames at their rungs, on separate threads.
//!
//! So neither the broker nor the link waits for a codec. A codec that panics or hangs costs one frame ([`mez_media::worker`]).
//! Frames of a source's own video are decoded first, together with the frames that they refer to (`source`). Data records are
//! degraded by the knobs of their stream ([`crate::degrade`]), on a thread of their own, so that a hanging function costs no chain.

mod source;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use mez_core::broker::camera::{News, Transform, Transformed};
use mez_core::data::DataRecord;
use mez_core::frame::{ChainLink, Encoding, Frame, FrameId};
use mez_core::log::LogReader;
use mez_core::setting::Form;
use mez_core::units::Instant;
pub use mez_media::h264::Library as H264Library;
use mez_media::jpeg::PIXELS_MAX_DEFAULT;
use mez_media::stream::{Outcome, Request, Source, StreamEncodeError, StreamEncoder};
use mez_media::worker::{Worker, WorkerError};
use mez_media::{Image, ImageView, PixelFormat, png};
use tokio::sync::mpsc;
use tracing::warn;

use self::source::{Decoded, SourceDecoder};
use crate::clock::monotonic_now;
use crate::decoders::Decoders;
use crate::degrade::{DegradeError, StreamKnobs};

/// Capacity of the queue to the codec. One is enough, because the broker sends one frame at a time.
const WAITING_MAX: usize = 1;
/// Of repeated failures, one in this many is logged, so that a broken codec does not fill the log.
const LOGGED_ONCE_IN: u64 = 100;

/// Why a frame could not be encoded.
#[derive(Debug, thiserror::Error)]
enum MakeError {
    #[error(transparent)]
    Encode(#[from] StreamEncodeError),
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error("the published image cannot be read: {0}")]
    Image(String),
    #[error("the frame does not fit into {bytes_max} bytes; its smallest encoding has {bytes}")]
    DoesNotFit { bytes: usize, bytes_max: u32 },
    #[error("the rung leaves this frame out")]
    LeftOut,
    #[error("there was no time left to encode it")]
    NoTime,
    #[error(transparent)]
    Degrade(#[from] DegradeError),
    #[error("its publisher has declared no knobs to this broker")]
    NoKnobs,
}

/// A frame's result, and when the codec began and finished it.
pub(crate) type Made = (FrameId, Transformed, [Instant; 2]);

/// The codec of one camera. It stops when this value is dropped.
#[derive(Debug)]
pub(crate) struct Codec {
    work: SyncSender<Box<Transform>>,
}

impl Codec {
    /// Starts the thread that passes work to the codec, and waits for it until its deadline. `log` has the
    /// frames to which others refer. `decoders` are those besides the library. `knobs` are those of the stream.
    pub(crate) fn start(
        camera: &str,
        h264: H264Library,
        log: LogReader,
        decoders: Decoders,
        knobs: Option<Arc<StreamKnobs>>,
    ) -> io::Result<(Self, mpsc::Receiver<Made>)> {
        let make = move || encoder(h264, log.clone(), &decoders);
        let degrade = move || {
            let knobs = knobs.clone();
            move |transform: Box<Transform>| degrade(knobs.as_deref(), &transform)
        };
        Self::start_with(
            camera,
            Workers {
                pictures: Worker::new("mez encode", make),
                records: Worker::new("mez degrade", degrade),
            },
        )
    }

    fn start_with(camera: &str, workers: Workers) -> io::Result<(Self, mpsc::Receiver<Made>)> {
        let (work, todo) = sync_channel(WAITING_MAX);
        let (done, made) = mpsc::channel(WAITING_MAX);
        let camera = camera.to_owned();
        thread::Builder::new()
            .name("mez codec".into())
            .spawn(move || serve(&camera, workers, &todo, &done))?;
        Ok((Self { work }, made))
    }

    /// Starts to encode a frame. Returns it in the error if the codec is busy or gone.
    pub(crate) fn make(&self, transform: Box<Transform>) -> Result<(), Box<Transform>> {
        self.work.try_send(transform).map_err(|refused| match refused {
            TrySendError::Full(transform) | TrySendError::Disconnected(transform) => transform,
        })
    }
}

type Work = Worker<Box<Transform>, Result<Transformed, MakeError>>;

/// The workers for pictures and for data records.
struct Workers {
    pictures: Work,
    records: Work,
}

fn serve(camera: &str, mut workers: Workers, todo: &Receiver<Box<Transform>>, done: &mpsc::Sender<Made>) {
    let (mut failures, mut record_failures) = (0u64, 0u64);
    // News that did not reach the encoder, because its frame had no time left.
    let mut news = News::default();
    while let Ok(mut transform) = todo.recv() {
        let (frame, deadline, begun) = (transform.frame.meta.id, transform.deadline, monotonic_now());
        let newer = std::mem::replace(&mut transform.news, std::mem::take(&mut news));
        transform.news.arrived.extend(newer.arrived);
        transform.news.lost.extend(newer.lost);
        if transform.setting.is_of_data() {
            news = std::mem::take(&mut transform.news);
            let rung = transform.setting;
            let transformed = run(&mut workers.records, transform, deadline).unwrap_or_else(|(error, _)| {
                if record_failures.is_multiple_of(LOGGED_ONCE_IN) {
                    warn!(
                        camera, %frame, failures = record_failures,
                        "a record cannot be degraded to {rung}: {error}. It is sent as published, if it fits. After a second failure within 10 s \
                         the knobs of the stream are not used for 2 s, and for up to 64 s if failures continue"
                    );
                }
                record_failures += 1;
                Transformed::Failed
            });
            if done.blocking_send((frame, transformed, [begun, monotonic_now()])).is_err() {
                return;
            }
            continue;
        }
        let transformed =
            run(&mut workers.pictures, transform, deadline).unwrap_or_else(|(error, untold)| {
                if failures.is_multiple_of(LOGGED_ONCE_IN) {
                    warn!(camera, %frame, failures, "a frame could not be encoded: {error}");
                }
                failures += 1;
                news = untold;
                match error {
                    MakeError::DoesNotFit { bytes, .. } => {
                        Transformed::TooLarge { bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
                    }
                    _ => Transformed::Failed,
                }
            });
        if done.blocking_send((frame, transformed, [begun, monotonic_now()])).is_err() {
            return;
        }
    }
}

fn run(
    worker: &mut Work,
    transform: Box<Transform>,
    deadline: Instant,
) -> Result<Transformed, (MakeError, News)> {
    let left = deadline.saturating_since(monotonic_now());
    if left == Duration::ZERO {
        return Err((MakeError::NoTime, transform.news));
    }
    // A failed worker has lost its state, so the news does not apply any more.
    worker.run(transform, left).map_err(MakeError::from).flatten().map_err(|error| (error, News::default()))
}

/// The state and the work function of the codec's thread.
fn encoder(
    h264: H264Library,
    log: LogReader,
    decoders: &Decoders,
) -> impl FnMut(Box<Transform>) -> Result<Transformed, MakeError> + use<> {
    let mut state: Option<StreamEncoder> = None;
    let mut source = SourceDecoder::new(log, decoders);
    move |transform| {
        let encoder = match &mut state {
            Some(encoder) => encoder,
            None => state.insert(StreamEncoder::new(PIXELS_MAX_DEFAULT)?.with_h264(h264)),
        };
        make(encoder, &mut source, &transform)
    }
}

/// Degrades a data record.
fn degrade(knobs: Option<&StreamKnobs>, transform: &Transform) -> Result<Transformed, MakeError> {
    let Transform { frame, setting, bytes_max, .. } = transform;
    let (Some(knobs), Form::Data(of)) = (knobs, setting.form) else { return Err(MakeError::NoKnobs) };
    let record = DataRecord::decode(&frame.payload).map_err(|error| MakeError::Image(error.to_string()))?;
    let body = knobs.apply(&record, &of)?;
    let payload = DataRecord { body, ..record }.encode();
    if payload.len() > *bytes_max as usize {
        return Err(MakeError::DoesNotFit { bytes: payload.len(), bytes_max: *bytes_max });
    }
    let chain = ChainLink::still(frame.meta.id.sequence);
    Ok(Transformed::Made {
        payload,
        encoding: Encoding::Data,
        width: 0,
        height: 0,
        rung: setting.rung(),
        chain,
    })
}

fn make(
    encoder: &mut StreamEncoder,
    source: &mut SourceDecoder,
    transform: &Transform,
) -> Result<Transformed, MakeError> {
    let Transform { frame, setting, reference, news, bytes_max, anchor_bytes_max, deadline } = transform;
    news.arrived.iter().for_each(|sequence| encoder.acknowledge(*sequence));
    news.lost.iter().for_each(|sequence| encoder.lost(*sequence));
    encoder.set_anchor_bytes_max(*anchor_bytes_max as usize);
    let request = Request {
        sequence: frame.meta.id.sequence,
        captured: Instant::from_nanos(frame.meta.captured.as_nanos()),
        setting,
        bytes_max: Some(*bytes_max as usize),
        reference: *reference,
    };
    let outcome = match frame.meta.encoding {
        Encoding::Jpeg => encoder.encode(&Source::Jpeg(&frame.payload), &request)?,
        Encoding::Bgr8 => encoder.encode(&Source::Pixels(view(frame, PixelFormat::Bgr8)?), &request)?,
        Encoding::Gray8 => encoder.encode(&Source::Pixels(view(frame, PixelFormat::Gray8)?), &request)?,
        Encoding::Png => {
            let mut image = Image::empty();
            png::decode(&frame.payload, PIXELS_MAX_DEFAULT, &mut image)
                .map_err(|error| MakeError::Image(error.to_string()))?;
            let view = image.view().ok_or_else(|| MakeError::Image("it has no pixels".into()))?;
            encoder.encode(&Source::Pixels(view), &request)?
        }
        Encoding::Data => return Err(MakeError::Image("a data record has no pixels".into())),
        Encoding::H264 | Encoding::H265 | Encoding::Av1 => match source.decode(frame, *deadline) {
            Decoded::Picture(planes) => encoder.encode(&Source::Planes(planes), &request)?,
            Decoded::NotYet => return Ok(Transformed::NotYet),
            Decoded::Lacking => return Ok(Transformed::Lacking),
        },
        Encoding::Tiles => return Err(MakeError::Image("frames of changed tiles are not published".into())),
    };
    match outcome {
        Outcome::Frame(made) => Ok(Transformed::Made {
            payload: made.payload,
            encoding: made.encoding,
            width: made.width,
            height: made.height,
            rung: made.setting.rung(),
            chain: made.chain,
        }),
        Outcome::LeftOut { .. } => Err(MakeError::LeftOut),
        Outcome::DoesNotFit { bytes } => Err(MakeError::DoesNotFit { bytes, bytes_max: *bytes_max }),
    }
}

fn view(frame: &Frame, format: PixelFormat) -> Result<ImageView<'_>, MakeError> {
    let (width, height) = (frame.meta.width, frame.meta.height);
    ImageView::packed(&frame.payload, width, height, format)
        .map_err(|error| MakeError::Image(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use mez_core::broker::camera::{CameraBroker, CameraConfig, CameraOutput};
    use mez_core::broker::{EdgeIndex, Intake, IntakeConfig, LinkId, Published};
    use mez_core::contract::Contract;
    use mez_core::frame::Epoch;
    use mez_core::log::{LogConfig, log};
    use mez_core::setting::Form;
    use mez_core::wire::{Demand, Message, VERSION, Welcome};
    use mez_media::jpeg::{Encoder, Sampling};

    use super::*;
    use crate::clock::anchor;

    /// An encoder that panics at the first frame of video (or of any chain), hangs at the second, and then does both again.
    fn unwell(tiles_too: bool, h264: H264Library) -> Workers {
        let tried = Arc::new(AtomicUsize::new(0));
        let pictures = Worker::new("unwell", move || {
            let (mut encode, tried) =
                (encoder(h264, log(LogConfig::default()).1, &Decoders::software()), Arc::clone(&tried));
            move |transform: Box<Transform>| {
                let video = matches!(transform.setting.form, Form::H264(_));
                if video || tiles_too && transform.setting.is_chained() {
                    match tried.fetch_add(1, Ordering::Relaxed) {
                        0 | 2 => panic!("planned"),
                        1 | 3 => thread::sleep(Duration::from_secs(2)),
                        _ => {}
                    }
                }
                encode(transform)
            }
        });
        Workers { pictures, records: Worker::new("unused", || |_| Err(MakeError::NoKnobs)) }
    }

    /// A codec of chains that panics or hangs costs one frame, by its deadline. After two failures
    /// the stream continues as changed tiles, or as JPEG if these fail too, and later as video again.
    #[test]
    fn a_codec_that_panics_or_hangs_costs_its_frame_and_the_stream_goes_on() {
        let newest = *H264Library::ALL.last().expect("there is one");
        for (tiles_too, meanwhile, at_least) in [(false, Encoding::Tiles, 20), (true, Encoding::Jpeg, 5)] {
            let sent = sent_by(unwell(tiles_too, newest));
            let video = sent.iter().position(|encoding| *encoding == Encoding::H264);
            assert!(sent.len() >= 90, "{} of 100 frames were sent", sent.len());
            let video = video.expect("video never came back");
            assert!(sent[..video].iter().all(|encoding| *encoding == meanwhile), "{sent:?}");
            assert!(video > at_least, "after it has hung it is left alone: {sent:?}");
            assert!(sent[video..].iter().all(|encoding| *encoding == Encoding::H264), "{sent:?}");
        }
    }

    /// The encodings of a camera's frames with this codec, for 20 s.
    fn sent_by(workers: Workers) -> Vec<Encoding> {
        let (anchor, epoch) = (anchor(), Epoch(1));
        let (writer, reader) = log(LogConfig::default());
        let camera: mez_core::name::CameraName = "dock/cam1".parse().unwrap();
        let config = CameraConfig {
            camera,
            epoch,
            anchor,
            software: String::new(),
            policy: mez_core::controller::named::PolicyName::default(),
            edges: 1,
        };
        let mut now = monotonic_now();
        let mut broker = CameraBroker::new(config, &reader, now);
        let mut intake = Intake::new(writer, IntakeConfig::new(epoch, anchor));
        let link = LinkId(1);
        broker.handle_dialled(now, link, EdgeIndex(0));
        let welcome =
            Welcome { version: VERSION, newest: None, frame_bytes_max: 1 << 20, software: String::new() };
        broker.handle_message(now, link, Message::Welcome(welcome));
        let contract = Contract { accuracy_floor: Some(0.5), ..Contract::default() };
        broker.handle_message(now, link, Message::Demand(Demand { revision: 1, contracts: vec![contract] }));
        let (codec, mut made) = Codec::start_with("dock/cam1", workers).unwrap();

        let pixels = vec![90; 320 * 240];
        let view = ImageView::packed(&pixels, 320, 240, PixelFormat::Gray8).unwrap();
        let payload = Encoder::new(90, Sampling::Yuv420).unwrap().encode(&view).unwrap();
        let mut sent = Vec::new();
        for _ in 0..100 {
            // The broker's clock is faster than the codec's.
            now = now.max(monotonic_now()) + Duration::from_millis(200);
            let payload = payload.clone();
            let frame =
                Published { payload, encoding: Encoding::Jpeg, width: 320, height: 240, captured: None };
            let id = intake.publish(now, frame).unwrap();
            broker.handle_message(now, link, Message::Ping { t1: now });
            broker.handle_published(now);
            broker.handle_timeout(now);
            while let Some(output) = broker.poll_output() {
                match output {
                    CameraOutput::Transform(mut transform) => {
                        transform.deadline = monotonic_now() + Duration::from_millis(400);
                        codec.make(transform).unwrap();
                        let (frame, transformed, [begun, done]) = made.blocking_recv().unwrap();
                        assert!(begun <= done);
                        broker.handle_transformed(now, frame, transformed);
                    }
                    CameraOutput::SendFrame { header, .. } => {
                        sent.push(header.meta.encoding);
                        broker.handle_sent(now, link, id);
                        let report = mez_core::wire::Report::Complete {
                            frame: id,
                            bytes: header.payload_bytes,
                            first: now,
                            last: now,
                        };
                        broker.handle_message(now, link, Message::Report(report));
                    }
                    _ => {}
                }
            }
        }
        sent
    }
}
