//! Absent cameras, and sources that cannot be read.

use std::process::Stdio;

use super::process_support::{Running, command, run, start, text, video};
use super::{edge, site};

/// A killed camera is absent, which is not a state of its source. A camera whose
/// recording has ended reports that. Both can be forgotten, but a connected one cannot.
#[test]
fn a_camera_that_is_gone_says_how_and_is_forgotten() {
    let folder = site();
    let folder = folder.path();
    let video = video(folder);
    let (_edge, link, _) = edge(folder);
    let socket = format!("unix://{}", folder.join("edge.sock").display());
    let cameras = || -> serde_json::Value {
        let listed = run(&["cameras", "--json", "--edge", &socket], folder);
        assert!(listed.status.success(), "{}", text(&listed));
        match String::from_utf8(listed.stdout).unwrap().lines().next() {
            Some(line) => serde_json::from_str(line).unwrap(),
            None => serde_json::Value::Null,
        }
    };
    let until = |what: &str, is_so: &dyn Fn(&serde_json::Value) -> bool| {
        for _ in 0..600 {
            if is_so(&cameras()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("{what}: {}", cameras());
    };
    let camera = start(&["camera", "dock/cam1", "--edge", &link, "--source", &video, "--loop"], folder);
    until("it publishes", &|camera| camera["source"]["state"] == "live");
    let forget = || run(&["cameras", "forget", "dock/cam1", "--edge", &socket], folder);
    let refused = forget();
    assert!(!refused.status.success() && text(&refused).contains("is connected"), "{}", text(&refused));
    drop(camera);
    until("it is absent", &|camera| camera["connected"] == false);
    assert_eq!(cameras()["source"], serde_json::Value::Null);
    let table = text(&run(&["cameras", "--edge", &socket], folder));
    assert!(table.contains("absent") && table.contains("SOURCE"), "{table}");
    let forgotten = forget();
    assert!(forgotten.status.success(), "{}", text(&forgotten));
    assert!(text(&forgotten).contains("dock/cam1 is forgotten"), "{}", text(&forgotten));
    assert_eq!(cameras(), serde_json::Value::Null);

    let played = run(&["camera", "dock/cam1", "--edge", &link, "--source", &video, "--fps", "100"], folder);
    assert!(played.status.success(), "{}", text(&played));
    until("it ended", &|camera| camera["connected"] == false);
    assert_eq!(cameras()["source"]["state"], "ended");
    let table = text(&run(&["cameras", "--edge", &socket], folder));
    assert!(table.contains("dock/cam1: the camera's source has ended"), "{table}");
}

/// A network camera does not answer: the table and `--json` show that its source is lost, why, and when the next attempt is.
#[test]
fn a_source_that_cannot_be_read_is_listed_with_the_reason_and_the_next_try() {
    let folder = site();
    let folder = folder.path();
    let (_edge, link, _) = edge(folder);
    let socket = format!("unix://{}", folder.join("edge.sock").display());
    // The port of a closed socket.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let source = format!("rtsp://127.0.0.1:{port}/stream");
    let mut camera = command(&["camera", "gate/cam1", "--edge", &link, "--source", &source], folder);
    camera.env("MEZ_SOURCE_CREDENTIALS", "gate:secret");
    let child = camera.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _camera = Running::unready(child);
    let listed = |options: &[&str]| {
        let listed = run(&[&["cameras", "--edge", &socket], options].concat(), folder);
        assert!(listed.status.success(), "{}", text(&listed));
        text(&listed)
    };
    let lost = (0..600).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let told: serde_json::Value = serde_json::from_str(listed(&["--json"]).lines().next()?).unwrap();
        (told["source"]["state"] == "lost").then_some(told)
    });
    let lost = lost.expect("it is lost");
    let reason = lost["source"]["reason"].as_str().unwrap();
    assert!(lost["connected"] == true && lost["source"]["retry_in_s"].as_f64().is_some(), "{lost}");
    assert!(lost["source"]["lasts_s"].as_f64().is_some(), "{lost}");
    assert!(!reason.is_empty() && !reason.contains("secret"), "{reason}");
    let table = listed(&[]);
    let row = table.lines().find(|line| line.starts_with("gate/cam1 ")).expect("a row");
    assert!(row.contains("connected") && row.contains("lost "), "{table}");
    assert!(table.contains("gate/cam1: the camera's source is lost: "), "{table}");
    assert!(table.contains("; next try in "), "{table}");
}
