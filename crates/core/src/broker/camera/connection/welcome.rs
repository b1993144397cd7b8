//! Decides whether the camera stays with an edge that has welcomed it.

use crate::broker::NUMBER_MAX;
use crate::frame::{Epoch, Sequence};
use crate::wire::{RefuseCode, VERSION, Welcome};

/// What is made of an edge's welcome.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::broker::camera) enum Judgement {
    /// The camera stays; the edge has every frame of this epoch up to `newest`, or their gaps.
    Accepted { newest: Option<Sequence> },
    /// What the edge says makes no sense, or not to this version.
    Refused { code: RefuseCode, text: String },
    /// The edge's newest frame is not one of ours: a lost epoch counter, or a replaced device.
    Foreign { above: Epoch },
}

/// Judges a welcome for a camera that is in `epoch` and whose next frame there is `next_sequence`.
pub(in crate::broker::camera) fn judge(welcome: &Welcome, epoch: Epoch, next_sequence: u64) -> Judgement {
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
    let foreign = newest.epoch > epoch || (newest.epoch == epoch && newest.sequence.0 >= next_sequence);
    if foreign {
        return Judgement::Foreign { above: newest.epoch };
    }
    Judgement::Accepted { newest: (newest.epoch == epoch).then_some(newest.sequence) }
}
