//! Publishers that wait until their records are on disk.

use std::time::Duration;

use mez_core::frame::FrameId;
use mez_core::name::CameraName;
use mez_core::store::Degraded;
use tokio::sync::oneshot;

/// The most records that may be awaited at the same time, over all logs.
pub const AWAITED_MAX: usize = 4_096;
/// The longest wait for a record. After it, the publisher learns why the record is not on disk.
pub const ON_DISK_TIME_MAX: Duration = Duration::from_secs(5);

/// Why a record is not known to be on disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOnDisk {
    /// There are no logs on disk.
    #[error("this edge keeps no logs on disk; start the edge with --store, or do not wait for the disk")]
    NoStore,
    /// The record will never be on disk.
    #[error(
        "the record is not on disk: it was evicted from memory before it could be written, or the edge was restarted; publish the record again"
    )]
    Lost,
    /// The log is degraded. The record is in memory, and will be written if the disk recovers in time.
    #[error("the record is not on disk: {0}")]
    Degraded(Degraded),
    /// The wait exceeded [`ON_DISK_TIME_MAX`].
    #[error("the record is not on disk after {} s; check the disk, and ask again", ON_DISK_TIME_MAX.as_secs())]
    Late,
    /// More than [`AWAITED_MAX`] records are awaited.
    #[error("{AWAITED_MAX} records already wait for the disk, which is the limit; ask again in a moment")]
    TooMany,
    /// The broker stops.
    #[error("the edge is stopping; ask again when it is back")]
    Stopped,
}

/// A record that a publisher waits for.
struct Wait {
    camera: CameraName,
    frame: FrameId,
    told: oneshot::Sender<Result<(), NotOnDisk>>,
}

/// The awaited records. Owned by the writing thread.
#[derive(Default)]
pub(super) struct Awaited(Vec<Wait>);

impl Awaited {
    pub(super) fn add(
        &mut self,
        camera: CameraName,
        frame: FrameId,
        told: oneshot::Sender<Result<(), NotOnDisk>>,
    ) {
        if self.0.len() == AWAITED_MAX {
            // The publisher may have gone.
            let _ = told.send(Err(NotOnDisk::TooMany));
        } else {
            self.0.push(Wait { camera, frame, told });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a publisher waits for a record of this camera.
    pub(super) fn is_for(&self, camera: &CameraName) -> bool {
        self.0.iter().any(|wait| wait.camera == *camera)
    }

    /// Answers each wait for which `verdict` returns a result, and removes the waits of publishers that have gone.
    pub(super) fn settle(&mut self, verdict: impl Fn(&CameraName, FrameId) -> Option<Result<(), NotOnDisk>>) {
        let waiting = std::mem::take(&mut self.0);
        for wait in waiting.into_iter().filter(|wait| !wait.told.is_closed()) {
            match verdict(&wait.camera, wait.frame) {
                Some(known) => drop(wait.told.send(known)),
                None => self.0.push(wait),
            }
        }
    }
}
