//! Describes a camera's path to its edge for the rules: faults from which it may have to recover, and the state of its link.

use std::time::Duration;

use mez_core::name::CameraName;

use crate::link::LinkSpec;
use crate::time::{Moment, ms, secs};

/// Guarantee I12: the longest time until delivery resumes after faults have stopped. A refused capture time counts as a fault.
pub(crate) const RESUME_MAX: Duration = secs(2);
/// After how many round trips a new connection, which begins with ten packets, may have a frame of a hundred packets in flight.
pub(super) const WINDOW_OPENS_FOR: u32 = 3;
/// For how many round trips the window grows until it is what the link carries.
pub(super) const WINDOW_GROWS_FOR: u32 = 10;
const WINDOW_GROWS_WITH: u32 = 4;
/// How long a refused camera may wait before it dials again.
const REFUSED_MAX: Duration = secs(6);
/// The longest time that a killed process can keep its camera's next start out: the edge gives up the connection, and the refused camera dials again.
pub(crate) const RIVAL_MAX: Duration = secs(16);

/// A camera and its path to its edge, at one moment.
pub(crate) struct Path {
    /// The camera's index, for messages.
    pub(crate) camera: usize,
    pub(crate) name: CameraName,
    /// The link as created, and the present link.
    pub(crate) made: LinkSpec,
    pub(crate) link: LinkSpec,
    /// How long the link may take beyond what its rate implies, because stations contend for a medium.
    pub(crate) bad_luck: Duration,
    /// Whether the link is cut.
    pub(crate) is_cut: bool,
    /// Whether everything on the path works. The camera may still not publish.
    pub(crate) is_well: bool,
    /// When a fault last touched the camera or its path.
    pub(crate) disturbed: Moment,
    /// When the edge last refused the camera. The camera may then wait before it dials again.
    pub(crate) refused: Option<Moment>,
    /// Whether another process claims, or has claimed, the same name.
    pub(crate) rivals: bool,
    /// Until when a thief may hold the camera's name.
    pub(crate) robbed_until: Moment,
    /// The time between two frames, and how far it varies.
    pub(crate) interval: Duration,
    pub(crate) jitter: Duration,
    /// The largest published frame, in bytes.
    pub(crate) frame_bytes_max: u32,
    /// The longest encoding time.
    pub(crate) making_time_max: Duration,
    pub(crate) publishing: bool,
    /// When the publisher last gave a frame that no application can get: with a wrong capture time, or a video picture whose reference is missing.
    pub(crate) useless: Moment,
}

impl Path {
    /// The end of the last fault from which the camera may have to recover.
    pub(super) fn quiet_since(&self) -> Moment {
        let refused = self.refused.map_or(Moment::START, |refused| refused + REFUSED_MAX);
        let rivals = if self.rivals { self.disturbed + RIVAL_MAX } else { Moment::START };
        self.disturbed.max(refused).max(rivals).max(self.robbed_until)
    }

    /// When the camera has recovered from the last fault, at the latest.
    pub(super) fn recovered(&self) -> Moment {
        self.quiet_since() + RESUME_MAX + self.bad_luck
    }

    /// Whether a working camera is never silent so long that the edge takes it for gone. If lost data waits
    /// in a full queue again, both sides may be silent for that time.
    pub(super) fn is_brisk(&self) -> bool {
        queue_time(&self.link) * 2 + self.link.round_trip_time() * 2 + self.bad_luck < ms(400)
    }

    /// How long the largest frame takes on the present link, with everything else that crosses.
    pub(crate) fn service_time(&self) -> Duration {
        time_for(&self.link, u64::from(self.frame_bytes_max) * 21 / 20 + 2_000)
    }

    /// How long a full queue of the link takes to drain.
    pub(crate) fn queue_time(&self) -> Duration {
        queue_time(&self.link)
    }

    /// How long the window of a new connection takes to grow to what the link carries.
    pub(super) fn window_time(&self) -> Duration {
        self.made.round_trip_time() * WINDOW_GROWS_FOR + self.interval * WINDOW_GROWS_WITH
    }
}

/// How long a full queue takes to drain.
pub(super) fn queue_time(spec: &LinkSpec) -> Duration {
    time_for(spec, spec.queue_bytes_max)
}

fn time_for(spec: &LinkSpec, bytes: u64) -> Duration {
    Duration::from_nanos(bytes * 8 * 1_000_000_000 / spec.bits_per_second.max(1))
}
