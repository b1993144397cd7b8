//! Recordings of every codec, size and container become JPEG, in order and at their times.

use std::time::Duration;

use mez_media::jpeg::{Chroma, probe};
use mez_node::source::{Source, SourceEvent, SourceOptions, SourceSpec};

use crate::support::{Video, at, next, next_frame, pixels, read_to_end, recognise};

const MJPEG: [&str; 6] = ["-c:v", "mjpeg", "-pix_fmt", "yuvj422p", "-q:v", "3"];

/// Delivered bytes are those of the file, frame by frame. A frame may be missing only if it was counted as skipped.
#[tokio::test]
async fn motion_jpeg_goes_through_byte_for_byte() {
    let video = Video::new("x.avi", "64x48", 40, &MJPEG);
    let packets = video.packets();
    assert_eq!(packets.len(), 40);
    let mut source = Source::spawn(video.spec(), at(40.0)).await.unwrap();
    let info = source.info().unwrap();
    assert_eq!((info.codec.as_str(), info.width, info.height), ("mjpeg", 64, 48));
    assert_eq!((info.passthrough, info.live, info.frames_per_second), (true, false, Some(40.0)));
    let (frames, skipped) = read_to_end(&mut source).await;
    let mut rest = packets.iter();
    for frame in &frames {
        assert!(
            rest.any(|packet| packet[..] == frame.jpeg[..]),
            "a frame is not that of the file, or out of order"
        );
        assert_eq!((frame.width, frame.height), (64, 48));
    }
    assert!(
        !frames.is_empty() && frames.len() as u64 + skipped >= 40,
        "{} and {skipped} of 40",
        frames.len()
    );
    assert!(matches!(next(&mut source).await, SourceEvent::Ended), "the end stays the end");
}

/// Capture times are those of the schedule: multiples of the interval, independent of the load.
#[tokio::test]
async fn frames_are_due_on_a_grid() {
    let video = Video::new("x.avi", "64x48", 30, &MJPEG);
    let mut source = Source::spawn(video.spec(), SourceOptions::default()).await.unwrap();
    assert_eq!(source.info().unwrap().frames_per_second, Some(20.0), "the rate of the file");
    let (frames, _) = read_to_end(&mut source).await;
    let start = frames[0].captured;
    let mut last_slot = None;
    for frame in &frames {
        let slots = (frame.captured - start).as_secs_f64() * 20.0;
        assert!((slots - slots.round()).abs() < 1e-3, "slot {slots}");
        assert!(last_slot < Some(slots.round() as u64));
        last_slot = Some(slots.round() as u64);
    }
}

/// Other codecs become JPEG of what ffmpeg decodes, in order, at their own size.
#[tokio::test]
async fn other_codecs_are_encoded() {
    for (name, size, args) in [
        ("h264.mp4", (64, 48), &["-c:v", "libx264", "-pix_fmt", "yuv420p", "-g", "8", "-bf", "2"][..]),
        ("mpeg4.avi", (64, 48), &["-c:v", "mpeg4", "-q:v", "2"]),
        ("odd-both.avi", (67, 45), &["-c:v", "mpeg4", "-q:v", "2"]),
        ("odd-width.mkv", (33, 48), &["-c:v", "ffv1", "-pix_fmt", "yuv444p"]),
        ("odd-height.mkv", (48, 33), &["-c:v", "ffv1", "-pix_fmt", "yuv420p"]),
        ("tiny.mkv", (1, 1), &["-c:v", "ffv1", "-pix_fmt", "yuv444p"]),
        ("grey.mkv", (40, 30), &["-c:v", "ffv1", "-pix_fmt", "gray"]),
        ("ten-bits.mkv", (40, 30), &["-c:v", "ffv1", "-pix_fmt", "yuv420p10le"]),
        ("rgb-jpeg.mkv", (40, 30), &["-c:v", "png", "-pix_fmt", "rgb24"]),
        // Interlaced Motion JPEG is decoded, since half a picture is no frame.
        (
            "fields.avi",
            (64, 48),
            &["-c:v", "mjpeg", "-pix_fmt", "yuvj420p", "-q:v", "2", "-field_order", "tt"],
        ),
    ] {
        let (width, height) = size;
        let video = Video::new(name, &format!("{width}x{height}"), 16, args);
        let references = video.decoded(width, height);
        assert_eq!(references.len(), 16, "{name}");
        let mut source = Source::spawn(video.spec(), at(30.0)).await.unwrap();
        let (frames, skipped) = read_to_end(&mut source).await;
        assert!(
            !frames.is_empty() && frames.len() as u64 + skipped >= 16,
            "{name}: {} and {skipped}",
            frames.len()
        );
        let mut last = None;
        for frame in &frames {
            let info = probe(&frame.jpeg).unwrap();
            assert_eq!((info.width, info.height), (width, height), "{name}");
            assert!(name == "fields.avi" || info.chroma == Chroma::Yuv420, "{name}: {:?}", info.chroma);
            let (which, difference) = recognise(&pixels(&frame.jpeg), &references);
            // A single pixel has no neighbours that average out rounding.
            assert!(
                difference < 4.0 || name == "tiny.mkv" && difference < 10.0,
                "{name}: frame {which} differs by {difference} grey levels"
            );
            if (width, height) != (1, 1) {
                assert!(last < Some(which), "{name}: {which} after {last:?}");
            }
            last = Some(which);
        }
    }
}

/// HD video has another colour matrix and range than JPEG; both are converted.
#[tokio::test]
async fn colours_survive_matrix_and_range() {
    for (colour, bgr) in [
        ("red", [0, 0, 254]),
        ("lime", [0, 255, 0]),
        ("blue", [254, 0, 0]),
        ("white", [255; 3]),
        ("black", [0; 3]),
    ] {
        let filter =
            format!("drawbox=color={colour}:t=fill,scale=out_color_matrix=bt709:out_range=tv,format=yuv420p");
        let video = Video::new(
            "hd.mp4",
            "64x64",
            2,
            &[
                "-vf",
                &filter,
                "-colorspace",
                "bt709",
                "-color_range",
                "tv",
                "-color_primaries",
                "bt709",
                "-color_trc",
                "bt709",
                "-c:v",
                "libx264",
                "-qp",
                "1",
            ],
        );
        let mut source = Source::spawn(video.spec(), at(20.0)).await.unwrap();
        let image = pixels(&next_frame(&mut source).await.jpeg);
        let pixel = &image.data()[..3];
        assert!(
            pixel.iter().zip(bgr).all(|(&a, b)| i32::abs(i32::from(a) - b) <= 6),
            "{colour} became {pixel:?}"
        );
    }
}

/// A phone's upright video is stored sideways with a rotation: the frames are upright.
#[tokio::test]
async fn a_turned_video_is_turned() {
    let video = Video::new("x.mp4", "64x48", 4, &["-c:v", "libx264", "-pix_fmt", "yuv420p", "-bf", "0"]);
    let turned = video.folder.path().join("turned.mp4");
    crate::support::ffmpeg(&[
        "-i",
        video.text(),
        "-c",
        "copy",
        "-metadata:s:v:0",
        "rotate=90",
        turned.to_str().unwrap(),
    ]);
    let mut source = Source::spawn(SourceSpec::File(turned), SourceOptions::default()).await.unwrap();
    let frame = next_frame(&mut source).await;
    assert_eq!((frame.width, frame.height), (48, 64));
}

/// A loop starts again with the first frame, without a missing or repeated frame.
#[tokio::test]
async fn a_loop_goes_round() {
    for (name, args) in [
        ("x.avi", &MJPEG[..]),
        ("x.mp4", &["-c:v", "libx264", "-pix_fmt", "yuv420p", "-g", "5", "-bf", "2"]),
        ("still.png", &[]),
        ("still.jpg", &["-pix_fmt", "yuvj420p"]),
    ] {
        let count = if name.starts_with("still") { 1 } else { 8 };
        let video = Video::new(name, "64x48", count, args);
        let references = video.decoded(64, 48);
        let mut source =
            Source::spawn(video.spec(), SourceOptions { looped: true, ..at(25.0) }).await.unwrap();
        next_frame(&mut source).await;
        let child = source.child_pid();
        let (mut last, mut skipped, mut seen) = (None, 0, 0);
        while seen < 20 {
            match next(&mut source).await {
                SourceEvent::Frame(frame) => {
                    let (which, _) = recognise(&pixels(&frame.jpeg), &references);
                    if let Some(last) = last
                        && skipped == 0
                    {
                        assert_eq!(which, (last + 1) % references.len(), "{name}");
                    }
                    (last, skipped) = (Some(which), 0);
                    seen += 1;
                }
                SourceEvent::Skipped { count } => skipped += count,
                other => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(source.child_pid(), child, "{name}: one child goes round by itself");
    }
}

/// A slow caller gets the newest frames instead of the oldest, and the number of missed ones.
#[tokio::test]
async fn a_slow_caller_misses_frames_and_nothing_queues() {
    let video = Video::new("x.avi", "64x48", 60, &MJPEG);
    let packets = video.packets();
    let mut source = Source::spawn(video.spec(), at(60.0)).await.unwrap();
    let first = next_frame(&mut source).await;
    assert_eq!(first.jpeg[..], packets[0][..]);
    // Longer than until the last frame is due.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (frames, skipped) = read_to_end(&mut source).await;
    assert!((1..=3).contains(&frames.len()), "{} frames waited", frames.len());
    assert_eq!(frames.last().unwrap().jpeg[..], packets[59][..], "the newest is kept");
    assert!(frames.len() as u64 + skipped >= 59, "{} and {skipped}", frames.len());
}

/// The rest of a truncated file is delivered, then the source ends.
#[tokio::test]
async fn a_file_that_is_cut_off_ends_early() {
    for (name, args) in
        [("x.avi", &MJPEG[..]), ("x.mkv", &["-c:v", "libx264", "-pix_fmt", "yuv420p", "-g", "5"])]
    {
        let video = Video::new(name, "64x48", 40, args);
        let references = video.decoded(64, 48);
        let mut source = Source::spawn(SourceSpec::File(video.cut(0.6)), at(40.0)).await.unwrap();
        let (frames, _) = read_to_end(&mut source).await;
        assert!((2..40).contains(&frames.len()), "{name}: {}", frames.len());
        for frame in frames {
            let (_, difference) = recognise(&pixels(&frame.jpeg), &references);
            assert!(difference < 4.0, "{name}: {difference}");
        }
    }
}
