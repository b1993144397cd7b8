//! Measures the cost of a log on disk, and the speed of its recovery.
//!
//! Each turn prints a line of JSON. `mez bench log` computes the figures.
//!
//! | arm | what it does |
//! | --- | --- |
//! | `publish_off` | like a publisher, copies frames at frame rate into pool buffers and appends them to a log at its budget; times every call |
//! | `publish_on` | the same, with the log on disk |
//! | `publish_slow` | the same, on a disk that accepts a tenth of the published bytes |
//! | `seal` | seals records into a buffer: encryption, checksums and the copy |
//! | `write` | follows a log in memory and writes it to disk: all the work of a broker's store thread |
//! | `recover` | reads a log back into memory, from the disk or from the system's cache |

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use mez_core::broker::{Intake, IntakeConfig, Published};
use mez_core::buffer::BufferPool;
use mez_core::frame::{
    ChainLink, ClockSource, Encoding, Epoch, Frame, FrameId, FrameMeta, Quality, Rung, Sequence,
};
use mez_core::log::{LogConfig, LogReader, Record, log};
use mez_core::name::CameraName;
use mez_core::store::{
    Bounds, KEY_BYTES, KeyRing, MasterKey, Progress, RecoveryConfig, SALT_BYTES, SegmentHeader,
    SegmentNumber, Storage, StorageError, StoreConfig, StoreStatus, StoreWriter, recover,
};
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_node::clock::{monotonic_now, wall_now};
use mez_node::memory::KEPT_BYTES_MAX;
use mez_node::persist::{LogFiles, LogKeeper};
use rustix::fs::{Advice, fadvise};

use super::log::thread_cpu_ns;
use crate::Failure;
use crate::pace::{now_ns, sleep_until, wake_on_time};

/// The budget of the logs in memory. It is small, so that it is reached soon.
const MEMORY_BYTES: u64 = 64 << 20;

/// Measure the log on disk
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// A folder on the disk that is meant; a folder within it is made, and removed at the end
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
    /// Turns of each arm but those of publishing
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: usize,
    /// Turns of each arm of publishing: many short ones, so that what else the machine does meets all arms alike
    #[arg(long, value_name = "N", default_value_t = 80)]
    publish_rounds: usize,
    /// Calls of a turn of publishing
    #[arg(long, value_name = "N", default_value_t = 25)]
    calls: u64,
    /// Frames a second when publishing
    #[arg(long, value_name = "F", default_value_t = 60.0)]
    fps: f64,
    /// Their size
    #[arg(long, value_name = "BYTES", default_value_t = 500_000)]
    publish_frame_bytes: usize,
    /// Sizes of frames of the other arms
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "3000,64000,500000")]
    frame_bytes: Vec<usize>,
    /// What a turn seals, writes and recovers
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    turn_bytes: u64,
}

pub(crate) fn run(args: StoreArgs) -> Result<(), Failure> {
    let folder = args.folder.join("mez-measure-store");
    fs::create_dir(&folder)?;
    let measured = measure(&args, &folder);
    fs::remove_dir_all(&folder)?;
    measured
}

fn measure(args: &StoreArgs, folder: &Path) -> Result<(), Failure> {
    for round in 0..args.rounds {
        for &frame_bytes in &args.frame_bytes {
            seal(args, round, frame_bytes);
            write_and_recover(args, round, frame_bytes, folder)?;
        }
    }
    wake_on_time();
    let mut publisher = Publisher::new(args)?;
    let tenth = (args.publish_frame_bytes as f64 * args.fps / 10.0) as u64;
    let mut arms = [("publish_off", None), ("publish_on", Some(u64::MAX))];
    for round in 0..args.publish_rounds {
        for (arm, bytes_per_second) in arms {
            publisher.turn(arm, round, args.calls, args.fps, |reader| {
                bytes_per_second.map(|most| keep(folder, reader, most)).transpose()
            })?;
        }
        // The order alternates, so that no arm always comes first.
        arms.reverse();
        if (round + 1) % SLOW_EVERY == 0 {
            publisher.turn("publish_slow", round, args.calls * SLOW_EVERY as u64, args.fps, |reader| {
                keep(folder, reader, tenth).map(Some)
            })?;
        }
    }
    Ok(())
}

fn camera() -> CameraName {
    "bench/camera".parse().expect("a good name")
}

fn keys() -> KeyRing {
    KeyRing::new(vec![MasterKey::new([7; KEY_BYTES])]).expect("one key is enough")
}

fn files(folder: &Path) -> Result<LogFiles, Failure> {
    Ok(LogFiles::open(folder, &camera(), folder.join("bounds"))?)
}

fn config() -> StoreConfig {
    StoreConfig::new(camera(), keys(), 4 << 30)
}

fn salt() -> [u8; SALT_BYTES] {
    // The logs are temporary and have a known key, so the salt need not be random.
    let mut bytes = [0; SALT_BYTES];
    bytes[..8].copy_from_slice(&now_ns().to_le_bytes());
    bytes
}

/// Calls at the beginning of a turn that do not count, because the log's thread has just started or stopped.
const UNCOUNTED_CALLS: u64 = 5;
/// The arm of the slow disk runs once in this many rounds, for as many times the
/// calls. Only then does the log get further ahead of the disk than memory holds.
const SLOW_EVERY: usize = 10;

// ---- publishing -------------------------------------------------------------------------------------------

/// A camera's publisher with a log at its budget.
struct Publisher {
    intake: Intake,
    reader: LogReader,
    pool: BufferPool,
    source: Vec<u8>,
}

impl Publisher {
    fn new(args: &StoreArgs) -> Result<Self, Failure> {
        let (writer, reader) = log(LogConfig::with_bytes_max(MEMORY_BYTES));
        let anchor = ClockAnchor { wall: wall_now(), monotonic: monotonic_now() };
        let intake = Intake::new(writer, IntakeConfig::new(Epoch(1), anchor));
        let source = noise(args.publish_frame_bytes);
        let mut publisher = Self { intake, reader, pool: BufferPool::new(KEPT_BYTES_MAX), source };
        // The log is filled twice, so that every call evicts and reuses memory.
        for _ in 0..2 * MEMORY_BYTES / args.publish_frame_bytes as u64 {
            publisher.publish()?;
        }
        Ok(publisher)
    }

    fn publish(&mut self) -> Result<(), Failure> {
        let mut buffer = self.pool.take(self.source.len());
        buffer.extend_from_slice(&self.source);
        let frame = Published {
            payload: buffer.freeze(),
            encoding: Encoding::Jpeg,
            width: 1920,
            height: 1080,
            captured: None,
        };
        self.intake.publish(monotonic_now(), frame)?;
        Ok(())
    }

    fn turn(
        &mut self,
        arm: &str,
        round: usize,
        count: u64,
        fps: f64,
        keep: impl FnOnce(&LogReader) -> Result<Option<(LogKeeper<Throttled>, Arc<AtomicBool>)>, Failure>,
    ) -> Result<(), Failure> {
        let kept = keep(&self.reader)?;
        let interval_ns = (1e9 / fps) as u64;
        let begin_ns = now_ns() + 50_000_000;
        let mut calls = Vec::new();
        for call in 0..UNCOUNTED_CALLS + count {
            sleep_until(begin_ns + call * interval_ns);
            let begun = now_ns();
            self.publish()?;
            // Like a camera broker.
            if let Some((keeper, _)) = &kept {
                keeper.wake();
            }
            if call >= UNCOUNTED_CALLS {
                calls.push((now_ns() - begun).to_string());
            }
        }
        let status = kept.as_ref().and_then(|(keeper, _)| keeper.status(&camera())).unwrap_or_default();
        let kept_any = kept.is_some();
        if let Some((keeper, over)) = kept {
            over.store(true, Ordering::Relaxed);
            keeper.stop();
        }
        let StoreStatus { records, lost, degraded, .. } = status;
        let degraded = degraded.is_some();
        if kept_any && records == 0 && !degraded {
            return Err(Failure::from(format!("{arm}: nothing was written, so this would measure no disk")));
        }
        println!(
            r#"{{"arm":"{arm}","round":{round},"frame_bytes":{},"calls_ns":[{}],"records":{records},"lost":{lost},"degraded":{degraded}}}"#,
            self.source.len(),
            calls.join(",")
        );
        Ok(())
    }
}

/// Starts a thread that keeps the log on a disk that accepts `bytes_per_second`.
fn keep(
    folder: &Path,
    reader: &LogReader,
    bytes_per_second: u64,
) -> Result<(LogKeeper<Throttled>, Arc<AtomicBool>), Failure> {
    let over = Arc::new(AtomicBool::new(false));
    let mut files = Throttled { files: files(folder)?, bytes_per_second, over: Arc::clone(&over) };
    let recovery = recover(&mut files, recovery(0, &camera(), &keys()), monotonic_now)?;
    let cursor = reader.cursor_at_end();
    let writer = StoreWriter::new(files, config(), recovery.resume, cursor, monotonic_now(), wall_now());
    let keeper = LogKeeper::start()?;
    keeper.keep(camera(), writer);
    Ok((keeper, over))
}

/// Throttles the disk of this machine.
struct Throttled {
    files: LogFiles,
    bytes_per_second: u64,
    /// Ends the turn. The rest is written at full speed.
    over: Arc<AtomicBool>,
}

impl Storage for Throttled {
    fn list(&mut self) -> Result<Vec<(SegmentNumber, u64)>, StorageError> {
        self.files.list()
    }

    fn create(&mut self, segment: SegmentNumber) -> Result<(), StorageError> {
        self.files.create(segment)
    }

    fn append(&mut self, segment: SegmentNumber, bytes: &[u8]) -> Result<(), StorageError> {
        let done_ns = now_ns() + (bytes.len() as f64 / self.bytes_per_second as f64 * 1e9) as u64;
        while now_ns() < done_ns && !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.files.append(segment, bytes)
    }

    fn start_sync(&mut self, segment: SegmentNumber) -> Result<(), StorageError> {
        self.files.start_sync(segment)
    }

    fn finish_sync(&mut self) -> Option<Result<(), StorageError>> {
        self.files.finish_sync()
    }

    fn read_at(
        &mut self,
        segment: SegmentNumber,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, StorageError> {
        self.files.read_at(segment, offset, buffer)
    }

    fn remove(&mut self, segment: SegmentNumber) -> Result<(), StorageError> {
        self.files.remove(segment)
    }

    fn read_bounds(&mut self) -> Result<Option<Bounds>, StorageError> {
        self.files.read_bounds()
    }

    fn write_bounds(&mut self, bounds: Bounds) -> Result<(), StorageError> {
        self.files.write_bounds(bounds)
    }

    fn read_progress(&mut self) -> Result<Option<Progress>, StorageError> {
        self.files.read_progress()
    }

    fn write_progress(&mut self, progress: Progress) -> Result<(), StorageError> {
        self.files.write_progress(progress)
    }
}

// ---- sealing, writing, recovering -------------------------------------------------------------------------

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|index| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn frame(number: u64, payload: &Bytes) -> Frame {
    let sequence = Sequence(number);
    let meta = FrameMeta {
        id: FrameId { epoch: Epoch(1), sequence },
        captured: Timestamp::from_nanos(number + 1),
        clock_source: ClockSource::Broker,
        width: 1920,
        height: 1080,
        published: (1920, 1080),
        encoding: Encoding::Jpeg,
        rung: Rung::original(),
        chain: ChainLink::still(sequence),
    };
    Frame { meta, payload: payload.clone() }
}

fn seal(args: &StoreArgs, round: usize, frame_bytes: usize) {
    let master = MasterKey::new([7; KEY_BYTES]);
    let header = SegmentHeader {
        key: master.id(),
        salt: salt(),
        epoch: Epoch(1),
        segment: SegmentNumber(0),
        first_index: 0,
        opened: wall_now(),
        anchor: ClockAnchor { wall: Timestamp::MIN, monotonic: Instant::ZERO },
        camera: camera(),
    };
    let sealer = header.encode(&master, &mut Vec::new());
    let payload = Bytes::from(noise(frame_bytes));
    let record = Record {
        frame: frame(1, &payload),
        skipped: Arc::new([]),
        quality: Quality::default(),
        trace: None,
        link_bytes: None,
        arrived: Instant::ZERO,
    };
    let frames = args.turn_bytes / frame_bytes as u64;
    let mut out = Vec::with_capacity(frame_bytes + 1024);
    let begun = thread_cpu_ns();
    for index in 0..frames {
        out.clear();
        sealer.seal(index, &record, &mut out);
    }
    let (cpu_ns, payload_bytes) = (thread_cpu_ns() - begun, frames * frame_bytes as u64);
    println!(
        r#"{{"arm":"seal","round":{round},"frame_bytes":{frame_bytes},"payload_bytes":{payload_bytes},"cpu_ns":{cpu_ns}}}"#
    );
}

fn write_and_recover(
    args: &StoreArgs,
    round: usize,
    frame_bytes: usize,
    folder: &Path,
) -> Result<(), Failure> {
    let folder = folder.join("turn");
    let (mut memory, reader) = log(LogConfig::with_bytes_max(MEMORY_BYTES));
    let mut writer = StoreWriter::new(
        files(&folder)?,
        config(),
        Default::default(),
        reader.cursor_at_end(),
        monotonic_now(),
        wall_now(),
    );
    let payload = Bytes::from(noise(frame_bytes));
    let frames = args.turn_bytes / frame_bytes as u64;
    let (mut cpu_ns, begun) = (0, now_ns());
    for number in 0..frames {
        memory.append(frame(number, &payload), Arc::new([]), monotonic_now())?;
        if (number + 1) * frame_bytes as u64 % (MEMORY_BYTES / 8) < frame_bytes as u64 {
            cpu_ns += settle(&mut writer, false);
        }
    }
    writer.close();
    cpu_ns += settle(&mut writer, true);
    let (ns, payload_bytes) = (now_ns() - begun, frames * frame_bytes as u64);
    let StoreStatus { records, disk_bytes, lost, .. } = writer.status().clone();
    drop(writer);
    println!(
        r#"{{"arm":"write","round":{round},"frame_bytes":{frame_bytes},"payload_bytes":{payload_bytes},"disk_bytes":{disk_bytes},"records":{records},"lost":{lost},"cpu_ns":{cpu_ns},"ns":{ns}}}"#
    );
    for cached in [false, true] {
        if !cached {
            forget_cache(&folder)?;
        }
        let (begun, begun_cpu) = (now_ns(), thread_cpu_ns());
        let recovery = recover(&mut files(&folder)?, recovery(u64::MAX, &camera(), &keys()), monotonic_now)?;
        let (ns, cpu_ns) = (now_ns() - begun, thread_cpu_ns() - begun_cpu);
        let (records, payload_bytes) = (recovery.report.records, recovery.report.payload_bytes);
        println!(
            r#"{{"arm":"recover","round":{round},"frame_bytes":{frame_bytes},"cached":{cached},"records":{records},"payload_bytes":{payload_bytes},"cpu_ns":{cpu_ns},"ns":{ns}}}"#
        );
    }
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Steps until everything in memory is on disk. Returns the processor time used.
fn settle(writer: &mut StoreWriter<LogFiles>, durable: bool) -> u64 {
    let begun = thread_cpu_ns();
    loop {
        let now = monotonic_now();
        let due = writer.step(now, wall_now(), &mut salt);
        if writer.is_settled() || !durable && due > now + Duration::from_millis(10) {
            return thread_cpu_ns() - begun;
        }
        std::thread::sleep(due.saturating_since(monotonic_now()).min(Duration::from_millis(5)));
    }
}

fn recovery<'a>(bytes_max: u64, camera: &'a CameraName, keys: &'a KeyRing) -> RecoveryConfig<'a> {
    RecoveryConfig { camera, keys, bytes_max, time_max: Duration::from_secs(600) }
}

/// Makes the next read come from the disk.
fn forget_cache(folder: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(LogFiles::read_only(folder, &camera()).folder())? {
        let file = fs::File::open(entry?.path())?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}
