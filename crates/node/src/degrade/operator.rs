//! The built-in operators: what each does to the rows of a record, and which values it takes.

use bytes::Bytes;
use mez_core::data::ContentType;
use mez_core::setting::KnobValue;

use super::{json, npy};

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorKind {
    /// Keeps the first so many rows.
    Head,
    /// Keeps one row in so many, the first among them.
    Downsample,
    /// Keeps the rows whose value is at least so large.
    Threshold,
    /// Rounds numbers: of JSON to so many decimals, of arrays of floats to so many bits.
    Precision,
}

impl OperatorKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Head, Self::Downsample, Self::Threshold, Self::Precision];

    /// The name that users write.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Downsample => "downsample",
            Self::Threshold => "threshold",
            Self::Precision => "precision",
        }
    }

    /// The operator with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether a value makes sense for it.
    pub fn takes(self, value: KnobValue) -> bool {
        match self {
            Self::Head => value.whole().is_some(),
            Self::Downsample => value.whole().is_some_and(|every| every > 0),
            Self::Threshold => true,
            Self::Precision => {
                value.whole().is_some_and(|digits| digits <= 16 || digits == 32 || digits == 64)
            }
        }
    }

    /// What it takes, for people.
    pub const fn what_it_takes(self) -> &'static str {
        match self {
            Self::Head => "whole numbers from 0",
            Self::Downsample => "whole numbers from 1",
            Self::Threshold => "any number",
            Self::Precision => "0 to 15 decimals for JSON, 16, 32 or 64 bits for arrays",
        }
    }
}

/// Which value of a row counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// The member of an object with this name.
    Member(String),
    /// The item of a list, or the column of an array, from 0.
    Column(usize),
}

/// An operator of a knob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// What it does.
    pub kind: OperatorKind,
    /// Of a threshold: which value of a row counts. `None`: the row is a number itself.
    pub key: Option<Key>,
}

impl Operator {
    /// What becomes of a body. The error says why nothing does, for people.
    pub(super) fn apply(
        &self,
        content_type: &ContentType,
        body: &Bytes,
        value: KnobValue,
    ) -> Result<Bytes, String> {
        let essence = content_type.essence().to_ascii_lowercase();
        let whole =
            || value.whole().map(|whole| whole as usize).ok_or_else(|| format!("{value} is not whole"));
        if essence == "application/json" || essence.ends_with("+json") {
            return match self.kind {
                OperatorKind::Head => json::head(body, whole()?),
                OperatorKind::Downsample => json::every(body, whole()?),
                OperatorKind::Threshold => json::at_least(body, self.key.as_ref(), value.get()),
                OperatorKind::Precision => json::rounded(body, whole()?),
            };
        }
        if essence == "application/x-npy" {
            return match self.kind {
                OperatorKind::Head => npy::head(body, whole()?),
                OperatorKind::Downsample => npy::every(body, whole()?),
                OperatorKind::Threshold => npy::at_least(body, self.key.as_ref(), value.get()),
                OperatorKind::Precision => npy::narrowed(body, whole()?),
            };
        }
        Err(format!(
            "it is {content_type}; operators take application/json and application/x-npy, a function takes anything"
        ))
    }
}
