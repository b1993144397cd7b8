//! The loop that joins the parts: start a child, read it, pace or thin its frames, encode, hand over; and do it
//! again when the child dies.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mez_media::Yuv420View;
use mez_media::jpeg::{EncodeError, Encoder, JpegFrame, Sampling};
use tokio::process::{Child, ChildStdout};

use super::child::{LastLines, spawn_child};
use super::command::{InputOptions, Output, read_args, script};
use super::pace::{BackOff, Schedule, Thinning};
use super::probe::{FRAMES_PER_SECOND_UNSTATED, FfmpegVersion, Stream, ffmpeg_version, last_lines, probe};
use super::queue::EventQueue;
use super::stream::{HandOver, JpegStream, PictureStream, PictureStreamError, RawPicture};
use super::{Shared, SourceError, SourceFrame, SourceInfo, SourceOptions, SourceSpec};

/// Frames of a recording that are read before they are due. Two, so that decoding goes on while one is encoded.
const READ_AHEAD_MAX: usize = 2;
/// Frames of a live source that wait to be encoded: the newest.
const LIVE_WAITING_MAX: usize = 1;
/// At its start a source gets this many times [`SourceOptions::stalled_after`]: it may have to wait for a keyframe.
const START_FACTOR: u32 = 2;
/// Children of a recording that may die without a frame in a row before the recording is given up.
const FRUITLESS_RUNS_MAX: u32 = 5;
/// How long a child that has closed its output may take to end.
const EXIT_TIME_MAX: Duration = Duration::from_secs(2);
/// Bytes that the kernel buffers between child and reader: one wake-up for many reads, and never a whole raw frame
/// of a live source.
const PIPE_BYTES: usize = 1 << 20;

/// A source that is ready to be read.
pub(super) struct Reading {
    spec: SourceSpec,
    options: SourceOptions,
    version: FfmpegVersion,
    /// How to open it, once that is known.
    plan: Option<(Stream, InputOptions)>,
    encoder: JpegWorker,
}

/// What goes on over all children of one source.
struct Progress {
    events: Arc<EventQueue>,
    shared: Arc<Mutex<Shared>>,
    schedule: Option<Schedule>,
    thinning: Option<Thinning>,
    last_captured: Option<Instant>,
    /// Frames of the recording that were taken so far, in this pass over it.
    position: u64,
    encoder: JpegWorker,
}

/// How the reading of one child went.
#[derive(Debug)]
struct Run {
    /// Frames that came which had not come before.
    frames: u64,
    /// Time from the first frame to the last.
    worked_for: Duration,
    end: RunEnd,
    /// What the child complained about.
    complaints: String,
}

#[derive(Debug)]
enum RunEnd {
    /// The child ended.
    Exited(ExitStatus),
    /// The child gave nothing for too long, and was killed.
    Stalled(Duration),
    /// What it sent could not be understood.
    Broken(String),
}

impl RunEnd {
    /// True if the child came to its own end, good or bad: trying again would give the same.
    fn is_own(&self) -> bool {
        matches!(self, Self::Exited(status) if status.code().is_some())
    }

    fn describe(&self, complaints: &str) -> String {
        let what = match self {
            Self::Exited(status) if status.success() => "ffmpeg came to the end of the stream".to_owned(),
            Self::Exited(status) => format!("ffmpeg ended ({status})"),
            Self::Stalled(after) => format!("no frame for {} s", after.as_secs_f64()),
            Self::Broken(detail) => detail.clone(),
        };
        if complaints.is_empty() { what } else { format!("{what}: {}", last_lines(complaints)) }
    }
}

/// Ends the event queue even if the task panics, so that nobody waits for ever.
struct EndWithTheTask(Arc<EventQueue>);

impl Drop for EndWithTheTask {
    fn drop(&mut self) {
        self.0.finish(Err(SourceError::Stopped));
    }
}

impl Reading {
    /// Checks everything that can be checked before the first frame.
    pub(super) async fn prepare(spec: SourceSpec, options: SourceOptions) -> Result<Self, SourceError> {
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

    /// What is known of the source so far.
    pub(super) fn info(&self) -> Option<SourceInfo> {
        self.plan.as_ref().map(|(stream, _)| info(stream, &self.options))
    }

    /// Reads until the end, or for ever.
    pub(super) async fn run(self, events: Arc<EventQueue>, shared: Arc<Mutex<Shared>>) {
        let _end = EndWithTheTask(Arc::clone(&events));
        let Self { spec, options, version, plan, encoder } = self;
        let progress = Progress {
            events: Arc::clone(&events),
            shared,
            schedule: None,
            thinning: None,
            last_captured: None,
            position: 0,
            encoder,
        };
        events.finish(read_all(&spec, &options, version, plan, progress).await);
    }
}

/// One child after the other.
async fn read_all(
    spec: &SourceSpec,
    options: &SourceOptions,
    version: FfmpegVersion,
    mut plan: Option<(Stream, InputOptions)>,
    mut progress: Progress,
) -> Result<(), SourceError> {
    let mut back_off = BackOff::new();
    let mut fruitless_runs = 0;
    let mut ever_worked = false;
    loop {
        let (stream, input) = match plan.take() {
            Some(plan) => plan,
            None => match probe(spec, options).await {
                Ok(plan) => plan,
                Err(error) if !ever_worked && is_final(&error) => return Err(error),
                Err(error) => {
                    wait(&progress.events, error.to_string(), back_off.after(Duration::ZERO)).await;
                    continue;
                }
            },
        };
        if stream.live && options.looped {
            return Err(SourceError::LoopOnLive { source_name: spec.to_string() });
        }
        progress.lock_shared().info = Some(info(&stream, options));
        let run = match run_once(spec, options, version, &stream, input, &mut progress).await {
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
                    tracing::warn!(source = %spec, "ended, but not all of it could be read: {}", detail());
                }
                return Ok(());
            }
            if options.looped {
                progress.position = 0;
            }
        }
        // A stream that gave nothing may have become another one: look again.
        let keep_plan = run.frames > 0 || !stream.live;
        let why = run.end.describe(&run.complaints);
        // ffmpeg goes back to the start by itself where it can; where it cannot, starting it again is no failure.
        let is_next_pass = options.looped && run.end.is_own() && run.frames > 0;
        if keep_plan {
            plan = Some((stream, input));
        }
        if !is_next_pass {
            wait(&progress.events, why, back_off.after(run.worked_for)).await;
        }
    }
}

/// True for errors that waiting does not cure.
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
    let output = if stream.passthrough { Output::Jpeg } else { Output::Pictures };
    let args = read_args(spec, input, stream, output, options.looped, version);
    let mut child = spawn_child(&options.ffmpeg, args, script(spec), Stdio::piped()).await?;
    progress.lock_shared().child_pid = child.id();
    let lines = LastLines::default();
    let listening = child.stderr.take().map(|stderr| tokio::spawn(lines.clone().read(stderr)));
    let stdout = child.stdout.take().ok_or_else(|| SourceError::Spawn {
        program: options.ffmpeg.clone(),
        detail: "its output is not connected".to_owned(),
    })?;
    // Only a speed-up: an unprivileged user may have used up what the kernel allows.
    let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE_BYTES);

    let items_max = if stream.live { LIVE_WAITING_MAX } else { READ_AHEAD_MAX };
    let hand_over = HandOver::new(items_max);
    let spare = Mutex::new(Vec::new());
    let events = Arc::clone(&progress.events);
    // Thinning goes on over restarts, so that a camera that flaps is not sent more often.
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
    };
    let reading = async {
        let end = reader.read(stdout, output).await;
        // Whatever happened, what was read is still delivered.
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
    let end = match end {
        ReadEnd::End => RunEnd::Exited(exit_of(&mut child, &options.ffmpeg).await?),
        ReadEnd::Stalled(after) => RunEnd::Stalled(after),
        ReadEnd::Broken(detail) => RunEnd::Broken(detail),
        ReadEnd::TooLarge { width, height } => {
            return Err(SourceError::TooLarge { source_name: spec.to_string(), width, height });
        }
    };
    if !matches!(end, RunEnd::Exited(_)) {
        // It fails only if the child has ended meanwhile.
        let _ = child.kill().await;
    }
    if let Some(listening) = listening {
        // The child has ended, so its standard error ends too, unless it has left that to another process.
        let _ = tokio::time::timeout(EXIT_TIME_MAX, listening).await;
    }
    let worked_for =
        first_and_last.map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first));
    Ok(Run { frames, worked_for, end, complaints: lines.text() })
}

fn info(stream: &Stream, options: &SourceOptions) -> SourceInfo {
    let rate = if stream.live { stream.frames_per_second } else { Some(frames_per_second(stream, options)) };
    SourceInfo {
        codec: stream.codec.clone(),
        width: stream.width,
        height: stream.height,
        frames_per_second: rate,
        passthrough: stream.passthrough,
        live: stream.live,
    }
}

fn frames_per_second(stream: &Stream, options: &SourceOptions) -> f64 {
    options.fps.or(stream.frames_per_second).unwrap_or(FRAMES_PER_SECOND_UNSTATED)
}

/// Waits for a child that has closed its output; one that does not end is killed.
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

/// A frame as it came from the child.
#[derive(Debug)]
enum Picture {
    Jpeg(JpegFrame),
    Raw(RawPicture),
}

#[derive(Debug)]
struct Arrived {
    picture: Picture,
    /// When its first bytes arrived.
    began: Instant,
}

/// Buffers of raw pictures, to be used again. Never more than are under way at once.
type Spare = Mutex<Vec<Vec<u8>>>;

fn take_spare(spare: &Spare) -> Vec<u8> {
    spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
}

fn give_back(spare: &Spare, picture: Picture) {
    if let Picture::Raw(raw) = picture {
        spare.lock().unwrap_or_else(PoisonError::into_inner).push(raw.planes);
    }
}

#[derive(Debug)]
enum ReadEnd {
    /// The child closed its output.
    End,
    Stalled(Duration),
    Broken(String),
    TooLarge {
        width: u32,
        height: u32,
    },
}

impl From<PictureStreamError> for ReadEnd {
    fn from(error: PictureStreamError) -> Self {
        match error {
            PictureStreamError::Io(error) => error.into(),
            PictureStreamError::Format(detail) => Self::Broken(detail),
            PictureStreamError::TooLarge { width, height } => Self::TooLarge { width, height },
        }
    }
}

impl From<io::Error> for ReadEnd {
    fn from(error: io::Error) -> Self {
        Self::Broken(format!("its output could not be read: {error}"))
    }
}

/// Takes frames out of a child's output and passes them on: all of a recording, the newest of a live source.
struct Reader<'a> {
    hand_over: &'a HandOver<Arrived>,
    spare: &'a Spare,
    events: &'a EventQueue,
    live: bool,
    thinning: Option<Thinning>,
    /// Frames at the start that were delivered before the last child died.
    leave_out: u64,
    stalled_after: Duration,
    frames: u64,
    broken_told: u64,
    first_and_last: Option<(Instant, Instant)>,
}

impl Reader<'_> {
    async fn read(&mut self, stdout: ChildStdout, output: Output) -> ReadEnd {
        let end = match output {
            Output::Jpeg => self.read_jpeg(stdout).await,
            Output::Pictures => self.read_pictures(stdout).await,
        };
        end.unwrap_or_else(|end| end)
    }

    async fn read_jpeg(&mut self, stdout: ChildStdout) -> Result<ReadEnd, ReadEnd> {
        let mut stream = JpegStream::new(stdout);
        loop {
            let next = self.in_time(stream.next()).await??;
            self.tell_broken(stream.broken());
            let Some((frame, began)) = next else { return Ok(ReadEnd::End) };
            self.pass_on(Arrived { picture: Picture::Jpeg(frame), began }).await;
        }
    }

    async fn read_pictures(&mut self, stdout: ChildStdout) -> Result<ReadEnd, ReadEnd> {
        let Some(mut stream) = self.in_time(PictureStream::open(stdout)).await?? else {
            return Ok(ReadEnd::End);
        };
        loop {
            let next = self.in_time(stream.next(take_spare(self.spare))).await??;
            self.tell_broken(stream.broken());
            let Some((raw, began)) = next else { return Ok(ReadEnd::End) };
            self.pass_on(Arrived { picture: Picture::Raw(raw), began }).await;
        }
    }

    async fn in_time<T>(&self, step: impl Future<Output = T>) -> Result<T, ReadEnd> {
        let limit = if self.frames == 0 {
            self.stalled_after.saturating_mul(START_FACTOR)
        } else {
            self.stalled_after
        };
        tokio::time::timeout(limit, step).await.map_err(|_| ReadEnd::Stalled(limit))
    }

    fn tell_broken(&mut self, broken: u64) {
        self.events.add_skipped(broken - self.broken_told);
        self.broken_told = broken;
    }

    async fn pass_on(&mut self, arrived: Arrived) {
        if self.leave_out > 0 {
            self.leave_out -= 1;
            return give_back(self.spare, arrived.picture);
        }
        self.frames += 1;
        let first = self.first_and_last.map_or(arrived.began, |(first, _)| first);
        self.first_and_last = Some((first, arrived.began));
        if self.thinning.as_mut().is_some_and(|thinning| !thinning.keep(arrived.began)) {
            give_back(self.spare, arrived.picture);
        } else if !self.live {
            self.hand_over.push(arrived).await;
        } else if let Some(displaced) = self.hand_over.push_newest(arrived) {
            self.events.add_skipped(1);
            give_back(self.spare, displaced.picture);
        }
    }
}

impl Progress {
    fn lock_shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers the frames of a recording, each when it is due.
    async fn deliver_paced(&mut self, hand_over: &HandOver<Arrived>, spare: &Spare, frames_per_second: f64) {
        while let Some(Arrived { picture, .. }) = hand_over.pop().await {
            let now = Instant::now();
            if self.schedule.as_mut().is_some_and(|schedule| schedule.leave_out(now, hand_over.has_item())) {
                self.events.add_skipped(1);
                give_back(spare, picture);
                continue;
            }
            // Encoded before it is due, as a camera would: what is measured from then on is the way, not the encoder.
            let Some(mut frame) = self.encoded(picture, spare).await else { continue };
            let now = Instant::now();
            let schedule = self.schedule.get_or_insert_with(|| Schedule::new(now, frames_per_second));
            let slot = schedule.take(now);
            self.events.add_skipped(slot.skipped);
            tokio::time::sleep_until(slot.due.into()).await;
            frame.captured = slot.due;
            self.events.push_frame(frame);
        }
    }

    /// Delivers the frames of a live source as they come.
    async fn deliver_live(&mut self, hand_over: &HandOver<Arrived>, spare: &Spare) {
        while let Some(Arrived { picture, began }) = hand_over.pop().await {
            let Some(mut frame) = self.encoded(picture, spare).await else { continue };
            // Two frames that arrive in one read are still two moments.
            let earliest = self.last_captured.map(|last| last + Duration::from_micros(1));
            frame.captured = earliest.map_or(began, |earliest| began.max(earliest));
            self.last_captured = Some(frame.captured);
            self.events.push_frame(frame);
        }
    }

    /// The frame as JPEG; `None`, counted, where it cannot be encoded.
    async fn encoded(&mut self, picture: Picture, spare: &Spare) -> Option<SourceFrame> {
        let captured = Instant::now();
        match picture {
            Picture::Jpeg(JpegFrame { jpeg, info }) => {
                Some(SourceFrame { jpeg, width: info.width, height: info.height, captured })
            }
            Picture::Raw(raw) => {
                let (width, height) = (raw.width, raw.height);
                let (jpeg, raw) = self.encoder.encode(raw).await;
                if let Some(raw) = raw {
                    give_back(spare, Picture::Raw(raw));
                }
                match jpeg {
                    Ok(jpeg) => Some(SourceFrame { jpeg, width, height, captured }),
                    Err(detail) => {
                        tracing::warn!("a frame was lost: {detail}");
                        self.events.add_skipped(1);
                        None
                    }
                }
            }
        }
    }
}

/// An encoder that works on the runtime's threads for blocking work, so that no other task waits for it.
struct JpegWorker {
    quality: u8,
    /// Absent while it works, and after it was lost to a panic.
    encoder: Option<Encoder>,
}

impl JpegWorker {
    fn new(quality: u8) -> Result<Self, EncodeError> {
        Ok(Self { quality, encoder: Some(Encoder::new(quality, Sampling::Yuv420)?) })
    }

    /// Encodes a picture and gives its buffer back, unless that was lost.
    async fn encode(&mut self, raw: RawPicture) -> (Result<Bytes, String>, Option<RawPicture>) {
        let encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => match Encoder::new(self.quality, Sampling::Yuv420) {
                Ok(encoder) => encoder,
                Err(error) => return (Err(error.to_string()), Some(raw)),
            },
        };
        let work = move || {
            let mut encoder = encoder;
            let jpeg = Yuv420View::packed(&raw.planes, raw.width, raw.height)
                .map_err(EncodeError::from)
                .and_then(|view| encoder.encode_yuv420(&view));
            (jpeg, raw, encoder)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok((jpeg, raw, encoder)) => {
                self.encoder = Some(encoder);
                (jpeg.map_err(|error| error.to_string()), Some(raw))
            }
            Err(error) => (Err(format!("the encoder failed: {error}")), None),
        }
    }
}
