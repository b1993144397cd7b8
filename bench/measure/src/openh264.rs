//! Encodes a video like cameras with openh264, for experiments with H.264 sources.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write, stdin};
use std::path::PathBuf;

use clap::Args;
use mez_media::Yuv420View;
use mez_media::h264::{ForeignEncoder, ForeignOptions};

use crate::Failure;

/// Code pictures (YUV4MPEG2, 4:2:0, from standard input) as a stream of openh264 without anything of Mez in it
#[derive(Debug, Args)]
pub struct Openh264Args {
    /// The stream
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The quantiser, 0 to 51
    #[arg(long, default_value_t = 26)]
    quantiser: u8,
    /// Pictures from one key frame to the next
    #[arg(long, default_value_t = 30)]
    key_frame_interval: u32,
    /// 1, or 2: no other picture needs every second one
    #[arg(long, default_value_t = 1)]
    layers: u32,
    /// Slices of each picture
    #[arg(long, default_value_t = 1)]
    slices: u32,
}

pub(crate) fn run(args: Openh264Args) -> Result<(), Failure> {
    let mut input = BufReader::new(stdin().lock());
    let mut line = String::new();
    input.read_line(&mut line)?;
    let field = |letter: char| line.split_whitespace().skip(1).find_map(|word| word.strip_prefix(letter));
    let (Some(width), Some(height)) = (field('W'), field('H')) else {
        return Err("standard input is no YUV4MPEG2; make it with ffmpeg -f yuv4mpegpipe".into());
    };
    let (width, height) = (width.parse()?, height.parse()?);
    let Openh264Args { out, quantiser, key_frame_interval, layers, slices } = args;
    let options =
        ForeignOptions { width, height, quantiser, key_frame_interval, temporal_layers: layers, slices };
    let mut encoder = ForeignEncoder::new(&options)?;
    let picture_bytes = Yuv420View::len_bytes(width, height).ok_or("the pictures are too large")?;
    let mut picture = vec![0; picture_bytes];
    let mut out = BufWriter::new(File::create(out)?);
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(out.flush()?);
        }
        input.read_exact(&mut picture)?;
        out.write_all(&encoder.encode(&Yuv420View::packed(&picture, width, height)?)?)?;
    }
}
