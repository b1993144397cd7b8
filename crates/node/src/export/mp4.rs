//! Makes an MP4 with ffmpeg, in which each image appears at its capture time.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use mez_core::frame::Encoding;
use mez_core::units::Timestamp;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin};
use tokio::task::JoinHandle;

use super::captions::{Caption, Captions};
use super::matroska::Pictures;
use super::said::{Due, Said};
use super::{ExportError, VideoCodec, matroska, packets};
use crate::notes::NotedReply;
use crate::source::child::{LastLines, spawn_fed_child};

/// Units of time per second in the file: the usual 90 kHz, exact to 6 µs.
const TICKS_PER_SECOND: &str = "90000";
/// The shortest time between two images. If the clock was set back, an image appears this long after its predecessor.
const STEP_MIN: Duration = Duration::from_millis(1);
/// The longest time that the last image is shown. Up to this, it is shown for as long as the image before it.
const SHOWN_MAX: Duration = Duration::from_secs(1);
/// How long a single image is shown.
const SHOWN_ALONE: Duration = Duration::from_millis(40);

/// A video in progress.
pub(super) struct Mp4 {
    codec: VideoCodec,
    /// The encoding of copied video.
    encoding: Encoding,
    ffmpeg: PathBuf,
    child: Child,
    stdin: ChildStdin,
    lines: LastLines,
    listening: Option<JoinHandle<()>>,
    /// The capture time of the first image, and the time in the video of the previous one.
    last: Option<(Timestamp, Duration)>,
    /// What is added to capture times, because the clock was set back.
    shift: Duration,
    moved: u64,
    /// Present if the video has subtitles.
    captions: Option<Captions>,
}

impl Mp4 {
    /// Starts ffmpeg. If frames are encoded again, the video has `size` pixels. With `captions`, it has subtitles.
    pub(super) async fn start(
        ffmpeg: &Path,
        (codec, encoding, size): (VideoCodec, Encoding, (u32, u32)),
        output: &Path,
        captions: bool,
    ) -> Result<Self, ExportError> {
        let args = args((codec, encoding, size), output, captions);
        let mut child = spawn_fed_child(ffmpeg, args, Stdio::piped(), Stdio::null()).await?;
        let gone = || ExportError::Ffmpeg { program: ffmpeg.into(), said: "its input is closed".into() };
        let stdin = child.stdin.take().ok_or_else(gone)?;
        let lines = LastLines::default();
        let listening = child.stderr.take().map(|stderr| tokio::spawn(lines.clone().read(stderr)));
        let ffmpeg = ffmpeg.into();
        let (last, shift, captions) = (None, Duration::ZERO, captions.then(Captions::default));
        Ok(Self { codec, encoding, ffmpeg, child, stdin, lines, listening, last, shift, moved: 0, captions })
    }

    /// The number of images that appear later than their capture time, because the clock had been set back.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// Adds a picture, and returns its time in the video.
    pub(super) async fn add(
        &mut self,
        captured: Timestamp,
        size: (u32, u32),
        picture: &Bytes,
    ) -> Result<Duration, ExportError> {
        let before = self.last.map(|(_, before)| before);
        let is_first = before.is_none();
        let at = self.place(captured);
        let shown = before.map_or(SHOWN_ALONE, |before| (at - before).min(SHOWN_MAX));
        let (pictures, picture) = match self.codec {
            VideoCodec::H264 | VideoCodec::Jpeg => (Pictures::Jpeg, picture.clone()),
            // The first picture of a video contains its parameter sets.
            VideoCodec::Copy => packets::packet(self.encoding, picture),
        };
        let mut head =
            if is_first { matroska::head(&pictures, size, self.captions.is_some()) } else { Vec::new() };
        head.extend(matroska::image_head(at, shown, picture.len()));
        let written = async {
            self.stdin.write_all(&head).await?;
            self.stdin.write_all(&picture).await
        };
        match written.await {
            Ok(()) => Ok(at),
            Err(_) => Err(self.failed().await),
        }
    }

    /// Adds the notes about the image at time `at`, and those before it.
    pub(super) async fn say(
        &mut self,
        at: Duration,
        due: &Due,
        replies: &[Said<NotedReply>],
    ) -> Result<(), ExportError> {
        let ended = self.captions.as_mut().and_then(|captions| captions.add(at, due, replies));
        self.show(ended).await
    }

    async fn show(&mut self, caption: Option<Caption>) -> Result<(), ExportError> {
        let Some(caption) = caption else { return Ok(()) };
        match self.stdin.write_all(&matroska::caption(&caption)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failed().await),
        }
    }

    /// The time of an image in the video.
    fn place(&mut self, captured: Timestamp) -> Duration {
        let Some((begin, before)) = self.last else {
            self.last = Some((captured, Duration::ZERO));
            return Duration::ZERO;
        };
        let ahead = (captured + self.shift).saturating_since(begin);
        let earliest = before + STEP_MIN;
        if ahead < earliest {
            self.shift += (begin + earliest).saturating_since(captured + self.shift);
        }
        self.moved += u64::from(self.shift > Duration::ZERO);
        let at = ahead.max(earliest);
        self.last = Some((begin, at));
        at
    }

    /// Waits until ffmpeg has completed the file.
    pub(super) async fn finish(mut self) -> Result<(), ExportError> {
        let last = self.captions.as_mut().and_then(Captions::finish);
        self.show(last).await?;
        let flushed = self.stdin.shutdown().await;
        let Self { stdin, .. } = self;
        drop(stdin);
        let ended = self.child.wait().await;
        match (flushed, ended) {
            (Ok(()), Ok(status)) if status.success() => Ok(()),
            _ => {
                Self::heard(&mut self.listening).await;
                Err(complaint(self.ffmpeg, &self.lines))
            }
        }
    }

    /// Waits for ffmpeg's end, and returns its error message.
    async fn failed(&mut self) -> ExportError {
        // ffmpeg has closed its input, so it is about to end.
        let _ = tokio::time::timeout(Duration::from_secs(2), self.child.wait()).await;
        Self::heard(&mut self.listening).await;
        complaint(self.ffmpeg.clone(), &self.lines)
    }

    async fn heard(listening: &mut Option<JoinHandle<()>>) {
        if let Some(listening) = listening.take() {
            let _ = tokio::time::timeout(Duration::from_secs(2), listening).await;
        }
    }
}

fn complaint(program: PathBuf, lines: &LastLines) -> ExportError {
    let said = lines.text();
    ExportError::Ffmpeg {
        program,
        said: if said.is_empty() { "it gave no reason".into() } else { said.replace('\n', "; ") },
    }
}

/// The arguments of `ffmpeg`.
fn args(
    (codec, encoding, (width, height)): (VideoCodec, Encoding, (u32, u32)),
    output: &Path,
    captions: bool,
) -> Vec<OsString> {
    // Players expect limited range, even sides, and an explicit matrix: that of JPEG is BT.601 at any size.
    let scale = format!("scale={width}:{height}:out_color_matrix=bt601:out_range=tv");
    let filter = format!("{scale},pad=ceil(iw/2)*2:ceil(ih/2)*2,format=yuv420p");
    let mut args = vec!["-hide_banner", "-v", "error", "-f", "matroska", "-i", "pipe:0", "-map", "0:v"];
    match codec {
        // The tag that most players know.
        VideoCodec::Copy if encoding == Encoding::H265 => args.extend(["-c:v", "copy", "-tag:v", "hvc1"]),
        VideoCodec::Jpeg | VideoCodec::Copy => args.extend(["-c:v", "copy"]),
        VideoCodec::H264 => args.extend([
            "-vsync",
            "passthrough",
            "-enc_time_base",
            "1:90000",
            "-vf",
            &filter,
            "-colorspace",
            "smpte170m",
            "-color_range",
            "tv",
            "-c:v",
            "libx264",
            "-preset",
            "veryfast",
            "-crf",
            "20",
        ]),
    }
    if captions {
        args.extend(["-map", "0:s", "-c:s", "mov_text"]);
    }
    args.extend(["-video_track_timescale", TICKS_PER_SECOND, "-movflags", "+faststart", "-f", "mp4", "-y"]);
    let mut args: Vec<OsString> = args.into_iter().map(OsString::from).collect();
    // With this prefix, a file name such as `-y` is not taken for an option.
    let mut name = OsString::from("file:");
    name.push(output);
    args.push(name);
    args
}
