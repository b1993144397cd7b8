//! Decides whether the camera stays with an edge that has welcomed it.

use crate::broker::{EPOCH_MAX, EPOCH_RAISE_MAX, highest_believed};
use crate::frame::{Epoch, FrameId, Sequence};
use crate::name::CameraName;
use crate::wire::{RefuseCode, VERSION, Welcome};

/// The judgement of an edge's welcome.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The camera stays. The edge knows every frame of this epoch up to `newest`, or the reason why it was
    /// skipped.
    Accepted { newest: Option<Sequence> },
    /// The welcome makes no sense, or is of another version.
    Refused { code: RefuseCode, text: String },
    /// The edge's newest frame is not from this start of the camera: the epoch counter was lost, or the
    /// device replaced.
    Foreign { above: Epoch },
}

/// Judges a welcome for `camera`, whose next frame is `next`.
pub(super) fn judge(camera: &CameraName, welcome: &Welcome, next: FrameId) -> Judgement {
    if welcome.version != VERSION {
        let theirs = welcome.version;
        let text = format!(
            "the edge speaks version {theirs} of the wire format, the camera version {VERSION}; update the older one"
        );
        return Judgement::Refused { code: RefuseCode::Version, text };
    }
    let Some(newest) = welcome.newest else { return Judgement::Accepted { newest: None } };
    // The camera raises its counter on disk to what the edge says. An absurd number would stay there for
    // good.
    if newest.epoch > highest_believed(next.epoch, EPOCH_RAISE_MAX) || newest.epoch >= EPOCH_MAX {
        let text = format!(
            "the edge holds frames of epoch {}, but this camera is at epoch {}, and no camera restarts that often: somebody else has used the \
             camera's identity; run `mez cameras reset {camera}` on the edge's host",
            newest.epoch.0, next.epoch.0
        );
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
        let camera = "dock/cam1".parse().expect("a camera's name");
        let newest =
            newest.map(|(epoch, sequence)| FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) });
        judge(&camera, &Welcome { version, newest, frame_bytes_max: 1, software: String::new() }, NEXT)
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
        assert_eq!(refused(judged(VERSION, Some((u64::MAX >> 1, 0)))), RefuseCode::Protocol);
        assert_eq!(refused(judged(VERSION + 1, None)), RefuseCode::Version);
    }
}
