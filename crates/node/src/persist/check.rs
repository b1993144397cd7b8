//! Checks whole logs, and copies what can be read of them. `mez_core::store::verify` decides what is damage.

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

/// What was found of a camera's log.
#[derive(Clone, Debug)]
pub struct LogCheck {
    /// The camera.
    pub camera: CameraName,
    /// Which of its logs.
    pub kind: LogKind,
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

/// Whether the folder of logs `root` has such a log of a camera.
pub fn has_log(root: &Path, camera: &CameraName, kind: LogKind) -> bool {
    LogFiles::reader_of(root, camera, kind, None).exist()
}

/// Reads and checks a camera's log in the folder of logs `root`, also while a broker writes it; with `payloads`, every byte of it. `keys` are
/// those of the frames. `remembered` is the file that [`super::find_remembered`] has found.
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

/// Copies all that can be read of a camera's log into the folder of logs `out`, durably, and changes nothing in `root`. `keys` are those of
/// the frames.
pub fn repair_log(
    root: &Path,
    (camera, kind): (&CameraName, LogKind),
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
    /// How many things are wrong: with the log, and with who may write it.
    pub fn wrong(&self) -> u64 {
        self.report.wrong + self.exposed.len() as u64
    }

    /// A finding, in words.
    pub fn says(&self, finding: &Finding) -> String {
        finding.of(self.kind.words()).to_string()
    }

    /// As JSON, on one line. The log of notes counts `notes` where that of frames counts `frames`.
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
