//! Looks at all cameras of an edge at once: what is known of each, and its newest frame.

use std::time::{Duration, SystemTime};

use mez_core::broker::edge::{CameraInfo, EdgeBroker as Broker};
use mez_core::frame::{FrameMeta, Quality};
use mez_core::log::LogReader;
use mez_core::units::Instant;

use super::certificates::MemberCertificates;

/// A camera at one moment.
#[derive(Clone, Debug)]
pub(crate) struct CameraLook {
    pub(crate) info: CameraInfo,
    /// `None`: the edge holds no frame of it.
    pub(crate) newest: Option<NewestFrame>,
    /// Its frames in memory. `None`: none ever came.
    pub(crate) log: Option<LogReader>,
    /// When the certificate of its host ends. `None`: that was not seen since the edge's start, or it is a derived stream.
    pub(crate) certificate_ends: Option<SystemTime>,
}

/// The newest frame of a camera that an edge holds, without its payload.
#[derive(Clone, Debug)]
pub(crate) struct NewestFrame {
    pub(crate) meta: FrameMeta,
    /// Bytes of its payload.
    pub(crate) bytes: usize,
    pub(crate) quality: Quality,
    /// How old it is. `None`: the clocks have not been compared since the camera's start.
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
