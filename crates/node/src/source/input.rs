//! What a probe finds: the version of `ffmpeg`, and the video stream of a source.

use mez_core::frame::Encoding;

/// Version of the installed `ffmpeg`, as far as its command line depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FfmpegVersion(u32, u32);

impl FfmpegVersion {
    /// The version of a build between releases, which states no number. It is newer than any release that matters here.
    pub(super) const NEWEST: Self = Self(u32::MAX, 0);

    /// Reads the first line of `ffmpeg -version`.
    pub(crate) fn parse(text: &str) -> Self {
        let word = text.strip_prefix("ffmpeg version ").unwrap_or_default();
        let word = word.split_whitespace().next().unwrap_or_default();
        let mut numbers = word.trim_start_matches('n').split(|c: char| !c.is_ascii_digit()).map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Self(major, minor),
            _ => Self::NEWEST,
        }
    }

    /// Whether a play list may say how an entry is opened.
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
    /// Its number in the source.
    pub(super) index: u32,
    pub(super) codec: String,
    pub(super) width: u32,
    pub(super) height: u32,
    /// `None` where a live source states none.
    pub(super) frames_per_second: Option<f64>,
    /// True if it is JPEG that can go on as it is.
    pub(super) passthrough: bool,
    /// Its encoding, if its pictures can go on as they are coded, as far as is known.
    pub(super) packets: Option<Encoding>,
    /// Why pictures of such a codec cannot go on, and what to do.
    pub(super) unfit: Option<String>,
    /// True if it comes when it comes; false if it is a recording, to be paced.
    pub(super) live: bool,
    /// True for an image file: a recording of one frame.
    pub(super) still: bool,
}
