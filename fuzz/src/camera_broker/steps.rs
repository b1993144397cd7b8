//! The named steps of a script for a camera broker.

use crate::text::{Kind, Language};

/// The language of these scripts.
pub const LANGUAGE: Language = Language { kinds: &KINDS, has_settings: true };

const fn kind(name: &'static str, args: [&'static str; 3]) -> Kind {
    Kind { name, args }
}

/// In the order of their first bytes. `link` is a connection, counted from the newest. `mod.rs` and `said.rs` define the bits of other arguments.
pub const KINDS: [Kind; 24] = [
    kind("publish", ["size", "count", "unheard"]),
    kind("publish-more", ["size", "count", "unheard"]),
    kind("made", ["", "outcome", "size"]),
    kind("dialled", ["", "outcome", "dial"]),
    kind("welcome", ["link", "epoch", "newest"]),
    kind("demand", ["link", "contracts", "bound"]),
    kind("report", ["link", "frame", "bytes"]),
    kind("report-more", ["link", "frame", "bytes"]),
    kind("left", ["link", "frame", "unsent"]),
    kind("close", ["link", "", ""]),
    kind("ping", ["link", "message", "time"]),
    kind("refuse", ["link", "reason", ""]),
    kind("wait", ["pause", "late", ""]),
    kind("wait-more", ["pause", "late", ""]),
    kind("epoch", ["", "news", "value"]),
    kind("say", ["link", "message", "value"]),
    kind("stop", ["link", "frame", "window"]),
    kind("contracts", ["", "differences", "profiles"]),
    kind("picture", ["", "picture", ""]),
    kind("profile-part", ["link", "part", "size"]),
    kind("ask", ["link", "count", "question"]),
    kind("found", ["", "outcome", ""]),
    kind("past-left", ["link", "survey", "value"]),
    kind("past-made", ["", "outcome", "size"]),
];
