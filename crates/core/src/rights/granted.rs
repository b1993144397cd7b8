//! The cameras that one subscription may have.

use std::sync::Arc;

use super::tree::PatternSet;
use crate::name::{CameraName, CameraPattern};

/// The cameras that a subscription may have, among those that it selects: the cameras that are in all of these sets. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted(Option<Arc<[PatternSet]>>);

impl Granted {
    /// Every camera. For readers that need no grants: the broker's own process, tests, and worlds without rights.
    pub const EVERYTHING: Self = Self(None);

    pub(super) fn within(sets: Vec<PatternSet>) -> Self {
        if sets.is_empty() { Self::EVERYTHING } else { Self(Some(sets.into())) }
    }

    /// Whether the subscription may have `camera`.
    pub fn allows(&self, camera: &CameraName) -> bool {
        self.0.as_deref().is_none_or(|sets| sets.iter().all(|set| set.matches(camera)))
    }

    /// Whether every camera of `pattern` is allowed, present and future, because one grant covers it.
    pub fn includes(&self, pattern: &CameraPattern) -> bool {
        let covers = |set: &PatternSet| set.patterns().any(|granted| granted.includes(pattern));
        self.0.as_deref().is_none_or(|sets| sets.iter().all(covers))
    }

    /// Whether every camera is allowed.
    pub fn is_everything(&self) -> bool {
        self.0.is_none()
    }
}
