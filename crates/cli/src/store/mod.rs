//! `mez store`: lists, checks, repairs and exports the logs that brokers keep on disk, and makes their key.

mod export;
mod folder;
mod key;
mod verify;

use clap::{Args, Subcommand};
use mez_core::units::Timestamp;
use mez_node::persist::aside::put_aside_in;
use mez_node::persist::{LogKind, check_log};

use self::folder::Logs;
use crate::failure::Failure;
use crate::text::{bytes, table};

/// Manage frames on disk: make the key, list, check, repair, and export as video
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez store key                                       once, before the first broker starts with --store
  mez store ls --store /var/lib/mez/store             one line for each camera
  mez store ls --store /var/lib/mez/store 'dock/*' --segments
  mez store verify --store /var/lib/mez/store         read and check every byte
  mez store repair --store /var/lib/mez/store --to /mnt/copy
                                                      copy everything that can be read
  mez store export dock/cam1 cam1.mp4 --store /var/lib/mez/store --since -10m

All commands except `key` may run while a broker writes, and never change the store. `verify` ends with status 1 if something is wrong.")]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Key(key::KeyArgs),
    /// List the frames and notes of each camera, with times and sizes. Notes are replies of applications, and states of contracts and of the source
    #[command(after_help = "Example:\n  mez store ls 'dock/*' --store /var/lib/mez/store --segments")]
    Ls {
        #[command(flatten)]
        logs: Logs,
        /// Also list each segment
        #[arg(long)]
        segments: bool,
    },
    Verify(verify::VerifyArgs),
    Repair(verify::RepairArgs),
    Export(export::ExportArgs),
}

pub(crate) fn run(args: StoreArgs) -> Result<(), Failure> {
    match args.command {
        Command::Key(args) => key::run(args),
        Command::Ls { logs, segments } => list(&logs, segments),
        Command::Verify(args) => verify::verify(&args),
        Command::Repair(args) => verify::repair(&args),
        Command::Export(args) => export::run(args),
    }
}

const HEAD: [&str; 5] = ["CAMERA", "FRAMES", "SIZE", "FROM (UTC)", "TO (UTC)"];
/// The row of a camera's notes: replies of applications, changes of contracts and of the source.
const NOTES: &str = "  notes";

fn list(logs: &Logs, by_segment: bool) -> Result<(), Failure> {
    let (cameras, keys) = logs.cameras()?;
    let mut rows = Vec::new();
    let of_all = cameras.iter().flat_map(|camera| logs.folder.kinds(camera).map(move |kind| (camera, kind)));
    for (camera, kind) in of_all {
        let remembered = logs.folder.remembered(camera, kind);
        let check = check_log(&logs.folder.store, (camera, kind), &keys, remembered.as_deref(), false)?;
        let report = &check.report;
        let name = match kind {
            LogKind::Frames => camera.to_string(),
            LogKind::Notes => NOTES.into(),
        };
        rows.push(cells(name, report.records(), report.bytes(), report.captured()));
        if by_segment {
            rows.extend(report.segments.iter().map(|segment| {
                cells(format!("  {}", segment.number), segment.records, segment.bytes, segment.captured)
            }));
        }
        for finding in &report.findings {
            eprintln!("mez: {camera}: {}", check.says(finding));
        }
    }
    print!("{}", table(HEAD, &rows));
    for folder in put_aside_in(&logs.folder.store).unwrap_or_default() {
        println!("moved when a camera was reset or forgotten: mez store ls --store {}", folder.display());
    }
    Ok(())
}

fn cells(name: String, frames: u64, size: u64, captured: Option<(Timestamp, Timestamp)>) -> [String; 5] {
    let time = |time: Option<Timestamp>| time.map_or("-".into(), |time| time.to_string()[..19].to_owned());
    let (from, to) = (captured.map(|span| span.0), captured.map(|span| span.1));
    [name, frames.to_string(), bytes(size), time(from), time(to)]
}
