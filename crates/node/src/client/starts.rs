//! The starts and resets of cameras that an edge remembers.

use std::path::PathBuf;

use mez_core::frame::Epoch;
use mez_core::units::Timestamp;

use crate::api::pb;

/// What an edge remembers about a camera.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CameraStarts {
    /// The camera's starts, oldest first.
    pub starts: Vec<CameraStart>,
    /// The camera's resets, oldest first.
    pub resets: Vec<CameraReset>,
}

/// A start of a camera broker that an edge accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraStart {
    /// Frames of this start have this epoch.
    pub epoch: Epoch,
    /// When the edge first accepted it, by the edge's wall clock.
    pub first: Timestamp,
    /// The identity in the certificate of the start.
    pub identity: String,
    /// The serial number of the certificate, in hexadecimal digits.
    pub serial: String,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
    /// The address from which the camera connected.
    pub address: String,
}

/// A reset of a camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraReset {
    /// The time of the reset, by the edge's wall clock.
    pub at: Timestamp,
    /// The user on the edge's host who requested the reset.
    pub uid: u32,
    /// The forgotten epoch. `None`: the edge knew nothing about the camera.
    pub epoch: Option<Epoch>,
    /// The identity of the newest start, if known.
    pub identity: String,
    /// The folder to which the camera's log was moved. `None`: there was no log on disk.
    pub put_aside: Option<PathBuf>,
}

/// The result of a reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetCamera {
    /// The forgotten epoch. `None`: the edge knew nothing about the camera.
    pub epoch: Option<Epoch>,
    /// The identity of the newest start, if known.
    pub identity: String,
    /// Whether the camera was connected.
    pub connected: bool,
    /// The folder on the edge's host to which the camera's log was moved. `None`: there was no log on disk.
    pub put_aside: Option<PathBuf>,
}

/// The result of forgetting a camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgottenCamera {
    /// The epoch of its newest start.
    pub epoch: Epoch,
    /// The identity of that start, if known.
    pub identity: String,
    /// The folder on the edge's host to which the camera's log was moved. `None`: there was no log on disk.
    pub put_aside: Option<PathBuf>,
}

impl ForgottenCamera {
    pub(super) fn from_message(answer: pb::ForgetCameraResponse) -> Self {
        let pb::ForgetCameraResponse { epoch, identity, put_aside } = answer;
        Self { epoch: Epoch(epoch), identity, put_aside: folder(put_aside) }
    }
}

fn folder(text: String) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

impl CameraStarts {
    pub(super) fn from_message(answer: pb::GetCameraStartsResponse) -> Self {
        let start = |start: pb::CameraStart| CameraStart {
            epoch: Epoch(start.epoch),
            first: Timestamp::from_nanos(start.first_utc_ns),
            identity: start.identity,
            serial: start.certificate_serial,
            fingerprint: start.certificate_fingerprint,
            address: start.address,
        };
        let reset = |reset: pb::CameraReset| CameraReset {
            at: Timestamp::from_nanos(reset.utc_ns),
            uid: reset.uid,
            epoch: reset.epoch.map(Epoch),
            identity: reset.identity,
            put_aside: folder(reset.put_aside),
        };
        Self {
            starts: answer.starts.into_iter().map(start).collect(),
            resets: answer.resets.into_iter().map(reset).collect(),
        }
    }
}

impl ResetCamera {
    pub(super) fn from_message(answer: pb::ResetCameraResponse) -> Self {
        Self {
            epoch: answer.epoch.map(Epoch),
            identity: answer.identity,
            connected: answer.connected,
            put_aside: folder(answer.put_aside),
        }
    }
}
