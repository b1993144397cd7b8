//! Checks whole logs, and copies what can be read of them. `mez_core::store::verify` decides what is damage.

use std::path::{Path, PathBuf};

use mez_core::name::CameraName;
use mez_core::store::{
    Finding, FindingKind, HeaderError, KeyRing, LogReport, Repair, RepairError, StorageError, VerifyConfig,
    repair, verify,
};
use mez_core::units::Timestamp;
use serde_json::{Value, json};

use super::files::{Exposed, LogFiles, OpenLogError, exposed};
use super::keeper::salt;

/// What was found of a camera's log.
#[derive(Clone, Debug)]
pub struct LogCheck {
    /// The camera.
    pub camera: CameraName,
    /// Where the segments are.
    pub folder: PathBuf,
    /// What its segments hold and lack.
    pub report: LogReport,
    /// Folders of the log that other users may change.
    pub exposed: Vec<Exposed>,
    /// Whether a broker writes it now.
    pub is_written: bool,
}

/// Why a log was not copied, or only in part.
#[derive(Debug, thiserror::Error)]
pub enum RepairLogError {
    /// The copy would lie within the folder of logs, or the other way round.
    #[error("{} lies within the folder of logs, or holds it; nothing is ever changed there: give another folder", .0.display())]
    Within(PathBuf),
    /// There is a log of this camera already.
    #[error("there is a log of {camera} in {} already; give a new folder", out.display())]
    Exists {
        /// The camera.
        camera: CameraName,
        /// The folder for copies.
        out: PathBuf,
    },
    /// It cannot be made.
    #[error(transparent)]
    Open(#[from] OpenLogError),
    /// Reading or writing failed.
    #[error(transparent)]
    Copy(#[from] RepairError),
    /// Making it durable failed.
    #[error(transparent)]
    Sync(#[from] StorageError),
}

fn files(root: &Path, camera: &CameraName, remembered: Option<&Path>) -> LogFiles {
    match remembered {
        Some(path) => LogFiles::reader(root, camera, path.to_owned()),
        None => LogFiles::read_only(root, camera),
    }
}

/// Reads and checks a camera's log in the folder of logs `root`, also while a broker writes it; with `payloads`, every byte of it. `remembered` is the file
/// that [`super::find_remembered`] has found.
pub fn check_log(
    root: &Path,
    camera: &CameraName,
    keys: &KeyRing,
    remembered: Option<&Path>,
    payloads: bool,
) -> Result<LogCheck, StorageError> {
    let mut files = files(root, camera, remembered);
    let config = VerifyConfig { camera, keys, payloads };
    let report = verify(&mut files, config, |_, _| Ok::<_, StorageError>(()))?;
    Ok(LogCheck {
        camera: camera.clone(),
        folder: files.folder().to_owned(),
        report,
        exposed: exposed(root, camera),
        is_written: files.is_held(),
    })
}

/// Copies all that can be read of a camera's log into the folder of logs `out`, durably, and changes nothing in `root`.
pub fn repair_log(
    root: &Path,
    camera: &CameraName,
    keys: &KeyRing,
    remembered: Option<&Path>,
    out: &Path,
) -> Result<Repair, RepairLogError> {
    // The nearest folder of the way to it that there is.
    let place = std::path::absolute(out).unwrap_or_else(|_| out.into());
    let near = place.ancestors().find_map(|folder| Some((folder, folder.canonicalize().ok()?)));
    let place = near.map_or(place.clone(), |(folder, real)| match place.strip_prefix(folder) {
        Ok(rest) => real.join(rest),
        Err(_) => real,
    });
    let original = root.canonicalize().unwrap_or_else(|_| root.into());
    if place.starts_with(&original) || original.starts_with(&place) {
        return Err(RepairLogError::Within(out.into()));
    }
    let mut from = files(root, camera, remembered);
    let mut copy = match LogFiles::create_copy(out, camera) {
        Err(OpenLogError::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(RepairLogError::Exists { camera: camera.clone(), out: out.into() });
        }
        copy => copy?,
    };
    let config = VerifyConfig { camera, keys, payloads: true };
    let repaired = repair(&mut from, config, &mut copy, &mut salt)?;
    copy.sync_all()?;
    Ok(repaired)
}

impl LogCheck {
    /// How many things are wrong: with the log, and with who may write it.
    pub fn wrong(&self) -> u64 {
        self.report.wrong + self.exposed.len() as u64
    }

    /// As JSON, on one line.
    pub fn to_json(&self) -> String {
        let report = &self.report;
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let span = |span: Option<(Timestamp, Timestamp)>| (time(span.map(|s| s.0)), time(span.map(|s| s.1)));
        let (from, to) = span(report.captured());
        let segments: Vec<Value> = report
            .segments
            .iter()
            .map(|segment| {
                let (from, to) = span(segment.captured);
                json!({
                    "segment": segment.number.to_string(),
                    "bytes": segment.bytes,
                    "frames": segment.records,
                    "frames_lost": segment.records_lost,
                    "bytes_unreadable": segment.bytes_unreadable,
                    "from": from,
                    "to": to,
                })
            })
            .collect();
        let exposed =
            self.exposed.iter().map(|exposed| json!({ "what": "exposed", "says": exposed.to_string() }));
        let findings: Vec<Value> = report.findings.iter().map(finding).chain(exposed).collect();
        json!({
            "camera": self.camera.as_str(),
            "whole": self.wrong() == 0,
            "wrong": self.wrong(),
            "frames": report.records(),
            "bytes": report.bytes(),
            "from": from,
            "to": to,
            "frames_lost": report.records_lost,
            "more_may_be_lost": report.more_may_be_lost,
            "bytes_unreadable": report.bytes_unreadable(),
            "bytes_torn": report.torn_bytes,
            "is_written": self.is_written,
            "state_known": report.bounds_known && report.progress_known,
            "findings": findings,
            "segments": segments,
        })
        .to_string()
    }
}

fn finding(finding: &Finding) -> Value {
    let what = match &finding.kind {
        FindingKind::Header(HeaderError::NotAFile) => "not_a_file",
        FindingKind::Header(_) => "header",
        FindingKind::Mended { .. } => "header_mended",
        FindingKind::Damaged(_) => "damaged",
        FindingKind::Short => "cut_off",
        FindingKind::Missing { .. } => "missing",
        FindingKind::OlderCopy { .. } => "older_copy",
    };
    json!({
        "what": what,
        "segment": finding.segment.to_string(),
        "offset": finding.offset,
        "bytes": finding.bytes,
        "record": finding.index,
        "frames_lost": finding.records,
        "captured_after": finding.after.map(|time| time.to_string()),
        "captured_before": finding.before.map(|time| time.to_string()),
        "says": finding.to_string(),
    })
}
