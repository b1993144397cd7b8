//! Exports a camera's log on disk to a file for other programs: MP4 (through ffmpeg) or MCAP.
//!
//! | file | what it does |
//! | --- | --- |
//! | `frames` | reads the log on its own thread, and makes stills of its frames |
//! | `mp4`, `matroska`, `packets` | a video that shows each frame at its capture time, encoded again or copied |
//! | `mcap` | `foxglove.CompressedImage` messages, and messages about gaps |
//! | `said` | notes about the frames: results of applications, changes of contracts, states of the source |
//! | `captions`, `side_file` | notes as subtitles of a video, and in a file beside it |
//! | `mcap_said` | notes as messages, and as boxes that viewers draw |
//! | `summary` | what was exported, and what was not |
//!
//! An export never changes the log. A broker may be writing to it. The output file appears under its name only when it is complete.

mod captions;
mod frames;
mod matroska;
mod mcap;
mod mcap_said;
mod mp4;
mod packets;
mod said;
mod side_file;
mod summary;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use ::mcap::McapError;
use mez_core::frame::{Encoding, FrameId, SkipCounts};
use mez_core::name::CameraName;
use mez_core::store::{HeaderError, KeyRing, SegmentNumber, StorageError};
use mez_core::units::Timestamp;
use tempfile::NamedTempFile;

use self::frames::{Frames, Still, StillKind};
use self::mcap::Mcap;
use self::mp4::Mp4;
use self::said::{Due, Said, SaidOfSpan};
use self::side_file::SideFile;
pub use self::summary::ExportSummary;
use crate::clock::wall_now;
use crate::notes::NotedReply;
use crate::source::SourceError;

/// The format of the output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// A video, made by ffmpeg.
    Mp4,
    /// An MCAP file with Foxglove's messages.
    Mcap,
}

impl ExportFormat {
    /// The format that a file's extension stands for.
    pub fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?;
        let is = |name: &str| ending.eq_ignore_ascii_case(name);
        if is("mp4") || is("m4v") { Some(Self::Mp4) } else { is("mcap").then_some(Self::Mcap) }
    }
}

/// How a video encodes frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VideoCodec {
    /// H.264, encoded again: small, and playable everywhere.
    #[default]
    H264,
    /// The JPEG images of the log, unchanged: several times as large, and playable by fewer programs.
    Jpeg,
    /// The log's own video, unchanged, from the beginning of a chain: H.264, H.265 or AV1, whichever comes first. All other frames are left out.
    Copy,
}

/// What to export, and where to.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The store folder.
    pub store: PathBuf,
    /// The keys of the log.
    pub keys: KeyRing,
    /// The camera.
    pub camera: CameraName,
    /// The bounds file of the log in the state folder, if there is one. It shows what is missing at the end of the log.
    pub remembered: Option<PathBuf>,
    /// The first capture time. Default: that of the oldest frame.
    pub begin: Option<Timestamp>,
    /// The last capture time. Default: now.
    pub end: Option<Timestamp>,
    /// The output file.
    pub output: PathBuf,
    /// The format of the output file.
    pub format: ExportFormat,
    /// How a video encodes frames.
    pub codec: VideoCodec,
    /// Whether to replace an existing file. Default false.
    pub overwrite: bool,
    /// The program that makes videos. Default `ffmpeg`, found in `PATH`.
    pub ffmpeg: PathBuf,
    /// Whether to export notes too: results of applications, changes of contracts, states of the source. Default true.
    pub notes: bool,
    /// The bounds file of the log of notes in the state folder, if there is one.
    pub remembered_notes: Option<PathBuf>,
    /// Other streams of the store to add to an MCAP file, such as streams derived from the camera.
    pub with: Vec<StreamBeside>,
}

/// A stream that is exported beside a camera.
#[derive(Clone, Debug)]
pub struct StreamBeside {
    /// Its name.
    pub name: CameraName,
    /// Like [`ExportOptions::remembered`].
    pub remembered: Option<PathBuf>,
    /// Like [`ExportOptions::remembered_notes`].
    pub remembered_notes: Option<PathBuf>,
}

impl ExportOptions {
    /// Options for all of a camera's log.
    pub fn new(
        store: PathBuf,
        keys: KeyRing,
        camera: CameraName,
        output: PathBuf,
        format: ExportFormat,
    ) -> Self {
        Self {
            store,
            keys,
            camera,
            remembered: None,
            begin: None,
            end: None,
            output,
            format,
            codec: VideoCodec::default(),
            overwrite: false,
            ffmpeg: "ffmpeg".into(),
            notes: true,
            remembered_notes: None,
            with: Vec::new(),
        }
    }
}

/// Why nothing was exported. The output file was neither created nor changed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The output file exists.
    #[error("{} already exists; choose another name, or replace the file with --force", .0.display())]
    Exists(PathBuf),
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] StorageError),
    /// A segment of the log cannot be opened with the keys given.
    #[error(
        "cannot open segment {segment} of the log of {camera}: {source}; give all keys that the log was written with (--store-key)"
    )]
    Key {
        /// The camera.
        camera: CameraName,
        /// The segment.
        segment: SegmentNumber,
        /// Which key is missing.
        source: HeaderError,
    },
    /// The span contains no frame.
    #[error("the log has no frame of {camera} in this time span: {}; change --since or --until", held_text(*held))]
    Nothing {
        /// The camera.
        camera: CameraName,
        /// The oldest and the newest capture time in the log, if it has frames.
        held: Option<(Timestamp, Timestamp)>,
    },
    /// No frame of the span can be decoded, because frames that it refers to are missing.
    #[error(
        "none of the {0} frames in this time span can be decoded; export from the camera's own log, which holds originals"
    )]
    Undecodable(u64),
    /// The span contains only data records, but a video was requested.
    #[error("the {0} records in this time span are not pictures; export them with --format mcap")]
    NoPictures(u64),
    /// A video was to be copied, but the span contains none.
    #[error(
        "none of the {0} frames in this time span is video (H.264, H.265, AV1), and only video can be copied; re-encode the frames (--codec h264)"
    )]
    NothingToCopy(u64),
    /// Other streams were requested, but a video has only one.
    #[error("a video shows only one camera; export several cameras with --format mcap")]
    OneStream,
    /// ffmpeg is missing or cannot be started.
    #[error(transparent)]
    NoFfmpeg(#[from] SourceError),
    /// ffmpeg failed.
    #[error("{} could not make the video: {said}", program.display())]
    Ffmpeg {
        /// The program.
        program: PathBuf,
        /// Its error message.
        said: String,
    },
    /// The messages could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Mcap {
        /// The file.
        path: PathBuf,
        /// The error.
        source: McapError,
    },
    /// The reading thread ended because a codec panicked.
    #[error("reading the log of {0} failed because of an internal error; see the log lines above")]
    Reader(CameraName),
}

fn held_text(held: Option<(Timestamp, Timestamp)>) -> String {
    match held {
        Some((from, to)) => format!("the log holds {from} to {to}"),
        None => "the log has no frames of this camera".into(),
    }
}

/// The progress of an export.
#[derive(Clone, Copy, Debug)]
pub struct ExportProgress {
    /// Frames written.
    pub frames: u64,
    /// The capture time of the last one.
    pub at: Timestamp,
    /// The capture time of the first one.
    pub from: Timestamp,
    /// The capture time of the last frame in the span, as far as it is known.
    pub to: Timestamp,
}

/// Exports frames of a log. Calls `progress` after each frame. Dropping the future stops the export and leaves no file.
pub async fn export(
    options: &ExportOptions,
    mut progress: impl FnMut(ExportProgress),
) -> Result<ExportSummary, ExportError> {
    refuse_existing(options)?;
    if options.format == ExportFormat::Mp4 && !options.with.is_empty() {
        return Err(ExportError::OneStream);
    }
    let kind = match (options.format, options.codec) {
        (ExportFormat::Mp4, VideoCodec::Copy) => StillKind::Packet,
        (ExportFormat::Mp4, VideoCodec::H264 | VideoCodec::Jpeg) => StillKind::Jpeg,
        (ExportFormat::Mcap, _) => StillKind::Image,
    };
    let end = options.end.unwrap_or_else(wall_now);
    let span = (options.begin.unwrap_or(Timestamp::MIN), end);
    let mut frames = Frames::open(options, span, kind)?;
    let mut said = read_said(options, span).await?;
    let part = part_file(&options.output)?;
    let mut summary = ExportSummary { notes_missing: said.missing, ..ExportSummary::default() };
    let mut next = frames.next().await;
    // The published size, because frames may have been scaled down for the link, each by another factor.
    summary.video_size = next.as_ref().map(|still| still.meta.published).unwrap_or_default();
    let encoding = next.as_ref().map_or(Encoding::Jpeg, |still| still.meta.encoding);
    let mut out = Out::start(options, &part, (encoding, summary.video_size), !said.is_empty()).await?;
    while let Some(still) = next {
        let (due, replies) = (said.due_before(&still.meta), said.of_frame(&still.meta));
        out.add(options, &still, summary.frames == 0, (&due, &replies)).await?;
        summary.note(&still);
        summary.note_said(&due, replies.len());
        let ExportSummary { frames: count, from, .. } = summary;
        let to = frames.newest().min(end);
        progress(ExportProgress { frames: count, at: still.meta.captured, from, to });
        next = frames.next().await;
    }
    let rest = frames.finish(&options.camera).await?;
    (summary.damaged, summary.undecodable) = (rest.damaged, rest.undecodable);
    (summary.not_copied, summary.no_pictures) = (rest.not_copied, rest.no_pictures);
    if summary.frames == 0 {
        return Err(match (rest.undecodable, rest.not_copied) {
            (0, 0) if rest.no_pictures > 0 => ExportError::NoPictures(rest.no_pictures),
            (0, 0) => ExportError::Nothing { camera: options.camera.clone(), held: rest.held },
            (0, frames) => ExportError::NothingToCopy(frames),
            (frames, _) => ExportError::Undecodable(frames),
        });
    }
    summary.moved = out.moved();
    let mut due = said.rest();
    summary.note_said(&due, 0);
    for beside in &options.with {
        // The notes of the previous stream come first.
        out.turn_to(options, &beside.name, &due)?;
        due = add_beside(options, beside, span, (&mut out, &mut summary)).await?;
    }
    let side = out.finish(options, &due, &summary).await?;
    summary.file_bytes = put_in_place(part, &options.output, options.overwrite)?;
    let path = side_file::beside(&options.output);
    if let Some(side) = side {
        put_in_place(side, &path, options.overwrite)?;
        summary.side_file = Some(path);
    } else if options.overwrite && options.format == ExportFormat::Mp4 {
        // A side file of an earlier export would be taken for that of this one.
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(write_error(&path, source));
            }
            _ => {}
        }
    }
    Ok(summary)
}

/// Adds the frames and records of another stream. Returns the notes after its last record.
async fn add_beside(
    options: &ExportOptions,
    beside: &StreamBeside,
    span: (Timestamp, Timestamp),
    (out, summary): (&mut Out, &mut ExportSummary),
) -> Result<Due, ExportError> {
    let StreamBeside { name, remembered, remembered_notes } = beside.clone();
    let options = ExportOptions { camera: name, remembered, remembered_notes, ..options.clone() };
    let mut frames = Frames::open(&options, span, StillKind::Image)?;
    let mut said = read_said(&options, span).await?;
    let mut count = 0;
    while let Some(still) = frames.next().await {
        let (due, replies) = (said.due_before(&still.meta), said.of_frame(&still.meta));
        out.add(&options, &still, count == 0, (&due, &replies)).await?;
        summary.note_said(&due, replies.len());
        count += 1;
    }
    let rest = frames.finish(&options.camera).await?;
    summary.damaged += rest.damaged;
    summary.undecodable += rest.undecodable;
    summary.with.insert(options.camera.to_string(), count);
    let due = said.rest();
    summary.note_said(&due, 0);
    Ok(due)
}

/// Returns an error if an output file exists and must not be replaced.
fn refuse_existing(options: &ExportOptions) -> Result<(), ExportError> {
    let side = match options.format {
        ExportFormat::Mp4 if options.notes => Some(side_file::beside(&options.output)),
        _ => None,
    };
    for path in [Some(options.output.clone()), side].into_iter().flatten() {
        if !options.overwrite && path.symlink_metadata().is_ok() {
            return Err(ExportError::Exists(path));
        }
    }
    Ok(())
}

/// Reads the notes of a span, on a blocking thread.
async fn read_said(options: &ExportOptions, span: (Timestamp, Timestamp)) -> Result<SaidOfSpan, ExportError> {
    if !options.notes {
        return Ok(SaidOfSpan::default());
    }
    let reads = options.clone();
    let read = tokio::task::spawn_blocking(move || SaidOfSpan::read(&reads, span)).await;
    Ok(read.map_err(|_| ExportError::Reader(options.camera.clone()))??)
}

/// An output file in progress.
enum Out {
    Mp4(Box<Mp4>, Option<SideFile>),
    Mcap(Box<Mcap>),
}

impl Out {
    /// Starts the file. `said` tells whether there are notes.
    async fn start(
        options: &ExportOptions,
        part: &NamedTempFile,
        (encoding, size): (Encoding, (u32, u32)),
        said: bool,
    ) -> Result<Self, ExportError> {
        match options.format {
            ExportFormat::Mp4 => {
                let video =
                    Mp4::start(&options.ffmpeg, (options.codec, encoding, size), part.path(), said).await?;
                let side = said.then(|| SideFile::start(&options.output)).transpose()?;
                Ok(Self::Mp4(Box::new(video), side))
            }
            ExportFormat::Mcap => {
                let file = part.reopen().map_err(|source| write_error(&options.output, source))?;
                let out = Mcap::start(&options.camera, file).map_err(|source| mcap_error(options, source))?;
                Ok(Self::Mcap(Box::new(out)))
            }
        }
    }

    async fn add(
        &mut self,
        options: &ExportOptions,
        still: &Still,
        first: bool,
        (due, replies): (&Due, &[Said<NotedReply>]),
    ) -> Result<(), ExportError> {
        let meta = &still.meta;
        match self {
            Self::Mp4(out, side) => {
                let at = out.add(meta.captured, (meta.width, meta.height), &still.image).await?;
                out.say(at, due, replies).await?;
                side.as_mut().map_or(Ok(()), |side| side.add(due, Some((at, replies))))
            }
            Self::Mcap(out) => {
                let mut add = || {
                    out.add_due(due)?;
                    if !first && still.missing.total() > 0 {
                        out.add_gap(meta, &still.missing)?;
                    }
                    out.add(meta, still.format, still.image.clone())?;
                    out.add_said(meta, replies)
                };
                add().map_err(|source| mcap_error(options, source))
            }
        }
    }

    /// Switches to another stream. `due` are the remaining notes of the previous stream.
    fn turn_to(
        &mut self,
        options: &ExportOptions,
        stream: &CameraName,
        due: &Due,
    ) -> Result<(), ExportError> {
        match self {
            // A video has only one stream.
            Self::Mp4(..) => Ok(()),
            Self::Mcap(out) => {
                let turned = out.add_due(due).and_then(|()| out.turn_to(stream));
                turned.map_err(|source| mcap_error(options, source))
            }
        }
    }

    fn moved(&self) -> u64 {
        match self {
            Self::Mp4(out, _) => out.moved(),
            Self::Mcap(_) => 0,
        }
    }

    /// Adds the notes after the last frame, completes the file, and returns the file beside a video.
    async fn finish(
        self,
        options: &ExportOptions,
        due: &Due,
        summary: &ExportSummary,
    ) -> Result<Option<NamedTempFile>, ExportError> {
        match self {
            Self::Mp4(out, side) => {
                out.finish().await?;
                let Some(mut side) = side else { return Ok(None) };
                side.add(due, None)?;
                side.finish().map(Some)
            }
            Self::Mcap(mut out) => {
                let finished = out.add_due(due).and_then(|()| out.finish(&options.camera, summary));
                finished.map(|_| None).map_err(|source| mcap_error(options, source))
            }
        }
    }
}

/// A temporary file beside the output, which is removed unless it is renamed to the output.
fn part_file(output: &Path) -> Result<NamedTempFile, ExportError> {
    use std::os::unix::fs::PermissionsExt;
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::Builder::new()
        .prefix(".mez-export-")
        .suffix(".part")
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(|source| ExportError::Write { path: output.into(), source })
}

/// Renames the finished file to the output, and returns its size.
fn put_in_place(part: NamedTempFile, output: &Path, overwrite: bool) -> Result<u64, ExportError> {
    let synced = part.as_file().sync_all().and_then(|()| part.path().metadata());
    let bytes = synced.map_err(|source| write_error(output, source))?.len();
    let named = if overwrite { part.persist(output) } else { part.persist_noclobber(output) };
    match named {
        Ok(_) => Ok(bytes),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            Err(ExportError::Exists(output.into()))
        }
        Err(error) => Err(write_error(output, error.error)),
    }
}

fn write_error(output: &Path, source: io::Error) -> ExportError {
    ExportError::Write { path: output.into(), source }
}

fn mcap_error(options: &ExportOptions, source: McapError) -> ExportError {
    match source {
        McapError::Io(source) => write_error(&options.output, source),
        source => ExportError::Mcap { path: options.output.clone(), source },
    }
}

/// The frames that are missing between two consecutive frames of a log. `broken` if records between them are damaged.
fn missing_between(last: Option<FrameId>, record: &mez_core::log::Record, broken: bool) -> SkipCounts {
    mez_core::subscription::skipped_between(last, record, (0, broken))
}
