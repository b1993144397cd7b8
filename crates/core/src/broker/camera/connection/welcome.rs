//! Decides whether the camera stays with an edge that has welcomed it.

use crate::broker::NUMBER_MAX;
use crate::frame::{Epoch, FrameId, Sequence};
use crate::wire::{RefuseCode, VERSION, Welcome};

/// What is made of an edge's welcome.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The camera stays; the edge has every frame of this epoch up to `newest`, or their gaps.
    Accepted { newest: Option<Sequence> },
    /// What the edge says makes no sense, or not to this version.
    Refused { code: RefuseCode, text: String },
    /// The edge's newest frame is not one of ours: a lost epoch counter, or a replaced device.
    Foreign { above: Epoch },
}

/// Judges a welcome for a camera whose next frame is `next`.
pub(super) fn judge(welcome: &Welcome, next: FrameId) -> Judgement {
    if welcome.version != VERSION {
        let theirs = welcome.version;
        let text = format!(
            "the edge speaks version {theirs} of the wire format, the camera version {VERSION}; update the older one"
        );
        return Judgement::Refused { code: RefuseCode::Version, text };
    }
    let Some(newest) = welcome.newest else { return Judgement::Accepted { newest: None } };
    if newest.epoch.0 >= NUMBER_MAX {
        let text = format!("the edge holds a frame of epoch {}, after which there is none", newest.epoch.0);
        return Judgement::Refused { code: RefuseCode::Protocol, text };
    }
    if newest >= next {
        return Judgement::Foreign { above: newest.epoch };
    }
    Judgement::Accepted { newest: (newest.epoch == next.epoch).then_some(newest.sequence) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: FrameId = FrameId { epoch: Epoch(3), sequence: Sequence(7) };

    fn judged(version: u16, newest: Option<(u64, u64)>) -> Judgement {
        let newest =
            newest.map(|(epoch, sequence)| FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) });
        judge(&Welcome { version, newest, frame_bytes_max: 1, software: String::new() }, NEXT)
    }

    #[test]
    fn an_edge_that_holds_frames_of_others_is_not_stayed_with() {
        let accepted = |newest: Option<u64>| Judgement::Accepted { newest: newest.map(Sequence) };
        assert_eq!(judged(VERSION, None), accepted(None));
        assert_eq!(judged(VERSION, Some((2, 90))), accepted(None), "of an earlier start");
        assert_eq!(judged(VERSION, Some((3, 6))), accepted(Some(6)));
        assert_eq!(judged(VERSION, Some((3, 7))), Judgement::Foreign { above: Epoch(3) });
        assert_eq!(judged(VERSION, Some((4, 0))), Judgement::Foreign { above: Epoch(4) });
        let refused = |judged| match judged {
            Judgement::Refused { code, .. } => code,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(judged(VERSION, Some((NUMBER_MAX, 0)))), RefuseCode::Protocol);
        assert_eq!(refused(judged(VERSION + 1, None)), RefuseCode::Version);
    }
}
