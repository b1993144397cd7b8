//! No child process is left behind, and the death of one loses no frame of a recording.

use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mez_node::source::{Source, SourceEvent, SourceOptions, SourceSpec};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::support::{
    Behaviour, MjpegCamera, Video, at, is_running, kill, next, next_frame, pixels, recognise,
    wait_for_the_end_of,
};

/// Names the camera for the process that is started to be killed.
const URL_VARIABLE: &str = "MEZ_TEST_CAMERA_TO_READ";

/// A recording whose reader is killed continues after the last frame, until its end.
#[tokio::test]
async fn a_recording_goes_on_where_it_was() {
    for (name, args) in [
        ("x.avi", &["-vf", "noise=alls=60:allf=t", "-c:v", "mjpeg", "-q:v", "2"][..]),
        ("x.mp4", &["-c:v", "libx264", "-pix_fmt", "yuv420p", "-g", "5"]),
    ] {
        // Too large for the pipe, so that the child is still at work when it is killed.
        let video = Video::new(name, "320x240", 60, args);
        let references = video.decoded(320, 240);
        let mut source = Source::spawn(video.spec(), at(30.0)).await.unwrap();
        let (mut seen, mut restarts, mut skipped) = (Vec::new(), 0, 0);
        loop {
            match next(&mut source).await {
                SourceEvent::Frame(frame) => {
                    seen.push(recognise(&pixels(&frame.jpeg), &references).0);
                    if seen.len() == 8 {
                        kill(source.child_pid().unwrap());
                    }
                }
                SourceEvent::Skipped { count } => skipped += count,
                SourceEvent::Restarting { why, .. } => {
                    assert!(why.contains("signal: 9"), "{name}: {why}");
                    restarts += 1;
                }
                SourceEvent::Ended => break,
                other => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(restarts, 1, "{name}");
        assert!(seen.is_sorted_by(|a, b| a < b), "{name}: no frame twice, none out of order: {seen:?}");
        assert!(seen.len() as u64 + skipped >= 60, "{name}: {} and {skipped}", seen.len());
        assert!(seen.last() > Some(&50), "{name}: to its end: {seen:?}");
    }
}

#[tokio::test]
async fn dropping_or_stopping_a_source_kills_its_child() {
    let video = Video::new("x.avi", "64x48", 20, &["-c:v", "mjpeg"]);
    for stop in [true, false] {
        let options = SourceOptions { looped: true, ..SourceOptions::default() };
        let mut source = Source::spawn(video.spec(), options).await.unwrap();
        next_frame(&mut source).await;
        let child = source.child_pid().unwrap();
        assert!(is_running(child));
        if stop {
            source.stop().await;
        } else {
            drop(source);
        }
        wait_for_the_end_of(child).await;
    }
}

/// A killed process leaves no child behind, although it could not clean up, and although the child waits for a silent camera and would never notice.
#[tokio::test]
async fn a_killed_process_takes_its_child_with_it() {
    let interval = Duration::from_millis(25);
    let camera = MjpegCamera::start(Behaviour { interval, silent_after: Some(60), close_after: None }).await;
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "children::reads_until_it_is_killed", "--nocapture", "--test-threads", "1"])
        .env(URL_VARIABLE, &camera.url)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let child = loop {
        let line = lines.next_line().await.unwrap().expect("the process tells its child");
        if let Some((_, pid)) = line.split_once("child=") {
            break pid.trim().parse().unwrap();
        }
    };
    let mut sent = None;
    while sent != Some(camera.sent.load(Ordering::SeqCst)) {
        sent = Some(camera.sent.load(Ordering::SeqCst));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(is_running(child));
    kill(process.id().unwrap());
    process.wait().await.unwrap();
    wait_for_the_end_of(child).await;
}

/// Not a test itself: the process that the test above kills.
#[tokio::test]
async fn reads_until_it_is_killed() {
    let Ok(url) = std::env::var(URL_VARIABLE) else { return };
    let options = SourceOptions { stalled_after: Duration::from_secs(3600), ..SourceOptions::default() };
    let mut source = Source::spawn(SourceSpec::parse(&url).unwrap(), options).await.unwrap();
    next_frame(&mut source).await;
    println!("child={}", source.child_pid().unwrap());
    std::future::pending().await
}
