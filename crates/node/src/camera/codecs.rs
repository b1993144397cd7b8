//! Starts a camera's codec threads when they are first needed: one for live frames, one for frames of the past.

use std::sync::Arc;

use mez_core::broker::camera::Transform;
use mez_core::log::LogReader;
use mez_core::name::CameraName;
use tokio::sync::mpsc;
use tracing::error;

use crate::codec::{Codec, H264Library, Made};
use crate::decoders::Decoders;
use crate::degrade::StreamKnobs;

/// A codec that starts with its first frame. Cameras that never adapt have no codec thread.
pub(super) struct LazyCodec {
    h264: H264Library,
    log: LogReader,
    decoders: Decoders,
    knobs: Option<Arc<StreamKnobs>>,
    running: Option<(Codec, mpsc::Receiver<Made>)>,
}

impl LazyCodec {
    /// A codec that has not started.
    pub(super) fn new(
        h264: H264Library,
        log: LogReader,
        decoders: Decoders,
        knobs: Option<Arc<StreamKnobs>>,
    ) -> Self {
        Self { h264, log, decoders, knobs, running: None }
    }

    /// Gives a frame to the codec. False if the codec cannot take it.
    pub(super) fn begin(&mut self, camera: &CameraName, transform: Box<Transform>) -> bool {
        if self.running.is_none() {
            let (log, decoders, knobs) = (self.log.clone(), self.decoders.clone(), self.knobs.clone());
            match Codec::start(camera.as_str(), self.h264, log, decoders, knobs) {
                Ok(started) => self.running = Some(started),
                Err(error) => error!(%camera, %error, "cannot start a thread for the codec"),
            }
        }
        self.running.as_ref().is_some_and(|(codec, _)| codec.make(transform).is_ok())
    }

    /// The next result. Waits for ever if the codec has not started.
    pub(super) async fn next(&mut self) -> Option<Made> {
        match &mut self.running {
            Some((_, made)) => made.recv().await,
            None => std::future::pending().await,
        }
    }
}
