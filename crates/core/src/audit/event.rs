//! Defines the events that are recorded.

use std::fmt;
use std::str::FromStr;

use super::span::Span;
use crate::units::Timestamp;

/// The most bytes of a text in a record. Longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 512;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The edge started.
    Started,
    /// The edge stopped normally.
    Stopped,
    /// A device got a certificate for a token.
    Enrolled,
    /// A client connected, and proved its identity.
    Connected,
    /// A client was refused, before or after it proved its identity.
    Refused,
    /// Frames of the past, or notes about them, were given out.
    Read,
    /// Frames of the past, or notes about them, were given out to be written into files.
    Exported,
    /// The rights in force changed.
    Rights,
    /// A certificate or an identity was put on the deny list.
    Revoked,
    /// A member got a new certificate for its old one.
    Renewed,
    /// A camera was reset or forgotten.
    Operated,
    /// Records could not be written. Contains their count and the reason.
    Lost,
    /// The log on disk is not as the edge left it.
    Damaged,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Started,
        Self::Stopped,
        Self::Enrolled,
        Self::Connected,
        Self::Refused,
        Self::Read,
        Self::Exported,
        Self::Rights,
        Self::Revoked,
        Self::Renewed,
        Self::Operated,
        Self::Lost,
        Self::Damaged,
    ];

    /// The kind as the log and the command name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Stopped => "stopped",
            Self::Enrolled => "enrolled",
            Self::Connected => "connected",
            Self::Refused => "refused",
            Self::Read => "read",
            Self::Exported => "exported",
            Self::Rights => "rights",
            Self::Revoked => "revoked",
            Self::Renewed => "renewed",
            Self::Operated => "operated",
            Self::Lost => "lost",
            Self::Damaged => "damaged",
        }
    }

    /// Whether a client can cause the event again and again, so that repeats are counted in one record
    /// ([`super::repeats`]). The other kinds need the edge's own host, or a new token each time.
    pub const fn is_repeatable(self) -> bool {
        matches!(self, Self::Connected | Self::Refused | Self::Read | Self::Exported | Self::Renewed)
    }

    /// Whether data of cameras was given out, so that a record of several events names their cameras.
    pub(super) const fn is_of_cameras(self) -> bool {
        matches!(self, Self::Read | Self::Exported)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| UnknownKind { text: text.chars().take(32).collect() })
    }
}

/// The error for a text that is no kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a kind of record; the kinds are started, stopped, enrolled, connected, refused, read, exported, rights, \
     revoked, renewed, operated, lost and damaged"
)]
pub struct UnknownKind {
    /// The text that was refused.
    pub text: String,
}

/// An event, or several equal ones. Texts that are empty are left out of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened, by the wall clock of the edge. Of several events, the time of the last.
    pub at: Timestamp,
    /// What happened.
    pub kind: Kind,
    /// Who did it: `app/counter`, `camera/dock/cam1`, `user/1000`, or an address if the client did not prove its identity.
    pub who: String,
    /// What exactly: a verb, an operation, a serial number.
    pub what: String,
    /// The cameras concerned: a name or a pattern.
    pub cameras: String,
    /// The address of the client.
    pub from: String,
    /// Why, or further details, as a sentence.
    pub why: String,
    /// How many equal events happened since the previous record of them. Default 1.
    pub count: u64,
    /// Of several events, the time of the first.
    pub since: Option<Timestamp>,
    /// Which frames were given out, so that several readings can share one record. It is not written itself, because `why` contains it.
    pub span: Option<Span>,
}

impl Event {
    /// An event that happened once.
    pub fn new(at: Timestamp, kind: Kind, who: impl Into<String>) -> Self {
        Self {
            at,
            kind,
            who: cut(who.into()),
            what: String::new(),
            cameras: String::new(),
            from: String::new(),
            why: String::new(),
            count: 1,
            since: None,
            span: None,
        }
    }

    /// Sets what exactly happened.
    #[must_use]
    pub fn what(self, what: impl Into<String>) -> Self {
        Self { what: cut(what.into()), ..self }
    }

    /// Sets the cameras concerned.
    #[must_use]
    pub fn cameras(self, cameras: impl Into<String>) -> Self {
        Self { cameras: cut(cameras.into()), ..self }
    }

    /// Sets the address of the client.
    #[must_use]
    pub fn from(self, from: impl Into<String>) -> Self {
        Self { from: cut(from.into()), ..self }
    }

    /// Sets the reason.
    #[must_use]
    pub fn why(self, why: impl Into<String>) -> Self {
        Self { why: cut(why.into()), ..self }
    }

    /// Sets which frames were given out, and makes this the reason.
    #[must_use]
    pub fn span(self, span: Span) -> Self {
        Self { span: Some(span), ..self.why(span.to_string()) }
    }
}

/// Cuts a text that is too long for a record.
fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX - 3).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}
