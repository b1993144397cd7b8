//! Forgets cameras that are not connected: on an operator's request, or after a long absence.

use std::path::PathBuf;

use mez_core::audit::{Event, Kind};
use mez_core::broker::edge::{ForgetError, Forgotten};
use mez_core::frame::Epoch;
use mez_core::name::CameraName;
use tokio::sync::oneshot;
use tracing::{error, info};

use super::driver::Driver;
use super::failure::Stopped;
use crate::clock::{monotonic_now, wall_now};
use crate::persist::aside::PutAsideError;

/// What the edge forgot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgetReport {
    /// What the edge knew of the camera.
    pub forgotten: Forgotten,
    /// The folder of logs that now holds the camera's log. `None`: there was no log on disk.
    pub put_aside: Option<PathBuf>,
}

/// Why a camera was not forgotten, or not in full.
#[derive(Debug, thiserror::Error)]
pub enum ForgetFailure {
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The camera is connected or unknown.
    #[error(transparent)]
    Refused(#[from] ForgetError),
    /// The camera was forgotten, but its log could not be put aside. The next start of the edge takes the log up again.
    #[error(transparent)]
    PutAside(#[from] PutAsideError),
}

impl Driver {
    /// Forgets a camera on an operator's request. Its log on disk is put aside in the background.
    pub(super) fn forget_by_hand(
        &mut self,
        camera: &CameraName,
        answer: oneshot::Sender<Result<ForgetReport, ForgetFailure>>,
    ) {
        let forgotten = match self.broker.handle_forget(camera) {
            Ok(forgotten) => forgotten,
            // The asker may have gone.
            Err(error) => return drop(answer.send(Err(error.into()))),
        };
        self.carry_out_forgetting(camera, forgotten.epoch);
        let putting = self.replicas.as_mut().map(|replicas| replicas.put_aside(camera));
        let camera = camera.clone();
        tokio::spawn(async move {
            let put = match putting {
                Some(putting) => putting.await,
                None => Ok(None),
            };
            let result = match put {
                Ok(put_aside) => {
                    info!(%camera, epoch = forgotten.epoch.0, ?put_aside, "the camera is forgotten");
                    Ok(ForgetReport { forgotten, put_aside })
                }
                Err(failure) => {
                    error!(%camera, "{failure}");
                    Err(failure.into())
                }
            };
            let _ = answer.send(result);
        });
    }

    /// Forgets cameras that have been absent for too long, unless their logs on this disk still hold frames.
    pub(super) fn forget_stale(&mut self) {
        for camera in self.broker.stale(monotonic_now()) {
            // A log that cannot be opened, or is not open yet, may hold frames.
            let is_empty = self.replicas.as_ref().is_none_or(|replicas| {
                let status = replicas.keeper().status(&camera);
                status.is_some_and(|status| status.disk_bytes == 0 && status.degraded.is_none())
            });
            if is_empty && let Ok(forgotten) = self.broker.handle_forget(&camera) {
                info!(%camera, "the camera is forgotten: it was not connected for a long time");
                let event = Event::new(wall_now(), Kind::Operated, "edge").what("forget");
                self.audit.note(event.cameras(camera.as_str()).why("it was not connected for a long time"));
                self.carry_out_forgetting(&camera, forgotten.epoch);
                if let Some(replicas) = &mut self.replicas {
                    tokio::spawn(replicas.put_aside(&camera));
                }
            }
        }
    }

    /// Carries out the broker's outputs after it has forgotten a camera.
    fn carry_out_forgetting(&mut self, camera: &CameraName, epoch: Epoch) {
        while let Some(output) = self.broker.poll_output() {
            self.perform(output);
        }
        self.forget_camera(camera, Some(epoch));
    }
}
