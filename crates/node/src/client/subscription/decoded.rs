//! What decoders of chains are given: where pictures go, and whom to tell of a chain that cannot be decoded.

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

/// The edge is told at most so often that a camera's chain cannot be decoded; it asks the camera no more often.
const RESTART_INTERVAL: Duration = Duration::from_secs(2);

/// Where decoders put pictures, and whom they tell what they cannot decode.
pub(super) struct Handing {
    shared: Arc<Shared>,
    runtime: tokio::runtime::Handle,
    /// When the edge was last told of a camera.
    told: Mutex<HashMap<CameraName, Instant>>,
}

impl Handing {
    pub(super) fn new(shared: &Arc<Shared>) -> Arc<Self> {
        let (shared, runtime) = (Arc::clone(shared), tokio::runtime::Handle::current());
        Arc::new(Self { shared, runtime, told: Mutex::default() })
    }
}

impl Sink for Handing {
    fn put(&self, frame: Box<ReceivedFrame>) {
        self.shared.put(|mailbox| mailbox.put_frame(frame));
    }

    fn restart(&self, camera: &CameraName) {
        let now = monotonic_now();
        // Every statement leaves it whole.
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
                tracing::debug!("the edge was not told of a chain that cannot be decoded: {error}");
            }
        });
    }
}
