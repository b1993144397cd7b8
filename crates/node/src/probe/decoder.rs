//! Tries the decoders of the platform, for a checkup.

use std::path::Path;
use std::thread;
use std::time::Duration;

use mez_core::frame::Encoding;

use crate::decoders::trial::{Tried, try_kind};
use crate::decoders::{DecoderChoice, Decoders, Kind, VideoTimes};

/// How long each may take. All together take less than a checkup may.
const TIME_MAX: Duration = Duration::from_secs(8);

/// A decoder, and what a trial says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderTried {
    /// The decoder.
    pub kind: Kind,
    /// What it does; or why it does not work.
    pub works: Result<DecoderTimes, String>,
}

/// What a decoder took for pictures of 1280×720.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecoderTimes {
    /// From its start to the first picture.
    pub start: Duration,
    /// For the median picture.
    pub picture: Duration,
    /// What the library took for the median picture of the same stream.
    pub library: Duration,
}

impl DecoderTried {
    /// Whether a broker that is told this would use it, if it is the first of which that is true.
    #[must_use]
    pub fn is_for(&self, choice: DecoderChoice) -> bool {
        let Ok(times) = &self.works else { return false };
        choice.kinds().contains(&self.kind)
            && (choice != DecoderChoice::Auto || times.picture < times.library)
    }
}

/// Tries all decoders, one after the other. Blocks for some seconds for each that hangs.
#[must_use]
pub fn try_decoders() -> Vec<DecoderTried> {
    let tried = |kind| {
        let works = try_kind(kind, Path::new("ffmpeg"), TIME_MAX);
        let times = |Tried { start, picture, library, .. }| DecoderTimes { start, picture, library };
        DecoderTried { kind, works: works.map(times) }
    };
    Kind::ALL.into_iter().map(tried).collect()
}

/// What a broker decodes H.265 and AV1 with, or why nothing.
pub type VideoTried = [(Encoding, Result<VideoTimes, String>); 2];

/// Tries what a broker with that choice decodes H.265 and AV1 with, both at once. Blocks as long.
pub fn try_video_decoders(choice: DecoderChoice) -> VideoTried {
    let decoders = Decoders::untried(choice, "ffmpeg".into(), TIME_MAX);
    let tried = |encoding| (encoding, decoders.try_video(encoding));
    thread::scope(|scope| {
        let av1 = scope.spawn(|| tried(Encoding::Av1));
        let h265 = tried(Encoding::H265);
        [h265, av1.join().unwrap_or_else(|_| (Encoding::Av1, Err("the trial broke off".into())))]
    })
}
