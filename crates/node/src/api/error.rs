//! Errors of the applications' interface: a status code, a stable reason, the field at fault, a sentence.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::pb;

/// The domain of [`ApiError::reason`] in the details of a status.
pub const ERROR_DOMAIN: &str = "mez.v1";

/// Why a request was refused or a stream ended. The same over gRPC (as status details in the standard form) and over
/// the local protocol (as a [`pb::Error`]).
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
}

impl ApiError {
    /// An error that is not about one field.
    pub fn new(code: Code, reason: &str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), field: None, message: message.into() }
    }

    /// A field that makes no sense.
    pub fn invalid(field: &str, reason: &str, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(Code::InvalidArgument, reason, message) }
    }

    /// The same error, about `field`.
    pub fn at(self, field: &str) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// The broker stops, or has stopped.
    pub fn stopping() -> Self {
        Self::new(Code::Unavailable, "STOPPING", "the broker is stopping; connect again when it is back")
    }

    /// What a status that came from a broker says.
    pub fn from_status(status: &Status) -> Self {
        let info = status.get_details_error_info();
        let info = info.filter(|info| info.domain == ERROR_DOMAIN);
        let (reason, field) = match info {
            Some(mut info) => (info.reason, info.metadata.remove("field")),
            None => (format!("{:?}", status.code()), None),
        };
        Self { code: status.code(), reason, field, message: status.message().into() }
    }

    /// Whether the same request may succeed later, without being changed.
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

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        let mut details = ErrorDetails::new();
        let mut metadata = HashMap::new();
        if let Some(field) = &error.field {
            metadata.insert("field".into(), field.clone());
            details.add_bad_request_violation(field, &error.message);
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
