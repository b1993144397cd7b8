//! Reads YUV4MPEG2 from a child, in pieces. Fails if a picture does not have the expected size.

use mez_media::Yuv420;

/// The header of each picture.
const FRAME: &[u8] = b"FRAME\n";
/// The longest first line. Those of ffmpeg have 70 bytes.
const LINE_BYTES_MAX: usize = 256;

/// What is read next.
enum Stage {
    Header,
    Frame,
    Picture,
    /// A picture is complete, but not taken yet.
    Whole,
}

/// Reads pictures of one size.
pub(super) struct Reader {
    size: (u32, u32),
    stage: Stage,
    line: Vec<u8>,
    picture: Yuv420,
    filled: usize,
}

impl Reader {
    pub(super) fn new(size: (u32, u32)) -> Self {
        Self { size, stage: Stage::Header, line: Vec::new(), picture: Yuv420::empty(), filled: 0 }
    }

    /// The buffer for the next bytes. Empty while a complete picture waits.
    pub(super) fn room(&mut self) -> &mut [u8] {
        match self.stage {
            Stage::Header => {
                self.line.resize(self.filled + 1, 0);
                &mut self.line[self.filled..]
            }
            Stage::Frame => {
                self.line.resize(FRAME.len(), 0);
                &mut self.line[self.filled..]
            }
            Stage::Picture => &mut self.picture.resize(self.size.0, self.size.1)[self.filled..],
            Stage::Whole => &mut [],
        }
    }

    /// Adds `bytes` bytes that were read into the buffer.
    ///
    /// # Errors
    /// The bytes are not pictures of the expected size.
    pub(super) fn advance(&mut self, bytes: usize) -> Result<(), String> {
        self.filled += bytes;
        match self.stage {
            Stage::Header if self.line.last() == Some(&b'\n') => {
                self.check()?;
                self.enter(Stage::Frame);
            }
            Stage::Header if self.filled >= LINE_BYTES_MAX => {
                return Err("its output is not a video in the YUV4MPEG2 format".into());
            }
            Stage::Frame if self.filled == FRAME.len() => {
                if self.line != FRAME {
                    return Err("the pictures in its output do not all have one size".into());
                }
                self.enter(Stage::Picture);
            }
            Stage::Picture if self.filled == self.picture.data().len() => self.enter(Stage::Whole),
            _ => {}
        }
        Ok(())
    }

    /// Swaps a complete picture into `planes`. Returns whether there was one.
    pub(super) fn take(&mut self, planes: &mut Yuv420) -> bool {
        let is_whole = matches!(self.stage, Stage::Whole);
        if is_whole {
            std::mem::swap(&mut self.picture, planes);
            self.enter(Stage::Frame);
        }
        is_whole
    }

    fn enter(&mut self, stage: Stage) {
        (self.stage, self.filled) = (stage, 0);
    }

    /// The first line must name the expected size, and 4:2:0.
    fn check(&self) -> Result<(), String> {
        let line = String::from_utf8_lossy(&self.line);
        let mut words = line.split_whitespace();
        if words.next() != Some("YUV4MPEG2") {
            return Err("its output is not a video in the YUV4MPEG2 format".into());
        }
        let (mut width, mut height, mut is_half) = (None, None, true);
        for word in words {
            match word.split_at_checked(1) {
                Some(("W", side)) => width = side.parse().ok(),
                Some(("H", side)) => height = side.parse().ok(),
                Some(("C", samples)) => {
                    is_half = matches!(samples, "420" | "420jpeg" | "420mpeg2" | "420paldv")
                }
                _ => {}
            }
        }
        let is = (width.unwrap_or(0u32), height.unwrap_or(0u32));
        if is != self.size || !is_half {
            let (width, height) = self.size;
            return Err(format!(
                "its pictures ({}) differ from the stream's, which have {width}x{height}",
                line.trim()
            ));
        }
        Ok(())
    }
}
