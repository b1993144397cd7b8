//! Reports to the audit log of this host's edge who changed its rights or the deny list.

use std::path::{Path, PathBuf};

use mez_core::audit::{Event, Kind};
use mez_core::rights::Grant;
use mez_node::audit::folder::audit_folder;
use mez_node::audit::told;
use mez_node::clock::wall_now;
use mez_node::rights::RightsFile;
use mez_node::state;

use super::{KeysError, Terminal};

/// The audit log of the edge with this state folder, or with the default one.
pub(super) fn log(state: Option<&Path>) -> Option<PathBuf> {
    state::folder(state).ok().map(|state| audit_folder(&state))
}

impl Terminal<'_> {
    /// Reports that grants were added to or removed from a file.
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

    /// Reports an event. If this fails, the change is kept, and a note is printed.
    pub(super) fn tell(&mut self, event: &Event) -> Result<(), KeysError> {
        let Some(log) = &self.log else { return Ok(()) };
        if let Err(error) = told::tell(log, event) {
            writeln!(
                self.notes,
                "This change could not be recorded in the audit log of this host's edge: {error}"
            )?;
        }
        Ok(())
    }
}
