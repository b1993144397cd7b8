//! Publishes frames: checks, stamps and appends them to the camera's log, on the publisher's thread.

use std::sync::Arc;

use bytes::Bytes;

use super::NUMBER_MAX;
use crate::data::DataRecord;
use crate::frame::{
    ChainLink, ClockSource, Encoding, Epoch, FRAME_BYTES_MAX, Frame, FrameId, FrameMeta, Reference, Rung,
    Sequence,
};
use crate::log::{AppendError, LogWriter};
use crate::units::{ClockAnchor, Instant, Timestamp};
use crate::wire::WireError;

/// The last capture time that a publisher may give, in the year 2262. Frames are at least a nanosecond apart, so no
/// frame could follow a time at the end of the range: a publisher that uses a wrong unit would stop the camera for good.
pub const CAPTURED_MAX: Timestamp = Timestamp::from_nanos(NUMBER_MAX);

/// The settings of an [`Intake`].
#[derive(Clone, Copy, Debug)]
pub struct IntakeConfig {
    /// The epoch of the camera broker's present start.
    pub epoch: Epoch,
    /// Relates the monotonic clock to the wall clock.
    pub anchor: ClockAnchor,
    /// The largest payload that is accepted, in bytes. Default [`FRAME_BYTES_MAX`].
    pub frame_bytes_max: u32,
}

impl IntakeConfig {
    /// The default settings.
    pub const fn new(epoch: Epoch, anchor: ClockAnchor) -> Self {
        Self { epoch, anchor, frame_bytes_max: FRAME_BYTES_MAX }
    }
}

/// A frame on its way into the camera's log.
#[derive(Clone, Debug)]
pub struct Published {
    /// The coded pixels.
    pub payload: Bytes,
    /// How the pixels are coded.
    pub encoding: Encoding,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// When the frame was captured, if the publisher knows better than the time of publishing.
    pub captured: Option<Timestamp>,
}

impl Published {
    /// A data record, captured at `captured`, or now.
    pub fn data(record: &DataRecord, captured: Option<Timestamp>) -> Self {
        Self { payload: record.encode(), encoding: Encoding::Data, width: 0, height: 0, captured }
    }
}

/// The place of a picture in a source's own video stream: which frames it needs, and whether later frames need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPart {
    /// A keyframe: it needs no other frame, and no later frame needs a frame before it.
    Key,
    /// The picture needs all frames since the keyframe that have `is_needed`, and the keyframe.
    Following {
        /// Whether later frames may need this picture. If not, senders and viewers may leave it out.
        is_needed: bool,
    },
}

/// Why a frame was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// No pixels, or no bytes.
    #[error(
        "the frame is empty ({width}x{height} pixels, {bytes} bytes); publish frames of at least one pixel"
    )]
    Empty {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The payload's size in bytes.
        bytes: usize,
    },
    /// The payload exceeds the limit.
    #[error(
        "the frame has {bytes} bytes, more than the limit of {bytes_max}; raise frame_bytes_max or encode it smaller"
    )]
    TooLarge {
        /// The payload's size in bytes.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: u32,
    },
    /// The capture time is after [`CAPTURED_MAX`].
    #[error(
        "the capture time {captured} is later than {CAPTURED_MAX}, so no frame could follow; give nanoseconds since 1970, or no time"
    )]
    TooFarAhead {
        /// The given capture time.
        captured: Timestamp,
    },
    /// A data record without bytes.
    #[error("the record is empty; publish at least one byte")]
    EmptyData,
    /// The encoding is data, but the payload does not begin with the header of a data record.
    #[error("the payload is not a data record: {0}; publish the bytes that `DataRecord::encode` returns")]
    NotData(WireError),
    /// The log refused the frame.
    #[error(transparent)]
    Log(#[from] AppendError),
}

/// Why a frame of a stream was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishPartError {
    /// A frame that this frame needs was not published.
    #[error("the frame needs a frame that was not published; publish a keyframe first")]
    NoKeyFrame,
    /// The frame itself was refused.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// The chain of the source's own video that is being published.
#[derive(Clone, Copy, Debug)]
struct SourceChain {
    first: Sequence,
    /// The index of the next frame.
    next: u32,
    /// The newest frame that others need.
    needed: Sequence,
}

impl SourceChain {
    /// The chain link of the next frame, which has this sequence. If other records
    /// lie between the frame and the one that it needs, the link names that one.
    fn link(&self, sequence: Sequence) -> ChainLink {
        let reference = match self.needed.0 + 1 == sequence.0 {
            true => Reference::Previous,
            false => Reference::Acknowledged(self.needed),
        };
        ChainLink { chain: self.first, index: self.next, reference }
    }
}

/// The way into a camera's log.
pub struct Intake {
    writer: LogWriter,
    config: IntakeConfig,
    next: Sequence,
    refused: u64,
    /// `None`: the next frame of a stream must be a keyframe.
    chain: Option<SourceChain>,
}

impl Intake {
    /// An intake, which must be the only writer of its log.
    pub fn new(writer: LogWriter, config: IntakeConfig) -> Self {
        Self { writer, config, next: Sequence(0), refused: 0, chain: None }
    }

    /// Stamps a frame that decodes by itself and appends it to the log. A refused frame takes
    /// no sequence number. A picture ends the chain of a stream; a data record does not.
    pub fn publish(&mut self, now: Instant, frame: Published) -> Result<FrameId, PublishError> {
        self.chain = self.chain.filter(|_| !frame.encoding.is_picture());
        let link = ChainLink::still(self.next);
        self.published(now, frame, link)
    }

    /// Stamps a picture of a source's own video stream and appends it to the log, as part of its chain. Frames must come in
    /// the order of the stream. If a frame that others need is refused, all later frames are refused up to the next keyframe.
    pub fn publish_part(
        &mut self,
        now: Instant,
        frame: Published,
        part: StreamPart,
    ) -> Result<FrameId, PublishPartError> {
        debug_assert!(frame.encoding.is_chained(), "{} is no stream", frame.encoding.name());
        // Set again below, unless this frame ends the chain.
        let chain = self.chain.take();
        let link = match part {
            StreamPart::Key => ChainLink::still(self.next),
            StreamPart::Following { .. } => match chain.map(|chain| chain.link(self.next)) {
                Some(link) if link.index < u32::MAX => link,
                _ => {
                    self.refused += 1;
                    return Err(PublishPartError::NoKeyFrame);
                }
            },
        };
        let result = self.published(now, frame, link);
        let is_spare = part == StreamPart::Following { is_needed: false };
        self.chain = match (&result, chain) {
            (Ok(_), Some(chain)) if is_spare => Some(SourceChain { next: link.index + 1, ..chain }),
            (Ok(id), _) => Some(SourceChain { first: link.chain, next: link.index + 1, needed: id.sequence }),
            (Err(_), chain) => chain.filter(|_| is_spare),
        };
        Ok(result?)
    }

    /// The epoch that new frames belong to.
    pub fn epoch(&self) -> Epoch {
        self.config.epoch
    }

    /// How many frames were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Bytes in the log, with evicted frames that its readers still hold.
    pub fn log_bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// Begins `epoch` if it is later than the present epoch, because the edge holds frames of the present epoch from another run of this camera.
    pub fn raise_epoch(&mut self, epoch: Epoch) {
        if epoch > self.config.epoch {
            self.config.epoch = epoch;
            self.next = Sequence(0);
            self.chain = None;
        }
    }

    fn published(
        &mut self,
        now: Instant,
        frame: Published,
        link: ChainLink,
    ) -> Result<FrameId, PublishError> {
        let result = self.try_publish(now, frame, link);
        match result {
            Ok(_) => self.next.0 += 1,
            Err(_) => self.refused += 1,
        }
        result
    }

    fn try_publish(
        &mut self,
        now: Instant,
        frame: Published,
        chain: ChainLink,
    ) -> Result<FrameId, PublishError> {
        let meta = describe(&self.config, (self.next, chain), self.writer.last(), now, &frame)?;
        let (id, payload) = (meta.id, frame.payload);
        self.writer.append(Frame { meta, payload }, Arc::new([]), now)?;
        Ok(id)
    }
}

/// Checks a frame and returns its metadata: number, place in a chain, and capture time. `last` is the newest frame of the log.
pub(super) fn describe(
    config: &IntakeConfig,
    (sequence, chain): (Sequence, ChainLink),
    last: Option<(FrameId, Timestamp)>,
    now: Instant,
    frame: &Published,
) -> Result<FrameMeta, PublishError> {
    let Published { payload, encoding, width, height, captured } = frame;
    let (encoding, width, height) = (*encoding, *width, *height);
    if encoding == Encoding::Data {
        let record = DataRecord::decode(payload).map_err(PublishError::NotData)?;
        if record.body.is_empty() {
            return Err(PublishError::EmptyData);
        }
    } else if width == 0 || height == 0 || payload.is_empty() {
        return Err(PublishError::Empty { width, height, bytes: payload.len() });
    }
    if payload.len() > config.frame_bytes_max as usize {
        return Err(PublishError::TooLarge { bytes: payload.len(), bytes_max: config.frame_bytes_max });
    }
    if let Some(captured) = captured.filter(|captured| *captured > CAPTURED_MAX) {
        return Err(PublishError::TooFarAhead { captured });
    }
    // A data record has no size.
    let (width, height) = if encoding.is_picture() { (width, height) } else { (0, 0) };
    let (captured, clock_source) = match captured {
        Some(captured) => (*captured, ClockSource::Publisher),
        None => (stamp(config, last, now), ClockSource::Broker),
    };
    Ok(FrameMeta {
        id: FrameId { epoch: config.epoch, sequence },
        captured,
        clock_source,
        width,
        height,
        published: (width, height),
        encoding,
        rung: Rung::original(),
        chain,
    })
}

/// The wall-clock time of `now`, but at least 1 ns after the capture time of the previous frame.
fn stamp(config: &IntakeConfig, last: Option<(FrameId, Timestamp)>, now: Instant) -> Timestamp {
    let wall = config.anchor.wall_at(now);
    match last {
        Some((last, captured)) if last.epoch == config.epoch => {
            wall.max(Timestamp::from_nanos(captured.as_nanos().saturating_add(1)))
        }
        _ => wall,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{LogConfig, log};

    fn intake() -> (Intake, crate::log::LogReader) {
        let (writer, reader) = log(LogConfig::default());
        let anchor = ClockAnchor { wall: Timestamp::from_nanos(5_000), monotonic: Instant::from_nanos(100) };
        (
            Intake::new(writer, IntakeConfig { frame_bytes_max: 64, ..IntakeConfig::new(Epoch(3), anchor) }),
            reader,
        )
    }

    fn image(bytes: usize) -> Published {
        Published {
            payload: vec![1; bytes].into(),
            encoding: Encoding::Jpeg,
            width: 2,
            height: 2,
            captured: None,
        }
    }

    #[test]
    fn frames_are_numbered_and_stamped_by_the_anchored_clock() {
        let (mut intake, reader) = intake();
        for expected in 0..3 {
            // The clock stands still, but the stamps move on.
            let id = intake.publish(Instant::from_nanos(150), image(4)).unwrap();
            assert_eq!(id, FrameId { epoch: Epoch(3), sequence: Sequence(expected) });
        }
        let stamps: Vec<u64> =
            (0..3).map(|index| reader.get(index).unwrap().frame.meta.captured.as_nanos()).collect();
        assert_eq!(stamps, [5_050, 5_051, 5_052]);
    }

    #[test]
    fn refused_frames_are_counted_and_take_no_number() {
        let (mut intake, reader) = intake();
        let now = Instant::from_nanos(200);
        assert!(matches!(intake.publish(now, image(65)), Err(PublishError::TooLarge { .. })));
        assert!(matches!(intake.publish(now, image(0)), Err(PublishError::Empty { .. })));
        assert!(matches!(
            intake.publish(now, Published { width: 0, ..image(4) }),
            Err(PublishError::Empty { .. })
        ));
        intake.publish(now, Published { captured: Some(Timestamp::from_nanos(9)), ..image(4) }).unwrap();
        let again = intake.publish(now, Published { captured: Some(Timestamp::from_nanos(9)), ..image(4) });
        assert!(matches!(again, Err(PublishError::Log(AppendError::CaptureTime { .. }))));
        assert_eq!((intake.refused(), reader.held()), (4, 0..1));
    }

    /// A capture time at the end of the range once stopped the camera until its broker was restarted.
    #[test]
    fn no_capture_time_keeps_frames_from_following() {
        let (mut intake, reader) = intake();
        let now = Instant::from_nanos(200);
        let at = |captured| Published { captured: Some(captured), ..image(4) };
        let refused = intake.publish(now, at(Timestamp::MAX)).unwrap_err();
        assert_eq!(refused, PublishError::TooFarAhead { captured: Timestamp::MAX });
        intake.publish(now, at(CAPTURED_MAX)).unwrap();
        intake.publish(now, image(4)).unwrap();
        let again = intake.publish(now, at(CAPTURED_MAX));
        assert!(matches!(again, Err(PublishError::Log(AppendError::CaptureTime { .. }))));
        assert_eq!(reader.held(), 0..2);
    }

    fn part(intake: &mut Intake, part: StreamPart) -> Result<FrameId, PublishPartError> {
        let frame = Published { encoding: Encoding::H264, ..image(4) };
        intake.publish_part(Instant::from_nanos(200), frame, part)
    }

    /// The references of a frame lead to every frame that its decoder needs.
    #[test]
    fn frames_of_a_stream_name_the_newest_frame_that_others_need() {
        const KEY: StreamPart = StreamPart::Key;
        const NEEDED: StreamPart = StreamPart::Following { is_needed: true };
        const SPARE: StreamPart = StreamPart::Following { is_needed: false };
        let (mut intake, reader) = intake();
        for step in [KEY, NEEDED, SPARE, SPARE, NEEDED, NEEDED, KEY, SPARE, NEEDED] {
            part(&mut intake, step).unwrap();
        }
        let links: Vec<ChainLink> = (0..9).map(|index| reader.get(index).unwrap().frame.meta.chain).collect();
        let link = |chain, index, reference| ChainLink { chain: Sequence(chain), index, reference };
        let (alone, previous) = (Reference::Independent, Reference::Previous);
        let to = |sequence| Reference::Acknowledged(Sequence(sequence));
        assert_eq!(
            links,
            [
                link(0, 0, alone),
                link(0, 1, previous),
                link(0, 2, previous),
                link(0, 3, to(1)),
                link(0, 4, to(1)),
                link(0, 5, previous),
                link(6, 0, alone),
                link(6, 1, previous),
                link(6, 2, to(6)),
            ]
        );
    }

    /// A data record between two pictures is not part of the stream. The next picture names the picture that it needs.
    #[test]
    fn data_records_between_pictures_end_no_chain() {
        const NEEDED: StreamPart = StreamPart::Following { is_needed: true };
        let (mut intake, reader) = intake();
        let body = Bytes::from_static(b"[1]");
        let record = DataRecord { content_type: "application/json".parse().unwrap(), of: None, body };
        part(&mut intake, StreamPart::Key).unwrap();
        for _ in 0..2 {
            intake.publish(Instant::from_nanos(200), Published::data(&record, None)).unwrap();
            part(&mut intake, NEEDED).unwrap();
        }
        part(&mut intake, NEEDED).unwrap();
        let chains = (0..6).map(|index| reader.get(index).unwrap().frame.meta.chain);
        let chains: Vec<_> = chains.map(|chain| (chain.chain.0, chain.index, chain.reference)).collect();
        let (alone, to) = (Reference::Independent, |sequence| Reference::Acknowledged(Sequence(sequence)));
        let previous = Reference::Previous;
        assert_eq!(
            chains,
            [(0, 0, alone), (1, 0, alone), (0, 1, to(0)), (3, 0, alone), (0, 2, to(2)), (0, 3, previous)]
        );
    }

    #[test]
    fn a_stream_goes_on_only_with_what_it_needs() {
        const NEEDED: StreamPart = StreamPart::Following { is_needed: true };
        let (mut intake, reader) = intake();
        assert_eq!(part(&mut intake, NEEDED), Err(PublishPartError::NoKeyFrame));
        part(&mut intake, StreamPart::Key).unwrap();
        let now = Instant::from_nanos(200);
        let large = Published { encoding: Encoding::H264, ..image(65) };
        // If no other frame needs the refused frame, only this one is lost.
        let spare = StreamPart::Following { is_needed: false };
        let too_large =
            |result| matches!(result, Err(PublishPartError::Publish(PublishError::TooLarge { .. })));
        assert!(too_large(intake.publish_part(now, large.clone(), spare)));
        part(&mut intake, NEEDED).unwrap();
        // If others need the refused frame, they are refused too.
        assert!(too_large(intake.publish_part(now, large, NEEDED)));
        assert_eq!(part(&mut intake, NEEDED), Err(PublishPartError::NoKeyFrame));
        part(&mut intake, StreamPart::Key).unwrap();
        // A still in between ends the chain too, and so does a new epoch.
        intake.publish(now, image(4)).unwrap();
        assert_eq!(part(&mut intake, NEEDED), Err(PublishPartError::NoKeyFrame));
        part(&mut intake, StreamPart::Key).unwrap();
        intake.raise_epoch(Epoch(9));
        assert_eq!(part(&mut intake, NEEDED), Err(PublishPartError::NoKeyFrame));
        let id = part(&mut intake, StreamPart::Key).unwrap();
        assert_eq!(id, FrameId { epoch: Epoch(9), sequence: Sequence(0) });
        assert_eq!((intake.refused(), reader.held()), (6, 0..6));
    }

    #[test]
    fn a_data_record_has_no_size_and_has_to_be_one() {
        let (mut intake, log) = intake();
        let record = DataRecord {
            content_type: "application/json".parse().unwrap(),
            of: None,
            body: Bytes::from_static(b"[1]"),
        };
        let now = Instant::from_nanos(200);
        let published = Published { width: 640, ..Published::data(&record, None) };
        intake.publish(now, published).unwrap();
        let held = log.newest().unwrap().frame;
        assert_eq!((held.meta.encoding, held.meta.width, held.meta.published), (Encoding::Data, 0, (0, 0)));
        assert_eq!(DataRecord::decode(&held.payload), Ok(record.clone()));
        let empty = DataRecord { body: Bytes::new(), ..record };
        assert_eq!(intake.publish(now, Published::data(&empty, None)), Err(PublishError::EmptyData));
        let other = Published { encoding: Encoding::Data, ..image(4) };
        assert!(matches!(intake.publish(now, other), Err(PublishError::NotData(_))));
    }
}
