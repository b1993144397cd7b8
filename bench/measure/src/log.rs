//! Measures the cost of the log, compared with that of a program without it.
//!
//! Arms of one kind alternate (A B A B …). Each turn prints a line of JSON. `mez bench log` computes the ratios.
//!
//! | arm | what it does with each frame |
//! | --- | --- |
//! | `append` | copies a borrowed buffer into a buffer of the pool, like a broker, and appends it to a log at its budget |
//! | `append_owned` | appends an existing payload |
//! | `copy_ring` | copies the buffer into a ring of touched buffers, as many as the log has frames: the lowest cost of keeping frames |
//! | `copy_new` | copies the buffer into a new `Vec` at the end of a queue of as many, and drops the oldest, like a simple program |
//! | `read` | reads every record of the log with a cursor, and sums all bytes |
//! | `read_plain` | sums the same bytes in a list of buffers |
//! | `get` | gets a record at a random index, without reading its bytes |
//! | `next` | gets the records with a cursor, one after another |
//! | `at` | finds the record at a random time |
//! | `between` | finds the records of ten seconds from a random time |
//! | `writer` | appends at frame rate while cursors on other threads read every byte, each at frame rate |

use std::collections::VecDeque;
use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant as Stopwatch};

use bytes::Bytes;
use clap::Args;
use mez_core::buffer::BufferPool;
use mez_core::frame::{
    ChainLink, ClockSource, Encoding, Epoch, Frame, FrameId, FrameMeta, Rung, Sequence, SkipRange,
};
use mez_core::log::{LogConfig, LogReader, LogWriter, Read, log};
use mez_core::units::{Instant, Timestamp};
use mez_node::memory::KEPT_BYTES_MAX;
use rustix::time::{ClockId, clock_gettime};

use crate::Failure;
use crate::pace::{now_ns, sleep_until, wake_on_time};

/// The interval between capture times.
const FRAME_INTERVAL_NS: u64 = 1_000_000_000 / 15;
/// The span of a range query.
const RANGE_NS: u64 = 10_000_000_000;
/// Number of places within a page at which borrowed frames begin, in turn. The speed of a copy varies by
/// a third with the positions of source and destination within their pages. This must not favour an arm.
const PLACES: usize = 64;
/// Distance of these places, in bytes.
const PLACE_BYTES: usize = 64;
/// Queries of a turn that are timed together.
const QUERIES: usize = 20_000;

/// Measure the log
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The log's budget, and what the other arms keep
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    memory_bytes: u64,
    /// Sizes of frames
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "3000,100000,500000")]
    frame_bytes: Vec<usize>,
    /// Only these arms, for a profiler
    #[arg(long, value_name = "ARM", value_delimiter = ',')]
    only: Vec<String>,
    /// Turns of each arm
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: usize,
    /// What an arm appends or copies in a turn
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    turn_bytes: u64,
    /// The readers beside which the writer is measured
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,64")]
    readers: Vec<usize>,
    /// Frames a second that the writer appends and each reader reads
    #[arg(long, value_name = "F", default_value_t = 15.0)]
    writer_fps: f64,
    /// How long a turn of the writer lasts
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    writer_seconds: f64,
    /// The frames of the writer
    #[arg(long, value_name = "BYTES", default_value_t = 500_000)]
    writer_frame_bytes: usize,
}

pub(crate) fn run(args: LogArgs) -> Result<(), Failure> {
    for &bytes in &args.frame_bytes {
        let mut bench = Bench::new(&args, bytes)?;
        for round in 0..args.rounds {
            bench.round(round)?;
        }
    }
    if !args.only.is_empty() && !args.only.iter().any(|arm| arm == "writer") {
        return Ok(());
    }
    wake_on_time();
    for round in 0..args.rounds {
        for &readers in &args.readers {
            write_beside(&args, round, readers)?;
        }
    }
    Ok(())
}

/// A log at its budget, with a writer that numbers frames.
struct Filled {
    writer: LogWriter,
    reader: LogReader,
    next: u64,
    no_skips: Arc<[SkipRange]>,
    /// A buffer pool, like a broker's.
    pool: BufferPool,
}

impl Filled {
    fn new(memory_bytes: u64, payload: &[u8]) -> Result<Self, Failure> {
        let (writer, reader) = log(LogConfig::with_bytes_max(memory_bytes));
        let mut filled =
            Self { writer, reader, next: 0, no_skips: Arc::new([]), pool: BufferPool::new(KEPT_BYTES_MAX) };
        // The log is filled twice, so that every later append evicts and reuses memory.
        let frames = 2 * memory_bytes / payload.len() as u64;
        for _ in 0..frames {
            filled.append(filled.copied(payload))?;
        }
        Ok(filled)
    }

    fn copied(&self, payload: &[u8]) -> Bytes {
        let mut buffer = self.pool.take(payload.len());
        buffer.extend_from_slice(payload);
        buffer.freeze()
    }

    fn append(&mut self, payload: Bytes) -> Result<(), Failure> {
        let sequence = Sequence(self.next);
        let meta = FrameMeta {
            id: FrameId { epoch: Epoch(1), sequence },
            captured: captured(self.next),
            clock_source: ClockSource::Broker,
            width: 1920,
            height: 1080,
            published: (1920, 1080),
            encoding: Encoding::Jpeg,
            rung: Rung::original(),
            chain: ChainLink::still(sequence),
        };
        self.next += 1;
        self.writer.append(Frame { meta, payload }, Arc::clone(&self.no_skips), Instant::ZERO)?;
        Ok(())
    }
}

fn captured(frame: u64) -> Timestamp {
    Timestamp::from_nanos((frame + 1) * FRAME_INTERVAL_NS)
}

/// The arms for one size of frames.
struct Bench {
    bytes: usize,
    /// If not empty, only these arms run.
    only: Vec<String>,
    /// Frames that an arm appends or copies in a turn.
    frames: usize,
    source: Source,
    log: Filled,
    ring: Vec<Vec<u8>>,
    ring_next: usize,
    queue: VecDeque<Vec<u8>>,
    random: u64,
}

impl Bench {
    fn new(args: &LogArgs, bytes: usize) -> Result<Self, Failure> {
        let source = Source::new(bytes);
        let log = Filled::new(args.memory_bytes, source.frame(0))?;
        let held = log.reader.held();
        let kept = (held.end - held.start) as usize;
        Ok(Self {
            bytes,
            only: args.only.clone(),
            frames: (args.turn_bytes as usize / bytes).max(1),
            ring: vec![source.frame(0).to_vec(); kept],
            ring_next: 0,
            queue: (0..kept).map(|_| source.frame(0).to_vec()).collect(),
            log,
            source,
            random: 0x9e37_79b9_7f4a_7c15,
        })
    }

    fn round(&mut self, round: usize) -> Result<(), Failure> {
        let frames = self.frames;
        self.turn("append", round, frames, |bench, index| {
            let payload = bench.log.copied(bench.source.frame(index));
            bench.log.append(payload)
        })?;
        self.turn("copy_ring", round, frames, |bench, index| {
            let place = bench.ring_next;
            bench.ring[place].copy_from_slice(bench.source.frame(index));
            bench.ring_next = (place + 1) % bench.ring.len();
            Ok(())
        })?;
        self.turn("copy_new", round, frames, |bench, index| {
            bench.queue.push_back(bench.source.frame(index).to_vec());
            bench.queue.pop_front();
            Ok(())
        })?;
        // The payload is made before, and shared by all records, so that only appending is timed.
        let owned = Bytes::copy_from_slice(self.source.frame(0));
        self.turn("append_owned", round, frames, |bench, _| bench.log.append(owned.clone()))?;
        // From here on, each record has its own memory again, for the arms that read.
        let log_frames = self.ring.len();
        for index in 0..log_frames + log_frames / 8 {
            let payload = self.log.copied(self.source.frame(index));
            self.log.append(payload)?;
        }

        let held = self.log.reader.held();
        let records = (held.end - held.start) as usize;
        let mut cursor = self.log.reader.cursor(held.start);
        self.turn("read", round, records, |_, _| {
            if let Read::Record(record) = cursor.next() {
                black_box(sum(&record.frame.payload));
            }
            Ok(())
        })?;
        self.turn("read_plain", round, records, |bench, index| {
            black_box(sum(&bench.ring[index % bench.ring.len()]));
            Ok(())
        })?;

        self.turn("get", round, QUERIES, |bench, _| {
            let index = held.start + bench.random() % (held.end - held.start);
            black_box(bench.log.reader.get(index));
            Ok(())
        })?;
        let mut cursor = self.log.reader.cursor(held.start);
        self.turn("next", round, records, |_, _| {
            black_box(cursor.next());
            Ok(())
        })?;
        let span = |bench: &mut Self| captured(held.start + bench.random() % (held.end - held.start));
        self.turn("at", round, QUERIES, |bench, _| {
            let time = span(bench);
            black_box(bench.log.reader.at(time));
            Ok(())
        })?;
        self.turn("between", round, QUERIES, |bench, _| {
            let begin = span(bench);
            let end = Timestamp::from_nanos(begin.as_nanos() + RANGE_NS);
            black_box(bench.log.reader.between(begin, end));
            Ok(())
        })
    }

    /// Times `operations` calls of `work` and prints the result.
    fn turn(
        &mut self,
        arm: &str,
        round: usize,
        operations: usize,
        mut work: impl FnMut(&mut Self, usize) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if !self.only.is_empty() && !self.only.iter().any(|only| only == arm) {
            return Ok(());
        }
        let faults = page_faults()?;
        let cpu_ns = thread_cpu_ns();
        let watch = Stopwatch::now();
        for index in 0..operations {
            work(self, index)?;
        }
        let (ns, cpu_ns) = (watch.elapsed().as_nanos(), thread_cpu_ns() - cpu_ns);
        let faults = page_faults()? - faults;
        let bytes = self.bytes;
        println!(
            r#"{{"arm":"{arm}","frame_bytes":{bytes},"round":{round},"operations":{operations},"ns":{ns},"cpu_ns":{cpu_ns},"page_faults":{faults}}}"#
        );
        Ok(())
    }

    fn random(&mut self) -> u64 {
        // xorshift64 (Marsaglia 2003): fast compared with the measured queries.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Appends at frame rate while `readers` cursors read at frame rate. Prints the processor time of the writer's thread.
fn write_beside(args: &LogArgs, round: usize, readers: usize) -> Result<(), Failure> {
    let source = Source::new(args.writer_frame_bytes);
    let mut log = Filled::new(args.memory_bytes / 4, source.frame(0))?;
    let interval = Duration::from_secs_f64(1.0 / args.writer_fps);
    let appends = (args.writer_seconds * args.writer_fps).round().max(1.0) as u64;
    let (over, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin_ns = now_ns() + 20_000_000;
    let mut cpu_ns = 0;
    let written = thread::scope(|scope| {
        for index in 0..readers {
            let mut cursor = log.reader.cursor_at_end();
            let (over, read) = (&over, &read);
            scope.spawn(move || {
                // Spread over the interval, like connections.
                let mut due_ns = begin_ns + interval.as_nanos() as u64 * index as u64 / readers as u64;
                while !over.load(Ordering::Relaxed) {
                    sleep_until(due_ns);
                    due_ns += interval.as_nanos() as u64;
                    while let Read::Record(record) = cursor.next() {
                        black_box(sum(&record.frame.payload));
                        read.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let written = (0..appends).try_for_each(|index| {
            sleep_until(begin_ns + interval.as_nanos() as u64 * index);
            let before = thread_cpu_ns();
            let payload = log.copied(source.frame(index as usize));
            log.append(payload)?;
            cpu_ns += thread_cpu_ns() - before;
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        written
    });
    let (bytes, read) = (source.bytes, read.into_inner());
    println!(
        r#"{{"arm":"writer","frame_bytes":{bytes},"round":{round},"readers":{readers},"operations":{appends},"cpu_ns":{cpu_ns},"records_read":{read}}}"#
    );
    written
}

/// Processor time of the calling thread.
pub(super) fn thread_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// How often the kernel had to give memory to the calling thread.
fn page_faults() -> Result<u64, Failure> {
    let stat = fs::read_to_string("/proc/thread-self/stat")?;
    // The second field is the name in parentheses, which may contain spaces; minor faults are the tenth.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let faults = fields.split_whitespace().nth(7).and_then(|field| field.parse().ok());
    faults.ok_or_else(|| Failure::from("the kernel's statistics of a thread have another form"))
}

/// A buffer from which frames are borrowed.
struct Source {
    buffer: Vec<u8>,
    bytes: usize,
}

impl Source {
    fn new(bytes: usize) -> Self {
        let noise = |index: usize| ((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        Self { buffer: (0..bytes + PLACES * PLACE_BYTES).map(noise).collect(), bytes }
    }

    fn frame(&self, index: usize) -> &[u8] {
        let begin = index * 37 % PLACES * PLACE_BYTES;
        &self.buffer[begin..begin + self.bytes]
    }
}

/// Reads every byte, at the speed of memory.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(words, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}
