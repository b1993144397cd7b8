//! The built-in operators: their effect on the rows of a record, and the values that they accept.

use bytes::Bytes;
use mez_core::data::ContentType;
use mez_core::setting::KnobValue;

use super::{json, npy};

/// A kind of operator. The knob's value is its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorKind {
    /// Keeps the first rows, as many as the value says.
    Head,
    /// Keeps every nth row, beginning with the first. The value is n.
    Downsample,
    /// Keeps the rows whose key is at least the value.
    Threshold,
    /// Rounds numbers. The value is the number of decimals for JSON, or of bits for arrays of floats.
    Precision,
}

impl OperatorKind {
    /// All operators.
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

    /// Whether the operator accepts a value.
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

    /// The accepted values, as text for error messages.
    pub const fn what_it_takes(self) -> &'static str {
        match self {
            Self::Head => "whole numbers from 0",
            Self::Downsample => "whole numbers from 1",
            Self::Threshold => "any number",
            Self::Precision => "0 to 15 decimals for JSON, 16, 32 or 64 bits for arrays",
        }
    }
}

/// The part of a row that a threshold compares.
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
    /// For thresholds: the part of a row that is compared. `None`: the row itself is a number.
    pub key: Option<Key>,
}

impl Operator {
    /// Applies the operator to a body. The error is a message for users.
    pub(super) fn apply(
        &self,
        content_type: &ContentType,
        body: &Bytes,
        value: KnobValue,
    ) -> Result<Bytes, String> {
        let essence = content_type.essence().to_ascii_lowercase();
        let whole = || {
            value.whole().map(|whole| whole as usize).ok_or_else(|| format!("{value} is not a whole number"))
        };
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
            "its content type is {content_type}; operators take application/json and application/x-npy, a function takes any type"
        ))
    }
}
