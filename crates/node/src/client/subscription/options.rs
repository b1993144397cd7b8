//! What a program asks of a subscription, and how that is sent.

use mez_core::contract::Contract;
use mez_core::frame::{Encoding, Rung};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::subscription::{Deliver, LastFrame};
use mez_core::units::Timestamp;

use crate::api::contract::Profile;
use crate::api::{contract, convert, pb};

/// What to subscribe to, and how.
#[derive(Clone, Debug)]
pub struct SubscribeOptions {
    /// Which cameras.
    pub pattern: CameraPattern,
    /// The first capture time wanted. Default: what is published from now on.
    pub begin: Option<Timestamp>,
    /// The last capture time wanted. Default: no end.
    pub end: Option<Timestamp>,
    /// What is demanded of the frames. Default: nothing, so that they come unmodified, as soon as possible. The hash in it is not looked at:
    /// `profile` says which.
    pub contract: Contract,
    /// What each way to make frames cheaper costs and keeps. Default: none.
    pub profile: Option<Profile>,
    /// Newest or every. Default: every where `begin` lies in the past, else newest.
    pub deliver: Option<Deliver>,
    /// The encodings that may come. Default: all stills. Where H264 or tiles are named, together with a still, whole chains come and are
    /// decoded here: their frames have pixels ([`Encoding::Bgr8`]), and a rung that says what the camera did.
    pub accept_encodings: Vec<Encoding>,
    /// Of the past: the rung at which frames are wanted, one for which a frame needs no other. Default: as the edge holds them, and as they
    /// were published where it has to ask the camera.
    pub quality: Option<Rung>,
    /// Of the past: only frames that the edge holds; no camera is asked. Default false.
    pub held_only: bool,
    /// What becomes of frames that the program did not get when they were new, also because a broker was killed. Default: they are counted.
    pub resume: Resume,
    /// The last frames that the program has from an earlier subscription, behind which the account of their cameras goes on; of each camera
    /// at most one. Default: none.
    pub after: Vec<(CameraName, LastFrame)>,
    /// Whether to dial again, every 250 ms and without end, when the broker is lost. Default true. Otherwise the loss is
    /// the last event.
    pub reconnect: bool,
    /// With every frame: how many may wait in this program before the broker has to wait. Default 8.
    pub waiting_frames_max: usize,
}

impl SubscribeOptions {
    /// The defaults, for the cameras that match `pattern`.
    pub fn new(pattern: CameraPattern) -> Self {
        Self {
            pattern,
            begin: None,
            end: None,
            contract: Contract::default(),
            profile: None,
            deliver: None,
            accept_encodings: Vec::new(),
            quality: None,
            held_only: false,
            resume: Resume::default(),
            after: Vec::new(),
            reconnect: true,
            waiting_frames_max: 8,
        }
    }

    pub(super) fn message(&self, application: &str) -> pb::SubscribeRequest {
        pb::SubscribeRequest {
            pattern: self.pattern.as_str().into(),
            begin_utc_ns: self.begin.map(Timestamp::as_nanos),
            end_utc_ns: self.end.map(Timestamp::as_nanos),
            contract: Some(contract::message(&self.contract, self.profile.as_ref())),
            deliver: self.deliver.map_or(pb::Deliver::Unspecified, |deliver| match deliver {
                Deliver::Newest => pb::Deliver::Newest,
                Deliver::Every => pb::Deliver::Every,
            }) as i32,
            accept_encodings: self.accept_encodings.iter().map(|encoding| *encoding as i32).collect(),
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

/// What becomes of frames that a program did not get when they were new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// They are told, by number or by time.
    #[default]
    Newest,
    /// They are fetched, and come before the frames behind them: every frame that its camera still has, in order, exactly once, also when
    /// brokers were killed in between.
    Fill,
}
