//! Command lines of ffmpeg that decode a stream from standard input to standard output. Pure functions.

use std::fmt;

use mez_core::frame::Encoding;

pub(super) use crate::source::FfmpegVersion as Version;

/// A decoder of ffmpeg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The decoder of a board's chip, such as a Raspberry Pi's.
    V4l2m2m,
    /// The decoder of an Intel or AMD graphics processor.
    Vaapi,
    /// The decoder of an NVIDIA graphics processor.
    Cuda,
    /// ffmpeg's own software decoder.
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

    /// A slice of only this kind.
    pub(super) fn alone(self) -> &'static [Self] {
        let at = Self::ALL.iter().position(|kind| *kind == self).unwrap_or_default();
        &Self::ALL[at..=at]
    }

    fn decoder(self, encoding: Encoding) -> Vec<String> {
        let codec = match encoding {
            Encoding::H265 => "hevc",
            Encoding::Av1 => "av1",
            _ => "h264",
        };
        // With the hardware's own format of pictures, ffmpeg cannot fall back to software.
        let hardware = |name: &str| {
            ["-hwaccel", name, "-hwaccel_output_format", name, "-c:v", codec].map(String::from).to_vec()
        };
        match self {
            Self::V4l2m2m => vec!["-c:v".into(), format!("{codec}_v4l2m2m")],
            Self::Vaapi => hardware("vaapi"),
            Self::Cuda => hardware("cuda"),
            // ffmpeg's own decoder of AV1 needs hardware. Without a name, ffmpeg takes the library that it was built with.
            Self::Ffmpeg if encoding == Encoding::Av1 => Vec::new(),
            Self::Ffmpeg => vec!["-c:v".into(), codec.into()],
        }
    }

    fn filter(self, encoding: Encoding) -> String {
        // The colour matrix and range of H.264 are known, and the same as the library's.
        let ours = if encoding.is_foreign() { "scale=out_color_matrix=bt601:out_range=full," } else { "" };
        match self {
            Self::V4l2m2m | Self::Ffmpeg => format!("{ours}format=yuv420p|yuvj420p"),
            Self::Vaapi | Self::Cuda => format!("hwdownload,format=nv12,{ours}format=yuv420p|yuvj420p"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The arguments of a child. It reads pictures in IVF, and writes each as YUV4MPEG2 before it needs the next.
pub(super) fn args(kind: Kind, version: Version, encoding: Encoding) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut args = words(&["-hide_banner", "-nostdin", "-v", "error"]);
    // ffmpeg must not read ahead to analyse the stream, nor hold back a picture, either for reordering or for threads.
    args.extend(words(&[
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
    ]));
    args.extend(kind.decoder(encoding));
    args.extend(words(&["-f", "ivf", "-i", "pipe:0", "-an", "-vf", &kind.filter(encoding)]));
    args.extend(words(&[if version.has_fps_mode() { "-fps_mode" } else { "-vsync" }, "passthrough"]));
    args.extend(words(&["-threads", "1", "-flush_packets", "1", "-f", "yuv4mpegpipe", "pipe:1"]));
    args
}
