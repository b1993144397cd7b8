//! Reads frames from a file, a device or a network camera, through an `ffmpeg` child process.
//!
//! Motion JPEG passes unchanged. So do coded pictures of H.264, H.265 and AV1 if the stream is fit for it and the caller wants them
//! ([`SourceOptions::packets`]). Everything else becomes JPEG: the child decodes it to full-range planar pictures, which are encoded here at quality
//! 95, off the runtime's threads.
//!
//! | kind | frames come | when the child dies |
//! | --- | --- | --- |
//! | recording (a file, or a URL with a length) | when they are due, on an open-loop schedule | the recording continues where it was |
//! | live (a device, any other URL) | as they arrive; the newest replaces older ones | the source is opened again |
//!
//! No queue builds up: a frame that the caller does not take in time is dropped for a newer frame, and counted.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `types`, `error` | options, frames, events and errors |
//! | `spec` | what the user typed |
//! | `credentials` | user names and passwords of network cameras |
//! | `command` | the command lines, and what is kept out of them |
//! | `check` | which ffmpeg there is |
//! | `probe`, `input` | what the source is, and what is wrong with it |
//! | `child` | that no child process outlives its owner |
//! | `stream` | how bytes become pictures |
//! | `packets` | how bytes become coded pictures, and which of these can be used |
//! | `reader` | which frames of a child are handed over |
//! | `deliver` | when the caller gets a frame |
//! | `encoder` | how a raw picture becomes JPEG |
//! | `pace` | when a frame is due, and how long to wait before a retry |
//! | `key_frames` | how a source is asked for a key frame |
//! | `v4l2`, `onvif` | the requests to a device and to a network camera |
//! | `queue` | what waits for the caller |
//! | `run` | the loop that joins the others |

mod check;
pub(crate) mod child;
mod command;
mod credentials;
mod deliver;
mod encoder;
mod error;
mod input;
mod key_frames;
mod onvif;
mod pace;
mod packets;
mod probe;
mod queue;
mod reader;
mod run;
mod spec;
mod stream;
mod types;
mod v4l2;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinHandle;

pub use self::check::{FfmpegFound, probe_ffmpeg, probe_source};
pub use self::credentials::{
    SOURCE_CREDENTIALS_CREDENTIAL, SOURCE_CREDENTIALS_VARIABLE, SourceCredentials, SourceCredentialsError,
};
pub use self::error::SourceError;
pub(crate) use self::input::FfmpegVersion;
pub use self::onvif::{OnvifAddressError, OnvifChoice};
pub use self::spec::{SourceSpec, SourceSpecError, without_credentials};
pub use self::types::{KeyFrameNeed, SourceEvent, SourceFrame, SourceInfo, SourceOptions, SourcePacket};
pub use self::v4l2::takes_key_frame_requests;

use self::key_frames::KeyFrames;
use self::queue::EventQueue;
pub use self::run::PreparedSource;
use self::types::Shared;

/// A source that is being read. Dropping it stops the child process.
#[derive(Debug)]
pub struct Source {
    events: Arc<EventQueue>,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
    key_frames: Arc<KeyFrames>,
}

impl PreparedSource {
    /// Begins to read the source. Must be called within a Tokio runtime.
    #[must_use]
    pub fn start(self) -> Source {
        let events = Arc::new(EventQueue::default());
        let shared = Arc::new(Mutex::new(Shared { info: self.info(), ..Shared::default() }));
        let key_frames = Arc::new(self.key_frames());
        let task = tokio::spawn(self.run(Arc::clone(&events), Arc::clone(&shared), Arc::clone(&key_frames)));
        Source { events, shared, task, key_frames }
    }
}

impl Source {
    /// Opens a source and begins to read it. Must be called within a Tokio runtime.
    ///
    /// A file or a device is probed before this returns, so that a fault in it is an error here. A URL is
    /// not waited for: a camera that is absent shows as [`SourceEvent::Restarting`].
    ///
    /// # Errors
    /// [`SourceError`].
    pub async fn spawn(spec: SourceSpec, options: SourceOptions) -> Result<Self, SourceError> {
        Ok(PreparedSource::prepare(spec, options).await?.start())
    }

    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> SourceEvent {
        self.events.next().await
    }

    /// What is known of the source. `None` until it has answered for the first time.
    #[must_use]
    pub fn info(&self) -> Option<SourceInfo> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).info.clone()
    }

    /// Asks the source for a key frame. Returns at once.
    ///
    /// Video4Linux devices have a control for this, and network cameras are asked through ONVIF ([`SourceOptions::onvif`]). If a key frame is needed
    /// and the source takes no such requests, it is opened again, at most every ten seconds: most cameras then begin with a key frame. A recording is
    /// decoded by ffmpeg from then on.
    pub fn ask_key_frame(&self, need: KeyFrameNeed) {
        if self.info().is_some_and(|info| info.passthrough && info.codec != "mjpeg") {
            self.key_frames.ask(need);
        }
    }

    /// The process id of the child that reads at the moment.
    #[must_use]
    pub fn child_pid(&self) -> Option<u32> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).child_pid
    }

    /// Stops reading. The child has been killed when this returns.
    pub async fn stop(mut self) {
        self.task.abort();
        // The task was cancelled or had already ended; both are fine.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}
