//! `mez store export`: exports frames of a store as a video (MP4), or as messages for Foxglove (MCAP).

use std::cmp::Reverse;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use mez_core::audit::{Event, Kind};
use mez_core::frame::{SkipCounts, SkipReason};
use mez_core::name::{CameraName, CameraPattern};
use mez_node::audit::folder::audit_folder;
use mez_node::audit::told;
use mez_node::clock::wall_now;
use mez_node::export::{
    ExportFormat, ExportOptions, ExportProgress, ExportSummary, StreamBeside, VideoCodec, export,
};
use mez_node::persist::LogKind;
use mez_node::runtime::{block_on, until_stopped};

use super::folder::Folder;
use crate::config::EdgePlaces;
use crate::failure::Failure;
use crate::text::{bytes, milliseconds, parse_time};

/// Export a camera's frames as a video (MP4), or as a recording for Foxglove (MCAP)
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez store export dock/cam1 cam1.mp4 --store /var/lib/mez/store
  mez store export dock/cam1 cam1.mp4 --store /var/lib/mez/store --since -10m --until -5m
  mez store export dock/cam1 cam1.mcap --store /var/lib/mez/store --json
  mez store export dock/cam1 cam1.mcap --store /var/lib/mez/store --with 'dock/cam1/*'
  jq 'select(.detections) | {video_seconds, detections}' cam1.mp4.jsonl

MP4 needs ffmpeg. The video shows each frame at its capture time, so pauses keep their length. By default, frames are encoded as H.264. With \
--codec jpeg, JPEG frames are copied unchanged; the file is larger, and fewer programs can play it. With --codec copy, the video in the log is copied \
unchanged. It starts at a keyframe, up to ten seconds before --since.

If an edge kept notes, they are exported too: replies of applications, states of contracts, and states of the source. A video has them as subtitles, and \
complete in FILE.jsonl beside it. Each line is a JSON object with `kind` (reply, contract or source), times, the frame's `epoch` and `sequence`, \
`video_seconds` (when the video shows the frame), and `detections`. Their `xyxy` boxes are in the pixels of the published frame; its size, `width` by \
`height`, is also the size of the video. With --codec jpeg, multiply boxes by the width of the picture divided by `width`. Other results are in \
`payload_base64` and, if they are JSON, in `result`.

MCAP has each frame as foxglove.CompressedImage on the topic /CAMERA, and each gap on /CAMERA/gaps. JPEG and PNG are copied \
unchanged. Raw pixels become PNG. Frames that need others to be decoded (video, tiles) become JPEG. Detections are on \
/CAMERA/annotations as foxglove.ImageAnnotations, in the pixels of the image in the file, so that viewers can draw them. All replies are on \
/CAMERA/replies, in the pixels of the published frame. States of contracts are on /CAMERA/contracts, states of the source on /CAMERA/source.

The summary counts missing and damaged frames. The file gets its final name when it is complete; Ctrl-C leaves no file. A broker may write to the store \
at the same time: the export contains what is in the store when it begins.")]
pub(super) struct ExportArgs {
    /// The camera, such as dock/cam1
    #[arg(value_name = "CAMERA")]
    camera: CameraName,
    /// Output file, ending in .mp4 or .mcap
    #[arg(value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    folder: Folder,
    /// Capture time to begin at: -10m, 2026-11-20T21:38:46Z, or nanoseconds since 1970 [default: the oldest frame]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Capture time to end at, written like --since [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<String>,
    /// Format of the file [default: by the ending of FILE]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Other streams of the store to write into the same MCAP file, such as derived streams of the camera: 'dock/cam1/*'; may be repeated
    #[arg(long, value_name = "STREAM", value_delimiter = ',')]
    with: Vec<CameraPattern>,
    /// Encoding of the frames in an MP4
    #[arg(long, value_enum, default_value_t = Codec::H264)]
    codec: Codec,
    /// Leave out notes: replies of applications, states of contracts and of the source
    #[arg(long)]
    no_notes: bool,
    /// Replace FILE (and FILE.jsonl) if it exists
    #[arg(long)]
    force: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Mp4,
    Mcap,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Codec {
    /// Encode again: the file is small, and every program can play it
    H264,
    /// Copy JPEG frames unchanged
    Jpeg,
    /// Copy video (H.264, H.265 or AV1) unchanged; leave out other frames
    Copy,
}

pub(super) fn run(args: ExportArgs) -> Result<(), Failure> {
    let json = args.json;
    // The audit log to report to: that of this host's edge.
    let state = EdgePlaces::find(None, None, args.folder.state.as_deref())?.state;
    let options = options(args)?;
    tell_audit_log(state.as_deref(), &options);
    let mut bar = Bar::new();
    let exported = block_on(until_stopped(export(&options, |progress| bar.show(progress))))?;
    bar.clear();
    let Some(summary) = exported? else {
        return Err(Failure::text(format!("stopped; {} was not written", options.output.display())));
    };
    let summary = summary?;
    if json {
        println!("{}", summary.to_json());
    } else {
        println!("{}", describe(&options, &summary));
    }
    Ok(())
}

/// Reports to the audit log of this host's edge, if there is one. The edge itself does not notice reads of its disk.
fn tell_audit_log(state: Option<&Path>, options: &ExportOptions) {
    let Ok(state) = mez_node::state::folder(state) else { return };
    let from = options.begin.map_or_else(|| "from the oldest".into(), |begin| format!("from {begin}"));
    let until = options.end.map(|end| format!(", until {end}")).unwrap_or_default();
    let event = Event::new(wall_now(), Kind::Exported, "").what("store").cameras(options.camera.as_str());
    let event = event.why(format!("{from}{until}, to {}", options.output.display()));
    if let Err(error) = told::tell(&audit_folder(&state), &event) {
        eprintln!("This export could not be recorded in the audit log of this host's edge: {error}");
    }
}

fn options(args: ExportArgs) -> Result<ExportOptions, Failure> {
    let now = wall_now();
    let time = |flag: &str, text: Option<String>| {
        let parsed = text.map(|text| parse_time(&text, now)).transpose();
        parsed.map_err(|error| Failure::text(format!("{flag}: {error}")))
    };
    let format = match args.format {
        Some(Format::Mp4) => Some(ExportFormat::Mp4),
        Some(Format::Mcap) => Some(ExportFormat::Mcap),
        None => ExportFormat::of(&args.output),
    };
    let format = format.ok_or_else(|| {
        let name = args.output.display();
        Failure::text(format!("{name} ends neither in .mp4 nor in .mcap; choose the format with --format"))
    })?;
    let (begin, end) = (time("--since", args.since)?, time("--until", args.until)?.unwrap_or(now));
    if begin.is_some_and(|begin| begin > end) {
        return Err(Failure::text("--since is later than --until; swap them"));
    }
    let (cameras, keys) = args.folder.open()?;
    if !cameras.contains(&args.camera) {
        let names: Vec<&str> = cameras.iter().map(CameraName::as_str).collect();
        let has = if names.is_empty() { "none".into() } else { names.join(", ") };
        return Err(Failure::text(format!(
            "no frames of {} in {}; the store has frames of: {has}",
            args.camera,
            args.folder.store.display()
        )));
    }
    let is_with =
        |name: &&CameraName| **name != args.camera && args.with.iter().any(|pattern| pattern.matches(name));
    let with: Vec<StreamBeside> = cameras
        .iter()
        .filter(is_with)
        .map(|name| StreamBeside {
            name: name.clone(),
            remembered: args.folder.remembered(name, LogKind::Frames),
            remembered_notes: args.folder.remembered(name, LogKind::Notes),
        })
        .collect();
    let unmatched = args.with.iter().find(|pattern| !with.iter().any(|stream| pattern.matches(&stream.name)));
    if let Some(pattern) = unmatched {
        return Err(Failure::text(format!("--with {pattern}: the store has no other stream that matches")));
    }
    let remembered = args.folder.remembered(&args.camera, LogKind::Frames);
    let remembered_notes = args.folder.remembered(&args.camera, LogKind::Notes);
    Ok(ExportOptions {
        remembered,
        remembered_notes,
        with,
        notes: !args.no_notes,
        begin,
        end: Some(end),
        codec: match args.codec {
            Codec::H264 => VideoCodec::H264,
            Codec::Jpeg => VideoCodec::Jpeg,
            Codec::Copy => VideoCodec::Copy,
        },
        overwrite: args.force,
        ..ExportOptions::new(args.folder.store, keys, args.camera, args.output, format)
    })
}

fn describe(options: &ExportOptions, summary: &ExportSummary) -> String {
    let ExportSummary { frames, file_bytes, from, to, .. } = summary;
    let (name, span) = (options.output.display(), milliseconds(to.saturating_since(*from)));
    let mut lines = vec![
        format!("{name}: {frames} frames over {span}, {}", bytes(*file_bytes)),
        format!("  {from} to {to}"),
    ];
    for (stream, count) in &summary.with {
        lines.push(format!("  with {count} records of {stream}"));
    }
    if summary.gaps > 0 {
        lines.push(format!("  {}", not_recorded(&summary.missing, summary.gaps)));
    }
    if summary.sizes.len() > 1 {
        let counts: Vec<String> =
            summary.sizes.iter().map(|((width, height), n)| format!("{n} of {width}x{height}")).collect();
        let (width, height) = summary.video_size;
        let shown = match (options.format, options.codec) {
            (ExportFormat::Mp4, VideoCodec::H264) => {
                format!("; the video shows all at {width}x{height}, as published")
            }
            (ExportFormat::Mp4, VideoCodec::Jpeg | VideoCodec::Copy) | (ExportFormat::Mcap, _) => {
                String::new()
            }
        };
        lines.push(format!(
            "  frames have several sizes, as they crossed the link: {}{shown}",
            counts.join(", ")
        ));
    }
    if summary.replies + summary.contract_changes + summary.source_changes > 0 {
        let beside = summary.side_file.as_ref().map(|path| format!(", in {}", path.display()));
        let (replies, changes, sources) = (
            plural(summary.replies, "reply", "replies"),
            plural(summary.contract_changes, "change", "changes"),
            plural(summary.source_changes, "change", "changes"),
        );
        lines.push(format!(
            "  {replies}, {changes} of contracts and {sources} of the source{}",
            beside.unwrap_or_default()
        ));
    }
    let counts = [
        (
            summary.notes_missing,
            "replies, or changes of contracts or of the source, are missing: lost, or never recorded",
        ),
        (summary.damaged, "frames are damaged or missing; mez store verify lists them"),
        (summary.undecodable, "frames are left out: the store lacks frames that are needed to decode them"),
        (
            summary.not_copied,
            "frames are left out: their encoding differs from the copied one (--codec h264 encodes all frames again)",
        ),
        (summary.no_pictures, "data records are left out of the video (--format mcap includes them)"),
        (summary.recoded, "frames were encoded again"),
        (
            summary.moved,
            "frames are shown later than their capture time, because the clock had been set back",
        ),
    ];
    lines.extend(
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("  {count} {what}")),
    );
    lines.join("\n")
}

/// A line such as `424 frames not recorded (1 gap): nobody subscribed`.
fn not_recorded(missing: &SkipCounts, gaps: u64) -> String {
    let mut reasons: Vec<(SkipReason, u64)> = missing.iter().collect();
    reasons.sort_by_key(|(_, count)| Reverse(*count));
    let because = match &reasons[..] {
        [(reason, _)] => because(*reason).to_owned(),
        several => {
            let parts = several.iter().map(|(reason, count)| format!("{} ({count})", because(*reason)));
            parts.collect::<Vec<_>>().join(", ")
        }
    };
    let (frames, gaps) = (plural(missing.total(), "frame", "frames"), plural(gaps, "gap", "gaps"));
    format!("{frames} not recorded ({gaps}): {because}")
}

fn plural(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Why frames are not in a log, as text.
fn because(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::LinkBusy => "the link was busy with older frames",
        SkipReason::Stalled => "cancelled on the link",
        SkipReason::LinkDown => "the link was down",
        SkipReason::NotWanted => "nobody subscribed",
        SkipReason::LateOrLost => "overtaken by newer frames",
        SkipReason::ApplicationBusy => "the reader was busy",
        SkipReason::Evicted => "removed to stay within the log's budget",
        SkipReason::NotHeld => "nobody holds them",
        SkipReason::Refused => "refused by the camera",
        SkipReason::NotMade => "the camera could not encode them",
        SkipReason::NotDecoded => "the edge could not decode them",
        SkipReason::EdgeBusy => "the edge was busy decoding",
        SkipReason::Infeasible => "no rung kept the contract",
        SkipReason::LeftOut => "left out by the rung",
        SkipReason::Damaged => "damaged on disk",
    }
}

/// A progress bar on a terminal.
struct Bar {
    terminal: bool,
    drawn: Option<Instant>,
    began: Instant,
}

impl Bar {
    const CELLS: usize = 30;

    fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), drawn: None, began: Instant::now() }
    }

    fn show(&mut self, progress: ExportProgress) {
        let now = Instant::now();
        let recently = self.drawn.is_some_and(|drawn| now - drawn < Duration::from_millis(100));
        if !self.terminal || recently {
            return;
        }
        self.drawn = Some(now);
        // If the terminal is gone, no bar is needed.
        let _ = write!(io::stderr(), "\r\x1b[K{}", line(progress, now - self.began));
    }

    fn clear(&self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(progress: ExportProgress, took: Duration) -> String {
    let ExportProgress { frames, at, from, to } = progress;
    let (done, all) = (at.saturating_since(from).as_secs_f64(), to.saturating_since(from).as_secs_f64());
    let share = if all > 0.0 { (done / all).min(1.0) } else { 1.0 };
    let filled = (share * Bar::CELLS as f64) as usize;
    let left = if share > 0.0 { took.mul_f64(1.0 / share - 1.0).as_secs() } else { 0 };
    let (filled, empty) = ("#".repeat(filled), "-".repeat(Bar::CELLS - filled));
    format!("[{filled}{empty}] {:>3.0} %  {frames} frames  {left} s left", share * 100.0)
}

#[cfg(test)]
mod tests {
    use mez_core::units::Timestamp;

    use super::*;

    #[test]
    fn a_gap_says_in_words_why_frames_are_not_there() {
        let mut missing = SkipCounts::default();
        missing.add(SkipReason::NotWanted, 424);
        assert_eq!(not_recorded(&missing, 1), "424 frames not recorded (1 gap): nobody subscribed");
        missing.add(SkipReason::Damaged, 1);
        assert_eq!(
            not_recorded(&missing, 2),
            "425 frames not recorded (2 gaps): nobody subscribed (424), damaged on disk (1)"
        );
    }

    #[test]
    fn the_bar_shows_the_share_of_the_span() {
        let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        let progress = ExportProgress { frames: 50, at: at(1_500), from: at(1_000), to: at(2_000) };
        let line = line(progress, Duration::from_secs(4));
        assert_eq!(line, "[###############---------------]  50 %  50 frames  4 s left");
        let one = ExportProgress { frames: 1, at: at(1_000), from: at(1_000), to: at(1_000) };
        assert!(super::line(one, Duration::ZERO).contains("100 %"));
    }
}
