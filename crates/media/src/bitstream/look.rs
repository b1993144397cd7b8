//! A look at a whole picture before it is given to a decoder: is it what it is said to be, and how much memory does it ask for?

use super::error::{BitstreamError, damaged};
use super::sets::Sequence;
use super::units::{self, Kind};
use crate::h264::bits::units as units_of;
use crate::yuv::Colour;

/// What a decoder has to know of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// It is an IDR picture.
    pub(crate) is_key: bool,
    /// Later pictures may need it.
    pub(crate) is_needed: bool,
    /// What its samples mean, and those of the pictures after it, if it says so.
    pub(crate) colour: Option<Colour>,
}

/// Looks at the units of a picture (annex B). Its parameter sets ask for no more than `pixels_max` pixels.
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
