//! Cuts a child's output into coded pictures, and passes on those whose references were passed on.

use std::io;
use std::time::Instant;

use bytes::Bytes;
use mez_core::broker::StreamPart;
use mez_core::frame::{Encoding, FRAME_BYTES_MAX};
use mez_media::bitstream::{self, AccessUnitLimits, BitstreamError, StreamParser, Unfit};
use mez_media::nut::{NutError, NutEvent, NutReader};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The size of one read, in bytes.
const READ_BYTES: usize = 64 << 10;

/// A picture as its source coded it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CodedPicture {
    pub(super) payload: Bytes,
    pub(super) encoding: Encoding,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) part: StreamPart,
}

/// The result of reading a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A picture that can be decoded with the pictures before it, and when it began to arrive.
    Picture(CodedPicture, Instant),
    /// A packet without a picture that can be decoded: the picture is damaged, or needs one that did not come. The source still sends.
    NoPicture,
    /// The end of the stream.
    End,
}

/// Why the packets of a stream are no longer read.
#[derive(Debug)]
pub(super) enum PacketStreamError {
    Io(io::Error),
    /// The output is not what ffmpeg was asked for.
    Container(NutError),
    /// Its coded pictures cannot pass unchanged.
    Unfit(Unfit),
}

impl From<io::Error> for PacketStreamError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<NutError> for PacketStreamError {
    fn from(error: NutError) -> Self {
        Self::Container(error)
    }
}

/// Reads the coded pictures of a source, and notes when each began to arrive.
pub(super) struct PacketStream<R> {
    input: R,
    container: NutReader,
    encoding: Encoding,
    parser: StreamParser,
    buffer: Box<[u8]>,
    /// When the packet in progress began to arrive.
    began: Instant,
    /// When the newest bytes arrived.
    read_at: Instant,
    broken: u64,
}

impl<R: AsyncRead + Unpin> PacketStream<R> {
    /// `None`: the encoding is not a video stream.
    pub(super) fn new(input: R, encoding: Encoding) -> Option<Self> {
        let now = Instant::now();
        Some(Self {
            input,
            container: NutReader::new(FRAME_BYTES_MAX as usize),
            encoding,
            parser: StreamParser::new(encoding, AccessUnitLimits::default())?,
            buffer: vec![0; READ_BYTES].into(),
            began: now,
            read_at: now,
            broken: 0,
        })
    }

    /// Reads the next packet. Pictures that are damaged or lack references are dropped and counted.
    pub(super) async fn next(&mut self) -> Result<Step, PacketStreamError> {
        loop {
            match self.container.next_event()? {
                Some(NutEvent::Stream(stream)) => self.describe(&stream.description),
                Some(NutEvent::Packet(packet)) => {
                    let began = std::mem::replace(&mut self.began, self.read_at);
                    if let Some(description) = &packet.description {
                        self.describe(description);
                    }
                    let picture = self.picture(&packet.payload)?;
                    return Ok(picture.map_or(Step::NoPicture, |picture| Step::Picture(picture, began)));
                }
                None => {
                    let is_inside = self.container.is_inside();
                    let count = self.input.read(&mut self.buffer).await?;
                    self.read_at = Instant::now();
                    if !is_inside {
                        self.began = self.read_at;
                    }
                    if count == 0 {
                        self.broken += u64::from(is_inside);
                        return Ok(Step::End);
                    }
                    self.container.push(&self.buffer[..count]);
                }
            }
        }
    }

    /// The number of dropped pictures so far.
    pub(super) fn broken(&self) -> u64 {
        self.broken
    }

    fn describe(&mut self, description: &[u8]) {
        if let Err(error) = self.parser.describe(description) {
            tracing::warn!("{error}");
        }
    }

    /// The picture in a packet. `None`: it holds no picture that can be decoded.
    fn picture(&mut self, packet: &[u8]) -> Result<Option<CodedPicture>, PacketStreamError> {
        match self.parser.packet(packet) {
            Ok(None) => return Ok(None),
            Ok(Some(picture)) if picture.is_unbroken => {
                let bitstream::CodedPicture { payload, width, height, is_key, is_needed, .. } = picture;
                let part = if is_key { StreamPart::Key } else { StreamPart::Following { is_needed } };
                return Ok(Some(CodedPicture { payload, encoding: self.encoding, width, height, part }));
            }
            Ok(Some(_)) => {}
            Err(BitstreamError::Unfit(unfit)) => return Err(PacketStreamError::Unfit(unfit)),
            Err(error) => tracing::debug!("a picture of the source is lost: {error}"),
        }
        self.broken += 1;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICES: &[u8] = include_bytes!("../../../media/tests/streams/slices.nut");

    async fn read(bytes: Vec<u8>) -> (Vec<CodedPicture>, u64, Option<PacketStreamError>) {
        read_of(Encoding::H264, bytes).await
    }

    async fn read_of(
        encoding: Encoding,
        bytes: Vec<u8>,
    ) -> (Vec<CodedPicture>, u64, Option<PacketStreamError>) {
        let mut stream = PacketStream::new(&bytes[..], encoding).unwrap();
        let mut pictures = Vec::new();
        let mut last = None;
        loop {
            match stream.next().await {
                Ok(Step::Picture(picture, began)) => {
                    assert!(last <= Some(began));
                    last = Some(began);
                    pictures.push(picture);
                }
                Ok(Step::NoPicture) => {}
                Ok(Step::End) => return (pictures, stream.broken(), None),
                Err(error) => return (pictures, stream.broken(), Some(error)),
            }
        }
    }

    #[tokio::test]
    async fn pictures_come_out_of_a_pipe_as_they_were_coded() {
        let (pictures, broken, error) = read(SLICES.to_vec()).await;
        assert!(error.is_none() && broken == 0, "{error:?}");
        assert_eq!(pictures.len(), 10);
        let parts = pictures.iter().map(|picture| picture.part);
        let keys = parts.enumerate().filter(|(_, part)| *part == StreamPart::Key).map(|(at, _)| at);
        assert_eq!(keys.collect::<Vec<_>>(), [0]);
        assert!(pictures.iter().all(|picture| (picture.width, picture.height) == (64, 48)));
    }

    #[tokio::test]
    async fn pictures_of_other_codecs_come_the_same_way() {
        const H265: &[u8] = include_bytes!("../../../media/tests/streams/h265.nut");
        const AV1: &[u8] = include_bytes!("../../../media/tests/streams/av1.nut");
        for (encoding, file) in [(Encoding::H265, H265), (Encoding::Av1, AV1)] {
            let (pictures, broken, error) = read_of(encoding, file.to_vec()).await;
            assert!(error.is_none() && broken == 0, "{error:?}");
            let is_key = |at: &usize| pictures[*at].part == StreamPart::Key;
            assert_eq!((0..pictures.len()).filter(is_key).collect::<Vec<_>>(), [0, 4, 8]);
            assert!(pictures.iter().all(|picture| picture.encoding == encoding && picture.width == 64));
        }
        assert!(PacketStream::new(&[][..], Encoding::Jpeg).is_none());
    }

    /// A lost picture costs all pictures that need it, and these are counted.
    #[tokio::test]
    async fn what_cannot_be_decoded_is_counted_and_not_passed_on() {
        let (whole, ..) = read(SLICES.to_vec()).await;
        let mut damaged = SLICES.to_vec();
        // The first slice of the fifth picture: its header byte is forbidden.
        let slice = &whole[4].payload[4..];
        let at = damaged.windows(12).position(|bytes| bytes == &slice[..12]).unwrap();
        damaged[at] = 0xFF;
        let (pictures, broken, error) = read(damaged).await;
        assert!(error.is_none());
        assert_eq!((&pictures[..], broken), (&whole[..4], 6));
        // An index comes last.
        let (pictures, broken, _) = read(SLICES[..SLICES.len() - 40].to_vec()).await;
        assert_eq!((&pictures[..], broken), (&whole[..9], 1));
    }

    #[tokio::test]
    async fn what_is_no_container_ends_it() {
        assert!(matches!(read(b"YUV4MPEG2".to_vec()).await.2, Some(PacketStreamError::Container(_))));
    }
}
