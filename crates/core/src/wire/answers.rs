//! Encodes messages about answers: pictures that applications make of frames.

use std::time::Duration;

use super::codec::{Reader, WireError, Write};

/// Why an answer was not delivered to the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AnswerSkip {
    /// A newer answer replaced this one before its last byte left the edge.
    Replaced = 1,
    /// The answer became older than the publisher's bound before its last byte left the edge.
    Late = 2,
    /// An answer to a newer frame came first.
    Overtaken = 3,
    /// The frame was answered before.
    Repeated = 4,
    /// The publisher wants no answers.
    NotWanted = 5,
    /// The connection ended before the answer's last byte left the edge.
    LinkLost = 6,
    /// The connection ended after the answer's last byte left the edge, and before the camera confirmed the answer. The publisher may have got it.
    Unconfirmed = 7,
    /// The camera refused the answer.
    Refused = 8,
    /// At the camera: a newer answer came before the publisher took this one.
    Unread = 9,
}

impl AnswerSkip {
    /// All reasons, in the order of their wire codes.
    pub const ALL: [Self; 9] = [
        Self::Replaced,
        Self::Late,
        Self::Overtaken,
        Self::Repeated,
        Self::NotWanted,
        Self::LinkLost,
        Self::Unconfirmed,
        Self::Refused,
        Self::Unread,
    ];

    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replaced => "replaced",
            Self::Late => "late",
            Self::Overtaken => "overtaken",
            Self::Repeated => "repeated",
            Self::NotWanted => "not_wanted",
            Self::LinkLost => "link_lost",
            Self::Unconfirmed => "unconfirmed",
            Self::Refused => "refused",
            Self::Unread => "unread",
        }
    }

    /// The reason with this wire code, if this version knows it.
    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u8 == code)
    }
}

/// How many answers were not delivered to a publisher, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerSkips([u64; AnswerSkip::ALL.len()]);

impl AnswerSkips {
    /// Adds `count` answers for a reason. Counts saturate.
    pub fn add(&mut self, reason: AnswerSkip, count: u64) {
        let known = &mut self.0[reason as usize - 1];
        *known = known.saturating_add(count);
    }

    /// Removes one answer, which was delivered after all.
    pub fn remove(&mut self, reason: AnswerSkip) {
        let known = &mut self.0[reason as usize - 1];
        *known = known.saturating_sub(1);
    }

    /// Adds the counts of `others`.
    pub fn add_all(&mut self, others: &Self) {
        others.iter().for_each(|(reason, count)| self.add(reason, count));
    }

    /// The lower count of both, for each reason.
    #[must_use]
    pub fn min(&self, other: &Self) -> Self {
        let mut least = *self;
        least.0.iter_mut().zip(other.0).for_each(|(count, other)| *count = (*count).min(other));
        least
    }

    /// How much each count has grown since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut more = *self;
        more.0.iter_mut().zip(earlier.0).for_each(|(count, earlier)| *count = count.saturating_sub(earlier));
        more
    }

    /// How many answers were not delivered for this reason.
    pub const fn get(&self, reason: AnswerSkip) -> u64 {
        self.0[reason as usize - 1]
    }

    /// How many answers were not delivered in all.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |total, count| total.saturating_add(*count))
    }

    /// The reasons with a count above 0.
    pub fn iter(&self) -> impl Iterator<Item = (AnswerSkip, u64)> + '_ {
        let all = AnswerSkip::ALL.into_iter().map(|reason| (reason, self.get(reason)));
        all.filter(|(_, count)| *count > 0)
    }
}

/// Tells the edge whether the camera's publisher takes answers, and how old they may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerRequest {
    /// The longest time from a frame's capture until the last byte of its answer leaves the edge. `None`: the publisher takes no answers.
    pub bound: Option<Duration>,
}

impl AnswerRequest {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        // A bound of 0 stands for no answers.
        out.u64(self.bound.map_or(0, |bound| u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX)));
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let nanos = r.u64("bound")?;
        Ok(Self { bound: (nanos > 0).then(|| Duration::from_nanos(nanos)) })
    }
}

/// The edge's account of the answers to frames of one start of a camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerAccount {
    /// Identifies the account: the `attempt` of the [`Hello`](super::Hello) with which the edge first accepted
    /// this start of the camera. After its own restart, the edge begins another account, with another number.
    pub since: u64,
    /// How many answers applications gave since the account began.
    pub answered: u64,
    /// How many of these answers were not delivered.
    pub skipped: AnswerSkips,
}

impl AnswerAccount {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.since);
        out.u64(self.answered);
        out.u8(self.skipped.iter().count() as u8);
        for (reason, count) in self.skipped.iter() {
            out.u8(reason as u8);
            out.u64(count);
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (since, answered) = (r.u64("since")?, r.u64("answered")?);
        let mut skipped = AnswerSkips::default();
        for _ in 0..r.u8("reasons")? {
            let (code, count) = (r.u8("reason")?, r.u64("count")?);
            // A reason of a later version still says that the answers will not come.
            skipped.add(AnswerSkip::from_code(code).unwrap_or(AnswerSkip::Replaced), count);
        }
        Ok(Self { since, answered, skipped })
    }
}
