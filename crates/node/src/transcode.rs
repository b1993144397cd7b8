//! Makes stills of frames of chains, on threads under a deadline ([`mez_media::worker`]).

use std::time::Duration;

use bytes::Bytes;
use mez_core::frame::{ChainLink, Encoding, Frame, Sequence};
use mez_core::stills::{Decoded, Form, Picture, PicturePlace};
use mez_media::jpeg::PIXELS_MAX_DEFAULT;
use mez_media::stream::{OwnedPicture, Still, TranscodeError, Transcoder};
use mez_media::worker::Worker;

use crate::decoders::Decoders;
use crate::memory::pooled;
use crate::pictures::Slot;

/// The deadline for decoding and encoding one frame. At 1080p both together take about 10 ms.
const TIME_MAX: Duration = Duration::from_millis(250);
/// The same of a frame that is decoded by a process, which may have to be started.
const FOREIGN_TIME_MAX: Duration = Duration::from_secs(3);

/// What a decoder is to do.
pub(crate) enum Task {
    /// To decode a frame, after it has forgotten what it holds if `afresh`, and to make of it what is `wanted`.
    Decode { frame: Box<Frame>, afresh: bool, wanted: Option<Form> },
    /// To make something of the frame that it decoded last.
    Show(Sequence, Form),
}

/// What was made of a frame.
pub(crate) enum Made {
    Nothing,
    Still(Still),
    Picture(OwnedPicture),
}

/// A frame of a chain as it came.
pub(crate) struct Coded<'a> {
    pub(crate) encoding: Encoding,
    pub(crate) sequence: Sequence,
    pub(crate) chain: ChainLink,
    pub(crate) payload: &'a [u8],
}

impl<'a> Coded<'a> {
    fn of(frame: &'a Frame) -> Self {
        let Frame { meta, payload } = frame;
        Self { encoding: meta.encoding, sequence: meta.id.sequence, chain: meta.chain, payload }
    }
}

/// A [`Task`] for the thread that does it.
pub(crate) enum Work<'a> {
    Decode { coded: Coded<'a>, afresh: bool, wanted: Option<Form> },
    Show(Sequence, Form),
}

impl Task {
    fn work(&self) -> Work<'_> {
        match self {
            Self::Decode { frame, afresh, wanted } => {
                Work::Decode { coded: Coded::of(frame), afresh: *afresh, wanted: *wanted }
            }
            Self::Show(sequence, form) => Work::Show(*sequence, *form),
        }
    }
}

/// Why a frame was not decoded, for people.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// What was made of a frame, and where its picture was kept for others.
type Kept = (Made, Option<PicturePlace>);

/// What a decoder's thread is given.
enum Job {
    Do(Task, Option<Slot>),
    /// To decode a frame for those behind it, after it has forgotten what it holds if `afresh`.
    Pass {
        frame: Box<Frame>,
        afresh: bool,
    },
}

/// A decoder of one camera's chains, in this process.
pub(crate) struct ChainDecoder(Worker<Job, Result<Kept, TranscodeError>>);

impl ChainDecoder {
    /// One that holds nothing, and decodes in software. Its thread starts with its first frame.
    pub(crate) fn new() -> Self {
        Self::with(&Decoders::software())
    }

    /// The same with other decoders beside the library.
    pub(crate) fn with(decoders: &Decoders) -> Self {
        let decoders = decoders.clone();
        Self(Worker::new("mez decode", move || worker(Decoding::new(decoders.clone()))))
    }

    /// What comes of a task, and why it failed. `slot`: where a picture goes, if others are to look there.
    pub(crate) fn run(&mut self, task: Task, slot: Option<Slot>) -> (Decoded, Option<Failure>) {
        let time_max = match &task {
            Task::Decode { frame, .. } => time_max(frame),
            Task::Show(..) => TIME_MAX,
        };
        self.work(Job::Do(task, slot), time_max)
    }

    /// Decodes a frame for those behind it, after it has forgotten what it holds if `afresh`. The frame cannot be shown afterwards.
    pub(crate) fn pass(&mut self, frame: Box<Frame>, afresh: bool) -> (Decoded, Option<Failure>) {
        let time_max = time_max(&frame);
        self.work(Job::Pass { frame, afresh }, time_max)
    }

    fn work(&mut self, job: Job, time_max: Duration) -> (Decoded, Option<Failure>) {
        match self.0.run(job, time_max) {
            Ok(Ok((Made::Still(Still { payload, width, height }), _))) => {
                (Decoded::Still { payload, encoding: Encoding::Jpeg, width, height }, None)
            }
            Ok(Ok((Made::Picture(picture), place))) => {
                let (form, size, data) = picture.into_parts();
                (Decoded::Picture(Picture { form, data, size, place }), None)
            }
            Ok(Ok((Made::Nothing, _))) => (Decoded::Passed, None),
            Ok(Err(error)) if error.is_not_held() => (Decoded::NotHeld, Some(error.into())),
            Ok(Err(error)) => (Decoded::Failed, Some(error.into())),
            Err(error) => (Decoded::Failed, Some(error.into())),
        }
    }
}

/// How long a frame may take.
fn time_max(frame: &Frame) -> Duration {
    if frame.meta.encoding.is_foreign() { FOREIGN_TIME_MAX } else { TIME_MAX }
}

/// The work of a decoder's thread.
fn worker(mut decoding: Decoding) -> impl FnMut(Job) -> Result<Kept, TranscodeError> {
    move |job| {
        let (task, slot) = match job {
            Job::Do(task, slot) => (task, slot),
            Job::Pass { frame, afresh } => {
                return decoding.pass(&Coded::of(&frame), afresh).map(|()| (Made::Nothing, None));
            }
        };
        let mut place = None;
        let keep = |samples: &[u8]| {
            let kept = slot.and_then(|slot| {
                place = Some(slot.place());
                slot.keep(samples)
            });
            kept.unwrap_or_else(|| {
                place = None;
                pooled(samples)
            })
        };
        let made = decoding.run(task.work(), keep)?;
        Ok((made, place))
    }
}

/// The state of a decoder's thread.
pub(crate) struct Decoding {
    decoders: Decoders,
    transcoder: Option<Transcoder>,
}

impl Decoding {
    /// One that holds nothing. It takes memory with its first frame.
    pub(crate) fn new(decoders: Decoders) -> Self {
        Self { decoders, transcoder: None }
    }

    /// Does what is to be done. `keep` copies the samples of a picture, if one is wanted.
    pub(crate) fn run(
        &mut self,
        work: Work<'_>,
        keep: impl FnOnce(&[u8]) -> Bytes,
    ) -> Result<Made, TranscodeError> {
        let transcoder = self.transcoder()?;
        let picture =
            |transcoder: &Transcoder, sequence| Ok(Made::Picture(transcoder.picture(sequence)?.keep(keep)));
        match work {
            Work::Decode { coded: Coded { encoding, sequence, chain, payload }, afresh, wanted } => {
                if afresh {
                    transcoder.restart();
                }
                let is_still = wanted == Some(Form::Still);
                let still = transcoder.transcode(encoding, (sequence, &chain), payload, is_still)?;
                match (still, wanted) {
                    (Some(still), _) => Ok(Made::Still(still)),
                    (None, Some(Form::Picture)) => picture(transcoder, sequence),
                    (None, _) => Ok(Made::Nothing),
                }
            }
            Work::Show(sequence, Form::Still) => transcoder.show(sequence).map(Made::Still),
            Work::Show(sequence, Form::Picture) => picture(transcoder, sequence),
        }
    }

    /// Decodes a frame for those behind it.
    fn pass(&mut self, coded: &Coded<'_>, afresh: bool) -> Result<(), TranscodeError> {
        let transcoder = self.transcoder()?;
        if afresh {
            transcoder.restart();
        }
        transcoder.pass(coded.encoding, (coded.sequence, &coded.chain), coded.payload)
    }

    fn transcoder(&mut self) -> Result<&mut Transcoder, TranscodeError> {
        match &mut self.transcoder {
            Some(transcoder) => Ok(transcoder),
            empty => {
                let transcoder = Transcoder::new(PIXELS_MAX_DEFAULT)?.with_platform(self.decoders.platform());
                Ok(empty.insert(match self.decoders.outside() {
                    Some(outside) => transcoder.with_outside(outside),
                    None => transcoder,
                }))
            }
        }
    }
}
