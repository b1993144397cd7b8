//! `mez log`: what is in logs on disk, whether it is whole, and how to get it out.

mod export;
mod verify;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::store::KeyRing;
use mez_core::units::Timestamp;
use mez_node::persist::aside::put_aside_in;
use mez_node::persist::keys::find_log_keys;
use mez_node::persist::{cameras_in, check_log, find_remembered};
use mez_node::state;

use crate::failure::Failure;
use crate::text::{bytes, table};

/// See what is in logs on disk, check that it is whole, and make videos of it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez log ls --log-dir /var/lib/mez/log               what is there, camera by camera
  mez log ls --log-dir /var/lib/mez/log 'dock/*' --segments
  mez log verify --log-dir /var/lib/mez/log           reads and checks every byte
  mez log verify --log-dir /var/lib/mez/log --repair /mnt/copy
                                                      and copies all that can be read
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
    Verify(verify::VerifyArgs),
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
    /// Folder in which the broker remembers which segments there are [default: $MEZ_STATE, /var/lib/mez for root, else
    /// ~/.local/state/mez, if it speaks of this folder of logs]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
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

    /// The file that remembers a camera's log, if there is one.
    fn remembered(&self, camera: &CameraName) -> Option<PathBuf> {
        let state = state::folder(self.state.as_deref()).ok()?;
        find_remembered(&state, self.state.is_some(), &self.log_dir, camera)
    }
}

pub(crate) fn run(args: LogArgs) -> Result<(), Failure> {
    match args.command {
        Command::Ls { place, segments } => list(&place, segments),
        Command::Verify(args) => verify::run(&args),
        Command::Export(args) => export::run(args),
    }
}

const HEAD: [&str; 5] = ["LOG", "FRAMES", "SIZE", "FROM (UTC)", "TO (UTC)"];

fn list(place: &Place, by_segment: bool) -> Result<(), Failure> {
    let (cameras, keys) = place.cameras()?;
    let mut rows = Vec::new();
    for camera in &cameras {
        let remembered = place.folder.remembered(camera);
        let check = check_log(&place.folder.log_dir, camera, &keys, remembered.as_deref(), false)?;
        let report = &check.report;
        rows.push(cells(camera.to_string(), report.records(), report.bytes(), report.captured()));
        if by_segment {
            rows.extend(report.segments.iter().map(|segment| {
                cells(format!("  {}", segment.number), segment.records, segment.bytes, segment.captured)
            }));
        }
        for finding in &report.findings {
            eprintln!("mez: {camera}: {finding}");
        }
    }
    print!("{}", table(HEAD, &rows));
    for folder in put_aside_in(&place.folder.log_dir).unwrap_or_default() {
        println!("put aside by a reset: mez log ls --log-dir {}", folder.display());
    }
    Ok(())
}

fn cells(name: String, frames: u64, size: u64, captured: Option<(Timestamp, Timestamp)>) -> [String; 5] {
    let time = |time: Option<Timestamp>| time.map_or("-".into(), |time| time.to_string()[..19].to_owned());
    let (from, to) = (captured.map(|span| span.0), captured.map(|span| span.1));
    [name, frames.to_string(), bytes(size), time(from), time(to)]
}
