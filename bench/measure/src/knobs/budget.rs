//! Measures H.264 under a byte budget that changes every second.

use std::collections::VecDeque;
use std::path::Path;

use mez_core::setting::Quantiser;
use mez_media::Yuv420View;
use mez_media::h264::{H264Encoder, Wanted};

use super::video::{Pixels, Video};
use super::{FRAMES_PER_SECOND, thread_cpu_ns};
use crate::Failure;

/// The video's original size.
const SIZE: (u32, u32) = (768, 576);
/// The lowest cap, in bytes. The logarithm of each cap is uniform between those of the lowest and the highest.
const CAP_MIN: f64 = 3_000.0;
/// The highest cap, in bytes.
const CAP_MAX: f64 = 100_000.0;
/// Detectors do not see finer pictures better, so the largest caps are not used up.
const FINEST: u8 = 18;
const SEED: u64 = 12_345;

/// Encodes `frames` frames. Each is acknowledged `delay` frames later.
pub(super) fn run(file: &Path, frames: usize, delay: usize) -> Result<(), Failure> {
    let mut video = Video::open(file, SIZE, Pixels::Planes)?;
    let mut encoder = H264Encoder::new(SIZE.0, SIZE.1)?;
    let mut on_their_way = VecDeque::new();
    let mut random = SEED;
    let mut cap = 0;
    let (mut caps, mut bytes, mut quantisers) = (Vec::new(), Vec::new(), Vec::new());
    let (mut attempts, mut cpu_ns, mut independent) = (Vec::new(), Vec::new(), 0);
    for number in 0..frames as u64 {
        if number % FRAMES_PER_SECOND == 0 {
            // A linear congruential generator (Knuth). Its upper bits are used.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let share = (random >> 33) as f64 / (1u64 << 31) as f64;
            cap = (CAP_MIN * (CAP_MAX / CAP_MIN).powf(share)) as usize;
        }
        let picture = Yuv420View::packed(video.next()?, SIZE.0, SIZE.1)?;
        let wanted = if number == 0 { Wanted::Independent } else { Wanted::Previous };
        let start = thread_cpu_ns();
        let frame = encoder.encode(&picture, number, wanted, Quantiser::clamped(FINEST), Some(cap))?;
        cpu_ns.push(thread_cpu_ns() - start);
        caps.push(cap);
        bytes.push(frame.payload.len());
        quantisers.push(frame.quantiser.get());
        attempts.push(frame.attempts);
        independent += u32::from(frame.refers.is_none());
        on_their_way.push_back(number);
        if on_their_way.len() > delay
            && let Some(arrived) = on_their_way.pop_front()
        {
            encoder.acknowledge(arrived);
        }
    }
    println!(
        r#"{{"part":"budget","delay_frames":{delay},"finest":{FINEST},"independent":{independent},"cap":{caps:?},"bytes":{bytes:?},"quantiser":{quantisers:?},"attempts":{attempts:?},"cpu_ns":{cpu_ns:?}}}"#
    );
    Ok(())
}
