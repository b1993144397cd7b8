//! Decodes with the library, and where there is one with another decoder beside it.
//!
//! Another decoder ([`OutsideDecoder`]) takes a while to start, may keep pictures back, die, hang, or show something else. So it first decodes
//! along with the library, whose pictures are shown meanwhile. When it has given a picture that is the same and owes none, its own are shown and the
//! library rests. Key frames are always decoded by both and compared. If it fails, the library decodes the chain again from its key frame on, and no
//! frame is lost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::H264Error;
use super::at_once::shown_at_once;
use super::native::NativeDecoder;
use crate::yuv::{Planes, Yuv420};

/// How long another decoder may take for a picture, once it has begun. A decoder that is worth having takes a few milliseconds.
const PATIENCE: Duration = Duration::from_millis(100);
/// Pictures that it may owe before it has begun: two seconds of a camera.
const OWED_MAX: usize = 64;
/// Bytes of a chain that are kept to decode it again.
const CHAIN_BYTES_MAX: usize = 16 << 20;
/// How often a decoder of one stream is started anew because pictures have another size, or damage may have confused it.
const STARTS_MAX: u32 = 16;
/// The largest mean difference of samples between a picture and the library's. The standard has none; a picture that is another one has many.
const DIFFERENCE_MAX: f64 = 1.0;

/// Gives decoders of H.264 that are not this crate's: the platform's.
pub trait OutsideDecoders: Send + Sync + fmt::Debug {
    /// One for pictures of this width and height. `None`: none is to be had now; the library decodes alone until the next key frame.
    fn open(&self, width: u32, height: u32) -> Option<Box<dyn OutsideDecoder>>;
    /// One has failed, and the library decodes this stream from now on.
    fn failed(&self, reason: &str);
}

/// A decoder that is not this crate's. It is given the pictures of a stream in order, from a key frame on.
pub trait OutsideDecoder: Send {
    /// Gives it a picture (annex B). Does not wait for it.
    ///
    /// # Errors
    /// Why it can no longer be used.
    fn give(&mut self, picture: &[u8]) -> Result<(), String>;

    /// Puts the oldest picture that it owes into `planes`. False if it does not come in that time.
    ///
    /// # Errors
    /// Why it can no longer be used.
    fn take(&mut self, patience: Duration, planes: &mut Yuv420) -> Result<bool, String>;
}

/// A picture was not decoded.
pub(super) enum PairError {
    Codec(H264Error),
    /// The other decoder has failed, and the chain was too large to be kept.
    ChainGone,
}

impl From<H264Error> for PairError {
    fn from(error: H264Error) -> Self {
        Self::Codec(error)
    }
}

/// The library's decoder, and another one.
#[derive(Default)]
pub(super) struct Pair {
    native: Option<NativeDecoder>,
    outside: Option<Arc<dyn OutsideDecoders>>,
    second: Option<Second>,
    starts: u32,
    /// The pictures since the key frame; `None` if they are too large.
    chain: Option<Vec<Vec<u8>>>,
    chain_bytes: usize,
}

/// Another decoder at work.
struct Second {
    decoder: Box<dyn OutsideDecoder>,
    size: (u32, u32),
    /// Pictures that it was given and has not given back.
    owed: usize,
    /// What the oldest of them has to be.
    check: Option<Yuv420>,
    /// A picture was found to be the same.
    agreed: bool,
    picture: Yuv420,
}

impl Pair {
    pub(super) fn with_outside(outside: Arc<dyn OutsideDecoders>) -> Self {
        Self { outside: Some(outside), ..Self::default() }
    }

    /// Whether there may be another decoder.
    pub(super) fn has_outside(&self) -> bool {
        self.outside.is_some()
    }

    /// Forgets all pictures. The next is a key frame.
    pub(super) fn forget(&mut self) {
        self.native = None;
        (self.chain, self.chain_bytes) = (None, 0);
    }

    /// Decodes the next picture of the chain, and shows it.
    pub(super) fn decode(
        &mut self,
        picture: &[u8],
        is_key: bool,
        show: impl FnOnce(&Planes<'_>, u32, u32),
    ) -> Result<(), PairError> {
        if self.outside.is_none() {
            return Ok(self.library(picture, show)?);
        }
        self.remember(picture, is_key);
        if !is_key && self.second.as_ref().is_some_and(Second::leads) {
            return self.lead(picture, show);
        }
        let mut given = match &mut self.second {
            Some(second) => second.give(picture),
            None => Ok(()),
        };
        let mut decoded = Yuv420::empty();
        let wants_check = is_key || self.second.as_ref().is_some_and(|second| second.owed == 1);
        let mut size = (0, 0);
        let shown = self.library(picture, |planes, width, height| {
            size = (width, height);
            if wants_check {
                decoded.copy_from(planes, width, height);
            }
            show(planes, width, height);
        });
        if let Err(error) = shown {
            // Nobody knows what the other one makes of it.
            self.second = None;
            return Err(error.into());
        }
        if is_key && self.second.as_ref().is_none_or(|second| second.size != size) {
            self.second = self.start(size);
            given = self.second.as_mut().map_or(Ok(()), |second| second.give(picture));
        }
        let Some(second) = &mut self.second else { return Ok(()) };
        if wants_check && second.owed == 1 {
            second.check = Some(decoded);
        }
        match given.and_then(|()| second.catch_up()) {
            Ok(()) if second.leads() => self.native = None,
            Ok(()) => {}
            Err(reason) => self.fail(&reason),
        }
        Ok(())
    }

    /// Shows the other decoder's picture, or the library's if that fails.
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
        // The one before ends first: some platforms have few.
        self.second = None;
        if self.starts >= STARTS_MAX {
            return None;
        }
        let decoder = self.outside.as_ref()?.open(size.0, size.1)?;
        self.starts += 1;
        Some(Second { decoder, size, owed: 0, check: None, agreed: false, picture: Yuv420::empty() })
    }

    /// The library decodes alone from now on.
    fn fail(&mut self, reason: &str) {
        self.second = None;
        if let Some(outside) = self.outside.take() {
            outside.failed(reason);
        }
    }
}

impl Second {
    /// Whether its pictures are shown: it has shown that it can, and owes none.
    fn leads(&self) -> bool {
        self.agreed && self.owed == 0
    }

    fn give(&mut self, picture: &[u8]) -> Result<(), String> {
        self.owed += 1;
        self.decoder.give(picture)
    }

    /// Takes what it owes. Waits for that only if it has begun.
    fn catch_up(&mut self) -> Result<(), String> {
        while self.owed > 0 {
            let patience = if self.agreed { PATIENCE } else { Duration::ZERO };
            if !self.decoder.take(patience, &mut self.picture)? {
                return match (self.agreed, self.owed) {
                    (true, owed) => Err(format!(
                        "it did not give a picture within {} ms (owed: {owed})",
                        PATIENCE.as_millis()
                    )),
                    (false, OWED_MAX..) => Err(format!("it was given {OWED_MAX} pictures and gave none")),
                    (false, _) => Ok(()),
                };
            }
            self.owed -= 1;
            let size = (self.picture.width(), self.picture.height());
            if size != self.size {
                return Err(format!(
                    "it gave a picture of {}x{} for one of {}x{}",
                    size.0, size.1, self.size.0, self.size.1
                ));
            }
            if let Some(check) = self.check.take() {
                let difference = difference(check.data(), self.picture.data());
                if difference > DIFFERENCE_MAX {
                    return Err(format!(
                        "it gave another picture (samples differ by {difference:.1} on average)"
                    ));
                }
                self.agreed = true;
            }
        }
        Ok(())
    }
}

/// The mean difference of samples of pictures of one size.
fn difference(one: &[u8], other: &[u8]) -> f64 {
    let rows = one.chunks(1 << 16).zip(other.chunks(1 << 16));
    let sum: u64 = rows
        .map(|(one, other)| one.iter().zip(other).map(|(a, b)| u32::from(a.abs_diff(*b))).sum::<u32>())
        .map(u64::from)
        .sum();
    sum as f64 / one.len().max(1) as f64
}
