//! Lists the starts and resets of cameras that an edge remembers.

use std::path::PathBuf;

use mez_core::frame::Epoch;
use mez_core::units::Timestamp;

use crate::api::pb;

/// What an edge remembers of a camera.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CameraStarts {
    /// Its starts, the oldest first.
    pub starts: Vec<CameraStart>,
    /// Its resets, the oldest first.
    pub resets: Vec<CameraReset>,
}

/// A start of a camera broker, as an edge took it in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraStart {
    /// Frames of this start have this epoch.
    pub epoch: Epoch,
    /// When it was first taken in, by the edge's wall clock.
    pub first: Timestamp,
    /// The identity in the certificate of the start.
    pub identity: String,
    /// The serial number of its certificate, in hexadecimal digits.
    pub serial: String,
    /// SHA-256 over its certificate, in hexadecimal digits.
    pub fingerprint: String,
    /// The address that it came from.
    pub address: String,
}

/// A reset of a camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraReset {
    /// When, by the edge's wall clock.
    pub at: Timestamp,
    /// The user on the edge's host who requested the reset.
    pub uid: u32,
    /// The epoch that was forgotten. `None`: nothing was known of the camera.
    pub epoch: Option<Epoch>,
    /// Whose newest start that was, as far as it was known.
    pub identity: String,
    /// The folder of logs in which the camera's log is since. `None`: there was none on disk.
    pub put_aside: Option<PathBuf>,
}

/// What a reset did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetCamera {
    /// The epoch that was forgotten. `None`: nothing was known of the camera.
    pub epoch: Option<Epoch>,
    /// Whose newest start that was, as far as it was known.
    pub identity: String,
    /// Whether it was connected.
    pub connected: bool,
    /// The folder of logs, on the edge's host, in which its log is now. `None`: there was none on disk.
    pub put_aside: Option<PathBuf>,
}

/// What was forgotten of a camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgottenCamera {
    /// The epoch of its newest start.
    pub epoch: Epoch,
    /// Whose start that was, as far as it was known.
    pub identity: String,
    /// The folder of logs, on the edge's host, in which its log is now. `None`: there was none on disk.
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
