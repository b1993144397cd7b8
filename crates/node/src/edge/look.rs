//! Looks at all cameras of an edge at once: the state of each, and its newest frame.

use std::time::{Duration, SystemTime};

use mez_core::broker::edge::{CameraInfo, EdgeBroker as Broker};
use mez_core::frame::{FrameMeta, Quality};
use mez_core::log::LogReader;
use mez_core::units::Instant;

use super::certificates::MemberCertificates;

/// The state of a camera at one moment.
#[derive(Clone, Debug)]
pub(crate) struct CameraLook {
    pub(crate) info: CameraInfo,
    /// The newest frame. `None`: the edge holds no frame of the camera.
    pub(crate) newest: Option<NewestFrame>,
    /// The camera's log in memory. `None`: no frame has come yet.
    pub(crate) log: Option<LogReader>,
    /// When the certificate of the camera's host expires. `None`: no certificate was seen since the edge started, or this is a derived stream.
    pub(crate) certificate_ends: Option<SystemTime>,
}

/// The newest frame of a camera that an edge holds, without its payload.
#[derive(Clone, Debug)]
pub(crate) struct NewestFrame {
    pub(crate) meta: FrameMeta,
    /// The payload's size, in bytes.
    pub(crate) bytes: usize,
    pub(crate) quality: Quality,
    /// The frame's age. `None`: the clocks were not compared since the camera's start.
    pub(crate) age: Option<Duration>,
}

/// All cameras, by name.
pub(super) fn look(broker: &Broker, certificates: &MemberCertificates, now: Instant) -> Vec<CameraLook> {
    let of = |info: CameraInfo| {
        let log = broker.log(&info.camera).map(|(log, ..)| log);
        let newest = log.as_ref().and_then(LogReader::newest).map(|record| {
            let meta = record.frame.meta;
            let captured = broker
                .capture_clock(now, &info.camera)
                .and_then(|clock| clock.captured_at(meta.id, meta.captured));
            NewestFrame {
                bytes: record.frame.payload.len(),
                quality: record.quality,
                age: captured.map(|(at, _)| now.saturating_since(at)),
                meta,
            }
        });
        let certificate_ends = info.derived.is_none().then(|| certificates.ends(&info.identity)).flatten();
        CameraLook { info, newest, log, certificate_ends }
    };
    broker.cameras(now).into_iter().map(of).collect()
}
