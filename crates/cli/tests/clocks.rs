//! Clocks that are wrong by a year, on either side: no connection is accepted, and the message names the clock.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use mez_node::identity::{Credentials, Identity, SiteAuthority, Validity};
use tempfile::TempDir;

const MEZ: &str = env!("CARGO_BIN_EXE_mez");
const DAY: Duration = Duration::from_secs(24 * 3600);
const YEAR_S: i64 = 365 * 24 * 3600;

/// Moves the wall clock of a process that loads it, and no other clock.
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

/// A host with a key folder and a clock.
struct Host {
    folder: TempDir,
    /// The library that moves the clock. `None` if the clock is right.
    clock: Option<PathBuf>,
}

/// A process that ends with the test.
struct Running(Child, String);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn field(&self, name: &str) -> &str {
        let field = self.1.split_whitespace().find_map(|field| field.strip_prefix(name));
        field.unwrap_or_else(|| panic!("no {name} in {:?}", self.1))
    }
}

impl Host {
    /// The host where the site is made, with a right clock.
    fn site() -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap(), clock: None };
        let made = site.command(&["keys", "init", "--site", "test"]).output().unwrap();
        assert!(made.status.success(), "{}", text(&made));
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Another host that has joined today.
    fn joined(&self, identity: &str) -> Self {
        let host = Self { folder: tempfile::tempdir().unwrap(), clock: None };
        fs::create_dir(host.path("keys")).unwrap();
        fs::set_permissions(host.path("keys"), Permissions::from_mode(0o700)).unwrap();
        fs::copy(self.path("keys/authority.pem"), host.path("keys/authority.pem")).unwrap();
        let authority = SiteAuthority::load(&self.path("keys")).unwrap();
        let who = Identity::parse_within(authority.site(), identity).unwrap();
        let made = Credentials::issue(&authority, &who, &[], Validity::from(SystemTime::now(), DAY)).unwrap();
        let file = host.path("keys").join(format!("{}.pem", identity.replace('/', ".")));
        fs::write(&file, format!("{}{}", made.key_pem(), made.chain_pem())).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        host
    }

    /// The same host with another clock.
    fn off_by(mut self, seconds: i64) -> Self {
        let (source, library) = (self.path("clock.c"), self.path("clock.so"));
        fs::write(&source, SHIFTED).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", &format!("-DSECONDS=({seconds})"), "-o"]);
        let made = compiler.args([&library, &source]).arg("-ldl").output().unwrap();
        assert!(made.status.success(), "{}", text(&made));
        self.clock = Some(library);
        self
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(MEZ);
        command.args(args).current_dir(self.folder.path()).env_clear();
        for name in ["PATH", "HOME"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.env("MEZ_KEYS", self.path("keys")).env("MEZ_STATE", self.path("state"));
        command.env("XDG_CONFIG_HOME", self.path("config")).env("MEZ_EDGE_SOCKET", self.path("edge.sock"));
        command.envs(self.clock.iter().map(|library| ("LD_PRELOAD", library)));
        command
    }

    fn edge(&self) -> Running {
        let mut command = self.command(&EDGE);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        Running(child, ready)
    }

    /// Runs a program that watches for a second and must be refused. Returns its output.
    fn is_refused(&self, grpc: &str) -> String {
        let output =
            self.command(&["subscribe", "dock/*", "--edge", grpc, "--seconds", "1s"]).output().unwrap();
        assert!(!output.status.success(), "it got in: {}", text(&output));
        text(&output)
    }
}

const EDGE: [&str; 7] = ["edge", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--enrol", "off"];

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Applications and cameras with a wrong clock do not connect: by their clocks, their own certificates are invalid.
#[test]
fn a_program_or_camera_with_a_wrong_clock_says_so() {
    let site = Host::site();
    let edge = site.edge();
    for years in [-1, 1] {
        let app = site.joined("app/counter").off_by(years * YEAR_S);
        let said = app.is_refused(edge.field("grpc="));
        println!("an application, {years} years: {said}");
        assert!(said.contains("clock"), "{said}");
        let camera = site.joined("camera/dock/cam1").off_by(years * YEAR_S);
        let socket = camera.path("camera.sock").display().to_string();
        let output = camera
            .command(&["camera", "dock/cam1", "--edge", edge.field("link="), "--socket", &socket])
            .output();
        let said = text(&output.unwrap());
        println!("a camera, {years} years: {said}");
        assert!(said.contains("clock") && !said.contains("ready"), "{said}");
    }
}

/// An edge with keys of its own does not start with a wrong clock. Neither does an edge with the authority and a clock in the past.
#[test]
fn an_edge_with_a_wrong_clock_does_not_start() {
    let site = Host::site();
    let hosts = [
        site.joined("edge/other").off_by(-YEAR_S),
        site.joined("edge/other").off_by(YEAR_S),
        Host::site().off_by(-YEAR_S),
    ];
    for host in hosts {
        let output = host.command(&EDGE).output().unwrap();
        let said = text(&output);
        println!("an edge: {said}");
        assert!(!output.status.success() && said.contains("clock") && !said.contains("ready"), "{said}");
    }
}

/// An edge with the authority and a clock in the future makes itself a future certificate. Clients with
/// right clocks report this, and the edge refuses clients whose certificates have expired by its own clock.
#[test]
fn an_edge_of_the_future_is_named_by_whoever_dials_it() {
    let site = Host::site();
    let (app, camera) = (site.joined("app/counter"), site.joined("camera/dock/cam1"));
    let site = site.off_by(YEAR_S);
    let edge = site.edge();
    let said = app.is_refused(edge.field("grpc="));
    println!("an application: {said}");
    assert!(said.contains("valid only from") && said.contains("set the clock"), "{said}");
    let socket = camera.path("camera.sock").display().to_string();
    let mut command =
        camera.command(&["camera", "dock/cam1", "--edge", edge.field("link="), "--socket", &socket]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let camera = Running(child, String::new());
    let told = log.lines().map_while(Result::ok).find(|line| line.contains("clock")).expect("it says why");
    println!("a camera: {told}");
    // Over QUIC, the library does not distinguish the two.
    assert!(told.contains("valid only from") || told.contains("is not valid yet"), "{told}");
    drop(camera);
    // If both clocks are in the future, they agree, but a certificate of today has expired.
    let said = app.off_by(YEAR_S).is_refused(edge.field("grpc="));
    assert!(said.contains("clock"), "{said}");
}
