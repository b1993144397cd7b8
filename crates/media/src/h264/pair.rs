//! Decodes with the library and, if there is one, with another decoder beside it.
//!
//! Another decoder ([`OutsideDecoder`]) takes a while to start. It may delay pictures, die, hang, or show wrong ones.
//! So at first both decode, and the library's pictures are shown. When the other decoder has given an equal picture
//! and owes none, its pictures are shown and the library rests. Key frames are always decoded by both and compared.
//! If the other decoder fails, the library decodes the chain again from its key frame, so no frame is lost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::H264Error;
use super::at_once::shown_at_once;
use super::native::NativeDecoder;
use crate::yuv::{Planes, Yuv420};

/// How long another decoder may take for a picture after its start. A useful decoder takes a few milliseconds.
const PATIENCE: Duration = Duration::from_millis(100);
/// Maximum pictures that the other decoder may owe. At this number it gets none until the next key frame: chains may be decoded before it starts.
const OWED_MAX: usize = 64;
/// The other decoder is waited for only if it owes at most this many pictures. If it owes more, the library decodes meanwhile.
const WAITED_MAX: usize = 2;
/// After this many chains in which the other decoder owes pictures and gives none, it counts as hung.
const SILENT_CHAINS_MAX: u32 = 3;
/// Maximum bytes of a chain that are kept for decoding it again.
const CHAIN_BYTES_MAX: usize = 16 << 20;
/// Maximum decoders started for one stream. A new one is needed if the picture size changes, or damage may have confused the old one.
const STARTS_MAX: u32 = 16;
/// Maximum mean difference of samples between the two decoders' pictures. By the standard they are equal; a wrong picture differs much more.
const DIFFERENCE_MAX: f64 = 1.0;

/// Opens decoders of H.264 outside this crate: those of the platform.
pub trait OutsideDecoders: Send + Sync + fmt::Debug {
    /// Opens a decoder of pictures of this width and height. `None`: none is available now; the library decodes alone until the next key frame.
    fn open(&self, width: u32, height: u32) -> Option<Box<dyn OutsideDecoder>>;
    /// Reports that a decoder has failed. The library decodes this stream from now on.
    fn failed(&self, reason: &str);
}

/// A decoder outside this crate. It gets the pictures of a stream in order, from a key frame on.
pub trait OutsideDecoder: Send {
    /// Gives it a picture (annex B), without waiting for the result.
    ///
    /// # Errors
    /// Why the decoder can no longer be used.
    fn give(&mut self, picture: &[u8]) -> Result<(), String>;

    /// Puts the oldest picture that it owes into `planes`. False if the picture does not come within `patience`.
    ///
    /// # Errors
    /// Why the decoder can no longer be used.
    fn take(&mut self, patience: Duration, planes: &mut Yuv420) -> Result<bool, String>;
}

/// Why a picture was not decoded.
pub(super) enum PairError {
    Codec(H264Error),
    /// The other decoder has failed, and the chain was too large to keep.
    ChainGone,
}

impl From<H264Error> for PairError {
    fn from(error: H264Error) -> Self {
        Self::Codec(error)
    }
}

/// The library's decoder and another one.
#[derive(Default)]
pub(super) struct Pair {
    native: Option<NativeDecoder>,
    outside: Option<Arc<dyn OutsideDecoders>>,
    second: Option<Second>,
    starts: u32,
    /// The pictures since the key frame; `None` if they have too many bytes.
    chain: Option<Vec<Vec<u8>>>,
    chain_bytes: usize,
}

/// The other decoder, running.
struct Second {
    decoder: Box<dyn OutsideDecoder>,
    size: (u32, u32),
    /// Number of pictures given to it and not taken back.
    owed: usize,
    /// The library's picture, which the oldest owed one must equal.
    check: Option<Yuv420>,
    /// Whether one of its pictures equalled the library's.
    agreed: bool,
    /// Whether it owes too many pictures, and gets none until the next key frame.
    rests: bool,
    /// Whether it has given a picture since the key frame.
    came: bool,
    /// Chains begun since its last picture, while it rested.
    silent_chains: u32,
    picture: Yuv420,
}

impl Pair {
    pub(super) fn with_outside(outside: Arc<dyn OutsideDecoders>) -> Self {
        Self { outside: Some(outside), ..Self::default() }
    }

    /// Whether there can be another decoder.
    pub(super) fn has_outside(&self) -> bool {
        self.outside.is_some()
    }

    /// Forgets all pictures, and frees the library's memory. The next picture must be a key frame.
    pub(super) fn forget(&mut self) {
        self.native = None;
        self.restart();
    }

    /// Forgets all pictures. The next picture must be a key frame, which the library accepts at any time.
    pub(super) fn restart(&mut self) {
        (self.chain, self.chain_bytes) = (None, 0);
    }

    /// Decodes the next picture of the chain, and passes it to `show`.
    pub(super) fn decode(
        &mut self,
        picture: &[u8],
        is_key: bool,
        show: impl FnOnce(&Planes<'_>, u32, u32),
    ) -> Result<(), PairError> {
        if self.outside.is_none() {
            return Ok(self.library(picture, show)?);
        }
        if is_key && let Some(Err(reason)) = self.second.as_mut().map(Second::begin) {
            self.fail(&reason);
            return Ok(self.library(picture, show)?);
        }
        self.remember(picture, is_key);
        if !is_key && self.second.as_ref().is_some_and(Second::leads) {
            return self.lead(picture, show);
        }
        let mut given = match &mut self.second {
            Some(second) if !second.rests => second.give(picture),
            _ => Ok(()),
        };
        let mut decoded = Yuv420::empty();
        let wants_check = is_key || self.second.as_ref().is_some_and(Second::is_checked);
        let mut size = (0, 0);
        let shown = self.library(picture, |planes, width, height| {
            size = (width, height);
            if wants_check {
                decoded.copy_from(planes, width, height);
            }
            show(planes, width, height);
        });
        if let Err(error) = shown {
            // The other decoder's state after this picture is unknown.
            self.second = None;
            return Err(error.into());
        }
        if is_key && self.second.as_ref().is_none_or(|second| second.size != size) {
            self.second = self.start(size);
            given = self.second.as_mut().map_or(Ok(()), |second| second.give(picture));
        }
        let Some(second) = &mut self.second else { return Ok(()) };
        if wants_check && second.is_checked() {
            second.check = Some(decoded);
        }
        match given.and_then(|()| second.catch_up()) {
            Ok(()) if second.leads() => self.native = None,
            Ok(()) => {}
            Err(reason) => self.fail(&reason),
        }
        Ok(())
    }

    /// Shows the other decoder's picture, or the library's if the other fails.
    fn lead(&mut self, picture: &[u8], show: impl FnOnce(&Planes<'_>, u32, u32)) -> Result<(), PairError> {
        let Some(second) = &mut self.second else { return Err(PairError::ChainGone) };
        match second.give(picture).and_then(|()| second.catch_up()) {
            Ok(()) => {
                let (width, height) = second.size;
                show(&second.picture.planes(), width, height);
                Ok(())
            }
            Err(reason) => {
                self.fail(&reason);
                let chain = self.chain.take().ok_or(PairError::ChainGone)?;
                let (last, before) = chain.split_last().ok_or(PairError::ChainGone)?;
                for picture in before {
                    self.library(picture, |_, _, _| ())?;
                }
                Ok(self.library(last, show)?)
            }
        }
    }

    fn library(&mut self, picture: &[u8], show: impl FnOnce(&Planes<'_>, u32, u32)) -> Result<(), H264Error> {
        let native = match &mut self.native {
            Some(native) => native,
            none => none.insert(NativeDecoder::new()?),
        };
        native.decode(&shown_at_once(picture), show)
    }

    fn remember(&mut self, picture: &[u8], is_key: bool) {
        if is_key {
            (self.chain, self.chain_bytes) = (Some(Vec::new()), 0);
        }
        self.chain_bytes = self.chain_bytes.saturating_add(picture.len());
        match &mut self.chain {
            Some(chain) if self.chain_bytes <= CHAIN_BYTES_MAX => chain.push(picture.to_vec()),
            chain => *chain = None,
        }
    }

    fn start(&mut self, size: (u32, u32)) -> Option<Second> {
        // The old decoder ends first, because some platforms allow few decoders at once.
        self.second = None;
        if self.starts >= STARTS_MAX {
            return None;
        }
        let decoder = self.outside.as_ref()?.open(size.0, size.1)?;
        self.starts += 1;
        Some(Second {
            decoder,
            size,
            owed: 0,
            check: None,
            agreed: false,
            rests: false,
            came: false,
            silent_chains: 0,
            picture: Yuv420::empty(),
        })
    }

    /// Stops the other decoder. The library decodes alone from now on.
    fn fail(&mut self, reason: &str) {
        self.second = None;
        if let Some(outside) = self.outside.take() {
            outside.failed(reason);
        }
    }
}

impl Second {
    /// Whether its pictures are shown: one was equal to the library's, and it owes none.
    fn leads(&self) -> bool {
        self.agreed && self.owed == 0 && !self.rests
    }

    /// Whether the picture given last is compared: it owes no other.
    fn is_checked(&self) -> bool {
        self.owed == 1 && !self.rests
    }

    /// Prepares for a key frame.
    fn begin(&mut self) -> Result<(), String> {
        self.catch_up()?;
        self.silent_chains =
            if self.rests && self.owed > 0 && !self.came { self.silent_chains + 1 } else { 0 };
        if self.silent_chains >= SILENT_CHAINS_MAX {
            return Err(format!("it returned no picture for {} frames", self.owed));
        }
        self.rests &= self.owed > 0;
        self.came = false;
        Ok(())
    }

    fn give(&mut self, picture: &[u8]) -> Result<(), String> {
        self.owed += 1;
        self.decoder.give(picture)
    }

    /// Takes owed pictures. Waits for them only if a picture was equal before and few are owed.
    fn catch_up(&mut self) -> Result<(), String> {
        while self.owed > 0 {
            let waits = self.agreed && !self.rests && self.owed <= WAITED_MAX;
            let patience = if waits { PATIENCE } else { Duration::ZERO };
            if !self.decoder.take(patience, &mut self.picture)? {
                if waits {
                    let (owed, patience) = (self.owed, PATIENCE.as_millis());
                    return Err(format!("it did not give a picture within {patience} ms (owed: {owed})"));
                }
                self.rests |= self.owed >= OWED_MAX;
                return Ok(());
            }
            self.came = true;
            self.owed -= 1;
            let size = (self.picture.width(), self.picture.height());
            if size != self.size {
                return Err(format!(
                    "it gave a picture of {}x{} instead of {}x{}",
                    size.0, size.1, self.size.0, self.size.1
                ));
            }
            if let Some(check) = self.check.take() {
                let difference = difference(check.data(), self.picture.data());
                if difference > DIFFERENCE_MAX {
                    return Err(format!(
                        "it gave another picture than the library (samples differ by {difference:.1} on average)"
                    ));
                }
                self.agreed = true;
            }
        }
        Ok(())
    }
}

/// The mean absolute difference of the samples of two pictures of the same size.
fn difference(one: &[u8], other: &[u8]) -> f64 {
    let rows = one.chunks(1 << 16).zip(other.chunks(1 << 16));
    let sum: u64 = rows
        .map(|(one, other)| one.iter().zip(other).map(|(a, b)| u32::from(a.abs_diff(*b))).sum::<u32>())
        .map(u64::from)
        .sum();
    sum as f64 / one.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::super::native::NativeEncoder;
    use super::*;
    use crate::image::{ImageView, PixelFormat};

    const SIDE: u32 = 64;

    /// Other decoders of a test. They give a picture after they got some more.
    #[derive(Debug, Default)]
    struct Others {
        /// Pictures that they need before they give the first one.
        asleep: usize,
        keeps_back: usize,
        failures: Mutex<Vec<String>>,
        /// Number of pictures that they gave.
        given: Mutex<usize>,
    }

    struct Other {
        of: Arc<Others>,
        native: NativeDecoder,
        pictures: VecDeque<Yuv420>,
        asleep: usize,
    }

    /// The others, as [`OutsideDecoders`].
    #[derive(Debug)]
    struct Door(Arc<Others>);

    impl OutsideDecoders for Door {
        fn open(&self, _: u32, _: u32) -> Option<Box<dyn OutsideDecoder>> {
            let (of, native) = (Arc::clone(&self.0), NativeDecoder::new().unwrap());
            let asleep = of.asleep;
            Some(Box::new(Other { of, native, pictures: VecDeque::new(), asleep }))
        }

        fn failed(&self, reason: &str) {
            self.0.failures.lock().unwrap().push(reason.into());
        }
    }

    impl OutsideDecoder for Other {
        fn give(&mut self, picture: &[u8]) -> Result<(), String> {
            let mut shown = Yuv420::empty();
            let decoded =
                self.native.decode(picture, |planes, width, height| shown.copy_from(planes, width, height));
            decoded.map_err(|error| error.to_string())?;
            self.pictures.push_back(shown);
            self.asleep = self.asleep.saturating_sub(1);
            Ok(())
        }

        fn take(&mut self, patience: Duration, planes: &mut Yuv420) -> Result<bool, String> {
            // The other decoder also wakes with time, not only with pictures.
            self.asleep = self.asleep.saturating_sub(usize::from(patience.is_zero()));
            if self.asleep > 0 || self.pictures.len() <= self.of.keeps_back {
                return Ok(false);
            }
            *self.of.given.lock().unwrap() += 1;
            *planes = self.pictures.pop_front().unwrap();
            Ok(true)
        }
    }

    /// Decodes `chains` chains of `length` frames with the others, and checks that every picture equals
    /// that of the library alone. Returns how many pictures the others gave, and why they failed.
    fn decode(others: Others, chains: u32, length: u32) -> (usize, Vec<String>) {
        let others = Arc::new(others);
        let mut encoder = NativeEncoder::new(SIDE, SIDE, 30).unwrap();
        let (mut pair, mut alone) =
            (Pair::with_outside(Arc::new(Door(Arc::clone(&others)))), Pair::default());
        let mut coded = Vec::new();
        for number in 0..chains * length {
            let pixels: Vec<u8> = (0..SIDE * SIDE).map(|at| ((at + 5 * number) % 61 * 4) as u8).collect();
            let mut planes = Yuv420::empty();
            planes.fill_from(&ImageView::packed(&pixels, SIDE, SIDE, PixelFormat::Gray8).unwrap());
            let is_key = number % length == 0;
            if is_key {
                encoder.force_independent().unwrap();
            }
            encoder.encode(&planes.view().unwrap(), &mut coded).unwrap();
            let show = |pair: &mut Pair| {
                let mut shown = Yuv420::empty();
                let decoded = pair
                    .decode(&coded, is_key, |planes, width, height| shown.copy_from(planes, width, height));
                assert!(decoded.is_ok(), "frame {number}");
                shown
            };
            assert!(show(&mut alone) == show(&mut pair), "frame {number}");
        }
        let given = *others.given.lock().unwrap();
        (given, others.failures.lock().unwrap().clone())
    }

    #[test]
    fn another_decoder_leads_when_it_owes_nothing() {
        assert_eq!(decode(Others::default(), 2, 10), (20, vec![]));
        assert_eq!(decode(Others { asleep: 9, ..Others::default() }, 2, 10), (20, vec![]));
    }

    /// A chain may be decoded in less time than another decoder takes to start.
    #[test]
    fn one_that_begins_late_rests_until_the_next_key_frame_and_has_not_failed() {
        let (given, failures) = decode(Others { asleep: 150, ..Others::default() }, 3, 100);
        assert!(failures.is_empty(), "{failures:?}");
        assert!((264..300).contains(&given), "{given}");
    }

    #[test]
    fn one_that_gives_nothing_and_one_that_keeps_pictures_back_are_given_up() {
        let (given, failures) = decode(Others { asleep: usize::MAX, ..Others::default() }, 6, 100);
        assert_eq!((given, failures.len()), (0, 1), "{failures:?}");
        let (given, failures) = decode(Others { keeps_back: 1, ..Others::default() }, 2, 20);
        assert_eq!((given, failures.len()), (1, 1), "{failures:?}");
    }
}
