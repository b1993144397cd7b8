//! Defines the settings of joins, what comes out of them, and why something is missing.

use std::fmt;
use std::time::Duration;

use crate::name::CameraName;

/// How long frames wait, and how much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinConfig {
    /// How long a frame waits for its records, and a record for its frame. Default 1 s.
    pub within: Duration,
    /// How many records each frame is expected to have. It is given out as soon as it has them. Default 1.
    pub records: usize,
    /// The most frames that wait. Default 256.
    pub frames_max: usize,
    /// The most records that wait for their frames. Default 256.
    pub records_max: usize,
    /// The most bytes of all that waits, unless it is one frame or record. Default 64 MiB.
    pub bytes_max: u64,
    /// After how long without a single match it is told that the streams do not meet. Default 10 s.
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

/// Why a frame came out with fewer records than it is expected to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Missing {
    /// The time is over, and records of later frames have come: whoever makes them left this one out, or is still at it.
    Passed,
    /// The time is over, and no record of a later frame has come either: whoever makes them is slow, or gone.
    Late,
    /// More waited than may. Records of it that come later are strays.
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
    /// Its frame was given out before it came, with fewer records than expected.
    Late,
    /// Its frame was given out with as many records as are expected.
    Twice,
    /// Its frame was not delivered here, though later ones were.
    FrameSkipped,
    /// Its frame did not come in time, and no later one either.
    NoFrame,
    /// It does not say what it was made of.
    NoOrigin,
    /// More waited than may.
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

/// The streams do not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeverMet {
    /// For how long there was no match.
    pub lasts: Duration,
    /// Frames and records that came in this time.
    pub frames: u64,
    /// The same of records.
    pub records: u64,
    /// The camera of the frames.
    pub camera: Option<CameraName>,
    /// The camera that the newest record says it was made of.
    pub made_of: Option<CameraName>,
}

impl fmt::Display for NeverMet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lasts, frames, records, camera, made_of } = self;
        write!(f, "for {} s no record was made of a frame that came: ", lasts.as_secs())?;
        match (camera, made_of) {
            (None, _) => {
                write!(f, "no frame came at all; check the name of the camera, and that it publishes")
            }
            (Some(camera), _) if *records == 0 => write!(
                f,
                "{frames} frames of {camera}, and no record; check the name of the derived stream, and that its program runs"
            ),
            (Some(camera), Some(made_of)) if made_of != camera => write!(
                f,
                "{frames} frames of {camera}, and {records} records that were made of {made_of}; join them with {made_of}"
            ),
            (Some(camera), Some(_)) => write!(
                f,
                "{frames} frames of {camera}, and {records} records of others of its frames; give a longer within, or check that its program \
                 is not far behind"
            ),
            (Some(camera), None) => write!(
                f,
                "{frames} frames of {camera}, and {records} records that do not say what they were made of; publish them with of=frame"
            ),
        }
    }
}

/// What comes out of a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined<F, R> {
    /// A frame with its records, in the order in which these came.
    Pair {
        /// The frame.
        frame: F,
        /// Its records.
        records: Vec<R>,
        /// Why it has fewer than expected.
        missing: Option<Missing>,
    },
    /// A record without its frame.
    Stray {
        /// The record.
        record: R,
        /// Why.
        reason: Stray,
    },
    /// For a while nothing has matched. Told once until something matches.
    NeverMet(NeverMet),
}

/// How much has come, and what became of it. Frames and records that wait are the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinCounts {
    /// Frames that came.
    pub frames: u64,
    /// Records that came.
    pub records: u64,
    /// Frames that were given out with as many records as are expected.
    pub whole: u64,
    /// Frames that were given out with fewer.
    pub missing: u64,
    /// Records that were given out with their frames.
    pub matched: u64,
    /// Records that were given out without.
    pub strays: u64,
}

impl NeverMet {
    /// Nothing has come.
    pub(super) const fn nothing() -> Self {
        Self { lasts: Duration::ZERO, frames: 0, records: 0, camera: None, made_of: None }
    }
}
