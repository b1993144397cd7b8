//! Shares decoded pictures among the readers of a camera on this host: each frame is decoded once for all of them.
//!
//! A reader whose library can decode chains always gets every frame. While it *shares*, it also gets the picture,
//! and its library decodes nothing. A reader can start to share at any frame. It can stop only where a chain
//! begins, since its own decoder has not seen the rest of the chain (`docs/decisions/0046-shared-pictures.md`).
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | decides which reader gets pictures, and from which frame on |
//! | `sharing.rs` | counts the readers that share |
//! | `memory.rs` | the memory of the pictures, and who may map it |
//! | `service/` | the decoding process |

mod memory;
mod service;
mod sharing;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mez_core::frame::{Encoding, FrameId};
use mez_core::name::CameraName;
use mez_core::stills::{Picture, PictureAnswer};
use tokio::sync::oneshot;
use tokio::time::{Timeout, timeout};
use tracing::info;

pub(crate) use self::memory::{Mapping, MayMap, PictureMemory, PictureStore, Slot, Writer};
pub(crate) use self::service::DecoderBeside;
pub use self::service::{PictureService, serve};
pub(crate) use self::sharing::Sharing;
use crate::clock::monotonic_now;
use crate::stills::Stills;

/// The longest time that a reader waits for a picture. A hanging decoder is given up before that.
const TIME_MAX: Duration = Duration::from_millis(400);
/// The first readers start to share only near the beginning of a chain, because the edge has to decode the chain up to that frame.
const ENTRY_INDEX_MAX: u32 = 32;
/// For this long after a picture could not be made, no reader starts to share.
const REST: Duration = Duration::from_secs(60);

/// A frame of a chain that is sent to a reader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainedFrame {
    /// The frame's ID.
    pub(crate) id: FrameId,
    /// Its encoding.
    pub(crate) encoding: Encoding,
    /// Its position in its chain.
    pub(crate) index: u32,
}

/// The largest possible size of a frame's picture, in bytes. `None` for stills.
pub(crate) fn picture_bytes_max(encoding: Encoding, (width, height): (u32, u32)) -> Option<usize> {
    let (width, height) = (width as usize, height as usize);
    match encoding {
        Encoding::H264 | Encoding::H265 | Encoding::Av1 => {
            width.checked_mul(height)?.checked_add(2 * width.div_ceil(2) * height.div_ceil(2))
        }
        encoding if encoding.is_chained() => width.checked_mul(height)?.checked_mul(3),
        _ => None,
    }
}

/// A requested picture, with a timeout.
pub(crate) type Asked = Pin<Box<Timeout<oneshot::Receiver<PictureAnswer>>>>;

/// What will accompany a frame of a chain.
#[derive(Debug)]
pub(crate) enum Choice {
    /// Nothing: the reader decodes the frame.
    Nothing,
    /// No picture, because a later frame has one. The reader need not decode the frame.
    Passed,
    /// The picture, once it is made: see [`SharedPictures::answered`].
    Asked(Asked),
}

/// What accompanies a frame of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Nothing: the reader decodes the frame.
    Nothing,
    /// No picture, because a later frame has one. The reader need not decode the frame.
    Passed,
    /// The picture.
    Picture(Picture),
}

/// The pictures of one subscription, for all its cameras.
#[derive(Default)]
pub(crate) struct SharedPictures {
    /// At most as many as the edge has cameras.
    cameras: HashMap<CameraName, Sharer>,
}

impl SharedPictures {
    /// Decides what accompanies a frame of a chain. A camera needs `from` readers before they share; 0 disables sharing.
    /// `has_room` returns whether a picture of this frame's size can be handed over. It is called only if sharing is worthwhile.
    pub(crate) fn choose(
        &mut self,
        (camera, stills): (&CameraName, &Arc<Stills>),
        frame: ChainedFrame,
        from: usize,
        has_room: impl FnOnce() -> bool,
    ) -> Choice {
        let sharer = self.cameras.get(camera).filter(|sharer| sharer.is_of(stills));
        // When sharing is disabled, a sharing reader continues until the end of the chain, which its own decoder has not seen.
        if from == 0 && sharer.is_none_or(|sharer| !sharer.shares) {
            return Choice::Nothing;
        }
        if sharer.is_none() {
            self.cameras.retain(|_, sharer| sharer.stills.strong_count() > 0);
            self.cameras.insert(camera.clone(), Sharer::new(stills));
        }
        let Some(sharer) = self.cameras.get_mut(camera) else { return Choice::Nothing };
        sharer.choose(stills, frame, from, has_room)
    }

    /// What accompanies a frame whose picture was requested. `answer` is `None` if there was no answer in time.
    pub(crate) fn answered(
        &mut self,
        camera: &CameraName,
        frame: FrameId,
        answer: Option<PictureAnswer>,
    ) -> Beside {
        match (answer, self.cameras.get_mut(camera)) {
            (Some(PictureAnswer::Picture(picture)), _) => Beside::Picture(picture),
            (Some(PictureAnswer::Overtaken), _) => Beside::Passed,
            (Some(PictureAnswer::NotDecoded) | None, sharer) => {
                sharer.into_iter().for_each(|sharer| sharer.fails(camera, frame));
                Beside::Nothing
            }
        }
    }
}

/// The state of one subscription at one camera.
struct Sharer {
    /// Weak, because the camera may be forgotten together with its log.
    stills: Weak<Stills>,
    of: Arc<Sharing>,
    /// Whether this reader gets pictures.
    shares: bool,
}

impl Sharer {
    fn new(stills: &Arc<Stills>) -> Self {
        let of = Arc::clone(stills.sharing());
        of.joins();
        Self { stills: Arc::downgrade(stills), of, shares: false }
    }

    fn is_of(&self, stills: &Arc<Stills>) -> bool {
        std::ptr::eq(self.stills.as_ptr(), Arc::as_ptr(stills))
    }

    fn choose(
        &mut self,
        stills: &Arc<Stills>,
        frame: ChainedFrame,
        from: usize,
        has_room: impl FnOnce() -> bool,
    ) -> Choice {
        let shares = self.is_worth_it(stills, frame, from) && has_room();
        self.set(shares);
        if !shares {
            return Choice::Nothing;
        }
        if stills.have_newer_than(frame.id) {
            return Choice::Passed;
        }
        Choice::Asked(Box::pin(timeout(TIME_MAX, stills.ask_for_picture(frame.id))))
    }

    /// Handles a frame whose picture could not be made.
    fn fails(&mut self, camera: &CameraName, frame: FrameId) {
        let now = monotonic_now();
        if !self.of.rests(now) {
            info!(%camera, %frame, "no shared picture for programs on this host: they decode themselves");
            self.of.rest(now + REST);
        }
        self.set(false);
    }

    /// Whether the reader should get pictures from this frame on.
    fn is_worth_it(&self, stills: &Stills, frame: ChainedFrame, from: usize) -> bool {
        // Inside a chain, its own decoder cannot take over.
        if self.shares && frame.index > 0 {
            return true;
        }
        let are_enough = from > 0 && self.of.readers() >= from;
        let is_near = frame.index <= ENTRY_INDEX_MAX || self.of.is_shared();
        let may = are_enough && is_near && !self.of.rests(monotonic_now());
        may && stills.can_share(frame.encoding)
    }

    fn set(&mut self, shares: bool) {
        match (std::mem::replace(&mut self.shares, shares), shares) {
            (false, true) => self.of.begins(),
            (true, false) => self.of.ends(),
            _ => {}
        }
    }
}

impl Drop for Sharer {
    fn drop(&mut self) {
        self.set(false);
        self.of.leaves();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use bytes::Bytes;
    use mez_core::frame::{
        ChainLink, ClockSource, Encoding, Epoch, Frame, FrameMeta, Quality, Reference, Rung, Sequence,
    };
    use mez_core::log::{LogConfig, LogWriter, Record, log};
    use mez_core::units::{Instant, Timestamp};
    use mez_media::image::{ImageView, ImageViewMut, PixelFormat};
    use mez_media::stream::{Encoded, Outcome, OwnedPicture, Request, Source, StreamEncoder};

    use super::*;
    use crate::decoders::Decoders;
    use crate::stills::Helpers;

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
            let stills = Stills::new(camera.clone(), reader, Helpers::only(Decoders::software()), ask);
            let encoder = StreamEncoder::new(1 << 20).unwrap();
            Self { camera, writer, encoder, stills, chains_asked, next: 0 }
        }

        /// Appends the next frame, which begins or continues a chain.
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
            let frame = ChainedFrame { id: meta.id, encoding, index: meta.chain.index };
            self.append(meta, damage(payload.to_vec()).into());
            frame
        }

        /// What accompanies a frame for a reader.
        async fn beside(&self, reader: &mut SharedPictures, frame: ChainedFrame) -> Beside {
            self.beside_if(reader, frame, (2, true)).await
        }

        /// Like `beside`, with a minimum of `from` readers, and with room or without.
        async fn beside_if(
            &self,
            reader: &mut SharedPictures,
            frame: ChainedFrame,
            (from, has_room): (usize, bool),
        ) -> Beside {
            match reader.choose((&self.camera, &self.stills), frame, from, || has_room) {
                Choice::Nothing => Beside::Nothing,
                Choice::Passed => Beside::Passed,
                Choice::Asked(asked) => {
                    let answer = asked.await.ok().and_then(Result::ok);
                    reader.answered(&self.camera, frame.id, answer)
                }
            }
        }

        /// Appends a data record.
        fn data(&mut self) {
            let sequence = Sequence(self.next);
            self.next += 1;
            let meta = FrameMeta {
                id: FrameId { epoch: Epoch(1), sequence },
                captured: Timestamp::from_nanos(1 + sequence.0 * 1_000_000),
                clock_source: ClockSource::Broker,
                width: 0,
                height: 0,
                published: (0, 0),
                encoding: Encoding::Data,
                rung: Rung::original(),
                chain: ChainLink::still(sequence),
            };
            self.append(meta, vec![7; 100].into());
        }

        fn append(&mut self, meta: FrameMeta, payload: Bytes) {
            let record = Record {
                arrived: Instant::from_nanos(meta.captured.as_nanos()),
                frame: Frame { meta, payload },
                skipped: [].into(),
                quality: Quality::default(),
                trace: None,
                link_bytes: None,
            };
            self.writer.append_record(record).unwrap();
            self.stills.wake();
        }

        /// Like `beside`, but it must be the picture.
        async fn shows(&self, reader: &mut SharedPictures, frame: ChainedFrame) -> Picture {
            match self.beside(reader, frame).await {
                Beside::Picture(picture) => {
                    let Picture { form, data, size, place } = picture.clone();
                    assert!(place.is_some(), "others can look there");
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

    /// Both readers get the same memory, which was decoded once. A single reader gets no picture.
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

    /// A reader that is left alone cannot decode the rest of the chain, so it gets pictures until the chain ends.
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
        // Deep in a chain no reader starts to share, because the edge would have to decode all of it.
        for _ in 0..40 {
            video.frame(false);
        }
        let (deep, mut other) = (video.frame(false), SharedPictures::default());
        assert_eq!(video.beside(&mut other, deep).await, Beside::Nothing);
        assert_eq!(video.beside(&mut one, deep).await, Beside::Nothing);
    }

    /// No reader waits for the picture of a frame that is not the newest any more.
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

    /// If the edge's decoder fails, readers decode by themselves. So does a reader whose pictures have no room.
    #[tokio::test]
    async fn a_decoder_that_fails_rests() {
        let (mut video, mut one, mut other) =
            (Video::new(), SharedPictures::default(), SharedPictures::default());
        let frame = video.frame(true);
        video.beside(&mut one, frame).await;
        assert_eq!(video.beside_if(&mut other, frame, (2, false)).await, Beside::Nothing);
        video.shows(&mut other, frame).await;
        video.shows(&mut one, frame).await;
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

    /// A data record after a picture does not make the picture outdated.
    #[tokio::test]
    async fn records_of_data_do_not_make_a_picture_old() {
        let (mut video, mut one, mut other) =
            (Video::new(), SharedPictures::default(), SharedPictures::default());
        let first = video.frame(true);
        video.beside(&mut one, first).await;
        video.beside(&mut other, first).await;
        for records in [1, 2, 100] {
            let frame = video.frame(false);
            (0..records).for_each(|_| video.data());
            video.shows(&mut one, frame).await;
            video.shows(&mut other, frame).await;
            let (older, newer) = (video.frame(false), video.frame(false));
            video.data();
            assert_eq!(video.beside(&mut one, older).await, Beside::Passed);
            video.shows(&mut one, newer).await;
        }
    }

    /// A reader that shares when sharing is disabled has not decoded the chain, so it gets pictures until the chain ends.
    #[tokio::test]
    async fn sharing_is_switched_off_where_a_chain_begins() {
        let (mut video, mut one, mut other) =
            (Video::new(), SharedPictures::default(), SharedPictures::default());
        let first = video.frame(true);
        video.beside(&mut one, first).await;
        video.shows(&mut other, first).await;
        video.shows(&mut one, first).await;
        for off in [0, 5] {
            for _ in 0..3 {
                let frame = video.frame(false);
                for reader in [&mut one, &mut other] {
                    let beside = video.beside_if(reader, frame, (off, true)).await;
                    assert!(matches!(beside, Beside::Picture(_)), "{off}: {beside:?}");
                }
            }
            let begins = video.frame(true);
            for reader in [&mut one, &mut other] {
                assert_eq!(video.beside_if(reader, begins, (off, true)).await, Beside::Nothing);
            }
            let next = video.frame(false);
            assert_eq!(video.beside_if(&mut one, next, (off, true)).await, Beside::Nothing);
            video.shows(&mut one, next).await;
            video.shows(&mut other, next).await;
        }
    }

    /// A subscription continues when a camera is forgotten. It does not keep the camera's log in memory.
    #[tokio::test]
    async fn a_camera_that_is_forgotten_takes_its_log_along() {
        let (mut video, mut one) = (Video::new(), SharedPictures::default());
        let frame = video.frame(true);
        video.beside_if(&mut one, frame, (1, true)).await;
        let (stills, sharing) = (Arc::downgrade(&video.stills), Arc::clone(video.stills.sharing()));
        assert_eq!(sharing.readers(), 1);
        drop(video);
        assert!(stills.upgrade().is_none(), "somebody holds it");
        let mut another = Video::new();
        let frame = another.frame(true);
        another.beside(&mut one, frame).await;
        assert_eq!((sharing.readers(), another.stills.sharing().readers()), (0, 1));
    }
}
