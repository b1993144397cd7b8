//! Puts NAL units together into access units: one picture each, with all that belongs to it (ITU-T H.264, 7.4.1.2).

use bytes::Bytes;

use super::annex_b::UnitSplitter;
use super::assembly::{Assembly, append};
use super::avcc::{self, Configuration, Framing};
use super::error::{BitstreamError, Unfit, damaged};
use super::order::Order;
use super::sets::{ParameterSets, Sequence};
use super::slice::SliceHeader;
use super::units::{Kind, kind};

/// Bytes of parameter sets that may wait for the next picture.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// What a stream may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessUnitLimits {
    /// Bytes of a picture, with its parameter sets. Default 32 MiB, the limit of a frame in Mez.
    pub bytes_max: usize,
    /// Pixels of a picture.
    pub pixels_max: u64,
}

impl Default for AccessUnitLimits {
    fn default() -> Self {
        Self { bytes_max: 32 << 20, pixels_max: crate::jpeg::PIXELS_MAX_DEFAULT }
    }
}

/// Where a decoder may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// At this picture: it is an IDR picture, and nothing after it needs anything before it.
    Key,
    /// At this picture, by the word of the encoder: from so many frames on, pictures are whole (a recovery point, D.2.8). Not all decoders
    /// begin there.
    Recovery {
        /// Frames until then; 0: this picture is whole.
        frames: u32,
    },
}

/// One coded picture, with all that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessUnit {
    /// Its NAL units (annex B), each as it came, behind start codes of four bytes. Where decoding may begin, the parameter sets come first, whether
    /// or not the source repeats them.
    pub payload: Bytes,
    /// Size of the shown picture, in pixels.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Where a decoder may begin; `None`: not here.
    pub entry: Option<Entry>,
    /// Later pictures may need it. If not, it may be left out without harm to any other.
    pub is_needed: bool,
    /// Every picture that it may need came whole, from the last key picture on. If not, it cannot be decoded rightly, and neither can those after it up to the
    /// next key picture.
    pub is_unbroken: bool,
    /// Pictures that others need and that did not come before this one, as far as their numbers tell.
    pub missing: u32,
    /// Slices of the picture.
    pub slices: u32,
    /// No slice of it is predicted from another picture.
    pub is_intra: bool,
    /// Some slice of it is predicted from two lists of pictures (a B slice). The order of pictures is nevertheless that of their coding.
    pub has_two_lists: bool,
    /// `frame_num`.
    pub frame_num: u32,
    /// `PicOrderCnt`: rises from picture to picture until the next key picture.
    pub order: i64,
}

/// What a stream says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamInfo {
    /// `profile_idc`, the constraint flags and `level_idc`, as a codec is named by: `avc1.42C01E`.
    pub profile: [u8; 3],
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// How many pictures may be coded between a picture and one that is shown before it. `None`: the stream does not say.
    pub reordered_max: Option<u32>,
}

/// Parses the stream of an encoder that knows nothing of Mez, from packets that hold a picture each or from a byte stream.
///
/// Any bytes are taken. What is wrong with a picture is the result of that picture; the parser goes on with the next one. It holds one picture,
/// and the parameter sets.
#[derive(Debug)]
pub struct AccessUnits {
    limits: AccessUnitLimits,
    framing: Framing,
    sets: ParameterSets,
    /// Sets that came without a picture and are to go with the next one.
    waiting: Vec<u8>,
    /// Sets that came behind the slices of the picture that is being put together: they are for the next one.
    late: Vec<Vec<u8>>,
    assembly: Assembly,
    order: Order,
    /// All pictures that the next one may need came whole.
    is_unbroken: bool,
    /// The sequence parameter set under which the newest key picture was coded.
    active: Option<Sequence>,
}

impl Default for AccessUnits {
    fn default() -> Self {
        Self::new(AccessUnitLimits::default())
    }
}

impl AccessUnits {
    /// A parser of units behind start codes, until [`AccessUnits::configure`] is told otherwise.
    #[must_use]
    pub fn new(limits: AccessUnitLimits) -> Self {
        Self {
            limits,
            framing: Framing::AnnexB,
            sets: ParameterSets::default(),
            waiting: Vec::new(),
            late: Vec::new(),
            assembly: Assembly::default(),
            order: Order::default(),
            is_unbroken: false,
            active: None,
        }
    }

    /// How packets hold their units.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// What the stream says of itself; `None` until a picture has come that can be decoded.
    #[must_use]
    pub fn info(&self) -> Option<StreamInfo> {
        let active = self.active.as_ref()?;
        let &Sequence { profile, width, height, reordered: reordered_max, .. } = active;
        Some(StreamInfo { profile, width, height, reordered_max })
    }

    /// Takes what a container says ahead of its packets: an `avcC` record, or parameter sets behind start codes. Nothing at all is right too:
    /// packets then hold start codes.
    ///
    /// # Errors
    /// [`BitstreamError::Damaged`]. Without a record, packets cannot be read.
    pub fn configure(&mut self, description: &[u8]) -> Result<(), BitstreamError> {
        let sets: Vec<Vec<u8>> = if description.first() == Some(&1) {
            let read = Configuration::read(description)?;
            self.framing = read.framing;
            read.sets.into_iter().map(<[u8]>::to_vec).collect()
        } else {
            self.framing = Framing::AnnexB;
            let mut splitter = UnitSplitter::new(description.len());
            splitter.push(description);
            splitter.finish();
            std::iter::from_fn(|| splitter.next_unit().map(<[u8]>::to_vec)).collect()
        };
        for set in &sets {
            if let Some(kind @ (Kind::Sequence | Kind::Picture)) = kind(set) {
                self.keep(set, kind == Kind::Sequence)?;
            }
        }
        Ok(())
    }

    /// Takes a packet that holds one picture, as containers give them. `None` if there is no picture in it, only what belongs to the next.
    ///
    /// # Errors
    /// [`BitstreamError`]: this picture is lost. The parser goes on with the next packet.
    pub fn packet(&mut self, packet: &[u8]) -> Result<Option<AccessUnit>, BitstreamError> {
        let mut wrong = None;
        match self.framing {
            Framing::AnnexB => {
                let mut splitter = UnitSplitter::new(self.limits.bytes_max);
                splitter.push(packet);
                splitter.finish();
                while let Some(unit) = splitter.next_unit() {
                    self.take(unit);
                }
                if splitter.units_too_large() > 0 {
                    wrong = Some(BitstreamError::TooLarge { bytes_max: self.limits.bytes_max });
                }
            }
            Framing::Lengths(length_bytes) => {
                let mut rest = packet;
                while let Some(unit) = avcc::next_unit(&mut rest, length_bytes) {
                    match unit {
                        // Some writers leave empty ones.
                        Ok([]) => {}
                        Ok(unit) => self.take(unit),
                        Err(error) => wrong = Some(error),
                    }
                }
            }
        }
        if let Some(wrong) = wrong {
            self.assembly.spoil(wrong);
        }
        self.finish()
    }

    /// Takes the next unit of a byte stream, from its header byte on. Returns the picture before if this unit begins another: only then is it known to be whole.
    /// The last one comes from [`AccessUnits::finish`].
    ///
    /// # Errors
    /// [`BitstreamError`]: the picture before is lost.
    pub fn unit(&mut self, unit: &[u8]) -> Result<Option<AccessUnit>, BitstreamError> {
        let before = if self.begins(unit) { self.finish() } else { Ok(None) };
        self.take(unit);
        before
    }

    /// Ends the picture that is being put together. `None` if there is none.
    ///
    /// # Errors
    /// [`BitstreamError`]: it is lost.
    pub fn finish(&mut self) -> Result<Option<AccessUnit>, BitstreamError> {
        let assembly = std::mem::take(&mut self.assembly);
        let picture = self.picture(assembly);
        if picture.is_err() {
            // What was lost may have been needed.
            self.is_unbroken = false;
        }
        for set in std::mem::take(&mut self.late) {
            // One that cannot be read is missed by the pictures that name it.
            let _ = self.keep(&set, kind(&set) == Some(Kind::Sequence));
        }
        picture
    }

    /// Whether the picture that is being put together ends before this unit (7.4.1.2.3).
    fn begins(&self, unit: &[u8]) -> bool {
        let Some(first) = self.assembly.first() else { return false };
        match kind(unit) {
            Some(Kind::Delimiter | Kind::Beginning | Kind::Sequence | Kind::Picture | Kind::Supplement) => {
                true
            }
            Some(kind @ (Kind::Slice | Kind::IdrSlice)) => {
                let header = SliceHeader::read(unit, kind == Kind::IdrSlice, &self.sets);
                header.is_ok_and(|header| !header.is_redundant && header.begins_after(first))
            }
            _ => false,
        }
    }

    /// Takes a unit into the picture that is being put together.
    fn take(&mut self, unit: &[u8]) {
        if let Err(error) = self.try_take(unit) {
            self.assembly.spoil(error);
        }
    }

    fn try_take(&mut self, unit: &[u8]) -> Result<(), BitstreamError> {
        let kind = kind(unit).ok_or(damaged("a unit is empty, or its first bit is set"))?;
        match kind {
            Kind::Slice | Kind::IdrSlice => {
                let header = SliceHeader::read(unit, kind == Kind::IdrSlice, &self.sets)?;
                self.assembly.slice(header)?;
            }
            Kind::Partition => return Err(Unfit::Partitioned.into()),
            Kind::Sequence | Kind::Picture if self.assembly.first().is_some() => {
                let bytes: usize = self.late.iter().map(Vec::len).sum();
                if bytes + unit.len() <= WAITING_BYTES_MAX {
                    self.late.push(unit.to_vec());
                }
                return Ok(());
            }
            Kind::Sequence | Kind::Picture => {
                self.sets.keep(unit, kind == Kind::Sequence)?;
                if !self.goes_along(unit) {
                    return Ok(());
                }
            }
            Kind::Supplement | Kind::Delimiter | Kind::Beginning | Kind::Other => {}
        }
        self.assembly.add(kind, unit, self.limits.bytes_max)
    }

    /// Keeps a set that came without a picture, for the next one.
    fn keep(&mut self, set: &[u8], is_sequence: bool) -> Result<(), BitstreamError> {
        let goes_along = self.sets.keep(set, is_sequence)? && self.goes_along(set);
        if goes_along && self.waiting.len() + set.len() <= WAITING_BYTES_MAX {
            append(&mut self.waiting, set);
        }
        Ok(())
    }

    /// Whether a set stays with the picture that it came with. A sequence of another kind that no picture of the stream uses does not: decoders
    /// would refuse the picture for it.
    fn goes_along(&self, set: &[u8]) -> bool {
        let fits = |set: Sequence| set.check(self.limits.pixels_max).is_ok();
        kind(set) != Some(Kind::Sequence) || Sequence::read(set).is_some_and(fits)
    }

    /// What was put together, as a picture.
    fn picture(&mut self, assembly: Assembly) -> Result<Option<AccessUnit>, BitstreamError> {
        let Some(first) = assembly.whole()? else {
            // Sets and messages that came by themselves go with the next picture.
            if self.waiting.len() + assembly.payload().len() <= WAITING_BYTES_MAX {
                self.waiting.extend_from_slice(assembly.payload());
            }
            return Ok(None);
        };
        let (sequence, _) = self
            .sets
            .of(first.picture_set)
            .ok_or(damaged("a slice names parameter sets that are not here"))?;
        sequence.check(self.limits.pixels_max)?;
        let entry = match assembly.recovery() {
            _ if first.idr.is_some() => Some(Entry::Key),
            Some(frames) => Some(Entry::Recovery { frames }),
            None => None,
        };
        // A whole picture at which decoding may begin mends a chain that was broken.
        let begins = match entry {
            Some(Entry::Key) => true,
            Some(Entry::Recovery { frames: 0 }) => !self.is_unbroken && assembly.is_intra(),
            _ => false,
        };
        if !begins && self.active.is_none() {
            return Err(damaged("it does not begin with a key frame"));
        }
        let place = self.order.take(first, sequence, begins);
        let goes_on = self.is_unbroken && place.missing == 0 && self.active.as_ref() == Some(sequence);
        if goes_on && !begins && place.is_reordered {
            return Err(Unfit::Reordered.into());
        }
        self.is_unbroken = begins || goes_on;
        if begins {
            self.active = Some(sequence.clone());
        }
        let (width, height) = (sequence.width, sequence.height);
        let waited = std::mem::take(&mut self.waiting);
        let before = if entry.is_some() {
            assembly.sets_lacking(self.sets.bytes_of(first.sequence_set))
        } else {
            waited
        };
        // Sets are needed too, whatever they came with.
        let is_needed = first.is_reference || assembly.has_sets() || !before.is_empty();
        let (frame_num, is_unbroken) = (first.frame_num, self.is_unbroken);
        let (slices, is_intra, has_two_lists) =
            (assembly.slices(), assembly.is_intra(), assembly.has_two_lists());
        let payload = assembly.into_payload(&before);
        if payload.len() > self.limits.bytes_max {
            return Err(BitstreamError::TooLarge { bytes_max: self.limits.bytes_max });
        }
        Ok(Some(AccessUnit {
            payload,
            width,
            height,
            entry,
            is_needed,
            is_unbroken,
            missing: place.missing,
            slices,
            is_intra,
            has_two_lists,
            frame_num,
            order: place.order,
        }))
    }
}
