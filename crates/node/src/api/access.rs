//! Asks the edge's rights and its deny list: what each request needs, whether its principal has it and was not revoked,
//! and when a stream loses it.
//!
//! This is the only place of the interface that asks. Every call of [`super::edge::EdgeApi`] that gives something
//! away goes through it, and every event of a stream through [`StreamAccess::lost`]. What a request needs, and
//! when a stream must end, core decides ([`mez_core::rights`]).

use std::sync::Arc;

use mez_core::name::{CameraName, CameraPattern};
use mez_core::rights::{Granted, Lost, Refusal, StreamRights, Verb};
use mez_core::units::Timestamp;
use tonic::Code;

use super::ApiError;
use super::contract::Profile;
use super::principal::Principal;
use super::request::Subscribe;
use crate::clock::monotonic_now;
use crate::identity::refusals::Refusals;
use crate::revocation::LiveRevocations;
use crate::rights::LiveRights;

/// Answers whether a principal may do something, by the rights in force. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Access {
    rights: LiveRights,
    revoked: LiveRevocations,
    /// Tells the edge's operators who was refused, each now and then.
    refusals: Arc<Refusals>,
}

impl Access {
    pub(super) fn new(rights: LiveRights, revoked: LiveRevocations) -> Self {
        Self { rights, revoked, refusals: Arc::default() }
    }

    /// Whether `principal` may do `verb` with `camera`.
    pub(super) fn check(
        &self,
        principal: &Principal,
        verb: Verb,
        camera: &CameraName,
    ) -> Result<(), ApiError> {
        not_revoked(&self.revoked, principal)?;
        let checked = self.rights.now().check(&principal.bearer(), verb, camera);
        checked.map_err(|refusal| refused(&self.refusals, principal, &refusal))
    }

    /// The cameras of `pattern` with which `principal` may do `verb`.
    pub(super) fn select(
        &self,
        principal: &Principal,
        verb: Verb,
        pattern: &CameraPattern,
    ) -> Result<Granted, ApiError> {
        not_revoked(&self.revoked, principal)?;
        let selected = self.rights.now().select(&principal.bearer(), &[verb], pattern);
        selected.map_err(|refusal| refused(&self.refusals, principal, &refusal))
    }

    /// Why `principal` would be refused to do `verb` with the cameras of `pattern`, if it would. It only asks, so nobody
    /// else hears of it.
    pub(super) fn would(&self, principal: &Principal, verb: Verb, pattern: &CameraPattern) -> Option<String> {
        let selected = self.rights.now().select(&principal.bearer(), &[verb], pattern);
        selected.err().map(|refusal| refusal.to_string())
    }

    /// What `principal` may have of a subscription that it asks for at `now`, for as long as the stream runs.
    pub(super) fn subscribe(
        &self,
        principal: &Principal,
        asked: &Subscribe,
        now: Timestamp,
    ) -> Result<StreamAccess, ApiError> {
        let mut verbs = asked.spec.needs(now);
        if matches!(asked.profile, Some(Profile::Inline(_))) {
            verbs.push(Verb::Profile);
        }
        // Noticed before they are read, so that no change falls in between.
        let (mut rights, refusals) = (self.rights.clone(), Arc::clone(&self.refusals));
        let mut revoked = self.revoked.clone();
        revoked.notice();
        not_revoked(&revoked, principal)?;
        let (who, cameras) = (principal.bearer(), asked.spec.cameras.clone());
        let stream = StreamRights::ask(&rights.notice(), who, verbs, cameras)
            .map_err(|refusal| refused(&refusals, principal, &refusal))?;
        Ok(StreamAccess { rights, revoked, refusals, principal: principal.clone(), stream })
    }
}

/// What one stream was granted, and whether that still holds.
#[derive(Debug)]
pub struct StreamAccess {
    rights: LiveRights,
    revoked: LiveRevocations,
    refusals: Arc<Refusals>,
    principal: Principal,
    stream: StreamRights,
}

impl StreamAccess {
    /// The cameras that the stream may have.
    pub(super) fn granted(&self) -> &Granted {
        self.stream.granted()
    }

    /// Waits until the rights or the deny list have changed. Cancelling this loses nothing.
    pub(super) async fn changed(&mut self) {
        tokio::select! {
            () = self.rights.changed() => {}
            () = self.revoked.changed() => {}
        }
    }

    /// Why the stream must end, if its cameras are not the same any more.
    pub(super) fn lost(&mut self) -> Option<ApiError> {
        if self.rights.has_changed() || self.revoked.has_changed() { self.look() } else { None }
    }

    /// The contract brings a profile from now on. Returns why the stream must end, if it may not bring it for all
    /// of its cameras.
    pub(super) fn brings_profile(&mut self) -> Option<ApiError> {
        self.stream.needs(Verb::Profile);
        self.look()
    }

    /// The same as [`StreamAccess::lost`], whether something has changed or not.
    pub(super) fn look(&mut self) -> Option<ApiError> {
        self.revoked.notice();
        if let Err(revoked) = not_revoked(&self.revoked, &self.principal) {
            return Some(revoked);
        }
        self.stream.look(&self.rights.notice()).err().map(|lost| match lost {
            Lost::Refused(refusal) => refused(&self.refusals, &self.principal, &refusal),
            lost @ Lost::Changed { .. } => ApiError::new(Code::Aborted, "RIGHTS_CHANGED", lost.to_string()),
        })
    }
}

/// Fails for a principal whose certificate was revoked. The edge's operators hear of it as well.
fn not_revoked(revoked: &LiveRevocations, principal: &Principal) -> Result<(), ApiError> {
    match principal.certificate().and_then(|certificate| revoked.refuses(certificate)) {
        Some(denial) => Err(ApiError::revoked(denial.to_string())),
        None => Ok(()),
    }
}

/// The error for a refusal. The edge's operators hear of it as well.
fn refused(refusals: &Refusals, principal: &Principal, refusal: &Refusal) -> ApiError {
    let why = refusal.to_string();
    refusals.log(monotonic_now(), &principal.to_string(), &why);
    ApiError::new(Code::PermissionDenied, "PERMISSION_DENIED", why)
}

#[cfg(test)]
mod tests {
    use mez_core::rights::{Bearer, Rights};

    use super::*;
    use crate::identity::{Role, TemporarySite};

    /// A user of the host other than the edge's own has no rights by being there.
    #[test]
    fn users_of_the_host_are_told_apart_by_their_numbers() {
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(Principal::User { uid: own }.bearer(), Bearer::Owner);
        assert_eq!(Principal::User { uid: 0 }.bearer(), Bearer::Owner);
        let other = Principal::User { uid: own.wrapping_add(4_711) };
        assert_eq!(other.bearer(), Bearer::User(own.wrapping_add(4_711)));
        let camera = "dock/cam1".parse().unwrap();
        let site = TemporarySite::create(&"harbour".parse().unwrap()).unwrap();
        let edge = site.keys().credentials(Role::Edge, None).unwrap();
        let access = Access::new(LiveRights::fixed(Rights::default()), LiveRevocations::in_memory(&edge));
        let error = access.check(&other, Verb::Watch, &camera).unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (Code::PermissionDenied, "PERMISSION_DENIED"));
        assert!(error.message.contains("`mez keys grant user/"), "{error}");
        assert_eq!(access.check(&Principal::User { uid: own }, Verb::Operate, &camera), Ok(()));
    }
}
