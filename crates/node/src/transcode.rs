//! Makes stills and pictures of chained frames, on threads with a deadline ([`mez_media::worker`]).

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

/// The longest time for decoding and encoding one frame. At 1080p both together take about 10 ms.
const TIME_MAX: Duration = Duration::from_millis(250);
/// The longest time for a frame that a process decodes. The process may have to be started.
const FOREIGN_TIME_MAX: Duration = Duration::from_secs(3);

/// A task for a decoder.
pub(crate) enum Task {
    /// Decode a frame, and make what is `wanted` of it. `afresh` resets the decoder first.
    Decode { frame: Box<Frame>, afresh: bool, wanted: Option<Form> },
    /// Make a still or a picture of the frame that was decoded last.
    Show(Sequence, Form),
}

/// The result of a task.
pub(crate) enum Made {
    Nothing,
    Still(Still),
    Picture(OwnedPicture),
}

/// A chained frame, not decoded.
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

/// A [`Task`] with borrowed data, for the decoder's thread.
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

/// Why a frame was not decoded, for logging.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// The result of a task, and the place of its picture in shared memory.
type Kept = (Made, Option<PicturePlace>);

/// A job for a decoder's thread.
enum Job {
    Do(Task, Option<Slot>),
    /// Decode a frame only for those that refer to it. `afresh` resets the decoder first.
    Pass {
        frame: Box<Frame>,
        afresh: bool,
    },
}

/// A decoder of one camera's chains, in this process.
pub(crate) struct ChainDecoder(Worker<Job, Result<Kept, TranscodeError>>);

impl ChainDecoder {
    /// A decoder without frames that decodes in software. Its thread starts with its first frame.
    pub(crate) fn new() -> Self {
        Self::with(&Decoders::software())
    }

    /// A decoder that also uses other decoders than the library.
    pub(crate) fn with(decoders: &Decoders) -> Self {
        let decoders = decoders.clone();
        Self(Worker::new("mez decode", move || worker(Decoding::new(decoders.clone()))))
    }

    /// Runs a task. Returns the result, and the reason if it failed. A picture goes into `slot`, if there is one.
    pub(crate) fn run(&mut self, task: Task, slot: Option<Slot>) -> (Decoded, Option<Failure>) {
        let time_max = match &task {
            Task::Decode { frame, .. } => time_max(frame),
            Task::Show(..) => TIME_MAX,
        };
        self.work(Job::Do(task, slot), time_max)
    }

    /// Decodes a frame only for those that refer to it. `afresh` resets the decoder first. The frame cannot be shown afterwards.
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

/// The longest time for a frame.
fn time_max(frame: &Frame) -> Duration {
    if frame.meta.encoding.is_foreign() { FOREIGN_TIME_MAX } else { TIME_MAX }
}

/// The work function of a decoder's thread.
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
    /// A decoder without frames. Its memory is allocated with its first frame.
    pub(crate) fn new(decoders: Decoders) -> Self {
        Self { decoders, transcoder: None }
    }

    /// Does the work. `keep` copies the samples of a picture, if one is wanted.
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

    /// Decodes a frame only for those that refer to it.
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
