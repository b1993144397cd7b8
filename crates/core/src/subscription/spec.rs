//! Defines what an application asks for, as one value from its request to the session that serves it.

use super::types::{Deliver, LastFrame, Span};
use crate::contract::Contract;
use crate::frame::ChainKinds;
use crate::history::PastOptions;
use crate::name::{CameraName, CameraPattern};
use crate::rights::Granted;

/// What an application asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscriptionSpec {
    /// The cameras, including those that come later.
    pub cameras: CameraPattern,
    /// Which of these cameras the application may read. For the application, other cameras do not exist. Default: every one.
    pub granted: Granted,
    /// The contract for their frames.
    pub contract: Contract,
    /// The span of capture times, and whether every frame is wanted.
    pub span: Span,
    /// What is asked of the past. Default: everything, in the form in which it is held.
    pub past: PastOptions,
    /// The last frames that the application already has. Reading continues after them. Default: none.
    pub after: Vec<(CameraName, LastFrame)>,
    /// The kinds of chains that the application decodes itself. Their present frames are delivered as they
    /// came from the camera. Default: none.
    pub chains: ChainKinds,
    /// The application's name, for display. Default: none.
    pub application: String,
    /// Whether the application only looks on. Cameras are asked for its contract only while no other subscription
    /// wants their frames. Otherwise it takes the frames that the other subscriptions get. Default: false.
    pub looks_on: bool,
}

impl SubscriptionSpec {
    /// The frames of these cameras in a span, as stills, with a contract that asks nothing.
    pub fn new(cameras: CameraPattern, span: Span) -> Self {
        Self {
            cameras,
            granted: Granted::EVERYTHING,
            contract: Contract::default(),
            span,
            past: PastOptions::ALL,
            after: Vec::new(),
            chains: ChainKinds::NONE,
            application: String::new(),
            looks_on: false,
        }
    }

    /// The newest frames of these cameras, as stills, with a contract that asks nothing.
    pub fn live(cameras: CameraPattern) -> Self {
        Self::new(cameras, Span::LIVE)
    }

    /// Whether the application gets the frames of `camera`: it asks for them, and may have them.
    pub fn selects(&self, camera: &CameraName) -> bool {
        self.cameras.matches(camera) && self.granted.allows(camera)
    }

    /// Whether only frames of the present are wanted. Frames of the past are always late, so no contract is
    /// watched for them.
    pub fn is_of_present(&self) -> bool {
        self.span.begin.is_none() && !self.past.fill
    }

    /// Whether the originals of the newest frames are wanted, whatever rung the contracts on their cameras have.
    pub fn wants_originals(&self) -> bool {
        self.is_of_present() && self.span.deliver == Deliver::Newest && self.past.wants_originals()
    }

    /// The kinds of chains that are delivered as they came. A reader of the past, or of originals, gets only stills.
    pub fn present_chains(&self) -> ChainKinds {
        if self.is_of_present() && !self.wants_originals() { self.chains } else { ChainKinds::NONE }
    }
}
