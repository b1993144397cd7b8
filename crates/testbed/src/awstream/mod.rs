//! Repeats AWStream's experiment with the published measurements of its authors: pedestrian detection at 33 ms per frame, over a link that is narrow
//! for four minutes (B. Zhang et al., SIGCOMM 2018). The data is MIT-licensed and not part of this project.
//!
//! | module | contents |
//! | --- | --- |
//! | [`data`] | the published measurements: the profile, and the bytes and score of every frame at every configuration |
//! | [`mod@replay`] | the link, with one contender |
//! | [`mod@score`] | scores of what the application got |

pub mod data;
pub mod replay;
pub mod score;

pub use self::data::{DataError, Measurements};
pub use self::replay::{Contender, Replay, replay};
pub use self::score::{Score, Second, score};
