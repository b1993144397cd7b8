//! Decides for a stream that runs whether it may go on.

use super::bearer::Bearer;
use super::granted::Granted;
use super::refusal::Refusal;
use super::table::Rights;
use super::verb::Verb;
use crate::name::CameraPattern;

/// What a stream was granted when it began, and whether that still holds.
///
/// Whoever serves the stream looks ([`StreamRights::look`]) at every change of the rights, and before everything
/// that it tells: nothing is then told to somebody who has lost the right meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRights {
    who: Bearer,
    verbs: Vec<Verb>,
    cameras: CameraPattern,
    granted: Granted,
}

impl StreamRights {
    /// Asks for all of `verbs` with `cameras`, present and future.
    ///
    /// # Errors
    /// What is missing, if there can be no such camera.
    pub fn ask(
        rights: &Rights,
        who: Bearer,
        verbs: Vec<Verb>,
        cameras: CameraPattern,
    ) -> Result<Self, Refusal> {
        let granted = rights.select(&who, &verbs, &cameras)?;
        Ok(Self { who, verbs, cameras, granted })
    }

    /// The cameras that the stream may have.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// The stream needs this as well from now on. [`StreamRights::look`] then says whether it may have it.
    pub fn needs(&mut self, verb: Verb) {
        if !self.verbs.contains(&verb) {
            self.verbs.push(verb);
        }
    }

    /// Whether the stream may go on under these rights. It may not if its cameras are not the same any more, even
    /// if they are more: a session keeps the cameras that it began with.
    ///
    /// # Errors
    /// Why it ends.
    pub fn look(&self, rights: &Rights) -> Result<(), Lost> {
        if rights.select(&self.who, &self.verbs, &self.cameras)? == self.granted {
            return Ok(());
        }
        Err(Lost::Changed { who: self.who.clone(), cameras: self.cameras.clone() })
    }
}

/// Why a stream ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// It may have no camera any more.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It may have others than before. The same request then gets those.
    #[error("the rights of {who} for {cameras} have changed; subscribe again")]
    Changed {
        /// Whose stream.
        who: Bearer,
        /// What it asked for.
        cameras: CameraPattern,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::{Grant, Stance};

    fn strict(grants: &[(&str, Verb)]) -> Rights {
        let grant = |(cameras, verb): &(&str, Verb)| Grant {
            grantee: "app/counter".parse().unwrap(),
            verb: *verb,
            cameras: cameras.parse().unwrap(),
        };
        Rights::new(Stance::Deny, grants.iter().map(grant))
    }

    fn watching(rights: &Rights, cameras: &str) -> StreamRights {
        let who = Bearer::App("counter".parse().unwrap());
        StreamRights::ask(rights, who, vec![Verb::Watch], cameras.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_stream_ends_when_its_cameras_change_and_not_for_anything_else() {
        let (watch, read) = (Verb::Watch, Verb::Read);
        let stream = watching(&strict(&[("dock/*", watch)]), "**");
        let reads_too = strict(&[("dock/*", watch), ("**", read)]);
        assert_eq!(stream.look(&reads_too), Ok(()));
        for other in [&[("yard/*", watch)][..], &[("dock/*", watch), ("yard/*", watch)]] {
            let lost = stream.look(&strict(other)).unwrap_err();
            assert_eq!(lost.to_string(), "the rights of app/counter for ** have changed; subscribe again");
        }
        let lost = stream.look(&strict(&[("**", read)])).unwrap_err();
        assert!(matches!(&lost, Lost::Refused(refusal) if refusal.verb == watch), "{lost}");
        assert!(lost.to_string().contains("`mez keys grant app/counter watch '**'`"), "{lost}");
    }

    #[test]
    fn what_a_stream_needs_later_is_asked_for_as_well() {
        let rights = strict(&[("dock/*", Verb::Watch)]);
        let mut stream = watching(&rights, "dock/cam1");
        stream.needs(Verb::Profile);
        let lost = stream.look(&rights).unwrap_err().to_string();
        assert!(lost.contains("may not bring a profile for dock/cam1"), "{lost}");
    }
}
