//! Measures what rungs cost a camera, how well byte budgets are kept, and what a loss costs.
//!
//! Each turn prints a line of JSON, whose field `part` names what was measured. `mez bench knobs` computes the figures.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `ladder` | nothing: names the rungs of the default ladder |
//! | `encode` | a rung: processor time and bytes of every frame, from a JPEG or from pixels in memory |
//! | `decode` | the same frames at the other end, to BGR |
//! | `memory` | resident bytes that a stream's encoder and decoder add to a process |
//! | `budget` | H.264 with a cap that changes every second: bytes of every frame |
//! | `recovery` | H.264 with losses: bytes of the frame that recovers, and of an independent frame of the same image |

mod budget;
mod recovery;
mod video;

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use mez_core::frame::{Reference, Sequence};
use mez_core::setting::{Chains, Setting, default_ladder};
use mez_core::units::Instant;
use mez_media::jpeg::{Encoder, Sampling};
use mez_media::stream::{Outcome, Request, Source, StreamDecoder, StreamEncoder};
use mez_media::{ImageView, PixelFormat};
use rustix::time::{ClockId, clock_gettime};

use self::video::{Pixels, Video};
use crate::Failure;

/// The video's frame rate.
const FRAMES_PER_SECOND: u64 = 10;
/// The quality of published JPEGs, like a good camera's.
const SOURCE_QUALITY: u8 = 90;
const PIXELS_MAX: u64 = 1 << 26;
/// Frames before the measured ones: memory is then touched, and models have learned.
const WARM_UP: usize = 3;

/// Measure rungs, byte budgets and recovery
#[derive(Debug, Args)]
pub struct KnobsArgs {
    /// A video, in a loop
    #[arg(long, value_name = "FILE")]
    video: PathBuf,
    /// Size of the frames whose rungs are measured
    #[arg(long, value_name = "PIXELS", default_value_t = 1920)]
    width: u32,
    /// Size of the frames whose rungs are measured
    #[arg(long, value_name = "PIXELS", default_value_t = 1080)]
    height: u32,
    /// Frames of a turn
    #[arg(long, value_name = "N", default_value_t = 20)]
    frames: usize,
    /// Turns of each rung
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Rungs besides those of the default ladder
    #[arg(long, value_name = "RUNG", value_delimiter = ',')]
    rungs: Vec<Setting>,
    /// Frames under a byte budget, and frames with losses
    #[arg(long, value_name = "N", default_value_t = 1200)]
    budget_frames: usize,
}

pub(crate) fn run(args: KnobsArgs) -> Result<(), Failure> {
    let size = (args.width, args.height);
    let mut rungs = default_ladder(size, Chains::ALL);
    let names: Vec<String> = rungs.iter().map(Setting::to_string).collect();
    println!(r#"{{"part":"ladder","rungs":{names:?}}}"#);
    rungs.extend(default_ladder(size, Chains::TILES));
    rungs.extend(default_ladder(size, Chains::NONE));
    rungs.extend(args.rungs.iter().copied());
    rungs.sort_by_key(Setting::to_string);
    rungs.dedup();
    let frames = Frames::read(&args, size)?;
    memory(&frames, size, &rungs)?;
    for round in 0..args.rounds {
        for rung in &rungs {
            for compressed in [true, false] {
                turn(&frames, rung, compressed, round)?;
            }
        }
    }
    for delay in [0, 1, 3] {
        budget::run(&args.video, args.budget_frames, delay)?;
    }
    for delay in [0, 2] {
        recovery::run(&args.video, args.budget_frames, delay)?;
    }
    Ok(())
}

/// The measured frames, as JPEG and as pixels.
struct Frames {
    size: (u32, u32),
    pixels: Vec<Vec<u8>>,
    jpegs: Vec<Bytes>,
}

impl Frames {
    fn read(args: &KnobsArgs, size: (u32, u32)) -> Result<Self, Failure> {
        let mut video = Video::open(&args.video, size, Pixels::Bgr)?;
        let mut encoder = Encoder::new(SOURCE_QUALITY, Sampling::Yuv420)?;
        let (mut pixels, mut jpegs) = (Vec::new(), Vec::new());
        for _ in 0..WARM_UP + args.frames {
            let frame = video.next()?.to_vec();
            let view = ImageView::packed(&frame, size.0, size.1, PixelFormat::Bgr8)?;
            jpegs.push(encoder.encode(&view)?);
            pixels.push(frame);
        }
        Ok(Self { size, pixels, jpegs })
    }

    fn source(&self, at: usize, compressed: bool) -> Result<Source<'_>, Failure> {
        if compressed {
            return Ok(Source::Jpeg(&self.jpegs[at]));
        }
        let (width, height) = self.size;
        Ok(Source::Pixels(ImageView::packed(&self.pixels[at], width, height, PixelFormat::Bgr8)?))
    }
}

fn request(at: usize, setting: &Setting) -> Request<'_> {
    Request {
        sequence: Sequence(at as u64),
        captured: Instant::from_nanos(at as u64 * 1_000_000_000 / FRAMES_PER_SECOND),
        setting,
        bytes_max: None,
        reference: Reference::Previous,
    }
}

/// Encodes and decodes all frames at one rung. Prints the processor times of each frame.
fn turn(frames: &Frames, rung: &Setting, compressed: bool, round: usize) -> Result<(), Failure> {
    if *rung == Setting::ORIGINAL && !compressed {
        return Ok(());
    }
    let mut encoder = StreamEncoder::new(PIXELS_MAX)?;
    let mut decoder = StreamDecoder::new(PIXELS_MAX);
    let (mut encode_ns, mut decode_ns, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let mut left_out = 0;
    for at in 0..frames.pixels.len() {
        let source = frames.source(at, compressed)?;
        let start = thread_cpu_ns();
        let outcome = encoder.encode(&source, &request(at, rung))?;
        let encoded = thread_cpu_ns();
        let Outcome::Frame(frame) = outcome else {
            left_out += 1;
            continue;
        };
        let size = (frame.width, frame.height);
        let sequence = Sequence(at as u64);
        decoder.decode(frame.encoding, sequence, &frame.chain, size, &frame.payload)?;
        let decoded = thread_cpu_ns();
        encoder.acknowledge(sequence);
        if at >= WARM_UP {
            encode_ns.push(encoded - start);
            decode_ns.push(decoded - encoded);
            bytes.push(frame.payload.len());
        }
    }
    let source = if compressed { "jpeg" } else { "raw" };
    println!(
        r#"{{"part":"encode","rung":"{rung}","source":"{source}","round":{round},"left_out":{left_out},"cpu_ns":{encode_ns:?},"bytes":{bytes:?}}}"#
    );
    // Decoding does not depend on the kind of source.
    if compressed {
        println!(r#"{{"part":"decode","rung":"{rung}","round":{round},"cpu_ns":{decode_ns:?}}}"#);
    }
    Ok(())
}

/// Resident bytes that a stream at each rung adds, for encoder and decoder. Only the first
/// stream of its kind in a process is measured, because the allocator keeps freed memory.
fn memory(frames: &Frames, size: (u32, u32), rungs: &[Setting]) -> Result<(), Failure> {
    let mut kept = Vec::new();
    for rung in rungs {
        let before = resident_bytes()?;
        let mut encoder = StreamEncoder::new(PIXELS_MAX)?;
        let mut payloads = Vec::new();
        for at in 0..WARM_UP {
            if let Outcome::Frame(frame) = encoder.encode(&frames.source(at, true)?, &request(at, rung))? {
                payloads.push((Sequence(at as u64), frame));
            }
        }
        let between = resident_bytes()?;
        let mut decoder = StreamDecoder::new(PIXELS_MAX);
        for (sequence, frame) in &payloads {
            let size = (frame.width, frame.height);
            decoder.decode(frame.encoding, *sequence, &frame.chain, size, &frame.payload)?;
        }
        let after = resident_bytes()?;
        let (width, height) = rung.size(size);
        println!(
            r#"{{"part":"memory","rung":"{rung}","width":{width},"height":{height},"encoder_bytes":{},"decoder_bytes":{}}}"#,
            between.saturating_sub(before),
            after.saturating_sub(between)
        );
        // Freed memory would be reused by the next rung, which would then seem to need none.
        kept.push((encoder, decoder));
    }
    Ok(())
}

fn resident_bytes() -> Result<u64, Failure> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| Failure::from("/proc/self/statm has no second field"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Processor time of the calling thread.
fn thread_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}
