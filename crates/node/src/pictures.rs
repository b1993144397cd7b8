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
}

impl Sharer {
    fn new(stills: Arc<Stills>) -> Self {
        stills.sharing().readers.fetch_add(1, Ordering::AcqRel);
        Self { stills, shares: false }
    }

    async fn beside(
        &mut self,
        camera: &CameraName,
        frame: ChainedFrame,
        from: usize,
        has_memory: bool,
    ) -> Beside {
        let is_worth_it = self.is_worth_it(frame, from);
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
