//! What a probe finds: the version of `ffmpeg`, and the video stream of a source.

use mez_core::frame::Encoding;

/// The version of the installed `ffmpeg`, as far as the command line depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FfmpegVersion(u32, u32);

impl FfmpegVersion {
    /// The version of a build between releases, which has no number. It counts as newer than every release.
    pub(super) const NEWEST: Self = Self(u32::MAX, 0);

    /// Parses the first line of `ffmpeg -version`.
    pub(crate) fn parse(text: &str) -> Self {
        let word = text.strip_prefix("ffmpeg version ").unwrap_or_default();
        let word = word.split_whitespace().next().unwrap_or_default();
        let mut numbers = word.trim_start_matches('n').split(|c: char| !c.is_ascii_digit()).map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Self(major, minor),
            _ => Self::NEWEST,
        }
    }

    /// Whether a playlist may contain options for opening its entries.
    pub(super) fn has_concat_options(self) -> bool {
        self >= Self(5, 0)
    }

    pub(crate) fn has_fps_mode(self) -> bool {
        self >= Self(5, 1)
    }
}

/// The video stream of a source.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stream {
    /// The stream's number in the source.
    pub(super) index: u32,
    pub(super) codec: String,
    pub(super) width: u32,
    pub(super) height: u32,
    /// `None`: a live source that states no rate.
    pub(super) frames_per_second: Option<f64>,
    /// True if the stream is JPEG that can pass unchanged.
    pub(super) passthrough: bool,
    /// The encoding, if the coded pictures can pass unchanged, as far as a probe can tell.
    pub(super) packets: Option<Encoding>,
    /// If a codec could pass but this stream cannot: the reason, and what to do.
    pub(super) unfit: Option<String>,
    /// True if frames come in real time; false for a recording, which is paced.
    pub(super) live: bool,
    /// True for an image file: a recording of one frame.
    pub(super) still: bool,
}
