//! Tries a decoder on test pictures: it must return the same pictures as the library, each before the next is sent. Measures its speed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use mez_core::frame::{ChainLink, Encoding, Reference, Sequence};
use mez_core::units;
use mez_media::h264::OutsideDecoder;
use mez_media::jpeg::PIXELS_MAX_DEFAULT;
use mez_media::stream::{Outcome, Picture, Request, Source, StreamDecoder, StreamEncoder};
use mez_media::worker::Worker;
use mez_media::{ImageView, PixelFormat, Yuv420, trial};

use super::child::Child;
use super::command::{Kind, Version};

/// The size of the test pictures.
pub(super) const SIZE: (u32, u32) = (1280, 720);
const PICTURES: u64 = 8;
/// The longest time for the start with the first picture.
pub(super) const START_TIME_MAX: Duration = Duration::from_secs(8);
/// The longest time for each other picture, on a host that is busy with starting.
pub(super) const PICTURE_TIME_MAX: Duration = Duration::from_secs(2);
/// The largest accepted mean difference of samples.
const DIFFERENCE_MAX: f64 = 1.0;

/// A decoder that works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tried {
    pub(super) version: Version,
    /// Time from its start to the first picture.
    pub(crate) start: Duration,
    /// Time for the median picture.
    pub(crate) picture: Duration,
    /// The library's time for the median picture.
    pub(crate) library: Duration,
}

/// Tries a decoder. Blocks for at most `time_max`.
pub(crate) fn try_kind(kind: Kind, program: &Path, time_max: Duration) -> Result<Tried, String> {
    let mut worker =
        Worker::new("mez decoder trial", || |(kind, program): (Kind, PathBuf)| tried(kind, &program));
    worker.run((kind, program.to_owned()), time_max).map_err(|error| error.to_string()).flatten()
}

fn tried(kind: Kind, program: &Path) -> Result<Tried, String> {
    let version = version(program)?;
    let (stream, library) = stream().as_ref().map_err(Clone::clone)?;
    let begun = Instant::now();
    let mut child = Child::start(program, (kind, version), Encoding::H264, SIZE)?;
    let (mut start, mut times, mut planes) = (Duration::ZERO, Vec::new(), Yuv420::empty());
    for (number, (picture, expected)) in stream.iter().enumerate() {
        let given = Instant::now();
        child.give(picture)?;
        let patience = if number == 0 { START_TIME_MAX } else { PICTURE_TIME_MAX };
        if !child.take(patience, &mut planes)? {
            return Err(format!(
                "picture {number} did not come within {patience:?}; the decoder hangs or holds pictures back"
            ));
        }
        if number == 0 {
            start = begun.elapsed();
        } else {
            times.push(given.elapsed());
        }
        match trial::difference(expected.data(), planes.data()) {
            Some(difference) if difference <= DIFFERENCE_MAX => {}
            Some(difference) => {
                return Err(format!(
                    "picture {number} was decoded wrongly (samples differ by {difference:.1} on average)"
                ));
            }
            None => return Err(format!("picture {number} was decoded with a wrong size")),
        }
    }
    Ok(Tried { version, start, picture: median(times), library: *library })
}

/// Coded pictures with their planes, and the library's time for the median picture.
type Stream = (Vec<(Vec<u8>, Yuv420)>, Duration);

/// The test stream. Made only once, because making it takes longer than a trial.
fn stream() -> &'static Result<Stream, String> {
    static STREAM: OnceLock<Result<Stream, String>> = OnceLock::new();
    STREAM.get_or_init(make_stream)
}

fn make_stream() -> Result<Stream, String> {
    let mut encoder = StreamEncoder::new(PIXELS_MAX_DEFAULT).map_err(|error| error.to_string())?;
    let mut decoder = StreamDecoder::new(PIXELS_MAX_DEFAULT);
    let setting = "h264/q28".parse().map_err(|error| format!("h264/q28: {error}"))?;
    let (mut stream, mut times) = (Vec::new(), Vec::new());
    for number in 0..PICTURES {
        let pixels = trial::texture(SIZE, number);
        let view = ImageView::packed(&pixels, SIZE.0, SIZE.1, PixelFormat::Bgr8)
            .map_err(|error| error.to_string())?;
        let request = Request {
            sequence: Sequence(number),
            captured: units::Instant::from_nanos(number * 66_000_000),
            setting: &setting,
            bytes_max: None,
            reference: if number == 0 { Reference::Independent } else { Reference::Previous },
        };
        let Ok(Outcome::Frame(made)) = encoder.encode(&Source::Pixels(view), &request) else {
            return Err(format!("picture {number} was not encoded"));
        };
        let link: &ChainLink = &made.chain;
        let begun = Instant::now();
        let shown = decoder.advance(Encoding::H264, request.sequence, link, &made.payload);
        let Picture::Planes(planes) = shown.map_err(|error| error.to_string())? else {
            return Err(format!("picture {number} is no video"));
        };
        if number > 0 {
            times.push(begun.elapsed());
        }
        stream.push((made.payload.to_vec(), planes.clone()));
    }
    Ok((stream, median(times)))
}

/// The version of a program, if it is ffmpeg.
pub(super) fn version(program: &Path) -> Result<Version, String> {
    let asked = Command::new(program).arg("-version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = asked.map_err(|error| format!("{} does not start: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !text.starts_with("ffmpeg version ") {
        return Err(format!("{} is not ffmpeg", program.display()));
    }
    Ok(Version::parse(&text))
}

pub(super) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
