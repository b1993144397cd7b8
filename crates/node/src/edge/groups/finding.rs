//! Finds what a group asks for: stills of frames in memory, and frames that are no longer in memory.

use std::collections::HashMap;
use std::sync::Arc;

use mez_core::frame::FrameId;
use mez_core::group::session::{For, GroupQuestion};
use mez_core::history::PastAnswer;
use mez_core::name::CameraName;
use mez_core::stills::StillAnswer;
use tokio::task::JoinSet;

use crate::edge::subscription::SharedCameras;
use crate::reading::{AsksStills, Past, PastSources};

/// What was found.
pub(super) enum Found {
    Still(CameraName, FrameId, StillAnswer),
    Past(CameraName, For, PastAnswer),
}

/// The open questions of a group.
pub(super) struct Finding {
    places: Arc<PastSources>,
    /// Readers of a camera's past that are idle between two questions. True: for the group's session. False: for records that are given again.
    waiting: HashMap<(CameraName, bool), Past>,
    past: JoinSet<(u64, For, Past, PastAnswer)>,
    stills: JoinSet<(CameraName, FrameId, StillAnswer)>,
    /// How often each camera was forgotten. An answer of an earlier generation is about a log that was put aside.
    generations: HashMap<CameraName, u64>,
}

impl Finding {
    pub(super) fn new(places: Arc<PastSources>) -> Self {
        Self {
            places,
            waiting: HashMap::new(),
            past: JoinSet::new(),
            stills: JoinSet::new(),
            generations: HashMap::new(),
        }
    }

    /// Asks a question. Returns the answer if it is known at once.
    pub(super) fn ask(&mut self, question: GroupQuestion, cameras: &SharedCameras) -> Option<Found> {
        match question {
            GroupQuestion::Still(camera, query) => {
                let frame = query.frame;
                let Some(still) = cameras.still(&camera, query) else {
                    return Some(Found::Still(camera, frame, StillAnswer::NotDecoded));
                };
                let still = async move { (camera, frame, still.await.unwrap_or(StillAnswer::NotDecoded)) };
                self.stills.spawn(still);
            }
            GroupQuestion::Past(camera, asked, query) => {
                let waiting = self.waiting.remove(&(camera.clone(), asked == For::Session));
                let mut past = waiting.unwrap_or_else(|| Past::new(&self.places, &camera));
                let generation = self.generation(&camera);
                self.past.spawn(async move {
                    let answer = past.answer(query).await;
                    (generation, asked, past, answer)
                });
            }
        }
        None
    }

    /// Waits for the next answer; for ever if no question is open. Cancel-safe.
    pub(super) async fn next(&mut self) -> Found {
        loop {
            tokio::select! {
                Some(made) = self.stills.join_next() => {
                    // A task ends without an answer only when the runtime shuts down.
                    if let Ok((camera, frame, answer)) = made {
                        return Found::Still(camera, frame, answer);
                    }
                }
                Some(read) = self.past.join_next() => {
                    if let Ok((generation, asked, past, answer)) = read
                        && generation == self.generation(past.camera())
                    {
                        let camera = past.camera().clone();
                        self.waiting.insert((camera.clone(), asked == For::Session), past);
                        return Found::Past(camera, asked, answer);
                    }
                }
                else => std::future::pending().await,
            }
        }
    }

    /// Forgets a camera. If it comes again, its past is read anew.
    pub(super) fn forget(&mut self, camera: &CameraName) {
        self.waiting.retain(|(of, _), _| of != camera);
        *self.generations.entry(camera.clone()).or_default() += 1;
    }

    /// Drops all open questions. The group asks them anew when it is opened again.
    pub(super) fn drop_all(&mut self) {
        (self.past, self.stills) = (JoinSet::new(), JoinSet::new());
        self.waiting.clear();
    }

    fn generation(&self, camera: &CameraName) -> u64 {
        self.generations.get(camera).copied().unwrap_or_default()
    }
}
