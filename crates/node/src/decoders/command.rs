//! Command lines of ffmpeg that decode a stream from standard input to standard output. It is pure.

use std::fmt;

pub(super) use crate::source::FfmpegVersion as Version;

/// A decoder that ffmpeg has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// That of a board's chip, such as a Raspberry Pi's.
    V4l2m2m,
    /// That of an Intel or AMD graphics processor.
    Vaapi,
    /// That of an NVIDIA graphics processor.
    Cuda,
    /// ffmpeg's own, which needs no hardware.
    Ffmpeg,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::V4l2m2m, Self::Vaapi, Self::Cuda, Self::Ffmpeg];
    pub(super) const HARDWARE: [Self; 3] = [Self::V4l2m2m, Self::Vaapi, Self::Cuda];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V4l2m2m => "v4l2m2m",
            Self::Vaapi => "vaapi",
            Self::Cuda => "cuda",
            Self::Ffmpeg => "ffmpeg",
        }
    }

    /// A list of it alone.
    pub(super) fn alone(self) -> &'static [Self] {
        let at = Self::ALL.iter().position(|kind| *kind == self).unwrap_or_default();
        &Self::ALL[at..=at]
    }

    fn decoder(self) -> &'static [&'static str] {
        match self {
            Self::V4l2m2m => &["-c:v", "h264_v4l2m2m"],
            // With its own format of pictures, ffmpeg refuses to decode in software in its place.
            Self::Vaapi => &["-hwaccel", "vaapi", "-hwaccel_output_format", "vaapi", "-c:v", "h264"],
            Self::Cuda => &["-hwaccel", "cuda", "-hwaccel_output_format", "cuda", "-c:v", "h264"],
            Self::Ffmpeg => &["-c:v", "h264"],
        }
    }

    fn filter(self) -> &'static str {
        match self {
            Self::V4l2m2m | Self::Ffmpeg => "format=yuv420p|yuvj420p",
            Self::Vaapi | Self::Cuda => "hwdownload,format=nv12,format=yuv420p|yuvj420p",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Pictures in IVF come in, and each goes out as YUV4MPEG2 before the next is needed.
pub(super) fn args(kind: Kind, version: Version) -> Vec<&'static str> {
    let mut args = vec!["-hide_banner", "-nostdin", "-v", "error"];
    // Nothing is read ahead to find out about the stream, and no picture is kept back: neither to put pictures in order nor for threads.
    args.extend([
        "-probesize",
        "32",
        "-analyzeduration",
        "1",
        "-fpsprobesize",
        "0",
        "-flags",
        "low_delay",
        "-threads",
        "1",
    ]);
    args.extend(kind.decoder());
    args.extend(["-f", "ivf", "-i", "pipe:0", "-an", "-vf", kind.filter()]);
    args.extend([if version.has_fps_mode() { "-fps_mode" } else { "-vsync" }, "passthrough"]);
    args.extend(["-threads", "1", "-flush_packets", "1", "-f", "yuv4mpegpipe", "pipe:1"]);
    args
}
