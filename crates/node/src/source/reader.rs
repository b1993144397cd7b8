//! Takes frames out of a child's output and hands them over: every frame of a recording, the newest of a live source.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mez_media::bitstream::Unfit;
use mez_media::jpeg::JpegFrame;
use tokio::process::ChildStdout;

use super::command::Output;
use super::pace::Thinning;
use super::packets::{CodedPicture, PacketStream, PacketStreamError};
use super::queue::EventQueue;
use super::stream::{HandOver, JpegStream, PictureStream, PictureStreamError, RawPicture};

/// At its start a source gets this many times [`SourceOptions::stalled_after`](super::SourceOptions::stalled_after): it may have to
/// wait for a keyframe.
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

/// Buffers of raw pictures, to be used again. Never more than are under way at once.
pub(super) type Spare = Mutex<Vec<Vec<u8>>>;

fn take_spare(spare: &Spare) -> Vec<u8> {
    spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
}

pub(super) fn give_back(spare: &Spare, picture: Picture) {
    if let Picture::Raw(raw) = picture {
        spare.lock().unwrap_or_else(PoisonError::into_inner).push(raw.planes);
    }
}

#[derive(Debug)]
pub(super) enum ReadEnd {
    /// The child closed its output.
    End,
    Stalled(Duration),
    Broken(String),
    TooLarge {
        width: u32,
        height: u32,
    },
    /// Its pictures cannot go on as they are coded.
    Unfit(Unfit),
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

/// Takes frames out of a child's output and passes them on: all of a recording, the newest of a live source.
pub(super) struct Reader<'a> {
    pub(super) hand_over: &'a HandOver<Arrived>,
    pub(super) spare: &'a Spare,
    pub(super) events: &'a EventQueue,
    pub(super) live: bool,
    pub(super) thinning: Option<Thinning>,
    /// Frames at the start that were delivered before the last child died.
    pub(super) leave_out: u64,
    pub(super) stalled_after: Duration,
    pub(super) frames: u64,
    pub(super) broken_told: u64,
    pub(super) first_and_last: Option<(Instant, Instant)>,
}

impl Reader<'_> {
    pub(super) async fn read(&mut self, stdout: ChildStdout, output: Output) -> ReadEnd {
        let end = match output {
            Output::Jpeg => self.read_jpeg(stdout).await,
            Output::Pictures => self.read_pictures(stdout).await,
            Output::Packets => self.read_packets(stdout).await,
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

    async fn read_packets(&mut self, stdout: ChildStdout) -> Result<ReadEnd, ReadEnd> {
        let mut stream = PacketStream::new(stdout);
        loop {
            let next = self.in_time(stream.next()).await?;
            self.tell_broken(stream.broken());
            let Some((coded, began)) = next? else { return Ok(ReadEnd::End) };
            self.pass_on(Arrived { picture: Picture::Coded(coded), began }).await;
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
            // A coded picture that others need cannot make room for a newer one.
            self.hand_over.push(arrived).await;
        } else if let Some(displaced) = self.hand_over.push_newest(arrived) {
            self.events.add_skipped(1);
            give_back(self.spare, displaced.picture);
        }
    }
}
