//! Parses the streams of other encoders, such as those of cameras and files: H.264, H.265 and AV1.
//!
//! Mez can store and send a source's coded pictures unchanged if it knows three facts about each picture: where it ends, whether decoding
//! can begin with it, and whether other pictures need it. All three are in the headers of the picture's NAL units. Nothing is decoded.
//!
//! The following is about H.264; `h265` and `av1` state their differences. Clauses, equations
//! and tables are those of ITU-T H.264 (08/2021), unless another document is named.
//!
//! | file | what it reads |
//! | --- | --- |
//! | `annex_b` | where the units of a byte stream begin and end |
//! | `avcc` | how containers store units and parameter sets |
//! | `units` | the first byte of a unit |
//! | `bits` | syntax elements, without emulation prevention bytes |
//! | `sets` | parameter sets: sizes, formats, the coding of the order |
//! | `slice` | slice headers |
//! | `order` | the order in which pictures are shown, and missing pictures |
//! | `supplement` | recovery points |
//! | `assembly`, `access` | which units make a picture, and its properties |
//! | `h265`, `av1` | the same for other codecs, packet by packet, without following references |
//! | `pictures` | one parser for all codecs |
//! | `look` | checks of a picture before decoding |
//!
//! **Which pictures others need.** A picture with `nal_ref_idc` 0 is not needed by any other. Every other picture counts as
//! needed by all later ones up to the next key picture. The reason: if a reference picture is missing, a decoder notices a gap
//! in the frame numbers (7.4.3), and conceals or refuses the following pictures, whether or not they refer to the missing one.
//!
//! **B-frames** are coded after pictures that are shown later. They delay a live stream by at least one frame
//! interval, and frames are then not coded in the order of capture. Such streams are refused, with advice, at
//! the first reordered picture ([`Unfit::Reordered`]). B *slices* in the order of capture are accepted.

mod access;
mod annex_b;
mod assembly;
mod av1;
mod avcc;
mod bits;
mod error;
mod h265;
mod look;
mod order;
mod pictures;
mod sets;
mod slice;
mod supplement;
#[cfg(test)]
mod tests;
mod units;

pub use access::{AccessUnit, AccessUnitLimits, AccessUnits, Entry, StreamInfo};
pub use annex_b::UnitSplitter;
pub use av1::{Av1Pictures, av1_sequence_header};
pub use avcc::Framing;
pub use error::{BitstreamError, Unfit};
pub use h265::{CodedPicture, H265Pictures};
pub use pictures::StreamParser;

pub(crate) use look::look;
