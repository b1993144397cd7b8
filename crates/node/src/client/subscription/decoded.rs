//! Receives the results of decoders: pictures, and requests for a new chain.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mez_core::name::CameraName;
use mez_core::units::Instant;

use super::shared::Shared;
use crate::api::pb;
use crate::client::chains::Sink;
use crate::client::frame::ReceivedFrame;
use crate::clock::monotonic_now;

/// The shortest time between two requests to restart a camera's chain. The edge does not ask the camera more often.
const RESTART_INTERVAL: Duration = Duration::from_secs(2);

/// Receives pictures from decoders, and asks the edge for a new chain if they cannot decode one.
pub(super) struct DecodedFrames {
    shared: Arc<Shared>,
    runtime: tokio::runtime::Handle,
    /// When the edge was last asked to restart a camera's chain.
    told: Mutex<HashMap<CameraName, Instant>>,
}

impl DecodedFrames {
    pub(super) fn new(shared: &Arc<Shared>) -> Arc<Self> {
        let (shared, runtime) = (Arc::clone(shared), tokio::runtime::Handle::current());
        Arc::new(Self { shared, runtime, told: Mutex::default() })
    }
}

impl Sink for DecodedFrames {
    fn put(&self, frame: Box<ReceivedFrame>) {
        self.shared.put_frame(frame);
    }

    fn restart(&self, camera: &CameraName) {
        let now = monotonic_now();
        // Each statement leaves the map consistent, so a poisoned lock is safe to use.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(camera).is_some_and(|last| now.saturating_since(*last) < RESTART_INTERVAL) {
            return;
        }
        told.insert(camera.clone(), now);
        let (edge, subscription_id) = {
            let opened = self.shared.opened();
            (opened.edge.clone(), opened.id)
        };
        let request = pb::RestartChainRequest { subscription_id, camera: camera.as_str().into() };
        self.runtime.spawn(async move {
            if let Err(error) = edge.restart_chain(request).await {
                tracing::debug!("a chain that cannot be decoded was not reported to the edge: {error}");
            }
        });
    }
}
