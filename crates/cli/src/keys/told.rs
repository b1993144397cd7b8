//! Tells the audit log of this host's edge who changed its rights or the deny list.

use std::path::{Path, PathBuf};

use mez_core::audit::{Event, Kind};
use mez_core::rights::Grant;
use mez_node::audit::folder::audit_folder;
use mez_node::audit::told;
use mez_node::clock::wall_now;
use mez_node::rights::RightsFile;
use mez_node::state;

use super::{KeysError, Terminal};

/// The log of the edge with this folder for state, or with the default one.
pub(super) fn log(state: Option<&Path>) -> Option<PathBuf> {
    state::folder(state).ok().map(|state| audit_folder(&state))
}

impl Terminal<'_> {
    /// Tells that grants were given or taken back in a file.
    pub(super) fn tell_grants(
        &mut self,
        what: &str,
        grants: &[Grant],
        file: &RightsFile,
    ) -> Result<(), KeysError> {
        let path = file.path().display();
        grants.iter().try_for_each(|grant| {
            let event = Event::new(wall_now(), Kind::Rights, "").what(what).cameras(grant.cameras.as_str());
            self.tell(&event.why(format!("{grant}, in {path}")))
        })
    }

    /// Tells that something was done. What was done stays done if nobody can be told.
    pub(super) fn tell(&mut self, event: &Event) -> Result<(), KeysError> {
        let Some(log) = &self.log else { return Ok(()) };
        if let Err(error) = told::tell(log, event) {
            writeln!(self.notes, "The audit log of this host's edge does not learn who did this: {error}")?;
        }
        Ok(())
    }
}
