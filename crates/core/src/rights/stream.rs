//! Decides whether a running stream may continue.

use std::collections::{BTreeMap, BTreeSet};

use super::bearer::Bearer;
use super::change::Change;
use super::granted::Granted;
use super::refusal::Refusal;
use super::table::Rights;
use super::verb::Verb;
use crate::name::CameraPattern;

/// What a stream was granted when it began, and whether this still holds.
///
/// The server of the stream calls [`StreamRights::look`] at every change of the rights and
/// before every output. So nothing is sent to a client that has lost the right meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRights {
    who: Bearer,
    verbs: Vec<Verb>,
    cameras: CameraPattern,
    granted: Granted,
    /// The granted cameras for each of `verbs`, to report what was taken. `None`: no grant was needed.
    had: Patterns,
}

/// Granted cameras, by verb.
type Patterns = BTreeMap<Verb, Option<BTreeSet<CameraPattern>>>;

impl StreamRights {
    /// Requests all of `verbs` for `cameras`, present and future.
    ///
    /// # Errors
    /// The missing grant, if there can be no such camera.
    pub fn ask(
        rights: &Rights,
        who: Bearer,
        verbs: Vec<Verb>,
        cameras: CameraPattern,
    ) -> Result<Self, Refusal> {
        let granted = rights.select(&who, &verbs, &cameras)?;
        let had = patterns(rights, &who, &verbs, &cameras);
        Ok(Self { who, verbs, cameras, granted, had })
    }

    /// The cameras that the stream may have.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// From now on, the stream also needs `verb`, and [`StreamRights::look`] checks it.
    pub fn needs(&mut self, verb: Verb) {
        if !self.verbs.contains(&verb) {
            self.verbs.push(verb);
        }
    }

    /// Whether the stream may continue under these rights. It must end if its cameras are no longer
    /// the same, even if cameras were added: a session keeps the cameras that it began with.
    ///
    /// # Errors
    /// Why the stream ends.
    pub fn look(&self, rights: &Rights) -> Result<(), Lost> {
        if rights.select(&self.who, &self.verbs, &self.cameras)? == self.granted {
            return Ok(());
        }
        let has = patterns(rights, &self.who, &self.verbs, &self.cameras);
        let changes = has.into_iter().filter_map(|(verb, has)| {
            let had = self.had.get(&verb).cloned().flatten();
            Change::between(verb, &self.cameras, had, has)
        });
        let changes: Vec<Change> = changes.collect();
        // The patterns differ, but the cameras are the same.
        if changes.is_empty() {
            return Ok(());
        }
        Err(Lost::Changed { who: self.who.clone(), changes })
    }
}

fn patterns(rights: &Rights, who: &Bearer, verbs: &[Verb], cameras: &CameraPattern) -> Patterns {
    verbs.iter().map(|verb| (*verb, rights.patterns(who, *verb, cameras))).collect()
}

/// Why a stream ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The stream may have no camera any more.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The stream may have other cameras than before. The same request then gets these.
    #[error("{}", Change::sentence(who, changes))]
    Changed {
        /// The client of the stream.
        who: Bearer,
        /// What was taken, and what was given.
        changes: Vec<Change>,
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
        for (other, told) in [
            (
                &[("yard/*", watch)][..],
                "app/counter may no longer watch dock/*: its grants of watch are now for yard/*; to restore the grant, run \
                 `mez keys grant app/counter watch 'dock/*'` on the edge's host",
            ),
            (&[("dock/*", watch), ("yard/*", watch)], "app/counter may now also watch yard/*"),
        ] {
            let lost = stream.look(&strict(other)).unwrap_err();
            assert_eq!(lost.to_string(), told);
        }
        let lost = stream.look(&strict(&[("**", read)])).unwrap_err();
        assert!(matches!(&lost, Lost::Refused(refusal) if refusal.verb == watch), "{lost}");
        assert!(lost.to_string().contains("`mez keys grant app/counter watch '**'`"), "{lost}");
    }

    #[test]
    fn a_grant_that_another_one_includes_is_neither_lost_nor_won() {
        let watch = Verb::Watch;
        let (one, both, more) = (
            strict(&[("dock/*", watch)]),
            strict(&[("dock/cam1", watch), ("dock/*", watch)]),
            strict(&[("dock/**", watch)]),
        );
        for cameras in ["**", "dock/*"] {
            assert_eq!(watching(&both, cameras).look(&one), Ok(()));
            assert_eq!(watching(&one, cameras).look(&both), Ok(()));
        }
        assert_eq!(watching(&one, "dock/*").look(&more), Ok(()));
        let told = watching(&one, "**").look(&more).unwrap_err().to_string();
        assert_eq!(told, "app/counter may now also watch dock/**");
    }

    /// The site was open, and is now strict.
    #[test]
    fn a_stream_that_needed_no_grant_is_told_which_it_needs() {
        let who = Bearer::App("counter".parse().unwrap());
        let verbs = vec![Verb::Watch, Verb::Read];
        let stream = StreamRights::ask(&Rights::open(), who, verbs, "dock/*".parse().unwrap()).unwrap();
        let rights = strict(&[("dock/cam1", Verb::Watch), ("**", Verb::Read)]);
        let told = stream.look(&rights).unwrap_err().to_string();
        assert!(
            told.contains("may no longer watch dock/*: its grants of watch are now for dock/cam1"),
            "{told}"
        );
        assert!(!told.contains("read"), "what it has of all its cameras is no loss: {told}");
    }

    #[test]
    fn what_a_stream_needs_later_is_asked_for_as_well() {
        let rights = strict(&[("dock/*", Verb::Watch)]);
        let mut stream = watching(&rights, "dock/cam1");
        stream.needs(Verb::Profile);
        let lost = stream.look(&rights).unwrap_err().to_string();
        assert!(lost.contains("may not use its own profile for dock/cam1"), "{lost}");
    }
}
