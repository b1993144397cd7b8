//! Logs on disk as people keep them: brokers that are killed in the middle of their work, and what is there afterwards.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

const MEZ: &str = env!("CARGO_BIN_EXE_mez");

/// A process that ends with the test.
struct Running {
    child: Child,
    ready: String,
}

impl Running {
    /// Ends it as a power supply does: nothing is asked.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn field(&self, name: &str) -> String {
        let field = self.ready.split(' ').find_map(|field| field.strip_prefix(name));
        field.unwrap_or_else(|| panic!("no {name} in {:?}", self.ready)).to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(MEZ);
    command.args(args).current_dir(folder).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("MEZ_KEYS", folder.join("keys")).env("MEZ_STATE", folder.join("state"));
    command
}

fn run(args: &[&str], folder: &Path) -> Output {
    command(args, folder).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Runs a command that has to succeed.
fn done(args: &[&str], folder: &Path) -> String {
    let output = run(args, folder);
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    text(&output)
}

/// Starts a command and waits until it says that it is ready.
fn start(args: &[&str], folder: &Path) -> Running {
    let mut child = command(args, folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    match lines.next() {
        Some(Ok(ready)) => Running { child, ready },
        _ => {
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("{args:?} did not get ready: {errors}");
        }
    }
}

/// A site with a key for its logs, and a short video.
fn site() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    done(&["keys", "init", "--site", "test"], folder.path());
    done(&["store", "key"], folder.path());
    let video =
        ["-v", "error", "-f", "lavfi", "-i", "testsrc=size=160x120:rate=20", "-t", "2", "-c:v", "mjpeg"];
    let made = Command::new("ffmpeg").args(video).arg(folder.path().join("video.avi")).status();
    assert!(made.expect("ffmpeg is needed: apt-get install ffmpeg").success());
    folder
}

/// An edge on a socket of its own that keeps logs in a folder, and nothing else that others could use.
fn edge_args<'a>(socket: &'a str, store: &'a str) -> Vec<&'a str> {
    let alone = ["edge", "--listen", "127.0.0.1:0", "--grpc", "off", "--enrol", "off"];
    [&alone[..], &["--socket", socket, "--store", store]].concat()
}

fn edge(folder: &Path) -> Running {
    start(&edge_args("e.sock", "edge"), folder)
}

fn camera(folder: &Path, edge: &Running) -> Running {
    let link = edge.field("link=");
    let args =
        ["camera", "dock/cam1", "--edge", &link, "--source", "video.avi", "--loop", "--store", "camera"];
    start(&args, folder)
}

/// Frames in a log, by what `mez store verify` says of it.
fn frames(log: &str, folder: &Path) -> u64 {
    let said = done(&["store", "verify", "--store", log], folder);
    let words: Vec<&str> = said.split_whitespace().collect();
    let place = words.iter().position(|word| *word == "frames").unwrap_or_else(|| panic!("{said}"));
    words[place - 1].parse().unwrap()
}

#[test]
fn frames_outlive_brokers_that_are_killed() {
    let folder = site();
    let folder = folder.path();
    let socket = format!("unix://{}", folder.join("e.sock").display());
    let first_edge = edge(folder);
    let first_camera = camera(folder, &first_edge);
    let live =
        done(&["subscribe", "dock/*", "--edge", &socket, "--seconds", "1500ms", "--save", "live"], folder);
    // Both are killed in the middle of a frame, for all they know.
    first_camera.kill();
    first_edge.kill();
    let (published, replicated) = (frames("camera", folder), frames("edge", folder));
    assert!(
        published >= 20,
        "{published} frames on the camera's disk after a second and a half at 20 a second"
    );

    // The edge serves what crossed before, without the camera.
    let second_edge = edge(folder);
    let past =
        ["subscribe", "dock/*", "--edge", &socket, "--since", "-1h", "--until", "now", "--save", "past"];
    done(&past, folder);
    let names = |place: &str| {
        let entries = fs::read_dir(folder.join(place).join("dock/cam1")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let (seen, back) = (names("live"), names("past"));
    assert_eq!(back.len() as u64, replicated);
    // All but what was under way when it was killed, which is more on a machine that is busy.
    let missing: Vec<_> = seen.iter().filter(|name| !back.contains(name)).collect();
    assert!(
        missing.len() < seen.len() / 2,
        "{missing:?} were delivered and did not outlive the edge: {live}"
    );
    for name in seen.iter().filter(|name| back.contains(name)) {
        let (was, is) = (folder.join("live/dock/cam1").join(name), folder.join("past/dock/cam1").join(name));
        assert_eq!(fs::read(was).unwrap(), fs::read(is).unwrap(), "{name:?} is another picture now");
    }

    // A second start goes on behind the first.
    let second_camera = camera(folder, &second_edge);
    let listed = done(&["cameras", "--edge", &socket], folder);
    assert!(listed.contains("EDGE'S DISK") && !listed.contains("degraded"), "{listed}");
    sleep(Duration::from_millis(300));
    second_camera.kill();
    assert!(frames("camera", folder) > published);
    let listed = done(&["store", "ls", "--store", "camera", "--segments"], folder);
    assert!(listed.contains("0000000000000001"), "no segment of its own for the second start: {listed}");
}

/// `MEZ_KILLS=50 cargo test -p mez-cli --test logs -- --nocapture` kills each broker so often, at random moments, and prints how
/// much of what was delivered did not outlive the edge.
#[test]
fn brokers_may_be_killed_at_any_moment() {
    let asked: Option<u64> = std::env::var("MEZ_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills = asked.unwrap_or(2);
    let folder = site();
    let folder = folder.path();
    let socket = format!("unix://{}", folder.join("e.sock").display());
    let (mut published, mut replicated, mut lost_ms) = (0, 0, Vec::new());
    for kill in 0..kills {
        let (edge, live) = (edge(folder), format!("live{kill}"));
        let camera = camera(folder, &edge);
        let watch = ["subscribe", "dock/*", "--edge", &socket, "--save", &live];
        let mut watching =
            command(&watch, folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Spread evenly over a second, wherever the writer happens to be.
        sleep(Duration::from_millis(400 + kill * 617 % 1_000));
        camera.kill();
        edge.kill();
        watching.kill().unwrap();
        watching.wait().unwrap();
        let seen = fs::read_dir(folder.join(&live).join("dock/cam1")).map_or(0, Iterator::count) as u64;
        let (now_published, now_replicated) = (frames("camera", folder), frames("edge", folder));
        assert!(now_published > published, "kill {kill}: nothing of this start is on the camera's disk");
        // A picture every 50 ms; the newest one may have been half saved.
        lost_ms.push(seen.saturating_sub(now_replicated - replicated) * 50);
        (published, replicated) = (now_published, now_replicated);
    }
    lost_ms.sort_unstable();
    println!(
        "{kills} kills of each broker: {published} frames at the camera, {replicated} at the edge; lost tails in ms: {lost_ms:?}"
    );
    // On a machine that has nothing else to do; tests usually run on one that has.
    assert!(asked.is_none() || lost_ms.iter().all(|lost| *lost <= 200), "{lost_ms:?}");
}

#[test]
fn a_log_that_is_not_as_it_was_is_told() {
    let folder = site();
    let folder = folder.path();
    let running = edge(folder);
    let kept = camera(folder, &running);
    sleep(Duration::from_millis(400));

    // While one broker keeps it, no other may, not even one that remembers other things.
    let link = running.field("link=");
    let publish = ["camera", "dock/cam1", "--edge", &link, "--source", "video.avi", "--store", "camera"];
    let second = run(&[&publish[..], &["--state", "elsewhere"]].concat(), folder);
    assert!(!second.status.success() && text(&second).contains("another broker"), "{}", text(&second));
    kept.kill();

    let segment = folder.join("camera/dock/cam1/@log/0000000000000000.segment");
    let whole = fs::read(&segment).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&segment, &damaged).unwrap();
    let verified = run(&["store", "verify", "--store", "camera"], folder);
    assert!(!verified.status.success() && text(&verified).contains("checksum"), "{}", text(&verified));
    fs::write(&segment, &whole).unwrap();
    done(&["store", "verify", "--store", "camera"], folder);

    // With another key nothing is read, nothing is written and nothing is removed.
    done(&["store", "key", "--file", "other.key"], folder);
    let other = run(&[&publish[..], &["--store-key", "other.key"]].concat(), folder);
    assert!(!other.status.success() && text(&other).contains("older keys first"), "{}", text(&other));
    assert_eq!(fs::read(&segment).unwrap(), whole);
    let other = run(&["store", "ls", "--store", "camera", "--store-key", "other.key"], folder);
    assert!(text(&other).contains("not among the keys"), "{}", text(&other));

    // A newer key beside the old one reads both.
    done(&["store", "key", "--rotate"], folder);
    let again = camera(folder, &running);
    sleep(Duration::from_millis(300));
    again.kill();
    done(&["store", "verify", "--store", "camera"], folder);
}

/// The segments of the camera's log, the oldest first.
fn segments(log: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(log.join("dock/cam1/@log")).unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "segment"));
    found.sort();
    found
}

/// Waits until a log has so many segments, and some frames in the newest.
fn wait_for_segment(log: &Path, count: usize) {
    let newest_bytes = || {
        let is_there = log.join("dock/cam1/@log").is_dir();
        let newest = is_there.then(|| segments(log)).filter(|found| found.len() == count)?.pop()?;
        Some(fs::metadata(newest).ok()?.len())
    };
    let came = (0..1_000).any(|_| {
        sleep(Duration::from_millis(10));
        newest_bytes() > Some(SEGMENT_BYTES_MIN)
    });
    assert!(came, "segment {count} holds nothing");
}

fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// What `mez store verify` says of a log that has to be damaged.
fn damaged(log: &str, more: &[&str], folder: &Path) -> String {
    let output = run(&[&["store", "verify", "--store", log], more].concat(), folder);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("DAMAGED"), "{said}");
    said
}

/// A log of three segments (three starts of a camera, each of which was killed), and a copy of it that tests damage.
struct Spoilt {
    folder: tempfile::TempDir,
    /// How many frames the log holds.
    whole: u64,
}

/// With so many bytes a segment holds several frames of the test's video.
const SEGMENT_BYTES_MIN: u64 = 20_000;

/// A copy of the log is not what the state speaks of, unless somebody says so.
const STATE: [&str; 2] = ["--state", "state"];

impl Spoilt {
    fn new() -> Self {
        let folder = site();
        let running = edge(folder.path());
        let log = folder.path().join("camera");
        for start in 1..=3 {
            let kept = camera(folder.path(), &running);
            wait_for_segment(&log, start);
            kept.kill();
        }
        running.kill();
        let whole = frames("camera", folder.path());
        assert_eq!(segments(&folder.path().join("camera")).len(), 3);
        Self { folder, whole }
    }

    /// Copies the log anew and damages the copy.
    fn spoil(&self, what: impl FnOnce(&[PathBuf])) {
        let spoilt = self.folder.path().join("spoilt");
        let _ = fs::remove_dir_all(&spoilt);
        copy_folder(&self.folder.path().join("camera"), &spoilt);
        what(&segments(&spoilt));
    }

    /// Copies the log anew and changes the bytes of one segment.
    fn change(&self, segment: usize, what: impl FnOnce(&mut Vec<u8>)) {
        self.spoil(|paths| {
            let mut bytes = fs::read(&paths[segment]).unwrap();
            what(&mut bytes);
            fs::write(&paths[segment], bytes).unwrap();
        });
    }

    /// What `mez store verify` says of the copy.
    fn verify(&self) -> String {
        damaged("spoilt", &STATE, self.folder.path())
    }
}

#[test]
fn what_is_wrong_with_a_log_is_named() {
    let log = Spoilt::new();
    let (folder, whole) = (log.folder.path(), log.whole);
    log.spoil(|_| {});
    assert!(
        done(&["store", "verify", "--store", "spoilt"], folder)
            .contains("give the broker's folder for state")
    );
    let said = done(&["store", "verify", "--store", "spoilt", "--state", "state"], folder);
    assert!(said.contains("whole") && !said.contains("--state"), "{said}");

    for place in 0..3 {
        // One byte of a header costs nothing, and is told.
        log.change(place, |bytes| bytes[60] ^= 1);
        let said = log.verify();
        assert!(
            said.contains("byte 60 of its header") && said.contains(&format!("{whole} frames")),
            "{said}"
        );
        // A header that is gone costs its segment.
        log.change(place, |bytes| bytes[10..90].fill(0));
        let said = log.verify();
        assert!(said.contains("header is torn or rotten") && said.contains("frames are lost"), "{said}");
        // So does one that is deleted.
        log.spoil(|paths| fs::remove_file(&paths[place]).unwrap());
        let said = log.verify();
        assert!(said.contains("missing") && said.contains("frames are lost"), "{said}");
        log.change(place, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle..].fill(0);
        });
        log.verify();
        log.change(place, |bytes| bytes.truncate(bytes.len() - 100));
        let said = log.verify();
        assert!(said.contains("1 frame is lost") || said.contains("2 frames are lost"), "{said}");
        // A byte of a record costs its frame, also in the newest segment, and not those behind it.
        log.change(place, |bytes| bytes[140] ^= 1);
        let said = log.verify();
        assert!(
            said.contains("1 frame is lost") && said.contains(&format!("{} frames", whole - 1)),
            "{said}"
        );
    }
    let json = run(&["store", "verify", "--store", "spoilt", "--state", "state", "--json"], folder);
    assert_eq!(json.status.code(), Some(1));
    let found: serde_json::Value =
        serde_json::from_slice(&json.stdout).unwrap_or_else(|_| panic!("{}", text(&json)));
    assert_eq!((&found["frames"], &found["frames_lost"]), (&(whole - 1).into(), &1.into()), "{found}");
    assert_eq!((&found["whole"], &found["state_known"]), (&false.into(), &true.into()), "{found}");
    assert!(found["findings"][0]["captured_after"].is_string(), "{found}");
}

/// What can be read is copied, and the copy is a log like any other.
#[test]
fn what_can_be_read_of_a_damaged_log_is_copied() {
    let log = Spoilt::new();
    let (folder, whole) = (log.folder.path(), log.whole);
    log.change(2, |bytes| bytes[140] ^= 1);
    let said = done(&["store", "repair", "--store", "spoilt", "--state", "state", "--to", "copy"], folder);
    assert!(said.contains("DAMAGED"), "{said}");
    assert!(said.contains(&format!("{} frames copied to copy", whole - 1)), "{said}");
    let said = done(&["store", "verify", "--store", "copy"], folder);
    assert!(said.contains(&format!("whole, {} frames", whole - 1)), "{said}");
    let export = |log: &str, output: &str| {
        let args = ["store", "export", "dock/cam1", output, "--codec", "jpeg", "--json", "--store", log];
        let output = run(&args, folder);
        serde_json::from_slice::<serde_json::Value>(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", text(&output)))
    };
    let (of_spoilt, of_copy) = (export("spoilt", "spoilt.mp4"), export("copy", "copy.mp4"));
    for exported in [&of_spoilt, &of_copy] {
        assert_eq!(exported["frames"], whole - 1, "{exported}");
        assert_eq!(exported["missing_by_reason"]["damaged"], 1, "{exported}");
    }
    assert_eq!((&of_spoilt["damaged_records"], &of_copy["damaged_records"]), (&1.into(), &0.into()));
    // Nothing is written into the log, and nothing over a copy.
    for out in ["spoilt", "spoilt/within", "copy", "."] {
        let refused = run(&["store", "repair", "--store", "spoilt", "--to", out], folder);
        assert!(text(&refused).contains("folder"), "{}", text(&refused));
        assert_eq!(segments(&folder.join("spoilt")).len(), 3, "{out}");
    }
    // A broker goes on behind the copy.
    let running = edge(folder);
    let link = running.field("link=");
    let args = ["camera", "dock/cam1", "--edge", &link, "--source", "video.avi", "--loop", "--store", "copy"];
    let kept = start(&[&args[..], &["--state", "elsewhere"]].concat(), folder);
    sleep(Duration::from_millis(400));
    kept.kill();
    let said = done(&["store", "verify", "--store", "copy", "--state", "elsewhere"], folder);
    assert!(said.contains("whole"), "{said}");
}

/// An edge whose only segment of a camera cannot be read still knows the camera, and says what is wrong.
#[test]
fn an_edge_remembers_the_camera_of_a_damaged_log() {
    let folder = site();
    let folder = folder.path();
    let socket = format!("unix://{}", folder.join("e.sock").display());
    let first_edge = edge(folder);
    let first_camera = camera(folder, &first_edge);
    done(&["subscribe", "dock/*", "--edge", &socket, "--seconds", "1500ms", "--save", "live"], folder);
    first_camera.kill();
    first_edge.kill();
    let paths = segments(&folder.join("edge"));
    assert_eq!(paths.len(), 1);
    let mut bytes = fs::read(&paths[0]).unwrap();
    bytes[..200].fill(0xff);
    fs::write(&paths[0], bytes).unwrap();
    let said = damaged("edge", &[], folder);
    assert!(said.contains("not a segment of a log") && said.contains("frames are lost"), "{said}");
    let _edge = edge(folder);
    let listed = done(&["cameras", "--edge", &socket], folder);
    assert!(listed.contains("dock/cam1"), "{listed}");
}

/// What is no file hangs nothing, and a folder that others may write is refused.
#[test]
fn strange_files_hang_nothing_and_open_folders_are_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = site();
    let folder = folder.path();
    let running = edge(folder);
    let kept = camera(folder, &running);
    sleep(Duration::from_millis(400));
    kept.kill();
    let place = folder.join("camera/dock/cam1/@log");
    let name = |number: u64| place.join(format!("{number:016x}.segment"));
    let made = Command::new("mkfifo").arg(name(7)).status().unwrap();
    assert!(made.success());
    fs::create_dir(name(8)).unwrap();
    symlink("0000000000000000.segment", name(9)).unwrap();
    symlink("/dev/zero", name(10)).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(name(11)).unwrap();
    let said = damaged("camera", &[], folder);
    assert_eq!(said.matches("not a file").count(), 5, "{said}");
    let exported =
        run(&["store", "export", "dock/cam1", "x.mp4", "--codec", "jpeg", "--store", "camera"], folder);
    assert!(exported.status.success(), "{}", text(&exported));
    // A start passes them over, and goes on behind them.
    let before = segments(&folder.join("camera")).len();
    let kept = camera(folder, &running);
    sleep(Duration::from_millis(400));
    kept.kill();
    assert_eq!(segments(&folder.join("camera")).len(), before + 1);
    for number in 7..=11 {
        assert!(name(number).symlink_metadata().is_ok(), "something was removed");
    }
    drop(socket);

    let link = running.field("link=");
    let publish = ["camera", "dock/cam1", "--edge", &link, "--source", "video.avi", "--store", "camera"];
    for open in [&place, &folder.join("camera/dock"), &folder.join("camera")] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o770)).unwrap();
        let refused = run(&publish, folder);
        assert!(!refused.status.success() && text(&refused).contains("chmod go-w"), "{}", text(&refused));
        let said = run(&["store", "verify", "--store", "camera"], folder);
        assert!(!said.status.success() && text(&said).contains("chmod go-w"), "{}", text(&said));
        fs::set_permissions(open, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn without_a_key_or_a_place_nothing_starts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(&["keys", "init", "--site", "test"], folder);
    let edge = |log: &str| {
        let refused = run(&edge_args("e.sock", log), folder);
        assert!(!refused.status.success(), "{}", text(&refused));
        text(&refused)
    };
    let refused = edge("log");
    assert!(refused.contains("mez store key"), "{refused}");
    done(&["store", "key"], folder);
    fs::write(folder.join("file"), "not a folder").unwrap();
    let refused = edge("file");
    assert!(refused.contains("--store"), "{refused}");

    // Two edges do not keep logs in one folder, not even before there is a camera.
    let first = [&edge_args("first.sock", "log")[..], &["--state", "first"]].concat();
    let _first = start(&first, folder);
    let refused = edge("log");
    assert!(refused.contains("another edge keeps its logs in log"), "{refused}");
}

#[test]
fn a_log_is_exported_while_its_broker_writes_it() {
    let folder = site();
    let folder = folder.path();
    let edge = edge(folder);
    let _camera = camera(folder, &edge);
    sleep(Duration::from_millis(1_200));
    let to = |args: &[&str]| {
        run(&[&["store", "export", "dock/cam1"], args, &["--store", "camera"]].concat(), folder)
    };
    let told = to(&["past.mp4", "--codec", "jpeg"]);
    assert!(told.status.success() && text(&told).contains("frames over"), "{}", text(&told));
    let json = to(&["past.mcap", "--since", "-10m", "--json"]);
    let summary: serde_json::Value =
        serde_json::from_slice(&json.stdout).unwrap_or_else(|_| panic!("{}", text(&json)));
    assert!(summary["frames"].as_u64() >= Some(5) && summary["missing_frames"] == 0, "{summary}");
    assert_eq!(summary["file_bytes"].as_u64().unwrap(), folder.join("past.mcap").metadata().unwrap().len());

    for (args, complaint) in [
        (&["past.mp4"][..], "--force"),
        (&["past.avi"], "--format"),
        (&["x.mp4", "--since", "now", "--until", "-1m"], "swap"),
        (&["x.mp4", "--until", "-1h"], "the log holds"),
    ] {
        let refused = to(args);
        assert!(
            !refused.status.success() && text(&refused).contains(complaint),
            "{args:?}: {}",
            text(&refused)
        );
    }
    let refused = run(&["store", "export", "dock/cam2", "x.mp4", "--store", "camera"], folder);
    assert!(text(&refused).contains("there are: dock/cam1"), "{}", text(&refused));
    assert!(!folder.join("x.mp4").exists());
    assert!(to(&["past.mp4", "--force"]).status.success());

    // As Ctrl-C does it.
    let mut stopped = command(
        &["store", "export", "dock/cam1", "stopped.mp4", "--store", "camera", "--until", "+1h"],
        folder,
    );
    stopped.stdout(Stdio::piped()).stderr(Stdio::piped());
    let stopped = stopped.spawn().unwrap();
    let pid = stopped.id().to_string();
    sleep(Duration::from_millis(60));
    Command::new("kill").args(["-INT", &pid]).status().unwrap();
    let ended = stopped.wait_with_output().unwrap();
    // It may have been done already, or not have begun to listen.
    assert!(ended.status.success() == folder.join("stopped.mp4").exists(), "{}", text(&ended));
}

/// What people do about a thief of a camera's keys: they look whose the starts were, and reset the camera. What was written before is put aside.
#[test]
fn a_camera_is_reset_on_the_edges_host() {
    let folder = site();
    let folder = folder.path();
    let socket = format!("unix://{}", folder.join("e.sock").display());
    let running = edge(folder);
    let publishing = camera(folder, &running);
    let live = ["subscribe", "dock/*", "--edge", &socket, "--seconds", "800ms"];
    done(&live, folder);

    let shown = done(&["cameras", "show", "dock/cam1", "--edge", &socket], folder);
    assert!(shown.contains("EPOCH") && shown.contains("127.0.0.1"), "{shown}");
    assert!(shown.contains("spiffe://test/camera/"), "{shown}");
    let nobody = run(&["cameras", "show", "dock/cam9", "--edge", &socket], folder);
    assert!(
        !nobody.status.success() && text(&nobody).contains("has never seen a camera"),
        "{}",
        text(&nobody)
    );

    let unasked = run(&["cameras", "reset", "dock/cam1", "--edge", &socket], folder);
    assert!(!unasked.status.success() && text(&unasked).contains("--yes"), "{}", text(&unasked));
    let reset = done(&["cameras", "reset", "dock/cam1", "--yes", "--edge", &socket], folder);
    assert!(
        reset.contains("camera dock/cam1 is reset: it was connected, and epoch 1 is forgotten"),
        "{reset}"
    );
    let command = reset.lines().find_map(|line| line.strip_prefix("its log was put aside: mez ")).unwrap();
    let listed = done(&command.split(' ').collect::<Vec<_>>(), folder);
    assert!(listed.contains("dock/cam1"), "{listed}");
    let listed = done(&["store", "ls", "--store", "edge"], folder);
    assert!(listed.contains("put aside by a reset: mez store ls --store edge/@aside/"), "{listed}");

    // The camera is there again, with frames of its own numbers, and all of it was written down.
    done(&live, folder);
    let shown = done(&["cameras", "show", "dock/cam1", "--edge", &socket], folder);
    assert!(shown.contains("by user") && shown.contains("epoch 1 was forgotten"), "{shown}");
    publishing.kill();
    running.kill();
}
