//! Checks answers of applications: pictures that they made of frames, and what is to be drawn over frames.

use bytes::Bytes;
use mez_core::answers::AnswerKind;
use mez_core::broker::edge::GivenAnswer;

use super::image::answer_kind;
use super::{ApiError, pb};
use crate::reply::ReplyContent;

/// Checks an answer. Pixels are not decoded. Boxes are converted to pixels of the frame as it was published.
pub(super) fn parse(request: pb::AnswerRequest) -> Result<GivenAnswer, ApiError> {
    use pb::answer_request::Content;
    let pb::AnswerRequest { content, replaced, published_width, published_height, .. } = request;
    let coded = match content {
        Some(Content::Detections(detections)) => {
            let size = (published_width, published_height);
            let payload = ReplyContent::published(detections, size)?.into_result().bytes().clone();
            return Ok(GivenAnswer { kind: AnswerKind::Boxes, payload, size, replaced });
        }
        Some(Content::Payload(payload)) => payload,
        None => Bytes::new(),
    };
    let (kind, size) = answer_kind(&coded)?;
    Ok(GivenAnswer { kind, payload: coded, size, replaced })
}
