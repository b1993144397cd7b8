//! Draws logs on disks, and the faults of disks.

use mez_core::store::Durability;

use crate::disk::Faults;
use crate::random::Random;
use crate::world::DiskSpec;

/// Draws a log on disk, which holds more or less than memory does.
pub(super) fn disk(random: &mut Random) -> DiskSpec {
    DiskSpec {
        durability: *random.pick(&[
            Durability::Group,
            Durability::Group,
            Durability::Sync,
            Durability::Async,
        ]),
        disk_bytes_max: random.within(1..=24) << 20,
        segment_bytes: random.within(64..=2_048) << 10,
    }
}

/// Draws a fault of a disk.
pub(super) fn disk_faults(random: &mut Random) -> Faults {
    let fine = Faults::default();
    match random.within(0..=4) {
        0 => Faults { full: true, ..fine },
        1 => Faults { failing_writes: true, ..fine },
        2 => Faults { failing_syncs: true, ..fine },
        3 => Faults { sync_polls: random.within(1..=100) as u32, ..fine },
        _ => Faults { stuck: true, ..fine },
    }
}
