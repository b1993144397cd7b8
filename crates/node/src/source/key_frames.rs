//! Asks sources for key frames: a device through a control of Video4Linux, others by opening them again where nothing else helps.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use tokio::sync::Notify;

use super::spec::SourceSpec;
use super::types::KeyFrameNeed;

/// A source is opened again at most once in this time. Opening a network camera takes a second or more, in which there are no frames.
const OPENED_ONCE_IN: Duration = Duration::from_secs(10);

/// `V4L2_CID_MPEG_VIDEO_FORCE_KEY_FRAME`: a button, whose value does not matter (`linux/v4l2-controls.h`).
const FORCE_KEY_FRAME: u32 = 0x0099_0900 + 229;

/// `struct v4l2_control` (`linux/videodev2.h`).
#[repr(C)]
struct Control {
    id: u32,
    value: i32,
}

/// `VIDIOC_S_CTRL`.
const SET_CONTROL: Opcode = opcode::read_write::<Control>(b'V', 28);

/// Who is asked for key frames.
#[derive(Debug)]
pub(super) struct KeyFrames {
    /// `None`: the source takes no such request.
    device: Option<PathBuf>,
    /// The device does not take them either.
    is_refused: Arc<AtomicBool>,
    /// The device is being asked.
    is_asking: Arc<AtomicBool>,
    /// Notified when the source is to be opened again.
    reopen: Arc<Notify>,
    /// When that was last.
    reopened: Mutex<Option<Instant>>,
}

impl KeyFrames {
    pub(super) fn of(spec: &SourceSpec, reopen: Arc<Notify>) -> Self {
        let device = match spec {
            SourceSpec::Device(path) => Some(path.clone()),
            SourceSpec::File(_) | SourceSpec::Url(_) => None,
        };
        let (is_refused, is_asking, reopened) = (Arc::default(), Arc::default(), Mutex::default());
        Self { device, is_refused, is_asking, reopen, reopened }
    }

    /// Asks for one.
    pub(super) fn ask(&self, need: KeyFrameNeed) {
        match &self.device {
            Some(device) if !self.is_refused.load(Ordering::Relaxed) => self.press(device.clone()),
            _ if need == KeyFrameNeed::Needed && self.may_reopen(Instant::now()) => self.reopen.notify_one(),
            _ => {}
        }
    }

    /// Whether the source has not been opened again for a while. Then that is noted.
    fn may_reopen(&self, now: Instant) -> bool {
        let mut reopened = self.reopened.lock().unwrap_or_else(PoisonError::into_inner);
        let may = reopened.is_none_or(|reopened| now.saturating_duration_since(reopened) >= OPENED_ONCE_IN);
        *reopened = if may { Some(now) } else { *reopened };
        may
    }

    /// Asks a device, on a thread where its driver may take its time.
    fn press(&self, device: PathBuf) {
        if self.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let (is_refused, is_asking) = (Arc::clone(&self.is_refused), Arc::clone(&self.is_asking));
        tokio::task::spawn_blocking(move || {
            match force_key_frame(&device) {
                Ok(()) => {}
                Err(error) if is_final(&error) => {
                    is_refused.store(true, Ordering::Relaxed);
                    tracing::info!(
                        device = %device.display(),
                        "takes no requests for key frames ({error}); its video goes on as it is with its next key frame"
                    );
                }
                // It may be open to somebody else at the moment, or unplugged.
                Err(error) => {
                    tracing::debug!(device = %device.display(), "was not asked for a key frame: {error}")
                }
            }
            is_asking.store(false, Ordering::Release);
        });
    }
}

/// Whether a device that answers so will never take the request.
fn is_final(error: &io::Error) -> bool {
    let finals = [Errno::INVAL, Errno::NOTTY, Errno::ACCESS, Errno::PERM];
    error.raw_os_error().is_some_and(|code| finals.iter().any(|found| found.raw_os_error() == code))
}

/// Presses the button. A device may be opened while ffmpeg reads it: controls are for everybody.
fn force_key_frame(device: &Path) -> io::Result<()> {
    let device = std::fs::File::options().read(true).write(true).open(device)?;
    let mut control = Control { id: FORCE_KEY_FRAME, value: 1 };
    // SAFETY: `VIDIOC_S_CTRL` reads and writes one `v4l2_control`, which `Control` is, bit for bit.
    let set = unsafe { Updater::<SET_CONTROL, Control>::new(&mut control) };
    // SAFETY: as above. A file that is no such device refuses the request.
    unsafe { ioctl(device.as_fd(), set) }.map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `linux/videodev2.h` computes them on this machine's architecture.
    #[test]
    fn the_control_is_the_one_of_the_kernel() {
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!(SET_CONTROL, 0xC008_561C);
        }
        assert_eq!(FORCE_KEY_FRAME, 0x0099_09E5);
    }

    #[test]
    fn what_is_no_camera_refuses() {
        let error = force_key_frame(Path::new("/dev/null")).unwrap_err();
        assert!(is_final(&error), "{error}");
        let error = force_key_frame(Path::new("/nowhere")).unwrap_err();
        assert!(!is_final(&error), "it may be plugged in again: {error}");
        assert!(!is_final(&Errno::BUSY.into()));
    }

    #[test]
    fn only_devices_are_asked() {
        let of = |spec: &str| KeyFrames::of(&SourceSpec::parse(spec).unwrap(), Arc::default()).device;
        assert_eq!(of("/dev/video3"), Some("/dev/video3".into()));
        assert_eq!((of("x.mp4"), of("rtsp://cam/x")), (None, None));
    }

    #[test]
    fn a_source_is_opened_again_seldom() {
        let asked = KeyFrames::of(&SourceSpec::parse("rtsp://cam/x").unwrap(), Arc::default());
        let begun = Instant::now();
        let at = |seconds| asked.may_reopen(begun + Duration::from_secs(seconds));
        assert_eq!([at(0), at(1), at(9), at(10), at(11), at(20)], [true, false, false, true, false, true]);
    }
}
