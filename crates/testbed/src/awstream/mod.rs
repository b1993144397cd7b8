//! AWStream's experiment on the measurements that its authors published (B. Zhang et al., SIGCOMM 2018; data MIT-licensed, not part of
//! this project): pedestrian detection at 33 ms a frame over a link that is narrowed for four minutes.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`data`] | the published measurements: the profile, and bytes and score of every frame at every configuration |
//! | [`mod@replay`] | the link, and one contender on it |
//! | [`mod@score`] | what the application saw |

pub mod data;
pub mod replay;
pub mod score;

pub use self::data::{DataError, Measurements};
pub use self::replay::{Contender, Replay, replay};
pub use self::score::{Score, Second, score};
