//! Changes what a running subscription asks for.

use std::sync::Arc;

use mez_core::name::CameraName;

use super::options::SubscribeOptions;
use super::shared::Shared;
use crate::api::pb;
use crate::client::ClientError;

/// What a subscription asks for. Does not keep it open.
#[derive(Clone, Debug)]
pub struct Terms {
    pub(super) shared: Arc<Shared>,
}

impl Terms {
    /// Asks for something else from now on: the bounds, the profile, `min_fps`, `on_infeasible` and the priority of `options`; the rest
    /// of them stays as it was. Also holds after the connection was lost.
    pub async fn update(&self, options: &SubscribeOptions) -> Result<(), ClientError> {
        use pb::subscribe_request::Profile as Message;
        use pb::update_contract_request::Profile as Changed;
        let message = options.message("");
        let (edge, subscription_id) = {
            let mut asked = self.shared.asked();
            let before = &mut asked.request;
            before.latency_bound_ns = message.latency_bound_ns;
            before.accuracy_floor = message.accuracy_floor;
            before.on_time_share = message.on_time_share;
            before.profile.clone_from(&message.profile);
            before.min_fps = message.min_fps;
            before.on_infeasible = message.on_infeasible;
            before.priority = message.priority;
            (asked.edge.clone(), asked.id)
        };
        let request = pb::UpdateContractRequest {
            subscription_id,
            latency_bound_ns: message.latency_bound_ns,
            accuracy_floor: message.accuracy_floor,
            on_time_share: message.on_time_share,
            profile: message.profile.map(|profile| match profile {
                Message::ProfileInline(bytes) => Changed::ProfileInline(bytes),
                Message::ProfileName(name) => Changed::ProfileName(name),
            }),
            min_fps: message.min_fps,
            on_infeasible: message.on_infeasible,
            priority: message.priority,
        };
        edge.update_contract(request).await.map(|_| ())
    }

    /// Says how accurate the application's own result on a frame of `camera` was, from 0 to 1.
    pub async fn report_accuracy(&self, camera: &CameraName, accuracy: f64) -> Result<(), ClientError> {
        let (edge, subscription_id) = {
            let asked = self.shared.asked();
            (asked.edge.clone(), asked.id)
        };
        let camera = camera.as_str().to_owned();
        let request = pb::ReportAccuracyRequest { subscription_id, camera, accuracy };
        edge.report_accuracy(request).await.map(|_| ())
    }
}
