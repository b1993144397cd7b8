//! How a log is kept on disk.

use std::time::Duration;

use super::key::KeyRing;
use crate::name::CameraName;

/// When records are made durable against a power cut. A killed broker loses no more than the records of the last
/// 200 ms in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the operating system thinks fit: cheapest, and a power cut may cost half a minute.
    Async,
    /// Every [`StoreConfig::sync_interval`]: a power cut costs no more than that.
    #[default]
    Group,
    /// As soon as they are written, before the next ones are: a power cut costs about 200 ms.
    Sync,
}

/// How a log is kept on disk.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The camera.
    pub camera: CameraName,
    /// The keys; the newest one writes.
    pub keys: KeyRing,
    /// When records are made durable. Default: every second.
    pub durability: Durability,
    /// The time between two syncs with [`Durability::Group`]. Default 1 s, which a power cut may cost.
    pub sync_interval: Duration,
    /// The most bytes on disk. Default 4 GiB. The oldest segments make room for the newest frames.
    pub disk_bytes_max: u64,
    /// How long after it was written a frame is removed, at the latest; a sixteenth of it later at most.
    /// Default: only to make room.
    pub disk_age_max: Option<Duration>,
    /// The size at which a segment is closed: what is removed at once, and what is read at once when the broker starts.
    pub segment_bytes: u64,
    /// The most bytes that are sealed and not yet handed over, unless a single record has more. Default 4 MiB.
    pub batch_bytes_max: usize,
}

impl StoreConfig {
    /// The defaults for a log of `disk_bytes_max` bytes: segments of 1/256 of it, from 1 MiB to 32 MiB.
    pub fn new(camera: CameraName, keys: KeyRing, disk_bytes_max: u64) -> Self {
        Self {
            camera,
            keys,
            durability: Durability::default(),
            sync_interval: Duration::from_secs(1),
            disk_bytes_max,
            disk_age_max: None,
            segment_bytes: (disk_bytes_max / 256).clamp(1 << 20, 32 << 20),
            batch_bytes_max: 4 << 20,
        }
    }
}
