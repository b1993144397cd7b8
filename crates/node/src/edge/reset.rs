//! Resets a camera: makes an edge forget its epochs and puts its log aside.
//!
//! An operator resets a camera after somebody else used its keys, once that is over.

use std::path::PathBuf;

use mez_core::broker::edge::Forgotten;
use mez_core::name::CameraName;
use tokio::sync::oneshot;
use tracing::{error, warn};

use super::Stopped;
use super::driver::Driver;
use super::starts::CameraReset;
use crate::clock::wall_now;
use crate::persist::aside::PutAsideError;

/// What a reset did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetReport {
    /// What the edge knew of the camera. `None` if it knew nothing; its next start is accepted in any case.
    pub forgotten: Option<Forgotten>,
    /// The folder of logs in which its log is since. `None`: there was none on disk.
    pub put_aside: Option<PathBuf>,
}

/// Why a camera was not reset, or not in full.
#[derive(Debug, thiserror::Error)]
pub enum ResetFailure {
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// Its log could not be put aside.
    #[error(transparent)]
    PutAside(#[from] PutAsideError),
    /// The camera was reset, but the reset could not be recorded.
    #[error("the camera was reset, and that could not be recorded: {0}; make the folder for state writable")]
    Record(#[source] std::io::Error),
}

impl Driver {
    /// Forgets the camera at once; the log on disk, which nothing new enters, is put aside behind everybody's back.
    pub(super) fn reset(
        &mut self,
        camera: CameraName,
        uid: u32,
        answer: oneshot::Sender<Result<ResetReport, ResetFailure>>,
    ) {
        let forgotten = self.broker.handle_reset(&camera);
        while let Some(output) = self.broker.poll_output() {
            self.perform(output);
        }
        self.forget_camera(&camera);
        let putting = self.replicas.as_mut().map(|replicas| replicas.put_aside(&camera));
        let starts = self.starts.clone();
        tokio::spawn(async move {
            let put = match putting {
                Some(putting) => putting.await,
                None => Ok(None),
            };
            let reset = CameraReset {
                utc_ns: wall_now().as_nanos(),
                uid,
                epoch: forgotten.as_ref().map(|forgotten| forgotten.epoch.0),
                identity: forgotten.as_ref().map(|forgotten| forgotten.identity.clone()).unwrap_or_default(),
                put_aside: put.as_ref().ok().cloned().flatten(),
            };
            let recorded = starts.reset(&camera, reset.clone()).await;
            let CameraReset { epoch, identity, put_aside, .. } = reset;
            warn!(%camera, uid, ?epoch, identity, ?put_aside, "the camera was reset: its next start is taken in whatever its epoch");
            let result = match (put, recorded) {
                (Err(error), _) => Err(error.into()),
                (Ok(_), Err(error)) => Err(ResetFailure::Record(error)),
                (Ok(put_aside), Ok(())) => Ok(ResetReport { forgotten, put_aside }),
            };
            if let Err(error) = &result {
                error!(%camera, "{error}");
            }
            let _ = answer.send(result);
        });
    }
}
