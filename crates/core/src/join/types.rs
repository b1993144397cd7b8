//! Defines the settings and the outputs of joins, and why frames or records are missing.

use std::fmt;
use std::time::Duration;

use crate::name::CameraName;

/// How long frames wait, and how much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinConfig {
    /// How long a frame waits for its records, and a record for its frame. Default 1 s.
    pub within: Duration,
    /// How many records each frame is expected to have. A frame with all of them comes out at once. Default 1.
    pub records: usize,
    /// The most frames that wait. Default 256.
    pub frames_max: usize,
    /// The most records that wait for their frames. Default 256.
    pub records_max: usize,
    /// The most bytes that wait, unless only one frame or record does. Default 64 MiB.
    pub bytes_max: u64,
    /// After this long without a match, the join reports that the streams do not meet. Default 10 s.
    pub strange_after: Duration,
    /// Whether both sides are read from the past. Default: live.
    pub is_past: bool,
}

impl Default for JoinConfig {
    fn default() -> Self {
        Self {
            within: Duration::from_secs(1),
            records: 1,
            frames_max: 256,
            records_max: 256,
            bytes_max: 64 << 20,
            strange_after: Duration::from_secs(10),
            is_past: false,
        }
    }
}

/// Why a frame came out with fewer records than expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Missing {
    /// The time is over, and records of later frames have come: the program left this frame out, or still works on it.
    Passed,
    /// The time is over, and no record of a later frame has come: the program is slow, or gone.
    Late,
    /// Too much waited. Records of the frame that come later are strays.
    Full,
    /// The derived streams have ended.
    Ended,
}

impl Missing {
    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Late => "late",
            Self::Full => "full",
            Self::Ended => "ended",
        }
    }
}

/// Why a record came out without its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stray {
    /// The frame came out before the record came, with fewer records than expected.
    Late,
    /// The frame already has as many records as expected.
    Twice,
    /// The frame was not delivered here, though later frames were.
    FrameSkipped,
    /// The frame did not come in time, and no later frame either.
    NoFrame,
    /// The record does not name its origin.
    NoOrigin,
    /// Too much waited.
    Full,
}

impl Stray {
    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Twice => "twice",
            Self::FrameSkipped => "frame_skipped",
            Self::NoFrame => "no_frame",
            Self::NoOrigin => "no_origin",
            Self::Full => "full",
        }
    }
}

/// The report that the streams do not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeverMet {
    /// For how long there was no match.
    pub lasts: Duration,
    /// Frames that came in this time.
    pub frames: u64,
    /// Records that came in this time.
    pub records: u64,
    /// The camera of the frames.
    pub camera: Option<CameraName>,
    /// The camera that the newest record names as its origin.
    pub made_of: Option<CameraName>,
}

impl fmt::Display for NeverMet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lasts, frames, records, camera, made_of } = self;
        write!(f, "no frame and record matched for {} s: ", lasts.as_secs())?;
        match (camera, made_of) {
            (None, _) => {
                write!(f, "no frame arrived; check the camera's name, and that the camera publishes")
            }
            (Some(camera), _) if *records == 0 => write!(
                f,
                "{frames} frames of {camera} arrived, but no record; check the name of the derived stream, and that its program runs"
            ),
            (Some(camera), Some(made_of)) if made_of != camera => write!(
                f,
                "{frames} frames of {camera} arrived, and {records} records that were made of {made_of}; join the records with {made_of}"
            ),
            (Some(camera), Some(_)) => write!(
                f,
                "{frames} frames of {camera} arrived, and {records} records of other frames of this camera; give a longer within, or check that \
                 the program of the derived stream is not far behind"
            ),
            (Some(camera), None) => write!(
                f,
                "{frames} frames of {camera} arrived, and {records} records that do not name the frame that they were made of; publish records \
                 with of=frame"
            ),
        }
    }
}

/// An output of a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined<F, R> {
    /// A frame with its records, in the order in which the records came.
    Pair {
        /// The frame.
        frame: F,
        /// The records of the frame.
        records: Vec<R>,
        /// Why there are fewer records than expected.
        missing: Option<Missing>,
    },
    /// A record without its frame.
    Stray {
        /// The record.
        record: R,
        /// Why it has no frame.
        reason: Stray,
    },
    /// Nothing has matched for a while. Reported once, until something matches.
    NeverMet(NeverMet),
}

/// How many frames and records came, and how they ended. The rest of them waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinCounts {
    /// Frames that came.
    pub frames: u64,
    /// Records that came.
    pub records: u64,
    /// Frames that came out with as many records as expected.
    pub whole: u64,
    /// Frames that came out with fewer records than expected.
    pub missing: u64,
    /// Records that came out with their frames.
    pub matched: u64,
    /// Records that came out without their frames.
    pub strays: u64,
}

impl NeverMet {
    /// Nothing has come.
    pub(super) const fn nothing() -> Self {
        Self { lasts: Duration::ZERO, frames: 0, records: 0, camera: None, made_of: None }
    }
}
