//! Selects where the frames of a subscription come from: an edge's replica logs, or the log of the camera in
//! this process.

use std::sync::Arc;
use std::time::Duration;

use mez_core::broker::edge::CameraView;
use mez_core::frame::ClockSource;
use mez_core::log::{LogReader, Record};
use mez_core::name::CameraName;
use mez_core::session::{FrameTimes, KnownCameras, Session};
use mez_core::stills::{StillAnswer, StillQuery};
use mez_core::subscription::SubscriptionSpec;
use mez_core::units::Instant;
use tokio::sync::{oneshot, watch};

use super::subscriptions::ControlRequests;
use crate::clock::{anchor, monotonic_now};
use crate::edge::{EdgeSubscription, Served, Stopped};
use crate::reading::{AsksStills, PastSources, Reading};

/// The source of a feed's frames.
pub(super) enum Source {
    /// The replica logs of an edge broker.
    Edge(Box<EdgeSubscription>),
    /// The log of the camera broker in this process.
    Camera(Box<CameraLog>),
}

impl Source {
    /// Takes in requests to the subscription from outside its stream. A camera's own log knows no contracts
    /// and no chains.
    pub(super) async fn handle_control(&mut self, requests: ControlRequests) -> Result<(), Stopped> {
        let Self::Edge(subscription) = self else { return Ok(()) };
        let ControlRequests { update, accuracies, taken, undecodable, brings_profile: _ } = requests;
        subscription.handle_accuracies(accuracies);
        subscription.handle_taken(taken);
        undecodable.into_iter().for_each(|camera| subscription.restart_chain(camera));
        match update {
            Some((contract, profile)) => subscription.update(contract, profile).await,
            None => Ok(()),
        }
    }

    /// What comes next. Cancelling this loses nothing.
    pub(super) async fn next(&mut self) -> Served {
        match self {
            Self::Edge(subscription) => subscription.next().await,
            Self::Camera(log) => log.next().await,
        }
    }
}

/// A subscription to the log of a camera in this process.
pub(super) struct CameraLog {
    reading: Reading,
    appended: watch::Receiver<u64>,
    /// That there is no camera is still to be told.
    waiting: bool,
}

impl CameraLog {
    /// Reads `log`, if there is one: if the camera of this process is one that was asked for.
    pub(super) fn new(
        spec: &SubscriptionSpec,
        log: Option<(CameraName, LogReader)>,
        places: Option<Arc<PastSources>>,
        appended: watch::Receiver<u64>,
    ) -> Self {
        let mut reading = Reading::new(spec.clone(), places, |spec| Session::new(anchor(), spec));
        let waiting = log.is_none();
        if let Some((camera, log)) = log {
            let present = log.held().end;
            reading.session().handle_attach(monotonic_now(), camera, log, present);
        }
        Self { reading, appended, waiting }
    }

    async fn next(&mut self) -> Served {
        loop {
            if std::mem::take(&mut self.waiting) {
                return Served::Waiting { matching: 0 };
            }
            let looked = monotonic_now();
            if let Some(output) = self.reading.poll(looked, &OwnClock) {
                return output.into();
            }
            let changed = tokio::select! {
                changed = self.appended.changed() => changed,
                () = self.reading.stirs(looked) => Ok(()),
            };
            if changed.is_err() {
                return Served::Stopped;
            }
        }
    }
}

/// A camera's own clock. A frame that this start stamped itself was captured when it was appended. For any
/// other frame, the two times cannot be compared.
struct OwnClock;

impl AsksStills for OwnClock {
    /// A camera's own log is read as it is.
    fn still(&self, _: &CameraName, _: StillQuery) -> Option<oneshot::Receiver<StillAnswer>> {
        None
    }
}

impl KnownCameras for OwnClock {
    fn times(&self, _: &CameraName, record: &Record) -> FrameTimes {
        let stamped_here =
            record.frame.meta.clock_source == ClockSource::Broker && record.arrived > Instant::ZERO;
        FrameTimes { captured: stamped_here.then_some((record.arrived, Duration::ZERO)), trace: None }
    }

    fn view(&self, _: &CameraName) -> Arc<CameraView> {
        Arc::default()
    }
}
