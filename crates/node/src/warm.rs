//! Keeps decoders of finished readings of the past for the next readings.
//!
//! A new decoder gets its memory from the system page by page, with its first pictures. An application that looks at one instant
//! after another would pay for this each time (`docs/performance.md`). Decoders are kept for a few seconds, and only a few of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mez_core::frame::Frame;
use mez_core::name::CameraName;
use mez_core::stills::{Decoded, Form, IDLE_MAX};
use mez_core::units::Instant;
use tokio::runtime::Handle;

use crate::clock::monotonic_now;
use crate::transcode::{ChainDecoder, Failure, Task};

/// The most decoders that are kept. A finished reading may still be at work when the next one begins.
const KEPT_MAX: usize = 2;

/// Unused decoders. The most recently used one is last.
#[derive(Default)]
pub(crate) struct WarmDecoders(Mutex<Vec<Kept>>);

struct Kept {
    camera: CameraName,
    decoder: ChainDecoder,
    until: Instant,
}

impl WarmDecoders {
    /// A decoder for a camera's chains. It is allocated with its first frame, and returned when it is dropped.
    pub(crate) fn lend(self: &Arc<Self>, camera: &CameraName) -> LentDecoder {
        LentDecoder { home: Arc::downgrade(self), camera: camera.clone(), decoder: None }
    }

    /// A kept decoder of the same camera. All pictures of a camera have one size, so its memory fits.
    fn take(&self, camera: &CameraName) -> Option<ChainDecoder> {
        let mut kept = self.lock();
        let place = kept.iter().rposition(|kept| kept.camera == *camera)?;
        Some(kept.remove(place).decoder)
    }

    fn put_back(self: &Arc<Self>, camera: CameraName, decoder: ChainDecoder) {
        // Without a runtime, no task could free the decoder later.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut kept = self.lock();
        kept.push(Kept { camera, decoder, until: monotonic_now() + IDLE_MAX });
        let given_up = (kept.len() > KEPT_MAX).then(|| kept.remove(0));
        drop(kept);
        drop(given_up);
        let home = Arc::downgrade(self);
        runtime.spawn(async move {
            // Timers count whole milliseconds.
            tokio::time::sleep(IDLE_MAX + Duration::from_millis(1)).await;
            if let Some(home) = home.upgrade() {
                home.release_idle(monotonic_now());
            }
        });
    }

    fn release_idle(&self, now: Instant) {
        let idle: Vec<Kept> = self.lock().extract_if(.., |kept| kept.until <= now).collect();
        // Outside of the lock, because freeing takes a while.
        drop(idle);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        // Each statement leaves the list consistent, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A decoder of one camera's chains, for one reading.
pub(crate) struct LentDecoder {
    home: Weak<WarmDecoders>,
    camera: CameraName,
    decoder: Option<ChainDecoder>,
}

impl LentDecoder {
    /// Decodes a frame, and makes a still of it if `wanted`. `afresh` resets the decoder first.
    pub(crate) fn run(&mut self, frame: Frame, afresh: bool, wanted: bool) -> (Decoded, Option<Failure>) {
        let frame = Box::new(frame);
        // A kept decoder still holds frames of another reading.
        let afresh = afresh || self.decoder.is_none();
        let Self { home, camera, decoder } = self;
        let decoder = decoder.get_or_insert_with(|| {
            let warm = home.upgrade().and_then(|home| home.take(camera));
            warm.unwrap_or_else(ChainDecoder::new)
        });
        match wanted {
            true => decoder.run(Task::Decode { frame, afresh, wanted: Some(Form::Still) }, None),
            false => decoder.pass(frame, afresh),
        }
    }
}

impl Drop for LentDecoder {
    fn drop(&mut self) {
        if let (Some(decoder), Some(home)) = (self.decoder.take(), self.home.upgrade()) {
            home.put_back(self.camera.clone(), decoder);
        }
    }
}
