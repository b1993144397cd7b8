//! Compares the libraries that encode H.264, on a video: bytes, quality and time at fixed quantisers, how well a byte budget is
//! kept, and the cost of a loss. `cargo run --release -p mez-media --features x264 --example h264_libraries -- VIDEO`. Needs ffmpeg.
//!
//! Times are processor times of one thread.

use std::collections::VecDeque;
use std::error::Error;
use std::io::Read;
use std::process::{Child, ChildStdout, Command, Stdio};

use mez_core::setting::Quantiser;
use mez_media::Yuv420View;
use mez_media::h264::{H264Decoder, H264Encoder, H264Frame, Library, Wanted};
use rustix::time::{ClockId, clock_gettime};

type Size = (u32, u32);

/// The size of the demo's video, and that of a good camera.
const SIZES: [Size; 2] = [(768, 576), (1920, 1080)];
const QUANTISERS: [u8; 5] = [24, 28, 32, 36, 40];
/// Frames at each quantiser.
const RATE_FRAMES: u64 = 200;
/// Number of frames under a byte budget, and of frames with losses.
const FRAMES: u64 = 1200;
/// A new random cap is chosen after this many frames. Its logarithm is uniform between those of [`CAP_MIN`] and [`CAP_MAX`].
const CAP_FRAMES: u64 = 10;
/// Lowest cap, in bytes.
const CAP_MIN: f64 = 3_000.0;
/// Highest cap, in bytes.
const CAP_MAX: f64 = 100_000.0;
/// The finest quantiser under a budget.
const FINEST: u8 = 18;
/// One frame in this many is lost.
const LOST_ONE_IN: u64 = 20;
/// The quantiser of the frames with losses.
const LOSSES_QUANTISER: u8 = 28;

fn main() -> Result<(), Box<dyn Error>> {
    let video = std::env::args().nth(1).ok_or("which video? … -- VIDEO")?;
    for size in SIZES {
        let curves = Library::ALL.iter().map(|library| rates(&video, *library, size));
        let curves = curves.collect::<Result<Vec<_>, _>>()?;
        for (library, curve) in Library::ALL.iter().zip(&curves).skip(1) {
            println!(
                "{size:?} bytes of {library} at equal PSNR: {:.2} of openh264's",
                ratio(&curves[0], curve)
            );
        }
    }
    for library in Library::ALL {
        for delay in [0, 1, 3] {
            budget(&video, *library, delay)?;
        }
        for delay in [0, 2] {
            recovery(&video, *library, delay)?;
        }
        println!("{library}: {:.1} MB at 1080p", memory(*library)? as f64 / 1e6);
    }
    Ok(())
}

/// A point of a curve: PSNR of luma in dB, and bytes per frame.
type Point = (f64, f64);

fn rates(video: &str, library: Library, size: Size) -> Result<Vec<Point>, Box<dyn Error>> {
    let mut curve = Vec::new();
    for quantiser in QUANTISERS {
        let mut video = Video::open(video, size)?;
        let mut encoder = H264Encoder::by(library, size.0, size.1)?;
        let mut decoder = H264Decoder::new(1 << 24);
        let (mut independent_ms, mut ms, mut bytes, mut error) = (0.0, Vec::new(), 0, 0.0);
        for number in 0..RATE_FRAMES {
            let picture = video.next()?;
            let wanted = if number == 0 { Wanted::Independent } else { Wanted::Previous };
            let start = thread_ms();
            let frame = encoder.encode(&picture, number, wanted, Quantiser::clamped(quantiser), None)?;
            let took = thread_ms() - start;
            encoder.acknowledge(number);
            let shown = decoder.decode_planes(&frame.payload, number, frame.refers)?;
            if number == 0 {
                independent_ms = took;
                continue;
            }
            ms.push(took);
            bytes += frame.payload.len();
            let luma = picture.luma().len();
            let squares = picture
                .luma()
                .iter()
                .zip(&shown.data()[..luma])
                .map(|(a, b)| u64::from(a.abs_diff(*b)).pow(2));
            error += squares.sum::<u64>() as f64 / luma as f64;
        }
        let count = (RATE_FRAMES - 1) as f64;
        let (psnr, bytes) = (10.0 * (255.0 * 255.0 * count / error).log10(), bytes as f64 / count);
        println!(
            "{size:?} {library} q{quantiser}: {psnr:.2} dB, {bytes:.0} bytes, {:.1} ms (p95 {:.1}), independent {independent_ms:.1} ms",
            mean(&ms),
            percentile(&mut ms, 0.95),
        );
        curve.push((psnr, bytes));
    }
    Ok(curve)
}

/// The second curve's bytes relative to the first's, over the qualities that both
/// have: the geometric mean, with linear interpolation of logarithms between points.
fn ratio(first: &[Point], second: &[Point]) -> f64 {
    let at = |curve: &[Point], psnr: f64| {
        // Coarser quantisers come later.
        let pair = curve.windows(2).find(|pair| pair[1].0 <= psnr && psnr <= pair[0].0)?;
        let share = (psnr - pair[1].0) / (pair[0].0 - pair[1].0);
        Some(pair[1].1.ln() + share * (pair[0].1 / pair[1].1).ln())
    };
    let qualities = (200..600).map(|tenths| f64::from(tenths) / 10.0);
    let logs = qualities.filter_map(|psnr| Some(at(second, psnr)? - at(first, psnr)?)).collect::<Vec<_>>();
    mean(&logs).exp()
}

/// Encodes frames under a cap that changes every ten frames. Each frame is acknowledged `delay` frames later.
fn budget(video: &str, library: Library, delay: usize) -> Result<(), Box<dyn Error>> {
    let size = SIZES[0];
    let mut video = Video::open(video, size)?;
    let mut encoder = H264Encoder::by(library, size.0, size.1)?;
    let (mut random, mut cap, mut on_their_way) = (12_345u64, 0, VecDeque::new());
    let (mut over, mut worst, mut independent, mut codings) = (0, 1.0f64, 0, 0);
    let (mut used, mut ms) = (Vec::new(), Vec::new());
    for number in 0..FRAMES {
        if number % CAP_FRAMES == 0 {
            // A linear congruential generator (Knuth). Its upper bits are used.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let share = (random >> 33) as f64 / (1u64 << 31) as f64;
            cap = (CAP_MIN * (CAP_MAX / CAP_MIN).powf(share)) as usize;
        }
        let picture = video.next()?;
        let wanted = if number == 0 { Wanted::Independent } else { Wanted::Previous };
        let start = thread_ms();
        let frame = encoder.encode(&picture, number, wanted, Quantiser::clamped(FINEST), Some(cap))?;
        ms.push(thread_ms() - start);
        let share = frame.payload.len() as f64 / cap as f64;
        over += u32::from(!frame.fits);
        worst = worst.max(share);
        independent += u32::from(frame.refers.is_none());
        codings += frame.attempts;
        if frame.quantiser.get() > FINEST {
            used.push(share);
        }
        on_their_way.push_back(number);
        if on_their_way.len() > delay
            && let Some(arrived) = on_their_way.pop_front()
        {
            encoder.acknowledge(arrived);
        }
    }
    println!(
        "{library}, acknowledged {delay} frames late: {over} over the cap (worst {worst:.2}), use {:.2}, {:.2} codings, {independent} independent, {:.1} ms (p95 {:.1})",
        mean(&used),
        f64::from(codings) / FRAMES as f64,
        mean(&ms),
        percentile(&mut ms, 0.95),
    );
    Ok(())
}

/// Encodes frames, one in twenty of which is lost. The sender learns of arrivals and losses `delay` frames later.
fn recovery(video: &str, library: Library, delay: u64) -> Result<(), Box<dyn Error>> {
    let size = SIZES[0];
    let mut video = Video::open(video, size)?;
    let mut encoder = H264Encoder::by(library, size.0, size.1)?;
    let mut beside = H264Encoder::by(library, size.0, size.1)?;
    let mut decoder = H264Decoder::new(1 << 24);
    let (mut decoded, mut ratios, mut independent) = (Vec::new(), Vec::new(), 0);
    for number in 0..FRAMES {
        let picture = video.next()?;
        let about = number.checked_sub(delay + 1);
        // After a loss, nothing can be decoded until a frame recovers. Recovery is requested once.
        let recovers = about.is_some_and(|about| about % LOST_ONE_IN == LOST_ONE_IN - 1);
        match about.map(|about| (about, decoded[about as usize])) {
            Some((about, true)) => encoder.acknowledge(about),
            Some((about, false)) => encoder.lost(about),
            None => {}
        }
        let wanted = match number {
            0 => Wanted::Independent,
            _ if recovers => Wanted::Acknowledged(number - 1),
            _ => Wanted::Previous,
        };
        let code = |encoder: &mut H264Encoder, wanted| -> Result<H264Frame, Box<dyn Error>> {
            Ok(encoder.encode(&picture, number, wanted, Quantiser::clamped(LOSSES_QUANTISER), None)?)
        };
        let frame = code(&mut encoder, wanted)?;
        if recovers {
            let whole = code(&mut beside, Wanted::Independent)?;
            ratios.push(frame.payload.len() as f64 / whole.payload.len() as f64);
            independent += u32::from(frame.refers.is_none());
        }
        let lost = number % LOST_ONE_IN == LOST_ONE_IN - 1;
        decoded.push(!lost && decoder.decode_planes(&frame.payload, number, frame.refers).is_ok());
    }
    let shown = decoded.iter().filter(|decoded| **decoded).count();
    println!(
        "{library}, losses told of {delay} frames late: recovery {:.3} of an independent frame ({independent} were independent), {shown} of {FRAMES} frames shown",
        mean(&ratios)
    );
    Ok(())
}

/// Resident bytes that a working encoder adds to this process.
fn memory(library: Library) -> Result<u64, Box<dyn Error>> {
    let (width, height) = SIZES[1];
    let mut noise = 1u32;
    let samples = Yuv420View::len_bytes(width, height).ok_or("too large")?;
    let samples: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (noise >> 26) as u8
    })
    .take(samples)
    .collect();
    let picture = Yuv420View::packed(&samples, width, height)?;
    let before = resident_bytes()?;
    let mut encoder = H264Encoder::by(library, width, height)?;
    for number in 0..20 {
        let wanted = if number == 0 { Wanted::Independent } else { Wanted::Previous };
        encoder.encode(&picture, number, wanted, Quantiser::clamped(36), None)?;
    }
    Ok(resident_bytes()?.saturating_sub(before))
}

fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// Processor time of this thread.
fn thread_ms() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 * 1e3 + used.tv_nsec as f64 / 1e6
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}

/// Frames of a video file in a loop, through ffmpeg.
struct Video {
    child: Child,
    output: ChildStdout,
    frame: Vec<u8>,
    size: Size,
}

impl Video {
    fn open(file: &str, size: Size) -> Result<Self, Box<dyn Error>> {
        let (width, height) = size;
        // Enlarged pictures have no fine texture, but a camera's have noise.
        let noise = if width > 768 { ",noise=alls=4:allf=t" } else { "" };
        let mut child = Command::new("ffmpeg")
            .args(["-v", "error", "-nostdin", "-stream_loop", "-1", "-i", file])
            .args(["-vf", &format!("scale={width}:{height}:out_range=full,format=yuvj420p{noise}")])
            .args(["-pix_fmt", "yuvj420p", "-f", "rawvideo", "-"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = child.stdout.take().ok_or("ffmpeg has no output")?;
        let bytes = Yuv420View::len_bytes(width, height).ok_or("too large")?;
        Ok(Self { child, output, frame: vec![0; bytes], size })
    }

    fn next(&mut self) -> Result<Yuv420View<'_>, Box<dyn Error>> {
        self.output.read_exact(&mut self.frame)?;
        Ok(Yuv420View::packed(&self.frame, self.size.0, self.size.1)?)
    }
}

impl Drop for Video {
    fn drop(&mut self) {
        // The child may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
