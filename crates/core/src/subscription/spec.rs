//! What an application asks for: one value, from the request that it sends to the session that serves it.

use super::types::{LastFrame, Span};
use crate::contract::Contract;
use crate::frame::ChainKinds;
use crate::history::PastWish;
use crate::name::{CameraName, CameraPattern};

/// What an application asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscriptionSpec {
    /// Of which cameras, those that come later among them.
    pub cameras: CameraPattern,
    /// What it demands of their frames.
    pub contract: Contract,
    /// From when until when they are captured, and whether it wants each.
    pub span: Span,
    /// What it asks of the past. Default: all of it, as it is held.
    pub past: PastWish,
    /// The last frames that it has, behind which it goes on. Default: none.
    pub after: Vec<(CameraName, LastFrame)>,
    /// Chains of which kinds it decodes itself: of those, present frames come as they came from their camera. Default: none.
    pub chains: ChainKinds,
    /// Its name, for people. Default: none.
    pub application: String,
}

impl SubscriptionSpec {
    /// The frames of these cameras in a span, as stills, of which nothing is demanded.
    pub fn new(cameras: CameraPattern, span: Span) -> Self {
        Self {
            cameras,
            contract: Contract::default(),
            span,
            past: PastWish::ALL,
            after: Vec::new(),
            chains: ChainKinds::NONE,
            application: String::new(),
        }
    }

    /// The newest frames of these cameras as stills, of which nothing is demanded.
    pub fn live(cameras: CameraPattern) -> Self {
        Self::new(cameras, Span::LIVE)
    }

    /// Whether it wants frames of the present alone. What is read of the past is late by its nature, so no contract is watched there.
    pub fn is_of_present(&self) -> bool {
        self.span.begin.is_none() && !self.past.fill
    }

    /// Chains of which kinds it gets: of the past there are stills only.
    pub fn present_chains(&self) -> ChainKinds {
        if self.is_of_present() { self.chains } else { ChainKinds::NONE }
    }
}
