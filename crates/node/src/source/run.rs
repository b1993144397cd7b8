//! Reads a source from start to end: starts a child, reads it, delivers its frames, and starts the next child when one dies.
//!
//! Also decides which failures end the source, and after which failures it is opened again.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::process::Child;

use super::child::{LastLines, spawn_child};
use super::command::{InputOptions, Output, read_args, script};
use super::deliver::Progress;
use super::encoder::JpegWorker;
use super::error::SourceError;
use super::input::{FfmpegVersion, Stream};
use super::key_frames::KeyFrames;
use super::pace::{BackOff, Thinning};
use super::probe::{FRAMES_PER_SECOND_UNSTATED, ffmpeg_version, last_lines, probe};
use super::queue::EventQueue;
use super::reader::{ReadEnd, Reader};
use super::spec::SourceSpec;
use super::stream::HandOver;
use super::types::{Shared, SourceInfo, SourceOptions};

/// The most frames of a recording that are read before they are due. With two, decoding continues while one frame is encoded.
const READ_AHEAD_MAX: usize = 2;
/// The most frames of a live source that wait to be encoded: only the newest.
const LIVE_WAITING_MAX: usize = 1;
/// The number of children in a row without a frame after which a recording is given up.
const FRUITLESS_RUNS_MAX: u32 = 5;
/// How long a child that has closed its output may take to exit.
const EXIT_TIME_MAX: Duration = Duration::from_secs(2);
/// The size of the kernel's pipe buffer between child and reader, in bytes. It saves wake-ups, and holds less than one raw frame of 1080p.
const PIPE_BYTES: usize = 1 << 20;

/// A source that is ready to be read.
pub struct PreparedSource {
    spec: SourceSpec,
    options: SourceOptions,
    version: FfmpegVersion,
    /// The stream and how to open it. `None`: not probed yet.
    plan: Option<(Stream, InputOptions)>,
    encoder: JpegWorker,
}

/// The outcome of one child.
#[derive(Debug)]
struct Run {
    /// The number of new frames, without frames that an earlier child had delivered.
    frames: u64,
    /// Time from the first frame to the last.
    worked_for: Duration,
    end: RunEnd,
    /// The last lines of the child's standard error.
    complaints: String,
}

#[derive(Debug)]
enum RunEnd {
    /// The child exited.
    Exited(ExitStatus),
    /// The child was not read to its end, and was killed.
    Early(ReadEnd),
}

impl RunEnd {
    /// True if the child exited by itself, with or without an error. Another run of the same recording would end the same way.
    fn is_own(&self) -> bool {
        matches!(self, Self::Exited(status) if status.code().is_some())
    }

    fn is_asked(&self) -> bool {
        matches!(self, Self::Early(ReadEnd::Asked))
    }

    /// True if reading packets was stopped, although the child works.
    fn is_of_packets(&self) -> bool {
        matches!(self, Self::Early(ReadEnd::Unfit(_) | ReadEnd::NoKeyFrame(_) | ReadEnd::Asked))
    }

    fn describe(&self, complaints: &str) -> String {
        let what = match self {
            Self::Exited(status) if status.success() => "ffmpeg reached the end of the stream".to_owned(),
            Self::Exited(status) => format!("ffmpeg ended ({status})"),
            Self::Early(end) => end.to_string(),
        };
        if complaints.is_empty() { what } else { format!("{what}: {}", last_lines(complaints)) }
    }
}

/// Ends the event queue even if the task panics, so that the caller does not wait for ever.
struct EndWithTheTask(Arc<EventQueue>);

impl Drop for EndWithTheTask {
    fn drop(&mut self) {
        self.0.finish(Err(SourceError::Stopped));
    }
}

impl fmt::Debug for PreparedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedSource").field(&self.spec).finish()
    }
}

impl PreparedSource {
    /// Checks everything that can be checked before the first frame, as [`super::Source::spawn`] does.
    ///
    /// # Errors
    /// [`SourceError`].
    pub async fn prepare(spec: SourceSpec, options: SourceOptions) -> Result<Self, SourceError> {
        if let Some(fps) = options.fps
            && !(0.001..=1000.0).contains(&fps)
        {
            return Err(SourceError::Rate { fps });
        }
        if options.looped && spec.is_always_live() {
            return Err(SourceError::LoopOnLive { source_name: spec.to_string() });
        }
        let encoder = JpegWorker::new(options.jpeg_quality)?;
        let version = ffmpeg_version(&options.ffmpeg).await?;
        if spec.secret_url().is_some() && !version.has_concat_options() {
            return Err(SourceError::OldFfmpeg { source_name: spec.to_string() });
        }
        let plan = match spec {
            SourceSpec::File(_) | SourceSpec::Device(_) => Some(probe(&spec, &options).await?),
            SourceSpec::Url(_) => None,
        };
        Ok(Self { spec, options, version, plan, encoder })
    }

    /// How the source is asked for key frames.
    pub(super) fn key_frames(&self) -> KeyFrames {
        KeyFrames::of(&self.spec, &self.options.onvif)
    }

    /// What is known of the source so far.
    pub(super) fn info(&self) -> Option<SourceInfo> {
        self.plan.as_ref().map(|(stream, _)| info(stream, &self.options))
    }

    /// Reads until the source ends, if it ever does.
    pub(super) async fn run(
        self,
        events: Arc<EventQueue>,
        shared: Arc<Mutex<Shared>>,
        key_frames: Arc<KeyFrames>,
    ) {
        let _end = EndWithTheTask(Arc::clone(&events));
        let Self { spec, options, version, plan, encoder } = self;
        let progress = Progress::new(Arc::clone(&events), shared, encoder, key_frames);
        events.finish(read_all(&spec, &options, version, plan, progress).await);
    }
}

/// Runs one child after the other.
async fn read_all(
    spec: &SourceSpec,
    options: &SourceOptions,
    version: FfmpegVersion,
    mut plan: Option<(Stream, InputOptions)>,
    mut progress: Progress,
) -> Result<(), SourceError> {
    let mut options = options.clone();
    let mut back_off = BackOff::new();
    let mut fruitless_runs = 0;
    let mut ever_worked = false;
    loop {
        let looked = match plan.take() {
            Some(plan) => Ok(plan),
            None => probe(spec, &options).await,
        };
        let (stream, input) = match looked {
            Ok(plan) => plan,
            Err(error) if !ever_worked && is_final(&error) => return Err(error),
            Err(error) => {
                wait(&progress.events, error.to_string(), back_off.after(Duration::ZERO)).await;
                continue;
            }
        };
        if stream.live && options.looped {
            return Err(SourceError::LoopOnLive { source_name: spec.to_string() });
        }
        options.packets &= can_go_on(spec, &stream, &options);
        progress.lock_shared().info = Some(info(&stream, &options));
        let run = match run_once(spec, &options, version, &stream, input, &mut progress).await {
            Ok(run) => run,
            Err(error) if !ever_worked || is_final(&error) => return Err(error),
            Err(error) => {
                wait(&progress.events, error.to_string(), back_off.after(Duration::ZERO)).await;
                continue;
            }
        };
        progress.lock_shared().child_pid = None;
        fruitless_runs = if run.frames > 0 { 0 } else { fruitless_runs + 1 };
        ever_worked |= run.frames > 0;
        let detail = || last_lines(&run.complaints);
        if !stream.live {
            if !ever_worked && run.end.is_own() {
                return Err(SourceError::NoFrames { source_name: spec.to_string(), detail: detail() });
            }
            if fruitless_runs >= FRUITLESS_RUNS_MAX {
                let detail = run.end.describe(&run.complaints);
                return Err(SourceError::Unreadable { source_name: spec.to_string(), detail });
            }
            if run.end.is_own() && !options.looped {
                if !run.complaints.is_empty() {
                    tracing::warn!(source = %spec, "the source has ended, but parts of it could not be read: {}", detail());
                }
                return Ok(());
            }
            if options.looped && !run.end.is_of_packets() {
                progress.position = 0;
            }
        }
        // A live source without frames may have changed its stream, so it is probed again.
        let keep_plan = run.frames > 0 || !stream.live;
        if run.end.is_of_packets() {
            options.packets = goes_on_with_packets(spec, &run.end, stream.live);
            // The device may offer Motion JPEG as well, which is better than decoding.
            let looks_again = matches!(spec, SourceSpec::Device(_)) && !options.packets;
            plan = Some((stream, input)).filter(|_| !looks_again);
            continue;
        }
        let why = run.end.describe(&run.complaints);
        // ffmpeg loops by itself where it can. Where it cannot, starting it again is not a failure.
        let is_next_pass = options.looped && run.end.is_own() && run.frames > 0;
        if keep_plan {
            plan = Some((stream, input));
        }
        if !is_next_pass {
            wait(&progress.events, why, back_off.after(run.worked_for)).await;
        }
    }
}

/// Whether coded pictures may pass unchanged. If not, logs the reason; this is final.
fn can_go_on(spec: &SourceSpec, stream: &Stream, options: &SourceOptions) -> bool {
    match &stream.unfit {
        Some(unfit) if options.packets => tell_decoded(spec, unfit),
        None if options.packets && stream.packets.is_some() && stream.live && options.fps.is_some() => {
            tracing::info!(
                source = %spec,
                "its video is decoded, because --fps leaves out frames that others depend on; without --fps the video is sent unchanged"
            )
        }
        _ => return true,
    }
    false
}

/// Whether the next child is to give packets again. Logs why another child is started.
fn goes_on_with_packets(spec: &SourceSpec, end: &RunEnd, live: bool) -> bool {
    let (why, goes_on) = (end.describe(""), live && end.is_asked());
    match goes_on {
        true => tracing::info!(source = %spec, "{why}; opening the source again to get a keyframe"),
        false => tell_decoded(spec, &why),
    }
    goes_on
}

fn tell_decoded(spec: &SourceSpec, why: &str) {
    tracing::warn!(
        source = %spec,
        "{why}; until then its frames are decoded and encoded as JPEG. Restart `mez camera` after changing the source"
    );
}

/// True for errors that do not go away with time.
fn is_final(error: &SourceError) -> bool {
    matches!(
        error,
        SourceError::NoFfmpeg { .. }
            | SourceError::NotFfmpeg { .. }
            | SourceError::OldFfmpeg { .. }
            | SourceError::NotPermitted { .. }
            | SourceError::NoVideo { .. }
            | SourceError::TooLarge { .. }
    )
}

async fn wait(events: &EventQueue, why: String, after: Duration) {
    events.push_restarting(why, after);
    tokio::time::sleep(after).await;
}

/// Starts one child and reads it to its end.
async fn run_once(
    spec: &SourceSpec,
    options: &SourceOptions,
    version: FfmpegVersion,
    stream: &Stream,
    input: InputOptions,
    progress: &mut Progress,
) -> Result<Run, SourceError> {
    let output = output(stream, options);
    // A request to an earlier child is no reason to end this one, so it is discarded.
    let _ = tokio::time::timeout(Duration::ZERO, progress.key_frames.reopen_wanted()).await;
    if matches!(output, Output::Packets(_)) {
        progress.key_frames.begin();
    }
    let args = read_args(spec, input, stream, output, options.looped, version);
    let mut child = spawn_child(&options.ffmpeg, args, script(spec), Stdio::piped()).await?;
    progress.lock_shared().child_pid = child.id();
    let lines = LastLines::default();
    let listening = child.stderr.take().map(|stderr| tokio::spawn(lines.clone().read(stderr)));
    let stdout = child.stdout.take().ok_or_else(|| SourceError::Spawn {
        program: options.ffmpeg.clone(),
        detail: "its output is not connected".to_owned(),
    })?;
    // Only a speed-up, so an error is ignored: an unprivileged user may have reached the kernel's limit.
    let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE_BYTES);

    let items_max = if stream.live { LIVE_WAITING_MAX } else { READ_AHEAD_MAX };
    let hand_over = HandOver::new(items_max);
    let spare = Mutex::new(Vec::new());
    let (events, key_frames) = (Arc::clone(&progress.events), Arc::clone(&progress.key_frames));
    // Thinning continues across restarts, so that a flapping camera does not send more often.
    let thinning =
        progress.thinning.take().or_else(|| options.fps.map(Thinning::new)).filter(|_| stream.live);
    let mut reader = Reader {
        hand_over: &hand_over,
        spare: &spare,
        events: &events,
        live: stream.live,
        thinning,
        leave_out: if stream.live { 0 } else { progress.position },
        stalled_after: options.stalled_after,
        frames: 0,
        broken_told: 0,
        first_and_last: None,
        key_frames: &key_frames,
    };
    let reading = async {
        let end = reader.read(stdout, output).await;
        // Frames that were read are still delivered, however reading ended.
        hand_over.close();
        end
    };
    let delivering = async {
        if stream.live {
            progress.deliver_live(&hand_over, &spare).await;
        } else {
            progress.deliver_paced(&hand_over, &spare, frames_per_second(stream, options)).await;
        }
    };
    let (end, ()) = tokio::join!(reading, delivering);

    let Reader { thinning, frames, first_and_last, .. } = reader;
    progress.thinning = thinning;
    progress.position += frames;
    let end = ended(end, &mut child, spec, options).await?;
    if let Some(listening) = listening {
        // The child has exited, so its standard error ends too, unless another process has inherited it.
        let _ = tokio::time::timeout(EXIT_TIME_MAX, listening).await;
    }
    let worked_for =
        first_and_last.map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first));
    Ok(Run { frames, worked_for, end, complaints: lines.text() })
}

/// Waits for the child of a run whose output was read to this end, or kills it. Returns how the run ended.
async fn ended(
    end: ReadEnd,
    child: &mut Child,
    spec: &SourceSpec,
    options: &SourceOptions,
) -> Result<RunEnd, SourceError> {
    match end {
        ReadEnd::End => Ok(RunEnd::Exited(exit_of(child, &options.ffmpeg).await?)),
        ReadEnd::TooLarge { width, height } => {
            Err(SourceError::TooLarge { source_name: spec.to_string(), width, height })
        }
        early => {
            // Killing fails only if the child has already exited.
            let _ = child.kill().await;
            Ok(RunEnd::Early(early))
        }
    }
}

/// The output in which the frames of a stream are read.
fn output(stream: &Stream, options: &SourceOptions) -> Output {
    match stream {
        Stream { passthrough: true, .. } => Output::Jpeg,
        // Frames of a chain cannot be thinned out: other frames need them.
        Stream { packets: Some(encoding), .. }
            if options.packets && !(stream.live && options.fps.is_some()) =>
        {
            Output::Packets(*encoding)
        }
        _ => Output::Pictures,
    }
}

fn info(stream: &Stream, options: &SourceOptions) -> SourceInfo {
    let rate = if stream.live { stream.frames_per_second } else { Some(frames_per_second(stream, options)) };
    SourceInfo {
        codec: stream.codec.clone(),
        width: stream.width,
        height: stream.height,
        frames_per_second: rate,
        passthrough: output(stream, options) != Output::Pictures,
        live: stream.live,
    }
}

fn frames_per_second(stream: &Stream, options: &SourceOptions) -> f64 {
    options.fps.or(stream.frames_per_second).unwrap_or(FRAMES_PER_SECOND_UNSTATED)
}

/// Waits for a child that has closed its output. A child that does not exit in [`EXIT_TIME_MAX`] is killed.
async fn exit_of(child: &mut Child, program: &Path) -> Result<ExitStatus, SourceError> {
    let failed =
        |error: io::Error| SourceError::Spawn { program: program.to_owned(), detail: error.to_string() };
    match tokio::time::timeout(EXIT_TIME_MAX, child.wait()).await {
        Ok(status) => status.map_err(failed),
        Err(_) => {
            child.start_kill().map_err(failed)?;
            child.wait().await.map_err(failed)
        }
    }
}
