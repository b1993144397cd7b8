//! Records the events of a world: a hash of all events, and the last ones as text.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};

use mez_core::broker::LinkId;
use mez_core::frame::FrameId;

use crate::time::Moment;

/// How many events are kept as text for the report of a failure.
const ENTRIES_MAX: usize = 300;

/// One event. Numbers name cameras, edges and applications in the order of their creation. No event depends on a wall clock, so worlds that differ
/// only in wall clocks have the same trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// A fault or a change of the scenario.
    Action(u64),
    /// A camera published a frame.
    Published { camera: usize, frame: FrameId, bytes: u32 },
    /// A camera broker refused a frame.
    Refused { camera: usize },
    /// A camera dials.
    Dial { camera: usize },
    /// A camera could not connect.
    DialFailed { camera: usize },
    /// A connection exists at the camera.
    Dialled { camera: usize, link: LinkId },
    /// A connection exists at the edge.
    Accepted { edge: usize, link: LinkId },
    /// A connection ended at the camera.
    CameraClosed { camera: usize, link: LinkId },
    /// A connection ended at the edge.
    EdgeClosed { edge: usize, link: LinkId },
    /// A message arrived at a camera; `kind` as on the wire.
    ToCamera { camera: usize, link: LinkId, kind: u8 },
    /// A message arrived at an edge.
    ToEdge { edge: usize, link: LinkId, kind: u8 },
    /// A camera began to send a frame.
    Sends { camera: usize, link: LinkId, frame: FrameId, skipped: u64 },
    /// A camera began to send a frame of the past.
    SendsPast { camera: usize, link: LinkId, frame: FrameId, request: u64 },
    /// An application asked for frames of the past.
    Asked { application: usize, request: u64 },
    /// An application's request for the past was answered.
    Answered { application: usize, found: bool },
    /// A camera cancelled a frame.
    Resets { camera: usize, link: LinkId, frame: FrameId },
    /// A frame's last byte left the camera.
    Left { camera: usize, link: LinkId, frame: FrameId },
    /// A frame began to arrive at an edge.
    Opened { edge: usize, link: LinkId, frame: FrameId, taken: bool },
    /// A frame arrived.
    Arrived { edge: usize, link: LinkId, frame: FrameId },
    /// A decoder is done with a frame, and shows a picture or not.
    Decoded { edge: usize, frame: FrameId, shown: bool },
    /// The edge learned that the rest of a frame will not arrive.
    Cancelled { edge: usize, link: LinkId, frame: FrameId },
    /// An edge appended a frame to a replica log.
    Appended { edge: usize, frame: FrameId },
    /// A camera reports that its link came up or went down.
    LinkChanged { camera: usize, up: bool },
    /// An edge reports that a camera connected or disconnected.
    CameraChanged { edge: usize, up: bool },
    /// The edge refused a camera.
    RefusedBy { camera: usize, code: u16 },
    /// A camera began a later epoch.
    EpochRaised { camera: usize, epoch: u64 },
    /// An application got a frame, after so many skipped ones.
    Delivered { application: usize, frame: FrameId, skipped: u64 },
    /// A reply came back to a camera.
    Replied { camera: usize, frame: FrameId },
    /// An edge's door closed the connection of a visitor, to make room or because it was too slow.
    TurnedAway { edge: usize, visitor: usize },
    /// An application's subscription ended without its request.
    Ended { application: usize },
    /// A worker of a group joined it.
    Joined { group: usize, worker: usize },
    /// A worker of a group was given a record.
    Given { group: usize, worker: usize, frame: FrameId, attempt: usize },
    /// A worker of a group finished a record.
    Worked { group: usize, worker: usize, frame: FrameId },
    /// A worker of a group reported the result of a record.
    Said { group: usize, worker: usize, frame: FrameId, failed: bool, counts: bool },
    /// A record of a group was settled.
    Settled { group: usize, frame: FrameId },
    /// A worker of a group lost its connection, died or left.
    Missed { group: usize, worker: usize },
    /// The edge accepted a record that an application published to a derived stream.
    Derived { application: usize, worker: usize, frame: FrameId },
    /// A worker of an application stopped publishing.
    StopsPublishing { application: usize, worker: usize },
    /// An application sent a request to its session.
    Asks { application: usize },
    /// An edge accepted an answer of an application.
    AnswerTaken { edge: usize, frame: FrameId },
    /// An edge began to send an answer.
    AnswerBegins { edge: usize, link: LinkId, frame: FrameId },
    /// An edge cancelled an answer.
    AnswerResets { edge: usize, link: LinkId, frame: FrameId },
    /// An answer began to arrive at a camera.
    AnswerOpens { camera: usize, link: LinkId, frame: FrameId, taken: bool },
    /// A camera learned that the rest of an answer will not arrive.
    AnswerCancelled { camera: usize, link: LinkId, frame: FrameId },
    /// An answer arrived at a camera.
    AnswerArrives { camera: usize, frame: FrameId },
    /// A camera's publisher took an answer.
    AnswerGiven { camera: usize, frame: FrameId },
}

/// The trace of a world.
#[derive(Debug, Default)]
pub struct Trace {
    hash: Fnv,
    entries: u64,
    last: VecDeque<(Moment, What)>,
}

impl Trace {
    /// Records an event.
    pub fn record(&mut self, at: Moment, what: What) {
        (at, what).hash(&mut self.hash);
        self.entries += 1;
        if self.last.len() == ENTRIES_MAX {
            self.last.pop_front();
        }
        self.last.push_back((at, what));
    }

    /// A hash of all events, in order, with their moments.
    pub fn hash(&self) -> u64 {
        self.hash.finish()
    }

    /// How many events were recorded.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The last `entries` events, one a line.
    pub fn tail(&self, entries: usize) -> String {
        let mut text = String::new();
        for (at, what) in self.last.iter().skip(self.last.len().saturating_sub(entries)) {
            let _ = writeln!(text, "  {at}  {what:?}");
        }
        text
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries, hash {:016x}", self.entries, self.hash())
    }
}

/// FNV-1a (G. Fowler, L. Noll, K.-P. Vo), one word at a time. The standard library does not promise to
/// keep its hasher. This hash need not withstand an attacker.
#[derive(Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // The multiplication carries only upwards. The rotation brings high bits down again.
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_tells_order_and_time_apart() {
        let entry = |nanos, camera| (Moment::from_nanos(nanos), What::Dial { camera });
        let hash = |entries: &[(Moment, What)]| {
            let mut trace = Trace::default();
            entries.iter().for_each(|(at, what)| trace.record(*at, *what));
            trace.hash()
        };
        let all = [
            hash(&[entry(1, 1), entry(2, 2)]),
            hash(&[entry(1, 2), entry(2, 1)]),
            hash(&[entry(1, 1), entry(3, 2)]),
            hash(&[entry(1, 1)]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[index + 1..].contains(one));
        }
        assert_eq!(all[0], hash(&[entry(1, 1), entry(2, 2)]));
    }
}
