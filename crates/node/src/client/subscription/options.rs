//! Options of a subscription, and the request that they become.

use std::time::Duration;

use bytes::Bytes;
use mez_core::contract::{Contract, OnInfeasible};
use mez_core::frame::{Encoding, Rung};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::subscription::{Deliver, LastFrame};
use mez_core::units::Timestamp;

use crate::api::{convert, pb};

/// What to subscribe to, and how.
#[derive(Clone, Debug)]
pub struct SubscribeOptions {
    /// Which cameras.
    pub pattern: CameraPattern,
    /// The first capture time that is wanted. Default: frames that are published from now on.
    pub begin: Option<Timestamp>,
    /// The last capture time that is wanted. Default: no end.
    pub end: Option<Timestamp>,
    /// The latency bound: the most time from capture until the edge hands the frame on. Default: none, frames come as soon as possible.
    pub latency_bound: Option<Duration>,
    /// The accuracy floor, from 0 to 1. Default: none, frames are not modified.
    pub accuracy_floor: Option<f64>,
    /// The share of frames that must be on time. Default 0.98.
    pub on_time_share: f64,
    /// The profile of the program's detector. Default: none.
    pub profile: Option<Profile>,
    /// The lowest useful frame rate, in frames per second. Default 0: any.
    pub min_fps: f64,
    /// What to do while no rung keeps both bounds. Default: degrade.
    pub on_infeasible: OnInfeasible,
    /// Newest or every. Default: every where `begin` lies in the past, else newest.
    pub deliver: Option<Deliver>,
    /// The encodings that may come. Default: all stills. If H.264 or tiles are listed beside a still, whole chains come and are decoded
    /// here. Their frames have pixels ([`Encoding::Bgr8`]), and a rung that says what the camera did.
    pub accept_encodings: Vec<Encoding>,
    /// The priority of the contract. Higher ones are kept first if not all can be. Default 0.
    pub priority: i32,
    /// The rung of frames of the past. Its frames must need no others. Default: as the edge holds them, or as they were published if it has
    /// to ask the camera.
    pub quality: Option<Rung>,
    /// Deliver only those frames of the past that the edge holds, without asking cameras. Default false.
    pub held_only: bool,
    /// What to do about frames that the program missed, also because a broker was killed. Default: count them.
    pub resume: Resume,
    /// The last frame of each camera that the program has from an earlier subscription. Counting continues behind it. Default: none.
    pub after: Vec<(CameraName, LastFrame)>,
    /// Whether to dial again when the broker is lost, every 250 ms and without end. Default true. If false, the loss is the last event.
    pub reconnect: bool,
    /// With [`Deliver::Every`]: how many frames may wait in this program before the broker has to wait. Default 8.
    pub waiting_frames_max: usize,
}

impl SubscribeOptions {
    /// The defaults, for the cameras that match `pattern`.
    pub fn new(pattern: CameraPattern) -> Self {
        let Contract { on_time_share, min_fps, on_infeasible, priority, .. } = Contract::default();
        Self {
            pattern,
            begin: None,
            end: None,
            latency_bound: None,
            accuracy_floor: None,
            on_time_share,
            profile: None,
            min_fps,
            on_infeasible,
            deliver: None,
            accept_encodings: Vec::new(),
            priority,
            quality: None,
            held_only: false,
            resume: Resume::default(),
            after: Vec::new(),
            reconnect: true,
            waiting_frames_max: 8,
        }
    }

    pub(super) fn message(&self, application: &str) -> pb::SubscribeRequest {
        use pb::subscribe_request::Profile as Message;
        pb::SubscribeRequest {
            pattern: self.pattern.as_str().into(),
            begin_utc_ns: self.begin.map(Timestamp::as_nanos),
            end_utc_ns: self.end.map(Timestamp::as_nanos),
            latency_bound_ns: self.latency_bound.map(convert::nanos),
            accuracy_floor: self.accuracy_floor,
            on_time_share: Some(self.on_time_share),
            profile: self.profile.clone().map(|profile| match profile {
                Profile::Inline(content) => Message::ProfileInline(content),
                Profile::Name(name) => Message::ProfileName(name),
            }),
            min_fps: self.min_fps,
            on_infeasible: self.on_infeasible as i32,
            deliver: self.deliver.map_or(pb::Deliver::Unspecified, |deliver| match deliver {
                Deliver::Newest => pb::Deliver::Newest,
                Deliver::Every => pb::Deliver::Every,
            }) as i32,
            accept_encodings: self.accept_encodings.iter().map(|encoding| *encoding as i32).collect(),
            priority: self.priority,
            application: application.into(),
            quality: self.quality.as_ref().map(|rung| rung.as_str().into()).unwrap_or_default(),
            held_only: self.held_only,
            resume: match self.resume {
                Resume::Newest => pb::Resume::Newest,
                Resume::Fill => pb::Resume::Fill,
            } as i32,
            after: self.after.iter().map(convert::last_frame).collect(),
        }
    }
}

/// What to do about frames that a program missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// Count them, or report a stretch of time that is not held.
    #[default]
    Newest,
    /// Fetch them. Then every frame that its camera still has comes, in order and exactly once, also if brokers were killed in between.
    Fill,
}

/// A profile for a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Its content.
    Inline(Bytes),
    /// Its name in the edge's profile folder.
    Name(String),
}
