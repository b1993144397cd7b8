//! What is revoked: a certificate by its serial number, or a member of the site by its name.

use std::fmt;
use std::str::FromStr;

use crate::name::CameraName;
use crate::units::Timestamp;

/// The most bytes of a serial number (RFC 5280, section 4.1.2.2).
const SERIAL_BYTES_MAX: usize = 20;
/// The most characters of a refused text that an error repeats.
const SHOWN_CHARS_MAX: usize = 128;
/// The roles of members of a site.
const ROLES: [&str; 3] = ["camera", "edge", "app"];

/// The serial number of a certificate, without leading zeros.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(Box<[u8]>);

impl Serial {
    /// The serial number with these bytes, as in a certificate. `None` if the number is 0 or too long for a certificate.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let first = bytes.iter().position(|byte| *byte != 0)?;
        let significant = &bytes[first..];
        (significant.len() <= SERIAL_BYTES_MAX).then(|| Self(significant.into()))
    }

    /// The bytes, the most significant first.
    pub const fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Serial {
    /// In hexadecimal digits, two for each byte.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Serial {
    type Err = SubjectError;

    /// Hexadecimal digits, as `mez keys show` and OpenSSL print them: colons between bytes and capitals are allowed.
    fn from_str(text: &str) -> Result<Self, SubjectError> {
        let refused = || SubjectError::Serial { text: clipped(text) };
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
        if digits.len() > 2 * SERIAL_BYTES_MAX + 2 {
            return Err(refused());
        }
        let value = |digit: &u8| char::from(*digit).to_digit(16).map(|value| value as u8);
        let mut values = digits.iter().map(value).collect::<Option<Vec<u8>>>().ok_or_else(refused)?;
        if values.len() % 2 == 1 {
            values.insert(0, 0);
        }
        let bytes: Vec<u8> = values.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        Self::new(&bytes).ok_or_else(refused)
    }
}

/// A member of the site by role and name, such as `camera/dock/cam1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberName(Box<str>);

impl MemberName {
    /// The name as text.
    pub const fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for MemberName {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Self, SubjectError> {
        let is_member = text
            .split_once('/')
            .is_some_and(|(role, name)| ROLES.contains(&role) && name.parse::<CameraName>().is_ok());
        if is_member { Ok(Self(text.into())) } else { Err(SubjectError::Member { text: clipped(text) }) }
    }
}

/// A certificate, or a member of the site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// One certificate.
    Serial(Serial),
    /// All certificates that a member was given until the revocation.
    Member(MemberName),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serial(serial) => serial.fmt(f),
            Self::Member(member) => member.fmt(f),
        }
    }
}

impl FromStr for Subject {
    type Err = SubjectError;

    /// A text with a `/` is a member, a text without one is a serial number.
    fn from_str(text: &str) -> Result<Self, SubjectError> {
        match text.contains('/') {
            true => text.parse().map(Self::Member),
            false => text.parse().map(Self::Serial),
        }
    }
}

/// The certificate with which a member proves its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The member that the certificate was issued to.
    pub member: MemberName,
    /// The serial number of the certificate.
    pub serial: Serial,
    /// When the certificate was issued, in whole seconds.
    pub issued: Timestamp,
}

/// Why a text names neither a certificate nor a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// Not a serial number.
    #[error(
        "{text:?} is neither a member nor a serial number; write camera/NAME, edge/NAME or app/NAME, or the hexadecimal serial that `mez keys \
         show` and `mez cameras show` print"
    )]
    Serial {
        /// The text that was refused.
        text: String,
    },
    /// Not a member.
    #[error(
        "{text:?} is not a member of a site; write camera/NAME, edge/NAME or app/NAME, without wildcards"
    )]
    Member {
        /// The text that was refused.
        text: String,
    },
}

fn clipped(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
