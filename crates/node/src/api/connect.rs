//! Answers `Connect`: versions, and the clock exchange.

use mez_core::units::Instant;
use tonic::Code;

use super::{ApiError, SOFTWARE, VERSION, pb};
use crate::clock::{monotonic_now, wall_now};

/// The answer of every broker to `Connect`.
pub(super) fn answer_connect(
    request: &pb::ConnectRequest,
    received: Instant,
    cameras: Vec<String>,
    frame_bytes_max: u32,
) -> Result<pb::ConnectResponse, ApiError> {
    // A client that gives no version uses version 1.
    let (lowest, highest) = (request.version_min.max(1), request.version_max.max(1));
    if !(lowest..=highest).contains(&VERSION) {
        let older = if lowest > VERSION { "the broker" } else { "the client" };
        return Err(ApiError::new(
            Code::Unimplemented,
            "VERSION",
            format!(
                "the client speaks versions {lowest} to {highest} of mez.v1, the broker ({SOFTWARE}) version {VERSION}; \
                 update {older}"
            ),
        )
        .at("version_min"));
    }
    Ok(pb::ConnectResponse {
        version: VERSION,
        software: SOFTWARE.into(),
        client_sent_monotonic_ns: request.client_sent_monotonic_ns,
        broker_received_monotonic_ns: received.as_nanos(),
        broker_utc_ns: wall_now().as_nanos(),
        frame_bytes_max,
        cameras,
        broker_sent_monotonic_ns: monotonic_now().as_nanos(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_meet_or_the_older_side_is_named() {
        let answer = |version_min, version_max| {
            let request = pb::ConnectRequest { version_min, version_max, ..Default::default() };
            answer_connect(&request, Instant::ZERO, Vec::new(), 1 << 20)
        };
        for (lowest, highest) in [(0, 0), (1, 1), (1, 7), (0, 3)] {
            assert_eq!(answer(lowest, highest).unwrap().version, 1, "{lowest} to {highest}");
        }
        assert!(answer(2, 3).unwrap_err().message.ends_with("update the broker"));
        assert_eq!(answer(3, 2).unwrap_err().code, Code::Unimplemented);
    }
}
