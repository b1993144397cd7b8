//! Network cameras: frames in real time, and reconnection after every failure.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mez_node::source::{Source, SourceCredentials, SourceEvent, SourceOptions, SourceSpec};
use tempfile::TempDir;

use crate::rtsp::{Asks, Guard, guarded_rtsp_camera, rtsp_camera};
use crate::support::{
    Behaviour, MjpegCamera, Onlooker, at, decoded, free_port, kill, next, next_frame, next_restart,
    numbered_jpeg, pixels, transport_stream_camera,
};

const STEADY: Behaviour =
    Behaviour { interval: Duration::from_millis(25), silent_after: None, close_after: None };

async fn open(url: &str, options: SourceOptions) -> Source {
    Source::spawn(SourceSpec::parse(url).unwrap(), options).await.unwrap()
}

#[tokio::test]
async fn motion_jpeg_over_http_goes_through_byte_for_byte() {
    let camera = MjpegCamera::start(STEADY).await;
    let mut source = open(&camera.url, SourceOptions::default()).await;
    let mut last = None;
    let mut number = 0;
    for _ in 0..30 {
        let frame = next_frame(&mut source).await;
        assert!(last < Some(frame.captured), "capture times increase");
        last = Some(frame.captured);
        while numbered_jpeg(number)[..] != frame.jpeg[..] {
            number += 1;
            assert!(
                number < camera.sent.load(Ordering::SeqCst),
                "a frame that was never sent, or out of order"
            );
        }
    }
    let info = source.info().unwrap();
    assert!(info.live && info.passthrough && info.codec == "mjpeg", "{info:?}");
}

/// A live source is thinned out instead of delayed: it stays at the newest frame.
#[tokio::test]
async fn a_live_source_is_thinned_evenly() {
    let camera = MjpegCamera::start(STEADY).await;
    let mut source = open(&camera.url, at(8.0)).await;
    let mut frames = vec![next_frame(&mut source).await];
    let sent_before = camera.sent.load(Ordering::SeqCst);
    for _ in 0..20 {
        frames.push(next_frame(&mut source).await);
    }
    let sent = camera.sent.load(Ordering::SeqCst) - sent_before;
    assert!(sent >= 60, "one in five or so is kept: {sent} sent for 20");
    let mean = (frames[20].captured - frames[0].captured).as_secs_f64() / 20.0;
    assert!(mean > 0.11, "mean interval {mean} s for 8 per second");
}

#[tokio::test]
async fn a_camera_that_closes_is_opened_again() {
    let camera = MjpegCamera::start(Behaviour { close_after: Some(12), ..STEADY }).await;
    let mut source = open(&camera.url, SourceOptions::default()).await;
    for _ in 0..2 {
        next_frame(&mut source).await;
        let why = next_restart(&mut source).await;
        assert!(why.contains("end of the stream"), "{why}");
    }
    next_frame(&mut source).await;
    assert!(camera.connections.load(Ordering::SeqCst) >= 3);
}

#[tokio::test]
async fn a_camera_that_goes_silent_is_opened_again() {
    let camera = MjpegCamera::start(Behaviour { silent_after: Some(40), ..STEADY }).await;
    let options = SourceOptions { stalled_after: Duration::from_secs(2), ..SourceOptions::default() };
    let mut source = open(&camera.url, options).await;
    next_frame(&mut source).await;
    let child = source.child_pid().unwrap();
    let why = next_restart(&mut source).await;
    assert!(why.starts_with("no frame for 2 s"), "{why}");
    next_frame(&mut source).await;
    assert_ne!(source.child_pid(), Some(child));
}

/// A transport stream is decoded. A child that is killed from outside is replaced.
#[tokio::test]
async fn a_transport_stream_survives_the_death_of_its_child() {
    let url = transport_stream_camera().await;
    let mut source = open(&url, decoded()).await;
    for _ in 0..3 {
        let frame = next_frame(&mut source).await;
        assert_eq!((frame.width, frame.height), (66, 50));
        pixels(&frame.jpeg);
    }
    let info = source.info().unwrap();
    assert!(info.live && !info.passthrough && info.codec == "h264", "{info:?}");
    kill(source.child_pid().unwrap());
    let why = next_restart(&mut source).await;
    assert!(why.contains("signal: 9"), "{why}");
    next_frame(&mut source).await;
}

#[tokio::test]
async fn rtsp_is_played_over_tcp_and_opened_again() {
    let folder = TempDir::new().unwrap();
    let url = rtsp_camera(folder.path()).await;
    let mut source = open(&url, decoded()).await;
    for _ in 0..10 {
        let frame = next_frame(&mut source).await;
        assert_eq!((frame.width, frame.height), (66, 50));
        pixels(&frame.jpeg);
    }
    kill(source.child_pid().unwrap());
    next_restart(&mut source).await;
    next_frame(&mut source).await;
}

/// A camera gets its password, with any kind of authentication and any characters in it.
/// It is not visible in the list of processes, nor in the environment of the children.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_reaches_its_camera_and_nobody_else() {
    const PASSWORD: &str = "s3cr3t p@ss/w:rd'%41";
    let credentials = SourceCredentials::parse(&format!("bob:{PASSWORD}")).unwrap();
    for asks in [Asks::Basic, Asks::Digest] {
        let folder = TempDir::new().unwrap();
        let guard = Guard { asks, user: "bob", password: PASSWORD };
        let address = guarded_rtsp_camera(folder.path(), Some(guard)).await;
        let onlooker = Onlooker::start(&["s3cr3t", "rd'%41", "%2541"]);
        let camera = SourceSpec::parse(&format!("rtsp://{address}/cam")).unwrap();
        let spec = camera.with_credentials(&credentials).unwrap();
        let mut source = Source::spawn(spec, decoded()).await.unwrap();
        for _ in 0..5 {
            let frame = next_frame(&mut source).await;
            assert_eq!((frame.width, frame.height), (66, 50), "{asks:?}");
            pixels(&frame.jpeg);
        }
        source.stop().await;
        let seen = onlooker.seen();
        let children: Vec<_> = seen.iter().filter(|content| content.contains("pipe:0")).collect();
        assert!(!children.is_empty(), "the onlooker saw the children");
        let shown =
            |content: &&String| ["s3cr3t", "rd'%41", "%2541"].iter().any(|part| content.contains(part));
        assert_eq!(seen.iter().find(shown), None, "{asks:?}");
    }
}

/// The error of a missing password differs from that of a wrong one. Neither contains the password.
#[tokio::test]
async fn a_camera_that_refuses_is_told_of_without_the_password() {
    let guard = Guard { asks: Asks::Digest, user: "bob", password: "right" };
    let folder = TempDir::new().unwrap();
    let address = guarded_rtsp_camera(folder.path(), Some(guard)).await;
    let camera = SourceSpec::parse(&format!("rtsp://{address}/cam")).unwrap();
    let wrong = SourceCredentials::parse("bob:wr0ng").unwrap();
    for (spec, told) in [
        (camera.clone(), "--source-credentials"),
        (camera.with_credentials(&wrong).unwrap(), "does not accept this user name and password"),
    ] {
        let mut source = Source::spawn(spec, decoded()).await.unwrap();
        match next(&mut source).await {
            SourceEvent::Failed(error) => {
                let text = format!("{error} {error:?}");
                assert!(text.contains(told) && !text.contains("wr0ng"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A missing camera is tried again, at growing intervals, and no password gets out.
#[tokio::test]
async fn a_camera_that_is_not_there_is_waited_for() {
    let port = free_port().await;
    let mut source =
        open(&format!("rtsp://bob:secret@127.0.0.1:{port}/x?key=secret"), SourceOptions::default()).await;
    let mut waits = Vec::new();
    while waits.len() < 3 {
        match next(&mut source).await {
            SourceEvent::Restarting { why, after } => {
                assert!(
                    why.contains("refused") && why.contains("127.0.0.1") && !why.contains("secret"),
                    "{why}"
                );
                waits.push(after.as_millis());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(waits, [250, 500, 1000]);
    assert_eq!(source.info(), None);
}

/// A recording on a web server has a length: it is played like a file, and may be looped.
#[tokio::test]
async fn a_recording_over_http_is_paced() {
    let video = crate::support::Video::new("x.avi", "64x48", 30, &["-c:v", "mjpeg", "-q:v", "3"]);
    let packets = video.packets();
    let bytes = std::fs::read(&video.path).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x.avi", listener.local_addr().unwrap());
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let bytes = bytes.clone();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let head = format!(
                    "HTTP/1.0 200 OK\r\nContent-Type: video/avi\r\nContent-Length: {}\r\n\r\n",
                    bytes.len()
                );
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(&bytes).await;
            });
        }
    });
    let mut source = open(&url, at(30.0)).await;
    let (frames, skipped) = crate::support::read_to_end(&mut source).await;
    assert!(!source.info().unwrap().live);
    assert!(frames.len() as u64 + skipped >= 30, "{} and {skipped}", frames.len());
    let mut rest = packets.iter();
    assert!(frames.iter().all(|frame| rest.any(|packet| packet[..] == frame.jpeg[..])));
}
