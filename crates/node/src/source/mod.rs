//! Camera sources: frames out of a file, a device or a network camera, through an `ffmpeg` child process.
//!
//! Everything becomes JPEG. Motion JPEG goes through byte for byte; other codecs are decoded by the child to
//! full-range planar pictures and encoded here, at quality 95, off the runtime's threads.
//!
//! | kind | frames come | when the child dies |
//! | --- | --- | --- |
//! | recording (a file, or a URL with a length) | when they are due, on an open-loop schedule | the recording goes on where it was |
//! | live (a device, any other URL) | as they arrive, the newest first of all | it is opened again |
//!
//! Nothing queues: a frame that nobody took in time is dropped for a newer one, and counted.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `spec` | what the user typed |
//! | `credentials` | user names and passwords of network cameras |
//! | `command` | the command lines, and what is kept out of them |
//! | `probe` | what the source is, and what is wrong with it |
//! | `child` | that no child process outlives its owner |
//! | `stream` | how bytes become pictures |
//! | `reader` | which frames of a child are handed over |
//! | `deliver` | when the caller gets a frame |
//! | `encoder` | how a raw picture becomes JPEG |
//! | `pace` | when a frame is due, and how long to wait before trying again |
//! | `queue` | what waits for the caller |
//! | `run` | the loop that joins them |

pub(crate) mod child;
mod command;
mod credentials;
mod deliver;
mod encoder;
mod pace;
mod probe;
mod queue;
mod reader;
mod run;
mod spec;
mod stream;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use self::credentials::{SourceCredentials, SourceCredentialsError};
pub use self::spec::{SourceSpec, SourceSpecError};

use self::queue::EventQueue;
use self::run::Reading;

/// How a source is to be read.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceOptions {
    /// Frames per second. A recording is played at this rate, every frame of it; a live source is thinned out
    /// evenly to it and never slowed down. Default `None`: the recording's own rate, or all that the camera gives.
    /// From 0.001 to 1000.
    pub fps: Option<f64>,
    /// Start a recording again when it ends. Default false. Refused for live sources.
    pub looped: bool,
    /// Size to ask a device for, in pixels. Default `None`: what the driver is set to. Without effect elsewhere.
    pub device_size: Option<(u32, u32)>,
    /// JPEG quality of what has to be encoded, 1 to 100. Default 95. Without effect on Motion JPEG.
    pub jpeg_quality: u8,
    /// A source that has given no frame for so long is opened again; at its start it is given twice as long.
    /// Default 10 s.
    pub stalled_after: Duration,
    /// The program that reads. Default `ffmpeg`, found through `PATH`.
    pub ffmpeg: PathBuf,
    /// The program that looks. Default `ffprobe`, found through `PATH`.
    pub ffprobe: PathBuf,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            fps: None,
            looped: false,
            device_size: None,
            jpeg_quality: 95,
            stalled_after: Duration::from_secs(10),
            ffmpeg: "ffmpeg".into(),
            ffprobe: "ffprobe".into(),
        }
    }
}

/// One frame, as JPEG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFrame {
    /// The image. The memory behind it holds nothing else.
    pub jpeg: Bytes,
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// When it was captured; later than that of every frame before it. For a recording, when it was due. For a live
    /// source, when its first bytes arrived here, which is after the exposure by what the camera and its
    /// connection took.
    pub captured: Instant,
}

/// What a source has to say.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SourceEvent {
    /// A frame.
    Frame(SourceFrame),
    /// Frames before the next event were lost here: due and not ready in time, damaged, or not taken in time by the
    /// caller. Frames left out because of [`SourceOptions::fps`] are not among them.
    Skipped {
        /// How many.
        count: u64,
    },
    /// The source gave up for now and is opened again.
    Restarting {
        /// What happened.
        why: String,
        /// When it is tried again, from now.
        after: Duration,
    },
    /// The source cannot go on. Told once; [`SourceEvent::Ended`] follows.
    Failed(SourceError),
    /// There are no more frames. Told again on every further call.
    Ended,
}

/// What is known of a source once it has answered.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SourceInfo {
    /// The codec of its video, as ffmpeg names it.
    pub codec: String,
    /// Pixels in a row, as stated by the source; frames carry their own size.
    pub width: u32,
    /// Rows, as stated by the source.
    pub height: u32,
    /// Frames per second: for a recording, at which it is played; for a live source, as stated by it, if it does.
    pub frames_per_second: Option<f64>,
    /// True if its JPEG images go through untouched.
    pub passthrough: bool,
    /// True if frames come when they come; false if it is a recording, which ends.
    pub live: bool,
}

/// A source cannot be read.
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
    /// A program of that name exists, but is something else.
    #[error("{} is not ffmpeg: install ffmpeg, or name the right program", program.display())]
    NotFfmpeg {
        /// The program that was started.
        program: PathBuf,
    },
    /// It cannot be told a password without everybody seeing it.
    #[error(
        "the address of {source_name} holds a password or a query, which ffmpeg takes unseen from version 5.0 on; update it"
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
        /// What the system said.
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
        /// The video devices that there are.
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
    #[error("{source_name} is in use by another program: close that one (fuser -v {source_name} names it)")]
    Busy {
        /// The device.
        source_name: String,
    },
    /// There is nothing to see in it.
    #[error("{source_name} has no video{}: choose another source", if *audio_only { ", only sound" } else { "" })]
    NoVideo {
        /// The source, without credentials.
        source_name: String,
        /// True if there is sound.
        audio_only: bool,
    },
    /// It looked like a video, but not one frame came out of it.
    #[error("not one frame of {source_name} could be read: it is damaged or empty ({detail})")]
    NoFrames {
        /// The source, without credentials.
        source_name: String,
        /// What ffmpeg said.
        detail: String,
    },
    /// It cannot be opened or understood.
    #[error("{source_name} cannot be read: {detail}")]
    Unreadable {
        /// The source, without credentials.
        source_name: String,
        /// What was found, or what ffmpeg said.
        detail: String,
    },
    /// It did not say what it is in time.
    #[error("{source_name} gave no answer within {} s: check that the camera is on and sends", after.as_secs())]
    NoAnswer {
        /// The source, without credentials.
        source_name: String,
        /// How long was waited.
        after: Duration,
    },
    /// Its pictures are larger than can be handled.
    #[error(
        "{source_name} has pictures of {width}x{height}: at most {} pixels, and {} along a side, can be handled; \
         scale the video down",
        mez_media::jpeg::PIXELS_MAX_DEFAULT,
        mez_media::jpeg::SIDE_MAX
    )]
    TooLarge {
        /// The source, without credentials.
        source_name: String,
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// A live source has no start to go back to.
    #[error("{source_name} is live and cannot be looped: leave the loop option out")]
    LoopOnLive {
        /// The source, without credentials.
        source_name: String,
    },
    /// A rate that makes no sense.
    #[error("a rate of {fps} frames per second is not possible: give 0.001 to 1000")]
    Rate {
        /// The rate as given.
        fps: f64,
    },
    /// A quality that does not exist, or an encoder that did not start.
    #[error(transparent)]
    Encoder(#[from] mez_media::jpeg::EncodeError),
    /// The task that reads ended without a word; the log says why.
    #[error("reading stopped because of an internal error, which the log names; open the source again")]
    Stopped,
}

fn list_devices(present: &[PathBuf]) -> String {
    if present.is_empty() {
        return "this machine has no video device; plug the camera in, or load its driver".to_owned();
    }
    let names: Vec<String> = present.iter().map(|path| path.display().to_string()).collect();
    format!("there is {}", names.join(", "))
}

/// A source being read. Dropping it stops the child process.
#[derive(Debug)]
pub struct Source {
    events: Arc<EventQueue>,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

/// What the reading task tells on the side.
#[derive(Debug, Default)]
struct Shared {
    info: Option<SourceInfo>,
    child_pid: Option<u32>,
    turns: Option<watch::Receiver<Duration>>,
}

impl Source {
    /// Opens a source and begins to read it. Has to be called within a Tokio runtime.
    ///
    /// A file or a device is looked at before this returns, so that what is wrong with it is an error here. A URL
    /// is not waited for: a camera that is not there yet shows as [`SourceEvent::Restarting`].
    ///
    /// # Errors
    /// [`SourceError`].
    pub async fn spawn(spec: SourceSpec, options: SourceOptions) -> Result<Self, SourceError> {
        let reading = Reading::prepare(spec, options).await?;
        let events = Arc::new(EventQueue::default());
        let shared = Arc::new(Mutex::new(Shared { info: reading.info(), ..Shared::default() }));
        let task = tokio::spawn(reading.run(Arc::clone(&events), Arc::clone(&shared)));
        Ok(Self { events, shared, task })
    }

    /// The frames of a recording begin so much later whenever somebody says so ([`CameraHandle::later`](crate::camera::CameraHandle::later)), every
    /// few seconds at most. Without effect on live sources, whose frames come when they come.
    pub fn take_turns(&self, later: watch::Receiver<Duration>) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).turns = Some(later);
    }

    /// Waits for the next event. May be dropped and called again without losing one.
    pub async fn next(&mut self) -> SourceEvent {
        self.events.next().await
    }

    /// What is known of the source; `None` until it has answered for the first time.
    #[must_use]
    pub fn info(&self) -> Option<SourceInfo> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).info.clone()
    }

    /// Process id of the child that reads at the moment.
    #[must_use]
    pub fn child_pid(&self) -> Option<u32> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).child_pid
    }

    /// Stops reading. When it returns, the child has been killed.
    pub async fn stop(mut self) {
        self.task.abort();
        // Cancelled, or over before: both are what was asked for.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}
