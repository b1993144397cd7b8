//! Requests of the page and other HTTP clients to an edge, each with the rights of its principal.

use std::sync::{Arc, OnceLock};

use mez_core::broker::edge::CameraInfo;
use mez_core::contract::Contract;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::rights::{Granted, Verb};
use mez_core::setting::Setting;
use ring::digest::{SHA256, digest};
use tokio::sync::watch;
use tonic::Code;

use super::access::ChangingRights;
use super::contract::Profile;
use super::edge::EdgeApi;
use super::feed::Feed;
use super::principal::{Member, Principal};
use super::request::Subscribe;
use super::{ApiError, pb};
use crate::clock::wall_now;
use crate::edge::{EdgeHandle, LastReply};
use crate::identity::{Identity, Role};
use crate::revocation::{LiveRevocations, signed_in};
use crate::web::sessions::Sessions;

/// The maximum width of a picture for the page, in pixels.
pub(crate) const VIEW_WIDTH_MAX: u32 = 640;
/// The maximum rate of pictures of a camera for the page, in pictures per second.
pub(crate) const VIEW_RATE_MAX: f64 = 5.0;
/// JPEG quality of pictures for the page.
pub(crate) const VIEW_QUALITY: u8 = 60;

/// The page of an edge, once it is served.
#[derive(Clone, Default)]
pub(crate) struct Page(Arc<OnceLock<Served>>);

/// The page's address and its sessions.
struct Served {
    /// The page's origin, such as `https://localhost:7653`.
    origin: String,
    sessions: Arc<Sessions>,
    /// The edge's certificate, in DER.
    certificate: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
}

impl Page {
    /// Called when the page is served. Only the first call has an effect.
    pub(crate) fn set(
        &self,
        origin: String,
        sessions: Arc<Sessions>,
        certificate: impl Fn() -> Vec<u8> + Send + Sync + 'static,
    ) {
        let _ = self.0.set(Served { origin, sessions, certificate: Box::new(certificate) });
    }
}

impl EdgeApi {
    /// Makes a link that signs in to the page once. Only users of the edge's host may do this, and only the edge's own user for others.
    pub fn open_page(
        &self,
        principal: &Principal,
        request: &pb::OpenPageRequest,
    ) -> Result<pb::OpenPageResponse, ApiError> {
        let as_whom = match request.identity.as_str() {
            "" => None,
            name => Some(self.application(name)?),
        };
        self.access.check_opens_page(principal, as_whom.as_ref())?;
        let Some(page) = self.page.0.get() else {
            let message = "this edge serves no page; start the edge with `mez edge --web`, or write web = \"on\" into its settings";
            return Err(ApiError::new(Code::FailedPrecondition, "NO_PAGE", message));
        };
        let principal = as_whom.unwrap_or_else(|| principal.clone());
        let link = page
            .sessions
            .link(principal.clone())
            .map_err(|error| ApiError::new(Code::Internal, "NO_RANDOMNESS", error.to_string()))?;
        let lasts = crate::web::sessions::SESSION_LASTS.as_nanos() as u64;
        Ok(pb::OpenPageResponse {
            link: format!("{}/#token={}", page.origin, link.secret),
            link_ends_utc_ns: link.signed.ends_utc.as_nanos(),
            session_ends_utc_ns: link.signed.ends_utc.as_nanos().saturating_add(lasts),
            identity: principal.bearer().to_string(),
            certificate_sha256: digest(&SHA256, &(page.certificate)()).as_ref().to_vec().into(),
        })
    }

    /// The principal of an application of this site. A later revocation of the application ends its sessions.
    fn application(&self, name: &str) -> Result<Principal, ApiError> {
        let invalid = |why: String| ApiError::invalid("identity", "INVALID_IDENTITY", why);
        let identity =
            Identity::parse_within(self.edge.site(), name).map_err(|error| invalid(error.to_string()))?;
        if identity.role != Role::App {
            return Err(invalid(format!(
                "{name} is not an application; name an application, such as app/wall"
            )));
        }
        let certificate = signed_in(&identity, &self.revoked().now().list);
        let certificate = certificate.ok_or_else(|| invalid(format!("{name} cannot be signed in")))?;
        Ok(Principal::Member(Member { identity, certificate }))
    }

    /// The cameras that a principal may observe. Fails if it may observe none.
    pub(crate) fn observable(&self, principal: &Principal) -> Result<Granted, ApiError> {
        self.access.select(principal, Verb::Observe, &everything())
    }

    /// Whether a principal may observe every camera. Fails if it may observe none.
    pub(crate) fn observes_everything(&self, principal: &Principal) -> Result<bool, ApiError> {
        Ok(self.observable(principal)?.includes(&everything()))
    }

    /// The broker.
    pub(crate) fn handle(&self) -> &EdgeHandle {
        &self.edge
    }

    /// Notices changes of the rights and the deny list.
    pub(crate) fn changing_rights(&self) -> ChangingRights {
        self.access.changing()
    }

    /// The deny list.
    pub(crate) fn revoked(&self) -> LiveRevocations {
        self.edge.revoked().clone()
    }

    /// Becomes true when the edge's server stops.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.clone()
    }

    /// The cameras that a principal may watch. `None`: there is none.
    pub(crate) fn watchable(&self, principal: &Principal) -> Option<Granted> {
        self.access.would_select(principal, Verb::Watch, &everything())
    }

    /// Whether a principal may watch a camera.
    pub(crate) fn check_watch(&self, principal: &Principal, camera: &CameraName) -> Result<(), ApiError> {
        self.access.check(principal, Verb::Watch, camera)
    }

    /// The last results of applications for a camera's frames. Like notes, this needs the right `read`.
    pub(crate) fn last_replies(
        &self,
        principal: &Principal,
        camera: &CameraName,
    ) -> Result<Vec<LastReply>, ApiError> {
        self.access.check(principal, Verb::Read, camera)?;
        Ok(self.edge.last_replies(camera))
    }

    /// Records in the audit log that somebody signed in to the page.
    pub(crate) fn signed_in(&self, principal: &Principal, from: String) {
        self.edge.audit().connected(principal.short(), "page", from);
    }

    /// Subscribes to a camera for the page. If the camera has other subscriptions, the page gets the same
    /// frames, otherwise it requests few small pictures. `known`: what the edge last knew about the camera.
    /// Returns `None` while the size of the camera's frames is unknown, because a request needs it.
    pub(crate) async fn view(
        &self,
        principal: &Principal,
        camera: &CameraName,
        known: Option<&CameraInfo>,
    ) -> Result<Option<Feed>, ApiError> {
        self.check_watch(principal, camera)?;
        let Some(info) = known else {
            let message = format!("the edge knows no camera {camera}");
            return Err(ApiError::new(Code::NotFound, "UNKNOWN_CAMERA", message));
        };
        let status = &info.status;
        let request = pb::SubscribeRequest {
            pattern: camera.as_str().into(),
            application: "page".into(),
            accept_encodings: vec![pb::Encoding::Jpeg as i32],
            ..pb::SubscribeRequest::default()
        };
        let mut subscribe = Subscribe::parse(request, wall_now())?;
        subscribe.spec.looks_on = true;
        // A derived stream is published at the edge and crosses no link, so it needs no profile.
        let profile = match small_pictures((status.width, status.height), status.frames_per_second) {
            _ if info.derived.is_some() => None,
            Some(profile) => {
                subscribe.spec.contract = Contract { accuracy_floor: Some(0.0), ..Contract::default() };
                self.profile(Some(Profile::Inline(profile.into()))).await?
            }
            None => return Ok(None),
        };
        self.open(principal, subscribe, profile).await.map(Some)
    }
}

fn everything() -> CameraPattern {
    "**".parse().expect("it is a pattern")
}

/// A profile with one rung: JPEG of the page's size and rate. `None`: the frames have no pixels, or none was published yet.
///
/// The accuracy has no meaning, because the page detects nothing. The sizes are
/// typical for such pictures, by their pixels. The camera learns the real sizes.
fn small_pictures((width, height): (u32, u32), frames_per_second: f64) -> Option<String> {
    if width == 0 || height == 0 {
        return None;
    }
    let to_width = width.min(VIEW_WIDTH_MAX);
    let size = if to_width < width { format!("/w{to_width}") } else { String::new() };
    let skip = ((frames_per_second / VIEW_RATE_MAX).ceil() - 1.0).clamp(0.0, 100.0) as u8;
    let skip = if skip > 0 { format!("/skip{skip}") } else { String::new() };
    let rung = format!("jpeg{size}/q{VIEW_QUALITY}/420{skip}");
    debug_assert!(rung.parse::<Setting>().is_ok(), "{rung}");
    let pixels = f64::from(to_width) * f64::from(to_width) * f64::from(height) / f64::from(width);
    let bytes = (pixels * 0.12).max(100.0);
    let document = serde_json::json!({
        "format": "mez-profile", "version": 1, "app": "page", "width": width, "height": height,
        // Without originals: the edge would have to decode them too.
        "source_video": false,
        "rungs": [{
            "rung": rung,
            "bytes": {"mean": bytes, "p05": bytes / 2.0, "p50": bytes, "p95": bytes * 2.0},
            "accuracy_normalised": {"value": 1.0},
        }],
    });
    Some(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::ProfileStore;

    #[test]
    fn the_profile_for_the_page_is_one() {
        let store = ProfileStore::new(std::path::PathBuf::new());
        for (size, rate, rung) in [
            ((1280, 720), 30.0, "jpeg/w640/q60/420/skip5"),
            ((1920, 1080), 4.0, "jpeg/w640/q60/420"),
            ((320, 240), 15.0, "jpeg/q60/420/skip2"),
            ((640, 1), 0.0, "jpeg/q60/420"),
        ] {
            let document = small_pictures(size, rate).expect("it has pixels");
            assert!(document.contains(&format!("{rung:?}")), "{document}");
            let held = store.take_in(document.into()).unwrap_or_else(|error| panic!("{rung}: {error}"));
            assert_eq!(held.profile.size, size);
            assert!(!held.profile.profile.takes_source_video());
        }
        assert_eq!(small_pictures((0, 0), 5.0), None);
    }
}
