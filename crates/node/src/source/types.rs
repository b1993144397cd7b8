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
    /// Frames per second, from 0.001 to 1000. A recording is played at this rate, with all its frames. A live source is thinned
    /// out evenly to this rate, and never slowed down. Default `None`: the recording's own rate, or every frame of the camera.
    pub fps: Option<f64>,
    /// Start a recording again when it ends. Default false. Refused for live sources.
    pub looped: bool,
    /// The size to ask a device for, in pixels. Default `None`: the driver's setting. Has no effect on other sources.
    pub device_size: Option<(u32, u32)>,
    /// Whether coded pictures of an H.264, H.265 or AV1 source come unchanged ([`SourceEvent::Packet`]), where possible. Not possible: B-frames,
    /// interlaced video, and a live source with [`SourceOptions::fps`]. H.265 and AV1 also need `decoders` that decode them. A device that has H.264
    /// is then asked for it. Default true. If false, all frames are JPEG.
    pub packets: bool,
    /// What decodes H.265 and AV1 pictures that come unchanged, for subscribers that need other pictures. Default: ffmpeg's software decoders.
    pub decoders: Decoders,
    /// Where a network camera with coded pictures is asked for key frames. Default: the ONVIF device service on the host of an RTSP source.
    pub onvif: OnvifChoice,
    /// JPEG quality of frames that are encoded here, 1 to 100. Default 95. Has no effect on Motion JPEG.
    pub jpeg_quality: u8,
    /// A source that gives no frame for this long is opened again; before its first frame it gets twice as long. Default 10 s.
    pub stalled_after: Duration,
    /// The program that reads frames. Default `ffmpeg`, found through `PATH`.
    pub ffmpeg: PathBuf,
    /// The program that probes sources. Default `ffprobe`, found through `PATH`.
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
    /// The image. The buffer holds nothing else.
    pub jpeg: Bytes,
    /// Width, in pixels.
    pub width: u32,
    /// Height, in pixels.
    pub height: u32,
    /// The capture time, later than that of every frame before. For a recording: when the frame was due. For a live source:
    /// when its first bytes arrived here, which is later than the exposure by the delay of the camera and its connection.
    pub captured: Instant,
}

/// One picture as the source coded it: an access unit of H.264 or H.265, or a temporal unit of AV1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePacket {
    /// The NAL units behind start codes (annex B), or the units of AV1. A key frame includes its parameter sets.
    pub payload: Bytes,
    /// [`Encoding::H264`], [`Encoding::H265`] or [`Encoding::Av1`].
    pub encoding: Encoding,
    /// Width, in pixels.
    pub width: u32,
    /// Height, in pixels.
    pub height: u32,
    /// Whether it needs other pictures, and whether others need it. It never needs a picture that did not
    /// come: after a loss, the next packet is a key frame.
    pub part: StreamPart,
    /// The capture time, as [`SourceFrame::captured`].
    pub captured: Instant,
}

/// How urgently a key frame of a source's video is needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyFrameNeed {
    /// A key frame lets coded pictures pass unchanged again. Until then they are decoded.
    #[default]
    Helps,
    /// Nothing can be decoded before the next key frame.
    Needed,
}

/// An event of a source.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SourceEvent {
    /// A frame.
    Frame(SourceFrame),
    /// A picture as the source coded it.
    Packet(SourcePacket),
    /// Frames before the next event were lost here: not ready when due, damaged, or not taken in time by
    /// the caller. Frames left out because of [`SourceOptions::fps`] are not counted.
    Skipped {
        /// How many.
        count: u64,
    },
    /// The source failed and is opened again.
    Restarting {
        /// What happened.
        why: String,
        /// The time until the next attempt.
        after: Duration,
    },
    /// The source cannot continue. Reported once; [`SourceEvent::Ended`] follows.
    Failed(SourceError),
    /// There are no more frames. Returned again by every further call.
    Ended,
}

/// What is known of a source once it has answered.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SourceInfo {
    /// The codec of the video, as ffmpeg names it.
    pub codec: String,
    /// Width in pixels, as stated by the source; frames carry their own size.
    pub width: u32,
    /// Height in pixels, as stated by the source.
    pub height: u32,
    /// Frames per second. For a recording: the rate at which it is played. For a live source: the rate that it states, if any.
    pub frames_per_second: Option<f64>,
    /// True if its JPEG images or coded pictures pass unchanged.
    pub passthrough: bool,
    /// True if frames come in real time; false for a recording, which ends.
    pub live: bool,
}

/// What the reading task tells beside events.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) info: Option<SourceInfo>,
    pub(super) child_pid: Option<u32>,
}
