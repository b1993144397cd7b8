//! What a real edge records in its audit log, and what `mez keys audit` prints.

mod process_support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use self::process_support::{MEZ, Running, command, done, run, start, started, text, video};

fn edge(folder: &Path) -> Running {
    let socket = folder.join("edge.sock").display().to_string();
    let any = "127.0.0.1:0";
    start(&["edge", "--listen", any, "--grpc", any, "--enrol", any, "--socket", &socket], folder)
}

/// The audit log, once it has a line with all of these words.
fn recorded(folder: &Path, words: &[&str]) -> String {
    for _ in 0..600 {
        let log = text(&run(&["keys", "audit"], folder));
        if log.lines().any(|line| words.iter().all(|word| line.contains(word))) {
            return log;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no line has {words:?} in {}", text(&run(&["keys", "audit"], folder)));
}

/// A new site without grants, and an empty folder for an application.
fn site() -> (tempfile::TempDir, tempfile::TempDir) {
    let (site, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    done(&["keys", "init", "--site", "test"], site.path());
    (site, other)
}

/// An application joins, is refused, gets grants, reads the past and saves it, and a camera is forgotten. The log has a record of each step.
#[test]
fn the_log_tells_who_joined_was_refused_read_exported_and_operated() {
    let (site, other) = site();
    let (site, other) = (site.path(), other.path());
    let edge = edge(site);
    let (link, grpc, enrol) = (edge.field("link="), edge.field("grpc="), edge.field("enrol="));
    let token = done(&["keys", "token", "app/counter"], site);
    let token = token.lines().next().unwrap().to_owned();
    done(&["keys", "enrol", &token, "--edge", &enrol], other);
    recorded(site, &["app/counter", "enrolled", "certificate", "from 127.0.0.1"]);
    // The used token is refused. The client is known only by its address.
    assert!(!run(&["keys", "enrol", &token, "--edge", &enrol], other).status.success());
    recorded(site, &["127.0.0.1", "refused enrolment", "used"]);

    let camera = start(&["camera", "dock/cam1", "--edge", &link, "--source", &video(site), "--loop"], site);
    recorded(site, &["camera/", "connected link"]);
    let watch = ["subscribe", "dock/cam1", "--edge", &grpc, "--seconds", "1s"];
    assert!(!run(&watch, other).status.success());
    recorded(site, &["app/counter", "refused watch dock/cam1", "no grant of watch"]);
    recorded(site, &["app/counter", "connected grpc", "from 127.0.0.1"]);

    done(&["keys", "grant", "app/counter", "watch,read", "dock/*"], site);
    // The edge's own record: the grant is in force now. The record of the command also names the file.
    let in_force = format!("{:<20}  rights granted dock/*", "rights.toml");
    recorded(site, &[&in_force, "app/counter read 'dock/*'"]);
    // The kernel says which user ran the command.
    recorded(site, &["user/", "rights granted dock/*", "app/counter read 'dock/*', in ", "rights.toml"]);
    done(&watch, other);
    let past = ["subscribe", "dock/cam1", "--edge", &grpc, "--since", "-1m", "--until", "now", "--held-only"];
    done(&past, other);
    recorded(site, &["app/counter", "read frames dock/cam1", "until 20"]);
    // For a pattern, the existing cameras are recorded, not the pattern.
    let socket = format!("unix://{}", edge.field("socket="));
    for of in ["dock/*", "x/*"] {
        let past = ["subscribe", of, "--edge", &socket, "--since", "-1m", "--until", "now", "--held-only"];
        done(&past, site);
    }
    recorded(site, &["user/", "read frames dock/cam1", "until 20"]);
    recorded(site, &["user/", "read frames  ", "no known camera matches x/*"]);
    let saves = [&past[..], &["--save", "frames"]].concat();
    let refused = run(&saves, other);
    assert!(text(&refused).contains("`mez keys grant app/counter export dock/cam1`"), "{}", text(&refused));
    done(&["keys", "grant", "app/counter", "export", "dock/*"], site);
    recorded(site, &[&in_force, "app/counter export"]);
    done(&saves, other);
    recorded(site, &["app/counter", "exported frames dock/cam1"]);

    // Lists were not requested, so none was refused.
    assert!(!text(&run(&["keys", "audit"], site)).contains("refused observe"));

    drop(camera);
    while !run(&["cameras", "forget", "dock/cam1", "--edge", &socket], site).status.success() {
        std::thread::sleep(Duration::from_millis(100));
    }
    recorded(site, &["user/", "operated forget dock/cam1"]);
    done(&["keys", "ungrant", "app/counter"], site);
    recorded(site, &["user/", "rights taken back", "app/counter watch"]);
    done(&["keys", "revoke", "app/counter", "--because", "sold"], site);
    recorded(site, &["user/", "revoked app/counter", "sold"]);
    // It is refused in the handshake, and the log contains its name.
    assert!(!run(&watch, other).status.success());
    recorded(site, &["app/counter", "refused revoked", "sold"]);
    assert!(done(&["keys", "audit", "--verify"], site).contains("the hash chain is intact"));
    let of_app =
        done(&["keys", "audit", "--who", "app/*", "--kind", "refused", "--since", "-1h", "--json"], site);
    assert!(of_app.lines().count() >= 2, "{of_app}");
    assert!(
        of_app.lines().all(|line| line.contains("\"kind\":\"refused\",\"who\":\"app/counter\"")),
        "{of_app}"
    );
}

/// A record is changed, and later the whole log. The check names the record, and a noted hash reveals the rest.
#[test]
fn a_changed_log_is_named_and_the_edge_starts_nevertheless() {
    let (site, _other) = site();
    let site = site.path();
    for _ in 0..2 {
        let edge = edge(site);
        let grpc = edge.field("grpc=");
        assert!(!run(&["subscribe", "dock/*", "--edge", &grpc, "--seconds", "1s"], site).status.success());
        recorded(site, &["app/", "refused watch"]);
    }
    let whole = done(&["keys", "audit", "--verify"], site);
    let noted = whole.lines().find_map(|line| line.strip_prefix("last record: ")).unwrap().to_owned();
    let file = site.join("state/audit/000000000001.jsonl");
    let log = fs::read_to_string(&file).unwrap();
    fs::write(&file, log.replacen("\"refused\"", "\"connected\"", 1)).unwrap();
    let broken = run(&["keys", "audit", "--verify"], site);
    assert!(!broken.status.success() && text(&broken).contains("was changed"), "{}", text(&broken));

    // The whole log is deleted. An edge starts, and its new log is consistent.
    fs::remove_dir_all(site.join("state/audit")).unwrap();
    assert!(text(&run(&["keys", "audit"], site)).contains("--state"));
    let _edge = edge(site);
    recorded(site, &["started"]);
    assert!(run(&["keys", "audit", "--verify"], site).status.success());
    let compared = run(&["keys", "audit", "--verify", "--noted", &noted], site);
    assert!(!compared.status.success() && text(&compared).contains("noted elsewhere"), "{}", text(&compared));
}

/// If the log cannot be written, the edge serves, reports it once, and counts.
#[test]
fn an_edge_without_room_for_its_log_serves() {
    let (site, _other) = site();
    let site = site.path();
    fs::create_dir(site.join("state")).unwrap();
    fs::write(site.join("state/audit"), "no folder").unwrap();
    let edge = edge(site);
    let socket = format!("unix://{}", edge.field("socket="));
    done(&["cameras", "--edge", &socket], site);
    fs::remove_file(site.join("state/audit")).unwrap();
    recorded(site, &["edge", "lost", "not recorded"]);
    assert!(done(&["keys", "audit", "--verify"], site).contains("the hash chain is intact"));
}

/// An edge whose audit log is on a small disk of its own.
struct OnDisk {
    edge: Running,
    /// The edge's state folder, as seen from outside of its mounts.
    state: PathBuf,
    site: PathBuf,
}

impl OnDisk {
    /// `None` if this user may not mount.
    fn start(site: &Path, mount: &str) -> Option<Self> {
        fs::create_dir_all(site.join("state/audit")).unwrap();
        let socket = site.join("edge.sock").display().to_string();
        let any = "127.0.0.1:0";
        let behind = |words: &[&str]| {
            // `mount` makes the disk, then the edge replaces the shell.
            let script = format!("{mount} && exec \"$@\"");
            let outside = command(&[], site);
            let mut inside = Command::new("unshare");
            inside.args(["-rm", "sh", "-c", &script, "sh"]).args(words).current_dir(site).env_clear();
            inside.envs(outside.get_envs().filter_map(|(name, value)| Some((name, value?))));
            inside
        };
        if !behind(&["true"]).output().is_ok_and(|output| output.status.success()) {
            eprintln!("this user may not mount anything: skipped");
            return None;
        }
        let words = [MEZ, "edge", "--listen", any, "--grpc", any, "--enrol", "off", "--socket", &socket];
        let edge = started(&mut behind(&words), "edge", site);
        let state = PathBuf::from(format!("/proc/{}/root{}", edge.child.id(), site.join("state").display()));
        Some(Self { edge, state, site: site.to_owned() })
    }

    /// Gets a different refusal each time, which shows that the edge serves.
    fn refuses(&self, numbers: std::ops::Range<u32>) {
        // Long names, so that few records fill a page.
        let (grpc, long) = (self.edge.field("grpc="), "a-long-name-of-a-place".repeat(2));
        for number in numbers {
            let camera = format!("{long}/{long}/{long}/cam{number}");
            let refused = run(&["subscribe", &camera, "--edge", &grpc, "--seconds", "1s"], &self.site);
            assert!(
                !refused.status.success() && text(&refused).contains("may not watch"),
                "{}",
                text(&refused)
            );
        }
    }

    fn audit(&self, more: &[&str]) -> String {
        let state = self.state.display().to_string();
        text(&run(&[&["keys", "audit", "--state", &state], more].concat(), &self.site))
    }

    /// The log, once it has a record of lost events.
    fn with_lost(&self, why: &str) -> Vec<serde_json::Value> {
        for _ in 0..600 {
            let log = self.audit(&["--json"]);
            let records: Vec<serde_json::Value> =
                log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let is_lost = |record: &serde_json::Value| {
                record["kind"] == "lost" && record["why"].as_str().unwrap_or_default().contains(why)
            };
            if records.iter().any(is_lost) {
                return records;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("nothing says {why:?} in {}", self.audit(&[]));
    }
}

/// The disk is full: the edge serves, counts, and records the count and the reason once there is room.
#[test]
fn an_audit_log_on_a_full_disk_is_counted_and_goes_on() {
    let (site, _other) = site();
    let Some(edge) = OnDisk::start(site.path(), "mount -t tmpfs -o size=64k none state/audit") else {
        return;
    };
    edge.refuses(0..1);
    let mut filler = fs::File::create(edge.state.join("audit/filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    edge.refuses(1..8);
    drop(filler);
    fs::remove_file(edge.state.join("audit/filler")).unwrap();
    let records = edge.with_lost("make room on that disk");
    assert!(edge.audit(&["--verify"]).contains("the hash chain is intact"), "{}", edge.audit(&["--verify"]));
    let count = |kind: &str| -> u64 {
        let of_kind = records.iter().filter(|record| record["kind"] == kind);
        of_kind.map(|record| record["count"].as_u64().unwrap_or(1)).sum()
    };
    // Refusals without a record of their own are in the count of lost events, which also includes connections.
    assert!(count("refused") + count("lost") >= 8, "{records:?}");
}

/// The disk is mounted read-only: the edge serves nevertheless, and the log begins once it is writable.
#[test]
fn an_audit_log_on_a_disk_that_is_read_only_begins_later() {
    let (site, _other) = site();
    let mount = "mount -t tmpfs -o size=1m none state/audit && mount -o remount,ro state/audit";
    let Some(edge) = OnDisk::start(site.path(), mount) else { return };
    edge.refuses(0..3);
    assert_eq!(fs::read_dir(edge.state.join("audit")).unwrap().count(), 0);
    let audit = site.path().join("state/audit").display().to_string();
    let process = edge.edge.child.id().to_string();
    let remount = ["-t", &process, "-U", "-m", "--preserve-credentials", "mount", "-o", "remount,rw", &audit];
    let remounted = Command::new("nsenter").args(remount).output().unwrap();
    assert!(remounted.status.success(), "{}", text(&remounted));
    edge.with_lost("mount it for writing");
    edge.refuses(3..4);
    assert!(edge.audit(&["--verify"]).contains("the hash chain is intact"), "{}", edge.audit(&["--verify"]));
}
