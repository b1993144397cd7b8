//! Tries the decoders of the platform, for `mez doctor`.

use std::path::Path;
use std::thread;
use std::time::Duration;

use mez_core::frame::Encoding;

use crate::decoders::trial::{Tried, try_kind};
use crate::decoders::{DecoderChoice, Decoders, Kind, VideoTimes};

/// The longest time for one decoder. All together stay within the time limit of `mez doctor`.
const TIME_MAX: Duration = Duration::from_secs(8);

/// The result of trying a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderTried {
    /// The decoder.
    pub kind: Kind,
    /// Its times, or why it does not work.
    pub works: Result<DecoderTimes, String>,
}

/// The times of a decoder for pictures of 1280×720.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecoderTimes {
    /// Time from its start to the first picture.
    pub start: Duration,
    /// Time for the median picture.
    pub picture: Duration,
    /// The library's time for the median picture of the same stream.
    pub library: Duration,
}

impl DecoderTried {
    /// Whether a broker with this choice would use the decoder, if no earlier one is used.
    #[must_use]
    pub fn is_for(&self, choice: DecoderChoice) -> bool {
        let Ok(times) = &self.works else { return false };
        choice.kinds().contains(&self.kind)
            && (choice != DecoderChoice::Auto || times.picture < times.library)
    }
}

/// Tries all decoders in turn. Blocks for some seconds per hanging decoder.
#[must_use]
pub fn try_decoders() -> Vec<DecoderTried> {
    let tried = |kind| {
        let works = try_kind(kind, Path::new("ffmpeg"), TIME_MAX);
        let times = |Tried { start, picture, library, .. }| DecoderTimes { start, picture, library };
        DecoderTried { kind, works: works.map(times) }
    };
    Kind::ALL.into_iter().map(tried).collect()
}

/// A broker's decoders of H.265 and AV1, or why there is none.
pub type VideoTried = [(Encoding, Result<VideoTimes, String>); 2];

/// Tries the decoders of H.265 and AV1 of a broker with this choice, both at the same time. Blocks.
pub fn try_video_decoders(choice: DecoderChoice) -> VideoTried {
    let decoders = Decoders::untried(choice, "ffmpeg".into(), TIME_MAX);
    let tried = |encoding| (encoding, decoders.try_video(encoding));
    thread::scope(|scope| {
        let av1 = scope.spawn(|| tried(Encoding::Av1));
        let h265 = tried(Encoding::H265);
        [h265, av1.join().unwrap_or_else(|_| (Encoding::Av1, Err("the trial was interrupted".into())))]
    })
}
