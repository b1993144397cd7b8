//! Converts errors of Rust to the exceptions of `mez.errors`.

use std::fmt::Display;

use mez_core::broker::PublishError;
use mez_core::log::AppendError;
use mez_media::jpeg::EncodeError;
use mez_node::api::ApiError;
use mez_node::camera::StartError;
use mez_node::client::{ClientError, SendError};
use mez_node::state::StateError;
use pyo3::prelude::*;

/// An exception of the class `class` of `mez.errors`.
pub(crate) fn raise(py: Python<'_>, class: &str, message: impl Display) -> PyErr {
    let exception = || py.import("mez.errors")?.getattr(class)?.call1((message.to_string(),));
    match exception() {
        Ok(exception) => PyErr::from_value(exception),
        // The Python package is damaged: that error is raised instead.
        Err(error) => error,
    }
}

/// Adds an attribute to an exception.
pub(crate) fn with<'py>(py: Python<'py>, error: PyErr, name: &str, value: impl IntoPyObject<'py>) -> PyErr {
    match error.value(py).setattr(name, value) {
        Ok(()) => error,
        Err(error) => error,
    }
}

/// The exception for an invalid argument.
pub(crate) fn argument(py: Python<'_>, field: &str, message: impl Display) -> PyErr {
    with(py, raise(py, "ArgumentError", message), "field", field)
}

/// The exception for a camera broker that did not start.
pub(crate) fn start(py: Python<'_>, failure: &StartError) -> PyErr {
    match failure {
        StartError::Edges(_) => argument(py, "edge", failure),
        StartError::NotPermitted { .. } | StartError::Tls(_) => raise(py, "KeysError", failure),
        StartError::State(state @ StateError::Held { .. }) => raise(py, "CameraInUseError", state),
        StartError::State(state) => raise(py, "StateError", state),
        StartError::Persist(log) => raise(py, "StateError", log),
        StartError::LogEpoch { .. } => raise(py, "StateError", failure),
    }
}

/// The exception for pixels that could not be encoded.
pub(crate) fn encode(py: Python<'_>, failure: &EncodeError) -> PyErr {
    match failure {
        EncodeError::Quality { .. } => argument(py, "quality", failure),
        EncodeError::TooLarge { .. } | EncodeError::Image(_) => raise(py, "ImageError", failure),
        _ => raise(py, "Error", failure),
    }
}

/// The exception for a frame that was refused.
pub(crate) fn publish(py: Python<'_>, failure: &PublishError) -> PyErr {
    match failure {
        PublishError::Empty { .. } => raise(py, "ImageError", failure),
        PublishError::TooLarge { bytes, bytes_max } => too_large(py, *bytes as u64, u64::from(*bytes_max)),
        PublishError::EmptyData | PublishError::NotData(_) => argument(py, "payload", failure),
        PublishError::TooFarAhead { .. } => argument(py, "captured", failure),
        PublishError::Log(AppendError::LargerThanLog { bytes, bytes_max }) => {
            let error = raise(py, "FrameTooLargeError", failure);
            with(py, with(py, error, "size_bytes", *bytes), "size_bytes_max", *bytes_max)
        }
        PublishError::Log(AppendError::CaptureTime { last, new }) => {
            let error = with(py, raise(py, "CaptureTimeError", failure), "field", "captured");
            let error = with(py, error, "captured_ns", new.as_nanos());
            with(py, error, "last_captured_ns", last.as_nanos())
        }
        PublishError::Log(AppendError::Held { .. }) => raise(py, "LogFullError", failure),
        PublishError::Log(AppendError::OutOfOrder { .. }) => raise(py, "PublishError", failure),
    }
}

/// The exception for a frame that was not sent to a separate broker.
pub(crate) fn send(py: Python<'_>, failure: &SendError) -> PyErr {
    match failure {
        SendError::Empty { .. } => raise(py, "ImageError", failure),
        SendError::EmptyData => argument(py, "payload", failure),
        SendError::TooLarge { bytes, bytes_max } => too_large(py, *bytes as u64, (*bytes_max).into()),
        SendError::Over(reason) => client(py, reason),
    }
}

/// The exception for a frame that a separate broker refused.
pub(crate) fn refused_frame(py: Python<'_>, refusal: &ApiError, captured_ns: Option<u64>) -> PyErr {
    match refusal.reason.as_str() {
        "FRAME_TOO_LARGE" | "FRAME_LARGER_THAN_LOG" => raise(py, "FrameTooLargeError", refusal),
        "CAPTURE_TIME" => {
            let error = with(py, raise(py, "CaptureTimeError", refusal), "field", "captured");
            with(py, error, "captured_ns", captured_ns)
        }
        "EMPTY_FRAME" | "DAMAGED_IMAGE" | "WRONG_SIZE" => raise(py, "ImageError", refusal),
        "LOG_HELD" => raise(py, "LogFullError", refusal),
        _ => refused(py, refusal),
    }
}

/// The exception for a frame that exceeds the limit of bytes.
pub(crate) fn too_large(py: Python<'_>, bytes: u64, bytes_max: u64) -> PyErr {
    let message = format!(
        "the frame has {bytes} bytes, more than the limit of {bytes_max}; raise frame_bytes_max or encode it \
         smaller"
    );
    let error = with(py, raise(py, "FrameTooLargeError", message), "size_bytes", bytes);
    with(py, error, "size_bytes_max", bytes_max)
}

/// The exception for a failed call to a broker.
pub(crate) fn client(py: Python<'_>, failure: &ClientError) -> PyErr {
    match failure {
        ClientError::Unreachable { .. }
        | ClientError::Untrusted { .. }
        | ClientError::TimedOut { .. }
        | ClientError::Elsewhere { .. } => raise(py, "ConnectError", failure),
        ClientError::NoCredentials { .. } => raise(py, "KeysError", failure),
        ClientError::Protocol { .. } => raise(py, "VersionError", failure),
        ClientError::Refused(refusal) => refused(py, refusal),
    }
}

/// The exception for a broker's refusal.
pub(crate) fn refused(py: Python<'_>, refusal: &ApiError) -> PyErr {
    // The numbers are those of google.rpc.Code.
    let class = match refusal.code as i32 {
        3 => "ArgumentError",
        5 => "NotFoundError",
        7 => "PermissionDenied",
        16 => "KeysError",
        8 => "BusyError",
        9 if refusal.reason == "INFEASIBLE" => "InfeasibleError",
        12 => "VersionError",
        14 => "ConnectError",
        _ => "BrokerError",
    };
    let error = with(py, raise(py, class, refusal), "reason", &refusal.reason);
    match &refusal.field {
        Some(field) => with(py, error, "field", in_python(field)),
        None => error,
    }
}

/// The Python argument that corresponds to a field of the applications' API.
fn in_python(field: &str) -> &str {
    match field {
        "begin_utc_ns" => "since",
        "end_utc_ns" => "until",
        "latency_bound_ns" => "latency_ms",
        "accept_encodings" => "accept",
        "accuracy_floor" => "accuracy",
        "bound_ns" => "answer_ms",
        "profile_inline" | "profile_name" => "profile",
        "captured_utc_ns" => "captured",
        other => other,
    }
}

/// The exception for the use of a closed object.
pub(crate) fn closed(py: Python<'_>, what: &str) -> PyErr {
    raise(py, "EndedError", format!("the {what} is closed; open a new one"))
}
