//! Types of a source's interface: options, frames, events.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mez_core::broker::StreamPart;
use mez_core::frame::Encoding;

use super::error::SourceError;
use super::onvif::OnvifChoice;
use crate::decoders::Decoders;

/// How a source is to be read.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// Frames per second. A recording is played at this rate, every frame of it; a live source is thinned out
    /// evenly to it and never slowed down. Default `None`: the recording's own rate, or all that the camera gives.
    /// From 0.001 to 1000.
    pub fps: Option<f64>,
    /// Start a recording again when it ends. Default false. Refused for live sources.
    pub looped: bool,
    /// Size to ask a device for, in pixels. Default `None`: what the driver is set to. Without effect elsewhere.
    pub device_size: Option<(u32, u32)>,
    /// Whether the pictures of a source of H.264, H.265 or AV1 come as it coded them ([`SourceEvent::Packet`]), where that is possible: not with
    /// B-frames, not interlaced, not with [`SourceOptions::fps`] of a live source; H.265 and AV1 only where `decoders` decode them. Then a device that
    /// has H.264 is asked for it. Default true. If false, all frames are JPEG.
    pub packets: bool,
    /// What decodes the pictures of H.265 and AV1 that come as they were coded, where somebody needs others. Default: ffmpeg's decoders in software.
    pub decoders: Decoders,
    /// Where a network camera is asked for key frames, if its pictures come as it coded them. Default: the device service of ONVIF on the host of an
    /// RTSP source.
    pub onvif: OnvifChoice,
    /// JPEG quality of what has to be encoded, 1 to 100. Default 95. Without effect on Motion JPEG.
    pub jpeg_quality: u8,
    /// A source that has given no frame for so long is opened again; at its start it is given twice as long.
    /// Default 10 s.
    pub stalled_after: Duration,
    /// The program that reads. Default `ffmpeg`, found through `PATH`.
    pub ffmpeg: PathBuf,
    /// The program that looks. Default `ffprobe`, found through `PATH`.
    pub ffprobe: PathBuf,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            fps: None,
            looped: false,
            device_size: None,
            packets: true,
            decoders: Decoders::software(),
            onvif: OnvifChoice::Default,
            jpeg_quality: 95,
            stalled_after: Duration::from_secs(10),
            ffmpeg: "ffmpeg".into(),
            ffprobe: "ffprobe".into(),
        }
    }
}

/// One frame, as JPEG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFrame {
    /// The image. The memory behind it holds nothing else.
    pub jpeg: Bytes,
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// When it was captured; later than that of every frame before it. For a recording, when it was due. For a live
    /// source, when its first bytes arrived here, which is after the exposure by what the camera and its
    /// connection took.
    pub captured: Instant,
}

/// One picture as the source coded it: an access unit of H.264 or H.265, or a temporal unit of AV1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePacket {
    /// Its NAL units behind start codes (annex B), or its units of AV1. A key frame has its parameter sets in it.
    pub payload: Bytes,
    /// [`Encoding::H264`], [`Encoding::H265`] or [`Encoding::Av1`].
    pub encoding: Encoding,
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// What it needs, and who needs it. It never needs a picture that did not come: after a loss, the next packet is a key frame.
    pub part: StreamPart,
    /// When it was captured: see [`SourceFrame::captured`].
    pub captured: Instant,
}

/// How badly a key frame of a source's video is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyFrameNeed {
    /// With one, pictures could go on as they are coded. Until then they are decoded.
    #[default]
    Helps,
    /// Before there is one, nothing can be decoded.
    Needed,
}

/// What a source has to say.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SourceEvent {
    /// A frame.
    Frame(SourceFrame),
    /// A picture as the source coded it.
    Packet(SourcePacket),
    /// Frames before the next event were lost here: due and not ready in time, damaged, or not taken in time by the
    /// caller. Frames left out because of [`SourceOptions::fps`] are not among them.
    Skipped {
        /// How many.
        count: u64,
    },
    /// The source gave up for now and is opened again.
    Restarting {
        /// What happened.
        why: String,
        /// When it is tried again, from now.
        after: Duration,
    },
    /// The source cannot go on. Told once; [`SourceEvent::Ended`] follows.
    Failed(SourceError),
    /// There are no more frames. Told again on every further call.
    Ended,
}

/// What is known of a source once it has answered.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SourceInfo {
    /// The codec of its video, as ffmpeg names it.
    pub codec: String,
    /// Pixels in a row, as stated by the source; frames carry their own size.
    pub width: u32,
    /// Rows, as stated by the source.
    pub height: u32,
    /// Frames per second: for a recording, at which it is played; for a live source, as stated by it, if it does.
    pub frames_per_second: Option<f64>,
    /// True if its JPEG images, or its H.264 pictures, go through untouched.
    pub passthrough: bool,
    /// True if frames come when they come; false if it is a recording, which ends.
    pub live: bool,
}

/// What the reading task tells on the side.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) info: Option<SourceInfo>,
    pub(super) child_pid: Option<u32>,
}
