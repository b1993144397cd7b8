//! Makes stills of frames of chains, on threads under a deadline ([`mez_media::worker`]).

use std::time::Duration;

use mez_core::frame::{Encoding, Frame, Sequence};
use mez_core::stills::{Decoded, Form, Picture};
use mez_media::jpeg::PIXELS_MAX_DEFAULT;
use mez_media::stream::{OwnedPicture, Still, TranscodeError, Transcoder};
use mez_media::worker::Worker;

use crate::decoders::Decoders;
use crate::memory::pooled;

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
enum Made {
    Nothing,
    Still(Still),
    Picture(OwnedPicture),
}

/// Why a frame was not decoded, for people.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// A decoder of one camera's chains.
pub(crate) struct ChainDecoder(Worker<Task, Result<Made, TranscodeError>>);

impl ChainDecoder {
    /// One that holds nothing, and decodes in software. Its thread starts with its first frame.
    pub(crate) fn new() -> Self {
        Self::with(&Decoders::software())
    }

    /// The same with other decoders beside the library.
    pub(crate) fn with(decoders: &Decoders) -> Self {
        let decoders = decoders.clone();
        Self(Worker::new("mez decode", move || transcoder(decoders.clone())))
    }

    /// What comes of a task, and why it failed.
    pub(crate) fn run(&mut self, task: Task) -> (Decoded, Option<Failure>) {
        let time_max = match &task {
            Task::Decode { frame, .. } if frame.meta.encoding.is_foreign() => FOREIGN_TIME_MAX,
            _ => TIME_MAX,
        };
        match self.0.run(task, time_max) {
            Ok(Ok(Made::Still(Still { payload, width, height }))) => {
                (Decoded::Still { payload, encoding: Encoding::Jpeg, width, height }, None)
            }
            Ok(Ok(Made::Picture(picture))) => {
                let (form, size, data) = picture.into_parts();
                (Decoded::Picture(Picture { form, data, size }), None)
            }
            Ok(Ok(Made::Nothing)) => (Decoded::Passed, None),
            Ok(Err(error)) if error.is_not_held() => (Decoded::NotHeld, Some(error.into())),
            Ok(Err(error)) => (Decoded::Failed, Some(error.into())),
            Err(error) => (Decoded::Failed, Some(error.into())),
        }
    }
}

/// The state and the work of a decoder's thread.
fn transcoder(decoders: Decoders) -> impl FnMut(Task) -> Result<Made, TranscodeError> {
    let mut state: Option<Transcoder> = None;
    move |task| {
        let transcoder = match &mut state {
            Some(transcoder) => transcoder,
            None => {
                let transcoder = Transcoder::new(PIXELS_MAX_DEFAULT)?.with_platform(decoders.platform());
                state.insert(match decoders.outside() {
                    Some(outside) => transcoder.with_outside(outside),
                    None => transcoder,
                })
            }
        };
        match task {
            Task::Decode { frame, afresh, wanted } => {
                if afresh {
                    transcoder.forget();
                }
                let sequence = frame.meta.id.sequence;
                let place = (sequence, &frame.meta.chain);
                let is_still = wanted == Some(Form::Still);
                let still = transcoder.transcode(frame.meta.encoding, place, &frame.payload, is_still)?;
                match (still, wanted) {
                    (Some(still), _) => Ok(Made::Still(still)),
                    (None, Some(Form::Picture)) => picture(transcoder, sequence),
                    (None, _) => Ok(Made::Nothing),
                }
            }
            Task::Show(sequence, Form::Still) => transcoder.show(sequence).map(Made::Still),
            Task::Show(sequence, Form::Picture) => picture(transcoder, sequence),
        }
    }
}

fn picture(transcoder: &Transcoder, sequence: Sequence) -> Result<Made, TranscodeError> {
    Ok(Made::Picture(transcoder.picture(sequence)?.keep(pooled)))
}
