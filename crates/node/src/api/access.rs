//! Asks the edge's rights and its deny list: what each request needs, whether its principal has it and was not revoked,
//! and when a stream loses it.
//!
//! This is the only place of the interface that asks. Every call of [`super::edge::EdgeApi`] that gives something
//! away goes through it, and every event of a stream through [`StreamAccess::lost`]. What a request needs, and
//! when a stream must end, core decides ([`mez_core::rights`]).

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

/// Answers whether a principal may do something, by the rights in force. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Access {
    rights: LiveRights,
    revoked: LiveRevocations,
    told: Told,
}

/// Tells the edge's operators who was refused what, and who was given the past.
#[derive(Clone, Debug)]
struct Told {
    /// In the log for people, each now and then.
    refusals: Arc<Refusals>,
    audit: Audit,
}

impl Access {
    pub(super) fn new(rights: LiveRights, revoked: LiveRevocations, audit: Audit) -> Self {
        Self { rights, revoked, told: Told { refusals: Arc::default(), audit } }
    }

    /// Whether `principal` may do `verb` with `camera`.
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

    /// The same for what may be done only by a user of the edge's host, through its Unix socket. Returns the user.
    pub(super) fn check_user(
        &self,
        principal: &Principal,
        (verb, what): (Verb, &str),
        camera: &CameraName,
    ) -> Result<u32, ApiError> {
        let Principal::User { uid } = *principal else {
            let why = format!(
                "a camera is {what} on the edge's own host only, through its Unix socket: run `mez cameras {} {camera}` there",
                if what == "reset" { "reset" } else { "forget" },
            );
            let refused = Event::new(wall_now(), Kind::Refused, principal.short());
            self.told.audit.note(refused.what(verb.as_str()).cameras(camera.as_str()).why(&*why));
            return Err(ApiError::new(Code::PermissionDenied, "ONLY_ON_HOST", why));
        };
        self.check(principal, verb, camera)?;
        Ok(uid)
    }

    /// Whether `principal` may make links to the edge's page: a user of the edge's host, through its Unix socket, for itself. Links for an
    /// application are made by whoever could take its grants away as well. That one is made is recorded.
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
            let why = "links to the page are made on the edge's own host only, through its Unix socket: run `mez edge open` there";
            return refused("ONLY_ON_HOST", why.into());
        }
        if let Some(other) = as_whom
            && principal.bearer() != Bearer::Owner
        {
            let who = principal.bearer();
            let why = format!(
                "{who} may not sign in as {}; the user that the edge runs as may, and root",
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

    /// For whoever checks again when something has changed.
    pub(super) fn changing(&self) -> ChangingRights {
        let mut changing = ChangingRights { rights: self.rights.clone(), revoked: self.revoked.clone() };
        changing.notice();
        changing
    }

    /// Fails for a principal whose certificate was revoked. For what needs no grant, because it is the principal's own.
    pub(super) fn check_not_revoked(&self, principal: &Principal) -> Result<(), ApiError> {
        self.told.not_revoked(&self.revoked, principal)
    }

    /// Whether `principal` may publish a derived stream, and for how long. That it does is recorded.
    pub(super) fn publish(
        &self,
        principal: &Principal,
        stream: &CameraName,
    ) -> Result<StreamAccess, ApiError> {
        // Noticed before they are read, so that no change falls in between.
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

    /// Records that a group was forgotten.
    pub(super) fn forgot_group(&self, principal: &Principal, group: &str) {
        let event = Event::new(wall_now(), Kind::Operated, principal.short());
        self.told.audit.note(event.what("forget-group").why(group));
    }

    /// Records that notes of a camera are given out.
    pub(super) fn gives_notes(&self, principal: &Principal, camera: &CameraName) {
        let read = Event::new(wall_now(), Kind::Read, principal.short());
        self.told.audit.note(read.what("notes").cameras(camera.as_str()));
    }

    /// Records that frames of a camera are written into a file for somebody.
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

    /// Records what came of an operation on a camera.
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

    /// The cameras of `pattern` with which `principal` may do `verb`.
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

    /// Why `principal` would be refused to do `verb` with the cameras of `pattern`, if it would. It only asks, so nobody
    /// else hears of it.
    pub(super) fn would(&self, principal: &Principal, verb: Verb, pattern: &CameraPattern) -> Option<String> {
        let selected = self.rights.now().select(&principal.bearer(), &[verb], pattern);
        selected.err().map(|refusal| refusal.to_string())
    }

    /// The cameras of `pattern` with which `principal` may do `verb`. `None`: there is none. It only asks, so nobody hears of it.
    pub(super) fn would_select(
        &self,
        principal: &Principal,
        verb: Verb,
        pattern: &CameraPattern,
    ) -> Option<Granted> {
        self.rights.now().select(&principal.bearer(), &[verb], pattern).ok()
    }

    /// What is in force, for whoever may change it all.
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

    /// What `principal` may have of a subscription that it asks for at `now`, for as long as the stream runs.
    pub(super) fn subscribe(
        &self,
        principal: &Principal,
        asked: &Subscribe,
        now: Timestamp,
    ) -> Result<StreamAccess, ApiError> {
        let mut verbs = asked.spec.needs(now);
        if asked.group.as_ref().is_some_and(|group| group.options.keeps_place()) {
            // What its members could not take at once comes from the edge's memory and disk.
            verbs.push(Verb::Read);
        }
        if asked.for_export {
            verbs.push(Verb::Export);
        }
        if matches!(asked.profile, Some(Profile::Inline(_))) {
            verbs.push(Verb::Profile);
        }
        // Noticed before they are read, so that no change falls in between.
        let (mut in_force, told) = (self.changing(), self.told.clone());
        told.not_revoked(&in_force.revoked, principal)?;
        let (who, cameras) = (principal.bearer(), asked.spec.cameras.clone());
        let stream = StreamRights::ask(&in_force.rights.notice(), who, verbs.clone(), cameras)
            .map_err(|refusal| told.refused(principal, &refusal))?;
        let gives = Gives::of(asked, &verbs);
        Ok(StreamAccess { in_force, told, principal: principal.clone(), stream, gives })
    }
}

/// Tells when what was granted may have changed: the rights, or the deny list.
#[derive(Debug)]
pub(crate) struct ChangingRights {
    rights: LiveRights,
    revoked: LiveRevocations,
}

impl ChangingRights {
    /// Everything until now counts as noticed.
    pub(crate) fn notice(&mut self) {
        self.rights.notice();
        self.revoked.notice();
    }

    fn has_changed(&self) -> bool {
        self.rights.has_changed() || self.revoked.has_changed()
    }

    /// Waits until something has changed since it was noticed. Cancelling this loses nothing.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            () = self.rights.changed() => {}
            () = self.revoked.changed() => {}
        }
    }
}

/// What one stream was granted, and whether that still holds.
#[derive(Debug)]
pub struct StreamAccess {
    in_force: ChangingRights,
    told: Told,
    principal: Principal,
    stream: StreamRights,
    /// `None`: what it gives out is not recorded.
    gives: Option<Gives>,
}

/// What the audit log says of a stream.
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
    /// Frames of the past are recorded, and frames for files.
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

    /// Records that the stream begins with these cameras: those that exist, and not what a pattern might name.
    pub(super) fn begins(&mut self, cameras: &[CameraName]) {
        if let (Some(gives), []) = (&self.gives, cameras) {
            let why = format!("no camera is known that {} selects", gives.pattern);
            self.told.audit.note(gives.event(&self.principal).why(why));
        }
        cameras.iter().for_each(|camera| self.gives(camera));
    }

    /// Records that the stream gives out frames of a camera, if that is not recorded yet: one that joined later.
    pub(super) fn gives(&mut self, camera: &CameraName) {
        let Some(gives) = &mut self.gives else { return };
        if !gives.cameras.contains(camera) {
            gives.cameras.insert(camera.clone());
            let event = gives.event(&self.principal).cameras(camera.as_str()).span(gives.span);
            self.told.audit.note(event);
        }
    }

    /// The rights as they were when this stream last looked at them.
    pub(super) fn rights(&self) -> LiveRights {
        self.in_force.rights.clone()
    }

    /// Waits until the rights or the deny list have changed. Cancelling this loses nothing.
    pub(super) async fn changed(&mut self) {
        self.in_force.changed().await;
    }

    /// Why the stream must end, if its cameras are not the same any more.
    pub(super) fn lost(&mut self) -> Option<ApiError> {
        if self.in_force.has_changed() { self.look() } else { None }
    }

    /// The contract brings a profile from now on. Returns why the stream must end, if it may not bring it for all
    /// of its cameras.
    pub(super) fn brings_profile(&mut self) -> Option<ApiError> {
        self.stream.needs(Verb::Profile);
        self.look()
    }

    /// The same as [`StreamAccess::lost`], whether something has changed or not.
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
    /// Fails for a principal whose certificate was revoked.
    fn not_revoked(&self, revoked: &LiveRevocations, principal: &Principal) -> Result<(), ApiError> {
        let denied = principal.certificate().and_then(|certificate| revoked.denies(certificate));
        let Some(why) = denied.map(|denial| denial.to_string()) else { return Ok(()) };
        self.refusals.log(monotonic_now(), &principal.to_string(), &why);
        self.audit.note(Event::new(wall_now(), Kind::Refused, principal.short()).what("revoked").why(&*why));
        Err(ApiError::revoked(why))
    }

    /// The error for a refusal.
    fn refused(&self, principal: &Principal, refusal: &Refusal) -> ApiError {
        let why = refusal.to_string();
        self.refusals.log(monotonic_now(), &principal.to_string(), &why);
        let event = Event::new(wall_now(), Kind::Refused, principal.short());
        self.audit.note(event.what(refusal.verb.as_str()).cameras(refusal.cameras.as_str()).why(&*why));
        ApiError::new(Code::PermissionDenied, "PERMISSION_DENIED", why)
    }
}

/// Which frames a subscription is for.
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
        let revoked = LiveRevocations::in_memory(&edge);
        let access = Access::new(LiveRights::fixed(Rights::default()), revoked, Audit::off());
        let error = access.check(&other, Verb::Watch, &camera).unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (Code::PermissionDenied, "PERMISSION_DENIED"));
        assert!(error.message.contains("`mez keys grant user/"), "{error}");
        assert_eq!(access.check(&Principal::User { uid: own }, Verb::Operate, &camera), Ok(()));
        // Who else has which rights is nobody else's business.
        assert_eq!(access.in_force(&other), None);
        let member = super::super::principal::Member {
            identity: edge.identity().clone(),
            certificate: access.revoked.own().unwrap(),
        };
        assert_eq!(access.in_force(&Principal::Member(member)), None);
        let told = access.in_force(&Principal::User { uid: own }).unwrap();
        assert_eq!((told.serial, told.revoked_version, told.grants), (edge.facts().serial.clone(), 0, 0));
    }

    /// A reading is recorded by the cameras that there are. Somebody who asks for others cannot fill the log with their names.
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
