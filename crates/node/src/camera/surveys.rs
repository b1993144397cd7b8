//! Surveys the camera's own log, in memory and on disk, for an edge that asks what it holds.

use mez_core::history::Survey;
use mez_core::units::Timestamp;
use tracing::warn;

use super::driver::Driver;
use crate::held::{LogOf, Surveyor};
use crate::work;

impl Driver {
    /// Surveys a span on a blocking thread. The survey ends early if the broker stops. A log that cannot be read gives no survey.
    pub(super) fn survey(&mut self, span: (Timestamp, Timestamp)) {
        let camera = self.shared.camera.clone();
        let disk = self.shared.places.as_ref().and_then(|places| places.skimming(&camera));
        let logs = (disk, Some(self.shared.reader.clone()));
        self.surveys.spawn(async move {
            let surveyor = |stop| Surveyor::new(LogOf::Camera, logs, span, stop);
            let survey: Survey = match work::run(None, surveyor, Surveyor::run).await {
                Ok(Ok(survey)) => survey,
                Ok(Err(error)) => {
                    warn!(%camera, "the log on disk cannot be surveyed: {error}; `mez store verify` names the damage");
                    return None;
                }
                // The survey fails to return only when the runtime shuts down.
                Err(_) => return None,
            };
            Some(survey)
        });
    }
}
