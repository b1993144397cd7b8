//! Events, and who may see them.

use mez_core::broker::edge::SubscriptionId;
use mez_core::name::CameraName;
use mez_core::rights::{Bearer, Granted};
use mez_core::units::Timestamp;

use super::super::fill::utc_ms;

/// An event without its position in the ring.
#[derive(Clone, Debug)]
pub(super) struct Happened {
    pub(super) utc_ms: u64,
    pub(super) kind: &'static str,
    pub(super) severity: &'static str,
    pub(super) about: About,
    /// The subscription and the application that the event is about.
    pub(super) of: Option<(SubscriptionId, String)>,
    pub(super) state: &'static str,
    pub(super) before: Option<&'static str>,
    pub(super) sentence: String,
}

/// The subject of an event, which decides who may see it.
#[derive(Clone, Debug)]
pub(super) enum About {
    /// A camera.
    Camera(CameraName),
    /// The host of these cameras.
    Host(Vec<CameraName>),
    /// The edge, or its site.
    Edge,
    /// A group of this owner.
    Group(Bearer),
}

/// A reader of events.
#[derive(Clone, Copy)]
pub(in super::super) struct Reader<'a> {
    /// The cameras that the reader may observe.
    pub(in super::super) granted: &'a Granted,
    pub(in super::super) who: &'a Bearer,
}

impl Reader<'_> {
    /// Whether the reader may see events about this subject.
    pub(super) fn may_know(self, about: &About) -> bool {
        match about {
            About::Camera(camera) => self.granted.allows(camera),
            About::Host(cameras) => cameras.iter().any(|camera| self.granted.allows(camera)),
            About::Edge => true,
            About::Group(owner) => sees_groups_of(self.who, owner),
        }
    }
}

/// Whether `who` sees the groups of `owner`.
pub(in super::super) fn sees_groups_of(who: &Bearer, owner: &Bearer) -> bool {
    *who == Bearer::Owner || owner == who
}

impl Happened {
    /// An event that was seen at this time.
    pub(super) fn of(
        at_utc: Timestamp,
        about: About,
        kind: &'static str,
        (state, before, sentence): (&'static str, Option<&'static str>, String),
    ) -> Self {
        let severity = match (kind, state) {
            ("store", "degraded") | ("certificate", "ended") => "error",
            (_, "connected" | "live" | "ok" | "ended" | "forgotten") => "info",
            _ => "warning",
        };
        Self { utc_ms: utc_ms(at_utc), kind, severity, about, of: None, state, before, sentence }
    }
}
