//! Damage in logs is reported, and the readable part is copied.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use super::process_support::{done, run, start, text};
use super::{camera, edge, frames, site};

/// The segments of the camera's log, the oldest first.
fn segments(log: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(log.join("dock/cam1/@log")).unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "segment"));
    found.sort();
    found
}

/// Waits until a log has `count` segments, and some frames in the newest.
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

/// The output of `mez store verify` for a damaged log.
fn damaged(log: &str, more: &[&str], folder: &Path) -> String {
    let output = run(&[&["store", "verify", "--store", log], more].concat(), folder);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("DAMAGED"), "{said}");
    said
}

/// A log of three segments from three starts of a killed camera, and a copy that tests damage.
struct Spoilt {
    folder: tempfile::TempDir,
    /// The number of frames in the log.
    whole: u64,
}

/// A segment of this size holds several frames of the test's video.
const SEGMENT_BYTES_MIN: u64 = 20_000;

/// The state folder knows the original log, not the copy, unless it is given explicitly.
const STATE: [&str; 2] = ["--state", "state"];

impl Spoilt {
    /// A broker that is killed between a record and its progress file leaves an end that may be cut without damage. Then the log is made again.
    fn new() -> Self {
        for _ in 0..5 {
            let log = Self::of_killed_cameras();
            log.change(2, |bytes| bytes.truncate(bytes.len() - 1));
            let args = ["store", "verify", "--store", "spoilt", STATE[0], STATE[1]];
            if run(&args, log.folder.path()).status.code() == Some(1) {
                return log;
            }
        }
        panic!("five times the broker was killed before it noted how far it had come");
    }

    fn of_killed_cameras() -> Self {
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

    /// Copies the log again, and damages the copy.
    fn spoil(&self, what: impl FnOnce(&[PathBuf])) {
        let spoilt = self.folder.path().join("spoilt");
        let _ = fs::remove_dir_all(&spoilt);
        copy_folder(&self.folder.path().join("camera"), &spoilt);
        what(&segments(&spoilt));
    }

    /// Copies the log again, and changes the bytes of one segment.
    fn change(&self, segment: usize, what: impl FnOnce(&mut Vec<u8>)) {
        self.spoil(|paths| {
            let mut bytes = fs::read(&paths[segment]).unwrap();
            what(&mut bytes);
            fs::write(&paths[segment], bytes).unwrap();
        });
    }

    /// The output of `mez store verify` for the copy.
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
    assert!(said.contains("intact") && !said.contains("--state"), "{said}");

    for place in 0..3 {
        // A wrong byte in a header costs nothing, but is reported.
        log.change(place, |bytes| bytes[60] ^= 1);
        let said = log.verify();
        assert!(
            said.contains("byte 60 of its header") && said.contains(&format!("{whole} frames")),
            "{said}"
        );
        // A destroyed header costs its segment.
        log.change(place, |bytes| bytes[10..90].fill(0));
        let said = log.verify();
        assert!(said.contains("header is torn or corrupt") && said.contains("frames are lost"), "{said}");
        // So does a deleted segment.
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
        // A wrong byte in a record costs its frame, but none of the following, even in the newest segment.
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

/// The readable part is copied, and the copy is a normal log.
#[test]
fn what_can_be_read_of_a_damaged_log_is_copied() {
    let log = Spoilt::new();
    let (folder, whole) = (log.folder.path(), log.whole);
    log.change(2, |bytes| bytes[140] ^= 1);
    let said = done(&["store", "repair", "--store", "spoilt", "--state", "state", "--to", "copy"], folder);
    assert!(said.contains("DAMAGED"), "{said}");
    assert!(said.contains(&format!("{} frames copied to copy", whole - 1)), "{said}");
    let said = done(&["store", "verify", "--store", "copy"], folder);
    assert!(said.contains(&format!("intact, {} frames", whole - 1)), "{said}");
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
    // Nothing is written into the log, or over an existing copy.
    for out in ["spoilt", "spoilt/within", "copy", "."] {
        let refused = run(&["store", "repair", "--store", "spoilt", "--to", out], folder);
        assert!(text(&refused).contains("folder"), "{}", text(&refused));
        assert_eq!(segments(&folder.join("spoilt")).len(), 3, "{out}");
    }
    // A broker continues the copy.
    let running = edge(folder);
    let link = running.field("link=");
    let args = ["camera", "dock/cam1", "--edge", &link, "--source", "video.avi", "--loop", "--store", "copy"];
    let kept = start(&[&args[..], &["--state", "elsewhere"]].concat(), folder);
    sleep(Duration::from_millis(400));
    kept.kill();
    let said = done(&["store", "verify", "--store", "copy", "--state", "elsewhere"], folder);
    assert!(said.contains("intact"), "{said}");
}

/// An edge with an unreadable segment as a camera's only one still knows the camera, and reports the damage.
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

/// Paths that are not files do not block, and folders that others may write are refused.
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
    // A start skips them, and continues after them.
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
