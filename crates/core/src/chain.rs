//! Follows chains: which frames a decoder holds, and which frame it can decode next.
//!
//! A frame names one parent ([`Reference`]). A frame needs its parent, the parent's parent, and so on
//! up to the chain's first frame. The edge's replica, subscriptions that deliver chains, and makers of
//! stills all use this account, so that none of them continues with a frame that cannot be decoded.

use std::collections::VecDeque;

use crate::frame::{Encoding, Epoch, FrameId, FrameMeta, Reference, Sequence};

/// The most frames of a chain that are remembered, because later frames may refer to them: ten seconds at 100 frames per second.
const FRAMES_MAX: usize = 1024;

/// Identifies a chain of one camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainId {
    /// The encoding of the chain's frames.
    pub encoding: Encoding,
    /// The camera's start.
    pub epoch: Epoch,
    /// The sequence of the chain's first frame.
    pub first: Sequence,
}

impl ChainId {
    /// The chain of a frame. `None` for a still.
    pub fn of(meta: &FrameMeta) -> Option<Self> {
        let of = Self { encoding: meta.encoding, epoch: meta.id.epoch, first: meta.chain.chain };
        meta.encoding.is_chained().then_some(of)
    }

    /// The chain's first frame.
    pub const fn first_frame(&self) -> FrameId {
        FrameId { epoch: self.epoch, sequence: self.first }
    }
}

/// Whether a chain begins with this frame: a decoder needs nothing before it.
pub fn begins_chain(meta: &FrameMeta) -> bool {
    meta.encoding.is_chained() && is_well_formed(meta) && meta.chain.reference == Reference::Independent
}

/// Whether a frame's `ChainLink` is consistent: the first frame of a chain stands alone, and no other frame does.
fn is_well_formed(meta: &FrameMeta) -> bool {
    let is_first = meta.chain.index == 0 && meta.chain.chain == meta.id.sequence;
    is_first == (meta.chain.reference == Reference::Independent) && meta.chain.chain <= meta.id.sequence
}

/// Whether `parent` is the parent of `of`.
pub(crate) fn is_parent(parent: &FrameMeta, of: &FrameMeta) -> bool {
    ChainId::of(parent).is_some_and(|chain| Some(chain) == ChainId::of(of))
        && match of.chain.reference {
            Reference::Independent => false,
            Reference::Previous => parent.chain.index.checked_add(1) == Some(of.chain.index),
            Reference::Acknowledged(refers) => parent.id.sequence == refers,
        }
}

/// The frames that a decoder at `follower` must decode before `frame`, in order. Frames that `frame` does not need, directly
/// or indirectly, are left out. `behind`: the frames before `frame`, newest first. `None` if a needed frame is not among them.
pub fn needed_before<T>(
    follower: &ChainFollower,
    frame: &FrameMeta,
    behind: impl IntoIterator<Item = T>,
    meta_of: impl Fn(&T) -> &FrameMeta,
) -> Option<Vec<T>> {
    let mut needed: Vec<T> = Vec::new();
    let mut behind = behind.into_iter();
    loop {
        let first = needed.last().map_or(frame, &meta_of);
        if follower.allows(first) {
            needed.reverse();
            return Some(needed);
        }
        let begins = first.chain.chain;
        let mut of_chain = behind.by_ref().take_while(|found| meta_of(found).id.sequence >= begins);
        let parent = of_chain.find(|found| is_parent(meta_of(found), first))?;
        needed.push(parent);
    }
}

/// The frames of the current chain that a decoder holds, given the frames that it has decoded ([`ChainFollower::note`]).
#[derive(Clone, Debug, Default)]
pub struct ChainFollower {
    chain: Option<ChainId>,
    /// The index in the chain of the last frame held.
    index: u32,
    /// The frames held, oldest first.
    frames: VecDeque<Sequence>,
}

impl ChainFollower {
    /// Whether a frame can be decoded: it is a still or begins a chain, or its parent is held.
    pub fn allows(&self, meta: &FrameMeta) -> bool {
        if !meta.encoding.is_chained() {
            return true;
        }
        let goes_on = ChainId::of(meta) == self.chain && meta.id.sequence > self.newest();
        is_well_formed(meta)
            && match meta.chain.reference {
                Reference::Independent => true,
                Reference::Previous => goes_on && self.index.checked_add(1) == Some(meta.chain.index),
                Reference::Acknowledged(refers) => {
                    goes_on && meta.chain.index > self.index && self.frames.contains(&refers)
                }
            }
    }

    /// Notes that a frame was decoded. Stills change nothing.
    pub fn note(&mut self, meta: &FrameMeta) {
        let Some(chain) = ChainId::of(meta) else { return };
        if meta.chain.reference == Reference::Independent {
            self.frames.clear();
        }
        (self.chain, self.index) = (Some(chain), meta.chain.index);
        if self.frames.len() == FRAMES_MAX {
            self.frames.pop_front();
        }
        self.frames.push_back(meta.id.sequence);
    }

    /// Forgets everything: the next frame must begin a chain.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The current chain.
    pub fn chain(&self) -> Option<ChainId> {
        self.chain
    }

    /// The index in the chain of the last frame held.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The last frame held.
    pub fn last(&self) -> Option<FrameId> {
        let chain = self.chain?;
        self.frames.back().map(|last| FrameId { epoch: chain.epoch, sequence: *last })
    }

    fn newest(&self) -> Sequence {
        self.frames.back().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::frame::ChainLink;
    use crate::sample;
    use crate::units::Timestamp;

    fn meta(sequence: u64, encoding: Encoding, chain: ChainLink) -> FrameMeta {
        FrameMeta {
            encoding,
            chain,
            ..sample::meta(
                FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
                Timestamp::from_nanos(sequence),
            )
        }
    }

    fn link(chain: u64, index: u32, reference: Reference) -> ChainLink {
        ChainLink { chain: Sequence(chain), index, reference }
    }

    #[test]
    fn a_frame_goes_on_where_its_parent_is_held() {
        use Reference::{Acknowledged, Independent, Previous};
        let chained = |sequence, index, reference| meta(sequence, Encoding::H264, link(5, index, reference));
        let mut follower = ChainFollower::default();
        assert!(!follower.allows(&chained(6, 1, Previous)), "nobody has the beginning");
        assert!(follower.allows(&chained(5, 0, Independent)));
        follower.note(&chained(5, 0, Independent));
        assert!(follower.allows(&chained(6, 1, Previous)));
        assert!(!follower.allows(&chained(7, 2, Previous)), "its parent is missing");
        assert!(follower.allows(&chained(7, 2, Acknowledged(Sequence(5)))));
        follower.note(&chained(7, 2, Acknowledged(Sequence(5))));
        assert!(!follower.allows(&chained(8, 3, Acknowledged(Sequence(6)))), "that one was passed over");
        assert!(!follower.allows(&chained(6, 3, Acknowledged(Sequence(5)))), "a chain never goes back");
        assert_eq!(follower.last().map(|last| last.sequence), Some(Sequence(7)));
        let still = meta(9, Encoding::Jpeg, ChainLink::still(Sequence(9)));
        assert!(follower.allows(&still));
        follower.note(&still);
        assert!(follower.allows(&chained(10, 3, Previous)), "a still ends no chain");
        let of_tiles = meta(10, Encoding::Tiles, link(5, 3, Previous));
        assert!(!follower.allows(&of_tiles), "another decoder");
        follower.forget();
        assert!(!follower.allows(&chained(10, 3, Previous)));
    }

    /// A frame that claims both to stand alone and to be inside a chain is refused.
    #[test]
    fn a_place_that_contradicts_itself_is_refused() {
        let follower = ChainFollower::default();
        for chain in [
            link(4, 0, Reference::Independent),
            link(5, 1, Reference::Independent),
            link(5, 0, Reference::Previous),
            link(6, 0, Reference::Independent),
        ] {
            assert!(!follower.allows(&meta(5, Encoding::H264, chain)), "{chain:?}");
            assert!(!begins_chain(&meta(5, Encoding::H264, chain)), "{chain:?}");
        }
    }

    fn any_link() -> impl Strategy<Value = (u64, u32, u8, u64)> {
        (0u64..20, 0u32..20, 0u8..3, 0u64..20)
    }

    proptest! {
        /// For any frames offered, the parent of each accepted frame was accepted before, back to the start of the chain.
        #[test]
        fn all_that_is_taken_can_be_decoded(offered in proptest::collection::vec((0u64..40, any_link()), 1..200)) {
            let mut follower = ChainFollower::default();
            let mut held = BTreeSet::new();
            for (sequence, (chain, index, kind, refers)) in offered {
                let reference = match kind {
                    0 => Reference::Independent,
                    1 => Reference::Previous,
                    _ => Reference::Acknowledged(Sequence(refers)),
                };
                let meta = meta(sequence, Encoding::H264, link(chain, index, reference));
                if !follower.allows(&meta) {
                    continue;
                }
                match reference {
                    Reference::Independent => {
                        prop_assert_eq!(chain, sequence);
                        held.clear();
                    }
                    Reference::Previous => prop_assert!(held.contains(&(chain, index - 1))),
                    Reference::Acknowledged(_) => prop_assert!(held.iter().any(|(of, at)| *of == chain && *at < index)),
                }
                held.insert((chain, index));
                follower.note(&meta);
                prop_assert_eq!(follower.last(), Some(meta.id));
            }
        }

        /// From any place in a chain, the needed frames lead to any later frame, and each of them is needed.
        #[test]
        fn what_is_needed_leads_to_a_frame(
            leaps in proptest::collection::vec(prop::option::weighted(0.2, 0usize..64), 2..64),
            place in any::<prop::sample::Index>(),
            target in any::<prop::sample::Index>(),
        ) {
            let chain = (0..leaps.len()).map(|at| {
                let reference = match leaps[at] {
                    _ if at == 0 => Reference::Independent,
                    Some(to) => Reference::Acknowledged(Sequence((to % at) as u64)),
                    None => Reference::Previous,
                };
                meta(at as u64, Encoding::H264, link(0, at as u32, reference))
            });
            let chain: Vec<FrameMeta> = chain.collect();
            let (place, target) = (place.index(chain.len()), target.index(chain.len()));
            let lead = |follower: &mut ChainFollower, to: usize| {
                let behind = chain[..to].iter().rev();
                let needed = needed_before(follower, &chain[to], behind, |meta| meta).unwrap();
                for (at, meta) in needed.iter().enumerate() {
                    let next = needed.get(at + 1).map_or(&chain[to], |next| next);
                    assert!(is_parent(meta, next) && follower.allows(meta), "{meta:?}");
                    follower.note(meta);
                }
                assert!(follower.allows(&chain[to]));
                follower.note(&chain[to]);
            };
            let mut follower = ChainFollower::default();
            lead(&mut follower, place);
            lead(&mut follower, target);
            prop_assert!(needed_before(&ChainFollower::default(), &chain[target], &chain[1..target.max(1)], |meta| meta).is_none() || target == 0);
        }
    }
}
