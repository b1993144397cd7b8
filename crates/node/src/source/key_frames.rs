//! Asks sources for key frames: a device through a Video4Linux control, a network camera through ONVIF.
//! Other sources are opened again if nothing else helps.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::onvif::{OnvifAsker, OnvifChoice};
use super::spec::SourceSpec;
use super::types::KeyFrameNeed;
use super::v4l2::{force_key_frame, is_final, takes_key_frame_requests};

/// The shortest time between two reopenings of a source. Opening a network camera takes a second or more without frames.
const OPENED_ONCE_IN: Duration = Duration::from_secs(10);

/// Asks one source for key frames.
#[derive(Debug)]
pub(super) struct KeyFrames {
    asked: Asked,
    /// Notified when the source is to be opened again.
    reopen: Notify,
    /// When the source was last to be opened again.
    reopened: Mutex<Option<Instant>>,
    /// When a camera was last asked with [`KeyFrameNeed::Needed`].
    needed: Mutex<Option<Instant>>,
}

/// How the source is asked.
#[derive(Debug)]
enum Asked {
    Device(Button),
    Camera(Box<OnvifAsker>),
    /// The source takes no requests for key frames.
    Nobody,
}

impl KeyFrames {
    pub(super) fn of(spec: &SourceSpec, onvif: &OnvifChoice) -> Self {
        let asked = match spec {
            SourceSpec::Device(path) => Asked::Device(Button::of(path.clone())),
            SourceSpec::File(_) | SourceSpec::Url(_) => match onvif.of(spec) {
                Some(address) => Asked::Camera(Box::new(OnvifAsker::new(address, spec))),
                None => Asked::Nobody,
            },
        };
        Self { asked, reopen: Notify::new(), reopened: Mutex::default(), needed: Mutex::default() }
    }

    /// Checks once whether a source that gives packets can be asked, and logs the result. Must be called within a Tokio runtime.
    pub(super) fn begin(&self) {
        match &self.asked {
            Asked::Device(button) => button.begin(),
            Asked::Camera(asker) => asker.begin(),
            Asked::Nobody => {}
        }
    }

    /// Asks for a key frame.
    pub(super) fn ask(&self, need: KeyFrameNeed) {
        let now = Instant::now();
        let is_asked = match &self.asked {
            Asked::Device(button) => button.press(),
            Asked::Camera(asker) => {
                asker.wish();
                // If a key frame is needed again within [`OPENED_ONCE_IN`], the requested one has not come.
                asker.is_able() && (need == KeyFrameNeed::Helps || may_again(&self.needed, now))
            }
            Asked::Nobody => false,
        };
        if !is_asked && need == KeyFrameNeed::Needed && may_again(&self.reopened, now) {
            self.reopen.notify_one();
        }
    }

    /// Waits until the source is to be opened again.
    pub(super) async fn reopen_wanted(&self) {
        self.reopen.notified().await;
    }
}

/// Whether `last` is at least [`OPENED_ONCE_IN`] ago. If so, sets it to `now`.
fn may_again(last: &Mutex<Option<Instant>>, now: Instant) -> bool {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let may = last.is_none_or(|last| now.saturating_duration_since(last) >= OPENED_ONCE_IN);
    *last = if may { Some(now) } else { *last };
    may
}

/// The key-frame control of a device. It is used on blocking threads, because the driver may be slow.
#[derive(Debug)]
struct Button {
    device: PathBuf,
    has_begun: AtomicBool,
    is_refused: Arc<AtomicBool>,
    /// A request to the device is in progress.
    is_asking: Arc<AtomicBool>,
}

impl Button {
    fn of(device: PathBuf) -> Self {
        Self {
            device,
            has_begun: AtomicBool::new(false),
            is_refused: Arc::default(),
            is_asking: Arc::default(),
        }
    }

    fn begin(&self) {
        if self.has_begun.swap(true, Ordering::Relaxed) {
            return;
        }
        let (device, is_refused) = (self.device.clone(), Arc::clone(&self.is_refused));
        tokio::task::spawn_blocking(move || match takes_key_frame_requests(&device) {
            Ok(true) => tracing::info!(device = %device.display(), "the device accepts keyframe requests"),
            Ok(false) => tell_refused(&device, &is_refused, "its driver has no control for keyframes"),
            Err(error) if is_final(&error) => tell_refused(&device, &is_refused, &error.to_string()),
            Err(error) => {
                tracing::debug!(device = %device.display(), "the controls of the device cannot be read: {error}")
            }
        });
    }

    /// Asks the device for a key frame. Returns whether it takes such requests.
    fn press(&self) -> bool {
        if self.is_refused.load(Ordering::Relaxed) {
            return false;
        }
        if self.is_asking.swap(true, Ordering::AcqRel) {
            return true;
        }
        let (device, is_refused, is_asking) =
            (self.device.clone(), Arc::clone(&self.is_refused), Arc::clone(&self.is_asking));
        tokio::task::spawn_blocking(move || {
            match force_key_frame(&device) {
                Ok(()) => {}
                Err(error) if is_final(&error) => tell_refused(&device, &is_refused, &error.to_string()),
                // Another program may hold the device at the moment, or it is unplugged.
                Err(error) => {
                    tracing::debug!(device = %device.display(), "a keyframe could not be requested: {error}")
                }
            }
            is_asking.store(false, Ordering::Release);
        });
        true
    }
}

/// Notes that a device takes no requests, and logs it once.
fn tell_refused(device: &std::path::Path, is_refused: &AtomicBool, why: &str) {
    if !is_refused.swap(true, Ordering::Relaxed) {
        tracing::info!(
            device = %device.display(),
            "the device does not accept keyframe requests ({why}); after an interruption, its own video continues only with its next keyframe"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spec: &str, onvif: &str) -> KeyFrames {
        let onvif = if onvif.is_empty() { OnvifChoice::Default } else { onvif.parse().unwrap() };
        KeyFrames::of(&SourceSpec::parse(spec).unwrap(), &onvif)
    }

    #[test]
    fn devices_and_network_cameras_are_asked() {
        assert!(matches!(of("/dev/video3", "").asked, Asked::Device(_)));
        assert!(matches!(of("rtsp://cam/x", "").asked, Asked::Camera(_)));
        assert!(matches!(of("http://cam/x", "http://cam").asked, Asked::Camera(_)));
        for (spec, onvif) in
            [("x.mp4", ""), ("http://cam/x", ""), ("rtsp://cam/x", "off"), ("x.mp4", "http://cam")]
        {
            assert!(matches!(of(spec, onvif).asked, Asked::Nobody), "{spec} {onvif}");
        }
    }

    #[test]
    fn a_source_is_opened_again_seldom() {
        let (reopened, begun) = (Mutex::default(), Instant::now());
        let at = |seconds| may_again(&reopened, begun + Duration::from_secs(seconds));
        assert_eq!([at(0), at(1), at(9), at(10), at(11), at(20)], [true, false, false, true, false, true]);
    }
}
