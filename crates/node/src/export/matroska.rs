//! Writes the minimum of Matroska (RFC 9559) that passes pictures with their capture times to ffmpeg through a pipe.
//!
//! Plain Motion JPEG and plain H.264 contain no times. The stream has one element of each
//! kind, and one cluster per image. Sizes that are not known in advance are marked as unknown.

use std::time::Duration;

use super::captions::Caption;

/// Nanoseconds per unit of the stream's times. One microsecond is finer than any player shows.
const TICK_NANOS: u64 = 1_000;
/// Marks an element that ends with the file.
const SIZE_UNKNOWN: [u8; 8] = [0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];

/// Element IDs, as listed in the specification.
mod id {
    pub(super) const EBML: u32 = 0x1A45_DFA3;
    pub(super) const READ_VERSION: u32 = 0x42F7;
    pub(super) const DOC_TYPE: u32 = 0x4282;
    pub(super) const DOC_TYPE_VERSION: u32 = 0x4287;
    pub(super) const DOC_TYPE_READ_VERSION: u32 = 0x4285;
    pub(super) const SEGMENT: u32 = 0x1853_8067;
    pub(super) const INFO: u32 = 0x1549_A966;
    pub(super) const TIMESTAMP_SCALE: u32 = 0x2A_D7B1;
    pub(super) const MUXING_APP: u32 = 0x4D80;
    pub(super) const WRITING_APP: u32 = 0x5741;
    pub(super) const TRACKS: u32 = 0x1654_AE6B;
    pub(super) const TRACK_ENTRY: u32 = 0xAE;
    pub(super) const TRACK_NUMBER: u32 = 0xD7;
    pub(super) const TRACK_UID: u32 = 0x73C5;
    pub(super) const TRACK_TYPE: u32 = 0x83;
    pub(super) const CODEC_ID: u32 = 0x86;
    pub(super) const CODEC_PRIVATE: u32 = 0x63A2;
    pub(super) const VIDEO: u32 = 0xE0;
    pub(super) const PIXEL_WIDTH: u32 = 0xB0;
    pub(super) const PIXEL_HEIGHT: u32 = 0xBA;
    pub(super) const CLUSTER: u32 = 0x1F43_B675;
    pub(super) const TIMESTAMP: u32 = 0xE7;
    pub(super) const BLOCK_GROUP: u32 = 0xA0;
    pub(super) const BLOCK: u32 = 0xA1;
    pub(super) const BLOCK_DURATION: u32 = 0x9B;
}

/// The encoding of the pictures.
pub(super) enum Pictures {
    Jpeg,
    /// With the decoder configuration.
    H264(Vec<u8>),
    /// With its parameter sets, after start codes.
    H265(Vec<u8>),
    /// With its sequence header.
    Av1(Vec<u8>),
}

/// The bytes before the first picture. With `captions`, there is a second track for subtitles.
pub(super) fn head(pictures: &Pictures, (width, height): (u32, u32), captions: bool) -> Vec<u8> {
    let ebml = [
        number(id::READ_VERSION, 1),
        element(id::DOC_TYPE, b"matroska"),
        number(id::DOC_TYPE_VERSION, 4),
        number(id::DOC_TYPE_READ_VERSION, 2),
    ];
    let info = [
        number(id::TIMESTAMP_SCALE, TICK_NANOS),
        element(id::MUXING_APP, b"mez"),
        element(id::WRITING_APP, b"mez"),
    ];
    let video = [number(id::PIXEL_WIDTH, width.into()), number(id::PIXEL_HEIGHT, height.into())];
    let codec = match pictures {
        Pictures::Jpeg => element(id::CODEC_ID, b"V_MJPEG"),
        Pictures::H264(description) => {
            [element(id::CODEC_ID, b"V_MPEG4/ISO/AVC"), element(id::CODEC_PRIVATE, description)].concat()
        }
        // Not in Matroska's form: ffmpeg converts the parameter sets to it.
        Pictures::H265(sets) => {
            [element(id::CODEC_ID, b"V_MPEGH/ISO/HEVC"), element(id::CODEC_PRIVATE, sets)].concat()
        }
        Pictures::Av1(sequence) => {
            [element(id::CODEC_ID, b"V_AV1"), element(id::CODEC_PRIVATE, sequence)].concat()
        }
    };
    let track = [
        number(id::TRACK_NUMBER, 1),
        number(id::TRACK_UID, 1),
        number(id::TRACK_TYPE, 1),
        codec,
        element(id::VIDEO, &video.concat()),
    ];
    let mut out = element(id::EBML, &ebml.concat());
    put_id(&mut out, id::SEGMENT);
    out.extend_from_slice(&SIZE_UNKNOWN);
    out.extend(element(id::INFO, &info.concat()));
    let mut tracks = element(id::TRACK_ENTRY, &track.concat());
    if captions {
        let track = [
            number(id::TRACK_NUMBER, 2),
            number(id::TRACK_UID, 2),
            number(id::TRACK_TYPE, 0x11),
            element(id::CODEC_ID, b"S_TEXT/UTF8"),
        ];
        tracks.extend(element(id::TRACK_ENTRY, &track.concat()));
    }
    out.extend(element(id::TRACKS, &tracks));
    out
}

/// The header of an image of `bytes` bytes at time `at`. `shown` is its duration if no image follows.
pub(super) fn image_head(at: Duration, shown: Duration, bytes: usize) -> Vec<u8> {
    block_head(1, (at, shown), bytes)
}

/// The bytes of a subtitle.
pub(super) fn caption(Caption { at, shown, text }: &Caption) -> Vec<u8> {
    let mut out = block_head(2, (*at, *shown), text.len());
    out.extend_from_slice(text.as_bytes());
    out
}

fn block_head(track: u8, (at, shown): (Duration, Duration), bytes: usize) -> Vec<u8> {
    let time = number(id::TIMESTAMP, ticks(at));
    let duration = number(id::BLOCK_DURATION, ticks(shown));
    // The track number, the time within the cluster, and no flags.
    let block = [0x80 | track, 0, 0, 0];
    let mut block_head = Vec::new();
    put_id(&mut block_head, id::BLOCK);
    put_size(&mut block_head, block.len() + bytes);
    block_head.extend_from_slice(&block);
    let mut group_head = Vec::new();
    put_id(&mut group_head, id::BLOCK_GROUP);
    put_size(&mut group_head, duration.len() + block_head.len() + bytes);
    group_head.extend(duration);
    group_head.extend(block_head);
    let mut out = Vec::new();
    put_id(&mut out, id::CLUSTER);
    put_size(&mut out, time.len() + group_head.len() + bytes);
    out.extend(time);
    out.extend(group_head);
    out
}

fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn number(id: u32, value: u64) -> Vec<u8> {
    element(id, &value.to_be_bytes())
}

fn element(id: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 12);
    put_id(&mut out, id);
    put_size(&mut out, content.len());
    out.extend_from_slice(content);
    out
}

/// Writes an ID. It has no leading zero bytes, and encodes its own length.
fn put_id(out: &mut Vec<u8>, id: u32) {
    let bytes = id.to_be_bytes();
    out.extend_from_slice(&bytes[id.leading_zeros() as usize / 8..]);
}

/// Writes a size of eight bytes. The first byte only encodes this length.
fn put_size(out: &mut Vec<u8>, size: usize) {
    out.extend_from_slice(&(1 << 56 | size as u64).to_be_bytes());
}
