//! A record of a stream's past as text for people, such as a program's result for a frame.

use std::time::Duration;

use http::StatusCode;
use mez_core::name::CameraName;
use mez_core::units::Timestamp;
use serde::Serialize;

use super::caller::Caller;
use super::fill::utc_ms;
use super::response::{Answer, Refused, json};
use super::route::Site;
use crate::api::pb;
use crate::clock::wall_now;

/// The most bytes of a record that is shown as text. This is for people; programs subscribe instead.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// How long to wait for a record.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The first record at or after an instant.
#[derive(Debug, Serialize)]
struct RecordAt {
    edge_start: u64,
    now_utc_ms: u64,
    record: Option<Record>,
}

/// A record that a program published.
#[derive(Debug, Serialize)]
struct Record {
    epoch: u64,
    sequence: u64,
    captured_utc_ms: u64,
    content_type: String,
    bytes: usize,
    text: Option<String>,
    of: Option<Origin>,
}

/// The frame that the record was made from.
#[derive(Debug, Serialize)]
struct Origin {
    camera: String,
    epoch: u64,
    sequence: u64,
}

/// Answers with the first record that the edge holds within a span.
pub(super) async fn answer(
    site: &Site,
    caller: &Caller,
    camera: &CameraName,
    span: (Timestamp, Timestamp),
) -> Result<Answer, Refused> {
    let looking = site.api.first_record_within(&caller.principal, camera, span);
    let Ok(found) = tokio::time::timeout(TIME_MAX, looking).await else {
        let detail = "the edge's log did not give the record in time; ask again in a moment";
        return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, "TOO_SLOW", detail));
    };
    let record = found?.map(|(frame, body)| record(*frame, &body));
    let edge_start = utc_ms(site.edge.started_utc);
    Ok(json(&RecordAt { edge_start, now_utc_ms: utc_ms(wall_now()), record }))
}

fn record(frame: pb::Frame, body: &[u8]) -> Record {
    let of = frame.of.map(|of| Origin { camera: of.camera, epoch: of.epoch, sequence: of.sequence });
    Record {
        epoch: frame.epoch,
        sequence: frame.sequence,
        captured_utc_ms: frame.captured_utc_ns / 1_000_000,
        text: text_of(&frame.content_type, body),
        content_type: frame.content_type,
        bytes: body.len(),
        of,
    }
}

/// The body as text. `None`: it is not text, or too long.
fn text_of(content_type: &str, body: &[u8]) -> Option<String> {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_text = kind.starts_with("text/") || kind == "application/json" || kind.ends_with("+json");
    if !is_text || body.len() > TEXT_BYTES_MAX {
        return None;
    }
    String::from_utf8(body.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A content type may be wrong, and a body may be long.
    #[test]
    fn only_text_that_people_can_read_is_told_as_text() {
        assert_eq!(text_of("application/json", b"[1]").as_deref(), Some("[1]"));
        assert_eq!(text_of("Text/Plain; charset=utf-8", b"two").as_deref(), Some("two"));
        assert_eq!(text_of("application/geo+json", b"{}").as_deref(), Some("{}"));
        assert_eq!(text_of("application/json", &[0xff, 0xfe]), None, "no UTF-8");
        assert_eq!(text_of("application/octet-stream", b"text"), None);
        assert_eq!(text_of("", b"a picture"), None);
        assert!(text_of("text/plain", &[b'a'; TEXT_BYTES_MAX]).is_some());
        assert_eq!(text_of("text/plain", &[b'a'; TEXT_BYTES_MAX + 1]), None);
    }
}
