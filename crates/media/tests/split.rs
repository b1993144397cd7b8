//! A stream of images is cut at the images' ends, however its bytes arrive.

mod common;

use common::{jpeg, with_segment};
use mez_media::jpeg::{JpegFrame, Splitter, SplitterCounts};
use proptest::prelude::*;

fn split(splitter: &mut Splitter, stream: &[u8], chunk_bytes: usize) -> Vec<JpegFrame> {
    let mut frames = Vec::new();
    for mut chunk in stream.chunks(chunk_bytes) {
        while let Some(frame) = splitter.next_frame(&mut chunk) {
            frames.push(frame);
        }
        assert!(chunk.is_empty());
    }
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Frames of any size, with padding and thumbnails, in chunks of any size, are found byte for byte.
    #[test]
    fn frames_come_out_as_they_went_in(
        frames in prop::collection::vec((1u32..60, 1u32..60, any::<bool>(), 0usize..40), 1..8),
        chunk_bytes in 1usize..5000,
        padding in prop::sample::select(vec![0u8, 0x20, 0xFF]),
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for &(width, height, thumbnail, padding_len) in &frames {
            let mut frame = jpeg(width, height, width);
            if thumbnail {
                frame = with_segment(&frame, 0xE1, &jpeg(9, 7, 1));
                frame = with_segment(&frame, 0xFE, &[0xFF, 0xD9, 0xFF, 0xD8]);
            }
            stream.extend_from_slice(&frame);
            stream.extend(vec![padding; padding_len]);
            expected.push(frame);
        }
        let mut splitter = Splitter::default();
        let found = split(&mut splitter, &stream, chunk_bytes);
        splitter.finish();
        prop_assert_eq!(found.len(), expected.len());
        for ((found, expected), &(width, height, ..)) in found.iter().zip(&expected).zip(&frames) {
            prop_assert_eq!(&found.jpeg[..], &expected[..]);
            prop_assert_eq!((found.info.width, found.info.height), (width, height));
        }
        prop_assert_eq!(splitter.counts().frames_broken, 0);
    }

    /// After any damage the splitter finds frames again: at most a few frames after the damage are lost.
    #[test]
    fn damage_costs_its_own_frame_and_at_most_the_bytes_that_it_claims(
        at in 0.0f64..1.0,
        noise in prop::collection::vec(any::<u8>(), 1..50),
        chunk_bytes in 1usize..5000,
    ) {
        let frames: Vec<Vec<u8>> = (0..90).map(|seed| jpeg(50, 40, seed)).collect();
        let at = (at * frames[0].len() as f64) as usize;
        let mut stream: Vec<u8> = frames.concat();
        stream.splice(at..at, noise);
        let mut splitter = Splitter::default();
        let found = split(&mut splitter, &stream, chunk_bytes);
        // A damaged length can cover up to 64 KiB, which is most of this stream, but not its end.
        let last = &found.last().expect("the end of the stream is whole").jpeg;
        prop_assert_eq!(&last[..], &frames.last().unwrap()[..]);
    }
}

/// A camera that breaks off in a frame and starts a new one loses only that frame.
#[test]
fn a_frame_that_is_cut_off_gives_way_to_the_next() {
    let [first, second, third] = [1, 2, 3].map(|seed| jpeg(64, 64, seed));
    let mut stream = first.clone();
    stream.extend_from_slice(&second[..second.len() - 100]);
    stream.extend_from_slice(&third);
    for chunk_bytes in [1, 7, 4096, usize::MAX] {
        let mut splitter = Splitter::default();
        let found = split(&mut splitter, &stream, chunk_bytes);
        assert_eq!(
            found.iter().map(|frame| frame.jpeg.to_vec()).collect::<Vec<_>>(),
            [first.clone(), third.clone()]
        );
        assert_eq!(splitter.counts(), SplitterCounts { frames_broken: 1, bytes_between: 0 });
    }
}

#[test]
fn the_end_of_the_stream_is_the_end_of_an_unfinished_frame() {
    let frame = jpeg(64, 64, 1);
    let mut splitter = Splitter::default();
    assert!(split(&mut splitter, &frame[..frame.len() - 1], 999).is_empty());
    assert!(splitter.is_inside_frame());
    splitter.finish();
    assert!(!splitter.is_inside_frame());
    assert_eq!(splitter.counts().frames_broken, 1);
    // The missing byte comes too late.
    assert!(split(&mut splitter, &[0xD9], 1).is_empty());
    assert_eq!(split(&mut splitter, &frame, 999).len(), 1);
}

/// A frame that never ends cannot take more memory than the limit. The stream continues after it.
#[test]
fn a_frame_above_the_limit_is_dropped() {
    let frame = jpeg(64, 64, 1);
    let mut endless = frame[..frame.len() - 2].to_vec();
    endless.extend(vec![0x55; 100_000]);
    let mut stream = endless;
    stream.extend_from_slice(&frame);
    let mut splitter = Splitter::new(frame.len());
    let found = split(&mut splitter, &stream, 1000);
    assert_eq!(found.len(), 1);
    assert_eq!(&found[0].jpeg[..], &frame[..], "a frame of exactly the limit passes");
    assert_eq!(splitter.counts().frames_broken, 1);
    assert!(splitter.counts().bytes_between > 90_000);
}

#[test]
fn a_stream_of_something_else_gives_nothing() {
    let mut splitter = Splitter::default();
    let text = "HTTP/1.1 404 Not Found\r\n\r\n".repeat(1000);
    assert!(split(&mut splitter, text.as_bytes(), 100).is_empty());
    assert_eq!(splitter.counts(), SplitterCounts { frames_broken: 0, bytes_between: text.len() as u64 });
}
