//! Asks the edge's rights: what each request needs, whether its principal has it, and when a stream loses it.
//!
//! This is the only place of the interface that asks. Every call of [`super::edge::EdgeApi`] that gives something
//! away goes through it, and every event of a stream through [`StreamAccess::lost`].

use std::sync::Arc;

use mez_core::history::Tier;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::rights::{Bearer, Granted, Refusal, Verb};
use mez_core::setting::Setting;
use mez_core::subscription::SubscriptionSpec;
use mez_core::units::Timestamp;
use tonic::Code;

use super::ApiError;
use super::contract::Profile;
use super::principal::Principal;
use super::request::Subscribe;
use crate::clock::monotonic_now;
use crate::identity::refusals::Refusals;
use crate::rights::LiveRights;

/// How far in the future the end of a reading may lie and count as the present: the clock of an application that
/// asks for everything until now may be ahead of ours.
const CLOCK_TOLERANCE_NS: u64 = 60 * 1_000_000_000;

/// Answers whether a principal may do something, by the rights in force. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Access {
    rights: LiveRights,
    /// Tells the edge's operators who was refused, each now and then.
    refusals: Arc<Refusals>,
}

impl Access {
    pub(super) fn new(rights: LiveRights) -> Self {
        Self { rights, refusals: Arc::default() }
    }

    /// Whether `principal` may do `verb` with `camera`.
    pub(super) fn check(
        &self,
        principal: &Principal,
        verb: Verb,
        camera: &CameraName,
    ) -> Result<(), ApiError> {
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
        let mut verbs = verbs_of(&asked.spec, now);
        if matches!(asked.profile, Some(Profile::Inline(_))) {
            verbs.push(Verb::Profile);
        }
        // Noticed before they are read, so that no change falls in between.
        let (mut rights, refusals) = (self.rights.clone(), Arc::clone(&self.refusals));
        let (who, pattern) = (principal.bearer(), asked.spec.cameras.clone());
        let selected = rights.notice().select(&who, &verbs, &pattern);
        let granted = selected.map_err(|refusal| refused(&refusals, principal, &refusal))?;
        Ok(StreamAccess { rights, refusals, principal: principal.clone(), verbs, pattern, granted })
    }
}

/// What a subscription needs.
fn verbs_of(spec: &SubscriptionSpec, now: Timestamp) -> Vec<Verb> {
    let tolerated = Timestamp::from_nanos(now.as_nanos().saturating_add(CLOCK_TOLERANCE_NS));
    let reads = spec.span.begin.is_some_and(|begin| begin < now) || spec.past.fill;
    let goes_on = spec.span.end.is_none_or(|end| end > tolerated);
    let mut verbs = Vec::new();
    if goes_on || !reads {
        verbs.push(Verb::Watch);
    }
    if spec.wants_originals() {
        verbs.push(Verb::Originals);
    }
    if reads {
        verbs.push(Verb::Read);
        // Without a quality, what the edge does not hold is fetched as it was published.
        let fetches = spec.past.tier_max == Tier::Camera;
        if fetches && spec.past.quality.is_none_or(|quality| quality == Setting::ORIGINAL) {
            verbs.push(Verb::Originals);
        }
    }
    verbs
}

/// What one stream was granted, and whether that still holds.
#[derive(Debug)]
pub struct StreamAccess {
    rights: LiveRights,
    refusals: Arc<Refusals>,
    principal: Principal,
    verbs: Vec<Verb>,
    pattern: CameraPattern,
    granted: Granted,
}

impl StreamAccess {
    /// The cameras that the stream may have.
    pub(super) fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Waits until the rights have changed. Cancelling this loses nothing.
    pub(super) async fn changed(&mut self) {
        self.rights.changed().await;
    }

    /// Why the stream must end, if its cameras are not the same any more.
    pub(super) fn lost(&mut self) -> Option<ApiError> {
        if self.rights.has_changed() { self.look() } else { None }
    }

    /// The contract brings a profile from now on. Returns why the stream must end, if it may not bring it for all
    /// of its cameras.
    pub(super) fn brings_profile(&mut self) -> Option<ApiError> {
        if !self.verbs.contains(&Verb::Profile) {
            self.verbs.push(Verb::Profile);
        }
        self.look()
    }

    /// The same, whether the rights have changed or not.
    pub(super) fn look(&mut self) -> Option<ApiError> {
        let who: Bearer = self.principal.bearer();
        match self.rights.notice().select(&who, &self.verbs, &self.pattern) {
            Ok(granted) if granted == self.granted => None,
            // The same request then gets the cameras that it may have now.
            Ok(_) => {
                let Self { pattern, .. } = self;
                let message = format!("the rights of {who} for {pattern} have changed; subscribe again");
                Some(ApiError::new(Code::Aborted, "RIGHTS_CHANGED", message))
            }
            Err(refusal) => Some(refused(&self.refusals, &self.principal, &refusal)),
        }
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
    use mez_core::history::PastOptions;
    use mez_core::rights::Rights;
    use mez_core::subscription::{Deliver, Span};

    use super::*;

    const NOW: Timestamp = Timestamp::from_nanos(1_000 * 1_000_000_000);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn spec(begin: Option<u64>, end: Option<u64>, past: PastOptions) -> SubscriptionSpec {
        let span = Span { begin: begin.map(at), end: end.map(at), deliver: Deliver::Every };
        SubscriptionSpec { past, ..SubscriptionSpec::new("dock/*".parse().unwrap(), span) }
    }

    /// The newest frames as they are published.
    fn newest(past: PastOptions) -> SubscriptionSpec {
        let span = Span { deliver: Deliver::Newest, ..Span::LIVE };
        SubscriptionSpec { past, ..SubscriptionSpec::new("dock/*".parse().unwrap(), span) }
    }

    #[test]
    fn each_request_needs_what_it_gets() {
        use Verb::{Originals, Read, Watch};
        let small = PastOptions { quality: Some("jpeg/w640/q70/420".parse().unwrap()), ..PastOptions::ALL };
        let original = PastOptions { quality: Some(Setting::ORIGINAL), ..PastOptions::ALL };
        let held = PastOptions { tier_max: Tier::Disk, ..PastOptions::ALL };
        let cases: [(_, &[Verb]); 11] = [
            (spec(None, None, PastOptions::ALL), &[Watch]),
            (spec(None, Some(2_000), PastOptions::ALL), &[Watch]),
            (spec(Some(1_500), None, PastOptions::ALL), &[Watch]),
            (spec(Some(900), Some(950), held), &[Read]),
            (spec(Some(900), Some(950), small), &[Read]),
            (spec(Some(900), Some(950), original), &[Read, Originals]),
            (spec(Some(900), Some(950), PastOptions::ALL), &[Read, Originals]),
            // The application's clock may be ahead of ours.
            (spec(Some(900), Some(1_010), held), &[Read]),
            (spec(Some(900), None, held), &[Watch, Read]),
            (spec(None, None, PastOptions::FILLED), &[Watch, Read, Originals]),
            (newest(original), &[Watch, Originals]),
        ];
        for (spec, verbs) in cases {
            assert_eq!(verbs_of(&spec, NOW), verbs, "{:?} {:?}", spec.span, spec.past);
        }
    }

    /// A user of the host other than the edge's own has no rights by being there.
    #[test]
    fn users_of_the_host_are_told_apart_by_their_numbers() {
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(Principal::User { uid: own }.bearer(), Bearer::Owner);
        assert_eq!(Principal::User { uid: 0 }.bearer(), Bearer::Owner);
        let other = Principal::User { uid: own.wrapping_add(4_711) };
        assert_eq!(other.bearer(), Bearer::User(own.wrapping_add(4_711)));
        let camera = "dock/cam1".parse().unwrap();
        let access = Access::new(LiveRights::fixed(Rights::default()));
        let error = access.check(&other, Verb::Watch, &camera).unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (Code::PermissionDenied, "PERMISSION_DENIED"));
        assert!(error.message.contains("`mez keys grant user/"), "{error}");
        assert_eq!(access.check(&Principal::User { uid: own }, Verb::Operate, &camera), Ok(()));
    }
}
