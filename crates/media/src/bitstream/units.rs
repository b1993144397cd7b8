//! NAL units: what their first byte says (ITU-T H.264, 7.3.1 and table 7-1).

/// What a NAL unit holds, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A slice of a picture that needs others, or of an intra picture that begins nothing (type 1).
    Slice,
    /// A part of a slice (types 2 to 4).
    Partition,
    /// A slice of an IDR picture: whatever follows needs nothing before it (type 5).
    IdrSlice,
    /// Supplemental information (type 6).
    Supplement,
    /// A sequence parameter set (type 7).
    Sequence,
    /// A picture parameter set (type 8).
    Picture,
    /// It begins an access unit, and says so (type 9).
    Delimiter,
    /// It begins an access unit (15 to 18).
    Beginning,
    /// It belongs to the access unit that it lies in.
    Other,
}

/// What a unit holds. `None` for an empty one, and for one whose forbidden bit is set (7.4.1).
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
        // Not 14, which also lies between the slices of one picture of a scalable stream.
        15..=18 => Kind::Beginning,
        _ => Kind::Other,
    })
}

/// Whether other pictures are predicted from what the unit holds (`nal_ref_idc` is not 0).
pub(super) fn is_reference(unit: &[u8]) -> bool {
    unit.first().is_some_and(|header| header & 0x60 != 0)
}
