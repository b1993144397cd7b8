//! `mez doctor` on real sites with real brokers: planted faults are found with their remedies, and nothing else is.

mod settings;
mod trust;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use mez_node::identity::{Credentials, Identity, SiteAuthority, Validity};
use serde_json::Value;
use tempfile::TempDir;

const MEZ: &str = env!("CARGO_BIN_EXE_mez");

/// A folder with the keys of a site, and other files of a test.
struct Site(TempDir);

/// A broker that ends with the test.
struct Edge {
    child: Child,
    /// The address for cameras.
    link: String,
    /// The address for applications.
    grpc: String,
}

impl Drop for Edge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Site {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        said(&site.run(&["keys", "init", "--site", "test"]));
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A command with the keys of the edge's host.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(MEZ);
        command.args(args).current_dir(self.0.path()).env_clear();
        for name in ["PATH", "HOME"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.env("MEZ_KEYS", self.path("keys")).env("MEZ_STATE", self.path("state"));
        command.env("MEZ_EDGE_SOCKET", self.path("edge.sock"));
        // Settings files are searched here, not in the home of the user who runs the test.
        command.env("XDG_CONFIG_HOME", self.path("config"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command with its own mounts. `None` if this user may not mount.
    fn unshared(&self, mount: &str, args: &[&str]) -> Option<Output> {
        let outside = self.command(&[]);
        let inside = |words: &[&str]| {
            let mut inside = Command::new("unshare");
            inside.args(["-rm", "sh", "-c", &format!("{mount} && exec \"$@\""), "sh"]).args(words);
            inside.current_dir(self.0.path()).env_clear();
            inside.envs(outside.get_envs().filter_map(|(name, value)| Some((name, value?)))).output()
        };
        if !inside(&["true"]).is_ok_and(|output| output.status.success()) {
            eprintln!("this user may not mount anything: skipped");
            return None;
        }
        Some(inside(&[&[MEZ], args].concat()).unwrap())
    }

    fn edge(&self) -> Edge {
        let ports = ["--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--enrol", "off"];
        let mut command = self.command(&[&["edge"], ports.as_slice()].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let field = |name: &str| {
            let found = ready.split_whitespace().find_map(|field| field.strip_prefix(name));
            found.unwrap_or_else(|| panic!("no {name} in {ready:?}")).to_owned()
        };
        Edge { link: field("link="), grpc: field("grpc="), child }
    }

    /// The key folder of another host that was enrolled as `identity`.
    fn host(&self, identity: &str, lasting: Duration) -> Site {
        let host = Site(tempfile::tempdir().unwrap());
        fs::create_dir(host.path("keys")).unwrap();
        fs::set_permissions(host.path("keys"), Permissions::from_mode(0o700)).unwrap();
        fs::copy(self.path("keys/authority.pem"), host.path("keys/authority.pem")).unwrap();
        let authority = SiteAuthority::load(&self.path("keys")).unwrap();
        let who = Identity::parse_within(authority.site(), identity).unwrap();
        let validity = Validity::from(SystemTime::now(), lasting);
        let made = Credentials::issue(&authority, &who, &[], validity).unwrap();
        let file = host.path("keys").join(format!("{}.pem", identity.replace('/', ".")));
        fs::write(&file, format!("{}{}", made.key_pem(), made.chain_pem())).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        host
    }

    /// Runs the doctor.
    fn doctor(&self, args: &[&str]) -> Findings {
        findings(&self.run(&[&["doctor", "--json"], args].concat()))
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The check, the result and the remedy of each fault, and the whole output.
#[derive(Debug)]
struct Findings {
    faults: Vec<(String, String, String)>,
    all: String,
    succeeded: bool,
}

impl Findings {
    /// Asserts that only `check` reports faults, with these parts in result and remedy.
    #[track_caller]
    fn fault(&self, check: &str, found: &str, remedy: &str) {
        assert!(!self.succeeded && !self.faults.is_empty(), "{}", self.all);
        for (at_fault, what, to_do) in &self.faults {
            assert_eq!(at_fault, check, "{}", self.all);
            assert!(what.contains(found), "{found:?} is not in {what:?}");
            assert!(to_do.contains(remedy), "{remedy:?} is not in {to_do:?}");
        }
    }

    #[track_caller]
    fn healthy(&self) {
        assert!(self.succeeded && self.faults.is_empty(), "{}", self.all);
    }
}

fn findings(output: &Output) -> Findings {
    let all =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {all}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = report["checks"].as_array().unwrap_or_else(|| panic!("no findings: {all}"));
    let faults = found
        .iter()
        .filter(|finding| finding["level"] == "fault")
        .map(|finding| (text(&finding["check"]), text(&finding["found"]), text(&finding["remedy"])))
        .collect();
    Findings { faults, all, succeeded: output.status.success() }
}

#[track_caller]
fn said(output: &Output) -> String {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    text
}

/// A port without a listener.
fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn nothing_is_wrong_with_a_healthy_site() {
    let site = Site::new();
    said(&site.run(&["store", "key"]));
    site.doctor(&["--store", &site.text("store")]).healthy();
    let edge = site.edge();
    site.doctor(&["--store", &site.text("store"), "--listen", &edge.link, "--grpc", &edge.grpc]).healthy();
    said(&site.run(&["keys", "grant", "app/counter", "watch,reply", "dock/*"]));
    let counter = site.host("app/counter", DAY);
    // The edge checks its rights once per second.
    let granted = (0..50).map(|_| {
        thread::sleep(Duration::from_millis(200));
        counter.doctor(&["--edge", &edge.grpc, "--watch", "dock/*", "--reply", "dock/cam1"])
    });
    granted.into_iter().find(|found| found.succeeded).expect("it may watch").healthy();
    site.host("camera/dock/cam1", DAY).doctor(&["--edge", &edge.link]).healthy();
}

#[test]
fn an_expired_certificate() {
    let site = Site::new();
    let edge = site.edge();
    let host = site.host("camera/dock/cam1", Duration::ZERO);
    host.doctor(&["--edge", &edge.link, "--camera", "dock/cam1"]).fault(
        "certificate",
        "is valid from",
        "mez keys token camera/dock/cam1",
    );
}

/// A host without a network starts with a clock in the past, at which today's certificates are not valid yet.
#[test]
fn a_clock_before_the_site_was_made() {
    let site = Site::new();
    let edge = site.edge();
    let host = site.host("camera/dock/cam1", DAY);
    let library = shifted_clock(&host, -365 * 24 * 3600);
    let args = ["doctor", "--json", "--edge", &edge.link];
    let found = host.command(&args).env("LD_PRELOAD", &library).output().unwrap();
    findings(&found).fault("clock", "this host's clock says", "timedatectl set-ntp true");
}

/// A broker of a later version on the socket, which does not support this version.
#[test]
fn another_version_at_the_other_side() {
    let site = Site::new();
    let socket = UnixListener::bind(site.path("edge.sock")).unwrap();
    thread::spawn(move || {
        for mut stream in socket.incoming().flatten() {
            // The client's preface, and the header of its first packet.
            let _ = stream.read_exact(&mut [0; 8 + 12]);
            let says = "the client speaks versions 1 to 1 of mez.v1, the broker (mez 9.0.0) version 2; update the client";
            let field =
                |number: u8, text: &str| [&[number << 3 | 2, text.len() as u8], text.as_bytes()].concat();
            let error = [vec![1 << 3, 12], field(2, "VERSION"), field(4, says)].concat();
            let mut packet = vec![9, 0, 0, 0];
            packet.extend((error.len() as u32).to_le_bytes());
            packet.extend([0; 4]);
            packet.extend(error);
            let _ = stream.write_all(&packet);
        }
    });
    site.doctor(&["--as", "app", "--edge", &format!("unix://{}", site.text("edge.sock"))]).fault(
        "version",
        "mez 9.0.0",
        "update the older one",
    );
}

/// Another identity publishes under the name.
#[test]
fn a_name_that_another_identity_holds() {
    let site = Site::new();
    let edge = site.edge();
    let (first, second) = (site.host("camera/dock", DAY), site.host("camera/dock/cam1", DAY));
    let socket = first.text("camera.sock");
    let args = ["camera", "dock/cam1", "--edge", &edge.link, "--socket", &socket];
    let mut holder = first.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let found = (0..100).map(|_| {
        thread::sleep(Duration::from_millis(100));
        second.doctor(&["--edge", &edge.link])
    });
    let found = found.into_iter().find(|found| !found.succeeded);
    let _ = holder.kill();
    let _ = holder.wait();
    found.expect("the camera never connected").fault(
        "grant",
        "is already connected as camera",
        "choose another name",
    );
}

/// A full disk. Skipped if this user may not mount.
#[test]
fn a_disk_that_is_full() {
    let site = Site::new();
    said(&site.run(&["store", "key"]));
    fs::create_dir(site.path("small")).unwrap();
    let mount = "mount -t tmpfs -o size=1m none small";
    let Some(found) = site.unshared(mount, &["doctor", "--json", "--store", "small"]) else { return };
    findings(&found).fault("disk", "is full", "free some space");
}

/// Ctrl-C ends the doctor at once, and no file is left behind.
#[test]
fn it_is_interrupted_cleanly() {
    let host = Site::new().host("app/counter", DAY);
    // A server that accepts connections and sends nothing.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    fs::create_dir(host.path("store")).unwrap();
    let args = ["doctor", "--edge", &address, "--store", "store"];
    let mut doctor = host.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (_connection, _) = mute.accept().unwrap();
    said(&Command::new("kill").args(["-INT", &doctor.id().to_string()]).output().unwrap());
    assert!(!doctor.wait().unwrap().success());
    assert_eq!(fs::read_dir(host.path("store")).unwrap().count(), 0);
}

#[test]
fn an_identity_of_another_role() {
    let site = Site::new();
    let edge = site.edge();
    let host = site.host("app/counter", DAY);
    host.doctor(&["--edge", &edge.link, "--camera", "dock/cam1"]).fault(
        "certificate",
        "app/counter",
        "mez keys token camera/dock/cam1",
    );
}

#[test]
fn keys_of_another_site() {
    let (site, other) = (Site::new(), Site::new());
    let edge = site.edge();
    other.host("camera/dock/cam1", DAY).doctor(&["--edge", &edge.link]).fault(
        "certificate",
        "",
        "fingerprint",
    );
    other.host("app/counter", DAY).doctor(&["--edge", &edge.grpc]).fault("certificate", "", "fingerprint");
}

#[test]
fn keys_that_others_could_read() {
    let site = Site::new();
    let edge = site.edge();
    let host = site.host("app/counter", DAY);
    fs::set_permissions(host.path("keys/app.counter.pem"), Permissions::from_mode(0o644)).unwrap();
    host.doctor(&["--edge", &edge.grpc]).fault("permissions", "mode 644", "chmod 600");
}

#[test]
fn rights_that_others_could_change() {
    let site = Site::new();
    fs::set_permissions(site.path("keys/rights.toml"), Permissions::from_mode(0o666)).unwrap();
    let found = site.doctor(&[]);
    assert!(found.faults.iter().any(|(check, ..)| check == "permissions"), "{}", found.all);
    assert!(found.all.contains("chmod 600"), "{}", found.all);
}

#[test]
fn an_application_without_a_grant() {
    let site = Site::new();
    let edge = site.edge();
    let host = site.host("app/counter", DAY);
    host.doctor(&["--edge", &edge.grpc, "--watch", "dock/*"]).fault(
        "grant",
        "app/counter may not watch dock/*",
        "mez keys grant app/counter watch",
    );
}

#[test]
fn a_name_that_nobody_has() {
    let host = Site::new().host("app/counter", DAY);
    host.doctor(&["--edge", "no-such-edge.invalid"]).fault(
        "reach",
        "no-such-edge.invalid",
        "getent hosts no-such-edge.invalid",
    );
}

#[test]
fn an_edge_that_does_not_run() {
    let host = Site::new().host("app/counter", DAY);
    host.doctor(&["--edge", &closed_port().to_string()]).fault(
        "reach",
        "nothing listens there",
        "check that `mez edge` is running there",
    );
}

#[test]
fn another_service_at_the_port() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = service.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in service.incoming().flatten() {
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let host = Site::new().host("app/counter", DAY);
    host.doctor(&["--edge", &address]).fault("reach", "", "another service uses this port");
}

/// A firewall that passes TCP to the edge, and drops UDP.
#[test]
fn udp_that_is_blocked() {
    let site = Site::new();
    let edge = site.edge();
    let wall = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = wall.local_addr().unwrap();
    let _swallows = UdpSocket::bind(address).unwrap();
    let behind = edge.link.clone();
    thread::spawn(move || {
        for near in wall.incoming().flatten() {
            let far = TcpStream::connect(&behind).unwrap();
            for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    let host = site.host("camera/dock/cam1", DAY);
    host.doctor(&["--edge", &address.to_string()]).fault("udp", "UDP does not get through", "open UDP port");
}

#[test]
fn a_port_that_another_program_has() {
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    site.doctor(&["--listen", &address]).fault(
        "ports",
        "in use by another program",
        "choose another port with --listen",
    );
}

#[test]
fn a_source_without_ffmpeg() {
    let site = Site::new();
    let edge = site.edge();
    let host = site.host("camera/dock/cam1", DAY);
    let args = ["doctor", "--json", "--edge", &edge.link, "--source", "/dev/video0"];
    let found = host.command(&args).env("PATH", host.path("empty")).output().unwrap();
    findings(&found).fault("ffmpeg", "ffmpeg", "apt-get install ffmpeg");
}

#[test]
fn a_source_that_cannot_be_read() {
    let site = Site::new();
    fs::write(site.path("sound.wav"), b"RIFF").unwrap();
    site.doctor(&["--source", &site.text("missing.mp4")]).fault(
        "source",
        "there is no file",
        "check the path",
    );
    site.doctor(&["--source", "/dev/video77"]).fault("source", "there is no device /dev/video77", "");
    site.doctor(&["--source", &site.text("sound.wav")]).fault("source", "sound.wav", "");
}

#[test]
fn a_store_that_cannot_be_written_or_has_no_key() {
    let site = Site::new();
    fs::write(site.path("file"), "").unwrap();
    said(&site.run(&["store", "key"]));
    site.doctor(&["--store", &site.text("file/store")]).fault("disk", "cannot be written", "--store");
    let without = Site::new();
    without.doctor(&["--store", &without.text("store")]).fault(
        "disk",
        "no key for the store",
        "mez store key",
    );
}

/// The doctor's host has a clock that is two hours ahead. A preloaded library moves only the wall clock.
#[test]
fn a_clock_that_is_wrong() {
    let site = Site::new();
    let edge = site.edge();
    let host = site.host("camera/dock/cam1", DAY);
    let library = shifted_clock(&host, 7_210);
    let args = ["doctor", "--json", "--edge", &edge.link];
    let found = host.command(&args).env("LD_PRELOAD", &library).output().unwrap();
    findings(&found).fault("clock", "2 h behind", "timedatectl set-ntp true");
}

/// Builds a library that moves the wall clock of its process, and no other clock.
fn shifted_clock(host: &Site, seconds: i64) -> PathBuf {
    let (source, library) = (host.path("clock.c"), host.path("clock.so"));
    fs::write(&source, SHIFTED).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", &format!("-DSECONDS=({seconds})"), "-o"]);
    said(&compiler.args([&library, &source]).arg("-ldl").output().unwrap());
    library
}

const SHIFTED: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, at);
    if (clock == CLOCK_REALTIME) at->tv_sec += SECONDS;
    return result;
}
"#;

/// The text output: a line per check, the remedy below, and the names of failed checks at the end.
#[test]
fn people_are_told_what_to_do() {
    let host = Site::new().host("app/counter", DAY);
    let nowhere = closed_port().to_string();
    let output = host.run(&["doctor", "--edge", &nowhere]);
    assert_eq!(output.status.code(), Some(1));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let line =
        out.lines().find(|line| line.starts_with("fault")).unwrap_or_else(|| panic!("no fault: {out}"));
    assert!(line.starts_with("fault    reach ") && line.contains(&nowhere), "{out}");
    assert!(out.contains("→ check that `mez edge` is running there"), "{out}");
    assert!(err.contains("1 fault: reach"), "{err}");
}

/// A bundle contains useful data, and none of the planted secrets.
#[test]
fn a_bundle_holds_no_secrets() {
    let site = Site::new();
    let edge = site.edge();
    let token = site.run(&["keys", "token", "camera/dock/cam2"]);
    let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
    assert!(token.len() > 20, "{token}");
    let host = site.host("camera/dock/cam1", DAY);
    let key = fs::read_to_string(host.path("keys/camera.dock.cam1.pem")).unwrap();
    let line_of_key = key.lines().nth(1).unwrap().to_owned();
    let log = format!(
        "started\nrtsp://gate:Tr0ub4dor@10.0.0.7/stream opened\nAuthorization: Bearer {token}\n{key}\npassword = \"Tr0ub4dor\"\n"
    );
    fs::write(host.path("mez.log"), log).unwrap();
    let bundle = host.text("report.tar.gz");
    let log = host.text("mez.log");
    let args = ["doctor", "--edge", &edge.link, "--bundle", &bundle, "--include", &log];
    let mut command = host.command(&args);
    command
        .env("MEZ_SOURCE", "rtsp://gate:Tr0ub4dor@10.0.0.7/stream")
        .env("MEZ_SOURCE_CREDENTIALS", "gate:Tr0ub4dor");
    let output = command.output().unwrap();
    assert!(output.status.code().is_some(), "{output:?}");
    assert_eq!(fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o600);
    let unpacked = Command::new("tar").args(["-xzOf", &bundle]).output().unwrap();
    let text = String::from_utf8_lossy(&unpacked.stdout).into_owned();
    let names = Command::new("tar").args(["-tzf", &bundle]).output().unwrap();
    let names = said(&names);
    for part in ["report.txt", "report.json", "host.txt", "environment.txt", "included/0-mez.log"] {
        assert!(names.contains(part), "{part} is not in {names}");
    }
    assert!(text.contains("started") && text.contains("10.0.0.7"), "what helps is there");
    for secret in ["Tr0ub4dor", &token, &line_of_key, "PRIVATE KEY-----\nM"] {
        assert!(!text.contains(secret), "{secret:?} is in the bundle");
    }
    // An existing file is not overwritten.
    let again = host.run(&args);
    assert!(String::from_utf8_lossy(&again.stderr).contains("cannot write the bundle"), "{again:?}");
}
