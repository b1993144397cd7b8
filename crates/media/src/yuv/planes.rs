//! Planes of a picture, borrowed from a decoder.

/// Planes of a decoded picture, each with the distance between its rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planes<'a> {
    pub(crate) luma: &'a [u8],
    pub(crate) luma_stride: usize,
    pub(crate) blue: &'a [u8],
    pub(crate) red: &'a [u8],
    pub(crate) chroma_stride: usize,
}
