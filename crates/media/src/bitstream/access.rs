//! Combines NAL units into access units: one picture each, with all its units (ITU-T H.264, 7.4.1.2).

use bytes::Bytes;

use super::annex_b::UnitSplitter;
use super::assembly::{Assembly, append};
use super::avcc::{self, Configuration, Framing};
use super::error::{BitstreamError, Unfit, damaged};
use super::order::Order;
use super::sets::{ParameterSets, Sequence};
use super::slice::SliceHeader;
use super::units::{Kind, kind};

/// Maximum bytes of parameter sets that wait for the next picture.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// Limits of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessUnitLimits {
    /// Maximum bytes of a picture, with its parameter sets. Default 32 MiB, the limit of a frame in Mez.
    pub bytes_max: usize,
    /// Maximum pixels of a picture.
    pub pixels_max: u64,
}

impl Default for AccessUnitLimits {
    fn default() -> Self {
        Self { bytes_max: 32 << 20, pixels_max: crate::jpeg::PIXELS_MAX_DEFAULT }
    }
}

/// Where a decoder can begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// At this picture: it is an IDR picture, and no later picture needs an earlier one.
    Key,
    /// At this picture, according to the encoder: after some frames, pictures
    /// are complete (a recovery point, D.2.8). Not all decoders can begin there.
    Recovery {
        /// Number of frames until pictures are complete; 0: this picture is.
        frames: u32,
    },
}

/// One coded picture, with all its units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessUnit {
    /// Its NAL units (annex B), unchanged, after start codes of four bytes. If decoding can
    /// begin here, the parameter sets come first, even if the source does not repeat them.
    pub payload: Bytes,
    /// Width of the shown picture, in pixels.
    pub width: u32,
    /// Height of the shown picture, in pixels.
    pub height: u32,
    /// Whether and how a decoder can begin here.
    pub entry: Option<Entry>,
    /// Whether later pictures may need this one. If not, it can be left out without harm to others.
    pub is_needed: bool,
    /// Whether every picture that this one may need came whole, from the last key picture on. If
    /// not, this picture and those after it cannot be decoded correctly until the next key picture.
    pub is_unbroken: bool,
    /// Number of reference pictures missing before this one, judged by the frame numbers.
    pub missing: u32,
    /// Number of slices.
    pub slices: u32,
    /// Whether no slice is predicted from another picture.
    pub is_intra: bool,
    /// Whether a slice is predicted from two lists of pictures (a B slice). Pictures are nevertheless shown in the order in which they are coded.
    pub has_two_lists: bool,
    /// `frame_num`.
    pub frame_num: u32,
    /// `PicOrderCnt`. It increases from picture to picture until the next key picture.
    pub order: i64,
}

/// Properties that the stream states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamInfo {
    /// `profile_idc`, the constraint flags and `level_idc`, as in a codec's name: `avc1.42C01E`.
    pub profile: [u8; 3],
    /// Pixels in a row.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
    /// Maximum number of pictures that are decoded before another picture and shown after it. `None`: the stream does not state it.
    pub reordered_max: Option<u32>,
}

/// Parses the stream of any H.264 encoder, from packets that hold a picture each or from a byte stream.
///
/// It accepts any bytes. A defect in a picture makes the result for this picture an error;
/// the parser continues with the next picture. It holds one picture, and the parameter sets.
#[derive(Debug)]
pub struct AccessUnits {
    limits: AccessUnitLimits,
    framing: Framing,
    sets: ParameterSets,
    /// Sets that came without a picture, for the next one.
    waiting: Vec<u8>,
    /// Sets that came after the slices of the current picture, for the next one.
    late: Vec<Vec<u8>>,
    assembly: Assembly,
    order: Order,
    /// Whether all pictures that the next one may need came whole.
    is_unbroken: bool,
    /// The sequence parameter set of the newest key picture.
    active: Option<Sequence>,
}

impl Default for AccessUnits {
    fn default() -> Self {
        Self::new(AccessUnitLimits::default())
    }
}

impl AccessUnits {
    /// A parser of units after start codes. [`AccessUnits::configure`] can change this framing.
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

    /// How packets contain their units.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Properties that the stream states; `None` until a decodable picture has come.
    #[must_use]
    pub fn info(&self) -> Option<StreamInfo> {
        let active = self.active.as_ref()?;
        let &Sequence { profile, width, height, reordered: reordered_max, .. } = active;
        Some(StreamInfo { profile, width, height, reordered_max })
    }

    /// Takes a container's description of the stream: an `avcC` record, or parameter
    /// sets after start codes. It may be empty: packets then contain start codes.
    ///
    /// # Errors
    /// [`BitstreamError::Damaged`]. Packets with lengths cannot be read without the record.
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

    /// Takes a packet with one picture, from a container. `None` if it contains no picture, only units of the next one.
    ///
    /// # Errors
    /// [`BitstreamError`]: this picture is lost. The parser continues with the next packet.
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
                        // Some writers leave empty units.
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

    /// Takes the next unit of a byte stream, from its header byte on. If the unit begins a new picture, returns
    /// the picture before, which is complete only then. [`AccessUnits::finish`] returns the last picture.
    ///
    /// # Errors
    /// [`BitstreamError`]: the picture before is lost.
    pub fn unit(&mut self, unit: &[u8]) -> Result<Option<AccessUnit>, BitstreamError> {
        let before = if self.begins(unit) { self.finish() } else { Ok(None) };
        self.take(unit);
        before
    }

    /// Ends the current picture. `None` if there is none.
    ///
    /// # Errors
    /// [`BitstreamError`]: the picture is lost.
    pub fn finish(&mut self) -> Result<Option<AccessUnit>, BitstreamError> {
        let assembly = std::mem::take(&mut self.assembly);
        let picture = self.picture(assembly);
        if picture.is_err() {
            // Later pictures may need the lost one.
            self.is_unbroken = false;
        }
        for set in std::mem::take(&mut self.late) {
            // If a set cannot be read, pictures that name it are refused later.
            let _ = self.keep(&set, kind(&set) == Some(Kind::Sequence));
        }
        picture
    }

    /// Whether the current picture ends before this unit (7.4.1.2.3).
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

    /// Adds a unit to the current picture.
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

    /// Whether a set stays with the picture that it came with. A sequence parameter set of an unsupported
    /// kind that no picture of the stream uses does not: decoders would refuse the picture because of it.
    fn goes_along(&self, set: &[u8]) -> bool {
        let fits = |set: Sequence| set.check(self.limits.pixels_max).is_ok();
        kind(set) != Some(Kind::Sequence) || Sequence::read(set).is_some_and(fits)
    }

    /// Makes a picture of its units.
    fn picture(&mut self, assembly: Assembly) -> Result<Option<AccessUnit>, BitstreamError> {
        let Some(first) = assembly.whole()? else {
            // Sets and messages without a picture go with the next picture.
            if self.waiting.len() + assembly.payload().len() <= WAITING_BYTES_MAX {
                self.waiting.extend_from_slice(assembly.payload());
            }
            return Ok(None);
        };
        let (sequence, _) = self
            .sets
            .of(first.picture_set)
            .ok_or(damaged("a slice refers to parameter sets that are missing"))?;
        sequence.check(self.limits.pixels_max)?;
        let entry = match assembly.recovery() {
            _ if first.idr.is_some() => Some(Entry::Key),
            Some(frames) => Some(Entry::Recovery { frames }),
            None => None,
        };
        // A complete picture at which decoding can begin repairs a broken chain.
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
        // Parameter sets are needed too, so a picture that carries some is needed.
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
