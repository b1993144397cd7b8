//! Keeps logs on disk: files, keys, and the writing thread. `mez_core::store` decides what is written.
//!
//! | file | what it does |
//! | --- | --- |
//! | `awaited` | publishers that wait until their records are on disk |
//! | [`aside`] | puts a log aside when its camera is reset or forgotten |
//! | [`files`] | keeps a camera's segments as files |
//! | `layout` | names files and folders |
//! | [`keys`] | finds the keys |
//! | [`remembered`] | keeps facts about a log outside of it |
//! | [`check`] | checks a whole log, and copies what can be read |
//! | [`keeper`] | the thread that writes |
//! | `replicas` | the logs of all cameras of an edge |

pub mod aside;
mod awaited;
pub mod check;
pub mod files;
pub mod keeper;
pub mod keys;
mod layout;
pub mod remembered;
pub(crate) mod replicas;

use std::path::{Path, PathBuf};
use std::time::Duration;

use mez_core::log::Cursor;
use mez_core::name::CameraName;
use mez_core::store::{
    Durability, KeyRing, Recovery, RecoveryConfig, RecoveryError, RecoveryReport, Resume, StoreConfig,
    StoreWriter, recover,
};
use mez_core::units::Timestamp;
use tracing::{info, warn};

pub use self::awaited::{AWAITED_MAX, NotOnDisk, ON_DISK_TIME_MAX};
pub use self::check::{LogCheck, RepairLogError, check_log, has_log, repair_log};
pub use self::files::{Exposed, LogFiles, OpenLogError, cameras_in, exposed};
pub use self::keeper::LogKeeper;
pub use self::layout::LogKind;
pub use self::remembered::find_remembered;
use crate::clock::{monotonic_now, wall_now};

/// The longest time that a broker reads its logs before it serves. Frames that are unread by then stay on disk.
pub const RECOVERY_TIME_MAX: Duration = Duration::from_secs(1);
/// How far the log's newest frame may be ahead of this host's clock before a warning is logged.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(10);
/// The file in the state folder that lists the segments of the log of frames.
pub(crate) const BOUNDS: &str = LogKind::Frames.folder();
/// The divisor of a camera's limit on disk that gives the limit of its notes.
const NOTES_SHARE: u64 = 16;
/// The smallest limit on disk for notes: a few segments.
const NOTES_BYTES_MIN: u64 = 4 << 20;

/// How logs are kept on disk.
#[derive(Clone, Debug)]
pub struct PersistOptions {
    /// The store folder. Each camera gets a folder in it.
    pub folder: PathBuf,
    /// The keys. The newest one is used for writing.
    pub keys: KeyRing,
    /// When records are synced to protect them against a power cut. Default: every second.
    pub durability: Durability,
    /// The most bytes on disk per camera. Default 4 GiB.
    pub disk_bytes_max: u64,
    /// How long frames are kept on disk. Default: until room is needed.
    pub disk_age_max: Option<Duration>,
    /// Whether an edge also keeps notes: replies, changes of contracts and of the source. They get 1/16 of
    /// a camera's bytes, but at least 4 MiB and at most half. Default true. A camera broker keeps no notes.
    pub notes: bool,
}

impl PersistOptions {
    /// The defaults.
    pub fn new(folder: PathBuf, keys: KeyRing) -> Self {
        Self {
            folder,
            keys,
            durability: Durability::default(),
            disk_bytes_max: 4 << 30,
            disk_age_max: None,
            notes: true,
        }
    }

    /// Splits a camera's limit on disk between frames and notes. The second value is `None` if no notes are kept.
    pub(crate) fn split(self) -> (Self, Option<Self>) {
        if !self.notes {
            return (self, None);
        }
        let notes = (self.disk_bytes_max / NOTES_SHARE).max(NOTES_BYTES_MIN).min(self.disk_bytes_max / 2);
        let frames = self.disk_bytes_max - notes;
        (Self { disk_bytes_max: frames, ..self.clone() }, Some(Self { disk_bytes_max: notes, ..self }))
    }

    fn config(&self, camera: &CameraName, kind: LogKind) -> StoreConfig {
        StoreConfig {
            durability: self.durability,
            disk_age_max: self.disk_age_max,
            ..StoreConfig::new(camera.clone(), kind.keys(&self.keys), self.disk_bytes_max)
        }
    }
}

/// Why a log on disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    /// Its folder could not be opened.
    #[error(transparent)]
    Open(#[from] OpenLogError),
    /// Its content could not be recovered.
    #[error("the log of camera {camera} in {}: {source}", folder.display())]
    Recover {
        /// The camera.
        camera: CameraName,
        /// The folder of its log.
        folder: PathBuf,
        /// The error.
        source: RecoveryError,
    },
    /// The store folder could not be listed.
    #[error("cannot look for frames in {}: {source}; give a readable folder with --store", folder.display())]
    List {
        /// The folder.
        folder: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The writing thread could not be started.
    #[error("cannot start the thread that writes logs to disk: {0}")]
    Thread(#[source] std::io::Error),
}

/// A camera's log on disk, recovered and ready for writing.
pub struct OpenLog {
    camera: CameraName,
    files: LogFiles,
    resume: Resume,
    config: StoreConfig,
}

impl OpenLog {
    /// Opens the log of a camera's frames, and reads the newest records: at most
    /// `bytes_max`, for at most `time_max`. `state` is the camera's state folder.
    pub fn open(
        options: &PersistOptions,
        camera: &CameraName,
        state: &Path,
        limits: (u64, Duration),
    ) -> Result<(Self, Recovery), PersistError> {
        Self::open_kind(options, (camera, LogKind::Frames), state, limits)
    }

    /// Opens a log of any kind, like [`OpenLog::open`].
    pub(crate) fn open_kind(
        options: &PersistOptions,
        (camera, kind): (&CameraName, LogKind),
        state: &Path,
        (bytes_max, time_max): (u64, Duration),
    ) -> Result<(Self, Recovery), PersistError> {
        let mut files = LogFiles::open_kind(&options.folder, camera, kind, state.join(kind.folder()))?;
        let keys = &kind.keys(&options.keys);
        let config = RecoveryConfig { camera, keys, bytes_max, time_max };
        let begun = monotonic_now();
        let mut recovery = recover(&mut files, config, monotonic_now).map_err(|source| {
            PersistError::Recover { camera: camera.clone(), folder: files.folder().into(), source }
        })?;
        let took = monotonic_now().saturating_since(begun);
        report((camera, kind), files.folder(), &recovery.report, took);
        let resume = std::mem::take(&mut recovery.resume);
        let log = Self {
            camera: camera.clone(),
            files,
            config: options.config(camera, kind),
            resume: resume.clone(),
        };
        recovery.resume = resume;
        Ok((log, recovery))
    }

    /// A writer for the records that `cursor` returns from now on.
    pub fn writer(self, cursor: Cursor) -> (CameraName, StoreWriter<LogFiles>) {
        let Self { camera, files, resume, config } = self;
        (camera, StoreWriter::new(files, config, resume, cursor, monotonic_now(), wall_now()))
    }
}

/// How far a log's newest frame is ahead of `now`, if this is more than the usual difference between clocks of hosts.
fn ahead_of_clock(newest: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let ahead = newest?.saturating_since(now);
    (ahead > CLOCKS_DIFFER_MAX).then_some(ahead)
}

/// Logs the result of a recovery.
fn report((camera, kind): (&CameraName, LogKind), folder: &Path, report: &RecoveryReport, took: Duration) {
    let what = kind.words().one;
    let RecoveryReport { records, payload_bytes, segments, segments_unread, .. } = report;
    let took_ms = took.as_millis() as u64;
    info!(%camera, what, records, payload_bytes, segments, segments_unread, took_ms, "the log on disk was read");
    for damage in &report.damages {
        warn!(%camera, what, "the log on disk is damaged here, and readers do not get these records: {damage}");
    }
    for strange in &report.strange {
        warn!(%camera, what, "a segment of the log on disk is ignored, and not changed: {strange}");
    }
    if report.mended > 0 {
        warn!(%camera, what, segments = report.mended, "a damaged byte in segment headers was corrected while reading");
    }
    let named = report.damages.len() + report.strange.len();
    let lost = report.records_lost();
    if named > 0 || lost > 0 {
        let folder = folder.display();
        let more = (report.damaged + report.strange_segments).saturating_sub(named as u64);
        warn!(
            %camera, %folder, more, lost,
            "{what}s of the log on disk are lost; readers get all other {what}s, and are told that these are damaged; `mez store verify` lists the \
             damage, `mez store repair` copies the rest"
        );
    }
    if report.torn_bytes > 0 {
        let bytes = report.torn_bytes;
        info!(%camera, what, bytes, "the last record is incomplete, because the broker stopped or the power failed while it was written; this is not damage");
    }
    if let Some(ahead) = ahead_of_clock(report.newest_captured, wall_now()) {
        warn!(
            %camera, ?ahead,
            "the newest {what} of the log is ahead of this host's clock: the clock was set back, or the camera's clock is wrong; frames keep their \
             order, and some capture times occur twice"
        );
    }
    if report.expired > 0 {
        warn!(%camera, what, segments = report.expired, "expired segments were found again, and were removed");
    }
    if report.missing > 0 {
        warn!(
            %camera, what,
            segments = report.missing, records = report.lost_newest,
            "the newest segments of the log are missing: the log is an older copy, or somebody removed them"
        );
    }
    if report.missing == 0 && report.lost_newest > 0 {
        let records = report.lost_newest;
        warn!(%camera, what, records, "the end of the log is missing: somebody removed it, or it is damaged");
    }
    if report.lost_oldest > 0 {
        let records = report.lost_oldest;
        warn!(%camera, what, records, "the beginning of the log is missing although it had not expired: somebody removed it, or it is damaged");
    }
    if report.bounds_lost {
        warn!(%camera, what, "the folder for state has no information about this log, so a missing part of the log cannot be detected");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_notes_share_the_bytes_of_a_camera() {
        let keys = KeyRing::new(vec![mez_core::store::MasterKey::new([1; 32])]).unwrap();
        for (bytes, expected) in [(4 << 30, 256 << 20), (16 << 20, 4 << 20), (1 << 20, 1 << 19)] {
            let options =
                PersistOptions { disk_bytes_max: bytes, ..PersistOptions::new("x".into(), keys.clone()) };
            let (frames, notes) = options.clone().split();
            let notes = notes.expect("notes are kept unless somebody says otherwise");
            assert_eq!((notes.disk_bytes_max, frames.disk_bytes_max), (expected, bytes - expected));
            let (frames, notes) = PersistOptions { notes: false, ..options }.split();
            assert_eq!((frames.disk_bytes_max, notes.is_none()), (bytes, true));
        }
    }

    #[test]
    fn a_clock_that_was_set_back_is_told_of() {
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
        let hour = Duration::from_secs(3600);
        assert_eq!(ahead_of_clock(Some(at(10_000)), at(6_400)), Some(hour));
        assert_eq!(
            ahead_of_clock(Some(at(10_000)), at(9_999)),
            None,
            "clocks of two hosts are never the same"
        );
        assert_eq!(ahead_of_clock(Some(at(10_000)), at(20_000)), None);
        assert_eq!(ahead_of_clock(None, at(1)), None, "an empty log");
    }
}
