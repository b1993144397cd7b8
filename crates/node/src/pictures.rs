//! Shares decoded pictures among the readers of a camera on this host: one decoding for all of them.
//!
//! A reader whose library decodes chains is given every frame as it came, whatever happens here. While it *shares*, the picture comes
//! beside the frame, and its library decodes nothing. It goes over to pictures at any frame, and back only where a chain begins, since its
//! own decoder has not seen the rest (`docs/decisions/0046-shared-pictures.md`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mez_core::frame::FrameId;
use mez_core::name::CameraName;
use mez_core::stills::{Picture, PictureAnswer};
use mez_core::units::Instant;
use tokio::time::timeout;
use tracing::info;

use crate::clock::monotonic_now;
use crate::stills::Stills;

/// How long a picture may take. A decoder that hangs is given up before that.
const TIME_MAX: Duration = Duration::from_millis(400);
/// The first readers go over to pictures only near the beginning of a chain, because the edge has to decode the chain up to there.
const ENTRY_INDEX_MAX: u32 = 32;
/// For this long after a picture could not be made, readers decode by themselves.
const REST: Duration = Duration::from_secs(60);

/// A memory that became too small for another camera is replaced. A reader inside a chain passes so many frames over meanwhile.
const WITHOUT_MEMORY_MAX: u8 = 30;

/// The readers of one camera that take pictures.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// All that could.
    readers: AtomicUsize,
    /// Those that do.
    sharing: AtomicUsize,
    rests_until: Mutex<Instant>,
}

impl Sharing {
    fn rests(&self, now: Instant) -> bool {
        now < *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rest(&self, until: Instant) {
        *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// A frame of a chain that goes to a reader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainedFrame {
    /// Which frame.
    pub(crate) id: FrameId,
    /// Its place in its chain.
    pub(crate) index: u32,
}

/// What comes beside a frame of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Nothing: the reader decodes the frame.
    Nothing,
    /// Nothing yet: pictures come once there is memory for them.
    Memory,
    /// No picture, because a later frame has one: the reader need not decode the frame.
    Passed,
    /// The picture.
    Picture(Picture),
}

/// One subscription's pictures, of all its cameras.
#[derive(Default)]
pub(crate) struct SharedPictures {
    /// As many as the edge has cameras.
    cameras: HashMap<CameraName, Sharer>,
}

impl SharedPictures {
    /// What is to come beside a frame of a chain. `from`: how many readers of a camera make it worth it; 0: never.
    /// `has_memory`: whether a picture of this frame's size can be handed over.
    pub(crate) async fn beside(
        &mut self,
        (camera, stills): (&CameraName, Arc<Stills>),
        frame: ChainedFrame,
        from: usize,
        has_memory: bool,
    ) -> Beside {
        if from == 0 {
            return Beside::Nothing;
        }
        if self.cameras.get(camera).is_none_or(|sharer| !Arc::ptr_eq(&sharer.stills, &stills)) {
            self.cameras.insert(camera.clone(), Sharer::new(stills));
        }
        let Some(sharer) = self.cameras.get_mut(camera) else { return Beside::Nothing };
        sharer.beside(camera, frame, from, has_memory).await
    }
}

/// One subscription's place among the readers of one camera.
struct Sharer {
    stills: Arc<Stills>,
    /// Pictures come.
    shares: bool,
    /// Frames in a row for which there was no memory.
    without_memory: u8,
}

impl Sharer {
    fn new(stills: Arc<Stills>) -> Self {
        stills.sharing().readers.fetch_add(1, Ordering::AcqRel);
        Self { stills, shares: false, without_memory: 0 }
    }

    async fn beside(
        &mut self,
        camera: &CameraName,
        frame: ChainedFrame,
        from: usize,
        has_memory: bool,
    ) -> Beside {
        let is_worth_it = self.is_worth_it(frame, from);
        self.without_memory = if has_memory { 0 } else { self.without_memory.saturating_add(1) };
        if self.shares && frame.index > 0 && (1..=WITHOUT_MEMORY_MAX).contains(&self.without_memory) {
            return Beside::Passed;
        }
        self.set(is_worth_it && has_memory);
        match (is_worth_it, has_memory) {
            (true, true) => {}
            (true, false) => return Beside::Memory,
            (false, _) => return Beside::Nothing,
        }
        if self.stills.newest() != Some(frame.id) {
            return Beside::Passed;
        }
        match timeout(TIME_MAX, self.stills.ask_for_picture(frame.id)).await {
            Ok(Ok(PictureAnswer::Picture(picture))) => Beside::Picture(picture),
            Ok(Ok(PictureAnswer::Overtaken)) => Beside::Passed,
            Ok(Ok(PictureAnswer::NotDecoded) | Err(_)) | Err(_) => {
                let now = monotonic_now();
                if !self.stills.sharing().rests(now) {
                    info!(%camera, frame = %frame.id, "no picture for programs on this host: they decode by themselves");
                    self.stills.sharing().rest(now + REST);
                }
                self.set(false);
                Beside::Nothing
            }
        }
    }

    /// Whether the reader is to be given pictures from this frame on, or still.
    fn is_worth_it(&self, frame: ChainedFrame, from: usize) -> bool {
        let of = self.stills.sharing();
        let are_enough = of.readers.load(Ordering::Acquire) >= from;
        if self.shares {
            // Inside a chain its own decoder cannot go on.
            return are_enough || frame.index > 0;
        }
        let is_near = frame.index <= ENTRY_INDEX_MAX || of.sharing.load(Ordering::Acquire) > 0;
        are_enough && is_near && !of.rests(monotonic_now())
    }

    fn set(&mut self, shares: bool) {
        let before = std::mem::replace(&mut self.shares, shares);
        let of = &self.stills.sharing().sharing;
        match (before, shares) {
            (false, true) => _ = of.fetch_add(1, Ordering::AcqRel),
            (true, false) => _ = of.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
    }
}

impl Drop for Sharer {
    fn drop(&mut self) {
        self.set(false);
        self.stills.sharing().readers.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use mez_core::frame::{
        ClockSource, Encoding, Epoch, Frame, FrameMeta, Quality, Reference, Rung, Sequence,
    };
    use mez_core::log::{LogConfig, LogWriter, Record, log};
    use mez_core::units::Timestamp;
    use mez_media::image::{ImageView, ImageViewMut, PixelFormat};
    use mez_media::stream::{Encoded, Outcome, OwnedPicture, Request, Source, StreamEncoder};

    use super::*;
    use crate::decoders::Decoders;

    const SIZE: (u32, u32) = (64, 48);

    /// A camera that sends video: grey pictures, each brighter than the one before.
    struct Video {
        camera: CameraName,
        writer: LogWriter,
        encoder: StreamEncoder,
        stills: Arc<Stills>,
        chains_asked: Arc<AtomicU32>,
        next: u64,
    }

    impl Video {
        fn new() -> Self {
            let (writer, reader) = log(LogConfig::default());
            let (camera, chains_asked) = ("dock".parse::<CameraName>().unwrap(), Arc::new(AtomicU32::new(0)));
            let asked = Arc::clone(&chains_asked);
            let ask = move || _ = asked.fetch_add(1, Ordering::Relaxed);
            let stills = Stills::new(camera.clone(), reader, Decoders::software(), ask);
            let encoder = StreamEncoder::new(1 << 20).unwrap();
            Self { camera, writer, encoder, stills, chains_asked, next: 0 }
        }

        /// The next frame, which begins a chain or goes on with one.
        fn frame(&mut self, begins: bool) -> ChainedFrame {
            self.frame_of(begins, |payload| payload)
        }

        fn frame_of(&mut self, begins: bool, damage: fn(Vec<u8>) -> Vec<u8>) -> ChainedFrame {
            let sequence = self.next;
            self.next += 1;
            let pixels = vec![shade(sequence); (SIZE.0 * SIZE.1) as usize];
            let view = ImageView::packed(&pixels, SIZE.0, SIZE.1, PixelFormat::Gray8).unwrap();
            let (setting, at) = ("h264/q20".parse().unwrap(), Instant::from_nanos(1 + sequence * 1_000_000));
            let request = Request {
                sequence: Sequence(sequence),
                captured: at,
                setting: &setting,
                bytes_max: None,
                reference: if begins { Reference::Independent } else { Reference::Previous },
            };
            let Outcome::Frame(made) = self.encoder.encode(&Source::Pixels(view), &request).unwrap() else {
                panic!("{sequence} was not made")
            };
            let Encoded { payload, encoding, width, height, chain, .. } = made;
            assert_eq!((encoding, chain.index == 0), (Encoding::H264, begins), "{sequence}");
            let meta = FrameMeta {
                id: FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
                captured: Timestamp::from_nanos(at.as_nanos()),
                clock_source: ClockSource::Broker,
                width,
                height,
                published: SIZE,
                encoding,
                rung: Rung::original(),
                chain,
            };
            let (id, index) = (meta.id, meta.chain.index);
            let record = Record {
                frame: Frame { meta, payload: damage(payload.to_vec()).into() },
                skipped: [].into(),
                quality: Quality::default(),
                trace: None,
                link_bytes: None,
                arrived: at,
            };
            self.writer.append_record(record).unwrap();
            self.stills.wake();
            ChainedFrame { id, index }
        }

        /// What comes beside a frame for a reader.
        async fn beside(&self, reader: &mut SharedPictures, frame: ChainedFrame) -> Beside {
            reader.beside((&self.camera, Arc::clone(&self.stills)), frame, 2, true).await
        }

        /// The same, which has to be the picture.
        async fn shows(&self, reader: &mut SharedPictures, frame: ChainedFrame) -> Picture {
            match self.beside(reader, frame).await {
                Beside::Picture(picture) => {
                    let Picture { form, data, size } = picture.clone();
                    let owned = OwnedPicture::from_parts(form, size, data).unwrap();
                    let mut pixels = vec![0; (SIZE.0 * SIZE.1 * 3) as usize];
                    let mut view =
                        ImageViewMut::packed(&mut pixels, SIZE.0, SIZE.1, PixelFormat::Bgr8).unwrap();
                    owned.show(&mut view).unwrap();
                    let sequence = frame.id.sequence.0;
                    assert!(pixels[0].abs_diff(shade(sequence)) <= 3, "{sequence} shows {}", pixels[0]);
                    picture
                }
                other => panic!("{frame:?}: {other:?}"),
            }
        }
    }

    fn shade(sequence: u64) -> u8 {
        40 + 10 * (sequence % 20) as u8
    }

    /// Both get the same memory, which was made once; who is alone gets nothing.
    #[tokio::test]
    async fn two_readers_get_one_picture() {
        let (mut video, mut one, mut other) =
            (Video::new(), SharedPictures::default(), SharedPictures::default());
        let frame = video.frame(true);
        assert_eq!(video.beside(&mut one, frame).await, Beside::Nothing, "it is alone");
        video.shows(&mut other, frame).await;
        for _ in 0..10 {
            let frame = video.frame(false);
            let first = video.shows(&mut one, frame).await;
            let second = video.shows(&mut other, frame).await;
            assert_eq!(first.data.as_ptr(), second.data.as_ptr(), "it was decoded and copied once");
        }
        assert_eq!(video.chains_asked.load(Ordering::Relaxed), 0);
    }

    /// A reader that stays alone cannot decode the rest of a chain that it has not decoded: it gets pictures to the end of it.
    #[tokio::test]
    async fn a_reader_goes_back_only_where_a_chain_begins() {
        let (mut video, mut one, mut other) =
            (Video::new(), SharedPictures::default(), SharedPictures::default());
        let frame = video.frame(true);
        video.beside(&mut one, frame).await;
        video.beside(&mut other, frame).await;
        let frame = video.frame(false);
        video.shows(&mut one, frame).await;
        drop(other);
        for _ in 0..5 {
            let frame = video.frame(false);
            video.shows(&mut one, frame).await;
        }
        let begins = video.frame(true);
        assert_eq!(video.beside(&mut one, begins).await, Beside::Nothing);
        let next = video.frame(false);
        assert_eq!(video.beside(&mut one, next).await, Beside::Nothing);
        // Deep in a chain nobody goes over to pictures, because the edge would have to decode all of it.
        for _ in 0..40 {
            video.frame(false);
        }
        let (deep, mut other) = (video.frame(false), SharedPictures::default());
        assert_eq!(video.beside(&mut other, deep).await, Beside::Nothing);
        assert_eq!(video.beside(&mut one, deep).await, Beside::Nothing);
    }

    /// Nobody waits for the picture of a frame that is not the newest any more.
    #[tokio::test]
    async fn a_slow_reader_takes_the_next_picture() {
        let (mut video, mut one, mut other) =
            (Video::new(), SharedPictures::default(), SharedPictures::default());
        let first = video.frame(true);
        video.beside(&mut one, first).await;
        video.shows(&mut other, first).await;
        let (second, third) = (video.frame(false), video.frame(false));
        assert_eq!(video.beside(&mut one, second).await, Beside::Passed);
        video.shows(&mut other, third).await;
        video.shows(&mut one, third).await;
    }

    /// Where the edge's decoder fails, readers decode by themselves, and are asked for memory first where they have none.
    #[tokio::test]
    async fn a_decoder_that_fails_rests() {
        let (mut video, mut one, mut other) =
            (Video::new(), SharedPictures::default(), SharedPictures::default());
        let frame = video.frame(true);
        video.beside(&mut one, frame).await;
        let without = other.beside((&video.camera, Arc::clone(&video.stills)), frame, 2, false).await;
        assert_eq!(without, Beside::Memory);
        video.shows(&mut other, frame).await;
        video.shows(&mut one, frame).await;
        // Its memory is being replaced by a larger one.
        let frame = video.frame(false);
        let without = other.beside((&video.camera, Arc::clone(&video.stills)), frame, 2, false).await;
        assert_eq!(without, Beside::Passed);
        let damaged = video.frame_of(false, |payload| vec![1; payload.len()]);
        assert_eq!(video.beside(&mut one, damaged).await, Beside::Nothing);
        assert_eq!(video.beside(&mut other, damaged).await, Beside::Nothing);
        assert_eq!(video.chains_asked.load(Ordering::Relaxed), 1, "the camera is asked for another chain");
        let begins = video.frame(true);
        assert_eq!(video.beside(&mut one, begins).await, Beside::Nothing, "not at once again");
        video.stills.sharing().rest(Instant::ZERO);
        video.shows(&mut one, begins).await;
        video.shows(&mut other, begins).await;
    }
}
