//! `mez log`: lists, checks and exports logs on disk.

mod export;
mod folder;
mod verify;

use clap::{Args, Subcommand};
use mez_core::units::Timestamp;
use mez_node::persist::aside::put_aside_in;
use mez_node::persist::check_log;

use self::folder::Logs;
use crate::failure::Failure;
use crate::text::{bytes, table};

/// List logs on disk, check them, and export them as video
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez log ls --log-dir /var/lib/mez/log               a line for each camera
  mez log ls --log-dir /var/lib/mez/log 'dock/*' --segments
  mez log verify --log-dir /var/lib/mez/log           read and check every byte
  mez log verify --log-dir /var/lib/mez/log --repair /mnt/copy
                                                      and copy all that can be read
  mez log export dock/cam1 cam1.mp4 --log-dir /var/lib/mez/log --since -10m

All of them may run while a broker writes, and never change a log. `verify` ends with status 1 if anything is wrong.")]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the logs of cameras: frames, times, sizes
    #[command(after_help = "Example:\n  mez log ls 'dock/*' --log-dir /var/lib/mez/log --segments")]
    Ls {
        #[command(flatten)]
        logs: Logs,
        /// Also list each segment
        #[arg(long)]
        segments: bool,
    },
    Verify(verify::VerifyArgs),
    Export(export::ExportArgs),
}

pub(crate) fn run(args: LogArgs) -> Result<(), Failure> {
    match args.command {
        Command::Ls { logs, segments } => list(&logs, segments),
        Command::Verify(args) => verify::run(&args),
        Command::Export(args) => export::run(args),
    }
}

const HEAD: [&str; 5] = ["LOG", "FRAMES", "SIZE", "FROM (UTC)", "TO (UTC)"];

fn list(logs: &Logs, by_segment: bool) -> Result<(), Failure> {
    let (cameras, keys) = logs.cameras()?;
    let mut rows = Vec::new();
    for camera in &cameras {
        let remembered = logs.folder.remembered(camera);
        let check = check_log(&logs.folder.log_dir, camera, &keys, remembered.as_deref(), false)?;
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
    for folder in put_aside_in(&logs.folder.log_dir).unwrap_or_default() {
        println!("put aside by a reset: mez log ls --log-dir {}", folder.display());
    }
    Ok(())
}

fn cells(name: String, frames: u64, size: u64, captured: Option<(Timestamp, Timestamp)>) -> [String; 5] {
    let time = |time: Option<Timestamp>| time.map_or("-".into(), |time| time.to_string()[..19].to_owned());
    let (from, to) = (captured.map(|span| span.0), captured.map(|span| span.1));
    [name, frames.to_string(), bytes(size), time(from), time(to)]
}
