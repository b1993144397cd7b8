//! The named steps of a script for an edge broker.

use crate::text::{Kind, Language};

/// The language of these scripts. A first step with a `code` of 0xf0 or more also states what
/// an earlier run of the edge left: the number of cameras, their epoch, and their frames.
pub const LANGUAGE: Language = Language { kinds: &KINDS, has_settings: false };

const fn kind(name: &'static str, args: [&'static str; 3]) -> Kind {
    Kind { name, args }
}

/// In the order of their first bytes. `slot` is a connection. `mod.rs` and `cameras.rs` define the bits of `start`, `frame` and `answer`.
pub const KINDS: [Kind; 25] = [
    kind("connect", ["slot", "peer", ""]),
    kind("hello", ["slot", "camera", "start"]),
    kind("header", ["slot", "sequence", "frame"]),
    kind("frame", ["slot", "sequence", "frame"]),
    kind("progress", ["slot", "sequence", "bytes"]),
    kind("complete", ["slot", "sequence", "frame"]),
    kind("cancel", ["slot", "sequence", "frame"]),
    kind("subscribe", ["application", "pattern", "terms"]),
    kind("unsubscribe", ["application", "", ""]),
    kind("read", ["application", "times", ""]),
    kind("read-more", ["application", "times", ""]),
    kind("reply", ["camera", "sequence", "size"]),
    kind("say", ["slot", "message", "value"]),
    kind("err", ["slot", "reset", "camera"]),
    kind("close", ["slot", "", ""]),
    kind("wait", ["pause", "", ""]),
    kind("wait-unnoticed", ["pause", "", ""]),
    kind("look", ["camera", "sequence", "range"]),
    kind("ask", ["camera", "sequence", "question"]),
    kind("drop", ["slot", "question", "survey"]),
    kind("update", ["application", "terms", "contract"]),
    kind("answer", ["slot", "sequence", "answer"]),
    kind("rest", ["", "answer", "outcome"]),
    kind("still", ["", "question", "outcome"]),
    kind("profile", ["", "profile", "size"]),
];
