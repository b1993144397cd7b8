//! Reads a span of a log, oldest frame first, and makes a still of each frame. For a copied video, frames stay unchanged.

use bytes::Bytes;
use mez_core::chain::ChainFollower;
use mez_core::data::DataRecord;
use mez_core::frame::{Encoding, Frame, FrameId, FrameMeta, SkipCounts};
use mez_core::history::{PastQuery, Tier};
use mez_core::name::CameraName;
use mez_core::store::{HeaderError, KeyRing, SegmentScan, Storage, StorageError, StoreReader};
use mez_core::units::Timestamp;
use mez_media::image::Image;
use mez_media::jpeg::{Encoder, PIXELS_MAX_DEFAULT, Sampling};
use mez_media::png;
use mez_media::stream::StreamDecoder;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::warn;

use super::{ExportError, ExportOptions, missing_between};
use crate::decoders::Decoders;
use crate::persist::{LogFiles, LogKind};

/// Stills in the queue to the writer of the file. If it is full, the reader waits.
const WAITING_MAX: usize = 4;
/// JPEG quality for frames that the log does not hold as JPEG. The loss is invisible.
const QUALITY: u8 = 95;

/// The images that an export needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StillKind {
    /// JPEG only.
    Jpeg,
    /// JPEG or PNG, and data records unchanged.
    Image,
    /// Packets of video unchanged, from the beginning of the chain that reaches into the span.
    Packet,
}

/// A frame as a still, or unchanged.
pub(super) struct Still {
    pub(super) meta: FrameMeta,
    /// `jpeg`, `png` or `data`; for copied video, the name of the encoding.
    pub(super) format: &'static str,
    pub(super) image: Bytes,
    /// Whether the log holds another encoding of the frame.
    pub(super) recoded: bool,
    /// Frames between the previous still and this one that are not in the file.
    pub(super) missing: SkipCounts,
}

/// Results that are known after the last frame.
pub(super) struct Rest {
    pub(super) damaged: u64,
    pub(super) undecodable: u64,
    pub(super) not_copied: u64,
    pub(super) no_pictures: u64,
    /// The oldest and the newest capture time in the log.
    pub(super) held: Option<(Timestamp, Timestamp)>,
}

/// The frames of a span, in order.
pub(super) struct Frames {
    stills: mpsc::Receiver<Still>,
    reading: JoinHandle<Result<Rest, StorageError>>,
    newest: Timestamp,
}

impl Frames {
    /// Checks the keys, and starts to read the log.
    pub(super) fn open(
        options: &ExportOptions,
        (begin, end): (Timestamp, Timestamp),
        kind: StillKind,
    ) -> Result<Self, ExportError> {
        let mut files = match &options.remembered {
            Some(path) => LogFiles::reader(&options.store, &options.camera, path.clone()),
            None => LogFiles::read_only(&options.store, &options.camera),
        };
        check_keys(&mut files, &options.camera, &options.keys)?;
        if options.notes {
            let ExportOptions { store, camera, keys, remembered_notes, .. } = options;
            let mut notes = LogFiles::reader_of(store, camera, LogKind::Notes, remembered_notes.clone());
            if notes.exist() {
                check_keys(&mut notes, camera, &LogKind::Notes.keys(keys))?;
            }
        }
        let mut reader = StoreReader::new(options.camera.clone(), options.keys.clone());
        let query = PastQuery {
            after: None,
            before: None,
            begin,
            end,
            newest: true,
            tier_max: Tier::Disk,
            quality: None,
        };
        let newest = reader.find(&mut files, &query)?.record.map_or(end, |record| record.frame.meta.captured);
        let (stills, waiting) = mpsc::channel(WAITING_MAX);
        let mut reading = Reading { files, reader, maker: Maker::new(kind), stills };
        let query = PastQuery { newest: false, ..query };
        let reading = tokio::task::spawn_blocking(move || reading.run(query));
        Ok(Self { stills: waiting, reading, newest })
    }

    /// The next frame. `None` after the last one.
    pub(super) async fn next(&mut self) -> Option<Still> {
        self.stills.recv().await
    }

    /// The newest capture time of the span, as far as it is known.
    pub(super) fn newest(&self) -> Timestamp {
        self.newest
    }

    /// Waits for the reading thread, and returns its results.
    pub(super) async fn finish(self, camera: &CameraName) -> Result<Rest, ExportError> {
        let Self { stills, reading, .. } = self;
        drop(stills);
        match reading.await {
            Ok(rest) => Ok(rest?),
            Err(error) => {
                warn!(%camera, "reading the log failed: {error}");
                Err(ExportError::Reader(camera.clone()))
            }
        }
    }
}

/// Returns an error if the keys do not open the whole log. Otherwise the missing part would look like a gap.
fn check_keys(files: &mut LogFiles, camera: &CameraName, keys: &KeyRing) -> Result<(), ExportError> {
    for (segment, bytes) in files.list()? {
        match SegmentScan::open(files, camera, keys, segment, bytes) {
            Err(source @ (HeaderError::Key(_) | HeaderError::Version(_))) => {
                return Err(ExportError::Key { camera: camera.clone(), segment, source });
            }
            // The rest of a new segment after a crash.
            Err(HeaderError::Torn | HeaderError::Gone) | Ok(_) => {}
            Err(why) => warn!(%camera, %segment, "a segment of the log is left out: {why}"),
        }
    }
    Ok(())
}

/// The state of the reading thread.
struct Reading {
    files: LogFiles,
    reader: StoreReader,
    maker: Maker,
    stills: mpsc::Sender<Still>,
}

impl Reading {
    fn run(&mut self, mut query: PastQuery) -> Result<Rest, StorageError> {
        let mut rest = Rest { damaged: 0, undecodable: 0, not_copied: 0, no_pictures: 0, held: None };
        let mut last: Option<FrameId> = None;
        // Counts frames between two stills, of left-out frames too.
        let mut missing = SkipCounts::default();
        loop {
            let answer = self.reader.find(&mut self.files, &query)?;
            let Some(record) = answer.record else { break };
            let id = record.frame.meta.id;
            query.after = Some(id);
            missing.merge(&missing_between(last, &record, answer.broken));
            last = Some(id);
            let is_before = record.frame.meta.captured < query.begin;
            match self.maker.make(&record.frame) {
                Made::Image(format, packet) if is_before && self.maker.kind == StillKind::Packet => {
                    // A player needs these frames to decode the span.
                    let (meta, missing) = (record.frame.meta, std::mem::take(&mut missing));
                    let still = Still { meta, format, image: packet, recoded: false, missing };
                    if self.stills.blocking_send(still).is_err() {
                        break;
                    }
                }
                // Needed only to decode later frames.
                _ if is_before => {}
                Made::Image(format, image) => {
                    let meta = record.frame.meta;
                    let recoded = image != record.frame.payload;
                    let missing = std::mem::take(&mut missing);
                    if self.stills.blocking_send(Still { meta, format, image, recoded, missing }).is_err() {
                        // The export was dropped.
                        break;
                    }
                }
                Made::Undecodable => rest.undecodable += 1,
                Made::NotCopied => rest.not_copied += 1,
                Made::NoPicture => rest.no_pictures += 1,
            }
        }
        rest.damaged = self.reader.damaged();
        let newest =
            PastQuery { after: None, begin: Timestamp::MIN, end: Timestamp::MAX, newest: true, ..query };
        let newest = self.reader.find(&mut self.files, &newest)?;
        rest.held = newest.held_from.zip(newest.record.map(|record| record.frame.meta.captured));
        Ok(rest)
    }
}

/// What an export does with a frame.
enum Made {
    /// The format and the bytes of an image.
    Image(&'static str, Bytes),
    Undecodable,
    /// The frame does not fit into a copied video.
    NotCopied,
    /// The frame does not fit into a video.
    NoPicture,
}

/// Makes stills, or checks that packets can be decoded.
struct Maker {
    kind: StillKind,
    /// The encoding of a copied video: that of its first picture.
    copied: Option<Encoding>,
    follower: ChainFollower,
    decoder: StreamDecoder,
    jpeg: Option<Encoder>,
}

impl Maker {
    fn new(kind: StillKind) -> Self {
        // The quality is valid, so this fails only for lack of memory. Then every frame that needs the encoder is left out.
        let jpeg = Encoder::new(QUALITY, Sampling::Yuv420).ok();
        Self {
            kind,
            copied: None,
            follower: ChainFollower::default(),
            decoder: StreamDecoder::new(PIXELS_MAX_DEFAULT).with_platform(Decoders::software().platform()),
            jpeg,
        }
    }

    fn make(&mut self, frame: &Frame) -> Made {
        if !frame.meta.encoding.is_picture() {
            return match self.kind {
                StillKind::Image if DataRecord::decode(&frame.payload).is_err() => Made::Undecodable,
                StillKind::Image => Made::Image("data", frame.payload.clone()),
                StillKind::Jpeg | StillKind::Packet => Made::NoPicture,
            };
        }
        if self.kind == StillKind::Packet {
            return self.packet(frame);
        }
        self.image(frame).map_or(Made::Undecodable, |(format, image)| Made::Image(format, image))
    }

    fn packet(&mut self, frame: &Frame) -> Made {
        let encoding = frame.meta.encoding;
        let is_video = matches!(encoding, Encoding::H264 | Encoding::H265 | Encoding::Av1);
        if !is_video || self.copied.is_some_and(|copied| copied != encoding) {
            return Made::NotCopied;
        }
        if !self.follower.allows(&frame.meta) {
            return Made::Undecodable;
        }
        self.copied = Some(encoding);
        self.follower.note(&frame.meta);
        Made::Image(encoding.name(), frame.payload.clone())
    }

    /// The format and the bytes of an image. `None` if the frame cannot be decoded.
    fn image(&mut self, frame: &Frame) -> Option<(&'static str, Bytes)> {
        let meta = &frame.meta;
        match (meta.encoding, self.kind) {
            (Encoding::Jpeg, _) => return Some(("jpeg", frame.payload.clone())),
            (Encoding::Png, StillKind::Image) => return Some(("png", frame.payload.clone())),
            _ => {}
        }
        let size = (meta.width, meta.height);
        let decoded = self.decoder.decode(meta.encoding, meta.id.sequence, &meta.chain, size, &frame.payload);
        let image = decoded.inspect_err(|error| warn!("frame {}: {error}", meta.id)).ok()?;
        match (meta.encoding, self.kind) {
            // Raw pixels had no loss yet, so a lossless format is used.
            (Encoding::Bgr8 | Encoding::Gray8, StillKind::Image) => {
                Some(("png", png::encode(&image.view()?).ok()?))
            }
            _ => Some(("jpeg", encode(self.jpeg.as_mut()?, image)?)),
        }
    }
}

fn encode(jpeg: &mut Encoder, image: &Image) -> Option<Bytes> {
    let encoded = jpeg.encode(&image.view()?);
    encoded.inspect_err(|error| warn!("a frame cannot be encoded as JPEG: {error}")).ok()
}
