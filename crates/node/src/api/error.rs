//! Errors of the applications' interface: a status code, a stable reason, the field at fault, and a sentence.

use std::collections::HashMap;
use std::error::Error;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::pb;
use super::principal::Principal;

/// The domain of [`ApiError::reason`] in the details of a status.
pub const ERROR_DOMAIN: &str = "mez.v1";

/// Why a request was refused or a stream ended. gRPC carries the error as standard status details, the local protocol as a [`pb::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The class of the error, which tells a program what to do.
    pub code: Code,
    /// A stable name in capitals, such as `INVALID_PATTERN`.
    pub reason: String,
    /// The field of the request at fault.
    pub field: Option<String>,
    /// A sentence for people, with the remedy.
    pub message: String,
    /// The limit that was reached, if any.
    pub limit: Option<Box<Limit>>,
}

/// A limit that was reached, for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The limit's name, as in `docs/limits.md`.
    pub name: String,
    /// The limit's value.
    pub value: u64,
    /// Whose limit it is: a principal's, a connection's or the broker's.
    pub subject: String,
}

impl Limit {
    /// A limit of the broker as a whole.
    pub fn of_broker(name: &str, value: usize) -> Self {
        Self { name: name.into(), value: value as u64, subject: "this broker".into() }
    }

    /// A limit of one connection.
    pub fn of_connection(name: &str, value: usize) -> Self {
        Self { name: name.into(), value: value as u64, subject: "this connection".into() }
    }

    /// A limit of one principal.
    pub fn of_principal(name: &str, value: usize, principal: &Principal) -> Self {
        Self { name: name.into(), value: value as u64, subject: principal.to_string() }
    }
}

impl ApiError {
    /// An error without a field.
    pub fn new(code: Code, reason: &str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), field: None, message: message.into(), limit: None }
    }

    /// An error for an invalid field.
    pub fn invalid(field: &str, reason: &str, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(Code::InvalidArgument, reason, message) }
    }

    /// An error for a code that this version does not know.
    pub fn unknown_value(field: &str, code: i32) -> Self {
        let message = match code {
            0 => format!("{field} is required"),
            _ => format!("{field} {code} is not known to this version; see mez.proto"),
        };
        Self::invalid(field, "UNKNOWN_VALUE", message)
    }

    /// The same error, with `field` as the field at fault.
    pub fn at(self, field: &str) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// An error for an exhausted limit.
    pub fn exhausted(reason: &str, limit: Limit, message: impl Into<String>) -> Self {
        Self { limit: Some(Box::new(limit)), ..Self::new(Code::ResourceExhausted, reason, message) }
    }

    /// An error for a message that exceeds its limit.
    pub fn too_large(bytes: Option<usize>, bytes_max: usize) -> Self {
        let bytes = bytes.map_or_else(|| "too many bytes".into(), |bytes| format!("{bytes} bytes"));
        let message = format!(
            "the message has {bytes}, but the limit is {bytes_max} bytes; send smaller frames (see frame_bytes_max in the broker's Connect \
             response), and name a large profile instead of sending its content"
        );
        let limit = Limit::of_broker("message_bytes_max", bytes_max);
        Self {
            limit: Some(Box::new(limit)),
            ..Self::new(Code::InvalidArgument, "MESSAGE_TOO_LARGE", message)
        }
    }

    /// An error for a message that cannot be read.
    pub fn malformed(what: &str) -> Self {
        let message = format!(
            "the request cannot be read: {what}; generate the client anew from mez/v1/mez.proto of this version"
        );
        Self::new(Code::InvalidArgument, "MALFORMED", message)
    }

    /// The error of an application that paused in the middle of a frame for longer than the broker could keep the frame.
    pub fn too_slow() -> Self {
        Self::new(
            Code::ResourceExhausted,
            "TOO_SLOW",
            "the application stopped reading in the middle of a frame for longer than the broker can keep the frame; subscribe again, and read \
             without long pauses",
        )
    }

    /// Adds details to a status that the layers below made for a request that did not reach
    /// us. They read at most `bytes_max` of a message. Other statuses stay as they are.
    pub(super) fn refine(status: Status, bytes_max: usize) -> Status {
        if !status.details().is_empty() {
            return status;
        }
        match status.code() {
            Code::OutOfRange => {
                let numbers = status
                    .message()
                    .split(|c: char| !c.is_ascii_digit())
                    .filter_map(|text| text.parse().ok());
                Self::too_large(numbers.into_iter().find(|bytes| *bytes > bytes_max), bytes_max).into()
            }
            // A client that breaks off its request needs no details.
            Code::Internal if status.source().is_none() => Self::malformed(status.message()).into(),
            _ => status,
        }
    }

    /// An error for a record without bytes.
    pub fn empty_record() -> Self {
        Self::invalid("payload", "EMPTY_FRAME", "the record is empty; publish at least one byte")
    }

    /// The broker stops, or has stopped.
    pub fn stopping() -> Self {
        Self::new(Code::Unavailable, "STOPPING", "the broker is stopping; connect again when it is back")
    }

    /// The caller's certificate was revoked.
    pub fn revoked(message: impl Into<String>) -> Self {
        Self::new(Code::PermissionDenied, "REVOKED", message)
    }

    /// The error in a status that came from a broker.
    pub fn from_status(status: &Status) -> Self {
        let info = status.get_details_error_info();
        let info = info.filter(|info| info.domain == ERROR_DOMAIN);
        let (reason, field, limit) = match info {
            Some(mut info) => {
                let limit = Limit::from_metadata(&mut info.metadata).map(Box::new);
                (info.reason, info.metadata.remove("field"), limit)
            }
            None => (format!("{:?}", status.code()), None, None),
        };
        Self { code: status.code(), reason, field, message: status.message().into(), limit }
    }

    /// Whether the same request may succeed later without a change.
    pub fn is_passing(&self) -> bool {
        matches!(
            self.code,
            Code::Unavailable
                | Code::DeadlineExceeded
                | Code::ResourceExhausted
                | Code::Aborted
                | Code::Cancelled
        )
    }
}

/// The keys of a limit in the details of a status.
const LIMIT_KEYS: [&str; 3] = ["limit", "limit_value", "limit_subject"];

impl Limit {
    fn to_metadata(&self, metadata: &mut HashMap<String, String>) {
        let values = [self.name.clone(), self.value.to_string(), self.subject.clone()];
        metadata.extend(LIMIT_KEYS.map(String::from).into_iter().zip(values));
    }

    fn from_metadata(metadata: &mut HashMap<String, String>) -> Option<Self> {
        let [name, value, subject] = LIMIT_KEYS.map(|key| metadata.remove(key));
        Some(Self { name: name?, value: value?.parse().ok()?, subject: subject? })
    }
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        let mut details = ErrorDetails::new();
        let mut metadata = HashMap::new();
        if let Some(field) = &error.field {
            metadata.insert("field".into(), field.clone());
            details.add_bad_request_violation(field, &error.message);
        }
        if let Some(limit) = &error.limit {
            limit.to_metadata(&mut metadata);
            if error.code == Code::ResourceExhausted {
                details.add_quota_failure_violation(&limit.subject, &error.message);
            }
        }
        details.set_error_info(&error.reason, ERROR_DOMAIN, metadata);
        Self::with_error_details(error.code, error.message, details)
    }
}

impl From<ApiError> for pb::Error {
    fn from(error: ApiError) -> Self {
        Self {
            code: error.code as i32,
            reason: error.reason,
            field: error.field.unwrap_or_default(),
            message: error.message,
            limit: error.limit.map(|limit| {
                let Limit { name, value, subject } = *limit;
                pb::Limit { name, value, subject }
            }),
        }
    }
}

impl From<pb::Error> for ApiError {
    fn from(error: pb::Error) -> Self {
        Self {
            code: Code::from_i32(error.code),
            reason: error.reason,
            field: (!error.field.is_empty()).then_some(error.field),
            message: error.message,
            limit: error
                .limit
                .map(|pb::Limit { name, value, subject }| Box::new(Limit { name, value, subject })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_both_ways_of_travelling() {
        for error in [
            ApiError::invalid("pattern", "INVALID_PATTERN", "no"),
            ApiError::new(Code::NotFound, "UNKNOWN_CAMERA", "no camera x"),
            ApiError::exhausted(
                "TOO_MANY_CALLS",
                Limit::of_connection("calls_per_connection_max", 7),
                "no more",
            ),
        ] {
            assert_eq!(ApiError::from_status(&Status::from(error.clone())), error);
            assert_eq!(ApiError::from(pb::Error::from(error.clone())), error);
        }
    }

    #[test]
    fn a_status_of_somebody_else_keeps_its_code_and_text() {
        let error = ApiError::from_status(&Status::unimplemented("what?"));
        assert_eq!((error.code, error.message.as_str()), (Code::Unimplemented, "what?"));
        assert_eq!(error.field, None);
    }
}
