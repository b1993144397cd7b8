//! Decides when a camera is asked for a keyframe, which is seldom.

use std::time::Duration;

use crate::broker::LinkId;
use crate::broker::edge::connection::Way;
use crate::broker::edge::types::EdgeOutput;
use crate::frame::{FrameId, Sequence};
use crate::units::Instant;
use crate::wire::Message;

/// The shortest time between two keyframe requests for the same chain. A camera is asked once for each chain
/// that cannot be decoded any further, and begins a new one as soon as it may. More requests would gain
/// nothing.
pub const KEYFRAME_REQUEST_INTERVAL: Duration = Duration::from_secs(2);

/// When a camera was asked for a frame that stands alone.
#[derive(Default)]
pub(super) struct Refresh {
    /// Over which connection, in place of which chain and when that was last.
    last: Option<(LinkId, Sequence, Instant)>,
}

impl Refresh {
    /// When it may be asked again, whatever the chain.
    pub(super) fn due(&self) -> Instant {
        self.last.map_or(Instant::ZERO, |(_, _, last)| last + KEYFRAME_REQUEST_INTERVAL)
    }

    /// A frame of a chain that came on `link` cannot be decoded. Asks the camera for a new chain, unless that
    /// was done already.
    pub(super) fn replace(
        &mut self,
        now: Instant,
        way: Option<Way>,
        link: LinkId,
        (chain, frame): (Sequence, FrameId),
    ) -> Option<EdgeOutput> {
        // Another connection begins with a frame that stands alone anyway.
        way.filter(|way| way.link == link)?;
        let due = self.last.is_none_or(|(of, asked, last)| {
            (of, asked) != (link, chain) || now.saturating_since(last) >= KEYFRAME_REQUEST_INTERVAL
        });
        due.then(|| self.ask(now, link, chain, frame))
    }

    /// Somebody waits for a chain to begin.
    pub(super) fn join(&mut self, now: Instant, way: Option<Way>) -> Option<EdgeOutput> {
        debug_assert!(now >= self.due(), "a camera is asked for a chain too often");
        let way = way?;
        // If no chain is going on, the next frame of one stands alone.
        let frame = way.chain?;
        Some(self.ask(now, way.link, frame.sequence, frame))
    }

    fn ask(&mut self, now: Instant, link: LinkId, chain: Sequence, frame: FrameId) -> EdgeOutput {
        self.last = Some((link, chain, now));
        EdgeOutput::Send { link, message: Message::Refresh { frame } }
    }
}
