//! The events of a subscription.

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
    /// A matching camera connected or disconnected.
    Camera {
        /// The camera.
        camera: CameraName,
        /// Whether it is connected.
        up: bool,
        /// Why it disconnected, for people.
        reason: Option<String>,
    },
    /// The state of a camera's source, or its reason, has changed. If the source gives no frames, this event also comes when the
    /// subscription begins and when the camera connects. The source of a camera that connects counts as live until an event says otherwise.
    Source {
        /// The camera.
        camera: CameraName,
        /// The state of the source, by this machine's monotonic clock.
        source: SourceStanding,
    },
    /// The state of the contract on a camera has changed. Also reported while no frames come.
    Contract {
        /// The camera.
        camera: CameraName,
        /// The state.
        state: ContractState,
        /// A sentence that explains the state.
        reason: String,
    },
    /// No matching camera is connected. Frames come as soon as one is.
    Waiting {
        /// How many of the cameras that the edge knows match.
        matching: usize,
    },
    /// The program is a member of its group: at the start, and after a reconnection.
    Joined {
        /// What happened to the group's place since the program was last in it.
        place: PlaceTold,
        /// Whether the place survives a restart of the edge.
        survives: bool,
    },
    /// The group gives no new records because too many are not settled, or it gives new records again.
    Held {
        /// How many records are not settled. `None`: the group gives records again.
        open: Option<usize>,
    },
    /// The broker was lost, and the client reconnects. Or the program's rights have changed ([`ClientError::is_change_of_rights`]),
    /// and it subscribes again. A camera whose frames it may no longer get is then reported as gone.
    Disconnected {
        /// The reason.
        reason: ClientError,
    },
    /// The broker is back. Frames missed meanwhile are delivered with [`Resume::Fill`](super::Resume::Fill),
    /// otherwise counted as `link_down` with the next frame of each camera.
    Reconnected,
    /// The requested end has passed. This is the last event.
    Ended {
        /// The remaining counts of each camera.
        rest: Vec<(CameraName, SkipCounts, Option<NotHeld>)>,
    },
    /// The subscription cannot continue. This is the last event.
    Failed {
        /// The reason.
        reason: ClientError,
    },
}
