//! The options of a subscription, and their conversion into a request.

use mez_core::contract::Contract;
use mez_core::frame::{Encoding, Rung};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::subscription::{Deliver, LastFrame};
use mez_core::units::Timestamp;

use super::group::Membership;
use crate::api::contract::Profile;
use crate::api::{ApiError, contract, convert, pb};
use crate::client::error::ClientError;
use crate::decoders::Decoders;

/// The encodings that this library decodes itself. H.265 and AV1 may be accepted in addition, if ffmpeg decodes them on this host.
pub const DECODED_HERE: [Encoding; 7] = [
    Encoding::Jpeg,
    Encoding::Png,
    Encoding::Bgr8,
    Encoding::Gray8,
    Encoding::H264,
    Encoding::Tiles,
    Encoding::Data,
];

/// The options of a subscription.
#[derive(Clone, Debug)]
pub struct SubscribeOptions {
    /// The cameras.
    pub pattern: CameraPattern,
    /// The first wanted capture time. Default: frames that are published from now on.
    pub begin: Option<Timestamp>,
    /// The last wanted capture time. Default: no end.
    pub end: Option<Timestamp>,
    /// The contract. Default: no bounds. Frames then come as soon as possible, at the rung of the other contracts on
    /// their camera, or unmodified if there are none. `profile` gives the profile. The hash in the contract is ignored.
    pub contract: Contract,
    /// The profile of the program's detector. Default: none.
    pub profile: Option<Profile>,
    /// Whether the newest frame or every frame is delivered. Default: every frame if `begin` is in the past, otherwise the newest.
    pub deliver: Option<Deliver>,
    /// The encodings that are accepted. Default: those that are decoded in this process ([`DECODED_HERE`]). H.265 and AV1 are decoded
    /// by an ffmpeg process. They are refused if this host has no decoder for them. If H.264, tiles or one of these are listed beside
    /// a still, whole chains come as they crossed the link, and are decoded here: such a frame has its picture beside its payload
    /// ([`ReceivedFrame::picture`](super::super::ReceivedFrame::picture)). Empty: every still. The edge then makes stills of chains.
    pub accept_encodings: Vec<Encoding>,
    /// For frames of the past: the wanted rung. Its frames must need no others. Default: as the edge holds them, or
    /// as originals if it must ask the camera. For live frames: `original`, or none. Originals use the part of the
    /// link that the contracts on the camera leave. Without this option, frames come at the rung of the contracts.
    pub quality: Option<Rung>,
    /// Deliver only frames of the past that the edge holds, without asking cameras. Default false.
    pub held_only: bool,
    /// The frames are written into files. This needs the right `export` in addition, and the edge's audit log records an export. Default false.
    pub for_export: bool,
    /// What to do about frames that the program missed, also after a broker was killed. Default: count them.
    pub resume: Resume,
    /// The last frame of each camera that the program got from an earlier subscription. The count continues after it. Default: none.
    pub after: Vec<(CameraName, LastFrame)>,
    /// Whether to reconnect when the broker is lost, every 250 ms without end. Default true. If false, the loss is the last event.
    pub reconnect: bool,
    /// With [`Deliver::Every`]: the most frames that may wait in this program before the broker must wait. Default 8.
    pub waiting_frames_max: usize,
    /// Join a group, whose members share the records. Default: none.
    pub group: Option<Membership>,
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
            accept_encodings: DECODED_HERE.to_vec(),
            quality: None,
            held_only: false,
            for_export: false,
            resume: Resume::default(),
            after: Vec::new(),
            reconnect: true,
            waiting_frames_max: 8,
            group: None,
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
            for_export: self.for_export,
            resume: match self.resume {
                Resume::Newest => pb::Resume::Newest,
                Resume::Fill => pb::Resume::Fill,
            } as i32,
            after: self.after.iter().map(convert::last_frame).collect(),
            // The member adds its group request each time it joins.
            group: None,
        }
    }
}

/// Refuses encodings that this host cannot decode.
pub(crate) async fn check_decoders(accept: &[Encoding]) -> Result<(), ClientError> {
    for encoding in accept.iter().copied().filter(|encoding| encoding.is_foreign()) {
        let tried = tokio::task::spawn_blocking(move || Decoders::software().try_video(encoding)).await;
        if let Err(reason) = tried.map_err(|error| error.to_string()).flatten() {
            let name = encoding.name();
            let message = format!(
                "no decoder for {name} works on this host ({reason}); install ffmpeg, or do not accept {name}: the edge then sends stills"
            );
            return Err(ApiError::invalid("accept_encodings", "NO_DECODER", message).into());
        }
    }
    Ok(())
}

/// What to do about frames that a program missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// Count them, or report a time span with missing frames.
    #[default]
    Newest,
    /// Fetch them. Every frame that its camera still has then comes, in order and exactly once, even if brokers were killed in between.
    Fill,
}
