//! The commands with real processes, real sockets and a real video.

mod cameras;
#[path = "../process_support/mod.rs"]
mod process_support;
mod rights;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

use self::process_support::{Running, command, done, run, start, started, text, video};

/// A folder with a site's keys. Applications have all rights.
fn site() -> tempfile::TempDir {
    let folder = strict_site();
    let all = "watch,read,originals,reply,observe,export,profile";
    done(&["keys", "grant", "app/**", all, "**"], folder.path());
    folder
}

/// A folder with a site's keys, as made by `mez keys init`, without grants.
fn strict_site() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    done(&["keys", "init", "--site", "test"], folder.path());
    folder
}

fn edge(folder: &Path) -> (Running, String, String) {
    let socket = folder.join("edge.sock").display().to_string();
    let edge = start(
        &["edge", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--enrol", "off", "--socket", &socket],
        folder,
    );
    let (link, grpc) = (edge.field("link="), edge.field("grpc="));
    (edge, link, grpc)
}

#[test]
fn a_video_reaches_a_subscriber_over_the_socket_and_over_tls() {
    let folder = site();
    let folder = folder.path();
    let video = video(folder);
    let (_edge, link, grpc) = edge(folder);
    let _camera = start(&["camera", "dock/cam1", "--edge", &link, "--source", &video, "--loop"], folder);
    let socket = format!("unix://{}", folder.join("edge.sock").display());

    for (address, saved) in [(&socket, "by-socket"), (&grpc, "by-tls")] {
        let watched =
            run(&["subscribe", "dock/*", "--edge", address, "--seconds", "2s", "--save", saved], folder);
        assert!(watched.status.success(), "{}", text(&watched));
        let frames: Vec<_> = fs::read_dir(folder.join(saved).join("dock/cam1")).unwrap().collect();
        assert!(frames.len() > 5, "{} frames came by {address}: {}", frames.len(), text(&watched));
        for frame in frames {
            let image = fs::read(frame.unwrap().path()).unwrap();
            assert!(image.starts_with(&[0xff, 0xd8]) && image.ends_with(&[0xff, 0xd9]), "not a whole JPEG");
        }
        assert!(text(&watched).contains("160x120"), "{}", text(&watched));
    }

    let listed = run(&["cameras", "--edge", &socket], folder);
    assert!(text(&listed).contains("dock/cam1") && text(&listed).contains("connected"), "{}", text(&listed));

    // For a mistyped pattern, the existing names are shown.
    let mistyped = run(&["subscribe", "dok/*", "--edge", &socket, "--seconds", "500ms"], folder);
    assert!(text(&mistyped).contains("no camera matches yet"), "{}", text(&mistyped));
    assert!(text(&mistyped).contains("this edge has dock/cam1"), "{}", text(&mistyped));

    // Frames that crossed for one subscriber are available to the next.
    let past = run(
        &["subscribe", "dock/cam1", "--edge", &socket, "--since", "-1h", "--until", "now", "--save", "past"],
        folder,
    );
    assert!(past.status.success(), "{}", text(&past));
    assert!(fs::read_dir(folder.join("past/dock/cam1")).unwrap().count() > 10);
}

#[test]
fn a_camera_with_a_recording_ends_with_it() {
    let folder = site();
    let folder = folder.path();
    let video = video(folder);
    let (_edge, link, _) = edge(folder);
    let ended = run(&["camera", "dock/cam1", "--edge", &link, "--source", &video, "--fps", "100"], folder);
    assert!(ended.status.success(), "{}", text(&ended));
    assert!(text(&ended).contains("the source has ended"), "{}", text(&ended));
}

#[test]
fn what_cannot_be_done_is_said_with_the_remedy() {
    let folder = site();
    let folder = folder.path();
    let (_edge, link, grpc) = edge(folder);
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let other = tempfile::tempdir().unwrap();
    let other = other.path().join("nothing").display().to_string();
    fs::write(folder.join("sound.wav"), b"RIFF").unwrap();

    let (encoder, about_it) =
        if cfg!(feature = "x264") { ("x265", "openh264 or x264") } else { ("x264", "libx264-dev") };

    let table: &[(&[&str], &str)] = &[
        (
            &["edge", "--listen", &taken, "--grpc", "off", "--enrol", "off", "--socket", "a.sock"],
            "choose another port",
        ),
        (
            &["edge", "--listen", "127.0.0.1:0", "--grpc", "off", "--enrol", "off", "--socket", "edge.sock"],
            "edge.sock",
        ),
        (&["edge", "--keys", &other], "mez keys init"),
        (&["camera", "dock/../x", "--edge", &link], "dock/../x"),
        (&["camera", "dock/cam1", "--edge", "a:b:c:d/"], "HOST"),
        (&["camera", "dock/cam1", "--edge", &link, "--source", "missing.mp4"], "missing.mp4"),
        (&["camera", "dock/cam1", "--edge", &link, "--source", "sound.wav"], "sound.wav"),
        (&["camera", "dock/cam1", "--edge", &link, "--h264-encoder", encoder], about_it),
        (&["subscribe", "dock/cam*", "--edge", &grpc], "one whole segment"),
        (&["subscribe", "dock/*", "--edge", &grpc, "--accuracy", "1.5"], "accuracy"),
        (&["subscribe", "dock/*", "--edge", &grpc, "--latency-ms", "0"], "latency"),
        (&["subscribe", "dock/*", "--edge", &grpc, "--since", "-1s", "--until", "-1h"], "end"),
        (&["subscribe", "dock/*", "--since", "yesterday"], "now, -10m"),
        (&["cameras", "--edge", "unix:///nowhere/edge.sock"], "/nowhere/edge.sock"),
        (&["demo"], "make build"),
        (&["profile", "run", "--app", "faces"], "make build"),
        (&["pipeline", "run", "faces.toml"], "make build"),
        (&["edge", "--memory-bytes", "many"], "512MiB"),
        (&["edge", "--channel", "hall"], "write NAME=PATTERN"),
        (&["edge", "--channel", "hall=dock/*", "--channel", "hall=yard/*"], "declared twice"),
    ];
    for (args, expected) in table {
        let output = run(args, folder);
        assert!(!output.status.success(), "{args:?} succeeded: {}", text(&output));
        assert!(text(&output).contains(expected), "{args:?} does not say {expected:?}: {}", text(&output));
    }
    // The edge has not made up a camera for `dock/*` either.
    let listed = run(&["cameras", "--edge", &grpc], folder);
    assert!(listed.status.success() && !text(&listed).contains("dock/cam1"), "{}", text(&listed));
}

/// A refused camera tries again four times per second.
#[test]
fn an_edge_says_once_whom_it_refuses() {
    let folder = site();
    let folder = folder.path();
    let other = site();
    let socket = folder.join("edge.sock").display().to_string();
    let args = ["edge", "--listen", "127.0.0.1:0", "--grpc", "off", "--enrol", "off", "--socket", &socket];
    let edge = start(&args, folder);
    let link = edge.field("link=");
    let video = video(folder);
    let args = ["--log", "mez_node=debug", "camera", "dock/cam1", "--edge", &link, "--link", "quic"];
    let args = [&args[..], &["--source", &video, "--loop"]].concat();
    let stranger = started(&mut command(&args, other.path()), "camera", other.path());
    let lines_of = |broker: &Running, words: &[&str]| -> Vec<String> {
        let said = broker.logged();
        said.lines().filter(|line| words.iter().any(|word| line.contains(word))).map(str::to_owned).collect()
    };
    let refusals = || lines_of(&edge, &["refused"]);
    // The refusal may come before or after the connection is made.
    let attempts = || lines_of(&stranger, &["another attempt failed", "a connection ended"]).len();
    let begun = std::time::Instant::now();
    while (refusals().is_empty() || attempts() < 5) && begun.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(attempts() >= 5, "{}", stranger.logged());
    drop(stranger);
    let said = refusals();
    assert!(said.len() == 1 && said[0].contains("127.0.0.1"), "{said:#?}");
    assert!(said[0].contains("compare the authorities"), "{said:#?}");
}

/// Messages about situations that look like faults but are none, or whose obvious remedy would be wrong.
#[test]
fn messages_do_not_mislead() {
    let folder = site();
    let folder = folder.path();
    let refused = |args: &[&str]| {
        let output = run(args, folder);
        assert!(!output.status.success(), "{args:?} succeeded: {}", text(&output));
        text(&output)
    };
    // A command that waits says at once what it waits for.
    let said = refused(&["cameras", "--edge", "unix:///nowhere/edge.sock"]);
    let (first, last) = said.trim().split_once('\n').expect("a line at once, and one in the end");
    assert!(first.contains("the socket does not exist") && first.contains("trying for 5 s"), "{said}");
    assert!(last.starts_with("mez: no broker at unix:///nowhere/edge.sock"), "{said}");

    // A second key is not needed, and its refusal must not look like a disk error.
    assert!(run(&["store", "key"], folder).status.success());
    let said = refused(&["store", "key"]);
    assert!(said.contains("already has a key") && !said.contains("os error"), "{said}");

    // For a copied log, the advice must not be to make a key, since a new key would not open it.
    fs::create_dir_all(folder.join("copied/dock/cam1/@log")).unwrap();
    for command in ["ls", "verify"] {
        let said = refused(&["store", command, "--store", "copied", "--keys", "other"]);
        assert!(said.contains("--store-key FILE") && !said.contains("make a key"), "{said}");
    }
    fs::create_dir(folder.join("empty")).unwrap();
    let said = refused(&["store", "verify", "--store", "empty", "--keys", "other"]);
    assert!(said.contains("no camera's log in empty"), "{said}");
}

/// The past in an edge's memory is read at once, without waiting for the absent camera.
#[test]
fn the_past_of_an_absent_camera_is_read_without_waiting_for_it() {
    let folder = site();
    let folder = folder.path();
    let video = video(folder);
    let (_edge, link, _) = edge(folder);
    let camera = start(&["camera", "dock/cam1", "--edge", &link, "--source", &video, "--loop"], folder);
    let socket = format!("unix://{}", folder.join("edge.sock").display());
    assert!(run(&["subscribe", "dock/*", "--edge", &socket, "--seconds", "2s"], folder).status.success());
    drop(camera);
    let is_gone = || text(&run(&["cameras", "--edge", &socket], folder)).contains("absent");
    while !is_gone() {}
    let read = run(&["subscribe", "dock/*", "--edge", &socket, "--since", "-1h", "--until", "now"], folder);
    assert!(read.status.success() && !text(&read).contains("waiting"), "{}", text(&read));
}

/// Help has examples. Options that all commands have come last.
#[test]
fn every_command_teaches() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["edge", "camera", "cameras", "subscribe", "keys", "store"] {
        let help = run(&[command, "--help"], folder.path());
        assert!(help.status.success());
        let said = text(&help);
        assert!(said.contains("Examples:") || command == "keys", "{command}: {said}");
        let (own, of_all) = said.split_once("Options of all commands:").unwrap();
        assert!(own.contains("-h, --help") && !own.contains("--log"), "{command}: {said}");
        assert!(of_all.contains("--log <FILTER>") && of_all.contains("--log-format"), "{command}: {said}");
    }
}

#[test]
fn a_device_enrols_with_a_token_while_keys_are_served() {
    let folder = site();
    let folder = folder.path();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut serving = command(&["keys", "serve", "--listen", &port], folder).spawn().unwrap();
    let token = run(&["keys", "token", "camera/dock/cam1"], folder);
    assert!(token.status.success(), "{}", text(&token));
    let token = String::from_utf8(token.stdout).unwrap();
    let device = tempfile::tempdir().unwrap();
    let device = device.path().join("keys").display().to_string();

    let enrolled = loop {
        let enrolled = run(&["keys", "enrol", token.trim(), "--edge", &port, "--keys", &device], folder);
        // The server may not be listening yet.
        if enrolled.status.success() || !text(&enrolled).contains("refused") {
            break enrolled;
        }
    };
    assert!(enrolled.status.success(), "{}", text(&enrolled));
    let again = run(&["keys", "enrol", token.trim(), "--edge", &port, "--keys", &device], folder);
    assert!(!again.status.success(), "a token was good twice: {}", text(&again));

    let stopped = Command::new("kill").arg(serving.id().to_string()).status().unwrap();
    assert!(stopped.success());
    assert!(serving.wait().unwrap().success(), "it did not end cleanly when it was asked to");
}

/// A network camera's password is refused on the command line, with the other
/// ways named. So is a file that others may read. The password is never shown.
#[test]
fn a_cameras_password_stays_off_the_command_line() {
    use std::os::unix::fs::PermissionsExt;
    let site = site();
    let folder = site.path();
    let camera = |source: &'static str| ["camera", "dock/cam1", "--edge", "127.0.0.1:1", "--source", source];
    let refused = run(&camera("rtsp://bob:s3cret@127.0.0.1:1/x"), folder);
    let said = text(&refused);
    assert!(!refused.status.success() && !said.contains("s3cret"), "{said}");
    assert!(said.contains("--source-credentials FILE") && said.contains("MEZ_SOURCE_CREDENTIALS"), "{said}");
    let file = folder.join("dock.credentials");
    fs::write(&file, "bob:s3cret\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let with_file = |source| [&camera(source)[..], &["--source-credentials", "dock.credentials"]].concat();
    let refused = run(&with_file("rtsp://127.0.0.1:1/x"), folder);
    let said = text(&refused);
    assert!(!refused.status.success() && said.contains("chmod 600") && !said.contains("s3cret"), "{said}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let refused = run(&with_file("x.mp4"), folder);
    assert!(text(&refused).contains("credentials are only for network cameras"), "{}", text(&refused));
    let mut from_environment = command(&camera("rtsp://127.0.0.1:1/x"), folder);
    let refused = from_environment.env("MEZ_SOURCE_CREDENTIALS", "s3cret").output().unwrap();
    let said = text(&refused);
    assert!(said.contains("USER:PASSWORD") && !said.contains("s3cret"), "{said}");
}
