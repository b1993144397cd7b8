//! NAL units: the meaning of their first byte (ITU-T H.264, 7.3.1 and table 7-1).

/// What a NAL unit contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A slice of a picture that is not an IDR picture (type 1).
    Slice,
    /// A data partition of a slice (types 2 to 4).
    Partition,
    /// A slice of an IDR picture: no later picture needs an earlier one (type 5).
    IdrSlice,
    /// Supplemental enhancement information (type 6).
    Supplement,
    /// A sequence parameter set (type 7).
    Sequence,
    /// A picture parameter set (type 8).
    Picture,
    /// An access unit delimiter (type 9).
    Delimiter,
    /// A unit of another type that begins an access unit (15 to 18).
    Beginning,
    /// A unit inside an access unit.
    Other,
}

/// What a unit contains. `None` if it is empty, or its forbidden bit is set (7.4.1).
pub(super) fn kind(unit: &[u8]) -> Option<Kind> {
    let header = unit.first().filter(|header| **header & 0x80 == 0)?;
    Some(match header & 0x1F {
        1 => Kind::Slice,
        2..=4 => Kind::Partition,
        5 => Kind::IdrSlice,
        6 => Kind::Supplement,
        7 => Kind::Sequence,
        8 => Kind::Picture,
        9 => Kind::Delimiter,
        // Type 14 is not one of these: it also occurs between the slices of one picture of a scalable stream.
        15..=18 => Kind::Beginning,
        _ => Kind::Other,
    })
}

/// Whether other pictures are predicted from the unit (`nal_ref_idc` is not 0).
pub(super) fn is_reference(unit: &[u8]) -> bool {
    unit.first().is_some_and(|header| header & 0x60 != 0)
}
