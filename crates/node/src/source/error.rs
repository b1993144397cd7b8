//! Why a source cannot be read. Every text says what to do.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why a source cannot be read.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// `ffmpeg` or `ffprobe` is not installed.
    #[error(
        "{} was not found: install ffmpeg (on Debian and Ubuntu: apt-get install ffmpeg)",
        program.display()
    )]
    NoFfmpeg {
        /// The program that was looked for.
        program: PathBuf,
    },
    /// The program of that name is not ffmpeg.
    #[error("{} is not ffmpeg: install ffmpeg, or give the path of ffmpeg", program.display())]
    NotFfmpeg {
        /// The program that was started.
        program: PathBuf,
    },
    /// The installed ffmpeg is too old to be given a password that other users cannot see.
    #[error(
        "the address of {source_name} holds a password or a query, which only ffmpeg 5.0 or newer can hide from other users; update ffmpeg"
    )]
    OldFfmpeg {
        /// The source.
        source_name: String,
    },
    /// A program could not be started or listened to.
    #[error("{} could not be run: {detail}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The system's error.
        detail: String,
    },
    /// There is no such file.
    #[error("there is no file {}: check the path", path.display())]
    NoFile {
        /// The path as given.
        path: PathBuf,
    },
    /// There is no such device.
    #[error("there is no device {}: {}", path.display(), list_devices(present))]
    NoDevice {
        /// The path as given.
        path: PathBuf,
        /// The video devices that exist.
        present: Vec<PathBuf>,
    },
    /// The source may not be read by this user, or with these credentials.
    #[error("{source_name} may not be read: {remedy}")]
    NotPermitted {
        /// The source, without credentials.
        source_name: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Another program is using the device.
    #[error(
        "{source_name} is in use by another program: close that program (fuser -v {source_name} shows it)"
    )]
    Busy {
        /// The device.
        source_name: String,
    },
    /// The source has no video stream.
    #[error("{source_name} has no video{}: choose another source", if *audio_only { ", only sound" } else { "" })]
    NoVideo {
        /// The source, without credentials.
        source_name: String,
        /// True if the source has sound.
        audio_only: bool,
    },
    /// The source has a video stream, but no frame could be read.
    #[error("no frame of {source_name} could be read: the source is damaged or empty ({detail})")]
    NoFrames {
        /// The source, without credentials.
        source_name: String,
        /// ffmpeg's error.
        detail: String,
    },
    /// The source cannot be opened or understood.
    #[error("{source_name} cannot be read: {detail}")]
    Unreadable {
        /// The source, without credentials.
        source_name: String,
        /// What was found, or ffmpeg's error.
        detail: String,
    },
    /// The source did not answer in time.
    #[error("{source_name} gave no answer within {} s: check that the camera is on and sends", after.as_secs())]
    NoAnswer {
        /// The source, without credentials.
        source_name: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The pictures are larger than Mez handles.
    #[error(
        "{source_name} has pictures of {width}x{height}, but Mez takes at most {} pixels, and {} along a side; scale the video down",
        mez_media::jpeg::PIXELS_MAX_DEFAULT,
        mez_media::jpeg::SIDE_MAX
    )]
    TooLarge {
        /// The source, without credentials.
        source_name: String,
        /// Width, in pixels.
        width: u32,
        /// Height, in pixels.
        height: u32,
    },
    /// A live source has no start to go back to.
    #[error("{source_name} is live and cannot be looped: leave the loop option out")]
    LoopOnLive {
        /// The source, without credentials.
        source_name: String,
    },
    /// The frame rate is out of range.
    #[error("a rate of {fps} frames per second is not possible: give 0.001 to 1000")]
    Rate {
        /// The rate as given.
        fps: f64,
    },
    /// The JPEG quality is out of range, or the encoder did not start.
    #[error(transparent)]
    Encoder(#[from] mez_media::jpeg::EncodeError),
    /// The reading task ended unexpectedly. The log says why.
    #[error("reading stopped because of an internal error, which is in the log; open the source again")]
    Stopped,
}

fn list_devices(present: &[PathBuf]) -> String {
    if present.is_empty() {
        return "this machine has no video device; plug the camera in, or load its driver".to_owned();
    }
    let names: Vec<String> = present.iter().map(|path| path.display().to_string()).collect();
    format!("there is {}", names.join(", "))
}
