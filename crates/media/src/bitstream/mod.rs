//! Parses the streams of encoders that know nothing of Mez, such as cameras and files: H.264, H.265 and AV1.
//!
//! What a source has coded can be kept and sent as it is, if Mez knows three things of every picture: where it ends, whether decoding may begin
//! with it, and whether other pictures need it. All three are in the headers of its NAL units. Nothing is decoded.
//!
//! What follows is about H.264; `h265` and `av1` say what is otherwise with them. Clauses, equations and tables are those of ITU-T H.264 (08/2021), unless another
//! document is named.
//!
//! | file | what it reads |
//! | --- | --- |
//! | `annex_b` | where the units of a byte stream begin and end |
//! | `avcc` | how containers hold units and parameter sets |
//! | `units` | the first byte of a unit |
//! | `bits` | syntax elements, without the bytes that prevent start codes |
//! | `sets` | parameter sets: sizes, formats, how order is coded |
//! | `slice` | slice headers |
//! | `order` | in which order pictures are shown, and whether one is missing |
//! | `supplement` | recovery points |
//! | `assembly`, `access` | which units make a picture, and what is known of it |
//! | `h265`, `av1` | the same of other codecs, packet by packet, without following references |
//! | `pictures` | one parser for all |
//! | `look` | what a decoder has to know before it is given a picture |
//!
//! **What others need.** A picture with `nal_ref_idc` 0 is needed by no other. Every other picture counts as needed by all that follow up to the next key picture:
//! a decoder that lacks a reference picture notices a gap in the frame numbers (7.4.3) and conceals or refuses what comes, whether or
//! not that picture was referred to.
//!
//! **B-frames** are coded after pictures that are shown later. They delay a live stream by a frame interval or more, and give frames an order
//! of coding that is not that of capture. Such streams are refused with the remedy ([`Unfit::Reordered`]), at the first picture that shows it.
//! B *slices* in the order of capture are taken.

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
