//! Takes frames from a child's output and hands them over: every frame of a recording, the newest frame of a live source.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mez_core::frame::Encoding;
use mez_media::bitstream::Unfit;
use mez_media::jpeg::JpegFrame;
use tokio::io::AsyncRead;
use tokio::process::ChildStdout;
use tokio::time::Instant as TokioInstant;

use super::command::Output;
use super::key_frames::KeyFrames;
use super::pace::Thinning;
use super::packets::{CodedPicture, PacketStream, PacketStreamError, Step};
use super::queue::EventQueue;
use super::stream::{HandOver, JpegStream, PictureStream, PictureStreamError, RawPicture};
use super::types::KeyFrameNeed;

/// Before its first frame a source gets this many times
/// [`SourceOptions::stalled_after`](super::SourceOptions::stalled_after): it may have to wait for a key frame.
const START_FACTOR: u32 = 2;

/// A frame as it came from the child.
#[derive(Debug)]
pub(super) enum Picture {
    Jpeg(JpegFrame),
    Raw(RawPicture),
    Coded(CodedPicture),
}

#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) picture: Picture,
    /// When its first bytes arrived.
    pub(super) began: Instant,
}

/// Buffers of raw pictures for reuse. Never more than are in use at once.
pub(super) type Spare = Mutex<Vec<Vec<u8>>>;

fn take_spare(spare: &Spare) -> Vec<u8> {
    spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
}

pub(super) fn give_back(spare: &Spare, picture: Picture) {
    if let Picture::Raw(raw) = picture {
        spare.lock().unwrap_or_else(PoisonError::into_inner).push(raw.planes);
    }
}

/// Why a child is no longer read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadEnd {
    /// The child closed its output.
    #[error("ffmpeg reached the end of the stream")]
    End,
    /// The child gave nothing for this long.
    #[error("no frame for {} s", .0.as_secs_f64())]
    Stalled(Duration),
    /// Its output could not be parsed.
    #[error("{0}")]
    Broken(String),
    /// The pictures are larger than the limits.
    #[error("its pictures of {width}x{height} are too large")]
    TooLarge { width: u32, height: u32 },
    /// The coded pictures cannot pass unchanged.
    #[error("{0}")]
    Unfit(Unfit),
    /// Pictures come, but no key frame to begin decoding with: none for this long, or, with `None`, none to the end.
    #[error(
        "the video stream has no keyframe (IDR) {}; set the source to a keyframe at least every 10 s, without open groups of pictures and without \
         intra refresh",
        .0.map_or_else(|| "to its end".to_owned(), |after| format!("for {} s", after.as_secs_f64()))
    )]
    NoKeyFrame(Option<Duration>),
    /// A live source has lost pictures, and has given no key frame for this long since.
    #[error("pictures of the video stream were lost, and no keyframe (IDR) has come for {} s", .0.as_secs_f64())]
    LacksKeyFrame(Duration),
    /// A key frame is needed, and the source is to be opened again for it.
    #[error(
        "the camera's memory no longer holds the last keyframe (IDR) of the video stream; set the source to more frequent keyframes"
    )]
    Asked,
}

impl From<PacketStreamError> for ReadEnd {
    fn from(error: PacketStreamError) -> Self {
        match error {
            PacketStreamError::Io(error) => error.into(),
            PacketStreamError::Container(error) => Self::Broken(error.to_string()),
            PacketStreamError::Unfit(unfit) => Self::Unfit(unfit),
        }
    }
}

impl From<PictureStreamError> for ReadEnd {
    fn from(error: PictureStreamError) -> Self {
        match error {
            PictureStreamError::Io(error) => error.into(),
            PictureStreamError::Format(detail) => Self::Broken(detail),
            PictureStreamError::TooLarge { width, height } => Self::TooLarge { width, height },
        }
    }
}

impl From<io::Error> for ReadEnd {
    fn from(error: io::Error) -> Self {
        Self::Broken(format!("its output could not be read: {error}"))
    }
}

/// Takes frames from a child's output and hands them over: every frame of a recording, the newest frame of a live source.
pub(super) struct Reader<'a> {
    pub(super) hand_over: &'a HandOver<Arrived>,
    pub(super) spare: &'a Spare,
    pub(super) events: &'a EventQueue,
    pub(super) live: bool,
    pub(super) thinning: Option<Thinning>,
    /// The number of frames at the start that an earlier child has already delivered.
    pub(super) leave_out: u64,
    pub(super) stalled_after: Duration,
    pub(super) frames: u64,
    pub(super) broken_told: u64,
    pub(super) first_and_last: Option<(Instant, Instant)>,
    /// Asks for key frames, and tells when the source is to be opened again for one.
    pub(super) key_frames: &'a KeyFrames,
}

impl Reader<'_> {
    pub(super) async fn read(&mut self, stdout: ChildStdout, output: Output) -> ReadEnd {
        let end = match output {
            Output::Jpeg => self.read_jpeg(stdout).await,
            Output::Pictures => self.read_pictures(stdout).await,
            Output::Packets(encoding) => self.read_packets(stdout, encoding).await,
        };
        end.unwrap_or_else(|end| end)
    }

    async fn read_jpeg(&mut self, stdout: ChildStdout) -> Result<ReadEnd, ReadEnd> {
        let mut stream = JpegStream::new(stdout);
        loop {
            let next = self.in_time(stream.next()).await??;
            self.tell_broken(stream.broken());
            let Some((frame, began)) = next else { return Ok(ReadEnd::End) };
            self.pass_on(Arrived { picture: Picture::Jpeg(frame), began }).await;
        }
    }

    async fn read_pictures(&mut self, stdout: ChildStdout) -> Result<ReadEnd, ReadEnd> {
        let Some(mut stream) = self.in_time(PictureStream::open(stdout)).await?? else {
            return Ok(ReadEnd::End);
        };
        loop {
            let next = self.in_time(stream.next(take_spare(self.spare))).await??;
            self.tell_broken(stream.broken());
            let Some((raw, began)) = next else { return Ok(ReadEnd::End) };
            self.pass_on(Arrived { picture: Picture::Raw(raw), began }).await;
        }
    }

    async fn read_packets(
        &mut self,
        stdout: impl AsyncRead + Unpin,
        encoding: Encoding,
    ) -> Result<ReadEnd, ReadEnd> {
        let no_stream = || ReadEnd::Broken(format!("{} is no stream", encoding.name()));
        let mut stream = PacketStream::new(stdout, encoding).ok_or_else(no_stream)?;
        let begun = TokioInstant::now();
        let (mut has_begun, mut lacking_since) = (false, None);
        loop {
            let step = tokio::select! {
                // A packet without a usable picture still counts as a sign of life.
                step = self.in_time(stream.next()) => step?,
                () = self.key_frames.reopen_wanted() => return Ok(ReadEnd::Asked),
            };
            self.tell_broken(stream.broken());
            match step? {
                Step::Picture(coded, began) => {
                    (has_begun, lacking_since) = (true, None);
                    self.pass_on(Arrived { picture: Picture::Coded(coded), began }).await;
                }
                Step::NoPicture => {
                    let since = lacking_since.get_or_insert_with(|| {
                        self.key_frames.ask(KeyFrameNeed::Helps);
                        if has_begun { TokioInstant::now() } else { begun }
                    });
                    self.lacks_pictures(has_begun, since.elapsed()).map_or(Ok(()), Err)?;
                }
                Step::End if !has_begun && stream.broken() > 0 => return Ok(ReadEnd::NoKeyFrame(None)),
                Step::End => return Ok(ReadEnd::End),
            }
        }
    }

    /// Whether to give up a stream that has given packets for some time, but no picture that can be decoded. A recording soon reaches its next key
    /// frame, because it is read ahead. A camera's next key frame may be far away, but most cameras begin with one when they are opened again.
    fn lacks_pictures(&self, has_begun: bool, lacking_for: Duration) -> Option<ReadEnd> {
        let at_start_max = self.stalled_after.saturating_mul(START_FACTOR);
        match has_begun {
            false if lacking_for >= at_start_max => Some(ReadEnd::NoKeyFrame(Some(at_start_max))),
            true if self.live && lacking_for >= self.stalled_after => {
                Some(ReadEnd::LacksKeyFrame(self.stalled_after))
            }
            _ => None,
        }
    }

    async fn in_time<T>(&self, step: impl Future<Output = T>) -> Result<T, ReadEnd> {
        let limit = if self.frames == 0 {
            self.stalled_after.saturating_mul(START_FACTOR)
        } else {
            self.stalled_after
        };
        tokio::time::timeout(limit, step).await.map_err(|_| ReadEnd::Stalled(limit))
    }

    fn tell_broken(&mut self, broken: u64) {
        self.events.add_skipped(broken - self.broken_told);
        self.broken_told = broken;
    }

    async fn pass_on(&mut self, arrived: Arrived) {
        if self.leave_out > 0 {
            self.leave_out -= 1;
            return give_back(self.spare, arrived.picture);
        }
        self.frames += 1;
        let first = self.first_and_last.map_or(arrived.began, |(first, _)| first);
        self.first_and_last = Some((first, arrived.began));
        if self.thinning.as_mut().is_some_and(|thinning| !thinning.keep(arrived.began)) {
            give_back(self.spare, arrived.picture);
        } else if !self.live || matches!(arrived.picture, Picture::Coded(_)) {
            // Other pictures may need a coded picture, so it is not displaced by a newer one.
            self.hand_over.push(arrived).await;
        } else if let Some(displaced) = self.hand_over.push_newest(arrived) {
            self.events.add_skipped(1);
            give_back(self.spare, displaced.picture);
        }
    }
}

#[cfg(test)]
mod tests {
    use mez_media::nut::{NutEvent, NutReader};
    use tokio::io::AsyncWriteExt;

    use super::super::onvif::OnvifChoice;
    use super::super::spec::SourceSpec;
    use super::*;

    const SLICES: &[u8] = include_bytes!("../../../media/tests/streams/slices.nut");
    const STALLED_AFTER: Duration = Duration::from_secs(10);

    /// The ten packets of a stream, each with the container bytes before it. Only the first packet is a key
    /// frame. `is_damaged`: damages this key frame.
    fn packets(is_damaged: bool) -> Vec<Vec<u8>> {
        let mut reader = NutReader::new(1 << 20);
        let mut packets = vec![Vec::new()];
        for byte in SLICES {
            packets.last_mut().unwrap().push(*byte);
            reader.push(&[*byte]);
            while let Some(event) = reader.next_event().unwrap() {
                let NutEvent::Packet(packet) = event else { continue };
                if is_damaged && packets.len() == 1 {
                    damage(packets.last_mut().unwrap(), packet.payload.len());
                }
                packets.push(Vec::new());
            }
        }
        packets.pop();
        assert_eq!(packets.len(), 10);
        packets
    }

    /// Sets the forbidden bit of all slices in the last bytes. Each slice follows its length.
    fn damage(bytes: &mut [u8], last: usize) {
        let mut at = bytes.len() - last;
        while at < bytes.len() {
            let length = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            let is_slice = matches!(bytes[at + 4] & 0x1F, 1 | 5);
            bytes[at + 4] |= if is_slice { 0x80 } else { 0 };
            at += 4 + length;
        }
    }

    /// How reading ends if a source gives these packets, one second apart, and then ends or falls silent. Also the number of pictures.
    async fn read(packets: Vec<Vec<u8>>, live: bool, ends: bool) -> (ReadEnd, u64) {
        let (hand_over, spare, events) = (HandOver::new(64), Spare::default(), EventQueue::default());
        let key_frames = KeyFrames::of(&SourceSpec::File("x.mp4".into()), &OnvifChoice::Off);
        let mut reader = Reader {
            hand_over: &hand_over,
            spare: &spare,
            events: &events,
            live,
            thinning: None,
            leave_out: 0,
            stalled_after: STALLED_AFTER,
            frames: 0,
            broken_told: 0,
            first_and_last: None,
            key_frames: &key_frames,
        };
        let (mut child, output) = tokio::io::duplex(1 << 20);
        let sending = async move {
            for packet in packets {
                // The write fails once the reader has given up the source.
                let _ = child.write_all(&packet).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            if !ends {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
        };
        let (end, ()) = tokio::join!(reader.read_packets(output, Encoding::H264), sending);
        (end.unwrap_or_else(|end| end), reader.frames)
    }

    /// The first packet, followed by `count` copies of another.
    fn stream(packets: &[Vec<u8>], other: usize, count: usize) -> Vec<Vec<u8>> {
        std::iter::once(packets[0].clone()).chain((0..count).map(|_| packets[other].clone())).collect()
    }

    /// A key frame, followed by `count` pictures that lack a reference.
    fn lossy(count: usize) -> Vec<Vec<u8>> {
        stream(&packets(false), 2, count)
    }

    /// Packets that lack a reference are not silence. The time of silence counts from the last packet.
    #[tokio::test(start_paused = true)]
    async fn a_source_that_has_lost_a_picture_is_not_taken_for_silent() {
        let (end, frames) = read(lossy(9), true, true).await;
        assert!(matches!(end, ReadEnd::End), "nine seconds without a picture that can be decoded: {end:?}");
        assert_eq!(frames, 1);
        let (end, _) = read(lossy(9), true, false).await;
        assert!(matches!(end, ReadEnd::Stalled(STALLED_AFTER)), "then it says nothing at all: {end:?}");
    }

    /// After ten seconds without a usable picture a camera is opened again, because most cameras then begin
    /// with a key frame. A recording is read on instead.
    #[tokio::test(start_paused = true)]
    async fn a_camera_whose_next_key_frame_is_far_away_is_opened_again() {
        let (end, frames) = read(lossy(20), true, false).await;
        assert!(matches!(end, ReadEnd::LacksKeyFrame(STALLED_AFTER)), "{end:?}");
        assert_eq!(frames, 1);
        let (end, _) = read(lossy(20), false, true).await;
        assert!(matches!(end, ReadEnd::End), "{end:?}");
    }

    /// Some streams refresh pictures piece by piece instead (intra refresh). ffmpeg can decode them.
    #[tokio::test(start_paused = true)]
    async fn a_source_that_gives_no_key_frame_is_given_up() {
        let keyless = |count: usize| stream(&packets(true), 1, count);
        let (end, frames) = read(keyless(8), false, true).await;
        assert!(matches!(end, ReadEnd::NoKeyFrame(None)), "{end:?}");
        assert_eq!(frames, 0);
        let (end, frames) = read(keyless(30), true, false).await;
        assert!(matches!(end, ReadEnd::NoKeyFrame(Some(limit)) if limit == STALLED_AFTER * 2), "{end:?}");
        assert_eq!(frames, 0);
    }
}
