//! Defines the events of a subscription.

use mez_core::contract::ContractState;
use mez_core::frame::SkipCounts;
use mez_core::group::session::PlaceTold;
use mez_core::name::CameraName;
use mez_core::source::SourceStanding;
use mez_core::subscription::NotHeld;

use crate::client::error::ClientError;
use crate::client::frame::ReceivedFrame;

/// What happens on a subscription.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A frame.
    Frame(Box<ReceivedFrame>),
    /// A camera that matches came or went.
    Camera {
        /// The camera.
        camera: CameraName,
        /// Whether it is connected.
        up: bool,
        /// Why it went, for people.
        reason: Option<String>,
    },
    /// The state of a camera's source has changed, or its reason. If the source gives no frames, this is also told
    /// when the subscription begins and when the camera connects. That of a camera that connects is live until
    /// something else is told.
    Source {
        /// The camera.
        camera: CameraName,
        /// How its source is, by this machine's monotonic clock.
        source: SourceStanding,
    },
    /// The state of the contract changed on a camera. It is also reported while no frames come.
    Contract {
        /// The camera.
        camera: CameraName,
        /// The state.
        state: ContractState,
        /// A sentence that says why.
        reason: String,
    },
    /// No matching camera is connected. Frames come as soon as one is.
    Waiting {
        /// How many cameras match that the edge knows.
        matching: usize,
    },
    /// The program is a member of its group: at the start, and when the broker is back.
    Joined {
        /// What has become of the group's place since the program was in it last.
        place: PlaceTold,
        /// Whether the place outlives a restart of the edge.
        survives: bool,
    },
    /// The group gives nothing new because so many records are not settled; or, with `None`, it goes on.
    Held {
        /// How many.
        open: Option<usize>,
    },
    /// The broker was lost, and is being dialled; or what the program may have has changed
    /// ([`ClientError::is_change_of_rights`]), and it subscribes again. A camera that it had frames of and may have no more
    /// is then told as gone.
    Disconnected {
        /// Why.
        reason: ClientError,
    },
    /// The broker is back. Frames missed meanwhile come, with [`Resume::Fill`](super::Resume::Fill), or are
    /// counted as `link_down` with the next of each camera.
    Reconnected,
    /// The end that was asked for has passed. The last event.
    Ended {
        /// What is left to account for of each camera.
        rest: Vec<(CameraName, SkipCounts, Option<NotHeld>)>,
    },
    /// The subscription cannot go on. The last event.
    Failed {
        /// Why.
        reason: ClientError,
    },
}
