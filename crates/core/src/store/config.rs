//! Configures how a log is kept on disk: its budget, its keys, and when its records become durable.

use std::time::Duration;

use super::key::KeyRing;
use crate::name::CameraName;

/// When records become durable against a power cut. A killed broker loses at most the records of its last 200
/// ms in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the operating system decides: the cheapest, and a power cut may lose half a minute.
    Async,
    /// Every [`StoreConfig::sync_interval`]: a power cut loses at most that.
    #[default]
    Group,
    /// As soon as they are written, and before the next records are written: a power cut loses about 200 ms.
    Sync,
}

/// How a log is kept on disk.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The camera.
    pub camera: CameraName,
    /// The keys. The newest one encrypts new segments.
    pub keys: KeyRing,
    /// When records become durable. Default: every second.
    pub durability: Durability,
    /// The time between two syncs with [`Durability::Group`]. Default 1 s. A power cut may lose this much.
    pub sync_interval: Duration,
    /// The most bytes on disk. Default 4 GiB. The oldest segments make room for the newest frames.
    pub disk_bytes_max: u64,
    /// The longest time that a frame stays on disk. It may stay up to a sixteenth longer, because whole
    /// segments are removed. Default: no limit; frames are removed only to make room.
    pub disk_age_max: Option<Duration>,
    /// The size at which a segment is closed. Segments are removed whole, and read whole when the broker starts.
    pub segment_bytes: u64,
    /// The most bytes that are encrypted and not yet handed to the storage, unless a single record is larger.
    /// Default 4 MiB.
    pub batch_bytes_max: usize,
}

impl StoreConfig {
    /// The defaults for a log of `disk_bytes_max` bytes. A segment has 1/256 of that, but at least 1 MiB and
    /// at most 32 MiB.
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
