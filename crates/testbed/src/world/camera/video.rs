//! Models a source that gives pictures of its own video, and the camera's decoder for them, without any pixels.

use std::time::Duration;

use mez_core::ancestors::{parent, with_ancestors};
use mez_core::broker::StreamPart;
use mez_core::broker::camera::Transform;
use mez_core::frame::FrameId;
use mez_core::log::LogReader;

use crate::random::Random;
use crate::time::ms;
use crate::world::spec::SourceVideo;

/// How long the decoder takes for a picture.
const DECODING: Duration = ms(2);
/// The most pictures that are decoded at once for one frame.
const DECODED_MAX: usize = 20;

/// The state of the source and of the decoder.
#[derive(Default)]
pub(super) struct VideoState {
    /// Pictures since the last key frame, which counts too.
    since_key: u64,
    /// A key frame was requested.
    asked: bool,
    /// A picture was lost, and no key frame has come since.
    lost: bool,
    /// The picture that was decoded last, and its reference. Other pictures may refer to either.
    held: [Option<FrameId>; 2],
}

/// The result of a decoder.
pub(super) enum Decoding {
    /// The frame is decoded, after this time.
    Done(Duration),
    /// Some earlier frames are decoded, after the first time. The rest needs the second time.
    NotYet(Duration, Duration),
    /// The log lacks a frame that is needed.
    Lacking,
}

impl VideoState {
    /// The kind of the next picture. `None`: the picture is lost, or refers to a lost one.
    pub(super) fn next_part(&mut self, video: &SourceVideo, random: &mut Random) -> Option<StreamPart> {
        self.lost |= video.lost_once_in > 0 && random.one_in(video.lost_once_in);
        let is_key = self.since_key == 0 || self.since_key >= video.key_every || self.asked && video.answers;
        if is_key {
            (self.since_key, self.asked, self.lost) = (1, false, false);
            return Some(StreamPart::Key);
        }
        self.since_key += 1;
        let is_needed = video.spare_once_in == 0 || !random.one_in(video.spare_once_in);
        (!self.lost).then_some(StreamPart::Following { is_needed })
    }

    /// The broker requests a key frame.
    pub(super) fn ask(&mut self) {
        self.asked = true;
    }

    /// Decodes a frame for the codec, with the frames that it needs.
    pub(super) fn decode(&mut self, transform: &Transform, log: &LogReader) -> Decoding {
        if !transform.frame.meta.encoding.is_chained() {
            return Decoding::Done(ms(0));
        }
        let holds = |id: FrameId| self.held.contains(&Some(id));
        let Some(frames) = with_ancestors(log, &transform.frame, holds) else { return Decoding::Lacking };
        let now = &frames[..frames.len().min(DECODED_MAX)];
        if let Some(last) = now.last() {
            self.held = [Some(last.meta.id), parent(&last.meta)];
        }
        let (takes, rest) = (DECODING * now.len() as u32, DECODING * (frames.len() - now.len()) as u32);
        if rest > ms(0) { Decoding::NotYet(takes, rest) } else { Decoding::Done(takes) }
    }

    /// The decoder has lost its frames.
    pub(super) fn fail(&mut self) {
        self.held = [None; 2];
    }
}
