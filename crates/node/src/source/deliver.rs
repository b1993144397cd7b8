//! Delivers the frames of a source: of a recording when they are due, of a live source as they arrive.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mez_media::jpeg::JpegFrame;

use super::encoder::JpegWorker;
use super::key_frames::KeyFrames;
use super::pace::{Schedule, Thinning};
use super::packets::CodedPicture;
use super::queue::EventQueue;
use super::reader::{Arrived, Picture, Spare, give_back};
use super::stream::HandOver;
use super::types::{Shared, SourceFrame, SourcePacket};

/// A frame that is ready to be delivered.
enum Deliverable {
    Frame(SourceFrame),
    Packet(SourcePacket),
}

/// The state of a source that outlives its children.
pub(super) struct Progress {
    pub(super) events: Arc<EventQueue>,
    shared: Arc<Mutex<Shared>>,
    schedule: Option<Schedule>,
    pub(super) thinning: Option<Thinning>,
    last_captured: Option<Instant>,
    /// The number of frames of the recording that were taken in this pass over it.
    pub(super) position: u64,
    /// Asks the source for key frames.
    pub(super) key_frames: Arc<KeyFrames>,
    encoder: JpegWorker,
}

impl Progress {
    /// The state of a source of which nothing has been read.
    pub(super) fn new(
        events: Arc<EventQueue>,
        shared: Arc<Mutex<Shared>>,
        encoder: JpegWorker,
        key_frames: Arc<KeyFrames>,
    ) -> Self {
        let (schedule, thinning, last_captured) = (None, None, None);
        Self { events, shared, schedule, thinning, last_captured, position: 0, key_frames, encoder }
    }

    pub(super) fn lock_shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers the frames of a recording, each when it is due.
    pub(super) async fn deliver_paced(
        &mut self,
        hand_over: &HandOver<Arrived>,
        spare: &Spare,
        frames_per_second: f64,
    ) {
        while let Some(Arrived { picture, .. }) = hand_over.pop().await {
            let now = Instant::now();
            let is_coded = matches!(picture, Picture::Coded(_));
            if !is_coded
                && self
                    .schedule
                    .as_mut()
                    .is_some_and(|schedule| schedule.leave_out(now, hand_over.has_item()))
            {
                self.events.add_skipped(1);
                give_back(spare, picture);
                continue;
            }
            // Encoded before it is due, as a camera does. So measurements from then on cover the transport, and not the encoder.
            let Some(frame) = self.encoded(picture, spare).await else { continue };
            let now = Instant::now();
            let schedule = self.schedule.get_or_insert_with(|| Schedule::new(now, frames_per_second));
            let slot = schedule.take(now);
            // Coded pictures need each other: a late picture gets a later slot, and none is left out.
            self.events.add_skipped(if is_coded { 0 } else { slot.skipped });
            tokio::time::sleep_until(slot.due.into()).await;
            self.push(frame, slot.due);
        }
    }

    /// Delivers the frames of a live source as they arrive.
    pub(super) async fn deliver_live(&mut self, hand_over: &HandOver<Arrived>, spare: &Spare) {
        while let Some(Arrived { picture, began }) = hand_over.pop().await {
            let Some(frame) = self.encoded(picture, spare).await else { continue };
            // Two frames that arrive in one read get different capture times.
            let earliest = self.last_captured.map(|last| last + Duration::from_micros(1));
            let captured = earliest.map_or(began, |earliest| began.max(earliest));
            self.last_captured = Some(captured);
            self.push(frame, captured);
        }
    }

    fn push(&self, frame: Deliverable, captured: Instant) {
        match frame {
            Deliverable::Frame(frame) => self.events.push_frame(SourceFrame { captured, ..frame }),
            Deliverable::Packet(packet) => self.events.push_packet(SourcePacket { captured, ..packet }),
        }
    }

    /// Encodes a raw picture as JPEG; other pictures pass unchanged. `None` if encoding fails; the frame is then counted as skipped.
    async fn encoded(&mut self, picture: Picture, spare: &Spare) -> Option<Deliverable> {
        let captured = Instant::now();
        match picture {
            Picture::Jpeg(JpegFrame { jpeg, info }) => {
                let (width, height) = (info.width, info.height);
                Some(Deliverable::Frame(SourceFrame { jpeg, width, height, captured }))
            }
            Picture::Coded(CodedPicture { payload, encoding, width, height, part }) => {
                Some(Deliverable::Packet(SourcePacket { payload, encoding, width, height, part, captured }))
            }
            Picture::Raw(raw) => {
                let (width, height) = (raw.width, raw.height);
                let (jpeg, raw) = self.encoder.encode(raw).await;
                if let Some(raw) = raw {
                    give_back(spare, Picture::Raw(raw));
                }
                match jpeg {
                    Ok(jpeg) => Some(Deliverable::Frame(SourceFrame { jpeg, width, height, captured })),
                    Err(detail) => {
                        tracing::warn!("a frame was lost: {detail}");
                        self.events.add_skipped(1);
                        None
                    }
                }
            }
        }
    }
}
