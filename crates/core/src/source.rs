//! Defines the states of a camera's source: what a camera broker gets its frames from.
//!
//! A source is a publisher, or a file, a device or a network camera that the broker reads itself. Its state says why no frames come
//! although the camera is connected. If a camera never reported a state of its source, the state is unknown, and frames are expected.

use std::time::Duration;

use crate::units::Instant;

/// Whether a source gives frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SourceState {
    /// The source gives frames.
    Live = 1,
    /// The source gave no frame for several intervals of its own frame rate, for an unknown reason.
    Stalled = 2,
    /// The source is gone or cannot be read. It may be tried again.
    Lost = 3,
    /// The source ended normally: a recording is over, or a publisher was closed.
    Ended = 4,
}

impl SourceState {
    /// All states, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::Live, Self::Stalled, Self::Lost, Self::Ended];

    /// The state that a code stands for; `None` if this version does not know the code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == code)
    }

    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stalled => "stalled",
            Self::Lost => "lost",
            Self::Ended => "ended",
        }
    }

    /// A sentence for people who wait for frames, or look for frames of the past. `None` for a live source.
    pub fn sentence(self, reason: &str) -> Option<String> {
        let what = match self {
            Self::Live => return None,
            Self::Stalled => "the camera's source has stalled",
            Self::Lost => "the camera's source is lost",
            Self::Ended => "the camera's source has ended",
        };
        Some(if reason.is_empty() { what.to_owned() } else { format!("{what}: {reason}") })
    }
}

/// The state of a camera's source, as an edge knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStanding {
    /// The state.
    pub state: SourceState,
    /// Why, in words, without a full stop. Empty if there is nothing to say.
    pub reason: String,
    /// Since when the source has this state, by the edge's clock. `None`: unknown.
    pub since: Option<Instant>,
    /// When a lost source is tried again, by the edge's clock. `None`: it is not tried again, or the time is unknown.
    pub retry: Option<Instant>,
}

impl SourceStanding {
    /// Whether no more frames are expected: the source ended, or is lost and not tried again.
    pub fn is_final(&self) -> bool {
        match self.state {
            SourceState::Ended => true,
            SourceState::Lost => self.retry.is_none(),
            SourceState::Live | SourceState::Stalled => false,
        }
    }

    /// A sentence for people who wait for frames. `None` for a live source.
    pub fn sentence(&self) -> Option<String> {
        self.state.sentence(&self.reason)
    }

    /// How long the source has had this state, if known.
    pub fn lasts(&self, now: Instant) -> Option<Duration> {
        self.since.map(|since| now.saturating_since(since))
    }

    /// The time until a lost source is tried again, if known. 0: it is being tried.
    pub fn retry_in(&self, now: Instant) -> Option<Duration> {
        self.retry.map(|retry| retry.saturating_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_dense_codes() {
        for (index, state) in SourceState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, index + 1);
            assert_eq!(SourceState::from_code(state as u8), Some(state));
        }
        assert_eq!([0, 5].map(SourceState::from_code), [None; 2]);
    }

    #[test]
    fn people_are_told_why_no_frames_come() {
        let standing = |state, reason: &str| SourceStanding {
            state,
            reason: reason.into(),
            since: Some(Instant::ZERO),
            retry: None,
        };
        let told = |state, reason| standing(state, reason).sentence();
        assert_eq!(told(SourceState::Live, ""), None);
        assert_eq!(
            told(SourceState::Lost, "rtsp://cam cannot be read").as_deref(),
            Some("the camera's source is lost: rtsp://cam cannot be read")
        );
        assert_eq!(told(SourceState::Ended, "").as_deref(), Some("the camera's source has ended"));
        assert!(standing(SourceState::Lost, "").is_final(), "nobody tries it again");
        assert!(!standing(SourceState::Stalled, "").is_final());
    }
}
