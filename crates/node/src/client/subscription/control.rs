//! Changes a running subscription, and reports to it.

use std::sync::Arc;
use std::time::Duration;

use mez_core::contract::Contract;
use mez_core::frame::FrameId;
use mez_core::name::CameraName;

use super::shared::Shared;
use super::speak::flush;
use crate::api::contract::Profile;
use crate::api::{contract, pb};
use crate::client::ClientError;

/// A handle that changes a subscription and reports to it. It does not keep the subscription open.
#[derive(Clone, Debug)]
pub struct SubscriptionControl {
    pub(super) shared: Arc<Shared>,
}

impl SubscriptionControl {
    /// Replaces the contract. Cameras, time span and encodings stay. The change survives a lost connection.
    pub async fn update(&self, contract: &Contract, profile: Option<&Profile>) -> Result<(), ClientError> {
        let contract = Some(contract::message(contract, profile));
        let (edge, subscription_id) = {
            let mut opened = self.shared.opened();
            opened.request.contract.clone_from(&contract);
            (opened.edge.clone(), opened.id)
        };
        edge.update_contract(pb::UpdateContractRequest { subscription_id, contract }).await.map(|_| ())
    }

    /// Reports that the work on a record of the program's group is done, or why it failed. Does not wait: the edge is told later, even
    /// after a lost connection. Returns false if the program does not hold the record, for example because it has reported it before.
    pub fn settle(&self, camera: &CameraName, frame: FrameId, failed: Option<String>) -> bool {
        self.shared.member.as_ref().is_some_and(|member| member.settle(camera, frame, failed))
    }

    /// Leaves the group. First tells the edge what the program has reported about its records, for at
    /// most `patience`. Records that the program holds and has not reported are given to others at once.
    pub async fn leave(&self, patience: Duration) -> Result<(), ClientError> {
        let Some(member) = &self.shared.member else { return Ok(()) };
        member.set_leaving(true);
        // What waits behind a full mailbox may come now.
        self.shared.went.notify_one();
        flush(&self.shared, patience).await;
        let (edge, subscription_id) = {
            let opened = self.shared.opened();
            (opened.edge.clone(), opened.id)
        };
        let left = edge.unsubscribe(pb::UnsubscribeRequest { subscription_id }).await;
        if left.is_err() {
            member.set_leaving(false);
        }
        left.map(|_| ())
    }

    /// Reports how accurate the application's own result on a frame of `camera` was, from 0 to 1.
    pub async fn report_accuracy(&self, camera: &CameraName, accuracy: f64) -> Result<(), ClientError> {
        let (edge, subscription_id) = {
            let opened = self.shared.opened();
            (opened.edge.clone(), opened.id)
        };
        let camera = camera.as_str().to_owned();
        let request = pb::ReportAccuracyRequest { subscription_id, camera, accuracy };
        edge.report_accuracy(request).await.map(|_| ())
    }
}
