//! Decoders of H.265 and AV1. The software decoder is that of ffmpeg, since Mez has
//! no library for these. A platform decoder is used if it is requested and works.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mez_core::frame::Encoding;
use mez_media::Yuv420;
use mez_media::h264::OutsideDecoder;
use mez_media::platform::PlatformDecoders;
use mez_media::worker::Worker;
use tracing::{debug, info, warn};

use super::child::Child;
use super::command::{Kind, Version};
use super::trial::{PICTURE_TIME_MAX, SIZE, START_TIME_MAX, median, version};
use super::{DecoderChoice, FAILURES_MAX, Place, TRIAL_TIME_MAX, ivf};

/// Pictures for trials, from x265 with a key frame every four pictures: the left half becomes brighter, the right half darker.
const H265: &[u8] = include_bytes!("streams/h265.ivf");
/// Pictures like in [`H265`], from libaom.
const AV1: &[u8] = include_bytes!("streams/av1.ivf");
/// The largest accepted difference of a sample.
const DIFFERENCE_MAX: i32 = 6;

/// A decoder that works, and its times for pictures of 1280×720.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VideoTimes {
    /// The decoder.
    pub kind: Kind,
    /// Time from its start to the first picture.
    pub start: Duration,
    /// Time for the median picture.
    pub picture: Duration,
}

/// A broker's decoders of H.265 and AV1.
#[derive(Clone, Debug)]
pub(super) struct VideoDecoders(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    choice: DecoderChoice,
    program: PathBuf,
    /// The longest time for a trial.
    trial_time_max: Duration,
    h265: Tried,
    av1: Tried,
    children: Arc<AtomicUsize>,
    /// Failures of platform decoders. After [`FAILURES_MAX`], only ffmpeg's own decoders are used.
    failures: AtomicU64,
    version: Mutex<Option<Version>>,
}

/// The trial of one encoding.
#[derive(Debug, Default)]
struct Tried {
    begun: AtomicBool,
    outcome: OnceLock<Result<VideoTimes, String>>,
}

impl VideoDecoders {
    pub(super) fn new(choice: DecoderChoice, program: PathBuf, trial_time_max: Duration) -> Self {
        let (h265, av1, children) = (Tried::default(), Tried::default(), Arc::default());
        let (failures, version) = (AtomicU64::new(0), Mutex::default());
        Self(Arc::new(Shared { choice, program, trial_time_max, h265, av1, children, failures, version }))
    }

    /// The software decoders of the `ffmpeg` in `PATH`. Shared by the whole process.
    pub(super) fn software() -> Self {
        static SOFTWARE: LazyLock<VideoDecoders> =
            LazyLock::new(|| VideoDecoders::new(DecoderChoice::Software, "ffmpeg".into(), TRIAL_TIME_MAX));
        SOFTWARE.clone()
    }

    /// Chooses a decoder by trials, once.
    pub(super) fn works(&self, encoding: Encoding) -> Result<VideoTimes, String> {
        self.0.works(encoding)
    }
}

impl Shared {
    fn works(&self, encoding: Encoding) -> Result<VideoTimes, String> {
        self.tried(encoding).outcome.get_or_init(|| self.choose(encoding)).clone()
    }

    fn tried(&self, encoding: Encoding) -> &Tried {
        if encoding == Encoding::Av1 { &self.av1 } else { &self.h265 }
    }

    fn choose(&self, encoding: Encoding) -> Result<VideoTimes, String> {
        let (name, version) = (encoding.name(), self.version()?);
        let attempt = |kind| try_video(encoding, (kind, version), &self.program, self.trial_time_max);
        let software = attempt(Kind::Ffmpeg);
        for kind in self.choice.kinds().iter().filter(|kind| **kind != Kind::Ffmpeg) {
            match (attempt(*kind), &software) {
                (Ok(tried), Ok(software))
                    if self.choice == DecoderChoice::Auto && tried.picture >= software.picture =>
                {
                    info!("the decoder {kind} of {name} works, but is not faster than ffmpeg's own decoder");
                }
                (Ok(tried), _) => {
                    info!("{name} is decoded by {kind}");
                    return Ok(tried);
                }
                (Err(reason), _) if self.choice == DecoderChoice::Auto => {
                    debug!("the decoder {kind} of {name} is not used: {reason}");
                }
                (Err(reason), _) => {
                    warn!("ffmpeg's own decoder of {name} is used instead of {kind}: {reason}");
                }
            }
        }
        software
    }

    /// The decoder to start: ffmpeg's own until the trials are over.
    fn kind(self: &Arc<Self>, encoding: Encoding) -> Kind {
        let tried = self.tried(encoding);
        if self.failures.load(Ordering::Relaxed) >= FAILURES_MAX || self.choice == DecoderChoice::Software {
            return Kind::Ffmpeg;
        }
        match tried.outcome.get() {
            Some(outcome) => outcome.as_ref().map_or(Kind::Ffmpeg, |tried| tried.kind),
            None => {
                if !tried.begun.swap(true, Ordering::Relaxed) {
                    let trying = Arc::clone(self);
                    let spawned = thread::Builder::new()
                        .name("mez decoders".into())
                        .spawn(move || drop(trying.works(encoding)));
                    debug!("decoders of {} are tried: {}", encoding.name(), spawned.is_ok());
                }
                Kind::Ffmpeg
            }
        }
    }

    fn version(&self) -> Result<Version, String> {
        let mut known = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some(version) => Ok(version),
            None => Ok(*known.insert(version(&self.program)?)),
        }
    }
}

impl PlatformDecoders for VideoDecoders {
    fn open(&self, encoding: Encoding, size: (u32, u32)) -> Result<Box<dyn OutsideDecoder>, String> {
        let shared = &self.0;
        let place = Place::take(&shared.children).ok_or("too many streams are decoded at once")?;
        let by = (shared.kind(encoding), shared.version()?);
        let child = Child::start(&shared.program, by, encoding, size)?;
        Ok(Box::new(child.at(place)))
    }

    fn failed(&self, encoding: Encoding, reason: &str) {
        let (kind, name) = (self.0.kind(encoding), encoding.name());
        let failures = self.0.failures.fetch_add(u64::from(kind != Kind::Ffmpeg), Ordering::Relaxed);
        if kind != Kind::Ffmpeg && failures == 0 {
            warn!("the decoder {kind} of {name} failed: {reason}");
        } else {
            debug!("the decoder {kind} of {name} failed: {reason}");
        }
    }
}

/// Tries one decoder. Blocks for at most `time_max`.
fn try_video(
    encoding: Encoding,
    by: (Kind, Version),
    program: &Path,
    time_max: Duration,
) -> Result<VideoTimes, String> {
    let program = program.to_owned();
    let mut worker = Worker::new("mez decoder trial", move || {
        let program = program.clone();
        move |by: (Kind, Version)| tried(encoding, by, &program)
    });
    let trial = worker.run(by, time_max);
    trial.map_err(|error| error.to_string()).flatten()
}

fn tried(encoding: Encoding, by: (Kind, Version), program: &Path) -> Result<VideoTimes, String> {
    let begun = Instant::now();
    let mut child = Child::start(program, by, encoding, SIZE)?;
    let (mut start, mut times, mut planes) = (Duration::ZERO, Vec::new(), Yuv420::empty());
    let stream = ivf::pictures(if encoding == Encoding::Av1 { AV1 } else { H265 });
    for (number, picture) in stream.into_iter().enumerate() {
        let given = Instant::now();
        child.give(picture)?;
        let patience = if number == 0 { START_TIME_MAX } else { PICTURE_TIME_MAX };
        if !child.take(patience, &mut planes)? {
            return Err(format!(
                "picture {number} did not come within {patience:?}; the decoder hangs or holds pictures back"
            ));
        }
        match number {
            0 => start = begun.elapsed(),
            _ => times.push(given.elapsed()),
        }
        check(number, &planes)?;
    }
    Ok(VideoTimes { kind: by.0, start, picture: median(times) })
}

/// Checks that these are the planes of picture `number` in the trial's stream, in full range.
fn check(number: usize, planes: &Yuv420) -> Result<(), String> {
    let full = |limited: usize| (limited as i32 - 16) * 255 / 219;
    let row = SIZE.0 as usize * (SIZE.1 as usize / 2);
    for (place, limited) in
        [(SIZE.0 as usize / 4, 60 + 15 * number), (SIZE.0 as usize * 3 / 4, 200 - 15 * number)]
    {
        let shown = planes.data().get(row + place).map_or(-1, |sample| i32::from(*sample));
        if shown.abs_diff(full(limited)) as i32 > DIFFERENCE_MAX {
            return Err(format!(
                "picture {number} was decoded wrongly (a sample is {shown}, not {})",
                full(limited)
            ));
        }
    }
    Ok(())
}
