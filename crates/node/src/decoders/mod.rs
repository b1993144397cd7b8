//! Decoders in a child process of `ffmpeg`: platform decoders for H.264 besides the library,
//! and all decoders for H.265 and AV1 (`docs/decisions/0045-decoders-behind-ffmpeg.md`).
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | which decoder is requested, and which is used ([`Decoders`]) |
//! | `command.rs` | the command lines |
//! | `child.rs` | a running child: pictures in, planes out |
//! | `ivf.rs` | the container of pictures for the child |
//! | `y4m.rs` | the container of planes from the child |
//! | `trial.rs` | tries a decoder of H.264 on test pictures |
//! | `video.rs`, `streams/` | decoders of H.265 and AV1, and their trials |

mod child;
mod command;
mod ivf;
pub(crate) mod trial;
mod video;
mod y4m;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use mez_core::frame::Encoding;
use mez_media::h264::{OutsideDecoder, OutsideDecoders};
use mez_media::platform::PlatformDecoders;
use tracing::{debug, info, warn};

use self::child::Child;
pub use self::command::Kind;
use self::trial::{Tried, try_kind};
use self::video::VideoDecoders;
pub use self::video::VideoTimes;

/// The most children at the same time. Further H.264 streams are decoded by the library.
const CHILDREN_MAX: usize = 64;
/// The longest time for a trial. A busy host needs some seconds.
const TRIAL_TIME_MAX: Duration = Duration::from_secs(30);
/// After this many failures, no further child is started.
const FAILURES_MAX: u64 = 8;

/// The decoder that a broker is asked to use for H.264. For H.265 and AV1, ffmpeg's software decoder takes the place of the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecoderChoice {
    /// The library, in this process.
    #[default]
    Software,
    /// The first platform decoder that works and is faster than the library; otherwise the library.
    Auto,
    /// This decoder of ffmpeg, at any speed; the library if it does not work.
    Through(Kind),
}

impl DecoderChoice {
    /// All choices, in the order of help texts.
    pub const ALL: [Self; 6] = [
        Self::Auto,
        Self::Software,
        Self::Through(Kind::V4l2m2m),
        Self::Through(Kind::Vaapi),
        Self::Through(Kind::Cuda),
        Self::Through(Kind::Ffmpeg),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Auto => "auto",
            Self::Through(kind) => kind.name(),
        }
    }

    /// The decoders to try, in order.
    pub(crate) fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Software => &[],
            Self::Auto => &Kind::HARDWARE,
            Self::Through(kind) => kind.alone(),
        }
    }
}

impl fmt::Display for DecoderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DecoderChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|choice| choice.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no decoder {text:?}; use one of {names}")
        })
    }
}

/// The decoders of a broker: of H.264 besides the library, and of H.265 and AV1.
#[derive(Clone, Debug)]
pub struct Decoders {
    h264: Option<Arc<Shared>>,
    video: VideoDecoders,
}

impl Default for Decoders {
    fn default() -> Self {
        Self::software()
    }
}

#[derive(Debug)]
struct Shared {
    choice: DecoderChoice,
    program: PathBuf,
    /// The decoder in use, after all trials. The inner `None` stands for the library.
    chosen: OnceLock<Option<Chosen>>,
    children: Arc<AtomicUsize>,
    failures: AtomicU64,
}

/// A decoder that works.
#[derive(Debug, Clone, Copy)]
struct Chosen {
    kind: Kind,
    version: command::Version,
}

impl Decoders {
    /// Only the library for H.264. For H.265 and AV1, the software decoders of the `ffmpeg` in `PATH`.
    #[must_use]
    pub fn software() -> Self {
        Self { h264: None, video: VideoDecoders::software() }
    }

    /// The decoders of `choice`, by the `ffmpeg` in `PATH`. Decoders of H.264 are tried now, on a thread; until
    /// the trials are over, the library decodes. Decoders of H.265 and AV1 are tried when they are first needed.
    #[must_use]
    pub fn start(choice: DecoderChoice) -> Self {
        Self::start_with(choice, "ffmpeg".into())
    }

    /// Like [`Decoders::start`], with `program` as ffmpeg.
    #[must_use]
    pub fn start_with(choice: DecoderChoice, program: PathBuf) -> Self {
        let video = VideoDecoders::new(choice, program.clone(), TRIAL_TIME_MAX);
        if choice == DecoderChoice::Software {
            return Self { h264: None, video };
        }
        let (chosen, children) = (OnceLock::new(), Arc::default());
        let shared = Arc::new(Shared { choice, program, chosen, children, failures: AtomicU64::new(0) });
        let trying = Arc::clone(&shared);
        let spawned = thread::Builder::new().name("mez decoders".into()).spawn(move || {
            let chosen = choose(trying.choice, &trying.program);
            let _ = trying.chosen.set(chosen);
        });
        match spawned {
            Ok(_) => Self { h264: Some(shared), video },
            Err(error) => {
                warn!("the library decodes H.264, because no thread can be started to try decoders: {error}");
                Self { h264: None, video }
            }
        }
    }

    /// Without decoders of H.264 besides the library. Each trial for H.265 and AV1 may take `trial_time_max`.
    #[must_use]
    pub(crate) fn untried(choice: DecoderChoice, program: PathBuf, trial_time_max: Duration) -> Self {
        Self { h264: None, video: VideoDecoders::new(choice, program, trial_time_max) }
    }

    /// Waits for the trials for H.264, and returns the decoder in use. `None` stands for the library.
    #[must_use]
    pub fn wait(&self) -> Option<Kind> {
        let shared = self.h264.as_ref()?;
        shared.chosen.wait().map(|chosen| chosen.kind)
    }

    /// The decoders of H.264 besides the library. `None` if only the library is requested.
    #[must_use]
    pub fn outside(&self) -> Option<Arc<dyn OutsideDecoders>> {
        self.h264.clone().map(|shared| shared as Arc<dyn OutsideDecoders>)
    }

    /// The decoders of H.265 and AV1.
    #[must_use]
    pub fn platform(&self) -> Arc<dyn PlatformDecoders> {
        Arc::new(self.video.clone())
    }

    /// Tries the decoders of H.265 or AV1, unless this was done before. Blocks for about a second, or longer if a decoder hangs.
    ///
    /// # Errors
    /// Why no decoder works.
    pub fn try_video(&self, encoding: Encoding) -> Result<VideoTimes, String> {
        self.video.works(encoding)
    }
}

/// Tries the decoders of `choice` in order, and returns the first that works. With `Auto` it must also be faster than the library.
fn choose(choice: DecoderChoice, program: &Path) -> Option<Chosen> {
    let must_be_quicker = choice == DecoderChoice::Auto;
    for kind in choice.kinds() {
        match try_kind(*kind, program, TRIAL_TIME_MAX) {
            Ok(Tried { version, .. }) if !must_be_quicker => {
                info!("H.264 is decoded by {kind}");
                return Some(Chosen { kind: *kind, version });
            }
            Ok(Tried { version, picture, library, .. }) if picture < library => {
                info!(
                    "H.264 is decoded by {kind}: a picture of 1280×720 takes {picture:.1?}, with the library {library:.1?}"
                );
                return Some(Chosen { kind: *kind, version });
            }
            Ok(Tried { picture, library, .. }) => {
                info!(
                    "the decoder {kind} works, but takes {picture:.1?} for a picture; the library takes {library:.1?}"
                );
            }
            Err(reason) if must_be_quicker => debug!("the decoder {kind} is not used: {reason}"),
            Err(reason) => warn!("the decoder {kind} is not used, and the library decodes H.264: {reason}"),
        }
    }
    if must_be_quicker {
        info!(
            "H.264 is decoded by the library: no platform decoder works and is faster (`mez doctor` says why)"
        );
    }
    None
}

impl OutsideDecoders for Shared {
    fn open(&self, width: u32, height: u32) -> Option<Box<dyn OutsideDecoder>> {
        let chosen = (*self.chosen.get()?)?;
        if self.failures.load(Ordering::Relaxed) >= FAILURES_MAX {
            return None;
        }
        let place = Place::take(&self.children)?;
        match Child::start(&self.program, (chosen.kind, chosen.version), Encoding::H264, (width, height)) {
            Ok(child) => Some(Box::new(child.at(place))),
            Err(reason) => {
                self.failed(&reason);
                None
            }
        }
    }

    fn failed(&self, reason: &str) {
        let name = self.choice.name();
        match self.failures.fetch_add(1, Ordering::Relaxed) + 1 {
            1 => warn!("the decoder {name} failed, so the library continues to decode the stream: {reason}"),
            FAILURES_MAX => {
                warn!("the decoder {name} has failed {FAILURES_MAX} times and is no longer used: {reason}");
            }
            failures => debug!(failures, "the decoder {name} failed: {reason}"),
        }
    }
}

/// A slot among the children. It is free again when this is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(children: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(Arc::clone(children));
        (children.fetch_add(1, Ordering::AcqRel) < CHILDREN_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
