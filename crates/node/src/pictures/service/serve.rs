//! The decoding process of an edge: each decoder has a socket and a thread.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;

use bytes::Bytes;
use mez_core::frame::{ChainLink, Encoding, Reference, Sequence};
use mez_core::stills::Form;
use mez_media::stream::{Still, TranscodeError};

use super::channel::{Answer, Ask, Channel, Decode, Made, Question, Samples, Wanted, receive_with};
use crate::decoders::Decoders;
use crate::local::shared::{Layout, PictureWriter};
use crate::memory::pooled;
use crate::transcode::{self, Coded, Decoding, Work};

/// What this process sends once it is ready. The edge compares the version, because another version may have been installed since its start.
pub(super) const READY: &[u8] = concat!("mez decodes ", env!("CARGO_PKG_VERSION")).as_bytes();

/// Decodes for the edge at the other end of `control`, until the socket closes.
///
/// # Errors
/// Errors of the socket, and of starting a thread.
pub fn serve(control: OwnedFd) -> io::Result<()> {
    let mut control = UnixStream::from(control);
    control.write_all(READY)?;
    loop {
        let (received, decoder) = receive_with(&control, &mut [0])?;
        match decoder {
            Some(decoder) => {
                let decode = move || drop(decode(Channel(decoder.into())));
                thread::Builder::new().name("mez decode".into()).spawn(decode)?;
            }
            None if received == 0 => return Ok(()),
            None => {}
        }
    }
}

/// Runs one decoder until its socket closes.
fn decode(mut channel: Channel) -> io::Result<()> {
    let mut decoding = Decoding::new(Decoders::software());
    let mut memory = None;
    while let Some((Question { ask }, file)) = channel.receive()? {
        let made = match ask {
            Some(Ask::Map(map)) => {
                memory = Some(mapped(&map.layout, file)?);
                Made::Nothing(true)
            }
            Some(Ask::Decode(frame)) => {
                let wanted = frame.wanted;
                let work = work(&frame).ok_or_else(unknown)?;
                made(&mut decoding, work, wanted, memory.as_ref())
            }
            Some(Ask::Show(show)) => {
                let form = form(show.wanted).ok_or_else(unknown)?;
                let work = Work::Show(Sequence(show.sequence), form);
                made(&mut decoding, work, show.wanted, memory.as_ref())
            }
            None => return Err(unknown()),
        };
        channel.send(&Answer { made: Some(made) }, None)?;
    }
    Ok(())
}

fn unknown() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a question of another version")
}

fn mapped(layout: &[u8], file: Option<OwnedFd>) -> io::Result<PictureWriter> {
    let layout = <[u8; Layout::BYTES]>::try_from(layout).map_err(|_| unknown())?;
    PictureWriter::map(file.ok_or_else(unknown)?, Layout::decode(layout))
}

fn work(frame: &Decode) -> Option<Work<'_>> {
    let reference = u8::try_from(frame.reference).ok()?;
    let reference = Reference::from_code(reference, Sequence(frame.reference_sequence))?;
    let coded = Coded {
        encoding: Encoding::from_code(u8::try_from(frame.encoding).ok()?)?,
        sequence: Sequence(frame.sequence),
        chain: ChainLink { chain: Sequence(frame.chain), index: frame.index, reference },
        payload: &frame.payload,
    };
    Some(Work::Decode { coded, afresh: frame.afresh, wanted: form(frame.wanted) })
}

fn form(wanted: Option<Wanted>) -> Option<Form> {
    wanted.map(|wanted| if wanted.picture { Form::Picture } else { Form::Still })
}

/// Runs one task, and writes a picture into its slot if there is one.
fn made(
    decoding: &mut Decoding,
    work: Work<'_>,
    wanted: Option<Wanted>,
    memory: Option<&PictureWriter>,
) -> Made {
    let slot = wanted.and_then(|wanted| u8::try_from(wanted.slot?).ok());
    let mut in_slot = None;
    let keep = |samples: &[u8]| match slot.zip(memory) {
        Some((slot, memory)) if memory.write(slot, samples) => {
            in_slot = u32::try_from(samples.len()).ok();
            Bytes::new()
        }
        _ => pooled(samples),
    };
    match decoding.run(work, keep) {
        Ok(transcode::Made::Nothing) => Made::Nothing(true),
        Ok(transcode::Made::Still(Still { payload, width, height })) => {
            Made::Still(Samples { form: 0, width, height, in_slot: None, data: payload })
        }
        Ok(transcode::Made::Picture(picture)) => {
            let (form, (width, height), data) = picture.into_parts();
            Made::Picture(Samples { form: form.into(), width, height, in_slot, data })
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &TranscodeError) -> Made {
    match error.is_not_held() {
        true => Made::NotHeld(error.to_string()),
        false => Made::Failed(error.to_string()),
    }
}
