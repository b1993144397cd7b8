//! The options of a group, and the events of its records.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::frame::FrameId;
use crate::name::CameraName;
use crate::subscription::Deliver;

/// The most members of a group.
pub const MEMBERS_MAX: usize = 1_024;
/// The most bytes of a member's error that are kept. The rest is cut off.
pub const ERROR_BYTES_MAX: usize = 500;
/// The allowed values of [`GroupOptions`].
const AGAIN_AFTER: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(86_400);
const AWAY_MAX: Duration = Duration::from_secs(600);
const TRIES: RangeInclusive<usize> = 1..=100;
const OPEN: RangeInclusive<usize> = 1..=10_000;

/// The number of a member. A program keeps its number when it connects again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u128);

/// How a group shares its records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupOptions {
    /// The newest record of each camera, given once, or every record, given until it is settled.
    pub deliver: Deliver,
    /// Whether a camera's records are worked on one after the other. Default: no.
    pub ordered: bool,
    /// Whether a free member waits for the next record of a camera if that comes sooner than the newest one is old. Applies only to
    /// [`Deliver::Newest`]. Default: no.
    pub fresh: bool,
    /// How long a member may work on a record before the record is given to another member. Applies only to [`Deliver::Every`]. Default: 30 s.
    pub again_after: Duration,
    /// How long a member whose connection was lost may take to come back before its records are given to others. Default: 1 s.
    pub away_max: Duration,
    /// How often a record is given before it becomes a dead letter. Default: 5.
    pub tries_max: usize,
    /// The most records that are given and not settled, over all members. Default: 1,000.
    pub open_max: usize,
}

impl GroupOptions {
    /// The newest record of each camera, to a member that is free.
    pub const NEWEST: Self = Self {
        deliver: Deliver::Newest,
        ordered: false,
        fresh: false,
        again_after: Duration::from_secs(30),
        away_max: Duration::from_secs(1),
        tries_max: 5,
        open_max: 1_000,
    };
    /// Every record, at least once.
    pub const EVERY: Self = Self { deliver: Deliver::Every, ..Self::NEWEST };

    /// Whether the group has a place that must survive a restart of the edge. A group of
    /// the newest has none, because records that were not given are old after a restart.
    pub fn keeps_place(&self) -> bool {
        self.deliver == Deliver::Every
    }

    /// Refuses invalid options.
    ///
    /// # Errors
    /// The invalid option, and its allowed values.
    pub fn validate(&self) -> Result<(), OptionsError> {
        if self.fresh && self.deliver == Deliver::Every {
            return Err(OptionsError::FreshOfEvery);
        }
        if !AGAIN_AFTER.contains(&self.again_after) {
            return Err(OptionsError::AgainAfter(self.again_after));
        }
        if self.away_max > AWAY_MAX {
            return Err(OptionsError::Away(self.away_max));
        }
        if !TRIES.contains(&self.tries_max) {
            return Err(OptionsError::Tries(self.tries_max));
        }
        if !OPEN.contains(&self.open_max) {
            return Err(OptionsError::Open(self.open_max));
        }
        Ok(())
    }
}

/// An invalid option of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// [`GroupOptions::again_after`].
    #[error("again_after is {0:?}; give a time from {min:?} to {max:?}, longer than the work on a record takes",
        min = AGAIN_AFTER.start(), max = AGAIN_AFTER.end())]
    AgainAfter(Duration),
    /// [`GroupOptions::fresh`].
    #[error("fresh is set in a group that gets every record; leave out fresh, or ask for the newest records")]
    FreshOfEvery,
    /// [`GroupOptions::away_max`].
    #[error(
        "away_max is {0:?}; give at most {AWAY_MAX:?}: for this long, nobody works on the records of a lost member"
    )]
    Away(Duration),
    /// [`GroupOptions::tries_max`].
    #[error("tries is {0}; give a number from {min} to {max}", min = TRIES.start(), max = TRIES.end())]
    Tries(usize),
    /// [`GroupOptions::open_max`].
    #[error("open_max is {0}; give a number from {min} to {max}", min = OPEN.start(), max = OPEN.end())]
    Open(usize),
}

/// A change of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record was given to a member.
    Given {
        /// The record's camera.
        camera: CameraName,
        /// The record's frame.
        frame: FrameId,
        /// The member that it was given to.
        member: MemberId,
    },
    /// The record has ended.
    Settled {
        /// The record's camera.
        camera: CameraName,
        /// The record's frame.
        frame: FrameId,
        /// How it ended.
        end: End,
    },
    /// The record's camera was forgotten, with all of its records.
    Forgotten {
        /// Which camera.
        camera: CameraName,
    },
}

/// How a record ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A member has done its work.
    Done(MemberId),
    /// It was given as often as allowed, and no member did the work.
    Dead {
        /// How often it was given.
        tries: usize,
        /// How the last try ended.
        last: Failure,
    },
    /// It cannot be given again.
    Lost(LostReason),
}

/// How a try ended without its work done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The member said so, in these words.
    Told(String),
    /// The member said nothing in time.
    Silent,
    /// The member left, or its connection was lost and did not come back in time.
    Left,
}

impl Failure {
    /// A failure with a member's words, cut off at [`ERROR_BYTES_MAX`].
    pub fn told(why: &str) -> Self {
        let end = why.floor_char_boundary(ERROR_BYTES_MAX);
        Self::Told(why[..end].to_owned())
    }
}

/// Why a record was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LostReason {
    /// The edge no longer holds the record.
    Evicted,
    /// No still can be made of the record any more.
    NotDecoded,
    /// The member that had it is gone, and the group gives each record once.
    MemberLeft,
    /// The edge has forgotten the record's camera, or the camera counts its frames anew.
    Forgotten,
    /// The group no longer reads the record's camera: it asks for other cameras, or has lost the right.
    NotRead,
}

/// A record for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The member that gets it.
    pub member: MemberId,
    /// The record's camera.
    pub camera: CameraName,
    /// The record's frame.
    pub frame: FrameId,
    /// The number of this try, from 1.
    pub attempt: usize,
}

/// The effect of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    /// The record is settled now.
    Settled,
    /// The record was not open: it had ended before, because its work was done twice or too late.
    Again,
}

/// Why a member's report was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The group is full.
    #[error("the group has {MEMBERS_MAX} members, which is the limit")]
    Full,
    /// The reporter is not a member.
    #[error("member {0:032x} has not joined the group, or has left the group; join first")]
    NoMember(u128),
    /// The record was never given to this member.
    #[error("frame {} of {camera} was not given to this member; only its own records can be acknowledged", frame.sequence.0)]
    NotGiven {
        /// The record's camera.
        camera: CameraName,
        /// The record's frame.
        frame: FrameId,
    },
}
