//! `mez log`: what is in logs on disk, whether it is whole, and how to get it out.

mod export;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::store::{
    DamageKind, HeaderError, KeyRing, Scanned, SegmentNumber, SegmentScan, Storage, StoredRecord,
};
use mez_core::units::Timestamp;
use mez_node::persist::aside::put_aside_in;
use mez_node::persist::keys::find_log_keys;
use mez_node::persist::{LogFiles, cameras_in};

use crate::failure::Failure;
use crate::text::{bytes, table};

/// See what is in logs on disk, check that it is whole, and make videos of it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez log ls --log-dir /var/lib/mez/log               what is there, camera by camera
  mez log ls --log-dir /var/lib/mez/log 'dock/*' --segments
  mez log verify --log-dir /var/lib/mez/log           reads and checks every byte
  mez log export dock/cam1 cam1.mp4 --log-dir /var/lib/mez/log --since -10m

All work while a broker writes, and change nothing. `verify` ends with status 1 if anything is wrong.")]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the logs of cameras: frames, times, sizes
    Ls {
        #[command(flatten)]
        place: Place,
        /// Every segment by itself
        #[arg(long)]
        segments: bool,
    },
    /// Read and check every byte of logs; status 1 if anything is wrong
    Verify {
        #[command(flatten)]
        place: Place,
    },
    Export(export::ExportArgs),
}

#[derive(Debug, Args)]
struct Place {
    /// Which cameras [default: all]
    #[arg(value_name = "PATTERN")]
    pattern: Option<CameraPattern>,
    #[command(flatten)]
    folder: Folder,
}

/// Where logs are, and their keys.
#[derive(Debug, Args)]
struct Folder {
    /// The folder of logs
    #[arg(long, value_name = "DIR", env = "MEZ_LOG_DIR")]
    log_dir: PathBuf,
    /// File of keys [default: $MEZ_LOG_KEY, a systemd credential, else log.key in the folder of keys]
    #[arg(long, value_name = "FILE")]
    log_key: Option<PathBuf>,
    /// Folder of keys [default: $MEZ_KEYS, else ~/.config/mez/keys]
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
}

impl Place {
    fn cameras(&self) -> Result<(Vec<CameraName>, KeyRing), Failure> {
        let (mut cameras, keys) = self.folder.open()?;
        cameras.retain(|camera| self.pattern.as_ref().is_none_or(|pattern| pattern.matches(camera)));
        if cameras.is_empty() {
            return Err(Failure::text(format!("no log of a camera in {}", self.folder.log_dir.display())));
        }
        Ok((cameras, keys))
    }
}

impl Folder {
    /// The cameras that have a log there, and the keys.
    fn open(&self) -> Result<(Vec<CameraName>, KeyRing), Failure> {
        // First, since a folder that is not there needs no key.
        if let Err(error) = std::fs::metadata(&self.log_dir) {
            return Err(Failure::text(format!(
                "cannot read {}: {error}; give the folder of logs with --log-dir",
                self.log_dir.display()
            )));
        }
        let keys = find_log_keys(self.log_key.as_deref(), self.keys.as_deref())?;
        let unreadable = |error| Failure::text(format!("cannot read {}: {error}", self.log_dir.display()));
        Ok((cameras_in(&self.log_dir).map_err(unreadable)?, keys))
    }
}

pub(crate) fn run(args: LogArgs) -> Result<(), Failure> {
    match args.command {
        Command::Ls { place, segments } => list(&place, segments),
        Command::Verify { place } => verify(&place),
        Command::Export(args) => export::run(args),
    }
}

/// What is in a segment, or in all segments of a camera.
#[derive(Default)]
struct Content {
    bytes: u64,
    frames: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    /// What is wrong, in words.
    wrong: Vec<String>,
}

impl Content {
    fn note(&mut self, record: &StoredRecord) {
        self.frames += 1;
        self.first = self.first.or(Some(record.meta.captured));
        self.last = Some(record.meta.captured);
    }

    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.frames += other.frames;
        self.first = self.first.or(other.first);
        self.last = other.last.or(self.last);
        self.wrong.extend_from_slice(&other.wrong);
    }

    fn cells(&self, name: String) -> [String; 5] {
        let time =
            |time: Option<Timestamp>| time.map_or("-".into(), |time| time.to_string()[..19].to_owned());
        [name, self.frames.to_string(), bytes(self.bytes), time(self.first), time(self.last)]
    }
}

const HEAD: [&str; 5] = ["LOG", "FRAMES", "SIZE", "FROM (UTC)", "TO (UTC)"];

fn list(place: &Place, by_segment: bool) -> Result<(), Failure> {
    let (cameras, keys) = place.cameras()?;
    let mut rows = Vec::new();
    for camera in &cameras {
        let segments = read(&place.folder.log_dir, camera, &keys, false)?;
        let mut all = Content::default();
        segments.iter().for_each(|(_, content)| all.add(content));
        rows.push(all.cells(camera.to_string()));
        if by_segment {
            rows.extend(segments.iter().map(|(number, content)| content.cells(format!("  {number}"))));
        }
        for wrong in &all.wrong {
            eprintln!("mez: {camera}: {wrong}");
        }
    }
    print!("{}", table(HEAD, &rows));
    for folder in put_aside_in(&place.folder.log_dir).unwrap_or_default() {
        println!("put aside by a reset: mez log ls --log-dir {}", folder.display());
    }
    Ok(())
}

fn verify(place: &Place) -> Result<(), Failure> {
    let (cameras, keys) = place.cameras()?;
    let mut wrong = 0;
    for camera in &cameras {
        let mut all = Content::default();
        read(&place.folder.log_dir, camera, &keys, true)?.iter().for_each(|(_, content)| all.add(content));
        for line in &all.wrong {
            println!("{camera}: {line}");
        }
        wrong += all.wrong.len();
        let verdict = if all.wrong.is_empty() { "whole" } else { "DAMAGED" };
        println!("{camera}: {verdict}, {} frames in {}", all.frames, bytes(all.bytes));
    }
    match wrong {
        0 => Ok(()),
        1 => Err(Failure::text("one thing is wrong; what is damaged is never served, all else is")),
        _ => Err(Failure::text(format!(
            "{wrong} things are wrong; what is damaged is never served, all else is"
        ))),
    }
}

/// Reads all segments of a camera, the oldest first; with `payloads`, every byte of them.
fn read(
    root: &Path,
    camera: &CameraName,
    keys: &KeyRing,
    payloads: bool,
) -> Result<Vec<(SegmentNumber, Content)>, Failure> {
    let mut files = LogFiles::read_only(root, camera);
    let mut segments = files.list()?;
    segments.sort_unstable();
    // From the newest on, since a segment ends where the next one begins.
    let mut found = Vec::new();
    let mut limit = None;
    for (number, bytes) in segments.into_iter().rev() {
        let mut content = Content { bytes, ..Content::default() };
        match SegmentScan::open(&mut files, camera, keys, number, bytes) {
            Ok(mut scan) => {
                let first = scan.header().first_index;
                let end = scan_segment(&mut files, &mut scan, &mut content, payloads, limit);
                if let Some(limit) = limit.filter(|limit| end < *limit) {
                    content.wrong.push(format!("after segment {number}, {} frames are missing", limit - end));
                }
                limit = Some(first);
            }
            // What a crash leaves of a segment that was just begun. Had it held frames, they would be missed.
            Err(HeaderError::Torn) => {}
            Err(why) => content.wrong.push(format!("segment {number}: {why}")),
        }
        found.push((number, content));
    }
    found.reverse();
    Ok(found)
}

/// Reads a segment up to `limit`, and returns the index after its last frame.
fn scan_segment(
    files: &mut LogFiles,
    scan: &mut SegmentScan,
    content: &mut Content,
    payloads: bool,
    limit: Option<u64>,
) -> u64 {
    let mut torn = Vec::new();
    while limit.is_none_or(|limit| scan.index() < limit) {
        match scan.next(files, payloads) {
            None => break,
            Some(Scanned::Record(record)) => {
                content.note(&record);
                content.wrong.append(&mut torn);
            }
            Some(Scanned::Damaged(damage)) if damage.kind == DamageKind::Torn => {
                torn.push(damage.to_string());
            }
            Some(Scanned::Damaged(damage)) => content.wrong.push(damage.to_string()),
        }
    }
    if limit.is_some() {
        content.wrong.append(&mut torn);
    }
    // Torn records at the end of the newest segment were being written, or are just now.
    scan.index() - torn.len() as u64
}
