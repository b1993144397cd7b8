//! Asks a network camera for a key frame, by ONVIF (`SetSynchronizationPoint`), beside the RTSP session that ffmpeg has with it.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `address` | where the camera's services are |
//! | `http` | one request and its answer, both bounded; who is told the password, and how |
//! | `soap` | what is asked, and what an answer says |
//! | `device` | which profile of the camera is the source, and how it is asked |
//! | `asker` | when it is asked, and who hears that it cannot be |
//!
//! The camera is foreign. Whatever it answers, or does not, is an error here and costs no frame.

mod address;
mod asker;
mod device;
mod http;
mod soap;

pub use self::address::{OnvifAddressError, OnvifChoice};
pub(super) use self::asker::OnvifAsker;

#[cfg(test)]
mod tests;
