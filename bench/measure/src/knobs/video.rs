//! Reads frames of a video file, through ffmpeg.

use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use mez_media::Yuv420View;

use crate::Failure;

/// The format of the frames.
#[derive(Clone, Copy)]
pub(super) enum Pixels {
    Bgr,
    /// Full range, as in JPEG.
    Planes,
}

/// An endless loop of a video.
pub(super) struct Video {
    child: Child,
    output: ChildStdout,
    frame: Vec<u8>,
}

impl Video {
    pub(super) fn open(file: &Path, (width, height): (u32, u32), pixels: Pixels) -> Result<Self, Failure> {
        let (format, bytes) = match pixels {
            Pixels::Bgr => ("bgr24", width as usize * height as usize * 3),
            Pixels::Planes => ("yuvj420p", Yuv420View::len_bytes(width, height).unwrap_or(0)),
        };
        let mut child = Command::new("ffmpeg")
            .args(["-v", "error", "-nostdin", "-stream_loop", "-1", "-i"])
            .arg(file)
            .args(["-vf", &format!("scale={width}:{height}:out_range=full"), "-pix_fmt", format])
            .args(["-f", "rawvideo", "-"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // ffmpeg reports an error when the pipe is closed after enough frames.
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Failure::from(format!("cannot start ffmpeg: {error}; install it")))?;
        let output = child.stdout.take().ok_or_else(|| Failure::from("ffmpeg has no output"))?;
        Ok(Self { child, output, frame: vec![0; bytes] })
    }

    pub(super) fn next(&mut self) -> Result<&[u8], Failure> {
        let read = self.output.read_exact(&mut self.frame);
        read.map_err(|error| {
            Failure::from(format!("ffmpeg gives no more frames: {error}; is this a video?"))
        })?;
        Ok(&self.frame)
    }
}

impl Drop for Video {
    fn drop(&mut self) {
        // The child may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
