//! Unreadable sources are refused with helpful messages.

use mez_node::source::{Source, SourceError, SourceEvent, SourceOptions, SourceSpec};

use crate::support::{Video, ffmpeg, next};

async fn refusal(spec: &str, options: SourceOptions) -> SourceError {
    match Source::spawn(SourceSpec::parse(spec).unwrap(), options).await {
        Ok(_) => panic!("{spec} was taken"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_missing_ffmpeg_is_named_with_the_way_to_install_it() {
    let video = Video::new("x.avi", "64x48", 2, &["-c:v", "mjpeg"]);
    for options in [
        SourceOptions { ffmpeg: "/nowhere/ffmpeg".into(), ..SourceOptions::default() },
        SourceOptions { ffprobe: "/nowhere/ffprobe".into(), ..SourceOptions::default() },
    ] {
        let error = refusal(video.text(), options).await;
        assert!(matches!(error, SourceError::NoFfmpeg { .. }));
        let text = error.to_string();
        assert!(text.contains("/nowhere/ff") && text.contains("apt-get install ffmpeg"), "{text}");
    }
    let other = SourceOptions { ffmpeg: "true".into(), ..SourceOptions::default() };
    assert!(matches!(refusal(video.text(), other).await, SourceError::NotFfmpeg { .. }));
}

#[tokio::test]
async fn files_that_are_no_video_are_named() {
    let video = Video::new("x.mp4", "64x48", 20, &["-c:v", "libx264", "-pix_fmt", "yuv420p"]);
    let folder = video.folder.path();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    ffmpeg(&["-f", "lavfi", "-i", "sine=duration=1", &path("sound.wav")]);
    ffmpeg(&[
        "-i",
        &path("sound.wav"),
        "-f",
        "lavfi",
        "-i",
        "color=red:size=64x64:duration=0.1:rate=10",
        "-map",
        "0",
        "-map",
        "1",
        "-frames:v",
        "1",
        "-c:v",
        "png",
        "-disposition:v",
        "attached_pic",
        &path("sleeve.mp3"),
    ]);
    std::fs::write(path("text.mp4"), "hello").unwrap();
    std::fs::write(path("empty.mp4"), "").unwrap();
    let cut = video.cut(0.5).to_str().unwrap().to_owned();

    let default = SourceOptions::default;
    assert!(matches!(refusal(&path("gone.mp4"), default()).await, SourceError::NoFile { .. }));
    for sound in ["sound.wav", "sleeve.mp3"] {
        let error = refusal(&path(sound), default()).await;
        assert!(matches!(error, SourceError::NoVideo { audio_only: true, .. }), "{sound}: {error}");
        assert!(error.to_string().contains(sound) && error.to_string().contains("only sound"), "{error}");
    }
    for (name, word) in [
        (path("text.mp4"), "Invalid data"),
        (path("empty.mp4"), "the file is empty"),
        (folder.to_str().unwrap().to_owned(), "it is a folder"),
        // The index of an MP4 is at its end.
        (cut, "moov atom not found"),
        ("/dev/null".to_owned(), "not a regular file"),
    ] {
        let error = refusal(&name, default()).await;
        assert!(matches!(error, SourceError::Unreadable { .. }), "{name}: {error}");
        assert!(error.to_string().contains(word) && error.to_string().contains(&name), "{error}");
    }
}

/// The header promises a video, but no frame follows.
#[tokio::test]
async fn a_video_without_a_frame_fails_once_and_ends() {
    let video = Video::new("x.avi", "64x48", 20, &["-c:v", "mjpeg"]);
    let bytes = std::fs::read(&video.path).unwrap();
    let movi = bytes.windows(4).position(|word| word == b"movi").unwrap();
    let path = video.folder.path().join("header.avi");
    std::fs::write(&path, &bytes[..movi + 4]).unwrap();
    for looped in [false, true] {
        let options = SourceOptions { looped, ..SourceOptions::default() };
        let mut source = match Source::spawn(SourceSpec::File(path.clone()), options).await {
            Ok(source) => source,
            // Some versions of ffprobe detect this at once.
            Err(error) => {
                assert!(error.to_string().contains("header.avi"), "{error}");
                continue;
            }
        };
        let SourceEvent::Failed(error) = next(&mut source).await else { panic!("a frame out of nothing") };
        assert!(matches!(error, SourceError::NoFrames { .. }), "{error}");
        assert!(matches!(next(&mut source).await, SourceEvent::Ended));
    }
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let video = Video::new("x.avi", "64x48", 2, &["-c:v", "mjpeg"]);
    for fps in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9, 1001.0] {
        let options = SourceOptions { fps: Some(fps), ..SourceOptions::default() };
        assert!(matches!(refusal(video.text(), options).await, SourceError::Rate { .. }), "{fps}");
    }
    let options = SourceOptions { jpeg_quality: 0, ..SourceOptions::default() };
    assert!(refusal(video.text(), options).await.to_string().contains("1 (smallest) to 100 (best)"));
    let looped = SourceOptions { looped: true, ..SourceOptions::default() };
    for live in ["rtsp://bob:secret@127.0.0.1/x", "/dev/video0"] {
        let error = refusal(live, looped.clone()).await;
        assert!(
            matches!(error, SourceError::LoopOnLive { .. }) && !error.to_string().contains("secret"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_missing_device_is_named() {
    let error = refusal("/dev/video987", SourceOptions::default()).await;
    assert!(matches!(error, SourceError::NoDevice { .. }), "{error}");
    assert!(error.to_string().contains("/dev/video987"), "{error}");
}
