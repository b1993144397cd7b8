//! Keeps facts about a log in the state folder, so that a missing or outdated part of the log is noticed (`docs/log-format.md`).
//!
//! A copy of the log does not contain these files. `@log` says which segments exist, and in which folder; it is replaced rarely,
//! atomically and durably. `@log.progress` says how far the writer has written; it is overwritten after every batch, without a sync.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mez_core::frame::Epoch;
use mez_core::name::CameraName;
use mez_core::store::{Bounds, Progress, SegmentNumber, checksum};

use super::layout::{LogKind, log_folder};
use crate::state::{camera_folder, edge_folder, write_durably};

/// Length of the system's boot ID, a UUID.
const RUN_BYTES: usize = 36;

/// The content of the file `@log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) bounds: Bounds,
    /// The folder of the log that this file describes.
    pub(super) folder: Option<PathBuf>,
}

/// Reads a bounds file. `None` if it does not exist.
pub(super) fn read(path: &Path) -> io::Result<Option<Remembered>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(source),
    };
    let damaged = "it does not say which segments the log has; remove it to use the log as it is";
    parse(&text).map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, damaged))
}

fn parse(text: &str) -> Option<Remembered> {
    let (numbers, folder) = text.split_once('\n').unwrap_or((text, ""));
    let mut words = numbers.split(' ').map(|word| (word != "-").then(|| word.parse::<u64>().ok()));
    let mut number = || words.next().unwrap_or(None);
    let (oldest, next) = (number()??, number()??);
    // Optional: earlier versions did not write these two.
    let mut known = || number().map_or(Some(None), |number| number.map(Some));
    let (first_index, epoch) = (known()?, known()?.map(Epoch));
    let folder = folder.trim_end_matches('\n');
    (oldest <= next).then(|| Remembered {
        bounds: Bounds { oldest: SegmentNumber(oldest), next: SegmentNumber(next), first_index, epoch },
        folder: (!folder.is_empty()).then(|| folder.into()),
    })
}

/// Writes a bounds file, durably.
pub(super) fn write(path: &Path, remembered: &Remembered) -> io::Result<()> {
    let Remembered { bounds, folder } = remembered;
    let known = |number: Option<u64>| number.map_or("-".into(), |number| number.to_string());
    let (first, epoch) = (known(bounds.first_index), known(bounds.epoch.map(|epoch| epoch.0)));
    // A folder name that is not UTF-8, or that has a line break, is written as unknown.
    let place = folder.as_deref().and_then(Path::to_str).filter(|place| !place.contains('\n')).unwrap_or("");
    let text = format!("{} {} {first} {epoch}\n{place}\n", bounds.oldest.0, bounds.next.0);
    write_durably(path.parent().unwrap_or(Path::new(".")), path, text.as_bytes())
}

/// Finds the bounds file of a camera's log below the store folder `root`: the file in the folder `state` that names the log's folder. If
/// `explicit`, the user has named `state`, and a file that names another folder is accepted too, because the log may have been moved.
pub fn find_remembered(
    state: &Path,
    explicit: bool,
    root: &Path,
    (camera, kind): (&CameraName, LogKind),
) -> Option<PathBuf> {
    let place = fs::canonicalize(log_folder(root, camera, kind)).ok();
    let files = [camera_folder(state, camera), edge_folder(state, camera)].map(|of| of.join(kind.folder()));
    let found: Vec<_> = files.into_iter().filter_map(|path| Some((read(&path).ok()??, path))).collect();
    let speaks_of_it = found.iter().find(|(remembered, _)| place.is_some() && remembered.folder == place);
    if let Some((_, path)) = speaks_of_it {
        return Some(path.clone());
    }
    if !explicit {
        return None;
    }
    match &found[..] {
        [(_, path)] => Some(path.clone()),
        // Both brokers have kept a log of this camera. A lock in the store folder shows that an edge used it.
        [(_, of_camera), (_, of_edge)] => {
            let edge = root.join(super::layout::EDGE_LOCK).exists();
            Some(if edge { of_edge.clone() } else { of_camera.clone() })
        }
        _ => None,
    }
}

/// The file `@log.progress`, which says how far the writer has written.
pub(super) struct ProgressFile {
    path: PathBuf,
    /// Open after the first write.
    file: Option<File>,
}

impl ProgressFile {
    /// The progress file beside a bounds file.
    pub(super) fn beside(bounds: &Path) -> Self {
        Self { path: bounds.with_extension("progress"), file: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The last written progress. `None` if it is missing or damaged.
    pub(super) fn read(&self) -> Option<Progress> {
        let text = fs::read_to_string(&self.path).ok()?;
        let (body, sum) = text.trim_end().rsplit_once(' ')?;
        let right = u32::from_str_radix(sum, 16).ok()? == checksum(body.as_bytes());
        let mut words = body.split(' ').filter(|_| right);
        let mut number = || words.next()?.parse::<u64>().ok();
        let (segment, durable, written) = (SegmentNumber(number()?), number()?, number()?);
        // In the same run of the system there was no power cut, so everything written is still there.
        let same_run = words.next().is_some_and(|run| Some(run.to_owned()) == run_of_system());
        Some(Progress { segment, durable, written: same_run.then_some(written) })
    }

    /// Overwrites the content in place. The length is constant, so that a reader never finds the rest of a longer content.
    pub(super) fn write(&mut self, progress: &Progress) -> io::Result<()> {
        let Progress { segment, durable, written } = progress;
        let run = run_of_system().unwrap_or_else(|| "-".into());
        let written = written.unwrap_or(*durable);
        let body = format!("{:020} {durable:020} {written:020} {run:<RUN_BYTES$}", segment.0);
        let text = format!("{body} {:08x}\n", checksum(body.as_bytes()));
        let file = match self.file.take() {
            Some(file) => file,
            None => File::options().write(true).create(true).truncate(false).mode(0o600).open(&self.path)?,
        };
        self.file.insert(file).write_all_at(text.as_bytes(), 0)
    }

    /// Syncs the file.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }
}

/// The ID of the system's current boot.
fn run_of_system() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = text.trim();
    (!id.is_empty() && id.len() <= RUN_BYTES && !id.contains(' ')).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Bounds {
        Bounds {
            oldest: SegmentNumber(3),
            next: SegmentNumber(32),
            first_index: Some(900),
            epoch: Some(Epoch(4)),
        }
    }

    #[test]
    fn bounds_are_read_as_they_were_written_and_by_earlier_versions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("@log");
        assert_eq!(read(&path).unwrap(), None);
        for bounds in [bounds(), Bounds { first_index: None, epoch: None, ..bounds() }] {
            for place in [None, Some("/var/lib/mez log".into())] {
                let remembered = Remembered { bounds, folder: place };
                write(&path, &remembered).unwrap();
                assert_eq!(read(&path).unwrap(), Some(remembered));
            }
        }
        fs::write(&path, "3 32\n").unwrap();
        let bounds = Bounds { first_index: None, epoch: None, ..bounds() };
        assert_eq!(read(&path).unwrap(), Some(Remembered { bounds, folder: None }));
        for text in ["", "3", "32 3", "3 x", "3 32 x 1", "-1 2", "- 2"] {
            fs::write(&path, text).unwrap();
            assert!(read(&path).is_err(), "{text:?}");
        }
    }

    #[test]
    fn progress_is_believed_if_it_is_whole_and_what_was_written_if_the_system_runs_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = ProgressFile::beside(&folder.path().join("@log"));
        assert_eq!(file.read(), None);
        for written in [10, 5_000_000_000] {
            let progress = Progress { segment: SegmentNumber(7), durable: 8, written: Some(written) };
            file.write(&progress).unwrap();
            assert_eq!(file.read(), Some(progress));
        }
        let text = fs::read_to_string(file.path()).unwrap();
        for place in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[place] = if bytes[place] == b'1' { b'2' } else { b'1' };
            fs::write(file.path(), bytes).unwrap();
            assert_eq!(file.read(), None, "byte {place}");
        }
        // Written by another run of the system.
        let body = "00000000000000000007 00000000000000000008 00000000000000000010 another                             ";
        fs::write(file.path(), format!("{body} {:08x}\n", checksum(body.as_bytes()))).unwrap();
        assert_eq!(file.read(), Some(Progress { segment: SegmentNumber(7), durable: 8, written: None }));
    }

    #[test]
    fn a_log_finds_what_is_remembered_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let (state, camera) = (folder.path().join("state"), "dock/cam1".parse::<CameraName>().unwrap());
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let place = |root: &Path| {
            fs::create_dir_all(super::log_folder(root, &camera, LogKind::Frames)).unwrap();
            fs::canonicalize(super::log_folder(root, &camera, LogKind::Frames)).ok()
        };
        let find =
            |explicit, root: &Path| find_remembered(&state, explicit, root, (&camera, LogKind::Frames));
        let (of_camera, of_edge) = (camera_folder(&state, &camera), edge_folder(&state, &camera));
        fs::create_dir_all(&of_camera).unwrap();
        fs::create_dir_all(&of_edge).unwrap();
        assert_eq!(find(true, &one), None);
        write(&of_camera.join("@log"), &Remembered { bounds: bounds(), folder: place(&one) }).unwrap();
        assert_eq!(find(false, &one), Some(of_camera.join("@log")));
        // The bounds file names another folder, so it counts for a copy only if `explicit`.
        place(&other);
        assert_eq!(find(false, &other), None);
        assert_eq!(find(true, &other), Some(of_camera.join("@log")));
        write(&of_edge.join("@log"), &Remembered { bounds: bounds(), folder: place(&other) }).unwrap();
        assert_eq!(find(false, &other), Some(of_edge.join("@log")));
        assert_eq!(find(false, &one), Some(of_camera.join("@log")));
    }
}
