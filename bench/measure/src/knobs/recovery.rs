//! Measures the cost of a lost frame in H.264, compared with a keyframe of the same image.

use std::path::Path;

use mez_core::setting::Quantiser;
use mez_media::Yuv420View;
use mez_media::h264::{H264Encoder, Wanted};

use super::video::{Pixels, Video};
use crate::Failure;

const SIZE: (u32, u32) = (768, 576);
const QUANTISER: u8 = 28;
/// One frame in this many is lost.
const EVERY: u64 = 20;

/// Encodes `frames` frames, one in twenty of which is lost. The sender learns of arrivals and losses `delay` frames later.
pub(super) fn run(file: &Path, frames: usize, delay: u64) -> Result<(), Failure> {
    let mut video = Video::open(file, SIZE, Pixels::Planes)?;
    let mut encoder = H264Encoder::new(SIZE.0, SIZE.1)?;
    let mut beside = H264Encoder::new(SIZE.0, SIZE.1)?;
    let quantiser = Quantiser::clamped(QUANTISER);
    let is_lost = |number: u64| number % EVERY == EVERY - 1;
    let (mut recovery, mut idr, mut others, mut independent) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for number in 0..frames as u64 {
        let picture = Yuv420View::packed(video.next()?, SIZE.0, SIZE.1)?;
        let news = number.checked_sub(delay + 1);
        let recovers = news.is_some_and(is_lost);
        if let Some(news) = news {
            // Frames sent after a lost one could not be decoded either, until one recovered.
            let after_a_loss = (1..=delay).any(|back| news.checked_sub(back).is_some_and(is_lost));
            if is_lost(news) || after_a_loss {
                encoder.lost(news);
            } else {
                encoder.acknowledge(news);
            }
        }
        let wanted = match number {
            0 => Wanted::Independent,
            _ if recovers => Wanted::Acknowledged(number - 1),
            _ => Wanted::Previous,
        };
        let frame = encoder.encode(&picture, number, wanted, quantiser, None)?;
        if recovers {
            recovery.push(frame.payload.len());
            independent += u32::from(frame.refers.is_none());
            let whole = beside.encode(&picture, number, Wanted::Independent, quantiser, None)?;
            idr.push(whole.payload.len());
        } else if number > 0 {
            others.push(frame.payload.len());
        }
    }
    println!(
        r#"{{"part":"recovery","delay_frames":{delay},"lost_one_in":{EVERY},"quantiser":{QUANTISER},"independent":{independent},"recovery_bytes":{recovery:?},"idr_bytes":{idr:?},"other_bytes":{others:?}}}"#
    );
    Ok(())
}
