//! Holds all grants of an edge, and checks requests against them.

use std::collections::{BTreeMap, BTreeSet};

use super::bearer::{Bearer, Grantee, is_own};
use super::grant::Grant;
use super::granted::Granted;
use super::refusal::{Refusal, SHOWN_MAX};
use super::tree::{PatternSet, PatternTree};
use super::verb::Verb;
use crate::name::{CameraName, CameraPattern};

/// What happens to a request that no grant allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stance {
    /// The request is refused.
    #[default]
    Deny,
    /// Members of the site and users of the edge's host may do everything that some interface asks
    /// for, except that only users of the host may operate. For sites that are older than grants.
    Open,
}

impl Stance {
    /// Whether the stance alone lets `who` do `verb`.
    fn allows(self, who: &Bearer, verb: Verb) -> bool {
        use Verb::{Export, Observe, Operate, Originals, Profile, Publish, Read, Reply, Watch};
        let is_member = matches!(who, Bearer::App(_) | Bearer::Edge(_));
        let is_user = matches!(who, Bearer::User(_));
        self == Self::Open
            && match verb {
                Publish | Watch | Read | Originals | Reply | Observe | Export | Profile => {
                    is_member || is_user
                }
                Operate => is_user,
                _ => false,
            }
    }
}

/// The granted cameras of each verb.
type Verbs = BTreeMap<Verb, PatternSet>;

/// Who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    stance: Stance,
    grants: BTreeSet<Grant>,
    apps: PatternTree<Verbs>,
    edges: PatternTree<Verbs>,
    users: BTreeMap<u32, Verbs>,
    every_user: Verbs,
}

impl Rights {
    /// These grants. The same grant twice counts once.
    pub fn new(stance: Stance, grants: impl IntoIterator<Item = Grant>) -> Self {
        let mut rights = Self { stance, ..Self::default() };
        for grant in grants {
            let Grant { grantee, verb, cameras } = &grant;
            let verbs = match grantee {
                Grantee::App(names) => rights.apps.entry(names),
                Grantee::Edge(names) => rights.edges.entry(names),
                Grantee::User(uid) => rights.users.entry(*uid).or_default(),
                Grantee::EveryUser => &mut rights.every_user,
            };
            verbs.entry(*verb).or_default().insert(cameras.clone());
            rights.grants.insert(grant);
        }
        rights
    }

    /// The rights without any configuration: no grants, and [`Stance::Open`].
    pub fn open() -> Self {
        Self::new(Stance::Open, [])
    }

    /// What happens to a request that no grant allows.
    pub fn stance(&self) -> Stance {
        self.stance
    }

    /// All grants, in order.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter()
    }

    /// Whether `who` may do `verb` with `camera`.
    ///
    /// # Errors
    /// The missing grant.
    pub fn check(&self, who: &Bearer, verb: Verb, camera: &CameraName) -> Result<(), Refusal> {
        if self.allows(who, verb, camera) { Ok(()) } else { Err(self.refusal(who, verb, camera.into())) }
    }

    /// Like [`Rights::check`], without the reason.
    pub fn allows(&self, who: &Bearer, verb: Verb, camera: &CameraName) -> bool {
        match who {
            Bearer::Camera(name) => verb == Verb::Publish && is_own(name, camera),
            _ => {
                self.needs_no_grant(who, verb)
                    || self.any(who, |verbs| verbs.get(&verb).is_some_and(|cameras| cameras.matches(camera)))
            }
        }
    }

    /// The cameras of `pattern`, present and future, with which `who` may do all of `verbs`.
    ///
    /// # Errors
    /// The missing grant, if no camera of the pattern could be allowed.
    pub fn select(&self, who: &Bearer, verbs: &[Verb], pattern: &CameraPattern) -> Result<Granted, Refusal> {
        if let Some(camera) = pattern.as_camera() {
            verbs.iter().try_for_each(|verb| self.check(who, *verb, &camera))?;
            return Ok(Granted::EVERYTHING);
        }
        let mut sets = Vec::new();
        for verb in verbs.iter().filter(|verb| !self.needs_no_grant(who, **verb)) {
            let mut set = PatternSet::default();
            let overlapping =
                self.cameras(who, *verb).into_iter().filter(|cameras| cameras.overlaps(pattern));
            overlapping.for_each(|cameras| set.insert(cameras));
            if set.is_empty() {
                return Err(self.refusal(who, *verb, pattern.clone()));
            }
            sets.push(set);
        }
        Ok(Granted::within(sets))
    }

    /// The cameras for which grants allow `who` to do `verb`.
    pub fn cameras(&self, who: &Bearer, verb: Verb) -> BTreeSet<CameraPattern> {
        let mut found = BTreeSet::new();
        self.any(who, |verbs| {
            found.extend(verbs.get(&verb).into_iter().flat_map(PatternSet::patterns).cloned());
            false
        });
        found
    }

    /// The granted cameras of `who` for `verb` that may overlap `pattern`. `None`: no grant is needed.
    pub(super) fn patterns(
        &self,
        who: &Bearer,
        verb: Verb,
        pattern: &CameraPattern,
    ) -> Option<BTreeSet<CameraPattern>> {
        let mut cameras = (!self.needs_no_grant(who, verb)).then(|| self.cameras(who, verb))?;
        cameras.retain(|cameras| cameras.overlaps(pattern));
        Some(cameras)
    }

    fn needs_no_grant(&self, who: &Bearer, verb: Verb) -> bool {
        *who == Bearer::Owner || self.stance.allows(who, verb)
    }

    /// Whether `found` is true for the grants of some grantee that includes `who`.
    fn any(&self, who: &Bearer, mut found: impl FnMut(&Verbs) -> bool) -> bool {
        match who {
            Bearer::App(name) => self.apps.any(name, found),
            Bearer::Edge(name) => self.edges.any(name, found),
            Bearer::User(uid) => self.users.get(uid).is_some_and(&mut found) || found(&self.every_user),
            // Neither of them can have grants.
            Bearer::Camera(_) | Bearer::Owner => false,
        }
    }

    fn refusal(&self, who: &Bearer, verb: Verb, cameras: CameraPattern) -> Refusal {
        // Only the first ones, so that a refusal does not take longer with more grants.
        let mut has = BTreeSet::new();
        self.any(who, |verbs| {
            let patterns = verbs.get(&verb).into_iter().flat_map(PatternSet::patterns);
            has.extend(patterns.take(SHOWN_MAX + 1).cloned());
            has.len() > SHOWN_MAX
        });
        let has_more = has.len() > SHOWN_MAX;
        let has = has.into_iter().take(SHOWN_MAX).collect();
        Refusal { who: who.clone(), verb, cameras, has, has_more }
    }
}
