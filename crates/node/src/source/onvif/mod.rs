//! Asks a network camera for a key frame through ONVIF (`SetSynchronizationPoint`), beside the RTSP session that ffmpeg has with the camera.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `address` | where the camera's services are |
//! | `http` | one request and its answer, both bounded; who gets the password, and how |
//! | `soap` | what is asked, and what an answer says |
//! | `device` | which profile of the camera the source reads, and how it is asked |
//! | `asker` | when the camera is asked, and how a failure is logged |
//!
//! The camera is not trusted. Any answer, or none, is at worst an error here and costs no frame.

mod address;
mod asker;
mod device;
mod http;
mod soap;

pub use self::address::{OnvifAddressError, OnvifChoice};
pub(super) use self::asker::OnvifAsker;

#[cfg(test)]
mod tests;
