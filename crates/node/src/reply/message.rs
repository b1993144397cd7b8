//! Converts results to and from messages of the application API.

use mez_core::wire::ReplyResult;
use prost::Message;

use super::{Detection, Detections, DetectionsError, KeyPoint, Mask, ReplyContent};
use crate::api::{ApiError, pb};

impl ReplyContent {
    /// Checks an application's result, and converts it to published pixels.
    pub fn parse(request: &mut pb::ReplyRequest) -> Result<Self, ApiError> {
        use pb::reply_request::Content;
        let detections = match request.content.take() {
            None => return Ok(Self::Opaque(Default::default())),
            Some(Content::Payload(payload)) => return Ok(Self::Opaque(payload)),
            Some(Content::Detections(detections)) => detections,
        };
        Self::published(detections, (request.published_width, request.published_height))
    }

    /// Checks detections of an application, and converts them to pixels of the frame as it was published.
    pub(crate) fn published(detections: pb::Detections, published: (u32, u32)) -> Result<Self, ApiError> {
        if published.0 == 0 || published.1 == 0 {
            let message = "the request does not give the published size of the frame; copy published_width and published_height from the Frame";
            return Err(ApiError::invalid("published_width", "NO_PUBLISHED_SIZE", message));
        }
        let detections = Detections::from_message(detections)
            .map_err(|error| ApiError::invalid("detections", "INVALID_DETECTIONS", error.to_string()))?;
        Ok(Self::Detections(detections.scaled_to(published)))
    }

    /// The form that crosses the link.
    pub(crate) fn into_result(self) -> ReplyResult {
        match self {
            Self::Opaque(bytes) => ReplyResult::Opaque(bytes),
            Self::Detections(detections) => {
                ReplyResult::Detections(detections.into_message().encode_to_vec().into())
            }
        }
    }

    /// Decodes the form that crosses the link. The error is a message.
    pub(crate) fn from_result(result: ReplyResult) -> Result<Self, String> {
        match result {
            ReplyResult::Opaque(bytes) => Ok(Self::Opaque(bytes)),
            ReplyResult::Detections(bytes) => Detections::from_bytes(&bytes).map(Self::Detections),
        }
    }

    /// The form for publishers.
    pub(crate) fn into_reply(self) -> pb::reply::Content {
        match self {
            Self::Opaque(bytes) => pb::reply::Content::Payload(bytes),
            Self::Detections(detections) => pb::reply::Content::Detections(detections.into_message()),
        }
    }

    /// Decodes the form for publishers.
    pub(crate) fn from_reply(content: Option<pb::reply::Content>) -> Result<Self, DetectionsError> {
        match content {
            None => Ok(Self::Opaque(Default::default())),
            Some(pb::reply::Content::Payload(bytes)) => Ok(Self::Opaque(bytes)),
            Some(pb::reply::Content::Detections(detections)) => {
                Detections::from_message(detections).map(Self::Detections)
            }
        }
    }
}

impl Detections {
    /// Decodes a message `Detections` of `mez.proto`, such as the payload of an answer that is boxes. The error is text for people.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let message = pb::Detections::decode(bytes).map_err(|error| error.to_string())?;
        Self::from_message(message).map_err(|error| error.to_string())
    }

    pub(crate) fn from_message(message: pb::Detections) -> Result<Self, DetectionsError> {
        let items = message.detections.into_iter().map(Detection::from_message).collect();
        Self::new((message.width, message.height), items)
    }

    pub(crate) fn into_message(self) -> pb::Detections {
        let (width, height) = self.size();
        let detections = self.into_items().into_iter().map(Detection::into_message).collect();
        pb::Detections { width, height, detections }
    }
}

impl Detection {
    fn from_message(message: pb::Detection) -> Self {
        let point = |point: pb::KeyPoint| KeyPoint { x: point.x, y: point.y, score: point.score };
        Self {
            xyxy: [message.x1, message.y1, message.x2, message.y2],
            score: message.score,
            class_id: message.class_id,
            class_name: message.class_name,
            tracker_id: message.tracker_id,
            mask: message.mask.map(|pb::Mask { width, height, runs }| Mask { width, height, runs }),
            key_points: message.key_points.into_iter().map(point).collect(),
        }
    }

    fn into_message(self) -> pb::Detection {
        let [x1, y1, x2, y2] = self.xyxy;
        let point = |point: KeyPoint| pb::KeyPoint { x: point.x, y: point.y, score: point.score };
        pb::Detection {
            x1,
            y1,
            x2,
            y2,
            score: self.score,
            class_id: self.class_id,
            class_name: self.class_name,
            tracker_id: self.tracker_id,
            mask: self.mask.map(|Mask { width, height, runs }| pb::Mask { width, height, runs }),
            key_points: self.key_points.into_iter().map(point).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detections() -> pb::Detections {
        let item = pb::Detection {
            x1: 1.0,
            y1: 2.0,
            x2: 3.5,
            y2: 4.0,
            score: Some(0.9),
            class_id: Some(-1),
            class_name: "person".into(),
            tracker_id: Some(1 << 40),
            mask: Some(pb::Mask { width: 2, height: 1, runs: vec![1, 1] }),
            key_points: vec![pb::KeyPoint { x: 2.0, y: 3.0, score: None }],
        };
        pb::Detections { width: 320, height: 240, detections: vec![item, pb::Detection::default()] }
    }

    fn request(published: (u32, u32), detections: pb::Detections) -> pb::ReplyRequest {
        pb::ReplyRequest {
            content: Some(pb::reply_request::Content::Detections(detections)),
            published_width: published.0,
            published_height: published.1,
            ..Default::default()
        }
    }

    /// A result reaches the publisher unchanged, except for its scale.
    #[test]
    fn detections_reach_the_publisher_in_published_pixels() {
        let unscaled = ReplyContent::parse(&mut request((320, 240), detections())).unwrap();
        let there = ReplyContent::from_result(unscaled.into_result()).unwrap().into_reply();
        assert_eq!(there, pb::reply::Content::Detections(detections()));

        let scaled = ReplyContent::parse(&mut request((640, 240), detections())).unwrap();
        let ReplyContent::Detections(scaled) = ReplyContent::from_reply(Some(scaled.into_reply())).unwrap()
        else {
            panic!("they are detections");
        };
        assert_eq!(scaled.size(), (640, 240));
        assert_eq!(scaled.items()[0].xyxy, [2.0, 2.0, 7.0, 4.0]);
        assert_eq!(scaled.items()[0].key_points[0].x, 4.0);
    }

    #[test]
    fn a_request_that_does_not_fit_names_its_field() {
        let field = |request: &mut pb::ReplyRequest| ReplyContent::parse(request).unwrap_err().field.unwrap();
        assert_eq!(field(&mut request((0, 240), detections())), "published_width");
        let no_size = pb::Detections { width: 0, ..detections() };
        assert_eq!(field(&mut request((640, 480), no_size)), "detections");
    }

    /// Opaque bytes stay unchanged. A missing content is an empty one.
    #[test]
    fn opaque_results_need_no_size() {
        let content = Some(pb::reply_request::Content::Payload("seen".into()));
        let mut request = pb::ReplyRequest { content, ..Default::default() };
        assert_eq!(ReplyContent::parse(&mut request), Ok(ReplyContent::Opaque("seen".into())));
        assert_eq!(ReplyContent::parse(&mut request), Ok(ReplyContent::Opaque(Default::default())));
        let damaged = ReplyResult::Detections(vec![0xff].into());
        assert!(ReplyContent::from_result(damaged).is_err());
    }
}
