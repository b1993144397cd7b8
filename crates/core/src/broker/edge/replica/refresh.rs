//! Decides when a camera is asked for a keyframe, as rarely as possible.

use std::time::Duration;

use crate::broker::LinkId;
use crate::broker::edge::connection::Way;
use crate::broker::edge::types::EdgeOutput;
use crate::frame::{FrameId, Sequence};
use crate::units::Instant;
use crate::wire::Message;

/// The shortest time between two keyframe requests for the same chain. A camera is asked once for each chain
/// that cannot be decoded any further, and begins a new one as soon as it may. More requests would gain nothing.
pub const KEYFRAME_REQUEST_INTERVAL: Duration = Duration::from_secs(2);

/// When a camera was asked for a keyframe.
#[derive(Default)]
pub(super) struct Refresh {
    /// The last request: on which connection, for which chain, and when.
    last: Option<(LinkId, Sequence, Instant)>,
}

impl Refresh {
    /// When the camera may be asked again, for any chain.
    pub(super) fn due(&self) -> Instant {
        self.last.map_or(Instant::ZERO, |(_, _, last)| last + KEYFRAME_REQUEST_INTERVAL)
    }

    /// A frame of a chain that came on `link` cannot be decoded. Asks the camera for a new chain, unless it was asked lately to replace this one.
    pub(super) fn replace(
        &mut self,
        now: Instant,
        way: Option<Way>,
        link: LinkId,
        (chain, frame): (Sequence, FrameId),
    ) -> Option<EdgeOutput> {
        // Another connection begins with a keyframe anyway.
        way.filter(|way| way.link == link)?;
        let due = self.last.is_none_or(|(of, asked, last)| {
            (of, asked) != (link, chain) || now.saturating_since(last) >= KEYFRAME_REQUEST_INTERVAL
        });
        due.then(|| self.ask(now, link, chain, frame))
    }

    /// A reader waits for a chain to begin.
    pub(super) fn join(&mut self, now: Instant, way: Option<Way>) -> Option<EdgeOutput> {
        debug_assert!(now >= self.due(), "a camera is asked for a chain too often");
        let way = way?;
        // If no chain is going on, the next one begins with a keyframe anyway.
        let frame = way.chain?;
        Some(self.ask(now, way.link, frame.sequence, frame))
    }

    fn ask(&mut self, now: Instant, link: LinkId, chain: Sequence, frame: FrameId) -> EdgeOutput {
        self.last = Some((link, chain, now));
        EdgeOutput::Send { link, message: Message::Refresh { frame } }
    }
}
