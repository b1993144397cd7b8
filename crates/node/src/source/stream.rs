//! Cuts a child's standard output into pictures.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mez_media::Yuv420View;
use mez_media::jpeg::{JpegFrame, PIXELS_MAX_DEFAULT, SIDE_MAX, Splitter};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::Notify;

/// The size of one read, in bytes.
const READ_BYTES: usize = 256 << 10;
/// The longest header line of YUV4MPEG2, in bytes.
const LINE_BYTES_MAX: usize = 1024;

/// Cuts a child's output into JPEG images, and notes when each began to arrive.
pub(super) struct JpegStream<R> {
    input: R,
    splitter: Splitter,
    buffer: Vec<u8>,
    unread: std::ops::Range<usize>,
    /// When the bytes in the buffer arrived.
    read_at: Instant,
    /// When the image in progress began to arrive.
    frame_began: Instant,
}

impl<R: AsyncRead + Unpin> JpegStream<R> {
    pub(super) fn new(input: R) -> Self {
        let now = Instant::now();
        let splitter = Splitter::default();
        Self { input, splitter, buffer: vec![0; READ_BYTES], unread: 0..0, read_at: now, frame_began: now }
    }

    /// Reads the next image, with the time when it began to arrive. `None`: the stream has ended.
    pub(super) async fn next(&mut self) -> io::Result<Option<(JpegFrame, Instant)>> {
        loop {
            let mut rest = &self.buffer[self.unread.clone()];
            if !self.splitter.is_inside_frame() {
                self.frame_began = self.read_at;
            }
            let frame = self.splitter.next_frame(&mut rest);
            self.unread.start = self.unread.end - rest.len();
            if let Some(frame) = frame {
                return Ok(Some((frame, self.frame_began)));
            }
            let count = self.input.read(&mut self.buffer).await?;
            self.unread = 0..count;
            self.read_at = Instant::now();
            if count == 0 {
                self.splitter.finish();
                return Ok(None);
            }
        }
    }

    /// The number of images so far that were dropped because they were damaged or cut off.
    pub(super) fn broken(&self) -> u64 {
        self.splitter.counts().frames_broken
    }
}

/// A planar 4:2:0 picture in a buffer that is reused.
#[derive(Debug)]
pub(super) struct RawPicture {
    /// Luma, blue and red chroma, without gaps, as [`Yuv420View::packed`] takes them.
    pub(super) planes: Vec<u8>,
    pub(super) width: u32,
    pub(super) height: u32,
}

/// Why a stream of pictures cannot be read.
#[derive(Debug)]
pub(super) enum PictureStreamError {
    Io(io::Error),
    /// It is not YUV4MPEG2 with 4:2:0 chroma.
    Format(String),
    /// The pictures exceed the limits of JPEG or of memory.
    TooLarge {
        width: u32,
        height: u32,
    },
}

impl From<io::Error> for PictureStreamError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads pictures in YUV4MPEG2, the one raw format that states the size. The size of decoded pictures
/// may differ from the container's, because of rotation or cropping.
pub(super) struct PictureStream<R> {
    input: BufReader<R>,
    width: u32,
    height: u32,
    picture_bytes: usize,
    cut_off: u64,
}

impl<R: AsyncRead + Unpin> PictureStream<R> {
    /// Reads the header of the stream. `None`: the stream ends before it.
    pub(super) async fn open(input: R) -> Result<Option<Self>, PictureStreamError> {
        let mut input = BufReader::with_capacity(LINE_BYTES_MAX, input);
        let Some(line) = read_line(&mut input).await? else { return Ok(None) };
        let (width, height) = parse_header(&line).map_err(PictureStreamError::Format)?;
        let too_large = PictureStreamError::TooLarge { width, height };
        let pixels = u64::from(width) * u64::from(height);
        if width > SIDE_MAX || height > SIDE_MAX || pixels > PIXELS_MAX_DEFAULT {
            return Err(too_large);
        }
        let picture_bytes = Yuv420View::len_bytes(width, height).ok_or(too_large)?;
        Ok(Some(Self { input, width, height, picture_bytes, cut_off: 0 }))
    }

    /// Reads the next picture into the given buffer, with the time when it began to arrive. `None`: the stream has ended.
    pub(super) async fn next(
        &mut self,
        mut planes: Vec<u8>,
    ) -> Result<Option<(RawPicture, Instant)>, PictureStreamError> {
        let Some(line) = read_line(&mut self.input).await? else { return Ok(None) };
        let began = Instant::now();
        if line != b"FRAME" && !line.starts_with(b"FRAME ") {
            return Err(PictureStreamError::Format("a picture does not start with FRAME".to_owned()));
        }
        planes.resize(self.picture_bytes, 0);
        match self.input.read_exact(&mut planes).await {
            Ok(_) => Ok(Some((RawPicture { planes, width: self.width, height: self.height }, began))),
            // The decoder was killed in the middle of a picture.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                self.cut_off += 1;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The number of pictures that were dropped because they were cut off.
    pub(super) fn broken(&self) -> u64 {
        self.cut_off
    }
}

/// Reads a line, without its newline. `None`: the input has ended; an incomplete last line counts as the end.
async fn read_line(input: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Vec<u8>>, PictureStreamError> {
    let mut line = Vec::new();
    loop {
        let buffer = input.fill_buf().await?;
        if buffer.is_empty() {
            return Ok(None);
        }
        let (take, done) = match buffer.iter().position(|&byte| byte == b'\n') {
            Some(at) => (at, true),
            None => (buffer.len(), false),
        };
        line.extend_from_slice(&buffer[..take]);
        input.consume(take + usize::from(done));
        if line.len() > LINE_BYTES_MAX {
            return Err(PictureStreamError::Format("a header line does not end".to_owned()));
        }
        if done {
            return Ok(Some(line));
        }
    }
}

/// Parses width and height from the header line of YUV4MPEG2.
fn parse_header(line: &[u8]) -> Result<(u32, u32), String> {
    let text = String::from_utf8_lossy(line);
    let mut words = text.split_ascii_whitespace();
    if words.next() != Some("YUV4MPEG2") {
        return Err("the decoder's output does not start with YUV4MPEG2".to_owned());
    }
    let (mut width, mut height) = (0, 0);
    for word in words {
        // Each word is a letter with a value; unknown letters are ignored.
        match word.split_at_checked(1) {
            Some(("W", value)) => width = value.parse().unwrap_or(0),
            Some(("H", value)) => height = value.parse().unwrap_or(0),
            Some(("C", chroma)) if !matches!(chroma, "420" | "420jpeg" | "420mpeg2" | "420paldv") => {
                return Err(format!("the decoder sends chroma {chroma} in place of 420"));
            }
            _ => {}
        }
    }
    if width == 0 || height == 0 {
        return Err("the decoder states no size".to_owned());
    }
    Ok((width, height))
}

/// A bounded queue between the reader of a stream and the delivery of its frames.
#[derive(Debug)]
pub(super) struct HandOver<T> {
    inner: Mutex<HandOverInner<T>>,
    item_added: Notify,
    item_taken: Notify,
    items_max: usize,
}

#[derive(Debug)]
struct HandOverInner<T> {
    items: VecDeque<T>,
    closed: bool,
}

impl<T> HandOver<T> {
    pub(super) fn new(items_max: usize) -> Self {
        Self {
            inner: Mutex::new(HandOverInner { items: VecDeque::with_capacity(items_max), closed: false }),
            item_added: Notify::new(),
            item_taken: Notify::new(),
            items_max,
        }
    }

    /// Adds an item. Waits for room, which holds up the reader and its child.
    pub(super) async fn push(&self, item: T) {
        loop {
            let taken = self.item_taken.notified();
            {
                let mut inner = self.lock();
                if inner.items.len() < self.items_max {
                    inner.items.push_back(item);
                    self.item_added.notify_one();
                    return;
                }
            }
            taken.await;
        }
    }

    /// Adds an item without waiting. If the queue is full, the oldest item is removed and returned.
    pub(super) fn push_newest(&self, item: T) -> Option<T> {
        let mut inner = self.lock();
        let displaced = if inner.items.len() == self.items_max { inner.items.pop_front() } else { None };
        inner.items.push_back(item);
        self.item_added.notify_one();
        displaced
    }

    /// Waits for the oldest item. `None`: the queue is closed and empty.
    pub(super) async fn pop(&self) -> Option<T> {
        loop {
            let added = self.item_added.notified();
            {
                let mut inner = self.lock();
                if let Some(item) = inner.items.pop_front() {
                    self.item_taken.notify_one();
                    return Some(item);
                }
                if inner.closed {
                    return None;
                }
            }
            added.await;
        }
    }

    /// True if an item waits.
    pub(super) fn has_item(&self) -> bool {
        !self.lock().items.is_empty()
    }

    /// Closes the queue: nothing more will be added.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.item_added.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, HandOverInner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use mez_media::jpeg::{Encoder, Sampling};
    use mez_media::{ImageView, PixelFormat};

    use super::*;

    fn jpeg(side: u32) -> Vec<u8> {
        let pixels = vec![90; (side * side) as usize];
        let view = ImageView::packed(&pixels, side, side, PixelFormat::Gray8).unwrap();
        Encoder::new(80, Sampling::Grey).unwrap().encode(&view).unwrap().to_vec()
    }

    #[tokio::test]
    async fn images_come_out_of_a_pipe_as_they_went_in() {
        let (mut writer, reader) = tokio::io::duplex(100);
        let images: Vec<Vec<u8>> = [8, 64, 16, 40].map(jpeg).to_vec();
        let mut bytes = images.concat();
        bytes.extend_from_slice(&images[1][..50]);
        tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut writer, &bytes).await });
        let mut stream = JpegStream::new(reader);
        let mut found = Vec::new();
        let mut last = None;
        while let Some((frame, began)) = stream.next().await.unwrap() {
            assert!(last <= Some(began));
            last = Some(began);
            found.push(frame.jpeg.to_vec());
        }
        assert_eq!(found, images);
        assert_eq!(stream.broken(), 1);
    }

    async fn pictures(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, u64), PictureStreamError> {
        let Some(mut stream) = PictureStream::open(bytes).await? else { return Ok((Vec::new(), 0)) };
        let mut found = Vec::new();
        while let Some((picture, _)) = stream.next(vec![7; 1000]).await? {
            assert_eq!((picture.width, picture.height), (3, 1));
            found.push(picture.planes);
        }
        Ok((found, stream.broken()))
    }

    #[tokio::test]
    async fn pictures_are_read_with_any_header_words() {
        let stream = b"YUV4MPEG2 W3 H1 F25:1 Ip A1:1 C420jpeg XYSCSS=420JPEG XCOLORRANGE=FULL
FRAME
1234567FRAME Ip
abcdefg";
        let (found, broken) = pictures(stream).await.unwrap();
        assert_eq!(found, [b"1234567".to_vec(), b"abcdefg".to_vec()]);
        assert_eq!(broken, 0);
        let (found, broken) = pictures(&stream[..stream.len() - 1]).await.unwrap();
        assert_eq!((found.len(), broken), (1, 1), "the cut-off picture is dropped and counted");
        assert!(pictures(b"").await.unwrap().0.is_empty());
        assert!(pictures(b"YUV4MPEG2 W3 H1").await.unwrap().0.is_empty());
    }

    #[tokio::test]
    async fn what_is_no_picture_stream_is_refused() {
        for (stream, word) in [
            (
                "ERROR
",
                "YUV4MPEG2",
            ),
            (
                "YUV4MPEG2 W3 H1 C444
",
                "444",
            ),
            (
                "YUV4MPEG2 W3 Hx
",
                "size",
            ),
            (
                "YUV4MPEG2 W3 H1
FRAMES
1234567",
                "FRAME",
            ),
        ] {
            match pictures(stream.as_bytes()).await {
                Err(PictureStreamError::Format(detail)) => assert!(detail.contains(word), "{detail}"),
                other => panic!("{stream}: {other:?}"),
            }
        }
        let endless = vec![b'x'; 1 << 20];
        assert!(matches!(pictures(&endless).await, Err(PictureStreamError::Format(_))));
        for size in ["W65501 H1", "W1 H65501", "W20000 H20000", "W4294967295 H4294967295"] {
            let header = format!(
                "YUV4MPEG2 {size}
"
            );
            assert!(
                matches!(pictures(header.as_bytes()).await, Err(PictureStreamError::TooLarge { .. })),
                "{size}"
            );
        }
    }

    #[tokio::test]
    async fn a_hand_over_holds_back_or_lets_the_newest_pass() {
        let hand_over = HandOver::new(2);
        hand_over.push(1).await;
        hand_over.push(2).await;
        let mut third = std::pin::pin!(hand_over.push(3));
        assert!(futures_now(third.as_mut()).is_none(), "there is no room");
        assert_eq!(hand_over.pop().await, Some(1));
        third.await;
        assert_eq!(hand_over.push_newest(4), Some(2));
        hand_over.close();
        assert!(hand_over.has_item());
        assert_eq!(
            (hand_over.pop().await, hand_over.pop().await, hand_over.pop().await),
            (Some(3), Some(4), None)
        );
    }

    /// Polls once.
    fn futures_now<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.poll(&mut context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        }
    }
}
