//! The edge's side of a decoder in another process.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mez_core::frame::{Encoding, Frame};
use mez_core::stills::{Decoded, Form, Picture};

use super::Running;
use super::channel::{Answer, Ask, Channel, Decode, Made, Map, Question, Samples, Show, Wanted};
use crate::local::shared::PictureFile;
use crate::pictures::memory::Slot;
use crate::transcode::{Failure, Task};

/// The longest time for one frame. At 1080p, decoding takes about 10 ms.
const TIME_MAX: Duration = Duration::from_millis(250);

/// The number of the next decoder.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// A decoder of one camera's chains in the process beside the edge.
#[derive(Debug)]
pub(crate) struct DecoderBeside {
    number: u64,
    channel: Channel,
    /// Keeps the process alive while one of its decoders is in use.
    running: Arc<Running>,
    has_failed: bool,
}

impl DecoderBeside {
    pub(super) fn new(channel: Channel, running: Arc<Running>) -> io::Result<Self> {
        channel.0.set_read_timeout(Some(TIME_MAX))?;
        channel.0.set_write_timeout(Some(TIME_MAX))?;
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Ok(Self { number, channel, running, has_failed: false })
    }

    /// Its unique number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the decoder is unusable.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Makes the process map a memory and write its pictures there from now on.
    pub(crate) fn map(&mut self, file: &PictureFile) -> io::Result<()> {
        let map = Map { layout: file.layout(0).encode().to_vec() };
        match self.ask(Ask::Map(map), Some(file))? {
            Made::Nothing(true) => Ok(()),
            _ => Err(self.fails(unknown())),
        }
    }

    /// Runs a task. Returns the result, and the reason if it failed. `slot` is the place for a picture; without it, the picture is in the answer.
    pub(crate) fn run(&mut self, task: Task, slot: Option<Slot>) -> (Decoded, Option<Failure>) {
        let ask = match task {
            Task::Decode { frame, afresh, wanted } => {
                Ask::Decode(decode(*frame, afresh, wanted.map(|form| wanted_of(form, slot.as_ref()))))
            }
            Task::Show(sequence, form) => {
                Ask::Show(Show { sequence: sequence.0, wanted: Some(wanted_of(form, slot.as_ref())) })
            }
        };
        let made =
            self.ask(ask, None).and_then(|made| decoded(made, slot).map_err(|error| self.fails(error)));
        made.unwrap_or_else(|error| (Decoded::Failed, Some(error.into())))
    }

    /// Sends one question and waits for the answer.
    fn ask(&mut self, ask: Ask, file: Option<&PictureFile>) -> io::Result<Made> {
        if self.has_failed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let file = file.map(AsFd::as_fd);
        let sent = self.channel.send(&Question { ask: Some(ask) }, file);
        let answer = sent.and_then(|()| self.channel.receive::<Answer>());
        match answer {
            Ok(Some((Answer { made: Some(made) }, _))) => Ok(made),
            Ok(Some(_)) => Err(self.fails(unknown())),
            Ok(None) => {
                Err(self
                    .fails(io::Error::new(io::ErrorKind::BrokenPipe, "the process that decodes has ended")))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.running.was_late();
                let late = format!("the process that decodes took longer than {} ms", TIME_MAX.as_millis());
                Err(self.fails(io::Error::new(io::ErrorKind::TimedOut, late)))
            }
            Err(error) => Err(self.fails(error)),
        }
    }

    /// Marks the decoder as failed: the late answer to this question would be taken for the answer to the next one.
    fn fails(&mut self, error: io::Error) -> io::Error {
        self.has_failed = true;
        error
    }
}

fn unknown() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an answer of another version")
}

fn wanted_of(form: Form, slot: Option<&Slot>) -> Wanted {
    let slot = slot.map(|slot| slot.place().slot.into());
    Wanted { picture: form == Form::Picture, slot }
}

fn decode(frame: Frame, afresh: bool, wanted: Option<Wanted>) -> Decode {
    let chain = frame.meta.chain;
    let (reference, reference_sequence) = chain.reference.code();
    Decode {
        encoding: (frame.meta.encoding as u8).into(),
        sequence: frame.meta.id.sequence.0,
        chain: chain.chain.0,
        index: chain.index,
        reference: reference.into(),
        reference_sequence: reference_sequence.0,
        afresh,
        wanted,
        payload: frame.payload,
    }
}

fn decoded(made: Made, slot: Option<Slot>) -> io::Result<(Decoded, Option<Failure>)> {
    Ok(match made {
        Made::Nothing(_) => (Decoded::Passed, None),
        Made::Still(Samples { width, height, data, .. }) => {
            (Decoded::Still { payload: data, encoding: Encoding::Jpeg, width, height }, None)
        }
        Made::Picture(Samples { form, width, height, in_slot, data }) => {
            let (data, place) = match in_slot {
                Some(bytes) => {
                    let slot = slot.ok_or_else(unknown)?;
                    let place = slot.place();
                    (slot.filled(bytes as usize).ok_or_else(unknown)?, Some(place))
                }
                None => (data, None),
            };
            (Decoded::Picture(picture(form, (width, height), data, place)?), None)
        }
        Made::NotHeld(why) => (Decoded::NotHeld, Some(why.into())),
        Made::Failed(why) => (Decoded::Failed, Some(why.into())),
    })
}

/// The picture as described by the other process. An error if the number of samples does not match form and size.
fn picture(
    form: u32,
    size: (u32, u32),
    data: Bytes,
    place: Option<mez_core::stills::PicturePlace>,
) -> io::Result<Picture> {
    let form = u8::try_from(form).map_err(|_| unknown())?;
    let checked = mez_media::stream::OwnedPicture::from_parts(form, size, data).ok_or_else(unknown)?;
    let (form, size, data) = checked.into_parts();
    Ok(Picture { form, data, size, place })
}
