//! Keeps what applications found last in the frames of each camera, for the page.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mez_core::frame::FrameId;
use mez_core::name::CameraName;
use mez_core::units::Instant;

use super::lock;
use crate::clock::monotonic_now;
use crate::reply::{Detection, ReplyContent};

/// The most applications whose last replies are kept for one camera. Beyond that, the application with the oldest reply is removed.
const APPLICATIONS_MAX: usize = 8;
/// The most cameras. Beyond that, the camera whose newest reply is oldest is removed.
const CAMERAS_MAX: usize = 256;
/// The most detections that are kept of a reply, from its start.
pub(crate) const DETECTIONS_KEPT_MAX: usize = 100;

/// The last replies of all applications. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct LastReplies(Arc<Mutex<BTreeMap<CameraName, Vec<LastReply>>>>);

/// An application's last reply for a camera.
#[derive(Clone, Debug)]
pub(crate) struct LastReply {
    pub(crate) application: String,
    pub(crate) frame: FrameId,
    /// When the reply came.
    pub(crate) at: Instant,
    /// The size of the frame as it was published, in pixels. Boxes are in these pixels.
    pub(crate) size: (u32, u32),
    /// The number of detections.
    pub(crate) found: usize,
    /// The first detections, without masks and key points.
    pub(crate) detections: Vec<Detection>,
}

impl LastReplies {
    /// Notes an application's reply. `None`, a reply without detections, is ignored.
    pub(super) fn note(&self, camera: CameraName, reply: Option<LastReply>) {
        let Some(reply) = reply else { return };
        let mut all = lock(&self.0);
        if !all.contains_key(&camera) && all.len() >= CAMERAS_MAX {
            let newest = |replies: &Vec<LastReply>| replies.last().map(|reply| reply.at);
            let silent = all.iter().min_by_key(|(_, replies)| newest(replies)).map(|(name, _)| name.clone());
            silent.map(|name| all.remove(&name));
        }
        let replies = all.entry(camera).or_default();
        replies.retain(|known| known.application != reply.application);
        if replies.len() >= APPLICATIONS_MAX {
            replies.remove(0);
        }
        replies.push(reply);
    }

    /// The last replies to a camera, the newest last.
    pub(crate) fn of(&self, camera: &CameraName) -> Vec<LastReply> {
        lock(&self.0).get(camera).cloned().unwrap_or_default()
    }
}

impl LastReply {
    /// What is kept of a reply. `None`: the reply is not a list of detections.
    pub(crate) fn of(frame: FrameId, application: &str, content: &ReplyContent) -> Option<Self> {
        let ReplyContent::Detections(found) = content else { return None };
        let plain =
            |detection: &Detection| Detection { mask: None, key_points: Vec::new(), ..detection.clone() };
        Some(Self {
            application: application.to_owned(),
            frame,
            at: monotonic_now(),
            size: found.size(),
            found: found.items().len(),
            detections: found.items().iter().take(DETECTIONS_KEPT_MAX).map(plain).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use mez_core::frame::{Epoch, Sequence};

    use crate::reply::Detections;

    use super::*;

    #[test]
    fn the_last_replies_are_kept_and_no_more() {
        let (replies, camera) = (LastReplies::default(), |place: usize| {
            format!("dock/cam{place}").parse::<CameraName>().unwrap()
        });
        let found = Detections::new((640, 480), vec![Detection::default(); DETECTIONS_KEPT_MAX + 1]).unwrap();
        let content = ReplyContent::Detections(found);
        let frame = |sequence| FrameId { epoch: Epoch(1), sequence: Sequence(sequence) };
        let note = |place, round, application: &str, content: &ReplyContent| {
            replies.note(camera(place), LastReply::of(frame(round), application, content));
        };
        for round in 0..20 {
            note(0, round, "counter", &content);
            note(0, round, &format!("app{round}"), &content);
        }
        note(0, 99, "opaque", &ReplyContent::Opaque(bytes::Bytes::new()));
        let last = replies.of(&camera(0));
        assert_eq!(last.len(), APPLICATIONS_MAX);
        let counter = last.iter().find(|reply| reply.application == "counter").expect("it replied last");
        assert_eq!((counter.frame, counter.size), (frame(19), (640, 480)));
        assert_eq!((counter.found, counter.detections.len()), (DETECTIONS_KEPT_MAX + 1, DETECTIONS_KEPT_MAX));
        (1..=CAMERAS_MAX).for_each(|place| note(place, 0, "counter", &content));
        assert!(replies.of(&camera(0)).is_empty(), "it was replied to longest ago");
    }
}
