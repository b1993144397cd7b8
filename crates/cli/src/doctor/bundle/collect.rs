//! Collects what support needs: findings, the configuration of this host, and metrics and logs of its brokers.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use mez_node::api::SOFTWARE;
use mez_node::client::{ClientOptions, EdgeClient};
use mez_node::clock::monotonic_now;
use mez_node::identity::{KeyFolder, Role};
use mez_node::persist::cameras_in;
use mez_node::rights::RIGHTS;
use mez_node::runtime::{block_on, within};

use super::super::finding::{Finding, lines, report};
use super::super::subject::{Side, Subject};
use crate::camera_row::to_json;

/// The most bytes from the end of a log.
const LOG_BYTES_MAX: u64 = 4 << 20;
/// The longest time for a program.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(10);
/// The longest time for an edge to list its cameras.
const CAMERAS_TIME_MAX: Duration = Duration::from_secs(6);
/// Variables whose values are no secrets. Of Mez's other variables, only names are included.
const TOLD: [&str; 4] = ["PATH", "HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"];
const UNTOLD: [&str; 2] = ["MEZ_STORE_KEY", "MEZ_SOURCE_CREDENTIALS"];

/// All texts of a bundle, with their names.
pub(super) fn all(subject: &Subject, findings: &[Finding], include: &[PathBuf]) -> Vec<(String, String)> {
    let named = |name: &str, text: String| (name.to_owned(), text);
    let mut texts = vec![
        named("report.txt", lines(findings, None).join("\n") + "\n"),
        named("report.json", format!("{:#}\n", report(findings))),
        named("host.txt", host()),
        named("configuration/environment.txt", environment()),
        named("configuration/keys.txt", keys(subject)),
        named("configuration/rights.toml", rights(subject)),
        named("metrics/cameras.jsonl", cameras(subject)),
        named("metrics/network.txt", files(&["/proc/net/snmp", "/proc/net/sockstat", "/proc/net/dev"])),
        named("metrics/disk.txt", disk(subject)),
        named(
            "logs/journal.txt",
            said_by("journalctl", &["--no-pager", "-n", "5000", "-o", "short-iso", "-t", "mez"]),
        ),
    ];
    texts.extend(Side::ALL.into_iter().filter_map(|side| {
        let file = subject.settings.file(side)?;
        Some((format!("configuration/{}.toml", side.role().name()), end_of(file)))
    }));
    texts.extend(include.iter().enumerate().map(|(number, path)| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        (format!("included/{number}-{name}"), end_of(path))
    }));
    texts
}

fn host() -> String {
    let system = rustix::system::uname();
    let (release, machine) = (system.release().to_string_lossy(), system.machine().to_string_lossy());
    let mut out = format!("{SOFTWARE}\nLinux {release} {machine}\n");
    out += &files(&["/etc/os-release", "/proc/loadavg", "/proc/uptime", "/proc/meminfo", "/proc/cpuinfo"]);
    out + &said_by("ffmpeg", &["-version"])
}

fn environment() -> String {
    let mut out = String::new();
    for (name, value) in
        env::vars().filter(|(name, _)| name.starts_with("MEZ_") || TOLD.contains(&name.as_str()))
    {
        let told = if UNTOLD.contains(&name.as_str()) { "(set)" } else { &value };
        let _ = writeln!(out, "{name}={told}");
    }
    out
}

/// The key folder: names, modes and certificates, but no keys.
fn keys(subject: &Subject) -> String {
    let mut out = String::new();
    if let Ok(folder) = KeyFolder::location(subject.keys_given.as_deref()) {
        let _ = writeln!(out, "{}", folder.display());
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let (mode, name) = (metadata.permissions().mode() & 0o7777, entry.file_name());
            let _ = writeln!(out, "{mode:04o} {:>8} {}", metadata.len(), name.to_string_lossy());
        }
    }
    match &subject.keys {
        Ok(keys) => {
            let _ = writeln!(out, "site {}, {}, {}", keys.site(), keys.fingerprint(), keys.validity());
            for file in keys.identity_files().unwrap_or_default() {
                let _ = match &file.content {
                    Ok(held) => writeln!(
                        out,
                        "{}, serial {}, {}",
                        held.identity(),
                        held.facts().serial,
                        held.validity()
                    ),
                    Err(error) => writeln!(out, "{error}"),
                };
            }
        }
        Err(error) => {
            let _ = writeln!(out, "{error}");
        }
    }
    out
}

fn rights(subject: &Subject) -> String {
    let file = subject.keys.as_ref().ok().map(|keys| keys.path().join(RIGHTS));
    file.map_or_else(String::new, |file| end_of(&file))
}

/// The cameras of each edge, as lines of JSON like those of `mez cameras --json`.
fn cameras(subject: &Subject) -> String {
    let mut out = String::new();
    for address in &subject.edges {
        let credentials = subject.usable(Role::App);
        if address.as_unix().is_none() && credentials.is_none() {
            continue;
        }
        let options = ClientOptions { application: "mez doctor".into(), patience: Duration::ZERO };
        let asked = block_on(within(CAMERAS_TIME_MAX, async {
            let edge = EdgeClient::connect(vec![address.clone()], credentials, options).await?;
            edge.cameras(None).await
        }));
        let _ = match asked {
            Ok(Some(Ok(cameras))) => {
                let now = monotonic_now();
                cameras.iter().try_for_each(|camera| writeln!(out, "{}", to_json(camera, now)))
            }
            Ok(Some(Err(error))) => writeln!(out, "{}", serde_json::json!({ "error": error.to_string() })),
            Ok(None) | Err(_) => {
                writeln!(out, "{}", serde_json::json!({ "error": format!("no answer from {address}") }))
            }
        };
    }
    out
}

fn disk(subject: &Subject) -> String {
    let mut out = said_by("df", &["-P"]);
    for store in &subject.stores {
        for camera in cameras_in(&store.folder).unwrap_or_default() {
            let _ = writeln!(out, "{}: frames of {camera}", store.folder.display());
        }
    }
    out
}

fn files(paths: &[&str]) -> String {
    paths.iter().map(|path| format!("== {path}\n{}\n", end_of(Path::new(path)))).collect()
}

/// The end of a file, or the error of reading it.
fn end_of(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        if length > LOG_BYTES_MAX {
            file.seek(SeekFrom::Start(length - LOG_BYTES_MAX))?;
        }
        let mut bytes = Vec::new();
        file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("cannot read {}: {error}\n", path.display()))
}

/// The output of a program of this host, within its time limit.
fn said_by(program: &str, args: &[&str]) -> String {
    let command = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match command {
        Ok(child) => child,
        Err(error) => return format!("{program}: {error}\n"),
    };
    let Some(out) = child.stdout.take() else { return String::new() };
    let (sender, said) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.take(LOG_BYTES_MAX).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    let bytes = said.recv_timeout(COMMAND_TIME_MAX).unwrap_or_default();
    let _ = child.kill();
    let _ = child.wait();
    String::from_utf8_lossy(&bytes).into_owned()
}
