//! `mez store verify` and `mez store repair`: check every byte of a store, and copy the readable records of a damaged one.

use std::path::{Path, PathBuf};

use clap::Args;
use mez_core::name::CameraName;
use mez_node::persist::{LogCheck, LogKind, check_log, repair_log};

use super::folder::Logs;
use crate::failure::Failure;
use crate::text::bytes;

/// Read and check every byte; the exit status is 1 if something is wrong
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez store verify --store /var/lib/mez/store
  mez store verify dock/cam1 --store /var/lib/mez/store --json

A store has the frames of each camera. At an edge it also has notes: replies of applications, and states of contracts and of the source.

The command checks that no part of a log is missing. Each segment must begin where the previous one ends. The broker's folder for state (--state) lists \
the segments, and the position up to which the broker had written. Without this folder, the command cannot detect missing frames at the beginning or the \
end; it then says so.

Two things do not count as damage: an incomplete record at the end (the broker was killed while it wrote), and frames that a power cut removed before \
they were reported as durable. The command mentions them, but the status stays 0. `mez store repair` copies everything that can be read.")]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    logs: Logs,
    /// Print the findings as JSON, one line for each log: the frames of a camera, and its notes
    #[arg(long)]
    json: bool,
}

/// Copy every readable frame of a damaged store into a new one
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez store repair --store /var/lib/mez/store --to /mnt/copy
  mez store repair dock/cam1 --store /var/lib/mez/store --to /mnt/copy

Brokers and `mez store export` can use the copy like any store. It marks the missing frames as damaged, so readers count them. The damaged store is \
not changed.")]
pub(super) struct RepairArgs {
    #[command(flatten)]
    logs: Logs,
    /// Folder for the copy. It must not contain frames of these cameras yet
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

pub(super) fn verify(args: &VerifyArgs) -> Result<(), Failure> {
    let logs = &args.logs;
    let (cameras, keys) = logs.cameras()?;
    let (mut wrong, mut lost, mut notes_lost, mut more) = (0, 0, 0, false);
    for (camera, kind) in of_all(logs, &cameras) {
        let remembered = logs.folder.remembered(camera, kind);
        let check = check_log(&logs.folder.store, (camera, kind), &keys, remembered.as_deref(), true)?;
        if args.json {
            println!("{}", check.to_json());
        } else {
            tell(&check);
        }
        wrong += check.wrong();
        match kind {
            LogKind::Frames => lost += check.report.records_lost,
            LogKind::Notes => notes_lost += check.report.records_lost,
        }
        more |= check.report.more_may_be_lost;
    }
    if wrong == 0 {
        return Ok(());
    }
    let things = if wrong == 1 { "1 fault was".to_owned() } else { format!("{wrong} faults were") };
    let more = if more { ", and more that cannot be counted" } else { "" };
    Err(Failure::text(format!(
        "{things} found, and {} lost{more}; readers are told what is lost, and get the rest; `mez store repair` copies what can be read",
        lost_of(lost, notes_lost)
    )))
}

/// Lost records with a verb, such as `1 frame is`, `2 frames and 1 note are`.
fn lost_of(frames: u64, notes: u64) -> String {
    let (of_frames, of_notes) = (counted(frames, LogKind::Frames), counted(notes, LogKind::Notes));
    let lost = match (frames, notes) {
        (_, 0) => of_frames,
        (0, _) => of_notes,
        _ => format!("{of_frames} and {of_notes}"),
    };
    format!("{lost} {}", if frames + notes == 1 { "is" } else { "are" })
}

pub(super) fn repair(args: &RepairArgs) -> Result<(), Failure> {
    let RepairArgs { logs, to } = args;
    let (cameras, keys) = logs.cameras()?;
    for (camera, kind) in of_all(logs, &cameras) {
        let (remembered, of) = (logs.folder.remembered(camera, kind), (camera, kind));
        let check = check_log(&logs.folder.store, of, &keys, remembered.as_deref(), true)?;
        tell(&check);
        let copied = repair_log(&logs.folder.store, of, &keys, remembered.as_deref(), to)?;
        let (records, one) = (copied.records, kind.words().one);
        println!("{camera}: {records} {one}s copied to {}, {}", to.display(), bytes(copied.bytes));
        tell_use(&check, to, remembered.as_deref());
    }
    Ok(())
}

/// All logs of all cameras.
fn of_all<'a>(logs: &'a Logs, cameras: &'a [CameraName]) -> impl Iterator<Item = (&'a CameraName, LogKind)> {
    cameras.iter().flat_map(|camera| logs.folder.kinds(camera).map(move |kind| (camera, kind)))
}

/// A count with its noun, such as `3 frames`.
fn counted(count: u64, kind: LogKind) -> String {
    format!("{count} {}{}", kind.words().one, if count == 1 { "" } else { "s" })
}

fn tell(check: &LogCheck) {
    let LogCheck { camera, kind, report, .. } = check;
    let one = kind.words().one;
    for finding in &report.findings {
        println!("{camera}: {}", check.says(finding));
    }
    let unnamed = report.wrong - report.findings.len() as u64;
    if unnamed > 0 {
        println!("{camera}: {unnamed} more faults in the log of {one}s");
    }
    for exposed in &check.exposed {
        println!("{camera}: {exposed}");
    }
    for segment in report.segments.iter().filter(|segment| segment.bytes_unreadable > 0) {
        let size = bytes(segment.bytes_unreadable);
        println!("{camera}: segment {}: {size} of {} cannot be read", segment.number, bytes(segment.bytes));
    }
    if report.torn_bytes > 0 {
        let when = if check.is_written {
            "are being written"
        } else {
            "were being written when the broker was killed or the power failed"
        };
        println!("{camera}: no damage: {} at the end {when}", bytes(report.torn_bytes));
    }
    if !report.bounds_known || !report.progress_known {
        println!(
            "{camera}: the broker's state for this log was not found, so {one}s that are missing at its beginning or end cannot be detected \
             (give the broker's folder for state with --state)"
        );
    }
    let (records, size) = (counted(report.records(), *kind), bytes(report.bytes()));
    if check.wrong() == 0 {
        println!("{camera}: intact, {records} in {size}");
    } else {
        let (lost, unreadable) = (counted(report.records_lost, *kind), bytes(report.bytes_unreadable()));
        let at_least = if report.more_may_be_lost { "at least " } else { "" };
        println!(
            "{camera}: DAMAGED, {records} in {size} can be read; {at_least}{lost} lost, {unreadable} cannot be read"
        );
    }
}

/// Prints how to replace the log by the copy.
fn tell_use(check: &LogCheck, out: &Path, remembered: Option<&Path>) {
    if check.wrong() == 0 {
        return;
    }
    let (camera, folder) = (&check.camera, check.folder.display());
    let name = check.folder.file_name().unwrap_or_default();
    let copy = out.join(camera.as_str()).join(name);
    println!(
        "{camera}: to use the copy, stop the broker, move {folder} away, and move {} to its place",
        copy.display()
    );
    if let Some(remembered) = remembered {
        let progress = remembered.with_extension("progress");
        println!("{camera}: also remove {} and {}", remembered.display(), progress.display());
    }
}
