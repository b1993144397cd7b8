//! Checks a whole picture before it is given to a decoder: its kind, and the memory that decoding needs.

use super::error::{BitstreamError, damaged};
use super::sets::Sequence;
use super::units::{self, Kind};
use crate::h264::bits::units as units_of;
use crate::yuv::Colour;

/// Properties of a picture that matter before decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Whether it is an IDR picture.
    pub(crate) is_key: bool,
    /// Whether later pictures may need it.
    pub(crate) is_needed: bool,
    /// The meaning of the samples from this picture on, if the picture states it.
    pub(crate) colour: Option<Colour>,
}

/// Checks the units of a picture (annex B). Its parameter sets must not need more than `pixels_max` pixels.
pub(crate) fn look(payload: &[u8], pixels_max: u64) -> Result<Look, BitstreamError> {
    let mut look = None;
    let (mut has_sets, mut colour) = (false, None);
    for unit in units_of(payload) {
        let is_key = match units::kind(unit) {
            Some(Kind::Sequence) => {
                let set = Sequence::read(unit).ok_or(damaged("a sequence parameter set cannot be read"))?;
                set.check(pixels_max)?;
                (has_sets, colour) = (true, Some(set.colour));
                continue;
            }
            Some(Kind::Picture) => {
                has_sets = true;
                continue;
            }
            Some(Kind::IdrSlice) => true,
            Some(Kind::Slice) => false,
            _ => continue,
        };
        let slice = Look { is_key, is_needed: units::is_reference(unit), colour: None };
        if *look.get_or_insert(slice) != slice {
            return Err(damaged("it has slices of several pictures"));
        }
    }
    let look = look.ok_or(damaged("there is no slice in it"))?;
    Ok(Look { is_needed: look.is_needed || has_sets, colour, ..look })
}
