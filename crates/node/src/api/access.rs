//! Checks requests against the edge's rights and its deny list: what a request needs,
//! whether its principal has it and is not revoked, and when a stream loses it.
//!
//! This is the only place of the interface that checks rights. Every call of [`super::edge::EdgeApi`] that
//! returns protected data goes through this module, and every event of a stream through [`StreamAccess::lost`].
//! The core decides what a request needs and when a stream must end ([`mez_core::rights`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use mez_core::audit::{Event, Kind, Span};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::revocation::Certificate;
use mez_core::rights::{Bearer, Granted, Lost, Refusal, StreamRights, Verb};
use mez_core::subscription::SubscriptionSpec;
use mez_core::units::Timestamp;
use tonic::Code;

use super::contract::Profile;
use super::principal::Principal;
use super::request::Subscribe;
use super::{ApiError, RIGHTS_CHANGED, pb};
use crate::audit::Audit;
use crate::clock::{monotonic_now, wall_now};
use crate::identity::refusals::Refusals;
use crate::revocation::LiveRevocations;
use crate::rights::{LiveRights, digest};

/// Decides whether a principal may do something, by the rights in force. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Access {
    rights: LiveRights,
    revoked: LiveRevocations,
    told: Told,
}

/// Reports to the edge's operators which requests were refused, and who got frames of the past.
#[derive(Clone, Debug)]
struct Told {
    /// For the log for people, with a limit per client.
    refusals: Arc<Refusals>,
    audit: Audit,
}

impl Access {
    pub(super) fn new(rights: LiveRights, revoked: LiveRevocations, audit: Audit) -> Self {
        Self { rights, revoked, told: Told { refusals: Arc::default(), audit } }
    }

    /// Checks whether `principal` may do `verb` with `camera`.
    pub(super) fn check(
        &self,
        principal: &Principal,
        verb: Verb,
        camera: &CameraName,
    ) -> Result<(), ApiError> {
        self.told.not_revoked(&self.revoked, principal)?;
        let checked = self.rights.now().check(&principal.bearer(), verb, camera);
        checked.map_err(|refusal| self.told.refused(principal, &refusal))
    }

    /// Like [`Self::check`], for operations that only a user of the edge's host may do, through its Unix socket. Returns the user's number.
    pub(super) fn check_user(
        &self,
        principal: &Principal,
        (verb, what): (Verb, &str),
        camera: &CameraName,
    ) -> Result<u32, ApiError> {
        let Principal::User { uid } = *principal else {
            let why = format!(
                "a camera can be {what} only on the edge's host, through the edge's Unix socket: run `mez cameras {} {camera}` there",
                if what == "reset" { "reset" } else { "forget" },
            );
            let refused = Event::new(wall_now(), Kind::Refused, principal.short());
            self.told.audit.note(refused.what(verb.as_str()).cameras(camera.as_str()).why(&*why));
            return Err(ApiError::new(Code::PermissionDenied, "ONLY_ON_HOST", why));
        };
        self.check(principal, verb, camera)?;
        Ok(uid)
    }

    /// Checks whether `principal` may make links to the edge's page. It must be a user of the edge's host,
    /// through its Unix socket, and may make links for itself. Only [`Bearer::Owner`], who can change an
    /// application's grants anyway, may make links for an application. Records the link in the audit log.
    pub(super) fn check_opens_page(
        &self,
        principal: &Principal,
        as_whom: Option<&Principal>,
    ) -> Result<(), ApiError> {
        let refused = |reason, why: String| {
            let refused = Event::new(wall_now(), Kind::Refused, principal.short());
            self.told.audit.note(refused.what("open-page").why(&*why));
            Err(ApiError::new(Code::PermissionDenied, reason, why))
        };
        if !matches!(principal, Principal::User { .. }) {
            let why = "links to the page are made only on the edge's host, through the edge's Unix socket: run `mez edge open` there";
            return refused("ONLY_ON_HOST", why.into());
        }
        if let Some(other) = as_whom
            && principal.bearer() != Bearer::Owner
        {
            let who = principal.bearer();
            let why = format!(
                "{who} may not sign in as {}; only root and the user that the edge runs as may do this",
                other.short()
            );
            return refused("PERMISSION_DENIED", why);
        }
        let opened = Event::new(wall_now(), Kind::Operated, principal.short()).what("open-page");
        self.told
            .audit
            .note(opened.why(as_whom.map(|other| format!("as {}", other.short())).unwrap_or_default()));
        Ok(())
    }

    /// Returns a value that notices changes of the rights and the deny list.
    pub(super) fn changing(&self) -> ChangingRights {
        let mut changing = ChangingRights { rights: self.rights.clone(), revoked: self.revoked.clone() };
        changing.notice();
        changing
    }

    /// Fails if the principal's certificate was revoked. For requests that need no grant, because they concern the principal's own data.
    pub(super) fn check_not_revoked(&self, principal: &Principal) -> Result<(), ApiError> {
        self.told.not_revoked(&self.revoked, principal)
    }

    /// Checks whether `principal` may publish a derived stream, and for how long. Records the start in the audit log.
    pub(super) fn publish(
        &self,
        principal: &Principal,
        stream: &CameraName,
    ) -> Result<StreamAccess, ApiError> {
        // Marked as noticed before they are read, so that no change in between is missed.
        let (mut in_force, told) = (self.changing(), self.told.clone());
        told.not_revoked(&in_force.revoked, principal)?;
        let publish = vec![Verb::Publish];
        let stream_rights =
            StreamRights::ask(&in_force.rights.notice(), principal.bearer(), publish, stream.into())
                .map_err(|refusal| told.refused(principal, &refusal))?;
        let begins = Event::new(wall_now(), Kind::Connected, principal.short());
        told.audit.note(begins.what("publish").cameras(stream.as_str()));
        Ok(StreamAccess { in_force, told, principal: principal.clone(), stream: stream_rights, gives: None })
    }

    /// Records in the audit log that a group was forgotten.
    pub(super) fn forgot_group(&self, principal: &Principal, group: &str) {
        let event = Event::new(wall_now(), Kind::Operated, principal.short());
        self.told.audit.note(event.what("forget-group").why(group));
    }

    /// Records in the audit log that notes of a camera were read.
    pub(super) fn gives_notes(&self, principal: &Principal, camera: &CameraName) {
        let read = Event::new(wall_now(), Kind::Read, principal.short());
        self.told.audit.note(read.what("notes").cameras(camera.as_str()));
    }

    /// Records in the audit log that frames of a camera are written into a file.
    pub(super) fn exports(
        &self,
        principal: &Principal,
        camera: &CameraName,
        (begin, end): (Timestamp, Timestamp),
    ) {
        let span = Span { begin: Some(begin), missed: false, end: Some(end) };
        let event = Event::new(wall_now(), Kind::Exported, principal.short());
        self.told.audit.note(event.what("clip").cameras(camera.as_str()).span(span));
    }

    /// Records in the audit log the result of an operation on a camera.
    pub(super) fn operated(
        &self,
        principal: &Principal,
        what: &str,
        camera: &CameraName,
        failure: Option<String>,
    ) {
        let event = Event::new(wall_now(), Kind::Operated, principal.short());
        let why = failure.map(|failure| format!("failed: {failure}")).unwrap_or_default();
        self.told.audit.note(event.what(what).cameras(camera.as_str()).why(why));
    }

    /// The cameras of `pattern` with which `principal` may do `verb`. Fails if there is none.
    pub(super) fn select(
        &self,
        principal: &Principal,
        verb: Verb,
        pattern: &CameraPattern,
    ) -> Result<Granted, ApiError> {
        self.told.not_revoked(&self.revoked, principal)?;
        let selected = self.rights.now().select(&principal.bearer(), &[verb], pattern);
        selected.map_err(|refusal| self.told.refused(principal, &refusal))
    }

    /// Why `principal` may not do `verb` with the cameras of `pattern`. `None`: it may. Logs nothing.
    pub(super) fn would(&self, principal: &Principal, verb: Verb, pattern: &CameraPattern) -> Option<String> {
        let selected = self.rights.now().select(&principal.bearer(), &[verb], pattern);
        selected.err().map(|refusal| refusal.to_string())
    }

    /// The cameras of `pattern` with which `principal` may do `verb`. `None`: there is none. Logs nothing.
    pub(super) fn would_select(
        &self,
        principal: &Principal,
        verb: Verb,
        pattern: &CameraPattern,
    ) -> Option<Granted> {
        self.rights.now().select(&principal.bearer(), &[verb], pattern).ok()
    }

    /// What is in force at this edge. Only for [`Bearer::Owner`].
    pub(super) fn in_force(&self, principal: &Principal) -> Option<pb::InForce> {
        (principal.bearer() == Bearer::Owner).then(|| {
            let rights = self.rights.now();
            let own = self.revoked.own();
            let text = |part: fn(&Certificate) -> String| own.as_ref().map(part).unwrap_or_default();
            pb::InForce {
                member: text(|own| own.member.to_string()),
                serial: text(|own| own.serial.to_string()),
                issued_utc_ns: own.as_ref().map_or(0, |own| own.issued.as_nanos()),
                revoked_version: self.revoked.now().list.version(),
                grants: rights.grants().count() as u64,
                rights_sha256: digest(&rights).to_vec().into(),
            }
        })
    }

    /// Checks which cameras of a subscription, requested at `now`, `principal` may have, for as long as the stream runs.
    pub(super) fn subscribe(
        &self,
        principal: &Principal,
        asked: &Subscribe,
        now: Timestamp,
    ) -> Result<StreamAccess, ApiError> {
        let mut verbs = asked.spec.needs(now);
        if asked.group.as_ref().is_some_and(|group| group.options.keeps_place()) {
            // Records that the members could not take at once come from the edge's memory and disk.
            verbs.push(Verb::Read);
        }
        if asked.for_export {
            verbs.push(Verb::Export);
        }
        if matches!(asked.profile, Some(Profile::Inline(_))) {
            verbs.push(Verb::Profile);
        }
        // Marked as noticed before they are read, so that no change in between is missed.
        let (mut in_force, told) = (self.changing(), self.told.clone());
        told.not_revoked(&in_force.revoked, principal)?;
        let (who, cameras) = (principal.bearer(), asked.spec.cameras.clone());
        let stream = StreamRights::ask(&in_force.rights.notice(), who, verbs.clone(), cameras)
            .map_err(|refusal| told.refused(principal, &refusal))?;
        let gives = Gives::of(asked, &verbs);
        Ok(StreamAccess { in_force, told, principal: principal.clone(), stream, gives })
    }
}

/// Notices changes of the rights and the deny list.
#[derive(Debug)]
pub(crate) struct ChangingRights {
    rights: LiveRights,
    revoked: LiveRevocations,
}

impl ChangingRights {
    /// Marks all changes so far as noticed.
    pub(crate) fn notice(&mut self) {
        self.rights.notice();
        self.revoked.notice();
    }

    fn has_changed(&self) -> bool {
        self.rights.has_changed() || self.revoked.has_changed()
    }

    /// Waits until something has changed since it was noticed. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            () = self.rights.changed() => {}
            () = self.revoked.changed() => {}
        }
    }
}

/// The rights of one stream, and whether they still hold.
#[derive(Debug)]
pub struct StreamAccess {
    in_force: ChangingRights,
    told: Told,
    principal: Principal,
    stream: StreamRights,
    /// The audit record of what the stream delivers. `None`: it is not recorded.
    gives: Option<Gives>,
}

/// The audit record of a stream.
#[derive(Debug)]
struct Gives {
    kind: Kind,
    what: &'static str,
    pattern: CameraPattern,
    span: Span,
    /// The cameras that are recorded already.
    cameras: BTreeSet<CameraName>,
}

impl Gives {
    /// Frames of the past and frames for files are recorded.
    fn of(asked: &Subscribe, verbs: &[Verb]) -> Option<Self> {
        let kind = match (asked.for_export, verbs.contains(&Verb::Read)) {
            (true, _) => Kind::Exported,
            (false, true) => Kind::Read,
            (false, false) => return None,
        };
        let what = if verbs.contains(&Verb::Originals) { "originals" } else { "frames" };
        let (pattern, span) = (asked.spec.cameras.clone(), span_of(&asked.spec));
        Some(Self { kind, what, pattern, span, cameras: BTreeSet::new() })
    }

    fn event(&self, principal: &Principal) -> Event {
        Event::new(wall_now(), self.kind, principal.short()).what(self.what)
    }
}

impl StreamAccess {
    /// The cameras that the stream may have.
    pub(super) fn granted(&self) -> &Granted {
        self.stream.granted()
    }

    /// Records the cameras with which the stream begins: only existing cameras, not the names in the pattern.
    pub(super) fn begins(&mut self, cameras: &[CameraName]) {
        if let (Some(gives), []) = (&self.gives, cameras) {
            let why = format!("no known camera matches {}", gives.pattern);
            self.told.audit.note(gives.event(&self.principal).why(why));
        }
        cameras.iter().for_each(|camera| self.gives(camera));
    }

    /// Records that the stream delivers frames of a camera, unless this is recorded already. For cameras that joined later.
    pub(super) fn gives(&mut self, camera: &CameraName) {
        let Some(gives) = &mut self.gives else { return };
        if !gives.cameras.contains(camera) {
            gives.cameras.insert(camera.clone());
            let event = gives.event(&self.principal).cameras(camera.as_str()).span(gives.span);
            self.told.audit.note(event);
        }
    }

    /// The rights, as this stream last noticed them.
    pub(super) fn rights(&self) -> LiveRights {
        self.in_force.rights.clone()
    }

    /// Waits until the rights or the deny list have changed. Cancel safe.
    pub(super) async fn changed(&mut self) {
        self.in_force.changed().await;
    }

    /// Why the stream must end, if a change has removed rights that it needs or has changed its cameras.
    pub(super) fn lost(&mut self) -> Option<ApiError> {
        if self.in_force.has_changed() { self.look() } else { None }
    }

    /// From now on the contract has a profile of its own. Returns why the stream must end, if the right `profile` is missing for one of its cameras.
    pub(super) fn brings_profile(&mut self) -> Option<ApiError> {
        self.stream.needs(Verb::Profile);
        self.look()
    }

    /// Like [`StreamAccess::lost`], but checks even if nothing has changed.
    pub(super) fn look(&mut self) -> Option<ApiError> {
        self.in_force.revoked.notice();
        if let Err(revoked) = self.told.not_revoked(&self.in_force.revoked, &self.principal) {
            return Some(revoked);
        }
        self.stream.look(&self.in_force.rights.notice()).err().map(|lost| match lost {
            Lost::Refused(refusal) => self.told.refused(&self.principal, &refusal),
            lost @ Lost::Changed { .. } => ApiError::new(Code::Aborted, RIGHTS_CHANGED, lost.to_string()),
        })
    }
}

impl Told {
    /// Fails if the principal's certificate was revoked.
    fn not_revoked(&self, revoked: &LiveRevocations, principal: &Principal) -> Result<(), ApiError> {
        let denied = principal.certificate().and_then(|certificate| revoked.denies(certificate));
        let Some(why) = denied.map(|denial| denial.to_string()) else { return Ok(()) };
        self.refusals.log(monotonic_now(), &principal.to_string(), &why);
        self.audit.note(Event::new(wall_now(), Kind::Refused, principal.short()).what("revoked").why(&*why));
        Err(ApiError::revoked(why))
    }

    /// Logs and records a refusal, and returns its error.
    fn refused(&self, principal: &Principal, refusal: &Refusal) -> ApiError {
        let why = refusal.to_string();
        self.refusals.log(monotonic_now(), &principal.to_string(), &why);
        let event = Event::new(wall_now(), Kind::Refused, principal.short());
        self.audit.note(event.what(refusal.verb.as_str()).cameras(refusal.cameras.as_str()).why(&*why));
        ApiError::new(Code::PermissionDenied, "PERMISSION_DENIED", why)
    }
}

/// The time span of a subscription, for the audit log.
fn span_of(spec: &SubscriptionSpec) -> Span {
    Span { begin: spec.span.begin, missed: spec.past.fill, end: spec.span.end }
}

#[cfg(test)]
mod tests {
    use mez_core::rights::{Bearer, Rights};

    use super::*;
    use crate::audit::folder::audit_folder;
    use crate::audit::{AuditLog, AuditOptions};
    use crate::identity::{Role, TemporarySite};

    /// A user of the host other than the edge's own has no rights just by being a local user.
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
        let revoked = LiveRevocations::in_memory(&edge);
        let access = Access::new(LiveRights::fixed(Rights::default()), revoked, Audit::off());
        let error = access.check(&other, Verb::Watch, &camera).unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (Code::PermissionDenied, "PERMISSION_DENIED"));
        assert!(error.message.contains("`mez keys grant user/"), "{error}");
        assert_eq!(access.check(&Principal::User { uid: own }, Verb::Operate, &camera), Ok(()));
        // Only the edge's owner may see what is in force.
        assert_eq!(access.in_force(&other), None);
        let member = super::super::principal::Member {
            identity: edge.identity().clone(),
            certificate: access.revoked.own().unwrap(),
        };
        assert_eq!(access.in_force(&Principal::Member(member)), None);
        let told = access.in_force(&Principal::User { uid: own }).unwrap();
        assert_eq!((told.serial, told.revoked_version, told.grants), (edge.facts().serial.clone(), 0, 0));
    }

    /// A reading is recorded with the existing cameras, so that requests for other names cannot fill the log.
    #[test]
    fn a_reading_is_recorded_by_the_cameras_that_exist_and_by_those_that_join() {
        let state = tempfile::tempdir().unwrap();
        let options = AuditOptions {
            folder: audit_folder(state.path()),
            rotation: mez_core::audit::Rotation::default(),
        };
        let audit = Audit::start(options).unwrap();
        let site = TemporarySite::create(&"harbour".parse().unwrap()).unwrap();
        let edge = site.keys().credentials(Role::Edge, None).unwrap();
        let revoked = LiveRevocations::in_memory(&edge);
        let access = Access::new(LiveRights::fixed(Rights::open()), revoked, audit.clone());
        let user = Principal::User { uid: 4_711 };
        let ask = |pattern: &str, begin: Option<u64>| {
            let request = super::super::pb::SubscribeRequest {
                pattern: pattern.into(),
                begin_utc_ns: begin,
                ..Default::default()
            };
            let asked = Subscribe::parse(request, wall_now()).unwrap();
            access.subscribe(&user, &asked, wall_now()).unwrap()
        };
        let [cam1, cam2, cam3] = ["dock/cam1", "dock/cam2", "dock/cam3"].map(|name| name.parse().unwrap());
        let mut stream = ask("dock/*", Some(5));
        stream.begins(&[cam1, cam2]);
        (0..100).for_each(|_| stream.gives(&cam3));
        (0..100).for_each(|number| ask(&format!("x/{number}"), Some(5)).begins(&[]));
        ask("dock/*", None).begins(&[cam3]);
        audit.stop();
        let mut told = Vec::new();
        let mut tail = AuditLog::of_state(state.path()).unwrap().tail(None).unwrap();
        tail.poll(|record| told.push(record.event)).unwrap();
        told.retain(|event| event.kind == Kind::Read);
        let told: Vec<(&str, u64)> = told.iter().map(|event| (&*event.cameras, event.count)).collect();
        assert_eq!(told, [("dock/cam1", 1), ("dock/cam2", 1), ("dock/cam3", 1), ("", 1), ("", 99)]);
    }
}
