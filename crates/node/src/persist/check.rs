//! Checks whole logs, and copies their readable records. `mez_core::store::verify` decides what counts as damage.

use std::path::{Path, PathBuf};

use mez_core::name::CameraName;
use mez_core::store::{
    Finding, FindingKind, HeaderError, KeyRing, LogReport, RecordWords, Repair, RepairError, StorageError,
    VerifyConfig, repair, verify,
};
use mez_core::units::Timestamp;
use serde_json::{Value, json};

use super::files::{Exposed, LogFiles, OpenLogError, exposed};
use super::keeper::salt;
use super::layout::LogKind;

/// The result of checking one log of a camera.
#[derive(Clone, Debug)]
pub struct LogCheck {
    /// The camera.
    pub camera: CameraName,
    /// The kind of the log.
    pub kind: LogKind,
    /// The folder of its segments.
    pub folder: PathBuf,
    /// The state of its segments.
    pub report: LogReport,
    /// Folders of the log that other users may change.
    pub exposed: Vec<Exposed>,
    /// Whether a broker is writing it.
    pub is_written: bool,
}

/// Why a log was not copied, or only partly.
#[derive(Debug, thiserror::Error)]
pub enum RepairLogError {
    /// The copy would be inside the store folder, or the store folder inside the copy.
    #[error("{} is inside the folder of logs, or contains it; the logs are never changed, so give another folder", .0.display())]
    Within(PathBuf),
    /// The target folder has such a log of this camera already.
    #[error("a log of {camera} already exists in {}; give a new folder", out.display())]
    Exists {
        /// The camera.
        camera: CameraName,
        /// The target folder.
        out: PathBuf,
    },
    /// The copy could not be created.
    #[error(transparent)]
    Open(#[from] OpenLogError),
    /// Reading or writing failed.
    #[error(transparent)]
    Copy(#[from] RepairError),
    /// Syncing the copy failed.
    #[error(transparent)]
    Sync(#[from] StorageError),
}

/// Whether the store folder `root` has a log of this kind for the camera.
pub fn has_log(root: &Path, camera: &CameraName, kind: LogKind) -> bool {
    LogFiles::reader_of(root, camera, kind, None).exist()
}

/// Reads and checks a camera's log in the store folder `root`. A broker may be writing it. With `payloads`, every payload
/// is checked too. `keys` are the keys of the frames. `remembered` is the file found by [`super::find_remembered`].
pub fn check_log(
    root: &Path,
    (camera, kind): (&CameraName, LogKind),
    keys: &KeyRing,
    remembered: Option<&Path>,
    payloads: bool,
) -> Result<LogCheck, StorageError> {
    let mut files = LogFiles::reader_of(root, camera, kind, remembered.map(Path::to_owned));
    let keys = &kind.keys(keys);
    let config = VerifyConfig { camera, keys, payloads };
    let report = verify(&mut files, config, |_, _| Ok::<_, StorageError>(()))?;
    Ok(LogCheck {
        camera: camera.clone(),
        kind,
        folder: files.folder().to_owned(),
        report,
        exposed: exposed(root, camera, kind),
        is_written: files.is_held(),
    })
}

/// Copies all readable records of a camera's log into the store folder `out`,
/// durably. Nothing in `root` is changed. `keys` are the keys of the frames.
pub fn repair_log(
    root: &Path,
    (camera, kind): (&CameraName, LogKind),
    keys: &KeyRing,
    remembered: Option<&Path>,
    out: &Path,
) -> Result<Repair, RepairLogError> {
    // `out` may not exist yet, so its nearest existing ancestor is canonicalised.
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
    let mut from = LogFiles::reader_of(root, camera, kind, remembered.map(Path::to_owned));
    let mut copy = match LogFiles::create_copy(out, camera, kind) {
        Err(OpenLogError::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(RepairLogError::Exists { camera: camera.clone(), out: out.into() });
        }
        copy => copy?,
    };
    let keys = &kind.keys(keys);
    let config = VerifyConfig { camera, keys, payloads: true };
    let repaired = repair(&mut from, config, &mut copy, &mut salt)?;
    copy.sync_all()?;
    Ok(repaired)
}

impl LogCheck {
    /// The number of problems: of the log, and of its permissions.
    pub fn wrong(&self) -> u64 {
        self.report.wrong + self.exposed.len() as u64
    }

    /// A finding, as text.
    pub fn says(&self, finding: &Finding) -> String {
        finding.of(self.kind.words()).to_string()
    }

    /// The result as one line of JSON. The log of notes has `notes` in its names where the log of frames has `frames`.
    pub fn to_json(&self) -> String {
        let report = &self.report;
        let records = format!("{}s", self.kind.words().one);
        let lost = format!("{records}_lost");
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
                    records.as_str(): segment.records,
                    lost.as_str(): segment.records_lost,
                    "bytes_unreadable": segment.bytes_unreadable,
                    "from": from,
                    "to": to,
                })
            })
            .collect();
        let exposed =
            self.exposed.iter().map(|exposed| json!({ "what": "exposed", "says": exposed.to_string() }));
        let findings: Vec<Value> =
            report.findings.iter().map(|found| self.finding(found)).chain(exposed).collect();
        json!({
            "camera": self.camera.as_str(),
            "whole": self.wrong() == 0,
            "wrong": self.wrong(),
            "log": records.as_str(),
            records.as_str(): report.records(),
            "bytes": report.bytes(),
            "from": from,
            "to": to,
            lost.as_str(): report.records_lost,
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

    fn finding(&self, finding: &Finding) -> Value {
        let what = match &finding.kind {
            FindingKind::Header(HeaderError::NotAFile) => "not_a_file",
            FindingKind::Header(_) => "header",
            FindingKind::Mended { .. } => "header_mended",
            FindingKind::Damaged(_) => "damaged",
            FindingKind::Short => "cut_off",
            FindingKind::Missing { .. } => "missing",
            FindingKind::OlderCopy { .. } => "older_copy",
        };
        let RecordWords { one, timed } = self.kind.words();
        json!({
            "what": what,
            "segment": finding.segment.to_string(),
            "offset": finding.offset,
            "bytes": finding.bytes,
            "record": finding.index,
            format!("{one}s_lost"): finding.records,
            format!("{timed}_after"): finding.after.map(|time| time.to_string()),
            format!("{timed}_before"): finding.before.map(|time| time.to_string()),
            "says": self.says(finding),
        })
    }
}
